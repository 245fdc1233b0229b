//! Read a field of a record by name, as fast as a dict does.
//!
//! The interpreter calls this slot for `rec.age` directly, without an argument tuple, a method
//! object or a borrow check. One cache for the process maps (name object, dictionary, head of the
//! container) to the offsets of the field's tag and slot; a hit reads two places and makes one
//! object. Measured on CPython 3.11: PyO3's `__getattr__` runs after a failed ordinary lookup,
//! whose exception alone costs 300 ns and more; its `__getattribute__` costs 5 ns more than our own
//! slot.
//!
//! Invariants of the cache:
//!
//! 1. An entry owns a reference to its name, so no other string can have that address meanwhile.
//! 2. An entry is found only under the serial of the dictionary that it was made for (names.rs).
//! 3. A hit proves nothing about the bytes: each access compares their size with `size_min`, which
//!    covers the tag and the slot, and checks the tag.
//!
//! The profile showed that the processor executes a hit faster than it can retire it, so only fewer
//! instructions help. An int in a slot of 8 bytes, the most frequent field of a record, is
//! therefore decoded where the entry is found; all else is a tail call. This reduced a hit from 82
//! instructions to 54.
#![allow(unsafe_code)]

use pellucid_record::layout::{Kind, read_varint, tag};
use pellucid_record::path::OwnedStep;
use pellucid_record::view::{Container, Slot};
use pyo3::ffi;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::gil::{self, GilCell};
use crate::hot::{small, text};
use crate::values::handles::Record;
use crate::values::node::Node;
use crate::values::reading::Reading;
use crate::values::row::Row;
use crate::values::{decode, names, notebook, row_errors};

#[derive(Clone, Copy)]
struct Entry {
    name: *mut ffi::PyObject,
    head: u64,
    serial: u32,
    // A shape has at most 512 names, so all its slots lie within 5 KB.
    tag_offset: u16,
    slot_offset: u16,
    heap_start: u16,
    /// Tag and slot lie within this many first bytes of the container.
    size_min: u16,
    width_log2: u8,
}

const ENTRY_COUNT: usize = 2048;
const EMPTY: Entry = Entry {
    name: std::ptr::null_mut(),
    head: 0,
    serial: 0,
    tag_offset: 0,
    slot_offset: 0,
    heap_start: 0,
    size_min: 0,
    width_log2: 0,
};

/// Each field has two entries. The one by name alone can be found before the record's head is read;
/// the one by name and head serves fields that many shapes have.
struct Table {
    by_name: [Entry; ENTRY_COUNT],
    by_head: [Entry; ENTRY_COUNT],
}

// SAFETY: the names are owned references, touched only with the GIL held.
unsafe impl Send for Table {}

static TABLE: GilCell<Table> =
    GilCell::new(Table { by_name: [EMPTY; ENTRY_COUNT], by_head: [EMPTY; ENTRY_COUNT] });

#[inline]
fn spot_by_name(name: *mut ffi::PyObject) -> usize {
    ((name as u64 >> 4) ^ (name as u64 >> 15)) as usize % ENTRY_COUNT
}

#[inline]
fn spot_by_head(name: *mut ffi::PyObject, head: u64) -> usize {
    // The low byte of the head is kind and version; the shape id begins at bit 32.
    let mixed = (name as u64 >> 4) ^ (head >> 32).wrapping_mul(0x9E37_79B9) ^ (head >> 8);
    (mixed as usize) % ENTRY_COUNT
}

/// The head of the dict at `node`, as the cache uses it, and the dict's bytes; None if the slow
/// path is needed.
#[inline]
fn head_and_bytes(node: &Node) -> Option<(u64, &[u8])> {
    let bytes = node.row.bytes();
    if node.parent.is_none() {
        let head = u64::from_le_bytes(*bytes.first_chunk()?);
        return Some((head, bytes));
    }
    let place = node.known_place()?;
    let bytes = bytes.get(place.start as usize..place.end as usize)?;
    Some((nested_head(&place), bytes))
}

#[inline]
fn nested_head(place: &Container) -> u64 {
    // A nested dict has fewer bits of head than a root. The top bit, which no root's head has
    // (its shape id is below 2^24), keeps the two apart.
    1 << 63 | u64::from(place.shape) << 32 | u64::from(place.width_log2) << 8 | place.kind as u64
}

/// The value of the field `name`; null if the cache does not have it.
///
/// # Safety
/// The GIL is held and `name` is a live str.
#[inline(always)]
unsafe fn cached(py: Python<'_>, node: &Node, name: *mut ffi::PyObject) -> *mut ffi::PyObject {
    if !node.row.validity.is_open() {
        return std::ptr::null_mut();
    }
    let Some((head, bytes)) = head_and_bytes(node) else { return std::ptr::null_mut() };
    let serial = node.row.names.serial();
    // SAFETY: the code below makes strs, ints and floats, which runs no code, and it changes no
    // entry.
    let table = unsafe { TABLE.peek(py) };
    let mut entry = table.by_name.get(spot_by_name(name)).unwrap_or(&EMPTY);
    if entry.name != name || entry.head != head || entry.serial != serial {
        entry = table.by_head.get(spot_by_head(name, head)).unwrap_or(&EMPTY);
        if entry.name != name || entry.head != head || entry.serial != serial {
            return std::ptr::null_mut();
        }
    }
    if bytes.len() < usize::from(entry.size_min) {
        return std::ptr::null_mut();
    }
    if entry.width_log2 != 3 {
        // SAFETY: the GIL is held, as the caller promises.
        return unsafe { read_narrow(bytes, entry) };
    }
    // SAFETY: tag and slot lie within `size_min` (invariant 3); the GIL is held.
    unsafe {
        let slot = bytes.as_ptr().add(usize::from(entry.slot_offset)).cast::<[u8; 8]>();
        if *bytes.as_ptr().add(usize::from(entry.tag_offset)) == tag::INT {
            return small::new_int(i64::from_le_bytes(*slot));
        }
        read_wide(bytes, entry)
    }
}

/// The object of a slot of 1, 2 or 4 bytes if it has one of the common tags; otherwise null.
#[inline(never)]
unsafe fn read_narrow(bytes: &[u8], entry: &Entry) -> *mut ffi::PyObject {
    let Some(&tag) = bytes.get(usize::from(entry.tag_offset)) else { return std::ptr::null_mut() };
    let Some(slot) = bytes.get(usize::from(entry.slot_offset)..) else { return std::ptr::null_mut() };
    let (signed, unsigned) = match (entry.width_log2, slot) {
        (0, [byte, ..]) => (i64::from(byte.cast_signed()), u64::from(*byte)),
        (1, [a, b, ..]) => (i64::from(i16::from_le_bytes([*a, *b])), u64::from(u16::from_le_bytes([*a, *b]))),
        (_, [a, b, c, d, ..]) => {
            let word = [*a, *b, *c, *d];
            (i64::from(i32::from_le_bytes(word)), u64::from(u32::from_le_bytes(word)))
        }
        _ => return std::ptr::null_mut(),
    };
    // SAFETY: all of these make new objects from plain values; the GIL is held.
    unsafe {
        match tag {
            tag::INT => small::new_int(signed),
            tag::STR if unsigned >= u64::from(entry.heap_start) => {
                match read_varint(bytes, unsigned as usize) {
                    Some((size, start)) => match bytes.get(start..start + size as usize) {
                        Some(characters) => or_clear(text::new_str(characters)),
                        None => std::ptr::null_mut(),
                    },
                    None => std::ptr::null_mut(),
                }
            }
            tag::TRUE => new_reference(ffi::Py_True()),
            tag::FALSE => new_reference(ffi::Py_False()),
            tag::NONE => new_reference(ffi::Py_None()),
            _ => std::ptr::null_mut(),
        }
    }
}

/// The object of a slot of 8 bytes if it has one of the common tags; otherwise null.
#[inline(never)]
unsafe fn read_wide(bytes: &[u8], entry: &Entry) -> *mut ffi::PyObject {
    let (Some(&tag), Some(slot)) = (
        bytes.get(usize::from(entry.tag_offset)),
        bytes.get(usize::from(entry.slot_offset)..).and_then(|rest| rest.first_chunk::<8>()),
    ) else {
        return std::ptr::null_mut();
    };
    // SAFETY: all of these make new objects from plain values; the GIL is held.
    unsafe {
        match tag {
            tag::INT => small::new_int(i64::from_le_bytes(*slot)),
            tag::FLOAT => ffi::PyFloat_FromDouble(f64::from_le_bytes(*slot)),
            tag::STR => {
                let word = u64::from_le_bytes(*slot);
                let (offset, size) = (word as u32, (word >> 32) as u32);
                if offset < u32::from(entry.heap_start) {
                    return std::ptr::null_mut();
                }
                match bytes.get(offset as usize..offset as usize + size as usize) {
                    Some(characters) => or_clear(text::new_str(characters)),
                    None => std::ptr::null_mut(),
                }
            }
            tag::STR_INLINE..=tag::STR_INLINE_LAST => {
                let size = usize::from(tag - tag::STR_INLINE);
                slot.get(..size)
                    .map_or(std::ptr::null_mut(), |characters| or_clear(text::new_str(characters)))
            }
            tag::TRUE => new_reference(ffi::Py_True()),
            tag::FALSE => new_reference(ffi::Py_False()),
            tag::NONE => new_reference(ffi::Py_None()),
            _ => std::ptr::null_mut(),
        }
    }
}

#[inline]
unsafe fn new_reference(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: the caller passes a live object, with the GIL held.
    unsafe { ffi::Py_INCREF(object) };
    object
}

/// Clears the exception: a failure here means damage, and the slow path finds it again and says
/// where.
#[inline]
unsafe fn or_clear(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    if object.is_null() {
        // SAFETY: the GIL is held, as the caller promises.
        unsafe { ffi::PyErr_Clear() };
    }
    object
}

/// Adds the offsets of the field `name` of this container to the cache.
fn remember(py: Python<'_>, row: &Row, place: &Container, index: u32, name: *mut ffi::PyObject) {
    if place.kind != Kind::Shaped {
        return;
    }
    let (tag_offset, slot_offset) = place.position(index);
    let head = if place.start == 0 {
        match row.bytes().first_chunk() {
            Some(head) => u64::from_le_bytes(*head),
            None => return,
        }
    } else {
        nested_head(place)
    };
    let (tag_offset, slot_offset) =
        ((tag_offset as u32 - place.start) as u16, (slot_offset as u32 - place.start) as u16);
    let entry = Entry {
        name,
        head,
        serial: row.names.serial(),
        tag_offset,
        slot_offset,
        size_min: (tag_offset + 1).max(slot_offset + (1 << place.width_log2)),
        heap_start: (place.heap_start() - place.start) as u16,
        width_log2: place.width_log2,
    };
    // The entry by name belongs to the shape that was read last; the one by head stays for each
    // shape.
    for is_by_head in [false, true] {
        // SAFETY: `name` is one of the dictionary's live interned names (field_by_object); the
        // reference is released when the entry is replaced (invariant 1).
        unsafe { ffi::Py_INCREF(name) };
        let old = TABLE.with(py, |table| {
            let place = if is_by_head {
                table.by_head.get_mut(spot_by_head(name, head))
            } else {
                table.by_name.get_mut(spot_by_name(name))
            };
            place.map(|old| std::mem::replace(old, entry))
        });
        if let Some(old) = old {
            // SAFETY: the replaced entry owned it. A str has no finalizer that could come back
            // here.
            unsafe { ffi::Py_XDECREF(old.name) };
        }
    }
}

/// The slot that `step` leads to in these bytes of `row`; None if there is none.
pub fn slot_at<'a>(
    py: Python<'_>,
    row: &Row,
    bytes: &'a [u8],
    place: &Container,
    step: &OwnedStep,
) -> PyResult<Option<Slot<'a>>> {
    let shapes = &*row.names;
    let found = match pellucid_record::path::slot_index(bytes, shapes, place, step.borrowed()) {
        Ok(Some(index)) => place.slot(bytes, shapes, index).map(Some),
        Ok(None) => Ok(None),
        Err(error) => Err(error),
    };
    match found {
        Ok(Some(Slot::Absent)) => Ok(None),
        Ok(slot) => Ok(slot),
        Err(error) => Err(row_errors::corrupt_row(py, row, &error)),
    }
}

/// The value of a field of a shaped dict, by a str object; None if the dict has no such field.
///
/// # Safety
/// `name` is a live str and the GIL is held.
unsafe fn field_by_object<'py>(
    record: &Bound<'py, Record>,
    name: *mut ffi::PyObject,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let py = record.py();
    let node = &record.get().node;
    let place = node.container(py)?;
    let row = &*node.row;
    if place.kind == Kind::Shaped
        && let Some(shape) = row.names.named(py, place.shape)
    {
        // SAFETY: both are live str objects: the shape owns its names (names.rs, invariant 1).
        let found = shape.keys.iter().position(|key| unsafe { names::is_same_name(*key, name) });
        let Some(index) = found else { return Ok(None) };
        let reading = Reading::new(&node.row);
        let slot = match place.slot(reading.bytes(), &*row.names, index as u32) {
            Ok(Slot::Absent) => return Ok(None),
            Ok(slot) => slot,
            Err(error) => return Err(row_errors::corrupt_row(py, row, &error)),
        };
        // Only the dictionary's own name object is cached: a literal in code is that very object,
        // and an equal string at another address takes this slow path each time. Names of methods
        // are never cached: otherwise `rec.items` would find the entry that `rec["items"]` made.
        let is_ours = shape
            .shape
            .name(index as u32)
            .is_some_and(|name| crate::values::record::is_reserved(name.as_bytes()));
        if shape.keys.get(index) == Some(&name) && !is_ours {
            remember(py, row, &place, index as u32, name);
        }
        let field = || OwnedStep::Field(shape.shape.name(index as u32).unwrap_or_default().into());
        return decode::handle(record.as_any(), &reading, slot, field).map(Some);
    }
    // SAFETY: as promised by the caller.
    let name = unsafe { Bound::from_borrowed_ptr(py, name) };
    // Keys that are no plain names go through the encoder, which makes and drops exceptions.
    Python::attach(|_py| crate::values::record::get_item(record, &name))
}

/// The record that CPython called a slot for.
///
/// # Safety
/// `object` is a live `Record`, for as long as the result is used; the GIL is held.
#[inline(always)]
unsafe fn record_of<'a>(py: Python<'_>, object: *mut ffi::PyObject) -> Borrowed<'a, '_, Record> {
    // SAFETY: as promised by the caller; stating that the pointer is not null saves a check.
    unsafe {
        std::hint::assert_unchecked(!object.is_null());
        Borrowed::from_ptr(py, object).cast_unchecked::<Record>()
    }
}

/// `tp_getattro` of `Record`.
///
/// # Safety
/// CPython calls it with a `Record` and a str, and with the GIL held.
pub unsafe extern "C" fn record_getattro(
    object: *mut ffi::PyObject,
    name: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called from the interpreter, so the GIL is held; only `Record` has this slot, and it
    // cannot be subclassed; `name` is a str, as CPython promises.
    unsafe {
        let py = Python::assume_attached();
        let value = cached(py, &record_of(py, object).get().node, name);
        if value.is_null() { getattro_slow(object, name) } else { value }
    }
}

/// # Safety
/// As for `record_getattro`.
#[cold]
#[inline(never)]
unsafe extern "C" fn getattro_slow(
    object: *mut ffi::PyObject,
    name: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called from the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: as promised by the caller.
    let record = unsafe { record_of(py, object) };
    // SAFETY: `name` is a live str.
    let characters = unsafe { text::utf8_of(py, name) };
    let is_ours = characters.as_ref().is_ok_and(|name| crate::values::record::is_reserved(name.bytes()));
    if is_ours {
        // SAFETY: a live object and a str; the ordinary lookup finds methods and dunders.
        return unsafe { ffi::PyObject_GenericGetAttr(object, name) };
    }
    guarded(py, || {
        // SAFETY: as promised by the caller.
        match unsafe { field_by_object(&record, name) }? {
            Some(value) => Ok(value),
            None => Python::attach(|_py| notebook::method(record.as_any(), &borrowed_name(py, name)))?
                .ok_or_else(|| row_errors::no_attribute(&record, name)),
        }
    })
}

/// `mp_subscript` of `Record`.
///
/// # Safety
/// CPython calls it with a `Record` and any object, and with the GIL held.
pub unsafe extern "C" fn record_subscript(
    object: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // An object of another type never has the address of a cached name (invariant 1), so a hit
    // needs no check of the type.
    // SAFETY: called from the interpreter, so the GIL is held; only `Record` has this slot, and it
    // cannot be subclassed; `key` is only compared by address until it is known to be in the cache.
    unsafe {
        let py = Python::assume_attached();
        let value = cached(py, &record_of(py, object).get().node, key);
        if value.is_null() { subscript_slow(object, key) } else { value }
    }
}

/// # Safety
/// As for `record_subscript`.
#[cold]
#[inline(never)]
unsafe extern "C" fn subscript_slow(
    object: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called from the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: as promised by the caller.
    let record = unsafe { record_of(py, object) };
    guarded(py, || {
        // SAFETY: a live object.
        let found = if unsafe { ffi::PyUnicode_CheckExact(key) } != 0 {
            // SAFETY: it is a str, as the check above found.
            unsafe { field_by_object(&record, key) }?
        } else {
            // SAFETY: a live object.
            let key = unsafe { Bound::from_borrowed_ptr(py, key) };
            Python::attach(|_py| crate::values::record::get_item(&record, &key))?
        };
        found.ok_or_else(|| errors::missing(&borrowed_name(py, key)))
    })
}

/// Runs `work` for a C slot: an error or a panic becomes the current exception.
pub fn guarded<'py>(
    _py: Python<'py>,
    work: impl FnOnce() -> PyResult<Bound<'py, PyAny>>,
) -> *mut ffi::PyObject {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work))
        .unwrap_or_else(|_| Err(errors::internal("a record access panicked")));
    match result {
        Ok(value) => value.into_ptr(),
        Err(error) => {
            gil::restore(error);
            std::ptr::null_mut()
        }
    }
}

/// Puts the slots above into the type that PyO3 has made.
///
/// PyO3 can fill `tp_getattro` only with a wrapper that costs 5 ns. So the two slots of this file
/// are set by hand, once, before any instance exists.
pub fn install(py: Python<'_>) {
    let record = py.get_type::<Record>();
    let record = record.as_type_ptr();
    // SAFETY: a heap type of ours that no other code has seen yet; `tp_as_mapping` of a heap type
    // points to its own table.
    unsafe {
        (*record).tp_getattro = Some(record_getattro);
        let mapping = (*record).tp_as_mapping;
        (*mapping).mp_subscript = Some(record_subscript);
        ffi::PyType_Modified(record);
    }
}

/// The name that the interpreter passed to a slot.
pub fn borrowed_name(py: Python<'_>, name: *mut ffi::PyObject) -> Bound<'_, PyAny> {
    // SAFETY: the caller of the slot holds the name during the call.
    unsafe { Bound::from_borrowed_ptr(py, name) }
}
