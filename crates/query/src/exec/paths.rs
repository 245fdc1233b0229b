//! Asks the planner for the access paths to a query's rows.

use pellucid_store::Reader;

use super::probe::{IndexProbe, Probes};
use super::table_index::candidates;
use super::{Executor, threads};
use crate::expression::Node;
use crate::fault::Fault;
use crate::plan::{self, AccessPath, CostedPath, KeySet, Question};
use crate::walk::RowKey;

/// Tables with fewer rows are scanned before a path has been chosen.
pub const ROW_COUNT_MIN: u64 = 100;

/// To look a row up takes about as long as to test so many.
pub(super) const LOOKUP_COST_IN_ROWS: u64 = 24;

/// All access paths to the rows of a query, the best one first.
pub struct AccessPaths {
    /// At least one, mostly the scan.
    pub paths: Vec<CostedPath>,
    /// The keys to which the best path leads, where it was found by having them.
    pub keys: Option<Vec<RowKey>>,
    /// How many rows a probe looked at, where those that are wanted are among these; and how many
    /// these are.
    pub probed: Option<(u64, u64)>,
    /// The probe along an index, of whether what is wanted comes soon.
    pub index_probe: Option<IndexProbe>,
}

impl AccessPaths {
    /// The one path that was found by having the keys to which it leads.
    pub(super) fn found(path: CostedPath, keys: Vec<RowKey>) -> Self {
        Self { paths: vec![path], keys: Some(keys), probed: None, index_probe: None }
    }
}

impl<R: Reader> Executor<'_, R> {
    /// Whether there may be another access path than the scan.
    pub(super) fn may_choose(&self) -> Result<bool, Fault> {
        let asks_for_some = !self.conditions.is_empty() || !self.request.order.is_empty();
        Ok(asks_for_some && !self.indexes.is_empty() && self.row_count()? >= ROW_COUNT_MIN)
    }

    pub(super) fn row_count(&self) -> Result<u64, Fault> {
        Ok(self.reader.count(self.table)?)
    }

    /// How many rows a scan meets.
    pub(super) fn scan_count(&self) -> Result<u64, Fault> {
        if self.is_whole { self.row_count() } else { Ok(self.reader.estimate(self.table, &self.range)?) }
    }

    /// The access paths to the rows; None where there is but the scan.
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
        // All that an order has to choose from are wanted.
        let is_cut = request.after.is_none() || order.is_empty();
        // What is sorted is walked over in parts, whatever becomes of it then; what is cut is not.
        let is_parallel =
            !order.is_empty() || request.is_parallel && request.limit == u64::MAX && request.offset == 0;
        let is_parallel = is_parallel && R::IS_COMMITTED && row_count >= threads::ROW_COUNT_MIN;
        let question = Question {
            conditions: &self.conditions,
            // An index has its order over the whole table.
            order,
            is_cut_by_key: !self.is_whole || request.after.is_some(),
            wanted: if is_cut { request.wanted() } else { u64::MAX },
            reads: request.reads,
            // A transaction may have made some that are not counted.
            knows_none: R::IS_COMMITTED,
            row_count,
            scan_count: self.scan_count()?,
            thread_count: if is_parallel { self.caller.thread_count } else { 1 },
        };
        let mut probes = Probes::new(self, question.wanted);
        let mut paths = plan::access_paths(&question, &candidates, &mut probes);
        let reads_keys = request.reads.is_some_and(|reads| !reads.iter().any(|node| node.reads_record()));
        let found = probes.finish(
            |seen| reads_keys || seen.found * LOOKUP_COST_IN_ROWS <= seen.looked_at,
            request.is_count,
        )?;
        if let (Some(_), Some(best)) = (&found.keys, paths.first_mut()) {
            best.settled.fill(true);
            best.is_covered = reads_keys;
        }
        Ok(Some(AccessPaths {
            paths,
            keys: found.keys,
            probed: found.counts,
            index_probe: found.index_probe,
        }))
    }

    /// The parts of the one index that covers a path; none where there are several, or but the keys
    /// are at hand.
    pub(super) fn covering_parts(&self, paths: &AccessPaths, access: &AccessPath) -> &[(Node, bool)] {
        match access {
            _ if paths.keys.is_some() => &[],
            AccessPath::Keys(KeySet::Section { index, .. }) | AccessPath::IndexOrder { index, .. } => {
                self.indexes.get(*index).map_or(&[], |index| &index.definition.parts)
            }
            AccessPath::Keys(_) | AccessPath::KeyLookup(_) | AccessPath::TableScan => &[],
        }
    }
}
