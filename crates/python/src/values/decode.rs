//! Decode record bytes into Python objects.
//!
//! There are two ways. An access returns a *handle*: scalars are decoded, a dict becomes a `Record`
//! and a list a `RecordList` that have decoded nothing yet. `loads`, `to_dict` and `copy` return a
//! *plain* value: everything is decoded. That is linear in the size of the bytes, since each heap
//! entry must begin at or after the end of the one before.
#![allow(unsafe_code)]

use pellucid_record::encode::Simple;
use pellucid_record::error::{Corrupt, Damage};
use pellucid_record::layout::{DEPTH_MAX, Kind, tag};
use pellucid_record::path::OwnedStep;
use pellucid_record::view::{Container, Slot, Walker};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::counters;
use crate::errors;
use crate::hot::gil::GilRc;
use crate::hot::{callbacks, small, text};
use crate::values::handles::{Record, RecordList};
use crate::values::names::ShapeNames;
use crate::values::node::Node;
use crate::values::reading::Reading;
use crate::values::row::Row;
use crate::values::{alloc, row_errors, scalars, shortened};

/// How many elements of a set, or keys of a dict, are added between two checks for signals.
const ADDED_BETWEEN_SIGNALS: u32 = 64;

/// The object that an access to `slot` returns. `step` leads to it from `parent`.
pub fn handle<'py>(
    parent: &Bound<'py, PyAny>,
    reading: &Reading<'_>,
    slot: Slot<'_>,
    step: impl FnOnce() -> OwnedStep,
) -> PyResult<Bound<'py, PyAny>> {
    let py = parent.py();
    counters::field_decoded();
    let Slot::Container(place) = slot else {
        return scalar(py, reading, slot).or_else(|error| unmade_field(parent, reading, slot, step(), error));
    };
    match place.kind {
        Kind::Shaped | Kind::Keyed => {
            let node = Node::child(reading, parent, step(), place)?;
            Ok(alloc::new_handle(py, Record { node })?.into_any())
        }
        Kind::List | Kind::PackedInts | Kind::PackedFloats => {
            let node = Node::child(reading, parent, step(), place)?;
            Ok(alloc::new_handle(py, RecordList { node })?.into_any())
        }
        Kind::Tuple => tuple_of_handles(parent, reading, &place, step()),
        Kind::Set | Kind::FrozenSet => plain(py, reading, &Slot::Container(place)),
    }
}

/// What a field raises that cannot be made.
#[cold]
fn unmade_field<'py>(
    parent: &Bound<'py, PyAny>,
    reading: &Reading<'_>,
    slot: Slot<'_>,
    step: OwnedStep,
    error: PyErr,
) -> PyResult<Bound<'py, PyAny>> {
    let py = parent.py();
    let mut path = crate::values::handles::node_of(parent)?.path(py)?;
    path.push(step);
    Err(scalars::unmade(py, reading, &slot, Some(crate::values::path::show(py, &path)), error))
}

/// A tuple cannot change, but a list in it can, so its elements are handles as well.
fn tuple_of_handles<'py>(
    parent: &Bound<'py, PyAny>,
    reading: &Reading<'_>,
    place: &Container,
    step: OwnedStep,
) -> PyResult<Bound<'py, PyAny>> {
    let py = parent.py();
    let has_containers = (0..place.len()).any(|index| {
        matches!(place.slot(reading.bytes(), &*reading.row().names, index), Ok(Slot::Container(_)))
    });
    if !has_containers {
        return plain(py, reading, &Slot::Container(*place));
    }
    // The paths of the elements lead through the tuple's own handle.
    let through = alloc::new_handle(py, RecordList { node: Node::child(reading, parent, step, *place)? })?;
    tuple_handles(through.as_any(), reading, place)
}

/// The tuple of handles on the elements of the tuple that `through` stands for.
pub fn tuple_handles<'py>(
    through: &Bound<'py, PyAny>,
    reading: &Reading<'_>,
    place: &Container,
) -> PyResult<Bound<'py, PyAny>> {
    let py = through.py();
    let elements = element_handles(through, reading, place, 0..place.len())?;
    Ok(pyo3::types::PyTuple::new(py, elements)?.into_any())
}

/// Handles on some elements of the list or tuple that `through` stands for, all from one state of
/// the row. `indexes` must be in rising or in falling order.
///
/// The container is walked, and no two elements may share bytes. Nested tuples are made at once, so
/// a few hostile bytes, in which each tuple stood twice in the one around it, would give 2^64 of
/// them.
pub fn element_handles<'py>(
    through: &Bound<'py, PyAny>,
    reading: &Reading<'_>,
    place: &Container,
    indexes: impl Iterator<Item = u32>,
) -> PyResult<Vec<Bound<'py, PyAny>>> {
    let (py, row) = (through.py(), reading.row());
    // From here on the row records changes: code that one element runs may move elements whose
    // handles do not exist yet.
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
            elements.push(handle(through, reading, slot, || OwnedStep::Index(i64::from(index)))?);
            wanted = if falls { rising.next_back() } else { rising.next() };
        }
    }
    if falls {
        elements.reverse();
    }
    Ok(elements)
}

/// The object of a slot that is not a container.
fn scalar<'py>(py: Python<'py>, reading: &Reading<'_>, slot: Slot<'_>) -> PyResult<Bound<'py, PyAny>> {
    let decoder = Decoder::<false>::new(py, reading);
    let object = decoder.slot(&slot, 0)?;
    // SAFETY: a new reference, made above.
    Ok(unsafe { Bound::from_owned_ptr(py, object) })
}

/// The object of a slot that needs no row to decode; None for other slots, or if there is no
/// memory. Runs no Python code, since callers hold locks.
#[inline]
pub fn simple<'py>(py: Python<'py>, slot: &Slot<'_>) -> Option<Bound<'py, PyAny>> {
    // SAFETY: these make new objects from plain values, with the GIL held.
    unsafe {
        let object = match *slot {
            Slot::Str(characters) if characters.is_ascii() => text::new_str(characters),
            // Refusing bytes that are not UTF-8 makes an exception, and that may start the
            // collector.
            Slot::Str(characters) if std::str::from_utf8(characters).is_err() => return None,
            Slot::Str(characters) => text::new_str(characters),
            Slot::Int(value) => small::new_int(value),
            Slot::Float(value) => ffi::PyFloat_FromDouble(value),
            Slot::None => new_reference(ffi::Py_None()),
            Slot::Bool(true) => new_reference(ffi::Py_True()),
            Slot::Bool(false) => new_reference(ffi::Py_False()),
            // A row would hold another copy of them.
            Slot::Heap { tag: tag::BYTES, payload, .. } => {
                ffi::PyBytes_FromStringAndSize(payload.as_ptr().cast(), payload.len() as ffi::Py_ssize_t)
            }
            _ => return None,
        };
        if object.is_null() {
            // The slow path through the row raises the right error.
            ffi::PyErr_Clear();
        }
        Bound::from_owned_ptr_or_opt(py, object)
    }
}

/// The whole value of `slot` in plain dicts, lists and scalars.
pub fn plain<'py>(py: Python<'py>, reading: &Reading<'_>, slot: &Slot<'_>) -> PyResult<Bound<'py, PyAny>> {
    plain_at(py, reading, slot, 1)
}

/// As `plain`, inside of `depth` containers.
pub fn plain_at<'py>(
    py: Python<'py>,
    reading: &Reading<'_>,
    slot: &Slot<'_>,
    depth: u32,
) -> PyResult<Bound<'py, PyAny>> {
    let decoder = Decoder::<false>::new(py, reading);
    let object = decoder.slot(slot, depth)?;
    // SAFETY: a new reference, made above.
    Ok(unsafe { Bound::from_owned_ptr(py, object) })
}

/// The text of `repr` for the dict or list at a place: that of its plain value, but a stand-in
/// takes the place of each long string, and of each large value, which is not read.
pub fn brief_text(py: Python<'_>, node: &Node) -> PyResult<String> {
    let place = node.container(py)?;
    let reading = Reading::new(&node.row);
    let decoder = Decoder::<true>::new(py, &reading);
    let object = decoder.slot(&Slot::Container(place), 1)?;
    // SAFETY: a new reference, made above.
    let value = unsafe { Bound::from_owned_ptr(py, object) };
    Ok(value.repr()?.to_string())
}

/// Makes plain objects from one row; with `BRIEF`, those that `repr` shows.
struct Decoder<'a, 'py, const BRIEF: bool> {
    py: Python<'py>,
    reading: &'a Reading<'a>,
    row: &'a GilRc<Row>,
    /// The bytes of this reading: Python code may change the row meanwhile, but not these bytes.
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

/// The error of a key or an element that has no hash: nothing that was written from a dict or a
/// set.
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

impl<'a, 'py, const BRIEF: bool> Decoder<'a, 'py, BRIEF> {
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

    /// A new object for the slot; `depth` counts the containers around it.
    #[inline]
    fn slot(&self, slot: &Slot<'_>, depth: u32) -> PyResult<Object> {
        if BRIEF && let Some(shortened) = shortened::of_slot(self.py, slot)? {
            return Ok(shortened.into_ptr());
        }
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

    /// A new object for a container, and the offset where the container ends.
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

    /// The next element if it is a simple value. None leaves the walker where it was; call
    /// `next_any` then. Most elements of a large value are simple: in the loops below they are made
    /// without a function call, and without a result that goes through memory.
    #[inline(always)]
    fn next_simple(&self, walker: &mut Walker) -> Option<PyResult<Object>> {
        if BRIEF {
            return None;
        }
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

    /// The next element; null for an absent field, None after the last element.
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

    /// The next element of a container that may not have absent elements.
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

    /// The dict of a shape; `walker` stands ahead of its slots.
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
            // SAFETY: a dict, a live str with a known hash, a live value; no user code runs.
            if unsafe { ffi::PyDict_SetItem(dict.0, *key, value.0) } < 0 {
                return Err(self.failure());
            }
        }
        Ok(dict.into_raw())
    }

    /// The next element if it is a shaped dict, as most elements of long lists are. None leaves the
    /// walker where it was. It is inlined into the loop over the list, so that the place of a dict
    /// is never written to memory and read back (`view.rs`): that wait was a tenth of the time of a
    /// list of small dicts.
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
            // SAFETY: a live object.
            if unsafe { ffi::PyUnicode_Check(key.0) } == 0 {
                counters::other_key_decoded();
            }
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

    /// Checks signals after every few keys or elements: if all have the same hash, as the multiples
    /// of 2^61 - 1 do, CPython compares each one with all before it.
    #[inline]
    fn added(&self, count: u32) -> PyResult<()> {
        if count.is_multiple_of(ADDED_BETWEEN_SIGNALS) { callbacks::check_signals(self.py) } else { Ok(()) }
    }

    fn list(&self, walker: &mut Walker, place: &Container, depth: u32) -> PyResult<Object> {
        // SAFETY: a list of empty places. Each is filled below before any other code sees the list,
        // and a list with empty places may be released.
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
        // SAFETY: makes a new object; a frozenset may be filled while no other code has it.
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
