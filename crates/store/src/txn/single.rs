//! Reads or changes one row without a snapshot and without a transaction.
//!
//! The engine does it at once or not at all (`RowAccess::change_row`). This module makes a row key
//! of a key, and a cell of a record, and adds the index entries that change with the row
//! (`txn/single_entries.rs`). A row that is more than a plain cell goes through a transaction: keys
//! that are too long or have a spelling, records with large values.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::catalog::cell::{Cell, check_alone};
use crate::db::database::Database;
use crate::db::store::{Durability, Mode, Store};
use crate::engine::{Choice, HashedKey, OtherRows, TryResult};
use crate::error::Result;
use crate::row_key::{RowKey, TableId, is_long};
use crate::sys::os;
use crate::sys::short;
use crate::txn::single_entries::RowChange;

/// A table, and the version of the catalog in which it was found (`Snapshot::catalog_version`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownTable {
    /// The table.
    pub table: TableId,
    /// The version.
    pub version: u64,
    /// The serial of its indexes; 0: it has none.
    pub(crate) index_serial: u32,
}

/// An open database, for callers that put and get one row after the other: asking the store for it
/// takes a lock each time. Drop it before [`Store::close`], which could not close the file
/// otherwise, and before [`Store::compact`], which would report that the database is in use.
pub struct CachedDatabase {
    pub(crate) database: Arc<Database>,
    /// Whether no write is done at once.
    is_slow: bool,
}

/// Decides what becomes of a row, and appends its new cell. `None`: a transaction has to.
type Alter<'a, R> = dyn FnMut(HashedKey<'_>, Option<Cell<'_>>, &mut Vec<u8>) -> Option<(Choice, R)> + 'a;

impl Store {
    /// The open database, for single rows.
    ///
    /// # Errors
    /// `Closed`.
    pub fn cached_database(&self) -> Result<CachedDatabase> {
        let (database, options) = (self.database()?, self.options());
        let is_slow = database.read_only.is_some()
            || options.durability == Durability::Full
            || options.mode == Mode::Read;
        Ok(CachedDatabase { database, is_slow })
    }
}

impl CachedDatabase {
    /// Whether it belongs to this process. After a fork a child must not use its parent's.
    #[inline]
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.database.generation == os::generation()
    }

    /// Set a key to a record without large values, in a commit of its own. Returns whether the key
    /// was there.
    ///
    /// # Errors
    /// As [`crate::Transaction::put`] and its commit.
    #[inline]
    pub fn put(&self, known: KnownTable, key: &[u8], record: &[u8]) -> Result<TryResult<bool>> {
        self.alter(known, key, false, |key, old, out| {
            push_cell(key, record, out);
            Some((Choice::Put, old.is_some()))
        })
    }

    /// Put a record without large values under a key that is not there, in a commit of its own, if
    /// nothing was committed since `version`. The commit makes the next version.
    ///
    /// # Errors
    /// As [`crate::Transaction::put`] and its commit.
    #[inline]
    pub fn put_new(
        &self,
        known: KnownTable,
        key: &[u8],
        record: &[u8],
        version: u64,
    ) -> Result<TryResult<()>> {
        self.alter(known, key, false, |key, old, out| {
            if old.is_some() || self.database.engine.version() != version {
                return None;
            }
            push_cell(key, record, out);
            Some((Choice::Put, ()))
        })
    }

    /// Change a row in a commit of its own. `change` gets the record, if there is an undamaged one,
    /// and appends the new record to the buffer. If it returns `None`, a transaction has to make
    /// the change.
    ///
    /// # Errors
    /// As [`crate::Transaction::put`] and its commit.
    #[inline]
    pub fn change<R>(
        &self,
        known: KnownTable,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> Option<R>,
    ) -> Result<TryResult<R>> {
        self.alter(known, key, true, |key, old, out| {
            // A new check must not hide that the old one is wrong.
            let is_intact = old.is_none_or(|cell| cell.is_intact_alone(key.hash));
            let start = out.len();
            let done = is_intact.then(|| change(old.map(|cell| cell.record), out))??;
            let check = check_alone(key.hash, out.get(start..).unwrap_or_default());
            out.extend_from_slice(&check.to_le_bytes());
            Some((Choice::Put, done))
        })
    }

    /// Delete a row in a commit of its own. A missing row, and the row with the greatest number,
    /// are left to a transaction.
    ///
    /// # Errors
    /// As [`crate::Transaction::delete`] and its commit.
    pub fn delete(&self, known: KnownTable, key: &[u8]) -> Result<TryResult<()>> {
        if self.is_slow || !self.keeps_next_int(known.table, key)? {
            return Ok(TryResult::UseTransaction);
        }
        self.alter(known, key, false, |_, old, _| old.map(|_| (Choice::Delete, ())))
    }

    /// Change a row at once, with its index entries, if it is there as a plain cell or not at all.
    /// Unless `reads`, the record of a packed cell is left out.
    #[inline]
    fn alter<R>(
        &self,
        known: KnownTable,
        key: &[u8],
        reads: bool,
        mut change: impl FnMut(HashedKey<'_>, Option<Cell<'_>>, &mut Vec<u8>) -> Option<(Choice, R)>,
    ) -> Result<TryResult<R>> {
        if known.index_serial != 0 {
            return self.alter_indexed(known, key, &mut change);
        }
        let others = &mut OtherRows::default();
        self.alter_row(known, key, reads, others, |key, old, out, _| change(key, old, out))
    }

    /// As `alter`, for a table with indexes.
    fn alter_indexed<R>(
        &self,
        known: KnownTable,
        key: &[u8],
        change: &mut Alter<'_, R>,
    ) -> Result<TryResult<R>> {
        let database = &*self.database;
        // Another thread may be deriving entries; and no transaction may have prepared the indexes.
        let Ok(mut sets) = database.index_sets.try_lock() else { return Ok(TryResult::UseTransaction) };
        let Some((set, buffers)) = sets.find(known.index_serial) else {
            return Ok(TryResult::UseTransaction);
        };
        let mut others = std::mem::take(&mut buffers.others);
        others.clear();
        let done = self.alter_row(known, key, true, &mut others, |row_key, old, out, others| {
            // The entries of a damaged record are not known.
            if old.is_some_and(|cell| !cell.is_intact_alone(row_key.hash)) {
                return None;
            }
            let start = out.len();
            let (choice, done) = change(row_key, old, out)?;
            let new = out.get(start..).and_then(Cell::record_of).filter(|_| choice == Choice::Put);
            let row = RowChange { key, old: old.map(|cell| cell.record), new };
            let shapes = &*database.dictionary;
            let is_whole = set.add_entries(row, shapes, database.key_size_max, buffers, others);
            is_whole.then_some((choice, done))
        });
        if matches!(done, Ok(TryResult::Done(_))) {
            database.entry_writes.fetch_add(others.len() as u64, Ordering::Relaxed);
        }
        buffers.others = others;
        done
    }

    #[inline]
    fn alter_row<R>(
        &self,
        known: KnownTable,
        key: &[u8],
        reads: bool,
        others: &mut OtherRows,
        mut change: impl FnMut(
            HashedKey<'_>,
            Option<Cell<'_>>,
            &mut Vec<u8>,
            &mut OtherRows,
        ) -> Option<(Choice, R)>,
    ) -> Result<TryResult<R>> {
        let database = &*self.database;
        let row_key = RowKey::new(known.table, key, database.key_size_max);
        let row_key = row_key.as_bytes();
        if self.is_slow || is_long(row_key, database.key_size_max) {
            return Ok(TryResult::UseTransaction);
        }
        let key = HashedKey::of(row_key);
        let mut done = None;
        let changed = database.engine.change_row(key, known.version, others, &mut |bytes, out, others| {
            let old = match bytes.map(Cell::parse) {
                None => None,
                Some(Some(cell)) if cell.is_plain() => Some(cell),
                Some(Some(_)) => return Choice::Leave,
                Some(None) => {
                    return self.alter_packed(row_key, bytes.unwrap_or_default(), reads, &mut |old| {
                        let Some((choice, result)) = change(key, Some(old), out, others) else {
                            return Choice::Leave;
                        };
                        done = Some(result);
                        choice
                    });
                }
            };
            let Some((choice, result)) = change(key, old, out, others) else { return Choice::Leave };
            done = Some(result);
            choice
        });
        let changed = changed.map_err(|error| database.error(error))?;
        Ok(match (changed, done) {
            (TryResult::Done(()), Some(done)) => TryResult::Done(done),
            (TryResult::CatalogChanged, _) => TryResult::CatalogChanged,
            _ => TryResult::UseTransaction,
        })
    }

    /// As `alter`, for a row whose cell is packed and nothing more.
    #[cold]
    fn alter_packed(
        &self,
        row_key: &[u8],
        bytes: &[u8],
        reads: bool,
        choose: &mut dyn FnMut(Cell<'_>) -> Choice,
    ) -> Choice {
        let Some(outside) = Cell::outside(bytes).filter(Cell::is_plain) else { return Choice::Leave };
        if !reads {
            return choose(outside);
        }
        let mut choice = Choice::Leave;
        self.database.show_packed(row_key, bytes, &mut |record| {
            choice = choose(outside.with_record(record));
        });
        choice
    }

    /// Call `show` with the current record of a key, if there is one. `show` has to copy what it
    /// wants to keep. Returns whether there is one.
    ///
    /// # Errors
    /// As [`crate::Snapshot::get`].
    #[inline]
    pub fn show(
        &self,
        known: KnownTable,
        key: &[u8],
        mut show: impl FnMut(&[u8]),
    ) -> Result<TryResult<bool>> {
        let database = &*self.database;
        let row_key = RowKey::new(known.table, key, database.key_size_max);
        let row_key = row_key.as_bytes();
        if is_long(row_key, database.key_size_max) {
            return Ok(TryResult::UseTransaction);
        }
        let (mut is_there, mut is_unshown) = (false, false);
        let shown = database.engine.show_row(row_key, known.version, &mut |bytes| {
            let Some(bytes) = bytes else { return };
            if let Some(record) = Cell::record_of(bytes) {
                is_there = true;
                show(record);
            } else {
                is_there = database.show_packed(row_key, bytes, &mut show);
                is_unshown = !is_there;
            }
        });
        match shown {
            // A packed row whose dictionary is not known yet, or a damaged row: a snapshot tells.
            Ok(TryResult::Done(())) if is_unshown => Ok(TryResult::UseTransaction),
            Ok(shown) => Ok(shown.map(|()| is_there)),
            Err(error) => Err(database.error(error)),
        }
    }
}

/// Append a cell that consists of a record alone.
#[inline]
fn push_cell(key: HashedKey<'_>, record: &[u8], out: &mut Vec<u8>) {
    short::push(out, [record, &check_alone(key.hash, record).to_le_bytes()]);
}
