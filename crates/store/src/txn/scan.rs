//! Walks over the rows of a table.
//!
//! A walk reads a page at a time: the engine returns the rest of a page, the part of it inside the
//! range is cut out once, and `next` returns one row after the other. Only keys so long that they
//! might be hashed (`row_key.rs`) are slower: the rows of a run (rows whose keys begin
//! alike) are gathered and sorted by their whole keys.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;

use crate::catalog::cell::Cell;
use crate::db::database::Database;
use crate::engine::{Direction, Entry, Start, Tree};
use crate::error::Result;
use crate::pack::opening::Source;
use crate::row::{Range, Row, RowName};
use crate::row_key::{Prefix, TableId, run_size, split, successor};
use crate::txn::pin::PinnedWalk;
use crate::txn::snapshot::Snapshot;

/// A range in terms of row keys, from `start` and below `end`, with what a walk over it needs to
/// know.
#[derive(Clone, Debug)]
pub(crate) struct RowRange {
    pub(crate) prefix_size: usize,
    pub(crate) limit: usize,
    pub(crate) start: Vec<u8>,
    pub(crate) end: Option<Vec<u8>>,
    /// The bounds as given. They decide for keys so long that row keys do not.
    whole: Range,
    pub(crate) direction: Direction,
}

impl RowRange {
    pub(crate) fn new(table: TableId, range: &Range, reverse: bool, limit: usize) -> Self {
        let prefix = Prefix::of(table);
        let row_key = |key: &[u8], suffix: &[u8]| [prefix.as_bytes(), key, suffix].concat();
        let run_size = run_size(limit);
        let start = match &range.start {
            Bound::Unbounded => prefix.as_bytes().to_vec(),
            Bound::Included(key) => row_key(key, b""),
            Bound::Excluded(key) => row_key(key, b"\0"),
        };
        let end = match &range.end {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(row_key(key, b"\0")),
            Bound::Excluded(key) => Some(row_key(key, b"")),
        };
        // Only whole keys order the rows of a run, so the walk includes all of the run.
        let start =
            if start.len() >= run_size { start.get(..run_size).unwrap_or_default().to_vec() } else { start };
        let end = match end {
            None => successor(prefix.as_bytes().to_vec()),
            Some(end) if end.len() > run_size => successor(end.get(..run_size).unwrap_or_default().to_vec()),
            Some(end) => Some(end),
        };
        let direction = if reverse { Direction::Reverse } else { Direction::Forward };
        Self { prefix_size: prefix.size(), limit, start, end, whole: range.clone(), direction }
    }

    /// Apply `work` to the first row, given the first entry. The outer `None` means that the entry
    /// is one of a run, so that a walk is needed.
    pub(crate) fn with_first<R>(
        &self,
        entry: Option<Entry<'_>>,
        work: impl FnOnce(Option<Row<'_>>) -> R,
    ) -> Option<R> {
        let Some(entry) = entry.filter(|entry| self.has(entry.0)) else { return Some(work(None)) };
        if self.run_of(entry.0).is_some() {
            return None;
        }
        self.row(entry).map(|row| work(Some(row)))
    }

    pub(crate) fn first(&self) -> Start<'_> {
        match (self.direction, &self.end) {
            (Direction::Forward, _) => Start::At(&self.start),
            (Direction::Reverse, Some(end)) => Start::At(end),
            (Direction::Reverse, None) => Start::Edge,
        }
    }

    pub(crate) fn has(&self, row_key: &[u8]) -> bool {
        match self.direction {
            Direction::Forward => self.end.as_deref().is_none_or(|end| row_key < end),
            Direction::Reverse => row_key >= &*self.start,
        }
    }

    /// How many of these consecutive entries are inside the range.
    fn count_of(&self, entries: &[Entry<'_>]) -> usize {
        match entries.last() {
            Some(last) if !self.has(last.0) => entries.partition_point(|entry| self.has(entry.0)),
            _ => entries.len(),
        }
    }

    /// The part of a row key that all rows of a run share. `None` for keys too short for a run.
    pub(crate) fn run_of<'k>(&self, row_key: &'k [u8]) -> Option<&'k [u8]> {
        row_key.get(..run_size(self.limit))
    }

    /// The row of an entry, with its whole key. `None` if the cell is packed or damaged.
    #[inline]
    pub(crate) fn row<'a>(&self, entry: Entry<'a>) -> Option<Row<'a>> {
        let (row_key, bytes) = entry;
        let cell = Cell::parse(bytes)?;
        let key = self.key_in(row_key, &cell)?;
        Some(Row { key, spelling: cell.spelling, record: cell.record })
    }

    #[inline]
    fn key_in<'a>(&self, row_key: &'a [u8], cell: &Cell<'a>) -> Option<&'a [u8]> {
        let whole = if row_key.len() < self.limit { row_key } else { cell.whole_key };
        whole.get(self.prefix_size..)
    }

    /// The row of a packed entry; its record is written into the buffer.
    ///
    /// # Errors
    /// `Corrupt`, also if the entry is not packed.
    #[cold]
    pub(crate) fn opened_row<'a>(
        &self,
        database: &Database,
        source: Source<'_>,
        entry: Entry<'a>,
        record: &'a mut Vec<u8>,
    ) -> Result<Row<'a>> {
        let packed = database.open_packed(source, entry.0, entry.1, record)?;
        let key = self.key_in(entry.0, &packed.outside);
        let damaged = || {
            let table = split(entry.0).map_or(TableId(0), |(table, _)| table);
            database.damaged_row(table, entry.0)
        };
        Ok(Row { key: key.ok_or_else(damaged)?, spelling: packed.outside.spelling, record })
    }

    /// The key and the spelling of an entry. `None` if the cell is damaged.
    #[inline]
    fn name<'a>(&self, entry: Entry<'a>) -> Option<RowName<'a>> {
        let cell = Cell::outside(entry.1)?;
        Some(RowName { key: self.key_in(entry.0, &cell)?, spelling: cell.spelling })
    }

    /// The whole key of an entry. `None` if the cell is damaged.
    fn key<'a>(&self, entry: Entry<'a>) -> Option<&'a [u8]> {
        self.name(entry).map(|name| name.key)
    }

    /// Sort the entries of a run by their whole keys, and remove those outside the range. An entry
    /// whose cell is damaged stays, first, so that the caller finds it.
    pub(crate) fn sort_run(&self, entries: &mut Vec<Entry<'_>>) {
        entries.retain(|entry| self.key(*entry).is_none_or(|key| self.whole.contains(key)));
        entries.sort_by(|one, other| {
            let keys = (self.key(*one), self.key(*other));
            match self.direction {
                Direction::Forward => keys.0.cmp(&keys.1),
                Direction::Reverse => keys.1.cmp(&keys.0),
            }
        });
    }
}

/// A walk over rows of a snapshot, which it keeps alive.
pub struct Scan {
    walk: PinnedWalk,
    range: RowRange,
    table: TableId,
    /// The rows to return next: entries from `index` up to `end`, of the run or of the batch.
    index: usize,
    end: usize,
    is_in_run: bool,
    /// Where the batch continues after these rows, and how many of its entries are inside the
    /// range.
    batch_index: usize,
    batch_count: usize,
    /// Whether the range or the tree ends inside the batch.
    is_last_batch: bool,
    /// The record of the last row, if that is packed.
    opened: Vec<u8>,
}

impl Scan {
    pub(crate) fn new(snapshot: Snapshot, table: TableId, range: &Range, reverse: bool) -> Result<Self> {
        let database = Arc::clone(snapshot.database());
        let range = RowRange::new(table, range, reverse, database.key_size_max);
        Self::over(snapshot, table, range)
    }

    fn over(snapshot: Snapshot, table: TableId, range: RowRange) -> Result<Self> {
        let database = Arc::clone(snapshot.database());
        let mut walk = PinnedWalk::new(snapshot, Tree::Rows).map_err(|error| database.error(error))?;
        walk.start(range.first(), range.direction).map_err(|error| database.error(error))?;
        Ok(Self {
            walk,
            range,
            table,
            index: 0,
            end: 0,
            is_in_run: false,
            batch_index: 0,
            batch_count: 0,
            is_last_batch: false,
            opened: Vec::new(),
        })
    }

    /// The snapshot that keeps the rows' bytes in place.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        self.walk.snapshot()
    }

    /// The table that it walks over.
    #[must_use]
    pub fn table(&self) -> TableId {
        self.table
    }

    /// Roughly how many rows the whole walk has.
    ///
    /// # Errors
    /// As [`Snapshot::estimate`].
    pub fn estimate(&self) -> Result<u64> {
        self.snapshot().estimate(self.table, &self.range.whole)
    }

    /// The same walk from its begin, cut into `count` consecutive parts or fewer of about the same
    /// size, for several threads at once. A single part if the walk goes backwards or the engine
    /// does not know where to cut.
    ///
    /// # Errors
    /// When the engine's pages are damaged.
    pub fn parts(&self, count: usize) -> Result<Vec<Self>> {
        let (snapshot, range) = (self.snapshot(), &self.range);
        let mut cuts = Vec::new();
        if range.direction == Direction::Forward {
            let database = snapshot.database();
            let found = snapshot.read_txn().separators(Tree::Rows, &range.start, range.end.as_deref(), count);
            cuts = found.map_err(|error| database.error(error))?;
            // The rows of one run are sorted together.
            cuts.retain(|cut| range.run_of(cut).is_none());
        }
        let starts = std::iter::once(range.start.clone()).chain(cuts.iter().cloned());
        let ends = cuts.iter().cloned().map(Some).chain(std::iter::once(range.end.clone()));
        let parts = starts.zip(ends).map(|(start, end)| {
            Self::over(snapshot.clone(), self.table, RowRange { start, end, ..range.clone() })
        });
        parts.collect()
    }

    /// The next row.
    ///
    /// # Errors
    /// When the engine's pages or the row's cell are damaged. The walk continues after a damaged
    /// cell.
    #[inline]
    #[allow(clippy::should_implement_trait, reason = "it lends what it owns, which an Iterator cannot")]
    pub fn next(&mut self) -> Result<Option<Row<'_>>> {
        Ok(self.next_in_place()?.map(|(row, _)| row))
    }

    /// The next row, and whether its bytes stay in place as long as the snapshot lives, even after
    /// the walk has gone on: those of a packed row do not. The borrow is shorter, so that callers
    /// must keep the snapshot on purpose.
    ///
    /// # Errors
    /// As `next`.
    #[inline]
    pub fn next_in_place(&mut self) -> Result<Option<(Row<'_>, bool)>> {
        if self.index >= self.end && !self.refill()? {
            return Ok(None);
        }
        self.index += 1;
        self.last_in_place()
    }

    /// The row that the last step moved after.
    ///
    /// # Errors
    /// When its cell or its packed record is damaged.
    pub fn last_row(&mut self) -> Result<Option<Row<'_>>> {
        Ok(self.last_in_place()?.map(|(row, _)| row))
    }

    /// As `last_row`, and whether its bytes stay in place.
    #[inline]
    fn last_in_place(&mut self) -> Result<Option<(Row<'_>, bool)>> {
        let entries = if self.is_in_run { self.walk.run() } else { self.walk.entries() };
        let entry = self.index.checked_sub(1).and_then(|index| entries.get(index));
        let Some(entry) = entry else { return Ok(None) };
        if let Some(row) = self.range.row(*entry) {
            return Ok(Some((row, true)));
        }
        let snapshot = self.walk.snapshot();
        let row = self.range.opened_row(snapshot.database(), snapshot.source(), *entry, &mut self.opened)?;
        Ok(Some((row, false)))
    }

    /// Move after the next row, and return its name: its key and its spelling. The record is not
    /// read, and not opened if it is packed.
    ///
    /// # Errors
    /// As `next`, but not for a packed record that is damaged.
    #[inline]
    pub fn next_name(&mut self) -> Result<Option<RowName<'_>>> {
        if self.index >= self.end && !self.refill()? {
            return Ok(None);
        }
        self.index += 1;
        let Some(entry) = self.last_entry() else { return Ok(None) };
        match self.range.name(entry) {
            Some(name) => Ok(Some(name)),
            None => Err(self.walk.snapshot().database().damaged_row(self.table, entry.0)),
        }
    }

    #[inline]
    fn last_entry(&self) -> Option<Entry<'_>> {
        let entries = if self.is_in_run { self.walk.run() } else { self.walk.entries() };
        entries.get(self.index.checked_sub(1)?).copied()
    }

    /// Whether the last row that `next` returned has large values that are stored apart.
    #[must_use]
    pub fn gave_large(&self) -> bool {
        self.last_entry().is_some_and(|(_, bytes)| Cell::lists_blobs(bytes))
    }

    /// The next row, if it is in the page that was read last, sound, and not packed. `pass` moves
    /// after it.
    #[inline]
    #[must_use]
    pub fn at_hand(&self) -> Option<Row<'_>> {
        if self.is_in_run || self.index >= self.end {
            return None;
        }
        self.range.row(*self.walk.entries().get(self.index)?)
    }

    /// Move after the row of `at_hand`.
    #[inline]
    pub fn pass(&mut self) {
        self.index += 1;
    }

    /// Call `visit` with the next rows, mostly those of a page, until it breaks. Returns its last
    /// result; `None` at the end of the walk.
    ///
    /// Calling `next` for each row was a third of the instructions of a sum over a field: for each
    /// row a call, a result in memory, and the check where rows come from.
    ///
    /// # Errors
    /// As `next`.
    #[inline]
    pub fn next_rows<B>(
        &mut self,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>> {
        if self.index >= self.end && !self.refill()? {
            return Ok(None);
        }
        let entries = if self.is_in_run { self.walk.run() } else { self.walk.entries() };
        for entry in entries.get(self.index..self.end).unwrap_or_default() {
            self.index += 1;
            let row = if let Some(row) = self.range.row(*entry) {
                row
            } else {
                let snapshot = self.walk.snapshot();
                self.range.opened_row(snapshot.database(), snapshot.source(), *entry, &mut self.opened)?
            };
            let flow = visit(row);
            if flow.is_break() {
                return Ok(Some(flow));
            }
        }
        self.index = self.end;
        Ok(Some(ControlFlow::Continue(())))
    }

    /// Go on until `test` breaks at a row, and return its result; that row is then the next one.
    /// `None` at the end.
    ///
    /// # Errors
    /// As `next`.
    #[inline]
    pub fn seek<B>(&mut self, mut test: impl FnMut(Row<'_>) -> ControlFlow<B>) -> Result<Option<B>> {
        loop {
            let flow = self.next_rows(&mut test)?;
            match flow {
                None => return Ok(None),
                Some(ControlFlow::Continue(())) => {}
                Some(ControlFlow::Break(value)) => {
                    self.index -= 1;
                    return Ok(Some(value));
                }
            }
        }
    }

    /// Find the next rows to return. False at the end of the walk.
    fn refill(&mut self) -> Result<bool> {
        loop {
            if self.batch_index < self.batch_count {
                self.take_from_batch()?;
                if self.index < self.end {
                    return Ok(true);
                }
            } else if !self.next_batch()? {
                return Ok(false);
            }
        }
    }

    fn next_batch(&mut self) -> Result<bool> {
        (self.batch_index, self.batch_count) = (0, 0);
        if self.is_last_batch {
            return Ok(false);
        }
        self.walk.snapshot().check_usable()?;
        self.walk.fill().map_err(|error| self.walk.snapshot().database().error(error))?;
        let entries = self.walk.entries();
        self.batch_count = self.range.count_of(entries);
        self.is_last_batch = self.batch_count < entries.len() || entries.is_empty();
        Ok(self.batch_count > 0)
    }

    /// Take the next rows of the batch: those before the first that might be of a run, or all rows
    /// of a run.
    fn take_from_batch(&mut self) -> Result<()> {
        let entries = self.walk.entries().get(self.batch_index..self.batch_count).unwrap_or_default();
        let short = entries.iter().take_while(|entry| self.range.run_of(entry.0).is_none()).count();
        if short > 0 {
            (self.index, self.end, self.is_in_run) = (self.batch_index, self.batch_index + short, false);
            self.batch_index += short;
            return Ok(());
        }
        let run = entries.first().and_then(|entry| self.range.run_of(entry.0)).unwrap_or_default().to_vec();
        self.walk.clear_run();
        loop {
            let entries = self.walk.entries().get(self.batch_index..self.batch_count).unwrap_or_default();
            let count = entries.iter().take_while(|entry| entry.0.starts_with(&run)).count();
            self.walk.add_to_run(self.batch_index, count);
            self.batch_index += count;
            if self.batch_index < self.batch_count || !self.next_batch()? {
                break;
            }
        }
        let range = &self.range;
        self.walk.with_run(|entries| range.sort_run(entries));
        (self.index, self.end, self.is_in_run) = (0, self.walk.run().len(), true);
        Ok(())
    }
}
