//! The files of a database: finding, opening, recognising and locking them.

pub(crate) mod log_file;
pub(crate) mod open;
pub(crate) mod opening;
pub(crate) mod own_file;
pub(crate) mod registry;
pub(crate) mod rights;
pub(crate) mod side_file;
pub(crate) mod stamp;
