//! Snapshots: one version of everything, for as long as the reader wants.
//!
//! Writers go on meanwhile and free no page that a snapshot needs. A snapshot is cheap (some 100
//! ns) and shared: while a snapshot of the newest version exists, asking for one returns the same
//! again. So a million records kept from a million gets of an unchanged database take one reader
//! place, not a million.

use std::sync::Arc;

use pellucid_record::Dictionary;

use crate::catalog;
use crate::catalog::cell::{Cell, FoundRow};
use crate::catalog::pack_entries;
use crate::db::database::{Database, OpenVersion};
use crate::engine::lmdb::estimate::in_share;
use crate::engine::{self, Direction, Engine, ReadTxn, Start, Tree};
use crate::error::index::NotUnique;
use crate::error::{Result, StoreError};
use crate::index::{is_of_parts, range_of_parts};
use crate::pack::opening::Source;
use crate::row::{Range, Row};
use crate::row_key::{Prefix, RowKey, TableId, run_size};
use crate::txn::lookahead::Lookahead;
use crate::txn::scan::{RowRange, Scan};

/// One version of a database. Clones see the same version and share its reader place.
#[derive(Clone)]
pub struct Snapshot {
    pub(crate) inner: Arc<OpenVersion>,
}

fn room_for_reader(engine: &dyn Engine, keeps: bool) -> engine::Result<()> {
    engine.tree_file().map_or(Ok(()), |file| file.check_reader_room(keeps))
}

impl Database {
    /// A snapshot of the newest version for a read, shared with other users of that version.
    pub(crate) fn snapshot(self: &Arc<Self>) -> Result<Snapshot> {
        self.newest_if(|engine| room_for_reader(engine, false)).map(|inner| Snapshot { inner })
    }

    /// As `snapshot`, for a program that keeps it: others can read when it gets none any more.
    pub(crate) fn kept_snapshot(self: &Arc<Self>) -> Result<Snapshot> {
        self.newest_if(|engine| room_for_reader(engine, true)).map(|inner| Snapshot { inner })
    }

    /// As `snapshot`, for a caller that drops it soon: it gets one also where reads have taken all
    /// that they may.
    pub(crate) fn brief_snapshot(self: &Arc<Self>) -> Result<Snapshot> {
        self.newest_if(|_| Ok(())).map(|inner| Snapshot { inner })
    }

    /// A snapshot that reads the newest pages. Others share those of an older snapshot if no entry
    /// has changed since, as in an online compaction.
    pub(crate) fn snapshot_of_newest_pages(self: &Arc<Self>) -> Result<Snapshot> {
        if let Some(care) = self.engine.file_care() {
            care.forget_pages();
        }
        self.forget_newest();
        self.brief_snapshot()
    }
}

impl Snapshot {
    pub(crate) fn read_txn(&self) -> &dyn ReadTxn {
        &*self.inner.txn
    }

    /// What packed rows are read from.
    #[inline]
    pub(crate) fn source(&self) -> Source<'_> {
        Source::Committed(&*self.inner.txn)
    }

    pub(crate) fn database(&self) -> &Arc<Database> {
        &self.inner.database
    }

    /// The version that it sees; grows with each commit.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.inner.version
    }

    /// The version that last changed the catalog, or a later one. What was found in a snapshot with
    /// the same number holds in this one.
    #[must_use]
    pub fn catalog_version(&self) -> u64 {
        self.inner.txn.catalog_version()
    }

    /// The shapes of its records. The dictionary only grows; its ids hold for the life of the
    /// database.
    #[must_use]
    pub fn dictionary(&self) -> &Arc<Dictionary> {
        &self.inner.database.dictionary
    }

    /// Check that the snapshot still works. It does not in a process that was forked after the
    /// snapshot was taken, since nothing keeps its pages there. All other methods check this first;
    /// a caller that keeps pointers to its bytes has to do so itself.
    ///
    /// # Errors
    /// `Forked`.
    #[inline]
    pub fn check_usable(&self) -> Result<()> {
        self.inner.database.check_generation("snapshot")
    }

    /// Every table's name and id, by name.
    ///
    /// # Errors
    /// When the catalog is damaged.
    pub fn tables(&self) -> Result<Vec<(String, TableId)>> {
        self.check_usable()?;
        catalog::tables(self.read_txn()).map_err(|error| self.inner.database.catalog_error(error))
    }

    /// The table with this name.
    ///
    /// # Errors
    /// When the catalog is damaged.
    pub fn table(&self, name: &str) -> Result<Option<TableId>> {
        self.check_usable()?;
        catalog::table_id(self.read_txn(), name).map_err(|error| self.inner.database.catalog_error(error))
    }

    /// Whether a table is compressed.
    ///
    /// # Errors
    /// When the catalog is damaged.
    pub fn is_compressed(&self, table: TableId) -> Result<bool> {
        self.check_usable()?;
        let is_compressed = pack_entries::is_compressed(self.read_txn(), table);
        is_compressed.map_err(|error| self.inner.database.catalog_error(error))
    }

    /// The number of rows of a table: exact, and read from one place.
    ///
    /// # Errors
    /// `TableDropped`; when the catalog is damaged.
    pub fn count(&self, table: TableId) -> Result<u64> {
        self.check_usable()?;
        let state = catalog::table_state(self.read_txn(), table);
        match state.map_err(|error| self.inner.database.catalog_error(error))? {
            Some(state) => Ok(state.row_count),
            None => Err(StoreError::TableDropped { table: None }),
        }
    }

    /// The row under a key, in place: its bytes live as long as the snapshot does. If the row is
    /// packed, its record is a copy.
    ///
    /// # Errors
    /// When the engine's pages or the row's cell are damaged.
    #[inline]
    pub fn get(&self, table: TableId, key: &[u8]) -> Result<Option<FoundRow<'_>>> {
        self.check_usable()?;
        let database = &self.inner.database;
        let row_key = RowKey::new(table, key, database.key_size_max);
        match self.inner.txn.get(Tree::Rows, row_key.as_bytes()) {
            Ok(Some(bytes)) => database.row(self.source(), table, key, row_key.as_bytes(), bytes),
            Ok(None) => Ok(None),
            Err(error) => Err(database.error(error)),
        }
    }

    /// The next row of a list of keys, which is found with those after it where that is of use.
    ///
    /// # Errors
    /// As `get`.
    pub(crate) fn get_next<'s>(&'s self, rows: &mut Lookahead) -> Result<Option<FoundRow<'s>>> {
        self.check_usable()?;
        let database = &self.inner.database;
        rows.find(&*self.inner.txn, database.key_size_max);
        let Some((row_key, key, place)) = rows.current() else { return Ok(None) };
        if row_key.len() >= database.key_size_max {
            return self.get(rows.table(), key);
        }
        match self.inner.txn.get_at(Tree::Rows, row_key, place) {
            Ok(Some(bytes)) => database.row(self.source(), rows.table(), key, row_key, bytes),
            Ok(None) => Ok(None),
            Err(error) => Err(database.error(error)),
        }
    }

    /// Whether the value that made a row be refused as not unique is in this snapshot.
    ///
    /// # Errors
    /// As `get`.
    pub fn has_refused(&self, refused: &NotUnique) -> Result<bool> {
        match refused.entry() {
            Some((index, code)) => Ok(self.get(index, &code)?.is_some()),
            None => Ok(true),
        }
    }

    /// Walk over the rows of a table, or part of them. The walk keeps the snapshot.
    ///
    /// # Errors
    /// When the engine's pages are damaged.
    pub fn scan(&self, table: TableId, range: &Range, reverse: bool) -> Result<Scan> {
        self.check_usable()?;
        Scan::new(self.clone(), table, range, reverse)
    }

    /// Roughly how many rows of a table are in a range: exact for few rows, otherwise by the pages
    /// of the tree.
    ///
    /// # Errors
    /// As `scan` and `count`.
    pub fn estimate(&self, table: TableId, range: &Range) -> Result<u64> {
        // Counting `COUNT_FEW` rows takes some microseconds. Count more only if the tree gives no
        // answer.
        const COUNT_FEW: u64 = 128;
        const COUNT_MANY: u64 = 20_000;
        // For more than a few pages the tree's estimate is good enough. For fewer, the unknown
        // position of the bounds in the pages at the edges matters.
        const PART_MIN: u64 = 1024;
        let part = self.entries_between(table, range)?;
        let mut few = 0;
        if part.is_none_or(|part| part < PART_MIN) {
            let is_all;
            (few, is_all) = self.counted_up_to(table, range, COUNT_FEW)?;
            if is_all {
                return Ok(few);
            }
        }
        let total = self.count(table)?;
        if let (Some(all), Some(part)) = (self.entries_between(table, &Range::ALL)?, part)
            && all.saturating_mul(2) >= total
        {
            // Rows that are only in the log are assumed to be distributed like the others. An
            // estimate of zero would be taken as certain, so it is never returned here.
            return Ok(in_share(part, all, total).clamp(few.max(1).min(total), total));
        }
        let (many, is_all) = self.counted_up_to(table, range, COUNT_MANY)?;
        Ok(if is_all { many } else { (total / 2).max(many) })
    }

    fn entries_between(&self, table: TableId, range: &Range) -> Result<Option<u64>> {
        let range = RowRange::new(table, range, false, self.inner.database.key_size_max);
        let found = self.read_txn().entries_between(Tree::Rows, &range.start, range.end.as_deref());
        found.map_err(|error| self.inner.database.error(error))
    }

    /// How many rows are in a range, at most `limit`, and whether these are all.
    fn counted_up_to(&self, table: TableId, range: &Range, limit: u64) -> Result<(u64, bool)> {
        let mut scan = self.scan(table, range, false)?;
        let mut count = 0;
        while count < limit {
            if scan.next_name()?.is_none() {
                return Ok((count, true));
            }
            count += 1;
        }
        Ok((count, scan.next_name()?.is_none()))
    }

    /// Apply `work` to the first row of a walk, without making a walk. `None` if there is no row.
    ///
    /// # Errors
    /// As [`Scan::next`].
    pub fn with_first<R>(
        &self,
        table: TableId,
        range: &Range,
        reverse: bool,
        work: impl FnOnce(Row<'_>) -> R,
    ) -> Result<Option<R>> {
        self.check_usable()?;
        let database = &self.inner.database;
        let rows = RowRange::new(table, range, reverse, database.key_size_max);
        let entry = self.inner.txn.first_from(Tree::Rows, rows.first(), rows.direction);
        let entry = entry.map_err(|error| database.error(error))?;
        let mut work = Some(work);
        let mut once = |row: Row<'_>| work.take().map(|work| work(row));
        match rows.with_first(entry, |row| row.and_then(&mut once)) {
            Some(done) => Ok(done),
            // One of a run, or damaged.
            None => Ok(self.scan(table, range, reverse)?.next()?.and_then(once)),
        }
    }

    /// As `with_first`, for the entries of an index with these parts, without making a range of
    /// them.
    ///
    /// # Errors
    /// As [`Scan::next`].
    pub fn with_first_of<R>(
        &self,
        index: TableId,
        parts: &[u8],
        work: impl FnOnce(Row<'_>) -> R,
    ) -> Result<Option<R>> {
        self.check_usable()?;
        let (database, prefix_size) = (&self.inner.database, Prefix::of(index).size());
        let run_size = run_size(database.key_size_max);
        if prefix_size + parts.len() < run_size {
            let start = RowKey::new(index, parts, database.key_size_max);
            let start = start.as_bytes();
            let entry = self.inner.txn.first_from(Tree::Rows, Start::At(start), Direction::Forward);
            let entry = entry.map_err(|error| database.error(error))?;
            let Some((row_key, bytes)) = entry.filter(|(row_key, _)| is_of_parts(row_key, start)) else {
                return Ok(None);
            };
            if let (Some(key), Some(cell)) = (row_key.get(prefix_size..), Cell::parse(bytes))
                && row_key.len() < run_size
            {
                return Ok(Some(work(Row { key, spelling: cell.spelling, record: cell.record })));
            }
        }
        // One of a run, or damaged.
        self.with_first(index, &range_of_parts(parts), false, work)
    }

    /// A large value, in place. Values of more than 4 KiB begin 16 bytes after an address that is a
    /// multiple of 4096 (see [`crate::BLOB_ADDRESS_REMAINDER`]).
    ///
    /// # Errors
    /// `NoSuchBlob` when the row that had it was changed or deleted in this version.
    pub fn blob(&self, id: u64) -> Result<&[u8]> {
        self.check_usable()?;
        let found = self.read_txn().get(Tree::Blobs, &id.to_be_bytes());
        let bytes = found.map_err(|error| self.inner.database.error(error))?;
        self.inner.database.blob_body(id, bytes)
    }
}
