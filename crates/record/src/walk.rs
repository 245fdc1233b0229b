//! How are all slots of a container read in order, without reaching any byte twice?

#![expect(clippy::inline_always, reason = "what a call returns in memory is waited for; see view.rs")]

use crate::error::{Corrupt, Damage};
use crate::layout::{BLOCK_SLOTS, Kind, read_varint, tag};
use crate::shape::Shapes;
use crate::view::{Container, Slot, corrupt, heap_slot, inline_slot, read_bits, sign_extend};

/// Reads all slots of a container in order, each heap entry beginning at or behind the end of the one before.
///
/// That rule makes a full decode linear in the record's size: no byte is reached twice, and there are no cycles. A nested
/// container in a narrow slot does not say where it ends, so whoever has walked it tells [`Walker::consumed`].
///
/// ```
/// use pellucid_record::{Container, Corrupt, Shapes, Slot, Walker};
/// fn count_ints<S: Shapes>(bytes: &[u8], shapes: &S, container: Container) -> Result<(u32, u32), Corrupt> {
///     let mut ints = 0;
///     let mut walker = Walker::new(container);
///     while let Some(slot) = walker.next(bytes, shapes)? {
///         match slot {
///             Slot::Int(_) => ints += 1,
///             Slot::Container(inner) => {
///                 let (inner_ints, end) = count_ints(bytes, shapes, inner)?; // a real one counts the depth, too
///                 walker.consumed(end)?;
///                 ints += inner_ints;
///             }
///             _ => {}
///         }
///     }
///     Ok((ints, walker.end()))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Walker {
    container: Container,
    index: u32,
    /// Where the tag and the slot of `index` stand.
    tag_offset: u32,
    slot_offset: u32,
    /// Heap entries may begin here or behind.
    floor: u32,
    /// Where the entry returned last ends, as far as its slot tells.
    limit: u32,
}

impl Walker {
    /// A walk that begins at the first slot.
    #[inline]
    #[must_use]
    pub fn new(container: Container) -> Walker {
        let tags = if container.kind.is_packed() { 0 } else { container.count.min(BLOCK_SLOTS) };
        Walker {
            container,
            index: 0,
            tag_offset: container.slots,
            slot_offset: container.slots + tags,
            floor: container.heap,
            limit: container.end,
        }
    }

    /// The container.
    #[inline]
    #[must_use]
    pub fn container(&self) -> &Container {
        &self.container
    }

    /// The index of the slot that `next` will return.
    #[inline]
    #[must_use]
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Where the tag and the slot of `index` stand; then goes on to the next. Steps instead of arithmetic for each, but for
    /// the first of a block.
    #[inline(always)]
    fn step(&mut self) -> (usize, usize) {
        let offsets = (self.tag_offset as usize, self.slot_offset as usize);
        self.index += 1;
        self.tag_offset += 1;
        self.slot_offset += 1 << self.container.width_log2;
        if self.index.is_multiple_of(BLOCK_SLOTS) && self.index < self.container.count {
            let (tag_offset, slot_offset) = self.container.position(self.index);
            (self.tag_offset, self.slot_offset) = (tag_offset as u32, slot_offset as u32);
        }
        offsets
    }

    /// The next slot, or None behind the last.
    ///
    /// # Errors
    /// Damage at this slot, or a heap entry that begins before the one before has ended.
    #[inline(always)]
    pub fn next<'a, S: Shapes + ?Sized>(
        &mut self,
        bytes: &'a [u8],
        shapes: &S,
    ) -> Result<Option<Slot<'a>>, Corrupt> {
        if self.index >= self.container.count {
            return Ok(None);
        }
        let width_log2 = self.container.width_log2;
        if self.container.kind.is_packed() {
            return self.next_packed(bytes).map(Some);
        }
        let (tag_offset, slot_offset) = self.step();
        let (Some(&tag), Some(bits)) = (bytes.get(tag_offset), read_bits(bytes, slot_offset, width_log2))
        else {
            return corrupt(Damage::Truncated, slot_offset);
        };
        if tag < tag::HEAP {
            return inline_slot(tag, bits, bytes, slot_offset, width_log2).map(Some);
        }
        let (offset, size) = self.entry(bytes, tag, bits, slot_offset)?;
        self.limit = offset + size;
        if tag == tag::CONTAINER {
            let child = Container::nested(bytes, offset, self.limit, shapes)?;
            self.floor = if width_log2 == 3 { self.limit } else { child.heap };
            return Ok(Some(Slot::Container(child)));
        }
        self.floor = self.limit;
        match bytes.get(offset as usize..self.limit as usize) {
            Some(payload) => heap_slot(tag, payload, offset as usize).map(Some),
            None => corrupt(Damage::Reference, slot_offset),
        }
    }

    #[inline(always)]
    fn next_packed<'a>(&mut self, bytes: &[u8]) -> Result<Slot<'a>, Corrupt> {
        let offset = self.slot_offset as usize;
        let width_log2 = self.container.width_log2;
        self.index += 1;
        self.slot_offset += 1 << width_log2;
        match read_bits(bytes, offset, width_log2) {
            Some(bits) if self.container.kind == Kind::PackedInts => {
                Ok(Slot::Int(sign_extend(bits, width_log2)))
            }
            Some(bits) => Ok(Slot::Float(f64::from_bits(bits))),
            None => corrupt(Damage::Truncated, offset),
        }
    }

    /// As `Container::extent`, with the place where the entry before has ended instead of the heap's beginning.
    #[inline(always)]
    fn entry(&self, bytes: &[u8], tag: u8, bits: u64, slot_offset: usize) -> Result<(u32, u32), Corrupt> {
        let end = u64::from(self.container.end);
        let offset = u64::from(self.container.start) + (bits & 0xFFFF_FFFF);
        if offset < u64::from(self.floor) {
            return corrupt(Damage::HeapOrder, slot_offset);
        }
        let (offset, size) = if self.container.width_log2 == 3 {
            (offset, bits >> 32)
        } else if tag == tag::CONTAINER {
            (offset, end.saturating_sub(offset))
        } else {
            match read_varint(bytes, offset as usize) {
                Some((size, behind)) => (behind as u64, u64::from(size)),
                None => return corrupt(Damage::Varint, offset as usize),
            }
        };
        if offset + size > end {
            return corrupt(Damage::Reference, slot_offset);
        }
        Ok((offset as u32, size as u32))
    }

    /// Tells where the container that `next` returned last has ended: what its own walker's `end` says.
    ///
    /// # Errors
    /// It ends behind the place that its slot gave it.
    #[inline]
    pub fn consumed(&mut self, end: u32) -> Result<(), Corrupt> {
        if end > self.limit {
            return corrupt(Damage::HeapOrder, end as usize);
        }
        self.floor = self.floor.max(end);
        Ok(())
    }

    /// Where the part of the container that has been walked ends: behind its slots and its heap entries so far.
    #[inline]
    #[must_use]
    pub fn end(&self) -> u32 {
        self.floor
    }
}
