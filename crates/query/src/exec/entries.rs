//! Reads the entries of indexes: the keys of rows, counts of rows, and rows of a covering index,
//! which are not looked up.

use std::ops::{Bound, ControlFlow};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use pellucid_record::Shapes;
use pellucid_record::value::NoShapes;
use pellucid_store::{Range, Reader, Row, TableId};

use super::{AccessPaths, Answer, Executor, RowSet, evaluator_of_all};
use crate::covered_rows::CoveredRows;
use crate::covering::{EntryReader, over_entries};
use crate::evaluate::Evaluator;
use crate::expression::Node;
use crate::fault::Fault;
use crate::index::Keys;
use crate::plan::{AccessPath, CostedPath, IndexRange};
use crate::selection::Selection;
use crate::walk::{ENTRY_COUNT_MIN, SCAN_COUNT_MIN, Walk, for_each};
use crate::work::{Parallel, Stop, Work, WorkResult};

/// The largest number of rows for which memory is reserved at the start: an estimate may be far
/// off.
const ROOM_MAX: u64 = 1 << 16;

/// The largest number of bytes for rows from entries. If they need more, rows of the table are
/// read, which are in memory one at a time.
const SIZE_MAX: usize = 256 << 20;

/// Up to this many entries of a range are read as fast as they are counted.
const ENTRY_COUNT_SHORT: usize = 2;

/// How the entries of an index range are read.
#[derive(Clone, Default)]
pub(super) struct Reading {
    /// Whether rows get the values of the entries, beside their keys.
    has_values: bool,
    condition: Option<Evaluator>,
    /// At least this many rows are needed, where their order allows to stop there.
    wanted: u64,
    /// Whether a range with more entries than one or two is given up.
    is_short: bool,
    /// Whether the rows come in the order of the index, and whether that is read from its end.
    walk: Option<bool>,
    /// Whether rows may come in any order.
    is_unordered: bool,
}

impl Reading {
    /// Reads the keys of rows, in order.
    pub(super) fn keys(wanted: u64) -> Self {
        Self { wanted, ..Self::default() }
    }

    /// Reads the keys of rows, in order, if each range has no more than one or two.
    pub(super) fn few_keys(wanted: u64) -> Self {
        Self { wanted, is_short: true, ..Self::default() }
    }
}

impl<R: Reader> Executor<'_, R> {
    /// Answers the query from the entries of a covering index, or from keys alone. None if rows
    /// have to be looked up.
    pub(super) fn covered(
        &self,
        paths: &mut AccessPaths,
        reads: &[Node],
    ) -> Result<Option<Answer<R>>, Fault> {
        let (request, is_count) = (self.request, self.request.is_count);
        let Some(best) = paths.paths.first().filter(|best| best.is_covered) else { return Ok(None) };
        // The parts of the one index; none if the path uses several, or if only keys are known.
        let index_range = best.access.index_range().filter(|_| paths.keys.is_none());
        let index = index_range.and_then(|index_range| self.indexes.get(index_range.index));
        let parts = index.map_or(&[][..], |index| &index.definition.parts);
        let of_entry = |node: &Node| over_entries(parts, node);
        let left = self.conditions.iter().zip(&best.implied).filter(|(_, is_implied)| !**is_implied);
        let left: Option<Vec<_>> = left.map(|(node, _)| of_entry(node)).collect();
        let is_walk = best.access.is_ordered_walk();
        // A count does not depend on the order of rows.
        let is_sorted = request.order.is_empty() || is_walk || is_count && request.after.is_none();
        // If the keys were found in the right order, the rows need not have the sort expressions.
        let order = request.order.iter().filter(|_| !is_sorted);
        let order: Option<Vec<_>> =
            order.map(|(node, is_descending)| Some((of_entry(node)?, *is_descending))).collect();
        let nodes: Option<Vec<_>> = reads.iter().map(of_entry).collect();
        let (Some(left), Some(order), Some(nodes)) = (left, order, nodes) else { return Ok(None) };
        let is_counted = is_count && left.is_empty() && self.is_whole && request.after.is_none();
        if is_counted && let Some(count) = self.count_rows(paths, best)? {
            return Ok(Some(self.count_of(count)));
        }
        let ordered = order.iter().map(|(node, _)| node);
        let has_values = nodes.iter().chain(&left).chain(ordered).any(|node| node.reads_record());
        let condition = evaluator_of_all(left)?;
        let wanted = if is_sorted { request.wanted() } else { u64::MAX };
        // A sorted row is found again by its key.
        let is_unordered = is_count && is_sorted;
        let rows = match (best.access.index_range(), paths.keys.take()) {
            (_, Some(keys)) => Some(keys),
            (Some(index_range), None) => {
                let walk = match best.access {
                    AccessPath::OrderedWalk { is_reverse, .. } => Some(is_reverse),
                    _ => None,
                };
                let how = Reading { has_values, condition, wanted, is_short: false, walk, is_unordered };
                self.read_index_range(index_range, how)?
            }
            (None, None) => self.gather(&best.access, u64::MAX)?,
        };
        let Some(mut rows) = rows else { return Ok(None) };
        if let Some(meter) = &request.meter {
            meter.add_rows(0, rows.len() as u64);
        }
        if is_sorted {
            rows.cut(request.offset, request.limit);
        } else {
            let keys = self.cut(self.sort(&order)?.run(&mut rows.clone(), &NoShapes, self.caller.stop)?)?;
            rows.pick(keys)?;
        }
        Ok(Some(if is_count { Answer::Count(rows.len() as u64) } else { Answer::Covered(rows, nodes) }))
    }

    /// Gathers the keys of rows to which a path leads, in order, each once; at least `wanted` of
    /// them. None if there are too many, if an entry does not say whether its row is in the
    /// index range, or if the path is a scan.
    pub(super) fn gather(&self, access: &AccessPath, wanted: u64) -> Result<Option<CoveredRows>, Fault> {
        let (index_ranges, is_union) = match access {
            AccessPath::IndexRange(index_range) => {
                return self.read_index_range(index_range, Reading::keys(wanted));
            }
            AccessPath::Intersection(index_ranges) => (index_ranges, false),
            AccessPath::Union(index_ranges) => (index_ranges, true),
            AccessPath::TableScan | AccessPath::KeyLookup(_) | AccessPath::OrderedWalk { .. } => {
                return Ok(None);
            }
        };
        let mut keys: Option<CoveredRows> = None;
        for index_range in index_ranges {
            let all = Reading::keys(u64::MAX);
            let Some(others) = self.read_index_range(index_range, all)? else { return Ok(None) };
            match &mut keys {
                None => keys = Some(others),
                Some(keys) if is_union && keys.size() + others.size() > SIZE_MAX => return Ok(None),
                Some(keys) if is_union => keys.append(others),
                Some(keys) => keys.keep_common(others),
            }
        }
        let mut keys = keys.unwrap_or_default();
        keys.put_in_order();
        Ok(Some(keys))
    }

    /// Reads rows from the entries of an index range. None if an entry does not name its row, as
    /// one of a complex number in a range of values, or if the rows take too much memory.
    pub(super) fn read_index_range(
        &self,
        index_range: &IndexRange,
        how: Reading,
    ) -> Result<Option<CoveredRows>, Fault> {
        let Some(index) = self.indexes.get(index_range.index) else {
            return Ok(Some(CoveredRows::default()));
        };
        // With a single code for each part, the entries of a range are in the order of keys.
        let is_in_order = how.walk.is_some() || index_range.point_count == index.keys.count();
        let wanted = if is_in_order { how.wanted } else { u64::MAX };
        let room = index_range.entry_count().min(wanted).min(ROOM_MAX) as usize;
        let is_sorted = how.walk.is_none() && (!how.is_unordered || index.definition.branches());
        let mut read = ReadEntries {
            reader: EntryReader::new(index.keys.clone(), how.has_values),
            range: (!self.is_whole).then(|| self.range.clone()),
            condition: how.condition,
            wanted: usize::try_from(wanted).unwrap_or(usize::MAX),
            has_code_range: index_range.has_code_range,
            row_count_max: if how.is_short { ENTRY_COUNT_SHORT } else { usize::MAX },
            is_reverse: how.walk == Some(true),
            rows: CoveredRows::with_room(room),
            part: None,
            start: 0,
            run: (0, Vec::new()),
            entry_count: 0,
            is_complete: true,
        };
        // If all entries are wanted, it does not matter which thread reads them.
        let count_of_range = index_range.entry_count() / index_range.ranges.len().max(1) as u64;
        let is_shared = !how.is_short
            && wanted == u64::MAX
            && how.walk != Some(true)
            && count_of_range >= ENTRY_COUNT_MIN;
        for range in &index_range.ranges {
            read = if how.is_short {
                read.search(self.reader, index.info.id, range.clone())?
            } else if is_shared {
                let entries = RowSet::Scan(self.reader.scan(index.info.id, range, false)?);
                let part = read.emptied(is_sorted);
                let part = self.run_parallel(entries, Selection::of(None), part)?;
                read.joined(part)
            } else {
                self.run_scan(index.info.id, (range, read.is_reverse), read)?
            };
            if !read.is_complete {
                return Ok(None);
            }
        }
        let ReadEntries { mut rows, entry_count, .. } = read;
        // Rows that are only counted need no order, but each must be there once.
        if is_sorted {
            rows.put_in_order();
        }
        if let Some(meter) = &self.request.meter {
            meter.add_entries(entry_count);
        }
        Ok(Some(rows))
    }

    /// Counts the rows to which a path leads; the result may be more than are wanted. None if the
    /// path is not one index range, or if a row may have several entries.
    fn count_rows(&self, paths: &AccessPaths, path: &CostedPath) -> Result<Option<u64>, Fault> {
        if let Some(keys) = &paths.keys {
            return Ok(Some(keys.len() as u64));
        }
        let Some(index_range) = path.access.index_range() else { return Ok(None) };
        let index = self.indexes.get(index_range.index).filter(|index| !index.definition.branches());
        let Some(index) = index else { return Ok(None) };
        let is_long = index_range.entry_count() >= SCAN_COUNT_MIN;
        let mut count = 0;
        for range in &index_range.ranges {
            let mut selection = Selection::of(None);
            selection.limit = self.request.wanted().saturating_sub(count);
            let entries = RowSet::Scan(self.reader.scan(index.info.id, range, false)?);
            let work = CountEntries { keys: index.keys.clone(), has_code_range: index_range.has_code_range };
            let counted = if is_long {
                self.run_parallel(entries, selection, work)
            } else {
                self.run_over(entries, selection, work)
            };
            let Some(counted) = counted? else { return Ok(None) };
            count += counted;
        }
        Ok(Some(count))
    }
}

/// Reads rows from the entries of one range after another.
#[derive(Clone)]
struct ReadEntries {
    reader: EntryReader,
    /// The range that keys must be in.
    range: Option<Range>,
    condition: Option<Evaluator>,
    /// The number of rows of a range that are wanted.
    wanted: usize,
    /// Whether the range compares by order. Complex numbers have none.
    has_code_range: bool,
    /// The largest number of rows of a range.
    row_count_max: usize,
    /// Whether entries come from the last to the first. Those with the same parts are put into the
    /// order of keys.
    is_reverse: bool,
    rows: CoveredRows,
    /// What is known beside the part of a range that is read; None if all ranges are read in turn.
    part: Option<ReadPart>,
    /// The number of rows of the ranges before.
    start: usize,
    /// The start of the current run of entries with the same parts, and these parts.
    run: (usize, Vec<u8>),
    entry_count: u64,
    /// False once an entry cannot give its row, or if there are too many.
    is_complete: bool,
}

/// What the reader of a part of a range knows beside the part.
#[derive(Clone)]
struct ReadPart {
    /// The size of the rows that other parts and the ranges before have.
    others_size: Arc<AtomicUsize>,
    /// Whether the thread that reads the part sorts its rows by key.
    is_sorted: bool,
}

impl ReadPart {
    fn others_size(&self) -> usize {
        self.others_size.load(Ordering::Relaxed).min(SIZE_MAX)
    }
}

impl ReadEntries {
    /// Takes the row of an entry. Breaks if no further one is needed.
    #[inline]
    fn take(&mut self, entry: &Row<'_>) -> ControlFlow<()> {
        // Bytes that are no entry are skipped here; `check` reports them.
        let Some(entry) = self.reader.split(entry) else { return ControlFlow::Continue(()) };
        let rows = &mut self.rows;
        if self.is_reverse && *entry.parts != *self.run.1 {
            let (run, last) = &mut self.run;
            rows.turn(*run);
            *run = rows.len();
            last.clear();
            last.extend_from_slice(entry.parts);
        }
        // From the end on, the run of entries with the same parts is read to its end first.
        let is_enough = |rows: &CoveredRows| rows.len() - self.start >= self.wanted;
        if is_enough(rows) && (!self.is_reverse || self.run.0 == rows.len()) {
            return ControlFlow::Break(());
        }
        self.entry_count += 1;
        if self.range.as_ref().is_some_and(|range| !range.contains(entry.key)) {
            return ControlFlow::Continue(());
        }
        let others_size = self.part.as_ref().map_or(0, ReadPart::others_size);
        self.is_complete = !(self.has_code_range && self.reader.has_complex(&entry))
            && rows.size() <= SIZE_MAX - others_size
            && rows.len() - self.start < self.row_count_max
            && self.reader.add_row(&entry, rows);
        if !self.is_complete {
            return ControlFlow::Break(());
        }
        if let Some(condition) = &mut self.condition
            && !rows.with_last(|row| condition.is_true(&row, &NoShapes).unwrap_or(false)).unwrap_or(false)
        {
            rows.pop();
        }
        if is_enough(rows) && !self.is_reverse { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }

    /// The same without rows, for a range or a part of it.
    fn emptied(&self, is_sorted: bool) -> Self {
        let part = Some(ReadPart { others_size: Arc::new(AtomicUsize::new(self.rows.size())), is_sorted });
        Self {
            reader: self.reader.clone(),
            range: self.range.clone(),
            condition: self.condition.clone(),
            rows: CoveredRows::default(),
            part,
            start: 0,
            run: (0, Vec::new()),
            entry_count: 0,
            ..*self
        }
    }

    /// Adds the rows of a later range, or of a later part of the range.
    fn joined(mut self, other: Self) -> Self {
        self.entry_count += other.entry_count;
        self.is_complete &=
            other.is_complete && self.rows.size().saturating_add(other.rows.size()) <= SIZE_MAX;
        if self.is_complete {
            self.rows.append(other.rows);
        }
        self
    }

    /// Finds each entry of a range by a search: for one or two that takes less than a scan.
    fn search<R: Reader>(mut self, reader: &R, index: TableId, mut range: Range) -> Result<Self, Fault> {
        self.start = self.rows.len();
        loop {
            let next = reader.with_first(index, &range, false, |entry| {
                self.take(&entry).is_continue().then(|| entry.key.to_vec())
            })?;
            let Some(Some(last)) = next else { return Ok(self) };
            range.start = Bound::Excluded(last);
        }
    }
}

impl Work for ReadEntries {
    type Result = Self;

    fn run<S: Shapes>(mut self, entries: &mut impl Walk, _: &S, stop: Stop<'_>) -> Result<Self, Fault> {
        self.start = self.rows.len();
        for_each(entries, stop.check(), |entry| self.take(&entry).map_break(Ok))?;
        if self.is_reverse {
            self.rows.turn(self.run.0);
        }
        if let Some(part) = &self.part {
            if part.is_sorted {
                self.rows.put_in_order();
            }
            // If the whole is not complete, the other parts need no rows.
            let size = if self.is_complete { self.rows.size() } else { SIZE_MAX };
            part.others_size.fetch_add(size, Ordering::Relaxed);
        }
        Ok(self)
    }
}

impl Parallel for ReadEntries {
    fn merge(&self, parts: Vec<Self>, _stop: Stop<'_>) -> Result<Self, Fault> {
        Ok(parts.into_iter().fold(self.clone(), Self::joined))
    }
}

/// Counts entries. None if one does not say whether its row is wanted.
#[derive(Clone)]
struct CountEntries {
    keys: Keys,
    has_code_range: bool,
}

impl Work for CountEntries {
    type Result = Option<u64>;

    fn run<S: Shapes>(self, entries: &mut impl Walk, _shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let mut count = 0;
        let unknown = for_each(entries, stop.check(), |entry| {
            if self.has_code_range
                && !entry.spelling.is_empty()
                && self.keys.split(&entry).is_some_and(|parts| self.keys.has_complex(&parts))
            {
                return ControlFlow::Break(Ok(()));
            }
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(unknown.is_none().then_some(count))
    }
}

impl Parallel for CountEntries {
    fn merge(&self, parts: Vec<Self::Result>, _stop: Stop<'_>) -> WorkResult<Self> {
        Ok(parts.into_iter().sum())
    }
}
