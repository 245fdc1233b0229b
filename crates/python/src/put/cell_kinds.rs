//! What the cells of a CSV look like. `csv_types.py` decides the type of a column by that.

use pyo3::prelude::*;
use pyo3::types::{PyFrozenSet, PyList, PySet, PyString, PyTuple};

use crate::errors;
use crate::hot::text;

/// The words of [`cell_kinds`]; a bit for each one is a set of them.
const WORDS: [&str; 12] =
    ["int", "float", "bool", "word", "text", "point", "code", "long", "respelled", "odd", "empty", "null"];
const INT: u16 = 1;
const FLOAT: u16 = 1 << 1;
const BOOL: u16 = 1 << 2;
const WORD: u16 = 1 << 3;
const TEXT: u16 = 1 << 4;
const POINT: u16 = 1 << 5;
const CODE: u16 = 1 << 6;
const LONG: u16 = 1 << 7;
const RESPELLED: u16 = 1 << 8;
const ODD: u16 = 1 << 9;
const EMPTY: u16 = 1 << 10;
const NULL: u16 = 1 << 11;

/// Each int up to this one is exactly a float.
const EXACT_MAX: u64 = 1 << 53;
/// The most digits that Python writes.
const DIGITS_WRITTEN: usize = 4300;
/// A number of up to 300 characters without an exponent fits into a float.
const SHORT: usize = 300;

/// The kinds of cells that are met in a column, and what there is to say of its numbers.
///
/// - `int`, `float`, `bool`, `text`; `word` is `nan`, `inf` or `-inf`, `null` any other word of
///   `nulls`, and `empty` no text at all;
/// - `point`: a float has a point; `code`: digits, `e`, digits; `long`: an int may be no float;
/// - `respelled`: Python writes an int or a bool in another way;
/// - `odd`: a number begins with a zero, does not fit into a float, or has too many digits to
///   write.
///
/// # Errors
/// `TypeError`: the cells are no list or tuple of strings.
#[pyfunction]
#[pyo3(signature = (cells, nulls, /))]
pub fn cell_kinds<'py>(
    cells: &Bound<'py, PyAny>,
    nulls: &Bound<'py, PyFrozenSet>,
) -> PyResult<Bound<'py, PySet>> {
    let (mut found, has_nulls) = (0, !nulls.is_empty());
    each(cells, |cell| {
        // Numbers and words are ASCII.
        let mut kinds = text::ascii(cell.cast::<PyString>()?).map_or(TEXT, kinds_of);
        if kinds == TEXT && has_nulls && nulls.contains(&cell)? {
            kinds = NULL;
        }
        found |= kinds;
        Ok(())
    })?;
    let words = WORDS.iter().enumerate().filter(|(bit, _)| found & (1 << bit) != 0);
    PySet::new(cells.py(), words.map(|(_, word)| *word))
}

/// Calls `take` with each element of a list or a tuple.
pub(super) fn each<'py>(
    cells: &Bound<'py, PyAny>,
    mut take: impl FnMut(Bound<'py, PyAny>) -> PyResult<()>,
) -> PyResult<()> {
    if let Ok(cells) = cells.cast::<PyList>() {
        return cells.iter().try_for_each(take);
    }
    match cells.cast::<PyTuple>() {
        Ok(cells) => cells.iter().try_for_each(&mut take),
        Err(_) => Err(errors::type_error("the cells of a column are a list or a tuple")),
    }
}

/// A cell without the blanks around it.
pub(super) fn trimmed(cell: &[u8]) -> &[u8] {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let start = cell.iter().take_while(|byte| is_blank(byte)).count();
    let rest = cell.get(start..).unwrap_or_default();
    let end = rest.len() - rest.iter().rev().take_while(|byte| is_blank(byte)).count();
    rest.get(..end).unwrap_or_default()
}

/// The bool that a cell is, in letters of any case.
pub(super) fn bool_of(cell: &[u8]) -> Option<bool> {
    if cell.eq_ignore_ascii_case(b"true") {
        return Some(true);
    }
    cell.eq_ignore_ascii_case(b"false").then_some(false)
}

fn kinds_of(cell: &[u8]) -> u16 {
    match cell {
        [] => EMPTY,
        b"nan" | b"inf" | b"-inf" => WORD,
        [b't' | b'T' | b'f' | b'F', ..] if bool_of(cell).is_some() => {
            if cell.iter().any(u8::is_ascii_uppercase) { BOOL | RESPELLED } else { BOOL }
        }
        [b' ' | b'\t' | b'+' | b'-' | b'.' | b'0'..=b'9', ..] => number(cell).unwrap_or(TEXT),
        _ => TEXT,
    }
}

/// What a number is, as Python's `int` and `float` read it without `_`; None for other text.
fn number(cell: &[u8]) -> Option<u16> {
    let inner = trimmed(cell);
    let digits = inner.strip_prefix(b"-").or_else(|| inner.strip_prefix(b"+")).unwrap_or(inner);
    let (whole, rest) = split_digits(digits);
    let (fraction, rest) = match rest.strip_prefix(b".") {
        Some(rest) => split_digits(rest),
        None => (&[][..], rest),
    };
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let has_point = digits.get(whole.len()) == Some(&b'.');
    let mut found = match whole {
        [b'0', _, ..] => ODD,
        _ => 0,
    };
    if let [b'e' | b'E', exponent @ ..] = rest {
        let unsigned =
            exponent.strip_prefix(b"-").or_else(|| exponent.strip_prefix(b"+")).unwrap_or(exponent);
        let (power, rest) = split_digits(unsigned);
        if power.is_empty() || !rest.is_empty() {
            return None;
        }
        if !has_point && digits.len() == inner.len() && power.len() == exponent.len() {
            found |= CODE;
        }
    } else if !rest.is_empty() {
        return None;
    } else if !has_point {
        return Some(found | int(cell, whole));
    }
    if (inner.len() > SHORT || !rest.is_empty()) && !is_in_range(inner) {
        found |= ODD;
    }
    Some(found | FLOAT | if has_point { POINT } else { 0 })
}

fn int(cell: &[u8], digits: &[u8]) -> u16 {
    let mut found = INT;
    if cell.strip_prefix(b"-").unwrap_or(cell).len() > digits.len() || cell == b"-0" {
        found |= RESPELLED;
    }
    // All ints of up to 15 digits are exact.
    if digits.len() > 15 && !is_exact(digits) {
        found |= LONG;
    }
    if digits.len() > DIGITS_WRITTEN { found | ODD } else { found }
}

/// Whether an int is beyond doubt exactly a float.
fn is_exact(digits: &[u8]) -> bool {
    let int = std::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u64>().ok());
    int.is_some_and(|int| int <= EXACT_MAX)
}

/// Whether a number is neither too large for a float, nor so small that it becomes zero.
fn is_in_range(number: &[u8]) -> bool {
    let digits = number.split(|byte| matches!(byte, b'e' | b'E')).next().unwrap_or_default();
    let is_zero = !digits.iter().any(|byte| matches!(byte, b'1'..=b'9'));
    float_of(number).is_some_and(|value| value.is_finite() && (value != 0.0 || is_zero))
}

/// The int of up to 64 bits that digits are.
pub(super) fn int_of(digits: &[u8]) -> Option<i64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The float that a number is.
pub(super) fn float_of(number: &[u8]) -> Option<f64> {
    std::str::from_utf8(number).ok()?.parse().ok()
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    text.split_at(text.iter().take_while(|byte| byte.is_ascii_digit()).count())
}
