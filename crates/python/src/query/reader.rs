//! Reads a table as its handle sees it: in a snapshot, or in the caller's transaction.

use pellucid_store::{Reader, Snapshot, TableId};
use pyo3::prelude::*;

use crate::table::Table;

/// What a table is read from.
pub enum TableReader {
    /// This snapshot, in which the table has this id.
    Snapshot(Snapshot, TableId),
    /// The caller's transaction, which has changed something.
    Transaction(TableId),
}

/// Runs `$work` with what a [`TableReader`] reads from, and the table's id there; it is compiled for each of the two.
macro_rules! read {
    ($of:expr, $table:expr, |$reader:ident, $id:ident| $work:expr) => {{
        let (py, table) = ($table.py(), $table.get());
        match $of {
            $crate::query::reader::TableReader::Snapshot($reader, $id) => {
                let $id = *$id;
                let work = || -> Result<_, pellucid_store::StoreError> { $work };
                work().map_err(|error| $crate::errors::of_store(py, error))
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
    /// What a table is read from now; None where it does not exist.
    pub fn of(table: &Bound<'_, Table>) -> PyResult<Option<Self>> {
        let (py, this) = (table.py(), table.get());
        if !this.is_in_transaction(py) {
            let snapshot = this.snapshot(py)?;
            return Ok(this.id_in(py, &snapshot)?.map(|id| Self::Snapshot(snapshot, id)));
        }
        this.core().in_running(py, |transaction| {
            let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(None) };
            // One that has changed nothing reads what is committed.
            let is_changed = transaction.is_changed();
            Ok(Some(if is_changed {
                Self::Transaction(id)
            } else {
                Self::Snapshot(transaction.committed()?, id)
            }))
        })
    }

    /// Whether it is the caller's transaction.
    pub fn is_transaction(&self) -> bool {
        matches!(self, Self::Transaction(_))
    }
}
