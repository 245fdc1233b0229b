//! Read or write a single row on the short way, without a snapshot or a transaction.
//!
//! Outside of a transaction, most accesses to a table concern one key. The store does these without
//! a snapshot and without a transaction if no other writer is in the way (`TryResult`). All other
//! accesses go the long way, which does the same and can wait.

use pellucid_record::encode::{SHORT_RECORD_SIZE, Simple, short_record};
use pellucid_record::key::{SHORT_KEY_SIZE, short_key};
use pellucid_record::layout::Kind;
use pellucid_record::view::{Root, root};
use pellucid_store::{CachedDatabase, KnownTable, StoreError, TryResult};
use pyo3::prelude::*;

use crate::counters;
use crate::errors;
use crate::hot::gil::GilRc;
use crate::store_errors;
use crate::table::handle::Table;
use crate::values::decode;
use crate::values::row::{Row, VIEW_SIZE_MIN};
use crate::values::table_ref::TableRef;

impl Table {
    /// Runs `work` with the open store and the table's id; `None` if the short way is not possible.
    #[inline]
    pub fn try_row<R>(
        &self,
        py: Python<'_>,
        mut work: impl FnMut(&CachedDatabase, KnownTable) -> Result<TryResult<R>, StoreError>,
    ) -> PyResult<Option<R>> {
        const TRIES: usize = 3;
        if self.frozen.is_some() || self.core.is_mine(py) {
            return Ok(None);
        }
        for _ in 0..TRIES {
            let Some(known) = self.identity.known().or_else(|| self.look_up(py)) else { return Ok(None) };
            let done = self.core.with_cached(py, |cached| work(cached, known));
            match done.map_err(|error| store_errors::of_store(py, error))? {
                TryResult::Done(done) => return Ok(Some(done)),
                TryResult::UseTransaction => return Ok(None),
                TryResult::CatalogChanged => self.identity.forget_version(),
            }
        }
        Ok(None)
    }

    /// Looks up the table, which is known from then on. None if that failed: the long way raises
    /// errors about the table, and about snapshots, which a write does without.
    #[cold]
    fn look_up(&self, py: Python<'_>) -> Option<KnownTable> {
        let snapshot = self.snapshot(py).ok()?;
        self.id_in(py, &snapshot).ok()?;
        self.identity.known()
    }

    /// The value of a key, or that it has none, if the short way is possible. The store tells no
    /// spelling there, so that the row gets that of the caller.
    #[inline]
    pub(super) fn try_value<'py>(
        slf: &Bound<'py, Self>,
        key: &[u8],
        spelling: &[u8],
    ) -> PyResult<TryResult<Option<Bound<'py, PyAny>>>> {
        let (py, this) = (slf.py(), slf.get());
        if this.builds() {
            return Ok(TryResult::UseTransaction);
        }
        // Two variables, since a row is large and would be moved together with each scalar. Making
        // them runs no user code, since other threads wait for the store meanwhile.
        let (mut scalar, mut row, mut is_large) = (None, None, false);
        let found = this.try_row(py, |cached, known| {
            cached.show(known, key, |record| {
                scalar = Self::scalar(this, py, record);
                is_large = scalar.is_none() && this.is_large(record);
                if scalar.is_none() && !is_large {
                    row = Some(Self::stored_row(slf, key, record));
                }
            })
        })?;
        Ok(match (found, row) {
            (None, _) => TryResult::UseTransaction,
            (Some(_), _) if is_large => TryResult::UseTransaction,
            (Some(_), None) => TryResult::Done(scalar),
            (Some(_), Some(row)) => {
                match this
                    .if_whole(py, super::typed::value_of_row(py, GilRc::new(row.spelled(py, spelling))))?
                {
                    None => TryResult::UseTransaction,
                    value => TryResult::Done(value),
                }
            }
        })
    }

    /// The value of a short str key, if there is one and the short way is possible. The general way
    /// does all else.
    #[inline]
    pub fn value_of_short<'py>(slf: &Bound<'py, Self>, text: &[u8]) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut room = [0; SHORT_KEY_SIZE];
        if !slf.get().core.validity.is_open() {
            return Ok(None);
        }
        let Some(key) = short_key(text, &mut room) else { return Ok(None) };
        match Self::try_value(slf, key, &[])? {
            TryResult::Done(value) => Ok(value),
            TryResult::CatalogChanged | TryResult::UseTransaction => Ok(None),
        }
    }

    /// Stores a small value under a short str key if the short way is possible; returns whether it
    /// did.
    #[inline]
    pub fn put_short(&self, py: Python<'_>, key: &[u8], value: Simple<'_>) -> PyResult<bool> {
        if self.builds() || !self.core.validity.is_open() {
            return Ok(false);
        }
        let (mut room, mut record_room) = ([0; SHORT_KEY_SIZE], [0; SHORT_RECORD_SIZE]);
        let Some(key) = short_key(key, &mut room) else { return Ok(false) };
        let Some(record) = short_record(value, &mut record_room) else { return Ok(false) };
        let put = self.try_row(py, |cached, known| cached.put(known, key, record))?;
        if put.is_some() {
            counters::value_encoded();
            self.core.count_stored();
        }
        Ok(put.is_some())
    }

    /// Whether rows are instances of a class, which Python code builds and checks.
    #[inline]
    fn builds(&self) -> bool {
        self.class.as_ref().is_some_and(|class| !class.is_any)
    }

    /// Whether rows are any objects, built whole.
    #[inline]
    pub(super) fn gives_any(&self) -> bool {
        self.class.as_ref().is_some_and(|class| class.is_any)
    }

    /// Whether a record is read where it lies.
    #[inline]
    fn is_large(&self, record: &[u8]) -> bool {
        record.len() >= VIEW_SIZE_MIN && self.gives_any()
    }

    /// A value that was read without a snapshot; None if it was built whole, and another process
    /// has replaced its large values meanwhile.
    #[inline]
    fn if_whole<'py>(
        &self,
        py: Python<'py>,
        value: PyResult<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        match value {
            Err(error) if self.class.is_some() && errors::is_of(py, &error, "StaleRecord") => Ok(None),
            value => value.map(Some),
        }
    }

    /// The decoded value of a record that is a single scalar.
    #[inline]
    fn scalar<'py>(this: &Self, py: Python<'py>, record: &[u8]) -> Option<Bound<'py, PyAny>> {
        if record.first().is_some_and(|byte| Kind::from_number(byte >> 4).is_none())
            && let Ok(Root::Scalar(slot)) = root(record, &*this.core.names)
        {
            return decode::simple(py, &slot);
        }
        None
    }

    fn stored_row(slf: &Bound<'_, Self>, key: &[u8], record: &[u8]) -> Row {
        let this = slf.get();
        let (names, validity) = (this.core.names.clone(), this.core.validity.clone());
        Row::owned(record, key, names, validity, Some(TableRef::new(slf)), this.why_frozen())
    }
}
