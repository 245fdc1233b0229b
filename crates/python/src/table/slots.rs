//! The fast slots for `table[key]` and `db[key]`.
//!
//! Most keys are short strings, most lookups find a value, and many stored values are one small
//! scalar. These slots handle that case ahead of PyO3's own slots, which count acquisitions of the
//! GIL and accept any key, value and table. All other cases, and every error before the work
//! begins, are left to PyO3's slots.
//!
//! Invariant: PyO3's slots of a class are saved before it has any object.
#![allow(unsafe_code)]
#![expect(clippy::inline_always, reason = "what a call returns in memory is waited for; each is measured")]

use pyo3::prelude::*;
use pyo3::{PyClass, ffi};

use crate::database::Database;
use crate::errors;
use crate::hot::gil::{self, GilValue};
use crate::hot::{item, text};
use crate::table::handle::Table;

/// The slots that PyO3 has made.
#[derive(Clone, Copy)]
struct General {
    get: Option<ffi::binaryfunc>,
    set: Option<ffi::objobjargproc>,
}

impl General {
    const NONE: Self = Self { get: None, set: None };
}

type Slots = GilValue<General>;

/// A class whose objects are each a mapping over one table.
trait OverTable: PyClass<Frozen = pyo3::pyclass::boolean_struct::True> + Sync {
    /// PyO3's slots of the class.
    fn general() -> &'static Slots;

    /// The table of an object.
    fn table<'a, 'py>(object: &'a Bound<'py, Self>) -> &'a Bound<'py, Table>;
}

impl OverTable for Table {
    #[inline(always)]
    fn general() -> &'static Slots {
        static OF_TABLES: Slots = Slots::new(General::NONE);
        &OF_TABLES
    }

    #[inline(always)]
    fn table<'a, 'py>(object: &'a Bound<'py, Self>) -> &'a Bound<'py, Table> {
        object
    }
}

impl OverTable for Database {
    #[inline(always)]
    fn general() -> &'static Slots {
        static OF_DATABASES: Slots = Slots::new(General::NONE);
        &OF_DATABASES
    }

    #[inline(always)]
    fn table<'a, 'py>(object: &'a Bound<'py, Self>) -> &'a Bound<'py, Table> {
        object.get().default(object.py())
    }
}

/// Turns a panic into an exception, since no panic may leave a slot.
#[inline(always)]
fn tried<R>(work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
    result.unwrap_or_else(|_| Err(errors::internal("an access to a table panicked")))
}

/// # Safety
/// `object` is a live object of this class.
#[inline(always)]
unsafe fn typed<'a, T>(py: Python<'_>, object: *mut ffi::PyObject) -> Borrowed<'a, '_, T> {
    // SAFETY: as promised by the caller.
    unsafe { Borrowed::from_ptr(py, object).cast_unchecked::<T>() }
}

/// The characters of an ASCII str; None for any other object.
///
/// # Safety
/// `object` is live, and outlives the result.
#[inline(always)]
unsafe fn characters<'a>(object: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: as promised by the caller; the type is checked here.
    unsafe {
        if ffi::Py_TYPE(object) == &raw mut ffi::PyUnicode_Type { text::ascii_of(object) } else { None }
    }
}

/// `mp_subscript` of a class.
///
/// # Safety
/// CPython calls it with an object of the class and any object, and with the GIL held.
unsafe extern "C" fn subscript<T: OverTable>(
    object: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
) -> *mut ffi::PyObject {
    // SAFETY: called from the interpreter, so the GIL is held; the objects live during the call.
    let (py, characters) = unsafe { (Python::assume_attached(), characters(key)) };
    if let Some(characters) = characters {
        // SAFETY: as promised by the caller.
        let object = unsafe { typed::<T>(py, object) };
        match tried(|| Table::value_of_short(T::table(&object), characters)) {
            Ok(Some(value)) => return value.into_ptr(),
            Ok(None) => {}
            Err(error) => {
                gil::restore(error);
                return std::ptr::null_mut();
            }
        }
    }
    let Some(general) = T::general().get().get else {
        gil::restore(errors::internal("a mapping has no slot"));
        return std::ptr::null_mut();
    };
    // SAFETY: the slot of this class, called as CPython would.
    unsafe { general(object, key) }
}

/// `mp_ass_subscript` of a class.
///
/// # Safety
/// CPython calls it with an object of the class, any object, and any object or null, and with the
/// GIL held.
unsafe extern "C" fn ass_subscript<T: OverTable>(
    object: *mut ffi::PyObject,
    key: *mut ffi::PyObject,
    value: *mut ffi::PyObject,
) -> std::ffi::c_int {
    // SAFETY: called from the interpreter, so the GIL is held; the objects live during the call.
    let (py, characters) = unsafe { (Python::assume_attached(), characters(key)) };
    if let Some(characters) = characters
        && !value.is_null()
        // SAFETY: a live object, during the call.
        && let Some(value) = unsafe { item::simple(value) }
    {
        // SAFETY: as promised by the caller.
        let object = unsafe { typed::<T>(py, object) };
        match tried(|| T::table(&object).get().put_short(py, characters, value)) {
            Ok(true) => return 0,
            Ok(false) => {}
            Err(error) => {
                gil::restore(error);
                return -1;
            }
        }
    }
    let Some(general) = T::general().get().set else {
        gil::restore(errors::internal("a mapping has no slot"));
        return -1;
    };
    // SAFETY: the slot of this class, called as CPython would.
    unsafe { general(object, key, value) }
}

/// Puts the slots above ahead of those that PyO3 has made.
pub fn install(py: Python<'_>) {
    install_for::<Table>(py);
    install_for::<Database>(py);
}

fn install_for<T: OverTable>(py: Python<'_>) {
    let kind = py.get_type::<T>().as_type_ptr();
    // SAFETY: a heap type of ours that no other code has seen yet and that cannot be subclassed;
    // `tp_as_mapping` of a heap type points to its own table.
    unsafe {
        let mapping = (*kind).tp_as_mapping;
        if T::general().get().get.is_some() {
            // They are set already: an earlier import failed after this.
            return;
        }
        T::general().set(General { get: (*mapping).mp_subscript, set: (*mapping).mp_ass_subscript });
        (*mapping).mp_subscript = Some(subscript::<T>);
        (*mapping).mp_ass_subscript = Some(ass_subscript::<T>);
        ffi::PyType_Modified(kind);
    }
}
