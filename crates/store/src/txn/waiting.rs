//! Rows of a transaction that wait until some can be looked up together.
//!
//! A row is looked up before it is put, since the key may be there. In a large table that takes a
//! microsecond, nearly all of it waits for memory: a third of the time of a load. Several keys that
//! are searched together wait at the same time (`engine/lmdb/search_many.rs`). So some rows are
//! kept here, and put before anything else is done in the transaction. They count as gathered
//! (`Load::is_pending`).

use std::ops::Range;

use super::transaction::Transaction;
use crate::engine::Tree;
use crate::error::Result;
use crate::row_key::{Prefix, RowKey, TableId, is_long};

/// Rows that are looked up together.
const COUNT: usize = 32;
/// The first rows of a transaction do not wait: a small one would only become slower.
const FIRST: usize = if cfg!(test) { 4 } else { 64 };
/// What a row takes in the log besides its key and its record, at most.
const ENTRY_SIZE_MAX: usize = 64;

/// The rows that wait.
#[derive(Default)]
pub(crate) struct Waiting {
    /// How many rows the transaction has put without waiting.
    direct: usize,
    /// The row key of the last row that did not wait, or of the last one that did.
    last: Vec<u8>,
    rows: Vec<Waiter>,
    /// Their row keys and records.
    bytes: Vec<u8>,
}

struct Waiter {
    table: TableId,
    row_key: Range<usize>,
    record: Range<usize>,
}

impl Waiting {
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// What the rows take in the log, at most.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.rows.len() * ENTRY_SIZE_MAX
    }

    fn note_last(&mut self, row_key: &[u8]) {
        self.last.clear();
        self.last.extend_from_slice(row_key);
    }

    /// Forget the rows.
    pub(crate) fn clear(&mut self) {
        self.rows.clear();
        self.bytes.clear();
    }

    fn push(&mut self, table: TableId, row_key: &[u8], record: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(row_key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(record);
        self.rows.push(Waiter { table, row_key: start..middle, record: middle..self.bytes.len() });
    }

    fn row(&self, row: &Waiter) -> Option<(&[u8], &[u8])> {
        Some((self.bytes.get(row.row_key.clone())?, self.bytes.get(row.record.clone())?))
    }
}

impl Transaction {
    /// Let a row wait, or put it, if it is a record alone in a table without indexes. Returns
    /// false, and does nothing, if it is more than that. The row has room in the log beside those
    /// that wait.
    pub(crate) fn put_with_others(&mut self, table: TableId, key: &[u8], record: &[u8]) -> Result<bool> {
        let limit = self.database.key_size_max;
        let row_key = RowKey::new(table, key, limit);
        if is_long(row_key.as_bytes(), limit) || !self.is_plain(table)? {
            return Ok(false);
        }
        let waiting = &mut self.load.waiting;
        // Ascending rows are found beside each other.
        if waiting.direct < FIRST || waiting.is_empty() && row_key.as_bytes() > &waiting.last[..] {
            waiting.direct += 1;
            waiting.note_last(row_key.as_bytes());
            return Ok(false);
        }
        waiting.push(table, row_key.as_bytes(), record);
        if waiting.rows.len() >= COUNT {
            self.put_waiting()?;
        }
        Ok(true)
    }

    /// Put the rows that wait.
    pub(crate) fn put_waiting(&mut self) -> Result<()> {
        if self.load.waiting.is_empty() {
            return Ok(());
        }
        // An error of the wrong thread leaves them where they are.
        self.reader()?;
        // While they are taken, the methods called below find none.
        let mut waiting = std::mem::take(&mut self.load.waiting);
        let done = self.put_each(&waiting);
        if let Some((row_key, _)) = waiting.rows.last().and_then(|row| waiting.row(row)) {
            let row_key = row_key.to_vec();
            waiting.note_last(&row_key);
        }
        waiting.clear();
        self.load.waiting = waiting;
        // Their puts have returned.
        self.is_failed |= done.is_err();
        done
    }

    fn put_each(&mut self, waiting: &Waiting) -> Result<()> {
        let mut keys = [&[][..]; COUNT];
        for (key, row) in keys.iter_mut().zip(&waiting.rows) {
            *key = waiting.row(row).map_or(&[], |(row_key, _)| row_key);
        }
        let keys = keys.get(..waiting.rows.len()).unwrap_or_default();
        if !keys.is_sorted() {
            self.reader()?.ask_for(Tree::Rows, keys);
        }
        for row in &waiting.rows {
            let Some((row_key, record)) = waiting.row(row) else { continue };
            let key = row_key.get(Prefix::of(row.table).size()..).unwrap_or_default();
            self.put(row.table, key, &[], record, &[])?;
        }
        Ok(())
    }
}
