//! The LMDB cursor: walks over the entries of a tree.
//!
//! One call of LMDB finds the first entry of a leaf page. The other entries of the page are read in
//! the map (`engine/lmdb/page.rs`), and LMDB's cursor is moved behind them when the walk goes on.
//! In write transactions, whose changed pages are outside the map, and wherever a page does not
//! look as it should, LMDB is called for each entry.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::marker::PhantomData;
use std::ptr;

use pellucid_lmdb_sys as ffi;

use crate::engine::lmdb::page::Leaf;
use crate::engine::lmdb::{Environment, check, error_of};
use crate::engine::{Batch, Cursor, Direction, EngineError, Entry, Start};

pub(crate) fn value_of(bytes: &[u8]) -> ffi::MDB_val {
    // LMDB does not write through the pointers that it is given for reading.
    ffi::MDB_val { mv_size: bytes.len(), mv_data: bytes.as_ptr().cast_mut().cast() }
}

pub(crate) const EMPTY: ffi::MDB_val = ffi::MDB_val { mv_size: 0, mv_data: ptr::null_mut() };

/// # Safety
/// LMDB filled the value in a transaction that keeps it in place for `'t`.
pub(crate) unsafe fn bytes_of<'t>(value: ffi::MDB_val) -> &'t [u8] {
    if value.mv_size == 0 {
        return &[];
    }
    // SAFETY: LMDB gave a pointer to that many bytes; the caller promises that they stay.
    unsafe { std::slice::from_raw_parts(value.mv_data.cast(), value.mv_size) }
}

pub(crate) fn read_error(code: c_int) -> EngineError {
    match code {
        ffi::MDB_BAD_TXN => EngineError::Damaged { what: "this snapshot met a damaged page before", code },
        code => error_of(code),
    }
}

/// A position in one tree of one transaction.
pub(crate) struct LmdbCursor<'t> {
    raw: *mut ffi::MDB_cursor,
    environment: &'t Environment,
    direction: Direction,
    /// The entry at LMDB's cursor, not returned yet.
    pending: Option<Entry<'t>>,
    /// The last entry that was returned, if LMDB's cursor must be moved to it before the walk goes
    /// on.
    ahead: Option<&'t [u8]>,
    is_over: bool,
    /// Pages in the file when the cursor was opened: no address beyond them is read.
    page_count: u64,
    /// The leaf page that the last `fill` read.
    last_page: usize,
    /// Whether `fill` may read pages in the map.
    reads_pages: bool,
    _txn: PhantomData<&'t ()>,
}

// SAFETY: a cursor of a NOTLS read transaction may move between threads. One of a write transaction
// cannot leave the borrow of `LmdbWrite`, whose methods check the thread.
unsafe impl Send for LmdbCursor<'_> {}

impl<'t> LmdbCursor<'t> {
    /// The caller ties `'t` to the life of the transaction.
    pub(crate) fn open(
        txn: *mut ffi::MDB_txn,
        handle: ffi::MDB_dbi,
        environment: &'t Environment,
    ) -> Result<Self, EngineError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the transaction is live, `raw` ours to fill.
        check(unsafe { ffi::mdb_cursor_open(txn, handle, &raw mut raw) })?;
        Ok(Self {
            raw,
            environment,
            direction: Direction::Forward,
            pending: None,
            ahead: None,
            is_over: true,
            page_count: environment.info().me_last_pgno as u64 + 1,
            last_page: 0,
            reads_pages: true,
            _txn: PhantomData,
        })
    }

    /// The same cursor, without reading pages in the map.
    pub(crate) fn plain(mut self) -> Self {
        self.reads_pages = false;
        self
    }

    fn go(&mut self, operation: c_uint, key: &[u8]) -> Result<Option<Entry<'t>>, EngineError> {
        let mut key = value_of(key);
        let mut data = EMPTY;
        // SAFETY: the cursor is open, its transaction live; both values are ours.
        match unsafe { ffi::mdb_cursor_get(self.raw, &raw mut key, &raw mut data, operation) } {
            // SAFETY: for `'t` the transaction lives and nothing is written in it.
            0 => Ok(Some(unsafe { (bytes_of(key), bytes_of(data)) })),
            ffi::MDB_NOTFOUND => Ok(None),
            code => Err(read_error(code)),
        }
    }

    /// The leaf page of a key that LMDB's cursor has just returned.
    fn leaf_of(&self, key: &[u8]) -> Option<(Leaf<'t>, usize)> {
        if !self.reads_pages {
            return None;
        }
        let address = key.as_ptr() as usize;
        let bounds = self.environment.map_bounds(address)?;
        // SAFETY: the address came from this transaction, whose pages stay as they are for `'t`.
        // The file had `page_count` pages when the cursor was opened, and never has fewer later.
        let leaf = unsafe { bounds.leaf_around(address, self.page_count) }?;
        Some((leaf, leaf.index_of_key(address)?))
    }
}

impl Drop for LmdbCursor<'_> {
    fn drop(&mut self) {
        if self.environment.is_ours() {
            // SAFETY: the cursor is open, and its transaction has not ended before `'t` did.
            unsafe { ffi::mdb_cursor_close(self.raw) };
        }
    }
}

impl<'t> Cursor<'t> for LmdbCursor<'t> {
    fn start(&mut self, start: Start<'_>, direction: Direction) -> Result<(), EngineError> {
        self.direction = direction;
        self.ahead = None;
        self.pending = match (start, direction) {
            (Start::Edge, Direction::Forward) => self.go(ffi::MDB_FIRST, &[])?,
            (Start::Edge, Direction::Reverse) => self.go(ffi::MDB_LAST, &[])?,
            (Start::At(key), Direction::Forward) => self.go(ffi::MDB_SET_RANGE, key)?,
            (Start::At(key), Direction::Reverse) => {
                let operation = match self.go(ffi::MDB_SET_RANGE, key)? {
                    Some(_) => ffi::MDB_PREV,
                    None => ffi::MDB_LAST,
                };
                self.go(operation, &[])?
            }
        };
        self.is_over = self.pending.is_none();
        Ok(())
    }

    fn step(&mut self) -> Result<Option<Entry<'t>>, EngineError> {
        if let Some(entry) = self.pending.take() {
            return Ok(Some(entry));
        }
        if self.is_over {
            return Ok(None);
        }
        if let Some(key) = self.ahead.take() {
            // On the same page: LMDB compares with its first and last entry before it searches.
            self.go(ffi::MDB_SET, key)?
                .ok_or(EngineError::Damaged { what: "an entry of a leaf page cannot be found", code: 0 })?;
        }
        let operation = match self.direction {
            Direction::Forward => ffi::MDB_NEXT,
            Direction::Reverse => ffi::MDB_PREV,
        };
        let entry = self.go(operation, &[])?;
        self.is_over = entry.is_none();
        Ok(entry)
    }

    fn fill(&mut self, batch: &mut Batch<'t>) -> Result<(), EngineError> {
        const STEPS: usize = 32;
        batch.entries.clear();
        let Some(first) = self.step()? else { return Ok(()) };
        batch.entries.push(first);
        if let Some((leaf, index)) = self.leaf_of(first.0) {
            let is_next = match self.direction {
                Direction::Forward => leaf.number() == self.last_page + 1,
                Direction::Reverse => leaf.number() + 1 == self.last_page,
            };
            self.last_page = leaf.number();
            leaf.push_entries(index, self.direction, is_next, &mut batch.entries);
            if batch.entries.len() > 1 {
                self.ahead = batch.entries.last().map(|entry| entry.0);
            }
            return Ok(());
        }
        self.reads_pages = false;
        while batch.entries.len() < STEPS {
            match self.step()? {
                Some(entry) => batch.entries.push(entry),
                None => break,
            }
        }
        Ok(())
    }
}
