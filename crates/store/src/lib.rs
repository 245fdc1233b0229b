//! The pellucid store: tables of records with transactions, snapshots, indexes and durability.
//!
//! [`Store`] is an open database: named tables of rows, each a key code and a record. [`Snapshot`]
//! reads one version of all of it in place, [`Transaction`] changes it, [`Scan`] walks over it.
//! Underneath is an ordered key-value engine ([`engine`]): LMDB on disk, persistent maps in memory.
//! Keys and records are bytes here; their meaning is the business of `pellucid-record`.
#![deny(unsafe_code)]

mod admin;
mod catalog;
mod db;
pub mod engine;
mod error;
mod index;
mod open;
mod pack;
mod row;
mod row_key;
pub mod sort;
mod sys;
mod txn;
pub mod wal;
mod warning;
mod watch;

pub use admin::check::Finding;
pub use admin::maintenance::Stats;
pub use admin::sizes::Sizes;
pub use catalog::blob::BLOB_ADDRESS_REMAINDER;
pub use catalog::cell::FoundRow;
pub use catalog::index_entries::{Building, IndexInfo, Reached};
pub use catalog::shapes::TransactionShapes;
pub use db::store::{Durability, Mode, OpenOptions, Store};
pub use engine::TryResult;
pub use engine::history::Keep;
pub use error::index::{IndexError, NotUnique};
pub use error::{Holder, StoreError, Wanted};
pub use index::{Derive, Derived, Deriver, range_of_parts};
pub use pack::compress_all;
pub use row::{Range, Row, RowName};
pub use row_key::TableId;
pub use sys::os::{is_first_thread, system_number, thread_number};
#[cfg(feature = "failpoints")]
pub use sys::steps::{STEP_NAMES, watch_steps};
pub use txn::index_batch::KeepOn;
pub use txn::lookahead::Lookahead;
pub use txn::overflow::{Large, OverflowReader};
pub use txn::patch::{PatchResult, PathChange};
pub use txn::reader::Reader;
pub use txn::scan::Scan;
pub use txn::single::{CachedDatabase, KnownTable};
pub use txn::snapshot::Snapshot;
pub use txn::transaction::{Savepoint, Transaction};
pub use txn::transaction_scan::TransactionScan;
pub use wal::{LARGE_SIZE_MIN, LogFault, MEMORY_MIN, MEMORY_USUAL, rest_soon};
pub use warning::Warning;
pub use watch::{Change, Changes, Happened, LargeValue, Watch, WatchStep, Watched};
