//! Which modules does the program have?

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The module of this name, if somebody has imported it. An import that may fail, and the exception that says so, would be an
/// eighth of a short transaction.
pub fn loaded<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    let py = name.py();
    // SAFETY: the GIL is held, as `py` says, and `name` is a live object; the call gives a reference of our own, or none.
    let found = unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyImport_GetModule(name.as_ptr())) };
    if found.is_none() {
        // None of that name is no error; where `sys.modules` is no dict there may be one.
        drop(PyErr::take(py));
    }
    found
}

/// Whether `object` is exactly of a class of a module that may never have been imported: then it
/// cannot be, and the module stays unloaded.
pub fn is_instance_of(object: &Bound<'_, PyAny>, module: &str, class: &str) -> PyResult<bool> {
    let py = object.py();
    let kind = object.get_type();
    if kind.name()?.to_str()? != class {
        return Ok(false);
    }
    let modules = py.import("sys")?.getattr("modules")?;
    match modules.get_item(module) {
        Ok(module) => Ok(module.getattr(class)?.is(&kind)),
        Err(_) => Ok(false),
    }
}
