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

/// Let all who may read a database write a new file beside it that a user has made who may not
/// write the database. Its owner could not be given the file, and may have to write it.
pub(crate) fn admit_readers(file: &File, database: &Metadata) -> io::Result<()> {
    const READ: u32 = 0o444;
    let found = file.metadata()?;
    if found.uid() == database.uid() {
        return Ok(());
    }
    let mode = mode_like(&found);
    file.set_permissions(Permissions::from_mode(mode | (mode & READ) >> 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_another_user_has_made_is_for_all_who_may_read_the_database() {
        let path = std::env::temp_dir().join(format!("pellucid-rights-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        let mode_after = |database: &Metadata, mode| {
            file.set_permissions(Permissions::from_mode(mode)).unwrap();
            admit_readers(&file, database).unwrap();
            mode_like(&file.metadata().unwrap())
        };
        let own = file.metadata().unwrap();
        // A file of another user: root's, or for root the same one after it was given away.
        let of_root = Path::new("/").metadata().unwrap();
        if own.uid() == of_root.uid() {
            fchown(&file, Some(60_002), None).unwrap();
        }
        assert_eq!(
            [0o644, 0o640, 0o600, 0o664].map(|mode| mode_after(&of_root, mode)),
            [0o666, 0o660, 0o600, 0o666]
        );
        let own = file.metadata().unwrap();
        assert_eq!(mode_after(&own, 0o644), 0o644, "it is the owner's");
        std::fs::remove_file(path).unwrap();
    }
}
