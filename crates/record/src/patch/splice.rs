//! Updates the outer containers of one that has changed its size.
//!
//! The bytes of an outer container before and after the changed one are copied, and the offsets of
//! the entries after it are adjusted. No value is decoded. Only if an offset no longer fits the
//! slot width is the container written anew.

use super::extent::container_end;
use super::write::{Part, Plan, write};
use super::{Level, PatchError};
use crate::error::{Corrupt, Damage, EncodeError};
use crate::layout::{RECORD_SIZE_MAX, tag};
use crate::shape::Shapes;
use crate::view::Container;

/// Replaces, level by level, the container through which the path went by its changed version.
/// Returns the record and how many containers had to be written anew.
pub(super) fn splice_outward<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    levels: &[Level],
    mut inner: Container,
    mut changed: Vec<u8>,
) -> Result<(Vec<u8>, u32), PatchError> {
    let mut widened = 0;
    for level in levels.iter().rev() {
        let outer = level.container;
        let inner_end = inner_end(record, shapes, level, &inner)?;
        let outer_end = container_end(record, shapes, &outer)?;
        changed =
            if let Some(spliced) = spliced(record, level, outer_end, (inner.start, inner_end), &changed)? {
                spliced
            } else {
                widened += 1;
                widen(record, shapes, level, &changed)?
            };
        inner = outer;
    }
    Ok((changed, widened))
}

/// The end of the inner container. A wide slot tells it; unused bytes at its end are dropped with
/// it.
fn inner_end<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    level: &Level,
    inner: &Container,
) -> Result<u32, PatchError> {
    if level.container.width_log2 == 3 { Ok(inner.end) } else { Ok(container_end(record, shapes, inner)?) }
}

/// The bytes of a container with new bytes for the inner one of this level's slot. `None` if an
/// offset would not fit.
fn spliced(
    record: &[u8],
    level: &Level,
    outer_end: u32,
    (inner_start, inner_end): (u32, u32),
    changed: &[u8],
) -> Result<Option<Vec<u8>>, PatchError> {
    let outer = level.container;
    let (Some(before), Some(behind)) = (
        record.get(outer.start as usize..inner_start as usize),
        record.get(inner_end as usize..outer_end.max(inner_end) as usize),
    ) else {
        return Err(Corrupt::new(Damage::HeapOrder, inner_start as usize).into());
    };
    if before.len() + changed.len() + behind.len() > RECORD_SIZE_MAX {
        return Err(EncodeError::TooLarge.into());
    }
    let mut bytes = Vec::with_capacity(before.len() + changed.len() + behind.len());
    bytes.extend_from_slice(before);
    bytes.extend_from_slice(changed);
    bytes.extend_from_slice(behind);

    let moved_from = u64::from(inner_end - outer.start);
    // Both are below 4 GiB.
    let moved_by = (changed.len() as u64).cast_signed() - i64::from(inner_end - inner_start);
    for index in level.slot..outer.count {
        let (tag_at, slot_at) = outer.position(index);
        let width = 1 << outer.width_log2;
        let (tag_at, slot_at) = (tag_at - outer.start as usize, slot_at - outer.start as usize);
        if bytes.get(tag_at).is_none_or(|tag| *tag < tag::HEAP) {
            continue;
        }
        let Some(slot) = bytes.get_mut(slot_at..slot_at + width) else {
            return Err(Corrupt::new(Damage::Truncated, slot_at).into());
        };
        let mut wide = [0; 8];
        wide.iter_mut().zip(slot.iter()).for_each(|(wide, byte)| *wide = *byte);
        let bits = u64::from_le_bytes(wide);
        let (mut offset, mut size) = (bits & 0xFFFF_FFFF, bits >> 32);
        if index == level.slot {
            // This slot keeps its offset; a wide slot has the size.
            size = if width == 8 { changed.len() as u64 } else { 0 };
        } else if offset >= moved_from {
            offset = offset.saturating_add_signed(moved_by);
        }
        if width < 8 && offset >> (8 * width) > 0 {
            return Ok(None);
        }
        let bits = (offset | size << 32).to_le_bytes();
        slot.iter_mut().zip(bits).for_each(|(byte, new)| *byte = new);
    }
    Ok(Some(bytes))
}

/// The same container, written anew with slots as wide as necessary.
fn widen<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    level: &Level,
    changed: &[u8],
) -> Result<Vec<u8>, PatchError> {
    let outer = level.container;
    let parts =
        vec![Part::Slots(0, level.slot), Part::Container(changed), Part::Slots(level.slot + 1, outer.count)];
    write(record, shapes, &outer, &Plan { kind: outer.kind, shape: outer.shape, parts })
}
