//! Ordered key-value engines: what the store needs of one (`contract.rs`), and the two that there
//! are, in a file (`lmdb/`) and in memory (`memory.rs`).

mod contract;
pub(crate) mod entry;
pub(crate) mod error;
pub(crate) mod extents;
pub(crate) mod history;
pub mod lmdb;
pub mod memory;
pub(crate) mod memory_past;
pub(crate) mod moves;
mod other_rows;
pub(crate) mod row_count;
pub(crate) mod usage;

pub use contract::{
    Batch, Change, Choice, Choose, CommitFeed, Contents, Cursor, Direction, Engine, Entry, EntryPlace,
    EntryResult, FileCare, HashedKey, LogBatch, Parked, ReadTxn, RowAccess, Start, TakeRow, Tree, TreeFile,
    TryResult, TryRow, WriteTxn,
};
pub use error::{BusyLock, EngineError, Result};
pub use extents::{Extents, KeepsPages};
pub use history::{Commit, Keep, Next, WatchPosition, What, Written};
pub use moves::{Fullness, MovesPages, TailEntry, Underfilled};
pub use other_rows::OtherRows;
pub use usage::{FileSize, OldestReader, Usage};
