//! Reads a table as its handle sees it: in a snapshot, or in the caller's transaction.

use std::ops::ControlFlow;

use pellucid_query::exec::extremes::keys_of_extremes;
use pellucid_query::expression::Node;
use pellucid_query::sort::SortedKeys;
use pellucid_query::stoppable::Pace;
use pellucid_query::{CopiedRows, Extremes, Fault, Lookups, RowsByKey, Selection};
use pellucid_store::{Reader, Snapshot, TableId, Transaction};
use pyo3::prelude::*;

use crate::query::indexes;
use crate::signals::is_interrupted;
use crate::table::handle::Table;
use crate::table::reading::Rows;
use crate::values::table_ref::TableRef;
use crate::work::walks::{Source, of_fault};

/// What a table is read from.
pub enum TableReader {
    /// A snapshot, and the table's id in it.
    Snapshot(Snapshot, TableId),
    /// The caller's transaction, if it has changed something, and the table's id in it.
    Transaction(TableId),
}

/// Runs `$work` with the reader of a [`TableReader`] and the table's id there. The code is compiled
/// for each of the two readers.
macro_rules! read {
    ($of:expr, $table:expr, |$reader:ident, $id:ident| $work:expr) => {{
        let (py, table) = ($table.py(), $table.get());
        match $of {
            $crate::query::reader::TableReader::Snapshot($reader, $id) => {
                let $id = *$id;
                let work = || -> Result<_, pellucid_store::StoreError> { $work };
                work().map_err(|error| $crate::store_errors::of_store(py, error))
            }
            $crate::query::reader::TableReader::Transaction($id) => {
                let $id = *$id;
                table.core().in_running(py, |transaction| {
                    let $reader = &*transaction;
                    $work
                })
            }
        }
    }};
}
pub(crate) use read;

impl TableReader {
    /// What a table is read from now; None if it does not exist.
    pub fn of(table: &Bound<'_, Table>) -> PyResult<Option<Self>> {
        let (py, this) = (table.py(), table.get());
        if !this.is_in_transaction(py) {
            let snapshot = this.snapshot(py)?;
            return Ok(this.id_in(py, &snapshot)?.map(|id| Self::Snapshot(snapshot, id)));
        }
        this.core().in_running(py, |transaction| {
            let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(None) };
            // A transaction that has changed nothing reads what is committed.
            let is_changed = transaction.is_changed();
            Ok(Some(if is_changed {
                Self::Transaction(id)
            } else {
                Self::Snapshot(transaction.committed()?, id)
            }))
        })
    }

    /// The rows under these keys.
    pub fn list(&self, table: &Bound<'_, Table>, keys: SortedKeys) -> PyResult<Rows> {
        match self {
            Self::Snapshot(snapshot, id) => {
                Ok(Rows::Listed(snapshot.clone(), Box::new(RowsByKey::new(*id, keys))))
            }
            Self::Transaction(id) => {
                let copied = table.get().core().in_running(table.py(), |transaction| {
                    Ok(copied(transaction, RowsByKey::new(*id, keys), Selection::of(None)))
                })?;
                copied.map(Rows::Copied).map_err(|fault| of_fault(table.py(), &TableRef::new(table), fault))
            }
        }
    }
}

/// Copies the wanted rows of a transaction, before it changes them.
pub fn copied(
    transaction: &Transaction,
    mut rows: impl Lookups<Transaction>,
    mut selection: Selection,
) -> Result<CopiedRows, Fault> {
    let (mut copied, overflow_reader) = (CopiedRows::default(), transaction.overflow_reader());
    let mut pace = Pace::new(is_interrupted);
    while selection.limit > 0 {
        let taken = rows.next(transaction, |row, has_large| {
            let taken = selection.takes(&row, &overflow_reader);
            if let Ok(ControlFlow::Continue(true)) = taken {
                copied.push(&row, has_large);
            }
            taken.map(|_| ()).map_err(|error| Fault::Record(row.key.to_vec(), error))
        })?;
        match taken {
            Some(taken) => taken?,
            None => break,
        }
        pace.step()?;
    }
    Ok(copied)
}

/// A few rows of the table among which are those with the least or the greatest values of these
/// expressions, the first of each. `None` if indexes do not say which.
pub fn rows_of_extremes(table: &Bound<'_, Table>, wanted: &[(&Node, Extremes)]) -> PyResult<Option<Source>> {
    let Some(reader) = TableReader::of(table)? else { return Ok(None) };
    let indexes = indexes::of(table, &reader)?;
    let keys = read!(&reader, table, |rows, id| Ok(keys_of_extremes(rows, id, &indexes, wanted)))?;
    let Some(keys) = keys.map_err(|fault| of_fault(table.py(), &TableRef::new(table), fault))? else {
        return Ok(None);
    };
    let rows = reader.list(table, SortedKeys::Listed(keys))?;
    Ok(Some(Source { rows, selection: None }))
}
