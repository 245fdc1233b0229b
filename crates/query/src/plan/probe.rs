//! Probes an access path that may end early: follows it for a bounded time.
//!
//! The wanted rows may come soon, or at the very end: how many rows pass says nothing about where
//! they lie. If a probe finds all wanted rows, they are the answer. If not, the planner takes the
//! best path that is sure to end, and only the time of the probe is lost.
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "rough numbers of rows"
)]

use super::cost::{COUNT_TWO, Costs};
use super::{AccessPath, CostedPath, Planner, sort_by_cost};

/// If more rows than this are wanted, no path is probed: a probe keeps the keys that it finds.
const WANTED_MAX: u64 = 1000;

impl Planner<'_, '_> {
    /// Probes the first rows of the table, before entries are counted, for as long as that would
    /// take. Tells whether they are all that is needed.
    pub(super) fn probe_first_rows(&mut self) -> bool {
        let question = self.question;
        let row_count = (COUNT_TWO / Costs::scan_row(self.tests(&[]))) as u64;
        if question.order.is_empty() && !question.conditions.is_empty() && question.wanted <= row_count {
            self.first_rows = self.statistics.probe(&AccessPath::TableScan, row_count);
        }
        self.first_rows.is_over
    }

    /// Probes the best path that may end early, for no longer than the best sure path takes. The
    /// path is put first if it ends by then; if not, its cost becomes that of following it to its
    /// end.
    pub(super) fn probe_open_path(&mut self, paths: &mut [CostedPath]) {
        let open = paths.iter().enumerate().find_map(|(place, path)| Some((place, path, path.end?)));
        let Some((place, path, end)) = open.filter(|_| self.question.wanted <= WANTED_MAX) else { return };
        if let Some(row_count) = self.rows_worth(paths, place) {
            let probe = self.statistics.probe(&path.access, row_count);
            if probe.is_over
                && let Some(until) = paths.get_mut(..=place)
            {
                until.rotate_right(1);
                if let Some(path) = until.first_mut() {
                    (path.estimate, path.cost) = (probe.read as f64, probe.read as f64 * end.row_cost);
                }
                return;
            }
        }
        for path in paths.iter_mut() {
            path.cost = path.cost_max();
        }
        sort_by_cost(paths);
    }

    /// The number of rows worth probing: as many as the path reads in the time of the best sure
    /// path, or in less time if this path is not expected to be the best. None if this path cannot
    /// cost more than that one, or if as few rows are hardly all that is wanted.
    fn rows_worth(&self, paths: &[CostedPath], place: usize) -> Option<u64> {
        // A probe of a path that is not expected to be the best mostly fails, so it gets less time.
        const DOUBTED: f64 = 0.6;
        let path = paths.get(place)?;
        let end = path.end?;
        // How many rows a scan would have to sort is not known, so sorting is not counted.
        let scan = self.costs.scan(self.question.scan_count as f64, self.tests(&[]));
        let sure = paths.iter().map(CostedPath::cost_max).fold(scan, f64::min);
        if end.cost <= sure {
            return None;
        }
        let time = if place == 0 { sure } else { sure * DOUBTED };
        let rows = time / end.row_cost;
        // `expected`: at most this many rows are expected to pass. `wanted`: the wanted number,
        // lowered so far that it is missed only one time in twenty.
        let expected = rows * self.likely_share(path, end.rows);
        let wanted = ((self.question.wanted as f64).sqrt() - 1.0).powi(2) + 0.05;
        (expected >= wanted).then_some(rows as u64)
    }

    /// The largest likely share of the rows on a path for which all conditions are true, from what
    /// index ranges, a sample and the first rows tell.
    fn likely_share(&self, path: &CostedPath, row_count: f64) -> f64 {
        let mut share = (self.least / row_count.max(1.0)).min(1.0);
        let left = (0..).zip(&path.implied).filter(|(_, is_implied)| !**is_implied);
        let left: Vec<usize> = left.map(|(place, _)| place).collect();
        if let Some((.., most)) = self.joints.iter().find(|(places, ..)| *places == left) {
            share = share.min(*most);
        }
        if self.first_rows.read > 0 {
            share = share.min(share_max(self.first_rows.passed, self.first_rows.read));
        }
        share
    }
}

/// The largest likely share of all rows for which a condition is true, if it is true for `passed`
/// of `read` rows. It is exceeded about one time in twenty.
pub(super) fn share_max(passed: u64, read: u64) -> f64 {
    (passed as f64 + 2.0 * (passed as f64 + 1.0).sqrt()) / read.max(1) as f64
}
