//! Finds the access paths to a query's rows: short ones at once, all others by the planner.
//!
//! Following a path to one or two entries takes less time than estimating how many there are.
//! Looking up a few keys takes less than weighing other access paths.

use pellucid_store::Reader;

use super::entries::Reading;
use super::probe::RowStatistics;
use super::table_index::{TableIndex, candidates};
use super::{Executor, has_decimals};
use crate::covered_rows::CoveredRows;
use crate::covering::over_entries;
use crate::expression::{Comparison, Kind, Node};
use crate::fault::Fault;
use crate::key_range;
use crate::plan::code_ranges::operand;
use crate::plan::{
    self, AccessPath, Candidate, CostedPath, IndexRange, Probe, Question, index_range, is_in_order,
};
use crate::walk::LOOKUP_COUNT_MIN;

/// A table with fewer rows is scanned in less time than a path is chosen.
pub const ROW_COUNT_MIN: u64 = 100;

/// Looking one row up takes about as long as testing this many rows.
pub(super) const LOOKUP_COST_IN_ROWS: u64 = 24;

/// Up to this many keys are looked up in a tenth of a millisecond, before other paths are weighed.
const KEY_COUNT_SHORT: u64 = 64;

/// Up to this many first rows that an index has in the order that is asked for are read at once: no
/// path reaches them by fewer.
const WALK_COUNT_SHORT: u64 = 256;

/// All access paths to the rows of a query, the best one first.
pub struct AccessPaths {
    /// At least one path, mostly the scan.
    pub paths: Vec<CostedPath>,
    /// The keys to which the best path leads, if it was followed to find that out.
    pub keys: Option<CoveredRows>,
    /// The last path that was probed, and what the probe has found. If it has found all wanted
    /// rows, the path is the best one.
    pub probe: Option<(AccessPath, Probe)>,
}

impl AccessPaths {
    /// The probe that found all wanted rows, if one did.
    #[must_use]
    pub fn finished_probe(&self) -> Option<Probe> {
        self.probe.as_ref().map(|(_, probe)| *probe).filter(|probe| probe.is_over)
    }
}

impl<R: Reader> Executor<'_, R> {
    /// Whether there may be another access path than the scan.
    pub(super) fn may_choose(&self) -> Result<bool, Fault> {
        let asks_for_some = !self.conditions.is_empty() || !self.request.order.is_empty();
        Ok(asks_for_some && !self.indexes.is_empty() && self.row_count()? >= ROW_COUNT_MIN)
    }

    fn row_count(&self) -> Result<u64, Fault> {
        Ok(self.reader.count(self.table)?)
    }

    /// The number of rows that a scan reads.
    fn scan_count(&self) -> Result<u64, Fault> {
        if self.is_whole { self.row_count() } else { Ok(self.reader.estimate(self.table, &self.range)?) }
    }

    /// The access paths to the rows. None if there is only the scan.
    ///
    /// # Errors
    /// Damage, or a stop.
    pub fn paths(&self) -> Result<Option<AccessPaths>, Fault> {
        match self.short_path()? {
            None => self.plan(),
            short => Ok(short),
        }
    }

    /// The path that is followed without planning, with the keys to which it leads: an index range
    /// of an index all of whose parts equal a value, if it has one or two entries, or if its first
    /// few are all that is wanted; or the keys that a condition names, if they are few; or the
    /// first rows in the order of an index.
    ///
    /// # Errors
    /// Damage.
    pub fn short_path(&self) -> Result<Option<AccessPaths>, Fault> {
        for (place, index) in self.indexes.iter().enumerate() {
            if is_equal(&index.candidate, &self.conditions)
                && let Some(found) = self.short_index_range(place, index)?
            {
                return Ok(Some(found));
            }
        }
        match self.short_walk()? {
            None => self.key_lookup(),
            short => Ok(short),
        }
    }

    /// The walk along an index to its first rows in a range, if the index has the order that is
    /// asked for, and all conditions are true for each row of the range: the front of a queue.
    fn short_walk(&self) -> Result<Option<AccessPaths>, Fault> {
        let request = self.request;
        let is_short = request.wanted() <= WALK_COUNT_SHORT && request.after.is_none() && !request.is_count;
        if request.order.is_empty() || !is_short || !self.is_whole || self.row_count()? < ROW_COUNT_MIN {
            return Ok(None);
        }
        for (place, index) in self.indexes.iter().enumerate() {
            if !index.candidate.is_named(&[], request.order) {
                continue;
            }
            let entries = self.reader.count(index.info.id)?;
            let candidate = Candidate { entries, ..index.candidate.clone() };
            let index_range = index_range(&candidate, &self.conditions, self.row_count()?);
            let Some(index_range) =
                index_range.filter(|index_range| index_range.implied.iter().all(|is_implied| *is_implied))
            else {
                continue;
            };
            let Some(is_reverse) = is_in_order(&candidate, &index_range, request.order) else { continue };
            let is_covered = request
                .reads
                .is_some_and(|reads| reads.iter().all(|node| over_entries(&candidate.parts, node).is_some()));
            if is_covered && is_reverse {
                // Entries with the same parts are read to the last of them.
                continue;
            }
            let implied = index_range.implied.clone();
            let index_range = IndexRange { index: place, ..index_range };
            let access = AccessPath::OrderedWalk { index_range, is_reverse };
            let count = request.wanted().min(entries) as usize;
            let path = CostedPath { is_covered, ..CostedPath::known(access, implied, count) };
            return Ok(Some(AccessPaths { paths: vec![path], keys: None, probe: None }));
        }
        Ok(None)
    }

    fn short_index_range(&self, place: usize, index: &TableIndex) -> Result<Option<AccessPaths>, Fault> {
        let (request, part_count) = (self.request, index.candidate.parts.len());
        let index_range = index_range(&index.candidate, &self.conditions, u64::MAX);
        let Some(index_range) = index_range.filter(|index_range| index_range.point_count == part_count)
        else {
            return Ok(None);
        };
        // The first entries are those of the first rows.
        let is_plain = request.order.is_empty() && index_range.implied.iter().all(|is_implied| *is_implied);
        let wanted = match index.candidate.is_unique {
            true => 1,
            false if is_plain => request.wanted(),
            false => u64::MAX,
        };
        let mut index_range = IndexRange { index: place, ..index_range };
        let is_few = is_plain && (3..=WALK_COUNT_SHORT).contains(&wanted);
        let reading = if is_few { Reading::keys(wanted) } else { Reading::few_keys(wanted) };
        let Some(keys) = self.read_index_range(&index_range, reading)? else { return Ok(None) };
        index_range.estimate = f64::from(keys.len() as u32);
        let implied = index_range.implied.clone();
        Ok(Some(self.known(AccessPath::IndexRange(index_range), implied, keys)))
    }

    /// The path to the rows under the keys that a condition names.
    fn key_lookup(&self) -> Result<Option<AccessPaths>, Fault> {
        if !self.conditions.iter().any(|node| node.reads_key()) || self.row_count()? < ROW_COUNT_MIN {
            return Ok(None);
        }
        let count_max = (self.scan_count()? / LOOKUP_COST_IN_ROWS).min(KEY_COUNT_SHORT) as usize;
        let has_decimals = has_decimals(self.reader, self.table)?;
        let codes_of = |(place, node): (usize, &Node)| {
            let codes = key_range::named(node, count_max, has_decimals)?;
            Some((place, node.clone(), codes))
        };
        let named = self.conditions.iter().enumerate().filter_map(codes_of);
        let Some((used, condition, codes)) = named.min_by_key(|(.., codes)| codes.len()) else {
            return Ok(None);
        };
        let mut keys = CoveredRows::default();
        for code in codes.iter().filter(|code| self.range.contains(code)) {
            if let Some(cell) = self.reader.get(self.table, code)? {
                keys.push_key(code, cell.spelling);
            }
        }
        if let Some(meter) = &self.request.meter {
            meter.add_entries(keys.len() as u64);
        }
        // A key for which the condition is false has another code, as for a range of keys. So the
        // condition needs no test.
        let implied = (0..self.conditions.len()).map(|place| place == used).collect();
        Ok(Some(self.known(AccessPath::KeyLookup(condition), implied, keys)))
    }

    /// The only path, which was followed already.
    fn known(&self, access: AccessPath, implied: Vec<bool>, keys: CoveredRows) -> AccessPaths {
        let mut path = CostedPath::known(access, implied, keys.len());
        let is_plain = self.request.order.is_empty() && path.implied.iter().all(|is_implied| *is_implied);
        path.is_covered = is_plain && self.request.reads_keys();
        AccessPaths { paths: vec![path], keys: Some(keys), probe: None }
    }

    /// The access paths to the rows, by the planner. None if there is only the scan.
    ///
    /// # Errors
    /// Damage, or a stop.
    pub fn plan(&self) -> Result<Option<AccessPaths>, Fault> {
        if !self.may_choose()? {
            return Ok(None);
        }
        let request = self.request;
        let (order, row_count) = (request.order, self.row_count()?);
        let candidates = candidates(self.reader, self.indexes, (&self.conditions, order))?;
        // If the page begins after a row, a sort needs all rows to choose from.
        let is_cut = request.after.is_none() || order.is_empty();
        // Rows that are sorted are walked over in parts, whatever is done with them then. Rows that
        // are cut by an offset or a limit are not.
        let is_parallel =
            !order.is_empty() || request.is_parallel && request.limit == u64::MAX && request.offset == 0;
        let is_parallel = is_parallel && R::IS_COMMITTED && row_count >= LOOKUP_COUNT_MIN;
        let question = Question {
            conditions: &self.conditions,
            // An index has its order over the whole table.
            order,
            is_cut_by_key: !self.is_whole || request.after.is_some(),
            wanted: if is_cut { request.wanted() } else { u64::MAX },
            reads: request.reads,
            // A transaction may have made entries that are not counted.
            knows_none: R::IS_COMMITTED,
            row_count,
            scan_count: self.scan_count()?,
            thread_count: if is_parallel { self.caller.thread_count } else { 1 },
        };
        let mut statistics = RowStatistics::new(self, question.wanted);
        let paths = plan::access_paths(&question, &candidates, &mut statistics);
        statistics.finish(paths).map(Some)
    }
}

/// Whether the conditions say for each part which value it equals.
fn is_equal(candidate: &Candidate, conditions: &[Node]) -> bool {
    let equals = |part: &Node, condition: &Node| {
        matches!(condition.kind(), Kind::Compare(Comparison::Equal, ..) | Kind::IsNone(_))
            && operand(condition).is_some_and(|operand| *operand == **part)
    };
    candidate.parts.iter().all(|(part, _)| conditions.iter().any(|condition| equals(part, condition)))
}
