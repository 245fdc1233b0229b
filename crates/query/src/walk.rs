//! Walks over rows from any source: a scan, a list of keys, or entries of an index.

use std::ops::ControlFlow;

use pellucid_record::Corrupt;
use pellucid_store::{Reader, Row, Scan, StoreError};

use crate::fault::Fault;
use crate::stoppable::Pace;

/// The last result of a visit, or None at the end of a walk.
pub type StepResult<B> = Result<Option<ControlFlow<B>>, Fault>;

/// A source of rows, one after another.
pub trait Walk {
    /// Calls `visit` with the next rows, as many as are at hand, until it breaks. Returns the last
    /// result of `visit`; None at the end.
    ///
    /// # Errors
    /// Damage on the way.
    fn step<B>(&mut self, visit: impl FnMut(Row<'_>) -> ControlFlow<B>) -> StepResult<B>;
}

/// Rows that can be cut into parts, for several threads.
pub trait Divide: Walk {
    /// A walk over one part.
    type Part<'a>: Walk + Send
    where
        Self: 'a;

    /// Whether there are so many rows that several threads are done sooner than one.
    ///
    /// # Errors
    /// Damage.
    fn is_long(&self) -> Result<bool, StoreError>;

    /// Cuts the rows, from the first on, into `count` consecutive parts or fewer, of about the same
    /// size. A single part or none if it is not known where to cut.
    ///
    /// # Errors
    /// Damage.
    fn parts(&self, count: usize) -> Result<Vec<Self::Part<'_>>, StoreError>;
}

/// A scan of a table with fewer rows ends before threads have started.
pub const SCAN_COUNT_MIN: u64 = 100_000;

/// The same for rows that are looked up: finding one takes about ten times as long as the next one
/// of a scan.
pub const LOOKUP_COUNT_MIN: u64 = 10_000;

/// The same for entries of an index that become rows in memory.
pub const ENTRY_COUNT_MIN: u64 = 50_000;

/// The least number of rows in a part of a list.
const PART_COUNT_MIN: usize = 4096;

/// Cuts `count` positions into `part_count` ranges or fewer, of about the same size.
/// No range has fewer than `PART_COUNT_MIN`, but the last one.
pub(crate) fn ranges(
    count: std::ops::Range<usize>,
    part_count: usize,
) -> impl Iterator<Item = std::ops::Range<usize>> {
    let size = count.len().div_ceil(part_count.max(1)).max(PART_COUNT_MIN);
    let end = count.end;
    count.step_by(size).map(move |start| start..end.min(start + size))
}

impl Divide for Scan {
    type Part<'a> = Self;

    fn is_long(&self) -> Result<bool, StoreError> {
        Ok(self.snapshot().count(self.table())? >= SCAN_COUNT_MIN)
    }

    fn parts(&self, count: usize) -> Result<Vec<Self>, StoreError> {
        Scan::parts(self, count)
    }
}

impl Walk for Scan {
    #[inline]
    fn step<B>(&mut self, visit: impl FnMut(Row<'_>) -> ControlFlow<B>) -> StepResult<B> {
        Ok(self.next_rows(visit)?)
    }
}

/// A scan, with the reader that it needs.
pub struct Scanned<'a, R: Reader> {
    /// The scan.
    pub scan: &'a mut R::Scan,
    /// What the scan reads from.
    pub reader: &'a R,
}

impl<R: Reader> Walk for Scanned<'_, R> {
    #[inline]
    fn step<B>(&mut self, visit: impl FnMut(Row<'_>) -> ControlFlow<B>) -> StepResult<B> {
        Ok(self.reader.next_rows(self.scan, visit)?)
    }
}

/// A row's key: its code and its spelling.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowKey {
    /// The key's code.
    pub code: Box<[u8]>,
    /// What the code does not say about the key, such as `1`, `1.0` or `True`.
    pub spelling: Box<[u8]>,
}

impl RowKey {
    /// A copy of the key of a row.
    #[must_use]
    pub fn new(code: &[u8], spelling: &[u8]) -> Self {
        Self { code: code.into(), spelling: spelling.into() }
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

/// Like `for_each`, with the caller's `Pace`.
///
/// # Errors
/// As `for_each`.
pub fn for_each_at<B>(
    rows: &mut impl Walk,
    mut pace: Pace<impl Fn() -> bool>,
    mut visit: impl FnMut(Row<'_>) -> ControlFlow<Result<B, Fault>>,
) -> Result<Option<B>, Fault> {
    // A step is some rows, at most a page of them.
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

/// What a visit breaks with if a row's record is damaged.
pub fn damaged<B>(row: &Row<'_>, error: Corrupt) -> ControlFlow<Result<B, Fault>> {
    ControlFlow::Break(Err(Fault::Record(row.key.to_vec(), error)))
}
