//! Finds a field in container after container without their shape.
//!
//! Shaped dicts with the same head have their slots at the same offsets from their begin. So a
//! [`Layout`] is made once for each head, and then gives the [`Place`] of the field in any dict
//! that begins with it: no shape is looked up, no name compared, no position computed. A nested
//! dict has as many heads as widths of its slots.
//!
//! A width follows from the values, so that it changes from one record to the next as they do. So
//! slots of all widths are read in the same way, without a branch.
#![expect(clippy::inline_always, reason = "a place is returned in memory otherwise; see view.rs")]

use crate::error::Result;
use crate::layout::{Kind, NESTED_SHAPED_HEAD_SIZE, ROOT_HEAD_SIZE, ROOT_WIDTH_LOG2, read_varint, tag};
use crate::shape::Shapes;
use crate::view::{Container, Slot, inline_slot};

/// Where a field stands in all shaped dicts with one head. All offsets count from the begin of the
/// dict.
#[derive(Clone, Copy, Debug)]
pub struct Layout {
    head: u64,
    tag_offset: u32,
    slot_end: u32,
    heap: u32,
    width_log2: u8,
    is_missing: bool,
}

/// The slot of a field in a record, and the bounds of its container.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    tag: u8,
    width_log2: u8,
    /// The slot's bits are the upper ones.
    raw: u64,
    slot_end: usize,
    start: usize,
    heap: usize,
    end: usize,
}

/// The head of a record, by which its layouts are known.
#[inline(always)]
#[must_use]
pub fn root_head(record: &[u8]) -> Option<u64> {
    record.first_chunk().map(|head: &[u8; ROOT_HEAD_SIZE]| u64::from_le_bytes(*head))
}

/// The head of the dict that begins at `start`, which is not that of the record.
#[inline(always)]
#[must_use]
pub fn nested_head(record: &[u8], start: usize) -> Option<u64> {
    let head: &[u8; NESTED_SHAPED_HEAD_SIZE] = record.get(start..)?.first_chunk()?;
    Some(u64::from(u32::from_le_bytes(*head)))
}

/// The slot's bits as the upper ones of eight bytes. They are read with the bytes before them, of
/// which there are enough at the begin of any record.
#[inline(always)]
fn read_raw(record: &[u8], slot_end: usize) -> Option<u64> {
    let bytes: &[u8; 8] = record.get(slot_end.checked_sub(8)?..)?.first_chunk()?;
    Some(u64::from_le_bytes(*bytes))
}

impl Layout {
    /// A layout that no dict has.
    pub const NONE: Layout = Layout {
        head: u64::MAX,
        tag_offset: 0,
        slot_end: 0,
        heap: u32::MAX,
        width_log2: 0,
        is_missing: true,
    };

    /// The layout of a container in which a field has the slot `index`, or none. `None` if its head
    /// does not fix where its slots are.
    #[must_use]
    pub fn of(record: &[u8], container: &Container, index: Option<u32>) -> Option<Layout> {
        let start = container.start;
        if container.kind != Kind::Shaped {
            return None;
        }
        let head = if start == 0 { root_head(record) } else { nested_head(record, start as usize) }?;
        let heap_offset = container.heap_start() - start;
        let Some(index) = index else { return Some(Layout { head, heap: heap_offset, ..Layout::NONE }) };
        let (tag, slot) = container.position(index);
        Some(Layout {
            head,
            tag_offset: tag as u32 - start,
            slot_end: slot as u32 - start + (1 << container.width_log2),
            heap: heap_offset,
            width_log2: container.width_log2,
            is_missing: false,
        })
    }

    /// The head that dicts of this layout have.
    #[inline(always)]
    #[must_use]
    pub fn head(&self) -> u64 {
        self.head
    }

    /// The place of the field in the dict from `start` to `end`, which has this layout's head.
    /// `None` if its slots do not end before.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, record: &[u8], start: usize, end: usize) -> Option<Place> {
        let heap = start + self.heap as usize;
        if heap > end {
            return None;
        }
        if self.is_missing {
            return Some(Place::ABSENT);
        }
        let slot_end = start + self.slot_end as usize;
        Some(Place {
            tag: *record.get(start + self.tag_offset as usize)?,
            width_log2: self.width_log2,
            raw: read_raw(record, slot_end)?,
            slot_end,
            start,
            heap,
            end,
        })
    }
}

impl Place {
    /// That of a field that does not exist.
    pub const ABSENT: Place = Place {
        tag: tag::ABSENT,
        width_log2: ROOT_WIDTH_LOG2,
        raw: 0,
        slot_end: 8,
        start: 0,
        heap: 0,
        end: 0,
    };

    /// The place of the slot `index` of a container, which has at least as many.
    #[must_use]
    pub fn of(record: &[u8], container: &Container, index: u32) -> Option<Place> {
        let (tag_offset, slot_offset) = container.position(index);
        let slot_end = slot_offset + (1 << container.width_log2);
        let tag = match container.kind {
            Kind::PackedInts => tag::INT,
            Kind::PackedFloats => tag::FLOAT,
            _ => *record.get(tag_offset)?,
        };
        Some(Place {
            tag,
            width_log2: container.width_log2,
            raw: read_raw(record, slot_end)?,
            slot_end,
            start: container.start as usize,
            heap: container.heap_start() as usize,
            end: container.end as usize,
        })
    }

    /// The tag.
    #[inline(always)]
    #[must_use]
    pub fn tag(&self) -> u8 {
        self.tag
    }

    #[inline(always)]
    fn unused_bits(&self) -> u32 {
        64 - (8 << (self.width_log2 & 3))
    }

    #[inline(always)]
    fn bits(&self) -> u64 {
        self.raw >> self.unused_bits()
    }

    #[inline(always)]
    fn slot_offset(&self) -> usize {
        self.slot_end - (1 << (self.width_log2 & 3))
    }

    /// The int, if it is one of 64 bits.
    #[inline(always)]
    #[must_use]
    pub fn int(&self) -> Option<i64> {
        (self.tag == tag::INT).then(|| self.raw.cast_signed() >> self.unused_bits())
    }

    /// The float, if it is one.
    #[inline(always)]
    #[must_use]
    pub fn float(&self) -> Option<f64> {
        (self.tag == tag::FLOAT && self.width_log2 == 3).then(|| f64::from_bits(self.raw))
    }

    /// The bits that a slot of 8 bytes has for the same value, if the slot holds all of it.
    #[inline(always)]
    #[must_use]
    pub fn inline_bits(&self) -> Option<u64> {
        match self.tag {
            tag::INT => self.int().map(i64::cast_unsigned),
            _ if self.width_log2 == 3 => (self.tag < tag::HEAP).then_some(self.raw),
            tag::STR_INLINE..=tag::STR_INLINE_LAST => self.text_size().map(|_| self.bits()),
            tag::ABSENT | tag::NONE | tag::FALSE | tag::TRUE => Some(0),
            tag::DATE if self.width_log2 == 2 => Some(self.bits()),
            _ => None,
        }
    }

    /// The size of a string in the slot, unless it has no room there.
    #[inline(always)]
    fn text_size(&self) -> Option<usize> {
        let size = usize::from(self.tag - tag::STR_INLINE);
        (size <= 1 << self.width_log2).then_some(size)
    }

    /// The UTF-8 of the string, if it is one.
    #[inline(always)]
    #[must_use]
    pub fn text<'a>(&self, record: &'a [u8]) -> Option<&'a [u8]> {
        match self.tag {
            tag::STR => {
                let offset = self.offset()?;
                let (start, size) = if self.width_log2 == 3 {
                    (offset, (self.raw >> 32) as usize)
                } else {
                    let (size, behind) = read_varint(record, offset)?;
                    (behind, size as usize)
                };
                if start + size > self.end {
                    return None;
                }
                record.get(start..start + size)
            }
            tag::STR_INLINE..=tag::STR_INLINE_LAST => {
                let start = self.slot_offset();
                record.get(start..start + self.text_size()?)
            }
            _ => None,
        }
    }

    /// The begin of what the slot refers to. `None` if it lies outside the heap of its container.
    #[inline(always)]
    fn offset(&self) -> Option<usize> {
        let offset = self.start + (self.bits() & 0xFFFF_FFFF) as usize;
        (self.heap <= offset && offset <= self.end).then_some(offset)
    }

    /// The begin and the end of the container, if it is one; in a slot narrower than 8 bytes the
    /// end of the outer container.
    #[inline(always)]
    #[must_use]
    pub fn container(&self) -> Option<(usize, usize)> {
        if self.tag != tag::CONTAINER {
            return None;
        }
        let offset = self.offset()?;
        let end = if self.width_log2 == 3 { offset + (self.raw >> 32) as usize } else { self.end };
        (end <= self.end).then_some((offset, end))
    }

    /// Whether it has no parts, which is sure for a missing field, None, bools and ints.
    #[inline(always)]
    #[must_use]
    pub fn is_part_less(&self) -> bool {
        self.tag <= tag::INT
    }

    /// The value in the slot.
    ///
    /// # Errors
    /// As `Container::slot`.
    #[inline(always)]
    pub fn slot<'a, S: Shapes + ?Sized>(&self, record: &'a [u8], shapes: &S) -> Result<Slot<'a>> {
        let (bits, slot_offset) = (self.bits(), self.slot_offset());
        if self.tag < tag::HEAP {
            return inline_slot(self.tag, bits, record, slot_offset, self.width_log2);
        }
        // The bounds are all that a reference needs of its container.
        let around = Container {
            start: self.start as u32,
            end: self.end as u32,
            slots: 0,
            heap: self.heap as u32,
            count: 0,
            shape: 0,
            kind: Kind::Shaped,
            width_log2: self.width_log2,
        };
        around.heap_slot(record, shapes, self.tag, bits, slot_offset)
    }
}
