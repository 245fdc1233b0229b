//! Sets fields of rows to constants and to values computed from the row.
//!
//! New values are computed from the row as it was. A scalar that fits its slot is written over the
//! old one; any other change of a row is one write of it, too.

use std::borrow::Cow;

use pellucid_query::Column;
use pellucid_query::expression::{self, Expression as Node_};
use pellucid_record::layout::tag;
use pellucid_record::patch::{self, Change, PatchError, ShapeBook};
use pellucid_record::path::{OwnedStep, Step};
use pellucid_record::payload::Overflow;
use pellucid_record::value::{NoShapes, ndarray_payload};
use pellucid_record::view::{Root, Slot, root};
use pellucid_record::{Corrupt, Damage, Shape, Shapes, Value, encode_value};
use pellucid_store::{BLOB_ADDRESS_REMAINDER, PathChange, Row, StoreError, TableId, Transaction};
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyFunction};

use crate::core::Core;
use crate::errors;
use crate::expression::handle::{Expression, shown};
use crate::expression::operand;
use crate::put::write;
use crate::table::handle::Table;
use crate::values::encode::{Encoded, OVERFLOW_SIZE_MIN};
use crate::values::keys;
use crate::values::row_errors;

/// The paths of fields, and the new value of each.
type Parsed = (Vec<Vec<OwnedStep>>, Vec<NewValue>);

/// Reads pairs of a path and a new value, and encodes the values.
pub(super) fn parsed<'py>(
    table: &Bound<'py, Table>,
    changes: impl Iterator<Item = (Bound<'py, PyAny>, Bound<'py, PyAny>)>,
) -> PyResult<Parsed> {
    let (mut paths, mut values) = (Vec::new(), Vec::new());
    for (place, value) in changes {
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
    let names = paths.iter().filter_map(|path| match path.first() {
        Some(OwnedStep::Field(name)) => Some(&**name),
        _ => None,
    });
    table.get().check_fields(table.py(), "update", names)?;
    Ok((paths, values))
}

/// Fields that are set in rows, and their new values.
pub(super) struct Edits<'a> {
    owned: &'a [Vec<OwnedStep>],
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
pub(super) enum NewValue {
    /// An expression, which is computed in each row.
    Column(Column),
    /// The same value in all rows.
    Constant(Constant),
}

/// A value, encoded once for all rows.
pub(super) struct Constant {
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
    pub(super) fn new(
        table: &Bound<'_, Table>,
        place: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<Self> {
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
    pub(super) fn resolve_ids(
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

/// The changed record; None if there is no such row.
type Changed = Result<Result<Option<Vec<u8>>, PatchError>, StoreError>;

/// Why a row cannot be changed.
pub(super) enum Unfit {
    /// It is damaged.
    Corrupt(Corrupt),
    /// A field cannot be set; the text says why. True if the new value would pass a limit.
    Patch(String, bool),
}

impl Unfit {
    /// The exception for the row with this key.
    pub(super) fn raised(self, table: &Bound<'_, Table>, key: KeyOf<'_>) -> PyErr {
        let (py, name) = (table.py(), table.get().name(table.py()));
        let (why, is_too_large) = match self {
            Self::Corrupt(error) => return row_errors::corrupt_key(py, &name, key.code, &error),
            Self::Patch(why, is_too_large) => (why, is_too_large),
        };
        let shown = match keys::object_of(py, key.code, key.spelling).and_then(|key| key.repr()) {
            Ok(shown) => shown,
            Err(error) => return error,
        };
        let message = format!(
            "record {shown} of table {name:?} cannot be changed: {why}; nothing was changed in any row"
        );
        if is_too_large { errors::raise(py, "RecordTooLarge", message) } else { errors::value_error(message) }
    }
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

/// The key of a row.
#[derive(Clone, Copy)]
pub(super) struct KeyOf<'a> {
    pub(super) code: &'a [u8],
    pub(super) spelling: &'a [u8],
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

impl<'a> Edits<'a> {
    /// Edits of these fields; there is a value for each path.
    pub(super) fn new(paths: &'a [Vec<OwnedStep>], values: Vec<NewValue>) -> Self {
        let borrowed = paths.iter().map(|path| path.iter().map(OwnedStep::borrowed).collect()).collect();
        Self { owned: paths, paths: borrowed, values, record: Vec::new(), before: Vec::new(), failed: 0 }
    }

    /// Gives the last field its value, in place of the one that it may have.
    pub(super) fn set_last(&mut self, value: NewValue) {
        self.values.truncate(self.paths.len().saturating_sub(1));
        self.values.push(value);
    }

    /// Why the row cannot be changed that was tried last.
    pub(super) fn unfit(&self, py: Python<'_>, error: &PatchError) -> Unfit {
        match error {
            PatchError::Corrupt(error) => Unfit::Corrupt(*error),
            error => {
                let is_too_large = matches!(error, PatchError::Encode(_));
                Unfit::Patch(why(py, self.owned.get(self.failed), error), is_too_large)
            }
        }
    }

    /// Changes a row; returns whether there is such a row, and a field was set in it.
    pub(super) fn change_row(
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
        let patched = self.patch_row(who, transaction, id, key, &[])?;
        Ok(patched.map(|record| record.is_some()))
    }

    /// The record after the change, with more changes `beside`. None if making it needs a
    /// transaction, or if it cannot be made.
    pub(super) fn patched(
        &mut self,
        code: &[u8],
        record: &[u8],
        book: &mut dyn ShapeBook,
        beside: &[PathChange<'_>],
    ) -> Option<Vec<u8>> {
        // Only a row whose key has no spelling is written without a transaction.
        let row = Row { key: code, spelling: &[], record };
        let mut values = Vec::with_capacity(self.values.len());
        for value in &mut self.values {
            values.push(match value {
                NewValue::Constant(constant) => {
                    let Encoded { encoder, pending, overflow, .. } = &constant.encoded;
                    let is_whole = pending.is_empty() && overflow.is_empty();
                    Some(is_whole.then(|| Cow::Borrowed(encoder.bytes()))?)
                }
                NewValue::Column(column) => match column.value(&row, &Beside(&*book)).ok()? {
                    Some(value) => {
                        let value = encode_value(&value, &mut NoShapes).ok()?;
                        Some(Cow::Owned((value.len() < OVERFLOW_SIZE_MIN).then_some(value)?))
                    }
                    None => None,
                },
            });
        }
        let set = self.paths.iter().zip(&values);
        let set = set.filter_map(|(path, value)| Some((&path[..], Change::Set(value.as_deref()?))));
        let mut record = record.to_vec();
        for (path, change) in set.chain(beside.iter().copied()) {
            if !patch::overwrite_by(&mut record, book, path, change).ok()? {
                record = patch::apply(&record, path, change, book).ok()?.record;
            }
        }
        Some(record)
    }

    /// Changes a row whose new values may not fit where the old ones stand; `beside` are more
    /// changes of it. Returns the changed record, or None if there is no such row or no change.
    pub(super) fn patch_row(
        &mut self,
        who: (Python<'_>, &Core),
        transaction: &mut Transaction,
        id: TableId,
        key: KeyOf<'_>,
        beside: &[PathChange<'_>],
    ) -> Changed {
        let Some(cell) = transaction.get(id, key.code)? else { return Ok(Ok(None)) };
        self.before.clear();
        self.before.extend_from_slice(&cell.record);
        let row = Row { key: key.code, spelling: key.spelling, record: &self.before };
        let mut records = Vec::with_capacity(self.values.len());
        let mut blobs = Vec::new();
        for value in &mut self.values {
            records.push(match value {
                NewValue::Constant(constant) => {
                    let (record, own) = constant.resolve_ids(who, transaction, id)?;
                    blobs.extend(own);
                    Some(record)
                }
                NewValue::Column(column) => {
                    let overflow_reader = transaction.overflow_reader();
                    match column.value(&row, &overflow_reader) {
                        Ok(None) => None,
                        Ok(Some(value)) => {
                            let value = to_overflow(value, transaction, &mut blobs)?;
                            match encode_value(&value, &mut NoShapes) {
                                Ok(record) => Some(record),
                                Err(error) => return Ok(Err(PatchError::Encode(error))),
                            }
                        }
                        Err(error) => return Ok(Err(PatchError::Corrupt(error))),
                    }
                }
            });
        }
        let set = self.paths.iter().zip(&records).enumerate();
        let set = set.filter_map(|(number, (path, record))| {
            record.as_ref().map(|record| (number, (&path[..], Change::Set(record))))
        });
        let (numbers, mut changes): (Vec<_>, Vec<_>) = set.unzip();
        changes.extend_from_slice(beside);
        if changes.is_empty() {
            return Ok(Ok(None));
        }
        let patched = transaction.patch_all(id, key.code, &changes, &blobs)?;
        Ok(patched.transpose().map(|patched| patched.map(|patched| patched.record)).map_err(
            |(number, error)| {
                self.failed = numbers.get(number).copied().unwrap_or(usize::MAX);
                error
            },
        ))
    }
}
