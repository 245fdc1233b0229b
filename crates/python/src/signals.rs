//! Ctrl-C and other signals, noticed in the midst of native work.

use pellucid_query::stoppable::Pace;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::callbacks;

/// Whether Ctrl-C waits to be noticed.
pub fn is_interrupted() -> bool {
    Python::attach(|py| match callbacks::check_signals(py) {
        Ok(()) => false,
        Err(error) => {
            error.restore(py);
            true
        }
    })
}

/// As `is_interrupted`, in work that has the GIL: whoever waits for it gets it first.
pub fn is_interrupted_at_turn() -> bool {
    Python::attach(|py| callbacks::released(py, || ()));
    is_interrupted()
}

/// Looks at signals now and then, in work that calls no Python of its own: so often that Ctrl-C is answered within 100 ms, however long a step takes.
pub struct Signals(Pace<fn() -> bool>);

impl Signals {
    /// Looks as steps are made.
    pub fn new() -> Self {
        Self(Pace::new(is_interrupted))
    }

    /// The same in work that has the GIL, and lets other threads have their turn.
    pub fn by_turns() -> Self {
        Self(Pace::by_turns(is_interrupted_at_turn))
    }

    /// Says that a step was made.
    ///
    /// # Errors
    /// What a signal handler raises.
    #[inline]
    pub fn step(&mut self, py: Python<'_>) -> PyResult<()> {
        self.0.step().map_err(|_| errors::stopped(py))
    }

    /// Says that a step was made, and whether to go on: for the store, which raises `Stopped` then (`store_errors::of_store`).
    #[inline]
    pub fn go_on(&mut self) -> bool {
        self.0.step().is_ok()
    }
}
