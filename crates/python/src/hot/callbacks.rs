//! Count the places where Python code may have run during native work.
//!
//! Python code can run in a signal handler, in a finalizer that the garbage collector calls, in
//! another thread while the GIL is released, in an import, and in the methods of a value's own
//! class. (Since Python 3.12 the collector runs where signals are checked; before that, wherever an
//! object is made that it tracks.) Any of this code can free or change an object that native code
//! has borrowed.
//!
//! Native code that borrows objects across such a place compares `epoch()` before and after it: if
//! the number is the same, no Python code has run in between. Only this file checks signals and
//! releases the GIL (`tests/test_tidy.py` enforces that). All other code that calls Python code
//! between two elements of a list calls `code_may_run`.

use pyo3::marker::Ungil;
use pyo3::prelude::*;

use crate::hot::gil::GilValue;

static EPOCH: GilValue<u64> = GilValue::new(0);

/// A number that changes whenever Python code may have run.
#[inline]
pub fn epoch(_py: Python<'_>) -> u64 {
    EPOCH.get()
}

/// Notes that Python code may run here or has run, so borrowed objects may be freed.
#[inline]
pub fn code_may_run(_py: Python<'_>) {
    EPOCH.set(EPOCH.get().wrapping_add(1));
}

/// Runs pending signal handlers and, on some versions of Python, the garbage collector.
///
/// # Errors
/// What a signal handler raises.
pub fn check_signals(py: Python<'_>) -> PyResult<()> {
    code_may_run(py);
    py.check_signals()
}

/// Runs `work` with the GIL released, so other threads run Python code meanwhile.
pub fn released<T, F>(py: Python<'_>, work: F) -> T
where
    F: Ungil + FnOnce() -> T,
    T: Ungil,
{
    code_may_run(py);
    py.detach(work)
}
