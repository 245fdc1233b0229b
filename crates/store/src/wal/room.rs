//! Checks that the disk has room for the checkpoints of what is in the log, and for deletes after
//! that ([C6]).
//!
//! A commit of the log takes its room in the tree later, at a checkpoint. So does a delete, since
//! each page that changes is written anew. So puts are refused while there still is room for
//! deletes and their checkpoint; the next checkpoint can use what those free. If little room is
//! left, each chunk of the log asks for a checkpoint, after which nothing is pending.
//!
//! LMDB can use the pages that a commit has freed only after the next commit. So an empty commit is
//! made before the free pages are counted.

use std::collections::HashMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::error::Reserved;
use crate::engine::{FileSize, Tree, Usage};
use crate::wal::record;

/// What a checkpoint writes besides rows: the catalog, the list of free pages, the inner pages on
/// the way to each.
const LEAST: u64 = 256 << 10;
/// About how many bytes a delete and its index entry take in the log. Each may change a page of the
/// tree.
const ENTRY_SIZE: u64 = 64;
/// The least that a delete takes in the log. Its page may then be merged with another one.
const DELETE_SIZE: u64 = 40;
const PAGES_OF_DELETE: u64 = 2;
const PAGE_SIZE: u64 = 4096;

/// What is known of the tree's file.
pub(crate) struct Room {
    /// Bytes of its used pages. `u64::MAX` if unknown.
    used: AtomicU64,
    /// Bytes of its free pages.
    spare: AtomicU64,
    /// Bytes of all its pages some time ago.
    bound: AtomicU64,
}

impl Default for Room {
    fn default() -> Self {
        Self { used: AtomicU64::new(u64::MAX), spare: AtomicU64::new(0), bound: AtomicU64::new(u64::MAX) }
    }
}

impl Room {
    /// Store what was looked up.
    pub(crate) fn learn(&self, usage: &Usage) {
        self.used.store(usage.pages.saturating_sub(usage.free_pages) * usage.page_size, Ordering::Relaxed);
        self.spare.store(usage.free_pages * usage.page_size, Ordering::Relaxed);
    }

    /// Store how long the tree's file is: it has no more used pages, besides those of the last
    /// checkpoint.
    pub(crate) fn bound(&self, size: u64) {
        const GROWTH: u64 = 2;
        self.bound.store(size.saturating_mul(GROWTH), Ordering::Relaxed);
    }

    /// Forget it, since the tree has changed.
    pub(crate) fn forget(&self) {
        self.used.store(u64::MAX, Ordering::Relaxed);
        self.spare.store(0, Ordering::Relaxed);
    }

    /// Check that a WAL record may begin another chunk of the log, with `free` bytes on the disk
    /// and `pending` bytes in the log.
    ///
    /// # Errors
    /// `Reserved` if there would be no room for its checkpoint or, after a put, none for deletes.
    pub(crate) fn check(&self, free: u64, pending: u64, chunk: u64, bytes: &[u8]) -> io::Result<()> {
        let (used, spare) = (self.used.load(Ordering::Relaxed), self.spare.load(Ordering::Relaxed));
        let used = used.min(self.bound.load(Ordering::Relaxed));
        // Some of the file's free pages are still read by older snapshots.
        let room = free.saturating_add(spare / 2);
        let all = pending + chunk.max(bytes.len() as u64);
        // The last room is for deletes, which come in small checkpoints. What is in the log may be
        // deletes alone, whose checkpoint takes the most.
        let of_deletes = cost_of_deletes(all, used);
        let needed = cost(all, used).saturating_add(cost(chunk, used));
        if room >= needed.max(of_deletes) {
            return Ok(());
        }
        let needed = if adds_rows(bytes) { needed } else { of_deletes };
        if room >= needed || (pending == 0 && !adds_rows(bytes)) {
            Ok(())
        } else {
            Err(Reserved::error(room, needed))
        }
    }

    /// Check that a bulk commit that adds rows may be made, with `free` bytes on the disk.
    ///
    /// # Errors
    /// `Reserved` if there would be no room for deletes after it.
    pub(crate) fn check_bulk(free: u64, chunk: u64, size: FileSize) -> io::Result<()> {
        let growth = size.after.saturating_sub(size.now);
        let needed = growth.saturating_add(cost(chunk, size.after));
        if growth == 0 || free >= needed { Ok(()) } else { Err(Reserved::error(free, needed)) }
    }
}

/// How many more bytes a tree with `used` bytes may take for `log` bytes of WAL records. Rows are
/// in pages that are half full at worst. Each entry changes a page. Each page changes at most
/// twice: two checkpoints apply both segments, and the second one cannot use the pages that the
/// first one frees.
fn cost(log: u64, used: u64) -> u64 {
    cost_of(log, log / ENTRY_SIZE, used)
}

/// The same, if nothing but deletes of small entries is in the log.
fn cost_of_deletes(log: u64, used: u64) -> u64 {
    cost_of(log, log / DELETE_SIZE * PAGES_OF_DELETE, used)
}

fn cost_of(log: u64, pages: u64, used: u64) -> u64 {
    let grown = log.saturating_mul(2);
    let changed = pages.saturating_mul(PAGE_SIZE).min(used.saturating_add(log).saturating_mul(2));
    grown.saturating_add(changed).saturating_add(LEAST)
}

/// Whether a WAL record takes room for good. The catalog's entries do not count: they are few, and
/// deletes write them too. A put that is followed by a delete of the same key does not count
/// either: it only spells the key.
fn adds_rows(bytes: &[u8]) -> bool {
    let rows = record::changes(bytes).filter(|change| change.tree != Tree::Meta);
    let last: HashMap<_, _> =
        rows.map(|change| ((change.tree, bytes.get(change.key)), change.value.is_some())).collect();
    last.into_values().any(|is_put| is_put)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHUNK: u64 = 64 << 10;

    fn wal_record_of(adds: bool) -> Vec<u8> {
        let mut bytes = record::begin(0);
        if adds {
            record::push_put(&mut bytes, Tree::Rows, b"key", &[b"value"]);
        } else {
            record::push_put(&mut bytes, Tree::Rows, b"key", &[b"text"]);
            record::push_delete(&mut bytes, Tree::Rows, b"key");
            record::push_put(&mut bytes, Tree::Meta, b"table", &[b"count"]);
        }
        record::finish(&mut bytes, if adds { 1 } else { 3 }, 1, 1);
        bytes
    }

    fn room_of(used: u64, free_pages: u64) -> Room {
        let room = Room::default();
        let pages = used + free_pages;
        room.learn(&Usage { page_size: PAGE_SIZE, pages, free_pages, ..Usage::default() });
        room
    }

    #[test]
    fn the_last_room_is_for_deletes() {
        let room = room_of(100, 0);
        let (least, both) = (cost(CHUNK, 100 * PAGE_SIZE), 2 * cost(CHUNK, 100 * PAGE_SIZE));
        let check = |free, pending, adds| room.check(free, pending, CHUNK, &wal_record_of(adds)).is_ok();
        assert!(check(both, 0, true) && !check(both - 1, 0, true));
        assert!(check(both - 1, 0, false) && check(0, 0, false), "after a checkpoint a delete has a try");
        assert!(check(3 * least, 8, false) && !check(least, 8, false));
        // The shortest deletes change two pages for each 40 bytes of the log.
        let large = room_of(100_000, 0);
        let may_delete = |free, pending| large.check(free, pending, CHUNK, &wal_record_of(false)).is_ok();
        assert!(may_delete(66 << 20, 4 * CHUNK) && !may_delete(60 << 20, 4 * CHUNK));
        // Free pages of the file are room as well.
        let room = room_of(100, 2 * both / PAGE_SIZE + 1);
        assert!(room.check(0, 0, CHUNK, &wal_record_of(true)).is_ok());
        // If the tree's usage is unknown, a page is reckoned for each entry.
        assert!(Room::default().check(8 << 20, 0, CHUNK, &wal_record_of(true)).is_err());
        assert!(Room::default().check(9 << 20, 0, CHUNK, &wal_record_of(true)).is_ok());
    }

    #[test]
    fn a_bulk_commit_leaves_room_for_deletes_unless_the_file_stays_as_long() {
        let size = FileSize { now: 1 << 20, after: 3 << 20 };
        let needed = (2 << 20) + cost(CHUNK, size.after);
        assert!(Room::check_bulk(needed, CHUNK, size).is_ok());
        assert!(Room::check_bulk(needed - 1, CHUNK, size).is_err());
        assert!(Room::check_bulk(0, CHUNK, FileSize { now: 1 << 20, after: 1 << 20 }).is_ok());
    }
}
