//! What does the store tell of a table's rows and entries, for a way to be chosen?

use std::ops::{Bound as Edge, ControlFlow};

use pellucid_query::expression::Node;
use pellucid_query::plan::{Access, Choice, Seen, Statistics};
use pellucid_query::walk::for_each;
use pellucid_query::{Evaluator, Fault, RowKey};
use pellucid_record::Shapes;
use pellucid_store::{Range, Reader, Row, TableId};
use pyo3::prelude::*;

use super::indexes::Indexes;
use super::plan::all_of;
use super::reader::{TableReader, read};
use crate::bounds::Bounds;
use crate::errors;
use crate::table::Table;
use crate::work::{Source, Stop, Work, over};

/// What the store tells of a table's rows and entries.
pub struct Known<'a, 'py> {
    table: &'a Bound<'py, Table>,
    place: &'a TableReader,
    indexes: &'a Indexes,
    sample: Option<Vec<(RowKey, Box<[u8]>)>>,
    asked: (&'a Bounds, &'a [Node], u64),
    looked: Looked,
    walked: Option<(Walk, Looked)>,
    failed: PyResult<()>,
}

/// Where a walk along an index has led that was gone to see whether what is wanted comes soon.
#[derive(Clone, Copy)]
pub struct Walk {
    /// Along which one, as ways number them.
    pub index: usize,
    /// From its end on.
    pub is_reverse: bool,
    /// To what.
    pub seen: Seen,
}

/// What is known of the rows that are wanted, where a way was looked at until it had them.
#[derive(Default)]
pub struct Near {
    /// How many rows were looked at, if those that are wanted are among them, and how many these are.
    pub counts: Option<(u64, u64)>,
    /// The keys of these, where that is how they are read soonest, and nothing is damaged.
    pub keys: Option<Vec<RowKey>>,
    /// The walk along an index, whether it has led to them or not.
    pub walk: Option<Walk>,
}

/// What was seen of the first rows.
#[derive(Default)]
struct Looked {
    seen: Seen,
    /// Codes and spellings of the keys of those of which the conditions are true, unless a damaged one is among the rows: whoever reads it meets
    /// it again. One behind the other, with where each ends: mostly nobody wants them.
    found: Vec<u8>,
    ends: Vec<(usize, usize)>,
    is_damaged: bool,
    /// The key of the last row that was looked at.
    last: Option<Vec<u8>>,
}

impl<'a, 'py> Known<'a, 'py> {
    /// Of a table and its indexes.
    pub fn new(
        table: &'a Bound<'py, Table>,
        place: &'a TableReader,
        indexes: &'a Indexes,
        asked: (&'a Bounds, &'a [Node], u64),
    ) -> Self {
        Self {
            table,
            place,
            indexes,
            sample: None,
            asked,
            looked: Looked::default(),
            walked: None,
            failed: Ok(()),
        }
    }

    /// What was found by looking at rows; where they are not counted alone, the keys of those that a scan meets where `are_wanted` says so of how many
    /// there are.
    ///
    /// # Errors
    /// The first failure there was.
    pub fn finish(self, is_count: bool, are_wanted: impl FnOnce(Seen) -> bool) -> PyResult<Near> {
        self.failed?;
        let are_wanted = !is_count && (self.walked.is_some() || are_wanted(self.looked.seen));
        let (walk, looked) = self.walked.map_or((None, self.looked), |(walk, looked)| (Some(walk), looked));
        if !looked.seen.is_over {
            return Ok(Near { walk, ..Near::default() });
        }
        let counts =
            Some((looked.seen.looked_at, looked.seen.found)).filter(|_| !looked.is_damaged || !is_count);
        let keys = (!looked.is_damaged && are_wanted).then(|| looked.into_keys());
        Ok(Near { counts, keys, walk })
    }

    /// Looks at the first rows along an index.
    fn walk_along(&mut self, way: &Choice, row_count: u64) -> PyResult<Seen> {
        let (_, conditions, wanted) = self.asked;
        let Access::Ordered { index, section, is_reverse, .. } = &way.access else {
            return Ok(Seen::default());
        };
        let (Some(ready), Some(range), Some(condition)) =
            (self.indexes.get(*index), section.ranges.first(), all_of(conditions.to_vec())?)
        else {
            return Ok(Seen::default());
        };
        let condition = Evaluator::new(&condition).map_err(|error| errors::value_error(error.to_string()))?;
        // One more, so that it is seen that these are not all.
        let rows =
            self.place.in_order(self.table, ready, (range, *is_reverse), row_count.saturating_add(1))?;
        let work = Look { looked: Looked::default(), condition, row_count, wanted };
        let looked = over(self.table, Source { rows, selection: None }, work)?;
        let seen = looked.seen;
        self.walked = Some((Walk { index: *index, is_reverse: *is_reverse, seen }, looked));
        Ok(seen)
    }

    fn look(&mut self, row_count: u64) -> PyResult<()> {
        let (bounds, conditions, wanted) = self.asked;
        let Some(condition) = all_of(conditions.to_vec())? else { return Ok(()) };
        let condition = Evaluator::new(&condition).map_err(|error| errors::value_error(error.to_string()))?;
        let mut bounds = Bounds { range: bounds.range.clone(), ..*bounds };
        if let Some(last) = &self.looked.last {
            bounds.range.start = Edge::Excluded(last.clone());
            bounds.is_all = false;
        }
        let source = Source { rows: self.place.rows(self.table, &bounds)?, selection: None };
        let looked = std::mem::take(&mut self.looked);
        self.looked = over(self.table, source, Look { looked, condition, row_count, wanted })?;
        Ok(())
    }

    /// What was asked for, or what it is without an answer; the first failure is kept.
    fn or_note<T>(&mut self, found: PyResult<T>, otherwise: T) -> T {
        found.unwrap_or_else(|error| {
            if self.failed.is_ok() {
                self.failed = Err(error);
            }
            otherwise
        })
    }
}

impl Looked {
    fn into_keys(self) -> Vec<RowKey> {
        let mut start = 0;
        let key = |(middle, end): (usize, usize)| {
            let code = self.found.get(start..middle)?.into();
            start = end;
            Some(RowKey { code, spelling: self.found.get(middle..end)?.into() })
        };
        self.ends.into_iter().map_while(key).collect()
    }
}

impl Statistics for Known<'_, '_> {
    fn entries(&mut self, index: usize, range: &Range) -> u64 {
        let id = self.indexes.get(index).map(|ready| ready.info.id);
        let found = self.place.estimate(self.table, id, range);
        self.or_note(found, 0)
    }

    fn first_few(&mut self, index: usize, range: &Range, most: u64) -> u64 {
        let (Some(ready), TableReader::Snapshot(snapshot, _)) = (self.indexes.get(index), self.place) else {
            return most;
        };
        let found = if most == 1 {
            let first = snapshot.with_first(ready.info.id, range, false, |_| ());
            first.map(|first| u64::from(first.is_some()))
        } else {
            snapshot.count_up_to(ready.info.id, range, most)
        };
        let found = found.map_err(|error| errors::of_store(self.table.py(), error));
        self.or_note(found, most)
    }

    fn sample(&mut self, condition: &Node) -> (usize, usize) {
        let Ok(mut evaluator) = Evaluator::new(condition) else { return (0, 0) };
        if self.sample.is_none() {
            let sample = self.place.sample(self.table);
            self.sample = Some(self.or_note(sample, Vec::new()));
        }
        let rows = self.sample.as_deref().unwrap_or_default();
        let names = &*self.table.get().core().names;
        let is_true = |(key, record): &&(RowKey, Box<[u8]>)| {
            let row = Row { key: &key.code, spelling: &key.spelling, record };
            evaluator.is_true(&row, names).unwrap_or(false)
        };
        (rows.iter().filter(is_true).count(), rows.len())
    }

    fn look_on(&mut self, row_count: u64) -> Seen {
        if !self.looked.seen.is_over {
            let looked = self.look(row_count);
            self.or_note(looked, ());
        }
        self.looked.seen
    }

    fn walk(&mut self, way: &Choice, row_count: u64) -> Seen {
        let walked = self.walk_along(way, row_count);
        self.or_note(walked, Seen::default())
    }
}

/// Looks at so many rows more.
struct Look {
    looked: Looked,
    condition: Evaluator,
    row_count: u64,
    wanted: u64,
}

impl Work for Look {
    type Result = Looked;

    fn run<S: Shapes>(
        mut self,
        rows: &mut impl pellucid_query::Walk,
        shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        let Looked { seen, found, ends, is_damaged, last } = &mut self.looked;
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
        Ok(self.looked)
    }
}

impl TableReader {
    /// How many rows the table has.
    pub fn count(&self, table: &Bound<'_, Table>) -> PyResult<u64> {
        read!(self, table, |rows, id| rows.count(id))
    }

    /// How many rows are in a range of the table, or entries in one of an index, roughly.
    pub fn estimate(&self, table: &Bound<'_, Table>, index: Option<TableId>, range: &Range) -> PyResult<u64> {
        read!(self, table, |rows, id| Reader::estimate(rows, index.unwrap_or(id), range))
    }

    /// Some rows from all over the table. In a transaction, as they were before it.
    fn sample(&self, table: &Bound<'_, Table>) -> PyResult<Vec<(RowKey, Box<[u8]>)>> {
        const PARTS: usize = 16;
        const ROWS_EACH: usize = 8;
        read!(self, table, |rows, id| {
            let mut sample = Vec::new();
            let parts = rows.committed()?.scan(id, &Range::ALL, false)?.parts(PARTS)?;
            let each = PARTS * ROWS_EACH / parts.len().max(1);
            for mut part in parts {
                for _ in 0..each {
                    let Some(row) = part.next()? else { break };
                    sample.push((RowKey::new(row.key, row.spelling), row.record.into()));
                }
            }
            Ok(sample)
        })
    }
}
