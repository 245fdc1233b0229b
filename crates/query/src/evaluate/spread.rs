//! Gives the elements of an array in its place, for aggregates.

use pellucid_record::layout::tag;
use pellucid_record::{Corrupt, Shapes, Slot};

use super::found::Found;
use crate::array::Array;

/// Passes a value on, and of an array of numbers each element. An array without dimensions is
/// passed on as it is: it is no number to conditions either.
///
/// # Errors
/// Damage of the array, and what `take` returns.
#[inline]
pub fn spread<S: Shapes + ?Sized>(
    found: &Found<'_>,
    shapes: &S,
    mut take: impl FnMut(&Found<'_>) -> Result<(), Corrupt>,
) -> Result<(), Corrupt> {
    if let Found::Slot(slot @ Slot::Heap { tag: tag::NDARRAY, .. }, record) = found
        && let Some(array) = Array::of_slot(slot, record, shapes)?
        && !array.dimensions.is_empty()
    {
        let mut elements = (0..array.count()).filter_map(|place| array.element(place));
        return elements.try_for_each(|element| take(&Found::of_value(element)));
    }
    take(found)
}
