//! The error for a lock that others hold: who holds it, and what it was needed for.

use std::fmt;
use std::time::Duration;

use crate::engine::BusyLock;
use crate::error::StoreError;
use crate::sys::process::command_of;

/// A process that holds a lock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its PID; 0 if it is in another PID namespace, such as another container, whose PIDs have no
    /// meaning here.
    pub pid: u32,
    /// Its command line; empty if it cannot be read.
    pub command: String,
    /// Since when it holds the lock, as "12:03:55" (UTC); empty if unknown.
    pub since: String,
}

impl fmt::Display for Holder {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.pid {
            0 => write!(out, "a process in another container (of another PID namespace)")?,
            pid => write!(out, "PID {pid}")?,
        }
        if !self.command.is_empty() {
            write!(out, " ({})", self.command)?;
        }
        if !self.since.is_empty() {
            write!(out, " since {} UTC", self.since)?;
        }
        Ok(())
    }
}

/// What a lock is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// To write.
    Write,
    /// To open while another process opens, closes or compacts.
    Open,
    /// To have the file alone: for `compact`, or to copy an untrusted file.
    Alone,
    /// To have it alone within this process too: for `compact`.
    AloneHere,
    /// The same, and this process must not have it open at all: to copy an untrusted file.
    ClosedHere,
    /// To use it while this process compacts it.
    Use,
    /// To share lock files with the processes that have the file open.
    Locks,
    /// To write the file itself, because the log is full or the transaction too large for it.
    File,
    /// The same, for work that changes no row: for `compact` beside others.
    Pages,
}

impl StoreError {
    /// The error for a lock of the log that this process, or thread, did not get in time, and that
    /// the process `pid` holds.
    pub(crate) fn locked(path: String, lock: BusyLock, pid: Option<u32>, patience: Duration) -> Self {
        let wanted = match lock {
            BusyLock::Writer => Wanted::Write,
            BusyLock::TreeForCommit => Wanted::File,
            BusyLock::TreeForWork => Wanted::Pages,
        };
        let holder = pid.map(|pid| Holder {
            pid,
            command: if lock == BusyLock::Writer && pid == std::process::id() {
                "another transaction of this process".to_owned()
            } else {
                command_of(&pid.to_string())
            },
            since: String::new(),
        });
        Self::Busy { path, wanted, holders: holder.into_iter().collect(), waited: Some(patience) }
    }
}

/// The message of `StoreError::Busy`.
pub(super) fn fmt_busy(
    out: &mut fmt::Formatter<'_>,
    path: &str,
    reason: Wanted,
    holders: &[Holder],
    waited: Option<Duration>,
) -> fmt::Result {
    let (verb, advice) = match reason {
        // No other process is involved.
        Wanted::AloneHere => {
            return write!(
                out,
                "'{path}' is in use in this process: by a loop or an iterator that is not at its end, a snapshot or a record read in one, a transaction, or another handle of the same file; end, close or drop these first"
            );
        }
        Wanted::Use => {
            return write!(
                out,
                "'{path}' is being compacted by this process, and cannot be used meanwhile; try again when compact() has returned"
            );
        }
        Wanted::ClosedHere => {
            return write!(
                out,
                "'{path}' is open in this process, and must be open nowhere for this; close it first"
            );
        }
        // Waiting for one's own process would be in vain.
        Wanted::Write if holders.iter().any(|holder| holder.pid == std::process::id()) => (
            "is being written by",
            "that is this process: wait for its other thread; what a call of yours calls, such as progress=, writes when that \
             call is over",
        ),
        Wanted::Write => ("is being written by", "try again, or open it with a longer timeout"),
        Wanted::Open => {
            ("is being opened, closed or compacted by", "try again, or open it with a longer timeout")
        }
        Wanted::Alone => ("must be open nowhere else for this, but is in", "close it there first"),
        Wanted::File => (
            "has no room in its log for this, and is being written itself by",
            "nothing of this transaction was written: try again, or see whether that process has been stopped",
        ),
        Wanted::Pages => ("is being written itself by", "try again, or open it with a longer timeout"),
        Wanted::Locks => (
            "is open under another name, or without lock files, in",
            "close it there first, or use the same name",
        ),
    };
    write!(out, "'{path}' {verb} ")?;
    if holders.is_empty() {
        write!(out, "another process")?;
    }
    for (index, holder) in holders.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(out, "{separator}{holder}")?;
    }
    if let Some(waited) = waited {
        write!(out, "; waited timeout={:?} s", waited.as_secs_f64())?;
    }
    write!(out, "; {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::EngineError;

    #[test]
    fn a_busy_file_says_what_it_was_wanted_for() {
        let message = |lock| {
            let error = EngineError::FileBusy { lock, pid: Some(0), waited: Duration::from_secs(1) };
            StoreError::from_engine("a.pel", error).to_string()
        };
        let in_commit = message(BusyLock::TreeForCommit);
        assert!(
            in_commit.contains("no room in its log") && in_commit.contains("nothing of this transaction")
        );
        let in_compaction = message(BusyLock::TreeForWork);
        assert!(in_compaction.contains("'a.pel' is being written itself by a process in another container"));
        assert!(!in_compaction.contains("transaction") && !in_compaction.contains("in its log"));
        assert!(message(BusyLock::Writer).contains("'a.pel' is being written by a process"));
    }
}
