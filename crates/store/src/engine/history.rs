//! The commits of a database one by one, for watchers, and how long they are kept.
//!
//! Every engine that can be watched returns its commits in order, as [`Commit`]s: what was written,
//! in the order in which it was written, as bytes. The memory engine keeps the newest ones. With a
//! log they are its WAL records, and the chunks that checkpoints copied from the log into the tree
//! (`wal/history.rs`). `watch/mod.rs` translates them to tables and rows; `engine/entry.rs` has the
//! format of their bytes.

use crate::engine::Tree;
use crate::engine::entry::{CLEARED, COUNTED, DELETED, Entries, PUT};

/// How long changes are kept, beyond what costs nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keep {
    /// At least this many bytes of changes.
    pub size: u64,
    /// But no longer than this many seconds.
    pub seconds: u64,
}

impl Keep {
    /// Only what costs nothing.
    pub const NOTHING: Self = Self { size: 0, seconds: u64::MAX };

    /// Whether nothing extra is kept.
    #[must_use]
    pub fn is_nothing(self) -> bool {
        self.size == 0 || self.seconds == 0
    }
}

/// The position of a watcher: after the commit that made this version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchPosition {
    /// The version.
    pub version: u64,
    /// Where the engine found that commit, so that it need not search for the next one.
    pub(crate) hint: Option<[u64; 5]>,
}

impl WatchPosition {
    /// After the commit that made a version.
    #[must_use]
    pub fn after(version: u64) -> Self {
        Self { version, hint: None }
    }
}

/// What follows a place.
#[derive(Debug)]
pub enum Next {
    /// One commit or more.
    Commits(Vec<Commit>),
    /// Nothing was committed since.
    Nothing,
    /// There were commits, but they are no longer kept.
    Gone,
}

/// The changes of one commit.
#[derive(Debug)]
pub struct Commit {
    /// The version that it made.
    pub version: u64,
    bytes: Vec<u8>,
    start: usize,
    count: u32,
}

/// One change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written<'a> {
    /// The tree.
    pub tree: Tree,
    /// The key.
    pub key: &'a [u8],
    /// What was written.
    pub what: What<'a>,
}

/// What was written under a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A value.
    Value(&'a [u8]),
    /// The key was deleted.
    Deleted,
    /// The whole tree was deleted, from the key up to this one.
    ClearedUpTo(&'a [u8]),
}

impl Commit {
    /// The commit whose entries are in these bytes, from `start` on.
    pub(crate) fn new(version: u64, bytes: Vec<u8>, start: usize, count: u32) -> Self {
        Self { version, bytes, start, count }
    }

    /// Its changes, in order; of several changes of a key the last holds. Ends early at an invalid
    /// entry.
    #[must_use]
    pub fn written(&self) -> WrittenIter<'_> {
        WrittenIter { bytes: &self.bytes, entries: Entries::new(&self.bytes, self.start, self.count) }
    }
}

/// See [`Commit::written`].
pub struct WrittenIter<'a> {
    bytes: &'a [u8],
    entries: Entries<'a>,
}

impl<'a> Iterator for WrittenIter<'a> {
    type Item = Written<'a>;

    fn next(&mut self) -> Option<Written<'a>> {
        let entry = self.entries.next()?;
        let (key, value) = (self.bytes.get(entry.key)?, self.bytes.get(entry.value)?);
        let what = match entry.flags & !COUNTED {
            PUT => What::Value(value),
            DELETED => What::Deleted,
            CLEARED => What::ClearedUpTo(value),
            _ => return None,
        };
        Some(Written { tree: entry.tree, key, what })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::entry::push;

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
