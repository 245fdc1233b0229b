//! The one entry of the catalog that an engine changes: a table's, which has its count of rows.
//!
//! The entry begins with the count, a little-endian u64, and ends with its check, as all entries of
//! the catalog do (`catalog/mod.rs`).

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::row_key::TableId;

/// The first byte of the key of a table's entry.
pub(crate) const TABLE: u8 = b't';
/// Bytes of an entry's check.
pub(crate) const CHECK_SIZE: usize = 8;

pub(crate) fn id_key(kind: u8, id: u32) -> [u8; 5] {
    let [a, b, c, d] = id.to_be_bytes();
    [kind, a, b, c, d]
}

pub(crate) fn table_key(table: TableId) -> [u8; 5] {
    id_key(TABLE, table.0)
}

pub(crate) fn sealed(key: &[u8], mut bytes: Vec<u8>) -> Vec<u8> {
    let check = xxh3_64_with_seed(&bytes, xxh3_64(key));
    bytes.extend_from_slice(&check.to_le_bytes());
    bytes
}

pub(crate) fn unsealed<'a>(key: &[u8], bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (body, check) = bytes.split_last_chunk::<CHECK_SIZE>()?;
    (u64::from_le_bytes(*check) == xxh3_64_with_seed(body, xxh3_64(key))).then_some(body)
}

/// A table's entry with `more` rows added. `None` if the entry is damaged.
pub(crate) fn with_more_rows(table: TableId, value: &[u8], more: i64) -> Option<Vec<u8>> {
    let key = table_key(table);
    let (count, rest) = unsealed(&key, value)?.split_first_chunk()?;
    let count = u64::from_le_bytes(*count).saturating_add_signed(more);
    let mut body = Vec::with_capacity(value.len());
    body.extend_from_slice(&count.to_le_bytes());
    body.extend_from_slice(rest);
    Some(sealed(&key, body))
}
