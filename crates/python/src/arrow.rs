//! Export rows as Arrow columns.
//!
//! Native code makes all columns at once, and exports them as Arrow's C stream, which polars,
//! pandas, DuckDB and pyarrow read without a copy. `numpy.rs` exports one column to NumPy.

use arrow_array::ffi::FFI_ArrowSchema;
use arrow_array::ffi_stream::FFI_ArrowArrayStream;
use arrow_array::{RecordBatchIterator, StringArray};
use pellucid_query::arrow::{self, Gathered, Kinds, NothingLarge, Part, Refusal, Wanted};
use pellucid_query::expression::Node;
use pellucid_query::{LookedUp, Scanned, Walk};
use pellucid_record::Shapes;
use pellucid_store::{Large, OverflowReader};
use pyo3::exceptions::PyImportError;
use pyo3::prelude::*;
use pyo3::types::PyCapsule;

use crate::column::column_of;
use crate::errors;
use crate::hot::callbacks;
use crate::table::reading::Rows;
use crate::values::keys;
use crate::values::table_ref::TableRef;
use crate::work::threads::over_parts;
use crate::work::walks::{Parallel, Queried, SIGNALS, Source, Stop, Walked, Work, WorkResult, of_fault};

/// Rows as columns, which any Arrow library reads without a copy.
///
/// `to_arrow` makes it. It holds all columns in memory, and can be read any number of times:
/// `pyarrow.table(stream)`, `polars.DataFrame(stream)`, `duckdb.from_arrow(stream)`. `len` is the
/// number of rows.
///
/// >>> import pellucid, pyarrow
/// >>> table = pellucid.open(":memory:").table("t")
/// >>> table.extend([{"n": 1, "s": "a"}, {"n": 2}])
/// 2
/// >>> stream = table.to_arrow()
/// >>> stream
/// <pellucid.ArrowStream of 2 rows: n Int64, s Utf8>
/// >>> pyarrow.table(stream).to_pydict()
/// {'n': [1, 2], 's': ['a', None]}
#[pyclass(frozen, module = "pellucid", name = "ArrowStream")]
pub struct ArrowStream {
    table: arrow::Table,
}

#[pymethods]
impl ArrowStream {
    /// Return a capsule with the columns, for a library that reads them; `requested_schema` is
    /// ignored.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyCapsule>> {
        // The protocol allows ignoring a requested schema.
        let _ = requested_schema;
        let arrow::Table { schema, batches, .. } = self.table.clone();
        let reader = RecordBatchIterator::new(batches.into_iter().map(Ok), schema);
        PyCapsule::new_with_value(py, FFI_ArrowArrayStream::new(Box::new(reader)), c"arrow_array_stream")
    }

    /// Return a capsule with the names and types of the columns.
    fn __arrow_c_schema__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        let schema = FFI_ArrowSchema::try_from(self.table.schema.as_ref());
        let schema = schema.map_err(|error| errors::value_error(error.to_string()))?;
        PyCapsule::new_with_value(py, schema, c"arrow_schema")
    }

    fn __len__(&self) -> usize {
        self.table.batches.iter().map(arrow_array::RecordBatch::num_rows).sum()
    }

    fn __repr__(&self) -> String {
        let fields = self.table.schema.fields().iter();
        let shown: Vec<_> = fields.map(|field| format!("{} {}", field.name(), field.data_type())).collect();
        let rows = errors::counted(self.__len__(), "row");
        format!("<pellucid.ArrowStream of {rows}: {}>", shown.join(", "))
    }
}

/// Gathers the columns of rows, with the values stored outside of the records from `large`: a
/// snapshot, the running transaction, or a server.
#[derive(Clone)]
struct Gather<'a> {
    wanted: &'a Wanted,
    known: &'a Kinds,
    large: &'a (dyn Large + Sync),
}

impl Work for Gather<'_> {
    type Result = Part;

    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        arrow::gather(rows, shapes, &mut self.wanted.clone(), self.known, self.large, stop.check())
    }
}

impl Parallel for Gather<'_> {
    fn merge(&self, parts: Vec<Self::Result>, _stop: Stop<'_>) -> WorkResult<Self> {
        Ok(Part::joined(parts))
    }
}

fn gathered(
    py: Python<'_>,
    table_ref: &TableRef,
    source: Source,
    wanted: &Wanted,
    known: &Kinds,
) -> PyResult<Part> {
    // The entries of a covering index refer to nothing outside of them.
    let gather = Gather { wanted, known, large: &NothingLarge };
    let snapshot = match &source.rows {
        Rows::Pinned(scan) => Some(scan.snapshot().clone()),
        Rows::Listed(snapshot, _) | Rows::Indexed(snapshot, _) => Some(snapshot.clone()),
        Rows::Covered(..) => return over_parts(py, table_ref, source, gather),
        Rows::Copied(_) | Rows::Inside(_) | Rows::IndexedInside(_) | Rows::Remote(_) => None,
    };
    if let Some(snapshot) = snapshot {
        return over_parts(py, table_ref, source, Gather { large: &snapshot, ..gather });
    }
    let Source { rows, mut selection } = source;
    if let Rows::Remote(mut feed) = rows {
        let part = {
            let (rows, large, shapes) = feed.parts();
            let work = Gather { large, ..gather };
            callbacks::released(py, || {
                work.run_over(rows, selection.as_mut(), &OverflowReader { shapes, large }, SIGNALS)
            })
        };
        return part.map_err(|fault| feed.large.failed(py).unwrap_or_else(|| of_fault(py, table_ref, fault)));
    }
    let part = table_ref.in_running(py, |transaction| {
        let transaction = &*transaction;
        let overflow_reader = transaction.overflow_reader();
        let work = Gather { large: transaction, ..gather };
        Ok(match rows {
            Rows::Copied(mut rows) => work.run_over(&mut rows, selection.as_mut(), &overflow_reader, SIGNALS),
            Rows::Inside(mut scan) => {
                let mut rows = Scanned { scan: &mut scan, reader: transaction };
                work.run_over(&mut rows, selection.as_mut(), &overflow_reader, SIGNALS)
            }
            Rows::IndexedInside(mut rows) => {
                let mut rows = LookedUp { rows: &mut *rows, reader: transaction };
                work.run_over(&mut rows, selection.as_mut(), &overflow_reader, SIGNALS)
            }
            Rows::Pinned(_) | Rows::Listed(..) | Rows::Indexed(..) | Rows::Covered(..) | Rows::Remote(_) => {
                Ok(Part::default())
            }
        })
    })?;
    part.map_err(|fault| of_fault(py, table_ref, fault))
}

/// The columns of the rows as they are now.
pub fn columns_of<'py>(
    of: &impl Queried<'py>,
    chosen: Option<&[(Box<str>, Node)]>,
) -> PyResult<arrow::Table> {
    let (py, table_ref) = (of.py(), of.table_ref());
    let mut known = Kinds::new();
    let nodes: Vec<_> = chosen.into_iter().flatten().map(|(_, node)| node.clone()).collect();
    let wanted_of = |nodes: &[Node]| {
        let Some(chosen) = chosen else { return Ok(Wanted::All) };
        let columns = chosen.iter().zip(nodes).map(|((name, _), node)| Ok((name.clone(), column_of(node)?)));
        columns.collect::<PyResult<_>>().map(Wanted::Chosen)
    };
    loop {
        let found = match chosen {
            None => of.source(Walked::InParts)?.map(|source| (source, Vec::new())),
            Some(_) => of.source_of(&nodes, Walked::InParts)?,
        };
        let Some((source, nodes)) = found else { return Ok(arrow::nothing(&wanted_of(&nodes)?)) };
        match gathered(py, &table_ref, source, &wanted_of(&nodes)?, &known)?.finish() {
            Gathered::Done(columns) => return Ok(columns),
            // The rows are queried again, so the last walk sees a single state of the table.
            Gathered::Again(kinds) => known = kinds,
            Gathered::Refused(refusal) => return Err(refused(py, &table_ref, &refusal)),
            Gathered::Damaged(Refusal { column, why, .. }) => {
                let name = table_ref.name(py);
                return Err(errors::corrupt_record(
                    py,
                    format!("a record of table {name:?} is damaged, in column {column:?}: {why}"),
                ));
            }
        }
    }
}

fn refused(py: Python<'_>, table_ref: &TableRef, refusal: &Refusal) -> PyErr {
    let name = table_ref.name(py);
    let key = refusal.key.as_deref().and_then(|key| keys::object_of(py, key, &[]).ok());
    let record =
        key.and_then(|key| key.repr().ok()).map_or_else(|| "a record".into(), |key| format!("record {key}"));
    let place = match refusal.column.as_str() {
        "" => record,
        column => format!("column {column:?} of {record}"),
    };
    errors::raise(
        py,
        "UnsupportedValue",
        format!(
            "{place} of table {name:?} has {}; select() columns without it, or take where().to_dicts()",
            refusal.why
        ),
    )
}

/// `to_arrow()` of all fields, or of the selected ones.
pub fn to_arrow<'py>(
    of: &impl Queried<'py>,
    chosen: Option<&[(Box<str>, Node)]>,
) -> PyResult<Bound<'py, ArrowStream>> {
    let (py, columns) = (of.py(), columns_of(of, chosen)?);
    if let Some(name) = arrow::unnamable(&columns) {
        let table = of.table_ref().name(py);
        return Err(errors::raise(
            py,
            "UnsupportedValue",
            format!(
                "a field of table {table:?} is called {name:?}, and no column of Arrow's has a NUL character in its name; give it another one, \
                 select(other_name=F[{name:?}]), or take where().to_dicts()"
            ),
        ));
    }
    if !columns.texts.is_empty() {
        warn_of_texts(py, &of.table_ref().name(py), &columns)?;
    }
    Bound::new(py, ArrowStream { table: columns })
}

/// Warns of columns that are text because no other type holds all their values: a string is in
/// quotes there, so that it is another one than in the rows.
#[cold]
fn warn_of_texts(py: Python<'_>, table: &str, columns: &arrow::Table) -> PyResult<()> {
    let class = py.import("pellucid.errors")?.getattr("DatabaseWarning")?;
    for path in &columns.texts {
        let why = odd_values(columns, path)
            .unwrap_or_else(|| "its values have different types, or one that no column has".to_owned());
        let message = format!(
            "column {path:?} of table {table:?} is text, with strings in quotes, because {why}; select() columns whose values have one type, \
             or change the rows"
        );
        py.import("warnings")?.getattr("warn")?.call1((message, &class, 1))?;
    }
    Ok(())
}

/// The first value of a column of text, and the first one of another type, as their JSON begins.
fn odd_values(columns: &arrow::Table, path: &str) -> Option<String> {
    let column = columns.schema.index_of(path).ok()?;
    let mut first: Option<(usize, &str)> = None;
    let mut before = 0;
    let shown = |json: &str| json.chars().take(40).collect::<String>();
    for batch in &columns.batches {
        let texts = batch.column(column).as_any().downcast_ref::<StringArray>()?;
        for (row, json) in texts.iter().enumerate().filter_map(|(row, json)| Some((before + row, json?))) {
            match first {
                None => first = Some((row, json)),
                Some((at, other)) if kind_of(json) != kind_of(other) => {
                    return Some(format!("row {at} has {}, and row {row} has {}", shown(other), shown(json)));
                }
                Some(_) => {}
            }
        }
        before += batch.num_rows();
    }
    None
}

/// The kind of a value of JSON, by its first character.
fn kind_of(json: &str) -> u8 {
    match json.bytes().next() {
        Some(sign @ (b'"' | b'[' | b'{')) => sign,
        Some(b't' | b'f') => b't',
        _ => b'0',
    }
}

/// Imports a module of another library for the method `what`.
pub fn module<'py>(py: Python<'py>, name: &str, what: &str, pip: &str) -> PyResult<Bound<'py, PyModule>> {
    py.import(name).map_err(|error| {
        if !error.is_instance_of::<PyImportError>(py) {
            return error;
        }
        let missing = PyImportError::new_err(format!("{what}() needs {name}: pip install {pip}"));
        missing.set_cause(py, Some(error));
        missing
    })
}

/// The columns as a polars DataFrame.
pub fn to_polars<'py>(stream: &Bound<'py, ArrowStream>) -> PyResult<Bound<'py, PyAny>> {
    module(stream.py(), "polars", "to_polars", "polars")?.getattr("DataFrame")?.call1((stream,))
}

/// The columns as a pandas DataFrame.
pub fn to_pandas<'py>(stream: &Bound<'py, ArrowStream>) -> PyResult<Bound<'py, PyAny>> {
    let py = stream.py();
    module(py, "pandas", "to_pandas", "pandas pyarrow")?;
    let arrow = module(py, "pyarrow", "to_pandas", "pandas pyarrow")?;
    arrow.getattr("table")?.call1((stream,))?.call_method0("to_pandas")
}
