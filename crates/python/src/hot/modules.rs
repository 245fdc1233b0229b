//! Look up modules that are already imported, without importing them.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyString;

/// The module of this name if it is already imported. A failing import with its exception would be
/// an eighth of a short transaction.
pub fn loaded<'py>(name: &Bound<'py, PyString>) -> Option<Bound<'py, PyAny>> {
    let py = name.py();
    // SAFETY: `py` proves the GIL, and `name` is a live object; the call returns a new reference or
    // null.
    let found = unsafe { Bound::from_owned_ptr_or_opt(py, ffi::PyImport_GetModule(name.as_ptr())) };
    if found.is_none() {
        // A missing module sets no exception; a `sys.modules` that is not a dict may.
        drop(PyErr::take(py));
    }
    // None in `sys.modules` means that the module must not be imported.
    found.filter(|module| !module.is_none())
}

/// The module that `collections.abc` takes its abstract classes from.
///
/// Each interpreter has imported it at its start. The package `collections` would take as long as
/// the rest of `import pellucid`'s Python code.
///
/// # Errors
/// `ImportError` if this interpreter has no such module.
pub fn abstract_classes(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("_collections_abc")
}

/// Whether `object` is an instance of exactly this class. If its module was never imported the
/// answer is no, and the module stays unloaded.
pub fn is_instance_of(object: &Bound<'_, PyAny>, module: &str, class: &str) -> PyResult<bool> {
    let kind = object.get_type();
    if kind.name()?.to_str()? != class {
        return Ok(false);
    }
    match loaded(&PyString::new(object.py(), module)) {
        Some(module) => Ok(module.getattr(class)?.is(&kind)),
        None => Ok(false),
    }
}
