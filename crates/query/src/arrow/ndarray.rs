//! Converts stored NumPy arrays into lists.
//!
//! This covers arrays of numbers in C order. All other arrays are left to NumPy. A zero-dimensional
//! array becomes its one value.

use pellucid_record::Value;

use crate::numpy::element;

/// The nested lists of an array, or its value if it has no dimensions; None for arrays that only
/// NumPy can read.
pub fn list_of(value: &Value) -> Option<Value> {
    let Value::Ndarray { dtype, shape, flags, data } = value else { return None };
    let Value::Str(dtype) = &**dtype else { return None };
    if shape.is_empty() {
        return element(dtype, data);
    }
    let (is_fortran, is_number) =
        (flags & 1 != 0, matches!(dtype.as_bytes().get(1), Some(b'b' | b'i' | b'u' | b'f')));
    if is_fortran && shape.len() > 1 || !is_number {
        return None;
    }
    let size: usize = dtype.get(2..)?.parse().ok()?;
    if size == 0 {
        return None;
    }
    let elements = data.chunks(size).map(|bytes| element(dtype, bytes)).collect::<Option<Vec<_>>>()?;
    let mut elements = elements.into_iter();
    nested(shape, &mut elements)
}

fn nested(shape: &[i64], elements: &mut impl Iterator<Item = Value>) -> Option<Value> {
    match shape.split_first() {
        None => elements.next(),
        Some((count, rest)) => {
            let parts: Option<Vec<_>> = (0..*count).map(|_| nested(rest, elements)).collect();
            Some(Value::List(parts?))
        }
    }
}
