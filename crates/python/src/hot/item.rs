//! References to the current key and value while native code walks a dict.
//!
//! They are borrowed from one item to the next, and strong while the user's code may run.

use pellucid_record::encode::Simple;
use pyo3::ffi;

use crate::hot::text;

/// A reference to an object, borrowed unless stated otherwise.
pub type Object = *mut ffi::PyObject;

/// A strong reference, held while the user's code may run.
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

/// A position in a dict, with borrowed references to its key and value.
#[derive(Clone, Copy)]
pub struct Item {
    position: ffi::Py_ssize_t,
    /// The key.
    pub key: Object,
    /// Its value.
    pub value: Object,
}

impl Item {
    /// The position ahead of the first item.
    #[inline]
    pub fn before_first() -> Self {
        Self { position: 0, key: std::ptr::null_mut(), value: std::ptr::null_mut() }
    }

    /// Moves to the next item; false after the last one.
    ///
    /// # Safety
    /// `dict` is a live dict.
    #[inline]
    pub unsafe fn advance(&mut self, dict: Object) -> bool {
        // SAFETY: as promised by the caller.
        unsafe { ffi::PyDict_Next(dict, &raw mut self.position, &raw mut self.key, &raw mut self.value) != 0 }
    }
}

/// The value of an object whose conversion cannot fail, runs no Python code and reaches no other
/// object; None for any other object.
///
/// # Safety
/// `object` is live, and outlives the result.
#[inline(always)]
pub unsafe fn simple<'a>(object: Object) -> Option<Simple<'a>> {
    // SAFETY: a live object; each branch has checked the exact type that its accessor wants.
    unsafe {
        let kind = ffi::Py_TYPE(object);
        if kind == &raw mut ffi::PyUnicode_Type {
            text::ascii_of(object).map(Simple::Str)
        } else if kind == &raw mut ffi::PyLong_Type {
            let mut overflow = 0;
            let value = ffi::PyLong_AsLongLongAndOverflow(object, &raw mut overflow);
            (overflow == 0).then_some(Simple::Int(value))
        } else if kind == &raw mut ffi::PyFloat_Type {
            Some(Simple::Float(ffi::PyFloat_AS_DOUBLE(object)))
        } else if kind == &raw mut ffi::PyBool_Type {
            Some(Simple::Bool(object == ffi::Py_True()))
        } else if object == ffi::Py_None() {
            Some(Simple::None)
        } else {
            None
        }
    }
}
