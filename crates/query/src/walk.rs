//! Where do the rows come from, and which of them are wanted?
//!
//! A [`Walk`] gives rows one after the other: those of a scan, those that pass a condition ([`Selected`]), those under a list
//! of keys ([`Listed`]). What computes over rows takes any of them.

use std::ops::{Bound, ControlFlow};

use pellucid_record::{Corrupt, Shapes};
use pellucid_store::{
    Range, Row, Scan, Snapshot, StoreError, TableId, Transaction, TransactionScan, range_of_parts,
};

use crate::evaluate::Evaluator;
use crate::group::TooManyGroups;
use crate::index::Keys;
use crate::sort::SortedKeys;
use crate::stoppable::Pace;

/// Why a walk broke off.
#[derive(Debug)]
pub enum Fault {
    /// The store.
    Store(StoreError),
    /// A damaged record, under this key.
    Record(Vec<u8>, Corrupt),
    /// Rows fall into too many groups.
    Groups(TooManyGroups),
    /// The caller asked to stop (`is_stopped`).
    Stopped,
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Fault::Store(error)
    }
}

/// A source of rows, one after the other.
pub trait Walk {
    /// Gives the next rows to `visit`, as many as are at hand, until it breaks. Returns what it said last; None at the end.
    ///
    /// # Errors
    /// Damage on the way.
    fn step<B>(
        &mut self,
        visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault>;
}

impl Walk for Scan {
    #[inline]
    fn step<B>(
        &mut self,
        visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        Ok(self.next_rows(visit)?)
    }
}

/// A walk inside a transaction, with the transaction it needs.
pub struct Inside<'a> {
    /// The walk.
    pub scan: &'a mut TransactionScan,
    /// Its transaction.
    pub transaction: &'a Transaction,
}

impl Walk for Inside<'_> {
    #[inline]
    fn step<B>(
        &mut self,
        visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        Ok(self.scan.next_rows(self.transaction, visit)?)
    }
}

/// Which rows of a walk are wanted: those of which all conditions are true; of these, some after the first.
#[derive(Clone)]
pub struct Selection {
    /// The condition; None is true of all rows.
    pub condition: Option<Evaluator>,
    /// How many that pass are left out first.
    pub offset: u64,
    /// How many are wanted after that, at most.
    pub limit: u64,
}

impl Selection {
    /// Those of which a condition is true.
    #[must_use]
    pub fn of(condition: Option<Evaluator>) -> Self {
        Self { condition, offset: 0, limit: u64::MAX }
    }

    /// Whether every row is wanted.
    #[must_use]
    pub fn takes_all(&self) -> bool {
        self.condition.is_none() && self.offset == 0 && self.limit == u64::MAX
    }

    /// Whether a row is wanted, if it is the next one met; Break where no further one is.
    ///
    /// # Errors
    /// Damage.
    #[inline(always)]
    #[expect(
        clippy::inline_always,
        reason = "with a call for each row a loop over one in ten took 15 % more"
    )]
    pub fn takes<S: Shapes + ?Sized>(
        &mut self,
        row: &Row<'_>,
        shapes: &S,
    ) -> Result<ControlFlow<(), bool>, Corrupt> {
        if self.limit == 0 {
            return Ok(ControlFlow::Break(()));
        }
        if let Some(condition) = &mut self.condition
            && !condition.is_true(row, shapes)?
        {
            return Ok(ControlFlow::Continue(false));
        }
        if self.offset > 0 {
            self.offset -= 1;
            return Ok(ControlFlow::Continue(false));
        }
        self.limit -= 1;
        Ok(ControlFlow::Continue(true))
    }
}

/// Those rows of a walk that are wanted.
pub struct Selected<'a, W, S: ?Sized> {
    /// Where they come from.
    pub rows: &'a mut W,
    /// Which of them.
    pub selection: &'a mut Selection,
    /// The shapes of their records.
    pub shapes: &'a S,
}

impl<W: Walk, S: Shapes + ?Sized> Walk for Selected<'_, W, S> {
    #[inline]
    fn step<B>(
        &mut self,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        // What the walk is told is a bit; whatever is to be said is kept beside it. Handing the whole through each layer for each row
        // took as long as the test.
        let (selection, shapes) = (&mut *self.selection, self.shapes);
        let mut said = Ok(None);
        let step = self.rows.step(|row| match selection.takes(&row, shapes) {
            Ok(ControlFlow::Continue(true)) => match visit(row) {
                ControlFlow::Continue(()) => ControlFlow::Continue(()),
                ControlFlow::Break(value) => {
                    said = Ok(Some(value));
                    ControlFlow::Break(())
                }
            },
            Ok(ControlFlow::Continue(false)) => ControlFlow::Continue(()),
            Ok(ControlFlow::Break(())) => ControlFlow::Break(()),
            Err(error) => {
                said = Err(Fault::Record(row.key.to_vec(), error));
                ControlFlow::Break(())
            }
        })?;
        match step {
            Some(ControlFlow::Continue(())) => Ok(Some(ControlFlow::Continue(()))),
            None => Ok(None),
            Some(ControlFlow::Break(())) => Ok(said?.map(ControlFlow::Break)),
        }
    }
}

/// A row's key: its code and its spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowKey {
    /// The key's code.
    pub code: Box<[u8]>,
    /// What the code does not tell about the key.
    pub spelling: Box<[u8]>,
}

/// The rows of a snapshot under a list of keys, in the order of the list.
pub struct Listed {
    snapshot: Snapshot,
    table: TableId,
    keys: SortedKeys,
}

impl Listed {
    /// The rows of this table of the snapshot.
    #[must_use]
    pub fn new(snapshot: Snapshot, table: TableId, keys: SortedKeys) -> Self {
        Self { snapshot, table, keys }
    }

    /// The snapshot that keeps the rows' bytes in place.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Gives the next row to `visit`, and whether it has large values that lie apart; None at the end. The row's bytes stay where they are
    /// while the snapshot lives.
    ///
    /// # Errors
    /// Damage, or the list cannot be read.
    pub fn next<R>(&mut self, visit: impl FnOnce(Row<'_>, bool) -> R) -> Result<Option<R>, StoreError> {
        for key in self.keys.by_ref() {
            let key = key?;
            // It was there when the list was made, in the same snapshot.
            if let Some(cell) = self.snapshot.get(self.table, &key.code)? {
                let row = Row { key: &key.code, spelling: &key.spelling, record: cell.record };
                return Ok(Some(visit(row, cell.has_blobs())));
            }
        }
        Ok(None)
    }
}

impl Walk for Listed {
    fn step<B>(
        &mut self,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        Ok(self.next(|row, _| visit(row))?)
    }
}

/// The rows of a snapshot to which entries of an index lead, in the order of these.
pub struct Indexed {
    entries: Scan,
    snapshot: Snapshot,
    table: TableId,
    keys: Keys,
    turned: Option<Turned>,
}

/// Entries with the same parts that were met from the last to the first, to be given from the first to the last.
struct Turned {
    /// Where the entries begin, and so end.
    start: Bound<Vec<u8>>,
    parts: Vec<u8>,
    run: Vec<RowKey>,
    /// A run of too many to be met before the first one is given, from that one on.
    long: Option<Scan>,
    /// The first one behind them, which has other parts.
    next: Option<(Vec<u8>, RowKey)>,
}

impl Indexed {
    /// The rows of this table to which these entries lead.
    #[must_use]
    pub fn new(entries: Scan, table: TableId, keys: Keys) -> Self {
        let snapshot = entries.snapshot().clone();
        Self { entries, snapshot, table, keys, turned: None }
    }

    /// As `new`, of entries that come from the last to the first, down to `start`; those with the same parts still in the order of keys.
    #[must_use]
    pub fn turned(entries: Scan, table: TableId, keys: Keys, start: Bound<Vec<u8>>) -> Self {
        let turned = Turned { start, parts: Vec::new(), run: Vec::new(), long: None, next: None };
        Self { turned: Some(turned), ..Self::new(entries, table, keys) }
    }

    /// The snapshot that keeps the rows' bytes in place.
    #[must_use]
    pub fn snapshot(&self) -> &Snapshot {
        &self.snapshot
    }

    /// Gives the next row to `visit`, and whether it has large values that lie apart; None at the end. The row's bytes stay where they are
    /// while the snapshot lives.
    ///
    /// # Errors
    /// Damage.
    pub fn next<R>(&mut self, visit: impl FnOnce(Row<'_>, bool) -> R) -> Result<Option<R>, StoreError> {
        if let Some(turned) = &mut self.turned {
            while let Some(key) = turned.next(&mut self.entries, &self.keys, &self.snapshot)? {
                if let Some(cell) = self.snapshot.get(self.table, &key.code)? {
                    let row = Row { key: &key.code, spelling: &key.spelling, record: cell.record };
                    return Ok(Some(visit(row, cell.has_blobs())));
                }
            }
            return Ok(None);
        }
        while let Some(entry) = self.entries.next()? {
            // What has no row, or is no entry, is found by `check`.
            let Some(parts) = self.keys.split(&entry) else { continue };
            if let Some(cell) = self.snapshot.get(self.table, parts.key)? {
                let row = Row { key: parts.key, spelling: parts.key_spelling, record: cell.record };
                return Ok(Some(visit(row, cell.has_blobs())));
            }
        }
        Ok(None)
    }
}

impl Turned {
    fn next(
        &mut self,
        entries: &mut Scan,
        keys: &Keys,
        snapshot: &Snapshot,
    ) -> Result<Option<RowKey>, StoreError> {
        const RUN_MAX: usize = 100;
        if let Some(long) = &mut self.long {
            while let Some(entry) = long.next()? {
                if let Some(parts) = keys.split(&entry) {
                    return Ok(Some(RowKey { code: parts.key.into(), spelling: parts.key_spelling.into() }));
                }
            }
            self.long = None;
        }
        if let Some(key) = self.run.pop() {
            return Ok(Some(key));
        }
        if let Some((parts, key)) = self.next.take() {
            self.parts = parts;
            self.run.push(key);
        }
        while let Some(entry) = entries.next()? {
            let Some(parts) = keys.split(&entry) else { continue };
            let key = RowKey { code: parts.key.into(), spelling: parts.key_spelling.into() };
            if self.run.is_empty() {
                self.parts = parts.parts.to_vec();
            } else if *parts.parts != *self.parts {
                self.next = Some((parts.parts.to_vec(), key));
                break;
            }
            self.run.push(key);
            if self.run.len() == RUN_MAX {
                self.run.clear();
                let (index, run) = (entries.table(), range_of_parts(&self.parts));
                let behind = Range { start: self.start.clone(), end: Bound::Excluded(self.parts.clone()) };
                *entries = snapshot.scan(index, &behind, true)?;
                self.long = Some(snapshot.scan(index, &run, false)?);
                return self.next(entries, keys, snapshot);
            }
        }
        Ok(self.run.pop())
    }
}

impl Walk for Indexed {
    fn step<B>(
        &mut self,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        Ok(self.next(|row, _| visit(row))?)
    }
}

/// The same inside a transaction.
pub struct IndexedInside {
    entries: TransactionScan,
    table: TableId,
    keys: Keys,
}

impl IndexedInside {
    /// The rows of this table to which these entries lead.
    #[must_use]
    pub fn new(entries: TransactionScan, table: TableId, keys: Keys) -> Self {
        Self { entries, table, keys }
    }

    /// Gives the next row to `visit`, and whether it has large values that lie apart; None at the end.
    ///
    /// # Errors
    /// Damage; the transaction has ended.
    pub fn next<R>(
        &mut self,
        transaction: &Transaction,
        visit: impl FnOnce(Row<'_>, bool) -> R,
    ) -> Result<Option<R>, StoreError> {
        let keys = &self.keys;
        while let Some(found) = self.entries.next(transaction, |entry| {
            keys.split(&entry).map(|parts| (parts.key.to_vec(), parts.key_spelling.to_vec()))
        })? {
            let Some((key, spelling)) = found else { continue };
            // A row that was deleted since the walk began is passed over.
            if let Some(cell) = transaction.get(self.table, &key)? {
                let row = Row { key: &key, spelling: &spelling, record: cell.record };
                return Ok(Some(visit(row, cell.has_blobs())));
            }
        }
        Ok(None)
    }
}

/// Rows of entries inside a transaction, with the transaction they need.
pub struct InsideIndexed<'a> {
    /// The rows.
    pub rows: &'a mut IndexedInside,
    /// Their transaction.
    pub transaction: &'a Transaction,
}

impl Walk for InsideIndexed<'_> {
    fn step<B>(
        &mut self,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        Ok(self.rows.next(self.transaction, |row, _| visit(row))?)
    }
}

/// Rows that were copied, in an order of their own.
#[derive(Default)]
pub struct Copied {
    rows: std::collections::VecDeque<(RowKey, Box<[u8]>, bool)>,
}

impl Copied {
    /// Adds a row behind the others; `has_large` says whether it has large values that lie apart.
    pub fn push(&mut self, key: RowKey, record: &[u8], has_large: bool) {
        self.rows.push_back((key, record.into(), has_large));
    }

    /// Gives the next row to `visit`, and whether it has large values that lie apart; None at the end.
    pub fn next<R>(&mut self, visit: impl FnOnce(Row<'_>, bool) -> R) -> Option<R> {
        let (key, record, has_large) = self.rows.pop_front()?;
        Some(visit(Row { key: &key.code, spelling: &key.spelling, record: &record }, has_large))
    }
}

impl Walk for Copied {
    fn step<B>(
        &mut self,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        Ok(self.next(|row, _| visit(row)))
    }
}

/// Calls `visit` with each row until it breaks; `Some` is what it broke with.
///
/// # Errors
/// Damage, what `visit` broke with, or `Stopped` soon after `is_stopped` says so.
pub fn for_each<B>(
    rows: &mut impl Walk,
    is_stopped: impl Fn() -> bool,
    visit: impl FnMut(Row<'_>) -> ControlFlow<Result<B, Fault>>,
) -> Result<Option<B>, Fault> {
    for_each_at(rows, Pace::new(is_stopped), visit)
}

/// As `for_each`, at a pace.
///
/// # Errors
/// As `for_each`.
pub fn for_each_at<B>(
    rows: &mut impl Walk,
    mut pace: Pace<impl Fn() -> bool>,
    mut visit: impl FnMut(Row<'_>) -> ControlFlow<Result<B, Fault>>,
) -> Result<Option<B>, Fault> {
    // A step is some rows, a page of them at most.
    let mut said = None;
    loop {
        let step = rows.step(|row| match visit(row) {
            ControlFlow::Continue(()) => ControlFlow::Continue(()),
            ControlFlow::Break(result) => {
                said = Some(result);
                ControlFlow::Break(())
            }
        })?;
        match step {
            Some(ControlFlow::Continue(())) => {}
            None | Some(ControlFlow::Break(())) => return said.transpose(),
        }
        pace.step()?;
    }
}

/// What a visit breaks with where a row's record is damaged.
pub fn damaged<B>(row: &Row<'_>, error: Corrupt) -> ControlFlow<Result<B, Fault>> {
    ControlFlow::Break(Err(Fault::Record(row.key.to_vec(), error)))
}
