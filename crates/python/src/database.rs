//! The class `Database`, which `pellucid.open` returns.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use pellucid_store::{Durability, Mode, Store};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::arguments::{path_of, word_of};
use crate::column;
use crate::core::Core;
use crate::errors;
use crate::hot::callbacks;
use crate::hot::gil::{GilCell, GilRc};
use crate::index::describe::{self, IndexDescription};
use crate::index::handle::Index;
use crate::index::making;
use crate::open;
use crate::signals::Signals;
use crate::snapshot::SnapshotHandle;
use crate::store_errors;
use crate::table::handle::{Table, name_of};
use crate::table::typed::class_of;
use crate::transaction::TransactionContext;
use crate::values::hooks::PicklePolicy;
use crate::values::row::Gate;
use crate::watch::WatchHandle;

/// The name of the table behind the database's own mapping.
const DEFAULT_TABLE: &str = "default";
/// An open database: a mapping over its default table, with other tables beside it.
///
/// It can be shared between threads. A handle can be pickled (unpickling opens the file again) and
/// survives a fork. Use it as a context manager, or call `close()`.
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

fn new_name_of(name: &Bound<'_, PyAny>) -> PyResult<String> {
    errors::name_argument(name, "new_name", "a table")
}

impl Database {
    /// A handle on a store that has just been opened.
    #[allow(clippy::too_many_arguments, reason = "the arguments of open(), resolved")]
    pub fn new(
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
            .map_err(|error| store_errors::of_store(py, error))?;
        let default = Py::new(py, Table::by_name(core.clone(), DEFAULT_TABLE))?;
        let snapshots = GilCell::new(Vec::new());
        Py::new(py, Self { core, default, mode, durability, path, is_untrusted, snapshots })
    }

    /// The table behind the database's own mapping.
    pub fn default<'py>(&self, py: Python<'py>) -> &Bound<'py, Table> {
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

    /// Close the database. Its records, tables and snapshots can no longer be used.
    ///
    /// Closing twice does nothing. A running transaction is rolled back. `DatabaseWarning` says how
    /// much room the disk lacks for the log, which then stays beside the file and belongs to it.
    /// `LostCommitsWarning` says that commits are lost, since the file was deleted or replaced
    /// while it was open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.core.gate.is_open() {
            return Ok(());
        }
        if self.core.is_mine(py) {
            self.core.end(py, false)?;
        }
        // Another thread's transaction goes on to its end, and is rolled back there (`Core::end`).
        self.core.close_gates(py);
        for gate in self.snapshots.with(py, std::mem::take) {
            gate.close();
        }
        match self.core.without_hold(py, || callbacks::released(py, || self.core.store.close())) {
            Some(warning) => open::warn(py, &warning),
            None => Ok(()),
        }
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

    /// Return the table `name`; the first write creates it.
    ///
    /// With `type`, rows are returned as instances of that class (a dataclass, `NamedTuple`, Enum,
    /// attrs or pydantic class or msgspec Struct), whole and detached. Annotations give the classes
    /// of its fields: `list[Pet]`, `dict[str, Pet]`, `Pet | None`. Only instances of exactly that
    /// class can be stored (`WrongClass`). To save a changed one, assign it again, or use `edit`.
    ///
    /// A stored instance was initialised before it was stored. So its fields are set as they are:
    /// neither `__init__` nor `__post_init__`, converters or validators run again. With
    /// `run_init=True`, each read calls the class with the stored fields, and they do run.
    ///
    /// >>> import dataclasses, pellucid
    /// >>> @dataclasses.dataclass
    /// ... class Person:
    /// ...     name: str
    /// >>> people = pellucid.open(":memory:").table("people", type=Person)
    /// >>> people[1] = Person("Ann")
    /// >>> people[1]
    /// Person(name='Ann')
    /// >>> with people.edit(1) as ann:
    /// ...     ann.name = "Anna"
    /// >>> people[1]
    /// Person(name='Anna')
    #[pyo3(signature = (name, /, *, r#type=None, run_init=false))]
    fn table(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name_of)] name: String,
        r#type: Option<&Bound<'_, PyAny>>,
        run_init: bool,
    ) -> PyResult<Py<Table>> {
        self.core.check_open(py)?;
        Py::new(py, Table::new(py, self.core.clone(), name, class_of(r#type, run_init)?))
    }

    /// Return the names of all tables, sorted.
    fn tables(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let tables = if self.core.is_mine(py) {
            self.core.in_running(py, |transaction| transaction.tables())?
        } else {
            self.core.snapshot(py)?.tables().map_err(|error| store_errors::of_store(py, error))?
        };
        Ok(tables.into_iter().map(|(name, _)| name).collect())
    }

    /// Delete a table with all its rows; raises `KeyError` if there is none of that name.
    ///
    /// Handles on the table raise `StaleTable` from then on, even if a new table gets the name.
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> log = db.table("log")
    /// >>> log["a"] = 1
    /// >>> db.drop_table("log")
    /// >>> log["b"] = 2
    /// Traceback (most recent call last):
    /// pellucid.errors.StaleTable: table 'log' has been dropped since it was opened; ...
    /// >>> len(db.table("log"))
    /// 0
    fn drop_table(&self, py: Python<'_>, #[pyo3(from_py_with = name_of)] name: String) -> PyResult<()> {
        self.check_writable(py)?;
        let mut signals = Signals::new();
        self.core
            .unname(py, &name, |transaction| transaction.drop_table_while(&name, &mut || signals.go_on()))
    }

    /// Rename a table. Raises `KeyError` if the old name does not exist, `ValueError` if the new
    /// one does. Handles on the table and its records stay valid, in other processes too.
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> people = db.table("people")
    /// >>> people["ann"] = {"age": 30}
    /// >>> db.rename_table("people", "persons")
    /// >>> people.name, people["ann"].age, len(db.table("people"))
    /// ('persons', 30, 0)
    fn rename_table(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name_of)] name: String,
        #[pyo3(from_py_with = new_name_of)] new_name: String,
    ) -> PyResult<()> {
        self.check_writable(py)?;
        self.core.unname(py, &name, |transaction| transaction.rename_table(&name, &new_name))
    }

    /// Return a context manager for a transaction: all of its writes or none; inside one, a
    /// savepoint.
    fn transaction(&self, py: Python<'_>) -> PyResult<TransactionContext> {
        self.check_writable(py)?;
        Ok(TransactionContext::new(self.core.clone()))
    }

    /// Return a frozen, consistent view of the whole database, as a context manager.
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
        let table = Table::of_snapshot(
            self.core.clone(),
            DEFAULT_TABLE.to_owned(),
            None,
            snapshot.clone(),
            gate.clone(),
        );
        let default = Py::new(py, table)?;
        Py::new(py, SnapshotHandle::new(self.core.clone(), snapshot, gate, default))
    }

    /// Return an iterator over committed changes of all processes, from now on or since a version.
    ///
    /// It gives, in commit order, a `Change` for each row put or deleted, and for each table
    /// cleared, created, dropped or renamed. It waits for the next one, and ends if none comes
    /// within `timeout` seconds. It begins after the version `since`: `snapshot.version`,
    /// `watch.version`, or `change.version` of a change that `is_last`. Raises `HistoryGone` if
    /// changes since are no longer kept (`keep=` of `pellucid.open`). A slow watch makes no writer
    /// wait.
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> db["ann"] = {"age": 30}
    /// >>> with db.snapshot() as snap:
    /// ...     seen, version = dict(snap), snap.version
    /// >>> db["ann"].age += 1
    /// >>> del db["ann"]
    /// >>> [(change.kind, change.key, change.value) for change in db.watch(since=version, timeout=0)]
    /// [('put', 'ann', {'age': 31}), ('delete', 'ann', None)]
    #[pyo3(signature = (*, since=None, timeout=None))]
    fn watch(
        &self,
        py: Python<'_>,
        since: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<WatchHandle>> {
        WatchHandle::new(py, &self.core, None, since, timeout)
    }

    /// Make all commits so far durable, so that they survive a power cut.
    ///
    /// Raises `DatabaseError` if the disk does not accept them, or if the file was deleted or
    /// replaced while it was open; in that case, `backup` saves the data.
    fn sync(&self, py: Python<'_>) -> PyResult<()> {
        self.core.check_open(py)?;
        callbacks::released(py, || self.core.store.sync()).map_err(|error| store_errors::of_store(py, error))
    }

    /// Return statistics of the database, as a dict of ints. Sizes are in bytes, all other figures
    /// are counts. Figures about the file are 0 for ":memory:".
    ///
    ///     version             the newest version of the data, which grows with each commit
    ///     tables              tables
    ///     rows                rows, in all tables
    ///     indexes             indexes, of all tables
    ///     index_entries       entries, in all indexes
    ///     entry_writes        entries written or deleted by this process since opening
    ///     blobs               large values stored outside of their records
    ///     shapes              lists of field names that records share; their number only grows
    ///     file_size           size of the file
    ///     page_size           size of a page of the file
    ///     pages               pages up to the last one in use
    ///     free_pages          pages among them that are empty and will be reused
    ///     map_size            address space reserved for the file; takes no memory and no disk
    ///     log_pending         commits in the log that are not in the file yet, in bytes
    ///     history_size        changes kept for watches, by `keep=`, in bytes
    ///     log_recovered       commits of a process that died, found in the log on opening
    ///     readers             reader slots in use now, in all processes: 1 or 2 with nothing open,
    ///                         as stats() takes one and a process keeps one between checkpoints
    ///     reader_slots        reader slots of the file
    ///     oldest_reader_lag   checkpoints the oldest reader is behind; pages freed since are kept
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> db["a"] = 1
    /// >>> db.stats()["rows"]
    /// 1
    fn stats<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        self.core.check_open(py)?;
        let stats = self.core.store.stats().map_err(|error| store_errors::of_store(py, error))?;
        crate::report::stats(py, &stats)
    }

    /// Read and check the whole database; return a list of the problems found, or an empty one.
    ///
    /// >>> import pellucid
    /// >>> pellucid.open(":memory:").check()
    /// []
    fn check<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        self.core.check_open(py)?;
        let mut signals = Signals::new();
        let findings = callbacks::released(py, || self.core.store.check_while(&mut || signals.go_on()));
        let findings = findings.map_err(|error| store_errors::of_store(py, error))?;
        PyList::new(py, crate::report::findings(py, &self.core, &findings))
    }

    /// Copy the database to a new file while it is in use; the copy equals a snapshot. If Ctrl-C
    /// interrupts it, there is no new file.
    fn backup(&self, py: Python<'_>, path: &Bound<'_, PyAny>) -> PyResult<()> {
        self.core.check_open(py)?;
        let path = path_of(path)?;
        let mut signals = Signals::new();
        callbacks::released(py, || {
            self.core.store.backup_while(std::path::Path::new(&path), &mut || signals.go_on())
        })
        .map_err(|error| store_errors::of_store(py, error))
    }

    /// Rewrite the file without its free space. Raises `Busy` if the file is open anywhere else. If
    /// Ctrl-C interrupts it, the file stays as it was.
    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        self.check_writable(py)?;
        let (timeout, mut signals) = (self.core.timeout, Signals::new());
        let mut compact =
            || callbacks::released(py, || self.core.store.compact_while(timeout, &mut || signals.go_on()));
        self.core.without_hold(py, &mut compact).map_err(|error| store_errors::of_store(py, error))
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
        // The program that unpickles must decide anew whether stored values may run code.
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
        let text = self
            .tables(py)
            .map(|tables| errors::counted(tables.len(), "table"))
            .map(|tables| format!("<pellucid.Database {}, {tables}>", self.core.target));
        errors::shown(py, "pellucid.Database", text)
    }

    // The mapping: methods of the default table.

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
        crate::put::write::put(self.default(py), key, value)
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

    /// Return a live view of the default table's keys. Bounds are as for `Table.keys`.
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

    /// Return a live view of the default table's values. Bounds are as for `Table.keys`.
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

    /// Return a live view of the default table's items. Bounds are as for `Table.keys`.
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

    /// Return the value of `key` in the default table; if there is none, set it to `default` first.
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

    /// Remove all rows of the default table in one transaction.
    fn clear(&self, py: Python<'_>) -> PyResult<()> {
        self.default(py).call_method0("clear").map(|_| ())
    }

    /// Edit one record of the default table in a block, with one commit; see `Table.edit`.
    fn edit<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("edit", (key,))
    }

    /// Store a value in the default table under the next int, its new key; see `Table.append`.
    fn append<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<i64> {
        crate::put::write::append(self.default(py), value)
    }

    /// Append all values to the default table in one transaction; see `Table.extend`.
    fn extend<'py>(&self, py: Python<'py>, values: &Bound<'py, PyAny>) -> PyResult<usize> {
        crate::put::write::extend(self.default(py), values)
    }

    /// Return an iterator over the values of the default table in a range; see `Table.range`.
    #[pyo3(
        signature = (*arguments, **bounds),
        text_signature = "($self, start=None, stop=None, *, prefix=None, reverse=False)"
    )]
    fn range<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        bounds: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method("range", arguments, bounds)
    }

    /// Return the first key of the default table and its value; None if the table is empty.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method0("first")
    }

    /// Return the last key of the default table and its value; None if the table is empty.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method0("last")
    }

    /// Create an index of the default table; see `Table.create_index`.
    #[pyo3(signature = (name, parts, *, unique=false, r#where=None, progress=None))]
    fn create_index(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        parts: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = errors::unique_flag)] unique: bool,
        r#where: Option<&Bound<'_, PyAny>>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        making::create(self.default(py), &making::name_of(name)?, parts, unique, r#where, progress)
    }

    /// Remove an index of the default table; see `Table.drop_index`.
    fn drop_index(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<()> {
        making::drop_index(self.default(py), &making::name_of(name)?)
    }

    /// Make all entries of an index of the default table anew; see `Table.rebuild_index`.
    #[pyo3(signature = (name, *, progress=None))]
    fn rebuild_index(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyAny>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        making::rebuild(self.default(py), &making::name_of(name)?, progress)
    }

    /// Return the indexes of the default table by name; see `Table.indexes`.
    fn indexes(&self, py: Python<'_>) -> PyResult<Vec<IndexDescription>> {
        describe::all(self.default(py))
    }

    /// Return the index of this name of the default table; see `Table.index`.
    fn index(&self, py: Python<'_>, name: &Bound<'_, PyAny>) -> PyResult<Index> {
        Index::new(self.default(py), making::name_of(name)?)
    }

    /// Return the rows of the default table that fulfil all these conditions; see `Table.where`.
    #[pyo3(signature = (*conditions, **fields), text_signature = "($self, *conditions)")]
    fn r#where<'py>(
        &self,
        py: Python<'py>,
        conditions: &Bound<'py, PyTuple>,
        fields: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method("where", conditions, fields)
    }

    /// Return the rows of the default table whose fields equal these values; see `Table.find`.
    #[pyo3(signature = (*arguments, **fields), text_signature = "($self, **fields)")]
    fn find<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        fields: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method("find", arguments, fields)
    }

    /// Return the rows of the default table that a function accepts; see `Table.filter`.
    fn filter<'py>(&self, py: Python<'py>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("filter", (function,))
    }

    /// Return the rows of the default table in an order; see `Table.order_by`.
    #[pyo3(signature = (*expressions, **keywords), text_signature = "($self, *expressions)")]
    fn order_by<'py>(
        &self,
        py: Python<'py>,
        expressions: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method("order_by", expressions, keywords)
    }

    /// Return the first rows of the default table; see `Table.limit`.
    fn limit<'py>(&self, py: Python<'py>, count: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("limit", (count,))
    }

    /// Return the rows of the default table without the first ones; see `Table.offset`.
    fn offset<'py>(&self, py: Python<'py>, count: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("offset", (count,))
    }

    /// Return the rows of the default table as a list; see `Table.to_list`.
    fn to_list<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method0("to_list")
    }

    /// Return the rows of the default table as plain dicts; see `Table.to_dicts`.
    fn to_dicts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method0("to_dicts")
    }

    /// Return dicts of expressions over the default table; see `Table.select`.
    #[pyo3(signature = (*expressions, **named))]
    fn select<'py>(
        &self,
        py: Python<'py>,
        expressions: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method("select", expressions, named)
    }

    /// Return the rows of the default table in groups; see `Table.group_by`.
    #[pyo3(signature = (*expressions, **named))]
    fn group_by<'py>(
        &self,
        py: Python<'py>,
        expressions: &Bound<'py, PyTuple>,
        named: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method("group_by", expressions, named)
    }

    /// Return aggregates of all rows of the default table; see `Table.agg`.
    #[pyo3(signature = (*arguments, **aggregates), text_signature = "($self, **aggregates)")]
    fn agg<'py>(
        &self,
        py: Python<'py>,
        arguments: &Bound<'py, PyTuple>,
        aggregates: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method("agg", arguments, aggregates)
    }

    /// Return the rows of the default table as columns; see `Table.to_arrow`.
    fn to_arrow<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method0("to_arrow")
    }

    /// Return `to_arrow()` to a library that asks for it: `polars.DataFrame(db)`.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        &self,
        py: Python<'py>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// Return the rows of the default table as a polars DataFrame.
    fn to_polars<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method0("to_polars")
    }

    /// Return the rows of the default table as a pandas DataFrame.
    fn to_pandas<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method0("to_pandas")
    }

    /// Return a field of all rows of the default table as a NumPy array; see `Table.to_numpy`.
    fn to_numpy<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("to_numpy", (path,))
    }

    /// Return the sum of the numbers at a field path of the default table; see `Table.sum`.
    fn sum<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        column::sum(self.default(py), path)
    }

    /// Return the least value at a field path of the default table; see `Table.min`.
    fn min<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        column::least(self.default(py), path)
    }

    /// Return the greatest value at a field path of the default table; see `Table.max`.
    fn max<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        column::greatest(self.default(py), path)
    }

    /// Return the mean of the numbers at a field path of the default table; see `Table.mean`.
    fn mean<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        column::mean(self.default(py), path)
    }

    /// Return how many rows of the default table have a value at a field path; see `Table.count`.
    #[pyo3(signature = (path=None))]
    fn count<'py>(&self, py: Python<'py>, path: Option<&Bound<'py, PyAny>>) -> PyResult<Bound<'py, PyAny>> {
        self.default(py).call_method1("count", (path,))
    }

    /// Return the values at a field path of all rows of the default table; see `Table.column`.
    fn column<'py>(&self, py: Python<'py>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        column::column(self.default(py), path)
    }

    /// Return the value of `key` in the default table, or `default`.
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
