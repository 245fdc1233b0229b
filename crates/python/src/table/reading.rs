//! Read rows through a table's handle: committed rows, rows of a snapshot, or rows of the running
//! transaction.

use pellucid_query::{CopiedRows, CoveredRows, RowsByIndex, RowsByKey, Selection};
use pellucid_store::{
    FoundRow, Range as KeyRange, Row as StoredRow, Scan, Snapshot, StoreError, TableId, Transaction,
    TransactionScan, TryResult,
};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::bounds::Bounds;
use crate::errors;
use crate::hot::gil::{GilRc, Strong};
use crate::server::feed::RemoteRows;
use crate::store_errors;
use crate::table::handle::Table;
use crate::table::rows::{RowIterator, RowSource};
use crate::table::typed::value_of_row;
use crate::values::keys::{self, Key};
use crate::values::large::Large;
use crate::values::row::Row;
use crate::values::table_ref::TableRef;
use crate::values::views::{Shows, Viewed};

/// An iterator over rows, as they were when it began.
pub enum Rows {
    /// Over a snapshot; the bytes stay in place.
    Pinned(Box<Scan>),
    /// Over the state of a transaction that has changed something.
    Inside(TransactionScan),
    /// Under a list of keys of a snapshot.
    Listed(Snapshot, Box<RowsByKey>),
    /// Copied out of a transaction that has changed something.
    Copied(CopiedRows),
    /// By the entries of an index of a snapshot.
    Indexed(Snapshot, Box<RowsByIndex<Snapshot>>),
    /// By those of an index as a transaction has it.
    IndexedInside(Box<RowsByIndex<Transaction>>),
    /// From the entries of a covering index, or from keys alone; and whether a running transaction
    /// reads them.
    Covered(Box<CoveredRows>, bool),
    /// As a server sends them.
    Remote(Box<RemoteRows>),
}

impl Rows {
    /// Whether the rows are those of a running transaction that has changed something.
    pub fn is_inside(&self) -> bool {
        match self {
            Self::Inside(_) | Self::Copied(_) | Self::IndexedInside(_) | Self::Covered(_, true) => true,
            Self::Pinned(_)
            | Self::Listed(..)
            | Self::Indexed(..)
            | Self::Covered(_, false)
            | Self::Remote(_) => false,
        }
    }

    /// The snapshot that the rows are read from; None for the state of a transaction.
    pub fn snapshot(&self) -> Option<&Snapshot> {
        match self {
            Self::Pinned(scan) => Some(scan.snapshot()),
            Self::Listed(snapshot, _) | Self::Indexed(snapshot, _) => Some(snapshot),
            Self::Inside(_)
            | Self::Copied(_)
            | Self::IndexedInside(_)
            | Self::Covered(..)
            | Self::Remote(_) => None,
        }
    }
}

/// Converts an object to a key; None if it cannot be one, so that no row has it.
pub(super) fn storable(object: &Bound<'_, PyAny>) -> PyResult<Option<Key>> {
    match keys::try_key_of(object) {
        Ok(key) => Ok(Some(key)),
        Err(keys::Refusal::Unsupported { .. }) => Ok(None),
        Err(keys::Refusal::Raised(error)) => Err(error),
    }
}

impl Table {
    /// The row of a key, as an owned copy.
    pub(super) fn row(slf: &Bound<'_, Self>, key: &Key) -> PyResult<Option<GilRc<Row>>> {
        let py = slf.py();
        let this = slf.get();
        let validity = this.row_gate(py);
        let own = |record: &[u8], spelling: &[u8]| {
            let (names, table) = (this.core.names.clone(), Some(TableRef::new(slf)));
            let row = Row::owned(record, &key.bytes, names, validity.clone(), table, this.why_frozen());
            GilRc::new(row.spelled(py, spelling))
        };
        if this.is_in_transaction(py) {
            return this.core.in_running(py, |transaction| {
                let Some(id) = this.id_in_transaction(py, transaction)? else { return Ok(None) };
                Ok(transaction.get(id, &key.bytes)?.map(|cell| own(&cell.record, cell.spelling)))
            });
        }
        let snapshot = this.snapshot(py)?;
        let Some(id) = this.id_in(py, &snapshot)? else { return Ok(None) };
        if this.gives_any() {
            // The object is built whole at once, with arrays that stay where they lie. Those of a
            // packed row are in a copy.
            let mut is_packed = false;
            let found = Row::found_in(
                &snapshot,
                |snapshot| {
                    let found = snapshot.get(id, &key.bytes)?;
                    is_packed = found.as_ref().is_some_and(|found| !found.is_in_place());
                    Ok(found.and_then(FoundRow::record_in_place))
                },
                &key.bytes,
                this.core.names.clone(),
                validity.clone(),
                Some(TableRef::new(slf)),
                this.why_frozen(),
            );
            if !is_packed {
                let found = found.map_err(|error: StoreError| store_errors::of_store(py, error))?;
                return Ok(found.map(|row| GilRc::new(row.spelled(py, &key.spelling))));
            }
        }
        let cell = snapshot.get(id, &key.bytes).map_err(|error| store_errors::of_store(py, error))?;
        Ok(cell.map(|cell| {
            let row = own(&cell.record, cell.spelling);
            if this.class.is_some() && cell.has_blobs() {
                // The object is built whole at once, and another process may replace the large
                // values meanwhile.
                row.attach(py, snapshot.clone());
            }
            row
        }))
    }

    /// Whether a key has a row.
    pub(super) fn has(&self, py: Python<'_>, key: &Key) -> PyResult<bool> {
        self.core.check_open(py)?;
        if let Some(has) = self.try_row(py, |cached, known| cached.show(known, &key.bytes, |_| ()))? {
            return Ok(has);
        }
        if self.is_in_transaction(py) {
            return self.core.in_running(py, |transaction| {
                match self.id_in_transaction(py, transaction)? {
                    Some(id) => Ok(transaction.get(id, &key.bytes)?.is_some()),
                    None => Ok(false),
                }
            });
        }
        let snapshot = self.snapshot(py)?;
        let Some(id) = self.id_in(py, &snapshot)? else { return Ok(false) };
        Ok(snapshot.get(id, &key.bytes).map_err(|error| store_errors::of_store(py, error))?.is_some())
    }

    /// The value of a key, or None; also None for an object that cannot be a key.
    pub fn lookup<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::lookup_by(slf, key, |_| ())
    }

    /// As `lookup`; `see` is called with the key before.
    pub fn lookup_by<'py>(
        slf: &Bound<'py, Self>,
        key: &Bound<'py, PyAny>,
        see: impl FnOnce(&Key),
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let Some(key) = storable(key)? else {
            slf.get().snapshot(slf.py())?;
            return Ok(None);
        };
        see(&key);
        let value = Self::value(slf, &key);
        keys::recycle(slf.py(), key);
        value
    }

    /// The value of a key, as the caller sees it now.
    pub fn value_of<'py>(slf: &Bound<'py, Self>, key: &Key) -> PyResult<Option<Bound<'py, PyAny>>> {
        Self::row(slf, key)?.map(|row| value_of_row(slf.py(), row)).transpose()
    }

    /// The value of a key of this table in a snapshot.
    pub fn value_in<'py>(
        slf: &Bound<'py, Self>,
        snapshot: &Snapshot,
        id: TableId,
        key: &Key,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let (py, this) = (slf.py(), slf.get());
        let cell = snapshot.get(id, &key.bytes).map_err(|error| store_errors::of_store(py, error))?;
        let Some(cell) = cell else { return Ok(None) };
        let (names, validity) = (this.core.names.clone(), this.row_gate(py));
        let table = Some(TableRef::new(slf));
        let row = Row::owned(&cell.record, &key.bytes, names, validity, table, this.why_frozen());
        if this.class.is_some() && cell.has_blobs() {
            // As in `row`.
            row.attach(py, snapshot.clone());
        }
        value_of_row(py, GilRc::new(row.spelled(py, cell.spelling))).map(Some)
    }

    /// Raises if the snapshot or the database of the table was closed.
    pub fn check_gate(&self, py: Python<'_>) -> PyResult<()> {
        if self.validity().is_open() {
            return Ok(());
        }
        Err(errors::closed(
            py,
            "the snapshot or database of this iterator",
            "make a list of what is needed before closing",
        ))
    }

    fn value<'py>(slf: &Bound<'py, Self>, key: &Key) -> PyResult<Option<Bound<'py, PyAny>>> {
        slf.get().core.check_open(slf.py())?;
        if let TryResult::Done(found) = Self::try_value(slf, &key.bytes, &key.spelling)? {
            return Ok(found);
        }
        Self::row(slf, key)?.map(|row| value_of_row(slf.py(), row)).transpose()
    }

    /// As `lookup`, for keys within bounds.
    pub fn get_within<'py>(
        slf: &Bound<'py, Self>,
        bounds: &Bounds,
        key: &Bound<'py, PyAny>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match storable(key)? {
            Some(key) if bounds.holds(&key.bytes) => Self::value(slf, &key),
            _ => Ok(None),
        }
    }

    /// How many rows lie within bounds.
    pub fn count_within(&self, py: Python<'_>, bounds: &Bounds) -> PyResult<usize> {
        if bounds.is_all {
            return self.len(py);
        }
        let mut count = 0;
        if self.is_in_transaction(py) {
            return self.core.in_running(py, |transaction| {
                let Some(id) = self.id_in_transaction(py, transaction)? else { return Ok(0) };
                let mut scan = transaction.scan(id, &bounds.range, false)?;
                while scan.next(transaction, |_| ())?.is_some() {
                    count += 1;
                }
                Ok(count)
            });
        }
        let snapshot = self.snapshot(py)?;
        let Some(id) = self.id_in(py, &snapshot)? else { return Ok(0) };
        let failed = |error| store_errors::of_store(py, error);
        let mut scan = snapshot.scan(id, &bounds.range, false).map_err(failed)?;
        while scan.next_name().map_err(failed)?.is_some() {
            count += 1;
        }
        Ok(count)
    }

    /// The int under which `append` would store a row; `None` if a number among the keys is too
    /// great.
    pub(super) fn next_int(&self, py: Python<'_>) -> PyResult<Option<i64>> {
        if self.is_in_transaction(py) {
            return self.core.in_running(py, |transaction| {
                match self.id_in_transaction(py, transaction)? {
                    Some(id) => transaction.next_int(id),
                    None => Ok(Some(0)),
                }
            });
        }
        let snapshot = self.snapshot(py)?;
        match self.id_in(py, &snapshot)? {
            Some(id) => snapshot.next_int(id).map_err(|error| store_errors::of_store(py, error)),
            None => Ok(Some(0)),
        }
    }

    pub(super) fn len(&self, py: Python<'_>) -> PyResult<usize> {
        let count = if self.is_in_transaction(py) {
            self.core.in_running(py, |transaction| match self.id_in_transaction(py, transaction)? {
                Some(id) => transaction.count(id),
                None => Ok(0),
            })?
        } else {
            let snapshot = self.snapshot(py)?;
            match self.id_in(py, &snapshot)? {
                Some(id) => snapshot.count(id).map_err(|error| store_errors::of_store(py, error))?,
                None => 0,
            }
        };
        Ok(count as usize)
    }

    /// The rows within bounds, as they are now; None if the table does not exist yet.
    pub fn rows(&self, py: Python<'_>, bounds: &Bounds, reverse: bool) -> PyResult<Option<Rows>> {
        let reverse = bounds.reverse != reverse;
        if self.is_in_transaction(py) {
            return self.core.in_running(py, |transaction| {
                match self.id_in_transaction(py, transaction)? {
                    Some(id) => {
                        transaction.scan(id, &bounds.range, reverse).map(crate::column::rows_of).map(Some)
                    }
                    None => Ok(None),
                }
            });
        }
        let snapshot = self.snapshot(py)?;
        let Some(id) = self.id_in(py, &snapshot)? else { return Ok(None) };
        let scan =
            snapshot.scan(id, &bounds.range, reverse).map_err(|error| store_errors::of_store(py, error))?;
        Ok(Some(Rows::Pinned(Box::new(scan))))
    }

    /// An iterator over the keys, values or items within bounds.
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
        Self::iterate_rows(slf, rows, None, shows)
    }

    /// An iterator over the keys, values or items of rows; only those that `selection` takes, if
    /// there is one.
    pub fn iterate_rows<'py>(
        slf: &Bound<'py, Self>,
        rows: Rows,
        selection: Option<Selection>,
        shows: Shows,
    ) -> PyResult<Bound<'py, PyAny>> {
        let this = slf.get();
        let source = RowSource::new(
            this.validity().clone(),
            this.core.names.clone(),
            Strong::new(slf),
            this.why_frozen(),
        );
        let iterator = RowIterator::new(slf.py(), rows, selection, source, shows);
        Ok(Bound::new(slf.py(), iterator)?.into_any())
    }

    /// A value stored outside of a record: from `snapshot`, if the record came from one, or from
    /// the running transaction, which may have stored it.
    pub fn overflow(&self, py: Python<'_>, snapshot: Option<&Snapshot>, id: u64) -> PyResult<Option<Large>> {
        let held = |snapshot: &Snapshot| {
            Large::held(snapshot, id).map_err(|error| store_errors::of_store(py, error))
        };
        if let Some(snapshot) = snapshot {
            let data = held(snapshot)?;
            if data.is_some() || !self.is_in_transaction(py) {
                return Ok(data);
            }
        }
        if self.is_in_transaction(py) {
            return self.core.in_running(py, |transaction| Large::copied(transaction.blob(id)));
        }
        held(&self.snapshot(py)?)
    }

    /// A row for a copy of a record; large values come from `snapshot`, if the record did.
    pub fn copied_row(slf: &Bound<'_, Self>, key: &[u8], record: &[u8], snapshot: Option<&Snapshot>) -> Row {
        let this = slf.get();
        let table = Some(TableRef::new(slf));
        let (names, validity) = (this.core.names.clone(), this.validity().clone());
        let row = Row::owned(record, key, names, validity, table, this.why_frozen());
        if let Some(snapshot) = snapshot {
            row.attach(slf.py(), snapshot.clone());
        }
        row
    }

    /// The first key and its value, or the last ones. Without a walk: one would read a page, and
    /// the deleted rows before the first row of a queue.
    pub fn edge<'py>(
        slf: &Bound<'py, Self>,
        reverse: bool,
    ) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>)>> {
        let (py, this) = (slf.py(), slf.get());
        let key_of = |row: StoredRow<'_>| Key { bytes: row.key.into(), spelling: row.spelling.into() };
        let (key, value) = if this.is_in_transaction(py) {
            let key =
                this.core.in_running(py, |transaction| match this.id_in_transaction(py, transaction)? {
                    Some(id) => transaction.with_first(id, &KeyRange::ALL, reverse, key_of),
                    None => Ok(None),
                })?;
            let Some(key) = key else { return Ok(None) };
            let value = Self::value_of(slf, &key)?;
            (key, value)
        } else {
            let snapshot = this.snapshot(py)?;
            let Some(id) = this.id_in(py, &snapshot)? else { return Ok(None) };
            let key = snapshot.with_first(id, &KeyRange::ALL, reverse, key_of);
            let Some(key) = key.map_err(|error| store_errors::of_store(py, error))? else { return Ok(None) };
            let value = Self::value_in(slf, &snapshot, id, &key)?;
            (key, value)
        };
        let Some(value) = value else { return Ok(None) };
        Ok(Some((keys::object_of(py, &key.bytes, &key.spelling)?, value)))
    }
}

/// The rows of a table whose keys lie in a range, for its views.
pub struct Range(pub Py<Table>, pub Bounds);

impl Viewed for Range {
    fn object(&self) -> &Py<PyAny> {
        self.0.as_any()
    }

    fn len(&self, py: Python<'_>) -> PyResult<usize> {
        self.0.get().count_within(py, &self.1)
    }

    fn iterate<'py>(&self, py: Python<'py>, shows: Shows, reverse: bool) -> PyResult<Bound<'py, PyAny>> {
        Table::iterate(self.0.bind(py), &self.1, shows, reverse)
    }

    fn get<'py>(&self, py: Python<'py>, key: &Bound<'py, PyAny>) -> PyResult<Option<Bound<'py, PyAny>>> {
        Table::get_within(self.0.bind(py), &self.1, key)
    }
}
