//! Pauses of CPython's cyclic garbage collector.

use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyCFunction, PyDict};

use crate::hot::gil::GilValue;

/// How many pauses will switch the collector on again.
static PAUSES: GilValue<u32> = GilValue::new(0);

/// Keeps the cyclic garbage collector from running until this is dropped.
///
/// The pause that switched the collector off switches it on again, also if the call fails. A pause
/// inside of a pause does nothing, and so does one of a program that has switched it off itself.
pub struct CollectorPause {
    was_enabled: bool,
}

impl CollectorPause {
    /// Pauses the collector.
    pub fn new(py: Python<'_>) -> Self {
        watch_forks(py);
        // SAFETY: the token proves the GIL. The call returns whether the collector was enabled.
        let was_enabled = unsafe { ffi::PyGC_Disable() } == 1;
        PAUSES.set(PAUSES.get() + u32::from(was_enabled));
        Self { was_enabled }
    }
}

impl Drop for CollectorPause {
    fn drop(&mut self) {
        // A forked child has none of the pauses of its parent's threads.
        if self.was_enabled && PAUSES.get() > 0 {
            PAUSES.set(PAUSES.get() - 1);
            // SAFETY: pauses live on the stack of a call from Python, which holds the GIL.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}

/// Has a forked child switch the collector on: the thread that paused it may not be there.
fn watch_forks(py: Python<'_>) {
    static WATCHED: PyOnceLock<()> = PyOnceLock::new();
    let registered = WATCHED.get_or_try_init(py, || {
        let resume = PyCFunction::new_closure(py, None, None, |_arguments, _keywords| {
            if PAUSES.get() > 0 {
                PAUSES.set(0);
                // SAFETY: called by the interpreter, which holds the GIL.
                unsafe { ffi::PyGC_Enable() };
            }
        })?;
        let keywords = PyDict::new(py);
        keywords.set_item("after_in_child", resume)?;
        py.import("os")?.getattr("register_at_fork")?.call((), Some(&keywords)).map(|_| ())
    });
    // It fails only where there is no memory; then the next pause tries again.
    drop(registered);
}
