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

use std::ops::{Bound, RangeBounds};
use std::sync::Arc;

use xxhash_rust::xxh3::xxh3_64;

use crate::catalog::blob::BLOB_ADDRESS_REMAINDER;
use crate::engine::{Direction, EngineError, Entry, Extents, HashedKey, Tree};
use crate::row_key::{self, TableId};
use crate::sort::by_number::sort_by_key;
use crate::sys::arena::{Arena, ArenaWriter, GAP};
use crate::sys::block::LINE;
use crate::sys::latch::{Latch, LatchGuard};
use crate::sys::short::is_same;
use crate::wal::counted::Counted;
use crate::wal::extents::Extent;
use crate::wal::newest::Newest;
use crate::wal::record::{self, Change};
use crate::wal::tombstones::{Bounds, Covered, KeyOrder};

/// Result of a lookup in a memtable or write batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Lookup<'a> {
    /// The key has this value.
    Value(&'a [u8]),
    /// The same, for a large value that is in the data file already.
    Extent(Extent, &'a [u8]),
    /// The key is deleted.
    Tombstone,
}

impl<'a> Lookup<'a> {
    pub(crate) fn value(self) -> Option<&'a [u8]> {
        match self {
            Self::Value(value) | Self::Extent(_, value) => Some(value),
            Self::Tombstone => None,
        }
    }

    /// The value in an extent. A log that names pages which the file lacks is damaged, and its
    /// value empty.
    pub(crate) fn in_extent(bytes: &[u8], extents: Option<&'a Arc<dyn Extents>>) -> Self {
        let Some(extent) = Extent::parse(bytes) else { return Self::Value(&[]) };
        let value = extents.and_then(|extents| extents.bytes(extent.first, extent.size));
        Self::Extent(extent, value.unwrap_or_default())
    }
}

/// A key and what a lookup of it finds.
pub(crate) type LookupEntry<'a> = (&'a [u8], Lookup<'a>);

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
    versions: Arena,
    /// The newest version of every key. Reads and puts of one key use this alone, so it is read
    /// without a lock.
    newest: Newest,
    index: Latch<Index>,
    /// The data file, for the values that the WAL records have extents of.
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
    ordered: KeyOrder<u32>,
    ordered_count: usize,
    covered: Covered,
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
/// Set if the value is the extent of a large value in the data file.
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
    fn lookup<'a>(self, rest: &'a [u8], extents: Option<&'a Arc<dyn Extents>>) -> Lookup<'a> {
        if self.flags & DELETED != 0 {
            return Lookup::Tombstone;
        }
        let (_, behind) = rest.split_at_checked(self.key_size as usize).unwrap_or_default();
        let value = behind.get(..self.value_size as usize).unwrap_or_default();
        if self.flags & PLACED != 0 { Lookup::in_extent(value, extents) } else { Lookup::Value(value) }
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
    /// An empty memtable, and the writer that appends to it.
    #[cfg(test)]
    pub(crate) fn new() -> (Self, ArenaWriter) {
        Self::over(None)
    }

    /// The same, over the data file that has its large values.
    pub(crate) fn over(extents: Option<&Arc<dyn Extents>>) -> (Self, ArenaWriter) {
        let (versions, arena_writer) = Arena::new();
        let (newest, index) = (Newest::default(), Latch::new(Index::default()));
        (Self { versions, newest, index, extents: extents.cloned() }, arena_writer)
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
    pub(crate) fn add(&self, arena_writer: &mut ArenaWriter, sequence: u64, wal_record: &[u8]) -> bool {
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
                self.add_at(arena_writer, place, sequence, wal_record, &change);
            }
        }
    }

    /// As `add`, for the changes of a WAL record after the first. They are few, and their slots
    /// were prefetched.
    pub(crate) fn add_few(&self, arena_writer: &mut ArenaWriter, sequence: u64, wal_record: &[u8]) {
        for change in record::changes(wal_record).skip(1) {
            let key = wal_record.get(change.key.clone()).unwrap_or_default();
            let (place, _) = self.look_hashed(change.tree, key, hash_of(change.tree, key));
            self.add_at(arena_writer, place, sequence, wal_record, &change);
        }
    }

    /// As `add`, for a WAL record made in this process, whose keys' hashes are known.
    pub(crate) fn add_made<'a>(
        &self,
        arena_writer: &mut ArenaWriter,
        sequence: u64,
        wal_record: &[u8],
        changes: impl Iterator<Item = (u64, &'a Change)>,
    ) {
        for (hash, change) in changes {
            let key = wal_record.get(change.key.clone()).unwrap_or_default();
            let (place, _) = self.look_hashed(change.tree, key, short_hash(change.tree, hash));
            self.add_at(arena_writer, place, sequence, wal_record, change);
        }
    }

    /// Find the slot of a row, to read its last version and to add the next. Nothing may be added
    /// to the memtable in between.
    #[inline]
    pub(crate) fn place_of_row(&self, key: HashedKey<'_>) -> MemtableSlot {
        self.look_hashed(Tree::Rows, key.bytes, short_hash(Tree::Rows, key.hash)).0
    }

    /// Have the processor fetch the slot of a row.
    #[inline]
    pub(crate) fn ask_for_row(&self, key: HashedKey<'_>) {
        self.newest.ask_for(short_hash(Tree::Rows, key.hash));
    }

    /// The last version of a row.
    #[inline]
    pub(crate) fn find_row(&self, key: HashedKey<'_>) -> Option<Lookup<'_>> {
        let (_, version) = self.look_hashed(Tree::Rows, key.bytes, short_hash(Tree::Rows, key.hash));
        version.map(|(head, rest)| head.lookup(rest, self.extents.as_ref()))
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
    pub(crate) fn lookup_at(&self, place: MemtableSlot) -> Option<Lookup<'_>> {
        if place.newest == NONE {
            None
        } else {
            self.lookup(place.newest, u64::MAX).map(|(_, lookup)| lookup)
        }
    }

    /// As `add`, for one change of a key whose place is known.
    #[inline]
    pub(crate) fn add_at(
        &self,
        arena_writer: &mut ArenaWriter,
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
        let at = self.versions.append(arena_writer, [&head.bytes(), key_and_value], address);
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
    pub(crate) fn find_numbered(&self, tree: Tree, key: &[u8], sequence: u64) -> Option<(u64, Lookup<'_>)> {
        self.find_hashed(tree, HashedKey::of(key), sequence)
    }

    /// As `find_numbered`, for a key whose hash is known.
    #[inline]
    pub(crate) fn find_hashed(
        &self,
        tree: Tree,
        key: HashedKey<'_>,
        sequence: u64,
    ) -> Option<(u64, Lookup<'_>)> {
        let (_, version) = self.look_hashed(tree, key.bytes, short_hash(tree, key.hash));
        let (head, rest) = version?;
        if head.sequence <= sequence {
            return Some((head.sequence, head.lookup(rest, self.extents.as_ref())));
        }
        if head.older == NONE { None } else { self.lookup(head.older, sequence) }
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

    /// The extents of all its large values, also of values that were replaced.
    pub(crate) fn value_extents(&self) -> Vec<Extent> {
        let index = self.index();
        let versions = index.trees.iter().flat_map(|of_tree| &of_tree.all);
        let placed = versions.filter_map(|version| {
            let (head, rest) = version_at(&self.versions, *version)?;
            let value = rest.get(head.key_size as usize..)?.get(..head.value_size as usize)?;
            (head.flags & PLACED != 0).then(|| Extent::parse(value))?
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
        out: &mut Vec<LookupEntry<'a>>,
    ) -> bool {
        let mut index = self.index();
        let Some(of_tree) = index.trees.get_mut(tree.index()) else { return false };
        self.order(of_tree);
        let take = |newest: u32| {
            if let Some((_, lookup)) = self.lookup(newest, sequence)
                && let Some((_, key)) = key_of(&self.versions, newest)
            {
                out.push((key, lookup));
            }
            out.len() < limit
        };
        !of_tree.ordered.walk(bounds_from(bound, direction), direction, take)
    }

    /// The first key after `bound`, in walking order, that has a value in the version of this
    /// sequence number, whatever has been deleted before it.
    pub(crate) fn first_live(
        &self,
        tree: Tree,
        bound: Bound<&[u8]>,
        direction: Direction,
        sequence: u64,
    ) -> Option<Entry<'_>> {
        /// Changes since that version, after which the keys that are live now say nothing of it.
        const UNSEEN_MAX: usize = 64;
        let mut index = self.index();
        let of_tree = index.trees.get_mut(tree.index())?;
        self.order(of_tree);
        let see = |version: u32| {
            let (_, lookup) = self.lookup(version, sequence)?;
            Some((self.key(version), lookup.value()?))
        };
        let bounds = bounds_from(bound, direction);
        let is_unseen = |version: &u32| {
            version_at(&self.versions, *version).is_some_and(|(head, _)| head.sequence > sequence)
        };
        let unseen = of_tree.all.iter().rev().copied().take_while(is_unseen).take(UNSEEN_MAX + 1);
        let unseen: Vec<u32> = unseen.collect();
        if unseen.len() > UNSEEN_MAX {
            return of_tree.ordered.first(bounds, direction, see);
        }
        let live = of_tree.ordered.first_live(bounds, direction, |version| self.is_deleted(version), see);
        // What was deleted since is live in that version.
        let deleted = unseen.into_iter().filter_map(see).filter(|(key, _)| bounds.contains(*key));
        let all = deleted.chain(live);
        match direction {
            Direction::Forward => all.min_by_key(|(key, _)| *key),
            Direction::Reverse => all.max_by_key(|(key, _)| *key),
        }
    }

    fn is_deleted(&self, version: u32) -> bool {
        version_at(&self.versions, version).is_some_and(|(head, _)| head.flags & DELETED != 0)
    }

    /// Where a walk goes on below the memtable. `None`: where it is.
    pub(crate) fn behind_covered(
        &self,
        tree: Tree,
        place: &[u8],
        direction: Direction,
        sequence: u64,
    ) -> Option<Vec<u8>> {
        let index = self.index.lock();
        let covered = &index.trees.get(tree.index())?.covered;
        covered.behind(place, direction, sequence).map(<[u8]>::to_vec)
    }

    /// Note that the memtable has a version up to this one of each key from `start` to `end` that
    /// is below it.
    pub(crate) fn cover(&self, tree: Tree, start: &[u8], end: &[u8], sequence: u64) {
        if let Some(of_tree) = self.index.lock().trees.get_mut(tree.index()) {
            of_tree.covered.add(start, end, sequence);
        }
    }

    /// Every key of each tree with its newest version, in key order, for a checkpoint.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Tree, impl Iterator<Item = LookupEntry<'_>>)> {
        // In key order the versions are scattered over memory, so they are prefetched.
        const AHEAD: usize = 8;
        let newest = self.index().trees.each_ref().map(OfTree::newest_as_they_came);
        Tree::ALL.into_iter().zip(newest).map(move |(tree, newest)| {
            let sorted = self.sorted(newest);
            let count = sorted.len();
            let lookup = move |place: usize| {
                if let Some(next) = sorted.get(place + AHEAD) {
                    self.versions.ask_for(u64::from(*next) * UNIT);
                }
                let (head, rest) = version_at(&self.versions, *sorted.get(place)?)?;
                Some((rest.get(..head.key_size as usize)?, head.lookup(rest, self.extents.as_ref())))
            };
            (tree, (0..count).filter_map(lookup))
        })
    }

    /// Bring the ordered index up to date.
    fn order(&self, of_tree: &mut OfTree) {
        // To insert this many one by one takes four times as long as to sort all of them anew.
        const MANY: usize = 1 << 12;
        let new = of_tree.all.get(of_tree.ordered_count..).unwrap_or_default();
        if new.len() >= MANY.max(of_tree.ordered_count) {
            let sorted = self.sorted(of_tree.newest_as_they_came()).into_iter();
            of_tree.ordered = KeyOrder::of(sorted.map(|version| (Box::from(self.key(version)), version)));
        } else {
            for version in new {
                of_tree.ordered.set(self.key(*version), *version, self.is_deleted(*version));
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
    fn lookup(&self, newest: u32, sequence: u64) -> Option<(u64, Lookup<'_>)> {
        let mut version = newest;
        loop {
            let (head, rest) = version_at(&self.versions, version)?;
            if head.sequence <= sequence {
                return Some((head.sequence, head.lookup(rest, self.extents.as_ref())));
            }
            version = head.older;
        }
    }
}

/// The keys of a walk that begins at a bound.
fn bounds_from(bound: Bound<&[u8]>, direction: Direction) -> Bounds<'_> {
    match direction {
        Direction::Forward => (bound, Bound::Unbounded),
        Direction::Reverse => (Bound::Unbounded, bound),
    }
}

/// The head of a version, and the bytes after it: the key, the value, and further versions. `None`
/// if there is no such version.
#[inline]
fn version_at(versions: &Arena, version: u32) -> Option<(Head, &[u8])> {
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
fn key_of(versions: &Arena, version: u32) -> Option<(Head, &[u8])> {
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
    fn catch_up(&mut self, versions: &Arena) {
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
mod tests;
