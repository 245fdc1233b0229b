//! Merges sorted parts into one sequence.
//!
//! A heap of the parts has the one with the least entry on top. Of equal codes the one in the
//! earlier part comes first.

use std::borrow::Borrow;
use std::convert::Infallible;
use std::io;

use super::entries::{Entries, Entry};
use super::runs::{Run, RunReader};
use super::{common_size, number_of};

/// Memory for reading all runs of a merge together, and the least for one.
const READ_SIZE: usize = 16 << 20;
const READ_SIZE_MIN: usize = 64 << 10;
const READ_SIZE_MAX: usize = 1 << 20;

/// The entries of sorted parts, in order.
pub struct Merge<P> {
    parts: Vec<P>,
    heap: Vec<Head>,
    /// How many bytes all codes have in common.
    skipped: usize,
    /// Whether the entry on top has been returned.
    is_taken: bool,
}

/// A sorted part, and its current entry.
pub trait Source {
    /// Why the next entry cannot be read.
    type Error;

    /// The current entry. `None` at the end.
    fn entry(&self) -> Option<Entry<'_>>;

    /// Go to the next entry. False at the end.
    ///
    /// # Errors
    /// It cannot be read.
    fn advance(&mut self) -> Result<bool, Self::Error>;
}

/// Sorted entries in memory, and the index of the current one.
pub struct Memory<E>(E, usize);

/// Sorted entries in memory or in a file.
pub enum Part<E> {
    /// In memory.
    Memory(Memory<E>),
    /// In a file.
    File(RunReader),
}

#[derive(Clone, Copy)]
struct Head {
    number: u64,
    part: usize,
}

impl<E: Borrow<Entries>> Source for Memory<E> {
    type Error = Infallible;

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        self.0.borrow().get(self.1)
    }

    #[inline]
    fn advance(&mut self) -> Result<bool, Infallible> {
        self.1 += 1;
        Ok(self.1 < self.0.borrow().len())
    }
}

impl<E: Borrow<Entries>> Source for Part<E> {
    type Error = io::Error;

    #[inline]
    fn entry(&self) -> Option<Entry<'_>> {
        match self {
            Part::Memory(part) => part.entry(),
            Part::File(reader) => Some(reader.entry()),
        }
    }

    #[inline]
    fn advance(&mut self) -> io::Result<bool> {
        match self {
            Part::Memory(part) => {
                let Ok(is_there) = part.advance();
                Ok(is_there)
            }
            Part::File(reader) => reader.advance(),
        }
    }
}

impl<E: Borrow<Entries>> Merge<Part<E>> {
    /// A merge of runs, and after them of sorted entries in memory.
    ///
    /// # Errors
    /// A run cannot be read.
    pub fn new(runs: &[Run], memory: impl IntoIterator<Item = E>) -> io::Result<Self> {
        let size = (READ_SIZE / runs.len().max(1)).clamp(READ_SIZE_MIN, READ_SIZE_MAX);
        let memory: Vec<E> = memory.into_iter().filter(|entries| !entries.borrow().is_empty()).collect();
        let commons = runs.iter().map(|run| &run.common[..]);
        let skipped = skipped_of(commons.chain(memory.iter().map(|entries| entries.borrow().common())));
        let mut parts = Vec::with_capacity(runs.len() + memory.len());
        for run in runs {
            let mut reader = run.reader(size);
            if reader.advance()? {
                parts.push(Part::File(reader));
            }
        }
        parts.extend(memory.into_iter().map(|entries| Part::Memory(Memory(entries, 0))));
        Ok(Self::of(parts, skipped))
    }
}

impl<'m> Merge<Memory<&'m Entries>> {
    /// A merge of sorted entries in memory.
    pub(crate) fn in_memory(all: impl IntoIterator<Item = &'m Entries>) -> Self {
        let all: Vec<_> = all.into_iter().filter(|entries| !entries.is_empty()).collect();
        let skipped = skipped_of(all.iter().map(|entries| entries.common()));
        Self::of(all.into_iter().map(|entries| Memory(entries, 0)).collect(), skipped)
    }

    /// The next entry, if `is_wanted`.
    pub(crate) fn next_if(&mut self, is_wanted: impl FnOnce(Entry<'m>) -> bool) -> Option<Entry<'m>> {
        let Ok(()) = self.leave_taken();
        let Memory(entries, index) = self.parts.get(self.heap.first()?.part)?;
        let entry = entries.get(*index).filter(|entry| is_wanted(*entry))?;
        self.is_taken = true;
        Some(entry)
    }
}

impl<P: Source> Merge<P> {
    /// A merge of parts that are at their first entries.
    fn of(parts: Vec<P>, skipped: usize) -> Self {
        let mut merge = Self { parts, heap: Vec::new(), skipped, is_taken: false };
        merge.heap = (0..merge.parts.len()).map(|part| merge.head(part)).collect();
        for place in (0..merge.heap.len() / 2).rev() {
            merge.sink(place);
        }
        merge
    }

    /// The next entry. It is valid until the next call.
    ///
    /// # Errors
    /// It cannot be read.
    #[expect(clippy::should_implement_trait, reason = "an iterator cannot lend its items")]
    pub fn next(&mut self) -> Result<Option<Entry<'_>>, P::Error> {
        self.leave_taken()?;
        let Some(top) = self.heap.first() else { return Ok(None) };
        self.is_taken = true;
        Ok(self.parts.get(top.part).and_then(P::entry))
    }

    /// Go on from an entry that was returned.
    fn leave_taken(&mut self) -> Result<(), P::Error> {
        if !std::mem::take(&mut self.is_taken) {
            return Ok(());
        }
        let Some(part) = self.heap.first().map(|top| top.part) else { return Ok(()) };
        if self.parts.get_mut(part).map_or(Ok(false), P::advance)? {
            let head = self.head(part);
            if let Some(top) = self.heap.first_mut() {
                *top = head;
            }
        } else {
            self.heap.swap_remove(0);
        }
        self.sink(0);
        Ok(())
    }

    fn head(&self, part: usize) -> Head {
        let entry = self.parts.get(part).and_then(P::entry);
        Head { number: entry.map_or(u64::MAX, |entry| number_of(entry.code, self.skipped)), part }
    }

    /// Move a head down until no head below it comes first.
    fn sink(&mut self, mut place: usize) {
        loop {
            let mut first = place;
            for below in [2 * place + 1, 2 * place + 2] {
                if self.is_before(below, first) {
                    first = below;
                }
            }
            if first == place {
                return;
            }
            self.heap.swap(place, first);
            place = first;
        }
    }

    fn is_before(&self, one: usize, other: usize) -> bool {
        let (Some(one), Some(other)) = (self.heap.get(one), self.heap.get(other)) else { return false };
        let code = |head: &Head| self.parts.get(head.part).and_then(P::entry).map(|entry| entry.code);
        let by_number = one.number.cmp(&other.number);
        let order = by_number.then_with(|| code(one).cmp(&code(other)));
        order.then_with(|| one.part.cmp(&other.part)).is_lt()
    }
}

/// How many bytes all codes have in common.
fn skipped_of<'c>(commons: impl Iterator<Item = &'c [u8]>) -> usize {
    let shared = |one: &'c [u8], other: &[u8]| one.get(..common_size(one, other)).unwrap_or_default();
    commons.reduce(shared).map_or(0, <[u8]>::len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sort::runs::SortFile;

    /// Entries as they came, in parts of these sizes; all but the last part are written to a file.
    fn merged(all: &[(Vec<u8>, Vec<u8>)], sizes: &[usize]) -> Vec<(Vec<u8>, Vec<u8>)> {
        let mut file = SortFile::create_in(&std::env::temp_dir()).unwrap();
        let (mut runs, mut entries, mut sizes) = (Vec::new(), Entries::default(), sizes.iter());
        let mut left = *sizes.next().unwrap();
        for (code, rest) in all {
            if left == 0 {
                entries.sort();
                let run = file.place_for(&entries);
                run.write(&entries, |error| error, &mut || Ok(())).unwrap();
                runs.push(run);
                entries.clear();
                left = sizes.next().copied().unwrap_or(usize::MAX);
            }
            entries.push(&[code], &[rest]);
            left -= 1;
        }
        entries.sort();
        let mut merge = Merge::new(&runs, [&entries]).unwrap();
        let mut found = Vec::new();
        while let Some(entry) = merge.next().unwrap() {
            found.push((entry.code.to_vec(), entry.rest.to_vec()));
        }
        found
    }

    #[test]
    fn parts_become_one_order_and_equal_codes_stay_as_they_came() {
        let code = |number: usize| {
            let scattered = (number * 7919) % 211;
            let begin = if scattered.is_multiple_of(3) { "" } else { "all the same" };
            format!("prefix{begin}{scattered:03}").into_bytes()
        };
        let mut all: Vec<_> = (0..1000).map(|number| (code(number), number.to_le_bytes().to_vec())).collect();
        all.push((b"prefix".to_vec(), vec![1; 300_000]));
        all.push((b"".to_vec(), Vec::new()));
        let mut sorted = all.clone();
        sorted.sort_by(|one, other| one.0.cmp(&other.0));
        for sizes in [&[5000][..], &[1, 2, 3], &[100, 400, 1, 1, 300, 10], &[1002], &[1001], &[7; 150]] {
            assert_eq!(merged(&all, sizes), sorted, "{sizes:?}");
        }
        assert_eq!(merged(&sorted, &[300, 300]), sorted);
        assert_eq!(merged(&[], &[300]), []);
    }

    #[test]
    fn a_file_that_is_cut_is_an_error() {
        let mut entries = Entries::default();
        entries.push(&[b"code"], &[&vec![7; 200_000]]);
        let mut file = SortFile::create_in(&std::env::temp_dir()).unwrap();
        let run = file.place_for(&entries);
        assert!(Merge::<Part<&Entries>>::new(&[run], []).is_err());
    }
}
