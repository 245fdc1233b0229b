//! Where does a container end, and how deep does it go?

use crate::error::{Corrupt, Damage};
use crate::layout::{DEPTH_MAX, tag};
use crate::shape::Shapes;
use crate::view::{Container, Root, Slot, root};
use crate::walk::Walker;

/// The byte behind the last one that belongs to a container.
///
/// A slot narrower than 8 bytes does not say where the container in it ends, only what it does not pass. Heap entries stand
/// in slot order, so that the last one tells: one slot in each level is looked at, not all. (In a damaged record that
/// may be another place; then what is copied is as damaged as it was.)
pub(super) fn container_end<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    container: &Container,
) -> Result<u32, Corrupt> {
    let mut container = *container;
    for _ in 0..DEPTH_MAX {
        if container.kind.is_packed() {
            return Ok(container.index_start());
        }
        let Some(last) = last_heap_slot(record, &container) else { return Ok(container.heap) };
        let (offset, size) = heap_extent(record, &container, last)?;
        match container.slot(record, shapes, last)? {
            // A wide slot says it.
            Slot::Container(inner) if container.width_log2 < 3 => container = inner,
            _ => return Ok(offset + size),
        }
    }
    Err(Corrupt::new(Damage::Depth, container.start as usize))
}

/// Where the payload of a slot with a heap tag stands, and its size; of a container in a narrow slot, what it may take.
pub(super) fn heap_extent(record: &[u8], container: &Container, index: u32) -> Result<(u32, u32), Corrupt> {
    let (_, slot_at) = container.position(index);
    match (container.tag(record, index), container.bits(record, index)) {
        (Some(tag), Some(bits)) => container.extent(record, tag, bits, slot_at),
        _ => Err(Corrupt::new(Damage::Truncated, slot_at)),
    }
}

fn last_heap_slot(record: &[u8], container: &Container) -> Option<u32> {
    (0..container.count).rev().find(|index| container.tag(record, *index).is_some_and(|tag| tag >= tag::HEAP))
}

/// How many containers stand inside one another in a value, itself included; those within payloads count.
pub(super) fn depth<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Result<u32, Corrupt> {
    match root(record, shapes)? {
        Root::Container(container) => Ok(measure(record, shapes, container, DEPTH_MAX)?.0),
        Root::Scalar(slot) => Ok(payload_depth(record, shapes, slot, DEPTH_MAX)?),
    }
}

/// The depth, and where the container ends, which the walk of the one around it wants to know. `limit` is how deep it may be.
fn measure<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    container: Container,
    limit: u32,
) -> Result<(u32, u32), Corrupt> {
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

fn payload_depth<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    slot: Slot<'_>,
    limit: u32,
) -> Result<u32, Corrupt> {
    let Slot::Heap { tag: tag::NDARRAY | tag::REGISTERED, payload, offset } = slot else { return Ok(0) };
    let head = Container::nested(record, offset, offset + payload.len() as u32, shapes)?;
    Ok(measure(record, shapes, head, limit)?.0)
}
