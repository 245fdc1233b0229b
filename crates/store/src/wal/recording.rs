//! Records a bulk commit for watchers.
//!
//! A bulk commit is not in the log, so its changes are written as chunks of the history in the same
//! transaction of the tree (`wal/history.rs`). Recording stops once the changes are larger than
//! the limit of `keep=`; watchers then get `HistoryGone`.

use crate::catalog::Applied;
use crate::catalog::history_chunk::{CHUNK, Kind};
use crate::engine::entry::{CLEARED, DELETED, PUT, push};
use crate::engine::history::Keep;
use crate::engine::{Contents, Cursor, Direction, EngineError, FileSize, LogBatch, Start, Tree, WriteTxn};
use crate::sys::steps::{Step, reached};
use crate::wal::history::{self, BULK_SIZE_MIN, CHUNK_SIZE, ChunkWriter};

/// A transaction of the tree that records its changes.
pub(crate) struct Recording {
    txn: Box<dyn WriteTxn>,
    version: u64,
    keep: Keep,
    writer: ChunkWriter,
    /// Entries that are in no chunk yet.
    body: Vec<u8>,
    count: u32,
    so_far: SoFar,
    saved: Vec<SoFar>,
    /// How many entries it has put outside of the catalog, including any that were rolled back, and
    /// the key of the last put. A delete may be preceded by a put of the same key, to spell that
    /// key; such a put does not count.
    put_count: u64,
    last_put: Vec<u8>,
}

/// What has been written to chunks.
#[derive(Clone, Copy, Default)]
struct SoFar {
    parts: u32,
    size: u64,
    is_lost: bool,
}

impl Recording {
    /// Record a transaction whose commit will make this version.
    pub(crate) fn new(txn: Box<dyn WriteTxn>, version: u64) -> Result<Self, EngineError> {
        let keep = history::keep_of(&*txn)?;
        let size = if keep.is_nothing() { 0 } else { keep.size };
        let keep = Keep { size: size.max(BULK_SIZE_MIN), ..keep };
        let writer = ChunkWriter::new(&*txn)?;
        let (body, so_far, saved) = (vec![0; 4], SoFar::default(), Vec::new());
        Ok(Self {
            txn,
            version,
            keep,
            writer,
            body,
            count: 0,
            so_far,
            saved,
            put_count: 0,
            last_put: Vec::new(),
        })
    }

    /// Whether the transaction takes room for good.
    pub(crate) fn adds_rows(&self) -> bool {
        self.put_count > 0
    }

    fn note(&mut self, tree: Tree, flags: u8, key: &[u8], parts: &[&[u8]]) -> Result<(), EngineError> {
        if tree != Tree::Meta {
            self.count_put(flags, key);
        }
        if self.so_far.is_lost || tree == Tree::Blobs || (tree == Tree::Meta && key.first() == Some(&CHUNK)) {
            return Ok(());
        }
        let size = key.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        if self.so_far.size + (self.body.len() + size) as u64 > self.keep.size {
            self.so_far.is_lost = true;
            return Ok(());
        }
        if self.body.len() + size > CHUNK_SIZE {
            self.write_part(Kind::Part)?;
        }
        push(&mut self.body, tree, flags, key, parts);
        self.count += 1;
        Ok(())
    }

    fn count_put(&mut self, flags: u8, key: &[u8]) {
        if flags == PUT {
            self.put_count += 1;
            self.last_put.clear();
            self.last_put.extend_from_slice(key);
        } else if self.last_put == key {
            self.put_count = self.put_count.saturating_sub(1);
            self.last_put.clear();
        }
    }

    fn write_part(&mut self, kind: Kind) -> Result<(), EngineError> {
        if let Some(count) = self.body.first_chunk_mut() {
            *count = self.count.to_le_bytes();
        }
        let place = (self.version, self.so_far.parts, self.version);
        self.writer.write(&mut *self.txn, place, kind, &self.body)?;
        self.so_far.size += self.body.len() as u64;
        self.so_far.parts += 1;
        self.begin_part();
        Ok(())
    }

    fn begin_part(&mut self) {
        self.body.truncate(4);
        self.count = 0;
    }

    /// Commit together with `applied`.
    pub(crate) fn commit_as(mut self, applied: Applied) -> Result<(), EngineError> {
        if self.so_far.is_lost {
            // The older chunks are of no use either: a watcher cannot go on across this commit.
            history::delete_while(&mut *self.txn, |_| true)?;
        } else {
            self.write_part(Kind::LastPart)?;
            history::trim(&mut *self.txn, self.keep)?;
        }
        let (key, value) = applied.entry();
        self.txn.put(Tree::Meta, &key, &[&value])?;
        reached(Step::BulkCommits);
        self.txn.commit()
    }

    fn edge(&self, tree: Tree, direction: Direction) -> Result<Option<Vec<u8>>, EngineError> {
        let mut cursor = self.txn.cursor(tree)?;
        cursor.start(Start::Edge, direction)?;
        Ok(cursor.step()?.map(|(key, _)| key.to_vec()))
    }
}

impl Contents for Recording {
    fn get(&self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        self.txn.get(tree, key)
    }

    fn cursor(&self, tree: Tree) -> Result<Box<dyn Cursor<'_> + '_>, EngineError> {
        self.txn.cursor(tree)
    }
}

impl LogBatch for Recording {}

impl WriteTxn for Recording {
    fn version(&self) -> u64 {
        self.txn.version()
    }

    fn is_owner(&self) -> bool {
        self.txn.is_owner()
    }

    fn find(&mut self, tree: Tree, key: &[u8]) -> Result<Option<&[u8]>, EngineError> {
        self.txn.find(tree, key)
    }

    fn replace_found(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<(), EngineError> {
        self.txn.replace_found(tree, key, parts)?;
        self.note(tree, PUT, key, parts)
    }

    fn delete_found(&mut self, tree: Tree, key: &[u8]) -> Result<(), EngineError> {
        self.txn.delete_found(tree, key)?;
        self.note(tree, DELETED, key, &[])
    }

    fn put(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<(), EngineError> {
        self.txn.put(tree, key, parts)?;
        self.note(tree, PUT, key, parts)
    }

    fn append(&mut self, tree: Tree, key: &[u8], parts: &[&[u8]]) -> Result<bool, EngineError> {
        let is_appended = self.txn.append(tree, key, parts)?;
        if is_appended {
            self.note(tree, PUT, key, parts)?;
        }
        Ok(is_appended)
    }

    fn clear(&mut self, tree: Tree) -> Result<(), EngineError> {
        let (first, last) = (self.edge(tree, Direction::Forward)?, self.edge(tree, Direction::Reverse)?);
        self.txn.clear(tree)?;
        match (first, last) {
            (Some(first), Some(last)) => self.note(tree, CLEARED, &first, &[&last]),
            _ => Ok(()),
        }
    }

    fn savepoint(&mut self) -> Result<(), EngineError> {
        // Write what was recorded so far to a chunk, so that a rollback does not lose it.
        if self.count > 0 && !self.so_far.is_lost {
            self.write_part(Kind::Part)?;
        }
        self.txn.savepoint()?;
        self.saved.push(self.so_far);
        Ok(())
    }

    fn rollback(&mut self) -> Result<(), EngineError> {
        self.txn.rollback()?;
        self.begin_part();
        self.so_far = self.saved.pop().unwrap_or_default();
        Ok(())
    }

    fn release(&mut self) -> Result<(), EngineError> {
        self.saved.pop();
        self.txn.release()
    }

    fn file_size(&self) -> Result<FileSize, EngineError> {
        self.txn.file_size()
    }

    fn commit(self: Box<Self>) -> Result<(), EngineError> {
        Err(EngineError::Misuse("what is recorded is committed with its place in the log"))
    }
}
