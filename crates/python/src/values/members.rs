//! Check which objects may be keys of a stored dict or members of a stored set.
//!
//! A key or member must be hashable when it is read back, and differ from all others of its dict or
//! set. Plain objects always fulfil that. But an Enum is read back as its value, and a `NamedTuple`
//! as a dict, so such objects are checked in their stored form before anything is written.

use pellucid_record::keyed::{CanonicalKey, UNORDERED};
use pellucid_record::layout::{Kind, tag};
use pellucid_record::shape::Shapes;
use pellucid_record::view::{Container, Root, Slot, Walker, root};
use pyo3::prelude::*;

use crate::values::encode::{Manner, Outcome, Reason, fail};
use crate::values::hooks::PicklePolicy;
use crate::values::{bytes, equal};

const UNHASHABLE: &str = "is stored as a dict, list or set, and could not be a key or a member when it is read \
                          again; use a str, a number or a plain tuple";
/// Why two keys or members beside each other are refused.
pub const SAME: &str = "is stored as the same key or member as another one beside it, and one of the two would be \
                    lost; make their values differ";

/// Refuses objects that would not be hashable when read back, and objects that would be equal.
pub fn check(
    policy: &PicklePolicy,
    manner: Manner,
    members: &[Bound<'_, PyAny>],
) -> Result<(), (usize, Box<crate::values::encode::Failure>)> {
    if members.iter().all(equal::is_plain) {
        return Ok(());
    }
    let mut seen = std::collections::HashSet::with_capacity(members.len());
    for (index, member) in members.iter().enumerate() {
        let stored = || -> Outcome<Option<Vec<u8>>> {
            let (record, names) = bytes::own_record(member, policy, manner.without_identity())?;
            match canonical(&record, &*names) {
                Some(key) => Ok((key.first() != Some(&UNORDERED)).then_some(key)),
                None => fail(Reason::Member(member.clone().unbind(), UNHASHABLE)),
            }
        };
        // NaN and other keys without an order may have equal bytes and yet be two keys.
        if let Some(key) = stored().map_err(|failure| (index, failure))?
            && !seen.insert(key)
        {
            return fail(Reason::Member(member.clone().unbind(), SAME)).map_err(|failure| (index, failure));
        }
    }
    Ok(())
}

/// The canonical bytes of a key's record; None if it cannot be a key.
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
        // Keys are compared by their bytes, and the bytes of a dict contain shape ids, which differ
        // between databases.
        Slot::Heap { tag: tag::REGISTERED, .. } => slot
            .payload_container(record, shapes)
            .ok()
            .flatten()
            .is_some_and(|container| are_hashable(record, shapes, container).is_some()),
        _ => true,
    }
}

/// The offset where the container ends if all of its elements are hashable; otherwise None.
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
