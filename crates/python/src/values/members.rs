//! Which objects may be keys of a stored dict, or members of a stored set?
//!
//! Those that come back as something that can be one, and as no other one of the same dict or set. Plain
//! ones always do. An Enum comes back as its value, though, and a `NamedTuple` as a dict: such are looked at
//! as they would be stored, before anything is written.

use pellucid_record::keyed::{CanonicalKey, UNORDERED};
use pellucid_record::layout::{Kind, tag};
use pellucid_record::shape::Shapes;
use pellucid_record::view::{Container, Root, Slot, Walker, root};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyFloat, PyInt, PyString};

use crate::values::bytes;
use crate::values::encode::{Outcome, Reason, fail};
use crate::values::hooks::PicklePolicy;

const UNHASHABLE: &str = "is stored as a dict, list or set, and could not be a key or a member when it is read \
                          again; use a str, a number or a plain tuple";
const SAME: &str = "is stored as the same key or member as another one beside it, and one of the two would be \
                    lost; make their values differ";

/// Refuses objects that could not be read again as keys or members, or that two would be one.
pub fn check(
    policy: &PicklePolicy,
    members: &[Bound<'_, PyAny>],
) -> Result<(), (usize, Box<crate::values::encode::Failure>)> {
    if members.iter().all(is_plain) {
        return Ok(());
    }
    let mut seen = std::collections::HashSet::with_capacity(members.len());
    for (index, member) in members.iter().enumerate() {
        let stored = || -> Outcome<Option<Vec<u8>>> {
            let (record, names) = bytes::own_record(member, policy)?;
            match canonical(&record, &*names) {
                Some(key) => Ok((key.first() != Some(&UNORDERED)).then_some(key)),
                None => fail(Reason::Member(member.clone().unbind(), UNHASHABLE)),
            }
        };
        // NaN and other keys without an order may be equal in their bytes and yet two.
        if let Some(key) = stored().map_err(|failure| (index, failure))?
            && !seen.insert(key)
        {
            return fail(Reason::Member(member.clone().unbind(), SAME)).map_err(|failure| (index, failure));
        }
    }
    Ok(())
}

/// Whether equal objects of this class, and only those, are stored as the same.
fn is_plain(member: &Bound<'_, PyAny>) -> bool {
    member.is_exact_instance_of::<PyString>()
        || member.is_exact_instance_of::<PyInt>()
        || member.is_exact_instance_of::<PyFloat>()
        || member.is_exact_instance_of::<PyBool>()
        || member.is_exact_instance_of::<PyBytes>()
        || member.is_none()
}

/// The canonical bytes of a key's record; None where it cannot be a key.
fn canonical<S: Shapes>(record: &[u8], shapes: &S) -> Option<Vec<u8>> {
    let slot = match root(record, shapes).ok()? {
        Root::Container(container) => Slot::Container(container),
        Root::Scalar(slot) => slot,
    };
    if !is_hashable(record, shapes, &slot) {
        return None;
    }
    CanonicalKey::new().of(record, shapes, &slot).ok().map(<[u8]>::to_vec)
}

fn is_hashable<S: Shapes>(record: &[u8], shapes: &S, slot: &Slot<'_>) -> bool {
    match slot {
        Slot::Container(container) => match container.kind {
            Kind::Tuple | Kind::FrozenSet => are_hashable(record, shapes, *container).is_some(),
            _ => false,
        },
        Slot::Heap { tag: tag::BYTEARRAY, .. } => false,
        // What is looked up is compared by its bytes, and a dict's have shapes in them, which differ
        // between databases.
        Slot::Heap { tag: tag::REGISTERED, .. } => slot
            .payload_container(record, shapes)
            .ok()
            .flatten()
            .is_some_and(|container| are_hashable(record, shapes, container).is_some()),
        _ => true,
    }
}

/// Where the container ends, if all of its elements are hashable.
fn are_hashable<S: Shapes>(record: &[u8], shapes: &S, container: Container) -> Option<u32> {
    let mut walker = Walker::new(container);
    while let Some(slot) = walker.next(record, shapes).ok()? {
        match slot {
            Slot::Container(inner) if matches!(inner.kind, Kind::Tuple | Kind::FrozenSet) => {
                walker.consumed(are_hashable(record, shapes, inner)?).ok()?;
            }
            slot if is_hashable(record, shapes, &slot) => {}
            _ => return None,
        }
    }
    Some(walker.end())
}
