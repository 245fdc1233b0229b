//! Reads or changes one row without a transaction.
//!
//! A dict is mostly used one key at a time. A transaction would fill a write batch, read and write
//! the counters, and make a snapshot: ten times the work. Here the row is looked up in the
//! memtables and the tree, and its WAL record is appended, all under the two locks that a commit
//! needs. A change that needs more, or that would have to wait, goes through a transaction.

use std::sync::atomic::Ordering;

use crate::engine::{Choice, Choose, EngineError, HashedKey, RowAccess, TryResult, TryRow};
use crate::wal::checkpoint::wal_record_size_max;
use crate::wal::engine::{LoggedEngine, Shared};
use crate::wal::extents;
use crate::wal::lock::{self, Held};
use crate::wal::memtable::MemtableSlot;
use crate::wal::record::{self, Change};
use crate::wal::segments::Segments;
use crate::wal::state::State;

/// A larger buffer is freed after the commit.
const SPARE_SIZE_MAX: usize = 1 << 20;

/// Holds the writer lock for the change of one row.
struct WriterLockGuard<'a>(&'a Segments, Held);

impl Drop for WriterLockGuard<'_> {
    fn drop(&mut self) {
        lock::release(self.0);
    }
}

impl RowAccess for LoggedEngine {
    #[inline]
    fn change_row(&self, key: HashedKey<'_>, known: u64, choose: &mut Choose<'_>) -> TryRow {
        // The first commit starts the checkpointer, on the slow path.
        if !self.has_checkpointer.load(Ordering::Relaxed) {
            return Ok(TryResult::UseTransaction);
        }
        self.shared.check_sound()?;
        let Some(held) = lock::try_acquire(&self.shared.segments) else {
            return Ok(TryResult::UseTransaction);
        };
        let guard = WriterLockGuard(&self.shared.segments, held);
        self.shared.change_row(&guard.1, key, known, choose)
    }

    #[inline]
    fn show_row(&self, key: &[u8], known: u64, show: &mut dyn FnMut(Option<&[u8]>)) -> TryRow {
        let shared = &self.shared;
        let Some(mut state) = shared.try_state() else { return Ok(TryResult::UseTransaction) };
        let below = state.read_row(&*shared.tree, &shared.segments)?;
        let is_stale = state.catalog_version() > known;
        if !is_stale {
            show(state.find(&below, HashedKey::of(key))?);
        }
        state.park(below);
        Ok(if is_stale { TryResult::CatalogChanged } else { TryResult::Done(()) })
    }
}

impl Shared {
    /// Change a row.
    #[inline]
    fn change_row(&self, held: &Held, key: HashedKey<'_>, known: u64, choose: &mut Choose<'_>) -> TryRow {
        let Some(mut state) = self.try_state() else { return Ok(TryResult::UseTransaction) };
        let segments = &self.segments;
        let below = state.read_row(&*self.tree, segments)?;
        if state.catalog_version() > known {
            return Ok(TryResult::CatalogChanged);
        }
        let Some(last) = state.last_to_append(segments) else { return Ok(TryResult::UseTransaction) };
        // One lookup for both the read and the append: each would need a comparison with the keys
        // that share the hash.
        let (place, used) = (last.memtable.place_of_row(key), last.end - last.head.begin);
        let mut bytes = std::mem::take(&mut state.spare);
        let key_at = record::begin_row(&mut bytes, key.bytes);
        let old = state.find_at(place, &below, key)?;
        let was_there = old.is_some();
        let choice = choose(old, &mut bytes);
        let change = match choice {
            Choice::Put => Some(record::end_put(&mut bytes, key_at)),
            Choice::Delete => Some(record::end_delete(&mut bytes, key_at)),
            Choice::Leave => None,
        };
        let done = match change {
            Some(mut change) => {
                if was_there != (choice == Choice::Put) {
                    record::count_first(&mut bytes, &mut change);
                }
                self.append_row(held, &mut state, (place, used), &mut bytes, &change)
            }
            None => Ok(TryResult::UseTransaction),
        };
        if bytes.capacity() <= SPARE_SIZE_MAX {
            state.spare = bytes;
        }
        done
    }

    /// Append the WAL record of one row, if there is room.
    #[inline]
    fn append_row(
        &self,
        held: &Held,
        state: &mut State,
        (place, used): (MemtableSlot, u64),
        bytes: &mut Vec<u8>,
        change: &Change,
    ) -> TryRow {
        let segments = &self.segments;
        let size = record::size_of(bytes);
        let is_large = size >= extents::SIZE_MIN && segments.extents().is_some();
        if size > wal_record_size_max(segments)
            || is_large
            || used + size as u64 > segments.room()
            || segments.has_found()
        {
            return Ok(TryResult::UseTransaction);
        }
        match state.append_one((segments, held), place, bytes, change) {
            Ok(()) => Ok(TryResult::Done(())),
            // Nothing was done, and a transaction can make room.
            Err(EngineError::DiskFull(_) | EngineError::NoMemory(_)) => Ok(TryResult::UseTransaction),
            Err(error) => Err(error),
        }
    }
}
