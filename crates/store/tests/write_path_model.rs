//! Model check of the write path: the contract must hold under every interleaving and every death.
//!
//! A model of `docs/internals/write-path.md`, not of its code: processes that take one atomic step
//! at a time on shared memory. Every interleaving is visited, with a death of any process before
//! any of its steps, and from every state every image of the log that a power cut can leave. A
//! position is a count of WAL records here, so it is the sequence number as well, and a segment
//! holds two.
#![allow(clippy::indexing_slicing, reason = "a state out of its bounds is a finding")]
#![allow(clippy::needless_pass_by_value, reason = "a step is used up by taking it")]

#[path = "write_path_model/checkpointer.rs"]
mod checkpointer;
#[path = "write_path_model/flaws.rs"]
mod flaws;
#[path = "write_path_model/reader.rs"]
mod reader;
#[path = "write_path_model/states.rs"]
mod states;
#[path = "write_path_model/takeover.rs"]
mod takeover;

use flaws::Flaw;
use states::{explore, explore_from, explore_full};

const ROOM: usize = 2;
/// The author of a bulk commit's content, which the log never holds.
const NOBODY: u8 = 9;
/// A number that no process has: a lock with this owner has to be taken over.
const GONE: u8 = 8;
/// The begin of a segment whose head is just being written: its words are stored one by one, and
/// its check is wrong meanwhile.
const TORN: u8 = 255;

/// A WAL record in the log: its sequence number and author, and the check that chains it to the one
/// before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct WalRecord {
    sequence: u8,
    author: u8,
    is_torn: bool,
    /// The salt of the segment and the author of the WAL record before, which seed its check.
    salt: u8,
    before: u8,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Segment {
    begin: u8,
    salt: u8,
    wal_records: [Option<WalRecord>; ROOM],
    /// How often the head and each WAL record were written, to tell which of two is newer.
    head_writes: u8,
    wal_record_writes: [u8; ROOM],
}

impl Segment {
    /// Apply a finished sync of some WAL records, and perhaps of the head, that had found them like
    /// this.
    fn take_over(&mut self, found: &Self, wal_records: std::ops::Range<usize>, with_head: bool) {
        if with_head && found.head_writes > self.head_writes {
            (self.begin, self.salt, self.head_writes) = (found.begin, found.salt, found.head_writes);
        }
        for slot in wal_records {
            // Another sync that found a newer record may have ended meanwhile.
            if found.wal_record_writes[slot] > self.wal_record_writes[slot] {
                (self.wal_records[slot], self.wal_record_writes[slot]) =
                    (found.wal_records[slot], found.wal_record_writes[slot]);
            }
        }
    }

    /// The WAL records that continue the chain from the segment's begin.
    fn chain(&self) -> Vec<WalRecord> {
        let mut chain: Vec<WalRecord> = Vec::new();
        if self.begin == TORN {
            return chain;
        }
        for (index, wal_record) in self.wal_records.iter().enumerate() {
            let before = chain.last().map_or(NOBODY, |wal_record| wal_record.author);
            match wal_record {
                Some(wal_record)
                    if !wal_record.is_torn
                        && wal_record.salt == self.salt
                        && wal_record.before == before
                        && usize::from(wal_record.sequence) == usize::from(self.begin) + index + 1 =>
                {
                    chain.push(*wal_record);
                }
                _ => break,
            }
        }
        chain
    }

    fn end(&self) -> u8 {
        self.begin + self.chain().len() as u8
    }
}

/// The data file as it was made.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct File {
    /// The disk certainly has it.
    is_on_disk: bool,
    /// The log's head says that the disk may not have it.
    has_unsynced_file: bool,
}

/// The state that the system keeps when processes die.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Shared {
    segments: [Segment; 2],
    active: usize,
    tail: u8,
    sequence: u8,
    /// The holder of the writer lock.
    writer: Option<u8>,
    /// The holder of the tree lock.
    tree_writer: Option<u8>,
    /// The authors of everything in the tree, in order; its length is `applied`.
    tree: Vec<u8>,
    file: File,
    /// How much of the tree the disk certainly has, and how much by the hint in the log's head.
    tree_on_disk: u8,
    hint: u8,
    /// Whether the active segment must be sealed before anything is appended.
    has_found: bool,
    /// The authors of all WAL records that were acknowledged or kept, in order.
    history: Vec<u8>,
    /// How many of them were acknowledged.
    acknowledged: u8,
    next_salt: u8,
    /// The log as the disk certainly has it, and up to which WAL record.
    disk: [Segment; 2],
    synced: u8,
    /// The process that syncs for all.
    syncer: Option<u8>,
    /// The WAL record up to which group commits of `full` have returned.
    lasting: u8,
    /// Whether any process syncs. If not, it does not matter which content is newer than the
    /// disk's.
    has_syncs: bool,
}

/// The next step of a process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum Step {
    Dead,
    Done,
    // Writer
    Lock {
        left: u8,
        is_bulk: bool,
    },
    Recover {
        left: u8,
        is_bulk: bool,
    },
    Append {
        left: u8,
    },
    Complete {
        left: u8,
    },
    StoreTail {
        left: u8,
    },
    StoreSequence {
        left: u8,
    },
    Unlock {
        left: u8,
    },
    // Bulk: everything else is in the tree, and nothing can be appended.
    BulkTreeLock,
    BulkCommit,
    BulkTear,
    BulkBegin,
    BulkPublish,
    // Checkpoint
    CheckpointLock {
        left: u8,
    },
    CheckpointRecover {
        left: u8,
    },
    WriteBegin {
        left: u8,
    },
    EndBegin {
        left: u8,
    },
    EndBeginAnew {
        left: u8,
    },
    Swap {
        left: u8,
    },
    CheckpointUnlock {
        left: u8,
    },
    TreeLock {
        left: u8,
    },
    TreeCommit {
        left: u8,
    },
    TreeTell {
        left: u8,
    },
    // An opener that is alone, and then writes
    TakeOver {
        stage: takeover::Stage,
        left: u8,
    },
    // A process that keeps its tree and its memtables, and looks again and again
    Keep(checkpointer::Checkpointer),
    // Reader
    Load,
    Find {
        goal: u8,
        floor: u8,
        from: u8,
        seen: Vec<u8>,
    },
    Copy {
        goal: u8,
        floor: u8,
        from: u8,
        seen: Vec<u8>,
        segment: usize,
        salt: u8,
    },
    Check {
        goal: u8,
        floor: u8,
        from: u8,
        seen: Vec<u8>,
        segment: usize,
        salt: u8,
        wal_record: Option<WalRecord>,
    },
    TakeTree {
        goal: u8,
        floor: u8,
        from: u8,
        seen: Vec<u8>,
    },
    // A process that syncs, or waits for a sync: a writer in `full`, or one that was asked to
    AwaitSync {
        left: u8,
        goal: u8,
        writes: bool,
    },
    BeginSync {
        left: u8,
        goal: u8,
        writes: bool,
    },
    EndSync {
        left: u8,
        goal: u8,
        writes: bool,
        until: u8,
        found: [Segment; 2],
        part: Option<Part>,
    },
}

/// Some WAL records of a segment.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Part {
    segment: usize,
    wal_records: std::ops::Range<usize>,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct World {
    shared: Shared,
    flaw: Flaw,
    steps: Vec<Step>,
    deaths_left: u8,
    cuts_left: u8,
    /// Whether writers wait for the disk.
    is_full: bool,
}

impl World {
    fn new(steps: Vec<Step>, deaths_left: u8, flaw: Flaw, is_full: bool) -> Self {
        let segment = |salt| Segment {
            begin: 0,
            salt,
            wal_records: [None; ROOM],
            head_writes: 0,
            wal_record_writes: [0; ROOM],
        };
        let segments = [segment(1), segment(0)];
        let shared = Shared {
            segments,
            active: 0,
            tail: 0,
            sequence: 0,
            writer: None,
            tree_writer: None,
            tree: Vec::new(),
            file: File { is_on_disk: true, has_unsynced_file: false },
            tree_on_disk: 0,
            hint: 0,
            has_found: false,
            history: Vec::new(),
            acknowledged: 0,
            next_salt: 2,
            disk: segments,
            synced: 0,
            syncer: None,
            lasting: 0,
            has_syncs: is_full || steps.iter().any(|step| matches!(step, Step::AwaitSync { .. })),
        };
        Self { shared, flaw, steps, deaths_left, cuts_left: 0, is_full }
    }

    /// The same beside a newly created file.
    fn with_unsynced_file(mut self) -> Self {
        self.shared.file = File { is_on_disk: false, has_unsynced_file: true };
        self
    }

    /// [D5] Before a step: sync the newly created file, if it is not synced yet, and publish that.
    fn sync_new_file(&mut self, step: &Step) -> bool {
        let is_ahead = match step {
            Step::AwaitSync { .. } => self.flaw != Flaw::UnsyncedFileLeft,
            Step::TreeCommit { .. } | Step::BulkCommit => self.flaw != Flaw::TreeAheadOfFile,
            _ => false,
        };
        if !is_ahead || !self.shared.file.has_unsynced_file {
            return false;
        }
        if self.shared.file.is_on_disk || self.flaw == Flaw::UnsyncedFileToldFirst {
            self.shared.file.has_unsynced_file = false;
        } else {
            self.shared.file.is_on_disk = true;
        }
        true
    }

    fn is_dead(&self, process: u8) -> bool {
        process == GONE || self.steps[usize::from(process)] == Step::Dead
    }

    /// [W5] Take the writer lock: free, or over from a dead owner. `Some(true)`: taken over.
    fn lock(&mut self, process: u8) -> Option<bool> {
        assert_ne!(self.shared.tree_writer, Some(process), "waits for the writer lock with the tree's");
        let taken_over = match self.shared.writer {
            None => false,
            Some(owner) if self.is_dead(owner) => true,
            Some(_) if self.flaw == Flaw::TakenFromTheLiving => true,
            Some(_) => return None,
        };
        self.shared.writer = Some(process);
        Some(taken_over)
    }

    /// [O1] A WAL record that is not counted is one that was just being appended, and no other.
    fn check_uncounted(&self) {
        let now = Shared::replay(&self.shared.tree, &self.shared.segments);
        let uncounted = now.get(self.shared.history.len()..).unwrap_or_default();
        let is_under_way = |author: &u8| self.shared.writer == Some(*author) || self.is_dead(*author);
        assert!(
            self.shared.writer == Some(GONE) || uncounted.len() <= 1 && uncounted.iter().all(is_under_way),
            "[O1] {uncounted:?} came back: {self:?}"
        );
    }

    /// What a writer does after it has released the lock.
    fn after_commit(&self, left: u8) -> Step {
        match left {
            _ if self.is_full => Step::AwaitSync { left, goal: self.shared.sequence, writes: true },
            0 => Step::Done,
            left => Step::Lock { left: left - 1, is_bulk: false },
        }
    }

    /// Take the tree lock, free or from a dead owner.
    fn lock_tree(&mut self, process: u8) -> bool {
        let is_free = self.shared.tree_writer.is_none_or(|owner| self.is_dead(owner));
        if is_free {
            self.shared.tree_writer = Some(process);
        }
        is_free
    }

    /// [W6] Set tail and sequence to the end of the active segment's chain. False when there is
    /// more to do.
    fn recover(&mut self) -> bool {
        let shared = &mut self.shared;
        shared.tell_applied();
        let segment = shared.segments[shared.active];
        let chain = segment.chain();
        let applied = shared.tree.len() as u8;
        if segment.begin != TORN && segment.end() < applied {
            // A bulk commit whose process died before it began the segment anew.
            shared.tear_segment(shared.active);
            return false;
        }
        if segment.begin == TORN && self.flaw != Flaw::TornHeadLeft {
            assert!(shared.tail <= applied, "[C2] a segment is begun anew ahead of the tree: {shared:?}");
            shared.begin_segment(shared.active, applied);
            shared.history.clone_from(&shared.tree);
        } else {
            shared.history.truncate(usize::from(segment.begin));
            shared.history.extend(chain.iter().map(|wal_record| wal_record.author));
        }
        assert!(
            shared.history.len() >= usize::from(shared.acknowledged),
            "[W6] an acknowledged WAL record is lost: {shared:?}"
        );
        shared.tail = shared.history.len() as u8;
        shared.sequence = shared.tail;
        true
    }
}

impl Shared {
    /// Store the first words of a segment's head: from now on it has no valid head.
    fn tear_segment(&mut self, number: usize) {
        self.write_head(number, TORN);
    }

    fn begin_segment(&mut self, number: usize, begin: u8) {
        assert_eq!(self.segments[number].begin, TORN, "the head is written in one step");
        self.write_head(number, begin);
    }

    fn write_head(&mut self, number: usize, begin: u8) {
        let old = &self.segments[number];
        // None of its records may be needed after the tree that the disk has.
        let tree = &self.tree[..usize::from(self.tree_on_disk)];
        let mut without = self.segments;
        without[number].wal_records = [None; ROOM];
        let is_free = Self::replay(tree, &self.segments) == Self::replay(tree, &without);
        assert!(is_free, "[C2] segment {number} is not free: {self:?}");
        // The segment's records stay where they are: only begin and salt are written.
        self.segments[number] = Segment {
            begin,
            salt: self.next_salt,
            head_writes: old.head_writes + u8::from(self.has_syncs),
            ..*old
        };
        self.next_salt += 1;
    }

    /// Whether the other segment has WAL records that the tree lacks.
    fn is_other_live(&self) -> bool {
        let other = &self.segments[1 - self.active];
        let active = &self.segments[self.active];
        // Sealed: it ends where the active one begins, after what is applied.
        other.end() == active.begin
            && other.begin < active.begin
            && self.tree.len() < usize::from(active.begin)
    }

    /// Sync the tree, and publish that.
    fn tell_applied(&mut self) {
        self.tree_on_disk = self.tree.len() as u8;
        self.hint = self.hint.max(self.tree_on_disk);
        self.synced = self.synced.max(self.tree_on_disk);
    }

    fn is_active_full(&self) -> bool {
        let segment = &self.segments[self.active];
        usize::from(self.tail - segment.begin) >= ROOM
    }

    /// [O1] The state that the next opener finds from a tree and these segments.
    fn replay(tree: &[u8], segments: &[Segment; 2]) -> Vec<u8> {
        let mut found = tree.to_vec();
        for _ in 0..2 {
            let begin = found.len() as u8;
            let next = segments.iter().find(|segment| segment.begin == begin && !segment.chain().is_empty());
            let Some(segment) = next else { break };
            found.extend(segment.chain().iter().map(|wal_record| wal_record.author));
        }
        found
    }

    /// The images of the log that a power cut can leave: for every WAL record and every begin, the
    /// old or the new.
    fn images(&self) -> Vec<[Segment; 2]> {
        let mut images = vec![self.disk];
        for number in 0..2 {
            let (now, old) = (&self.segments[number], &self.disk[number]);
            if (now.begin, now.salt) != (old.begin, old.salt) {
                let changed = images.clone().into_iter().map(|mut image| {
                    (image[number].begin, image[number].salt) = (now.begin, now.salt);
                    image
                });
                images.extend(changed.collect::<Vec<_>>());
            }
            for slot in 0..ROOM {
                if now.wal_records[slot] != old.wal_records[slot] {
                    let changed = images.clone().into_iter().map(|mut image| {
                        image[number].wal_records[slot] = now.wal_records[slot];
                        image
                    });
                    images.extend(changed.collect::<Vec<_>>());
                }
            }
        }
        images
    }

    /// What must hold in every state for the next opener: after a death of all, and after a power
    /// cut.
    fn check(&self) {
        let now = Self::replay(&self.tree, &self.segments);
        let acknowledged = &self.history[..usize::from(self.acknowledged)];
        assert!(now.starts_with(acknowledged), "[W3] lost {acknowledged:?}, found {now:?}: {self:?}");
        assert!(
            self.history.starts_with(&self.tree),
            "[C1] the tree has what was never in the log: {self:?}"
        );
        assert!(
            self.file.is_on_disk || self.file.has_unsynced_file,
            "[O1] the log of a file that is gone: {self:?}"
        );
        assert!(
            self.file.is_on_disk || self.tree.is_empty(),
            "[D5] more than it was made with is in a file that may be torn: {self:?}"
        );
        assert!(
            self.file.is_on_disk || self.synced.max(self.lasting) == 0,
            "[D1] synced, and lost with the file: {self:?}"
        );
        for (tree, image) in self.cuts() {
            let found = Self::replay(tree, &image);
            let is_prefix = now.starts_with(&found);
            assert!(is_prefix, "[O1, D2] {found:?} is no prefix of {now:?}: {image:?} of {self:?}");
            assert!(
                found.len() >= usize::from(self.synced.max(self.lasting)),
                "[D1, O1] synced, and lost: {tree:?}, {image:?} of {self:?}"
            );
        }
    }

    /// What a power cut may leave: the tree of the last commit or the one before, and the log.
    fn cuts(&self) -> impl Iterator<Item = (&[u8], [Segment; 2])> {
        let old = &self.tree[..usize::from(self.tree_on_disk)];
        let new = (old != self.tree).then_some(&self.tree[..]);
        let images = self.images();
        std::iter::once(old)
            .chain(new)
            .flat_map(move |tree| images.clone().into_iter().map(move |image| (tree, image)))
    }
}

/// The states that one step of one process leads to; none if it waits.
fn advance(world: &World, process: u8) -> Option<World> {
    let mut next = world.clone();
    let step = world.steps[usize::from(process)].clone();
    if next.sync_new_file(&step) {
        return Some(next);
    }
    let after = match step {
        Step::Dead | Step::Done => return None,
        Step::Load | Step::Find { .. } | Step::Copy { .. } | Step::Check { .. } | Step::TakeTree { .. } => {
            reader::read(&next.shared, step)
        }
        Step::AwaitSync { .. } | Step::BeginSync { .. } | Step::EndSync { .. } => {
            sync(&mut next, process, step)?
        }
        Step::TreeLock { .. }
        | Step::CheckpointLock { .. }
        | Step::CheckpointRecover { .. }
        | Step::WriteBegin { .. }
        | Step::EndBegin { .. }
        | Step::EndBeginAnew { .. }
        | Step::Swap { .. }
        | Step::CheckpointUnlock { .. }
        | Step::TreeTell { .. }
        | Step::TreeCommit { .. } => checkpoint(&mut next, process, step)?,
        Step::BulkTreeLock | Step::BulkCommit | Step::BulkTear | Step::BulkBegin | Step::BulkPublish => {
            bulk(&mut next, process, step)
        }
        Step::TakeOver { stage, left } => takeover::advance(&mut next, process, stage, left)?,
        Step::Keep(checkpointer) => checkpointer.advance(&next),
        step => write(&mut next, process, step)?,
    };
    next.steps[usize::from(process)] = after;
    Some(next)
}

/// The first step of a writer with the lock.
fn first_step(left: u8, is_bulk: bool) -> Step {
    if is_bulk { Step::BulkTreeLock } else { Step::Append { left } }
}

fn write(world: &mut World, process: u8, step: Step) -> Option<Step> {
    let is_early = world.flaw == Flaw::AcknowledgedEarly;
    let next = match step {
        Step::Lock { left, is_bulk } => {
            let is_taken_over = world.lock(process)?;
            if is_taken_over { Step::Recover { left, is_bulk } } else { first_step(left, is_bulk) }
        }
        Step::Recover { left, is_bulk } if !world.recover() => Step::Recover { left, is_bulk },
        Step::Recover { left, is_bulk } => first_step(left, is_bulk),
        Step::Append { left } => {
            let shared = &mut world.shared;
            assert_ne!(
                shared.segments[shared.active].begin, TORN,
                "[W6] appended to a segment without a head"
            );
            if shared.is_active_full() || shared.has_found {
                // [C5] Releases the lock and waits for a checkpoint.
                shared.writer = None;
                world.steps[usize::from(process)] = Step::Lock { left, is_bulk: false };
                return Some(Step::Lock { left, is_bulk: false });
            }
            let segment = &mut shared.segments[shared.active];
            let slot = usize::from(shared.tail - segment.begin);
            let before = if slot == 0 { NOBODY } else { shared.history[shared.history.len() - 1] };
            let sequence = shared.sequence + 1;
            segment.wal_records[slot] =
                Some(WalRecord { sequence, author: process, is_torn: true, salt: segment.salt, before });
            segment.wal_record_writes[slot] += u8::from(shared.has_syncs);
            if is_early {
                return Some(Step::StoreTail { left });
            }
            Step::Complete { left }
        }
        Step::Complete { left } => {
            let has_syncs = world.shared.has_syncs;
            let segment = &mut world.shared.segments[world.shared.active];
            let slot = usize::from(world.shared.tail - segment.begin) - usize::from(is_early);
            if let Some(wal_record) = &mut segment.wal_records[slot] {
                wal_record.is_torn = false;
                segment.wal_record_writes[slot] += u8::from(has_syncs);
            }
            if is_early { Step::Unlock { left } } else { Step::StoreTail { left } }
        }
        Step::StoreTail { left } => {
            world.shared.tail += 1;
            Step::StoreSequence { left }
        }
        Step::StoreSequence { left } => {
            world.shared.sequence += 1;
            world.shared.history.push(process);
            if is_early {
                world.shared.acknowledged = world.shared.sequence;
                return Some(Step::Complete { left });
            }
            Step::Unlock { left }
        }
        Step::Unlock { left } => {
            world.shared.acknowledged = world.shared.acknowledged.max(world.shared.sequence);
            world.shared.writer = None;
            world.after_commit(left)
        }
        _ => unreachable!("not a writer's step"),
    };
    Some(next)
}

/// [D4] One process syncs for all that wait.
fn sync(world: &mut World, process: u8, step: Step) -> Option<Step> {
    let next = match step {
        Step::AwaitSync { left, goal, writes } if world.shared.synced >= goal => {
            world.shared.lasting = world.shared.lasting.max(goal);
            match (left, writes) {
                (0, _) => Step::Done,
                (_, true) => Step::Lock { left: left - 1, is_bulk: false },
                (_, false) => Step::AwaitSync { left: left - 1, goal: world.shared.acknowledged, writes },
            }
        }
        Step::AwaitSync { left, goal, writes } => {
            if world.shared.syncer.is_some_and(|syncer| !world.is_dead(syncer)) {
                return None;
            }
            world.shared.syncer = Some(process);
            Step::BeginSync { left, goal, writes }
        }
        Step::BeginSync { left, goal, writes } => {
            let shared = &world.shared;
            let (until, synced, segment) = (shared.tail, shared.synced, shared.active);
            let begin = shared.segments[segment].begin;
            let has_head = synced > begin || world.flaw == Flaw::HeadLeftOut && synced == begin;
            let part = (has_head && until > synced).then(|| Part {
                segment,
                wal_records: usize::from(synced - begin)..usize::from(until - begin),
            });
            Step::EndSync { left, goal, writes, until, found: shared.segments, part }
        }
        Step::EndSync { left, goal, writes, until, found, part } => {
            let shared = &mut world.shared;
            for (number, (disk, found)) in shared.disk.iter_mut().zip(&found).enumerate() {
                match &part {
                    None => disk.take_over(found, 0..ROOM, true),
                    Some(part) if part.segment == number => {
                        disk.take_over(found, part.wal_records.clone(), false);
                    }
                    Some(_) => {}
                }
            }
            let until = if world.flaw == Flaw::SyncedTooMuch { shared.tail } else { until };
            shared.synced = shared.synced.max(until);
            if shared.syncer == Some(process) {
                shared.syncer = None;
            }
            Step::AwaitSync { left, goal, writes }
        }
        _ => unreachable!("not a step of a sync"),
    };
    Some(next)
}

/// [B1] With the writer lock held and everything applied.
fn bulk(world: &mut World, process: u8, step: Step) -> Step {
    match step {
        Step::BulkTreeLock => {
            if world.shared.tree.len() < usize::from(world.shared.tail) {
                world.shared.writer = None;
                return Step::Lock { left: 0, is_bulk: true };
            }
            if !world.lock_tree(process) {
                // [C5] The timeout has passed: nothing was written.
                world.shared.writer = None;
                return Step::Done;
            }
            Step::BulkCommit
        }
        Step::BulkCommit => {
            let shared = &mut world.shared;
            shared.tree.push(process);
            shared.history.push(process);
            Step::BulkTear
        }
        Step::BulkTear => {
            world.shared.tree_on_disk = world.shared.tree.len() as u8;
            world.shared.tear_segment(world.shared.active);
            Step::BulkBegin
        }
        Step::BulkBegin => {
            let (active, begin) = (world.shared.active, world.shared.tree.len() as u8);
            world.shared.begin_segment(active, begin);
            Step::BulkPublish
        }
        Step::BulkPublish => {
            world.shared.tail = world.shared.tree.len() as u8;
            world.shared.sequence = world.shared.tail;
            world.shared.tell_applied();
            world.shared.tree_writer = None;
            Step::Unlock { left: 0 }
        }
        _ => unreachable!("not a step of bulk"),
    }
}

/// Begin the other segment where the active one ends, if that has anything.
fn seal(world: &mut World, left: u8) -> Step {
    let shared = &mut world.shared;
    match world.flaw {
        Flaw::KeptTooLong => shared.tree_on_disk = shared.tree.len() as u8,
        Flaw::TreeUnsynced => shared.hint = shared.tree.len() as u8,
        _ => shared.tell_applied(),
    }
    if shared.is_other_live() && world.flaw != Flaw::SealedTwice {
        return Step::CheckpointUnlock { left };
    }
    if shared.tail <= shared.tree.len() as u8 && shared.has_found {
        // Sealed and applied: records that may stand after its end must not continue a chain.
        shared.tear_segment(shared.active);
        return Step::EndBeginAnew { left };
    }
    if shared.tail == shared.segments[shared.active].begin {
        // Nothing to seal.
        shared.writer = None;
        return if left == 0 { Step::Done } else { Step::CheckpointLock { left: left - 1 } };
    }
    shared.tear_segment(1 - shared.active);
    Step::EndBegin { left }
}

fn checkpoint(world: &mut World, process: u8, step: Step) -> Option<Step> {
    let next = match step {
        Step::CheckpointLock { left } => {
            if world.lock(process)? {
                Step::CheckpointRecover { left }
            } else {
                Step::WriteBegin { left }
            }
        }
        Step::CheckpointRecover { left } => {
            if world.recover() {
                Step::WriteBegin { left }
            } else {
                Step::CheckpointRecover { left }
            }
        }
        Step::WriteBegin { left } => seal(world, left),
        Step::EndBegin { left } => {
            let (other, tail) = (1 - world.shared.active, world.shared.tail);
            world.shared.begin_segment(other, tail);
            Step::Swap { left }
        }
        Step::EndBeginAnew { left } => {
            let (active, tail) = (world.shared.active, world.shared.tail);
            world.shared.begin_segment(active, tail);
            world.shared.has_found = false;
            Step::WriteBegin { left }
        }
        Step::Swap { left } => {
            world.shared.active = 1 - world.shared.active;
            world.shared.has_found = false;
            Step::CheckpointUnlock { left }
        }
        Step::CheckpointUnlock { left } => {
            world.shared.writer = None;
            Step::TreeLock { left }
        }
        Step::TreeLock { left } => {
            if !world.lock_tree(process) {
                return None;
            }
            Step::TreeCommit { left }
        }
        Step::TreeCommit { left } => {
            let shared = &mut world.shared;
            if shared.is_other_live() {
                let segment = shared.segments[1 - shared.active];
                assert_eq!(
                    usize::from(segment.begin),
                    shared.tree.len(),
                    "[C3] a hole before the log: {shared:?}"
                );
                shared.tree.extend(segment.chain().iter().map(|wal_record| wal_record.author));
            }
            Step::TreeTell { left }
        }
        Step::TreeTell { left } => {
            let shared = &mut world.shared;
            shared.tell_applied();
            shared.tree_writer = None;
            if left == 0 { Step::Done } else { Step::CheckpointLock { left: left - 1 } }
        }
        _ => unreachable!("not a checkpoint's step"),
    };
    Some(next)
}

/// [W7, C5] Every wait has a limit: after it, the process holds nothing and has done nothing.
fn give_up(world: &World, process: u8) -> World {
    let step = &world.steps[usize::from(process)];
    if let Step::AwaitSync { left, goal, writes } = *step {
        // [D4] The syncer may be stopped: then a process that has waited for too long syncs as
        // well.
        let mut next = world.clone();
        next.shared.syncer = Some(process);
        next.steps[usize::from(process)] = Step::BeginSync { left, goal, writes };
        return next;
    }
    let waits = matches!(
        step,
        Step::Lock { .. } | Step::CheckpointLock { .. } | Step::TreeLock { .. } | Step::TakeOver { .. }
    );
    assert!(waits, "{process} waits without a limit: {world:?}");
    let shared = &world.shared;
    let holds_nothing = shared.writer != Some(process) && shared.tree_writer != Some(process);
    assert!(holds_nothing, "{process} waits with a lock in its hands: {world:?}");
    let mut next = world.clone();
    next.steps[usize::from(process)] = Step::Done;
    next
}

fn writer(wal_records: u8) -> Step {
    Step::Lock { left: wal_records - 1, is_bulk: false }
}

/// A process that is asked to sync everything at intervals.
fn syncs(count: u8) -> Step {
    Step::AwaitSync { left: count, goal: 0, writes: false }
}

#[test]
fn nothing_acknowledged_is_lost() {
    let states = explore(vec![writer(2), writer(2), Step::CheckpointLock { left: 2 }], 2, Flaw::None);
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn one_of_two_takers_wins() {
    let states =
        explore(vec![writer(1), writer(1), writer(1), Step::CheckpointLock { left: 1 }], 3, Flaw::None);
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn a_reader_sees_a_prefix_with_all_that_was_acknowledged() {
    let states =
        explore(vec![writer(3), writer(1), Step::Load, Step::CheckpointLock { left: 3 }], 1, Flaw::None);
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn the_tree_and_the_log_never_leave_a_hole() {
    let checkpoints = Step::CheckpointLock { left: 1 };
    let bulk = Step::Lock { left: 0, is_bulk: true };
    let states = explore(vec![writer(2), bulk, checkpoints.clone(), checkpoints], 2, Flaw::None);
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn a_power_cut_leaves_a_prefix() {
    let states =
        explore(vec![writer(3), writer(1), Step::CheckpointLock { left: 2 }, syncs(1)], 1, Flaw::None);
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn full_loses_nothing_whoever_syncs() {
    let states = explore_full(vec![writer(2), writer(2), Step::CheckpointLock { left: 1 }], 1, Flaw::None);
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn whoever_keeps_its_tree_sees_no_hole() {
    let checkpoint = |left| Step::CheckpointLock { left };
    let checkpointer = Step::Keep(checkpointer::Checkpointer::new(3));
    let states = explore(vec![writer(3), checkpoint(0), checkpoint(0), checkpointer], 1, Flaw::None);
    assert!(states > 1000, "explored {states} states");
}

#[test]
fn a_file_that_was_just_made_is_on_the_disk_before_anything_is_said_to_be() {
    let bulk = Step::Lock { left: 0, is_bulk: true };
    let checkpoint = || Step::CheckpointLock { left: 0 };
    let mut states = 0;
    for (steps, is_full) in [
        (vec![writer(2), writer(1), checkpoint(), syncs(1)], false),
        (vec![writer(1), writer(1), checkpoint()], true),
        (vec![writer(1), bulk, checkpoint()], false),
    ] {
        states += explore_from(World::new(steps, 1, Flaw::None, is_full).with_unsynced_file());
    }
    states +=
        explore_from(taken_over(vec![writer(2), checkpoint()], 0, true, Flaw::None).with_unsynced_file());
    assert!(states > 1000, "explored {states} states");
}

/// Some working processes, then one that opens alone, and another one after it in case that one
/// dies.
fn taken_over(before: Vec<Step>, left: u8, is_full: bool, flaw: Flaw) -> World {
    let takeover = Step::TakeOver { stage: takeover::Stage::Sync, left };
    let steps = before.into_iter().chain([takeover.clone(), takeover]).collect();
    World { cuts_left: 1, ..World::new(steps, 2, flaw, is_full) }
}

#[test]
fn whoever_opens_alone_finds_all_that_was_acknowledged_whoever_died_in_that() {
    let checkpoint = || Step::CheckpointLock { left: 0 };
    let bulk = Step::Lock { left: 0, is_bulk: true };
    for (before, is_full) in [
        (vec![writer(2), checkpoint()], true),
        (vec![writer(3), checkpoint()], false),
        (vec![writer(1), bulk, checkpoint()], false),
    ] {
        let states = explore_from(taken_over(before, 0, is_full, Flaw::None));
        assert!(states > 1000, "explored {states} states");
    }
}
