//! Handle Ctrl-C and other signals during native work.

use pellucid_query::stoppable::Pace;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::callbacks;

/// Runs pending signal handlers; true if one has raised, which leaves its exception set.
pub fn is_interrupted() -> bool {
    Python::attach(|py| match callbacks::check_signals(py) {
        Ok(()) => false,
        Err(error) => {
            error.restore(py);
            true
        }
    })
}

/// As `is_interrupted`, for work that holds the GIL: threads that wait for the GIL get it first.
pub fn is_interrupted_at_turn() -> bool {
    Python::attach(|py| callbacks::released(py, || ()));
    is_interrupted()
}

/// Checks signals from time to time during native work, often enough to answer Ctrl-C within 100
/// ms, however long a step takes.
pub struct Signals(Pace<fn() -> bool>);

impl Signals {
    /// Checks signals and does nothing else.
    pub fn new() -> Self {
        Self(Pace::new(is_interrupted))
    }

    /// Checks signals and lets other threads have the GIL, for work that holds it.
    pub fn by_turns() -> Self {
        Self(Pace::by_turns(is_interrupted_at_turn))
    }

    /// Counts a step.
    ///
    /// # Errors
    /// What a signal handler raises.
    #[inline]
    pub fn step(&mut self, py: Python<'_>) -> PyResult<()> {
        self.0.step().map_err(|_| errors::stopped(py))
    }

    /// Counts a step, and says whether to go on. For the store, which raises `Stopped` if not
    /// (`store_errors::of_store`).
    #[inline]
    pub fn go_on(&mut self) -> bool {
        self.0.step().is_ok()
    }
}
