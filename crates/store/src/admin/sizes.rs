//! How much packing saves: the sizes of a table's records, as they are stored and as they are read.

use crate::catalog::cell::{Cell, Packed};
use crate::catalog::pack_entries;
use crate::engine::{Direction, Start, Tree};
use crate::error::{Result, StoreError};
use crate::pack::codec::size_in;
use crate::row_key::{Prefix, TableId};
use crate::txn::snapshot::Snapshot;

/// Sizes of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sizes {
    /// Rows.
    pub rows: u64,
    /// How many of them are packed.
    pub packed_rows: u64,
    /// Bytes of all keys, as they are stored.
    pub keys: u64,
    /// Bytes of all records, large values apart not included.
    pub records: u64,
    /// Bytes of all records as they are stored.
    pub stored: u64,
    /// Dictionaries that rows may name.
    pub dictionaries: u64,
    /// Bytes of all dictionaries.
    pub dictionary_bytes: u64,
}

impl Snapshot {
    /// The sizes of a table. Reads the keys and the heads of all rows, and no record. `go_on` is
    /// called for each row.
    ///
    /// # Errors
    /// When the engine's pages are damaged; `Stopped` when `go_on` returned false.
    pub fn sizes(&self, table: TableId, go_on: &mut dyn FnMut() -> bool) -> Result<Sizes> {
        self.check_usable()?;
        let (database, txn) = (self.database(), self.read_txn());
        let failed = |error| database.error(error);
        let mut sizes = Sizes::default();
        for key in pack_entries::keys_beside(txn, table).map_err(failed)? {
            if pack_entries::number_of(&key).is_some() {
                let bytes = txn.get(Tree::Meta, &key).map_err(failed)?;
                sizes.dictionaries += 1;
                sizes.dictionary_bytes += bytes.map_or(0, <[u8]>::len) as u64;
            }
        }
        let prefix = Prefix::of(table);
        let mut cursor = txn.cursor(Tree::Rows).map_err(failed)?;
        cursor.start(Start::At(prefix.as_bytes()), Direction::Forward).map_err(failed)?;
        while let Some((row_key, bytes)) = cursor.step().map_err(failed)? {
            if !row_key.starts_with(prefix.as_bytes()) {
                break;
            }
            if !go_on() {
                return Err(StoreError::Stopped);
            }
            sizes.rows += 1;
            sizes.keys += (row_key.len() - prefix.size()) as u64;
            if let Some(packed) = Packed::parse(bytes) {
                sizes.packed_rows += 1;
                sizes.records += size_in(packed.frame).unwrap_or_default() as u64;
                sizes.stored += packed.frame.len() as u64;
            } else if let Some(cell) = Cell::parse(bytes) {
                sizes.records += cell.record.len() as u64;
                sizes.stored += cell.record.len() as u64;
            }
        }
        Ok(sizes)
    }
}
