//! Warnings: what a user should know about a database that works nonetheless.
//!
//! They are found when it is opened or closed; the Python side shows them.

use std::fmt;

use crate::sys::size::Bytes;
use crate::wal::LogFault;

/// A warning about a database that works nonetheless.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Warning {
    /// The file is on a network file system.
    NetworkFileSystem {
        /// The file.
        path: String,
        /// The kind of file system.
        name: &'static str,
    },
    /// An old snapshot is open, so pages that were freed since then cannot be used again.
    OldReader {
        /// The file.
        path: String,
        /// How many versions of the tree it is behind: checkpoints, and bulk commits.
        lag: u64,
        /// The process that has it; 0 for one that may not write the database.
        process: u32,
        /// For how many minutes it has been open.
        minutes: u64,
    },
    /// After a power cut or damage to the log, its last commits are lost.
    LostCommits {
        /// The file.
        path: String,
        /// How many.
        commits: u64,
    },
    /// The log is damaged: it is only read, through a mended copy.
    LogDamaged {
        /// The file.
        path: String,
        /// The log.
        log: String,
        /// What is damaged.
        faults: Vec<LogFault>,
    },
    /// The file was copied or renamed while it was open, or its log was removed: commits may be
    /// missing.
    LogMissing {
        /// The file.
        path: String,
        /// The version up to which it has everything.
        version: u64,
    },
    /// The last process closed it, and could not write the log's commits into the file.
    LogStays {
        /// The file.
        path: String,
        /// The log.
        log: String,
        /// Its size: about the room that is needed.
        size: u64,
        /// The system's error.
        why: String,
        /// Whether the disk was full.
        is_of_room: bool,
        /// Whether snapshots of it are still in use in this process.
        is_held: bool,
    },
    /// It was closed while other processes have it open, and the system could not sync the last
    /// commits.
    Unsynced {
        /// The file.
        path: String,
        /// The system's error.
        why: String,
    },
    /// The file was deleted, or replaced, while it was open: its commits are lost now.
    FileDeleted {
        /// The file.
        path: String,
    },
    /// A process in another container has it open.
    OtherNamespace {
        /// The file.
        path: String,
    },
}

/// What is damaged in a log.
pub(crate) fn fmt_damaged(out: &mut impl fmt::Write, log: &str, faults: &[LogFault]) -> fmt::Result {
    const SHOWN_MAX: usize = 3;
    write!(out, "'{log}' is damaged, though it had reached the disk: ")?;
    for (number, fault) in faults.iter().take(SHOWN_MAX).enumerate() {
        write!(out, "{}{fault}", if number == 0 { "" } else { "; " })?;
    }
    match faults.len().saturating_sub(SHOWN_MAX) {
        0 => Ok(()),
        more => write!(out, "; and {more} more, which check() names"),
    }
}

impl fmt::Display for Warning {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NetworkFileSystem { path, name } => write!(
                out,
                "'{path}' lies on a network file system ({name}), whose locks and memory maps do not hold between machines; use it from one machine at a time"
            ),
            Self::OldReader { path, lag, process: 0, .. } => write!(
                out,
                "a process that may not write '{path}' keeps a snapshot of it open, now for {lag} checkpoints, and the file grows until it is closed; `fuser '{path}'` lists the processes"
            ),
            Self::OldReader { path, lag, process, minutes } => write!(
                out,
                "process {process} keeps a snapshot of '{path}' open, now for {minutes} minutes and {lag} checkpoints, and the file grows until it is closed: close it there, and let go of records and iterators, which hold one"
            ),
            Self::LostCommits { path, commits } => write!(
                out,
                "'{path}' was not closed, and the last {commits} commits of its log are damaged or never reached the disk; it is as it was before them"
            ),
            Self::LogDamaged { path, log, faults } => {
                fmt_damaged(out, log, faults)?;
                write!(
                    out,
                    "; '{path}' can be read, and all else is there: save it with backup(\"another path\"), which is a sound database then"
                )
            }
            Self::LogMissing { path, version } => write!(
                out,
                "'{path}' was copied or renamed while it was open, or its log was taken away: it has everything up to version {version}, and what was committed after that is not there; it is in the '-log' beside the original or under the old name, if there still is one: close this, rename that to '{path}-log', and open it again (close a database before you rename it; use backup to copy an open one)"
            ),
            Self::Unsynced { path, why } => write!(
                out,
                "the disk did not take the last commits of '{path}' ({why}): they are there, but may not survive a power cut; the processes that have it open can write nothing more before all of them have closed it and it is opened again"
            ),
            Self::LogStays { path, log, size, why, is_of_room, is_held } => {
                write!(
                    out,
                    "'{path}' is closed, but the last commits could not be written into it ({why}): they are in '{log}', and the two files belong together"
                )?;
                if *is_held {
                    write!(
                        out,
                        "; this process still holds snapshots of it, or iterators, records, buffers or files that keep one, whose old pages cannot be used again: let go of them"
                    )?;
                }
                if *is_of_room {
                    write!(
                        out,
                        "; free about {}, or move both to a larger disk, then open and close it again",
                        Bytes(*size)
                    )?;
                }
                Ok(())
            }
            Self::FileDeleted { path } => write!(
                out,
                "the file of '{path}' was deleted or replaced while it was open: what was committed to it is lost, now that it is closed (sync() says so while it can still be saved with backup())"
            ),
            Self::OtherNamespace { path } => write!(
                out,
                "'{path}' is open in another container, whose process numbers mean nothing here; share a PID namespace, or the file only between processes that never have the same number"
            ),
        }
    }
}
