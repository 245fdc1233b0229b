//! Updates and deletes the rows of a query.
//!
//! This is done in one transaction: first the keys of the rows are found in the state at its start,
//! then each row is changed. New values are computed from the row as it was. A scalar that fits its
//! slot is written over the old one.

use std::ops::{ControlFlow, Range};

use pellucid_query::expression::{self, Expression as Node_};
use pellucid_query::stoppable::Pace;
use pellucid_query::walk::for_each;
use pellucid_query::{Column, Fault, Walk};
use pellucid_record::layout::tag;
use pellucid_record::patch::{self, Change, PatchError};
use pellucid_record::path::{OwnedStep, Step};
use pellucid_record::payload::Overflow;
use pellucid_record::value::{NoShapes, ndarray_payload};
use pellucid_record::view::{Root, Slot, root};
use pellucid_record::{Corrupt, Damage, Shape, Shapes, Value, encode_value};
use pellucid_store::{BLOB_ADDRESS_REMAINDER, Row, StoreError, TableId, Transaction};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyFunction};

use crate::core::Core;
use crate::errors;
use crate::expression::handle::{Expression, shown};
use crate::expression::operand;
use crate::put::write;
use crate::query::handle::Query;
use crate::query::remote_change;
use crate::query::spec::changes_of;
use crate::query::target::QueryTarget;
use crate::query::words;
use crate::signals::{Signals, is_interrupted};
use crate::table::handle::Table;
use crate::transaction;
use crate::values::encode::{Encoded, OVERFLOW_SIZE_MIN};
use crate::values::keys::Key;
use crate::values::row_errors;
use crate::values::table_ref::TableRef;
use crate::work::walks::{Queried, Stop, Walked, Work, WorkResult, of_fault, over};

/// Implements `query.update(...)`: returns in how many rows a field was set.
pub fn update(
    query: &Bound<'_, Query>,
    changes: Option<&Bound<'_, PyAny>>,
    fields: Option<&Bound<'_, PyDict>>,
) -> PyResult<u64> {
    let py = query.py();
    let table = match &query.get().of {
        QueryTarget::Table(table) => table.bind(py),
        QueryTarget::Server(table) => return remote_change::update(query, table.bind(py), changes, fields),
    };
    for name in fields.into_iter().flat_map(PyDictMethods::keys) {
        words::refuse_double_underscores("update", &name.to_string())?;
    }
    let changes = changes.map(changes_of).transpose()?;
    let (mut paths, mut values) = (Vec::new(), Vec::new());
    for (place, value) in changes.iter().chain(fields).flatten() {
        let path = crate::column::steps_of(&place)?;
        if paths.contains(&path) {
            return Err(errors::type_error(format!(
                "update() is given two values for the field {}; leave one of them out",
                place.repr()?
            )));
        }
        paths.push(path);
        values.push(if value.is_instance_of::<Expression>() {
            let node = operand::node_of(&value)?;
            let column = Column::new(&node);
            NewValue::Column(column.map_err(|error| errors::value_error(error.to_string()))?)
        } else {
            operand::refuse_unready(&value)?;
            NewValue::Constant(Constant::new(table, &place, &value)?)
        });
    }
    if values.is_empty() {
        return Err(errors::type_error(
            "update() takes at least one field: update(age=F.age + 1)".to_owned(),
        ));
    }
    let names = paths.iter().filter_map(|path| match path.first() {
        Some(OwnedStep::Field(name)) => Some(&**name),
        _ => None,
    });
    table.get().check_fields(py, names)?;
    let core = table.get().core();
    let borrowed = paths.iter().map(|path| path.iter().map(OwnedStep::borrowed).collect()).collect();
    let mut edits = Edits { paths: borrowed, values, record: Vec::new(), before: Vec::new(), failed: 0 };
    in_each(
        (query, table),
        |transaction, id, key| match edits.change_row((py, core), transaction, id, key)? {
            Ok(is_done) => Ok(Ok(is_done)),
            Err(PatchError::Corrupt(error)) => Ok(Err(Unfit::Corrupt(error))),
            Err(error) => {
                let is_too_large = matches!(error, PatchError::Encode(_));
                Ok(Err(Unfit::Patch(why(py, paths.get(edits.failed), &error), is_too_large)))
            }
        },
        |keys, some| check_class(table, keys, some),
    )
}

/// Implements `query.delete()`: returns how many rows there were.
pub fn delete(query: &Bound<'_, Query>) -> PyResult<u64> {
    match &query.get().of {
        QueryTarget::Table(table) => in_each(
            (query, table.bind(query.py())),
            |transaction, id, key| Ok(Ok(transaction.delete(id, key.code)?)),
            |_, _| Ok(()),
        ),
        QueryTarget::Server(table) => remote_change::delete(query, table.bind(query.py())),
    }
}

/// The fields that `update` sets, and their new values.
struct Edits<'a> {
    paths: Vec<Vec<Step<'a>>>,
    /// One value for each path.
    values: Vec<NewValue>,
    /// A row's record, and the record before the change, in buffers that are reused. Separate
    /// allocations for each row, its key, its paths and the record of a new number were a third of
    /// the time of an update, more than waiting for the disk.
    record: Vec<u8>,
    before: Vec<u8>,
    /// The path that could not be changed.
    failed: usize,
}

/// The new value of a field.
enum NewValue {
    /// An expression, which is computed in each row.
    Column(Column),
    /// The same value in all rows.
    Constant(Constant),
}

/// A value, encoded once for all rows.
struct Constant {
    encoded: Encoded,
    /// The encoded value with the ids that it lacked, if these are the same for all rows.
    resolved: Option<Vec<u8>>,
}

/// For a function, which cannot be stored: an error that says how a value is computed for each row.
fn no_function(py: Python<'_>, value: &Bound<'_, PyAny>, error: PyErr) -> PyErr {
    let is_function = value.is_instance_of::<PyFunction>() || value.is_instance_of::<PyCFunction>();
    if !is_function || !error.is_instance_of::<PyTypeError>(py) {
        return error;
    }
    let raised = errors::raise(
        py,
        "UnsupportedValue",
        "update() runs without Python, and calls no function for a row: an expression computes a value, update(age=F.age + 1), or a loop \
         over the query sets it, row.age = ...",
    );
    raised.set_cause(py, Some(error));
    raised
}

impl Constant {
    fn new(table: &Bound<'_, Table>, place: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        let what = || format!("the value for {} of table {:?}", place, table.get().name(table.py()));
        let encoded =
            write::encode_part(table, value, what).map_err(|error| no_function(table.py(), value, error))?;
        Ok(Self { encoded, resolved: None })
    }

    /// The scalar that the value is, if it is one.
    fn scalar<S: Shapes + ?Sized>(&self, shapes: &S) -> Result<Option<Slot<'_>>, Corrupt> {
        if !self.encoded.pending.is_empty() || !self.encoded.overflow.is_empty() {
            return Ok(None);
        }
        match root(self.encoded.encoder.bytes(), shapes)? {
            Root::Scalar(slot) => Ok(Some(slot)),
            Root::Container(_) => Ok(None),
        }
    }

    /// The record to store, and the ids of the large values that are stored apart from it: each row
    /// has its own.
    fn resolve_ids(
        &mut self,
        (py, core): (Python<'_>, &Core),
        transaction: &mut Transaction,
        table: TableId,
    ) -> Result<(Vec<u8>, Vec<u64>), StoreError> {
        if let Some(record) = &self.resolved {
            return Ok((record.clone(), Vec::new()));
        }
        let resolved = write::resolve_ids(py, core, transaction, table, &self.encoded, true)?;
        let (record, blobs) = match resolved {
            Some(resolved) => (resolved.record, resolved.blobs),
            None => (self.encoded.encoder.bytes().to_vec(), Vec::new()),
        };
        if blobs.is_empty() {
            self.resolved = Some(record.clone());
        }
        Ok((record, blobs))
    }
}

/// Encodes a computed value with its large values apart, as for a value from Python.
fn to_overflow(
    value: Value,
    transaction: &mut Transaction,
    blobs: &mut Vec<u64>,
) -> Result<Value, StoreError> {
    let array;
    let (tag, bytes): (u8, &[u8]) = match &value {
        Value::Str(text) => (tag::STR, text.as_bytes()),
        Value::Surrogates(text) => (tag::STR_SURROGATES, text),
        Value::Bytes(bytes) => (tag::BYTES, bytes),
        Value::Bytearray(bytes) => (tag::BYTEARRAY, bytes),
        Value::Pickle(bytes) => (tag::PICKLE, bytes),
        Value::Ndarray { dtype, shape, flags, data } if data.len() >= OVERFLOW_SIZE_MIN => {
            let payload = ndarray_payload((dtype, shape, *flags, data), BLOB_ADDRESS_REMAINDER);
            // The caller meets the same error, when it encodes the value.
            let Ok(payload) = payload else { return Ok(value) };
            array = payload;
            (tag::NDARRAY, &array)
        }
        _ => {
            let mut all = |values: Vec<Value>| -> Result<Vec<Value>, StoreError> {
                values.into_iter().map(|value| to_overflow(value, transaction, blobs)).collect()
            };
            return Ok(match value {
                Value::List(values) => Value::List(all(values)?),
                Value::Tuple(values) => Value::Tuple(all(values)?),
                Value::Registered(name, value) => {
                    Value::Registered(name, Box::new(to_overflow(*value, transaction, blobs)?))
                }
                Value::Dict(entries) => {
                    let (keys, values) = entries.into_iter().unzip::<_, _, Vec<_>, _>();
                    Value::Dict(keys.into_iter().zip(all(values)?).collect())
                }
                value => value,
            });
        }
    };
    if bytes.len() < OVERFLOW_SIZE_MIN {
        return Ok(value);
    }
    let blob = transaction.put_blob(bytes)?;
    blobs.push(blob);
    Ok(Value::Overflow(Overflow { tag, blob, size: bytes.len() as u64 }))
}

/// Whether the value is so large that it is stored apart. It might fit over one that an earlier
/// version has stored in the record.
fn is_for_overflow(slot: &Slot<'_>) -> bool {
    match slot {
        Slot::Str(payload) | Slot::Heap { payload, .. } => payload.len() >= OVERFLOW_SIZE_MIN,
        _ => false,
    }
}

type Done = Result<Result<bool, PatchError>, StoreError>;

/// If the table has a class, checks that changed rows still make instances of it.
fn check_class(table: &Bound<'_, Table>, keys: &Keys, some: Range<usize>) -> PyResult<()> {
    if table.get().class.is_some() {
        let mut signals = Signals::new();
        for key in keys.some(some) {
            signals.step(table.py())?;
            Table::value_of(table, &Key { bytes: key.code.to_vec(), spelling: key.spelling.to_vec() })?;
        }
    }
    Ok(())
}

/// Calls `work` for each row and `after` with the keys of some rows, in one transaction. Returns
/// how many rows it changed.
fn in_each(
    (query, table): (&Bound<'_, Query>, &Bound<'_, Table>),
    mut work: impl FnMut(&mut Transaction, TableId, KeyOf<'_>) -> Result<Result<bool, Unfit>, StoreError>,
    after: impl Fn(&Keys, Range<usize>) -> PyResult<()>,
) -> PyResult<u64> {
    let py = query.py();
    let this = table.get();
    this.check_writable(py)?;
    transaction::within_batch(py, this.core(), || {
        let Some(source) = query.source(Walked::ByOne)? else { return Ok(0) };
        let keys = over(py, &TableRef::new(table), source, CollectKeys)?;
        let core = this.core();
        let (mut done, mut pace) = (0, Pace::new(is_interrupted));
        for start in (0..keys.len()).step_by(BATCH) {
            let batch = start..keys.len().min(start + BATCH);
            let broken = core.in_running(py, |transaction| {
                let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(None) };
                for key in keys.some(batch.clone()) {
                    match work(transaction, id, key)? {
                        // A row that a filter deleted meanwhile does not count, and one without a
                        // new value neither.
                        Ok(is_done) => done += u64::from(is_done),
                        Err(error) => return Ok(Some(Broken::Row(key, error))),
                    }
                    if let Err(fault) = pace.step() {
                        return Ok(Some(Broken::Off(fault)));
                    }
                }
                Ok(None)
            })?;
            match broken {
                None => {}
                Some(Broken::Off(fault)) => return Err(of_fault(py, &TableRef::new(table), fault)),
                Some(Broken::Row(key, Unfit::Corrupt(error))) => {
                    return Err(row_errors::corrupt_key(py, &this.name(py), key.code, &error));
                }
                Some(Broken::Row(key, Unfit::Patch(why, is_too_large))) => {
                    let shown = crate::values::keys::object_of(py, key.code, key.spelling)?.repr()?;
                    let message = format!(
                        "record {shown} of table {:?} cannot be changed: {why}; nothing was changed in any row",
                        this.name(py)
                    );
                    return Err(if is_too_large {
                        errors::raise(py, "RecordTooLarge", message)
                    } else {
                        errors::value_error(message)
                    });
                }
            }
            core.learn_uncommitted(py);
            after(&keys, batch)?;
        }
        Ok(done)
    })
}

/// Why a row cannot be changed.
enum Unfit {
    /// It is damaged.
    Corrupt(Corrupt),
    /// A field cannot be set; the text says why. True if the new value would pass a limit.
    Patch(String, bool),
}

/// The message that says why the field at a path cannot be set.
fn why(py: Python<'_>, path: Option<&Vec<OwnedStep>>, error: &PatchError) -> String {
    let path = path.map(Vec::as_slice).unwrap_or_default();
    let shown = |count: usize| match path.get(..count) {
        None | Some([]) => "the record".to_owned(),
        Some(path) => {
            let step = |step: &OwnedStep| expression::Step::from(step.clone());
            shown(py, &Node_::field(path.iter().map(step).collect()))
        }
    };
    let step = |index: usize| match path.get(index) {
        Some(OwnedStep::Field(name)) => format!("a field {name:?}"),
        Some(OwnedStep::Index(index)) => format!("an element or key {index}"),
        _ => "such a key".to_owned(),
    };
    match *error {
        PatchError::NoSuchField { step: index } => format!(
            "there is no {0} in it, in which to set {1}; set it as a whole, or choose the rows that have it, where({0}.exists())",
            shown(index + 1),
            step(index + 1)
        ),
        PatchError::IndexOutOfRange { step: index, count } => format!(
            "{} has {}, and {} leads to none",
            shown(index),
            errors::counted(count as usize, "element"),
            shown(index + 1)
        ),
        PatchError::NotAContainer { step: index } => {
            format!("{} is nothing that has {}; set it as a whole", shown(index), step(index))
        }
        PatchError::Immutable { step: index } => {
            format!("{} is a tuple or a set, which do not change; set it as a whole", shown(index))
        }
        ref other => other.to_string(),
    }
}

/// Why not all rows were changed.
enum Broken<'a> {
    /// This row cannot be changed.
    Row(KeyOf<'a>, Unfit),
    /// A stop, or a failure of the walk.
    Off(Fault),
}

/// Rows between two calls of `learn_uncommitted` and `check_class`.
const BATCH: usize = 4096;

/// The keys of rows, one after another in one buffer: an allocation for each would be most of the
/// time that it takes to find them.
#[derive(Default)]
struct Keys {
    bytes: Vec<u8>,
    /// Where the code of each key ends, and where its spelling ends.
    ends: Vec<(usize, usize)>,
}

/// One key of the list.
#[derive(Clone, Copy)]
struct KeyOf<'a> {
    code: &'a [u8],
    spelling: &'a [u8],
}

impl Keys {
    fn push(&mut self, row: &Row<'_>) {
        self.bytes.extend_from_slice(row.key);
        let code_end = self.bytes.len();
        self.bytes.extend_from_slice(row.spelling);
        self.ends.push((code_end, self.bytes.len()));
    }

    fn len(&self) -> usize {
        self.ends.len()
    }

    fn some(&self, some: Range<usize>) -> impl Iterator<Item = KeyOf<'_>> {
        let before = some.start.checked_sub(1).and_then(|last| self.ends.get(last));
        let mut start = before.map_or(0, |(_, end)| *end);
        self.ends.get(some).unwrap_or_default().iter().map(move |(code_end, end)| {
            let code = self.bytes.get(start..*code_end).unwrap_or_default();
            let spelling = self.bytes.get(*code_end..*end).unwrap_or_default();
            start = *end;
            KeyOf { code, spelling }
        })
    }
}

struct CollectKeys;

impl Work for CollectKeys {
    type Result = Keys;

    fn run<S: Shapes>(self, rows: &mut impl Walk, _shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let mut keys = Keys::default();
        for_each::<()>(rows, stop.check(), |row| {
            keys.push(&row);
            ControlFlow::Continue(())
        })?;
        Ok(keys)
    }
}

/// Shapes, without access to large values, which cannot be read at this point.
struct Beside<'a, S: ?Sized>(&'a S);

impl<S: Shapes + ?Sized> Shapes for Beside<'_, S> {
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.0.shape(id)
    }

    fn overflow(&self, _overflow: &Overflow) -> Result<Option<&[u8]>, Corrupt> {
        Err(Corrupt::new(Damage::Overflow, 0))
    }
}

impl Edits<'_> {
    fn change_row(
        &mut self,
        who: (Python<'_>, &Core),
        transaction: &mut Transaction,
        id: TableId,
        key: KeyOf<'_>,
    ) -> Done {
        let Self { paths, values, record, before, .. } = self;
        // This is cleared when the closure is called. If it is not called, the record is not in the
        // expected state, and `patch_row` reports why.
        let mut is_rest = true;
        let mut is_set = false;
        let mut outcome = Ok(());
        // The fast path: all changes at once, if each is a scalar that fits its slot.
        let found = transaction.rewrite_within(id, key.code, 0, record, |record, shapes| {
            is_rest = false;
            before.clear();
            before.extend_from_slice(record);
            let row = Row { key: key.code, spelling: key.spelling, record: before };
            for (path, value) in paths.iter().zip(values.iter_mut()) {
                let slot = match value {
                    NewValue::Column(column) => match column.read(&row, &Beside(shapes)) {
                        Ok(Some((slot, _))) => Ok(Some(slot)),
                        Ok(None) => continue,
                        // The expression needs a large value, which `patch_row` can read.
                        Err(error) if error.damage == Damage::Overflow => Ok(None),
                        Err(error) => Err(error),
                    },
                    NewValue::Constant(constant) => constant.scalar(shapes),
                };
                let slot = match slot {
                    Ok(Some(slot)) if !is_for_overflow(&slot) => slot,
                    Ok(_) => {
                        is_rest = true;
                        return Ok(false);
                    }
                    Err(error) => {
                        outcome = Err(PatchError::Corrupt(error));
                        return Ok::<bool, PatchError>(false);
                    }
                };
                if patch::overwrite(record, shapes, path, &slot) != Ok(true) {
                    is_rest = true;
                    return Ok(false);
                }
                is_set = true;
            }
            Ok(is_set)
        })?;
        if found.is_none() || !is_rest {
            return Ok(outcome.map(|()| found.is_some() && is_set));
        }
        self.patch_row(who, transaction, id, key)
    }

    /// Changes a row whose new values do not fit where the old ones stand.
    fn patch_row(
        &mut self,
        who: (Python<'_>, &Core),
        transaction: &mut Transaction,
        id: TableId,
        key: KeyOf<'_>,
    ) -> Done {
        let Some(cell) = transaction.get(id, key.code)? else { return Ok(Ok(false)) };
        self.before.clear();
        self.before.extend_from_slice(&cell.record);
        let row = Row { key: key.code, spelling: key.spelling, record: &self.before };
        let mut records = Vec::with_capacity(self.values.len());
        for value in &mut self.values {
            records.push(match value {
                NewValue::Constant(constant) => Some(constant.resolve_ids(who, transaction, id)?),
                NewValue::Column(column) => {
                    let overflow_reader = transaction.overflow_reader();
                    match column.value(&row, &overflow_reader) {
                        Ok(None) => None,
                        Ok(Some(value)) => {
                            let mut blobs = Vec::new();
                            let value = to_overflow(value, transaction, &mut blobs)?;
                            match encode_value(&value, &mut NoShapes) {
                                Ok(record) => Some((record, blobs)),
                                Err(error) => return Ok(Err(PatchError::Encode(error))),
                            }
                        }
                        Err(error) => return Ok(Err(PatchError::Corrupt(error))),
                    }
                }
            });
        }
        let is_set = records.iter().any(Option::is_some);
        for (index, (path, record)) in self.paths.iter().zip(records).enumerate() {
            let Some((record, blobs)) = record else { continue };
            let patched = transaction.patch(id, key.code, path, Change::Set(&record), &blobs)?;
            if let Some(Err(error)) = patched {
                self.failed = index;
                return Ok(Err(error));
            }
        }
        Ok(Ok(is_set))
    }
}
