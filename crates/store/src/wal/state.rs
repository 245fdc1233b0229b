//! What has this process taken over from the log so far?
//!
//! Memtables, one for each use of a segment that the tree may not have yet, and the tree that they lie over. Catching up is one
//! comparison where nothing was committed.

use std::sync::{Arc, Weak};

use crate::catalog::{self, Applied, CatalogError};
use crate::engine::{Engine, EngineError, HashedKey, ReadTxn, Tree};
use crate::sys::grown_bytes::Pen;
use crate::wal::memtable::{Memtable, Place};
use crate::wal::record::{self, Change, ShortWalRecord};
use crate::wal::segments::{SegmentHead, Segments};
use crate::wal::write_batch::WriteBatch;

/// A memtable and the use of a segment that it has read.
pub(crate) struct Placed {
    pub(crate) memtable: Arc<Memtable>,
    pen: Pen,
    pub(crate) segment: usize,
    pub(crate) head: SegmentHead,
    /// The position behind the last WAL record that was read, and its number and check.
    pub(crate) end: u64,
    pub(crate) sequence: u64,
    pub(crate) chain: u64,
}

impl Placed {
    fn new(segment: usize, head: SegmentHead, sequence: u64) -> Self {
        let (memtable, pen) = Memtable::new();
        Self { memtable: Arc::new(memtable), pen, segment, head, end: head.begin, sequence, chain: head.salt }
    }

    /// What was read, and the number of its last WAL record.
    pub(crate) fn read(&self) -> (Arc<Memtable>, u64) {
        (Arc::clone(&self.memtable), self.sequence)
    }

    /// Whether the next WAL record belongs behind what was read here.
    #[inline]
    fn goes_on(&self, active: usize, tail: u64, segments: &Segments) -> bool {
        self.segment == active && self.end == tail && segments.is_begun_as(active, self.head)
    }

    /// Write a WAL record behind the last one, and acknowledge it.
    fn publish(&mut self, segments: &Segments, bytes: &[u8], check: u64) -> Result<(), EngineError> {
        segments.write(self.segment, self.head, self.end, bytes).map_err(EngineError::of_system)?;
        self.end += bytes.len() as u64;
        self.chain = check;
        self.sequence += 1;
        segments.publish(self.end, self.sequence);
        Ok(())
    }
}

/// See the module.
pub(crate) struct State {
    /// Oldest first; the last one is that of the active segment, as far as is known.
    pub(crate) memtables: Vec<Placed>,
    /// The tree's version that goes with them; only as long as somebody reads it where nobody lets go of it now and then, since
    /// it keeps old pages from being used again.
    kept: Option<Arc<dyn ReadTxn>>,
    newest: Weak<dyn ReadTxn>,
    pub(crate) keeps: bool,
    /// Whether it has any: a table that is being filled needs no look into it.
    has_rows: bool,
    pub(crate) applied: Applied,
    /// The tree's version of which these two were read. One version always says the same, so that who begins to read it again need not
    /// look: where nobody keeps the tree, each read would begin with a search in the catalog.
    applied_in: u64,
    /// The last WAL record that changed the catalog, or may have.
    catalog: u64,
    /// Memory for a WAL record, and for one that is short.
    pub(crate) spare: Vec<u8>,
    pub(crate) short: ShortWalRecord,
    spare_write_batch: Option<WriteBatch>,
}

impl State {
    /// Begin with what the tree has.
    pub(crate) fn new(tree: &dyn Engine, segments: &Segments) -> Result<Self, EngineError> {
        let (txn, applied) = newest(tree)?;
        let (newest, applied_in) = (Arc::downgrade(&txn), txn.version());
        let has_rows = !txn.is_empty(Tree::Rows)?;
        let mut state = Self {
            memtables: Vec::new(),
            kept: Some(txn),
            newest,
            keeps: false,
            has_rows,
            applied,
            applied_in,
            catalog: applied.sequence,
            spare: Vec::new(),
            short: ShortWalRecord::default(),
            spare_write_batch: None,
        };
        state.catch_up(tree, segments)?;
        state.let_go();
        Ok(state)
    }

    /// What was read of one use of a segment.
    pub(crate) fn placed(&self, head: SegmentHead) -> Option<&Placed> {
        self.memtables.iter().find(|placed| placed.head == head)
    }

    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.memtables.last().map_or(self.applied.sequence, |placed| placed.sequence)
    }

    /// The number of the last WAL record that changed the catalog, or may have: what was read there since still holds.
    #[inline]
    pub(crate) fn catalog_version(&self) -> u64 {
        // A bulk commit that is only in the tree.
        if self.applied.sequence > self.sequence() { self.applied.sequence } else { self.catalog }
    }

    /// Catch up, and say which tree lies under the memtables.
    pub(crate) fn read(
        &mut self,
        tree: &dyn Engine,
        segments: &Segments,
    ) -> Result<Arc<dyn ReadTxn>, EngineError> {
        self.catch_up(tree, segments)?;
        let txn = if let Some(txn) = self.kept.clone().or_else(|| self.newest.upgrade()) {
            txn
        } else {
            self.take_tree(tree)?;
            self.catch_up(tree, segments)?;
            self.kept.clone().ok_or(EngineError::Misuse("the tree was let go of"))?
        };
        if !self.keeps {
            self.kept = None;
        }
        Ok(txn)
    }

    /// As `read`, for one row: catch up, and where the tree is kept anyhow have no share in it.
    #[inline]
    pub(crate) fn read_row(
        &mut self,
        tree: &dyn Engine,
        segments: &Segments,
    ) -> Result<Option<Arc<dyn ReadTxn>>, EngineError> {
        if self.keeps && self.kept.is_some() {
            self.catch_up(tree, segments)?;
            return Ok(None);
        }
        self.read(tree, segments).map(Some)
    }

    /// The newest value of a row: in the memtables, or in the tree that `read_row` has given, or else keeps.
    #[inline]
    pub(crate) fn find<'a>(
        &'a self,
        below: Option<&'a Arc<dyn ReadTxn>>,
        key: HashedKey<'_>,
    ) -> Result<Option<&'a [u8]>, EngineError> {
        let live = self.memtables.iter().rev().filter(|placed| placed.end > self.applied.position);
        for placed in live {
            if let Some(said) = placed.memtable.find_row(key) {
                return Ok(said.value());
            }
        }
        self.find_below(below, key.bytes)
    }

    /// As `find`, of a key that was looked up in the last memtable.
    #[inline]
    pub(crate) fn find_at<'a>(
        &'a self,
        place: Place,
        below: Option<&'a Arc<dyn ReadTxn>>,
        key: HashedKey<'_>,
    ) -> Result<Option<&'a [u8]>, EngineError> {
        let is_live = |placed: &&Placed| placed.end > self.applied.position;
        if let Some(said) =
            self.memtables.last().filter(is_live).and_then(|last| last.memtable.said_at(place))
        {
            return Ok(said.value());
        }
        for placed in self.memtables.iter().rev().skip(1).filter(is_live) {
            if let Some(said) = placed.memtable.find_row(key) {
                return Ok(said.value());
            }
        }
        self.find_below(below, key.bytes)
    }

    #[inline]
    fn find_below<'a>(
        &'a self,
        below: Option<&'a Arc<dyn ReadTxn>>,
        key: &[u8],
    ) -> Result<Option<&'a [u8]>, EngineError> {
        match below.or(self.kept.as_ref()) {
            Some(tree) if self.has_rows => tree.get(Tree::Rows, key),
            Some(_) => Ok(None),
            None => Err(EngineError::Misuse("the tree was let go of")),
        }
    }

    /// Keep the tree no longer than somebody reads it.
    pub(crate) fn let_go(&mut self) {
        self.kept = None;
    }

    fn set_tree(&mut self, tree: &dyn Engine) -> Result<(), EngineError> {
        let txn = tree.begin_shared_read()?;
        let version = txn.version();
        if version != self.applied_in {
            let (applied, has_rows) = (applied_of(&*txn)?, !txn.is_empty(Tree::Rows)?);
            (self.applied, self.has_rows, self.applied_in) = (applied, has_rows, version);
        }
        self.newest = Arc::downgrade(&txn);
        self.kept = Some(txn);
        Ok(())
    }

    /// Take over everything that is acknowledged now.
    #[inline]
    pub(crate) fn catch_up(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<(), EngineError> {
        // What nearly every read and write of one row meets.
        if self.sequence() >= segments.sequence() && segments.applied() <= self.applied.position {
            return Ok(());
        }
        self.catch_up_slowly(tree, segments)
    }

    fn catch_up_slowly(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<(), EngineError> {
        const ATTEMPTS: u32 = 1_000_000;
        let mut attempts = 0;
        loop {
            // [R3] One load says whether there is anything to do.
            while self.sequence() < segments.sequence() {
                if self.read_wal_record(segments)? || self.enter_next_segment(tree, segments)? {
                    continue;
                }
                // [R6] Overtaken by a checkpoint; or by a bulk commit, which is in the tree alone.
                self.restart(tree, segments)?;
                attempts += 1;
                if attempts > ATTEMPTS {
                    return Err(EngineError::Damaged {
                        what: "the log lacks a commit that it counts",
                        code: 0,
                    });
                }
                std::hint::spin_loop();
            }
            if segments.applied() <= self.applied.position {
                return Ok(());
            }
            self.take_tree(tree)?;
            // [R2] The tree may have WAL records that were not read yet.
            if self.applied.sequence <= self.sequence() {
                return Ok(());
            }
            if self.applied.sequence > segments.sequence() {
                // A bulk commit that is about to be published: the tree alone has it, and has everything.
                return Ok(());
            }
        }
    }

    /// Read the next WAL record of the last memtable's segment.
    fn read_wal_record(&mut self, segments: &Segments) -> Result<bool, EngineError> {
        let Some(placed) = self.memtables.last_mut() else { return Ok(false) };
        let (end, sequence) = (placed.end, placed.sequence + 1);
        let bytes = &mut self.spare;
        let Some(check) =
            segments.wal_record(placed.segment, placed.head, end, sequence, placed.chain, bytes)
        else {
            return Ok(false);
        };
        placed.memtable.reserve(bytes.len(), record::count_of(bytes))?;
        placed.end += bytes.len() as u64;
        placed.chain = check;
        placed.sequence = sequence;
        if placed.memtable.add(&mut placed.pen, sequence, bytes) {
            self.catalog = sequence;
        }
        Ok(true)
    }

    /// Go on in the other segment, if it begins where this one ends.
    fn enter_next_segment(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<bool, EngineError> {
        let Some(placed) = self.memtables.last() else { return Ok(false) };
        let (other, end, sequence) = (1 - placed.segment, placed.end, placed.sequence);
        if end == placed.head.begin {
            return Ok(false);
        }
        let Some(head) = segments.head(other).filter(|head| head.begin == end) else { return Ok(false) };
        if self.memtables.len() > 1 {
            // [C2] It was begun anew, so that a tree has what it held before, though whoever wrote that may have died ahead of saying
            // so. Under an older tree three memtables would be needed, and a snapshot has two.
            self.take_tree(tree)?;
        }
        self.memtables.push(Placed::new(other, head, sequence));
        Ok(true)
    }

    /// Append a WAL record and take it over. For whoever holds the writer lock and has looked for room.
    pub(crate) fn append(
        &mut self,
        tree: &dyn Engine,
        segments: &Segments,
        write_batch: &mut WriteBatch,
    ) -> Result<(), EngineError> {
        self.catch_up(tree, segments)?;
        let placed = self.place_to_append(tree, segments)?;
        placed.memtable.reserve(write_batch.size(), write_batch.count_of_changes())?;
        let sequence = placed.sequence + 1;
        let (bytes, check) = write_batch.finish(sequence, placed.chain);
        let begin = placed.end;
        placed.publish(segments, bytes, check)?;
        segments.begin_sync(begin, placed.end);
        placed.memtable.add_made(
            &mut placed.pen,
            sequence,
            write_batch.bytes(),
            write_batch.hashed_changes(),
        );
        if write_batch.changes_catalog() {
            self.catalog = sequence;
        }
        Ok(())
    }

    /// Memory for a transaction's changes; one at a time needs it.
    pub(crate) fn take_write_batch(&mut self) -> WriteBatch {
        self.spare_write_batch.take().unwrap_or_else(WriteBatch::new)
    }

    /// Give it back.
    pub(crate) fn give_write_batch(&mut self, write_batch: WriteBatch) {
        self.spare_write_batch = Some(write_batch.cleared());
    }

    /// The last memtable, if the next WAL record belongs behind it. Else one row goes the long way (`place_to_append`).
    #[inline]
    pub(crate) fn last_to_append(&self, segments: &Segments) -> Option<&Placed> {
        self.memtables.last().filter(|placed| placed.goes_on(segments.active(), segments.tail(), segments))
    }

    /// As `append`, for one row whose WAL record is complete but for its head and its check: behind `last_to_append`, in which the key was
    /// looked up.
    #[inline]
    pub(crate) fn append_one(
        &mut self,
        segments: &Segments,
        place: Place,
        bytes: &mut Vec<u8>,
        change: &Change,
    ) -> Result<(), EngineError> {
        let Some(Placed { memtable, pen, segment, head, end, sequence, chain }) = self.memtables.last_mut()
        else {
            return Err(EngineError::Misuse("no segment to append to"));
        };
        memtable.reserve(bytes.len(), 1)?;
        let check = record::finish(bytes, 1, *sequence + 1, *chain);
        segments.write(*segment, *head, *end, bytes).map_err(EngineError::of_system)?;
        (*end, *sequence, *chain) = (*end + bytes.len() as u64, *sequence + 1, check);
        segments.publish(*end, *sequence);
        memtable.add_at(pen, place, *sequence, bytes, change);
        Ok(())
    }

    /// As `append_one`, of the short WAL record that was begun.
    #[inline]
    pub(crate) fn append_short(&mut self, segments: &Segments, place: Place) -> Result<(), EngineError> {
        let Some(Placed { memtable, pen, segment, head, end, sequence, chain }) = self.memtables.last_mut()
        else {
            return Err(EngineError::Misuse("no segment to append to"));
        };
        memtable.reserve(record::SHORT_SIZE, 1)?;
        let (bytes, check) = self.short.finish(*sequence + 1, *chain);
        segments.write(*segment, *head, *end, bytes).map_err(EngineError::of_system)?;
        (*end, *sequence, *chain) = (*end + bytes.len() as u64, *sequence + 1, check);
        segments.publish(*end, *sequence);
        memtable.add_row(pen, place, *sequence, &mut self.short);
        Ok(())
    }

    /// Where the next WAL record belongs: behind all others.
    fn place_to_append(
        &mut self,
        tree: &dyn Engine,
        segments: &Segments,
    ) -> Result<&mut Placed, EngineError> {
        let (active, tail) = (segments.active(), segments.tail());
        let goes_on = |placed: &Placed| placed.goes_on(active, tail, segments);
        // Else nothing was appended since this segment was begun, or begun anew with another salt.
        if !self.memtables.last().is_some_and(goes_on) && !self.enter_next_segment(tree, segments)? {
            self.restart(tree, segments)?;
        }
        self.memtables.last_mut().filter(|placed| goes_on(placed)).ok_or(EngineError::Damaged {
            what: "the log's active segment does not end where it should",
            code: 0,
        })
    }

    /// Forget the memtables and begin with the tree's newest version.
    fn restart(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<(), EngineError> {
        self.set_tree(tree)?;
        self.memtables.clear();
        self.catalog = self.applied.sequence;
        let active = segments.active();
        for segment in [active, 1 - active] {
            if let Some(head) = segments.head(segment).filter(|head| head.begin == self.applied.position) {
                self.memtables.push(Placed::new(segment, head, self.applied.sequence));
                break;
            }
        }
        Ok(())
    }

    /// Take the tree's newest version, and forget memtables that it has.
    pub(crate) fn take_tree(&mut self, tree: &dyn Engine) -> Result<(), EngineError> {
        self.set_tree(tree)?;
        // The last one stays, even when the tree has all of it: it says where to go on.
        while self.memtables.len() > 1
            && self.memtables.first().is_some_and(|placed| placed.end <= self.applied.position)
        {
            self.memtables.remove(0);
        }
        Ok(())
    }
}

/// The tree's newest version, and what it has.
pub(crate) fn newest(tree: &dyn Engine) -> Result<(Arc<dyn ReadTxn>, Applied), EngineError> {
    let txn = tree.begin_shared_read()?;
    let applied = applied_of(&*txn)?;
    Ok((txn, applied))
}

/// Up to where a version of the tree has the log.
pub(crate) fn applied_of(source: &(impl catalog::Source + ?Sized)) -> Result<Applied, EngineError> {
    catalog::applied(source).map_err(|error| match error {
        CatalogError::Engine(error) => error,
        CatalogError::Damaged { .. } => {
            EngineError::Damaged { what: "the tree's place in the log cannot be read", code: 0 }
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::engine::memory::MemoryEngine;
    use crate::engine::{Cursor, Usage, WriteTxn};
    use crate::wal::engine::LoggedEngine;
    use crate::wal::read::LoggedRead;

    /// A tree that counts how often somebody asks it for a value.
    struct Asked {
        tree: MemoryEngine,
        count: Arc<AtomicUsize>,
    }

    struct AskedRead {
        txn: Box<dyn ReadTxn>,
        count: Arc<AtomicUsize>,
    }

    impl Engine for Asked {
        fn key_size_max(&self) -> usize {
            self.tree.key_size_max()
        }

        fn version(&self) -> u64 {
            self.tree.version()
        }

        fn begin_read(&self) -> Result<Box<dyn ReadTxn>, EngineError> {
            Ok(Box::new(AskedRead { txn: self.tree.begin_read()?, count: Arc::clone(&self.count) }))
        }

        fn begin_write(&self) -> Result<Box<dyn WriteTxn>, EngineError> {
            self.tree.begin_write()
        }

        fn sync(&self) -> Result<(), EngineError> {
            self.tree.sync()
        }

        fn reader_lag(&self) -> Result<u64, EngineError> {
            self.tree.reader_lag()
        }

        fn usage(&self) -> Result<Usage, EngineError> {
            self.tree.usage()
        }
    }

    impl ReadTxn for AskedRead {
        fn version(&self) -> u64 {
            self.txn.version()
        }

        fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.txn.get(tree, key)
        }

        fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>, EngineError> {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.txn.cursor(tree)
        }
    }

    #[test]
    fn a_version_of_the_tree_is_asked_once_what_it_has() {
        let count = Arc::new(AtomicUsize::new(0));
        let tree = Asked { tree: MemoryEngine::new(), count: Arc::clone(&count) };
        let engine = LoggedEngine::in_memory(Box::new(tree), 1 << 16).unwrap();
        let (tree, segments) = (&*engine.shared.tree, &engine.shared.segments);
        // Another process, which nobody writes in, so that it keeps no tree.
        let mut state = State::new(tree, segments).unwrap();
        for number in 0..4_u8 {
            let asked = count.load(Ordering::Relaxed);
            for _ in 0..3 {
                drop(state.read(tree, segments).unwrap());
            }
            assert_eq!(count.load(Ordering::Relaxed), asked);
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, &[number], &[b"row"]).unwrap();
            txn.commit().unwrap();
            assert!(engine.settle(Duration::ZERO, Duration::ZERO).unwrap());
            let below = state.read(tree, segments).unwrap();
            assert_eq!(state.applied.sequence, segments.sequence(), "it has what was committed since");
            assert_eq!(state.find(Some(&below), HashedKey::of(&[number])).unwrap(), Some(&b"row"[..]));
        }
    }

    #[test]
    fn a_reader_that_keeps_its_tree_has_no_hole_when_nobody_says_what_is_applied() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        let (tree, segments) = (&*engine.shared.tree, &engine.shared.segments);
        // Another process, which keeps the tree that it began with.
        let mut state = State::new(tree, segments).unwrap();
        let mut kept = Vec::new();
        for number in 0..6_u8 {
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, &[number], &[b"row"]).unwrap();
            txn.commit().unwrap();
            let below = state.read(tree, segments).unwrap();
            let read = LoggedRead::new(&state, below);
            for number in 0..=number {
                assert!(read.get(Tree::Rows, &[number]).unwrap().is_some(), "row {number}");
            }
            kept.push(read);
            // Whoever writes the tree dies ahead of saying so.
            assert!(engine.settle(Duration::ZERO, Duration::ZERO).unwrap());
            segments.begin_counting(0);
        }
    }

    #[test]
    fn what_a_dead_one_has_applied_is_told_by_the_next() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        let mut txn = engine.begin_write().unwrap();
        txn.put(Tree::Rows, b"key", &[b"row"]).unwrap();
        txn.commit().unwrap();
        for _ in 0..2 {
            assert!(engine.settle(Duration::ZERO, Duration::ZERO).unwrap());
            assert_eq!(engine.shared.pending(), 0);
            engine.shared.segments.begin_counting(0);
        }
    }
}
