//! Are two values equal, and which comes first?
//!
//! As Python compares them, with one difference: where Python raises since types are unlike, nothing compares and the answer is
//! None. Numbers of all types are one family and compare exactly; True is 1. NaN equals nothing.

use std::cmp::Ordering;

use pellucid_record::Value;
use pellucid_record::key::KeyEncoder;
use pellucid_record::payload::bigint_magnitude;
use pellucid_record::value::OwnedZone;

/// Which of two values comes first; None where neither does.
///
/// ```
/// use pellucid_query::order::order;
/// use pellucid_record::Value;
/// use std::cmp::Ordering;
/// assert_eq!(order(&Value::Int(1), &Value::Decimal("1.5".into())), Some(Ordering::Less));
/// assert_eq!(order(&Value::Int(1), &Value::Str("1".into())), None);
/// ```
#[must_use]
pub fn order(one: &Value, other: &Value) -> Option<Ordering> {
    match (one, other) {
        // Fold does not take part in a comparison.
        (Value::Int(one), Value::Int(other)) | (Value::Datetime(one, _), Value::Datetime(other, _)) => {
            Some(one.cmp(other))
        }
        (Value::Float(one), Value::Float(other)) => one.0.partial_cmp(&other.0),
        (Value::Date(one), Value::Date(other)) => Some(one.cmp(other)),
        (
            Value::Aware { local: one, offset: one_offset, .. },
            Value::Aware { local: other, offset: other_offset, .. },
        ) => Some((one - one_offset).cmp(&(other - other_offset))),
        (Value::Time(one, _, one_zone), Value::Time(other, _, other_zone)) => {
            match (utc_offset(one_zone.as_ref()), utc_offset(other_zone.as_ref())) {
                (None, None) => Some(one.cmp(other)),
                (Some(one_offset), Some(other_offset)) => {
                    Some((one - one_offset).cmp(&(other - other_offset)))
                }
                _ => None,
            }
        }
        (Value::Timedelta(one), Value::Timedelta(other)) => {
            Some((one.days, one.seconds, one.micros).cmp(&(other.days, other.seconds, other.micros)))
        }
        (Value::Uuid(one), Value::Uuid(other)) => Some(one.cmp(other)),
        (Value::Tuple(one), Value::Tuple(other)) | (Value::List(one), Value::List(other)) => {
            match one.iter().zip(other).find(|(one, other)| !equal(one, other)) {
                Some((one, other)) => order(one, other),
                None => Some(one.len().cmp(&other.len())),
            }
        }
        _ => match (bytes(one), bytes(other)) {
            (Some(one), Some(other)) => (one.0 == other.0).then(|| one.1.cmp(other.1)),
            (None, None) => Some(number(one)?.cmp(&number(other)?)),
            _ => None,
        },
    }
}

/// Whether two values are equal.
///
/// ```
/// use pellucid_query::order::equal;
/// use pellucid_record::Value;
/// assert!(equal(&Value::Bool(true), &Value::Int(1)));
/// assert!(!equal(&Value::Tuple(vec![]), &Value::List(vec![])));
/// ```
#[must_use]
pub fn equal(one: &Value, other: &Value) -> bool {
    match (one, other) {
        (Value::None, Value::None) => true,
        (Value::List(one), Value::List(other)) | (Value::Tuple(one), Value::Tuple(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
        }
        (Value::Set(one) | Value::FrozenSet(one), Value::Set(other) | Value::FrozenSet(other)) => {
            one.len() == other.len() && one.iter().all(|one| other.iter().any(|other| equal(one, other)))
        }
        (Value::Dict(one), Value::Dict(other)) => {
            one.len() == other.len()
                && one.iter().all(|(key, value)| {
                    other.iter().any(|(other_key, other)| equal(key, other_key) && equal(value, other))
                })
        }
        (Value::Complex(real, imaginary), Value::Complex(other_real, other_imaginary)) => {
            real.0.partial_cmp(&other_real.0) == Some(Ordering::Equal)
                && imaginary.0.partial_cmp(&other_imaginary.0) == Some(Ordering::Equal)
        }
        (Value::Complex(real, imaginary), number) | (number, Value::Complex(real, imaginary)) => {
            imaginary.0 == 0.0 && order(&Value::Float(*real), number) == Some(Ordering::Equal)
        }
        (Value::Ndarray { .. } | Value::Registered(..) | Value::Pickle(_) | Value::Apart(_), _) => {
            one == other
        }
        _ => order(one, other) == Some(Ordering::Equal),
    }
}

/// An int against a float, exactly: converting the int to a double would round it.
#[must_use]
pub fn exact_cmp(int: i64, float: f64) -> Option<Ordering> {
    const TWO_TO_63: f64 = 9_223_372_036_854_775_808.0;
    if float.is_nan() {
        return None;
    }
    if float >= TWO_TO_63 {
        return Some(Ordering::Less);
    }
    if float < -TWO_TO_63 {
        return Some(Ordering::Greater);
    }
    let floor = float.floor();
    let order = int.cmp(&(floor as i64));
    Some(if order == Ordering::Equal && float > floor { Ordering::Less } else { order })
}

/// Text or bytes, and which of both.
fn bytes(value: &Value) -> Option<(bool, &[u8])> {
    match value {
        Value::Str(text) => Some((true, text.as_bytes())),
        Value::Surrogates(text) => Some((true, text)),
        Value::Bytes(bytes) | Value::Bytearray(bytes) => Some((false, bytes)),
        _ => None,
    }
}

/// The code of a number as a key, by which numbers of all types are ordered; None for NaN and for what is no number.
fn number(value: &Value) -> Option<Vec<u8>> {
    let mut encoder = KeyEncoder::new();
    let is_number = match value {
        Value::Bool(value) => {
            encoder.int(i64::from(*value));
            true
        }
        Value::Int(value) => {
            encoder.int(*value);
            true
        }
        Value::Float(value) => encoder.float(value.0).is_ok(),
        Value::BigInt(bytes) => {
            let (negative, magnitude) = bigint_magnitude(bytes);
            encoder.bigint(negative, &magnitude).is_ok()
        }
        Value::Decimal(text) => encoder.decimal(text).is_ok(),
        _ => false,
    };
    is_number.then(|| encoder.take().0)
}

/// What a time's zone says without a date, as Python's `time.utcoffset`.
fn utc_offset(zone: Option<&OwnedZone>) -> Option<i64> {
    match zone {
        Some(OwnedZone::Fixed(offset, _)) => Some(*offset),
        Some(OwnedZone::Key(_)) | None => None,
    }
}
