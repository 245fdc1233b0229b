//! Which large values, stored outside of a record, the record refers to.

use crate::error::Corrupt;
use crate::layout::{DEPTH_MAX, tag};
use crate::payload;
use crate::shape::Shapes;
use crate::view::{self, Container, Root, Slot, Walker};

/// The ids of the large values to which a record refers.
///
/// # Errors
/// Damage in the record.
pub fn large_ids<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Result<Vec<u64>, Corrupt> {
    let mut ids = Vec::new();
    match view::root(record, shapes)? {
        Root::Container(container) => {
            add_of_container(record, shapes, container, DEPTH_MAX, &mut ids)?;
        }
        Root::Scalar(slot) => add_of_slot(record, shapes, slot, DEPTH_MAX, &mut ids)?,
    }
    Ok(ids)
}

fn add_of_container<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    container: Container,
    depth: u32,
    ids: &mut Vec<u64>,
) -> Result<u32, Corrupt> {
    let mut walker = Walker::new(container);
    if depth == 0 || container.kind.is_packed() {
        return Ok(walker.end());
    }
    while let Some(slot) = walker.next(record, shapes)? {
        if let Slot::Container(inner) = slot {
            let end = add_of_container(record, shapes, inner, depth - 1, ids)?;
            walker.consumed(end)?;
        } else {
            add_of_slot(record, shapes, slot, depth, ids)?;
        }
    }
    Ok(walker.end())
}

fn add_of_slot<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    slot: Slot<'_>,
    depth: u32,
    ids: &mut Vec<u64>,
) -> Result<(), Corrupt> {
    if let Slot::Heap { tag: tag::APART, payload, .. } = slot {
        ids.extend(payload::apart(payload).map(|apart| apart.blob));
    } else if let Some(inner) = slot.payload_container(record, shapes)? {
        add_of_container(record, shapes, inner, depth - 1, ids)?;
    }
    Ok(())
}
