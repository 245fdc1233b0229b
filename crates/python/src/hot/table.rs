//! How does `table[key]` reach the store?
//!
//! Most keys are short strings, most tables are asked for what they have, and much of what is put is one small value. That is done here at once, ahead of the
//! slots that PyO3 has made: they count how often the GIL was taken, and take any key, any value and any table. What is not done here, and
//! whatever goes wrong before it is begun, is left to them.
//!
//! Invariant: `GENERAL` is set before there is any table.

use pyo3::ffi;
use pyo3::prelude::*;

use super::gil::{self, GilValue};
use super::{item, text};
use crate::errors;
use crate::table::Table;

#[derive(Clone, Copy)]
struct General {
    get: Option<ffi::binaryfunc>,
    set: Option<ffi::objobjargproc>,
}

/// The slots that PyO3 has made.
static GENERAL: GilValue<General> = GilValue::new(General { get: None, set: None });

/// No panic leaves a slot.
#[inline(always)]
fn tried<R>(work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    result.unwrap_or_else(|_| Err(errors::internal("an access to a table panicked")))
}

/// # Safety
/// `object` is a live table.
#[inline(always)]
unsafe fn table_of<'a>(py: Python<'_>, object: *mut ffi::PyObject) -> Borrowed<'a, '_, Table> {
    // SAFETY: as promised by the caller.
    unsafe { Borrowed::from_ptr(py, object).cast_unchecked::<Table>() }
}

/// The characters of a str that is ASCII.
///
/// # Safety
/// `object` is live, and outlives the result.
#[inline(always)]
unsafe fn characters<'a>(object: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: as promised by the caller; the type is looked at.
    unsafe {
        if ffi::Py_TYPE(object) == &raw mut ffi::PyUnicode_Type { text::ascii_of(object) } else { None }
    }
}

/// `mp_subscript` of `Table`.
///
/// # Safety
/// CPython calls it with a `Table` and any object, the GIL held.
unsafe extern "C" fn subscript(object: *mut ffi::PyObject, key: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called from the interpreter, so the GIL is held; objects live for the time of the call.
    let (py, characters) = unsafe { (Python::assume_attached(), characters(key)) };
    if let Some(characters) = characters {
        // SAFETY: as promised by the caller.
        let table = unsafe { table_of(py, object) };
        match tried(|| Table::value_of_short(&table, characters)) {
            Ok(Some(value)) => return value.into_ptr(),
            Ok(None) => {}
            Err(error) => {
                gil::restore(error);
                return std::ptr::null_mut();
            }
        }
    }
    let Some(general) = GENERAL.get().get else {
        gil::restore(errors::internal("Table has no slot"));
        return std::ptr::null_mut();
    };
    // SAFETY: the slot of this very class, called as CPython would.
    unsafe { general(object, key) }
}

/// `mp_ass_subscript` of `Table`.
///
/// # Safety
/// CPython calls it with a `Table`, any object, and any object or null, the GIL held.
unsafe extern "C" fn ass_subscript(
    object: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
) -> std::ffi::c_int {
    // SAFETY: called from the interpreter, so the GIL is held; objects live for the time of the call.
    let (py, characters) = unsafe { (Python::assume_attached(), characters(key)) };
    if let Some(characters) = characters
        && !value.is_null()
        // SAFETY: a live object, for the time of the call.
        && let Some(value) = unsafe { item::simple(value) }
    {
        // SAFETY: as promised by the caller.
        let table = unsafe { table_of(py, object) };
        match tried(|| table.get().put_short(py, characters, value)) {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(error) => {
                gil::restore(error);
                return -1;
            }
        }
    }
    let Some(general) = GENERAL.get().set else {
        gil::restore(errors::internal("Table has no slot"));
        return -1;
    };
    // SAFETY: the slot of this very class, called as CPython would.
    unsafe { general(object, key, value) }
}

/// Put the slots above ahead of those that PyO3 has made.
pub fn install(py: Python<'_>) {
    let kind = py.get_type::<Table>().as_type_ptr();
    // SAFETY: a heap type of ours, not yet seen by anyone, which cannot be subclassed; `tp_as_mapping` of a heap type points to its
    // own table.
    unsafe {
        let mapping = (*kind).tp_as_mapping;
        GENERAL.set(General { get: (*mapping).mp_subscript, set: (*mapping).mp_ass_subscript });
        (*mapping).mp_subscript = Some(subscript);
        (*mapping).mp_ass_subscript = Some(ass_subscript);
        ffi::PyType_Modified(kind);
    }
}
