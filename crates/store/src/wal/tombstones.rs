//! Walks that do not step over every deleted key.
//!
//! A deleted key stays in its memtable or write batch, as a tombstone, until a checkpoint has
//! deleted it from the tree; until then the tree has its entry as well. The front of a queue is
//! such a run of tombstones, over entries that they hide. A walk that begins there must not step
//! over all of them each time, so a source over the tree knows two more things:
//!
//! - which of its keys are not deleted, in order ([`KeyOrder`]);
//! - between which keys it hides everything that the sources below have ([`Covered`]).
//!
//! Both are found by the walks themselves: the first one over such a run steps over it.

use std::collections::BTreeMap;
use std::ops::Bound;

use crate::engine::Direction;

/// Deleted keys in turn after which a walk looks for the next key that is not deleted.
pub(crate) const RUN_MIN: usize = 16;

/// Some of a source's keys, as bounds in key order.
pub(crate) type Bounds<'b> = (Bound<&'b [u8]>, Bound<&'b [u8]>);

/// The keys of a source in order, each with the number of its newest version.
pub(crate) struct KeyOrder<N> {
    all: BTreeMap<Box<[u8]>, N>,
    /// Those that are not deleted, from the first walk on that meets many deleted ones.
    live: Option<BTreeMap<Box<[u8]>, N>>,
}

impl<N> Default for KeyOrder<N> {
    fn default() -> Self {
        Self { all: BTreeMap::new(), live: None }
    }
}

impl<N: Copy> KeyOrder<N> {
    /// The order of keys that come in order.
    pub(crate) fn of(sorted: impl Iterator<Item = (Box<[u8]>, N)>) -> Self {
        Self { all: sorted.collect(), live: None }
    }

    /// Note the newest version of a key.
    pub(crate) fn set(&mut self, key: &[u8], newest: N, is_deleted: bool) {
        set(&mut self.all, key, newest);
        match &mut self.live {
            Some(live) if is_deleted => {
                live.remove(key);
            }
            Some(live) => set(live, key, newest),
            None => {}
        }
    }

    /// Call `take` with the versions in walking order until it returns false. True at the end.
    pub(crate) fn walk(&self, bounds: Bounds<'_>, direction: Direction, take: impl FnMut(N) -> bool) -> bool {
        walk(&self.all, bounds, direction, take)
    }

    /// The first of all keys in walking order of which `see` sees something.
    pub(crate) fn first<R>(
        &self,
        bounds: Bounds<'_>,
        direction: Direction,
        see: impl FnMut(N) -> Option<R>,
    ) -> Option<R> {
        first(&self.all, bounds, direction, see)
    }

    /// The same, of the keys that are not deleted.
    pub(crate) fn first_live<R>(
        &mut self,
        bounds: Bounds<'_>,
        direction: Direction,
        is_deleted: impl Fn(N) -> bool,
        mut see: impl FnMut(N) -> Option<R>,
    ) -> Option<R> {
        if self.live.is_none() {
            let (mut found, mut passed) = (None, 0);
            let is_end = self.walk(bounds, direction, |newest| {
                found = if is_deleted(newest) { None } else { see(newest) };
                passed += 1;
                step();
                found.is_none() && passed < RUN_MIN
            });
            if is_end || found.is_some() {
                return found;
            }
            let live = self.all.iter().filter(|(_, newest)| !is_deleted(**newest));
            self.live = Some(live.map(|(key, newest)| (key.clone(), *newest)).collect());
        }
        first(self.live.as_ref()?, bounds, direction, see)
    }
}

fn set<N>(map: &mut BTreeMap<Box<[u8]>, N>, key: &[u8], newest: N) {
    match map.get_mut(key) {
        Some(known) => *known = newest,
        None => {
            map.insert(key.into(), newest);
        }
    }
}

fn walk<N: Copy>(
    map: &BTreeMap<Box<[u8]>, N>,
    bounds: Bounds<'_>,
    direction: Direction,
    take: impl FnMut(N) -> bool,
) -> bool {
    let mut range = map.range::<[u8], _>(bounds).map(|(_, newest)| *newest);
    match direction {
        Direction::Forward => range.all(take),
        Direction::Reverse => range.rev().all(take),
    }
}

fn first<N: Copy, R>(
    map: &BTreeMap<Box<[u8]>, N>,
    bounds: Bounds<'_>,
    direction: Direction,
    mut see: impl FnMut(N) -> Option<R>,
) -> Option<R> {
    let mut found = None;
    walk(map, bounds, direction, |newest| {
        found = see(newest);
        step();
        found.is_none()
    });
    found
}

/// Ranges of keys in which a source hides all that is below it: it has a version of each key that
/// the sources below it have there.
///
/// That stays true: a source loses no key, and what is below it stays as it is, or is merged into
/// the tree. It is true for walks that see the version with which it was found. A queue is read by
/// walks of somewhat older versions as well, so ranges that touch become one only when both are
/// old: a run has a range or two for each power of two of commits since it was begun.
#[derive(Default)]
pub(crate) struct Covered {
    /// By its first key.
    ranges: BTreeMap<Box<[u8]>, CoveredRange>,
}

#[derive(Clone)]
struct CoveredRange {
    /// The first key after it.
    end: Box<[u8]>,
    /// The version from which on all of it is covered, and from which on some of it is.
    since: u64,
    begun: u64,
}

impl CoveredRange {
    fn with(self, other: Self) -> Self {
        Self {
            end: self.end.max(other.end),
            since: self.since.max(other.since),
            begun: self.begun.min(other.begun),
        }
    }
}

impl Covered {
    /// Where a walk goes on among the sources below. `None`: where it is.
    pub(crate) fn behind(&self, place: &[u8], direction: Direction, sequence: u64) -> Option<&[u8]> {
        let mut behind = None;
        while let Some(next) = self.behind_one(behind.unwrap_or(place), direction, sequence) {
            behind = Some(next);
        }
        behind
    }

    fn behind_one(&self, place: &[u8], direction: Direction, sequence: u64) -> Option<&[u8]> {
        let upto = match direction {
            Direction::Forward => Bound::Included(place),
            // The walk goes on below the place.
            Direction::Reverse => Bound::Excluded(place),
        };
        let (start, range) = self.last_upto(upto)?;
        match direction {
            _ if range.since > sequence => None,
            Direction::Forward => (place < &*range.end).then_some(&range.end),
            Direction::Reverse => (place <= &*range.end).then_some(start),
        }
    }

    fn last_upto(&self, upto: Bound<&[u8]>) -> Option<(&[u8], &CoveredRange)> {
        let (start, range) = self.ranges.range::<[u8], _>((Bound::Unbounded, upto)).next_back()?;
        Some((start, range))
    }

    /// Add a range that was found by a walk that sees this version.
    pub(crate) fn add(&mut self, start: &[u8], end: &[u8], sequence: u64) {
        let (mut start, mut new) =
            (Box::from(start), CoveredRange { end: end.into(), since: sequence, begun: sequence });
        // Ranges do not overlap.
        while let Some((other, range)) = self.last_upto(Bound::Excluded(&new.end))
            && range.end > start
        {
            let (other, range) = (Box::from(other), range.clone());
            self.ranges.remove(&other);
            start = other.min(start);
            new = new.with(range);
        }
        self.ranges.insert(start.clone(), new);
        self.join(start, sequence);
    }

    /// Make one of ranges that touch each other and are old enough, in the run around a range.
    fn join(&mut self, start: Box<[u8]>, sequence: u64) {
        let mut first = start;
        while let Some((other, range)) = self.last_upto(Bound::Excluded(&first))
            && range.end == first
        {
            first = other.into();
        }
        while let Some(range) = self.ranges.get(&first).cloned()
            && let Some(next) = self.ranges.get(&range.end).cloned()
        {
            let both = range.clone().with(next);
            let age = |version: u64| sequence.saturating_sub(version);
            if both.begun == both.since || age(both.begun) < 2 * age(both.since) {
                self.ranges.remove(&range.end);
                self.ranges.insert(first.clone(), both);
            } else {
                first = range.end;
            }
        }
    }
}

/// A walk takes a step. A test counts them.
#[inline]
pub(crate) fn step() {
    #[cfg(test)]
    steps::STEPS.set(steps::STEPS.get() + 1);
}

#[cfg(test)]
pub(crate) mod steps {
    use std::cell::Cell;

    thread_local! {
        pub(super) static STEPS: Cell<u64> = const { Cell::new(0) };
    }

    /// How many steps the walks of this thread take while `work` runs.
    pub(crate) fn of(work: impl FnOnce()) -> u64 {
        let before = STEPS.get();
        work();
        STEPS.get() - before
    }
}

#[cfg(test)]
mod tests;
