//! How does a user name a place in a record?

use pyo3::prelude::*;
use pyo3::types::{PyString, PyTuple};

use crate::errors;
use crate::expression::{self, Expression};
use crate::hot::node::Step;

/// The path that `argument` names: `"address.city"` splits at dots, a tuple is exact.
///
/// In a tuple an int is an index of a list, or a key of a dict that has such.
///
/// # Errors
/// `TypeError` for anything else, `ValueError` for an empty path.
pub fn parse<'py>(argument: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = argument.py();
    let steps: Vec<_> = if let Ok(text) = argument.cast::<PyString>() {
        text.to_str()?.split('.').map(|name| PyString::new(py, name).into_any()).collect()
    } else if let Ok(tuple) = argument.cast::<PyTuple>() {
        tuple.iter().collect()
    } else {
        expression::refuse_unready(argument)?;
        let kind = argument.get_type();
        let instead = if argument.is_instance_of::<Expression>() {
            format!("the expression {}; the path of a field is its name: \"address.city\"", argument.repr()?)
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
    Ok(steps)
}

/// The step that leads to the field `key` of a dict; None where no record can have such a key.
///
/// # Errors
/// What the key's own code raises; `TypeError` for what no dict has as a key, such as a list.
pub fn field_step(key: &Bound<'_, PyAny>) -> PyResult<Option<Step>> {
    if let Ok(name) = key.cast_exact::<PyString>()
        && let Ok(name) = name.to_str()
    {
        return Ok(Some(Step::Field(name.into())));
    }
    key.hash()?;
    Ok(crate::bytes::key_record(key)?.map(|key| Step::Key(key.into_boxed_slice())))
}

/// A path for people: `['a'][3]`.
pub fn show(py: Python<'_>, steps: &[Step]) -> String {
    steps
        .iter()
        .map(|step| match step {
            Step::Field(name) => format!("[{name:?}]"),
            Step::Index(index) => format!("[{index}]"),
            Step::Key(key) => {
                let key = crate::bytes::key_object(py, key).and_then(|key| Ok(key.repr()?.to_string()));
                format!("[{}]", key.unwrap_or_else(|_| "?".to_owned()))
            }
        })
        .collect()
}
