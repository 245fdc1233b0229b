//! The key bytes of a Decimal, which sort exactly for any precision.
//!
//! ```text
//! 20  class  [exponent  digits]
//! ```
//!
//! The class is 1 for -Infinity, 2 below zero, 3 zero, 4 above zero, 5 Infinity. The exponent is
//! that of the first significant digit ("adjusted"), in the code of an int; of two Decimals of one
//! sign the one with the greater exponent is further from zero. The digits follow without zeros at
//! either end, two in a byte, each as digit + 1; a nibble 0 ends them. So a number that ends
//! earlier sorts first, and equal numbers (1.1, 1.10) have the same bytes. Below zero all bytes
//! after the class are complemented.

use super::number::int_code;
use super::{KeyError, code};

/// Python has no Decimal with a greater exponent of the first digit, or a smaller one of the last.
const EXPONENT_MAX: i64 = 999_999_999_999_999_999;
const EXPONENT_LEAST: i64 = -1_999_999_999_999_999_997;

const INFINITY_NEGATIVE: u8 = 1;
const NEGATIVE: u8 = 2;
const ZERO: u8 = 3;
const POSITIVE: u8 = 4;
const INFINITY_POSITIVE: u8 = 5;

/// A Decimal's text, parsed as far as its order needs.
pub(super) struct Decimal<'a> {
    class: u8,
    /// The exponent of the first significant digit.
    adjusted: i64,
    whole: &'a [u8],
    fraction: &'a [u8],
    /// The first significant digit, and the end of the last: positions in `whole` and `fraction`
    /// together.
    first: usize,
    end: usize,
}

/// Whether this is a Decimal as `str()` writes it, including NaN and infinities. Python accepts
/// each such text.
#[must_use]
pub fn is_decimal_text(text: &str) -> bool {
    !matches!(Decimal::parse(text), Err(KeyError::BadDecimal))
}

impl<'a> Decimal<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, KeyError> {
        let (negative, unsigned) = match text.as_bytes() {
            [b'-', unsigned @ ..] => (true, unsigned),
            unsigned => (false, unsigned),
        };
        let special = Self { class: ZERO, adjusted: 0, whole: &[], fraction: &[], first: 0, end: 0 };
        match unsigned {
            b"Infinity" if negative => return Ok(Self { class: INFINITY_NEGATIVE, ..special }),
            b"Infinity" => return Ok(Self { class: INFINITY_POSITIVE, ..special }),
            [b'N', b'a', b'N', payload @ ..] | [b's', b'N', b'a', b'N', payload @ ..]
                if payload.iter().all(u8::is_ascii_digit) =>
            {
                return Err(KeyError::NotANumber);
            }
            _ => {}
        }

        let (whole, rest) = split_digits(unsigned);
        let (fraction, rest) = match rest {
            [b'.', rest @ ..] => {
                let (fraction, rest) = split_digits(rest);
                if fraction.is_empty() {
                    return Err(KeyError::BadDecimal);
                }
                (fraction, rest)
            }
            rest => (&[][..], rest),
        };
        // `str()` writes the exponent with "e" if the context says so.
        let exponent = match rest {
            [] => 0,
            [b'E' | b'e', sign @ (b'+' | b'-'), digits @ ..] => parse_exponent(*sign == b'-', digits)?,
            _ => return Err(KeyError::BadDecimal),
        };
        if whole.is_empty() {
            return Err(KeyError::BadDecimal);
        }

        let behind_point = i64::try_from(fraction.len()).map_err(|_| KeyError::BadDecimal)?;
        let last = exponent.checked_sub(behind_point).filter(|last| *last >= EXPONENT_LEAST);
        let last = last.ok_or(KeyError::BadDecimal)?;
        let count = whole.len() + fraction.len();
        let digits = || whole.iter().chain(fraction);
        let Some(first) = digits().position(|digit| *digit != b'0') else {
            return if last <= EXPONENT_MAX { Ok(special) } else { Err(KeyError::BadDecimal) };
        };
        let zeros_behind = digits().rev().take_while(|digit| **digit == b'0').count();
        let shift = i64::try_from(whole.len()).ok().zip(i64::try_from(first + 1).ok());
        let adjusted = shift.and_then(|(whole, first)| exponent.checked_add(whole - first));
        let adjusted = adjusted.filter(|adjusted| *adjusted <= EXPONENT_MAX);
        Ok(Self {
            class: if negative { NEGATIVE } else { POSITIVE },
            adjusted: adjusted.ok_or(KeyError::BadDecimal)?,
            whole,
            fraction,
            first,
            end: count - zeros_behind,
        })
    }

    /// The significant digits, as ASCII.
    pub(super) fn digits(&self) -> impl Iterator<Item = u8> {
        self.whole.iter().chain(self.fraction).copied().take(self.end).skip(self.first)
    }

    /// The sign with infinity: -2, -1, 0, 1, 2.
    pub(super) fn sign(&self) -> i8 {
        self.class.cast_signed() - ZERO.cast_signed()
    }

    pub(super) fn adjusted(&self) -> i64 {
        self.adjusted
    }

    /// Calls `emit` with each byte of the key, until it returns false.
    pub(super) fn emit(&self, mut emit: impl FnMut(u8) -> bool) -> bool {
        if !emit(code::DECIMAL) || !emit(self.class) {
            return false;
        }
        let flip = match self.class {
            NEGATIVE => 0xFF,
            POSITIVE => 0x00,
            _ => return true,
        };
        let (exponent, size) = int_code(self.adjusted);
        if !exponent.iter().take(size).all(|byte| emit(byte ^ flip)) {
            return false;
        }
        let mut digits = self.digits().map(|digit| digit - b'0' + 1);
        loop {
            let high = digits.next().unwrap_or(0);
            let low = digits.next().unwrap_or(0);
            if !emit((high << 4 | low) ^ flip) {
                return false;
            }
            if low == 0 {
                return true;
            }
        }
    }
}

fn split_digits(text: &[u8]) -> (&[u8], &[u8]) {
    let count = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    text.split_at_checked(count).unwrap_or((text, &[]))
}

fn parse_exponent(negative: bool, digits: &[u8]) -> Result<i64, KeyError> {
    if digits.is_empty() {
        return Err(KeyError::BadDecimal);
    }
    let mut exponent = 0i64;
    for digit in digits {
        if !digit.is_ascii_digit() {
            return Err(KeyError::BadDecimal);
        }
        let next = exponent.checked_mul(10).and_then(|tens| tens.checked_add(i64::from(digit - b'0')));
        exponent = next.ok_or(KeyError::BadDecimal)?;
    }
    Ok(if negative { -exponent } else { exponent })
}
