//! Exceptions about stored values: damage, staleness, and values that cannot be encoded.

use pellucid_record::error::{Corrupt, Damage, EncodeError};
use pellucid_record::path::OwnedStep;
use pyo3::exceptions::{
    PyAttributeError, PyException, PyKeyError, PyMemoryError, PyRuntimeError, PyUnicodeDecodeError,
    PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::{corrupt_record, raise, shorten};
use crate::values::encode::{Failure, Reason};
use crate::values::handles::Record;
use crate::values::keys;
use crate::values::node::Node;
use crate::values::row::Row;

/// `AttributeError` for a field that a record does not have.
pub fn no_attribute(record: &Bound<'_, Record>, name: *mut pyo3::ffi::PyObject) -> PyErr {
    // `name` is the str that the interpreter passed to the slot.
    let name = crate::values::field::borrowed_name(record.py(), name);
    let shown = name.repr().map(|text| text.to_string()).unwrap_or_default();
    PyAttributeError::new_err(format!("the record has no field {shown}"))
}

/// `StaleRecord` for a record of a closed snapshot or database.
pub fn stale(py: Python<'_>) -> PyErr {
    raise(
        py,
        "StaleRecord",
        "this record belongs to a snapshot or database that has been closed; copy what you need before \
         closing (rec.copy(), rec.to_dict())",
    )
}

/// `StaleRecord` for a large value, stored outside of the record, that a later change has removed.
pub fn stale_overflow(py: Python<'_>, row: &Row) -> PyErr {
    if row.is_reported(py) {
        return raise(
            py,
            "StaleRecord",
            format!(
                "a large value of {} was replaced or deleted by a later commit before the watch came to this change, \
                 and an earlier commit wrote it; the other fields of the change are there, and the table has what the \
                 row is now",
                describe(py, row)
            ),
        );
    }
    raise(
        py,
        "StaleRecord",
        format!(
            "a large value of {} was replaced or deleted after this record was read; read the record again, or read \
             both in one snapshot",
            describe(py, row)
        ),
    )
}

/// `KeyError` for a handle whose path leads to nothing any more.
pub fn gone(py: Python<'_>, node: &Node) -> PyErr {
    let record = describe(py, &node.row);
    let what = match node.path(py) {
        Ok(steps) if !steps.is_empty() => {
            format!("what stood at {} of {record}", crate::values::path::show(py, &steps))
        }
        _ => record,
    };
    let why = if node.row.validity.share().is_rolled_back() {
        "is not there: the transaction in which it was stored or read has been rolled back"
    } else {
        "is no longer there, or something else is; read it again"
    };
    PyKeyError::new_err(format!("{what} {why}"))
}

/// `KeyError` for a list that has changed so that an index means another element.
pub fn moved(py: Python<'_>, row: &Row, list: &[OwnedStep]) -> PyErr {
    let list = crate::values::path::show(py, list);
    let list = if list.is_empty() { String::new() } else { format!(" at {list}") };
    PyKeyError::new_err(format!(
        "the list{list} of {} has other elements than when this was read from it, so that an index leads to another \
         one; nothing was changed: read it again",
        describe(py, row)
    ))
}

/// `record 'ann' of table 'people'`, as far as that is known.
pub fn describe(py: Python<'_>, row: &Row) -> String {
    let Some(table) = &row.table else { return "this record".to_owned() };
    let key = row
        .key_object(py)
        .and_then(|key| key.repr().map(|text| text.to_string()))
        .unwrap_or_else(|_| "?".to_owned());
    format!("record {key} of table {:?}", table.name(py))
}

/// `CorruptRecord` for damage that a reader found.
pub fn corrupt_row(py: Python<'_>, row: &Row, error: &Corrupt) -> PyErr {
    let advice = if row.table.is_some() {
        "the other records are not affected; run db.check() to see how far the damage goes"
    } else {
        "these bytes were not written by pellucid, or were changed since"
    };
    corrupt_record(py, format!("{} is damaged: {error}; {advice}", describe(py, row)))
}

/// `CorruptRecord` for damage in a row of which only the key is known.
pub fn corrupt_key(py: Python<'_>, table: &str, key: &[u8], error: &Corrupt) -> PyErr {
    let key = keys::object_of(py, key, &[])
        .and_then(|key| Ok(key.repr()?.to_string()))
        .unwrap_or_else(|_| "?".to_owned());
    corrupt_record(
        py,
        format!(
            "record {key} of table {table:?} is damaged: {error}; the other records are not affected; run db.check() \
             to see how far the damage goes"
        ),
    )
}

/// Adds the place to an error of a decode function or of a pickle: the record, and where in it the
/// object is. Errors that are not pellucid's keep their class and get the place as a note.
///
/// `AttributeError` and `KeyError` would say that the record has no such field, and
/// `getattr(rec, name, default)` would return the default. They become an `UnreadableValue`.
pub fn unmade(py: Python<'_>, row: &Row, at: Option<String>, error: PyErr) -> PyErr {
    let value = error.value(py);
    let Ok(class) = error.get_type(py).name().map(|name| name.to_string()) else { return error };
    if !error.is_instance_of::<PyException>(py)
        || error.is_instance_of::<PyMemoryError>(py)
        || ["CorruptRecord", "StaleRecord", "Closed"].contains(&class.as_str())
    {
        return error;
    }
    let record = describe(py, row);
    let place = match at.filter(|at| !at.is_empty()) {
        Some(at) => format!("{at} of {record}"),
        None => record.clone(),
    };
    if ["PickleDenied", "UnregisteredType", "UnreadableValue"].contains(&class.as_str()) {
        let message = value.to_string();
        // One in another is placed by the inner one.
        if !message.contains(&record) {
            let _ = value.setattr("args", (format!("{place}: {message}"),));
        }
        return error;
    }
    let what =
        format!("{place} cannot be read: its decode function, or what its pickle calls, raised {class}");
    if error.is_instance_of::<PyAttributeError>(py) || error.is_instance_of::<PyKeyError>(py) {
        let why = value.str().map(|text| text.to_string()).unwrap_or_default();
        let raised = raise(py, "UnreadableValue", format!("{what}: {why}"));
        raised.set_cause(py, Some(error));
        return raised;
    }
    let has_note = value.getattr("__notes__").is_ok_and(|notes| !notes.is_none());
    if !has_note {
        // Python 3.10 has no notes.
        let _ = value.call_method1("add_note", (what,));
    }
    error
}

/// Turns a `ValueError` from decoding damaged bytes into a `CorruptRecord`.
pub fn undecodable(py: Python<'_>, row: &Row, error: PyErr) -> PyErr {
    // The code below makes objects, for which there may be no memory.
    if error.is_instance_of::<PyMemoryError>(py) {
        return error;
    }
    if let Some(message) = damaged_pickle(py, &error) {
        let _ = error.value(py).setattr("args", (format!("{} is damaged: {message}", describe(py, row)),));
        return error;
    }
    let is_ours = error
        .get_type(py)
        .module()
        .is_ok_and(|module| module.to_str().is_ok_and(|name| name == "pellucid.errors"));
    let is_damage = error.is_instance_of::<PyUnicodeDecodeError>(py)
        || error.get_type(py).is(py.get_type::<PyValueError>())
        || error.is_instance_of::<pyo3::exceptions::PyOverflowError>(py);
    if is_ours || !is_damage {
        return error;
    }
    let wrapped = match text_offset(py, row, &error) {
        Some(offset) => corrupt_row(py, row, &Corrupt::new(Damage::Text, offset)),
        None => corrupt_record(py, format!("{} is damaged: {}", describe(py, row), error.value(py))),
    };
    wrapped.set_cause(py, Some(error));
    wrapped
}

/// The message of a pickle that cannot be read, where no place has been named in it yet.
fn damaged_pickle(py: Python<'_>, error: &PyErr) -> Option<String> {
    if !crate::errors::is_of(py, error, "CorruptRecord") {
        return None;
    }
    let message = error.value(py).to_string();
    message.starts_with("a stored pickle is damaged").then_some(message)
}

/// The offset of the byte of a record that is not UTF-8, from the text and the position that Python
/// reports. If the same text occurs twice in the record, both are damaged.
fn text_offset(py: Python<'_>, row: &Row, error: &PyErr) -> Option<usize> {
    let value = error.value(py).cast::<PyUnicodeDecodeError>().ok()?;
    let start: usize = value.getattr("start").ok()?.extract().ok()?;
    let text = value.getattr("object").ok()?.cast_into::<PyBytes>().ok()?;
    let text = text.as_bytes();
    let place = row.bytes().windows(text.len().max(1)).position(|bytes| bytes == text)?;
    Some(place + start)
}

/// Names the place of an object that cannot be pickled, or whose pickle could not be read back.
fn of_pickling(py: Python<'_>, error: PyErr, place: &str) -> PyErr {
    let is_ours = crate::errors::is_of(py, &error, "PickleDenied")
        || (crate::errors::is_of(py, &error, "UnsupportedValue") && error.cause(py).is_some());
    let value = error.value(py);
    let message = value.to_string();
    if is_ours && message.starts_with(", ") {
        let _ = value.setattr("args", (format!("{place}{message}"),));
    }
    error
}

/// The exception for a failed encoding. `place` names the value in the message.
pub fn of_failure(py: Python<'_>, failure: Failure, place: &str) -> PyErr {
    let mut path = String::new();
    for step in failure.path.iter().rev() {
        let shown = step.bind(py).repr().map(|text| text.to_string()).unwrap_or_default();
        path.push('[');
        path.push_str(&shorten(shown));
        path.push(']');
        if path.len() > 400 {
            path.push_str("...");
            break;
        }
    }
    let at = if path.is_empty() { String::new() } else { format!(" at {path}") };
    match failure.reason {
        Reason::Python(error) => of_pickling(py, error, &format!("{place}{at}")),
        Reason::Unsupported(object) => {
            let kind = object.bind(py).get_type();
            let kind = kind.fully_qualified_name().map(|name| name.to_string()).unwrap_or_default();
            match crate::values::hooks::way_out(object.bind(py)) {
                Ok(why) => raise(py, "UnsupportedValue", format!("{place}{at} is of type {kind}{why}")),
                Err(error) => error,
            }
        }
        Reason::Member(object, why) => {
            let kind = object.bind(py).get_type();
            let kind = kind.fully_qualified_name().map(|name| name.to_string()).unwrap_or_default();
            raise(py, "UnsupportedValue", format!("{place}{at}, of type {kind}, {why}"))
        }
        // A value with shared parts is pickled from its root.
        Reason::Shared => crate::errors::internal("a shared part was left to the caller"),
        Reason::Cycle => raise(
            py,
            "UnsupportedValue",
            format!(
                "{place}{at} contains itself; a record is a tree: store a key or an index in the place of \
                 what leads back"
            ),
        ),
        Reason::TooDeep => raise(
            py,
            "RecordTooLarge",
            format!(
                "{place}{at} is nested more than 64 containers deep; store the deep part as a record of its \
                 own"
            ),
        ),
        Reason::Encode(EncodeError::CountMismatch { .. }) => PyRuntimeError::new_err(format!(
            "{place}{at} changed size during iteration, by code that storing it ran; store a copy of it"
        )),
        Reason::Encode(EncodeError::NoMemory) => {
            PyMemoryError::new_err(format!("not enough memory to store {place}{at}"))
        }
        Reason::Encode(error) => {
            raise(py, "RecordTooLarge", format!("{place}{at} cannot be stored: {error}"))
        }
    }
}
