//! An open database: what its handles share, the locks on its file, the files beside it, and which
//! databases this process has open.

pub(crate) mod database;
pub(crate) mod floors;
pub(crate) mod folder;
pub(crate) mod log_file;
pub(crate) mod opening;
pub(crate) mod packed_rows;
pub(crate) mod registry;
pub(crate) mod stamp;
pub(crate) mod store;
pub(crate) mod writer_queue;
