//! How does the log get to the disk, once for all who wait for that?
//!
//! Whoever needs it there and finds nobody at it syncs all that is acknowledged, for everybody; who comes meanwhile waits for the
//! next one. In the log's head stand
//!
//! ```text
//! word 42  syncer    0, or the member that syncs
//!      43  round     syncs that have ended; who waits sleeps on its lower half
//!      44  covered   the position up to which the one that runs will do, or the greatest one: perhaps all
//!      45  arrived   how many have asked for a sync
//!      46  served    how many of them had when the last one began
//!      47  expected  how many are likely to have asked for the next one soon
//! ```
//!
//! None of them is believed: what is on the disk is said by `synced` alone, and it is right to sync at any moment. So whoever has
//! waited for too long, for one who died or was stopped, syncs for itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::wal::segments::{
    ARRIVED, COVERED, EXPECTED, FAILED, ROUND, SERVED, SYNCED, SYNCER, Segments, TAIL,
};

/// Why what is acknowledged may not be on the disk.
#[derive(Debug)]
pub(crate) enum SyncError {
    /// The system has just said so.
    Now(std::io::Error),
    /// It said so before, here or to another process.
    Before(std::io::Error),
}

/// Which sync failed. The log's word `failed` has these bits, and in its upper half the system's error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsynced {
    /// The log, or the name of a file: commits may be lost.
    Log = 1,
    /// The tree of a process that died: its pages must be written again before the log lets go of what they were written from.
    Tree = 2,
}

/// After so long who waits looks whether the one who syncs is alive.
const LOOK: Duration = Duration::from_millis(20);
/// After so long nobody waits for the living either: they may be stopped.
const PATIENCE: Duration = Duration::from_secs(1);
/// Nobody waits longer for others who are expected, nor longer than a share of what a sync takes.
const GATHERING_MAX: Duration = Duration::from_millis(1);
const GATHERING_SHARE: u64 = 2;
/// Nor for more than so many: while the disk writes for some of them, the others compute what it writes next, and to wait for all of them
/// would have it stand still.
const GATHERED_MAX: u64 = 4;
/// Who waits for a sync stays awake for as long as so many take, unless each of them takes longer than this.
const LINGERING_SHARE: u32 = 2;
const LINGERING_MAX: Duration = Duration::from_micros(250);
/// What is known of a sync that has yet to begin.
const PERHAPS_ALL: u64 = u64::MAX;

/// What a sync is to leave to the system to find out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// Which pages of the file were written to: the first page says then how far it goes.
    Whole,
    /// Nothing, if possible: what commits need.
    Commits,
}

/// How long a sync takes, in nanoseconds, as far as this process knows.
#[derive(Default)]
pub(super) struct Pace(AtomicU64);

impl Segments {
    /// [D1] Have all that is acknowledged now on the disk.
    pub(crate) fn sync(&self, extent: Extent) -> Result<(), SyncError> {
        // Also where the tree alone has everything, which says nothing of its name.
        self.space().sync_names().map_err(|error| self.fail(error))?;
        let goal = self.load(TAIL);
        if self.is_synced(goal) {
            return Ok(());
        }
        self.is_synced_often.store(extent == Extent::Commits, Ordering::Relaxed);
        let arrived = self.word(ARRIVED).fetch_add(1, Ordering::AcqRel) + 1;
        let own = self.space().member();
        let syncer = self.word(SYNCER);
        let mut waiting: Option<(u64, Instant)> = None;
        loop {
            // Ahead of all else: a round that ends meanwhile is not slept through.
            let round = self.word(ROUND).load(Ordering::Acquire);
            if self.is_synced(goal) {
                return Ok(());
            }
            if self.has_failed() {
                return Err(SyncError::Before(self.failure()));
            }
            let Err(owner) = syncer.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) else {
                return self.sync_for_all(extent, arrived);
            };
            let since = match waiting {
                Some((since_round, since)) if since_round == round => since,
                _ => Instant::now(),
            };
            waiting = Some((round, since));
            let waited = since.elapsed();
            let is_over = waited >= PATIENCE || waited >= LOOK && self.space().if_gone(owner, &mut || ());
            if is_over && syncer.compare_exchange(owner, own, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return self.sync_for_all(extent, arrived);
            }
            if self.is_over_soon(round) {
                continue;
            }
            let is_covered = goal <= self.word(COVERED).load(Ordering::Acquire);
            let channel = if is_covered { round } else { round + 1 };
            self.space().wait(ROUND, round as u32, channel as u32, LOOK);
        }
    }

    /// Give way to others for as long as a sync may take; says whether one has ended meanwhile, or nobody syncs. To be woken takes as long
    /// as a sync of a quick disk, and the disk would wait for whoever is the next to sync.
    fn is_over_soon(&self, round: u64) -> bool {
        let pace = Duration::from_nanos(self.pace.0.load(Ordering::Relaxed));
        if pace > LINGERING_MAX {
            return false;
        }
        let (began, limit) = (Instant::now(), pace * LINGERING_SHARE);
        while began.elapsed() < limit {
            std::thread::yield_now();
            let has_ended = self.word(ROUND).load(Ordering::Acquire) != round;
            if has_ended || self.word(SYNCER).load(Ordering::Relaxed) == 0 {
                return true;
            }
        }
        false
    }

    /// Have the disk begin with the WAL record that was just appended at a position, if this process waits for the disk commit by commit, and nobody
    /// else does or is expected to: the sync is this WAL record's then. The rest of the commit is computed while the disk writes, and costs nothing.
    /// Where others come it would only be one more write of a page that they write to as well.
    pub(crate) fn begin_sync(&self, begin: u64, end: u64) {
        let is_alone = self.load(SYNCER) == 0 && self.load(ARRIVED) + 1 >= self.load(EXPECTED);
        let is_last = self.is_synced_often.load(Ordering::Relaxed) && self.is_synced(begin);
        if is_alone
            && is_last
            && let Some(words) = self.words_to_sync(end)
        {
            self.space().begin_sync(words);
        }
    }

    /// Sync all that is acknowledged, and let the others know. For whoever has the word of the syncer.
    fn sync_for_all(&self, extent: Extent, arrived: u64) -> Result<(), SyncError> {
        // Where the one before has died, its word still stands.
        self.word(COVERED).store(PERHAPS_ALL, Ordering::Release);
        self.gather();
        let served = self.word(SERVED).swap(self.load(ARRIVED).max(arrived), Ordering::AcqRel);
        let tail = self.word(TAIL).load(Ordering::Acquire);
        self.word(COVERED).store(tail, Ordering::Release);
        let synced = self.sync_until(extent, tail);
        // Those who came with it, and those who came since, are those who will be there next time.
        let both = self.load(ARRIVED).saturating_sub(served);
        self.store(EXPECTED, self.load(SERVED).saturating_add(both));
        self.word(COVERED).store(PERHAPS_ALL, Ordering::Release);
        self.leave_syncer();
        let round = self.word(ROUND).fetch_add(1, Ordering::AcqRel);
        self.space().wake(ROUND, round as u32, u32::MAX);
        // One of those who came too late is the next to sync, and the others sleep on until it has.
        self.space().wake(ROUND, (round + 1) as u32, 1);
        synced
    }

    /// Wait a moment for others who are likely to come, if they are few: one sync then serves twice as many.
    fn gather(&self) {
        let expected = self.load(EXPECTED);
        if self.load(ARRIVED) >= expected || expected.saturating_sub(self.load(SERVED)) > GATHERED_MAX {
            return;
        }
        let pace = Duration::from_nanos(self.pace.0.load(Ordering::Relaxed) / GATHERING_SHARE);
        let (began, limit) = (Instant::now(), pace.min(GATHERING_MAX));
        while self.word(ARRIVED).load(Ordering::Acquire) < expected && began.elapsed() < limit {
            std::thread::yield_now();
        }
    }

    /// Sync what is acknowledged up to the tail.
    fn sync_until(&self, extent: Extent, tail: u64) -> Result<(), SyncError> {
        if self.has_failed() {
            return Err(SyncError::Before(self.failure()));
        }
        let began = Instant::now();
        let words = self.words_to_sync(tail).filter(|_| extent == Extent::Commits);
        let done = match words {
            Some(words) => self.space().sync_words(words),
            None => self.space().sync(),
        };
        done.map_err(|error| self.fail(error))?;
        if self.has_failed() {
            // Perhaps with pages of ours, and the system has told another process.
            return Err(SyncError::Before(self.failure()));
        }
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.pace.0.store(took, Ordering::Relaxed);
        self.word(SYNCED).fetch_max(tail, Ordering::AcqRel);
        Ok(())
    }

    /// Nobody can know any more what the disk has.
    fn fail(&self, error: std::io::Error) -> SyncError {
        self.note_failure(Unsynced::Log, &error);
        SyncError::Now(error)
    }

    /// Tell all processes that a sync failed, and why.
    pub(crate) fn note_failure(&self, what: Unsynced, error: &std::io::Error) {
        let code = error.raw_os_error().and_then(|code| u64::try_from(code).ok()).unwrap_or(0);
        let noted = what as u64 | code << 32;
        // The first reason is kept: those that follow are mostly its consequences.
        if self.word(FAILED).compare_exchange(0, noted, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            self.word(FAILED).fetch_or(what as u64, Ordering::AcqRel);
        }
    }

    /// Why the first sync failed, if one did.
    pub(crate) fn failure(&self) -> std::io::Error {
        match i32::try_from(self.word(FAILED).load(Ordering::Acquire) >> 32) {
            Ok(code) if code != 0 => std::io::Error::from_raw_os_error(code),
            _ => std::io::Error::other("an earlier sync failed"),
        }
    }

    /// Whether a commit that this process has made is not known to be on the disk.
    pub(crate) fn has_unsynced_of_own(&self) -> bool {
        self.own_end.load(Ordering::Relaxed) > self.word(SYNCED).load(Ordering::Acquire)
    }

    /// Words among which are all that are perhaps not on the disk, and needed up to the tail; `None` where that is best left to the system to
    /// find out.
    ///
    /// Mostly the last WAL record or two of a segment of which the head, and all before them, was synced already. Where they lie in two pieces, so
    /// does what is between: a piece of the other segment, which nobody writes to meanwhile. What the log's first page
    /// says is not believed after a power cut, and not needed.
    fn words_to_sync(&self, tail: u64) -> Option<std::ops::Range<usize>> {
        let synced = self.word(SYNCED).load(Ordering::Acquire);
        let segment = self.active();
        let head = self.head(segment)?;
        // Strictly behind the begin: so it was synced since the segment was begun.
        if synced <= head.begin || tail <= synced || tail - head.begin > self.room() {
            return None;
        }
        let words = [synced, tail].map(|position| (position - head.begin) as usize / 8);
        let [first, end] = words;
        let mut parts = self.parts(segment, first..end);
        let first = parts.next()?;
        let end = parts.last().map_or(first.end, |last| last.end);
        Some(first.start..end)
    }

    fn is_synced(&self, goal: u64) -> bool {
        self.word(SYNCED).load(Ordering::Acquire) >= goal
    }

    /// Say that this member does not sync: if its number stands there, it was another's who died.
    pub(crate) fn leave_syncer(&self) {
        let own = self.space().member();
        let _ = self.word(SYNCER).compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Nobody syncs, and nobody is expected to: for whoever is alone.
    pub(super) fn begin_syncing(&self) {
        for index in [SYNCER, ROUND, ARRIVED, SERVED, EXPECTED] {
            self.store(index, 0);
        }
        self.store(COVERED, PERHAPS_ALL);
    }

    /// [D3] Whether a sync failed, in whichever process: what was not on the disk then may never be, and nobody is told of it twice.
    pub(crate) fn has_failed(&self) -> bool {
        self.word(FAILED).load(Ordering::Acquire) != 0
    }

    /// Whether the tree of a process that died could not be synced: its pages may be in memory alone, though the system takes them for
    /// written.
    pub(crate) fn has_failed_tree(&self) -> bool {
        self.word(FAILED).load(Ordering::Acquire) & Unsynced::Tree as u64 != 0
    }

    /// Forget that the tree could not be synced: for a process that is alone, and has written its pages again.
    pub(crate) fn forget_failed_tree(&self) {
        self.word(FAILED).fetch_and(!(Unsynced::Tree as u64), Ordering::AcqRel);
        if self.load(FAILED) & u64::from(u32::MAX) == 0 {
            self.store(FAILED, 0);
        }
    }

    /// Forget that a sync failed: for whoever is alone, and has written everything into the tree.
    pub(crate) fn forget_failure(&self) {
        self.store(FAILED, 0);
    }

    /// As `sync`, for a process that has just left the log to the others: of what it finds it stores a failure alone, which
    /// is true whoever has the log by now.
    pub(crate) fn sync_in_leaving(&self) -> std::io::Result<()> {
        if self.load(SYNCED) >= self.load(TAIL) {
            return Ok(());
        }
        let synced = self.space().sync_names().and_then(|()| self.space().sync());
        synced.inspect_err(|error| self.note_failure(Unsynced::Log, error))
    }
}

#[cfg(test)]
mod tests {
    use std::ops::Range;
    use std::sync::Arc;

    use super::*;
    use crate::engine::memory::MemoryEngine;
    use crate::engine::{Engine, Tree};
    use crate::wal::engine::{LoggedEngine, Opened};
    use crate::wal::space::MemorySpace;
    use crate::wal::space::noted::{Asked, Noted};

    /// What was asked for since the last look, but for syncs of the whole log: the checkpointer may ask for one at any time.
    fn asked_of_parts(asked: &Asked) -> Vec<(&'static str, Range<usize>)> {
        let mut all = std::mem::take(&mut *asked.lock().unwrap());
        all.retain(|(what, _)| *what != "sync of all");
        all
    }

    #[test]
    fn the_disk_begins_with_a_commit_that_is_waited_for_by_itself() {
        let asked = Asked::default();
        let space = MemorySpace::new(crate::wal::segments::words_for(1 << 16));
        let (tree, space) = (Box::new(MemoryEngine::new()), Box::new(Noted(space, Arc::clone(&asked))));
        let opened = Opened { is_alone: true, joins: true, inode: 1 };
        let (engine, _) = LoggedEngine::open(tree, space, [0; 16], opened).unwrap();
        let commit = || {
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, b"key", &[b"row"]).unwrap();
            txn.commit().unwrap();
            asked_of_parts(&asked)
        };
        assert_eq!(commit(), [], "nobody has waited for the disk yet");
        engine.sync().unwrap();
        for _ in 0..3 {
            let begun = commit();
            engine.sync().unwrap();
            let synced = asked_of_parts(&asked);
            assert_eq!((begun.len(), synced.len()), (1, 1));
            assert_eq!((begun[0].0, synced[0].0, &begun[0].1), ("begin", "sync", &synced[0].1));
        }
        assert_eq!(commit().len(), 1);
        assert_eq!(commit(), [], "one ahead of it is not on the disk");
        engine.sync().unwrap();
        engine.shared.segments.store(EXPECTED, engine.shared.segments.load(ARRIVED) + 2);
        assert_eq!(
            commit().iter().filter(|(what, _)| *what == "begin").count(),
            0,
            "another one is expected"
        );
    }

    #[test]
    fn a_commit_that_begins_a_piece_has_the_two_synced_and_no_more_of_the_file() {
        const AREA_SIZE: usize = 64 << 16;
        let asked = Asked::default();
        let space = MemorySpace::new(crate::wal::segments::words_for(AREA_SIZE));
        let (tree, space) = (Box::new(MemoryEngine::new()), Box::new(Noted(space, Arc::clone(&asked))));
        let opened = Opened { is_alone: true, joins: true, inode: 1 };
        let (engine, _) = LoggedEngine::open(tree, space, [0; 16], opened).unwrap();
        let piece_size = 64 << 10;
        let piece_of = |word: usize| (word - crate::wal::segments::words_for(0)) * 8 / piece_size;
        let mut pieces = Vec::new();
        for number in 0..6_u8 {
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, &[number], &[&vec![7; 40 << 10]]).unwrap();
            txn.commit().unwrap();
            engine.sync().unwrap();
            let asked = asked_of_parts(&asked);
            let synced = asked.into_iter().filter(|(what, _)| *what == "sync");
            pieces.push(
                synced.map(|(_, words)| (piece_of(words.start), piece_of(words.end - 1))).collect::<Vec<_>>(),
            );
        }
        // The first is of a new segment, of which the head is not on the disk yet. Every second piece is of the other segment.
        let wanted = [vec![], vec![(0, 2)], vec![(2, 2)], vec![(2, 4)], vec![(4, 6)], vec![(6, 6)]];
        assert_eq!(pieces, wanted);
    }
}
