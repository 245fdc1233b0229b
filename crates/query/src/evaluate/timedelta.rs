//! Multiplies and divides timedeltas.
//!
//! Results are those of Python's `datetime`: they are rounded to whole microseconds, halves to
//! even, and a float counts with its exact value.

use num_bigint::BigInt;
use num_traits::{Signed, ToPrimitive, Zero};

/// A numerator and a denominator. The denominator may be negative.
pub(super) type Fraction = (BigInt, BigInt);

/// The exact fraction of a float; None if it is not finite.
pub(super) fn fraction(value: f64) -> Option<Fraction> {
    const EXPONENT_BIAS: i32 = 1075;
    const MANTISSA_BITS: u32 = 52;
    if !value.is_finite() {
        return None;
    }
    let bits = value.to_bits();
    let mantissa = (bits & ((1 << MANTISSA_BITS) - 1)).cast_signed();
    let exponent = (bits >> MANTISSA_BITS & 0x7FF) as i32;
    let (mantissa, exponent) = match exponent {
        0 => (mantissa, 1 - EXPONENT_BIAS),
        _ => (mantissa | 1 << MANTISSA_BITS, exponent - EXPONENT_BIAS),
    };
    let mantissa = BigInt::from(if value.is_sign_negative() { -mantissa } else { mantissa });
    let power = BigInt::from(1) << exponent.unsigned_abs();
    Some(if exponent < 0 { (mantissa, power) } else { (mantissa * power, BigInt::from(1)) })
}

/// A timedelta in microseconds times a fraction; None if the denominator is 0 or the result is out
/// of range.
pub(super) fn times(micros: i128, (numerator, denominator): &Fraction) -> Option<i128> {
    if denominator.is_zero() {
        return None;
    }
    let (all, parts) = (numerator * micros, denominator.abs());
    let all = if denominator.is_negative() { -all } else { all };
    let (whole, rest) = (&all / &parts, (&all % &parts).abs());
    let is_odd = whole.bit(0);
    let is_rounded = match (rest * 2u8).cmp(&parts) {
        std::cmp::Ordering::Less => false,
        std::cmp::Ordering::Equal => is_odd,
        std::cmp::Ordering::Greater => true,
    };
    let away = i128::from(is_rounded) * if all.is_negative() { -1 } else { 1 };
    (whole + away).to_i128()
}

/// The remainder of two timedeltas, with the sign of the divisor; None if the divisor is 0.
pub(super) fn remainder(one: i128, other: i128) -> Option<i128> {
    let rest = one.checked_rem(other)?;
    Some(if rest != 0 && (rest < 0) != (other < 0) { rest + other } else { rest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_half_goes_to_the_even_neighbour() {
        let half = |count: i64| (BigInt::from(count), BigInt::from(2));
        let halves = [(1, 0), (3, 2), (5, 2), (-1, 0), (-3, -2), (-5, -2), (4, 2)];
        for (count, expected) in halves {
            assert_eq!(times(1, &half(count)), Some(expected), "{count} halves");
            assert_eq!(times(-1, &(BigInt::from(count), BigInt::from(-2))), Some(expected));
        }
        assert_eq!(times(1, &(BigInt::from(1), BigInt::from(0))), None);
        assert_eq!(times(i128::MAX, &half(8)), None);
    }

    #[test]
    fn a_float_is_the_fraction_that_it_is_exactly() {
        for (value, numerator, denominator) in [(0.75, 3, 4), (-2.5, -5, 2), (3.0, 3, 1), (0.0, 0, 1)] {
            let (above, below) = fraction(value).unwrap();
            assert_eq!(above * denominator, below * numerator, "{value}");
        }
        let (above, below) = fraction(f64::from_bits(1)).unwrap();
        assert_eq!((above, below), (BigInt::from(1), BigInt::from(1) << 1074));
        let (above, below) = fraction(f64::MAX).unwrap();
        assert_eq!((above, below), (BigInt::from((1_u64 << 53) - 1) << 971, BigInt::from(1)));
        assert_eq!(fraction(f64::NAN), None);
        assert_eq!(fraction(f64::INFINITY), None);
    }
}
