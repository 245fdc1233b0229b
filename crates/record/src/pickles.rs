//! Find the pickles in a record.
//!
//! A pickle is a payload of its own tag. If large buffers lie beside it, it is an object of the
//! registered name [`PICKLE_NAME`], which no class can have: names of classes have a dot.

use crate::error::Result;
use crate::layout::tag;
use crate::payload;
use crate::shape::Shapes;
use crate::view::{Slot, Walker};
use crate::visit::visit_values;

/// The registered name of a pickle whose buffers lie beside it.
pub const PICKLE_NAME: &str = "pickle";

/// How many pickles a record has.
///
/// # Errors
/// When the record is damaged.
pub fn pickle_count<S: Shapes + ?Sized>(record: &[u8], shapes: &S) -> Result<u64> {
    let mut count = 0;
    visit_values(record, shapes, |slot| {
        let is_pickle = match slot {
            Slot::Heap { tag: tag::PICKLE, .. } => true,
            Slot::Heap { tag: tag::OVERFLOW, payload, .. } => {
                payload::overflow(payload).is_some_and(|overflow| overflow.tag == tag::PICKLE)
            }
            Slot::Heap { tag: tag::REGISTERED, .. } => {
                let name = match slot.payload_container(record, shapes)? {
                    Some(object) => Walker::new(object).next(record, shapes)?,
                    None => None,
                };
                matches!(name, Some(Slot::Str(name)) if name == PICKLE_NAME.as_bytes())
            }
            _ => false,
        };
        count += u64::from(is_pickle);
        Ok(!is_pickle)
    })?;
    Ok(count)
}
