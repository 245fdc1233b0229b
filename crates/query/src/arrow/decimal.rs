//! Converts decimals between Python's form and Arrow's.
//!
//! In Arrow, all values of a column share one scale. In Python, each value has its own scale. No
//! conversion in either direction loses a digit.

use pellucid_record::layout::tag;
use pellucid_record::payload;

use super::kind::{DECIMAL_DIGIT_COUNT_MAX, Type};
use super::text;

/// A number stored as an int and a power of ten: `digits` times 10 to the power of `-scale`.
#[derive(Clone, Copy, Default)]
pub struct Unscaled {
    /// All digits of the number, as an int.
    pub digits: i128,
    /// How many of the digits stand after the decimal point.
    pub scale: u8,
}

impl Unscaled {
    /// The column type for this number.
    pub fn kind(self) -> Type {
        let digits = self.digits.unsigned_abs().checked_ilog10().map_or(0, |log| log as u8 + 1);
        Type::Decimal { whole: digits.saturating_sub(self.scale), scale: self.scale }
    }

    /// The digits of this number at a larger scale, which all values of a column share.
    pub fn digits_at(self, scale: u8) -> i128 {
        self.digits * 10i128.pow(u32::from(scale.saturating_sub(self.scale)))
    }
}

/// The number of a heap payload: `Some(None)` if it has too many digits or is not a number, None if
/// the payload is damaged.
#[expect(clippy::option_option, reason = "damage, and what does not fit")]
pub fn unscaled(tag: u8, bytes: &[u8]) -> Option<Option<Unscaled>> {
    match tag {
        tag::BIGINT => {
            if !payload::is_bigint(bytes) {
                return None;
            }
            let value = i128::try_from(text::big_int(bytes)).ok();
            let fits = |value: &i128| {
                value
                    .unsigned_abs()
                    .checked_ilog10()
                    .is_none_or(|log| log < u32::from(DECIMAL_DIGIT_COUNT_MAX))
            };
            Some(value.filter(fits).map(|digits| Unscaled { digits, scale: 0 }))
        }
        tag::DECIMAL => Some(unscaled_text(payload::decimal(bytes)?)),
        // Not a number at all.
        _ => Some(None),
    }
}

/// The number that a Decimal's text stands for; None if it has more than 38 digits, or is NaN or
/// infinite.
fn unscaled_text(written: &str) -> Option<Unscaled> {
    let (is_negative, rest) = match written.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, written),
    };
    let (digits, exponent) = match rest.split_once(['E', 'e']) {
        Some((digits, exponent)) => (digits, exponent.parse::<i64>().ok()?),
        None => (rest, 0),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut value: i128 = 0;
    for digit in whole.bytes().chain(fraction.bytes()) {
        let digit = digit.checked_sub(b'0').filter(|digit| *digit < 10)?;
        value = value.checked_mul(10)?.checked_add(i128::from(digit))?;
    }
    let mut scale = i64::try_from(fraction.len()).ok()?.checked_sub(exponent)?;
    while scale < 0 {
        value = value.checked_mul(10)?;
        scale += 1;
        if value == 0 {
            scale = 0;
        }
    }
    let size = value.unsigned_abs().checked_ilog10().map_or(0, |log| log + 1);
    if size > u32::from(DECIMAL_DIGIT_COUNT_MAX) || scale > i64::from(DECIMAL_DIGIT_COUNT_MAX) {
        return None;
    }
    Some(Unscaled { digits: if is_negative { -value } else { value }, scale: u8::try_from(scale).ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimals_are_taken_to_the_last_digit_or_not_at_all() {
        let parts = |text| unscaled_text(text).map(|value| (value.digits, value.scale));
        assert_eq!(parts("-1.50"), Some((-150, 2)));
        assert_eq!(parts("1E+3"), Some((1000, 0)));
        assert_eq!(parts("1.5E-7"), Some((15, 8)));
        assert_eq!(parts("0E+50"), Some((0, 0)));
        assert_eq!(parts("1E+38"), None);
        assert_eq!(parts("1E-39"), None);
        assert_eq!(parts("NaN"), None);
        assert_eq!(parts("-Infinity"), None);
    }
}
