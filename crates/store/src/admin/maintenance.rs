//! Maintenance: stats, check, backup and compact.
//!
//! `stats` reports sizes and counts, `check` verifies the database, `backup` copies it while other
//! processes use it, and `compact` gives back the room of deleted rows.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::admin::check::{self, Finding};
use crate::admin::copy::{self, NewFile};
use crate::catalog::index_entries::all_indexes;
use crate::db::database::Database;
use crate::db::folder::{beside, folder_of, sync_folder};
use crate::db::log_file;
use crate::db::opening::Opening;
use crate::db::stamp;
use crate::db::store::{Custody, Handle, Link, Mode, OpenOptions, Store};
use crate::engine::EngineError;
use crate::engine::lmdb::format::PageFile;
use crate::engine::memory::MemoryEngine;
use crate::error::{Result, StoreError, Wanted};
use crate::sys::own_file::OwnFile;
use crate::sys::rights;
use crate::sys::side_file;
use crate::sys::steps::{Step, reached};

/// The suffix of an unfinished backup's name, followed by a PID.
const PART: &str = ".part-";

/// Sizes and counts of a database.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// The newest version: grows with each commit.
    pub version: u64,
    /// The number of tables.
    pub tables: u64,
    /// The number of rows in all tables.
    pub rows: u64,
    /// The number of indexes of all tables.
    pub indexes: u64,
    /// The number of entries of all indexes.
    pub index_entries: u64,
    /// Index entries written or deleted by this process since it opened the database.
    pub entry_writes: u64,
    /// The number of large values.
    pub blobs: u64,
    /// The number of shapes in the dictionary.
    pub shapes: u64,
    /// Bytes of the file; 0 in memory.
    pub file_size: u64,
    /// Bytes of a page; 0 in memory.
    pub page_size: u64,
    /// Pages up to the last one in use.
    pub pages: u64,
    /// Free pages among these, which will be used again.
    pub free_pages: u64,
    /// Bytes of address space reserved for the file.
    pub map_size: u64,
    /// Bytes of commits in the log that no checkpoint has written into the file yet.
    pub log_pending: u64,
    /// Bytes that the log takes on the disk.
    pub log_size: u64,
    /// Bytes to which the log may grow at present.
    pub log_limit: u64,
    /// Bytes of the history of changes, besides what is in the log.
    pub history_size: u64,
    /// Commits that were found in the log when this process opened the database, because a process
    /// had died.
    pub log_recovered: u64,
    /// Snapshots open in all processes.
    pub readers: u64,
    /// The limit on snapshots.
    pub reader_slots: u64,
    /// How many checkpoints the oldest snapshot is behind: pages that were freed since then cannot
    /// be used again before it is closed.
    pub oldest_reader_lag: u64,
    /// The process of the oldest snapshot; 0 if it is behind no checkpoint.
    pub oldest_reader_process: u64,
    /// For how many seconds it has been open.
    pub oldest_reader_age: u64,
    /// Bytes of pages that the newest version has.
    pub live_size: u64,
    /// Bytes of free pages that will be used again.
    pub free_size: u64,
    /// Bytes of free pages that older snapshots see.
    pub pinned_size: u64,
}

impl Store {
    /// Sizes and counts. Reads each table's entry and the list of free pages.
    ///
    /// # Errors
    /// `Closed`, or when the catalog is damaged.
    pub fn stats(&self) -> Result<Stats> {
        let snapshot = self.database()?.brief_snapshot()?;
        let database = snapshot.database();
        let usage = database.engine.usage().map_err(|error| database.error(error))?;
        let tables = snapshot.tables()?;
        let mut rows = 0;
        for (_, table) in &tables {
            rows += snapshot.count(*table)?;
        }
        let indexes = all_indexes(snapshot.read_txn()).map_err(|error| database.catalog_error(error))?;
        let mut index_entries = 0;
        for info in &indexes {
            index_entries += snapshot.count(info.id)?;
        }
        let file_size = match &database.opening {
            Some(opening) => {
                let metadata = opening.file()?.metadata();
                metadata.map_err(|source| StoreError::from_io("read", database.path.clone(), source))?.len()
            }
            None => 0,
        };
        let [_, _, blobs] = usage.entries;
        Ok(Stats {
            version: snapshot.version(),
            tables: tables.len() as u64,
            rows,
            indexes: indexes.len() as u64,
            index_entries,
            entry_writes: database.entry_writes.load(Ordering::Relaxed),
            blobs,
            shapes: u64::from(snapshot.dictionary().len()),
            file_size,
            page_size: usage.page_size,
            pages: usage.pages,
            free_pages: usage.free_pages,
            map_size: usage.map_size,
            log_pending: usage.pending,
            log_size: usage.log,
            log_limit: usage.log_limit,
            history_size: usage.history,
            log_recovered: usage.recovered,
            readers: u64::from(usage.readers),
            reader_slots: u64::from(usage.reader_slots),
            oldest_reader_lag: usage.oldest_reader.lag,
            oldest_reader_process: usage.oldest_reader.process.into(),
            oldest_reader_age: usage.oldest_reader.age.as_secs(),
            live_size: usage.pages.saturating_sub(usage.free_pages) * usage.page_size,
            free_size: usage.free_pages.saturating_sub(usage.pinned_pages) * usage.page_size,
            pinned_size: usage.pinned_pages * usage.page_size,
        })
    }

    /// Verify every page and every row of one version. No findings means that everything is as it
    /// was written.
    ///
    /// # Errors
    /// When the database cannot be read at all.
    pub fn check(&self) -> Result<Vec<Finding>> {
        self.check_while(&mut || true)
    }

    /// As `check`; `go_on` is called for each entry.
    ///
    /// # Errors
    /// As `check`; `Stopped` if `go_on` returned false.
    pub fn check_while(&self, go_on: &mut dyn FnMut() -> bool) -> Result<Vec<Finding>> {
        check::check(&self.database()?, go_on)
    }

    /// Why the byte at each offset of the file has no meaning, if so: it is free, or padding. For
    /// tests of whether damage that `check` does not find has hit anything.
    ///
    /// # Errors
    /// As [`Store::check`].
    pub fn unused_bytes(&self, offsets: &[u64]) -> Result<Vec<Option<&'static str>>> {
        let database = self.database()?;
        let (_, map) = check::check_file(&database, &mut || true)?;
        let (Some(map), Some(opening)) = (map, &database.opening) else { return Ok(Vec::new()) };
        let file = opening.file()?;
        let failed = |source| StoreError::from_io("read", database.path.clone(), source);
        let size = file.metadata().map_err(failed)?.len();
        let pages = PageFile::new(file, map.page_size(), size);
        Ok(offsets.iter().map(|offset| map.unused(&pages, *offset)).collect())
    }

    /// Copy the newest version into a new file, which is then a database. Other processes may read
    /// and write meanwhile.
    ///
    /// # Errors
    /// `TargetExists`, `DiskFull`.
    pub fn backup(&self, target: impl AsRef<Path>) -> Result<()> {
        self.backup_while(target, false, &mut || true)
    }

    /// As `backup`; `go_on` is called for each entry. If `overwrites`, the copy replaces a database
    /// that has the name and is at rest.
    ///
    /// # Errors
    /// As `backup`; `Stopped` if `go_on` returned false: then there is no new file. `TargetInUse`
    /// and `NotADatabase` for a file that is not replaced.
    pub fn backup_while(
        &self,
        target: impl AsRef<Path>,
        overwrites: bool,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<()> {
        let target = target.as_ref();
        let snapshot = self.database()?.brief_snapshot()?;
        let exists = || StoreError::TargetExists { path: target.display().to_string() };
        let is_there = || target.symlink_metadata().is_ok();
        if is_there() {
            if !overwrites {
                return Err(exists());
            }
            at_rest(target)?;
        }
        if !folder_of(target).is_dir() {
            return Err(StoreError::NoFolder { path: target.display().to_string() });
        }
        // Under another name until it is complete: half a backup must not look like one.
        let part = beside(target, &format!("{PART}{}", std::process::id()));
        remove_parts_of(target);
        // Errors name the path that the caller knows.
        let mode = rights::mode_beside(self.path());
        let mut new = NewFile::create_for(&part, target, mode)?;
        let copied = new.take_all(snapshot.read_txn(), go_on);
        let failed = |error| match error {
            // What is copied is damaged, not the copy.
            EngineError::Damaged { .. } | EngineError::BadPage { .. } => snapshot.database().error(error),
            _ => StoreError::from_engine(&new.name, error),
        };
        if !copied.map_err(failed)? {
            return Err(StoreError::Stopped);
        }
        let (part, held) = new.finish()?;
        let is_replaced = overwrites && is_there();
        let linked = if is_replaced { Ok(()) } else { std::fs::hard_link(&part, target) };
        let placed = match linked {
            // The old file stays locked until it is replaced, so that no process opens it.
            Ok(()) if is_replaced => at_rest(target).and_then(|_old| rename(&part, target)),
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Err(exists()),
            // File systems without links: there, nothing prevents two backups that begin at once
            // from overwriting each other.
            Err(_) => rename(&part, target),
            Ok(()) => sync_folder(target),
        };
        let _ = std::fs::remove_file(&part);
        placed?;
        marked(&held, target)
    }

    /// Rewrite the file without free room. The caller must be alone: no snapshot, transaction or
    /// other handle of the file may be open in any process.
    ///
    /// # Errors
    /// `Busy` names the processes that have it open; `ReadOnly`, `DiskFull`. Then the database is
    /// as before.
    pub fn compact(&self, timeout: Duration) -> Result<()> {
        self.compact_while(timeout, &mut || true)
    }

    /// As `compact`; `go_on` is called for each entry until the new file is complete.
    ///
    /// # Errors
    /// As `compact`; `Stopped` if `go_on` returned false: the database is as before.
    pub fn compact_while(&self, timeout: Duration, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        let link = self.link()?;
        let database = self.borrow(link)?;
        let (database, compacted) = self.compact_borrowed(database, timeout, go_on);
        let mut custody = link.database.lock();
        // If the handle was closed meanwhile, the database is closed here.
        if let Custody::Lent(_) = &*custody {
            *custody = database.map_or(Custody::Closed, |database| Custody::Own(Handle::new(database)));
        }
        compacted
    }

    /// Make the file shorter while this and other processes use it: pages at its end are moved to
    /// free pages, in small commits that change no row. `go_on` is called with the pages of the
    /// file and those that it should have. Pages that a snapshot sees stay, and so may the file's
    /// size.
    ///
    /// # Errors
    /// `ReadOnly`; `Busy` if others have the file locked for longer than `timeout`; `DiskFull`;
    /// `Stopped` if `go_on` returned false. No row is lost, and what was moved stays moved.
    pub fn compact_online(&self, timeout: Duration, go_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let database = self.database()?;
        let path = database.path.clone();
        if self.options().mode == Mode::Read || database.read_only.is_some() {
            let why = "only a database opened for writing can be compacted";
            return Err(StoreError::ReadOnly { path, why });
        }
        let mut is_stopped = false;
        let Some(care) = database.engine.file_care() else { return Ok(()) };
        let done = care.compact_online(timeout, &mut |pages, wanted| {
            is_stopped |= !go_on(pages, wanted);
            !is_stopped
        });
        done.map_err(|error| database.error(error))?;
        if is_stopped { Err(StoreError::Stopped) } else { Ok(()) }
    }

    /// Take the database out of the handle, if it is not in use in this process.
    fn borrow(&self, link: &Link) -> Result<Arc<Database>> {
        let mut custody = link.database.lock();
        let database = custody.database()?;
        let path = database.path.clone();
        if self.options().mode == Mode::Read || database.read_only.is_some() {
            let why = "only a database opened for writing can be compacted";
            return Err(StoreError::ReadOnly { path, why });
        }
        if database.opening.is_some() && Arc::strong_count(database) > 1 {
            let wanted = Wanted::AloneHere;
            return Err(StoreError::Busy { path, wanted, holders: Vec::new(), waited: None });
        }
        let database = Arc::clone(database);
        *custody = Custody::Lent(path);
        Ok(database)
    }

    /// Compact a database that was taken from its handle. Returns it, or the database that was
    /// opened anew.
    fn compact_borrowed(
        &self,
        database: Arc<Database>,
        timeout: Duration,
        go_on: &mut dyn FnMut() -> bool,
    ) -> (Option<Arc<Database>>, Result<()>) {
        let (Some(opening), Some(care)) = (&database.opening, database.engine.file_care()) else {
            return (Some(database), Ok(()));
        };
        // Asking for an exclusive lock releases our shared lock for a moment.
        care.quiet();
        let new_path = beside(&opening.path, "-compact");
        let copied = opening.be_alone(timeout, go_on).and_then(|()| {
            let mut is_stopped = false;
            let checkpointed = care.checkpoint_while(timeout, timeout, &mut || {
                is_stopped |= !go_on();
                !is_stopped
            });
            checkpointed.map_err(|error| database.checkpoint_error(error))?;
            if is_stopped {
                Err(StoreError::Stopped)
            } else {
                copy_beside(&database, opening, &new_path, go_on)
            }
        });
        if copied.is_err() {
            match opening.share() {
                Ok(true) => return (Some(database), copied),
                Ok(false) => {}
                Err(error) => return (Some(database), Err(error)),
            }
        }
        // From here on no other process can have the file: openers wait for our lock. Or another
        // process was alone with it while our lock was given up, and what we have open is not the
        // database any more.
        let replaced = copied.and_then(|()| replace(database, &new_path));
        if replaced.is_err() {
            remove_copy(&new_path);
        }
        // Open it again, whether it is the new file or still the old one.
        let options = self.options();
        let mode = if options.mode == Mode::New { Mode::Write } else { options.mode };
        let file = self.path().unwrap_or(Path::new(""));
        match (self.opener)(file, &OpenOptions { mode, ..options.clone() }) {
            Ok((database, _)) => (Some(database), replaced),
            Err(error) => (None, Err(error)),
        }
    }
}

/// Remove the leftover of a process that died in `compact`. The caller is alone with the database.
pub(crate) fn remove_leftover(path: &Path) {
    remove_copy(&beside(path, "-compact"));
}

/// Remove an unfinished copy of `compact`. Such a copy is private until it is complete, so an empty
/// file with other permissions is not one.
fn remove_copy(path: &Path) {
    copy::remove_remains(path, |found| rights::mode_like(found) == rights::PRIVATE);
}

fn copy_beside(
    database: &Arc<Database>,
    opening: &Opening,
    new_path: &Path,
    go_on: &mut dyn FnMut() -> bool,
) -> Result<()> {
    remove_leftover(&opening.path);
    if new_path.symlink_metadata().is_ok() {
        return Err(StoreError::TargetExists { path: new_path.display().to_string() });
    }
    let mut new = NewFile::create_for(new_path, &opening.path, rights::PRIVATE)?;
    new.has_history = true;
    let source = database.engine.begin_read().map_err(|error| database.error(error))?;
    if !new.take_all(&*source, go_on).map_err(|error| database.error(error))? {
        return Err(StoreError::Stopped);
    }
    let failed = |source| StoreError::from_io("copy the permissions of", database.path.clone(), source);
    let metadata = opening.file()?.metadata().map_err(failed)?;
    let new_file = new.file().map_err(|error| database.error(error))?;
    rights::liken(new_file, &metadata).map_err(failed)?;
    new.finish().map(drop)
}

/// Replace the old file by the new one; this process is alone with the old one.
fn replace(database: Arc<Database>, new_path: &Path) -> Result<()> {
    let path = database.path.clone();
    let Ok(mut database) = Arc::try_unwrap(database) else {
        return Err(StoreError::Closed { what: "database" });
    };
    // Close the engine first: its lock file has the old file's version, which must not be used with
    // the new file. The same holds for the log, which is empty.
    database.engine = Box::new(MemoryEngine::new());
    if let Some(opening) = &database.opening {
        // The log is in the file, and is about to be missing for a moment.
        let unmarked =
            opening.file().map(|file| stamp::set_log_token(file, 0).and_then(|()| file.sync_data()))?;
        unmarked.map_err(|source| StoreError::from_io("write", path.clone(), source))?;
        let _ = std::fs::remove_file(log_file::path_of(&opening.path));
        let _ = std::fs::remove_file(opening.lock_path());
        reached(Step::CompactReplaces);
        rename(new_path, &opening.path)?;
        reached(Step::CompactReplaced);
    }
    drop(database);
    sync_folder(Path::new(&path))
}

/// Mark a copy that has its name now, so that no later backup takes it for a leftover.
fn marked(held: &OwnFile, target: &Path) -> Result<()> {
    let marked = held.file().map_or(Ok(()), stamp::end_copy);
    marked.map_err(|source| StoreError::from_io("write", target.display().to_string(), source))
}

/// The database at a path, which no process has open: none opens it before the file is dropped.
fn at_rest(path: &Path) -> Result<File> {
    let name = path.display().to_string();
    let file =
        side_file::peek(path, false).map_err(|source| StoreError::from_io("open", name.clone(), source))?;
    stamp::identify(&file, &name, false)?;
    if log_file::path_of(path).exists() || file.try_lock().is_err() {
        return Err(StoreError::TargetInUse { path: name });
    }
    Ok(file)
}

/// Remove leftovers of earlier backups to the same target that were killed.
fn remove_parts_of(target: &Path) {
    let Some(name) = target.file_name() else { return };
    let Ok(entries) = std::fs::read_dir(folder_of(target)) else { return };
    for entry in entries.flatten() {
        let found = entry.file_name();
        let rest = found.as_encoded_bytes().strip_prefix(name.as_encoded_bytes());
        let number = rest.and_then(|rest| rest.strip_prefix(PART.as_bytes()));
        if number.is_some_and(|number| !number.is_empty() && number.iter().all(u8::is_ascii_digit)) {
            copy::remove_remains(&entry.path(), |_| true);
        }
    }
}

fn rename(source: &Path, target: &Path) -> Result<()> {
    let failed = |error| StoreError::from_io("replace", target.display().to_string(), error);
    std::fs::rename(source, target).map_err(failed)?;
    sync_folder(target)
}
