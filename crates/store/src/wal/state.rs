//! What this process has read from the log: memtables, and the tree under them.
//!
//! There is one memtable for each use of a segment that the tree may lack. Catching up is one
//! comparison if nothing was committed.

use std::sync::{Arc, Weak};

use crate::catalog::{self, Applied, CatalogError};
use crate::engine::{
    Contents, Direction, Engine, EngineError, EntryResult, HashedKey, Parked, ReadTxn, Start, Tree,
};
use crate::sys::arena::ArenaWriter;
use crate::sys::steps::{Step, reached};
use crate::wal::extents::Taken;
use crate::wal::lock::Held;
use crate::wal::memtable::{Memtable, MemtableSlot};
use crate::wal::merge::{Over, first_of};
use crate::wal::record::{self, Change};
use crate::wal::segments::{SegmentHead, Segments};
use crate::wal::write_batch::WriteBatch;

/// A memtable, and the use of a segment that it was read from.
pub(crate) struct SegmentMemtable {
    pub(crate) memtable: Arc<Memtable>,
    arena_writer: ArenaWriter,
    pub(crate) segment: usize,
    pub(crate) head: SegmentHead,
    /// The position after the last WAL record that was read, with its sequence number and check.
    pub(crate) end: u64,
    pub(crate) sequence: u64,
    pub(crate) chain: u64,
}

impl SegmentMemtable {
    fn new(segments: &Segments, segment: usize, head: SegmentHead, sequence: u64) -> Self {
        let (memtable, arena_writer) = Memtable::over(segments.extents());
        Self {
            memtable: Arc::new(memtable),
            arena_writer,
            segment,
            head,
            end: head.begin,
            sequence,
            chain: head.salt,
        }
    }

    /// The memtable, and the sequence number of its last WAL record.
    pub(crate) fn read(&self) -> (Arc<Memtable>, u64) {
        (Arc::clone(&self.memtable), self.sequence)
    }

    /// Whether the next WAL record is to be appended after this memtable's last one.
    #[inline]
    fn goes_on(&self, active: usize, tail: u64, segments: &Segments) -> bool {
        self.segment == active && self.end == tail && segments.is_begun_as(active, self.head)
    }

    /// Write a WAL record after the last one, and acknowledge it.
    #[inline]
    fn publish(
        &mut self,
        (segments, held): (&Segments, &Held),
        bytes: &[u8],
        check: u64,
    ) -> Result<(), EngineError> {
        segments.write(self.segment, self.head, self.end, bytes).map_err(EngineError::of_system)?;
        reached(Step::RecordWritten);
        self.end += bytes.len() as u64;
        self.chain = check;
        self.sequence += 1;
        segments.publish(held, self.end, self.sequence);
        Ok(())
    }
}

/// The tree under the memtables, for one row.
pub(crate) enum Below {
    /// The tree that the state caches.
    Kept,
    /// One that snapshots may read, too.
    Shared(Arc<dyn ReadTxn>),
    /// One that waits in the state for the next row, if it is given back with [`State::park`].
    Own(Box<dyn ReadTxn>),
}

impl Below {
    #[inline]
    fn txn(&self) -> Option<&dyn ReadTxn> {
        match self {
            Self::Kept => None,
            Self::Shared(txn) => Some(&**txn),
            Self::Own(txn) => Some(&**txn),
        }
    }
}

/// What this process has read; see the module.
pub(crate) struct State {
    /// Oldest first. The last one is that of the active segment, as far as this process knows.
    pub(crate) memtables: Vec<SegmentMemtable>,
    /// The tree under the memtables. It is cached only if `keeps`, since it keeps old pages from
    /// being used again: a process without a checkpointer would hold it too long.
    kept: Option<Arc<dyn ReadTxn>>,
    newest: Option<Weak<dyn ReadTxn>>,
    /// A read transaction for single rows, where the tree is not cached. To begin a new one takes
    /// as long as to find the row.
    parked: Option<Box<dyn Parked>>,
    pub(crate) keeps: bool,
    /// Whether the tree has any rows. If not, puts into a new table skip the lookup.
    has_rows: bool,
    pub(crate) applied: Applied,
    /// The tree version that `applied` and `has_rows` were read from. They are constant for a
    /// version, so they are not read again for the same version. Without this, each read of a
    /// process that does not cache the tree would begin with a search in the catalog.
    applied_in: u64,
    /// The last WAL record that changed the catalog, or may have.
    catalog: u64,
    /// A buffer for a WAL record.
    pub(crate) spare: Vec<u8>,
    spare_write_batch: Option<WriteBatch>,
}

impl State {
    /// Begin with the tree's newest version. Nothing of the log is read yet.
    pub(crate) fn new(tree: &dyn Engine) -> Result<Self, EngineError> {
        let (txn, applied) = newest(tree)?;
        let (newest, applied_in) = (Some(Arc::downgrade(&txn)), txn.version());
        let has_rows = !txn.is_empty(Tree::Rows)?;
        Ok(Self {
            memtables: Vec::new(),
            kept: None,
            newest,
            parked: None,
            keeps: false,
            has_rows,
            applied,
            applied_in,
            catalog: applied.sequence,
            spare: Vec::new(),
            spare_write_batch: None,
        })
    }

    /// The memtable of one use of a segment.
    pub(crate) fn memtable_of(&self, head: SegmentHead) -> Option<&SegmentMemtable> {
        self.memtables.iter().find(|of_segment| of_segment.head == head)
    }

    #[inline]
    pub(crate) fn sequence(&self) -> u64 {
        self.memtables.last().map_or(self.applied.sequence, |of_segment| of_segment.sequence)
    }

    /// The sequence number of the last WAL record that changed the catalog, or may have. What was
    /// read from the catalog since then still holds.
    #[inline]
    pub(crate) fn catalog_version(&self) -> u64 {
        // A bulk commit that is only in the tree.
        if self.applied.sequence > self.sequence() { self.applied.sequence } else { self.catalog }
    }

    /// Catch up, and return the tree under the memtables.
    pub(crate) fn read(
        &mut self,
        tree: &dyn Engine,
        segments: &Segments,
    ) -> Result<Arc<dyn ReadTxn>, EngineError> {
        self.catch_up(tree, segments)?;
        let txn = if let Some(txn) = self.kept.clone().or_else(|| self.newest.as_ref()?.upgrade()) {
            txn
        } else {
            self.take_tree(tree)?;
            self.catch_up(tree, segments)?;
            self.kept.clone().ok_or(EngineError::Misuse("the tree was released"))?
        };
        if !self.keeps {
            self.kept = None;
        }
        Ok(txn)
    }

    /// As `read`, for one row.
    #[inline]
    pub(crate) fn read_row(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<Below, EngineError> {
        if self.keeps && self.kept.is_some() {
            self.catch_up(tree, segments)?;
            return Ok(Below::Kept);
        }
        if !self.keeps
            && let Some(parked) = self.parked.take()
        {
            self.catch_up(tree, segments)?;
            // [R2] `applied` and the memtables belong to this version, or to a newer one.
            if let Some(txn) = parked.begin()
                && txn.version() == self.applied_in
            {
                self.kept = None;
                return Ok(Below::Own(txn));
            }
        }
        self.read_row_anew(tree, segments)
    }

    #[cold]
    fn read_row_anew(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<Below, EngineError> {
        let txn = self.read(tree, segments)?;
        if !self.keeps {
            self.parked = tree.begin_read()?.park();
        }
        Ok(Below::Shared(txn))
    }

    /// Keep a row's read transaction for the next row, without its version.
    #[inline]
    pub(crate) fn park(&mut self, below: Below) {
        if let Below::Own(txn) = below {
            self.parked = txn.park();
        }
    }

    /// The newest value of a row, from the memtables or the tree. `below` is what `read_row`
    /// returned.
    #[inline]
    pub(crate) fn find<'a>(
        &'a self,
        below: &'a Below,
        key: HashedKey<'_>,
    ) -> Result<Option<&'a [u8]>, EngineError> {
        let live = self.memtables.iter().rev().filter(|of_segment| of_segment.end > self.applied.position);
        for of_segment in live {
            if let Some(lookup) = of_segment.memtable.find_row(key) {
                return Ok(lookup.value());
            }
        }
        self.find_below(below, key.bytes)
    }

    /// As `find`, for a key whose place in the last memtable is known.
    #[inline]
    pub(crate) fn find_at<'a>(
        &'a self,
        place: MemtableSlot,
        below: &'a Below,
        key: HashedKey<'_>,
    ) -> Result<Option<&'a [u8]>, EngineError> {
        let is_live = |of_segment: &&SegmentMemtable| of_segment.end > self.applied.position;
        if let Some(lookup) =
            self.memtables.last().filter(is_live).and_then(|last| last.memtable.lookup_at(place))
        {
            return Ok(lookup.value());
        }
        for of_segment in self.memtables.iter().rev().skip(1).filter(is_live) {
            if let Some(lookup) = of_segment.memtable.find_row(key) {
                return Ok(lookup.value());
            }
        }
        self.find_below(below, key.bytes)
    }

    #[inline]
    fn find_below<'a>(&'a self, below: &'a Below, key: &[u8]) -> Result<Option<&'a [u8]>, EngineError> {
        if self.has_rows { self.tree(below)?.get(Tree::Rows, key) } else { Ok(None) }
    }

    #[inline]
    fn tree<'a>(&'a self, below: &'a Below) -> Result<&'a dyn ReadTxn, EngineError> {
        below.txn().or(self.kept.as_deref()).ok_or(EngineError::Misuse("the tree was released"))
    }

    /// Have the processor fetch what a lookup of these rows in the last memtable reads.
    #[inline]
    pub(crate) fn ask_for<'k>(&self, keys: impl Iterator<Item = HashedKey<'k>>) {
        let Some(last) = self.memtables.last() else { return };
        for key in keys {
            last.memtable.ask_for_row(key);
        }
    }

    /// The first row from a key on.
    pub(crate) fn first_from<'a>(&'a self, below: &'a Below, start: &[u8]) -> EntryResult<'a> {
        let live = self.memtables.iter().rev().filter(|of_segment| of_segment.end > self.applied.position);
        let overs = live.map(|of_segment| Over::Memtable(&of_segment.memtable, of_segment.sequence));
        let (overs, tree): (Vec<_>, _) = (overs.collect(), self.tree(below)?);
        first_of(&overs, tree, Tree::Rows, Start::At(start), Direction::Forward)
    }

    /// Drop the memtables of WAL records that the tree has.
    pub(crate) fn forget_applied(
        &mut self,
        tree: &dyn Engine,
        segments: &Segments,
    ) -> Result<(), EngineError> {
        let is_applied = self.memtables.last().is_some_and(|last| last.end <= self.applied.position);
        if is_applied && self.enter_next_segment(tree, segments)? {
            self.take_tree(tree)?;
        }
        if !self.keeps {
            self.kept = None;
        }
        Ok(())
    }

    /// Drop the cached tree. It stays open only while a snapshot reads it.
    pub(crate) fn release(&mut self) {
        self.kept = None;
        self.parked = None;
    }

    /// Drop the cached tree if a newer version was committed, whose pages it keeps from being used
    /// again.
    pub(crate) fn release_older(&mut self, tree: &dyn Engine) {
        if tree.version() != self.applied_in {
            self.release();
        }
    }

    /// Drop the cached tree, also if a snapshot reads it.
    pub(crate) fn forget_tree(&mut self) {
        self.release();
        self.newest = None;
    }

    fn set_tree(&mut self, tree: &dyn Engine) -> Result<(), EngineError> {
        let txn: Arc<dyn ReadTxn> = Arc::from(tree.begin_read()?);
        let version = txn.version();
        if version != self.applied_in {
            let (applied, has_rows) = (applied_of(&*txn)?, !txn.is_empty(Tree::Rows)?);
            (self.applied, self.has_rows, self.applied_in) = (applied, has_rows, version);
        }
        self.newest = Some(Arc::downgrade(&txn));
        self.kept = Some(txn);
        Ok(())
    }

    /// Read all WAL records that are acknowledged now.
    #[inline]
    pub(crate) fn catch_up(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<(), EngineError> {
        if segments.is_copy && tree.version() != self.applied_in {
            self.follow_tree(tree, segments)?;
        }
        // The usual case for a read or write of one row.
        if self.sequence() >= segments.sequence() && segments.applied() <= self.applied.position {
            return Ok(());
        }
        self.catch_up_slowly(tree, segments)
    }

    /// Take what other processes have committed since the log was copied.
    #[cold]
    fn follow_tree(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<(), EngineError> {
        self.take_tree(tree)?;
        while self.applied.sequence > segments.sequence() {
            segments.go_on_after(self.applied);
            self.restart(tree, segments)?;
        }
        Ok(())
    }

    fn catch_up_slowly(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<(), EngineError> {
        const ATTEMPTS: u32 = 1_000_000;
        let mut attempts = 0;
        loop {
            // [R3] One load tells whether there is anything to do. What is committed after it need
            // not be seen: a reader that followed a fast writer would not come to an end.
            let wanted = segments.sequence();
            while self.sequence() < wanted {
                if self.read_wal_record(segments)? || self.enter_next_segment(tree, segments)? {
                    continue;
                }
                // [R6] A checkpoint has overtaken this reader, or a bulk commit is in the tree
                // alone.
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
                // A bulk commit that is about to be published: the tree alone has it, and has
                // everything.
                return Ok(());
            }
        }
    }

    /// Read the next WAL record of the last memtable's segment.
    fn read_wal_record(&mut self, segments: &Segments) -> Result<bool, EngineError> {
        let Some(of_segment) = self.memtables.last_mut() else { return Ok(false) };
        let (end, sequence) = (of_segment.end, of_segment.sequence + 1);
        let bytes = &mut self.spare;
        let Some(check) = segments.wal_record(
            of_segment.segment,
            of_segment.head,
            end,
            sequence,
            of_segment.chain,
            bytes,
        )?
        else {
            return Ok(false);
        };
        of_segment.memtable.reserve(bytes.len(), record::count_of(bytes))?;
        of_segment.end += bytes.len() as u64;
        of_segment.chain = check;
        of_segment.sequence = sequence;
        if of_segment.memtable.add(&mut of_segment.arena_writer, sequence, bytes) {
            self.catalog = sequence;
        }
        Ok(true)
    }

    /// Go on in the other segment, if it begins where this one ends.
    fn enter_next_segment(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<bool, EngineError> {
        let Some(of_segment) = self.memtables.last() else { return Ok(false) };
        let (other, end, sequence) = (1 - of_segment.segment, of_segment.end, of_segment.sequence);
        if end == of_segment.head.begin {
            return Ok(false);
        }
        let Some(head) = segments.head(other).filter(|head| head.begin == end) else { return Ok(false) };
        if self.memtables.len() > 1 {
            // [C2] The segment was begun anew, so a tree has its old content, though the process
            // that wrote the tree may have died before it published that. With an older tree three
            // memtables would be needed, and a snapshot has two.
            self.take_tree(tree)?;
        }
        self.memtables.push(SegmentMemtable::new(segments, other, head, sequence));
        Ok(true)
    }

    /// Append a WAL record and add it to the memtable. The caller has checked for room.
    pub(crate) fn append(
        &mut self,
        tree: &dyn Engine,
        (segments, held): (&Segments, &Held),
        write_batch: &mut WriteBatch,
        taken: &mut Taken,
    ) -> Result<(), EngineError> {
        self.catch_up(tree, segments)?;
        let of_segment = self.place_to_append(tree, segments)?;
        of_segment.memtable.reserve(write_batch.size(), write_batch.count_of_changes())?;
        if let Some(left) = taken.note() {
            segments.note_taken(held, left, of_segment.end + write_batch.size() as u64);
        }
        let sequence = of_segment.sequence + 1;
        let (bytes, check) = write_batch.finish(sequence, of_segment.chain);
        let begin = of_segment.end;
        of_segment.publish((segments, held), bytes, check)?;
        segments.begin_sync(begin, of_segment.end);
        of_segment.memtable.add_made(
            &mut of_segment.arena_writer,
            sequence,
            write_batch.bytes(),
            write_batch.hashed_changes(),
        );
        if write_batch.changes_catalog() {
            self.catalog = sequence;
        }
        Ok(())
    }

    /// A write batch with reusable memory. Only one transaction at a time needs it.
    pub(crate) fn take_write_batch(&mut self, segments: &Segments) -> WriteBatch {
        self.spare_write_batch.take().unwrap_or_else(|| WriteBatch::new(segments.extents()))
    }

    /// Return a write batch for reuse.
    pub(crate) fn give_write_batch(&mut self, write_batch: WriteBatch) {
        self.spare_write_batch = Some(write_batch.cleared());
    }

    /// The last memtable, if the next WAL record belongs after it. Otherwise a single row goes
    /// through a transaction (`place_to_append`).
    #[inline]
    pub(crate) fn last_to_append(&self, segments: &Segments) -> Option<&SegmentMemtable> {
        self.memtables
            .last()
            .filter(|of_segment| of_segment.goes_on(segments.active(), segments.tail(), segments))
    }

    /// As `append`, for the change of one row, and behind it those of `others` more, in a WAL
    /// record that lacks only its head and check. Appends after `last_to_append`, in which the key
    /// of the first was looked up.
    #[inline]
    pub(crate) fn append_rows(
        &mut self,
        (segments, held): (&Segments, &Held),
        place: MemtableSlot,
        bytes: &mut Vec<u8>,
        (change, others): (&Change, u32),
    ) -> Result<(), EngineError> {
        let Some(of_segment) = self.memtables.last_mut() else {
            return Err(EngineError::Misuse("no segment to append to"));
        };
        let count = 1 + others;
        of_segment.memtable.reserve(bytes.len(), count as usize)?;
        let check = record::finish(bytes, count, of_segment.sequence + 1, of_segment.chain);
        of_segment.publish((segments, held), bytes, check)?;
        let (arena_writer, sequence) = (&mut of_segment.arena_writer, of_segment.sequence);
        of_segment.memtable.add_at(arena_writer, place, sequence, bytes, change);
        if others > 0 {
            of_segment.memtable.add_few(arena_writer, sequence, bytes);
        }
        Ok(())
    }

    /// The memtable that the next WAL record belongs to.
    fn place_to_append(
        &mut self,
        tree: &dyn Engine,
        segments: &Segments,
    ) -> Result<&mut SegmentMemtable, EngineError> {
        let (active, tail) = (segments.active(), segments.tail());
        let goes_on = |of_segment: &SegmentMemtable| of_segment.goes_on(active, tail, segments);
        // Otherwise the segment was begun, or begun anew with another salt, and nothing was
        // appended to it yet.
        if !self.memtables.last().is_some_and(goes_on) && !self.enter_next_segment(tree, segments)? {
            self.restart(tree, segments)?;
        }
        self.memtables.last_mut().filter(|of_segment| goes_on(of_segment)).ok_or(EngineError::Damaged {
            what: "the log's active segment does not end where it should",
            code: 0,
        })
    }

    /// Drop the memtables and begin with the tree's newest version.
    fn restart(&mut self, tree: &dyn Engine, segments: &Segments) -> Result<(), EngineError> {
        self.set_tree(tree)?;
        self.memtables.clear();
        self.catalog = self.applied.sequence;
        let active = segments.active();
        for segment in [active, 1 - active] {
            if let Some(head) = segments.head(segment).filter(|head| head.begin == self.applied.position) {
                self.memtables.push(SegmentMemtable::new(segments, segment, head, self.applied.sequence));
                break;
            }
        }
        Ok(())
    }

    /// Take the tree's newest version, and drop the memtables that it contains.
    pub(crate) fn take_tree(&mut self, tree: &dyn Engine) -> Result<(), EngineError> {
        self.set_tree(tree)?;
        // The last memtable stays even if the tree has all of it: it marks where to go on.
        while self.memtables.len() > 1
            && self.memtables.first().is_some_and(|of_segment| of_segment.end <= self.applied.position)
        {
            self.memtables.remove(0);
        }
        Ok(())
    }
}

/// The tree's newest version, and its `applied`.
pub(crate) fn newest(tree: &dyn Engine) -> Result<(Arc<dyn ReadTxn>, Applied), EngineError> {
    let txn: Arc<dyn ReadTxn> = Arc::from(tree.begin_read()?);
    let applied = applied_of(&*txn)?;
    Ok((txn, applied))
}

/// Refuse a tree whose newest commit is not the one that its meta page says. If the number in the
/// older meta page is damaged, that page may pass for the newest; the end of the file would be cut
/// off, with the pages of the newest version.
pub(crate) fn check_version(tree: &dyn Engine) -> Result<(), EngineError> {
    let (txn, applied) = newest(tree)?;
    let version = txn.version();
    if applied.version != 0 && applied.version != version {
        let what = "this meta page is of another version than the catalog that it leads to";
        return Err(EngineError::BadPage { page: version & 1, what });
    }
    Ok(())
}

/// The position in the log up to which a version of the tree has everything.
pub(crate) fn applied_of(source: &dyn Contents) -> Result<Applied, EngineError> {
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
    use crate::engine::{Cursor, FileCare, RowAccess, Usage, WriteTxn};
    use crate::wal::engine::LoggedEngine;
    use crate::wal::read::LoggedRead;
    use crate::wal::space::MemorySpace;

    /// A tree that counts how often a value is read from it.
    struct Asked {
        tree: MemoryEngine,
        count: Arc<AtomicUsize>,
    }

    struct AskedRead {
        txn: Box<dyn ReadTxn>,
        count: Arc<AtomicUsize>,
    }

    impl RowAccess for Asked {}

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

        fn usage(&self) -> Result<Usage, EngineError> {
            self.tree.usage()
        }
    }

    impl Contents for AskedRead {
        fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.txn.get(tree, key)
        }

        fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>, EngineError> {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.txn.cursor(tree)
        }
    }

    impl ReadTxn for AskedRead {
        fn version(&self) -> u64 {
            self.txn.version()
        }
    }

    #[test]
    fn a_version_of_the_tree_is_asked_once_what_it_has() {
        let count = Arc::new(AtomicUsize::new(0));
        let tree = Asked { tree: MemoryEngine::new(), count: Arc::clone(&count) };
        let engine = LoggedEngine::in_memory(Box::new(tree), 1 << 16).unwrap();
        let (tree, segments) = (&*engine.shared.tree, &engine.shared.segments);
        // Another process, which does not write, and so does not cache the tree.
        let mut state = State::new(tree).unwrap();
        for number in 0..4_u8 {
            let asked = count.load(Ordering::Relaxed);
            for _ in 0..3 {
                drop(state.read(tree, segments).unwrap());
            }
            assert_eq!(count.load(Ordering::Relaxed), asked);
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, &[number], &[b"row"]).unwrap();
            txn.commit().unwrap();
            assert!(engine.checkpoint(Duration::ZERO, Duration::ZERO).unwrap());
            let below = Below::Shared(state.read(tree, segments).unwrap());
            assert_eq!(state.applied.sequence, segments.sequence(), "it has what was committed since");
            assert_eq!(state.find(&below, HashedKey::of(&[number])).unwrap(), Some(&b"row"[..]));
        }
    }

    #[test]
    fn a_reader_that_keeps_its_tree_has_no_hole_when_nobody_says_what_is_applied() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        let (tree, segments) = (&*engine.shared.tree, &engine.shared.segments);
        // Another process, which keeps the tree that it began with.
        let mut state = State::new(tree).unwrap();
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
            // The process that writes the tree dies before it publishes that.
            assert!(engine.checkpoint(Duration::ZERO, Duration::ZERO).unwrap());
            segments.begin_counting(0);
        }
    }

    #[test]
    fn a_copy_of_a_log_goes_on_with_what_the_tree_has() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        let put = |number: u8| {
            let mut txn = engine.begin_write().unwrap();
            txn.put(Tree::Rows, &[number], &[b"row"]).unwrap();
            txn.commit().unwrap();
        };
        (0..4).for_each(put);
        let tree = &*engine.shared.tree;
        let copy = MemorySpace::copy_of(engine.shared.segments.space(), 0).unwrap();
        let mut copy = Segments::new(Box::new(copy), [0; 16]);
        copy.is_copy = true;
        let mut state = State::new(tree).unwrap();
        let mut read = || {
            let below = state.read(tree, &copy).unwrap();
            LoggedRead::new(&state, below)
        };
        let old = read();
        assert_eq!((old.version(), copy.sequence()), (4, 4));
        // The next process that writes takes the log over: that is the same version.
        assert!(engine.checkpoint(Duration::ZERO, Duration::ZERO).unwrap());
        assert_eq!((read().version(), copy.sequence()), (4, 4));
        for number in 4..9 {
            put(number);
            assert_eq!(read().version(), u64::from(number), "it is in the log alone");
            assert!(engine.checkpoint(Duration::ZERO, Duration::ZERO).unwrap());
            let new = read();
            assert_eq!(new.version(), u64::from(number) + 1);
            assert!((0..=number).all(|number| new.get(Tree::Rows, &[number]).unwrap().is_some()));
            assert_eq!(new.version(), copy.sequence());
        }
        assert!((0..9).all(|number| old.get(Tree::Rows, &[number]).unwrap().is_some() == (number < 4)));
    }

    #[test]
    fn what_a_dead_one_has_applied_is_told_by_the_next() {
        let engine = LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 1 << 16).unwrap();
        let mut txn = engine.begin_write().unwrap();
        txn.put(Tree::Rows, b"key", &[b"row"]).unwrap();
        txn.commit().unwrap();
        for _ in 0..2 {
            assert!(engine.checkpoint(Duration::ZERO, Duration::ZERO).unwrap());
            assert_eq!(engine.shared.pending(), 0);
            engine.shared.segments.begin_counting(0);
        }
    }
}
