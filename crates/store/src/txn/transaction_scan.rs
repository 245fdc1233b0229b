//! Walks inside a write transaction.
//!
//! A walk sees the state at its start. While the transaction has changed nothing, that is the
//! committed snapshot, and the walk goes over that. Afterwards only the engine's write transaction
//! has the state: the walk copies rows from there, some at a time, and the transaction makes it
//! copy the rest before the next change.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::sync::{Arc, Mutex, PoisonError};

use crate::catalog::cell::Cell;
use crate::db::database::Database;
use crate::engine::{Batch, Cursor, Direction, Entry, Start, Tree, WriteTxn};
use crate::error::Result;
use crate::pack::opening::Source;
use crate::row::Row;
use crate::txn::scan::{RowRange, Scan};
use crate::txn::transaction::Transaction;

/// Rows copied at a time.
const CHUNK: usize = 64;
/// Rows passed to `visit` in place before the cursor has to be placed again.
const VISITED: usize = 4096;

/// A walk inside a transaction.
pub enum TransactionScan {
    /// Over the snapshot that the transaction is based on.
    Clean(Box<Scan>),
    /// Over the transaction's own state.
    Dirty(Arc<Mutex<DirtyScan>>),
}

impl TransactionScan {
    /// Call a function with the next row, and return its result. `None` at the end.
    ///
    /// # Errors
    /// As [`Scan::next`]; `Closed` when the transaction ended before the walk.
    pub fn next<T>(
        &mut self,
        transaction: &Transaction,
        use_row: impl FnOnce(Row<'_>) -> T,
    ) -> Result<Option<T>> {
        self.next_with(transaction, |row, _| use_row(row))
    }

    /// As `next`; the function also gets whether the row may have large values that are stored
    /// apart.
    ///
    /// # Errors
    /// As `next`.
    pub fn next_with<T>(
        &mut self,
        transaction: &Transaction,
        use_row: impl FnOnce(Row<'_>, bool) -> T,
    ) -> Result<Option<T>> {
        match self {
            Self::Clean(scan) => Ok(scan.next()?.map(|row| use_row(row, true))),
            Self::Dirty(scan) => {
                let mut scan = scan.lock().unwrap_or_else(PoisonError::into_inner);
                if scan.rows.is_empty() && !scan.is_over {
                    scan.take(transaction.scan_source()?, &transaction.database, CHUNK)?;
                }
                Ok(scan.rows.pop_front().map(|row| use_row(row.as_row(), row.has_large)))
            }
        }
    }
}

impl TransactionScan {
    /// Call `visit` with the next rows until it breaks: mostly some thousands, and in place, since
    /// nothing is written meanwhile. Returns its last result; `None` at the end of the walk.
    ///
    /// # Errors
    /// As `next`.
    pub fn next_rows<B>(
        &mut self,
        transaction: &Transaction,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>> {
        let scan = match self {
            Self::Clean(scan) => return scan.next_rows(visit),
            Self::Dirty(scan) => scan,
        };
        let mut scan = scan.lock().unwrap_or_else(PoisonError::into_inner);
        if scan.rows.is_empty() && !scan.is_over {
            let database = &transaction.database;
            if let Some(flow) = scan.visit(transaction.scan_source()?, database, &mut visit)? {
                return Ok(Some(flow));
            }
            // Rows of a run, or the end.
            scan.take(transaction.scan_source()?, database, 1)?;
        }
        Ok(scan.rows.pop_front().map(|row| visit(row.as_row())))
    }
}

/// A row that has been copied.
struct OwnedRow {
    key: Vec<u8>,
    spelling: Vec<u8>,
    record: Vec<u8>,
    has_large: bool,
}

impl OwnedRow {
    fn of(row: &Row<'_>, has_large: bool) -> Self {
        let (key, spelling, record) = (row.key.to_vec(), row.spelling.to_vec(), row.record.to_vec());
        Self { key, spelling, record, has_large }
    }

    fn as_row(&self) -> Row<'_> {
        Row { key: &self.key, spelling: &self.spelling, record: &self.record }
    }
}

/// A walk over a transaction's own state: rows that were copied, and where to go on.
pub struct DirtyScan {
    range: RowRange,
    rows: VecDeque<OwnedRow>,
    /// The row key of the last entry that was copied.
    position: Option<Vec<u8>>,
    is_over: bool,
}

impl DirtyScan {
    pub(crate) fn new(range: RowRange) -> Self {
        Self { range, rows: VecDeque::new(), position: None, is_over: false }
    }

    /// Copy at least `count` more rows, or all that are left.
    pub(crate) fn take(&mut self, source: &dyn WriteTxn, database: &Database, count: usize) -> Result<()> {
        if self.is_over {
            return Ok(());
        }
        let mut cursor = source.cursor(Tree::Rows).map_err(|error| database.error(error))?;
        self.start(&mut *cursor, database)?;
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
                self.copy(&run, source, database)?;
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
                self.copy(&[entry], source, database)?;
            }
            position = Some(entry.0);
        }
        if let Some(position) = position {
            self.position = Some(position.to_vec());
        }
        Ok(())
    }

    /// Remove the first copied row and apply `work` to it.
    pub(crate) fn with_next<R>(&mut self, work: impl FnOnce(Row<'_>) -> R) -> Option<R> {
        self.rows.pop_front().map(|row| work(row.as_row()))
    }

    /// Remove the first copied row; return its key code and its spelling.
    pub(crate) fn pop(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        self.rows.pop_front().map(|row| (row.key, row.spelling))
    }

    /// Call `visit` with the next rows in place, up to one that might be of a run. Returns its last
    /// result; `None` if there is no such row.
    fn visit<B>(
        &mut self,
        source: &dyn WriteTxn,
        database: &Database,
        visit: &mut impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>> {
        let mut cursor = source.cursor(Tree::Rows).map_err(|error| database.error(error))?;
        self.start(&mut *cursor, database)?;
        let mut batch = Batch::default();
        let (mut seen, mut position) = (0, None);
        let (mut flow, mut opened) = (None, Vec::new());
        'pages: while seen < VISITED {
            cursor.fill(&mut batch).map_err(|error| database.error(error))?;
            for entry in &batch.entries {
                if !self.range.has(entry.0) || self.range.run_of(entry.0).is_some() {
                    break 'pages;
                }
                let row = match self.range.row(*entry) {
                    Some(row) => row,
                    None => self.range.opened_row(database, Source::Running(source), *entry, &mut opened)?,
                };
                (seen, position) = (seen + 1, Some(entry.0));
                let one = visit(row);
                let is_break = one.is_break();
                flow = Some(one);
                if is_break {
                    break 'pages;
                }
            }
            if batch.entries.is_empty() {
                break;
            }
        }
        if let Some(position) = position {
            self.position = Some(position.to_vec());
        }
        Ok(flow)
    }

    /// Place the cursor where the walk goes on.
    fn start(&self, cursor: &mut dyn Cursor<'_>, database: &Database) -> Result<()> {
        let behind;
        let start = match (&self.position, self.range.direction) {
            (None, _) => self.range.first(),
            (Some(position), Direction::Reverse) => Start::At(position),
            (Some(position), Direction::Forward) => {
                behind = [position, &b"\0"[..]].concat();
                Start::At(&behind)
            }
        };
        cursor.start(start, self.range.direction).map_err(|error| database.error(error))
    }

    fn copy(&mut self, entries: &[Entry<'_>], source: &dyn WriteTxn, database: &Database) -> Result<()> {
        let mut opened = Vec::new();
        for entry in entries {
            let row = match self.range.row(*entry) {
                Some(row) => row,
                None => self.range.opened_row(database, Source::Running(source), *entry, &mut opened)?,
            };
            self.rows.push_back(OwnedRow::of(&row, Cell::lists_blobs(entry.1)));
        }
        Ok(())
    }
}
