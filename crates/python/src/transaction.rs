//! What does `with db.transaction():` give, and `table.edit(key)`?

use std::sync::Arc;

use pellucid_store::Savepoint;
use pyo3::prelude::*;

use crate::core::Core;
use crate::errors;
use crate::hot::gil::{GilCell, GilValue};
use crate::record::Record;
use crate::record_list::RecordList;
use crate::table::Table;

/// A transaction, as a context manager.
///
/// Several writes to several tables, all or none: an exception that leaves the block drops them.
/// A transaction inside another is a savepoint of it.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> with db.transaction():
/// ...     db["a"] = 1
/// ...     db["b"] = 2
/// >>> len(db)
/// 2
#[pyclass(frozen, module = "pellucid", name = "TransactionContext")]
pub struct TransactionContext {
    core: Arc<Core>,
    entered: GilValue<Option<Entered>>,
}

/// What a block that has been entered is.
#[derive(Clone, Copy)]
enum Entered {
    /// The transaction itself.
    Outermost,
    /// A savepoint of the one that was running.
    Inner(Savepoint),
}

impl TransactionContext {
    /// A transaction that begins when it is entered.
    pub fn new(core: Arc<Core>) -> Self {
        Self { core, entered: GilValue::new(None) }
    }

    /// Begin it.
    pub fn enter(&self, py: Python<'_>) -> PyResult<()> {
        if self.entered.get().is_some() {
            return Err(errors::raise(
                py,
                "TransactionError",
                "this transaction has been entered already; call db.transaction() for each block",
            ));
        }
        self.core.check_open(py)?;
        if self.core.is_mine(py) {
            let savepoint = self.core.in_running(py, pellucid_store::Transaction::savepoint)?;
            self.entered.set(Some(Entered::Inner(savepoint)));
        } else {
            self.core.begin(py)?;
            self.entered.set(Some(Entered::Outermost));
        }
        Ok(())
    }

    /// End it: keep what it did, or drop it.
    pub fn exit(&self, py: Python<'_>, keep: bool) -> PyResult<()> {
        let Some(entered) = self.entered.get() else {
            return Err(errors::raise(py, "TransactionError", "this transaction was never entered"));
        };
        self.core.check_not_lent(py)?;
        if !self.core.gate.is_open() && !self.core.is_mine(py) {
            // `close` has dropped it, so there is nothing left to end: only who wanted it kept must know.
            self.entered.set(None);
            return if keep { Err(self.core.closed_within(py)) } else { Ok(()) };
        }
        if !self.core.is_mine(py) {
            return Err(errors::raise(
                py,
                "TransactionError",
                "a transaction must end in the thread and task that opened it; it is still open there",
            ));
        }
        // Only now: a refused exit leaves the transaction to its owner.
        self.entered.set(None);
        match entered {
            Entered::Outermost => self.core.end(py, keep),
            Entered::Inner(savepoint) if keep => {
                self.core.in_running(py, |transaction| transaction.release(savepoint))
            }
            Entered::Inner(savepoint) => self.core.roll_back_to(py, savepoint),
        }
    }
}

#[pymethods]
impl TransactionContext {
    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().enter(py)?;
        Ok(slf)
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
        self.exit(py, kind.is_none())?;
        Ok(false)
    }
}

/// Run `work` in a transaction.
pub fn within<R>(py: Python<'_>, core: &Arc<Core>, work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let context = TransactionContext::new(core.clone());
    context.enter(py)?;
    match work() {
        Ok(result) => context.exit(py, true).map(|()| result),
        Err(error) => {
            context.exit(py, false)?;
            Err(error)
        }
    }
}

/// One record under edit, as a context manager: many changes, one commit.
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
    // What the block was given, where that is made whole and knows nothing of the table.
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
        let is_handle = value.is_exact_instance_of::<Record>() || value.is_exact_instance_of::<RecordList>();
        if !is_handle && (self.table.get().class.is_some() || value.hash().is_err()) {
            drop(self.made.with(py, |made| made.replace(value.clone().unbind())));
        }
        Ok(value)
    }

    /// Store what was made whole again; a record has saved its changes by itself.
    fn save(&self, py: Python<'_>) -> PyResult<()> {
        match self.made.with(py, Option::take) {
            Some(value) => crate::put::put(self.table.bind(py), self.key.bind(py), value.bind(py)),
            None => Ok(()),
        }
    }
}

#[pymethods]
impl EditContext {
    fn __enter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.transaction.enter(py)?;
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
        // Of another thread or task, it is refused there, and goes on.
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
