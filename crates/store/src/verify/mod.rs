//! Checking a database's pages and rows, and making sound copies of it (backup, compact).

pub(crate) mod check;
pub(crate) mod copy;
pub(crate) mod maintenance;
pub(crate) mod page_proof;
pub(crate) mod page_walk;
pub(crate) mod pages;
