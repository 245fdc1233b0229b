//! Checks whether there is memory for an operation before it starts.
//!
//! In most places a failed allocation ends the process. So large allocations can fail (`zeros`),
//! and before work that makes many small ones, a check is made that some megabytes are left. With a
//! limit on the process's address space (`ulimit -v`) that check is exact. In a container with
//! little memory, what is kept in memory is sized by that (`cgroup.rs`).
#![allow(unsafe_code)]

use std::alloc::{Layout, alloc_zeroed};
use std::fmt;
use std::sync::atomic::AtomicU64;

use crate::sys::cgroup;
use crate::sys::os;
use crate::sys::size::Bytes;

/// The reserve for the many small allocations that are not checked.
pub(crate) const HEADROOM: usize = 16 << 20;

/// The limit on this process's address space, if there is one.
pub(crate) fn address_limit() -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the call fills the structure, which is ours.
    let failed = unsafe { libc::getrlimit(libc::RLIMIT_AS, &raw mut limit) };
    (failed == 0 && limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

/// How many bytes of memory the machine has, or the container; 0 if the system does not tell.
pub(crate) fn of_machine() -> u64 {
    // SAFETY: the call reads a number.
    let pages = unsafe { libc::sysconf(libc::_SC_PHYS_PAGES) };
    cgroup::at_most(u64::try_from(pages).unwrap_or(0).saturating_mul(os::page_size() as u64), 1)
}

/// How much address space this process may still take. `None` without a limit, or if the system
/// does not tell.
pub(crate) fn address_room() -> Option<u64> {
    let limit = address_limit()?;
    // In pages. The first number is the one that the limit applies to.
    let pages = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = pages.split_ascii_whitespace().next()?.parse().ok()?;
    Some(limit.saturating_sub(pages.saturating_mul(os::page_size() as u64)))
}

/// Whether this much address space and some headroom is left. Always true without a limit: then the
/// system overcommits memory.
pub(crate) fn has_room(size: usize) -> bool {
    if address_limit().is_none() {
        return true;
    }
    let size = size.saturating_add(HEADROOM);
    // SAFETY: a new mapping at an address that the system chooses; nothing may touch it.
    let probe = unsafe {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        libc::mmap(std::ptr::null_mut(), size, libc::PROT_NONE, flags, -1, 0)
    };
    if probe == libc::MAP_FAILED {
        return false;
    }
    // SAFETY: the mapping is ours, and has no other user.
    unsafe { libc::munmap(probe, size) };
    true
}

/// This many words of zeros, or `None` if there is no memory. Fresh memory from the system costs
/// nothing before it is touched.
pub(crate) fn zeros(count: usize) -> Option<Box<[AtomicU64]>> {
    /// Smaller allocations are taken from the headroom.
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
    // SAFETY: memory with the layout of such a box, from the allocator of boxes; zeros are valid
    // words.
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
