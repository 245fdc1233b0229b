//! How do the elements of a container that has ended become slots, a heap and an index?

use std::ops::Range;

use super::{Encoder, Frame, Staged};
use crate::error::EncodeError;
use crate::keyed::{self, CanonicalKey};
use crate::layout::{
    BLOCK_SLOTS, INDEX_ENTRY_SIZE, Kind, RECORD_SIZE_MAX, ROOT_WIDTH_LOG2, index_size, slots_size, tag,
    varint_size,
};
use crate::shape::Shape;
use crate::view::{Container, Slot};

impl Encoder {
    /// Writes ints alone, or floats alone, without tags.
    pub(super) fn end_packed(&mut self, frame: &Frame) {
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

    /// Writes the slots of a container whose elements are all known.
    #[inline]
    pub(super) fn end_slots(&mut self, frame: &Frame) -> Result<(), EncodeError> {
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
            self.write_index(frame, slots_end, heap);
        }
        Ok(())
    }

    /// Moves the heap that begins at `from`, with all behind it, to `to`.
    #[cold]
    pub(super) fn move_heap(&mut self, from: usize, to: usize) -> Result<(), EncodeError> {
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

    /// Sorts a set's elements by (tag, payload) and its heap with them; then writes the slots.
    #[cold]
    pub(super) fn end_set(&mut self, mut frame: Frame) -> Result<(), EncodeError> {
        let mut elements = self.stage.split_off(frame.stage);
        let old_heap = self.buffer.split_off(frame.heap);
        let payload = |element: &Staged| old_heap.get(heap_entry(&frame, 0, element).1).unwrap_or_default();
        elements.sort_by(|a, b| {
            a.tag.cmp(&b.tag).then_with(|| {
                if a.tag < tag::HEAP {
                    a.bits.to_le_bytes().cmp(&b.bits.to_le_bytes())
                } else {
                    payload(a).cmp(payload(b))
                }
            })
        });
        frame.last = 0;
        for mut element in elements {
            if element.tag >= tag::HEAP {
                let (entry, _) = heap_entry(&frame, 0, &element);
                let moved = self.buffer.len() - frame.heap;
                self.buffer.extend_from_slice(old_heap.get(entry).unwrap_or_default());
                element.bits = element.bits & !0xFFFF_FFFF | moved as u64;
                frame.last = moved + 1;
            }
            self.stage.push(element);
        }
        self.end_slots(&frame)
    }

    /// Writes the index of a keyed map at `at`, between its slots and its heap.
    #[cold]
    fn write_index(&mut self, frame: &Frame, at: usize, heap: usize) {
        let staged = self.stage.get(frame.stage..).unwrap_or_default();
        let mut key = CanonicalKey::new();
        let mut all_keys = Vec::new();
        let mut entries: Vec<(u32, Range<usize>, u32)> = Vec::with_capacity(staged.len() / 2);
        for (entry, staged_key) in staged.iter().step_by(2).enumerate() {
            let (_, payload) = heap_entry(frame, heap, staged_key);
            let canonical = canonical_of_staged(&self.buffer, staged_key, payload, &mut key);
            entries.push((
                keyed::hash(canonical),
                all_keys.len()..all_keys.len() + canonical.len(),
                entry as u32,
            ));
            all_keys.extend_from_slice(canonical);
        }
        entries.sort_unstable_by(|(hash_a, key_a, entry_a), (hash_b, key_b, entry_b)| {
            let keys = || all_keys.get(key_a.clone()).cmp(&all_keys.get(key_b.clone()));
            hash_a.cmp(hash_b).then_with(keys).then(entry_a.cmp(entry_b))
        });
        let index = self.buffer.get_mut(at..heap).unwrap_or_default();
        debug_assert_eq!(index.len(), entries.len() * INDEX_ENTRY_SIZE);
        for (target, (hash, _, entry)) in index.chunks_exact_mut(INDEX_ENTRY_SIZE).zip(entries) {
            target.copy_from_slice(&(u64::from(hash) | u64::from(entry) << 32).to_le_bytes());
        }
    }
}

/// Where an element of the heap at `heap` stands: the whole entry, and the payload within it.
fn heap_entry(frame: &Frame, heap: usize, element: &Staged) -> (Range<usize>, Range<usize>) {
    let offset = heap + (element.bits & 0xFFFF_FFFF) as usize;
    let size = (element.bits >> 32) as usize;
    let has_size = !frame.is_root && element.tag != tag::CONTAINER;
    let payload = offset + if has_size { varint_size(size as u32) } else { 0 };
    (offset..payload + size, payload..payload + size)
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

/// The canonical bytes of a staged key, whose payload, if it has one, stands at `payload`.
fn canonical_of_staged<'a>(
    buffer: &[u8],
    staged: &Staged,
    payload: Range<usize>,
    key: &'a mut CanonicalKey,
) -> &'a [u8] {
    const NO_SHAPES: &[Shape] = &[];
    let inline = staged.bits.to_le_bytes();
    let (start, end) = (payload.start as u32, payload.end as u32);
    let payload = buffer.get(payload).unwrap_or_default();
    let slot = match staged.tag {
        tag::NONE => Slot::None,
        tag::FALSE => Slot::Bool(false),
        tag::TRUE => Slot::Bool(true),
        tag::INT => Slot::Int(staged.bits.cast_signed()),
        tag::FLOAT => Slot::Float(f64::from_bits(staged.bits)),
        tag::DATE => Slot::Date(staged.bits as u32),
        tag::DATETIME => Slot::Datetime(staged.bits.cast_signed()),
        tag::STR_INLINE..=tag::STR_INLINE_LAST => {
            Slot::Str(inline.get(..usize::from(staged.tag - tag::STR_INLINE)).unwrap_or_default())
        }
        tag::BYTES_INLINE..=tag::BYTES_INLINE_LAST => Slot::Heap {
            tag: tag::BYTES,
            payload: inline.get(..usize::from(staged.tag - tag::BYTES_INLINE)).unwrap_or_default(),
            offset: 0,
        },
        tag::STR => Slot::Str(payload),
        tag::CONTAINER => match Container::nested(buffer, start, end, NO_SHAPES) {
            Ok(container) => Slot::Container(container),
            Err(_) => Slot::Heap { tag: tag::CONTAINER, payload, offset: 0 },
        },
        tag => Slot::Heap { tag, payload, offset: 0 },
    };
    // A dict within a key (no caller has one: it could not be a key in Python) is of a shape that is not known here.
    key.of(buffer, NO_SHAPES, &slot).unwrap_or_default()
}

/// Writes blocks of slots of `W` bytes, W < 8. `base` is added to the offsets of heap entries.
#[inline]
fn write_slots<const W: usize>(out: &mut [u8], staged: &[Staged], base: u64) {
    let block_size = BLOCK_SLOTS as usize * (1 + W);
    for (block, elements) in out.chunks_mut(block_size).zip(staged.chunks(BLOCK_SLOTS as usize)) {
        let (tags, slots) = block.split_at_mut(elements.len());
        for ((tag, slot), element) in tags.iter_mut().zip(slots.chunks_exact_mut(W)).zip(elements) {
            *tag = element.tag;
            let is_inline = element.tag < tag::HEAP;
            let bits = if is_inline { element.bits } else { (element.bits & 0xFFFF_FFFF) + base };
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
