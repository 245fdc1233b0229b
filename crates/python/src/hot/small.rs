//! Make small ints without a call into CPython.

use pyo3::ffi;
use pyo3::prelude::*;

use crate::hot::gil::GilCell;

const FIRST: i64 = -5;
const COUNT: usize = 262;

struct Ints([*mut ffi::PyObject; COUNT]);

// SAFETY: references owned for the life of the process, touched only with the GIL held.
unsafe impl Send for Ints {}

/// CPython's own small ints. Getting one through `PyLong_FromLongLong` would cost 2 ns of the 9 ns
/// that a field access takes.
static INTS: GilCell<Ints> = GilCell::new(Ints([std::ptr::null_mut(); COUNT]));

/// Fetches the small ints, once.
pub fn install(py: Python<'_>) {
    for index in 0..COUNT {
        // SAFETY: the token proves the GIL; small ints live as long as the interpreter.
        let int = unsafe { ffi::PyLong_FromLongLong(FIRST + index as i64) };
        INTS.with(py, |ints| {
            if let Some(place) = ints.0.get_mut(index) {
                *place = int;
            }
        });
    }
}

/// A new reference to an int.
///
/// # Safety
/// The GIL is held.
#[inline(always)]
pub unsafe fn new_int(value: i64) -> *mut ffi::PyObject {
    // SAFETY: the GIL is held, as the caller promises.
    let py = unsafe { Python::assume_attached() };
    let index = value.wrapping_sub(FIRST).cast_unsigned();
    // SAFETY: nothing is called meanwhile.
    let ints = unsafe { INTS.peek(py) };
    // SAFETY: a live int, since `install` has run before any record existed; the GIL is held.
    unsafe {
        match ints.0.get(index as usize) {
            Some(small) => {
                ffi::Py_INCREF(*small);
                *small
            }
            None => ffi::PyLong_FromLongLong(value),
        }
    }
}
