//! The iterator over the rows of a table.
//!
//! `for row in table.values()` calls `tp_iternext` below, which avoids making objects. Rows borrow
//! their bytes from the snapshot, and the iterator reuses the record object that it returned two
//! steps ago if no one else holds a reference to it. Two steps, since the loop's variable still
//! holds the last record when the next one is requested. Invariants:
//!
//! 1. A record is reused only if this iterator holds the only reference to it, a weak one included,
//!    that record the only one to its row, and the row is still pinned to this scan's snapshot.
//! 2. A record that other code keeps gets its own copy of the bytes, so that it does not change and
//!    does not keep the snapshot alive. Other rows are copies from the start, and their record is
//!    reused if no one else holds it or has changed the row. If they have large values, which are
//!    stored outside of the record and read on access, they hold the snapshot for as long as a
//!    record would.
//! 3. While the iterator's state is borrowed, no Python code runs: only records, ints, strs and
//!    tuples are made and released. Rarer keys and values are made afterwards, and a record with
//!    weak references, whose callbacks are Python code, is released afterwards.
#![allow(unsafe_code)]

use std::ops::ControlFlow;

use pellucid_query::stoppable::Pace;
use pellucid_query::{CopiedRows, Lookups, Selection};
use pellucid_record::layout::Kind;
use pellucid_record::{Corrupt, Shapes};
use pellucid_store::{
    Large, OverflowReader, Row as StoredRow, RowName, Scan, Snapshot, StoreError, Transaction,
};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::core::Core;
use crate::errors;
use crate::hot::callbacks;
use crate::hot::gil::{self, GilCell, GilRc, Strong};
use crate::store_errors;
use crate::table::handle::Table;
use crate::table::reading::Rows;
use crate::values::handles::Record;
use crate::values::keys::{self, Key};
use crate::values::names::Names;
use crate::values::node::Node;
use crate::values::row::{Holder, Row, ValidityFlag};
use crate::values::table_ref::TableRef;
use crate::values::views::Shows;
use crate::values::{alloc, row_errors};

/// An iterator over a table's keys, values or items, as they were when it began.
///
/// >>> import pellucid
/// >>> table = pellucid.open(":memory:").table("t")
/// >>> table.update(a=1, b=2)
/// >>> rows = table.range()
/// >>> table["c"] = 3
/// >>> list(rows)
/// [1, 2]
#[pyclass(frozen, module = "pellucid", name = "RowIterator")]
pub struct RowIterator {
    walk: GilCell<Option<Walk>>,
    /// Decides when other threads get the GIL.
    turns: GilCell<Pace<fn() -> bool>>,
    shows: Shows,
    validity: GilRc<ValidityFlag>,
    // The table and the transaction that `Rows::Inside` walks over; the table knows whether that
    // one is still running.
    inside: Option<(Strong<Table>, u64)>,
}

struct Walk {
    rows: Rows,
    // Which rows are shown; None means all.
    selection: Option<Selection>,
    shapes: GilRc<Names>,
    // The snapshot that keeps the rows' bytes in place; None inside a transaction that has changed
    // something, where rows are copies.
    snapshot: Option<Snapshot>,
    source: RowSource,
    // The serial of the transaction that `Rows::Inside` walks over.
    serial: u64,
    // The record returned two steps ago, and the last one.
    recent: [Option<Strong<Record>>; 2],
    // Records that others have replaced there and that have weak references (invariant 3): the next
    // full step releases them.
    replaced: Vec<Strong<Record>>,
    // The same for rows that are copies and have large values.
    recent_large: [Option<GilRc<Row>>; 2],
    // The key of the last step, in a buffer that is reused.
    key: Key,
    // Whether the scan stands at a row that matches.
    is_found: bool,
    // Whether a thread searches for the next match with the GIL released; that thread has the scan.
    is_borrowed: bool,
    // The result of a quick step that only the full step can return or raise.
    waiting: Option<Box<Result<Advance, Failure>>>,
    // How many matches the quick step may still return before the full step takes its turn.
    quick_left: u32,
}

impl Key {
    fn copy_from(&mut self, row: StoredRow<'_>) {
        self.copy_name(RowName { key: row.key, spelling: row.spelling });
    }

    fn copy_name(&mut self, name: RowName<'_>) {
        self.bytes.clear();
        self.bytes.extend_from_slice(name.key);
        self.spelling.clear();
        self.spelling.extend_from_slice(name.spelling);
    }
}

/// The data that all rows of a walk share.
pub struct RowSource {
    validity: GilRc<ValidityFlag>,
    names: GilRc<Names>,
    table: Strong<Table>,
    frozen: Option<&'static str>,
}

/// The result of a step, from which the object is made outside of the borrow (invariant 3). The
/// walk has its key, if keys are shown.
enum Advance {
    Done,
    Key,
    Record(Strong<Record>),
    Other(GilRc<Row>),
    // None of the rows so far matched: the search continues with the GIL released, after a check of
    // signals.
    Pause,
}

/// How many rows are skipped before the GIL is released. Each release costs a call of the
/// interpreter, and may hand the GIL to another thread.
const PAUSE_INTERVAL: u32 = 256;

/// Why a step failed; made into an exception outside of the borrow.
enum Failure {
    Store(StoreError),
    IsOver,
    Python(PyErr),
    Damaged(Vec<u8>, Corrupt),
}

impl RowIterator {
    /// An iterator over `rows`; over those that `selection` takes, if there is one.
    pub fn new(
        py: Python<'_>,
        rows: Rows,
        selection: Option<Selection>,
        source: RowSource,
        shows: Shows,
    ) -> Self {
        let snapshot = rows.snapshot().cloned();
        let serial = if rows.is_inside() { source.table.get().core().running_serial(py) } else { None };
        let inside = serial.map(|serial| (source.table.clone_ref(py), serial));
        let serial = serial.unwrap_or(0);
        let validity = source.validity.clone();
        let shapes = source.table.get().core().names.clone();
        let walk = Walk {
            rows,
            selection,
            shapes,
            snapshot,
            source,
            serial,
            recent: [None, None],
            replaced: Vec::new(),
            recent_large: [None, None],
            key: Key::default(),
            is_found: false,
            is_borrowed: false,
            waiting: None,
            quick_left: PAUSE_INTERVAL,
        };
        let turns = GilCell::new(Pace::by_turns((|| true) as fn() -> bool));
        Self { walk: GilCell::new(Some(walk)), turns, shows, validity, inside }
    }

    #[cold]
    fn is_over(py: Python<'_>) -> PyErr {
        let why = "the transaction that this iterator walks over has ended; make a list before it does";
        errors::raise(py, "TransactionError", why)
    }

    /// The most frequent step: the next record is at hand, and is returned in the object from two
    /// steps ago. With all other cases inlined, this function was so large that a loop took twice
    /// as long.
    #[inline]
    fn step<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.shows == Shows::Values && self.inside.is_none() && self.validity.is_open() {
            let record = self.walk.with(py, |walk| match walk {
                Some(walk) if walk.selection.is_some() => walk.step_to_wanted(py),
                Some(walk) => walk.step_at_hand(py),
                None => None,
            });
            if let Some(record) = record {
                return Ok(Some(record.into_bound(py).into_any()));
            }
        }
        self.step_any(py)
    }

    #[inline(never)]
    fn step_any<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        // When `list` consumes this iterator, no other code checks signals or lets other threads
        // run. The quick step gets here at the end of each page.
        if self.turns.with(py, |pace| pace.step().is_err()) {
            callbacks::released(py, || ());
        }
        callbacks::check_signals(py)?;
        drop(self.walk.with(py, |walk| walk.as_mut().map(|walk| std::mem::take(&mut walk.replaced))));
        if !self.validity.is_open() {
            drop(self.walk.with(py, Option::take));
            return Err(errors::closed(
                py,
                "the snapshot or database of this iterator",
                "make a list of what is needed before closing",
            ));
        }
        if let Some((table, serial)) = &self.inside
            && table.get().core().running_serial(py) != Some(*serial)
        {
            return Err(Self::is_over(py));
        }
        let (step, key) = loop {
            let (step, key) = self.walk.with(py, |walk| match walk {
                Some(walk) => (walk.step(py, self.shows), std::mem::take(&mut walk.key)),
                None => (Ok(Advance::Done), Key::default()),
            });
            if !matches!(step, Ok(Advance::Pause)) {
                break (step, key);
            }
            callbacks::check_signals(py)?;
            if let Err(failure) = self.seek_released(py) {
                break (Err(failure), key);
            }
            if !self.validity.is_open() {
                return self.step_any(py);
            }
        };
        let step = step.map_err(|why| match why {
            Failure::Store(error) => store_errors::of_store(py, error),
            Failure::IsOver => Self::is_over(py),
            Failure::Python(error) => error,
            Failure::Damaged(key, error) => {
                let table =
                    self.walk.with(py, |walk| walk.as_ref().map(|walk| walk.source.table.clone_ref(py)));
                let name = table.map(|table| table.get().name(py).to_string()).unwrap_or_default();
                row_errors::corrupt_key(py, &name, &key, &error)
            }
        })?;
        if matches!(step, Advance::Done) {
            // Releases the snapshot, and gives kept rows their copies (Walk::drop).
            drop(self.walk.with(py, Option::take));
            return Ok(None);
        }
        let key = self.key(py, key)?;
        let value = match step {
            Advance::Record(record) => record.into_bound(py).into_any(),
            Advance::Key | Advance::Done | Advance::Pause => return Ok(key),
            Advance::Other(row) => crate::table::typed::value_of_row(py, row)?,
        };
        match key {
            Some(key) => Ok(Some(PyTuple::new(py, [key, value])?.into_any())),
            None => Ok(Some(value)),
        }
    }

    /// Searches for the next match with the GIL released. Another thread that steps this iterator
    /// meanwhile waits.
    fn seek_released(&self, py: Python<'_>) -> Result<(), Failure> {
        let Some((mut scan, mut selection)) = self.walk.with(py, |walk| walk.as_mut().and_then(Walk::borrow))
        else {
            callbacks::released(py, std::thread::yield_now);
            return Ok(());
        };
        let snapshot = scan.snapshot().clone();
        let mut pace = Pace::new(|| true);
        let is_late = || pace.step().is_err();
        let sought = callbacks::released(py, || {
            let overflow_reader = snapshot.overflow_reader();
            seek(&mut scan, &mut selection, &overflow_reader, is_late)
        });
        self.walk.with(py, |walk| {
            if let Some(walk) = walk {
                walk.give_back(scan, selection);
                walk.is_found = matches!(sought, Ok(Sought::Row));
            }
        });
        sought.map(|_| ())
    }

    /// The key of the last step, if keys are shown. It was taken out of the walk together with the
    /// step: making an object from it, or from the value, may let another thread take the next
    /// step.
    #[inline]
    fn key<'py>(&self, py: Python<'py>, key: Key) -> PyResult<Option<Bound<'py, PyAny>>> {
        if self.shows == Shows::Values {
            return Ok(None);
        }
        let object = keys::object_of(py, &key.bytes, &key.spelling)?;
        let old = self.walk.with(py, |walk| walk.as_mut().map(|walk| std::mem::replace(&mut walk.key, key)));
        drop(old);
        Ok(Some(object))
    }
}

impl Walk {
    /// The next record, if it is at hand and an object can be reused.
    #[inline]
    fn step_at_hand(&mut self, py: Python<'_>) -> Option<Strong<Record>> {
        let (Rows::Pinned(scan), None) = (&mut self.rows, &self.selection) else {
            return self.step_looked_up(py);
        };
        let [Some(recent), _] = &self.recent else { return None };
        let row = scan.at_hand()?;
        if !is_dict(row) || self.source.table.get().class.is_some() || !reuse(py, recent, row) {
            return None;
        }
        let record = recent.clone_ref(py);
        scan.pass();
        self.recent.swap(0, 1);
        Some(record)
    }

    /// As `step_at_hand`, where only some rows are wanted: the next match, if it is near. If there
    /// is none, or something else must be raised, the full step continues where this one stopped.
    ///
    /// Taking the full step for each match was a tenth of the time of a loop over one row in ten,
    /// which spends most of its time on the rows between.
    #[inline(never)]
    fn step_to_wanted(&mut self, py: Python<'_>) -> Option<Strong<Record>> {
        let (Rows::Pinned(scan), Some(selection), Some(snapshot)) =
            (&mut self.rows, &mut self.selection, &self.snapshot)
        else {
            return self.step_looked_up(py);
        };
        let [Some(recent), _] = &self.recent else { return None };
        if !self.is_found {
            if self.waiting.is_some() {
                return None;
            }
            // The full step checks signals, and has its turn from time to time, however many rows
            // match.
            if self.quick_left == 0 {
                self.quick_left = PAUSE_INTERVAL;
                return None;
            }
            self.quick_left -= 1;
            let mut left = PAUSE_INTERVAL;
            let is_late = || {
                left -= 1;
                left == 0
            };
            let overflow_reader = OverflowReader { shapes: &*self.shapes, large: snapshot };
            match seek(scan, selection, &overflow_reader, is_late) {
                Ok(Sought::Row) => self.is_found = true,
                Ok(Sought::End | Sought::Pause) => return None,
                Err(failure) => {
                    self.waiting = Some(Box::new(Err(failure)));
                    return None;
                }
            }
        }
        let row = scan.at_hand()?;
        if !is_dict(row) || self.source.table.get().class.is_some() || !reuse(py, recent, row) {
            return None;
        }
        let record = recent.clone_ref(py);
        scan.pass();
        self.is_found = false;
        self.recent.swap(0, 1);
        Some(record)
    }

    /// The step to a record of a copy, which is the recent one from now on.
    fn reused(&mut self, py: Python<'_>, record: Strong<Record>) -> Result<Advance, Failure> {
        self.recent.swap(0, 1);
        if !matches!(self.recent_large, [None, None]) {
            self.keep_large(py, None)?;
        }
        Ok(Advance::Record(record))
    }

    /// As `step_at_hand`, for rows that are looked up. Like all quick steps it leaves some to the
    /// full step, which checks signals.
    #[inline(never)]
    fn step_looked_up(&mut self, py: Python<'_>) -> Option<Strong<Record>> {
        if !matches!(self.rows, Rows::Listed(..) | Rows::Indexed(..)) || self.waiting.is_some() {
            return None;
        }
        let Some(left) = self.quick_left.checked_sub(1) else {
            self.quick_left = PAUSE_INTERVAL;
            return None;
        };
        self.quick_left = left;
        match self.step_apart(py, Shows::Values) {
            Ok(Advance::Record(record)) => Some(record),
            other => {
                self.waiting = Some(Box::new(other));
                None
            }
        }
    }

    #[inline]
    fn step(&mut self, py: Python<'_>, shows: Shows) -> Result<Advance, Failure> {
        if let Some(step) = self.waiting.take() {
            return *step;
        }
        if self.is_borrowed {
            return Ok(Advance::Pause);
        }
        let (Rows::Pinned(scan), Some(snapshot)) = (&mut self.rows, &self.snapshot) else {
            return self.step_apart(py, shows);
        };
        if let Some(selection) = &mut self.selection
            && !std::mem::take(&mut self.is_found)
        {
            let mut left = PAUSE_INTERVAL;
            let is_late = || {
                left -= 1;
                left == 0
            };
            let overflow_reader = OverflowReader { shapes: &*self.shapes, large: snapshot };
            match seek(scan, selection, &overflow_reader, is_late)? {
                Sought::Row => {}
                Sought::End => return Ok(Advance::Done),
                Sought::Pause => return Ok(Advance::Pause),
            }
        }
        if shows == Shows::Keys {
            let Some(name) = scan.next_name().map_err(Failure::Store)? else { return Ok(Advance::Done) };
            self.key.copy_name(name);
            return Ok(Advance::Key);
        }
        let (row, is_in_place) = match scan.next_in_place() {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(Advance::Done),
            Err(error) => return Err(Failure::Store(error)),
        };
        if shows != Shows::Values {
            self.key.copy_from(row);
        }
        let source = &self.source;
        if !is_dict(row) || source.table.get().class.is_some() || !is_in_place {
            // A list, a value that is built whole, or one that was packed, gets a row of its own.
            let copy = GilRc::new(source.owned(py, row));
            let is_large = scan.gave_large();
            return self.given(py, copy, is_large);
        }
        let [recent, _] = &mut self.recent;
        let record = match recent {
            Some(recent) if reuse(py, recent, row) => recent.clone_ref(py),
            _ => {
                // SAFETY: the row is in place: the store keeps its bytes where they are while the
                // scan's snapshot lives, and the holder is a share of that snapshot.
                let new = unsafe { source.borrowed(py, row, snapshot.clone()) };
                let record = alloc::new_handle(py, Record { node: Node::root(GilRc::new(new), true) });
                let record = Strong::new(&record.map_err(Failure::Python)?);
                replace(recent, &mut self.replaced, record.clone_ref(py));
                record
            }
        };
        self.recent.swap(0, 1);
        Ok(Advance::Record(record))
    }

    /// The step for a copy of a row. Its large values, if it has any, are read from the walk's
    /// snapshot until the walk is two steps further.
    #[inline]
    fn given(&mut self, py: Python<'_>, row: GilRc<Row>, is_large: bool) -> Result<Advance, Failure> {
        if is_large || !matches!(self.recent_large, [None, None]) {
            self.keep_large(py, is_large.then_some(&row))?;
        }
        Ok(Advance::Other(row))
    }

    #[cold]
    fn keep_large(&mut self, py: Python<'_>, row: Option<&GilRc<Row>>) -> Result<(), Failure> {
        if let Some(row) = row {
            let snapshot = match &self.snapshot {
                Some(snapshot) => snapshot.clone(),
                // The newest snapshot has all large values that the transaction has not stored
                // itself, whatever it has done to them since.
                None => self.source.table.get().core().store.snapshot().map_err(Failure::Store)?,
            };
            row.attach(py, snapshot);
        }
        if let Some(old) = std::mem::replace(&mut self.recent_large[0], row.cloned()) {
            old.detach(py);
        }
        self.recent_large.swap(0, 1);
        Ok(())
    }

    /// Hands out the scan and the selection for a search, unless another thread has them already.
    fn borrow(&mut self) -> Option<(Box<Scan>, Selection)> {
        if self.is_borrowed || !matches!(self.rows, Rows::Pinned(_)) {
            return None;
        }
        let selection = self.selection.take()?;
        match std::mem::replace(&mut self.rows, Rows::Copied(CopiedRows::default())) {
            Rows::Pinned(scan) => {
                self.is_borrowed = true;
                Some((scan, selection))
            }
            rows => {
                self.rows = rows;
                self.selection = Some(selection);
                None
            }
        }
    }

    fn give_back(&mut self, scan: Box<Scan>, selection: Selection) {
        self.rows = Rows::Pinned(scan);
        self.selection = Some(selection);
        self.is_borrowed = false;
    }

    /// A step over rows that do not come from a scan, past a few that do not match; the rows are
    /// copied. A new record for each took a fifth of the time of a loop over an index range.
    fn step_apart(&mut self, py: Python<'_>, shows: Shows) -> Result<Advance, Failure> {
        let core: &Core = self.source.table.get().core();
        if self.rows.is_inside() && self.serial > 0 {
            // The flag of the transaction, which may have been rolled back to a savepoint since the
            // last step.
            self.source.validity = core.running_gate(py).ok_or(Failure::IsOver)?;
        }
        let (source, key) = (&self.source, &mut self.key);
        if let Rows::Covered(rows, _) = &mut self.rows {
            // Rows are covered only where keys alone are shown, and all of them are.
            return Ok(rows.next(|row| key.copy_from(row)).map_or(Advance::Done, |()| Advance::Key));
        }
        let (selection, shapes) = (&mut self.selection, &*self.shapes);
        let ([recent, _], replaced) = (&mut self.recent, &mut self.replaced);
        let is_reused = shows != Shows::Keys && self.snapshot.is_some() && source.table.get().class.is_none();
        // Returned beside the row: rows are large, and moving them is costly enough.
        let mut is_large = false;
        let mut show = |row: StoredRow<'_>, has_large: bool, large: &dyn Large| {
            is_large = has_large;
            let taken = match selection {
                None => Ok(ControlFlow::Continue(true)),
                Some(selection) => selection.takes(&row, &OverflowReader { shapes, large: &large }),
            };
            match taken {
                Ok(ControlFlow::Continue(true)) => {
                    if shows != Shows::Values {
                        key.copy_from(row);
                    }
                    if is_reused && !has_large && is_dict(row) {
                        return Err(source.walked(py, recent, replaced, row).map(Advance::Record));
                    }
                    Ok(source.owned(py, row))
                }
                Ok(ControlFlow::Continue(false)) => Err(Ok(Advance::Pause)),
                Ok(ControlFlow::Break(())) => Err(Ok(Advance::Done)),
                Err(error) => Err(Err(Failure::Damaged(row.key.to_vec(), error))),
            }
        };
        let mut left = APART_COUNT;
        let found = loop {
            let found = match (&mut self.rows, &self.snapshot) {
                (Rows::Listed(_, rows), Some(of)) => rows.next(of, |row, large| show(row, large, of)),
                (Rows::Indexed(_, rows), Some(of)) => rows.next(of, |row, large| show(row, large, of)),
                (rows, _) => core
                    .in_serial(py, self.serial, |transaction| {
                        let transaction = &*transaction;
                        next_inside(rows, transaction, |row, large| show(row, large, transaction))
                    })
                    .ok_or(Failure::IsOver)?,
            };
            let found = found.map_err(Failure::Store)?;
            left -= 1;
            if left == 0 || !matches!(found, Some(Err(Ok(Advance::Pause)))) {
                break found;
            }
        };
        match found {
            None => Ok(Advance::Done),
            Some(Err(Ok(Advance::Record(record)))) => self.reused(py, record),
            Some(Err(step)) => step,
            Some(Ok(_)) if shows == Shows::Keys => Ok(Advance::Key),
            Some(Ok(row)) => self.given(py, GilRc::new(row), is_large),
        }
    }
}

/// The next row of a walk inside a transaction, shown by `show`.
#[inline]
fn next_inside<T>(
    rows: &mut Rows,
    transaction: &Transaction,
    show: impl FnOnce(StoredRow<'_>, bool) -> T,
) -> Result<Option<T>, StoreError> {
    match rows {
        Rows::Copied(rows) => Ok(rows.next(show)),
        Rows::IndexedInside(rows) => rows.next(transaction, show),
        Rows::Inside(scan) => scan.next_with(transaction, show),
        // Rows of a server have an iterator of their own. All other kinds are not read inside a
        // transaction.
        Rows::Pinned(_) | Rows::Covered(..) | Rows::Listed(..) | Rows::Indexed(..) | Rows::Remote(_) => {
            Ok(None)
        }
    }
}

/// How many rows that do not come from a scan are read between two checks for signals.
const APART_COUNT: u32 = 64;

#[inline]
fn is_dict(row: StoredRow<'_>) -> bool {
    let first = row.record.first();
    first.is_some_and(|byte| byte >> 4 == Kind::Shaped as u8 || byte >> 4 == Kind::Keyed as u8)
}

/// The result of a search for the next match.
enum Sought {
    Row,
    End,
    Pause,
}

/// Moves to the next match, unless `is_late` says to pause; it is called for each row.
fn seek<S: Shapes + ?Sized>(
    scan: &mut Scan,
    selection: &mut Selection,
    shapes: &S,
    mut is_late: impl FnMut() -> bool,
) -> Result<Sought, Failure> {
    let sought = scan.seek(|row| {
        if is_late() {
            return ControlFlow::Break(Ok(Sought::Pause));
        }
        match selection.takes(&row, shapes) {
            Ok(ControlFlow::Continue(true)) => ControlFlow::Break(Ok(Sought::Row)),
            Ok(ControlFlow::Continue(false)) => ControlFlow::Continue(()),
            Ok(ControlFlow::Break(())) => ControlFlow::Break(Ok(Sought::End)),
            Err(error) => ControlFlow::Break(Err(Failure::Damaged(row.key.to_vec(), error))),
        }
    });
    sought.map_err(Failure::Store)?.unwrap_or(Ok(Sought::End))
}

impl RowSource {
    /// The data for rows of this table, which may be read while the flag is open.
    pub fn new(
        validity: GilRc<ValidityFlag>,
        names: GilRc<Names>,
        table: Strong<Table>,
        frozen: Option<&'static str>,
    ) -> Self {
        Self { validity, names, table, frozen }
    }

    fn owned(&self, py: Python<'_>, row: StoredRow<'_>) -> Row {
        let table = Some(TableRef::new(&self.table.bind(py)));
        let (names, validity) = (self.names.clone(), self.validity.clone());
        Row::owned(row.record, row.key, names, validity, table, self.frozen).spelled(py, row.spelling)
    }

    /// The record of a copy of a row: the recent one, if no one else holds it, or a new one, which
    /// becomes the recent one.
    fn walked(
        &self,
        py: Python<'_>,
        recent: &mut Option<Strong<Record>>,
        replaced: &mut Vec<Strong<Record>>,
        row: StoredRow<'_>,
    ) -> Result<Strong<Record>, Failure> {
        if let Some(record) = recent {
            let node = &record.get().node;
            if record.is_alone()
                && GilRc::owner_count(&node.row) == 1
                && node.row.refill(py, row.record, row.key)
            {
                node.row.spell(py, row.spelling);
                node.forget();
                return Ok(record.clone_ref(py));
            }
        }
        let new = GilRc::new(self.owned(py, row).walked(py));
        let record = alloc::new_handle(py, Record { node: Node::root(new, true) });
        let record = Strong::new(&record.map_err(Failure::Python)?);
        replace(recent, replaced, record.clone_ref(py));
        Ok(record)
    }

    /// # Safety
    /// The row's bytes stay where they are while `snapshot` lives.
    unsafe fn borrowed(&self, py: Python<'_>, row: StoredRow<'_>, snapshot: Snapshot) -> Row {
        let table = Some(TableRef::new(&self.table.bind(py)));
        let holder = Holder::Snapshot(snapshot);
        let (names, validity) = (self.names.clone(), self.validity.clone());
        // SAFETY: as promised by the caller.
        let made = unsafe { Row::borrowed(row.record, row.key, holder, names, validity, table, self.frozen) };
        made.spelled(py, row.spelling)
    }
}

/// Puts a record in the place of the one that was returned two steps ago. That one is kept if its
/// release would run code.
fn replace(recent: &mut Option<Strong<Record>>, replaced: &mut Vec<Strong<Record>>, new: Strong<Record>) {
    let old = recent.replace(new);
    replaced.extend(old.filter(Strong::has_weak_references));
}

/// Makes the record that was returned two steps ago stand for `row`, if no one else holds it;
/// otherwise gives that record its own copy (invariants 1 and 2).
#[inline]
fn reuse(py: Python<'_>, record: &Strong<Record>, row: StoredRow<'_>) -> bool {
    let node = &record.get().node;
    if !record.is_alone() || GilRc::owner_count(&node.row) != 1 {
        node.row.detach(py);
        return false;
    }
    if !node.row.is_pinned() {
        return false;
    }
    // SAFETY: the bytes lie in the snapshot that the row's holder pins, and the row has no other
    // owner.
    unsafe { node.row.move_to(row.record, row.key) };
    node.row.spell(py, row.spelling);
    node.forget();
    true
}

impl Drop for Walk {
    fn drop(&mut self) {
        Python::try_attach(|py| {
            for row in self.recent_large.iter().flatten() {
                row.detach(py);
            }
            for record in self.recent.iter().flatten() {
                let node = &record.get().node;
                let is_kept = record.reference_count() > 1 || GilRc::owner_count(&node.row) > 1;
                if is_kept {
                    node.row.detach(py);
                }
            }
        });
    }
}

#[pymethods]
impl RowIterator {
    fn __iter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __repr__(&self, py: Python<'_>) -> String {
        let table = self.walk.with(py, |walk| walk.as_ref().map(|walk| walk.source.table.clone_ref(py)));
        let shows = match self.shows {
            Shows::Keys => "keys",
            Shows::Values => "values",
            Shows::Items => "items",
        };
        match table {
            Some(table) => format!("<pellucid.RowIterator over {shows} of table {:?}>", table.get().name(py)),
            None => format!("<pellucid.RowIterator over {shows}, at its end>"),
        }
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.step(py)
    }
}

/// `tp_iternext` of `RowIterator`.
///
/// # Safety
/// CPython calls it with a `RowIterator`, and with the GIL held.
unsafe extern "C" fn iternext(object: *mut ffi::PyObject) -> *mut ffi::PyObject {
    // SAFETY: called from the interpreter, so the GIL is held.
    let py = unsafe { Python::assume_attached() };
    // SAFETY: only `RowIterator` has this slot, and it cannot be subclassed.
    let iterator = unsafe { Borrowed::from_ptr(py, object).cast_unchecked::<RowIterator>() };
    let step = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| iterator.get().step(py)))
        .unwrap_or_else(|_| Err(errors::internal("a scan panicked")));
    match step {
        Ok(Some(value)) => value.into_ptr(),
        Ok(None) => std::ptr::null_mut(),
        Err(error) => {
            gil::restore(error);
            std::ptr::null_mut()
        }
    }
}

/// Puts the slot above into the type that PyO3 has made; PyO3's own slot adds 10 ns a row.
pub fn install(py: Python<'_>) {
    let kind = py.get_type::<RowIterator>().as_type_ptr();
    // SAFETY: a heap type of ours that no other code has seen yet.
    unsafe {
        (*kind).tp_iternext = Some(iternext);
        ffi::PyType_Modified(kind);
    }
}
