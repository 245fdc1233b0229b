//! What has a transaction changed so far?
//!
//! The bytes of the group that it will be, and where in them the newest entry of each key stands: looked for from the end while
//! they are few, as they are for a single put, and indexed by hash from then on; in order only when somebody walks. Going back to a
//! savepoint is forgetting entries.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::engine::{Direction, Tree};
use crate::log::group::{self, Change};
use crate::log::layer::{Said, Saying};

/// Up to this many entries are looked through: a row with three indexes is nine, counts included.
const FEW: usize = 16;
/// From then on there is room for as many in the index.
const INDEXED_MIN: usize = 28;

/// The changes of one transaction.
pub(crate) struct Draft {
    bytes: Vec<u8>,
    changes: Vec<Change>,
    /// The newest entry of each key; only when they are many.
    index: HashTable<Newest>,
    ordered: Mutex<Ordered>,
    savepoints: Vec<(usize, usize)>,
}

/// The number of a key's newest entry, and the key's hash, so that growing looks at no key.
struct Newest {
    hash: u64,
    number: usize,
}

/// The newest entries in order, by the tree's number and the key, up to some entry.
#[derive(Default)]
struct Ordered {
    newest: BTreeMap<Box<[u8]>, usize>,
    count: usize,
}

impl Draft {
    pub(crate) fn new() -> Self {
        Self {
            bytes: group::begin(256),
            changes: Vec::new(),
            index: HashTable::new(),
            ordered: Mutex::default(),
            savepoints: Vec::new(),
        }
    }

    /// What is left when its changes are taken.
    pub(crate) fn spent() -> Self {
        Self {
            bytes: Vec::new(),
            changes: Vec::new(),
            index: HashTable::new(),
            ordered: Mutex::default(),
            savepoints: Vec::new(),
        }
    }

    pub(crate) fn put(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) {
        let change = group::push_put(&mut self.bytes, tree, key, parts);
        self.add(change);
    }

    pub(crate) fn delete(&mut self, tree: Tree, key: &[u8]) {
        let change = group::push_delete(&mut self.bytes, tree, key);
        self.add(change);
    }

    fn add(&mut self, change: Change) {
        self.changes.push(change);
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
        for (number, change) in changes.iter().enumerate().skip(first) {
            let key = key_of(change);
            let hash = hash_of(change.tree, key);
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

    /// The entries in order, all of them.
    fn ordered(&self) -> MutexGuard<'_, Ordered> {
        let mut ordered = self.ordered.lock().unwrap_or_else(PoisonError::into_inner);
        for (number, change) in self.changes.iter().enumerate().skip(ordered.count) {
            ordered.newest.insert(indexed(change.tree, self.key(change)), number);
        }
        ordered.count = self.changes.len();
        ordered
    }

    /// What it says of a key.
    pub(crate) fn find(&self, tree: Tree, key: &[u8]) -> Option<Said<'_>> {
        if self.changes.len() <= FEW {
            let change =
                self.changes.iter().rev().find(|change| change.tree == tree && self.key(change) == key)?;
            return Some(self.said(change));
        }
        let hash = hash_of(tree, key);
        let is_it = |newest: &Newest| {
            let change = self.changes.get(newest.number).filter(|_| newest.hash == hash);
            change.is_some_and(|change| change.tree == tree && self.key(change) == key)
        };
        let newest = self.index.find(hash, is_it)?;
        self.changes.get(newest.number).map(|change| self.said(change))
    }

    /// As [`crate::log::layer::Layer::walk`].
    pub(crate) fn walk<'a>(
        &'a self,
        tree: Tree,
        bound: Bound<&[u8]>,
        direction: Direction,
        limit: usize,
        out: &mut Vec<Saying<'a>>,
    ) -> bool {
        if self.changes.len() <= FEW {
            self.walk_few(tree, bound, direction, out);
            return false;
        }
        let edge = |edge: Bound<&[u8]>, unbounded: Bound<Box<[u8]>>| match edge {
            Bound::Included(key) => Bound::Included(indexed(tree, key)),
            Bound::Excluded(key) => Bound::Excluded(indexed(tree, key)),
            Bound::Unbounded => unbounded,
        };
        let first = Bound::Included(Box::from([tree as u8]));
        let end = Bound::Excluded(Box::from([tree as u8 + 1]));
        let mut take = |number: &usize| {
            if let Some(change) = self.changes.get(*number) {
                out.push((self.key(change), self.said(change)));
            }
            out.len() < limit
        };
        let ordered = self.ordered();
        let is_end = match direction {
            Direction::Forward => {
                ordered.newest.range((edge(bound, first), end)).all(|(_, number)| take(number))
            }
            Direction::Reverse => {
                ordered.newest.range((first, edge(bound, end))).rev().all(|(_, number)| take(number))
            }
        };
        !is_end
    }

    fn walk_few<'a>(
        &'a self,
        tree: Tree,
        bound: Bound<&[u8]>,
        direction: Direction,
        out: &mut Vec<Saying<'a>>,
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
                out.push((key, self.said(change)));
            }
        }
        out.sort_unstable_by_key(|(key, _)| *key);
        if direction == Direction::Reverse {
            out.reverse();
        }
    }

    pub(crate) fn savepoint(&mut self) {
        self.savepoints.push((self.bytes.len(), self.changes.len()));
    }

    /// Forget what came since the innermost savepoint; false if there is none.
    pub(crate) fn rollback(&mut self) -> bool {
        let Some((size, count)) = self.savepoints.pop() else { return false };
        self.bytes.truncate(size);
        self.changes.truncate(count);
        self.index.clear();
        *self.ordered.get_mut().unwrap_or_else(PoisonError::into_inner) = Ordered::default();
        if count > FEW {
            self.index_from(0);
        }
        true
    }

    /// Forget the innermost savepoint; false if there is none.
    pub(crate) fn release(&mut self) -> bool {
        self.savepoints.pop().is_some()
    }

    /// The counts of changes at each savepoint, the outermost first.
    pub(crate) fn savepoints(&self) -> impl Iterator<Item = usize> + '_ {
        self.savepoints.iter().map(|(_, count)| *count)
    }

    /// All changes in the order in which they were made.
    pub(crate) fn changes(&self) -> impl Iterator<Item = (Tree, Saying<'_>)> + '_ {
        self.changes.iter().map(|change| (change.tree, (self.key(change), self.said(change))))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// How many bytes its group will have.
    pub(crate) fn size(&self) -> usize {
        group::size_of(&self.bytes)
    }

    /// Its group; also the group's check.
    pub(crate) fn finish(mut self, sequence: u64, seed: u64) -> (Vec<u8>, u64) {
        let check = group::finish(&mut self.bytes, self.changes.len() as u32, sequence, seed);
        (self.bytes, check)
    }

    fn key(&self, change: &Change) -> &[u8] {
        self.bytes.get(change.key.clone()).unwrap_or_default()
    }

    fn said(&self, change: &Change) -> Said<'_> {
        match &change.value {
            Some(value) => Said::Value(self.bytes.get(value.clone()).unwrap_or_default()),
            None => Said::Deleted,
        }
    }
}

fn hash_of(tree: Tree, key: &[u8]) -> u64 {
    xxh3_64_with_seed(key, tree as u64)
}

fn indexed(tree: Tree, key: &[u8]) -> Box<[u8]> {
    let mut bytes = Vec::with_capacity(1 + key.len());
    bytes.push(tree as u8);
    bytes.extend_from_slice(key);
    bytes.into_boxed_slice()
}
