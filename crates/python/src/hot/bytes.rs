//! New bytes objects that are filled in one pass.
//!
//! PyO3 fills a new object with zeros before it hands it out; for a large one that is a pass over
//! memory that no cache holds.
//!
//! Invariant: nothing else has a reference to the object before all of its bytes are written.
#![allow(unsafe_code)]

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// A bytes object: a head of `N` bytes, which is made from what follows it, then the parts.
///
/// # Errors
/// `MemoryError`.
pub fn after_head<'py, const N: usize>(
    py: Python<'py>,
    parts: &[&[u8]],
    head: impl FnOnce(&[u8]) -> [u8; N],
) -> PyResult<Bound<'py, PyBytes>> {
    let size = N + parts.iter().map(|part| part.len()).sum::<usize>();
    // SAFETY: with a null pointer the call makes an object of `size` bytes that are not set. Each
    // part is copied after the one before it, and the sizes sum up to `size`. The body is read
    // when it is complete, and `head` cannot reach the object.
    unsafe {
        let made = ffi::PyBytes_FromStringAndSize(std::ptr::null(), size as ffi::Py_ssize_t);
        let made = Bound::from_owned_ptr_or_err(py, made)?.cast_into_unchecked::<PyBytes>();
        let start = ffi::PyBytes_AsString(made.as_ptr()).cast::<u8>();
        let body = start.add(N);
        let mut end = body;
        for part in parts {
            std::ptr::copy_nonoverlapping(part.as_ptr(), end, part.len());
            end = end.add(part.len());
        }
        let head = head(std::slice::from_raw_parts(body, size - N));
        std::ptr::copy_nonoverlapping(head.as_ptr(), start, N);
        Ok(made)
    }
}
