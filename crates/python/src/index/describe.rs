//! Describe the indexes of a table.

use pellucid_query::index::Definition;
use pellucid_store::{IndexInfo, StoreError};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::errors;
use crate::expression::handle::Expression;
use crate::expression::sort_by::SortBy;
use crate::store_errors;
use crate::table::handle::Table;

/// The definition of an index, and its state.
///
/// >>> import pellucid
/// >>> from pellucid import F
/// >>> people = pellucid.open(":memory:").table("people")
/// >>> people["ann"] = {"age": 30}
/// >>> people.create_index("by_age", F.age.desc())
/// >>> people.indexes()
/// [<pellucid.IndexInfo 'by_age': age desc, ready, 1 entry>]
#[pyclass(frozen, module = "pellucid", name = "IndexInfo")]
pub struct IndexDescription {
    info: ShownIndex,
    definition: Definition,
    entries: u64,
}

impl IndexDescription {
    /// The description of an index of a server's table.
    ///
    /// # Errors
    /// The text is no definition.
    pub fn of_server(
        (name, text): (&str, &str),
        is_unique: bool,
        is_building: bool,
        entries: u64,
    ) -> PyResult<Self> {
        let definition = Definition::parse(text).map_err(errors::value_error)?;
        let of = ShownIndex { name: name.into(), definition: text.into(), is_unique, is_building };
        Ok(Self { info: of, definition, entries })
    }

    fn new(py: Python<'_>, info: IndexInfo, entries: u64) -> PyResult<Self> {
        let definition = Definition::parse(&info.definition).map_err(|what| {
            errors::raise(
                py,
                "DatabaseCorrupt",
                format!("index {:?} is made of what is none: {what}", info.name),
            )
        })?;
        let info = ShownIndex {
            name: info.name.to_string(),
            definition: info.definition.to_string(),
            is_unique: info.is_unique,
            is_building: info.building.is_some(),
        };
        Ok(Self { info, definition, entries })
    }
}

/// What the description of an index says.
struct ShownIndex {
    name: String,
    definition: String,
    is_unique: bool,
    is_building: bool,
}

/// The descriptions of all indexes of a table, by name.
pub fn all(table: &Bound<'_, Table>) -> PyResult<Vec<IndexDescription>> {
    let described = |(info, count)| IndexDescription::new(table.py(), info, count);
    counted(table)?.into_iter().map(described).collect()
}

/// The indexes of a table, by name, and how many entries they have.
pub fn counted(table: &Bound<'_, Table>) -> PyResult<Vec<(IndexInfo, u64)>> {
    let (py, this) = (table.py(), table.get());
    if this.is_in_transaction(py) {
        this.core().in_running(py, |transaction| {
            transaction.flush_entries()?;
            let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(Vec::new()) };
            let infos = transaction.indexes(id)?;
            infos.into_iter().map(|info| transaction.count(info.id).map(|count| (info, count))).collect()
        })
    } else {
        let snapshot = this.snapshot(py)?;
        let read = || -> Result<Vec<(IndexInfo, u64)>, StoreError> {
            let id = this.identity().in_snapshot(py, this.core(), &snapshot)?;
            let Some(id) = id else { return Ok(Vec::new()) };
            let infos = snapshot.indexes(id)?;
            infos.into_iter().map(|info| snapshot.count(info.id).map(|count| (info, count))).collect()
        };
        read().map_err(|error| store_errors::of_store(py, error))
    }
}

#[pymethods]
impl IndexDescription {
    /// The index's name.
    #[getter]
    fn name(&self) -> &str {
        &self.info.name
    }

    /// What the index consists of: an `Expression` for each part, or a `SortBy` for a descending
    /// part.
    #[getter]
    fn parts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let mut parts = Vec::new();
        for (node, is_descending) in &self.definition.parts {
            parts.push(if *is_descending {
                Bound::new(py, SortBy::new(node.clone(), true))?.into_any()
            } else {
                Bound::new(py, Expression::of(node.clone()))?.into_any()
            });
        }
        PyTuple::new(py, parts)
    }

    /// Whether no two rows may have the same value.
    #[getter]
    fn unique(&self) -> bool {
        self.info.is_unique
    }

    /// The condition for rows to have an entry; None if there is none.
    #[getter]
    fn r#where(&self) -> Option<Expression> {
        self.definition.condition.clone().map(Expression::of)
    }

    /// `"ready"`, or `"building"` while entries of some rows are missing.
    #[getter]
    fn state(&self) -> &'static str {
        if self.info.is_building { "building" } else { "ready" }
    }

    /// How many entries the index has.
    #[getter]
    fn entries(&self) -> u64 {
        self.entries
    }

    fn __repr__(&self) -> String {
        let unique = if self.info.is_unique { "unique, " } else { "" };
        let entries = if self.entries == 1 { "entry" } else { "entries" };
        format!(
            "<pellucid.IndexInfo '{}': {}, {unique}{}, {} {entries}>",
            self.info.name.escape_debug(),
            self.info.definition,
            self.state(),
            self.entries
        )
    }
}
