//! Visit every value of a record that is not a container, at any depth.

use crate::error::Result;
use crate::layout::DEPTH_MAX;
use crate::shape::Shapes;
use crate::view::{Container, Root, Slot, Walker, root};

/// Calls `visit` for each value of a record that is not a container, in the order in which they are
/// stored.
///
/// `visit` returns whether to go on into the payload, if it is a container (an array, or an object
/// of a registered class). Packed numbers are passed over.
///
/// # Errors
/// Damage in the record, and what `visit` returns.
pub fn visit_values<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    mut visit: impl FnMut(Slot<'_>) -> Result<bool>,
) -> Result<()> {
    let mut visitor = Visitor { record, shapes, visit: &mut visit };
    match root(record, shapes)? {
        Root::Container(container) => visitor.container(container, DEPTH_MAX).map(|_end| ()),
        Root::Scalar(slot) => visitor.value(slot, DEPTH_MAX),
    }
}

struct Visitor<'a, S: ?Sized, F> {
    record: &'a [u8],
    shapes: &'a S,
    visit: &'a mut F,
}

impl<S: Shapes + ?Sized, F: FnMut(Slot<'_>) -> Result<bool>> Visitor<'_, S, F> {
    /// Visits the values of a container, and returns the offset where it ends.
    fn container(&mut self, container: Container, depth: u32) -> Result<u32> {
        let mut walker = Walker::new(container);
        if depth == 0 || container.kind.is_packed() {
            return Ok(walker.end());
        }
        while let Some(slot) = walker.next(self.record, self.shapes)? {
            if let Slot::Container(inner) = slot {
                walker.consumed(self.container(inner, depth - 1)?)?;
            } else {
                self.value(slot, depth)?;
            }
        }
        Ok(walker.end())
    }

    fn value(&mut self, slot: Slot<'_>, depth: u32) -> Result<()> {
        if (self.visit)(slot)?
            && let Some(inner) = slot.payload_container(self.record, self.shapes)?
        {
            self.container(inner, depth - 1)?;
        }
        Ok(())
    }
}
