//! The first fields of a record, or the first elements of a list, for a text that has little room.
//!
//! A long string and a large value are shown by their size, as in `repr` of a record; a large value
//! is not read. What cannot be made is shown by the exception. Nested dicts and lists are handles,
//! of which nothing is read.

use pellucid_record::path::OwnedStep;
use pellucid_record::view::{Slot, Walker};
use pyo3::exceptions::{PyException, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::values::handles::{Record, RecordList};
use crate::values::node::Node;
use crate::values::reading::Reading;
use crate::values::record::{names_of, next_field};
use crate::values::{decode, path, row_errors, shortened};

/// Keys or indexes, each with its value.
type Pairs<'py> = Vec<(Bound<'py, PyAny>, Bound<'py, PyAny>)>;

/// The first `count` fields or elements of a handle, and how many it has. A field that was deleted
/// in place may count.
#[pyfunction]
#[pyo3(name = "_brief")]
pub fn brief<'py>(handle: &Bound<'py, PyAny>, count: usize) -> PyResult<(Pairs<'py>, u32)> {
    if let Ok(record) = handle.cast::<Record>() {
        return of_record(record, count);
    }
    match handle.cast::<RecordList>() {
        Ok(list) => of_list(list, count),
        Err(_) => Err(PyTypeError::new_err("a Record or a RecordList is wanted")),
    }
}

fn of_record<'py>(record: &Bound<'py, Record>, count: usize) -> PyResult<(Pairs<'py>, u32)> {
    let (py, node) = (record.py(), &record.get().node);
    let place = node.container(py)?;
    let reading = Reading::new(&node.row);
    let names = names_of(py, reading.row(), &place)?;
    let (mut walker, mut pairs) = (Walker::new(place), Vec::new());
    while pairs.len() < count {
        let Some((key, slot)) = next_field(py, &reading, names, &mut walker)? else { break };
        let step = match key.cast_exact::<PyString>().ok().and_then(|key| key.to_str().ok()) {
            Some(name) => OwnedStep::Field(name.into()),
            None => path::step_as_stored(&key)?.unwrap_or(OwnedStep::Field("".into())),
        };
        let value = value_of(record.as_any(), &reading, slot, step)?;
        pairs.push((key, value));
    }
    Ok((pairs, place.len()))
}

fn of_list<'py>(list: &Bound<'py, RecordList>, count: usize) -> PyResult<(Pairs<'py>, u32)> {
    let (py, node): (_, &Node) = (list.py(), &list.get().node);
    let place = node.container(py)?;
    let reading = Reading::new(&node.row);
    let (mut walker, mut pairs) = (Walker::new(place), Vec::new());
    while pairs.len() < count {
        let index = walker.index();
        let slot = walker.next_bounded(reading.bytes(), &*node.row.names);
        let slot = slot.map_err(|error| row_errors::corrupt_row(py, &node.row, &error))?;
        let Some(slot) = slot else { break };
        let value = value_of(list.as_any(), &reading, slot, OwnedStep::Index(i64::from(index)))?;
        pairs.push((index.into_pyobject(py)?.into_any(), value));
    }
    Ok((pairs, place.len()))
}

fn value_of<'py>(
    parent: &Bound<'py, PyAny>,
    reading: &Reading<'_>,
    slot: Slot<'_>,
    step: OwnedStep,
) -> PyResult<Bound<'py, PyAny>> {
    let py = parent.py();
    if let Some(shortened) = shortened::of_slot(py, &slot)? {
        return Ok(shortened);
    }
    match decode::handle(parent, reading, slot, || step) {
        Err(error) if error.is_instance_of::<PyException>(py) => {
            shortened::of_text(py, format!("<{}>", error.get_type(py).name()?))
        }
        made => made,
    }
}
