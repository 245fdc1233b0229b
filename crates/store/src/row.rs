//! A row, in place, and ranges of rows.

use std::ops::Bound;

/// The keys that a walk visits; the bounds are key codes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// Where the range begins.
    pub start: Bound<Vec<u8>>,
    /// Where the range ends.
    pub end: Bound<Vec<u8>>,
}

impl Range {
    /// All keys.
    pub const ALL: Self = Self { start: Bound::Unbounded, end: Bound::Unbounded };

    /// The keys from `start` on, below `end`.
    #[must_use]
    pub fn half_open(start: Vec<u8>, end: Vec<u8>) -> Self {
        Self { start: Bound::Included(start), end: Bound::Excluded(end) }
    }

    /// Whether a key lies within.
    #[inline]
    #[must_use]
    pub fn contains(&self, key: &[u8]) -> bool {
        let is_behind_start = match &self.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= &start[..],
            Bound::Excluded(start) => key > &start[..],
        };
        is_behind_start
            && match &self.end {
                Bound::Unbounded => true,
                Bound::Included(end) => key <= &end[..],
                Bound::Excluded(end) => key < &end[..],
            }
    }
}

/// One row of a walk, in place.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// The key's code.
    pub key: &'a [u8],
    /// What the code leaves out of the key; mostly empty.
    pub spelling: &'a [u8],
    /// The record.
    pub record: &'a [u8],
}

/// What tells a row from others: its key, as `Row` has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowName<'a> {
    /// The key's code.
    pub key: &'a [u8],
    /// What the code leaves out of the key; mostly empty.
    pub spelling: &'a [u8],
}
