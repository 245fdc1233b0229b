//! Makes the bytes by which a value is ordered, and those by which it is grouped.
//!
//! The bytes have the order of the values, whatever their types: first values that can be keys, in
//! the order of keys (None, bytes, strings, numbers, Decimals, dates, ...); then times; then spans
//! of time; then values without an order (NaN, dicts, lists), all with one code; then missing
//! values. No code is a prefix of another, so that codes can follow each other.

use pellucid_record::key::KeyEncoder;
use pellucid_record::layout::tag;
use pellucid_record::value::{NoShapes, OwnedZone, encode_value};
use pellucid_record::{Corrupt, Damage, Shapes, Slot, Value};

use crate::evaluate::found::Found;
use crate::key_code::{push_equal, push_value};

// These come after all codes of keys (format.md, "Ordered keys").
const TIME: u8 = 0xF1;
const SPAN: u8 = 0xF2;
const UNORDERED: u8 = 0xF3;
// The byte before each code. It is never inverted: missing values come last in either order.
pub(crate) const PRESENT: u8 = 0;
const MISSING: u8 = 1;
// The byte after each code that a key would have. The code of 2 is a prefix of that of 2.5, which
// goes on with FE. Without this byte, an inverted 2 came first.
const END: u8 = 0;

/// Codes of values, one after another, in a buffer that is reused.
#[derive(Clone, Default)]
pub struct Code {
    bytes: Vec<u8>,
    encoder: KeyEncoder,
}

impl Code {
    /// Removes all codes.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// The number of bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are no codes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Inverts the order of the code that begins at `start`. Missing values stay last.
    pub fn turn(&mut self, start: usize) {
        for byte in self.bytes.get_mut(start + 1..).unwrap_or_default() {
            *byte = !*byte;
        }
    }

    /// Adds the code of a value.
    ///
    /// # Errors
    /// Damage.
    pub fn push<S: Shapes + ?Sized>(&mut self, found: &Found<'_>, shapes: &S) -> Result<(), Corrupt> {
        self.push_as(found, shapes, false)
    }

    /// Adds bytes that are the same only for equal values, also for values without an order. None
    /// and a missing value are one.
    ///
    /// # Errors
    /// Damage.
    pub fn push_group<S: Shapes + ?Sized>(&mut self, found: &Found<'_>, shapes: &S) -> Result<(), Corrupt> {
        self.push_as(found, shapes, true)
    }

    fn push_as<S: Shapes + ?Sized>(
        &mut self,
        found: &Found<'_>,
        shapes: &S,
        is_group: bool,
    ) -> Result<(), Corrupt> {
        let encoder = &mut self.encoder;
        encoder.clear();
        // Both are shown as None, so that they are one group.
        let is_missing = found.is_missing() || is_group && found.is_none();
        self.bytes.push(if is_missing { MISSING } else { PRESENT });
        match found {
            _ if is_missing => return Ok(()),
            Found::Slot(Slot::Int(value), _) => encoder.int(*value),
            Found::Slot(Slot::Str(text), _) => encoder.str(text),
            Found::Slot(Slot::Float(value), _) if encoder.float(*value).is_ok() => {}
            Found::Slot(Slot::Heap { tag: tag::STR_SURROGATES, payload, .. }, _) => encoder.str(payload),
            found => {
                let Some(value) = found.to_value(shapes)? else { return Ok(()) };
                encoder.clear();
                // Sorting uses the codes of indexes, so that both give one order. Grouping uses
                // codes that tell keys apart.
                let is_key = if is_group { push_value(encoder, &value) } else { push_equal(encoder, &value) };
                if !is_key {
                    *encoder = KeyEncoder::new();
                    return push_other(&mut self.bytes, &value, is_group);
                }
            }
        }
        self.bytes.extend_from_slice(encoder.as_bytes());
        self.bytes.push(END);
        Ok(())
    }
}

fn push_other(code: &mut Vec<u8>, value: &Value, is_group: bool) -> Result<(), Corrupt> {
    match value {
        Value::Time(micros, _, zone) => {
            // A ZoneInfo has no offset without a date, so that Python compares such a time as a
            // naive one.
            let (is_aware, offset) = match zone {
                Some(OwnedZone::Fixed(offset, _)) => (true, *offset),
                _ => (false, 0),
            };
            code.extend_from_slice(&[TIME, u8::from(is_aware)]);
            code.extend_from_slice(&((micros - offset).cast_unsigned() ^ (1 << 63)).to_be_bytes());
        }
        Value::Timedelta(delta) => {
            code.push(SPAN);
            code.extend_from_slice(&(delta.days.cast_unsigned() ^ (1 << 31)).to_be_bytes());
            code.extend_from_slice(&delta.seconds.to_be_bytes());
            code.extend_from_slice(&delta.micros.to_be_bytes());
        }
        _ => {
            code.push(UNORDERED);
            if is_group {
                let record =
                    encode_value(value, &mut NoShapes).map_err(|_| Corrupt::new(Damage::Range, 0))?;
                code.extend_from_slice(&(record.len() as u64).to_be_bytes());
                code.extend_from_slice(&record);
            }
        }
    }
    Ok(())
}

/// Pushes a value of a row as a key, if it can be one. If it cannot, a part may have been pushed. A
/// bytearray becomes the bytes that it equals, and a complex number without an imaginary part the
/// float.
///
/// # Errors
/// Damage.
pub fn push_found<S: Shapes + ?Sized>(
    encoder: &mut KeyEncoder,
    found: &Found<'_>,
    shapes: &S,
) -> Result<bool, Corrupt> {
    match found {
        Found::Missing => return Ok(false),
        Found::Slot(Slot::Int(value), _) => encoder.int(*value),
        Found::Slot(Slot::Str(text), _) => encoder.str(text),
        Found::Slot(Slot::Float(value), _) => return Ok(encoder.float(*value).is_ok()),
        Found::Slot(Slot::None, _) => encoder.none(),
        Found::Slot(Slot::Bool(value), _) => encoder.bool(*value),
        Found::Slot(Slot::Heap { tag: tag::STR_SURROGATES, payload, .. }, _) => encoder.str(payload),
        Found::Slot(Slot::Heap { tag: tag::BYTES | tag::BYTEARRAY, payload, .. }, _) => {
            encoder.bytes(payload);
        }
        Found::Slot(Slot::Container(container), _) if container.kind.is_dict() => return Ok(false),
        Found::Value(value) => return Ok(push_equal(encoder, value)),
        Found::Slot(..) => {
            return Ok(found.to_value(shapes)?.is_some_and(|value| push_equal(encoder, &value)));
        }
    }
    Ok(true)
}
