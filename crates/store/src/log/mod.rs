//! How does a commit last at the price of a copy?
//!
//! Commits are groups in one log that all openers share; readers see the log's groups over the tree; a checkpoint
//! writes them into the tree. The contract, with its invariants by number, is `docs/internals/write-path.md`.

mod areas;
mod checkpoint;
mod counted;
mod draft;
mod engine;
mod follow;
mod group;
mod history;
mod keeper;
mod key_order;
mod layer;
mod lock;
mod merge;
mod newest;
mod read;
mod recording;
mod room;
mod single;
mod space;
mod state;
mod sync;
mod write;

pub(crate) use areas::{FORMAT as LOG_FORMAT, MAGIC as LOG_MAGIC, area_size_of, words_for};
pub(crate) use checkpoint::unapplied;
pub use engine::LoggedEngine;
pub(crate) use engine::{Met, OF_ANOTHER, Opened};
pub(crate) use history::CHUNK as CHUNK_KEY;
pub(crate) use history::Chunk;
#[cfg(test)]
pub(crate) use history::Kind as ChunkKind;
pub(crate) use space::{GONE, MEMBER_MAX, MemorySpace, Space};
