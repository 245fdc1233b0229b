//! Makes the file shorter while it is in use.
//!
//! First, the entries of leaves that are not full move into fewer leaves. Then a round notes which
//! pages lie after the place where the file could end, moves them in steps to free pages, and cuts
//! off the free pages at the end of the file. Each step is a commit of the tree that changes no
//! entry, so after a crash the file is as the last step left it. Writers go on: they wait for a
//! step only where they would wait for a checkpoint.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::engine::moves::{Fullness, TailEntry, Underfilled};
use crate::engine::{BusyLock, EngineError, Tree, WriteTxn};
use crate::sys::steps::{Step, reached};
use crate::wal::checkpoint::{Done, in_a_while};
use crate::wal::checkpointer::rests_soon;
use crate::wal::engine::Shared;
use crate::wal::refill::commit_as_it_is;

/// Pages that one step moves: the tree is not locked for long, and a commit syncs a few MB.
const STEP_PAGES: usize = 1 << 10;
/// The largest number of entries that a round notes.
const ROUND_PAGES: usize = 1 << 18;
/// Between two steps, so that other threads and processes get the tree lock.
const PAUSE: Duration = Duration::from_millis(1);
/// The work ends after this many rounds in turn that have not made the file shorter.
const IDLE_ROUNDS: u32 = 4;
/// Between two tries while other processes read older versions of the tree. An idle process keeps
/// the version that it read last for a second.
const HELD: Duration = Duration::from_millis(400);
/// Time that readers get to release an older version, and the interval between looks at them. A
/// snapshot of this age is one that a program keeps.
const LET_GO: Duration = Duration::from_millis(1600);
const LET_GO_TICK: Duration = Duration::from_millis(50);
/// Free pages that stay in the file for the next commits: one page in `SPARE` of the file, and
/// `SPARE_MIN` pages.
const SPARE: u64 = 64;
const SPARE_MIN: u64 = 64;

/// A file is made shorter without being asked if it has this size, and more than this share of it
/// is free or stands empty in leaves.
const WORTH_SIZE: u64 = 16 << 20;
const WORTH_SHARE: u64 = 5;

/// Stretches of leaves that one step fills, and that one round knows.
const STEP_STRETCHES: usize = 32;
const ROUND_STRETCHES: usize = 1 << 16;
/// This process itself keeps the tree of a step or two ago.
const READER_LAG_MAX: u64 = 8;

/// What a step does in its transaction. Returns how many entries it has moved.
type Work<'w> = &'w mut dyn FnMut(&mut dyn WriteTxn) -> Result<usize, EngineError>;

/// What a round has done.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Round {
    /// It has moved pages, unless snapshots need the free ones.
    Moved,
    /// The file is as short as it should be.
    ShortEnough,
    /// `go_on` returned false.
    Stopped,
}

impl Shared {
    /// Make the file shorter until it has few free pages, as far as snapshots permit. `go_on` is
    /// called with the number of pages that the file has and the number that it should have.
    /// Returns false if `go_on` has returned false.
    pub(crate) fn compact_online(
        self: &Arc<Self>,
        patience: Duration,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool, EngineError> {
        // What a dead process has left in the log is verified and applied first.
        let done = self.checkpoint_all(patience, patience, &mut || go_on(0, 0));
        match done? {
            Done::Applied(_) | Done::Nothing => {}
            Done::InTheWay(lock) => return Err(self.in_the_way(lock, patience)),
            Done::Stopped => return Ok(false),
        }
        self.compact_rounds(patience, go_on)
    }

    /// Make the file shorter if enough of it is free to be worth it. Does nothing, and returns
    /// false, if it is not. The tree has nearly everything, and no other process is writing
    /// it.
    pub(crate) fn compact_if_worth(
        self: &Arc<Self>,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, EngineError> {
        let usage = self.tree.usage()?;
        let free = usage.free_pages.saturating_sub(usage.pinned_pages) * usage.page_size;
        let size = usage.pages * usage.page_size;
        let unfilled = if usage.oldest_reader.lag == 0 { self.unfilled()? } else { 0 };
        let is_worth =
            (size >= WORTH_SIZE || rests_soon()) && free.saturating_add(unfilled) > size / WORTH_SHARE;
        if is_worth {
            reached(Step::AutomaticBegins);
            self.compact_rounds(Duration::ZERO, &mut |_, _| go_on())?;
        }
        Ok(is_worth)
    }

    /// About how many bytes of leaves have nothing in them, if these leaves can be filled. If large
    /// values have many of the file's pages, they cannot: the single pages that become free in many
    /// places would take the room in which the last large values could lie.
    fn unfilled(&self) -> Result<u64, EngineError> {
        const LARGE_SHARE: u64 = 20;
        let read = self.tree.begin_read()?;
        let mut all = Fullness::default();
        for tree in Tree::ALL {
            let Fullness { leaf_pages, large_pages, unfilled } = read.fullness(tree)?;
            all.leaf_pages = all.leaf_pages.saturating_add(leaf_pages);
            all.large_pages = all.large_pages.saturating_add(large_pages);
            all.unfilled = all.unfilled.saturating_add(unfilled);
        }
        Ok(if all.large_pages > all.leaf_pages / LARGE_SHARE { 0 } else { all.unfilled })
    }

    /// Move the entries of leaves that are not full into fewer leaves. Returns false if `go_on`
    /// did. Ends when a snapshot needs the pages as they were: the file would grow.
    fn fill_leaves(
        self: &Arc<Self>,
        patience: Duration,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool, EngineError> {
        if self.is_unproven.load(Ordering::Relaxed) || self.unfilled()? == 0 {
            return Ok(true);
        }
        for tree in Tree::ALL {
            let read = self.tree.begin_read()?;
            let underfilled = read.underfilled(tree, ROUND_STRETCHES)?;
            drop(read);
            for step in underfilled.chunks(STEP_STRETCHES) {
                match self.readers_follow(READER_LAG_MAX, go_on)? {
                    Some(true) => {}
                    Some(false) => return Ok(true),
                    None => return Ok(false),
                }
                let usage = self.tree.usage()?;
                if !go_on(usage.pages, usage.pages.saturating_sub(usage.free_pages)) {
                    return Ok(false);
                }
                self.step(patience, &mut |txn| fill(txn, step))?;
                std::thread::sleep(PAUSE);
            }
        }
        Ok(true)
    }

    /// Whether all readers have the newest version of the tree, or one of the `lag_max` versions
    /// before it, now or a little later. `None` if `go_on` returned false meanwhile.
    fn readers_follow(
        &self,
        lag_max: u64,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Option<bool>, EngineError> {
        let Some(file) = self.tree.tree_file() else { return Ok(Some(true)) };
        let until = in_a_while(LET_GO);
        loop {
            // This process itself may have read the version before.
            self.release();
            let oldest = file.oldest_reader()?;
            if oldest.lag <= lag_max {
                return Ok(Some(true));
            }
            if oldest.age >= LET_GO || Instant::now() >= until {
                return Ok(Some(false));
            }
            let usage = self.tree.usage()?;
            if !go_on(usage.pages, usage.pages.saturating_sub(usage.free_pages)) {
                return Ok(None);
            }
            std::thread::sleep(LET_GO_TICK);
        }
    }

    fn compact_rounds(
        self: &Arc<Self>,
        patience: Duration,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<bool, EngineError> {
        self.prove_tree(patience)?;
        match self.readers_follow(0, go_on)? {
            Some(true) if self.fill_leaves(patience, go_on)? => {}
            Some(true) | None => return Ok(false),
            Some(false) => {}
        }
        let mut idle = 0;
        let mut fewest = u64::MAX;
        while idle < IDLE_ROUNDS {
            // The reserve for large values lies at the end of the file, where its pages keep it
            // long.
            self.drop_reserve()?;
            match self.compact_round(patience, go_on)? {
                Round::Moved => {}
                Round::ShortEnough => break,
                Round::Stopped => return Ok(false),
            }
            let usage = self.tree.usage()?;
            idle = if usage.pages < fewest { 0 } else { idle + 1 };
            fewest = fewest.min(usage.pages);
            if idle > 0 && usage.oldest_reader.lag > 0 {
                std::thread::sleep(HELD);
            }
        }
        // To begin a transaction is to give back what the file has after its end.
        self.begin_tree(in_a_while(patience)).map(|_| true)
    }

    /// Verify the list of free pages and all branch pages. A commit uses a few of them, and LMDB
    /// believes these; this work uses all, so that damage anywhere would be met, or a page that is
    /// in use be overwritten because it is listed as free.
    fn prove_tree(self: &Arc<Self>, patience: Duration) -> Result<(), EngineError> {
        let Some((_lock, _txn)) = self.begin_tree(in_a_while(patience))? else {
            return Err(self.in_the_way(BusyLock::TreeForWork, patience));
        };
        self.prove_pages(&mut std::iter::empty())
    }

    /// One round.
    pub(crate) fn compact_round(
        self: &Arc<Self>,
        patience: Duration,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Round, EngineError> {
        let usage = self.tree.usage()?;
        let in_use = usage.pages.saturating_sub(usage.free_pages);
        let wanted = in_use + (in_use / SPARE).max(SPARE_MIN);
        if !go_on(usage.pages, wanted) {
            return Ok(Round::Stopped);
        }
        if usage.pages <= wanted {
            return Ok(Round::ShortEnough);
        }
        let mut tail = Vec::new();
        {
            let read = self.tree.begin_read()?;
            for tree in Tree::ALL {
                tail.extend(read.tail_entries(tree, wanted, ROUND_PAGES)?);
            }
        }
        // Large values first: they need free pages side by side, which single pages would take.
        tail.sort_unstable_by_key(|entry| std::cmp::Reverse((entry.is_large, entry.page)));
        tail.truncate(ROUND_PAGES);
        for step in tail.chunks(STEP_PAGES) {
            if self.compact_step(step, wanted, patience)? == 0 {
                break;
            }
            if !go_on(self.tree.usage()?.pages, wanted) {
                return Ok(Round::Stopped);
            }
            std::thread::sleep(PAUSE);
        }
        // What the last step has freed is at hand for the one after the next.
        for _ in 0..2 {
            self.compact_step(&[], wanted, patience)?;
        }
        Ok(Round::Moved)
    }

    /// Move some pages, and end the file before the free pages at its end. Returns how many entries
    /// were moved.
    fn compact_step(
        self: &Arc<Self>,
        step: &[TailEntry],
        wanted: u64,
        patience: Duration,
    ) -> Result<usize, EngineError> {
        if self.is_unproven.load(Ordering::Relaxed) {
            let mut changes = step.iter().map(|entry| (entry.tree, &entry.key[..], false));
            self.prove_pages(&mut changes)?;
        }
        self.step(patience, &mut |txn| move_pages(txn, step, wanted))
    }

    /// Do some work in a commit of the tree that changes no entry.
    fn step(self: &Arc<Self>, patience: Duration, work: Work<'_>) -> Result<usize, EngineError> {
        let until = in_a_while(patience);
        let mut moved = None;
        // Processes read the newest tree when a checkpoint has applied something. Until then they
        // keep the one that they have, and with it the pages that the last step has freed.
        if self.pending() > 0 {
            let done = self.checkpoint_and((until, until), &mut || true, &mut |txn, _| {
                moved = Some(work(txn)?);
                Ok(true)
            })?;
            if let Done::InTheWay(lock) = done {
                return Err(self.in_the_way(lock, patience));
            }
        }
        if let Some(moved) = moved {
            return Ok(moved);
        }
        self.release();
        let Some((_lock, mut txn)) = self.begin_tree(until)? else {
            return Err(self.in_the_way(BusyLock::TreeForWork, patience));
        };
        let moved = work(&mut *txn)?;
        commit_as_it_is(txn)?;
        Ok(moved)
    }

    fn in_the_way(&self, lock: BusyLock, waited: Duration) -> EngineError {
        let pid = match lock {
            BusyLock::Writer => self.segments.writer_pid(),
            BusyLock::TreeForCommit | BusyLock::TreeForWork => self.segments.tree_writer_pid(),
        };
        EngineError::FileBusy { lock, pid, waited }
    }
}

/// Fill the leaves of underfilled stretches. Returns how many entries were moved.
fn fill(txn: &mut dyn WriteTxn, step: &[Underfilled]) -> Result<usize, EngineError> {
    let Some(pages) = txn.pages() else { return Ok(0) };
    let mut moved = 0;
    for underfilled in step {
        moved += pages.fill(underfilled)?;
    }
    reached(Step::LeavesFilled);
    Ok(moved)
}

/// Move some pages in a transaction, and have the file end before the free pages at its end.
/// Returns how many entries were moved.
fn move_pages(txn: &mut dyn WriteTxn, step: &[TailEntry], wanted: u64) -> Result<usize, EngineError> {
    /// A way to an entry has a page on each level, and the list of free pages needs some.
    const WAY: u64 = 8;
    let Some(pages) = txn.pages() else { return Ok(0) };
    let (mut left, mut moved) = (pages.gather_free()?, 0);
    pages.cut_end()?;
    for entry in step {
        if left < WAY {
            break;
        }
        if pages.move_entry(entry.tree, &entry.key, wanted)? {
            moved += 1;
            left -= 1;
        }
    }
    if moved > 0 {
        reached(Step::PagesMoved);
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::engine::memory::MemoryEngine;
    use crate::wal::engine::LoggedEngine;

    #[test]
    fn a_compaction_that_waited_in_vain_names_the_lock() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        let mut txn = engine.begin_write().unwrap();
        txn.put(Tree::Rows, &[1], &[b"row"]).unwrap();
        txn.commit().unwrap();
        let shared = &engine.shared;
        let lock_in_the_way = || match shared.compact_online(Duration::ZERO, &mut |_, _| true) {
            Err(EngineError::FileBusy { lock, .. }) => Some(lock),
            done => {
                done.unwrap();
                None
            }
        };
        let writer = shared.lock(None).unwrap();
        assert_eq!(lock_in_the_way(), Some(BusyLock::Writer));
        drop(writer);
        let tree = shared.begin_tree(Instant::now()).unwrap();
        assert_eq!(lock_in_the_way(), Some(BusyLock::TreeForWork));
        drop(tree);
        assert_eq!(lock_in_the_way(), None);
    }
}
