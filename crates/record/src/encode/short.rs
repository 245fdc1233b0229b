//! Encodes a record that is one small value, without an encoder.

use super::buffer::{copy, inline_bits};
use super::flat::Simple;
use crate::layout::{ROOT_INLINE_SIZE_MAX, SCALAR_BYTE, SCALAR_HEAD_SIZE, tag};

/// Room for a short record.
pub const SHORT_RECORD_SIZE: usize = 64;

/// The record of a short str, an int or a float, in the caller's memory: the same bytes as from an
/// `Encoder`. `None` for any other value; use an `Encoder`.
#[inline]
#[must_use]
pub fn short_record<'a>(value: Simple<'_>, out: &'a mut [u8; SHORT_RECORD_SIZE]) -> Option<&'a [u8]> {
    let (tag, bits, size) = match value {
        Simple::Str(text) => return short_text((tag::STR, tag::STR_INLINE), text, out),
        Simple::Int(value) => (tag::INT, value.cast_unsigned(), size_of_bits(value.cast_unsigned())),
        Simple::Float(value) => (tag::FLOAT, value.to_bits(), size_of_bits(value.to_bits())),
        Simple::Bool(_) | Simple::None => return None,
    };
    let (head, payload) = out.split_first_chunk_mut()?;
    *head = [SCALAR_BYTE, tag];
    *payload.first_chunk_mut()? = bits.to_le_bytes();
    out.get(..SCALAR_HEAD_SIZE + size)
}

/// As `short_record`, for bytes.
#[inline]
#[must_use]
pub fn short_bytes_record<'a>(bytes: &[u8], out: &'a mut [u8; SHORT_RECORD_SIZE]) -> Option<&'a [u8]> {
    short_text((tag::BYTES, tag::BYTES_INLINE), bytes, out)
}

/// The record of a str or of bytes, with the tag for the heap or the one for the slot.
#[inline]
fn short_text<'a>(
    (in_heap, in_slot): (u8, u8),
    text: &[u8],
    out: &'a mut [u8; SHORT_RECORD_SIZE],
) -> Option<&'a [u8]> {
    let (head, payload) = out.split_first_chunk_mut()?;
    if text.len() > ROOT_INLINE_SIZE_MAX {
        *head = [SCALAR_BYTE, in_heap];
        copy(payload.get_mut(..text.len())?, text);
    } else {
        *head = [SCALAR_BYTE, in_slot + text.len() as u8];
        *payload.first_chunk_mut()? = inline_bits(text).to_le_bytes();
    }
    out.get(..SCALAR_HEAD_SIZE + text.len())
}

/// The size of a number without the zeros at its end.
#[inline]
fn size_of_bits(bits: u64) -> usize {
    8 - bits.leading_zeros() as usize / 8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode::Encoder;

    #[test]
    fn a_short_record_has_the_bytes_that_the_encoder_gives_it() {
        let text: Vec<u8> = (1..=80).collect();
        let strings = (0..=text.len()).map(|size| Simple::Str(&text[..size]));
        let ints = [0, 1, -1, 127, 128, 255, 256, -129, 1 << 40, i64::MIN, i64::MAX].map(Simple::Int);
        let floats = [0.0, -0.0, 0.5, 1e300, f64::NAN].map(Simple::Float);
        for value in strings.chain(ints).chain(floats) {
            let mut encoder = Encoder::default();
            let mut has_room = true;
            match value {
                Simple::Str(text) => {
                    encoder.str(text);
                    has_room = SCALAR_HEAD_SIZE + text.len() <= SHORT_RECORD_SIZE;
                }
                Simple::Int(int) => encoder.int(int),
                Simple::Float(float) => encoder.float(float),
                Simple::Bool(_) | Simple::None => {}
            }
            let expected = has_room.then_some(encoder.bytes());
            let mut room = [7; SHORT_RECORD_SIZE];
            assert_eq!(short_record(value, &mut room), expected, "{value:?}");
        }
        for size in 0..=text.len() {
            let mut encoder = Encoder::default();
            encoder.bytes_value(&text[..size]);
            let has_room = SCALAR_HEAD_SIZE + size <= SHORT_RECORD_SIZE;
            let mut room = [7; SHORT_RECORD_SIZE];
            let record = short_bytes_record(&text[..size], &mut room);
            assert_eq!(record, has_room.then_some(encoder.bytes()), "{size}");
        }
        assert_eq!(short_record(Simple::None, &mut [7; SHORT_RECORD_SIZE]), None);
    }
}
