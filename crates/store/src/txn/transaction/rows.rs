//! Writes rows and large values.
//!
//! A key above all others is appended to its tree without a search, and fills pages completely. Any
//! other key is looked up first, since an existing row may have large values, which are deleted
//! with it.

use std::sync::atomic::Ordering;

use super::Transaction;
use crate::catalog::blob;
use crate::catalog::cell::{CHECK_SIZE, Cell, check_alone, check_of, write_head};
use crate::catalog::index_entries::all_indexes;
use crate::engine::{Direction, HashedKey, Start, Tree};
use crate::error::{Result, StoreError};
use crate::row::Row;
use crate::row_key::{Prefix, RowKey, TableId, is_long};

/// The head of a stored row, apart from its key.
pub(crate) struct RowHead {
    pub(crate) blobs: Vec<u64>,
    spelling: Vec<u8>,
}

impl Transaction {
    /// Set a key to a record. Returns whether the key was there; if so, its first spelling stays.
    /// `blobs` are the ids of the large values that the record refers to: new ones of this
    /// transaction, or those that the row had before. Blobs that the row no longer refers to are
    /// deleted.
    ///
    /// # Errors
    /// `TableDropped`, `TooLarge`, `NoSuchBlob` for a blob of another row, or when no room is left.
    pub fn put(
        &mut self,
        table: TableId,
        key: &[u8],
        spelling: &[u8],
        record: &[u8],
        blobs: &[u64],
    ) -> Result<bool> {
        Self::check_size(key.len() + spelling.len() + record.len())?;
        if spelling.is_empty()
            && blobs.is_empty()
            && let Some(was_there) = self.put_plain(table, key, record)?
        {
            return Ok(was_there);
        }
        match self.index_set(table)? {
            None => self.put_row(table, Row { key, spelling, record }, blobs),
            Some(set) => {
                let old = self.old_row(table, key)?;
                // The first spelling of a key stays.
                let spelling = old.as_ref().map_or(spelling, |old| &old.spelling);
                let row = |record| Row { key, spelling, record };
                let before = old.as_ref().map(|old| row(&old.record));
                let changes = self.index_changes(&set, table, before.as_ref(), Some(&row(record)))?;
                let was_there = old.is_some();
                let limit = self.database.key_size_max;
                if was_there || is_long(RowKey::new(table, key, limit).as_bytes(), limit) {
                    self.put_row(table, row(record), blobs)?;
                } else {
                    self.put_new_row(table, row(record), blobs)?;
                }
                self.apply_index_changes(key, changes)?;
                Ok(was_there)
            }
        }
    }

    /// As `put`, for nearly all rows: a record alone, under a key that is just its code, in a table
    /// without indexes. `None`, and nothing is done, if the row or the one that it replaces is more
    /// than that.
    fn put_plain(&mut self, table: TableId, key: &[u8], record: &[u8]) -> Result<Option<bool>> {
        if !self.is_plain(table)? {
            return Ok(None);
        }
        let limit = self.database.key_size_max;
        let row_key = RowKey::new(table, key, limit);
        if is_long(row_key.as_bytes(), limit) {
            return Ok(None);
        }
        let row_key = HashedKey::of(row_key.as_bytes());
        let check = check_alone(row_key.hash, record).to_le_bytes();
        let may_replace = |old: &[u8]| Cell::outside(old).is_some_and(|cell| cell.is_plain());
        let put = self.writer()?.put_row(row_key, [record, &check], may_replace);
        let put = put.map_err(|error| self.failed(error))?;
        if put == Some(false) {
            self.count_row(table, 1)?;
        }
        Ok(put)
    }

    /// Whether a table exists and has no indexes. It is nearly always the same table as the last
    /// time, across transactions.
    #[inline]
    pub(crate) fn is_plain(&mut self, table: TableId) -> Result<bool> {
        if self.plain == Some(table) {
            return Ok(true);
        }
        let is_plain = self.entry(table)?.state.index_serial == 0;
        if let Some(version) = self.catalog_version.filter(|_| is_plain) {
            self.plain = Some(table);
            self.database.note_plain(version, table);
        }
        Ok(is_plain)
    }

    /// Count a row that was added or deleted. The table's row count is only read if this
    /// transaction needs it anyway.
    fn count_row(&mut self, table: TableId, more: i64) -> Result<()> {
        if self.plain != Some(table) || self.tables.iter().any(|entry| entry.table == table) {
            self.entry(table)?.count(more);
        } else if let Some((_, rows)) = self.more_rows.iter_mut().find(|(of, _)| *of == table) {
            *rows += more;
        } else {
            self.more_rows.push((table, more));
        }
        Ok(())
    }

    /// As `put_row`, for a row that is known not to be there, under a key that is not long.
    fn put_new_row(&mut self, table: TableId, row: Row<'_>, blobs: &[u64]) -> Result<()> {
        let row_key = RowKey::new(table, row.key, self.database.key_size_max);
        let row_key = row_key.as_bytes();
        self.attach(blobs, &[])?;
        let mut head = std::mem::take(&mut self.head);
        let check = self.write_head(&mut head, table, row, row_key, blobs);
        let parts: [&[u8]; 3] = [&head, row.record, &check];
        if !self.append_row(row_key, &parts)? {
            let put = self.writer()?.put(Tree::Rows, row_key, &parts);
            put.map_err(|error| self.failed(error))?;
        }
        self.head = head;
        self.count_row(table, 1)
    }

    fn put_row(&mut self, table: TableId, row: Row<'_>, blobs: &[u64]) -> Result<bool> {
        let row_key = RowKey::new(table, row.key, self.database.key_size_max);
        let was_there = self.put_cell(table, row, row_key.as_bytes(), blobs)?;
        if !was_there {
            self.count_row(table, 1)?;
        }
        Ok(was_there)
    }

    pub(crate) fn check_size(size: usize) -> Result<()> {
        const OVERHEAD: u64 = 64;
        if size as u64 + OVERHEAD > u64::from(u32::MAX) {
            return Err(StoreError::TooLarge { size: size as u64 });
        }
        Ok(())
    }

    fn put_cell(&mut self, table: TableId, row: Row<'_>, row_key: &[u8], blobs: &[u64]) -> Result<bool> {
        let mut head = std::mem::take(&mut self.head);
        if self.is_above_tail(row_key)? {
            self.attach(blobs, &[])?;
            let check = self.write_head(&mut head, table, row, row_key, blobs);
            if self.append_row(row_key, &[&head, row.record, &check])? {
                self.head = head;
                return Ok(false);
            }
        }
        let old = self.find(table, row.key, row_key)?;
        self.attach(blobs, old.as_ref().map_or(&[], |old| &old.blobs))?;
        // The first spelling of a key stays, as in a dict.
        let spelling = old.as_ref().map_or(row.spelling, |old| &old.spelling);
        let check = self.write_head(&mut head, table, Row { spelling, ..row }, row_key, blobs);
        let parts: [&[u8]; 3] = [&head, row.record, &check];
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

    /// Write the head of a row's cell. Returns its check.
    pub(in crate::txn) fn write_head(
        &self,
        head: &mut Vec<u8>,
        table: TableId,
        row: Row<'_>,
        row_key: &[u8],
        blobs: &[u64],
    ) -> [u8; CHECK_SIZE] {
        if is_long(row_key, self.database.key_size_max) {
            let whole_key = [Prefix::of(table).as_bytes(), row.key].concat();
            write_head(head, row.spelling, &whole_key, blobs);
        } else {
            write_head(head, row.spelling, &[], blobs);
        }
        check_of(row_key, head, row.record).to_le_bytes()
    }

    /// Look a row up and keep the position. Returns its head, if it is there.
    pub(crate) fn find(&mut self, table: TableId, key: &[u8], row_key: &[u8]) -> Result<Option<RowHead>> {
        let (writer, database) = self.writer_and_database()?;
        let found = match writer.find(Tree::Rows, row_key) {
            Ok(found) => found,
            Err(error) => return Err(database.error(error)),
        };
        let Some(bytes) = found else { return Ok(None) };
        match database.outside(table, key, row_key, bytes)? {
            Some(cell) => {
                Ok(Some(RowHead { blobs: cell.blobs().collect(), spelling: cell.spelling.to_vec() }))
            }
            None => Err(self.collision(table)),
        }
    }

    /// The error for a long key with the same hash as another one of the table, or of the index.
    #[cold]
    fn collision(&self, id: TableId) -> StoreError {
        let indexes = self.reader().map(|reader| all_indexes(reader).unwrap_or_default());
        let index = indexes.unwrap_or_default().into_iter().find(|info| info.id == id);
        let table = self.table_name(index.map_or(id, |info| info.table));
        StoreError::KeyCollision { table }
    }

    /// Append a row above all others. False, and nothing is written, if it is not above them, or if
    /// appending is no cheaper.
    pub(crate) fn append_row(&mut self, row_key: &[u8], parts: &[&[u8]]) -> Result<bool> {
        if !self.is_above_tail(row_key)? {
            return Ok(false);
        }
        let appended = self.writer()?.append(Tree::Rows, row_key, parts);
        let is_appended = appended.map_err(|error| self.failed(error))?;
        if is_appended && let Some(tail) = &mut self.tail {
            tail.clear();
            tail.extend_from_slice(row_key);
        }
        Ok(is_appended)
    }

    /// Forget the tree's last row if it was this one.
    pub(crate) fn forget_tail(&mut self, row_key: &[u8]) {
        if self.tail.as_deref() == Some(row_key) {
            self.tail = None;
        }
    }

    /// Whether a row key is above all row keys of the tree.
    fn is_above_tail(&mut self, row_key: &[u8]) -> Result<bool> {
        if !self.reader()?.prefers_append() {
            return Ok(false);
        }
        if let Some(tail) = &self.tail {
            return Ok(row_key > &tail[..]);
        }
        let mut cursor = self.rows()?.cursor(Tree::Rows).map_err(|error| self.database.error(error))?;
        let last = cursor.start(Start::Edge, Direction::Reverse).and_then(|()| cursor.step());
        let last = last.map_err(|error| self.database.error(error))?;
        let tail = last.map_or_else(Vec::new, |(row_key, _)| row_key.to_vec());
        drop(cursor);
        let is_above = row_key > &tail[..];
        self.tail = Some(tail);
        Ok(is_above)
    }

    /// Delete a row with its blobs. Returns whether it was there.
    ///
    /// # Errors
    /// `TableDropped`, or when no room is left to copy a page.
    pub fn delete(&mut self, table: TableId, key: &[u8]) -> Result<bool> {
        let Some(set) = self.index_set(table)? else {
            let Some(spelling) = self.delete_row(table, key)? else { return Ok(false) };
            self.keep_next_int(table, key, &spelling)?;
            return Ok(true);
        };
        let Some(old) = self.old_row(table, key)? else { return Ok(false) };
        let row = Row { key, spelling: &old.spelling, record: &old.record };
        let changes = self.index_changes(&set, table, Some(&row), None)?;
        let was_there = self.delete_row(table, key)?.is_some();
        self.apply_index_changes(key, changes)?;
        self.keep_next_int(table, key, &old.spelling)?;
        Ok(was_there)
    }

    /// Delete a row. Returns the spelling of its key, if it was there.
    fn delete_row(&mut self, table: TableId, key: &[u8]) -> Result<Option<Vec<u8>>> {
        let row_key = RowKey::new(table, key, self.database.key_size_max);
        let row_key = row_key.as_bytes();
        let found = match self.find(table, key, row_key) {
            Ok(Some(found)) => found,
            Ok(None) | Err(StoreError::KeyCollision { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        let is_long = is_long(row_key, self.database.key_size_max);
        let deleted = if is_long || !found.spelling.is_empty() {
            let whole_key = if is_long { [Prefix::of(table).as_bytes(), key].concat() } else { Vec::new() };
            self.say_key(row_key, &found.spelling, &whole_key)?;
            self.writer()?.delete(Tree::Rows, row_key).map(|_| ())
        } else {
            self.writer()?.delete_found(Tree::Rows, row_key)
        };
        deleted.map_err(|error| self.failed(error))?;
        self.forget_tail(row_key);
        self.delete_blobs(&found.blobs)?;
        self.count_row(table, -1)?;
        Ok(Some(found.spelling))
    }

    /// Write an empty row under a key that is about to be deleted, if the row key alone does not
    /// identify the key: watchers could not learn the key from the delete.
    pub(super) fn say_key(&mut self, row_key: &[u8], spelling: &[u8], whole_key: &[u8]) -> Result<()> {
        if spelling.is_empty() && whole_key.is_empty() {
            return Ok(());
        }
        let mut head = Vec::new();
        write_head(&mut head, spelling, whole_key, &[]);
        let check = check_of(row_key, &head, &[]).to_le_bytes();
        let put = self.writer()?.put(Tree::Rows, row_key, &[&head, &check]);
        put.map_err(|error| self.failed(error))
    }

    /// Store a large value and return its id, for a record that is put in this transaction. A blob
    /// that no row refers to at the commit is not stored.
    ///
    /// # Errors
    /// `TooLarge`, or when no room is left.
    pub fn put_blob(&mut self, payload: &[u8]) -> Result<u64> {
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

    /// Give blobs to a row: new ones, or those that it had.
    pub(crate) fn attach(&mut self, blobs: &[u64], old: &[u64]) -> Result<()> {
        for id in blobs {
            if let Some(index) = self.loose_blobs.iter().position(|loose| loose == id) {
                self.loose_blobs.swap_remove(index);
            } else if !old.contains(id) {
                return Err(StoreError::NoSuchBlob { id: *id });
            }
        }
        Ok(())
    }

    pub(crate) fn delete_blobs(&mut self, blobs: &[u64]) -> Result<()> {
        for id in blobs {
            let deleted = self.writer()?.delete(Tree::Blobs, &id.to_be_bytes());
            deleted.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::Store;
    use crate::engine::EngineError;

    #[test]
    fn a_long_key_with_the_hash_of_another_is_refused_with_the_name_of_its_table() {
        let store = Store::memory().unwrap();
        let mut transaction = store.begin(Duration::ZERO).unwrap();
        let table = transaction.create_table("people").unwrap();
        let long = |letter: u8| vec![letter; 3000];
        let row_key = RowKey::new(table, &long(b'a'), transaction.database.key_size_max);
        // What another key with the same hash would have left there.
        let mut cell = Vec::new();
        write_head(&mut cell, &[], &[Prefix::of(table).as_bytes(), &long(b'b')].concat(), &[]);
        let check = check_of(row_key.as_bytes(), &cell, b"record").to_le_bytes();
        transaction
            .writer()
            .unwrap()
            .put(Tree::Rows, row_key.as_bytes(), &[&cell, &b"record"[..], &check])
            .unwrap();
        let refused = transaction.put(table, &long(b'a'), &[], b"record", &[]).unwrap_err();
        assert!(matches!(&refused, StoreError::KeyCollision { table } if table == "people"), "{refused}");
        assert!(refused.to_string().contains("'people'"), "{refused}");
        assert!(!transaction.delete(table, &long(b'a')).unwrap());
    }

    #[test]
    fn an_error_of_the_program_is_not_called_damage() {
        let store = Store::memory().unwrap();
        let mut transaction = store.begin(Duration::ZERO).unwrap();
        let error = transaction.failed(EngineError::Misuse("a find came too late")).to_string();
        assert!(error.contains("an error of pellucid itself") && error.contains("a find came too late"));
        assert!(!error.contains("damaged") && !error.contains("backup"), "{error}");
    }
}
