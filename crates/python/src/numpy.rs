//! Export a column as a NumPy array.
//!
//! Numbers, bools and times are copied into an array of a native NumPy type; other values become
//! Python objects.

use arrow_array::cast::AsArray;
use arrow_array::types::{
    Date32Type, DurationMicrosecondType, Float64Type, Int64Type, TimestampMicrosecondType,
};
use arrow_array::{Array, ArrayRef, ArrowPrimitiveType};
use arrow_schema::DataType;
use pellucid_query::Outcome;
use pellucid_query::arrays::{Arrays, GatherArrays};
use pellucid_query::arrow::double;
use pellucid_query::expression::Node;
use pellucid_query::numbers::{GatherNumbers, Numbers};
use pyo3::buffer::Element;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple};

use crate::arrow::{columns_of, module};
use crate::column::{column as objects, column_of, node_of};
use crate::hot::arrow::elements;
use crate::hot::held_bytes::OwnedBytes;
use crate::work::threads::over_parts;
use crate::work::walks::{Queried, Walked};

/// NumPy's bits for NaT, "not a time".
const NOT_A_TIME: i64 = i64::MIN;

/// `to_numpy(path)`.
pub fn to_numpy<'py>(of: &impl Queried<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let numpy = module(of.py(), "numpy", "to_numpy", "numpy")?;
    let node = node_of(path)?;
    if let Some((source, nodes)) = of.source_of(std::slice::from_ref(&node), Walked::InParts)? {
        let column = column_of(nodes.first().unwrap_or(&node))?;
        match over_parts(of.py(), &of.table_ref(), source, GatherNumbers(column))? {
            Outcome::Done(Some(Numbers::Ints(pieces))) => return copied(&numpy, "int64", &pieces),
            Outcome::Done(Some(Numbers::Floats(pieces))) => return copied(&numpy, "float64", &pieces),
            Outcome::Done(None) | Outcome::Foreign => {}
        }
    }
    if let Some((source, nodes)) = of.source_of(std::slice::from_ref(&node), Walked::InParts)? {
        let column = column_of(nodes.first().unwrap_or(&node))?;
        if let Outcome::Done(arrays) = over_parts(of.py(), &of.table_ref(), source, GatherArrays(column))?
            && let Some(array) = one_array(&numpy, arrays)?
        {
            return Ok(array);
        }
    }
    of_any_type(of, path, &numpy, node)
}

/// The array of all arrays, with a dimension more; None if there are none, or if a row without one
/// has no value in their type.
fn one_array<'py>(numpy: &Bound<'py, PyModule>, arrays: Arrays) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = numpy.py();
    let Arrays { dtype, dimensions, rows, missing, mut pieces } = arrays;
    let is_float = dtype.as_bytes().get(1) == Some(&b'f');
    if dtype.is_empty() || !missing.is_empty() && !is_float {
        return Ok(None);
    }
    let shape: Vec<usize> = std::iter::once(rows).chain(dimensions).collect();
    let flat = if pieces.iter().all(Vec::is_empty) {
        numpy.call_method1("empty", (0, &dtype))?
    } else if pieces.len() == 1 {
        // Made in one piece of memory, which becomes that of the array.
        let bytes = OwnedBytes::new(py, pieces.pop().unwrap_or_default())?;
        numpy.call_method1("frombuffer", (bytes, &dtype))?
    } else {
        copied::<u8>(numpy, "uint8", &pieces)?.call_method1("view", (&dtype,))?
    };
    let array = flat.call_method1("reshape", (PyTuple::new(py, shape)?,))?;
    if !missing.is_empty() {
        array.set_item(PyList::new(py, missing)?, f64::NAN)?;
    }
    Ok(Some(array))
}

/// A new NumPy array with these numbers.
fn copied<'py, T: Element>(
    numpy: &Bound<'py, PyModule>,
    dtype: &str,
    pieces: &[Vec<T>],
) -> PyResult<Bound<'py, PyAny>> {
    let count: usize = pieces.iter().map(Vec::len).sum();
    let array = numpy.call_method1("zeros", (count, dtype))?;
    elements(&array, |mut places: &mut [T]| {
        for piece in pieces {
            let Some((own, rest)) = places.split_at_mut_checked(piece.len()) else { return };
            own.copy_from_slice(piece);
            places = rest;
        }
    })?;
    Ok(array)
}

/// `to_numpy(path)` for values that are neither all ints nor all floats.
fn of_any_type<'py>(
    of: &impl Queried<'py>,
    path: &Bound<'py, PyAny>,
    numpy: &Bound<'py, PyModule>,
    node: Node,
) -> PyResult<Bound<'py, PyAny>> {
    let columns = columns_of(of, Some(&[("".into(), node)]))?;
    let parts: Vec<ArrayRef> =
        columns.batches.iter().filter_map(|batch| batch.columns().first().cloned()).collect();
    let has_nulls = parts.iter().any(|part| part.null_count() > 0);
    let kind = columns.schema.fields().first().map(|field| field.data_type().clone());
    match kind {
        Some(DataType::Int64) if has_nulls => filled(numpy, "float64", &parts, |part, places| {
            floats::<Int64Type>(part, places, double);
        }),
        Some(DataType::Int64) => filled(numpy, "int64", &parts, whole::<Int64Type>),
        Some(DataType::Float64) if has_nulls => filled(numpy, "float64", &parts, |part, places| {
            floats::<Float64Type>(part, places, |value| value);
        }),
        Some(DataType::Float64) => filled(numpy, "float64", &parts, whole::<Float64Type>),
        Some(DataType::Boolean) if !has_nulls => {
            let bools = filled(numpy, "uint8", &parts, |part, places: &mut [u8]| {
                for (value, place) in part.as_boolean().values().iter().zip(places) {
                    *place = u8::from(value);
                }
            })?;
            bools.call_method1("view", ("bool",))
        }
        Some(DataType::Timestamp(..)) => times::<TimestampMicrosecondType>(numpy, &parts, "datetime64[us]"),
        Some(DataType::Duration(_)) => times::<DurationMicrosecondType>(numpy, &parts, "timedelta64[us]"),
        Some(DataType::Date32) => {
            let days = filled(numpy, "int64", &parts, |part, places: &mut [i64]| {
                for (value, place) in part.as_primitive::<Date32Type>().iter().zip(places) {
                    *place = value.map_or(NOT_A_TIME, i64::from);
                }
            })?;
            days.call_method1("view", ("datetime64[D]",))
        }
        _ => {
            let values = objects(of, path)?;
            let keywords = PyDict::new(of.py());
            keywords.set_item("dtype", "object")?;
            keywords.set_item("count", values.len())?;
            numpy.call_method("fromiter", (values,), Some(&keywords))
        }
    }
}

/// A new NumPy array, filled in turn from each part of the column.
fn filled<'py, T: Element>(
    numpy: &Bound<'py, PyModule>,
    dtype: &str,
    parts: &[ArrayRef],
    fill: impl Fn(&ArrayRef, &mut [T]),
) -> PyResult<Bound<'py, PyAny>> {
    let count: usize = parts.iter().map(Array::len).sum();
    let array = numpy.call_method1("zeros", (count, dtype))?;
    elements(&array, |mut places: &mut [T]| {
        for part in parts {
            let Some((own, rest)) = places.split_at_mut_checked(part.len()) else { return };
            fill(part, own);
            places = rest;
        }
    })?;
    Ok(array)
}

/// Copies numbers without missing ones.
fn whole<T: ArrowPrimitiveType>(part: &ArrayRef, places: &mut [T::Native]) {
    let values = part.as_primitive::<T>().values();
    if places.len() == values.len() {
        places.copy_from_slice(values);
    }
}

/// Copies numbers; a missing one becomes NaN.
fn floats<T: ArrowPrimitiveType>(part: &ArrayRef, places: &mut [f64], of: impl Fn(T::Native) -> f64) {
    for (value, place) in part.as_primitive::<T>().iter().zip(places) {
        *place = value.map_or(f64::NAN, &of);
    }
}

/// Copies times; a missing one becomes NaT.
fn times<'py, T: ArrowPrimitiveType<Native = i64>>(
    numpy: &Bound<'py, PyModule>,
    parts: &[ArrayRef],
    dtype: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let array = filled(numpy, "int64", parts, |part, places: &mut [i64]| {
        for (value, place) in part.as_primitive::<T>().iter().zip(places) {
            *place = value.unwrap_or(NOT_A_TIME);
        }
    })?;
    array.call_method1("view", (dtype,))
}
