//! Make Python exceptions and their messages.
//!
//! The classes are listed in `pellucid/errors.py`; this file makes their messages. Each message
//! says what happened, where, which limit applies, and what to do now.

use pyo3::IntoPyObjectExt;
use pyo3::exceptions::{
    PyArithmeticError, PyException, PyIndexError, PyKeyError, PyMemoryError, PyOverflowError, PySystemError,
    PyTypeError, PyUnicodeEncodeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::types::{PyIterator, PySlice, PyString, PyType};

use crate::hot::callbacks;

/// The exception of a drop-in module in whose place one of ours stands, as its `refusal` says.
#[cold]
pub fn as_drop_in(py: Python<'_>, module: &str, error: PyErr) -> PyErr {
    let made = py.import(module).and_then(|module| {
        let made = module.getattr("refusal")?.call1((error.value(py),))?;
        Ok((!made.is_none()).then_some(made))
    });
    match made {
        Ok(Some(made)) => PyErr::from_value(made),
        Ok(None) => error,
        Err(failure) => failure,
    }
}

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

/// Whether an error is an instance of this class of `pellucid.errors`.
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

/// The value `extracted` from the argument `name`; a `TypeError` becomes one that names the
/// argument, the given type and the wanted one.
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

/// Refuses an argument `progress` that cannot be called with the number of `what` that are done,
/// and of all.
///
/// # Errors
/// `TypeError`.
pub fn check_progress(function: Option<&Bound<'_, PyAny>>, what: &str) -> PyResult<()> {
    match function.filter(|function| !function.is_callable()) {
        Some(other) => Err(type_error(format!(
            "progress has to be a function of ({what} done, {what}), not {}",
            other.get_type().name()?
        ))),
        None => Ok(()),
    }
}

/// Reads the argument `name`, which is True or False.
fn flag(object: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    argument(object, object.extract(), name, "True or False")
}

/// Reads the argument `reverse`.
pub fn reverse_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag(object, "reverse")
}

/// Reads the argument `unique`.
pub fn unique_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag(object, "unique")
}

/// Reads the argument `overwrite`.
pub fn overwrite_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag(object, "overwrite")
}

/// Reads the argument `analyze`.
pub fn analyze_flag(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    flag(object, "analyze")
}

/// The text of a str that must be UTF-8; `what` names the argument, and `kind` what cannot have a
/// lone surrogate.
///
/// # Errors
/// `ValueError` for a str with a lone surrogate.
pub fn utf8<'a>(text: &'a Bound<'_, PyString>, what: &str, kind: &str) -> PyResult<&'a str> {
    text.to_str().map_err(|error| {
        if !error.is_instance_of::<PyUnicodeEncodeError>(text.py()) {
            return error;
        }
        let shown = text.repr().map(|text| shorten(text.to_string())).unwrap_or_default();
        value_error(format!("{what}: {shown} has a lone surrogate, which {kind}"))
    })
}

/// Adds advice to an arithmetic exception, and keeps its class; other exceptions are unchanged.
pub fn arithmetic(py: Python<'_>, error: PyErr, message: impl FnOnce(&str) -> String) -> PyErr {
    if !error.is_instance_of::<PyArithmeticError>(py) {
        return error;
    }
    // Exceptions of `decimal` have a list of signals instead of a text.
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

/// Reads the argument `name`, the name of a table or an index: a str that can be stored as UTF-8.
pub fn name_argument(object: &Bound<'_, PyAny>, name: &str, what: &str) -> PyResult<String> {
    let text = object.cast::<PyString>().map_err(PyErr::from);
    let text = argument(object, text, name, &format!("the name of {what}, a str"))?;
    Ok(utf8(text, name, "no name can have; choose one that can be written as UTF-8")?.to_owned())
}

/// Iterates over the argument of `update` if it is not a mapping.
pub fn pairs<'py>(other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyIterator>> {
    let wanted = "a mapping or an iterable of pairs of key and value";
    argument(other, other.try_iter(), "the argument of update()", wanted)
}

/// The names of an object's public attributes.
pub fn public_names(object: &Bound<'_, PyAny>) -> PyResult<Vec<String>> {
    let names: Vec<String> = object.dir()?.extract()?;
    Ok(names.into_iter().filter(|name| !name.starts_with('_')).collect())
}

/// The word that is most similar to a misspelt one.
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

/// The type of an object with its article: `an int`, `a list`.
pub fn a_kind(object: &Bound<'_, PyAny>) -> PyResult<String> {
    let name = object.get_type().name()?.to_string();
    let begins_with_vowel = name.starts_with(['a', 'e', 'i', 'o', 'A', 'E', 'I', 'O']);
    Ok(format!("{} {name}", if begins_with_vowel { "an" } else { "a" }))
}

/// An error in pellucid itself, which no input should cause.
pub fn internal(what: &str) -> PyErr {
    PySystemError::new_err(format!("{what}; this is a bug in pellucid, please report it"))
}

/// `KeyError` with the key itself, as a dict raises it; `TypeError` for a slice, which says that
/// `range` gives several rows.
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

/// `ReadOnly`, with the reason.
pub fn read_only(py: Python<'_>, why: &str) -> PyErr {
    raise(py, "ReadOnly", why)
}

/// `Closed`, for a handle that was used after its close; `now` says what to do instead.
pub fn closed(py: Python<'_>, what: &str, now: &str) -> PyErr {
    raise(py, "Closed", format!("{what} is closed; {now}"))
}

/// `Closed`, for a snapshot.
pub fn closed_snapshot(py: Python<'_>) -> PyErr {
    closed(py, "this snapshot", "take another one with db.snapshot()")
}

/// The text of `repr` for a handle of the class `class`; if its value cannot be read, the text
/// shows the error. Debuggers, loggers and failing tests call `repr` at times when nothing else
/// works.
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

/// `UnsupportedKey`, for an object that cannot be a key.
pub fn unsupported_key(table: &str, key: &Bound<'_, PyAny>, why: &str, steps: &[usize]) -> PyErr {
    unsupported(("key", &format!("of table {table:?}")), key, why, steps)
}

/// `UnsupportedKey`, for a value that no index can have.
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

/// The `repr` of an object, shortened for a message.
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

/// `IndexError` with a list's own message.
pub fn index_out_of_range(what: &str) -> PyErr {
    PyIndexError::new_err(format!("{what} out of range"))
}

/// The exception for work that a signal has stopped: the one that its handler raised.
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
