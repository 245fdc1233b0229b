//! A table as a mapping from bytes to bytes, for `pellucid.dbm`.
//!
//! A str as key or value means its UTF-8 bytes. The keys of most databases are short and their
//! values small: such rows are read and written without a Python frame and without an object in
//! between. `pellucid.dbm` derives its class from this one, and turns exceptions into its own.

use pellucid_record::encode::{SHORT_RECORD_SIZE, short_bytes_record};
use pellucid_record::key::{SHORT_KEY_SIZE, short_bytes_key};
use pellucid_record::layout::tag;
use pellucid_record::view::{Root, Slot, root};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::counters;
use crate::errors;
use crate::hot::text;
use crate::put::write;
use crate::table::handle::Table;
use crate::values::keys;

/// A table as a mapping from bytes to bytes, the base class of what `pellucid.dbm.open` returns.
///
/// >>> from pellucid import dbm
/// >>> db = dbm.open(":memory:", "c")
/// >>> db["city"] = "Bath"
/// >>> db[b"city"]
/// b'Bath'
#[pyclass(subclass, frozen, mapping, module = "pellucid", name = "BytesMap")]
pub struct BytesMap {
    table: Py<Table>,
}

/// Reports an exception of ours as `pellucid.dbm.error`.
#[cold]
fn as_error(py: Python<'_>, error: PyErr) -> PyErr {
    errors::as_drop_in(py, "pellucid.dbm", error)
}

/// A key or a value as bytes.
fn bytes_of<'py>(object: &Bound<'py, PyAny>, what: &str) -> PyResult<Bound<'py, PyBytes>> {
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        return Ok(bytes.clone());
    }
    if let Ok(text) = object.cast::<PyString>() {
        return Ok(text.call_method0("encode")?.cast_into::<PyBytes>()?);
    }
    let Ok(buffer) = PyBuffer::<u8>::get(object) else {
        let kind = object.get_type().name()?;
        return Err(errors::type_error(format!("a {what} of dbm is bytes or str, not {kind}")));
    };
    text::bytes(object.py(), &buffer.to_vec(object.py())?)
}

/// The bytes of an object that is exactly bytes or a str.
fn plain_bytes<'a>(object: &'a Bound<'_, PyAny>) -> Option<&'a [u8]> {
    if let Ok(bytes) = object.cast_exact::<PyBytes>() {
        return Some(bytes.as_bytes());
    }
    object.cast_exact::<PyString>().ok()?.to_str().ok().map(str::as_bytes)
}

impl BytesMap {
    /// The value of a short key, if the short way is possible and there is one.
    fn value_of_short<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let mut room = [0; SHORT_KEY_SIZE];
        let table = self.table.get();
        let Some(key) = short_bytes_key(key, &mut room) else { return Ok(None) };
        if !table.core().validity.is_open() {
            return Ok(None);
        }
        let mut value = None;
        table.try_row(py, |cached, known| {
            cached.show(known, key, |record| {
                if let Ok(Root::Scalar(Slot::Heap { tag: tag::BYTES, payload, .. })) =
                    root(record, &*table.core().names)
                {
                    // Memory is the only thing that can be missing: the long way says so.
                    value = text::bytes(py, payload).ok();
                }
            })
        })?;
        Ok(value)
    }

    /// Stores a small value under a short key, if the short way is possible; returns whether it
    /// did.
    fn put_short(&self, py: Python<'_>, key: &[u8], value: &[u8]) -> PyResult<bool> {
        let (mut room, mut record_room) = ([0; SHORT_KEY_SIZE], [0; SHORT_RECORD_SIZE]);
        let table = self.table.get();
        let Some(key) = short_bytes_key(key, &mut room) else { return Ok(false) };
        let Some(record) = short_bytes_record(value, &mut record_room) else { return Ok(false) };
        if !table.core().validity.is_open() {
            return Ok(false);
        }
        let put = table.try_row(py, |cached, known| cached.put(known, key, record))?;
        if put.is_some() {
            counters::value_encoded();
            table.core().count_stored();
        }
        Ok(put.is_some())
    }

    fn get<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = key.py();
        if let Some(short) = plain_bytes(key)
            && let Some(value) = self.value_of_short(py, short)?
        {
            return Ok(Some(value.into_any()));
        }
        let stored = bytes_of(key, "key")?;
        let Some(value) = Table::lookup(self.table.bind(py), stored.as_any())? else { return Ok(None) };
        if !value.is_exact_instance_of::<PyBytes>() {
            let key = key.repr()?;
            return Err(errors::raise(
                py,
                "WrongClass",
                format!("the value for key {key} is no bytes; read it with pellucid.open()"),
            ));
        }
        Ok(Some(value))
    }

    fn put(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        if let (Some(short), Some(small)) = (plain_bytes(key), plain_bytes(value))
            && self.put_short(key.py(), short, small)?
        {
            return Ok(());
        }
        let (key, value) = (bytes_of(key, "key")?, bytes_of(value, "value")?);
        write::put(self.table.bind(key.py()), key.as_any(), value.as_any())
    }
}

#[pymethods]
impl BytesMap {
    #[new]
    #[pyo3(signature = (table, *_more))]
    fn new(table: Py<Table>, _more: &Bound<'_, PyTuple>) -> Self {
        Self { table }
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.table.get().len(py).map_err(|error| as_error(py, error))
    }

    fn __contains__(&self, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = key.py();
        let has = || -> PyResult<bool> {
            let stored = keys::key_of("default", bytes_of(key, "key")?.as_any())?;
            self.table.get().has(py, &stored)
        };
        has().map_err(|error| as_error(py, error))
    }

    fn __getitem__<'py>(&self, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match self.get(key) {
            Ok(Some(value)) => Ok(value),
            Ok(None) => Err(errors::missing(key)),
            Err(error) => Err(as_error(key.py(), error)),
        }
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        self.put(key, value).map_err(|error| as_error(key.py(), error))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        let delete =
            || -> PyResult<()> { self.table.bind(key.py()).as_any().del_item(bytes_of(key, "key")?) };
        delete().map_err(|error| as_error(key.py(), error))
    }
}
