//! Changes a part of a stored row.
//!
//! The row is looked up once. A change that fits its slot is written over a copy of the record,
//! which then replaces the stored one; any other change goes through `pellucid_record::patch`. The
//! write cursor stays on the row in between, so changing a scalar costs one search of the tree.
//! Large values that the changed record no longer refers to are deleted.

use std::sync::{Arc, PoisonError};

use pellucid_record::error::Damage;
use pellucid_record::large_ids::large_ids;
use pellucid_record::patch::{self, Change, PatchError, Patched, ShapeBook};
use pellucid_record::path::Step;
use pellucid_record::{Admission, Corrupt, Dictionary, Shape, ShapeDecision, Shapes};

use crate::catalog::cell::{CHECK_SIZE, Cell, Packed, check_of, write_head};
use crate::catalog::shapes::TransactionShapes;
use crate::engine::Tree;
use crate::error::{Result, StoreError};
use crate::index::IndexSet;
use crate::pack::opening::Source;
use crate::row::Row;
use crate::row_key::{Prefix, RowKey, TableId, is_long};
use crate::txn::index_entries::Changes;
use crate::txn::transaction::Transaction;

/// The shapes of a transaction, and the rule for making new ones.
struct Book<'a> {
    shapes: &'a TransactionShapes,
    dictionary: &'a Dictionary,
    admission: &'a mut Admission,
    table: TableId,
    admitted: u32,
}

impl Shapes for Book<'_> {
    fn shape(&self, id: u32) -> Option<&Shape> {
        self.shapes.shape(id)
    }
}

impl ShapeBook for Book<'_> {
    fn shape_of(&mut self, names: &[&str], is_root: bool) -> Option<u32> {
        if let Some(id) = self.shapes.find(names) {
            return Some(id);
        }
        match self.admission.decide_shape(self.dictionary, self.table.number(), names, is_root) {
            ShapeDecision::Known(id) => Some(id),
            ShapeDecision::Keyed => None,
            ShapeDecision::Register => {
                self.admitted += 1;
                self.shapes.find_or_add(names).ok().map(|(id, _)| id)
            }
        }
    }
}

/// A row whose record was copied.
struct Copied {
    blobs: Vec<u64>,
    is_intact: bool,
}

/// A path, and what is changed at its end.
pub type PathChange<'a> = (&'a [Step<'a>], Change<'a>);

/// The changed record; or why it cannot be changed, and the number of the change.
pub type PatchResult = std::result::Result<Patched, (usize, PatchError)>;

/// The indexes of a row's table, and the row's old record. `None` if the table has no indexes.
type Indexed = Option<(Arc<IndexSet>, Vec<u8>)>;

impl Transaction {
    /// Change one part of a stored record. Returns the whole changed record, or `None` when the row
    /// is not there. When the record cannot be changed in this way, nothing is changed and the
    /// inner error says why. `blobs` are the ids of new large values to which the change's values
    /// refer.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn patch(
        &mut self,
        table: TableId,
        key: &[u8],
        path: &[Step<'_>],
        change: Change<'_>,
        blobs: &[u64],
    ) -> Result<Option<Result<Patched, PatchError>>> {
        let patched = self.patch_all(table, key, &[(path, change)], blobs)?;
        Ok(patched.map(|patched| patched.map_err(|(_, error)| error)))
    }

    /// As `patch`, for several parts of the record, one after another, in one write. An inner error
    /// comes with the number of the change that it is about.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    pub fn patch_all(
        &mut self,
        table: TableId,
        key: &[u8],
        changes: &[PathChange<'_>],
        blobs: &[u64],
    ) -> Result<Option<PatchResult>> {
        let mut record = Vec::new();
        let set = if self.is_here(table)? { self.index_set(table)? } else { None };
        let mut head = std::mem::take(&mut self.head);
        let row_key = RowKey::new(table, key, self.database.key_size_max);
        let found = self.copy_row(table, key, row_key.as_bytes(), 0, &mut head, &mut record);
        let indexed = set.map(|set| (set, record.clone()));
        let outcome = match found {
            // A change would give the damaged record a valid check.
            Ok(Some(row)) if !row.is_intact => {
                Ok(Some(Err((0, Corrupt::new(Damage::CellCheck, record.len()).into()))))
            }
            Ok(Some(row)) => self.patch_copy(
                table,
                key,
                row_key.as_bytes(),
                &mut head,
                record,
                changes,
                (&row.blobs, blobs),
                &indexed,
            ),
            Ok(None) => Ok(None),
            Err(error) => Err(error),
        };
        self.head = head;
        outcome
    }

    /// Overwrite a part of a stored record. `work` gets a copy of the record, and returns whether
    /// it has changed it so that it should be stored. Returns the record, in memory with room for
    /// `room` bytes more, and the result of `work`; `None` when the row is not there. Large values
    /// stay as they are. A damaged record is not changed, and `work` is not called: `patch` reports
    /// the damage.
    ///
    /// # Errors
    /// As [`Transaction::put`].
    #[expect(clippy::type_complexity, reason = "there is one caller")]
    pub fn rewrite<E>(
        &mut self,
        table: TableId,
        key: &[u8],
        room: usize,
        work: impl FnOnce(&mut [u8], &TransactionShapes) -> Result<bool, E>,
    ) -> Result<Option<(Vec<u8>, Result<bool, E>)>> {
        let mut record = Vec::new();
        let outcome = self.rewrite_within(table, key, room, &mut record, work)?;
        Ok(outcome.map(|outcome| (record, outcome)))
    }

    /// As `rewrite`, with a buffer of the caller for the copy, which is cleared first. For callers
    /// that change many rows.
    ///
    /// # Errors
    /// As `rewrite`.
    pub fn rewrite_within<E>(
        &mut self,
        table: TableId,
        key: &[u8],
        room: usize,
        record: &mut Vec<u8>,
        work: impl FnOnce(&mut [u8], &TransactionShapes) -> Result<bool, E>,
    ) -> Result<Option<Result<bool, E>>> {
        record.clear();
        let set = if self.is_here(table)? { self.index_set(table)? } else { None };
        let mut head = std::mem::take(&mut self.head);
        let row_key = RowKey::new(table, key, self.database.key_size_max);
        let row_key = row_key.as_bytes();
        let found = self.copy_row(table, key, row_key, room, &mut head, record)?;
        let indexed = set.map(|set| (set, record.clone()));
        let outcome = found.map(|row| if row.is_intact { work(record, self.shapes()) } else { Ok(false) });
        if let Some(Ok(true)) = outcome {
            self.replace_indexed(table, key, row_key, &head, record, &indexed)?;
        }
        self.head = head;
        Ok(outcome)
    }

    /// Look a row up, keep the position, and copy its head and its record, in memory with room for
    /// `room` bytes more. Returns the ids of its blobs, and whether its check fits.
    fn copy_row(
        &mut self,
        table: TableId,
        key: &[u8],
        row_key: &[u8],
        room: usize,
        head: &mut Vec<u8>,
        record: &mut Vec<u8>,
    ) -> Result<Option<Copied>> {
        let (writer, database) = self.writer_and_database()?;
        let found = writer.find(Tree::Rows, row_key);
        let Some(bytes) = found.map_err(|error| database.error(error))? else { return Ok(None) };
        let Some(cell) = database.outside(table, key, row_key, bytes)? else { return Ok(None) };
        if Packed::parse(bytes).is_some() {
            let blobs: Vec<u64> = cell.blobs().collect();
            write_head(head, cell.spelling, cell.whole_key, &blobs);
            let bytes = bytes.to_vec();
            self.open_copy(row_key, &bytes, record)?;
            record.reserve_exact(room);
            return Ok(Some(Copied { blobs, is_intact: true }));
        }
        head.clear();
        head.extend_from_slice(bytes.get(..bytes.len() - CHECK_SIZE - cell.record.len()).unwrap_or_default());
        record.reserve_exact(cell.record.len() + room);
        record.extend_from_slice(cell.record);
        Ok(Some(Copied { blobs: cell.blobs().collect(), is_intact: cell.is_intact(row_key, bytes) }))
    }

    /// Open a copy of a packed cell.
    #[cold]
    fn open_copy(&self, row_key: &[u8], bytes: &[u8], record: &mut Vec<u8>) -> Result<()> {
        let source = Source::Running(self.reader()?);
        self.database.open_packed(source, row_key, bytes, record).map(|_| ())
    }

    #[allow(clippy::too_many_arguments, reason = "one call's locals, in two functions")]
    fn patch_copy(
        &mut self,
        table: TableId,
        key: &[u8],
        row_key: &[u8],
        head: &mut Vec<u8>,
        mut record: Vec<u8>,
        path_changes: &[PathChange<'_>],
        (old_blobs, new_blobs): (&[u64], &[u64]),
        indexed: &Indexed,
    ) -> Result<Option<PatchResult>> {
        let (mut encoded, mut spliced, mut is_overwritten) = (0, 0, true);
        for (number, (path, change)) in path_changes.iter().enumerate() {
            match patch::overwrite_by(&mut record, &**self.shapes(), path, *change) {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => return Ok(Some(Err((number, error)))),
            }
            let patched = match self.apply(table, &record, path, *change)? {
                Ok(patched) => patched,
                Err(error) => return Ok(Some(Err((number, error)))),
            };
            (record, is_overwritten) = (patched.record, false);
            encoded += patched.encoded;
            spliced += patched.spliced;
        }
        let patched = Patched { record, encoded, spliced };
        if is_overwritten || (old_blobs.is_empty() && new_blobs.is_empty()) {
            self.replace_indexed(table, key, row_key, head, &patched.record, indexed)?;
            return Ok(Some(Ok(patched)));
        }
        let kept = match large_ids(&patched.record, &**self.shapes()) {
            Ok(kept) => kept,
            Err(error) => return Ok(Some(Err((0, error.into())))),
        };
        let spelling = Cell::parse_head(head).map_or_else(Vec::new, <[u8]>::to_vec);
        let whole_key = if is_long(row_key, self.database.key_size_max) {
            [Prefix::of(table).as_bytes(), key].concat()
        } else {
            Vec::new()
        };
        let changes = self.changes_of_patch(table, key, head, &patched.record, indexed)?;
        self.attach(&kept, old_blobs)?;
        write_head(head, &spelling, &whole_key, &kept);
        self.replace_found(row_key, head, &patched.record)?;
        if let Some(changes) = changes {
            self.apply_index_changes(key, changes)?;
        }
        let gone: Vec<u64> = old_blobs.iter().copied().filter(|id| !kept.contains(id)).collect();
        self.delete_blobs(&gone)?;
        Ok(Some(Ok(patched)))
    }

    /// Whether the table exists. A missing table is no error here: its rows do not exist either.
    fn is_here(&mut self, table: TableId) -> Result<bool> {
        match self.entry(table) {
            Ok(_) => Ok(true),
            Err(StoreError::TableDropped { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// The index changes of a row that becomes `record`, if its table has indexes.
    fn changes_of_patch(
        &mut self,
        table: TableId,
        key: &[u8],
        head: &[u8],
        record: &[u8],
        indexed: &Indexed,
    ) -> Result<Option<Changes>> {
        let Some((set, old)) = indexed else { return Ok(None) };
        let spelling = Cell::parse_head(head).unwrap_or_default();
        let (old, new) = (Row { key, spelling, record: old }, Row { key, spelling, record });
        self.index_changes(set, table, Some(&old), Some(&new)).map(Some)
    }

    fn replace_indexed(
        &mut self,
        table: TableId,
        key: &[u8],
        row_key: &[u8],
        head: &[u8],
        record: &[u8],
        indexed: &Indexed,
    ) -> Result<()> {
        let changes = self.changes_of_patch(table, key, head, record, indexed)?;
        self.replace_found(row_key, head, record)?;
        match changes {
            Some(changes) => self.apply_index_changes(key, changes),
            None => Ok(()),
        }
    }

    fn replace_found(&mut self, row_key: &[u8], head: &[u8], record: &[u8]) -> Result<()> {
        Self::check_size(row_key.len() + head.len() + record.len())?;
        let check = check_of(row_key, head, record).to_le_bytes();
        let done = self.writer()?.replace_found(Tree::Rows, row_key, &[head, record, &check]);
        done.map_err(|error| self.failed(error))
    }

    fn apply(
        &mut self,
        table: TableId,
        record: &[u8],
        path: &[Step<'_>],
        change: Change<'_>,
    ) -> Result<Result<Patched, PatchError>> {
        let database = Arc::clone(&self.database);
        let shapes = Arc::clone(self.shapes());
        let mut admission = database.admission.lock().unwrap_or_else(PoisonError::into_inner);
        let mut book = Book {
            shapes: &shapes,
            dictionary: &database.dictionary,
            admission: &mut admission,
            table,
            admitted: 0,
        };
        let patched = patch::apply(record, path, change, &mut book);
        self.note_admitted(table, book.admitted)?;
        Ok(patched)
    }
}
