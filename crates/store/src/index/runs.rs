//! The entries of many rows, sorted in runs in memory, and their merge.
//!
//! Each run is sorted by itself, so that no single sort delays a stop for long; `Merge` merges the
//! runs.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, binary_heap::PeekMut};
use std::time::{Duration, Instant};

use pellucid_record::Shapes;
use pellucid_record::key::join_spellings;

use crate::error::StoreError;
use crate::index::sorter::{SortedEntry, Sorter};
use crate::index::{Derive, Derived};
use crate::row::Row;

/// Bytes of entries that are sorted at once: some 30 ms.
const RUN_SIZE: usize = 16 << 20;
/// Rows between two looks at the clock.
pub(crate) const STEP: u64 = 1 << 10;
/// Time between two calls of `go_on`.
pub(crate) const PERIOD: Duration = Duration::from_millis(10);

/// Entries in sorted runs.
pub(crate) struct Runs {
    sorted: Vec<Sorter>,
    filling: Sorter,
    memory: usize,
    run_size: usize,
    /// The number of runs and of unsorted entries when the current part of the rows began.
    before: (usize, usize),
    entries: Derived,
    spelling: Vec<u8>,
}

impl Runs {
    /// Runs with this memory limit.
    pub(crate) fn new(memory: usize) -> Self {
        Self {
            sorted: Vec::new(),
            filling: Sorter::default(),
            memory,
            run_size: RUN_SIZE.min(memory / 8),
            before: (0, 0),
            entries: Derived::default(),
            spelling: Vec::new(),
        }
    }

    /// Begin a part of the rows, which may be dropped later.
    pub(crate) fn begin_part(&mut self) {
        if self.filling.size() > self.run_size / 4 {
            self.end_run();
        }
        self.before = (self.sorted.len(), self.filling.len());
    }

    pub(crate) fn forget_part(&mut self) {
        self.sorted.truncate(self.before.0);
        self.filling.truncate(self.before.1);
    }

    /// Add the entries of a row.
    pub(crate) fn derive(
        &mut self,
        row: &Row<'_>,
        derive: &mut dyn Derive,
        shapes: &dyn Shapes,
    ) -> Result<(), StoreError> {
        self.entries.clear();
        derive.derive(row, shapes, &mut self.entries).map_err(StoreError::Record)?;
        self.entries.sort_and_dedup();
        for (parts, parts_spelling) in self.entries.iter() {
            join_spellings(parts_spelling, row.spelling, &mut self.spelling);
            self.filling.push_parts(parts, row.key, &self.spelling);
        }
        if self.filling.size() > self.run_size {
            if self.before.1 > 0 {
                // Keep entries of earlier parts and of this part in different runs.
                let own = self.filling.split_off(self.before.1);
                self.end_run();
                self.filling = own;
                self.before = (self.sorted.len(), 0);
            } else {
                self.end_run();
            }
        }
        Ok(())
    }

    /// Sort the entries that are not sorted yet.
    pub(crate) fn end_run(&mut self) {
        if self.filling.len() > 0 {
            let mut run = std::mem::take(&mut self.filling);
            run.sort();
            self.sorted.push(run);
        }
    }

    /// Whether the memory limit is reached.
    pub(crate) fn is_full(&self) -> bool {
        // Called for each row, so an estimate.
        self.sorted.len() * self.run_size >= self.memory
    }

    /// About how much memory they take.
    pub(crate) fn size(&self) -> usize {
        self.filling.size() + self.sorted.iter().map(Sorter::size).sum::<usize>()
    }

    /// How many runs are sorted.
    pub(crate) fn count(&self) -> usize {
        self.sorted.len()
    }

    pub(crate) fn len(&self) -> u64 {
        self.sorted.iter().map(|run| run.len() as u64).sum()
    }

    pub(crate) fn clear(&mut self) {
        self.filling.clear();
        self.sorted.clear();
    }
}

/// The next entry of a run: its first bytes as a number, which mostly decide, its code, the run,
/// and the index in the run.
type Head<'m> = (u64, &'m [u8], usize, usize);

/// Merges the entries of sorted runs.
pub(crate) struct Merge<'m> {
    runs: Vec<&'m Sorter>,
    next: BinaryHeap<Reverse<Head<'m>>>,
}

impl<'m> Merge<'m> {
    /// All runs have to be sorted.
    pub(crate) fn new(all: impl IntoIterator<Item = &'m Runs>) -> Self {
        let runs: Vec<&Sorter> = all.into_iter().flat_map(|runs| &runs.sorted).collect();
        let first = |(run, sorter): (usize, &&'m Sorter)| {
            let (number, code) = sorter.code(0)?;
            Some(Reverse((number, code, run, 0)))
        };
        let next = runs.iter().enumerate().filter_map(first).collect();
        Self { runs, next }
    }

    /// Skip the next entry if its code is at most `place`. True if it was skipped.
    pub(crate) fn pass(&mut self, place: Option<&[u8]>) -> bool {
        let is_passed = place.is_some_and(|place| self.next.peek().is_some_and(|head| head.0.1 <= place));
        is_passed && self.next().is_some()
    }

    pub(crate) fn next(&mut self) -> Option<SortedEntry<'m>> {
        let mut head = self.next.peek_mut()?;
        let Reverse((_, _, run, place)) = *head;
        let sorter = *self.runs.get(run)?;
        match sorter.code(place + 1) {
            Some((number, code)) => *head = Reverse((number, code, run, place + 1)),
            None => drop(PeekMut::pop(head)),
        }
        sorter.get(place)
    }
}

/// Tells when the next progress report is due.
pub(crate) struct Clock(Instant);

impl Clock {
    pub(crate) fn new() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn is_time(&mut self) -> bool {
        let is_time = self.0.elapsed() >= PERIOD;
        if is_time {
            self.0 = Instant::now();
        }
        is_time
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_become_one_order_where_eight_bytes_do_not_decide() {
        let codes: Vec<String> = (0..300)
            .map(|number| format!("{}{:03}", if number % 3 == 0 { "" } else { "the same" }, number))
            .collect();
        let mut all: Vec<Runs> = (0..2).map(|_| Runs::new(1 << 20)).collect();
        for (number, code) in codes.iter().enumerate() {
            let runs = &mut all[number % 2];
            runs.filling.push_parts(code.as_bytes(), b"", b"");
            if number % 50 < 2 {
                runs.end_run();
            }
        }
        all.iter_mut().for_each(Runs::end_run);
        let mut sorted: Vec<&[u8]> = codes.iter().map(String::as_bytes).collect();
        sorted.sort_unstable();
        let mut merge = Merge::new(&all);
        assert!(merge.runs.len() > 4);
        let merged: Vec<&[u8]> = std::iter::from_fn(|| merge.next()).map(|entry| entry.code).collect();
        assert_eq!(merged, sorted);
    }
}
