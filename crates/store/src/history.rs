//! What did each commit change, and how far back can that be told?
//!
//! Every engine that can be watched gives its commits one after the other, as [`Commit`]s: what was written, in the order in
//! which it was written, as bytes. The memory engine keeps the newest ones; where there is a log they are its groups, and what
//! checkpoints took over from it into the tree (`log/history.rs`). `watch.rs` says which tables and rows that was about.
//!
//! ```text
//! entry    u8 tree | 0x10 deleted | 0x20 counted | 0x40 cleared, varint key size, varint value size, key, value
//! ```
//!
//! As in a group of the log, and one more: a whole tree was cleared, whose first and last keys were these.

use pellucid_record::layout::{push_varint, read_varint};

use crate::engine::Tree;

pub(crate) const PUT: u8 = 0;
pub(crate) const DELETED: u8 = 0x10;
pub(crate) const CLEARED: u8 = 0x40;
/// Its table counts it: nothing that is told here.
const COUNTED: u8 = 0x20;

/// How far back changes are kept, beyond what costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// At least so many bytes of changes.
    pub size: u64,
    /// And not for longer than so many seconds.
    pub seconds: u64,
}

impl Keep {
    /// Nothing beyond what costs nothing.
    pub const NOTHING: Self = Self { size: 0, seconds: u64::MAX };

    /// Whether that is nothing.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self.size == 0 || self.seconds == 0
    }
}

/// Where somebody stands who reads one commit after the other: behind the one that made this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The version.
    pub version: u64,
    /// Where the engine found its commit, so that it need not look for the next.
    pub(crate) hint: Option<[u64; 5]>,
}

impl Place {
    /// Behind the commit that made a version.
    #[must_use]
    pub fn behind(version: u64) -> Self {
        Self { version, hint: None }
    }
}

/// What stands behind a place.
#[derive(Debug)]
pub enum Next {
    /// Some commits, one at least.
    Commits(Vec<Commit>),
    /// Nothing was committed since.
    Nothing,
    /// Something was, and it is not known any more what.
    Gone,
}

/// What one commit wrote.
#[derive(Debug)]
pub struct Commit {
    /// The version that it made.
    pub version: u64,
    bytes: Vec<u8>,
    start: usize,
    count: u32,
}

/// One thing that was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written<'a> {
    /// In this tree,
    pub tree: Tree,
    /// under this key.
    pub key: &'a [u8],
    /// What.
    pub what: What<'a>,
}

/// What was written under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A value.
    Value(&'a [u8]),
    /// Nothing: it was deleted.
    Deleted,
    /// All of the tree was deleted, from the key up to this one.
    ClearedUpTo(&'a [u8]),
}

impl Commit {
    /// The commit whose entries stand in these bytes, from `start` on.
    pub(crate) fn new(version: u64, bytes: Vec<u8>, start: usize, count: u32) -> Self {
        Self { version, bytes, start, count }
    }

    /// What it wrote, in order; of what was written more than once the last holds. Ends early at what is no entry.
    #[must_use]
    pub fn written(&self) -> WrittenIter<'_> {
        WrittenIter { bytes: &self.bytes, at: self.start, left: self.count }
    }
}

/// See [`Commit::written`].
pub struct WrittenIter<'a> {
    bytes: &'a [u8],
    at: usize,
    left: u32,
}

impl<'a> Iterator for WrittenIter<'a> {
    type Item = Written<'a>;

    fn next(&mut self) -> Option<Written<'a>> {
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
        let value_at = at.checked_add(key_size)?;
        let key = self.bytes.get(at..value_at)?;
        self.at = value_at.checked_add(value_size)?;
        let value = self.bytes.get(value_at..self.at)?;
        let what = match mark & 0xF0 & !COUNTED {
            PUT => What::Value(value),
            DELETED => What::Deleted,
            CLEARED => What::ClearedUpTo(value),
            _ => return None,
        };
        Some(Written { tree, key, what })
    }
}

/// Add an entry to a commit's bytes; its value is the concatenation of `parts`.
pub(crate) fn push(bytes: &mut Vec<u8>, tree: Tree, mark: u8, key: &[u8], parts: &[&[u8]]) {
    let size: usize = parts.iter().map(|part| part.len()).sum();
    bytes.push(tree as u8 | mark);
    push_varint(bytes, key.len() as u32);
    push_varint(bytes, size as u32);
    bytes.extend_from_slice(key);
    for part in parts {
        bytes.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_comes_back_and_damage_ends_it() {
        let mut bytes = vec![7; 3];
        push(&mut bytes, Tree::Rows, PUT, b"key", &[b"va", b"lue"]);
        push(&mut bytes, Tree::Blobs, DELETED, &[9; 300], &[]);
        push(&mut bytes, Tree::Rows, CLEARED, b"a", &[b"z"]);
        let commit = Commit::new(5, bytes.clone(), 3, 3);
        let written: Vec<_> = commit.written().collect();
        assert_eq!(written[0], Written { tree: Tree::Rows, key: b"key", what: What::Value(b"value") });
        assert_eq!(written[1], Written { tree: Tree::Blobs, key: &[9; 300], what: What::Deleted });
        assert_eq!(written[2], Written { tree: Tree::Rows, key: b"a", what: What::ClearedUpTo(b"z") });
        for size in 3..bytes.len() {
            assert!(Commit::new(5, bytes[..size].to_vec(), 3, 3).written().count() < 3);
        }
    }
}
