//! Warns of a database that is collected without having been closed.

use pyo3::exceptions::PyResourceWarning;
use pyo3::prelude::*;

use crate::hot::call_site::CallSite;
use crate::hot::callbacks;
use crate::hot::gil::GilRc;
use crate::values::row::ValidityFlag;

/// What a database is warned of with, when the last of its handles is collected.
pub struct Unclosed {
    /// The line of the program that opened it; None if it needs no close, as one in memory.
    pub opened_at: Option<CallSite>,
    /// The path as the user gave it.
    pub target: String,
    /// Open until `close`.
    pub validity: GilRc<ValidityFlag>,
}

/// The line that opens a database; None for one that the package itself opens, and closes, for a
/// call of the user's, and for the drop-ins, since what they replace warns of nothing.
pub fn opened_at(py: Python<'_>) -> Option<CallSite> {
    let module = py.import("sys").and_then(|sys| {
        let globals = sys.call_method0("_getframe")?.getattr("f_globals")?;
        globals.call_method1("get", ("__name__", ""))?.extract::<String>()
    });
    let is_ours = module.is_ok_and(|module| module.starts_with("pellucid."));
    if is_ours { None } else { CallSite::here(py) }
}

impl Drop for Unclosed {
    fn drop(&mut self) {
        if let Some(opened_at) = self.opened_at.take().filter(|_| self.validity.is_open()) {
            // The interpreter may be gone.
            let _ = Python::try_attach(|py| warn(py, &self.target, &opened_at));
        }
    }
}

/// Issues the `ResourceWarning`, if this is not the end of the program: there, the order in which
/// objects are collected says nothing about it. What is raised at this moment stays so: no Python
/// code may run while an exception is set.
#[cold]
fn warn(py: Python<'_>, target: &str, opened_at: &CallSite) {
    let raised = PyErr::take(py);
    if let Err(error) = warn_of(py, target, opened_at) {
        // As with all that goes wrong in a finalizer: the warning may be an error.
        error.write_unraisable(py, None);
    }
    if let Some(raised) = raised {
        raised.restore(py);
    }
}

fn warn_of(py: Python<'_>, target: &str, opened_at: &CallSite) -> PyResult<()> {
    let is_ending = py.import("sys").and_then(|sys| sys.call_method0("is_finalizing")?.is_truthy());
    if is_ending.unwrap_or(true) {
        return Ok(());
    }
    callbacks::code_may_run(py);
    let message = format!(
        "database {target} was not closed; it was opened at {}: use `with pellucid.open(...) as db:`, or call db.close()",
        opened_at.show(py)
    );
    let arguments = (message, py.get_type::<PyResourceWarning>(), 1);
    py.import("warnings")?.getattr("warn")?.call1(arguments).map(drop)
}
