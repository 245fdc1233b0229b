//! Wrong contracts, each of which the model must detect.

use super::{Step, World, checkpointer, explore_from, syncs, taken_over, writer};

/// An error in the contract that the model must detect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Flaw {
    None,
    /// Against W1 and W3: a WAL record is published and acknowledged before it is complete.
    AcknowledgedEarly,
    /// Against W5: the lock is taken from a living process.
    TakenFromTheLiving,
    /// Against C2: a segment is begun anew while it is sealed and not applied.
    SealedTwice,
    /// Against D4: records that were appended during a sync count as synced.
    SyncedTooMuch,
    /// Against D4: a sync leaves out the head of a segment that was begun after everything synced.
    HeadLeftOut,
    /// Against R2: `applied` is not published for a dead process, and a process keeps its tree
    /// under a third memtable.
    KeptTooLong,
    /// Against C2: a segment is begun anew while the tree with its content is not on the disk.
    TreeUnsynced,
    /// Against O1: the same, by a process that opens alone.
    TakenUnsynced,
    /// Against O1: the first member of a log trusts its head.
    JoinedUntaken,
    /// Against W6: a dead process's lock is free before the log is recovered, and the next process
    /// takes the log as complete.
    FreedFirst,
    /// Against O1: a process that opens alone and finds nothing after the tree leaves the content
    /// of the other segment.
    OtherSegmentLeft,
    /// Against D5: commits are reported as durable although the file may not be on the disk.
    UnsyncedFileLeft,
    /// Against D5: the tree is written to although the new file may not be on the disk.
    TreeAheadOfFile,
    /// Against O1: the file is reported as durable before its sync.
    UnsyncedFileToldFirst,
    /// Against O1: a process that opens alone does so without a sync.
    UnsyncedFileTaken,
    /// Against W6: the head of a segment stays as a process left it that died between two stores of
    /// it.
    TornHeadLeft,
}

#[test]
fn flaws_are_found() {
    let checkpoint = Step::CheckpointLock { left: 2 };
    for (flaw, steps) in [
        (Flaw::AcknowledgedEarly, vec![writer(2)]),
        (Flaw::TakenFromTheLiving, vec![writer(2), writer(2)]),
        (Flaw::SealedTwice, vec![writer(2), writer(2), checkpoint.clone(), checkpoint.clone()]),
        (Flaw::SyncedTooMuch, vec![writer(2), writer(2)]),
        (Flaw::TreeUnsynced, vec![writer(3), checkpoint.clone(), checkpoint.clone()]),
        (
            Flaw::KeptTooLong,
            vec![
                writer(3),
                Step::CheckpointLock { left: 0 },
                Step::CheckpointLock { left: 0 },
                Step::Keep(checkpointer::Checkpointer::new(3)),
            ],
        ),
        (Flaw::HeadLeftOut, vec![writer(2), checkpoint]),
        (Flaw::TornHeadLeft, vec![Step::Lock { left: 0, is_bulk: true }, writer(1)]),
    ] {
        let is_full = matches!(flaw, Flaw::SyncedTooMuch | Flaw::HeadLeftOut);
        let found = std::panic::catch_unwind(|| explore_from(World::new(steps, 1, flaw, is_full)));
        assert!(found.is_err(), "{flaw:?} went unnoticed");
    }
    let checkpoint = || Step::CheckpointLock { left: 0 };
    for (flaw, before) in [
        (Flaw::TakenUnsynced, vec![writer(2), checkpoint()]),
        (Flaw::JoinedUntaken, vec![writer(2), checkpoint()]),
        (Flaw::FreedFirst, vec![writer(2)]),
        (Flaw::OtherSegmentLeft, vec![writer(3), checkpoint()]),
        (Flaw::UnsyncedFileLeft, vec![writer(1), syncs(1)]),
        (Flaw::TreeAheadOfFile, vec![writer(1), checkpoint()]),
        (Flaw::UnsyncedFileToldFirst, vec![writer(1), syncs(1)]),
        (Flaw::UnsyncedFileTaken, vec![writer(1)]),
    ] {
        let has_unsynced_file = matches!(
            flaw,
            Flaw::UnsyncedFileLeft
                | Flaw::TreeAheadOfFile
                | Flaw::UnsyncedFileToldFirst
                | Flaw::UnsyncedFileTaken
        );
        let world = taken_over(before, 1, false, flaw);
        let world = if has_unsynced_file { world.with_unsynced_file() } else { world };
        let found = std::panic::catch_unwind(|| explore_from(world));
        assert!(found.is_err(), "{flaw:?} went unnoticed");
    }
}
