//! Sorts entries that may not fit into memory.
//!
//! An entry is a code, by which it is sorted, and a rest. Entries with the same code stay in the
//! order of arrival. [`Entries`] are sorted in memory; a [`Run`] is a sorted part in a file;
//! [`Merge`] reads sorted parts as one sequence.

mod entries;
mod merge;
mod runs;
mod spill;

pub(crate) use entries::{Entries, Entry};
pub(crate) use merge::Merge;
pub(crate) use runs::Run;
pub(crate) use spill::Spill;

/// The eight bytes after the first `skipped` ones, as a number that decides most comparisons.
fn number_of(code: &[u8], skipped: usize) -> u64 {
    let code = code.get(skipped..).unwrap_or_default();
    if let Some(first) = code.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let mut first = [0; 8];
    for (place, byte) in first.iter_mut().zip(code) {
        *place = *byte;
    }
    u64::from_be_bytes(first)
}

/// How many bytes two codes have in common at their begin.
fn common_size(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}
