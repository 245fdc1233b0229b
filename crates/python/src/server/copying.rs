//! The binary forms in which PostgreSQL takes many rows: those of COPY, and arrays of bytes.
//!
//!     row   := field_count: u16, field*
//!     field := size: i32 (-1: NULL), bytes
//!     array := dimensions: i32 = 1, has_null: i32, element_type: i32, count: i32, first: i32 = 1, field*
//!
//! Integers are big-endian.

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList};

use crate::errors;
use crate::server::stored;

/// The number of the type bytea.
const BYTEA: i32 = 17;

fn push_size(out: &mut Vec<u8>, size: usize) -> PyResult<()> {
    let size = i32::try_from(size);
    let size = size.map_err(|_| errors::value_error("a field of PostgreSQL has less than 2 GiB"))?;
    out.extend_from_slice(&size.to_be_bytes());
    Ok(())
}

/// Adds a field: its size and its bytes, or -1 for None.
///
/// # Errors
/// `TypeError` for another type, `ValueError` for too many bytes.
pub fn push_field(out: &mut Vec<u8>, field: &Bound<'_, PyAny>) -> PyResult<()> {
    if field.is_none() {
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        return Ok(());
    }
    let flag;
    let bytes = if let Ok(bytes) = field.cast::<PyBytes>() {
        bytes.as_bytes()
    } else {
        flag = [u8::from(field.extract::<bool>()?)];
        &flag
    };
    push_size(out, bytes.len())?;
    out.extend_from_slice(bytes);
    Ok(())
}

/// Adds a row of COPY: a key without a spelling, its record, and no large values.
///
/// # Errors
/// `ValueError` for too many bytes.
pub fn push_row(out: &mut Vec<u8>, key: &[u8], shape_count: u32, record: &[u8]) -> PyResult<()> {
    let null = (-1_i32).to_be_bytes();
    out.extend_from_slice(&4_u16.to_be_bytes());
    push_size(out, key.len())?;
    out.extend_from_slice(key);
    out.extend_from_slice(&null);
    push_size(out, stored::HEAD_SIZE + record.len())?;
    out.extend_from_slice(&shape_count.to_le_bytes());
    out.extend_from_slice(record);
    out.extend_from_slice(&null);
    Ok(())
}

/// A list of bytes and None as PostgreSQL's array of bytea.
///
/// # Errors
/// `TypeError` for another type, `ValueError` for too many bytes.
pub fn array_of<'py>(elements: &Bound<'py, PyList>) -> PyResult<Bound<'py, PyBytes>> {
    let has_null = elements.iter().any(|element| element.is_none());
    let mut out = Vec::new();
    for word in [1, i32::from(has_null), BYTEA] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    push_size(&mut out, elements.len())?;
    out.extend_from_slice(&1_i32.to_be_bytes());
    for element in elements {
        push_field(&mut out, &element)?;
    }
    Ok(PyBytes::new(elements.py(), &out))
}
