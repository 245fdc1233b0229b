//! The table that a handle stands for, kept outside of the handle so that the database can change
//! it.

use std::sync::Arc;

use pellucid_store::TableId;
use pyo3::prelude::*;

use crate::hot::gil::{GilCell, GilRc, GilValue, Shared};

/// The outcome of a transaction's work since the last rollback to a savepoint.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TxnOutcome {
    /// The transaction is still running.
    Running,
    /// Committed.
    Committed,
    /// Rolled back.
    RolledBack,
}

/// A table, and the outcome of the transaction in which the handle found it. After a rollback, the
/// table may be gone and its id may be given to another one.
pub type FoundTable = (TableId, Option<GilRc<GilValue<TxnOutcome>>>);

/// The table that a handle stands for. It is kept outside of the handle, so that the database can
/// inform it about a table that the handle has not found yet.
pub struct TableBinding {
    /// The name that the handle was made for.
    pub given: Arc<str>,
    /// The name found last, which differs if the table was renamed.
    pub name: GilCell<Arc<str>>,
    /// The table, once it was found.
    pub table: GilCell<Option<FoundTable>>,
}

impl Shared for TableBinding {}

impl TableBinding {
    /// Whether the handle may still need information: it knows no table, or one that is not
    /// committed.
    pub fn is_pending(&self, py: Python<'_>) -> bool {
        self.table.with(py, |table| !matches!(table, Some((_, None))))
    }

    /// Binds the handle to the table of this name, which is about to lose the name, if the handle
    /// has no table yet.
    pub fn bind_name(
        &self,
        py: Python<'_>,
        name: &str,
        id: TableId,
        outcome: Option<GilRc<GilValue<TxnOutcome>>>,
    ) {
        self.forget_rolled_back(py);
        if self.table.with(py, |table| table.is_none()) && self.name.with(py, |own| **own == *name) {
            drop(self.table.with(py, |table| table.replace((id, outcome))));
        }
    }

    /// Forgets a table that was found in a transaction that was rolled back; the handle then stands
    /// for its first name again.
    pub fn forget_rolled_back(&self, py: Python<'_>) {
        let is_gone = self.table.with(
            py,
            |table| matches!(table, Some((_, Some(outcome))) if matches!(outcome.get(), TxnOutcome::RolledBack)),
        );
        if is_gone {
            drop(self.table.with(py, Option::take));
            drop(self.name.with(py, |name| std::mem::replace(name, self.given.clone())));
        }
    }
}
