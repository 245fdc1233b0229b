//! Which expression, or which value in one, is a Python object?

use pellucid_query::expression::{self, Kind, Node, Step};
use pellucid_record::Value;
use pellucid_record::value::Double;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyCFunction, PyFloat, PyFrozenSet, PyInt, PySet, PySlice, PyString,
};

use super::Expression;
use crate::bytes;
use crate::errors;

/// The expression that an object is.
///
/// # Errors
/// `TypeError` for anything but an `Expression`, with what to write instead.
pub fn node_of(object: &Bound<'_, PyAny>) -> PyResult<Node> {
    if let Ok(expression) = object.cast_exact::<Expression>() {
        return Ok(expression.get().node().clone());
    }
    let kind = object.get_type();
    let instead = if object.is_exact_instance_of::<PyString>() {
        "; pellucid.parse(text) makes one of a text"
    } else if object.is_exact_instance_of::<PyBool>() {
        "; `is`, `in`, `not`, `and` and `or` answer at once: write F.a.is_none(), F.a.isin(...), ~, & and |; and a field that \
         has the name of a method is F[\"count\"], not F.count"
    } else if object.is_instance_of::<PyCFunction>() {
        "; a method is called, F.born.year(), and a field of its name is F[\"year\"]"
    } else if object.is_callable() {
        "; .filter(callable) takes a function"
    } else {
        ""
    };
    Err(errors::type_error(format!(
        "expected an expression, such as F.age >= 21, not an object of type {}{instead}",
        kind.name()?
    )))
}

/// The value that stands for an object in an expression.
///
/// # Errors
/// `UnsupportedValue` where no record can hold it, `TypeError` for an expression that is no literal.
pub fn literal_of(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Some(value) = plain(object) {
        return Ok(value);
    }
    if let Ok(expression) = object.cast_exact::<Expression>() {
        return match expression.get().node().kind() {
            Kind::Literal(value) => Ok(value.clone()),
            _ => Err(errors::type_error(format!(
                "expected a value, not the expression ({}), which has another one in each record",
                expression.get().node()
            ))),
        };
    }
    if let Some(scalar) = numpy_scalar(object)? {
        return literal_of(&scalar);
    }
    bytes::value_of(object, || "the value in the expression".to_owned()).map_err(|error| {
        let py = object.py();
        if !object.is_callable() || !is_unsupported(py, &error) {
            return error;
        }
        let hint = "a function cannot stand in an expression, which runs without Python; .filter(callable) takes one";
        let raised = errors::raise(py, "UnsupportedValue", hint);
        raised.set_cause(py, Some(error));
        raised
    })
}

fn is_unsupported(py: Python<'_>, error: &PyErr) -> bool {
    error.get_type(py).name().is_ok_and(|name| name.to_str().is_ok_and(|name| name == "UnsupportedValue"))
}

/// What most literals are.
fn plain(object: &Bound<'_, PyAny>) -> Option<Value> {
    if object.is_none() {
        Some(Value::None)
    } else if let Ok(value) = object.cast_exact::<PyBool>() {
        Some(Value::Bool(value.is_true()))
    } else if let Ok(value) = object.cast_exact::<PyInt>() {
        value.extract().ok().map(Value::Int)
    } else if let Ok(value) = object.cast_exact::<PyFloat>() {
        Some(Value::Float(Double(value.value())))
    } else if let Ok(value) = object.cast_exact::<PyString>() {
        // Lone surrogates are for the encoder.
        value.to_str().ok().map(|text| Value::Str(text.to_owned()))
    } else {
        None
    }
}

/// The number or text of a `NumPy` scalar: fields have those of Python's own types, which no array equals.
fn numpy_scalar<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = object.py();
    let modules = py.import("sys")?.getattr("modules")?;
    let Ok(numpy) = modules.get_item("numpy") else { return Ok(None) };
    if !object.is_instance(&numpy.getattr("generic")?)? {
        return Ok(None);
    }
    let item = object.call_method0("item")?;
    let kind: String = object.getattr("dtype")?.getattr("kind")?.extract()?;
    // Of a moment in nanoseconds it would be an int.
    Ok((plain(&item).is_some() && "biufU".contains(&*kind)).then_some(item))
}

/// The expression that an object is, or stands for.
///
/// # Errors
/// As `literal_of`.
pub fn operand(object: &Bound<'_, PyAny>) -> PyResult<Node> {
    match object.cast_exact::<Expression>() {
        Ok(expression) => Ok(expression.get().node().clone()),
        Err(_) => literal_of(object).map(expression::Expression::literal),
    }
}

/// The condition on the other side of `&` or `|`.
pub fn condition(object: &Bound<'_, PyAny>, sign: &str) -> PyResult<Node> {
    if let Ok(node) = node_of(object) {
        return Ok(node);
    }
    let shown = object.repr().map(|text| text.to_string()).unwrap_or_default();
    let shown: String = shown.chars().take(80).collect();
    Err(errors::type_error(format!(
        "{sign} joins two conditions, and {shown} is none; since it binds tighter than comparisons, these stand in parentheses: \
         (F.age >= 21) {sign} (F.city == \"Bath\")"
    )))
}

/// The step that an index in brackets is.
pub fn key_step(key: &Bound<'_, PyAny>) -> PyResult<Step> {
    if key.is_exact_instance_of::<PySlice>() {
        return Err(errors::type_error(
            "a slice is no step of a path; .each() stands for each element, [0] for one",
        ));
    }
    Step::to(literal_of(key)?).ok_or_else(|| {
        let kind = key.get_type().name().map(|name| name.to_string()).unwrap_or_default();
        errors::type_error(format!("no dict has a {kind} as a key, so that it leads nowhere in a record"))
    })
}

/// The values of an iterable.
pub fn values_of(values: &Bound<'_, PyAny>) -> PyResult<Vec<Value>> {
    let is_text = values.is_instance_of::<PyString>()
        || values.is_instance_of::<PyBytes>()
        || values.is_instance_of::<PyByteArray>();
    if is_text || values.is_exact_instance_of::<Expression>() {
        let shown = values.repr()?;
        return Err(errors::type_error(format!(
            "isin() takes several values, and {shown} is one; write isin([...]), or contains() for what is in a field"
        )));
    }
    // The order of a set of Python's is another one in each process.
    if (values.is_exact_instance_of::<PySet>() || values.is_exact_instance_of::<PyFrozenSet>())
        && let Value::Set(elements) | Value::FrozenSet(elements) = literal_of(values)?
    {
        return Ok(elements);
    }
    let wanted = "an iterable of values";
    let iterator = errors::argument(values, values.try_iter(), "values", wanted)?;
    iterator.map(|value| literal_of(&value?)).collect()
}
