//! Asks the planner for the access paths to a query's rows.

use pellucid_store::Reader;

use super::probe::{IndexProbe, Probes};
use super::table_index::candidates;
use super::{Executor, threads};
use crate::expression::Node;
use crate::fault::Fault;
use crate::plan::{self, AccessPath, CostedPath, KeySet, Question};
use crate::walk::RowKey;

/// A table with fewer rows is scanned in less time than a path is chosen.
pub const ROW_COUNT_MIN: u64 = 100;

/// Looking one row up takes about as long as testing this many rows.
pub(super) const LOOKUP_COST_IN_ROWS: u64 = 24;

/// All access paths to the rows of a query, the best one first.
pub struct AccessPaths {
    /// At least one path, mostly the scan.
    pub paths: Vec<CostedPath>,
    /// The keys that the best path leads to, if they were gathered to find the path.
    pub keys: Option<Vec<RowKey>>,
    /// If a probe found all wanted rows: the number of rows that it read, and the number that it
    /// found.
    pub probed: Option<(u64, u64)>,
    /// The probe along an index, which looked whether the wanted rows come soon.
    pub index_probe: Option<IndexProbe>,
}

impl AccessPaths {
    /// The only path, with its keys, if gathering them found the path.
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

    /// The number of rows that a scan reads.
    pub(super) fn scan_count(&self) -> Result<u64, Fault> {
        if self.is_whole { self.row_count() } else { Ok(self.reader.estimate(self.table, &self.range)?) }
    }

    /// The access paths to the rows. None if there is only the scan.
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
        let is_parallel = is_parallel && R::IS_COMMITTED && row_count >= threads::ROW_COUNT_MIN;
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

    /// The parts of the index that covers a path. None of them if the path uses several indexes, or
    /// if only keys are known.
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
