//! Find the pickles in a record.
//!
//! A pickle is a payload of its own tag. If large buffers lie beside it, it is an object of the
//! registered name [`PICKLE_NAME`], which no class can have: names of classes have a dot.

use crate::error::Corrupt;
use crate::layout::{DEPTH_MAX, tag};
use crate::payload;
use crate::shape::Shapes;
use crate::view::{Container, Root, Slot, Walker, root};

/// The registered name of a pickle whose buffers lie beside it.
pub const PICKLE_NAME: &str = "pickle";

/// How many pickles a record has.
///
/// # Errors
/// When the record is damaged.
pub fn pickle_count<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Result<u64, Corrupt> {
    let mut count = 0;
    match root(record, shapes)? {
        Root::Container(container) => {
            add_of(record, shapes, container, DEPTH_MAX, &mut count)?;
        }
        Root::Scalar(slot) => add_of_slot(record, shapes, slot, DEPTH_MAX, &mut count)?,
    }
    Ok(count)
}

/// Adds the pickles of a container, and returns the offset where it ends.
fn add_of<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    container: Container,
    depth: u32,
    count: &mut u64,
) -> Result<u32, Corrupt> {
    let mut walker = Walker::new(container);
    if depth == 0 || container.kind.is_packed() {
        return Ok(walker.end());
    }
    while let Some(slot) = walker.next(record, shapes)? {
        if let Slot::Container(inner) = slot {
            let end = add_of(record, shapes, inner, depth - 1, count)?;
            walker.consumed(end)?;
        } else {
            add_of_slot(record, shapes, slot, depth, count)?;
        }
    }
    Ok(walker.end())
}

fn add_of_slot<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    slot: Slot<'_>,
    depth: u32,
    count: &mut u64,
) -> Result<(), Corrupt> {
    match slot {
        Slot::Heap { tag: tag::PICKLE, .. } => *count += 1,
        Slot::Heap { tag: tag::APART, payload, .. } => {
            *count += u64::from(payload::apart(payload).is_some_and(|apart| apart.tag == tag::PICKLE));
        }
        Slot::Heap { tag: tag::REGISTERED, .. } => {
            let Some(inner) = slot.payload_container(record, shapes)? else { return Ok(()) };
            let name = Walker::new(inner).next(record, shapes)?;
            if matches!(name, Some(Slot::Str(name)) if name == PICKLE_NAME.as_bytes()) {
                *count += 1;
            } else {
                add_of(record, shapes, inner, depth - 1, count)?;
            }
        }
        _ => {}
    }
    Ok(())
}
