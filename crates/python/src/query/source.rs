//! How are the rows of a query found?
//!
//! Without an order and without Python functions the rows of a scan are tested one by one, as they are wanted. Otherwise the keys
//! of all that pass are found first, in the order that is asked for, in one snapshot; the rows are read from there.

use pellucid_query::sort::{SortKey, sorted};
use pellucid_query::{Copied, Evaluator, Fault, Listed, RowKey, Selection, Walk};
use pellucid_record::Shapes;
use pellucid_store::{Row, Snapshot, TableId};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use super::Query;
use crate::bounds::Bounds;
use crate::column::{Queried, Source, Work, is_interrupted, over};
use crate::errors;
use crate::keys;
use crate::table::{Rows, Table};
use crate::views::Shows;

impl<'py> Queried<'py> for Bound<'py, Query> {
    fn table(&self) -> &Bound<'py, Table> {
        self.get().table.bind(self.py())
    }

    fn source(&self) -> PyResult<Option<Source>> {
        let (table, plan) = (self.table(), &self.get().plan);
        let py = self.py();
        let (bounds, condition) = plan.scan(table)?;
        let Some(place) = Place::of(table, &bounds)? else { return Ok(None) };
        let condition = match condition {
            None => None,
            Some(node) => {
                Some(Evaluator::new(&node).map_err(|error| errors::value_error(error.to_string()))?)
            }
        };
        let mut selection = Selection::of(condition);
        if plan.order.is_empty() && plan.filters.is_empty() {
            (selection.offset, selection.limit) = (plan.offset, plan.limit);
            let rows = place.rows(table, &bounds)?;
            return Ok(Some(Source { rows, selection: Some(selection) }));
        }
        let mut source = Source { rows: place.rows(table, &bounds)?, selection: Some(selection) };
        let (mut offset, mut limit) = (plan.offset, plan.limit);
        if !plan.order.is_empty() {
            let sort_key =
                || SortKey::new(&plan.order).map_err(|error| errors::value_error(error.to_string()));
            let after = match &plan.after {
                None => None,
                Some(after) => {
                    let row = Row { key: &after.key, spelling: &[], record: &after.record };
                    let code = sort_key()?.of(&row, &*table.get().core().names).map(<[u8]>::to_vec);
                    let code = code.map_err(|error| errors::corrupt_key(py, "", &after.key, &error))?;
                    Some((code, after.key.clone()))
                }
            };
            let part = if plan.filters.is_empty() { (offset, limit) } else { (0, u64::MAX) };
            let keys = over(table, source, Sort { by: sort_key()?, after, part })?;
            source = Source { rows: place.list(table, keys)?, selection: None };
            (offset, limit) = if plan.filters.is_empty() { (0, u64::MAX) } else { (offset, limit) };
        }
        if plan.filters.is_empty() {
            return Ok(Some(source));
        }
        let keys = pass_filters(table, source, &plan.filters, offset, limit)?;
        Ok(Some(Source { rows: place.list(table, keys)?, selection: None }))
    }
}

/// Where rows are: a table of a snapshot, or of the running transaction.
enum Place {
    Snapshot(Snapshot, TableId),
    Transaction,
}

impl Place {
    /// Where the table's rows are now; None where it does not exist.
    fn of(table: &Bound<'_, Table>, bounds: &Bounds) -> PyResult<Option<Self>> {
        Ok(match table.get().rows(table.py(), bounds, false)? {
            None => None,
            Some(Rows::Pinned(scan)) => Some(Self::Snapshot(scan.snapshot().clone(), scan.table())),
            Some(_) => Some(Self::Transaction),
        })
    }

    fn rows(&self, table: &Bound<'_, Table>, bounds: &Bounds) -> PyResult<Rows> {
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
    fn list(&self, table: &Bound<'_, Table>, keys: Vec<RowKey>) -> PyResult<Rows> {
        let (py, this) = (table.py(), table.get());
        match self {
            Self::Snapshot(snapshot, id) => {
                Ok(Rows::Listed(Box::new(Listed::new(snapshot.clone(), *id, keys))))
            }
            Self::Transaction => this.core().in_running(py, |transaction| {
                let mut rows = Copied::default();
                if let Some(id) = this.id_in_transaction(py, transaction)? {
                    for key in keys {
                        if let Some(cell) = transaction.get(id, &key.code)? {
                            rows.push(key, cell.record);
                        }
                    }
                }
                Ok(Rows::Copied(rows))
            }),
        }
    }
}

/// Finds the keys of rows in an order.
struct Sort {
    by: SortKey,
    after: Option<(Vec<u8>, Vec<u8>)>,
    part: (u64, u64),
}

impl Work for Sort {
    type Result = Vec<RowKey>;

    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S) -> Result<Self::Result, Fault> {
        let (offset, limit) = self.part;
        sorted(rows, shapes, &mut self.by, self.after.as_ref(), offset, limit, is_interrupted)
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
