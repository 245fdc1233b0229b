//! The memtable: the WAL records of one use of a segment, in this process's memory.
//!
//! For every key it has all versions that the WAL records wrote, newest first. So a snapshot sees
//! the versions up to its sequence number while writers go on. Bytes stay at their address while
//! the memtable lives.
//!
//! The hash index is updated with every WAL record. The ordered index, and the row counts by table
//! of counted rows (`record.rs`), catch up when they are needed, since most writers never walk.
//! They catch up from the list of versions, in the order in which these were added. So a writer
//! only appends a version and its hash index slot, and takes no lock.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::catalog::blob::BLOB_ADDRESS_REMAINDER;
use crate::catalog::row_key::{self, TableId};
use crate::engine::{Direction, EngineError, Extents, HashedKey, Tree};
use crate::sys::block::LINE;
use crate::sys::grown_bytes::{GAP, Pen, Pinned};
use crate::sys::latch::{Latch, LatchGuard};
use crate::sys::short::is_same;
use crate::wal::counted::Counted;
use crate::wal::extents::Place;
use crate::wal::key_order::sort_by_key;
use crate::wal::newest::Newest;
use crate::wal::record::{self, Change};

/// What a memtable or write batch says of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Said<'a> {
    /// The key has this value.
    Value(&'a [u8]),
    /// The same, for a large value that is in the data file already.
    Placed(Place, &'a [u8]),
    /// The key is deleted.
    Deleted,
}

impl<'a> Said<'a> {
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Value(value) | Self::Placed(_, value) => Some(value),
            Self::Deleted => None,
        }
    }

    /// What a place says. A log that names pages which the file lacks is damaged, and its value
    /// empty.
    pub(crate) fn placed(bytes: &[u8], extents: Option<&'a Arc<dyn Extents>>) -> Self {
        let Some(place) = Place::parse(bytes) else { return Self::Value(&[]) };
        let value = extents.and_then(|extents| extents.bytes(place.first, place.size));
        Self::Placed(place, value.unwrap_or_default())
    }
}

/// A key and what is said of it.
pub(crate) type Saying<'a> = (&'a [u8], Said<'a>);

/// The slot of a key in a memtable, or the slot where it would go.
#[derive(Clone, Copy)]
pub(crate) struct MemtableSlot {
    hash: u32,
    newest: u32,
    slot: u32,
}

/// The WAL records of one use of a segment.
pub(crate) struct Memtable {
    /// Every version of every key: a [`Head`], the key and the value.
    versions: Pinned,
    /// The newest version of every key. Reads and puts of one key use this alone, so it is read
    /// without a lock.
    newest: Newest,
    index: Latch<Index>,
    /// The data file, for the values that the WAL records have places of.
    extents: Option<Arc<dyn Extents>>,
}

/// The ordered index and the row counts. Walks, counts and checkpoints use them.
#[derive(Default)]
struct Index {
    until: u64,
    /// By [`Tree::index`].
    trees: [OfTree; 3],
    counted: Vec<Counted>,
}

/// The versions of one tree's keys.
#[derive(Default)]
struct OfTree {
    /// All versions, in the order in which they were added; and those that are no longer the newest
    /// of their key.
    all: Vec<u32>,
    replaced: Vec<u32>,
    /// The newest version of each key, in key order, of the first `ordered_count` versions.
    ordered: BTreeMap<Box<[u8]>, u32>,
    ordered_count: usize,
}

/// No version.
const NONE: u32 = u32::MAX;
/// A version's number is its position divided by this.
const UNIT: u64 = 8;
/// Bytes before a version's key.
const HEAD_SIZE: usize = 24;
const DELETED: u8 = 1;
/// Set if the WAL record's entry is counted: see `record.rs`.
const COUNTS: u8 = 2;
/// Set if the value is the place of a large value in the data file.
const PLACED: u8 = 4;
/// Large values (blobs) from this size on are aligned as in the engine's pages: 16 bytes after a
/// multiple of 64. The padding of arrays inside them relies on it.
const LARGE_SIZE_MIN: usize = 1024;

/// The head of a version, before its key and value.
#[derive(Clone, Copy)]
struct Head {
    sequence: u64,
    /// The previous version of the same key.
    older: u32,
    key_size: u32,
    value_size: u32,
    tree: u8,
    flags: u8,
}

impl Head {
    #[inline]
    fn bytes(self) -> [u8; HEAD_SIZE] {
        let mut bytes = [0; HEAD_SIZE];
        let low = u128::from(self.sequence) | u128::from(self.older) << 64 | u128::from(self.key_size) << 96;
        let high = u64::from(self.value_size) | u64::from(self.tree) << 32 | u64::from(self.flags) << 40;
        let (first, second) = bytes.split_at_mut(16);
        first.copy_from_slice(&low.to_le_bytes());
        second.copy_from_slice(&high.to_le_bytes());
        bytes
    }

    /// What a version says. `rest` is what follows its head.
    #[inline]
    fn said<'a>(self, rest: &'a [u8], extents: Option<&'a Arc<dyn Extents>>) -> Said<'a> {
        if self.flags & DELETED != 0 {
            return Said::Deleted;
        }
        let (_, behind) = rest.split_at_checked(self.key_size as usize).unwrap_or_default();
        let value = behind.get(..self.value_size as usize).unwrap_or_default();
        if self.flags & PLACED != 0 { Said::placed(value, extents) } else { Said::Value(value) }
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Option<Self> {
        let (low, rest) = bytes.split_first_chunk::<16>()?;
        let (low, high) = (u128::from_le_bytes(*low), u64::from_le_bytes(*rest.first_chunk()?));
        Some(Self {
            sequence: low as u64,
            older: (low >> 64) as u32,
            key_size: (low >> 96) as u32,
            value_size: high as u32,
            tree: (high >> 32) as u8,
            flags: (high >> 40) as u8,
        })
    }
}

impl Memtable {
    /// An empty memtable, and the pen that appends to it.
    #[cfg(test)]
    pub(crate) fn new() -> (Self, Pen) {
        Self::over(None)
    }

    /// The same, over the data file that has its large values.
    pub(crate) fn over(extents: Option<&Arc<dyn Extents>>) -> (Self, Pen) {
        let (versions, pen) = Pinned::new();
        let (newest, index) = (Newest::default(), Latch::new(Index::default()));
        (Self { versions, newest, index, extents: extents.cloned() }, pen)
    }

    /// Reserve memory for a WAL record of this many bytes and entries. The caller does so before
    /// any step that cannot be undone.
    ///
    /// # Errors
    /// `NoMemory`.
    #[inline]
    pub(crate) fn reserve(&self, size: usize, count: usize) -> Result<(), EngineError> {
        // A head for each entry, and the padding between two entries.
        const BESIDE: usize = HEAD_SIZE + 2 * LINE;
        if self.versions.reserve(size + count * BESIDE) && self.newest.reserve(count) {
            return Ok(());
        }
        Err(EngineError::NoMemory("the commits that the file has yet to take over"))
    }

    /// How many keys it has.
    pub(crate) fn key_count(&self) -> usize {
        self.newest.len()
    }

    /// About how many bytes the memtable takes.
    pub(crate) fn size(&self) -> usize {
        self.versions.size()
    }

    /// About how many bytes it takes with the hash index and what a checkpoint needs to sort it.
    pub(crate) fn memory(&self) -> usize {
        self.size() + self.newest.memory() + self.newest.len() * 2 * size_of::<u32>()
    }

    /// Add the entries of the next WAL record. Returns whether any of them is of the catalog. Call
    /// in the order of the sequence numbers.
    ///
    /// In a large memtable neither a key's slot nor its last version is likely to be cached. So
    /// both are prefetched, first the slots and then the versions, for a batch of keys at a time.
    pub(crate) fn add(&self, pen: &mut Pen, sequence: u64, wal_record: &[u8]) -> bool {
        const AT_A_TIME: usize = 16;
        let mut is_of_catalog = false;
        let mut changes = record::changes(wal_record);
        let mut some = Vec::with_capacity(AT_A_TIME);
        loop {
            some.extend(changes.by_ref().take(AT_A_TIME).map(|change| {
                is_of_catalog |= change.tree == Tree::Meta;
                let hash = hash_of(change.tree, wal_record.get(change.key.clone()).unwrap_or_default());
                self.newest.ask_for(hash);
                (hash, change)
            }));
            if some.is_empty() {
                return is_of_catalog;
            }
            for (hash, _) in &some {
                if let (Some(version), _) = self.newest.find(*hash, |_| true) {
                    self.versions.ask_for(u64::from(version) * UNIT);
                }
            }
            for (hash, change) in some.drain(..) {
                let key = wal_record.get(change.key.clone()).unwrap_or_default();
                let (place, _) = self.look_hashed(change.tree, key, hash);
                self.add_at(pen, place, sequence, wal_record, &change);
            }
        }
    }

    /// As `add`, for a WAL record made in this process, whose keys' hashes are known.
    pub(crate) fn add_made<'a>(
        &self,
        pen: &mut Pen,
        sequence: u64,
        wal_record: &[u8],
        changes: impl Iterator<Item = (u64, &'a Change)>,
    ) {
        for (hash, change) in changes {
            let key = wal_record.get(change.key.clone()).unwrap_or_default();
            let (place, _) = self.look_hashed(change.tree, key, short_hash(change.tree, hash));
            self.add_at(pen, place, sequence, wal_record, change);
        }
    }

    /// Find the slot of a row, to read its last version and to add the next. Nothing may be added
    /// to the memtable in between.
    #[inline]
    pub(crate) fn place_of_row(&self, key: HashedKey<'_>) -> MemtableSlot {
        self.look_hashed(Tree::Rows, key.bytes, short_hash(Tree::Rows, key.hash)).0
    }

    /// The last version of a row.
    #[inline]
    pub(crate) fn find_row(&self, key: HashedKey<'_>) -> Option<Said<'_>> {
        let (_, version) = self.look_hashed(Tree::Rows, key.bytes, short_hash(Tree::Rows, key.hash));
        version.map(|(head, rest)| head.said(rest, self.extents.as_ref()))
    }

    /// The slot of a key with this hash. If the key is there, also its newest version's head and
    /// the bytes after it: the key, the value, and further versions.
    #[inline]
    fn look_hashed(&self, tree: Tree, key: &[u8], hash: u32) -> (MemtableSlot, Option<(Head, &[u8])>) {
        let mut version = None;
        let (newest, slot) = self.newest.find(hash, |newest| {
            version = version_at(&self.versions, newest).filter(|(head, rest)| {
                head.tree == tree as u8
                    && rest.get(..head.key_size as usize).is_some_and(|found| is_same(found, key))
            });
            version.is_some()
        });
        (MemtableSlot { hash, newest: newest.unwrap_or(NONE), slot }, version)
    }

    /// The last version at a place.
    #[inline]
    pub(crate) fn said_at(&self, place: MemtableSlot) -> Option<Said<'_>> {
        if place.newest == NONE { None } else { self.said(place.newest, u64::MAX).map(|(_, said)| said) }
    }

    /// As `add`, for one change of a key whose place is known.
    #[inline]
    pub(crate) fn add_at(
        &self,
        pen: &mut Pen,
        MemtableSlot { hash, newest: older, slot }: MemtableSlot,
        sequence: u64,
        wal_record: &[u8],
        change: &Change,
    ) {
        let key = wal_record.get(change.key.clone()).unwrap_or_default();
        let value = change.value.clone().map(|value| wal_record.get(value).unwrap_or_default());
        // As in the WAL record, where the value follows the key.
        let until = change.value.as_ref().map_or(change.key.end, |value| value.end);
        let key_and_value = wal_record.get(change.key.start..until).unwrap_or_default();
        debug_assert_eq!(key_and_value.len(), key.len() + value.map_or(0, <[u8]>::len));
        let tree = change.tree;
        let counts = if change.is_counted { COUNTS } else { 0 };
        let head = Head {
            sequence,
            older,
            key_size: key.len() as u32,
            value_size: value.map_or(0, <[u8]>::len) as u32,
            tree: tree as u8,
            flags: counts
                | if value.is_none() { DELETED } else { 0 }
                | if change.is_placed { PLACED } else { 0 },
        };
        // Keys of that tree have eight bytes. If a foreign log has a key of another size, the
        // alignment of its value would move the head to a place where no version is found.
        let is_large = tree == Tree::Blobs
            && key.len().is_multiple_of(UNIT as usize)
            && value.is_some_and(|value| value.len() >= LARGE_SIZE_MIN);
        let address = is_large.then_some((HEAD_SIZE + key.len(), BLOB_ADDRESS_REMAINDER));
        let at = self.versions.append(pen, [&head.bytes(), key_and_value], address);
        self.note((hash, slot, older), at);
    }

    /// Make an appended version the newest of its key.
    #[inline]
    fn note(&self, (hash, slot, older): (u32, u32, u32), at: Option<u64>) {
        // A segment is much smaller than the range of version numbers.
        let Some(version) = at.map(|at| (at / UNIT) as u32) else { return };
        if older == NONE {
            self.newest.insert(hash, slot, version);
        } else {
            self.newest.replace(hash, slot, version);
        }
    }

    /// The index, caught up with all versions.
    fn index(&self) -> LatchGuard<'_, Index> {
        let mut index = self.index.lock();
        index.catch_up(&self.versions);
        index
    }

    /// What the WAL records up to a sequence number say of a key, with the number of the last one
    /// that does. `None` if none does.
    #[inline]
    pub(crate) fn find_numbered(&self, tree: Tree, key: &[u8], sequence: u64) -> Option<(u64, Said<'_>)> {
        self.find_hashed(tree, HashedKey::of(key), sequence)
    }

    /// As `find_numbered`, for a key whose hash is known.
    #[inline]
    pub(crate) fn find_hashed(
        &self,
        tree: Tree,
        key: HashedKey<'_>,
        sequence: u64,
    ) -> Option<(u64, Said<'_>)> {
        let (_, version) = self.look_hashed(tree, key.bytes, short_hash(tree, key.hash));
        let (head, rest) = version?;
        if head.sequence <= sequence {
            return Some((head.sequence, head.said(rest, self.extents.as_ref())));
        }
        if head.older == NONE { None } else { self.said(head.older, sequence) }
    }

    /// How many rows of a table were counted by the WAL records after `behind` and up to `until`.
    pub(crate) fn counted(&self, table: TableId, behind: u64, until: u64) -> i64 {
        let index = self.index();
        let of_table = index.counted.iter().find(|counted| counted.table == table);
        of_table.map_or(0, |counted| counted.at(until) - counted.at(behind))
    }

    /// The tables of which rows were counted.
    pub(crate) fn counted_tables(&self) -> Vec<TableId> {
        self.index().counted.iter().map(|counted| counted.table).collect()
    }

    /// The places of all its large values, those that were replaced included.
    pub(crate) fn places(&self) -> Vec<Place> {
        let index = self.index();
        let versions = index.trees.iter().flat_map(|of_tree| &of_tree.all);
        let placed = versions.filter_map(|version| {
            let (head, rest) = version_at(&self.versions, *version)?;
            let value = rest.get(head.key_size as usize..)?.get(..head.value_size as usize)?;
            (head.flags & PLACED != 0).then(|| Place::parse(value))?
        });
        placed.collect()
    }

    /// Fill `out` with up to `limit` keys after `bound`, in walking order, that have a version up
    /// to the sequence number. False when there are no more.
    pub(crate) fn walk<'a>(
        &'a self,
        tree: Tree,
        bound: Bound<&[u8]>,
        direction: Direction,
        sequence: u64,
        limit: usize,
        out: &mut Vec<Saying<'a>>,
    ) -> bool {
        let mut index = self.index();
        let Some(of_tree) = index.trees.get_mut(tree.index()) else { return false };
        self.order(of_tree);
        let ordered = &of_tree.ordered;
        let mut take = |newest: u32| {
            if let Some((_, said)) = self.said(newest, sequence)
                && let Some((_, key)) = key_of(&self.versions, newest)
            {
                out.push((key, said));
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

    /// Every key of each tree with its newest version, in key order, for a checkpoint.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Tree, impl Iterator<Item = Saying<'_>>)> {
        // In key order the versions are scattered over memory, so they are prefetched.
        const AHEAD: usize = 8;
        let newest = self.index().trees.each_ref().map(OfTree::newest_as_they_came);
        Tree::ALL.into_iter().zip(newest).map(move |(tree, newest)| {
            let sorted = self.sorted(newest);
            let count = sorted.len();
            let said = move |place: usize| {
                if let Some(next) = sorted.get(place + AHEAD) {
                    self.versions.ask_for(u64::from(*next) * UNIT);
                }
                let (head, rest) = version_at(&self.versions, *sorted.get(place)?)?;
                Some((rest.get(..head.key_size as usize)?, head.said(rest, self.extents.as_ref())))
            };
            (tree, (0..count).filter_map(said))
        })
    }

    /// Bring the ordered index up to date.
    fn order(&self, of_tree: &mut OfTree) {
        // To insert this many one by one takes four times as long as to sort all of them anew.
        const MANY: usize = 1 << 12;
        let new = of_tree.all.get(of_tree.ordered_count..).unwrap_or_default();
        if new.len() >= MANY.max(of_tree.ordered_count) {
            let sorted = self.sorted(of_tree.newest_as_they_came()).into_iter();
            of_tree.ordered = sorted.map(|version| (Box::from(self.key(version)), version)).collect();
        } else {
            for version in new {
                let key = self.key(*version);
                match of_tree.ordered.get_mut(key) {
                    Some(newest) => *newest = *version,
                    None => {
                        of_tree.ordered.insert(key.into(), *version);
                    }
                }
            }
        }
        of_tree.ordered_count = of_tree.all.len();
    }

    /// Sort versions by their keys.
    fn sorted(&self, mut versions: Vec<u32>) -> Vec<u32> {
        sort_by_key(&mut versions, |version| self.key(version));
        versions
    }

    /// The key of a version.
    #[inline]
    fn key(&self, version: u32) -> &[u8] {
        key_of(&self.versions, version).map_or(&[], |(_, key)| key)
    }

    /// The newest version up to `sequence`, with its own sequence number.
    #[inline]
    fn said(&self, newest: u32, sequence: u64) -> Option<(u64, Said<'_>)> {
        let mut version = newest;
        loop {
            let (head, rest) = version_at(&self.versions, version)?;
            if head.sequence <= sequence {
                return Some((head.sequence, head.said(rest, self.extents.as_ref())));
            }
            version = head.older;
        }
    }
}

/// The head of a version, and the bytes after it: the key, the value, and further versions. `None`
/// if there is no such version.
#[inline]
fn version_at(versions: &Pinned, version: u32) -> Option<(Head, &[u8])> {
    parsed(versions.from(u64::from(version) * UNIT))
}

/// The head at the start of some bytes, and the bytes after it.
#[inline]
fn parsed(bytes: &[u8]) -> Option<(Head, &[u8])> {
    let (head, rest) = bytes.split_at_checked(HEAD_SIZE)?;
    Some((Head::parse(head)?, rest))
}

/// The head and the key of a version. `None` if there is no such version.
#[inline]
fn key_of(versions: &Pinned, version: u32) -> Option<(Head, &[u8])> {
    let (head, rest) = version_at(versions, version)?;
    Some((head, rest.get(..head.key_size as usize)?))
}

impl OfTree {
    /// The newest version of every key, in the order in which they were added, which is their order
    /// in memory.
    fn newest_as_they_came(&self) -> Vec<u32> {
        let Self { all, replaced, .. } = self;
        if replaced.is_empty() {
            return all.clone();
        }
        // Not from `newest`: a writer may have added to it or replaced in it since.
        let mut is_replaced = vec![0_u64; all.last().map_or(0, |last| *last as usize / 64 + 1)];
        for version in replaced {
            if let Some(word) = is_replaced.get_mut(*version as usize / 64) {
                *word |= 1 << (version % 64);
            }
        }
        let is_newest = |version: &u32| {
            is_replaced.get(*version as usize / 64).is_some_and(|word| word >> (version % 64) & 1 == 0)
        };
        all.iter().copied().filter(is_newest).collect()
    }
}

impl Index {
    /// Read the versions that were added since the last call.
    fn catch_up(&mut self, versions: &Pinned) {
        while let Some(mut place) = versions.entry_from(self.until) {
            // Walk one contiguous run of versions.
            let mut bytes = versions.from(place);
            while let Some((head, rest)) = parsed(bytes).filter(|(head, _)| head.sequence < GAP) {
                let Some(key) = rest.get(..head.key_size as usize) else { return };
                if head.flags & COUNTS != 0 {
                    self.count(key, head.sequence, if head.flags & DELETED == 0 { 1 } else { -1 });
                }
                if let Some(of_tree) = self.trees.get_mut(usize::from(head.tree)) {
                    of_tree.all.push((place / UNIT) as u32);
                    if head.older != NONE {
                        of_tree.replaced.push(head.older);
                    }
                }
                let size = HEAD_SIZE + head.key_size as usize + head.value_size as usize;
                let step = size.next_multiple_of(UNIT as usize);
                place += step as u64;
                bytes = bytes.get(step..).unwrap_or_default();
            }
            if place <= self.until {
                return;
            }
            self.until = place;
        }
    }

    /// Count a row in or out.
    fn count(&mut self, row_key: &[u8], sequence: u64, more: i64) {
        let Some((table, _)) = row_key::split(row_key) else { return };
        if let Some(counted) = self.counted.iter_mut().find(|counted| counted.table == table) {
            counted.count(sequence, more);
        } else {
            self.counted.push(Counted::new(table, sequence, more));
        }
    }
}

#[inline]
fn hash_of(tree: Tree, key: &[u8]) -> u32 {
    short_hash(tree, xxh3_64(key))
}

/// The part of a key's hash that a memtable uses. Mixing in the tree is enough: keys of different
/// trees are hardly ever equal.
#[inline]
fn short_hash(tree: Tree, hash: u64) -> u32 {
    (hash >> 32) as u32 ^ tree as u32
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    fn put((memtable, pen): &mut (Memtable, Pen), sequence: u64, tree: Tree, key: &[u8], is_counted: bool) {
        let mut bytes = record::begin(64);
        let mut change = record::push_put(&mut bytes, tree, key, &[b"value ", &sequence.to_le_bytes()]);
        if is_counted {
            record::count_first(&mut bytes, &mut change);
        }
        let (place, _) = memtable.look_hashed(tree, key, hash_of(tree, key));
        memtable.add_at(pen, place, sequence, &bytes, &change);
    }

    #[test]
    fn a_checkpoint_gets_every_key_once_and_in_order() {
        // Keys that sorting by the eight bytes after the shared prefix may get wrong: keys that
        // end within those bytes or before them, that go on after them, that hold zeros, and keys
        // of another tree.
        let tails: [&[u8]; 9] =
            [b"", b"\0", b"\0\0", b"a", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"abcdefgz", b"\xff"];
        for shared in [&b""[..], b"k", b"shared by all of them "] {
            let mut memtable = Memtable::new();
            let mut expected = BTreeMap::new();
            for (sequence, tail) in (1..).zip(tails.iter().rev().chain(&tails[3..6])) {
                let key = [shared, tail].concat();
                put(&mut memtable, sequence, Tree::Rows, &key, false);
                put(&mut memtable, sequence, Tree::Meta, b"another tree's", false);
                expected.insert(key, [&b"value "[..], &sequence.to_le_bytes()].concat());
            }
            for (tree, sayings) in memtable.0.all() {
                let found = sayings.map(|(key, said)| (key.to_vec(), said.value().unwrap().to_vec()));
                match tree {
                    Tree::Rows => assert!(found.eq(expected.clone()), "after {shared:?}"),
                    Tree::Meta => assert_eq!(found.count(), 1),
                    Tree::Blobs => assert_eq!(found.count(), 0),
                }
            }
        }
    }

    #[test]
    fn what_was_replaced_is_left_out_whether_it_is_little_or_much() {
        for (keys, puts) in [(100_u64, 100_u64), (100, 101), (100, 150), (100, 1000), (3, 1000)] {
            let mut memtable = Memtable::new();
            let mut expected = BTreeMap::new();
            for sequence in 1..=puts {
                let key = (sequence * 7 % keys).to_be_bytes();
                put(&mut memtable, sequence, Tree::Rows, &key, false);
                expected.insert(key.to_vec(), sequence);
            }
            let memtable = memtable.0;
            let versions = memtable.index().trees[Tree::Rows.index()].newest_as_they_came();
            assert!(versions.is_sorted());
            let key_and_sequence = |version| {
                let (head, key) = key_of(&memtable.versions, version).unwrap();
                (key.to_vec(), head.sequence)
            };
            assert_eq!(versions.len(), expected.len());
            assert!(versions.into_iter().map(key_and_sequence).collect::<BTreeMap<_, _>>() == expected);
        }
    }

    #[test]
    fn a_walk_over_many_keys_is_one_over_few() {
        // Walks in between: some bring keys in order one by one, others all at once. Some keys get
        // new versions before that, some after.
        for steps in [&[100_u64, 20_000][..], &[10_000, 300, 10_000], &[20_000], &[5_000, 5_000, 5_000]] {
            let (mut memtable, mut expected, mut sequence) = (Memtable::new(), BTreeMap::new(), 0);
            for count in steps {
                for _ in 0..*count {
                    sequence += 1;
                    let number = (sequence % 9_000_u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                    let key = number.to_be_bytes();
                    put(&mut memtable, sequence, Tree::Rows, &key, false);
                    expected.insert(key, [&b"value "[..], &sequence.to_le_bytes()].concat());
                }
                put(&mut memtable, sequence, Tree::Meta, b"another tree's", false);
                let (mut found, mut sayings, mut behind) = (Vec::new(), Vec::new(), Bound::Unbounded);
                while memtable.0.walk(Tree::Rows, behind, Direction::Forward, sequence, 1000, &mut sayings) {
                    behind = Bound::Excluded(sayings[sayings.len() - 1].0);
                    found.append(&mut sayings);
                }
                found.append(&mut sayings);
                let values = |(key, said): Saying<'_>| (key.to_vec(), said.value().unwrap().to_vec());
                assert!(
                    found
                        .into_iter()
                        .map(values)
                        .eq(expected.clone().into_iter().map(|(k, v)| (k.to_vec(), v)))
                );
            }
        }
    }

    #[test]
    fn what_no_writer_of_ours_makes_is_found_all_the_same() {
        let (memtable, mut pen) = Memtable::new();
        for (sequence, key) in (1..).zip([&b"odd"[..], b"", b"12345678", b"123456789"]) {
            let mut bytes = record::begin(0);
            let value = [sequence as u8; 2000];
            record::push_put(&mut bytes, Tree::Blobs, key, &[&value]);
            record::finish(&mut bytes, 1, sequence, 0);
            memtable.add(&mut pen, sequence, &bytes);
            let (_, said) = memtable.find_numbered(Tree::Blobs, key, sequence).unwrap();
            assert_eq!(said, Said::Value(&value[..]));
        }
    }

    #[test]
    fn readers_without_a_lock_see_their_version_while_somebody_adds() {
        const KEYS: u64 = 400;
        const GROUPS: u64 = 40_000;
        let ((memtable, mut pen), published) = (Memtable::new(), AtomicU64::new(0));
        let (memtable, published) = (&memtable, &published);
        let is_deleted = |sequence: u64| sequence.is_multiple_of(7);
        let value = |sequence: u64| sequence.to_le_bytes().repeat(1 + (sequence % 5) as usize);
        // Each WAL record writes the next key in turn, so the last one that wrote a key, up to any
        // WAL record, follows from its number.
        let last = |key: u64, until: u64| until.checked_sub((until + KEYS - key) % KEYS).filter(|at| *at > 0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for sequence in 1..=GROUPS {
                    let (mut bytes, key) = (record::begin(0), (sequence % KEYS).to_be_bytes());
                    if is_deleted(sequence) {
                        record::push_delete(&mut bytes, Tree::Rows, &key);
                    } else {
                        record::push_put(&mut bytes, Tree::Rows, &key, &[&value(sequence)]);
                    }
                    record::finish(&mut bytes, 1, sequence, 0);
                    memtable.add(&mut pen, sequence, &bytes);
                    published.store(sequence, Ordering::Release);
                }
            });
            let read = |step: usize| {
                let mut newest = 0;
                while newest < GROUPS {
                    newest = published.load(Ordering::Acquire);
                    for until in [newest, newest / 2, newest.saturating_sub(KEYS + 3)] {
                        for key in (0..KEYS).step_by(step) {
                            let found = memtable.find_numbered(Tree::Rows, &key.to_be_bytes(), until);
                            let Some(at) = last(key, until) else {
                                assert!(found.is_none(), "{key} up to {until}");
                                continue;
                            };
                            let (number, said) = found.unwrap();
                            assert_eq!(number, at, "{key} up to {until}");
                            assert_eq!(said.value(), (!is_deleted(at)).then(|| value(at)).as_deref());
                        }
                        let mut sayings = Vec::new();
                        let more = memtable.walk(
                            Tree::Rows,
                            Bound::Unbounded,
                            Direction::Forward,
                            until,
                            500,
                            &mut sayings,
                        );
                        assert!(!more);
                        let keys = (0..KEYS).filter(|key| last(*key, until).is_some());
                        assert!(
                            sayings
                                .iter()
                                .map(|(key, _)| key.to_vec())
                                .eq(keys.map(|key| key.to_be_bytes().to_vec()))
                        );
                    }
                }
            };
            scope.spawn(move || read(7));
            read(11);
        });
    }

    #[test]
    fn rows_are_counted_up_to_each_wal_record() {
        let mut memtable = Memtable::new();
        let mut totals = vec![0];
        // Runs of one and of many, with WAL records in between that count nothing or rows of
        // another table.
        for sequence in 1..60_u64 {
            let counts = sequence % 7 != 0 && !(20..25).contains(&sequence);
            let table = if sequence % 5 == 0 { 4 } else { 3 };
            put(&mut memtable, sequence, Tree::Rows, &[table, sequence as u8], counts);
            totals.push(totals[totals.len() - 1] + i64::from(counts && table == 3));
        }
        for (behind, before) in totals.iter().enumerate() {
            for (until, total) in totals.iter().enumerate().skip(behind) {
                assert_eq!(memtable.0.counted(TableId(3), behind as u64, until as u64), total - before);
            }
        }
        assert_eq!(memtable.0.counted(TableId(5), 0, 60), 0);
    }
}
