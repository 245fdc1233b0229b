//! Row keys: the key of a row in the engine.
//!
//! ```text
//! row key   := table id, key code             while that is shorter than the engine's limit
//!            | first (limit - 16) bytes of that,
//!              XXH3-128 of all of it (16 bytes, big-endian)
//! table id  := u8 < 0xF0 | 0xF0 + n, then n bytes big-endian
//! ```
//!
//! A long row key has exactly `limit` bytes and a short one fewer, so they cannot be confused. The
//! whole key of a long row is in its cell. Rows whose keys share the first (limit - 16) bytes, a
//! *run*, are neighbours, but the long keys among them are ordered by their hashes: `txn/scan.rs`
//! sorts each run that it meets.

use pellucid_record::encode::copy;
use xxhash_rust::xxh3::xxh3_128;

/// The id of a table: never used again for another table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(pub(crate) u32);

impl TableId {
    /// The number, for the rule of shape admission.
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }
}

/// Bytes of the hash that ends a long row key.
const HASH_SIZE: usize = 16;
/// From here on a table id takes more than one byte.
const ONE_BYTE_END: u32 = 0xF0;
/// Row keys up to this size are not allocated on the heap.
const INLINE_SIZE: usize = 64;

/// The key size from which on a row may be part of a run that contains long keys.
pub(crate) const fn run_size(limit: usize) -> usize {
    limit.saturating_sub(HASH_SIZE)
}

/// A table's prefix: at most five bytes.
#[derive(Clone, Copy)]
pub(crate) struct Prefix {
    bytes: [u8; 5],
    size: u8,
}

impl Prefix {
    pub(crate) fn of(table: TableId) -> Self {
        let TableId(id) = table;
        if id < ONE_BYTE_END {
            return Self { bytes: [id as u8, 0, 0, 0, 0], size: 1 };
        }
        let id_size = (32 - id.leading_zeros()).div_ceil(8);
        let mut bytes = [(ONE_BYTE_END + id_size) as u8, 0, 0, 0, 0];
        for (index, byte) in bytes.iter_mut().skip(1).take(id_size as usize).enumerate() {
            *byte = (id >> (8 * (id_size as usize - 1 - index))) as u8;
        }
        Self { bytes, size: 1 + id_size as u8 }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.size)).unwrap_or_default()
    }

    pub(crate) fn size(self) -> usize {
        usize::from(self.size)
    }
}

/// The table and the key code of a short row key. `None` if the bytes cannot be one.
pub(crate) fn split(row_key: &[u8]) -> Option<(TableId, &[u8])> {
    let (first, rest) = row_key.split_first()?;
    let Some(id_size) = u32::from(*first).checked_sub(ONE_BYTE_END) else {
        return Some((TableId(u32::from(*first)), rest));
    };
    let (id, key) = rest.split_at_checked(id_size as usize)?;
    if !(1..=4).contains(&id_size) || id.first() == Some(&0) {
        return None;
    }
    let id = id.iter().fold(0_u32, |id, byte| id << 8 | u32::from(*byte));
    (id >= ONE_BYTE_END).then_some((TableId(id), key))
}

/// A row key, without a heap allocation if it is short.
pub(crate) struct RowKey {
    inline: [u8; INLINE_SIZE],
    size: usize,
    heap: Vec<u8>,
}

impl RowKey {
    #[inline]
    pub(crate) fn new(table: TableId, key: &[u8], limit: usize) -> Self {
        let size = 1 + key.len();
        let mut row_key = Self { inline: [0; INLINE_SIZE], size, heap: Vec::new() };
        // The usual case.
        if table.0 < ONE_BYTE_END
            && size < limit
            && let Some((first, rest)) = row_key.inline.split_first_mut()
            && let Some(target) = rest.get_mut(..key.len())
        {
            *first = table.0 as u8;
            copy(target, key);
            return row_key;
        }
        Self::of_any(table, key, limit)
    }

    fn of_any(table: TableId, key: &[u8], limit: usize) -> Self {
        let prefix = Prefix::of(table);
        let size = prefix.size() + key.len();
        let mut row_key = Self { inline: [0; INLINE_SIZE], size, heap: Vec::new() };
        match row_key.inline.get_mut(..size) {
            Some(target) if size < limit => {
                let (head, tail) = target.split_at_mut(prefix.size());
                head.copy_from_slice(prefix.as_bytes());
                tail.copy_from_slice(key);
            }
            _ => {
                row_key.heap.reserve(size);
                row_key.heap.extend_from_slice(prefix.as_bytes());
                row_key.heap.extend_from_slice(key);
                shorten(&mut row_key.heap, limit);
                row_key.size = row_key.heap.len();
            }
        }
        row_key
    }

    #[inline]
    pub(crate) fn as_bytes(&self) -> &[u8] {
        if self.heap.is_empty() { self.inline.get(..self.size).unwrap_or_default() } else { &self.heap }
    }
}

/// Whether the row's cell has the whole key.
pub(crate) fn is_long(row_key: &[u8], limit: usize) -> bool {
    row_key.len() >= limit
}

/// Replace the end of a row key that is too long by the hash of all of it.
fn shorten(whole: &mut Vec<u8>, limit: usize) {
    if whole.len() >= limit {
        let hash = xxh3_128(whole).to_be_bytes();
        whole.truncate(run_size(limit));
        whole.extend_from_slice(&hash);
    }
}

/// The least byte string above all that begin with this one. `None` if there is none.
pub(crate) fn successor(mut bytes: Vec<u8>) -> Option<Vec<u8>> {
    while let Some(last) = bytes.last_mut() {
        if *last < u8::MAX {
            *last += 1;
            return Some(bytes);
        }
        bytes.pop();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_ids_sort_as_numbers_and_come_back() {
        let ids = [0, 1, 0xEF, 0xF0, 0xFF, 0x100, 0xFFFF, 0x1_0000, 0xFF_FFFF, 0x100_0000, u32::MAX];
        let keys = ids.map(|id| RowKey::new(TableId(id), b"k", 511).as_bytes().to_vec());
        assert!(keys.is_sorted());
        for (id, key) in ids.iter().zip(&keys) {
            assert_eq!(split(key), Some((TableId(*id), &b"k"[..])), "{key:02x?}");
        }
    }

    #[test]
    fn only_the_shortest_form_of_a_table_id_is_taken() {
        for wrong in
            [&b""[..], b"\xf1", b"\xf1\x05k", b"\xf2\x00\xf0k", b"\xf0k", b"\xf5\x01\x01\x01\x01\x01k"]
        {
            assert_eq!(split(wrong), None, "{wrong:02x?}");
        }
    }

    #[test]
    fn long_keys_end_in_a_hash_and_short_ones_never_have_their_size() {
        let limit = 64;
        for size in [61, 62, 63, 64, 65, 1000] {
            let key = vec![7; size];
            let row_key = RowKey::new(TableId(3), &key, limit);
            let expected = if size + 1 < limit { size + 1 } else { limit };
            assert_eq!(row_key.as_bytes().len(), expected);
            assert_eq!(is_long(row_key.as_bytes(), limit), size >= 63);
            assert_eq!(
                row_key.as_bytes()[..run_size(limit)],
                [&[3][..], &vec![7; run_size(limit) - 1]].concat()
            );
        }
    }

    #[test]
    fn the_successor_is_above_everything_with_the_prefix() {
        assert_eq!(successor(vec![1, 2]), Some(vec![1, 3]));
        assert_eq!(successor(vec![1, 0xFF, 0xFF]), Some(vec![2]));
        assert_eq!(successor(vec![0xFF]), None);
    }
}
