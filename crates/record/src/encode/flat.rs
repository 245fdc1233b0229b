//! Writes shaped dicts of simple values quickly, if many of one shape follow each other.
//!
//! The slots are written directly to their final place, with the width that the last dict of the
//! shape had. Nothing is staged and no frame is opened. Whether the width was right is known only
//! at the end; if not, the dict is written again. The bytes are the same as those of `begin`, the
//! values and `end`.

use super::buffer::{Buffer, copy, inline_bits};
use super::finish::{set_slot, width_of};
use super::{Encoder, NEEDS_8_BYTES};
use crate::layout::{
    BLOCK_SLOTS, DEPTH_MAX, Kind, NESTED_INLINE_SIZE_MAX, RECORD_SIZE_MAX, ROOT_WIDTH_LOG2, SHAPE_ID_END,
    SHAPE_NAME_COUNT_MAX, slots_size, tag,
};

/// The head of a nested shaped dict: width and kind, and the id of its shape.
const HEAD_SIZE: usize = 4;
/// Strings of this size and more are left to `str`, so that a size takes one or two bytes.
const STR_SIZE_END: usize = 0x4000;

/// A value that is no container, and has no bytes but those of a string.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Simple<'a> {
    /// None.
    None,
    /// A bool.
    Bool(bool),
    /// An int of 64 bits.
    Int(i64),
    /// A float.
    Float(f64),
    /// A string, as UTF-8.
    Str(&'a [u8]),
}

/// Why a dict could not be written here.
enum Stop {
    /// A value is not simple.
    NotSimple,
    /// The heap needs this many bytes, which are not free.
    NoRoom(usize),
}

/// What determines the width, and the size of the heap.
struct Written {
    /// As in a frame.
    need: u64,
    last: u32,
    heap_size: usize,
}

impl Encoder {
    /// Writes a shaped dict of simple values as the next element of a container, with the width
    /// that the last dict of its shape had (`width_log2`). `value` returns the value of a slot, the
    /// same in each call, or `None` if it is not simple. `shape` is called last, when only its own
    /// `None` can prevent the write: so a caller that numbers shapes in order of use never has to
    /// take a number back.
    ///
    /// Returns log2 of the actual width. `None` if the dict cannot be written in this way; then
    /// nothing was written, and `begin`, the values and `end` write it, or return the error.
    ///
    /// ```
    /// use pellucid_record::{Encoder, Kind, encode::Simple};
    /// let mut encoder = Encoder::new();
    /// encoder.begin(Kind::List, 1, 0)?; // the list [{"name": "Ann", "age": 30}]
    /// let person = [Simple::Str(b"Ann"), Simple::Int(30)];
    /// let width_log2 = encoder.flat(2, 0, |index| person.get(index).copied(), || Some(0));
    /// assert_eq!(width_log2, Some(0)); // int and offset of the string fit slots of one byte
    /// encoder.end()?;
    /// # Ok::<(), pellucid_record::EncodeError>(())
    /// ```
    #[inline]
    pub fn flat<'v>(
        &mut self,
        count: u32,
        width_log2: u8,
        mut value: impl FnMut(usize) -> Option<Simple<'v>>,
        shape: impl FnOnce() -> Option<u32>,
    ) -> Option<u8> {
        let start = self.buffer.size();
        // Dicts that are too deep, or in a record that is too large, are left to the general path,
        // which reports it.
        let most = HEAD_SIZE + count as usize * (11 + STR_SIZE_END);
        if self.top == 0 || u32::from(self.depth) >= DEPTH_MAX || start + most >= RECORD_SIZE_MAX - 64 {
            return None;
        }
        let mut width_log2 = width_log2.min(ROOT_WIDTH_LOG2);
        let size = loop {
            let written = match width_log2 {
                0 => write::<1>(&mut self.buffer, count, &mut value),
                1 => write::<2>(&mut self.buffer, count, &mut value),
                2 => write::<4>(&mut self.buffer, count, &mut value),
                _ => write::<8>(&mut self.buffer, count, &mut value),
            };
            match written {
                Ok(written) => {
                    let right = width_for(count, &written);
                    if right == width_log2 {
                        break HEAD_SIZE + slots_size(count, width_log2) as usize + written.heap_size;
                    }
                    width_log2 = right;
                }
                Err(Stop::NoRoom(size)) => self.buffer.reserve(size),
                Err(Stop::NotSimple) => return None,
            }
        };
        let shape = shape()?;
        debug_assert!(shape < SHAPE_ID_END && count as usize <= SHAPE_NAME_COUNT_MAX);
        let head = shape << 8 | u32::from(width_log2) << 4 | Kind::Shaped as u32;
        if let Some(target) = self.buffer.gap(size).first_chunk_mut() {
            *target = head.to_le_bytes();
        }
        self.stage_entry(tag::CONTAINER, start, size);
        Some(width_log2)
    }
}

/// log2 of the narrowest width that holds the values and the offset of the last heap entry.
#[inline]
fn width_for(count: u32, written: &Written) -> u8 {
    let mut width_log2 = width_of(written.need);
    while width_log2 < 3 && written.last != 0 {
        let offset = (HEAD_SIZE as u64 + slots_size(count, width_log2)) + u64::from(written.last - 1);
        if offset >> (8u32 << width_log2) == 0 {
            break;
        }
        width_log2 += 1;
    }
    width_log2
}

/// Writes slots of `W` bytes and a heap behind the end of the buffer, without moving the end.
#[inline(always)]
#[expect(clippy::inline_always, reason = "the values come out of registers")]
fn write<'v, const W: usize>(
    buffer: &mut Buffer,
    count: u32,
    value: &mut impl FnMut(usize) -> Option<Simple<'v>>,
) -> Result<Written, Stop> {
    let slots_size = count as usize * (1 + W);
    let base = HEAD_SIZE + slots_size;
    let rest = buffer.rest();
    let Some((slots, heap)) =
        rest.get_mut(HEAD_SIZE..).and_then(|rest| rest.split_at_mut_checked(slots_size))
    else {
        return Err(Stop::NoRoom(base));
    };
    let mut written = Written { need: 0, last: 0, heap_size: 0 };
    let mut index = 0;
    for block in slots.chunks_mut(BLOCK_SLOTS as usize * (1 + W)) {
        let Some((tags, slots)) = block.split_at_mut_checked(block.len() / (1 + W)) else { break };
        for (target, slot) in tags.iter_mut().zip(slots.as_chunks_mut::<W>().0) {
            let (tag, bits) = match value(index).ok_or(Stop::NotSimple)? {
                Simple::None => (tag::NONE, 0),
                Simple::Bool(value) => (if value { tag::TRUE } else { tag::FALSE }, 0),
                Simple::Int(value) => {
                    written.need |= ((value << 1) ^ (value >> 63)).cast_unsigned();
                    (tag::INT, value.cast_unsigned())
                }
                Simple::Float(value) => {
                    written.need |= NEEDS_8_BYTES;
                    (tag::FLOAT, value.to_bits())
                }
                Simple::Str(text) if text.len() <= NESTED_INLINE_SIZE_MAX => {
                    (tag::STR_INLINE + text.len() as u8, inline_bits(text))
                }
                Simple::Str(text) => {
                    let at = written.heap_size;
                    let size_bytes = if text.len() < 0x80 { 1 } else { 2 };
                    let end = at + size_bytes + text.len();
                    if text.len() >= STR_SIZE_END {
                        return Err(Stop::NotSimple);
                    }
                    let Some((size, target)) =
                        heap.get_mut(at..end).and_then(|entry| entry.split_at_mut_checked(size_bytes))
                    else {
                        return Err(Stop::NoRoom(base + end));
                    };
                    match size {
                        [low, high] => {
                            (*low, *high) = (text.len() as u8 | 0x80, (text.len() >> 7) as u8);
                        }
                        size => size.fill(text.len() as u8),
                    }
                    copy(target, text);
                    written.last = at as u32 + 1;
                    written.heap_size = end;
                    // Slots of 8 bytes refer to the payload itself, after its size.
                    let wide = (base + at + size_bytes) as u64 | (text.len() as u64) << 32;
                    (tag::STR, if W == 8 { wide } else { (base + at) as u64 })
                }
            };
            *target = tag;
            set_slot(slot, bits);
            index += 1;
        }
    }
    Ok(written)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes `values` as a dict of shape 5 in a list after another element: with a guessed width,
    /// or by the general path.
    fn written(values: &[Simple<'_>], guess: Option<u8>) -> Vec<u8> {
        let mut encoder = Encoder::new();
        encoder.begin(Kind::Tuple, 2, 0).unwrap();
        encoder.str(b"something ahead");
        if let Some(guess) = guess {
            let count = values.len() as u32;
            let width_log2 = encoder.flat(count, guess, |index| values.get(index).copied(), || Some(5));
            assert!(width_log2.is_some(), "{values:?} at {guess}");
        } else {
            encoder.begin(Kind::Shaped, values.len() as u32, 5).unwrap();
            for value in values {
                match value {
                    Simple::None => encoder.none(),
                    Simple::Bool(value) => encoder.bool(*value),
                    Simple::Int(value) => encoder.int(*value),
                    Simple::Float(value) => encoder.float(*value),
                    Simple::Str(value) => encoder.str(value),
                }
            }
            encoder.end().unwrap();
        }
        encoder.end().unwrap();
        encoder.take()
    }

    #[test]
    fn a_dict_written_at_once_has_the_bytes_of_one_that_was_staged() {
        let long = [b'x'; 0x3FFF];
        let mut cases: Vec<Vec<Simple<'_>>> = vec![
            vec![Simple::None],
            vec![Simple::Bool(true), Simple::Bool(false)],
            vec![Simple::Str(b""), Simple::Str(b"a"), Simple::Str(b"ab"), Simple::Str(&long)],
            vec![Simple::Str(&long[..128]), Simple::Float(0.5), Simple::Str(&long), Simple::Str(b"end")],
            vec![Simple::Float(1.5), Simple::Str(b"behind a float"), Simple::Str(b"x"), Simple::Int(-1)],
        ];
        // Ints at the limits of the widths.
        for bits in [7, 8, 15, 16, 31, 32, 63] {
            let edge = 1i64.wrapping_shl(bits);
            cases.push(vec![Simple::Int(edge.wrapping_sub(1)), Simple::Str(b"text")]);
            cases.push(vec![Simple::Int(edge), Simple::Str(b"text")]);
            cases.push(vec![Simple::Int(edge.wrapping_neg()), Simple::None]);
        }
        // Several blocks, and heaps whose last offset is around the limits of one byte and of two.
        for count in [7, 8, 9, 16, 17, 60, 512] {
            cases.push(vec![Simple::Int(3); count]);
            for size in [2, 20, 29, 30, 31, 120, 127, 128] {
                cases.push(vec![Simple::Str(&long[..size]); count]);
            }
        }
        for values in &cases {
            let expected = written(values, None);
            for guess in 0..=4 {
                assert_eq!(written(values, Some(guess)), expected, "{values:?} at {guess}");
            }
        }
    }

    #[test]
    fn a_dict_that_is_not_simple_leaves_no_trace() {
        let mut encoder = Encoder::new();
        encoder.begin(Kind::List, 1, 0).unwrap();
        let before = encoder.bytes().len();
        let values = [Simple::Int(1), Simple::Str(b"some text"), Simple::Str(&[b'x'; STR_SIZE_END])];
        assert_eq!(encoder.flat(3, 0, |index| values.get(index).copied(), || Some(0)), None);
        assert_eq!(encoder.flat(4, 0, |index| values.get(..2)?.get(index).copied(), || Some(0)), None);
        assert_eq!(encoder.flat(2, 0, |index| values.get(index).copied(), || None), None);
        assert_eq!(encoder.bytes().len(), before);
        encoder.int(7);
        encoder.end().unwrap();
        assert_eq!(encoder.take()[0] >> 4, Kind::PackedInts as u8);
    }

    #[test]
    fn a_root_and_what_lies_too_deep_are_left_to_others() {
        let mut encoder = Encoder::new();
        assert_eq!(encoder.flat(1, 0, |_| Some(Simple::None), || Some(0)), None);
        for _ in 0..DEPTH_MAX {
            encoder.begin(Kind::List, 1, 0).unwrap();
        }
        assert_eq!(encoder.flat(1, 0, |_| Some(Simple::None), || Some(0)), None);
    }
}
