//! Makes plain Python objects of what work finds in rows.

use pellucid_record::value::NoShapes;
use pellucid_record::view::Slot;
use pellucid_record::{Value, encode_value};
use pellucid_store::Snapshot;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::gil::GilRc;
use crate::values::reading::Reading;
use crate::values::table_ref::{CopyOf, TableRef};
use crate::values::{bytes, decode};

/// The value in a slot of a record, in plain containers; `key` is the row's. Large values come
/// from `snapshot`, if the record did.
///
/// # Errors
/// Damage, and what the store raises.
pub fn of_slot<'py>(
    py: Python<'py>,
    table_ref: &TableRef,
    (key, record): (&[u8], &[u8]),
    slot: &Slot<'_>,
    snapshot: Option<&Snapshot>,
) -> PyResult<Bound<'py, PyAny>> {
    let row = GilRc::new(table_ref.copied_row(py, CopyOf { key, record, snapshot })?);
    decode::plain(py, &Reading::new(&row), slot)
}

/// The value of a record, in plain containers; large values as in `of_slot`.
///
/// # Errors
/// As `of_slot`.
pub fn of_record<'py>(
    py: Python<'py>,
    table_ref: &TableRef,
    record: &[u8],
    snapshot: Option<&Snapshot>,
) -> PyResult<Bound<'py, PyAny>> {
    bytes::plain_of_row(py, &GilRc::new(table_ref.copied_row(py, CopyOf { key: &[], record, snapshot })?))
}

/// The record of a value that stands alone.
///
/// # Errors
/// `ValueError` for a value that has no record.
pub fn record_of(value: &Value) -> PyResult<Vec<u8>> {
    encode_value(value, &mut NoShapes)
        .map_err(|error| errors::value_error(format!("the value cannot be stored: {error}")))
}
