//! Finds the number that a Decimal equals, or the two adjacent numbers that it lies between.
//!
//! Ints and floats have one order of codes, in which a Decimal has no place. With these neighbours,
//! a comparison with a Decimal becomes a comparison with ints or floats.

use std::cmp::Ordering;

use num_bigint::BigInt;
use num_traits::{One, ToPrimitive, Zero};
use pellucid_record::Value;
use pellucid_record::value::Double;

use crate::order::order;

/// The position of a Decimal among ints and floats.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Neighbours {
    /// It equals this number.
    Equal(Value),
    /// It lies between these two, and no other int or float does.
    Between(Value, Value),
}

/// From this value on, all floats are whole, and there are ints between them.
const WHOLE: f64 = 9_007_199_254_740_992.0;
/// The largest power of ten that is written out: no float has more digits, and few ints have.
const EXPONENT_MAX: i64 = 400;
/// Below this exponent, the only floats are 0 and the least one.
const EXPONENT_MIN: i64 = -1500;

/// The position of a Decimal, given as text. None for NaN, and for a Decimal with so many digits
/// that finding out takes too long.
pub(super) fn neighbours(text: &str) -> Option<Neighbours> {
    let float = |value: f64| Value::Float(Double(value));
    let decimal = Value::Decimal(text.to_owned());
    if let Some(infinite) = [f64::INFINITY, f64::NEG_INFINITY]
        .into_iter()
        .find(|value| order(&float(*value), &decimal) == Some(Ordering::Equal))
    {
        return Some(Neighbours::Equal(float(infinite)));
    }
    let (digits, exponent) = parts(text)?;
    if let Some(whole) = whole(&digits, exponent) {
        return Some(Neighbours::Equal(int(&whole)));
    }
    // The nearest float: Rust's parser rounds as Python does.
    let nearest = text.parse::<f64>().ok().map(|value| if value == 0.0 { 0.0 } else { value })?;
    if nearest.abs() >= WHOLE {
        let power = BigInt::from(10).pow(u32::try_from(-exponent).ok()?);
        let below = floor(&digits, &power);
        let above = &below + 1;
        return Some(Neighbours::Between(int(&below), int(&above)));
    }
    Some(match order(&float(nearest), &decimal)? {
        Ordering::Equal => Neighbours::Equal(float(nearest)),
        Ordering::Less => Neighbours::Between(float(nearest), float(nearest.next_up())),
        Ordering::Greater => Neighbours::Between(float(nearest.next_down()), float(nearest)),
    })
}

/// Splits a text into its digits with their sign, and the power of ten that they are multiplied by.
fn parts(text: &str) -> Option<(BigInt, i64)> {
    let (digits, exponent) = match text.split_once(['E', 'e']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
        None => (text, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let size = i64::try_from(fraction.len()).ok()?;
    let exponent = exponent.checked_sub(size)?;
    let is_short = i64::try_from(digits.len()).is_ok_and(|count| count <= EXPONENT_MAX);
    let is_in_reach = (EXPONENT_MIN..=EXPONENT_MAX).contains(&exponent);
    if !is_short || !is_in_reach {
        return None;
    }
    Some((BigInt::parse_bytes([whole, fraction].concat().as_bytes(), 10)?, exponent))
}

/// The int that the Decimal equals, if it equals one.
fn whole(digits: &BigInt, exponent: i64) -> Option<BigInt> {
    let power = BigInt::from(10).pow(u32::try_from(exponent.unsigned_abs()).ok()?);
    if exponent >= 0 || digits.is_zero() {
        return Some(digits * power);
    }
    (digits % &power).is_zero().then(|| digits / power)
}

/// The greatest int not above `digits / power`. The power is above 0.
fn floor(digits: &BigInt, power: &BigInt) -> BigInt {
    let cut = digits / power;
    if digits < &BigInt::zero() && !(digits % power).is_zero() { cut - BigInt::one() } else { cut }
}

fn int(value: &BigInt) -> Value {
    value.to_i64().map_or_else(|| Value::BigInt(value.to_signed_bytes_le()), Value::Int)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_number_between_those_that_a_decimal_lies_between() {
        let float = |value: f64| Value::Float(Double(value));
        let big = |text: &str| int(&text.parse().unwrap());
        for (text, expected) in [
            ("0", Neighbours::Equal(Value::Int(0))),
            ("-0.00", Neighbours::Equal(Value::Int(0))),
            ("1.50", Neighbours::Equal(float(1.5))),
            ("2.00", Neighbours::Equal(Value::Int(2))),
            ("1E+2", Neighbours::Equal(Value::Int(100))),
            ("1E+30", Neighbours::Equal(big("1000000000000000000000000000000"))),
            ("-Infinity", Neighbours::Equal(float(f64::NEG_INFINITY))),
            ("0.1", Neighbours::Between(float(0.1_f64.next_down()), float(0.1))),
            ("-0.1", Neighbours::Between(float(-0.1), float((-0.1_f64).next_up()))),
            ("1E-500", Neighbours::Between(float(0.0), float(5e-324))),
            ("-1E-500", Neighbours::Between(float(-5e-324), float(0.0))),
            ("9007199254740993.5", Neighbours::Between(Value::Int((1 << 53) + 1), Value::Int((1 << 53) + 2))),
            (
                "-9007199254740993.5",
                Neighbours::Between(Value::Int(-(1 << 53) - 2), Value::Int(-(1 << 53) - 1)),
            ),
            (
                "123456789012345678901234567890.5",
                Neighbours::Between(
                    big("123456789012345678901234567890"),
                    big("123456789012345678901234567891"),
                ),
            ),
        ] {
            assert_eq!(neighbours(text), Some(expected), "{text}");
        }
        for text in ["NaN", "1E+999999", "1E-999999"] {
            assert_eq!(neighbours(text), None, "{text}");
        }
    }

    #[test]
    fn what_a_decimal_lies_between_is_less_and_greater() {
        for number in 1..20_000_u64 {
            let bits = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
            let text = format!(
                "{}{}.{}E{:+}",
                if bits & 1 == 0 { "" } else { "-" },
                bits % 97,
                bits >> 32,
                number.cast_signed() % 41 - 20
            );
            let decimal = Value::Decimal(text.clone());
            match neighbours(&text).unwrap() {
                Neighbours::Equal(value) => {
                    assert_eq!(order(&value, &decimal), Some(Ordering::Equal), "{text}");
                }
                Neighbours::Between(below, above) => {
                    assert_eq!(order(&below, &decimal), Some(Ordering::Less), "{text}");
                    assert_eq!(order(&above, &decimal), Some(Ordering::Greater), "{text}");
                }
            }
        }
    }
}
