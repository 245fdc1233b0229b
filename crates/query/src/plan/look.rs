//! Are the rows that are wanted among the first ones?
//!
//! Then a scan has found them before entries are counted. So the first rows are looked at ahead of everything else, as long as that takes less
//! than to count; and once more where the scan is expected to be best, for as long as the next best way would take: rows that lie together may be
//! at the other end of the table, and then no more than that is lost.
#![allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "rough numbers of rows")]

use super::cost::{Costs, LOOK};
use super::{Access, Choice, Planner};

/// Of more than these it is not seen whether they are near.
const WANTED_MAX: u64 = 200;

impl Planner<'_, '_> {
    fn may_look(&self) -> bool {
        let question = self.question;
        question.wanted <= WANTED_MAX && question.order.is_empty() && !question.conditions.is_empty()
    }

    /// How many rows a scan looks at in some time.
    fn rows_in(&self, cost: f64) -> u64 {
        let settled = vec![false; self.question.conditions.len()];
        (cost / Costs::scan_row(self.tests(&settled))) as u64
    }

    /// Whether the first few rows are all that is needed.
    pub(super) fn looks_first(&mut self) -> bool {
        // Of those that are half found the rest is found in about the same time.
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

    /// Whether the rows that a scan meets in the time of the next best way are all that is needed, where the scan is expected to be the best and
    /// nobody knows where the rows lie. If they are not, that way is put first.
    pub(super) fn looks_on(&mut self, ways: &mut [Choice]) -> bool {
        let [best, next, ..] = ways else { return false };
        let whole = self.whole_scan();
        if best.access != Access::Scan || !self.may_look() || next.cost >= whole {
            return false;
        }
        let row_count = self.rows_in(next.cost).saturating_sub(self.seen.looked_at);
        self.seen = self.statistics.look_on(row_count);
        if !self.seen.is_over {
            best.cost = whole;
            ways.sort_by(|one, other| one.cost.total_cmp(&other.cost));
        }
        self.seen.is_over
    }
}
