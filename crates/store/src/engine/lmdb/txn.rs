//! LMDB's transactions, and how its rules for them are kept.
//!
//! The rules, and what upholds them here:
//!
//! - A read transaction loads the roots of its trees on first use, which two threads must not do at
//!   once (`LmdbRead::warm`).
//! - A write transaction belongs to the thread that began it (every method checks).
//! - Cursors end before their transaction (lifetimes, and `LmdbWrite::close_cursors`).
//! - Nothing of a parent process is touched after a fork (`Environment::is_ours`).
#![allow(unsafe_code)]

use std::ffi::{c_int, c_uint};
use std::ptr;
use std::slice;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use pellucid_lmdb_sys as ffi;
use pellucid_record::encode::copy;

use crate::engine::lmdb::cursor::{EMPTY, LmdbCursor, bytes_of, read_error, value_of};
use crate::engine::lmdb::format::{TreeHead, free_list};
use crate::engine::lmdb::free_pages::SetAside;
use crate::engine::lmdb::live_writes::{LiveWrite, abort_writes_of, current_thread, live_writes};
use crate::engine::lmdb::page::{MapBounds, Pages, next_number, read_u64};
use crate::engine::lmdb::search::{self, Unsure};
use crate::engine::lmdb::search_many;
use crate::engine::lmdb::walk::{self, PageCursor};
use crate::engine::lmdb::{
    Environment, Heads, check, empty_stat, error_of, estimate, extents, fill, moves, parts,
};
use crate::engine::{
    Contents, Cursor, Direction, EngineError, EntryPlace, EntryResult, FileSize, Fullness, LogBatch,
    MovesPages, Parked, ReadTxn, Result, Start, TailEntry, Tree, Underfilled, WriteTxn,
};

/// LMDB's handle of the tree that lists free pages.
const FREE_TREE: ffi::MDB_dbi = 0;
/// LMDB's handle of the tree that has the names and heads of the others.
const MAIN_TREE: ffi::MDB_dbi = 1;

/// # Safety
/// The transaction is live, and nothing is written in it for `'t`.
pub(super) unsafe fn get<'t>(
    txn: *mut ffi::MDB_txn,
    handle: ffi::MDB_dbi,
    key: &[u8],
) -> Result<Option<&'t [u8]>> {
    let mut key = value_of(key);
    let mut data = EMPTY;
    // SAFETY: the transaction is live, both values are ours.
    match unsafe { ffi::mdb_get(txn, handle, &raw mut key, &raw mut data) } {
        // SAFETY: as the caller promises.
        0 => Ok(Some(unsafe { bytes_of(data) })),
        ffi::MDB_NOTFOUND => Ok(None),
        code => Err(read_error(code)),
    }
}

/// One version of a database in a file.
pub(crate) struct LmdbRead {
    pub(super) txn: *mut ffi::MDB_txn,
    environment: Arc<Environment>,
    /// Which trees' roots are loaded. Loading changes the transaction; reading afterwards does not.
    is_warm: [AtomicBool; 3],
    warming: Mutex<()>,
    /// What searches in the map begin with. `None` if LMDB has to search.
    heads: OnceLock<Option<Arc<Heads>>>,
}

// SAFETY: with NOTLS a read transaction may move between threads. Several threads at once only read
// it: what LMDB would change in it, the roots, is loaded under `warming` before (`warm`). Cursors
// of read transactions are not linked to it.
unsafe impl Send for LmdbRead {}
// SAFETY: as above.
unsafe impl Sync for LmdbRead {}

impl LmdbRead {
    pub(crate) fn begin(environment: Arc<Environment>) -> Result<Self> {
        let (txn, heads) = environment.take_reader()?;
        let heads = heads.map_or_else(OnceLock::new, |heads| OnceLock::from(Some(heads)));
        Ok(Self { txn, environment, is_warm: Default::default(), warming: Mutex::new(()), heads })
    }

    #[inline]
    fn warm(&self, tree: Tree) -> Result<ffi::MDB_dbi> {
        let handle = self.environment.handle(tree);
        let is_warm = self.is_warm.get(tree.index());
        if is_warm.is_some_and(|flag| flag.load(Ordering::Acquire)) {
            return Ok(handle);
        }
        self.check_ours()?;
        let _alone = self.warming.lock().unwrap_or_else(PoisonError::into_inner);
        let mut stat = empty_stat();
        // SAFETY: the transaction is live, and no other thread loads a root meanwhile.
        check(unsafe { ffi::mdb_stat(self.txn, handle, &raw mut stat) })?;
        if let Some(flag) = is_warm {
            flag.store(true, Ordering::Release);
        }
        Ok(handle)
    }

    fn check_ours(&self) -> Result<()> {
        if self.environment.is_ours() { Ok(()) } else { Err(EngineError::Forked) }
    }

    /// Entries in each tree.
    pub(crate) fn entry_counts(&self) -> Result<[u64; 3]> {
        let mut counts = [0; 3];
        for (tree, count) in Tree::ALL.into_iter().zip(&mut counts) {
            *count = self.stat(tree)?.ms_entries as u64;
        }
        Ok(counts)
    }

    /// The statistics in a tree's head.
    fn stat(&self, tree: Tree) -> Result<ffi::MDB_stat> {
        let handle = self.warm(tree)?;
        let mut stat = empty_stat();
        // SAFETY: the transaction is live.
        check(unsafe { ffi::mdb_stat(self.txn, handle, &raw mut stat) })?;
        Ok(stat)
    }

    /// The head of a tree, and the map with its pages. `None` if the pages cannot be read directly.
    fn head_of(&self, tree: Tree) -> Result<Option<(TreeHead, MapBounds)>> {
        self.check_ours()?;
        // SAFETY: the transaction is live while `self` is borrowed, and it cannot be written in.
        let Some(head) = (unsafe { get(self.txn, MAIN_TREE, tree.name().as_bytes()) })? else {
            return Ok(None);
        };
        let bounds = self.environment.map_bounds(head.as_ptr() as usize);
        Ok(TreeHead::parse(head).zip(bounds))
    }

    /// The head of a tree and the pages of this version, for a search in the map.
    #[inline]
    fn searched(&self, tree: Tree, key: &[u8]) -> Option<(&TreeHead, Pages<'_>)> {
        if key.is_empty() || key.len() > self.environment.key_size_max() {
            return None;
        }
        self.pages_of(tree)
    }

    /// The head of a tree and the pages of this version; `None` where LMDB has to be asked.
    #[inline]
    fn pages_of(&self, tree: Tree) -> Option<(&TreeHead, Pages<'_>)> {
        let heads = self.heads.get_or_init(|| {
            let version = ReadTxn::version(self);
            self.environment.heads(version, || self.find_heads(version))
        });
        let heads = heads.as_ref()?;
        // SAFETY: this transaction keeps the pages of its version as they are while `self` is
        // borrowed, and all numbers begin with the roots of that version's trees. The file had
        // `page_count` pages when they were found, and never has fewer later.
        let pages = unsafe { Pages::new(heads.bounds, heads.page_count, heads.number) };
        Some((heads.trees.get(tree.index())?, pages))
    }

    fn find_heads(&self, version: u64) -> Option<Heads> {
        let [meta, rows, blobs] = Tree::ALL.map(|tree| self.head_of(tree).ok().flatten());
        let ((meta, bounds), (rows, _), (blobs, _)) = (meta?, rows?, blobs?);
        let trees = [meta, rows, blobs];
        let page_count = self.environment.info().me_last_pgno as u64 + 1;
        trees.iter().all(TreeHead::is_plain).then_some(Heads {
            version,
            number: next_number(),
            trees,
            bounds,
            page_count,
        })
    }

    /// The number of free pages, and of those among them that a reader of an older version than the
    /// newest one needs.
    pub(crate) fn free_pages(&self, newest: u64) -> Result<(u64, u64)> {
        let mut readers = self.environment.reader_versions();
        readers.retain(|reader| *reader < newest);
        let mut cursor = LmdbCursor::open(self.txn, FREE_TREE, &self.environment)?;
        cursor.start(Start::Edge, Direction::Forward)?;
        let (mut pages, mut pinned) = (0, 0);
        while let Some(entry) = cursor.step()? {
            let count = extents::free_pages_in(entry);
            pages += count;
            let freed = read_u64(entry.0, 0).unwrap_or(0);
            if count > 0 && readers.first().is_some_and(|oldest| *oldest <= freed) {
                let list = free_list(entry.1).unwrap_or_default();
                pinned += self.environment.count_pinned(&list, freed, &readers);
            }
        }
        Ok((pages, pinned))
    }
}

impl Drop for LmdbRead {
    fn drop(&mut self) {
        self.environment.give_reader(self.txn, self.heads.take().flatten());
    }
}

impl Contents for LmdbRead {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>> {
        if let Some((head, pages)) = self.searched(tree, key) {
            return search::get(pages, head, key).or_else(|Unsure| walk::get(pages, head, key));
        }
        let handle = self.warm(tree)?;
        // SAFETY: the transaction is live while `self` is borrowed, and it cannot be written in.
        unsafe { get(self.txn, handle, key) }
    }

    fn find_many(&self, tree: Tree, keys: &[&[u8]], places: &mut [EntryPlace]) {
        if let Some((head, pages)) = self.pages_of(tree) {
            search_many::find(pages, head, keys, places);
        }
    }

    fn ask_for(&self, tree: Tree, keys: &[&[u8]]) {
        // 16 MiB: a smaller tree is in the cache while it is used.
        const LARGE: u64 = 1 << 12;
        if let Some((head, pages)) = self.pages_of(tree).filter(|(head, _)| head.leaf_pages >= LARGE) {
            search_many::ask_for(pages, head, keys);
        }
    }

    #[inline]
    fn get_at(&self, tree: Tree, key: &[u8], place: EntryPlace) -> Result<Option<&[u8]>> {
        let found = self.pages_of(tree).and_then(|(_, pages)| search_many::get_at(pages, key, place));
        if found.is_some() { Ok(found) } else { self.get(tree, key) }
    }

    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>> {
        self.check_ours()?;
        if let Some((head, pages)) = self.pages_of(tree) {
            return Ok(Box::new(PageCursor::new(pages, head)));
        }
        let handle = self.warm(tree)?;
        Ok(Box::new(LmdbCursor::open(self.txn, handle, &self.environment)?))
    }

    fn first_from(&self, tree: Tree, start: Start<'_>, direction: Direction) -> EntryResult<'_> {
        if let Start::At(key) = start
            && let Some((head, pages)) = self.searched(tree, key)
        {
            let found = match direction {
                Direction::Forward => search::at_or_above(pages, head, key),
                Direction::Reverse => search::below(pages, head, key),
            };
            return found.or_else(|Unsure| walk::first_from(pages, head, start, direction));
        }
        let mut cursor = self.cursor(tree)?;
        cursor.start(start, direction)?;
        cursor.step()
    }
}

impl ReadTxn for LmdbRead {
    fn version(&self) -> u64 {
        // SAFETY: the transaction is live.
        unsafe { ffi::mdb_txn_id(self.txn) as u64 }
    }

    /// By the tree's head alone: this is called when a file is opened, before any page with rows
    /// was verified.
    fn is_empty(&self, tree: Tree) -> Result<bool> {
        Ok(self.stat(tree)?.ms_entries == 0)
    }

    fn separators(&self, tree: Tree, start: &[u8], end: Option<&[u8]>, count: usize) -> Result<Vec<Vec<u8>>> {
        self.check_ours()?;
        let pages = self.pages_of(tree);
        Ok(pages.map_or_else(Vec::new, |(head, pages)| parts::separators(pages, head, start, end, count)))
    }

    fn tail_entries(&self, tree: Tree, from: u64, most: usize) -> Result<Vec<TailEntry>> {
        self.check_ours()?;
        let pages = self.pages_of(tree);
        pages.map_or(Ok(Vec::new()), |(head, pages)| moves::tail_entries(pages, (tree, head), from, most))
    }

    fn fullness(&self, tree: Tree) -> Result<Fullness> {
        self.check_ours()?;
        self.pages_of(tree).map_or(Ok(Fullness::default()), |(head, pages)| fill::fullness(pages, head))
    }

    fn underfilled(&self, tree: Tree, most: usize) -> Result<Vec<Underfilled>> {
        self.check_ours()?;
        let pages = self.pages_of(tree);
        pages.map_or(Ok(Vec::new()), |(head, pages)| fill::underfilled(pages, (tree, head), most))
    }

    fn entries_between(&self, tree: Tree, start: &[u8], end: Option<&[u8]>) -> Result<Option<u64>> {
        self.check_ours()?;
        let pages = self.pages_of(tree);
        Ok(pages.and_then(|(head, pages)| estimate::entries_between(pages, head, start, end)))
    }

    fn park(self: Box<Self>) -> Option<Box<dyn Parked>> {
        // What shows a version by a lock would go on showing it.
        if !self.environment.is_ours() || self.environment.shows_versions() {
            return None;
        }
        // SAFETY: the transaction is live, and nothing borrows from it. `ParkedRead` reads nothing.
        unsafe { ffi::pellucid_park(self.txn) };
        // SAFETY: `ParkedRead` is transparent.
        Some(unsafe { Box::from_raw(Box::into_raw(self).cast::<ParkedRead>()) })
    }
}

/// A read transaction without a version. It can do nothing but begin again, or be dropped.
#[repr(transparent)]
struct ParkedRead(LmdbRead);

impl Parked for ParkedRead {
    fn begin(self: Box<Self>) -> Option<Box<dyn ReadTxn>> {
        self.0.environment.check_usable().ok()?;
        // SAFETY: the transaction was parked, and is ours alone.
        let is_newest = unsafe { ffi::pellucid_unpark(self.0.txn) } != 0;
        // SAFETY: `ParkedRead` is transparent, and the transaction has its version again.
        is_newest
            .then(|| unsafe { Box::from_raw(Box::into_raw(self).cast::<LmdbRead>()) } as Box<dyn ReadTxn>)
    }
}

/// Append an entry where the cursor stands, if it stands at the tree's end and the page has room.
///
/// # Safety
/// As for `mdb_cursor_put`.
#[inline]
unsafe fn append_here(
    cursor: *mut ffi::MDB_cursor,
    key: *mut ffi::MDB_val,
    data: *mut ffi::MDB_val,
) -> c_int {
    #[cfg(test)]
    if tests::IS_OFF.get() {
        return ffi::MDB_NOTFOUND;
    }
    // SAFETY: as promised by the caller.
    let code = unsafe { ffi::pellucid_append(cursor, key, data) };
    #[cfg(test)]
    tests::ADDED.set(tests::ADDED.get() + u64::from(code == 0));
    code
}

/// A value with a size and no bytes: LMDB reserves room for it.
pub(super) fn room_for(parts: &[&[u8]]) -> ffi::MDB_val {
    ffi::MDB_val { mv_size: parts.iter().map(|part| part.len()).sum(), mv_data: ptr::null_mut() }
}

/// Write a value, in parts, into the room that LMDB has reserved for it.
///
/// # Safety
/// `data` is room of the size of all parts on a page that LMDB has copied for this transaction.
pub(super) unsafe fn write_parts(data: ffi::MDB_val, parts: &[&[u8]]) {
    let mut target: *mut u8 = data.mv_data.cast();
    for part in parts {
        // SAFETY: within that room, as promised by the caller. The parts are borrowed from
        // elsewhere, so they do not overlap.
        unsafe {
            copy(slice::from_raw_parts_mut(target, part.len()), part);
            target = target.add(part.len());
        }
    }
}

/// Changed pages that a transaction keeps in memory: 32 MiB, less in a small container. The rest is
/// written ahead of its commit, and is on its way to the disk while the transaction goes on.
#[cfg(not(test))]
fn changed_pages_max(page_size: usize) -> c_uint {
    (crate::sys::cgroup::at_most(32 << 20, 16) / page_size.max(1) as u64) as c_uint
}

#[cfg(test)]
use tests::changed_pages_max;

/// A write transaction, with LMDB's nested transactions as savepoints.
pub(crate) struct LmdbWrite {
    /// The outermost transaction first; changes go into the last.
    txns: Vec<*mut ffi::MDB_txn>,
    /// One cursor for each tree, kept between calls: keys near the last one are found without a
    /// search.
    cursors: [*mut ffi::MDB_cursor; 3],
    /// Whether the tree's cursor is still where `find` left it.
    is_found: [bool; 3],
    /// Free pages that it takes last.
    pub(super) set_aside: SetAside,
    /// How many changed pages it keeps in memory.
    changed_max: c_uint,
    owner: u64,
    environment: Arc<Environment>,
    _stand_in: Option<LmdbRead>,
}

/// Begin a write transaction, with what keeps the pages of readers that have no place in the lock
/// file as long as it lasts.
fn begin_outermost(environment: &Arc<Environment>) -> Result<(*mut ffi::MDB_txn, Option<LmdbRead>)> {
    let mut txn = ptr::null_mut();
    // SAFETY: the environment is open, `txn` ours to fill.
    match unsafe { ffi::mdb_txn_begin(environment.raw(), ptr::null_mut(), 0, &raw mut txn) } {
        0 => {}
        code => return Err(environment.begin_error(code)),
    }
    match environment.stand_in() {
        Ok(stand_in) => Ok((txn, stand_in)),
        Err(error) => {
            // SAFETY: the transaction is live and ours, and not used afterwards.
            unsafe { ffi::mdb_txn_abort(txn) };
            Err(error)
        }
    }
}

/// How many write transactions there are between two checks for dead readers. Checks are needed so
/// that the pages of a dead process are freed some time; not each time, since they ask the system
/// about each process.
const READER_CHECK_INTERVAL: usize = 64;

// SAFETY: every method first checks that it runs in the thread that began the transaction.
unsafe impl Send for LmdbWrite {}
// SAFETY: as above.
unsafe impl Sync for LmdbWrite {}

impl LmdbWrite {
    pub(crate) fn begin(environment: Arc<Environment>) -> Result<Self> {
        environment.check_usable()?;
        let owner = current_thread();
        abort_writes_of(owner, |live| live.is_dropped);
        let (mut txn, mut stand_in) = begin_outermost(&environment)?;
        // Remove what a process has left that died in a transaction.
        environment.cut_tail();
        // SAFETY: the transaction is live.
        if (unsafe { ffi::mdb_txn_id(txn) } as usize).is_multiple_of(READER_CHECK_INTERVAL) {
            // A failure leaves things as they are.
            let _ = environment.free_dead_readers();
        }
        match environment.prepare_free_pages(txn) {
            Ok(true) => {}
            ended => {
                // SAFETY: the transaction is live and ours, and not used afterwards.
                unsafe { ffi::mdb_txn_abort(txn) };
                ended?;
                (txn, stand_in) = begin_outermost(&environment)?;
            }
        }
        live_writes().push(LiveWrite {
            txn,
            environment: Arc::clone(&environment),
            owner,
            is_dropped: false,
        });
        let cursors = [ptr::null_mut(); 3];
        let set_aside = SetAside::default();
        let changed_max = changed_pages_max(environment.page_size());
        Ok(Self {
            txns: vec![txn],
            cursors,
            is_found: [false; 3],
            set_aside,
            changed_max,
            owner,
            environment,
            _stand_in: stand_in,
        })
    }

    /// The current transaction, if this thread may use it.
    #[inline]
    pub(super) fn txn(&self) -> Result<*mut ffi::MDB_txn> {
        if self.owner != current_thread() {
            return Err(EngineError::WrongThread);
        }
        if !self.environment.is_ours() {
            return Err(EngineError::Forked);
        }
        match self.txns.last() {
            Some(txn) => Ok(*txn),
            None => Err(EngineError::Misuse("the transaction is over")),
        }
    }

    #[inline]
    pub(super) fn write_cursor(&mut self, tree: Tree) -> Result<*mut ffi::MDB_cursor> {
        self.supply()?;
        let txn = self.txn()?;
        let handle = self.environment.handle(tree);
        let Some(cursor) = self.cursors.get_mut(tree.index()) else {
            return Err(EngineError::Misuse("no such tree"));
        };
        if cursor.is_null() {
            // SAFETY: the transaction is live, the pointer ours to fill.
            check(unsafe { ffi::mdb_cursor_open(txn, handle, cursor) })?;
        }
        Ok(*cursor)
    }

    pub(super) fn environment(&self) -> &Environment {
        &self.environment
    }

    pub(super) fn close_cursors(&mut self) {
        for cursor in &mut self.cursors {
            if !cursor.is_null() {
                // SAFETY: the cursor is open and its transaction live.
                unsafe { ffi::mdb_cursor_close(*cursor) };
                *cursor = ptr::null_mut();
            }
        }
        self.is_found = [false; 3];
    }

    pub(super) fn check_key(&self, key: &[u8]) -> Result<()> {
        let size_max = self.environment.key_size_max();
        if key.is_empty() || key.len() > size_max {
            return Err(EngineError::KeySize { size: key.len(), size_max });
        }
        Ok(())
    }

    pub(super) fn set_found(&mut self, tree: Tree, is_found: bool) {
        if let Some(flag) = self.is_found.get_mut(tree.index()) {
            *flag = is_found;
        }
    }

    fn take_found(&mut self, tree: Tree) -> Result<()> {
        let is_found = self.is_found.get_mut(tree.index()).is_some_and(std::mem::take);
        if is_found { Ok(()) } else { Err(EngineError::Misuse("replace or delete without a find")) }
    }

    /// Reserve room for a value and write its parts there. Returns 0 or LMDB's code, and the
    /// address of the value.
    #[inline]
    pub(super) fn put_with(
        &mut self,
        tree: Tree,
        key: &[u8],
        parts: &[&[u8]],
        flags: c_uint,
    ) -> Result<c_int> {
        let (mut key, mut data) = (value_of(key), room_for(parts));
        self.supply_for(key.mv_size + data.mv_size)?;
        let cursor = self.write_cursor(tree)?;
        // SAFETY: the cursor is open and its transaction live, both values are ours, and the pages
        // of all cursors stay.
        let code =
            unsafe { ffi::pellucid_write_ahead(cursor, &raw mut key, &raw mut data, self.changed_max) };
        self.environment.check(code)?;
        // SAFETY: the cursor is open and its transaction live; with RESERVE, LMDB reads only the
        // size.
        let code =
            unsafe { ffi::mdb_cursor_put(cursor, &raw mut key, &raw mut data, flags | ffi::MDB_RESERVE) };
        if code == 0 {
            // SAFETY: LMDB has just reserved the room.
            unsafe { write_parts(data, parts) };
        }
        Ok(code)
    }
}

impl Contents for LmdbWrite {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>> {
        let txn = self.txn()?;
        // SAFETY: the transaction is live, and while `self` is borrowed nothing is written in it.
        unsafe { get(txn, self.environment.handle(tree), key) }
    }

    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>> {
        // Changed pages are outside the map.
        Ok(Box::new(LmdbCursor::open(self.txn()?, self.environment.handle(tree), &self.environment)?))
    }
}

impl LogBatch for LmdbWrite {}

impl WriteTxn for LmdbWrite {
    fn version(&self) -> u64 {
        // SAFETY: the outermost transaction is live as long as `self` is; its id does not change.
        self.txns.first().map_or(0, |txn| unsafe { ffi::mdb_txn_id(*txn) as u64 })
    }

    fn is_owner(&self) -> bool {
        self.owner == current_thread()
    }

    fn find(&mut self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>> {
        let cursor = self.write_cursor(tree)?;
        let mut key = value_of(key);
        let mut data = EMPTY;
        // SAFETY: the cursor is open and its transaction live; both values are ours.
        let code = unsafe { ffi::mdb_cursor_get(cursor, &raw mut key, &raw mut data, ffi::MDB_SET_KEY) };
        self.set_found(tree, code == 0);
        match code {
            // SAFETY: while `self` is borrowed nothing is written in the transaction.
            0 => Ok(Some(unsafe { bytes_of(data) })),
            ffi::MDB_NOTFOUND => Ok(None),
            code => Err(error_of(code)),
        }
    }

    fn replace_found(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<()> {
        self.take_found(tree)?;
        let code = self.put_with(tree, key, parts, ffi::MDB_CURRENT)?;
        self.environment.check(code)
    }

    fn delete_found(&mut self, tree: Tree, _key: &[u8]) -> Result<()> {
        let cursor = self.write_cursor(tree)?;
        self.take_found(tree)?;
        let none = ptr::null_mut();
        // SAFETY: the cursor is open on an entry, its transaction live, and its pages stay.
        let code = unsafe { ffi::pellucid_write_ahead(cursor, none, none, self.changed_max) };
        self.environment.check(code)?;
        // SAFETY: as above.
        self.environment.check(unsafe { ffi::mdb_cursor_del(cursor, 0) })
    }

    fn put(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<()> {
        self.check_key(key)?;
        self.set_found(tree, false);
        let cursor = self.write_cursor(tree)?;
        let mut bytes = value_of(key);
        // SAFETY: the cursor is open and its transaction live, and LMDB copies nothing of the key.
        // No other cursor is open in this tree while it is written.
        let code = unsafe { ffi::pellucid_split_behind(cursor, &raw mut bytes, room_for(parts).mv_size) };
        self.environment.check(code)?;
        let code = self.put_with(tree, key, parts, 0)?;
        self.environment.check(code)
    }

    #[inline]
    fn append(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<bool> {
        self.check_key(key)?;
        let cursor = self.write_cursor(tree)?;
        self.set_found(tree, false);
        let mut bytes = value_of(key);
        let mut data = room_for(parts);
        // SAFETY: the cursor is open and its transaction live; LMDB copies the key and reads only
        // the value's size.
        let code = unsafe { append_here(cursor, &raw mut bytes, &raw mut data) };
        if code == 0 {
            // SAFETY: LMDB has just reserved the room.
            unsafe { write_parts(data, parts) };
            return Ok(true);
        }
        match self.put_with(tree, key, parts, ffi::MDB_APPEND)? {
            ffi::MDB_KEYEXIST => Ok(false),
            code => self.environment.check(code).map(|()| true),
        }
    }

    fn clear(&mut self, tree: Tree) -> Result<()> {
        let txn = self.txn()?;
        self.close_cursors();
        // SAFETY: the transaction is live and has no cursors; the handle stays valid (0: do not
        // delete it).
        self.environment.check(unsafe { ffi::mdb_drop(txn, self.environment.handle(tree), 0) })
    }

    fn savepoint(&mut self) -> Result<()> {
        self.add_set_aside()?;
        let parent = self.txn()?;
        if self.txns.len() == 1 {
            // Nothing is written ahead in a nested transaction, and its changed pages are the
            // parent's afterwards. Many of them would fill the memory.
            let (cursor, none) = (self.write_cursor(Tree::Rows)?, ptr::null_mut());
            // SAFETY: the cursor is open and its transaction live.
            let code = unsafe { ffi::pellucid_write_ahead(cursor, none, none, self.changed_max) };
            self.environment.check(code)?;
        }
        self.close_cursors();
        let mut child = ptr::null_mut();
        // SAFETY: the environment is open, the parent live and without cursors, `child` ours to
        // fill.
        check(unsafe { ffi::mdb_txn_begin(self.environment.raw(), parent, 0, &raw mut child) })?;
        self.txns.push(child);
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        let child = self.txn()?;
        if self.txns.len() < 2 {
            return Err(EngineError::Misuse("rollback without a savepoint"));
        }
        self.close_cursors();
        self.txns.pop();
        // SAFETY: the child is live, has no cursors, and is not used afterwards.
        unsafe { ffi::mdb_txn_abort(child) };
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        let child = self.txn()?;
        if self.txns.len() < 2 {
            return Err(EngineError::Misuse("release without a savepoint"));
        }
        self.close_cursors();
        self.txns.pop();
        // SAFETY: as above.
        check(unsafe { ffi::mdb_txn_commit(child) })
    }

    fn pages(&mut self) -> Option<&mut dyn MovesPages> {
        (self.txns.len() == 1).then_some(self as &mut dyn MovesPages)
    }

    fn file_size(&self) -> Result<FileSize> {
        self.txn()?;
        let Some(outermost) = self.txns.first() else { return Ok(FileSize::default()) };
        // SAFETY: the transaction is live, and this thread does not change it meanwhile.
        let pages = unsafe { ffi::pellucid_txn_pages(*outermost) } as u64;
        let now = self.environment.file()?.metadata().map_err(EngineError::Io)?.len();
        Ok(FileSize { now, after: (pages * self.environment.page_size() as u64).max(now) })
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        self.add_set_aside()?;
        self.txn()?;
        self.close_cursors();
        let outermost = self.txns.first().copied();
        self.txns.clear();
        live_writes().retain(|live| Some(live.txn) != outermost);
        match outermost {
            Some(txn) => {
                // SAFETY: the transaction is live.
                let version = unsafe { ffi::mdb_txn_id(txn) } as u64;
                // SAFETY: the transaction is live, has no cursors, and is not used afterwards; it
                // commits the ones nested in it.
                let done = self.environment.check(unsafe { ffi::mdb_txn_commit(txn) });
                done.inspect(|()| self.environment.note_commit(version))
                    .inspect_err(|_| self.environment.give_back())
            }
            None => Err(EngineError::Misuse("the transaction is over")),
        }
    }
}

impl Drop for LmdbWrite {
    fn drop(&mut self) {
        let Some(txn) = self.txns.first().copied() else { return };
        if !self.environment.is_ours() {
            return;
        }
        let mut live = live_writes();
        let Some(index) = live.iter().position(|live| live.txn == txn && live.owner == self.owner) else {
            // Its thread has ended and aborted it.
            return;
        };
        if self.owner == current_thread() {
            live.swap_remove(index);
            drop(live);
            self.close_cursors();
            // SAFETY: the transaction is live and ours; aborting it aborts the ones nested in it.
            unsafe { ffi::mdb_txn_abort(txn) };
            self.environment.give_back();
        } else if let Some(live) = live.get_mut(index) {
            // LMDB closes open cursors when their transaction ends.
            live.is_dropped = true;
        }
    }
}

#[cfg(test)]
mod tests;
