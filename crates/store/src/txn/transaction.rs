//! Write transactions.
//!
//! There is one at a time, and it sees its own changes. A commit makes all of them visible at once;
//! without a commit none becomes visible. The transaction keeps exact row counts and ids in memory,
//! and writes them once, with the commit.
//!
//! A commit here is a commit of the engine, which may be a log over another engine (`wal/`).

mod rows;
mod tables;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::catalog::cell::FoundRow;
use crate::catalog::shapes::TransactionShapes;
use crate::catalog::{self, Counters, TableState};
use crate::db::database::{Begun, Database};
use crate::db::store::Durability;
use crate::db::writer_queue::WriterTurn;
use crate::engine::{EngineError, Tree, WriteTxn};
use crate::error::{Result, StoreError};
use crate::index::IndexSet;
use crate::pack::opening::Source;
use crate::row::{Range, Row};
use crate::row_key::{RowKey, TableId};
use crate::txn::index_batch::Gathered;
use crate::txn::index_entries::Changes;
use crate::txn::load::Load;
use crate::txn::next_int::NextInts;
use crate::txn::scan::RowRange;
use crate::txn::single::KnownTable;
use crate::txn::transaction_scan::{DirtyScan, TransactionScan};
use crate::txn::writer_lock;

/// Serial numbers for states of the catalog within transactions, never used twice.
static NEXT_CATALOG: AtomicU64 = AtomicU64::new(1);

/// A write transaction. Dropping it rolls everything back.
pub struct Transaction {
    /// Dropped before the lock.
    write: Option<Box<dyn WriteTxn>>,
    shapes: Arc<TransactionShapes>,
    pub(crate) tables: Vec<TableEntry>,
    pub(crate) counters: Counters,
    pub(crate) saved: Vec<Saved>,
    /// The last row key of the tree, when known: keys above it are appended.
    tail: Option<Vec<u8>>,
    /// Blobs that no row of this transaction refers to yet.
    loose_blobs: Vec<u64>,
    catalog: u64,
    /// The version of the catalog, while this transaction has not changed it; and a table without
    /// indexes in that version.
    catalog_version: Option<u64>,
    plain: Option<TableId>,
    /// The counters at the begin of the transaction.
    begun: Counters,
    /// Changes of row counts of tables that are not in `tables`.
    more_rows: Vec<(TableId, i64)>,
    pub(crate) is_changed: bool,
    pub(crate) is_failed: bool,
    needs_sync: bool,
    scans: Mutex<Vec<Weak<Mutex<DirtyScan>>>>,
    /// Indexes of tables, each with the serial for which they are right.
    pub(crate) index_sets: Vec<(u32, Arc<IndexSet>)>,
    /// Buffer for the index changes of a row.
    pub(crate) changes: Changes,
    /// Index entries that a batch has gathered.
    pub(crate) gathered: Gathered,
    /// Rows that are not in their tables yet.
    pub(crate) load: Load,
    /// How many index entries were written or deleted.
    pub(crate) entry_writes: u64,
    pub(crate) head: Vec<u8>,
    pub(crate) next_ints: NextInts,
    pub(crate) database: Arc<Database>,
    turn: Option<WriterTurn>,
    durability: Durability,
}

#[derive(Clone, Copy)]
pub(crate) struct TableEntry {
    pub(crate) table: TableId,
    pub(crate) state: TableState,
    /// Changed in more than the row count, which the commit can count.
    pub(crate) is_changed: bool,
    pub(crate) is_counted: bool,
}

impl TableEntry {
    pub(crate) fn new(table: TableId, state: TableState) -> Self {
        Self { table, state, is_changed: false, is_counted: false }
    }

    /// Rows were added or deleted.
    pub(crate) fn count(&mut self, more: i64) {
        self.state.row_count = self.state.row_count.saturating_add_signed(more);
        self.is_counted = true;
    }
}

/// State of a savepoint that the engine does not roll back by itself.
pub(crate) struct Saved {
    pub(crate) batches: u32,
    tables: Vec<TableEntry>,
    more_rows: Vec<(TableId, i64)>,
    loose_blobs: Vec<u64>,
}

/// A savepoint, for `rollback_to` and `release`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(usize);

impl Transaction {
    pub(crate) fn begin(
        database: Arc<Database>,
        timeout: Duration,
        durability: Durability,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Self> {
        let (write, turn) = writer_lock::acquire(&database, timeout, go_on)?;
        Self::over(database, write, turn, durability)
    }

    /// As `begin`, without waiting: `None` if it would have to wait.
    pub(crate) fn try_begin(
        database: Arc<Database>,
        timeout: Duration,
        durability: Durability,
    ) -> Result<Option<Self>> {
        let acquired = writer_lock::try_acquire(&database, timeout)?;
        acquired.map(|(write, turn)| Self::over(database, write, turn, durability)).transpose()
    }

    fn over(
        database: Arc<Database>,
        write: Box<dyn WriteTxn>,
        turn: WriterTurn,
        durability: Durability,
    ) -> Result<Self> {
        let Begun { version: catalog_version, mut counters, plain } =
            database.catch_up_to_writer(&*write, write.catalog_version())?;
        counters.next_blob = counters.next_blob.max(database.blob_floor.load(Ordering::Relaxed));
        Ok(Self {
            write: Some(write),
            shapes: Arc::new(TransactionShapes::new(Arc::clone(&database.dictionary))),
            tables: Vec::new(),
            counters,
            saved: Vec::new(),
            tail: None,
            loose_blobs: Vec::new(),
            catalog: NEXT_CATALOG.fetch_add(1, Ordering::Relaxed),
            catalog_version,
            plain,
            begun: counters,
            more_rows: Vec::new(),
            is_changed: false,
            is_failed: false,
            needs_sync: false,
            scans: Mutex::default(),
            index_sets: Vec::new(),
            changes: Changes::default(),
            gathered: Gathered::default(),
            load: Load::default(),
            entry_writes: 0,
            head: Vec::new(),
            next_ints: NextInts::default(),
            database,
            turn: Some(turn),
            durability,
        })
    }

    pub(crate) fn reader(&self) -> Result<&dyn WriteTxn> {
        // Not `ok_or`, here and below: it would make an error and drop it each time, 80
        // instructions for each row.
        let Some(write) = self.write.as_deref() else {
            return Err(StoreError::Closed { what: "transaction" });
        };
        self.database.check_generation("transaction")?;
        if !write.is_owner() {
            return Err(StoreError::WrongThread);
        }
        Ok(write)
    }

    /// The engine's transaction, about to be changed.
    pub(crate) fn writer(&mut self) -> Result<&mut dyn WriteTxn> {
        if self.load.is_pending() {
            self.flush_rows()?;
        }
        self.unflushed_writer()
    }

    /// As `writer`, before the gathered rows are merged.
    pub(crate) fn unflushed_writer(&mut self) -> Result<&mut dyn WriteTxn> {
        self.reader()?;
        if self.is_failed {
            return Err(StoreError::TransactionFailed);
        }
        if !self.scans.get_mut().unwrap_or_else(PoisonError::into_inner).is_empty() {
            self.finish_scans()?;
        }
        self.is_changed = true;
        match &mut self.write {
            Some(write) => Ok(&mut **write),
            None => Err(StoreError::Closed { what: "transaction" }),
        }
    }

    /// As `writer`, together with the database: cloning the `Arc` for each row would cost two
    /// atomic operations.
    pub(crate) fn writer_and_database(&mut self) -> Result<(&mut dyn WriteTxn, &Database)> {
        self.writer()?;
        match &mut self.write {
            Some(write) => Ok((&mut **write, &self.database)),
            None => Err(StoreError::Closed { what: "transaction" }),
        }
    }

    /// The engine's transaction, to read rows. The caller has flushed them (`flush_rows`).
    fn rows(&self) -> Result<&dyn WriteTxn> {
        let write = self.reader()?;
        if self.load.is_pending() {
            return Err(self.database.error(EngineError::Misuse("rows are gathered and not merged")));
        }
        Ok(write)
    }

    /// Note that the engine failed in the middle of a change: its current state must not be
    /// committed.
    pub(crate) fn failed(&mut self, error: EngineError) -> StoreError {
        self.is_failed = true;
        self.database.error(error)
    }

    /// Make open walks copy the rest of their rows, since they see the state at their start.
    fn finish_scans(&mut self) -> Result<()> {
        let scans = std::mem::take(self.scans.get_mut().unwrap_or_else(PoisonError::into_inner));
        for scan in scans.iter().filter_map(Weak::upgrade) {
            let mut scan = scan.lock().unwrap_or_else(PoisonError::into_inner);
            scan.take(self.reader()?, &self.database, usize::MAX)?;
        }
        Ok(())
    }

    /// The shapes of this transaction's records, including its own new ones.
    #[must_use]
    pub fn shapes(&self) -> &Arc<TransactionShapes> {
        &self.shapes
    }

    /// The id of a shape with these names, made in this transaction if there is none.
    ///
    /// # Errors
    /// `Shape` when the names can be no shape, or no id is left.
    pub fn admit(&mut self, table: TableId, names: &[&str]) -> Result<u32> {
        self.reader()?;
        let (id, is_new) = self.shapes.find_or_add(names)?;
        if is_new {
            self.note_admitted(table, 1)?;
        }
        Ok(id)
    }

    /// Count new shapes for a table: there is a limit for each table.
    pub(crate) fn note_admitted(&mut self, table: TableId, count: u32) -> Result<()> {
        if count > 0 {
            let entry = self.entry(table)?;
            entry.state.shapes_admitted += count;
            entry.is_changed = true;
            self.is_changed = true;
        }
        Ok(())
    }

    /// Whether something was changed.
    #[must_use]
    pub fn is_changed(&self) -> bool {
        self.is_changed
    }

    /// Every table's name and id, by name.
    ///
    /// # Errors
    /// As [`crate::Snapshot::tables`].
    pub fn tables(&self) -> Result<Vec<(String, TableId)>> {
        catalog::tables(self.reader()?).map_err(|error| self.database.catalog_error(error))
    }

    /// The table with this name.
    ///
    /// # Errors
    /// As [`crate::Snapshot::table`].
    pub fn table(&self, name: &str) -> Result<Option<TableId>> {
        catalog::table_id(self.reader()?, name).map_err(|error| self.database.catalog_error(error))
    }

    /// A number for the current names of tables in this transaction. What was found under a name
    /// holds while the number is the same.
    #[must_use]
    pub fn catalog_serial(&self) -> u64 {
        self.catalog
    }

    /// The version of the catalog that it sees (`Snapshot::catalog_version`), if it has changed
    /// nothing of it and the engine knows the version.
    #[must_use]
    pub fn catalog_version(&self) -> Option<u64> {
        self.catalog_version
    }

    /// What is known of a table in the committed state (`Snapshot::known`). `None` if this
    /// transaction has changed the catalog, or if the engine does not know the catalog's version.
    ///
    /// # Errors
    /// When the catalog is damaged.
    pub fn known(&self, table: TableId) -> Result<Option<KnownTable>> {
        let Some(version) = self.catalog_version else { return Ok(None) };
        let state = catalog::table_state(self.reader()?, table);
        let state = state.map_err(|error| self.database.catalog_error(error))?;
        Ok(state.map(|state| KnownTable { table, version, index_serial: state.index_serial }))
    }

    pub(crate) fn catalog_changed(&mut self) {
        (self.catalog_version, self.plain) = (None, None);
        self.catalog = NEXT_CATALOG.fetch_add(1, Ordering::Relaxed);
    }

    /// How many rows a table has.
    ///
    /// # Errors
    /// `TableDropped`, `Forked` in a child process.
    pub fn count(&self, table: TableId) -> Result<u64> {
        // The count is at hand, but a forked child must not read its parent's transaction.
        self.rows()?;
        if let Some(entry) = self.tables.iter().rfind(|entry| entry.table == table) {
            return Ok(entry.state.row_count);
        }
        let mut entry = self.read_entry(table)?;
        if let Some((_, more)) = self.more_rows.iter().find(|(of, _)| *of == table) {
            entry.count(*more);
        }
        Ok(entry.state.row_count)
    }

    fn read_entry(&self, table: TableId) -> Result<TableEntry> {
        let state = catalog::table_state(self.reader()?, table);
        let state = state.map_err(|error| self.database.catalog_error(error))?;
        match state {
            Some(state) => Ok(TableEntry::new(table, state)),
            None => Err(StoreError::TableDropped { table: None }),
        }
    }

    /// The row under a key.
    ///
    /// # Errors
    /// As [`crate::Snapshot::get`].
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<FoundRow<'_>>> {
        let row_key = RowKey::new(table, key, self.database.key_size_max);
        let rows = self.rows()?;
        match rows.get(Tree::Rows, row_key.as_bytes()).map_err(|error| self.database.error(error))? {
            Some(bytes) => self.database.row(Source::Running(rows), table, key, row_key.as_bytes(), bytes),
            None => Ok(None),
        }
    }

    /// A large value.
    ///
    /// # Errors
    /// As [`crate::Snapshot::blob`].
    pub fn blob(&self, id: u64) -> Result<&[u8]> {
        let found = self.reader()?.get(Tree::Blobs, &id.to_be_bytes());
        self.database.blob_body(id, found.map_err(|error| self.database.error(error))?)
    }

    /// Walk over a table as it is now. Later writes do not change what the walk sees.
    ///
    /// # Errors
    /// As [`crate::Snapshot::scan`].
    pub fn scan(&self, table: TableId, range: &Range, reverse: bool) -> Result<TransactionScan> {
        self.rows()?;
        if !self.is_changed {
            // No other transaction commits meanwhile, so the newest version is the one that this
            // transaction is based on.
            let base = self.database.snapshot()?;
            return Ok(TransactionScan::Clean(Box::new(base.scan(table, range, reverse)?)));
        }
        let range = RowRange::new(table, range, reverse, self.database.key_size_max);
        let scan = Arc::new(Mutex::new(DirtyScan::new(range)));
        let mut scans = self.scans.lock().unwrap_or_else(PoisonError::into_inner);
        scans.retain(|scan| scan.strong_count() > 0);
        scans.push(Arc::downgrade(&scan));
        Ok(TransactionScan::Dirty(scan))
    }

    /// Apply `work` to the first row of a walk, without making a walk. `None` if there is no row.
    ///
    /// # Errors
    /// As [`crate::Scan::next`].
    pub fn with_first<R>(
        &self,
        table: TableId,
        range: &Range,
        reverse: bool,
        work: impl FnOnce(Row<'_>) -> R,
    ) -> Result<Option<R>> {
        let rows = RowRange::new(table, range, reverse, self.database.key_size_max);
        let entry = self.rows()?.first_from(Tree::Rows, rows.first(), rows.direction);
        let entry = entry.map_err(|error| self.database.error(error))?;
        let mut work = Some(work);
        let mut once = |row: Row<'_>| work.take().map(|work| work(row));
        if let Some(done) = rows.with_first(entry, |row| row.and_then(&mut once)) {
            return Ok(done);
        }
        // One of a run, or damaged.
        let mut scan = DirtyScan::new(rows);
        scan.take(self.reader()?, &self.database, 1)?;
        Ok(scan.with_next(once).flatten())
    }

    /// The engine's transaction, for walks.
    pub(crate) fn scan_source(&self) -> Result<&dyn WriteTxn> {
        self.reader()
    }

    pub(crate) fn entry(&mut self, table: TableId) -> Result<&mut TableEntry> {
        let known = self.tables.iter().rposition(|entry| entry.table == table);
        let index = if let Some(index) = known {
            index
        } else {
            let mut entry = self.read_entry(table)?;
            if let Some(place) = self.more_rows.iter().position(|(of, _)| *of == table) {
                entry.count(self.more_rows.swap_remove(place).1);
            }
            self.tables.push(entry);
            self.tables.len() - 1
        };
        match self.tables.get_mut(index) {
            Some(entry) => Ok(entry),
            None => Err(StoreError::Closed { what: "transaction" }),
        }
    }

    /// Set a savepoint.
    ///
    /// # Errors
    /// When memory is short.
    pub fn savepoint(&mut self) -> Result<Savepoint> {
        if !self.savepoint_of_load()? {
            self.flush_entries()?;
            let done = self.writer()?.savepoint();
            done.map_err(|error| self.failed(error))?;
        }
        self.saved.push(self.saved_now());
        Ok(Savepoint(self.saved.len()))
    }

    pub(crate) fn saved_now(&self) -> Saved {
        Saved {
            batches: self.gathered.depth,
            tables: self.tables.clone(),
            more_rows: self.more_rows.clone(),
            loose_blobs: self.loose_blobs.clone(),
        }
    }

    /// Roll back to a savepoint. That savepoint and later ones are removed. A transaction in which
    /// a change has failed stays one that can only be rolled back as a whole.
    ///
    /// # Errors
    /// `NoSuchSavepoint`; when the engine fails.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<()> {
        self.check_savepoint(savepoint)?;
        while self.saved.len() >= savepoint.0 {
            // Ids of tables, blobs and shapes made since then are not used again; the shapes
            // themselves stay.
            if !self.load.rollback() {
                // Entries that were gathered before the savepoint were written when it was set.
                self.gathered.forget();
                if self.is_failed {
                    // The caller rolls back because of that failure, which is the one to raise.
                    // Nothing of the transaction is committed, whatever happens here.
                    let _ = self.write.as_mut().map(|write| write.rollback());
                } else {
                    let done = self.writer()?.rollback();
                    done.map_err(|error| self.failed(error))?;
                }
            }
            if let Some(saved) = self.saved.pop() {
                self.gathered.depth = saved.batches;
                (self.tables, self.more_rows) = (saved.tables, saved.more_rows);
                self.loose_blobs = saved.loose_blobs;
            }
            self.tail = None;
            self.next_ints = NextInts::default();
            self.catalog_changed();
        }
        Ok(())
    }

    /// Keep the changes since a savepoint. That savepoint and later ones are removed.
    ///
    /// # Errors
    /// `NoSuchSavepoint`.
    pub fn release(&mut self, savepoint: Savepoint) -> Result<()> {
        self.check_savepoint(savepoint)?;
        while self.saved.len() >= savepoint.0 {
            if !self.release_of_load()? {
                let done = self.unflushed_writer()?.release();
                done.map_err(|error| self.failed(error))?;
            }
            self.saved.pop();
        }
        Ok(())
    }

    fn check_savepoint(&self, savepoint: Savepoint) -> Result<()> {
        self.reader()?;
        if savepoint.0 == 0 || savepoint.0 > self.saved.len() {
            return Err(StoreError::NoSuchSavepoint);
        }
        Ok(())
    }

    /// Make all changes visible and durable. Afterwards, or after an error other than
    /// `WrongThread`, the transaction is over.
    ///
    /// # Errors
    /// When the changes could not be written; then none is visible.
    pub fn commit(&mut self) -> Result<()> {
        self.publish()?;
        self.sync()
    }

    /// The first half of a commit: all changes become visible, and survive the process.
    ///
    /// # Errors
    /// As `commit`.
    pub fn publish(&mut self) -> Result<()> {
        self.reader()?;
        if !self.is_changed {
            self.abort();
            return Ok(());
        }
        let committed = self
            .flush_rows()
            .and_then(|()| self.flush_entries())
            .and_then(|()| self.write_catalog())
            .and_then(|()| self.commit_engine());
        if committed.is_ok() {
            self.next_ints.publish(&self.database.int_floors);
            let used = std::mem::take(&mut self.index_sets);
            self.database.index_sets.lock().unwrap_or_else(PoisonError::into_inner).give(used);
            self.database.entry_writes.fetch_add(self.entry_writes, Ordering::Relaxed);
        }
        self.abort();
        self.needs_sync = committed.is_ok() && self.durability == Durability::Full;
        committed
    }

    /// Whether `publish` would finish soon, without waiting for another thread, a process or the
    /// disk.
    #[must_use]
    pub fn publishes_without_waiting(&self) -> bool {
        let commits_without_waiting =
            || self.write.as_ref().is_some_and(|write| write.commits_without_waiting());
        !self.is_changed || !self.load.is_pending() && commits_without_waiting()
    }

    /// Whether the commit has to wait for the disk after `publish`.
    #[must_use]
    pub fn needs_sync(&self) -> bool {
        self.needs_sync
    }

    /// The second half of a commit, outside of the writer lock: other transactions commit
    /// meanwhile, and one sync serves all that wait for it.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn sync(&mut self) -> Result<()> {
        if std::mem::take(&mut self.needs_sync) {
            self.database.sync()?;
        }
        Ok(())
    }

    /// Write what was kept in memory: counts, counters, shapes. Transactions that only change rows
    /// skip this if the commit counts the rows.
    fn write_catalog(&mut self) -> Result<()> {
        let loose = std::mem::take(&mut self.loose_blobs);
        self.delete_blobs(&loose)?;
        let are_rows_all = self.counters == self.begun
            && self.shapes.count() == self.begun.shape_count
            && !self.tables.iter().any(|entry| entry.is_changed);
        if are_rows_all && self.writer()?.counts_rows() {
            return Ok(());
        }
        while let Some((table, _)) = self.more_rows.last() {
            self.entry(*table)?;
        }
        let version = self.writer()?.version();
        self.counters.version = version;
        self.counters.shape_count = self.shapes.count();
        let mut entries = Vec::new();
        for entry in self.tables.iter().filter(|entry| entry.is_changed || entry.is_counted) {
            entries.push(entry.state.entry(entry.table));
        }
        for (id, shape) in (self.shapes.start()..).zip(self.shapes.own()) {
            entries.push(catalog::shape_entry(id, shape));
        }
        entries.push(self.counters.entry());
        self.put_entries(&entries)
    }

    fn commit_engine(&mut self) -> Result<()> {
        let write = self.write.take().ok_or(StoreError::Closed { what: "transaction" })?;
        let own = self.shapes.own();
        if own.is_empty() {
            return write.commit().map_err(|error| self.database.error(error));
        }
        let (version, start) = (self.counters.version, self.shapes.start());
        self.database.commit_with_shapes(version, start, &own, || write.commit())
    }

    /// Roll back and end; the same as dropping it.
    pub fn abort(&mut self) {
        // In this order: the next writer in the queue must not have to wait for the engine.
        self.write = None;
        self.turn = None;
        self.saved.clear();
        self.load = Load::default();
    }
}

impl Drop for Transaction {
    fn drop(&mut self) {
        // What a transaction has learned that made no id of a shape or an index holds without its
        // commit. The lock is not waited for: in a forked child no thread would release it.
        let is_known = self.counters == self.begun && self.shapes.count() == self.begun.shape_count;
        if is_known && let Ok(mut sets) = self.database.index_sets.try_lock() {
            sets.give(std::mem::take(&mut self.index_sets));
        }
    }
}
