//! The changes of one transaction.
//!
//! The batch holds the bytes of its future WAL record, and where each key's newest entry is in
//! them. A few entries are searched from the end; with more there is a hash index. An ordered index
//! is made only if the transaction walks. A rollback to a savepoint truncates the entries.
//!
//! If a row was looked up before it was put or deleted, the batch knows whether its table has one
//! row more or less. As long as that holds for all changes, the entries are counted (`record.rs`)
//! and the row counts are not written to the catalog.

use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::engine::{self, Direction, Extents, HashedKey, TakeRow, Tree};
use crate::sys::short::is_same;
use crate::wal::extents::Extent;
use crate::wal::memtable::{Lookup, LookupEntry};
use crate::wal::record::{self, Change};
use crate::wal::tombstones::{Covered, KeyOrder};
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;

/// Up to this many entries are searched one by one. A row with three indexes has nine, counts
/// included.
const FEW: usize = 16;
/// A batch with more memory than this is not reused.
const SPARE_COUNT_MAX: usize = 1 << 12;
const SPARE_SIZE_MAX: usize = 1 << 18;
/// The initial capacity of the index.
const INDEXED_MIN: usize = 28;

/// The changes of one transaction.
pub(crate) struct WriteBatch {
    bytes: Vec<u8>,
    changes: Vec<Change>,
    /// The hashes of the keys, without the tree.
    hashes: Vec<u64>,
    /// The newest entry of each key. Only used for many entries.
    index: HashTable<Newest>,
    ordered: Mutex<Ordered>,
    savepoints: Vec<Saved>,
    /// Number of changes whose effect on a table's row count is unknown.
    uncounted: usize,
    /// Whether the entries are counted.
    counts: bool,
    /// The data file, for the large values that are there already.
    extents: Option<Arc<dyn Extents>>,
}

/// A change that stays in the batch when rows are taken out of it.
enum SavedChange {
    Value(Vec<u8>),
    Placed(Extent),
    Deleted,
}

/// The state at a savepoint.
struct Saved {
    size: usize,
    count: usize,
    uncounted: usize,
}

/// The number of a key's newest entry, and the key's hash, so that growing the table reads no keys.
struct Newest {
    hash: u64,
    number: usize,
}

/// The newest entries in order, by the tree's number and the key, of the first `count` changes.
#[derive(Default)]
struct Ordered {
    newest: KeyOrder<usize>,
    count: usize,
    covered: Covered,
}

impl WriteBatch {
    pub(crate) fn new(extents: Option<&Arc<dyn Extents>>) -> Self {
        Self {
            bytes: record::begin(0),
            changes: Vec::new(),
            hashes: Vec::new(),
            index: HashTable::new(),
            ordered: Mutex::default(),
            savepoints: Vec::new(),
            uncounted: 0,
            counts: false,
            extents: extents.cloned(),
        }
    }

    /// Empty the batch for the next transaction, which probably needs as much memory. Large memory
    /// is freed.
    pub(crate) fn cleared(mut self) -> Self {
        if self.bytes.capacity() > SPARE_SIZE_MAX || self.changes.capacity() > SPARE_COUNT_MAX {
            return Self::new(self.extents.as_ref());
        }
        record::begin_again(&mut self.bytes);
        self.changes.clear();
        self.hashes.clear();
        self.index.clear();
        self.forget_order();
        self.savepoints.clear();
        (self.uncounted, self.counts) = (0, false);
        self
    }

    pub(crate) fn put(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) {
        self.uncounted += 1;
        let change = record::push_put(&mut self.bytes, tree, key, parts);
        self.add(change, HashedKey::of(key).hash);
    }

    /// Put a large value that is in the data file already. `is_new`: whether the key is, if that
    /// is known.
    pub(crate) fn put_placed(
        &mut self,
        tree: Tree,
        key: HashedKey<'_>,
        extent: Extent,
        is_new: Option<bool>,
    ) {
        self.uncounted += usize::from(is_new.is_none());
        let change = record::push_placed(&mut self.bytes, tree, key.bytes, extent, is_new.unwrap_or(false));
        self.add(change, key.hash);
    }

    /// Put a value for a key that exists.
    pub(crate) fn replace(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) {
        let change = record::push_put(&mut self.bytes, tree, key, parts);
        self.add(change, HashedKey::of(key).hash);
    }

    /// Put a row that was looked up.
    #[inline]
    pub(crate) fn put_row(&mut self, key: HashedKey<'_>, parts: [&[u8]; 2], is_new: bool) {
        let change = record::push_row(&mut self.bytes, key.bytes, parts, is_new);
        self.add(change, key.hash);
    }

    /// Delete a key that exists.
    pub(crate) fn delete(&mut self, tree: Tree, key: &[u8]) {
        let change = if tree == Tree::Rows {
            record::push_gone(&mut self.bytes, key)
        } else {
            self.uncounted += 1;
            record::push_delete(&mut self.bytes, tree, key)
        };
        self.add(change, HashedKey::of(key).hash);
    }

    /// Make the entries counted. False if the effect of some change on the row count is unknown.
    pub(crate) fn count(&mut self) -> bool {
        self.counts = self.uncounted == 0;
        self.counts
    }

    #[inline]
    fn add(&mut self, change: Change, hash: u64) {
        self.changes.push(change);
        self.hashes.push(hash);
        let count = self.changes.len();
        if count > FEW {
            self.index_from(if self.index.is_empty() { 0 } else { count - 1 });
        }
    }

    fn index_from(&mut self, first: usize) {
        let (bytes, changes) = (&self.bytes, &self.changes);
        let key_of = |change: &Change| bytes.get(change.key.clone()).unwrap_or_default();
        if self.index.is_empty() {
            self.index.reserve(INDEXED_MIN, |newest| newest.hash);
        }
        for ((number, change), hash) in changes.iter().enumerate().zip(&self.hashes).skip(first) {
            let (key, hash) = (key_of(change), *hash);
            let is_it = |newest: &Newest| {
                let other = changes.get(newest.number).filter(|_| newest.hash == hash);
                other.is_some_and(|other| other.tree == change.tree && key_of(other) == key)
            };
            match self.index.entry(hash, is_it, |newest| newest.hash) {
                Entry::Occupied(mut entry) => entry.get_mut().number = number,
                Entry::Vacant(entry) => {
                    entry.insert(Newest { hash, number });
                }
            }
        }
    }

    fn forget_order(&mut self) {
        let ordered = self.ordered.get_mut().unwrap_or_else(PoisonError::into_inner);
        if ordered.count > 0 {
            *ordered = Ordered::default();
        }
    }

    /// The ordered index, of all entries.
    fn ordered(&self) -> MutexGuard<'_, Ordered> {
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, change) in self.changes.iter().enumerate().skip(ordered.count) {
            ordered.newest.set(&indexed(change.tree, self.key(change)), number, change.value.is_none());
        }
        ordered.count = self.changes.len();
        ordered
    }

    /// What the batch says of a key.
    pub(crate) fn find(&self, tree: Tree, key: &[u8]) -> Option<Lookup<'_>> {
        if self.is_empty() { None } else { self.find_hashed(tree, HashedKey::of(key)) }
    }

    /// As `find`, for a key whose hash is known.
    #[inline]
    pub(crate) fn find_hashed(&self, tree: Tree, key: HashedKey<'_>) -> Option<Lookup<'_>> {
        let said_if_it = |number: usize| {
            let change = self.changes.get(number)?;
            (change.tree == tree && is_same(self.key(change), key.bytes)).then(|| self.lookup(change))
        };
        if self.changes.len() <= FEW {
            let numbers = 0..self.hashes.len();
            let same = numbers.zip(&self.hashes).rev().filter(|(_, hash)| **hash == key.hash);
            return same.map(|(number, _)| number).find_map(said_if_it);
        }
        let is_it = |newest: &Newest| newest.hash == key.hash && said_if_it(newest.number).is_some();
        said_if_it(self.index.find(key.hash, is_it)?.number)
    }

    /// See [`crate::wal::memtable::Memtable::walk`].
    pub(crate) fn walk<'a>(
        &'a self,
        tree: Tree,
        bound: Bound<&[u8]>,
        direction: Direction,
        limit: usize,
        out: &mut Vec<LookupEntry<'a>>,
    ) -> bool {
        if self.changes.len() <= FEW {
            self.walk_few(tree, bound, direction, out);
            return false;
        }
        let take = |number: usize| {
            if let Some(change) = self.changes.get(number) {
                out.push((self.key(change), self.lookup(change)));
            }
            out.len() < limit
        };
        let (start, end) = indexed_from(tree, bound, direction);
        !self.ordered().newest.walk((as_slice(&start), as_slice(&end)), direction, take)
    }

    /// See [`crate::wal::memtable::Memtable::first_live`].
    pub(crate) fn first_live(
        &self,
        tree: Tree,
        bound: Bound<&[u8]>,
        direction: Direction,
    ) -> Option<engine::Entry<'_>> {
        if self.changes.len() <= FEW {
            let mut lookups = Vec::new();
            self.walk_few(tree, bound, direction, &mut lookups);
            return lookups.into_iter().find_map(value_of);
        }
        let change = |number: usize| self.changes.get(number);
        let is_deleted = |number| change(number).is_none_or(|change| change.value.is_none());
        let see =
            |number| change(number).and_then(|change| value_of((self.key(change), self.lookup(change))));
        let (start, end) = indexed_from(tree, bound, direction);
        self.ordered().newest.first_live((as_slice(&start), as_slice(&end)), direction, is_deleted, see)
    }

    /// See [`crate::wal::memtable::Memtable::behind_covered`].
    pub(crate) fn behind_covered(&self, tree: Tree, place: &[u8], direction: Direction) -> Option<Vec<u8>> {
        let ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        let behind = ordered.covered.behind(&indexed(tree, place), direction, 0)?;
        behind.get(1..).map(<[u8]>::to_vec)
    }

    /// See [`crate::wal::memtable::Memtable::cover`].
    pub(crate) fn cover(&self, tree: Tree, start: &[u8], end: &[u8]) {
        self.ordered().covered.add(&indexed(tree, start), &indexed(tree, end), 0);
    }

    fn walk_few<'a>(
        &'a self,
        tree: Tree,
        bound: Bound<&[u8]>,
        direction: Direction,
        out: &mut Vec<LookupEntry<'a>>,
    ) {
        for change in self.changes.iter().rev().filter(|change| change.tree == tree) {
            let key = self.key(change);
            let is_in = match (bound, direction) {
                (Bound::Unbounded, _) => true,
                (Bound::Included(edge), Direction::Forward) => key >= edge,
                (Bound::Excluded(edge), Direction::Forward) => key > edge,
                (Bound::Included(edge), Direction::Reverse) => key <= edge,
                (Bound::Excluded(edge), Direction::Reverse) => key < edge,
            };
            if is_in && !out.iter().any(|(other, _)| *other == key) {
                out.push((key, self.lookup(change)));
            }
        }
        out.sort_unstable_by_key(|(key, _)| *key);
        if direction == Direction::Reverse {
            out.reverse();
        }
    }

    pub(crate) fn savepoint(&mut self) {
        let (size, count, uncounted) = (self.bytes.len(), self.changes.len(), self.uncounted);
        self.savepoints.push(Saved { size, count, uncounted });
    }

    /// Drop the changes since the innermost savepoint. False if there is none.
    pub(crate) fn rollback(&mut self) -> bool {
        let Some(Saved { size, count, uncounted }) = self.savepoints.pop() else { return false };
        self.truncate(size, count, uncounted);
        true
    }

    fn truncate(&mut self, size: usize, count: usize, uncounted: usize) {
        self.bytes.truncate(size);
        self.changes.truncate(count);
        self.hashes.truncate(count);
        self.uncounted = uncounted;
        self.index.clear();
        self.forget_order();
        if count > FEW {
            self.index_from(0);
        }
    }

    /// Forget the innermost savepoint and keep its changes. False if there is none.
    pub(crate) fn release(&mut self) -> bool {
        self.savepoints.pop().is_some()
    }

    /// Take the changes of rows since the innermost savepoint out of the batch, in order. Large
    /// values that are in the data file stay.
    pub(crate) fn take_rows(&mut self, take: &mut TakeRow<'_>) {
        let (size, count) =
            self.savepoints.last().map_or((record::HEAD_SIZE, 0), |saved| (saved.size, saved.count));
        let changes = || self.changes.get(count..).unwrap_or_default().iter();
        let is_placed = |lookup| matches!(lookup, Lookup::Extent(..));
        let has_placed = changes().any(|change| is_placed(self.lookup(change)));
        let mut others = Vec::new();
        for change in changes() {
            let (key, lookup) = (self.key(change), self.lookup(change));
            if change.tree != Tree::Rows || is_placed(lookup) {
                let value = match lookup {
                    Lookup::Value(value) => SavedChange::Value(value.to_vec()),
                    Lookup::Extent(extent, _) => SavedChange::Placed(extent),
                    Lookup::Tombstone => SavedChange::Deleted,
                };
                others.push((change.tree, key.to_vec(), value));
            } else if !(has_placed && self.find(change.tree, key).is_some_and(is_placed)) {
                // Otherwise the value that is in the file already, and stays in the batch, is
                // newer.
                take(key, lookup.value());
            }
        }
        let uncounted = self.savepoints.last().map_or(0, |saved| saved.uncounted);
        self.truncate(size, count, uncounted);
        // What the rows do to row counts is known to the caller alone.
        self.uncounted += 1;
        for (tree, key, value) in others {
            match value {
                SavedChange::Value(value) => self.put(tree, &key, &[&value]),
                SavedChange::Placed(extent) => self.put_placed(tree, HashedKey::of(&key), extent, None),
                SavedChange::Deleted => self.delete(tree, &key),
            }
        }
    }

    /// The number of changes at each savepoint, the outermost first.
    pub(crate) fn savepoints(&self) -> impl Iterator<Item = usize> + '_ {
        self.savepoints.iter().map(|saved| saved.count)
    }

    /// All changes in the order in which they were made.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (Tree, LookupEntry<'_>)> + '_ {
        self.changes.iter().map(|change| (change.tree, (self.key(change), self.lookup(change))))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    pub(crate) fn count_of_changes(&self) -> usize {
        self.changes.len()
    }

    /// The size of its WAL record.
    pub(crate) fn size(&self) -> usize {
        record::size_of(&self.bytes)
    }

    /// Complete its WAL record. Returns the bytes and the check.
    pub(crate) fn finish(&mut self, sequence: u64, seed: u64) -> (&[u8], u64) {
        if !self.counts {
            record::uncount(&mut self.bytes, &mut self.changes);
        }
        let check = record::finish(&mut self.bytes, self.changes.len() as u32, sequence, seed);
        (&self.bytes, check)
    }

    /// The bytes of the WAL record so far.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The changes of the WAL record, with the hashes of their keys.
    pub(crate) fn hashed_changes(&self) -> impl Iterator<Item = (u64, &Change)> + '_ {
        self.hashes.iter().copied().zip(&self.changes)
    }

    /// Whether it changes the catalog. A counted batch does not.
    pub(crate) fn changes_catalog(&self) -> bool {
        !self.counts && self.changes.iter().any(|change| change.tree == Tree::Meta)
    }

    fn key(&self, change: &Change) -> &[u8] {
        self.bytes.get(change.key.clone()).unwrap_or_default()
    }

    fn lookup(&self, change: &Change) -> Lookup<'_> {
        match &change.value {
            Some(value) if change.is_placed => {
                Lookup::in_extent(self.bytes.get(value.clone()).unwrap_or_default(), self.extents.as_ref())
            }
            Some(value) => Lookup::Value(self.bytes.get(value.clone()).unwrap_or_default()),
            None => Lookup::Tombstone,
        }
    }
}

/// A bound in the ordered index.
type OwnBound = Bound<Box<[u8]>>;

/// The keys of a tree from a bound on, in walking order, as the ordered index has them.
fn indexed_from(tree: Tree, bound: Bound<&[u8]>, direction: Direction) -> (OwnBound, OwnBound) {
    let edge = |unbounded: OwnBound| match bound {
        Bound::Included(key) => Bound::Included(indexed(tree, key)),
        Bound::Excluded(key) => Bound::Excluded(indexed(tree, key)),
        Bound::Unbounded => unbounded,
    };
    let first = Bound::Included(Box::from([tree as u8]));
    let end = Bound::Excluded(Box::from([tree as u8 + 1]));
    match direction {
        Direction::Forward => (edge(first), end),
        Direction::Reverse => (first, edge(end)),
    }
}

/// A key and its value, unless it is deleted.
fn value_of((key, lookup): LookupEntry<'_>) -> Option<engine::Entry<'_>> {
    Some((key, lookup.value()?))
}

fn as_slice(bound: &OwnBound) -> Bound<&[u8]> {
    bound.as_ref().map(|key| &**key)
}

fn indexed(tree: Tree, key: &[u8]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(1 + key.len());
    bytes.push(tree as u8);
    bytes.extend_from_slice(key);
    bytes.into_boxed_slice()
}
