//! Who may use what lies beside a database, or takes its place?
//!
//! Whoever may use the database, and nobody else. Log and copies hold what it holds, so that nobody else is to read them; and
//! whoever may write it, as one of a group perhaps, has to be able to write lock file and log too, whosever process made them and
//! whatever its umask takes away.

use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, fchown};
use std::path::Path;

const ALL: u32 = 0o777;
const GROUP: u32 = 0o070;
const OTHERS: u32 = 0o007;
/// The rights of what is for nobody else.
pub(crate) const PRIVATE: u32 = 0o600;

/// What a file is made with that is to be like a database; the process's umask takes away from it.
pub(crate) fn mode_like(database: &Metadata) -> u32 {
    database.mode() & ALL
}

/// The same, of a database at a path, if there is one.
pub(crate) fn mode_beside(database: Option<&Path>) -> u32 {
    let metadata = database.and_then(|path| path.metadata().ok());
    metadata.map_or(0o666, |metadata| mode_like(&metadata))
}

/// Give a file that we made a database's rights, and its group and owner where the system lets us: few may give a file to somebody else.
pub(crate) fn liken(file: &File, database: &Metadata) -> io::Result<()> {
    let found = file.metadata()?;
    if found.uid() != database.uid() {
        let _ = fchown(file, Some(database.uid()), None);
    }
    let has_group = found.gid() == database.gid() || fchown(file, None, Some(database.gid())).is_ok();
    let mut mode = mode_like(database);
    if !has_group {
        // Its group is another one, which may do what everybody may.
        mode = mode & !GROUP | (mode & OTHERS) << 3;
    }
    if mode_like(&found) == mode { Ok(()) } else { file.set_permissions(Permissions::from_mode(mode)) }
}
