//! Shapes: ordered lists of field names, which give each field its slot.
//!
//! A record of a [`Shape`] stores only the shape's id. [`Dictionary`] has the shapes of one
//! database, [`Admission`] decides which key lists become shapes. Shapes have no types: with types
//! there would be too many of them.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::error::Result;
use crate::layout::{
    ADMISSION_SIGHTING, DATABASE_SHAPE_COUNT_MAX, ROOT_SHAPE_COUNT_AT_ONCE, SHAPE_ID_END,
    SHAPE_NAME_COUNT_MAX, SHAPE_NAME_SIZE_MAX, TABLE_SHAPE_COUNT_MAX,
};
use crate::payload::Overflow;

/// Up to this many names are compared one by one, which is faster than hashing the searched name.
const LINEAR_COUNT_MAX: usize = 8;
/// How many key lists are counted at a time. Beyond that the counts start again, which only delays
/// an admission.
const SIGHTING_COUNT_MAX: usize = 65_536;
/// An empty place in a shape's hash table.
const EMPTY: u16 = u16::MAX;

/// Why a key list cannot be a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ShapeError {
    /// More than 512 names.
    TooManyNames,
    /// A name of more than 64 bytes.
    NameTooLong,
    /// A name occurs twice.
    DuplicateName,
    /// The dictionary has no id left.
    Full,
}

impl fmt::Display for ShapeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ShapeError::TooManyNames => "a shape has at most 512 names",
            ShapeError::NameTooLong => "a name in a shape has at most 64 bytes",
            ShapeError::DuplicateName => "a name stands in the shape twice",
            ShapeError::Full => "the dictionary has no shape id left",
        })
    }
}

impl std::error::Error for ShapeError {}

/// An ordered list of field names.
///
/// ```
/// use pellucid_record::Shape;
/// let shape = Shape::new(&["name", "age"]).unwrap();
/// assert_eq!(shape.slot("age"), Some(1));
/// ```
#[derive(Clone, Debug)]
pub struct Shape {
    names: Box<[Box<str>]>,
    /// Open addressing over the names' hashes, a power of two long. Empty if a linear search is
    /// used.
    places: Box<[u16]>,
}

impl Shape {
    /// A shape of these names, in this order.
    ///
    /// # Errors
    /// More than 512 names, a name of more than 64 bytes, or a name that occurs twice.
    pub fn new<N: AsRef<str>>(names: &[N]) -> Result<Shape, ShapeError> {
        if names.len() > SHAPE_NAME_COUNT_MAX {
            return Err(ShapeError::TooManyNames);
        }
        let mut shape = Shape {
            names: names.iter().map(|name| Box::from(name.as_ref())).collect(),
            places: Box::default(),
        };
        if shape.names.iter().any(|name| name.len() > SHAPE_NAME_SIZE_MAX) {
            return Err(ShapeError::NameTooLong);
        }
        if names.len() > LINEAR_COUNT_MAX {
            shape.fill_places()?;
        } else if (1..names.len())
            .any(|i| shape.names.iter().take(i).any(|name| Some(name) == shape.names.get(i)))
        {
            return Err(ShapeError::DuplicateName);
        }
        Ok(shape)
    }

    fn fill_places(&mut self) -> Result<(), ShapeError> {
        let mut places = vec![EMPTY; (self.names.len() * 2).next_power_of_two()];
        let mask = places.len() - 1;
        for (index, name) in self.names.iter().enumerate() {
            let mut at = xxh3_64(name.as_bytes()) as usize & mask;
            while let Some(place) = places.get_mut(at) {
                if *place == EMPTY {
                    *place = index as u16;
                    break;
                }
                if self.names.get(usize::from(*place)) == Some(name) {
                    return Err(ShapeError::DuplicateName);
                }
                at = (at + 1) & mask;
            }
        }
        self.places = places.into_boxed_slice();
        Ok(())
    }

    /// The slot of the field `name`.
    #[inline]
    #[must_use]
    pub fn slot(&self, name: &str) -> Option<u32> {
        if self.places.is_empty() {
            return self.names.iter().position(|candidate| **candidate == *name).map(|index| index as u32);
        }
        // At most half of the places are taken, so the walk ends; there are at most 512 names, so
        // it ends soon.
        let mask = self.places.len() - 1;
        let mut at = xxh3_64(name.as_bytes()) as usize & mask;
        loop {
            let index = *self.places.get(at)?;
            if **self.names.get(usize::from(index))? == *name {
                return Some(u32::from(index));
            }
            at = (at + 1) & mask;
        }
    }

    /// The names, in the order of the slots.
    #[inline]
    #[must_use]
    pub fn names(&self) -> &[Box<str>] {
        &self.names
    }

    /// The name of a slot.
    #[inline]
    #[must_use]
    pub fn name(&self, slot: u32) -> Option<&str> {
        self.names.get(slot as usize).map(AsRef::as_ref)
    }

    /// The number of names, which is the number of slots.
    #[inline]
    #[must_use]
    pub fn count(&self) -> u32 {
        self.names.len() as u32
    }
}

/// Looks up what a record refers to: shapes, and perhaps values that are stored apart.
pub trait Shapes {
    /// The shape with this id.
    fn shape(&self, id: u32) -> Option<&Shape>;

    /// The number of its slots.
    #[inline]
    fn slot_count(&self, id: u32) -> Option<u32> {
        self.shape(id).map(Shape::count)
    }

    /// The bytes of a value that is stored apart. `None` from a reader that has only shapes; the
    /// value then stays a reference.
    ///
    /// # Errors
    /// `Overflow`.
    #[inline]
    fn overflow(&self, _overflow: &Overflow) -> Result<Option<&[u8]>> {
        Ok(None)
    }
}

impl<S: Shapes + ?Sized> Shapes for &S {
    #[inline]
    fn shape(&self, id: u32) -> Option<&Shape> {
        (**self).shape(id)
    }
    #[inline]
    fn slot_count(&self, id: u32) -> Option<u32> {
        (**self).slot_count(id)
    }
    #[inline]
    fn overflow(&self, overflow: &Overflow) -> Result<Option<&[u8]>> {
        (**self).overflow(overflow)
    }
}

impl Shapes for [Shape] {
    #[inline]
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.get(id as usize)
    }
}

impl Shapes for Vec<Shape> {
    #[inline]
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.get(id as usize)
    }
}

/// Whether a list of names may become a shape: few enough, short enough. (A dict has no duplicate
/// names.)
#[must_use]
pub fn may_be_shape<N: AsRef<str>>(names: &[N]) -> bool {
    names.len() <= SHAPE_NAME_COUNT_MAX && names.iter().all(|name| name.as_ref().len() <= SHAPE_NAME_SIZE_MAX)
}

/// The hash of a key list; each name's hash is the seed of the next, so that `["ab"]` and `["a",
/// "b"]` differ.
pub(crate) fn hash_of_names<N: AsRef<str>>(names: &[N]) -> u64 {
    names.iter().fold(names.len() as u64, |seed, name| xxh3_64_with_seed(name.as_ref().as_bytes(), seed))
}

/// The shapes of one database: append-only, ids dense from 0.
///
/// Readers take no lock and keep plain references; only `find` and `push` take one.
#[derive(Debug, Default)]
pub struct Dictionary {
    shapes: boxcar::Vec<Shape>,
    /// Ids by the hash of their names; more than one only if hashes collide.
    by_names: Mutex<HashMap<u64, Vec<u32>>>,
}

impl Dictionary {
    /// An empty dictionary.
    #[must_use]
    pub fn new() -> Dictionary {
        Dictionary::default()
    }

    /// Adds a shape and returns its id: the number of shapes so far.
    ///
    /// # Errors
    /// All ids are taken.
    pub fn push(&self, shape: Shape) -> Result<u32, ShapeError> {
        let mut by_names = self.by_names.lock().unwrap_or_else(PoisonError::into_inner);
        if self.shapes.count() >= SHAPE_ID_END as usize {
            return Err(ShapeError::Full);
        }
        let hash = hash_of_names(shape.names());
        let id = self.shapes.push(shape) as u32;
        by_names.entry(hash).or_default().push(id);
        Ok(id)
    }

    /// The id of the shape with exactly these names in this order; the first one if there are
    /// several.
    #[must_use]
    pub fn find<N: AsRef<str>>(&self, names: &[N]) -> Option<u32> {
        let by_names = self.by_names.lock().unwrap_or_else(PoisonError::into_inner);
        let ids = by_names.get(&hash_of_names(names))?;
        ids.iter().copied().find(|id| {
            self.shape(*id).is_some_and(|shape| {
                shape.names.len() == names.len()
                    && shape.names.iter().zip(names).all(|(a, b)| **a == *b.as_ref())
            })
        })
    }

    /// The number of shapes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u32 {
        self.shapes.count() as u32
    }

    /// Whether there are no shapes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl Shapes for Dictionary {
    #[inline]
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.shapes.get(id as usize)
    }
}

/// What to do with a key list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeDecision {
    /// It is the shape with this id.
    Known(u32),
    /// Make it a shape, now.
    Register,
    /// Write a keyed map.
    Keyed,
}

/// The writer's rule for which key lists become shapes: counts of sightings, per table.
///
/// The counts are not stored. After a restart a list needs three sightings again, which costs a few
/// keyed maps.
#[derive(Debug, Default)]
pub struct Admission {
    sightings: HashMap<(u32, u64), u8>,
    admitted: HashMap<u32, u32>,
}

impl Admission {
    /// No sightings yet.
    #[must_use]
    pub fn new() -> Admission {
        Admission::default()
    }

    /// Notes that a dict with these keys is being written into `table`, and returns what to do with
    /// it.
    ///
    /// `Register` counts as done: the caller must add the shape to the dictionary.
    pub fn decide_shape(
        &mut self,
        dictionary: &Dictionary,
        table: u32,
        names: &[&str],
        is_root: bool,
    ) -> ShapeDecision {
        if let Some(id) = dictionary.find(names) {
            return ShapeDecision::Known(id);
        }
        let admitted = self.admitted.entry(table).or_default();
        if !may_be_shape(names)
            || *admitted >= TABLE_SHAPE_COUNT_MAX
            || dictionary.len() >= DATABASE_SHAPE_COUNT_MAX
        {
            return ShapeDecision::Keyed;
        }
        if is_root && *admitted < ROOT_SHAPE_COUNT_AT_ONCE {
            *admitted += 1;
            return ShapeDecision::Register;
        }
        if self.sightings.len() >= SIGHTING_COUNT_MAX {
            self.sightings.clear();
        }
        let place = (table, hash_of_names(names));
        let count = self.sightings.entry(place).or_default();
        *count += 1;
        if *count < ADMISSION_SIGHTING {
            return ShapeDecision::Keyed;
        }
        self.sightings.remove(&place);
        *admitted += 1;
        ShapeDecision::Register
    }

    /// Sets how many shapes `table` has; a store that has counted them calls this when it opens.
    pub fn set_admitted(&mut self, table: u32, count: u32) {
        self.admitted.insert(table, count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_every_name_and_no_other() {
        for count in [0, 1, 8, 9, 64, 512] {
            let names: Vec<String> = (0..count).map(|i| format!("field{i}")).collect();
            let shape = Shape::new(&names).unwrap();
            for (index, name) in names.iter().enumerate() {
                assert_eq!(shape.slot(name), Some(index as u32));
                assert_eq!(shape.name(index as u32), Some(name.as_str()));
            }
            assert_eq!(shape.slot("field"), None);
            assert_eq!(shape.slot(&format!("field{count}")), None);
        }
    }

    #[test]
    fn refuses_what_the_format_has_no_room_for() {
        assert_eq!(Shape::new(&["a", "b", "a"]).unwrap_err(), ShapeError::DuplicateName);
        let mut names: Vec<String> = (0..20).map(|i| i.to_string()).collect();
        names.push("7".into());
        assert_eq!(Shape::new(&names).unwrap_err(), ShapeError::DuplicateName);
        assert_eq!(Shape::new(&["x".repeat(65)]).unwrap_err(), ShapeError::NameTooLong);
        assert!(Shape::new(&["x".repeat(64)]).is_ok());
        let names: Vec<String> = (0..513).map(|i| i.to_string()).collect();
        assert_eq!(Shape::new(&names).unwrap_err(), ShapeError::TooManyNames);
    }

    #[test]
    fn the_dictionary_tells_key_lists_apart() {
        let dictionary = Dictionary::new();
        for (id, names) in [vec!["a", "b"], vec!["b", "a"], vec!["ab"], vec![], vec!["a"]].iter().enumerate()
        {
            assert_eq!(dictionary.find(names), None);
            assert_eq!(dictionary.push(Shape::new(names).unwrap()), Ok(id as u32));
            assert_eq!(dictionary.find(names), Some(id as u32));
        }
        assert_eq!(dictionary.len(), 5);
        assert_eq!(dictionary.slot_count(1), Some(2));
        assert_eq!(dictionary.slot_count(5), None);
    }

    #[test]
    fn admits_at_the_third_sighting_and_roots_at_the_first() {
        let dictionary = Dictionary::new();
        let mut admission = Admission::new();
        assert_eq!(admission.decide_shape(&dictionary, 1, &["a"], true), ShapeDecision::Register);
        dictionary.push(Shape::new(&["a"]).unwrap()).unwrap();
        assert_eq!(admission.decide_shape(&dictionary, 1, &["a"], true), ShapeDecision::Known(0));
        assert_eq!(admission.decide_shape(&dictionary, 1, &["b"], false), ShapeDecision::Keyed);
        assert_eq!(
            admission.decide_shape(&dictionary, 2, &["b"], false),
            ShapeDecision::Keyed,
            "another table counts apart"
        );
        assert_eq!(admission.decide_shape(&dictionary, 1, &["b"], false), ShapeDecision::Keyed);
        assert_eq!(admission.decide_shape(&dictionary, 1, &["b"], false), ShapeDecision::Register);
        assert_eq!(
            admission.decide_shape(&dictionary, 1, &["x".repeat(65).as_str()], true),
            ShapeDecision::Keyed
        );
    }

    #[test]
    fn a_table_admits_sixteen_roots_at_once_and_a_thousand_shapes_in_all() {
        let dictionary = Dictionary::new();
        let mut admission = Admission::new();
        let mut at_once = 0;
        for i in 0..2_000 {
            let name = format!("k{i}");
            if admission.decide_shape(&dictionary, 7, &[&name], true) == ShapeDecision::Register {
                at_once += 1;
            }
        }
        assert_eq!(at_once, ROOT_SHAPE_COUNT_AT_ONCE);
        let mut admitted = at_once;
        for _ in 0..3 {
            for i in 0..2_000 {
                let name = format!("n{i}");
                if admission.decide_shape(&dictionary, 7, &[&name], false) == ShapeDecision::Register {
                    admitted += 1;
                }
            }
        }
        assert_eq!(admitted, TABLE_SHAPE_COUNT_MAX);
    }
}
