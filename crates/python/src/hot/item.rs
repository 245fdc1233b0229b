//! What is in hand while a dict is walked?
//!
//! Borrowed references to one item after the other, and strong ones for as long as code of the user's
//! may run.

use pyo3::ffi;

/// A reference to an object, borrowed unless somebody says otherwise.
pub type Object = *mut ffi::PyObject;

/// A strong reference for the time that user code may run.
pub struct Held(pub Object);

impl Held {
    /// Holds `object`.
    ///
    /// # Safety
    /// It is alive, and the GIL is held.
    #[inline]
    pub unsafe fn new(object: Object) -> Self {
        // SAFETY: the caller passes a live object, with the GIL held.
        unsafe { ffi::Py_INCREF(object) };
        Self(object)
    }
}

impl Drop for Held {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: owned since `new`; encodings run with the GIL held.
        unsafe { ffi::Py_DECREF(self.0) };
    }
}

/// A place in a dict: borrowed references to a key and its value.
#[derive(Clone, Copy)]
pub struct Item {
    position: ffi::Py_ssize_t,
    /// The key.
    pub key: Object,
    /// Its value.
    pub value: Object,
}

impl Item {
    /// Ahead of the first item.
    #[inline]
    pub fn before_first() -> Self {
        Self { position: 0, key: std::ptr::null_mut(), value: std::ptr::null_mut() }
    }

    /// Goes to the next item; false behind the last.
    ///
    /// # Safety
    /// `dict` is a live dict.
    #[inline]
    pub unsafe fn advance(&mut self, dict: Object) -> bool {
        // SAFETY: as promised by the caller.
        unsafe { ffi::PyDict_Next(dict, &raw mut self.position, &raw mut self.key, &raw mut self.value) != 0 }
    }
}
