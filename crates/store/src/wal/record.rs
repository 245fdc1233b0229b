//! The format of a WAL record: the bytes of one commit in the log.
//!
//! ```text
//! WAL record    u32 size, u32 count, u64 sequence, entries (`engine/entry.rs`),
//!               zeros up to a multiple of 8, u64 check
//! ```
//!
//! A counted entry is a put of a new row, or a delete of an existing one, whose table's row count
//! in the catalog is left as it is. So a commit of one row has one entry instead of two. A WAL
//! record with counted entries does not write row counts to the catalog.
//!
//! The check is XXH3-64 of all bytes before it, seeded by the check of the previous WAL record or
//! by the segment's salt. Entries are in the order in which they were written; the last one of a
//! key holds. Of a large value there may be the extent in the data file alone (`extents.rs`).

use std::ops::Range;

use xxhash_rust::xxh3::xxh3_64_with_seed;

use pellucid_record::layout::push_varint;

use pellucid_record::encode::copy;

use crate::engine::entry::{self, COUNTED, DELETED, Entries, Entry, PLACED, PUT};
use crate::engine::{Extents, Tree};
use crate::sys::short;
use crate::wal::extents::Extent;

/// Bytes before a WAL record's entries.
pub(crate) const HEAD_SIZE: usize = 16;
/// Bytes of its check.
pub(crate) const CHECK_SIZE: usize = 8;

/// One change, as ranges in the bytes of its WAL record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Change {
    pub(crate) tree: Tree,
    pub(crate) key: Range<usize>,
    /// `None` if the key is deleted.
    pub(crate) value: Option<Range<usize>>,
    /// A counted entry; see the module.
    pub(crate) is_counted: bool,
    /// The value is the [`Extent`] of the real one.
    pub(crate) is_placed: bool,
}

/// A new WAL record without entries.
pub(crate) fn begin(capacity: usize) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEAD_SIZE + CHECK_SIZE + capacity);
    begin_again(&mut bytes);
    bytes
}

/// The same, in memory that exists.
pub(crate) fn begin_again(bytes: &mut Vec<u8>) {
    bytes.clear();
    bytes.extend_from_slice(&[0; HEAD_SIZE]);
}

/// How many entries a WAL record claims to have, limited to what its size allows.
pub(crate) fn count_of(bytes: &[u8]) -> usize {
    let count = bytes.get(4..8).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes);
    (count as usize).min(bytes.len())
}

/// The head of a WAL record.
#[inline]
fn head_of(size: u32, count: u32, sequence: u64) -> [u8; HEAD_SIZE] {
    (u128::from(size) | u128::from(count) << 32 | u128::from(sequence) << 64).to_le_bytes()
}

/// Begin the WAL record of one row in existing memory, up to its value, which the caller appends.
/// Returns where the key is.
#[inline]
pub(crate) fn begin_row(bytes: &mut Vec<u8>, key: &[u8]) -> Range<usize> {
    bytes.clear();
    let mut head = [0; HEAD_SIZE + 3];
    let [.., flags, key_size, _] = &mut head;
    (*flags, *key_size) = (Tree::Rows as u8 | PUT, key.len() as u8);
    if key.len() < 0x80 {
        short::push(bytes, [&head, key]);
    } else {
        bytes.extend_from_slice(head.get(..=HEAD_SIZE).unwrap_or_default());
        push_varint(bytes, key.len() as u32);
        bytes.push(0);
        bytes.extend_from_slice(key);
    }
    bytes.len() - key.len()..bytes.len()
}

/// Store the size of the value that was appended after `begin_row`.
#[inline]
pub(crate) fn end_put(bytes: &mut Vec<u8>, mut key: Range<usize>) -> Change {
    let size = bytes.len() - key.end;
    let size_at = key.start - 1;
    if size < 0x80 {
        if let Some(place) = bytes.get_mut(size_at) {
            *place = size as u8;
        }
    } else {
        let mut varint = Vec::with_capacity(5);
        push_varint(&mut varint, size as u32);
        let more = varint.len() - 1;
        bytes.splice(size_at..key.start, varint);
        key = key.start + more..key.end + more;
    }
    let value = key.end..bytes.len();
    Change { tree: Tree::Rows, key, value: Some(value), is_counted: false, is_placed: false }
}

/// Turn the WAL record of `begin_row` into a delete of the row.
pub(crate) fn end_delete(bytes: &mut Vec<u8>, key: Range<usize>) -> Change {
    bytes.truncate(key.end);
    if let Some(flags) = bytes.get_mut(HEAD_SIZE) {
        *flags |= DELETED;
    }
    Change { tree: Tree::Rows, key, value: None, is_counted: false, is_placed: false }
}

impl Change {
    #[inline]
    fn of(Entry { tree, flags, key, value }: Entry) -> Option<Self> {
        let is_placed = flags & PLACED != 0;
        let value = match flags & !(COUNTED | PLACED) {
            PUT if !is_placed || value.len() == Extent::SIZE => Some(value),
            DELETED if !is_placed => None,
            _ => return None,
        };
        Some(Self { tree, key, value, is_counted: flags & COUNTED != 0, is_placed })
    }
}

/// Add a put; the value is the concatenation of `parts`.
pub(crate) fn push_put(bytes: &mut Vec<u8>, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Change {
    let Entry { key, value, .. } = entry::push(bytes, tree, PUT, key, parts);
    Change { tree, key, value: Some(value), is_counted: false, is_placed: false }
}

/// Add a put of a large value that is in the data file. The entry is counted if the row is new.
pub(crate) fn push_placed(
    bytes: &mut Vec<u8>,
    tree: Tree,
    key: &[u8],
    extent: Extent,
    is_new: bool,
) -> Change {
    let flags = PUT | PLACED | if is_new { COUNTED } else { 0 };
    let Entry { key, value, .. } = entry::push(bytes, tree, flags, key, &[&extent.to_bytes()]);
    Change { tree, key, value: Some(value), is_counted: is_new, is_placed: true }
}

/// The extents in a WAL record.
pub(crate) fn extents_in(bytes: &[u8]) -> impl Iterator<Item = Extent> + '_ {
    let placed = changes(bytes).filter(|change| change.is_placed);
    placed.filter_map(|change| Extent::parse(bytes.get(change.value?)?))
}

/// The WAL record with each [`Extent`] replaced by the large value that is there; the same record
/// if it has no extents. `None` if a value is gone, since its pages were used again.
pub(crate) fn with_values(bytes: Vec<u8>, extents: Option<&dyn Extents>) -> Option<Vec<u8>> {
    if extents_in(&bytes).next().is_none() {
        return Some(bytes);
    }
    let (mut whole, mut count) = (begin(bytes.len()), 0);
    for change in changes(&bytes) {
        let tree = change.tree;
        let key = bytes.get(change.key)?;
        let counted = if change.is_counted { COUNTED } else { 0 };
        match change.value {
            None => entry::push(&mut whole, tree, DELETED | counted, key, &[]),
            Some(value) if change.is_placed => {
                let extent = Extent::parse(bytes.get(value)?)?;
                let value = extent.copy(extents?)?;
                entry::push(&mut whole, tree, PUT | counted, key, &[&value])
            }
            Some(value) => entry::push(&mut whole, tree, PUT | counted, key, &[bytes.get(value)?]),
        };
        count += 1;
    }
    finish(&mut whole, count, sequence_of(&bytes)?, 0);
    Some(whole)
}

/// Add a delete.
pub(crate) fn push_delete(bytes: &mut Vec<u8>, tree: Tree, key: &[u8]) -> Change {
    let Entry { key, .. } = entry::push(bytes, tree, DELETED, key, &[]);
    Change { tree, key, value: None, is_counted: false, is_placed: false }
}

/// Add a put of a row whose value is the concatenation of two parts. The entry is counted if the
/// row is new.
#[inline]
pub(crate) fn push_row(bytes: &mut Vec<u8>, key: &[u8], parts: [&[u8]; 2], is_new: bool) -> Change {
    let [record, check] = parts;
    let size = record.len() + check.len();
    let flags = Tree::Rows as u8 | PUT | if is_new { COUNTED } else { 0 };
    if key.len() < 0x80 && size < 0x80 {
        bytes.extend_from_slice(&[flags, key.len() as u8, size as u8]);
    } else {
        bytes.push(flags);
        push_varint(bytes, key.len() as u32);
        push_varint(bytes, size as u32);
    }
    let key_at = bytes.len();
    bytes.resize(key_at + key.len() + size, 0);
    let mut rest = bytes.get_mut(key_at..).unwrap_or_default();
    for part in [key, record, check] {
        let (target, behind) = rest.split_at_mut_checked(part.len()).unwrap_or_default();
        copy(target, part);
        rest = behind;
    }
    let value_at = key_at + key.len();
    Change {
        tree: Tree::Rows,
        key: key_at..value_at,
        value: Some(value_at..value_at + size),
        is_counted: is_new,
        is_placed: false,
    }
}

/// Add a counted delete of a row that exists.
pub(crate) fn push_gone(bytes: &mut Vec<u8>, key: &[u8]) -> Change {
    let Entry { key, .. } = entry::push(bytes, Tree::Rows, DELETED | COUNTED, key, &[]);
    Change { tree: Tree::Rows, key, value: None, is_counted: true, is_placed: false }
}

/// Clear the counted bit of all entries. `changes` has to be all entries of the WAL record.
pub(crate) fn uncount(bytes: &mut [u8], changes: &mut [Change]) {
    let mut at = HEAD_SIZE;
    for change in changes {
        if std::mem::take(&mut change.is_counted)
            && let Some(flags) = bytes.get_mut(at)
        {
            *flags &= !COUNTED;
        }
        at = change.value.as_ref().map_or(change.key.end, |value| value.end);
    }
}

/// Set the counted bit of the WAL record's first entry.
#[inline]
pub(crate) fn count_first(bytes: &mut [u8], change: &mut Change) {
    if let Some(flags) = bytes.get_mut(HEAD_SIZE) {
        *flags |= COUNTED;
        change.is_counted = true;
    }
}

/// The size of the finished WAL record.
#[inline]
pub(crate) fn size_of(bytes: &[u8]) -> usize {
    bytes.len().next_multiple_of(8) + CHECK_SIZE
}

/// Complete a WAL record. Returns its check.
#[inline]
pub(crate) fn finish(bytes: &mut Vec<u8>, count: u32, sequence: u64, seed: u64) -> u64 {
    let end = bytes.len().next_multiple_of(8);
    bytes.extend_from_slice(&[0; 8 + CHECK_SIZE]);
    bytes.truncate(end + CHECK_SIZE);
    let size = bytes.len() as u32;
    if let Some(place) = bytes.first_chunk_mut::<HEAD_SIZE>() {
        *place = head_of(size, count, sequence);
    }
    let Some((body, place)) = bytes.split_last_chunk_mut::<CHECK_SIZE>() else { return seed };
    let check = xxh3_64_with_seed(body, seed);
    *place = check.to_le_bytes();
    check
}

/// The check of a WAL record, if it continues the chain after `seed` with this sequence number.
pub(crate) fn verified(bytes: &[u8], sequence: u64, seed: u64) -> Option<u64> {
    let (body, check) = bytes.split_last_chunk::<CHECK_SIZE>()?;
    let check = u64::from_le_bytes(*check);
    (sequence_of(bytes)? == sequence && check == xxh3_64_with_seed(body, seed)).then_some(check)
}

fn sequence_of(bytes: &[u8]) -> Option<u64> {
    bytes.get(8..HEAD_SIZE)?.try_into().ok().map(u64::from_le_bytes)
}

/// The changes of a WAL record, in order. Ends early at an invalid entry, which a verified WAL
/// record does not have.
pub(crate) fn changes(bytes: &[u8]) -> impl Iterator<Item = Change> + '_ {
    let count = bytes.get(4..8).and_then(|field| field.try_into().ok()).map_or(0, u32::from_le_bytes);
    let end = bytes.len().saturating_sub(CHECK_SIZE);
    Entries::new(bytes.get(..end).unwrap_or_default(), HEAD_SIZE, count).map_while(Change::of)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Vec<u8>, Vec<Change>) {
        let mut bytes = begin(64);
        let made = vec![
            push_put(&mut bytes, Tree::Rows, b"key", &[b"va", b"lue"]),
            push_delete(&mut bytes, Tree::Blobs, &[7; 300]),
            push_put(&mut bytes, Tree::Meta, b"", &[]),
        ];
        (bytes, made)
    }

    #[test]
    fn gives_back_what_was_pushed() {
        let (mut bytes, made) = sample();
        let size = size_of(&bytes);
        let check = finish(&mut bytes, 3, 41, 5);
        assert_eq!(bytes.len(), size);
        assert_eq!(bytes.len() % 8, 0);
        assert_eq!(verified(&bytes, 41, 5), Some(check));
        assert_eq!(changes(&bytes).collect::<Vec<_>>(), made);
        assert_eq!(&bytes[made[0].value.clone().unwrap()], b"value");
    }

    #[test]
    fn what_is_counted_can_be_taken_back() {
        for (key_size, value_size) in [(1, 0), (20, 123), (127, 124), (128, 16_383), (300, 16_384)] {
            let (key, value) = (vec![7; key_size], vec![9; value_size]);
            let parts = [&value[..], b"chk!"];
            let (mut plain, mut counted) = (begin(0), begin(0));
            let expected = [
                push_put(&mut plain, Tree::Rows, &key, &parts),
                push_put(&mut plain, Tree::Rows, b"other", &parts),
                push_delete(&mut plain, Tree::Rows, &key),
            ];
            let mut made = [
                push_row(&mut counted, &key, parts, true),
                push_row(&mut counted, b"other", parts, false),
                push_gone(&mut counted, &key),
            ];
            let mut whole = counted.clone();
            finish(&mut whole, 3, 41, 5);
            assert_eq!(changes(&whole).collect::<Vec<_>>(), made);
            assert_eq!(
                changes(&whole).map(|change| change.is_counted).collect::<Vec<_>>(),
                [true, false, true]
            );
            uncount(&mut counted, &mut made);
            assert_eq!((made, counted), (expected, plain));
        }
    }

    #[test]
    fn a_row_written_in_place_is_as_if_it_were_pushed() {
        for (key_size, value_size) in [(1, 0), (20, 127), (127, 128), (128, 16_383), (300, 16_384)] {
            let (key, value) = (vec![7; key_size], vec![9; value_size]);
            let mut pushed = begin(0);
            let expected = push_put(&mut pushed, Tree::Rows, &key, &[&value]);
            let mut bytes = vec![1; 50];
            let place = begin_row(&mut bytes, &key);
            bytes.extend_from_slice(&value);
            assert_eq!((end_put(&mut bytes, place), &bytes), (expected, &pushed));
            let mut pushed = begin(0);
            let expected = push_delete(&mut pushed, Tree::Rows, &key);
            let place = begin_row(&mut bytes, &key);
            bytes.extend_from_slice(b"what is not needed");
            assert_eq!((end_delete(&mut bytes, place), &bytes), (expected, &pushed));
        }
    }

    #[test]
    fn no_flipped_bit_continues_a_chain() {
        let (mut bytes, _) = sample();
        finish(&mut bytes, 3, 41, 5);
        assert_eq!(verified(&bytes, 42, 5), None, "another sequence number");
        assert_eq!(verified(&bytes, 41, 6), None, "another WAL record before it");
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(verified(&bytes, 41, 5), None, "bit {bit}");
            assert!(changes(&bytes).count() <= 3 || bit < 64, "reading damage ends");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
    }
}
