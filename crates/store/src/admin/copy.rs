//! Copies a database into another file, entry by entry.
//!
//! Entries are copied in key order, so the new file has full pages and no free ones, however the
//! old file looked. They are committed in parts of some megabytes, to use little memory. The engine
//! could copy its pages faster, but also half-empty ones, and only its own. Backups, `compact` and
//! verified copies of untrusted files all work this way.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::admin::check::{Audit, check_other_meta};
use crate::catalog::{self, Applied, Counters, Entry};
use crate::db::stamp::{self, Kind};
use crate::engine::lmdb::format::PageFile;
use crate::engine::lmdb::page_walk::walk;
use crate::engine::lmdb::{LmdbEngine, LmdbOptions};
use crate::engine::row_count::with_more_rows;
use crate::engine::{Direction, Engine, EngineError, ReadTxn, Start, Tree, WriteTxn};
use crate::error::{Result, StoreError};
use crate::sys::file_id::same_file;
use crate::sys::own_file::OwnFile;
use crate::sys::rights;
use crate::sys::side_file;

/// Bytes of entries that are committed together.
const PART_SIZE: usize = 32 << 20;

/// A new file, which is removed unless it is finished. It is locked while it is being made, so that
/// leftovers of a dead process can be distinguished from it.
pub(crate) struct NewFile {
    path: PathBuf,
    held: Option<OwnFile>,
    /// Its name in messages.
    pub(crate) name: String,
    engine: Option<LmdbEngine>,
    part: Option<Box<dyn WriteTxn>>,
    part_size: usize,
    counters: Counters,
    /// The version that it is a copy of. The counters may be older: a commit of one row does not
    /// write them.
    version: u64,
    /// Whether to copy the history of changes: yes if the copy replaces the database.
    pub(crate) has_history: bool,
}

impl NewFile {
    /// Create a file with these permissions at an unused path. It will be renamed to `target` when
    /// it is complete; messages use that name.
    pub(crate) fn create_for(path: &Path, target: &Path, mode: u32) -> Result<Self> {
        let name = target.display().to_string();
        let failed = |source| StoreError::from_io("create", name.clone(), source);
        let held = OwnFile::new(create_locked(path, mode).map_err(failed)?);
        // From here on errors remove the file.
        let mut new = Self {
            path: path.to_owned(),
            held: Some(held),
            name: name.clone(),
            engine: None,
            part: None,
            part_size: 0,
            counters: Counters::default(),
            version: 0,
            has_history: false,
        };
        new.begin().map_err(|error| StoreError::from_engine(&name, error))?;
        Ok(new)
    }

    fn begin(&mut self) -> Result<(), EngineError> {
        stamp::begin(self.file()?, Kind::Unfinished).map_err(EngineError::of_system)?;
        let mut entries =
            |version, _| vec![Applied { version, ..Applied::default() }.entry(), Counters::default().entry()];
        // No other process opens it before it is complete.
        let options = LmdbOptions { is_lockless: true, ..LmdbOptions::default() };
        self.engine = Some(LmdbEngine::create(&self.path, options, &mut entries)?);
        Ok(())
    }

    /// The file, which is locked.
    pub(crate) fn file(&self) -> Result<&File, EngineError> {
        self.held.as_ref().and_then(OwnFile::file).ok_or(EngineError::Forked)
    }

    /// Copy everything in a version. `go_on` is called for each entry; false if it returned false.
    pub(crate) fn take_all(
        &mut self,
        source: &dyn ReadTxn,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, EngineError> {
        self.version = source.version();
        for tree in Tree::ALL {
            let mut cursor = source.cursor(tree)?;
            cursor.start(Start::Edge, Direction::Forward)?;
            while let Some((key, value)) = cursor.step()? {
                if !go_on() {
                    return Ok(false);
                }
                match catalog::parse_entry(key, value) {
                    // Rows may have been counted since the entry was written.
                    Some(Entry::Table(table, _)) if tree == Tree::Meta => {
                        let more = source.rows_beyond(table);
                        let value = with_more_rows(table, value, more);
                        self.take(tree, key, &value.unwrap_or_default())?;
                    }
                    _ => self.take(tree, key, value)?,
                }
            }
        }
        Ok(true)
    }

    /// Copy an entry. Trees have to come one after the other, and their keys in order.
    pub(crate) fn take(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        match catalog::parse_entry(key, value) {
            Some(Entry::Counters(counters)) if tree == Tree::Meta => {
                self.counters = counters;
                self.version = self.version.max(counters.version);
                return Ok(());
            }
            // The copy has no log and begins at a new position, but continues the version.
            Some(Entry::Applied(applied)) if tree == Tree::Meta => {
                self.version = self.version.max(applied.sequence);
                return Ok(());
            }
            Some(Entry::History) if tree == Tree::Meta && !self.has_history => return Ok(()),
            _ => {}
        }
        if self.part_size > PART_SIZE {
            self.commit_part()?;
        }
        self.part_size += key.len() + value.len();
        let is_above = self.part()?.append(tree, key, &[value])?;
        if is_above { Ok(()) } else { Err(EngineError::Misuse("the entries to copy are out of order")) }
    }

    fn part(&mut self) -> Result<&mut Box<dyn WriteTxn>, EngineError> {
        if self.part.is_none() {
            let engine = self.engine.as_ref().ok_or(EngineError::Misuse("the file is finished"))?;
            self.part = Some(engine.begin_write()?);
        }
        self.part.as_mut().ok_or(EngineError::Misuse("the file is finished"))
    }

    /// Commit the entries of this part, with the counters and, as in every commit of a tree, its
    /// version.
    fn commit_part(&mut self) -> Result<(), EngineError> {
        self.part_size = 0;
        let (counters, sequence) = (self.counters, self.version);
        let part = self.part()?;
        let applied = Applied { position: 0, sequence, version: part.version() };
        for (key, value) in [counters.entry(), applied.entry()] {
            part.put(Tree::Meta, &key, &[&value])?;
        }
        self.part.take().map_or(Ok(()), WriteTxn::commit)
    }

    /// Commit the last part and sync the file. Returns its path, and the locked file: other
    /// processes keep off it until that is dropped.
    pub(crate) fn finish(mut self) -> Result<(PathBuf, OwnFile)> {
        let name = self.name.clone();
        self.commit_part().map_err(|error| StoreError::from_engine(&name, error))?;
        self.engine = None;
        let held = self.held.take().ok_or(StoreError::Closed { what: "copy" })?;
        let file = held.file().ok_or(StoreError::Forked { what: "copy" })?;
        let synced = stamp::set_kind(file, Kind::Unnamed).and_then(|()| file.sync_all());
        synced.map_err(|source| StoreError::from_io("sync", name, source))?;
        Ok((std::mem::take(&mut self.path), held))
    }

    /// Commit the last part, keep the engine open, and remove the file's name: the file disappears
    /// with the engine.
    pub(crate) fn finish_nameless(mut self) -> Result<LmdbEngine> {
        let name = self.name.clone();
        self.commit_part().map_err(|error| StoreError::from_engine(&name, error))?;
        self.engine.take().ok_or(StoreError::Closed { what: "copy" })
    }
}

/// Create a file and lock it, before another process takes it for a leftover.
fn create_locked(path: &Path, mode: u32) -> io::Result<File> {
    loop {
        let file = File::options().read(true).write(true).create_new(true).mode(mode).open(path)?;
        // Where files cannot be locked, no process removes leftovers.
        if file.lock().is_err() || same_file(path, &file).is_some() {
            return Ok(file);
        }
    }
}

/// Remove the file at a path if it is an unfinished copy, or one that has not got its final name,
/// and no process is making it.
///
/// A process that dies before it has marked its copy leaves an empty file, which is also removed if
/// `is_ours` is true for it. A process that is about to make a database of an empty file holds a
/// lock on it, or finds after locking it that the file is gone.
pub(crate) fn remove_remains(path: &Path, is_ours: impl Fn(&Metadata) -> bool) {
    let Ok(file) = side_file::peek(path, false) else { return };
    let is_left = || {
        let is_empty = file.metadata().is_ok_and(|found| found.len() == 0 && is_ours(&found));
        is_empty || stamp::is_copy(&file)
    };
    if is_left() && file.try_lock().is_ok() && is_left() && same_file(path, &file).is_some() {
        let _ = std::fs::remove_file(path);
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if self.path.as_os_str().is_empty() {
            return;
        }
        self.part = None;
        self.engine = None;
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Read an untrusted file without the engine, and copy its entries into a file of our own if all of
/// it is sound.
pub(crate) fn copy_stranger(file: &File, name: &str) -> Result<LmdbEngine> {
    let failed = |source| StoreError::from_io("read", name.to_owned(), source);
    let corrupt = |place: String, what: String| StoreError::Corrupt {
        path: name.to_owned(),
        place,
        what,
        is_open: false,
    };
    let metas = PageFile::metas(file).map_err(failed)?;
    let meta = metas.iter().flatten().max_by_key(|meta| meta.txn);
    let meta = meta.ok_or_else(|| corrupt("its meta pages".to_owned(), "neither is one".to_owned()))?;
    let pages = PageFile::new(file, meta.page_size, file.metadata().map_err(failed)?.len());
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    let path = std::env::temp_dir().join(format!("pellucid-untrusted-{}-{time}", std::process::id()));
    let mut new = NewFile::create_for(&path, &path, rights::PRIVATE)?;
    let mut take = |tree: Tree, key: &[u8], value: &[u8]| new.take(tree, key, value);
    let mut audit = Audit::of_stranger(meta.txn, &mut take);
    check_other_meta(&pages, &metas, meta, &mut audit);
    walk(&pages, meta, &mut audit);
    match audit.finish().into_iter().next() {
        Some(finding) => Err(corrupt(finding.place, finding.what)),
        None => new.finish_nameless(),
    }
}
