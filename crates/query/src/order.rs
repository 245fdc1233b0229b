//! Compares two values: whether they are equal, and which one comes first.
//!
//! The rules are Python's, with one difference: where Python raises for unlike types, the values do
//! not compare and the answer is None. Numbers of all types are one family and compare exactly;
//! True is 1. NaN equals nothing.

use std::cmp::Ordering;

use pellucid_record::Value;
use pellucid_record::value::{NoShapes, OwnedZone, encode_value};

use crate::number::Number;

/// Which of two values comes first; None if they do not compare.
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
        // A comparison ignores fold.
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
            (None, None) => Some(Number::of(one)?.cmp(&Number::of(other)?)),
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
            one.len() == other.len()
                && arranged(one, |one| one)
                    .iter()
                    .zip(arranged(other, |other| other))
                    .all(|(one, other)| equal(one, other))
        }
        (Value::Dict(one), Value::Dict(other)) => {
            one.len() == other.len()
                && arranged(one, |(key, _)| key)
                    .iter()
                    .zip(arranged(other, |(key, _)| key))
                    .all(|((key, value), (other_key, other))| equal(key, other_key) && equal(value, other))
        }
        (Value::Complex(real, imaginary), Value::Complex(other_real, other_imaginary)) => {
            real.0.partial_cmp(&other_real.0) == Some(Ordering::Equal)
                && imaginary.0.partial_cmp(&other_imaginary.0) == Some(Ordering::Equal)
        }
        (Value::Complex(real, imaginary), number) | (number, Value::Complex(real, imaginary)) => {
            imaginary.0 == 0.0 && order(&Value::Float(*real), number) == Some(Ordering::Equal)
        }
        (Value::Ndarray { .. } | Value::Registered(..) | Value::Pickle(_) | Value::Overflow(_), _) => {
            one == other
        }
        _ => order(one, other) == Some(Ordering::Equal),
    }
}

/// Elements of a set, or entries of a dict, sorted so that equal ones are adjacent. Two sets are
/// then compared in the time that sorting takes. Looking for each element of one in the other would
/// take the product of both sizes.
fn arranged<T>(elements: &[T], key: impl Fn(&T) -> &Value) -> Vec<&T> {
    let mut elements: Vec<&T> = elements.iter().collect();
    elements.sort_unstable_by(|one, other| arrange(key(one), key(other)));
    elements
}

/// Families of values. Values of different families are never equal.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Family {
    None,
    Number,
    Complex,
    Bytes,
    Text,
    Date,
    Datetime,
    Aware,
    Time,
    TimeAware,
    Timedelta,
    Uuid,
    Tuple,
    List,
    Set,
    Dict,
    Other,
    /// Equals nothing, not even itself.
    NotANumber,
}

fn family(value: &Value) -> Family {
    match value {
        Value::None => Family::None,
        Value::Complex(real, imaginary) if real.0.is_nan() || imaginary.0.is_nan() => Family::NotANumber,
        Value::Complex(_, imaginary) if imaginary.0 == 0.0 => Family::Number,
        Value::Complex(..) => Family::Complex,
        Value::Str(_) | Value::Surrogates(_) => Family::Text,
        Value::Bytes(_) | Value::Bytearray(_) => Family::Bytes,
        Value::Date(_) => Family::Date,
        Value::Datetime(..) => Family::Datetime,
        Value::Aware { .. } => Family::Aware,
        Value::Time(_, _, zone) if utc_offset(zone.as_ref()).is_none() => Family::Time,
        Value::Time(..) => Family::TimeAware,
        Value::Timedelta(_) => Family::Timedelta,
        Value::Uuid(_) => Family::Uuid,
        Value::Tuple(_) => Family::Tuple,
        Value::List(_) => Family::List,
        Value::Set(_) | Value::FrozenSet(_) => Family::Set,
        Value::Dict(_) => Family::Dict,
        Value::Ndarray { .. } | Value::Registered(..) | Value::Pickle(_) | Value::Overflow(_) => {
            Family::Other
        }
        number if Number::of(number).is_some() => Family::Number,
        _ => Family::NotANumber,
    }
}

/// A total order of all values, in which equal values have one place, and all NaN values as well.
fn arrange(one: &Value, other: &Value) -> Ordering {
    let (here, there) = (family(one), family(other));
    if here != there {
        return here.cmp(&there);
    }
    match (one, other) {
        (Value::Complex(real, _), number) if here == Family::Number => arrange(&Value::Float(*real), number),
        (number, Value::Complex(real, _)) if here == Family::Number => arrange(number, &Value::Float(*real)),
        (Value::Complex(real, imaginary), Value::Complex(other_real, other_imaginary)) => {
            let real = real.0.partial_cmp(&other_real.0).unwrap_or(Ordering::Equal);
            real.then(imaginary.0.partial_cmp(&other_imaginary.0).unwrap_or(Ordering::Equal))
        }
        (Value::Tuple(one), Value::Tuple(other)) | (Value::List(one), Value::List(other)) => {
            arrange_all(one, other)
        }
        (Value::Set(one) | Value::FrozenSet(one), Value::Set(other) | Value::FrozenSet(other)) => {
            let by_count = one.len().cmp(&other.len());
            by_count.then_with(|| arrange_all(arranged(one, |one| one), arranged(other, |other| other)))
        }
        (Value::Dict(one), Value::Dict(other)) => {
            let parts =
                |dict| arranged(dict, |(key, _)| key).into_iter().flat_map(|(key, value)| [key, value]);
            one.len().cmp(&other.len()).then_with(|| arrange_all(parts(one), parts(other)))
        }
        _ if here == Family::Other => {
            let bytes = |value: &Value| encode_value(value, &mut NoShapes).unwrap_or_default();
            bytes(one).cmp(&bytes(other))
        }
        _ => order(one, other).unwrap_or(Ordering::Equal),
    }
}

fn arrange_all<'a>(
    one: impl IntoIterator<Item = &'a Value>,
    other: impl IntoIterator<Item = &'a Value>,
) -> Ordering {
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    loop {
        let order = match (one.next(), other.next()) {
            (Some(one), Some(other)) => arrange(one, other),
            (one, other) => return one.is_some().cmp(&other.is_some()),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
}

/// Compares an int with a float exactly: converting the int to a float would round it.
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

/// The bytes of text or bytes, and whether it is text.
fn bytes(value: &Value) -> Option<(bool, &[u8])> {
    match value {
        Value::Str(text) => Some((true, text.as_bytes())),
        Value::Surrogates(text) => Some((true, text)),
        Value::Bytes(bytes) | Value::Bytearray(bytes) => Some((false, bytes)),
        _ => None,
    }
}

/// The offset of a time's zone without a date, as Python's `time.utcoffset`.
fn utc_offset(zone: Option<&OwnedZone>) -> Option<i64> {
    match zone {
        Some(OwnedZone::Fixed(offset, _)) => Some(*offset),
        Some(OwnedZone::Key(_)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use num_bigint::BigInt;
    use pellucid_record::value::Double;

    use super::*;

    fn decimal_of(text: &str) -> Value {
        Value::Decimal(text.into())
    }

    #[test]
    fn numbers_of_all_types_compare_exactly() {
        let big = |value: BigInt| Value::BigInt(value.to_signed_bytes_le());
        let ten_to_400 = big(BigInt::from(10).pow(400));
        let ascending = [
            decimal_of("-Infinity"),
            decimal_of("-1E+999999"),
            Value::Float(Double(-1e300)),
            Value::Int(-3),
            decimal_of("-2.5"),
            decimal_of("-1E-999999"),
            Value::Int(0),
            decimal_of("1E-999999"),
            Value::Float(Double(5e-324)),
            Value::Float(Double(0.1)),
            decimal_of("0.1000000000000000055511151231257827021181583404541015626"),
            Value::Int(1),
            decimal_of("1.5"),
            Value::Int(1 << 53),
            decimal_of("9007199254740992.5"),
            Value::Int((1 << 53) + 1),
            Value::Float(Double(f64::MAX)),
            ten_to_400,
            decimal_of("1.0001E+400"),
            Value::Float(Double(f64::INFINITY)),
        ];
        for (here, one) in ascending.iter().enumerate() {
            for (there, other) in ascending.iter().enumerate() {
                assert_eq!(order(one, other), Some(here.cmp(&there)), "{one:?} {other:?}");
            }
        }
        assert!(equal(&decimal_of("1.0"), &Value::Bool(true)));
        assert!(equal(&decimal_of("-0.0"), &Value::Float(Double(0.0))));
        assert!(equal(&decimal_of("Infinity"), &Value::Float(Double(f64::INFINITY))));
        assert_eq!(order(&decimal_of("NaN"), &Value::Int(1)), None);
    }

    /// The old way: each element is looked for among all others.
    fn same_set(one: &[Value], other: &[Value]) -> bool {
        one.len() == other.len() && one.iter().all(|one| other.iter().any(|other| equal(one, other)))
    }

    #[test]
    fn sets_and_dicts_are_equal_whatever_the_order_of_what_is_in_them() {
        let text = |text: &str| Value::Str(text.into());
        let values = vec![
            Value::None,
            Value::Int(1),
            Value::Int(-1),
            decimal_of("1.50"),
            Value::Float(Double(0.1)),
            Value::Float(Double(f64::INFINITY)),
            Value::Complex(Double(7.0), Double(0.0)),
            Value::Complex(Double(7.0), Double(1.0)),
            Value::BigInt(BigInt::from(10).pow(400).to_signed_bytes_le()),
            text("1"),
            Value::Bytes(b"1".into()),
            Value::Date(1),
            Value::Datetime(1, true),
            Value::Uuid([1; 16]),
            Value::Time(1, false, None),
            Value::Time(1, false, Some(OwnedZone::Fixed(0, String::new()))),
            Value::Tuple(vec![Value::Int(1), text("x")]),
            Value::Tuple(vec![Value::Int(1)]),
            Value::FrozenSet(vec![Value::Int(2), text("x")]),
            Value::FrozenSet(vec![]),
            Value::Pickle(vec![1]),
        ];
        let equal_of = |value: &Value| match value {
            Value::Int(1) => Value::Bool(true),
            Value::Int(value) => decimal_of(&format!("{value}.0")),
            Value::Decimal(_) => Value::Float(Double(1.5)),
            Value::Complex(real, Double(0.0)) => Value::Float(*real),
            Value::BigInt(_) => decimal_of("1E+400"),
            Value::Bytes(bytes) => Value::Bytearray(bytes.clone()),
            Value::Tuple(elements) if elements.len() == 1 => Value::Tuple(vec![Value::Float(Double(1.0))]),
            Value::FrozenSet(elements) => Value::Set(elements.iter().rev().cloned().collect()),
            value => value.clone(),
        };
        let equals: Vec<Value> = values.iter().rev().map(equal_of).collect();
        let dict = |keys: &[Value]| Value::Dict(keys.iter().map(|key| (key.clone(), Value::None)).collect());
        assert!(equal(&Value::Set(values.clone()), &Value::FrozenSet(equals.clone())));
        assert!(equal(&dict(&values), &dict(&equals)));
        let nan = || Value::Float(Double(f64::NAN));
        for without in 0..values.len() {
            for instead in [nan(), decimal_of("NaN"), text("other"), Value::Int(5), Value::Tuple(vec![])] {
                let mut others = values.clone();
                others[without] = instead;
                for (one, other) in [(&others, &equals), (&equals, &others), (&others, &others)] {
                    let expected = same_set(one, other);
                    assert_eq!(equal(&Value::Set(one.clone()), &Value::Set(other.clone())), expected);
                    assert_eq!(equal(&dict(one), &dict(other)), expected);
                }
            }
        }
        for one in values.iter().chain(&equals) {
            for other in values.iter().chain(&equals) {
                assert_eq!(arrange(one, other) == Ordering::Equal, equal(one, other), "{one:?} {other:?}");
                assert_eq!(arrange(one, other), arrange(other, one).reverse(), "{one:?} {other:?}");
            }
        }
    }

    #[test]
    fn numbers_of_very_many_digits_compare_in_time() {
        let count = 300_000;
        let digits = "7".repeat(count);
        let (one, more) = (decimal_of(&digits), decimal_of(&format!("{digits}.1")));
        let int = Value::BigInt(
            BigInt::from(crate::digits::parse(digits.as_bytes()).unwrap()).to_signed_bytes_le(),
        );
        assert_eq!(order(&one, &more), Some(Ordering::Less));
        assert_eq!(order(&one, &int), Some(Ordering::Equal));
        assert_eq!(order(&int, &more), Some(Ordering::Less));
        assert_eq!(order(&decimal_of(&format!("-{digits}.1")), &Value::Int(1)), Some(Ordering::Less));
        assert_eq!(
            order(&decimal_of(&format!("1.{digits}")), &Value::Float(Double(1.7))),
            Some(Ordering::Greater)
        );
        assert_eq!(order(&decimal_of(&format!("1{}", "0".repeat(count))), &int), Some(Ordering::Greater));
        assert_eq!(order(&decimal_of(&format!("7E+{}", count - 1)), &int), Some(Ordering::Less));
        let elements = |from: i64| Value::Set((0..100_000).map(|i| Value::Int(from + i)).collect());
        assert!(equal(&elements(1), &elements(1)));
        assert!(!equal(&elements(1), &elements(2)));
    }
}
