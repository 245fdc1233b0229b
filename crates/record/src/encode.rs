//! How do values become the bytes of a record?
//!
//! [`Encoder`] takes a value part by part, as a caller walks it: `begin`, an element for each slot, `end`. Elements are staged
//! and written when their container ends, because its slot width depends on all of them; what goes to the heap is written
//! at once, behind a gap for the slots as they will probably be. A wrong guess costs one move of that heap.

use crate::error::EncodeError;
use crate::keyed;
use crate::layout::{
    BLOCK_SLOTS, DEPTH_MAX, INDEX_ENTRY_COUNT_MIN, Kind, NESTED_INLINE_SIZE_MAX, RECORD_SIZE_MAX,
    ROOT_INLINE_SIZE_MAX, ROOT_WIDTH_LOG2, SCALAR_BYTE, index_size, push_varint, root_head, slots_size, tag,
    varint_size,
};
use crate::shape::Shape;
use crate::view::{Container, Slot};

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

    fn end_packed(&mut self, frame: &Frame) {
        let staged = self.stage.get(frame.stage..).unwrap_or_default();
        let kind = if staged.first().is_some_and(|first| first.tag == tag::INT) {
            Kind::PackedInts
        } else {
            Kind::PackedFloats
        };
        let width_log2 = width_of(frame.need);
        self.buffer.truncate(frame.slots);
        self.buffer.reserve(staged.len() << width_log2);
        for element in staged {
            let bits = element.bits.to_le_bytes();
            self.buffer.extend(bits.iter().take(1 << width_log2));
        }
        self.set_width(frame, kind, width_log2);
    }

    /// A list of ints, packed; an empty one becomes an empty list.
    ///
    /// # Errors
    /// As `begin` and `end`.
    pub fn packed_ints(&mut self, values: &[i64]) -> Result<(), EncodeError> {
        self.begin(Kind::List, u32::try_from(values.len()).map_err(|_| EncodeError::TooLarge)?, 0)?;
        values.iter().for_each(|value| self.int(*value));
        self.end()
    }

    /// A list of floats, packed; an empty one becomes an empty list.
    ///
    /// # Errors
    /// As `begin` and `end`.
    pub fn packed_floats(&mut self, values: &[f64]) -> Result<(), EncodeError> {
        self.begin(Kind::List, u32::try_from(values.len()).map_err(|_| EncodeError::TooLarge)?, 0)?;
        values.iter().for_each(|value| self.float(*value));
        self.end()
    }

    /// Writes the slots of a container whose elements are all known.
    #[inline]
    fn end_slots(&mut self, frame: &Frame) -> Result<(), EncodeError> {
        let index = if frame.kind == Kind::Keyed { index_size(frame.count / 2) } else { 0 };
        let mut width_log2 = ROOT_WIDTH_LOG2;
        let mut heap = frame.heap;
        if !frame.is_root {
            width_log2 = width_of(frame.need);
            loop {
                heap = frame.slots + (slots_size(frame.count, width_log2) + index) as usize;
                let reach = heap - frame.start + frame.last;
                // `last` is one more than the offset that must fit; 8 bytes hold an offset of 4.
                if frame.last == 0 || width_log2 == 3 || (reach - 1) as u64 >> (8 << width_log2) == 0 {
                    break;
                }
                width_log2 += 1;
            }
            if heap != frame.heap {
                self.move_heap(frame.heap, heap)?;
            }
            self.set_width(frame, frame.kind, width_log2);
        }
        let base = (heap - frame.start) as u64;
        let staged = self.stage.get(frame.stage..).unwrap_or_default();
        let slots_end = frame.slots + slots_size(frame.count, width_log2) as usize;
        let slots = self.buffer.get_mut(frame.slots..slots_end).unwrap_or_default();
        match width_log2 {
            0 => write_slots::<1>(slots, staged, base),
            1 => write_slots::<2>(slots, staged, base),
            2 => write_slots::<4>(slots, staged, base),
            _ => write_wide_slots(slots, staged, base, frame.is_root),
        }
        if index != 0 {
            self.write_index(frame, slots_end, heap)?;
        }
        Ok(())
    }

    /// Moves the heap that begins at `from`, with all behind it, to `to`.
    #[cold]
    fn move_heap(&mut self, from: usize, to: usize) -> Result<(), EncodeError> {
        let end = self.buffer.len();
        if to > from {
            if end + (to - from) > RECORD_SIZE_MAX {
                return Err(EncodeError::TooLarge);
            }
            self.buffer.resize(end + (to - from), 0);
            self.buffer.copy_within(from..end, to);
        } else {
            self.buffer.copy_within(from..end, to);
            self.buffer.truncate(end - (from - to));
        }
        Ok(())
    }

    /// Where an element of the heap at `heap` stands: its first byte, its payload and its end.
    fn heap_entry(&self, frame: &Frame, heap: usize, element: &Staged) -> (usize, usize, usize) {
        let offset = heap + (element.bits & 0xFFFF_FFFF) as usize;
        let size = (element.bits >> 32) as usize;
        let has_size = !frame.is_root && element.tag != tag::CONTAINER;
        let payload = offset + if has_size { varint_size(size as u32) } else { 0 };
        (offset, payload, payload + size)
    }

    /// Sorts a set's elements by (tag, payload) and its heap with them; then writes the slots.
    #[cold]
    fn end_set(&mut self, mut frame: Frame) -> Result<(), EncodeError> {
        let mut elements = self.stage.split_off(frame.stage);
        let old_heap = self.buffer.split_off(frame.heap);
        let payload = |element: &Staged| {
            let (_, payload, end) = self.heap_entry(&frame, 0, element);
            old_heap.get(payload..end).unwrap_or_default()
        };
        elements.sort_by(|a, b| {
            a.tag.cmp(&b.tag).then_with(|| match a.tag < tag::HEAP {
                true => a.bits.to_le_bytes().cmp(&b.bits.to_le_bytes()),
                false => payload(a).cmp(payload(b)),
            })
        });
        frame.last = 0;
        for mut element in elements {
            if element.tag >= tag::HEAP {
                let (offset, _, end) = self.heap_entry(&frame, 0, &element);
                let moved = self.buffer.len() - frame.heap;
                self.buffer.extend_from_slice(old_heap.get(offset..end).unwrap_or_default());
                element.bits = element.bits & !0xFFFF_FFFF | moved as u64;
                frame.last = moved + 1;
            }
            self.stage.push(element);
        }
        self.end_slots(&frame)
    }

    /// Writes the index of a keyed map at `at`, between its slots and its heap.
    #[cold]
    fn write_index(&mut self, frame: &Frame, at: usize, heap: usize) -> Result<(), EncodeError> {
        let staged = self.stage.get(frame.stage..).unwrap_or_default();
        let mut entries = Vec::with_capacity(staged.len() / 2);
        for (entry, key) in staged.iter().step_by(2).enumerate() {
            let mut canonical = Vec::new();
            let (_, start, end) = self.heap_entry(frame, heap, key);
            push_staged_canonical(&self.buffer, key, start, end, &mut canonical);
            entries.push((keyed::hash(&canonical), canonical, entry as u32));
        }
        entries.sort_unstable();
        debug_assert_eq!(index_size(entries.len() as u32) as usize, heap - at);
        debug_assert!(entries.len() >= INDEX_ENTRY_COUNT_MIN as usize);
        let index = self.buffer.get_mut(at..heap).unwrap_or_default();
        for (target, (hash, _, entry)) in index.chunks_exact_mut(8).zip(entries) {
            target.copy_from_slice(&(u64::from(hash) | u64::from(entry) << 32).to_le_bytes());
        }
        Ok(())
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

/// log2 of the narrowest width, in bytes, that holds these bits.
#[inline]
fn width_of(need: u64) -> u8 {
    match 64 - need.leading_zeros() {
        0..=8 => 0,
        9..=16 => 1,
        17..=32 => 2,
        _ => 3,
    }
}

/// Appends the canonical bytes of a staged key, whose heap entry, if any, is `start..end`.
fn push_staged_canonical(buffer: &[u8], key: &Staged, start: usize, end: usize, out: &mut Vec<u8>) {
    const NO_SHAPES: &[Shape] = &[];
    let inline = key.bits.to_le_bytes();
    let payload = buffer.get(start..end).unwrap_or_default();
    let slot = match key.tag {
        tag::NONE => Slot::None,
        tag::FALSE => Slot::Bool(false),
        tag::TRUE => Slot::Bool(true),
        tag::INT => Slot::Int(key.bits.cast_signed()),
        tag::FLOAT => Slot::Float(f64::from_bits(key.bits)),
        tag::DATE => Slot::Date(key.bits as u32),
        tag::DATETIME => Slot::Datetime(key.bits.cast_signed()),
        tag::STR_INLINE..=tag::STR_INLINE_LAST => {
            Slot::Str(inline.get(..usize::from(key.tag - tag::STR_INLINE)).unwrap_or_default())
        }
        tag::BYTES_INLINE..=tag::BYTES_INLINE_LAST => Slot::Heap {
            tag: tag::BYTES,
            payload: inline.get(..usize::from(key.tag - tag::BYTES_INLINE)).unwrap_or_default(),
            offset: 0,
        },
        tag::STR => Slot::Str(payload),
        tag::CONTAINER => match Container::nested(buffer, start as u32, end as u32, NO_SHAPES) {
            Ok(container) => Slot::Container(container),
            // A dict cannot be a key; if one is pushed all the same, its bytes identify it.
            Err(_) => Slot::Heap { tag: tag::CONTAINER, payload, offset: 0 },
        },
        tag => Slot::Heap { tag, payload, offset: 0 },
    };
    let start = out.len();
    if keyed::push_canonical(buffer, NO_SHAPES, &slot, out).is_err() {
        out.truncate(start);
        out.extend_from_slice(&[keyed::UNORDERED, key.tag]);
        out.extend_from_slice(payload);
    }
}

/// Writes blocks of slots of `W` bytes, W < 8. `base` is added to the offsets of heap entries.
#[inline]
fn write_slots<const W: usize>(out: &mut [u8], staged: &[Staged], base: u64) {
    let block_size = BLOCK_SLOTS as usize * (1 + W);
    for (block, elements) in out.chunks_mut(block_size).zip(staged.chunks(BLOCK_SLOTS as usize)) {
        let (tags, slots) = block.split_at_mut(elements.len());
        for ((tag, slot), element) in tags.iter_mut().zip(slots.chunks_exact_mut(W)).zip(elements) {
            *tag = element.tag;
            let bits = match element.tag < tag::HEAP {
                true => element.bits,
                false => (element.bits & 0xFFFF_FFFF) + base,
            };
            for (target, source) in slot.iter_mut().zip(bits.to_le_bytes()) {
                *target = source;
            }
        }
    }
}

/// Writes blocks of slots of 8 bytes, which refer to a payload itself; in a nested container its size stands before it.
#[inline]
fn write_wide_slots(out: &mut [u8], staged: &[Staged], base: u64, is_root: bool) {
    let block_size = BLOCK_SLOTS as usize * 9;
    for (block, elements) in out.chunks_mut(block_size).zip(staged.chunks(BLOCK_SLOTS as usize)) {
        let (tags, slots) = block.split_at_mut(elements.len());
        for ((tag, slot), element) in tags.iter_mut().zip(slots.chunks_exact_mut(8)).zip(elements) {
            *tag = element.tag;
            let mut bits = element.bits;
            if element.tag >= tag::HEAP {
                bits += base;
                if !is_root && element.tag != tag::CONTAINER {
                    bits += varint_size((element.bits >> 32) as u32) as u64;
                }
            }
            slot.copy_from_slice(&bits.to_le_bytes());
        }
    }
}
