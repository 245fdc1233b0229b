//! Lets long work notice that it has to stop.
//!
//! A [`Pace`] asks often enough to answer within some 20 ms, however long a step takes. Work that
//! has no steps gets some: a sort sorts pieces and merges them.

use std::cmp::Ordering;
use std::ops::{Deref, DerefMut};
use std::thread;
use std::time::{Duration, Instant};

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
/// Elements that are sorted at once: some milliseconds.
const PIECE_SIZE: usize = 1 << 14;
/// Elements that are freed at once: some milliseconds.
const LARGE_COUNT: usize = 1 << 14;

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

/// Frees this many elements. If that takes longer than a stop may, another thread does it.
pub fn release(garbage: impl Send + 'static, count: usize) {
    if count > LARGE_COUNT {
        // If no thread can be started, they are freed in this thread.
        let _ = thread::Builder::new().spawn(move || drop(garbage));
    }
}

/// Many elements that are freed without a long pause, however many they are, also if each has
/// memory of its own.
pub struct Many<T: Send + 'static>(Vec<T>);

impl<T: Send + 'static> Many<T> {
    /// A list of these elements.
    #[must_use]
    pub fn new(elements: Vec<T>) -> Self {
        Self(elements)
    }

    /// An iterator over the elements.
    #[must_use]
    pub fn into_rest(mut self) -> Rest<T> {
        Rest(std::mem::take(&mut self.0).into_iter())
    }
}

impl<T: Send + 'static> Default for Many<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Send + std::fmt::Debug + 'static> std::fmt::Debug for Many<T> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(formatter)
    }
}

impl<T: Send + 'static> Deref for Many<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.0
    }
}

impl<T: Send + 'static> DerefMut for Many<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.0
    }
}

impl<T: Send + 'static> Drop for Many<T> {
    fn drop(&mut self) {
        let elements = std::mem::take(&mut self.0);
        // Elements without memory of their own are freed at once.
        let count = if std::mem::needs_drop::<T>() { elements.len() } else { 0 };
        release(elements, count);
    }
}

/// The elements that are still to come.
pub struct Rest<T: Send + 'static>(std::vec::IntoIter<T>);

impl<T: Send + 'static> Iterator for Rest<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.0.next()
    }
}

impl<T: Send + 'static> Drop for Rest<T> {
    fn drop(&mut self) {
        let elements = std::mem::take(&mut self.0);
        // Elements without memory of their own are freed at once.
        let count = if std::mem::needs_drop::<T>() { elements.len() } else { 0 };
        release(elements, count);
    }
}

/// Sorts elements. Equal ones may change places.
///
/// # Errors
/// A stop.
pub fn sort<T: Send + 'static>(
    mut elements: Many<T>,
    order: impl Fn(&T, &T) -> Ordering + Copy,
    pace: &mut Pace<impl Fn() -> bool>,
) -> Result<Many<T>, Fault> {
    if elements.len() <= PIECE_SIZE {
        elements.sort_unstable_by(order);
        return Ok(elements);
    }
    let mut pieces = Vec::with_capacity(elements.len() / PIECE_SIZE + 1);
    while !elements.is_empty() {
        let start = elements.len().saturating_sub(PIECE_SIZE);
        let mut piece = Many::new(elements.split_off(start));
        piece.sort_unstable_by(order);
        pieces.push(piece);
        pace.step()?;
    }
    // They were split off from the end.
    pieces.reverse();
    merge(pieces, order, pace)
}

/// Merges sorted parts. Of equal elements, those of the earlier part come first.
///
/// # Errors
/// A stop.
pub fn merge<T: Send + 'static>(
    mut parts: Vec<Many<T>>,
    order: impl Fn(&T, &T) -> Ordering + Copy,
    pace: &mut Pace<impl Fn() -> bool>,
) -> Result<Many<T>, Fault> {
    while parts.len() > 1 {
        let mut merged = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(one) = rest.next() {
            merged.push(match rest.next() {
                Some(other) => merge_two(one, other, order, pace)?,
                None => one,
            });
        }
        parts = merged;
    }
    Ok(parts.pop().unwrap_or_default())
}

fn merge_two<T: Send + 'static>(
    mut one: Many<T>,
    mut other: Many<T>,
    order: impl Fn(&T, &T) -> Ordering,
    pace: &mut Pace<impl Fn() -> bool>,
) -> Result<Many<T>, Fault> {
    if let (Some(last), Some(first)) = (one.last(), other.first())
        && order(last, first).is_le()
    {
        one.append(&mut other);
        return Ok(one);
    }
    let mut merged = Many::new(Vec::with_capacity(one.len() + other.len()));
    let (mut one, mut other) = (one.into_rest(), other.into_rest());
    loop {
        pace.step()?;
        let next = match (one.0.as_slice().first(), other.0.as_slice().first()) {
            (Some(left), Some(right)) if order(right, left).is_lt() => other.next(),
            (Some(_), _) => one.next(),
            (None, _) => other.next(),
        };
        match next {
            Some(element) => merged.push(element),
            None => return Ok(merged),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shuffled(count: u64) -> Many<u64> {
        Many::new((0..count).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40).collect())
    }

    #[test]
    fn a_sort_in_pieces_is_a_sort() {
        for count in [0, 1, 100, PIECE_SIZE as u64, PIECE_SIZE as u64 * 5 + 7] {
            let sorted = sort(shuffled(count), u64::cmp, &mut Pace::new(|| false)).unwrap();
            let mut expected = shuffled(count);
            expected.sort_unstable();
            assert_eq!(*sorted, *expected);
        }
    }

    #[test]
    fn a_merge_keeps_equal_ones_in_the_order_of_their_parts() {
        let part = |name: char, numbers: &[u32]| Many::new(numbers.iter().map(|n| (*n, name)).collect());
        let parts =
            vec![part('a', &[1, 2, 2, 9]), part('b', &[0, 2, 9]), part('c', &[2, 10]), part('d', &[])];
        let merged = merge(parts, |one, other| one.0.cmp(&other.0), &mut Pace::new(|| false)).unwrap();
        let names: String = merged.iter().map(|(_, name)| *name).collect();
        assert_eq!(names, "baaabcabc");
        assert!(merged.is_sorted_by_key(|(number, _)| *number));
    }

    #[test]
    fn a_sort_stops() {
        let mut pace = Pace::overdue(|| true);
        assert!(matches!(sort(shuffled(PIECE_SIZE as u64 * 3), u64::cmp, &mut pace), Err(Fault::Stopped)));
    }
}
