//! Learns about rows for the planner: counts of entries, a sample of rows, and the first rows of a
//! path.

use std::ops::ControlFlow;

use pellucid_record::Shapes;
use pellucid_store::{Range, Reader, Row, StoreError, TableId};

use super::paths::{AccessPaths, LOOKUP_COST_IN_ROWS};
use super::{Executor, RowSet, evaluator_of_all};
use crate::covered_rows::CoveredRows;
use crate::evaluate::Evaluator;
use crate::expression::Node;
use crate::fault::Fault;
use crate::plan::{AccessPath, CostedPath, Probe, Statistics};
use crate::rows::RowsByIndex;
use crate::selection::Selection;
use crate::walk::{RowKey, Walk, for_each};
use crate::work::{Stop, Work, WorkResult};

/// A copy of a row: its key and its record.
type RowCopy = (RowKey, Box<[u8]>);

/// What is known of the rows for one query.
pub(super) struct RowStatistics<'e, 'a, R: Reader> {
    executor: &'e Executor<'a, R>,
    wanted: u64,
    sample: Option<Vec<RowCopy>>,
    /// The path that was probed last, and its first rows.
    probed: Option<(AccessPath, FirstRows)>,
    failed: Result<(), Fault>,
}

/// The first rows of a path.
#[derive(Default)]
struct FirstRows {
    probe: Probe,
    /// The keys of the rows that passed.
    keys: CoveredRows,
    /// Whether a row is damaged. The query then reads the rows again, and meets the damage.
    is_damaged: bool,
}

impl<'e, 'a, R: Reader> RowStatistics<'e, 'a, R> {
    pub(super) fn new(executor: &'e Executor<'a, R>, wanted: u64) -> Self {
        Self { executor, wanted, sample: None, probed: None, failed: Ok(()) }
    }

    /// The access paths with what the last probe has found. If it found all wanted rows, the best
    /// path comes with their keys, unless reading them again is faster.
    ///
    /// # Errors
    /// The first failure there was.
    pub(super) fn finish(self, mut paths: Vec<CostedPath>) -> Result<AccessPaths, Fault> {
        self.failed?;
        let Some((access, FirstRows { probe, keys, .. })) = self.probed.filter(|(_, rows)| !rows.is_damaged)
        else {
            return Ok(AccessPaths { paths, keys: None, probe: None });
        };
        let request = self.executor.request;
        let is_fast = access.is_ordered_walk()
            || request.reads_keys()
            || probe.passed * LOOKUP_COST_IN_ROWS <= probe.read;
        let keys = (probe.is_over && !request.is_count && is_fast).then_some(keys);
        if let (Some(_), Some(best)) = (&keys, paths.first_mut()) {
            best.implied.fill(true);
            best.is_covered = request.reads_keys();
        }
        Ok(AccessPaths { paths, keys, probe: Some((access, probe)) })
    }

    fn probe_path(&self, access: &AccessPath, row_count: u64) -> Result<FirstRows, Fault> {
        let executor = self.executor;
        let Some(condition) = evaluator_of_all(executor.conditions.clone())? else {
            return Ok(FirstRows::default());
        };
        let work = ProbeRows { condition, row_count, wanted: self.wanted };
        let AccessPath::OrderedWalk { index_range, is_reverse } = access else {
            return executor.run_scan(executor.table, (&executor.range, false), work);
        };
        let Some((index, range)) = executor.indexes.get(index_range.index).zip(index_range.ranges.first())
        else {
            return Ok(FirstRows::default());
        };
        let entries = (index.info.id, index.keys.clone());
        let rows = RowsByIndex::ordered(executor.reader, executor.table, entries, (range, *is_reverse))?;
        executor.run_over(RowSet::Index(rows), Selection::of(None), work)
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

impl<R: Reader> Statistics for RowStatistics<'_, '_, R> {
    fn entries(&mut self, index: usize, range: &Range) -> u64 {
        let Some(index) = self.executor.indexes.get(index) else { return 0 };
        let found = self.executor.reader.estimate(index.info.id, range);
        self.or_note(found, 0)
    }

    fn count_up_to(&mut self, index: usize, range: &Range, most: u64) -> u64 {
        let Some(index) = self.executor.indexes.get(index).filter(|_| R::IS_COMMITTED) else { return most };
        let found = count_up_to(self.executor.reader, index.info.id, range, most);
        self.or_note(found, most)
    }

    fn sample(&mut self, condition: &Node) -> (usize, usize) {
        let Ok(mut evaluator) = Evaluator::new(condition) else { return (0, 0) };
        if self.sample.is_none() {
            let sample = self.take_sample();
            self.sample = Some(self.or_note(sample, Vec::new()));
        }
        let rows = self.sample.as_deref().unwrap_or_default();
        let shapes = self.executor.reader.overflow_reader();
        let is_true = |(key, record): &&RowCopy| {
            let row = Row { key: &key.code, spelling: &key.spelling, record };
            evaluator.is_true(&row, shapes.shapes).unwrap_or(false)
        };
        (rows.iter().filter(is_true).count(), rows.len())
    }

    fn probe(&mut self, access: &AccessPath, row_count: u64) -> Probe {
        let rows = self.probe_path(access, row_count);
        let rows = self.or_note(rows, FirstRows::default());
        let probe = rows.probe;
        self.probed = Some((access.clone(), rows));
        probe
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

/// Reads and tests rows until enough were read, or passed.
struct ProbeRows {
    condition: Evaluator,
    row_count: u64,
    wanted: u64,
}

impl Work for ProbeRows {
    type Result = FirstRows;

    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let FirstRows { mut probe, mut keys, mut is_damaged } = FirstRows::default();
        let is_cut = for_each(rows, stop.check(), |row| {
            probe.read += 1;
            match self.condition.is_true(&row, shapes) {
                Ok(true) => {
                    probe.passed += 1;
                    keys.push_key(row.key, row.spelling);
                }
                Ok(false) => {}
                Err(_) => is_damaged = true,
            }
            probe.is_over = is_damaged || probe.passed >= self.wanted;
            if probe.is_over || probe.read >= self.row_count {
                return ControlFlow::Break(Ok(()));
            }
            ControlFlow::Continue(())
        })?;
        probe.is_over |= is_cut.is_none();
        Ok(FirstRows { probe, keys, is_damaged })
    }
}
