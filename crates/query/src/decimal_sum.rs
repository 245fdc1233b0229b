//! Adds up Decimals, as long as no digit is lost.
//!
//! Python adds under a context of 28 digits and rounds longer results. While no result is longer,
//! the sum does not depend on the order and equals a sum of ints, to the last zero: the digits of
//! each value, scaled to the largest number of digits after the point. To know this, the absolute
//! values are added up as well: the sum holds while these have at most 28 digits. Beyond that, and
//! for a Decimal that is not finite, the caller, which knows the context, has to add the values one
//! after another.

use pellucid_record::Value;

use crate::decimal::written;
use crate::sum::Sum;

/// The number of digits in Python's default context.
const DIGIT_COUNT: u32 = 28;
/// The first number with more digits.
const END: u128 = 10_u128.pow(DIGIT_COUNT);
/// The largest number of digits after the point; 0 may have more of these than it has digits.
const SCALE_MAX: u32 = 60;

/// A sum of Decimals.
///
/// ```
/// use pellucid_query::DecimalSum;
/// let mut sum = DecimalSum::default();
/// assert!(sum.add(b"1.30") && sum.add(b"-0.3"));
/// assert_eq!(sum.value(), pellucid_record::Value::Decimal("1.00".into()));
/// assert!(!sum.add(b"NaN"));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DecimalSum {
    digits: i128,
    /// The sum of the absolute values, in the same digits.
    size: u128,
    /// How many digits are after the point.
    scale: u32,
    count: u64,
}

impl DecimalSum {
    /// Adds the Decimal of a text, as `str()` writes it. Returns false, and adds nothing, if digits
    /// might be lost, or if it is not finite.
    #[inline]
    #[must_use]
    pub fn add(&mut self, text: &[u8]) -> bool {
        let Some((is_negative, size, scale)) = parsed(text) else { return false };
        let digits = if is_negative { -size.cast_signed() } else { size.cast_signed() };
        self.put(Self { digits, size, scale, count: 1 })
    }

    /// Adds another sum. Returns false, and adds nothing, as `add` does.
    #[must_use]
    pub fn put(&mut self, other: Self) -> bool {
        let (mut one, mut other) = (*self, other);
        let scale = one.scale.max(other.scale);
        if !one.rescale(scale) || !other.rescale(scale) || one.size + other.size >= END {
            return false;
        }
        let (digits, size) = (one.digits + other.digits, one.size + other.size);
        *self = Self { digits, size, scale, count: one.count + other.count };
        true
    }

    fn rescale(&mut self, scale: u32) -> bool {
        let more = scale - self.scale;
        if more == 0 || self.size == 0 {
            self.scale = scale;
            return true;
        }
        let Some(power) = power(more) else { return false };
        let size = self.size.checked_mul(power).filter(|size| *size < END);
        let Some(size) = size else { return false };
        *self = Self { digits: self.digits * power.cast_signed(), size, scale, ..*self };
        true
    }

    /// How many Decimals were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether no digit is lost if these ints are added as well, in any order. Decimals are not
    /// added to floats.
    #[must_use]
    pub fn holds_beside(&self, ints: &Sum) -> bool {
        if self.count == 0 || ints.count() == 0 {
            return true;
        }
        let size = u128::from(ints.count()) * u128::from(i64::MIN.unsigned_abs());
        let mut all = Self { digits: 0, size, scale: 0, count: 0 };
        ints.int().is_some() && size < END && all.put(Self { digits: 0, ..*self })
    }

    /// The sum, with a sum of ints added for which `holds_beside` is true.
    #[must_use]
    pub fn value_with(&self, ints: i128) -> Value {
        let power = power(self.scale).unwrap_or(1).cast_signed();
        Value::Decimal(written(&(self.digits + ints * power).to_string(), i64::from(self.scale)))
    }

    /// The sum.
    #[must_use]
    pub fn value(&self) -> Value {
        self.value_with(0)
    }
}

fn power(exponent: u32) -> Option<u128> {
    (exponent <= DIGIT_COUNT).then(|| 10_u128.pow(exponent))
}

/// Whether it is negative, its digits, and how many of them are after the point. None if there are
/// too many digits, or if the text is no finite Decimal.
#[inline]
fn parsed(text: &[u8]) -> Option<(bool, u128, u32)> {
    let (is_negative, rest) = match text.split_first() {
        Some((b'-', rest)) => (true, rest),
        _ => (false, text),
    };
    let (mut size, mut scale, mut is_behind_point) = (0_u128, 0_u32, false);
    let mut is_behind_digit = false;
    let mut bytes = rest.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'0'..=b'9' => {
                size = size * 10 + u128::from(byte - b'0');
                scale += u32::from(is_behind_point);
                if size >= END || scale > SCALE_MAX {
                    return None;
                }
            }
            b'.' if is_behind_digit && !is_behind_point => is_behind_point = true,
            b'E' | b'e' if is_behind_digit => {
                return moved((size, scale), bytes.as_slice())
                    .map(|(size, scale)| (is_negative, size, scale));
            }
            // NaN, infinity, or damage.
            _ => return None,
        }
        is_behind_digit = *byte != b'.';
    }
    is_behind_digit.then_some((is_negative, size, scale))
}

/// Digits and the number of them after the point, after an exponent has moved the point.
fn moved((size, scale): (u128, u32), exponent: &[u8]) -> Option<(u128, u32)> {
    let exponent: i64 = std::str::from_utf8(exponent).ok()?.parse().ok()?;
    let moved = i64::from(scale).checked_sub(exponent)?;
    if moved >= 0 {
        return u32::try_from(moved).ok().filter(|scale| *scale <= SCALE_MAX).map(|scale| (size, scale));
    }
    // Python's sum begins with the int 0, so that all digits before the point are written.
    let size = if size == 0 { 0 } else { size.checked_mul(power(u32::try_from(-moved).ok()?)?)? };
    (size < END).then_some((size, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(texts: &[&str]) -> Option<String> {
        let mut sum = DecimalSum::default();
        if !texts.iter().all(|text| sum.add(text.as_bytes())) {
            return None;
        }
        match sum.value() {
            Value::Decimal(text) => Some(text),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn digits_are_those_of_the_longest_and_none_is_lost() {
        let nines = "9".repeat(28);
        for (texts, expected) in [
            (&["1.30", "1"][..], Some("2.30")),
            (&["-0.0"], Some("0.0")),
            (&["1E+3", "0.5"], Some("1000.5")),
            (&["1E-8", "0E-10"], Some("1.00E-8")),
            (&["0E+5"], Some("0")),
            (&["1E+27"], Some("1000000000000000000000000000")),
            (&["1E+28"], None),
            (&[&nines], Some(&nines)),
            (&[&nines, "1"], None),
            // Adding these one after another rounds, whatever is left in the end.
            (&[&nines, "-1"], None),
            (&["5", "0E-30"], None),
            (&["1E-61"], None),
            (&["NaN"], None),
            (&["Infinity"], None),
            (&["1."], None),
            (&[".5"], None),
            (&[""], None),
            (&["-"], None),
            (&["1.2.3"], None),
        ] {
            assert_eq!(sum(texts).as_deref(), expected, "{texts:?}");
        }
    }

    #[test]
    fn what_was_not_added_changes_nothing() {
        let mut all = DecimalSum::default();
        assert!(all.add(b"1.5"));
        let before = all;
        assert!(!all.add("9".repeat(28).as_bytes()));
        assert_eq!(all, before);
    }
}
