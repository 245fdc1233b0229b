//! Parts: several keys in one index entry, each ascending or descending.
//!
//! ```text
//! ascending part  := the key as the element of a tuple             // None is 00 FF
//! descending part := 00, then (the element, 00), each byte complemented
//! ```
//!
//! Parts follow each other directly, and a key may follow the last part. Whatever follows a part
//! begins with a byte below FE, so no part can be taken for a prefix of another (`range.rs`). That
//! is why a descending part begins with 00: complemented codes begin with CF to FF. The spelling of
//! all parts is that of the tuple of them.

use super::{KEY_DEPTH_MAX, KeyEncoder, code};
use crate::layout::{push_varint, read_varint};

/// No part begins with this byte or a greater one: added to some parts, it is the end of everything
/// that begins with them.
pub const BEHIND_PARTS: u8 = code::FRACTION;

/// Ends the spelling of parts of which one is not the value of the row, but one that is equal to
/// it: a number for a `NumPy` scalar. No other spelling ends with it: FE is no entry, does not
/// occur in text, and is never the last byte of an offset.
pub(super) const STANDS_IN: u8 = 0xFE;

/// A position in an encoder of parts.
#[derive(Clone, Copy, Debug)]
pub struct PartsMark {
    pub(super) size: usize,
    pub(super) spelling_size: usize,
    pub(super) plain_count: usize,
}

/// Adds a part: the key that `push` pushes. False if `push` returned false; then the caller has to
/// remove the part (`KeyEncoder::reset`).
pub fn push_part(
    encoder: &mut KeyEncoder,
    is_descending: bool,
    push: impl FnOnce(&mut KeyEncoder) -> bool,
) -> bool {
    if !is_descending {
        return push(encoder);
    }
    encoder.descending(push)
}

/// The size of these parts at the begin of `bytes`, each descending or not. `None` if these are no
/// such parts.
#[must_use]
pub fn parts_size(bytes: &[u8], descending: &[bool]) -> Option<usize> {
    let mut offset = 0;
    for is_descending in descending {
        let rest = bytes.get(offset..)?;
        offset += if *is_descending {
            let (separator, rest) = rest.split_first()?;
            if *separator != code::END {
                return None;
            }
            let size = element_size(rest, 0xFF)?;
            // The end of the part.
            if rest.get(size) != Some(&0xFF) {
                return None;
            }
            size + 2
        } else {
            element_size(rest, 0x00)?
        };
    }
    Some(offset)
}

/// The key of the tuple of these parts, which are all of `bytes`. `None` if they are no such parts.
#[must_use]
pub fn parts_as_tuple(bytes: &[u8], descending: &[bool]) -> Option<Vec<u8>> {
    let mut tuple = Vec::with_capacity(bytes.len() + 2);
    tuple.push(code::TUPLE);
    let mut rest = bytes;
    for is_descending in descending {
        let (part, behind) = rest.split_at_checked(parts_size(rest, &[*is_descending])?)?;
        if *is_descending {
            let element = part.get(1..part.len().checked_sub(1)?)?;
            tuple.extend(element.iter().map(|byte| !byte));
        } else {
            tuple.extend_from_slice(part);
        }
        rest = behind;
    }
    tuple.push(code::END);
    rest.is_empty().then_some(tuple)
}

/// Joins the spellings of parts and of the key after them. Empty if both are.
pub fn join_spellings(parts: &[u8], key: &[u8], out: &mut Vec<u8>) {
    out.clear();
    if !parts.is_empty() || !key.is_empty() {
        push_varint(out, parts.len() as u32);
        out.extend_from_slice(parts);
        out.extend_from_slice(key);
    }
}

/// Splits spellings that `join_spellings` has joined. `None` if they were not.
#[must_use]
pub fn split_spellings(joined: &[u8]) -> Option<(&[u8], &[u8])> {
    if joined.is_empty() {
        return Some((&[], &[]));
    }
    let (size, start) = read_varint(joined, 0)?;
    joined.get(start..)?.split_at_checked(size as usize)
}

/// The spelling of parts without the mark of `KeyEncoder::spell_stand_in`, and whether it had one.
#[inline]
#[must_use]
pub fn split_stand_in(spelling: &[u8]) -> (&[u8], bool) {
    match spelling.split_last() {
        Some((&STANDS_IN, rest)) => (rest, true),
        _ => (spelling, false),
    }
}

/// The size of a tuple's element at the begin of `bytes`, each byte of which is xor-ed with `flip`.
fn element_size(bytes: &[u8], flip: u8) -> Option<usize> {
    let at = |offset: usize| bytes.get(offset).map(|byte| byte ^ flip);
    let (mut offset, mut depth) = (0usize, 0u32);
    loop {
        let first = at(offset)?;
        offset = match first {
            code::NONE if at(offset + 1) == Some(code::ESCAPE) => offset + 2,
            code::END if depth > 0 => {
                depth -= 1;
                offset + 1
            }
            code::BYTES | code::STR => string_end(bytes, offset + 1, flip)?,
            code::TUPLE if depth < KEY_DEPTH_MAX => {
                depth += 1;
                offset += 1;
                continue;
            }
            code::INFINITY_NEGATIVE | code::INFINITY_POSITIVE => offset + 1,
            code::INT_LONG_NEGATIVE..=code::INT_LONG_POSITIVE => number_end(bytes, offset, flip)?,
            code::DECIMAL => decimal_end(bytes, offset, flip)?,
            code::DATE => offset + 5,
            code::DATETIME | code::AWARE => offset + 9,
            code::UUID => offset + 17,
            _ => return None,
        };
        if depth == 0 {
            return (offset <= bytes.len()).then_some(offset);
        }
    }
}

fn string_end(bytes: &[u8], mut offset: usize, flip: u8) -> Option<usize> {
    loop {
        let end = code::END ^ flip;
        offset += bytes.get(offset..)?.iter().position(|byte| *byte == end)? + 1;
        if bytes.get(offset).map(|byte| byte ^ flip) != Some(code::ESCAPE) {
            return Some(offset);
        }
        offset += 1;
    }
}

fn int_end(bytes: &[u8], offset: usize, flip: u8) -> Option<usize> {
    let at = |offset: usize| bytes.get(offset).map(|byte| byte ^ flip);
    let first = at(offset)?;
    let short = first.abs_diff(code::INT_ZERO);
    if short <= 8 {
        return Some(offset + 1 + usize::from(short));
    }
    // Sizes of negative numbers are complemented.
    let size_flip = if first < code::INT_ZERO { 0xFF } else { 0x00 };
    match at(offset + 1)? ^ size_flip {
        0xFF => {
            let size = bytes.get(offset + 2..offset + 6)?;
            let size =
                size.iter().fold(0usize, |size, byte| size << 8 | usize::from(byte ^ flip ^ size_flip));
            offset.checked_add(6)?.checked_add(size)
        }
        size => Some(offset + 2 + usize::from(size)),
    }
}

fn number_end(bytes: &[u8], offset: usize, flip: u8) -> Option<usize> {
    let end = int_end(bytes, offset, flip)?;
    let has_fraction = bytes.get(end).map(|byte| byte ^ flip) == Some(code::FRACTION);
    Some(if has_fraction { end + 9 } else { end })
}

fn decimal_end(bytes: &[u8], offset: usize, flip: u8) -> Option<usize> {
    // 1 to 5: -Infinity, below zero, zero, above zero, Infinity (`decimal.rs`).
    let flip = match bytes.get(offset + 1)? ^ flip {
        1 | 3 | 5 => return Some(offset + 2),
        2 => !flip,
        4 => flip,
        _ => return None,
    };
    let digits = int_end(bytes, offset + 2, flip)?;
    let last = bytes.get(digits..)?.iter().position(|byte| (byte ^ flip).trailing_zeros() >= 4)?;
    Some(digits + last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyValue;

    /// Keys of each type, and some that broke such codes before: prefixes of others, with escapes,
    /// with an end code inside.
    fn keys() -> Vec<KeyValue> {
        let tuple = |elements: &[KeyValue]| KeyValue::Tuple(elements.to_vec());
        let big = |negative, size| KeyValue::BigInt { negative, magnitude: vec![7; size] };
        let text = |text: &str| KeyValue::Str(text.into());
        let decimal = |text: &str| KeyValue::Decimal(text.into());
        vec![
            KeyValue::None,
            KeyValue::Bytes(vec![]),
            KeyValue::Bytes(vec![0, 0xFF, 0]),
            text(""),
            text("a"),
            text("a\0"),
            text("a\0b"),
            text("b"),
            tuple(&[]),
            tuple(&[KeyValue::None]),
            tuple(&[KeyValue::Int(2)]),
            tuple(&[KeyValue::Int(2), tuple(&[KeyValue::None, text("\0")])]),
            tuple(&[KeyValue::Float(2.5)]),
            KeyValue::Float(f64::NEG_INFINITY),
            big(true, 300),
            big(true, 9),
            KeyValue::Int(i64::MIN),
            KeyValue::Int(-256),
            KeyValue::Float(-1.5),
            KeyValue::Int(-1),
            KeyValue::Float(-0.5),
            KeyValue::Int(0),
            KeyValue::Bool(true),
            KeyValue::Float(1.5),
            KeyValue::Int(2),
            KeyValue::Float(2.5),
            KeyValue::Int(i64::MAX),
            big(false, 9),
            big(false, 300),
            KeyValue::Float(f64::INFINITY),
            decimal("-Infinity"),
            decimal("-12.5"),
            decimal("0"),
            decimal("1"),
            decimal("1.5"),
            decimal("123E+40"),
            decimal("Infinity"),
            KeyValue::Date(1),
            KeyValue::Datetime { local: 5, fold: true },
            KeyValue::Aware { utc: 5, offset: 0, fold: false, zone: vec![1, 0, 0, 0, 0, 0, 0, 0, 0] },
            KeyValue::Uuid([0; 16]),
            KeyValue::Uuid([0xFF; 16]),
        ]
    }

    fn encoded(parts: &[(&KeyValue, bool)]) -> (Vec<u8>, Vec<u8>) {
        let mut encoder = KeyEncoder::new();
        encoder.clear_for_parts();
        for (key, is_descending) in parts {
            assert!(push_part(&mut encoder, *is_descending, |encoder| key.encode(encoder).is_ok()));
        }
        (encoder.parts().to_vec(), encoder.spelling().to_vec())
    }

    #[test]
    fn two_parts_sort_as_the_first_and_then_the_second_and_come_back() {
        let keys = keys();
        let orders = [[false, false], [false, true], [true, false], [true, true]];
        for descending in orders {
            let mut all = Vec::new();
            for (one, first) in keys.iter().enumerate() {
                for (other, second) in keys.iter().enumerate() {
                    let (code, spelling) = encoded(&[(first, descending[0]), (second, descending[1])]);
                    let turned = |place: usize, is: bool| if is { keys.len() - place } else { place };
                    let mut whole = code.clone();
                    // Any key may follow.
                    whole.extend_from_slice(&encoded(&[(&keys[(one + other) % keys.len()], false)]).0);
                    assert_eq!(parts_size(&whole, &descending), Some(code.len()), "{first:?} {second:?}");
                    let tuple = parts_as_tuple(&code, &descending).unwrap();
                    let expected = KeyValue::Tuple(vec![first.clone(), second.clone()]);
                    let back = KeyValue::decode(&tuple, &spelling).unwrap();
                    assert_eq!(format!("{back:?}"), format!("{expected:?}"));
                    all.push(((turned(one, descending[0]), turned(other, descending[1])), code));
                }
            }
            all.sort();
            for pair in all.windows(2) {
                assert!(pair[0].1 < pair[1].1, "{descending:?}: {:02x?} {:02x?}", pair[0], pair[1]);
            }
        }
    }

    #[test]
    fn no_bytes_crash_the_reader_of_parts() {
        for key in keys() {
            for is_descending in [false, true] {
                let (code, _) = encoded(&[(&key, is_descending)]);
                for size in 0..code.len() {
                    assert!(parts_size(&code[..size], &[is_descending]).is_none_or(|found| found <= size));
                }
                for place in 0..code.len() {
                    for byte in 0..=255 {
                        let mut damaged = code.clone();
                        damaged[place] = byte;
                        let found = parts_size(&damaged, &[is_descending]);
                        assert!(found.is_none_or(|found| found <= damaged.len()));
                    }
                }
            }
        }
    }

    #[test]
    fn spellings_are_joined_and_split() {
        let mut joined = vec![9];
        for (parts, key) in [(&b""[..], &b""[..]), (b"\x01", b""), (b"", b"\x02"), (&[7; 300], b"\x01\x02")] {
            join_spellings(parts, key, &mut joined);
            assert_eq!(split_spellings(&joined), Some((parts, key)));
        }
        assert!(joined.len() > 300 && split_spellings(b"\x05ab").is_none());
    }

    #[test]
    fn a_stand_in_is_told_from_every_spelling() {
        let west = [&[1][..], &(-1_i64).to_le_bytes()].concat();
        let west = KeyValue::Aware { utc: 1 << 50, offset: -1, fold: true, zone: west };
        for key in keys().iter().chain([&west]) {
            let mut encoder = KeyEncoder::new();
            encoder.clear_for_parts();
            key.encode(&mut encoder).unwrap();
            let (before, spelling) = (encoder.mark(), encoder.spelling().to_vec());
            assert_eq!(split_stand_in(&spelling), (&spelling[..], false));
            encoder.spell_stand_in();
            assert_eq!(split_stand_in(encoder.spelling()), (&spelling[..], true));
            encoder.reset(before);
            assert_eq!(encoder.spelling(), &spelling[..]);
        }
    }
}
