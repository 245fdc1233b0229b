//! How are the rows of a query found?
//!
//! Without an order and without Python functions the rows of a scan are tested one by one, as they are wanted. Otherwise the keys
//! of all that pass are found first, in the order that is asked for, in one snapshot; the rows are read from there.

use pellucid_query::plan::Access;
use pellucid_query::sort::{Sort, SortKey, Sorted, SortedKeys};
use pellucid_query::stoppable::Pace;
use pellucid_query::{Copied, Evaluator, Fault, Listed, RowKey, Selection, Walk};
use pellucid_record::Shapes;
use pellucid_store::{Row, Snapshot, TableId};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::Query;
use super::access::{self, Reached};
use super::plan::{self, Plan};
use crate::bounds::Bounds;
use crate::errors;
use crate::keys;
use crate::table::{Rows, Table};
use crate::views::Shows;
use crate::work::{Parallel, Queried, Source, Stop, Work, of_fault, over_parts};

impl<'py> Queried<'py> for Bound<'py, Query> {
    fn table(&self) -> &Bound<'py, Table> {
        self.get().table.bind(self.py())
    }

    fn source(&self) -> PyResult<Option<Source>> {
        Ok(match found(self, false)? {
            Some(Found::Rows(source)) => Some(source),
            // Keys alone are given to those who ask for them.
            Some(Found::Keys(..)) | None => None,
        })
    }
}

/// What a query has found.
pub enum Found {
    /// Rows.
    Rows(Source),
    /// The keys of the rows, in order, and no record was looked at.
    Keys(Vec<RowKey>),
}

/// The rows of a query; where keys will do, these alone if an index has them.
pub fn found(query: &Bound<'_, Query>, keys_will_do: bool) -> PyResult<Option<Found>> {
    let (table, plan) = (query.table(), &query.get().plan);
    let (bounds, conditions) = plan.scan(table)?;
    let Some(place) = Place::of(table, &bounds)? else { return Ok(None) };
    let wanted = plan.offset.saturating_add(plan.limit);
    let is_plain = plan.order.is_empty() && plan.filters.is_empty();
    let is_near = is_plain && access::are_near(table, &place, (&bounds, &conditions), wanted)?;
    let ways =
        if is_near { None } else { access::ways(table, plan, &place, (&bounds, &conditions), keys_will_do)? };
    let (reached, settled, is_ordered) = match ways {
        None => (Reached::Scan, Vec::new(), false),
        Some(ways) => {
            let wanted = if is_plain { wanted } else { u64::MAX };
            let (reached, choice) = ways.follow(table, &place, &bounds, wanted)?;
            let settled = choice.map(|choice| choice.settled.clone()).unwrap_or_default();
            (reached, settled, choice.is_some_and(|choice| matches!(choice.access, Access::Ordered { .. })))
        }
    };
    let is_settled = |place: usize| settled.get(place).copied().unwrap_or(false);
    let left = conditions.iter().enumerate().filter(|(place, _)| !is_settled(*place)).map(|(_, node)| node);
    let condition = match plan::all_of(left.cloned().collect())? {
        None => None,
        Some(node) => Some(Evaluator::new(&node).map_err(|error| errors::value_error(error.to_string()))?),
    };
    let mut selection = Selection::of(condition);
    let is_sorted = plan.order.is_empty() || is_ordered;
    if is_sorted && plan.filters.is_empty() {
        (selection.offset, selection.limit) = (plan.offset, plan.limit);
    }
    let rows = match reached {
        Reached::Scan => place.rows(table, &bounds)?,
        Reached::Rows(rows) => rows,
        Reached::Keys(mut keys) => {
            if is_plain && selection.condition.is_none() {
                let count = keys.len() as u64;
                keys.truncate(wanted.min(count) as usize);
                keys.drain(..plan.offset.min(keys.len() as u64) as usize);
                (selection.offset, selection.limit) = (0, u64::MAX);
                if keys_will_do {
                    return Ok(Some(Found::Keys(keys)));
                }
            }
            place.list(table, SortedKeys::Listed(keys.into_iter()))?
        }
    };
    let source = Source { rows, selection: Some(selection) };
    if is_sorted && plan.filters.is_empty() {
        return Ok(Some(Found::Rows(source)));
    }
    let (mut offset, mut limit) = (plan.offset, plan.limit);
    let source = if is_sorted {
        source
    } else {
        let (skip, take) = if plan.filters.is_empty() { (offset, limit) } else { (0, u64::MAX) };
        let keys = sorted(table, plan, source, skip, take)?;
        (offset, limit) = if plan.filters.is_empty() { (0, u64::MAX) } else { (offset, limit) };
        Source { rows: place.list(table, keys)?, selection: None }
    };
    if plan.filters.is_empty() {
        return Ok(Some(Found::Rows(source)));
    }
    let keys = pass_filters(table, source, &plan.filters, offset, limit)?;
    let keys = SortedKeys::Listed(keys.into_iter());
    Ok(Some(Found::Rows(Source { rows: place.list(table, keys)?, selection: None })))
}

/// The keys of rows in the order that is asked for, without the first few, and so many at most.
fn sorted(
    table: &Bound<'_, Table>,
    plan: &Plan,
    source: Source,
    skip: u64,
    take: u64,
) -> PyResult<SortedKeys> {
    let py = table.py();
    let sort_key = || SortKey::new(&plan.order).map_err(|error| errors::value_error(error.to_string()));
    let after = match &plan.after {
        None => None,
        Some(after) => {
            let row = Row { key: &after.key, spelling: &[], record: &after.record };
            let code = sort_key()?.of(&row, &*table.get().core().names).map(<[u8]>::to_vec);
            let code = code.map_err(|error| errors::corrupt_key(py, "", &after.key, &error))?;
            Some((code, after.key.clone()))
        }
    };
    let wanted = if take == 0 { 0 } else { skip.saturating_add(take) };
    let sort = Sort::new(sort_key()?, after, wanted, SORT_MEMORY_MAX);
    let sorted = over_parts(table, source, SortUp(sort))?;
    let keys = py.detach(|| sorted.into_keys(skip, take, || Stop::Signals.is_set()));
    keys.map_err(|fault| of_fault(table, fault))
}

/// Where rows are: a table of a snapshot, or of the running transaction.
pub enum Place {
    /// Of this snapshot.
    Snapshot(Snapshot, TableId),
    /// Of the running transaction.
    Transaction,
}

impl Place {
    /// Where the table's rows are now; None where it does not exist.
    pub fn of(table: &Bound<'_, Table>, bounds: &Bounds) -> PyResult<Option<Self>> {
        Ok(match table.get().rows(table.py(), bounds, false)? {
            None => None,
            Some(Rows::Pinned(scan)) => Some(Self::Snapshot(scan.snapshot().clone(), scan.table())),
            Some(_) => Some(Self::Transaction),
        })
    }

    /// The rows within bounds, by a scan.
    pub fn rows(&self, table: &Bound<'_, Table>, bounds: &Bounds) -> PyResult<Rows> {
        let py = table.py();
        match self {
            Self::Snapshot(snapshot, id) => {
                let scan = snapshot.scan(*id, &bounds.range, false);
                Ok(Rows::Pinned(Box::new(scan.map_err(|error| errors::of_store(py, error))?)))
            }
            Self::Transaction => match table.get().rows(py, bounds, false)? {
                Some(rows) => Ok(rows),
                None => Ok(Rows::Copied(Copied::default())),
            },
        }
    }

    /// The rows under these keys.
    pub fn list(&self, table: &Bound<'_, Table>, keys: SortedKeys) -> PyResult<Rows> {
        let (py, this) = (table.py(), table.get());
        match self {
            Self::Snapshot(snapshot, id) => {
                Ok(Rows::Listed(Box::new(Listed::new(snapshot.clone(), *id, keys))))
            }
            Self::Transaction => {
                let copied = this.core().in_running(py, |transaction| {
                    let mut rows = Copied::default();
                    let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(Ok(rows)) };
                    let mut pace = Pace::new(|| Stop::Signals.is_set());
                    for key in keys {
                        let key = key?;
                        if let Some(cell) = transaction.get(id, &key.code)? {
                            rows.push(key, cell.record);
                        }
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
    fn merge(&self, parts: Vec<Self::Result>, stop: Stop<'_>) -> Result<Self::Result, Fault> {
        Sorted::merge(parts, || stop.is_set())
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
    for item in Table::iterate_rows(table, source.rows, source.selection, Shows::Items)?.try_iter()? {
        if passed.len() as u64 == limit {
            break;
        }
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
