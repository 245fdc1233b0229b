//! What does `pellucid.open` give?

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use pellucid_store::{Durability, Mode, OpenOptions, Snapshot, Store};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyString, PyTuple, PyType};

use crate::core::Core;
use crate::errors;
use crate::hooks::PicklePolicy;
use crate::hot::gil::{GilCell, GilRc};
use crate::hot::row::Gate;
use crate::table::Table;
use crate::transaction::TransactionContext;

/// The table that a database is itself a mapping over.
const DEFAULT_TABLE: &str = "default";
/// Longer than anybody waits, and still an Instant when added to now.
const TIMEOUT_SECONDS_MAX: f64 = 1e9;

/// An open database: a mapping over its default table, with other tables beside it.
///
/// Safe to share between threads. A handle can be pickled (it opens the file again) and survives a
/// fork. Use it as a context manager, or call `close()`.
///
/// >>> import pellucid
/// >>> with pellucid.open(":memory:") as db:
/// ...     db["a"] = 1
/// ...     db["a"], len(db), db.tables()
/// (1, 1, ['default'])
#[pyclass(frozen, mapping, module = "pellucid", name = "Database")]
pub struct Database {
    core: Arc<Core>,
    default: Py<Table>,
    mode: Mode,
    durability: Durability,
    path: Option<OsString>,
    is_untrusted: bool,
    snapshots: GilCell<Vec<GilRc<Gate>>>,
}

fn mode_of(word: &str) -> PyResult<Mode> {
    match word {
        "r" => Ok(Mode::Read),
        "w" => Ok(Mode::Write),
        "c" => Ok(Mode::Create),
        "n" => Ok(Mode::New),
        other => Err(errors::value_error(format!(
            "mode={other:?} is unknown; use \"r\" (read), \"w\" (write), \"c\" (create if need be) or \"n\" (empty)"
        ))),
    }
}

fn word_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "r",
        // A handle that travels, or outlives its process, must not create or empty anything.
        Mode::Write | Mode::Create | Mode::New => "w",
    }
}

fn durability_of(word: &str) -> PyResult<Durability> {
    match word {
        "process" => Ok(Durability::Process),
        "full" => Ok(Durability::Full),
        other => {
            Err(errors::value_error(format!("durability={other:?} is unknown; use \"process\" or \"full\"")))
        }
    }
}

fn path_of(target: &Bound<'_, PyAny>) -> PyResult<OsString> {
    let py = target.py();
    let path = py.import("os")?.getattr("fspath")?.call1((target,))?;
    let path = if path.cast::<PyBytes>().is_ok() {
        py.import("os")?.getattr("fsdecode")?.call1((path,))?
    } else {
        path
    };
    path.extract()
}

/// Open a database.
///
/// `target` is a path (str, bytes or `PathLike`), or ":memory:". `mode` is as in `dbm.open`: "r" only
/// reads, "w" writes, "c" (the default) also creates, "n" empties. `durability="full"` makes each
/// commit return only when it is on the disk. `pickle` is "deny" (the default), "allow", or a list
/// of globals that stored pickles may use. `timeout` is how many seconds to wait for locks of others.
/// `untrusted=True` opens a file that a stranger made: read-only, through a verified copy.
///
/// Raises `FileNotFoundError`, `NotADatabase`, `DatabaseCorrupt`, `NewerFormat`, `Busy`, `DatabaseError`.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> db["fred"] = {"age": 21}
/// >>> db["fred"].age
/// 21
#[pyfunction]
#[pyo3(signature = (target, mode="c", *, durability="process", pickle=None, timeout=10.0, untrusted=false))]
pub fn open(
    py: Python<'_>,
    target: &Bound<'_, PyAny>,
    mode: &str,
    durability: &str,
    pickle: Option<&Bound<'_, PyAny>>,
    timeout: f64,
    untrusted: bool,
) -> PyResult<Py<Database>> {
    let policy = PicklePolicy::new(pickle)?;
    let (mode, durability) = (mode_of(mode)?, durability_of(durability)?);
    if timeout.is_nan() || timeout < 0.0 {
        return Err(errors::value_error(format!("timeout={timeout} is no number of seconds from 0 on")));
    }
    let timeout = Duration::from_secs_f64(timeout.min(TIMEOUT_SECONDS_MAX));
    if let Ok(word) = target.cast::<PyString>() {
        let word = word.to_str().unwrap_or_default();
        if word.starts_with("postgresql://") || word.starts_with("postgres://") {
            return Err(errors::value_error(
                "this release opens files and \":memory:\"; PostgreSQL is not supported yet",
            ));
        }
        if word == ":memory:" {
            let store = Store::memory().map_err(|error| errors::of_store(py, error))?;
            return Database::new(py, store, policy, timeout, None, mode, durability, false);
        }
    }
    let path = path_of(target)?;
    let options =
        OpenOptions { mode, durability, timeout, is_untrusted: untrusted, ..OpenOptions::default() };
    let opened = py.detach(|| Store::open(std::path::Path::new(&path), &options));
    let store = opened.map_err(|error| errors::of_store(py, error))?;
    for warning in store.warnings().map_err(|error| errors::of_store(py, error))? {
        let class = py.import("pellucid.errors")?.getattr("NetworkFilesystemWarning")?;
        py.import("warnings")?.getattr("warn")?.call1((warning.to_string(), class, 2))?;
    }
    Database::new(py, store, policy, timeout, Some(path), mode, durability, untrusted)
}

impl Database {
    #[allow(clippy::too_many_arguments, reason = "the arguments of open(), resolved")]
    fn new(
        py: Python<'_>,
        store: Store,
        policy: PicklePolicy,
        timeout: Duration,
        path: Option<OsString>,
        mode: Mode,
        durability: Durability,
        is_untrusted: bool,
    ) -> PyResult<Py<Self>> {
        let target = match &path {
            Some(path) => path.to_string_lossy().into_owned(),
            None => ":memory:".to_owned(),
        };
        let read_only = if is_untrusted {
            Some(
                "the database was opened as untrusted, which only reads; open it without untrusted=True to write",
            )
        } else if matches!(mode, Mode::Read) {
            Some("the database was opened with mode=\"r\"; open it with \"w\" or \"c\" to write")
        } else {
            None
        };
        let core = Core::new(store, policy, timeout, format!("{target:?}"), read_only)
            .map_err(|error| errors::of_store(py, error))?;
        let default = Py::new(py, Table::new(core.clone(), DEFAULT_TABLE.to_owned(), None))?;
        let snapshots = GilCell::new(Vec::new());
        Py::new(py, Self { core, default, mode, durability, path, is_untrusted, snapshots })
    }

    fn default<'py>(&self, py: Python<'py>) -> &Bound<'py, Table> {
        self.default.bind(py)
    }

    fn check_writable(&self, py: Python<'_>) -> PyResult<()> {
        self.default.get().check_writable(py)
    }
}

#[pymethods]
impl Database {
    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().core.check_open(py)?;
        Ok(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) -> PyResult<()> {
        self.close(py)
    }

    /// Close the database; its records, tables and snapshots can then no longer be used.
    ///
    /// Closing twice does nothing. A transaction that is running is dropped.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.core.gate.is_open() {
            return Ok(());
        }
        if self.core.is_mine(py) {
            self.core.end(py, false)?;
        }
        // A transaction of another thread goes on up to its end, and is dropped there (`Core::end`).
        self.core.close_gates(py);
        for gate in self.snapshots.with(py, std::mem::take) {
            gate.close();
        }
        py.detach(|| self.core.store.close());
        Ok(())
    }

    /// Whether the database has been closed.
    #[getter]
    fn closed(&self) -> bool {
        !self.core.gate.is_open()
    }

    /// The path of the file; None for ":memory:".
    #[getter]
    fn path(&self) -> Option<OsString> {
        self.path.clone()
    }

    /// The table `name`, which is made when it is first written to.
    ///
    /// With `type`, rows come back as instances of that class (a dataclass, `NamedTuple`, attrs class
    /// or Enum), made whole and detached, instead of as records.
    ///
    /// >>> import dataclasses, pellucid
    /// >>> @dataclasses.dataclass
    /// ... class Person:
    /// ...     name: str
    /// >>> people = pellucid.open(":memory:").table("people", type=Person)
    /// >>> people[1] = Person("Ann")
    /// >>> people[1]
    /// Person(name='Ann')
    #[pyo3(signature = (name, /, *, r#type=None))]
    fn table(&self, py: Python<'_>, name: String, r#type: Option<Bound<'_, PyType>>) -> PyResult<Py<Table>> {
        self.core.check_open(py)?;
        Py::new(py, Table::new(self.core.clone(), name, r#type.map(Bound::unbind)))
    }

    /// The names of all tables, sorted.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let tables = if self.core.is_mine(py) {
            self.core.in_running(py, |transaction| transaction.tables())?
        } else {
            self.core.snapshot(py)?.tables().map_err(|error| errors::of_store(py, error))?
        };
        Ok(tables.into_iter().map(|(name, _)| name).collect())
    }

    /// Delete a table with all its rows; `KeyError` where there is none of that name.
    fn drop_table(&self, py: Python<'_>, name: &str) -> PyResult<()> {
        self.check_writable(py)?;
        self.core.write(py, |transaction| transaction.drop_table(name))
    }

    /// Give a table another name; `KeyError` where there is none of the old, `ValueError` where there
    /// is one of the new.
    fn rename_table(&self, py: Python<'_>, name: &str, new_name: &str) -> PyResult<()> {
        self.check_writable(py)?;
        self.core.write(py, |transaction| transaction.rename_table(name, new_name))
    }

    /// A transaction, as a context manager: all of its writes or none; inside another, a savepoint.
    fn transaction(&self, py: Python<'_>) -> PyResult<TransactionContext> {
        self.check_writable(py)?;
        Ok(TransactionContext::new(self.core.clone()))
    }

    /// A frozen, consistent view of everything, as a context manager.
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> db["a"] = 1
    /// >>> with db.snapshot() as snap:
    /// ...     db["a"] = 2
    /// ...     snap["a"], db["a"]
    /// (1, 2)
    fn snapshot(&self, py: Python<'_>) -> PyResult<Py<SnapshotHandle>> {
        let snapshot = self.core.snapshot(py)?;
        let gate = Gate::new();
        self.snapshots.with(py, |snapshots| {
            snapshots.retain(|gate| GilRc::owner_count(gate) > 1);
            snapshots.push(gate.clone());
        });
        let table =
            Table::of_snapshot(self.core.clone(), DEFAULT_TABLE.to_owned(), snapshot.clone(), gate.clone());
        let default = Py::new(py, table)?;
        let snapshot = GilCell::new(Some(snapshot));
        Py::new(
            py,
            SnapshotHandle { core: self.core.clone(), snapshot, gate, default: GilCell::new(Some(default)) },
        )
    }

    /// Make everything committed so far durable: it survives a power cut.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.core.check_open(py)?;
        py.detach(|| self.core.store.sync()).map_err(|error| errors::of_store(py, error))
    }

    /// Figures about the database: sizes in bytes, counts, how far behind the oldest snapshot is.
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> db["a"] = 1
    /// >>> db.stats()["rows"]
    /// 1
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.core.check_open(py)?;
        let stats = self.core.store.stats().map_err(|error| errors::of_store(py, error))?;
        crate::report::stats(py, &stats)
    }

    /// Read everything and check it; the list of what is wrong, empty where nothing is.
    ///
    /// >>> import pellucid
    /// >>> pellucid.open(":memory:").check()
    /// []
    fn check<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.core.check_open(py)?;
        let findings = py.detach(|| self.core.store.check()).map_err(|error| errors::of_store(py, error))?;
        PyList::new(py, findings.iter().map(ToString::to_string))
    }

    /// Copy the database to a new file while it is in use; the copy equals a snapshot.
    fn backup(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        self.core.check_open(py)?;
        let path = path_of(path)?;
        py.detach(|| self.core.store.backup(std::path::Path::new(&path)))
            .map_err(|error| errors::of_store(py, error))
    }

    /// Rewrite the file without its free space; nobody else may have it open (`Busy`).
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        self.check_writable(py)?;
        let timeout = self.core.timeout;
        py.detach(|| self.core.store.compact(timeout)).map_err(|error| errors::of_store(py, error))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let this = slf.get();
        let Some(path) = &this.path else {
            return Err(errors::type_error(
                "a \":memory:\" database lives in this process and cannot be pickled",
            ));
        };
        let policy = &this.core.policy;
        let arguments = PyDict::new(py);
        let durability = match this.durability {
            Durability::Process => "process",
            Durability::Full => "full",
        };
        arguments.set_item("durability", durability)?;
        arguments.set_item("timeout", this.core.timeout.as_secs_f64())?;
        arguments.set_item("untrusted", this.is_untrusted)?;
        // Whoever unpickles decides anew whether stored values may run code.
        if !policy.is_allow {
            arguments.set_item("pickle", policy.object(py))?;
        }
        let reopen = py.import("pellucid")?.getattr("_reopen")?;
        let path = py.import("os")?.getattr("path")?.getattr("abspath")?.call1((path,))?;
        let arguments =
            PyTuple::new(py, [path, PyString::new(py, word_of(this.mode)).into_any(), arguments.into_any()])?;
        PyTuple::new(py, [reopen, arguments.into_any()])
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if !self.core.gate.is_open() {
            return Ok(format!("<pellucid.Database {}, closed>", self.core.target));
        }
        let tables = self.tables(py)?.len();
        Ok(format!("<pellucid.Database {}, {tables} tables>", self.core.target))
    }

    // The mapping: the default table's own methods.

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.default(py).len()
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.default(py).contains(key)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Table::lookup(self.default(py), key)?.ok_or_else(|| errors::missing(key))
    }

    fn __setitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        crate::put::put(self.default(py), key, value)
    }

    fn __delitem__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.default(py).del_item(key)
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.default(py).try_iter()?.into_any())
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method0("__reversed__")
    }

    fn __eq__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if slf.is(other) {
            return Ok(true.into_pyobject(py)?.to_owned().into_any());
        }
        let other = match other.cast_exact::<Self>() {
            Ok(other) => other.get().default(py).clone().into_any(),
            Err(_) => other.clone(),
        };
        slf.get().default(py).call_method1("__eq__", (other,))
    }

    fn __or__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("__or__", (other,))
    }

    fn __ror__<'py>(&self, py: Python<'py>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("__ror__", (other,))
    }

    fn __ior__(&self, py: Python<'_>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.default(py).call_method1("update", (other,)).map(|_| ())
    }

    /// A live view of the default table's keys; bounds as for `Table.keys`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, *, start=None, stop=None, prefix=None, reverse=False)"
    )]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method("keys", arguments, bounds)
    }

    /// A live view of the default table's values; bounds as for `Table.keys`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, *, start=None, stop=None, prefix=None, reverse=False)"
    )]
    fn values<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method("values", arguments, bounds)
    }

    /// A live view of the default table's items; bounds as for `Table.keys`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, *, start=None, stop=None, prefix=None, reverse=False)"
    )]
    fn items<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method("items", arguments, bounds)
    }

    /// Remove `key` from the default table and return its value; see `Table.pop`.
    #[pyo3(signature = (key, /, *default))]
    fn pop<'py>(
        &self,
        py: Python<'py>,
        key: Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let mut arguments = vec![key];
        arguments.extend(default.iter());
        self.default(py).call_method1("pop", PyTuple::new(py, arguments)?)
    }

    /// Remove the last key of the default table and return it with its value.
    fn popitem<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method0("popitem")
    }

    /// The value under `key` of the default table, which is set to `default` first where there is none.
    #[pyo3(signature = (key, default=None, /))]
    fn setdefault<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("setdefault", (key, default))
    }

    /// Set many keys of the default table in one transaction; see `Table.update`.
    #[pyo3(signature = (*arguments, **more), text_signature = "($self, other=None, /, **more)")]
    fn update(
        &self,
        py: Python<'_>,
        arguments: &Bound<'_, PyTuple>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        self.default(py).call_method("update", arguments, more).map(|_| ())
    }

    /// Remove all rows of the default table, in one transaction.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.default(py).call_method0("clear").map(|_| ())
    }

    /// Many changes of one record of the default table in one commit; see `Table.edit`.
    fn edit<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("edit", (key,))
    }

    /// The value under `key` of the default table, or `default`.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(Table::lookup(self.default(py), key)?.or(default).unwrap_or_else(|| py.None().into_bound(py)))
    }
}

/// A frozen view of a database: a mapping over the default table as it was.
///
/// Its records raise `StaleRecord` once it is closed. A snapshot that stays open keeps the space of
/// what is deleted meanwhile: `db.stats()` shows how far behind the oldest is.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> db["a"] = {"n": 1}
/// >>> with db.snapshot() as before:
/// ...     del db["a"]
/// ...     before["a"].n, len(before), len(db)
/// (1, 1, 0)
#[pyclass(frozen, mapping, module = "pellucid", name = "Snapshot")]
pub struct SnapshotHandle {
    core: Arc<Core>,
    snapshot: GilCell<Option<Snapshot>>,
    gate: GilRc<Gate>,
    default: GilCell<Option<Py<Table>>>,
}

impl SnapshotHandle {
    fn default<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, Table>> {
        let table = self.default.with(py, |table| table.as_ref().map(|table| table.clone_ref(py)));
        table.map(|table| table.into_bound(py)).ok_or_else(|| errors::closed(py, "this snapshot"))
    }

    fn inner(&self, py: Python<'_>) -> PyResult<Snapshot> {
        self.core.check_open(py)?;
        self.snapshot.with(py, |snapshot| snapshot.clone()).ok_or_else(|| errors::closed(py, "this snapshot"))
    }
}

#[pymethods]
impl SnapshotHandle {
    fn __enter__(slf: Py<Self>, py: Python<'_>) -> PyResult<Py<Self>> {
        slf.get().inner(py)?;
        Ok(slf)
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyTuple>) {
        self.close(py);
    }

    /// Let go of the snapshot; its records can then no longer be used. Closing twice does nothing.
    fn close(&self, py: Python<'_>) {
        self.gate.close();
        drop(self.default.with(py, Option::take));
        drop(self.snapshot.with(py, Option::take));
    }

    /// The table `name` as it was; it reads only.
    #[pyo3(signature = (name, /))]
    fn table(&self, py: Python<'_>, name: String) -> PyResult<Py<Table>> {
        let snapshot = self.inner(py)?;
        Py::new(py, Table::of_snapshot(self.core.clone(), name, snapshot, self.gate.clone()))
    }

    /// The names of all tables, sorted.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let tables = self.inner(py)?.tables().map_err(|error| errors::of_store(py, error))?;
        Ok(tables.into_iter().map(|(name, _)| name).collect())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.default(py)?.len()
    }

    fn __contains__(&self, py: Python<'_>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        self.default(py)?.contains(key)
    }

    fn __getitem__<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Table::lookup(&self.default(py)?, key)?.ok_or_else(|| errors::missing(key))
    }

    fn __iter__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.default(py)?.try_iter()?.into_any())
    }

    fn __reversed__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method0("__reversed__")
    }

    /// The value under `key` of the default table, or `default`.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(Table::lookup(&self.default(py)?, key)?.or(default).unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// A live view of the default table's keys; bounds as for `Table.keys`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, *, start=None, stop=None, prefix=None, reverse=False)"
    )]
    fn keys<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("keys", arguments, bounds)
    }

    /// A live view of the default table's values; bounds as for `Table.keys`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, *, start=None, stop=None, prefix=None, reverse=False)"
    )]
    fn values<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("values", arguments, bounds)
    }

    /// A live view of the default table's items; bounds as for `Table.keys`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, *, start=None, stop=None, prefix=None, reverse=False)"
    )]
    fn items<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py)?.call_method("items", arguments, bounds)
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if !self.gate.is_open() {
            return Ok(format!("<pellucid.Snapshot of {}, closed>", self.core.target));
        }
        Ok(format!("<pellucid.Snapshot of {}, version {}>", self.core.target, self.inner(py)?.version()))
    }
}
