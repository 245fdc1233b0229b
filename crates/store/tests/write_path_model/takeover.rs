//! A process in the model that opens a log alone, step by step, also after a power cut.

use super::{File, Flaw, GONE, Segment, Shared, Step, TORN, World};

/// Its next step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Stage {
    /// Wait until it is alone, and sync the tree.
    Sync,
    /// Mark the writer lock, so that no process takes it as free.
    Close,
    /// Set `applied` and `synced` to what the tree has.
    Count,
    /// Begin anew if there is nothing after the tree, otherwise go on in the last segment.
    Begin,
    EndBegin,
    Tail,
    Sequence,
    /// Let others write.
    Open,
}

/// The segment in which the log ends, if it has anything after the tree.
fn last_segment(shared: &Shared) -> Option<usize> {
    let begins = |at: u8| {
        (0..2).find(|segment| {
            shared.segments[*segment].begin == at && !shared.segments[*segment].chain().is_empty()
        })
    };
    let first = begins(shared.tree.len() as u8)?;
    let next = &shared.segments[1 - first];
    Some(if next.salt != 0 && next.begin == shared.segments[first].end() { 1 - first } else { first })
}

pub(super) fn advance(world: &mut World, process: u8, stage: Stage, left: u8) -> Option<Step> {
    let flaw = world.flaw;
    let is_alone = is_alone(world, process);
    let shared = &mut world.shared;
    if stage == Stage::Sync && !is_alone {
        return None;
    }
    let after = match stage {
        Stage::Sync => {
            // With the second flaw it finds another process's half-finished work, and takes the log
            // as it is.
            let is_half_done = flaw == Flaw::FreedFirst && shared.writer == Some(GONE);
            if flaw == Flaw::JoinedUntaken || is_half_done {
                return Some(Step::Lock { left, is_bulk: false });
            }
            if flaw != Flaw::TakenUnsynced {
                shared.tree_on_disk = shared.tree.len() as u8;
            }
            shared.file.is_on_disk |= flaw != Flaw::UnsyncedFileTaken;
            Stage::Close
        }
        Stage::Close => {
            shared.writer = Some(GONE);
            Stage::Count
        }
        Stage::Count => {
            shared.tree_writer = None;
            (shared.hint, shared.synced) = (shared.tree.len() as u8, shared.tree.len() as u8);
            Stage::Begin
        }
        Stage::Begin => {
            begin(shared, flaw);
            Stage::EndBegin
        }
        Stage::EndBegin => {
            if shared.segments[0].begin == TORN && shared.active == 0 && last_segment(shared).is_none() {
                let applied = shared.tree.len() as u8;
                shared.begin_segment(0, applied);
                if flaw != Flaw::OtherSegmentLeft {
                    // On the disk before anything is appended.
                    shared.disk = shared.segments;
                }
                shared.has_found = false;
            }
            Stage::Tail
        }
        Stage::Tail => {
            shared.tail = Shared::replay(&shared.tree, &shared.segments).len() as u8;
            Stage::Sequence
        }
        Stage::Sequence => {
            shared.history = Shared::replay(&shared.tree, &shared.segments);
            shared.sequence = shared.history.len() as u8;
            let is_whole = shared.sequence >= shared.acknowledged;
            assert!(is_whole, "[W6] an acknowledged WAL record is lost: {shared:?}");
            Stage::Open
        }
        Stage::Open => {
            shared.writer = None;
            shared.file.has_unsynced_file = false;
            // The recovered records are written into the tree before anything is appended.
            return Some(if shared.has_found {
                Step::CheckpointLock { left }
            } else {
                Step::Lock { left, is_bulk: false }
            });
        }
    };
    Some(Step::TakeOver { stage: after, left })
}

/// Go on in the last segment, or begin anew.
fn begin(shared: &mut Shared, flaw: Flaw) {
    if let Some(last) = last_segment(shared) {
        shared.has_found = true;
        shared.active = last;
    } else {
        shared.active = 0;
        if flaw != Flaw::OtherSegmentLeft {
            let writes = shared.segments[1].head_writes + u8::from(shared.has_syncs);
            shared.segments[1] = Segment { begin: 0, salt: 0, head_writes: writes, ..shared.segments[1] };
        }
        shared.tear_segment(0);
    }
}

/// Whether all other processes have ended, or have not begun yet.
fn is_alone(world: &World, process: u8) -> bool {
    world.steps.iter().enumerate().all(|(number, step)| {
        number == usize::from(process)
            || matches!(step, Step::Dead | Step::Done | Step::TakeOver { stage: Stage::Sync, .. })
    })
}

/// What it may find after a power cut: each image of tree and log, with a first page of any moment.
/// If the file itself is lost, its log is removed too, and everything begins anew.
pub(super) fn after_power_cut(world: &World, process: u8) -> Vec<World> {
    if world.cuts_left == 0 || !is_alone(world, process) {
        return Vec::new();
    }
    let shared = &world.shared;
    let mut found = Vec::new();
    for (tree, segments) in shared.cuts() {
        let history = Shared::replay(tree, &segments);
        for (active, sequence, hint) in [(shared.active, shared.sequence, 9), (1 - shared.active, 0, 0)] {
            let mut next = world.clone();
            next.cuts_left -= 1;
            next.shared = Shared {
                segments,
                disk: segments,
                active,
                tail: sequence,
                sequence,
                hint,
                writer: None,
                tree_writer: None,
                syncer: None,
                tree: tree.to_vec(),
                tree_on_disk: tree.len() as u8,
                file: File { is_on_disk: true, ..shared.file },
                acknowledged: history.len() as u8,
                synced: history.len() as u8,
                history: history.clone(),
                ..shared.clone()
            };
            found.push(next);
        }
    }
    found
}
