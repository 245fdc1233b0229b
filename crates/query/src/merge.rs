//! Merges sorted parts into one sequence of rows in order.
//!
//! It compares the next row of each part, and returns the least of these first.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;
use std::io;

use crate::batch::{Batch, Entry, first_of};
use crate::runs::RunReader;
use crate::walk::RowKey;

/// Rows that were sorted in parts, in memory and in files.
pub struct Merge {
    /// The next row of each part that is not at its end, the least on top.
    heads: BinaryHeap<Reverse<Head>>,
    batches: Vec<Part>,
    runs: Vec<RunReader>,
}

/// A sorted part in memory, and the position of its next entry.
struct Part {
    batch: Batch,
    next: usize,
}

/// The next entry of a part.
#[derive(Default)]
pub(crate) struct Head {
    first: u64,
    bytes: Vec<u8>,
    code_size: usize,
    key_size: usize,
    /// The number of its part: batches come first, then runs.
    part: usize,
}

impl Head {
    fn entry(&self) -> Entry<'_> {
        let (code, rest) = self.bytes.split_at_checked(self.code_size).unwrap_or_default();
        let (key, spelling) = rest.split_at_checked(self.key_size).unwrap_or_default();
        Entry { code, key, spelling }
    }

    fn set(&mut self, entry: Entry<'_>) {
        self.bytes.clear();
        for part in [entry.code, entry.key, entry.spelling] {
            self.bytes.extend_from_slice(part);
        }
        (self.code_size, self.key_size) = (entry.code.len(), entry.key.len());
        self.first = first_of(entry.code);
    }

    /// Moves on to the next entry of its part. Returns whether there is one.
    fn advance(&mut self, batches: &mut [Part], runs: &mut [RunReader]) -> io::Result<bool> {
        let of_runs = self.part.checked_sub(batches.len());
        let entry = match (batches.get_mut(self.part), of_runs.and_then(|run| runs.get_mut(run))) {
            (Some(part), _) => {
                part.next += 1;
                part.batch.get(part.next - 1)
            }
            (None, Some(run)) => run.next()?,
            (None, None) => None,
        };
        if let Some(entry) = entry {
            self.set(entry);
        }
        Ok(entry.is_some())
    }
}

impl Ord for Head {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.first.cmp(&other.first).then_with(|| self.entry().cmp(&other.entry()))
    }
}

impl PartialOrd for Head {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Head {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Head {}

impl Merge {
    pub(crate) fn new(batches: Vec<Batch>, runs: Vec<RunReader>) -> io::Result<Self> {
        let batches = batches.into_iter().map(|batch| Part { batch, next: 0 }).collect();
        let mut merge = Self { heads: BinaryHeap::new(), batches, runs };
        for part in 0..merge.batches.len() + merge.runs.len() {
            let mut head = Head { part, ..Head::default() };
            if head.advance(&mut merge.batches, &mut merge.runs)? {
                merge.heads.push(Reverse(head));
            }
        }
        Ok(merge)
    }

    /// The next row; None at the end.
    pub(crate) fn next(&mut self) -> io::Result<Option<RowKey>> {
        let Some(key) = self.heads.peek().map(|Reverse(head)| head.entry().row_key()) else {
            return Ok(None);
        };
        self.skip()?;
        Ok(Some(key))
    }

    /// Skips the next row. Returns whether there was one.
    pub(crate) fn skip(&mut self) -> io::Result<bool> {
        let Some(mut least) = self.heads.peek_mut() else { return Ok(false) };
        if !least.0.advance(&mut self.batches, &mut self.runs)? {
            PeekMut::pop(least);
        }
        Ok(true)
    }
}
