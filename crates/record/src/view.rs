//! Reads one part of a record without decoding the rest.
//!
//! A [`Container`] is a checked head: its begin and end, the place and number of its slots. It
//! borrows nothing, so it can be kept beside the bytes. [`Container::slot`] reads one slot in O(1);
//! [`Walker`] reads all of them, in order. Each access checks its own bounds, so an unvalidated
//! record can only give wrong values.
//!
//! The short functions are inlined by force. A `Slot` is returned in memory, written in parts; a
//! caller that copies it as a whole waits for these stores, which took longer (4 ns) than reading
//! the slot.
#![expect(clippy::inline_always, reason = "see above")]

use crate::error::{Corrupt, Damage, Result};
use crate::keyed;
use crate::layout::{
    FORMAT_VERSION, Kind, NESTED_SHAPED_HEAD_SIZE, RECORD_SIZE_MAX, ROOT_HEAD_SIZE, ROOT_WIDTH_LOG2,
    SCALAR_BYTE, SCALAR_HEAD_SIZE, SHAPE_ID_END, index_size, read_varint, slot_position, slots_size, tag,
};
use crate::shape::Shapes;
pub use crate::walk::Walker;

/// A container within a record. All offsets count from the record's first byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Container {
    /// The offset of its first byte. Offsets in its slots count from here.
    pub start: u32,
    /// The offset after its last byte; for a container in a slot narrower than 8 bytes, the end of
    /// the outer container.
    pub end: u32,
    /// The offset of its first block (of a packed one: of its first element).
    pub slots: u32,
    /// What `heap_start` returns; stored because each slot that refers to the heap is compared with
    /// it.
    pub(crate) heap: u32,
    /// The number of its slots; a keyed map has two for each entry.
    pub count: u32,
    /// The shape's id of a shaped dict; otherwise 0.
    pub shape: u32,
    /// Its kind.
    pub kind: Kind,
    /// log2 of the width of a slot.
    pub width_log2: u8,
}

/// The value of a slot. Text is not checked to be UTF-8; the code that makes a `str` of it does
/// that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Slot<'a> {
    /// The field was deleted.
    Absent,
    /// None.
    None,
    /// A bool.
    Bool(bool),
    /// An int of 64 bits or fewer.
    Int(i64),
    /// A float.
    Float(f64),
    /// A date's ordinal.
    Date(u32),
    /// A naive datetime: microseconds since 0001-01-01T00:00 times 2, plus fold.
    Datetime(i64),
    /// A string, from the slot or the heap.
    Str(&'a [u8]),
    /// Anything else on the heap, as its tag says, and bytes in the slot (as `tag::BYTES`).
    Heap {
        /// One of 0x41 to 0x4E.
        tag: u8,
        /// Its bytes.
        payload: &'a [u8],
        /// The offset of the payload in the record.
        offset: u32,
    },
    /// A container.
    Container(Container),
}

/// The value at the root.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Root<'a> {
    /// A container.
    Container(Container),
    /// Anything else; never `Slot::Container`.
    Scalar(Slot<'a>),
}

#[inline]
fn read<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cold]
pub(crate) fn corrupt<T>(damage: Damage, offset: usize) -> Result<T> {
    Err(Corrupt::new(damage, offset))
}

/// The bits of a slot, with zeros above its width.
#[inline(always)]
pub(crate) fn read_bits(bytes: &[u8], offset: usize, width_log2: u8) -> Option<u64> {
    Some(match width_log2 {
        3 => u64::from_le_bytes(read(bytes, offset)?),
        0 => u64::from(*bytes.get(offset)?),
        1 => u64::from(u16::from_le_bytes(read(bytes, offset)?)),
        _ => u64::from(u32::from_le_bytes(read(bytes, offset)?)),
    })
}

/// The bits of a slot as a signed int of its width.
#[inline(always)]
pub(crate) fn sign_extend(bits: u64, width_log2: u8) -> i64 {
    let unused = 64 - (8u32 << (width_log2 & 3));
    (bits << unused).cast_signed() >> unused
}

/// Reads the value at the root, a container or a scalar.
///
/// # Errors
/// The first bytes are of no record, or announce more than there is.
#[inline]
pub fn root<'a, S: Shapes + ?Sized>(bytes: &'a [u8], shapes: &S) -> Result<Root<'a>> {
    if bytes.first() == Some(&SCALAR_BYTE) {
        return scalar_root(bytes).map(Root::Scalar);
    }
    Container::root(bytes, shapes).map(Root::Container)
}

fn scalar_root(bytes: &[u8]) -> Result<Slot<'_>> {
    let (Some(&tag), Some(payload)) = (bytes.get(1), bytes.get(SCALAR_HEAD_SIZE..)) else {
        return corrupt(Damage::Truncated, bytes.len());
    };
    if payload.len() > RECORD_SIZE_MAX {
        return corrupt(Damage::Truncated, 0);
    }
    if tag == tag::CONTAINER {
        return corrupt(Damage::Tag, 1);
    }
    if tag >= tag::HEAP {
        return heap_slot(tag, payload, SCALAR_HEAD_SIZE);
    }
    if payload.len() > 8 {
        return corrupt(Damage::Trailing, SCALAR_HEAD_SIZE + 8);
    }
    let mut slot = [0; 8];
    for (target, source) in slot.iter_mut().zip(payload) {
        *target = *source;
    }
    let size_stated = match tag {
        tag::STR_INLINE..=tag::STR_INLINE_LAST => Some(usize::from(tag - tag::STR_INLINE)),
        tag::BYTES_INLINE..=tag::BYTES_INLINE_LAST => Some(usize::from(tag - tag::BYTES_INLINE)),
        _ => None,
    };
    if size_stated.is_some_and(|size| size != payload.len()) {
        return corrupt(Damage::Truncated, 1);
    }
    inline_slot(tag, u64::from_le_bytes(slot), bytes, SCALAR_HEAD_SIZE, ROOT_WIDTH_LOG2)
}

/// Interprets a slot that holds its value. `slot_offset` is its offset in `bytes`.
#[inline(always)]
pub(crate) fn inline_slot(
    tag: u8,
    bits: u64,
    bytes: &[u8],
    slot_offset: usize,
    width_log2: u8,
) -> Result<Slot<'_>> {
    Ok(match tag {
        tag::INT => Slot::Int(sign_extend(bits, width_log2)),
        tag::FLOAT if width_log2 == 3 => Slot::Float(f64::from_bits(bits)),
        tag::STR_INLINE..=tag::STR_INLINE_LAST => {
            Slot::Str(inline_bytes(bytes, slot_offset, tag - tag::STR_INLINE, width_log2)?)
        }
        tag::NONE => Slot::None,
        tag::FALSE => Slot::Bool(false),
        tag::TRUE => Slot::Bool(true),
        tag::ABSENT => Slot::Absent,
        tag::DATE if width_log2 >= 2 => Slot::Date(bits as u32),
        tag::DATETIME if width_log2 == 3 => Slot::Datetime(bits.cast_signed()),
        tag::BYTES_INLINE..=tag::BYTES_INLINE_LAST => Slot::Heap {
            tag: tag::BYTES,
            payload: inline_bytes(bytes, slot_offset, tag - tag::BYTES_INLINE, width_log2)?,
            offset: slot_offset as u32,
        },
        _ => return corrupt(Damage::Tag, slot_offset),
    })
}

#[inline(always)]
fn inline_bytes(bytes: &[u8], offset: usize, size: u8, width_log2: u8) -> Result<&[u8]> {
    if size > 1 << width_log2 {
        return corrupt(Damage::Tag, offset);
    }
    bytes.get(offset..offset + usize::from(size)).ok_or_else(|| Corrupt::new(Damage::Truncated, offset))
}

#[inline(always)]
pub(crate) fn heap_slot(tag: u8, payload: &[u8], offset: usize) -> Result<Slot<'_>> {
    match tag {
        tag::STR => Ok(Slot::Str(payload)),
        tag::STR_SURROGATES..=tag::OVERFLOW => Ok(Slot::Heap { tag, payload, offset: offset as u32 }),
        _ => corrupt(Damage::Tag, offset),
    }
}

impl Slot<'_> {
    /// The container that is the payload of an array or of an object of a registered class. Its end
    /// may be that of the payload.
    ///
    /// # Errors
    /// The payload does not begin with a container.
    #[inline]
    pub fn payload_container<S: Shapes + ?Sized>(
        &self,
        bytes: &[u8],
        shapes: &S,
    ) -> Result<Option<Container>> {
        match *self {
            Slot::Heap { tag: tag::NDARRAY | tag::REGISTERED, payload, offset } => {
                let end = offset.saturating_add(payload.len() as u32);
                Container::nested(bytes, offset, end, shapes).map(Some)
            }
            _ => Ok(None),
        }
    }
}

impl Container {
    /// The container at the root of a record.
    ///
    /// # Errors
    /// The head is not a container's (but a scalar's, for example), its shape is unknown, or its
    /// slots do not fit into the bytes.
    #[inline(always)]
    pub fn root<S: Shapes + ?Sized>(bytes: &[u8], shapes: &S) -> Result<Container> {
        let Some(head) = read::<8>(bytes, 0) else { return corrupt(Damage::Truncated, bytes.len()) };
        if bytes.len() > RECORD_SIZE_MAX {
            return corrupt(Damage::Truncated, 0);
        }
        let head = u64::from_le_bytes(head);
        if head as u8 & 0x0F != FORMAT_VERSION {
            return corrupt(Damage::Version, 0);
        }
        let Some(kind) = Kind::from_number(head as u8 >> 4) else { return corrupt(Damage::Kind, 0) };
        let width_log2 = (head >> 8) as u8;
        let stated = (head >> 16) as u16;
        let number = (head >> 32) as u32;
        let container = Container {
            start: 0,
            end: bytes.len() as u32,
            slots: ROOT_HEAD_SIZE as u32,
            heap: 0,
            count: number,
            shape: 0,
            kind,
            width_log2,
        };
        if kind == Kind::Shaped {
            if number >= SHAPE_ID_END {
                return corrupt(Damage::UnknownShape, 4);
            }
            let Some(count) = shapes.slot_count(number) else { return corrupt(Damage::UnknownShape, 4) };
            if count != u32::from(stated) {
                return corrupt(Damage::ShapeCount, 2);
            }
            return Container { count, shape: number, ..container }.checked(ROOT_WIDTH_LOG2, 1);
        }
        if stated != 0 {
            return corrupt(Damage::UnusedBits, 2);
        }
        let narrowest = if kind == Kind::PackedInts { 0 } else { ROOT_WIDTH_LOG2 };
        container.checked(narrowest, 1)
    }

    /// The nested container whose first byte is at `start` and which ends at `end` or before.
    ///
    /// # Errors
    /// The head is not a nested container's, its shape is unknown, or its slots do not end before
    /// `end`.
    #[inline(always)]
    pub fn nested<S: Shapes + ?Sized>(bytes: &[u8], start: u32, end: u32, shapes: &S) -> Result<Container> {
        let at = start as usize;
        if end as usize > bytes.len() || bytes.len() > RECORD_SIZE_MAX {
            return corrupt(Damage::Truncated, at);
        }
        let Some(&first) = bytes.get(at) else { return corrupt(Damage::Truncated, at) };
        let Some(kind) = Kind::from_number(first & 0x0F) else { return corrupt(Damage::Kind, at) };
        let mut container =
            Container { start, end, slots: start, heap: 0, count: 0, shape: 0, kind, width_log2: first >> 4 };
        if kind == Kind::Shaped {
            let Some(head) = read::<NESTED_SHAPED_HEAD_SIZE>(bytes, at) else {
                return corrupt(Damage::Truncated, at);
            };
            container.shape = u32::from_le_bytes(head) >> 8;
            let Some(count) = shapes.slot_count(container.shape) else {
                return corrupt(Damage::UnknownShape, at + 1);
            };
            container.count = count;
            container.slots = start.saturating_add(NESTED_SHAPED_HEAD_SIZE as u32);
        } else {
            let Some((count, behind)) = read_varint(bytes, at + 1) else {
                return corrupt(Damage::Varint, at + 1);
            };
            container.count = count;
            container.slots = behind as u32;
        }
        let narrowest = if kind == Kind::PackedFloats { ROOT_WIDTH_LOG2 } else { 0 };
        container.checked(narrowest, 0)
    }

    /// Checks that the width is allowed for this container and that its slots and index end before
    /// its end. Sets `count` to the number of slots.
    #[inline(always)]
    fn checked(mut self, narrowest: u8, width_byte: usize) -> Result<Container> {
        if self.width_log2 > 3 || self.width_log2 < narrowest {
            return corrupt(Damage::Width, self.start as usize + width_byte);
        }
        let size = if self.kind.is_packed() {
            u64::from(self.count) << self.width_log2
        } else if self.kind == Kind::Keyed {
            let entries = self.count;
            self.count = match entries.checked_mul(2) {
                Some(count) => count,
                None => return corrupt(Damage::Truncated, self.start as usize),
            };
            slots_size(self.count, self.width_log2) + index_size(entries)
        } else {
            slots_size(self.count, self.width_log2)
        };
        let heap = u64::from(self.slots) + size;
        if heap > u64::from(self.end) {
            return corrupt(Damage::Truncated, self.start as usize);
        }
        self.heap = heap as u32;
        Ok(self)
    }

    /// The number of elements or fields; of a keyed map, of entries.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        if self.kind == Kind::Keyed { self.count / 2 } else { self.count }
    }

    /// Whether it is empty. (A shaped dict whose fields are all absent is not empty in this sense.)
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Where the index of a keyed map begins: after the blocks.
    #[inline]
    #[must_use]
    pub fn index_start(&self) -> u32 {
        let size = if self.kind.is_packed() {
            u64::from(self.count) << self.width_log2
        } else {
            slots_size(self.count, self.width_log2)
        };
        self.slots.wrapping_add(size as u32)
    }

    /// Where the heap begins: after the blocks and the index.
    #[inline]
    #[must_use]
    pub fn heap_start(&self) -> u32 {
        self.heap
    }

    /// The offsets of the tag and the slot of `index` in the record. In a packed container, both
    /// are the element's.
    ///
    /// `index` must be below `count`.
    #[inline]
    #[must_use]
    pub fn position(&self, index: u32) -> (usize, usize) {
        let slots = self.slots as usize;
        if self.kind.is_packed() {
            let at = slots + ((index as usize) << self.width_log2);
            return (at, at);
        }
        let (tag, slot) = slot_position(self.count, self.width_log2, index);
        (slots + tag, slots + slot)
    }

    /// Reads the slot `index`.
    ///
    /// # Errors
    /// Damage at this slot. `NoSuchSlot` where `index` is not below `count`.
    #[inline(always)]
    pub fn slot<'a, S: Shapes + ?Sized>(&self, bytes: &'a [u8], shapes: &S, index: u32) -> Result<Slot<'a>> {
        if index >= self.count {
            return corrupt(Damage::NoSuchSlot, self.start as usize);
        }
        let (tag_offset, slot_offset) = self.position(index);
        let Some(bits) = read_bits(bytes, slot_offset, self.width_log2) else {
            return corrupt(Damage::Truncated, slot_offset);
        };
        match self.kind {
            Kind::PackedInts => return Ok(Slot::Int(sign_extend(bits, self.width_log2))),
            Kind::PackedFloats => return Ok(Slot::Float(f64::from_bits(bits))),
            _ => {}
        }
        let Some(&tag) = bytes.get(tag_offset) else { return corrupt(Damage::Truncated, tag_offset) };
        if tag < tag::HEAP {
            return inline_slot(tag, bits, bytes, slot_offset, self.width_log2);
        }
        self.heap_slot(bytes, shapes, tag, bits, slot_offset)
    }

    /// The tag of slot `index`, without reading what it refers to. `None` for packed elements,
    /// which have no tags.
    #[inline]
    #[must_use]
    pub fn tag(&self, bytes: &[u8], index: u32) -> Option<u8> {
        if index >= self.count || self.kind.is_packed() {
            return None;
        }
        bytes.get(self.position(index).0).copied()
    }

    /// The raw bits of slot `index`, with zeros above its width.
    #[inline]
    #[must_use]
    pub fn bits(&self, bytes: &[u8], index: u32) -> Option<u64> {
        if index >= self.count {
            return None;
        }
        read_bits(bytes, self.position(index).1, self.width_log2)
    }

    /// The int in slot `index`, if it is one: the fastest way for loops over a column.
    #[inline]
    #[must_use]
    pub fn int(&self, bytes: &[u8], index: u32) -> Option<i64> {
        if index >= self.count {
            return None;
        }
        let (tag_offset, slot_offset) = self.position(index);
        let bits = read_bits(bytes, slot_offset, self.width_log2)?;
        let is_int = match self.kind {
            Kind::PackedInts => true,
            Kind::PackedFloats => false,
            _ => *bytes.get(tag_offset)? == tag::INT,
        };
        is_int.then(|| sign_extend(bits, self.width_log2))
    }

    /// The elements of a packed list: `count` little-endian numbers of `1 << width_log2` bytes.
    ///
    /// # Errors
    /// It is not packed, or not of these bytes.
    #[inline]
    pub fn packed_bytes<'a>(&self, bytes: &'a [u8]) -> Result<&'a [u8]> {
        let range = self.slots as usize..self.index_start() as usize;
        match bytes.get(range) {
            Some(elements) if self.kind.is_packed() => Ok(elements),
            _ => corrupt(Damage::Kind, self.start as usize),
        }
    }

    #[inline(always)]
    pub(crate) fn heap_slot<'a, S: Shapes + ?Sized>(
        &self,
        bytes: &'a [u8],
        shapes: &S,
        tag: u8,
        bits: u64,
        slot_offset: usize,
    ) -> Result<Slot<'a>> {
        let (offset, size) = self.extent(bytes, tag, bits, slot_offset)?;
        if tag == tag::CONTAINER {
            return Container::nested(bytes, offset, offset + size, shapes).map(Slot::Container);
        }
        match bytes.get(offset as usize..offset as usize + size as usize) {
            Some(payload) => heap_slot(tag, payload, offset as usize),
            None => corrupt(Damage::Reference, slot_offset),
        }
    }

    /// The offset of the payload that a slot refers to, and its size (for a container in a narrow
    /// slot: the rest of the outer container). Both are inside the heap of this container.
    #[inline(always)]
    pub(crate) fn extent(&self, bytes: &[u8], tag: u8, bits: u64, slot_offset: usize) -> Result<(u32, u32)> {
        let start = u64::from(self.start);
        let offset = start + (bits & 0xFFFF_FFFF);
        if offset < u64::from(self.heap) || offset > u64::from(self.end) {
            return corrupt(Damage::Reference, slot_offset);
        }
        let left = u64::from(self.end) - offset;
        if self.width_log2 == 3 {
            let size = bits >> 32;
            if size > left {
                return corrupt(Damage::Reference, slot_offset);
            }
            return Ok((offset as u32, size as u32));
        }
        if tag == tag::CONTAINER {
            return Ok((offset as u32, left as u32));
        }
        let Some((size, behind)) = read_varint(bytes, offset as usize) else {
            return corrupt(Damage::Varint, offset as usize);
        };
        if behind as u64 + u64::from(size) > u64::from(self.end) {
            return corrupt(Damage::Reference, slot_offset);
        }
        Ok((behind as u32, size))
    }

    /// Finds an entry of a keyed map by the canonical bytes of its key; its value is in slot `2 *
    /// entry + 1`.
    ///
    /// # Errors
    /// Damage in the index or in a key that was read.
    pub fn map_find<S: Shapes + ?Sized>(
        &self,
        bytes: &[u8],
        shapes: &S,
        canonical_key: &[u8],
    ) -> Result<Option<u32>> {
        keyed::find(bytes, shapes, self, canonical_key)
    }

    /// The slot of the field `name` of a shaped dict or a keyed map. `None` if there is no such
    /// field or it is absent.
    ///
    /// # Errors
    /// Damage on the way to it. Only dicts have fields.
    pub fn field<'a, S: Shapes + ?Sized>(
        &self,
        bytes: &'a [u8],
        shapes: &S,
        name: &str,
    ) -> Result<Option<Slot<'a>>> {
        let index = match self.kind {
            Kind::Shaped => shapes.shape(self.shape).and_then(|shape| shape.slot(name)),
            Kind::Keyed => keyed::find_str(bytes, shapes, self, name.as_bytes())?.map(|entry| 2 * entry + 1),
            _ => None,
        };
        let Some(index) = index else { return Ok(None) };
        Ok(Some(self.slot(bytes, shapes, index)?).filter(|slot| *slot != Slot::Absent))
    }
}
