//! The class `Snapshot`, which `db.snapshot()` returns.

use std::sync::Arc;

use pellucid_store::Snapshot;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::core::Core;
use crate::errors;
use crate::hot::gil::{GilCell, GilRc};
use crate::store_errors;
use crate::table::handle::{SharedSnapshot, Table, name_of};
use crate::table::typed::{Evolution, class_of};
use crate::values::row::ValidityFlag;

const UNCHANGING: &str = "a snapshot does not change; write through the database";

/// A frozen view of a database: a mapping over the default table as it was.
///
/// Its records raise `StaleRecord` after it is closed. An open snapshot keeps the space of all data
/// that is deleted meanwhile; `db.stats()` shows how far the oldest one is behind.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> db["a"] = {"n": 1}
/// >>> with db.snapshot() as before:
/// ...     del db["a"]
/// ...     before["a"].n, len(before), len(db)
/// (1, 1, 0)
#[pyclass(frozen, mapping, module = "pellucid", name = "Snapshot")]
pub struct SnapshotHandle {
    core: Arc<Core>,
    snapshot: GilRc<SharedSnapshot>,
    validity: GilRc<ValidityFlag>,
    default: GilCell<Option<Py<Table>>>,
}

impl SnapshotHandle {
    /// A handle whose rows can be read while `validity` is open.
    pub fn new(
        core: Arc<Core>,
        snapshot: GilRc<SharedSnapshot>,
        validity: GilRc<ValidityFlag>,
        default: Py<Table>,
    ) -> Self {
        Self { core, snapshot, validity, default: GilCell::new(Some(default)) }
    }

    /// The default table as it was.
    ///
    /// # Errors
    /// When the snapshot is closed.
    pub fn default<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Table>> {
        let table = self.default.with(py, |table| table.as_ref().map(|table| table.clone_ref(py)));
        table.map(|table| table.into_bound(py)).ok_or_else(|| errors::closed_snapshot(py))
    }

    fn inner(&self, py: Python<'_>) -> PyResult<Snapshot> {
        self.core.check_open(py)?;
        self.snapshot.get(py)
    }
}

#[pymethods]
impl SnapshotHandle {
    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().inner(py)?;
        Ok(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// Close the snapshot. Its records can no longer be used. Closing twice does nothing.
    ///
    /// The space that it keeps on the disk can be reused when no reference to any of its records is
    /// left.
    fn close(&self, py: Python<'_>) {
        self.validity.close();
        drop(self.default.with(py, Option::take));
        self.snapshot.close(py);
    }

    /// The version of the database that the snapshot shows; `db.watch(since=snapshot.version)`
    /// gives the changes since.
    #[getter]
    fn version(&self, py: Python<'_>) -> PyResult<u64> {
        Ok(self.inner(py)?.version())
    }

    /// Return the table `name` as it was, read-only. `type`, `run_init`, `ignore_extra` and
    /// `renames` are as in `Database.table`.
    #[pyo3(signature = (name, /, *, r#type=None, run_init=false, ignore_extra=false, renames=None))]
    fn table(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name_of)] name: String,
        r#type: Option<&Bound<'_, PyAny>>,
        run_init: bool,
        ignore_extra: bool,
        renames: Option<Bound<'_, PyAny>>,
    ) -> PyResult<Py<Table>> {
        self.inner(py)?;
        let evolution = Evolution { ignore_extra, renames, ..Evolution::default() };
        let class = class_of(r#type, run_init, false, &evolution)?;
        let (snapshot, validity) = (self.snapshot.clone(), self.validity.clone());
        Py::new(py, Table::of_snapshot(self.core.clone(), name, class, snapshot, validity))
    }

    /// Return the names of all tables, sorted.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let tables = self.inner(py)?.tables().map_err(|error| store_errors::of_store(py, error))?;
        Ok(tables.into_iter().map(|(name, _)| name).collect())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.default(py)?.len()
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.default(py)?.contains(key)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Table::lookup(&self.default(py)?, key)?.ok_or_else(|| errors::missing(key))
    }

    fn __setitem__(
        &self,
        py: Python<'_>,
        _key: &Bound<'_, PyAny>,
        _value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.inner(py)?;
        Err(errors::read_only(py, UNCHANGING))
    }

    fn __delitem__(&self, py: Python<'_>, _key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.inner(py)?;
        Err(errors::read_only(py, UNCHANGING))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.default(py)?.try_iter()?.into_any())
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method0("__reversed__")
    }

    /// Return the value of `key` in the default table, or `default`.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(Table::lookup(&self.default(py)?, key)?.or(default).unwrap_or_else(|| py.None().into_bound(py)))
    }

    fn __eq__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if slf.is(other) {
            return Ok(true.into_pyobject(py)?.to_owned().into_any());
        }
        slf.get().default(py)?.call_method1("__eq__", (other,))
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if !self.validity.is_open() {
            return Ok(format!("<pellucid.Snapshot of {}, closed>", self.core.target));
        }
        let text = self
            .inner(py)
            .map(|inner| format!("<pellucid.Snapshot of {}, version {}>", self.core.target, inner.version()));
        errors::shown(py, "pellucid.Snapshot", text)
    }
}
