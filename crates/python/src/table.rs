//! How does a named table look like a dict?

use std::ops::Bound as Edge;
use std::sync::Arc;

use pellucid_record::key::prefix_range;
use pellucid_record::layout::Kind;
use pellucid_record::shape::{Sighting, may_be_shape};
use pellucid_store::{Range, Scan, Snapshot, StoreError, TableId, Transaction, TransactionScan};
use pyo3::exceptions::PyKeyError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList, PyTuple, PyType};

use crate::bytes::{self, handle_of_row};
use crate::core::Core;
use crate::errors;
use crate::hooks;
use crate::hot::gil::{GilRc, GilValue, Strong};
use crate::hot::row::{Gate, Row};
use crate::hot::rows::RowIterator;
use crate::keys::{self, Key};
use crate::put;
use crate::transaction::{self, EditContext};
use crate::views::{DictView, Owner, Shows};

/// A named, ordered mapping inside a database.
///
/// A complete `MutableMapping`: keys are str, bytes, int, float, bool, None, date, datetime, UUID,
/// Decimal and tuples of these, in order; values are anything a record can hold. A dict comes back
/// as a `Record`, a list as a `RecordList`.
///
/// >>> import pellucid
/// >>> people = pellucid.open(":memory:").table("people")
/// >>> people["ann"] = {"age": 30}
/// >>> people["ann"].age, list(people), "bob" in people
/// (30, ['ann'], False)
#[pyclass(frozen, mapping, module = "pellucid", name = "Table")]
pub struct Table {
    core: Arc<Core>,
    name: String,
    /// The class that rows come back as, if the table was opened with one.
    pub class: Option<Py<PyType>>,
    // A snapshot's table reads from it, and never changes.
    frozen: Option<(Snapshot, GilRc<Gate>)>,
    // The id found last, and the version it was found in: ids are never reused, but a table may have
    // been dropped and made again.
    id: GilValue<Option<(u64, TableId)>>,
}

/// A walk over rows, as they were when it began.
pub enum Rows {
    /// Over a snapshot: bytes stay in place.
    Pinned(Box<Scan>),
    /// Over the state of a transaction that has changed something.
    Inside(TransactionScan),
}

/// A part of a table, in key order or against it.
#[derive(Clone)]
pub struct Bounds {
    range: Range,
    reverse: bool,
    is_all: bool,
}

const SNAPSHOT: &str = "this belongs to a snapshot, which does not change; write through the database";

impl Table {
    /// The table `name` of a database; it is made when first written to.
    pub fn new(core: Arc<Core>, name: String, class: Option<Py<PyType>>) -> Self {
        Self { core, name, class, frozen: None, id: GilValue::new(None) }
    }

    /// The table `name` as a snapshot sees it.
    pub fn of_snapshot(core: Arc<Core>, name: String, snapshot: Snapshot, gate: GilRc<Gate>) -> Self {
        Self { core, name, class: None, frozen: Some((snapshot, gate)), id: GilValue::new(None) }
    }

    /// What it shares with the other handles of its database.
    pub fn core(&self) -> &Arc<Core> {
        &self.core
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn gate(&self) -> &GilRc<Gate> {
        self.frozen.as_ref().map_or(&self.core.gate, |(_, gate)| gate)
    }

    /// The gate of rows that are read now.
    pub fn row_gate(&self, py: Python<'_>) -> GilRc<Gate> {
        match &self.frozen {
            Some((_, gate)) => gate.clone(),
            None => self.core.row_gate(py),
        }
    }

    /// Let a row show what is stored under its key now; false where that is nothing of its kind.
    pub fn read_anew(slf: &Bound<'_, Self>, row: &Row) -> PyResult<bool> {
        let py = slf.py();
        let key = Key { bytes: row.key().to_vec(), spelling: Vec::new() };
        let Some(now) = Self::row(slf, &key)? else { return Ok(false) };
        let kind = |row: &Row| row.bytes().first().and_then(|byte| Kind::from_number(byte >> 4));
        let is_dict = |row: &Row| matches!(kind(row), Some(Kind::Shaped | Kind::Keyed));
        if is_dict(&now) != is_dict(row) {
            return Ok(false);
        }
        row.replace(py, now.bytes());
        row.gate.set(slf.get().row_gate(py));
        Ok(true)
    }

    fn why_frozen(&self) -> Option<&'static str> {
        if self.frozen.is_some() { Some(SNAPSHOT) } else { self.core.why_read_only() }
    }

    /// Raises where the table cannot be written to.
    pub fn check_writable(&self, py: Python<'_>) -> PyResult<()> {
        self.core.check_open(py)?;
        match self.why_frozen() {
            Some(why) => Err(errors::read_only(py, why)),
            None => Ok(()),
        }
    }

    fn snapshot(&self, py: Python<'_>) -> PyResult<Snapshot> {
        match &self.frozen {
            Some((snapshot, gate)) if gate.is_open() => Ok(snapshot.clone()),
            Some(_) => Err(errors::closed(py, "this snapshot")),
            None => self.core.snapshot(py),
        }
    }

    fn is_in_transaction(&self, py: Python<'_>) -> bool {
        self.frozen.is_none() && self.core.is_mine(py)
    }

    fn id_in(&self, py: Python<'_>, snapshot: &Snapshot) -> PyResult<Option<TableId>> {
        let version = snapshot.version();
        if let Some((known, id)) = self.id.get()
            && known == version
        {
            return Ok(Some(id));
        }
        let id = snapshot.table(&self.name).map_err(|error| errors::of_store(py, error))?;
        self.id.set(id.map(|id| (version, id)));
        Ok(id)
    }

    /// The id within a transaction that is about to write; the table is made if need be.
    pub fn id_for_writing(&self, transaction: &mut Transaction) -> Result<TableId, StoreError> {
        match transaction.table(&self.name)? {
            Some(id) => Ok(id),
            None => transaction.create_table(&self.name),
        }
    }

    /// The row under a key, as an owned copy.
    fn row(slf: &Bound<'_, Self>, key: &Key) -> PyResult<Option<GilRc<Row>>> {
        let py = slf.py();
        let this = slf.get();
        let gate = this.row_gate(py);
        let own = |record: &[u8]| {
            GilRc::new(Row::owned(
                record,
                &key.bytes,
                this.core.names.clone(),
                gate.clone(),
                Some(Strong::new(slf)),
                this.why_frozen(),
            ))
        };
        if this.is_in_transaction(py) {
            return this.core.in_running(py, |transaction| {
                let Some(id) = transaction.table(&this.name)? else { return Ok(None) };
                Ok(transaction.get(id, &key.bytes)?.map(|cell| own(cell.record)))
            });
        }
        let snapshot = this.snapshot(py)?;
        let Some(id) = this.id_in(py, &snapshot)? else { return Ok(None) };
        let cell = snapshot.get(id, &key.bytes).map_err(|error| errors::of_store(py, error))?;
        Ok(cell.map(|cell| own(cell.record)))
    }

    /// Whether there is a row under a key.
    fn has(&self, py: Python<'_>, key: &Key) -> PyResult<bool> {
        if self.is_in_transaction(py) {
            return self.core.in_running(py, |transaction| match transaction.table(&self.name)? {
                Some(id) => Ok(transaction.get(id, &key.bytes)?.is_some()),
                None => Ok(false),
            });
        }
        let snapshot = self.snapshot(py)?;
        let Some(id) = self.id_in(py, &snapshot)? else { return Ok(false) };
        Ok(snapshot.get(id, &key.bytes).map_err(|error| errors::of_store(py, error))?.is_some())
    }

    /// The value under a key, or None; a key that cannot be stored is under none.
    pub fn lookup<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(key) = storable(key)? else {
            slf.get().snapshot(slf.py())?;
            return Ok(None);
        };
        Self::row(slf, &key)?.map(|row| value_of_row(slf.py(), row)).transpose()
    }

    /// As `lookup`, for keys within bounds.
    pub fn get_within<'py>(
        slf: &Bound<'py, Self>,
        bounds: &Bounds,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match storable(key)? {
            Some(key) if bounds.holds(&key.bytes) => {
                Self::row(slf, &key)?.map(|row| value_of_row(slf.py(), row)).transpose()
            }
            _ => Ok(None),
        }
    }

    /// How many rows lie within bounds.
    pub fn count_within(&self, py: Python<'_>, bounds: &Bounds) -> PyResult<usize> {
        if bounds.is_all {
            return self.len(py);
        }
        let mut count = 0;
        match self.rows(py, bounds, false)? {
            None => {}
            Some(Rows::Pinned(mut scan)) => {
                while scan.next().map_err(|error| errors::of_store(py, error))?.is_some() {
                    count += 1;
                }
            }
            Some(Rows::Inside(mut scan)) => {
                while self.core.in_running(py, |transaction| scan.next(transaction, |_| ()))?.is_some() {
                    count += 1;
                }
            }
        }
        Ok(count)
    }

    fn len(&self, py: Python<'_>) -> PyResult<usize> {
        let count = if self.is_in_transaction(py) {
            self.core.in_running(py, |transaction| match transaction.table(&self.name)? {
                Some(id) => transaction.count(id),
                None => Ok(0),
            })?
        } else {
            let snapshot = self.snapshot(py)?;
            match self.id_in(py, &snapshot)? {
                Some(id) => snapshot.count(id).map_err(|error| errors::of_store(py, error))?,
                None => 0,
            }
        };
        Ok(count as usize)
    }

    /// The rows within bounds, as they are now; None where the table does not exist yet.
    pub fn rows(&self, py: Python<'_>, bounds: &Bounds, reverse: bool) -> PyResult<Option<Rows>> {
        let reverse = bounds.reverse != reverse;
        if self.is_in_transaction(py) {
            return self.core.in_running(py, |transaction| match transaction.table(&self.name)? {
                Some(id) => {
                    transaction.scan(id, &bounds.range, reverse).map(crate::column::rows_of).map(Some)
                }
                None => Ok(None),
            });
        }
        let snapshot = self.snapshot(py)?;
        let Some(id) = self.id_in(py, &snapshot)? else { return Ok(None) };
        let scan = snapshot.scan(id, &bounds.range, reverse).map_err(|error| errors::of_store(py, error))?;
        Ok(Some(Rows::Pinned(Box::new(scan))))
    }

    /// An iterator over what `shows` says, within bounds.
    pub fn iterate<'py>(
        slf: &Bound<'py, Self>,
        bounds: &Bounds,
        shows: Shows,
        reverse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        let py = slf.py();
        let Some(rows) = this.rows(py, bounds, reverse)? else {
            return Ok(PyTuple::empty(py).try_iter()?.into_any());
        };
        let iterator = RowIterator::new(
            py,
            rows,
            Strong::new(slf),
            this.core.names.clone(),
            this.gate().clone(),
            shows,
            this.why_frozen(),
        );
        Ok(Bound::new(py, iterator)?.into_any())
    }

    /// The bytes of a value that lies apart; in `snapshot`, if the record came from one.
    pub fn apart(&self, py: Python<'_>, snapshot: Option<&Snapshot>, id: u64) -> PyResult<Option<Vec<u8>>> {
        let found = |result: Result<&[u8], StoreError>| match result {
            Ok(data) => Ok(Some(data.to_vec())),
            Err(StoreError::NoSuchBlob { .. }) => Ok(None),
            Err(error) => Err(error),
        };
        if let Some(snapshot) = snapshot {
            return found(snapshot.blob(id)).map_err(|error| errors::of_store(py, error));
        }
        if self.is_in_transaction(py) {
            return self.core.in_running(py, |transaction| found(transaction.blob(id)));
        }
        found(self.snapshot(py)?.blob(id)).map_err(|error| errors::of_store(py, error))
    }

    /// What to do with a key list that is no known shape.
    pub fn sight(&self, py: Python<'_>, names: &[&str], is_root: bool) -> Sighting {
        let id = if self.is_in_transaction(py) {
            self.core.in_running(py, |transaction| transaction.table(&self.name)).unwrap_or(None)
        } else {
            self.snapshot(py).and_then(|snapshot| self.id_in(py, &snapshot)).unwrap_or(None)
        };
        match id {
            Some(id) => self.core.store.sight(id, names, is_root).unwrap_or(Sighting::Keyed),
            // A table that does not exist yet has no counts either.
            None if is_root && may_be_shape(names) => Sighting::Admit,
            None => Sighting::Keyed,
        }
    }

    /// The value at a path of one row, in plain containers.
    pub fn value_at<'py>(
        slf: &Bound<'py, Self>,
        key: &[u8],
        record: &[u8],
        path: &Bound<'py, PyTuple>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        let row = Row::owned(
            record,
            key,
            this.core.names.clone(),
            this.gate().clone(),
            Some(Strong::new(slf)),
            this.why_frozen(),
        );
        let record = handle_of_row(slf.py(), GilRc::new(row))?;
        crate::record::detached(&record.call_method1("path", (path,))?)
    }

    fn edge<'py>(
        slf: &Bound<'py, Self>,
        reverse: bool,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let items = Self::iterate(slf, &Bounds::all(), Shows::Items, reverse)?;
        match items.try_iter()?.next() {
            Some(item) => {
                let item = item?.cast_into::<PyTuple>()?;
                Ok(Some((item.get_item(0)?, item.get_item(1)?)))
            }
            None => Ok(None),
        }
    }
}

impl Bounds {
    /// The whole table.
    pub fn all() -> Self {
        Self { range: Range::ALL, reverse: false, is_all: true }
    }

    /// The bounds that the keyword arguments of `keys`, `values`, `items` and `range` say.
    pub fn new(
        table: &str,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Self> {
        if start.is_none() && stop.is_none() && prefix.is_none() {
            return Ok(Self { reverse, ..Self::all() });
        }
        let mut range = match prefix {
            None => Range::ALL,
            Some(prefix) => {
                let key = keys::key_of(table, prefix)?;
                let Some(found) = prefix_range(&key.bytes) else {
                    return Err(errors::type_error(format!(
                        "prefix must be a str, bytes or a tuple, not {}",
                        prefix.get_type().name()?
                    )));
                };
                Range::half_open(found.start, found.end)
            }
        };
        if let Some(start) = start {
            let key = keys::key_of(table, start)?.bytes;
            if !matches!(&range.start, Edge::Included(prefix) if *prefix > key) {
                range.start = Edge::Included(key);
            }
        }
        if let Some(stop) = stop {
            let key = keys::key_of(table, stop)?.bytes;
            if !matches!(&range.end, Edge::Excluded(prefix) if *prefix < key) {
                range.end = Edge::Excluded(key);
            }
        }
        Ok(Self { range, reverse, is_all: false })
    }

    fn holds(&self, key: &[u8]) -> bool {
        let is_behind_start = match &self.range.start {
            Edge::Included(start) => key >= &start[..],
            Edge::Excluded(start) => key > &start[..],
            Edge::Unbounded => true,
        };
        let is_before_end = match &self.range.end {
            Edge::Included(end) => key <= &end[..],
            Edge::Excluded(end) => key < &end[..],
            Edge::Unbounded => true,
        };
        is_behind_start && is_before_end
    }
}

/// The key that `object` is; None where it is none, and so can be under no row.
fn storable(object: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
    match keys::try_key_of(object) {
        Ok(key) => Ok(Some(key)),
        Err(keys::Refusal::Unsupported { .. }) => Ok(None),
        Err(keys::Refusal::Raised(error)) => Err(error),
    }
}

/// What a row of a table looks like from outside.
pub fn value_of_row(py: Python<'_>, row: GilRc<Row>) -> PyResult<Bound<'_, PyAny>> {
    let class = row.table.as_ref().and_then(|table| table.get().class.as_ref());
    let is_dict = row
        .bytes()
        .first()
        .is_some_and(|byte| matches!(Kind::from_number(byte >> 4), Some(Kind::Shaped | Kind::Keyed)));
    match class {
        // An Enum is stored as its value, a dataclass and its kin as a dict.
        // Attached anew, for the AttributeError that hasattr drops: a scan comes here from a raw slot.
        Some(class) if is_dict || Python::attach(|_py| class.bind(py).hasattr("__members__"))? => {
            hooks::build(class.bind(py).as_any(), &bytes::plain_of_row(py, &row)?)
        }
        _ => handle_of_row(py, row),
    }
}

#[pymethods]
impl Table {
    // `Table[Person]` in an annotation that Python evaluates.
    #[classmethod]
    fn __class_getitem__<'py>(
        cls: &Bound<'py, PyType>,
        item: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, PyAny>> {
        cls.py().import("types")?.getattr("GenericAlias")?.call1((cls, item))
    }

    /// The table's name.
    #[getter(name)]
    fn get_name(&self) -> &str {
        &self.name
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
        put::put(slf, key, value)
    }

    fn __delitem__(slf: &Bound<'_, Self>, key: &Bound<'_, PyAny>) -> PyResult<()> {
        slf.get().check_writable(slf.py())?;
        match storable(key)? {
            Some(found) if put::delete(slf, &found)? => Ok(()),
            _ => Err(errors::missing(key)),
        }
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::iterate(slf, &Bounds::all(), Shows::Keys, false)
    }

    fn __reversed__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        Self::iterate(slf, &Bounds::all(), Shows::Keys, true)
    }

    /// The value under `key`, or `default`.
    #[pyo3(signature = (key, default=None, /))]
    fn get<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        Ok(Self::lookup(slf, key)?.or(default).unwrap_or_else(|| slf.py().None().into_bound(slf.py())))
    }

    /// A live view of the keys; of those from `start` on, below `stop`, beginning with `prefix`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn keys(
        slf: &Bound<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Py<DictView>> {
        let bounds = Bounds::new(&slf.get().name, start, stop, prefix, reverse)?;
        DictView::keys_of(slf.py(), Owner::Table(slf.clone().unbind(), bounds))
    }

    /// A live view of the values, in the order of the keys; bounds as for `keys`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn values(
        slf: &Bound<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Py<DictView>> {
        let bounds = Bounds::new(&slf.get().name, start, stop, prefix, reverse)?;
        DictView::values_of(slf.py(), Owner::Table(slf.clone().unbind(), bounds))
    }

    /// A live view of pairs of key and value; bounds as for `keys`.
    #[pyo3(signature = (*, start=None, stop=None, prefix=None, reverse=false))]
    fn items(
        slf: &Bound<'_, Self>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        prefix: Option<&Bound<'_, PyAny>>,
        reverse: bool,
    ) -> PyResult<Py<DictView>> {
        let bounds = Bounds::new(&slf.get().name, start, stop, prefix, reverse)?;
        DictView::items_of(slf.py(), Owner::Table(slf.clone().unbind(), bounds))
    }

    /// An iterator over the values whose keys lie in a range; bounds as for `keys`.
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
        reverse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let bounds = Bounds::new(&slf.get().name, start, stop, prefix, reverse)?;
        Self::iterate(slf, &bounds, Shows::Values, false)
    }

    /// The first key and its value; None in an empty table.
    fn first<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        Self::edge(slf, false)
    }

    /// The last key and its value; None in an empty table.
    fn last<'py>(slf: &Bound<'py, Self>) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        Self::edge(slf, true)
    }

    /// Store a value under the next int: one more than the greatest int key. Returns the key.
    fn append<'py>(slf: &Bound<'py, Self>, value: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        Ok(put::append(slf, value)?.into_pyobject(slf.py())?.into_any())
    }

    /// Append all values, in one transaction. Returns how many there were.
    fn extend(slf: &Bound<'_, Self>, values: &Bound<'_, PyAny>) -> PyResult<usize> {
        put::extend(slf, values)
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
        if default.len() > 1 {
            return Err(errors::type_error("pop() takes a key and at most one default"));
        }
        let this = slf.get();
        this.check_writable(slf.py())?;
        let missing = || if default.is_empty() { Err(errors::missing(key)) } else { default.get_item(0) };
        let Some(found) = storable(key)? else { return missing() };
        transaction::within(slf.py(), &this.core, || {
            let Some(row) = Self::row(slf, &found)? else { return missing() };
            let value = crate::record::detached(&value_of_row(slf.py(), row)?)?;
            put::delete(slf, &found)?;
            Ok(value)
        })
    }

    /// Remove the last key and return it with its value.
    fn popitem<'py>(slf: &Bound<'py, Self>) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
        let this = slf.get();
        this.check_writable(slf.py())?;
        transaction::within(slf.py(), &this.core, || {
            let Some((key, value)) = Self::edge(slf, true)? else {
                return Err(PyKeyError::new_err(format!("popitem(): table {:?} is empty", this.name)));
            };
            let value = crate::record::detached(&value)?;
            put::delete(slf, &keys::key_of(&this.name, &key)?)?;
            Ok((key, value))
        })
    }

    /// The value under `key`, which is set to `default` first where there is none; one transaction.
    #[pyo3(signature = (key, default=None, /))]
    fn setdefault<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        default: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(value) = Self::lookup(slf, key)? {
            return Ok(value);
        }
        let py = slf.py();
        slf.get().check_writable(py)?;
        let none = py.None().into_bound(py);
        transaction::within(py, &slf.get().core, || {
            if let Some(value) = Self::lookup(slf, key)? {
                return Ok(value);
            }
            put::put(slf, key, default.unwrap_or(&none))?;
            Self::__getitem__(slf, key)
        })
    }

    /// Set many keys in one transaction: from a mapping, from pairs, by keyword.
    #[pyo3(signature = (other=None, /, **more))]
    fn update(
        slf: &Bound<'_, Self>,
        other: Option<&Bound<'_, PyAny>>,
        more: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<()> {
        slf.get().check_writable(slf.py())?;
        transaction::within(slf.py(), &slf.get().core, || {
            if let Some(other) = other {
                put::update_from(slf, other)?;
            }
            if let Some(more) = more {
                put::update_from(slf, more.as_any())?;
            }
            Ok(())
        })
    }

    /// Remove all rows, in one transaction.
    fn clear(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        this.check_writable(slf.py())?;
        this.core.write(slf.py(), |transaction| match transaction.table(&this.name)? {
            Some(id) => transaction.clear(id),
            None => Ok(()),
        })
    }

    /// Many changes of one record in one commit, as a context manager; an exception drops them.
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

    /// The sum of the numbers at a field path, over all rows.
    ///
    /// Rows where it is missing or no number do not count; ints are added exactly.
    fn sum<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::column::sum(slf, path)
    }

    /// The least value at a field path; None where there is none.
    fn min<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::column::least(slf, path)
    }

    /// The greatest value at a field path; None where there is none.
    fn max<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::column::greatest(slf, path)
    }

    /// The mean of the numbers at a field path; None where there is none.
    fn mean<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::column::mean(slf, path)
    }

    /// How many rows have a value at a field path (`None` counts, a missing field does not); without
    /// a path, how many rows there are.
    #[pyo3(signature = (path=None))]
    fn count(slf: &Bound<'_, Self>, path: Option<&Bound<'_, PyAny>>) -> PyResult<u64> {
        match path {
            Some(path) => crate::column::count(slf, path),
            None => Ok(slf.get().len(slf.py())? as u64),
        }
    }

    /// The values at a field path of all rows, in key order; None where a row has none.
    fn column<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyList>> {
        crate::column::column(slf, path)
    }

    fn __eq__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if slf.is(other) {
            return Ok(true.into_pyobject(py)?.to_owned().into_any());
        }
        if !other.is_instance(&py.import("collections.abc")?.getattr("Mapping")?)? {
            return Ok(py.NotImplemented().into_bound(py));
        }
        if other.len()? != slf.get().len(py)? {
            return Ok(false.into_pyobject(py)?.to_owned().into_any());
        }
        for item in Self::iterate(slf, &Bounds::all(), Shows::Items, false)?.try_iter()? {
            let item = item?.cast_into::<PyTuple>()?;
            let is_same = match other.get_item(item.get_item(0)?) {
                Ok(theirs) => item.get_item(1)?.eq(theirs)?,
                Err(error) if error.is_instance_of::<PyKeyError>(py) => false,
                Err(error) => return Err(error),
            };
            if !is_same {
                return Ok(false.into_pyobject(py)?.to_owned().into_any());
            }
        }
        Ok(true.into_pyobject(py)?.to_owned().into_any())
    }

    fn __or__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let dict = slf.py().get_type::<PyDict>().call1((slf,))?;
        dict.call_method1("__or__", (other,))
    }

    fn __ror__<'py>(slf: &Bound<'py, Self>, other: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        if other.cast::<PyDict>().is_err() {
            return Ok(py.NotImplemented().into_bound(py));
        }
        other.call_method1("__or__", (py.get_type::<PyDict>().call1((slf,))?,))
    }

    fn __ior__(slf: &Bound<'_, Self>, other: &Bound<'_, PyAny>) -> PyResult<()> {
        Self::update(slf, Some(other), None)
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let this = slf.get();
        if !this.gate().is_open() {
            return Ok(format!("<pellucid.Table {:?} of {}, closed>", this.name, this.core.target));
        }
        Ok(format!("<pellucid.Table {:?} of {}, {} rows>", this.name, this.core.target, this.len(slf.py())?))
    }
}
