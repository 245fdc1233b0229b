//! Which list is a NumPy array?
//!
//! Of the number types that a column can have, in C order; all else is for NumPy.

use pellucid_record::Value;
use pellucid_record::value::Double;

use super::decimal::big_int_payload;

/// The nested lists, or the scalar, that an array is; None for what else NumPy has.
pub fn list_of(value: &Value) -> Option<Value> {
    let Value::Ndarray { dtype, shape, flags, data } = value else { return None };
    let Value::Str(dtype) = &**dtype else { return None };
    let is_fortran = flags & 1 != 0;
    if is_fortran && shape.len() > 1 {
        return None;
    }
    let size: usize = dtype.get(2..)?.parse().ok()?;
    if size == 0 {
        return None;
    }
    let elements = data.chunks(size).map(|element| number(dtype, element)).collect::<Option<Vec<_>>>()?;
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

/// One element. Of which type and how many bytes, the dtype says.
fn number(dtype: &str, bytes: &[u8]) -> Option<Value> {
    let int = |value: i64| Some(Value::Int(value));
    match dtype {
        "|b1" => Some(Value::Bool(*bytes.first()? != 0)),
        "|i1" => int(i64::from(bytes.first()?.cast_signed())),
        "|u1" => int(i64::from(*bytes.first()?)),
        "<i2" => int(i64::from(i16::from_le_bytes(bytes.try_into().ok()?))),
        "<u2" => int(i64::from(u16::from_le_bytes(bytes.try_into().ok()?))),
        "<i4" => int(i64::from(i32::from_le_bytes(bytes.try_into().ok()?))),
        "<u4" => int(i64::from(u32::from_le_bytes(bytes.try_into().ok()?))),
        "<i8" => int(i64::from_le_bytes(bytes.try_into().ok()?)),
        "<u8" => {
            let value = u64::from_le_bytes(bytes.try_into().ok()?);
            Some(
                i64::try_from(value)
                    .map_or_else(|_| Value::BigInt(big_int_payload(&value.into())), Value::Int),
            )
        }
        "<f4" => Some(Value::Float(Double(f64::from(f32::from_le_bytes(bytes.try_into().ok()?))))),
        "<f8" => Some(Value::Float(Double(f64::from_le_bytes(bytes.try_into().ok()?)))),
        _ => None,
    }
}
