//! How do values become the bytes of a record?
//!
//! [`Encoder`] takes a value part by part, as a caller walks it: `begin`, an element for each slot, `end`. Elements are staged
//! and written when their container ends, because its slot width depends on all of them; what goes to the heap is written
//! at once, behind a gap for the slots as they will probably be. A wrong guess costs one move of that heap.

mod finish;

use crate::error::EncodeError;
use crate::layout::{
    DEPTH_MAX, Kind, NESTED_INLINE_SIZE_MAX, RECORD_SIZE_MAX, ROOT_INLINE_SIZE_MAX, ROOT_WIDTH_LOG2,
    SCALAR_BYTE, index_size, push_varint, root_head, slot_position, slots_size, tag, varint_size,
};

/// Set in `Frame::need` by what only a slot of 8 bytes holds.
const NEEDS_8_BYTES: u64 = 1 << 63;
/// Set in `Frame::need` by dates, which take 22 bits.
const NEEDS_4_BYTES: u64 = 1 << 31;
/// A nested container announced with more slots than this probably has a heap beyond the reach of one byte.
const BYTE_WIDE_COUNT_MAX: u32 = 80;

/// An element whose slot is not written yet.
#[derive(Clone, Copy, Debug)]
struct Staged {
    /// The slot, 8 bytes wide; of a heap tag: the entry's offset in the heap, and the payload's size above it.
    bits: u64,
    tag: u8,
}

/// A container, or a payload around one, that was begun and not ended.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// Its first byte.
    start: usize,
    /// Its first slot.
    slots: usize,
    /// Its heap, behind the gap for slots of the width guessed.
    heap: usize,
    /// Its first element in the stage.
    stage: usize,
    /// All slot values as bits, or-ed: tells the width.
    need: u64,
    /// One more than the offset in the heap of the last entry; 0: the heap is empty.
    last: usize,
    count: u32,
    kind: Kind,
    is_root: bool,
    /// Not 0: this is the payload of this tag, and the container in it comes as its one element.
    payload_tag: u8,
    inline_size_max: usize,
}

/// What stands before anything was begun: elements are scalars at the root.
const NOTHING: Frame = Frame {
    start: 0,
    slots: 0,
    heap: 0,
    stage: 0,
    need: 0,
    last: 0,
    count: 0,
    kind: Kind::List,
    is_root: true,
    payload_tag: 0,
    inline_size_max: ROOT_INLINE_SIZE_MAX,
};

/// Writes records, one after another, into a buffer that it keeps.
///
/// What is pushed before the first `begin` is a scalar at the root. A mistake of the caller (a count that does not fit) and a
/// limit (depth, size) come back as an error from `begin` or `end`; the encoder must be cleared after it.
///
/// ```
/// use pellucid_record::{Encoder, Kind};
/// let mut encoder = Encoder::new();
/// encoder.begin(Kind::Shaped, 2, 0)?; // the dict {"name": "Ann", "age": 30}, of a shape with id 0
/// encoder.str(b"Ann");
/// encoder.int(30);
/// encoder.end()?;
/// assert_eq!(encoder.bytes().len(), 26);
/// # Ok::<(), pellucid_record::EncodeError>(())
/// ```
#[derive(Debug)]
pub struct Encoder {
    buffer: Vec<u8>,
    stage: Vec<Staged>,
    frame: Frame,
    outer: Vec<Frame>,
    depth: u32,
    is_too_large: bool,
}

impl Default for Encoder {
    fn default() -> Encoder {
        Encoder::new()
    }
}

impl Encoder {
    /// An encoder with empty buffers.
    #[must_use]
    pub fn new() -> Encoder {
        Encoder {
            buffer: Vec::new(),
            stage: Vec::new(),
            frame: NOTHING,
            outer: Vec::new(),
            depth: 0,
            is_too_large: false,
        }
    }

    /// Forgets what was written and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.buffer.clear();
        self.stage.clear();
        self.outer.clear();
        self.frame = NOTHING;
        self.depth = 0;
        self.is_too_large = false;
    }

    /// The record, once its root has ended.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.buffer
    }

    /// The record as a vector of its own; the encoder is cleared.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        let bytes = std::mem::take(&mut self.buffer);
        self.clear();
        bytes
    }

    /// How large a record fits the buffer without growing it.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// Containers begun and not ended.
    #[inline]
    #[must_use]
    pub fn depth(&self) -> u32 {
        self.depth
    }

    #[inline]
    fn push(&mut self, tag: u8, bits: u64) {
        if self.outer.is_empty() {
            return self.push_root(tag, bits);
        }
        self.stage.push(Staged { bits, tag });
    }

    #[cold]
    fn push_root(&mut self, tag: u8, bits: u64) {
        let size = match tag {
            tag::STR_INLINE..=tag::STR_INLINE_LAST => usize::from(tag - tag::STR_INLINE),
            tag::BYTES_INLINE..=tag::BYTES_INLINE_LAST => usize::from(tag - tag::BYTES_INLINE),
            _ => 8 - bits.leading_zeros() as usize / 8,
        };
        self.buffer.extend_from_slice(&[SCALAR_BYTE, tag]);
        self.buffer.extend(bits.to_le_bytes().iter().take(size));
    }

    /// None.
    #[inline]
    pub fn none(&mut self) {
        self.push(tag::NONE, 0);
    }

    /// A field of a shaped dict that is not there.
    #[inline]
    pub fn absent(&mut self) {
        self.push(tag::ABSENT, 0);
    }

    /// A bool.
    #[inline]
    pub fn bool(&mut self, value: bool) {
        self.push(if value { tag::TRUE } else { tag::FALSE }, 0);
    }

    /// An int of 64 bits.
    #[inline]
    pub fn int(&mut self, value: i64) {
        // Zigzag: as many bits as the signed value takes, so that or-ing many keeps the widest.
        self.frame.need |= ((value << 1) ^ (value >> 63)).cast_unsigned();
        self.push(tag::INT, value.cast_unsigned());
    }

    /// A float.
    #[inline]
    pub fn float(&mut self, value: f64) {
        self.frame.need |= NEEDS_8_BYTES;
        self.push(tag::FLOAT, value.to_bits());
    }

    /// A date, by its ordinal.
    #[inline]
    pub fn date(&mut self, ordinal: u32) {
        self.frame.need |= NEEDS_4_BYTES;
        self.push(tag::DATE, u64::from(ordinal));
    }

    /// A naive datetime: microseconds since 0001-01-01T00:00 times 2, plus fold.
    #[inline]
    pub fn datetime(&mut self, value: i64) {
        self.frame.need |= NEEDS_8_BYTES;
        self.push(tag::DATETIME, value.cast_unsigned());
    }

    /// A string, as UTF-8 (one with lone surrogates is `heap(tag::STR_SURROGATES, ..)`).
    #[inline]
    pub fn str(&mut self, text: &[u8]) {
        if text.len() <= self.frame.inline_size_max {
            self.push(tag::STR_INLINE + text.len() as u8, inline_bits(text));
        } else {
            self.heap(tag::STR, text);
        }
    }

    /// Bytes.
    #[inline]
    pub fn bytes_value(&mut self, value: &[u8]) {
        if value.len() <= self.frame.inline_size_max {
            self.push(tag::BYTES_INLINE + value.len() as u8, inline_bits(value));
        } else {
            self.heap(tag::BYTES, value);
        }
    }

    /// Any payload with a heap tag, 0x40 to 0x4E. Strings and bytes that would fit the slot belong into `str` and
    /// `bytes_value`: the same value must give the same bytes.
    #[inline]
    pub fn heap(&mut self, tag: u8, payload: &[u8]) {
        if self.buffer.len() + payload.len() > RECORD_SIZE_MAX - 16 {
            self.is_too_large = true;
            return;
        }
        if self.outer.is_empty() {
            self.buffer.extend_from_slice(&[SCALAR_BYTE, tag]);
            self.buffer.extend_from_slice(payload);
            return;
        }
        let offset = self.buffer.len() - self.frame.heap;
        if !self.frame.is_root {
            push_varint(&mut self.buffer, payload.len() as u32);
        }
        self.buffer.extend_from_slice(payload);
        self.frame.last = offset + 1;
        self.stage.push(Staged { bits: offset as u64 | (payload.len() as u64) << 32, tag });
    }

    /// A nested container that is already encoded: its bytes, from its head to the end of its heap.
    #[inline]
    pub fn verbatim(&mut self, container: &[u8]) {
        if self.buffer.len() + container.len() > RECORD_SIZE_MAX - 16 {
            self.is_too_large = true;
            return;
        }
        let offset = self.buffer.len();
        self.buffer.extend_from_slice(container);
        self.nested(offset);
    }

    /// Stages the container that stands at the end of the buffer, from `start` on.
    #[inline]
    fn nested(&mut self, start: usize) {
        let offset = start - self.frame.heap;
        let size = self.buffer.len() - start;
        self.frame.last = offset + 1;
        self.stage.push(Staged { bits: offset as u64 | (size as u64) << 32, tag: tag::CONTAINER });
    }

    /// Begins a container of `count` slots (a keyed map: 2 for each entry), at the root or as the next element.
    ///
    /// `shape` is used for shaped dicts only. A `List` of ints alone, or of floats alone, becomes a packed one at its end.
    ///
    /// # Errors
    /// Containers nest more than 64 deep.
    #[inline]
    pub fn begin(&mut self, kind: Kind, count: u32, shape: u32) -> Result<(), EncodeError> {
        if self.depth >= DEPTH_MAX {
            return Err(EncodeError::TooDeep);
        }
        self.depth += 1;
        let is_root = self.outer.is_empty();
        self.outer.push(self.frame);
        let start = self.buffer.len();
        let entries = if kind == Kind::Keyed { count / 2 } else { count };
        let guess = if is_root {
            let head = match kind {
                Kind::Shaped => root_head(kind, ROOT_WIDTH_LOG2, count as u16, shape),
                _ => root_head(kind, ROOT_WIDTH_LOG2, 0, entries),
            };
            self.buffer.extend_from_slice(&head.to_le_bytes());
            ROOT_WIDTH_LOG2
        } else {
            // The width stands in the head's upper nibble and is filled in at the end.
            if kind == Kind::Shaped {
                self.buffer.extend_from_slice(&(shape << 8 | kind as u32).to_le_bytes());
            } else {
                self.buffer.push(kind as u8);
                push_varint(&mut self.buffer, entries);
            }
            u8::from(count > BYTE_WIDE_COUNT_MAX)
        };
        let slots = self.buffer.len();
        let index = if kind == Kind::Keyed { index_size(entries) } else { 0 };
        let heap = slots + (slots_size(count, guess) + index) as usize;
        if heap > RECORD_SIZE_MAX {
            return Err(EncodeError::TooLarge);
        }
        self.buffer.resize(heap, 0);
        self.frame = Frame {
            start,
            slots,
            heap,
            stage: self.stage.len(),
            need: 0,
            last: 0,
            count,
            kind,
            is_root,
            payload_tag: 0,
            inline_size_max: if is_root { ROOT_INLINE_SIZE_MAX } else { NESTED_INLINE_SIZE_MAX },
        };
        Ok(())
    }

    /// Undoes the `begin` of the container begun last, with all that was pushed since; what was begun within it has
    /// ended. For callers that try one shape and find out while writing that the dict has another.
    #[inline]
    pub fn abandon(&mut self) {
        if let Some(outer) = self.outer.pop() {
            self.buffer.truncate(self.frame.start);
            self.stage.truncate(self.frame.stage);
            self.frame = outer;
            self.depth -= 1;
        }
    }

    /// Ends the container begun last.
    ///
    /// # Errors
    /// It got another number of elements than announced, or the record has reached 4 GiB.
    #[inline]
    pub fn end(&mut self) -> Result<(), EncodeError> {
        let frame = self.frame;
        let Some(outer) = self.outer.pop() else { return Err(EncodeError::Unbalanced) };
        let pushed = self.stage.len() - frame.stage;
        if pushed != frame.count as usize || frame.payload_tag != 0 {
            return Err(EncodeError::CountMismatch { announced: frame.count, pushed });
        }
        if self.is_too_large || self.buffer.len() > RECORD_SIZE_MAX {
            return Err(EncodeError::TooLarge);
        }
        self.depth -= 1;
        match frame.kind {
            Kind::List if self.is_uniform(frame.stage) => self.end_packed(&frame),
            Kind::Set | Kind::FrozenSet => self.end_set(frame)?,
            _ => self.end_slots(&frame)?,
        }
        self.stage.truncate(frame.stage);
        self.frame = outer;
        if !frame.is_root {
            self.nested(frame.start);
        }
        Ok(())
    }

    /// Whether the elements from `first` on are all ints or all floats, and there are any.
    #[inline]
    fn is_uniform(&self, first: usize) -> bool {
        let staged = self.stage.get(first..).unwrap_or_default();
        match staged.first() {
            Some(Staged { tag: tag @ (tag::INT | tag::FLOAT), .. }) => {
                staged.iter().all(|element| element.tag == *tag)
            }
            _ => false,
        }
    }

    #[inline]
    fn set_width(&mut self, frame: &Frame, kind: Kind, width_log2: u8) {
        if frame.is_root {
            if let Some(head) = self.buffer.get_mut(frame.start..frame.start + 2) {
                head.copy_from_slice(&[kind.root_byte(), width_log2]);
            }
        } else if let Some(head) = self.buffer.get_mut(frame.start) {
            *head = width_log2 << 4 | kind as u8;
        }
    }

    /// A list of ints, packed; an empty one becomes an empty list.
    ///
    /// # Errors
    /// As `begin` and `end`.
    pub fn packed_ints(&mut self, values: &[i64]) -> Result<(), EncodeError> {
        self.begin(Kind::List, u32::try_from(values.len()).map_err(|_| EncodeError::TooLarge)?, 0)?;
        for value in values {
            self.int(*value);
        }
        self.end()
    }

    /// A list of floats, packed; an empty one becomes an empty list.
    ///
    /// # Errors
    /// As `begin` and `end`.
    pub fn packed_floats(&mut self, values: &[f64]) -> Result<(), EncodeError> {
        self.begin(Kind::List, u32::try_from(values.len()).map_err(|_| EncodeError::TooLarge)?, 0)?;
        for value in values {
            self.float(*value);
        }
        self.end()
    }

    /// Begins a payload that is itself a nested container, with bytes behind it or none: `NDARRAY` or `REGISTERED`. The one
    /// container is pushed next, then comes `end_payload`.
    pub fn begin_payload(&mut self, tag: u8) {
        if self.outer.is_empty() {
            self.buffer.extend_from_slice(&[SCALAR_BYTE, tag]);
        }
        let is_sized = !self.outer.is_empty() && !self.frame.is_root;
        let start = self.buffer.len();
        self.outer.push(self.frame);
        // Most payloads of this sort are larger than a one-byte size can say only when they are arrays, which are copied
        // as a block anyway: the size is put before the payload when it is known.
        self.frame = Frame {
            start,
            heap: start,
            stage: self.stage.len(),
            count: 1,
            is_root: !is_sized,
            payload_tag: tag,
            inline_size_max: NESTED_INLINE_SIZE_MAX,
            ..NOTHING
        };
    }

    /// Ends the payload begun last, with `data` behind its container.
    ///
    /// # Errors
    /// It does not hold one container, or the record has reached 4 GiB.
    pub fn end_payload(&mut self, data: &[u8]) -> Result<(), EncodeError> {
        let frame = self.frame;
        let is_one_container = self.stage.len() == frame.stage + 1
            && self.stage.last().is_some_and(|last| last.tag == tag::CONTAINER);
        let Some(outer) = self.outer.pop() else { return Err(EncodeError::Unbalanced) };
        if frame.payload_tag == 0 || !is_one_container {
            return Err(EncodeError::Unbalanced);
        }
        if self.is_too_large || self.buffer.len() + data.len() > RECORD_SIZE_MAX - 16 {
            return Err(EncodeError::TooLarge);
        }
        self.buffer.extend_from_slice(data);
        self.stage.truncate(frame.stage);
        self.frame = outer;
        if self.outer.is_empty() {
            return Ok(());
        }
        let size = self.buffer.len() - frame.start;
        if !outer.is_root {
            self.move_heap(frame.start, frame.start + varint_size(size as u32))?;
            let mut stated = Vec::with_capacity(5);
            push_varint(&mut stated, size as u32);
            if let Some(target) = self.buffer.get_mut(frame.start..frame.start + stated.len()) {
                target.copy_from_slice(&stated);
            }
        }
        let offset = frame.start - self.frame.heap;
        self.frame.last = offset + 1;
        self.stage.push(Staged { bits: offset as u64 | (size as u64) << 32, tag: frame.payload_tag });
        Ok(())
    }

    /// Ends an array: after `begin_payload(tag::NDARRAY)`, `begin(Kind::Tuple, 4, 0)`, the dtype and the shape. `flags`: 1
    /// Fortran order, 2 scalar; `data` are the raw elements.
    ///
    /// # Errors
    /// As `end` and `end_payload`.
    pub fn end_ndarray(&mut self, flags: u8, data: &[u8]) -> Result<(), EncodeError> {
        let start = self.frame.start;
        let slots = self.frame.slots;
        // The data begins where this tuple ends, and the offset of that is in the tuple. Its width is chosen for the most
        // that can come out, four slots widened from 1 to 8 bytes; then the truth is written over that.
        let bound = self.buffer.len() - start + 4 * 7;
        self.int(i64::from(flags));
        self.int(bound.cast_signed() as i64);
        self.end()?;
        let size = self.buffer.len() - start;
        debug_assert!(size <= bound);
        let width_log2 = self.buffer.get(start).map_or(0, |head| head >> 4);
        let at = slots + slot_position(4, width_log2, 3).1;
        if let Some(slot) = self.buffer.get_mut(at..at + (1 << width_log2)) {
            slot.iter_mut().zip(size.to_le_bytes()).for_each(|(target, source)| *target = source);
        }
        self.end_payload(data)
    }
}

/// The slot of a string or of bytes that fit it, padded with zeros.
#[inline]
fn inline_bits(text: &[u8]) -> u64 {
    let mut slot = [0; 8];
    for (target, source) in slot.iter_mut().zip(text) {
        *target = *source;
    }
    u64::from_le_bytes(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_abandoned_container_leaves_no_trace() {
        let write = |detour: bool| {
            let mut encoder = Encoder::new();
            encoder.begin(Kind::List, 2, 0).unwrap();
            encoder.str(b"before");
            if detour {
                encoder.begin(Kind::Shaped, 3, 7).unwrap();
                encoder.str(b"a string that goes to the heap");
                encoder.begin(Kind::List, 1, 0).unwrap();
                encoder.int(1);
                encoder.end().unwrap();
                encoder.abandon();
            }
            encoder.begin(Kind::Keyed, 2, 0).unwrap();
            encoder.str(b"key");
            encoder.int(1);
            encoder.end().unwrap();
            encoder.end().unwrap();
            encoder.take()
        };
        assert_eq!(write(true), write(false));
    }
}
