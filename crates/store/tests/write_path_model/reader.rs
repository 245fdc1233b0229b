//! A reader in the model that takes a single snapshot.

use super::{Shared, Step};

/// A reader without any state takes one snapshot.
pub(super) fn read(shared: &Shared, step: Step) -> Step {
    match step {
        Step::Load => {
            let (goal, floor) = (shared.sequence, shared.acknowledged);
            assert!(goal >= floor, "[R3] an acknowledged WAL record is not to be seen: {shared:?}");
            // Its memtables begin where the tree was when it opened.
            Step::Find { goal, floor, from: 0, seen: Vec::new() }
        }
        Step::Find { goal, floor, from, seen } => {
            let position = from + seen.len() as u8;
            if position >= goal {
                return Step::TakeTree { goal, floor, from, seen };
            }
            let active = &shared.segments[shared.active];
            let other = &shared.segments[1 - shared.active];
            let is_in_other = position < active.begin && position >= other.begin;
            if position < active.begin && !is_in_other {
                return overtaken(shared, goal, floor);
            }
            let segment = if is_in_other { 1 - shared.active } else { shared.active };
            Step::Copy { goal, floor, from, seen, segment, salt: shared.segments[segment].salt }
        }
        Step::Copy { goal, floor, from, seen, segment, salt } => {
            let position = from + seen.len() as u8;
            let slot = position.checked_sub(shared.segments[segment].begin).map(usize::from);
            let wal_record =
                slot.and_then(|slot| shared.segments[segment].wal_records.get(slot).copied().flatten());
            Step::Check { goal, floor, from, seen, segment, salt, wal_record }
        }
        Step::Check { goal, floor, from, mut seen, segment, salt, wal_record } => {
            let position = from + seen.len() as u8;
            let is_same = shared.segments[segment].salt == salt;
            match wal_record.filter(|wal_record| {
                is_same
                    && !wal_record.is_torn
                    && wal_record.salt == salt
                    && wal_record.sequence == position + 1
            }) {
                Some(wal_record) => {
                    seen.push(wal_record.author);
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
            // [R1, R2] The tree, then what the memtables have beyond it.
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

/// [R6] Begin with the current tree.
fn overtaken(shared: &Shared, goal: u8, floor: u8) -> Step {
    Step::Find { goal, floor, from: shared.tree.len() as u8, seen: Vec::new() }
}
