//! Opens the files beside a database, safely: never another file in their place.
//!
//! The log, the lock file and the files of `compact` have names that every user of the folder can
//! guess. A user who may write to the folder can put something else there first: a symbolic link or
//! a hard link to another user's file, or a pipe that blocks its opener. So these names are opened
//! without following links, and only a regular file with one name is accepted. A missing file is
//! created exclusively, and only a file that this process created gets the database's permissions
//! and owner.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::sys::rights;

/// The description of a file that is not regular.
fn kind_of(found: &Metadata) -> &'static str {
    if found.is_symlink() {
        "a symbolic link"
    } else if found.is_dir() {
        "a directory"
    } else {
        "no regular file"
    }
}

/// A file beside a database that is not accepted.
#[derive(Clone, Debug)]
pub(crate) struct Strange {
    pub(crate) path: PathBuf,
    pub(crate) what: &'static str,
}

impl fmt::Display for Strange {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "'{}' is {}", self.path.display(), self.what)
    }
}

impl std::error::Error for Strange {}

impl Strange {
    fn at(path: &Path, what: &'static str) -> io::Error {
        io::Error::other(Self { path: path.to_owned(), what })
    }

    /// The `Strange` in an error, if there is one.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// Open an existing file beside a database.
pub(crate) fn open(path: &Path, is_writable: bool) -> io::Result<File> {
    let file = peek(path, is_writable)?;
    if file.metadata()?.nlink() > 1 {
        return Err(Strange::at(path, "a hard link: its file has another name, too"));
    }
    Ok(file)
}

/// The same for a file that may have other names; only to look at it.
pub(crate) fn peek(path: &Path, is_writable: bool) -> io::Result<File> {
    let mut options = File::options();
    // Opening a pipe does not wait for its other end; for a regular file the flag has no effect.
    options.read(true).write(is_writable).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    match options.open(path) {
        Ok(file) => match file.metadata()? {
            found if found.is_file() => Ok(file),
            found => Err(Strange::at(path, kind_of(&found))),
        },
        // A link, a directory, a socket; otherwise return the original error.
        Err(error) => Err(refuse(path).err().unwrap_or(error)),
    }
}

/// Open a file beside a database, or create it with the database's permissions; true if it was
/// created.
pub(crate) fn open_or_create(path: &Path, database: Option<&Metadata>) -> io::Result<(File, bool)> {
    loop {
        match open(path, true) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return Ok((found?, false)),
        }
        match create(path, database) {
            // Another process was faster.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            created => return Ok((created?, true)),
        }
    }
}

/// Create a file beside a database, for all who may use the database.
pub(crate) fn create(path: &Path, database: Option<&Metadata>) -> io::Result<File> {
    let mode = database.map_or(rights::PRIVATE, rights::mode_like);
    let file = File::options().read(true).write(true).create_new(true).mode(mode).open(path)?;
    if let Some(database) = database {
        // If this fails, a user who is refused access gets an error later.
        let _ = rights::liken(&file, database);
    }
    Ok(file)
}

/// Remove what a dead process left beside a database, if anything. A file that is not regular is
/// refused.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    refuse(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Refuse a file that is not regular.
fn refuse(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(found) if !found.is_file() => Err(Strange::at(path, kind_of(&found))),
        _ => Ok(()),
    }
}
