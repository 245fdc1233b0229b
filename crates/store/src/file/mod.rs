//! The files of a database: finding, opening, recognising and locking them.

pub(crate) mod log_file;
pub(crate) mod open;
pub(crate) mod opening;
pub(crate) mod registry;
pub(crate) mod stamp;
