//! How do groups get from the log into the tree?
//!
//! A checkpoint seals the active area, writes what it says into the tree in key order and says in the same transaction up to
//! where. At every step it may die: the two areas and the tree always say how to go on.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::catalog::{Applied, table_key, with_more_rows};
use crate::engine::{EngineError, Tree, WriteTxn};
use crate::log::areas::{AreaHead, Areas};
use crate::log::engine::{Shared, WriterLock};
use crate::log::group;
use crate::log::history;
use crate::log::layer::{Layer, Said, Saying};
use crate::log::lock;
use crate::log::space::{GONE, Space};
use crate::log::state::{Placed, applied_of, newest};
use crate::os_memory;

/// What a checkpoint takes for the order of the keys, at most about; pages are asked for one by one.
const CHECKPOINT_MEMORY: usize = 8 << 20;

/// How a checkpoint ended.
pub(crate) enum Done {
    /// The tree has everything up to here.
    Applied(Applied),
    /// There was nothing to do.
    Nothing,
    /// Until the deadline somebody held the writer lock, or wrote the tree.
    InTheWay,
    /// Whoever asked for it wants it no more.
    Stopped,
}

/// The right to write the tree; dropping it gives it back.
pub(crate) struct TreeLock {
    shared: Arc<Shared>,
}

/// That right, and the transaction which it is about; the latter is to be dropped first.
pub(crate) type TreeWrite = (TreeLock, Box<dyn WriteTxn>);

impl Drop for TreeLock {
    fn drop(&mut self) {
        lock::release_tree(&self.shared.areas);
    }
}

/// When somebody who begins to wait now has waited this long.
pub(crate) fn in_a_while(patience: Duration) -> Instant {
    const FOR_EVER: Duration = Duration::from_secs(1 << 32);
    Instant::now() + patience.min(FOR_EVER)
}

/// How far the groups of an area go.
#[derive(Clone, Copy)]
struct Chain {
    end: u64,
    sequence: u64,
}

/// Read an area from its begin, as far as the chain goes; `take` gets each group and its number.
fn read_chain(
    areas: &Areas,
    area: usize,
    head: AreaHead,
    sequence: u64,
    mut take: impl FnMut(u64, &[u8]),
) -> Chain {
    let mut chain = Chain { end: head.begin, sequence };
    let (mut seed, mut bytes) = (head.salt, Vec::new());
    while let Some(check) = areas.group(area, head, chain.end, chain.sequence + 1, seed, &mut bytes) {
        chain.end += bytes.len() as u64;
        chain.sequence += 1;
        take(chain.sequence, &bytes);
        seed = check;
    }
    chain
}

/// Where the chain of an area ends.
fn end_of_chain(areas: &Areas, area: usize, head: AreaHead, sequence: u64) -> Chain {
    read_chain(areas, area, head, sequence, |_, _| ())
}

/// The first and the last commit of a log, of whichever database, that its file lacks.
pub(crate) fn unapplied(space: Box<dyn Space>) -> Option<(u64, u64)> {
    let areas = Areas::of_any(space)?;
    let mut lacked: Option<(u64, u64)> = None;
    for area in [0, 1] {
        let Some(head) = areas.head(area) else { continue };
        let Some(first) = areas.first_group(area, head) else { continue };
        let mut end = head.begin;
        read_chain(&areas, area, head, first.saturating_sub(1), |sequence, group| {
            end += group.len() as u64;
            if end > areas.applied() {
                let (first, last) = lacked.unwrap_or((sequence, sequence));
                lacked = Some((first.min(sequence), last.max(sequence)));
            }
        });
    }
    lacked
}

/// [O1] Where the log ends, and in which area, by what the tree has and by the chains alone; `None` where it has nothing that the
/// tree has not.
fn find_end(areas: &Areas, applied: Applied) -> Option<(usize, Chain)> {
    let begins_there = |area: usize| {
        let head = areas.head(area).filter(|head| head.begin == applied.position)?;
        let chain = end_of_chain(areas, area, head, applied.sequence);
        (chain.end > head.begin).then_some((area, chain))
    };
    let (first, chain) = [0, 1].into_iter().find_map(begins_there)?;
    match areas.head(1 - first).filter(|next| next.begin == chain.end) {
        Some(next) => Some((1 - first, end_of_chain(areas, 1 - first, next, chain.sequence))),
        None => Some((first, chain)),
    }
}

/// [W6] Set tail and sequence to where the chain ends, behind a writer that died.
pub(crate) fn recover(areas: &Areas, applied: Applied) -> Result<(), EngineError> {
    if let Some((area, chain)) = find_end(areas, applied) {
        areas.set_active(area);
        areas.publish(chain.end, chain.sequence);
        return Ok(());
    }
    let active = areas.active();
    match areas.head(active) {
        Some(head) if head.begin > applied.position => {
            let what = "the log does not continue what the tree has";
            return Err(EngineError::Damaged { what, code: 0 });
        }
        Some(head) if head.begin == applied.position => {}
        // The tree lacks commits, so that the head was not being written when its writer died.
        None if areas.tail() > applied.position => {
            return Err(EngineError::Damaged { what: "the log's active area has no head", code: 0 });
        }
        // It ends before what a bulk commit applied; or the writer died between two stores of its head. An area that is active is only
        // begun anew when the tree has everything.
        Some(_) | None => areas.begin_area(active, applied.position),
    }
    areas.publish(applied.position, applied.sequence);
    Ok(())
}

/// [O1] Find out what a log that no other member has holds beyond the tree, and set its head accordingly. Whoever dies in it leaves
/// what the next one makes the same of.
pub(crate) fn adopt(areas: &Areas, applied: Applied) -> Result<(), EngineError> {
    let end = find_end(areas, applied);
    let begins = || [0, 1].into_iter().filter_map(|area| areas.head(area)).map(|head| head.begin);
    // Where a head is damaged, the area behind it is lost, not the state that it began at.
    if end.is_none()
        && begins().any(|begin| begin > applied.position)
        && !begins().any(|begin| begin == applied.position)
        && ![0, 1].into_iter().any(|area| areas.is_head_damaged(area))
    {
        let what = "it continues a later state of the database: the file beside it is an older copy; move the log away to use that as it is";
        return Err(EngineError::ForeignLog(what));
    }
    // Whoever held the writer lock, or wrote the tree, is dead. Nobody takes it for free before all of this is done.
    areas.set_writer(GONE);
    areas.set_tree_writer(0);
    // Not what the head says, which may be damaged: if it were too much, nothing would be synced or applied any more.
    areas.begin_counting(applied.position);
    if let Some((area, chain)) = end {
        areas.set_found(true);
        areas.set_active(area);
        areas.publish(chain.end, chain.sequence);
    } else {
        // First: a process that finds an area without a head then knows that the tree has everything.
        areas.publish(applied.position, applied.sequence);
        areas.set_active(0);
        areas.set_found(false);
        // Where a power cut took the groups in between, the areas may begin where the same commits, made again, will end: what they
        // held must not come back, also not behind another power cut.
        areas.forget_area(1);
        areas.begin_area(0, applied.position);
        areas.space().sync().map_err(EngineError::of_system)?;
    }
    areas.set_writer(0);
    Ok(())
}

impl Shared {
    /// Write everything that is acknowledged now into the tree; false when a writer was in the way for so long, or somebody else
    /// wrote the tree for so long, or `go_on` said no.
    pub(crate) fn checkpoint_all(
        self: &Arc<Self>,
        for_writers: Duration,
        for_tree: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, EngineError> {
        let goal = self.areas.sequence();
        let (writers_until, tree_until) = (in_a_while(for_writers), in_a_while(for_tree));
        loop {
            match self.checkpoint_until(writers_until, tree_until, go_on)? {
                Done::Applied(applied) if applied.sequence < goal => {}
                Done::Applied(_) | Done::Nothing => break,
                Done::InTheWay | Done::Stopped => return Ok(false),
            }
        }
        // Where nothing was ever committed nothing has synced it.
        self.sync_newborn()?;
        Ok(true)
    }

    /// One checkpoint, for whoever does not hold the writer lock. `go_on` is asked with each entry: until the tree is committed, nothing was
    /// done but that the other area is appended to.
    pub(crate) fn checkpoint_until(
        self: &Arc<Self>,
        writers_until: Instant,
        tree_until: Instant,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Done, EngineError> {
        let Some(lock) = self.lock(Some(writers_until))? else { return Ok(Done::InTheWay) };
        let is_sealed = self.seal(&lock)?;
        // Nobody waits for the writer lock while holding the tree's, nor keeps writers from going on meanwhile.
        drop(lock);
        if is_sealed { self.apply_sealed(tree_until, go_on) } else { Ok(Done::Nothing) }
    }

    /// One checkpoint, for whoever holds the writer lock.
    pub(crate) fn checkpoint_within(
        self: &Arc<Self>,
        lock: &WriterLock,
        tree_until: Instant,
    ) -> Result<Done, EngineError> {
        if self.seal(lock)? { self.apply_sealed(tree_until, &mut || true) } else { Ok(Done::Nothing) }
    }

    /// Find out how much room the tree has in its file, for whoever holds the writer lock.
    pub(crate) fn learn_room(self: &Arc<Self>, tree_until: Instant) -> Result<(), EngineError> {
        match self.commit_nothing(tree_until) {
            // Then fewer pages can be used.
            Ok(()) | Err(EngineError::DiskFull(_)) => {}
            Err(error) => return Err(error.before_commit()),
        }
        self.areas.room.learn(&self.tree.usage()?);
        Ok(())
    }

    /// Commit the tree as it is, unless somebody else writes it, or its pages are not proved yet.
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

    /// Begin to write the tree; `None` when somebody else did until the deadline.
    pub(crate) fn begin_tree(self: &Arc<Self>, until: Instant) -> Result<Option<TreeWrite>, EngineError> {
        if !lock::acquire_tree(&self.areas, until) {
            return Ok(None);
        }
        let lock = TreeLock { shared: Arc::clone(self) };
        self.sync_newborn()?;
        Ok(Some((lock, self.tree.begin_write()?)))
    }

    /// Write the sealed area into the tree.
    fn apply_sealed(
        self: &Arc<Self>,
        until: Instant,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Done, EngineError> {
        os_memory::check_room(CHECKPOINT_MEMORY, "a checkpoint")?;
        // The transaction ends before the lock is given back.
        let Some((_lock, mut txn)) = self.begin_tree(until)? else { return Ok(Done::InTheWay) };
        let applied = applied_of(&*txn)?;
        let Some((area, head)) = self.sealed(applied) else {
            // Somebody else was faster.
            self.tell_applied(applied)?;
            return Ok(Done::Applied(applied));
        };
        let Some(end) = self.areas.head(1 - area).map(|next| next.begin) else {
            return Err(EngineError::Damaged { what: "the log's active area has no head", code: 0 });
        };
        // Mostly this process has read it; the first group of the next area ends it.
        let known = self.state().placed(head).filter(|placed| placed.end == end).map(Placed::read);
        let (layer, sequence) = if let Some(known) = known {
            known
        } else {
            let (layer, mut pen) = Layer::new();
            let mut reserved = Ok(());
            let chain = read_chain(&self.areas, area, head, applied.sequence, |sequence, group| {
                if reserved.is_ok() {
                    reserved = layer.reserve(group.len(), group::count_of(group));
                }
                if reserved.is_ok() {
                    layer.add(&mut pen, sequence, group);
                }
            });
            reserved?;
            if chain.end != end {
                let what = "a sealed area of the log does not reach to where the next one begins";
                return Err(EngineError::Damaged { what, code: 0 });
            }
            (Arc::new(layer), chain.sequence)
        };
        self.prove(&layer)?;
        if !write_layer(&mut *txn, &layer, go_on)? {
            return Ok(Done::Stopped);
        }
        write_counts(&mut *txn, &layer)?;
        history::take_over(&mut *txn, &self.areas, (area, head, end), applied)?;
        let applied = Applied { position: end, sequence, version: txn.version() };
        let (key, value) = applied.entry();
        txn.put(Tree::Meta, &key, &[&value])?;
        txn.commit()?;
        self.areas.set_applied(applied.position);
        Ok(Done::Applied(applied))
    }

    /// Let the engine read and change no page for a layer that is not as it was written, where that is not known yet.
    fn prove(&self, layer: &Layer) -> Result<(), EngineError> {
        if self.is_unproven.load(Ordering::Relaxed) {
            let changes = |(tree, sayings)| {
                Iterator::map(sayings, move |(key, said): Saying<'_>| (tree, key, said == Said::Deleted))
            };
            self.tree.prove(&mut layer.all().flat_map(changes))?;
            self.is_unproven.store(false, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Say up to where the tree has everything, for whoever wrote that and died ahead of it: perhaps in the midst of the sync, so that the
    /// disk need not have it yet, and the area that it was written from is about to be begun anew.
    pub(crate) fn tell_applied(&self, applied: Applied) -> Result<(), EngineError> {
        if applied.position > self.areas.applied() {
            if self.areas.has_failed_tree() {
                // The system tells of lost pages once: a second sync would go well, and mean nothing.
                return Err(EngineError::Broken);
            }
            self.tree.sync().map_err(|error| self.areas.tree_not_synced(error))?;
            self.areas.set_applied(applied.position);
        }
        Ok(())
    }

    /// Bytes of groups that no tree has.
    pub(crate) fn pending(&self) -> u64 {
        self.areas.tail().saturating_sub(self.areas.applied())
    }

    /// The area that a checkpoint sealed and did not apply.
    fn sealed(&self, applied: Applied) -> Option<(usize, AreaHead)> {
        let active = self.areas.active();
        let (head, other) = (self.areas.head(active)?, self.areas.head(1 - active)?);
        (other.begin == applied.position && other.begin < head.begin).then_some((1 - active, other))
    }

    /// Make sure that one area is sealed, so that writers go on in the other; false if there is nothing to seal.
    fn seal(&self, _lock: &WriterLock) -> Result<bool, EngineError> {
        let applied = newest(&*self.tree)?.1;
        self.tell_applied(applied)?;
        if self.sealed(applied).is_some() {
            return Ok(true);
        }
        let (active, tail) = (self.areas.active(), self.areas.tail());
        if tail <= applied.position {
            if self.areas.has_found() {
                // Sealed and applied, and nothing behind it: what may stand there from before is to continue nothing.
                self.areas.begin_area(active, tail.max(applied.position));
                self.areas.set_found(false);
            }
            return Ok(false);
        }
        self.areas.begin_area(1 - active, tail);
        self.areas.set_active(1 - active);
        self.areas.set_found(false);
        Ok(true)
    }
}

/// Give every key the value that was said last, in key order; false where `go_on` said no.
fn write_layer(
    txn: &mut dyn WriteTxn,
    layer: &Layer,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<bool, EngineError> {
    for (tree, sayings) in layer.all() {
        for (key, said) in sayings {
            if !go_on() {
                return Ok(false);
            }
            write_said(txn, tree, key, said)?;
        }
    }
    Ok(true)
}

/// Write what is said of a key into the tree; cheapest where keys come in order.
pub(crate) fn write_said(
    txn: &mut dyn WriteTxn,
    tree: Tree,
    key: &[u8],
    said: Said<'_>,
) -> Result<(), EngineError> {
    match said {
        Said::Value(value) => {
            if !txn.append(tree, key, &[value])? {
                txn.put(tree, key, &[value])?;
            }
        }
        Said::Deleted => {
            txn.delete(tree, key)?;
        }
    }
    Ok(())
}

/// Write into the tables' entries what groups of one row have counted without them.
fn write_counts(txn: &mut dyn WriteTxn, layer: &Layer) -> Result<(), EngineError> {
    for table in layer.counted_tables() {
        let key = table_key(table);
        let written = layer.find_numbered(Tree::Meta, &key, u64::MAX).map_or(0, |(at, _)| at);
        let more = layer.counted(table, written, u64::MAX);
        // A table that was dropped since has no entry.
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

/// Bytes beyond which a group goes into the tree itself.
pub(crate) fn group_size_max(areas: &Areas) -> usize {
    // Small enough that little is written twice, large enough that what is in the tree then pays for its two syncs.
    const SHARE: u64 = 16;
    ((areas.room() / SHARE) as usize).max(group::HEAD_SIZE + group::CHECK_SIZE)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

    use super::*;
    use crate::engine::{Engine, ReadTxn, Usage};
    use crate::log::areas::death;
    use crate::log::engine::{LoggedEngine, settle_tree};
    use crate::log::space::MemorySpace;
    use crate::log::state::State;
    use crate::memory::MemoryEngine;

    fn put(engine: &LoggedEngine, number: u8) {
        let mut txn = engine.begin_write().unwrap();
        txn.put(Tree::Rows, &[number], &[b"row"]).unwrap();
        txn.commit().unwrap();
    }

    /// What the dead may leave: with groups in no area, in one or in both, and in another order of these.
    fn left_behind(case: u8) -> LoggedEngine {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        let seal = || {
            let lock = engine.shared.lock(None).unwrap().unwrap();
            assert!(engine.shared.seal(&lock).unwrap());
        };
        if case >= 4 {
            put(&engine, 0);
            assert!(engine.settle(Duration::ZERO, Duration::ZERO).unwrap());
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
        // In the midst of an append: its position is told, and no group of that end.
        engine.shared.areas.set_writer(GONE);
        engine
    }

    fn rows(tree: &dyn Engine, areas: &Areas) -> Vec<u8> {
        let mut state = State::new(tree, areas).unwrap();
        let below = state.read(tree, areas).unwrap();
        let read = crate::log::read::LoggedRead::new(&state, below);
        (0..3).filter(|number| read.get(Tree::Rows, &[*number]).unwrap().is_some()).collect()
    }

    #[test]
    fn whoever_dies_in_taking_a_log_over_leaves_it_to_the_next() {
        let copy = |areas: &Areas| Areas::new(Box::new(MemorySpace::copy_of(areas.space())), [0; 16]);
        for case in 0..8 {
            let engine = left_behind(case);
            let (tree, left) = (&*engine.shared.tree, &engine.shared.areas);
            let applied = newest(tree).unwrap().1;
            let expected = rows(tree, left);
            for step in 0.. {
                let areas = copy(left);
                let is_done = death::at(step, || adopt(&areas, applied).unwrap()).is_some();
                assert!(step < 40, "it takes no end");
                // Whoever is beside without having taken it over itself has to recover it first.
                assert_eq!(areas.writer().load(Ordering::Relaxed) == 0, is_done);
                if !is_done {
                    let again = copy(&areas);
                    adopt(&again, applied).unwrap();
                    assert_eq!(rows(tree, &again), expected, "case {case}, died at step {step}");
                    assert_eq!(again.sequence(), left.sequence());
                    let beside = copy(&areas);
                    recover(&beside, applied).unwrap();
                    assert_eq!(rows(tree, &beside), expected, "case {case}, recovered at step {step}");
                    continue;
                }
                assert_eq!(rows(tree, &areas), expected, "case {case}");
                break;
            }
        }
    }

    /// What a process does that dies ahead of one of its stores.
    type Work = fn(&LoggedEngine);

    fn put_large(engine: &LoggedEngine) {
        let mut txn = engine.begin_write().unwrap();
        txn.put(Tree::Rows, &[1], &[&vec![7; 5_000]]).unwrap();
        txn.commit().unwrap();
    }

    fn settle(engine: &LoggedEngine) {
        engine.settle(Duration::ZERO, Duration::ZERO).unwrap();
    }

    fn settle_found(engine: &LoggedEngine) {
        settle(engine);
        engine.shared.areas.set_found(true);
        settle(engine);
    }

    #[test]
    fn whoever_dies_between_two_stores_of_an_area_is_followed_by_those_beside() {
        for work in [put_large as Work, settle, settle_found] {
            for step in 0.. {
                let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
                put(&engine, 0);
                let is_done = death::at(step, || work(&engine)).is_some();
                assert!(step < 40, "it takes no end");
                // What unwinding has given back.
                engine.shared.areas.set_writer(GONE);
                let (tree, areas) = (&*engine.shared.tree, &engine.shared.areas);
                let found = rows(tree, areas);
                assert!(found.contains(&0), "a reader that comes now, died at step {step}: {found:?}");
                assert!(engine.begin_read().unwrap().get(Tree::Rows, &[0]).unwrap().is_some());
                put(&engine, 2);
                let all = rows(tree, areas);
                assert!(all.contains(&0) && all.contains(&2), "died at step {step}: {all:?}");
                assert!(!found.contains(&1) || all.contains(&1), "died at step {step}: {all:?}");
                settle(&engine);
                assert_eq!(rows(tree, areas), all, "died at step {step}");
                if is_done {
                    break;
                }
            }
        }
    }

    /// A tree of which syncs fail when it is told so; it counts how often it was written again.
    struct Unsynced {
        tree: MemoryEngine,
        told: Arc<Told>,
    }

    #[derive(Default)]
    struct Told {
        fails: AtomicBool,
        written_again: AtomicU64,
    }

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
            // The system tells it once.
            if self.told.fails.swap(false, Ordering::Relaxed) {
                return Err(EngineError::Io(std::io::Error::from_raw_os_error(libc::EIO)));
            }
            Ok(())
        }

        fn write_again(&self) -> Result<(), EngineError> {
            self.told.written_again.fetch_add(1, Ordering::Relaxed);
            Ok(())
        }

        fn reader_lag(&self) -> Result<u64, EngineError> {
            self.tree.reader_lag()
        }

        fn usage(&self) -> Result<Usage, EngineError> {
            self.tree.usage()
        }
    }

    #[test]
    fn a_tree_that_could_not_be_synced_keeps_the_log_that_it_was_written_from() {
        let told = Arc::new(Told::default());
        let tree = Box::new(Unsynced { tree: MemoryEngine::new(), told: Arc::clone(&told) });
        let engine = LoggedEngine::in_memory(tree, 1 << 16).unwrap();
        put(&engine, 0);
        settle(&engine);
        put(&engine, 1);
        settle(&engine);
        let areas = &engine.shared.areas;
        let heads = || [0, 1].map(|area| areas.head(area));
        let before = heads();
        // Its writer died ahead of saying that the tree is on the disk.
        areas.begin_counting(0);
        told.fails.store(true, Ordering::Relaxed);
        let settled = || engine.settle(Duration::ZERO, Duration::ZERO);
        assert!(matches!(settled().unwrap_err(), EngineError::Io(_)));
        // That the next one goes well means nothing.
        assert!(matches!(settled().unwrap_err(), EngineError::Broken));
        assert!(matches!(engine.begin_write().err().unwrap(), EngineError::Broken));
        assert_eq!((heads(), areas.applied()), (before, 0));
        engine.quiet();
        // Nor does it for a process that opens it next, until it has written all of the tree again.
        let again = Areas::new(Box::new(MemorySpace::copy_of(areas.space())), [0; 16]);
        told.fails.store(true, Ordering::Relaxed);
        for (is_first, written) in [(true, 1), (false, 2)] {
            let settled = settle_tree(&*engine.shared.tree, &again);
            assert_eq!((settled.is_err(), again.has_failed_tree()), (is_first, is_first));
            assert_eq!(told.written_again.load(Ordering::Relaxed), written);
        }
        settle_tree(&*engine.shared.tree, &again).unwrap();
        assert_eq!(told.written_again.load(Ordering::Relaxed), 2, "it is on the disk");
    }
}
