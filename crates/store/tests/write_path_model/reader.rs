//! What does a reader see that comes for one look?

use super::{Shared, Step};

/// A reader that has nothing yet takes one snapshot.
pub(super) fn read(shared: &Shared, step: Step) -> Step {
    match step {
        Step::Load => {
            let (goal, floor) = (shared.sequence, shared.acknowledged);
            assert!(goal >= floor, "[R3] an acknowledged group is not to be seen: {shared:?}");
            // Its overlay begins where the tree was when it opened.
            Step::Find { goal, floor, from: 0, seen: Vec::new() }
        }
        Step::Find { goal, floor, from, seen } => {
            let position = from + seen.len() as u8;
            if position >= goal {
                return Step::TakeTree { goal, floor, from, seen };
            }
            let active = &shared.areas[shared.active];
            let other = &shared.areas[1 - shared.active];
            let is_in_other = position < active.begin && position >= other.begin;
            if position < active.begin && !is_in_other {
                return overtaken(shared, goal, floor);
            }
            let area = if is_in_other { 1 - shared.active } else { shared.active };
            Step::Copy { goal, floor, from, seen, area, salt: shared.areas[area].salt }
        }
        Step::Copy { goal, floor, from, seen, area, salt } => {
            let position = from + seen.len() as u8;
            let slot = position.checked_sub(shared.areas[area].begin).map(usize::from);
            let group = slot.and_then(|slot| shared.areas[area].groups.get(slot).copied().flatten());
            Step::Check { goal, floor, from, seen, area, salt, group }
        }
        Step::Check { goal, floor, from, mut seen, area, salt, group } => {
            let position = from + seen.len() as u8;
            let is_same = shared.areas[area].salt == salt;
            match group.filter(|group| {
                is_same && !group.is_torn && group.salt == salt && group.sequence == position + 1
            }) {
                Some(group) => {
                    seen.push(group.author);
                    Step::Find { goal, floor, from, seen }
                }
                None => overtaken(shared, goal, floor),
            }
        }
        Step::TakeTree { goal, floor, from, seen } => {
            let applied = shared.tree.len() as u8;
            if applied < from || applied > from + seen.len() as u8 && applied > goal {
                return overtaken(shared, goal.max(applied), floor);
            }
            // [R1, R2] The tree, then what the overlay has beyond it.
            let mut view = shared.tree.clone();
            view.extend(seen.iter().skip(usize::from(applied - from)));
            assert!(
                view.len() >= usize::from(floor),
                "[R3] lacks what was acknowledged: {view:?} of {shared:?}"
            );
            assert!(shared.history.starts_with(&view), "[R1] {view:?} is no version of {shared:?}");
            Step::Done
        }
        _ => unreachable!("not a reader's step"),
    }
}

/// [R6] Begin with what the tree has now.
fn overtaken(shared: &Shared, goal: u8, floor: u8) -> Step {
    Step::Find { goal, floor, from: shared.tree.len() as u8, seen: Vec::new() }
}
