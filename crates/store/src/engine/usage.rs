//! How much room a database takes, and who reads it.

use std::time::Duration;

/// The size in bytes that a transaction gives the engine's file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileSize {
    /// The file's size on the disk now.
    pub now: u64,
    /// The file's size after the commit.
    pub after: u64,
}

/// A read transaction that keeps pages from being used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OldestReader {
    /// How many versions of the engine's pages it is behind.
    pub lag: u64,
    /// Its process.
    pub process: u32,
    /// How long it has been open, as far as that is known.
    pub age: Duration,
}

/// How much room a database takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes of one page; 0 for an engine without pages.
    pub page_size: u64,
    /// Pages up to the last one in use.
    pub pages: u64,
    /// How many of these pages are free.
    pub free_pages: u64,
    /// Bytes of address space reserved for the file.
    pub map_size: u64,
    /// How many reader places there are.
    pub reader_slots: u32,
    /// How many of them are in use, by any process.
    pub readers: u32,
    /// See [`TreeFile::oldest_reader`](super::TreeFile::oldest_reader).
    pub oldest_reader: OldestReader,
    /// How many of the free pages that reader can see, so that they cannot be used again.
    pub pinned_pages: u64,
    /// Bytes of commits that are only in the log.
    pub pending: u64,
    /// Commits that were found in the log at open, left by a process that died.
    pub recovered: u64,
    /// Bytes that the log takes on the disk.
    pub log: u64,
    /// Bytes to which the log may grow at present.
    pub log_limit: u64,
    /// Bytes of changes that are kept for watchers.
    pub history: u64,
    /// Entries in each tree, by [`Tree::index`](super::Tree::index).
    pub entries: [u64; 3],
}
