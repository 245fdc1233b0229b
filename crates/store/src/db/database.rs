//! The state that all handles of one open database share.
//!
//! It has the engine, the dictionary of shapes, the queue of writers, and the newest snapshot.
//! Handles in one process share it under any path (`db/registry.rs`). It closes the file when the
//! last handle, snapshot and transaction are gone.

use std::fmt::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use pellucid_record::{Admission, Dictionary};

use crate::catalog::cell::{CHECK_SIZE, Cell, FoundRow};
use crate::catalog::index_entries::all_indexes;
use crate::catalog::{self, CatalogError};
use crate::db::floors::Floors;
use crate::db::log_file;
use crate::db::opening::{Leaving, Opening};
use crate::db::stamp;
use crate::db::writer_queue::WriterQueue;
use crate::engine::{Contents, Engine, EngineError, FileCare, ReadTxn};
use crate::error::StoreError;
use crate::index::{Builds, Deriver, IndexSets};
use crate::pack::opening::{Dictionaries, Source};
use crate::row_key::{Prefix, TableId, is_long, split};
use crate::sys::latch::Latch;
use crate::sys::os;
use crate::warning::Warning;

/// An open database. Fields are dropped in this order: the engine closes its file before the locks
/// are released.
pub(crate) struct Database {
    pub(crate) engine: Box<dyn Engine>,
    /// The path, for messages.
    pub(crate) path: String,
    pub(crate) dictionary: Arc<Dictionary>,
    /// The version of the catalog up to which the dictionary is complete.
    dictionary_version: AtomicU64,
    /// The state that the last writer began with, reusable while the catalog does not change.
    begun: Latch<Option<Begun>>,
    /// Held while shapes are added to the dictionary.
    loading: Mutex<()>,
    /// The newest snapshot, while it is in use.
    newest: Mutex<Weak<OpenVersion>>,
    pub(crate) writer_queue: Arc<WriterQueue>,
    /// Blob ids below this were used in this process, perhaps by an aborted transaction.
    pub(crate) blob_floor: AtomicU64,
    pub(crate) admission: Mutex<Admission>,
    /// Derives the entries of indexes. Set by the first opener that has one.
    pub(crate) deriver: OnceLock<Arc<dyn Deriver>>,
    /// The memory limit for the entries of an index that is being built; 0 is the default.
    pub(crate) index_memory: AtomicUsize,
    /// Prepared indexes that no transaction uses.
    pub(crate) index_sets: Mutex<IndexSets>,
    /// Indexes that this process is building.
    pub(crate) builds: Builds,
    /// Lower bounds of the next ints of tables.
    pub(crate) int_floors: Floors,
    /// Dictionaries of compressed tables.
    pub(crate) dictionaries: Dictionaries,
    /// How many index entries were written or deleted.
    pub(crate) entry_writes: AtomicU64,
    pub(crate) key_size_max: usize,
    /// Whether the file has the log's token: a log may have commits that the file lacks.
    is_dirty: AtomicBool,
    pub(crate) generation: u64,
    pub(crate) warnings: Vec<Warning>,
    /// When an old snapshot is looked for again.
    pub(crate) looks_at: Mutex<Option<Instant>>,
    /// Why this process may not write through this environment, if so.
    pub(crate) read_only: Option<&'static str>,
    /// The file's lock. `None` in memory.
    pub(crate) opening: Option<Opening>,
    /// Whether `leave` has run.
    has_left: bool,
    /// How many handles of this process have it open.
    pub(crate) handles: AtomicUsize,
}

/// A version that is being read. The transaction is dropped before the database it belongs to.
pub(crate) struct OpenVersion {
    pub(crate) txn: Box<dyn ReadTxn>,
    pub(crate) version: u64,
    pub(crate) database: Arc<Database>,
}

/// The state that a write transaction begins with.
#[derive(Clone, Copy)]
pub(crate) struct Begun {
    /// The version of the catalog that it was read from, if known.
    pub(crate) version: Option<u64>,
    pub(crate) counters: catalog::Counters,
    /// A table without indexes.
    pub(crate) plain: Option<TableId>,
}

impl Database {
    /// The folder for the temporary files of sorts: that of the database, where its rows will need
    /// room anyway.
    pub(crate) fn folder_for_sorts(&self) -> std::path::PathBuf {
        let folder = self.opening.as_ref().and_then(|_| std::path::Path::new(&self.path).parent());
        folder.map_or_else(std::env::temp_dir, std::path::Path::to_owned)
    }

    /// Open the database in an engine.
    pub(crate) fn new(
        engine: Box<dyn Engine>,
        path: String,
        opening: Option<Opening>,
        read_only: Option<&'static str>,
        warnings: Vec<Warning>,
    ) -> Result<Self, StoreError> {
        let key_size_max = engine.key_size_max();
        let mut database = Self {
            engine,
            path,
            dictionary: Arc::default(),
            dictionary_version: AtomicU64::new(0),
            begun: Latch::new(None),
            loading: Mutex::new(()),
            newest: Mutex::new(Weak::new()),
            writer_queue: Arc::default(),
            blob_floor: AtomicU64::new(0),
            admission: Mutex::default(),
            deriver: OnceLock::new(),
            index_memory: AtomicUsize::new(0),
            index_sets: Mutex::default(),
            builds: Builds::default(),
            int_floors: Floors::default(),
            dictionaries: Dictionaries::default(),
            entry_writes: AtomicU64::new(0),
            key_size_max,
            is_dirty: AtomicBool::new(false),
            generation: os::generation(),
            warnings,
            looks_at: Mutex::new(None),
            read_only,
            opening,
            has_left: false,
            handles: AtomicUsize::new(0),
        };
        let loaded = database.load();
        // This process does not know which commits the file has, so it leaves the log as it is.
        database.has_left = loaded.is_err();
        loaded.map(|()| database)
    }

    /// Read the catalog for the first time.
    fn load(&mut self) -> Result<(), StoreError> {
        let txn = self.engine.begin_read().map_err(|error| self.error(error))?;
        let header = catalog::header(&*txn).map_err(|error| self.catalog_error(error))?;
        let header = header.ok_or_else(|| self.corrupt("its catalog", "the header is missing"))?;
        if header.oldest_reader > catalog::FORMAT_VERSION {
            let (found, newest) = (header.oldest_reader, catalog::FORMAT_VERSION);
            return Err(StoreError::NewerFormat { path: self.path.clone(), found, newest });
        }
        self.key_size_max = self.key_size_max.min(header.key_size_max as usize);
        self.catch_up(&*txn, txn.catalog_version())?;
        self.count_admitted(&*txn)
    }

    /// [O3] Mark the file before the first commit that is in the log alone, so that a copy of the
    /// file differs visibly from a database at rest.
    #[inline]
    pub(crate) fn mark_dirty(&self) -> Result<(), StoreError> {
        if self.is_dirty.load(Ordering::Relaxed) { Ok(()) } else { self.mark_dirty_now() }
    }

    #[cold]
    fn mark_dirty_now(&self) -> Result<(), StoreError> {
        let (Some(care), Some(opening)) = (self.engine.file_care(), &self.opening) else { return Ok(()) };
        let token = care.log_token();
        if token != 0 {
            let done = stamp::set_log_token(opening.file()?, token);
            done.map_err(|source| StoreError::from_io("write", self.path.clone(), source))?;
        }
        self.is_dirty.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Write everything into the tree and remove the log token, since the log is about to be
    /// removed. The caller is alone. False when that failed; then everything is as before.
    pub(crate) fn empty_log(&self) -> Result<bool, EngineError> {
        let Some(care) = self.engine.file_care() else { return Ok(true) };
        let file = self.opening.as_ref().and_then(|opening| opening.file().ok());
        let token = care.log_token();
        // A copy without commits of its own keeps the token of the log that it lacks.
        let marked =
            file.filter(|file| token != 0 && stamp::log_token_of(file).is_ok_and(|found| found == token));
        let is_pending = care.pending() > 0;
        if let Some(file) = marked {
            // Before the checkpoint, whose syncs then cover this too: the token must not outlast
            // the log.
            stamp::set_log_token(file, 0).map_err(EngineError::Io)?;
        }
        let mut checkpointed = care.checkpoint(Duration::ZERO, Duration::ZERO);
        if matches!(checkpointed, Ok(true)) {
            checkpointed = care.free_reserve().map(|()| true);
        }
        match (&checkpointed, marked) {
            (Ok(true), Some(file)) if !is_pending => file.sync_data().map_err(EngineError::Io)?,
            (Ok(true), _) | (_, None) => {}
            (_, Some(file)) => stamp::set_log_token(file, token).map_err(EngineError::Io)?,
        }
        checkpointed
    }

    /// The same for a file that was renamed while it was open: its log stays under the old name,
    /// and belongs to the file until everything is in the tree.
    fn checkpoint_moved(&self, opening: &Opening) -> bool {
        let Some(care) = self.engine.file_care() else { return true };
        let token = care.log_token();
        let checkpointed = care.checkpoint(Duration::ZERO, Duration::ZERO).is_ok_and(|done| done);
        let unmarked = || {
            let file = opening.file().ok()?;
            if token != 0 && stamp::log_token_of(file).ok()? == token {
                stamp::set_log_token(file, 0).and_then(|()| file.sync_data()).ok()?;
            }
            Some(())
        };
        checkpointed && unmarked().is_some()
    }

    /// Tell the rule of shape admission how many shapes each table has.
    fn count_admitted(&self, source: &dyn Contents) -> Result<(), StoreError> {
        let failed = |error| self.catalog_error(error);
        let mut admission = self.admission.lock().unwrap_or_else(PoisonError::into_inner);
        for (_, table) in catalog::tables(source).map_err(failed)? {
            if let Some(state) = catalog::table_state(source, table).map_err(failed)? {
                admission.set_admitted(table.number(), state.shapes_admitted);
            }
        }
        Ok(())
    }

    pub(crate) fn error(&self, error: EngineError) -> StoreError {
        StoreError::from_engine(&self.path, error)
    }

    /// The error for commits of the log that could not be written into the file.
    pub(crate) fn checkpoint_error(&self, error: EngineError) -> StoreError {
        match &self.opening {
            Some(opening) => log_file::not_written(&opening.path, error),
            None => self.error(error),
        }
    }

    /// Make everything committed survive a power cut and the end of the process. An error if the
    /// file was deleted, since then nothing survives.
    pub(crate) fn sync(&self) -> Result<(), StoreError> {
        self.engine.sync().map_err(|error| self.error(error))?;
        if self.opening.as_ref().is_some_and(Opening::is_deleted) {
            return Err(StoreError::FileDeleted { path: self.path.clone() });
        }
        Ok(())
    }

    pub(crate) fn catalog_error(&self, error: CatalogError) -> StoreError {
        error.at(&self.path)
    }

    pub(crate) fn corrupt(&self, place: &str, what: &str) -> StoreError {
        let (place, what) = (place.to_owned(), what.to_owned());
        StoreError::Corrupt { path: self.path.clone(), place, what, is_open: true }
    }

    #[inline]
    pub(crate) fn check_generation(&self, what: &'static str) -> Result<(), StoreError> {
        if self.generation == os::generation() { Ok(()) } else { Err(StoreError::Forked { what }) }
    }

    /// The number of the newest version.
    pub(crate) fn version(&self) -> Result<u64, StoreError> {
        self.engine.catch_up().map_err(|error| self.error(error))?;
        Ok(self.engine.version())
    }

    /// The newest version, shared with other users of it. It is begun only if `check` allows it.
    pub(crate) fn newest_if(
        self: &Arc<Self>,
        check: impl FnOnce(&dyn Engine) -> Result<(), EngineError>,
    ) -> Result<Arc<OpenVersion>, StoreError> {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = newest.upgrade()
            && open.version == self.version()?
        {
            return Ok(open);
        }
        let begun = check(&*self.engine).and_then(|()| self.engine.begin_read());
        let txn = begun.map_err(|error| self.error(error))?;
        let version = txn.version();
        let open = Arc::new(OpenVersion { txn, version, database: Arc::clone(self) });
        *newest = Arc::downgrade(&open);
        drop(newest);
        let catalog = open.txn.catalog_version();
        if catalog > self.dictionary_version.load(Ordering::Acquire) {
            self.catch_up(&*open.txn, catalog)?;
        }
        Ok(open)
    }

    /// Share no version that was begun before.
    pub(crate) fn forget_newest(&self) {
        *self.newest.lock().unwrap_or_else(PoisonError::into_inner) = Weak::new();
    }

    /// Load the shapes that other processes have added up to a version.
    fn catch_up(&self, source: &dyn Contents, version: u64) -> Result<(), StoreError> {
        let _alone = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        let counters = catalog::counters(source).map_err(|error| self.catalog_error(error))?;
        catalog::load_shapes(source, &self.dictionary, counters.shape_count)
            .map_err(|error| self.catalog_error(error))?;
        self.dictionary_version.fetch_max(version, Ordering::AcqRel);
        Ok(())
    }

    /// Load the shapes that a new writer sees. `version` is its version of the catalog, if known.
    /// Returns the state that it begins with.
    pub(crate) fn catch_up_to_writer(
        &self,
        source: &dyn Contents,
        version: Option<u64>,
    ) -> Result<Begun, StoreError> {
        let mut last = self.begun.lock();
        if let Some(begun) = last.filter(|begun| begun.version.is_some() && begun.version == version) {
            return Ok(begun);
        }
        let counters = catalog::counters(source).map_err(|error| self.catalog_error(error))?;
        if counters.shape_count > self.dictionary.len() {
            self.catch_up(source, counters.version)?;
        }
        let begun = Begun { version, counters, plain: None };
        *last = Some(begun);
        Ok(begun)
    }

    /// Note that a table has no indexes in this version of the catalog.
    pub(crate) fn note_plain(&self, version: u64, table: TableId) {
        let mut last = self.begun.lock();
        if let Some(begun) = last.as_mut().filter(|begun| begun.version == Some(version)) {
            begun.plain = Some(table);
        }
    }

    /// Run a commit that adds these shapes, and add them to the dictionary if it succeeds. No other
    /// thread can add them first: a reader of the new version waits for the same lock.
    pub(crate) fn commit_with_shapes(
        &self,
        version: u64,
        start: u32,
        shapes: &[&pellucid_record::Shape],
        commit: impl FnOnce() -> Result<(), EngineError>,
    ) -> Result<(), StoreError> {
        let _alone = self.loading.lock().unwrap_or_else(PoisonError::into_inner);
        commit().map_err(|error| self.error(error))?;
        debug_assert_eq!(self.dictionary.len(), start, "the writer had caught up, and no other commits");
        for shape in shapes {
            self.dictionary.push((*shape).clone())?;
        }
        self.dictionary_version.fetch_max(version, Ordering::AcqRel);
        Ok(())
    }

    /// A row that was looked up, if it belongs to this key.
    #[inline]
    pub(crate) fn row<'a>(
        &self,
        source: Source<'_>,
        table: TableId,
        key: &[u8],
        row_key: &[u8],
        bytes: &'a [u8],
    ) -> Result<Option<FoundRow<'a>>, StoreError> {
        let (cell, opened) = match Cell::parse(bytes) {
            Some(cell) => (cell, None),
            None => self.opened(source, row_key, bytes)?,
        };
        Ok(self.is_of_key(&cell, table, key, row_key).then(|| FoundRow::new(&cell, opened)))
    }

    /// The cell of a packed row without its record, and the record.
    #[cold]
    fn opened<'a>(
        &self,
        source: Source<'_>,
        row_key: &[u8],
        bytes: &'a [u8],
    ) -> Result<(Cell<'a>, Option<Vec<u8>>), StoreError> {
        let mut record = Vec::new();
        let packed = self.open_packed(source, row_key, bytes, &mut record)?;
        Ok((packed.outside, Some(record)))
    }

    /// What a cell says beside its record, if it belongs to this key.
    pub(crate) fn outside<'a>(
        &self,
        table: TableId,
        key: &[u8],
        row_key: &[u8],
        bytes: &'a [u8],
    ) -> Result<Option<Cell<'a>>, StoreError> {
        let Some(cell) = Cell::outside(bytes) else { return Err(self.damaged_row(table, row_key)) };
        Ok(self.is_of_key(&cell, table, key, row_key).then_some(cell))
    }

    /// Whether a cell belongs to this key.
    #[inline]
    fn is_of_key(&self, cell: &Cell<'_>, table: TableId, key: &[u8], row_key: &[u8]) -> bool {
        if !is_long(row_key, self.key_size_max) {
            return true;
        }
        cell.whole_key.get(Prefix::of(table).size()..).unwrap_or_default() == key
    }

    /// The bytes of a blob without its check.
    pub(crate) fn blob_body<'a>(&self, id: u64, bytes: Option<&'a [u8]>) -> Result<&'a [u8], StoreError> {
        let bytes = bytes.ok_or(StoreError::NoSuchBlob { id })?;
        crate::catalog::blob::body(bytes)
            .ok_or_else(|| self.corrupt(&format!("large value {id}"), "it is shorter than its check"))
    }

    /// The error for a row whose cell cannot be parsed.
    #[cold]
    pub(crate) fn damaged_row(&self, table: TableId, row_key: &[u8]) -> StoreError {
        self.damaged_row_for(
            table,
            row_key,
            &format!("its cell cannot be read (a cell has at least {CHECK_SIZE} bytes)"),
        )
    }

    /// The error for a damaged row.
    #[cold]
    pub(crate) fn damaged_row_for(&self, table: TableId, row_key: &[u8], what: &str) -> StoreError {
        let key = split(row_key).map_or(row_key, |(_, key)| key);
        if key.is_empty() {
            return self.corrupt("a page of its rows", "the rows on it have no keys: it is overwritten");
        }
        let place = format!("row {} of {}", hex(key), self.called(table));
        self.corrupt(&place, what)
    }

    /// How a message names a table, or the entries of an index, of which only the id is known.
    #[cold]
    fn called(&self, table: TableId) -> String {
        let found = self.engine.begin_read().map_err(CatalogError::from).and_then(|read| {
            let tables = catalog::tables(&*read)?;
            let indexes = all_indexes(&*read)?;
            Ok((tables, indexes))
        });
        let Ok((tables, indexes)) = found else { return "a table whose name cannot be read".to_owned() };
        let name_of = |table| tables.iter().find_map(|(name, id)| (*id == table).then_some(name));
        let index = indexes.iter().find(|info| {
            info.id == table || info.building.as_ref().is_some_and(|building| building.notes == table)
        });
        match (index, name_of(index.map_or(table, |info| info.table))) {
            (Some(info), Some(name)) => format!("index '{}' of table '{name}'", info.name),
            (None, Some(name)) => format!("table '{name}'"),
            (_, None) => "a table that has been dropped".to_owned(),
        }
    }
}

impl Database {
    /// Leave the file as a database at rest, if no other process has it open. Returns a warning if
    /// that failed. Runs once; the caller drops the database next.
    pub(crate) fn leave(&mut self) -> Option<Warning> {
        let opening = self.opening.as_ref()?;
        if self.generation != os::generation() || std::mem::replace(&mut self.has_left, true) {
            return None;
        }
        let mut failed = None;
        // Asking whether we are the last gives up our shared lock if we are not, and without it
        // this process must not touch tree or log: another process may be alone by then.
        let care = self.engine.file_care();
        let reclaimer = care.and_then(FileCare::quiet);
        let has_committed = reclaimer.is_some();
        opening.reclaim_by(reclaimer);
        // The last process leaves a single file, if the tree can take everything. Otherwise the
        // next opener finds the log.
        let is_checkpointed = match opening.leaving() {
            Leaving::Last => {
                let is_checkpointed = self.read_only.is_none()
                    && self.empty_log().unwrap_or_else(|error| {
                        failed = Some(self.checkpoint_error(error));
                        false
                    });
                // The log still says how many commits a power cut took.
                let is_told = care.is_none_or(|care| care.lost(false) == 0);
                opening.keeps_log.store(!is_checkpointed || !is_told, Ordering::Relaxed);
                is_checkpointed
            }
            Leaving::LastOfMoved => self.read_only.is_none() && self.checkpoint_moved(opening),
            // None of the others could do it, and none that has no log would see the last commits.
            Leaving::NotLast if self.read_only.is_none() && opening.is_last_writer() => {
                let checkpointed = care.map(|care| care.checkpoint(Duration::ZERO, Duration::ZERO));
                checkpointed.unwrap_or(Ok(true)).unwrap_or_else(|error| {
                    failed = Some(self.checkpoint_error(error));
                    false
                })
            }
            Leaving::NotLast => false,
        };
        // The tree's commits are synced, so they need no sync in the log.
        if !is_checkpointed && let Some(Err(error)) = care.map(|care| care.leave(has_committed)) {
            let why = match error {
                EngineError::SyncFailed(source) => source.to_string(),
                error => error.to_string(),
            };
            return Some(Warning::Unsynced { path: self.path.clone(), why });
        }
        // If this process has committed nothing, it has lost nothing.
        if self.is_dirty.load(Ordering::Relaxed) && opening.is_deleted() {
            return Some(Warning::FileDeleted { path: self.path.clone() });
        }
        self.tell_of_log(failed.as_ref()?, false)
    }

    /// Write everything into the tree when the last handle is closed and the file is not yet:
    /// snapshots of it are still in use. So a copy of the file lacks nothing. Returns a warning if
    /// that failed.
    pub(crate) fn checkpoint_beside_readers(&self) -> Option<Warning> {
        let is_ours = self.generation == os::generation() && self.read_only.is_none();
        let has_committed = self.is_dirty.load(Ordering::Relaxed);
        if self.handles.load(Ordering::Acquire) > 0 || !is_ours || !has_committed {
            return None;
        }
        // If others are writing, they have it open, and so write it into the file later.
        let failed = self.engine.file_care()?.checkpoint(Duration::ZERO, Duration::ZERO).err()?;
        self.tell_of_log(&self.checkpoint_error(failed), true)
    }

    /// The warning for commits that stay in the log, if there are any.
    fn tell_of_log(&self, failed: &StoreError, is_held: bool) -> Option<Warning> {
        let log = log_file::path_of(&self.opening.as_ref()?.path);
        if self.engine.file_care().is_none_or(|care| care.pending() == 0) {
            return None;
        }
        let size = log.metadata().map_or(0, |metadata| metadata.len());
        let is_of_room = failed.is_of_room();
        let why = match failed {
            StoreError::NoRoomForLog { source, .. } | StoreError::DiskFull { source, .. } => {
                source.to_string()
            }
            error => error.to_string(),
        };
        Some(Warning::LogStays {
            path: self.path.clone(),
            log: log.display().to_string(),
            size,
            why,
            is_of_room,
            is_held,
        })
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.leave();
    }
}

/// The beginning of a key in hex, for messages: the meaning of key codes is not known here.
pub(crate) fn hex(key: &[u8]) -> String {
    const SIZE_MAX: usize = 32;
    let mut text = String::from("0x");
    for byte in key.iter().take(SIZE_MAX) {
        let _ = write!(text, "{byte:02x}");
    }
    if key.len() > SIZE_MAX {
        let _ = write!(text, "... ({} bytes)", key.len());
    }
    text
}
