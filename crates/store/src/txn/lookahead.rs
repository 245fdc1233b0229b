//! Keys of rows that are read next, one after the other: a walk along an index reads rows from all
//! over the table.
//!
//! A row in a part of the tree that no processor cache holds takes a microsecond, nearly all of it
//! waits for memory. Several rows that are found together (`engine/lmdb/search_many.rs`) wait at
//! the same time. Rows under keys near each other need no such help, since a search begins at the
//! leaf of the last search.

use std::ops::Range;

use crate::engine::{EntryPlace, ReadTxn, Tree};
use crate::row_key::{Prefix, TableId};

/// Keys that are found together.
const COUNT_MAX: usize = 64;
/// How many times in a row keys are not found ahead, once they were near each other.
const PAUSE: usize = 15;

/// A list of keys of one table, read from the first on.
pub struct Lookahead {
    table: TableId,
    /// Row keys and spellings, one after the other.
    bytes: Vec<u8>,
    rows: Vec<Ahead>,
    next: usize,
    is_found: bool,
    count_wanted: usize,
    pause: usize,
}

struct Ahead {
    row_key: Range<usize>,
    spelling: Range<usize>,
    place: EntryPlace,
}

impl Lookahead {
    /// An empty list for keys of this table.
    #[must_use]
    pub fn new(table: TableId) -> Self {
        let (bytes, rows) = (Vec::new(), Vec::new());
        Self { table, bytes, rows, next: 0, is_found: false, count_wanted: 1, pause: 0 }
    }

    /// Empty the list, and return how many keys should be added: a single one at first, since the
    /// caller may want no more rows.
    pub fn restart(&mut self) -> usize {
        self.bytes.clear();
        self.rows.clear();
        (self.next, self.is_found) = (0, false);
        let count = self.count_wanted;
        self.count_wanted = (2 * count).min(COUNT_MAX);
        count
    }

    /// Add a key: its code and its spelling.
    pub fn push(&mut self, key: &[u8], spelling: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(Prefix::of(self.table).as_bytes());
        self.bytes.extend_from_slice(key);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(spelling);
        let (row_key, spelling) = (start..middle, middle..self.bytes.len());
        self.rows.push(Ahead { row_key, spelling, place: EntryPlace::default() });
    }

    /// The key at which the list stands, and its spelling. `None` at its end.
    #[inline]
    #[must_use]
    pub fn key(&self) -> Option<(&[u8], &[u8])> {
        let row = self.rows.get(self.next)?;
        let key = self.bytes.get(row.row_key.clone())?.get(Prefix::of(self.table).size()..)?;
        Some((key, self.bytes.get(row.spelling.clone())?))
    }

    /// Go on to the next key.
    #[inline]
    pub fn pass(&mut self) {
        self.next += 1;
    }

    /// The key at which the list stands, with the table before it and alone, and where the row is.
    #[inline]
    pub(crate) fn current(&self) -> Option<(&[u8], &[u8], EntryPlace)> {
        let row = self.rows.get(self.next)?;
        let row_key = self.bytes.get(row.row_key.clone())?;
        Some((row_key, row_key.get(Prefix::of(self.table).size()..)?, row.place))
    }

    /// The table of the rows.
    pub(crate) fn table(&self) -> TableId {
        self.table
    }

    /// Find where the rows are, once for each list.
    pub(crate) fn find(&mut self, txn: &dyn ReadTxn, limit: usize) {
        if std::mem::replace(&mut self.is_found, true) || self.rows.len() < 2 {
            return;
        }
        if self.pause > 0 {
            self.pause -= 1;
            return;
        }
        let mut keys: [&[u8]; COUNT_MAX] = [&[]; COUNT_MAX];
        let mut places = [EntryPlace::default(); COUNT_MAX];
        for (key, row) in keys.iter_mut().zip(&self.rows) {
            // A longer key is hashed: nothing is found under it.
            *key = self.bytes.get(row.row_key.clone()).filter(|key| key.len() < limit).unwrap_or_default();
        }
        let count = self.rows.len().min(COUNT_MAX);
        let (Some(keys), Some(found)) = (keys.get(..count), places.get_mut(..count)) else { return };
        txn.find_many(Tree::Rows, keys, found);
        let near = found.windows(2).filter(|pair| matches!(pair, [one, next] if one.is_near(*next))).count();
        if near > count / 2 {
            self.pause = PAUSE;
        }
        for (row, place) in self.rows.iter_mut().zip(places) {
            row.place = place;
        }
    }
}
