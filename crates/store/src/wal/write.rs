//! A write transaction over log and tree.
//!
//! It gathers its changes in a write batch, which its commit appends to the log. A transaction that
//! grows too large for the log becomes a bulk transaction: everything pending is written to the
//! tree first, to keep the order, then the batch, and all further changes go into the tree.

use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::catalog::{Applied, table_key};
use crate::engine::{
    BusyLock, Contents, Cursor, Direction, EngineError, EntryResult, HashedKey, LogBatch, ReadTxn, Start,
    TakeRow, Tree, WriteTxn,
};
use crate::row_key::TableId;
use crate::sys::os;
use crate::wal::checkpoint::{
    Done, TreeLock, in_a_while, wal_record_size_max, wal_record_size_wide, write_lookup,
};
use crate::wal::engine::{Shared, WriterLock};
use crate::wal::extents::{Extent, SIZE_MIN, Taken};
use crate::wal::read::LoggedRead;
use crate::wal::recording::Recording;
use crate::wal::write_batch::WriteBatch;

/// A write transaction.
pub(crate) struct LoggedWrite {
    /// Dropped before the locks.
    bulk: Option<Box<Recording>>,
    tree_lock: Option<TreeLock>,
    write_batch: WriteBatch,
    /// The extents of its large values.
    taken: Taken,
    base: LoggedRead,
    /// The tree and key of the last `find` that found a value. Empty if there was none.
    found: Vec<u8>,
    owner: u64,
    /// The largest WAL record; and the largest if the rows are scattered, once that was looked up.
    size_max: usize,
    size_wide: OnceLock<usize>,
    key_size_max: usize,
    lock: WriterLock,
    /// How long it waits for another process that writes the tree.
    patience: Duration,
    shared: Arc<Shared>,
}

/// How many positions a bulk commit takes, so that it has one of its own.
pub(crate) const BULK_SIZE: u64 = 8;
/// A larger WAL record takes so long that the GIL is released for its commit.
const AT_ONCE_SIZE_MAX: usize = 64 << 10;

impl LoggedWrite {
    /// Begin with the writer lock.
    pub(crate) fn begin(
        shared: &Arc<Shared>,
        lock: WriterLock,
        patience: Duration,
    ) -> Result<Self, EngineError> {
        shared.check_sound()?;
        let (base, write_batch) = shared.read_to_write(&lock)?;
        Ok(Self::new(shared, lock, (base, write_batch), patience))
    }

    /// Begin with the writer lock, over the newest version, with an empty write batch.
    pub(crate) fn new(
        shared: &Arc<Shared>,
        lock: WriterLock,
        (base, write_batch): (LoggedRead, WriteBatch),
        patience: Duration,
    ) -> Self {
        Self {
            bulk: None,
            tree_lock: None,
            write_batch,
            taken: Taken::default(),
            base,
            found: Vec::new(),
            owner: os::thread_number(),
            size_max: wal_record_size_max(&shared.segments),
            size_wide: OnceLock::new(),
            key_size_max: shared.tree.key_size_max(),
            lock,
            patience,
            shared: Arc::clone(shared),
        }
    }

    /// Whether a WAL record of this size has room in the active segment.
    fn has_room(&self, size: u64) -> bool {
        let segments = &self.shared.segments;
        let used = segments.tail().saturating_sub(segments.begin_of(segments.active()));
        // The limit may have become smaller since the transaction began.
        used + size <= segments.room() || used == 0 && size <= segments.capacity()
    }

    /// The largest WAL record, for a write batch that is about to have this size.
    fn size_max(&self, size: usize) -> usize {
        if size <= self.size_max { self.size_max } else { *self.size_wide.get_or_init(|| self.size_wide()) }
    }

    /// The largest WAL record, now that the batch is as large as one usually may be.
    fn size_wide(&self) -> usize {
        self.shared.segments.fit_to(self.shared.tree.tree_file());
        let wide = wal_record_size_wide(&self.shared.segments);
        if wide > self.size_max && self.is_scattered() { wide } else { self.size_max }
    }

    /// Whether the rows of the batch are in no order, or the tree has rows between them. Rows that
    /// follow each other fill the pages of the tree by themselves.
    fn is_scattered(&self) -> bool {
        let rows = self.write_batch.changes().filter(|(tree, _)| *tree == Tree::Rows);
        let keys: Vec<&[u8]> = rows.map(|(_, (key, _))| key).collect();
        if !keys.is_sorted() {
            return true;
        }
        // Two places are a sufficient sample.
        let is_apart = |pair: &[&[u8]]| {
            let [one, next] = pair else { return false };
            let start = [one, &[0][..]].concat();
            let found = self.base.first_under(Tree::Rows, Start::At(&start), Direction::Forward, None);
            found.is_ok_and(|found| found.is_some_and(|(key, _)| key < *next))
        };
        let middle = keys.len() / 2;
        [0, middle].iter().any(|at| keys.get(*at..at + 2).is_some_and(is_apart))
    }

    fn check_key(&self, key: &[u8]) -> Result<(), EngineError> {
        let size_max = self.key_size_max;
        if key.is_empty() || key.len() > size_max {
            return Err(EngineError::KeySize { size: key.len(), size_max });
        }
        Ok(())
    }

    /// Become a bulk transaction if this many more bytes would be too many for a WAL record.
    fn make_room(&mut self, size: usize) -> Result<(), EngineError> {
        let size = self.write_batch.size() + size;
        if self.bulk.is_none() && size > self.size_max(size) {
            self.go_into_tree()?;
        }
        Ok(())
    }

    /// [B1] Write everything pending into the tree, then the batch with its savepoints.
    fn go_into_tree(&mut self) -> Result<(), EngineError> {
        let until = in_a_while(self.patience);
        while self.checkpoint(until)? {}
        let begun = self.shared.begin_tree(until).map_err(EngineError::before_commit)?;
        let Some((tree_lock, txn)) = begun else { return Err(self.is_busy()) };
        let mut txn = Recording::new(txn, self.version())?;
        let mut savepoints = self.write_batch.savepoints().peekable();
        for (number, (tree, (key, lookup))) in self.write_batch.changes().enumerate() {
            while savepoints.next_if_eq(&number).is_some() {
                txn.savepoint()?;
            }
            write_lookup(&mut txn, tree, key, lookup)?;
        }
        for _ in savepoints {
            txn.savepoint()?;
        }
        self.write_batch = self.new_batch();
        self.bulk = Some(Box::new(txn));
        self.tree_lock = Some(tree_lock);
        Ok(())
    }

    /// [C5] Run one checkpoint. False if there was nothing to do.
    fn checkpoint(&self, mut until: Instant) -> Result<bool, EngineError> {
        const TICK: Duration = Duration::from_millis(100);
        loop {
            let was_applying = self.is_applying();
            match self.shared.checkpoint_within(&self.lock, until).map_err(EngineError::before_commit)? {
                Done::Applied(_) => return Ok(true),
                Done::Nothing => return Ok(false),
                // A thread of this process is at it, on a slow disk: only waits for others are
                // limited.
                Done::InTheWay(_) if was_applying || self.is_applying() => until = in_a_while(TICK),
                Done::InTheWay(_) | Done::Stopped => return Err(self.is_busy()),
            }
        }
    }

    fn is_applying(&self) -> bool {
        !self.patience.is_zero() && self.shared.is_applying.load(Ordering::Relaxed)
    }

    fn is_busy(&self) -> EngineError {
        let pid = self.shared.segments.tree_writer_pid();
        EngineError::FileBusy { lock: BusyLock::TreeForCommit, pid, waited: self.patience }
    }

    fn size_of(key: &[u8], parts: &[&[u8]]) -> usize {
        const ENTRY_SIZE_MAX: usize = 16;
        key.len() + parts.iter().map(|part| part.len()).sum::<usize>() + ENTRY_SIZE_MAX
    }

    fn is_above(&self, tree: Tree, key: &[u8]) -> Result<bool, EngineError> {
        let mut cursor = self.cursor(tree)?;
        cursor.start(Start::Edge, Direction::Reverse)?;
        Ok(cursor.step()?.is_none_or(|(last, _)| key > last))
    }

    fn take_found(&mut self, tree: Tree, key: &[u8]) -> Result<(), EngineError> {
        let is_found = self.found.split_first() == Some((&(tree as u8), key));
        self.found.clear();
        if is_found { Ok(()) } else { Err(EngineError::Misuse("no find of this key came before")) }
    }

    fn commit_bulk(&self, txn: Recording) -> Result<(), EngineError> {
        let segments = &self.shared.segments;
        let (position, sequence) = (segments.tail() + BULK_SIZE, segments.sequence() + 1);
        let applied = Applied { position, sequence, version: txn.version() };
        if txn.adds_rows() {
            segments.check_room_of_bulk(txn.file_size()?).map_err(EngineError::of_system)?;
        }
        segments.sync_head();
        txn.commit_as(applied)?;
        segments.begin_segment(&self.lock, segments.active(), applied.position);
        segments.set_applied(applied.position);
        segments.publish(&self.lock, applied.position, applied.sequence);
        segments.fit_to(self.shared.tree.tree_file());
        Ok(())
    }

    fn commit_wal_record(&mut self) -> Result<(), EngineError> {
        let segments = &self.shared.segments;
        let size = self.write_batch.size() as u64;
        while segments.has_found() {
            self.checkpoint(in_a_while(self.patience))?;
        }
        while !self.has_room(size) {
            let done = self.change_segment();
            // Even if that failed, the other segment may have become the active one.
            if !self.has_room(size) {
                done?;
            }
        }
        match self.append() {
            Err(error @ (EngineError::DiskFull(_) | EngineError::NoMemory(_))) => self.append_anew(error),
            done => done,
        }
    }

    /// The segment is full: go on in the other one. If the tree has yet to take that over, wait for
    /// the thread that is at it, or do it. What is sealed here is the checkpointer's work.
    fn change_segment(&self) -> Result<(), EngineError> {
        if self.shared.has_sealed().map_err(EngineError::before_commit)? {
            let done = self.checkpoint(in_a_while(self.patience));
            // One that found no room for neighbouring pages is followed by one that takes any.
            let is_full = matches!(done, Err(EngineError::DiskFull(_) | EngineError::MapTooSmall { .. }));
            if is_full {
                self.checkpoint(in_a_while(self.patience))?
            } else {
                done?
            };
        } else if self.shared.seal(&self.lock).map_err(EngineError::before_commit)? {
            self.shared.has_work.store(true, Ordering::Relaxed);
            self.shared.segments.wake_checkpointer();
        }
        Ok(())
    }

    fn append(&mut self) -> Result<(), EngineError> {
        let mut state = self.shared.state();
        let log = (&self.shared.segments, &*self.lock);
        state.append(&*self.shared.tree, log, &mut self.write_batch, &mut self.taken)?;
        let new = self.new_batch();
        state.give_write_batch(std::mem::replace(&mut self.write_batch, new));
        Ok(())
    }

    fn new_batch(&self) -> WriteBatch {
        WriteBatch::new(self.shared.segments.extents())
    }

    /// Put a large value where it stays, and its extent into the batch. False if the value has to
    /// go the way of all others.
    fn put_large(
        &mut self,
        tree: Tree,
        key: HashedKey<'_>,
        parts: &[&[u8]],
        is_new: Option<bool>,
    ) -> Result<bool, EngineError> {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        if size < SIZE_MIN || self.bulk.is_some() {
            return Ok(false);
        }
        self.make_room(Self::size_of(key.bytes, &[&[0; Extent::SIZE]]))?;
        if self.bulk.is_some() {
            return Ok(false);
        }
        let until = in_a_while(self.patience);
        let held = (&*self.lock, &mut self.base);
        let Some(extent) = self.shared.write_extent(held, &mut self.taken, parts, until)? else {
            return Ok(false);
        };
        self.write_batch.put_placed(tree, key, extent, is_new);
        Ok(true)
    }

    /// Append although the log cannot grow or the memtable cannot: once the tree has everything,
    /// the next segment needs neither.
    fn append_anew(&mut self, error: EngineError) -> Result<(), EngineError> {
        let until = in_a_while(self.patience);
        if matches!(error, EngineError::DiskFull(_)) {
            // The check that failed did not know how much room the tree's file has.
            self.shared.learn_room(&self.lock, until)?;
            match self.append() {
                Err(EngineError::DiskFull(_)) => {}
                done => return done,
            }
        }
        // From here on the first error is returned, not a later one of the tree. If the next
        // segment has no room at its begin, stay in this one: a smaller WAL record may still fit.
        let segments = &self.shared.segments;
        if segments.reserve_begin(1 - segments.active(), self.write_batch.size()).is_err() {
            return Err(error);
        }
        while matches!(self.checkpoint(until), Ok(true)) {}
        if self.shared.pending() > 0 {
            return Err(error);
        }
        // The old snapshot keeps the memtables of both segments.
        self.base = self.shared.read()?;
        self.shared.learn_room(&self.lock, until)?;
        self.append()
    }
}

impl Drop for LoggedWrite {
    fn drop(&mut self) {
        // While the lock is held. The tree has copies of what a bulk transaction has put.
        self.shared.segments.take_all_back(&self.lock, &mut self.taken);
    }
}

impl Contents for LoggedWrite {
    fn rows_beyond(&self, table: TableId) -> i64 {
        // A table's entry written by this transaction has the full count; so has a tree with
        // nothing over it.
        if self.bulk.is_some() || self.write_batch.find(Tree::Meta, &table_key(table)).is_some() {
            return 0;
        }
        self.base.rows_beyond(table)
    }

    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        if let Some(txn) = &self.bulk {
            return txn.get(tree, key);
        }
        if self.write_batch.is_empty() {
            return self.base.get(tree, key);
        }
        let key = HashedKey::of(key);
        match self.write_batch.find_hashed(tree, key) {
            Some(lookup) => Ok(lookup.value()),
            None => self.base.get_hashed(tree, key),
        }
    }

    fn ask_for(&self, tree: Tree, keys: &[&[u8]]) {
        if self.bulk.is_none() {
            self.base.ask_for(tree, keys);
        }
    }

    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>, EngineError> {
        if let Some(txn) = &self.bulk {
            return txn.cursor(tree);
        }
        let write_batch = if self.write_batch.is_empty() { None } else { Some(&self.write_batch) };
        self.base.cursor_under(tree, write_batch)
    }

    fn first_from(&self, tree: Tree, start: Start<'_>, direction: Direction) -> EntryResult<'_> {
        if let Some(txn) = &self.bulk {
            return txn.first_from(tree, start, direction);
        }
        let write_batch = if self.write_batch.is_empty() { None } else { Some(&self.write_batch) };
        self.base.first_under(tree, start, direction, write_batch)
    }
}

impl LogBatch for LoggedWrite {
    fn commits_without_waiting(&self) -> bool {
        let size = self.write_batch.size();
        self.bulk.is_none()
            && (self.write_batch.is_empty()
                || size <= AT_ONCE_SIZE_MAX
                    && !self.shared.segments.has_found()
                    && self.has_room(size as u64)
                    && self.shared.try_state().is_some())
    }

    fn room_in_log(&self) -> Option<usize> {
        // A row of this size goes its own way.
        let size = self.write_batch.size();
        let size_max = if self.bulk.is_some() { 0 } else { self.size_max(size + SIZE_MIN) };
        Some(size_max.saturating_sub(size))
    }

    fn take_rows(&mut self, take: &mut TakeRow<'_>) -> Result<(), EngineError> {
        self.found.clear();
        self.write_batch.take_rows(take);
        Ok(())
    }

    fn catalog_version(&self) -> Option<u64> {
        Some(self.base.catalog_version())
    }

    fn counts_rows(&mut self) -> bool {
        self.bulk.is_none() && self.write_batch.count()
    }

    #[inline]
    fn put_row(
        &mut self,
        key: HashedKey<'_>,
        parts: [&[u8]; 2],
        may_replace: fn(&[u8]) -> bool,
    ) -> Result<Option<bool>, EngineError> {
        // A long key, or a change that goes into the tree, takes the general path.
        let size = self.write_batch.size() + Self::size_of(key.bytes, &parts);
        let is_large = size >= SIZE_MIN && parts.iter().map(|part| part.len()).sum::<usize>() >= SIZE_MIN;
        if self.bulk.is_some()
            || size > self.size_max(size) && !is_large
            || key.bytes.len() > self.key_size_max
        {
            return Ok(None);
        }
        let old = match self.write_batch.find_hashed(Tree::Rows, key) {
            Some(lookup) => lookup.value(),
            None => self.base.get_hashed(Tree::Rows, key)?,
        };
        let was_there = old.is_some();
        if !old.is_none_or(may_replace) {
            return Ok(None);
        }
        if is_large && self.put_large(Tree::Rows, key, &parts, Some(!was_there))? {
            self.found.clear();
            return Ok(Some(was_there));
        }
        if self.bulk.is_some() || size > self.size_max(size) {
            return Ok(None);
        }
        self.write_batch.put_row(key, parts, !was_there);
        self.found.clear();
        Ok(Some(was_there))
    }

    fn prefers_append(&self) -> bool {
        // The checkpoint sorts a write batch.
        self.bulk.is_some()
    }
}

impl WriteTxn for LoggedWrite {
    fn version(&self) -> u64 {
        self.base.version() + 1
    }

    fn is_owner(&self) -> bool {
        self.owner == os::thread_number()
    }

    fn find(&mut self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        if self.bulk.is_some() {
            return self.bulk.as_mut().map_or(Ok(None), |txn| txn.find(tree, key));
        }
        let hashed = HashedKey::of(key);
        let value = match self.write_batch.find_hashed(tree, hashed) {
            Some(lookup) => lookup.value(),
            None => self.base.get_hashed(tree, hashed)?,
        };
        self.found.clear();
        if value.is_some() {
            self.found.push(tree as u8);
            self.found.extend_from_slice(key);
        }
        Ok(value)
    }

    fn replace_found(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<(), EngineError> {
        if let Some(txn) = &mut self.bulk {
            return txn.replace_found(tree, key, parts);
        }
        self.take_found(tree, key)?;
        if self.put_large(tree, HashedKey::of(key), parts, Some(false))? {
            return Ok(());
        }
        self.make_room(Self::size_of(key, parts))?;
        if let Some(txn) = &mut self.bulk {
            return txn.put(tree, key, parts);
        }
        self.write_batch.replace(tree, key, parts);
        Ok(())
    }

    fn delete_found(&mut self, tree: Tree, key: &[u8]) -> Result<(), EngineError> {
        if let Some(txn) = &mut self.bulk {
            return txn.delete_found(tree, key);
        }
        self.take_found(tree, key)?;
        self.make_room(Self::size_of(key, &[]))?;
        if let Some(txn) = &mut self.bulk {
            return txn.delete(tree, key).map(|_| ());
        }
        self.write_batch.delete(tree, key);
        Ok(())
    }

    fn put(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<(), EngineError> {
        self.check_key(key)?;
        if self.put_large(tree, HashedKey::of(key), parts, None)? {
            return Ok(());
        }
        self.make_room(Self::size_of(key, parts))?;
        if let Some(txn) = &mut self.bulk {
            return txn.put(tree, key, parts);
        }
        self.write_batch.put(tree, key, parts);
        Ok(())
    }

    fn append(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<bool, EngineError> {
        self.check_key(key)?;
        if let Some(txn) = &mut self.bulk {
            return txn.append(tree, key, parts);
        }
        if !self.is_above(tree, key)? {
            return Ok(false);
        }
        self.put(tree, key, parts)?;
        Ok(true)
    }

    fn clear(&mut self, tree: Tree) -> Result<(), EngineError> {
        if self.bulk.is_none() {
            self.go_into_tree()?;
        }
        self.bulk.as_mut().map_or(Ok(()), |txn| txn.clear(tree))
    }

    fn savepoint(&mut self) -> Result<(), EngineError> {
        if let Some(txn) = &mut self.bulk {
            return txn.savepoint();
        }
        self.write_batch.savepoint();
        self.taken.savepoint();
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), EngineError> {
        match &mut self.bulk {
            Some(txn) => txn.rollback(),
            None if self.write_batch.rollback() => {
                self.shared.segments.take_back(&self.lock, &mut self.taken);
                Ok(())
            }
            None => Err(EngineError::Misuse("rollback without a savepoint")),
        }
    }

    fn release(&mut self) -> Result<(), EngineError> {
        match &mut self.bulk {
            Some(txn) => txn.release(),
            None if self.write_batch.release() => {
                self.taken.release();
                Ok(())
            }
            None => Err(EngineError::Misuse("release without a savepoint")),
        }
    }

    fn commit(mut self: Box<Self>) -> Result<(), EngineError> {
        if !self.is_owner() {
            return Err(EngineError::WrongThread);
        }
        match self.bulk.take() {
            Some(txn) => self.commit_bulk(*txn),
            None if self.write_batch.is_empty() => Ok(()),
            None => self.commit_wal_record(),
        }
    }
}
