//! The Python methods of `Table`.

use crate::arguments;
use crate::arrow::{self, ArrowStream};
use crate::bounds::Bounds;
use crate::errors;
use crate::index::describe::IndexDescription;
use crate::index::handle::Index;
use crate::index::making;
use crate::look;
use crate::put::write;
use crate::query;
use crate::query::group::Groups;
use crate::query::handle::{Query, of_table};
use crate::report;
use crate::table::buffer::buffer;
use crate::table::edit::EditContext;
use crate::table::file;
use crate::table::handle::Table;
use crate::table::increment::increment;
use crate::table::reading::{Range, storable};
use crate::table::verbs;
use crate::transaction;
use crate::values::views::{DictItems, DictKeys, DictValues, Shows};
use crate::watch::WatchHandle;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyMemoryView, PyTuple, PyType};

#[pymethods]
impl Table {
    // For `Table[Person]` in an annotation that Python evaluates.
    #[classmethod]
    fn __class_getitem__<'py>(
        cls: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, item))
    }

    /// The table's name. `Database.rename_table` changes it, and the handle follows the table.
    #[getter(name)]
    fn get_name(&self, py: Python<'_>) -> PyResult<String> {
        if self.validity().is_open() {
            self.id(py)?;
        }
        Ok(self.name(py).to_string())
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        self.len(py)
    }

    fn __contains__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<bool> {
        match storable(key)? {
            Some(key) => slf.get().has(slf.py(), &key),
            None => slf.get().snapshot(slf.py()).map(|_| false),
        }
    }

    fn __getitem__<'py>(slf: &Bound<'py, Self>, key: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Self::lookup(slf, key)?.ok_or_else(|| errors::missing(key))
    }

    fn __setitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>, value: &Bound<'_, PyAny>) -> PyResult<()> {
        write::put(slf, key, value)
    }

    fn __delitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.get().check_writable(slf.py())?;
        match storable(key)? {
            Some(found) if write::delete(slf, &found)? => Ok(()),
            _ => Err(errors::missing(key)),
        }
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::iterate(slf, &Bounds::all(), Shows::Keys, false)
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::iterate(slf, &Bounds::all(), Shows::Keys, true)
    }

    /// Return the value of `key`, or `default`.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(Self::lookup(slf, key)?.or(default).unwrap_or_else(|| slf.py().None().into_bound(slf.py())))
    }

    /// Return a live view of the keys: of all, or of those from `start` on, below `stop`, or
    /// beginning with `prefix`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn keys(
        slf: &Bound<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = errors::reverse_flag)] reverse: bool,
    ) -> PyResult<Py<DictKeys>> {
        let bounds = Bounds::new(&slf.get().name(slf.py()), start, stop, prefix, reverse)?;
        DictKeys::of(slf.py(), Range(slf.clone().unbind(), bounds))
    }

    /// Return a live view of the values, in the order of the keys. Bounds are as for `keys`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn values(
        slf: &Bound<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = errors::reverse_flag)] reverse: bool,
    ) -> PyResult<Py<DictValues>> {
        let bounds = Bounds::new(&slf.get().name(slf.py()), start, stop, prefix, reverse)?;
        DictValues::of(slf.py(), Range(slf.clone().unbind(), bounds))
    }

    /// Return a live view of pairs of key and value. Bounds are as for `keys`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn items(
        slf: &Bound<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = errors::reverse_flag)] reverse: bool,
    ) -> PyResult<Py<DictItems>> {
        let bounds = Bounds::new(&slf.get().name(slf.py()), start, stop, prefix, reverse)?;
        DictItems::of(slf.py(), Range(slf.clone().unbind(), bounds))
    }

    /// Return an iterator over the values whose keys lie in a range. Bounds are as for `keys`.
    ///
    /// None for `start` or `stop` leaves that side open.
    ///
    /// >>> import pellucid
    /// >>> table = pellucid.open(":memory:").table("log")
    /// >>> table.update({("a", 1): "x", ("a", 2): "y", ("b", 1): "z"})
    /// >>> list(table.range(prefix=("a",)))
    /// ['x', 'y']
    #[pyo3(signature = (start=None, stop=None, *, prefix=None, reverse=false))]
    fn range<'py>(
        slf: &Bound<'py, Self>,
        start: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'py, PyAny>>,
        prefix: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = errors::reverse_flag)] reverse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bounds = Bounds::new(&slf.get().name(slf.py()), start, stop, prefix, reverse)?;
        Self::iterate(slf, &bounds, Shows::Values, false)
    }

    /// Return the first key and its value; None if the table is empty.
    fn first<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        Self::edge(slf, false)
    }

    /// Return the last key and its value; None if the table is empty.
    fn last<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        Self::edge(slf, true)
    }

    /// Store a value under the next int, and return that key. It is one more than the greatest
    /// number that is, or ever was, a key.
    ///
    /// >>> import pellucid
    /// >>> log = pellucid.open(":memory:").table("log")
    /// >>> log.append("a"), log.append("b")
    /// (0, 1)
    /// >>> del log[1]
    /// >>> log.append("c")
    /// 2
    fn append<'py>(slf: &Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Ok(write::append(slf, value)?.into_pyobject(slf.py())?.into_any())
    }

    /// Append all values in one transaction, and return how many there were.
    ///
    /// Columns are stored as rows by native code: any Arrow stream or array, a polars or pandas
    /// DataFrame, a pyarrow Table. Nulls become None. Raises `UnsupportedValue`, with the name of
    /// the column, if a record cannot hold its type, and `StreamError` if the stream breaks off or
    /// is damaged.
    fn extend(slf: &Bound<'_, Self>, values: &Bound<'_, PyAny>) -> PyResult<usize> {
        write::extend(slf, values)
    }

    /// Remove `key` and return its value in plain containers, as one transaction.
    ///
    /// >>> import pellucid
    /// >>> table = pellucid.open(":memory:").table("people")
    /// >>> table["ann"] = {"age": 30}
    /// >>> table.pop("ann")
    /// {'age': 30}
    /// >>> table.pop("ann")
    /// Traceback (most recent call last):
    /// KeyError: 'ann'
    #[pyo3(signature = (key, /, *default))]
    fn pop<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        verbs::pop(slf, key, default)
    }

    /// Remove the last key and return it with its value.
    fn popitem<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        verbs::pop_last(slf)
    }

    /// Return the value of `key`; if there is none, set it to `default` first. It is one
    /// transaction.
    #[pyo3(signature = (key, default=None, /))]
    fn setdefault<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        verbs::set_default(slf, key, default)
    }

    /// Add `by` to the number at a path of a record, and return the sum, as one commit: nothing is
    /// lost, whatever other threads and processes add meanwhile.
    ///
    /// A missing row or field raises `KeyError`, unless `default` says what it counts as. Raises
    /// `TypeError` if one of the two is no int, float or Decimal.
    ///
    /// >>> import pellucid
    /// >>> pages = pellucid.open(":memory:").table("pages")
    /// >>> pages.increment("home", "views", default=0), pages.increment("home", "views", 5)
    /// (1, 6)
    #[pyo3(
        signature = (key, path, by=None, *, default=None),
        text_signature = "($self, key, path, by=1, *, default=None)"
    )]
    fn increment<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        path: &Bound<'py, PyAny>,
        by: Option<&Bound<'py, PyAny>>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let one = 1_i64.into_pyobject(slf.py())?.into_any();
        increment(slf, key, path, by.unwrap_or(&one), default)
    }

    /// Store `value` if the value of `key` equals `expected`. Returns whether it did; without a row
    /// it did not.
    ///
    /// >>> import pellucid
    /// >>> table = pellucid.open(":memory:").table("t")
    /// >>> table["a"] = 1
    /// >>> table.compare_and_set("a", 1, 2), table.compare_and_set("a", 1, 3)
    /// (True, False)
    fn compare_and_set(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        expected: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        verbs::compare_and_set(slf, key, expected, value)
    }

    /// Store `value` if `key` has none. Returns whether it did.
    fn put_if_absent(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
    ) -> PyResult<bool> {
        verbs::put_if_absent(slf, key, value)
    }

    /// Return the value of `key`; if there is none, store and return what `function` returns.
    ///
    /// Several callers may call it at the same time. One of the values is stored, and all of them
    /// return that one. Other writers do not wait for the function.
    fn get_or_create<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        function: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        verbs::get_or_create(slf, key, function)
    }

    /// Claim the first row for which a condition is true: set fields of it, under a lease of some
    /// seconds. Returns a `Claim`; None if there is no such row within `timeout` seconds, or with
    /// None, waits without limit.
    ///
    /// No other caller, in any process, gets the row meanwhile. When the lease has run out, the
    /// fields have their former values again, except for computed ones, and the row can be claimed
    /// anew. `order_by` is an expression or path, or several. The guide "Job queues and counters"
    /// has examples.
    #[pyo3(
        signature = (r#where, set, *, order_by=None, lease=60.0, timeout=Some(0.0)),
        text_signature = "($self, where, set, *, order_by=None, lease=60.0, timeout=0.0)"
    )]
    fn claim<'py>(
        slf: &Bound<'py, Self>,
        r#where: &Bound<'py, PyAny>,
        set: &Bound<'py, PyAny>,
        order_by: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = arguments::lease_of)] lease: f64,
        #[pyo3(from_py_with = arguments::wait_of)] timeout: Option<f64>,
    ) -> PyResult<Bound<'py, PyAny>> {
        slf.get().check_writable(slf.py())?;
        verbs::claim(slf, (r#where, set, order_by, lease, timeout))
    }

    /// Store a value under a key, as `table[key] = value` does. With `expire`, it is a dict that is
    /// stored for these seconds, or for a timedelta; the time is in its field `_expires`.
    ///
    /// A row whose time is over is deleted by the next `put` with a time, by a watch of the table
    /// that waits, which reports it, or by `expire()`.
    #[pyo3(signature = (key, value, *, expire=None))]
    fn put(
        slf: &Bound<'_, Self>,
        key: &Bound<'_, PyAny>,
        value: &Bound<'_, PyAny>,
        expire: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        verbs::put(slf, key, value, expire)
    }

    /// Delete the rows whose time is over (see `put`), and return how many there were.
    fn expire<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        verbs::expire(slf)
    }

    /// Call a function in a transaction; for `pellucid.claims`.
    #[pyo3(name = "_run")]
    fn run<'py>(slf: &Bound<'py, Self>, function: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        transaction::run(slf.py(), &slf.get().core, function)
    }

    /// Whether the caller is in a transaction; for `pellucid.claims`.
    #[getter(_is_in_transaction)]
    fn is_within(&self, py: Python<'_>) -> bool {
        self.is_in_transaction(py)
    }

    /// Set many keys in one transaction, from a mapping, from pairs, or by keyword.
    ///
    /// Keywords are keys, as those of `dict.update`. To set a field of all rows, use
    /// `table.where().update(age=5)`. A `DatabaseWarning` says so if that may be meant: if the rows
    /// are records with a field of that name, and no row has that key.
    #[pyo3(signature = (other=None, /, **more))]
    fn update(
        slf: &Bound<'_, Self>,
        other: Option<&Bound<'_, PyAny>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        verbs::update(slf, other, more)
    }

    /// Remove all rows in one transaction. If Ctrl-C interrupts it, all rows stay.
    fn clear(slf: &Bound<'_, Self>) -> PyResult<()> {
        verbs::clear(slf)
    }

    /// Read all rows, and return a list of those that cannot be read: pairs of key and exception.
    ///
    /// Such a row has an object whose class has moved or is not registered (`rename_classes`,
    /// `register`), a pickle that the policy does not allow, or damage; or it makes no instance of
    /// the class that the table was opened with (`type=`).
    ///
    /// >>> import pellucid
    /// >>> pellucid.open(":memory:").table("people").unreadable()
    /// []
    fn unreadable<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        crate::table::unreadable::of_table(slf, false)
    }

    /// Read all rows, and return a list of those that do not fit the class that the table was
    /// opened with: pairs of key and exception, which says why.
    ///
    /// `validate=True` counts values that a write would refuse. `TypeError` without `type=`.
    ///
    /// >>> import pellucid, typing
    /// >>> User = typing.NamedTuple("User", [("age", int)])
    /// >>> db = pellucid.open(":memory:")
    /// >>> db.table("users").update({1: {"age": 30}, 2: {"age": "x"}, 3: {}})
    /// >>> [key for key, error in db.table("users", type=User, validate=True).conform()]
    /// [2, 3]
    fn conform<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyList>> {
        crate::table::unreadable::of_table(slf, true)
    }

    /// Return how many rows the table has and what they take, as a dict of ints. Sizes are in
    /// bytes.
    ///
    ///     compress           1 if the table is compressed
    ///     rows               how many rows it has
    ///     compressed_rows    how many of them are compressed in the file
    ///     key_size           all keys
    ///     plain_size         all records as they are read
    ///     size               all records as they are stored
    ///     dictionaries       dictionaries that rows are compressed with
    ///     dictionary_size    all of these
    ///
    /// Large values that are stored apart are not counted. Rows of the last commits are compressed
    /// when they are moved from the log into the file. It reads a part of each row, so it takes
    /// time for large tables; Ctrl-C interrupts it. In a transaction, the figures are those before
    /// it.
    ///
    /// >>> import pellucid
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people["ann"] = {"age": 30}
    /// >>> people.stats()["rows"]
    /// 1
    fn stats<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyDict>> {
        report::sizes_of(slf)
    }

    /// Watch this table only, and of its rows those whose keys lie in a range. See
    /// `Database.watch`; bounds are as for `keys`.
    ///
    /// The watch follows the table to another name, and ends after the table was dropped.
    ///
    /// >>> import pellucid
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> watch = people.watch(prefix="a", timeout=0)
    /// >>> people.update(ann=1, bob=2)
    /// >>> [(change.kind, change.key) for change in watch]
    /// [('create', None), ('put', 'ann')]
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, since=None, timeout=None))]
    fn watch(
        slf: &Bound<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        since: Option<&Bound<'_, PyAny>>,
        timeout: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Py<WatchHandle>> {
        let (py, this) = (slf.py(), slf.get());
        if this.frozen.is_some() {
            return Err(errors::read_only(py, "a snapshot does not change; watch the database's table"));
        }
        this.core.check_open(py)?;
        let bounds = Bounds::new(&this.name(py), start, stop, prefix, false)?;
        let id = this.id_to_watch(py)?;
        WatchHandle::new(py, &this.core, Some((slf.clone().unbind(), id, bounds)), since, timeout)
    }

    /// Return a context manager for many changes of one record in one commit; an exception discards
    /// them.
    ///
    /// A value that is not a record, such as an instance of the table's class or a set, is stored
    /// again at the end of the block.
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> db["ann"] = {"age": 30, "tags": []}
    /// >>> with db.edit("ann") as ann:
    /// ...     ann.age += 1
    /// ...     ann.tags.append("x")
    /// >>> db["ann"]
    /// {'age': 31, 'tags': ['x']}
    fn edit(slf: &Bound<'_, Self>, key: Bound<'_, PyAny>) -> PyResult<EditContext> {
        slf.get().check_writable(slf.py())?;
        Ok(EditContext::new(slf.clone().unbind(), key.unbind()))
    }

    /// Return a read-only memoryview of the bytes that a value has in the file, without a copy.
    ///
    /// `path` leads to a field (`"image"`, `("pages", 0)`). The value is bytes, a bytearray, a str
    /// (the view has its UTF-8) or a NumPy array (the view has its elements). The view keeps the
    /// version of the database that it was made from, as a snapshot does. In a transaction it is a
    /// view of a copy. Raises `KeyError` if nothing is there, and `TypeError` if another value is.
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> db["scan"] = {"title": "Page 1", "image": bytes(1_000_000)}
    /// >>> db.buffer("scan", "image")[:4].tobytes()
    /// b'\x00\x00\x00\x00'
    #[pyo3(signature = (key, path=None))]
    fn buffer<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        path: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyMemoryView>> {
        buffer(slf, key, path)
    }

    /// Open one value as a binary file.
    ///
    /// "rb" reads the bytes that `buffer` shows, as they are now, in any ranges. "wb" writes the
    /// value of `key`, which will be bytes, from the start; it is stored in one commit when the
    /// file is closed, and not at all if its `with` block ends with an exception. Memory does not
    /// grow with the value either way. A transaction that is running at the close has it. Raises as
    /// `buffer` does, and `ValueError` for another mode.
    ///
    /// >>> import pellucid
    /// >>> db = pellucid.open(":memory:")
    /// >>> with db.open("film", "wb") as file:
    /// ...     file.write(b"first "), file.write(b"second")
    /// (6, 6)
    /// >>> with db.open("film") as file:
    /// ...     file.seek(6), file.read(3)
    /// (6, b'sec')
    #[pyo3(signature = (key, mode="rb", path=None))]
    fn open<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        mode: &str,
        path: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        file::open(slf, key, mode, path)
    }

    /// Return the sum of the numbers at a field path, over all rows.
    ///
    /// Rows whose field is missing or not a number are left out, since rows need not have the same
    /// fields. The sum is 0 if no row has the field (`count` shows that). Ints are added exactly,
    /// and bools count as ints.
    ///
    /// >>> import pellucid
    /// >>> table = pellucid.open(":memory:").table("t")
    /// >>> table.extend([{"n": 2}, {"n": 0.5}, {"m": 1}])
    /// 3
    /// >>> table.sum("n"), table.sum("typo"), table.count("typo")
    /// (2.5, 0, 0)
    fn sum<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::column::sum(slf, path)
    }

    /// Return the least value at a field path; None if no row has one.
    ///
    /// Rows whose field is missing or None are left out. Values of different types are ordered as
    /// in `order_by`, numbers and Decimals by their numeric value.
    fn min<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::column::least(slf, path)
    }

    /// Return the greatest value at a field path; None if no row has one. Rows are left out as in
    /// `min`.
    fn max<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::column::greatest(slf, path)
    }

    /// Return the mean of the numbers at a field path; None if no row has one. Rows are left out as
    /// in `sum`.
    fn mean<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::column::mean(slf, path)
    }

    /// Return the rows for which all these conditions are true, as a query: see `Query`.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people.update(ann={"age": 30}, bob={"age": 20})
    /// >>> people.where(F.age > 25).to_list()
    /// [{'age': 30}]
    #[pyo3(signature = (*conditions, **fields), text_signature = "($self, *conditions)")]
    fn r#where(
        slf: &Bound<'_, Self>,
        conditions: &Bound<'_, PyTuple>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Query> {
        of_table(slf).r#where(conditions, fields)
    }

    /// Return the rows whose fields equal these values, as a query: see `Query.find`.
    #[pyo3(signature = (*arguments, **fields), text_signature = "($self, **fields)")]
    fn find(
        slf: &Bound<'_, Self>,
        arguments: &Bound<'_, PyTuple>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Query> {
        of_table(slf).find(arguments, fields)
    }

    /// Return the rows for which a Python function returns a true value, as a query: see
    /// `Query.filter`.
    fn filter(slf: &Bound<'_, Self>, function: &Bound<'_, PyAny>) -> PyResult<Query> {
        of_table(slf).filter(function)
    }

    /// Return all rows in the order of these expressions or field paths, as a query: see
    /// `Query.order_by`.
    #[pyo3(signature = (*expressions, **keywords), text_signature = "($self, *expressions)")]
    fn order_by(
        slf: &Bound<'_, Self>,
        expressions: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Query> {
        of_table(slf).order_by(expressions, keywords)
    }

    /// Return at most the first `count` rows, as a query: see `Query.limit`.
    fn limit(slf: &Bound<'_, Self>, count: &Bound<'_, PyAny>) -> PyResult<Query> {
        of_table(slf).limit(count)
    }

    /// Return the rows without the first `count`, as a query: see `Query.offset`.
    fn offset(slf: &Bound<'_, Self>, count: &Bound<'_, PyAny>) -> PyResult<Query> {
        of_table(slf).offset(count)
    }

    /// Return all rows as a list of records or other values.
    fn to_list<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        query::terminals::to_list(&Bound::new(slf.py(), of_table(slf))?)
    }

    /// Return all rows as plain dicts or other plain values.
    fn to_dicts<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        query::terminals::to_dicts(&Bound::new(slf.py(), of_table(slf))?)
    }

    /// Return dicts of these expressions or field paths instead of records, as a query: see
    /// `Query.select`.
    #[pyo3(signature = (*expressions, **named))]
    fn select(
        slf: &Bound<'_, Self>,
        expressions: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Query> {
        of_table(slf).select(expressions, named)
    }

    /// Return all rows in groups; see `Query.group_by`.
    #[pyo3(signature = (*expressions, **named))]
    fn group_by(
        slf: &Bound<'_, Self>,
        expressions: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Groups> {
        Groups::new(&Bound::new(slf.py(), of_table(slf))?, expressions, named)
    }

    /// Return aggregates of all rows in a dict; see `Query.agg`.
    #[pyo3(signature = (*arguments, **aggregates), text_signature = "($self, **aggregates)")]
    fn agg<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        aggregates: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        query::words::refuse_unnamed(arguments)?;
        query::group::whole(&Bound::new(slf.py(), of_table(slf))?, aggregates)
    }

    /// Return how many rows have a value at a field path (`None` counts, a missing field does not).
    /// Without a path, return how many rows there are.
    ///
    /// 0 means that no row has such a field; if the table has rows, the path may be misspelt.
    #[pyo3(signature = (path=None))]
    fn count(slf: &Bound<'_, Self>, path: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        match path {
            Some(path) => crate::column::count(slf, path),
            None => Ok(slf.get().len(slf.py())? as u64),
        }
    }

    /// Return the values at a field path of all rows, in key order; None for a row without one.
    fn column<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        crate::column::column(slf, path)
    }

    /// Return all rows as columns, in an `ArrowStream` that any Arrow library reads without a copy;
    /// see `Query.to_arrow`.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, ArrowStream>> {
        arrow::to_arrow(slf, None)
    }

    /// Return `to_arrow()` to a library that asks for it: `polars.DataFrame(table)`.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        slf: &Bound<'py, Self>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        arrow::to_arrow(slf, None)?.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// Return all rows as a polars DataFrame.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        arrow::to_polars(&arrow::to_arrow(slf, None)?)
    }

    /// Return all rows as a pandas DataFrame.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        arrow::to_pandas(&arrow::to_arrow(slf, None)?)
    }

    /// Return the values at a field path of all rows, in key order, as a NumPy array.
    ///
    /// Its type is int64, float64, bool, datetime64[us] (in UTC if the values are aware),
    /// datetime64[D] or timedelta64[us]; for other values it has objects, as in `column`. A row
    /// without a value gives NaN, which turns ints into floats, or NaT; among objects and bools it
    /// gives None.
    ///
    /// >>> import pellucid
    /// >>> table = pellucid.open(":memory:").table("t")
    /// >>> table.extend([{"n": 1}, {"n": 2}, {}])
    /// 3
    /// >>> table.to_numpy("n")
    /// array([ 1.,  2., nan])
    fn to_numpy<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::numpy::to_numpy(slf, path)
    }

    /// Create an index and fill it with the existing rows. From then on, queries and `index()` find
    /// rows by their content without reading all of them.
    ///
    /// `parts` is an expression (`F.age`), a field path, or a tuple of these. `F.age.desc()`
    /// reverses the order; `F.tags.each()` makes an entry for each element. A row has no entry if
    /// one of its parts is missing or cannot be a key; None is a value. With `unique=True`, two
    /// rows with the same value raise `UniqueError`. With `where=`, only rows for which that
    /// condition is true have entries. `progress` is called with the number of rows done, and of
    /// all rows.
    ///
    /// If the same index exists, nothing happens; another index of that name raises `ValueError`.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people.create_index("by_name", (F.name.last, F.name.first.desc()), unique=True)
    /// >>> people.create_index("adults", F.name.last, where=F.age >= 18)
    /// >>> [index.name for index in people.indexes()]
    /// ['adults', 'by_name']
    #[pyo3(signature = (name, parts, *, unique=false, r#where=None, progress=None))]
    fn create_index(
        slf: &Bound<'_, Self>,
        name: &Bound<'_, PyAny>,
        parts: &Bound<'_, PyAny>,
        #[pyo3(from_py_with = errors::unique_flag)] unique: bool,
        r#where: Option<&Bound<'_, PyAny>>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        making::create(slf, &making::name_of(name)?, parts, unique, r#where, progress)
    }

    /// Remove an index; raises `NoSuchIndex` if there is none of this name.
    fn drop_index(slf: &Bound<'_, Self>, name: &Bound<'_, PyAny>) -> PyResult<()> {
        making::drop_index(slf, &making::name_of(name)?)
    }

    /// Make all entries of an index anew from the rows. This repairs an index that `check()`
    /// reports as different from its rows.
    #[pyo3(signature = (name, *, progress=None))]
    fn rebuild_index(
        slf: &Bound<'_, Self>,
        name: &Bound<'_, PyAny>,
        progress: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        making::rebuild(slf, &making::name_of(name)?, progress)
    }

    /// Return the int under which `append` would store a row, for `pellucid.copy`; None if there is
    /// none.
    #[pyo3(name = "_next_int")]
    fn next_int_of(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        self.next_int(py)
    }

    /// Return the indexes of this table by name, each as an `IndexInfo`.
    fn indexes(slf: &Bound<'_, Self>) -> PyResult<Vec<IndexDescription>> {
        crate::index::describe::all(slf)
    }

    /// Return the index of this name; raises `NoSuchIndex` if there is none.
    fn index(slf: &Bound<'_, Self>, name: &Bound<'_, PyAny>) -> PyResult<Index> {
        Index::new(slf, making::name_of(name)?)
    }

    fn __eq__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        verbs::equals(slf, other)
    }

    fn __or__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        verbs::dict_of(slf)?.call_method1("__or__", (other,))
    }

    fn __ror__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        verbs::merged_into(slf, other)
    }

    #[expect(clippy::unused_self, reason = "a slot")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(errors::type_error(
            "a table belongs to an open database, and cannot be pickled; pickle the database, which opens its file again, and take the \
             table there: db.table(name); dict(table) has the rows",
        ))
    }

    fn __ior__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::update(slf, Some(other), None)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let head = slf.get().described(slf.py())?;
        if slf.get().validity().is_open() { look::shown(slf, head) } else { Ok(head) }
    }
}
