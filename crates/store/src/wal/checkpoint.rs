//! Checkpoint: copies the WAL records from the log into the tree.
//!
//! A checkpoint seals the active segment and writes its records into the tree in key order. The
//! same transaction stores the position up to which the tree is complete. The process may die at
//! any step: the two segments and the tree always tell the next process how to continue.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::catalog::{Applied, table_key};
use crate::engine::error::check_memory;
use crate::engine::row_count::with_more_rows;
use crate::engine::{BusyLock, Change, EngineError, Tree, WriteTxn};
use crate::pack::packing::Packing;
use crate::sys::steps::{Step, reached};
use crate::wal::budget::SIZE_USUAL;
use crate::wal::engine::Shared;
use crate::wal::extents::{Extent, put_placed};
use crate::wal::history;
use crate::wal::lock::{self, Held};
use crate::wal::memtable::{Lookup, LookupEntry, Memtable};
use crate::wal::record;
use crate::wal::segments::{SegmentHead, Segments};
use crate::wal::state::{SegmentMemtable, applied_of, newest};

/// About how much memory a checkpoint needs to sort the keys; pages are allocated one by one.
const CHECKPOINT_MEMORY: usize = 8 << 20;

/// Least number of keys of a checkpoint that takes contiguous free pages.
const MANY_KEYS: usize = if cfg!(test) { 16 } else { 1 << 14 };

/// The result of a checkpoint.
pub(crate) enum Done {
    /// The tree is complete up to this position.
    Applied(Applied),
    /// There was nothing to do.
    Nothing,
    /// Another process or thread held this lock until the deadline.
    InTheWay(BusyLock),
    /// `go_on` returned false.
    Stopped,
}

impl Done {
    /// Whether the tree has all that was to be applied.
    pub(crate) fn is_complete(&self) -> bool {
        matches!(self, Self::Applied(_) | Self::Nothing)
    }
}

/// What is also done in the transaction of a checkpoint.
pub(crate) type Also<'a> = &'a mut dyn FnMut(&mut dyn WriteTxn, bool) -> Result<bool, EngineError>;

/// Verifies the pages that changes lead to: see `TreeFile::prove`.
type Prove<'a> = dyn Fn(&mut Changes<'_>) -> Result<(), EngineError> + 'a;

/// Changes, in key order.
type Changes<'a> = dyn Iterator<Item = Change<'a>> + 'a;

/// The tree lock. Dropping it releases the lock.
pub(crate) struct TreeLock {
    shared: Arc<Shared>,
}

/// The tree lock and the transaction under it. Drop the transaction first.
pub(crate) type TreeWrite = (TreeLock, Box<dyn WriteTxn>);

impl Drop for TreeLock {
    fn drop(&mut self) {
        lock::release_tree(&self.shared.segments);
    }
}

/// While it lives, this process writes a segment into the tree.
struct Applying<'a>(&'a AtomicBool);

impl<'a> Applying<'a> {
    fn begin(is_applying: &'a AtomicBool) -> Self {
        is_applying.store(true, Ordering::Relaxed);
        Self(is_applying)
    }
}

impl Drop for Applying<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Relaxed);
    }
}

/// The moment at which a wait that begins now has lasted for `patience`.
pub(crate) fn in_a_while(patience: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(1 << 32);
    Instant::now() + patience.min(FOR_EVER)
}

impl Shared {
    /// Write all commits that are acknowledged now into the tree. Waits for the writer lock for
    /// `for_writers`, and for the tree lock for `for_tree`. Returns `Applied` or `Nothing` if the
    /// tree has them.
    pub(crate) fn checkpoint_all(
        self: &Arc<Self>,
        for_writers: Duration,
        for_tree: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Done, EngineError> {
        let goal = self.segments.sequence();
        let (writers_until, tree_until) = (in_a_while(for_writers), in_a_while(for_tree));
        let done = loop {
            match self.checkpoint_until(writers_until, tree_until, go_on)? {
                Done::Applied(applied) if applied.sequence < goal => {}
                done => break done,
            }
        };
        if done.is_complete() {
            // If nothing was ever committed, nothing has synced the new file yet.
            self.sync_new_file()?;
        }
        Ok(done)
    }

    /// Run one checkpoint. The caller does not hold the writer lock. `go_on` is called for each
    /// entry. If it stops the checkpoint before the tree's commit, the only effect is that appends
    /// go to the other segment.
    pub(crate) fn checkpoint_until(
        self: &Arc<Self>,
        writers_until: Instant,
        tree_until: Instant,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Done, EngineError> {
        self.checkpoint_and((writers_until, tree_until), go_on, &mut |_, _| Ok(true))
    }

    /// As `checkpoint_until`. `also` is called before the commit, with whether the tree then has
    /// all that is in the log; if it returns false, nothing is committed.
    pub(crate) fn checkpoint_and(
        self: &Arc<Self>,
        (writers_until, tree_until): (Instant, Instant),
        go_on: &mut dyn FnMut() -> bool,
        also: Also<'_>,
    ) -> Result<Done, EngineError> {
        let Some(lock) = self.lock(Some(writers_until))? else {
            return Ok(Done::InTheWay(BusyLock::Writer));
        };
        let is_sealed = self.seal(&lock)?;
        // Never wait for the tree lock with the writer lock in hand: writers go on meanwhile.
        drop(lock);
        if is_sealed { self.apply_sealed(tree_until, go_on, also) } else { Ok(Done::Nothing) }
    }

    /// Run one checkpoint, for a writer.
    pub(crate) fn checkpoint_within(
        self: &Arc<Self>,
        held: &Held,
        tree_until: Instant,
    ) -> Result<Done, EngineError> {
        self.checkpoint_within_and(held, tree_until, &mut |_, _| Ok(true))
    }

    /// As `checkpoint_within`, with `also` as for `checkpoint_and`.
    pub(crate) fn checkpoint_within_and(
        self: &Arc<Self>,
        held: &Held,
        tree_until: Instant,
        also: Also<'_>,
    ) -> Result<Done, EngineError> {
        if self.seal(held)? { self.apply_sealed(tree_until, &mut || true, also) } else { Ok(Done::Nothing) }
    }

    /// Find out how much room the tree has in its file.
    pub(crate) fn learn_room(self: &Arc<Self>, _held: &Held, tree_until: Instant) -> Result<(), EngineError> {
        match self.commit_nothing(tree_until) {
            // Then fewer pages count as free.
            Ok(()) | Err(EngineError::DiskFull(_)) => {}
            Err(error) => return Err(error.before_commit()),
        }
        self.segments.room.learn(&self.tree.usage()?);
        Ok(())
    }

    /// Commit the tree unchanged. Does nothing if another process writes the tree, or if its pages
    /// are not proved yet.
    fn commit_nothing(self: &Arc<Self>, until: Instant) -> Result<(), EngineError> {
        if self.is_unproven.load(Ordering::Relaxed) {
            return Ok(());
        }
        let Some((_lock, mut txn)) = self.begin_tree(until)? else { return Ok(()) };
        let applied = Applied { version: txn.version(), ..applied_of(&*txn)? };
        let (key, value) = applied.entry();
        txn.put(Tree::Meta, &key, &[&value])?;
        txn.commit()
    }

    /// Begin a write transaction of the tree. `None` if the tree lock was not free before the
    /// deadline.
    pub(crate) fn begin_tree(self: &Arc<Self>, until: Instant) -> Result<Option<TreeWrite>, EngineError> {
        if !lock::acquire_tree(&self.segments, until) {
            return Ok(None);
        }
        let lock = TreeLock { shared: Arc::clone(self) };
        self.sync_new_file()?;
        let learns = !self.is_unproven.load(Ordering::Relaxed);
        Ok(Some((lock, Packing::over(self.tree.begin_write()?, learns)?)))
    }

    /// Write the sealed segment into the tree.
    fn apply_sealed(
        self: &Arc<Self>,
        until: Instant,
        go_on: &mut dyn FnMut() -> bool,
        also: Also<'_>,
    ) -> Result<Done, EngineError> {
        check_memory(CHECKPOINT_MEMORY, "a checkpoint")?;
        // Drop order: the transaction ends before the lock is released.
        let Some((_lock, mut txn)) = self.begin_tree(until)? else {
            return Ok(Done::InTheWay(BusyLock::TreeForWork));
        };
        let (_applying, begin) = (Applying::begin(&self.is_applying), Instant::now());
        let applied = applied_of(&*txn)?;
        let Some((segment, head)) = self.sealed(applied) else {
            // Another process has applied it meanwhile.
            self.tell_applied(applied)?;
            return Ok(Done::Applied(applied));
        };
        let Some(end) = self.segments.head(1 - segment).map(|next| next.begin) else {
            return Err(EngineError::Damaged { what: "the log's active segment has no head", code: 0 });
        };
        // Usually this process has a memtable of the segment already; it ends where the next
        // segment begins.
        let known = self
            .state()
            .memtable_of(head)
            .filter(|of_segment| of_segment.end == end)
            .map(SegmentMemtable::read);
        let sequence = if let Some((memtable, sequence)) = &known {
            self.prove_memtable(end, memtable)?;
            self.write_part(&mut *txn, memtable, go_on)?.then_some(*sequence)
        } else {
            self.write_segment(&mut *txn, (segment, head, end), applied.sequence, go_on)?
        };
        let Some(sequence) = sequence else { return Ok(Done::Stopped) };
        history::take_over(&mut *txn, &self.segments, (segment, head, end), applied)?;
        if !also(&mut *txn, end == self.segments.tail())? {
            return Ok(Done::Stopped);
        }
        let applied = Applied { position: end, sequence, version: txn.version() };
        let (key, value) = applied.entry();
        txn.put(Tree::Meta, &key, &[&value])?;
        self.segments.sync_head();
        reached(Step::CheckpointCommits);
        txn.commit()?;
        reached(Step::CheckpointCommitted);
        self.segments.set_applied(applied.position);
        self.segments.time(end - head.begin, begin.elapsed());
        self.segments.fit_to(self.tree.tree_file());
        if let Some((memtable, _)) = known {
            self.retire(memtable);
        }
        Ok(Done::Applied(applied))
    }

    /// Before the engine reads or changes pages for a segment with this end, verify that they are
    /// as they were written, unless that is known already. `act` calls its argument with the
    /// changes. The caller has begun a transaction of the tree. Until then nothing of the file is
    /// changed, not even what a dead process has left after its end.
    pub(super) fn prove(
        &self,
        end: u64,
        act: impl FnOnce(&Prove<'_>) -> Result<(), EngineError>,
    ) -> Result<(), EngineError> {
        if self.is_unproven.load(Ordering::Relaxed) {
            act(&|changes| self.prove_pages(changes))?;
            if let Some(file) = self.tree.tree_file() {
                file.keep_tail(false);
                file.cut_tail();
            }
            // Each of both segments may lead to other pages.
            self.is_unproven.store(end < self.found_until, Ordering::Relaxed);
        }
        Ok(())
    }

    /// The same for the changes of a memtable.
    pub(super) fn prove_memtable(&self, end: u64, memtable: &Memtable) -> Result<(), EngineError> {
        let changes = |(tree, lookups)| {
            Iterator::map(lookups, move |(key, lookup): LookupEntry<'_>| {
                (tree, key, lookup == Lookup::Tombstone)
            })
        };
        self.prove(end, |prove| prove(&mut memtable.all().flat_map(changes)))
    }

    /// Verify the pages that these changes touch.
    pub(super) fn prove_pages(&self, changes: &mut Changes<'_>) -> Result<(), EngineError> {
        self.tree.tree_file().map_or(Ok(()), |file| file.prove(changes))
    }

    /// Publish the position up to which the tree has everything, if the process that wrote it died
    /// before it could. That process may have died during the sync, so the tree is synced first:
    /// the segment that holds the same commits is about to be begun anew.
    pub(crate) fn tell_applied(&self, applied: Applied) -> Result<(), EngineError> {
        if applied.position > self.segments.applied() {
            if self.segments.has_failed_tree() {
                // The system reports lost pages once: a second sync would succeed and prove
                // nothing.
                return Err(EngineError::Broken);
            }
            self.tree.sync().map_err(|error| self.segments.tree_not_synced(error))?;
            self.segments.set_applied(applied.position);
        }
        Ok(())
    }

    /// Bytes of WAL records that the tree does not have yet.
    pub(crate) fn pending(&self) -> u64 {
        self.segments.tail().saturating_sub(self.segments.applied())
    }

    /// The segment that a checkpoint has sealed and not applied yet.
    fn sealed(&self, applied: Applied) -> Option<(usize, SegmentHead)> {
        let active = self.segments.active();
        let (head, other) = (self.segments.head(active)?, self.segments.head(1 - active)?);
        (other.begin == applied.position && other.begin < head.begin).then_some((1 - active, other))
    }

    /// Whether a segment is sealed and not applied yet.
    pub(super) fn has_sealed(&self) -> Result<bool, EngineError> {
        Ok(self.sealed(newest(&*self.tree)?.1).is_some())
    }

    /// Make sure that one segment is sealed, so that writers go on in the other. False if there is
    /// nothing to seal.
    pub(super) fn seal(&self, held: &Held) -> Result<bool, EngineError> {
        let applied = newest(&*self.tree)?.1;
        self.tell_applied(applied)?;
        if self.sealed(applied).is_some() {
            return Ok(true);
        }
        let (active, tail) = (self.segments.active(), self.segments.tail());
        if tail <= applied.position {
            if self.segments.has_found() {
                // The segment is applied and nothing was appended to it. Old records that may stand
                // in it must not continue a chain.
                self.segments.begin_segment(held, active, tail.max(applied.position));
                self.segments.set_found(held, false);
            }
            return Ok(false);
        }
        let used = tail.saturating_sub(self.segments.begin_of(active));
        self.segments.begin_segment(held, 1 - active, tail);
        reached(Step::SegmentBegun);
        self.segments.set_active(held, 1 - active);
        reached(Step::SegmentSwitched);
        self.segments.set_found(held, false);
        self.segments.shrink_to_limit(held, used);
        Ok(true)
    }
}

/// Write the newest version of every key into the tree, in key order. Returns the extents of the
/// large values among them; `None` if `go_on` returned false.
pub(super) fn write_memtable(
    txn: &mut dyn WriteTxn,
    memtable: &Memtable,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<Extent>>, EngineError> {
    let mut extents = Vec::new();
    if memtable.key_count() >= MANY_KEYS
        && let Some(pages) = txn.pages()
    {
        pages.take_neighbours(memtable.key_count() as u64)?;
    }
    for (tree, lookups) in memtable.all() {
        for (key, lookup) in lookups {
            if !go_on() {
                return Ok(None);
            }
            if let Lookup::Extent(extent, _) = lookup {
                extents.push(extent);
            }
            write_lookup(txn, tree, key, lookup)?;
            reached(Step::CheckpointWrites);
        }
    }
    Ok(Some(extents))
}

/// Write one version of a key into the tree. Cheapest if keys come in order.
pub(crate) fn write_lookup(
    txn: &mut dyn WriteTxn,
    tree: Tree,
    key: &[u8],
    lookup: Lookup<'_>,
) -> Result<(), EngineError> {
    match lookup {
        Lookup::Value(value) => {
            if !txn.append(tree, key, &[value])? {
                txn.put(tree, key, &[value])?;
            }
        }
        Lookup::Extent(extent, value) => put_placed(txn, (tree, key), extent, value)?,
        Lookup::Tombstone => {
            txn.delete(tree, key)?;
        }
    }
    Ok(())
}

/// Add the row counts of counted WAL records to the tables' entries in the catalog.
pub(super) fn write_counts(txn: &mut dyn WriteTxn, memtable: &Memtable) -> Result<(), EngineError> {
    for table in memtable.counted_tables() {
        let key = table_key(table);
        let written = memtable.find_numbered(Tree::Meta, &key, u64::MAX).map_or(0, |(at, _)| at);
        let more = memtable.counted(table, written, u64::MAX);
        // The table was dropped since.
        let Some(value) = txn.get(Tree::Meta, &key)? else { continue };
        let Some(value) = with_more_rows(table, value, more) else {
            return Err(EngineError::Damaged {
                what: "a table's entry in the catalog cannot be read",
                code: 0,
            });
        };
        txn.put(Tree::Meta, &key, &[&value])?;
    }
    Ok(())
}

/// The size above which a transaction goes into the tree directly (a bulk commit).
pub(crate) fn wal_record_size_max(segments: &Segments) -> usize {
    // Small enough that little is written twice, large enough that a bulk commit is worth its two
    // syncs.
    const SHARE: u64 = 16;
    let room = segments.room().min(SIZE_USUAL);
    ((room / SHARE) as usize).max(record::HEAD_SIZE + record::CHECK_SIZE)
}

/// The same for a transaction whose rows are scattered over a large tree: the rows of several such
/// transactions share the pages that a checkpoint writes.
pub(crate) fn wal_record_size_wide(segments: &Segments) -> usize {
    let room = segments.room();
    // In half of a segment, so that at least two share it.
    let wide = room.saturating_sub(SIZE_USUAL).min(room / 2);
    wal_record_size_max(segments).max(wide as usize)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;
    use crate::engine::memory::MemoryEngine;
    use crate::engine::{
        Contents, Engine, Extents, FileCare, OldestReader, ReadTxn, RowAccess, TreeFile, Usage,
    };
    use crate::wal::death;
    use crate::wal::engine::{LoggedEngine, sync_found_tree};
    use crate::wal::space::{GONE, MemorySpace};
    use crate::wal::state::State;
    use crate::wal::takeover::{recover, take_over};

    fn put(engine: &LoggedEngine, number: u8) {
        let mut txn = engine.begin_write().unwrap();
        txn.put(Tree::Rows, &[number], &[b"row"]).unwrap();
        txn.commit().unwrap();
    }

    /// Build a log as a dead process may leave it: with WAL records in no segment, in one or in
    /// both, in either order.
    fn left_behind(case: u8) -> LoggedEngine {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        let seal = || {
            let lock = engine.shared.lock(None).unwrap().unwrap();
            assert!(engine.shared.seal(&lock).unwrap());
        };
        if case >= 4 {
            put(&engine, 0);
            assert!(engine.checkpoint(Duration::ZERO, Duration::ZERO).unwrap());
        }
        if case % 4 >= 1 {
            put(&engine, 1);
        }
        if case % 4 >= 2 {
            seal();
        }
        if case % 4 >= 3 {
            put(&engine, 2);
        }
        engine.quiet();
        // The writer died while it appended: the log names it as the holder, but has no such WAL
        // record.
        engine.shared.segments.set_writer(GONE);
        engine
    }

    fn rows(tree: &dyn Engine, segments: &Segments) -> Vec<u8> {
        let mut state = State::new(tree).unwrap();
        let below = state.read(tree, segments).unwrap();
        let read = crate::wal::read::LoggedRead::new(&state, below);
        (0..3).filter(|number| read.get(Tree::Rows, &[*number]).unwrap().is_some()).collect()
    }

    #[test]
    fn whoever_dies_in_taking_a_log_over_leaves_it_to_the_next() {
        let copy = |segments: &Segments| {
            Segments::new(Box::new(MemorySpace::copy_of(segments.space(), 0).unwrap()), [0; 16])
        };
        for case in 0..8 {
            let engine = left_behind(case);
            let (tree, left) = (&*engine.shared.tree, &engine.shared.segments);
            let applied = newest(tree).unwrap().1;
            let expected = rows(tree, left);
            for step in 0.. {
                let segments = copy(left);
                let is_done = death::at(step, || take_over(&segments, applied).unwrap()).is_some();
                assert!(step < 40, "it takes no end");
                // A process that joins without taking the log over must recover it first.
                assert_eq!(segments.writer().load(Ordering::Relaxed) == 0, is_done);
                if !is_done {
                    let again = copy(&segments);
                    take_over(&again, applied).unwrap();
                    assert_eq!(rows(tree, &again), expected, "case {case}, died at step {step}");
                    assert_eq!(again.sequence(), left.sequence());
                    let beside = copy(&segments);
                    recover(&beside, &Held::alone(), applied).unwrap();
                    assert_eq!(rows(tree, &beside), expected, "case {case}, recovered at step {step}");
                    continue;
                }
                assert_eq!(rows(tree, &segments), expected, "case {case}");
                break;
            }
        }
    }

    /// The work of a process that dies before one of its stores.
    type Work = fn(&LoggedEngine);

    fn put_large(engine: &LoggedEngine) {
        let mut txn = engine.begin_write().unwrap();
        txn.put(Tree::Rows, &[1], &[&vec![7; 5_000]]).unwrap();
        txn.commit().unwrap();
    }

    fn checkpoint(engine: &LoggedEngine) {
        engine.checkpoint(Duration::ZERO, Duration::ZERO).unwrap();
    }

    fn checkpoint_recovered(engine: &LoggedEngine) {
        checkpoint(engine);
        engine.shared.segments.set_found(&Held::alone(), true);
        checkpoint(engine);
    }

    #[test]
    fn whoever_dies_between_two_stores_of_a_segment_is_followed_by_those_beside() {
        for work in [put_large as Work, checkpoint, checkpoint_recovered] {
            for step in 0.. {
                let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
                put(&engine, 0);
                let is_done = death::at(step, || work(&engine)).is_some();
                assert!(step < 40, "it takes no end");
                // Undo what unwinding has released.
                engine.shared.segments.set_writer(GONE);
                let (tree, segments) = (&*engine.shared.tree, &engine.shared.segments);
                let found = rows(tree, segments);
                assert!(found.contains(&0), "a reader that comes now, died at step {step}: {found:?}");
                assert!(engine.begin_read().unwrap().get(Tree::Rows, &[0]).unwrap().is_some());
                put(&engine, 2);
                let all = rows(tree, segments);
                assert!(all.contains(&0) && all.contains(&2), "died at step {step}: {all:?}");
                assert!(!found.contains(&1) || all.contains(&1), "died at step {step}: {all:?}");
                checkpoint(&engine);
                assert_eq!(rows(tree, segments), all, "died at step {step}");
                if is_done {
                    break;
                }
            }
        }
    }

    /// A tree whose syncs fail on request. It counts how often it was written again.
    struct Unsynced {
        tree: MemoryEngine,
        state: Arc<TreeState>,
    }

    #[derive(Default)]
    struct TreeState {
        fails: AtomicBool,
        written_again: AtomicU64,
    }

    impl RowAccess for Unsynced {}

    impl Engine for Unsynced {
        fn key_size_max(&self) -> usize {
            self.tree.key_size_max()
        }

        fn version(&self) -> u64 {
            self.tree.version()
        }

        fn begin_read(&self) -> Result<Box<dyn ReadTxn>, EngineError> {
            self.tree.begin_read()
        }

        fn begin_write(&self) -> Result<Box<dyn WriteTxn>, EngineError> {
            self.tree.begin_write()
        }

        fn sync(&self) -> Result<(), EngineError> {
            // The system reports a failure once.
            if self.state.fails.swap(false, Ordering::Relaxed) {
                return Err(EngineError::Io(std::io::Error::from_raw_os_error(libc::EIO)));
            }
            Ok(())
        }

        fn usage(&self) -> Result<Usage, EngineError> {
            self.tree.usage()
        }

        fn tree_file(&self) -> Option<&dyn TreeFile> {
            Some(self)
        }
    }

    impl TreeFile for Unsynced {
        fn check_reader_room(&self, _keeps: bool) -> Result<(), EngineError> {
            Ok(())
        }

        fn prove(&self, _changes: &mut dyn Iterator<Item = Change<'_>>) -> Result<(), EngineError> {
            Ok(())
        }

        fn extents(&self) -> Option<Arc<dyn Extents>> {
            None
        }

        fn write_again(&self) -> Result<(), EngineError> {
            self.state.written_again.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn keep_tail(&self, _keeps: bool) {}

        fn cut_tail(&self) {}

        fn oldest_reader(&self) -> Result<OldestReader, EngineError> {
            Ok(OldestReader::default())
        }

        fn size(&self) -> u64 {
            0
        }
    }

    #[test]
    fn a_tree_that_could_not_be_synced_keeps_the_log_that_it_was_written_from() {
        let state = Arc::new(TreeState::default());
        let tree = Box::new(Unsynced { tree: MemoryEngine::new(), state: Arc::clone(&state) });
        let engine = LoggedEngine::in_memory(tree, 1 << 16).unwrap();
        put(&engine, 0);
        checkpoint(&engine);
        put(&engine, 1);
        checkpoint(&engine);
        let segments = &engine.shared.segments;
        let heads = || [0, 1].map(|segment| segments.head(segment));
        let before = heads();
        // The tree's writer died before it published that the tree is on the disk.
        segments.begin_counting(0);
        state.fails.store(true, Ordering::Relaxed);
        let checkpointed = || engine.checkpoint(Duration::ZERO, Duration::ZERO);
        assert!(matches!(checkpointed().unwrap_err(), EngineError::Io(_)));
        // That the next sync succeeds proves nothing.
        assert!(matches!(checkpointed().unwrap_err(), EngineError::Broken));
        assert!(matches!(engine.begin_write().err().unwrap(), EngineError::Broken));
        assert_eq!((heads(), segments.applied()), (before, 0));
        engine.quiet();
        // Nor does it for a process that opens the tree next, until that process has written all of
        // the tree again.
        let again = Segments::new(Box::new(MemorySpace::copy_of(segments.space(), 0).unwrap()), [0; 16]);
        state.fails.store(true, Ordering::Relaxed);
        for (is_first, written) in [(true, 1), (false, 2)] {
            let synced = sync_found_tree(&*engine.shared.tree, &again);
            assert_eq!((synced.is_err(), again.has_failed_tree()), (is_first, is_first));
            assert_eq!(state.written_again.load(Ordering::Relaxed), written);
        }
        sync_found_tree(&*engine.shared.tree, &again).unwrap();
        assert_eq!(state.written_again.load(Ordering::Relaxed), 2, "it is on the disk");
    }
}
