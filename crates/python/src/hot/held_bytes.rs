//! Show bytes that a native owner keeps, through Python's buffer protocol, without a copy.

use std::ffi::c_int;

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// The object behind a memoryview of stored bytes. It keeps what the bytes lie in.
#[pyclass(frozen, module = "pellucid", name = "StoredBytes")]
pub struct HeldBytes {
    data: *const u8,
    size: usize,
    #[expect(dead_code, reason = "it keeps the bytes where they are")]
    owner: Box<dyn Send + Sync>,
}

// SAFETY: the bytes are only read, and the owner may be shared and sent.
unsafe impl Send for HeldBytes {}
// SAFETY: as above.
unsafe impl Sync for HeldBytes {}

impl HeldBytes {
    /// A read-only memoryview of the bytes that `bytes` finds in `owner`, which lives as long as
    /// the view.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn view<T: Send + Sync + 'static>(
        py: Python<'_>,
        owner: T,
        bytes: impl for<'a> FnOnce(&'a T) -> &'a [u8],
    ) -> PyResult<Bound<'_, PyMemoryView>> {
        // Boxed first, so that the owner does not move any more. It is never borrowed mutably, so
        // what was borrowed from it stays valid until it is dropped.
        let owner = Box::new(owner);
        let (data, size) = {
            let bytes = bytes(&owner);
            (bytes.as_ptr(), bytes.len())
        };
        PyMemoryView::from(Bound::new(py, Self { data, size, owner })?.as_any())
    }

    /// As `view`, of bytes that the caller has already.
    ///
    /// # Safety
    /// The bytes stay where they are while `owner` lives, also when it is moved.
    ///
    /// # Errors
    /// `MemoryError`.
    pub unsafe fn view_of<'py, T: Send + Sync + 'static>(
        py: Python<'py>,
        owner: T,
        bytes: &[u8],
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        let (data, size) = (bytes.as_ptr(), bytes.len());
        PyMemoryView::from(Bound::new(py, Self { data, size, owner: Box::new(owner) })?.as_any())
    }
}

/// Bytes that a native function has made, for one Python object that reads and writes them.
#[pyclass(frozen, module = "pellucid", name = "OwnedBytes")]
pub struct OwnedBytes {
    /// Taken apart in `new`, and put together again in `drop`.
    data: *mut u8,
    size: usize,
}

// SAFETY: only views of the interpreter reach the bytes, and they do with the GIL held.
unsafe impl Send for OwnedBytes {}
// SAFETY: as above.
unsafe impl Sync for OwnedBytes {}

impl OwnedBytes {
    /// An object with a buffer of these bytes, which are not copied.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn new(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Bound<'_, Self>> {
        let bytes = Box::leak(bytes.into_boxed_slice());
        Bound::new(py, Self { data: bytes.as_mut_ptr(), size: bytes.len() })
    }
}

impl Drop for OwnedBytes {
    fn drop(&mut self) {
        // SAFETY: the parts of a boxed slice, which `new` has taken apart; each view keeps the
        // object, so that none is left.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(self.data, self.size)) });
    }
}

#[pymethods]
impl OwnedBytes {
    /// # Safety
    /// Called by the interpreter alone, with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (data, size) = (slf.get().data.cast(), slf.get().size as ffi::Py_ssize_t);
        // SAFETY: the interpreter's view; the bytes live as long as the object, which the view
        // keeps, and no Rust code reads them.
        let status = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, size, 0, flags) };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}

#[pymethods]
impl HeldBytes {
    /// # Safety
    /// Called by the interpreter alone, with a view to fill.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (data, size) = (slf.get().data.cast_mut().cast(), slf.get().size as ffi::Py_ssize_t);
        // SAFETY: the interpreter's view; the bytes live as long as the object, which the view
        // keeps. They are given as read-only.
        let status = unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), data, size, 1, flags) };
        if status == 0 { Ok(()) } else { Err(PyErr::fetch(slf.py())) }
    }
}
