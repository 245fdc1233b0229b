//! Changes one part of a stored record without decoding the rest.
//!
//! ```text
//! record.age = 22            overwrite: 8 bytes in place; nothing is encoded
//! record.tags.append("c")    apply: `tags` is encoded again, its siblings are copied as bytes,
//!                            and the outer containers get other offsets
//! ```
//!
//! Values are bytes: a new value is a record of its own (`encode`) with shape ids of the same
//! dictionary. Tuples, sets and frozensets do not change, as in Python; a list or dict inside a
//! tuple may.
//!
//! This module does not store the changed record, and does not delete values that are stored apart.
//! Their references (tag 0x4E) are copied like any payload, and `overwrite` does not touch them, so
//! the store can see which blobs are no longer used.

mod apply;
mod extent;
mod moved;
mod overwrite;
mod splice;
mod write;

use std::fmt;

pub use apply::apply;
pub use moved::{moved, moved_from};
pub use overwrite::{overwrite, overwrite_by};
pub(crate) use write::as_only_element;

use crate::error::{Corrupt, EncodeError};
use crate::layout::Kind;
use crate::path::{Step, slot_index};
use crate::shape::Shapes;
use crate::view::{Container, Root, Slot, root};

/// A change at the end of a path. Values are records of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<'a> {
    /// Sets the value at the path: a field or an entry, new ones at the end; an existing element;
    /// or, with an empty path, the whole record.
    Set(&'a [u8]),
    /// Removes the field, entry or element at the path.
    Delete,
    /// Inserts the value into a list before this index, which counts as in Python's `list.insert`.
    Insert(i64, &'a [u8]),
    /// Appends the values to a list.
    Append(&'a [&'a [u8]]),
    /// Replaces the elements from `start` up to `stop`, as `list[start:stop] = values` does.
    Splice {
        /// The first element that is removed.
        start: i64,
        /// The first element after these that stays.
        stop: i64,
        /// The values that replace them.
        values: &'a [&'a [u8]],
    },
    /// Removes all elements of the list, or all entries of the dict.
    Clear,
}

/// The shapes of a writer's database; new ones may be added.
pub trait ShapeBook: Shapes {
    /// The id of the shape with these names, admitted now if allowed. `None`: the dict becomes a
    /// keyed map. `is_root`: it is the record itself. The names are few and short enough for a
    /// shape.
    fn shape_of(&mut self, names: &[&str], is_root: bool) -> Option<u32>;
}

/// A changed record, and what the change cost.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patched {
    /// The changed record.
    pub record: Vec<u8>,
    /// Containers whose slots were written anew: the changed one, and outer ones whose slots became
    /// too narrow.
    pub encoded: u32,
    /// Outer containers that were copied with changed offsets only.
    pub spliced: u32,
}

/// Why a record cannot be changed. `step` counts the steps of the path from 0.
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
        /// The number of its elements.
        count: u32,
    },
    /// The value is no container, or not one of the right kind: a field of a list, an append to a
    /// dict.
    NotAContainer {
        /// The step, or the number of steps if it is the value of the whole path.
        step: usize,
    },
    /// The value is a tuple, set or frozenset.
    Immutable {
        /// The step that would change it, or the number of steps if it is the value of the whole
        /// path.
        step: usize,
    },
    /// The changed record would exceed a limit.
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

/// Follows all `steps`, each of which must lead to a container. Returns the levels on the way, and
/// the last container, which may be the root.
fn descend<S: Shapes + ?Sized>(
    record: &[u8],
    shapes: &S,
    steps: &[Step<'_>],
) -> Result<(Vec<Level>, Container), PatchError> {
    let mut levels = Vec::with_capacity(steps.len());
    let container = descend_past(record, shapes, steps, |level| levels.push(level))?;
    Ok((levels, container))
}

/// Follows all `steps` and calls `on_level` with each level on the way.
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

/// The slot that a step leads to; it exists but may be absent.
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

/// Checks that its own slots may change; otherwise returns the error for this step.
fn check_mutable(container: &Container, step: usize) -> Result<(), PatchError> {
    match container.kind {
        Kind::Tuple | Kind::Set | Kind::FrozenSet => Err(PatchError::Immutable { step }),
        _ => Ok(()),
    }
}
