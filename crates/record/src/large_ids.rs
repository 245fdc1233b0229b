//! Which large values, stored outside of a record, the record refers to.

use crate::error::Result;
use crate::layout::tag;
use crate::payload;
use crate::shape::Shapes;
use crate::view::Slot;
use crate::visit::visit_values;

/// The ids of the large values to which a record refers.
///
/// # Errors
/// Damage in the record.
pub fn large_ids<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Result<Vec<u64>> {
    let mut ids = Vec::new();
    visit_values(record, shapes, |slot| {
        if let Slot::Heap { tag: tag::OVERFLOW, payload, .. } = slot {
            ids.extend(payload::overflow(payload).map(|overflow| overflow.blob));
        }
        Ok(true)
    })?;
    Ok(ids)
}

/// The offsets of these ids in the record, in the order in which they were encoded.
///
/// # Errors
/// Damage in the record.
pub fn large_id_places<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Result<Vec<usize>> {
    let mut places = Vec::new();
    visit_values(record, shapes, |slot| {
        if let Slot::Heap { tag: tag::OVERFLOW, offset, .. } = slot {
            // The payload's first byte is the value's own tag; the id follows it.
            places.push(offset as usize + 1);
        }
        Ok(true)
    })?;
    Ok(places)
}
