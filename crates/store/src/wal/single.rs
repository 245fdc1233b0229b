//! Reads or changes one row without a transaction.
//!
//! A dict is mostly used one key at a time. A transaction would fill a write batch, read and write
//! the counters, and make a snapshot: ten times the work. Here the row is looked up in the
//! memtables and the tree, and its WAL record is appended, all under the two locks that a commit
//! needs. The rows that change with it, index entries, are in the same WAL record. A change that
//! needs more, or that would have to wait, goes through a transaction.

use std::sync::atomic::Ordering;

use crate::engine::{Choice, Choose, EngineError, HashedKey, OtherRows, RowAccess, TryResult, TryRow};
use crate::wal::checkpoint::wal_record_size_max;
use crate::wal::engine::{LoggedEngine, Shared};
use crate::wal::extents;
use crate::wal::lock::{self, Held};
use crate::wal::memtable::MemtableSlot;
use crate::wal::record::{self, Change};
use crate::wal::segments::Segments;
use crate::wal::state::{Below, State};

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
    fn change_row(
        &self,
        key: HashedKey<'_>,
        known: u64,
        others: &mut OtherRows,
        choose: &mut Choose<'_>,
    ) -> TryRow {
        // The first commit starts the checkpointer, on the slow path.
        if !self.has_checkpointer.load(Ordering::Relaxed) {
            return Ok(TryResult::UseTransaction);
        }
        self.shared.check_sound()?;
        let Some(held) = lock::try_acquire(&self.shared.segments) else {
            return Ok(TryResult::UseTransaction);
        };
        let guard = WriterLockGuard(&self.shared.segments, held);
        self.shared.change_row(&guard.1, (key, known), others, choose)
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
    /// Change a row, and others with it.
    #[inline]
    fn change_row(
        &self,
        held: &Held,
        (key, known): (HashedKey<'_>, u64),
        others: &mut OtherRows,
        choose: &mut Choose<'_>,
    ) -> TryRow {
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
        let choice = choose(old, &mut bytes, others);
        let change = match choice {
            Choice::Put => Some(record::end_put(&mut bytes, key_at)),
            Choice::Delete => Some(record::end_delete(&mut bytes, key_at)),
            Choice::Leave => None,
        };
        let mut done = Ok(TryResult::UseTransaction);
        if let Some(mut change) = change {
            if was_there != (choice == Choice::Put) {
                record::count_first(&mut bytes, &mut change);
            }
            if let Some(others) = push_others(&state, &below, others, &mut bytes)? {
                done = self.append_rows(held, &mut state, (place, used), &mut bytes, (&change, others));
            }
        }
        if bytes.capacity() <= SPARE_SIZE_MAX {
            state.spare = bytes;
        }
        done
    }

    /// Append the WAL record of one row and some others, if there is room.
    #[inline]
    fn append_rows(
        &self,
        held: &Held,
        state: &mut State,
        (place, used): (MemtableSlot, u64),
        bytes: &mut Vec<u8>,
        (change, others): (&Change, u32),
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
        match state.append_rows((segments, held), place, bytes, (change, others)) {
            Ok(()) => Ok(TryResult::Done(())),
            // Nothing was done, and a transaction can make room.
            Err(EngineError::DiskFull(_) | EngineError::NoMemory(_)) => Ok(TryResult::UseTransaction),
            Err(error) => Err(error),
        }
    }
}

/// Add the changes of other rows to the WAL record of a row. Returns how many entries that makes;
/// `None` if a row is where none may be.
#[inline]
fn push_others(
    state: &State,
    below: &Below,
    others: &OtherRows,
    bytes: &mut Vec<u8>,
) -> Result<Option<u32>, EngineError> {
    state.ask_for(others.rows().map(|row| row.key));
    for (start, end) in others.empty_ranges() {
        if state.first_from(below, start)?.is_some_and(|(key, _)| key < end) {
            return Ok(None);
        }
    }
    let mut count = 0;
    for row in others.rows() {
        let was_there = !row.is_new && state.find(below, row.key)?.is_some();
        match row.value {
            Some(value) => record::push_row(bytes, row.key.bytes, [value, &[]], !was_there),
            None if was_there => record::push_gone(bytes, row.key.bytes),
            None => continue,
        };
        count += 1;
    }
    Ok(Some(count))
}
