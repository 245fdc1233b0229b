//! Gathers the rows of a large transaction, and merges them into the tree in key order.
//!
//! Rows that come in any order would change pages all over the tree, leave them half full, and read
//! and write them many times. So from the row on with which a transaction grows too large for the
//! log, rows are gathered: in memory, and in sorted runs in a file beside the database when they
//! are many. They are merged into the tree once, before anything else reads or changes rows in the
//! transaction, and at the latest before the commit. Rows that come in ascending order go into the
//! tree at once.
//!
//! A savepoint that is set while rows are gathered begins another level of them, and reaches the
//! engine only when the rows before it are merged.

use std::path::Path;

use super::transaction::Transaction;
use crate::engine::{EngineError, Tree};
use crate::error::{Result, StoreError};
use crate::row_key::{RowKey, TableId, is_long, split};
use crate::sort::{Entries, Entry, Merge, Run, Spill};
use crate::sys::steps::{Step, reached};
use crate::txn::waiting::Waiting;
use crate::wal::LARGE_SIZE_MIN;

/// Gathered rows take this part of the memory for sorting: some are written while others come.
const MEMORY_SHARE: usize = 8;
/// A run below this size is read in small pieces, a larger one is sorted for too long.
const RUN_SIZE_MAX: usize = 64 << 20;
/// A merge of fewer rows is not worth gathering them.
const FEW: u64 = 64;
/// Merges of a few rows after which a transaction gathers no more.
const SMALL_MERGES_MAX: u32 = 16;
/// With less room than this for a WAL record, a savepoint begins a level of gathered rows.
const ROOM_MIN: usize = 1 << 19;

/// The kind of a gathered entry, its row in the batch, and the sizes of spelling and whole key.
const HEAD_SIZE: usize = 13;

/// What the rest of a gathered entry begins with.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Row,
    /// A cell that the write batch had already.
    Cell,
    /// A delete that the write batch had already.
    Delete,
}

/// The gathered rows of a transaction.
#[derive(Default)]
pub(crate) struct Load {
    lowest: Level,
    /// A level for each savepoint that the engine does not know.
    upper: Vec<Level>,
    count: u64,
    spill: Spill,
    /// Rows that are looked up together.
    pub(crate) waiting: Waiting,
    /// While rows come in ascending order and are not gathered: the last row key.
    ascending: Option<Vec<u8>>,
    /// Whether a gathered row's table has a unique index.
    pub(crate) has_unique: bool,
    /// Whether the caller flushes rows before it reads them.
    is_used: bool,
    small_merges: u32,
}

/// The rows between two savepoints.
#[derive(Default)]
struct Level {
    runs: Vec<Run>,
    /// The rows after those of the runs.
    filling: Entries,
}

impl Level {
    fn count(&self) -> u64 {
        self.runs.iter().map(|run| run.count).sum::<u64>() + self.filling.len() as u64
    }
}

impl Load {
    /// Whether there are rows that are not in their tables yet.
    pub(crate) fn is_pending(&self) -> bool {
        self.is_begun() || !self.waiting.is_empty()
    }

    /// Whether there is something to be merged.
    fn is_begun(&self) -> bool {
        self.count > 0 || !self.upper.is_empty()
    }

    fn top(&mut self) -> &mut Level {
        self.upper.last_mut().unwrap_or(&mut self.lowest)
    }

    pub(crate) fn savepoint(&mut self) {
        self.upper.push(Level::default());
    }

    /// Drop the rows since the last savepoint that the engine does not know. False if there is
    /// none.
    pub(crate) fn rollback(&mut self) -> bool {
        self.waiting.clear();
        let own = self.upper.pop();
        let is_own = own.is_some();
        self.count -= own.unwrap_or_else(|| std::mem::take(&mut self.lowest)).count();
        self.ascending = None;
        is_own
    }

    fn push(&mut self, code: &[u8], kind: Kind, row: u32, [spelling, key, value]: [&[u8]; 3]) {
        let mut head = [0; HEAD_SIZE];
        head[0] = kind as u8;
        head[1..5].copy_from_slice(&row.to_le_bytes());
        head[5..9].copy_from_slice(&(spelling.len() as u32).to_le_bytes());
        head[9..].copy_from_slice(&(key.len() as u32).to_le_bytes());
        self.top().filling.push(&[code], &[&head, spelling, key, value]);
        self.count += 1;
    }

    /// Keep the rows since the last savepoint, which the engine does not know. False if there is
    /// none.
    fn release(&mut self, folder: &Path) -> std::io::Result<bool> {
        let Some(upper) = self.upper.pop() else { return Ok(false) };
        if !upper.runs.is_empty() && !self.top().filling.is_empty() {
            self.write_run(folder)?;
        }
        let lower = self.top();
        lower.runs.extend(upper.runs);
        if lower.filling.is_empty() {
            lower.filling = upper.filling;
        } else {
            lower.filling.append(&upper.filling);
        }
        Ok(true)
    }

    /// Begin to write the rows in memory to the file.
    fn write_run(&mut self, folder: &Path) -> std::io::Result<()> {
        let mut entries = std::mem::take(&mut self.top().filling);
        let run = self.spill.write(&mut entries, folder)?;
        let top = self.top();
        top.filling = entries;
        top.runs.push(run);
        reached(Step::RunWritten);
        Ok(())
    }
}

/// What a gathered entry says.
struct Gathered<'e> {
    kind: Kind,
    row: u32,
    spelling: &'e [u8],
    key: &'e [u8],
    value: &'e [u8],
}

impl<'e> Gathered<'e> {
    fn of(entry: &Entry<'e>) -> Option<Self> {
        let (head, rest) = entry.rest.split_at_checked(HEAD_SIZE)?;
        let number = |at: usize| Some(u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?));
        let kind = match head.first()? {
            0 => Kind::Row,
            1 => Kind::Cell,
            _ => Kind::Delete,
        };
        let (spelling, rest) = rest.split_at_checked(number(5)? as usize)?;
        let (key, value) = rest.split_at_checked(number(9)? as usize)?;
        Some(Self { kind, row: number(1)?, spelling, key, value })
    }
}

/// Called with how many rows are merged and how many there are; returns whether to go on.
pub type MergeOn<'f> = &'f mut dyn FnMut(u64, u64) -> bool;

impl Transaction {
    /// As `put`, for one of many rows. In a transaction that is too large for the log the row is
    /// gathered, and its table shows it after `flush_rows`.
    ///
    /// # Errors
    /// As `put`; `DiskFull` if there is no room for the rows that are gathered.
    pub fn put_later(
        &mut self,
        table: TableId,
        key: &[u8],
        spelling: &[u8],
        record: &[u8],
        blobs: &[u64],
    ) -> Result<()> {
        let size = key.len() + spelling.len() + record.len();
        Self::check_size(size)?;
        self.load.is_used = true;
        // A large row is written once, where it stays.
        let is_large = !blobs.is_empty() || size >= LARGE_SIZE_MIN;
        if is_large || !self.gathers(table, size)? {
            if !is_large && spelling.is_empty() && self.put_with_others(table, key, record)? {
                return Ok(());
            }
            return self.put(table, key, spelling, record, blobs).map(|_| ());
        }
        let limit = self.database.key_size_max;
        let row_key = RowKey::new(table, key, limit);
        let code = row_key.as_bytes();
        if let Some(last) = &mut self.load.ascending {
            if code > &last[..] {
                last.clear();
                last.extend_from_slice(code);
                return self.put(table, key, spelling, record, &[]).map(|_| ());
            }
            self.load.ascending = None;
        }
        let whole_key = if is_long(code, limit) { key } else { &[] };
        let row = self.gathered.next_row();
        self.load.push(code, Kind::Row, row, [spelling, whole_key, record]);
        if self.load.top().filling.size() > self.run_size() {
            self.write_run()?;
        }
        Ok(())
    }

    /// Whether a row is to be gathered. Begins to gather rows where it is time.
    fn gathers(&mut self, table: TableId, size: usize) -> Result<bool> {
        let is_begun = self.load.is_begun() || self.load.ascending.is_some();
        if !is_begun {
            const ENTRY_SIZE_MAX: usize = 64;
            let room = self.reader()?.room_in_log();
            if room.is_none_or(|room| self.load.waiting.size() + size + ENTRY_SIZE_MAX <= room) {
                return Ok(false);
            }
            // These have room.
            self.put_waiting()?;
            if self.load.small_merges >= SMALL_MERGES_MAX {
                return Ok(false);
            }
        }
        if let Some(set) = self.unflushed_index_set(table)? {
            if self.gathered.depth == 0 || set.indexes.iter().any(|index| index.info.building.is_some()) {
                return Ok(false);
            }
            self.load.has_unique |= set.indexes.iter().any(|index| index.info.is_unique);
        }
        if !is_begun {
            self.begin_load()?;
        }
        Ok(true)
    }

    /// Begin to gather rows with those of the write batch, so that they are merged with the others.
    fn begin_load(&mut self) -> Result<()> {
        let mut load = std::mem::take(&mut self.load);
        let taken = self.writer()?.take_rows(&mut |row_key, cell| match cell {
            Some(cell) => load.push(row_key, Kind::Cell, 0, [&[], &[], cell]),
            None => load.push(row_key, Kind::Delete, 0, [&[], &[], &[]]),
        });
        self.load = load;
        taken.map_err(|error| self.failed(error))?;
        let filling = &self.load.top().filling;
        if filling.is_sorted() {
            // More ascending rows are expected, and need not be gathered.
            let last = filling.last_code().map(<[u8]>::to_vec);
            self.merge_rows()?;
            self.load.ascending = last.or_else(|| Some(Vec::new()));
        }
        Ok(())
    }

    /// The size of the gathered rows, or entries, that are written as a run.
    pub(crate) fn run_size(&self) -> usize {
        (self.database.index_memory() / MEMORY_SHARE).min(RUN_SIZE_MAX)
    }

    fn write_run(&mut self) -> Result<()> {
        let folder = self.database.folder_for_sorts();
        self.load.write_run(&folder).map_err(|source| self.sort_failed("write to", source))
    }

    /// The error of a sort whose file failed. The gathered rows are lost with it.
    pub(crate) fn sort_failed(&mut self, action: &'static str, source: std::io::Error) -> StoreError {
        self.is_failed = true;
        let folder = self.database.folder_for_sorts();
        let path = format!(
            "a temporary file in {}, for rows that are sorted before they are stored",
            folder.display()
        );
        StoreError::from_io(action, path, source)
    }

    /// Whether `flush_rows` has something to do.
    #[must_use]
    pub fn has_unflushed_rows(&self) -> bool {
        self.load.is_pending() || self.gathered.depth == 0 && self.gathered.has_entries()
    }

    /// Write the gathered rows into their tables.
    fn merge_rows(&mut self) -> Result<()> {
        self.merge_rows_while(&mut |_, _| true)
    }

    /// Write the gathered rows into their tables, and outside of a batch also their index entries,
    /// so that anything may follow.
    ///
    /// # Errors
    /// As `put`; `DiskFull`.
    pub fn flush_rows(&mut self) -> Result<()> {
        self.flush_rows_while(&mut |_, _| true)
    }

    /// As `flush_rows`; `go_on` is called for each row and each entry.
    ///
    /// # Errors
    /// As `flush_rows`; `Stopped`, and then it goes on at the next call.
    pub fn flush_rows_while(&mut self, go_on: MergeOn<'_>) -> Result<()> {
        let total = self.load.count;
        self.merge_rows_while(go_on)?;
        if self.gathered.depth > 0 { Ok(()) } else { self.flush_entries_while(&mut || go_on(total, total)) }
    }

    /// As `merge_rows`. If `go_on` returned false, the rows stay gathered.
    pub(crate) fn merge_rows_while(&mut self, go_on: MergeOn<'_>) -> Result<()> {
        self.put_waiting()?;
        if !self.load.is_begun() {
            return Ok(());
        }
        // While it is taken, the methods called below find nothing to be merged.
        let mut load = std::mem::take(&mut self.load);
        let (is_small, row) = (load.count < FEW, self.gathered.begin_merge());
        let merged = self.merge_levels(&mut load, go_on);
        self.gathered.end_merge(row);
        match &merged {
            Ok(()) => {
                self.load.is_used = load.is_used;
                self.load.small_merges = if is_small { load.small_merges + 1 } else { 0 };
            }
            // To merge rows again does no harm.
            Err(StoreError::Stopped) => self.load = load,
            Err(_) => self.is_failed = true,
        }
        merged
    }

    fn merge_levels(&mut self, load: &mut Load, go_on: MergeOn<'_>) -> Result<()> {
        load.spill.wait().map_err(|source| self.sort_failed("write to", source))?;
        let total = load.count;
        reached(Step::RowsMerge);
        loop {
            let done = total - load.count;
            self.merge_level(&mut load.lowest, &mut |merged| go_on(done + merged, total))?;
            if load.upper.is_empty() {
                return Ok(());
            }
            self.flush_entries()?;
            let set = self.writer()?.savepoint();
            set.map_err(|error| self.failed(error))?;
            let mut now = self.saved_now();
            let place = self.saved.len() - load.upper.len();
            if let Some(saved) = self.saved.get_mut(place) {
                now.batches = saved.batches;
                *saved = now;
            }
            load.count -= load.lowest.count();
            load.lowest = load.upper.remove(0);
        }
    }

    fn merge_level(&mut self, level: &mut Level, go_on: &mut dyn FnMut(u64) -> bool) -> Result<()> {
        level.filling.sort();
        let read = "read from";
        let merge = Merge::new(&level.runs, [&level.filling]);
        let mut merge = merge.map_err(|source| self.sort_failed(read, source))?;
        let mut done = 0;
        while let Some(entry) = merge.next().map_err(|source| self.sort_failed(read, source))? {
            if !go_on(done) {
                return Err(StoreError::Stopped);
            }
            self.put_gathered(&entry)?;
            done += 1;
        }
        Ok(())
    }

    fn put_gathered(&mut self, entry: &Entry<'_>) -> Result<()> {
        let damaged =
            || StoreError::from_io("read", "a sort".to_owned(), std::io::ErrorKind::InvalidData.into());
        let row = Gathered::of(entry).ok_or_else(damaged)?;
        let done = match row.kind {
            Kind::Row => {
                let (table, key) = split(entry.code).ok_or_else(damaged)?;
                let key = if row.key.is_empty() { key } else { row.key };
                self.gathered.set_row(row.row);
                return self.put(table, key, row.spelling, row.value, &[]).map(|_| ());
            }
            Kind::Cell if self.append_row(entry.code, &[row.value])? => Ok(()),
            Kind::Cell => self.writer()?.put(Tree::Rows, entry.code, &[row.value]),
            Kind::Delete => self.writer()?.delete(Tree::Rows, entry.code).map(|_| ()),
        };
        done.map_err(|error: EngineError| self.failed(error))
    }

    /// Set a savepoint among gathered rows. False if none are gathered, or are about to be.
    pub(crate) fn savepoint_of_load(&mut self) -> Result<bool> {
        self.put_waiting()?;
        if !self.load.is_begun() {
            let is_near = self.saved.is_empty()
                && self.load.is_used
                && self.load.ascending.is_none()
                && self.load.small_merges < SMALL_MERGES_MAX
                && self.reader()?.room_in_log().is_some_and(|room| room < ROOM_MIN);
            if is_near {
                self.begin_load()?;
            }
        }
        let is_begun = self.load.is_begun();
        if is_begun {
            self.load.savepoint();
        }
        Ok(is_begun)
    }

    /// Release a savepoint that the engine does not know. False if it knows the last one.
    pub(crate) fn release_of_load(&mut self) -> Result<bool> {
        let folder = self.database.folder_for_sorts();
        let released = self.load.release(&folder).map_err(|source| self.sort_failed("write to", source))?;
        if released && self.load.top().filling.size() > self.run_size() {
            self.write_run()?;
        }
        Ok(released)
    }
}
