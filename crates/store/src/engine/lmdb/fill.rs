//! Appends sorted entries to a page of LMDB's directly, without calling LMDB for each.
//!
//! LMDB's own put searches the page's keys, adjusts other cursors, looks for pages to spill, and
//! checks that each page on the way is writable: some 800 instructions for an entry of a
//! checkpoint. If an append has just begun a page, all of that is known until LMDB is called again.
//! So entries that fit are written here as LMDB does it (`mdb_node_add`), and added to its entry
//! count.
//!
//! LMDB does not tell where that count is. It is found through the head of a cursor as declared in
//! `mdb.c`, and used only if everything that can be queried agrees (`Filling::begin`). Otherwise
//! LMDB does all of the work.
//!
//! Invariant: while a `Filling` exists, nothing is called in the transaction that may change or
//! free pages.
#![allow(unsafe_code)]

use std::ffi::c_uint;
use std::ptr::{self, NonNull};
use std::slice;

use pellucid_lmdb_sys as ffi;
use pellucid_record::encode::copy;

use crate::engine::EngineError;
use crate::engine::lmdb::check;
use crate::engine::lmdb::page::{NODE_HEAD_SIZE, PAGE_HEAD_SIZE, PAGE_LEAF};
use crate::engine::lmdb::txn::empty_stat;
use crate::sys::short::is_less;

/// Page flag: changed by this transaction.
const PAGE_DIRTY: u16 = 0x10;
/// Bytes of a node's offset in the page's list.
const OFFSET_SIZE: usize = 2;
/// From this size on a node may be stored on overflow pages.
const LARGE_SIZE_MIN: usize = 1024;

/// What a transaction knows of a tree (`MDB_db`).
#[repr(C)]
struct TreeRecord {
    pad: u32,
    flags: u16,
    depth: u16,
    branch_pages: usize,
    leaf_pages: usize,
    overflow_pages: usize,
    entries: usize,
    root: usize,
}

/// The first fields of a cursor (`MDB_cursor`).
#[repr(C)]
struct CursorHead {
    next: *const CursorHead,
    backup: *const CursorHead,
    subcursor: *const CursorHead,
    txn: *const ffi::MDB_txn,
    handle: c_uint,
    record: *mut TreeRecord,
}

/// A page with free room after its last entry.
pub(crate) struct Filling {
    page: NonNull<u8>,
    record: NonNull<TreeRecord>,
}

/// The size of a node in its page.
#[inline]
fn node_size(key_size: usize, value_size: usize) -> usize {
    (NODE_HEAD_SIZE + key_size + value_size).next_multiple_of(2)
}

/// The room that an entry takes in its page, with its offset in the list. `None` if it may be
/// stored on overflow pages.
#[inline]
pub(crate) fn entry_size(key_size: usize, value_size: usize) -> Option<usize> {
    (NODE_HEAD_SIZE + key_size + value_size < LARGE_SIZE_MIN)
        .then_some(node_size(key_size, value_size) + OFFSET_SIZE)
}

impl Filling {
    /// Continue after an entry for which LMDB has just begun a page; `value` is the room that it
    /// has reserved for the value. `None` if the page does not look like that, or if LMDB's counts
    /// are not where they are expected.
    ///
    /// # Safety
    /// The cursor is open and belongs to this live transaction. It has just put the entry, for
    /// which LMDB began a leaf: the memory where that page would begin is read.
    pub(crate) unsafe fn begin(
        (txn, handle): (*mut ffi::MDB_txn, ffi::MDB_dbi),
        cursor: *mut ffi::MDB_cursor,
        value: *mut u8,
        (key_size, value_size): (usize, usize),
        page_size: usize,
    ) -> Result<Option<Self>, EngineError> {
        #[cfg(test)]
        if tests::IS_OFF.get() {
            return Ok(None);
        }
        let mut stat = empty_stat();
        // SAFETY: the transaction is live, `stat` ours to fill.
        check(unsafe { ffi::mdb_stat(txn, handle, &raw mut stat) })?;
        if size_of::<usize>() != 8 || cursor.is_null() || !cursor.cast::<CursorHead>().is_aligned() {
            return Ok(None);
        }
        // SAFETY: an open cursor is longer than that, and all of it was written when it was opened.
        let head = unsafe { ptr::read(cursor.cast::<CursorHead>()) };
        if !ptr::eq(head.txn, txn) || head.handle != handle || !head.record.is_aligned() {
            return Ok(None);
        }
        let Some(record) = NonNull::new(head.record) else { return Ok(None) };
        // SAFETY: the cursor's transaction and handle are the expected ones, so the next field is
        // the tree's record.
        let found = unsafe { record.as_ref() };
        let counts = (stat.ms_depth, stat.ms_branch_pages, stat.ms_leaf_pages, stat.ms_overflow_pages);
        let is_same = (u32::from(found.depth), found.branch_pages, found.leaf_pages, found.overflow_pages)
            == counts
            && found.entries == stat.ms_entries;
        let size = node_size(key_size, value_size);
        let Some(upper) = page_size.checked_sub(size).filter(|_| is_same) else { return Ok(None) };
        // The only node of a page is at its end.
        let Some(page) = NonNull::new(value.wrapping_sub(upper + NODE_HEAD_SIZE + key_size)) else {
            return Ok(None);
        };
        if !page.cast::<u64>().is_aligned() {
            return Ok(None);
        }
        let filling = Self { page, record };
        let lower = PAGE_HEAD_SIZE + OFFSET_SIZE;
        // SAFETY: LMDB has reserved room for the value in a page of the transaction. If the entry
        // is the page's only one, as these fields say, the page begins here, and all of it is the
        // transaction's.
        let is_begun = unsafe {
            filling.u16_at(10) == PAGE_LEAF | PAGE_DIRTY
                && (filling.lower(), filling.upper()) == (lower, upper)
                && usize::from(filling.u16_at(PAGE_HEAD_SIZE)) == upper
        };
        Ok(is_begun.then_some(filling))
    }

    /// # Safety
    /// The page has two bytes at this offset, which is even.
    #[inline]
    unsafe fn u16_at(&self, offset: usize) -> u16 {
        // SAFETY: as promised by the caller.
        unsafe { self.page.add(offset).cast::<u16>().read() }
    }

    /// # Safety
    /// As `u16_at`, and the page is the transaction's.
    #[inline]
    unsafe fn set_u16(&mut self, offset: usize, value: usize) {
        // SAFETY: as promised by the caller.
        unsafe { self.page.add(offset).cast::<u16>().write(value as u16) };
    }

    /// Where the free room of the page begins.
    #[inline]
    fn lower(&self) -> usize {
        // SAFETY: in the head of a page.
        usize::from(unsafe { self.u16_at(12) })
    }

    /// Where the free room ends.
    #[inline]
    fn upper(&self) -> usize {
        // SAFETY: in the head of a page.
        usize::from(unsafe { self.u16_at(14) })
    }

    /// Free bytes for entries.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        self.upper().saturating_sub(self.lower())
    }

    /// The key of the last entry.
    #[inline]
    pub(crate) fn last_key(&self) -> &[u8] {
        let at = self.upper();
        // SAFETY: the last node is at the end of the free room. Its head has the size of its key,
        // which follows the head (`begin`, `add`). Nothing writes to the page while there is a
        // reference to `self`.
        unsafe {
            let size = usize::from(self.u16_at(at + 6));
            slice::from_raw_parts(self.page.add(at + NODE_HEAD_SIZE).as_ptr(), size)
        }
    }

    /// Write an entry. False, and nothing is written, if its key is not above the last one, if it
    /// has no room, or if it may have to be stored on overflow pages.
    #[inline]
    pub(crate) fn add(&mut self, key: &[u8], parts: &[&[u8]]) -> bool {
        let value_size: usize = parts.iter().map(|part| part.len()).sum();
        let room = self.room();
        let has_room = entry_size(key.len(), value_size).is_some_and(|size| size <= room);
        if !has_room || !is_less(self.last_key(), key) {
            return false;
        }
        let (lower, upper) = (self.lower(), self.upper());
        let at = upper - node_size(key.len(), value_size);
        // SAFETY: the node and its offset are in the free room of the page, which is the
        // transaction's (`begin`, and the module's invariant). Both begin at even offsets; key and
        // value are elsewhere. The record is the transaction's, too.
        unsafe {
            self.set_u16(lower, at);
            self.set_u16(12, lower + OFFSET_SIZE);
            self.set_u16(14, at);
            self.set_u16(at, value_size & 0xFFFF);
            self.set_u16(at + 2, value_size >> 16);
            self.set_u16(at + 4, 0);
            self.set_u16(at + 6, key.len());
            let mut target = self.page.add(at + NODE_HEAD_SIZE).as_ptr();
            for part in std::iter::once(&key).chain(parts) {
                copy(slice::from_raw_parts_mut(target, part.len()), part);
                target = target.add(part.len());
            }
            (*self.record.as_ptr()).entries += 1;
        }
        #[cfg(test)]
        tests::ADDED.set(tests::ADDED.get() + 1);
        true
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::path::PathBuf;

    use crate::engine::lmdb::{LmdbEngine, LmdbOptions};
    use crate::engine::{Engine, Tree, WriteTxn};

    thread_local! {
        /// Whether LMDB does all of the work.
        pub(super) static IS_OFF: Cell<bool> = const { Cell::new(false) };
        /// How many entries were written here.
        pub(super) static ADDED: Cell<u64> = const { Cell::new(0) };
    }

    fn append(txn: &mut dyn WriteTxn, tree: Tree, number: u64) {
        // Odd and even sizes, empty values, and values on overflow pages.
        let size = match number % 97 {
            0 => 0,
            1 => 1_500,
            2 => 9_000,
            other => other,
        } as usize;
        let key = [&number.to_be_bytes()[..], &vec![7; (number % 13) as usize]].concat();
        let value = vec![number as u8; size];
        let (first, second) = value.split_at(size / 3);
        assert!(txn.append(tree, &key, &[first, second]).unwrap());
    }

    /// The operations of a checkpoint, of a bulk load, and of changes in between.
    fn written(name: &str) -> Vec<u8> {
        let path: PathBuf = std::env::temp_dir().join(format!("pellucid-fill-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let options = LmdbOptions::default();
        let engine = LmdbEngine::create(&path, options, &mut |_, _| vec![(vec![1], vec![2])]).unwrap();
        let mut next = 0;
        let mut some = |txn: &mut dyn WriteTxn, tree: Tree, count: u64| {
            for _ in 0..count {
                next += 1;
                append(txn, tree, next);
            }
        };
        let mut entries = 1;
        for round in 0..4 {
            entries += 5_000 + 70 + 70 + 500 + 300 + 300 + 200 + u64::from(round == 0);
            let mut txn = engine.begin_write().unwrap();
            some(&mut *txn, Tree::Rows, 5_000);
            txn.put(Tree::Meta, b"between", &[&[round; 40]]).unwrap();
            some(&mut *txn, Tree::Rows, 70);
            some(&mut *txn, Tree::Blobs, 200);
            some(&mut *txn, Tree::Rows, 70);
            txn.savepoint().unwrap();
            some(&mut *txn, Tree::Rows, 500);
            txn.rollback().unwrap();
            txn.savepoint().unwrap();
            some(&mut *txn, Tree::Rows, 500);
            txn.release().unwrap();
            some(&mut *txn, Tree::Rows, 300);
            for number in [9_u64, 1_000, 4_800, 5_100] {
                let key = [&number.to_be_bytes()[..], &vec![7; (number % 13) as usize]].concat();
                entries -= u64::from(txn.delete(Tree::Rows, &key).unwrap());
            }
            some(&mut *txn, Tree::Rows, 300);
            txn.commit().unwrap();
        }
        assert_eq!(engine.usage().unwrap().entries.iter().sum::<u64>(), entries);
        drop(engine);
        let bytes = std::fs::read(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _ = std::fs::remove_file(path.with_extension("-lock"));
        bytes
    }

    #[test]
    fn what_is_filled_here_is_as_lmdb_fills_it() {
        ADDED.set(0);
        let here = written("here");
        assert!(ADDED.get() > 10_000, "nearly all of them are written here: {}", ADDED.get());
        IS_OFF.set(true);
        let by_lmdb = written("lmdb");
        IS_OFF.set(false);
        assert!(here == by_lmdb, "byte for byte");
    }

    #[test]
    fn only_a_greater_key_that_is_not_too_long_is_appended() {
        let path = std::env::temp_dir().join(format!("pellucid-fill-order-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let options = LmdbOptions { key_size_max: 40, ..LmdbOptions::default() };
        let engine = LmdbEngine::create(&path, options, &mut |_, _| Vec::new()).unwrap();
        let mut txn = engine.begin_write().unwrap();
        let key = |number: u64| [&b"all of them begin so "[..], &number.to_be_bytes()].concat();
        let shorter = key(800)[..key(800).len() - 1].to_vec();
        let refused = [key(800), key(3), shorter, b"all".to_vec(), vec![0]];
        for (turn, wrong) in refused.iter().enumerate() {
            let start = 1_000 * turn as u64 + 100;
            ADDED.set(0);
            for number in start..start + 701 {
                assert!(txn.append(Tree::Rows, &key(number), &[b"first"]).unwrap());
            }
            assert!(ADDED.get() > 500, "the last one as well");
            let wrong = if turn == 0 { &key(start + 700) } else { wrong };
            assert!(!txn.append(Tree::Rows, wrong, &[b"second"]).unwrap(), "{wrong:?}");
        }
        for unfit in [vec![], vec![255; 41]] {
            assert!(txn.append(Tree::Rows, &unfit, &[b"third"]).is_err());
        }
        assert!(txn.append(Tree::Rows, &[255; 40], &[b"last"]).unwrap());
        assert_eq!(txn.get(Tree::Rows, &key(800)).unwrap(), Some(&b"first"[..]));
        txn.commit().unwrap();
        let [_, rows, _] = engine.usage().unwrap().entries;
        assert_eq!(rows, 701 * refused.len() as u64 + 1);
        std::fs::remove_file(&path).unwrap();
        let _ = std::fs::remove_file(path.with_extension("-lock"));
    }
}
