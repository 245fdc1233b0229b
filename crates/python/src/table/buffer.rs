//! The bytes of one value as a memoryview of the stored bytes: `Table.buffer`.

use std::borrow::Cow;

use pellucid_record::layout::tag;
use pellucid_record::path::OwnedStep;
use pellucid_record::view::{Container, Root, Slot};
use pellucid_store::FoundRow;
use pyo3::prelude::*;
use pyo3::types::{PyInt, PyMemoryView};

use crate::errors;
use crate::hot::held_bytes::HeldBytes;
use crate::hot::text;
use crate::store_errors;
use crate::table::handle::Table;
use crate::table::reading::storable;
use crate::values::field::slot_at;
use crate::values::large::{Large, Reference};
use crate::values::node::is_dict;
use crate::values::row::Row;
use crate::values::table_ref::TableRef;
use crate::values::{equal, path, row_errors};

/// `table.buffer(key, path)`.
///
/// # Errors
/// `KeyError` if the key or the field is missing, `TypeError` if the value has no bytes, and what
/// the store raises.
pub fn buffer<'py>(
    slf: &Bound<'py, Table>,
    key: &Bound<'py, PyAny>,
    path: Option<&Bound<'py, PyAny>>,
) -> PyResult<Bound<'py, PyMemoryView>> {
    let (py, this) = (slf.py(), slf.get());
    let steps = path.map(path::parse).transpose()?.unwrap_or_default();
    let Some(found) = storable(key)? else { return Err(errors::missing(key)) };
    if this.is_in_transaction(py) {
        // What a transaction reads may change in its next step, so it is copied.
        let row = Table::row(slf, &found)?.ok_or_else(|| errors::missing(key))?;
        let bytes = match find(py, &row, row.bytes(), &steps)? {
            ValueBytes::Here(bytes) => text::bytes(py, bytes)?,
            ValueBytes::Overflow(of) => {
                let large = row.overflow(py, None, of.id, of.size)?;
                text::bytes(py, overflow_content(py, &row, of.tag, large.bytes())?)?
            }
        };
        return PyMemoryView::from(bytes.as_any());
    }
    let snapshot = this.snapshot(py)?;
    let id = this.id_in(py, &snapshot)?.ok_or_else(|| errors::missing(key))?;
    let cell = snapshot.get(id, &found.bytes).map_err(|error| store_errors::of_store(py, error))?;
    let cell = cell.ok_or_else(|| errors::missing(key))?;
    let record = &*cell.record;
    let (names, validity) = (this.core.names.clone(), this.row_gate(py));
    // Without bytes of its own: it gives the names, and tells in messages which record it is.
    let row = Row::owned(&[], &found.bytes, names, validity, Some(TableRef::new(slf)), this.why_frozen());
    match find(py, &row, record, &steps)? {
        ValueBytes::Here(bytes) => {
            let start = bytes.as_ptr() as usize - record.as_ptr() as usize;
            let range = start..start + bytes.len();
            if let Cow::Owned(record) = cell.record {
                // A packed record is a copy already.
                return HeldBytes::view(py, record, |record| record.get(range).unwrap_or_default());
            }
            let held = Cell { snapshot: snapshot.clone(), table: id, key: found.bytes };
            HeldBytes::view(py, held, |held| held.record().get(range).unwrap_or_default())
        }
        ValueBytes::Overflow(of) => {
            row.attach(py, snapshot.clone());
            let large = row.overflow(py, None, of.id, of.size)?;
            let bytes = large.bytes();
            let start = bytes.len() - overflow_content(py, &row, of.tag, bytes)?.len();
            HeldBytes::view(py, large, |large: &Large| large.bytes().get(start..).unwrap_or_default())
        }
    }
}

/// A row of a snapshot.
struct Cell {
    snapshot: pellucid_store::Snapshot,
    table: pellucid_store::TableId,
    key: Vec<u8>,
}

impl Cell {
    fn record(&self) -> &[u8] {
        // It was found in place before, and a snapshot does not change.
        let found = self.snapshot.get(self.table, &self.key).ok().flatten();
        found.and_then(FoundRow::record_in_place).unwrap_or_default()
    }
}

/// Where the bytes of a value are.
enum ValueBytes<'a> {
    /// In its record.
    Here(&'a [u8]),
    /// In a large value.
    Overflow(Reference),
}

/// Finds the bytes of the value on a path in a record. `row` gives the names, and says in messages
/// which record it is.
///
/// # Errors
/// `KeyError` if nothing is there, `TypeError` if the value there has no bytes, `CorruptRecord` for
/// damage.
fn find<'a, 'py>(
    py: Python<'py>,
    row: &Row,
    record: &'a [u8],
    steps: &[Bound<'py, PyAny>],
) -> PyResult<ValueBytes<'a>> {
    let corrupt = |error| row_errors::corrupt_row(py, row, &error);
    let mut slot = match pellucid_record::view::root(record, &*row.names).map_err(corrupt)? {
        Root::Container(place) => Slot::Container(place),
        Root::Scalar(slot) => slot,
    };
    for step in steps {
        let next = match slot {
            Slot::Container(place) => {
                step_of(step, &place)?.map(|step| slot_at(py, row, record, &place, &step)).transpose()?
            }
            _ => None,
        };
        slot = next.flatten().ok_or_else(|| errors::missing(step))?;
    }
    match slot {
        Slot::Str(bytes) => Ok(ValueBytes::Here(bytes)),
        Slot::Heap { tag: tag::OVERFLOW, payload, .. } => Reference::parse(payload).map(ValueBytes::Overflow),
        Slot::Heap { tag, payload, .. } => content(py, row, tag, payload, record, slot).map(ValueBytes::Here),
        _ => Err(no_bytes()),
    }
}

fn step_of(step: &Bound<'_, PyAny>, place: &Container) -> PyResult<Option<OwnedStep>> {
    if is_dict(place.kind) {
        return path::field_step(step);
    }
    let plain = equal::plain_key(step)?;
    let Ok(index) = plain.as_ref().unwrap_or(step).cast::<PyInt>() else { return Ok(None) };
    // An int that does not fit is too large for any list.
    let Ok(index) = index.extract::<i64>() else { return Ok(None) };
    Ok(Some(OwnedStep::Index(index)))
}

fn content<'a>(
    py: Python<'_>,
    row: &Row,
    tag: u8,
    payload: &'a [u8],
    record: &'a [u8],
    slot: Slot<'a>,
) -> PyResult<&'a [u8]> {
    match (tag, slot) {
        (tag::BYTES | tag::BYTEARRAY, _) => Ok(payload),
        (tag::NDARRAY, Slot::Heap { offset, .. }) => {
            pellucid_record::payload::ndarray(record, &*row.names, offset, payload.len() as u32)
                .map(|array| array.data)
                .map_err(|error| row_errors::corrupt_row(py, row, &error))
        }
        _ => Err(no_bytes()),
    }
}

/// The part of a large value that is its content: an array's elements, or everything.
///
/// # Errors
/// As [`find`].
fn overflow_content<'a>(py: Python<'_>, row: &Row, tag: u8, bytes: &'a [u8]) -> PyResult<&'a [u8]> {
    let slot = Slot::Heap { tag, payload: bytes, offset: 0 };
    if tag == tag::STR { Ok(bytes) } else { content(py, row, tag, bytes, bytes, slot) }
}

fn no_bytes() -> PyErr {
    errors::type_error("the value there has no buffer; str, bytes, bytearray and NumPy arrays have one")
}
