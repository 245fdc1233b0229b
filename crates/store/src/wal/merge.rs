//! Merges the tree with the memtables and a transaction's write batch in one walk.
//!
//! All sources are walked at once. If several have the same key, the first source holds, and a
//! deleted key is skipped. A memtable is locked while it is read, so some keys are taken from it at
//! a time. When no memtable has more keys, the rest of the walk is the tree's own. Long runs of
//! deleted keys are passed at once (`tombstones.rs`).

use std::ops::Bound;
use std::sync::Arc;

use crate::engine::{Batch, Cursor, Direction, EngineError, Entry, EntryResult, ReadTxn, Start, Tree};
use crate::wal::memtable::{Lookup, LookupEntry, Memtable};
use crate::wal::tombstones::{self, RUN_MIN};
use crate::wal::write_batch::WriteBatch;

/// A source over the tree: the transaction's own write batch, or a memtable up to a sequence
/// number. Newest first.
#[derive(Clone, Copy)]
pub(crate) enum Over<'t> {
    WriteBatch(&'t WriteBatch),
    Memtable(&'t Arc<Memtable>, u64),
}

impl<'t> Over<'t> {
    pub(crate) fn walk(
        self,
        tree: Tree,
        bound: Bound<&[u8]>,
        direction: Direction,
        limit: usize,
        out: &mut Vec<LookupEntry<'t>>,
    ) -> bool {
        match self {
            Self::WriteBatch(write_batch) => write_batch.walk(tree, bound, direction, limit, out),
            Self::Memtable(memtable, sequence) => memtable.walk(tree, bound, direction, sequence, limit, out),
        }
    }
}

impl<'t> Over<'t> {
    /// The first entry of a walk over this source alone.
    fn first_live(self, tree: Tree, bound: Bound<&[u8]>, direction: Direction) -> Option<Entry<'t>> {
        match self {
            Self::WriteBatch(write_batch) => write_batch.first_live(tree, bound, direction),
            Self::Memtable(memtable, sequence) => memtable.first_live(tree, bound, direction, sequence),
        }
    }

    /// Whether it has a value or a tombstone for a key.
    fn says(self, tree: Tree, key: &[u8]) -> bool {
        match self {
            Self::WriteBatch(write_batch) => write_batch.find(tree, key).is_some(),
            Self::Memtable(memtable, sequence) => memtable.find_numbered(tree, key, sequence).is_some(),
        }
    }

    /// Where a walk goes on among the sources below this one. `None`: where it is.
    fn behind_covered(self, tree: Tree, place: &[u8], direction: Direction) -> Option<Vec<u8>> {
        match self {
            Self::WriteBatch(write_batch) => write_batch.behind_covered(tree, place, direction),
            Self::Memtable(memtable, sequence) => memtable.behind_covered(tree, place, direction, sequence),
        }
    }

    /// Note that it says something of every key from `start` to `end` that the sources below have.
    fn cover(self, tree: Tree, start: &[u8], end: &[u8]) {
        match self {
            Self::WriteBatch(write_batch) => write_batch.cover(tree, start, end),
            Self::Memtable(memtable, sequence) => memtable.cover(tree, start, end, sequence),
        }
    }
}

/// The bound at which a walk begins.
fn bound_of(start: Start<'_>, direction: Direction) -> Bound<&[u8]> {
    match (start, direction) {
        (Start::Edge, _) => Bound::Unbounded,
        (Start::At(key), Direction::Forward) => Bound::Included(key),
        (Start::At(key), Direction::Reverse) => Bound::Excluded(key),
    }
}

/// The place at which a walk goes on after a key.
fn behind(key: &[u8], direction: Direction) -> Vec<u8> {
    match direction {
        Direction::Forward => [key, b"\0"].concat(),
        Direction::Reverse => key.to_vec(),
    }
}

/// The first entry of a walk over some sources and the tree under them, however many deleted keys
/// come before it. A cursor would fetch several keys from each memtable and a page from the tree;
/// this fetches one from each.
pub(crate) fn first_of<'t>(
    overs: &[Over<'t>],
    below: &'t dyn ReadTxn,
    tree: Tree,
    start: Start<'_>,
    direction: Direction,
) -> EntryResult<'t> {
    /// Hidden entries in turn from which a cursor, and a note, are worth it.
    const MANY: usize = 4;
    let Some((over, lower)) = overs.split_first() else { return below.first_from(tree, start, direction) };
    let live = over.first_live(tree, bound_of(start, direction), direction);
    let mut place = match start {
        Start::At(key) => Some(key.to_vec()),
        Start::Edge => None,
    };
    let mut cursor: Option<Box<dyn Cursor<'t> + 't>> = None;
    let (mut last, mut hidden, mut known) = (None, 0, None);
    let found = loop {
        if let (Some(at), None) = (&place, &cursor)
            && let Some(behind) = over.behind_covered(tree, at, direction)
        {
            if hidden == 0 {
                known = Some(behind.clone());
            }
            place = Some(behind);
        }
        let entry = match &mut cursor {
            Some(cursor) => cursor.step()?,
            None => first_of(lower, below, tree, place.as_deref().map_or(Start::Edge, Start::At), direction)?,
        };
        let Some((key, _)) = entry else { break live };
        let is_behind_live = live.is_some_and(|(live, _)| match direction {
            Direction::Forward => live <= key,
            Direction::Reverse => live >= key,
        });
        if is_behind_live {
            break live;
        }
        if !over.says(tree, key) {
            break entry;
        }
        tombstones::step();
        (last, hidden) = (Some(key), hidden + 1);
        let at = place.insert(behind(key, direction));
        if hidden == MANY && lower.is_empty() {
            let mut begun = below.cursor(tree)?;
            begun.start(Start::At(at), direction)?;
            cursor = Some(begun);
        }
    };
    if let (Some(last), Start::At(start)) = (last, start)
        && (known.is_some() || hidden >= MANY)
    {
        let from = known.as_deref().unwrap_or(start);
        match direction {
            Direction::Forward => over.cover(tree, from, &behind(last, direction)),
            Direction::Reverse => over.cover(tree, last, from),
        }
    }
    Ok(found)
}

/// A walk over one source that lies over the tree.
struct OverWalk<'t> {
    over: Over<'t>,
    lookups: Vec<LookupEntry<'t>>,
    index: usize,
    has_more: bool,
}

impl<'t> OverWalk<'t> {
    /// The next key of this source.
    fn head(&mut self, tree: Tree, direction: Direction, limit: usize) -> Option<LookupEntry<'t>> {
        if self.index >= self.lookups.len() && self.has_more {
            let last = self.lookups.last().map(|(key, _)| *key);
            self.lookups.clear();
            self.index = 0;
            let bound = last.map_or(Bound::Unbounded, Bound::Excluded);
            self.has_more = self.over.walk(tree, bound, direction, limit, &mut self.lookups);
        }
        self.lookups.get(self.index).copied()
    }
}

/// Merges the sources; see the module.
pub(crate) struct MergedCursor<'t> {
    tree: Tree,
    direction: Direction,
    /// How many keys are taken from a memtable at a time: few at first, since most walks are short.
    limit: usize,
    /// How many entries a batch has: as few at first.
    batch_size: usize,
    overs: Vec<OverWalk<'t>>,
    below: Box<dyn Cursor<'t> + 't>,
    /// The tree that `below` walks over.
    source: &'t dyn ReadTxn,
    /// How many deleted keys came in turn, and after how many the next one that is not deleted is
    /// looked for.
    passed: usize,
    passed_max: usize,
    batch: Batch<'t>,
    index: usize,
    is_below_over: bool,
}

/// A step over a memtable's order, with the lookup, takes a tenth of a microsecond or more: the
/// first row of a queue needs one.
const LIMIT_FIRST: usize = 2;
const LIMIT_MAX: usize = 256;
const BATCH_SIZE_MAX: usize = 64;

impl<'t> MergedCursor<'t> {
    pub(crate) fn new(
        tree: Tree,
        overs: Vec<Over<'t>>,
        source: &'t dyn ReadTxn,
    ) -> Result<Self, EngineError> {
        let below = source.cursor(tree)?;
        let overs = overs
            .into_iter()
            .map(|over| OverWalk { over, lookups: Vec::new(), index: 0, has_more: false })
            .collect();
        Ok(Self {
            tree,
            direction: Direction::Forward,
            limit: LIMIT_FIRST,
            batch_size: LIMIT_FIRST,
            overs,
            below,
            source,
            passed: 0,
            passed_max: RUN_MIN,
            batch: Batch::default(),
            index: 0,
            is_below_over: true,
        })
    }

    /// The next entry of the tree.
    fn head_below(&mut self) -> EntryResult<'t> {
        if self.index >= self.batch.entries.len() && !self.is_below_over {
            self.below.fill(&mut self.batch)?;
            self.index = 0;
            self.is_below_over = self.batch.entries.is_empty();
        }
        Ok(self.batch.entries.get(self.index).copied())
    }

    /// The next entry of all sources.
    fn next(&mut self) -> EntryResult<'t> {
        loop {
            let below = self.head_below()?;
            let mut best: Option<LookupEntry<'t>> = below.map(|(key, value)| (key, Lookup::Value(value)));
            let (tree, direction, limit) = (self.tree, self.direction, self.limit);
            // From the lowest source up: of equal keys the upper source holds.
            for over in self.overs.iter_mut().rev() {
                let Some(head) = over.head(tree, direction, limit) else { continue };
                let is_first = best.is_none_or(|(key, _)| match direction {
                    Direction::Forward => head.0 <= key,
                    Direction::Reverse => head.0 >= key,
                });
                if is_first {
                    best = Some(head);
                }
            }
            let Some((key, lookup)) = best else { return Ok(None) };
            if below.is_some_and(|(other, _)| other == key) {
                self.index += 1;
            }
            for over in &mut self.overs {
                if over.lookups.get(over.index).is_some_and(|(other, _)| *other == key) {
                    over.index += 1;
                    if over.index == over.lookups.len() {
                        self.limit = (self.limit * 2).min(LIMIT_MAX);
                    }
                }
            }
            if let Some(value) = lookup.value() {
                self.passed = 0;
                return Ok(Some((key, value)));
            }
            tombstones::step();
            self.passed += 1;
            if self.passed >= self.passed_max {
                self.pass_deleted(key)?;
            }
        }
    }

    /// Stand before the next entry after a key, whatever is deleted before it. That costs as much
    /// as some steps, so the runs have to be the longer, the more often it is done.
    #[cold]
    fn pass_deleted(&mut self, key: &[u8]) -> Result<(), EngineError> {
        self.passed = 0;
        self.passed_max *= 2;
        let overs: Vec<Over<'t>> = self.overs.iter().map(|over| over.over).collect();
        let place = behind(key, self.direction);
        let next = first_of(&overs, self.source, self.tree, Start::At(&place), self.direction)?;
        if let Some((next, _)) = next {
            // In reverse the place itself is left out.
            let end: &[u8] = if self.direction == Direction::Reverse { b"\0" } else { b"" };
            return self.stand_at(Start::At(&[next, end].concat()));
        }
        self.batch.entries.clear();
        self.is_below_over = true;
        for over in &mut self.overs {
            over.lookups.clear();
            over.has_more = false;
        }
        Ok(())
    }

    fn stand_at(&mut self, start: Start<'_>) -> Result<(), EngineError> {
        self.below.start(start, self.direction)?;
        (self.limit, self.batch_size) = (LIMIT_FIRST, LIMIT_FIRST);
        self.batch.entries.clear();
        self.index = 0;
        self.is_below_over = false;
        let bound = bound_of(start, self.direction);
        for over in &mut self.overs {
            over.lookups.clear();
            over.index = 0;
            over.has_more = over.over.walk(self.tree, bound, self.direction, self.limit, &mut over.lookups);
        }
        Ok(())
    }

    /// The first key that any source over the tree has.
    fn first_over(&mut self) -> Option<&'t [u8]> {
        let (tree, direction, limit) = (self.tree, self.direction, self.limit);
        let heads = self.overs.iter_mut().filter_map(|over| over.head(tree, direction, limit));
        let keys = heads.map(|(key, _)| key);
        match direction {
            Direction::Forward => keys.min(),
            Direction::Reverse => keys.max(),
        }
    }

    /// The rest of the tree's current batch.
    fn rest_below(&self) -> &[Entry<'t>] {
        self.batch.entries.get(self.index..).unwrap_or_default()
    }
}

/// How many of these entries come before a key in walking order. A galloping search, since the
/// answer is often a whole page: few keys lie over many.
fn count_before(entries: &[Entry<'_>], key: &[u8], direction: Direction) -> usize {
    let is_before = |entry: &Entry<'_>| match direction {
        Direction::Forward => entry.0 < key,
        Direction::Reverse => entry.0 > key,
    };
    let mut step = 1;
    while entries.get(step - 1).is_some_and(is_before) {
        step *= 2;
    }
    let known = step / 2;
    let open = entries.get(known..entries.len().min(step)).unwrap_or_default();
    known + open.partition_point(is_before)
}

impl<'t> Cursor<'t> for MergedCursor<'t> {
    fn start(&mut self, start: Start<'_>, direction: Direction) -> Result<(), EngineError> {
        self.direction = direction;
        (self.passed, self.passed_max) = (0, RUN_MIN);
        self.stand_at(start)
    }

    fn step(&mut self) -> EntryResult<'t> {
        self.next()
    }

    fn fill(&mut self, batch: &mut Batch<'t>) -> Result<(), EngineError> {
        batch.entries.clear();
        let enough = self.batch_size;
        self.batch_size = (enough * 2).min(BATCH_SIZE_MAX);
        while batch.entries.len() < enough {
            let Some(over) = self.first_over() else {
                // No source over the tree has a key from here on.
                if self.rest_below().is_empty() && batch.entries.is_empty() {
                    return if self.is_below_over { Ok(()) } else { self.below.fill(batch) };
                }
                batch.entries.extend_from_slice(self.rest_below());
                self.index = self.batch.entries.len();
                return Ok(());
            };
            if self.head_below()?.is_some() {
                let rest = self.rest_below();
                let count = count_before(rest, over, self.direction);
                batch.entries.extend_from_slice(rest.get(..count).unwrap_or_default());
                let is_all = count == rest.len();
                self.index += count;
                if is_all {
                    continue;
                }
            }
            match self.next()? {
                Some(entry) => batch.entries.push(entry),
                None => break,
            }
        }
        Ok(())
    }
}
