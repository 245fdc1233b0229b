//! Reads or changes one row without a snapshot and without a transaction.
//!
//! The engine does it at once or not at all (`Engine::change_row`). This module makes a row key of
//! a key, and a cell of a record. A row that is more than a plain cell goes through a transaction:
//! keys that are too long or have a spelling, records with large values.

use std::sync::Arc;

use crate::catalog::cell::{CHECK_SIZE, Cell, check_alone, check_of};
use crate::catalog::row_key::{RowKey, TableId, in_place, is_long, split};
use crate::database::Database;
use crate::engine::{AtOnce, Choice, HashedKey};
use crate::error::StoreError;
use crate::store::{Durability, Mode, OpenOptions, Store};
use crate::sys::os;
use crate::sys::short;

/// A table, and the version of the catalog in which it was found (`Snapshot::catalog_version`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// The table.
    pub table: TableId,
    /// The version.
    pub version: u64,
    /// Whether the table has indexes. If so, only transactions write its rows.
    pub is_indexed: bool,
}

/// An open database, for callers that put and get one row after the other: asking the store for it
/// takes a lock each time. Drop it before [`Store::close`], which could not close the file
/// otherwise, and before [`Store::compact`], which would report that the database is in use.
pub struct Hold {
    database: Arc<Database>,
    is_slow: bool,
}

impl Store {
    /// The open database, for single rows.
    ///
    /// # Errors
    /// `Closed`.
    pub fn hold(&self) -> Result<Hold, StoreError> {
        let (database, options) = (self.database()?, self.options());
        let is_slow = database.read_only.is_some() || is_slow(options);
        Ok(Hold { database, is_slow })
    }

    /// Set a key to a record without large values, in a commit of its own. Returns whether the key
    /// was there.
    ///
    /// # Errors
    /// As [`crate::Transaction::put`] and its commit.
    #[inline]
    pub fn put_at_once(&self, known: Known, key: &[u8], record: &[u8]) -> Result<AtOnce<bool>, StoreError> {
        self.alter(known, None, key, |row_key, old, out| {
            push_cell(row_key, record, out);
            Some((Choice::Put, old.is_some()))
        })
    }

    /// Put a record without large values under a key that is not there, in a commit of its own, if
    /// nothing was committed since `version`. The commit makes the next version.
    ///
    /// # Errors
    /// As [`crate::Transaction::put`] and its commit.
    #[inline]
    pub fn put_new_at_once(
        &self,
        known: Known,
        key: &[u8],
        record: &[u8],
        version: u64,
    ) -> Result<AtOnce<()>, StoreError> {
        self.alter(known, Some(version), key, |row_key, old, out| {
            if old.is_some() {
                return None;
            }
            push_cell(row_key, record, out);
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
    pub fn change_at_once<R>(
        &self,
        known: Known,
        key: &[u8],
        mut change: impl FnMut(Option<&[u8]>, &mut Vec<u8>) -> Option<R>,
    ) -> Result<AtOnce<R>, StoreError> {
        self.alter(known, None, key, |row_key, old, out| {
            // A new check must not hide that the old one is wrong.
            let is_intact = old.is_none_or(|cell| cell.is_intact_alone(row_key));
            let start = out.len();
            let done = is_intact.then(|| change(old.map(|cell| cell.record), out))??;
            let check = check_of(row_key, &[], out.get(start..).unwrap_or_default());
            out.extend_from_slice(&check.to_le_bytes());
            Some((Choice::Put, done))
        })
    }

    /// Delete a row in a commit of its own. A missing row, and the row with the greatest number,
    /// are left to a transaction.
    ///
    /// # Errors
    /// As [`crate::Transaction::delete`] and its commit.
    pub fn delete_at_once(&self, known: Known, key: &[u8]) -> Result<AtOnce<()>, StoreError> {
        if known.is_indexed || is_slow(self.options()) || !self.keeps_next_int(known.table, key)? {
            return Ok(AtOnce::Unable);
        }
        self.alter(known, None, key, |_, old, _| old.map(|_| (Choice::Delete, ())))
    }

    #[inline]
    fn alter<R>(
        &self,
        known: Known,
        version: Option<u64>,
        key: &[u8],
        mut change: impl FnMut(&[u8], Option<Cell<'_>>, &mut Vec<u8>) -> Option<(Choice, R)>,
    ) -> Result<AtOnce<R>, StoreError> {
        if known.is_indexed || is_slow(self.options()) {
            return Ok(AtOnce::Unable);
        }
        self.with_row_key(known.table, key, |database, row_key| {
            if database.read_only.is_some() {
                return Ok(AtOnce::Unable);
            }
            let mut done = None;
            let changed = database.engine.change_row(row_key, known.version, &mut |bytes, out| {
                if version.is_some_and(|version| database.engine.version() != version) {
                    return Choice::Leave;
                }
                let old = match bytes.map(Cell::parse) {
                    None => None,
                    Some(Some(cell)) if cell.is_plain() => Some(cell),
                    Some(_) => return Choice::Leave,
                };
                let Some((choice, result)) = change(row_key, old, out) else { return Choice::Leave };
                done = Some(result);
                choice
            });
            let changed = changed.map_err(|error| database.error(error))?;
            Ok(match (changed, done) {
                (AtOnce::Done(()), Some(done)) => AtOnce::Done(done),
                (AtOnce::Stale, _) => AtOnce::Stale,
                _ => AtOnce::Unable,
            })
        })
    }

    /// Call `show` with the current record of a key, if there is one. `show` has to copy what it
    /// wants to keep.
    ///
    /// # Errors
    /// As [`crate::Snapshot::get`].
    #[inline]
    pub fn show_at_once(
        &self,
        known: Known,
        key: &[u8],
        mut show: impl FnMut(&[u8]),
    ) -> Result<AtOnce<bool>, StoreError> {
        self.with_row_key(known.table, key, |database, row_key| show_row(database, known, row_key, &mut show))
    }

    /// Call `work` with the database and a row key. `Unable` if the key is too long to be stored as
    /// it is.
    #[inline]
    fn with_row_key<R>(
        &self,
        table: TableId,
        key: &[u8],
        work: impl FnOnce(&Database, &[u8]) -> Result<AtOnce<R>, StoreError>,
    ) -> Result<AtOnce<R>, StoreError> {
        let custody = self.link()?.database.lock();
        let database = custody.database()?;
        let limit = database.key_size_max;
        let row_key = RowKey::new(table, key, limit);
        let row_key = row_key.as_bytes();
        if is_long(row_key, limit) { Ok(AtOnce::Unable) } else { work(database, row_key) }
    }
}

/// Whether no write is done at once.
#[inline]
fn is_slow(options: &OpenOptions) -> bool {
    options.durability == Durability::Full || options.mode == Mode::Read
}

impl Hold {
    /// Bytes after a record that `put_roomy_at_once` needs.
    pub const RECORD_ROOM: usize = CHECK_SIZE;

    /// Whether it belongs to this process. After a fork a child must not use its parent's.
    #[inline]
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.database.generation == os::generation()
    }

    /// As [`Store::put_at_once`], for a key with a byte of room before it and a record with
    /// `RECORD_ROOM` after it. The stored bytes are made in place.
    ///
    /// # Errors
    /// As `Store::put_at_once`.
    #[inline]
    pub fn put_roomy_at_once(
        &self,
        known: Known,
        key: &mut [u8],
        record: &mut [u8],
    ) -> Result<AtOnce<bool>, StoreError> {
        if self.is_slow || known.is_indexed {
            return Ok(AtOnce::Unable);
        }
        let database = &*self.database;
        let Some(key) = in_place(key, known.table, database.key_size_max) else { return Ok(AtOnce::Unable) };
        let key = HashedKey::of(key);
        let Some((body, check)) = record.split_last_chunk_mut() else { return Ok(AtOnce::Unable) };
        *check = check_alone(key.hash, body).to_le_bytes();
        let may_replace = |old: &[u8]| Cell::parse(old).is_some_and(|cell| cell.is_plain());
        let put = database.engine.put_row(key, known.version, record, may_replace);
        put.map_err(|error| database.error(error))
    }

    /// As [`Store::show_at_once`], for a key with a byte of room before it. `show` also gets the
    /// row key, of which `key_of_roomy` returns the key.
    ///
    /// # Errors
    /// As `Store::show_at_once`.
    #[inline]
    pub fn show_roomy_at_once(
        &self,
        known: Known,
        key: &mut [u8],
        mut show: impl FnMut(&[u8], &[u8]),
    ) -> Result<AtOnce<bool>, StoreError> {
        let database = &*self.database;
        let Some(key) = in_place(key, known.table, database.key_size_max) else { return Ok(AtOnce::Unable) };
        show_row(database, known, key, &mut |record| show(key, record))
    }
}

/// The key in the row key that `show_roomy_at_once` passes to `show`.
#[must_use]
pub fn key_of_roomy(shown: &[u8]) -> &[u8] {
    split(shown).map_or(&[], |(_, key)| key)
}

#[inline]
fn show_row(
    database: &Database,
    known: Known,
    row_key: &[u8],
    show: &mut impl FnMut(&[u8]),
) -> Result<AtOnce<bool>, StoreError> {
    let (mut is_there, mut is_damaged) = (false, false);
    let shown = database.engine.show_row(row_key, known.version, &mut |bytes| {
        let Some(bytes) = bytes else { return };
        match Cell::record_of(bytes) {
            Some(record) => {
                is_there = true;
                show(record);
            }
            None => is_damaged = true,
        }
    });
    match shown {
        Ok(AtOnce::Done(())) if is_damaged => Err(database.damaged_row(known.table, row_key)),
        Ok(shown) => Ok(shown.map(|()| is_there)),
        Err(error) => Err(database.error(error)),
    }
}

/// Append a cell that consists of a record alone.
#[inline]
fn push_cell(row_key: &[u8], record: &[u8], out: &mut Vec<u8>) {
    let check = check_of(row_key, &[], record).to_le_bytes();
    short::push(out, record);
    out.extend_from_slice(&check);
}
