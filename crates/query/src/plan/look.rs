//! Probes the first rows of a scan, where these may be all rows that are wanted.
//!
//! In that case a scan finds them before entries are counted. So the planner probes the first rows
//! before everything else, for as long as counting would take. It probes once more for as long as
//! the next best path would take: the rows may lie together at the other end of the table, and then
//! only that time is lost. (`walk.rs` does the same along an index.)
#![allow(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "rough numbers of rows"
)]

use super::cost::{Costs, LOOK};
use super::{AccessPath, CostedPath, Planner};

/// If more rows than this are wanted, the first rows are not probed.
const WANTED_MAX: u64 = 200;

impl Planner<'_, '_> {
    fn may_look(&self) -> bool {
        let question = self.question;
        question.wanted <= WANTED_MAX && question.order.is_empty() && !question.conditions.is_empty()
    }

    /// The number of rows that a scan reads in this time.
    fn rows_in(&self, cost: f64) -> u64 {
        let settled = vec![false; self.question.conditions.len()];
        (cost / Costs::scan_row(self.tests(&settled))) as u64
    }

    /// Probes the first few rows, and tells whether they are all that is needed.
    pub(super) fn looks_first(&mut self) -> bool {
        // If half of the wanted rows are found, the rest is found in about the same time.
        const STEPS: usize = 3;
        if !self.may_look() {
            return false;
        }
        let wanted = self.question.wanted;
        let mut row_count = self.rows_in(LOOK) + 2 * wanted;
        for _ in 0..STEPS {
            self.seen = self.statistics.look_on(row_count);
            if self.seen.is_over || self.seen.found < wanted.div_ceil(2).max(1) {
                break;
            }
            row_count = self.seen.looked_at;
        }
        self.seen.is_over
    }

    /// Probes as many rows of the scan as it reads in the time of the next best path, where it is
    /// not known where the wanted rows lie. Tells whether these rows are all that is needed. If
    /// they are not, the scan's cost becomes that of a scan to its end.
    pub(super) fn looks_on(&mut self, ways: &mut [CostedPath]) -> bool {
        let Some(place) = ways.iter().position(|way| way.access == AccessPath::TableScan) else {
            return false;
        };
        if !self.may_look() {
            return false;
        }
        if let Some(row_count) = self.rows_worth(ways, place) {
            self.seen = self.statistics.look_on(row_count.saturating_sub(self.seen.looked_at));
        }
        if !self.seen.is_over {
            if let Some(scan) = ways.get_mut(place) {
                scan.cost = scan.cost_max();
            }
            ways.sort_by(|one, other| one.cost.total_cmp(&other.cost));
        }
        self.seen.is_over
    }

    /// The number of rows worth probing on a path that may end early: as many as it reads in the
    /// time of the best path with a known cost, or in less time if this path is not expected to be
    /// the best. None if this path cannot cost more than that one, or if so few rows are hardly all
    /// that is wanted.
    pub(super) fn rows_worth(&self, ways: &[CostedPath], place: usize) -> Option<u64> {
        // A probe of a path that is not expected to be the best mostly fails, so it gets less time.
        const DOUBTED: f64 = 0.6;
        let way = ways.get(place)?;
        let end = way.end?;
        // How many rows a scan would have to sort is not known, so sorting is not counted.
        let settled = vec![false; self.question.conditions.len()];
        let scan = self.costs.scan(self.question.scan_count as f64, self.tests(&settled));
        let sure = ways.iter().map(CostedPath::cost_max).fold(scan, f64::min);
        if end.cost <= sure {
            return None;
        }
        let time = if place == 0 { sure } else { sure * DOUBTED };
        let rows = time / end.row_cost;
        // `expected`: at most this many rows are expected to pass. `wanted`: the wanted number,
        // lowered so far that it is missed only one time in twenty.
        let expected = rows * self.share_max(way, end.rows);
        let wanted = ((self.question.wanted as f64).sqrt() - 1.0).powi(2) + 0.05;
        (expected >= wanted).then_some(rows as u64)
    }

    /// The largest likely share of the rows on a path for which all conditions are true, from what
    /// sections, a sample and the first rows tell.
    fn share_max(&self, way: &CostedPath, row_count: f64) -> f64 {
        let mut share = (self.least / row_count.max(1.0)).min(1.0);
        let left = (0..).zip(&way.settled).filter(|(_, is_settled)| !**is_settled);
        let left: Vec<usize> = left.map(|(place, _)| place).collect();
        if let Some((.., most)) = self.joints.iter().find(|(places, ..)| *places == left) {
            share = share.min(*most);
        }
        if self.seen.looked_at > 0 {
            share = share.min(share_max(self.seen.found, self.seen.looked_at));
        }
        share
    }
}

/// The largest likely share of all rows for which a condition is true, if it is true for `found` of
/// `looked_at` rows. It is exceeded about one time in twenty.
pub(super) fn share_max(found: u64, looked_at: u64) -> f64 {
    (found as f64 + 2.0 * (found as f64 + 1.0).sqrt()) / looked_at.max(1) as f64
}
