//! `parse`: an expression from its text.

use pellucid_query::expression;
use pyo3::exceptions::PyUnicodeEncodeError;
use pyo3::prelude::*;
use pyo3::types::{PySlice, PyString};

use super::handle::Expression;
use crate::errors;

/// Return the expression that a text describes, such as the text that `str` of an expression gives.
///
/// The reference defines the language, under "Expressions". Raises `ParseError`, a `ValueError`,
/// with the place of the error and what was expected there.
///
/// >>> import pellucid
/// >>> pellucid.parse("age >= 21 and name.last startswith 'B'")
/// (F.age >= 21) & F.name.last.startswith('B')
#[pyfunction]
pub fn parse(text: &Bound<'_, PyAny>) -> PyResult<Expression> {
    let py = text.py();
    let Ok(text) = text.cast::<PyString>() else {
        let kind = text.get_type();
        return Err(errors::type_error(format!(
            "parse() takes the text of an expression, not {}",
            kind.name()?
        )));
    };
    let refused = |(line, column): (usize, usize), message: String| {
        let raised = errors::raise(py, "ParseError", message);
        let value = raised.value(py);
        let set = value.setattr("line", line).and_then(|()| value.setattr("column", column));
        set.err().unwrap_or(raised)
    };
    let utf8 = match text.to_str() {
        Ok(utf8) => utf8,
        Err(error) if error.is_instance_of::<PyUnicodeEncodeError>(py) => {
            let (place, code) = surrogate_in(text, &error)?;
            let message = format!(
                "line {}, column {}: a lone surrogate, which no text of an expression can have; in a string it is written \\u{code:04x}",
                place.0, place.1
            );
            return Err(refused(place, message));
        }
        Err(error) => return Err(error),
    };
    expression::parse(utf8)
        .map(Expression::of)
        .map_err(|error| refused((error.line, error.column), error.to_string()))
}

/// Line and column, counted from 1, of the surrogate in a text that cannot be encoded, and its
/// code.
fn surrogate_in(text: &Bound<'_, PyString>, error: &PyErr) -> PyResult<((usize, usize), u32)> {
    let py = text.py();
    let start: usize = error.value(py).getattr("start")?.extract()?;
    let before = text.get_item(PySlice::new(py, 0, start as isize, 1))?.cast_into::<PyString>()?;
    let before = before.to_str()?;
    let line = before.matches('\n').count() + 1;
    let column = before.chars().rev().take_while(|character| *character != '\n').count() + 1;
    let code = py.import("builtins")?.call_method1("ord", (text.get_item(start)?,))?.extract()?;
    Ok(((line, column), code))
}
