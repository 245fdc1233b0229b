//! How does a database get into another file?
//!
//! Entry by entry in key order, so that the new file has full pages and no free ones, whatever the old one looked like; in
//! parts of some megabytes, so that it takes little memory. The engine could copy its pages faster, but half-empty ones
//! too, and only its own. Backups, `compact` and verified copies of strangers' files are all this.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use crate::catalog::{self, Applied, Counters, Entry};
use crate::engine::lmdb::{LmdbEngine, LmdbOptions};
use crate::engine::{Direction, Engine, EngineError, ReadTxn, Start, Tree, WriteTxn};
use crate::error::StoreError;
use crate::file::opening::same_file;
use crate::file::own_file::OwnFile;
use crate::file::rights;
use crate::file::side_file;
use crate::file::stamp::{self, Kind};
use crate::verify::check::Audit;
use crate::verify::page_walk::walk;
use crate::verify::pages::PageFile;

/// Bytes of entries that are committed together.
const PART_SIZE: usize = 32 << 20;

/// A file in the making; removed again unless it is finished. It is locked as long as somebody makes it, so that what a dead one left
/// can be told from it.
pub(crate) struct NewFile {
    path: PathBuf,
    held: Option<OwnFile>,
    /// What messages call it.
    pub(crate) name: String,
    engine: Option<LmdbEngine>,
    part: Option<Box<dyn WriteTxn>>,
    part_size: usize,
    counters: Counters,
    /// The version that it is a copy of: a commit of one row writes no counters.
    version: u64,
    /// Whether the changes that are kept go with it: if it takes the place of what they lead to.
    pub(crate) has_history: bool,
}

impl NewFile {
    /// Begin a file, with these rights, at a path where none is, which will have another name when it is complete: messages name that one.
    pub(crate) fn create_for(path: &Path, target: &Path, mode: u32) -> Result<Self, StoreError> {
        let name = target.display().to_string();
        let failed = |source| StoreError::from_io("create", name.clone(), source);
        let held = OwnFile::new(create_locked(path, mode).map_err(failed)?);
        // From here on what goes wrong removes the file.
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

    /// Take over everything that a version holds, unless `go_on`, which is asked with each entry, says no: then the answer is false.
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
                        let value = catalog::with_more_rows(table, value, more);
                        self.take(tree, key, &value.unwrap_or_default())?;
                    }
                    _ => self.take(tree, key, value)?,
                }
            }
        }
        Ok(true)
    }

    /// Take over an entry; trees come one after the other, and their keys in order.
    pub(crate) fn take(&mut self, tree: Tree, key: &[u8], value: &[u8]) -> Result<(), EngineError> {
        match catalog::parse_entry(key, value) {
            Some(Entry::Counters(counters)) if tree == Tree::Meta => {
                self.counters = counters;
                self.version = self.version.max(counters.version);
                return Ok(());
            }
            // The copy has no log, and a place of its own in that to come; but its version goes on.
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

    /// Commit what was taken over so far, with the counters, and with its version as every commit of a tree.
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

    /// Write the end; it is on the disk then, and others keep off it as long as the second of these is there.
    pub(crate) fn finish(mut self) -> Result<(PathBuf, OwnFile), StoreError> {
        let name = self.name.clone();
        self.commit_part().map_err(|error| StoreError::from_engine(&name, error))?;
        self.engine = None;
        let held = self.held.take().ok_or(StoreError::Closed { what: "copy" })?;
        let file = held.file().ok_or(StoreError::Forked { what: "copy" })?;
        let synced = stamp::set_kind(file, Kind::Unnamed).and_then(|()| file.sync_all());
        synced.map_err(|source| StoreError::from_io("sync", name, source))?;
        Ok((std::mem::take(&mut self.path), held))
    }

    /// Write the end, keep the engine open, and remove the file's name: it goes when the engine does.
    pub(crate) fn finish_nameless(mut self) -> Result<LmdbEngine, StoreError> {
        let name = self.name.clone();
        self.commit_part().map_err(|error| StoreError::from_engine(&name, error))?;
        self.engine.take().ok_or(StoreError::Closed { what: "copy" })
    }
}

/// Create a file and lock it, before anybody takes it for what a dead one has left.
fn create_locked(path: &Path, mode: u32) -> io::Result<File> {
    loop {
        let file = File::options().read(true).write(true).create_new(true).mode(mode).open(path)?;
        // Where files cannot be locked, nobody takes them for anything.
        if file.lock().is_err() || same_file(path, &file).is_some() {
            return Ok(file);
        }
    }
}

/// Remove what lies at a path if it is an unfinished copy, or one that has not got its name, and no process is making it.
///
/// A process that dies before it has marked its copy leaves an empty file, which goes too if `is_ours` says so of it. A process
/// that is about to make a database of an empty file holds a lock on it, or finds after locking it that the file is gone.
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

/// Read a stranger's file without letting the engine near it, and copy what is sound into a file of our own.
pub(crate) fn copy_stranger(file: &File, name: &str) -> Result<LmdbEngine, StoreError> {
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
    walk(&pages, meta, &mut audit);
    match audit.finish().into_iter().next() {
        Some(finding) => Err(corrupt(finding.place, finding.what)),
        None => new.finish_nameless(),
    }
}
