//! The table that a stored row belongs to, as the row's code sees it.
//!
//! The value modules know no tables. A row keeps a reference to the table object and calls it
//! through [`TableCalls`], which each class of tables implements: that of embedded databases and
//! that of servers. Their calls are registered once, and a row needs no further field for them.

use std::sync::{Arc, OnceLock};

use pellucid_record::shape::ShapeDecision;
use pellucid_store::{Snapshot, StoreError, Transaction};
use pyo3::prelude::*;

use crate::errors;
use crate::hot::gil::Strong;
use crate::values::change::Edit;
use crate::values::hooks::PicklePolicy;
use crate::values::large::Large;
use crate::values::row::Row;

/// A record of a table that is copied, with the key of its row. Its large values come from the
/// snapshot, if the record came from one.
#[derive(Clone, Copy)]
pub struct CopyOf<'a> {
    /// The code of the key.
    pub key: &'a [u8],
    /// The record.
    pub record: &'a [u8],
    /// Where the record came from.
    pub snapshot: Option<&'a Snapshot>,
}

/// Work with a running transaction.
pub type Within<'a> = dyn FnMut(&mut Transaction) -> Result<(), StoreError> + 'a;

/// The row that a large value is of, and the snapshot that the row came from, if there is one.
pub type LargeOf<'a> = (&'a Row, Option<&'a Snapshot>);

/// The calls of a row to its table. Each gets the table as the object that the row was made with.
pub trait TableCalls: Sync {
    /// Whether the table is of the class whose calls these are.
    fn is_for(&self, table: &Bound<'_, PyAny>) -> bool;

    /// The table's name, for messages.
    fn name(&self, table: &Bound<'_, PyAny>) -> Arc<str>;

    /// The pickle policy of its database.
    fn policy(&self, table: &Bound<'_, PyAny>) -> PicklePolicy;

    /// A large value of `row`, read from the snapshot that the row came from, if there is one; None
    /// if it is gone.
    ///
    /// # Errors
    /// What the store raises.
    fn large_value(&self, table: &Bound<'_, PyAny>, of: LargeOf<'_>, id: u64) -> PyResult<Option<Large>>;

    /// Whether arrays of the table are views of the stored bytes, which keep their snapshot: those
    /// of a snapshot are, and those of a table of any objects. Elsewhere an array is a copy: arrays
    /// that a program collects would keep one version of the database each.
    fn gives_views(&self, table: &Bound<'_, PyAny>) -> bool;

    /// Makes a row show the value stored under its key now; false if there is none, or none of its
    /// kind.
    ///
    /// # Errors
    /// What the store raises.
    fn read_anew(&self, table: &Bound<'_, PyAny>, row: &Row) -> PyResult<bool>;

    /// Applies a change to a record as it is stored now, and shows the result in `row`.
    ///
    /// # Errors
    /// If the change is not possible; and what the store raises.
    fn change(
        &self,
        table: &Bound<'_, PyAny>,
        row: &Row,
        edit: &Edit,
        values: &[Bound<'_, PyAny>],
    ) -> PyResult<()>;

    /// Runs `work` in one transaction of the table's database.
    ///
    /// # Errors
    /// What `work` raises, and what the commit raises.
    fn within_transaction(
        &self,
        table: &Bound<'_, PyAny>,
        work: &mut dyn FnMut() -> PyResult<()>,
    ) -> PyResult<()>;

    /// A row that stands for a copy of a record of the table.
    ///
    /// # Errors
    /// The object is no table.
    fn copied_row(&self, table: &Bound<'_, PyAny>, of: CopyOf<'_>) -> PyResult<Row>;

    /// Runs `work` with the caller's transaction, which has changed something.
    ///
    /// # Errors
    /// What `work` returns, and if there is no such transaction.
    fn in_running(&self, table: &Bound<'_, PyAny>, work: &mut Within<'_>) -> PyResult<()>;
}

/// The call of an encoding to the table that it writes for.
pub trait Sightings {
    /// Decides what to do with a list of keys that has no known shape.
    fn decide_shape(&self, py: Python<'_>, names: &[&str], is_root: bool) -> ShapeDecision;
}

/// The calls of each class of tables.
type AllCalls = [&'static dyn TableCalls; 2];

static CALLS: OnceLock<AllCalls> = OnceLock::new();

/// Registers the calls of tables, before any row exists.
pub fn install(calls: AllCalls) {
    // Done again only if an earlier import failed after this; the calls are the same.
    let _ = CALLS.set(calls);
}

fn unregistered() -> PyErr {
    errors::internal("a row was made before the calls of tables were registered")
}

/// A row's table.
pub struct TableRef(Strong<PyAny>);

impl TableRef {
    /// A reference to this table, an object of a class whose calls are registered.
    #[inline]
    pub fn new<T>(table: &Bound<'_, T>) -> Self {
        Self(Strong::new(table.as_any()))
    }

    /// The table as an object.
    #[inline]
    pub fn bind<'a, 'py>(&'a self, py: Python<'py>) -> Borrowed<'a, 'py, PyAny> {
        self.0.bind(py)
    }

    /// Another reference to the same table.
    #[inline]
    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py))
    }

    fn call<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&dyn TableCalls, &Bound<'_, PyAny>) -> R,
    ) -> Option<R> {
        let table = self.0.bind(py);
        let calls = CALLS.get()?.iter().find(|calls| calls.is_for(&table))?;
        Some(call(*calls, &table))
    }

    /// The table's name.
    pub fn name(&self, py: Python<'_>) -> Arc<str> {
        self.call(py, |calls, table| calls.name(table)).unwrap_or_else(|| Arc::from(""))
    }

    /// The pickle policy of its database.
    pub fn policy(&self, py: Python<'_>) -> PicklePolicy {
        self.call(py, |calls, table| calls.policy(table)).unwrap_or(PicklePolicy::DENY)
    }

    /// As [`TableCalls::large_value`].
    ///
    /// # Errors
    /// What the store raises.
    pub fn large_value(
        &self,
        py: Python<'_>,
        row: &Row,
        snapshot: Option<&Snapshot>,
        id: u64,
    ) -> PyResult<Option<Large>> {
        self.call(py, |calls, table| calls.large_value(table, (row, snapshot), id))
            .unwrap_or_else(|| Err(unregistered()))
    }

    /// As [`TableCalls::gives_views`].
    pub fn gives_views(&self, py: Python<'_>) -> bool {
        self.call(py, |calls, table| calls.gives_views(table)).unwrap_or(false)
    }

    /// As [`TableCalls::copied_row`].
    ///
    /// # Errors
    /// The object is no table.
    pub fn copied_row(&self, py: Python<'_>, of: CopyOf<'_>) -> PyResult<Row> {
        self.call(py, |calls, table| calls.copied_row(table, of)).unwrap_or_else(|| Err(unregistered()))
    }

    /// Runs `work` with the caller's transaction, which has changed something.
    ///
    /// # Errors
    /// What `work` returns, and if there is no such transaction.
    pub fn in_running<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Transaction) -> Result<R, StoreError>,
    ) -> PyResult<R> {
        let (mut work, mut result) = (Some(work), None);
        let mut once = |transaction: &mut Transaction| {
            result = work.take().map(|work| work(transaction)).transpose()?;
            Ok(())
        };
        self.call(py, |calls, table| calls.in_running(table, &mut once))
            .unwrap_or_else(|| Err(unregistered()))?;
        result.ok_or_else(|| errors::internal("work in a transaction was not done"))
    }

    /// As [`TableCalls::read_anew`].
    ///
    /// # Errors
    /// What the store raises.
    pub fn read_anew(&self, py: Python<'_>, row: &Row) -> PyResult<bool> {
        self.call(py, |calls, table| calls.read_anew(table, row)).unwrap_or_else(|| Err(unregistered()))
    }

    /// As [`TableCalls::change`].
    ///
    /// # Errors
    /// If the change is not possible; and what the store raises.
    pub fn change(
        &self,
        py: Python<'_>,
        row: &Row,
        edit: &Edit,
        values: &[Bound<'_, PyAny>],
    ) -> PyResult<()> {
        self.call(py, |calls, table| calls.change(table, row, edit, values))
            .unwrap_or_else(|| Err(unregistered()))
    }

    /// As [`TableCalls::within_transaction`].
    ///
    /// # Errors
    /// What `work` raises, and what the commit raises.
    pub fn within_transaction(&self, py: Python<'_>, work: &mut dyn FnMut() -> PyResult<()>) -> PyResult<()> {
        self.call(py, |calls, table| calls.within_transaction(table, work))
            .unwrap_or_else(|| Err(unregistered()))
    }
}
