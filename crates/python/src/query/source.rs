//! Finds the rows of a query: the executor finds them, and Python functions filter the result.

use pellucid_query::exec::{Answer, Executor, RowSet};
use pellucid_query::expression::Node;
use pellucid_query::sort::{SortKey, SortedKeys};
use pellucid_query::{CoveredRows, Extremes, Fault, RowsByKey, Selection};
use pellucid_store::{Reader, Snapshot, TableId, Transaction};
use pyo3::prelude::*;

use crate::errors;
use crate::hot::callbacks;
use crate::query::handle::Query;
use crate::query::projection::{Output, Projection, passed_keys, request};
use crate::query::reader::{TableReader, copied, rows_of_extremes};
use crate::query::target::QueryTarget;
use crate::query::{cursor, indexes, remote};
use crate::table::handle::Table;
use crate::table::reading::Rows;
use crate::values::table_ref::TableRef;
use crate::values::views::Shows;
use crate::work::threads::caller;
use crate::work::walks::{Queried, Source, Walked, of_fault};

impl<'py> Queried<'py> for Bound<'py, Query> {
    fn py(&self) -> Python<'py> {
        Bound::py(self)
    }

    fn table_ref(&self) -> TableRef {
        self.get().of.table_ref(Bound::py(self))
    }

    fn source(&self, walked: Walked) -> PyResult<Option<Source>> {
        Ok(rows_of(execute(self, &Projection::Rows(walked))?).map(|(source, _)| source))
    }

    fn source_of(&self, reads: &[Node], walked: Walked) -> PyResult<Option<(Source, Vec<Node>)>> {
        Ok(rows_of(execute(self, &Projection::Values(reads, walked))?))
    }

    fn source_of_extremes(&self, wanted: &[(&Node, Extremes)]) -> PyResult<Option<Source>> {
        match &self.get().of {
            QueryTarget::Table(table) if self.get().spec.is_whole() => {
                rows_of_extremes(table.bind(Bound::py(self)), wanted)
            }
            QueryTarget::Table(_) | QueryTarget::Server(_) => Ok(None),
        }
    }
}

fn rows_of(output: Option<Output>) -> Option<(Source, Vec<Node>)> {
    match output {
        Some(Output::Rows(source, nodes)) => Some((source, nodes)),
        // Only a caller that asks for a count gets one.
        Some(Output::Count(_)) | None => None,
    }
}

/// The rows of a query. They are read from the entries of an index, if it covers the query.
pub fn execute(query: &Bound<'_, Query>, projection: &Projection<'_>) -> PyResult<Option<Output>> {
    let (py, spec) = (query.py(), &query.get().spec);
    cursor::check(spec, &query.get().of, py)?;
    let table = match &query.get().of {
        QueryTarget::Table(table) => table.bind(py),
        QueryTarget::Server(table) => return remote::execute(query, table.bind(py), projection),
    };
    let Some(reader) = TableReader::of(table)? else { return Ok(None) };
    let indexes = indexes::of(table, &reader)?;
    let mut request = request(spec, projection);
    if let (Some(after), Some((code, _))) = (&spec.after, &mut request.after)
        && !spec.order.is_empty()
    {
        let by = SortKey::new(&spec.order).map_err(|error| errors::value_error(error.to_string()))?;
        *code = after.code(table, by)?;
    }
    let request = &request;
    let answer = match &reader {
        TableReader::Snapshot(snapshot, id) => {
            let run = || -> Result<Output, Fault> {
                let executor = Executor::new((snapshot, *id), &indexes, request, caller())?;
                let paths = executor.short_path()?;
                // Releasing the GIL and taking it again takes longer than looking up a few rows.
                let answer = if paths.is_some() || executor.is_plain_scan()? {
                    executor.run(paths)?
                } else {
                    callbacks::released(py, || executor.run(executor.plan()?))?
                };
                output_of((snapshot, *id), answer, projection)
            };
            run()
        }
        TableReader::Transaction(id) => table.get().core().in_running(py, |transaction| {
            let of = (&*transaction, *id);
            let run = || {
                let executor = Executor::new(of, &indexes, request, caller())?;
                output_of(of, executor.run(executor.paths()?)?, projection)
            };
            Ok(run())
        })?,
    };
    match answer.map_err(|fault| of_fault(py, &TableRef::new(table), fault))? {
        Output::Rows(source, nodes) if !spec.filters.is_empty() => {
            let keys = pass_filters(table, source, &spec.filters, spec.offset, spec.limit)?;
            let rows = reader.list(table, SortedKeys::Listed(keys))?;
            Ok(Some(Output::Rows(Source { rows, selection: None }, nodes)))
        }
        output => Ok(Some(output)),
    }
}

/// A reader whose rows Python iterates over.
trait ToSource: Reader {
    /// Makes found rows of a table ready for iteration.
    fn source(&self, table: TableId, rows: RowSet<Self>, selection: Selection) -> Result<Source, Fault>;
}

impl ToSource for Snapshot {
    fn source(&self, table: TableId, rows: RowSet<Self>, selection: Selection) -> Result<Source, Fault> {
        let rows = match rows {
            RowSet::Scan(scan) => Rows::Pinned(Box::new(scan)),
            RowSet::Keys(keys) => Rows::Listed(self.clone(), Box::new(RowsByKey::new(table, keys))),
            RowSet::Index(rows) => Rows::Indexed(self.clone(), Box::new(rows)),
        };
        Ok(Source { rows, selection: Some(selection).filter(|selection| !selection.takes_all()) })
    }
}

impl ToSource for Transaction {
    fn source(&self, table: TableId, rows: RowSet<Self>, selection: Selection) -> Result<Source, Fault> {
        // In a transaction, rows that are looked up are copied, so that later changes do not affect
        // the iteration.
        let rows = match rows {
            RowSet::Scan(scan) => {
                return Ok(Source { rows: crate::column::rows_of(scan), selection: Some(selection) });
            }
            RowSet::Keys(keys) => copied(self, RowsByKey::new(table, keys), selection)?,
            RowSet::Index(rows) => copied(self, rows, selection)?,
        };
        Ok(Source { rows: Rows::Copied(rows), selection: None })
    }
}

fn output_of<R: ToSource>(
    (reader, table): (&R, TableId),
    answer: Answer<R>,
    projection: &Projection<'_>,
) -> Result<Output, Fault> {
    Ok(match answer {
        Answer::Count(count) => Output::Count(count),
        Answer::Covered(rows, nodes) => {
            let rows = Rows::Covered(Box::new(rows), !R::IS_COMMITTED);
            Output::Rows(Source { rows, selection: None }, nodes)
        }
        Answer::Rows(rows, selection) => {
            let nodes = match projection {
                Projection::Values(nodes, _) => nodes.to_vec(),
                Projection::Rows(_) | Projection::Count => Vec::new(),
            };
            Output::Rows(reader.source(table, rows, selection)?, nodes)
        }
    })
}

/// The keys of the rows for which each function returns something true.
fn pass_filters(
    table: &Bound<'_, Table>,
    source: Source,
    filters: &[Py<PyAny>],
    offset: u64,
    limit: u64,
) -> PyResult<CoveredRows> {
    let items = Table::iterate_rows(table, source.rows, source.selection, Shows::Items)?.try_iter()?;
    passed_keys(items, &table.get().name(table.py()), filters, (offset, limit))
}
