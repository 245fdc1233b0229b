//! Probes rows and entries for the planner: counts of entries, a sample of rows, and the first rows
//! of a path.

use std::ops::{Bound, ControlFlow};

use pellucid_record::Shapes;
use pellucid_store::{Range, Reader, Row, StoreError, TableId};

use super::work::{Stop, Work};
use super::{Executor, RowSet, evaluator_of_all};
use crate::evaluate::Evaluator;
use crate::expression::Node;
use crate::fault::Fault;
use crate::plan::{AccessPath, CostedPath, Seen, Statistics};
use crate::rows::RowsByIndex;
use crate::selection::Selection;
use crate::walk::{RowKey, Walk, for_each};

/// A copy of a row: its key and its record.
type RowCopy = (RowKey, Box<[u8]>);

/// The probes for one query.
pub(super) struct Probes<'e, 'a, R: Reader> {
    executor: &'e Executor<'a, R>,
    wanted: u64,
    sample: Option<Vec<RowCopy>>,
    first_rows: FirstRows,
    along_index: Option<(IndexProbe, FirstRows)>,
    failed: Result<(), Fault>,
}

/// A probe along an index, which looks whether the wanted rows come soon.
#[derive(Clone, Copy)]
pub struct IndexProbe {
    /// The index, by its position among the candidates.
    pub index: usize,
    /// Whether the probe began at its end.
    pub is_reverse: bool,
    /// What the probe has shown.
    pub seen: Seen,
}

/// What probes have found, if they went on until they had all wanted rows.
#[derive(Default)]
pub(super) struct Probed {
    /// If the wanted rows were found: the number of rows that were read, and the number that was
    /// found.
    pub(super) counts: Option<(u64, u64)>,
    /// The keys of these rows, if reading them by key is fastest, and nothing is damaged.
    pub(super) keys: Option<Vec<RowKey>>,
    /// The probe along an index, whether it found the rows or not.
    pub(super) index_probe: Option<IndexProbe>,
}

/// What a probe of the first rows has found.
#[derive(Default)]
struct FirstRows {
    seen: Seen,
    /// The codes and spellings of the keys of rows that passed, one after another, with where each
    /// ends: mostly they are not needed. They do not count if one of the rows is damaged: the query
    /// then reads the rows again, and meets the damage.
    found: Vec<u8>,
    ends: Vec<(usize, usize)>,
    is_damaged: bool,
    /// The key of the last row that was read.
    last: Option<Vec<u8>>,
}

impl<'e, 'a, R: Reader> Probes<'e, 'a, R> {
    pub(super) fn new(executor: &'e Executor<'a, R>, wanted: u64) -> Self {
        let (sample, first_rows) = (None, FirstRows::default());
        Self { executor, wanted, sample, first_rows, along_index: None, failed: Ok(()) }
    }

    /// What the probes have found. Unless rows are only counted, it includes the keys of the rows
    /// that the scan's probe found, if `are_wanted` agrees to their number.
    ///
    /// # Errors
    /// The first failure there was.
    pub(super) fn finish(
        self,
        are_wanted: impl FnOnce(Seen) -> bool,
        is_count: bool,
    ) -> Result<Probed, Fault> {
        self.failed?;
        let are_wanted = !is_count && (self.along_index.is_some() || are_wanted(self.first_rows.seen));
        let (index_probe, rows) =
            self.along_index.map_or((None, self.first_rows), |(probe, rows)| (Some(probe), rows));
        if !rows.seen.is_over {
            return Ok(Probed { index_probe, ..Probed::default() });
        }
        let counts = Some((rows.seen.looked_at, rows.seen.found)).filter(|_| !rows.is_damaged || !is_count);
        let keys = (!rows.is_damaged && are_wanted).then(|| rows.into_keys());
        Ok(Probed { counts, keys, index_probe })
    }

    fn condition(&self) -> Result<Option<Evaluator>, Fault> {
        evaluator_of_all(self.executor.conditions.clone())
    }

    /// Probes the first rows along an index.
    fn probe_index(&mut self, path: &CostedPath, row_count: u64) -> Result<Seen, Fault> {
        let executor = self.executor;
        let AccessPath::IndexOrder { index: place, section, is_reverse, .. } = &path.access else {
            return Ok(Seen::default());
        };
        let (Some(index), Some(range), Some(condition)) =
            (executor.indexes.get(*place), section.ranges.first(), self.condition()?)
        else {
            return Ok(Seen::default());
        };
        let entries = (index.info.id, index.keys.clone());
        let rows = RowsByIndex::ordered(executor.reader, executor.table, entries, (range, *is_reverse))?;
        let look = Look { rows: FirstRows::default(), condition, row_count, wanted: self.wanted };
        let rows = executor.run_over(RowSet::Index(rows), Selection::of(None), look)?;
        let seen = rows.seen;
        self.along_index = Some((IndexProbe { index: *place, is_reverse: *is_reverse, seen }, rows));
        Ok(seen)
    }

    /// Probes this many further rows of the scan.
    fn probe_scan(&mut self, row_count: u64) -> Result<(), Fault> {
        let Some(condition) = self.condition()? else { return Ok(()) };
        let mut range = self.executor.range.clone();
        if let Some(last) = &self.first_rows.last {
            range.start = Bound::Excluded(last.clone());
        }
        let rows = std::mem::take(&mut self.first_rows);
        let look = Look { rows, condition, row_count, wanted: self.wanted };
        self.first_rows = self.executor.run_scan(self.executor.table, (&range, false), look)?;
        Ok(())
    }

    /// Takes a sample of rows from all over the table. In a transaction, it is the rows as they
    /// were before it.
    fn take_sample(&self) -> Result<Vec<RowCopy>, StoreError> {
        const PARTS: usize = 16;
        const ROWS_EACH: usize = 8;
        let mut sample = Vec::new();
        let committed = self.executor.reader.committed()?;
        let parts = committed.scan(self.executor.table, &Range::ALL, false)?.parts(PARTS)?;
        let each = PARTS * ROWS_EACH / parts.len().max(1);
        for mut part in parts {
            for _ in 0..each {
                let Some(row) = part.next()? else { break };
                sample.push((RowKey::new(row.key, row.spelling), row.record.into()));
            }
        }
        Ok(sample)
    }

    /// Returns what was found, or `otherwise` after a failure. The first failure is kept.
    fn or_note<T>(&mut self, found: Result<T, impl Into<Fault>>, otherwise: T) -> T {
        found.unwrap_or_else(|error| {
            if self.failed.is_ok() {
                self.failed = Err(error.into());
            }
            otherwise
        })
    }
}

impl FirstRows {
    fn into_keys(self) -> Vec<RowKey> {
        let mut start = 0;
        let key = |(middle, end): (usize, usize)| {
            let key = RowKey::new(self.found.get(start..middle)?, self.found.get(middle..end)?);
            start = end;
            Some(key)
        };
        self.ends.into_iter().map_while(key).collect()
    }
}

impl<R: Reader> Statistics for Probes<'_, '_, R> {
    fn entries(&mut self, index: usize, range: &Range) -> u64 {
        let Some(index) = self.executor.indexes.get(index) else { return 0 };
        let found = self.executor.reader.estimate(index.info.id, range);
        self.or_note(found, 0)
    }

    fn first_few(&mut self, index: usize, range: &Range, most: u64) -> u64 {
        let Some(index) = self.executor.indexes.get(index).filter(|_| R::IS_COMMITTED) else { return most };
        let reader = self.executor.reader;
        let found = if most == 1 {
            reader.with_first(index.info.id, range, false, |_| ()).map(|first| u64::from(first.is_some()))
        } else {
            count_up_to(reader, index.info.id, range, most)
        };
        self.or_note(found, most)
    }

    fn sample(&mut self, condition: &Node) -> (usize, usize) {
        let Ok(mut evaluator) = Evaluator::new(condition) else { return (0, 0) };
        if self.sample.is_none() {
            let sample = self.take_sample();
            self.sample = Some(self.or_note(sample, Vec::new()));
        }
        let rows = self.sample.as_deref().unwrap_or_default();
        let shapes = self.executor.reader.whole();
        let is_true = |(key, record): &&RowCopy| {
            let row = Row { key: &key.code, spelling: &key.spelling, record };
            evaluator.is_true(&row, shapes.shapes).unwrap_or(false)
        };
        (rows.iter().filter(is_true).count(), rows.len())
    }

    fn look_on(&mut self, row_count: u64) -> Seen {
        if !self.first_rows.seen.is_over {
            let looked = self.probe_scan(row_count);
            self.or_note(looked, ());
        }
        self.first_rows.seen
    }

    fn walk(&mut self, path: &CostedPath, row_count: u64) -> Seen {
        let walked = self.probe_index(path, row_count);
        self.or_note(walked, Seen::default())
    }
}

fn count_up_to<R: Reader>(reader: &R, of: TableId, range: &Range, most: u64) -> Result<u64, StoreError> {
    let mut scan = reader.scan(of, range, false)?;
    let mut count = 0;
    while count < most && reader.next(&mut scan, |_| ())?.is_some() {
        count += 1;
    }
    Ok(count)
}

/// Reads and tests this many further rows.
struct Look {
    rows: FirstRows,
    condition: Evaluator,
    row_count: u64,
    wanted: u64,
}

impl Work for Look {
    type Result = FirstRows;

    fn run<S: Shapes>(
        mut self,
        rows: &mut impl Walk,
        shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let FirstRows { seen, found, ends, is_damaged, last } = &mut self.rows;
        let until = seen.looked_at + self.row_count;
        let is_stopped = for_each(
            rows,
            || stop.is_set(),
            |row| {
                seen.looked_at += 1;
                match self.condition.is_true(&row, shapes) {
                    Ok(true) => {
                        seen.found += 1;
                        found.extend_from_slice(row.key);
                        let middle = found.len();
                        found.extend_from_slice(row.spelling);
                        ends.push((middle, found.len()));
                        seen.is_over = seen.found >= self.wanted;
                    }
                    Ok(false) => {}
                    Err(_) => (*is_damaged, seen.is_over) = (true, true),
                }
                if seen.is_over {
                    return ControlFlow::Break(Ok(()));
                }
                if seen.looked_at >= until {
                    *last = Some(row.key.to_vec());
                    return ControlFlow::Break(Ok(()));
                }
                ControlFlow::Continue(())
            },
        )?;
        seen.is_over |= is_stopped.is_none();
        Ok(self.rows)
    }
}
