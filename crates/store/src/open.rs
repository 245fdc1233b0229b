//! Opens a database: the steps from a path to an open [`Database`].
//!
//! Find the file and lock it (`db/opening.rs`), check that it is a database (`db/stamp.rs`),
//! ask the registry whether this process has it open, otherwise open the engine; create what is
//! missing; let other processes in.

use std::any::Any;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::admin::copy;
use crate::admin::maintenance;
use crate::admin::prove_index;
use crate::catalog::{self, Applied, Counters, FORMAT_WITHOUT_INDEXES, Header};
use crate::db::database::Database;
use crate::db::log_file::{self, Manner, Upkeep};
use crate::db::opening::{OpenedFile, Opening, Wish};
use crate::db::registry::{self, Opened, Registration};
use crate::db::stamp::{self, Identity, Kind};
use crate::db::store::{Mode, OpenOptions, Store};
use crate::engine::lmdb::{self, FirstEntries, LmdbEngine, LmdbOptions, PageChoice};
use crate::engine::memory::MemoryEngine;
use crate::engine::{Engine, EngineError, Tree, TreeFile};
use crate::error::{StoreError, Wanted};
use crate::sys::file_id::is_denied;
use crate::sys::os;
use crate::sys::side_file::{self, Strange};
use crate::warning::Warning;

/// How long to retry while another process seems to have the file open without lock files.
const LOCKS_PATIENCE: Duration = Duration::from_secs(1);

/// An empty database in memory.
fn memory(options: &OpenOptions) -> Result<Arc<Database>, StoreError> {
    let engine = match options.key_size_max {
        0 => MemoryEngine::new(),
        size => MemoryEngine::with_key_size_max(size),
    };
    let path = ":memory:".to_owned();
    let created = engine.begin_write().and_then(|mut txn| {
        for (key, value) in first_entries(txn.version(), engine.key_size_max()) {
            txn.put(Tree::Meta, &key, &[&value])?;
        }
        txn.commit()
    });
    created.map_err(|error| StoreError::from_engine(&path, error))?;
    let database = Database::new(Box::new(engine), path, None, None, Vec::new())?;
    database.know(options);
    Ok(Arc::new(database))
}

/// Open the database at a path. Also returns the resolved path.
fn open(path: &Path, options: &OpenOptions) -> Result<(Arc<Database>, PathBuf), StoreError> {
    os::watch_forks();
    let path = real_path(path)?;
    if options.is_untrusted {
        let database = open_stranger(&path, options)?;
        database.know(options);
        // Its index entries are sound as bytes, but may not match the rows.
        prove_index::refuse_others(&database)?;
        return Ok((database, path));
    }
    let creates = matches!(options.mode, Mode::Create | Mode::New);
    let wish = Wish { creates, writes: options.mode != Mode::Read };
    let begin = Instant::now();
    loop {
        let found = Opening::find(&path, wish, options.timeout)?;
        match open_found(found, options, creates) {
            Ok(Some(database)) => {
                database.know(options);
                return Ok((database, path));
            }
            Ok(None) => {}
            // Perhaps no process has it open: the last one may have closed it between our attempts
            // to lock it exclusively and shared. Other processes may be opening it at the same
            // time, too.
            Err(StoreError::Busy { wanted: Wanted::Locks, .. })
                if begin.elapsed() < options.timeout.min(LOCKS_PATIENCE) => {}
            Err(error) => return Err(error.of_opening()),
        }
        if begin.elapsed() >= options.timeout {
            let (path, waited) = (path.display().to_string(), Some(options.timeout));
            return Err(StoreError::Busy { path, wanted: Wanted::Open, holders: Vec::new(), waited });
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Read an untrusted file through a copy of its sound parts; the engine never opens the file
/// itself.
fn open_stranger(path: &Path, options: &OpenOptions) -> Result<Arc<Database>, StoreError> {
    if options.mode != Mode::Read {
        return Err(StoreError::Unsupported { what: "an untrusted file can only be opened with mode 'r'" });
    }
    let name = path.display().to_string();
    let found = Opening::find(path, Wish { creates: false, writes: false }, options.timeout)?;
    let file = found.opening.file()?;
    let Identity::Ours(log_token) = stamp::identify(file, &name, found.is_alone)? else {
        return Err(StoreError::NotADatabase { path: name, what: "it was never completely created" });
    };
    if !found.is_alone {
        let holders = found.opening.others();
        let is_here = holders.is_empty() && registry::is_open(found.opening.file_id);
        let wanted = if is_here { Wanted::ClosedHere } else { Wanted::Alone };
        return Err(StoreError::Busy { path: name, wanted, holders, waited: None });
    }
    let log = log_file::path_of(path);
    if log.symlink_metadata().is_ok() {
        return Err(StoreError::LogBeside { path: log.display().to_string() });
    }
    let engine = copy::copy_stranger(file, &name)?;
    let mut warnings = Vec::new();
    if log_token != 0 {
        warnings.push(log_file::missing_log(&engine, &name)?);
    }
    let why = Some("it was opened as untrusted");
    Ok(Arc::new(Database::new(Box::new(engine), name, None, why, warnings)?))
}

/// The resolved path of a file, so that all processes find the same lock files.
fn real_path(path: &Path) -> Result<PathBuf, StoreError> {
    let failed = |source| StoreError::from_io("find", path.display().to_string(), source);
    // `Path` drops these when it takes a path apart, and would create the file without them.
    let bytes = path.as_os_str().as_encoded_bytes();
    if (bytes.ends_with(b"/") || bytes.ends_with(b"/.")) && !path.is_dir() {
        return Err(StoreError::NamesDirectory { path: path.display().to_string() });
    }
    match path.canonicalize() {
        Ok(path) => Ok(path),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            // The file does not exist yet, but its folder must.
            let path = std::path::absolute(path).map_err(failed)?;
            match (path.parent().map(Path::canonicalize), path.file_name()) {
                (Some(Ok(folder)), Some(name)) => Ok(folder.join(name)),
                (Some(Err(_)), _) => Err(StoreError::NoFolder { path: path.display().to_string() }),
                _ => Err(failed(error)),
            }
        }
        Err(error) => Err(failed(error)),
    }
}

/// `None` if the file changed meanwhile: begin again.
fn open_found(
    found: OpenedFile,
    options: &OpenOptions,
    creates: bool,
) -> Result<Option<Arc<Database>>, StoreError> {
    let OpenedFile { opening, is_alone, is_writable } = found;
    let name = opening.path.display().to_string();
    let mut log_token = 0;
    let is_new = match stamp::identify(opening.file()?, &name, is_alone)? {
        Identity::Ours(found) => {
            log_token = found;
            false
        }
        // The creator of a file is alone with it. If we are not alone, the others have just left.
        Identity::Empty | Identity::Unfinished | Identity::CutOff if !is_alone => return Ok(None),
        Identity::CutOff if options.mode != Mode::New => {
            let what = "it is shorter than the beginning of one: it may be one that was cut off, of which a backup may have the rows; mode 'n' begins it anew";
            return Err(StoreError::NotADatabase { path: name, what });
        }
        Identity::Empty if !creates => {
            return Err(StoreError::NotADatabase { path: name, what: "it is empty" });
        }
        Identity::Unfinished if !creates => {
            let what = "it was never completely created, and has no rows; mode 'c' begins it anew";
            return Err(StoreError::NotADatabase { path: name, what });
        }
        Identity::Empty | Identity::Unfinished | Identity::CutOff => true,
    };
    let place = registry::place_of(opening.file_id);
    open_at(&place, opening, State { is_alone, is_writable, is_new, log_token }, options)
}

/// What was found out about the file.
#[derive(Clone, Copy)]
struct State {
    is_alone: bool,
    is_writable: bool,
    is_new: bool,
    log_token: u64,
}

fn open_at(
    place: &Mutex<Registration>,
    mut opening: Opening,
    state: State,
    options: &OpenOptions,
) -> Result<Option<Arc<Database>>, StoreError> {
    let mut place = registry::lock(place);
    if let Registration::Open(opened) = &*place {
        // Open in this process, or about to be closed; in that case the next attempt succeeds.
        let database = opened.upgrade().and_then(|opened| opened.downcast::<Database>().ok());
        return match database {
            Some(database) if database.read_only.is_some() && options.mode != Mode::Read => {
                let why = "this process has it open, read-only";
                Err(StoreError::ReadOnly { path: database.path.clone(), why })
            }
            database => Ok(database),
        };
    }
    if state.is_alone && state.is_writable {
        maintenance::remove_leftover(&opening.path);
    }
    let mut warnings = Vec::new();
    let (engine, read_only) = match prepare_as_wished(&mut opening, state, options, &mut warnings) {
        Ok(prepared) => prepared,
        Err(error) => {
            if state.is_new {
                // A partial file would be taken for a foreign one; an empty one can be tried again.
                // One that was refused before anything was written to it stays as it is.
                if opening.is_open {
                    let _ = opening.file()?.set_len(0);
                }
                opening.is_unwanted = opening.is_made;
            }
            return Err(error);
        }
    };
    opening.note_beside();
    if state.is_alone && !opening.share()? {
        return Ok(None);
    }
    let path = opening.path.display().to_string();
    let database = Arc::new(Database::new(engine, path, Some(opening), read_only, warnings)?);
    if let Some(opening) = &database.opening {
        opening.is_registered.store(true, Ordering::Relaxed);
    }
    let opened: Arc<Opened> = Arc::clone(&database) as Arc<dyn Any + Send + Sync>;
    *place = Registration::Open(Arc::downgrade(&opened));
    Ok(Some(database))
}

/// Open the engine. Also returns why this process may not write, if so. Reading needs no room on
/// the disk: on a full disk the database is opened as by a user who may only read it.
fn prepare_as_wished(
    opening: &mut Opening,
    mut state: State,
    options: &OpenOptions,
    warnings: &mut Vec<Warning>,
) -> Result<(Box<dyn Engine>, Option<&'static str>), StoreError> {
    const NO_ROOM: &str = "there was no room on the disk for more than reading when this process opened it";
    if !state.is_writable {
        let engine = prepare(opening, state, options, warnings)?;
        return Ok((engine, Some("this user may only read it")));
    }
    let reads = options.mode == Mode::Read;
    let has_lock_file = opening.lock_path().exists();
    // Its readers may have found no room for a lock file.
    let is_lockless = reads && !state.is_alone && !has_lock_file && lmdb::is_room_short(opening.file()?);
    if !is_lockless {
        let prepared = prepare(opening, state, options, warnings);
        let is_of_room = prepared.as_ref().is_err_and(StoreError::is_of_room);
        if !is_of_room || !reads || !state.is_alone && has_lock_file {
            let is_damaged = warnings.iter().any(|warning| matches!(warning, Warning::LogDamaged { .. }));
            return Ok((prepared?, is_damaged.then_some("its log is damaged")));
        }
        warnings.clear();
    }
    state.is_writable = false;
    opening.show_writer(false)?;
    Ok((prepare(opening, state, options, warnings)?, Some(NO_ROOM)))
}

/// Open the engine and the log, and write the first entries of a new database.
fn prepare(
    opening: &mut Opening,
    state: State,
    options: &OpenOptions,
    warnings: &mut Vec<Warning>,
) -> Result<Box<dyn Engine>, StoreError> {
    let path = opening.path.display().to_string();
    // Held until the engine is open.
    let mut joining = None;
    if !state.is_alone {
        let writes = options.mode != Mode::Read;
        joining = opening.begin_joining(state.is_writable, writes, options.timeout)?;
    }
    let is_first = state.is_alone || !opening.has_writers(state.is_writable)?;
    if state.is_writable {
        opening.show_writer(true)?;
    }
    if state.is_writable && !is_first {
        // Taking over what is in the log may take longer than the timeouts of others.
        joining = None;
    }
    if is_first && state.is_writable {
        // First of all: the log may be in use by processes that opened another file under this
        // name.
        let is_replaced = options.mode == Mode::New;
        let inode = (!opening.is_made).then_some(opening.file_id.inode);
        let file = log_file::DataFile { is_new: state.is_new, inode, is_replaced };
        warnings.extend(log_file::meet(&opening.path, file, options.log_segment_size)?);
        // No process with a lock file has this file open, so one there is left over, or belongs to
        // another database.
        match side_file::remove(&opening.lock_path()) {
            Err(error) if Strange::of(&error).is_some() => {
                return Err(StoreError::from_io("remove", path, error));
            }
            // If it cannot be removed, it is used.
            _ => {}
        }
    }
    if state.is_new {
        // No other process has the file open, so this one may remove the files that it creates
        // beside it. Files that were there before may not.
        opening.is_open = true;
        let has_log = log_file::path_of(&opening.path).symlink_metadata().is_ok();
        opening.keeps_log.store(has_log, Ordering::Relaxed);
        let begun = stamp::begin(opening.file()?, Kind::Database);
        begun.map_err(|source| StoreError::from_io("write", path.clone(), source))?;
    } else if state.is_alone && state.is_writable {
        let file = opening.file()?;
        let mut written = stamp::end_copy(file);
        if log_file::path_of(&opening.path).exists() {
            written = written.and_then(|()| stamp::write_again(file));
        }
        written.map_err(|error| log_file::not_written(&opening.path, EngineError::of_system(error)))?;
    }
    let engine = open_engine_cleanly(opening, (state, is_first), options, warnings)?;
    drop(joining);
    opening.is_open = true;
    // From here on other processes may open it, write, and die, so its log must be kept and
    // recovered as usual.
    opening.keeps_log.store(true, Ordering::Relaxed);
    if let Ok(Some(name)) = os::network_file_system(opening.file()?) {
        warnings.push(Warning::NetworkFileSystem { path: path.clone(), name });
    }
    Ok(engine)
}

/// As `open_engine`. If that fails, the files go that it has made beside the file; those of a new
/// database go with it. No other process can have opened them meanwhile.
fn open_engine_cleanly(
    opening: &Opening,
    (state, is_first): (State, bool),
    options: &OpenOptions,
    warnings: &mut Vec<Warning>,
) -> Result<Box<dyn Engine>, StoreError> {
    let had_log = log_file::path_of(&opening.path).symlink_metadata().is_ok();
    open_engine(opening, (state, is_first), options, warnings).inspect_err(|_| {
        if is_first && state.is_writable && !state.is_new {
            let _ = side_file::remove(&opening.lock_path());
            if !had_log {
                log_file::remove(&opening.path, None);
            }
        }
    })
}

fn open_engine(
    opening: &Opening,
    (state, is_first): (State, bool),
    options: &OpenOptions,
    warnings: &mut Vec<Warning>,
) -> Result<Box<dyn Engine>, StoreError> {
    let State { is_writable, is_new, log_token, .. } = state;
    let path = opening.path.display().to_string();
    if is_writable && !is_first && !opening.lock_path().exists() {
        // Processes that have it open use other lock files, under another name.
        let holders = opening.others();
        return Err(StoreError::Busy { path, wanted: Wanted::Locks, holders, waited: None });
    }
    let lmdb = LmdbOptions {
        is_read_only: !is_writable,
        is_lockless: !is_writable,
        key_size_max: options.key_size_max,
        page_choice: PageChoice::of(options.leaves_pages_to_lmdb),
        ..LmdbOptions::default()
    };
    let manner = Manner {
        is_alone: is_first,
        is_writable,
        writes: options.mode != Mode::Read,
        log_token,
        segment_size: options.log_segment_size,
        upkeep: Upkeep { memory: options.memory, compacts: options.auto_compact },
        timeout: options.timeout,
    };
    let engine = open_lmdb(opening, is_new, lmdb).map_err(|error| refused_as(opening, is_new, error))?;
    if !is_writable && !is_first && !engine.shows_versions() {
        // Without a lock file no writer sees us reading, so this must not happen beside one.
        let (path, source) = (opening.lock_path().display().to_string(), ErrorKind::PermissionDenied.into());
        return Err(StoreError::BesideDenied { path, source });
    }
    // Where the log is refused, the file stays as it is.
    engine.keep_tail(true);
    log_file::attach(Box::new(engine), &opening.path, opening.file()?, manner, warnings)
}

fn open_lmdb(opening: &Opening, is_new: bool, options: LmdbOptions) -> Result<LmdbEngine, EngineError> {
    if !is_new {
        return LmdbEngine::open(&opening.path, options);
    }
    let engine = LmdbEngine::create(&opening.path, options, &mut |version, size| {
        let applied = Applied { position: 0, sequence: version, version };
        let mut entries = first_entries(version, size);
        entries.push(applied.entry());
        entries
    })?;
    let file = opening.file().map_err(|_| EngineError::Forked)?;
    stamp::finish(file).map_err(EngineError::of_system)?;
    Ok(engine)
}

/// The error for an engine that could not be opened.
fn refused_as(opening: &Opening, is_new: bool, refused: EngineError) -> StoreError {
    let path = opening.path.display().to_string();
    match refused {
        EngineError::DiskFull(source) if !is_new => log_file::no_room(&opening.path, source),
        // The data file itself was opened with the same rights, so this error is about the lock
        // file.
        EngineError::Io(source) if is_denied(&source) => {
            let lock = opening.lock_path().display().to_string();
            match StoreError::from_io("create", lock, source) {
                StoreError::AccessDenied { path, source, .. } if opening.lock_path().exists() => {
                    StoreError::BesideDenied { path, source }
                }
                error => error,
            }
        }
        EngineError::Io(source) => StoreError::from_io("open", path, source),
        error => StoreError::from_engine(&path, error),
    }
}

/// The first entries of every database.
fn first_entries(version: u64, key_size_max: usize) -> FirstEntries {
    let header = Header {
        format: FORMAT_WITHOUT_INDEXES,
        oldest_reader: FORMAT_WITHOUT_INDEXES,
        key_size_max: key_size_max as u32,
        identity: new_identity(),
        marks: Vec::new(),
    };
    let counters = Counters { version, next_table: 0, shape_count: 0, next_blob: 1 };
    vec![header.entry(), counters.entry()]
}

/// Sixteen bytes that no other database has: time, process, count, and an address in memory.
fn new_identity() -> [u8; 16] {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let time = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
    let count = NEXT.fetch_add(1, Ordering::Relaxed);
    let place = std::ptr::from_ref(&count) as u64;
    let seed = [time, u64::from(std::process::id()), count, place].map(u64::to_le_bytes).concat();
    xxhash_rust::xxh3::xxh3_128(&seed).to_le_bytes()
}

impl Store {
    /// Open the database at a path.
    ///
    /// # Errors
    /// Many, depending on the file: see [`StoreError`].
    pub fn open(path: impl AsRef<Path>, options: &OpenOptions) -> Result<Self, StoreError> {
        let (database, path) = open(path.as_ref(), options)?;
        let store = Self::of(database, Some(path), options, open);
        if options.mode == Mode::New {
            store.empty()?;
        }
        store.keep_as_wished()?;
        Ok(store)
    }

    /// A new database in memory. Every call makes another one.
    ///
    /// # Errors
    /// When memory is short.
    pub fn memory() -> Result<Self, StoreError> {
        Self::memory_with(&OpenOptions::default())
    }

    /// As [`Store::memory`], with options.
    ///
    /// # Errors
    /// When memory is short.
    pub fn memory_with(options: &OpenOptions) -> Result<Self, StoreError> {
        let store = Self::of(memory(options)?, None, options, open);
        store.keep_as_wished()?;
        Ok(store)
    }

    /// Store the `keep` option, if it differs from the current setting.
    fn keep_as_wished(&self) -> Result<(), StoreError> {
        let Some(keep) = self.options().keep else { return Ok(()) };
        let (database, snapshot) = (self.database()?, self.snapshot()?);
        if let Some(feed) = database.engine.commit_feed() {
            feed.set_keep(keep);
        }
        let old = catalog::keep(snapshot.read_txn()).map_err(|error| database.catalog_error(error))?;
        drop(snapshot);
        if old == keep {
            return Ok(());
        }
        let mut transaction = self.begin(self.options().timeout)?;
        transaction.set_keep(keep)?;
        transaction.commit()
    }

    /// Delete everything in one transaction. Ids are not used again.
    fn empty(&self) -> Result<(), StoreError> {
        let mut transaction = self.begin(self.options().timeout)?;
        transaction.clear_everything()?;
        transaction.commit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_made_a_database_keeps_the_log_of_one_who_dies_while_it_closes() {
        let path = std::env::temp_dir().join(format!("pellucid-open-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let (database, path) = open(&path, &OpenOptions::default()).unwrap();
        let opening = database.opening.as_ref().unwrap();
        // On closing, the last process copies the log into the file and clears this flag. Another
        // process that had it open may be dead a moment later, when the files beside the database
        // are removed.
        assert!(opening.keeps_log.load(Ordering::Relaxed));
        drop(database);
        assert!(!log_file::path_of(&path).exists());
        std::fs::remove_file(path).unwrap();
    }
}
