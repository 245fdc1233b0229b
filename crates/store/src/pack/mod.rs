//! Compressed tables: each record is packed alone, with a dictionary that was trained on rows of
//! its table.
//!
//! Rows are packed where they reach the tree (`packing.rs`): in a checkpoint, and in a transaction
//! that is too large for the log. Log, memtables and write batches have plain rows, so that a put
//! costs what it costs in any table. A row is opened where it is looked up or walked over
//! (`opening.rs`); nothing above the store knows that it was packed.
//!
//! Not packed are keys, index entries, large values that are stored apart, and records of 128 KiB
//! or more: readers use these where they lie, without a copy.

pub(crate) mod codec;
pub(crate) mod opening;
pub(crate) mod packing;
pub(crate) mod training;

use std::sync::atomic::{AtomicBool, Ordering};

/// See [`compress_all`].
static IS_ALL: AtomicBool = AtomicBool::new(false);

/// Make every table that this process creates a compressed one, unless the creator says otherwise,
/// and train its first dictionary on its first row, so that tests can pack what other tests store.
/// Such a dictionary is worth nothing.
pub fn compress_all(is_all: bool) {
    IS_ALL.store(is_all, Ordering::Relaxed);
}

/// Whether every table is compressed.
pub(crate) fn is_all() -> bool {
    IS_ALL.load(Ordering::Relaxed)
}

/// Records of this size or more are left as they are.
pub(crate) const RECORD_SIZE_END: usize = 128 << 10;
/// Shorter records have nothing to gain.
pub(crate) const RECORD_SIZE_MIN: usize = 16;
