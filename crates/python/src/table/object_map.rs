//! The rows of a table of objects by their keys, for `pellucid.shelve`.
//!
//! A shelf that neither caches nor serializes its values reads and writes its table without a
//! Python frame. All others have their own methods, which this class calls: `_read`, `_store` and
//! `_delete`.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};

use crate::errors;
use crate::table::handle::Table;

/// The base class of `pellucid.shelve.DbfilenameShelf`: it reads and writes single keys.
///
/// >>> from pellucid import shelve
/// >>> with shelve.open(":memory:") as shelf:
/// ...     shelf["numbers"] = [1, 2]
/// ...     shelf["numbers"]
/// [1, 2]
#[pyclass(subclass, frozen, mapping, module = "pellucid", name = "ObjectMap")]
pub struct ObjectMap {
    table: OnceLock<Py<Table>>,
    is_direct: AtomicBool,
}

impl ObjectMap {
    /// The table, if it is read and written directly.
    #[inline]
    fn direct<'a, 'py>(slf: &'a Bound<'py, Self>) -> Option<&'a Bound<'py, PyAny>> {
        let map = slf.get();
        let table = map.table.get().filter(|_| map.is_direct.load(Ordering::Relaxed))?;
        Some(table.bind(slf.py()).as_any())
    }
}

#[pymethods]
impl ObjectMap {
    #[new]
    #[pyo3(signature = (*_more, **_named))]
    fn new(_more: &Bound<'_, PyTuple>, _named: Option<&Bound<'_, PyDict>>) -> Self {
        Self { table: OnceLock::new(), is_direct: AtomicBool::new(false) }
    }

    /// Say which table it is. The first call counts.
    fn _set_table(&self, table: Py<Table>) {
        let _ = self.table.set(table);
    }

    /// Say whether the table is read and written directly.
    fn _set_direct(&self, is_direct: bool) {
        self.is_direct.store(is_direct, Ordering::Relaxed);
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match Self::direct(slf) {
            Some(table) => table.get_item(key),
            None => slf.call_method1(intern!(slf.py(), "_read"), (key,)),
        }
    }

    fn __setitem__<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        value: &Bound<'py, PyAny>,
    ) -> PyResult<()> {
        match Self::direct(slf) {
            Some(table) => table
                .set_item(key, value)
                .map_err(|error| errors::as_drop_in(slf.py(), "pellucid.shelve", error)),
            None => slf.call_method1(intern!(slf.py(), "_store"), (key, value)).map(drop),
        }
    }

    fn __delitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<()> {
        slf.call_method1(intern!(slf.py(), "_delete"), (key,)).map(drop)
    }
}
