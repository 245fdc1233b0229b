//! Makes plain Python objects of what work finds in rows.

use pellucid_record::view::Slot;
use pellucid_store::Snapshot;
use pyo3::prelude::*;

use crate::hot::gil::GilRc;
use crate::values::home::Home;
use crate::values::reading::Reading;
use crate::values::{bytes, decode};

/// The value in a slot of a record, in plain containers; `key` is the row's. Large values come
/// from `snapshot`, if the record did.
///
/// # Errors
/// Damage, and what the store raises.
pub fn of_slot<'py>(
    py: Python<'py>,
    home: &Home,
    (key, record): (&[u8], &[u8]),
    slot: &Slot<'_>,
    snapshot: Option<&Snapshot>,
) -> PyResult<Bound<'py, PyAny>> {
    let row = GilRc::new(home.copied_row(py, key, record, snapshot)?);
    decode::plain(py, &Reading::new(&row), slot)
}

/// The value of a record, in plain containers; large values as in `of_slot`.
///
/// # Errors
/// As `of_slot`.
pub fn of_record<'py>(
    py: Python<'py>,
    home: &Home,
    record: &[u8],
    snapshot: Option<&Snapshot>,
) -> PyResult<Bound<'py, PyAny>> {
    bytes::plain_of_row(py, &GilRc::new(home.copied_row(py, &[], record, snapshot)?))
}
