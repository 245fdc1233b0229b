//! Computes with Decimals as Python does.
//!
//! The rules are those of Python's `decimal` under its default context, which follows the General
//! Decimal Arithmetic Specification: 28 digits, a half is rounded to the even neighbour, and the
//! exponent of the first digit is from -999,999 to 999,999. Where Python raises
//! (`InvalidOperation`, `DivisionByZero`, `Overflow`), the result is None. Results equal Python's
//! to the last zero: `1.30 + 1` is `2.30`.

use num_bigint::{BigInt, BigUint, Sign};
use num_traits::{One, Zero};

use crate::digits;

const DIGIT_COUNT: i64 = 28;
/// The largest exponent of the first digit.
const EXPONENT_MAX: i64 = 999_999;
/// The exponent of the last digit of the numbers nearest to 0.
const EXPONENT_LEAST: i64 = -999_999 - (DIGIT_COUNT - 1);
/// Beyond any exponent that Python takes, and far below the limit of an i64.
const EXPONENT_WRITTEN_MAX: u64 = 2_000_000_000_000_000_000;

/// A Decimal that is no signaling NaN, as nothing can be computed with that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decimal {
    is_negative: bool,
    kind: Kind,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Kind {
    /// Digits, times ten to the power of the exponent.
    Finite(BigUint, i64),
    Infinite,
    /// NaN, with the digits that follow it.
    Nan(String),
}

use Kind::{Finite, Infinite, Nan};

impl Decimal {
    /// The Decimal of a text as `str()` writes it; None for a signaling NaN.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (is_negative, rest) = match text.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        if rest == "Infinity" {
            return Some(Self { is_negative, kind: Infinite });
        }
        if let Some(digits) = rest.strip_prefix("NaN") {
            return Some(Self { is_negative, kind: Nan(digits.to_owned()) });
        }
        let (digits, exponent) = match rest.split_once(['E', 'e']) {
            Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
            None => (rest, 0),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let digits = digits::parse([whole, fraction].concat().as_bytes())?;
        let exponent = exponent.checked_sub(i64::try_from(fraction.len()).ok()?)?;
        let is_pythons = exponent.unsigned_abs() <= EXPONENT_WRITTEN_MAX;
        is_pythons.then_some(Self { is_negative, kind: Finite(digits, exponent) })
    }

    /// The Decimal of an int, with all its digits.
    #[must_use]
    pub fn of_int(value: &BigInt) -> Self {
        Self { is_negative: value.sign() == Sign::Minus, kind: Finite(value.magnitude().clone(), 0) }
    }

    /// The text that Python's `str()` writes.
    #[must_use]
    pub fn text(&self) -> String {
        let sign = if self.is_negative { "-" } else { "" };
        match &self.kind {
            Finite(digits, exponent) => written(&format!("{sign}{digits}"), -exponent),
            Infinite => format!("{sign}Infinity"),
            Nan(digits) => format!("{sign}NaN{digits}"),
        }
    }

    /// The sum.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Option<Self> {
        match (&self.kind, &other.kind) {
            (Nan(_), _) => Some(self.as_result()),
            (_, Nan(_)) => Some(other.as_result()),
            (Infinite, Infinite) => (self.is_negative == other.is_negative).then(|| self.clone()),
            (Infinite, _) => Some(self.clone()),
            (_, Infinite) => Some(other.clone()),
            (Finite(digits, exponent), Finite(other_digits, other_exponent)) => {
                let one = (self.is_negative, digits, *exponent);
                finite_sum(one, (other.is_negative, other_digits, *other_exponent))
            }
        }
    }

    /// The difference.
    #[must_use]
    pub fn minus(&self, other: &Self) -> Option<Self> {
        match other.kind {
            Nan(_) => self.plus(other),
            _ => self.plus(&other.with_sign(!other.is_negative)),
        }
    }

    /// The product.
    #[must_use]
    pub fn times(&self, other: &Self) -> Option<Self> {
        let is_negative = self.is_negative != other.is_negative;
        match (&self.kind, &other.kind) {
            (Nan(_), _) => Some(self.as_result()),
            (_, Nan(_)) => Some(other.as_result()),
            (Infinite, Finite(digits, _)) | (Finite(digits, _), Infinite) if digits.is_zero() => None,
            (Infinite, _) | (_, Infinite) => Some(Self { is_negative, kind: Infinite }),
            (Finite(digits, exponent), Finite(other_digits, other_exponent)) => {
                rounded(is_negative, digits * other_digits, exponent + other_exponent)
            }
        }
    }

    /// The quotient.
    #[must_use]
    pub fn over(&self, other: &Self) -> Option<Self> {
        let is_negative = self.is_negative != other.is_negative;
        match (&self.kind, &other.kind) {
            (Nan(_), _) => Some(self.as_result()),
            (_, Nan(_)) => Some(other.as_result()),
            (Infinite, Infinite) => None,
            (Infinite, _) => Some(Self { is_negative, kind: Infinite }),
            (_, Infinite) => rounded(is_negative, BigUint::ZERO, EXPONENT_LEAST),
            (Finite(_, _), Finite(other_digits, _)) if other_digits.is_zero() => None,
            (Finite(digits, exponent), Finite(other_digits, other_exponent)) => {
                let ideal = exponent - other_exponent;
                if digits.is_zero() {
                    return rounded(is_negative, BigUint::ZERO, ideal);
                }
                // One digit more than the result has, or two.
                let shift = digits::count(other_digits) - digits::count(digits) + DIGIT_COUNT + 1;
                let (whole, part) = (scaled(digits, shift), scaled(other_digits, -shift));
                let (mut quotient, rest) = (&whole / &part, &whole % &part);
                let mut exponent = ideal - shift;
                if rest.is_zero() {
                    while exponent < ideal && (&quotient % 10u8).is_zero() {
                        quotient /= 10u8;
                        exponent += 1;
                    }
                } else if (&quotient % 5u8).is_zero() {
                    // There is a remainder: digits that look like exactly a half, or like an exact
                    // result, stand for a little more.
                    quotient += 1u8;
                }
                rounded(is_negative, quotient, exponent)
            }
        }
    }

    /// The remainder, which has the sign of the dividend.
    #[must_use]
    pub fn modulo(&self, other: &Self) -> Option<Self> {
        match (&self.kind, &other.kind) {
            (Nan(_), _) => Some(self.as_result()),
            (_, Nan(_)) => Some(other.as_result()),
            (Infinite, _) => None,
            (Finite(digits, exponent), Infinite) => rounded(self.is_negative, digits.clone(), *exponent),
            (Finite(digits, exponent), Finite(other_digits, other_exponent)) => {
                let ideal = *exponent.min(other_exponent);
                if other_digits.is_zero() {
                    return None;
                }
                if digits.is_zero() {
                    return rounded(self.is_negative, BigUint::ZERO, ideal);
                }
                let distance = (exponent + digits::count(digits))
                    .checked_sub(other_exponent + digits::count(other_digits))?;
                // The whole quotient must not have more digits than a Decimal.
                if distance > DIGIT_COUNT {
                    return None;
                }
                let digits = scaled(digits, exponent - ideal);
                if distance <= -2 {
                    return rounded(self.is_negative, digits, ideal);
                }
                let other_digits = scaled(other_digits, other_exponent - ideal);
                if digits::count(&(&digits / &other_digits)) > DIGIT_COUNT {
                    return None;
                }
                rounded(self.is_negative, digits % other_digits, ideal)
            }
        }
    }

    /// The number with the other sign; 0 then has none.
    #[must_use]
    pub fn negated(&self) -> Option<Self> {
        match &self.kind {
            Nan(_) => Some(self.as_result()),
            Infinite => Some(self.with_sign(!self.is_negative)),
            Finite(digits, exponent) => {
                rounded(!self.is_negative && !digits.is_zero(), digits.clone(), *exponent)
            }
        }
    }

    /// The number without its sign.
    #[must_use]
    pub fn absolute(&self) -> Option<Self> {
        match &self.kind {
            Nan(_) => Some(self.as_result()),
            Infinite => Some(self.with_sign(false)),
            Finite(digits, exponent) => rounded(false, digits.clone(), *exponent),
        }
    }

    fn with_sign(&self, is_negative: bool) -> Self {
        Self { is_negative, kind: self.kind.clone() }
    }

    /// A NaN with only its last digits, as many as a result may have.
    fn as_result(&self) -> Self {
        let Nan(digits) = &self.kind else { return self.clone() };
        let cut = digits.len().saturating_sub(DIGIT_COUNT as usize);
        let digits = digits.get(cut..).unwrap_or_default().trim_start_matches('0');
        Self { is_negative: self.is_negative, kind: Nan(digits.to_owned()) }
    }
}

/// A number's sign, digits and exponent.
type Number<'a> = (bool, &'a BigUint, i64);

fn finite_sum(one: Number<'_>, other: Number<'_>) -> Option<Decimal> {
    let (upper, lower) = if one.2 < other.2 { (other, one) } else { (one, other) };
    if upper.1.is_zero() || lower.1.is_zero() {
        let number = if upper.1.is_zero() { lower } else { upper };
        if number.1.is_zero() {
            return rounded(one.0 && other.0, BigUint::ZERO, lower.2);
        }
        let exponent = lower.2.max(number.2 - DIGIT_COUNT - 1);
        return rounded(number.0, scaled(number.1, number.2 - exponent), exponent);
    }
    // A number so small that it matters only for rounding is replaced by a 1 after the digits.
    let last = upper.2 + (digits::count(upper.1) - DIGIT_COUNT - 2).min(-1);
    let small = BigUint::one();
    let lower = if lower.2 + digits::count(lower.1) - 1 < last { (lower.0, &small, last) } else { lower };
    let signed = |number: Number<'_>| {
        let digits = scaled(number.1, number.2 - lower.2);
        BigInt::from_biguint(if number.0 { Sign::Minus } else { Sign::Plus }, digits)
    };
    let (sign, digits) = (signed(upper) + signed(lower)).into_parts();
    rounded(sign == Sign::Minus, digits, lower.2)
}

/// The number, rounded to the digits of a result. None if it is too large.
fn rounded(is_negative: bool, digits: BigUint, exponent: i64) -> Option<Decimal> {
    if digits.is_zero() {
        let exponent = exponent.clamp(EXPONENT_LEAST, EXPONENT_MAX);
        return Some(Decimal { is_negative, kind: Finite(digits, exponent) });
    }
    let count = digits::count(&digits);
    if exponent + count - 1 > EXPONENT_MAX {
        return None;
    }
    let cut = (count - DIGIT_COUNT).max(EXPONENT_LEAST - exponent);
    if cut <= 0 {
        return Some(Decimal { is_negative, kind: Finite(digits, exponent) });
    }
    let (mut kept, mut exponent) = (BigUint::ZERO, exponent + cut);
    if cut <= count {
        let unit = scaled(&BigUint::one(), cut);
        kept = &digits / &unit;
        let twice = (digits % &unit) * 2u8;
        if twice > unit || twice == unit && kept.bit(0) {
            kept += 1u8;
        }
    }
    // Rounding turned 99...9 into 100...0.
    if digits::count(&kept) > DIGIT_COUNT {
        kept /= 10u8;
        exponent += 1;
    }
    let fits = exponent + digits::count(&kept) - 1 <= EXPONENT_MAX;
    fits.then_some(Decimal { is_negative, kind: Finite(kept, exponent) })
}

/// The digits times ten to the power of `exponent`, if that is above 0.
fn scaled(digits: &BigUint, exponent: i64) -> BigUint {
    match u32::try_from(exponent) {
        Ok(exponent) => digits * digits::power(u64::from(exponent)),
        Err(_) => digits.clone(),
    }
}

/// The text of a Decimal as Python writes it. `digits` may begin with a sign; the value is `digits`
/// times 10 to the power of `-scale`.
pub(crate) fn written(digits: &str, scale: i64) -> String {
    let (sign, digits) = match digits.strip_prefix('-') {
        Some(digits) => ("-", digits),
        None => ("", digits),
    };
    let digits = digits.trim_start_matches('0');
    let digits = if digits.is_empty() { "0" } else { digits };
    let count = i64::try_from(digits.len()).unwrap_or(i64::MAX);
    let point = count - scale;
    if scale == 0 {
        return format!("{sign}{digits}");
    }
    if scale > 0 && point > -6 {
        if point <= 0 {
            return format!("{sign}0.{}{digits}", "0".repeat(point.unsigned_abs() as usize));
        }
        let (whole, fraction) =
            digits.split_at_checked(point.unsigned_abs() as usize).unwrap_or((digits, ""));
        return format!("{sign}{whole}.{fraction}");
    }
    let (first, rest) = digits.split_at_checked(1).unwrap_or((digits, ""));
    let dot = if rest.is_empty() { "" } else { "." };
    format!("{sign}{first}{dot}{rest}E{:+}", point - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_written_as_python_does() {
        for (digits, scale, expected) in [
            ("150", 2, "1.50"),
            ("-5", 3, "-0.005"),
            ("1", 7, "1E-7"),
            ("12", 8, "1.2E-7"),
            ("1", 6, "0.000001"),
            ("0", 2, "0.00"),
            ("0", 8, "0E-8"),
            ("15", -3, "1.5E+4"),
            ("7", 0, "7"),
        ] {
            assert_eq!(written(digits, scale), expected);
        }
    }
}
