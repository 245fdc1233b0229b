//! How are the rows of a query found?
//!
//! Where the way that was chosen leads along an index that tells all that is asked for, what its entries tell stands for the rows.
//! Without an order and without Python functions the rows of a scan are tested one by one, as they are wanted. Otherwise the keys
//! of all that pass are found first, in the order that is asked for, in one snapshot; the rows are read from there.

use pellucid_query::expression::Node;
use pellucid_query::plan::Access;
use pellucid_query::sort::{Sort, SortKey, Sorted, SortedKeys};
use pellucid_query::stoppable::Pace;
use pellucid_query::{
    CopiedRows, Evaluator, Extremes, Fault, Lookups, RowKey, RowsByKey, Selection, Walk, key_range, told,
};
use pellucid_record::Shapes;
use pellucid_store::{Range, TableId, TransactionScan};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::Query;
use super::access::{self, Reached, Ways};
use super::extremes::rows_of_extremes;
use super::few::few;
use super::named::named;
use super::plan::{self, Plan};
use super::reader::{TableReader, read};
use crate::bounds::Bounds;
use crate::errors;
use crate::hot::callbacks;
use crate::keys;
use crate::table::{Rows, Table};
use crate::views::Shows;
use crate::work::{Parallel, Queried, Source, Stop, Walked, Work, of_fault, over_parts};

impl<'py> Queried<'py> for Bound<'py, Query> {
    fn table(&self) -> &Bound<'py, Table> {
        self.get().table.bind(self.py())
    }

    fn source(&self, walked: Walked) -> PyResult<Option<Source>> {
        Ok(rows_of(found(self, &Asked::Rows(walked))?).map(|(source, _)| source))
    }

    fn source_of(&self, reads: &[Node], walked: Walked) -> PyResult<Option<(Source, Vec<Node>)>> {
        Ok(rows_of(found(self, &Asked::Values(reads, walked))?))
    }

    fn source_of_extremes(&self, wanted: &[(&Node, Extremes)]) -> PyResult<Option<Source>> {
        if self.get().plan.is_whole() { rows_of_extremes(self.table(), wanted) } else { Ok(None) }
    }
}

fn rows_of(found: Option<Found>) -> Option<(Source, Vec<Node>)> {
    match found {
        Some(Found::Rows(source, nodes)) => Some((source, nodes)),
        // Who does not ask for a count is not given one.
        Some(Found::Count(_)) | None => None,
    }
}

/// What is asked for.
pub enum Asked<'a> {
    /// Records.
    Rows(Walked),
    /// What these expressions come to in each row; keys are told besides.
    Values(&'a [Node], Walked),
    /// How many rows there are.
    Count,
}

impl<'a> Asked<'a> {
    /// What is read of each row, beside its key; None: its record.
    fn reads(&self, plan: &Plan) -> Option<&'a [Node]> {
        match self {
            // Functions of Python's are given records.
            _ if !plan.filters.is_empty() => None,
            Self::Rows(_) => None,
            Self::Values(nodes, _) => Some(nodes),
            Self::Count => Some(&[]),
        }
    }

    fn walked(&self) -> Walked {
        match self {
            Self::Rows(walked) | Self::Values(_, walked) => *walked,
            Self::Count => Walked::InParts,
        }
    }
}

/// What a query has found.
pub enum Found {
    /// Rows, and the expressions that come to what was asked for in these.
    Rows(Source, Vec<Node>),
    /// So many rows, of which none was looked at.
    Count(u64),
}

/// The rows of a query; where an index tells all that is asked for, what it tells.
pub fn found(query: &Bound<'_, Query>, asked: &Asked<'_>) -> PyResult<Option<Found>> {
    let (table, plan) = (query.table(), &query.get().plan);
    let Some(place) = TableReader::of(table)? else { return Ok(None) };
    let (bounds, conditions) = place.scan(table, plan)?;
    let is_count = matches!(asked, Asked::Count);
    let (asked_of, reads) = ((&bounds, &conditions[..]), asked.reads(plan));
    let mut ways = few(table, plan, &place, asked_of, reads)?;
    if ways.is_none() {
        ways = named(table, &place, asked_of)?;
    }
    if ways.is_none() {
        ways = access::ways(table, plan, &place, asked_of, (reads, asked.walked(), is_count))?;
    }
    if is_count && let Some((_, found)) = ways.as_ref().and_then(|ways| ways.near) {
        let wanted = plan.offset.saturating_add(plan.limit);
        return Ok(Some(Found::Count(found.min(wanted).saturating_sub(plan.offset))));
    }
    if let (Some(ways), Some(reads)) = (&ways, reads)
        && let Some(found) = told(table, plan, &place, (ways, &bounds, &conditions), (asked, reads))?
    {
        return Ok(Some(found));
    }
    let nodes = match asked {
        Asked::Values(nodes, _) => nodes.to_vec(),
        Asked::Rows(_) | Asked::Count => Vec::new(),
    };
    let rows = looked_up(table, plan, &place, (ways, &bounds, &conditions))?;
    Ok(Some(Found::Rows(rows, nodes)))
}

/// What entries, or keys alone, tell of the rows; None where rows have to be looked up.
fn told(
    table: &Bound<'_, Table>,
    plan: &Plan,
    place: &TableReader,
    (ways, bounds, conditions): (&Ways, &Bounds, &[Node]),
    (asked, reads): (&Asked<'_>, &[Node]),
) -> PyResult<Option<Found>> {
    let Some(best) = ways.ways.first().filter(|best| best.is_told) else { return Ok(None) };
    let parts = ways.parts(&best.access);
    let of_one = |node: &Node| told::told(parts, node);
    let left = conditions.iter().zip(&best.settled).filter(|(_, is_settled)| !**is_settled);
    let left: Option<Vec<_>> = left.map(|(node, _)| of_one(node)).collect();
    let is_count = matches!(asked, Asked::Count);
    // In whichever order rows come, there are as many.
    let is_sorted = plan.order.is_empty()
        || matches!(best.access, Access::Ordered { .. })
        || is_count && plan.after.is_none();
    // Keys that were found in order need not tell it.
    let order = plan.order.iter().filter(|_| !is_sorted);
    let order: Option<Vec<_>> =
        order.map(|(node, is_descending)| Some((of_one(node)?, *is_descending))).collect();
    let nodes: Option<Vec<_>> = reads.iter().map(of_one).collect();
    let (Some(left), Some(order), Some(nodes)) = (left, order, nodes) else { return Ok(None) };
    let wanted = if is_sorted { plan.offset.saturating_add(plan.limit) } else { u64::MAX };
    if is_count && left.is_empty() && bounds.is_all && plan.after.is_none() {
        let wanted = plan.offset.saturating_add(plan.limit);
        if let Some(count) = ways.count(table, place, best, wanted)? {
            return Ok(Some(Found::Count(count.min(wanted).saturating_sub(plan.offset))));
        }
    }
    let ordered = order.iter().map(|(node, _)| node);
    let has_values = nodes.iter().chain(&left).chain(ordered).any(|node| node.reads_record());
    let condition = plan::all_of(left)?.map(|node| evaluator(&node)).transpose()?;
    // What is sorted is found again by its key.
    let has_order = !is_count || !is_sorted;
    let Some(mut rows) = ways.tell(table, place, bounds, (condition, wanted, has_values, has_order))? else {
        return Ok(None);
    };
    if is_sorted {
        rows.cut(plan.offset, plan.limit);
    } else {
        let source =
            Source { rows: Rows::Told(Box::new(rows.clone()), place.is_transaction()), selection: None };
        let keys = sorted(table, (plan, &order), source, plan.offset, plan.limit)?;
        rows.pick(keys).map_err(|error| errors::of_store(table.py(), error))?;
    }
    if is_count {
        return Ok(Some(Found::Count(rows.len() as u64)));
    }
    let source = Source { rows: Rows::Told(Box::new(rows), place.is_transaction()), selection: None };
    Ok(Some(Found::Rows(source, nodes)))
}

fn evaluator(condition: &Node) -> PyResult<Evaluator> {
    Evaluator::new(condition).map_err(|error| errors::value_error(error.to_string()))
}

/// The rows of a query, by the best way to them.
fn looked_up(
    table: &Bound<'_, Table>,
    plan: &Plan,
    place: &TableReader,
    (ways, bounds, conditions): (Option<Ways>, &Bounds, &[Node]),
) -> PyResult<Source> {
    let wanted = plan.offset.saturating_add(plan.limit);
    let is_plain = plan.order.is_empty() && plan.filters.is_empty();
    let (reached, settled, is_ordered) = match ways {
        None => (Reached::Scan, Vec::new(), false),
        Some(ways) => {
            let wanted = if is_plain { wanted } else { u64::MAX };
            let (reached, choice) = ways.follow(table, place, bounds, wanted)?;
            let is_ordered = choice.is_some_and(|choice| matches!(choice.access, Access::Ordered { .. }));
            // Among the entries of a range may be complex numbers, which have no order: each row is tested, where that was not done to find it.
            let is_tested = matches!(reached, Reached::Rows(_));
            let settled = choice.filter(|_| !is_tested).map(|choice| choice.settled.clone());
            (reached, settled.unwrap_or_default(), is_ordered)
        }
    };
    let is_settled = |place: usize| settled.get(place).copied().unwrap_or(false);
    let left = conditions.iter().enumerate().filter(|(place, _)| !is_settled(*place)).map(|(_, node)| node);
    let condition = plan::all_of(left.cloned().collect())?.map(|node| evaluator(&node)).transpose()?;
    let mut selection = Selection::of(condition);
    let is_sorted = plan.order.is_empty() || is_ordered;
    if is_sorted && plan.filters.is_empty() {
        (selection.offset, selection.limit) = (plan.offset, plan.limit);
    }
    let rows = match reached {
        Reached::Scan => place.rows(table, bounds)?,
        Reached::Rows(rows) => rows,
        Reached::Keys(mut keys) => {
            if is_plain && selection.condition.is_none() {
                let count = keys.len() as u64;
                keys.truncate(wanted.min(count) as usize);
                keys.drain(..plan.offset.min(keys.len() as u64) as usize);
                (selection.offset, selection.limit) = (0, u64::MAX);
            }
            place.list(table, SortedKeys::Listed(keys.into_iter()))?
        }
    };
    let source = Source { rows, selection: Some(selection) };
    if is_sorted && plan.filters.is_empty() {
        return Ok(source);
    }
    let (mut offset, mut limit) = (plan.offset, plan.limit);
    let source = if is_sorted {
        source
    } else {
        let (skip, take) = if plan.filters.is_empty() { (offset, limit) } else { (0, u64::MAX) };
        let keys = sorted(table, (plan, &plan.order), source, skip, take)?;
        (offset, limit) = if plan.filters.is_empty() { (0, u64::MAX) } else { (offset, limit) };
        Source { rows: place.list(table, keys)?, selection: None }
    };
    if plan.filters.is_empty() {
        return Ok(source);
    }
    let keys = pass_filters(table, source, &plan.filters, offset, limit)?;
    let keys = SortedKeys::Listed(keys.into_iter());
    Ok(Source { rows: place.list(table, keys)?, selection: None })
}

/// The keys of rows in the order that is asked for, without the first few, and so many at most; `order` is what it is over these rows.
fn sorted(
    table: &Bound<'_, Table>,
    (plan, order): (&Plan, &[(Node, bool)]),
    source: Source,
    skip: u64,
    take: u64,
) -> PyResult<SortedKeys> {
    let py = table.py();
    let sort_key =
        |order: &[(Node, bool)]| SortKey::new(order).map_err(|error| errors::value_error(error.to_string()));
    let after = match &plan.after {
        None => None,
        Some(after) => {
            let code = after.code(table, sort_key(&plan.order)?)?;
            Some((code, after.key.clone()))
        }
    };
    let wanted = if take == 0 { 0 } else { skip.saturating_add(take) };
    let sort = Sort::new(sort_key(order)?, after, wanted, SORT_MEMORY_MAX);
    let sorted = over_parts(table, source, SortUp(sort))?;
    let keys = callbacks::released(py, || sorted.into_keys(skip, take, || Stop::Signals.is_set()));
    keys.map_err(|fault| of_fault(table, fault))
}

impl TableReader {
    /// The part of the table in which all rows of a query are, as far as conditions on the key tell, and what is left of these.
    pub fn scan(&self, table: &Bound<'_, Table>, plan: &Plan) -> PyResult<(Bounds, Vec<Node>)> {
        Ok(plan.scan(plan.reads_key() && self.has_decimals(table)?))
    }

    /// Whether there are Decimals among the keys.
    pub fn has_decimals(&self, table: &Bound<'_, Table>) -> PyResult<bool> {
        let decimals = key_range::decimals();
        Ok(read!(self, table, |rows, id| rows.with_first(id, &decimals, false, |_| ()))?.is_some())
    }

    /// The rows within bounds, by a scan.
    pub fn rows(&self, table: &Bound<'_, Table>, bounds: &Bounds) -> PyResult<Rows> {
        let scan = self.walk(table, None, &bounds.range, false)?;
        Ok(crate::column::rows_of(scan))
    }

    /// A walk over a part of the table, or of an index.
    pub fn walk(
        &self,
        table: &Bound<'_, Table>,
        index: Option<TableId>,
        range: &Range,
        is_reverse: bool,
    ) -> PyResult<TransactionScan> {
        let of_store = |error| errors::of_store(table.py(), error);
        match self {
            Self::Snapshot(snapshot, id) => {
                let scan = snapshot.scan(index.unwrap_or(*id), range, is_reverse).map_err(of_store)?;
                Ok(TransactionScan::Clean(Box::new(scan)))
            }
            Self::Transaction(id) => table.get().core().in_running(table.py(), |transaction| {
                transaction.scan(index.unwrap_or(*id), range, is_reverse)
            }),
        }
    }

    /// The rows under these keys.
    pub fn list(&self, table: &Bound<'_, Table>, keys: SortedKeys) -> PyResult<Rows> {
        let (py, this) = (table.py(), table.get());
        match self {
            Self::Snapshot(snapshot, id) => {
                Ok(Rows::Listed(snapshot.clone(), Box::new(RowsByKey::new(*id, keys))))
            }
            Self::Transaction(id) => {
                let copied = this.core().in_running(py, |transaction| {
                    let mut rows = CopiedRows::default();
                    let mut found = RowsByKey::new(*id, keys);
                    let mut pace = Pace::new(|| Stop::Signals.is_set());
                    while found.next(&*transaction, |row, has_large| rows.push(&row, has_large))?.is_some() {
                        if let Err(stopped) = pace.step() {
                            return Ok(Err(stopped));
                        }
                    }
                    Ok(Ok(rows))
                })?;
                copied.map(Rows::Copied).map_err(|fault| of_fault(table, fault))
            }
        }
    }
}

/// Bytes of memory that the rows of a sort may take; the rest goes to files.
const SORT_MEMORY_MAX: usize = 1 << 28;

/// Finds the keys of rows in an order.
#[derive(Clone)]
struct SortUp(Sort);

impl Work for SortUp {
    type Result = Sorted;

    fn run<S: Shapes>(
        mut self,
        rows: &mut impl Walk,
        shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        self.0.run(rows, shapes, || stop.is_set())
    }
}

impl Parallel for SortUp {
    fn merge(&self, parts: Vec<Self::Result>, _: Stop<'_>) -> Result<Self::Result, Fault> {
        Ok(Sorted::merge(parts))
    }

    fn in_parts(&self, count: usize) -> Self {
        let mut part = self.clone();
        part.0.memory_max /= count.max(1);
        part
    }
}

/// The keys of those rows for which each function returns something true.
fn pass_filters(
    table: &Bound<'_, Table>,
    source: Source,
    filters: &[Py<PyAny>],
    mut offset: u64,
    limit: u64,
) -> PyResult<Vec<RowKey>> {
    let py = table.py();
    let mut passed = Vec::new();
    let name = table.get().name(py);
    let mut items = Table::iterate_rows(table, source.rows, source.selection, Shows::Items)?.try_iter()?;
    // Before the next one is looked for, which may be far off.
    while (passed.len() as u64) < limit {
        let Some(item) = items.next() else { break };
        let item = item?.cast_into::<PyTuple>()?;
        let (key, row) = (item.get_item(0)?, item.get_item(1)?);
        let mut is_wanted = true;
        for filter in filters {
            is_wanted = filter.bind(py).call1((&row,))?.is_truthy()?;
            if !is_wanted {
                break;
            }
        }
        if is_wanted && offset > 0 {
            offset -= 1;
        } else if is_wanted {
            let key = keys::key_of(&name, &key)?;
            passed.push(RowKey { code: key.bytes.into(), spelling: key.spelling.into() });
        }
    }
    Ok(passed)
}
