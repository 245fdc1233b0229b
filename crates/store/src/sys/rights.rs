//! The permissions of files beside a database, or in its place.
//!
//! They are for the users of the database and no others. Log and copies have its contents, so no
//! other user may read them. A user who may write the database, perhaps as a member of its group,
//! has to be able to write the lock file and the log too, whichever process made them and whatever
//! its umask removes.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

const ALL: u32 = 0o777;
const GROUP: u32 = 0o070;
const OTHERS: u32 = 0o007;
/// The permissions of a private file.
pub(crate) const PRIVATE: u32 = 0o600;

/// The permissions with which to create a file like a database's; the process's umask removes some.
pub(crate) fn mode_like(database: &Metadata) -> u32 {
    database.mode() & ALL
}

/// The same, for a database at a path, if there is one.
pub(crate) fn mode_beside(database: Option<&Path>) -> u32 {
    let metadata = database.and_then(|path| path.metadata().ok());
    metadata.map_or(0o666, |metadata| mode_like(&metadata))
}

/// Give a new file the permissions of a database, and its group and owner if the system allows it:
/// few users may give a file to another one.
pub(crate) fn liken(file: &File, database: &Metadata) -> io::Result<()> {
    let found = file.metadata()?;
    if found.uid() != database.uid() {
        let _ = fchown(file, Some(database.uid()), None);
    }
    let has_group = found.gid() == database.gid() || fchown(file, None, Some(database.gid())).is_ok();
    let mut mode = mode_like(database);
    if !has_group {
        // The file has another group, which may do what all users may.
        mode = mode & !GROUP | (mode & OTHERS) << 3;
    }
    if mode_like(&found) == mode { Ok(()) } else { file.set_permissions(Permissions::from_mode(mode)) }
}
