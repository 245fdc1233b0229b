//! Readers that have no place in the lock file, since they may not write it.
//!
//! Such a process shows by locks on bytes of the data file which versions it reads: for a shared
//! lock the right to read is enough. The byte is `VERSIONS_AT` plus the version. A process that
//! begins a write transaction asks the system for these locks. While the transaction lasts, a place
//! of its own in the lock file stands in for the oldest of these readers, so that LMDB keeps the
//! pages that they need. All that asks for readers in this crate counts them too.
//!
//! **Invariant:** no reader takes a version that a writer does not see. A reader locks what is the
//! newest version, and takes it only if it is still the newest after that. A writer asks for locks
//! when it has LMDB's writer lock, after the newest version was written. So it sees the lock, or
//! the reader sees the newer version. A reader that comes later in the transaction takes the
//! newest version or the next one, whose pages the transaction leaves alone.
//!
//! **Invariant:** the roots are copied from a meta page that is complete, and of the version that
//! the reader shows: see `Environment::take_slot`.
#![allow(unsafe_code)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use pellucid_lmdb_sys as ffi;

use crate::engine::EngineError;
use crate::engine::lmdb::txn::LmdbRead;
use crate::engine::lmdb::{Environment, READERS_MAX};
use crate::sys::os;
use crate::sys::own_file::OwnFile;

/// The offset of the byte for version 0, behind all that a file can have.
pub(crate) const VERSIONS_AT: i64 = 1 << 62;
/// What stands for a version that may be any, and so for all of them.
pub(super) const ANY: u64 = 0;

/// The error for a byte that processes of this library only share, and that one has alone.
pub(crate) fn locked_by_others() -> io::Error {
    io::Error::other("another program has locked bytes of it that are for pellucid alone: end that program")
}

fn byte_of(version: u64) -> i64 {
    VERSIONS_AT.saturating_add_unsigned(version)
}

/// The versions that this process reads, each with the number of its read transactions.
pub(super) struct Shown {
    /// A data file that no other code in this process has open: its locks are ours alone.
    file: OwnFile,
    versions: Mutex<BTreeMap<u64, usize>>,
}

impl Shown {
    /// `None` where the system or the file system has no such locks.
    pub(super) fn open(path: &Path) -> Result<Option<Self>, EngineError> {
        let file = File::open(path).map_err(EngineError::of_system)?;
        if !os::has_byte_locks(&file) {
            return Ok(None);
        }
        Ok(Some(Self { file: OwnFile::new(file), versions: Mutex::default() }))
    }

    pub(super) fn add(&self, version: u64) -> Result<(), EngineError> {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = versions.get_mut(&version) {
            *count += 1;
            return Ok(());
        }
        let file = self.file.file().ok_or(EngineError::Forked)?;
        // No process locks these bytes for itself alone, unless one means harm.
        if !os::share_byte(file, byte_of(version)).map_err(EngineError::of_system)? {
            return Err(EngineError::Io(locked_by_others()));
        }
        versions.insert(version, 1);
        Ok(())
    }

    pub(super) fn remove(&self, version: u64) {
        let mut versions = self.versions.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = versions.get_mut(&version) else { return };
        *count -= 1;
        if *count == 0 {
            versions.remove(&version);
            if let Some(file) = self.file.file() {
                // If this fails, the pages of this version are kept until the file is closed.
                let _ = os::lock_byte(file, byte_of(version), false);
            }
        }
    }
}

impl Environment {
    /// The versions that readers without a place in the lock file have, in no order; [`ANY`] for
    /// one that is not known.
    pub(super) fn unregistered(&self) -> Result<Vec<u64>, EngineError> {
        let mut versions = Vec::new();
        if !self.has_byte_locks {
            return Ok(versions);
        }
        let file = self.file()?;
        let all: Range<i64> = VERSIONS_AT..i64::MAX;
        let mut open = vec![all];
        while let Some(bytes) = open.pop() {
            let Some(locked) = os::locked_bytes(&file, bytes.clone()).map_err(EngineError::of_system)? else {
                continue;
            };
            // One lock may be the sum of several, on bytes next to each other.
            let most = READERS_MAX as usize - versions.len();
            versions.extend(locked.clone().take(most).map(|byte| (byte - VERSIONS_AT).cast_unsigned()));
            if versions.len() >= READERS_MAX as usize {
                return Ok(vec![ANY]);
            }
            open.extend([bytes.start..locked.start, locked.end..bytes.end]);
        }
        Ok(versions)
    }

    /// A place in the lock file that stands in for the oldest reader without one, if there are any.
    /// The caller has LMDB's writer lock, and its transaction has taken no page yet.
    pub(super) fn stand_in(self: &Arc<Self>) -> Result<Option<LmdbRead>, EngineError> {
        let Some(oldest) = self.unregistered()?.into_iter().min() else { return Ok(None) };
        let read = LmdbRead::begin(Arc::clone(self))?;
        // SAFETY: the transaction is live, and nothing is read in it.
        unsafe { ffi::pellucid_set_reader_version(read.txn, oldest as usize) };
        Ok(Some(read))
    }
}
