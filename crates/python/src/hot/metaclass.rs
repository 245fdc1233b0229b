//! Gives a class of this module a class of its own, in the place of `type`.

use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyType;

/// Makes `meta` the class of `class`, which is final and of a `pyclass`, unless a former import of
/// the module did so.
///
/// # Errors
/// `meta` is not derived from `type`, or adds fields to it.
pub fn set(class: &Bound<'_, PyType>, meta: &Bound<'_, PyType>) -> PyResult<()> {
    let plain = class.py().get_type::<PyType>();
    let size_of = |class: &Bound<'_, PyType>| class.getattr("__basicsize__")?.extract::<usize>();
    if !meta.is_subclass(&plain)? || size_of(meta)? != size_of(&plain)? {
        return Err(PyTypeError::new_err("the metaclass has another layout than type"));
    }
    if !class.get_type().is(&plain) {
        return Ok(());
    }
    // SAFETY: a heap type, as each `pyclass` is, owns a reference to its class: the one to `meta`
    // is given to it here. Both classes are of `type`'s layout, and are never freed. `type` itself
    // is static, so that the reference to it is not counted.
    unsafe { (*class.as_ptr()).ob_type = meta.clone().into_ptr().cast() };
    Ok(())
}
