//! The class `Database`, which `pellucid.open` returns.

use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use pellucid_store::{Durability, MEMORY_USUAL, Mode, Store};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyString, PyTuple};

use crate::arguments::{
    compress_flag, fast_flag, ignore_extra_flag, path_of, run_init_flag, validate_flag, word_of,
};
use crate::core::Core;
use crate::errors;
use crate::hot::callbacks;
use crate::hot::gil::{GilCell, GilRc};
use crate::open;
use crate::progress::{Entries, Pages};
use crate::signals::Signals;
use crate::snapshot::SnapshotHandle;
use crate::store_errors;
use crate::table::handle::{SharedSnapshot, Table, name_of};
use crate::table::typed::{Evolution, class_of};
use crate::table::unreadable::pickles_of;
use crate::transaction::{self, TransactionContext};
use crate::unclosed;
use crate::values::hooks::PicklePolicy;
use crate::values::row::ValidityFlag;
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
#[pyclass(frozen, mapping, weakref, module = "pellucid", name = "Database")]
pub struct Database {
    core: Arc<Core>,
    default: Py<Table>,
    mode: Mode,
    durability: Durability,
    path: Option<OsString>,
    /// The same, and independent of the current folder.
    absolute_path: Option<OsString>,
    is_untrusted: bool,
    snapshots: GilCell<Vec<GilRc<ValidityFlag>>>,
}

fn new_name_of(name: &Bound<'_, PyAny>) -> PyResult<String> {
    errors::name_argument(name, "new_name", "a table")
}

impl Database {
    /// A handle on a store that has just been opened. `paths` are the path as it was given, and the
    /// absolute one.
    #[allow(clippy::too_many_arguments, reason = "the arguments of open(), resolved")]
    pub fn new(
        py: Python<'_>,
        store: Store,
        policy: PicklePolicy,
        timeout: Duration,
        paths: Option<(OsString, OsString)>,
        mode: Mode,
        durability: Durability,
        is_untrusted: bool,
    ) -> PyResult<Py<Self>> {
        let (path, absolute_path) = paths.unzip();
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
        open::offer_encoders(py)?;
        // One in memory has nothing to close.
        let opened_at = path.as_ref().and_then(|_| unclosed::opened_at(py));
        let core = Core::new(store, policy, timeout, format!("{target:?}"), read_only, opened_at)
            .map_err(|error| store_errors::of_store(py, error))?;
        let default = Py::new(py, Table::by_name(core.clone(), DEFAULT_TABLE))?;
        let snapshots = GilCell::new(Vec::new());
        Py::new(py, Self { core, default, mode, durability, path, absolute_path, is_untrusted, snapshots })
    }

    /// The table behind the database's own mapping.
    pub fn default<'py>(&self, py: Python<'py>) -> &Bound<'py, Table> {
        self.default.bind(py)
    }

    fn check_writable(&self, py: Python<'_>) -> PyResult<()> {
        self.default.get().check_writable(py)
    }

    fn compact_online(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let mut pages = Pages::new(progress)?;
        let timeout = self.core.timeout;
        let mut go_on = |count: u64, wanted: u64| pages.go_on(count, wanted);
        let mut compact = || callbacks::released(py, || self.core.store.compact_online(timeout, &mut go_on));
        let done = self.core.without_cached(py, &mut compact);
        pages.end(done.map_err(|error| store_errors::of_store(py, error)))
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
    /// Closing twice does nothing. A running transaction is rolled back. If the disk has no room to
    /// move the log into the file, `DatabaseWarning` says how much is needed: the log then stays
    /// beside the file, and the two belong together. If the file was deleted or replaced while it
    /// was open, `LostCommitsWarning` says that commits are lost. What still uses it, such as an
    /// iterator or a buffer, keeps the log beside the file, which has everything nonetheless.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.core.validity.is_open() {
            return Ok(());
        }
        if self.core.is_mine(py) {
            self.core.end(py, false)?;
        }
        // A transaction of another thread goes on to its end, where it is rolled back
        // (`Core::end`).
        self.core.close_gates(py);
        for validity in self.snapshots.with(py, std::mem::take) {
            validity.close();
        }
        match self.core.without_cached(py, || callbacks::released(py, || self.core.store.close())) {
            Some(warning) => open::warn(py, &warning),
            None => Ok(()),
        }
    }

    /// Whether the database has been closed.
    #[getter]
    fn closed(&self) -> bool {
        !self.core.validity.is_open()
    }

    /// The path of the file; None for ":memory:".
    #[getter]
    fn path(&self) -> Option<OsString> {
        self.path.clone()
    }

    /// Return the table `name`; the first write creates it.
    ///
    /// With `type`, rows are returned as instances of that class (a dataclass, `NamedTuple`, Enum,
    /// attrs or pydantic class or msgspec Struct), built whole and detached, instead of as records.
    /// The annotations of the class apply to its fields, too: `list[Pet]`, `dict[str, Pet]`,
    /// `Pet | None`. Such a table stores only instances of exactly that class (`WrongClass`). To
    /// save a changed instance, assign it again, or use `edit`.
    ///
    /// A stored instance was initialised before it was stored. So its fields are set as they are:
    /// neither `__init__` nor `__post_init__`, converters or validators run again. With
    /// `run_init=True`, each read calls the class with the stored fields, and they do run.
    ///
    /// With `type=object`, rows are any Python objects, and come back exactly as they were: plain
    /// dicts and lists instead of records, and instances of any class, through pickle where the
    /// format does not hold them and `pickle=` allows it. An object in which a mutable part occurs
    /// twice is then pickled as a whole. With `fast=True`, nothing looks for such parts, as with
    /// `pickle.Pickler.fast`: each occurrence is a copy, and an object that contains itself raises.
    ///
    /// The class may change later. A field that a row lacks gets its default. `ignore_extra=True`
    /// reads rows with fields that the class does not have, without these, and
    /// `renames={"old": "new"}` reads a field under its old name, too. With `validate=True`, a
    /// write is refused if a value is not what the annotation of its field says: by these, and of
    /// pydantic by its own rules. `Table.conform` lists the rows that do not fit.
    ///
    /// With `compress=True`, the first write creates the table as a compressed one: its rows take
    /// about half of the room, and reading them takes somewhat longer. A table keeps what it was
    /// created with: `ValueError` if it exists and is not what `compress` says. Without `compress`,
    /// a table is opened as it is, and created without compression.
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
    #[pyo3(signature = (
        name, /, *, r#type=None, run_init=false, fast=false, validate=false, ignore_extra=false, renames=None, compress=None
    ))]
    #[allow(
        clippy::too_many_arguments,
        clippy::fn_params_excessive_bools,
        reason = "they are what a user may say"
    )]
    fn table(
        &self,
        py: Python<'_>,
        #[pyo3(from_py_with = name_of)] name: String,
        r#type: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = run_init_flag)] run_init: bool,
        #[pyo3(from_py_with = fast_flag)] fast: bool,
        #[pyo3(from_py_with = validate_flag)] validate: bool,
        #[pyo3(from_py_with = ignore_extra_flag)] ignore_extra: bool,
        renames: Option<Bound<'_, PyAny>>,
        #[pyo3(from_py_with = compress_flag)] compress: Option<bool>,
    ) -> PyResult<Py<Table>> {
        self.core.check_open(py)?;
        let class = class_of(r#type, run_init, fast, &Evolution { validate, ignore_extra, renames })?;
        Py::new(py, Table::new(py, self.core.clone(), name, class, compress)?)
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

    /// Rename a table. Raises `KeyError` if there is none of the old name, and `ValueError` if
    /// there is one of the new name. Handles on the table and its records stay valid, in other
    /// processes too.
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

    /// Return a transaction, as a context manager: all of its writes are stored, or none. Inside of
    /// another transaction, it is a savepoint.
    ///
    /// The rows of a large transaction are gathered, and merged into their tables when it ends or
    /// reads them. `progress` is called with the number of rows merged and of rows to merge, at
    /// most ten times a second. What it raises ends the merge, and the transaction with it if it is
    /// at its end.
    #[pyo3(signature = (*, progress=None))]
    fn transaction(
        &self,
        py: Python<'_>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<TransactionContext> {
        self.check_writable(py)?;
        errors::check_progress(progress, "rows")?;
        open::warn_of_new(py, &self.core.store)?;
        let progress = progress.map(|function| function.clone().unbind());
        Ok(TransactionContext::with_progress(self.core.clone(), progress))
    }

    /// Call a function in a transaction, and return what it returns. What it raises rolls the
    /// transaction back.
    ///
    /// On a server, the function is called again if another client was in the way, so code that
    /// uses `run` is right in a file and on a server.
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> db["a"] = {"n": 0}
    /// >>> def count():
    /// ...     db["a"].n += 1
    /// ...     return db["a"].n
    /// >>> db.run(count)
    /// 1
    #[pyo3(signature = (function, /))]
    fn run<'py>(&self, py: Python<'py>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        self.check_writable(py)?;
        transaction::run(py, &self.core, function)
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
        let snapshot = self.core.kept_snapshot(py)?;
        open::warn_of_new(py, &self.core.store)?;
        let (snapshot, validity) = (SharedSnapshot::new(snapshot), ValidityFlag::new());
        self.snapshots.with(py, |snapshots| {
            snapshots.retain(|validity| GilRc::owner_count(validity) > 1);
            snapshots.push(validity.clone());
        });
        let table = Table::of_snapshot(
            self.core.clone(),
            DEFAULT_TABLE.to_owned(),
            None,
            snapshot.clone(),
            validity.clone(),
        );
        let default = Py::new(py, table)?;
        Py::new(py, SnapshotHandle::new(self.core.clone(), snapshot, validity, default))
    }

    /// Return an iterator over the changes that any process commits, in the order of the commits:
    /// from now on, or since a version.
    ///
    /// It gives a `Change` for each row that was put or deleted, and for each table that was
    /// cleared, created, dropped or renamed. It waits for the next change, and ends if none comes
    /// within `timeout` seconds. It begins after the version `since`, which can be
    /// `snapshot.version`, the `change.version` of a change that `is_last`, or `watch.version`.
    /// Raises `HistoryGone` if the changes since then are not all kept any more; `keep=` of
    /// `pellucid.open` says how long they are kept. A slow watch makes no writer wait.
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
        open::warn_of_new(py, &self.core.store)?;
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
    ///     log_size            size of the log on the disk
    ///     log_limit           the size to which the log may grow now: see `memory=` of `open`
    ///     history_size        changes kept for watches, by `keep=`, in bytes
    ///     log_recovered       commits of a process that died, found in the log on opening
    ///     readers             reader slots in use now, in all processes: 1 or 2 with nothing open,
    ///                         as stats() takes one and a process keeps one between checkpoints
    ///     reader_slots        reader slots of the file
    ///     oldest_reader_lag   versions of the file (checkpoints) that the oldest reader is behind;
    ///                         pages freed since then cannot be reused
    ///     oldest_reader_process  the process of that reader; 0 if it is behind none,
    ///                         or may only read the file
    ///     oldest_reader_age   for how many seconds that reader has been open
    ///     live_size           pages that the newest version of the file has, in bytes
    ///     free_size           free pages that will be reused, in bytes
    ///     pinned_size         free pages that cannot be reused before older readers end, in bytes
    ///
    /// With `pickles=True`, all rows are read, and there is one figure more:
    ///
    ///     pickles             values that were stored as pickles, in all tables
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> db["a"] = 1
    /// >>> db.stats()["rows"]
    /// 1
    #[pyo3(signature = (*, pickles=false))]
    fn stats<'py>(&self, py: Python<'py>, pickles: bool) -> PyResult<Bound<'py, PyDict>> {
        self.core.check_open(py)?;
        let stats = self.core.store.stats().map_err(|error| store_errors::of_store(py, error))?;
        let result = crate::report::stats(py, &stats)?;
        if pickles {
            result.set_item("pickles", pickles_of(py, &self.core)?)?;
        }
        Ok(result)
    }

    /// Read and check the whole database; return a list of the problems found, which is empty if
    /// there are none. `progress` is called now and then with the number of entries that are done,
    /// and about how many there are.
    ///
    /// >>> import pellucid
    /// >>> pellucid.open(":memory:").check()
    /// []
    #[pyo3(signature = (*, progress=None))]
    fn check<'py>(
        &self,
        py: Python<'py>,
        progress: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyList>> {
        self.core.check_open(py)?;
        // Once as entries, and once more with the row of each.
        let mut entries = Entries::new(progress, &self.core.store, 3)?;
        let findings = callbacks::released(py, || self.core.store.check_while(&mut || entries.go_on()));
        let findings = entries.end(findings.map_err(|error| store_errors::of_store(py, error)))?;
        PyList::new(py, crate::report::findings(py, &self.core, &findings))
    }

    /// Copy the database to a new file while it is in use; the copy equals a snapshot. If Ctrl-C
    /// interrupts it, there is no new file. `progress` is called as by `check`.
    ///
    /// With `overwrite=True`, the copy takes the place of a database that is there, once it is
    /// complete. That must be a database that no process has open; else `Busy` is raised.
    #[pyo3(signature = (path, *, overwrite=false, progress=None))]
    fn backup(
        &self,
        py: Python<'_>,
        path: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = errors::overwrite_flag)] overwrite: bool,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        self.core.check_open(py)?;
        let path = path_of(path)?;
        let mut entries = Entries::new(progress, &self.core.store, 1)?;
        let made = callbacks::released(py, || {
            self.core.store.backup_while(std::path::Path::new(&path), overwrite, &mut || entries.go_on())
        });
        entries.end(made.map_err(|error| store_errors::of_store(py, error)))
    }

    /// Rewrite the file without its free space. Raises `Busy` if the file is open anywhere else. If
    /// Ctrl-C interrupts it, the file stays as it was. `progress` is called as by `check`.
    ///
    /// With `online=True` the file is made shorter in small steps, while this and other processes
    /// use it: its last pages are moved to free pages. Pages that a snapshot sees stay where they
    /// are. `progress` gets the pages that were saved, and those that can be.
    #[pyo3(signature = (*, online=false, progress=None))]
    fn compact(&self, py: Python<'_>, online: bool, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        self.check_writable(py)?;
        if online {
            if self.core.is_mine(py) {
                let now = "call compact(online=True) after the block of the transaction";
                return Err(errors::raise(py, "TransactionError", now));
            }
            return self.compact_online(py, progress);
        }
        let mut entries = Entries::new(progress, &self.core.store, 1)?;
        let timeout = self.core.timeout;
        let mut compact =
            || callbacks::released(py, || self.core.store.compact_while(timeout, &mut || entries.go_on()));
        let done = self.core.without_cached(py, &mut compact);
        entries.end(done.map_err(|error| store_errors::of_store(py, error)))
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyTuple>> {
        let py = slf.py();
        let this = slf.get();
        let Some(path) = &this.absolute_path else {
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
        let memory = this.core.store.options().memory;
        if memory != MEMORY_USUAL {
            arguments.set_item("memory", memory)?;
        }
        if !this.core.store.options().auto_compact {
            arguments.set_item("auto_compact", false)?;
        }
        // The program that unpickles must decide anew whether stored values may run code.
        if !policy.is_allow {
            arguments.set_item("pickle", policy.object(py))?;
        }
        let reopen = py.import("pellucid")?.getattr("_reopen")?;
        let path = path.into_pyobject(py)?.into_any();
        let arguments =
            PyTuple::new(py, [path, PyString::new(py, word_of(this.mode)).into_any(), arguments.into_any()])?;
        PyTuple::new(py, [reopen, arguments.into_any()])
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        if !self.core.validity.is_open() {
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

    /// Store a value in the default table under the next int, and return that; see `Table.append`.
    fn append<'py>(&self, py: Python<'py>, value: &Bound<'py, PyAny>) -> PyResult<i64> {
        crate::put::write::append(self.default(py), value)
    }

    /// Append all values to the default table in one transaction; see `Table.extend`.
    fn extend<'py>(&self, py: Python<'py>, values: &Bound<'py, PyAny>) -> PyResult<usize> {
        crate::put::write::extend(self.default(py), values)
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
