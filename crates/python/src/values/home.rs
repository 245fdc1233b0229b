//! The table that a stored row belongs to, as the row sees it.
//!
//! Values do not know tables: a row keeps a reference to the object, and calls it through [`TableCalls`], which the class of
//! tables implements. There is one such class, so its calls are registered once and a row is no larger for them.

use std::sync::{Arc, OnceLock};

use pellucid_record::shape::Sighting;
use pellucid_store::Snapshot;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::gil::Strong;
use crate::values::change::Edit;
use crate::values::hooks::PicklePolicy;
use crate::values::row::Row;

/// What a row asks of its table. Each call gets the table as the object that it was registered for.
pub trait TableCalls: Sync {
    /// The table's name, for messages.
    fn name(&self, table: &Bound<'_, PyAny>) -> Arc<str>;

    /// What its database does with pickles.
    fn policy(&self, table: &Bound<'_, PyAny>) -> PicklePolicy;

    /// The bytes of a large value, from `snapshot` if the record came from one; None where it is no longer there.
    ///
    /// # Errors
    /// What the store raises.
    fn large_value(
        &self,
        table: &Bound<'_, PyAny>,
        snapshot: Option<&Snapshot>,
        id: u64,
    ) -> PyResult<Option<Vec<u8>>>;

    /// Make a row show what is stored under its key now; false where that is nothing of its kind.
    ///
    /// # Errors
    /// What the store raises.
    fn read_anew(&self, table: &Bound<'_, PyAny>, row: &Row) -> PyResult<bool>;

    /// Apply a change to a record as it is stored now, and show the result in `row`.
    ///
    /// # Errors
    /// What makes the change impossible, and what the store raises.
    fn change(
        &self,
        table: &Bound<'_, PyAny>,
        row: &Row,
        edit: &Edit,
        values: &[Bound<'_, PyAny>],
    ) -> PyResult<()>;

    /// Run `work` in one transaction of the table's database.
    ///
    /// # Errors
    /// What `work` raises, and what the commit raises.
    fn within_transaction(
        &self,
        table: &Bound<'_, PyAny>,
        work: &mut dyn FnMut() -> PyResult<()>,
    ) -> PyResult<()>;
}

/// What an encoding asks of the table that it writes for.
pub trait Sightings {
    /// What to do with a list of keys that is no known shape.
    fn sight(&self, py: Python<'_>, names: &[&str], is_root: bool) -> Sighting;
}

static CALLS: OnceLock<&'static dyn TableCalls> = OnceLock::new();

/// Registers what tables do for their rows, before there is a row.
pub fn install(calls: &'static dyn TableCalls) {
    // A second import of the module registers the same.
    let _ = CALLS.set(calls);
}

fn unregistered() -> PyErr {
    errors::internal("a row was made before the calls of tables were registered")
}

/// A row's table.
pub struct Home(Strong<PyAny>);

impl Home {
    /// This table, an object of the class whose calls are registered.
    #[inline]
    pub fn new<T>(table: &Bound<'_, T>) -> Self {
        Self(Strong::new(table.as_any()))
    }

    /// The table as an object.
    #[inline]
    pub fn bind<'a, 'py>(&'a self, py: Python<'py>) -> Borrowed<'a, 'py, PyAny> {
        self.0.bind(py)
    }

    /// A further reference to the same table.
    #[inline]
    pub fn clone_ref(&self, py: Python<'_>) -> Self {
        Self(self.0.clone_ref(py))
    }

    fn call<R>(
        &self,
        py: Python<'_>,
        call: impl FnOnce(&dyn TableCalls, &Bound<'_, PyAny>) -> R,
    ) -> Option<R> {
        CALLS.get().map(|calls| call(*calls, &self.0.bind(py)))
    }

    /// The table's name.
    pub fn name(&self, py: Python<'_>) -> Arc<str> {
        self.call(py, |calls, table| calls.name(table)).unwrap_or_else(|| Arc::from(""))
    }

    /// What its database does with pickles.
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
        snapshot: Option<&Snapshot>,
        id: u64,
    ) -> PyResult<Option<Vec<u8>>> {
        self.call(py, |calls, table| calls.large_value(table, snapshot, id))
            .unwrap_or_else(|| Err(unregistered()))
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
    /// What makes the change impossible, and what the store raises.
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
