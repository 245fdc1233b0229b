//! Walks over all slots of a container in order, reading no byte twice.

#![expect(clippy::inline_always, reason = "what a call returns in memory is waited for; see view.rs")]

use crate::encode::Simple;
use crate::error::{Damage, Result};
use crate::layout::{
    BLOCK_SLOTS, Kind, NESTED_SHAPED_HEAD_SIZE, RECORD_SIZE_MAX, read_varint, slots_size, tag,
};
use crate::shape::Shapes;
use crate::view::{Container, Slot, corrupt, heap_slot, inline_slot, read_bits, sign_extend};

/// Reads all slots of a container in order, each heap entry beginning at or after the end of the
/// one before.
///
/// That rule makes a full decode linear in the record's size: no byte is read twice, and there are
/// no cycles. A nested container in a narrow slot does not tell where it ends, so a caller that has
/// walked it calls [`Walker::consumed`].
///
/// ```
/// use pellucid_record::{Container, Corrupt, Shapes, Slot, Walker};
/// type Counted = Result<(u32, u32), Corrupt>;
/// fn count_ints<S: Shapes>(bytes: &[u8], shapes: &S, container: Container) -> Counted {
///     let mut ints = 0;
///     let mut walker = Walker::new(container);
///     while let Some(slot) = walker.next(bytes, shapes)? {
///         match slot {
///             Slot::Int(_) => ints += 1,
///             Slot::Container(inner) => {
///                 // A real one counts the depth, too.
///                 let (inner_ints, end) = count_ints(bytes, shapes, inner)?;
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
    /// The offsets of the tag and the slot of `index`.
    tag_offset: u32,
    slot_offset: u32,
    /// Heap entries may begin here or later.
    floor: u32,
    /// The end of the entry that was returned last, as far as its slot tells.
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

    /// A walk that begins at the slot `index`. If that is after the last slot, `next` returns
    /// `None`.
    #[inline]
    #[must_use]
    pub fn at(container: Container, index: u32) -> Walker {
        let mut walker = Walker { index, ..Walker::new(container) };
        if index < container.count {
            let (tag_offset, slot_offset) = container.position(index);
            (walker.tag_offset, walker.slot_offset) = (tag_offset as u32, slot_offset as u32);
        }
        walker
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

    /// Returns the offsets of the tag and the slot of `index`, and advances to the next slot.
    /// Offsets are advanced step by step, and computed only for the first slot of a block.
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

    /// The next slot, or None after the last.
    ///
    /// # Errors
    /// Damage at this slot, or a heap entry that begins before the one before has ended.
    #[inline(always)]
    pub fn next<'a, S: Shapes + ?Sized>(&mut self, bytes: &'a [u8], shapes: &S) -> Result<Option<Slot<'a>>> {
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

    /// As `next`, but a container in a narrow slot ends at the latest where the next heap entry
    /// begins, as in the format. For loops that do not walk the containers they get: no two
    /// elements share a byte, and `consumed` need not be called.
    ///
    /// # Errors
    /// As `next`, or a container that reaches into the next heap entry.
    #[inline]
    pub fn next_bounded<'a, S: Shapes + ?Sized>(
        &mut self,
        bytes: &'a [u8],
        shapes: &S,
    ) -> Result<Option<Slot<'a>>> {
        let slot = self.next(bytes, shapes)?;
        let Some(Slot::Container(mut child)) = slot else { return Ok(slot) };
        let end = self.next_entry(bytes);
        if self.container.width_log2 < 3 && end < child.end {
            if end < child.heap {
                return corrupt(Damage::HeapOrder, child.start as usize);
            }
            child.end = end;
            self.limit = end;
        }
        self.floor = child.end;
        Ok(Some(Slot::Container(child)))
    }

    /// The offset of the next heap entry, or the container's end if there is none. All calls of one
    /// walk together read each slot once: the slots before the one that is found have no entry.
    fn next_entry(&self, bytes: &[u8]) -> u32 {
        let Container { start, end, count, .. } = self.container;
        let entry = (self.index..count).find_map(|index| {
            let is_entry = self.container.tag(bytes, index).is_some_and(|tag| tag >= tag::HEAP);
            let bits = is_entry.then(|| self.container.bits(bytes, index))??;
            u32::try_from(u64::from(start) + (bits & 0xFFFF_FFFF)).ok()
        });
        entry.unwrap_or(end)
    }

    /// The value that `next` would return, if it contains no container and no bytes but those of a
    /// string. `None` for any other value, damage, or the end: then the walk has not advanced, and
    /// `next` tells which it is.
    ///
    /// For loops over many small containers: no result in memory with cases that cannot occur here,
    /// and no branches for them.
    #[inline(always)]
    pub fn next_simple<'a>(&mut self, bytes: &'a [u8]) -> Option<Simple<'a>> {
        if self.index >= self.container.count || self.container.kind.is_packed() {
            return None;
        }
        let width_log2 = self.container.width_log2;
        let slot_offset = self.slot_offset as usize;
        let tag = *bytes.get(self.tag_offset as usize)?;
        let bits = read_bits(bytes, slot_offset, width_log2)?;
        let value = match tag {
            tag::INT => Simple::Int(sign_extend(bits, width_log2)),
            tag::STR => {
                let (offset, size) = self.entry(bytes, tag, bits, slot_offset).ok()?;
                let text = bytes.get(offset as usize..(offset + size) as usize)?;
                self.limit = offset + size;
                self.floor = self.limit;
                Simple::Str(text)
            }
            tag::FLOAT if width_log2 == 3 => Simple::Float(f64::from_bits(bits)),
            tag::STR_INLINE..=tag::STR_INLINE_LAST => {
                let size = tag - tag::STR_INLINE;
                if size > 1 << width_log2 {
                    return None;
                }
                Simple::Str(bytes.get(slot_offset..slot_offset + usize::from(size))?)
            }
            tag::TRUE => Simple::Bool(true),
            tag::FALSE => Simple::Bool(false),
            tag::NONE => Simple::None,
            _ => return None,
        };
        self.step();
        Some(value)
    }

    /// A walk over the shaped dict that `next` would return. `None`, as for `next_simple`, if the
    /// next value is not a shaped dict, or if `count_of` does not know the shape's number of slots.
    /// Pass its end to `consumed`, as always.
    #[inline(always)]
    pub fn next_shaped(&mut self, bytes: &[u8], count_of: impl FnOnce(u32) -> Option<u32>) -> Option<Walker> {
        if self.index >= self.container.count || self.container.kind.is_packed() {
            return None;
        }
        let slot_offset = self.slot_offset as usize;
        if *bytes.get(self.tag_offset as usize)? != tag::CONTAINER || bytes.len() > RECORD_SIZE_MAX {
            return None;
        }
        let bits = read_bits(bytes, slot_offset, self.container.width_log2)?;
        let (start, size) = self.entry(bytes, tag::CONTAINER, bits, slot_offset).ok()?;
        let end = start + size;
        // The same reads and checks as in `Container::nested`.
        let word = u32::from_le_bytes(*bytes.get(start as usize..end as usize)?.first_chunk()?);
        let (shape, width_log2) = (word >> 8, (word >> 4) as u8 & 0x0F);
        if word & 0x0F != Kind::Shaped as u32 || width_log2 > 3 {
            return None;
        }
        let count = count_of(shape)?;
        let slots = start + NESTED_SHAPED_HEAD_SIZE as u32;
        let heap = u64::from(slots) + slots_size(count, width_log2);
        if heap > u64::from(end) {
            return None;
        }
        let heap = heap as u32;
        self.limit = end;
        self.floor = if self.container.width_log2 == 3 { end } else { heap };
        self.step();
        let kind = Kind::Shaped;
        Some(Walker::new(Container { start, end, slots, heap, count, shape, kind, width_log2 }))
    }

    #[inline(always)]
    fn next_packed<'a>(&mut self, bytes: &[u8]) -> Result<Slot<'a>> {
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

    /// As `Container::extent`, with the end of the previous entry in place of the heap's begin.
    #[inline(always)]
    fn entry(&self, bytes: &[u8], tag: u8, bits: u64, slot_offset: usize) -> Result<(u32, u32)> {
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

    /// Sets where the container that `next` returned last has ended, which is its own walker's
    /// `end`.
    ///
    /// # Errors
    /// It ends after the limit that its slot gave it.
    #[inline]
    pub fn consumed(&mut self, end: u32) -> Result<()> {
        if end > self.limit {
            return corrupt(Damage::HeapOrder, end as usize);
        }
        self.floor = self.floor.max(end);
        Ok(())
    }

    /// The end of the part that has been walked: after the slots, and after the heap entries so
    /// far.
    #[inline]
    #[must_use]
    pub fn end(&self) -> u32 {
        self.floor
    }
}
