//! Defines the class `Query`.
//!
//! A `Query` is a table and a specification: which rows, in which order, and which part of them.
//! Each method returns a new query. A query does nothing until it is iterated or a method such as
//! `count` runs it; `source.rs` then finds its rows.

use pyo3::prelude::*;

use crate::query::spec::Spec;
use crate::query::target::QueryTarget;
use crate::server::table::ServerTable;
use crate::table::handle::Table;

/// Rows of a table, chosen by conditions on their fields: a lazy, immutable query.
///
/// Made by `where`, `find`, `filter`, `order_by`, `limit`, `select` of a table, and refined by the
/// same methods. Iterating it gives records, attached as those of a table. Each iteration runs the
/// query again.
///
/// >>> import pellucid
/// >>> from pellucid import F
/// >>> people = pellucid.open(":memory:").table("people")
/// >>> people.update(ann={"age": 30, "city": "Bath"}, bob={"age": 20, "city": "Bath"}, cid={"age": 40})
/// >>> adults = people.where(F.age > 25)
/// >>> [person.age for person in adults.order_by(F.age.desc())]
/// [40, 30]
/// >>> adults.find(city="Bath").count()
/// 1
#[pyclass(frozen, module = "pellucid", name = "Query")]
pub struct Query {
    pub(super) of: QueryTarget,
    pub(super) spec: Spec,
}

/// The query of all rows of a table.
pub fn of_table(table: &Bound<'_, Table>) -> Query {
    Query { of: QueryTarget::Table(table.clone().unbind()), spec: Spec::default() }
}

/// The query of all rows of a server's table.
pub fn of_server(table: &Bound<'_, ServerTable>) -> Query {
    Query { of: QueryTarget::Server(table.clone().unbind()), spec: Spec::default() }
}

impl Query {
    /// Whether it gives the dicts that `select` makes.
    pub fn is_selected(&self) -> bool {
        self.spec.chosen.is_some()
    }

    pub(super) fn with(
        &self,
        py: Python<'_>,
        change: impl FnOnce(&mut Spec) -> PyResult<()>,
    ) -> PyResult<Self> {
        let mut spec = self.spec.copy(py);
        change(&mut spec)?;
        Ok(Self { of: self.of.clone_ref(py), spec })
    }
}
