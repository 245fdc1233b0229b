//! Turns the elements of a finished container into slots, a heap and an index.

use std::ops::Range;

use super::buffer::Buffer;
use super::{Frame, Staged};
use crate::error::EncodeError;
use crate::keyed::{self, CanonicalKey};
use crate::layout::{
    BLOCK_SLOTS, INDEX_ENTRY_SIZE, Kind, RECORD_SIZE_MAX, ROOT_WIDTH_LOG2, index_size, slots_size, tag,
    varint_size,
};
use crate::shape::Shape;
use crate::view::{Container, Slot};

/// Writes what is only known at the end: the slots, the width in the head, the index. Returns log2
/// of the width.
#[inline]
pub(super) fn finish(frame: &Frame, staged: &[Staged], buffer: &mut Buffer) -> Result<u8, EncodeError> {
    match frame.kind {
        Kind::List if is_uniform(staged) => Ok(write_packed(frame, staged, buffer)),
        Kind::Set | Kind::FrozenSet => write_set(*frame, staged.to_vec(), buffer),
        _ => write_slotted(frame, staged, buffer),
    }
}

/// Whether the elements are all ints or all floats, and there is at least one.
#[inline]
fn is_uniform(staged: &[Staged]) -> bool {
    match staged.first() {
        Some(Staged { tag: tag @ (tag::INT | tag::FLOAT), .. }) => {
            staged.iter().all(|element| element.tag == *tag)
        }
        _ => false,
    }
}

/// Writes the width, and the kind, which changes for packed lists, into a head.
#[inline]
fn set_head(frame: &Frame, kind: Kind, width_log2: u8, buffer: &mut Buffer) {
    let start = frame.start as usize;
    if frame.is_root {
        buffer.part_mut(start, start + 2).copy_from_slice(&[kind.root_byte(), width_log2]);
    } else {
        buffer.part_mut(start, start + 1).copy_from_slice(&[width_log2 << 4 | kind as u8]);
    }
}

/// Writes a list of only ints, or only floats, without tags.
fn write_packed(frame: &Frame, staged: &[Staged], buffer: &mut Buffer) -> u8 {
    let is_ints = staged.first().is_some_and(|first| first.tag == tag::INT);
    let kind = if is_ints { Kind::PackedInts } else { Kind::PackedFloats };
    let width_log2 = width_of(frame.need);
    buffer.truncate(frame.slots as usize);
    let out = buffer.gap(staged.len() << width_log2);
    match width_log2 {
        0 => write_elements::<1>(out, staged),
        1 => write_elements::<2>(out, staged),
        2 => write_elements::<4>(out, staged),
        _ => write_elements::<8>(out, staged),
    }
    set_head(frame, kind, width_log2, buffer);
    width_log2
}

fn write_elements<const W: usize>(out: &mut [u8], staged: &[Staged]) {
    for (target, element) in out.as_chunks_mut::<W>().0.iter_mut().zip(staged) {
        set_slot(target, element.bits);
    }
}

/// Writes the slots of a container whose elements are all known.
#[inline]
fn write_slotted(frame: &Frame, staged: &[Staged], buffer: &mut Buffer) -> Result<u8, EncodeError> {
    let (start, slots) = (frame.start as usize, frame.slots as usize);
    let index = if frame.kind == Kind::Keyed { index_size(frame.count / 2) } else { 0 };
    let mut heap = frame.heap as usize;
    let mut width_log2 = ROOT_WIDTH_LOG2;
    if !frame.is_root {
        width_log2 = width_of(frame.need);
        loop {
            heap = slots + (slots_size(frame.count, width_log2) + index) as usize;
            // `last` is one more than the offset that must fit; 8-byte slots have 4 bytes for an
            // offset.
            let reach = (heap - start) as u64 + u64::from(frame.last);
            if frame.last == 0 || width_log2 == 3 || (reach - 1) >> (8u32 << width_log2) == 0 {
                break;
            }
            width_log2 += 1;
        }
        if heap != frame.heap as usize {
            if buffer.size() + heap - frame.heap as usize > RECORD_SIZE_MAX {
                return Err(EncodeError::TooLarge);
            }
            buffer.move_tail(frame.heap as usize, heap);
        }
        set_head(frame, frame.kind, width_log2, buffer);
    }
    let base = (heap - start) as u64;
    let slots_end = slots + slots_size(frame.count, width_log2) as usize;
    let out = buffer.part_mut(slots, slots_end);
    match width_log2 {
        0 => write_slots::<1>(out, staged, base),
        1 => write_slots::<2>(out, staged, base),
        2 => write_slots::<4>(out, staged, base),
        _ if frame.is_root => write_wide_slots::<true>(out, staged, base),
        _ => write_wide_slots::<false>(out, staged, base),
    }
    if index != 0 {
        write_index(frame, staged, buffer, slots_end, heap);
    }
    Ok(width_log2)
}

/// Sorts a set's elements by (tag, slot or payload) and its heap with them; then writes the slots.
#[cold]
fn write_set(mut frame: Frame, mut elements: Vec<Staged>, buffer: &mut Buffer) -> Result<u8, EncodeError> {
    let old_heap = buffer.part(frame.heap as usize, buffer.size()).to_vec();
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
    buffer.truncate(frame.heap as usize);
    let mut last = 0;
    for element in elements.iter_mut().filter(|element| element.tag >= tag::HEAP) {
        let (entry, _) = heap_entry(&frame, 0, element);
        let moved = (buffer.size() - frame.heap as usize) as u32;
        buffer.push(old_heap.get(entry).unwrap_or_default());
        element.bits = element.bits & !0xFFFF_FFFF | u64::from(moved);
        last = moved + 1;
    }
    frame.last = last;
    write_slotted(&frame, &elements, buffer)
}

/// Writes the index of a keyed map at `at`, between its slots and its heap.
#[cold]
fn write_index(frame: &Frame, staged: &[Staged], buffer: &mut Buffer, at: usize, heap: usize) {
    let mut key = CanonicalKey::new();
    let mut all_keys = Vec::new();
    let mut entries: Vec<(u32, Range<usize>, u32)> = Vec::with_capacity(staged.len() / 2);
    for (entry, staged_key) in staged.iter().step_by(2).enumerate() {
        let (_, payload) = heap_entry(frame, heap, staged_key);
        let canonical = canonical_of_staged(buffer.bytes(), staged_key, payload, &mut key);
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
    let index = buffer.part_mut(at, heap);
    debug_assert_eq!(index.len(), entries.len() * INDEX_ENTRY_SIZE);
    for (target, (hash, _, entry)) in index.chunks_exact_mut(INDEX_ENTRY_SIZE).zip(entries) {
        target.copy_from_slice(&(u64::from(hash) | u64::from(entry) << 32).to_le_bytes());
    }
}

/// The place of an element of the heap at `heap`: the whole entry, and the payload within it.
fn heap_entry(frame: &Frame, heap: usize, element: &Staged) -> (Range<usize>, Range<usize>) {
    let offset = heap + (element.bits & 0xFFFF_FFFF) as usize;
    let size = (element.bits >> 32) as usize;
    let has_size = !frame.is_root && element.tag != tag::CONTAINER;
    let payload = offset + if has_size { varint_size(size as u32) } else { 0 };
    (offset..payload + size, payload..payload + size)
}

/// log2 of the narrowest width, in bytes, that holds these bits.
#[inline]
pub(super) fn width_of(need: u64) -> u8 {
    match 64 - need.leading_zeros() {
        0..=8 => 0,
        9..=16 => 1,
        17..=32 => 2,
        _ => 3,
    }
}

/// The canonical bytes of a staged key. Its payload, if it has one, is at `payload`.
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
    // A dict within a key would have a shape that is unknown here. It does not occur: such a key is
    // not hashable in Python.
    key.of(buffer, NO_SHAPES, &slot).unwrap_or_default()
}

/// Writes the low bytes of a slot.
#[inline]
pub(super) fn set_slot<const W: usize>(target: &mut [u8; W], bits: u64) {
    if let Some(low) = bits.to_le_bytes().first_chunk::<W>() {
        *target = *low;
    }
}

/// The offset that is added to the bits of heap entries only.
#[inline]
fn base_for(element: &Staged, base: u64) -> u64 {
    if element.tag >= tag::HEAP { base } else { 0 }
}

/// Writes blocks of slots of `W` bytes, W < 8. `base` is added to the offsets of heap entries;
/// their sizes, in the upper half of the bits, are cut off.
#[inline]
fn write_slots<const W: usize>(out: &mut [u8], staged: &[Staged], base: u64) {
    write_blocks::<W>(out, staged, |element| element.bits.wrapping_add(base_for(element, base)));
}

/// Writes blocks of slots of 8 bytes, which refer to the payload itself. In a nested container the
/// payload's size comes before it.
#[inline]
fn write_wide_slots<const IS_ROOT: bool>(out: &mut [u8], staged: &[Staged], base: u64) {
    write_blocks::<8>(out, staged, |element| {
        let mut bits = element.bits.wrapping_add(base_for(element, base));
        if !IS_ROOT && element.tag >= tag::HEAP && element.tag != tag::CONTAINER {
            bits += varint_size((element.bits >> 32) as u32) as u64;
        }
        bits
    });
}

/// Writes blocks of tags and slots of `W` bytes. Most containers are one block: what prepares an
/// iterator over blocks took as long as the block.
#[inline]
fn write_blocks<const W: usize>(mut out: &mut [u8], mut staged: &[Staged], bits_of: impl Fn(&Staged) -> u64) {
    while !staged.is_empty() {
        let (elements, rest) = staged.split_at(staged.len().min(BLOCK_SLOTS as usize));
        let Some((tags, behind)) = out.split_at_mut_checked(elements.len()) else { return };
        let Some((slots, behind)) = behind.split_at_mut_checked(elements.len() * W) else { return };
        for (tag, element) in tags.iter_mut().zip(elements) {
            *tag = element.tag;
        }
        for (slot, element) in slots.as_chunks_mut::<W>().0.iter_mut().zip(elements) {
            set_slot(slot, bits_of(element));
        }
        (out, staged) = (behind, rest);
    }
}
