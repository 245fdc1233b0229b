//! What the lock file says of the read transactions of all processes.
#![allow(unsafe_code)]

use std::ffi::c_uint;
use std::time::Duration;

use pellucid_lmdb_sys as ffi;

use crate::engine::lmdb::{Environment, READERS_MAX};
use crate::engine::{EngineError, OldestReader};
use crate::sys::os;

impl Environment {
    /// The versions that read transactions of all processes have, in ascending order. 0 is one of
    /// them if there may be more.
    pub(super) fn reader_versions(&self) -> Vec<u64> {
        let mut versions = vec![0_usize; READERS_MAX as usize];
        // SAFETY: the environment is open, and the call fills at most as many as there is room for.
        let count = unsafe {
            ffi::pellucid_reader_versions(self.raw, versions.as_mut_ptr(), versions.len() as c_uint)
        };
        let mut readers: Vec<u64> =
            versions.iter().take(count as usize).map(|version| *version as u64).collect();
        if count as usize > readers.len() {
            readers.push(0);
        }
        readers.sort_unstable();
        readers.dedup();
        readers
    }

    /// The read transactions of all processes.
    pub(super) fn readers(&self) -> Result<Readers, EngineError> {
        self.free_dead_readers()?;
        let (mut version, mut process, mut begun) = (0, 0, 0);
        // SAFETY: the environment is open, and the call fills the three numbers.
        let count =
            unsafe { ffi::pellucid_readers(self.raw, &raw mut version, &raw mut process, &raw mut begun) };
        Ok(Readers { count, version: version as u64, process: process.cast_unsigned(), begun })
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
