//! Estimates the share of rows for which conditions are true, from index ranges, probes and
//! samples.
#![allow(clippy::cast_precision_loss, reason = "rough shares")]

use super::{IndexRange, Planner, cost, probe};
use crate::expression::{Expression, Kind, Node};

impl Planner<'_, '_> {
    /// Notes the share of rows for which conditions are true, as the entries of their index ranges
    /// tell. Several conditions of one index range each get the same share, so that their product
    /// is that of the index range.
    pub(super) fn note_shares(&mut self, index_ranges: &[IndexRange]) {
        for index_range in index_ranges {
            let all = (0..).zip(self.question.conditions);
            let used: Vec<usize> =
                all.filter(|(_, node)| index_range.used.contains(node)).map(|(place, _)| place).collect();
            let share = (index_range.estimate / self.question.row_count.max(1) as f64).min(1.0);
            let is_known = |place: &usize| self.shares.get(*place).is_none_or(Option::is_some);
            if used.len() != 1 && used.iter().any(is_known) {
                continue;
            }
            for place in &used {
                if let Some(known) = self.shares.get_mut(*place) {
                    *known = Some(share.powf(1.0 / used.len() as f64));
                }
            }
        }
    }

    /// The number of rows that pass the conditions that are not implied, of `count` rows. If all
    /// rows are wanted in the order of keys, it is not needed, and `count` is returned. `unknown`
    /// is the share for a condition of which nothing is known.
    pub(super) fn passing(&mut self, count: f64, implied: &[bool], unknown: f64) -> f64 {
        if self.question.wanted == u64::MAX && self.question.order.is_empty() {
            return count;
        }
        let all = (0..).zip(self.question.conditions);
        let left: Vec<(usize, &Node)> =
            all.filter(|(place, _)| !implied.get::<usize>(*place).copied().unwrap_or(false)).collect();
        let known = match left[..] {
            [] => Some(1.0),
            [(place, _)] => self.shares.get(place).copied().flatten(),
            // To assume that the conditions are independent would be a guess. It is far off for a
            // query for one age together with the ages above another one.
            _ => None,
        };
        let known = known
            .or_else(|| self.first_rows_share().filter(|_| left.len() == self.question.conditions.len()));
        let share = match known {
            None if self.may_sample => Some(self.joint(&left)),
            known => known,
        };
        self.is_unsure |= share.is_none();
        count * share.unwrap_or(unknown)
    }

    /// The share of the first rows for which all conditions are true, if enough of them pass for it
    /// not to be chance.
    fn first_rows_share(&self) -> Option<f64> {
        const PASSED_MIN: u64 = 3;
        (self.first_rows.passed >= PASSED_MIN)
            .then(|| self.first_rows.passed as f64 / self.first_rows.read as f64)
    }

    /// The share of rows for which all of these conditions are true.
    fn joint(&mut self, conditions: &[(usize, &Node)]) -> f64 {
        let places: Vec<usize> = conditions.iter().map(|(place, _)| *place).collect();
        if let Some((_, share, _)) = self.joints.iter().find(|(known, ..)| *known == places) {
            return *share;
        }
        let nodes = conditions.iter().map(|(_, node)| Node::clone(node)).collect();
        let whole = match conditions {
            [(_, node)] => Some(Node::clone(node)),
            _ => Expression::new(Kind::all(nodes)).ok(),
        };
        let (count, all) = whole.map_or((0, 1), |node| self.statistics.sample(&node));
        // The share of each single condition tells how often the ones after it are tested.
        for (place, node) in conditions.iter().filter(|_| conditions.len() > 1) {
            if let Some(share @ None) = self.shares.get_mut(*place) {
                let (count, all) = self.statistics.sample(node);
                *share = Some((count as f64).max(0.5) / all.max(1) as f64);
            }
        }
        let share = match count {
            // With few hits the share is lowered, as a small sample may have more hits than usual,
            // and no hit counts as none: reading all rows for nothing is worse than sorting them.
            ..3 => (count as f64 - (count as f64).sqrt() / 2.0) / all.max(1) as f64,
            _ => count as f64 / all as f64,
        };
        self.joints.push((places, share, probe::share_max(count as u64, all as u64)));
        share
    }

    /// What is not known is assumed to have the highest cost: all rows are sorted, or all are read
    /// for nothing.
    pub(super) fn unknown(&self) -> f64 {
        if self.question.order.is_empty() { 0.0 } else { 1.0 }
    }

    /// The cost to test the conditions that are not implied, one after another up to the first that
    /// is false.
    pub(super) fn tests(&self, implied: &[bool]) -> f64 {
        let (mut cost, mut left) = (0.0, 1.0);
        for (place, condition) in self.question.conditions.iter().enumerate() {
            if !implied.get(place).copied().unwrap_or(false) {
                cost += left * cost::test(condition);
                let known = self.shares.get(place).copied().flatten();
                left *= known.unwrap_or_else(|| cost::share_unknown(condition));
            }
        }
        cost
    }
}
