//! The memory engine: a database in memory alone.
//!
//! Each tree is a persistent map. A snapshot is a clone of its root, a savepoint is another one,
//! and a commit replaces the roots by the changed ones. Keys and values are shared and never copied
//! on write, so bytes stay at their address while any snapshot holds them.
//!
//! It is ":memory:", and it is the model that the LMDB engine is tested against.

use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, TryLockError};

use imbl::OrdMap;

use crate::engine::entry::{CLEARED, DELETED, PUT};
use crate::engine::history::{Keep, Next, WatchPosition};
use crate::engine::memory_past::{Op, Ops, Past, Shared as SharedCommit};
use crate::engine::row_count::{table_key, with_more_rows};
use crate::engine::{
    Choice, Choose, CommitFeed, Contents, Cursor, Direction, Engine, EngineError, Entry, EntryResult,
    HashedKey, LogBatch, OtherRows, ReadTxn, Result, RowAccess, Start, Tree, TryResult, TryRow, Usage,
    WriteTxn,
};
use crate::row_key;
use crate::sys::bell::Bell;
use crate::sys::os::thread_number;
use crate::sys::words::Words;

type Map = OrdMap<Arc<[u8]>, Arc<[u8]>>;
type Trees = [Map; 3];

/// LMDB's limit, so that a database can move from one engine to the other. No user reaches it here.
const KEY_SIZE_MAX: usize = 511;

/// A database in memory.
pub struct MemoryEngine {
    shared: Arc<Shared>,
    key_size_max: usize,
}

struct Shared {
    state: Mutex<State>,
    /// The version of `trees`, readable without the lock.
    version: AtomicU64,
    writer_left: Condvar,
    bell: Bell,
}

struct State {
    trees: Trees,
    version: u64,
    /// The version that changed the catalog last.
    catalog: u64,
    past: Past,
    is_writing: bool,
    /// The buffer for a row's new value.
    spare: Vec<u8>,
}

impl Shared {
    fn show_version(&self, version: u64) {
        self.version.store(version, Ordering::Release);
        self.bell.ring();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // No panic under the lock leaves the maps half changed: roots are replaced as a whole, and
        // a row is changed after everything for it has been computed.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The same, or `None` if another thread holds the lock.
    fn try_lock(&self) -> Option<MutexGuard<'_, State>> {
        match self.state.try_lock() {
            Ok(state) => Some(state),
            Err(TryLockError::Poisoned(state)) => Some(state.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }
}

impl State {
    /// Change a row in a commit of its own, in place unless a snapshot shares the nodes.
    fn change_row(&mut self, key: &[u8], others: &mut OtherRows, choose: &mut Choose<'_>) -> Result<bool> {
        let rows = tree_of(&self.trees, Tree::Rows);
        let old = rows.get(key).map(AsRef::as_ref);
        self.spare.clear();
        let choice = choose(old, &mut self.spare, others);
        let has_row = |(start, end)| rows.range::<_, [u8]>((Included(start), Excluded(end))).next().is_some();
        if choice == Choice::Leave || others.empty_ranges().any(has_row) {
            return Ok(false);
        }
        let value: Option<Arc<[u8]>> = (choice == Choice::Put).then(|| Arc::from(&*self.spare));
        let others = others.rows().map(|row| {
            let was_there = !row.is_new && rows.contains_key(row.key.bytes);
            (row.key.bytes, row.value.map(Arc::from), was_there)
        });
        let changes = std::iter::once((key, value, old.is_some())).chain(others);
        let changes = changes.filter(|(_, value, was_there)| *was_there || value.is_some());
        let changes: Vec<_> = changes.collect();
        for (key, value, was_there) in &changes {
            if value.is_some() != *was_there {
                self.count_row(key, value.is_some())?;
            }
        }
        let mut ops = self.past.begin();
        let rows = tree_of_mut(&mut self.trees, Tree::Rows);
        for (key, value, _) in changes {
            let (flags, key): (_, Arc<[u8]>) = (if value.is_some() { PUT } else { DELETED }, Arc::from(key));
            match &value {
                Some(value) => drop(rows.insert(Arc::clone(&key), Arc::clone(value))),
                None => drop(rows.remove(&key)),
            }
            ops.push(Op { tree: Tree::Rows, flags, key, value });
        }
        self.version += 1;
        self.past.add(self.version, ops);
        Ok(true)
    }

    /// Add or subtract one in the catalog's row count of the row's table.
    fn count_row(&mut self, key: &[u8], is_more: bool) -> Result<()> {
        let damaged = EngineError::Damaged { what: "a table's entry in the catalog cannot be read", code: 0 };
        let Some((table, _)) = row_key::split(key) else { return Err(damaged) };
        let value = tree_of_mut(&mut self.trees, Tree::Meta).get_mut(&table_key(table)[..]);
        let more = if is_more { 1 } else { -1 };
        match value.and_then(|value| Some((with_more_rows(table, value, more)?, value))) {
            Some((counted, value)) => *value = Arc::from(counted),
            None => return Err(damaged),
        }
        Ok(())
    }
}

impl MemoryEngine {
    /// An empty database.
    #[must_use]
    pub fn new() -> Self {
        Self::with_key_size_max(KEY_SIZE_MAX)
    }

    /// An empty database with another key size limit, to test longer keys.
    #[must_use]
    pub fn with_key_size_max(key_size_max: usize) -> Self {
        let state = State {
            trees: Trees::default(),
            version: 0,
            catalog: 0,
            past: Past::default(),
            is_writing: false,
            spare: Vec::new(),
        };
        let (state, version) = (Mutex::new(state), AtomicU64::new(0));
        let bell = Bell::new(Arc::new(Words::in_memory(Box::new([AtomicU64::new(0)]))), 0);
        let shared = Shared { state, version, writer_left: Condvar::new(), bell };
        Self { shared: Arc::new(shared), key_size_max }
    }
}

impl Default for MemoryEngine {
    fn default() -> Self {
        Self::new()
    }
}

impl Engine for MemoryEngine {
    fn key_size_max(&self) -> usize {
        self.key_size_max
    }

    fn version(&self) -> u64 {
        self.shared.version.load(Ordering::Acquire)
    }

    fn begin_read(&self) -> Result<Box<dyn ReadTxn>> {
        let state = self.shared.lock();
        let (trees, version, catalog) = (state.trees.clone(), state.version, state.catalog);
        Ok(Box::new(MemoryRead { trees, version, catalog }))
    }

    fn begin_write(&self) -> Result<Box<dyn WriteTxn>> {
        let mut state = self.shared.lock();
        while state.is_writing {
            state = self.shared.writer_left.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.is_writing = true;
        Ok(Box::new(MemoryWrite {
            trees: state.trees.clone(),
            version: state.version + 1,
            ops: state.past.begin(),
            savepoints: Vec::new(),
            is_changed: false,
            is_catalog_changed: false,
            key_size_max: self.key_size_max,
            owner: thread_number(),
            shared: Arc::clone(&self.shared),
        }))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn usage(&self) -> Result<Usage> {
        let state = self.shared.lock();
        let entries = Tree::ALL.map(|tree| tree_of(&state.trees, tree).len() as u64);
        Ok(Usage { entries, history: state.past.size(), ..Usage::default() })
    }

    fn commit_feed(&self) -> Option<&dyn CommitFeed> {
        Some(self)
    }
}

impl RowAccess for MemoryEngine {
    fn change_row(
        &self,
        key: HashedKey<'_>,
        known: u64,
        others: &mut OtherRows,
        choose: &mut Choose<'_>,
    ) -> TryRow {
        let Some(mut state) = self.shared.try_lock() else { return Ok(TryResult::UseTransaction) };
        if state.is_writing {
            return Ok(TryResult::UseTransaction);
        }
        if state.catalog > known {
            return Ok(TryResult::CatalogChanged);
        }
        if !state.change_row(key.bytes, others, choose)? {
            return Ok(TryResult::UseTransaction);
        }
        self.shared.show_version(state.version);
        Ok(TryResult::Done(()))
    }

    fn show_row(&self, key: &[u8], known: u64, show: &mut dyn FnMut(Option<&[u8]>)) -> TryRow {
        let Some(state) = self.shared.try_lock() else { return Ok(TryResult::UseTransaction) };
        if state.catalog > known {
            return Ok(TryResult::CatalogChanged);
        }
        show(tree_of(&state.trees, Tree::Rows).get(key).map(AsRef::as_ref));
        Ok(TryResult::Done(()))
    }
}

impl CommitFeed for MemoryEngine {
    fn next_commits(&self, place: &mut WatchPosition) -> Result<Next> {
        let batch = self.shared.lock().past.next(place);
        match batch {
            Ok(batch) => {
                place.version += batch.len() as u64;
                Ok(Next::Commits(batch.iter().map(SharedCommit::commit).collect()))
            }
            Err(next) => Ok(next),
        }
    }

    fn bell(&self) -> Option<Bell> {
        Some(self.shared.bell.clone())
    }

    fn known_since(&self) -> Result<u64> {
        Ok(self.shared.lock().past.since())
    }

    fn set_keep(&self, keep: Keep) {
        self.shared.lock().past.set_keep(keep);
    }
}

fn tree_of(trees: &Trees, tree: Tree) -> &Map {
    let [meta, rows, blobs] = trees;
    match tree {
        Tree::Meta => meta,
        Tree::Rows => rows,
        Tree::Blobs => blobs,
    }
}

fn tree_of_mut(trees: &mut Trees, tree: Tree) -> &mut Map {
    let [meta, rows, blobs] = trees;
    match tree {
        Tree::Meta => meta,
        Tree::Rows => rows,
        Tree::Blobs => blobs,
    }
}

struct MemoryRead {
    trees: Trees,
    version: u64,
    catalog: u64,
}

impl Contents for MemoryRead {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>> {
        Ok(tree_of(&self.trees, tree).get(key).map(AsRef::as_ref))
    }

    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>> {
        Ok(Box::new(MemoryCursor::new(tree_of(&self.trees, tree))))
    }
}

impl ReadTxn for MemoryRead {
    fn version(&self) -> u64 {
        self.version
    }

    /// The version of the counters: single-row changes leave them as they are.
    fn tree_version(&self) -> u64 {
        self.catalog
    }

    fn catalog_version(&self) -> u64 {
        self.catalog
    }
}

struct MemoryWrite {
    trees: Trees,
    version: u64,
    /// What was written so far; and at each savepoint, the number of changes before it.
    ops: Ops,
    savepoints: Vec<(Trees, usize)>,
    is_changed: bool,
    is_catalog_changed: bool,
    key_size_max: usize,
    owner: u64,
    shared: Arc<Shared>,
}

impl MemoryWrite {
    fn checked_key(&self, key: &[u8]) -> Result<Arc<[u8]>> {
        if key.is_empty() || key.len() > self.key_size_max {
            return Err(EngineError::KeySize { size: key.len(), size_max: self.key_size_max });
        }
        Ok(Arc::from(key))
    }

    fn note(&mut self, tree: Tree, flags: u8, key: Arc<[u8]>, value: Option<Arc<[u8]>>) {
        self.ops.push(Op { tree, flags, key, value });
        self.is_changed = true;
        self.is_catalog_changed |= tree == Tree::Meta;
    }

    fn replace_if_there(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<()> {
        let map = tree_of_mut(&mut self.trees, tree);
        let value = map.get_mut(key).ok_or(EngineError::Misuse("replace_found without a find"))?;
        *value = parts.concat().into();
        let value = Some(Arc::clone(value));
        self.note(tree, PUT, Arc::from(key), value);
        Ok(())
    }
}

impl Contents for MemoryWrite {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>> {
        Ok(tree_of(&self.trees, tree).get(key).map(AsRef::as_ref))
    }

    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>> {
        Ok(Box::new(MemoryCursor::new(tree_of(&self.trees, tree))))
    }
}

impl LogBatch for MemoryWrite {}

impl WriteTxn for MemoryWrite {
    fn version(&self) -> u64 {
        self.version
    }

    fn is_owner(&self) -> bool {
        self.owner == thread_number()
    }

    fn find(&mut self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>> {
        self.get(tree, key)
    }

    fn replace_found(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<()> {
        self.replace_if_there(tree, key, parts)
    }

    fn delete_found(&mut self, tree: Tree, key: &[u8]) -> Result<()> {
        let removed = tree_of_mut(&mut self.trees, tree).remove_with_key(key);
        let (key, _) = removed.ok_or(EngineError::Misuse("delete_found without a find"))?;
        self.note(tree, DELETED, key, None);
        Ok(())
    }

    fn put(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<()> {
        let (key, value) = (self.checked_key(key)?, Arc::from(parts.concat()));
        tree_of_mut(&mut self.trees, tree).insert(Arc::clone(&key), Arc::clone(&value));
        self.note(tree, PUT, key, Some(value));
        Ok(())
    }

    fn append(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<bool> {
        let shared_key = self.checked_key(key)?;
        let map = tree_of_mut(&mut self.trees, tree);
        if map.get_max().is_some_and(|(last, _)| key <= last.as_ref()) {
            return Ok(false);
        }
        let value = Arc::from(parts.concat());
        map.insert(Arc::clone(&shared_key), Arc::clone(&value));
        self.note(tree, PUT, shared_key, Some(value));
        Ok(true)
    }

    fn clear(&mut self, tree: Tree) -> Result<()> {
        let old = std::mem::take(tree_of_mut(&mut self.trees, tree));
        if let (Some((first, _)), Some((last, _))) = (old.get_min(), old.get_max()) {
            self.note(tree, CLEARED, Arc::clone(first), Some(Arc::clone(last)));
        }
        self.is_changed = true;
        Ok(())
    }

    fn savepoint(&mut self) -> Result<()> {
        self.savepoints.push((self.trees.clone(), self.ops.count()));
        Ok(())
    }

    fn rollback(&mut self) -> Result<()> {
        let saved = self.savepoints.pop().ok_or(EngineError::Misuse("rollback without a savepoint"))?;
        self.trees = saved.0;
        self.ops.truncate(saved.1);
        Ok(())
    }

    fn release(&mut self) -> Result<()> {
        self.savepoints.pop().map(|_| ()).ok_or(EngineError::Misuse("release without a savepoint"))
    }

    fn commit(mut self: Box<Self>) -> Result<()> {
        if !self.is_owner() {
            return Err(EngineError::WrongThread);
        }
        if self.is_changed {
            let mut state = self.shared.lock();
            state.trees = std::mem::take(&mut self.trees);
            state.version = self.version;
            if self.is_catalog_changed {
                state.catalog = self.version;
            }
            state.past.add(self.version, std::mem::take(&mut self.ops));
            self.shared.show_version(self.version);
        }
        Ok(())
    }
}

impl Drop for MemoryWrite {
    fn drop(&mut self) {
        self.shared.lock().is_writing = false;
        self.shared.writer_left.notify_one();
    }
}

struct MemoryCursor<'t> {
    map: &'t Map,
    walk: Box<dyn Iterator<Item = Entry<'t>> + Send + 't>,
}

impl<'t> MemoryCursor<'t> {
    fn new(map: &'t Map) -> Self {
        Self { map, walk: Box::new(std::iter::empty()) }
    }
}

impl<'t> Cursor<'t> for MemoryCursor<'t> {
    fn start(&mut self, start: Start<'_>, direction: Direction) -> Result<()> {
        let bytes = |(key, value): (&'t Arc<[u8]>, &'t Arc<[u8]>)| (key.as_ref(), value.as_ref());
        self.walk = match (start, direction) {
            (Start::Edge, Direction::Forward) => Box::new(self.map.iter().map(bytes)),
            (Start::Edge, Direction::Reverse) => Box::new(self.map.iter().rev().map(bytes)),
            (Start::At(key), Direction::Forward) => {
                Box::new(self.map.range::<_, [u8]>((Included(key), Unbounded)).map(bytes))
            }
            (Start::At(key), Direction::Reverse) => {
                Box::new(self.map.range::<_, [u8]>((Unbounded, Excluded(key))).rev().map(bytes))
            }
        };
        Ok(())
    }

    fn step(&mut self) -> EntryResult<'t> {
        Ok(self.walk.next())
    }
}
