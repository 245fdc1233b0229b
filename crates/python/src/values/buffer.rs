//! Implement the buffer protocol for `Record` and `RecordList`.
//!
//! `bytes(rec)`, a file's `write(rec)` and a parameter of a database driver get the record as a
//! self-contained envelope. The two slots are set by hand, since PyO3's `__getbuffer__` would be an
//! `unsafe` method in the files of the two classes.
#![allow(unsafe_code)]

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;

use crate::values::bytes;
use crate::values::field::guarded;
use crate::values::handles::{Record, RecordList};
use crate::values::node::Node;

/// Fills `view` with the envelope of `node`.
///
/// # Safety
/// `view` and `flags` are the arguments of a `bf_getbuffer` call.
unsafe fn fill(py: Python<'_>, node: &Node, view: *mut ffi::Py_buffer, flags: c_int) -> c_int {
    let bytes = guarded(py, || Python::attach(|_py| bytes::sealed(node, py).map(Bound::into_any)));
    if bytes.is_null() {
        // SAFETY: the interpreter wants null as the object of a view that was not filled.
        unsafe { (*view).obj = std::ptr::null_mut() };
        return -1;
    }
    // SAFETY: a new reference, made above; the rest as promised by the caller. The bytes object
    // becomes the view's object, so that releasing the view calls its slot, not ours.
    unsafe {
        let status = ffi::PyObject_GetBuffer(bytes, view, flags);
        ffi::Py_DECREF(bytes);
        status
    }
}

/// `bf_getbuffer` of `Record`.
unsafe extern "C" fn record_getbuffer(
    object: *mut ffi::PyObject,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> c_int {
    // SAFETY: called from the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: only `Record` has this slot, and it cannot be subclassed.
    let record = unsafe { Borrowed::from_ptr(py, object).cast_unchecked::<Record>() };
    // SAFETY: the view and the flags of this call.
    unsafe { fill(py, &record.get().node, view, flags) }
}

/// `bf_getbuffer` of `RecordList`.
unsafe extern "C" fn list_getbuffer(
    object: *mut ffi::PyObject,
    view: *mut ffi::Py_buffer,
    flags: c_int,
) -> c_int {
    // SAFETY: called from the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: only `RecordList` has this slot, and it cannot be subclassed.
    let list = unsafe { Borrowed::from_ptr(py, object).cast_unchecked::<RecordList>() };
    // SAFETY: the view and the flags of this call.
    unsafe { fill(py, &list.get().node, view, flags) }
}

/// Puts the slots above into the types that PyO3 has made.
pub fn install(py: Python<'_>) {
    let record = py.get_type::<Record>().as_type_ptr();
    let list = py.get_type::<RecordList>().as_type_ptr();
    // SAFETY: heap types of ours that no other code has seen yet; `tp_as_buffer` of a heap type
    // points to its own table.
    unsafe {
        (*(*record).tp_as_buffer).bf_getbuffer = Some(record_getbuffer);
        (*(*list).tp_as_buffer).bf_getbuffer = Some(list_getbuffer);
        ffi::PyType_Modified(record);
        ffi::PyType_Modified(list);
    }
}
