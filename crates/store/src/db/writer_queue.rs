//! The queue of writers: the writer lock among the threads of this process.
//!
//! This is the inner of two writer locks. Threads wait here, with a timeout, before one of them
//! takes the lock between processes (`txn/writer_lock.rs`). LMDB has a lock of its own for both,
//! but waiting for it has no timeout.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, Thread, ThreadId};
use std::time::{Duration, Instant};

/// How often a waiting thread calls `go_on`.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// A lock that one thread at a time holds.
#[derive(Default)]
pub(crate) struct WriterQueue {
    inside: Mutex<Inside>,
}

#[derive(Default)]
struct Inside {
    owner: Option<ThreadId>,
    /// The waiting threads, the longest first. They keep their places while they call `go_on`.
    waiting: VecDeque<Thread>,
}

impl Inside {
    /// Wake the thread that has waited longest.
    fn wake(&self) {
        if let Some(first) = self.waiting.front().filter(|_| self.owner.is_none()) {
            first.unpark();
        }
    }
}

/// Why a waiting thread gave up.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The deadline passed.
    Late,
    /// `go_on` returned false.
    Stopped,
}

/// The right to write in this process. Dropping it, in any thread, ends the turn.
pub(crate) struct WriterTurn(Arc<WriterQueue>);

impl WriterQueue {
    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wait until no other thread has the turn, until `deadline` at most, and while `go_on`
    /// returns true. `go_on` is called at intervals and does not panic.
    pub(crate) fn enter(
        self: &Arc<Self>,
        deadline: Instant,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<WriterTurn, Refused> {
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
                // `go_on` may need a lock that the thread that has the turn holds (the GIL).
                let goes_on = go_on();
                inside = self.lock();
                if inside.owner.is_none() {
                    break Ok(());
                }
                if !goes_on {
                    break Err(Refused::Stopped);
                }
            };
            // The place that this call took: `go_on` may have entered the queue too, and left it
            // again.
            let place = inside.waiting.iter().rposition(|waiting| waiting.id() == own.id());
            place.and_then(|place| inside.waiting.remove(place));
            if let Err(refused) = waited {
                inside.wake();
                return Err(refused);
            }
        }
        inside.owner = Some(thread::current().id());
        Ok(WriterTurn(Arc::clone(self)))
    }

    /// Enter if no thread has the turn and none waits.
    pub(crate) fn try_enter(self: &Arc<Self>) -> Option<WriterTurn> {
        let mut inside = self.lock();
        if inside.owner.is_some() || !inside.waiting.is_empty() {
            return None;
        }
        inside.owner = Some(thread::current().id());
        Some(WriterTurn(Arc::clone(self)))
    }
}

impl Drop for WriterTurn {
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
        let queue = Arc::new(WriterQueue::default());
        let guard = queue.try_enter().expect("no thread is inside");
        assert!(queue.try_enter().is_none());
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                drop(queue.enter(Instant::now() + Duration::from_secs(60), &mut || true).expect("in time"));
            });
            while queue.lock().waiting.is_empty() {
                thread::yield_now();
            }
            // As it is for a moment after a guard was dropped: no thread has the turn, one is
            // about to enter.
            queue.lock().owner = None;
            assert!(queue.try_enter().is_none());
            drop(guard);
            waiter.join().unwrap();
        });
        assert!(queue.try_enter().is_some());
    }

    #[test]
    fn whoever_enters_while_it_is_asked_leaves_its_place_alone() {
        let queue = Arc::new(WriterQueue::default());
        let _guard = queue.try_enter().expect("no thread is inside");
        let mut places = Vec::new();
        let late = Instant::now() + Duration::from_secs(60);
        let refused = queue.enter(late, &mut || {
            let soon = Instant::now() + Duration::from_millis(1);
            assert_eq!(queue.enter(soon, &mut || true).err(), Some(Refused::Late));
            places.push(queue.lock().waiting.len());
            false
        });
        assert_eq!((refused.err(), places), (Some(Refused::Stopped), vec![1]));
        assert!(queue.lock().waiting.is_empty());
    }

    #[test]
    fn whoever_gives_up_is_in_nobodys_way() {
        let queue = Arc::new(WriterQueue::default());
        let guard = queue.try_enter().expect("no thread is inside");
        let soon = Instant::now() + Duration::from_millis(1);
        assert_eq!(queue.enter(soon, &mut || true).err(), Some(Refused::Late));
        let late = Instant::now() + Duration::from_secs(60);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (queue, is_over) = (&queue, &is_over);
            let stopped = scope.spawn(|| queue.enter(late, &mut || !is_over.load(Ordering::Relaxed)).err());
            while queue.lock().waiting.is_empty() {
                thread::yield_now();
            }
            let patient = scope.spawn(|| queue.enter(late, &mut || true).is_ok());
            while queue.lock().waiting.len() < 2 {
                thread::yield_now();
            }
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(stopped.join().unwrap(), Some(Refused::Stopped));
            assert_eq!(queue.lock().waiting.len(), 1);
            drop(guard);
            assert!(patient.join().unwrap());
        });
        assert!(queue.try_enter().is_some());
    }
}
