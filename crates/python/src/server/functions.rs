//! What pellucid.postgres does with keys and fetched rows of any table: functions of bytes alone.

use pellucid_query::jsonb;
use pellucid_query::server::distribution_of;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyBytesMethods, PyList, PyTuple};

use crate::server::copying;
use crate::server::fetched_key::{LONG_KEY_SIZE, key_of_row};
use crate::server::stored;
use crate::server::view::view_of;
use crate::values::keys;

/// The code of a key; None for an object that cannot be one, so that no row has it.
///
/// # Errors
/// What a method of the key raises.
#[pyfunction]
#[pyo3(signature = (key, /))]
pub fn server_key_code<'py>(key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyBytes>>> {
    let py = key.py();
    match keys::try_key_of(key) {
        Ok(stored) => {
            let code = PyBytes::new(py, &stored.bytes);
            keys::recycle(py, stored);
            Ok(Some(code))
        }
        Err(keys::Refusal::Unsupported { .. }) => Ok(None),
        Err(keys::Refusal::Raised(error)) => Err(error),
    }
}

/// The key with this code and spelling.
///
/// # Errors
/// `CorruptRecord`: the code is damaged.
#[pyfunction]
#[pyo3(signature = (code, spelling=None))]
pub fn server_key<'py>(py: Python<'py>, code: &[u8], spelling: Option<&[u8]>) -> PyResult<Bound<'py, PyAny>> {
    keys::object_of(py, code, spelling.unwrap_or_default())
}

/// The greatest number of shapes that a fetched row needs, and whether a row has a long key.
///
/// # Errors
/// The rows have other columns.
#[pyfunction]
#[pyo3(signature = (rows, /))]
pub fn server_survey(rows: &Bound<'_, PyList>) -> PyResult<(u32, bool)> {
    let (mut greatest, mut has_long) = (0, false);
    for row in rows {
        let row = row.cast::<PyTuple>().map_err(PyErr::from)?;
        let value = row.get_item(2)?;
        // Reading a value that is too short raises.
        greatest = greatest.max(stored::shape_count(value.cast::<PyBytes>()?.as_bytes()).unwrap_or(0));
        has_long |= row.get_item(0)?.cast::<PyBytes>()?.as_bytes().len() == LONG_KEY_SIZE;
    }
    Ok((greatest, has_long))
}

/// The whole code of a fetched row's key.
///
/// # Errors
/// The row has other columns, or its key is damaged.
#[pyfunction]
#[pyo3(signature = (row, /))]
pub fn server_whole_code<'py>(row: &Bound<'py, PyTuple>) -> PyResult<Bound<'py, PyBytes>> {
    Ok(key_of_row(row)?.0)
}

/// A key as JSON for the column `key` of a table with `queryable=True`; None if it
/// has none.
#[pyfunction]
#[pyo3(signature = (code, spelling, /))]
pub fn server_json_key<'py>(
    py: Python<'py>,
    code: &[u8],
    spelling: Option<&[u8]>,
) -> Option<Bound<'py, PyBytes>> {
    let text = jsonb::of_key(code, spelling.unwrap_or_default())?;
    Some(PyBytes::new(py, text.as_bytes()))
}

/// What the row with this stored key is distributed by: the first `count` parts of the key.
/// None for a key that has fewer.
#[pyfunction]
#[pyo3(signature = (stored_key, count, /))]
pub fn server_distribution<'py>(
    py: Python<'py>,
    stored_key: &[u8],
    count: usize,
) -> Option<Bound<'py, PyBytes>> {
    Some(PyBytes::new(py, distribution_of(stored_key, count)?))
}

/// Rows in the binary form of PostgreSQL's COPY; each is a tuple of bytes, bools and None.
///
/// # Errors
/// `TypeError` for another type, `ValueError` for too many bytes.
#[pyfunction]
#[pyo3(signature = (rows, /))]
pub fn server_copy_rows<'py>(rows: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyBytes>> {
    let mut out = Vec::new();
    for row in rows {
        let row = row.cast::<PyTuple>().map_err(PyErr::from)?;
        out.extend_from_slice(&(row.len() as u16).to_be_bytes());
        for field in row {
            copying::push_field(&mut out, &field)?;
        }
    }
    Ok(PyBytes::new(rows.py(), &out))
}

/// A list of bytes and None as PostgreSQL's array of bytea, in its binary form.
///
/// # Errors
/// `TypeError` for another type, `ValueError` for too many bytes.
#[pyfunction]
#[pyo3(signature = (elements, /))]
pub fn server_array<'py>(elements: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyBytes>> {
    copying::array_of(elements)
}

/// The keys of fetched rows.
///
/// # Errors
/// A row has other columns, or a key is damaged.
#[pyfunction]
#[pyo3(signature = (rows, /))]
pub fn server_keys<'py>(py: Python<'py>, rows: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyList>> {
    let mut keys = Vec::with_capacity(rows.len());
    for row in rows {
        let (code, spelling) = key_of_row(row.cast::<PyTuple>().map_err(PyErr::from)?)?;
        let spelling = spelling.as_ref().map(PyBytesMethods::as_bytes);
        keys.push(keys::object_of(py, code.as_bytes(), spelling.unwrap_or_default())?);
    }
    PyList::new(py, keys)
}

/// A view of a table's range, as "keys", "values" or "items". `range` has the methods `count`,
/// `iterate` and `get`.
///
/// # Errors
/// `MemoryError`.
#[pyfunction]
pub fn server_view<'py>(
    table: &Bound<'py, PyAny>,
    range: &Bound<'py, PyAny>,
    shows: &str,
    reverse: bool,
) -> PyResult<Bound<'py, PyAny>> {
    view_of(table, shows, range, reverse)
}
