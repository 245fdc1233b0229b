//! Finds the end and the depth of a container.

use crate::error::{Corrupt, Damage, Result};
use crate::layout::{DEPTH_MAX, tag};
use crate::shape::Shapes;
use crate::view::{Container, Root, Slot, root};
use crate::walk::Walker;

/// The offset after the last byte of a container.
///
/// A slot narrower than 8 bytes does not tell where its container ends, only a limit. Heap entries
/// are in slot order, so the last entry tells the end: one slot on each level is read, not all. (In
/// a damaged record the result may be wrong; then the copied bytes are as damaged as before.)
pub(super) fn container_end<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    container: &Container,
) -> Result<u32> {
    let mut container = *container;
    for _ in 0..DEPTH_MAX {
        if container.kind.is_packed() {
            return Ok(container.index_start());
        }
        let Some(last) = last_heap_slot(record, &container) else { return Ok(container.heap) };
        let (offset, size) = heap_extent(record, &container, last)?;
        match container.slot(record, shapes, last)? {
            // A wide slot has the size.
            Slot::Container(inner) if container.width_log2 < 3 => container = inner,
            _ => return Ok(offset + size),
        }
    }
    Err(Corrupt::new(Damage::Depth, container.start as usize))
}

/// The offset and size of the payload of a slot with a heap tag; for a container in a narrow slot,
/// its limit.
pub(super) fn heap_extent(record: &[u8], container: &Container, index: u32) -> Result<(u32, u32)> {
    let (_, slot_at) = container.position(index);
    match (container.tag(record, index), container.bits(record, index)) {
        (Some(tag), Some(bits)) => container.extent(record, tag, bits, slot_at),
        _ => Err(Corrupt::new(Damage::Truncated, slot_at)),
    }
}

fn last_heap_slot(record: &[u8], container: &Container) -> Option<u32> {
    (0..container.count).rev().find(|index| container.tag(record, *index).is_some_and(|tag| tag >= tag::HEAP))
}

/// The nesting depth of a value, itself included. Containers within payloads count.
pub(super) fn depth<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Result<u32> {
    match root(record, shapes)? {
        Root::Container(container) => Ok(measure(record, shapes, container, DEPTH_MAX)?.0),
        Root::Scalar(slot) => Ok(payload_depth(record, shapes, slot, DEPTH_MAX)?),
    }
}

/// The depth, and the container's end for the walk of the outer one. `limit` is the greatest
/// allowed depth.
fn measure<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    container: Container,
    limit: u32,
) -> Result<(u32, u32)> {
    let Some(limit) = limit.checked_sub(1) else {
        return Err(Corrupt::new(Damage::Depth, container.start as usize));
    };
    let mut walker = Walker::new(container);
    if container.kind.is_packed() {
        return Ok((1, walker.end()));
    }
    let mut deepest = 0;
    while let Some(slot) = walker.next(record, shapes)? {
        let depth = if let Slot::Container(inner) = slot {
            let (depth, end) = measure(record, shapes, inner, limit)?;
            walker.consumed(end)?;
            depth
        } else {
            payload_depth(record, shapes, slot, limit)?
        };
        deepest = deepest.max(depth);
    }
    Ok((1 + deepest, walker.end()))
}

fn payload_depth<S: Shapes + ?Sized>(record: &[u8], shapes: &S, slot: Slot<'_>, limit: u32) -> Result<u32> {
    let Slot::Heap { tag: tag::NDARRAY | tag::REGISTERED, payload, offset } = slot else { return Ok(0) };
    let head = Container::nested(record, offset, offset + payload.len() as u32, shapes)?;
    Ok(measure(record, shapes, head, limit)?.0)
}
