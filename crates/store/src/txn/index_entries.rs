//! Updates the index entries of a row that is written.
//!
//! The entries of the old and the new row are derived and compared (`index::compare`), and only the
//! differences are written. That is checked before the row itself is written, so a refused row
//! leaves no trace. An index that is being built is written without comparing with the old row: it
//! is unknown whether the builder has put its entries. So the row is noted, and the builder skips
//! it.

use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use pellucid_record::Shapes;
use pellucid_record::key::{join_spellings, split_spellings};

use crate::catalog::index_entries;
use crate::catalog::index_entries::IndexInfo;
use crate::db::database::Database;
use crate::db::store::OpenOptions;
use crate::engine::Tree;
use crate::error::index::{IndexError, NotUnique};
use crate::error::{Result, StoreError};
use crate::index::{Derived, EntryChange, IndexSet, Prepared, compare, range_of_parts};
use crate::row::{Range, Row};
use crate::row_key::{RowKey, TableId, is_long};
use crate::sort::{SORT_PART, memory_max};
use crate::txn::overflow::OverflowReader;
use crate::txn::scan::RowRange;
use crate::txn::transaction::Transaction;
use crate::txn::transaction_scan::DirtyScan;

/// Changes to be written into indexes, with reusable memory.
#[derive(Default)]
pub(crate) struct Changes {
    bytes: Vec<u8>,
    list: Vec<Change>,
    /// The notes of indexes that are being built, where the row is to be noted.
    notes: Vec<TableId>,
    derived: [Derived; 2],
    spelling: Vec<u8>,
    /// Whether entries are gathered, and checked for uniqueness at the end of the batch.
    is_gathered: bool,
}

struct Change {
    index: TableId,
    is_put: bool,
    is_new: bool,
    parts_size: usize,
    code_size: usize,
    spelling_size: usize,
}

impl Changes {
    fn clear(&mut self) {
        self.bytes.clear();
        self.list.clear();
        self.notes.clear();
    }

    fn push(&mut self, index: TableId, change: &EntryChange<'_>, row: &Row<'_>) {
        let EntryChange { parts, spelling, is_put, is_new } = *change;
        let start = self.bytes.len();
        self.bytes.extend_from_slice(parts);
        self.bytes.extend_from_slice(row.key);
        let code_size = self.bytes.len() - start;
        let mut spelling_size = 0;
        if is_put && !(spelling.is_empty() && row.spelling.is_empty()) {
            join_spellings(spelling, row.spelling, &mut self.spelling);
            self.bytes.extend_from_slice(&self.spelling);
            spelling_size = self.spelling.len();
        }
        self.list.push(Change { index, is_put, is_new, parts_size: parts.len(), code_size, spelling_size });
    }
}

/// A copy of the code and the spelling of an entry.
pub(crate) type OwnedEntry = (Vec<u8>, Vec<u8>);

/// A copy of a stored row.
pub(crate) struct OldRow {
    pub(crate) record: Vec<u8>,
    pub(crate) spelling: Vec<u8>,
}

impl Transaction {
    /// The indexes of a table, prepared for rows. `None` if it has none.
    pub(crate) fn index_set(&mut self, table: TableId) -> Result<Option<Arc<IndexSet>>> {
        if self.has_unflushed_rows() {
            self.flush_rows()?;
        }
        self.unflushed_index_set(table)
    }

    /// As `index_set`, before the gathered rows are merged.
    pub(crate) fn unflushed_index_set(&mut self, table: TableId) -> Result<Option<Arc<IndexSet>>> {
        match self.entry(table)?.state.index_serial {
            0 => Ok(None),
            serial => self.index_set_of(table, serial).map(Some),
        }
    }

    fn index_set_of(&mut self, table: TableId, serial: u32) -> Result<Arc<IndexSet>> {
        if let Some((_, set)) = self.index_sets.iter().find(|(known, _)| *known == serial) {
            return Ok(Arc::clone(set));
        }
        let prepared = self.database.index_sets.lock().unwrap_or_else(PoisonError::into_inner).take(serial);
        let set = if let Some(set) = prepared {
            set
        } else {
            let infos = index_entries::indexes_of(self.reader()?, table);
            let infos = infos.map_err(|error| self.database.catalog_error(error))?;
            let prepared = infos.into_iter().map(|info| self.database.prepare(info));
            Arc::new(IndexSet { indexes: prepared.collect::<Result<_, _>>()? })
        };
        self.index_sets.push((serial, Arc::clone(&set)));
        Ok(set)
    }

    /// A copy of a stored row.
    pub(crate) fn old_row(&self, table: TableId, key: &[u8]) -> Result<Option<OldRow>> {
        let cell = self.get(table, key)?;
        Ok(cell.map(|cell| OldRow { record: cell.record.to_vec(), spelling: cell.spelling.to_vec() }))
    }

    /// The index changes of a row that becomes `new`. Nothing is written yet.
    ///
    /// # Errors
    /// `NotUnique`.
    pub(crate) fn index_changes(
        &mut self,
        set: &IndexSet,
        table: TableId,
        old: Option<&Row<'_>>,
        new: Option<&Row<'_>>,
    ) -> Result<Changes> {
        let mut changes = std::mem::take(&mut self.changes);
        changes.clear();
        // An index that is being built is written without knowing its existing entries.
        changes.is_gathered =
            self.gathered.depth > 0 && set.indexes.iter().all(|index| index.info.building.is_none());
        let shapes = Arc::clone(self.shapes());
        for index in &set.indexes {
            if changes.is_gathered {
                self.gathered.meet(&index.info);
            }
            let mut derived = std::mem::take(&mut changes.derived);
            let overflow_reader = OverflowReader { shapes: &*shapes, large: &*self };
            let done = self.changes_of(index, (old, new), &overflow_reader, &mut derived, &mut changes);
            changes.derived = derived;
            if let Err(error) = done {
                self.changes = changes;
                let error = self.with_table_name(table, error);
                self.gathered.note_refused(&error);
                return Err(error);
            }
        }
        Ok(changes)
    }

    fn changes_of(
        &self,
        index: &Prepared,
        (old, new): (Option<&Row<'_>>, Option<&Row<'_>>),
        shapes: &dyn Shapes,
        [before, after]: &mut [Derived; 2],
        changes: &mut Changes,
    ) -> Result<()> {
        let Some(row) = new.or(old) else { return Ok(()) };
        before.clear();
        after.clear();
        if let Some(old) = old
            && index.derive(old, shapes, before).is_err()
        {
            // Entries cannot be derived from a damaged record: search all entries of this row.
            self.find_all_of(index, old.key, before)?;
        }
        if let Some(new) = new {
            index.derive(new, shapes, after).map_err(StoreError::Record)?;
        }
        if let Some(building) = &index.info.building {
            changes.notes.push(building.notes);
        }
        compare(before, after, index.info.building.is_some(), |change| {
            if change.is_new && index.info.is_unique && !changes.is_gathered {
                self.check_unique(index, &change, row)?;
            }
            changes.push(index.info.id, &change, row);
            Ok(())
        })
    }

    /// Write the changes that `index_changes` has found.
    pub(crate) fn apply_index_changes(&mut self, key: &[u8], changes: Changes) -> Result<()> {
        let done = self.apply_all(key, &changes);
        // The row is written by now and must not be committed without its entries. In a batch,
        // entries that could not be written stay gathered.
        self.is_failed |= done.is_err() && !changes.is_gathered;
        self.changes = changes;
        self.gathered.count_row();
        done
    }

    fn apply_all(&mut self, key: &[u8], changes: &Changes) -> Result<()> {
        let mut start = 0;
        for change in &changes.list {
            let middle = start + change.code_size;
            let end = middle + change.spelling_size;
            let code = changes.bytes.get(start..middle).unwrap_or_default();
            let spelling = changes.bytes.get(middle..end).unwrap_or_default();
            start = end;
            if changes.is_gathered {
                let how = (change.is_put, change.is_new);
                self.gathered.add(change.index, code, change.parts_size, spelling, how);
                continue;
            }
            if change.is_put {
                self.put_entry(change.index, code, spelling, change.is_new && changes.notes.is_empty())?;
            } else {
                self.delete_entry(change.index, code)?;
            }
        }
        for notes in &changes.notes {
            self.put_entry(*notes, key, &[], false)?;
        }
        if changes.is_gathered {
            return self.spill_entries();
        }
        self.entry_writes += changes.list.len() as u64;
        Ok(())
    }

    /// Write an entry of an index. `is_new`: it is known not to exist.
    pub(crate) fn put_entry(
        &mut self,
        index: TableId,
        code: &[u8],
        spelling: &[u8],
        is_new: bool,
    ) -> Result<()> {
        Self::check_size(code.len() + spelling.len())?;
        let limit = self.database.key_size_max;
        let row_key = RowKey::new(index, code, limit);
        let row_key = row_key.as_bytes();
        let is_long = is_long(row_key, limit);
        let was_there = (!is_new || is_long) && self.find(index, code, row_key)?.is_some();
        let mut head = std::mem::take(&mut self.head);
        let entry = Row { key: code, spelling, record: &[] };
        let check = self.write_head(&mut head, index, entry, row_key, &[]);
        let parts: [&[u8]; 2] = [&head, &check];
        let is_appended = !was_there && self.append_row(row_key, &parts)?;
        if !is_appended {
            let put = self.writer()?.put(Tree::Rows, row_key, &parts);
            put.map_err(|error| self.failed(error))?;
        }
        self.head = head;
        if !was_there {
            let entry = self.entry(index)?;
            entry.state.row_count += 1;
            entry.is_changed = true;
        }
        Ok(())
    }

    pub(crate) fn delete_entry(&mut self, index: TableId, code: &[u8]) -> Result<()> {
        let row_key = RowKey::new(index, code, self.database.key_size_max);
        let row_key = row_key.as_bytes();
        let found = match self.find(index, code, row_key) {
            Ok(found) => found,
            Err(StoreError::KeyCollision { .. }) => None,
            Err(error) => return Err(error),
        };
        if found.is_none() {
            return Ok(());
        }
        let deleted = self.writer()?.delete_found(Tree::Rows, row_key);
        deleted.map_err(|error| self.failed(error))?;
        self.forget_tail(row_key);
        let entry = self.entry(index)?;
        entry.state.row_count = entry.state.row_count.saturating_sub(1);
        entry.is_changed = true;
        Ok(())
    }

    /// Refuse parts that another row has.
    fn check_unique(&self, index: &Prepared, change: &EntryChange<'_>, row: &Row<'_>) -> Result<()> {
        let parts = change.parts;
        let Some((code, spelling)) = self.first_with(index.info.id, parts)? else { return Ok(()) };
        let existing = code.get(parts.len()..).unwrap_or_default();
        if existing == row.key {
            return Ok(());
        }
        let existing_spelling = split_spellings(&spelling).map_or(&b""[..], |(_, key)| key);
        Err(StoreError::of_index(IndexError::NotUnique(NotUnique {
            table: String::new(),
            index: index.info.name.to_string(),
            definition: index.info.definition.to_string(),
            parts: parts.to_vec(),
            parts_spelling: change.spelling.to_vec(),
            key: row.key.to_vec(),
            key_spelling: row.spelling.to_vec(),
            is_in_batch: false,
            position: self.gathered.position(),
            index_id: Some(index.info.id),
            existing: existing.to_vec(),
            existing_spelling: existing_spelling.to_vec(),
        })))
    }

    /// The code and the spelling of the first entry that begins with these parts.
    pub(crate) fn first_with(&self, index: TableId, parts: &[u8]) -> Result<Option<OwnedEntry>> {
        self.with_first(index, &range_of_parts(parts), false, |row| (row.key.to_vec(), row.spelling.to_vec()))
    }

    /// All entries of a row, found by reading the whole index.
    fn find_all_of(&self, index: &Prepared, key: &[u8], found: &mut Derived) -> Result<()> {
        found.clear();
        let range = RowRange::new(index.info.id, &Range::ALL, false, self.database.key_size_max);
        let mut scan = DirtyScan::new(range);
        scan.take(self.reader()?, &self.database, usize::MAX)?;
        while let Some((code, _)) = scan.pop() {
            let size = index.parts_size(&code).unwrap_or(code.len());
            if let Some((parts, row)) = code.split_at_checked(size)
                && row == key
            {
                found.push(parts, &[]);
            }
        }
        Ok(())
    }

    /// Add the table's name to an index error.
    fn with_table_name(&self, table: TableId, error: StoreError) -> StoreError {
        match error {
            StoreError::Index(error) => match *error {
                IndexError::NotUnique(mut refused) => {
                    refused.table = self.table_name(table);
                    StoreError::of_index(IndexError::NotUnique(refused))
                }
                error => StoreError::of_index(error),
            },
            error => error,
        }
    }

    /// A table's name, for messages.
    pub(crate) fn table_name(&self, table: TableId) -> String {
        let tables = self.tables().unwrap_or_default();
        tables.into_iter().find(|(_, id)| *id == table).map_or_else(String::new, |(name, _)| name)
    }
}

impl Database {
    /// Take the deriver and the memory limit from the options, if given.
    pub(crate) fn know(&self, options: &OpenOptions) {
        if let Some(deriver) = &options.deriver {
            // Another opener of this process has set the same one.
            let _ = self.deriver.set(Arc::clone(deriver));
        }
        if options.index_memory != 0 {
            self.index_memory.store(options.index_memory, Ordering::Relaxed);
        }
    }

    /// The memory limit for the entries of an index that is being built.
    pub(crate) fn index_memory(&self) -> usize {
        const USUAL: usize = 512 << 20;
        match self.index_memory.load(Ordering::Relaxed) {
            0 => memory_max(USUAL, SORT_PART),
            size => size,
        }
    }

    /// Prepare an index for rows.
    pub(crate) fn prepare(&self, info: IndexInfo) -> Result<Prepared> {
        let Some(deriver) = self.deriver.get() else {
            return Err(StoreError::of_index(IndexError::NoDeriver));
        };
        let derive = deriver
            .prepare(&info.definition)
            .map_err(|what| StoreError::of_index(IndexError::Bad { index: info.name.to_string(), what }))?;
        Ok(Prepared { info: Arc::new(info), derive: std::sync::Mutex::new(derive) })
    }
}
