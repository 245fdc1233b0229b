//! Runs a query: iterators, lists, columns, single rows and counts.

use std::ops::ControlFlow;

use pellucid_query::Walk;
use pellucid_query::walk::for_each;
use pellucid_record::Shapes;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyIterator, PyList, PyString, PyTuple};

use crate::arrow::ArrowStream;
use crate::column::for_each_values;
use crate::errors;
use crate::hot::collector::CollectorPause;
use crate::query::handle::Query;
use crate::query::projection::{Output, Projection};
use crate::query::remote;
use crate::query::source::execute;
use crate::query::target::QueryTarget;
use crate::table::handle::Table;
use crate::values::record::detached;
use crate::values::views::Shows;
use crate::work::threads::over_parts;
use crate::work::walks::{Parallel, Queried, Stop, Walked, Work, WorkResult};

/// An iterator over keys, records or both.
pub fn iterate<'py>(query: &Bound<'py, Query>, shows: Shows) -> PyResult<Bound<'py, PyAny>> {
    let table = match &query.get().of {
        QueryTarget::Table(table) => table.bind(query.py()),
        QueryTarget::Server(table) => return remote::iterate(query, table.bind(query.py()), shows),
    };
    let source = match shows {
        Shows::Keys => query.source_of(&[], Walked::ByOne)?.map(|(source, _)| source),
        Shows::Values | Shows::Items => query.source(Walked::ByOne)?,
    };
    match source {
        Some(source) => Table::iterate_rows(table, source.rows, source.selection, shows),
        None => Ok(PyTuple::empty(query.py()).try_iter()?.into_any()),
    }
}

/// An iterator over records, or over the dicts that `select` makes.
pub fn rows<'py>(query: &Bound<'py, Query>) -> PyResult<Bound<'py, PyAny>> {
    match selected(query)? {
        Some(rows) => Ok(rows.try_iter()?.into_any()),
        None => iterate(query, Shows::Values),
    }
}

/// The dicts that `select` makes, if it was called.
fn selected<'py>(query: &Bound<'py, Query>) -> PyResult<Option<Bound<'py, PyList>>> {
    let Some(chosen) = &query.get().spec.chosen else { return Ok(None) };
    let py = query.py();
    let names: Vec<_> = chosen.iter().map(|(name, _)| PyString::intern(py, name)).collect();
    let nodes: Vec<_> = chosen.iter().map(|(_, node)| node.clone()).collect();
    let rows = PyList::empty(py);
    for_each_values(query, &nodes, |values| {
        let row = PyDict::new(py);
        for (name, value) in names.iter().zip(&*values) {
            row.set_item(name, value)?;
        }
        rows.append(row)
    })?;
    Ok(Some(rows))
}

/// The rows as columns: those of `select`, or all.
pub fn to_arrow<'py>(query: &Bound<'py, Query>) -> PyResult<Bound<'py, ArrowStream>> {
    let Some(chosen) = &query.get().spec.chosen else { return crate::arrow::to_arrow(query, None) };
    let chosen: Vec<_> = chosen.iter().map(|(name, node)| (name.as_str().into(), node.clone())).collect();
    crate::arrow::to_arrow(query, Some(&chosen))
}

/// All rows.
pub fn to_list<'py>(query: &Bound<'py, Query>) -> PyResult<Bound<'py, PyAny>> {
    match selected(query)? {
        Some(rows) => Ok(rows.into_any()),
        None => Ok(query.py().get_type::<PyList>().call1((iterate(query, Shows::Values)?,))?),
    }
}

/// All rows in plain containers.
pub fn to_dicts<'py>(query: &Bound<'py, Query>) -> PyResult<Bound<'py, PyAny>> {
    // The new objects hold no garbage, and the collector walked over all of them again and again.
    let _pause = CollectorPause::new(query.py());
    if let Some(rows) = selected(query)? {
        return Ok(rows.into_any());
    }
    let rows = PyList::empty(query.py());
    for row in iterate(query, Shows::Values)?.try_iter()? {
        rows.append(detached(&row?)?)?;
    }
    Ok(rows.into_any())
}

fn limited<'py>(query: &Bound<'py, Query>, count: u64) -> PyResult<Bound<'py, Query>> {
    let py = query.py();
    let limited = query.get().with(py, |spec| {
        spec.limit = spec.limit.min(count);
        Ok(())
    })?;
    Bound::new(py, limited)
}

/// The first row, or None.
pub fn first<'py>(query: &Bound<'py, Query>) -> PyResult<Bound<'py, PyAny>> {
    match rows(&limited(query, 1)?)?.try_iter()?.next() {
        Some(row) => row,
        None => Ok(query.py().None().into_bound(query.py())),
    }
}

/// The only row.
pub fn one<'py>(query: &Bound<'py, Query>) -> PyResult<Bound<'py, PyAny>> {
    let rows = rows(&limited(query, 2)?)?.try_iter()?;
    only(query, rows, "first")
}

fn only<'py>(
    query: &Bound<'py, Query>,
    mut rows: Bound<'py, PyIterator>,
    first: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let py = query.py();
    let not_one = |what: &str| {
        let asked = query.repr().map(|text| text.to_string()).unwrap_or_default();
        errors::raise(
            py,
            "NotOneRow",
            format!("{asked} has {what}; {first}() gives None for no row, and the first of many"),
        )
    };
    let Some(row) = rows.next() else { return Err(not_one("no row")) };
    match rows.next() {
        None => row,
        Some(_) => Err(not_one("more than one row")),
    }
}

/// The first row with its key, or None.
pub fn first_item<'py>(query: &Bound<'py, Query>) -> PyResult<Bound<'py, PyAny>> {
    match iterate(&limited(query, 1)?, Shows::Items)?.try_iter()?.next() {
        Some(item) => item,
        None => Ok(query.py().None().into_bound(query.py())),
    }
}

/// The only row, with its key.
pub fn one_item<'py>(query: &Bound<'py, Query>) -> PyResult<Bound<'py, PyAny>> {
    let items = iterate(&limited(query, 2)?, Shows::Items)?.try_iter()?;
    only(query, items, "first_item")
}

/// Whether there is any row.
pub fn exists(query: &Bound<'_, Query>) -> PyResult<bool> {
    Ok(count(&limited(query, 1)?)? > 0)
}

/// How many rows there are.
pub fn count(query: &Bound<'_, Query>) -> PyResult<u64> {
    let spec = &query.get().spec;
    if !spec.order.is_empty() && spec.after.is_none() && spec.filters.is_empty() {
        // A count does not depend on the order of rows.
        let unordered = query.get().with(query.py(), |spec| {
            spec.order.clear();
            Ok(())
        })?;
        return count(&Bound::new(query.py(), unordered)?);
    }
    match execute(query, &Projection::Count)? {
        Some(Output::Rows(source, _)) => over_parts(query.py(), &query.table_ref(), source, CountRows),
        Some(Output::Count(count)) => Ok(count),
        None => Ok(0),
    }
}

#[derive(Clone)]
struct CountRows;

impl Work for CountRows {
    type Result = u64;

    fn run<S: Shapes>(self, rows: &mut impl Walk, _shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let mut count = 0;
        for_each::<()>(rows, stop.check(), |_| {
            count += 1;
            ControlFlow::Continue(())
        })?;
        Ok(count)
    }
}

impl Parallel for CountRows {
    fn merge(&self, parts: Vec<Self::Result>, _stop: Stop<'_>) -> WorkResult<Self> {
        Ok(parts.into_iter().sum())
    }
}
