//! Store the columns of another library's tables as rows.
//!
//! The columns arrive in batches. Each batch is read and turned into records with the GIL released;
//! then its rows are stored, some thousand at a time. All batches belong to one transaction: if the
//! stream breaks off, none of its rows is stored.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use pellucid_query::arrow::writer::{Records, Unfit, Unwritten, Writer, Zones};
use pellucid_record::encode::Encoder;
use pellucid_record::key::KeyEncoder;
use pellucid_record::large_ids::large_id_places;
use pellucid_record::layout::{ADMISSION_SIGHTING, MICROS_PER_DAY};
use pellucid_record::shape::{Shape, ShapeDecision};
use pellucid_store::{StoreError, TableId, Transaction};
use pyo3::prelude::*;
use pyo3::types::{PyDateTime, PyDelta, PyType, PyTzInfo};

use crate::database::Database;
use crate::errors;
use crate::hot::arrow::{Broken, Incoming};
use crate::hot::{callbacks, modules};
use crate::put::write::{check_same, no_next};
use crate::query::handle::Query;
use crate::snapshot::SnapshotHandle;
use crate::table::handle::Table;
use crate::transaction;
use crate::values::dates;
use crate::values::encode::OVERFLOW_SIZE_MIN;

/// The most rows that are stored before other threads may have the GIL and signals are checked:
/// they take some milliseconds.
const SLICE_ROW_COUNT: usize = 4096;
/// If storing them takes longer, the next slice has fewer rows.
const SLICE_TIME_MAX: Duration = Duration::from_millis(10);

/// Whether an object offers Arrow columns: true as a stream, false as one array, None not at all.
pub fn hands_over(object: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    // What pellucid itself stores is not taken by columns, so that a copy from table to table is
    // exact: a query gives rows, and a mapping is refused as one.
    let is_own = object.is_instance_of::<Query>()
        || object.is_instance_of::<Table>()
        || object.is_instance_of::<Database>()
        || object.is_instance_of::<SnapshotHandle>();
    if is_own {
        return Ok(None);
    }
    if modules::class_has(object, "__arrow_c_stream__")? {
        return Ok(Some(true));
    }
    Ok(modules::class_has(object, "__arrow_c_array__")?.then_some(false))
}

/// `table.extend(columns)`; returns how many rows there were.
pub fn extend(table: &Bound<'_, Table>, columns: &Bound<'_, PyAny>, is_stream: bool) -> PyResult<usize> {
    let (py, this) = (table.py(), table.get());
    if let Some(class) = &this.class {
        let wanted = class.python.bind(py).fully_qualified_name()?;
        return Err(errors::raise(
            py,
            "WrongClass",
            format!(
                "columns have rows of no class, and the table was opened with type={wanted}: open it without type=, or \
                 make instances of them"
            ),
        ));
    }
    refuse_objects(columns, this)?;
    let columns = &with_counted_index(columns)?;
    let incoming = Incoming::of(columns, is_stream).map_err(|error| no_arrow(columns, error, this))?;
    let mut incoming = incoming.map_err(|broken| of_broken(py, broken, this))?;
    let core = this.core();
    transaction::within_batch(py, core, || {
        let serial = core.running_serial(py);
        let id = core.in_running(py, |transaction| this.id_for_writing(py, transaction))?;
        let mut loading = Loading::new(table, id);
        // The stream's own code may have stored rows in this table.
        let mut stored_count = None;
        while let Some(array) =
            callbacks::released(py, || incoming.next()).map_err(|broken| of_broken(py, broken, this))?
        {
            if core.running_serial(py) != serial {
                return Err(errors::raise(
                    py,
                    "TransactionError",
                    "the transaction was ended by the stream that is being stored; nothing of it is stored",
                ));
            }
            if stored_count != Some(core.stored_count()) {
                let next = core.in_running(py, |transaction| transaction.next_int(id))?;
                loading.next = next.ok_or_else(|| no_next(&this.name(py)))?.max(loading.next);
            }
            let writer = Writer::new(&array, &mut PythonZones { py });
            loading.put(writer.map_err(|unfit| of_unfit(py, &unfit, this))?)?;
            stored_count = Some(core.stored_count());
        }
        Ok(loading.count)
    })
}

/// A frame of pandas whose index is a range that does not only count the rows, with that index as
/// numbers: pandas hands over other indexes as columns, but of a range only its ends.
fn with_counted_index<'py>(columns: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if !columns.get_type().module()?.to_str()?.starts_with("pandas") {
        return Ok(columns.clone());
    }
    let (Some(index), Some(set_axis)) = (columns.getattr_opt("index")?, columns.getattr_opt("set_axis")?)
    else {
        return Ok(columns.clone());
    };
    let (Some(start), Some(step)) = (index.getattr_opt("start")?, index.getattr_opt("step")?) else {
        return Ok(columns.clone());
    };
    let name = index.getattr("name")?;
    if name.is_none() && start.eq(0)? && step.eq(1)? {
        return Ok(columns.clone());
    }
    let numbers = index.call_method0("to_numpy")?;
    let plain = columns.py().import("pandas")?.getattr("Index")?.call1((numbers,))?;
    set_axis.call1((plain.call_method1("rename", (name,))?,))
}

/// Turns an exception of Arrow, as for mixed objects of pandas, into one that names the table.
fn no_arrow(columns: &Bound<'_, PyAny>, error: PyErr, table: &Table) -> PyErr {
    let py = columns.py();
    let class = error.get_type(py);
    let is_arrow = class.name().is_ok_and(|name| {
        ["ArrowInvalid", "ArrowTypeError", "ArrowNotImplementedError"].iter().any(|known| name == *known)
    });
    if !is_arrow {
        return error;
    }
    let is_pandas = columns.get_type().module().is_ok_and(|module| module.to_string().starts_with("pandas"));
    let advice =
        if is_pandas { "; extend(frame.to_dict(\"records\")) stores the rows as they are" } else { "" };
    let message = format!(
        "the columns given to extend() of table {:?} cannot be made into Arrow data: {}{advice}",
        table.name(py),
        error.value(py)
    );
    let raised = errors::raise(py, "UnsupportedValue", message);
    raised.set_cause(py, Some(error));
    raised
}

/// The state of one load.
struct Loading<'a, 'py> {
    table: &'a Bound<'py, Table>,
    id: TableId,
    next: i64,
    count: usize,
    /// How many rows the next slice has.
    slice: usize,
    shapes: HashMap<Vec<String>, Option<u32>>,
    encoder: Encoder,
    records: Records,
}

impl<'a, 'py> Loading<'a, 'py> {
    fn new(table: &'a Bound<'py, Table>, id: TableId) -> Self {
        Self {
            table,
            id,
            next: 0,
            count: 0,
            slice: SLICE_ROW_COUNT / 64,
            shapes: HashMap::new(),
            encoder: Encoder::new(),
            records: Records::default(),
        }
    }

    /// Stores the rows of a batch.
    fn put(&mut self, mut writer: Writer) -> PyResult<()> {
        let (py, this) = (self.table.py(), self.table.get());
        let core = this.core();
        let (id, shapes, table) = (self.id, &mut self.shapes, self.table);
        core.in_running_unflushed(py, |transaction| {
            writer.give_shapes(&mut |names, is_root| {
                let known: Vec<String> = names.iter().map(ToString::to_string).collect();
                if let Some(shape) = shapes.get(&known) {
                    return Ok(*shape);
                }
                let shape = shape_of(table, id, transaction, names, is_root)?;
                shapes.insert(known, shape);
                Ok(shape)
            })
        })?;
        let mut start = 0;
        while start < writer.row_count() {
            let began = Instant::now();
            let end = writer.row_count().min(start + self.slice);
            let (encoder, records) = (&mut self.encoder, &mut self.records);
            records.clear();
            let mut signalled = None;
            let written = callbacks::released(py, || {
                let mut goes_on = || {
                    signalled = Python::attach(|py| callbacks::check_signals(py).err());
                    signalled.is_none()
                };
                writer.write(start..end, encoder, records, OVERFLOW_SIZE_MIN, &mut goes_on)
            });
            if let Some(error) = signalled {
                return Err(error);
            }
            let count = written.map_err(|error| of_unwritten(py, &error, this))?;
            self.put_records()?;
            callbacks::check_signals(py)?;
            start += count;
            // Large rows and rows of indexed tables take longer.
            let is_slow = began.elapsed() > SLICE_TIME_MAX;
            self.slice =
                if is_slow { (self.slice / 4).max(1) } else { (self.slice * 2).min(SLICE_ROW_COUNT) };
        }
        Ok(())
    }

    fn put_records(&mut self) -> PyResult<()> {
        let (py, this) = (self.table.py(), self.table.get());
        let core = this.core();
        let mut key = KeyEncoder::new();
        let mut patched = Vec::new();
        let (id, records, next, count) = (self.id, &self.records, &mut self.next, &mut self.count);
        let is_done = core.in_running_unflushed(py, |transaction| {
            check_same(py, this, transaction, id)?;
            for (record, large) in records.iter() {
                let mut blobs = Vec::with_capacity(large.len());
                let mut record = record;
                if !large.is_empty() {
                    patched.clear();
                    patched.extend_from_slice(record);
                    let places = large_id_places(record, &*core.names).map_err(StoreError::Record)?;
                    for ((_, data), place) in large.iter().zip(places) {
                        let blob = transaction.put_blob(data)?;
                        blobs.push(blob);
                        if let Some(bytes) = patched.get_mut(place..place + 8) {
                            bytes.copy_from_slice(&blob.to_le_bytes());
                        }
                    }
                    record = &patched;
                }
                if *next == i64::MAX {
                    return Ok(false);
                }
                key.clear();
                key.int(*next);
                core.count_stored();
                transaction.set_batch_row(*count);
                transaction.put_later(id, key.as_bytes(), &[], record, &blobs)?;
                *next += 1;
                *count += 1;
            }
            Ok(true)
        })?;
        if is_done { Ok(()) } else { Err(no_next(&this.name(py))) }
    }
}

/// The shape for all dicts with these names; None if no shape can have them.
pub(super) fn shape_of(
    table: &Bound<'_, Table>,
    id: TableId,
    transaction: &mut Transaction,
    names: &[&str],
    is_root: bool,
) -> Result<Option<u32>, StoreError> {
    let (py, core) = (table.py(), table.get().core());
    // A column has many rows, so this counts as enough sightings to admit the shape.
    let mut decision = ShapeDecision::Keyed;
    for _ in 0..ADMISSION_SIGHTING {
        decision = core.store.decide_shape(id, names, is_root)?;
        if decision != ShapeDecision::Keyed {
            break;
        }
    }
    match decision {
        ShapeDecision::Known(shape) => Ok(Some(shape)),
        ShapeDecision::Register => {
            let shape = transaction.admit(id, names)?;
            if core.names.met_as(py, shape).is_none()
                && let Ok(made) = Shape::new(names)
            {
                core.names.add_uncommitted(py, shape, made, core.running_serial(py).unwrap_or(0));
            }
            Ok(Some(shape))
        }
        ShapeDecision::Keyed => Ok(None),
    }
}

/// Time zones from Python's `zoneinfo`.
struct PythonZones<'py> {
    py: Python<'py>,
}

/// A zone rarely changes its offset within a quarter of an hour; the code checks whether it does.
const QUARTER: i64 = 15 * 60 * 1_000_000;

impl PythonZones<'_> {
    fn offset(&self, zone: &Bound<'_, PyTzInfo>, micros: i64) -> PyResult<(i64, bool)> {
        let days = micros.div_euclid(MICROS_PER_DAY);
        let rest = micros.rem_euclid(MICROS_PER_DAY);
        let since =
            PyDelta::new(self.py, days as i32, (rest / 1_000_000) as i32, (rest % 1_000_000) as i32, false)?;
        let epoch = PyDateTime::new(self.py, 1970, 1, 1, 0, 0, 0, 0, Some(zone))?;
        let local = zone.call_method1("fromutc", (epoch.add(since)?,))?;
        Ok((dates::offset_micros(&local)?, local.getattr("fold")?.extract::<u8>()? == 1))
    }

    fn all(&self, zone: &str, instants: &[i64]) -> PyResult<Vec<(i64, bool)>> {
        let zone =
            self.py.import("zoneinfo")?.getattr("ZoneInfo")?.call1((zone,))?.cast_into::<PyTzInfo>()?;
        // None means that the offset changes within this quarter of an hour.
        let mut quarters: HashMap<i64, Option<(i64, bool)>> = HashMap::new();
        let mut found = Vec::with_capacity(instants.len());
        for micros in instants {
            let quarter = micros.div_euclid(QUARTER);
            let known = if let Some(known) = quarters.get(&quarter) {
                *known
            } else {
                let first = self.offset(&zone, quarter * QUARTER)?;
                let last = self.offset(&zone, quarter * QUARTER + QUARTER - 1)?;
                let known = (first == last).then_some(first);
                quarters.insert(quarter, known);
                known
            };
            found.push(match known {
                Some(known) => known,
                None => self.offset(&zone, *micros)?,
            });
        }
        Ok(found)
    }
}

impl Zones for PythonZones<'_> {
    fn offsets(&mut self, zone: &str, instants: &[i64]) -> Result<Vec<(i64, bool)>, String> {
        self.all(zone, instants).map_err(|error| error.to_string())
    }
}

fn of_unfit(py: Python<'_>, unfit: &Unfit, table: &Table) -> PyErr {
    let column = match unfit.column.as_str() {
        "" => "the stream".to_owned(),
        column => format!("column {column:?}"),
    };
    let message = format!("{column} given to extend() of table {:?} has {}", table.name(py), unfit.why);
    errors::raise(py, "UnsupportedValue", message)
}

/// Refuses a polars frame with a column of Python objects: polars hands over their addresses as
/// bytes, without saying so.
fn refuse_objects(columns: &Bound<'_, PyAny>, table: &Table) -> PyResult<()> {
    let py = columns.py();
    let class = columns.get_type();
    if !class.module()?.to_str()?.starts_with("polars.") {
        return Ok(());
    }
    let mut types = Vec::new();
    if let Some(schema) = columns.getattr_opt("schema")? {
        for item in schema.call_method0("items")?.try_iter()? {
            let (name, kind): (String, Bound<'_, PyAny>) = item?.extract()?;
            types.push((name, kind));
        }
    } else if let Some(kind) = columns.getattr_opt("dtype")? {
        types.push((columns.getattr("name")?.extract()?, kind));
    }
    for (column, kind) in types {
        if has_objects(&kind)? {
            return Err(errors::raise(
                py,
                "UnsupportedValue",
                format!(
                    "column {column:?} given to extend() of table {:?} has Python objects (polars' type Object), which Arrow cannot \
                     hand over; extend(frame.to_dicts()) stores them one by one",
                    table.name(py)
                ),
            ));
        }
    }
    Ok(())
}

fn has_objects(kind: &Bound<'_, PyAny>) -> PyResult<bool> {
    let class = match kind.cast::<PyType>() {
        Ok(class) => class.clone(),
        Err(_) => kind.get_type(),
    };
    if class.name()?.to_str()? == "Object" {
        return Ok(true);
    }
    if let Some(inner) = kind.getattr_opt("inner")?
        && !inner.is_none()
        && has_objects(&inner)?
    {
        return Ok(true);
    }
    if let Some(fields) = kind.getattr_opt("fields")?
        && let Ok(fields) = fields.try_iter()
    {
        for field in fields {
            if has_objects(&field?.getattr("dtype")?)? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn of_broken(py: Python<'_>, broken: Broken, table: &Table) -> PyErr {
    let name = table.name(py);
    let message = match broken {
        Broken::Unknown(column, format) => {
            let what = match format.as_str() {
                "_pli128" | "_plu128" => "ints of 128 bits",
                _ => "a type of polars' own",
            };
            let message = format!(
                "column {column:?} given to extend() of table {name:?} has {what} ({format}), which Arrow does not have; \
                 extend(frame.to_dicts()) stores them exactly"
            );
            return errors::raise(py, "UnsupportedValue", message);
        }
        Broken::Raised(message) => {
            format!(
                "the stream given to extend() of table {name:?} broke off, nothing of it is stored: {message}"
            )
        }
        Broken::Damaged(message) => {
            format!(
                "what was given to extend() of table {name:?} is no Arrow data, nothing of it is stored: {message}"
            )
        }
    };
    errors::raise(py, "StreamError", message)
}

fn of_unwritten(py: Python<'_>, unwritten: &Unwritten, table: &Table) -> PyErr {
    let error = match unwritten {
        Unwritten::Encode(error) => error.to_string(),
        Unwritten::Stopped => "it was interrupted".to_owned(),
    };
    let message = format!("a row given to extend() of table {:?} cannot be stored: {error}", table.name(py));
    errors::raise(py, "RecordTooLarge", message)
}
