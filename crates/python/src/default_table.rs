//! Give databases the methods of their default table.
//!
//! `db.sum("age")` is `db.table("default").sum("age")`. Each method is a descriptor on the class,
//! which returns the table's own bound method, with its signature and its docstring. `database.rs`
//! implements those that loops over rows call (`db[key]`, `get`, `append`).

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::database::Database;
use crate::table::handle::Table;

const METHODS: &[&str] = &[
    "keys",
    "values",
    "items",
    "pop",
    "popitem",
    "setdefault",
    "update",
    "clear",
    "unreadable",
    "edit",
    "buffer",
    "open",
    "range",
    "first",
    "last",
    "create_index",
    "drop_index",
    "rebuild_index",
    "indexes",
    "index",
    "where",
    "find",
    "filter",
    "order_by",
    "limit",
    "offset",
    "to_list",
    "to_dicts",
    "select",
    "group_by",
    "agg",
    "to_arrow",
    "__arrow_c_stream__",
    "to_polars",
    "to_pandas",
    "to_numpy",
    "sum",
    "min",
    "max",
    "mean",
    "count",
    "column",
];

/// The descriptor of one method of the default table, as an attribute of `Database`.
#[pyclass(frozen, module = "pellucid", name = "DefaultTableMethod")]
pub struct DefaultTableMethod {
    name: Py<PyString>,
}

#[pymethods]
impl DefaultTableMethod {
    fn __get__<'py>(
        &self,
        py: Python<'py>,
        database: Option<&Bound<'py, Database>>,
        _class: Option<&Bound<'py, PyType>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        match database {
            Some(database) => database.get().default(py).getattr(&self.name),
            None => py.get_type::<Table>().getattr(&self.name),
        }
    }
}

/// Gives the class of databases the methods of their default table.
///
/// # Errors
/// `MemoryError`.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let class = py.get_type::<Database>();
    for name in METHODS {
        let name = PyString::intern(py, name);
        class.setattr(&name, DefaultTableMethod { name: name.clone().unbind() })?;
    }
    Ok(())
}
