//! Is there memory for what is about to be done?
//!
//! Memory that cannot be had ends the process in most places that ask for it. So large pieces are asked for by name (`zeros`), and ahead of work
//! that takes many small ones it is asked whether some megabytes are left: where the address space of the process is limited
//! (`ulimit -v`), that is known for sure.
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::fmt;
use std::sync::atomic::AtomicU64;

use crate::engine::EngineError;
use crate::error::Bytes;
use crate::sys::os;

/// What is left for the many small pieces of memory that nobody asks for by name.
pub(crate) const HEADROOM: usize = 16 << 20;

/// The limit on this process's address space, if there is one.
pub(crate) fn address_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure, which is ours.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    (failed == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// How much address space this process may still take, where that is limited and the system tells.
pub(crate) fn address_room() -> Option<u64> {
    let limit = address_limit()?;
    // Of pages, the first number is what the limit is about.
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_ascii_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(pages.saturating_mul(os::page_size() as u64)))
}

/// Whether so much address space, and some headroom, is left. Always so where it is not limited: then the system lends memory without asking.
pub(crate) fn has_room(size: usize) -> bool {
    if address_limit().is_none() {
        return true;
    }
    let size = size.saturating_add(HEADROOM);
    // SAFETY: a new mapping at an address that the system chooses; nobody may touch it.
    let probe = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0)
    };
    if probe == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping is ours, and was given to nobody.
    unsafe { libc::munmap(probe, size) };
    true
}

/// Whether the work that is about to begin has room for so much memory, in small pieces.
///
/// # Errors
/// `NoMemory`.
pub(crate) fn check_room(size: usize, what: &'static str) -> Result<(), EngineError> {
    if has_room(size) { Ok(()) } else { Err(EngineError::NoMemory(what)) }
}

/// So many words of zeros, if there is memory for them. Those that the system gives cost nothing before they are touched.
pub(crate) fn zeros(count: usize) -> Option<Box<[AtomicU64]>> {
    /// Smaller ones are taken from the headroom.
    const LARGE: usize = 1 << 17;
    if count >= LARGE && !has_room(count.saturating_mul(8)) {
        return None;
    }
    let layout = Layout::array::<AtomicU64>(count).ok().filter(|layout| layout.size() > 0)?;
    // SAFETY: the layout has a size.
    let memory = unsafe { alloc_zeroed(layout) };
    if memory.is_null() {
        return None;
    }
    #[expect(clippy::cast_ptr_alignment, reason = "the layout has the alignment of the words")]
    let words = std::ptr::slice_from_raw_parts_mut(memory.cast::<AtomicU64>(), count);
    // SAFETY: memory of this layout, which is that of such a box, from the allocator that boxes have; zeros are words.
    Some(unsafe { Box::from_raw(words) })
}

/// The limit on the address space of this process, if there is one, as the end of a message.
pub(crate) struct Limit;

impl fmt::Display for Limit {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match address_limit() {
            Some(limit) => {
                write!(
                    out,
                    ": this process may use {} of address space (raise it with ulimit -v)",
                    Bytes(limit)
                )
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn memory_that_cannot_be_had_is_told() {
        let words = zeros(1 << 18).unwrap();
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0));
        assert!(zeros(usize::MAX / 16).is_none());
        assert!(has_room(1 << 20));
    }
}
