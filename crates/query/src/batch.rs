//! Sorts many rows in memory.
//!
//! One buffer holds the rows one after another: for each its sort code, its key and the key's
//! spelling. The sort moves only places in this buffer. Each place holds the first bytes of the
//! code as a number, which decides nearly every comparison. With an allocation for each row,
//! allocating, freeing and the cache misses of comparisons took two thirds of a sort.

use std::cmp::Ordering;

use crate::code::PRESENT;
use crate::fault::Fault;
use crate::stoppable::{self, Many, Pace};
use crate::walk::RowKey;

/// A row and its sort code. The key decides between equal codes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Entry<'a> {
    pub(crate) code: &'a [u8],
    pub(crate) key: &'a [u8],
    pub(crate) spelling: &'a [u8],
}

impl Entry<'_> {
    pub(crate) fn row_key(&self) -> RowKey {
        RowKey { code: self.key.into(), spelling: self.spelling.into() }
    }
}

/// Entries, sorted or as they came.
#[derive(Default)]
pub struct Batch {
    bytes: Vec<u8>,
    places: Many<EntrySpan>,
}

#[derive(Clone, Copy)]
struct EntrySpan {
    first: u64,
    start: usize,
    code_size: usize,
    key_size: usize,
    spelling_size: usize,
}

impl Batch {
    pub(crate) fn push(&mut self, entry: Entry<'_>) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(entry.code);
        self.bytes.extend_from_slice(entry.key);
        self.bytes.extend_from_slice(entry.spelling);
        self.places.push(EntrySpan {
            first: first_of(entry.code),
            start,
            code_size: entry.code.len(),
            key_size: entry.key.len(),
            spelling_size: entry.spelling.len(),
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// The number of bytes of memory that it takes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.places.len() * size_of::<EntrySpan>()
    }

    pub(crate) fn get(&self, index: usize) -> Option<Entry<'_>> {
        self.places.get(index).map(|place| entry_at(&self.bytes, place))
    }

    /// Sorts the entries.
    ///
    /// # Errors
    /// A stop.
    pub(crate) fn sort(mut self, pace: &mut Pace<impl Fn() -> bool>) -> Result<Self, Fault> {
        let bytes = &self.bytes;
        let order = |one: &EntrySpan, other: &EntrySpan| -> Ordering {
            one.first.cmp(&other.first).then_with(|| entry_at(bytes, one).cmp(&entry_at(bytes, other)))
        };
        self.places = stoppable::sort(self.places, order, pace)?;
        Ok(self)
    }
}

fn entry_at<'a>(bytes: &'a [u8], place: &EntrySpan) -> Entry<'a> {
    let rest = bytes.get(place.start..).unwrap_or_default();
    let (code, rest) = rest.split_at_checked(place.code_size).unwrap_or_default();
    let (key, rest) = rest.split_at_checked(place.key_size).unwrap_or_default();
    Entry { code, key, spelling: rest.get(..place.spelling_size).unwrap_or_default() }
}

/// A number that is less for one code than for another only if the code is less. It has the bytes
/// after the first, which says whether there is a value. Codes of missing values come last and have
/// the greatest number.
pub(crate) fn first_of(code: &[u8]) -> u64 {
    let Some((&PRESENT, code)) = code.split_first() else { return u64::MAX };
    let mut first = [0; 8];
    for (place, byte) in first.iter_mut().zip(code) {
        *place = *byte;
    }
    u64::from_be_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry<'a>(code: &'a [u8], key: &'a [u8]) -> Entry<'a> {
        Entry { code, key, spelling: b"spelled" }
    }

    #[test]
    fn entries_are_ordered_as_bytes_however_short() {
        let codes: Vec<Vec<u8>> = [
            &[PRESENT][..],
            &[PRESENT, 0],
            &[PRESENT, 1, 2, 3, 4, 5, 6, 7, 8],
            &[PRESENT, 1, 2, 3, 4, 5, 6, 7, 8, 0],
            &[PRESENT, 1, 2, 3, 4, 5, 6, 7, 8, 9],
            &[PRESENT, 255, 255, 255, 255, 255, 255, 255, 255],
            &[PRESENT, 255, 255, 255, 255, 255, 255, 255, 255, 255],
            &[PRESENT + 1],
        ]
        .map(<[u8]>::to_vec)
        .to_vec();
        let keys = [&b""[..], b"\0", b"k", b"kk"];
        let mut batch = Batch::default();
        for key in keys.iter().rev() {
            for code in codes.iter().rev() {
                batch.push(entry(code, key));
            }
        }
        let sorted = batch.sort(&mut Pace::new(|| false)).unwrap();
        let expected = codes.iter().flat_map(|code| keys.map(|key| entry(code, key)));
        assert_eq!(sorted.len(), codes.len() * keys.len());
        for (index, expected) in expected.enumerate() {
            assert_eq!(sorted.get(index), Some(expected));
        }
        assert_eq!(sorted.get(sorted.len()), None);
    }
}
