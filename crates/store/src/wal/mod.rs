//! How does a commit last at the price of a copy?
//!
//! Commits are WAL records in one log that all openers share; readers see the log's WAL records over the tree; a checkpoint
//! writes them into the tree. The contract, with its invariants by number, is `docs/internals/write-path.md`.

mod checkpoint;
mod checkpointer;
mod counted;
mod engine;
mod follow;
mod history;
mod key_order;
mod lock;
mod memtable;
mod merge;
mod newest;
mod read;
mod record;
mod recording;
pub(crate) mod room;
mod segments;
mod single;
mod space;
mod state;
mod sync;
mod write;
mod write_batch;

pub(crate) use checkpoint::unapplied;
pub use engine::LoggedEngine;
pub(crate) use engine::{Met, OF_ANOTHER, Opened};
pub(crate) use history::CHUNK as CHUNK_KEY;
pub(crate) use history::Chunk;
#[cfg(test)]
pub(crate) use history::Kind as ChunkKind;
pub(crate) use segments::{FORMAT as LOG_FORMAT, MAGIC as LOG_MAGIC, segment_size_of, words_for};
pub(crate) use space::{GONE, MEMBER_MAX, MemorySpace, Space};
