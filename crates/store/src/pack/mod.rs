//! Compressed tables: each record is packed alone, with a dictionary that was trained on rows of its
//! table.
//!
//! Rows are packed where they reach the tree (`packing.rs`): in a checkpoint, and in a transaction
//! that is too large for the log. Log, memtables and write batches have plain rows, so that a put
//! costs what it costs in any table. A row is opened where it is looked up or walked over
//! (`opening.rs`); nothing above the store knows that it was packed.
//!
//! Not packed are keys, index entries, large values that are stored apart, and records of 128 KiB or
//! more: readers use these where they lie, without a copy.

pub(crate) mod books;
pub(crate) mod codec;
pub(crate) mod opening;
pub(crate) mod packing;
pub(crate) mod sizes;
pub(crate) mod training;

/// Records of this size or more are left as they are.
pub(crate) const RECORD_SIZE_END: usize = 128 << 10;
/// Shorter records have nothing to gain.
pub(crate) const RECORD_SIZE_MIN: usize = 16;
/// The largest dictionary.
pub(crate) const DICTIONARY_SIZE_MAX: usize = 64 << 10;
