//! The table that a handle stands for, apart from the handle, so that a transaction can change it.

use std::sync::Arc;

use pellucid_store::TableId;
use pyo3::prelude::*;

use crate::hot::gil::{GilCell, GilRc, GilValue, Shared};

/// What has become of what a transaction did, since the last savepoint that was taken back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is not over.
    Open,
    /// Committed.
    Kept,
    /// Dropped: it never was.
    TakenBack,
}

/// A table, and the fate of the transaction in which it was met: if that is taken back, so may be the table, and its id
/// be given to another.
pub type Met = (TableId, Option<GilRc<GilValue<Fate>>>);

/// Which table a handle stands for. Apart from it, so that it can be told of a table that it has not seen yet.
pub struct Standing {
    /// The name that the handle was made for.
    pub given: Arc<str>,
    /// The one found last, where the table was renamed since.
    pub name: GilCell<Arc<str>>,
    /// The table, once it was met.
    pub table: GilCell<Option<Met>>,
}

impl Shared for Standing {}

impl Standing {
    /// Whether it may have to be told still: it knows of no table, or of one that is not committed.
    pub fn is_pending(&self, py: Python<'_>) -> bool {
        self.table.with(py, |table| !matches!(table, Some((_, None))))
    }

    /// The table of this name is this one, and about to lose the name. Whoever waits for one to be made stands for it.
    pub fn meet(&self, py: Python<'_>, name: &str, id: TableId, fate: Option<GilRc<GilValue<Fate>>>) {
        self.settle(py);
        if self.table.with(py, |table| table.is_none()) && self.name.with(py, |own| **own == *name) {
            drop(self.table.with(py, |table| table.replace((id, fate))));
        }
    }

    /// Stand for a name alone again, the first one, where the table was met in a transaction that is taken back.
    pub fn settle(&self, py: Python<'_>) {
        let is_gone = self.table.with(
            py,
            |table| matches!(table, Some((_, Some(fate))) if matches!(fate.get(), Fate::TakenBack)),
        );
        if is_gone {
            drop(self.table.with(py, Option::take));
            drop(self.name.with(py, |name| std::mem::replace(name, self.given.clone())));
        }
    }
}
