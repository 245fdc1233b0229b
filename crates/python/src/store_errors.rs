//! Convert errors of the store to exceptions.

use pellucid_query::index::{Definition, Keys};
use pellucid_record::key::split_stand_in;
use pellucid_store::{IndexError, NotUnique, StoreError};
use pyo3::exceptions::{PyKeyError, PyMemoryError};
use pyo3::prelude::*;

use crate::errors::{close_match, of_system, raise, shorten, stopped, value_error};
use crate::values::keys;

/// The exception for an error of the store. Its class says what the caller can do; the message is
/// the store's own.
pub fn of_store(py: Python<'_>, error: StoreError) -> PyErr {
    if let Some((path, message)) = error.beside_path() {
        // ENOENT, EISDIR and EEXIST have these numbers on every system that Python runs on.
        let (class, number) = match &error {
            StoreError::IsDirectory { .. } | StoreError::NamesDirectory { .. } => {
                ("IsADirectoryError", Some(21))
            }
            StoreError::TargetExists { .. } => ("FileExistsError", Some(17)),
            StoreError::AccessDenied { source, .. } | StoreError::BesideDenied { source, .. } => {
                ("PermissionError", source.raw_os_error())
            }
            _ => ("FileNotFoundError", Some(2)),
        };
        return of_system(py, class, number, &message, path);
    }
    let message = error.to_string();
    let class = match &error {
        StoreError::Stopped => return stopped(py),
        StoreError::NoSuchTable { .. } => return PyKeyError::new_err(message),
        StoreError::NoMemory { .. } => return PyMemoryError::new_err(message),
        StoreError::TableExists { .. }
        | StoreError::OtherCompression { .. }
        | StoreError::TableName { .. }
        | StoreError::VersionAhead { .. } => {
            return value_error(message);
        }
        StoreError::HistoryGone { since, oldest, .. } => {
            let raised = raise(py, "HistoryGone", message);
            let value = raised.value(py);
            let set = value.setattr("since", *since).and_then(|()| value.setattr("oldest", *oldest));
            return set.err().unwrap_or(raised);
        }
        StoreError::NotADatabase { .. } => "NotADatabase",
        StoreError::NewerFormat { .. } => "NewerFormat",
        StoreError::Truncated { .. }
        | StoreError::Corrupt { .. }
        | StoreError::ForeignLog { .. }
        | StoreError::LogUnwritten { .. } => "DatabaseCorrupt",
        StoreError::Record(_) => "CorruptRecord",
        StoreError::ReadOnly { .. } => "ReadOnly",
        StoreError::DiskFull { .. } | StoreError::NoRoomForLog { .. } => "DiskFull",
        StoreError::Busy { .. } | StoreError::TargetInUse { .. } | StoreError::TooManyReaders { .. } => {
            "Busy"
        }
        StoreError::TooLarge { .. }
        | StoreError::KeyCollision { .. }
        | StoreError::Shape(_)
        | StoreError::TransactionTooLarge { .. } => "RecordTooLarge",
        StoreError::NoSuchBlob { .. } => "StaleRecord",
        StoreError::TableDropped { .. } => "StaleTable",
        StoreError::Index(error) => return of_index(py, error, message),
        StoreError::Closed { .. } => "Closed",
        StoreError::Forked { .. } | StoreError::WrongThread | StoreError::NoSuchSavepoint => {
            "TransactionError"
        }
        _ => "DatabaseError",
    };
    let raised = raise(py, class, message);
    let number = match &error {
        StoreError::DiskFull { source, .. }
        | StoreError::NoRoomForLog { source, .. }
        | StoreError::SyncFailed { source, .. }
        | StoreError::Io { source, .. } => pellucid_store::system_number(source),
        _ => None,
    };
    match number.map(|number| raised.value(py).setattr("errno", number)) {
        Some(Err(error)) => error,
        _ => raised,
    }
}

/// The exception for an error of an index.
fn of_index(py: Python<'_>, error: &IndexError, message: String) -> PyErr {
    let class = match error {
        IndexError::NotUnique(refused) => {
            return not_unique(py, refused).unwrap_or_else(|error| error);
        }
        IndexError::Exists { .. } | IndexError::Bad { .. } => return value_error(message),
        IndexError::Missing { index, others, .. } => {
            let close = close_match(py, index, others.clone()).ok().flatten();
            let hint =
                close.map_or_else(String::new, |close| format!("; did you mean '{}'?", close.escape_debug()));
            return raise(py, "NoSuchIndex", format!("{message}{hint}"));
        }
        IndexError::Gone { .. } => "NoSuchIndex",
        IndexError::Building { .. } => "IndexNotReady",
        IndexError::BuiltByOther { .. } => "Busy",
        _ => "DatabaseError",
    };
    raise(py, class, message)
}

/// `UniqueError`, with the refused row and value.
fn not_unique(py: Python<'_>, refused: &NotUnique) -> PyResult<PyErr> {
    let definition = Definition::parse(&refused.definition).map_err(value_error)?;
    let split = Keys::of(&definition);
    let tuple = split.tuple(&refused.parts).unwrap_or_default();
    let value = keys::object_of(py, &tuple, split_stand_in(&refused.parts_spelling).0)?;
    let value = if split.count() == 1 { value.get_item(0)? } else { value };
    let key = keys::object_of(py, &refused.key, &refused.key_spelling)?;
    let existing = keys::object_of(py, &refused.existing, &refused.existing_spelling)?;
    let position = match refused.position {
        Some(position) => format!("(number {position} of the batch, from 0) "),
        None => String::new(),
    };
    let other = if refused.is_in_batch { "would have, too, in the same batch" } else { "has" };
    let advice = if refused.is_in_batch { "one of them" } else { "it" };
    let end = if refused.is_in_batch { "" } else { ", or change that row first" };
    let message = format!(
        "row {} {position}of table {:?} would have {} in the unique index {:?} ({}), which row {} {other}; nothing was written: \
         give {advice} another value{end}",
        shorten(key.repr()?.to_string()),
        refused.table,
        shorten(value.repr()?.to_string()),
        refused.index,
        refused.definition,
        shorten(existing.repr()?.to_string())
    );
    let raised = raise(py, "UniqueError", message);
    let object = raised.value(py);
    object.setattr("index", &refused.index)?;
    object.setattr("value", value)?;
    object.setattr("key", key)?;
    object.setattr("existing_key", existing)?;
    object.setattr("in_batch", refused.is_in_batch)?;
    object.setattr("position", refused.position)?;
    Ok(raised)
}
