//! Lets long work notice that it has to stop.
//!
//! A [`Pace`] asks often enough to answer within some 20 ms, however long a step takes. Sorts call
//! it at each of their steps.

use std::cmp::Ordering;
use std::time::{Duration, Instant};

use pellucid_store::sort::many;
pub use pellucid_store::sort::many::{Many, release};

use crate::fault::Fault;

/// The largest number of steps between two readings of the clock.
const STEPS_MAX: u32 = 64;
/// If the steps between two readings took longer than this, there will be fewer of them.
const STEPS_TIME_MAX: Duration = Duration::from_millis(4);
/// Time between two checks whether to stop. A check may take another thread's lock.
const STOP_INTERVAL: Duration = Duration::from_millis(20);
/// The same for a check that lets other threads run: as long as Python's interpreter lets a thread
/// run while others wait.
const TURN_INTERVAL: Duration = Duration::from_millis(5);

/// Asks now and then whether to stop.
pub struct Pace<F> {
    is_stopped: F,
    /// Steps until the clock is read again.
    left: u32,
    steps: u32,
    looked: Instant,
    asked: Instant,
    interval: Duration,
}

impl<F: Fn() -> bool> Pace<F> {
    /// A pace that asks `is_stopped`.
    pub fn new(is_stopped: F) -> Self {
        let now = Instant::now();
        Self { is_stopped, left: 1, steps: 1, looked: now, asked: now, interval: STOP_INTERVAL }
    }

    /// A pace that asks `is_stopped` as often as Python's interpreter switches threads, because
    /// asking lets other threads run.
    pub fn by_turns(is_stopped: F) -> Self {
        Self { interval: TURN_INTERVAL, ..Self::new(is_stopped) }
    }

    /// A pace that asks at its first step.
    #[cfg(test)]
    pub(crate) fn overdue(is_stopped: F) -> Self {
        let mut pace = Self::new(is_stopped);
        pace.asked -= STOP_INTERVAL;
        pace
    }

    /// Counts a step, which may have taken up to some milliseconds.
    ///
    /// # Errors
    /// `Stopped`, if the work has to stop.
    #[inline]
    pub fn step(&mut self) -> Result<(), Fault> {
        self.left -= 1;
        if self.left == 0 { self.look() } else { Ok(()) }
    }

    #[cold]
    fn look(&mut self) -> Result<(), Fault> {
        let now = Instant::now();
        let is_slow = now - self.looked > STEPS_TIME_MAX;
        self.steps = if is_slow { (self.steps / 4).max(1) } else { (self.steps * 2).min(STEPS_MAX) };
        (self.left, self.looked) = (self.steps, now);
        if now - self.asked >= self.interval {
            self.asked = now;
            if (self.is_stopped)() {
                return Err(Fault::Stopped);
            }
        }
        Ok(())
    }
}

/// Sorts elements. Equal ones may change places.
///
/// # Errors
/// A stop.
pub fn sort<T: Send + 'static>(
    elements: Many<T>,
    order: impl Fn(&T, &T) -> Ordering + Copy,
    pace: &mut Pace<impl Fn() -> bool>,
) -> Result<Many<T>, Fault> {
    many::sort(elements, order, &mut || pace.step())
}

/// Merges sorted parts. Of equal elements, those of the earlier part come first.
///
/// # Errors
/// A stop.
pub fn merge<T: Send + 'static>(
    parts: Vec<Many<T>>,
    order: impl Fn(&T, &T) -> Ordering + Copy,
    pace: &mut Pace<impl Fn() -> bool>,
) -> Result<Many<T>, Fault> {
    many::merge(parts, order, &mut || pace.step())
}
