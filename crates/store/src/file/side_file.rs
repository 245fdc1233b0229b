//! How is a file beside a database opened, so that no other file is opened, changed or waited for in its place?
//!
//! The log, the lock file and what `compact` makes lie at names that every user of the folder can guess, and a user who may write to the
//! folder can put something else there first: a symbolic link or a hard link to another user's file, a pipe that keeps its opener waiting.
//! So these names are opened without following links, and only a regular file with one name is taken. A file that is missing is created
//! exclusively, and only a file that this process created gets the database's rights and owner.

use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::file::rights;

/// What a file that is not a regular one is called.
fn kind_of(found: &Metadata) -> &'static str {
    if found.is_symlink() {
        "a symbolic link"
    } else if found.is_dir() {
        "a directory"
    } else {
        "no regular file"
    }
}

/// What lies at the name of a file beside a database and is not taken for one.
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

    /// What an error says of such a file, if that is what it is about.
    pub(crate) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

/// Open a file beside a database that is there.
pub(crate) fn open(path: &Path, is_writable: bool) -> io::Result<File> {
    let file = peek(path, is_writable)?;
    if file.metadata()?.nlink() > 1 {
        return Err(Strange::at(path, "a hard link: its file has another name, too"));
    }
    Ok(file)
}

/// The same of a file that may have other names, to look at it.
pub(crate) fn peek(path: &Path, is_writable: bool) -> io::Result<File> {
    let mut options = File::options();
    // To open a pipe does not wait for its other end; for a regular file the flag says nothing.
    options.read(true).write(is_writable).custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
    match options.open(path) {
        Ok(file) => match file.metadata()? {
            found if found.is_file() => Ok(file),
            found => Err(Strange::at(path, kind_of(&found))),
        },
        // A link, a directory, a socket; or what an error of another kind is about.
        Err(error) => Err(refuse(path).err().unwrap_or(error)),
    }
}

/// Open a file beside a database, or create it with the rights of the database; true where it was created.
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
        // Where it cannot be, a user who is refused by it is told.
        let _ = rights::liken(&file, database);
    }
    Ok(file)
}

/// Remove what a dead process left beside a database, if anything; whatever is no regular file is refused.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    refuse(path)?;
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// Refuse what lies at a path and is no regular file.
fn refuse(path: &Path) -> io::Result<()> {
    match path.symlink_metadata() {
        Ok(found) if !found.is_file() => Err(Strange::at(path, kind_of(&found))),
        _ => Ok(()),
    }
}
