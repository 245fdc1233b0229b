//! The errors of an engine.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::sys::size::Bytes;
use crate::sys::{memory, os};

/// The result of what an engine is asked to do.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// A lock that was not free in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BusyLock {
    /// The writer lock.
    Writer,
    /// The tree lock, for a commit that goes into the file itself.
    TreeForCommit,
    /// The tree lock, for work that changes no row.
    TreeForWork,
}

/// An error of an engine. The store adds the database's path and the operation.
#[derive(Debug)]
#[non_exhaustive]
pub enum EngineError {
    /// The disk is full, or the user's quota is used up.
    DiskFull(io::Error),
    /// The operating system refused.
    Io(io::Error),
    /// The file has grown beyond the address space that this process reserved.
    MapTooSmall {
        /// Bytes reserved.
        reserved: u64,
    },
    /// Every reader slot is taken that this process may have.
    ReadersFull {
        /// How many readers this process has.
        own: u32,
        /// How many slots are taken in all processes.
        taken: u32,
        /// How many there are.
        slots: u32,
    },
    /// There is no memory for this.
    NoMemory(&'static str),
    /// The engine found an impossible page.
    Damaged {
        /// What it found.
        what: &'static str,
        /// The engine's own code, if it has one.
        code: i32,
    },
    /// The system could not sync: commits may not be on the disk.
    SyncFailed(io::Error),
    /// The log beside the engine's file cannot belong to it. With what to do about it.
    ForeignLog(&'static str),
    /// The log beside the engine's file has a newer format.
    NewerLog {
        /// Its format.
        found: u16,
        /// The newest that this build reads.
        newest: u16,
    },
    /// A write failed so late that the engine does not use its file any more until it is reopened.
    Broken,
    /// The engine does not store keys of this length.
    KeySize {
        /// The key's length.
        size: usize,
        /// The longest it stores.
        size_max: usize,
    },
    /// Others held a lock for as long as the caller was willing to wait.
    FileBusy {
        /// The lock.
        lock: BusyLock,
        /// The process that holds it, if known.
        pid: Option<u32>,
        /// How long the caller waited.
        waited: Duration,
    },
    /// A page of the engine's file is not as it was written, so the file is not written to.
    BadPage {
        /// Its number.
        page: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// One transaction holds more changed pages than the engine can track.
    TransactionTooLarge,
    /// The calls came in an order that the contract does not allow.
    Misuse(&'static str),
    /// The call came from another thread than the transaction's.
    WrongThread,
    /// The object was made before the process forked.
    Forked,
    /// This engine does not support the operation.
    Unsupported(&'static str),
}

impl EngineError {
    /// The error for a failed write, from the operating system's error.
    pub(crate) fn of_system(source: io::Error) -> Self {
        if os::is_of_room(&source) { Self::DiskFull(source) } else { Self::Io(source) }
    }

    /// The error for a transaction that has committed nothing yet: a sync that failed before that
    /// was for earlier commits.
    pub(crate) fn before_commit(self) -> Self {
        match self {
            Self::SyncFailed(_) => Self::Broken,
            error => error,
        }
    }
}

impl fmt::Display for EngineError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DiskFull(source) => write!(out, "no room is left on the disk ({source})"),
            Self::Io(source) => write!(out, "{source}"),
            Self::MapTooSmall { reserved } => write!(
                out,
                "the file has grown beyond the {reserved} bytes of address space that this process could reserve"
            ),
            Self::ReadersFull { own, taken, slots } => {
                write!(out, "{taken} of {slots} reader slots are taken, {own} of them by this process")?;
                match slots.saturating_sub(*taken) {
                    0 => Ok(()),
                    aside => write!(
                        out,
                        ", and the last {aside} are for writers, for processes with few snapshots, and some for reads outside a snapshot"
                    ),
                }
            }
            Self::NoMemory(what) => write!(out, "not enough memory for {what}"),
            Self::Damaged { what, code } => write!(out, "{what} (engine code {code})"),
            Self::BadPage { page, what } => write!(out, "page {page}: {what}"),
            Self::SyncFailed(source) => write!(out, "the log could not be synced ({source})"),
            Self::NewerLog { found, newest } => {
                write!(out, "the log has format {found}, and not up to {newest}")
            }
            Self::Broken => write!(out, "an earlier write failed; close the database and open it again"),
            Self::KeySize { size, size_max } => {
                write!(out, "a key of {size} bytes, where the engine stores 1 to {size_max}")
            }
            Self::FileBusy { pid: Some(pid), .. } if *pid != 0 => write!(out, "PID {pid} writes the file"),
            Self::FileBusy { .. } => write!(out, "another process writes the file"),
            Self::TransactionTooLarge => {
                write!(out, "the transaction changes more pages than can be tracked")
            }
            Self::WrongThread => write!(out, "the transaction belongs to another thread"),
            Self::Forked => write!(out, "it was opened before the process forked"),
            Self::ForeignLog(what) | Self::Misuse(what) | Self::Unsupported(what) => write!(out, "{what}"),
        }
    }
}

impl std::error::Error for EngineError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::DiskFull(source) | Self::Io(source) | Self::SyncFailed(source) => Some(source),
            _ => None,
        }
    }
}

/// Check that there is this much memory, in small allocations, for work that is about to begin.
///
/// # Errors
/// `NoMemory`.
pub(crate) fn check_memory(size: usize, what: &'static str) -> Result<(), EngineError> {
    if memory::has_room(size) { Ok(()) } else { Err(EngineError::NoMemory(what)) }
}

/// Rows are refused although the disk is not full yet.
#[derive(Debug)]
pub(crate) struct Reserved {
    free: u64,
    needed: u64,
}

impl Reserved {
    pub(crate) fn error(free: u64, needed: u64) -> io::Error {
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
