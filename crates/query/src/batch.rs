//! Rows that are sorted: each with a sort code, and its key.
//!
//! An entry of the sort (`pellucid_store::sort`) has the sort code and the row's key as its code,
//! since the key decides between rows with the same sort code, and no sort code is a prefix of
//! another. Its rest is the size of the key, and the key's spelling.

use pellucid_store::StoreError;
use pellucid_store::sort::{Entries, Entry};

use crate::fault::Fault;
use crate::walk::RowKey;

/// The key of a row that was sorted.
#[derive(Clone, Copy)]
pub(crate) struct SortedKey<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) spelling: &'a [u8],
}

/// Adds a row to those to be sorted.
///
/// # Errors
/// Its sort code and key are longer than an entry may be.
pub(crate) fn push(rows: &mut Entries, code: &[u8], key: &[u8], spelling: &[u8]) -> Result<(), Fault> {
    if code.len() + key.len() > u32::MAX as usize {
        return Err(Fault::Store(StoreError::TooLarge { size: code.len() as u64 }));
    }
    rows.push(&[code, key], &[&(key.len() as u32).to_le_bytes(), spelling]);
    Ok(())
}

impl<'a> From<Entry<'a>> for SortedKey<'a> {
    fn from(entry: Entry<'a>) -> Self {
        let (size, spelling) = entry.rest.split_first_chunk().unwrap_or((&[0; 4], &[]));
        let start = entry.code.len().saturating_sub(u32::from_le_bytes(*size) as usize);
        Self { key: entry.code.get(start..).unwrap_or_default(), spelling }
    }
}

impl SortedKey<'_> {
    pub(crate) fn row_key(&self) -> RowKey {
        RowKey { code: self.key.into(), spelling: self.spelling.into() }
    }
}
