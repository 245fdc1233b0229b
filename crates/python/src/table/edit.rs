//! `table.edit(key)`: one record under edit, as a context manager.

use crate::hot::gil::GilCell;
use crate::table::handle::Table;
use crate::values::handles::{Record, RecordList};
use pyo3::prelude::*;

use crate::transaction::TransactionContext;

/// A context manager to edit one record: many changes, one commit.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> db["ann"] = {"age": 30}
/// >>> with db.edit("ann") as ann:
/// ...     ann.age += 1
/// ...     ann.name = "Ann"
/// >>> db["ann"]
/// {'age': 31, 'name': 'Ann'}
#[pyclass(frozen, module = "pellucid", name = "EditContext")]
pub struct EditContext {
    table: Py<Table>,
    key: Py<PyAny>,
    transaction: TransactionContext,
    // The value given to the block, if it is a plain object that does not save its own changes.
    made: GilCell<Option<Py<PyAny>>>,
}

impl EditContext {
    /// An edit of `table[key]`.
    pub fn new(table: Py<Table>, key: Py<PyAny>) -> Self {
        let transaction = TransactionContext::new(table.get().core().clone());
        Self { table, key, transaction, made: GilCell::new(None) }
    }

    fn enter<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let value = self.table.bind(py).get_item(&self.key)?;
        let is_handle = value.is_instance_of::<Record>() || value.is_instance_of::<RecordList>();
        if !is_handle && (self.table.get().class.is_some() || value.hash().is_err()) {
            drop(self.made.with(py, |made| made.replace(value.clone().unbind())));
        }
        Ok(value)
    }

    /// Stores a plain object again; a record has saved its changes itself.
    fn save(&self, py: Python<'_>) -> PyResult<()> {
        let Some(value) = self.made.with(py, Option::take) else { return Ok(()) };
        let (table, key) = (self.table.bind(py), self.key.bind(py));
        if table.get().class.is_some() {
            let function = py.import("pellucid.handles")?.getattr("put_again")?;
            return function.call1((table, key, value)).map(drop);
        }
        crate::put::write::put(table, key, value.bind(py))
    }
}

#[pymethods]
impl EditContext {
    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        Ok(format!(
            "<pellucid.EditContext of {} in {}>",
            self.key.bind(py).repr()?,
            self.table.get().described(py)?
        ))
    }

    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.transaction.enter_block(py)?;
        self.enter(py).map_err(|error| match self.transaction.exit(py, false) {
            Ok(()) => error,
            Err(worse) => worse,
        })
    }

    #[pyo3(signature = (kind, error, traceback, /))]
    fn __exit__(
        &self,
        py: Python<'_>,
        kind: &Bound<'_, PyAny>,
        error: &Bound<'_, PyAny>,
        traceback: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        let _ = (error, traceback);
        // In another thread or task, `exit` raises, and the transaction goes on.
        if !kind.is_none() || !self.table.get().core().is_mine(py) {
            return self.transaction.exit(py, false).map(|()| false);
        }
        match self.save(py) {
            Ok(()) => self.transaction.exit(py, true).map(|()| false),
            Err(error) => {
                self.transaction.exit(py, false)?;
                Err(error)
            }
        }
    }
}
