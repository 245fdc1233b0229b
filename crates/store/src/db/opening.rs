//! The `flock` on a database's data file, which tells whether other processes have it open.
//!
//! Every process holds a shared lock on the data file; a process that gets the lock exclusively is
//! alone. It is exclusive only for moments: while the first process opens (and creates) the file,
//! while the last one closes it and removes the files beside it, and while `compact` replaces the
//! file. So the holder of a shared lock knows that the lock file and the log stay in place. A
//! database at rest is one file.
//!
//! `flock` does not interfere with LMDB, whose own locks are on its lock file, and not with locks
//! on bytes. Of these, processes that may write the file share `WRITERS_AT` as long as they have it
//! open, and `STAYING_AT` until they begin to close it. Readers without the right to write share
//! bytes for the versions that they read (`engine/lmdb/unregistered.rs`). So the first process that
//! may write finds out that only such readers have the file open, and makes the lock file and the
//! log beside them; the last one finds it out as well, and writes the log into the file.
//! `JOINING_AT` keeps others from opening the file meanwhile.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::db::log_file;
use crate::db::registry;
use crate::engine::lmdb::lock_path_of;
use crate::engine::lmdb::unregistered::{VERSIONS_AT, locked_by_others};
use crate::error::{Holder, StoreError, Wanted};
use crate::sys::file_id::{FileId, id_of, is_denied, same_file};
use crate::sys::os;
use crate::sys::own_file::OwnFile;
use crate::sys::process::command_of;
use crate::sys::reclaim::Reclaimer;
use crate::sys::steps::{Step, reached};
use crate::sys::turnstile::Turnstile;

/// The byte that processes share that may write the file.
const WRITERS_AT: i64 = VERSIONS_AT - 2;
/// The byte that these processes share until they begin to close it.
const STAYING_AT: i64 = VERSIONS_AT - 3;
/// The byte that a process shares while it opens a file that others have open. The first process
/// that may write has it alone.
const JOINING_AT: i64 = VERSIONS_AT - 1;
/// The byte that a process has alone that will write, and waits for `JOINING_AT`.
const JOINS_NEXT_AT: i64 = VERSIONS_AT - 4;
/// How long to wait for other processes that join, whatever the caller's timeout is: joining takes
/// longer only in a stopped process.
pub(crate) const JOINING_PATIENCE: Duration = Duration::from_secs(2);

/// A database's data file, locked so that other processes know of this one.
pub(crate) struct Opening {
    pub(crate) path: PathBuf,
    pub(crate) file_id: FileId,
    file: OwnFile,
    /// Whether it is a database, so that the files beside it are a database's.
    pub(crate) is_open: bool,
    /// Whether the log may have commits that the tree lacks. False only after the last process has
    /// written all of them into the tree, or if no other process can ever have used the log.
    pub(crate) keeps_log: AtomicBool,
    /// Whether closing it must be noted in the registry. Only set after the registry knows of
    /// it: its lock is held until then.
    pub(crate) is_registered: AtomicBool,
    /// Whether our shared lock was given up for a moment since then: other processes may have been
    /// here, with files beside the database that we do not know.
    was_away: AtomicBool,
    /// The files beside it when it was opened. They are ours as long as they are the same.
    beside: OnceLock<Beside>,
    /// The thread that frees the log's disk space, if there is one already.
    reclaimer: OnceLock<Reclaimer>,
    /// Whether the file was made just now, and whether it is to be removed again because no
    /// database was made of it.
    pub(crate) is_made: bool,
    pub(crate) is_unwanted: bool,
}

/// The lock file and the log.
#[derive(PartialEq, Eq)]
struct Beside([Option<FileId>; 2]);

impl Beside {
    fn of(path: &Path) -> Self {
        let id = |path: PathBuf| std::fs::symlink_metadata(path).ok().map(|metadata| id_of(&metadata));
        Self([id(lock_path_of(path)), id(log_file::path_of(path))])
    }
}

/// The data file as it was found.
pub(crate) struct OpenedFile {
    pub(crate) opening: Opening,
    /// No other process has it open, or can open it until `share`.
    pub(crate) is_alone: bool,
    pub(crate) is_writable: bool,
}

/// Whether to create a file, and whether to write it.
#[derive(Clone, Copy)]
pub(crate) struct Wish {
    pub(crate) creates: bool,
    pub(crate) writes: bool,
}

impl Opening {
    /// Begin to open the file beside processes that have it open. Until the result is dropped, no
    /// other process begins to that may write, and none at all if this one may. One that `writes`
    /// comes before those that only read. `None` if the file system has no such locks.
    pub(crate) fn begin_joining(
        &self,
        is_writable: bool,
        writes: bool,
        timeout: Duration,
    ) -> Result<Option<OwnFile>, StoreError> {
        let failed = |source| StoreError::from_io("lock", self.path.display().to_string(), source);
        if !os::has_byte_locks(self.file()?) {
            return Ok(None);
        }
        // Locks belong to the open file, and this one ends with them.
        let limit = timeout.max(JOINING_PATIENCE);
        let file = File::options().read(true).write(is_writable).open(&self.path).map_err(failed)?;
        let (at, waiting_at) = (JOINING_AT, JOINS_NEXT_AT);
        let turnstile = Turnstile { at, waiting_at, is_shared: !is_writable, will_write: writes };
        if !turnstile.pass(&file, limit).map_err(failed)? {
            let (path, waited) = (self.path.display().to_string(), Some(limit));
            return Err(StoreError::Busy { path, wanted: Wanted::Open, holders: self.others(), waited });
        }
        Ok(Some(OwnFile::new(file)))
    }

    /// Whether another process has it open that may write it. Without locks that tell, true where
    /// there is a lock file, and always for a process that may write.
    pub(crate) fn has_writers(&self, is_writable: bool) -> Result<bool, StoreError> {
        let file = self.file()?;
        if !os::has_byte_locks(file) {
            return Ok(is_writable || self.lock_path().exists());
        }
        os::is_byte_locked(file, WRITERS_AT)
            .map_err(|source| StoreError::from_io("lock", self.path.display().to_string(), source))
    }

    /// Let other processes know that this one may write, or that it does not after all.
    pub(crate) fn show_writer(&self, is_writer: bool) -> Result<(), StoreError> {
        let file = self.file()?;
        if !os::has_byte_locks(file) {
            return Ok(());
        }
        let share = |at| {
            if !is_writer {
                // To unlock a byte always succeeds.
                os::lock_byte(file, at, false).map(drop)
            } else if os::share_byte(file, at)? {
                Ok(())
            } else {
                // No process has these bytes alone, unless one means harm.
                Err(locked_by_others())
            }
        };
        share(WRITERS_AT)
            .and_then(|()| share(STAYING_AT))
            .map_err(|source| StoreError::from_io("lock", self.path.display().to_string(), source))
    }

    /// Find or create the file and lock it: exclusively if no other process has it open, otherwise
    /// shared.
    pub(crate) fn find(path: &Path, wish: Wish, timeout: Duration) -> Result<OpenedFile, StoreError> {
        let begin = Instant::now();
        let name = path.display().to_string();
        loop {
            let Opened { file, is_writable, is_made } = open_file(path, wish)?;
            let lock =
                try_either(&file).map_err(|source| StoreError::from_io("lock", name.clone(), source))?;
            // The file may have been replaced or removed while we waited.
            if let (Some(is_alone), Some(file_id)) = (lock, same_file(path, &file)) {
                let file = OwnFile::new(file);
                let opening = Self {
                    path: path.to_owned(),
                    file_id,
                    file,
                    is_open: false,
                    keeps_log: AtomicBool::new(true),
                    is_registered: AtomicBool::new(false),
                    was_away: AtomicBool::new(false),
                    beside: OnceLock::new(),
                    reclaimer: OnceLock::new(),
                    is_made,
                    is_unwanted: false,
                };
                return Ok(OpenedFile { opening, is_alone, is_writable });
            }
            if begin.elapsed() >= timeout {
                let holders = holders(&file);
                let waited = Some(timeout);
                return Err(StoreError::Busy { path: name, wanted: Wanted::Open, holders, waited });
            }
            drop(file);
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    pub(crate) fn file(&self) -> Result<&File, StoreError> {
        self.file.file().ok_or(StoreError::Forked { what: "database" })
    }

    /// Let other processes in. False if another process was alone with the file in between, and has
    /// replaced it, or removed the files beside it as the last one to close.
    pub(crate) fn share(&self) -> Result<bool, StoreError> {
        let name = || self.path.display().to_string();
        let file = self.file()?;
        // Converting the lock from exclusive to shared is not atomic: another process may be alone
        // in between.
        file.lock_shared().map_err(|source| StoreError::from_io("lock", name(), source))?;
        Ok(self.is_current())
    }

    /// Note which files lie beside it, while no process can remove them.
    pub(crate) fn note_beside(&self) {
        self.beside.get_or_init(|| Beside::of(&self.path));
    }

    /// Let a thread free the log's disk space.
    pub(crate) fn reclaim_by(&self, reclaimer: Option<Reclaimer>) {
        if let Some(reclaimer) = reclaimer {
            let _ = self.reclaimer.set(reclaimer);
        }
    }

    /// Whether the file and those beside it are still the ones that we have open.
    pub(crate) fn is_current(&self) -> bool {
        self.is_same() && self.beside.get().is_none_or(|beside| *beside == Beside::of(&self.path))
    }

    fn is_same(&self) -> bool {
        self.file.file().is_some_and(|file| same_file(&self.path, file) == Some(self.file_id))
    }

    /// Whether other files lie beside it by now.
    fn has_others_beside(&self) -> bool {
        let pairs = self.beside.get().map(|beside| beside.0.into_iter().zip(Beside::of(&self.path).0));
        pairs.is_some_and(|mut pairs| pairs.any(|(ours, now)| now.is_some() && now != ours))
    }

    /// Wait until no other process has it open; otherwise report which process has.
    pub(crate) fn be_alone(
        &self,
        timeout: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<(), StoreError> {
        let begin = Instant::now();
        let file = self.file()?;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(()),
                Err(TryLockError::Error(source)) => {
                    return Err(StoreError::from_io("lock", self.path.display().to_string(), source));
                }
                Err(TryLockError::WouldBlock) => {}
            }
            // The attempt has given up our shared lock for a moment, in which the last process may
            // have closed the database.
            self.was_away.store(true, Ordering::Relaxed);
            let _ = file.lock_shared();
            if begin.elapsed() >= timeout || !self.is_current() {
                let path = self.path.display().to_string();
                let holders = holders(file);
                let waited = Some(timeout);
                return Err(StoreError::Busy { path, wanted: Wanted::Alone, holders, waited });
            }
            if !go_on() {
                return Err(StoreError::Stopped);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Whether the file has no name any more: it was deleted or replaced. A renamed file has its
    /// new name.
    pub(crate) fn is_deleted(&self) -> bool {
        self.file.file().and_then(|file| file.metadata().ok()).is_some_and(|metadata| metadata.nlink() == 0)
    }

    /// Which other processes have it open, as far as the system says.
    pub(crate) fn others(&self) -> Vec<Holder> {
        self.file.file().map(holders).unwrap_or_default()
    }

    /// LMDB's lock file.
    pub(crate) fn lock_path(&self) -> PathBuf {
        lock_path_of(&self.path)
    }
}

/// How this process leaves a database when it closes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Leaving {
    /// As the last one.
    Last,
    /// As the last one, of a file that was renamed meanwhile: no process was here that does not
    /// share our log.
    LastOfMoved,
    /// Another process has it open, or was alone with it.
    NotLast,
}

impl Opening {
    /// Find out whether this process is the last one. If so, no other process can open the file
    /// from then on.
    pub(crate) fn leaving(&self) -> Leaving {
        let Some(file) = self.file.file().filter(|_| self.is_open) else { return Leaving::NotLast };
        if file.try_lock().is_err() {
            self.was_away.store(true, Ordering::Relaxed);
            return Leaving::NotLast;
        }
        if self.is_same() {
            return if self.has_others_beside() { Leaving::NotLast } else { Leaving::Last };
        }
        let is_named = file.metadata().is_ok_and(|metadata| metadata.nlink() > 0);
        // A process that opened the file under its new name uses another lock file and another log:
        // our knowledge of the tree is not the newest then.
        if is_named && !self.was_away.load(Ordering::Relaxed) {
            Leaving::LastOfMoved
        } else {
            Leaving::NotLast
        }
    }
}

impl Opening {
    /// Whether all other processes that have it open may not write it, or begin to close it as
    /// well. For a process that closes it, has committed all that it will, and has asked whether it
    /// is the last one.
    ///
    /// Of processes that close it at once, the one that stops staying as the last sees none that
    /// stays, and the commits of all others. A second one may see that, too; then the locks of the
    /// log are between them.
    pub(crate) fn is_last_writer(&self) -> bool {
        let Some(file) = self.file.file().filter(|file| os::has_byte_locks(file)) else { return false };
        let is_alone = os::lock_byte(file, STAYING_AT, false)
            .and_then(|_| os::is_byte_locked(file, STAYING_AT))
            .is_ok_and(|others_stay| !others_stay);
        // The question has given up our shared lock, and another process may be alone by now.
        is_alone && file.try_lock_shared().is_ok() && self.is_current()
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        if !self.file.is_ours() {
            return;
        }
        // The engine has closed the file. If no other process has it open, the files beside it are
        // not needed any more.
        if self.is_open && self.leaving() == Leaving::Last {
            if !self.keeps_log.load(Ordering::Relaxed) {
                reached(Step::LastCloses);
                log_file::remove(&self.path, self.reclaimer.get());
                reached(Step::LogRemoved);
            }
            let _ = std::fs::remove_file(self.lock_path());
        }
        if self.is_unwanted && self.is_same() {
            let _ = std::fs::remove_file(&self.path);
        }
        if self.is_registered.load(Ordering::Relaxed) {
            registry::close(self.file_id);
        }
    }
}

/// A file that was opened, or created.
struct Opened {
    file: File,
    is_writable: bool,
    is_made: bool,
}

impl Opened {
    fn found(file: File, is_writable: bool) -> Self {
        Self { file, is_writable, is_made: false }
    }
}

fn open_file(path: &Path, wish: Wish) -> Result<Opened, StoreError> {
    let name = path.display().to_string();
    match std::fs::metadata(path) {
        Ok(metadata) if metadata.is_dir() => return Err(StoreError::IsDirectory { path: name }),
        Ok(metadata) if !metadata.is_file() => {
            // Opening a pipe would wait for its other end.
            return Err(StoreError::NotADatabase { path: name, what: "it is not a regular file" });
        }
        _ => {}
    }
    let mut both = File::options();
    both.read(true).write(true);
    let found = match both.open(path) {
        Err(error) if wish.creates && error.kind() == io::ErrorKind::NotFound => {
            if let Ok(file) = both.create_new(true).open(path) {
                return Ok(Opened { file, is_writable: true, is_made: true });
            }
            // Another process was faster, or it is a link to a file that does not exist yet.
            both.create_new(false).create(true).truncate(false).open(path)
        }
        found => found,
    };
    match found {
        // A user who may write the file, but create none beside it, can only read.
        Ok(file) if !wish.writes && !lock_path_of(path).exists() && !os::may_create_beside(path) => {
            Ok(Opened::found(file, false))
        }
        Ok(file) => Ok(Opened::found(file, true)),
        Err(error) if !wish.writes && is_denied(&error) => {
            let file = File::open(path).map_err(|source| StoreError::from_io("open", name, source))?;
            Ok(Opened::found(file, false))
        }
        // The folder exists (`real_path`), but its file system allows no new files.
        Err(error) if wish.creates && error.kind() == io::ErrorKind::NotFound => {
            Err(StoreError::NotCreatable { path: name })
        }
        Err(source) => Err(match StoreError::from_io("open", name, source) {
            StoreError::AccessDenied { path: name, source, .. } => {
                let is_readable = wish.writes && File::open(path).is_ok();
                StoreError::AccessDenied { path: name, source, is_readable }
            }
            error => error,
        }),
    }
}

/// Take the lock exclusively (true) or shared (false), or neither.
fn try_either(file: &File) -> io::Result<Option<bool>> {
    match file.try_lock() {
        Ok(()) => return Ok(Some(true)),
        Err(TryLockError::Error(error)) => return Err(error),
        Err(TryLockError::WouldBlock) => {}
    }
    match file.try_lock_shared() {
        Ok(()) => Ok(Some(false)),
        Err(TryLockError::Error(error)) => Err(error),
        Err(TryLockError::WouldBlock) => Ok(None),
    }
}

/// How often the kernel's list of locks is read before a file counts as held by no known process.
const LIST_READS_MAX: u32 = 10;

/// The other processes that hold a `flock` on a file.
///
/// The kernel hands out its list a page at a time. A lock that some process on the machine releases
/// between two pages moves the others forward, and one of them is in neither page. So a list
/// without a holder is read again.
pub(crate) fn holders(file: &File) -> Vec<Holder> {
    let Ok(metadata) = file.metadata() else { return Vec::new() };
    let listed = || {
        let locks = std::fs::read_to_string("/proc/locks").ok()?;
        let pids = locks.lines().filter_map(|line| pid_of_lock(line, metadata.ino()));
        let others: BTreeSet<u32> = pids.filter(|pid| *pid != std::process::id()).collect();
        (!others.is_empty()).then_some(others)
    };
    let pids = (0..LIST_READS_MAX).find_map(|_| listed()).unwrap_or_default();
    let holder = |pid: u32| Holder { pid, command: command_of(&pid.to_string()), since: String::new() };
    pids.into_iter().map(holder).collect()
}

/// "6: FLOCK  ADVISORY  READ 4711 fd:00:1234 0 EOF"
fn pid_of_lock(line: &str, inode: u64) -> Option<u32> {
    let words: Vec<&str> = line.split_whitespace().filter(|word| *word != "->").collect();
    let (kind, pid, place) = (words.get(1)?, words.get(4)?, words.get(5)?);
    let is_ours = *kind == "FLOCK" && place.rsplit(':').next()?.parse::<u64>() == Ok(inode);
    pid.parse().ok().filter(|pid| is_ours && *pid > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_who_holds_a_lock() {
        let line = "6: FLOCK  ADVISORY  READ 4711 fd:00:1234 0 EOF";
        assert_eq!(pid_of_lock(line, 1234), Some(4711));
        assert_eq!(pid_of_lock(line, 1235), None, "another file");
        assert_eq!(pid_of_lock("6: POSIX  ADVISORY  READ 4711 fd:00:1234 0 EOF", 1234), None, "another kind");
        assert_eq!(
            pid_of_lock("6: -> FLOCK  ADVISORY  WRITE 12 fd:00:1234 0 EOF", 1234),
            Some(12),
            "it waits"
        );
    }

    fn found(path: &Path) -> Opening {
        let wish = Wish { creates: true, writes: true };
        let mut opening = Opening::find(path, wish, Duration::ZERO).unwrap().opening;
        opening.is_open = true;
        opening
    }

    fn shared(path: &Path) -> Opening {
        let opening = found(path);
        opening.share().unwrap();
        opening
    }

    fn scratch(name: &str) -> (PathBuf, PathBuf) {
        let path = std::env::temp_dir().join(format!("pellucid-opening-{name}-{}", std::process::id()));
        std::fs::write(&path, b"").unwrap();
        let log = log_file::path_of(&path);
        std::fs::write(&log, b"log").unwrap();
        std::fs::write(lock_path_of(&path), b"lock").unwrap();
        (path, log)
    }

    #[test]
    fn a_log_that_nobody_has_checkpointed_is_kept() {
        let (path, log) = scratch("kept");
        drop(found(&path));
        assert!(log.exists(), "perhaps the one who was the last a moment ago has died");
        assert!(!lock_path_of(&path).exists());
        let opening = found(&path);
        opening.keeps_log.store(false, Ordering::Relaxed);
        drop(opening);
        assert!(!log.exists());
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn of_writers_that_leave_at_once_one_is_the_last() {
        let (path, log) = scratch("leaving");
        let (one, other, reader) = (shared(&path), shared(&path), File::open(&path).unwrap());
        reader.lock_shared().unwrap();
        for writer in [&one, &other] {
            writer.note_beside();
            writer.show_writer(true).unwrap();
        }
        for writer in [&one, &other] {
            assert_eq!(writer.leaving(), Leaving::NotLast);
        }
        // Neither has closed the file yet.
        assert!(!one.is_last_writer());
        assert!(other.is_last_writer());
        let late = found(&path);
        assert!(late.has_writers(true).unwrap(), "they write until they have closed it");
        drop((one, other));
        assert!(!late.has_writers(true).unwrap());
        drop(late);
        for file in [&path, &log, &lock_path_of(&path)] {
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn a_writer_that_cannot_show_itself_is_an_error() {
        let (path, log) = scratch("shown");
        let (opening, other) = (found(&path), File::options().read(true).write(true).open(&path).unwrap());
        assert!(os::lock_byte(&other, WRITERS_AT, true).unwrap());
        let error = opening.show_writer(true).unwrap_err().to_string();
        assert!(error.contains("another program has locked"), "{error}");
        drop(other);
        opening.show_writer(true).unwrap();
        drop(opening);
        for file in [&path, &log] {
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn who_lost_the_files_beside_it_in_between_begins_again() {
        let (path, log) = scratch("beside");
        let opening = found(&path);
        opening.note_beside();
        // Keep both open, as the engine does, so that their inodes are not used again.
        let _open = [File::open(&log).unwrap(), File::open(lock_path_of(&path)).unwrap()];
        assert!(opening.share().unwrap());
        // What the last process to close does, if it was alone while the lock was converted.
        std::fs::remove_file(&log).unwrap();
        std::fs::remove_file(lock_path_of(&path)).unwrap();
        assert!(!opening.share().unwrap(), "the next process to open it has other ones");
        std::fs::write(&log, b"log of the next").unwrap();
        std::fs::write(lock_path_of(&path), b"lock of the next").unwrap();
        assert!(!opening.share().unwrap());
        opening.keeps_log.store(false, Ordering::Relaxed);
        drop(opening);
        assert!(log.exists() && lock_path_of(&path).exists(), "they are not ours to remove");
        for file in [&path, &log, &lock_path_of(&path)] {
            std::fs::remove_file(file).unwrap();
        }
    }

    #[test]
    fn readers_that_come_and_go_keep_no_writer_from_joining() {
        let (path, log) = scratch("joining");
        let _first = shared(&path);
        // A reader with the right to write has it alone.
        for is_writable in [false, true] {
            let is_over = AtomicBool::new(false);
            std::thread::scope(|scope| {
                for _ in 0..8 {
                    scope.spawn(|| {
                        let reader = found(&path);
                        while !is_over.load(Ordering::Relaxed) {
                            let joining = reader.begin_joining(is_writable, false, Duration::from_secs(60));
                            let _joining = joining.unwrap();
                            std::thread::sleep(Duration::from_millis(10));
                        }
                    });
                }
                std::thread::sleep(Duration::from_millis(50));
                let joined = found(&path).begin_joining(true, true, Duration::ZERO).map(drop);
                is_over.store(true, Ordering::Relaxed);
                assert!(joined.is_ok(), "{joined:?}");
            });
        }
        for file in [&path, &log, &lock_path_of(&path)] {
            let _ = std::fs::remove_file(file);
        }
    }
}
