//! Finds the ranges of indexes that the conditions leave, and counts their entries.
//!
//! Each count takes some microseconds, so the planner makes only counts that can change its choice.
//! Index ranges come first that are narrowest by their bounds. An index range with no more than a
//! few entries decides the choice, so the planner looks for one before it counts the others. It
//! keeps every count, because the branches of an `or` share the other conditions.
#![allow(clippy::cast_precision_loss, reason = "rough numbers of entries")]

use std::ops::Bound;

use pellucid_store::Range;

use super::{Candidate, IndexRange, Planner, index_range};
use crate::expression::{Kind, Node};
use crate::key_range;

/// An index range with at most this many entries is used at once: to look these rows up takes less
/// time than to count the entries of other indexes. `SHORT_COVERED` applies where an index may
/// cover the query.
const SHORT: u64 = 12;
const SHORT_COVERED: u64 = 4;

/// Some ranges of an index that were counted: those of them that have entries, and how many.
pub(super) struct Counted {
    index: usize,
    ranges: Vec<Range>,
    filled: Vec<Range>,
    count: u64,
}

impl Planner<'_, '_> {
    /// Whether to look up this many rows takes less time than to count entries of other indexes.
    pub(super) fn is_short(&self, estimate: f64) -> bool {
        estimate <= self.short_max() as f64
    }

    fn short_max(&self) -> u64 {
        if self.question.reads.is_none() { SHORT } else { SHORT_COVERED }
    }

    /// The usable index range of each index, not counted yet. Those come first that are counted
    /// soonest, and then those that are narrowest by their bounds.
    pub(super) fn index_ranges(&self, conditions: &[Node]) -> Vec<IndexRange> {
        // A number has two ranges: one among numbers, and one among Decimals.
        const RANGE_COUNT_USUAL: usize = 2;
        let row_count = self.question.row_count;
        let of_use = |(index, candidate): (usize, &Candidate)| {
            let index_range = IndexRange { index, ..index_range(candidate, conditions, row_count)? };
            let is_one = candidate.is_unique && index_range.point_count == candidate.parts.len();
            // Each range takes a search. So an index range of many key ranges comes last: it may
            // not have to be counted.
            let ranges = index_range.ranges.len().max(RANGE_COUNT_USUAL);
            let narrow = (index_range.point_count, index_range.ranges.first().map_or(0, shared_size));
            Some(((!is_one, ranges, std::cmp::Reverse(narrow)), index_range))
        };
        let mut index_ranges: Vec<_> = self.indexes.iter().enumerate().filter_map(of_use).collect();
        index_ranges.sort_by_key(|(rank, _)| *rank);
        index_ranges.into_iter().map(|(_, index_range)| index_range).collect()
    }

    /// Counts the entries of index ranges. An index range with no more than a few is returned alone
    /// if it is found first. Counting stops after an index range with a few entries.
    pub(super) fn counted(&mut self, mut index_ranges: Vec<IndexRange>) -> Vec<IndexRange> {
        if self.question.knows_none && index_ranges.len() > 1 {
            let short = index_ranges.iter().position(|index_range| self.is_known_short(index_range));
            if let Some(short) = short {
                index_ranges = vec![index_ranges.swap_remove(short)];
            }
        }
        let mut counted = Vec::new();
        for mut index_range in index_ranges {
            index_range.estimate = if index_range.is_whole() {
                self.indexes.get(index_range.index).map_or(0, |candidate| candidate.entries) as f64
            } else {
                self.count_ranges(&mut index_range) as f64
            };
            let is_short = self.is_short(index_range.estimate);
            counted.push(index_range);
            if is_short {
                break;
            }
        }
        counted
    }

    /// Whether an index range of few ranges has no more than a few entries. Finding that out takes
    /// a third of the time of counting other index ranges.
    fn is_known_short(&mut self, index_range: &IndexRange) -> bool {
        const RANGE_COUNT_SMALL: usize = 8;
        let short_max = self.short_max();
        if index_range.is_whole() || index_range.ranges.len() > RANGE_COUNT_SMALL {
            return false;
        }
        let (mut filled, mut total) = (Vec::new(), 0);
        for range in &index_range.ranges {
            let count = self.statistics.count_up_to(index_range.index, range, short_max + 1 - total);
            total += count;
            if total > short_max {
                return false;
            }
            filled.extend((count > 0).then(|| range.clone()));
        }
        let (index, ranges) = (index_range.index, index_range.ranges.clone());
        self.counted.push(Counted { index, ranges, filled, count: total });
        true
    }

    /// Counts the entries in all ranges of an index range. If there are few ranges, those without
    /// entries are dropped, as mostly the one of Decimals. What is left may then be one range,
    /// which has an order.
    fn count_ranges(&mut self, index_range: &mut IndexRange) -> u64 {
        const RANGE_COUNT_SMALL: usize = 16;
        let is_same =
            |known: &&Counted| known.index == index_range.index && known.ranges == index_range.ranges;
        let known = self.counted.iter().find(is_same).map(|known| (known.filled.clone(), known.count));
        let (filled, count) = known.unwrap_or_else(|| {
            let (mut filled, mut total) = (index_range.ranges.clone(), 0);
            filled.retain(|range| {
                let count = self.statistics.entries(index_range.index, range);
                total += count;
                count > 0
            });
            let (index, ranges) = (index_range.index, index_range.ranges.clone());
            self.counted.push(Counted { index, ranges, filled: filled.clone(), count: total });
            (filled, total)
        });
        if self.question.knows_none && index_range.ranges.len() <= RANGE_COUNT_SMALL {
            index_range.ranges = filled;
        }
        count
    }

    /// For each `or` of which every branch leaves an index range: these index ranges, and which
    /// conditions their union implies.
    pub(super) fn unions(&mut self) -> Vec<(Vec<IndexRange>, Vec<bool>)> {
        let conditions = self.question.conditions;
        let mut unions = Vec::new();
        for (place, condition) in conditions.iter().enumerate() {
            let Kind::Or(branches) = condition.kind() else { continue };
            // A branch's own conditions are followed by all others.
            let index_ranges_of = |branch: &Node| {
                let mut all = key_range::parts(std::slice::from_ref(branch));
                let own = all.len();
                let others = conditions.iter().enumerate().filter(|(other, _)| *other != place);
                all.extend(others.map(|(_, other)| other.clone()));
                let mut index_ranges = self.index_ranges(&all);
                index_ranges.retain(|index_range| !index_range.is_whole());
                (!index_ranges.is_empty()).then_some((own, index_ranges))
            };
            let Some(branches) = branches.iter().map(index_ranges_of).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let (mut taken, mut implied) = (Vec::new(), vec![false; conditions.len()]);
            let mut is_implied = true;
            for (own, index_ranges) in branches {
                let index_ranges = self.counted(index_ranges);
                let least =
                    index_ranges.into_iter().min_by(|one, other| one.estimate.total_cmp(&other.estimate));
                let Some(index_range) = least else { continue };
                is_implied &= index_range.implied.iter().take(own).all(|is_implied| *is_implied);
                taken.push(index_range);
            }
            if let Some(own) = implied.get_mut(place) {
                *own = is_implied;
            }
            unions.push((taken, implied));
        }
        unions
    }
}

/// The number of leading bytes that the bounds of a range share. Of two ranges, the one with more
/// is mostly the narrower one.
fn shared_size(range: &Range) -> usize {
    let (Bound::Included(start) | Bound::Excluded(start), Bound::Included(end) | Bound::Excluded(end)) =
        (&range.start, &range.end)
    else {
        return 0;
    };
    start.iter().zip(end).take_while(|(one, other)| one == other).count()
}
