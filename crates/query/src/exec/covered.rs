//! Reads rows from the entries of a covering index, without looking up the rows themselves.

use std::ops::ControlFlow;

use pellucid_record::Shapes;
use pellucid_record::value::NoShapes;
use pellucid_store::{Range, Reader};

use super::work::{Stop, Work};
use super::{AccessPaths, Answer, Executor, SortUp, evaluator_of_all};
use crate::covered_rows::CoveredRows;
use crate::covering::{EntryReader, over_entries};
use crate::evaluate::Evaluator;
use crate::expression::Node;
use crate::fault::Fault;
use crate::plan::AccessPath;
use crate::plan::KeySet;
use crate::walk::{Walk, for_each};

/// The largest number of rows for which memory is reserved at the start: an estimate may be far
/// off.
const ROOM_MAX: u64 = 1 << 16;

/// The largest number of bytes for rows from entries. If they need more, rows of the table are
/// read, which are in memory one at a time.
const SIZE_MAX: usize = 256 << 20;

impl<R: Reader> Executor<'_, R> {
    /// Answers the query from the entries of a covering index, or from keys alone. None if rows
    /// have to be looked up.
    pub(super) fn covered(&self, paths: &AccessPaths, reads: &[Node]) -> Result<Option<Answer<R>>, Fault> {
        let (request, is_count) = (self.request, self.request.is_count);
        let Some(best) = paths.paths.first().filter(|best| best.is_covered) else { return Ok(None) };
        let parts = self.covering_parts(paths, &best.access);
        let of_entry = |node: &Node| over_entries(parts, node);
        let left = self.conditions.iter().zip(&best.settled).filter(|(_, is_settled)| !**is_settled);
        let left: Option<Vec<_>> = left.map(|(node, _)| of_entry(node)).collect();
        // A count does not depend on the order of rows.
        let is_sorted = request.order.is_empty()
            || matches!(best.access, AccessPath::IndexOrder { .. })
            || is_count && request.after.is_none();
        // If the keys were found in the right order, the rows need not have the sort expressions.
        let order = request.order.iter().filter(|_| !is_sorted);
        let order: Option<Vec<_>> =
            order.map(|(node, is_descending)| Some((of_entry(node)?, *is_descending))).collect();
        let nodes: Option<Vec<_>> = reads.iter().map(of_entry).collect();
        let (Some(left), Some(order), Some(nodes)) = (left, order, nodes) else { return Ok(None) };
        if is_count
            && left.is_empty()
            && self.is_whole
            && request.after.is_none()
            && let Some(count) = self.count_entries(paths, best, request.wanted())?
        {
            return Ok(Some(Answer::Count(count.min(request.wanted()).saturating_sub(request.offset))));
        }
        let ordered = order.iter().map(|(node, _)| node);
        let has_values = nodes.iter().chain(&left).chain(ordered).any(|node| node.reads_record());
        let condition = evaluator_of_all(left)?;
        let wanted = if is_sorted { request.wanted() } else { u64::MAX };
        // A sorted row is found again by its key.
        let has_order = !is_count || !is_sorted;
        let Some(mut rows) = self.read_entries(paths, (condition, wanted, has_values, has_order))? else {
            return Ok(None);
        };
        if is_sorted {
            rows.cut(request.offset, request.limit);
        } else {
            let sort = SortUp(self.sort(&order)?);
            let keys = self.cut(sort.run(&mut rows.clone(), &NoShapes, self.caller.stop)?)?;
            rows.pick(keys)?;
        }
        if is_count {
            return Ok(Some(Answer::Count(rows.len() as u64)));
        }
        Ok(Some(Answer::Covered(rows, nodes)))
    }

    /// Reads rows from the entries, or the keys, of the best path, in its order. They are the rows
    /// for which the condition is true, and at least `wanted` of them; it stops there if the order
    /// allows that. None if an entry does not tell its row, or if they take too much memory.
    /// Without `has_order` the rows may come in any order.
    fn read_entries(
        &self,
        paths: &AccessPaths,
        (condition, wanted, has_values, has_order): (Option<Evaluator>, u64, bool, bool),
    ) -> Result<Option<CoveredRows>, Fault> {
        if let Some(keys) = &paths.keys {
            return Ok(Some(CoveredRows::of_keys(keys.clone())));
        }
        let Some(best) = paths.paths.first() else { return Ok(None) };
        let (index, section, is_reverse) = match &best.access {
            AccessPath::TableScan | AccessPath::KeyLookup(_) => return Ok(None),
            AccessPath::Keys(KeySet::Section { index, section, .. }) => (*index, section, None),
            AccessPath::IndexOrder { index, section, is_reverse, .. } => (*index, section, Some(*is_reverse)),
            AccessPath::Keys(set) => {
                let Some(mut keys) = self.gather(set, u64::MAX)? else { return Ok(None) };
                self.keep_in_range(&mut keys);
                return Ok(Some(CoveredRows::of_keys(keys)));
            }
        };
        let Some(index) = self.indexes.get(index) else { return Ok(None) };
        let is_in_order = is_reverse.is_some() || section.is_in_key_order(index.keys.count());
        let is_reverse = is_reverse.unwrap_or(false);
        let read = ReadEntries {
            teller: EntryReader::new(index.keys.clone(), has_values),
            range: (!self.is_whole).then(|| self.range.clone()),
            condition,
            is_ordered: section.has_span,
            wanted: if is_in_order { wanted } else { u64::MAX },
            is_reverse,
            room: best.row_count().min(wanted).min(ROOM_MAX) as usize,
        };
        let mut rows = CoveredRows::default();
        for range in &section.ranges {
            match self.run_scan(index.info.id, (range, is_reverse), read.clone())? {
                Some(more) if rows.size() + more.size() <= SIZE_MAX => rows.append(more),
                _ => return Ok(None),
            }
        }
        // Rows that are only counted need no order, but each must be there once.
        if !is_in_order && (has_order || index.definition.branches()) {
            rows.put_in_order();
        }
        Ok(Some(rows))
    }
}

/// Reads rows from entries. None if an entry does not tell its row, or if there are too many.
#[derive(Clone)]
struct ReadEntries {
    teller: EntryReader,
    /// The range that keys must be in.
    range: Option<Range>,
    condition: Option<Evaluator>,
    wanted: u64,
    /// The values of the entries were compared by order, which complex numbers do not have.
    is_ordered: bool,
    /// The largest number of rows.
    room: usize,
    /// Whether entries come from the last to the first. Those with the same parts are put into the
    /// order of keys.
    is_reverse: bool,
}

impl Work for ReadEntries {
    type Result = Option<CoveredRows>;

    fn run<S: Shapes>(
        mut self,
        rows: &mut impl Walk,
        _shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let (mut told, mut is_told) = (CoveredRows::with_room(self.room), true);
        // The start of the current run of entries with the same parts, and these parts.
        let (mut run, mut last): (usize, Vec<u8>) = (0, Vec::new());
        for_each::<()>(
            rows,
            || stop.is_set(),
            |entry| {
                // Bytes that are no entry are skipped here; `check` reports them.
                let Some(entry) = self.teller.split(&entry) else { return ControlFlow::Continue(()) };
                if self.is_reverse && *entry.parts != *last {
                    told.turn(run);
                    run = told.len();
                    last.clear();
                    last.extend_from_slice(entry.parts);
                }
                if told.len() as u64 >= self.wanted && (!self.is_reverse || run == told.len()) {
                    return ControlFlow::Break(Ok(()));
                }
                if self.range.as_ref().is_some_and(|range| !range.contains(entry.key)) {
                    return ControlFlow::Continue(());
                }
                is_told = !(self.is_ordered && self.teller.has_complex(&entry))
                    && told.size() <= SIZE_MAX
                    && self.teller.tell(&entry, &mut told);
                if !is_told {
                    return ControlFlow::Break(Ok(()));
                }
                if let Some(condition) = &mut self.condition
                    && !told
                        .with_last(|row| condition.is_true(&row, &NoShapes).unwrap_or(false))
                        .unwrap_or(false)
                {
                    told.pop();
                }
                ControlFlow::Continue(())
            },
        )?;
        if self.is_reverse {
            told.turn(run);
        }
        Ok(is_told.then_some(told))
    }
}
