//! The encoder: turns values into the bytes of a record.
//!
//! [`Encoder`] gets a value in parts, as the caller walks it: `begin`, an element for each slot,
//! `end`. Elements are staged and written when their container ends, because the slot width depends
//! on all of them. Heap entries are written at once, after a gap for the slots of the expected
//! width. A wrong guess costs one move of that heap.
//!
//! This is the hottest code of the project. Lessons of the profile: the frames of open containers
//! are changed in place, because copying one to a variable and back waits for earlier narrow stores
//! (40 % of the time, once). And nothing short may end in a call of memcpy or memset (`buffer.rs`).

mod buffer;
mod finish;
mod flat;
mod short;

use crate::error::EncodeError;
use crate::layout::{
    ARRAY_ALIGNMENT, DEPTH_MAX, Kind, NESTED_INLINE_SIZE_MAX, RECORD_SIZE_MAX, ROOT_INLINE_SIZE_MAX,
    ROOT_WIDTH_LOG2, SCALAR_BYTE, SHAPE_ID_END, SHAPE_NAME_COUNT_MAX, index_size, root_head, slot_position,
    slots_size, tag, varint_size,
};
pub use buffer::copy;
use buffer::{Buffer, inline_bits};
pub use flat::Simple;
pub use short::{SHORT_RECORD_SIZE, short_bytes_record, short_record};

/// Memory for more elements than this is reserved in advance, so that a shortage can be reported.
const STAGE_COUNT_UNASKED: u32 = 1 << 16;
/// Set in `Frame::need` by values that need a slot of 8 bytes.
const NEEDS_8_BYTES: u64 = 1 << 63;
/// Set in `Frame::need` by dates, which take 22 bits.
const NEEDS_4_BYTES: u64 = 1 << 31;
/// A nested container with more slots than this probably has heap offsets above one byte.
const BYTE_WIDE_COUNT_MAX: u32 = 80;
/// The limit of open containers and payloads (each payload contains one container), plus one for
/// the root. All values of a u8 are valid indexes, so no access can miss.
const FRAME_COUNT: usize = 256;
const _: () = assert!(2 * DEPTH_MAX as usize + 2 < FRAME_COUNT);

/// An element whose slot is not written yet.
#[derive(Clone, Copy, Debug)]
struct Staged {
    /// The slot, 8 bytes wide. For a heap tag: the entry's offset in the heap in the lower half,
    /// and the payload's size in the upper half.
    bits: u64,
    tag: u8,
}

/// A container, or a payload around one, that was begun and not ended.
#[derive(Clone, Copy, Debug)]
struct Frame {
    /// All slot values, or-ed: determines the width.
    need: u64,
    /// The offset of its first byte.
    start: u32,
    /// The offset of its first slot.
    slots: u32,
    /// The offset of its heap, after the gap for slots of the guessed width.
    heap: u32,
    /// The heap offset of the last entry plus one; 0 if the heap is empty.
    last: u32,
    /// The index of its first element in the stage.
    stage: u32,
    count: u32,
    kind: Kind,
    is_root: bool,
    /// If not 0, this is the payload of that tag, and its one element is a container.
    payload_tag: u8,
    inline_size_max: u8,
}

/// The frame when nothing is open: elements are scalars at the root.
const NOTHING: Frame = Frame {
    need: 0,
    start: 0,
    slots: 0,
    heap: 0,
    last: 0,
    stage: 0,
    count: 0,
    kind: Kind::List,
    is_root: true,
    payload_tag: 0,
    inline_size_max: ROOT_INLINE_SIZE_MAX as u8,
};

/// Writes records, one after another, into a reusable buffer.
///
/// A value that is pushed before the first `begin` is a scalar at the root. A mistake of the caller
/// (a wrong count) or a limit (depth, size) is returned as an error by `begin` or `end`; after that
/// the encoder must be cleared.
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
    buffer: Buffer,
    stage: Vec<Staged>,
    frames: Box<[Frame; FRAME_COUNT]>,
    /// The index of the open frame; 0 if there is none.
    top: u8,
    depth: u8,
    last_width_log2: u8,
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
            buffer: Buffer::default(),
            stage: Vec::new(),
            frames: Box::new([NOTHING; FRAME_COUNT]),
            top: 0,
            depth: 0,
            last_width_log2: 0,
            is_too_large: false,
        }
    }

    /// Drops the bytes and keeps the memory.
    #[inline]
    pub fn clear(&mut self) {
        self.buffer.truncate(0);
        self.stage.clear();
        self.top = 0;
        self.depth = 0;
        self.is_too_large = false;
    }

    /// The record, after its root has ended.
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        self.buffer.bytes()
    }

    /// The record as a vector of its own. The encoder is cleared.
    #[must_use]
    pub fn take(&mut self) -> Vec<u8> {
        let bytes = self.buffer.take();
        self.clear();
        bytes
    }

    /// The largest record that fits into the buffer without growing it.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.buffer.capacity()
    }

    /// The number of containers begun and not ended.
    #[inline]
    #[must_use]
    pub fn depth(&self) -> u32 {
        u32::from(self.depth)
    }

    #[inline]
    #[expect(clippy::indexing_slicing, reason = "there are as many frames as a u8 counts")]
    fn frame(&mut self) -> &mut Frame {
        &mut self.frames[usize::from(self.top)]
    }

    #[inline]
    fn push(&mut self, tag: u8, bits: u64) {
        if self.top == 0 {
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
        self.buffer.push_array([SCALAR_BYTE, tag]);
        self.buffer.push(bits.to_le_bytes().get(..size).unwrap_or_default());
    }

    /// None.
    #[inline]
    pub fn none(&mut self) {
        self.push(tag::NONE, 0);
    }

    /// An absent field of a shaped dict.
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
        // Zigzag: needs as many bits as the signed value, so that or-ing many values keeps the
        // widest.
        self.frame().need |= ((value << 1) ^ (value >> 63)).cast_unsigned();
        self.push(tag::INT, value.cast_unsigned());
    }

    /// A float.
    #[inline]
    pub fn float(&mut self, value: f64) {
        self.frame().need |= NEEDS_8_BYTES;
        self.push(tag::FLOAT, value.to_bits());
    }

    /// A date, by its ordinal.
    #[inline]
    pub fn date(&mut self, ordinal: u32) {
        self.frame().need |= NEEDS_4_BYTES;
        self.push(tag::DATE, u64::from(ordinal));
    }

    /// A naive datetime: microseconds since 0001-01-01T00:00 times 2, plus fold.
    #[inline]
    pub fn datetime(&mut self, value: i64) {
        self.frame().need |= NEEDS_8_BYTES;
        self.push(tag::DATETIME, value.cast_unsigned());
    }

    /// A string, as UTF-8 (one with lone surrogates is `heap(tag::STR_SURROGATES, ..)`).
    #[inline]
    pub fn str(&mut self, text: &[u8]) {
        if text.len() <= usize::from(self.frame().inline_size_max) {
            self.push(tag::STR_INLINE + text.len() as u8, inline_bits(text));
        } else {
            self.heap(tag::STR, text);
        }
    }

    /// Bytes.
    #[inline]
    pub fn bytes_value(&mut self, value: &[u8]) {
        if value.len() <= usize::from(self.frame().inline_size_max) {
            self.push(tag::BYTES_INLINE + value.len() as u8, inline_bits(value));
        } else {
            self.heap(tag::BYTES, value);
        }
    }

    /// Any payload with a heap tag, 0x40 to 0x4E. Strings and bytes that fit into the slot have to
    /// use `str` and `bytes_value`: the same value must give the same bytes.
    #[inline]
    pub fn heap(&mut self, tag: u8, payload: &[u8]) {
        if !self.has_room(payload.len()) {
            return;
        }
        if self.top == 0 {
            self.buffer.push_array([SCALAR_BYTE, tag]);
            self.buffer.push(payload);
            return;
        }
        let start = self.buffer.size();
        if self.frame().is_root {
            self.buffer.push(payload);
        } else {
            self.buffer.push_sized(payload);
        }
        self.stage_entry(tag, start, payload.len());
    }

    /// A nested container that is already encoded: its bytes, from its head to the end of its heap.
    #[inline]
    pub fn verbatim(&mut self, container: &[u8]) {
        debug_assert!(self.top > 0, "a nested container is no root");
        if self.has_room(container.len()) {
            let start = self.buffer.size();
            self.buffer.push(container);
            self.stage_entry(tag::CONTAINER, start, container.len());
        }
    }

    /// Whether the record stays below 4 GiB with `size` bytes more, plus their size and slots. If
    /// not, `end` reports it.
    #[inline]
    fn has_room(&mut self, size: usize) -> bool {
        if self.buffer.size() + size < RECORD_SIZE_MAX - 64 {
            return true;
        }
        self.is_too_large = true;
        false
    }

    /// Stages the heap entry that begins at `start` in the buffer, with a payload of `size`.
    #[inline]
    fn stage_entry(&mut self, tag: u8, start: usize, size: usize) {
        self.stage_entry_of(self.top, tag, start, size);
    }

    /// `stage_entry` for a caller that has `top` in a register: reading back what was just stored
    /// takes time.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "there are as many frames as a u8 counts")]
    fn stage_entry_of(&mut self, top: u8, tag: u8, start: usize, size: usize) {
        let frame = &mut self.frames[usize::from(top)];
        let offset = start as u32 - frame.heap;
        frame.last = offset + 1;
        self.stage.push(Staged { bits: u64::from(offset) | (size as u64) << 32, tag });
    }

    /// Begins a container of `count` slots (a keyed map: 2 for each entry), at the root or as the
    /// next element.
    ///
    /// `shape` is used for shaped dicts only. A `List` of only ints, or only floats, becomes a
    /// packed one at its end.
    ///
    /// # Errors
    /// Containers nest more than 64 deep, or the slots alone reach 4 GiB.
    #[inline]
    pub fn begin(&mut self, kind: Kind, count: u32, shape: u32) -> Result<(), EncodeError> {
        self.begin_as_wide(kind, count, shape, u8::from(count > BYTE_WIDE_COUNT_MAX))
    }

    /// As `begin`, for a caller that knows the slot width of the last such container
    /// (`width_log2`): the heap is then written to its final place. The result does not depend on
    /// it.
    ///
    /// # Errors
    /// As `begin`.
    #[inline]
    pub fn begin_as_wide(
        &mut self,
        kind: Kind,
        count: u32,
        shape: u32,
        width_log2: u8,
    ) -> Result<(), EncodeError> {
        debug_assert!(!kind.is_packed(), "a list of numbers alone is packed at its end");
        debug_assert!(kind != Kind::Keyed || count.is_multiple_of(2), "an entry has a key and a value");
        debug_assert!(kind != Kind::Shaped || shape < SHAPE_ID_END && count as usize <= SHAPE_NAME_COUNT_MAX);
        let start = self.buffer.size();
        let is_root = self.top == 0;
        let entries = if kind == Kind::Keyed { count / 2 } else { count };
        if u32::from(self.depth) >= DEPTH_MAX {
            return Err(EncodeError::TooDeep);
        }
        if count > STAGE_COUNT_UNASKED && self.stage.try_reserve(count as usize).is_err() {
            return Err(EncodeError::NoMemory);
        }
        let guess = if is_root {
            let head = match kind {
                Kind::Shaped => root_head(kind, ROOT_WIDTH_LOG2, count as u16, shape),
                _ => root_head(kind, ROOT_WIDTH_LOG2, 0, entries),
            };
            self.buffer.push_array(head.to_le_bytes());
            ROOT_WIDTH_LOG2
        } else {
            // The width is in the head's upper nibble, and is filled in at the end.
            if kind == Kind::Shaped {
                self.buffer.push_array((shape << 8 | kind as u32).to_le_bytes());
            } else {
                self.buffer.push_array([kind as u8]);
                self.buffer.push_varint(entries);
            }
            width_log2.min(ROOT_WIDTH_LOG2)
        };
        let slots = self.buffer.size();
        let index = if kind == Kind::Keyed { index_size(entries) } else { 0 };
        let gap = (slots_size(count, guess) + index) as usize;
        if slots + gap > RECORD_SIZE_MAX {
            return Err(EncodeError::TooLarge);
        }
        self.buffer.gap(gap);
        let stage = self.stage.len() as u32;
        self.top += 1;
        self.depth += 1;
        let (start, slots, heap) = (start as u32, slots as u32, (slots + gap) as u32);
        let inline_size_max = if is_root { ROOT_INLINE_SIZE_MAX } else { NESTED_INLINE_SIZE_MAX } as u8;
        *self.frame() = Frame {
            need: 0,
            start,
            slots,
            heap,
            last: 0,
            stage,
            count,
            kind,
            is_root,
            payload_tag: 0,
            inline_size_max,
        };
        Ok(())
    }

    /// log2 of the slot width of the container that ended last, for `begin_as_wide`.
    #[inline]
    #[must_use]
    pub fn last_width_log2(&self) -> u8 {
        self.last_width_log2
    }

    /// Undoes the last `begin`, with everything pushed since. Containers begun inside it have to be
    /// ended. For callers that try one shape and find out while writing that the dict has another.
    #[inline]
    pub fn roll_back(&mut self) {
        if self.top > 0 {
            let Frame { start, stage, .. } = *self.frame();
            self.buffer.truncate(start as usize);
            self.stage.truncate(stage as usize);
            self.top -= 1;
            self.depth -= 1;
        }
    }

    /// Ends the container begun last.
    ///
    /// # Errors
    /// It got another number of elements than announced, or the record has reached 4 GiB.
    #[inline]
    #[expect(clippy::indexing_slicing, reason = "there are as many frames as a u8 counts")]
    pub fn end(&mut self) -> Result<(), EncodeError> {
        let top = self.top;
        let frame = &self.frames[usize::from(top)];
        let staged = self.stage.get(frame.stage as usize..).unwrap_or_default();
        if staged.len() != frame.count as usize || frame.payload_tag != 0 {
            return Err(EncodeError::CountMismatch { announced: frame.count, pushed: staged.len() });
        }
        if top == 0 {
            return Err(EncodeError::Unbalanced);
        }
        if self.is_too_large || self.buffer.size() > RECORD_SIZE_MAX {
            return Err(EncodeError::TooLarge);
        }
        self.last_width_log2 = finish::finish(frame, staged, &mut self.buffer)?;
        let (start, is_root) = (frame.start as usize, frame.is_root);
        self.stage.truncate(frame.stage as usize);
        self.top = top - 1;
        self.depth -= 1;
        if !is_root {
            self.stage_entry_of(top - 1, tag::CONTAINER, start, self.buffer.size() - start);
        }
        Ok(())
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

    /// Begins a payload that is itself a nested container, followed by bytes or not: `NDARRAY` or
    /// `REGISTERED`. Push the one container next, then call `end_payload`.
    pub fn begin_payload(&mut self, tag: u8) {
        let Some(top) = self.top.checked_add(1) else {
            // Only payloads without a container get here; the first `end_payload` reports it.
            return;
        };
        if self.top == 0 {
            self.buffer.push_array([SCALAR_BYTE, tag]);
        }
        // The size is inserted before the payload when it is known. Most such payloads need more
        // than the one byte that could be left for it, and an array is copied as a block anyway.
        let start = self.buffer.size() as u32;
        let stage = self.stage.len() as u32;
        self.top = top;
        let inline_size_max = NESTED_INLINE_SIZE_MAX as u8;
        *self.frame() = Frame {
            start,
            heap: start,
            stage,
            count: 1,
            payload_tag: tag,
            inline_size_max,
            is_root: false,
            ..NOTHING
        };
    }

    /// Ends the payload begun last, with `data` after its container.
    ///
    /// # Errors
    /// It does not contain one container, or the record has reached 4 GiB.
    pub fn end_payload(&mut self, data: &[u8]) -> Result<(), EncodeError> {
        self.end_payload_after(0, data)
    }

    /// As `end_payload`, with some zeros ahead of `data`.
    fn end_payload_after(&mut self, gap: usize, data: &[u8]) -> Result<(), EncodeError> {
        let Frame { start, stage, payload_tag, .. } = *self.frame();
        let is_one_container = self.stage.len() == stage as usize + 1
            && self.stage.last().is_some_and(|last| last.tag == tag::CONTAINER);
        if payload_tag == 0 || !is_one_container {
            return Err(EncodeError::Unbalanced);
        }
        if !self.has_room(gap + data.len()) || self.is_too_large {
            return Err(EncodeError::TooLarge);
        }
        self.buffer.gap(gap).fill(0);
        self.buffer.push(data);
        self.stage.truncate(stage as usize);
        self.top -= 1;
        if self.top == 0 {
            return Ok(());
        }
        let start = start as usize;
        let size = self.buffer.size() - start;
        if !self.frame().is_root {
            let behind = start + varint_size(size as u32);
            self.buffer.move_tail(start, behind);
            let end = self.buffer.size();
            self.buffer.truncate(start);
            self.buffer.push_varint(size as u32);
            self.buffer.gap(end - behind);
        }
        self.stage_entry(payload_tag, start, size);
        Ok(())
    }

    /// Ends an array: after `begin_payload(tag::NDARRAY)`, `begin(Kind::Tuple, 4, 0)`, the dtype
    /// and the shape. `flags`: 1 Fortran order, 2 scalar; `data` are the raw elements. If it is
    /// known how many bytes after a multiple of 64 the payload will lie, `behind` says so, and the
    /// data will lie at a multiple of 64.
    ///
    /// # Errors
    /// As `end` and `end_payload`.
    pub fn end_ndarray(&mut self, flags: u8, data: &[u8], behind: Option<usize>) -> Result<(), EncodeError> {
        let Frame { start, slots, .. } = *self.frame();
        let (start, slots) = (start as usize, slots as usize);
        // The data begins where this tuple ends, and the tuple contains that offset. Its width is
        // chosen for the largest possible value, four slots widened from 1 to 8 bytes; then the
        // real value is written over it.
        let bound = self.buffer.size() - start + 4 * 7 + behind.map_or(0, |_| ARRAY_ALIGNMENT);
        self.int(i64::from(flags));
        self.int(bound.cast_signed() as i64);
        self.end()?;
        let gap =
            behind.map_or(0, |behind| (behind + self.buffer.size() - start).wrapping_neg() % ARRAY_ALIGNMENT);
        let size = self.buffer.size() - start + gap;
        debug_assert!(size <= bound);
        let width_log2 = self.buffer.bytes().get(start).map_or(0, |head| head >> 4);
        let at = slots + slot_position(4, width_log2, 3).1;
        let slot = self.buffer.part_mut(at, at + (1 << width_log2));
        slot.iter_mut().zip(size.to_le_bytes()).for_each(|(target, source)| *target = source);
        self.end_payload_after(gap, data)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rolled_back_container_leaves_no_trace() {
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
                encoder.roll_back();
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
