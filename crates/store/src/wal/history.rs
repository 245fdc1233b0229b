//! Keeps the history of changes in the tree after the WAL records have left the log.
//!
//! With `keep=`, a checkpoint also writes the WAL records that it applies into the catalog, in
//! chunks, and deletes the oldest chunks beyond the limit. All of this is in its one transaction,
//! so the chunks never have a hole and always reach up to what the tree has. A bulk commit, which
//! is never in the log, writes its own changes as chunks (`recording.rs`), unless they are larger
//! than the limit.
//!
//! ```text
//! "g" + u64 version, u32 part     u64 version of the last commit, u64 sum of the sizes of all
//!                                 chunks up to this one, u64 seconds since 1970, u8 kind,
//!                                 what was kept, u64 check
//! kind   0  WAL records, one after the other, as in the log
//!        1  a part of what one bulk commit wrote, and more parts follow
//!        2  its last part; each part: u32 count, entries
//! ```
//!
//! The versions in keys are big-endian, so that the chunks are in order. The check is that of a
//! catalog entry.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::catalog::history_chunk::{CHUNK, Chunk, Kind};
use crate::catalog::{self, Applied, CatalogError};
use crate::engine::history::Keep;
use crate::engine::{Contents, Cursor, Direction, EngineError, ReadTxn, Start, Tree, WriteTxn};
use crate::wal::record;
use crate::wal::segments::{SegmentHead, Segments};

/// The size above which a new chunk is begun. With the bytes around it a power of two and no more,
/// to fit the engine's pages.
pub(crate) const CHUNK_SIZE: usize = (64 << 10) - 256;
/// How much of a bulk commit is kept in any case: enough to say that a table was cleared or
/// dropped.
pub(crate) const BULK_SIZE_MIN: u64 = 64 << 10;
/// A chunk's head, its key and its value.
pub(crate) type StoredChunk<'t> = (Chunk, &'t [u8], &'t [u8]);

/// The first chunk from a key on, or the last one below it.
pub(crate) fn chunk_at<'t>(
    cursor: &mut dyn Cursor<'t>,
    at: &[u8],
    direction: Direction,
) -> Result<Option<StoredChunk<'t>>, EngineError> {
    cursor.start(Start::At(at), direction)?;
    next_chunk(cursor)
}

pub(crate) fn next_chunk<'t>(cursor: &mut dyn Cursor<'t>) -> Result<Option<StoredChunk<'t>>, EngineError> {
    match cursor.step()? {
        Some((key, value)) if key.first() == Some(&CHUNK) => match Chunk::parse(key, value) {
            Some(chunk) => Ok(Some((chunk, key, value))),
            None => Err(damaged()),
        },
        _ => Ok(None),
    }
}

pub(crate) fn damaged() -> EngineError {
    EngineError::Damaged { what: "a chunk of the history of changes cannot be read", code: 0 }
}

/// The `keep=` setting of a tree.
pub(crate) fn keep_of(source: &dyn Contents) -> Result<Keep, EngineError> {
    catalog::keep(source).map_err(|error| match error {
        CatalogError::Engine(error) => error,
        CatalogError::Damaged { .. } => {
            EngineError::Damaged { what: "how far back changes are kept cannot be read", code: 0 }
        }
    })
}

fn now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// Bytes of all chunks that were ever written to a tree, as far as its last chunk tells.
pub(crate) fn total(txn: &dyn WriteTxn) -> Result<u64, EngineError> {
    let mut cursor = txn.cursor(Tree::Meta)?;
    let last = chunk_at(&mut *cursor, &[CHUNK + 1], Direction::Reverse)?;
    Ok(last.map_or(0, |(chunk, _, _)| chunk.total))
}

/// Bytes of the chunks that exist now.
pub(crate) fn size(txn: &dyn ReadTxn) -> Result<u64, EngineError> {
    let mut cursor = txn.cursor(Tree::Meta)?;
    let last = chunk_at(&mut *cursor, &[CHUNK + 1], Direction::Reverse)?;
    let first = chunk_at(&mut *cursor, &[CHUNK], Direction::Forward)?;
    Ok(match (first, last) {
        (Some((first, _, value)), Some((last, _, _))) => {
            last.total.saturating_sub(first.total) + value.len() as u64
        }
        _ => 0,
    })
}

/// The number of chunks.
pub(crate) fn count(txn: &dyn ReadTxn) -> Result<i64, EngineError> {
    let mut cursor = txn.cursor(Tree::Meta)?;
    cursor.start(Start::At(&[CHUNK]), Direction::Forward)?;
    let mut count = 0;
    while cursor.step()?.is_some_and(|(key, _)| key.first() == Some(&CHUNK)) {
        count += 1;
    }
    Ok(count)
}

/// Writes chunks.
pub(crate) struct ChunkWriter {
    total: u64,
    time: u64,
}

impl ChunkWriter {
    pub(crate) fn new(txn: &dyn WriteTxn) -> Result<Self, EngineError> {
        Ok(Self { total: total(txn)?, time: now() })
    }

    pub(crate) fn write(
        &mut self,
        txn: &mut dyn WriteTxn,
        (first, part, last): (u64, u32, u64),
        kind: Kind,
        body: &[u8],
    ) -> Result<(), EngineError> {
        self.total += body.len() as u64;
        let chunk = Chunk { first, part, last, total: self.total, time: self.time, kind };
        let (key, value) = chunk.entry(body);
        txn.put(Tree::Meta, &key, &[&value])
    }
}

/// Write the WAL records of a checkpoint as chunks, if `keep=` is set, and delete the chunks beyond
/// its limit.
pub(crate) fn take_over(
    txn: &mut dyn WriteTxn,
    segments: &Segments,
    (segment, head, end): (usize, SegmentHead, u64),
    before: Applied,
) -> Result<(), EngineError> {
    let keep = keep_of(&*txn)?;
    if keep.is_nothing() {
        // A bulk commit's chunks stay as long as the WAL records after it are in the log.
        return delete_while(txn, |chunk| chunk.last < before.sequence);
    }
    let mut writer = ChunkWriter::new(&*txn)?;
    let needless = (end - head.begin).saturating_sub(keep.size);
    let (mut body, mut first) = (Vec::with_capacity(CHUNK_SIZE), None);
    let (mut at, mut version, mut seed, mut bytes) = (head.begin, before.sequence, head.salt, Vec::new());
    if needless > 0 {
        delete_while(txn, |_| true)?;
    }
    while at < end {
        let Some(check) = segments.wal_record(segment, head, at, version + 1, seed, &mut bytes)? else {
            // The memtable has more than the log, which was damaged. History that cannot be read is
            // not kept.
            return delete_while(txn, |_| true);
        };
        at += bytes.len() as u64;
        version += 1;
        seed = check;
        if at - head.begin <= needless {
            continue;
        }
        let extents = segments.extents().map(|extents| &**extents);
        bytes = record::with_values(std::mem::take(&mut bytes), extents).ok_or_else(damaged)?;
        if body.len() + bytes.len() > CHUNK_SIZE
            && let Some(first) = first.take()
        {
            writer.write(txn, (first, 0, version - 1), Kind::WalRecords, &body)?;
            body.clear();
        }
        first.get_or_insert(version);
        body.extend_from_slice(&bytes);
    }
    if let Some(first) = first {
        writer.write(txn, (first, 0, version), Kind::WalRecords, &body)?;
    }
    trim(txn, keep)
}

/// Delete the chunks beyond the limit of `keep=`.
pub(crate) fn trim(txn: &mut dyn WriteTxn, keep: Keep) -> Result<(), EngineError> {
    let (total, oldest) = (total(&*txn)?, now().saturating_sub(keep.seconds));
    delete_while(txn, |chunk| total.saturating_sub(chunk.total) >= keep.size || chunk.time < oldest)
}

/// Delete chunks from the oldest on. All parts of one commit go together.
pub(crate) fn delete_while(
    txn: &mut dyn WriteTxn,
    mut is_needless: impl FnMut(&Chunk) -> bool,
) -> Result<(), EngineError> {
    let mut commit = None;
    loop {
        let found = {
            let mut cursor = txn.cursor(Tree::Meta)?;
            chunk_at(&mut *cursor, &[CHUNK], Direction::Forward)?.map(|(chunk, _, _)| chunk)
        };
        match found {
            Some(chunk) if commit == Some(chunk.first) || is_needless(&chunk) => {
                txn.delete(Tree::Meta, &Chunk::key(chunk.first, chunk.part))?;
                commit = Some(chunk.first);
            }
            _ => return Ok(()),
        }
    }
}
