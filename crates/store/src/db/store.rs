//! A handle of an open database: its options, its forked copies, closing.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pellucid_record::{Dictionary, ShapeDecision};

use crate::db::database::Database;
use crate::engine::history::Keep;
use crate::error::{StoreError, Wanted};
use crate::index::Deriver;
use crate::row_key::TableId;
use crate::sys::latch::Latch;
use crate::sys::os;
use crate::wal::MEMORY_USUAL;
use crate::warning::Warning;

/// The allowed operations, and whether the database is created: dbm's letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// `r`: read an existing one.
    Read,
    /// `w`: read and write an existing one.
    Write,
    /// `c`: read and write; create it if it is missing.
    Create,
    /// `n`: read and write an empty database; an existing one is emptied, a foreign file refused.
    New,
}

/// When a commit returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When the commit survives the death of the process.
    #[default]
    Process,
    /// When the commit is on the disk.
    Full,
}

/// How to open a database.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The allowed operations.
    pub mode: Mode,
    /// When a commit returns.
    pub durability: Durability,
    /// How long to wait for other processes that open, close or compact it.
    pub timeout: Duration,
    /// Whether the file is untrusted, to be read through a verified copy; needs `Mode::Read`.
    pub is_untrusted: bool,
    /// How long changes are kept from now on, for all processes; `None` leaves the setting
    /// unchanged.
    pub keep: Option<Keep>,
    /// The longest key that the engine stores as it is, to test longer ones; 0 is the engine's own
    /// limit.
    pub key_size_max: usize,
    /// Bytes of each segment of the log, to test one that is soon full; 0 is the default. A
    /// multiple of 64 KiB, and the same for all openers of the database.
    pub log_segment_size: usize,
    /// Bytes of memory that commits may take which are in the log and not in the file yet: at least
    /// [`MEMORY_MIN`](crate::MEMORY_MIN). The log is as long as the least of the processes that
    /// write allows.
    pub memory: u64,
    /// Whether this process makes the file shorter when more than a fifth of it is free and
    /// little is written.
    pub auto_compact: bool,
    /// The memory limit for the entries of an index that is being built, to test tables that are
    /// too large; 0 is the default.
    pub index_memory: usize,
    /// Whether LMDB chooses all pages, without `engine/lmdb/free_pages.rs`: to test the database
    /// so, or to find out whether that file is to blame.
    pub leaves_pages_to_lmdb: bool,
    /// Derives the entries of indexes. Without one, a table with indexes cannot be written to.
    pub deriver: Option<Arc<dyn Deriver>>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self {
            mode: Mode::Create,
            durability: Durability::default(),
            timeout: Duration::from_secs(10),
            is_untrusted: false,
            keep: None,
            key_size_max: 0,
            log_segment_size: 0,
            memory: MEMORY_USUAL,
            auto_compact: true,
            index_memory: 0,
            leaves_pages_to_lmdb: false,
            deriver: None,
        }
    }
}

impl OpenOptions {
    /// The default options with a mode.
    #[must_use]
    pub fn with_mode(mode: Mode) -> Self {
        Self { mode, ..Self::default() }
    }
}

/// A handle of an open database. Threads may share it. After a fork, the child's copy opens the
/// database anew on first use.
pub struct Store {
    link: Link,
    path: Option<PathBuf>,
    options: OpenOptions,
    /// Opens it again, in a forked child or after a compaction.
    pub(crate) opener: Opener,
}

/// Opens the database at a path. Also returns the resolved path.
pub(crate) type Opener = fn(&Path, &OpenOptions) -> Result<(Arc<Database>, PathBuf), StoreError>;

/// The state of a handle in one process, and in its forked children. The children's state is in a
/// `OnceLock`, since a thread of the parent might have held a lock during the fork.
pub(crate) struct Link {
    generation: u64,
    pub(crate) database: Latch<Custody>,
    in_child: OnceLock<Box<Link>>,
}

/// Where a handle's database is. A caller may hold the GIL while it looks this up, so it is locked
/// for moments only.
pub(crate) enum Custody {
    Own(Handle),
    /// Taken by a compaction of this file, which returns it.
    Lent(String),
    Closed,
}

/// A handle's reference to its database, which counts its handles.
pub(crate) struct Handle(Arc<Database>);

impl Handle {
    pub(crate) fn new(database: Arc<Database>) -> Self {
        database.handles.fetch_add(1, Ordering::AcqRel);
        Self(database)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        self.0.handles.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Custody {
    /// The database, if it is available.
    #[inline]
    pub(crate) fn database(&self) -> Result<&Arc<Database>, StoreError> {
        match self {
            Self::Own(handle) => Ok(&handle.0),
            other => Err(other.why_not()),
        }
    }

    // A separate function, since making and dropping an error for each row takes time.
    #[cold]
    fn why_not(&self) -> StoreError {
        match self {
            Self::Lent(path) => {
                let (path, wanted) = (path.clone(), Wanted::Use);
                StoreError::Busy { path, wanted, holders: Vec::new(), waited: None }
            }
            _ => StoreError::Closed { what: "database" },
        }
    }
}

impl Link {
    fn new(database: Arc<Database>) -> Self {
        Self {
            generation: os::generation(),
            database: Latch::new(Custody::Own(Handle::new(database))),
            in_child: OnceLock::new(),
        }
    }
}

impl Store {
    /// A handle of a database that `opener` has opened, at this path or in memory.
    pub(crate) fn of(
        database: Arc<Database>,
        path: Option<PathBuf>,
        options: &OpenOptions,
        opener: Opener,
    ) -> Self {
        Self { link: Link::new(database), path, options: options.clone(), opener }
    }

    #[inline]
    pub(crate) fn link(&self) -> Result<&Link, StoreError> {
        let generation = os::generation();
        if self.link.generation == generation { Ok(&self.link) } else { self.link_of(generation) }
    }

    #[cold]
    fn link_of(&self, generation: u64) -> Result<&Link, StoreError> {
        let mut link = &self.link;
        while link.generation != generation {
            link = match link.in_child.get() {
                Some(next) => next,
                None => self.reopen(link)?,
            };
        }
        Ok(link)
    }

    /// In a forked child: open the file again, and do not touch what the parent has opened.
    fn reopen<'a>(&self, parent: &'a Link) -> Result<&'a Link, StoreError> {
        let Some(path) = &self.path else { return Err(StoreError::Forked { what: "database in memory" }) };
        let mode = if self.options.mode == Mode::Read { Mode::Read } else { Mode::Write };
        let (database, _) = (self.opener)(path, &OpenOptions { mode, ..self.options.clone() })?;
        Ok(parent.in_child.get_or_init(|| Box::new(Link::new(database))))
    }

    /// Use the open database without keeping it open.
    pub(crate) fn with_database<R>(&self, work: impl FnOnce(&Database) -> R) -> Result<R, StoreError> {
        self.link()?.database.lock().database().map(|database| work(database))
    }

    pub(crate) fn database(&self) -> Result<Arc<Database>, StoreError> {
        self.link()?.database.lock().database().cloned()
    }

    /// The database, if it may be written to.
    pub(crate) fn writable(&self) -> Result<Arc<Database>, StoreError> {
        let database = self.database()?;
        if self.options.mode == Mode::Read {
            return Err(StoreError::ReadOnly {
                path: database.path.clone(),
                why: "it was opened with mode 'r'",
            });
        }
        if let Some(why) = database.read_only {
            return Err(StoreError::ReadOnly { path: database.path.clone(), why });
        }
        Ok(database)
    }

    /// The shapes of this database's records.
    ///
    /// # Errors
    /// `Closed`.
    pub fn dictionary(&self) -> Result<Arc<Dictionary>, StoreError> {
        Ok(Arc::clone(&self.database()?.dictionary))
    }

    /// Note that a dict with these keys is being written, and return what to do with it (see
    /// [`pellucid_record::Admission`]).
    ///
    /// # Errors
    /// `Closed`.
    pub fn decide_shape(
        &self,
        table: TableId,
        names: &[&str],
        is_root: bool,
    ) -> Result<ShapeDecision, StoreError> {
        let database = self.database()?;
        let mut admission = database.admission.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(admission.decide_shape(&database.dictionary, table.number(), names, is_root))
    }

    /// Make everything committed so far survive a power cut.
    ///
    /// # Errors
    /// When the disk fails; `FileDeleted`.
    pub fn sync(&self) -> Result<(), StoreError> {
        let database = self.database()?;
        if self.is_read_only() {
            return Ok(());
        }
        // The first call does what is asked for. The second shortens the log if no writer is in the
        // way, and waits for a checkpoint that is running already.
        let timeout = self.options.timeout;
        database.sync()?;
        let Some(care) = database.engine.file_care() else { return Ok(()) };
        let checkpointed = care.checkpoint(Duration::ZERO, timeout);
        checkpointed.map(|_| ()).map_err(|error| database.checkpoint_error(error))
    }

    /// Close this handle. The file is closed when its snapshots and transactions, and other
    /// handles of it in this process, are gone too; the last handle to close has everything
    /// written into it before. Closing twice does nothing. Returns a warning if something is
    /// wrong with how the file was left.
    pub fn close(&self) -> Option<Warning> {
        let link = self.link().ok()?;
        let Custody::Own(handle) = std::mem::replace(&mut *link.database.lock(), Custody::Closed) else {
            return None;
        };
        let database = Arc::clone(&handle.0);
        drop(handle);
        let warning = match Arc::try_unwrap(database) {
            Ok(mut database) => database.leave(),
            Err(database) => database.checkpoint_beside_readers(),
        };
        // A handle that only reads has no commits to lose.
        warning.filter(|_| self.options.mode != Mode::Read)
    }

    /// Whether this handle cannot write.
    #[must_use]
    pub fn is_read_only(&self) -> bool {
        self.options.mode == Mode::Read || self.database().is_ok_and(|database| database.read_only.is_some())
    }

    /// The file's absolute path. `None` in memory.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The options with which it was opened.
    #[must_use]
    pub fn options(&self) -> &OpenOptions {
        &self.options
    }

    /// Warnings about this database, though it works: what was found when it was opened, and a
    /// snapshot that has been open for long.
    ///
    /// # Errors
    /// `Closed`.
    pub fn warnings(&self) -> Result<Vec<Warning>, StoreError> {
        let database = self.database()?;
        let mut warnings = database.warnings.clone();
        let is_lost = |warning: &Warning| matches!(warning, Warning::LostCommits { .. });
        let care = database.engine.file_care();
        if let Some(care) = care.filter(|_| !self.is_read_only() && warnings.iter().any(is_lost)) {
            // A reader leaves the warning to the next writer.
            care.lost(true);
        }
        if let Some(warning) = database.old_reader()? {
            warnings.push(warning);
            *database.warned_at() = Some(Instant::now() + WARN_INTERVAL);
        }
        Ok(warnings)
    }

    /// A warning about a snapshot that has been open for long. It is given once an hour, and looked
    /// for once a minute, so that this can be called often.
    ///
    /// # Errors
    /// `Closed`.
    pub fn new_warning(&self) -> Result<Option<Warning>, StoreError> {
        const LOOK_INTERVAL: Duration = Duration::from_secs(60);
        let database = self.database()?;
        let mut due = database.warned_at();
        let now = Instant::now();
        if due.is_some_and(|due| now < due) {
            return Ok(None);
        }
        let warning = database.old_reader()?;
        *due = Some(now + if warning.is_some() { WARN_INTERVAL } else { LOOK_INTERVAL });
        Ok(warning)
    }
}

/// How often a process is warned of a snapshot that has been open for long.
const WARN_INTERVAL: Duration = Duration::from_secs(3600);

impl Database {
    /// When such a snapshot is looked for again.
    fn warned_at(&self) -> MutexGuard<'_, Option<Instant>> {
        self.looks_at.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A snapshot that has been open for long, and keeps pages from being used again.
    fn old_reader(&self) -> Result<Option<Warning>, StoreError> {
        const OLD_LAG: u64 = 100;
        const OLD_AGE: Duration = Duration::from_secs(3600);
        let Some(file) = self.engine.tree_file() else { return Ok(None) };
        let oldest = file.oldest_reader().map_err(|error| self.error(error))?;
        let is_old = oldest.lag >= OLD_LAG || oldest.lag > 0 && oldest.age >= OLD_AGE;
        Ok(is_old.then(|| Warning::OldReader {
            path: self.path.clone(),
            lag: oldest.lag,
            process: oldest.process,
            minutes: oldest.age.as_secs() / 60,
        }))
    }
}
