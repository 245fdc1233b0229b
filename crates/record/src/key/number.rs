//! Numbers in keys: ints and floats of any size in one order.
//!
//! A whole float is encoded as the int that it equals, so this is mostly about exactness: every
//! finite float is a whole number of at most 1,024 bits plus a fraction, and both are again exact.

// Ints that become floats here came from a float, or their bits were counted. Floats are compared
// for exactness.
#![allow(clippy::cast_precision_loss, clippy::float_cmp)]

use super::code;

/// Whole floats from here on do not fit into an i64.
const WHOLE_I64: f64 = 9_223_372_036_854_775_808.0;

/// No float has a larger magnitude, in bytes.
const FLOAT_MAGNITUDE_SIZE_MAX: usize = 128;

/// The parts of a finite float.
pub(super) enum Whole {
    /// It equals this int.
    Int(i64),
    /// It is whole, but has too many bits.
    Big(Magnitude),
    /// It is between this int and the next one.
    Floor(i64),
}

/// Splits a float that is neither NaN nor infinite.
#[inline]
pub(super) fn whole(float: f64) -> Whole {
    if (-WHOLE_I64..WHOLE_I64).contains(&float) {
        // Truncating and converting back finds out whether there is a fraction, without a call of
        // libm.
        let truncated = float as i64;
        let back = truncated as f64;
        if back == float {
            Whole::Int(truncated)
        } else {
            Whole::Floor(if float < 0.0 { truncated - 1 } else { truncated })
        }
    } else {
        Whole::Big(Magnitude::of(float))
    }
}

/// The 8 bytes after the floor of a float with a fraction.
#[inline]
pub(super) fn fraction_bits(float: f64) -> u64 {
    // The number minus its integral part is exact, because it needs no bit that the number does not
    // have. For negative numbers the fraction is counted from above and complemented; counted from
    // the floor, -1e-300 would have the fraction 1 - 1e-300, which is no float.
    let part = float - (float as i64 as f64);
    if float < 0.0 { !(-part).to_bits() } else { part.to_bits() }
}

/// The float with this floor and these fraction bits, if there is one.
pub(super) fn with_fraction(floor: i64, bits: u64) -> Option<f64> {
    let float = if floor < 0 {
        let part = f64::from_bits(!bits);
        (part > 0.0 && part < 1.0).then(|| (floor + 1) as f64 - part)
    } else {
        let part = f64::from_bits(bits);
        (part > 0.0 && part < 1.0).then_some(floor as f64 + part)
    }?;
    // If the sum had to be rounded, no float has these parts.
    match whole(float) {
        Whole::Floor(own) if own == floor && fraction_bits(float) == bits => Some(float),
        _ => None,
    }
}

/// The absolute value of a whole float beyond 64 bits: big-endian, without leading zeros.
pub(super) struct Magnitude {
    bytes: [u8; FLOAT_MAGNITUDE_SIZE_MAX],
    size: usize,
}

impl Magnitude {
    fn of(float: f64) -> Self {
        let bits = float.to_bits();
        let exponent = (bits >> 52 & 0x7FF) as usize;
        let mantissa = bits & ((1 << 52) - 1) | 1 << 52;
        debug_assert!(exponent >= 1075, "a whole float beyond 2**52 is its mantissa shifted to the left");
        let shift = exponent.saturating_sub(1075);

        let head = mantissa << (shift % 8);
        let head_size = 8 - head.leading_zeros() as usize / 8;
        let mut bytes = [0; FLOAT_MAGNITUDE_SIZE_MAX];
        for (byte, digit) in bytes.iter_mut().zip(head.to_be_bytes().into_iter().skip(8 - head_size)) {
            *byte = digit;
        }
        Self { bytes, size: head_size + shift / 8 }
    }

    pub(super) fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.size).unwrap_or(&self.bytes)
    }
}

/// The float that equals this magnitude, if there is one.
pub(super) fn float_of_magnitude(magnitude: &[u8]) -> Option<f64> {
    if magnitude.len() > FLOAT_MAGNITUDE_SIZE_MAX {
        return None;
    }
    let head_size = magnitude.len().min(8);
    let (head, rest) = magnitude.split_at_checked(head_size)?;
    let head = head.iter().fold(0u64, |head, byte| head << 8 | u64::from(*byte));
    if head == 0 {
        return None;
    }
    let significant = 64 - head.leading_zeros() - head.trailing_zeros();
    if significant > 53 || rest.iter().any(|byte| *byte != 0) {
        return None;
    }
    // A power of two below 2**1023 has only exponent bits.
    let scale = f64::from_bits((1023 + 8 * rest.len() as u64) << 52);
    let float = head as f64 * scale;
    float.is_finite().then_some(float)
}

/// An int's code and magnitude, and the number of these bytes.
#[inline]
pub(super) fn int_code(int: i64) -> ([u8; 9], usize) {
    let magnitude = int.unsigned_abs();
    let size = 8 - magnitude.leading_zeros() / 8;
    // Left-aligned, so that the bytes to keep come first.
    let aligned = if size == 0 { 0 } else { magnitude << (64 - 8 * size) };
    let (code, aligned) = if int < 0 {
        (code::INT_ZERO - size as u8, !aligned)
    } else {
        (code::INT_ZERO + size as u8, aligned)
    };
    let mut bytes = [code; 9];
    if let Some(digits) = bytes.last_chunk_mut() {
        *digits = aligned.to_be_bytes();
    }
    (bytes, 1 + size as usize)
}
