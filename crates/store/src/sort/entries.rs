//! Entries in memory, as they came or sorted.
//!
//! Their bytes are in one buffer. A sort moves only their places, each with a part of the code as a
//! number, which nearly always decides.

use super::{common_size, number_of};

/// A code and what belongs to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'e> {
    pub(crate) code: &'e [u8],
    pub(crate) rest: &'e [u8],
}

/// Entries with reusable memory.
pub(crate) struct Entries {
    bytes: Vec<u8>,
    places: Vec<EntrySpan>,
    /// What all codes begin with.
    common: Vec<u8>,
    is_sorted: bool,
}

#[derive(Clone, Copy)]
struct EntrySpan {
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
    /// Add an entry. Its code and its rest are shorter than 4 GiB.
    pub(crate) fn push(&mut self, code: &[u8], rest: &[&[u8]]) {
        if self.places.is_empty() {
            self.common.clear();
            self.common.extend_from_slice(code);
        } else if !code.starts_with(&self.common) {
            self.common.truncate(common_size(&self.common, code));
        }
        self.is_sorted = self.is_sorted && self.last_code().is_none_or(|last| last <= code);
        let start = self.bytes.len();
        self.bytes.extend_from_slice(code);
        for part in rest {
            self.bytes.extend_from_slice(part);
        }
        let rest_size = self.bytes.len() - start - code.len();
        let (code_size, rest_size) = (code.len() as u32, rest_size as u32);
        self.places.push(EntrySpan { number: 0, start, code_size, rest_size });
    }

    /// Add the entries of another one after these.
    pub(crate) fn append(&mut self, other: &Self) {
        for entry in (0..other.len()).filter_map(|index| other.get(index)) {
            self.push(entry.code, &[entry.rest]);
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

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// How much memory they use.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<EntrySpan>()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.places.clear();
        self.is_sorted = true;
    }

    pub(crate) fn get(&self, index: usize) -> Option<Entry<'_>> {
        self.places.get(index).map(|place| self.at(place))
    }

    /// Sort by code; entries with the same code stay in the order of arrival.
    pub(crate) fn sort(&mut self) {
        if std::mem::replace(&mut self.is_sorted, true) {
            return;
        }
        let (bytes, skipped) = (&self.bytes, self.common.len());
        for place in &mut self.places {
            place.number = number_of(entry_at(bytes, place).code, skipped);
        }
        self.places.sort_unstable_by(|one, other| {
            let by_code = || entry_at(bytes, one).code.cmp(entry_at(bytes, other).code);
            let by_number = one.number.cmp(&other.number);
            by_number.then_with(by_code).then_with(|| one.start.cmp(&other.start))
        });
    }

    fn at(&self, place: &EntrySpan) -> Entry<'_> {
        entry_at(&self.bytes, place)
    }
}

fn entry_at<'e>(bytes: &'e [u8], place: &EntrySpan) -> Entry<'e> {
    let bytes = bytes.get(place.start..).unwrap_or_default();
    let (code, rest) = bytes.split_at_checked(place.code_size as usize).unwrap_or_default();
    Entry { code, rest: rest.get(..place.rest_size as usize).unwrap_or_default() }
}
