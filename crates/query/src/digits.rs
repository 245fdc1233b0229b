//! Reads and counts the digits of very long numbers.
//!
//! It takes less than quadratic time, unlike the methods of `num-bigint`: it splits the digits in
//! halves and joins them with that crate's multiplication.

use num_bigint::BigUint;
use num_traits::ToPrimitive;

/// Digits that a u64 holds.
const PART: usize = 19;
/// Numbers with fewer digits are read at once.
const SHORT: usize = 8 * PART;

/// The number of some ASCII digits. None if there is no digit, or any other character.
pub(crate) fn parse(digits: &[u8]) -> Option<BigUint> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    if digits.len() <= SHORT {
        return BigUint::parse_bytes(digits, 10);
    }
    // The least significant part first.
    let mut parts: Vec<BigUint> = digits
        .rchunks(PART)
        .map(|part| part.iter().fold(0, |number: u64, digit| number * 10 + u64::from(digit - b'0')).into())
        .collect();
    let mut base = power(PART as u64);
    while parts.len() > 1 {
        parts = parts
            .chunks(2)
            .map(|pair| match pair {
                [low, high] => high * &base + low,
                rest => rest.first().cloned().unwrap_or_default(),
            })
            .collect();
        if parts.len() > 1 {
            base = &base * &base;
        }
    }
    parts.pop()
}

/// Ten to the power of an exponent. The digits must fit into memory.
pub(crate) fn power(exponent: u64) -> BigUint {
    BigUint::from(10u8).pow(u32::try_from(exponent).unwrap_or(u32::MAX))
}

/// The logarithm of 2 in base 10, with 64 bits after the point.
const LOG10_2: u128 = 0x4D10_4D42_7DE7_FBCC;

/// The number of digits of a number; 0 has one.
pub(crate) fn count(number: &BigUint) -> i64 {
    if let Some(number) = number.to_u128() {
        return i64::from(number.checked_ilog10().unwrap_or(0)) + 1;
    }
    // The bits give the number of digits, or one more or fewer if the estimate was rounded.
    let estimate = ((u128::from(number.bits() - 1) * LOG10_2) >> 64) as u64;
    let power = power(estimate);
    let digits = if *number < power {
        estimate
    } else if *number < power * 10u8 {
        estimate + 1
    } else {
        estimate + 2
    };
    i64::try_from(digits).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_any_length_are_read_and_counted() {
        for length in (1..400).chain([1_000, 5_000, 20_001]) {
            for digit in ["1", "9", "7"] {
                let text = digit.repeat(length);
                let number = parse(text.as_bytes()).unwrap();
                assert_eq!(number.to_string(), text);
                assert_eq!(count(&number), i64::try_from(length).unwrap(), "{digit} {length}");
            }
            let power = power(length as u64);
            assert_eq!(count(&power), i64::try_from(length).unwrap() + 1);
            assert_eq!(count(&(power - 1u8)), i64::try_from(length).unwrap());
        }
        assert_eq!(parse(b"00000000000000000000000000000007").unwrap(), BigUint::from(7u8));
        assert_eq!(count(&BigUint::ZERO), 1);
        for text in ["", "1_0", "+1", "-1", "1.0", " 1"] {
            assert_eq!(parse(text.as_bytes()), None);
        }
    }
}
