//! What do the fields of all rows come to? The Python face of `pellucid-query`.
//!
//! The walks run in Rust with the GIL released. Where a value turns up that only Python can add or
//! compare (a Decimal, a big int), the same walk is done once more with Python objects.

use pellucid_query::{Extreme, Extremes, Fault, FieldReader, Inside, Outcome, Step, Sum, Walk, aggregate};
use pellucid_record::Shapes;
use pellucid_record::view::Slot;
use pellucid_store::TransactionScan;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList, PyString};

use crate::bounds::Bounds;
use crate::errors;
use crate::hot::node;
use crate::path;
use crate::scalars;
use crate::table::{Rows, Table};

fn reader(argument: &Bound<'_, PyAny>) -> PyResult<FieldReader> {
    let mut steps = Vec::new();
    for step in path::parse(argument)? {
        if let Ok(index) = step.cast_exact::<PyInt>()
            && let Ok(index) = index.extract()
        {
            steps.push(Step::Index(index));
            continue;
        }
        steps.push(match path::field_step(&step)? {
            Some(node::Step::Field(name)) => Step::Field(name),
            Some(node::Step::Key(key)) => Step::Key(key),
            Some(node::Step::Index(index)) => Step::Index(index),
            None => {
                return Err(errors::type_error(format!(
                    "{} cannot be a step of a field path",
                    step.get_type().name()?
                )));
            }
        });
    }
    Ok(FieldReader::new(steps))
}

/// Work that runs over either kind of walk.
trait Work: Send {
    type Result: Send;
    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S) -> Result<Self::Result, Fault>;
}

/// Runs `work` over all rows; None where the table does not exist.
fn over_all<W: Work>(table: &Bound<'_, Table>, work: W) -> PyResult<Option<W::Result>> {
    let py = table.py();
    let this = table.get();
    let Some(rows) = this.rows(py, &Bounds::all(), false)? else { return Ok(None) };
    let core = this.core();
    let result = match rows {
        Rows::Pinned(mut scan) => {
            let shapes = scan.snapshot().dictionary().clone();
            py.detach(move || work.run(&mut *scan, &*shapes))
        }
        Rows::Inside(mut scan) => core.in_running(py, |transaction| {
            let shapes = transaction.shapes().clone();
            Ok(work.run(&mut Inside { scan: &mut scan, transaction }, &*shapes))
        })?,
    };
    match result {
        Ok(result) => Ok(Some(result)),
        Err(Fault::Store(error)) => Err(errors::of_store(py, error)),
        Err(Fault::Record(key, error)) => Err(errors::corrupt_key(py, &this.name(py), &key, &error)),
        Err(Fault::Stopped) => Err(stopped(py)),
    }
}

/// Whether Ctrl-C waits to be noticed.
fn is_interrupted() -> bool {
    Python::attach(|py| match py.check_signals() {
        Ok(()) => false,
        Err(error) => {
            error.restore(py);
            true
        }
    })
}

fn stopped(py: Python<'_>) -> PyErr {
    PyErr::take(py).unwrap_or_else(|| pyo3::exceptions::PyKeyboardInterrupt::new_err(()))
}

struct SumUp(FieldReader);

impl Work for SumUp {
    type Result = Outcome<Sum>;
    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S) -> Result<Self::Result, Fault> {
        aggregate::sum(rows, &mut self.0, shapes, is_interrupted)
    }
}

/// `table.sum(path)`.
pub fn sum<'py>(table: &Bound<'py, Table>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = table.py();
    match over_all(table, SumUp(reader(path)?))? {
        None => Ok(0i64.into_pyobject(py)?.into_any()),
        Some(Outcome::Done(sum)) => object_of_sum(py, &sum),
        Some(Outcome::Foreign) => by_python(table, "sum", path, &numbers(table, path)?),
    }
}

/// What Python's own function makes of values that have no sum or order in Rust.
fn by_python<'py>(
    table: &Bound<'py, Table>,
    function: &str,
    path: &Bound<'py, PyAny>,
    values: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = table.py();
    py.import("builtins")?.getattr(function)?.call1((values,)).map_err(|error| {
        if !error.is_instance_of::<PyTypeError>(py) {
            return error;
        }
        let what = if function == "sum" { "added to" } else { "compared with" };
        let name = table.get().name(py);
        let shown = path.repr().map(|text| text.to_string()).unwrap_or_default();
        let unlike = errors::type_error(format!(
            "the values at {shown} of table {name:?} cannot all be {what} each other: {}; \
             store them as one type, or take column({shown}) and convert them",
            error.value(py)
        ));
        unlike.set_cause(py, Some(error));
        unlike
    })
}

fn object_of_sum<'py>(py: Python<'py>, sum: &Sum) -> PyResult<Bound<'py, PyAny>> {
    Ok(match sum.int() {
        Some(value) => value.into_pyobject(py)?.into_any(),
        None => PyFloat::new(py, sum.float()).into_any(),
    })
}

/// `table.mean(path)`.
pub fn mean<'py>(table: &Bound<'py, Table>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = table.py();
    let (total, count) = match over_all(table, SumUp(reader(path)?))? {
        None => return Ok(py.None().into_bound(py)),
        Some(Outcome::Done(sum)) => (object_of_sum(py, &sum)?, sum.count()),
        Some(Outcome::Foreign) => {
            let numbers = numbers(table, path)?;
            let count = numbers.len() as u64;
            (by_python(table, "sum", path, &numbers)?, count)
        }
    };
    if count == 0 { Ok(py.None().into_bound(py)) } else { total.div(count) }
}

/// The numbers at a path, as Python objects.
fn numbers<'py>(table: &Bound<'py, Table>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = table.py();
    let numbers = PyList::empty(py);
    let kind = py.import("numbers")?.getattr("Number")?;
    for value in column(table, path)?.iter() {
        if value.is_instance(&kind)? {
            numbers.append(value)?;
        }
    }
    Ok(numbers)
}

struct FindExtreme(FieldReader, Extremes);

impl Work for FindExtreme {
    type Result = Outcome<Option<Extreme>>;
    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S) -> Result<Self::Result, Fault> {
        aggregate::extreme(rows, &mut self.0, shapes, self.1, is_interrupted)
    }
}

fn extreme<'py>(
    table: &Bound<'py, Table>,
    path: &Bound<'py, PyAny>,
    which: Extremes,
    function: &str,
) -> PyResult<Bound<'py, PyAny>> {
    let py = table.py();
    match over_all(table, FindExtreme(reader(path)?, which))? {
        None | Some(Outcome::Done(None)) => Ok(py.None().into_bound(py)),
        Some(Outcome::Done(Some(value))) => match value {
            Extreme::Int(value) => Ok(value.into_pyobject(py)?.into_any()),
            Extreme::Float(value) => Ok(PyFloat::new(py, value).into_any()),
            Extreme::Str(value) => crate::hot::text::utf8(py, &value).map_err(|error| {
                let name = table.get().name(py);
                errors::corrupt_record(
                    py,
                    format!("a record of table {name:?} is damaged: {}", error.value(py)),
                )
            }),
            Extreme::Date(value) => scalars::new_date(py, value),
            Extreme::Datetime(value) => scalars::new_datetime(py, value, None),
        },
        Some(Outcome::Foreign) => {
            let values = PyList::empty(py);
            for value in column(table, path)?.iter() {
                if !value.is_none() {
                    values.append(value)?;
                }
            }
            if values.is_empty() {
                return Ok(py.None().into_bound(py));
            }
            by_python(table, function, path, &values)
        }
    }
}

/// `table.min(path)`.
pub fn least<'py>(table: &Bound<'py, Table>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    extreme(table, path, Extremes::Least, "min")
}

/// `table.max(path)`.
pub fn greatest<'py>(table: &Bound<'py, Table>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    extreme(table, path, Extremes::Greatest, "max")
}

struct Count(FieldReader);

impl Work for Count {
    type Result = u64;
    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S) -> Result<Self::Result, Fault> {
        aggregate::count(rows, &mut self.0, shapes, is_interrupted)
    }
}

/// `table.count(path)`.
pub fn count(table: &Bound<'_, Table>, path: &Bound<'_, PyAny>) -> PyResult<u64> {
    Ok(over_all(table, Count(reader(path)?))?.unwrap_or(0))
}

/// `table.column(path)`: a list of the values, None where a row has no such field.
pub fn column<'py>(table: &Bound<'py, Table>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = table.py();
    let steps = pyo3::types::PyTuple::new(py, path::parse(path)?)?;
    let values = PyList::empty(py);
    let mut reader = reader(path)?;
    let this = table.get();
    let Some(rows) = this.rows(py, &Bounds::all(), false)? else { return Ok(values) };
    if let Rows::Pinned(mut scan) = rows {
        let shapes = scan.snapshot().dictionary().clone();
        while let Some(row) = scan.next().map_err(|error| errors::of_store(py, error))? {
            if let Some(value) = reader.quick_int(row.record) {
                values.append(value)?;
                continue;
            }
            let slot = reader
                .read(row.record, &*shapes)
                .map_err(|error| errors::corrupt_key(py, &this.name(py), row.key, &error))?;
            match slot {
                None | Some(Slot::None) => values.append(py.None())?,
                Some(Slot::Int(value)) => values.append(value)?,
                Some(Slot::Float(value)) => values.append(value)?,
                Some(Slot::Bool(value)) => values.append(value)?,
                Some(Slot::Str(value)) if value.is_ascii() => {
                    values.append(PyString::new(py, std::str::from_utf8(value).unwrap_or_default()))?;
                }
                Some(_) => values.append(Table::value_at(table, row.key, row.record, &steps)?)?,
            }
        }
        return Ok(values);
    }
    for value in Table::iterate(table, &Bounds::all(), crate::views::Shows::Values, false)?.try_iter()? {
        let value = value?;
        let is_record = value.is_exact_instance_of::<crate::record::Record>();
        let found = if is_record { value.call_method1("path", (&steps,))? } else { py.None().into_bound(py) };
        values.append(crate::record::detached(&found)?)?;
    }
    Ok(values)
}

/// The kinds of walk that a transaction may give.
pub fn rows_of(scan: TransactionScan) -> Rows {
    match scan {
        TransactionScan::Clean(scan) => Rows::Pinned(scan),
        dirty @ TransactionScan::Dirty(_) => Rows::Inside(dirty),
    }
}
