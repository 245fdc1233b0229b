//! Creates, fills, rebuilds and drops indexes.

use std::sync::{Arc, PoisonError};

use crate::catalog::index_entries;
use crate::catalog::index_entries::{Building, IndexInfo, Reached, indexes_of};
use crate::catalog::{self, FORMAT_WITH_INDEXES, Header, TABLE_NAME_SIZE_MAX, TableState};
use crate::error::index::{IndexError, NotUnique};
use crate::error::{Result, StoreError};
use crate::index::PART;
use crate::index::runs::SortedEntry;
use crate::index::runs::{Clock, Merge, Runs, STEP};
use crate::row::{Range, Row};
use crate::row_key::TableId;
use crate::sys::process::own_number;
use crate::sys::steps::{Step, reached};
use crate::txn::overflow::OverflowReader;
use crate::txn::single::KnownTable;
use crate::txn::snapshot::Snapshot;
use crate::txn::transaction::{TableEntry, Transaction};

impl Snapshot {
    /// The indexes of a table, by name.
    ///
    /// # Errors
    /// When the catalog is damaged.
    pub fn indexes(&self, table: TableId) -> Result<Vec<IndexInfo>> {
        self.check_usable()?;
        indexes_of(self.read_txn(), table).map_err(|error| self.database().catalog_error(error))
    }

    /// The index with this name.
    ///
    /// # Errors
    /// When the catalog is damaged.
    pub fn index(&self, table: TableId, name: &str) -> Result<Option<IndexInfo>> {
        self.check_usable()?;
        index_entries::index_of(self.read_txn(), table, name)
            .map_err(|error| self.database().catalog_error(error))
    }

    /// What reading and writing single rows of a table needs to know.
    ///
    /// # Errors
    /// When the catalog is damaged.
    pub fn known(&self, table: TableId) -> Result<KnownTable> {
        let state = catalog::table_state(self.read_txn(), table);
        let state = state.map_err(|error| self.database().catalog_error(error))?;
        let index_serial = state.map_or(0, |state| state.index_serial);
        Ok(KnownTable { table, version: self.catalog_version(), index_serial })
    }
}

impl Transaction {
    /// The indexes of a table, by name.
    ///
    /// # Errors
    /// When the catalog is damaged.
    pub fn indexes(&self, table: TableId) -> Result<Vec<IndexInfo>> {
        indexes_of(self.reader()?, table).map_err(|error| self.database.catalog_error(error))
    }

    /// The index with this name.
    ///
    /// # Errors
    /// `Missing`.
    pub fn index(&self, table: TableId, name: &str) -> Result<IndexInfo> {
        let found = index_entries::index_of(self.reader()?, table, name);
        let found = found.map_err(|error| self.database.catalog_error(error))?;
        found.ok_or_else(|| {
            let others = self.indexes(table).unwrap_or_default();
            StoreError::of_index(IndexError::Missing {
                table: self.table_name(table),
                index: name.to_owned(),
                others: others.iter().map(|other| other.name.to_string()).collect(),
            })
        })
    }

    /// Create an index, and fill it with the existing rows. An existing index with the same
    /// definition is left as it is. `go_on` gets the number of rows done and the total, and returns
    /// whether to go on.
    ///
    /// # Errors
    /// `Exists`, `Bad`, `NotUnique`; `Stopped` if `go_on` returned false.
    pub fn create_index(
        &mut self,
        table: TableId,
        name: &str,
        definition: &str,
        is_unique: bool,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        if let Some(info) = self.index_to_make(table, name, definition, is_unique)? {
            return if info.building.is_some() { self.rebuild_index(table, name, go_on) } else { Ok(()) };
        }
        self.or_nothing(|transaction| {
            let info = transaction.declare_index(table, name, definition, is_unique, false)?;
            transaction.fill_index(&info, go_on)
        })
    }

    /// Run `work`, and roll back to the state before if it fails.
    pub(crate) fn or_nothing(&mut self, work: impl FnOnce(&mut Self) -> Result<()>) -> Result<()> {
        let savepoint = self.savepoint()?;
        // A savepoint may begin to gather rows, those of the write batch included. `work` reads.
        match self.flush_rows().and_then(|()| work(self)) {
            Ok(()) => self.release(savepoint),
            Err(error) => {
                self.rollback_to(savepoint)?;
                Err(error)
            }
        }
    }

    /// The index with this name, if it exists with the same definition.
    pub(crate) fn index_to_make(
        &mut self,
        table: TableId,
        name: &str,
        definition: &str,
        is_unique: bool,
    ) -> Result<Option<IndexInfo>> {
        let bad = |what: String| StoreError::of_index(IndexError::Bad { index: name.to_owned(), what });
        if name.is_empty() || name.len() > TABLE_NAME_SIZE_MAX {
            return Err(bad(format!(
                "its name has {} bytes, and a name has 1 to {TABLE_NAME_SIZE_MAX}",
                name.len()
            )));
        }
        self.entry(table)?;
        self.flush_entries()?;
        let Some(info) = self.indexes(table)?.into_iter().find(|info| *info.name == *name) else {
            return Ok(None);
        };
        if *info.definition == *definition && info.is_unique == is_unique {
            return Ok(Some(info));
        }
        Err(StoreError::of_index(IndexError::Exists {
            table: self.table_name(table),
            index: name.to_owned(),
            definition: info.definition.into(),
            is_unique: info.is_unique,
            wanted: (definition.to_owned(), is_unique),
        }))
    }

    /// Create an index without entries.
    pub(crate) fn declare_index(
        &mut self,
        table: TableId,
        name: &str,
        definition: &str,
        is_unique: bool,
        is_building: bool,
    ) -> Result<IndexInfo> {
        let mut info = IndexInfo {
            id: table,
            table,
            name: name.into(),
            definition: definition.into(),
            is_unique,
            building: None,
        };
        self.database.prepare(info.clone())?;
        info.building = if is_building {
            let notes = self.new_id()?;
            let exact = Some(Reached::default());
            Some(Building { notes, builder: own_number(), done: 0, put: 0, exact })
        } else {
            None
        };
        info.id = self.new_id()?;
        self.raise_format(FORMAT_WITH_INDEXES)?;
        self.put_index(&info)?;
        Ok(info)
    }

    /// A new id for a table or an index, with a row count.
    fn new_id(&mut self) -> Result<TableId> {
        let id = TableId(self.counters.next_table);
        let state = TableState::default();
        self.put_entries(&[state.entry(id)])?;
        self.counters.next_table += 1;
        self.tables.push(TableEntry::new(id, state));
        Ok(id)
    }

    /// Raise the database's format, so that releases which do not know it refuse the file.
    pub(crate) fn raise_format(&mut self, format: u16) -> Result<()> {
        let header = catalog::header(self.reader()?).map_err(|error| self.database.catalog_error(error))?;
        match header {
            Some(header) if header.oldest_reader < format => {
                let header = Header { format, oldest_reader: format, ..header };
                self.put_entries(&[header.entry()])
            }
            _ => Ok(()),
        }
    }

    /// Write the catalog entry of an index, and change the table's serial so that all processes
    /// notice.
    pub(crate) fn put_index(&mut self, info: &IndexInfo) -> Result<()> {
        self.put_entries(&[info.entry()])?;
        self.change_serial(info.table, true)
    }

    fn change_serial(&mut self, table: TableId, has_indexes: bool) -> Result<()> {
        let serial = self.counters.next_table;
        self.counters.next_table += 1;
        let entry = self.entry(table)?;
        entry.state.index_serial = if has_indexes { serial } else { 0 };
        entry.is_changed = true;
        Ok(())
    }

    /// Delete an index with all its entries. `go_on` is called after every few hundred of them.
    ///
    /// # Errors
    /// `Missing`; `Stopped`, and then nothing is deleted.
    pub fn drop_index(&mut self, table: TableId, name: &str, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.flush_entries()?;
        let info = self.index(table, name)?;
        self.or_nothing(|transaction| {
            transaction.drop_entries(&info, go_on)?;
            transaction.delete_meta(&info.key())?;
            let has_others = !transaction.indexes(table)?.is_empty();
            transaction.change_serial(table, has_others)
        })
    }

    /// Delete an index's entries and notes, with their counts.
    pub(crate) fn drop_entries(&mut self, info: &IndexInfo, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        let notes = info.building.as_ref().map(|building| building.notes);
        for id in [Some(info.id), notes].into_iter().flatten() {
            self.drop_rows(id, go_on)?;
        }
        Ok(())
    }

    /// Delete the entries of an index and derive all of them again.
    ///
    /// # Errors
    /// As `create_index`; `Missing`.
    pub fn rebuild_index(
        &mut self,
        table: TableId,
        name: &str,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<()> {
        let old = self.index(table, name)?;
        self.flush_rows()?;
        let total = self.count(table)?;
        self.or_nothing(|transaction| {
            let mut clock = Clock::new();
            transaction.drop_entries(&old, &mut || !clock.is_time() || go_on(0, total))?;
            let info = IndexInfo { id: transaction.new_id()?, building: None, ..old };
            transaction.put_index(&info)?;
            transaction.fill_index(&info, go_on)
        })
    }

    /// Derive the entries of all rows of the table, and put them in order: as many at a time as fit
    /// into memory.
    fn fill_index(&mut self, info: &IndexInfo, go_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<()> {
        let memory = self.database.index_memory();
        let total = self.count(info.table)?;
        let prepared = self.database.prepare(info.clone())?;
        let mut derive = prepared.derive.lock().unwrap_or_else(PoisonError::into_inner);
        let shapes = Arc::clone(self.shapes());
        let mut scan = self.scan(info.table, &Range::ALL, false)?;
        let (mut runs, mut clock) = (Runs::new(memory), Clock::new());
        let (mut done, mut found, mut is_over) = (0, 0, false);
        while !is_over {
            let overflow_reader = OverflowReader { shapes: &*shapes, large: &*self };
            let mut take =
                |row: Row<'_>| runs.derive(&row, &mut **derive, &overflow_reader).map(|()| runs.is_full());
            match scan.next(self, &mut take)? {
                Some(taken) => {
                    found += 1;
                    let is_full = taken?;
                    if found % STEP == 0 && clock.is_time() && !go_on(done + found / 2, total) {
                        return Err(StoreError::Stopped);
                    }
                    if !is_full {
                        continue;
                    }
                }
                None => is_over = true,
            }
            runs.end_run();
            let (half, entries) = (found - found / 2, runs.len().max(1));
            self.put_runs(info, &runs, done == 0, &mut |put| {
                go_on((done + found / 2 + half * put / entries).min(total), total)
            })?;
            done += found;
            found = 0;
            runs.clear();
        }
        Ok(())
    }

    /// Put entries that do not exist yet, in order. `is_first`: the index has none.
    fn put_runs(
        &mut self,
        info: &IndexInfo,
        runs: &Runs,
        is_first: bool,
        go_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<()> {
        let mut merge = Merge::new([runs]);
        let mut last: Option<SortedEntry<'_>> = None;
        let mut put = 0;
        reached(Step::EntriesBuilt);
        while let Some(entry) = merge.next() {
            if info.is_unique {
                if let Some(last) = last.filter(|last| last.parts() == entry.parts()) {
                    return Err(StoreError::of_index(IndexError::NotUnique(self.clash(info, &last, &entry))));
                }
                if !is_first && let Some((code, spelling)) = self.first_with(info.id, entry.parts())? {
                    let first = SortedEntry { code: &code, spelling: &spelling, ..entry };
                    return Err(StoreError::of_index(IndexError::NotUnique(
                        self.clash(info, &first, &entry),
                    )));
                }
                last = Some(entry);
            }
            self.put_entry(info.id, entry.code, entry.spelling, true)?;
            put += 1;
            if put % PART == 0 && !go_on(put) {
                return Err(StoreError::Stopped);
            }
        }
        Ok(())
    }

    /// The error for two rows with the same value in a unique index.
    pub(crate) fn clash(
        &self,
        info: &IndexInfo,
        first: &SortedEntry<'_>,
        second: &SortedEntry<'_>,
    ) -> NotUnique {
        let split = |entry: &SortedEntry<'_>| {
            let spellings = pellucid_record::key::split_spellings(entry.spelling);
            spellings.map_or_else(Default::default, |(parts, key)| (parts.to_vec(), key.to_vec()))
        };
        let ((parts_spelling, key_spelling), (_, existing_spelling)) = (split(second), split(first));
        NotUnique {
            table: self.table_name(info.table),
            index: info.name.to_string(),
            definition: info.definition.to_string(),
            parts: second.parts().to_vec(),
            parts_spelling,
            key: second.key().to_vec(),
            key_spelling,
            is_in_batch: false,
            position: None,
            index_id: Some(info.id),
            existing: first.key().to_vec(),
            existing_spelling,
        }
    }

    /// Delete the catalog entries of all indexes of a table, with their index entries.
    pub(crate) fn drop_indexes(&mut self, table: TableId, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        for info in self.indexes(table)? {
            self.drop_entries(&info, go_on)?;
            self.delete_meta(&index_entries::key_of(table, &info.name))?;
        }
        Ok(())
    }
}
