//! Write the ids into an encoded record that were not known when it was encoded.
//!
//! A new shape gets its id from the database, and so does a value that is stored outside of its
//! record. Both ids have fixed places in the finished bytes.

use pellucid_record::envelope::renumber;
use pellucid_record::error::Corrupt;
use pellucid_record::large_ids::large_id_places;
use pellucid_record::shape::{Shape, Shapes};

use crate::values::encode::PROVISIONAL_ID;
use crate::values::names::{Names, ShapeNames};

/// The shapes of an encoded record: those of the database, and those that are still to be admitted.
struct WithPending<'a> {
    names: &'a Names,
    pending: &'a [Box<ShapeNames>],
}

impl Shapes for WithPending<'_> {
    fn shape(&self, id: u32) -> Option<&Shape> {
        match id.checked_sub(PROVISIONAL_ID) {
            Some(index) => self.pending.get(index as usize).map(|shape| &shape.shape),
            None => Shapes::shape(self.names, id),
        }
    }
}

/// Writes the ids of the values stored outside of the record, in the order in which they were
/// encoded.
///
/// # Errors
/// Damage in the record.
pub fn write_large_ids(
    record: &mut [u8],
    names: &Names,
    pending: &[Box<ShapeNames>],
    ids: &[u64],
) -> Result<(), Corrupt> {
    for (place, id) in large_id_places(record, &WithPending { names, pending })?.into_iter().zip(ids) {
        if let Some(bytes) = record.get_mut(place..place + 8) {
            bytes.copy_from_slice(&id.to_le_bytes());
        }
    }
    Ok(())
}

/// Writes the ids of the pending shapes, in their order.
///
/// # Errors
/// Damage in the record, or fewer ids than it needs.
pub fn write_shape_ids(
    record: &mut [u8],
    names: &Names,
    pending: &[Box<ShapeNames>],
    ids: &[u32],
) -> Result<(), Corrupt> {
    renumber(record, &WithPending { names, pending }, |id| match id.checked_sub(PROVISIONAL_ID) {
        Some(index) => ids.get(index as usize).copied(),
        None => Some(id),
    })
}
