//! Save a change of a part of a record.
//!
//! A change is a path and an action at its end. An attached record hands the change to its table,
//! which applies it to the record as it is stored *now*, so that changes by other processes and
//! threads to other fields are kept; the handle then shows the result. A detached record applies
//! the change to its own bytes. A scalar that fits the slot of the old one overwrites it in place,
//! and no encoder runs.

use pellucid_record::error::Corrupt;
use pellucid_record::patch::{self, Change, PatchError, ShapeBook};
use pellucid_record::path::OwnedStep;
use pellucid_record::shape::{Shape, Shapes};
use pellucid_record::view::{Root, Slot};
use pyo3::exceptions::{PyIndexError, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyString};

use crate::counters;
use crate::errors;
use crate::hot::text;
use crate::values::bytes::{self, Values};
use crate::values::encode::OVERFLOW_SIZE_MIN;
use crate::values::handles::Record;
use crate::values::names::{Names, Source};
use crate::values::node::{Node, is_dict};
use crate::values::row::Row;
use crate::values::{path, record, row_errors};

/// The action at the end of a path; values are indexes into the encoded values beside it.
#[derive(Clone, Copy)]
pub enum Action {
    /// Set the field or element to the first value.
    Set,
    /// Delete the field or element.
    Delete,
    /// Insert the first value into a list before this index.
    Insert(i64),
    /// Append all values to a list.
    Append,
    /// Replace these elements of a list by all values.
    Splice(i64, i64),
    /// Remove all fields or elements.
    Clear,
}

/// One change that can be applied to any number of records: the path and the action. The encoded
/// values are kept apart.
#[derive(Clone)]
pub struct Edit {
    /// The path from the root of the record.
    pub path: Vec<OwnedStep>,
    /// The action at its end.
    pub action: Action,
    /// How many of the steps lead to the handle that the change was made through.
    pub depth: usize,
    /// Whether that handle is a dict and not a list.
    pub is_dict: bool,
}

/// Whether a change through a handle still applies to the place that the handle shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fit {
    /// It does.
    Fits,
    /// The place now holds a container of another kind: an int is an index in a list, but a key in
    /// a dict.
    OtherKind,
    /// The list at this many steps has changed, so that an index means another element.
    Moved(usize),
}

impl Edit {
    /// Whether the change means the same in `record` as in `shown`, which the handle was read from.
    /// Another writer may have replaced the container, or removed elements of a list ahead of the
    /// handle's place.
    pub fn fits<S: Shapes>(&self, record: &[u8], shown: &[u8], shapes: &S) -> Result<Fit, Corrupt> {
        let path = self.path.get(..self.depth).unwrap_or(&self.path);
        match borrowed(path, |steps| pellucid_record::path::resolve(record, shapes, steps))? {
            Some(Root::Container(place)) if is_dict(place.kind) != self.is_dict => return Ok(Fit::OtherKind),
            // Applying the change will fail, and the error will name the step.
            _ => {}
        }
        if record == shown {
            return Ok(Fit::Fits);
        }
        for (depth, step) in self.path.iter().enumerate() {
            let reaches = match step {
                OwnedStep::Index(index) => *index + 1,
                OwnedStep::Field(_) | OwnedStep::Key(_) => 0,
            };
            if self.is_moved(record, shown, shapes, depth, reaches)? {
                return Ok(Fit::Moved(depth));
            }
        }
        let reaches = match self.action {
            Action::Insert(index) => index,
            Action::Splice(start, stop) => start.max(stop),
            Action::Set | Action::Delete | Action::Append | Action::Clear => 0,
        };
        let is_moved = self.is_moved(record, shown, shapes, self.path.len(), reaches)?;
        Ok(if is_moved { Fit::Moved(self.path.len()) } else { Fit::Fits })
    }

    /// Whether any of the first `reaches` elements of the list at this depth may have moved.
    fn is_moved<S: Shapes>(
        &self,
        record: &[u8],
        shown: &[u8],
        shapes: &S,
        depth: usize,
        reaches: i64,
    ) -> Result<bool, Corrupt> {
        if reaches == 0 {
            return Ok(false);
        }
        let path = self.path.get(..depth).unwrap_or(&self.path);
        let from = borrowed(path, |steps| patch::moved_from(shown, record, shapes, steps))?;
        Ok(from.is_some_and(|from| reaches < 0 || i64::from(from) < reaches))
    }

    /// Which elements move when the change is applied: the path of their list, and the first index.
    pub fn moves(&self) -> Option<(&[OwnedStep], i64)> {
        let (list, from) = match (self.action, self.path.split_last()) {
            (Action::Delete, Some((OwnedStep::Index(index), list))) => (list, *index),
            (Action::Insert(from) | Action::Splice(from, _), _) if !self.is_dict => (&*self.path, from),
            (Action::Clear, _) if !self.is_dict => (&*self.path, 0),
            _ => return None,
        };
        // A negative index counts from the end, so any element may move.
        Some((list, from.max(0)))
    }

    /// Runs `work` with the steps and the change in the types of the record crate.
    pub fn with<R>(
        &self,
        values: &[&[u8]],
        work: impl FnOnce(&[pellucid_record::path::Step<'_>], Change<'_>) -> R,
    ) -> R {
        let first = values.first().copied().unwrap_or_default();
        let change = match self.action {
            Action::Set => Change::Set(first),
            Action::Delete => Change::Delete,
            Action::Insert(index) => Change::Insert(index, first),
            Action::Append => Change::Append(values),
            Action::Splice(start, stop) => Change::Splice { start, stop, values },
            Action::Clear => Change::Clear,
        };
        borrowed(&self.path, |steps| work(steps, change))
    }
}

/// Runs `work` with the steps in the type of the record crate; up to four steps need no allocation.
fn borrowed<R>(path: &[OwnedStep], work: impl FnOnce(&[pellucid_record::path::Step<'_>]) -> R) -> R {
    let mut few = [pellucid_record::path::Step::Index(0); 4];
    if let Some(few) = few.get_mut(..path.len()) {
        for (place, step) in few.iter_mut().zip(path) {
            *place = step.borrowed();
        }
        return work(few);
    }
    work(&path.iter().map(OwnedStep::borrowed).collect::<Vec<_>>())
}

/// Does `action` at `step` from `node` (or at `node` itself) with these values, and saves it.
pub fn change(
    py: Python<'_>,
    node: &Node,
    step: Option<OwnedStep>,
    action: Action,
    values: &[Bound<'_, PyAny>],
) -> PyResult<()> {
    // This also fails if the place is gone, before anything is written.
    node.container(py)?;
    let row = &*node.row;
    if let Some(why) = row.frozen {
        return Err(errors::read_only(py, why));
    }
    let mut path = node.path(py)?;
    let depth = path.len();
    path.extend(step);
    let edit = Edit { path, action, depth, is_dict: node.is_dict };
    match &row.table {
        Some(table) => table.change(py, row, &edit, values),
        None => change_detached(py, row, &edit, values),
    }
}

/// The slot of a value that can overwrite another one without an encoder.
pub fn slot_of<'a>(action: Action, values: &'a [Bound<'_, PyAny>]) -> Option<Slot<'a>> {
    let (Action::Set, [value]) = (action, values) else { return None };
    if let Ok(value) = value.cast_exact::<PyInt>() {
        return text::small_int(value).map(Slot::Int);
    }
    if let Ok(value) = value.cast_exact::<PyFloat>() {
        return Some(Slot::Float(value.value()));
    }
    if let Ok(value) = value.cast_exact::<PyString>() {
        // What is stored outside of the record has an id that the store gives.
        return text::ascii(value).filter(|text| text.len() < OVERFLOW_SIZE_MIN).map(Slot::Str);
    }
    if let Ok(value) = value.cast_exact::<PyBool>() {
        return Some(Slot::Bool(value.is_true()));
    }
    if value.is_none() {
        return Some(Slot::None);
    }
    None
}

fn change_detached(py: Python<'_>, row: &Row, edit: &Edit, values: &[Bound<'_, PyAny>]) -> PyResult<()> {
    if let Some(slot) = slot_of(edit.action, values) {
        let is_written = row.with_own_bytes(py, |record| {
            edit.with(&[], |steps, _| patch::overwrite(record, &*row.names, steps, &slot))
        });
        match is_written {
            Ok(true) => {
                counters::slot_overwritten();
                return Ok(());
            }
            Ok(false) => {}
            Err(error) => return Err(of_patch(py, row, edit, &error)),
        }
    }
    let values = Values::for_own_shapes(py, &row.names, &row.policy(py), values)?;
    let bytes = values.bytes();
    let mut book = OwnBook { names: &row.names };
    match edit.with(&bytes, |steps, change| patch::apply(row.bytes(), steps, change, &mut book)) {
        Ok(patched) => {
            counters::containers_rebuilt(u64::from(patched.encoded));
            row.replace(py, &patched.record, edit.moves());
            Ok(())
        }
        Err(error) => Err(of_patch(py, row, edit, &error)),
    }
}

/// Names a value of a change for messages: `number` of `count`.
pub fn place_of_value(py: Python<'_>, row: &Row, edit: &Edit, count: usize, number: usize) -> String {
    let (path, record) = (path::show(py, &edit.path), row_errors::describe(py, row));
    let of_list = if path.is_empty() { record.clone() } else { format!("{path} of {record}") };
    let nth = if count > 1 { format!("value {number} (from 0)") } else { "the value".to_owned() };
    match edit.action {
        Action::Append => format!("{nth} to append to {of_list}"),
        Action::Insert(index) => format!("the value to insert at [{index}] of {of_list}"),
        Action::Splice(start, _) => {
            format!("the value for {path}[{}] of {record}", start + number as i64)
        }
        _ => format!("the value for {of_list}"),
    }
}

/// The shapes of a detached record: its own tables, to which it may add.
struct OwnBook<'a> {
    names: &'a Names,
}

impl Shapes for OwnBook<'_> {
    fn shape(&self, id: u32) -> Option<&Shape> {
        Shapes::shape(self.names, id)
    }
}

impl ShapeBook for OwnBook<'_> {
    fn shape_of(&mut self, names: &[&str], _is_root: bool) -> Option<u32> {
        let dictionary = self.names.source().dictionary();
        match self.names.source() {
            Source::Own(_) => {
                dictionary.find(names).or_else(|| dictionary.push(Shape::new(names).ok()?).ok())
            }
            // A detached record never has a database's shapes; if it had, it would not be allowed
            // to add any.
            Source::Store(..) => dictionary.find(names),
        }
    }
}

/// The exception for a change through a handle whose container was replaced by another value.
fn replaced(py: Python<'_>, row: &Row, edit: &Edit) -> PyErr {
    let place = path::show(py, edit.path.get(..edit.depth).unwrap_or_default());
    PyKeyError::new_err(format!(
        "{}{place} is no {} any more; read it again",
        row_errors::describe(py, row),
        if edit.is_dict { "dict" } else { "list" },
    ))
}

/// The exception for a change that does not fit the record any more.
pub fn of_fit(py: Python<'_>, row: &Row, edit: &Edit, fit: Fit) -> PyErr {
    match fit {
        Fit::Moved(depth) => row_errors::moved(py, row, edit.path.get(..depth).unwrap_or_default()),
        Fit::OtherKind | Fit::Fits => replaced(py, row, edit),
    }
}

/// The exception for a change that could not be applied.
pub fn of_patch(py: Python<'_>, row: &Row, edit: &Edit, error: &PatchError) -> PyErr {
    let place = path::show(py, &edit.path);
    // The path of the record itself is empty.
    let at = if place.is_empty() { String::new() } else { format!(" at {place}") };
    match error {
        PatchError::NoSuchField { .. } => {
            let is_last = matches!(error, PatchError::NoSuchField { step } if step + 1 == edit.path.len());
            match edit.path.last() {
                Some(OwnedStep::Field(name)) if is_last => PyKeyError::new_err(name.to_string()),
                _ => PyKeyError::new_err(format!(
                    "{place} of {} is no longer there",
                    row_errors::describe(py, row)
                )),
            }
        }
        PatchError::IndexOutOfRange { count, .. } => {
            PyIndexError::new_err(format!("{place} is out of the range of {count} elements"))
        }
        PatchError::Corrupt(error) => row_errors::corrupt_row(py, row, error),
        PatchError::Encode(error) => errors::raise(
            py,
            "RecordTooLarge",
            format!("{} cannot be changed{at}: {error}", row_errors::describe(py, row)),
        ),
        other => errors::type_error(format!(
            "{} cannot be changed{at}: {}",
            row_errors::describe(py, row),
            why_not_changed(py, edit, other)
        )),
    }
}

/// Says which part of the path is no longer a container, with the path as the user writes it.
fn why_not_changed(py: Python<'_>, edit: &Edit, error: &PatchError) -> String {
    let (PatchError::NotAContainer { step } | PatchError::Immutable { step }) = error else {
        return error.to_string();
    };
    let what = match path::show(py, edit.path.get(..*step).unwrap_or(&edit.path)) {
        root if root.is_empty() => "the record".to_owned(),
        place => format!("what is at {place}"),
    };
    match (error, edit.path.get(*step)) {
        (PatchError::Immutable { .. }, _) => {
            format!("{what} is a tuple or a set, which do not change; set all of it")
        }
        (_, Some(OwnedStep::Index(_))) => format!("{what} is no list any more; read it again"),
        (_, Some(_)) => format!("{what} is no dict any more; read it again"),
        (_, None) => {
            let kind = if edit.is_dict { "dict" } else { "list" };
            format!("{what} is no {kind} any more; read it again")
        }
    }
}

/// `rec[key] = value`.
pub fn set_field(
    record: &Bound<'_, Record>,
    key: &Bound<'_, PyAny>,
    value: &Bound<'_, PyAny>,
) -> PyResult<()> {
    let py = record.py();
    let Some(step) = record::step_to(record, key)? else {
        return Err(errors::raise(
            py,
            "UnsupportedValue",
            format!(
                "{} of type {} cannot be a key in {}; the keys of a dict in a record are str, int, float, bool, None, \
                 bytes, date, datetime, UUID, Decimal, and tuples of these",
                errors::brief(key),
                key.get_type().fully_qualified_name()?,
                row_errors::describe(py, &record.get().node.row)
            ),
        ));
    };
    change(py, &record.get().node, Some(step), Action::Set, std::slice::from_ref(value))
}

/// `del rec[key]`.
pub fn delete_field(record: &Bound<'_, Record>, key: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = record.py();
    if record::get_item(record, key)?.is_none() {
        return Err(errors::missing(key));
    }
    let Some(step) = record::step_to(record, key)? else { return Err(errors::missing(key)) };
    change(py, &record.get().node, Some(step), Action::Delete, &[])
}

/// Removes everything from a dict or list.
pub fn clear(handle: &Bound<'_, PyAny>, node: &Node) -> PyResult<()> {
    change(handle.py(), node, None, Action::Clear, &[])
}

/// Sets several fields in one commit.
pub fn update(record: &Bound<'_, Record>, fields: &Bound<'_, PyDict>) -> PyResult<()> {
    let py = record.py();
    let mut set_all = || -> PyResult<()> {
        for (key, value) in fields {
            set_field(record, &key, &value)?;
        }
        Ok(())
    };
    match &record.get().node.row.table {
        Some(table) if fields.len() > 1 => {
            let table = table.clone_ref(py);
            table.within_transaction(py, &mut set_all)
        }
        _ => set_all(),
    }
}

/// A detached handle on a copy of the value at `node`.
pub fn detached_copy<'py>(handle: &Bound<'py, PyAny>, node: &Node) -> PyResult<Bound<'py, PyAny>> {
    let py = handle.py();
    let sealed = bytes::sealed(node, py)?;
    bytes::detached_handle(py, sealed.as_bytes(), node.row.policy(py))
}
