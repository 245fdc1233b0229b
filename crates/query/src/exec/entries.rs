//! Reads the entries of indexes: the keys of rows, counts of rows, and rows of a covering index,
//! which are not looked up.

use std::ops::ControlFlow;

use pellucid_record::Shapes;
use pellucid_record::value::NoShapes;
use pellucid_store::{Range, Reader};

use super::{AccessPaths, Answer, Executor, RowSet, evaluator_of_all, threads};
use crate::covered_rows::CoveredRows;
use crate::covering::{EntryReader, over_entries};
use crate::evaluate::Evaluator;
use crate::expression::Node;
use crate::fault::Fault;
use crate::index::Keys;
use crate::plan::{AccessPath, CostedPath, Section};
use crate::selection::Selection;
use crate::walk::{Walk, for_each};
use crate::work::{Parallel, Stop, Work};

/// The largest number of rows for which memory is reserved at the start: an estimate may be far
/// off.
const ROOM_MAX: u64 = 1 << 16;

/// The largest number of bytes for rows from entries. If they need more, rows of the table are
/// read, which are in memory one at a time.
const SIZE_MAX: usize = 256 << 20;

/// How the entries of a section are read.
#[derive(Clone)]
pub(super) struct Reading {
    /// Whether rows get the values of the entries, beside their keys.
    has_values: bool,
    condition: Option<Evaluator>,
    /// At least this many rows are needed, where their order allows to stop there.
    wanted: u64,
    /// A range with more rows than this is given up.
    row_count_max: usize,
    /// Whether the rows come in the order of the index, and whether that is read from its end.
    walk: Option<bool>,
    /// Whether rows that are not in the order of an index come in the order of keys.
    is_ordered: bool,
}

impl Reading {
    /// Reads the keys of rows, in order; no more than `row_count_max` in each range.
    pub(super) fn of_keys(wanted: u64, row_count_max: usize) -> Self {
        let (has_values, condition, walk, is_ordered) = (false, None, None, true);
        Self { has_values, condition, wanted, row_count_max, walk, is_ordered }
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
        let section = best.access.section().filter(|_| paths.keys.is_none());
        let index = section.and_then(|section| self.indexes.get(section.index));
        let parts = index.map_or(&[][..], |index| &index.definition.parts);
        let of_entry = |node: &Node| over_entries(parts, node);
        let left = self.conditions.iter().zip(&best.settled).filter(|(_, is_settled)| !**is_settled);
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
        let is_ordered = !is_count || !is_sorted;
        let rows = match (&best.access, paths.keys.take()) {
            (_, Some(keys)) => Some(keys),
            (AccessPath::IndexRange(section), None) => {
                let (walk, row_count_max) = (None, usize::MAX);
                let how = Reading { has_values, condition, wanted, row_count_max, walk, is_ordered };
                self.read_section(section, how)?
            }
            (AccessPath::OrderedWalk { section, is_reverse }, None) => {
                let (walk, row_count_max) = (Some(*is_reverse), usize::MAX);
                let how = Reading { has_values, condition, wanted, row_count_max, walk, is_ordered };
                self.read_section(section, how)?
            }
            (access, None) => self.gather(access, u64::MAX)?,
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
    /// them. None if there are too many, if an entry does not tell whether its row is in the
    /// section, or if the path is a scan.
    pub(super) fn gather(&self, access: &AccessPath, wanted: u64) -> Result<Option<CoveredRows>, Fault> {
        let (sections, is_union) = match access {
            AccessPath::IndexRange(section) => {
                return self.read_section(section, Reading::of_keys(wanted, usize::MAX));
            }
            AccessPath::Intersection(sections) => (sections, false),
            AccessPath::Union(sections) => (sections, true),
            AccessPath::TableScan | AccessPath::KeyLookup(_) | AccessPath::OrderedWalk { .. } => {
                return Ok(None);
            }
        };
        let mut keys: Option<CoveredRows> = None;
        for section in sections {
            let all = Reading::of_keys(u64::MAX, usize::MAX);
            let Some(others) = self.read_section(section, all)? else { return Ok(None) };
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

    /// Reads rows from the entries of a section. None if an entry does not tell its row, as one of a
    /// complex number in a range of values, or if the rows take too much memory.
    pub(super) fn read_section(&self, section: &Section, how: Reading) -> Result<Option<CoveredRows>, Fault> {
        let Some(index) = self.indexes.get(section.index) else { return Ok(Some(CoveredRows::default())) };
        let (is_reverse, is_ordered) = (how.walk == Some(true), how.is_ordered && how.walk.is_none());
        // With a single code for each part, the entries of a range are in the order of keys.
        let is_in_order = how.walk.is_some() || section.point_count == index.keys.count();
        let wanted = if is_in_order { how.wanted } else { u64::MAX };
        let read = ReadEntries {
            reader: EntryReader::new(index.keys.clone(), how.has_values),
            range: (!self.is_whole).then(|| self.range.clone()),
            condition: how.condition,
            has_span: section.has_span,
            wanted,
            is_reverse,
            row_count_max: how.row_count_max,
            room: (section.estimate as u64).min(wanted).min(ROOM_MAX) as usize,
        };
        let (mut rows, mut entry_count) = (CoveredRows::default(), 0);
        for range in &section.ranges {
            let (more, count) = self.run_scan(index.info.id, (range, is_reverse), read.clone())?;
            entry_count += count;
            match more {
                Some(more) if rows.size() + more.size() <= SIZE_MAX => rows.append(more),
                _ => return Ok(None),
            }
        }
        // Rows that are only counted need no order, but each must be there once.
        if is_ordered || index.definition.branches() && how.walk.is_none() {
            rows.put_in_order();
        }
        if let Some(meter) = &self.request.meter {
            meter.add_entries(entry_count);
        }
        Ok(Some(rows))
    }

    /// Counts the rows to which a path leads; the result may be more than are wanted. None if the
    /// path is not one section, or if a row may have several entries.
    fn count_rows(&self, paths: &AccessPaths, path: &CostedPath) -> Result<Option<u64>, Fault> {
        if let Some(keys) = &paths.keys {
            return Ok(Some(keys.len() as u64));
        }
        let Some(section) = path.access.section() else { return Ok(None) };
        let index = self.indexes.get(section.index).filter(|index| !index.definition.branches());
        let Some(index) = index else { return Ok(None) };
        let is_long = path.row_count() >= threads::ROW_COUNT_MIN;
        let mut count = 0;
        for range in &section.ranges {
            let mut selection = Selection::of(None);
            selection.limit = self.request.wanted().saturating_sub(count);
            let entries = RowSet::Scan(self.reader.scan(index.info.id, range, false)?);
            let work = CountEntries { keys: index.keys.clone(), has_span: section.has_span };
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

/// Reads rows from entries, and counts the entries. No rows if an entry does not tell its row, or
/// if there are too many.
#[derive(Clone)]
struct ReadEntries {
    reader: EntryReader,
    /// The range that keys must be in.
    range: Option<Range>,
    condition: Option<Evaluator>,
    wanted: u64,
    /// The values of the entries were compared by order, which complex numbers do not have.
    has_span: bool,
    row_count_max: usize,
    /// The number of rows for which memory is reserved.
    room: usize,
    /// Whether entries come from the last to the first. Those with the same parts are put into the
    /// order of keys.
    is_reverse: bool,
}

impl Work for ReadEntries {
    type Result = (Option<CoveredRows>, u64);

    fn run<S: Shapes>(
        mut self,
        entries: &mut impl Walk,
        _shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let (mut rows, mut is_complete, mut count) = (CoveredRows::with_room(self.room), true, 0);
        // The start of the current run of entries with the same parts, and these parts.
        let (mut run, mut last): (usize, Vec<u8>) = (0, Vec::new());
        for_each::<()>(entries, stop.check(), |entry| {
            // Bytes that are no entry are skipped here; `check` reports them.
            let Some(entry) = self.reader.split(&entry) else { return ControlFlow::Continue(()) };
            if self.is_reverse && *entry.parts != *last {
                rows.turn(run);
                run = rows.len();
                last.clear();
                last.extend_from_slice(entry.parts);
            }
            if rows.len() as u64 >= self.wanted && (!self.is_reverse || run == rows.len()) {
                return ControlFlow::Break(Ok(()));
            }
            count += 1;
            if self.range.as_ref().is_some_and(|range| !range.contains(entry.key)) {
                return ControlFlow::Continue(());
            }
            is_complete = !(self.has_span && self.reader.has_complex(&entry))
                && rows.size() <= SIZE_MAX
                && rows.len() < self.row_count_max
                && self.reader.add_row(&entry, &mut rows);
            if !is_complete {
                return ControlFlow::Break(Ok(()));
            }
            if let Some(condition) = &mut self.condition
                && !rows.with_last(|row| condition.is_true(&row, &NoShapes).unwrap_or(false)).unwrap_or(false)
            {
                rows.pop();
            }
            ControlFlow::Continue(())
        })?;
        if self.is_reverse {
            rows.turn(run);
        }
        Ok((is_complete.then_some(rows), count))
    }
}

/// Counts entries. None if one does not tell whether its row is wanted.
#[derive(Clone)]
struct CountEntries {
    keys: Keys,
    has_span: bool,
}

impl Work for CountEntries {
    type Result = Option<u64>;

    fn run<S: Shapes>(
        self,
        entries: &mut impl Walk,
        _shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let mut count = 0;
        let unknown = for_each(entries, stop.check(), |entry| {
            if self.has_span
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
    fn merge(&self, parts: Vec<Self::Result>, _stop: Stop<'_>) -> Result<Self::Result, Fault> {
        Ok(parts.into_iter().sum())
    }
}
