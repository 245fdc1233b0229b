//! Where is a field in this record, given that it was there in the last one?
//!
//! A `FieldReader` follows one path through record after record. For a path of one field it
//! remembers the heads of the roots it met and where the field's tag and slot stood under each: records
//! of one shape differ in neither, so that reading the next is one comparison and two loads. A
//! longer path is walked container by container.

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

/// An int or a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An int.
    Int(i64),
    /// A float.
    Float(f64),
}

/// Where the field stands in records with one head.
#[derive(Clone, Copy, Default)]
struct Place {
    // 0 is no head of a record.
    head: u64,
    tag_offset: u32,
    slot_offset: u32,
}

/// Heads remembered. A table rarely has more shapes at its root, and then only the walk is slower.
const PLACE_COUNT: usize = 256;

/// Reads the field at one path out of many records.
pub struct FieldReader {
    path: Vec<Step>,
    places: Box<[Place; PLACE_COUNT]>,
}

#[inline]
fn spot(head: u64) -> usize {
    // The shape id stands from bit 32 on; ids are dense, so neighbours do not meet.
    (head >> 32) as usize % PLACE_COUNT
}

impl FieldReader {
    /// A reader of `path`, which has at least one step.
    #[must_use]
    pub fn new(path: Vec<Step>) -> Self {
        Self { path, places: Box::new([Place::default(); PLACE_COUNT]) }
    }

    /// The tag and the slot of the field, if a record with this head was met before.
    #[inline]
    fn quick(&self, record: &[u8]) -> Option<(u8, [u8; 8])> {
        let head = u64::from_le_bytes(*record.first_chunk()?);
        let place = self.places.get(spot(head))?;
        if place.head != head {
            return None;
        }
        let tag = *record.get(place.tag_offset as usize)?;
        Some((tag, *record.get(place.slot_offset as usize..)?.first_chunk()?))
    }

    /// The int in the field, if it is one and a record with the same head was met before.
    #[inline]
    #[must_use]
    pub fn quick_int(&self, record: &[u8]) -> Option<i64> {
        match self.quick(record)? {
            (tag::INT, slot) => Some(i64::from_le_bytes(slot)),
            _ => None,
        }
    }

    /// The number in the field, if it is an int or a float and a record with the same head was met before.
    #[inline]
    #[must_use]
    pub fn quick_number(&self, record: &[u8]) -> Option<Number> {
        match self.quick(record)? {
            (tag::INT, slot) => Some(Number::Int(i64::from_le_bytes(slot))),
            (tag::FLOAT, slot) => Some(Number::Float(f64::from_le_bytes(slot))),
            _ => None,
        }
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
        let head = u64::from_le_bytes(*head);
        let (tag_offset, slot_offset) = container.position(index);
        if let Some(place) = self.places.get_mut(spot(head)) {
            *place = Place { head, tag_offset: tag_offset as u32, slot_offset: slot_offset as u32 };
        }
    }
}
