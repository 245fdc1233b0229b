//! Which file a path leads to, whatever its names, and whether it may be used.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The identity of a file, whatever its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FileId {
    pub(crate) device: u64,
    pub(crate) inode: u64,
}

pub(crate) fn id_of(metadata: &Metadata) -> FileId {
    FileId { device: metadata.dev(), inode: metadata.ino() }
}

/// The file's identity, if the path still leads to it.
pub(crate) fn same_file(path: &Path, file: &File) -> Option<FileId> {
    let (there, here) = (std::fs::metadata(path).ok()?, file.metadata().ok()?);
    (id_of(&there) == id_of(&here)).then(|| id_of(&here))
}

/// Whether an error means that this user may not write there, though perhaps read.
pub(crate) fn is_denied(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EACCES | libc::EPERM | libc::EROFS))
}
