//! Creates, names and empties tables.
//!
//! A table is a name, an id and a row count in the catalog; its rows are those under the id's
//! prefix. An id is never used again, so a stale id finds nothing, and never another table's rows.

use super::{TableEntry, Transaction};
use crate::catalog::cell::Cell;
use crate::catalog::history_chunk::CHUNK;
use crate::catalog::index_entries::all_indexes;
use crate::catalog::pack_entries::{self, SETTING};
use crate::catalog::{self, FORMAT_WITH_COMPRESSION, TABLE_NAME_SIZE_MAX, TableState};
use crate::engine::history::Keep;
use crate::engine::{Direction, Start, Tree};
use crate::error::{Result, StoreError};
use crate::pack::is_all;
use crate::row::Range;
use crate::row_key::{Prefix, TableId, split, successor};

/// How many rows `clear` reads before it deletes them.
const CLEAR_CHUNK: usize = 512;

impl Transaction {
    /// Create an empty table.
    ///
    /// # Errors
    /// `TableExists`, or `TableName` when the name is empty or too long.
    pub fn create_table(&mut self, name: &str) -> Result<TableId> {
        self.create_table_as(name, is_all())
    }

    /// As `create_table`; says whether the table is compressed.
    ///
    /// # Errors
    /// As `create_table`.
    pub fn create_table_as(&mut self, name: &str, is_compressed: bool) -> Result<TableId> {
        self.check_name(name)?;
        let table = TableId(self.counters.next_table);
        let state = TableState::default();
        self.put_entries(&[catalog::name_entry(name, table), state.entry(table)])?;
        if is_compressed {
            self.raise_format(FORMAT_WITH_COMPRESSION)?;
            self.put_entries(&[pack_entries::setting_entry(table)])?;
        }
        self.counters.next_table += 1;
        self.tables.push(TableEntry::new(table, state));
        Ok(table)
    }

    /// Whether a table is compressed.
    ///
    /// # Errors
    /// When the catalog is damaged.
    pub fn is_compressed(&self, table: TableId) -> Result<bool> {
        pack_entries::is_compressed(self.reader()?, table).map_err(|error| self.database.catalog_error(error))
    }

    fn check_name(&self, name: &str) -> Result<()> {
        if name.is_empty() || name.len() > TABLE_NAME_SIZE_MAX {
            return Err(StoreError::TableName { size: name.len(), size_max: TABLE_NAME_SIZE_MAX });
        }
        match self.table(name)? {
            Some(_) => Err(StoreError::TableExists { table: name.to_owned() }),
            None => Ok(()),
        }
    }

    /// Put entries into the catalog.
    pub(crate) fn put_entries(&mut self, entries: &[(Vec<u8>, Vec<u8>)]) -> Result<()> {
        self.catalog_changed();
        for (key, value) in entries {
            let put = self.writer()?.put(Tree::Meta, key, &[value]);
            put.map_err(|error| self.failed(error))?;
        }
        Ok(())
    }

    pub(crate) fn delete_meta(&mut self, key: &[u8]) -> Result<()> {
        self.catalog_changed();
        let deleted = self.writer()?.delete(Tree::Meta, key);
        deleted.map(|_| ()).map_err(|error| self.failed(error))
    }

    /// The table with this name, or an error.
    fn named(&self, name: &str) -> Result<TableId> {
        if let Some(table) = self.table(name)? {
            return Ok(table);
        }
        let others = self.tables()?.into_iter().map(|(name, _)| name).collect();
        Err(StoreError::NoSuchTable { path: self.database.path.clone(), table: name.to_owned(), others })
    }

    /// Delete a table with all its rows. Its id is never used again.
    ///
    /// # Errors
    /// `NoSuchTable`.
    pub fn drop_table(&mut self, name: &str) -> Result<()> {
        self.drop_table_while(name, &mut || true)
    }

    /// As `drop_table`; `go_on` is called after every few hundred rows.
    ///
    /// # Errors
    /// `NoSuchTable`; `Stopped`, and then nothing is deleted.
    pub fn drop_table_while(&mut self, name: &str, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        let table = self.named(name)?;
        self.or_nothing(|transaction| {
            transaction.clear_rows(table, go_on)?;
            transaction.drop_indexes(table, go_on)?;
            transaction.delete_meta(&catalog::name_key(name))?;
            transaction.delete_meta(&catalog::table_key(table))?;
            transaction.forget_setting(table)?;
            transaction.tables.retain(|entry| entry.table != table);
            transaction.forget_next_int(Some(table))
        })
    }

    /// Delete what makes a table compressed. Its dictionaries go when the tree gets this change.
    fn forget_setting(&mut self, table: TableId) -> Result<()> {
        let key = pack_entries::key_of(SETTING, table);
        let found = self.reader()?.get(Tree::Meta, &key).map_err(|error| self.database.error(error))?;
        if found.is_some() { self.delete_meta(&key) } else { Ok(()) }
    }

    /// Rename a table; its rows and its id stay.
    ///
    /// # Errors
    /// `NoSuchTable`, `TableExists`, `TableName`.
    pub fn rename_table(&mut self, name: &str, new_name: &str) -> Result<()> {
        let table = self.named(name)?;
        if name != new_name {
            self.check_name(new_name)?;
            self.delete_meta(&catalog::name_key(name))?;
            self.put_entries(&[catalog::name_entry(new_name, table)])?;
        }
        Ok(())
    }

    /// Set how long changes are kept, for all processes.
    ///
    /// # Errors
    /// When no room is left.
    pub fn set_keep(&mut self, keep: Keep) -> Result<()> {
        self.put_entries(&[catalog::keep_entry(keep)])
    }

    /// Delete all rows of a table, and the entries of its indexes.
    ///
    /// # Errors
    /// `NoSuchTable`, or when no room is left to copy pages.
    pub fn clear(&mut self, table: TableId) -> Result<()> {
        self.clear_while(table, &mut || true)
    }

    /// As `clear`; `go_on` is called after every few hundred rows.
    ///
    /// # Errors
    /// As `clear`; `Stopped`, and then nothing is deleted.
    pub fn clear_while(&mut self, table: TableId, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.flush_rows()?;
        if self.count(table)? <= CLEAR_CHUNK as u64 {
            // Too quick to stop, unless an index has many entries for each row.
            self.keep_next_int_of_all(table)?;
            return self.clear_rows(table, &mut || true);
        }
        self.or_nothing(|transaction| {
            transaction.keep_next_int_of_all(table)?;
            transaction.clear_rows(table, go_on)
        })
    }

    fn clear_rows(&mut self, table: TableId, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.entry(table)?;
        self.flush_entries()?;
        self.tail = None;
        let indexes = self.indexes(table)?;
        let notes = indexes.iter().filter_map(|info| Some(info.building.as_ref()?.notes));
        let mut ids: Vec<TableId> =
            std::iter::once(table).chain(indexes.iter().map(|info| info.id)).collect();
        // Few rows are deleted one by one, so that emptying a small table goes through the log. An
        // index build in progress needs the keys of deleted rows.
        if self.count(table)? > CLEAR_CHUNK as u64
            && notes.count() == 0
            && self.are_only_tables(&ids)?
            && self.loose_blobs.is_empty()
        {
            for tree in [Tree::Rows, Tree::Blobs] {
                let cleared = self.writer()?.clear(tree);
                cleared.map_err(|error| self.failed(error))?;
            }
        } else if indexes.iter().any(|info| info.building.is_some()) {
            self.delete_each(table, go_on)?;
            ids.clear();
        } else {
            for id in &ids {
                self.clear_chunks(*id, go_on)?;
            }
        }
        for id in ids {
            let entry = self.entry(id)?;
            entry.state.row_count = 0;
            entry.is_changed = true;
        }
        Ok(())
    }

    /// Delete rows as `delete` does, which records each of them for an index build.
    fn delete_each(&mut self, table: TableId, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        loop {
            let mut scan = self.scan(table, &Range::ALL, false)?;
            let mut keys = Vec::new();
            while keys.len() < CLEAR_CHUNK
                && let Some(key) = scan.next(self, |row| row.key.to_vec())?
            {
                keys.push(key);
            }
            drop(scan);
            if keys.is_empty() {
                return Ok(());
            }
            for key in keys {
                self.delete(table, &key)?;
            }
            if !go_on() {
                return Err(StoreError::Stopped);
            }
        }
    }

    fn clear_chunks(&mut self, id: TableId, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        while self.clear_chunk(id)? {
            if !go_on() {
                return Err(StoreError::Stopped);
            }
        }
        Ok(())
    }

    /// Delete the entries of an index and their count.
    pub(crate) fn drop_rows(&mut self, id: TableId, go_on: &mut dyn FnMut() -> bool) -> Result<()> {
        self.tail = None;
        self.clear_chunks(id, go_on)?;
        self.forget_rows(id)
    }

    /// Delete the count of a table or index that has no rows.
    pub(crate) fn forget_rows(&mut self, id: TableId) -> Result<()> {
        self.delete_meta(&catalog::table_key(id))?;
        self.tables.retain(|entry| entry.table != id);
        Ok(())
    }

    /// Delete every table. Ids are not used again, and the dictionary stays, since other processes
    /// have it in memory.
    ///
    /// # Errors
    /// When no room is left to copy pages.
    pub fn clear_everything(&mut self) -> Result<()> {
        self.gathered.forget();
        let indexes = all_indexes(self.reader()?).map_err(|error| self.database.catalog_error(error))?;
        for (name, table) in self.tables()? {
            self.delete_meta(&catalog::name_key(&name))?;
            self.delete_meta(&catalog::table_key(table))?;
            self.forget_setting(table)?;
        }
        for info in indexes {
            self.delete_meta(&info.key())?;
            self.delete_meta(&catalog::table_key(info.id))?;
            if let Some(building) = info.building {
                self.delete_meta(&catalog::table_key(building.notes))?;
            }
        }
        for tree in [Tree::Rows, Tree::Blobs] {
            let cleared = self.writer()?.clear(tree);
            cleared.map_err(|error| self.failed(error))?;
        }
        self.forget_history()?;
        self.forget_next_int(None)?;
        self.tables.clear();
        self.more_rows.clear();
        self.loose_blobs.clear();
        self.tail = None;
        Ok(())
    }

    /// Delete the history of changes, and the setting to keep one.
    fn forget_history(&mut self) -> Result<()> {
        let mut keys = Vec::new();
        {
            let database = &self.database;
            let mut cursor = self.reader()?.cursor(Tree::Meta).map_err(|error| database.error(error))?;
            let started = cursor.start(Start::At(&[CHUNK]), Direction::Forward);
            started.map_err(|error| database.error(error))?;
            while let Some((key, _)) = cursor.step().map_err(|error| database.error(error))? {
                if key.first() != Some(&CHUNK) {
                    break;
                }
                keys.push(key.to_vec());
            }
        }
        for key in &keys {
            self.delete_meta(key)?;
        }
        self.delete_meta(catalog::KEEP_KEY)
    }

    /// Whether every row in the tree belongs to one of these tables and indexes.
    fn are_only_tables(&self, ids: &[TableId]) -> Result<bool> {
        let database = &self.database;
        let mut cursor = self.rows()?.cursor(Tree::Rows).map_err(|error| database.error(error))?;
        let mut behind: Option<Vec<u8>> = None;
        loop {
            let start = behind.as_ref().map_or(Start::Edge, |behind| Start::At(behind));
            let found = cursor.start(start, Direction::Forward).and_then(|()| cursor.step());
            let Some((row_key, _)) = found.map_err(|error| database.error(error))? else { return Ok(true) };
            let Some(id) = split(row_key).map(|(id, _)| id).filter(|id| ids.contains(id)) else {
                return Ok(false);
            };
            match successor(Prefix::of(id).as_bytes().to_vec()) {
                Some(successor) => behind = Some(successor),
                None => return Ok(true),
            }
        }
    }

    /// Delete some rows of a table. False when there was none.
    fn clear_chunk(&mut self, table: TableId) -> Result<bool> {
        let prefix = Prefix::of(table);
        let end = successor(prefix.as_bytes().to_vec());
        let (mut row_keys, mut blobs) = (Vec::new(), Vec::new());
        {
            let database = &self.database;
            let mut cursor = self.rows()?.cursor(Tree::Rows).map_err(|error| database.error(error))?;
            cursor
                .start(Start::At(prefix.as_bytes()), Direction::Forward)
                .map_err(|error| database.error(error))?;
            while row_keys.len() < CLEAR_CHUNK {
                let Some((row_key, bytes)) = cursor.step().map_err(|error| database.error(error))? else {
                    break;
                };
                if end.as_deref().is_some_and(|end| row_key >= end) {
                    break;
                }
                // A damaged cell does not prevent its table from being cleared.
                let cell = Cell::outside(bytes);
                blobs.extend(cell.iter().flat_map(Cell::blobs));
                let key_text = cell.map(|cell| (cell.spelling.to_vec(), cell.whole_key.to_vec()));
                row_keys.push((row_key.to_vec(), key_text.unwrap_or_default()));
            }
        }
        for (row_key, (spelling, whole_key)) in &row_keys {
            self.say_key(row_key, spelling, whole_key)?;
            let deleted = self.writer()?.delete(Tree::Rows, row_key);
            deleted.map_err(|error| self.failed(error))?;
        }
        self.delete_blobs(&blobs)?;
        Ok(!row_keys.is_empty())
    }
}
