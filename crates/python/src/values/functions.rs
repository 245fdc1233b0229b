//! Define the functions of the module that bypass PyO3's calling convention.
//!
//! `view` takes one argument and does little: PyO3's general way to call a Rust function, with an
//! array of arguments and names, would be a fifth of its time.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;

use crate::values::bytes;
use crate::values::field::guarded;

const VIEW_DOC: &std::ffi::CStr = c"view(buffer, /)
--

Read packed bytes in place: a `Record`, a `RecordList`, or the scalar itself.

`buffer` is any object with a contiguous buffer (bytes, memoryview, mmap, what a database driver
returns); it is not copied, and kept for as long as the record lives. Each access checks its own
bounds; damage raises `CorruptRecord`. The checksum is not looked at: see `validate`.

>>> import pellucid
>>> rec = pellucid.view(pellucid.dumps({\"a\": {\"b\": [1, 2]}}))
>>> rec.a.b[1]
2
";

/// `pellucid.view`.
unsafe extern "C" fn view(_module: *mut ffi::PyObject, buffer: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called from the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: the caller holds the argument during the call.
    let buffer = unsafe { Borrowed::from_ptr(py, buffer) };
    guarded(py, || bytes::view(&buffer))
}

/// Makes the Python function `view` for `module`.
pub fn view_function<'py>(module: &Bound<'py, PyModule>) -> PyResult<Bound<'py, PyAny>> {
    let definition = ffi::PyMethodDef {
        ml_name: c"view".as_ptr(),
        ml_meth: ffi::PyMethodDefPointer { PyCFunction: view },
        ml_flags: ffi::METH_O,
        ml_doc: VIEW_DOC.as_ptr(),
    };
    let name = module.name()?;
    // The function lives as long as the process, and needs its definition for as long.
    let definition = Box::leak(Box::new(definition));
    // SAFETY: a valid definition that is never freed, and the module's name as a str.
    unsafe {
        let function = ffi::PyCFunction_NewEx(definition, std::ptr::null_mut(), name.as_ptr());
        Bound::from_owned_ptr_or_err(module.py(), function)
    }
}
