//! Checking a database's pages and rows, and making sound copies of it (backup, compact).

pub(crate) mod build_index;
pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod derive_rows;
pub(crate) mod maintenance;
pub(crate) mod prove_index;
pub(crate) mod sizes;
