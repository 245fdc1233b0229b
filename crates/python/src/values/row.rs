//! The bytes that record handles read, and the holder that keeps them in memory.
//!
//! A `Row` is one stored value: bytes, and a holder that keeps them. All handles into one value (a
//! record, the list in it, the dict in that list) share one row. Invariants:
//!
//! 1. `bytes()` is valid until the holder changes; no caller keeps the slice across a call that
//!    could run Python code or change the row. Code that decodes more than one value takes a
//!    `Reading`, whose bytes do not change: a change meanwhile goes to a copy.
//! 2. A row over a snapshot is read only while its flag is open. The snapshot itself lives as long
//!    as the holder, so even a missing test of the flag could not leave a dangling pointer.
//! 3. `version` grows when the bytes change other than in place: places found earlier are then
//!    wrong and must be looked up again.
#![allow(unsafe_code)]

use std::sync::Arc;

use pellucid_record::path::OwnedStep;
use pellucid_store::{LargeValue, Snapshot};
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use pellucid_record::patch;

use crate::errors;
use crate::hot::gil::{GilCell, GilRc, GilValue, Shared, Spare, Strong};
use crate::hot::held_bytes::HeldBytes;
use crate::values::hooks::PicklePolicy;
use crate::values::large::Large;
use crate::values::names::Names;
use crate::values::reading::Reading;
use crate::values::row_errors;
use crate::values::table_ref::TableRef;

/// Arrays of this many bytes or more are read where they lie.
pub const VIEW_SIZE_MIN: usize = 4096;

/// Whether the source of rows is still open: a snapshot, a database or a transaction.
pub struct ValidityFlag(GilValue<State>);

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    Closed,
    RolledBack,
}

impl ValidityFlag {
    /// An open flag.
    pub fn new() -> GilRc<Self> {
        GilRc::new(Self(GilValue::new(State::Open)))
    }

    /// Whether rows may be read.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.0.get() == State::Open
    }

    /// Closes the flag: from now on, its rows raise `StaleRecord`.
    pub fn close(&self) {
        self.0.set(State::Closed);
    }

    /// Notes that the transaction was rolled back: from now on, its rows are reloaded from the
    /// table.
    pub fn roll_back(&self) {
        self.0.set(State::RolledBack);
    }

    /// Whether rows must be reloaded.
    pub fn is_rolled_back(&self) -> bool {
        self.0.get() == State::RolledBack
    }
}

impl Shared for ValidityFlag {}

/// The flag of a row; a change of the row within a transaction replaces it.
pub struct RowValidity(GilCell<GilRc<ValidityFlag>>);

impl RowValidity {
    fn new(validity: GilRc<ValidityFlag>) -> Self {
        Self(GilCell::new(validity))
    }

    #[inline]
    fn with<R>(&self, work: impl FnOnce(&mut GilRc<ValidityFlag>) -> R) -> R {
        // SAFETY: rows are used only with the GIL held.
        self.0.with(unsafe { Python::assume_attached() }, work)
    }

    /// Whether the row may be read.
    #[inline]
    pub fn is_open(&self) -> bool {
        self.with(|validity| validity.is_open())
    }

    /// The flag itself.
    pub fn share(&self) -> GilRc<ValidityFlag> {
        self.with(|validity| validity.clone())
    }

    /// Assigns the row to this transaction or database.
    pub fn set(&self, new: GilRc<ValidityFlag>) {
        drop(self.with(|validity| std::mem::replace(validity, new)));
    }
}

/// The owner of a row's bytes.
pub enum Holder {
    /// The row's own copy: the record, then its key.
    Owned(Box<[u8]>),
    /// The same, of a row that its walk may have stand for another record (`refill.rs`).
    Walked(Vec<u8>),
    /// A buffer of the user's that `view` reads.
    Buffer(PyBuffer<u8>),
    /// A bytes object.
    Bytes(Strong<PyBytes>),
    /// What a server has sent: a bytes object with the record, and one with the key.
    Fetched { _value: Strong<PyBytes>, _key: Strong<PyBytes> },
    /// A page of the database, through the snapshot that pins it.
    Snapshot(Snapshot),
    /// The row's own copy, and the snapshot that has the large values stored outside of the record.
    /// Boxed, to keep other rows small.
    Overflow(Box<(Box<[u8]>, Snapshot)>),
    /// As `Overflow`, for a change that a watch reports: it brings the large values that its commit
    /// wrote, since the snapshot may not have them any more.
    Reported(Box<ReportedRow>),
}

impl Holder {
    fn snapshot(&self) -> Option<&Snapshot> {
        match self {
            Holder::Snapshot(snapshot) => Some(snapshot),
            Holder::Overflow(held) => Some(&held.1),
            Holder::Reported(row) => Some(&row.snapshot),
            Holder::Owned(_)
            | Holder::Walked(_)
            | Holder::Buffer(_)
            | Holder::Bytes(_)
            | Holder::Fetched { .. } => None,
        }
    }

    /// The bytes of a large value that the change of a watch brings along.
    fn reported(&self, id: u64) -> Option<Arc<[u8]>> {
        match self {
            Holder::Reported(row) => row.large.iter().find(|large| large.id == id)?.bytes.clone(),
            _ => None,
        }
    }
}

/// The row that a commit wrote, with its large values.
pub struct ReportedRow {
    _copy: Box<[u8]>,
    snapshot: Snapshot,
    large: Vec<LargeValue>,
}

/// One stored value, shared by any number of handles.
pub struct Row {
    data: GilValue<*const u8>,
    size: GilValue<usize>,
    key_data: GilValue<*const u8>,
    key_size: GilValue<usize>,
    version: GilValue<u32>,
    is_pinned: GilValue<bool>,
    /// Whether a handle on an element of a list was ever made; only then are `moves` recorded.
    has_elements: GilValue<bool>,
    /// How many `Reading`s of the current bytes exist.
    pub(super) readers: GilValue<u32>,
    pub(super) aside: GilCell<Option<Box<Aside>>>,
    pub(super) holder: GilCell<Holder>,
    /// The version that a server gave the stored row; 0 in a file.
    pub edition: GilValue<i64>,
    /// The names of its shapes.
    pub names: GilRc<Names>,
    /// Open while the row may be read.
    pub validity: RowValidity,
    /// The table that the row is attached to; None if changes stay in this row.
    pub table: Option<TableRef>,
    /// Why the row cannot be changed; None if it can.
    pub frozen: Option<&'static str>,
    /// The pickle policy, if no table determines it.
    pub own_policy: Option<Box<PicklePolicy>>,
    is_tracked: bool,
}

impl Shared for Row {
    #[inline]
    fn spare() -> Option<&'static Spare> {
        static SPARE: Spare = Spare::new();
        Some(&SPARE)
    }
}

// SAFETY: the pointers lead into memory that `holder` keeps; they and the holder are used only with
// the GIL held.
unsafe impl Send for Row {}
// SAFETY: as above.
unsafe impl Sync for Row {}

impl Row {
    /// A row over its own copy of a record and its key (empty if there is none).
    pub fn owned(
        record: &[u8],
        key: &[u8],
        names: GilRc<Names>,
        validity: GilRc<ValidityFlag>,
        table: Option<TableRef>,
        frozen: Option<&'static str>,
    ) -> Self {
        let copy = copy_of(record, key);
        let data = copy.as_ptr();
        // SAFETY: nothing reads the row before it leads to the copy, which its holder keeps.
        let row = unsafe { Self::borrowed(record, key, Holder::Owned(copy), names, validity, table, frozen) };
        row.lead_to(data, record.len(), key.len());
        row
    }

    /// Sets where the bytes are: a record, followed by its key.
    pub(super) fn lead_to(&self, data: *const u8, size: usize, key_size: usize) {
        self.data.set(data);
        self.size.set(size);
        // The key's bytes are the tail of the same box; for an empty key, its end.
        self.key_data.set(data.wrapping_add(size));
        self.key_size.set(key_size);
    }

    /// A row over bytes that `holder` keeps.
    ///
    /// # Safety
    /// `record` and `key` lie in memory that `holder` keeps alive and unmoved.
    pub unsafe fn borrowed(
        record: &[u8],
        key: &[u8],
        holder: Holder,
        names: GilRc<Names>,
        validity: GilRc<ValidityFlag>,
        table: Option<TableRef>,
        frozen: Option<&'static str>,
    ) -> Self {
        Self {
            data: GilValue::new(record.as_ptr()),
            size: GilValue::new(record.len()),
            key_data: GilValue::new(key.as_ptr()),
            key_size: GilValue::new(key.len()),
            version: GilValue::new(0),
            is_pinned: GilValue::new(matches!(holder, Holder::Snapshot(_))),
            has_elements: GilValue::new(false),
            readers: GilValue::new(0),
            aside: GilCell::new(None),
            holder: GilCell::new(holder),
            edition: GilValue::new(0),
            names,
            validity: RowValidity::new(validity),
            table,
            frozen,
            own_policy: None,
            is_tracked: false,
        }
    }

    /// Replaces the row's memory by a copy: a record of `size` bytes, followed by its key.
    fn exchange(&self, py: Python<'_>, copy: Box<[u8]>, size: usize) {
        let (old_data, readers) = (self.data.get(), self.readers.get());
        self.lead_to(copy.as_ptr(), size, copy.len() - size);
        self.is_pinned.set(false);
        let old = self.holder.with(py, |holder| std::mem::replace(holder, Holder::Owned(copy)));
        if readers == 0 {
            // Dropped outside of the cell, since the release of a buffer may run Python code.
            drop(old);
        } else {
            self.readers.set(0);
            let retired = Retired { data: old_data, readers, holder: old };
            self.aside.with(py, |aside| aside.get_or_insert_default().retired.push(retired));
        }
    }

    /// Begins a `Reading` of the current bytes.
    #[inline]
    pub(super) fn begin_reading(&self) -> (*const u8, usize) {
        self.readers.set(self.readers.get() + 1);
        (self.data.get(), self.size.get())
    }

    /// Ends a `Reading` of the bytes at `data`.
    #[inline]
    pub(super) fn end_reading(&self, data: *const u8) {
        if self.data.get() == data && self.readers.get() > 0 {
            self.readers.set(self.readers.get() - 1);
        } else {
            self.end_reading_of_retired(data);
        }
    }

    #[cold]
    fn end_reading_of_retired(&self, data: *const u8) {
        // SAFETY: a `Reading` is made and dropped with the GIL held.
        let py = unsafe { Python::assume_attached() };
        let released = self.aside.with(py, |aside| {
            let retired = &mut aside.as_mut()?.retired;
            let index = retired.iter().position(|old| old.data == data)?;
            let old = retired.get_mut(index)?;
            old.readers -= 1;
            (old.readers == 0).then(|| retired.swap_remove(index))
        });
        // Dropped outside of the cell, as in `exchange`.
        drop(released);
    }

    /// The record's bytes (invariant 1).
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let data = self.data.get();
        // SAFETY: `data` and `size` were set together from one slice that `holder` keeps.
        unsafe { std::slice::from_raw_parts(data, self.size.get()) }
    }

    /// The bytes of the key, without its spelling (invariant 1).
    #[inline]
    pub fn key(&self) -> &[u8] {
        let data = self.key_data.get();
        // SAFETY: as for `bytes`.
        unsafe { std::slice::from_raw_parts(data, self.key_size.get()) }
    }

    /// Whether the collector must track handles on this row: its buffer may hold one of them.
    #[inline]
    pub fn is_tracked(&self) -> bool {
        self.is_tracked
    }

    /// The object whose buffer the row holds, borrowed; null if it holds none.
    pub fn exporter(&self, py: Python<'_>) -> *mut pyo3::ffi::PyObject {
        self.holder.with(py, |holder| match holder {
            Holder::Buffer(buffer) => exporter_of(buffer),
            _ => std::ptr::null_mut(),
        })
    }

    /// The number of changes after which places must be looked up again.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version.get()
    }

    /// Moves a row without other owners to another record of the same snapshot.
    ///
    /// # Safety
    /// `record` and `key` lie in the snapshot that this row's holder pins, and the caller is the
    /// row's only owner.
    #[inline]
    pub unsafe fn move_to(&self, record: &[u8], key: &[u8]) {
        self.data.set(record.as_ptr());
        self.size.set(record.len());
        self.key_data.set(key.as_ptr());
        self.key_size.set(key.len());
    }

    /// Whether the bytes lie in a snapshot that this row pins.
    #[inline]
    pub fn is_pinned(&self) -> bool {
        self.is_pinned.get()
    }

    /// Reads large values stored outside of the record from `snapshot`, until the row is detached.
    pub fn attach(&self, py: Python<'_>, snapshot: Snapshot) {
        self.holder.with(py, |holder| {
            if let Holder::Owned(copy) = holder {
                // The bytes do not move: only the box that owns them is moved.
                let copy = std::mem::take(copy);
                *holder = Holder::Overflow(Box::new((copy, snapshot)));
            }
        });
    }

    /// Reads large values stored outside of the record from those that the commit wrote, or else
    /// from `snapshot`.
    pub fn attach_reported(&self, py: Python<'_>, snapshot: Snapshot, large: Vec<LargeValue>) {
        self.holder.with(py, |holder| {
            if let Holder::Owned(copy) = holder {
                // The bytes do not move: only the box that owns them is moved.
                let copy = std::mem::take(copy);
                *holder = Holder::Reported(Box::new(ReportedRow { _copy: copy, snapshot, large }));
            }
        });
    }

    /// Copies the bytes out of the snapshot and releases it.
    pub fn detach(&self, py: Python<'_>) {
        if self.is_pinned() {
            self.exchange(py, copy_of(self.bytes(), self.key()), self.size.get());
        } else {
            drop(self.holder.with(py, |holder| match holder {
                Holder::Overflow(held) => {
                    let copy = std::mem::take(&mut held.0);
                    Some(std::mem::replace(holder, Holder::Owned(copy)))
                }
                // The change of a watch keeps its snapshot and large values for as long as the user
                // keeps it.
                _ => None,
            }));
        }
    }

    /// Notes that a handle on an element of a list is made.
    #[inline]
    pub fn has_element(&self) {
        self.has_elements.set(true);
    }

    /// After how many steps this path has a list whose element may have moved since version `seen`;
    /// None if it has no such list.
    pub fn moved_on(&self, py: Python<'_>, path: &[OwnedStep], seen: u32) -> Option<usize> {
        self.aside.with(py, |aside| {
            aside.as_ref().and_then(|aside| aside.moves.iter().find_map(|moved| moved.concerns(path, seen)))
        })
    }

    /// Records which elements of lists have moved in `record`, which includes changes by other
    /// writers.
    pub fn note_others(&self, py: Python<'_>, record: &[u8]) {
        if !self.has_elements.get() {
            return;
        }
        let version = self.version.get().wrapping_add(1);
        let mut moves = Vec::new();
        let compared = patch::moved(self.bytes(), record, &*self.names, &mut |list, from| {
            moves.push(Move {
                list: list.iter().map(|step| OwnedStep::from(*step)).collect(),
                from,
                version,
            });
        });
        if compared.is_err() {
            // Damaged bytes cannot be compared, so all handles on elements become invalid.
            moves = vec![Move { list: Vec::new(), from: EVERYWHERE, version }];
        }
        for one in moves {
            self.add_move(py, one);
        }
    }

    /// Adds a move and drops the older ones that it covers, so there are few, however often a list
    /// changes.
    fn add_move(&self, py: Python<'_>, new: Move) {
        self.aside.with(py, |aside| {
            let moves = &mut aside.get_or_insert_default().moves;
            moves.retain(|old| old.list != new.list || old.from < new.from);
            moves.push(new);
        });
    }

    /// Replaces the record's bytes, under the same key. `moves`: a list whose elements have moved,
    /// and the first index that has.
    pub fn replace(&self, py: Python<'_>, record: &[u8], moves: Option<(&[OwnedStep], i64)>) {
        if let (Some((list, from)), true) = (moves, self.has_elements.get()) {
            let version = self.version.get().wrapping_add(1);
            let from = u32::try_from(from).unwrap_or(EVERYWHERE - 1);
            self.add_move(py, Move { list: list.to_vec(), from, version });
        }
        self.exchange(py, copy_of(record, self.key()), record.len());
        self.version.set(self.version.get().wrapping_add(1));
    }

    /// Replaces the record's bytes by this vector, under the same key, without a copy of the
    /// record. `is_alike` says that both have the same layout and only the content of a slot
    /// differs.
    pub fn take_over(&self, py: Python<'_>, mut record: Vec<u8>, is_alike: bool) {
        let size = record.len();
        record.extend_from_slice(self.key());
        self.exchange(py, record.into_boxed_slice(), size);
        if !is_alike {
            self.version.set(self.version.get().wrapping_add(1));
        }
    }

    /// Runs `work` on the row's own, writable copy of the record. It must not move places in it.
    pub fn with_own_bytes<R>(&self, py: Python<'_>, work: impl FnOnce(&mut [u8]) -> R) -> R {
        let is_owned = self.holder.with(py, |holder| matches!(holder, Holder::Owned(_)));
        if !is_owned || self.readers.get() > 0 {
            self.exchange(py, copy_of(self.bytes(), self.key()), self.size.get());
        }
        let size = self.size.get();
        self.holder.with(py, |holder| match holder {
            Holder::Owned(copy) => work(copy.get_mut(..size).unwrap_or_default()),
            _ => work(&mut []),
        })
    }

    /// The pickle policy for this value.
    pub fn policy(&self, py: Python<'_>) -> PicklePolicy {
        match (&self.own_policy, &self.table) {
            (Some(policy), _) => policy.clone_ref(py),
            (None, Some(table)) => table.policy(py),
            (None, None) => PicklePolicy::DENY,
        }
    }

    /// The snapshot that the row was read from, if the row still has it.
    pub fn snapshot(&self, py: Python<'_>) -> Option<Snapshot> {
        self.holder.with(py, |holder| holder.snapshot().cloned())
    }

    /// Runs `work` on the holder of what `reading` reads, which may be older than what the row has
    /// now. Without a reading, it is what the row has now.
    fn with_holder_of<R>(
        &self,
        py: Python<'_>,
        reading: Option<&Reading<'_>>,
        work: impl FnOnce(&Holder) -> R,
    ) -> R {
        let data = reading.map_or(self.data.get(), |reading| reading.bytes().as_ptr());
        if data == self.data.get() {
            return self.holder.with(py, |holder| work(holder));
        }
        self.aside.with(py, |aside| {
            let retired = aside.iter().flat_map(|aside| &aside.retired).find(|old| old.data == data);
            match retired {
                Some(old) => work(&old.holder),
                None => self.holder.with(py, |holder| work(holder)),
            }
        })
    }

    /// Whether the row belongs to a change that a watch reports.
    pub fn is_reported(&self, py: Python<'_>) -> bool {
        self.holder.with(py, |holder| matches!(holder, Holder::Reported(_)))
    }

    /// A value stored outside of the record that `reading` reads, or that the row has now.
    ///
    /// # Errors
    /// `StaleRecord` if the database no longer has it; `ValueError` if its size differs from the
    /// record's.
    pub fn overflow(
        &self,
        py: Python<'_>,
        reading: Option<&Reading<'_>>,
        id: u64,
        size: u64,
    ) -> PyResult<Large> {
        let Some(table) = &self.table else {
            return Err(errors::value_error("a value lies apart, but these bytes belong to no database"));
        };
        let (reported, snapshot) =
            self.with_holder_of(py, reading, |holder| (holder.reported(id), holder.snapshot().cloned()));
        let found = match reported {
            Some(bytes) => Some(Large::Reported(bytes)),
            None => table.large_value(py, self, snapshot.as_ref(), id)?,
        };
        match found {
            Some(data) if data.bytes().len() as u64 == size => Ok(data),
            Some(_) => {
                Err(errors::value_error("a value that lies apart has another size than the record says"))
            }
            None => Err(row_errors::stale_overflow(py, self)),
        }
    }

    /// A row over a record that is found in a snapshot, which is not copied; None if it is not
    /// there.
    ///
    /// # Errors
    /// What `find` gives.
    #[allow(clippy::too_many_arguments, reason = "what every row has")]
    pub fn found_in<E>(
        snapshot: &Snapshot,
        find: impl for<'a> FnOnce(&'a Snapshot) -> Result<Option<&'a [u8]>, E>,
        key: &[u8],
        names: GilRc<Names>,
        validity: GilRc<ValidityFlag>,
        table: Option<TableRef>,
        frozen: Option<&'static str>,
    ) -> Result<Option<Self>, E> {
        let Some(record) = find(snapshot)? else { return Ok(None) };
        let key: Box<[u8]> = key.into();
        let (data, size) = (key.as_ptr(), key.len());
        let holder = Holder::Overflow(Box::new((key, snapshot.clone())));
        // SAFETY: the record is part of the snapshot, since `find` gives what it borrows from any
        // snapshot; such bytes stay where they are while a share of it lives (invariant 2). The key
        // is a box that moved into the holder, and its bytes did not move.
        Ok(Some(unsafe {
            let key = std::slice::from_raw_parts(data, size);
            Self::borrowed(record, key, holder, names, validity, table, frozen)
        }))
    }

    /// A row over a record that a server has sent, which is not copied: it begins at `start` of the
    /// value.
    #[allow(clippy::too_many_arguments, reason = "what every row has")]
    pub fn fetched(
        value: &Bound<'_, PyBytes>,
        start: usize,
        key: &Bound<'_, PyBytes>,
        edition: i64,
        names: GilRc<Names>,
        validity: GilRc<ValidityFlag>,
        table: TableRef,
        frozen: Option<&'static str>,
    ) -> Self {
        let holder = Holder::Fetched { _value: Strong::new(value), _key: Strong::new(key) };
        let record = value.as_bytes().get(start..).unwrap_or_default();
        // SAFETY: a bytes object neither moves nor changes, and the holder keeps both.
        let row =
            unsafe { Self::borrowed(record, key.as_bytes(), holder, names, validity, Some(table), frozen) };
        row.edition.set(edition);
        row
    }

    /// Whether arrays of this row are views of the stored bytes: [`TableCalls::gives_views`].
    ///
    /// [`TableCalls::gives_views`]: crate::values::table_ref::TableCalls::gives_views
    pub fn gives_views(&self, py: Python<'_>) -> bool {
        self.table.as_ref().is_some_and(|table| table.gives_views(py))
    }

    /// Bytes of what `reading` reads, as a buffer that keeps them in memory. None if they are few,
    /// or lie in no snapshot: then they are copied.
    ///
    /// # Errors
    /// `MemoryError`.
    pub fn view<'py>(
        &self,
        py: Python<'py>,
        reading: &Reading<'_>,
        bytes: &[u8],
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        if bytes.len() < VIEW_SIZE_MIN {
            return Ok(None);
        }
        let snapshot = self.with_holder_of(py, Some(reading), |holder| match holder {
            Holder::Snapshot(snapshot) => Some(snapshot.clone()),
            // Either the record lies in the snapshot, or in the copy.
            Holder::Overflow(held) if !held.0.as_ptr_range().contains(&bytes.as_ptr()) => {
                Some(held.1.clone())
            }
            _ => None,
        });
        let Some(snapshot) = snapshot else { return Ok(None) };
        // SAFETY: the bytes are part of the row, which lies in this snapshot.
        Ok(Some(unsafe { HeldBytes::view_of(py, snapshot, bytes) }?.into_any()))
    }

    /// A row for a part of `row` that is stored outside of it, with the same pickle policy. What a
    /// snapshot holds is not copied.
    pub fn part(py: Python<'_>, row: &Row, large: &Large) -> Self {
        let (names, validity, data) = (row.names.clone(), row.validity.share(), large.bytes());
        let part = match large {
            Large::Held(snapshot, _) => {
                let holder = Holder::Snapshot(snapshot.clone());
                // SAFETY: the bytes lie in the snapshot that the holder keeps.
                unsafe { Self::borrowed(data, &[], holder, names, validity, None, row.frozen) }
            }
            _ => Self::owned(data, &[], names, validity, None, row.frozen),
        };
        Self { own_policy: Some(Box::new(row.policy(py))), ..part }
    }
}

/// The fields that few rows need. Boxed, to keep the other rows small.
#[derive(Default)]
pub(super) struct Aside {
    /// The details of the key that its bytes lack.
    pub(super) spelling: Box<[u8]>,
    /// The moves in the lists of the row since it was read, recorded while handles on their
    /// elements exist.
    moves: Vec<Move>,
    retired: Vec<Retired>,
}

/// Old bytes of the row that a `Reading` still uses.
struct Retired {
    data: *const u8,
    /// How many `Reading`s of these bytes exist; never 0.
    readers: u32,
    holder: Holder,
}

// SAFETY: as for `Row`.
unsafe impl Send for Retired {}

/// Stands for all elements of all lists: no list has this many elements.
const EVERYWHERE: u32 = u32::MAX;

struct Move {
    list: Vec<OwnedStep>,
    /// The first element that may have moved.
    from: u32,
    /// The version of the row after the move.
    version: u32,
}

impl Move {
    fn concerns(&self, path: &[OwnedStep], seen: u32) -> Option<usize> {
        // Versions wrap around.
        let is_later = (self.version.wrapping_sub(seen) as i32) > 0;
        if !is_later || !path.starts_with(&self.list) {
            return None;
        }
        let rest = path.get(self.list.len()..)?;
        let has_index =
            |step: &OwnedStep| matches!(step, OwnedStep::Index(index) if *index >= i64::from(self.from));
        (self.from == EVERYWHERE || rest.first().is_some_and(has_index)).then_some(self.list.len())
    }
}

fn exporter_of(buffer: &PyBuffer<u8>) -> *mut pyo3::ffi::PyObject {
    // SAFETY: buffers are used only with the GIL held.
    let py = unsafe { Python::assume_attached() };
    buffer.obj(py).map_or(std::ptr::null_mut(), Bound::as_ptr)
}

/// Whether the owner of the bytes takes part in garbage collection.
fn is_collected(holder: &Holder) -> bool {
    let Holder::Buffer(buffer) = holder else { return false };
    let exporter = exporter_of(buffer);
    // SAFETY: null, or a live object, which the buffer holds.
    !exporter.is_null() && unsafe { pyo3::ffi::PyType_IS_GC(pyo3::ffi::Py_TYPE(exporter)) != 0 }
}

fn copy_of(record: &[u8], key: &[u8]) -> Box<[u8]> {
    let mut copy = Vec::with_capacity(record.len() + key.len());
    copy.extend_from_slice(record);
    copy.extend_from_slice(key);
    copy.into_boxed_slice()
}

/// Bytes inside of a holder that is not part of a row yet.
#[derive(Clone, Copy)]
pub struct Span {
    data: *const u8,
    size: usize,
}

impl Span {
    /// The span of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self { data: bytes.as_ptr(), size: bytes.len() }
    }

    /// The span of a contiguous buffer.
    pub fn of_buffer(buffer: &PyBuffer<u8>) -> Self {
        Self { data: buffer.buf_ptr().cast(), size: buffer.len_bytes() }
    }

    /// The bytes, borrowed as long as their holder.
    pub fn bytes<'a>(&self, _holder: &'a Holder) -> &'a [u8] {
        if self.size == 0 {
            return &[];
        }
        // SAFETY: the two functions above make spans from the holder's memory. Other code may
        // change a writable buffer meanwhile; each access checks what it reads, and copies it first
        // where two reads must agree.
        unsafe { std::slice::from_raw_parts(self.data, self.size) }
    }

    /// A row over a part of these bytes, given as offset and size.
    #[inline(always)]
    pub fn into_row(
        self,
        record: (usize, usize),
        holder: Holder,
        names: GilRc<Names>,
        validity: GilRc<ValidityFlag>,
        frozen: Option<&'static str>,
    ) -> Row {
        let (offset, size) = record;
        let end = self.size.min(offset.saturating_add(size));
        let data = self.data.wrapping_add(offset.min(end));
        let is_tracked = is_collected(&holder);
        // Built in place: moving the row from function to function cost a tenth of a `view`.
        Row {
            data: GilValue::new(data),
            size: GilValue::new(end - offset.min(end)),
            key_data: GilValue::new(data),
            key_size: GilValue::new(0),
            version: GilValue::new(0),
            is_pinned: GilValue::new(false),
            has_elements: GilValue::new(false),
            readers: GilValue::new(0),
            aside: GilCell::new(None),
            holder: GilCell::new(holder),
            edition: GilValue::new(0),
            names,
            validity: RowValidity::new(validity),
            table: None,
            frozen,
            own_policy: None,
            is_tracked,
        }
    }
}
