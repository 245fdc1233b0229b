//! The format of one entry: a put, a delete or a clear within a commit.
//!
//! ```text
//! entry    u8 tree | 0x10 deleted | 0x20 counted | 0x40 cleared | 0x80 placed,
//!          varint key size, varint value size, key, value
//! ```
//!
//! WAL records (`wal/record.rs`) consist of such entries, without clears. So does the history for
//! watchers (`engine/history.rs`). There an entry can also clear a tree; its key and value are then
//! the tree's first and last key.

use std::ops::Range;

use pellucid_record::layout::{push_varint, read_varint};

use crate::engine::Tree;

pub(crate) const PUT: u8 = 0;
pub(crate) const DELETED: u8 = 0x10;
/// The table counts this entry. Watchers do not see this bit.
pub(crate) const COUNTED: u8 = 0x20;
pub(crate) const CLEARED: u8 = 0x40;
/// The value is the extent of a large value in the data file (`wal/extents.rs`). Watchers see the
/// value itself.
pub(crate) const PLACED: u8 = 0x80;

/// An entry, as ranges in the bytes that contain it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tree: Tree,
    /// `PUT`, or the other bits.
    pub(crate) flags: u8,
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// Add an entry; its value is the concatenation of `parts`.
#[inline]
pub(crate) fn push(bytes: &mut Vec<u8>, tree: Tree, flags: u8, key: &[u8], parts: &[&[u8]]) -> Entry {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    bytes.push(tree as u8 | flags);
    push_varint(bytes, key.len() as u32);
    push_varint(bytes, size as u32);
    let key_at = bytes.len();
    bytes.extend_from_slice(key);
    let value_at = bytes.len();
    for part in parts {
        bytes.extend_from_slice(part);
    }
    Entry { tree, flags, key: key_at..value_at, value: value_at..bytes.len() }
}

/// Reads a number of entries from a position on. Ends early at an invalid entry.
pub(crate) struct Entries<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u32,
}

impl<'a> Entries<'a> {
    pub(crate) fn new(bytes: &'a [u8], at: usize, count: u32) -> Self {
        Self { bytes, at, left: count }
    }
}

impl Iterator for Entries<'_> {
    type Item = Entry;

    #[inline]
    fn next(&mut self) -> Option<Entry> {
        self.left = self.left.checked_sub(1)?;
        let flags = *self.bytes.get(self.at)?;
        let tree = Tree::ALL.into_iter().find(|tree| *tree as u8 == flags & 0x0F)?;
        let mut at = self.at + 1;
        let mut size = || {
            let (size, next) = read_varint(self.bytes, at)?;
            at = next;
            Some(size as usize)
        };
        let (key_size, value_size) = (size()?, size()?);
        let key = at..at.checked_add(key_size)?;
        let value = key.end..key.end.checked_add(value_size)?;
        self.bytes.get(value.clone())?;
        self.at = value.end;
        Some(Entry { tree, flags: flags & 0xF0, key, value })
    }
}
