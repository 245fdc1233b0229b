//! Give databases and snapshots the methods of their default table.
//!
//! `db.sum("age")` is `db.table("default").sum("age")`. Each method is a descriptor on the class,
//! which returns the table's own bound method, with its signature and its docstring. `database.rs`
//! and `snapshot.rs` implement those that loops over rows call (`db[key]`, `get`, `append`).

use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::database::Database;
use crate::snapshot::SnapshotHandle;
use crate::table::handle::Table;

/// The methods of both.
const READS: &str = "keys values items unreadable buffer open range first last indexes index where find filter \
    order_by limit offset to_list to_dicts select group_by agg to_arrow __arrow_c_stream__ \
    to_polars to_pandas to_numpy sum min max mean count column head tail sample fields describe \
    value_counts _ipython_key_completions_";
/// Those of databases alone.
const WRITES: &str = "pop popitem setdefault update clear edit increment compare_and_set put_if_absent get_or_create claim put expire \
    create_index drop_index rebuild_index";

/// The descriptor of one method of the default table, as an attribute of `Database` or `Snapshot`.
#[pyclass(frozen, module = "pellucid", name = "DefaultTableMethod")]
pub struct DefaultTableMethod {
    name: Py<PyString>,
}

#[pymethods]
impl DefaultTableMethod {
    fn __get__<'py>(
        &self,
        py: Python<'py>,
        owner: Option<&Bound<'py, PyAny>>,
        _class: Option<&Bound<'py, PyType>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let Some(owner) = owner else { return py.get_type::<Table>().getattr(&self.name) };
        match owner.cast::<Database>() {
            Ok(database) => database.get().default(py).getattr(&self.name),
            Err(_) => owner.cast::<SnapshotHandle>()?.get().default(py)?.getattr(&self.name),
        }
    }
}

/// Gives the classes of databases and snapshots the methods of their default table.
///
/// # Errors
/// `MemoryError`.
pub fn install(py: Python<'_>) -> PyResult<()> {
    let (database, snapshot) = (py.get_type::<Database>(), py.get_type::<SnapshotHandle>());
    for (class, names) in [(&database, READS), (&database, WRITES), (&snapshot, READS)] {
        for name in names.split(' ') {
            let name = PyString::intern(py, name);
            class.setattr(&name, DefaultTableMethod { name: name.clone().unbind() })?;
        }
    }
    Ok(())
}
