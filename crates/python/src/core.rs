//! The state that all handles of one open database share.
//!
//! It has the store, the names of its shapes, the pickle policy, and the running transaction, if
//! there is one. A transaction belongs to the asyncio task that opened it, or, outside of tasks, to
//! the whole thread with all its tasks; other threads and tasks wait for the writer lock. The owner
//! is compared by identity. A context variable would not do, since a copied context
//! (`asyncio.to_thread`, a child task) would carry it into another thread or task. Databases of a
//! server have the same rule (`Owned` in `python/pellucid/postgres/transaction.py`), and
//! `tests/contract/test_owners.py` holds both to it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use pellucid_record::shape::Shapes;
use pellucid_store::{
    CachedDatabase, Savepoint, Snapshot, Store, StoreError, Transaction, TryResult, is_first_thread,
    thread_number,
};
use pyo3::intern;
use pyo3::prelude::*;

use crate::errors;
use crate::hot::call_site::CallSite;
use crate::hot::gil::{GilCell, GilRc, GilValue};
use crate::hot::{callbacks, modules};
use crate::signals::{Signals, is_interrupted};
use crate::store_errors;
use crate::table_binding::{TableBinding, TxnOutcome};
use crate::unclosed::Unclosed;
use crate::values::hooks::PicklePolicy;
use crate::values::names::{Names, Source};
use crate::values::row::ValidityFlag;

/// How many flags of transactions, and of pending handles, are kept before unused ones are removed.
const GATE_COUNT_MIN: usize = 16;

static NEXT_SERIAL: AtomicU64 = AtomicU64::new(1);

/// The owner of the transaction that `with db.transaction():` has opened.
struct Owner {
    // Unique in the process: an iterator over one transaction must not go on in the next one.
    serial: u64,
    // The id of the first of its own shapes that `names` does not know yet.
    next_uncommitted: u32,
    // The flag of the rows read or changed in it since the last rollback to a savepoint.
    validity: GilRc<ValidityFlag>,
    outcome: GilRc<GilValue<TxnOutcome>>,
    thread: u64,
    task: Option<Py<PyAny>>,
    /// Called while gathered rows are merged.
    progress: Option<Py<PyAny>>,
}

/// The shared state of an open database.
pub struct Core {
    // Before all else, so that it is dropped while the rest is there.
    #[expect(dead_code, reason = "its drop is all that it is for")]
    unclosed: Unclosed,
    /// The store: a file, or memory.
    pub store: Arc<Store>,
    /// The names of its shapes.
    pub names: GilRc<Names>,
    /// Open until `close`.
    pub validity: GilRc<ValidityFlag>,
    /// The pickle policy.
    pub policy: PicklePolicy,
    /// How long to wait for locks.
    pub timeout: Duration,
    /// The path as the user gave it, for messages.
    pub target: String,
    /// Why the database cannot be written to; None if it can.
    pub read_only: Option<&'static str>,
    // The flags of transactions whose rows may still be in use, and how many are kept before unused
    // ones are removed.
    flags: GilCell<(Vec<GilRc<ValidityFlag>>, usize)>,
    // The state of handles that have not found their tables yet, and how many are kept before
    // unused ones are removed.
    pending: GilCell<(Vec<GilRc<TableBinding>>, usize)>,
    // Only `begin`, `end` and `borrow` use it, and none of them while it is borrowed: a long walk
    // runs signal handlers, which may call here again.
    running: GilCell<Option<Transaction>>,
    owner: GilCell<Option<Owner>>,
    is_running: GilValue<bool>,
    is_borrowed: GilValue<bool>,
    // Set when the context was dropped while the transaction was borrowed: it is rolled back on its
    // return.
    is_context_dropped: GilValue<bool>,
    stored_count: GilValue<u64>,
    // A hold on the open store, which saves asking the store for each row. None before the first
    // row, and while `without_cached` runs: `cache_bans` counts these calls.
    cached: GilCell<Option<CachedDatabase>>,
    cache_bans: GilValue<u32>,
}

/// Ends the borrow of the running transaction when it is dropped.
struct Borrow<'a>(&'a GilValue<bool>);

impl Drop for Borrow<'_> {
    fn drop(&mut self) {
        self.0.set(false);
    }
}

/// While it lives, the store is not held. A panic of the work ends it as well: otherwise single
/// rows would take the slow path from then on.
struct CacheBan<'a>(&'a GilValue<u32>);

impl<'a> CacheBan<'a> {
    fn begin(bans: &'a GilValue<u32>) -> Self {
        bans.set(bans.get() + 1);
        Self(bans)
    }
}

impl Drop for CacheBan<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

impl Core {
    /// The shared state for a store that has just been opened.
    pub fn new(
        store: Store,
        policy: PicklePolicy,
        timeout: Duration,
        target: String,
        read_only: Option<&'static str>,
        opened_at: Option<CallSite>,
    ) -> Result<Arc<Self>, StoreError> {
        let store = Arc::new(store);
        let dictionary = store.dictionary()?;
        let validity = ValidityFlag::new();
        Ok(Arc::new(Self {
            unclosed: Unclosed { opened_at, target: target.clone(), validity: validity.clone() },
            names: GilRc::new(Names::new(Source::Store(store.clone(), dictionary))),
            store,
            validity,
            policy,
            timeout,
            target,
            read_only,
            flags: GilCell::new((Vec::new(), GATE_COUNT_MIN)),
            pending: GilCell::new((Vec::new(), GATE_COUNT_MIN)),
            running: GilCell::new(None),
            owner: GilCell::new(None),
            is_running: GilValue::new(false),
            is_borrowed: GilValue::new(false),
            is_context_dropped: GilValue::new(false),
            stored_count: GilValue::new(0),
            cached: GilCell::new(None),
            cache_bans: GilValue::new(0),
        }))
    }

    /// Raises `Closed` after `close`.
    #[inline]
    pub fn check_open(&self, py: Python<'_>) -> PyResult<()> {
        if self.validity.is_open() {
            Ok(())
        } else {
            let now = if self.target == "\":memory:\"" {
                "what was in memory is gone; open \":memory:\" for an empty one, or a path to keep what you store"
            } else {
                "open it again"
            };
            Err(errors::closed(py, &format!("database {}", self.target), now))
        }
    }

    /// Runs `work` with the cached database, if there is one now. `work` may make objects,
    /// which runs no user code, so it does not call this again.
    #[inline]
    pub fn with_cached<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&CachedDatabase) -> Result<TryResult<R>, StoreError>,
    ) -> Result<TryResult<R>, StoreError> {
        let done =
            self.cached.with(py, |cached| cached.as_ref().filter(|cached| cached.is_current()).map(work));
        done.unwrap_or_else(|| {
            self.cache_database(py);
            Ok(TryResult::UseTransaction)
        })
    }

    /// Caches the open database, for the next row.
    #[cold]
    fn cache_database(&self, py: Python<'_>) {
        if self.cache_bans.get() == 0
            && self.validity.is_open()
            && let Ok(cached) = self.store.cached_database()
        {
            drop(self.cached.with(py, |old| old.replace(cached)));
        }
    }

    /// Runs `work`, which needs exclusive access to the database, without a cached one.
    pub fn without_cached<R>(&self, py: Python<'_>, work: impl FnOnce() -> R) -> R {
        let _ban = CacheBan::begin(&self.cache_bans);
        drop(self.cached.with(py, Option::take));
        work()
    }

    /// The exception at the end of a transaction if the database was closed in its block.
    pub fn closed_within(&self, py: Python<'_>) -> PyErr {
        let now = "what this transaction wrote was dropped; close it after the block";
        errors::closed(py, &format!("database {}", self.target), now)
    }

    /// Why the database cannot be written to; None if it can.
    pub fn why_read_only(&self) -> Option<&'static str> {
        self.read_only
    }

    /// Whether the running transaction belongs to the caller.
    #[inline]
    pub fn is_mine(&self, py: Python<'_>) -> bool {
        self.is_running.get() && self.is_mine_slow(py)
    }

    fn is_mine_slow(&self, py: Python<'_>) -> bool {
        let thread = thread_number();
        let task = self.owner.with(py, |owner| match owner {
            Some(owner) if owner.thread == thread => {
                Some(owner.task.as_ref().map(|task| task.as_ptr() as usize))
            }
            _ => None,
        });
        match task {
            None => false,
            // It was opened outside of asyncio, so all code in this thread is inside.
            Some(None) => true,
            Some(Some(task)) => current_task(py).is_some_and(|current| current.as_ptr() as usize == task),
        }
    }

    /// Whether another task of this thread has the running transaction: waiting for it would be a
    /// deadlock.
    fn is_own_thread_busy(&self, py: Python<'_>) -> bool {
        let thread = thread_number();
        self.is_running.get()
            && self.owner.with(py, |owner| owner.as_ref().is_some_and(|owner| owner.thread == thread))
    }

    /// Begins a transaction for the caller.
    pub fn begin(&self, py: Python<'_>) -> PyResult<()> {
        let transaction = self.lock(py)?;
        self.set_running(py, transaction);
        Ok(())
    }

    /// As `begin`, unless it would have to wait. Returns whether it has begun.
    pub fn try_begin(&self, py: Python<'_>) -> PyResult<bool> {
        self.check_open(py)?;
        if self.is_own_thread_busy(py) {
            return Ok(false);
        }
        // `try_begin` of the store begins nothing before the first commit of the process.
        match callbacks::released(py, || self.store.begin(Duration::ZERO)) {
            Ok(transaction) => self.set_running(py, transaction),
            Err(StoreError::Busy { .. }) => return Ok(false),
            Err(error) => return Err(store_errors::of_store(py, error)),
        }
        Ok(true)
    }

    fn set_running(&self, py: Python<'_>, transaction: Transaction) {
        let next_uncommitted = transaction.shapes().start();
        let owner = Owner {
            next_uncommitted,
            serial: NEXT_SERIAL.fetch_add(1, Ordering::Relaxed),
            validity: self.transaction_validity(py),
            outcome: GilRc::new(GilValue::new(TxnOutcome::Running)),
            thread: thread_number(),
            task: current_task(py),
            progress: None,
        };
        // Both are empty, since this thread has the writer lock.
        let old = self.running.with(py, |slot| slot.replace(transaction));
        let old_owner = self.owner.with(py, |slot| slot.replace(owner));
        self.is_running.set(true);
        drop((old, old_owner));
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
        // Tried first without releasing the GIL: a thread that releases it may have to wait for it
        // while it has the writer lock, together with all other writers.
        let begun = self.store.try_begin(self.timeout).transpose();
        // Only the main thread handles signals; other threads need not take the GIL to check them.
        let hears = is_first_thread();
        let mut go_on = || !(hears && is_interrupted());
        let begun = begun
            .unwrap_or_else(|| callbacks::released(py, || self.store.begin_while(self.timeout, &mut go_on)));
        begun.map_err(|error| store_errors::of_store(py, error))
    }

    /// Raises if an operation of the running transaction is in progress further up the stack.
    pub fn check_not_borrowed(&self, py: Python<'_>) -> PyResult<()> {
        if self.is_borrowed.get() {
            return Err(errors::raise(
                py,
                "TransactionError",
                "the transaction is in the middle of another operation, which this call has interrupted (a signal \
                 handler?); use it, end it or close the database when that is over",
            ));
        }
        Ok(())
    }

    /// How many values were stored through this database's handles.
    pub fn stored_count(&self) -> u64 {
        self.stored_count.get()
    }

    /// Counts a stored value.
    pub fn count_stored(&self) {
        self.stored_count.set(self.stored_count.get().wrapping_add(1));
    }

    /// Ends the caller's transaction: commits it or rolls it back.
    pub fn end(&self, py: Python<'_>, commit: bool) -> PyResult<()> {
        self.check_not_borrowed(py)?;
        // Long work, which signals can stop as long as the transaction is still the caller's.
        let flushed =
            if commit { self.borrow(py, |transaction| self.flush_rows(py, transaction)) } else { None };
        let flushed = flushed.unwrap_or(Ok(())).map_err(|error| store_errors::of_store(py, error));
        self.is_running.set(false);
        let transaction = self.running.with(py, Option::take);
        let owner = self.owner.with(py, Option::take);
        let (Some(transaction), Some(Owner { serial, task, validity, outcome, progress, .. })) =
            (transaction, owner)
        else {
            return Ok(());
        };
        drop((task, progress));
        // If another thread has closed the database meanwhile, the transaction is rolled back.
        let is_open = self.validity.is_open();
        let is_kept = commit && is_open && flushed.is_ok();
        let result = self.finish(py, transaction, is_kept, serial);
        if is_kept && result.is_ok() {
            outcome.set(TxnOutcome::Committed);
        } else {
            outcome.set(TxnOutcome::RolledBack);
            validity.roll_back();
        }
        result.and(flushed)?;
        if commit && !is_open { self.check_open(py) } else { Ok(()) }
    }

    /// Rolls the caller's transaction back to a savepoint.
    pub fn roll_back_to(&self, py: Python<'_>, savepoint: Savepoint) -> PyResult<()> {
        self.in_running_unflushed(py, |transaction| transaction.rollback_to(savepoint))?;
        let validity = self.transaction_validity(py);
        let outcome = GilRc::new(GilValue::new(TxnOutcome::Running));
        let old = self.owner.with(py, |owner| {
            let owner = owner.as_mut()?;
            Some((
                std::mem::replace(&mut owner.validity, validity),
                std::mem::replace(&mut owner.outcome, outcome),
            ))
        });
        if let Some((validity, outcome)) = old {
            validity.roll_back();
            outcome.set(TxnOutcome::RolledBack);
        }
        Ok(())
    }

    /// Where the outcome of the caller's transaction will be set; None outside of a transaction.
    pub fn running_outcome(&self, py: Python<'_>) -> Option<GilRc<GilValue<TxnOutcome>>> {
        if !self.is_mine(py) {
            return None;
        }
        self.owner.with(py, |owner| owner.as_ref().map(|owner| owner.outcome.clone()))
    }

    /// A flag that closes with the database.
    fn transaction_validity(&self, py: Python<'_>) -> GilRc<ValidityFlag> {
        let validity = ValidityFlag::new();
        self.flags.with(py, |(flags, count_max)| {
            if flags.len() >= *count_max {
                flags.retain(|validity| GilRc::owner_count(validity) > 1);
                // Doubled, so that with many kept records not every transaction checks all flags.
                *count_max = (flags.len() * 2).max(GATE_COUNT_MIN);
            }
            flags.push(validity.clone());
        });
        validity
    }

    /// Registers a handle whose table does not exist yet.
    pub fn add_pending(&self, py: Python<'_>, binding: GilRc<TableBinding>) {
        self.pending.with(py, |(pending, count_max)| {
            if pending.len() >= *count_max {
                pending.retain(|binding| GilRc::owner_count(binding) > 1 && binding.is_pending(py));
                *count_max = (pending.len() * 2).max(GATE_COUNT_MIN);
            }
            pending.push(binding);
        });
    }

    /// Drops or renames a table by `work`. Handles that were made for its name before the table
    /// existed are bound to the table first.
    pub fn unname(
        &self,
        py: Python<'_>,
        name: &str,
        work: impl FnOnce(&mut Transaction) -> Result<(), StoreError>,
    ) -> PyResult<()> {
        let id = self.write(py, |transaction| {
            let id = transaction.table(name)?;
            work(transaction).map(|()| id)
        })?;
        if let Some(id) = id {
            let outcome = self.running_outcome(py);
            let pending = self.pending.with(py, |(pending, _)| pending.clone());
            for binding in pending {
                binding.bind_name(py, name, id, outcome.clone());
            }
        }
        Ok(())
    }

    /// Closes all flags, so that rows can no longer be read.
    pub fn close_gates(&self, py: Python<'_>) {
        self.validity.close();
        for validity in self.flags.with(py, |(flags, _)| std::mem::take(flags)) {
            validity.close();
        }
    }

    /// The flag for rows that are read now.
    #[inline]
    pub fn row_gate(&self, py: Python<'_>) -> GilRc<ValidityFlag> {
        if !self.is_mine(py) {
            return self.validity.clone();
        }
        self.running_gate(py).unwrap_or_else(|| self.validity.clone())
    }

    /// The flag for rows that are read now in the running transaction, whichever thread it belongs
    /// to.
    pub fn running_gate(&self, py: Python<'_>) -> Option<GilRc<ValidityFlag>> {
        self.owner.with(py, |owner| owner.as_ref().map(|owner| owner.validity.clone()))
    }

    /// Adds the shapes to `names` that the caller's transaction made itself, when a change of a
    /// record gave it another list of keys.
    pub fn learn_uncommitted(&self, py: Python<'_>) {
        let known =
            self.owner.with(py, |owner| owner.as_ref().map(|owner| (owner.serial, owner.next_uncommitted)));
        let Some((serial, start)) = known else { return };
        let Some(Ok(shapes)) = self.in_serial(py, serial, |transaction| Ok(transaction.shapes().clone()))
        else {
            return;
        };
        for (id, shape) in (start..).map_while(|id| Some((id, shapes.shape(id)?))) {
            if self.names.met_as(py, id).is_none() {
                self.names.add_uncommitted(py, id, shape.clone(), serial);
            }
            self.owner.with(py, |owner| owner.as_mut().map(|owner| owner.next_uncommitted = id + 1));
        }
    }

    /// The serial of the caller's running transaction.
    pub fn running_serial(&self, py: Python<'_>) -> Option<u64> {
        if !self.is_mine(py) {
            return None;
        }
        self.serial(py)
    }

    /// The serial of the running transaction, whichever thread it belongs to.
    pub fn serial(&self, py: Python<'_>) -> Option<u64> {
        self.owner.with(py, |owner| owner.as_ref().map(|owner| owner.serial))
    }

    /// Commits or rolls back a transaction. `serial` is its serial, or 0 if it has no new shapes.
    /// Drafts are handled right after the store releases its lock, since the next transaction may
    /// then make new ones.
    fn finish(
        &self,
        py: Python<'_>,
        mut transaction: Transaction,
        commit: bool,
        serial: u64,
    ) -> PyResult<()> {
        if !commit {
            self.names.forget_uncommitted(py, serial);
            callbacks::released(py, || drop(transaction));
            return Ok(());
        }
        let published = if transaction.publishes_without_waiting() {
            transaction.publish()
        } else {
            callbacks::released(py, || transaction.publish())
        };
        let committed = match published {
            Ok(()) if transaction.needs_sync() => callbacks::released(py, move || transaction.sync()),
            published => published,
        };
        match committed {
            Ok(()) => {
                self.names.commit_shapes(py, serial);
                Ok(())
            }
            Err(error) => {
                self.names.forget_uncommitted(py, serial);
                Err(store_errors::of_store(py, error))
            }
        }
    }

    /// Runs `work` in the caller's transaction, which must be running (`is_mine`).
    pub fn in_running<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Transaction) -> Result<R, StoreError>,
    ) -> PyResult<R> {
        self.in_running_unflushed(py, |transaction| {
            self.flush_rows(py, transaction)?;
            work(transaction)
        })
    }

    /// As `in_running`, for work that does not read rows: those that are gathered stay so.
    pub fn in_running_unflushed<R>(
        &self,
        py: Python<'_>,
        work: impl FnOnce(&mut Transaction) -> Result<R, StoreError>,
    ) -> PyResult<R> {
        self.check_not_borrowed(py)?;
        match self.borrow(py, work) {
            Some(result) => result.map_err(|error| store_errors::of_store(py, error)),
            // Code that ran meanwhile has closed it: that of a generator, or of a value's class.
            None if !self.validity.is_open() => Err(self.closed_within(py)),
            None => Err(errors::raise(py, "TransactionError", "no transaction is running")),
        }
    }

    /// Runs `work` in the transaction with this serial; None if it is over, or in use further up
    /// the stack. Makes no Python object.
    pub fn in_serial<R>(
        &self,
        py: Python<'_>,
        serial: u64,
        work: impl FnOnce(&mut Transaction) -> Result<R, StoreError>,
    ) -> Option<Result<R, StoreError>> {
        if self.is_borrowed.get() || self.serial(py) != Some(serial) {
            return None;
        }
        self.borrow(py, |transaction| {
            self.flush_rows(py, transaction)?;
            work(transaction)
        })
    }

    /// Merges the rows that the transaction has gathered into their tables.
    #[inline]
    fn flush_rows(&self, py: Python<'_>, transaction: &mut Transaction) -> Result<(), StoreError> {
        if transaction.has_unflushed_rows() { self.flush_rows_slowly(py, transaction) } else { Ok(()) }
    }

    #[cold]
    fn flush_rows_slowly(&self, py: Python<'_>, transaction: &mut Transaction) -> Result<(), StoreError> {
        const PAUSE: Duration = Duration::from_millis(100);
        const STEPS: u32 = 64;
        let function = self.owner.with(py, |owner| Some(owner.as_ref()?.progress.as_ref()?.clone_ref(py)));
        let tell = |done: u64, total: u64| {
            let Some(function) = &function else { return true };
            callbacks::code_may_run(py);
            function.call1(py, (done, total)).map_err(|error| error.restore(py)).is_ok()
        };
        let (mut signals, mut reported_at, mut step, mut all) = (Signals::by_turns(), None, 0_u32, 0);
        transaction.flush_rows_while(&mut |done, total| {
            (step, all) = (step.wrapping_add(1), total);
            if step.is_multiple_of(STEPS) && reported_at.is_none_or(|at: Instant| at.elapsed() >= PAUSE) {
                reported_at = Some(Instant::now());
                if !tell(done, total) {
                    return false;
                }
            }
            signals.go_on()
        })?;
        // A bar that has begun is filled.
        if reported_at.is_none() || tell(all, all) { Ok(()) } else { Err(StoreError::Stopped) }
    }

    /// Calls a function with (rows done, rows in all) while gathered rows of the caller's
    /// transaction are merged.
    pub fn set_progress(&self, py: Python<'_>, function: &Py<PyAny>) {
        let function = Some(function.clone_ref(py));
        let old = self.owner.with(py, |owner| {
            owner.as_mut().and_then(|owner| std::mem::replace(&mut owner.progress, function))
        });
        drop(old);
    }

    fn borrow<R>(&self, py: Python<'_>, work: impl FnOnce(&mut Transaction) -> R) -> Option<R> {
        self.is_borrowed.set(true);
        let borrow = Borrow(&self.is_borrowed);
        let result = self.running.with(py, |running| running.as_mut().map(work));
        drop(borrow);
        if self.is_context_dropped.get() {
            self.roll_back(py);
        }
        result
    }

    /// Rolls the running transaction back, from any thread, when no code is left that could end it.
    pub fn roll_back_dropped(&self, py: Python<'_>) {
        if self.is_borrowed.get() {
            self.is_context_dropped.set(true);
        } else {
            self.roll_back(py);
        }
    }

    #[cold]
    fn roll_back(&self, py: Python<'_>) {
        self.is_context_dropped.set(false);
        if let Err(error) = self.end(py, false) {
            error.write_unraisable(py, None);
        }
    }

    /// Runs `work` in the caller's transaction, or in its own one that is committed at once.
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
            Ok(result) => self.finish(py, transaction, true, 0).map(|()| result),
            Err(error) => {
                self.finish(py, transaction, false, 0)?;
                Err(store_errors::of_store(py, error))
            }
        }
    }

    /// As `write`, for long work: `work` runs with the GIL released, unless it runs in the caller's
    /// own transaction. `prepare` runs before it, with the GIL held.
    pub fn write_released<P: Send>(
        &self,
        py: Python<'_>,
        prepare: impl FnOnce(&mut Transaction) -> Result<P, StoreError>,
        work: impl FnOnce(&mut Transaction, P) -> Result<(), StoreError> + Send,
    ) -> PyResult<()> {
        if self.is_mine(py) {
            return self.in_running(py, |transaction| {
                let prepared = prepare(transaction)?;
                work(transaction, prepared)
            });
        }
        let mut transaction = self.lock(py)?;
        let done = match prepare(&mut transaction) {
            Ok(prepared) => callbacks::released(py, || work(&mut transaction, prepared)),
            Err(error) => Err(error),
        };
        self.finish(py, transaction, done.is_ok(), 0)?;
        done.map_err(|error| store_errors::of_store(py, error))
    }

    /// A snapshot of the committed state that the program keeps.
    pub fn kept_snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        self.check_open(py)?;
        self.store.kept_snapshot().map_err(|error| store_errors::of_store(py, error))
    }

    /// A snapshot of the committed state, for a read.
    #[inline]
    pub fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        self.check_open(py)?;
        self.store.snapshot().map_err(|error| store_errors::of_store(py, error))
    }
}

/// The running asyncio task, if the program uses asyncio.
fn current_task(py: Python<'_>) -> Option<Py<PyAny>> {
    callbacks::code_may_run(py);
    let asyncio = modules::loaded(intern!(py, "asyncio"))?;
    // Without a running loop there is no task, and asking for it would raise.
    if asyncio.call_method0(intern!(py, "_get_running_loop")).ok()?.is_none() {
        return None;
    }
    let task = asyncio.call_method0(intern!(py, "current_task")).ok()?;
    (!task.is_none()).then(|| task.unbind())
}
