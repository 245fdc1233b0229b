//! The index entries of a row that is written without a transaction.
//!
//! They are derived and compared as in a transaction (`index::compare`), under the locks that the
//! row is written with, and the engine writes the differences with the row. A deriver runs no code
//! of a user. What is rare is left to a transaction: an index that is being built, a long entry, a
//! record that no entries can be derived from, and a value that a unique index refuses, of which
//! the transaction says whose it is.

use pellucid_record::Shapes;
use pellucid_record::key::{BEHIND_PARTS, join_spellings};

use crate::catalog::cell::{check_hashed, write_head};
use crate::engine::{HashedKey, OtherRows};
use crate::index::{EntryBuffers, IndexSet, Prepared, compare};
use crate::row::Row;
use crate::row_key::{Prefix, is_long, run_size};

/// A row before and after its change: its key and records.
#[derive(Clone, Copy)]
pub(crate) struct RowChange<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) old: Option<&'a [u8]>,
    pub(crate) new: Option<&'a [u8]>,
}

/// The row needs a transaction.
struct NeedsTransaction;

impl IndexSet {
    /// Add the entries that change with a row. False if it needs a transaction.
    pub(crate) fn add_entries(
        &self,
        row: RowChange<'_>,
        shapes: &dyn Shapes,
        key_size_max: usize,
        buffers: &mut EntryBuffers,
        others: &mut OtherRows,
    ) -> bool {
        self.indexes.iter().all(|index| index.add_entries(row, shapes, key_size_max, buffers, others).is_ok())
    }
}

impl Prepared {
    fn add_entries(
        &self,
        RowChange { key, old, new }: RowChange<'_>,
        shapes: &dyn Shapes,
        key_size_max: usize,
        EntryBuffers { before, after, key: row_key, spelling, head, .. }: &mut EntryBuffers,
        others: &mut OtherRows,
    ) -> Result<(), NeedsTransaction> {
        if self.info.building.is_some() {
            return Err(NeedsTransaction);
        }
        for (record, entries) in [(old, &mut *before), (new, &mut *after)] {
            entries.clear();
            if let Some(record) = record {
                let row = Row { key, spelling: &[], record };
                self.derive(&row, shapes, entries).map_err(|_| NeedsTransaction)?;
            }
        }
        let prefix = Prefix::of(self.info.id);
        compare(before, after, false, |change| {
            row_key.clear();
            row_key.extend_from_slice(prefix.as_bytes());
            row_key.extend_from_slice(change.parts);
            if change.is_new && self.info.is_unique {
                // Otherwise entries with the same parts may lie elsewhere, under their hashes.
                if row_key.len() >= run_size(key_size_max) {
                    return Err(NeedsTransaction);
                }
                let start = row_key.len();
                row_key.push(BEHIND_PARTS);
                others.expect_none(row_key.get(..start).unwrap_or_default(), row_key);
                row_key.truncate(start);
            }
            row_key.extend_from_slice(key);
            if is_long(row_key, key_size_max) {
                return Err(NeedsTransaction);
            }
            let row_key = HashedKey::of(row_key);
            if !change.is_put {
                others.delete(row_key);
                return Ok(());
            }
            join_spellings(change.spelling, &[], spelling);
            write_head(head, spelling, &[], &[]);
            let check = check_hashed(row_key.hash, head, &[]).to_le_bytes();
            others.put(row_key, [head, &check], change.is_new);
            Ok(())
        })
    }
}
