//! Sorts entries that may not fit into memory.
//!
//! An entry is a code, by which it is sorted, and a rest. Entries with the same code stay in the
//! order of arrival. [`Entries`] are sorted in memory; a [`Run`] is a sorted part in a file;
//! [`Merge`] reads sorted parts as one sequence. Long work calls back at each step, so that the
//! caller can stop it.

use crate::sys::cgroup;

pub(crate) mod by_number;
mod entries;
pub mod many;
mod merge;
mod runs;
mod spill;

pub use entries::{Entries, Entry};
pub use merge::{Memory, Merge, Part, Source};
pub use runs::{Run, SortFile};
pub(crate) use spill::Spill;

/// The part of a container's memory that a sort may take.
pub const SORT_PART: u64 = 4;

/// How many bytes of memory work may take that takes `usual` bytes on a large machine: in a
/// container, at most this part of what its processes may take together.
#[must_use]
pub fn memory_max(usual: usize, part: u64) -> usize {
    cgroup::at_most(usual as u64, part) as usize
}

/// Eight bytes of a code, after the first `skipped`, as a number. If two numbers differ, they are
/// in the order of their codes.
#[inline]
#[must_use]
pub fn number_of(code: &[u8], skipped: usize) -> u64 {
    let code = code.get(skipped..).unwrap_or_default();
    if let Some(first) = code.first_chunk() {
        return u64::from_be_bytes(*first);
    }
    let unused = 8 * (8 - code.len() as u32);
    match (code.first_chunk(), code.last_chunk()) {
        // The two chunks overlap, and the bits of both are the same there.
        (Some(first), Some(last)) => {
            u64::from(u32::from_be_bytes(*first)) << 32 | u64::from(u32::from_be_bytes(*last)) << unused
        }
        _ => (0..8).fold(0, |first, at| first << 8 | u64::from(code.get(at).copied().unwrap_or(0))),
    }
}

/// How many bytes two codes have in common at their begin.
fn common_size(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| one == other).count()
}
