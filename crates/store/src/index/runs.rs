//! The entries of many rows, sorted in runs in memory, and their merge.
//!
//! Each run is sorted by itself, so that no single sort delays a stop for long; `Merge` merges the
//! runs.

use std::time::{Duration, Instant};

use pellucid_record::Shapes;
use pellucid_record::key::join_spellings;

use crate::error::{Result, StoreError};
use crate::index::{Derive, Derived};
use crate::row::Row;
use crate::sort::{self, Entries, Entry, Memory};

/// Bytes of entries that are sorted at once: some 30 ms.
const RUN_SIZE: usize = 16 << 20;
/// Rows between two looks at the clock.
pub(crate) const STEP: u64 = 1 << 10;
/// Time between two calls of `go_on`.
pub(crate) const PERIOD: Duration = Duration::from_millis(10);

/// Entries in sorted runs.
pub(crate) struct Runs {
    sorted: Vec<Entries>,
    filling: Entries,
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
            filling: Entries::default(),
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
        drop(self.filling.split_off(self.before.1));
    }

    /// Add the entries of a row.
    pub(crate) fn derive(
        &mut self,
        row: &Row<'_>,
        derive: &mut dyn Derive,
        shapes: &dyn Shapes,
    ) -> Result<()> {
        self.entries.clear();
        derive.derive(row, shapes, &mut self.entries).map_err(StoreError::Record)?;
        self.entries.sort_and_dedup();
        for (parts, parts_spelling) in self.entries.iter() {
            join_spellings(parts_spelling, row.spelling, &mut self.spelling);
            let size = (parts.len() as u32).to_le_bytes();
            self.filling.push(&[parts, row.key], &[&size, &self.spelling]);
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
        if !self.filling.is_empty() {
            let mut run = std::mem::take(&mut self.filling);
            run.shrink_to_fit();
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
        self.filling.size() + self.sorted.iter().map(Entries::size).sum::<usize>()
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

/// An entry of an index: its code, the size of the parts in it, and its spelling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SortedEntry<'a> {
    pub(crate) code: &'a [u8],
    pub(crate) parts_size: usize,
    pub(crate) spelling: &'a [u8],
}

impl<'a> SortedEntry<'a> {
    pub(crate) fn parts(&self) -> &'a [u8] {
        self.code.get(..self.parts_size).unwrap_or_default()
    }

    pub(crate) fn key(&self) -> &'a [u8] {
        self.code.get(self.parts_size..).unwrap_or_default()
    }
}

impl<'a> From<Entry<'a>> for SortedEntry<'a> {
    fn from(entry: Entry<'a>) -> Self {
        let (parts_size, spelling) = entry.rest.split_first_chunk().unwrap_or((&[0; 4], &[]));
        Self { code: entry.code, parts_size: u32::from_le_bytes(*parts_size) as usize, spelling }
    }
}

/// Merges the entries of sorted runs.
pub(crate) struct Merge<'m>(sort::Merge<Memory<&'m Entries>>);

impl<'m> Merge<'m> {
    /// All runs have to be sorted.
    pub(crate) fn new(all: impl IntoIterator<Item = &'m Runs>) -> Self {
        Self(sort::Merge::in_memory(all.into_iter().flat_map(|runs| &runs.sorted)))
    }

    /// Skip the next entry if its code is at most `place`. True if it was skipped.
    pub(crate) fn pass(&mut self, place: Option<&[u8]>) -> bool {
        self.0.next_if(|entry| place.is_some_and(|place| entry.code <= place)).is_some()
    }

    pub(crate) fn next(&mut self) -> Option<SortedEntry<'m>> {
        self.0.next_if(|_| true).map(SortedEntry::from)
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
            runs.filling.push(&[code.as_bytes()], &[&[0; 4]]);
            if number % 50 < 2 {
                runs.end_run();
            }
        }
        all.iter_mut().for_each(Runs::end_run);
        let mut sorted: Vec<&[u8]> = codes.iter().map(String::as_bytes).collect();
        sorted.sort_unstable();
        let mut merge = Merge::new(&all);
        assert!(all.iter().map(Runs::count).sum::<usize>() > 4);
        let merged: Vec<&[u8]> = std::iter::from_fn(|| merge.next()).map(|entry| entry.code).collect();
        assert_eq!(merged, sorted);
    }
}
