//! Walks over rows that keep their snapshot, so that the rows' bytes stay in place.
//!
//! A row is bytes in LMDB's map (or in the memory engine's nodes), which stay there as long as the
//! snapshot lives. A [`PinnedWalk`] owns its snapshot together with a cursor that borrows from it.
//! The borrow checker cannot express that, so the lifetime is erased here, and entries are returned
//! with a shortened one.
#![allow(unsafe_code)]

use crate::engine::{Batch, Cursor, Direction, EngineError, Entry, Start, Tree};
use crate::txn::snapshot::Snapshot;

/// A cursor and the snapshot that it borrows from.
///
/// The fields are dropped in this order: the cursor before what it borrows from.
pub(crate) struct PinnedWalk {
    cursor: Box<dyn Cursor<'static>>,
    batch: Batch<'static>,
    run: Vec<Entry<'static>>,
    snapshot: Snapshot,
}

impl PinnedWalk {
    pub(crate) fn new(snapshot: Snapshot, tree: Tree) -> Result<Self, EngineError> {
        let cursor = snapshot.read_txn().cursor(tree)?;
        // SAFETY: the cursor borrows from the transaction, which lives in the snapshot's shared
        // allocation and so does not move with `Self`; it is dropped before the snapshot (field
        // order), and `'static` entries never leave this module: `entries` and `run` shorten them
        // to the borrow of `self`, and the closure of `with_run` works for every lifetime, so that
        // it can neither keep an entry nor bring in one.
        let cursor =
            unsafe { std::mem::transmute::<Box<dyn Cursor<'_> + '_>, Box<dyn Cursor<'static>>>(cursor) };
        Ok(Self { cursor, batch: Batch::default(), run: Vec::new(), snapshot })
    }

    pub(crate) fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    pub(crate) fn start(&mut self, start: Start<'_>, direction: Direction) -> Result<(), EngineError> {
        self.batch.entries.clear();
        self.cursor.start(start, direction)
    }

    /// Read the next entries, as many as come at no extra cost.
    pub(crate) fn fill(&mut self) -> Result<(), EngineError> {
        self.cursor.fill(&mut self.batch)
    }

    /// The entries of the last `fill`. Their bytes stay in place as long as the snapshot lives.
    #[inline]
    pub(crate) fn entries(&self) -> &[Entry<'_>] {
        &self.batch.entries
    }

    /// Entries that were collected from several batches.
    #[inline]
    pub(crate) fn run(&self) -> &[Entry<'_>] {
        &self.run
    }

    pub(crate) fn clear_run(&mut self) {
        self.run.clear();
    }

    /// Add some entries of the last `fill` to the collected ones.
    pub(crate) fn add_to_run(&mut self, start: usize, count: usize) {
        self.run.extend(self.batch.entries.iter().skip(start).take(count));
    }

    /// Reorder the collected entries, or remove some.
    pub(crate) fn with_run(&mut self, change: impl for<'a> FnOnce(&mut Vec<Entry<'a>>)) {
        change(&mut self.run);
    }
}
