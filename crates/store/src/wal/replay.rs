//! Writes a sealed segment into the tree that this process has no memtable of.
//!
//! That is so after a death, and where another process wrote the segment. It may be larger than
//! the memory that this process may take: the process that wrote it may have had more. So it is
//! read in parts. Each part is a memtable that goes into the tree before the next part is read, all
//! in one transaction. The tree writes most of the pages that a transaction changes ahead of its
//! commit, so the memory is bounded, and the tree still has either nothing of a segment or all of
//! it.

use crate::engine::{Change, EngineError, Tree, WriteTxn};
use crate::wal::checkpoint::{write_counts, write_memtable};
use crate::wal::engine::Shared;
use crate::wal::extents::take_from_reserve;
use crate::wal::memtable::Memtable;
use crate::wal::record;
use crate::wal::segments::{SegmentHead, Segments};
use crate::wal::takeover::read_chain;

/// A segment, its head, and the position where the next one begins.
pub(super) type Sealed = (usize, SegmentHead, u64);

impl Shared {
    /// Write a memtable, or a part of a segment, into the tree. False if `go_on` returned false.
    pub(super) fn write_part(
        &self,
        txn: &mut dyn WriteTxn,
        memtable: &Memtable,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<bool, EngineError> {
        let Some(placed) = write_memtable(txn, memtable, go_on)? else { return Ok(false) };
        take_from_reserve(txn, self.segments.extents().map(|extents| &**extents), memtable, &placed)?;
        write_counts(txn, memtable)?;
        Ok(true)
    }

    /// Write a segment from the log into the tree. `before` is the sequence number of the last WAL
    /// record before it. Returns that of its last one; `None` if `go_on` returned false.
    pub(super) fn write_segment(
        &self,
        txn: &mut dyn WriteTxn,
        sealed: Sealed,
        before: u64,
        go_on: &mut dyn FnMut() -> bool,
    ) -> Result<Option<u64>, EngineError> {
        let (segments, (segment, head, end)) = (&self.segments, sealed);
        let (mut memtable, mut arena_writer) = Memtable::over(segments.extents());
        let mut is_whole = true;
        let mut add = |sequence, wal_record: &[u8]| -> Result<bool, EngineError> {
            if memtable.memory() as u64 >= segments.part_size() {
                if std::mem::take(&mut is_whole) {
                    self.prove(end, |prove| prove(&mut Keys::of(segments, sealed, before)?.changes()))?;
                }
                if !self.write_part(txn, &memtable, go_on)? {
                    return Ok(false);
                }
                (memtable, arena_writer) = Memtable::over(segments.extents());
            }
            memtable.reserve(wal_record.len(), record::count_of(wal_record))?;
            memtable.add(&mut arena_writer, sequence, wal_record);
            Ok(true)
        };
        let (mut read, mut done) = (head.begin, Ok(true));
        let chain = read_chain(segments, segment, head, before, |sequence, wal_record| {
            read += wal_record.len() as u64;
            // After the end there may be one whose large values were lost.
            done = if read > end { Ok(false) } else { add(sequence, wal_record) };
            matches!(done, Ok(true))
        })?;
        if read <= end && !done? {
            return Ok(None);
        }
        if chain.end != end {
            let what = "a sealed segment of the log does not reach to where the next one begins";
            return Err(EngineError::Damaged { what, code: 0 });
        }
        if is_whole {
            self.prove_memtable(end, &memtable)?;
        }
        Ok(self.write_part(txn, &memtable, go_on)?.then_some(chain.sequence))
    }
}

/// The keys that a segment changes, for the proof of the pages before any part is written.
#[derive(Default)]
struct Keys {
    /// The keys, one after the other.
    bytes: Vec<u8>,
    keys: Vec<Key>,
}

/// Sorted as in a proof: by tree, and then by the key's bytes.
#[derive(Clone, Copy)]
struct Key {
    start: u32,
    size: u32,
    tree: Tree,
    is_deleted: bool,
}

impl Keys {
    fn of(segments: &Segments, (segment, head, end): Sealed, before: u64) -> Result<Self, EngineError> {
        let (mut found, mut read, mut has_room) = (Self::default(), head.begin, true);
        read_chain(segments, segment, head, before, |_, wal_record| {
            read += wal_record.len() as u64;
            has_room &= found.bytes.try_reserve(wal_record.len()).is_ok();
            if read > end || !has_room {
                return false;
            }
            for change in record::changes(wal_record) {
                let key = wal_record.get(change.key).unwrap_or_default();
                let (start, size) = (found.bytes.len() as u32, key.len() as u32);
                let is_deleted = change.value.is_none();
                found.bytes.extend_from_slice(key);
                found.keys.push(Key { start, size, tree: change.tree, is_deleted });
            }
            true
        })?;
        if !has_room {
            return Err(EngineError::NoMemory("the keys of the commits in the log"));
        }
        let bytes = std::mem::take(&mut found.bytes);
        let order = |key: &Key| (key.tree.index(), key_of(&bytes, *key), key.is_deleted);
        found.keys.sort_unstable_by(|one, other| order(one).cmp(&order(other)));
        found.keys.dedup_by(|one, other| order(one) == order(other));
        Ok(Self { bytes, keys: found.keys })
    }

    /// A key that is put and deleted comes twice.
    fn changes(&self) -> impl Iterator<Item = Change<'_>> {
        self.keys.iter().map(|key| (key.tree, key_of(&self.bytes, *key), key.is_deleted))
    }
}

fn key_of(bytes: &[u8], key: Key) -> &[u8] {
    bytes.get(key.start as usize..).and_then(|rest| rest.get(..key.size as usize)).unwrap_or_default()
}
