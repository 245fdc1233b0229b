//! Overwrites a value in place, if the new one fits.

use super::extent::heap_extent;
use super::{Change, PatchError, check_mutable, descend_past, existing_slot};
use crate::error::{Corrupt, Damage, Result};
use crate::layout::{Kind, ROOT_WIDTH_LOG2, push_varint, tag};
use crate::path::{Step, slot_index};
use crate::shape::Shapes;
use crate::view::{Container, Root, Slot, root};

/// Makes a change by [`overwrite`], if it is a delete, or a scalar that fits. Returns whether it
/// did.
///
/// # Errors
/// As `overwrite`.
pub fn overwrite_by<S: Shapes + ?Sized>(
    record: &mut [u8],
    shapes: &S,
    path: &[Step<'_>],
    change: Change<'_>,
) -> Result<bool, PatchError> {
    match change {
        Change::Delete => overwrite(record, shapes, path, &Slot::Absent),
        Change::Set(value) => match root(value, shapes)? {
            Root::Scalar(slot) => overwrite(record, shapes, path, &slot),
            Root::Container(_) => Ok(false),
        },
        _ => Ok(false),
    }
}

/// Writes a value over the one at `path`, if it fits there, and returns whether it did. If not,
/// nothing has changed, and [`apply`](super::apply) can make the change.
///
/// What fits: a scalar that the slot is wide enough for; text and other payloads no longer than the
/// existing one on the heap; `Slot::Absent`, which deletes a field of a shaped dict. A container, a
/// reference to a value that is stored apart, or an object that may have such in it, is never
/// overwritten.
///
/// # Errors
/// The path leads nowhere (a dict's missing last field only gives false), or to a part of a tuple
/// or set; or the bytes are damaged.
pub fn overwrite<S: Shapes + ?Sized>(
    record: &mut [u8],
    shapes: &S,
    path: &[Step<'_>],
    value: &Slot<'_>,
) -> Result<bool, PatchError> {
    let Some((towards, steps)) = path.split_last() else { return Ok(false) };
    let container = descend_past(record, shapes, steps, |_| ())?;
    check_mutable(&container, steps.len())?;
    let is_delete = *value == Slot::Absent;
    let index = match slot_index(record, shapes, &container, *towards)? {
        Some(index) => index,
        None if container.kind.is_dict() && !is_delete => return Ok(false),
        None => existing_slot(record, shapes, &container, steps.len(), *towards)?,
    };
    let (tag_at, slot_at) = container.position(index);
    if container.kind.is_packed() {
        let bits = match (container.kind, *value) {
            (Kind::PackedInts, Slot::Int(value)) if fits(value, container.width_log2) => {
                value.cast_unsigned()
            }
            (Kind::PackedFloats, Slot::Float(value)) => value.to_bits(),
            _ => return Ok(false),
        };
        write_bits(record, slot_at, container.width_log2, bits)?;
        return Ok(true);
    }
    let Some(old_tag) = container.tag(record, index) else {
        return Err(Corrupt::new(Damage::Truncated, tag_at).into());
    };
    match old_tag {
        // A field that comes back has to be after the others.
        tag::ABSENT if is_delete => return Err(PatchError::NoSuchField { step: steps.len() }),
        tag::ABSENT | tag::CONTAINER | tag::OVERFLOW | tag::REGISTERED => return Ok(false),
        _ if is_delete && container.kind != Kind::Shaped => return Ok(false),
        _ => {}
    }
    if let Some((tag, bits)) = inline(value, container.width_log2) {
        write_bits(record, slot_at, container.width_log2, bits)?;
        write_bits(record, tag_at, 0, u64::from(tag))?;
        return Ok(true);
    }
    let (new_tag, payload) = match *value {
        Slot::Str(text) => (tag::STR, text),
        // Payloads with containers in them might nest too deep here.
        Slot::Heap { tag: tag::OVERFLOW | tag::REGISTERED | tag::NDARRAY, .. } => return Ok(false),
        Slot::Heap { tag, payload, .. } => (tag, payload),
        _ => return Ok(false),
    };
    if old_tag < tag::HEAP || !write_payload(record, &container, index, payload)? {
        return Ok(false);
    }
    write_bits(record, tag_at, 0, u64::from(new_tag))?;
    Ok(true)
}

/// The tag and the slot of a value that needs no heap.
fn inline(value: &Slot<'_>, width_log2: u8) -> Option<(u8, u64)> {
    Some(match *value {
        Slot::Absent => (tag::ABSENT, 0),
        Slot::None => (tag::NONE, 0),
        Slot::Bool(false) => (tag::FALSE, 0),
        Slot::Bool(true) => (tag::TRUE, 0),
        Slot::Int(value) if fits(value, width_log2) => (tag::INT, value.cast_unsigned()),
        Slot::Float(value) if width_log2 == ROOT_WIDTH_LOG2 => (tag::FLOAT, value.to_bits()),
        Slot::Date(ordinal) if width_log2 >= 2 => (tag::DATE, u64::from(ordinal)),
        Slot::Datetime(value) if width_log2 == ROOT_WIDTH_LOG2 => (tag::DATETIME, value.cast_unsigned()),
        Slot::Str(text) => (tag::STR_INLINE + text.len().min(9) as u8, padded(text, width_log2)?),
        Slot::Heap { tag: tag::BYTES, payload, .. } => {
            (tag::BYTES_INLINE + payload.len().min(9) as u8, padded(payload, width_log2)?)
        }
        _ => return None,
    })
}

/// Whether a slot of this width can hold the int.
fn fits(value: i64, width_log2: u8) -> bool {
    let unused = 64 - (8u32 << width_log2.min(ROOT_WIDTH_LOG2));
    value << unused >> unused == value
}

/// Bytes as a slot of this width, if they fit.
fn padded(bytes: &[u8], width_log2: u8) -> Option<u64> {
    let mut slot = [0; 8];
    slot.get_mut(..1 << width_log2)?.get_mut(..bytes.len())?.copy_from_slice(bytes);
    Some(u64::from_le_bytes(slot))
}

/// Writes the low bytes of `bits`.
fn write_bits(record: &mut [u8], offset: usize, width_log2: u8, bits: u64) -> Result<()> {
    let width = 1 << width_log2;
    match (record.get_mut(offset..).and_then(|rest| rest.get_mut(..width)), bits.to_le_bytes().get(..width)) {
        (Some(slot), Some(bits)) => {
            slot.copy_from_slice(bits);
            Ok(())
        }
        _ => Err(Corrupt::new(Damage::Truncated, offset)),
    }
}

/// Writes a payload, with its size, over that of the slot `index`, if it is no longer.
fn write_payload(record: &mut [u8], container: &Container, index: u32, payload: &[u8]) -> Result<bool> {
    let (offset, size_max) = heap_extent(record, container, index)?;
    let size = match u32::try_from(payload.len()) {
        Ok(size) if size <= size_max => size,
        _ => return Ok(false),
    };
    let (_, slot_at) = container.position(index);
    let Some(bits) = container.bits(record, index) else {
        return Err(Corrupt::new(Damage::Truncated, slot_at));
    };
    if container.width_log2 == ROOT_WIDTH_LOG2 {
        write_bits(record, slot_at, ROOT_WIDTH_LOG2, bits & 0xFFFF_FFFF | u64::from(size) << 32)?;
        write_bytes(record, offset, payload)?;
    } else {
        // A smaller size may take fewer bytes; the payload follows it directly.
        let mut entry = Vec::with_capacity(payload.len() + 5);
        push_varint(&mut entry, size);
        entry.extend_from_slice(payload);
        write_bytes(record, container.start + bits as u32, &entry)?;
    }
    Ok(true)
}

fn write_bytes(record: &mut [u8], offset: u32, bytes: &[u8]) -> Result<()> {
    match record.get_mut(offset as usize..).and_then(|rest| rest.get_mut(..bytes.len())) {
        Some(place) => {
            place.copy_from_slice(bytes);
            Ok(())
        }
        None => Err(Corrupt::new(Damage::Truncated, offset as usize)),
    }
}
