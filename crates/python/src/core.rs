//! What do all handles of one open database share?
//!
//! The store, the names of its shapes, the pickle policy, and the transaction that is running, if one is.
//! A transaction belongs to the thread that opened it and, in asyncio, to the task: others wait for
//! the writer lock. It is bound by identity, not by a context variable, since a copied context
//! (`asyncio.to_thread`, a child task) would carry the variable into another thread or task.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pellucid_record::shape::Shapes;
use pellucid_store::{Savepoint, Snapshot, Store, StoreError, Transaction};
use pyo3::prelude::*;

use crate::errors;
use crate::hooks::PicklePolicy;
use crate::hot::gil::{GilCell, GilRc, GilValue};
use crate::hot::names::{Names, Source};
use crate::hot::row::Gate;

/// Gates of transactions that are kept without asking whether anybody uses them.
const GATE_COUNT_MIN: usize = 16;

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

/// The transaction that `with db.transaction():` has opened.
struct Running {
    transaction: Transaction,
    // Unique in the process: an iterator over one transaction must not go on in the next.
    serial: u64,
    // The first of its own shapes that the names have not been told of.
    next_draft: u32,
    // Of the rows read or changed in it, since the last savepoint that was taken back.
    gate: GilRc<Gate>,
    thread: std::thread::ThreadId,
    task: Option<Py<PyAny>>,
}

/// An open database, under all its handles.
pub struct Core {
    /// The file, or the memory.
    pub store: Arc<Store>,
    /// The names of its shapes.
    pub names: GilRc<Names>,
    /// Open until `close`.
    pub gate: GilRc<Gate>,
    /// What to do with pickles.
    pub policy: PicklePolicy,
    /// How long to wait for locks.
    pub timeout: Duration,
    /// As the user gave it, for messages.
    pub target: String,
    /// Why it cannot be written to, if it cannot.
    pub read_only: Option<&'static str>,
    // Of the transactions whose rows may still be in use, and how many are kept before the rest is let go.
    gates: GilCell<(Vec<GilRc<Gate>>, usize)>,
    running: GilCell<Option<Running>>,
    is_running: GilValue<bool>,
}

impl Core {
    /// A core around a store that has just been opened.
    pub fn new(
        store: Store,
        policy: PicklePolicy,
        timeout: Duration,
        target: String,
        read_only: Option<&'static str>,
    ) -> Result<Arc<Self>, StoreError> {
        let store = Arc::new(store);
        let dictionary = store.dictionary()?;
        Ok(Arc::new(Self {
            names: GilRc::new(Names::new(Source::Store(store.clone(), dictionary))),
            store,
            gate: Gate::new(),
            policy,
            timeout,
            target,
            read_only,
            gates: GilCell::new((Vec::new(), GATE_COUNT_MIN)),
            running: GilCell::new(None),
            is_running: GilValue::new(false),
        }))
    }

    /// Raises `Closed` after `close`.
    #[inline]
    pub fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.gate.is_open() {
            Ok(())
        } else {
            Err(errors::closed(py, &format!("database {}", self.target)))
        }
    }

    /// Why nothing can be written, if so.
    pub fn why_read_only(&self) -> Option<&'static str> {
        self.read_only
    }

    /// Whether the running transaction is the caller's.
    #[inline]
    pub fn is_mine(&self, py: Python<'_>) -> bool {
        self.is_running.get() && self.is_mine_slow(py)
    }

    fn is_mine_slow(&self, py: Python<'_>) -> bool {
        let thread = std::thread::current().id();
        let task = self.running.with(py, |running| match running {
            Some(running) if running.thread == thread => {
                Some(running.task.as_ref().map(|task| task.as_ptr() as usize))
            }
            _ => None,
        });
        match task {
            None => false,
            // Opened outside of asyncio: whatever runs in this thread is inside.
            Some(None) => true,
            Some(Some(task)) => current_task(py).is_some_and(|current| current.as_ptr() as usize == task),
        }
    }

    /// Whether a transaction of this very thread, but of another task, is running: to wait for it
    /// would be to wait for oneself.
    fn is_own_thread_busy(&self, py: Python<'_>) -> bool {
        let thread = std::thread::current().id();
        self.is_running.get()
            && self
                .running
                .with(py, |running| running.as_ref().is_some_and(|running| running.thread == thread))
    }

    /// Begin a transaction for the caller.
    pub fn begin(&self, py: Python<'_>) -> PyResult<()> {
        let transaction = self.lock(py)?;
        let next_draft = transaction.shapes().start();
        let running = Running {
            transaction,
            next_draft,
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
            gate: self.transaction_gate(py),
            thread: std::thread::current().id(),
            task: current_task(py),
        };
        self.running.with(py, |slot| *slot = Some(running));
        self.is_running.set(true);
        Ok(())
    }

    fn lock(&self, py: Python<'_>) -> PyResult<Transaction> {
        self.check_open(py)?;
        if self.is_own_thread_busy(py) {
            return Err(errors::raise(
                py,
                "Busy",
                format!(
                    "{} is in a transaction that another task of this thread has open; waiting here would wait for \
                     ever: end that transaction before awaiting, or write from another thread",
                    self.target
                ),
            ));
        }
        py.detach(|| self.store.begin(self.timeout)).map_err(|error| errors::of_store(py, error))
    }

    /// End the caller's transaction: commit it, or drop it.
    pub fn end(&self, py: Python<'_>, commit: bool) -> PyResult<()> {
        self.is_running.set(false);
        let Some(running) = self.running.with(py, Option::take) else { return Ok(()) };
        let Running { transaction, task, gate, .. } = running;
        drop(task);
        let result = self.finish(py, transaction, commit);
        if !commit || result.is_err() {
            gate.take_back();
        }
        result
    }

    /// Take back what the caller's transaction did since a savepoint.
    pub fn roll_back_to(&self, py: Python<'_>, savepoint: Savepoint) -> PyResult<()> {
        self.in_running(py, |transaction| transaction.rollback_to(savepoint))?;
        let gate = self.transaction_gate(py);
        let old = self
            .running
            .with(py, |running| running.as_mut().map(|running| std::mem::replace(&mut running.gate, gate)));
        if let Some(old) = old {
            old.take_back();
        }
        Ok(())
    }

    /// A gate that closes with the database.
    fn transaction_gate(&self, py: Python<'_>) -> GilRc<Gate> {
        let gate = Gate::new();
        self.gates.with(py, |(gates, count_max)| {
            if gates.len() >= *count_max {
                gates.retain(|gate| GilRc::owner_count(gate) > 1);
                // Doubled, so that many records that are kept do not make each transaction look at all.
                *count_max = (gates.len() * 2).max(GATE_COUNT_MIN);
            }
            gates.push(gate.clone());
        });
        gate
    }

    /// Rows can no longer be read.
    pub fn close_gates(&self, py: Python<'_>) {
        self.gate.close();
        for gate in self.gates.with(py, |(gates, _)| std::mem::take(gates)) {
            gate.close();
        }
    }

    /// The gate of rows that are read now.
    #[inline]
    pub fn row_gate(&self, py: Python<'_>) -> GilRc<Gate> {
        if !self.is_mine(py) {
            return self.gate.clone();
        }
        self.running
            .with(py, |running| running.as_ref().map(|running| running.gate.clone()))
            .unwrap_or_else(|| self.gate.clone())
    }

    /// Tell the names of shapes that the caller's transaction has made by itself, where a change of a
    /// record gave it another list of keys.
    pub fn learn_drafts(&self, py: Python<'_>) {
        let made = self.running.with(py, |running| {
            let running = running.as_mut()?;
            let shapes = running.transaction.shapes().clone();
            let start = running.next_draft;
            while shapes.shape(running.next_draft).is_some() {
                running.next_draft += 1;
            }
            (running.next_draft > start).then_some((shapes, start..running.next_draft))
        });
        let Some((shapes, ids)) = made else { return };
        for id in ids {
            if let Some(shape) = shapes.shape(id)
                && self.names.met_as(py, id).is_none()
            {
                self.names.add_draft(py, id, shape.clone());
            }
        }
    }

    /// Which transaction of the caller's is running.
    pub fn running_serial(&self, py: Python<'_>) -> Option<u64> {
        if !self.is_mine(py) {
            return None;
        }
        self.running.with(py, |running| running.as_ref().map(|running| running.serial))
    }

    fn finish(&self, py: Python<'_>, mut transaction: Transaction, commit: bool) -> PyResult<()> {
        if !commit {
            py.detach(|| drop(transaction));
            self.names.withdraw_drafts(py);
            return Ok(());
        }
        match py.detach(move || transaction.commit()) {
            Ok(()) => {
                self.names.keep_drafts(py);
                Ok(())
            }
            Err(error) => {
                self.names.withdraw_drafts(py);
                Err(errors::of_store(py, error))
            }
        }
    }

    /// Run `work` in the caller's transaction, which must be running (`is_mine`).
    pub fn in_running<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Transaction) -> Result<R, StoreError>,
    ) -> PyResult<R> {
        let result =
            self.running.with(py, |running| running.as_mut().map(|running| work(&mut running.transaction)));
        match result {
            Some(result) => result.map_err(|error| errors::of_store(py, error)),
            None => Err(errors::raise(py, "TransactionError", "no transaction is running")),
        }
    }

    /// Run `work` in the caller's transaction, or in one of its own that is committed at once.
    ///
    /// `work` runs no Python code.
    pub fn write<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Transaction) -> Result<R, StoreError>,
    ) -> PyResult<R> {
        if self.is_mine(py) {
            return self.in_running(py, work);
        }
        let mut transaction = self.lock(py)?;
        match work(&mut transaction) {
            Ok(result) => self.finish(py, transaction, true).map(|()| result),
            Err(error) => {
                self.finish(py, transaction, false)?;
                Err(errors::of_store(py, error))
            }
        }
    }

    /// A snapshot of what is committed.
    #[inline]
    pub fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        self.check_open(py)?;
        self.store.snapshot().map_err(|error| errors::of_store(py, error))
    }
}

/// The asyncio task that is running, if asyncio is in use at all.
fn current_task(py: Python<'_>) -> Option<Py<PyAny>> {
    let modules = py.import("sys").ok()?.getattr("modules").ok()?;
    let asyncio = modules.get_item("asyncio").ok()?;
    // Outside of a running loop this raises RuntimeError: no task.
    let task = asyncio.call_method0("current_task").ok()?;
    (!task.is_none()).then(|| task.unbind())
}
