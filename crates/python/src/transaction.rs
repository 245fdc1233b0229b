//! The transaction context manager behind `with db.transaction():` and `table.edit(key)`.

use std::ffi::CString;
use std::sync::Arc;

use pellucid_store::{IndexError, NotUnique, Savepoint, StoreError};
use pyo3::exceptions::PyResourceWarning;
use pyo3::prelude::*;

use crate::core::Core;
use crate::errors;
use crate::hot::call_site::CallSite;
use crate::hot::callbacks;
use crate::hot::gil::{GilCell, GilValue};
use crate::signals::Signals;
use crate::store_errors;

/// A transaction, as a context manager.
///
/// It makes several writes to several tables that are stored all or none: an exception that leaves
/// the block rolls them back. A transaction inside of another one is a savepoint.
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
    /// Called while gathered rows are merged.
    progress: Option<Py<PyAny>>,
    entered: GilValue<Option<Entered>>,
    has_ended: GilValue<bool>,
    // The line where it was entered, for the warning about a block that was never left.
    site: GilCell<Option<CallSite>>,
}

/// The state of a block that has been entered.
#[derive(Clone, Copy)]
struct Entered {
    /// The serial of its transaction.
    serial: Option<u64>,
    /// The savepoint of an inner block; None for the transaction itself.
    savepoint: Option<Savepoint>,
}

impl TransactionContext {
    /// A transaction that begins when it is entered.
    pub fn new(core: Arc<Core>) -> Self {
        Self::with_progress(core, None)
    }

    /// The same, with a function that is called with (rows done, rows in all) while the rows of a
    /// large transaction are merged into their tables.
    pub fn with_progress(core: Arc<Core>, progress: Option<Py<PyAny>>) -> Self {
        let (entered, has_ended) = (GilValue::new(None), GilValue::new(false));
        Self { core, progress, entered, has_ended, site: GilCell::new(None) }
    }

    /// Begins the transaction, or a savepoint.
    pub fn enter(&self, py: Python<'_>) -> PyResult<()> {
        if self.entered.get().is_some() {
            return Err(errors::raise(
                py,
                "TransactionError",
                "this transaction has been entered already; call db.transaction() for each block",
            ));
        }
        self.core.check_open(py)?;
        let savepoint = if self.core.is_mine(py) {
            Some(self.core.in_running_unflushed(py, pellucid_store::Transaction::savepoint)?)
        } else {
            self.core.begin(py)?;
            None
        };
        self.entered.set(Some(Entered { serial: self.core.serial(py), savepoint }));
        if let Some(function) = &self.progress {
            self.core.set_progress(py, function);
        }
        Ok(())
    }

    /// Begins the transaction for a block of the user, and notes the line.
    pub fn enter_block(&self, py: Python<'_>) -> PyResult<()> {
        self.enter(py)?;
        let site = CallSite::here(py);
        drop(self.site.with(py, |place| std::mem::replace(place, site)));
        Ok(())
    }

    /// Handles a context that was dropped before its block was left: rolls the transaction back, so
    /// that other threads can write, and issues a warning.
    #[cold]
    fn roll_back_dropped(&self, py: Python<'_>, entered: Entered) {
        if entered.serial.is_none() || self.core.serial(py) != entered.serial {
            return;
        }
        let (what, done) = match entered.savepoint {
            // The work since the savepoint may be meant for the outer transaction, which can still
            // be ended.
            Some(_) => ("a transaction within another", "what it did belongs to the one around it"),
            None => ("a transaction", "it has been rolled back"),
        };
        // An exception may be in flight, and may have caused the drop.
        let raised = PyErr::take(py);
        if entered.savepoint.is_none() {
            self.core.roll_back_dropped(py);
        }
        let site = self.site.with(py, Option::take);
        let site = site.map_or_else(String::new, |site| format!(", entered at {},", site.show(py)));
        let message = format!(
            "{what} of {}{site} was dropped and never left: {done}; use it in a with statement, or call __exit__",
            self.core.target
        );
        let category = py.get_type::<PyResourceWarning>();
        let message = CString::new(message.replace('\0', "?")).unwrap_or_default();
        if let Err(error) = PyErr::warn(py, &category, &message, 1) {
            error.write_unraisable(py, None);
        }
        if let Some(raised) = raised {
            raised.restore(py);
        }
    }

    /// Ends the transaction or savepoint: keeps its work, or rolls it back.
    pub fn exit(&self, py: Python<'_>, keep: bool) -> PyResult<()> {
        let Some(entered) = self.entered.get() else {
            let what = if self.has_ended.get() {
                "this transaction has ended already; call db.transaction() for another one"
            } else {
                "this transaction was never entered; use it in a with statement"
            };
            return Err(errors::raise(py, "TransactionError", what));
        };
        self.has_ended.set(true);
        self.core.check_not_borrowed(py)?;
        if !self.core.validity.is_open() && !self.core.is_mine(py) {
            // `close` has rolled it back, so there is nothing left to end. Only a caller that
            // wanted to keep the work gets an exception.
            self.entered.set(None);
            return if keep { Err(self.core.closed_within(py)) } else { Ok(()) };
        }
        if self.core.serial(py) != entered.serial {
            self.entered.set(None);
            return Err(over(py));
        }
        if !self.core.is_mine(py) {
            return Err(errors::raise(
                py,
                "TransactionError",
                "a transaction must end in the thread and task that opened it; it is still open there",
            ));
        }
        // Only now, so that after a refused exit the transaction still belongs to its owner.
        self.entered.set(None);
        match entered.savepoint {
            None => self.core.end(py, keep),
            Some(savepoint) if keep => {
                self.core.in_running_unflushed(py, |transaction| transaction.release(savepoint))
            }
            Some(savepoint) => self.core.roll_back_to(py, savepoint),
        }
    }
}

/// The exception for leaving a block whose transaction, or the one around it, has ended.
fn over(py: Python<'_>) -> PyErr {
    errors::raise(py, "TransactionError", "this transaction is over: the one around it has ended before it")
}

impl Drop for TransactionContext {
    fn drop(&mut self) {
        let Some(entered) = self.entered.get() else { return };
        Python::try_attach(|py| self.roll_back_dropped(py, entered));
    }
}

#[pymethods]
impl TransactionContext {
    fn __repr__(&self) -> String {
        let state = match self.entered.get() {
            None => "not running",
            Some(Entered { savepoint: None, .. }) => "running",
            Some(_) => "running, inside another one",
        };
        format!("<pellucid.TransactionContext, {state}>")
    }

    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().enter_block(py)?;
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

/// Runs `work` in a transaction.
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

/// Calls a function of the user in a transaction, and returns what it returns.
pub fn run<'py>(
    py: Python<'py>,
    core: &Arc<Core>,
    function: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    within(py, core, || {
        callbacks::code_may_run(py);
        let result = function.call0()?;
        if result.get_type().name()? == "coroutine" {
            result.call_method0("close")?;
            return Err(errors::type_error(NO_COROUTINE));
        }
        Ok(result)
    })
}

/// `pellucid.postgres.attempts` says the same.
const NO_COROUTINE: &str = "run() takes a function that returns when its work is done, and an `async def` runs \
                            later, outside of the transaction: make it a plain `def`";

/// As `within`, for many rows: index entries are written at the end, in order.
pub fn within_batch<R>(py: Python<'_>, core: &Arc<Core>, work: impl FnOnce() -> PyResult<R>) -> PyResult<R> {
    let mut refused = None;
    let done = within(py, core, || {
        core.in_running_unflushed(py, |transaction| {
            let mut signals = Signals::new();
            transaction.begin_batch(Box::new(move || signals.go_on()));
            Ok(())
        })?;
        let done = work().and_then(|result| {
            core.in_running_unflushed(py, pellucid_store::Transaction::end_batch)?;
            Ok(result)
        });
        if done.as_ref().is_err_and(|error| errors::is_of(py, error, "UniqueError")) {
            // The transaction may be over by now.
            refused =
                core.in_running_unflushed(py, |transaction| Ok(transaction.take_refused())).unwrap_or(None);
        }
        done
    });
    match (done, refused) {
        (Err(error), Some(refused)) => Err(refused_within_batch(py, core, refused).unwrap_or(error)),
        (done, _) => done,
    }
}

/// The exception for a batch that was rolled back, if the row that has the value already was one of
/// the batch itself and had been written; otherwise None.
fn refused_within_batch(py: Python<'_>, core: &Arc<Core>, mut refused: NotUnique) -> Option<PyErr> {
    let has_it = if core.is_mine(py) {
        core.in_running(py, |transaction| transaction.has_refused(&refused)).ok()?
    } else {
        core.snapshot(py).ok()?.has_refused(&refused).ok()?
    };
    refused.is_in_batch = true;
    (!has_it).then(|| store_errors::of_store(py, StoreError::Index(Box::new(IndexError::NotUnique(refused)))))
}
