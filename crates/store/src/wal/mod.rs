//! The write-ahead log (WAL): a commit costs one copy into memory that survives the process.
//!
//! Each commit is one WAL record in a log that all processes share. Readers merge the log's WAL
//! records with the tree. A checkpoint copies them into the tree. The contract, with its numbered
//! invariants, is `docs/internals/write-path.md`.

mod budget;
mod checkpoint;
mod checkpointer;
mod compaction;
mod counted;
#[cfg(test)]
mod death;
mod engine;
mod extents;
mod follow;
mod history;
mod lock;
pub(crate) mod log_file;
mod memtable;
mod mend;
mod merge;
mod newest;
mod read;
mod record;
mod record_reader;
mod recording;
mod refill;
mod replay;
pub(crate) mod room;
mod segments;
mod single;
mod space;
mod state;
mod sync;
mod takeover;
mod tombstones;
mod write;
mod write_batch;

pub use budget::{MEMORY_MIN, MEMORY_USUAL};
pub use checkpointer::rest_soon;
pub use engine::LoggedEngine;
pub(crate) use engine::{Met, OF_ANOTHER, Opened};
pub use extents::SIZE_MIN as LARGE_SIZE_MIN;
pub use mend::LogFault;
pub(crate) use mend::mended;
pub(crate) use segments::words_for;
pub(crate) use space::{MemorySpace, Space};
pub(crate) use takeover::unapplied;
