//! Does the disk have room for what the log will bring into the tree?
//!
//! A commit of the log takes its room in the tree later, at a checkpoint, and so does a delete, since each page that changes is written anew. So
//! rows are refused while there still is room for deletes and for the checkpoint that brings them; what that frees is used by the next one.
//! Where little room is left each piece of the log asks for a checkpoint, behind which nothing is pending.
//!
//! LMDB uses the pages that a commit has freed behind the next one; so that one is made, of nothing, before they are counted.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::engine::{FileSize, Tree, Usage};
use crate::error::Bytes;
use crate::wal::record;

/// What a checkpoint changes besides rows: the catalog, the list of free pages, the way down to each.
const LEAST: u64 = 256 << 10;
/// Bytes of a delete and of its entry in an index, about: each may change a page of the tree.
const ENTRY_SIZE: u64 = 64;
const PAGE_SIZE: u64 = 4096;

/// Rows are refused although the disk is not full yet.
#[derive(Debug)]
pub(crate) struct Reserved {
    free: u64,
    needed: u64,
}

impl Reserved {
    fn error(free: u64, needed: u64) -> io::Error {
        io::Error::new(io::ErrorKind::StorageFull, Self { free, needed })
    }

    /// What an error says of that, if that is what it is about.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for Reserved {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (free, needed) = (Bytes(self.free), Bytes(self.needed));
        write!(
            out,
            "{free} are free there and in the file, and {needed} are needed: the last room is kept for deletes"
        )
    }
}

impl std::error::Error for Reserved {}

/// What is known of the tree's file.
pub(crate) struct Room {
    /// Bytes of its pages that hold something: `u64::MAX` where nobody has looked.
    used: AtomicU64,
    /// Bytes of its pages that hold nothing.
    spare: AtomicU64,
}

impl Default for Room {
    fn default() -> Self {
        Self { used: AtomicU64::new(u64::MAX), spare: AtomicU64::new(0) }
    }
}

impl Room {
    /// Take over what somebody has looked up.
    pub(crate) fn learn(&self, usage: &Usage) {
        self.used.store(usage.pages.saturating_sub(usage.free_pages) * usage.page_size, Ordering::Relaxed);
        self.spare.store(usage.free_pages * usage.page_size, Ordering::Relaxed);
    }

    /// The tree has changed.
    pub(crate) fn forget(&self) {
        self.used.store(u64::MAX, Ordering::Relaxed);
        self.spare.store(0, Ordering::Relaxed);
    }

    /// Whether a WAL record may be appended where a piece of the log begins, with so many bytes free on the disk, and pending in the log.
    ///
    /// # Errors
    /// `Reserved` where there would be no room for its checkpoint, or behind rows none for deletes.
    pub(crate) fn check(&self, free: u64, pending: u64, piece: u64, bytes: &[u8]) -> io::Result<()> {
        let (used, spare) = (self.used.load(Ordering::Relaxed), self.spare.load(Ordering::Relaxed));
        // Some of what is free in the file is still read in its old version.
        let room = free.saturating_add(spare / 2);
        let needed = cost(pending + piece.max(bytes.len() as u64), used).saturating_add(cost(piece, used));
        // The last room is for deletes, which come in small checkpoints.
        if room >= needed || (pending == 0 && !adds_rows(bytes)) {
            return Ok(());
        }
        Err(Reserved::error(room, needed))
    }

    /// Whether a transaction of the tree that adds rows may be committed, with so many bytes free on the disk.
    ///
    /// # Errors
    /// `Reserved` where there would be no room for deletes behind it.
    pub(crate) fn check_bulk(free: u64, piece: u64, size: FileSize) -> io::Result<()> {
        let growth = size.after.saturating_sub(size.now);
        let needed = growth.saturating_add(cost(piece, size.after));
        if growth == 0 || free >= needed { Ok(()) } else { Err(Reserved::error(free, needed)) }
    }
}

/// Bytes that a tree which uses so many may take more for so many bytes of the log. Rows stand in pages that are half full at worst. A page
/// changes for each entry; and each page at most twice, since two checkpoints take both segments, and the pages that the first one frees are not used by
/// the second.
fn cost(log: u64, used: u64) -> u64 {
    let grown = log.saturating_mul(2);
    let changed =
        (log / ENTRY_SIZE).saturating_mul(PAGE_SIZE).min(used.saturating_add(log).saturating_mul(2));
    grown.saturating_add(changed).saturating_add(LEAST)
}

/// Whether a WAL record takes room for good. The catalog's entries are few, and deletes write them too; and a delete may say its key ahead by a row.
fn adds_rows(bytes: &[u8]) -> bool {
    let rows = record::changes(bytes).filter(|change| change.tree != Tree::Meta);
    let last: HashMap<_, _> =
        rows.map(|change| ((change.tree, bytes.get(change.key)), change.value.is_some())).collect();
    last.into_values().any(|is_put| is_put)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = 64 << 10;

    fn wal_record_of(adds: bool) -> Vec<u8> {
        let mut bytes = record::begin(0);
        if adds {
            record::push_put(&mut bytes, Tree::Rows, b"key", &[b"value"]);
        } else {
            record::push_put(&mut bytes, Tree::Rows, b"key", &[b"said"]);
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
        let (least, both) = (cost(PIECE, 100 * PAGE_SIZE), 2 * cost(PIECE, 100 * PAGE_SIZE));
        let check = |free, pending, adds| room.check(free, pending, PIECE, &wal_record_of(adds)).is_ok();
        assert!(check(both, 0, true) && !check(both - 1, 0, true));
        assert!(check(both - 1, 0, false) && check(0, 0, false), "behind a checkpoint a delete has a try");
        assert!(check(3 * least, 8, false) && !check(least, 8, false));
        // What is free in the file is room as well.
        let room = room_of(100, 2 * both / PAGE_SIZE + 1);
        assert!(room.check(0, 0, PIECE, &wal_record_of(true)).is_ok());
        // Where nobody has looked, a page is reckoned for each entry.
        assert!(Room::default().check(8 << 20, 0, PIECE, &wal_record_of(true)).is_err());
        assert!(Room::default().check(9 << 20, 0, PIECE, &wal_record_of(true)).is_ok());
    }

    #[test]
    fn a_bulk_commit_leaves_room_for_deletes_unless_the_file_stays_as_long() {
        let size = FileSize { now: 1 << 20, after: 3 << 20 };
        let needed = (2 << 20) + cost(PIECE, size.after);
        assert!(Room::check_bulk(needed, PIECE, size).is_ok());
        assert!(Room::check_bulk(needed - 1, PIECE, size).is_err());
        assert!(Room::check_bulk(0, PIECE, FileSize { now: 1 << 20, after: 1 << 20 }).is_ok());
    }
}
