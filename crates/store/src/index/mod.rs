//! Indexes: entries that find rows by their fields.
//!
//! The entries of an index are rows of the tree `rows`, under a table id of their own. An entry's
//! key is the codes of its parts, then the key code of the row (`pellucid_record::key`, "parts");
//! its record is empty, and its spelling is that of both. Every write of a row writes the changes
//! of its entries in the same commit (`txn/index_entries.rs`, and `txn/single_entries.rs` for a row
//! that is written alone). A [`Deriver`] makes the entries of a record, since this crate knows no
//! expressions.
//!
//! Here is how entries are derived, sorted and compared. `txn/index_batch.rs` writes the entries of
//! a batch in order, `txn/make_index.rs` creates and fills indexes, and `admin/build_index.rs`
//! fills one while others write. `docs/internals/indexes.md` has the reasons.

pub(crate) mod runs;

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use pellucid_record::key::BEHIND_PARTS;
use pellucid_record::{Corrupt, Shapes};

use crate::catalog::index_entries::IndexInfo;
use crate::engine::OtherRows;
use crate::row::{Range as KeyRange, Row};
use crate::row_key::TableId;

/// Prepares the definitions of indexes. The opener of a store provides one
/// (`OpenOptions::deriver`).
pub trait Deriver: Send + Sync + fmt::Debug {
    /// The object that derives the entries of an index with this definition.
    ///
    /// # Errors
    /// The definition is invalid; the text says why.
    fn prepare(&self, definition: &str) -> Result<Box<dyn Derive>, String>;
}

/// Derives the entries of rows for one index.
pub trait Derive: Send {
    /// Adds the parts of each entry of a row to `entries`.
    ///
    /// # Errors
    /// Damage of the record.
    fn derive(&mut self, row: &Row<'_>, shapes: &dyn Shapes, entries: &mut Derived) -> Result<(), Corrupt>;

    /// How many bytes of an entry's code are its parts. `None` if it is no entry of this index.
    fn parts_size(&self, code: &[u8]) -> Option<usize>;

    /// Another object of the same kind, for another thread.
    fn again(&self) -> Box<dyn Derive>;
}

/// The entries of a row: codes of parts and their spellings, in reusable memory.
#[derive(Default)]
pub struct Derived {
    bytes: Vec<u8>,
    entries: Vec<(Range<usize>, Range<usize>)>,
}

impl Derived {
    /// Adds an entry with these parts.
    #[inline]
    pub fn push(&mut self, parts: &[u8], spelling: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(parts);
        let middle = self.bytes.len();
        self.bytes.extend_from_slice(spelling);
        self.entries.push((start..middle, middle..self.bytes.len()));
    }

    /// Removes all entries.
    #[inline]
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// The parts of each entry and their spelling.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|entry| self.show(entry))
    }

    #[inline]
    fn show(&self, (parts, spelling): &(Range<usize>, Range<usize>)) -> (&[u8], &[u8]) {
        (
            self.bytes.get(parts.clone()).unwrap_or_default(),
            self.bytes.get(spelling.clone()).unwrap_or_default(),
        )
    }

    #[inline]
    pub(crate) fn at(&self, index: usize) -> Option<(&[u8], &[u8])> {
        self.entries.get(index).map(|entry| self.show(entry))
    }

    /// Sorts them and removes duplicates: of entries with the same parts the first stays.
    pub(crate) fn sort_and_dedup(&mut self) {
        if self.entries.len() < 2 {
            return;
        }
        let bytes = &self.bytes;
        let parts = |entry: &(Range<usize>, Range<usize>)| bytes.get(entry.0.clone()).unwrap_or_default();
        self.entries.sort_by(|one, other| parts(one).cmp(parts(other)));
        self.entries.dedup_by(|one, other| parts(one) == parts(other));
    }
}

/// What happens to an entry when its row changes.
pub(crate) struct EntryChange<'a> {
    /// The codes of its parts, and their spelling.
    pub(crate) parts: &'a [u8],
    pub(crate) spelling: &'a [u8],
    /// Whether it is put, not deleted.
    pub(crate) is_put: bool,
    /// Whether the row had no entry with these parts.
    pub(crate) is_new: bool,
}

/// Compare the sorted entries of a row before and after a change, and call `each` for those that
/// differ, in order. With `rewrites`, also for those that stay as they are.
///
/// # Errors
/// The first error of `each`.
pub(crate) fn compare<E>(
    before: &Derived,
    after: &Derived,
    rewrites: bool,
    mut each: impl FnMut(EntryChange<'_>) -> Result<(), E>,
) -> Result<(), E> {
    let (mut one, mut other) = (0, 0);
    loop {
        let ((parts, spelling), is_put, is_new) = match (before.at(one), after.at(other)) {
            (Some(old), Some(new)) if old.0 == new.0 => {
                (one, other) = (one + 1, other + 1);
                if old.1 == new.1 && !rewrites {
                    continue;
                }
                (new, true, false)
            }
            (Some(old), new) if new.is_none_or(|new| old.0 < new.0) => {
                one += 1;
                (old, false, false)
            }
            (_, Some(new)) => {
                other += 1;
                (new, true, true)
            }
            (_, None) => return Ok(()),
        };
        each(EntryChange { parts, spelling, is_put, is_new })?;
    }
}

/// The indexes of a table under one serial, prepared for rows.
pub(crate) struct IndexSet {
    pub(crate) indexes: Vec<Prepared>,
}

/// Prepared indexes by the serial with which a table has them, and memory to derive the entries of
/// a row that is written alone.
#[derive(Default)]
pub(crate) struct IndexSets {
    sets: Vec<(u32, Arc<IndexSet>)>,
    spare: EntryBuffers,
}

/// Reusable memory for the entries of one row.
#[derive(Default)]
pub(crate) struct EntryBuffers {
    pub(crate) before: Derived,
    pub(crate) after: Derived,
    pub(crate) key: Vec<u8>,
    pub(crate) spelling: Vec<u8>,
    pub(crate) head: Vec<u8>,
    pub(crate) others: OtherRows,
}

impl IndexSets {
    /// Take what an earlier transaction has prepared. It is removed here: what a transaction learns
    /// from its own new shapes holds only if it commits, and otherwise it does not return it.
    pub(crate) fn take(&mut self, serial: u32) -> Option<Arc<IndexSet>> {
        let place = self.sets.iter().position(|(known, _)| *known == serial)?;
        Some(self.sets.swap_remove(place).1)
    }

    /// Keep what a transaction has used.
    pub(crate) fn give(&mut self, used: Vec<(u32, Arc<IndexSet>)>) {
        const COUNT_MAX: usize = 64;
        if !used.is_empty() && self.sets.len() > COUNT_MAX {
            self.sets.clear();
        }
        self.sets.extend(used);
    }

    /// What is prepared, for a row of committed shapes, with the memory for its entries.
    pub(crate) fn find(&mut self, serial: u32) -> Option<(&IndexSet, &mut EntryBuffers)> {
        let (_, set) = self.sets.iter().find(|(known, _)| *known == serial)?;
        Some((set, &mut self.spare))
    }
}

/// An index, prepared for rows. With one writer at a time, no thread waits for the lock.
pub(crate) struct Prepared {
    pub(crate) info: Arc<IndexInfo>,
    pub(crate) derive: Mutex<Box<dyn Derive>>,
}

impl Prepared {
    /// Derive the entries of a row, sorted.
    pub(crate) fn derive(
        &self,
        row: &Row<'_>,
        shapes: &dyn Shapes,
        entries: &mut Derived,
    ) -> Result<(), Corrupt> {
        entries.clear();
        let mut derive = self.derive.lock().unwrap_or_else(PoisonError::into_inner);
        derive.derive(row, shapes, entries)?;
        entries.sort_and_dedup();
        Ok(())
    }

    pub(crate) fn parts_size(&self, code: &[u8]) -> Option<usize> {
        self.derive.lock().unwrap_or_else(PoisonError::into_inner).parts_size(code)
    }
}

/// The entries of an index that begin with these parts.
#[must_use]
pub fn range_of_parts(parts: &[u8]) -> KeyRange {
    KeyRange::half_open(parts.to_vec(), [parts, &[BEHIND_PARTS]].concat())
}

/// Whether a row key from `start` on, which is the row key of some parts, is that of an entry with
/// these parts.
#[inline]
pub(crate) fn is_of_parts(row_key: &[u8], start: &[u8]) -> bool {
    row_key.strip_prefix(start).is_some_and(|rest| rest.first().is_none_or(|byte| *byte < BEHIND_PARTS))
}

/// Entries per transaction of a build: some 20 ms, for which other writers wait.
pub(crate) const PART: u64 = 1 << 15;

/// Ids of indexes that threads of this process build.
pub(crate) type Builds = Mutex<HashSet<TableId>>;
