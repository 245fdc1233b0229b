//! Which Python exception says what went wrong?
//!
//! The classes are the table in `pellucid/errors.py`; this file makes their messages. Each says
//! what, where, which limit, and what to do now.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{
    PyArithmeticError, PyException, PyIndexError, PyKeyError, PyMemoryError, PyOverflowError, PySystemError,
    PyTypeError, PyUnicodeEncodeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PySlice, PyString, PyType};

use crate::hot::callbacks;

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

/// `KeyError` with the key itself, as a dict raises it; `TypeError` for a slice, which is meant for what `range` gives.
pub fn missing(key: &Bound<'_, PyAny>) -> PyErr {
    if key.is_instance_of::<PySlice>() {
        return type_error(
            "a slice is no key; range(start, stop) of a table gives the rows of a range of keys",
        );
    }
    PyKeyError::new_err((key.clone().unbind(),))
}

/// `CorruptRecord` with any message.
pub fn corrupt_record(py: Python<'_>, message: String) -> PyErr {
    raise(py, "CorruptRecord", message)
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

/// The beginning of a text that may be too long for a message.
pub fn shorten(text: String) -> String {
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

/// What work raises that a signal has stopped: what its handler raised.
pub fn stopped(py: Python<'_>) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| pyo3::exceptions::PyKeyboardInterrupt::new_err(()))
}

/// An `OSError` with number, message and file name, as the built-in `open` raises it.
pub fn of_system(py: Python<'_>, class: &str, number: Option<i32>, message: &str, path: &str) -> PyErr {
    let class = py.import("builtins").and_then(|module| module.getattr(class));
    match class.and_then(|class| Ok(class.cast_into::<PyType>()?)) {
        Ok(class) => PyErr::from_type(class, (number, message.to_owned(), path.to_owned())),
        Err(error) => error,
    }
}
