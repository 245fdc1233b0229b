//! Parse and show the paths by which users name places in a record.

use pellucid_query::expression::DEPTH_MAX;
use pellucid_record::path::OwnedStep;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyString, PyTuple};

use crate::errors;
use crate::values::equal::is_plain;
use crate::values::{bytes, equal};

/// Splits a path into steps: `"address.city"` at its dots; a tuple is taken as it is.
///
/// In a tuple, an int is the index of a list, or a key of a dict that has int keys.
///
/// # Errors
/// `TypeError` for anything else, `ValueError` for an empty path.
pub fn parse<'py>(argument: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = argument.py();
    let steps: Vec<_> = if let Ok(text) = argument.cast::<PyString>() {
        let text =
            errors::utf8(text, "the field path", "no path in text can have; a tuple, or F[...], is exact")?;
        refuse_steps(text)?;
        text.split('.').map(|name| PyString::new(py, name).into_any()).collect()
    } else if let Ok(tuple) = argument.cast::<PyTuple>() {
        tuple.iter().collect()
    } else {
        let kind = argument.get_type();
        let instead = if argument.is_instance_of::<PyList>() {
            "a list; several fields are several arguments, as in select(\"name\", \"address.city\")"
                .to_owned()
        } else {
            kind.name()?.to_string()
        };
        return Err(errors::type_error(format!(
            "a field path is a str (\"address.city\") or a tuple (\"address\", \"city\"), not {instead}"
        )));
    };
    if steps.is_empty() {
        return Err(errors::value_error("a field path needs at least one field"));
    }
    if steps.len() > DEPTH_MAX as usize {
        return Err(errors::value_error(format!(
            "a field path has {DEPTH_MAX} steps at most, not {}; records nest no deeper than 64",
            steps.len()
        )));
    }
    Ok(steps)
}

/// Refuses a text path that uses the syntax of expressions: it would name a field literally called
/// that, and an update would create this field.
fn refuse_steps(path: &str) -> PyResult<()> {
    let is_index = |name: &str| {
        let inner = name.strip_suffix(']').and_then(|name| name.rsplit_once('[')).map(|(_, inner)| inner);
        inner.is_some_and(|inner| {
            inner == "*" || inner.starts_with(['\'', '"']) || inner.parse::<i64>().is_ok()
        })
    };
    let is_digits = |name: &str| {
        let digits = name.strip_prefix('-').unwrap_or(name);
        !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
    };
    let names = || path.split('.');
    let why = if path == "*" {
        "there is no sign for all fields: a query without select() has them"
    } else if names().any(is_index) {
        "there are no indexes in it: write F.tags[0] or F.tags.each() where an expression may stand, or a tuple, (\"tags\", 0)"
    } else if names().any(|name| name.ends_with("()")) {
        "nothing is called in it: write F.tags.each() where an expression may stand, or pellucid.parse(\"tags[*]\")"
    } else if names().skip(1).any(is_digits) {
        "a number in it would be a name: (\"tags\", 0) leads to an element of a list, (\"years\", \"2026\") to a field of a dict"
    } else if names().any(|name| name.len() > 1 && name.starts_with('`') && name.ends_with('`')) {
        "there are no backticks in it: a tuple, (\"two.words\",), is exact"
    } else if !path.is_empty() && names().any(str::is_empty) {
        "a name in it is empty"
    } else {
        return Ok(());
    };
    Err(errors::value_error(format!(
        "the field path {path:?} goes down at its dots, and {why}; a field of that very name is ({path:?},)"
    )))
}

/// The step to the field `key` of a dict; None if no record can have such a key.
///
/// # Errors
/// What the key's own code raises; `TypeError` for an object that no dict can have as a key, such
/// as a list, and for one that only looks like a key.
pub fn field_step(key: &Bound<'_, PyAny>) -> PyResult<Option<OwnedStep>> {
    if let Ok(name) = key.cast_exact::<PyString>()
        && let Ok(name) = name.to_str()
    {
        return Ok(Some(OwnedStep::Field(name.into())));
    }
    if is_plain(key) {
        return step_as_stored(key);
    }
    equal::refuse(key)?;
    key.hash()?;
    match equal::plain_key(key)? {
        Some(plain) => field_step(&plain),
        None => step_as_stored(key),
    }
}

/// As `field_step`, for a key that keeps its class. A record that was written for a shelf, or by
/// an earlier version, may have such a key.
///
/// # Errors
/// What the key's own code raises.
pub fn step_as_stored(key: &Bound<'_, PyAny>) -> PyResult<Option<OwnedStep>> {
    Ok(bytes::key_record(key)?.map(|key| OwnedStep::Key(key.into_boxed_slice())))
}

/// A path as a person reads it: `['a'][3]`.
pub fn show(py: Python<'_>, steps: &[OwnedStep]) -> String {
    steps
        .iter()
        .map(|step| match step {
            OwnedStep::Field(name) => format!("[{name:?}]"),
            OwnedStep::Index(index) => format!("[{index}]"),
            OwnedStep::Key(key) => {
                let key = bytes::key_object(py, key).and_then(|key| Ok(key.repr()?.to_string()));
                format!("[{}]", key.unwrap_or_else(|_| "?".to_owned()))
            }
        })
        .collect()
}
