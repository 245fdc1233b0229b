//! The class `Snapshot`, which `db.snapshot()` returns.

use std::sync::Arc;

use pellucid_store::Snapshot;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::column;
use crate::core::Core;
use crate::errors;
use crate::hot::gil::{GilCell, GilRc};
use crate::index::describe::{self, IndexDescription};
use crate::index::handle::Index;
use crate::index::making;
use crate::store_errors;
use crate::table::handle::{SharedSnapshot, Table, name_of};
use crate::table::typed::class_of;
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

    fn default<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Table>> {
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

    /// Return the table `name` as it was, read-only. `type` and `run_init` are as in
    /// `Database.table`.
    #[pyo3(signature = (name, /, *, r#type=None, run_init=false))]
    fn table(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name_of)] name: String,
        r#type: Option<&Bound<'_, PyAny>>,
        run_init: bool,
    ) -> PyResult<Py<Table>> {
        self.inner(py)?;
        let class = class_of(r#type, run_init, false)?;
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

    /// Return a live view of the default table's keys. Bounds are as for `Table.keys`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, *, start=None, stop=None, prefix=None, reverse=False)"
    )]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("keys", arguments, bounds)
    }

    /// Return a live view of the default table's values. Bounds are as for `Table.keys`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, *, start=None, stop=None, prefix=None, reverse=False)"
    )]
    fn values<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("values", arguments, bounds)
    }

    /// Return a live view of the default table's items. Bounds are as for `Table.keys`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, *, start=None, stop=None, prefix=None, reverse=False)"
    )]
    fn items<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("items", arguments, bounds)
    }

    /// Return an iterator over the values of the default table whose keys lie in a range; see
    /// `Table.range`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, start=None, stop=None, *, prefix=None, reverse=False)"
    )]
    fn range<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("range", arguments, bounds)
    }

    /// Return the first key of the default table and its value; None if the table is empty.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method0("first")
    }

    /// Return the last key of the default table and its value; None if the table is empty.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method0("last")
    }

    /// Return a memoryview of the bytes of a value of the default table; see `Table.buffer`.
    #[pyo3(signature = (*arguments, **named), text_signature = "($self, key, path=None)")]
    fn buffer<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("buffer", arguments, named)
    }

    /// Open a value of the default table as a binary file, to read it; see `Table.open`.
    #[pyo3(signature = (*arguments, **named), text_signature = "($self, key, mode=\"rb\", path=None)")]
    fn open<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("open", arguments, named)
    }

    /// Return the indexes of the default table by name; see `Table.indexes`.
    fn indexes(&self, py: Python<'_>) -> PyResult<Vec<IndexDescription>> {
        describe::all(&self.default(py)?)
    }

    /// Return the index of this name of the default table; see `Table.index`.
    fn index(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Index> {
        Index::new(&self.default(py)?, making::name_of(name)?)
    }

    /// Return the rows of the default table for which all these conditions are true; see
    /// `Table.where`.
    #[pyo3(signature = (*conditions, **fields), text_signature = "($self, *conditions)")]
    fn r#where<'py>(
        &self,
        py: Python<'py>,
        conditions: &Bound<'py, PyTuple>,
        fields: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("where", conditions, fields)
    }

    /// Return the rows of the default table whose fields equal these values; see `Table.find`.
    #[pyo3(signature = (*arguments, **fields), text_signature = "($self, **fields)")]
    fn find<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        fields: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("find", arguments, fields)
    }

    /// Return the rows of the default table for which a function returns a true value; see
    /// `Table.filter`.
    fn filter<'py>(&self, py: Python<'py>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method1("filter", (function,))
    }

    /// Return the rows of the default table in an order; see `Table.order_by`.
    #[pyo3(signature = (*expressions, **keywords), text_signature = "($self, *expressions)")]
    fn order_by<'py>(
        &self,
        py: Python<'py>,
        expressions: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("order_by", expressions, keywords)
    }

    /// Return the first rows of the default table; see `Table.limit`.
    fn limit<'py>(&self, py: Python<'py>, count: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method1("limit", (count,))
    }

    /// Return the rows of the default table without the first ones; see `Table.offset`.
    fn offset<'py>(&self, py: Python<'py>, count: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method1("offset", (count,))
    }

    /// Return the rows of the default table as a list; see `Table.to_list`.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method0("to_list")
    }

    /// Return the rows of the default table as plain dicts; see `Table.to_dicts`.
    fn to_dicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method0("to_dicts")
    }

    /// Return dicts of expressions over the default table; see `Table.select`.
    #[pyo3(signature = (*expressions, **named))]
    fn select<'py>(
        &self,
        py: Python<'py>,
        expressions: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("select", expressions, named)
    }

    /// Return the rows of the default table in groups; see `Table.group_by`.
    #[pyo3(signature = (*expressions, **named))]
    fn group_by<'py>(
        &self,
        py: Python<'py>,
        expressions: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("group_by", expressions, named)
    }

    /// Return aggregates of all rows of the default table; see `Table.agg`.
    #[pyo3(signature = (*arguments, **aggregates), text_signature = "($self, **aggregates)")]
    fn agg<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        aggregates: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("agg", arguments, aggregates)
    }

    /// Return `to_arrow()` to a library that asks for it: `polars.DataFrame(snapshot)`.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// Return the rows of the default table as columns; see `Table.to_arrow`.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method0("to_arrow")
    }

    /// Return the rows of the default table as a polars DataFrame.
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method0("to_polars")
    }

    /// Return the rows of the default table as a pandas DataFrame.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method0("to_pandas")
    }

    /// Return the values at a field path of the default table as a NumPy array; see
    /// `Table.to_numpy`.
    fn to_numpy<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method1("to_numpy", (path,))
    }

    /// Return the rows of the default table that cannot be read; see `Table.unreadable`.
    fn unreadable<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method0("unreadable")
    }

    /// Return the sum of the numbers at a field path of the default table; see `Table.sum`.
    fn sum<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        column::sum(&self.default(py)?, path)
    }

    /// Return the least value at a field path of the default table; see `Table.min`.
    fn min<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        column::least(&self.default(py)?, path)
    }

    /// Return the greatest value at a field path of the default table; see `Table.max`.
    fn max<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        column::greatest(&self.default(py)?, path)
    }

    /// Return the mean of the numbers at a field path of the default table; see `Table.mean`.
    fn mean<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        column::mean(&self.default(py)?, path)
    }

    /// Return how many rows of the default table have a value at a field path; see `Table.count`.
    #[pyo3(signature = (path=None))]
    fn count<'py>(&self, py: Python<'py>, path: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method1("count", (path,))
    }

    /// Return the values at a field path of all rows of the default table; see `Table.column`.
    fn column<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        column::column(&self.default(py)?, path)
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
