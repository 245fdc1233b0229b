//! Where do records live, and how does a change of them become lasting?
//!
//! [`Store`] is an open database: named tables of rows, each a key code and a record. [`Snapshot`] reads one version of all
//! of it in place, [`Transaction`] changes it, [`Scan`] walks over it. Underneath is an ordered key-value engine
//! ([`engine`]): LMDB on disk, persistent maps in memory. Keys and records are bytes here; what they mean is
//! `pellucid-record`'s business.
#![deny(unsafe_code)]

mod blob;
mod catalog;
mod cell;
mod check;
mod copy;
mod database;
pub mod engine;
mod engine_error;
mod entry;
mod error;
mod estimate;
mod gate;
mod history;
mod index;
pub mod lmdb;
mod lmdb_cursor;
mod lmdb_fill;
mod lmdb_page;
mod lmdb_search;
mod lmdb_txn;
pub mod log;
mod log_file;
mod maintenance;
pub mod memory;
mod memory_past;
mod next_int;
mod open;
mod opening;
mod os;
mod os_latch;
mod os_map;
mod os_memory;
mod os_wait;
mod own_file;
mod page_proof;
mod page_walk;
mod pages;
mod parts;
mod patch;
mod pin;
mod pin_block;
mod pin_bytes;
mod reclaim;
mod registry;
mod rights;
mod row_key;
mod scan;
mod shapes;
mod short;
mod side_file;
mod single;
mod snapshot;
mod stamp;
mod store;
mod transaction;
mod transaction_scan;
mod warning;
mod watch;
mod whole;
mod writer_lock;

pub use blob::BLOB_ADDRESS_REMAINDER;
pub use cell::Cell;
pub use check::Finding;
pub use engine::AtOnce;
pub use error::{Holder, StoreError, Wanted};
pub use history::Keep;
pub use index::{
    Building, Derive, Derived, Deriver, IndexError, IndexInfo, KeepOn, NotUnique, Reached, range_of_parts,
};
pub use maintenance::Stats;
pub use os::{is_first_thread, thread_number};
pub use row_key::TableId;
pub use scan::{Range, Row, Scan};
pub use shapes::TransactionShapes;
pub use single::{Hold, Known, key_of_roomy};
pub use snapshot::Snapshot;
pub use store::{Durability, Mode, OpenOptions, Store};
pub use transaction::{Savepoint, Transaction};
pub use transaction_scan::TransactionScan;
pub use warning::Warning;
pub use watch::{Change, Changes, Happened, LargeValue, Step, Watch, Watched};
pub use whole::{Large, Whole};
