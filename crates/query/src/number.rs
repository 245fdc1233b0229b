//! Compares two numbers exactly, whatever their types.
//!
//! Decimals are compared by the digits of their text, which takes time in proportion to their
//! number. For such a comparison a float, or an int of few digits, is written as a Decimal with all
//! its digits. An int of very many digits is compared with the whole part of a Decimal in binary.

use std::cmp::Ordering;

use num_bigint::{BigInt, BigUint, Sign};
use pellucid_record::Value;

use crate::digits;

/// An int of more bits is not written as a Decimal, which takes quadratic time.
const WRITTEN_BITS_MAX: u64 = 4_096;

/// A number of any type, exactly.
pub(crate) enum Number<'a> {
    Int(BigInt),
    Float(f64),
    Decimal(Decimal<'a>),
    /// An infinity, which is above or below all other numbers.
    Infinite(Sign),
}

/// A finite Decimal, in the digits of its text.
pub(crate) struct Decimal<'a> {
    sign: Sign,
    whole: &'a [u8],
    fraction: &'a [u8],
    /// The first significant digit, and the end of these: positions in `whole` and `fraction`,
    /// counted as one text.
    first: usize,
    end: usize,
    /// The exponent of the first significant digit.
    adjusted: i64,
}

impl<'a> Number<'a> {
    /// The number of a value. None for NaN and for a value that is no number.
    pub(crate) fn of(value: &'a Value) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Number::Int(BigInt::from(*value)),
            Value::Int(value) => Number::Int(BigInt::from(*value)),
            Value::BigInt(bytes) => Number::Int(BigInt::from_signed_bytes_le(bytes)),
            Value::Float(value) if value.0.is_nan() => return None,
            Value::Float(value) if value.0.is_infinite() => {
                Number::Infinite(if value.0 > 0.0 { Sign::Plus } else { Sign::Minus })
            }
            Value::Float(value) => Number::Float(value.0),
            Value::Decimal(text) => return Self::of_decimal(text),
            _ => return None,
        })
    }

    fn of_decimal(text: &'a str) -> Option<Self> {
        let (sign, rest) = match text.strip_prefix('-') {
            Some(rest) => (Sign::Minus, rest),
            None => (Sign::Plus, text),
        };
        if rest.eq_ignore_ascii_case("infinity") || rest.eq_ignore_ascii_case("inf") {
            return Some(Number::Infinite(sign));
        }
        Decimal::parse(sign, rest).map(Number::Decimal)
    }

    fn sign(&self) -> Sign {
        match self {
            Number::Int(value) => value.sign(),
            Number::Decimal(value) => value.sign,
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

    /// The power of ten of its first digit, at most 1 off.
    fn magnitude(&self) -> i64 {
        match self {
            Number::Int(value) => {
                // The quotient is log10(2) within 2^-40, and numbers have fewer than 2^36 bits.
                let bits = i128::from(value.bits());
                i64::try_from(bits * 301_029_995_663_981 / 1_000_000_000_000_000).unwrap_or(i64::MAX)
            }
            Number::Decimal(value) => value.adjusted,
            Number::Float(value) => value.abs().log10().floor() as i64,
            Number::Infinite(_) => i64::MAX,
        }
    }

    pub(crate) fn cmp(&self, other: &Self) -> Ordering {
        let (sign, other_sign) = (self.sign(), other.sign());
        if sign != other_sign || sign == Sign::NoSign {
            return sign.cmp(&other_sign);
        }
        let order = match (self, other) {
            (Number::Int(one), Number::Int(other)) => return one.cmp(other),
            (Number::Infinite(_), Number::Infinite(_)) => Ordering::Equal,
            (Number::Decimal(one), Number::Decimal(other)) => one.cmp_size(other),
            _ => {
                // Numbers far apart are compared without their digits: an exponent may ask for any
                // number of these.
                let (here, there) = (self.magnitude(), other.magnitude());
                if here.abs_diff(there) > 4 { here.cmp(&there) } else { self.cmp_size(other) }
            }
        };
        if sign == Sign::Minus { order.reverse() } else { order }
    }

    /// Compares numbers of different types and about the same size, without their signs.
    fn cmp_size(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Number::Decimal(one), Number::Int(other)) => one.cmp_int(other.magnitude()),
            (Number::Int(one), Number::Decimal(other)) => other.cmp_int(one.magnitude()).reverse(),
            (Number::Decimal(one), other) => other.written(|other| one.cmp_size(other)),
            (one, Number::Decimal(other)) => one.written(|one| one.cmp_size(other)),
            (Number::Float(one), Number::Float(other)) => one.abs().total_cmp(&other.abs()),
            (Number::Int(one), Number::Float(other)) => cmp_sizes(one, *other),
            (Number::Float(one), Number::Int(other)) => cmp_sizes(other, *one).reverse(),
            _ => Ordering::Equal,
        }
    }

    /// Calls `of` with the number as an exact Decimal, without its sign.
    fn written<R>(&self, of: impl FnOnce(&Decimal<'_>) -> R) -> R {
        let text = match self {
            Number::Int(value) => value.magnitude().to_string(),
            // No float has more digits after the point.
            Number::Float(value) => format!("{:.1074}", value.abs()),
            Number::Decimal(_) | Number::Infinite(_) => String::new(),
        };
        of(&Decimal::parse(Sign::Plus, &text).unwrap_or(Decimal::ZERO))
    }
}

/// Compares an int with a float, without their signs.
fn cmp_sizes(int: &BigInt, float: f64) -> Ordering {
    let bits = float.to_bits();
    let exponent = i64::from((bits >> 52 & 0x7FF) as u16);
    let fraction = bits & ((1 << 52) - 1);
    let mantissa = BigUint::from(if exponent == 0 { fraction << 1 } else { fraction | 1 << 52 });
    let shift = exponent - 1075;
    if shift < 0 {
        (int.magnitude() << shift.unsigned_abs()).cmp(&mantissa)
    } else {
        int.magnitude().cmp(&(mantissa << shift.unsigned_abs()))
    }
}

impl<'a> Decimal<'a> {
    const ZERO: Decimal<'static> =
        Decimal { sign: Sign::NoSign, whole: &[], fraction: &[], first: 0, end: 0, adjusted: 0 };

    /// Parses a text without its sign.
    fn parse(sign: Sign, text: &'a str) -> Option<Self> {
        let (mantissa, exponent) = match text.split_once(['E', 'e']) {
            Some((mantissa, exponent)) => (mantissa, exponent.parse::<i64>().ok()?),
            None => (text, 0),
        };
        let (whole, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
        let (whole, fraction) = (whole.as_bytes(), fraction.as_bytes());
        let digits = || whole.iter().chain(fraction);
        if digits().next().is_none() || !digits().all(u8::is_ascii_digit) {
            return None;
        }
        let Some(first) = digits().position(|digit| *digit != b'0') else { return Some(Self::ZERO) };
        let zeros = digits().rev().take_while(|digit| **digit == b'0').count();
        let before = i64::try_from(whole.len()).ok()? - i64::try_from(first).ok()? - 1;
        Some(Self {
            sign,
            whole,
            fraction,
            first,
            end: whole.len() + fraction.len() - zeros,
            adjusted: exponent.checked_add(before)?,
        })
    }

    /// The significant digits.
    fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.iter().chain(self.fraction).copied().take(self.end).skip(self.first)
    }

    fn cmp_size(&self, other: &Decimal<'_>) -> Ordering {
        let is_zero = (self.sign == Sign::NoSign, other.sign == Sign::NoSign);
        match is_zero {
            (false, false) => {
                self.adjusted.cmp(&other.adjusted).then_with(|| self.digits().cmp(other.digits()))
            }
            (here, there) => there.cmp(&here),
        }
    }

    fn cmp_int(&self, int: &BigUint) -> Ordering {
        if int.bits() <= WRITTEN_BITS_MAX {
            let text = int.to_string();
            return self.cmp_size(&Decimal::parse(Sign::Plus, &text).unwrap_or(Decimal::ZERO));
        }
        let count = self.end - self.first;
        let before_point = usize::try_from(self.adjusted.saturating_add(1)).unwrap_or(0);
        let whole: Vec<u8> = self.digits().take(before_point).collect();
        let zeros = before_point.saturating_sub(count);
        let whole = digits::parse(&whole).unwrap_or_default() * digits::power(zeros as u64);
        whole.cmp(int).then(if count > before_point { Ordering::Greater } else { Ordering::Equal })
    }
}
