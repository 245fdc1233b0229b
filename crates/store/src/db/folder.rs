//! Names in the folder of a database.

use std::path::{Path, PathBuf};

use crate::error::StoreError;
use crate::sys::os;

pub(crate) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

pub(crate) fn folder_of(file: &Path) -> &Path {
    match file.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Make a new name in a folder survive a power cut.
pub(crate) fn sync_folder(file: &Path) -> Result<(), StoreError> {
    let folder = folder_of(file);
    let failed = |source| StoreError::from_io("sync", folder.display().to_string(), source);
    // If the folder cannot be opened, the file's whole file system is synced.
    let synced = std::fs::File::open(file).and_then(|file| os::sync_names(folder, &file));
    synced.map_err(failed)
}
