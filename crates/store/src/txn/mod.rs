//! Transactions, snapshots, the writer lock, and walks over rows.

pub(crate) mod begin;
pub(crate) mod index_batch;
pub(crate) mod index_entries;
pub(crate) mod load;
pub(crate) mod lookahead;
pub(crate) mod make_index;
pub(crate) mod next_int;
pub(crate) mod overflow;
pub(crate) mod patch;
pub(crate) mod pin;
pub(crate) mod reader;
pub(crate) mod scan;
pub(crate) mod single;
mod single_entries;
pub(crate) mod snapshot;
pub(crate) mod transaction;
pub(crate) mod transaction_scan;
mod waiting;
pub(crate) mod writer_lock;
