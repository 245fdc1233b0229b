//! How does a lock on a file stay one process's alone?
//!
//! A fork copies descriptors, and with them the locks that belong to them: children close these at once, and leave closing
//! them later to nobody.

use std::fs::File;
use std::os::fd::AsRawFd;

use crate::sys::os;

/// A file whose `flock` belongs to this process alone: children close it, and leave closing it later to nobody.
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

    pub(crate) fn file(&self) -> Option<&File> {
        self.file.as_ref().filter(|_| self.is_ours())
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        let Some(file) = self.file.take() else { return };
        if self.is_ours() {
            os::no_longer_close_in_children(file.as_raw_fd());
            // Explicitly, in case a child still has a copy of the descriptor.
            let _ = file.unlock();
        } else {
            // The fork handler has closed the descriptor; its number may be somebody else's by now.
            std::mem::forget(file);
        }
    }
}
