//! What does a walk inside a transaction see?
//!
//! The state at its start. While nothing has been changed that is the committed snapshot, and the walk goes
//! over that. Afterwards only the engine's write transaction has it: the walk copies rows from there, some at
//! a time, and the transaction makes it copy the rest before the first later change.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use crate::database::Database;
use crate::engine::{Direction, Entry, Start, Tree, WriteTxn};
use crate::error::StoreError;
use crate::row_key::TableId;
use crate::scan::{Row, RowRange, Scan};
use crate::transaction::Transaction;

/// Rows copied at a time.
const CHUNK: usize = 64;

/// A walk inside a transaction.
pub enum TransactionScan {
    /// Over the snapshot that the transaction builds on.
    Clean(Box<Scan>),
    /// Over the transaction's own state.
    Dirty(Arc<Mutex<DirtyScan>>),
}

impl TransactionScan {
    /// Give the next row to a function, and return what it says; `None` at the end.
    ///
    /// # Errors
    /// As [`Scan::next`]; `Closed` when the transaction ended before the walk.
    pub fn next<T>(
        &mut self,
        transaction: &Transaction,
        use_row: impl FnOnce(Row<'_>) -> T,
    ) -> Result<Option<T>, StoreError> {
        match self {
            Self::Clean(scan) => Ok(scan.next()?.map(use_row)),
            Self::Dirty(scan) => {
                let mut scan = scan.lock().unwrap_or_else(PoisonError::into_inner);
                if scan.rows.is_empty() && !scan.is_over {
                    scan.take(transaction.scan_source()?, &transaction.database, CHUNK)?;
                }
                Ok(scan.rows.pop_front().map(|row| use_row(row.as_row())))
            }
        }
    }
}

/// A row that has been copied.
struct OwnedRow {
    key: Vec<u8>,
    spelling: Vec<u8>,
    record: Vec<u8>,
}

impl OwnedRow {
    fn of(row: &Row<'_>) -> Self {
        Self { key: row.key.to_vec(), spelling: row.spelling.to_vec(), record: row.record.to_vec() }
    }

    fn as_row(&self) -> Row<'_> {
        Row { key: &self.key, spelling: &self.spelling, record: &self.record }
    }
}

/// A walk over a transaction's own state: rows that were copied, and where to go on.
pub struct DirtyScan {
    table: TableId,
    range: RowRange,
    rows: VecDeque<OwnedRow>,
    /// The row key of the last entry that was copied.
    position: Option<Vec<u8>>,
    is_over: bool,
}

impl DirtyScan {
    pub(crate) fn new(table: TableId, range: RowRange) -> Self {
        Self { table, range, rows: VecDeque::new(), position: None, is_over: false }
    }

    /// Copy at least `count` more rows, or all that are left.
    pub(crate) fn take(
        &mut self,
        source: &dyn WriteTxn,
        database: &Database,
        count: usize,
    ) -> Result<(), StoreError> {
        if self.is_over {
            return Ok(());
        }
        let mut cursor = source.cursor(Tree::Rows).map_err(|error| database.error(error))?;
        let behind;
        let start = match (&self.position, self.range.direction) {
            (None, _) => self.range.first(),
            (Some(position), Direction::Reverse) => Start::At(position),
            (Some(position), Direction::Forward) => {
                behind = [position, &b"\0"[..]].concat();
                Start::At(&behind)
            }
        };
        cursor.start(start, self.range.direction).map_err(|error| database.error(error))?;
        let mut run: Vec<Entry<'_>> = Vec::new();
        let mut position = None;
        let mut copied = 0;
        loop {
            let entry = cursor.step().map_err(|error| database.error(error))?;
            let entry = entry.filter(|entry| self.range.has(entry.0));
            let run_key = entry.and_then(|entry| self.range.run_of(entry.0));
            let is_same_run =
                run_key.is_some() && run.first().and_then(|first| self.range.run_of(first.0)) == run_key;
            if !is_same_run && !run.is_empty() {
                self.range.sort_run(&mut run);
                copied += run.len();
                self.copy(&run, database)?;
                run.clear();
            }
            let Some(entry) = entry else {
                self.is_over = true;
                break;
            };
            if copied >= count && run.is_empty() {
                break;
            }
            if run_key.is_some() {
                run.push(entry);
            } else {
                copied += 1;
                self.copy(&[entry], database)?;
            }
            position = Some(entry.0);
        }
        if let Some(position) = position {
            self.position = Some(position.to_vec());
        }
        Ok(())
    }

    fn copy(&mut self, entries: &[Entry<'_>], database: &Database) -> Result<(), StoreError> {
        for entry in entries {
            let row = self.range.row(*entry).ok_or_else(|| database.damaged_row(self.table, entry.0))?;
            self.rows.push_back(OwnedRow::of(&row));
        }
        Ok(())
    }
}
