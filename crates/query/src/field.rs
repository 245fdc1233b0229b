//! Finds a field in record after record, and remembers where it was.
//!
//! A `FieldReader` follows one path. For a path of one field it remembers the root heads that it
//! met, and where the field's tag and slot are under each head. Records of one shape differ in
//! neither, so that reading the next one takes one comparison and two loads. A longer path is
//! walked container by container.

use pellucid_record::layout::{
    NESTED_SHAPED_HEAD_SIZE, ROOT_HEAD_SIZE, ROOT_WIDTH_LOG2, read_varint, slots_size, tag,
};
use pellucid_record::path::{OwnedStep, slot_index};
use pellucid_record::view::{Container, Root, Slot, root};
use pellucid_record::{Corrupt, Kind, Shapes};

use crate::expression;

/// An int or a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An int.
    Int(i64),
    /// A float.
    Float(f64),
}

/// The place of the field in records with one head.
#[derive(Clone, Copy, Default)]
struct CachedSlot {
    // No record has the head 0.
    head: u64,
    tag_offset: u32,
    slot_offset: u32,
}

/// The number of heads that are remembered. A table rarely has more shapes at its root; if it has,
/// only the walk gets slower.
const PLACE_COUNT: usize = 256;

/// The string on the heap of a shaped root that a slot refers to. None if there is none;
/// `FieldReader::read` then tells why.
#[inline]
#[must_use]
pub fn heap_text(record: &[u8], bits: u64) -> Option<&[u8]> {
    let head = u64::from_le_bytes(*record.first_chunk()?);
    let (offset, size) = ((bits & 0xFFFF_FFFF) as usize, (bits >> 32) as usize);
    // The begin of the heap, which `Container` would check.
    let start = ROOT_HEAD_SIZE + slots_size((head >> 16) as u32 & 0xFFFF, ROOT_WIDTH_LOG2) as usize;
    if offset < start { None } else { record.get(offset..offset + size) }
}

/// Reads the field at one path out of many records.
#[derive(Clone)]
pub struct FieldReader {
    path: Box<[CachedStep]>,
    places: Box<[CachedSlot; PLACE_COUNT]>,
}

/// The number of shapes whose slots a step remembers.
const SHAPE_COUNT: usize = 16;
/// No shape has this id.
const NO_SHAPE: u32 = u32::MAX;

/// One step, and the slot that it leads to in each shape that was met. Looking a name up was half
/// the time of reading a field.
#[derive(Clone)]
struct CachedStep {
    step: OwnedStep,
    slots: [(u32, Option<u32>); SHAPE_COUNT],
    /// Where the step led in the last container with a known layout.
    hop: Hop,
}

/// Where a step leads in a shaped container with this head. All containers with this head have the
/// same layout; only their positions differ. Reading shapes and whole containers took two thirds of
/// the time of a count by a string three levels down.
#[derive(Clone, Copy, Default)]
struct Hop {
    // No shaped container has the head 0.
    head: u64,
    // These offsets count from the begin of the container.
    tag_offset: u32,
    slot_offset: u32,
    heap: u32,
    width_log2: u8,
}

/// A part of a record, and what a hop found in it.
struct Landing {
    tag: u8,
    bits: u64,
    slot: usize,
    /// The bounds of the container in which it was found.
    start: usize,
    heap: usize,
    end: usize,
    width_log2: u8,
}

impl Hop {
    fn of(record: &[u8], container: &Container, index: u32) -> Option<Self> {
        let start = container.start;
        let head_size = if start == 0 { ROOT_HEAD_SIZE } else { NESTED_SHAPED_HEAD_SIZE };
        let (tag, slot) = container.position(index);
        head_fixes_slots(container).then_some(Self {
            head: head_at(record, start as usize, head_size)?,
            tag_offset: tag as u32 - start,
            slot_offset: slot as u32 - start,
            heap: container.heap_start() - start,
            width_log2: container.width_log2,
        })
    }

    /// What a hop finds in the container from `start` to `end`. None if that has another head, or
    /// is too short.
    #[inline]
    fn land(&self, record: &[u8], head_size: usize, start: usize, end: usize) -> Option<Landing> {
        if head_at(record, start, head_size)? != self.head {
            return None;
        }
        let (slot, heap) = (start + self.slot_offset as usize, start + self.heap as usize);
        if heap > end || end > record.len() {
            return None;
        }
        let bits = match self.width_log2 {
            3 => u64::from_le_bytes(*record.get(slot..)?.first_chunk()?),
            2 => u64::from(u32::from_le_bytes(*record.get(slot..)?.first_chunk()?)),
            1 => u64::from(u16::from_le_bytes(*record.get(slot..)?.first_chunk()?)),
            _ => u64::from(*record.get(slot)?),
        };
        let tag = *record.get(start + self.tag_offset as usize)?;
        Some(Landing { tag, bits, slot, start, heap, end, width_log2: self.width_log2 })
    }
}

/// Whether all containers with the same head have their slots at the same places, and no other
/// container has such a head. The head of a tuple has its size.
fn head_fixes_slots(container: &Container) -> bool {
    container.kind == Kind::Shaped || container.kind == Kind::Tuple && container.start == 0
}

#[inline]
fn head_at(record: &[u8], start: usize, size: usize) -> Option<u64> {
    let head = record.get(start..)?;
    Some(if size == ROOT_HEAD_SIZE {
        u64::from_le_bytes(*head.first_chunk()?)
    } else {
        u64::from(u32::from_le_bytes(*head.first_chunk()?))
    })
}

impl Landing {
    /// The begin of the payload that the slot refers to. None if it lies outside the heap of its
    /// container.
    #[inline]
    fn offset(&self) -> Option<usize> {
        let offset = self.start + (self.bits & 0xFFFF_FFFF) as usize;
        (self.heap <= offset && offset <= self.end).then_some(offset)
    }

    /// The begin and the end of the container that the slot refers to.
    #[inline]
    fn container(&self) -> Option<(usize, usize)> {
        let offset = self.offset().filter(|_| self.tag == tag::CONTAINER)?;
        let end = if self.width_log2 == 3 { offset + (self.bits >> 32) as usize } else { self.end };
        (end <= self.end).then_some((offset, end))
    }

    /// The value, if it is a string, a number, a bool or None.
    #[inline]
    fn value<'a>(&self, record: &'a [u8]) -> Option<Slot<'a>> {
        Some(match self.tag {
            tag::STR => {
                let offset = self.offset()?;
                let (size, start) = if self.width_log2 == 3 {
                    ((self.bits >> 32) as usize, offset)
                } else {
                    let (size, behind) = read_varint(record, offset)?;
                    (size as usize, behind)
                };
                let text = record.get(start..start + size)?;
                if start + size > self.end {
                    return None;
                }
                Slot::Str(text)
            }
            tag @ tag::STR_INLINE..=tag::STR_INLINE_LAST => {
                let size = usize::from(tag - tag::STR_INLINE);
                if size > 1 << self.width_log2 {
                    return None;
                }
                Slot::Str(record.get(self.slot..self.slot + size)?)
            }
            tag::INT => {
                let unused = 64 - (8 << self.width_log2);
                Slot::Int((self.bits << unused).cast_signed() >> unused)
            }
            tag::FLOAT if self.width_log2 == 3 => Slot::Float(f64::from_bits(self.bits)),
            tag::TRUE => Slot::Bool(true),
            tag::FALSE => Slot::Bool(false),
            tag::NONE => Slot::None,
            _ => return None,
        })
    }
}

impl CachedStep {
    #[inline]
    fn slot_index<S: Shapes + ?Sized>(
        &mut self,
        record: &[u8],
        shapes: &S,
        container: &Container,
    ) -> Result<Option<u32>, Corrupt> {
        if container.kind != Kind::Shaped {
            return slot_index(record, shapes, container, self.step.borrowed());
        }
        match self.slots.get(container.shape as usize % SHAPE_COUNT) {
            Some((shape, slot)) if *shape == container.shape => Ok(*slot),
            _ => self.look_up(record, shapes, container),
        }
    }

    #[cold]
    fn look_up<S: Shapes + ?Sized>(
        &mut self,
        record: &[u8],
        shapes: &S,
        container: &Container,
    ) -> Result<Option<u32>, Corrupt> {
        let slot = slot_index(record, shapes, container, self.step.borrowed())?;
        if let Some(place) = self.slots.get_mut(container.shape as usize % SHAPE_COUNT) {
            *place = (container.shape, slot);
        }
        Ok(slot)
    }
}

#[inline]
fn spot(head: u64) -> usize {
    // The shape id begins at bit 32. Ids are dense, so that neighbours get different places.
    (head >> 32) as usize % PLACE_COUNT
}

impl FieldReader {
    /// A reader of `path`, which has at least one step.
    #[must_use]
    pub fn new(path: Vec<OwnedStep>) -> Self {
        let way = |step| CachedStep { step, slots: [(NO_SHAPE, None); SHAPE_COUNT], hop: Hop::default() };
        let path = path.into_iter().map(way);
        Self { path: path.collect(), places: Box::new([CachedSlot::default(); PLACE_COUNT]) }
    }

    /// A reader of the path of an expression, unless that is empty or branches.
    #[must_use]
    pub fn of(path: &[expression::Step]) -> Option<Self> {
        let step = |step: &expression::Step| match step {
            expression::Step::Field(name) => Some(OwnedStep::Field(name.clone())),
            expression::Step::Index(index) => Some(OwnedStep::Index(*index)),
            expression::Step::Key(key) => Some(OwnedStep::Key(key.clone())),
            expression::Step::Each => None,
        };
        let steps: Vec<_> = path.iter().map(step).collect::<Option<_>>()?;
        (!steps.is_empty()).then(|| Self::new(steps))
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

    /// The int in the field, if it holds one and a record with the same head was met before.
    #[inline]
    #[must_use]
    pub fn quick_int(&self, record: &[u8]) -> Option<i64> {
        match self.quick(record)? {
            (tag::INT, slot) => Some(i64::from_le_bytes(slot)),
            _ => None,
        }
    }

    /// The number in the field, if it holds an int or a float and a record with the same head was
    /// met before.
    #[inline]
    #[must_use]
    pub fn quick_number(&self, record: &[u8]) -> Option<Number> {
        match self.quick(record)? {
            (tag::INT, slot) => Some(Number::Int(i64::from_le_bytes(slot))),
            (tag::FLOAT, slot) => Some(Number::Float(f64::from_le_bytes(slot))),
            _ => None,
        }
    }

    /// The tag and the slot of the field, if a record with the same head was met before.
    #[inline]
    #[must_use]
    pub fn quick_bits(&self, record: &[u8]) -> Option<(u8, u64)> {
        self.quick(record).map(|(tag, slot)| (tag, u64::from_le_bytes(slot)))
    }

    /// The value in the field. None if the record does not have the field.
    ///
    /// # Errors
    /// Damage on the way to it.
    pub fn read<'a, S: Shapes + ?Sized>(
        &mut self,
        record: &'a [u8],
        shapes: &S,
    ) -> Result<Option<Slot<'a>>, Corrupt> {
        if let Some(slot) = self.hop(record) {
            return Ok(Some(slot));
        }
        let Root::Container(mut container) = root(record, shapes)? else { return Ok(None) };
        let is_short = self.path.len() == 1;
        let Some((last, ways)) = self.path.split_last_mut() else { return Ok(None) };
        for way in ways {
            let Some(index) = way.slot_index(record, shapes, &container)? else { return Ok(None) };
            way.hop = Hop::of(record, &container, index).unwrap_or_default();
            match container.slot(record, shapes, index)? {
                Slot::Container(inner) => container = inner,
                _ => return Ok(None),
            }
        }
        let Some(index) = last.slot_index(record, shapes, &container)? else { return Ok(None) };
        last.hop = Hop::of(record, &container, index).unwrap_or_default();
        let slot = container.slot(record, shapes, index)?;
        if matches!(slot, Slot::Absent) {
            return Ok(None);
        }
        if is_short && head_fixes_slots(&container) {
            self.remember(record, &container, index);
        }
        Ok(Some(slot))
    }

    /// The value, if each step leads to where it led the last time, and the value is a string, a
    /// number, a bool or None.
    ///
    /// Callers try this before `read`. A result of `read`, which may be any value, is copied
    /// through memory three times before it is a string in a column. That was 40 % of the time of
    /// four columns of which one was nested.
    #[inline]
    #[must_use]
    pub fn hop<'a>(&self, record: &'a [u8]) -> Option<Slot<'a>> {
        let (first, rest) = self.path.split_first()?;
        let mut landing = first.hop.land(record, ROOT_HEAD_SIZE, 0, record.len())?;
        for way in rest {
            let (start, end) = landing.container()?;
            landing = way.hop.land(record, NESTED_SHAPED_HEAD_SIZE, start, end)?;
        }
        landing.value(record)
    }

    fn remember(&mut self, record: &[u8], container: &Container, index: u32) {
        let Some(head) = record.first_chunk::<ROOT_HEAD_SIZE>() else { return };
        let head = u64::from_le_bytes(*head);
        let (tag_offset, slot_offset) = container.position(index);
        if let Some(place) = self.places.get_mut(spot(head)) {
            *place = CachedSlot { head, tag_offset: tag_offset as u32, slot_offset: slot_offset as u32 };
        }
    }
}
