//! Finds a field in record after record, and remembers where it was.
//!
//! A `FieldReader` follows one path. Each of its steps remembers the heads of the dicts that it
//! met, and where the field stands in the dicts with such a head. A step through a list computes
//! the place. So a nested field takes a comparison and a few loads more for each level than one of
//! the root, whatever the shapes of the records and of the dicts in them. Names are looked up for a
//! head that is met for the first time, and in maps without a shape.
#![expect(
    clippy::inline_always,
    reason = "a place is returned in memory otherwise, for half of the time of a sum"
)]

use pellucid_record::layout::tag;
use pellucid_record::path::{OwnedStep, element_index, slot_index};
use pellucid_record::place::{Layout, Place, nested_head, root_head};
use pellucid_record::value::NoShapes;
use pellucid_record::view::{Container, Root, Slot, root};
use pellucid_record::{Corrupt, Kind, Shapes};

use crate::array::{Array, slot_of};
use crate::expression;

/// An int or a float.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// An int.
    Int(i64),
    /// A float.
    Float(f64),
}

impl Number {
    /// The number in this place, if there is one.
    #[inline]
    #[must_use]
    pub fn at(place: &Place) -> Option<Self> {
        match place.int() {
            Some(value) => Some(Number::Int(value)),
            None => place.float().map(Number::Float),
        }
    }
}

/// Reads the field at one path out of many records.
#[derive(Clone)]
pub struct FieldReader {
    steps: Box<[Step]>,
}

/// One step of a path, and where it leads.
#[derive(Clone)]
struct Step {
    step: OwnedStep,
    layouts: Layouts,
}

/// The layouts that a step met. A head has one place, by its shape.
#[derive(Clone, Default)]
struct Layouts {
    /// A power of two of them, or none.
    places: Box<[Layout]>,
}

/// Beyond this, layouts that would have the same place replace each other. A table has up to 1,024
/// shapes, and a nested dict up to four heads for each.
const LAYOUT_COUNT_MAX: usize = 4096;
const LAYOUT_COUNT_MIN: usize = 4;

/// The place of a root's head. The id of its shape begins at bit 32. Ids are dense, so that
/// neighbours get different places.
#[inline]
fn root_spot(head: u64) -> usize {
    (head >> 32) as usize
}

/// The place of another dict's head. The id of its shape begins at bit 8, its width at bit 4.
#[inline]
fn nested_spot(head: u64) -> usize {
    ((head >> 8) << 2 | (head >> 4) & 3) as usize
}

impl Layouts {
    #[inline(always)]
    fn get(&self, head: u64, spot: usize) -> Option<&Layout> {
        let layout = self.places.get(spot & self.places.len().wrapping_sub(1))?;
        (layout.head() == head).then_some(layout)
    }

    #[cold]
    fn add(&mut self, layout: Layout, spot: fn(u64) -> usize) {
        loop {
            let size = self.places.len();
            match self.places.get_mut(spot(layout.head()) & size.wrapping_sub(1)) {
                Some(place)
                    if place.head() == Layout::NONE.head()
                        || place.head() == layout.head()
                        || size == LAYOUT_COUNT_MAX =>
                {
                    *place = layout;
                    return;
                }
                _ => self.grow(spot),
            }
        }
    }

    fn grow(&mut self, spot: fn(u64) -> usize) {
        let size = (2 * self.places.len()).max(LAYOUT_COUNT_MIN);
        let before = std::mem::replace(&mut self.places, vec![Layout::NONE; size].into());
        // What had different places has them in twice as many, too.
        for layout in before.into_iter().filter(|layout| layout.head() != Layout::NONE.head()) {
            if let Some(place) = self.places.get_mut(spot(layout.head()) & (size - 1)) {
                *place = layout;
            }
        }
    }
}

impl Step {
    #[inline(always)]
    fn in_root(&self, record: &[u8]) -> Option<Place> {
        let head = root_head(record)?;
        match self.layouts.get(head, root_spot(head)) {
            Some(layout) => layout.place(record, 0, record.len()),
            None => self.element(record, 0, record.len()),
        }
    }

    #[inline(always)]
    fn in_nested(&self, record: &[u8], start: usize, end: usize) -> Option<Place> {
        if let Some(head) = nested_head(record, start)
            && let Some(layout) = self.layouts.get(head, nested_spot(head))
        {
            return layout.place(record, start, end);
        }
        self.element(record, start, end)
    }

    /// The place of an element of a list or tuple, if this is a step to one.
    #[inline(never)]
    fn element(&self, record: &[u8], start: usize, end: usize) -> Option<Place> {
        let OwnedStep::Index(index) = self.step else { return None };
        let container = match start {
            0 => Container::root(record, &NoShapes),
            _ => Container::nested(record, start as u32, end as u32, &NoShapes),
        };
        let container = container.ok()?;
        if !matches!(container.kind, Kind::List | Kind::Tuple | Kind::PackedInts | Kind::PackedFloats) {
            return None;
        }
        match element_index(container.count, index) {
            Some(index) => Place::of(record, &container, index),
            None => Some(Place::ABSENT),
        }
    }

    fn look_up<S: Shapes + ?Sized>(
        &mut self,
        record: &[u8],
        shapes: &S,
        container: &Container,
    ) -> Result<Option<u32>, Corrupt> {
        let index = slot_index(record, shapes, container, self.step.borrowed())?;
        if let Some(layout) = Layout::of(record, container, index) {
            self.layouts.add(layout, if container.start == 0 { root_spot } else { nested_spot });
        }
        Ok(index)
    }
}

impl FieldReader {
    /// A reader of this path.
    #[must_use]
    pub fn new(path: Vec<OwnedStep>) -> Self {
        let step = |step| Step { step, layouts: Layouts::default() };
        Self { steps: path.into_iter().map(step).collect() }
    }

    /// A reader of the path of an expression, unless that branches.
    #[must_use]
    pub fn of(path: &[expression::Step]) -> Option<Self> {
        let step = |step: &expression::Step| match step {
            expression::Step::Field(name) => Some(OwnedStep::Field(name.clone())),
            expression::Step::Index(index) => Some(OwnedStep::Index(*index)),
            expression::Step::Key(key) => Some(OwnedStep::Key(key.clone())),
            expression::Step::Each => None,
        };
        path.iter().map(step).collect::<Option<_>>().map(Self::new)
    }

    /// Whether the path has no steps: it leads to what it begins at.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.steps.is_empty()
    }

    /// The place of the field, if each step leads through a list or tuple, or a dict with a head
    /// that it met before.
    ///
    /// Loops try this before `read`, whose result may be any value: it is copied through memory
    /// three times before it is a number in a column.
    #[inline(always)]
    #[must_use]
    pub fn place(&self, record: &[u8]) -> Option<Place> {
        let (first, rest) = self.steps.split_first()?;
        Self::descend(rest, record, first.in_root(record)?)
    }

    #[inline(always)]
    fn descend(steps: &[Step], record: &[u8], mut place: Place) -> Option<Place> {
        for step in steps {
            let Some((start, end)) = place.container() else {
                return place.is_part_less().then_some(Place::ABSENT);
            };
            place = step.in_nested(record, start, end)?;
        }
        Some(place)
    }

    /// The value in the field. None if the record does not have the field.
    ///
    /// # Errors
    /// Damage on the way to it.
    #[inline]
    pub fn read<'a, S: Shapes + ?Sized>(
        &mut self,
        record: &'a [u8],
        shapes: &S,
    ) -> Result<Option<Slot<'a>>, Corrupt> {
        if let Some(place) = self.place(record) {
            return if place.tag() == tag::ABSENT { Ok(None) } else { place.slot(record, shapes).map(Some) };
        }
        let slot = match root(record, shapes)? {
            Root::Container(container) => Slot::Container(container),
            Root::Scalar(slot) => slot,
        };
        self.look_up(record, shapes, slot)
    }

    /// The value at the path from a part of the record, which is not its root. A reader either
    /// begins all its paths at a root, or none.
    ///
    /// # Errors
    /// Damage on the way to it.
    pub fn read_from<'a, S: Shapes + ?Sized>(
        &mut self,
        record: &'a [u8],
        shapes: &S,
        slot: Slot<'a>,
    ) -> Result<Option<Slot<'a>>, Corrupt> {
        if let (Some((first, rest)), Slot::Container(container)) = (self.steps.split_first(), slot)
            && let Some(place) = first.in_nested(record, container.start as usize, container.end as usize)
            && let Some(place) = Self::descend(rest, record, place)
        {
            return if place.tag() == tag::ABSENT { Ok(None) } else { place.slot(record, shapes).map(Some) };
        }
        self.look_up(record, shapes, slot)
    }

    /// The element of an array, if the rest of the path has an index for each of its dimensions.
    #[cold]
    fn element_of_array<'a, S: Shapes + ?Sized>(
        &self,
        slot: Slot<'a>,
        record: &'a [u8],
        shapes: &S,
        at: usize,
    ) -> Result<Option<Slot<'a>>, Corrupt> {
        if !matches!(slot, Slot::Heap { tag: tag::NDARRAY | tag::OVERFLOW, .. }) {
            return Ok(None);
        }
        let index = |step: &Step| if let OwnedStep::Index(index) = step.step { Some(index) } else { None };
        let rest = self.steps.get(at..).unwrap_or_default();
        let Some(indexes) = rest.iter().map(index).collect::<Option<Vec<_>>>() else { return Ok(None) };
        let array = Array::of_slot(&slot, record, shapes)?;
        Ok(array.and_then(|array| array.at(&indexes)).and_then(|value| slot_of(&value)))
    }

    /// Follows the path by names, and remembers where they led.
    #[inline(never)]
    fn look_up<'a, S: Shapes + ?Sized>(
        &mut self,
        record: &'a [u8],
        shapes: &S,
        mut slot: Slot<'a>,
    ) -> Result<Option<Slot<'a>>, Corrupt> {
        for at in 0..self.steps.len() {
            let Slot::Container(container) = slot else {
                return self.element_of_array(slot, record, shapes, at);
            };
            let Some(step) = self.steps.get_mut(at) else { return Ok(None) };
            let Some(index) = step.look_up(record, shapes, &container)? else { return Ok(None) };
            slot = container.slot(record, shapes, index)?;
        }
        Ok((!matches!(slot, Slot::Absent)).then_some(slot))
    }
}
