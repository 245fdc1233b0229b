//! The latch: a mutex for short, frequent, rarely contended critical sections.
//!
//! It works like a `Mutex`, but is released by a plain store. A mutex is released by an atomic
//! exchange, to find out whether a thread waits. That makes the processor finish everything before
//! it and hold back everything after it: three of them were a fifth of `table[k]`, most of that
//! waiting for the next key, which could have been loaded meanwhile. Here waiters are counted in a
//! second word, which the owner reads after its store. That read may be executed before the store,
//! so waiters sleep with a timeout.
//!
//! Invariant: only the thread that has changed `held` from 0 to 1 accesses the content, until it
//! stores 0.
#![allow(unsafe_code)]

use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::sys::wait;

const SPINS: u32 = 100;
/// A waiter that was not woken looks again after this time.
const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_millis(16);
const CHANNEL: u32 = 0;

/// A value for one thread at a time. Not poisoned by a panic: its content has to be sound at every
/// moment.
pub(crate) struct Latch<T> {
    held: AtomicU64,
    /// How many threads wait.
    waiting: AtomicU64,
    content: UnsafeCell<T>,
}

// SAFETY: one thread at a time accesses the content (the invariant), and it may be any thread.
unsafe impl<T: Send> Sync for Latch<T> {}

/// Access to the content, until this is dropped.
pub(crate) struct LatchGuard<'a, T> {
    latch: &'a Latch<T>,
    /// Sent to another thread, or shared, as the content itself may be.
    _content: PhantomData<&'a mut T>,
}

impl<T> Latch<T> {
    pub(crate) const fn new(content: T) -> Self {
        Self { held: AtomicU64::new(0), waiting: AtomicU64::new(0), content: UnsafeCell::new(content) }
    }

    /// Wait for the latch and take it.
    #[inline]
    pub(crate) fn lock(&self) -> LatchGuard<'_, T> {
        match self.try_lock() {
            Some(held) => held,
            None => self.wait(),
        }
    }

    /// Take the latch if it is free.
    #[inline]
    pub(crate) fn try_lock(&self) -> Option<LatchGuard<'_, T>> {
        self.held.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).ok()?;
        Some(LatchGuard { latch: self, _content: PhantomData })
    }

    #[cold]
    fn wait(&self) -> LatchGuard<'_, T> {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.held.load(Ordering::Relaxed) == 0
                && let Some(held) = self.try_lock()
            {
                return held;
            }
        }
        self.waiting.fetch_add(1, Ordering::SeqCst);
        let mut pause = PAUSE_MIN;
        let held = loop {
            if let Some(held) = self.try_lock() {
                break held;
            }
            wait::wait(&self.held, 1, CHANNEL, pause);
            pause = (pause * 2).min(PAUSE_MAX);
        };
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        held
    }

    #[cold]
    fn wake(&self) {
        wait::wake(&self.held, CHANNEL, 1);
    }
}

impl<T> Deref for LatchGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the owner of a `LatchGuard` has changed the word (the invariant), and references
        // end before it is dropped.
        unsafe { &*self.latch.content.get() }
    }
}

impl<T> DerefMut for LatchGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above, and `self` is borrowed mutably.
        unsafe { &mut *self.latch.content.get() }
    }
}

impl<T> Drop for LatchGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.latch.held.store(0, Ordering::Release);
        if self.latch.waiting.load(Ordering::Relaxed) != 0 {
            self.latch.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_has_it_and_everybody_gets_it() {
        const THREADS: u64 = 4;
        const TURNS: u64 = 20_000;
        let latch = Latch::new((0_u64, 0_u64));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for turn in 0..TURNS {
                        let mut pair = latch.lock();
                        assert_eq!(pair.0, pair.1);
                        pair.0 += 1;
                        if turn % 1000 == 0 {
                            // Long enough for the others to fall asleep.
                            std::thread::sleep(Duration::from_micros(300));
                        }
                        pair.1 += 1;
                    }
                });
            }
        });
        assert_eq!(*latch.lock(), (THREADS * TURNS, THREADS * TURNS));
    }

    #[test]
    fn who_will_not_wait_is_told_that_somebody_has_it() {
        let latch = Latch::new(7);
        let held = latch.lock();
        assert!(latch.try_lock().is_none());
        drop(held);
        assert_eq!(latch.try_lock().map(|held| *held), Some(7));
    }
}
