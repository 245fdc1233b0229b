//! Entries in memory, as they came or sorted.
//!
//! Their bytes are in one buffer. A sort moves only their places, each with a part of the code as a
//! number, which nearly always decides.

use std::cmp::Ordering;

use super::many::{self, Many};
use super::{common_size, number_of};

/// A code and what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'e> {
    /// What it is sorted by.
    pub code: &'e [u8],
    /// The rest of it.
    pub rest: &'e [u8],
}

/// Entries with reusable memory.
pub struct Entries {
    bytes: Vec<u8>,
    places: Vec<EntrySpan>,
    /// What all codes begin with.
    common: Vec<u8>,
    is_sorted: bool,
}

#[derive(Clone, Copy)]
struct EntrySpan {
    /// A part of the code, once it is to be sorted.
    number: u64,
    start: usize,
    code_size: u32,
    rest_size: u32,
}

impl Default for Entries {
    fn default() -> Self {
        Self { bytes: Vec::new(), places: Vec::new(), common: Vec::new(), is_sorted: true }
    }
}

impl Entries {
    /// Add an entry, whose code and rest are in parts. Each of the two is shorter than 4 GiB.
    #[inline]
    pub fn push(&mut self, code: &[&[u8]], rest: &[&[u8]]) {
        let start = self.bytes.len();
        for part in code {
            self.bytes.extend_from_slice(part);
        }
        let middle = self.bytes.len();
        for part in rest {
            self.bytes.extend_from_slice(part);
        }
        let (code_size, rest_size) = ((middle - start) as u32, (self.bytes.len() - middle) as u32);
        let place = EntrySpan { number: 0, start, code_size, rest_size };
        let code = entry_at(&self.bytes, &place).code;
        match self.places.last() {
            None => {
                self.common.clear();
                self.common.extend_from_slice(code);
            }
            Some(last) => {
                if !code.starts_with(&self.common) {
                    self.common.truncate(common_size(&self.common, code));
                }
                self.is_sorted = self.is_sorted && entry_at(&self.bytes, last).code <= code;
            }
        }
        self.places.push(place);
    }

    /// Add the entries of another one after these.
    pub(crate) fn append(&mut self, other: &Self) {
        for entry in (0..other.len()).filter_map(|index| other.get(index)) {
            self.push(&[entry.code], &[entry.rest]);
        }
    }

    /// Whether each code is at least the one before.
    pub(crate) fn is_sorted(&self) -> bool {
        self.is_sorted
    }

    /// The code of the entry that was added last.
    pub(crate) fn last_code(&self) -> Option<&[u8]> {
        self.places.last().map(|place| self.at(place).code)
    }

    /// What all codes begin with.
    pub(crate) fn common(&self) -> &[u8] {
        &self.common
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// How much memory they use.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<EntrySpan>()
    }

    /// Remove all entries.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.is_sorted = true;
    }

    /// Keep only the first `count` entries.
    pub fn truncate(&mut self, count: usize) {
        self.places.truncate(count);
    }

    /// Remove and return the entries from index `count` on. Only before they are sorted.
    pub(crate) fn split_off(&mut self, count: usize) -> Self {
        let mut places = self.places.split_off(count.min(self.places.len()));
        let start = places.first().map_or(self.bytes.len(), |place| place.start);
        for place in &mut places {
            place.start -= start;
        }
        let (bytes, common) = (self.bytes.split_off(start), self.common.clone());
        Self { bytes, places, common, is_sorted: self.is_sorted }
    }

    /// Give back memory that is not in use.
    pub(crate) fn shrink_to_fit(&mut self) {
        self.bytes.shrink_to_fit();
        self.places.shrink_to_fit();
    }

    /// The entry at an index.
    #[inline]
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Entry<'_>> {
        self.places.get(index).map(|place| self.at(place))
    }

    /// Sort by code; entries with the same code stay in the order of arrival.
    pub(crate) fn sort(&mut self) {
        if !std::mem::replace(&mut self.is_sorted, true) {
            self.number();
            let bytes = &self.bytes;
            self.places.sort_unstable_by(|one, other| order(bytes, one, other));
        }
    }

    /// As `sort`, in steps of some milliseconds. After an error there are no entries.
    ///
    /// # Errors
    /// One of `step`.
    pub fn sort_while<E>(&mut self, step: &mut impl FnMut() -> Result<(), E>) -> Result<(), E> {
        if !std::mem::replace(&mut self.is_sorted, true) {
            self.number();
            let bytes = &self.bytes;
            let places = Many::new(std::mem::take(&mut self.places));
            let sorted = many::sort(places, |one, other| order(bytes, one, other), step);
            self.places = sorted?.into_vec();
        }
        Ok(())
    }

    /// Give each place a part of its code as a number.
    fn number(&mut self) {
        for place in &mut self.places {
            place.number = number_of(entry_at(&self.bytes, place).code, self.common.len());
        }
    }

    #[inline]
    fn at(&self, place: &EntrySpan) -> Entry<'_> {
        entry_at(&self.bytes, place)
    }
}

#[inline]
fn entry_at<'e>(bytes: &'e [u8], place: &EntrySpan) -> Entry<'e> {
    let bytes = bytes.get(place.start..).unwrap_or_default();
    let (code, rest) = bytes.split_at_checked(place.code_size as usize).unwrap_or_default();
    Entry { code, rest: rest.get(..place.rest_size as usize).unwrap_or_default() }
}

/// By code, then by arrival. No two are equal.
fn order(bytes: &[u8], one: &EntrySpan, other: &EntrySpan) -> Ordering {
    let by_code = || entry_at(bytes, one).code.cmp(entry_at(bytes, other).code);
    one.number.cmp(&other.number).then_with(by_code).then_with(|| one.start.cmp(&other.start))
}
