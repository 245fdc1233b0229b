//! Pauses of CPython's cyclic garbage collector.

use pyo3::ffi;
use pyo3::prelude::*;

/// Keeps the cyclic garbage collector from running until this is dropped.
pub struct CollectorPause {
    was_enabled: bool,
}

impl CollectorPause {
    /// Pauses the collector; a pause inside a pause does nothing.
    pub fn new(_py: Python<'_>) -> Self {
        // SAFETY: the token proves the GIL. The call returns whether the collector was enabled.
        Self { was_enabled: unsafe { ffi::PyGC_Disable() } == 1 }
    }
}

impl Drop for CollectorPause {
    fn drop(&mut self) {
        if self.was_enabled {
            // SAFETY: pauses live on the stack of a call from Python, which holds the GIL.
            unsafe { ffi::PyGC_Enable() };
        }
    }
}
