//! Large values (blobs): the format of their tree.
//!
//! Large values have a tree of their own, so that a scan does not walk over them and changing a
//! counter beside a megabyte does not write the megabyte again. A row's cell lists its blobs, which
//! are deleted with it. Ids are never used again, so a record that outlives its blob finds nothing,
//! never another value.
//!
//! ```text
//! u64 id, big-endian    payload, u64 check: XXH3-64 of the payload, seeded by the id
//! ```

use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::engine::lmdb::page::PAGE_HEAD_SIZE;

/// Bytes of the check after a payload.
pub(crate) const CHECK_SIZE: usize = 8;

/// The address of a large blob's first byte, modulo 4096: LMDB puts it after the head of a page.
/// Data that needs an address divisible by 64 is 48 bytes into the payload, plus any multiple of
/// 64.
pub const BLOB_ADDRESS_REMAINDER: usize = PAGE_HEAD_SIZE;

/// A blob without its check. `None` if the bytes are too short.
pub(crate) fn body(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(..bytes.len().checked_sub(CHECK_SIZE)?)
}

/// The check of a blob.
pub(crate) fn check_of(id: u64, payload: &[u8]) -> u64 {
    xxh3_64_with_seed(payload, id)
}
