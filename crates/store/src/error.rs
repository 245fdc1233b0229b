//! The errors of a database, with what the caller can do.
//!
//! One enum with fields; the Python side makes one exception class of each variant. Messages say
//! what happened, where, which limit was reached, and what to do.

mod busy;
pub(crate) mod index;

use std::fmt;
use std::io;
use std::time::Duration;

use pellucid_record::{Corrupt, ShapeError};

use crate::engine::EngineError;
use crate::engine::error::Reserved;
use crate::error::busy::fmt_busy;
use crate::error::index::IndexError;
use crate::sys::side_file::Strange;
use crate::sys::size::Bytes;
use crate::sys::{memory, os};

pub use busy::{Holder, Wanted};

/// The result of what a database is asked to do.
pub(crate) type Result<T, E = StoreError> = std::result::Result<T, E>;

/// An error of the store.
#[derive(Debug)]
#[non_exhaustive]
pub enum StoreError {
    /// There is no such file, and the mode does not create it.
    NotFound {
        /// The path that was asked for.
        path: String,
    },
    /// There is no such file, and none can be created there.
    NotCreatable {
        /// The path that was asked for.
        path: String,
    },
    /// The folder that the file would be in does not exist.
    NoFolder {
        /// The path that was asked for.
        path: String,
    },
    /// The path is a directory.
    IsDirectory {
        /// The path that was asked for.
        path: String,
    },
    /// The path ends as a directory's does, and no directory is there.
    NamesDirectory {
        /// The path that was asked for.
        path: String,
    },
    /// The file is something else.
    NotADatabase {
        /// The file.
        path: String,
        /// What is wrong with it.
        what: &'static str,
    },
    /// The file ends before its last page does.
    Truncated {
        /// The file.
        path: String,
        /// Its size.
        size: u64,
        /// The size that its pages need.
        needed: u64,
    },
    /// Written by a newer release, for newer readers.
    NewerFormat {
        /// The file.
        path: String,
        /// The oldest format version whose readers understand it.
        found: u16,
        /// The newest that this build reads.
        newest: u16,
    },
    /// A write to a database that can only be read.
    ReadOnly {
        /// The database.
        path: String,
        /// Why.
        why: &'static str,
    },
    /// The operating system denies this user access.
    AccessDenied {
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
        /// Whether the file can be read.
        is_readable: bool,
    },
    /// The operating system does not let this user write a file beside the database that all its
    /// users write.
    BesideDenied {
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The disk is full, the user's quota is used up, or the file has reached its size limit.
    DiskFull {
        /// The database.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The disk has no room to write the commits of the log into the file.
    NoRoomForLog {
        /// The database.
        path: String,
        /// The log, which keeps them.
        log: String,
        /// Its size: about the room that is needed.
        size: u64,
        /// The system's error.
        source: io::Error,
    },
    /// The file that a copy would be written to exists.
    TargetExists {
        /// The file.
        path: String,
    },
    /// The database that a copy would replace is open, or has a log beside it.
    TargetInUse {
        /// The file.
        path: String,
    },
    /// Another process or thread holds a lock.
    Busy {
        /// The database.
        path: String,
        /// What it was needed for.
        wanted: Wanted,
        /// The holders of the lock, if known.
        holders: Vec<Holder>,
        /// How long the caller waited. `None` if waiting would have been in vain.
        waited: Option<Duration>,
    },
    /// The limit of readers is reached.
    TooManyReaders {
        /// The database.
        path: String,
        /// How many there are, and in this process: `ReadersFull`.
        source: EngineError,
    },
    /// No table has this name, or it was dropped.
    NoSuchTable {
        /// The database.
        path: String,
        /// Its name.
        table: String,
        /// The names of the tables that there are.
        others: Vec<String>,
    },
    /// The table of this handle was dropped; another table may have its name.
    TableDropped {
        /// Its last name, if known.
        table: Option<String>,
    },
    /// Changes after a version are no longer kept.
    HistoryGone {
        /// The database.
        path: String,
        /// The version.
        since: u64,
        /// The oldest version after which all changes are kept.
        oldest: u64,
    },
    /// A version that the database has not reached.
    VersionAhead {
        /// The database.
        path: String,
        /// The version.
        since: u64,
        /// The newest one.
        version: u64,
    },
    /// Another table has this name.
    TableExists {
        /// The name.
        table: String,
    },
    /// A table was opened as compressed and is not, or the other way round.
    OtherCompression {
        /// The table.
        table: String,
        /// What it is.
        is_compressed: bool,
    },
    /// A name that no table can have.
    TableName {
        /// Its size in bytes.
        size: usize,
        /// The limit.
        size_max: usize,
    },
    /// A record, with its key, beyond 4 GiB.
    TooLarge {
        /// Its size.
        size: u64,
    },
    /// Two long keys have the same hash. This does not happen by accident.
    KeyCollision {
        /// The table.
        table: String,
    },
    /// No shape id is left, or the list of names can be no shape.
    Shape(ShapeError),
    /// A blob does not exist: it was deleted with its record.
    NoSuchBlob {
        /// Its id.
        id: u64,
    },
    /// Bytes of the file are wrong.
    Corrupt {
        /// The database.
        path: String,
        /// Where in the file.
        place: String,
        /// What is wrong there.
        what: String,
        /// Whether the database could be opened nonetheless, so that all of it can be checked.
        is_open: bool,
    },
    /// The commits of a log are not written into its file, because a page of the file is damaged.
    LogUnwritten {
        /// The database.
        path: String,
        /// Its log.
        log: String,
        /// The page, and what is wrong with it.
        fault: String,
    },
    /// A record's own bytes are damaged.
    Record(Corrupt),
    /// The object was closed.
    Closed {
        /// What it was: "database", "transaction".
        what: &'static str,
    },
    /// A `go_on` function returned false.
    Stopped,
    /// The object belongs to the parent of this process.
    Forked {
        /// What it was.
        what: &'static str,
    },
    /// A transaction was used by another thread than its own.
    WrongThread,
    /// A change failed half way, so the transaction can only be rolled back.
    TransactionFailed,
    /// Savepoints were used in an impossible order.
    NoSuchSavepoint,
    /// An error of the program itself, which says nothing about the file.
    Misuse {
        /// What it has done.
        what: &'static str,
    },
    /// A log lies beside a file that was to be copied and verified.
    LogBeside {
        /// The log.
        path: String,
    },
    /// The file in place of the log does not belong to the database, or is damaged.
    ForeignLog {
        /// The log.
        path: String,
        /// What is wrong with it, and what to do.
        what: String,
    },
    /// A file beside the database is a link, or no regular file.
    StrangeFile {
        /// The name.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// The database's file was deleted, or replaced, while it was open.
    FileDeleted {
        /// Its name.
        path: String,
    },
    /// The system could not sync the commits to the disk. They may be lost in a power cut, and
    /// nothing can be written before the database is opened again.
    SyncFailed {
        /// The database.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// An earlier write failed so late that the file must be reopened.
    Broken {
        /// The database.
        path: String,
    },
    /// The file has grown beyond the address space that could be reserved.
    MapTooSmall {
        /// The database.
        path: String,
        /// The bytes reserved.
        reserved: u64,
    },
    /// The process has too little memory.
    NoMemory {
        /// What the memory was for.
        what: &'static str,
    },
    /// An index cannot be created, written or read.
    Index(Box<IndexError>),
    /// One transaction changes too many pages.
    TransactionTooLarge {
        /// The database.
        path: String,
    },
    /// This kind of database does not support the operation.
    Unsupported {
        /// What.
        what: &'static str,
    },
    /// The operating system failed.
    Io {
        /// The operation, such as "read", "open".
        action: &'static str,
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
}

impl StoreError {
    /// The store's error for an engine's error in the database at `path`.
    pub(crate) fn from_engine(path: &str, error: EngineError) -> Self {
        let corrupt = |place: String, what: &str| {
            let (path, what) = (path.to_owned(), what.to_owned());
            Self::Corrupt { path, place, what, is_open: true }
        };
        let path = path.to_owned();
        match error {
            EngineError::DiskFull(source) => Self::DiskFull { path, source },
            EngineError::Io(source) => Self::from_io("use", path, source),
            EngineError::MapTooSmall { reserved } => Self::MapTooSmall { path, reserved },
            EngineError::NoMemory(what) => Self::NoMemory { what },
            source @ EngineError::ReadersFull { .. } => Self::TooManyReaders { path, source },
            EngineError::Damaged { what, .. } => corrupt("its pages".to_owned(), what),
            EngineError::BadPage { page, what } => corrupt(format!("page {page}"), what),
            EngineError::SyncFailed(source) => Self::SyncFailed { path, source },
            EngineError::ForeignLog(what) => Self::ForeignLog { path, what: what.to_owned() },
            EngineError::NewerLog { found, newest } => Self::NewerFormat { path, found, newest },
            EngineError::Broken => Self::Broken { path },
            EngineError::KeySize { size, .. } => Self::TooLarge { size: size as u64 },
            EngineError::FileBusy { lock, pid, waited } => Self::locked(path, lock, pid, waited),
            EngineError::TransactionTooLarge => Self::TransactionTooLarge { path },
            EngineError::Misuse(what) => Self::Misuse { what },
            EngineError::WrongThread => Self::WrongThread,
            EngineError::Forked => Self::Forked { what: "snapshot or transaction" },
            EngineError::Unsupported(what) => Self::Unsupported { what },
        }
    }

    /// The store's error for an operating system error with the file at `path`.
    pub(crate) fn from_io(action: &'static str, path: String, source: io::Error) -> Self {
        if let Some(Strange { path, what }) = Strange::of(&source) {
            return Self::StrangeFile { path: path.display().to_string(), what };
        }
        match source.raw_os_error() {
            Some(libc::ENOENT) => Self::NotFound { path },
            Some(libc::EISDIR) => Self::IsDirectory { path },
            Some(libc::EACCES | libc::EPERM) => Self::AccessDenied { path, source, is_readable: false },
            Some(libc::ENOMEM) => Self::NoMemory { what: "pages of the database" },
            Some(libc::EROFS) => Self::ReadOnly { path, why: "its file system is mounted read-only" },
            _ if os::is_of_room(&source) => Self::DiskFull { path, source },
            _ => Self::Io { action, path, source },
        }
    }
}

impl StoreError {
    /// An error of an index.
    pub(crate) fn of_index(error: IndexError) -> Self {
        Self::Index(Box::new(error))
    }

    /// The same error, for a database that could not be opened because of it.
    pub(crate) fn of_opening(mut self) -> Self {
        if let Self::Corrupt { is_open, .. } = &mut self {
            *is_open = false;
        }
        self
    }

    /// Whether the cause is a full disk.
    pub(crate) fn is_of_room(&self) -> bool {
        matches!(self, Self::DiskFull { .. } | Self::NoRoomForLog { .. })
    }

    /// The message of `Display` without the path, for callers that show the path beside it. `None`
    /// for errors without a path in the file system.
    #[must_use]
    pub fn beside_path(&self) -> Option<(&str, String)> {
        let (path, fact) = match self {
            Self::NotFound { path } => (path, "no such file".to_owned()),
            Self::NotCreatable { path } => (path, "no file can be created there".to_owned()),
            Self::NoFolder { path } => (path, "no such folder".to_owned()),
            Self::IsDirectory { path } => (path, "it is a directory".to_owned()),
            Self::NamesDirectory { path } => {
                (path, "it ends with a slash, as a directory's path does".to_owned())
            }
            Self::TargetExists { path } => (path, "it exists already".to_owned()),
            Self::AccessDenied { path, is_readable, .. } => {
                (path, format!("no permission{}", if *is_readable { " to write it" } else { "" }))
            }
            Self::BesideDenied { path, .. } => (path, "no permission to write it".to_owned()),
            _ => return None,
        };
        let advice = self.advice();
        let separator = if advice.is_empty() { "" } else { "; " };
        Some((path, format!("{fact}{separator}{advice}")))
    }

    /// What happened, and to what.
    fn fmt_fact(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotFound { path } => write!(out, "'{path}' does not exist"),
            Self::NotCreatable { path } => write!(out, "'{path}' cannot be created"),
            Self::NoFolder { path } => write!(out, "there is no folder for '{path}'"),
            Self::IsDirectory { path } => write!(out, "'{path}' is a directory"),
            Self::NamesDirectory { path } => write!(out, "'{path}' ends with a slash"),
            Self::NotADatabase { path, what } => write!(out, "'{path}' is not a pellucid database: {what}"),
            Self::Truncated { path, size, needed } => {
                write!(out, "'{path}' has {size} bytes, but its pages need {needed}: its end was cut off")
            }
            Self::NewerFormat { path, found, newest } => {
                write!(out, "'{path}' has format {found}, but this build reads up to {newest}")
            }
            Self::ReadOnly { path, why } => write!(out, "'{path}' cannot be written: {why}"),
            Self::AccessDenied { path, is_readable, .. } => {
                write!(out, "no permission for '{path}'{}", if *is_readable { " to be written" } else { "" })
            }
            Self::BesideDenied { path, .. } => write!(out, "no permission for '{path}' to be written"),
            Self::DiskFull { path, source } => write!(out, "no room on the disk for '{path}' ({source})"),
            Self::NoRoomForLog { path, log, source, .. } => fmt_no_room(out, path, log, source),
            Self::TargetExists { path } => write!(out, "'{path}' exists already"),
            Self::TargetInUse { path } => {
                write!(out, "'{path}' cannot be replaced: it is open, or has commits in a log beside it")
            }
            Self::Busy { path, wanted, holders, waited } => fmt_busy(out, path, *wanted, holders, *waited),
            Self::TooManyReaders { path, source } => {
                write!(out, "'{path}' has no room for another reader: {source}")
            }
            Self::HistoryGone { path, since, oldest: other }
            | Self::VersionAhead { path, since, version: other } => fmt_versions(out, path, *since, *other),
            Self::NoSuchTable { path, table, others } => fmt_missing(out, path, table, others),
            Self::TableDropped { table } => fmt_dropped(out, table.as_deref()),
            Self::TableExists { table } => write!(out, "table '{table}' exists already"),
            Self::OtherCompression { table, is_compressed } => fmt_other(out, table, *is_compressed),
            Self::TableName { size, size_max } => {
                write!(out, "a table's name has 1 to {size_max} bytes, and this one {size}")
            }
            Self::TooLarge { size } => {
                write!(out, "{size} bytes, where a record with its key may have 4,294,967,295")
            }
            Self::KeyCollision { table } => write!(out, "two long keys of '{table}' have one hash"),
            Self::Shape(source) => write!(out, "{source}"),
            Self::NoSuchBlob { id } => {
                write!(out, "large value {id} is gone: its record was changed or deleted meanwhile")
            }
            Self::Corrupt { path, place, what, .. } => write!(out, "'{path}' is damaged at {place}: {what}"),
            Self::LogUnwritten { path, log, fault } => fmt_unwritten(out, path, log, fault),
            Self::Record(source) => write!(out, "{source}"),
            Self::Closed { what } => write!(out, "the {what} is closed"),
            Self::Stopped => write!(out, "it was stopped, and nothing of it was done"),
            Self::Forked { what } => write!(out, "this {what} belongs to the parent process"),
            Self::WrongThread => write!(out, "a transaction belongs to the thread that began it"),
            Self::TransactionFailed => write!(out, "{FAILED}"),
            Self::Misuse { what } => write!(out, "an error of pellucid itself, not of the file: {what}"),
            Self::NoSuchSavepoint => write!(out, "the savepoint was released or rolled back before"),
            Self::LogBeside { path } => write!(out, "'{path}' may hold commits that a copy would lack"),
            Self::ForeignLog { path, what } => write!(out, "'{path}' cannot be used: {what}"),
            Self::StrangeFile { path, what } => fmt_strange(out, path, what),
            Self::FileDeleted { path } => fmt_deleted(out, path),
            Self::SyncFailed { path, source } => fmt_unsynced(out, path, source),
            Self::Broken { path } => write!(out, "'{path}' takes no more writes: one failed at the disk"),
            Self::MapTooSmall { path, reserved } => fmt_outgrown(out, path, *reserved),
            Self::NoMemory { what } => write!(out, "not enough memory for {what}{}", memory::Limit),
            Self::TransactionTooLarge { path } => write!(out, "one transaction changes too much of '{path}'"),
            Self::Unsupported { what } => write!(out, "{what}"),
            Self::Index(error) => write!(out, "{error}"),
            Self::Io { action, path, source } => write!(out, "cannot {action} '{path}': {source}"),
        }
    }

    /// What to do now. Empty if the fact is enough.
    fn advice(&self) -> &'static str {
        match self {
            Self::NotFound { .. } => "open it with mode 'c' to create it",
            Self::NotCreatable { .. } => "choose another folder",
            Self::NoFolder { .. } => "create it first",
            Self::IsDirectory { .. } => "a database is a single file",
            Self::NamesDirectory { .. } => "a database is a single file: leave the slash out",
            Self::NotADatabase { .. } => "it was left as it is",
            Self::NewerFormat { .. } => "upgrade pellucid to read it",
            Self::DiskFull { source, .. } if source.raw_os_error() == Some(libc::EFBIG) => {
                "nothing of this was written: a file may not become that long there; raise the limit (ulimit -f), or use another file system"
            }
            Self::DiskFull { source, .. } if Reserved::of(source).is_some() => {
                "nothing of this was written: delete rows, free room on the disk, or move the database to a larger one"
            }
            Self::DiskFull { .. } => "nothing of this was written: make room, and try again",
            Self::TargetExists { .. } => "delete it first, or choose another name",
            Self::TargetInUse { .. } => {
                "close it first (open and close it if its process died), or choose another name"
            }
            Self::TableExists { .. } => "drop it first, or choose another name",
            Self::TooManyReaders { .. } => {
                "close snapshots, or copy() records that are kept; stats() names the process of the oldest"
            }
            Self::TableDropped { .. } => {
                "open the name again, for a new table or one that has got the name since"
            }
            Self::HistoryGone { .. } => {
                "read the tables in a snapshot and watch from its version; keep= keeps changes for longer"
            }
            Self::VersionAhead { .. } => "read the tables in a snapshot and watch from its version",
            Self::TooLarge { .. } => "split it, or keep it in a file",
            Self::KeyCollision { .. } => "change or shorten it",
            Self::NoSuchBlob { .. } => "read the record again",
            Self::Corrupt { is_open: true, .. } => "run check, and restore a backup",
            Self::Corrupt { .. } | Self::Truncated { .. } => "restore a backup",
            Self::Misuse { .. } => "roll the transaction back, and report it as a bug",
            Self::LogUnwritten { .. } => "open it with mode 'r' to read what is whole, or restore a backup",
            Self::AccessDenied { is_readable: true, .. } => "open it with mode 'r' to read it",
            Self::BesideDenied { .. } => {
                "all who have the database open write it, readers too: get the right to, or open the database with mode 'r' while no other process has it open"
            }
            Self::Forked { .. } => "begin a new one after a fork",
            Self::WrongThread => "use it there, or begin another one here",
            Self::LogBeside { .. } => {
                "if you trust it, open and close the file once without untrusted=True; if not, move it away to read the file without them"
            }
            Self::StrangeFile { .. } => {
                "nothing was changed there: move it away, and open the database again"
            }
            Self::FileDeleted { .. } => "save it first: backup(\"another path\") writes all of it",
            Self::SyncFailed { .. } => {
                "it can be read, and takes no more writes until every process has closed it and it is opened again"
            }
            Self::Broken { .. } => {
                "it can be read, and what was committed is there: close it, in every process, and open it again"
            }
            Self::Io { source, .. } if source.raw_os_error() == Some(libc::ELOOP) => {
                "a symbolic link there leads back to itself: remove the link, or choose another path"
            }
            Self::Io { source, .. } if source.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                "choose a shorter name: those of the files beside a database are five bytes longer"
            }
            Self::MapTooSmall { .. } => "raise the limit (ulimit -v), and reopen",
            Self::TransactionTooLarge { .. } => "commit in smaller parts",
            _ => "",
        }
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.fmt_fact(out)?;
        match self.advice() {
            "" => Ok(()),
            advice => write!(out, "; {advice}"),
        }?;
        match self {
            Self::NoRoomForLog { size, .. } => write!(
                out,
                "; free about {}, or move both to a larger disk, and try again; mode 'r' opens it without room, commits included",
                Bytes(*size)
            ),
            _ => Ok(()),
        }
    }
}

const FAILED: &str = "an earlier change in this transaction failed, so it can only be rolled back";

fn fmt_no_room(out: &mut fmt::Formatter<'_>, path: &str, log: &str, source: &io::Error) -> fmt::Result {
    write!(
        out,
        "no room on the disk to write the commits in '{log}' into '{path}' ({source}): they are all there, and the two files belong together"
    )
}

fn fmt_deleted(out: &mut fmt::Formatter<'_>, path: &str) -> fmt::Result {
    write!(
        out,
        "the file of '{path}' was deleted or replaced while it was open: what is committed to it is lost when it is closed"
    )
}

fn fmt_strange(out: &mut fmt::Formatter<'_>, path: &str, what: &str) -> fmt::Result {
    write!(
        out,
        "'{path}' is {what}: the database beside it keeps a file of its own under that name, and opens nothing but a regular file there, through no link"
    )
}

fn fmt_missing(out: &mut fmt::Formatter<'_>, path: &str, table: &str, others: &[String]) -> fmt::Result {
    write!(out, "{path} has no table '{}'", table.escape_debug())?;
    let others: Vec<_> = others.iter().map(|name| format!("'{}'", name.escape_debug())).collect();
    write!(out, "; it has {}", if others.is_empty() { "none".to_owned() } else { others.join(", ") })
}

fn fmt_dropped(out: &mut fmt::Formatter<'_>, table: Option<&str>) -> fmt::Result {
    match table {
        Some(table) => write!(out, "table '{table}' has been dropped since it was opened"),
        None => write!(out, "the table has been dropped since it was opened"),
    }
}

fn fmt_other(out: &mut fmt::Formatter<'_>, table: &str, is_compressed: bool) -> fmt::Result {
    let (is, wanted, other) = if is_compressed {
        ("is", "False", "a new table without compression")
    } else {
        ("is not", "True", "a new table that is")
    };
    write!(out, "table '{table}' {is} compressed: leave out compress={wanted}, or copy its rows to {other}")
}

fn fmt_outgrown(out: &mut fmt::Formatter<'_>, path: &str, reserved: u64) -> fmt::Result {
    write!(
        out,
        "'{path}' has grown beyond the {reserved} bytes of address space that this process could reserve"
    )
}

fn fmt_unwritten(out: &mut fmt::Formatter<'_>, path: &str, log: &str, fault: &str) -> fmt::Result {
    write!(
        out,
        "'{path}' is damaged at {fault}; the commits in '{log}' were not written into it, and both files were left as they are"
    )
}

fn fmt_unsynced(out: &mut fmt::Formatter<'_>, path: &str, source: &io::Error) -> fmt::Result {
    write!(
        out,
        "the disk did not take the last commits of '{path}' ({source}): they are all there, but may not survive a power cut"
    )
}

/// The message for a version that cannot be watched from: commits since then are gone, or it is
/// newer than the newest one.
fn fmt_versions(out: &mut fmt::Formatter<'_>, path: &str, since: u64, other: u64) -> fmt::Result {
    if since > other {
        return write!(
            out,
            "'{path}' has version {other}, and version {since} is of another database, or lost to a power cut"
        );
    }
    write!(
        out,
        "of what was committed to '{path}' since version {since} not all is kept any more, only what was since version {other}"
    )
}

impl std::error::Error for StoreError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::AccessDenied { source, .. }
            | Self::BesideDenied { source, .. }
            | Self::DiskFull { source, .. }
            | Self::NoRoomForLog { source, .. }
            | Self::SyncFailed { source, .. }
            | Self::Io { source, .. } => Some(source),
            Self::Shape(source) => Some(source),
            Self::Record(source) => Some(source),
            _ => None,
        }
    }
}

impl From<ShapeError> for StoreError {
    fn from(error: ShapeError) -> Self {
        Self::Shape(error)
    }
}
