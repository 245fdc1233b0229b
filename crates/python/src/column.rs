//! Columns and aggregates of a field path over all rows, computed by `pellucid-query`.
//!
//! The walks run in Rust with the GIL released. If they find a value that only Python can add or
//! compare (some Decimals, a big int), the same walk is repeated with Python objects.

use std::ops::ControlFlow;

use pellucid_query::expression::{self, Node};
use pellucid_query::group::{Aggregate, Decimals};
use pellucid_query::stoppable::Pace;
use pellucid_query::walk::{damaged, for_each, for_each_at};
use pellucid_query::{Column, Extremes, LookedUp, Selected, Selection, Sum, Walk};
use pellucid_record::Shapes;
use pellucid_record::path::OwnedStep;
use pellucid_record::value::NoShapes;
use pellucid_store::{OverflowReader, Row, Snapshot, TransactionScan};
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyFloat, PyInt, PyList};

use crate::errors;
use crate::expression::handle::Expression;
use crate::hot::modules;
use crate::query::group;
use crate::signals::{Signals, is_interrupted_at_turn};
use crate::table::reading::Rows;
use crate::values::table_ref::TableRef;
use crate::values::{decode, equal, path, row_errors, scalars};
use crate::work::plain;
use crate::work::walks::{Queried, Source, Stop, Walked, Work, WorkResult, of_fault, over};

/// The steps of a field path.
pub fn steps_of(argument: &Bound<'_, PyAny>) -> PyResult<Vec<OwnedStep>> {
    let mut steps = Vec::new();
    for step in crate::expression::operand::field_path(argument)? {
        let step = equal::plain_key(&step)?.unwrap_or(step);
        // A bool is an int, too.
        if let Ok(index) = step.cast::<PyInt>()
            && let Ok(index) = index.extract()
        {
            steps.push(OwnedStep::Index(index));
            continue;
        }
        steps.push(match path::field_step(&step)? {
            Some(step) => step,
            None => {
                return Err(errors::type_error(format!(
                    "{} cannot be a step of a field path",
                    step.get_type().name()?
                )));
            }
        });
    }
    Ok(steps)
}

/// The node of a field path or of an expression.
pub fn node_of(argument: &Bound<'_, PyAny>) -> PyResult<Node> {
    if let Ok(expression) = argument.cast_exact::<Expression>() {
        return Ok(expression.get().node().clone());
    }
    Ok(pellucid_query::Expression::field(
        steps_of(argument)?.into_iter().map(expression::Step::from).collect(),
    ))
}

/// The column of an expression.
pub fn column_of(node: &Node) -> PyResult<Column> {
    Column::new(node).map_err(|error| errors::value_error(error.to_string()))
}

/// The sum of a column and the number of values in it, if Rust can add them all. Both are 0 if the
/// table does not exist.
fn native_sum<'py>(
    of: &impl Queried<'py>,
    path: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyAny>, u64)>> {
    let py = of.py();
    let sum = |column| Aggregate::Sum(column, Decimals::Added(None));
    let Some(total) = group::total(of, None, &node_of(path)?, sum)? else {
        return Ok(Some((0i64.into_pyobject(py)?.into_any(), 0)));
    };
    let Some((sum, decimals)) = total.sure_sum() else { return Ok(None) };
    // For Decimals, Python's context must keep 28 digits to compute the same sum.
    if decimals.count() > 0 && !scalars::keeps_digits(py)? {
        return Ok(None);
    }
    let object = match sum.int() {
        Some(ints) if decimals.count() > 0 => {
            group::object_of(py, &of.table_ref(), &decimals.value_with(ints))?
        }
        _ => of_sum(py, sum)?,
    };
    Ok(Some((object, sum.count() + decimals.count())))
}

/// `table.sum(path)`.
pub fn sum<'py>(of: &impl Queried<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    match native_sum(of, path)? {
        Some((sum, _)) => Ok(sum),
        None => by_python(of, path, &numbers(of, path)?),
    }
}

/// Adds up values in Python that Rust cannot add.
fn by_python<'py>(
    of: &impl Queried<'py>,
    path: &Bound<'py, PyAny>,
    values: &Bound<'py, PyList>,
) -> PyResult<Bound<'py, PyAny>> {
    let py = of.py();
    let builtin = py.import("builtins")?.getattr("sum")?;
    let total = match of_ints_and_floats(values)? {
        Some((sum, large)) => with_large(&sum, builtin.call1((large,))?.cast_into::<PyInt>()?),
        None => builtin.call1((values,)),
    };
    total.map_err(|error| {
        if !error.is_instance_of::<PyTypeError>(py) {
            return no_sum(of, path, error);
        }
        let name = of.table_ref().name(py);
        let shown = path.repr().map(|text| text.to_string()).unwrap_or_default();
        let unlike = errors::type_error(format!(
            "the values at {shown} of table {name:?} cannot all be added to each other: {}; \
             store them as one type, or take column({shown}) and convert them",
            error.value(py)
        ));
        unlike.set_cause(py, Some(error));
        unlike
    })
}

/// The sum of ints and floats, independent of their order, and the ints that are too large for it;
/// None if there are other numbers.
fn of_ints_and_floats<'py>(values: &Bound<'py, PyList>) -> PyResult<Option<(Sum, Bound<'py, PyList>)>> {
    let (mut sum, large) = (Sum::default(), PyList::empty(values.py()));
    for value in values {
        if let Ok(float) = value.cast::<PyFloat>() {
            sum.add_float(float.value());
        } else if !value.is_instance_of::<PyInt>() {
            return Ok(None);
        } else if let Ok(int) = value.extract() {
            sum.add_int(int);
        } else {
            large.append(value)?;
        }
    }
    Ok(Some((sum, large)))
}

/// A sum as Python's int or float.
pub fn of_sum<'py>(py: Python<'py>, sum: &Sum) -> PyResult<Bound<'py, PyAny>> {
    Ok(match sum.int() {
        Some(value) => value.into_pyobject(py)?.into_any(),
        None => PyFloat::new(py, sum.float()).into_any(),
    })
}

/// A sum and an int of any size as Python's int or float; rounded once, if there are floats.
///
/// # Errors
/// `OverflowError` if there are floats, and the int or the sum is too large for one.
pub fn with_large<'py>(sum: &Sum, large: Bound<'py, PyInt>) -> PyResult<Bound<'py, PyAny>> {
    let py = large.py();
    if sum.int().is_none() && large.is_truthy()? {
        let is_negative = large.lt(0)?;
        let size = large.call_method0("__abs__")?;
        let size_bits: usize = size.call_method0("bit_length")?.extract()?;
        let bytes: Vec<u8> = size.call_method1("to_bytes", (size_bits.div_ceil(8), "little"))?.extract()?;
        if let Some(float) = sum.float_with(is_negative, &bytes) {
            return Ok(PyFloat::new(py, float).into_any());
        }
    }
    of_sum(py, sum)?.add(large)
}

/// Adds to Python's own exception which values have no sum or no mean.
fn no_sum<'py>(of: &impl Queried<'py>, path: &Bound<'py, PyAny>, error: PyErr) -> PyErr {
    let py = of.py();
    errors::arithmetic(py, error, |why| {
        let name = of.table_ref().name(py);
        let shown = path.repr().map(|text| text.to_string()).unwrap_or_default();
        format!(
            "the values at {shown} of table {name:?} cannot be added up, or divided: {why}; choose those that can with where(), or take \
             column({shown}) and convert them"
        )
    })
}

/// `table.mean(path)`.
pub fn mean<'py>(of: &impl Queried<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = of.py();
    let (total, count) = if let Some(sum) = native_sum(of, path)? {
        sum
    } else {
        let numbers = numbers(of, path)?;
        (by_python(of, path, &numbers)?, numbers.len() as u64)
    };
    if count == 0 {
        return Ok(py.None().into_bound(py));
    }
    total.div(count).map_err(|error| no_sum(of, path, error))
}

/// The numbers at a path, as Python objects.
fn numbers<'py>(of: &impl Queried<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let py = of.py();
    let numbers = PyList::empty(py);
    let kind = py.import("numbers")?.getattr("Number")?;
    let branches = node_of(path)?.branches();
    let values = column(of, path)?;
    // A program that stored NumPy scalars has imported NumPy to read them back.
    let numpy = modules::loaded(intern!(py, "numpy"));
    let scalar = numpy.as_ref().map(|numpy| numpy.getattr("generic")).transpose()?;
    let array = numpy.as_ref().map(|numpy| numpy.getattr("ndarray")).transpose()?;
    let add = |value: Bound<'py, PyAny>| {
        if let Some(array) = &array
            && value.is_instance(array)?
        {
            // As Rust adds them: each element, and none of an array without dimensions.
            let kind: String = value.getattr("dtype")?.getattr("kind")?.extract()?;
            if "biuf".contains(&kind) && value.getattr("ndim")?.is_truthy()? {
                numbers.call_method1("extend", (value.call_method0("ravel")?.call_method0("tolist")?,))?;
            }
            return Ok(());
        }
        // A NumPy scalar becomes a Python number, since small NumPy types wrap around.
        let value = match &scalar {
            Some(scalar) if value.is_instance(scalar)? => {
                let kind: String = value.getattr("dtype")?.getattr("kind")?.extract()?;
                if kind == "M" || kind == "m" {
                    // A time that no Python type can hold: item() gives the bare count of its unit.
                    return Ok(());
                }
                value.call_method0("item")?
            }
            _ => value,
        };
        if value.is_instance(&kind)? { numbers.append(value) } else { Ok(()) }
    };
    let mut signals = Signals::by_turns();
    for value in values.iter() {
        signals.step(py)?;
        if branches {
            // With `each()`, each row has a list of values.
            value.try_iter()?.try_for_each(|element| add(element?))?;
        } else {
            add(value)?;
        }
    }
    Ok(numbers)
}

/// `table.min(path)`.
pub fn least<'py>(of: &impl Queried<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    group::extreme(of, &node_of(path)?, Extremes::Least)
}

/// `table.max(path)`.
pub fn greatest<'py>(of: &impl Queried<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    group::extreme(of, &node_of(path)?, Extremes::Greatest)
}

/// `table.count(path)`.
pub fn count<'py>(of: &impl Queried<'py>, path: &Bound<'py, PyAny>) -> PyResult<u64> {
    group::counted(of, &node_of(path)?)
}

/// `table.column(path)`: a list of the values, None for a row without the field.
pub fn column<'py>(of: &impl Queried<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
    let (py, mut values) = (of.py(), Vec::new());
    if let Some((source, nodes)) = of.source_of(&[node_of(path)?], Walked::ByOne)? {
        if let (Source { rows: Rows::Covered(rows, _), selection: None }, [node]) = (&source, &nodes[..])
            && is_first_part(node)
            && let Some(ints) = rows.ints()
        {
            return PyList::new(py, ints);
        }
        see_source(py, &of.table_ref(), source, &nodes, |row| {
            values.append(row);
            Ok(())
        })?;
    }
    // Values are collected first: appending each to a Python list took a seventh of the time.
    PyList::new(py, values)
}

/// Whether the expression is the first part of an index entry.
fn is_first_part(node: &Node) -> bool {
    match node.kind() {
        expression::Kind::Field(expression::Source::Record, path) => {
            matches!(path[..], [expression::Step::Index(0)])
        }
        _ => false,
    }
}

/// Calls `visit` with the values of the columns in each row, as plain objects; a missing value is
/// None.
///
/// # Errors
/// What `visit` raises, and those of `over`.
pub fn for_each_values<'py>(
    of: &impl Queried<'py>,
    nodes: &[Node],
    visit: impl FnMut(&mut Vec<Bound<'py, PyAny>>) -> PyResult<()>,
) -> PyResult<()> {
    match of.source_of(nodes, Walked::ByOne)? {
        Some((source, nodes)) => see_source(of.py(), &of.table_ref(), source, &nodes, visit),
        None => Ok(()),
    }
}

fn see_source<'py>(
    py: Python<'py>,
    table_ref: &TableRef,
    Source { rows, mut selection }: Source,
    nodes: &[Node],
    mut visit: impl FnMut(&mut Vec<Bound<'py, PyAny>>) -> PyResult<()>,
) -> PyResult<()> {
    let columns = nodes.iter().map(column_of).collect::<PyResult<Vec<_>>>()?;
    // The bytes of these rows stay in place, so values are made into objects without a copy.
    let rows = match rows {
        Rows::Pinned(mut scan) => {
            let snapshot = scan.snapshot().clone();
            return see_pinned(py, table_ref, &mut *scan, selection.as_mut(), &snapshot, columns, visit);
        }
        Rows::Listed(snapshot, mut rows) => {
            let mut rows = LookedUp { rows: &mut *rows, reader: &snapshot };
            return see_pinned(py, table_ref, &mut rows, selection.as_mut(), &snapshot, columns, visit);
        }
        Rows::Indexed(snapshot, mut rows) => {
            let mut rows = LookedUp { rows: &mut *rows, reader: &snapshot };
            return see_pinned(py, table_ref, &mut rows, selection.as_mut(), &snapshot, columns, visit);
        }
        Rows::Covered(mut rows, _) => {
            return see_values(py, table_ref, &mut *rows, &NoShapes, columns, None, visit);
        }
        Rows::Remote(mut feed) => {
            let seen = {
                let (rows, large, shapes) = feed.parts();
                let overflow_reader = OverflowReader { shapes, large };
                match &mut selection {
                    None => see_values(py, table_ref, rows, &overflow_reader, columns, None, visit),
                    Some(selection) => {
                        let mut rows = Selected { rows, selection, shapes: &overflow_reader };
                        see_values(py, table_ref, &mut rows, &overflow_reader, columns, None, visit)
                    }
                }
            };
            return seen.map_err(|error| feed.large.failed(py).unwrap_or(error));
        }
        rows => rows,
    };
    let snapshot = rows.snapshot().cloned();
    let mut objects = Vec::with_capacity(columns.len());
    let count = columns.len();
    let found = over(py, table_ref, Source { rows, selection }, CollectValues(columns))?;
    let mut signals = Signals::by_turns();
    for values in found.chunks(count.max(1)) {
        signals.step(py)?;
        objects.clear();
        for value in values {
            objects.push(match value {
                None => py.None().into_bound(py),
                Some(record) => plain::of_record(py, table_ref, record, snapshot.as_ref())?,
            });
        }
        visit(&mut objects)?;
    }
    Ok(())
}

/// As `for_each_values`, over the selected rows of a snapshot.
fn see_pinned<'py>(
    py: Python<'py>,
    table_ref: &TableRef,
    rows: &mut impl Walk,
    selection: Option<&mut Selection>,
    snapshot: &Snapshot,
    columns: Vec<Column>,
    visit: impl FnMut(&mut Vec<Bound<'py, PyAny>>) -> PyResult<()>,
) -> PyResult<()> {
    let overflow_reader = snapshot.overflow_reader();
    match selection {
        None => see_values(py, table_ref, rows, &overflow_reader, columns, Some(snapshot), visit),
        Some(selection) => {
            let mut rows = Selected { rows, selection, shapes: &overflow_reader };
            see_values(py, table_ref, &mut rows, &overflow_reader, columns, Some(snapshot), visit)
        }
    }
}

/// As `for_each_values`, over rows whose bytes stay in place meanwhile.
fn see_values<'py, S: Shapes + ?Sized>(
    py: Python<'py>,
    table_ref: &TableRef,
    rows: &mut impl Walk,
    shapes: &S,
    mut columns: Vec<Column>,
    snapshot: Option<&Snapshot>,
    mut visit: impl FnMut(&mut Vec<Bound<'py, PyAny>>) -> PyResult<()>,
) -> PyResult<()> {
    let mut objects = Vec::with_capacity(columns.len());
    let outcome = for_each_at(rows, Pace::by_turns(is_interrupted_at_turn), |row| {
        objects.clear();
        for column in &mut columns {
            match object_in(py, table_ref, column, &row, shapes, snapshot) {
                Ok(object) => objects.push(object),
                Err(error) => return ControlFlow::Break(Ok(error)),
            }
        }
        match visit(&mut objects) {
            Ok(()) => ControlFlow::Continue(()),
            Err(error) => ControlFlow::Break(Ok(error)),
        }
    });
    match outcome {
        Ok(None) => Ok(()),
        Ok(Some(error)) => Err(error),
        Err(fault) => Err(of_fault(py, table_ref, fault)),
    }
}

fn object_in<'py, S: Shapes + ?Sized>(
    py: Python<'py>,
    table_ref: &TableRef,
    column: &mut Column,
    row: &Row<'_>,
    shapes: &S,
    snapshot: Option<&Snapshot>,
) -> PyResult<Bound<'py, PyAny>> {
    if let Some(value) = column.place(row.record).and_then(|place| place.int()) {
        return Ok(value.into_pyobject(py)?.into_any());
    }
    let found = column
        .read(row, shapes)
        .map_err(|error| row_errors::corrupt_key(py, &table_ref.name(py), row.key, &error))?;
    match found {
        None => Ok(py.None().into_bound(py)),
        Some((slot, record)) => match decode::simple(py, &slot) {
            Some(object) => Ok(object),
            None => plain::of_slot(py, table_ref, (row.key, record), &slot, snapshot),
        },
    }
}

/// Collects the values of columns in all rows, each as a record of its own.
struct CollectValues(Vec<Column>);

impl Work for CollectValues {
    type Result = Vec<Option<Vec<u8>>>;

    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let mut values = Vec::new();
        for_each::<()>(rows, stop.check(), |row| {
            for column in &mut self.0 {
                match column.record(&row, shapes) {
                    Ok(value) => values.push(value),
                    Err(error) => return damaged(&row, error),
                }
            }
            ControlFlow::Continue(())
        })?;
        Ok(values)
    }
}

/// The `Rows` for a scan of a transaction.
pub fn rows_of(scan: TransactionScan) -> Rows {
    match scan {
        TransactionScan::Clean(scan) => Rows::Pinned(scan),
        dirty @ TransactionScan::Dirty(_) => Rows::Inside(dirty),
    }
}
