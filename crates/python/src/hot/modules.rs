//! Look up modules that are already imported, without importing them.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType, PyTypeMethods};

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

/// Whether `object` is a mapping, as `collections.abc` says.
///
/// PyO3's own test loses an error, such as the one of a signal that comes meanwhile.
///
/// # Errors
/// What code of the object's class raises, and what a signal handler raises.
pub fn is_mapping(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    object.is_instance(&abstract_classes(object.py())?.getattr("Mapping")?)
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

/// Whether the class of an object has an attribute of this name. It is looked for in the classes'
/// own dicts, so that no code of the object runs, as that of its `__getattr__`.
pub fn class_has(object: &Bound<'_, PyAny>, name: &str) -> PyResult<bool> {
    let py = object.py();
    // The getter of `type` itself, whatever the metaclass of the object's class defines.
    let getter = py.get_type::<PyType>().getattr(intern!(py, "__dict__"))?.get_item("__dict__")?;
    for class in object.get_type().mro() {
        if getter.call_method1("__get__", (&class,))?.contains(name)? {
            return Ok(true);
        }
    }
    Ok(false)
}
