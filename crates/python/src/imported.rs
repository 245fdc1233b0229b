//! Import the package more than once in a process.
//!
//! Test tools that restore `sys.modules`, autodoc and reloaders drop modules and import them again.
//! The classes of this module exist once in a process, and so do the files that are open. A second
//! set of Python modules beside them would have other error classes than those that the first set
//! catches, and would know no registered class. So a second import gives the modules of the first.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};

/// The package `pellucid`, once its first import has ended.
static FIRST: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Ends an import of the package: keeps it if it is the first one.
///
/// # Errors
/// What `sys.modules` raises, if it is no dict.
#[pyfunction]
#[pyo3(name = "_imported")]
pub fn imported(package: &Bound<'_, PyModule>) -> PyResult<()> {
    if FIRST.set(package.py(), package.clone().unbind()).is_ok() {
        return Ok(());
    }
    restore(package.py())
}

/// Puts the modules of the first import into `sys.modules`, if there was one.
///
/// # Errors
/// As for `imported`.
pub fn restore(py: Python<'_>) -> PyResult<()> {
    let Some(package) = FIRST.get(py) else { return Ok(()) };
    put(&py.import("sys")?.getattr("modules")?, package.bind(py))
}

/// Puts a module of ours and the modules below it into `modules`. A package has each module below
/// it as an attribute.
fn put(modules: &Bound<'_, PyAny>, module: &Bound<'_, PyModule>) -> PyResult<()> {
    let name = module.name()?.to_string();
    modules.set_item(&name, module)?;
    let attributes: Bound<'_, PyDict> = module.dict().copy()?;
    for (attribute, value) in attributes {
        let Ok(below) = value.cast::<PyModule>() else { continue };
        if below.name()?.to_string() == format!("{name}.{attribute}") {
            put(modules, below)?;
        }
    }
    Ok(())
}
