//! Which thread of this process may write?
//!
//! The inner of two writer locks: threads wait here, with a timeout, before one of them takes the lock between
//! processes (`writer_lock.rs`). LMDB has a lock of its own for both, but nobody can stop waiting for it.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

/// A door that one thread at a time goes through.
#[derive(Default)]
pub(crate) struct Gate {
    inside: Mutex<Inside>,
    opened: Condvar,
}

#[derive(Default)]
struct Inside {
    owner: Option<ThreadId>,
    /// How many wait: to wake nobody costs a system call.
    waiting: u32,
}

/// The right to write in this process; dropping it, in whatever thread, gives it up.
pub(crate) struct GateGuard(Arc<Gate>);

impl Gate {
    /// Wait until nobody else is inside, at most until `deadline`.
    pub(crate) fn enter(self: &Arc<Self>, deadline: Instant) -> Option<GateGuard> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        while inside.owner.is_some() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left == Duration::ZERO {
                return None;
            }
            inside.waiting += 1;
            inside = self.opened.wait_timeout(inside, left).unwrap_or_else(PoisonError::into_inner).0;
            inside.waiting -= 1;
        }
        inside.owner = Some(thread::current().id());
        Some(GateGuard(Arc::clone(self)))
    }

    /// Enter where nobody is inside, and nobody waits who was there first.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<GateGuard> {
        let mut inside = self.inside.lock().unwrap_or_else(PoisonError::into_inner);
        if inside.owner.is_some() || inside.waiting > 0 {
            return None;
        }
        inside.owner = Some(thread::current().id());
        Some(GateGuard(Arc::clone(self)))
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        let mut inside = self.0.inside.lock().unwrap_or_else(PoisonError::into_inner);
        inside.owner = None;
        if inside.waiting > 0 {
            self.0.opened.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn whoever_waits_goes_ahead_of_those_who_try() {
        let gate = Arc::new(Gate::default());
        let guard = gate.try_enter().expect("nobody is inside");
        assert!(gate.try_enter().is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                drop(gate.enter(Instant::now() + Duration::from_secs(60)).expect("in time"));
            });
            while gate.inside.lock().unwrap().waiting == 0 {
                thread::yield_now();
            }
            // As it is for a moment after the guard went: nobody inside, one about to enter.
            gate.inside.lock().unwrap().owner = None;
            assert!(gate.try_enter().is_none());
            drop(guard);
            waiter.join().unwrap();
        });
        assert!(gate.try_enter().is_some());
    }
}
