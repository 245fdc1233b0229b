//! Many elements that are sorted, merged and freed without a long pause.
//!
//! A sort sorts pieces and merges them, so that its caller can stop it between two steps.

use std::cmp::Ordering;
use std::ops::{Deref, DerefMut};
use std::thread;

/// Elements that are sorted at once: some milliseconds.
const PIECE_SIZE: usize = 1 << 14;
/// Elements that are freed at once: some milliseconds.
const LARGE_COUNT: usize = 1 << 14;

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

    /// The elements.
    pub(crate) fn into_vec(mut self) -> Vec<T> {
        std::mem::take(&mut self.0)
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

/// Sorts elements. Equal ones may change places. `step` is called every few milliseconds.
///
/// # Errors
/// One of `step`.
pub fn sort<T: Send + 'static, E>(
    mut elements: Many<T>,
    order: impl Fn(&T, &T) -> Ordering + Copy,
    step: &mut impl FnMut() -> Result<(), E>,
) -> Result<Many<T>, E> {
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
        step()?;
    }
    // They were split off from the end.
    pieces.reverse();
    merge(pieces, order, step)
}

/// Merges sorted parts. Of equal elements, those of the earlier part come first.
///
/// # Errors
/// One of `step`, which is called for each element.
pub fn merge<T: Send + 'static, E>(
    mut parts: Vec<Many<T>>,
    order: impl Fn(&T, &T) -> Ordering + Copy,
    step: &mut impl FnMut() -> Result<(), E>,
) -> Result<Many<T>, E> {
    while parts.len() > 1 {
        let mut merged = Vec::with_capacity(parts.len().div_ceil(2));
        let mut rest = parts.into_iter();
        while let Some(one) = rest.next() {
            merged.push(match rest.next() {
                Some(other) => merge_two(one, other, order, step)?,
                None => one,
            });
        }
        parts = merged;
    }
    Ok(parts.pop().unwrap_or_default())
}

fn merge_two<T: Send + 'static, E>(
    mut one: Many<T>,
    mut other: Many<T>,
    order: impl Fn(&T, &T) -> Ordering,
    step: &mut impl FnMut() -> Result<(), E>,
) -> Result<Many<T>, E> {
    if let (Some(last), Some(first)) = (one.last(), other.first())
        && order(last, first).is_le()
    {
        one.append(&mut other);
        return Ok(one);
    }
    let mut merged = Many::new(Vec::with_capacity(one.len() + other.len()));
    let (mut one, mut other) = (one.into_rest(), other.into_rest());
    loop {
        step()?;
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
    use std::convert::Infallible;

    use super::*;

    fn shuffled(count: u64) -> Many<u64> {
        Many::new((0..count).map(|number| number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40).collect())
    }

    #[test]
    fn a_sort_in_pieces_is_a_sort() {
        for count in [0, 1, 100, PIECE_SIZE as u64, PIECE_SIZE as u64 * 5 + 7] {
            let sorted = sort(shuffled(count), u64::cmp, &mut || Ok::<_, Infallible>(())).unwrap();
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
        let merged = merge(parts, |one, other| one.0.cmp(&other.0), &mut || Ok::<_, Infallible>(())).unwrap();
        let names: String = merged.iter().map(|(_, name)| *name).collect();
        assert_eq!(names, "baaabcabc");
        assert!(merged.is_sorted_by_key(|(number, _)| *number));
    }

    #[test]
    fn a_sort_stops() {
        let sorted = sort(shuffled(PIECE_SIZE as u64 * 3), u64::cmp, &mut || Err("stopped"));
        assert_eq!(sorted.err(), Some("stopped"));
    }
}
