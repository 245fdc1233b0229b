//! What notebooks and `pprint` ask records for.
//!
//! All names of a record are fields, but for the frozen list of methods. A notebook asks each
//! object for two names more. A record has them only where it has no field of that name.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::hot::{callbacks, modules};

/// The names that `IPython` asks for.
const ASKED: [&str; 2] = ["_repr_html_", "_ipython_key_completions_"];

/// The method of such a name, of a record that has no field of that name; None for other names.
///
/// # Errors
/// What the import of the method's module raises.
pub fn method<'py>(
    record: &Bound<'py, PyAny>,
    name: &Bound<'py, PyAny>,
) -> PyResult<Option<Bound<'py, PyAny>>> {
    let Ok(name) = name.cast::<PyString>() else { return Ok(None) };
    if !name.to_str().is_ok_and(|name| ASKED.contains(&name)) {
        return Ok(None);
    }
    let py = record.py();
    callbacks::code_may_run(py);
    let function = py.import("pellucid.look.verbs")?.getattr(name)?;
    function.call_method1("__get__", (record,)).map(Some)
}

/// Tells `pprint`, once it is imported, to break the lines of records as it does those of dicts.
///
/// It asks each object for its `repr` first, so that this is early enough, and `import pellucid`
/// does not import it.
///
/// # Errors
/// What `pprint` raises.
pub fn meet_pprint(py: Python<'_>) -> PyResult<()> {
    static IS_DONE: AtomicBool = AtomicBool::new(false);
    if IS_DONE.load(Ordering::Relaxed) || modules::loaded(intern!(py, "pprint")).is_none() {
        return Ok(());
    }
    IS_DONE.store(true, Ordering::Relaxed);
    callbacks::code_may_run(py);
    py.import("pellucid.look.pretty")?.call_method0("register")?;
    Ok(())
}
