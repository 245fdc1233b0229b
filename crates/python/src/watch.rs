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
        let state = State { watch, pending, version, is_over: false, tables, table };
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
            let left = self.timeout.map(|timeout| timeout.saturating_sub(begin.elapsed()));
            let (watch, store) = (&mut state.watch, &*self.core.store);
            let step = callbacks::released(py, || match watch.next(store)? {
                WatchStep::Nothing => {
                    watch.wait(store, left.unwrap_or(SLICE).min(SLICE))?;
                    watch.next(store)
                }
                step => Ok(step),
            });
            match step {
                Ok(WatchStep::Changes(changes)) => {
                    state.pending = changes.changes.into();
                    state.version = changes.version;
                    self.given.store(changes.version - 1, Ordering::Relaxed);
                }
                Ok(WatchStep::Over) => state.is_over = true,
                Ok(WatchStep::Nothing) => {
                    self.given.store(state.watch.version(), Ordering::Relaxed);
                    callbacks::check_signals(py)?;
                    self.core.check_open(py)?;
                    state.is_over = self.timeout.is_some_and(|timeout| begin.elapsed() >= timeout);
                }
                Err(StoreError::Closed { .. }) => return self.core.check_open(py).map(|()| None),
                Err(error) => return Err(store_errors::of_store(py, error)),
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
