//! Chooses the free pages that a write transaction takes, where LMDB would choose worse.
//!
//! `contiguous` has large transactions take pages that are next to each other, and `reuse` uses
//! pages again beside snapshots. Both rewrite LMDB's list of free pages from outside, and a mistake
//! overwrites pages that are in use. So all other files reach them through this one, and
//! [`PageChoice::Lmdb`] turns off both. `docs/internals/lmdb.md` says what they rely on.
#![allow(unsafe_code)]

mod contiguous;
mod reuse;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pellucid_lmdb_sys as ffi;

use crate::engine::Result;
use crate::engine::lmdb::Environment;
use crate::engine::lmdb::free_pages::reuse::WrittenPages;
use crate::engine::lmdb::txn::LmdbWrite;

/// What chooses the free pages that a write transaction takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PageChoice {
    /// This file: contiguous pages for large transactions, and pages that no snapshot needs.
    #[default]
    Pellucid,
    /// LMDB: scattered pages, and none that is freed beside a snapshot.
    Lmdb,
}

impl PageChoice {
    /// LMDB's choice if it is left to it, else ours.
    pub(crate) fn of(is_left_to_lmdb: bool) -> Self {
        if is_left_to_lmdb { Self::Lmdb } else { Self::Pellucid }
    }
}

/// What an environment knows of free pages.
pub(crate) struct FreePages {
    choice: PageChoice,
    written: Mutex<WrittenPages>,
}

impl FreePages {
    pub(super) fn new(choice: PageChoice) -> Self {
        Self { choice, written: Mutex::default() }
    }

    fn is_left_to_lmdb(&self) -> bool {
        self.choice == PageChoice::Lmdb
    }

    fn written(&self) -> MutexGuard<'_, WrittenPages> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Free pages that a transaction has set aside.
#[derive(Default)]
pub(super) struct SetAside {
    /// Their count, then their numbers, descending. Empty if there are none.
    pages: Vec<usize>,
    /// The number of pages up to which the file grows before these are taken.
    longest: usize,
}

impl Environment {
    /// Let a transaction that has just begun use the pages that no reader needs. Returns false if
    /// it has to be begun again without that.
    pub(super) fn prepare_free_pages(&self, txn: *mut ffi::MDB_txn) -> Result<bool> {
        if self.free_pages.is_left_to_lmdb() { Ok(true) } else { self.reuse_pages(txn) }
    }

    /// Note that a transaction was committed.
    pub(super) fn note_commit(&self, version: u64) {
        self.free_pages.written().note_commit(version);
    }

    /// Note that something else than LMDB writes these pages.
    pub(super) fn note_extent(&self, first: u64, count: u64) {
        self.free_pages.written().forget(first, count);
    }

    /// How many of these pages, which version `freed` has freed, one of these readers needs. The
    /// readers are in ascending order.
    pub(super) fn count_pinned(&self, pages: &[u64], freed: u64, readers: &[u64]) -> u64 {
        let written = self.free_pages.written();
        pages.iter().filter(|page| written.is_pinned(**page, freed, readers)).count() as u64
    }
}

impl LmdbWrite {
    /// Load free pages that are next to each other, for a transaction that changes `keys` keys.
    pub(super) fn prepare_contiguous_pages(&mut self, keys: u64) -> Result<()> {
        if self.environment().free_pages.is_left_to_lmdb() { Ok(()) } else { self.set_sparse_aside(keys) }
    }

    /// Make sure that there are pages at hand for an entry of this size. One that gets pages of its
    /// own needs them side by side, and they may be anywhere.
    pub(super) fn supply_for(&mut self, size: usize) -> Result<()> {
        /// LMDB leaves less than half of a page to an entry: heads of page and entry come off.
        const HEADS: usize = 32;
        if !self.set_aside.pages.is_empty() && size + HEADS > self.environment().page_size() / 2 {
            self.add_set_aside()
        } else {
            Ok(())
        }
    }

    /// Make sure that there are pages at hand for one change.
    #[inline]
    pub(super) fn supply(&mut self) -> Result<()> {
        if self.set_aside.pages.is_empty() || self.has_enough()? { Ok(()) } else { self.add_set_aside() }
    }

    /// Add all pages that are set aside.
    pub(super) fn add_set_aside(&mut self) -> Result<()> {
        let SetAside { pages, .. } = std::mem::take(&mut self.set_aside);
        if pages.is_empty() {
            return Ok(());
        }
        // SAFETY: the transaction is live, and the list begins with its length.
        let code = unsafe { ffi::pellucid_add_free(self.txn()?, pages.as_ptr()) };
        self.environment().check(code)
    }
}
