//! Words of memory that processes share: a mapped file or, for tests, memory of one process.
#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ops::{Deref, Range};
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// Words that stay in place. Callers that read some with every commit keep a reference: asking the
/// space for them each time was a tenth of a put.
pub(crate) struct Words {
    base: NonNull<AtomicU64>,
    count: usize,
    is_mapped: bool,
}

// SAFETY: the words are atomics, and stay in place as long as the object lives.
unsafe impl Send for Words {}
// SAFETY: as above.
unsafe impl Sync for Words {}

impl Words {
    /// The first bytes of a file, as words that processes share: a mapping as long as the object.
    pub(crate) fn map(file: &File, size: u64, is_writable: bool) -> io::Result<Self> {
        let protection = if is_writable { libc::PROT_READ | libc::PROT_WRITE } else { libc::PROT_READ };
        // SAFETY: a new mapping at an address that the system chooses, of a file that is open and
        // has that size; no process makes it smaller while it is open.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), size as usize, protection, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let base = NonNull::new(base.cast()).ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { base, count: size as usize / 8, is_mapped: true })
    }

    /// Words in this process's own memory.
    pub(crate) fn in_memory(words: Box<[AtomicU64]>) -> Self {
        let count = words.len();
        // Not null: it comes from a box.
        let base = NonNull::from(Box::leak(words)).cast();
        Self { base, count, is_mapped: false }
    }

    /// Map pages that are about to be written to, and return whether they are mapped. One call for
    /// all of them costs a third of a fault for each. Where the system does not support it, the
    /// faults map them.
    pub(crate) fn touch(&self, bytes: Range<usize>) -> bool {
        #[cfg(target_os = "linux")]
        if let Some(words) = self.get(bytes.start / 8..bytes.end / 8) {
            // SAFETY: pages of our own mapping, at an address that is a multiple of their size;
            // their content does not change.
            let failed = unsafe {
                libc::madvise(words.as_ptr().cast_mut().cast(), bytes.len(), libc::MADV_POPULATE_WRITE)
            };
            return failed == 0;
        }
        false
    }

    /// Sync some bytes of a mapped file: `fdatasync` of that part of it on Linux, including what
    /// other processes have stored there through their own maps.
    pub(crate) fn sync(&self, bytes: Range<usize>) -> io::Result<()> {
        let Some(words) = self.get(bytes.start / 8..bytes.end.div_ceil(8)).filter(|_| self.is_mapped) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        // SAFETY: the range is in the mapping, which lives as long as `self`; the call changes no
        // memory.
        let failed = unsafe { libc::msync(words.as_ptr().cast_mut().cast(), bytes.len(), libc::MS_SYNC) };
        if failed == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

impl Deref for Words {
    type Target = [AtomicU64];

    #[inline]
    fn deref(&self) -> &[AtomicU64] {
        // SAFETY: the memory has this many words, is aligned for them, and lives as long as `self`.
        // Other processes change them as atomics too. Nothing stores into a file that is mapped for
        // reading alone (`Space`'s callers write only as members).
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.count) }
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        if self.is_mapped {
            // SAFETY: the mapping is ours, and there are no references into it any more.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.count * 8) };
        } else {
            let words = std::ptr::slice_from_raw_parts_mut(self.base.as_ptr(), self.count);
            // SAFETY: leaked from a box of this many words by `in_memory`, and there are no
            // references into it any more.
            drop(unsafe { Box::from_raw(words) });
        }
    }
}
