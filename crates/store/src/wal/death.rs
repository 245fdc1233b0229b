//! Makes a process die between two stores into a log, for tests.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    /// Steps that this thread may still take.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

struct Death;

pub(super) fn step() {
    let left = LEFT.get();
    if left == 0 {
        LEFT.set(u64::MAX);
        resume_unwind(Box::new(Death));
    }
    LEFT.set(left.saturating_sub(u64::from(left != u64::MAX)));
}

/// Run `act`, which dies before the step with this number. `None` if it died.
pub(crate) fn at<T>(step: u64, act: impl FnOnce() -> T) -> Option<T> {
    LEFT.set(step);
    let done = catch_unwind(AssertUnwindSafe(act));
    LEFT.set(u64::MAX);
    match done {
        Ok(done) => Some(done),
        Err(death) if death.is::<Death>() => None,
        Err(other) => resume_unwind(other),
    }
}
