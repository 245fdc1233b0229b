//! The read transactions of this process, and what the lock file says of those of all processes.
#![allow(unsafe_code)]

use std::ffi::c_uint;
use std::ptr;
use std::sync::atomic::{Ordering, fence};
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use pellucid_lmdb_sys as ffi;

use crate::engine::lmdb::unregistered::{ANY, Shown};
use crate::engine::lmdb::{Environment, Heads, IdleReader, READERS_MAX, check};
use crate::engine::{EngineError, OldestReader, Result};
use crate::sys::os;

/// A process may have this many read transactions whatever the others have.
const OWN_READERS_FREE: usize = 64;
/// Reader slots that kept snapshots leave: for reads, and for all that reads leave slots to.
const SLOTS_ASIDE: u32 = 256;
/// Those that reads leave: for processes with fewer readers, and for checkpoints, writers and
/// openers, which cannot do without.
const SLOTS_ASIDE_OF_READS: u32 = 64;

/// The version of a read transaction, which is live.
fn version_of(txn: *mut ffi::MDB_txn) -> u64 {
    // SAFETY: the callers in this file have the transaction alone, between its begin and its end.
    unsafe { ffi::mdb_txn_id(txn) as u64 }
}

impl Environment {
    /// See [`TreeFile::check_reader_room`](crate::engine::TreeFile::check_reader_room).
    #[inline]
    pub(super) fn check_reader_room(&self, keeps: bool) -> Result<()> {
        let own = self.reader_count.load(Ordering::Relaxed);
        let aside = if keeps { SLOTS_ASIDE } else { SLOTS_ASIDE_OF_READS };
        if own <= OWN_READERS_FREE { Ok(()) } else { self.check_slots(READERS_MAX - aside) }
    }

    #[cold]
    fn check_slots(&self, most: u32) -> Result<()> {
        self.check_usable()?;
        if self.info().me_numreaders < most || self.taken_slots() < most {
            return Ok(());
        }
        self.free_dead_readers()?;
        let taken = self.taken_slots();
        if taken < most { Ok(()) } else { Err(self.readers_full(taken)) }
    }

    /// Slots that are taken in all processes, without those that this one has ready for its next
    /// read transactions.
    fn taken_slots(&self) -> u32 {
        let idle = self.idle_readers.lock().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the environment is open.
        let taken = unsafe { ffi::pellucid_taken_slots(self.raw) };
        taken.saturating_sub(idle.len() as u32)
    }

    /// The error for a process that gets no reader slot.
    pub(super) fn readers_full(&self, taken: u32) -> EngineError {
        let own = self.reader_count.load(Ordering::Relaxed) as u32;
        EngineError::ReadersFull { own, taken, slots: READERS_MAX }
    }

    /// A read transaction of the newest version, and the heads of that version if they are at hand.
    pub(crate) fn take_reader(&self) -> Result<(*mut ffi::MDB_txn, Option<Arc<Heads>>)> {
        let taken = match &self.shown {
            Some(shown) => self.take_shown(shown)?,
            None => self.take_slot()?,
        };
        self.reader_count.fetch_add(1, Ordering::Relaxed);
        Ok(taken)
    }

    /// As `take_slot`, for a process that has no places: it locks a version, and then looks again
    /// whether that is the newest (`unregistered.rs`).
    fn take_shown(&self, shown: &Shown) -> Result<(*mut ffi::MDB_txn, Option<Arc<Heads>>)> {
        self.check_usable()?;
        let mut version = self.info().me_last_txnid as u64;
        loop {
            shown.add(version)?;
            let taken = self.take_slot().inspect_err(|_| shown.remove(version))?;
            // This was the newest one after the lock was taken, so no writer had asked for locks
            // that could miss it: one that asked before was making the version after this.
            let newest = version_of(taken.0);
            if newest == version {
                return Ok(taken);
            }
            shown.remove(version);
            self.give_slot(taken.0, taken.1);
            version = newest;
        }
    }

    /// A read transaction with the roots of the version that it says.
    ///
    /// LMDB notes the newest version first, and then copies the roots from the meta page of that
    /// version. If this thread is stopped in between for so long that two commits end, the second
    /// one overwrites that meta page, and the roots are those of a later version, or parts of both.
    /// LMDB itself keeps all pages that were freed since the version that was noted, but we have
    /// such pages used again that are younger than that version (`free_pages/reuse.rs`).
    ///
    /// So the newest version is looked at again after the copy. If it is still the one that was
    /// noted, the next commit was not complete, and the one after it, which alone writes to this
    /// meta page, had not begun.
    fn take_slot(&self) -> Result<(*mut ffi::MDB_txn, Option<Arc<Heads>>)> {
        let mut taken = self.note_and_copy()?;
        loop {
            let version = version_of(taken.0);
            // The roots were loaded before what is loaded from here on.
            fence(Ordering::Acquire);
            if self.info().me_last_txnid as u64 <= version {
                return Ok(taken);
            }
            // A meta page is newer. With a lock file that is no proof of two commits: its writer
            // may be about to tell the version, or have died before that. But readers note the
            // version that was told last. If that is still the same, no later commit had begun.
            let next = match self.note_and_copy() {
                Ok(next) => next,
                Err(error) => {
                    self.give_slot(taken.0, taken.1);
                    return Err(error);
                }
            };
            if version_of(next.0) == version {
                self.give_slot(next.0, next.1);
                return Ok(taken);
            }
            self.give_slot(taken.0, taken.1);
            taken = next;
        }
    }

    fn note_and_copy(&self) -> Result<(*mut ffi::MDB_txn, Option<Arc<Heads>>)> {
        self.check_usable()?;
        let idle = self.idle_readers.lock().unwrap_or_else(PoisonError::into_inner).pop();
        if let Some(IdleReader(txn, heads)) = idle {
            // SAFETY: the transaction was reset before it came into the pool, and is ours alone
            // now.
            let code = unsafe { ffi::mdb_txn_renew(txn) };
            if code == 0 {
                let version = version_of(txn);
                // SAFETY: the transaction is live.
                unsafe { ffi::pellucid_note_begun(txn, os::ticks()) };
                return Ok((txn, heads.filter(|heads| heads.version == version)));
            }
            // SAFETY: a transaction that could not be renewed may only be aborted.
            unsafe { ffi::mdb_txn_abort(txn) };
            return Err(self.begin_error(code));
        }
        Ok((self.begin_reader()?, None))
    }

    fn begin_reader(&self) -> Result<*mut ffi::MDB_txn> {
        let mut is_second_try = false;
        loop {
            let mut txn = ptr::null_mut();
            // SAFETY: the environment is open and `txn` is ours to fill.
            let code =
                unsafe { ffi::mdb_txn_begin(self.raw, ptr::null_mut(), ffi::MDB_RDONLY, &raw mut txn) };
            if code == ffi::MDB_READERS_FULL && !is_second_try {
                is_second_try = true;
                self.free_dead_readers()?;
                continue;
            }
            if code != 0 {
                return Err(self.begin_error(code));
            }
            // SAFETY: the transaction is live.
            unsafe { ffi::pellucid_note_begun(txn, os::ticks()) };
            return Ok(txn);
        }
    }

    /// Free the reader places of dead processes: until then, the pages of their snapshots are kept.
    pub(crate) fn free_dead_readers(&self) -> Result<()> {
        // SAFETY: the environment is open; the count of dead readers is not asked for.
        check(unsafe { ffi::mdb_reader_check(self.raw, ptr::null_mut()) })
    }

    /// Return a read transaction that has no user any more, with the heads of its version.
    pub(crate) fn give_reader(&self, txn: *mut ffi::MDB_txn, heads: Option<Arc<Heads>>) {
        self.reader_count.fetch_sub(1, Ordering::Relaxed);
        if !self.is_ours() {
            // The reader place belongs to the parent, which still uses it: leak our copy.
            return;
        }
        if let Some(shown) = &self.shown {
            shown.remove(version_of(txn));
        }
        self.give_slot(txn, heads);
    }

    fn give_slot(&self, txn: *mut ffi::MDB_txn, heads: Option<Arc<Heads>>) {
        const IDLE_MAX: usize = 64;
        // SAFETY: the caller had the transaction alone and gives it away.
        unsafe { ffi::mdb_txn_reset(txn) };
        let mut idle = self.idle_readers.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX {
            idle.push(IdleReader(txn, heads));
        } else {
            drop(idle);
            // SAFETY: as above; aborting gives its reader place back.
            unsafe { ffi::mdb_txn_abort(txn) };
        }
    }

    /// The versions that read transactions of all processes have, in ascending order. [`ANY`] is
    /// one of them if there may be more.
    pub(super) fn reader_versions(&self) -> Vec<u64> {
        let mut versions = vec![0_usize; READERS_MAX as usize];
        // SAFETY: the environment is open, and the call fills at most as many as there is room for.
        let count = unsafe {
            ffi::pellucid_reader_versions(self.raw, versions.as_mut_ptr(), versions.len() as c_uint)
        };
        let mut readers: Vec<u64> =
            versions.iter().take(count as usize).map(|version| *version as u64).collect();
        if count as usize > readers.len() {
            readers.push(ANY);
        }
        readers.extend(self.unregistered().unwrap_or_else(|_| vec![ANY]));
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// The read transactions of all processes.
    pub(super) fn readers(&self) -> Result<Readers> {
        self.free_dead_readers()?;
        let (mut version, mut process, mut begun) = (0, 0, 0);
        // SAFETY: the environment is open, and the call fills the three numbers.
        let count =
            unsafe { ffi::pellucid_readers(self.raw, &raw mut version, &raw mut process, &raw mut begun) };
        let mut readers = Readers { count, version: version as u64, process: process.cast_unsigned(), begun };
        // A process has any version only while it opens the file.
        for version in self.unregistered()?.into_iter().filter(|version| *version != ANY) {
            readers.count += 1;
            // What stands in for it shows the process that writes.
            if readers.count == 1 || version <= readers.version {
                (readers.version, readers.process, readers.begun) = (version, 0, 0);
            }
        }
        Ok(readers)
    }
}

/// What the lock file has of read transactions: how many there are, and the oldest one.
pub(super) struct Readers {
    pub(super) count: u32,
    version: u64,
    process: u32,
    begun: u64,
}

impl Readers {
    /// The oldest one, if it is of an older version than the newest.
    pub(super) fn oldest_under(&self, newest: u64) -> OldestReader {
        let lag = newest.saturating_sub(self.version);
        if self.count == 0 || lag == 0 {
            return OldestReader::default();
        }
        let since = if self.begun == 0 { 0 } else { os::ticks().saturating_sub(self.begun) };
        OldestReader { lag, process: self.process, age: Duration::from_millis(since) }
    }
}
