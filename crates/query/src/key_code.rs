//! Encodes values as keys: those of tables, of index entries, and those that conditions look for.
//!
//! Numbers have two families of keys. A number and the Decimal that equals it have different codes,
//! so that what looks for one also looks for its equal.

use num_bigint::{BigInt, Sign};
use pellucid_record::Value;
use pellucid_record::key::KeyEncoder;
use pellucid_record::payload::{bigint_magnitude, push_zone};
use pellucid_record::value::Double;

use crate::digits;

/// Pushes the key that equals a value, which is the code that index entries have for it. False if
/// no key can be equal; a part of the code may have been pushed.
pub fn push_equal(encoder: &mut KeyEncoder, value: &Value) -> bool {
    match value {
        Value::Bytearray(bytes) => encoder.bytes(bytes),
        Value::Complex(real, imaginary) if imaginary.0 == 0.0 => return encoder.complex(real.0).is_ok(),
        value => return push_value(encoder, value),
    }
    true
}

/// Pushes a value as a key, if it can be one. If it cannot, a part may have been pushed.
pub fn push_value(encoder: &mut KeyEncoder, value: &Value) -> bool {
    match value {
        Value::None => encoder.none(),
        Value::Bool(value) => encoder.bool(*value),
        Value::Int(value) => encoder.int(*value),
        Value::BigInt(bytes) => {
            let (negative, magnitude) = bigint_magnitude(bytes);
            return encoder.bigint(negative, &magnitude).is_ok();
        }
        Value::Float(value) => return encoder.float(value.0).is_ok(),
        Value::Str(text) => encoder.str(text.as_bytes()),
        Value::Surrogates(text) => encoder.str(text),
        Value::Bytes(bytes) => encoder.bytes(bytes),
        Value::Decimal(text) => return encoder.decimal(text).is_ok(),
        Value::Uuid(uuid) => encoder.uuid(uuid),
        Value::Date(ordinal) => return encoder.date(*ordinal).is_ok(),
        Value::Datetime(local, fold) => return encoder.datetime(*local, *fold).is_ok(),
        Value::Aware { local, fold, offset, zone } => {
            let mut bytes = Vec::new();
            push_zone(&zone.borrow(), &mut bytes);
            return encoder.aware(local - offset, *offset, *fold, &bytes).is_ok();
        }
        Value::Tuple(elements) => {
            if encoder.begin_tuple().is_err() {
                return false;
            }
            for element in elements {
                if !push_value(encoder, element) {
                    return false;
                }
            }
            encoder.end_tuple();
        }
        _ => return false,
    }
    true
}

/// Pushes the equal number of the other family: for a Decimal the int or float, for these the
/// Decimal. The two compare with each other, but their codes lie apart. False if there is none.
pub fn push_in_other_family(encoder: &mut KeyEncoder, value: &Value) -> bool {
    if let Value::Complex(real, imaginary) = value {
        return imaginary.0 == 0.0 && push_in_other_family(encoder, &Value::Float(*real));
    }
    let Value::Decimal(text) = value else {
        return decimal_text(value).is_some_and(|text| encoder.decimal(&text).is_ok());
    };
    let Ok(float) = text.parse::<f64>() else { return false };
    let is_float = decimal_text(&Value::Float(Double(float))).is_some_and(|same| {
        let code = |text: &str| {
            let mut encoder = KeyEncoder::new();
            encoder.decimal(text).ok().map(|()| encoder.as_bytes().to_vec())
        };
        code(&same) == code(text)
    });
    if is_float {
        return encoder.float(float).is_ok();
    }
    whole_number(text).is_some_and(|(is_negative, magnitude)| encoder.bigint(is_negative, &magnitude).is_ok())
}

/// The int that a Decimal's text equals: its sign, and its bytes, the most significant first.
fn whole_number(text: &str) -> Option<(bool, Vec<u8>)> {
    // No int with more digits is a key, and none with fewer digits is large.
    const DIGIT_COUNT_MAX: i64 = 100_000;
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((text, "0"));
    let (is_negative, mantissa) = match mantissa.strip_prefix('-') {
        Some(mantissa) => (true, mantissa),
        None => (false, mantissa.strip_prefix('+').unwrap_or(mantissa)),
    };
    let (whole, behind) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let behind = behind.trim_end_matches('0');
    let zeros = exponent.parse::<i64>().ok()?.checked_sub(i64::try_from(behind.len()).ok()?)?;
    let mut digits = format!("{whole}{behind}");
    if zeros < 0 {
        let kept = digits.len().checked_sub(usize::try_from(zeros.unsigned_abs()).ok()?)?;
        if digits.get(kept..)?.bytes().any(|digit| digit != b'0') {
            return None;
        }
        digits.truncate(kept);
    } else if zeros <= DIGIT_COUNT_MAX {
        digits.extend(std::iter::repeat_n('0', usize::try_from(zeros).ok()?));
    } else {
        return None;
    }
    let number = digits::parse(digits.as_bytes())?;
    Some((is_negative, number.to_bytes_be()))
}

/// The Decimal that equals a number, as text. None for a value that is no number, and for infinity.
pub(crate) fn decimal_text(value: &Value) -> Option<String> {
    Some(match value {
        Value::Bool(value) => u8::from(*value).to_string(),
        Value::Int(value) => value.to_string(),
        Value::BigInt(bytes) => {
            let (is_negative, magnitude) = bigint_magnitude(bytes);
            let sign = if is_negative { Sign::Minus } else { Sign::Plus };
            BigInt::from_bytes_be(sign, &magnitude).to_string()
        }
        Value::Float(value) if value.0.is_infinite() => {
            if value.0 > 0.0 {
                "Infinity".to_owned()
            } else {
                "-Infinity".to_owned()
            }
        }
        Value::Float(value) => {
            // A float has as many digits after the point as bits there, so this many are exact.
            // Writing all digits that any float may have took longer than counting entries.
            let text = format!("{:.*}", bits_behind_point(value.0), value.0);
            if text.contains('.') {
                text.trim_end_matches('0').trim_end_matches('.').to_owned()
            } else {
                text
            }
        }
        _ => return None,
    })
}

/// The number of bits that a finite float has after the point.
fn bits_behind_point(value: f64) -> usize {
    const MANTISSA_BITS: u32 = 52;
    // The place of the mantissa's last bit, given as the exponent of the smallest float.
    const LAST_BIT: u64 = 1075;
    let bits = value.to_bits();
    let exponent = (bits >> MANTISSA_BITS) & 0x7FF;
    let mantissa = bits & ((1 << MANTISSA_BITS) - 1) | u64::from(exponent > 0) << MANTISSA_BITS;
    let zeros = if mantissa == 0 { LAST_BIT } else { u64::from(mantissa.trailing_zeros()) };
    LAST_BIT.saturating_sub(exponent.max(1) + zeros) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_float_is_written_with_as_many_digits_as_it_has() {
        let small =
            [0.0, -0.0, 1.0, -2.5, 0.1, 1e300, -1e-300, 5e-324, f64::MIN_POSITIVE, f64::MAX, f64::EPSILON];
        let many = (1..5_000_u64).map(|number| f64::from_bits(number.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
        for value in small.into_iter().chain(many.filter(|value| value.is_finite())) {
            let whole = format!("{value:.1074}");
            let expected = whole.trim_end_matches('0').trim_end_matches('.');
            assert_eq!(decimal_text(&Value::Float(Double(value))).as_deref(), Some(expected));
        }
    }
}
