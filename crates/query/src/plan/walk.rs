//! Plans walks along an index that has the order that is asked for.
//!
//! The wanted rows may come soon, or at the very end: how many rows pass says nothing about where
//! they lie. If it is not known that they come soon, the planner probes rows along the index, for
//! no longer than the best path with a known cost would take. If it finds all wanted rows, they are
//! the answer. If not, it drops this path, and only the time of the probe is lost.
#![allow(clippy::cast_precision_loss, reason = "rough numbers of rows")]

use super::cost::Costs;
use super::{AccessPath, Candidate, CostedPath, CountedSection, End, Planner, Section};
use crate::expression::{Expression, Node};

/// If more rows than this are wanted, no index is probed: a probe keeps the keys that it finds.
const WANTED_MAX: u64 = 1000;

impl Planner<'_, '_> {
    /// The path that walks along an index that has the order that is asked for.
    pub(super) fn in_order(&mut self, found: &CountedSection) -> Option<CostedPath> {
        let (question, candidate) = (self.question, self.indexes.get(found.index)?);
        if question.is_cut_by_key {
            return None;
        }
        let is_reverse = is_in_order(candidate, &found.section, question.order)?;
        let settled = found.section.settled.clone();
        let is_covered = self.is_covered(&found.set(), &settled);
        let (count, wanted) = (found.estimate, question.wanted as f64);
        let passing = self.passing(count, &settled, 0.0);
        let share = if wanted < passing { wanted / passing.max(1.0) } else { 1.0 };
        let read = count * share;
        let tests = self.tests(&settled);
        let looked_up = |count: f64| self.costs.walk(count, is_reverse, tests);
        let is_counted = self.is_counted(&settled);
        let to = |count: f64| {
            if is_covered && is_counted {
                Costs::counted(1, count)
            } else if is_covered {
                Costs::told(1, count, candidate.parts.len()) + count * tests
            } else {
                looked_up(count)
            }
        };
        let is_open = wanted < count && settled.iter().any(|is_settled| !is_settled);
        let row_cost = looked_up(count) / count.max(1.0);
        let end = is_open.then(|| End { rows: count, cost: to(count), row_cost });
        let CountedSection { index, section, used, .. } = found.clone();
        let access = AccessPath::IndexOrder { index, section, used, is_reverse };
        Some(CostedPath { access, settled, is_covered, estimate: read, cost: to(read), end })
    }

    /// Probes the best index that has the order, if it is not known whether the wanted rows come
    /// soon. The path is put first if they do; if not, its cost becomes that of a walk to its end.
    pub(super) fn walks_on(&mut self, ways: &mut [CostedPath]) {
        let question = self.question;
        if question.order.is_empty() || question.wanted > WANTED_MAX {
            return;
        }
        let is_open =
            |way: &CostedPath| matches!(way.access, AccessPath::IndexOrder { .. }) && way.end.is_some();
        let Some(place) = ways.iter().position(is_open) else { return };
        let Some(row_count) = self.rows_worth(ways, place) else { return };
        let Some((way, end)) = ways.get_mut(place).and_then(|way| way.end.map(|end| (way, end))) else {
            return;
        };
        let seen = self.statistics.walk(way, row_count);
        if seen.is_over {
            (way.estimate, way.cost) = (seen.looked_at as f64, seen.looked_at as f64 * end.row_cost);
            ways.get_mut(..=place).unwrap_or_default().rotate_right(1);
            return;
        }
        for way in ways.iter_mut() {
            way.cost = way.cost_max();
        }
        ways.sort_by(|one, other| one.cost.total_cmp(&other.cost));
    }
}

/// Whether a section of an index has the order that is asked for. `Some(true)`: if it is read from
/// its end to its begin.
fn is_in_order(candidate: &Candidate, section: &Section, order: &[(Node, bool)]) -> Option<bool> {
    if order.is_empty() || candidate.is_multi_valued() || section.ranges.len() != 1 {
        return None;
    }
    // A part with the same value in all rows does not change their order.
    let same: Vec<&Expression> =
        candidate.parts.iter().take(section.point_count).map(|(part, _)| &**part).collect();
    let mut wanted = order.iter().filter(|(node, _)| !same.contains(&&**node));
    let mut direction = None;
    for (part, is_descending) in candidate.parts.iter().skip(section.point_count) {
        let Some((node, is_wanted_descending)) = wanted.next() else {
            // Rows with equal sort values come in the order of keys, not in the order of the
            // index's further parts.
            return None;
        };
        let is_turned = is_descending != is_wanted_descending;
        if node != part || direction.is_some_and(|direction| direction != is_turned) {
            return None;
        }
        direction = Some(is_turned);
    }
    wanted.next().is_none().then_some(direction.unwrap_or(false))
}
