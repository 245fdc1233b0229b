//! The methods of `Record`: a stored dict with the interface of a dict.
//!
//! `Record` is a `MutableMapping` whose fields are read in place. The hot slots (`rec.age`,
//! `rec["age"]`) are in `field.rs`; this file has the rest of the mapping. Changes go to
//! `change.rs`.

use pellucid_record::layout::Kind;
use pellucid_record::path::OwnedStep;
use pellucid_record::view::{Container, Slot, Walker};
use pyo3::exceptions::{PyAttributeError, PyException, PyKeyError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};
use pyo3::{PyTraverseError, PyVisit};

use crate::errors;
use crate::hot::gil::GilValue;
use crate::hot::modules;
use crate::values::equal::is_plain;
use crate::values::handles::Record;
use crate::values::names::ShapeNames;
use crate::values::reading::{Held, Reading};
use crate::values::row::Row;
use crate::values::views::{DictItems, DictKeys, DictValues, Shows, Viewed};
use crate::values::{change, decode, field, notebook, path, row_errors};

/// The attribute names that are methods; all other names are fields. The list is frozen: a verb
/// that is added later becomes a function of the module, so that no release takes a field's name
/// away.
const METHODS: [&[u8]; 12] = [
    b"get",
    b"keys",
    b"items",
    b"values",
    b"pop",
    b"popitem",
    b"setdefault",
    b"update",
    b"clear",
    b"copy",
    b"to_dict",
    b"path",
];

/// Whether an attribute of this name is a method or a dunder, and not a field.
pub fn is_reserved(name: &[u8]) -> bool {
    METHODS.contains(&name) || (name.starts_with(b"__") && name.ends_with(b"__"))
}

/// The value of an item; None if there is no such key.
pub fn get_item<'py>(
    record: &Bound<'py, Record>,
    key: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = record.py();
    let node = &record.get().node;
    node.check_open(py)?;
    // Before the place is looked up, since the key's own code may change the record.
    let Some(step) = step_to(record, key)? else { return Ok(None) };
    let place = node.container(py)?;
    let reading = Reading::new(&node.row);
    match field::slot_at(py, &node.row, reading.bytes(), &place, &step)? {
        Some(slot) => decode::handle(record.as_any(), &reading, slot, || step).map(Some),
        None => Ok(None),
    }
}

/// The step to the field of a key, or to where it would be; None if no record can have such a key.
///
/// # Errors
/// As [`path::field_step`].
pub fn step_to(record: &Bound<'_, Record>, key: &Bound<'_, PyAny>) -> PyResult<Option<OwnedStep>> {
    let step = path::field_step(key)?;
    if is_plain(key) {
        return Ok(step);
    }
    let Some(as_stored) = path::step_as_stored(key)? else { return Ok(step) };
    let node = &record.get().node;
    let place = node.container(record.py())?;
    let reading = Reading::new(&node.row);
    let has = |step| -> PyResult<bool> {
        Ok(field::slot_at(record.py(), &node.row, reading.bytes(), &place, step)?.is_some())
    };
    match step {
        Some(step) if has(&step)? || !has(&as_stored)? => Ok(Some(step)),
        _ => Ok(Some(as_stored)),
    }
}

/// The whole record in plain dicts, lists and scalars.
pub fn to_dict<'py>(record: &Bound<'py, Record>) -> PyResult<Bound<'py, PyAny>> {
    let py = record.py();
    let node = &record.get().node;
    let place = node.container(py)?;
    decode::plain(py, &Reading::new(&node.row), &Slot::Container(place))
}

/// The keys of the fields that are present, in order.
pub fn keys<'py>(record: &Bound<'py, Record>) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let py = record.py();
    let node = &record.get().node;
    let place = node.container(py)?;
    let reading = Reading::new(&node.row);
    let names = names_of(py, reading.row(), &place)?;
    let (mut walker, mut keys) = (Walker::new(place), Vec::new());
    while let Some((key, _)) = next_field(py, &reading, names, &mut walker)? {
        keys.push(key);
    }
    Ok(keys)
}

/// How many fields are present.
pub fn len(record: &Bound<'_, Record>) -> PyResult<usize> {
    let py = record.py();
    let node = &record.get().node;
    let place = node.container(py)?;
    let mut count = 0;
    for index in 0..place.len() {
        let slot = if place.kind == Kind::Keyed { index * 2 + 1 } else { index };
        let slot = place
            .slot(node.row.bytes(), &*node.row.names, slot)
            .map_err(|error| row_errors::corrupt_row(py, &node.row, &error))?;
        count += usize::from(slot != Slot::Absent);
    }
    Ok(count)
}

#[pymethods]
impl Record {
    fn __len__(slf: &Bound<'_, Self>) -> PyResult<usize> {
        len(slf)
    }

    fn __contains__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        Ok(get_item(slf, key)?.is_some())
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        get_item(slf, key)?.ok_or_else(|| errors::missing(key))
    }

    fn __setitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        change::set_field(slf, key, value)
    }

    fn __delitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        change::delete_field(slf, key)
    }

    fn __setattr__(
        slf: &Bound<'_, Self>,
        name: &Bound<'_, PyString>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        refuse_reserved(name)?;
        change::set_field(slf, name.as_any(), value)
    }

    fn __delattr__(slf: &Bound<'_, Self>, name: &Bound<'_, PyString>) -> PyResult<()> {
        refuse_reserved(name)?;
        if get_item(slf, name.as_any())?.is_none() {
            return Err(row_errors::no_attribute(slf, name.as_ptr()));
        }
        change::delete_field(slf, name.as_any())
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Ok(PyList::new(slf.py(), keys(slf)?)?.try_iter()?.into_any())
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let mut keys = keys(slf)?;
        keys.reverse();
        Ok(PyList::new(slf.py(), keys)?.try_iter()?.into_any())
    }

    /// Return the value of a field, or `default` if there is no such field.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(get_item(slf, key)?.or(default).unwrap_or_else(|| slf.py().None().into_bound(slf.py())))
    }

    /// Return the field names as a live view.
    fn keys(slf: &Bound<'_, Self>) -> PyResult<Py<DictKeys>> {
        DictKeys::of(slf.py(), Fields(slf.clone().unbind()))
    }

    /// Return the values as a live view.
    fn values(slf: &Bound<'_, Self>) -> PyResult<Py<DictValues>> {
        DictValues::of(slf.py(), Fields(slf.clone().unbind()))
    }

    /// Return pairs of field name and value as a live view.
    fn items(slf: &Bound<'_, Self>) -> PyResult<Py<DictItems>> {
        DictItems::of(slf.py(), Fields(slf.clone().unbind()))
    }

    /// Remove a field and return its value in plain containers.
    #[pyo3(signature = (key, /, *default))]
    fn pop<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if default.len() > 1 {
            return Err(errors::type_error("pop() takes a key and at most one default"));
        }
        let Some(value) = get_item(slf, key)? else {
            return if default.is_empty() { Err(errors::missing(key)) } else { default.get_item(0) };
        };
        let value = detached(&value)?;
        change::delete_field(slf, key)?;
        Ok(value)
    }

    /// Remove the last field and return its name and value.
    fn popitem<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let Some(key) = keys(slf)?.pop() else {
            return Err(PyKeyError::new_err("popitem(): the record is empty"));
        };
        let value = Self::pop(slf, &key, &PyTuple::empty(slf.py()))?;
        Ok((key, value))
    }

    /// Return the value of a field; if there is none, set it to `default` first.
    #[pyo3(signature = (key, default=None, /))]
    fn setdefault<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(value) = get_item(slf, key)? {
            return Ok(value);
        }
        let none = slf.py().None().into_bound(slf.py());
        change::set_field(slf, key, default.unwrap_or(&none))?;
        Self::__getitem__(slf, key)
    }

    /// Set several fields in one commit, from a mapping, from pairs, or by keyword.
    #[pyo3(signature = (other=None, /, **fields))]
    fn update(
        slf: &Bound<'_, Self>,
        other: Option<&Bound<'_, PyAny>>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        let merged = PyDict::new(slf.py());
        if let Some(other) = other {
            if other.hasattr("keys")? {
                merged.call_method1("update", (other,))?;
            } else {
                merged.call_method1("update", (errors::pairs(other)?,))?;
            }
        }
        if let Some(fields) = fields {
            merged.update(fields.as_mapping())?;
        }
        change::update(slf, &merged)
    }

    /// Remove all fields.
    fn clear(slf: &Bound<'_, Self>) -> PyResult<()> {
        change::clear(slf.as_any(), &slf.get().node)
    }

    /// Return a detached record with the same fields: changes stay in it until it is assigned to a
    /// key.
    fn copy<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        change::detached_copy(slf.as_any(), &slf.get().node)
    }

    fn __copy__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::copy(slf)
    }

    fn __deepcopy__<'py>(slf: &Bound<'py, Self>, _memo: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::copy(slf)
    }

    /// Return the whole record as plain dicts, lists and scalars.
    fn to_dict<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        to_dict(slf)
    }

    /// Return the value at a path such as `"address.city"` or `("address", "city")`, or `default`.
    #[pyo3(signature = (path, default=None, /))]
    fn path<'py>(
        slf: &Bound<'py, Self>,
        path: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let mut here = slf.clone().into_any();
        for step in path::parse(path)? {
            let next = if let Ok(record) = here.cast::<Record>() {
                get_item(record, &step)?
            } else {
                crate::values::record_list::step_into(&here, &step)?
            };
            match next {
                Some(next) => here = next,
                None => return Ok(default.unwrap_or_else(|| py.None().into_bound(py))),
            }
        }
        Ok(here)
    }

    fn __eq__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let other = match other.cast::<Record>() {
            Ok(other) => to_dict(other)?,
            Err(_) if other.is_instance(modules::abstract_classes(py)?.getattr("Mapping")?.as_any())? => {
                py.get_type::<PyDict>().call1((other,))?
            }
            Err(_) => return Ok(py.NotImplemented().into_bound(py)),
        };
        Ok(to_dict(slf)?.eq(other)?.into_pyobject(py)?.to_owned().into_any())
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        notebook::meet_pprint(slf.py())?;
        let text = decode::brief_text(slf.py(), &slf.get().node);
        errors::shown(slf.py(), "Record", text)
    }

    fn __or__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        union(&to_dict(slf)?, other)
    }

    fn __ror__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        match other.cast::<PyDict>() {
            Ok(_) => union(&other.call_method0("copy")?, &to_dict(slf)?),
            Err(_) => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    fn __ior__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::update(slf, Some(other), None)
    }

    fn __dir__(slf: &Bound<'_, Self>) -> PyResult<Vec<String>> {
        let py = slf.py();
        let mut names: Vec<String> = py
            .get_type::<pyo3::types::PyAny>()
            .call_method1("__dir__", (slf,))?
            .extract::<Vec<String>>()
            .unwrap_or_default();
        names.extend(METHODS.iter().map(|name| String::from_utf8_lossy(name).into_owned()));
        match keys(slf) {
            Ok(keys) => names.extend(keys.iter().filter_map(|key| key.extract().ok())),
            // A stale record has its methods alone.
            Err(error) if error.is_instance_of::<PyException>(py) => {}
            Err(error) => return Err(error),
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        PyTuple::new(py, [py.get_type::<PyDict>().into_any(), PyTuple::new(py, [to_dict(slf)?])?.into_any()])
    }
}

/// The fields of a record, for its views.
struct Fields(Py<Record>);

impl Viewed for Fields {
    fn object(&self) -> &Py<PyAny> {
        self.0.as_any()
    }

    fn len(&self, py: Python<'_>) -> PyResult<usize> {
        len(self.0.bind(py))
    }

    fn iterate<'py>(&self, py: Python<'py>, shows: Shows, reverse: bool) -> PyResult<Bound<'py, PyAny>> {
        let record = self.0.bind(py);
        if shows != Shows::Keys && !reverse {
            return Ok(Bound::new(py, FieldIterator::new(record, shows)?)?.into_any());
        }
        let list = match shows {
            Shows::Keys => PyList::new(py, keys(record)?)?,
            _ => PyList::new(py, FieldIterator::new(record, shows)?.rest(py)?)?,
        };
        if reverse {
            list.reverse()?;
        }
        Ok(list.try_iter()?.into_any())
    }

    fn get<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        get_item(self.0.bind(py), key)
    }
}

/// An iterator over the values or items of a record. It shows the state of the record at its start.
#[pyclass(frozen, module = "pellucid", name = "FieldIterator")]
struct FieldIterator {
    record: Py<Record>,
    held: Held,
    /// What comes next; None after the end.
    next: GilValue<Option<Walker>>,
    shows: Shows,
}

impl FieldIterator {
    /// An iterator over the current state of `record`.
    fn new(record: &Bound<'_, Record>, shows: Shows) -> PyResult<Self> {
        let node = &record.get().node;
        let walker = Walker::new(node.container(record.py())?);
        Ok(Self {
            record: record.clone().unbind(),
            held: Held::new(&node.row),
            next: GilValue::new(Some(walker)),
            shows,
        })
    }

    /// Everything that is left.
    fn rest<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let mut elements = Vec::new();
        while let Some(element) = self.element(py)? {
            elements.push(element);
        }
        Ok(elements)
    }

    fn element<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(mut walker) = self.next.get() else { return Ok(None) };
        let record = self.record.bind(py);
        record.get().node.check_open(py)?;
        let reading = self.held.reading();
        let names = names_of(py, reading.row(), walker.container())?;
        let Some((key, slot)) = next_field(py, &reading, names, &mut walker)? else {
            self.next.set(None);
            return Ok(None);
        };
        // What makes a value may run Python code, which may ask for the next one.
        self.next.set(Some(walker));
        let step = if key.is_exact_instance_of::<PyString>() { None } else { path::step_as_stored(&key)? };
        let name = || OwnedStep::Field(key.extract::<&str>().unwrap_or_default().into());
        let value = decode::handle(record.as_any(), &reading, slot, || step.unwrap_or_else(name))?;
        Ok(Some(match self.shows {
            Shows::Values => value,
            _ => PyTuple::new(py, [key, value])?.into_any(),
        }))
    }
}

/// The names of a dict's fields; None if it has its keys in its own bytes.
pub fn names_of<'r>(py: Python<'_>, row: &'r Row, place: &Container) -> PyResult<Option<&'r ShapeNames>> {
    if place.kind != Kind::Shaped {
        return Ok(None);
    }
    let found = row.names.named(py, place.shape);
    found.map(Some).ok_or_else(|| errors::corrupt_record(py, "the record's shape is unknown".to_owned()))
}

/// The key and the slot of the next field that is present.
pub fn next_field<'py, 'r>(
    py: Python<'py>,
    reading: &'r Reading<'_>,
    names: Option<&ShapeNames>,
    walker: &mut Walker,
) -> PyResult<Option<(Bound<'py, PyAny>, Slot<'r>)>> {
    let (row, bytes) = (reading.row(), reading.bytes());
    // No two values may share bytes, so copies of all of them take no more than the record does.
    let step = |walker: &mut Walker| {
        walker.next_bounded(bytes, &*row.names).map_err(|error| row_errors::corrupt_row(py, row, &error))
    };
    loop {
        let index = walker.index();
        let Some(first) = step(walker)? else { return Ok(None) };
        let Some(names) = names else {
            let Some(slot) = step(walker)? else { return Ok(None) };
            if slot != Slot::Absent {
                return Ok(Some((hashable(decode::plain(py, reading, &first)?, &first, row)?, slot)));
            }
            continue;
        };
        let Some(name) = names.shape.name(index) else { return Ok(None) };
        if first != Slot::Absent {
            return Ok(Some((PyString::intern(py, name).into_any(), first)));
        }
    }
}

/// A key, which has a hash where it was written from a dict: a dict of the record would need it.
fn hashable<'py>(key: Bound<'py, PyAny>, slot: &Slot<'_>, row: &Row) -> PyResult<Bound<'py, PyAny>> {
    if let Slot::Container(_) | Slot::Heap { .. } = slot
        && let Err(error) = key.hash()
    {
        return Err(decode::unhashable(key.py(), row, error));
    }
    Ok(key)
}

#[pymethods]
impl FieldIterator {
    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.record)
    }

    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.element(py)
    }
}

fn union<'py>(left: &Bound<'py, PyAny>, right: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    let py = left.py();
    let right = match right.cast::<Record>() {
        Ok(record) => to_dict(record)?,
        Err(_) if right.cast::<PyDict>().is_ok() => right.clone(),
        Err(_) => return Ok(py.NotImplemented().into_bound(py)),
    };
    left.bitor(right)
}

/// Converts a handle to plain containers: the row that `pop` removed no longer stores the value.
pub fn detached<'py>(value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
    if let Ok(record) = value.cast::<Record>() {
        return to_dict(record);
    }
    if let Ok(list) = value.cast::<crate::values::handles::RecordList>() {
        return crate::values::record_list::to_list(list);
    }
    if let Ok(tuple) = value.cast_exact::<PyTuple>() {
        let elements: Vec<_> = tuple.iter().map(|element| detached(&element)).collect::<PyResult<_>>()?;
        return Ok(PyTuple::new(value.py(), elements)?.into_any());
    }
    Ok(value.clone())
}

fn refuse_reserved(name: &Bound<'_, PyString>) -> PyResult<()> {
    let name = name.to_str().unwrap_or_default();
    if is_reserved(name.as_bytes()) {
        return Err(PyAttributeError::new_err(format!(
            "rec.{name} is a method and cannot be set; for a field of that name write rec[{name:?}] = ..."
        )));
    }
    Ok(())
}
