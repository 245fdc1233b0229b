//! Makes the access paths of a query, each with its expected cost.
#![allow(clippy::cast_precision_loss, reason = "rough costs")]

use super::cost::Costs;
use super::{AccessPath, Candidate, CostedPath, End, IndexRange, KEY_COUNT_MAX, Planner};
use crate::covering::over_entries;
use crate::expression::{Expression, Node};

impl Planner<'_, '_> {
    /// The scan.
    pub(super) fn scan(&mut self) -> CostedPath {
        let (question, first_rows) = (self.question, self.first_rows);
        let implied = vec![false; question.conditions.len()];
        let tests = self.tests(&implied);
        let all = if first_rows.is_over { first_rows.read } else { question.scan_count } as f64;
        let (mut cost, mut end) = (self.costs.scan(all, tests), None);
        if !first_rows.is_over {
            let wanted = question.wanted as f64;
            let passing = self.passing(all, &implied, self.unknown());
            if question.order.is_empty() {
                end = (wanted < all).then_some(End { rows: all, cost, row_cost: Costs::scan_row(tests) });
                // The walk ends with the last wanted row.
                if wanted < passing {
                    cost *= wanted / passing.max(1.0);
                }
            } else {
                cost += Costs::sort(passing, wanted);
                if question.reads.is_none_or(|reads| !reads.is_empty()) {
                    cost += self.costs.fetch(passing.min(wanted), false, 0.0);
                }
            }
        }
        CostedPath { access: AccessPath::TableScan, implied, is_covered: false, estimate: all, cost, end }
    }

    /// The path that gathers the keys of index ranges. None for a whole index, which has all rows
    /// and saves nothing, unless it is partial; and if there are too many keys.
    pub(super) fn by_keys(&mut self, access: AccessPath, implied: &[bool]) -> Option<CostedPath> {
        let question = self.question;
        let access = self.with_wanted_entries(access, implied);
        let index_range = access.index_range();
        if index_range
            .is_some_and(|index_range| index_range.is_whole() && !self.is_partial(index_range.index))
        {
            return None;
        }
        let is_covered = self.is_covered(index_range, implied);
        let is_counted = index_range.is_some() && self.is_counted(implied);
        let (count, mut cost) = match &access {
            AccessPath::IndexRange(index_range) if is_covered => {
                (index_range.estimate, self.covered(index_range, is_counted))
            }
            _ => self.gather(&access),
        };
        let (mut fetched, wanted) = (count, question.wanted as f64);
        let passing = self.passing(count, implied, self.unknown());
        if question.order.is_empty() && wanted < passing {
            fetched = count * wanted / passing.max(1.0);
        }
        if !is_counted && fetched > KEY_COUNT_MAX as f64 {
            return None;
        }
        if is_covered {
            cost += count * self.tests(implied) + Costs::sort_covered(question.order.len(), passing, wanted);
        } else {
            cost += self.costs.fetch(fetched, true, self.tests(implied));
            if !question.order.is_empty() {
                cost += Costs::sort(passing, wanted) + self.costs.fetch(passing.min(wanted), false, 0.0);
            }
        }
        Some(CostedPath { access, implied: implied.to_vec(), is_covered, estimate: count, cost, end: None })
    }

    /// The path, expected to read no more entries than there are wanted rows, if these come first.
    fn with_wanted_entries(&self, mut access: AccessPath, implied: &[bool]) -> AccessPath {
        let wanted = self.question.wanted as f64;
        if let AccessPath::IndexRange(index_range) = &mut access
            && self.question.order.is_empty()
            && !self.question.is_cut_by_key
            && implied.iter().all(|is_implied| *is_implied)
            && index_range.is_in_key_order(self.part_count(index_range))
        {
            index_range.estimate = index_range.estimate.min(wanted);
        }
        access
    }

    /// The path that walks along an index that has the order that is asked for. The wanted rows may
    /// come soon, or at the very end: how many rows pass says nothing about where they lie.
    pub(super) fn ordered_walk(&mut self, index_range: &IndexRange) -> Option<CostedPath> {
        let (question, candidate) = (self.question, self.indexes.get(index_range.index)?);
        if question.is_cut_by_key {
            return None;
        }
        let is_reverse = is_in_order(candidate, index_range, question.order)?;
        let implied = index_range.implied.clone();
        let is_covered = self.is_covered(Some(index_range), &implied);
        let (count, wanted) = (index_range.estimate, question.wanted as f64);
        let passing = self.passing(count, &implied, 0.0);
        let read = if wanted < passing { count * wanted / passing.max(1.0) } else { count };
        let tests = self.tests(&implied);
        let is_counted = self.is_counted(&implied);
        let cost_of = |count: f64| {
            if is_covered {
                let part = IndexRange { estimate: count, ..index_range.clone() };
                self.covered(&part, is_counted) + count * tests
            } else {
                self.costs.walk(count, is_reverse, tests)
            }
        };
        let is_open = wanted < count && implied.iter().any(|is_implied| !is_implied);
        let row_cost = self.costs.walk(count, is_reverse, tests) / count.max(1.0);
        let end = is_open.then(|| End { rows: count, cost: cost_of(count), row_cost });
        let cost = cost_of(read);
        let access = AccessPath::OrderedWalk { index_range: index_range.clone(), is_reverse };
        Some(CostedPath { access, implied, is_covered, estimate: read, cost, end })
    }

    /// The path that intersects the keys of two or three index ranges.
    pub(super) fn intersection(&mut self, index_ranges: &[IndexRange]) -> Option<CostedPath> {
        const COUNT_MAX: usize = 3;
        let mut index_ranges: Vec<&IndexRange> =
            index_ranges.iter().filter(|index_range| !index_range.is_whole()).collect();
        index_ranges.sort_by(|one, other| one.estimate.total_cmp(&other.estimate));
        let (mut taken, mut implied) = (Vec::new(), vec![false; self.question.conditions.len()]);
        let mut best: Option<CostedPath> = None;
        for index_range in index_ranges {
            // An index range that implies no further condition only takes time.
            let is_new = |(known, new): (&bool, &bool)| *new && !*known;
            if !taken.is_empty() && !implied.iter().zip(&index_range.implied).any(is_new) {
                continue;
            }
            for (known, new) in implied.iter_mut().zip(&index_range.implied) {
                *known |= new;
            }
            taken.push(index_range.clone());
            if taken.len() > 1 {
                let choice = self.by_keys(AccessPath::Intersection(taken.clone()), &implied)?;
                if best.as_ref().is_some_and(|best| best.cost <= choice.cost) {
                    break;
                }
                best = Some(choice);
            }
            if taken.len() == COUNT_MAX {
                break;
            }
        }
        best
    }

    /// Whether the query reads nothing but keys, or only fields that the entries of the path's one
    /// index range have.
    fn is_covered(&self, index_range: Option<&IndexRange>, implied: &[bool]) -> bool {
        let Some(reads) = self.question.reads else { return false };
        let tested = self.question.conditions.iter().zip(implied).filter(|(_, is_implied)| !**is_implied);
        let ordered = self.question.order.iter().map(|(node, _)| node);
        let mut others = tested.map(|(condition, _)| condition).chain(ordered);
        match index_range {
            Some(index_range) => self.indexes.get(index_range.index).is_some_and(|candidate| {
                reads.iter().chain(others).all(|node| over_entries(&candidate.parts, node).is_some())
            }),
            None => others.next().is_none() && !reads.iter().any(|node| node.reads_record()),
        }
    }

    /// Whether entries are only counted: the query reads nothing but keys, and no condition is left
    /// to test.
    fn is_counted(&self, implied: &[bool]) -> bool {
        self.question.reads.is_some_and(<[Node]>::is_empty) && implied.iter().all(|is_implied| *is_implied)
    }

    fn part_count(&self, index_range: &IndexRange) -> usize {
        self.indexes.get(index_range.index).map_or(0, |candidate| candidate.parts.len())
    }

    /// The cost to read, or to count, the entries in a range of a covering index.
    fn covered(&self, index_range: &IndexRange, is_counted: bool) -> f64 {
        let (range_count, count) = (index_range.ranges.len(), index_range.estimate);
        if is_counted {
            self.costs.counted(range_count, count)
        } else {
            self.costs.covered(range_count, count, self.part_count(index_range))
        }
    }

    /// The number of keys to which a path leads, and the cost to gather and sort them.
    fn gather(&self, access: &AccessPath) -> (f64, f64) {
        let of_index_range = |index_range: &IndexRange| {
            let (count, read) =
                (index_range.estimate, self.costs.entries(index_range.ranges.len(), index_range.estimate));
            let is_sorted = index_range.is_in_key_order(self.part_count(index_range));
            (count, if is_sorted { read } else { read + self.costs.keys_in_order(count) })
        };
        match access {
            AccessPath::IndexRange(index_range) | AccessPath::OrderedWalk { index_range, .. } => {
                of_index_range(index_range)
            }
            AccessPath::Intersection(index_ranges) => {
                let all = self.question.row_count.max(1) as f64;
                index_ranges
                    .iter()
                    .map(of_index_range)
                    .fold((all, 0.0), |(count, cost), (more, gathered)| (count * more / all, cost + gathered))
            }
            AccessPath::Union(index_ranges) => {
                let (count, cost) = index_ranges
                    .iter()
                    .map(of_index_range)
                    .fold((0.0, 0.0), |(count, cost), (more, gathered)| (count + more, cost + gathered));
                (count, cost + self.costs.keys_in_order(count))
            }
            AccessPath::TableScan | AccessPath::KeyLookup(_) => (0.0, 0.0),
        }
    }
}

/// Whether a range of an index has the order that is asked for. `Some(true)`: if it is read from
/// its end to its begin.
#[must_use]
pub fn is_in_order(candidate: &Candidate, index_range: &IndexRange, order: &[(Node, bool)]) -> Option<bool> {
    if order.is_empty() || candidate.is_multi_valued() || index_range.ranges.len() != 1 {
        return None;
    }
    // A part with the same value in all rows does not change their order.
    let same: Vec<&Expression> =
        candidate.parts.iter().take(index_range.point_count).map(|(part, _)| &**part).collect();
    let mut wanted = order.iter().filter(|(node, _)| !same.contains(&&**node));
    let mut direction = None;
    for (part, is_descending) in candidate.parts.iter().skip(index_range.point_count) {
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
