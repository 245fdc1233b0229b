//! Sorts many entries in memory.
//!
//! Their bytes are in one buffer. Their positions are sorted, each with the entry's first eight
//! bytes as a number, which nearly always decides.

use std::cmp::Ordering;

/// Entries of one index, sorted together.
#[derive(Default)]
pub(crate) struct Sorter {
    bytes: Vec<u8>,
    entries: Vec<Sorted>,
}

#[derive(Clone, Copy)]
struct Sorted {
    first: u64,
    start: usize,
    parts_size: u32,
    code_size: u32,
    spelling_size: u32,
}

/// An entry: its code, the size of the parts in it, and its spelling.
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

impl Sorter {
    pub(crate) fn push_parts(&mut self, parts: &[u8], key: &[u8], spelling: &[u8]) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(parts);
        self.bytes.extend_from_slice(key);
        let code_size = self.bytes.len() - start;
        let mut first = [0; 8];
        for (place, byte) in first.iter_mut().zip(self.bytes.get(start..).unwrap_or_default()) {
            *place = *byte;
        }
        self.bytes.extend_from_slice(spelling);
        self.entries.push(Sorted {
            first: u64::from_be_bytes(first),
            start,
            parts_size: parts.len() as u32,
            code_size: code_size as u32,
            spelling_size: spelling.len() as u32,
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// About how much memory it takes.
    pub(crate) fn size(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Sorted>()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.entries.clear();
    }

    /// Remove and return the entries from index `count` on. Only before sorting.
    pub(crate) fn split_off(&mut self, count: usize) -> Self {
        let mut entries = self.entries.split_off(count.min(self.entries.len()));
        let start = entries.first().map_or(self.bytes.len(), |entry| entry.start);
        let bytes = self.bytes.split_off(start);
        for entry in &mut entries {
            entry.start -= start;
        }
        Self { bytes, entries }
    }

    /// Keep only the first `count` entries. Only before sorting.
    pub(crate) fn truncate(&mut self, count: usize) {
        drop(self.split_off(count));
    }

    /// Sort by code; entries with the same code stay in the order of arrival. Nothing may be added
    /// afterwards.
    pub(crate) fn sort(&mut self) {
        self.bytes.shrink_to_fit();
        self.entries.shrink_to_fit();
        let bytes = &self.bytes;
        self.entries.sort_unstable_by(|one, other| order(bytes, one, other));
    }

    /// An entry's code, and its first eight bytes as a number.
    pub(crate) fn code(&self, index: usize) -> Option<(u64, &[u8])> {
        let entry = self.entries.get(index)?;
        let code = self.bytes.get(entry.start..entry.start + entry.code_size as usize)?;
        Some((entry.first, code))
    }

    pub(crate) fn get(&self, index: usize) -> Option<SortedEntry<'_>> {
        let entry = self.entries.get(index)?;
        let end = entry.start + entry.code_size as usize;
        Some(SortedEntry {
            code: self.bytes.get(entry.start..end)?,
            parts_size: entry.parts_size as usize,
            spelling: self.bytes.get(end..end + entry.spelling_size as usize)?,
        })
    }
}

/// By code, then by order of arrival. No two are equal.
fn order(bytes: &[u8], one: &Sorted, other: &Sorted) -> Ordering {
    let code =
        |entry: &Sorted| bytes.get(entry.start..entry.start + entry.code_size as usize).unwrap_or_default();
    one.first.cmp(&other.first).then_with(|| code(one).cmp(code(other))).then(one.start.cmp(&other.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_sorted_as_bytes_however_short() {
        let mut sorter = Sorter::default();
        let mut codes: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        // Codes that share their first eight bytes, that are shorter than these, and that are
        // prefixes of others.
        for parts in [
            &b""[..],
            b"\0",
            b"a",
            b"aaaaaaaa",
            b"aaaaaaaab",
            b"aaaaaaaaa",
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            for key in [&b"k"[..], b"\0", b"kk"] {
                codes.push((parts.to_vec(), key.to_vec()));
            }
        }
        for (parts, key) in codes.iter().rev() {
            sorter.push_parts(parts, key, b"spelled");
        }
        sorter.sort();
        codes.sort_by_key(|(parts, key)| [&parts[..], key].concat());
        for (index, (parts, key)) in codes.iter().enumerate() {
            let entry = sorter.get(index).unwrap();
            assert_eq!((entry.code, entry.spelling), (&[&parts[..], key].concat()[..], &b"spelled"[..]));
        }
        assert_eq!(sorter.len(), codes.len());
        assert_eq!(sorter.get(codes.len()), None);
    }

    #[test]
    fn what_is_split_off_is_as_it_came() {
        let mut sorter = Sorter::default();
        for parts in [&b"c"[..], b"b", b"a"] {
            sorter.push_parts(parts, b"k", b"s");
        }
        let rest = sorter.split_off(1);
        assert_eq!((sorter.len(), sorter.get(0).unwrap().code), (1, &b"ck"[..]));
        assert_eq!(rest.get(0).unwrap().code, b"bk");
        assert_eq!((rest.get(1).unwrap().key(), rest.get(1).unwrap().spelling), (&b"k"[..], &b"s"[..]));
        sorter.truncate(0);
        assert_eq!((sorter.size(), rest.len()), (0, 2));
    }
}
