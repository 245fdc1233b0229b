//! Writes a container anew from parts of the old one and new values.
//!
//! The encoder does it, and copies containers nested in the parts as bytes. The new slots may be
//! narrower or wider than the old ones.

use super::PatchError;
use super::extent::container_end;
use crate::encode::Encoder;
use crate::error::{Corrupt, Damage, EncodeError, Result};
use crate::layout::{Kind, ROOT_HEAD_SIZE, tag};
use crate::shape::Shapes;
use crate::view::{Container, Root, Slot, root};
use crate::walk::Walker;

/// The offset of the one container in a root list of one slot: after the head, a tag and the slot.
const ONLY_ELEMENT: usize = ROOT_HEAD_SIZE + 9;

/// A part of a container that is written anew.
#[derive(Clone, Copy, Debug)]
pub(super) enum Part<'a> {
    /// Slots of the old container, from the first up to the second.
    Slots(u32, u32),
    /// A value that is a record of its own.
    Value(&'a [u8]),
    /// A nested container.
    Container(&'a [u8]),
    /// A str: a name that becomes a key.
    Name(&'a str),
    /// An int that becomes a key.
    Int(i64),
    /// An absent field.
    Absent,
}

impl Part<'_> {
    fn slot_count(&self) -> u64 {
        match self {
            Part::Slots(first, end) => u64::from(end.saturating_sub(*first)),
            _ => 1,
        }
    }
}

/// A planned container: the changed parts of the old one.
pub(super) struct Plan<'a> {
    pub(super) kind: Kind,
    pub(super) shape: u32,
    pub(super) parts: Vec<Part<'a>>,
}

/// Writes a planned container: as a record, or as a nested container if the old one is nested.
pub(super) fn write<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    old: &Container,
    Plan { kind, shape, parts }: &Plan<'_>,
) -> Result<Vec<u8>, PatchError> {
    let mut encoder = Encoder::new();
    let is_nested = old.start > 0;
    if is_nested {
        // The encoder writes nested containers only inside a root: wrap it in one, and cut that off
        // again.
        encoder.begin(Kind::List, 1, 0)?;
    }
    let count: u64 = parts.iter().map(Part::slot_count).sum();
    let count = u32::try_from(count).map_err(|_| EncodeError::TooLarge)?;
    encoder.begin(if kind.is_packed() { Kind::List } else { *kind }, count, *shape)?;
    for part in parts {
        match *part {
            Part::Slots(first, end) => {
                let mut walker = Walker::at(*old, first);
                while walker.index() < end {
                    push_next(&mut encoder, record, shapes, &mut walker)?;
                }
            }
            Part::Value(value) => push_value(&mut encoder, value, shapes)?,
            Part::Container(bytes) => encoder.verbatim(bytes),
            Part::Name(name) => encoder.str(name.as_bytes()),
            Part::Int(int) => encoder.int(int),
            Part::Absent => encoder.absent(),
        }
    }
    encoder.end()?;
    let mut bytes = encoder.take();
    if is_nested {
        bytes.drain(..ONLY_ELEMENT.min(bytes.len()));
    }
    Ok(bytes)
}

/// Pushes the next slot of a walk. No two slots share bytes, so the result is no larger than the
/// record, even a damaged one.
fn push_next<S: Shapes + ?Sized>(
    encoder: &mut Encoder,
    record: &[u8],
    shapes: &S,
    walker: &mut Walker,
) -> Result<(), PatchError> {
    let Some(slot) = walker.next_bounded(record, shapes)? else {
        return Err(Corrupt::new(Damage::NoSuchSlot, walker.container().start as usize).into());
    };
    if let Slot::Container(inner) = slot {
        let end = if walker.container().width_log2 == 3 {
            inner.end
        } else {
            container_end(record, shapes, &inner)?
        };
        let Some(bytes) = record.get(inner.start as usize..end as usize) else {
            return Err(Corrupt::new(Damage::Truncated, inner.start as usize).into());
        };
        encoder.verbatim(bytes);
        return Ok(());
    }
    push_scalar(encoder, slot);
    Ok(())
}

fn push_scalar(encoder: &mut Encoder, slot: Slot<'_>) {
    match slot {
        Slot::Absent => encoder.absent(),
        // The caller pushes containers itself, since it knows their bytes.
        Slot::None | Slot::Container(_) => encoder.none(),
        Slot::Bool(value) => encoder.bool(value),
        Slot::Int(value) => encoder.int(value),
        Slot::Float(value) => encoder.float(value),
        Slot::Date(ordinal) => encoder.date(ordinal),
        Slot::Datetime(value) => encoder.datetime(value),
        Slot::Str(text) => encoder.str(text),
        Slot::Heap { tag: tag::BYTES, payload, .. } => encoder.bytes_value(payload),
        Slot::Heap { tag, payload, .. } => encoder.heap(tag, payload),
    }
}

fn push_value<S: Shapes + ?Sized>(encoder: &mut Encoder, value: &[u8], shapes: &S) -> Result<(), PatchError> {
    let container = match root(value, shapes)? {
        Root::Scalar(Slot::Absent) => return Err(Corrupt::new(Damage::Absent, 1).into()),
        Root::Scalar(slot) => {
            push_scalar(encoder, slot);
            return Ok(());
        }
        Root::Container(container) => container,
    };
    let kind = if container.kind.is_packed() { Kind::List } else { container.kind };
    encoder.begin(kind, container.count, container.shape)?;
    let mut walker = Walker::new(container);
    while walker.index() < container.count {
        push_next(encoder, value, shapes, &mut walker)?;
    }
    Ok(encoder.end()?)
}

/// A root list whose one element is this value, given as a record.
pub(crate) fn as_only_element<S: Shapes + ?Sized>(value: &[u8], shapes: &S) -> Result<Vec<u8>> {
    let mut encoder = Encoder::new();
    let pushed = encoder.begin(Kind::List, 1, 0).map_err(PatchError::Encode);
    match pushed.and_then(|()| push_value(&mut encoder, value, shapes)).and_then(|()| Ok(encoder.end()?)) {
        Ok(()) => Ok(encoder.take()),
        Err(PatchError::Corrupt(error)) => Err(error),
        // A record that was read from bytes exceeds no limit but this.
        Err(_) => Err(Corrupt::new(Damage::Depth, 0)),
    }
}
