//! Rows that change in the commit of a row that is changed alone (`RowAccess::change_row`).
//!
//! They are index entries. The store, which decides what becomes of the row, adds them here. The
//! engine looks up which of them are there, since it counts the rows that come and go.

use std::ops::Range;

use crate::engine::HashedKey;

/// Changes of rows beside the one that is changed, in reusable memory.
#[derive(Default)]
pub struct OtherRows {
    bytes: Vec<u8>,
    list: Vec<Listed>,
    /// The begin and the end of each range in which there may be no row.
    empty: Vec<[Range<usize>; 2]>,
}

struct Listed {
    key: Range<usize>,
    hash: u64,
    /// `None`: it is deleted.
    value: Option<Range<usize>>,
    is_new: bool,
}

/// One of the changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OtherRow<'a> {
    pub(crate) key: HashedKey<'a>,
    /// `None`: it is deleted, if it is there.
    pub(crate) value: Option<&'a [u8]>,
    /// Whether it is known not to be there.
    pub(crate) is_new: bool,
}

impl OtherRows {
    /// Remove all changes.
    #[inline]
    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.list.clear();
        self.empty.clear();
    }

    /// How many rows change.
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    /// Put a row whose value is the concatenation of two parts. `is_new`: it is known not to be
    /// there.
    pub(crate) fn put(&mut self, key: HashedKey<'_>, [head, check]: [&[u8]; 2], is_new: bool) {
        let key_at = self.keep(key.bytes);
        let (begin, end) = (self.keep(head).start, self.keep(check).end);
        self.list.push(Listed { key: key_at, hash: key.hash, value: Some(begin..end), is_new });
    }

    /// Delete a row, if it is there.
    pub(crate) fn delete(&mut self, key: HashedKey<'_>) {
        let key_at = self.keep(key.bytes);
        self.list.push(Listed { key: key_at, hash: key.hash, value: None, is_new: false });
    }

    /// Change nothing at all if there is a row from `start` on and below `end`.
    pub(crate) fn expect_none(&mut self, start: &[u8], end: &[u8]) {
        let range = [self.keep(start), self.keep(end)];
        self.empty.push(range);
    }

    fn keep(&mut self, bytes: &[u8]) -> Range<usize> {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        start..self.bytes.len()
    }

    fn at(&self, range: &Range<usize>) -> &[u8] {
        self.bytes.get(range.clone()).unwrap_or_default()
    }

    /// The changes, in the order in which they were added.
    pub(crate) fn rows(&self) -> impl Iterator<Item = OtherRow<'_>> {
        self.list.iter().map(|listed| OtherRow {
            key: HashedKey { bytes: self.at(&listed.key), hash: listed.hash },
            value: listed.value.as_ref().map(|value| self.at(value)),
            is_new: listed.is_new,
        })
    }

    /// The ranges in which there may be no row: each its first key, and the key after its last.
    pub(crate) fn empty_ranges(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.empty.iter().map(|[start, end]| (self.at(start), self.at(end)))
    }
}
