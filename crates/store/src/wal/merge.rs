//! Merges the tree with the memtables and a transaction's write batch in one walk.
//!
//! All sources are walked at once. If several have the same key, the first source holds, and a
//! deleted key is skipped. A memtable is locked while it is read, so some keys are taken from it at
//! a time. When no memtable has more keys, the rest of the walk is the tree's own.

use std::ops::Bound;
use std::sync::Arc;

use crate::engine::{Batch, Cursor, Direction, EngineError, Entry, Start, Tree};
use crate::wal::memtable::{Memtable, Said, Saying};
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
        out: &mut Vec<Saying<'t>>,
    ) -> bool {
        match self {
            Self::WriteBatch(write_batch) => write_batch.walk(tree, bound, direction, limit, out),
            Self::Memtable(memtable, sequence) => memtable.walk(tree, bound, direction, sequence, limit, out),
        }
    }
}

/// A walk over one source that lies over the tree.
struct OverWalk<'t> {
    over: Over<'t>,
    sayings: Vec<Saying<'t>>,
    index: usize,
    has_more: bool,
}

impl<'t> OverWalk<'t> {
    /// The next key of this source.
    fn head(&mut self, tree: Tree, direction: Direction, limit: usize) -> Option<Saying<'t>> {
        if self.index >= self.sayings.len() && self.has_more {
            let last = self.sayings.last().map(|(key, _)| *key);
            self.sayings.clear();
            self.index = 0;
            let bound = last.map_or(Bound::Unbounded, Bound::Excluded);
            self.has_more = self.over.walk(tree, bound, direction, limit, &mut self.sayings);
        }
        self.sayings.get(self.index).copied()
    }
}

/// Merges the sources; see the module.
pub(crate) struct MergedCursor<'t> {
    tree: Tree,
    direction: Direction,
    /// How many keys are taken from a memtable at a time: few at first, since most walks are short.
    limit: usize,
    overs: Vec<OverWalk<'t>>,
    below: Box<dyn Cursor<'t> + 't>,
    batch: Batch<'t>,
    index: usize,
    is_below_over: bool,
}

const LIMIT_FIRST: usize = 8;
const LIMIT_MAX: usize = 256;

impl<'t> MergedCursor<'t> {
    pub(crate) fn new(tree: Tree, overs: Vec<Over<'t>>, below: Box<dyn Cursor<'t> + 't>) -> Self {
        let overs = overs
            .into_iter()
            .map(|over| OverWalk { over, sayings: Vec::new(), index: 0, has_more: false })
            .collect();
        Self {
            tree,
            direction: Direction::Forward,
            limit: LIMIT_FIRST,
            overs,
            below,
            batch: Batch::default(),
            index: 0,
            is_below_over: true,
        }
    }

    /// The next entry of the tree.
    fn head_below(&mut self) -> Result<Option<Entry<'t>>, EngineError> {
        if self.index >= self.batch.entries.len() && !self.is_below_over {
            self.below.fill(&mut self.batch)?;
            self.index = 0;
            self.is_below_over = self.batch.entries.is_empty();
        }
        Ok(self.batch.entries.get(self.index).copied())
    }

    /// The next entry of all sources.
    fn next(&mut self) -> Result<Option<Entry<'t>>, EngineError> {
        loop {
            let below = self.head_below()?;
            let mut best: Option<Saying<'t>> = below.map(|(key, value)| (key, Said::Value(value)));
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
            let Some((key, said)) = best else { return Ok(None) };
            if below.is_some_and(|(other, _)| other == key) {
                self.index += 1;
            }
            for over in &mut self.overs {
                if over.sayings.get(over.index).is_some_and(|(other, _)| *other == key) {
                    over.index += 1;
                    if over.index == over.sayings.len() {
                        self.limit = (self.limit * 2).min(LIMIT_MAX);
                    }
                }
            }
            if let Some(value) = said.value() {
                return Ok(Some((key, value)));
            }
        }
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
        self.below.start(start, direction)?;
        self.direction = direction;
        self.limit = LIMIT_FIRST;
        self.batch.entries.clear();
        self.index = 0;
        self.is_below_over = false;
        let bound = match (start, direction) {
            (Start::Edge, _) => Bound::Unbounded,
            (Start::At(key), Direction::Forward) => Bound::Included(key),
            (Start::At(key), Direction::Reverse) => Bound::Excluded(key),
        };
        for over in &mut self.overs {
            over.sayings.clear();
            over.index = 0;
            over.has_more = over.over.walk(self.tree, bound, direction, self.limit, &mut over.sayings);
        }
        Ok(())
    }

    fn step(&mut self) -> Result<Option<Entry<'t>>, EngineError> {
        self.next()
    }

    fn fill(&mut self, batch: &mut Batch<'t>) -> Result<(), EngineError> {
        const ENOUGH: usize = 64;
        batch.entries.clear();
        while batch.entries.len() < ENOUGH {
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
