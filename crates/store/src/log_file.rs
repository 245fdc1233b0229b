//! Which log belongs to a database file?
//!
//! `PATH-log`, while the database is open, or after a process that had it open died. Whoever opens it alone makes or replays it;
//! the last one to close writes all of it into the tree and removes it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::thread::Builder;

use crate::catalog;
use crate::engine::Engine;
use crate::error::{StoreError, Warning};
use crate::log::{LoggedEngine, MemorySpace, Met, Opened, words_for};
use crate::os_map::FileSpace;
use crate::own_file::OwnFile;

/// Bytes of groups that each of the two areas holds.
const AREA_SIZE: usize = 32 << 20;

/// Where the log of a database lies.
pub(crate) fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-log");
    path.into()
}

/// Remove the log of a database. Its name is gone when this returns; what it took on the disk is given back by a thread, since that
/// takes longer than all the rest of closing where the disk is told of each piece that it gets back (`discard`), or where the log
/// was long.
pub(crate) fn remove(database: &Path) {
    let path = path_of(database);
    // As long as this is open there is nothing to be given back.
    let held = File::open(&path).map(OwnFile::new);
    let _ = std::fs::remove_file(path);
    if let Ok(held) = held {
        // Without a thread it is dropped here.
        let _ = Builder::new().name("pellucid-free".to_owned()).spawn(move || drop(held));
    }
}

/// How the database is being opened.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// Nobody else has it open.
    pub(crate) is_alone: bool,
    /// The file can be written, whether or not it will be.
    pub(crate) is_writable: bool,
    /// The opener will write.
    pub(crate) writes: bool,
    /// What the file is marked by.
    pub(crate) mark: u64,
    /// Bytes of an area of the log, or 0 for the usual.
    pub(crate) area_size: usize,
}

/// Put the log over the tree of the database at `path`.
pub(crate) fn attach(
    tree: Box<dyn Engine>,
    path: &Path,
    manner: Manner,
    warnings: &mut Vec<Warning>,
) -> Result<Box<dyn Engine>, StoreError> {
    let name = path.display().to_string();
    let log_path = path_of(path);
    let log_name = log_path.display().to_string();
    let txn = tree.begin_read().map_err(|error| StoreError::from_engine(&name, error))?;
    let header = catalog::header(&*txn).map_err(|error| error.at(&name))?;
    drop(txn);
    let Some(header) = header else { return Ok(tree) };
    let count = words_for(if manner.area_size == 0 { AREA_SIZE } else { manner.area_size });
    let opened = if manner.is_writable {
        let space = FileSpace::open(&log_path, count, manner.is_alone, true);
        let space = space.map_err(|source| open_error(&log_name, source))?;
        let opened = Opened { is_alone: manner.is_alone, writes: manner.writes, joins: true };
        LoggedEngine::open(tree, Box::new(space), header.identity, opened)
    } else {
        let space = match FileSpace::open(&log_path, count, false, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if manner.mark != 0 {
                    warnings.push(missing_log(&*tree, &name)?);
                }
                return Ok(tree);
            }
            space => space.map_err(|source| open_error(&log_name, source))?,
        };
        if manner.is_alone {
            // Nobody writes it, nor may we: what has to be put right in it is put right in a copy.
            let opened = Opened { is_alone: true, writes: false, joins: false };
            LoggedEngine::open(tree, Box::new(MemorySpace::copy_of(&space)), header.identity, opened)
        } else {
            let opened = Opened { is_alone: false, writes: false, joins: false };
            LoggedEngine::open(tree, Box::new(space), header.identity, opened)
        }
    };
    let (engine, met) = opened.map_err(|error| StoreError::from_engine(&log_name, error))?;
    let Met { lost, applied } = met;
    if manner.is_alone && engine.misses_log(manner.mark) {
        warnings.push(Warning::LogMissing { path: name.clone(), version: applied });
    }
    if manner.is_writable && own_namespace().is_some_and(|own| engine.meet_namespace(own)) {
        warnings.push(Warning::OtherNamespace { path: name.clone() });
    }
    if lost > 0 {
        warnings.push(Warning::LostCommits { path: name, commits: lost });
    }
    Ok(Box::new(engine))
}

/// That a database's file is marked by a log which is not there.
pub(crate) fn missing_log(tree: &dyn Engine, name: &str) -> Result<Warning, StoreError> {
    let txn = tree.begin_read().map_err(|error| StoreError::from_engine(name, error))?;
    let applied = catalog::applied(&*txn).map_err(|error| error.at(name))?;
    Ok(Warning::LogMissing { path: name.to_owned(), version: applied.sequence })
}

fn open_error(name: &str, source: io::Error) -> StoreError {
    let what = match source.kind() {
        io::ErrorKind::UnexpectedEof => {
            "it is not of the size that a log has; move it away if you can do without the last commits"
        }
        io::ErrorKind::InvalidData => {
            "it is no log, or one whose first page is damaged; move it away if you can do without the last commits"
        }
        _ => "",
    };
    if !what.is_empty() {
        return StoreError::ForeignLog { path: name.to_owned(), what };
    }
    match source.raw_os_error() {
        Some(libc::ENOMEM) => StoreError::NoMemory { what: "the log: 64 MiB of address space" },
        _ => StoreError::from_io("open", name.to_owned(), source),
    }
}

/// The number of this process's PID namespace: "pid:[4026531836]".
fn own_namespace() -> Option<u64> {
    let link = std::fs::read_link("/proc/self/ns/pid").ok()?;
    link.to_str()?.strip_prefix("pid:[")?.strip_suffix(']')?.parse().ok()
}
