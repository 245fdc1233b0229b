//! How does one part of a stored record change without the rest being decoded?
//!
//! ```text
//! record.age = 22            overwrite: 8 bytes in place; nothing is encoded
//! record.tags.append("c")    apply: `tags` is encoded again, its siblings are copied as they stand, and the containers
//!                            around it get other offsets
//! ```
//!
//! Values come and go as bytes: a new value is a record of its own (`encode`), whose shape ids are those of the same
//! dictionary. Tuples, sets and frozensets do not change, as in Python; what a tuple holds may.
//!
//! Not here: who saves the changed record, and what becomes of values that lie apart. Their references (tag 0x4E) are
//! copied like any payload, and `overwrite` does not touch them, so that whoever keeps the blobs sees each one go.

mod apply;
mod extent;
mod moved;
mod overwrite;
mod splice;
mod write;

use std::fmt;

pub use apply::apply;
pub use moved::{moved, moved_from};
pub use overwrite::overwrite;
pub(crate) use write::as_only_element;

use crate::error::{Corrupt, EncodeError};
use crate::layout::Kind;
use crate::path::{Step, slot_index};
use crate::shape::Shapes;
use crate::view::{Container, Root, Slot, root};

/// What to do at the end of a path. Values are records of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Puts the value where the path leads: a field or an entry, new ones at the end; an element that is there; or, with an
    /// empty path, the whole record.
    Set(&'a [u8]),
    /// Removes the field, entry or element to which the path leads.
    Delete,
    /// Puts the value into a list, before the element at this index, which counts as Python's `list.insert` does.
    Insert(i64, &'a [u8]),
    /// Puts the values at the end of a list.
    Append(&'a [&'a [u8]]),
    /// Puts the values in place of the elements from `start` up to before `stop`, as `list[start:stop] = values` does.
    Splice {
        /// The first element to go.
        start: i64,
        /// The first one behind that stays.
        stop: i64,
        /// What comes in their place.
        values: &'a [&'a [u8]],
    },
    /// Removes all elements of the list, or all entries of the dict.
    Clear,
}

/// The shapes of a database as its writer has them: new ones may be added.
pub trait ShapeBook: Shapes {
    /// The id of the shape with these names, admitted now if it may be; None: the dict becomes a keyed map. `is_root`: it is
    /// the record itself. The names are few and short enough for a shape.
    fn shape_of(&mut self, names: &[&str], is_root: bool) -> Option<u32>;
}

/// A changed record, and what the change cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patched {
    /// The record as it is now.
    pub record: Vec<u8>,
    /// Containers whose slots were written anew: the one that changed, and those around it whose slots became too narrow.
    pub encoded: u32,
    /// Containers around it that were copied as they stood, with other offsets.
    pub spliced: u32,
}

/// Why a record cannot change so. `step` counts the steps of the path from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PatchError {
    /// The dict has no such field or entry.
    NoSuchField {
        /// The step that leads nowhere.
        step: usize,
    },
    /// The list or tuple has no such element.
    IndexOutOfRange {
        /// The step that leads nowhere.
        step: usize,
        /// Elements there are.
        count: u32,
    },
    /// What stands there cannot be taken apart, or not so: a field of a list, an append to a dict.
    NotAContainer {
        /// The step, or the number of steps if it is what the whole path leads to.
        step: usize,
    },
    /// A tuple, set or frozenset.
    Immutable {
        /// The step that would change it, or the number of steps if it is what the whole path leads to.
        step: usize,
    },
    /// The changed record would pass a limit.
    Encode(EncodeError),
    /// The record or the value is damaged.
    Corrupt(Corrupt),
}

impl fmt::Display for PatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PatchError::NoSuchField { step } => write!(f, "step {step} of the path leads to no field"),
            PatchError::IndexOutOfRange { step, count } => {
                write!(f, "step {step} of the path leads out of the range of {count} elements")
            }
            PatchError::NotAContainer { step } => {
                write!(f, "what stands before step {step} of the path has no such parts")
            }
            PatchError::Immutable { step } => {
                write!(
                    f,
                    "what stands before step {step} of the path is a tuple or a set, which do not change"
                )
            }
            PatchError::Encode(error) => error.fmt(f),
            PatchError::Corrupt(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for PatchError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            PatchError::Encode(error) => Some(error),
            PatchError::Corrupt(error) => Some(error),
            _ => None,
        }
    }
}

impl From<Corrupt> for PatchError {
    fn from(error: Corrupt) -> PatchError {
        PatchError::Corrupt(error)
    }
}

impl From<EncodeError> for PatchError {
    fn from(error: EncodeError) -> PatchError {
        PatchError::Encode(error)
    }
}

/// A container on the path and the slot through which the path leaves it.
#[derive(Clone, Copy, Debug)]
struct Level {
    container: Container,
    slot: u32,
}

/// Walks all `steps`, each of which must lead to a container: those on the way, and the last one, which may be the root.
fn descend<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    steps: &[Step<'_>],
) -> Result<(Vec<Level>, Container), PatchError> {
    let mut levels = Vec::with_capacity(steps.len());
    let container = descend_past(record, shapes, steps, |level| levels.push(level))?;
    Ok((levels, container))
}

/// Walks all `steps` and shows the levels on the way to `on_level`.
#[inline]
fn descend_past<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    steps: &[Step<'_>],
    mut on_level: impl FnMut(Level),
) -> Result<Container, PatchError> {
    let Root::Container(mut container) = root(record, shapes)? else {
        return Err(PatchError::NotAContainer { step: 0 });
    };
    for (step, towards) in steps.iter().enumerate() {
        let slot = existing_slot(record, shapes, &container, step, *towards)?;
        match container.slot(record, shapes, slot)? {
            Slot::Container(inner) => {
                on_level(Level { container, slot });
                container = inner;
            }
            Slot::Absent => return Err(PatchError::NoSuchField { step }),
            _ => return Err(PatchError::NotAContainer { step: step + 1 }),
        }
    }
    Ok(container)
}

/// The slot that a step leads to, which is there but may be absent.
fn existing_slot<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    container: &Container,
    step: usize,
    towards: Step<'_>,
) -> Result<u32, PatchError> {
    match slot_index(record, shapes, container, towards)? {
        Some(slot) => Ok(slot),
        None => Err(match towards {
            _ if container.kind.is_dict() => PatchError::NoSuchField { step },
            Step::Index(_) if is_sequence(container) => {
                PatchError::IndexOutOfRange { step, count: container.count }
            }
            _ => PatchError::NotAContainer { step },
        }),
    }
}

fn is_sequence(container: &Container) -> bool {
    matches!(container.kind, Kind::List | Kind::Tuple | Kind::PackedInts | Kind::PackedFloats)
}

/// Whether its own slots may change; else the error for this step.
fn check_mutable(container: &Container, step: usize) -> Result<(), PatchError> {
    match container.kind {
        Kind::Tuple | Kind::Set | Kind::FrozenSet => Err(PatchError::Immutable { step }),
        _ => Ok(()),
    }
}
