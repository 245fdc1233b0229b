//! A snapshot of log and tree.
//!
//! [R1] It sees the memtables' newest versions up to its sequence number, then the tree.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::catalog::{APPLIED_KEY, table_key};
use crate::engine::error::check_memory;
use crate::engine::{
    Contents, Cursor, Direction, EngineError, EntryPlace, EntryResult, HashedKey, ReadTxn, Start, Tree,
};
use crate::row_key::TableId;
use crate::wal::history;
use crate::wal::memtable::{Lookup, Memtable};
use crate::wal::merge::{MergedCursor, Over, first_of};
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
        let mut live =
            state.memtables.iter().rev().filter(|of_segment| of_segment.end > state.applied.position);
        for (place, of_segment) in memtables.iter_mut().zip(live.by_ref()) {
            *place = Some(Arc::clone(&of_segment.memtable));
        }
        debug_assert!(live.next().is_none(), "a log has two segments");
        let sequence = state.sequence().max(state.applied.sequence);
        Self { tree, memtables, sequence, applied: state.applied.sequence, catalog: state.catalog_version() }
    }

    /// The memtables' version of a key.
    #[inline]
    pub(crate) fn find_over(&self, tree: Tree, key: HashedKey<'_>) -> Option<Lookup<'_>> {
        let mut memtables = self.memtables.iter().flatten();
        memtables
            .find_map(|memtable| memtable.find_hashed(tree, key, self.sequence))
            .map(|(_, lookup)| lookup)
    }

    /// As `get`, for a key whose hash is known.
    #[inline]
    pub(crate) fn get_hashed(&self, tree: Tree, key: HashedKey<'_>) -> Result<Option<&[u8]>, EngineError> {
        match self.find_over(tree, key) {
            Some(lookup) => Ok(lookup.value()),
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
        let keys = all.filter(|(of, _)| *of == tree).flat_map(|(_, lookups)| lookups.map(|(key, _)| key));
        for key in keys.collect::<BTreeSet<_>>() {
            let (is_now, was) = (self.get(tree, key)?.is_some(), self.tree.get(tree, key)?.is_some());
            more += i64::from(is_now) - i64::from(was);
        }
        Ok(more)
    }

    /// The first entry of a walk over memtables and tree, with a write batch over both.
    pub(crate) fn first_under<'t>(
        &'t self,
        tree: Tree,
        start: Start<'_>,
        direction: Direction,
        write_batch: Option<&'t WriteBatch>,
    ) -> EntryResult<'t> {
        first_of(&self.overs(write_batch), &*self.tree, tree, start, direction)
    }

    /// What lies over the tree, newest first.
    fn overs<'t>(&'t self, write_batch: Option<&'t WriteBatch>) -> Vec<Over<'t>> {
        let memtables = self.memtables.iter().flatten();
        let memtables = memtables.map(|memtable| Over::Memtable(memtable, self.sequence));
        write_batch.map(Over::WriteBatch).into_iter().chain(memtables).collect()
    }

    /// A cursor over memtables and tree, with a write batch above both.
    pub(crate) fn cursor_under<'t>(
        &'t self,
        tree: Tree,
        write_batch: Option<&'t WriteBatch>,
    ) -> Result<Box<dyn Cursor<'t> + 't>, EngineError> {
        // Sorting the keys of the memtables takes about as much memory again.
        let size = self.memtables.iter().flatten().map(|memtable| memtable.size()).sum();
        if size > 0 {
            check_memory(size, "the order of the last commits")?;
        }
        let overs = self.overs(write_batch);
        // [R5] Without any source over it, the walk is the tree's own.
        if overs.is_empty() {
            return self.tree.cursor(tree);
        }
        Ok(Box::new(MergedCursor::new(tree, overs, &*self.tree)?))
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
            Some(lookup) => Ok(lookup.value()),
            None => self.tree.get_at(tree, key, place),
        }
    }

    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>, EngineError> {
        self.cursor_under(tree, None)
    }

    fn first_from(&self, tree: Tree, start: Start<'_>, direction: Direction) -> EntryResult<'_> {
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
