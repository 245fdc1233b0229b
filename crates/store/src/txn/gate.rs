//! Which thread of this process may write?
//!
//! The inner of two writer locks: threads wait here, with a timeout, before one of them takes the lock between
//! processes (`txn/writer_lock.rs`). LMDB has a lock of its own for both, but nobody can stop waiting for it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

/// Whoever waits is asked so often whether to go on.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// A door that one thread at a time goes through.
#[derive(Default)]
pub(crate) struct Gate {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    owner: Option<ThreadId>,
    /// Who waits, longest first. They keep their places while they look whether to go on.
    waiting: VecDeque<Thread>,
}

impl Inside {
    /// Have whoever has waited longest look.
    fn wake(&self) {
        if let Some(first) = self.waiting.front().filter(|_| self.owner.is_none()) {
            first.unpark();
        }
    }
}

/// Why somebody who waited did not come in.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The time is over.
    Late,
    /// They were told not to go on.
    Stopped,
}

/// The right to write in this process; dropping it, in whatever thread, gives it up.
pub(crate) struct GateGuard(Arc<Gate>);

impl Gate {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait until nobody else is inside, at most until `deadline`, and while `go_on` says so, which is asked now and then, and does not panic.
    pub(crate) fn enter(
        self: &Arc<Self>,
        deadline: Instant,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<GateGuard, Refused> {
        let mut inside = self.lock();
        if inside.owner.is_some() {
            let own = thread::current();
            inside.waiting.push_back(own.clone());
            let waited = loop {
                let left = deadline.saturating_duration_since(Instant::now());
                if left == Duration::ZERO {
                    break Err(Refused::Late);
                }
                drop(inside);
                thread::park_timeout(left.min(LOOK));
                // It may take a lock that who is inside has.
                let goes_on = go_on();
                inside = self.lock();
                if inside.owner.is_none() {
                    break Ok(());
                }
                if !goes_on {
                    break Err(Refused::Stopped);
                }
            };
            // The one that this call took: whoever is asked may have entered too, and come back.
            let place = inside.waiting.iter().rposition(|waiting| waiting.id() == own.id());
            place.and_then(|place| inside.waiting.remove(place));
            if let Err(refused) = waited {
                inside.wake();
                return Err(refused);
            }
        }
        inside.owner = Some(thread::current().id());
        Ok(GateGuard(Arc::clone(self)))
    }

    /// Enter where nobody is inside, and nobody waits who was there first.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<GateGuard> {
        let mut inside = self.lock();
        if inside.owner.is_some() || !inside.waiting.is_empty() {
            return None;
        }
        inside.owner = Some(thread::current().id());
        Some(GateGuard(Arc::clone(self)))
    }
}

impl Drop for GateGuard {
    fn drop(&mut self) {
        let mut inside = self.0.lock();
        inside.owner = None;
        inside.wake();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::*;

    #[test]
    fn whoever_waits_goes_ahead_of_those_who_try() {
        let gate = Arc::new(Gate::default());
        let guard = gate.try_enter().expect("nobody is inside");
        assert!(gate.try_enter().is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                drop(gate.enter(Instant::now() + Duration::from_secs(60), &mut || true).expect("in time"));
            });
            while gate.lock().waiting.is_empty() {
                thread::yield_now();
            }
            // As it is for a moment after the guard went: nobody inside, one about to enter.
            gate.lock().owner = None;
            assert!(gate.try_enter().is_none());
            drop(guard);
            waiter.join().unwrap();
        });
        assert!(gate.try_enter().is_some());
    }

    #[test]
    fn whoever_enters_while_it_is_asked_leaves_its_place_alone() {
        let gate = Arc::new(Gate::default());
        let _guard = gate.try_enter().expect("nobody is inside");
        let mut places = Vec::new();
        let late = Instant::now() + Duration::from_secs(60);
        let refused = gate.enter(late, &mut || {
            let soon = Instant::now() + Duration::from_millis(1);
            assert_eq!(gate.enter(soon, &mut || true).err(), Some(Refused::Late));
            places.push(gate.lock().waiting.len());
            false
        });
        assert_eq!((refused.err(), places), (Some(Refused::Stopped), vec![1]));
        assert!(gate.lock().waiting.is_empty());
    }

    #[test]
    fn whoever_gives_up_is_in_nobodys_way() {
        let gate = Arc::new(Gate::default());
        let guard = gate.try_enter().expect("nobody is inside");
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(gate.enter(soon, &mut || true).err(), Some(Refused::Late));
        let late = Instant::now() + Duration::from_secs(60);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (gate, is_over) = (&gate, &is_over);
            let stopped = scope.spawn(|| gate.enter(late, &mut || !is_over.load(Ordering::Relaxed)).err());
            while gate.lock().waiting.is_empty() {
                thread::yield_now();
            }
            let patient = scope.spawn(|| gate.enter(late, &mut || true).is_ok());
            while gate.lock().waiting.len() < 2 {
                thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(stopped.join().unwrap(), Some(Refused::Stopped));
            assert_eq!(gate.lock().waiting.len(), 1);
            drop(guard);
            assert!(patient.join().unwrap());
        });
        assert!(gate.try_enter().is_some());
    }
}
