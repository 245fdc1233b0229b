//! The class `Index`: find rows by an index.
//!
//! A handle is a table and a name. Each call looks up the index with that name, and the result is
//! kept until the catalog changes. So a handle also works with an index that was rebuilt, and
//! raises if there is none any more. `index/asked.rs` reads the arguments, `index/making.rs`
//! creates and drops indexes, `index/pairs.rs` iterates over values and row keys.

use std::ops::ControlFlow;
use std::sync::Arc;

use pellucid_query::index::{Definition, Keys, beginning_with};
use pellucid_query::key_code::push_in_other_family;
use pellucid_query::sort::SortedKeys;
use pellucid_query::{CoveredRows, RowsByIndex};
use pellucid_record::key::{KeyEncoder, push_part};
use pellucid_store::{IndexError, IndexInfo, Range, Row as StoredRow, StoreError, TransactionScan};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString, PyTuple};

use crate::errors;
use crate::expression::operand;
use crate::hot::callbacks;
use crate::hot::gil::{GilCell, GilValue};
use crate::index::lookup::push_value;
use crate::index::pairs::IndexKeys;
use crate::query::reader::{TableReader, read};
use crate::signals::Signals;
use crate::store_errors;
use crate::table::handle::Table;
use crate::table::reading::Rows;
use crate::values::keys::{Key, Refusal};
use crate::values::views::Shows;

/// An index of the catalog, and how to split its entries.
pub struct KnownIndex {
    pub(super) info: IndexInfo,
    pub(super) keys: Keys,
    /// Whether rows may have more than one entry, because of `each()`.
    pub(super) branches: bool,
}

impl KnownIndex {
    /// The key of an entry's row.
    fn row_key(&self, entry: &StoredRow<'_>) -> Option<Key> {
        let parts = self.keys.split(entry)?;
        Some(Key { bytes: parts.key.to_vec(), spelling: parts.key_spelling.to_vec() })
    }
}

/// An index of a table: rows by what is in them.
///
/// `table.index(name)` returns it. A value of the index is what its definition computes: for
/// several parts a tuple, or a tuple of the first few where a method says so. Rows come in the
/// order of the index, as they are now, or as they are in the snapshot of the table. With `each()`,
/// a row comes once for each of its elements that match.
///
/// >>> import pellucid
/// >>> from pellucid import F
/// >>> people = pellucid.open(":memory:").table("people")
/// >>> people.update(ann={"age": 30}, bob={"age": 20}, eve={"age": 30})
/// >>> people.create_index("by_age", F.age)
/// >>> by_age = people.index("by_age")
/// >>> by_age.get(20), by_age.count(30), list(by_age.keys())
/// ({'age': 20}, 2, [(20, 'bob'), (30, 'ann'), (30, 'eve')])
#[pyclass(frozen, module = "pellucid", name = "Index")]
pub struct Index {
    pub(super) table: Py<Table>,
    pub(super) name: String,
    // The last result: whether it was within a transaction, and the number of the catalog's state.
    pub(super) seen: GilCell<Option<(bool, u64, Arc<KnownIndex>)>>,
}

impl Index {
    /// The index of this name, which must exist.
    pub fn new(table: &Bound<'_, Table>, name: String) -> PyResult<Self> {
        let index = Self { table: table.clone().unbind(), name, seen: GilCell::new(None) };
        index.look(table.py())?;
        Ok(index)
    }

    fn missing(&self, py: Python<'_>, others: &[IndexInfo]) -> StoreError {
        let table = self.table.get().name(py).to_string();
        let others = others.iter().map(|other| other.name.to_string()).collect();
        StoreError::Index(Box::new(IndexError::Missing { table, index: self.name.clone(), others }))
    }

    /// The index for a name, reused from `seen` if it has not changed.
    fn known(
        &self,
        py: Python<'_>,
        seen: (bool, u64),
        info: IndexInfo,
    ) -> Result<Arc<KnownIndex>, StoreError> {
        let same = |known: &KnownIndex| known.info == info;
        let old = self.seen.with(py, |seen| seen.as_ref().map(|(_, _, known)| Arc::clone(known)));
        let known = if let Some(old) = old.filter(|old| same(old)) {
            old
        } else {
            let definition = Definition::parse(&info.definition).map_err(|what| {
                StoreError::Index(Box::new(IndexError::Bad { index: self.name.clone(), what }))
            })?;
            Arc::new(KnownIndex { keys: Keys::of(&definition), branches: definition.branches(), info })
        };
        let old = self.seen.with(py, |place| place.replace((seen.0, seen.1, Arc::clone(&known))));
        drop(old);
        Ok(known)
    }

    fn seen(&self, py: Python<'_>, is_inside: bool, number: u64) -> Option<Arc<KnownIndex>> {
        self.seen.with(py, |seen| match seen {
            Some((was_inside, seen, known)) if *was_inside == is_inside && *seen == number => {
                Some(Arc::clone(known))
            }
            _ => None,
        })
    }

    /// The index as it is now.
    fn look(&self, py: Python<'_>) -> PyResult<(TableReader, Arc<KnownIndex>)> {
        let table = self.table.get();
        if table.is_in_transaction(py) {
            let known = table.core().in_running(py, |transaction| {
                // Entries of a batch that is not finished yet.
                transaction.flush_entries()?;
                let serial = transaction.catalog_serial();
                if let Some(known) = self.seen(py, true, serial) {
                    return Ok(known);
                }
                let id = table.id_in_transaction(py, transaction)?.ok_or_else(|| self.missing(py, &[]))?;
                self.known(py, (true, serial), transaction.index(id, &self.name)?)
            })?;
            return Ok((TableReader::Transaction(known.info.table), known));
        }
        let snapshot = table.snapshot(py)?;
        let version = snapshot.catalog_version();
        let known = if let Some(known) = self.seen(py, false, version) {
            known
        } else {
            let found = || {
                let id = table.identity().in_snapshot(py, table.core(), &snapshot)?;
                let info = id.map(|id| snapshot.index(id, &self.name)).transpose()?.flatten();
                let others = || id.and_then(|id| snapshot.indexes(id).ok()).unwrap_or_default();
                self.known(py, (false, version), info.ok_or_else(|| self.missing(py, &others()))?)
            };
            found().map_err(|error| store_errors::of_store(py, error))?
        };
        Ok((TableReader::Snapshot(snapshot, known.info.table), known))
    }

    /// As `look`, for an index that is complete.
    #[inline]
    pub(super) fn ready(&self, py: Python<'_>) -> PyResult<(TableReader, Arc<KnownIndex>)> {
        let (reader, known) = self.look(py)?;
        if known.info.building.is_some() {
            let table = self.table.get().name(py).to_string();
            let building = IndexError::Building { table, index: self.name.clone() };
            return Err(store_errors::of_store(py, StoreError::Index(Box::new(building))));
        }
        Ok((reader, known))
    }

    fn entries(
        &self,
        py: Python<'_>,
        (reader, known): (&TableReader, &KnownIndex),
        range: &Range,
        reverse: bool,
    ) -> PyResult<TransactionScan> {
        let id = known.info.id;
        match reader {
            TableReader::Snapshot(snapshot, _) => {
                let scan =
                    snapshot.scan(id, range, reverse).map_err(|error| store_errors::of_store(py, error))?;
                Ok(TransactionScan::Clean(Box::new(scan)))
            }
            TableReader::Transaction(_) => {
                let core = self.table.get().core();
                core.in_running(py, |transaction| transaction.scan(id, range, reverse))
            }
        }
    }

    /// An iterator over the rows of the entries in a range.
    fn rows<'py>(
        &self,
        py: Python<'py>,
        range: impl FnOnce(&KnownIndex) -> PyResult<Range>,
        reverse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        let (reader, known) = self.ready(py)?;
        let range = range(&known)?;
        let (table, keys) = (known.info.table, known.keys.clone());
        let rows = match self.entries(py, (&reader, &known), &range, reverse)? {
            TransactionScan::Clean(scan) => {
                Rows::Indexed(scan.snapshot().clone(), Box::new(RowsByIndex::new(*scan, table, keys)))
            }
            dirty @ TransactionScan::Dirty(_) => {
                Rows::IndexedInside(Box::new(RowsByIndex::new(dirty, table, keys)))
            }
        };
        Table::iterate_rows(self.table.bind(py), rows, None, Shows::Values)
    }

    /// The result of `work` for the first entry in a range.
    pub(super) fn first_entry<R>(
        &self,
        py: Python<'_>,
        (reader, known): (&TableReader, &KnownIndex),
        range: &Range,
        reverse: bool,
        work: impl FnOnce(StoredRow<'_>) -> R,
    ) -> PyResult<Option<R>> {
        let index = known.info.id;
        read!(reader, self.table.bind(py), |rows, _table| rows.with_first(index, range, reverse, work))
    }

    /// How many entries lie in a range.
    fn count_in(
        &self,
        py: Python<'_>,
        (reader, known): (&TableReader, &KnownIndex),
        range: &Range,
    ) -> PyResult<u64> {
        let mut count = 0;
        self.for_entries(py, (reader, known), range, |_| count += 1)?;
        Ok(count)
    }

    /// Calls `visit` for all entries in a range.
    fn for_entries(
        &self,
        py: Python<'_>,
        (reader, known): (&TableReader, &KnownIndex),
        range: &Range,
        mut visit: impl FnMut(StoredRow<'_>) + Send,
    ) -> PyResult<()> {
        let mut signals = Signals::new();
        match self.entries(py, (reader, known), range, false)? {
            TransactionScan::Clean(mut scan) => {
                let mut visited = |entry: StoredRow<'_>| {
                    visit(entry);
                    if signals.go_on() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
                };
                let walked = callbacks::released(py, || {
                    loop {
                        match scan.next_rows(&mut visited)? {
                            Some(ControlFlow::Continue(())) => {}
                            Some(ControlFlow::Break(())) => return Err(StoreError::Stopped),
                            None => return Ok(()),
                        }
                    }
                });
                walked.map_err(|error| store_errors::of_store(py, error))
            }
            mut scan @ TransactionScan::Dirty(_) => self.table.get().core().in_running(py, |transaction| {
                while scan.next(transaction, &mut visit)?.is_some() {
                    if !signals.go_on() {
                        return Err(StoreError::Stopped);
                    }
                }
                Ok(())
            }),
        }
    }

    /// The keys of the rows with an entry in these ranges, in order and each once.
    fn row_keys(
        &self,
        py: Python<'_>,
        (reader, known): (&TableReader, &KnownIndex),
        ranges: impl Iterator<Item = Range>,
    ) -> PyResult<CoveredRows> {
        let mut keys = CoveredRows::default();
        for range in ranges {
            self.for_entries(py, (reader, known), &range, |entry| {
                if let Some(parts) = known.keys.split(&entry) {
                    keys.push_key(parts.key, parts.key_spelling);
                }
            })?;
        }
        // With each(), a row may have both a number and the Decimal that equals it.
        keys.put_in_order();
        Ok(keys)
    }

    /// The ranges of equal values of the other family (see `equals_in_other_family`), if they have
    /// any entry.
    fn ranges_of_other_family(
        &self,
        py: Python<'_>,
        (reader, known): (&TableReader, &KnownIndex),
        value: &Bound<'_, PyAny>,
    ) -> PyResult<Vec<Range>> {
        let mut ranges = Vec::new();
        for parts in equals_in_other_family(&known.keys, value)? {
            let range = beginning_with(&parts);
            if self.first_entry(py, (reader, known), &range, false, |_| ())?.is_some() {
                ranges.push(range);
            }
        }
        Ok(ranges)
    }
}

/// The codes of parts that equal `value`, but are of the other family: the number for a Decimal,
/// the Decimal for a number.
///
/// # Errors
/// What code of the value raises.
pub fn equals_in_other_family(keys: &Keys, value: &Bound<'_, PyAny>) -> PyResult<Vec<Vec<u8>>> {
    let values = match value.cast::<PyTuple>() {
        Ok(tuple) if keys.count() > 1 => tuple.iter().collect(),
        _ => vec![value.clone()],
    };
    // Each part as it is and in the other family: with several parts, all combinations.
    let mut found: Vec<(KeyEncoder, bool)> = vec![(KeyEncoder::new(), false)];
    for (encoder, _) in &mut found {
        encoder.clear_for_parts();
    }
    for (part, value) in values.iter().enumerate() {
        let is_descending = keys.is_descending(part);
        let equal = if is_number(value) { operand::equal_of(value)? } else { None };
        let mut next = Vec::with_capacity(2 * found.len());
        for (encoder, is_other) in found {
            if let Some(equal) = &equal {
                let mut other = encoder.clone();
                if push_part(&mut other, is_descending, |encoder| push_in_other_family(encoder, equal)) {
                    next.push((other, true));
                }
            }
            let mut same = encoder;
            match push_value(&mut same, is_descending, value) {
                Ok(()) => next.push((same, is_other)),
                Err(Refusal::Raised(error)) => return Err(error),
                Err(Refusal::Unsupported { .. }) => {}
            }
        }
        found = next;
    }
    let others = found.into_iter().filter(|(_, is_other)| *is_other);
    Ok(others.map(|(encoder, _)| encoder.parts().to_vec()).collect())
}

/// Whether the value may have an equal one of the other family.
fn is_number(value: &Bound<'_, PyAny>) -> bool {
    !(value.is_exact_instance_of::<PyString>() || value.is_none() || value.is_exact_instance_of::<PyBytes>())
}

#[pymethods]
impl Index {
    /// The index's name.
    #[getter]
    fn name(&self) -> &str {
        &self.name
    }

    /// The table that the index belongs to.
    #[getter]
    fn table(&self, py: Python<'_>) -> Py<Table> {
        self.table.clone_ref(py)
    }

    /// Return the first row with this value, in the order of the index; `default` if there is none.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people["ann"] = {"name": {"last": "Lee", "first": "Ann"}}
    /// >>> people.create_index("by_name", (F.name.last, F.name.first))
    /// >>> people.index("by_name").get(("Lee", "Ann")).name.first
    /// 'Ann'
    #[pyo3(signature = (value, default=None, /))]
    fn get<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = value.py();
        let (reader, known) = self.ready(py)?;
        if let Some(parts) = self.parts(&known).of(value, true)?
            && let Some(found) = self.row_of_parts(py, &reader, &known, &parts)?
        {
            return Ok(found);
        }
        for parts in equals_in_other_family(&known.keys, value)? {
            if let Some(found) = self.row_of_parts(py, &reader, &known, &parts)? {
                return Ok(found);
            }
        }
        Ok(default.unwrap_or_else(|| py.None().into_bound(py)))
    }

    /// Return all rows with this value, in the order of the index, which is that of their keys.
    /// With `reverse=True`, in reverse order.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people.extend([{"name": "Ann", "age": 30}, {"name": "Bob", "age": 20}, {"name": "Eve", "age": 30}])
    /// 3
    /// >>> people.create_index("by_age", F.age)
    /// >>> [row.name for row in people.index("by_age").get_all(30)]
    /// ['Ann', 'Eve']
    #[pyo3(signature = (value, /, *, reverse=false))]
    fn get_all<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = errors::reverse_flag)] reverse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some(rows) = self.rows_of_both_families(value, reverse)? {
            return Ok(rows);
        }
        // An empty range, for a value that no row can have.
        let nowhere = || Range::half_open(Vec::new(), Vec::new());
        self.rows(
            value.py(),
            |known| {
                let parts = self.parts(known).of(value, true)?;
                Ok(parts.map_or_else(nowhere, |parts| beginning_with(&parts)))
            },
            reverse,
        )
    }

    fn __getitem__(&self, value: &Bound<'_, PyAny>) -> PyResult<()> {
        let (name, value) = (&self.name, value.repr()?);
        Err(errors::type_error(format!(
            "index {name:?} gives no rows by []: several may have one value; get({value}) is the first of them, or None, get_all({value}) all"
        )))
    }

    /// Return whether any row has this value.
    fn __contains__(&self, value: &Bound<'_, PyAny>) -> PyResult<bool> {
        let py = value.py();
        let (reader, known) = self.ready(py)?;
        let has = |parts: &[u8]| -> PyResult<bool> {
            Ok(self.first_entry(py, (&reader, &known), &beginning_with(parts), false, |_| ())?.is_some())
        };
        if let Some(parts) = self.parts(&known).of(value, true)?
            && has(&parts)?
        {
            return Ok(true);
        }
        for parts in equals_in_other_family(&known.keys, value)? {
            if has(&parts)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Return the rows from the value `start` up to `stop`, which is excluded, in the order of the
    /// index. With `reverse=True`, in reverse order.
    ///
    /// None leaves that side open. For a compound index, a tuple of the first few parts is enough.
    /// If the first part is descending, `start` is the greater value.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> log = pellucid.open(":memory:").table("log")
    /// >>> log.extend([{"level": 3}, {"level": 1}, {"level": 2}])
    /// 3
    /// >>> log.create_index("by_level", F.level)
    /// >>> [row.level for row in log.index("by_level").range(2, reverse=True)]
    /// [3, 2]
    #[pyo3(signature = (start=None, stop=None, *, reverse=false))]
    fn range<'py>(
        &self,
        py: Python<'py>,
        start: Option<&Bound<'py, PyAny>>,
        stop: Option<&Bound<'py, PyAny>>,
        #[pyo3(from_py_with = errors::reverse_flag)] reverse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.refuse_bounds(start, stop)?;
        self.rows(py, |known| self.parts(known).between(start, stop), reverse)
    }

    /// Return the rows whose text begins with a prefix; for a compound index, those with these
    /// first parts: `prefix((21,))`.
    ///
    /// For an index with one part, a tuple is the beginning of values that are tuples. To get all
    /// rows of one value, use `get_all`.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people.extend([{"name": "Ann"}, {"name": "Bob"}, {"name": "Anton"}])
    /// 3
    /// >>> people.create_index("by_name", F.name)
    /// >>> [row.name for row in people.index("by_name").prefix("An")]
    /// ['Ann', 'Anton']
    #[pyo3(signature = (prefix, *, reverse=false))]
    fn prefix<'py>(
        &self,
        prefix: &Bound<'py, PyAny>,
        #[pyo3(from_py_with = errors::reverse_flag)] reverse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.refuse_one_part(prefix)?;
        self.rows(prefix.py(), |known| self.parts(known).prefix_range(prefix), reverse)
    }

    /// Return all rows with an entry, in the order of the index.
    #[pyo3(signature = (*, reverse=false))]
    fn values<'py>(
        &self,
        py: Python<'py>,
        #[pyo3(from_py_with = errors::reverse_flag)] reverse: bool,
    ) -> PyResult<Bound<'py, PyAny>> {
        self.rows(py, |_| Ok(Range::ALL), reverse)
    }

    /// Return the first row in the order of the index; None if the index is empty.
    fn first<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (reader, known) = self.ready(py)?;
        self.row_of_first(py, &reader, &known, &Range::ALL, false)
    }

    /// Return the last row in the order of the index; None if the index is empty.
    fn last<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (reader, known) = self.ready(py)?;
        self.row_of_first(py, &reader, &known, &Range::ALL, true)
    }

    /// Return how many rows have this value.
    fn count(&self, value: &Bound<'_, PyAny>) -> PyResult<u64> {
        let py = value.py();
        let (reader, known) = self.ready(py)?;
        let own = self.parts(&known).of(value, true)?.map(|parts| beginning_with(&parts));
        let others = self.ranges_of_other_family(py, (&reader, &known), value)?;
        let mut ranges = own.into_iter().chain(others.iter().cloned());
        if known.branches && !others.is_empty() {
            return Ok(self.row_keys(py, (&reader, &known), ranges)?.len() as u64);
        }
        ranges.try_fold(0, |count, range| Ok(count + self.count_in(py, (&reader, &known), &range)?))
    }

    /// Return pairs of value and row key, from `start` up to `stop`, without reading rows. Bounds
    /// are as for `range`.
    #[pyo3(signature = (start=None, stop=None, *, reverse=false))]
    fn keys(
        &self,
        py: Python<'_>,
        start: Option<&Bound<'_, PyAny>>,
        stop: Option<&Bound<'_, PyAny>>,
        #[pyo3(from_py_with = errors::reverse_flag)] reverse: bool,
    ) -> PyResult<IndexKeys> {
        self.refuse_bounds(start, stop)?;
        let (reader, known) = self.ready(py)?;
        let range = self.parts(&known).between(start, stop)?;
        let entries = self.entries(py, (&reader, &known), &range, reverse)?;
        let serial = self.table.get().core().running_serial(py);
        Ok(IndexKeys {
            table: self.table.clone_ref(py),
            known,
            entries: GilCell::new(Some(entries)),
            left: GilValue::new(0),
            serial,
        })
    }

    fn __iter__(&self, py: Python<'_>) -> PyResult<IndexKeys> {
        self.keys(py, None, None, false)
    }

    fn __len__(&self, py: Python<'_>) -> PyResult<usize> {
        let (reader, known) = self.ready(py)?;
        let count = read!(&reader, self.table.bind(py), |rows, _table| rows.count(known.info.id))?;
        Ok(count as usize)
    }

    /// True for an index without entries, too.
    #[allow(clippy::unused_self, reason = "a method of Python's")]
    fn __bool__(&self) -> bool {
        true
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        let name = self.table.get().name(py);
        let text = self.look(py).map(|(_, known)| {
            let unique = if known.info.is_unique { "unique, " } else { "" };
            format!(
                "<pellucid.Index {:?} of table {name:?}, {unique}over {}>",
                self.name, known.info.definition
            )
        });
        errors::shown(py, "pellucid.Index", text)
    }
}

impl Index {
    /// All rows with this number, in the order of their keys, if some rows have it as a Decimal and
    /// others do not. None if all have it as the same.
    fn rows_of_both_families<'py>(
        &self,
        value: &Bound<'py, PyAny>,
        reverse: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let py = value.py();
        let (reader, known) = self.ready(py)?;
        let others = self.ranges_of_other_family(py, (&reader, &known), value)?;
        if others.is_empty() {
            return Ok(None);
        }
        let own = self.parts(&known).of(value, true)?;
        let ranges = own.iter().map(|parts| beginning_with(parts)).chain(others);
        let mut keys = self.row_keys(py, (&reader, &known), ranges)?;
        if reverse {
            keys.turn(0);
        }
        let keys = SortedKeys::Listed(keys);
        let table = self.table.bind(py);
        Table::iterate_rows(table, reader.list(table, keys)?, None, Shows::Values).map(Some)
    }

    /// The row of the first entry in a range.
    fn row_of_first<'py>(
        &self,
        py: Python<'py>,
        reader: &TableReader,
        known: &KnownIndex,
        range: &Range,
        reverse: bool,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let key = self.first_entry(py, (reader, known), range, reverse, |entry| known.row_key(&entry))?;
        self.row_under(py, reader, key.flatten())
    }

    /// The row of the first entry with these parts.
    fn row_of_parts<'py>(
        &self,
        py: Python<'py>,
        reader: &TableReader,
        known: &KnownIndex,
        parts: &[u8],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let TableReader::Snapshot(snapshot, _) = reader else {
            return self.row_of_first(py, reader, known, &beginning_with(parts), false);
        };
        let key = snapshot.with_first_of(known.info.id, parts, |entry| known.row_key(&entry));
        let key = key.map_err(|error| store_errors::of_store(py, error))?;
        self.row_under(py, reader, key.flatten())
    }

    fn row_under<'py>(
        &self,
        py: Python<'py>,
        reader: &TableReader,
        key: Option<Key>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(key) = key else { return Ok(None) };
        match reader {
            TableReader::Snapshot(snapshot, table) => {
                Table::value_in(self.table.bind(py), snapshot, *table, &key)
            }
            TableReader::Transaction(_) => Table::value_of(self.table.bind(py), &key),
        }
    }
}
