//! What do the groups of one area say, in this process's memory?
//!
//! For every key the versions that the groups gave it, newest first, so that a snapshot sees those up to its
//! sequence number while writers go on. Bytes stay where they are as long as the layer lives. The hash index is kept with
//! every group; the ordered one catches up when somebody walks, since most who put do not.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hashbrown::HashTable;
use xxhash_rust::xxh3::xxh3_64_with_seed;

use crate::engine::{Direction, Tree};
use crate::log::aligned::Aligned;
use crate::log::group;

/// What a layer says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    /// It has this value.
    Value(&'a [u8]),
    /// It is deleted.
    Deleted,
}

impl<'a> Said<'a> {
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Value(value) => Some(value),
            Self::Deleted => None,
        }
    }
}

/// A key and what is said of it.
pub(crate) type Saying<'a> = (&'a [u8], Said<'a>);

/// The groups of one use of an area.
#[derive(Default)]
pub(crate) struct Layer {
    groups: boxcar::Vec<Vec<u8>>,
    large: boxcar::Vec<Aligned>,
    versions: boxcar::Vec<Version>,
    index: Mutex<Index>,
}

#[derive(Default)]
struct Index {
    /// The newest version of every key. With its hash, so that growing looks at no key: that was a tenth of a put.
    newest: HashTable<Newest>,
    /// The same in order, up to some version.
    ordered: [BTreeMap<Box<[u8]>, u32>; 3],
    ordered_count: u32,
}

/// A key's newest version, and half of the key's hash.
#[derive(Clone, Copy)]
struct Newest {
    hash: u32,
    number: u32,
}

impl Newest {
    /// A hash for the table: its bits at both ends decide.
    fn spread(hash: u32) -> u64 {
        u64::from(hash).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    }
}

const NONE: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Version {
    sequence: u64,
    tree: Tree,
    group: u32,
    key_at: u32,
    key_size: u32,
    value: Place,
    older: u32,
}

#[derive(Clone, Copy)]
enum Place {
    Deleted,
    InGroup { at: u32, size: u32 },
    Large { number: u32 },
}

/// Values of the tree of large ones that are no shorter stand as they do in the engine's pages, for arrays.
const LARGE_SIZE_MIN: usize = 1024;

impl Layer {
    /// Add what the next group says. One thread at a time, in the order of the sequence numbers.
    pub(crate) fn add(&self, sequence: u64, bytes: Vec<u8>) {
        let group = self.groups.push(bytes);
        let Some(bytes) = self.groups.get(group) else { return };
        let mut index = self.lock();
        for change in group::changes(bytes) {
            let key = bytes.get(change.key.clone()).unwrap_or_default();
            let value = match change.value {
                None => Place::Deleted,
                Some(value) if change.tree == Tree::Blobs && value.len() >= LARGE_SIZE_MIN => {
                    let large = Aligned::new(bytes.get(value).unwrap_or_default());
                    Place::Large { number: self.large.push(large) as u32 }
                }
                Some(value) => Place::InGroup { at: value.start as u32, size: value.len() as u32 },
            };
            let number = self.versions.count() as u32;
            let hash = hash_of(change.tree, key);
            let entry = index.newest.entry(
                Newest::spread(hash),
                |newest| newest.hash == hash && self.is_of(newest.number, change.tree, key),
                |newest| Newest::spread(newest.hash),
            );
            let older = match entry {
                hashbrown::hash_table::Entry::Occupied(mut entry) => {
                    std::mem::replace(&mut entry.get_mut().number, number)
                }
                hashbrown::hash_table::Entry::Vacant(entry) => {
                    entry.insert(Newest { hash, number });
                    NONE
                }
            };
            self.versions.push(Version {
                sequence,
                tree: change.tree,
                group: group as u32,
                key_at: change.key.start as u32,
                key_size: change.key.len() as u32,
                value,
                older,
            });
        }
    }

    /// What the groups up to a sequence number say of a key; `None`: nothing.
    #[inline]
    pub(crate) fn find(&self, tree: Tree, key: &[u8], sequence: u64) -> Option<Said<'_>> {
        let hash = hash_of(tree, key);
        let is_it = |newest: &Newest| newest.hash == hash && self.is_of(newest.number, tree, key);
        let number = self.lock().newest.find(Newest::spread(hash), is_it)?.number;
        self.said(number, sequence)
    }

    /// Fill `out` with up to `limit` keys behind `bound` in walking order, of which something was said up to the sequence
    /// number; false when there are no more.
    pub(crate) fn walk<'a>(
        &'a self,
        tree: Tree,
        bound: Bound<&[u8]>,
        direction: Direction,
        sequence: u64,
        limit: usize,
        out: &mut Vec<Saying<'a>>,
    ) -> bool {
        let mut index = self.lock();
        self.order(&mut index);
        let [meta, rows, blobs] = &index.ordered;
        let ordered = match tree {
            Tree::Meta => meta,
            Tree::Rows => rows,
            Tree::Blobs => blobs,
        };
        let mut take = |newest: u32| {
            if let Some(said) = self.said(newest, sequence)
                && let Some(version) = self.version(newest)
            {
                out.push((self.key(version), said));
            }
            out.len() < limit
        };
        let is_end = match direction {
            Direction::Forward => {
                ordered.range::<[u8], _>((bound, Bound::Unbounded)).all(|(_, newest)| take(*newest))
            }
            Direction::Reverse => {
                ordered.range::<[u8], _>((Bound::Unbounded, bound)).rev().all(|(_, newest)| take(*newest))
            }
        };
        !is_end
    }

    /// Every key with what was said of it last, in key order: what a checkpoint writes.
    pub(crate) fn all(&self, tree: Tree) -> Vec<Saying<'_>> {
        let mut out = Vec::new();
        self.walk(tree, Bound::Unbounded, Direction::Forward, u64::MAX, usize::MAX, &mut out);
        out
    }

    fn lock(&self) -> MutexGuard<'_, Index> {
        // Whoever panics while holding it has at worst left a version out of the ordered index, which counts them.
        self.index.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Bring the ordered index up to date.
    fn order(&self, index: &mut Index) {
        let [meta, rows, blobs] = &mut index.ordered;
        while let Some(version) = self.version(index.ordered_count) {
            let ordered = match version.tree {
                Tree::Meta => &mut *meta,
                Tree::Rows => &mut *rows,
                Tree::Blobs => &mut *blobs,
            };
            let key = self.key(version);
            match ordered.get_mut(key) {
                Some(newest) => *newest = index.ordered_count,
                None => {
                    ordered.insert(key.into(), index.ordered_count);
                }
            }
            index.ordered_count += 1;
        }
    }

    #[inline]
    fn version(&self, number: u32) -> Option<&Version> {
        self.versions.get(number as usize)
    }

    #[inline]
    fn key(&self, version: &Version) -> &[u8] {
        let (at, size) = (version.key_at as usize, version.key_size as usize);
        let group = self.groups.get(version.group as usize).map_or(&[][..], |group| group);
        group.get(at..at + size).unwrap_or_default()
    }

    #[inline]
    fn is_of(&self, number: u32, tree: Tree, key: &[u8]) -> bool {
        self.version(number).is_some_and(|version| version.tree == tree && self.key(version) == key)
    }

    /// The newest version up to a sequence number.
    #[inline]
    fn said(&self, newest: u32, sequence: u64) -> Option<Said<'_>> {
        let mut version = self.version(newest)?;
        while version.sequence > sequence {
            version = self.version(version.older)?;
        }
        Some(match version.value {
            Place::Deleted => Said::Deleted,
            Place::InGroup { at, size } => {
                let group = self.groups.get(version.group as usize)?;
                Said::Value(group.get(at as usize..at as usize + size as usize)?)
            }
            Place::Large { number } => Said::Value(self.large.get(number as usize)?.bytes()),
        })
    }
}

#[inline]
fn hash_of(tree: Tree, key: &[u8]) -> u32 {
    (xxh3_64_with_seed(key, tree as u64) >> 32) as u32
}
