//! Converts a NumPy scalar to the value that expressions, orders and sums use for it.
//!
//! It is the value of the Python object that NumPy says it equals (`item()`). A time in a unit that
//! `datetime` does not have has no such value. The element types are those of the array interface,
//! <https://numpy.org/doc/stable/reference/arrays.interface.html>.

use pellucid_record::Value;
use pellucid_record::layout::{MICROS_PER_DAY, tag};
use pellucid_record::payload::{self, Timedelta};
use pellucid_record::value::{Double, NoShapes};
use pellucid_record::view::Slot;

/// The ordinal of 1970-01-01.
const EPOCH_ORDINAL: i64 = 719_163;
/// NumPy's "not a time" (NaT).
const NOT_A_TIME: i64 = i64::MIN;

/// The value of a scalar that stands in a slot. None for arrays, and for values that Python's own
/// types do not have.
#[cold]
#[must_use]
pub fn scalar(slot: &Slot<'_>, record: &[u8]) -> Option<Value> {
    let Slot::Heap { tag: tag::NDARRAY, payload, offset } = *slot else { return None };
    let array = payload::ndarray(record, &NoShapes, offset, payload.len() as u32).ok()?;
    let Slot::Str(dtype) = array.dtype else { return None };
    if !array.is_scalar || array.shape.count > 0 {
        return None;
    }
    element(std::str::from_utf8(dtype).ok()?, array.data)
}

/// The value of one element of the type that NumPy's `dtype.str` names.
#[must_use]
pub fn element(dtype: &str, bytes: &[u8]) -> Option<Value> {
    let (order, rest) = dtype.split_at_checked(1)?;
    let (kind, size) = rest.split_at_checked(1)?;
    let mut bytes = bytes.to_vec();
    if order == ">" && kind != "S" {
        // In text, the bytes of each character are reversed.
        let unit = if kind == "U" { 4 } else { bytes.len().max(1) };
        bytes.chunks_mut(unit).for_each(<[u8]>::reverse);
    }
    match kind {
        "b" => Some(Value::Bool(*bytes.first()? != 0)),
        "i" => Some(Value::Int(int(&bytes)?)),
        "u" => unsigned(&bytes),
        "f" => Some(Value::Float(Double(float(&bytes)?))),
        "S" => {
            let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
            bytes.truncate(end);
            Some(Value::Bytes(bytes))
        }
        "U" => text(&bytes).map(Value::Str),
        "M" | "m" => {
            let unit = size.strip_prefix("8[")?.strip_suffix(']')?;
            let count = int(&bytes).filter(|count| *count != NOT_A_TIME)?;
            time(kind == "M", unit, count)
        }
        _ => None,
    }
}

/// An int of 1, 2, 4 or 8 bytes.
fn int(bytes: &[u8]) -> Option<i64> {
    Some(match bytes.len() {
        1 => i64::from(i8::from_le_bytes(bytes.try_into().ok()?)),
        2 => i64::from(i16::from_le_bytes(bytes.try_into().ok()?)),
        4 => i64::from(i32::from_le_bytes(bytes.try_into().ok()?)),
        _ => i64::from_le_bytes(bytes.try_into().ok()?),
    })
}

fn unsigned(bytes: &[u8]) -> Option<Value> {
    let mut wide = [0; 8];
    wide.get_mut(..bytes.len())?.copy_from_slice(bytes);
    let value = u64::from_le_bytes(wide);
    Some(match i64::try_from(value) {
        Ok(value) => Value::Int(value),
        Err(_) => Value::BigInt([&wide[..], &[0]].concat()),
    })
}

/// A float of 2, 4 or 8 bytes.
fn float(bytes: &[u8]) -> Option<f64> {
    Some(match bytes.len() {
        2 => half(u16::from_le_bytes(bytes.try_into().ok()?)),
        4 => f64::from(f32::from_le_bytes(bytes.try_into().ok()?)),
        _ => f64::from_le_bytes(bytes.try_into().ok()?),
    })
}

/// IEEE 754's binary16: a sign, 5 bits of exponent, 10 of fraction.
fn half(bits: u16) -> f64 {
    let (exponent, fraction) = (i32::from(bits >> 10 & 0x1F), f64::from(bits & 0x3FF));
    let magnitude = match exponent {
        0 => fraction * 2f64.powi(-24),
        0x1F if fraction == 0.0 => f64::INFINITY,
        0x1F => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    };
    if bits >> 15 == 1 { -magnitude } else { magnitude }
}

/// UTF-32, padded with zeros.
fn text(bytes: &[u8]) -> Option<String> {
    let (characters, _) = bytes.as_chunks();
    let text: Option<String> =
        characters.iter().map(|bytes| char::from_u32(u32::from_le_bytes(*bytes))).collect();
    text.map(|text| text.trim_end_matches('\0').to_owned())
}

/// A time: this many of a unit, counted from 1970 if `is_moment`.
fn time(is_moment: bool, unit: &str, count: i64) -> Option<Value> {
    let micros = match unit {
        "D" => count.checked_mul(MICROS_PER_DAY)?,
        "h" => count.checked_mul(3_600_000_000)?,
        "m" => count.checked_mul(60_000_000)?,
        "s" => count.checked_mul(1_000_000)?,
        "ms" => count.checked_mul(1000)?,
        "us" => count,
        // A time finer than a microsecond equals no datetime.
        "ns" if count % 1000 == 0 => count / 1000,
        _ => return None,
    };
    let days = micros.div_euclid(MICROS_PER_DAY);
    if !is_moment {
        let rest = micros.rem_euclid(MICROS_PER_DAY);
        let part = |count: i64| u32::try_from(count).ok();
        let delta = Timedelta {
            days: i32::try_from(days).ok()?,
            seconds: part(rest / 1_000_000)?,
            micros: part(rest % 1_000_000)?,
        };
        return Some(Value::Timedelta(delta));
    }
    let ordinal =
        u32::try_from(days + EPOCH_ORDINAL).ok().filter(|ordinal| (1..=3_652_059).contains(ordinal))?;
    if unit == "D" {
        return Some(Value::Date(ordinal));
    }
    Some(Value::Datetime(micros.checked_add((EPOCH_ORDINAL - 1) * MICROS_PER_DAY)?, false))
}
