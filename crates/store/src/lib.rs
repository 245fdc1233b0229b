//! The pellucid store: tables of records with transactions, snapshots, indexes and durability.
//!
//! [`Store`] is an open database: named tables of rows, each a key code and a record. [`Snapshot`]
//! reads one version of all of it in place, [`Transaction`] changes it, [`Scan`] walks over it.
//! Underneath is an ordered key-value engine ([`engine`]): LMDB on disk, persistent maps in memory.
//! Keys and records are bytes here; their meaning is the business of `pellucid-record`.
#![deny(unsafe_code)]

mod catalog;
mod database;
pub mod engine;
mod error;
mod file;
mod index;
mod pack;
mod sort;
mod store;
mod sys;
mod txn;
mod verify;
pub mod wal;
mod warning;
mod watch;

pub use catalog::blob::BLOB_ADDRESS_REMAINDER;
pub use catalog::cell::FoundRow;
pub use catalog::row_key::TableId;
pub use catalog::shapes::TransactionShapes;
pub use engine::AtOnce;
pub use engine::history::Keep;
pub use error::{Holder, StoreError, Wanted};
pub use index::{
    Building, Derive, Derived, Deriver, IndexError, IndexInfo, KeepOn, NotUnique, Reached, range_of_parts,
};
pub use pack::compress_all;
pub use pack::sizes::Sizes;
pub use store::{Durability, Mode, OpenOptions, Store};
pub use sys::os::{is_first_thread, system_number, thread_number};
#[cfg(feature = "failpoints")]
pub use sys::steps::{STEP_NAMES, watch_steps};
pub use txn::lookahead::Lookahead;
pub use txn::reader::Reader;
pub use txn::scan::{Range, Row, RowName, Scan};
pub use txn::single::{Hold, KnownTable};
pub use txn::snapshot::Snapshot;
pub use txn::transaction::{Savepoint, Transaction};
pub use txn::transaction_scan::TransactionScan;
pub use txn::whole::{Large, Whole};
pub use verify::check::Finding;
pub use verify::maintenance::Stats;
pub use wal::{LARGE_SIZE_MIN, LogFault, MEMORY_MIN, MEMORY_USUAL, rest_soon};
pub use warning::Warning;
pub use watch::{Change, Changes, Happened, LargeValue, Watch, WatchStep, Watched};
