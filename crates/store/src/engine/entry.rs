//! How does one thing that a commit wrote stand among others?
//!
//! ```text
//! entry    u8 tree | 0x10 deleted | 0x20 counted | 0x40 cleared, varint key size, varint value size, key, value
//! ```
//!
//! So in the WAL records of the log (`wal/record.rs`), which clear nothing, and in what is told to those who watch (`engine/history.rs`), where a
//! whole tree may have been cleared, whose first and last keys are key and value then.

use std::ops::Range;

use pellucid_record::layout::{push_varint, read_varint};

use crate::engine::Tree;

pub(crate) const PUT: u8 = 0;
pub(crate) const DELETED: u8 = 0x10;
/// Its table counts it: nothing that is told to those who watch.
pub(crate) const COUNTED: u8 = 0x20;
pub(crate) const CLEARED: u8 = 0x40;

/// An entry, as places in the bytes that it stands in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) tree: Tree,
    /// `PUT`, or what is set of the others.
    pub(crate) mark: u8,
    pub(crate) key: Range<usize>,
    pub(crate) value: Range<usize>,
}

/// Add an entry; its value is the concatenation of `parts`.
#[inline]
pub(crate) fn push(bytes: &mut Vec<u8>, tree: Tree, mark: u8, key: &[u8], parts: &[&[u8]]) -> Entry {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    bytes.push(tree as u8 | mark);
    push_varint(bytes, key.len() as u32);
    push_varint(bytes, size as u32);
    let key_at = bytes.len();
    bytes.extend_from_slice(key);
    let value_at = bytes.len();
    for part in parts {
        bytes.extend_from_slice(part);
    }
    Entry { tree, mark, key: key_at..value_at, value: value_at..bytes.len() }
}

/// So many entries from a place on; ends early at what is none.
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
        let mark = *self.bytes.get(self.at)?;
        let tree = Tree::ALL.into_iter().find(|tree| *tree as u8 == mark & 0x0F)?;
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
        Some(Entry { tree, mark: mark & 0xF0, key, value })
    }
}
