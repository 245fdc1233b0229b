//! Group commit: one sync of the log serves all that wait for the disk.
//!
//! A process that needs its commits on the disk, and finds no sync running, syncs everything that
//! is acknowledged, for all waiters. Callers that come later wait for the next sync. The words in
//! the log's head:
//!
//! ```text
//! word 42  syncer    0, or the member that syncs
//!      43  round     number of syncs that have ended; waiters sleep on its lower half
//!      44  covered   the position that the running sync covers, or u64::MAX: perhaps everything
//!      45  arrived   number of calls that have asked for a sync
//!      46  served    `arrived` when the last sync began
//!      47  expected  the likely value of `arrived` at the next sync
//! ```
//!
//! These words are hints: `synced` alone tells what is on the disk, and a sync is right at any
//! moment. So a process that has waited for too long, for a syncer that died or was stopped, syncs
//! by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::wal::segments::{
    ARRIVED, COVERED, EXPECTED, FAILED, ROUND, SERVED, SYNCED, SYNCER, Segments, TAIL,
};

/// Why acknowledged commits may not be on the disk.
#[derive(Debug)]
pub(crate) enum SyncError {
    /// A sync of this call failed.
    Now(std::io::Error),
    /// An earlier sync failed, in this process or another one.
    Before(std::io::Error),
}

/// Which sync failed. The log's word `failed` has these bits, and the system's error number in its
/// upper half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unsynced {
    /// The log, or the name of a file: commits may be lost.
    Log = 1,
    /// The tree, left by a process that died. Its pages must be written again before the log
    /// discards the records that they were written from.
    Tree = 2,
}

/// After this time a waiter checks whether the syncer is alive.
const LOOK: Duration = Duration::from_millis(20);
/// After this time a waiter stops waiting even for a living syncer, which may be stopped.
const PATIENCE: Duration = Duration::from_secs(1);
/// The longest time that a syncer waits for expected callers; also limited to a share of a sync's
/// time.
const GATHERING_MAX: Duration = Duration::from_millis(1);
const GATHERING_SHARE: u64 = 2;
/// Do not wait if more than this many callers are expected. While the disk writes for some of them
/// the others compute their next commit; waiting for all would leave the disk idle.
const GATHERED_MAX: u64 = 4;
/// How long a waiter yields before it sleeps, in sync times, unless a sync takes longer than the
/// maximum.
const LINGERING_SHARE: u32 = 2;
const LINGERING_MAX: Duration = Duration::from_micros(250);
/// `covered` before a sync has begun.
const PERHAPS_ALL: u64 = u64::MAX;

/// How much of the log a sync covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SyncScope {
    /// All pages of the file that were written to, found by the system. Afterwards the first page
    /// tells how far the log goes.
    Whole,
    /// Only what commits need, if possible.
    Commits,
}

/// How long a sync takes, in nanoseconds, as last measured by this process.
#[derive(Default)]
pub(super) struct Pace(AtomicU64);

impl Segments {
    /// [D1] Sync all that is acknowledged now to the disk.
    pub(crate) fn sync(&self, scope: SyncScope) -> Result<(), SyncError> {
        // Needed even if the tree has everything: a synced tree says nothing about the file's name.
        self.space().sync_names().map_err(|error| self.fail(error))?;
        let goal = self.load(TAIL);
        if self.is_synced(goal) {
            return Ok(());
        }
        self.is_synced_often.store(scope == SyncScope::Commits, Ordering::Relaxed);
        let arrived = self.word(ARRIVED).fetch_add(1, Ordering::AcqRel) + 1;
        let own = self.space().member();
        let syncer = self.word(SYNCER);
        let mut waiting: Option<(u64, Instant)> = None;
        loop {
            // Load this first, so that a round that ends meanwhile is not slept through.
            let round = self.word(ROUND).load(Ordering::Acquire);
            if self.is_synced(goal) {
                return Ok(());
            }
            if self.has_failed() {
                return Err(SyncError::Before(self.failure()));
            }
            let Err(owner) = syncer.compare_exchange(0, own, Ordering::AcqRel, Ordering::Acquire) else {
                return self.sync_for_all(scope, arrived);
            };
            let since = match waiting {
                Some((since_round, since)) if since_round == round => since,
                _ => Instant::now(),
            };
            waiting = Some((round, since));
            let waited = since.elapsed();
            let is_over = waited >= PATIENCE || waited >= LOOK && self.space().if_gone(owner, &mut || ());
            if is_over && syncer.compare_exchange(owner, own, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                return self.sync_for_all(scope, arrived);
            }
            if self.is_over_soon(round) {
                continue;
            }
            let is_covered = goal <= self.word(COVERED).load(Ordering::Acquire);
            let channel = if is_covered { round } else { round + 1 };
            self.space().wait(ROUND, round as u32, channel as u32, LOOK);
        }
    }

    /// Yield for about as long as a sync takes. True if a sync has ended meanwhile, or none is
    /// running. Waking a thread takes as long as a sync of a quick disk, which would be idle until
    /// the next syncer is awake.
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

    /// Start to write the WAL record that was just appended to the disk, if this process waits for
    /// the disk after each commit and no other does or is expected to. The sync is then for this
    /// WAL record alone, and the rest of the commit is computed while the disk writes. With other
    /// writers it would only write a page once more that they also write to.
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

    /// Sync all that is acknowledged, and wake the waiters. The caller holds the syncer word.
    fn sync_for_all(&self, scope: SyncScope, arrived: u64) -> Result<(), SyncError> {
        // If the previous syncer died, its value still stands there.
        self.word(COVERED).store(PERHAPS_ALL, Ordering::Release);
        self.gather();
        let served = self.word(SERVED).swap(self.load(ARRIVED).max(arrived), Ordering::AcqRel);
        let tail = self.word(TAIL).load(Ordering::Acquire);
        self.word(COVERED).store(tail, Ordering::Release);
        let synced = self.sync_until(scope, tail);
        // The callers of this sync, and those that came since, will probably be there next time.
        let both = self.load(ARRIVED).saturating_sub(served);
        self.store(EXPECTED, self.load(SERVED).saturating_add(both));
        self.word(COVERED).store(PERHAPS_ALL, Ordering::Release);
        self.leave_syncer();
        let round = self.word(ROUND).fetch_add(1, Ordering::AcqRel);
        self.space().wake(ROUND, round as u32, u32::MAX);
        // One of those that came too late is the next to sync. The others sleep until it has.
        self.space().wake(ROUND, (round + 1) as u32, 1);
        synced
    }

    /// Wait a moment for callers that are expected, if they are few: one sync then serves twice as
    /// many.
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
    fn sync_until(&self, scope: SyncScope, tail: u64) -> Result<(), SyncError> {
        if self.has_failed() {
            return Err(SyncError::Before(self.failure()));
        }
        let began = Instant::now();
        if let Some(extents) = self.extents().filter(|_| self.placed() > self.load(SYNCED)) {
            // The large values of WAL records that are not on the disk yet.
            extents.sync().map_err(|error| self.fail(error))?;
        }
        let words = self.words_to_sync(tail).filter(|_| scope == SyncScope::Commits);
        let done = match words {
            Some(words) => self.space().sync_words(words),
            None => self.space().sync(),
        };
        done.map_err(|error| self.fail(error))?;
        if self.has_failed() {
            // That sync may have covered pages of ours, with the error reported to another process.
            return Err(SyncError::Before(self.failure()));
        }
        let took = u64::try_from(began.elapsed().as_nanos()).unwrap_or(u64::MAX);
        self.pace.0.store(took, Ordering::Relaxed);
        self.word(SYNCED).fetch_max(tail, Ordering::AcqRel);
        Ok(())
    }

    /// Sync the head, before a commit of the tree that has everything up to the tail. So a log that
    /// ends before its tree is one of another time, and not what a power cut has left. If it fails,
    /// that is noted, and the tree can be committed all the same.
    pub(crate) fn sync_head(&self) {
        const WORDS: usize = 1024;
        if self.has_failed() {
            return;
        }
        // The name as well, or an earlier log could be there under it.
        let synced = self.space().sync_names().and_then(|()| self.space().sync_words(0..WORDS));
        if let Err(error) = synced {
            self.note_failure(Unsynced::Log, &error);
        }
    }

    /// Note a failed sync: what is on the disk is no longer known.
    fn fail(&self, error: std::io::Error) -> SyncError {
        self.note_failure(Unsynced::Log, &error);
        SyncError::Now(error)
    }

    /// Store for all processes that a sync failed, and why.
    pub(crate) fn note_failure(&self, what: Unsynced, error: &std::io::Error) {
        let code = error.raw_os_error().and_then(|code| u64::try_from(code).ok()).unwrap_or(0);
        let noted = what as u64 | code << 32;
        // Keep the first reason: later failures are mostly its consequences.
        if self.word(FAILED).compare_exchange(0, noted, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            self.word(FAILED).fetch_or(what as u64, Ordering::AcqRel);
        }
    }

    /// The error of the first failed sync.
    pub(crate) fn failure(&self) -> std::io::Error {
        match i32::try_from(self.word(FAILED).load(Ordering::Acquire) >> 32) {
            Ok(code) if code != 0 => std::io::Error::from_raw_os_error(code),
            _ => std::io::Error::other("an earlier sync failed"),
        }
    }

    /// Whether a commit of this process may not be on the disk yet.
    pub(crate) fn has_unsynced_of_own(&self) -> bool {
        self.own_end.load(Ordering::Relaxed) > self.word(SYNCED).load(Ordering::Acquire)
    }

    /// The range of words that has to be written to the disk for everything up to the tail. `None`
    /// if the system should find out the changed pages by itself.
    ///
    /// Mostly these are the last WAL record or two of a segment whose head and earlier records are
    /// synced already. If they lie in two chunks, the range includes the chunk between, which
    /// belongs to the other segment; no process writes to that meanwhile. The log's first page is
    /// not included: after a power cut it is neither trusted nor needed.
    fn words_to_sync(&self, tail: u64) -> Option<std::ops::Range<usize>> {
        let synced = self.word(SYNCED).load(Ordering::Acquire);
        let segment = self.active();
        let head = self.head(segment)?;
        // Strictly after the begin, so the log was synced since the segment was begun.
        if synced <= head.begin || tail <= synced || tail - head.begin > self.capacity() {
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

    /// Clear the syncer word if it has this member's number: a dead member with the same number
    /// left it.
    pub(crate) fn leave_syncer(&self) {
        let own = self.space().member();
        let _ = self.word(SYNCER).compare_exchange(own, 0, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Reset the words of this module. The caller is alone with the log.
    pub(super) fn begin_syncing(&self) {
        for index in [SYNCER, ROUND, ARRIVED, SERVED, EXPECTED] {
            self.store(index, 0);
        }
        self.store(COVERED, PERHAPS_ALL);
    }

    /// [D3] Whether a sync failed, in any process. What was not on the disk then may never be, and
    /// the system does not report it twice.
    pub(crate) fn has_failed(&self) -> bool {
        self.word(FAILED).load(Ordering::Acquire) != 0
    }

    /// Whether the tree of a process that died could not be synced. Its pages may be in memory
    /// alone, although the system considers them written.
    pub(crate) fn has_failed_tree(&self) -> bool {
        self.word(FAILED).load(Ordering::Acquire) & Unsynced::Tree as u64 != 0
    }

    /// Clear the failure of the tree's sync. The caller is alone and has written the tree's pages
    /// again.
    pub(crate) fn forget_failed_tree(&self) {
        self.word(FAILED).fetch_and(!(Unsynced::Tree as u64), Ordering::AcqRel);
        if self.load(FAILED) & u64::from(u32::MAX) == 0 {
            self.store(FAILED, 0);
        }
    }

    /// Clear all failures. The caller is alone and has written everything into the tree.
    pub(crate) fn forget_failure(&self) {
        self.store(FAILED, 0);
    }

    /// As `sync`, for a process that has just closed a log that other processes still have open. It
    /// stores nothing but a failure, which holds for each of them.
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

    /// The calls since the last look, without syncs of the whole log: the checkpointer may make one
    /// at any time.
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
    fn a_commit_that_begins_a_chunk_has_the_two_synced_and_no_more_of_the_file() {
        const SEGMENT_SIZE: usize = 64 << 16;
        let asked = Asked::default();
        let space = MemorySpace::new(crate::wal::segments::words_for(SEGMENT_SIZE));
        let (tree, space) = (Box::new(MemoryEngine::new()), Box::new(Noted(space, Arc::clone(&asked))));
        let opened = Opened { is_alone: true, joins: true, inode: 1 };
        let (engine, _) = LoggedEngine::open(tree, space, [0; 16], opened).unwrap();
        let chunk_size = 64 << 10;
        let chunk_of = |word: usize| (word - crate::wal::segments::words_for(0)) * 8 / chunk_size;
        let mut chunks = Vec::new();
        for number in 0..6_u8 {
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, &[number], &[&vec![7; 40 << 10]]).unwrap();
            txn.commit().unwrap();
            engine.sync().unwrap();
            let asked = asked_of_parts(&asked);
            let synced = asked.into_iter().filter(|(what, _)| *what == "sync");
            chunks.push(
                synced.map(|(_, words)| (chunk_of(words.start), chunk_of(words.end - 1))).collect::<Vec<_>>(),
            );
        }
        // The first WAL record begins a segment, whose head is not on the disk yet. Every second
        // chunk belongs to the other segment.
        let wanted = [vec![], vec![(0, 2)], vec![(2, 2)], vec![(2, 4)], vec![(4, 6)], vec![(6, 6)]];
        assert_eq!(chunks, wanted);
    }
}
