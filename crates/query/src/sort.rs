//! Sorts rows.
//!
//! Rows have the order of the codes of their sort values (`code.rs`), so that values of unlike
//! types have an order too. Missing values come last, also in a descending order. Rows with equal
//! sort values come in the order of their keys, in both directions.
//!
//! If few rows are wanted, only those are kept. Otherwise the memory of a [`Sort`] is bounded: it
//! writes sorted runs of rows to a file without a name in the system's temporary folder (`TMPDIR`),
//! and merges them when they are read (`pellucid_store::sort`).

use std::cmp::Ordering;
use std::collections::BinaryHeap;
use std::io;
use std::ops::{ControlFlow, Range};

use pellucid_record::{Corrupt, Shapes};
use pellucid_store::sort::{Entries, Merge, Part as SortedPart, Run, SortFile};
use pellucid_store::{Lookahead, Row, StoreError};

use crate::batch::{self, SortedKey};
use crate::code::Code;
use crate::column::Column;
use crate::covered_rows::{CoveredPart, CoveredRows};
use crate::evaluate::found::Found;
use crate::expression::Expression;
use crate::fault::Fault;
use crate::field::Number;
use crate::order::exact_cmp;
use crate::rows::KeyList;
use crate::stoppable::Pace;
use crate::walk::{RowKey, Walk, damaged, for_each, ranges};
use crate::work::{Parallel, Stop, Work};

/// The largest number of bytes in memory for the rows, or keys, of a sort; further ones go to
/// files.
#[must_use]
pub fn memory_max() -> usize {
    pellucid_store::sort::memory_max(1 << 28, pellucid_store::sort::SORT_PART)
}

/// The expressions that rows are sorted by, first to last.
#[derive(Clone)]
pub struct SortKey {
    parts: Vec<Part>,
    code: Code,
}

#[derive(Clone)]
struct Part {
    column: Column,
    is_descending: bool,
}

impl SortKey {
    /// A sort key of these expressions, each with whether it is descending.
    ///
    /// # Errors
    /// A regular expression in one is invalid.
    pub fn new(parts: &[(std::sync::Arc<Expression>, bool)]) -> Result<Self, crate::pattern::BadPattern> {
        let part = |(expression, is_descending): &(std::sync::Arc<Expression>, bool)| {
            Ok(Part { column: Column::new(expression)?, is_descending: *is_descending })
        };
        Ok(Self { parts: parts.iter().map(part).collect::<Result<_, _>>()?, code: Code::default() })
    }

    /// The bytes that order a row. They are valid until the next call.
    ///
    /// # Errors
    /// Damage of the record.
    pub fn of<S: Shapes + ?Sized>(&mut self, row: &Row<'_>, shapes: &S) -> Result<&[u8], Corrupt> {
        self.code.clear();
        for part in &mut self.parts {
            let start = self.code.len();
            let code = &mut self.code;
            let found = part.column.read(row, shapes)?;
            let found = match found {
                Some((slot, record)) => Found::of_slot(slot, record, shapes)?,
                None => Found::Missing,
            };
            code.push(&found, shapes)?;
            if part.is_descending {
                self.code.turn(start);
            }
        }
        Ok(self.code.as_bytes())
    }
}

impl SortKey {
    /// The number that a row is sorted by first, if it is a number in a field.
    #[inline]
    fn quick_number(&self, record: &[u8]) -> Option<Number> {
        Number::at(&self.parts.first()?.column.place(record)?)
    }

    /// Whether a row with `number` comes after one with `other`.
    #[inline]
    fn is_behind(&self, number: Number, other: Number) -> bool {
        let order = match (number, other) {
            (Number::Int(one), Number::Int(other)) => Some(one.cmp(&other)),
            (Number::Float(one), Number::Float(other)) => one.partial_cmp(&other),
            (Number::Int(one), Number::Float(other)) => exact_cmp(one, other),
            (Number::Float(one), Number::Int(other)) => exact_cmp(other, one).map(Ordering::reverse),
        };
        let behind = match self.parts.first() {
            Some(part) if part.is_descending => Ordering::Less,
            _ => Ordering::Greater,
        };
        order == Some(behind)
    }
}

/// A row among the best ones, and its sort code.
struct BestRow {
    code: Box<[u8]>,
    key: Box<[u8]>,
    spelling: Box<[u8]>,
    number: Option<Number>,
}

impl Ord for BestRow {
    fn cmp(&self, other: &Self) -> Ordering {
        (&self.code, &self.key).cmp(&(&other.code, &other.key))
    }
}

impl PartialOrd for BestRow {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for BestRow {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for BestRow {}

/// Up to this many rows, a heap of the best ones is faster than sorting all.
pub const TOP_MAX: u64 = 10_000;

/// A sort of the keys of a walk's rows.
#[derive(Clone)]
pub struct Sort {
    by: SortKey,
    after: Option<(Vec<u8>, Vec<u8>)>,
    wanted: u64,
    /// The number of bytes in memory that its rows may take; further rows go to a file.
    memory_max: usize,
}

/// Sorted rows, or a part of them; [`Sorted::merge`] puts parts together.
#[derive(Default)]
pub struct Sorted {
    /// Each batch is in order.
    batches: Vec<Entries>,
    runs: Vec<Run>,
}

/// The error of a sort that cannot read or write its temporary file.
fn failed(action: &'static str, source: io::Error) -> StoreError {
    let path = std::env::temp_dir();
    let path = format!(
        "a temporary file in {} (TMPDIR names the folder), for a sort that does not fit in memory",
        path.display()
    );
    StoreError::Io { action, path, source }
}

/// Sorted runs in a file.
#[derive(Default)]
struct Runs {
    file: Option<SortFile>,
    runs: Vec<Run>,
}

impl Runs {
    /// Writes sorted rows as one more run, and leaves none.
    fn write(&mut self, rows: &mut Entries, pace: &mut Pace<impl Fn() -> bool>) -> Result<(), Fault> {
        let failed = |error| Fault::from(failed("write to", error));
        let file = match &mut self.file {
            Some(file) => file,
            none => none.insert(SortFile::create_in(&std::env::temp_dir()).map_err(failed)?),
        };
        let run = file.place_for(rows);
        run.write(rows, failed, &mut || pace.step())?;
        self.runs.push(run);
        rows.clear();
        Ok(())
    }
}

impl Sort {
    /// A sort by `by`, of which the first `wanted` rows are needed. With `after`, the code and key
    /// of a row, only rows after that one are sorted. Rows that do not fit into `memory_max` bytes
    /// go to a file.
    #[must_use]
    pub fn new(by: SortKey, after: Option<(Vec<u8>, Vec<u8>)>, wanted: u64, memory_max: usize) -> Self {
        Self { by, after, wanted, memory_max }
    }

    /// Keeps the first rows in a heap: all others are dropped after one comparison.
    fn top<S: Shapes + ?Sized>(
        &mut self,
        rows: &mut impl Walk,
        shapes: &S,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Sorted, Fault> {
        let Self { by, after, wanted, .. } = self;
        // The last of the rows that are kept is on top.
        let mut kept: BinaryHeap<BestRow> = BinaryHeap::new();
        // The first sort number of the last row that is kept: most rows come after it.
        let mut edge: Option<Number> = None;
        for_each::<()>(rows, is_stopped, |row| {
            let number = by.quick_number(row.record);
            if let (Some(number), Some(edge)) = (number, edge)
                && by.is_behind(number, edge)
            {
                return ControlFlow::Continue(());
            }
            let code = match by.of(&row, shapes) {
                Ok(code) => code,
                Err(error) => return damaged(&row, error),
            };
            if is_before(code, &row, after.as_ref()) {
                return ControlFlow::Continue(());
            }
            if kept.len() as u64 == *wanted {
                if let Some(greatest) = kept.peek()
                    && (code, row.key) >= (&*greatest.code, &*greatest.key)
                {
                    return ControlFlow::Continue(());
                }
                kept.pop();
            }
            kept.push(BestRow {
                code: code.into(),
                key: row.key.into(),
                spelling: row.spelling.into(),
                number,
            });
            if kept.len() as u64 == *wanted {
                edge = kept.peek().and_then(|greatest| greatest.number);
            }
            ControlFlow::Continue(())
        })?;
        let mut batch = Entries::default();
        for BestRow { code, key, spelling, .. } in kept.into_sorted_vec() {
            batch::push(&mut batch, &code, &key, &spelling)?;
        }
        Ok(Sorted { batches: vec![batch], runs: Vec::new() })
    }

    fn all<S: Shapes + ?Sized>(
        &mut self,
        rows: &mut impl Walk,
        shapes: &S,
        is_stopped: impl Fn() -> bool,
    ) -> Result<Sorted, Fault> {
        let Self { by, after, wanted, memory_max } = self;
        let wanted = usize::try_from(*wanted).unwrap_or(usize::MAX);
        let mut batch = Entries::default();
        let mut runs = Runs::default();
        let mut pace = Pace::new(&is_stopped);
        for_each::<()>(rows, &is_stopped, |row| {
            let code = match by.of(&row, shapes) {
                Ok(code) => code,
                Err(error) => return damaged(&row, error),
            };
            if is_before(code, &row, after.as_ref()) {
                return ControlFlow::Continue(());
            }
            if let Err(fault) = batch::push(&mut batch, code, row.key, row.spelling) {
                return ControlFlow::Break(Err(fault));
            }
            if batch.size() > *memory_max {
                let mut write = || {
                    batch.sort_while(&mut || pace.step())?;
                    batch.truncate(wanted);
                    runs.write(&mut batch, &mut pace)
                };
                if let Err(fault) = write() {
                    return ControlFlow::Break(Err(fault));
                }
            }
            ControlFlow::Continue(())
        })?;
        batch.sort_while(&mut || pace.step())?;
        Ok(Sorted { batches: vec![batch], runs: runs.runs })
    }
}

impl Work for Sort {
    type Result = Sorted;

    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> Result<Sorted, Fault> {
        match self.wanted {
            0 => Ok(Sorted::default()),
            1..=TOP_MAX => self.top(rows, shapes, stop.check()),
            _ => self.all(rows, shapes, stop.check()),
        }
    }
}

impl Parallel for Sort {
    fn merge(&self, parts: Vec<Sorted>, _stop: Stop<'_>) -> Result<Sorted, Fault> {
        Ok(Sorted::merge(parts))
    }

    fn in_parts(&self, count: usize) -> Self {
        Self { memory_max: self.memory_max / count.max(1), ..self.clone() }
    }
}

fn is_before(code: &[u8], row: &Row<'_>, after: Option<&(Vec<u8>, Vec<u8>)>) -> bool {
    after.is_some_and(|(last_code, last_key)| (code, row.key) <= (&**last_code, &**last_key))
}

impl Sorted {
    /// Puts parts together that were sorted apart.
    #[must_use]
    pub fn merge(parts: Vec<Self>) -> Self {
        let mut all = Self::default();
        for part in parts {
            all.batches.extend(part.batches);
            all.runs.extend(part.runs);
        }
        all
    }

    /// The keys in order: at most `limit` of those from `offset` on.
    ///
    /// # Errors
    /// The file cannot be read, or a stop.
    pub fn into_keys(
        mut self,
        offset: u64,
        limit: u64,
        is_stopped: impl Fn() -> bool,
    ) -> Result<SortedKeys, Fault> {
        if self.runs.is_empty() && self.batches.len() <= 1 {
            let batch = self.batches.pop().unwrap_or_default();
            let start = usize::try_from(offset).unwrap_or(usize::MAX).min(batch.len());
            let end = start.saturating_add(usize::try_from(limit).unwrap_or(usize::MAX)).min(batch.len());
            return Ok(SortedKeys::Sorted(batch, start..end));
        }
        let mut pace = Pace::new(is_stopped);
        let failed = |error| failed("read from", error);
        let mut merge = Merge::new(&self.runs, self.batches).map_err(failed)?;
        for _ in 0..offset {
            if merge.next().map_err(failed)?.is_none() {
                break;
            }
            pace.step()?;
        }
        Ok(SortedKeys::Merged(Box::new(merge), limit))
    }
}

/// Keys in an order.
pub enum SortedKeys {
    /// The keys of a list.
    Listed(CoveredRows),
    /// The keys of sorted rows, and the range of them that is still wanted.
    Sorted(Entries, Range<usize>),
    /// Keys that are merged from several parts, and how many more are wanted.
    Merged(Box<Merge<SortedPart<Entries>>>, u64),
}

impl Iterator for SortedKeys {
    type Item = Result<RowKey, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            SortedKeys::Listed(keys) => keys.next(|row| Ok(RowKey::new(row.key, row.spelling))),
            SortedKeys::Sorted(batch, wanted) => {
                batch.get(wanted.next()?).map(|entry| Ok(SortedKey::from(entry).row_key()))
            }
            SortedKeys::Merged(merge, left) => {
                *left = left.checked_sub(1)?;
                let next = merge.next().map_err(|error| failed("read from", error)).transpose()?;
                Some(next.map(|entry| SortedKey::from(entry).row_key()))
            }
        }
    }
}

impl KeyList for SortedKeys {
    fn push_next(&mut self, rows: &mut Lookahead) -> Result<bool, StoreError> {
        if let SortedKeys::Listed(keys) = self {
            return Ok(keys.next(|row| rows.push(row.key, row.spelling)).is_some());
        }
        let key = self.next().transpose()?;
        if let Some(key) = &key {
            rows.push(&key.code, &key.spelling);
        }
        Ok(key.is_some())
    }
}

/// Keys of a list that follow each other.
pub enum KeyPart<'a> {
    /// Of a list of keys.
    Listed(CoveredPart<'a>),
    /// Of sorted rows.
    Sorted(&'a Entries, Range<usize>),
}

impl SortedKeys {
    /// How many keys are left; 0 if that is known only when they have been merged.
    pub(crate) fn known_count(&self) -> u64 {
        match self {
            SortedKeys::Listed(keys) => keys.left() as u64,
            SortedKeys::Sorted(_, wanted) => wanted.len() as u64,
            SortedKeys::Merged(..) => 0,
        }
    }

    /// Cuts the keys into `count` parts or fewer; none if they are still to be merged.
    pub(crate) fn parts(&self, count: usize) -> Vec<KeyPart<'_>> {
        match self {
            SortedKeys::Listed(keys) => keys.cut_in(count).map(KeyPart::Listed).collect(),
            SortedKeys::Sorted(batch, wanted) => {
                ranges(wanted.clone(), count).map(|wanted| KeyPart::Sorted(batch, wanted)).collect()
            }
            SortedKeys::Merged(..) => Vec::new(),
        }
    }
}

impl KeyList for KeyPart<'_> {
    fn push_next(&mut self, rows: &mut Lookahead) -> Result<bool, StoreError> {
        let pushed = match self {
            Self::Listed(keys) => keys.next(|row| rows.push(row.key, row.spelling)),
            Self::Sorted(batch, wanted) => {
                let entry = wanted.next().and_then(|place| batch.get(place));
                entry.map(SortedKey::from).map(|row| rows.push(row.key, row.spelling))
            }
        };
        Ok(pushed.is_some())
    }
}
