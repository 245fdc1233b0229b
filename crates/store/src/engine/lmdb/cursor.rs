//! The LMDB cursor: walks over the entries of a tree, with a call of LMDB for each.
//!
//! Write transactions walk so, whose changed pages are outside the map, and all transactions where
//! it is not known where the map is. Others read the pages themselves (`engine/lmdb/walk.rs`),
//! which is faster, and safe in damaged pages.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::marker::PhantomData;
use std::ptr;

use pellucid_lmdb_sys as ffi;

use crate::engine::lmdb::{Environment, check, error_of};
use crate::engine::{Batch, Cursor, Direction, EngineError, Entry, EntryResult, Result, Start};

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
    is_over: bool,
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
    ) -> Result<Self> {
        let mut raw = ptr::null_mut();
        // SAFETY: the transaction is live, `raw` ours to fill.
        check(unsafe { ffi::mdb_cursor_open(txn, handle, &raw mut raw) })?;
        Ok(Self {
            raw,
            environment,
            direction: Direction::Forward,
            pending: None,
            is_over: true,
            _txn: PhantomData,
        })
    }

    fn go(&mut self, operation: c_uint, key: &[u8]) -> EntryResult<'t> {
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
    fn start(&mut self, start: Start<'_>, direction: Direction) -> Result<()> {
        self.direction = direction;
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

    fn step(&mut self) -> EntryResult<'t> {
        if let Some(entry) = self.pending.take() {
            return Ok(Some(entry));
        }
        if self.is_over {
            return Ok(None);
        }
        let operation = match self.direction {
            Direction::Forward => ffi::MDB_NEXT,
            Direction::Reverse => ffi::MDB_PREV,
        };
        let entry = self.go(operation, &[])?;
        self.is_over = entry.is_none();
        Ok(entry)
    }

    fn fill(&mut self, batch: &mut Batch<'t>) -> Result<()> {
        const STEPS: usize = 32;
        batch.entries.clear();
        while batch.entries.len() < STEPS {
            match self.step()? {
                Some(entry) => batch.entries.push(entry),
                None => break,
            }
        }
        Ok(())
    }
}
