//! The key of a row that a driver has fetched.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};

use crate::errors;

/// A code and the spelling of a key, as a server stores them.
pub type CodeAndSpelling<'py> = (Bound<'py, PyBytes>, Option<Bound<'py, PyBytes>>);

/// The code and the spelling of a fetched row.
///
/// # Errors
/// The row has other columns, or a long key is damaged.
pub fn key_of_row<'py>(row: &Bound<'py, PyTuple>) -> PyResult<CodeAndSpelling<'py>> {
    let py = row.py();
    let (key, spelling) = (row.get_item(0)?.cast_into::<PyBytes>()?, row.get_item(1)?);
    if key.as_bytes().len() == LONG_KEY_SIZE {
        let damaged = || errors::corrupt_record(py, "a long key is damaged".to_owned());
        let extra = spelling.cast_into::<PyBytes>().map_err(|_| damaged())?;
        let parts = extra
            .as_bytes()
            .split_first_chunk()
            .and_then(|(size, rest)| rest.split_at_checked(usize::try_from(u32::from_le_bytes(*size)).ok()?));
        let (code, spelling) = parts.ok_or_else(damaged)?;
        let spelling = (!spelling.is_empty()).then(|| PyBytes::new(py, spelling));
        return Ok((PyBytes::new(py, code), spelling));
    }
    let spelling = if spelling.is_none() { None } else { Some(spelling.cast_into::<PyBytes>()?) };
    Ok((key, spelling))
}

/// The size of what stands for a longer key in the column of keys: its beginning and a hash. Then
/// the column of spellings has the size of the key's code as a u32, the code, and the spelling.
/// `pellucid.postgres.schema.keys` writes both.
pub const LONG_KEY_SIZE: usize = 2024;
