//! How does a writer change a database?
//!
//! In one transaction at a time, which sees its own changes; a commit makes all of them visible at once, anything
//! else none. It keeps the exact row counts and ids in memory and writes them once, with the commit.
//!
//! A commit here is a commit of the engine. A write log would take its place in `commit`, where everything that is
//! to be written has come together; no caller would notice.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::blob;
use crate::catalog::{self, Counters, TABLE_NAME_SIZE_MAX, TableState};
use crate::cell::{CHECK_SIZE, Cell, check_of, write_head};
use crate::database::Database;
use crate::engine::{Direction, EngineError, Start, Tree, WriteTxn};
use crate::error::StoreError;
use crate::row_key::{Prefix, RowKey, TableId, is_long, successor};
use crate::scan::{Range, RowRange};
use crate::shapes::TransactionShapes;
use crate::transaction_scan::{DirtyScan, TransactionScan};
use crate::writer_lock::WriterGuard;

/// Rows that `clear` looks at before it deletes them.
const CLEAR_CHUNK: usize = 512;

/// The one transaction that writes. Dropping it takes everything back.
pub struct Transaction {
    /// Dropped before the lock.
    write: Option<Box<dyn WriteTxn>>,
    shapes: Arc<TransactionShapes>,
    tables: Vec<TableEntry>,
    counters: Counters,
    saved: Vec<Saved>,
    /// The last row key of the tree, when known: keys above it are appended.
    tail: Option<Vec<u8>>,
    /// Blobs that no row of this transaction refers to yet.
    loose_blobs: Vec<u64>,
    is_changed: bool,
    is_failed: bool,
    scans: Mutex<Vec<Weak<Mutex<DirtyScan>>>>,
    pub(crate) head: Vec<u8>,
    pub(crate) database: Arc<Database>,
    lock: Option<WriterGuard>,
}

#[derive(Clone, Copy)]
struct TableEntry {
    table: TableId,
    state: TableState,
    is_changed: bool,
}

/// What the head of a stored row says, apart from its key.
pub(crate) struct Found {
    pub(crate) blobs: Vec<u64>,
    spelling: Vec<u8>,
}

/// What the engine does not take back by itself.
struct Saved {
    tables: Vec<TableEntry>,
    loose_blobs: Vec<u64>,
}

/// A place in a transaction to which it can go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(usize);

impl Transaction {
    pub(crate) fn begin(database: Arc<Database>, lock: WriterGuard) -> Result<Self, StoreError> {
        let write = database.engine.begin_write().map_err(|error| database.error(error))?;
        let mut counters = database.catch_up_to_writer(&*write)?;
        counters.next_blob = counters.next_blob.max(database.blob_floor.load(Ordering::Relaxed));
        Ok(Self {
            write: Some(write),
            shapes: Arc::new(TransactionShapes::new(Arc::clone(&database.dictionary))),
            tables: Vec::new(),
            counters,
            saved: Vec::new(),
            tail: None,
            loose_blobs: Vec::new(),
            is_changed: false,
            is_failed: false,
            scans: Mutex::default(),
            head: Vec::new(),
            database,
            lock: Some(lock),
        })
    }

    fn reader(&self) -> Result<&dyn WriteTxn, StoreError> {
        let write = self.write.as_deref().ok_or(StoreError::Closed { what: "transaction" })?;
        self.database.check_generation("transaction")?;
        if !write.is_owner() {
            return Err(StoreError::WrongThread);
        }
        Ok(write)
    }

    /// The engine's transaction, about to be changed.
    pub(crate) fn writer(&mut self) -> Result<&mut dyn WriteTxn, StoreError> {
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

    /// Note that the engine failed in the middle of a change: what it holds now is not to be committed.
    pub(crate) fn failed(&mut self, error: EngineError) -> StoreError {
        self.is_failed = true;
        self.database.write_error(error)
    }

    /// Walks that see the state at their start take the rest of it before it changes.
    fn finish_scans(&mut self) -> Result<(), StoreError> {
        let scans = std::mem::take(self.scans.get_mut().unwrap_or_else(PoisonError::into_inner));
        for scan in scans.iter().filter_map(Weak::upgrade) {
            let mut scan = scan.lock().unwrap_or_else(PoisonError::into_inner);
            scan.take(self.reader()?, &self.database, usize::MAX)?;
        }
        Ok(())
    }

    /// The shapes that records of this transaction name, its own included.
    #[must_use]
    pub fn shapes(&self) -> &Arc<TransactionShapes> {
        &self.shapes
    }

    /// The id of a shape with these names, made in this transaction if there is none.
    ///
    /// # Errors
    /// `Shape` when the names can be no shape, or no id is left.
    pub fn admit(&mut self, table: TableId, names: &[&str]) -> Result<u32, StoreError> {
        self.reader()?;
        let (id, is_new) = self.shapes.find_or_add(names)?;
        if is_new {
            self.note_admitted(table, 1)?;
        }
        Ok(id)
    }

    /// Count shapes that were made for a table: there is a limit for each.
    pub(crate) fn note_admitted(&mut self, table: TableId, count: u32) -> Result<(), StoreError> {
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

    // Reading, with the changes made so far.

    /// Every table's name and id, by name.
    ///
    /// # Errors
    /// As [`crate::Snapshot::tables`].
    pub fn tables(&self) -> Result<Vec<(String, TableId)>, StoreError> {
        catalog::tables(self.reader()?).map_err(|error| self.database.catalog_error(error))
    }

    /// The table with this name.
    ///
    /// # Errors
    /// As [`crate::Snapshot::table`].
    pub fn table(&self, name: &str) -> Result<Option<TableId>, StoreError> {
        catalog::table_id(self.reader()?, name).map_err(|error| self.database.catalog_error(error))
    }

    /// How many rows a table has.
    ///
    /// # Errors
    /// `NoSuchTable` when it was dropped.
    pub fn count(&mut self, table: TableId) -> Result<u64, StoreError> {
        Ok(self.entry(table)?.state.row_count)
    }

    /// The row under a key.
    ///
    /// # Errors
    /// As [`crate::Snapshot::get`].
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<Cell<'_>>, StoreError> {
        let row_key = RowKey::new(table, key, self.database.key_size_max);
        let found = self.reader()?.get(Tree::Rows, row_key.as_bytes());
        match found.map_err(|error| self.database.error(error))? {
            Some(bytes) => self.database.cell(table, key, row_key.as_bytes(), bytes),
            None => Ok(None),
        }
    }

    /// A value that lies apart.
    ///
    /// # Errors
    /// As [`crate::Snapshot::blob`].
    pub fn blob(&self, id: u64) -> Result<&[u8], StoreError> {
        let found = self.reader()?.get(Tree::Blobs, &id.to_be_bytes());
        self.database.blob_body(id, found.map_err(|error| self.database.error(error))?)
    }

    /// Walk over a table as it is now, whatever is written while the walk goes on.
    ///
    /// # Errors
    /// As [`crate::Snapshot::scan`].
    pub fn scan(&self, table: TableId, range: &Range, reverse: bool) -> Result<TransactionScan, StoreError> {
        self.reader()?;
        if !self.is_changed {
            // Nobody else commits meanwhile, so the newest version is the one that we build on.
            let base = self.database.snapshot()?;
            return Ok(TransactionScan::Clean(Box::new(base.scan(table, range, reverse)?)));
        }
        let range = RowRange::new(table, range, reverse, self.database.key_size_max);
        let scan = Arc::new(Mutex::new(DirtyScan::new(table, range)));
        let mut scans = self.scans.lock().unwrap_or_else(PoisonError::into_inner);
        scans.retain(|scan| scan.strong_count() > 0);
        scans.push(Arc::downgrade(&scan));
        Ok(TransactionScan::Dirty(scan))
    }

    /// The engine's transaction for walks.
    pub(crate) fn scan_source(&self) -> Result<&dyn WriteTxn, StoreError> {
        self.reader()
    }

    // Tables.

    fn entry(&mut self, table: TableId) -> Result<&mut TableEntry, StoreError> {
        let known = self.tables.iter().rposition(|entry| entry.table == table);
        let index = if let Some(index) = known {
            index
        } else {
            let state = catalog::table_state(self.reader()?, table);
            let state = state.map_err(|error| self.database.catalog_error(error))?;
            let state = state.ok_or_else(|| StoreError::NoSuchTable { table: table.0.to_string() })?;
            self.tables.push(TableEntry { table, state, is_changed: false });
            self.tables.len() - 1
        };
        self.tables.get_mut(index).ok_or(StoreError::Closed { what: "transaction" })
    }

    /// Create an empty table.
    ///
    /// # Errors
    /// `TableExists`, or `TableName` when the name is empty or too long.
    pub fn create_table(&mut self, name: &str) -> Result<TableId, StoreError> {
        self.check_name(name)?;
        let table = TableId(self.counters.next_table);
        let state = TableState::default();
        self.put_entries(&[catalog::name_entry(name, table), state.entry(table)])?;
        self.counters.next_table += 1;
        self.tables.push(TableEntry { table, state, is_changed: false });
        Ok(table)
    }

    fn check_name(&self, name: &str) -> Result<(), StoreError> {
        if name.is_empty() || name.len() > TABLE_NAME_SIZE_MAX {
            return Err(StoreError::TableName { size: name.len(), size_max: TABLE_NAME_SIZE_MAX });
        }
        match self.table(name)? {
            Some(_) => Err(StoreError::TableExists { table: name.to_owned() }),
            None => Ok(()),
        }
    }

    fn put_entries(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<(), StoreError> {
        for (key, value) in entries {
            let put = self.writer()?.put(Tree::Meta, key, &[value]);
            put.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    fn delete_meta(&mut self, key: &[u8]) -> Result<(), StoreError> {
        let deleted = self.writer()?.delete(Tree::Meta, key);
        deleted.map(|_| ()).map_err(|error| self.failed(error))
    }

    /// The table with this name, or an error.
    fn named(&self, name: &str) -> Result<TableId, StoreError> {
        self.table(name)?.ok_or_else(|| StoreError::NoSuchTable { table: name.to_owned() })
    }

    /// Delete a table with all its rows. Its id is never used again.
    ///
    /// # Errors
    /// `NoSuchTable`.
    pub fn drop_table(&mut self, name: &str) -> Result<(), StoreError> {
        let table = self.named(name)?;
        self.clear(table)?;
        self.delete_meta(&catalog::name_key(name))?;
        self.delete_meta(&catalog::table_key(table))?;
        self.tables.retain(|entry| entry.table != table);
        Ok(())
    }

    /// Give a table another name; its rows and its id stay.
    ///
    /// # Errors
    /// `NoSuchTable`, `TableExists`, `TableName`.
    pub fn rename_table(&mut self, name: &str, new_name: &str) -> Result<(), StoreError> {
        let table = self.named(name)?;
        if name != new_name {
            self.check_name(new_name)?;
            self.delete_meta(&catalog::name_key(name))?;
            self.put_entries(&[catalog::name_entry(new_name, table)])?;
        }
        Ok(())
    }

    /// Delete all rows of a table.
    ///
    /// # Errors
    /// `NoSuchTable`, or when no room is left to copy pages.
    pub fn clear(&mut self, table: TableId) -> Result<(), StoreError> {
        self.entry(table)?;
        self.tail = None;
        if self.is_only_table(table)? && self.loose_blobs.is_empty() {
            for tree in [Tree::Rows, Tree::Blobs] {
                let cleared = self.writer()?.clear(tree);
                cleared.map_err(|error| self.failed(error))?;
            }
        } else {
            while self.clear_chunk(table)? {}
        }
        let entry = self.entry(table)?;
        entry.state.row_count = 0;
        entry.is_changed = true;
        Ok(())
    }

    /// Delete every table. Ids go on where they were, and the dictionary stays, since other processes know it.
    ///
    /// # Errors
    /// When no room is left to copy pages.
    pub fn clear_everything(&mut self) -> Result<(), StoreError> {
        for (name, table) in self.tables()? {
            self.delete_meta(&catalog::name_key(&name))?;
            self.delete_meta(&catalog::table_key(table))?;
        }
        for tree in [Tree::Rows, Tree::Blobs] {
            let cleared = self.writer()?.clear(tree);
            cleared.map_err(|error| self.failed(error))?;
        }
        self.tables.clear();
        self.loose_blobs.clear();
        self.tail = None;
        Ok(())
    }

    /// Whether every row there is belongs to this table.
    fn is_only_table(&self, table: TableId) -> Result<bool, StoreError> {
        let prefix = Prefix::of(table);
        let mut cursor = self.reader()?.cursor(Tree::Rows).map_err(|error| self.database.error(error))?;
        for direction in [Direction::Forward, Direction::Reverse] {
            let first = cursor.start(Start::Edge, direction).and_then(|()| cursor.step());
            match first.map_err(|error| self.database.error(error))? {
                Some((row_key, _)) if row_key.starts_with(prefix.as_bytes()) => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }

    /// Delete some rows of a table; false when there was none.
    fn clear_chunk(&mut self, table: TableId) -> Result<bool, StoreError> {
        let prefix = Prefix::of(table);
        let end = successor(prefix.as_bytes().to_vec());
        let (mut row_keys, mut blobs) = (Vec::new(), Vec::new());
        {
            let database = &self.database;
            let mut cursor = self.reader()?.cursor(Tree::Rows).map_err(|error| database.error(error))?;
            cursor
                .start(Start::At(prefix.as_bytes()), Direction::Forward)
                .map_err(|error| database.error(error))?;
            while row_keys.len() < CLEAR_CHUNK {
                let Some((row_key, bytes)) = cursor.step().map_err(|error| database.error(error))? else {
                    break;
                };
                if end.as_deref().is_some_and(|end| row_key >= end) {
                    break;
                }
                row_keys.push(row_key.to_vec());
                // A damaged cell does not keep its table from being cleared.
                blobs.extend(Cell::parse(bytes).iter().flat_map(Cell::blobs));
            }
        }
        for row_key in &row_keys {
            let deleted = self.writer()?.delete(Tree::Rows, row_key);
            deleted.map_err(|error| self.failed(error))?;
        }
        self.delete_blobs(&blobs)?;
        Ok(!row_keys.is_empty())
    }

    // Rows.

    /// Set a key to a record; says whether the key was there, whose first spelling stays then. `blobs` are the ids of the large values that the
    /// record refers to: new ones of this transaction, or those that the row had before. Blobs that it had and has
    /// no more are deleted.
    ///
    /// # Errors
    /// `NoSuchTable`, `TooLarge`, `NoSuchBlob` for a blob of another row, or when no room is left.
    pub fn put(
        &mut self,
        table: TableId,
        key: &[u8],
        spelling: &[u8],
        record: &[u8],
        blobs: &[u64],
    ) -> Result<bool, StoreError> {
        let limit = self.database.key_size_max;
        self.entry(table)?;
        Self::check_size(key.len() + spelling.len() + record.len())?;
        let row_key = RowKey::new(table, key, limit);
        let row_key = row_key.as_bytes();
        let was_there = self.put_cell(table, key, spelling, row_key, record, blobs)?;
        if !was_there {
            let entry = self.entry(table)?;
            entry.state.row_count += 1;
            entry.is_changed = true;
        }
        Ok(was_there)
    }

    pub(crate) fn check_size(size: usize) -> Result<(), StoreError> {
        const OVERHEAD: u64 = 64;
        if size as u64 + OVERHEAD > u64::from(u32::MAX) {
            return Err(StoreError::TooLarge { size: size as u64 });
        }
        Ok(())
    }

    fn put_cell(
        &mut self,
        table: TableId,
        key: &[u8],
        spelling: &[u8],
        row_key: &[u8],
        record: &[u8],
        blobs: &[u64],
    ) -> Result<bool, StoreError> {
        let mut head = std::mem::take(&mut self.head);
        if self.is_above_tail(row_key)? {
            self.attach(blobs, &[])?;
            let check = self.write_head(&mut head, table, key, spelling, row_key, record, blobs);
            let appended = self.writer()?.append(Tree::Rows, row_key, &[&head, record, &check]);
            if appended.map_err(|error| self.failed(error))? {
                if let Some(tail) = &mut self.tail {
                    tail.clear();
                    tail.extend_from_slice(row_key);
                }
                self.head = head;
                return Ok(false);
            }
        }
        let old = self.find(table, key, row_key)?;
        self.attach(blobs, old.as_ref().map_or(&[], |old| &old.blobs))?;
        // The first spelling of a key stays, as in a dict.
        let spelling = old.as_ref().map_or(spelling, |old| &old.spelling);
        let check = self.write_head(&mut head, table, key, spelling, row_key, record, blobs);
        let parts: [&[u8]; 3] = [&head, record, &check];
        let writer = self.writer()?;
        let done = match old {
            Some(_) => writer.replace_found(Tree::Rows, row_key, &parts),
            None => writer.put(Tree::Rows, row_key, &parts),
        };
        done.map_err(|error| self.failed(error))?;
        self.head = head;
        if let Some(old) = &old {
            let gone: Vec<u64> = old.blobs.iter().copied().filter(|id| !blobs.contains(id)).collect();
            self.delete_blobs(&gone)?;
        }
        Ok(old.is_some())
    }

    /// Write the head of a row's cell; returns its check.
    #[allow(clippy::too_many_arguments, reason = "all that a cell is made of")]
    fn write_head(
        &self,
        head: &mut Vec<u8>,
        table: TableId,
        key: &[u8],
        spelling: &[u8],
        row_key: &[u8],
        record: &[u8],
        blobs: &[u64],
    ) -> [u8; CHECK_SIZE] {
        if is_long(row_key, self.database.key_size_max) {
            let whole_key = [Prefix::of(table).as_bytes(), key].concat();
            write_head(head, spelling, &whole_key, blobs);
        } else {
            write_head(head, spelling, &[], blobs);
        }
        check_of(row_key, head, record).to_le_bytes()
    }

    /// Look a row up and stay there; what its head says, if it is there.
    pub(crate) fn find(
        &mut self,
        table: TableId,
        key: &[u8],
        row_key: &[u8],
    ) -> Result<Option<Found>, StoreError> {
        let database = Arc::clone(&self.database);
        let found = match self.writer()?.find(Tree::Rows, row_key) {
            Ok(found) => found,
            Err(error) => return Err(database.error(error)),
        };
        let Some(bytes) = found else { return Ok(None) };
        match database.cell(table, key, row_key, bytes)? {
            Some(cell) => Ok(Some(Found { blobs: cell.blobs().collect(), spelling: cell.spelling.to_vec() })),
            None => Err(StoreError::KeyCollision { table: table.0.to_string() }),
        }
    }

    /// Whether a row key is above all there are.
    fn is_above_tail(&mut self, row_key: &[u8]) -> Result<bool, StoreError> {
        if let Some(tail) = &self.tail {
            return Ok(row_key > &tail[..]);
        }
        let mut cursor = self.reader()?.cursor(Tree::Rows).map_err(|error| self.database.error(error))?;
        let last = cursor.start(Start::Edge, Direction::Reverse).and_then(|()| cursor.step());
        let last = last.map_err(|error| self.database.error(error))?;
        let tail = last.map_or_else(Vec::new, |(row_key, _)| row_key.to_vec());
        drop(cursor);
        let is_above = row_key > &tail[..];
        self.tail = Some(tail);
        Ok(is_above)
    }

    /// Delete a row with its blobs; says whether it was there.
    ///
    /// # Errors
    /// `NoSuchTable`, or when no room is left to copy a page.
    pub fn delete(&mut self, table: TableId, key: &[u8]) -> Result<bool, StoreError> {
        self.entry(table)?;
        let row_key = RowKey::new(table, key, self.database.key_size_max);
        let row_key = row_key.as_bytes();
        let blobs = match self.find(table, key, row_key) {
            Ok(Some(found)) => found.blobs,
            Ok(None) | Err(StoreError::KeyCollision { .. }) => return Ok(false),
            Err(error) => return Err(error),
        };
        let deleted = self.writer()?.delete_found(Tree::Rows, row_key);
        deleted.map_err(|error| self.failed(error))?;
        if self.tail.as_deref() == Some(row_key) {
            self.tail = None;
        }
        self.delete_blobs(&blobs)?;
        let entry = self.entry(table)?;
        entry.state.row_count = entry.state.row_count.saturating_sub(1);
        entry.is_changed = true;
        Ok(true)
    }

    // Large values.

    /// Store a value apart and return its id, for a record that is put in this transaction. A blob that no row
    /// has taken by the commit is not stored.
    ///
    /// # Errors
    /// `TooLarge`, or when no room is left.
    pub fn put_blob(&mut self, payload: &[u8]) -> Result<u64, StoreError> {
        Self::check_size(payload.len())?;
        let id = self.counters.next_blob;
        let check = blob::check_of(id, payload).to_le_bytes();
        // Ids only grow, so a blob is always the tree's last entry.
        let put = self.writer()?.append(Tree::Blobs, &id.to_be_bytes(), &[payload, &check]);
        if !put.map_err(|error| self.failed(error))? {
            return Err(self
                .database
                .corrupt("its large values", "an id stands there that was never given out"));
        }
        self.counters.next_blob += 1;
        self.database.blob_floor.fetch_max(self.counters.next_blob, Ordering::Relaxed);
        self.loose_blobs.push(id);
        Ok(id)
    }

    /// Give blobs to a row: new ones, or those that it has.
    pub(crate) fn attach(&mut self, blobs: &[u64], old: &[u64]) -> Result<(), StoreError> {
        for id in blobs {
            if let Some(index) = self.loose_blobs.iter().position(|loose| loose == id) {
                self.loose_blobs.swap_remove(index);
            } else if !old.contains(id) {
                return Err(StoreError::NoSuchBlob { id: *id });
            }
        }
        Ok(())
    }

    pub(crate) fn delete_blobs(&mut self, blobs: &[u64]) -> Result<(), StoreError> {
        for id in blobs {
            let deleted = self.writer()?.delete(Tree::Blobs, &id.to_be_bytes());
            deleted.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    // Ending.

    /// Begin a part that can be taken back on its own.
    ///
    /// # Errors
    /// When memory is short.
    pub fn savepoint(&mut self) -> Result<Savepoint, StoreError> {
        let done = self.writer()?.savepoint();
        done.map_err(|error| self.failed(error))?;
        self.saved.push(Saved { tables: self.tables.clone(), loose_blobs: self.loose_blobs.clone() });
        Ok(Savepoint(self.saved.len()))
    }

    /// Take back everything since a savepoint; it and later ones are gone.
    ///
    /// # Errors
    /// `NoSuchSavepoint`.
    pub fn rollback_to(&mut self, savepoint: Savepoint) -> Result<(), StoreError> {
        self.check_savepoint(savepoint)?;
        while self.saved.len() >= savepoint.0 {
            // The ids of tables and blobs made since are not used again; nor are those of shapes, which stay.
            let done = self.writer()?.rollback();
            done.map_err(|error| self.failed(error))?;
            if let Some(saved) = self.saved.pop() {
                self.tables = saved.tables;
                self.loose_blobs = saved.loose_blobs;
            }
            self.tail = None;
        }
        Ok(())
    }

    /// Keep what was done since a savepoint; it and later ones are gone.
    ///
    /// # Errors
    /// `NoSuchSavepoint`.
    pub fn release(&mut self, savepoint: Savepoint) -> Result<(), StoreError> {
        self.check_savepoint(savepoint)?;
        while self.saved.len() >= savepoint.0 {
            let done = self.writer()?.release();
            done.map_err(|error| self.failed(error))?;
            self.saved.pop();
        }
        Ok(())
    }

    fn check_savepoint(&self, savepoint: Savepoint) -> Result<(), StoreError> {
        self.reader()?;
        if savepoint.0 == 0 || savepoint.0 > self.saved.len() {
            return Err(StoreError::NoSuchSavepoint);
        }
        Ok(())
    }

    /// Make all changes visible and lasting. Afterwards, or after an error other than `WrongThread`, the
    /// transaction is over.
    ///
    /// # Errors
    /// When the changes could not be written; then none is visible.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        self.reader()?;
        if !self.is_changed {
            self.abort();
            return Ok(());
        }
        let committed = self.write_books().and_then(|()| self.commit_engine());
        self.abort();
        committed
    }

    /// Write what was kept in memory: counts, counters, shapes.
    fn write_books(&mut self) -> Result<(), StoreError> {
        let loose = std::mem::take(&mut self.loose_blobs);
        self.delete_blobs(&loose)?;
        let version = self.writer()?.version();
        self.counters.version = version;
        self.counters.shape_count = self.shapes.count();
        let mut entries = Vec::new();
        for entry in self.tables.iter().filter(|entry| entry.is_changed) {
            entries.push(entry.state.entry(entry.table));
        }
        for (id, shape) in (self.shapes.start()..).zip(self.shapes.own()) {
            entries.push(catalog::shape_entry(id, shape));
        }
        entries.push(self.counters.entry());
        self.put_entries(&entries)
    }

    fn commit_engine(&mut self) -> Result<(), StoreError> {
        let write = self.write.take().ok_or(StoreError::Closed { what: "transaction" })?;
        let own = self.shapes.own();
        if own.is_empty() {
            return write.commit().map_err(|error| self.database.write_error(error));
        }
        let (version, start) = (self.counters.version, self.shapes.start());
        self.database.commit_with_shapes(version, start, &own, || write.commit())
    }

    /// End without a trace; the same as dropping it.
    pub fn abort(&mut self) {
        // In this order: whoever gets the lock next must not have to wait for the engine.
        self.write = None;
        self.lock = None;
        self.saved.clear();
    }
}
