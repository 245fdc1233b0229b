//! Would the model find what a contract gets wrong?

use super::{Step, World, checkpointer, explore_from, syncs, taken_over, writer};

/// What a contract would get wrong, to see that the model finds it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Flaw {
    None,
    /// Against W1 and W3: a WAL record is published and acknowledged before it is whole.
    AcknowledgedEarly,
    /// Against W5: the lock is taken from the living.
    TakenFromTheLiving,
    /// Against C2: a segment is begun anew while it is sealed and not applied.
    SealedTwice,
    /// Against D4: what was appended while a sync ran is taken for synced.
    SyncedTooMuch,
    /// Against D4: a sync leaves out the head of a segment that was begun behind all that is synced.
    HeadLeftOut,
    /// Against R2: nobody says for a dead one what is applied, and a process keeps its tree under a third memtable.
    KeptTooLong,
    /// Against C2: a segment is begun anew while the tree that has it is not on the disk.
    TreeUnsynced,
    /// Against O1: the same, by whoever opens alone.
    TakenUnsynced,
    /// Against O1: whoever is the first with a log takes it as its head says.
    JoinedUntaken,
    /// Against W6: the lock of a dead one is free before the log is put right, for one who then takes it for whole.
    FreedFirst,
    /// Against O1: whoever opens alone and finds nothing behind the tree leaves what the other segment says.
    OtherSegmentLeft,
    /// Against D5: commits are said to be on the disk while the file need not be.
    NewbornLeft,
    /// Against D5: the tree is written to while the file as it was made need not be on the disk.
    TreeAheadOfFile,
    /// Against O1: the file is said to be on the disk ahead of its sync.
    NewbornToldFirst,
    /// Against O1: whoever opens alone says so without a sync.
    NewbornTaken,
    /// Against W6: the head of a segment is left as a process has left it that died between two stores of it.
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
        (Flaw::NewbornLeft, vec![writer(1), syncs(1)]),
        (Flaw::TreeAheadOfFile, vec![writer(1), checkpoint()]),
        (Flaw::NewbornToldFirst, vec![writer(1), syncs(1)]),
        (Flaw::NewbornTaken, vec![writer(1)]),
    ] {
        let is_newborn = matches!(
            flaw,
            Flaw::NewbornLeft | Flaw::TreeAheadOfFile | Flaw::NewbornToldFirst | Flaw::NewbornTaken
        );
        let world = taken_over(before, 1, false, flaw);
        let world = if is_newborn { world.newborn() } else { world };
        let found = std::panic::catch_unwind(|| explore_from(world));
        assert!(found.is_err(), "{flaw:?} went unnoticed");
    }
}
