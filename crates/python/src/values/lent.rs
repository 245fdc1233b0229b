//! Lend bytes of a snapshot to other libraries, without a copy.
//!
//! A NumPy array over such bytes keeps the snapshot, and with it the pages. It stays right when the
//! row is changed and when the database is closed.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use pellucid_store::Snapshot;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyMemoryView;

/// Bytes in a snapshot, as a read-only buffer.
#[pyclass(frozen, module = "pellucid", name = "LentBytes")]
pub struct Lent {
    _snapshot: Snapshot,
    address: usize,
    size: usize,
}

impl Lent {
    /// A memoryview of `bytes`.
    ///
    /// # Safety
    /// The bytes stay where they are while `snapshot` lives.
    ///
    /// # Errors
    /// `MemoryError`.
    pub unsafe fn view<'py>(
        py: Python<'py>,
        snapshot: Snapshot,
        bytes: &[u8],
    ) -> PyResult<Bound<'py, PyAny>> {
        let lent = Self { _snapshot: snapshot, address: bytes.as_ptr() as usize, size: bytes.len() };
        Ok(PyMemoryView::from(Bound::new(py, lent)?.as_any())?.into_any())
    }
}

#[pymethods]
impl Lent {
    /// # Safety
    /// `view` and `flags` are the arguments of a `bf_getbuffer` call.
    unsafe fn __getbuffer__(slf: Bound<'_, Self>, view: *mut ffi::Py_buffer, flags: c_int) -> PyResult<()> {
        let (address, size) = (slf.get().address as *mut c_void, slf.get().size);
        // SAFETY: the view is the interpreter's; the bytes live as long as the object, which the
        // view holds; they are given as read-only.
        let status =
            unsafe { ffi::PyBuffer_FillInfo(view, slf.as_ptr(), address, size as ffi::Py_ssize_t, 1, flags) };
        if status < 0 { Err(PyErr::fetch(slf.py())) } else { Ok(()) }
    }
}
