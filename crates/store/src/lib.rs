//! Where do records live, and how does a change of them become lasting?
#![deny(unsafe_code)]

pub mod engine;
pub mod lmdb;
mod lmdb_cursor;
mod lmdb_page;
mod lmdb_txn;
pub mod memory;
mod os;
mod registry;
