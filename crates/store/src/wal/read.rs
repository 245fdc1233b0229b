//! A snapshot of log and tree.
//!
//! [R1] It sees the memtables' newest versions up to its sequence number, then the tree.

use std::collections::BTreeSet;
use std::ops::Bound;
use std::sync::Arc;

use crate::catalog::row_key::TableId;
use crate::catalog::{APPLIED_KEY, table_key};
use crate::engine::{
    Contents, Cursor, Direction, EngineError, Entry, EntryPlace, HashedKey, ReadTxn, Start, Tree,
};
use crate::sys::memory;
use crate::wal::history;
use crate::wal::memtable::{Memtable, Said, Saying};
use crate::wal::merge::{MergedCursor, Over};
use crate::wal::state::State;
use crate::wal::write_batch::WriteBatch;

/// One version of log and tree.
#[derive(Clone)]
pub(crate) struct LoggedRead {
    tree: Arc<dyn ReadTxn>,
    /// Newest first. Only memtables with WAL records that the tree lacks.
    memtables: [Option<Arc<Memtable>>; 2],
    sequence: u64,
    /// The sequence number of the last WAL record that the tree has.
    applied: u64,
    catalog: u64,
}

impl LoggedRead {
    /// The newest version that this process has read, with the tree under it.
    pub(crate) fn new(state: &State, tree: Arc<dyn ReadTxn>) -> Self {
        let mut memtables = [None, None];
        let mut live = state.memtables.iter().rev().filter(|placed| placed.end > state.applied.position);
        for (place, placed) in memtables.iter_mut().zip(live.by_ref()) {
            *place = Some(Arc::clone(&placed.memtable));
        }
        debug_assert!(live.next().is_none(), "a log has two segments");
        let sequence = state.sequence().max(state.applied.sequence);
        Self { tree, memtables, sequence, applied: state.applied.sequence, catalog: state.catalog_version() }
    }

    /// The memtables' version of a key.
    #[inline]
    pub(crate) fn find_over(&self, tree: Tree, key: HashedKey<'_>) -> Option<Said<'_>> {
        let mut memtables = self.memtables.iter().flatten();
        memtables.find_map(|memtable| memtable.find_hashed(tree, key, self.sequence)).map(|(_, said)| said)
    }

    /// As `get`, for a key whose hash is known.
    #[inline]
    pub(crate) fn get_hashed(&self, tree: Tree, key: HashedKey<'_>) -> Result<Option<&[u8]>, EngineError> {
        match self.find_over(tree, key) {
            Some(said) => Ok(said.value()),
            None => self.tree.get(tree, key.bytes),
        }
    }

    /// See [`Contents::rows_beyond`]: what was counted after the WAL record that wrote the table's
    /// entry.
    pub(crate) fn rows_beyond(&self, table: TableId) -> i64 {
        let (key, until) = (table_key(table), self.sequence);
        let written =
            |memtable: &Arc<Memtable>| memtable.find_numbered(Tree::Meta, &key, until).map(|(at, _)| at);
        let memtables = || self.memtables.iter().flatten();
        let behind = memtables().find_map(written).map_or(self.applied, |at| at.max(self.applied));
        memtables().map(|memtable| memtable.counted(table, behind, until)).sum()
    }

    /// How many more entries a tree has with the memtables than without. The entries for `applied`
    /// and for the history are not counted.
    pub(crate) fn entries_over(&self, tree: Tree) -> Result<i64, EngineError> {
        let mut more = 0;
        if tree == Tree::Meta && self.tree.get(tree, APPLIED_KEY)?.is_some() {
            more -= 1;
        }
        if tree == Tree::Meta {
            more -= history::count(&*self.tree)?;
        }
        let all = self.memtables.iter().flatten().flat_map(|memtable| memtable.all());
        let keys = all.filter(|(of, _)| *of == tree).flat_map(|(_, sayings)| sayings.map(|(key, _)| key));
        for key in keys.collect::<BTreeSet<_>>() {
            let (is_now, was) = (self.get(tree, key)?.is_some(), self.tree.get(tree, key)?.is_some());
            more += i64::from(is_now) - i64::from(was);
        }
        Ok(more)
    }

    /// The first entry of a walk over memtables and tree, with a write batch over both. A cursor
    /// would fetch several keys from each memtable and a page from the tree; this fetches one from
    /// each.
    pub(crate) fn first_under<'t>(
        &'t self,
        tree: Tree,
        start: Start<'_>,
        direction: Direction,
        write_batch: Option<&'t WriteBatch>,
    ) -> Result<Option<Entry<'t>>, EngineError> {
        const TRIES: usize = 8;
        if write_batch.is_none() && self.memtables.iter().all(Option::is_none) {
            return self.tree.first_from(tree, start, direction);
        }
        let mut behind: Option<&'t [u8]> = None;
        for _ in 0..TRIES {
            let (bound, place) = match (behind, start, direction) {
                (Some(key), _, Direction::Forward) => (Bound::Excluded(key), Some([key, b"\0"].concat())),
                (Some(key), _, Direction::Reverse) => (Bound::Excluded(key), Some(key.to_vec())),
                (None, Start::Edge, _) => (Bound::Unbounded, None),
                (None, Start::At(key), Direction::Forward) => (Bound::Included(key), None),
                (None, Start::At(key), Direction::Reverse) => (Bound::Excluded(key), None),
            };
            let from = place.as_deref().map_or(start, Start::At);
            let below = self.tree.first_from(tree, from, direction)?;
            let mut best: Option<Saying<'t>> = below.map(|(key, value)| (key, Said::Value(value)));
            // From the lowest source up: of equal keys the upper source holds.
            let memtables = self.memtables.iter().flatten().rev();
            let memtables = memtables.map(|memtable| Over::Memtable(memtable, self.sequence));
            let mut said = Vec::with_capacity(1);
            for over in memtables.chain(write_batch.map(Over::WriteBatch)) {
                said.clear();
                over.walk(tree, bound, direction, 1, &mut said);
                let Some(head) = said.first().copied() else { continue };
                let is_first = best.is_none_or(|(key, _)| match direction {
                    Direction::Forward => head.0 <= key,
                    Direction::Reverse => head.0 >= key,
                });
                if is_first {
                    best = Some(head);
                }
            }
            match best {
                None => return Ok(None),
                Some((key, Said::Value(value) | Said::Placed(_, value))) => return Ok(Some((key, value))),
                Some((key, Said::Deleted)) => behind = Some(key),
            }
        }
        // Many keys are deleted here: use a cursor.
        let mut cursor = self.cursor_under(tree, write_batch.map(Over::WriteBatch))?;
        cursor.start(start, direction)?;
        cursor.step()
    }

    /// A cursor over memtables and tree, with `over` above both.
    pub(crate) fn cursor_under<'t>(
        &'t self,
        tree: Tree,
        over: Option<Over<'t>>,
    ) -> Result<Box<dyn Cursor<'t> + 't>, EngineError> {
        // Sorting the keys of the memtables takes about as much memory again.
        let size = self.memtables.iter().flatten().map(|memtable| memtable.size()).sum();
        if size > 0 {
            memory::check_room(size, "the order of the last commits")?;
        }
        let below = self.tree.cursor(tree)?;
        let memtables =
            self.memtables.iter().flatten().map(|memtable| Over::Memtable(memtable, self.sequence));
        let overs: Vec<Over<'t>> = over.into_iter().chain(memtables).collect();
        // [R5] Without any source over it, the walk is the tree's own.
        Ok(if overs.is_empty() { below } else { Box::new(MergedCursor::new(tree, overs, below)) })
    }
}

impl Contents for LoggedRead {
    fn rows_beyond(&self, table: TableId) -> i64 {
        Self::rows_beyond(self, table)
    }

    #[inline]
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        if self.memtables.iter().all(Option::is_none) {
            return self.tree.get(tree, key);
        }
        self.get_hashed(tree, HashedKey::of(key))
    }

    fn find_many(&self, tree: Tree, keys: &[&[u8]], places: &mut [EntryPlace]) {
        self.tree.find_many(tree, keys, places);
    }

    fn ask_for(&self, tree: Tree, keys: &[&[u8]]) {
        self.tree.ask_for(tree, keys);
    }

    #[inline]
    fn get_at(&self, tree: Tree, key: &[u8], place: EntryPlace) -> Result<Option<&[u8]>, EngineError> {
        if self.memtables.iter().all(Option::is_none) {
            return self.tree.get_at(tree, key, place);
        }
        match self.find_over(tree, HashedKey::of(key)) {
            Some(said) => Ok(said.value()),
            None => self.tree.get_at(tree, key, place),
        }
    }

    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>, EngineError> {
        self.cursor_under(tree, None)
    }

    fn first_from(
        &self,
        tree: Tree,
        start: Start<'_>,
        direction: Direction,
    ) -> Result<Option<Entry<'_>>, EngineError> {
        self.first_under(tree, start, direction, None)
    }
}

impl ReadTxn for LoggedRead {
    fn version(&self) -> u64 {
        self.sequence
    }

    fn tree_version(&self) -> u64 {
        self.tree.tree_version()
    }

    fn catalog_version(&self) -> u64 {
        self.catalog
    }

    /// The tree's separators; the memtables above it are small.
    fn separators(
        &self,
        tree: Tree,
        start: &[u8],
        end: Option<&[u8]>,
        count: usize,
    ) -> Result<Vec<Vec<u8>>, EngineError> {
        self.tree.separators(tree, start, end, count)
    }

    fn entries_between(
        &self,
        tree: Tree,
        start: &[u8],
        end: Option<&[u8]>,
    ) -> Result<Option<u64>, EngineError> {
        self.tree.entries_between(tree, start, end)
    }
}
