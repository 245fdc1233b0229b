//! Where is a field in this record, given that it was there in the last one?
//!
//! A `FieldReader` follows one path through record after record. For a path of one field it
//! remembers the head of the last root and where the field's tag and slot stood in it: records of one
//! shape differ in neither, so that reading the next is one comparison and two loads. A longer path
//! is walked container by container.

use pellucid_record::layout::{ROOT_HEAD_SIZE, tag};
use pellucid_record::path::{Step as PathStep, slot_index};
use pellucid_record::view::{Container, Root, Slot, root};
use pellucid_record::{Corrupt, Kind, Shapes};

/// One step of an owned path.
#[derive(Clone, Debug)]
pub enum Step {
    /// A field, by name.
    Field(Box<str>),
    /// An element of a list, or the entry of an int key.
    Index(i64),
    /// The entry of another key, as a record of its own.
    Key(Box<[u8]>),
}

impl Step {
    fn borrowed(&self) -> PathStep<'_> {
        match self {
            Step::Field(name) => PathStep::Field(name),
            Step::Index(index) => PathStep::Index(*index),
            Step::Key(key) => PathStep::Key(key),
        }
    }
}

/// Reads the field at one path out of many records.
pub struct FieldReader {
    path: Vec<Step>,
    // The head of the roots for which the offsets hold; 0 is no head of a record.
    head: u64,
    tag_offset: usize,
    slot_offset: usize,
}

impl FieldReader {
    /// A reader of `path`, which has at least one step.
    #[must_use]
    pub fn new(path: Vec<Step>) -> Self {
        Self { path, head: 0, tag_offset: 0, slot_offset: 0 }
    }

    /// The int in the field, if it is one and stands where it stood in the record before.
    #[inline]
    #[must_use]
    pub fn quick_int(&self, record: &[u8]) -> Option<i64> {
        let head = u64::from_le_bytes(*record.first_chunk()?);
        if head != self.head || *record.get(self.tag_offset)? != tag::INT {
            return None;
        }
        Some(i64::from_le_bytes(*record.get(self.slot_offset..)?.first_chunk()?))
    }

    /// The float in the field, if it is one and stands where it stood in the record before.
    #[inline]
    #[must_use]
    pub fn quick_float(&self, record: &[u8]) -> Option<f64> {
        let head = u64::from_le_bytes(*record.first_chunk()?);
        if head != self.head || *record.get(self.tag_offset)? != tag::FLOAT {
            return None;
        }
        Some(f64::from_le_bytes(*record.get(self.slot_offset..)?.first_chunk()?))
    }

    /// What is in the field; None where the record has no such field.
    ///
    /// # Errors
    /// Damage on the way to it.
    pub fn read<'a, S: Shapes + ?Sized>(
        &mut self,
        record: &'a [u8],
        shapes: &S,
    ) -> Result<Option<Slot<'a>>, Corrupt> {
        let Root::Container(mut container) = root(record, shapes)? else { return Ok(None) };
        let Some((last, way)) = self.path.split_last() else { return Ok(None) };
        for step in way {
            match Self::step(record, shapes, &container, step)? {
                Some((_, Slot::Container(inner))) => container = inner,
                _ => return Ok(None),
            }
        }
        let Some((index, slot)) = Self::step(record, shapes, &container, last)? else { return Ok(None) };
        if self.path.len() == 1 && container.kind == Kind::Shaped {
            self.remember(record, &container, index);
        }
        Ok(Some(slot))
    }

    fn step<'a, S: Shapes + ?Sized>(
        record: &'a [u8],
        shapes: &S,
        container: &Container,
        step: &Step,
    ) -> Result<Option<(u32, Slot<'a>)>, Corrupt> {
        let Some(index) = slot_index(record, shapes, container, step.borrowed())? else { return Ok(None) };
        match container.slot(record, shapes, index)? {
            Slot::Absent => Ok(None),
            slot => Ok(Some((index, slot))),
        }
    }

    fn remember(&mut self, record: &[u8], container: &Container, index: u32) {
        let Some(head) = record.first_chunk::<ROOT_HEAD_SIZE>() else { return };
        self.head = u64::from_le_bytes(*head);
        (self.tag_offset, self.slot_offset) = container.position(index);
    }
}
