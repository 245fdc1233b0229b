//! Turn Python objects into expressions and into the values in them.

use pellucid_query::Fault;
use pellucid_query::expression::{self, InList, Kind, Node, Operation, Step};
use pellucid_query::stoppable::{self, Many, Pace};
use pellucid_record::value::{Double, NoShapes};
use pellucid_record::{Value, encode_value};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{
    PyBool, PyByteArray, PyBytes, PyFloat, PyFrozenSet, PyInt, PySet, PySlice, PyString, PyTuple,
};

use crate::errors;
use crate::expression::handle::Expression;
use crate::expression::method;
use crate::query::spec::refuse_aggregate;
use crate::signals::is_interrupted;
use crate::values::foreign::{self, Foreign};
use crate::values::{bytes, equal, path};

/// The node of an `Expression` object.
///
/// # Errors
/// `TypeError` for anything else, with a hint what to write instead.
pub fn node_of(object: &Bound<'_, PyAny>) -> PyResult<Node> {
    if let Ok(expression) = object.cast_exact::<Expression>() {
        return Ok(expression.get().node().clone());
    }
    refuse_unready(object)?;
    let kind = object.get_type();
    let instead = if object.is_exact_instance_of::<PyString>() {
        "; pellucid.parse(text) makes one of a text"
    } else if object.is_exact_instance_of::<PyBool>() {
        "; `is`, `in`, `not`, `and` and `or` answer at once: write F.a.is_none(), F.a.isin(...), ~, & and |; and a field that \
         has the name of a method is F[\"count\"], not F.count"
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

/// The value for an object in an expression.
///
/// # Errors
/// `UnsupportedValue` if no record can hold it, `TypeError` for an expression that is not a
/// literal.
pub fn literal_of(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Some(value) = plain(object) {
        return Ok(value);
    }
    if let Ok(expression) = object.cast_exact::<Expression>() {
        return match expression.get().node().kind() {
            Kind::Literal(value) => Ok(value.clone()),
            _ => Err(errors::type_error(format!(
                "expected a value, not the expression ({}), which has another one in each record",
                expression.get().node().brief()
            ))),
        };
    }
    refuse_unready(object)?;
    match scalar(object)? {
        Some(value) => Ok(value),
        None => literal_of_own(object),
    }
}

/// The value of a scalar of another library; None for any other object. NaT becomes NaN, which
/// equals nothing.
///
/// # Errors
/// `UnsupportedValue` for one that no value equals: it would be missing in each row, without an
/// error.
fn scalar(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    match foreign::scalar(object)? {
        None => Ok(None),
        Some(Foreign::Object(object)) => literal_of_own(&object).map(Some),
        Some(Foreign::Nothing) => Ok(Some(Value::Float(Double(f64::NAN)))),
        Some(Foreign::Inexact(why)) => {
            let shown = object.repr().map(|text| text.to_string()).unwrap_or_default();
            let refused = format!("{shown} cannot be compared with what records hold: {why}");
            Err(errors::raise(object.py(), "UnsupportedValue", refused))
        }
    }
}

/// Refuses objects that look like values but have none in a row: a method that was not called, an
/// aggregate, an order.
///
/// # Errors
/// `TypeError`, with a hint what to write instead.
pub fn refuse_unready(object: &Bound<'_, PyAny>) -> PyResult<()> {
    method::refuse(object)?;
    refuse_aggregate(object)
}

/// Refuses to count the values of a condition, since a condition has a value in every row.
///
/// # Errors
/// `TypeError`, with a hint how to count the rows for which it is true.
pub fn refuse_condition(node: &Node) -> PyResult<()> {
    if !node.is_condition() {
        return Ok(());
    }
    let shown = node.brief();
    Err(errors::type_error(format!(
        "a condition has a value in every row, be it False: where(condition).count() counts those of which ({shown}) is true, and in agg() \
         so does (condition).sum()"
    )))
}

/// The steps of a field path, as [`path::parse`] returns them; expressions are refused with a
/// message of their own.
///
/// # Errors
/// `TypeError` for an object that is not a path, `ValueError` for an empty path.
pub fn field_path<'py>(argument: &Bound<'py, PyAny>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    refuse_unready(argument)?;
    if argument.is_instance_of::<Expression>() {
        return Err(errors::type_error(format!(
            "a field path is a str (\"address.city\") or a tuple (\"address\", \"city\"), not the expression {}; the \
             path of a field is its name: \"address.city\"",
            argument.repr()?
        )));
    }
    path::parse(argument)
}

/// The value that equals an object, as `literal_of` returns it; None if no record can hold one.
///
/// # Errors
/// Those of `literal_of`, except `UnsupportedValue`.
pub fn equal_of(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    if let Some(value) = plain(object) {
        return Ok(Some(value));
    }
    if object.is_exact_instance_of::<Expression>() {
        return literal_of(object).map(Some);
    }
    refuse_unready(object)?;
    if let Some(value) = scalar(object)? {
        return Ok(Some(value));
    }
    match literal_of_own(object) {
        Ok(value) => Ok(Some(value)),
        Err(error) if is_unsupported(object.py(), &error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// As `literal_of`, for an object that is not a scalar of another library.
fn literal_of_own(object: &Bound<'_, PyAny>) -> PyResult<Value> {
    if let Some(value) = plain(object) {
        return Ok(value);
    }
    if let Ok(tuple) = object.cast_exact::<PyTuple>()
        && let Some(elements) = elements_of(tuple)?
    {
        return Ok(Value::Tuple(elements));
    }
    let py = object.py();
    let error = match bytes::value_of(object, || "the value in the expression".to_owned()) {
        Err(error) if is_unsupported(py, &error) => error,
        done => return done,
    };
    // No record has an instance of a subclass of str or int, but it may have an equal value.
    if let Some(value) = value_of_base(object)? {
        return Ok(value);
    }
    if !object.is_callable() {
        return Err(error);
    }
    let hint =
        "a function cannot stand in an expression, which runs without Python; .filter(callable) takes one";
    let raised = errors::raise(py, "UnsupportedValue", hint);
    raised.set_cause(py, Some(error));
    Err(raised)
}

/// The values of a tuple with scalars of other libraries; None if it has none.
fn elements_of(tuple: &Bound<'_, PyTuple>) -> PyResult<Option<Vec<Value>>> {
    let mut has_foreign = false;
    let mut elements = Vec::with_capacity(tuple.len());
    for element in tuple {
        let scalar = if plain(&element).is_some() { None } else { scalar(&element)? };
        has_foreign |= scalar.is_some();
        elements.push((element, scalar));
    }
    if !has_foreign {
        return Ok(None);
    }
    let value = |(element, scalar): (Bound<'_, PyAny>, Option<Value>)| match scalar {
        Some(value) => Ok(value),
        None => literal_of_own(&element),
    };
    elements.into_iter().map(value).collect::<PyResult<_>>().map(Some)
}

/// The value of an instance of a subclass of a number, text or bytes, or of a tuple of such.
fn value_of_base(object: &Bound<'_, PyAny>) -> PyResult<Option<Value>> {
    let base = match equal::base_of(object)? {
        Some(base) => base,
        None => match equal::plain_key(object)? {
            Some(plain) => plain,
            None => return Ok(None),
        },
    };
    match plain(&base) {
        Some(value) => Ok(Some(value)),
        None => bytes::value_of(&base, || "the value in the expression".to_owned()).map(Some),
    }
}

fn is_unsupported(py: Python<'_>, error: &PyErr) -> bool {
    error.get_type(py).name().is_ok_and(|name| name.to_str().is_ok_and(|name| name == "UnsupportedValue"))
}

/// The value of the most frequent literals.
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
        // The encoder handles lone surrogates.
        value.to_str().ok().map(|text| Value::Str(text.to_owned()))
    } else {
        None
    }
}

/// The node of an `Expression`, or a literal for any other object.
///
/// # Errors
/// Those of `literal_of`.
pub fn operand(object: &Bound<'_, PyAny>) -> PyResult<Node> {
    match object.cast_exact::<Expression>() {
        Ok(expression) => Ok(expression.get().node().clone()),
        Err(_) => literal_of(object).map(expression::Expression::literal),
    }
}

/// Whether arithmetic with such a value never has a result, whatever the other operand is.
pub fn is_no_term(value: &Value) -> bool {
    matches!(
        value,
        Value::None | Value::List(_) | Value::Tuple(_) | Value::Set(_) | Value::FrozenSet(_) | Value::Dict(_)
    )
}

/// An operand of arithmetic: as `operand`, but refuses values that never give a result.
pub fn term(operation: Operation, object: &Bound<'_, PyAny>) -> PyResult<Node> {
    let node = operand(object)?;
    if !object.is_exact_instance_of::<Expression>()
        && let Kind::Literal(value) = node.kind()
        && is_no_term(value)
    {
        return Err(errors::type_error(format!(
            "expressions compute with numbers, strings and times, and {} with {} would be missing in each record; what holds others is set \
             as a whole, or row by row: for row in query: row.tags.append(...)",
            operation.sign(),
            errors::a_kind(object)?
        )));
    }
    Ok(node)
}

/// The operand of `&` or `|`, which must be a condition.
pub fn condition(object: &Bound<'_, PyAny>, sign: &str) -> PyResult<Node> {
    if let Ok(node) = node_of(object) {
        return Ok(node);
    }
    refuse_unready(object)?;
    let shown = object.repr().map(|text| text.to_string()).unwrap_or_default();
    let shown: String = shown.chars().take(80).collect();
    Err(errors::type_error(format!(
        "{sign} joins two conditions, and {shown} is none; since it binds tighter than comparisons, these stand in parentheses: \
         (F.age >= 21) {sign} (F.city == \"Bath\")"
    )))
}

/// The step for an index in brackets.
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

/// The values of an iterable of any length.
///
/// # Errors
/// As `literal_of`, and what a signal handler raises.
pub fn values_of(values: &Bound<'_, PyAny>) -> PyResult<InList> {
    refuse_unready(values)?;
    let is_text = values.is_instance_of::<PyString>()
        || values.is_instance_of::<PyBytes>()
        || values.is_instance_of::<PyByteArray>();
    if is_text || values.is_exact_instance_of::<Expression>() {
        let shown = errors::brief(values);
        return Err(errors::type_error(format!(
            "isin() takes several values, and {shown} is one; write isin([...]), or contains() for what is in a field"
        )));
    }
    let (py, mut pace) = (values.py(), Pace::new(is_interrupted as fn() -> bool));
    let mut found = Many::default();
    // The order of a Python set differs from process to process.
    let is_set = values.is_exact_instance_of::<PySet>() || values.is_exact_instance_of::<PyFrozenSet>();
    if is_set
        && values.len()? <= SET_COUNT_FEW
        && let Value::Set(elements) | Value::FrozenSet(elements) = literal_of(values)?
    {
        *found = elements;
    } else {
        let iterator = values.try_iter().map_err(|error| {
            if !error.is_instance_of::<PyTypeError>(py) {
                return error;
            }
            let shown = errors::brief(values);
            errors::type_error(format!(
                "isin() takes several values, an iterable, and {shown} is one: isin([{shown}]), or == {shown}"
            ))
        })?;
        for value in iterator {
            found.push(literal_of(&value?)?);
            pace.step().map_err(|_| errors::stopped(py))?;
        }
        if is_set {
            found = in_order(found, &mut pace).map_err(|_| errors::stopped(py))?;
        }
    }
    expression::many(found, &mut pace).map_err(|_| errors::stopped(py))
}

/// Larger sets are encoded with checks for signals; this many take some milliseconds.
const SET_COUNT_FEW: usize = 1 << 14;

/// The elements of a large set in a fixed order, that of their records.
fn in_order(elements: Many<Value>, pace: &mut Pace<fn() -> bool>) -> Result<Many<Value>, Fault> {
    let mut coded = Many::default();
    for value in elements.into_rest() {
        coded.push((encode_value(&value, &mut NoShapes).unwrap_or_default(), value));
        pace.step()?;
    }
    let sorted = stoppable::sort(coded, |one, other| one.0.cmp(&other.0), pace)?;
    let mut values = Many::new(Vec::with_capacity(sorted.len()));
    for (_, value) in sorted.into_rest() {
        values.push(value);
        pace.step()?;
    }
    Ok(values)
}
