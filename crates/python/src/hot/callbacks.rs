//! Where can Python code run in the middle of native work, and who has to know?
//!
//! Python code runs in a signal handler, in the garbage collector's finalizers (since Python 3.12 the collector runs where
//! signals are looked at, before that wherever an object that it tracks is made), in another thread while the GIL is released,
//! in an import, and in whatever a value's own class defines. Any of it can free or change an object that native code has
//! borrowed.
//!
//! Code that borrows across such a place compares `epoch()` before and after it: the same number means that no Python code
//! has run between the two. Signals are looked at, and the GIL is released, in this file alone (`tests/test_tidy.py` holds
//! that); everything else that calls Python code between two elements of a list says so through `code_may_run`.

use pyo3::marker::Ungil;
use pyo3::prelude::*;

use crate::hot::gil::GilValue;

static EPOCH: GilValue<u64> = GilValue::new(0);

/// A number that changes whenever Python code may have run.
#[inline]
pub fn epoch(_py: Python<'_>) -> u64 {
    EPOCH.get()
}

/// Python code may run here, or has run: borrowed objects may be freed.
#[inline]
pub fn code_may_run(_py: Python<'_>) {
    EPOCH.set(EPOCH.get().wrapping_add(1));
}

/// Runs signal handlers that are due, and on some versions of Python the garbage collector.
///
/// # Errors
/// What a handler raises.
pub fn check_signals(py: Python<'_>) -> PyResult<()> {
    code_may_run(py);
    py.check_signals()
}

/// Runs `work` with the GIL released; other threads run Python code meanwhile.
pub fn released<T, F>(py: Python<'_>, work: F) -> T
where
    F: Ungil + FnOnce() -> T,
    T: Ungil,
{
    code_may_run(py);
    py.detach(work)
}
