//! The iterators over changes that `db.watch()` and `table.watch()` return.
//!
//! The store's `Watch` reads commits; this file turns rows into keys and records, and waits. It
//! waits with the GIL released, in slices; after each one it checks signals, and whether the
//! database is still open. Between two steps it holds nothing of the database.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, TryLockError};
use std::time::{Duration, Instant};

use pellucid_store::{Change, Happened, StoreError, TableId, WatchStep, Watched};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};

use crate::arguments::seconds_of;
use crate::bounds::Bounds;
use crate::core::Core;
use crate::errors;
use crate::hot::callbacks;
use crate::hot::gil::GilRc;
use crate::store_errors;
use crate::table::handle::Table;
use crate::table::typed::value_of_row;
use crate::values::keys;
use crate::values::row::Row;
use crate::values::table_ref::TableRef;

/// The longest wait before signals are checked.
const SLICE: Duration = Duration::from_millis(50);
/// The index of rows that expire (`INDEX` of `pellucid.expiry`).
const EXPIRATIONS: &str = "_expirations";
/// The longest interval between two looks for expired rows, and the interval after a change.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_SOON: Duration = Duration::from_millis(100);

/// Errors of a deletion that a later look may be able to make. A watch goes on to give changes.
const NOW_NOT: [&str; 3] = ["Busy", "DiskFull", "ReadOnly"];

const WATCHED: &str = "this is what a commit has written, which does not change; write through the table";

/// One change of a commit: see `Database.watch`.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> watch = db.watch(timeout=0)
/// >>> db["ann"] = {"age": 30}
/// >>> for change in watch:
/// ...     print(change)
/// Change(version=2, table='default', kind='create', key=None, value=None, is_last=False)
/// Change(version=2, table='default', kind='put', key='ann', value={'age': 30}, is_last=True)
#[pyclass(frozen, get_all, module = "pellucid", name = "Change")]
pub struct ChangeHandle {
    /// The version of the database that the commit made; the same for all of its changes.
    version: u64,
    /// The name of the table at that time.
    table: Py<PyString>,
    /// "put", "delete" and "clear" concern rows; "create", "drop" and "rename" concern the table.
    kind: &'static str,
    /// The key of the row; None for a change of the whole table.
    key: Py<PyAny>,
    /// The new value for "put", the new name of the table for "rename", and None for other kinds.
    value: Py<PyAny>,
    /// Whether this is the last change of the commit that the watch gives.
    is_last: bool,
}

#[pymethods]
impl ChangeHandle {
    #[classattr]
    fn __match_args__() -> (&'static str, &'static str, &'static str, &'static str) {
        ("kind", "table", "key", "value")
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let shown = || -> PyResult<String> {
            Ok(format!(
                "Change(version={}, table={}, kind='{}', key={}, value={}, is_last={})",
                self.version,
                self.table.bind(py).repr()?,
                self.kind,
                self.key.bind(py).repr()?,
                self.value.bind(py).repr()?,
                if self.is_last { "True" } else { "False" },
            ))
        };
        errors::shown(py, "pellucid.Change", shown())
    }
}

/// An iterator over the changes that any process commits: see `Database.watch`.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> watch = db.watch(timeout=0)
/// >>> db["a"] = 1
/// >>> [change.key for change in watch if change.kind == "put"], watch.version
/// (['a'], 2)
#[pyclass(frozen, module = "pellucid", name = "Watch")]
pub struct WatchHandle {
    core: Arc<Core>,
    timeout: Option<Duration>,
    /// The version up to which all changes were given. It lies outside of the mutex, which a
    /// waiting thread holds.
    given: AtomicU64,
    state: Mutex<State>,
}

struct State {
    watch: pellucid_store::Watch,
    /// The remaining changes of the current commit, and its version.
    pending: VecDeque<Change>,
    version: u64,
    is_over: bool,
    /// When to look for expired rows.
    look_at: Instant,
    /// The handles that rows are read through: of all tables, or of the one that is watched.
    tables: HashMap<TableId, Py<Table>>,
    table: Option<Py<Table>>,
}

impl WatchHandle {
    /// A watch on all tables, or on one.
    pub fn new(
        py: Python<'_>,
        core: &Arc<Core>,
        table: Option<(Py<Table>, Option<TableId>, Bounds)>,
        since: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<Self>> {
        core.check_open(py)?;
        let (since, timeout) = (since_of(since)?, timeout.map(seconds_of).transpose()?);
        let (watched, table) = match table {
            None => (Watched::All, None),
            Some((handle, id, bounds)) => {
                let name = handle.get().name(py).to_string();
                (Watched::Table { table: id, name, range: bounds.range }, Some(handle))
            }
        };
        let watch = callbacks::released(py, || core.store.watch(since, watched));
        let watch = watch.map_err(|error| store_errors::of_store(py, error))?;
        let (pending, version, tables) = (VecDeque::new(), watch.version(), HashMap::new());
        let given = AtomicU64::new(version);
        let look_at = Instant::now();
        let state = State { watch, pending, version, is_over: false, look_at, tables, table };
        Py::new(py, Self { core: core.clone(), timeout, given, state: Mutex::new(state) })
    }

    /// The next change; None if none came before the timeout, or if none will come.
    fn next(&self, py: Python<'_>) -> PyResult<Option<Py<ChangeHandle>>> {
        self.core.check_open(py)?;
        let mut guard = match self.state.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                return Err(errors::value_error(
                    "another thread is waiting for this watch; give each its own",
                ));
            }
        };
        let state = &mut *guard;
        let begin = Instant::now();
        while state.pending.is_empty() && !state.is_over {
            let (watch, store) = (&mut state.watch, &*self.core.store);
            match callbacks::released(py, || watch.next(store)) {
                Ok(WatchStep::Changes(changes)) => {
                    state.pending = changes.changes.into();
                    state.version = changes.version;
                    state.look_at = state.look_at.min(Instant::now() + LOOK_SOON);
                    self.given.store(changes.version - 1, Ordering::Relaxed);
                }
                Ok(WatchStep::Over) => state.is_over = true,
                Ok(WatchStep::Nothing) => {
                    self.given.store(state.watch.version(), Ordering::Relaxed);
                    if !self.delete_expired(py, state)? {
                        let left = self.timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
                        self.wait(py, state, left)?;
                    }
                }
                Err(error) => return self.failed(py, error).map(|()| None),
            }
        }
        let Some(change) = state.pending.front() else { return Ok(None) };
        let (version, is_last) = (state.version, state.pending.len() == 1);
        let table = self.table(py, &mut state.tables, state.table.as_ref(), change)?;
        let object = self.object_of(py, change, version, is_last, &table)?;
        // The change leaves the queue only now: if making its object raises, the next step tries
        // again.
        state.pending.pop_front();
        if is_last {
            self.given.store(version, Ordering::Relaxed);
        }
        Ok(Some(object))
    }

    /// Waits for a commit; the watch is over if no time is left for that.
    fn wait(&self, py: Python<'_>, state: &mut State, left: Option<Duration>) -> PyResult<()> {
        if left.is_some_and(|left| left.is_zero()) {
            state.is_over = true;
            return Ok(());
        }
        let (watch, store) = (&mut state.watch, &*self.core.store);
        let waited = callbacks::released(py, || watch.wait(store, left.unwrap_or(SLICE).min(SLICE)));
        waited.map(drop).or_else(|error| self.failed(py, error))?;
        callbacks::check_signals(py)?;
        self.core.check_open(py)
    }

    fn failed(&self, py: Python<'_>, error: StoreError) -> PyResult<()> {
        match error {
            StoreError::Closed { .. } => self.core.check_open(py),
            error => Err(store_errors::of_store(py, error)),
        }
    }

    /// Deletes expired rows of the watched tables, so that the watch gives that. Returns whether it
    /// has deleted any.
    fn delete_expired(&self, py: Python<'_>, state: &mut State) -> PyResult<bool> {
        let now = Instant::now();
        if now < state.look_at || self.core.store.is_read_only() || self.core.is_mine(py) {
            return Ok(false);
        }
        let tables = self.expiring(py, state)?;
        state.look_at = now + LOOK_AGAIN;
        if tables.is_empty() {
            return Ok(false);
        }
        callbacks::code_may_run(py);
        let module = py.import("pellucid.expiry")?;
        let left: f64 = module.call_method1("seconds_left", (&tables,))?.extract()?;
        state.look_at = now + Duration::from_secs_f64(left.clamp(0.0, LOOK_AGAIN.as_secs_f64()));
        if left > 0.0 || !self.core.try_begin(py)? {
            return Ok(false);
        }
        let deleted = module.call_method1("delete_some", (&tables,)).and_then(|count| count.extract::<u64>());
        let ended = self.core.end(py, deleted.is_ok());
        match deleted.and_then(|count| ended.map(|()| count > 0)) {
            Err(error) if NOW_NOT.iter().any(|name| errors::is_of(py, &error, name)) => Ok(false),
            deleted => deleted,
        }
    }

    /// The watched tables with rows that expire.
    fn expiring(&self, py: Python<'_>, state: &State) -> PyResult<Vec<Py<Table>>> {
        let of_store = |error| store_errors::of_store(py, error);
        let watched = state.table.as_ref().map(|table| table.get().name(py).to_string());
        let snapshot = self.core.snapshot(py)?;
        let mut tables = Vec::new();
        for (name, id) in snapshot.tables().map_err(of_store)? {
            if watched.as_ref().is_none_or(|watched| *watched == name)
                && snapshot.index(id, EXPIRATIONS).map_err(of_store)?.is_some()
            {
                tables.push(Py::new(py, Table::by_name(self.core.clone(), &name))?);
            }
        }
        Ok(tables)
    }

    /// The handle that the rows of a table are read through.
    fn table(
        &self,
        py: Python<'_>,
        tables: &mut HashMap<TableId, Py<Table>>,
        watched: Option<&Py<Table>>,
        change: &Change,
    ) -> PyResult<Py<Table>> {
        if let Some(table) = watched {
            return Ok(table.clone_ref(py));
        }
        if let Happened::Drop | Happened::Rename { .. } | Happened::Create = change.happened {
            tables.remove(&change.table);
        }
        if let Some(table) = tables.get(&change.table) {
            return Ok(table.clone_ref(py));
        }
        let table = Py::new(py, Table::by_name(self.core.clone(), &change.name))?;
        tables.insert(change.table, table.clone_ref(py));
        Ok(table)
    }

    fn object_of(
        &self,
        py: Python<'_>,
        change: &Change,
        version: u64,
        is_last: bool,
        table: &Py<Table>,
    ) -> PyResult<Py<ChangeHandle>> {
        let name = PyString::new(py, &change.name).unbind();
        let (mut key, mut value) = (py.None(), py.None());
        let kind = match &change.happened {
            Happened::Put { key: code, spelling, record, large } => {
                key = keys::object_of(py, code, spelling)?.unbind();
                let (names, validity) = (self.core.names.clone(), self.core.validity.clone());
                let table = Some(TableRef::new(table.bind(py)));
                let row =
                    Row::owned(record, code, names, validity, table, Some(WATCHED)).spelled(py, spelling);
                if !large.is_empty() {
                    row.attach_reported(py, self.core.snapshot(py)?, large.clone());
                }
                value = value_of_row(py, GilRc::new(row))?.unbind();
                "put"
            }
            Happened::Delete { key: code, spelling } => {
                key = keys::object_of(py, code, spelling)?.unbind();
                "delete"
            }
            Happened::Clear => "clear",
            Happened::Create => "create",
            Happened::Drop => "drop",
            Happened::Rename { name } => {
                value = PyString::new(py, name).into_any().unbind();
                "rename"
            }
        };
        Py::new(py, ChangeHandle { version, table: name, kind, key, value, is_last })
    }
}

#[pymethods]
impl WatchHandle {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __next__(&self, py: Python<'_>) -> PyResult<Option<Py<ChangeHandle>>> {
        self.next(py)
    }

    /// The version up to which all changes were given; another watch can continue there with
    /// `since=`.
    #[getter]
    fn version(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    fn __repr__(&self) -> String {
        if !self.core.validity.is_open() {
            return format!("<pellucid.Watch of {}, closed>", self.core.target);
        }
        format!("<pellucid.Watch of {}, version {}>", self.core.target, self.version())
    }
}

/// Reads the argument `since`, a version.
fn since_of(since: Option<&Bound<'_, PyAny>>) -> PyResult<Option<u64>> {
    let Some(since) = since else { return Ok(None) };
    if since.is_instance_of::<PyBool>() || !since.is_instance_of::<PyInt>() {
        let kind = since.get_type();
        return Err(errors::type_error(format!("since has to be a version, an int, not {}", kind.name()?)));
    }
    match since.extract() {
        Ok(since) => Ok(Some(since)),
        Err(_) => Err(errors::value_error(format!("since={} is no version of a database", since.repr()?))),
    }
}
