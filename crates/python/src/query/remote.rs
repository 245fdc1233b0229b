//! Finds the rows of a query on a server: as far as possible the server does, and the rest is
//! filtered and sorted here, page by page.
//!
//! `pellucid.postgres.query.reader.ServerReader` writes the statements and has the connection. A
//! query reads one state of the table, with as many statements as it takes.

use pellucid_query::Selection;
use pellucid_query::exec::evaluator_of_all;
use pellucid_query::index::Definition;
use pellucid_query::plan::Candidate;
use pellucid_query::server::{Codes, Predicate, ServerIndex, Translated, translate, worth_knowing};
use pellucid_query::sort::{Sort, SortKey, SortedKeys, memory_max};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};

use crate::errors;
use crate::hot::callbacks;
use crate::query::cursor;
use crate::query::handle::{Query, of_server};
use crate::query::projection::{Output, Projection, passed_keys, request};
use crate::query::spec::Spec;
use crate::server::feed::{PageReader, RemoteRows};
use crate::server::rows::ServerRows;
use crate::server::table::ServerTable;
use crate::table::reading::Rows;
use crate::values::table_ref::TableRef;
use crate::values::views::Shows;
use crate::work::walks::{SIGNALS, Source, of_fault, over};

/// What the server is asked for, and what is done with the rows that it sends.
pub struct RemoteQuery<'py> {
    table: Bound<'py, ServerTable>,
    /// The object that asks it.
    pub reading: Bound<'py, PyAny>,
    /// The conditions and the order, translated.
    pub translated: Translated,
    /// Whether the server gives the rows in the order that is asked for.
    pub is_in_order: bool,
}

/// An object of Python's with the predicates.
fn python_of<'py>(py: Python<'py>, predicate: &Predicate) -> PyResult<Bound<'py, PyAny>> {
    let bytes = |codes: &[Vec<u8>]| PyList::new(py, codes.iter().map(|code| PyBytes::new(py, code)));
    let ranges = |ranges: &[Codes]| {
        let edge = |code: &Option<Vec<u8>>| code.as_ref().map(|code| PyBytes::new(py, code));
        PyList::new(py, ranges.iter().map(|(start, end)| (edge(start), edge(end))))
    };
    let object = match predicate {
        Predicate::Keys(codes) => ("keys", bytes(codes)?).into_pyobject(py)?.into_any(),
        Predicate::KeyRanges(edges) => ("key_ranges", ranges(edges)?).into_pyobject(py)?.into_any(),
        Predicate::Points(index, codes) => ("points", *index, bytes(codes)?).into_pyobject(py)?.into_any(),
        Predicate::Ranges(index, edges, ordered) => {
            ("ranges", *index, ranges(edges)?, *ordered).into_pyobject(py)?.into_any()
        }
        Predicate::Any(branches) => {
            let all: PyResult<Vec<_>> = branches.iter().map(|branch| all_of(py, branch)).collect();
            ("any", all?).into_pyobject(py)?.into_any()
        }
    };
    Ok(object)
}

fn all_of<'py>(py: Python<'py>, predicates: &[Predicate]) -> PyResult<Bound<'py, PyList>> {
    let all: PyResult<Vec<_>> = predicates.iter().map(|predicate| python_of(py, predicate)).collect();
    PyList::new(py, all?)
}

/// The indexes of the table that queries may use, in the order that `reading` has them in.
fn indexes_of(reading: &Bound<'_, PyAny>) -> PyResult<Vec<ServerIndex>> {
    let all: Vec<(String, String, bool, bool)> = reading.call_method0("indexes")?.extract()?;
    let index = |(name, text, is_unique, is_ordered): (String, String, bool, bool)| {
        // One that a newer release has made, and this one cannot read, serves no condition.
        let (parts, condition) = Definition::parse(&text)
            .map_or_else(|_| (Vec::new(), None), |definition| (definition.parts, definition.condition));
        let candidate = Candidate { name, parts, condition, entries: 0, is_unique };
        ServerIndex { candidate, is_total: false, is_ordered }
    };
    Ok(all.into_iter().map(index).collect())
}

impl<'py> RemoteQuery<'py> {
    /// Finds out what the server can do for a query.
    ///
    /// # Errors
    /// What the server raises.
    pub fn new(table: &Bound<'py, ServerTable>, reading: &Bound<'py, PyAny>, spec: &Spec) -> PyResult<Self> {
        let mut indexes = indexes_of(reading)?;
        let conditions = spec.all_conditions();
        let asked = worth_knowing(&conditions, &spec.order, &indexes);
        if !asked.is_empty() {
            let are_total: Vec<bool> = reading.call_method1("totals", (asked.clone(),))?.extract()?;
            for (place, is_total) in asked.into_iter().zip(are_total) {
                if let Some(index) = indexes.get_mut(place) {
                    index.is_total = is_total;
                }
            }
        }
        let translated = translate(&conditions, &spec.order, &indexes);
        let is_in_order = spec.order.is_empty() || (translated.order.is_some() && spec.after.is_none());
        Ok(Self { table: table.clone(), reading: reading.clone(), translated, is_in_order })
    }

    /// The predicates, with the one for the row after which to begin.
    pub fn predicates(&self, spec: &Spec) -> PyResult<Bound<'py, PyList>> {
        let mut predicates = self.translated.predicates.clone();
        if let (Some(after), true) = (&spec.after, spec.order.is_empty()) {
            predicates.push(pellucid_query::server::after_key(&after.key));
        }
        all_of(self.table.py(), &predicates)
    }

    /// Whether the server leaves nothing to test.
    pub fn is_exact(&self, spec: &Spec) -> bool {
        let is_after_exact = spec.after.as_ref().is_none_or(|after| {
            spec.order.is_empty() && after.key.len() < pellucid_query::server::CODE_SIZE_MAX
        });
        self.translated.residual.is_empty() && spec.filters.is_empty() && is_after_exact
    }

    /// Begins the statement for rows: with `part`, the offset and the limit of it.
    fn begin(&self, spec: &Spec, part: Option<(u64, u64)>, reads_records: bool) -> PyResult<()> {
        // The state is kept where rows are looked up after the last page.
        let is_kept = !self.is_in_order || !spec.filters.is_empty();
        let (offset, limit) = part.unwrap_or((0, u64::MAX));
        let limit = i64::try_from(limit).ok();
        let order = self.translated.order.filter(|_| self.is_in_order && !spec.order.is_empty());
        let offset = i64::try_from(offset).unwrap_or(i64::MAX);
        let asked = (self.predicates(spec)?, order, offset, limit, reads_records, is_kept);
        self.reading.call_method1("rows", asked)?;
        Ok(())
    }

    fn feed(&self, fetching: PageReader) -> Rows {
        let (py, table) = (self.table.py(), self.table.get());
        Rows::Remote(Box::new(RemoteRows::new(py, fetching, table.codec.clone_ref(py))))
    }

    /// The rows of the query, without what Python functions leave out of them: where they come
    /// from, and the selection of them.
    fn rows(&self, spec: &Spec, projection: &Projection<'_>) -> PyResult<(PageReader, Option<Selection>)> {
        let py = self.table.py();
        let request = request(spec, projection);
        let reads_records = request.reads.is_none_or(|reads| reads.iter().any(|node| node.reads_record()))
            || !self.translated.residual.is_empty()
            || !self.is_in_order;
        let failed = |error: pellucid_query::Fault| of_fault(py, &TableRef::new(&self.table), error);
        let mut selection =
            Selection::of(evaluator_of_all(self.translated.residual.clone()).map_err(failed)?);
        selection.meter.clone_from(&spec.meter);
        let part = (request.offset, request.limit);
        let after = spec.after.as_ref().filter(|_| spec.order.is_empty()).map(|after| after.key.clone());
        if self.is_in_order {
            let is_cut = self.is_exact(spec).then_some(part);
            self.begin(spec, is_cut, reads_records)?;
            if is_cut.is_none() {
                (selection.offset, selection.limit) = part;
            }
            let selection = Some(selection).filter(|selection| !selection.takes_all());
            return Ok((PageReader::begun(&self.reading, after), selection));
        }
        self.begin(spec, None, true)?;
        let by = SortKey::new(&spec.order).map_err(|error| errors::value_error(error.to_string()))?;
        let after = match &spec.after {
            Some(after) => Some((after.code_on_server(&self.table, by.clone())?, after.key.clone())),
            None => None,
        };
        let wanted = if request.limit == 0 { 0 } else { request.offset.saturating_add(request.limit) };
        let sort = Sort::new(by, after, wanted, memory_max());
        let rows = self.feed(PageReader::begun(&self.reading, None));
        let source = Source { rows, selection: Some(selection) };
        let sorted = over(py, &TableRef::new(&self.table), source, sort)?;
        let keys = sorted.into_keys(request.offset, request.limit, || SIGNALS.is_set()).map_err(failed)?;
        Ok((PageReader::of_keys(&self.reading, keys), None))
    }
}

/// Runs `work` with the server, and again if another client has changed the layout of the table
/// meanwhile. None if there is no such table.
///
/// # Errors
/// What the server raises.
pub fn with_server<'py, R>(
    table: &Bound<'py, ServerTable>,
    spec: &Spec,
    mut work: impl FnMut(&RemoteQuery<'py>) -> PyResult<R>,
) -> PyResult<Option<R>> {
    loop {
        callbacks::code_may_run(table.py());
        let reading = table.call_method0("reader")?;
        if reading.is_none() {
            return Ok(None);
        }
        match RemoteQuery::new(table, &reading, spec).and_then(|remote| work(&remote)) {
            Ok(result) => return Ok(Some(result)),
            // Raises the error, unless it says that the layout is another one.
            Err(error) => reading.call_method1("recover", (error.value(table.py()),))?,
        };
    }
}

/// The rows of a query, or their number.
pub fn execute<'py>(
    query: &Bound<'py, Query>,
    table: &Bound<'py, ServerTable>,
    projection: &Projection<'_>,
) -> PyResult<Option<Output>> {
    let spec = &query.get().spec;
    with_server(table, spec, |remote| {
        if matches!(projection, Projection::Count)
            && remote.is_exact(spec)
            && (spec.order.is_empty() || spec.after.is_none())
        {
            let limit = i64::try_from(spec.offset.saturating_add(spec.limit)).ok();
            let counted = remote.reading.call_method1("count", (remote.predicates(spec)?, limit))?;
            let count: u64 = counted.extract()?;
            return Ok(Output::Count(count.saturating_sub(spec.offset)));
        }
        let (fetching, selection) = remote.rows(spec, projection)?;
        let (fetching, selection) = if spec.filters.is_empty() {
            (fetching, selection)
        } else {
            (passed(remote, spec, (fetching, selection))?, None)
        };
        let nodes = match projection {
            Projection::Values(nodes, _) => nodes.to_vec(),
            Projection::Rows(_) | Projection::Count => Vec::new(),
        };
        Ok(Output::Rows(Source { rows: remote.feed(fetching), selection }, nodes))
    })
}

/// An iterator over the keys, values or items of a query.
pub fn iterate<'py>(
    query: &Bound<'py, Query>,
    table: &Bound<'py, ServerTable>,
    shows: Shows,
) -> PyResult<Bound<'py, PyAny>> {
    let (py, spec) = (query.py(), &query.get().spec);
    cursor::check(spec, &query.get().of, py)?;
    let projection = match shows {
        Shows::Keys => Projection::Values(&[], crate::work::walks::Walked::ByOne),
        Shows::Values | Shows::Items => Projection::Rows(crate::work::walks::Walked::ByOne),
    };
    let rows = with_server(table, spec, |remote| {
        let (fetching, selection) = remote.rows(spec, &projection)?;
        let (fetching, selection) = if spec.filters.is_empty() {
            (fetching, selection)
        } else {
            (passed(remote, spec, (fetching, selection))?, None)
        };
        ServerRows::new(table, fetching, selection, shows)
    })?;
    match rows {
        Some(rows) => Ok(Bound::new(py, rows)?.into_any()),
        None => Ok(PyTuple::empty(py).try_iter()?.into_any()),
    }
}

/// The rows for which each function of the query returns something true.
fn passed(
    remote: &RemoteQuery<'_>,
    spec: &Spec,
    (fetching, selection): (PageReader, Option<Selection>),
) -> PyResult<PageReader> {
    let py = remote.table.py();
    let rows = Bound::new(py, ServerRows::new(&remote.table, fetching, selection, Shows::Items)?)?;
    let name = remote.table.get().name_of(py);
    let found = passed_keys(rows.try_iter()?, &name, &spec.filters, (spec.offset, spec.limit))?;
    Ok(PageReader::of_keys(&remote.reading, SortedKeys::Listed(found)))
}

/// The query of all rows of a server's table.
#[pyfunction]
pub fn server_query(table: &Bound<'_, ServerTable>) -> Query {
    of_server(table)
}
