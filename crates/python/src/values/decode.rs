//! How do record bytes become Python objects?
//!
//! Two ways. A *handle* is what an access gives: scalars are made, a dict becomes a `Record` and a
//! list a `RecordList` that have decoded nothing yet. A *plain* value is what `loads`, `to_dict` and
//! `copy` give: everything is made, linear in the size of the bytes, since each heap entry must
//! begin at or behind the end of the one before.
#![allow(unsafe_code)]

use pellucid_record::encode::Simple;
use pellucid_record::error::{Corrupt, Damage};
use pellucid_record::layout::{DEPTH_MAX, Kind, tag};
use pellucid_record::view::{Container, Slot, Walker};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::counters;
use crate::errors;
use crate::hot::gil::GilRc;
use crate::hot::{callbacks, small, text};
use crate::values::handles::{Record, RecordList};
use crate::values::names::ShapeNames;
use crate::values::node::{Node, Step};
use crate::values::reading::Reading;
use crate::values::row::Row;
use crate::values::{alloc, row_errors, scalars};

/// Elements of a set, or keys of a dict, that are added before signals are looked at.
const ADDED_BETWEEN_SIGNALS: u32 = 64;

/// What an access to `slot` gives. `step` is how to get there from `parent`.
pub fn handle<'py>(
    parent: &Bound<'py, PyAny>,
    reading: &Reading<'_>,
    slot: Slot<'_>,
    step: impl FnOnce() -> Step,
) -> PyResult<Bound<'py, PyAny>> {
    let py = parent.py();
    counters::field_decoded();
    let Slot::Container(place) = slot else { return scalar(py, reading, slot) };
    match place.kind {
        Kind::Shaped | Kind::Keyed => {
            let node = Node::child(reading, parent, step(), place)?;
            Ok(alloc::new_handle::<Record>(py, node)?.into_any())
        }
        Kind::List | Kind::PackedInts | Kind::PackedFloats => {
            let node = Node::child(reading, parent, step(), place)?;
            Ok(alloc::new_handle::<RecordList>(py, node)?.into_any())
        }
        Kind::Tuple => tuple_of_handles(parent, reading, &place, step()),
        Kind::Set | Kind::FrozenSet => plain(py, reading, &Slot::Container(place)),
    }
}

/// A tuple cannot change, but a list in it can: its elements are handles as well.
fn tuple_of_handles<'py>(
    parent: &Bound<'py, PyAny>,
    reading: &Reading<'_>,
    place: &Container,
    step: Step,
) -> PyResult<Bound<'py, PyAny>> {
    let py = parent.py();
    let has_containers = (0..place.len()).any(|index| {
        matches!(place.slot(reading.bytes(), &*reading.row().names, index), Ok(Slot::Container(_)))
    });
    if !has_containers {
        return plain(py, reading, &Slot::Container(*place));
    }
    // The tuple's own handle is what its elements' paths lead through.
    let through = alloc::new_handle::<RecordList>(py, Node::child(reading, parent, step, *place)?)?;
    tuple_handles(through.as_any(), reading, place)
}

/// The elements of the tuple that `through` stands for, as handles.
pub fn tuple_handles<'py>(
    through: &Bound<'py, PyAny>,
    reading: &Reading<'_>,
    place: &Container,
) -> PyResult<Bound<'py, PyAny>> {
    let py = through.py();
    let elements = element_handles(through, reading, place, 0..place.len())?;
    Ok(pyo3::types::PyTuple::new(py, elements)?.into_any())
}

/// Some elements of the list or tuple that `through` stands for, as handles, all of one state of the row. `indexes` rise, or
/// they fall.
///
/// The container is walked, and no two elements share bytes: tuples in tuples are made at once, and of a few hostile
/// bytes, in which each tuple stood twice in the one around it, there were 2^64 of them.
pub fn element_handles<'py>(
    through: &Bound<'py, PyAny>,
    reading: &Reading<'_>,
    place: &Container,
    indexes: impl Iterator<Item = u32>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let (py, row) = (through.py(), reading.row());
    // From here on changes are noted: what one element runs may move those whose handles are still to be made.
    row.has_element();
    let indexes: Vec<u32> = indexes.collect();
    let falls = indexes.first() > indexes.last();
    let mut rising = indexes.iter().copied();
    let mut wanted = if falls { rising.next_back() } else { rising.next() };
    let mut walker = Walker::at(*place, wanted.unwrap_or(place.count));
    let mut elements = Vec::with_capacity(indexes.len());
    while let Some(index) = wanted {
        let at = walker.index();
        let slot = walker.next_bounded(reading.bytes(), &*row.names);
        let Some(slot) = slot.map_err(|error| row_errors::corrupt_row(py, row, &error))? else { break };
        if at == index {
            elements.push(handle(through, reading, slot, || Step::Index(i64::from(index)))?);
            wanted = if falls { rising.next_back() } else { rising.next() };
        }
    }
    if falls {
        elements.reverse();
    }
    Ok(elements)
}

/// The object of a slot that holds no container.
fn scalar<'py>(py: Python<'py>, reading: &Reading<'_>, slot: Slot<'_>) -> PyResult<Bound<'py, PyAny>> {
    let decoder = Decoder::new(py, reading);
    let object = decoder.slot(&slot, 0)?;
    // SAFETY: a new reference, made above.
    Ok(unsafe { Bound::from_owned_ptr(py, object) })
}

/// The object of a slot that stands for itself; None where a row is needed to make it, or where there is no memory. Runs no
/// Python code: callers hold locks.
#[inline]
pub fn simple<'py>(py: Python<'py>, slot: &Slot<'_>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: these make new objects from plain values, with the GIL held.
    unsafe {
        let object = match *slot {
            Slot::Str(characters) if characters.is_ascii() => text::new_str(characters),
            // To refuse what is no text makes an exception, and that may wake the collector.
            Slot::Str(characters) if std::str::from_utf8(characters).is_err() => return None,
            Slot::Str(characters) => text::new_str(characters),
            Slot::Int(value) => small::new_int(value),
            Slot::Float(value) => ffi::PyFloat_FromDouble(value),
            Slot::None => new_reference(ffi::Py_None()),
            Slot::Bool(true) => new_reference(ffi::Py_True()),
            Slot::Bool(false) => new_reference(ffi::Py_False()),
            _ => return None,
        };
        if object.is_null() {
            // The row's own way says what is wrong with it.
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(py, object)
    }
}

/// The whole value of `slot`, in plain dicts, lists and so on.
pub fn plain<'py>(py: Python<'py>, reading: &Reading<'_>, slot: &Slot<'_>) -> PyResult<Bound<'py, PyAny>> {
    plain_at(py, reading, slot, 1)
}

/// As `plain`, within `depth` containers already.
pub fn plain_at<'py>(
    py: Python<'py>,
    reading: &Reading<'_>,
    slot: &Slot<'_>,
    depth: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let decoder = Decoder::new(py, reading);
    let object = decoder.slot(slot, depth)?;
    // SAFETY: a new reference, made above.
    Ok(unsafe { Bound::from_owned_ptr(py, object) })
}

/// Makes plain objects out of one row.
struct Decoder<'a, 'py> {
    py: Python<'py>,
    reading: &'a Reading<'a>,
    row: &'a GilRc<Row>,
    /// What is being read: Python code that runs meanwhile may change the row, but not these.
    bytes: &'a [u8],
}

type Object = *mut ffi::PyObject;

/// A new reference that is released unless it is handed on.
struct Owned(Object);

impl Owned {
    fn into_raw(self) -> Object {
        let object = self.0;
        std::mem::forget(self);
        object
    }
}

impl Drop for Owned {
    fn drop(&mut self) {
        // SAFETY: owned, and dropped only within a decoder, which holds the GIL.
        unsafe { ffi::Py_DECREF(self.0) };
    }
}

/// The error of a key or an element that has no hash: nothing that was written from a dict or a set.
#[cold]
pub fn unhashable(py: Python<'_>, row: &Row, error: PyErr) -> PyErr {
    if !error.is_instance_of::<pyo3::exceptions::PyTypeError>(py) {
        return row_errors::undecodable(py, row, error);
    }
    let what = row_errors::describe(py, row);
    let wrapped = errors::corrupt_record(py, format!("{what} is damaged: {}", error.value(py)));
    wrapped.set_cause(py, Some(error));
    wrapped
}

impl<'a, 'py> Decoder<'a, 'py> {
    #[inline]
    fn new(py: Python<'py>, reading: &'a Reading<'a>) -> Self {
        Self { py, reading, row: reading.row(), bytes: reading.bytes() }
    }

    #[inline]
    fn own(&self, object: Object) -> PyResult<Object> {
        if object.is_null() { Err(self.failure()) } else { Ok(object) }
    }

    #[cold]
    fn failure(&self) -> PyErr {
        row_errors::undecodable(self.py, self.row, PyErr::fetch(self.py))
    }

    #[cold]
    fn unhashable(&self) -> PyErr {
        unhashable(self.py, self.row, PyErr::fetch(self.py))
    }

    /// A new object for what the slot holds; `depth` counts the containers around it.
    #[inline]
    fn slot(&self, slot: &Slot<'_>, depth: u32) -> PyResult<Object> {
        // SAFETY: these make new objects from plain values, with the GIL held.
        let object = unsafe {
            match *slot {
                Slot::Str(characters) => text::new_str(characters),
                Slot::Int(value) => small::new_int(value),
                Slot::Float(value) => ffi::PyFloat_FromDouble(value),
                Slot::Container(place) => return self.container(&place, depth).map(|(object, _)| object),
                Slot::None | Slot::Absent => new_reference(ffi::Py_None()),
                Slot::Bool(true) => new_reference(ffi::Py_True()),
                Slot::Bool(false) => new_reference(ffi::Py_False()),
                Slot::Heap { tag: tag::BYTES, payload, .. } => {
                    ffi::PyBytes_FromStringAndSize(payload.as_ptr().cast(), payload.len() as ffi::Py_ssize_t)
                }
                Slot::Date(_) | Slot::Datetime(_) | Slot::Heap { .. } => {
                    return Ok(scalars::decode(self.py, self.reading, slot, depth)?.into_ptr());
                }
            }
        };
        self.own(object)
    }

    /// A new object for a container, and where the container ends.
    fn container(&self, place: &Container, depth: u32) -> PyResult<(Object, u32)> {
        if depth > DEPTH_MAX {
            return Err(self.damage(&Corrupt::new(Damage::Depth, place.start as usize)));
        }
        let mut walker = Walker::new(*place);
        let object = match place.kind {
            Kind::Shaped => self.shaped(&mut walker, place, depth),
            Kind::Keyed => self.keyed(&mut walker, depth),
            Kind::List => self.list(&mut walker, place, depth),
            Kind::Tuple => self.tuple(&mut walker, place, depth),
            Kind::Set | Kind::FrozenSet => self.set(&mut walker, place, depth),
            Kind::PackedInts | Kind::PackedFloats => self.packed(place),
        }?;
        Ok((object, walker.end()))
    }

    #[cold]
    fn damage(&self, error: &Corrupt) -> PyErr {
        row_errors::corrupt_row(self.py, self.row, error)
    }

    /// The next element if it is a simple value; None, and nothing has been taken, where `next_any` is to be asked. Most of a
    /// large value is such elements: in the loops below they are made without a call of ours, or a result in memory.
    #[inline(always)]
    fn next_simple(&self, walker: &mut Walker) -> Option<PyResult<Object>> {
        let simple = walker.next_simple(self.bytes)?;
        // SAFETY: these make new objects from plain values, with the GIL held.
        let object = unsafe {
            match simple {
                Simple::Int(value) => small::new_int(value),
                Simple::Str(characters) => text::new_str(characters),
                Simple::Float(value) => ffi::PyFloat_FromDouble(value),
                Simple::Bool(true) => new_reference(ffi::Py_True()),
                Simple::Bool(false) => new_reference(ffi::Py_False()),
                Simple::None => new_reference(ffi::Py_None()),
            }
        };
        Some(self.own(object))
    }

    /// The next element; null where a field is absent, None behind the last.
    #[inline(always)]
    fn next(&self, walker: &mut Walker, depth: u32) -> PyResult<Option<Object>> {
        match self.next_simple(walker) {
            Some(object) => object.map(Some),
            None => self.next_any(walker, depth),
        }
    }

    #[inline(never)]
    fn next_any(&self, walker: &mut Walker, depth: u32) -> PyResult<Option<Object>> {
        let slot = match walker.next(self.bytes, &*self.row.names) {
            Ok(None) => return Ok(None),
            Ok(Some(Slot::Absent)) => return Ok(Some(std::ptr::null_mut())),
            Ok(Some(Slot::Container(place))) => {
                let (object, end) = self.container(&place, depth + 1)?;
                if let Err(error) = walker.consumed(end) {
                    drop(Owned(object));
                    return Err(self.damage(&error));
                }
                return Ok(Some(object));
            }
            Ok(Some(slot)) => slot,
            Err(error) => return Err(self.damage(&error)),
        };
        self.slot(&slot, depth).map(Some)
    }

    /// The next element of a container in which none may be absent.
    #[inline]
    fn next_present(&self, walker: &mut Walker, depth: u32) -> PyResult<Object> {
        match self.next(walker, depth)? {
            Some(object) if !object.is_null() => Ok(object),
            _ => Err(self.damage(&Corrupt::new(Damage::Absent, walker.end() as usize))),
        }
    }

    fn shaped(&self, walker: &mut Walker, place: &Container, depth: u32) -> PyResult<Object> {
        let Some(shape) = self.row.names.named(self.py, place.shape) else {
            return Err(self.damage(&Corrupt::new(Damage::UnknownShape, place.start as usize)));
        };
        self.fields(walker, shape, depth)
    }

    /// The dict of a shape whose slots `walker` is about to walk.
    #[inline(always)]
    fn fields(&self, walker: &mut Walker, shape: &ShapeNames, depth: u32) -> PyResult<Object> {
        // SAFETY: makes a new object.
        let dict = Owned(self.own(unsafe { ffi::PyDict_New() })?);
        for key in &shape.keys {
            let value = match self.next_simple(walker) {
                Some(value) => value?,
                None => match self.next_any(walker, depth)? {
                    None => break,
                    Some(value) if value.is_null() => continue,
                    Some(value) => value,
                },
            };
            let value = Owned(value);
            // SAFETY: a dict, a live str with a known hash, a live value; no code of users runs.
            if unsafe { ffi::PyDict_SetItem(dict.0, *key, value.0) } < 0 {
                return Err(self.failure());
            }
        }
        Ok(dict.into_raw())
    }

    /// The next element if it is a shaped dict, which is what most elements of long lists are; None, and nothing has been
    /// taken, where it is not. In one piece with the loop over the list: the place of a dict is never put together in
    /// memory, to be waited for (`view.rs`), which was a tenth of the time of a list of small dicts.
    #[inline(always)]
    fn next_dict(&self, walker: &mut Walker, depth: u32) -> Option<PyResult<Object>> {
        if depth >= DEPTH_MAX {
            return None;
        }
        let mut shape = None;
        let mut inner = walker.next_shaped(self.bytes, |id| {
            shape = self.row.names.met_as(self.py, id);
            shape.map(|shape| shape.keys.len() as u32)
        })?;
        let dict = match self.fields(&mut inner, shape?, depth + 1) {
            Ok(dict) => Owned(dict),
            Err(error) => return Some(Err(error)),
        };
        Some(match walker.consumed(inner.end()) {
            Ok(()) => Ok(dict.into_raw()),
            Err(error) => Err(self.damage(&error)),
        })
    }

    fn keyed(&self, walker: &mut Walker, depth: u32) -> PyResult<Object> {
        // SAFETY: makes a new object.
        let dict = Owned(self.own(unsafe { ffi::PyDict_New() })?);
        while let Some(key) = self.next(walker, depth)? {
            if key.is_null() {
                return Err(self.damage(&Corrupt::new(Damage::Absent, walker.end() as usize)));
            }
            let key = Owned(key);
            let Some(value) = self.next(walker, depth)? else { break };
            if value.is_null() {
                continue;
            }
            let value = Owned(value);
            // SAFETY: live objects; a key of a registered class may run its own `__hash__`.
            if unsafe { ffi::PyDict_SetItem(dict.0, key.0, value.0) } < 0 {
                return Err(self.unhashable());
            }
            self.added(walker.index() / 2)?;
        }
        Ok(dict.into_raw())
    }

    /// Looks at signals after some of the keys or elements that were added: if all have one hash, as the multiples of
    /// 2^61 - 1 have, CPython compares each with all before it.
    #[inline]
    fn added(&self, count: u32) -> PyResult<()> {
        if count.is_multiple_of(ADDED_BETWEEN_SIGNALS) { callbacks::check_signals(self.py) } else { Ok(()) }
    }

    fn list(&self, walker: &mut Walker, place: &Container, depth: u32) -> PyResult<Object> {
        // SAFETY: a list of empty places; each is filled below before anyone sees it, and a list
        // with empty places may be released.
        let list = Owned(self.own(unsafe { ffi::PyList_New(place.len() as ffi::Py_ssize_t) })?);
        for index in 0..place.len() {
            let value = match self.next_dict(walker, depth) {
                Some(dict) => dict?,
                None => self.next_present(walker, depth)?,
            };
            // SAFETY: the place is empty and in range; the reference is handed over.
            unsafe { ffi::PyList_SET_ITEM(list.0, index as ffi::Py_ssize_t, value) };
        }
        Ok(list.into_raw())
    }

    fn tuple(&self, walker: &mut Walker, place: &Container, depth: u32) -> PyResult<Object> {
        // SAFETY: as for `list`.
        let tuple = Owned(self.own(unsafe { ffi::PyTuple_New(place.len() as ffi::Py_ssize_t) })?);
        for index in 0..place.len() {
            let value = self.next_present(walker, depth)?;
            // SAFETY: the place is empty and in range; the reference is handed over.
            unsafe { ffi::PyTuple_SET_ITEM(tuple.0, index as ffi::Py_ssize_t, value) };
        }
        Ok(tuple.into_raw())
    }

    fn set(&self, walker: &mut Walker, place: &Container, depth: u32) -> PyResult<Object> {
        // SAFETY: makes a new object; a frozenset may be filled while no one else has it.
        let set = Owned(self.own(unsafe {
            if place.kind == Kind::Set {
                ffi::PySet_New(std::ptr::null_mut())
            } else {
                ffi::PyFrozenSet_New(std::ptr::null_mut())
            }
        })?);
        for _ in 0..place.len() {
            let value = Owned(self.next_present(walker, depth)?);
            // SAFETY: live objects.
            if unsafe { ffi::PySet_Add(set.0, value.0) } < 0 {
                return Err(self.unhashable());
            }
            self.added(walker.index())?;
        }
        Ok(set.into_raw())
    }

    fn packed(&self, place: &Container) -> PyResult<Object> {
        // SAFETY: as for `list`.
        let list = Owned(self.own(unsafe { ffi::PyList_New(place.len() as ffi::Py_ssize_t) })?);
        for index in 0..place.len() {
            let slot =
                place.slot(self.bytes, &*self.row.names, index).map_err(|error| self.damage(&error))?;
            let value = self.slot(&slot, 1)?;
            // SAFETY: the place is empty and in range; the reference is handed over.
            unsafe { ffi::PyList_SET_ITEM(list.0, index as ffi::Py_ssize_t, value) };
        }
        Ok(list.into_raw())
    }
}

#[inline]
unsafe fn new_reference(object: Object) -> Object {
    // SAFETY: the caller passes a live object, with the GIL held.
    unsafe { ffi::Py_INCREF(object) };
    object
}
