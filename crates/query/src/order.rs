//! Are two values equal, and which comes first?
//!
//! As Python compares them, with one difference: where Python raises since types are unlike, nothing compares and the answer is
//! None. Numbers of all types are one family and compare exactly; True is 1. NaN equals nothing.

use std::cmp::Ordering;

use num_bigint::{BigInt, Sign};
use pellucid_record::Value;
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

/// A number of any type, exactly.
enum Number {
    Int(BigInt),
    Float(f64),
    /// Digits times ten to the power of the exponent.
    Decimal(BigInt, i64),
    /// Above or below all others.
    Infinite(Sign),
}

impl Number {
    /// None for NaN and for what is no number.
    fn of(value: &Value) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Number::Int(BigInt::from(*value)),
            Value::Int(value) => Number::Int(BigInt::from(*value)),
            Value::BigInt(bytes) => Number::Int(BigInt::from_signed_bytes_le(bytes)),
            Value::Float(value) if value.0.is_nan() => return None,
            Value::Float(value) if value.0.is_infinite() => {
                Number::Infinite(if value.0 > 0.0 { Sign::Plus } else { Sign::Minus })
            }
            Value::Float(value) => Number::Float(value.0),
            Value::Decimal(text) => return decimal(text),
            _ => return None,
        })
    }

    fn sign(&self) -> Sign {
        match self {
            Number::Int(value) | Number::Decimal(value, _) => value.sign(),
            Number::Float(value) if *value == 0.0 => Sign::NoSign,
            Number::Float(value) => {
                if *value > 0.0 {
                    Sign::Plus
                } else {
                    Sign::Minus
                }
            }
            Number::Infinite(sign) => *sign,
        }
    }

    /// About the power of ten of its first digit: no more than 1 off.
    fn magnitude(&self) -> i64 {
        // log10(2), from above and below within 2^-40: bits of numbers are below 2^36.
        let of_bits = |bits: i64| (i128::from(bits) * 30_103 / 100_000) as i64;
        let bits_of = |value: &BigInt| i64::try_from(value.bits()).unwrap_or(i64::MAX);
        match self {
            Number::Int(value) => of_bits(bits_of(value)),
            Number::Decimal(value, exponent) => of_bits(bits_of(value)).saturating_add(*exponent),
            Number::Float(value) => value.abs().log10().floor() as i64,
            Number::Infinite(_) => i64::MAX,
        }
    }

    /// Numerator and denominator.
    fn ratio(&self) -> (BigInt, BigInt) {
        match self {
            Number::Int(value) => (value.clone(), BigInt::from(1)),
            Number::Decimal(value, exponent) => {
                let power = BigInt::from(10).pow(u32::try_from(exponent.unsigned_abs()).unwrap_or(u32::MAX));
                if *exponent < 0 { (value.clone(), power) } else { (value * power, BigInt::from(1)) }
            }
            Number::Float(value) => {
                let bits = value.to_bits();
                let exponent = i64::from((bits >> 52 & 0x7FF) as u16);
                let fraction = bits & ((1 << 52) - 1);
                let mantissa = BigInt::from(if exponent == 0 { fraction << 1 } else { fraction | 1 << 52 });
                let mantissa = if *value < 0.0 { -mantissa } else { mantissa };
                let shift = exponent - 1075;
                if shift < 0 {
                    (mantissa, BigInt::from(1) << shift.unsigned_abs())
                } else {
                    (mantissa << shift.unsigned_abs(), BigInt::from(1))
                }
            }
            Number::Infinite(_) => (BigInt::from(0), BigInt::from(1)),
        }
    }

    fn cmp(&self, other: &Self) -> Ordering {
        let (sign, other_sign) = (self.sign(), other.sign());
        if sign != other_sign || sign == Sign::NoSign {
            return sign.cmp(&other_sign);
        }
        // Far apart: no need for the digits, of which a Decimal's exponent may ask for any number.
        let (here, there) = (self.magnitude(), other.magnitude());
        if here.abs_diff(there) > 4 {
            let order = here.cmp(&there);
            return if sign == Sign::Minus { order.reverse() } else { order };
        }
        match (self, other) {
            (Number::Infinite(_), _) | (_, Number::Infinite(_)) => here.cmp(&there),
            (Number::Int(one), Number::Int(other)) => one.cmp(other),
            // The same power of ten off both, which leaves those of about the same size.
            (Number::Decimal(one, exponent), Number::Decimal(other, other_exponent)) => {
                let least = *exponent.min(other_exponent);
                Number::Decimal(one.clone(), exponent - least)
                    .ratio()
                    .0
                    .cmp(&Number::Decimal(other.clone(), other_exponent - least).ratio().0)
            }
            _ => {
                let ((one, below), (other, other_below)) = (self.ratio(), other.ratio());
                (one * other_below).cmp(&(other * below))
            }
        }
    }
}

/// The number of a Decimal's text; None for NaN.
fn decimal(text: &str) -> Option<Number> {
    let (sign, rest) = match text.strip_prefix('-') {
        Some(rest) => (Sign::Minus, rest),
        None => (Sign::Plus, text),
    };
    if rest.eq_ignore_ascii_case("infinity") || rest.eq_ignore_ascii_case("inf") {
        return Some(Number::Infinite(sign));
    }
    let (digits, exponent) = match rest.split_once(['E', 'e']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let all = [whole, fraction].concat();
    let value = BigInt::parse_bytes(all.as_bytes(), 10)?;
    let value = if sign == Sign::Minus { -value } else { value };
    Some(Number::Decimal(value, exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?))
}

/// What a time's zone says without a date, as Python's `time.utcoffset`.
fn utc_offset(zone: Option<&OwnedZone>) -> Option<i64> {
    match zone {
        Some(OwnedZone::Fixed(offset, _)) => Some(*offset),
        Some(OwnedZone::Key(_)) | None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use pellucid_record::value::Double;

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
}
