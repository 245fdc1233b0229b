//! Paths: find a part of a record.
//!
//! A path in text splits at its dots, and each part is the name of a field: `"address.city"`. There
//! is no escape and no index in it, so its meaning is obvious. Names with dots, indexes and other
//! keys are reached by a list of [`Step`]s, which is exact: an int step is an index in a list and a
//! key in a dict.

use crate::error::{Corrupt, Damage, Result};
use crate::key::KeyEncoder;
use crate::keyed::CanonicalKey;
use crate::layout::Kind;
use crate::patch::as_only_element;
use crate::shape::Shapes;
use crate::view::{Container, Root, Slot, root};

/// One step from a container to a part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step<'a> {
    /// The field of this name, or the entry of this str key.
    Field(&'a str),
    /// The element at this index of a list or tuple, from the end if negative; in a dict, the entry
    /// of this int key.
    Index(i64),
    /// The entry of any other key, given as a record of its own: `root` reads it.
    Key(&'a [u8]),
}

/// A [`Step`] that owns its name or key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OwnedStep {
    /// As `Step::Field`.
    Field(Box<str>),
    /// As `Step::Index`.
    Index(i64),
    /// As `Step::Key`.
    Key(Box<[u8]>),
}

impl OwnedStep {
    /// The same step, borrowed.
    #[must_use]
    pub fn borrowed(&self) -> Step<'_> {
        match self {
            Self::Field(name) => Step::Field(name),
            Self::Index(index) => Step::Index(*index),
            Self::Key(key) => Step::Key(key),
        }
    }
}

impl From<Step<'_>> for OwnedStep {
    fn from(step: Step<'_>) -> Self {
        match step {
            Step::Field(name) => Self::Field(name.into()),
            Step::Index(index) => Self::Index(index),
            Step::Key(key) => Self::Key(key.into()),
        }
    }
}

/// The slot that a step leads to from a container. `None` if there is none, or it is absent.
/// `record` contains the container.
///
/// # Errors
/// Damage on the way.
pub fn slot_index<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    container: &Container,
    step: Step<'_>,
) -> Result<Option<u32>> {
    match (container.kind, step) {
        (Kind::Shaped, Step::Field(name)) => match shapes.shape(container.shape) {
            Some(shape) => Ok(shape.slot(name)),
            None => Err(Corrupt::new(Damage::UnknownShape, container.start as usize)),
        },
        (Kind::Shaped, Step::Key(key)) => match field_name(key, shapes)? {
            Some(name) => slot_index(record, shapes, container, Step::Field(name)),
            None => Ok(None),
        },
        (Kind::Keyed, step) => {
            let canonical = canonical_key(step, shapes)?;
            Ok(container.map_find(record, shapes, &canonical)?.map(|entry| 2 * entry + 1))
        }
        (Kind::List | Kind::Tuple | Kind::PackedInts | Kind::PackedFloats, Step::Index(index)) => {
            Ok(element_index(container.count, index))
        }
        _ => Ok(None),
    }
}

/// An index as Python counts it: from the end if negative. `None` if there is no such element.
#[inline]
#[must_use]
pub fn element_index(count: u32, index: i64) -> Option<u32> {
    let index = if index < 0 { index.checked_add(i64::from(count))? } else { index };
    u32::try_from(index).ok().filter(|index| *index < count)
}

/// The name in a key that is given as a record, if it is a str without surrogates.
pub(crate) fn field_name<'a, S: Shapes + ?Sized>(key: &'a [u8], shapes: &S) -> Result<Option<&'a str>> {
    match root(key, shapes)? {
        Root::Scalar(Slot::Str(name)) => match std::str::from_utf8(name) {
            Ok(name) => Ok(Some(name)),
            Err(error) => Err(Corrupt::new(Damage::Text, error.valid_up_to())),
        },
        _ => Ok(None),
    }
}

/// The bytes by which a keyed map finds the entry of this step.
pub(crate) fn canonical_key<S: Shapes + ?Sized>(step: Step<'_>, shapes: &S) -> Result<Vec<u8>> {
    let mut encoder = KeyEncoder::new();
    match step {
        Step::Field(name) => encoder.str(name.as_bytes()),
        Step::Index(index) => encoder.int(index),
        Step::Key(key) => {
            let mut canonical = CanonicalKey::new();
            return match root(key, shapes)? {
                Root::Scalar(slot) => Ok(canonical.of(key, shapes, &slot)?.to_vec()),
                Root::Container(_) => {
                    // A key without an order is found by its bytes as stored in the map: nested.
                    let bytes = as_only_element(key, shapes)?;
                    let list = Container::root(&bytes, shapes)?;
                    Ok(canonical.of(&bytes, shapes, &list.slot(&bytes, shapes, 0)?)?.to_vec())
                }
            };
        }
    }
    Ok(encoder.take().0)
}

/// The value that `steps` lead to. `None` if there is none.
///
/// # Errors
/// Damage on the way.
pub fn resolve<'a, S: Shapes + ?Sized>(
    record: &'a [u8],
    shapes: &S,
    steps: &[Step<'_>],
) -> Result<Option<Root<'a>>> {
    let mut found = root(record, shapes)?;
    for step in steps {
        let Root::Container(container) = found else { return Ok(None) };
        let Some(index) = slot_index(record, shapes, &container, *step)? else { return Ok(None) };
        found = match container.slot(record, shapes, index)? {
            Slot::Absent => return Ok(None),
            Slot::Container(inner) => Root::Container(inner),
            scalar => Root::Scalar(scalar),
        };
    }
    Ok(Some(found))
}
