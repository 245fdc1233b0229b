//! Opens, joins and removes the log of a database file.
//!
//! The log is `PATH-log`. It exists while the database is open, or after a process that had it open
//! died. A process that opens it alone creates or replays it. The last process to close the
//! database writes all of it into the tree and removes it.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::catalog;
use crate::db::folder::sync_folder;
use crate::db::opening::{self, JOINING_PATIENCE};
use crate::engine::{Engine, EngineError};
use crate::error::{Holder, StoreError, Wanted};
use crate::sys::os;
use crate::sys::own_file::OwnFile;
use crate::sys::process::is_dead;
use crate::sys::reclaim::Reclaimer;
use crate::sys::side_file::{self, Strange};
use crate::wal::log_file::{self, FileSpace};
use crate::wal::{
    self, LogFault, LoggedEngine, MEMORY_USUAL, MemorySpace, Met, OF_ANOTHER, Opened, Space, words_for,
};
use crate::warning::{Warning, fmt_damaged};

/// Bytes of WAL records that each of the two segments can hold at most: address space, of which
/// `wal/budget.rs` says how much is used.
const SEGMENT_SIZE: usize = 1 << 30;
/// Bytes of an empty log.
const LOG_SIZE_LEAST: u64 = 40_960;

/// The path of a database's log.
pub(crate) fn path_of(database: &Path) -> PathBuf {
    let mut path = database.as_os_str().to_owned();
    path.push("-log");
    path.into()
}

/// Remove the log of a database. Its name is gone when this returns; another thread frees its disk
/// space.
pub(crate) fn remove(database: &Path, reclaimer: Option<&Reclaimer>) {
    let path = path_of(database);
    // While this file is open, removing the name frees nothing.
    let held = side_file::peek(&path, false).map(OwnFile::new);
    let _ = std::fs::remove_file(path);
    let Ok(held) = held else { return };
    match reclaimer {
        Some(reclaimer) => reclaimer.hand(held),
        // If no thread can be started, it is dropped here.
        None => drop(Reclaimer::begin("pellucid-free", || drop(held))),
    }
}

/// The circumstances in which the database is opened.
#[derive(Clone, Copy)]
pub(crate) struct Manner {
    /// No other process has it open that may write it.
    pub(crate) is_alone: bool,
    /// The file can be written, whether or not it will be.
    pub(crate) is_writable: bool,
    /// The opener will write.
    pub(crate) writes: bool,
    /// The log token in the data file.
    pub(crate) log_token: u64,
    /// Bytes of a segment of the log, or 0 for the default.
    pub(crate) segment_size: usize,
    pub(crate) upkeep: Upkeep,
    /// How long to wait for other processes that are opening it.
    pub(crate) timeout: Duration,
}

/// What the checkpointer of the opener has to know.
#[derive(Clone, Copy)]
pub(crate) struct Upkeep {
    /// Bytes of memory that memtables may take.
    pub(crate) memory: u64,
    /// Whether it makes the file shorter when much of it is free.
    pub(crate) compacts: bool,
}

impl Manner {
    fn words(&self) -> usize {
        words_for(if self.segment_size == 0 { SEGMENT_SIZE } else { self.segment_size })
    }
}

/// Put the log over the tree of the database at `path`; `file` is its data file.
pub(crate) fn attach(
    tree: Box<dyn Engine>,
    path: &Path,
    file: &File,
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
    let inode = file.metadata().map_err(|source| StoreError::from_io("read", name.clone(), source))?.ino();
    let mut joining = None;
    let (space, opened): (Box<dyn Space>, _) = if manner.is_writable {
        let joined = join(&log_path, &name, file, manner)?;
        joining = joined.joining;
        (Box::new(joined.space), Opened { is_alone: joined.is_first, joins: true, inode })
    } else {
        let space = match FileSpace::open(&log_path, manner.words(), None, false) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                if manner.log_token != 0 {
                    warnings.push(missing_log(&*tree, &name)?);
                }
                return Ok(tree);
            }
            space => space.map_err(|source| open_error(&log_name, source))?,
        };
        // No process writes the log, and we may not write it either: it is recovered in a copy.
        let space: Box<dyn Space> = if manner.is_alone {
            let copy = MemorySpace::copy_of(&space, 0);
            Box::new(copy.map_err(|error| StoreError::from_engine(&log_name, error))?)
        } else {
            Box::new(space)
        };
        (space, Opened { is_alone: manner.is_alone, joins: false, inode })
    };
    let looked = if opened.is_alone {
        read_whole(&*tree, (space, opened), header.identity, manner, path)?
    } else {
        (space, opened, None)
    };
    let (space, opened, damage) = looked;
    warnings.extend(damage);
    let (engine, met) = LoggedEngine::open(tree, space, header.identity, opened)
        .map_err(|error| refused(error, path, manner))?;
    engine.set_memory(manner.upkeep.memory);
    engine.set_auto_compact(manner.upkeep.compacts);
    drop(joining);
    let writes = manner.is_writable && manner.writes;
    engine.begin(opened, writes).map_err(|error| {
        if writes { not_written(path, error) } else { StoreError::from_engine(&log_name, error) }
    })?;
    let Met { lost, applied } = met;
    if opened.is_alone && engine.misses_log(manner.log_token) {
        warnings.push(Warning::LogMissing { path: name.clone(), version: applied });
    }
    let namespace = u64::from(os::pid_namespace());
    if manner.is_writable && namespace != 0 && engine.meet_namespace(namespace) {
        warnings.push(Warning::OtherNamespace { path: name.clone() });
    }
    if lost > 0 {
        warnings.push(Warning::LostCommits { path: name, commits: lost });
    }
    Ok(Box::new(engine))
}

/// A log, how it was opened, and a warning of what is damaged in it.
type ReadLog = (Box<dyn Space>, Opened, Option<Warning>);

/// The log as it is or, if it is damaged, what is whole of it, for a caller that reads. The caller
/// is alone with the log.
fn read_whole(
    tree: &dyn Engine,
    (space, mut opened): (Box<dyn Space>, Opened),
    identity: [u8; 16],
    manner: Manner,
    path: &Path,
) -> Result<ReadLog, StoreError> {
    let (path, log) = (path.display().to_string(), path_of(path).display().to_string());
    let mended = wal::mended(tree, space, identity, opened.joins);
    let (space, faults) = mended.map_err(|error| StoreError::from_engine(&log, error))?;
    if faults.is_empty() {
        return Ok((space, opened, None));
    }
    if manner.writes {
        return Err(damaged(&path, &log, &faults));
    }
    opened.joins = false;
    Ok((space, opened, Some(Warning::LogDamaged { path, log, faults })))
}

/// The error for a log that cannot be opened.
fn refused(error: EngineError, path: &Path, manner: Manner) -> StoreError {
    let log_path = path_of(path);
    let log = log_path.display().to_string();
    match error {
        EngineError::ForeignLog(what) if what == OF_ANOTHER => {
            let what = format!("{what}; {}", whose_it_is(&log_path, manner));
            StoreError::ForeignLog { path: log, what }
        }
        error => StoreError::from_engine(&log, error),
    }
}

/// The error for a log that is damaged, so that no process may write to it.
fn damaged(path: &str, log: &str, faults: &[LogFault]) -> StoreError {
    let mut what = String::new();
    let _ = fmt_damaged(&mut what, log, faults);
    let what = format!(
        "{what}; nothing was changed, and both files are kept; pellucid.open('{path}', 'r').backup(\"another path\") saves all that is whole"
    );
    StoreError::ForeignLog { path: log.to_owned(), what }
}

/// A log of which this process has become a member.
struct Joined {
    space: FileSpace,
    /// There is no other member, and none can join while `joining` is held.
    is_first: bool,
    joining: Option<log_file::Joining>,
}

/// Become a member of a database's log. Beside processes that may only read, the first that may
/// write is alone with the log; others may join at the same time.
fn join(log_path: &Path, name: &str, file: &File, manner: Manner) -> Result<Joined, StoreError> {
    let data = file.metadata().map_err(|source| StoreError::from_io("read", name.to_owned(), source))?;
    let mut joining = None;
    if !manner.is_alone {
        joining = Some(begin_joining(log_path, name, manner, &|| opening::holders(file))?);
    }
    let space = FileSpace::open(log_path, manner.words(), manner.is_alone.then_some(&data), true);
    let space = space.map_err(|source| open_error(&log_path.display().to_string(), source))?;
    let is_first = manner.is_alone || !space.has_others();
    if !is_first {
        // Another member has recovered it. Release the lock now: reading all that is pending, one
        // process after the other, takes many joining processes longer than their timeout.
        joining = None;
    }
    Ok(Joined { space, is_first, joining })
}

/// Wait for the right to join a log, since several processes may want to be its first member.
fn begin_joining(
    log_path: &Path,
    name: &str,
    manner: Manner,
    holders: &dyn Fn() -> Vec<Holder>,
) -> Result<log_file::Joining, StoreError> {
    let limit = manner.timeout.max(JOINING_PATIENCE);
    log_file::begin_joining(log_path, limit, manner.writes).map_err(|source| match source.kind() {
        io::ErrorKind::TimedOut => {
            let (path, waited) = (name.to_owned(), Some(limit));
            StoreError::Busy { path, wanted: Wanted::Open, holders: Vec::new(), waited }
        }
        // The log was removed or renamed. Processes that have it open go on with it, and write all
        // of it into the tree in the end.
        io::ErrorKind::NotFound => {
            let (path, holders) = (name.to_owned(), holders());
            StoreError::Busy { path, wanted: Wanted::Locks, holders, waited: None }
        }
        _ => open_error(&log_path.display().to_string(), source),
    })
}

/// The error for commits of the log that could not be written into the file: mostly that the disk
/// is full.
pub(crate) fn not_written(path: &Path, error: EngineError) -> StoreError {
    match error {
        EngineError::DiskFull(source) => no_room(path, source),
        EngineError::BadPage { .. } => {
            let (log, fault) = (path_of(path).display().to_string(), error.to_string());
            StoreError::LogUnwritten { path: path.display().to_string(), log, fault }
        }
        EngineError::Io(source) => StoreError::from_io("write", path.display().to_string(), source),
        error => StoreError::from_engine(&path.display().to_string(), error),
    }
}

/// The error for a full disk, with how much room would do.
pub(crate) fn no_room(path: &Path, source: io::Error) -> StoreError {
    let log = path_of(path);
    let path = path.display().to_string();
    match log.metadata() {
        Ok(metadata) if metadata.len() > LOG_SIZE_LEAST => {
            StoreError::NoRoomForLog { path, log: log.display().to_string(), size: metadata.len(), source }
        }
        _ => StoreError::DiskFull { path, source },
    }
}

/// The data file that a log belongs to.
#[derive(Clone, Copy)]
pub(crate) struct DataFile {
    /// It is no database yet, but will be.
    pub(crate) is_new: bool,
    /// Its inode, if it existed already: the inode of a deleted file may be used again soon.
    pub(crate) inode: Option<u64>,
    /// An existing database is to be replaced.
    pub(crate) is_replaced: bool,
}

/// Check what lies at the path of the log before a database is opened or made there. The caller is
/// alone with the data file and has made nothing yet. The log of another database is refused. Mode
/// `n` removes the log of a database that is gone.
///
/// The log of a new file that a power cut has removed or torn before it was synced is removed as
/// well; the lost commits are reported.
pub(crate) fn meet(path: &Path, data: DataFile, segment_size: usize) -> Result<Option<Warning>, StoreError> {
    let log_path = path_of(path);
    let file = match side_file::open(&log_path, false) {
        Ok(file) => file,
        Err(error) if Strange::of(&error).is_some() => {
            return Err(open_error(&log_path.display().to_string(), error));
        }
        Err(_) => return Ok(None),
    };
    let refused = |what| StoreError::ForeignLog { path: log_path.display().to_string(), what };
    if let Some(pid) = lasting_member(&file) {
        let who = match pid {
            0 => "a process in another container".to_owned(),
            pid if pid == std::process::id() => "this process".to_owned(),
            pid => format!("PID {pid}"),
        };
        return Err(refused(format!(
            "it belongs to a database that {who} has open, and whose file was renamed, deleted or replaced meanwhile; close that one first, or use another path"
        )));
    }
    if !data.is_new || !log_file::is_log(&file) {
        return Ok(None);
    }
    if data.is_replaced {
        remove(path, None);
        return Ok(None);
    }
    let timeout = Duration::ZERO;
    let manner = Manner {
        is_alone: false,
        is_writable: false,
        writes: false,
        log_token: 0,
        segment_size,
        upkeep: Upkeep { memory: MEMORY_USUAL, compacts: false },
        timeout,
    };
    // With another data file, or none, the log's file was moved: its name was there before its
    // log's.
    if data.inode.is_some() && data.inode == log_file::unsynced_file_of(&file) {
        let held = held_by(&log_path, manner);
        remove(path, None);
        // After another power cut the log must not lie beside the new file.
        sync_folder(path)?;
        let path = path.display().to_string();
        return Ok(held.map(|(first, last)| Warning::LostCommits { path, commits: last - first + 1 }));
    }
    Err(refused(format!(
        "it is the log of a database whose file is not here any more; {}; mode 'n' begins a new database without them",
        whose_it_is(&log_path, manner)
    )))
}

/// A process that has the log open and is not just dying: the system releases the locks of a
/// process one after the other.
fn lasting_member(file: &File) -> Option<u32> {
    const PATIENCE: Duration = Duration::from_secs(1);
    let begin = Instant::now();
    loop {
        let pid = living_member(file)?;
        if begin.elapsed() >= PATIENCE {
            return Some(pid);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn living_member(file: &File) -> Option<u32> {
    // A forked child keeps its dead parent's lock until it has closed its descriptors. In another
    // PID namespace it is impossible to check whether a process lives; its PID is returned as 0.
    let own = os::pid_namespace();
    let of_log = log_file::namespace_of(file);
    let is_here = |namespace: u32| match namespace {
        0 => of_log == Some(u64::from(own)),
        namespace => namespace == own,
    };
    let is_locked = |member: i64| os::is_byte_locked(file, log_file::MEMBERS_AT + member).unwrap_or(false);
    log_file::members(file).ok()?.into_iter().find_map(|(member, pid, namespace)| {
        let pid = if is_here(namespace) { pid } else { 0 };
        (is_locked(member) && (pid == 0 || !is_dead(pid))).then_some(pid)
    })
}

/// The first and the last commit that a log holds and its file lacks.
fn held_by(log_path: &Path, manner: Manner) -> Option<(u64, u64)> {
    let space = FileSpace::open(log_path, manner.words(), None, false).ok()?;
    wal::unapplied(Box::new(space)).ok()?
}

/// What the log of another database holds, and what to do with it.
fn whose_it_is(log_path: &Path, manner: Manner) -> String {
    match held_by(log_path, manner) {
        Some((first, last)) => format!(
            "it holds the last {} commits of that one, versions {first} to {last}: bring its file and this log together again, under names that match, or move the log away if the file is gone",
            last - first + 1
        ),
        None => "it holds no commit that the file of that one lacks: move it away if that one is not in use"
            .to_owned(),
    }
}

/// The warning for a database whose token names a log that is missing.
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
        return StoreError::ForeignLog { path: name.to_owned(), what: what.to_owned() };
    }
    match source.raw_os_error() {
        Some(libc::ENOMEM) => StoreError::NoMemory { what: "the log: 64 MiB of address space" },
        _ => match StoreError::from_io("open", name.to_owned(), source) {
            StoreError::AccessDenied { path, source, .. } if Path::new(name).exists() => {
                StoreError::BesideDenied { path, source }
            }
            error => error,
        },
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn whoever_is_not_the_first_to_join_keeps_nobody_from_it() {
        let folder = std::env::temp_dir().join(format!("pellucid-join-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("joined.pel-log");
        let file = File::create(&path).unwrap();
        drop(FileSpace::open(&path, words_for(1 << 16), Some(&file.metadata().unwrap()), true).unwrap());
        let manner = Manner {
            is_alone: false,
            is_writable: true,
            writes: true,
            log_token: 0,
            segment_size: 1 << 16,
            upkeep: Upkeep { memory: MEMORY_USUAL, compacts: false },
            timeout: Duration::ZERO,
        };
        let may_join = || log_file::begin_joining(&path, Duration::ZERO, true).is_ok();
        let first = join(&path, "joined.pel", &file, manner).unwrap();
        // The first member still has to recover what a dead process may have left.
        assert!(first.is_first && !may_join());
        let Joined { space: _first, joining, .. } = first;
        drop(joining);
        let second = join(&path, "joined.pel", &file, manner).unwrap();
        assert!(!second.is_first && may_join());
        std::fs::remove_dir_all(&folder).unwrap();
    }

    #[test]
    fn a_writer_that_waits_joins_the_log_before_readers_that_came_later() {
        const LONG: Duration = Duration::from_secs(60);
        let path = std::env::temp_dir().join(format!("pellucid-joins-{}", std::process::id()));
        std::fs::write(&path, b"").unwrap();
        let join = |writes| log_file::begin_joining(&path, LONG, writes).unwrap();
        let (is_joined, early) = (AtomicBool::new(false), AtomicUsize::new(0));
        let (first, seen) = (join(false), File::open(&path).unwrap());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _joining = join(true);
                is_joined.store(true, Ordering::SeqCst);
            });
            while !os::is_byte_locked(&seen, log_file::JOINS_NEXT_AT).unwrap() {
                std::thread::yield_now();
            }
            for _ in 0..16 {
                scope.spawn(|| {
                    let _joining = join(false);
                    early.fetch_add(usize::from(!is_joined.load(Ordering::SeqCst)), Ordering::SeqCst);
                });
            }
            std::thread::sleep(Duration::from_millis(20));
            drop(first);
        });
        assert_eq!(early.into_inner(), 0);
        std::fs::remove_file(&path).unwrap();
    }
}
