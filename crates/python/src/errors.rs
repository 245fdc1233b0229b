//! Which Python exception says what went wrong?
//!
//! The classes are the table in `pellucid/errors.py`; this file makes their messages. Each says
//! what, where, which limit, and what to do now.

use pellucid_query::index::{Definition, Keys};
use pellucid_record::error::{Corrupt, Damage, EncodeError};
use pellucid_record::key::split_stand_in;
use pellucid_store::{IndexError, NotUnique, StoreError};
use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{
    PyArithmeticError, PyAttributeError, PyException, PyIndexError, PyKeyError, PyMemoryError,
    PyOverflowError, PyRuntimeError, PySystemError, PyTypeError, PyUnicodeDecodeError, PyUnicodeEncodeError,
    PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyIterator, PyString, PyType};

use crate::hot::callbacks;
use crate::hot::encode::{Failure, Reason};
use crate::hot::node::{Node, Step};
use crate::hot::row::Row;
use crate::keys;
use crate::record::Record;
use crate::record_list::RecordList;

/// An exception of the class `class` in `pellucid.errors`.
pub fn raise(py: Python<'_>, class: &str, message: impl Into<String>) -> PyErr {
    let message = message.into();
    callbacks::code_may_run(py);
    let class = py
        .import("pellucid.errors")
        .and_then(|module| module.getattr(class))
        .and_then(|class| Ok(class.cast_into::<PyType>()?));
    match class {
        Ok(class) => PyErr::from_type(class, message),
        Err(error) => error,
    }
}

/// Whether an error is of this class of ours.
pub fn is_of(py: Python<'_>, error: &PyErr, class: &str) -> bool {
    let class = py.import("pellucid.errors").and_then(|module| module.getattr(class));
    class.is_ok_and(|class| error.matches(py, class).unwrap_or(false))
}

/// `ValueError`, for the arguments of a call and for payloads (which `undecodable` wraps).
pub fn value_error(message: impl Into<String>) -> PyErr {
    PyValueError::new_err(message.into())
}

/// `TypeError`, for the arguments of a call.
pub fn type_error(message: impl Into<String>) -> PyErr {
    PyTypeError::new_err(message.into())
}

/// What was `extracted` from the argument `name`; a `TypeError` that says which one it is, what came and what is wanted.
pub fn argument<T>(
    object: &Bound<'_, PyAny>,
    extracted: PyResult<T>,
    name: &str,
    wanted: &str,
) -> PyResult<T> {
    let Err(error) = extracted else { return extracted };
    if !error.is_instance_of::<PyTypeError>(object.py()) {
        return Err(error);
    }
    let kind = object.get_type();
    Err(type_error(format!("{name} has to be {wanted}, not {}", kind.name()?)))
}

/// The argument `name`, which is True or False.
fn flag(object: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    argument(object, object.extract(), name, "True or False")
}

/// The argument `reverse`.
pub fn reverse_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag(object, "reverse")
}

/// The argument `unique`.
pub fn unique_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag(object, "unique")
}

/// The argument `analyze`.
pub fn analyze_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag(object, "analyze")
}

/// The text of a str, where it is to be UTF-8; `what` names the argument, and `kind` what cannot have a lone surrogate.
///
/// # Errors
/// `ValueError` for one with a lone surrogate.
pub fn utf8<'a>(text: &'a Bound<'_, PyString>, what: &str, kind: &str) -> PyResult<&'a str> {
    text.to_str().map_err(|error| {
        if !error.is_instance_of::<PyUnicodeEncodeError>(text.py()) {
            return error;
        }
        let shown = text.repr().map(|text| shorten(text.to_string())).unwrap_or_default();
        value_error(format!("{what}: {shown} has a lone surrogate, which {kind}"))
    })
}

/// What failed as arithmetic does, of Python's own class, with what to do about it; anything else is as it was.
pub fn arithmetic(py: Python<'_>, error: PyErr, message: impl FnOnce(&str) -> String) -> PyErr {
    if !error.is_instance_of::<PyArithmeticError>(py) {
        return error;
    }
    // What decimal raises has a list of signals in place of a text.
    let class = error.get_type(py);
    let text = if error.is_instance_of::<PyOverflowError>(py) {
        error.value(py).to_string()
    } else {
        class.name().map(|name| name.to_string()).unwrap_or_default()
    };
    let raised = PyErr::from_type(class, message(&text));
    raised.set_cause(py, Some(error));
    raised
}

/// The argument `name`, the name of a table or of an index: a str that can be stored as UTF-8.
pub fn name_argument(object: &Bound<'_, PyAny>, name: &str, what: &str) -> PyResult<String> {
    let text = object.cast::<PyString>().map_err(PyErr::from);
    let text = argument(object, text, name, &format!("the name of {what}, a str"))?;
    Ok(utf8(text, name, "no name can have; choose one that can be written as UTF-8")?.to_owned())
}

/// What `update` takes that is no mapping.
pub fn pairs<'py>(other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let wanted = "a mapping or an iterable of pairs of key and value";
    argument(other, other.try_iter(), "the argument of update()", wanted)
}

/// The names of an object's public attributes.
pub fn public_names(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let names: Vec<String> = object.dir()?.extract()?;
    Ok(names.into_iter().filter(|name| !name.starts_with('_')).collect())
}

/// What somebody who wrote `word` may have meant.
pub fn close_match<'py>(
    py: Python<'py>,
    word: &str,
    words: impl IntoPyObject<'py>,
) -> PyResult<Option<String>> {
    let words = words.into_bound_py_any(py)?;
    let close = py.import("difflib")?.call_method1("get_close_matches", (word, words, 1))?;
    close.try_iter()?.next().map(|close| close?.extract()).transpose()
}

/// `1 row`, `2 rows`.
pub fn counted(count: usize, noun: &str) -> String {
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{ending}")
}

/// `an int`, `a list`: what an object is.
pub fn a_kind(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = object.get_type().name()?.to_string();
    let begins_with_vowel = name.starts_with(['a', 'e', 'i', 'o', 'A', 'E', 'I', 'O']);
    Ok(format!("{} {name}", if begins_with_vowel { "an" } else { "a" }))
}

/// A mistake of ours that no input should reach.
pub fn internal(what: &str) -> PyErr {
    PySystemError::new_err(format!("{what}; this is a bug in pellucid, please report it"))
}

/// `KeyError` with the key itself, as a dict raises it.
pub fn missing(key: &Bound<'_, PyAny>) -> PyErr {
    PyKeyError::new_err((key.clone().unbind(),))
}

/// `AttributeError` for a field that a record does not have.
pub fn no_attribute(record: &Bound<'_, Record>, name: *mut pyo3::ffi::PyObject) -> PyErr {
    // SAFETY: only `hot::field` calls this, with the str that the interpreter passed.
    let name = crate::hot::field::borrowed_name(record.py(), name);
    let shown = name.repr().map(|text| text.to_string()).unwrap_or_default();
    PyAttributeError::new_err(format!("the record has no field {shown}"))
}

/// A record of a closed snapshot or database.
pub fn stale(py: Python<'_>) -> PyErr {
    raise(
        py,
        "StaleRecord",
        "this record belongs to a snapshot or database that has been closed; copy what you need before \
         closing (rec.copy(), rec.to_dict())",
    )
}

/// A value that lay apart from a record has gone with a later change of it.
pub fn stale_apart(py: Python<'_>, row: &Row) -> PyErr {
    if row.is_told(py) {
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

/// The path that a handle stands for leads nowhere any more.
pub fn gone(py: Python<'_>, node: &Node) -> PyErr {
    let record = describe(py, &node.row);
    let what = match node.path(py) {
        Ok(steps) if !steps.is_empty() => {
            format!("what stood at {} of {record}", crate::path::show(py, &steps))
        }
        _ => record,
    };
    let why = if node.row.gate.share().is_taken_back() {
        "is not there: the transaction in which it was stored or read has been rolled back"
    } else {
        "is no longer there, or something else is; read it again"
    };
    PyKeyError::new_err(format!("{what} {why}"))
}

/// A list has changed so that an index leads to another element of it.
pub fn moved(py: Python<'_>, row: &Row, list: &[Step]) -> PyErr {
    let list = crate::path::show(py, list);
    let list = if list.is_empty() { String::new() } else { format!(" at {list}") };
    PyKeyError::new_err(format!(
        "the list{list} of {} has other elements than when this was read from it, so that an index leads to another \
         one; nothing was changed: read it again",
        describe(py, row)
    ))
}

/// `record 'ann' of table 'people'`, as far as it is known.
pub fn describe(py: Python<'_>, row: &Row) -> String {
    let Some(table) = &row.table else { return "this record".to_owned() };
    // A copy: an object that is made may wake the collector, whose finalizers may change the row.
    let key = row.key().to_vec();
    let key = keys::object_of(py, &key, &[])
        .and_then(|key| key.repr().map(|text| text.to_string()))
        .unwrap_or_else(|_| "?".to_owned());
    format!("record {key} of table {:?}", table.get().name(py))
}

/// `CorruptRecord` with any message.
pub fn corrupt_record(py: Python<'_>, message: String) -> PyErr {
    raise(py, "CorruptRecord", message)
}

/// `CorruptRecord` for damage that a reader met.
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

/// Damage that showed when an object was to be made: its `ValueError` becomes a `CorruptRecord`.
pub fn undecodable(py: Python<'_>, row: &Row, error: PyErr) -> PyErr {
    // What follows makes objects, for which there may be no room.
    if error.is_instance_of::<PyMemoryError>(py) {
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

/// Which byte of a record is no UTF-8, where Python says which of a text in it. If the same bytes stand there twice, both are damaged.
fn text_offset(py: Python<'_>, row: &Row, error: &PyErr) -> Option<usize> {
    let value = error.value(py).cast::<PyUnicodeDecodeError>().ok()?;
    let start: usize = value.getattr("start").ok()?.extract().ok()?;
    let text = value.getattr("object").ok()?.cast_into::<PyBytes>().ok()?;
    let text = text.as_bytes();
    let place = row.bytes().windows(text.len().max(1)).position(|bytes| bytes == text)?;
    Some(place + start)
}

/// A change of what cannot be changed.
pub fn read_only(py: Python<'_>, why: &str) -> PyErr {
    raise(py, "ReadOnly", why)
}

/// A handle that was used after its close, and what to do instead.
pub fn closed(py: Python<'_>, what: &str, now: &str) -> PyErr {
    raise(py, "Closed", format!("{what} is closed; {now}"))
}

/// A snapshot that was used after its close.
pub fn closed_snapshot(py: Python<'_>) -> PyErr {
    closed(py, "this snapshot", "take another one with db.snapshot()")
}

/// What `repr` shows of a handle of the class `class`: the error itself where its value cannot be read.
/// Debuggers, loggers and failing tests call it at times when nothing else works.
pub fn shown(py: Python<'_>, class: &str, text: PyResult<String>) -> PyResult<String> {
    let error = match text {
        Ok(text) => return Ok(text),
        Err(error) => error,
    };
    if !error.is_instance_of::<PyException>(py) || error.is_instance_of::<PyMemoryError>(py) {
        return Err(error);
    }
    let why = match error.get_type(py).name()?.to_str()? {
        "StaleRecord" => "stale".to_owned(),
        "CorruptRecord" => "damaged".to_owned(),
        name => name.to_owned(),
    };
    Ok(format!("<{class}, {why}: {}>", error.value(py)))
}

/// A key that cannot be stored.
pub fn unsupported_key(table: &str, key: &Bound<'_, PyAny>, why: &str, steps: &[usize]) -> PyErr {
    unsupported(("key", &format!("of table {table:?}")), key, why, steps)
}

/// A value that no index can have.
pub fn unsupported_value(index: &str, value: &Bound<'_, PyAny>, why: &str, steps: &[usize]) -> PyErr {
    unsupported(("value", &format!("for index {index:?}")), value, why, steps)
}

fn unsupported((what, of): (&str, &str), key: &Bound<'_, PyAny>, why: &str, steps: &[usize]) -> PyErr {
    let shown = shorten(key.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string()));
    let place = match steps {
        [] => String::new(),
        steps => {
            let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
            format!(" at position {}", steps.join(", "))
        }
    };
    raise(key.py(), "UnsupportedKey", format!("{what} {shown} {of}{place} {why}"))
}

/// What an object shows of itself, as far as a message can bear it.
pub fn brief(object: &Bound<'_, PyAny>) -> String {
    shorten(object.repr().map_or_else(|_| "?".to_owned(), |text| text.to_string()))
}

fn shorten(text: String) -> String {
    const SHOWN_MAX: usize = 80;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

/// A list index out of range, as a list says it.
pub fn index_out_of_range(what: &str) -> PyErr {
    PyIndexError::new_err(format!("{what} out of range"))
}

/// What a failed encoding raises. `place` names what was being written.
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
        Reason::Python(error) => error,
        Reason::Unsupported(object) => {
            let kind = object.bind(py).get_type();
            let kind = kind.fully_qualified_name().map(|name| name.to_string()).unwrap_or_default();
            match crate::hooks::way_out(object.bind(py)) {
                Ok(why) => raise(py, "UnsupportedValue", format!("{place}{at} is of type {kind}{why}")),
                Err(error) => error,
            }
        }
        Reason::Member(object, why) => {
            let kind = object.bind(py).get_type();
            let kind = kind.fully_qualified_name().map(|name| name.to_string()).unwrap_or_default();
            raise(py, "UnsupportedValue", format!("{place}{at}, of type {kind}, {why}"))
        }
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
            "{place}{at} changed its size while it was being stored; store a copy of it"
        )),
        Reason::Encode(EncodeError::NoMemory) => {
            PyMemoryError::new_err(format!("not enough memory to store {place}{at}"))
        }
        Reason::Encode(error) => {
            raise(py, "RecordTooLarge", format!("{place}{at} cannot be stored: {error}"))
        }
    }
}

/// What work raises that a signal has stopped: what its handler raised.
pub fn stopped(py: Python<'_>) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| pyo3::exceptions::PyKeyboardInterrupt::new_err(()))
}

/// What an error of the store raises: the class by what the caller can do, the store's own message.
pub fn of_store(py: Python<'_>, error: StoreError) -> PyErr {
    if let Some((path, message)) = error.beside_path() {
        // ENOENT, EISDIR and EEXIST have these numbers on every system that Python runs on.
        let (class, number) = match &error {
            StoreError::IsDirectory { .. } => ("IsADirectoryError", Some(21)),
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
        StoreError::NoSuchTable { table } => return PyKeyError::new_err(table.clone()),
        StoreError::NoMemory { .. } => return PyMemoryError::new_err(message),
        StoreError::TableExists { .. } | StoreError::TableName { .. } | StoreError::VersionAhead { .. } => {
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
        StoreError::Busy { .. } | StoreError::TooManyReaders { .. } => "Busy",
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
        | StoreError::Io { source, .. } => source.raw_os_error(),
        _ => None,
    };
    match number.map(|number| raised.value(py).setattr("errno", number)) {
        Some(Err(error)) => error,
        _ => raised,
    }
}

/// What is wrong with an index.
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

/// `UniqueError` with what was refused.
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

/// An `OSError` with number, message and file name, as the built-in `open` raises it.
pub fn of_system(py: Python<'_>, class: &str, number: Option<i32>, message: &str, path: &str) -> PyErr {
    let class = py.import("builtins").and_then(|module| module.getattr(class));
    match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
        Ok(class) => PyErr::from_type(class, (number, message.to_owned(), path.to_owned())),
        Err(error) => error,
    }
}

/// The node of a handle of ours.
pub fn node_of<'a>(handle: &'a Bound<'_, PyAny>) -> PyResult<&'a Node> {
    if let Ok(record) = handle.cast_exact::<Record>() {
        return Ok(&record.get().node);
    }
    if let Ok(list) = handle.cast_exact::<RecordList>() {
        return Ok(&list.get().node);
    }
    // Those that the collector knows are of subclasses.
    match handle.cast::<Record>() {
        Ok(record) => Ok(&record.get().node),
        Err(_) => Ok(&handle.cast::<RecordList>()?.get().node),
    }
}
