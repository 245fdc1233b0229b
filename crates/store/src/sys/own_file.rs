//! A file whose lock belongs to this process alone, also after a fork.
//!
//! A fork copies descriptors, and with them their locks. So a child closes such descriptors at
//! once, in the fork handler, and its copy of the object never closes them.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::sys::os;

/// A file whose `flock`, and locks on bytes, belong to this process alone. Forked children close
/// the descriptor.
pub(crate) struct OwnFile {
    file: Option<File>,
    generation: u64,
}

impl OwnFile {
    pub(crate) fn new(file: File) -> Self {
        os::close_in_children(file.as_raw_fd());
        Self { file: Some(file), generation: os::generation() }
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.generation == os::generation()
    }

    /// As when the process is killed: the descriptor is closed, and its lock is not released.
    #[cfg(test)]
    pub(crate) fn close_as_if_killed(&mut self) {
        if let Some(file) = self.file.take() {
            os::no_longer_close_in_children(file.as_raw_fd());
        }
    }

    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref().filter(|_| self.is_ours())
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if self.is_ours() {
            os::no_longer_close_in_children(file.as_raw_fd());
            // Unlock explicitly, in case a child still has a copy of the descriptor.
            let _ = file.unlock();
            let _ = os::unlock_all_bytes(&file);
        } else {
            // The fork handler has closed the descriptor; its number may belong to another file by
            // now.
            std::mem::forget(file);
        }
    }
}
