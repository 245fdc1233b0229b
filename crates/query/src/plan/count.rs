//! Finds the sections of indexes that the conditions leave, and counts their entries.
//!
//! Each count takes some microseconds, so the planner makes only counts that can change its choice.
//! Sections come first that are narrowest by their bounds. A section with next to no entries
//! settles the choice, so the planner looks for one before it counts the others. It keeps every
//! count, because the branches of an `or` share the other conditions.
#![allow(clippy::cast_precision_loss, reason = "rough numbers of entries")]

use std::ops::Bound;

use pellucid_store::Range;

use super::{Candidate, CountedSection, KeySet, Planner, Section, section};
use crate::expression::{Kind, Node};
use crate::key_range;

/// A section with at most this many entries is used at once: to look these rows up takes less time
/// than to count the entries of other indexes. `FEW_TOLD` applies where an index may cover the
/// query.
const FEW: u64 = 12;
const FEW_TOLD: u64 = 4;
/// A section of an index whose entries are not counted yet.
pub(super) struct OpenSection {
    pub(super) index: usize,
    pub(super) section: Section,
}

/// An `or`, and its place among the conditions. For each branch: the number of its own conditions,
/// these followed by all other conditions, and the sections that they leave.
pub(super) struct OpenUnion {
    place: usize,
    branches: Vec<(usize, Vec<Node>, Vec<OpenSection>)>,
}

/// What is known of some ranges of an index: which of them have entries, and how many, if they were
/// counted.
pub(super) struct Counted {
    index: usize,
    ranges: Vec<Range>,
    left: Vec<Range>,
    count: Option<u64>,
}

impl Planner<'_, '_> {
    /// Whether this many rows are looked up faster than anything is found out about other indexes.
    pub(super) fn is_few(&self, estimate: f64) -> bool {
        estimate <= self.few() as f64
    }

    fn few(&self) -> u64 {
        if self.question.reads.is_none() { FEW } else { FEW_TOLD }
    }

    /// The usable section of each index. Those come first that are counted soonest, and then those
    /// that are narrowest by their bounds.
    pub(super) fn open(&self, conditions: &[Node]) -> Vec<OpenSection> {
        // A number has two ranges: one among numbers, and one among Decimals.
        const RANGE_COUNT_USUAL: usize = 2;
        let row_count = self.question.row_count;
        let of_use = |(index, candidate): (usize, &Candidate)| {
            let section = section(candidate, conditions, row_count)?;
            let is_one = candidate.is_unique && section.point_count == candidate.parts.len();
            // Each range takes a search. So a section of many ranges comes last: it may not have to
            // be counted.
            let ranges = section.ranges.len().max(RANGE_COUNT_USUAL);
            let narrow = (section.point_count, section.ranges.first().map_or(0, shared_size));
            Some(((!is_one, ranges, std::cmp::Reverse(narrow)), OpenSection { index, section }))
        };
        let mut sections: Vec<_> = self.indexes.iter().enumerate().filter_map(of_use).collect();
        sections.sort_by_key(|(rank, _)| *rank);
        sections.into_iter().map(|(_, open)| open).collect()
    }

    /// Counts the entries of sections. A section with no entries, or else one with next to none, is
    /// returned alone if it is found first. Counting stops after a section with next to no entries.
    pub(super) fn counted(&mut self, open: Vec<OpenSection>, conditions: &[Node]) -> Vec<CountedSection> {
        let few = if self.question.knows_none && open.len() > 1 {
            let next_to_none = self.few();
            let empty = open.iter().position(|open| self.has_few(open, 0));
            empty.or_else(|| open.iter().position(|open| self.has_few(open, next_to_none)))
        } else {
            None
        };
        let mut found = Vec::new();
        for (place, OpenSection { index, mut section }) in open.into_iter().enumerate() {
            if few.is_some_and(|few| few != place) {
                continue;
            }
            let estimate = if section.is_whole() {
                self.indexes.get(index).map_or(0, |candidate| candidate.entries) as f64
            } else {
                self.count_ranges(index, &mut section) as f64
            };
            let used = conditions.iter().zip(&section.used).filter(|(_, is_used)| **is_used);
            let used = used.map(|(condition, _)| condition.clone()).collect();
            found.push(CountedSection { index, section, used, estimate });
            if self.is_few(estimate) {
                break;
            }
        }
        found
    }

    /// Whether a section of few ranges has at most `most` entries. Finding out that it has none
    /// takes a tenth of the time of counting other sections, and finding out that it has next to
    /// none takes a third.
    fn has_few(&mut self, OpenSection { index, section }: &OpenSection, most: u64) -> bool {
        const RANGE_COUNT_FEW: usize = 8;
        if section.is_whole() || section.ranges.len() > RANGE_COUNT_FEW {
            return false;
        }
        let Some(known) = self.ranges_with_any(*index, &section.ranges, false) else { return false };
        if let Some(count) = known.count {
            return count <= most;
        }
        let left = known.left.clone();
        let mut count = 0;
        for range in &left {
            if count <= most {
                count += if most == 0 { 1 } else { self.statistics.first_few(*index, range, most + 1) };
            }
        }
        if count <= most
            && let Some(known) = self.ranges_with_any(*index, &section.ranges, false)
        {
            known.count = Some(count);
        }
        count <= most
    }

    /// Of a few ranges, those that have entries. With `is_first_one`, the first range is assumed to
    /// have some.
    fn ranges_with_any(
        &mut self,
        index: usize,
        ranges: &[Range],
        is_first_one: bool,
    ) -> Option<&mut Counted> {
        let known = self.counted.iter().position(|known| known.index == index && known.ranges == ranges);
        let place = known.unwrap_or_else(|| {
            let mut has_any = |place: usize, range: &Range| {
                (is_first_one && place == 0) || self.statistics.first_few(index, range, 1) > 0
            };
            let left = (0..).zip(ranges).filter(|(place, range)| has_any(*place, range));
            let left = left.map(|(_, range)| range.clone()).collect();
            self.counted.push(Counted { index, ranges: ranges.to_vec(), left, count: None });
            self.counted.len() - 1
        });
        self.counted.get_mut(place)
    }

    /// Counts the entries in all ranges of a section. If there are few ranges, those without
    /// entries are dropped, as mostly the one of Decimals. What is left may then be one range,
    /// which has an order.
    fn count_ranges(&mut self, index: usize, section: &mut Section) -> u64 {
        const RANGE_COUNT_FEW: usize = 16;
        let is_few = self.question.knows_none && section.ranges.len() <= RANGE_COUNT_FEW;
        // The range of Decimals comes after the range of numbers.
        let Some(known) = self.ranges_with_any(index, &section.ranges, true) else { return 0 };
        let (mut left, known) = (known.left.clone(), known.count);
        let count = known.unwrap_or_else(|| {
            let mut total = 0;
            left.retain(|range| {
                let count = self.statistics.entries(index, range);
                total += count;
                count > 0
            });
            total
        });
        if let Some(known) = self.ranges_with_any(index, &section.ranges, true) {
            known.count = Some(count);
            known.left.clone_from(&left);
        }
        if is_few {
            section.ranges = left;
        }
        count
    }

    /// The sections for each `or` of which every branch leaves a section.
    pub(super) fn open_unions(&self) -> Vec<OpenUnion> {
        let conditions = self.question.conditions;
        let union = |(place, condition): (usize, &Node)| {
            let Kind::Or(branches) = condition.kind() else { return None };
            let branch = |branch: &Node| {
                let mut all = key_range::parts(std::slice::from_ref(branch));
                let own = all.len();
                let others = conditions.iter().enumerate().filter(|(other, _)| *other != place);
                all.extend(others.map(|(_, other)| other.clone()));
                let mut open = self.open(&all);
                open.retain(|open| !open.section.is_whole());
                (!open.is_empty()).then_some((own, all, open))
            };
            Some(OpenUnion { place, branches: branches.iter().map(branch).collect::<Option<_>>()? })
        };
        conditions.iter().enumerate().filter_map(union).collect()
    }

    /// For each `or`, the union of the keys in its branches' sections, and which conditions it
    /// settles.
    pub(super) fn unions(&mut self, open: Vec<OpenUnion>) -> Vec<(KeySet, Vec<bool>)> {
        let mut ways = Vec::new();
        for OpenUnion { place, branches } in open {
            let (mut sets, mut is_settled) = (Vec::new(), true);
            for (own, all, open) in branches {
                let sections = self.counted(open, &all);
                let least = sections.into_iter().min_by(|one, other| one.estimate.total_cmp(&other.estimate));
                let Some(found) = least else { continue };
                is_settled &= found.section.settled.iter().take(own).all(|is_settled| *is_settled);
                sets.push(found.set());
            }
            let mut settled = vec![false; self.question.conditions.len()];
            if let Some(own) = settled.get_mut(place) {
                *own = is_settled;
            }
            ways.push((KeySet::Union(sets), settled));
        }
        ways
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
