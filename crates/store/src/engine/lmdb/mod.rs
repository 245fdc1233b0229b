//! The LMDB engine: a database in a file.
//!
//! LMDB is a copy-on-write B+tree in a memory map. Readers take no lock and read in place. A commit
//! writes new pages and syncs them, then one of two meta pages in turn, so a crash leaves the
//! previous commit. This module opens the environment and wraps LMDB's C interface;
//! `engine/lmdb/txn.rs` has its transactions and cursors, and `engine/lmdb/walk.rs` and
//! `engine/lmdb/search.rs` read pages in the map.
//!
//! Always: data is synced before the meta page (except for the first commit, which `db/stamp.rs`
//! tells from a torn one). There is no write map, so a stray pointer of the program cannot write
//! into the file. Reader places belong to transactions, not to threads (`NOTLS`). Handles are
//! opened once. The name of the database, the permission to open it, and its lock files are the
//! business of `open.rs`.
//!
//! **Invariant:** one environment for one file in a process. LMDB identifies a process's readers by
//! its PID alone, and closing one environment would free the places of both. The registry upholds
//! it.
//!
//! **Invariant:** LMDB's locks are on an open file of the lock file that is ours
//! (`Environment::_lock`), so no other code in the process can drop them, and a forked child closes
//! that file at once (`sys/own_file.rs`).
#![allow(unsafe_code)]

pub(crate) mod cursor;
pub(crate) mod estimate;
pub(crate) mod extents;
pub(crate) mod fill;
pub(crate) mod format;
mod free_pages;
pub(crate) mod live_writes;
pub(crate) mod moves;
pub(crate) mod page;
pub(crate) mod page_walk;
pub(crate) mod parts;
pub(crate) mod proof;
mod readers;
#[cfg(test)]
mod scratch;
pub(crate) mod search;
pub(crate) mod search_many;
pub(crate) mod txn;
pub(crate) mod unregistered;
pub(crate) mod walk;

use std::ffi::{CStr, CString, OsStr, c_int, c_uint};
use std::fs::File;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsRawFd, FromRawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use pellucid_lmdb_sys as ffi;

use crate::engine::lmdb::cursor::value_of;
use crate::engine::lmdb::extents::FileExtents;
use crate::engine::lmdb::format::{Meta, PageFile, TreeHead};
use crate::engine::lmdb::free_pages::FreePages;
pub use crate::engine::lmdb::free_pages::PageChoice;
use crate::engine::lmdb::page::MapBounds;
use crate::engine::lmdb::txn::{LmdbRead, LmdbWrite};
use crate::engine::lmdb::unregistered::{ANY, Shown};
use crate::engine::{
    Change, Engine, EngineError, Extents, OldestReader, ReadTxn, Result, RowAccess, Tree, TreeFile, Usage,
    WriteTxn,
};
use crate::sys::os;
use crate::sys::own_file::OwnFile;
use crate::sys::side_file;
use crate::sys::{cgroup, memory};

/// The address space to reserve: more than any disk that this library will meet soon. Only what is
/// touched costs memory.
const MAP_SIZE_MAX: usize = 1 << 40;
/// The first `MAP_LOT` databases reserve that much, each further lot half as much as the one
/// before, down to a minimum. A process has address space for 128 times the most; a database that
/// took the last of it would leave none for the logs.
const MAP_LOT: usize = 16;
const MAP_SIZE_MANY: usize = 1 << 36;
/// If not even this much address space is available, opening fails.
const MAP_SIZE_MIN: usize = 1 << 26;
const MAP_SIZE_UNIT: usize = 1 << 20;
const NO_ROOM_FOR_FILE: &str = "the map of the file: its size, and 64 MiB at least, of address space";
/// Environments that are open in this process.
static OPEN_COUNT: AtomicUsize = AtomicUsize::new(0);
const READERS_MAX: c_uint = 4096;
/// A disk with this much free room is not about to be full.
const ROOM_ENOUGH: u64 = 64 << 20;
/// Bytes of the lock file: LMDB's own part, then 64 for each reader.
const LOCK_FILE_SIZE: u64 = 192 + 64 * (READERS_MAX as u64 - 1);
/// The part of the lock file that is used if there are few readers.
const LOCK_FILE_FIRST: usize = 4096;
/// The three trees, and room for what later versions add.
const TREES_MAX: c_uint = 8;

/// How to open the environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct LmdbOptions {
    /// Never write, and need no right to.
    pub is_read_only: bool,
    /// Do without the lock file. For an environment that is read-only, or that no other process
    /// opens.
    pub is_lockless: bool,
    /// Create the trees if they are missing.
    pub creates_trees: bool,
    /// The longest key to store, to test longer ones; 0 is LMDB's own limit.
    pub key_size_max: usize,
    /// What chooses the free pages that a transaction takes.
    pub page_choice: PageChoice,
}

/// Keys and values of the tree `meta`.
pub type FirstEntries = Vec<(Vec<u8>, Vec<u8>)>;

/// A database in a file.
pub struct LmdbEngine {
    pub(crate) environment: Arc<Environment>,
}

/// The C environment, and what its transactions share.
pub(crate) struct Environment {
    raw: *mut ffi::MDB_env,
    /// What LMDB's system calls find at the environment. Freed after it.
    context: *mut ffi::pellucid_context,
    handles: [ffi::MDB_dbi; 3],
    key_size_max: usize,
    page_size: usize,
    generation: u64,
    /// Reset read transactions: renewing one costs a tenth of beginning one.
    idle_readers: Mutex<Vec<IdleReader>>,
    /// How many read transactions have a user.
    reader_count: AtomicUsize,
    map_bounds: OnceLock<Option<MapBounds>>,
    /// The heads of the version that was last read.
    heads: Mutex<Option<Arc<Heads>>>,
    is_broken: AtomicBool,
    /// See [`TreeFile::keep_tail`].
    keeps_tail: AtomicBool,
    /// When a transaction found no room last.
    full_at: Mutex<Option<Instant>>,
    free_pages: FreePages,
    /// The file with LMDB's locks, for as long as the environment is open. `None` without a lock
    /// file.
    _lock: Option<OwnFile>,
    /// What this process reads without one. `None` with a lock file, or if the file system has no
    /// locks that show it.
    shown: Option<Shown>,
    /// Whether readers without a lock file can show what they read.
    has_byte_locks: bool,
}

/// The roots of the trees of one version, and where its pages are. All readers of the version share
/// it.
pub(crate) struct Heads {
    pub(crate) version: u64,
    /// See [`page::Pages::number`].
    pub(crate) number: u64,
    /// By [`Tree::index`]; without special flags.
    pub(crate) trees: [TreeHead; 3],
    pub(crate) bounds: MapBounds,
    pub(crate) page_count: u64,
}

/// A read transaction that was reset, and the heads of the version that it read.
struct IdleReader(*mut ffi::MDB_txn, Option<Arc<Heads>>);

// SAFETY: with NOTLS a reset read transaction belongs to no thread; the thread that takes it out of
// the pool is its only user.
unsafe impl Send for IdleReader {}

// SAFETY: LMDB's environment may be used by several threads at once (lmdb.h, "mdb_env_open"). The
// fields besides the pointer are immutable or guarded.
unsafe impl Send for Environment {}
// SAFETY: as above.
unsafe impl Sync for Environment {}

impl LmdbEngine {
    /// Open or create the environment at exactly this path; its lock file is `path` + "-lock".
    ///
    /// # Errors
    /// When the file is not LMDB's, lacks our trees, or the operating system refuses.
    pub fn open(path: &Path, options: LmdbOptions) -> Result<Self> {
        Self::open_with(path, options, &mut |_, _| Vec::new())
    }

    /// As `open`, creating the trees, with first entries of the tree `meta` in the same commit: no
    /// database exists without them. `entries` gets the version of that commit and the longest key.
    /// That commit alone is not synced.
    ///
    /// # Errors
    /// As `open`.
    pub fn create(
        path: &Path,
        options: LmdbOptions,
        entries: &mut dyn FnMut(u64, usize) -> FirstEntries,
    ) -> Result<Self> {
        Self::open_with(path, LmdbOptions { creates_trees: true, ..options }, entries)
    }

    /// Whether other processes see what this one reads, though it has no lock file.
    pub(crate) fn shows_versions(&self) -> bool {
        self.environment.shows_versions()
    }

    fn open_with(
        path: &Path,
        options: LmdbOptions,
        entries: &mut dyn FnMut(u64, usize) -> FirstEntries,
    ) -> Result<Self> {
        os::watch_forks();
        live_writes::watch_forks();
        let c_path = CString::new(path.as_os_str().as_bytes()).map_err(|_| {
            EngineError::Io(io::Error::new(io::ErrorKind::InvalidInput, "the path holds a NUL"))
        })?;
        let lock = if options.is_lockless { None } else { Some(open_lock_file(path)?) };
        let shown = if options.is_lockless && options.is_read_only { Shown::open(path)? } else { None };
        if let Some(shown) = &shown {
            // Until it is open, this process may read any version.
            shown.add(ANY)?;
        }
        let (raw, context) = open_environment(&c_path, options, lock.as_ref())?;
        let mut environment = Environment {
            raw,
            context,
            handles: [0; 3],
            key_size_max: 0,
            page_size: 0,
            generation: os::generation(),
            idle_readers: Mutex::new(Vec::new()),
            reader_count: AtomicUsize::new(0),
            map_bounds: OnceLock::new(),
            heads: Mutex::new(None),
            is_broken: AtomicBool::new(false),
            keeps_tail: AtomicBool::new(false),
            full_at: Mutex::new(None),
            free_pages: FreePages::new(options.page_choice),
            _lock: lock,
            shown,
            has_byte_locks: false,
        };
        // From here on dropping `environment` closes it.
        // SAFETY: the environment is open.
        let own_limit = usize::try_from(unsafe { ffi::mdb_env_get_maxkeysize(raw) }).unwrap_or(0);
        environment.key_size_max =
            if options.key_size_max == 0 { own_limit } else { own_limit.min(options.key_size_max) };
        let key_size_max = environment.key_size_max;
        environment.handles = open_trees(raw, options, &mut |version| entries(version, key_size_max))?;
        let mut stat = empty_stat();
        // SAFETY: the environment is open and `stat` is ours to fill.
        check(unsafe { ffi::mdb_env_stat(raw, &raw mut stat) })?;
        environment.page_size = stat.ms_psize as usize;
        environment.has_byte_locks = !options.is_lockless && os::has_byte_locks(&*environment.file()?);
        if let Some(shown) = &environment.shown {
            shown.remove(ANY);
        }
        Ok(Self { environment: Arc::new(environment) })
    }
}

/// Whether the file's disk may soon be full.
pub(crate) fn is_room_short(file: &File) -> bool {
    !os::room_beside(file).is_ok_and(|room| room >= ROOM_ENOUGH)
}

/// The path of LMDB's lock file, which has its locks and its list of readers.
pub(crate) fn lock_path_of(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push("-lock");
    path.into()
}

/// Open or create the lock file.
fn open_lock_file(path: &Path) -> Result<OwnFile> {
    let database = path.metadata().ok();
    let opened = side_file::open_or_create(&lock_path_of(path), database.as_ref());
    let (file, is_new) = opened.map_err(EngineError::of_system)?;
    reserve_lock_file(&file, is_new)?;
    Ok(OwnFile::new(file))
}

/// Allocate the lock file if the disk is nearly full, or may be a tmpfs. LMDB leaves a hole in it
/// and touches that through a map; on a full disk this kills the process. Otherwise the hole is
/// better: freeing the blocks at the last close takes milliseconds on some disks. Then only the
/// first page is written, which LMDB touches next. Touching a hole makes the system read all that
/// lies after it, a tenth of a millisecond of zeros.
fn reserve_lock_file(file: &File, is_new: bool) -> Result<()> {
    if !is_room_short(file) && !os::has_holes_that_take_room(file).unwrap_or(false) {
        if is_new {
            // If this fails, LMDB reports the reason.
            let _ = file.write_at(&[0; LOCK_FILE_FIRST], 0);
        }
        return Ok(());
    }
    os::allocate(file, LOCK_FILE_SIZE).or_else(|error| match error.raw_os_error() {
        // Not every file system supports it; then the hole has to do.
        Some(libc::EOPNOTSUPP | libc::EINVAL) => Ok(()),
        code => Err(error_of(code.unwrap_or(libc::EIO))),
    })
}

/// Reserve as much address space as is available, and open.
fn open_environment(
    path: &CStr,
    options: LmdbOptions,
    lock: Option<&OwnFile>,
) -> Result<(*mut ffi::MDB_env, *mut ffi::pellucid_context)> {
    let mut flags = ffi::MDB_NOSUBDIR | ffi::MDB_NOTLS;
    if options.is_read_only {
        flags |= ffi::MDB_RDONLY;
    }
    let lock = lock.and_then(OwnFile::file).map(AsRawFd::as_raw_fd);
    flags |= if lock.is_none() { ffi::MDB_NOLOCK } else { 0 };
    flags |= if cgroup::is_small() { ffi::MDB_NORDAHEAD } else { 0 };
    let (mut map_size, size_min) = map_sizes_for(OPEN_COUNT.load(Ordering::Relaxed), path);
    // SAFETY: the call has no conditions.
    let context = unsafe { ffi::pellucid_new_context(lock.unwrap_or(-1)) };
    if context.is_null() {
        return Err(EngineError::NoMemory(NO_ROOM_FOR_FILE));
    }
    let failed = |error| {
        // SAFETY: no environment has it any more.
        unsafe { ffi::pellucid_free_context(context) };
        Err(error)
    };
    loop {
        let mut raw = ptr::null_mut();
        // SAFETY: `raw` is ours to fill.
        if let Err(error) = check(unsafe { ffi::mdb_env_create(&raw mut raw) }) {
            return failed(error);
        }
        // SAFETY: the environment was created above and has no other user. The path is
        // NUL-terminated and lives during the call. The lock's descriptor stays open longer than
        // the environment (`Environment::drop`).
        let code = unsafe {
            ffi::mdb_env_set_userctx(raw, context.cast());
            ffi::mdb_env_set_mapsize(raw, map_size);
            ffi::mdb_env_set_maxreaders(raw, READERS_MAX);
            ffi::mdb_env_set_maxdbs(raw, TREES_MAX);
            ffi::mdb_env_open(raw, path.as_ptr(), flags, 0o666)
        };
        if code == 0 {
            OPEN_COUNT.fetch_add(1, Ordering::Relaxed);
            return Ok((raw, context));
        }
        // SAFETY: a failed open leaves an environment that must be closed and not used again.
        unsafe { ffi::mdb_env_close(raw) };
        if matches!(code, libc::ENOMEM | libc::EINVAL) {
            if map_size > size_min {
                map_size = (map_size / 2).next_multiple_of(MAP_SIZE_UNIT).max(size_min);
                continue;
            }
            return failed(EngineError::NoMemory(NO_ROOM_FOR_FILE));
        }
        return failed(error_of(code));
    }
}

/// Whether an environment may have had this size of its map, which LMDB notes in the file.
pub(crate) fn is_map_size(size: u64) -> bool {
    size > 0 && size.is_multiple_of(MAP_SIZE_UNIT as u64)
}

/// How much address space to reserve beside `open_count` other databases, with room for the
/// file to grow; and the least that will do. If the process's address space is limited, some of
/// what the log leaves stays free.
fn map_sizes_for(open_count: usize, path: &CStr) -> (usize, usize) {
    const GROWTH: u64 = 4;
    /// The log's map, and a reserve for small allocations.
    const BESIDE: u64 = (64 << 20) + 2 * memory::HEADROOM as u64;
    /// About the most that memtables, and pages that are being written, take.
    const HEAP_MOST: u64 = 256 << 20;
    let share = MAP_SIZE_MAX.checked_shr((open_count / MAP_LOT) as u32).unwrap_or(0).max(MAP_SIZE_MANY);
    let path = Path::new(OsStr::from_bytes(path.to_bytes()));
    let size = std::fs::metadata(path).map_or(0, |metadata| metadata.len());
    let wanted = usize::try_from(size.saturating_mul(GROWTH)).unwrap_or(MAP_SIZE_MAX);
    let wanted = share.max(wanted.next_multiple_of(MAP_SIZE_MIN)).min(MAP_SIZE_MAX);
    let least =
        usize::try_from(size).unwrap_or(MAP_SIZE_MAX).next_multiple_of(MAP_SIZE_UNIT).max(MAP_SIZE_MIN);
    let left = memory::address_room().map(|room| room.saturating_sub(BESIDE));
    // A half is for memtables, other databases and the program, unless the file needs more.
    let left = left.map(|left| (left / 2).max(left.saturating_sub(HEAP_MOST).min(2 * size)));
    let most = left.map_or(MAP_SIZE_MAX, |left| left as usize / MAP_SIZE_UNIT * MAP_SIZE_UNIT);
    (wanted.min(most).max(least), least)
}

fn open_trees(
    env: *mut ffi::MDB_env,
    options: LmdbOptions,
    entries: &mut dyn FnMut(u64) -> FirstEntries,
) -> Result<[ffi::MDB_dbi; 3]> {
    let creates = options.creates_trees && !options.is_read_only;
    let mut txn = ptr::null_mut();
    // For this transaction alone: the next one syncs the whole file before its meta page.
    let begin_flags = if creates { ffi::MDB_NOSYNC } else { ffi::MDB_RDONLY };
    // SAFETY: the environment is open and `txn` is ours to fill.
    check(unsafe { ffi::mdb_txn_begin(env, ptr::null_mut(), begin_flags, &raw mut txn) })?;
    let mut handles = [0; 3];
    for (tree, handle) in Tree::ALL.into_iter().zip(&mut handles) {
        let name = CString::new(tree.name()).unwrap_or_default();
        let flags = if creates { ffi::MDB_CREATE } else { 0 };
        // SAFETY: the transaction is live, the name NUL-terminated, the handle ours to fill.
        let code = unsafe { ffi::mdb_dbi_open(txn, name.as_ptr(), flags, handle) };
        if code != 0 {
            // SAFETY: the transaction is live and not used afterwards.
            unsafe { ffi::mdb_txn_abort(txn) };
            return Err(if code == ffi::MDB_NOTFOUND {
                EngineError::Damaged { what: "the file lacks the trees of a database", code }
            } else {
                error_of(code)
            });
        }
    }
    if creates {
        // SAFETY: the transaction is live.
        let version = unsafe { ffi::mdb_txn_id(txn) } as u64;
        for (key, value) in entries(version) {
            let [meta, _, _] = handles;
            let (mut key, mut value) = (value_of(&key), value_of(&value));
            // SAFETY: the transaction is live; both values are ours and live during the call.
            let code = unsafe { ffi::mdb_put(txn, meta, &raw mut key, &raw mut value, 0) };
            if code != 0 {
                // SAFETY: the transaction is live and not used afterwards.
                unsafe { ffi::mdb_txn_abort(txn) };
                return Err(error_of(code));
            }
        }
    }
    // Handles outlive a transaction only if it is committed.
    // SAFETY: the transaction is live and not used afterwards.
    check(unsafe { ffi::mdb_txn_commit(txn) })?;
    Ok(handles)
}

impl Environment {
    /// Whether locks show which versions this process reads.
    pub(super) fn shows_versions(&self) -> bool {
        self.shown.is_some()
    }

    pub(crate) fn raw(&self) -> *mut ffi::MDB_env {
        self.raw
    }

    pub(crate) fn handle(&self, tree: Tree) -> ffi::MDB_dbi {
        let [meta, rows, blobs] = self.handles;
        match tree {
            Tree::Meta => meta,
            Tree::Rows => rows,
            Tree::Blobs => blobs,
        }
    }

    pub(crate) fn key_size_max(&self) -> usize {
        self.key_size_max
    }

    pub(crate) fn page_size(&self) -> usize {
        self.page_size
    }

    /// See [`Engine::write_again`].
    fn write_again(&self) -> Result<()> {
        self.check_usable()?;
        // The file is read and written through the same page cache that LMDB has mapped.
        os::write_again(&*self.file()?).map_err(EngineError::of_system)
    }

    /// LMDB's own descriptor, for use while this is borrowed.
    pub(crate) fn file(&self) -> Result<ManuallyDrop<File>> {
        let mut descriptor = -1;
        // SAFETY: the environment is open, and the number ours to fill.
        check(unsafe { ffi::mdb_env_get_fd(self.raw, &raw mut descriptor) })?;
        // SAFETY: the descriptor is open as long as the environment is. It stays LMDB's, since the
        // file is never dropped.
        Ok(ManuallyDrop::new(unsafe { File::from_raw_fd(descriptor) }))
    }

    /// The size of the newest version, if the file is longer and may be cut.
    fn size_to_cut(&self) -> Option<u64> {
        if self.keeps_tail.load(Ordering::Relaxed) {
            return None;
        }
        let size = (self.info().me_last_pgno as u64 + 1) * self.page_size as u64;
        (self.page_size > 0 && self.file().ok()?.metadata().ok()?.len() > size).then_some(size)
    }

    /// Truncate what uncommitted transactions have appended to the file: until then neither the log
    /// nor another program can use that room. The caller has LMDB's writer lock and has changed
    /// nothing yet, so no other process extends the file. No reader reads beyond its version's last
    /// page, and none has a newer version.
    ///
    /// Nothing is cut if the number of the last page disagrees with the trees and the list of free
    /// pages: if it is damaged, the pages after it may be in use.
    pub(crate) fn cut_tail(&self) {
        if let Some(size) = self.size_to_cut()
            && let Ok(file) = self.file()
            && self.newest(&file).is_ok_and(|(pages, meta)| proof::counts_all(&pages, &meta))
        {
            // If this fails, the next committed transaction uses the room.
            let _ = file.set_len(size);
        }
    }

    /// The pages of the newest version, in the file. The caller has LMDB's writer lock, so no other
    /// process writes.
    fn newest<'f>(&self, file: &'f File) -> Result<(PageFile<'f>, Meta)> {
        let (metas, size) = PageFile::metas(file)
            .and_then(|metas| Ok((metas, file.metadata()?.len())))
            .map_err(EngineError::Io)?;
        let version = self.info().me_last_txnid as u64;
        let newest = metas.into_iter().flatten().max_by_key(|meta| meta.txn);
        let meta = newest.filter(|meta| meta.txn == version);
        let what = "neither meta page is of the newest version";
        let meta = meta.ok_or(EngineError::BadPage { page: 0, what })?;
        Ok((PageFile::new(file, meta.page_size, size), meta))
    }

    /// As `cut_tail`, after an uncommitted transaction. No other process may write the tree
    /// meanwhile.
    pub(crate) fn give_back(&self) {
        if self.size_to_cut().is_none() || self.check_usable().is_err() {
            return;
        }
        let mut txn = ptr::null_mut();
        // SAFETY: the environment is open, `txn` ours to fill.
        if unsafe { ffi::mdb_txn_begin(self.raw, ptr::null_mut(), 0, &raw mut txn) } != 0 {
            return;
        }
        self.cut_tail();
        // SAFETY: the transaction is live, ours, and not used afterwards.
        unsafe { ffi::mdb_txn_abort(txn) };
    }

    /// Whether a transaction may make the file longer although it has free pages. Not for a while
    /// after one found no room: there may be a limit that the system does not tell, such as a
    /// quota.
    pub(crate) fn may_grow(&self) -> bool {
        const WHILE: Duration = Duration::from_secs(600);
        let full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        full_at.is_none_or(|at| at.elapsed() >= WHILE)
    }

    /// Whether this process opened it, not a parent before a fork.
    pub(crate) fn is_ours(&self) -> bool {
        self.generation == os::generation()
    }

    pub(crate) fn check_usable(&self) -> Result<()> {
        if !self.is_ours() {
            return Err(EngineError::Forked);
        }
        if self.is_broken.load(Ordering::Relaxed) {
            return Err(EngineError::Broken);
        }
        Ok(())
    }

    /// Note that LMDB has given up on the file: it does so when writing the meta page fails.
    pub(crate) fn mark_broken(&self) {
        self.is_broken.store(true, Ordering::Relaxed);
    }

    /// As [`check`], for a code that a write transaction got.
    pub(crate) fn check(&self, code: c_int) -> Result<()> {
        if matches!(code, ffi::MDB_MAP_FULL | libc::ENOSPC | libc::EDQUOT | libc::EFBIG) {
            *self.full_at.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        match code {
            ffi::MDB_MAP_FULL => Err(EngineError::MapTooSmall { reserved: self.info().me_mapsize as u64 }),
            code => check(code),
        }
    }

    pub(crate) fn begin_error(&self, code: c_int) -> EngineError {
        match code {
            ffi::MDB_READERS_FULL => self.readers_full(READERS_MAX),
            ffi::MDB_MAP_RESIZED | ffi::MDB_MAP_FULL => {
                EngineError::MapTooSmall { reserved: self.info().me_mapsize as u64 }
            }
            ffi::MDB_PANIC => {
                self.mark_broken();
                EngineError::Broken
            }
            code => error_of(code),
        }
    }

    pub(crate) fn info(&self) -> ffi::MDB_envinfo {
        let mut info = ffi::MDB_envinfo {
            me_mapaddr: ptr::null_mut(),
            me_mapsize: 0,
            me_last_pgno: 0,
            me_last_txnid: 0,
            me_maxreaders: 0,
            me_numreaders: 0,
        };
        // SAFETY: the environment is open and `info` is ours to fill; with both pointers given the
        // call cannot fail.
        unsafe { ffi::mdb_env_info(self.raw, &raw mut info) };
        info
    }

    /// The heads of a version. Calls `find` if it is not the version that was last read.
    pub(crate) fn heads(&self, version: u64, find: impl FnOnce() -> Option<Heads>) -> Option<Arc<Heads>> {
        let mut last = self.heads.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(heads) = last.as_ref().filter(|heads| heads.version == version) {
            return Some(Arc::clone(heads));
        }
        *last = find().map(Arc::new);
        last.clone()
    }

    /// The address of the map, found from an address inside it. `None` if leaf pages cannot be read
    /// directly here.
    pub(crate) fn map_bounds(&self, address_inside: usize) -> Option<MapBounds> {
        *self.map_bounds.get_or_init(|| MapBounds::find(address_inside, self.page_size))
    }
}

impl Drop for Environment {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        let idle = std::mem::take(self.idle_readers.get_mut().unwrap_or_else(PoisonError::into_inner));
        for IdleReader(txn, _) in idle {
            // SAFETY: transactions in the pool have no other user.
            unsafe { ffi::mdb_txn_abort(txn) };
        }
        // SAFETY: transactions hold an `Arc` of the environment, so none is left. Nothing has the
        // context any more after that.
        unsafe {
            ffi::mdb_env_close(self.raw);
            ffi::pellucid_free_context(self.context);
        }
        // The file with our locks is closed after the environment, which frees our places.
        OPEN_COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Engine for LmdbEngine {
    fn key_size_max(&self) -> usize {
        self.environment.key_size_max
    }

    fn version(&self) -> u64 {
        self.environment.info().me_last_txnid as u64
    }

    fn begin_read(&self) -> Result<Box<dyn ReadTxn>> {
        Ok(Box::new(LmdbRead::begin(Arc::clone(&self.environment))?))
    }

    fn begin_write(&self) -> Result<Box<dyn WriteTxn>> {
        Ok(Box::new(LmdbWrite::begin(Arc::clone(&self.environment))?))
    }

    fn sync(&self) -> Result<()> {
        self.environment.check_usable()?;
        // SAFETY: the environment is open.
        check(unsafe { ffi::mdb_env_sync(self.environment.raw, 1) })
    }

    fn usage(&self) -> Result<Usage> {
        let read = LmdbRead::begin(Arc::clone(&self.environment))?;
        let info = self.environment.info();
        let (readers, newest) = (self.environment.readers()?, self.version());
        let (free_pages, pinned_pages) = read.free_pages(newest)?;
        Ok(Usage {
            page_size: self.environment.page_size as u64,
            pages: info.me_last_pgno as u64 + 1,
            free_pages,
            pinned_pages,
            map_size: info.me_mapsize as u64,
            reader_slots: info.me_maxreaders,
            readers: readers.count,
            oldest_reader: readers.oldest_under(newest),
            pending: 0,
            recovered: 0,
            log: 0,
            log_limit: 0,
            history: 0,
            entries: read.entry_counts()?,
        })
    }

    fn tree_file(&self) -> Option<&dyn TreeFile> {
        Some(self)
    }
}

impl RowAccess for LmdbEngine {}

impl TreeFile for LmdbEngine {
    fn check_reader_room(&self, keeps: bool) -> Result<()> {
        self.environment.check_reader_room(keeps)
    }

    fn prove(&self, changes: &mut dyn Iterator<Item = Change<'_>>) -> Result<()> {
        self.environment.check_usable()?;
        let file = self.environment.file()?;
        let (pages, meta) = self.environment.newest(&file)?;
        proof::prove(&pages, &meta, changes)
            .map_err(|fault| EngineError::BadPage { page: fault.page, what: fault.what })
    }

    fn extents(&self) -> Option<Arc<dyn Extents>> {
        let is_known_order = cfg!(target_endian = "little");
        is_known_order.then(|| Arc::new(FileExtents::new(&self.environment)) as Arc<dyn Extents>)
    }

    fn write_again(&self) -> Result<()> {
        self.environment.write_again()
    }

    fn keep_tail(&self, keeps: bool) {
        self.environment.keeps_tail.store(keeps, Ordering::Relaxed);
    }

    fn cut_tail(&self) {
        self.environment.cut_tail();
    }

    fn oldest_reader(&self) -> Result<OldestReader> {
        self.environment.check_usable()?;
        Ok(self.environment.readers()?.oldest_under(self.version()))
    }

    fn size(&self) -> u64 {
        if !self.environment.is_ours() {
            return 0;
        }
        (self.environment.info().me_last_pgno as u64 + 1) * self.environment.page_size as u64
    }
}

pub(crate) fn empty_stat() -> ffi::MDB_stat {
    ffi::MDB_stat {
        ms_psize: 0,
        ms_depth: 0,
        ms_branch_pages: 0,
        ms_leaf_pages: 0,
        ms_overflow_pages: 0,
        ms_entries: 0,
    }
}

/// `Ok` for 0, else the error of the code.
pub(crate) fn check(code: c_int) -> Result<()> {
    if code == 0 { Ok(()) } else { Err(error_of(code)) }
}

/// The store's error for a code of LMDB or of the operating system.
pub(crate) fn error_of(code: c_int) -> EngineError {
    let damaged = |what| EngineError::Damaged { what, code };
    match code {
        libc::ENOSPC | libc::EDQUOT | libc::EFBIG => {
            EngineError::DiskFull(io::Error::from_raw_os_error(code))
        }
        ffi::MDB_TXN_FULL => EngineError::TransactionTooLarge,
        ffi::MDB_PANIC => EngineError::Broken,
        libc::ENOMEM => EngineError::NoMemory("pages of the database"),
        ffi::MDB_MAP_FULL | ffi::MDB_MAP_RESIZED => EngineError::MapTooSmall { reserved: 0 },
        ffi::MDB_READERS_FULL => EngineError::ReadersFull { own: 0, taken: READERS_MAX, slots: READERS_MAX },
        ffi::MDB_INVALID => damaged("the file is not an LMDB file"),
        ffi::MDB_VERSION_MISMATCH => damaged("the file, or its lock file, is of another LMDB version"),
        ffi::MDB_PAGE_NOTFOUND => damaged("a page refers to a page beyond the end"),
        ffi::MDB_CORRUPTED => damaged("a page is of the wrong kind"),
        ffi::MDB_CURSOR_FULL => damaged("a tree is deeper than any tree can be"),
        ffi::MDB_INCOMPATIBLE => damaged("the file's pages do not add up"),
        ffi::MDB_BAD_TXN => EngineError::Misuse("the transaction failed earlier and can only be aborted"),
        code if code > 0 => EngineError::Io(io::Error::from_raw_os_error(code)),
        _ => damaged("an unexpected answer"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thousand_databases_fit_into_the_address_space_of_a_process() {
        const ROOM: usize = 1 << 47;
        let sizes: Vec<usize> = (0..1000).map(|count| map_sizes_for(count, c"/nowhere").0).collect();
        assert_eq!(sizes[..MAP_LOT], [MAP_SIZE_MAX; MAP_LOT]);
        assert!(sizes.iter().sum::<usize>() < ROOM - ROOM / 8);
        assert_eq!(map_sizes_for(usize::MAX, c"/nowhere").0, MAP_SIZE_MANY);
    }
}
