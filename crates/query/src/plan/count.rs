//! Finds the sections of indexes that the conditions leave, and counts their entries.
//!
//! Each count takes some microseconds, so the planner makes only counts that can change its choice.
//! Sections come first that are narrowest by their bounds. A section with no more than a few
//! entries decides the choice, so the planner looks for one before it counts the others. It keeps
//! every count, because the branches of an `or` share the other conditions.
#![allow(clippy::cast_precision_loss, reason = "rough numbers of entries")]

use std::ops::Bound;

use pellucid_store::Range;

use super::{Candidate, Planner, Section, section};
use crate::expression::{Kind, Node};
use crate::key_range;

/// A section with at most this many entries is used at once: to look these rows up takes less time
/// than to count the entries of other indexes. `SHORT_COVERED` applies where an index may cover the
/// query.
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

    /// The usable section of each index, not counted yet. Those come first that are counted
    /// soonest, and then those that are narrowest by their bounds.
    pub(super) fn sections(&self, conditions: &[Node]) -> Vec<Section> {
        // A number has two ranges: one among numbers, and one among Decimals.
        const RANGE_COUNT_USUAL: usize = 2;
        let row_count = self.question.row_count;
        let of_use = |(index, candidate): (usize, &Candidate)| {
            let section = Section { index, ..section(candidate, conditions, row_count)? };
            let is_one = candidate.is_unique && section.point_count == candidate.parts.len();
            // Each range takes a search. So a section of many ranges comes last: it may not have to
            // be counted.
            let ranges = section.ranges.len().max(RANGE_COUNT_USUAL);
            let narrow = (section.point_count, section.ranges.first().map_or(0, shared_size));
            Some(((!is_one, ranges, std::cmp::Reverse(narrow)), section))
        };
        let mut sections: Vec<_> = self.indexes.iter().enumerate().filter_map(of_use).collect();
        sections.sort_by_key(|(rank, _)| *rank);
        sections.into_iter().map(|(_, section)| section).collect()
    }

    /// Counts the entries of sections. A section with no more than a few is returned alone if it is
    /// found first. Counting stops after a section with a few entries.
    pub(super) fn counted(&mut self, mut sections: Vec<Section>) -> Vec<Section> {
        if self.question.knows_none && sections.len() > 1 {
            let short = sections.iter().position(|section| self.is_known_short(section));
            if let Some(short) = short {
                sections = vec![sections.swap_remove(short)];
            }
        }
        let mut counted = Vec::new();
        for mut section in sections {
            section.estimate = if section.is_whole() {
                self.indexes.get(section.index).map_or(0, |candidate| candidate.entries) as f64
            } else {
                self.count_ranges(&mut section) as f64
            };
            let is_short = self.is_short(section.estimate);
            counted.push(section);
            if is_short {
                break;
            }
        }
        counted
    }

    /// Whether a section of few ranges has no more than a few entries. Finding that out takes a
    /// third of the time of counting other sections.
    fn is_known_short(&mut self, section: &Section) -> bool {
        const RANGE_COUNT_SMALL: usize = 8;
        let short_max = self.short_max();
        if section.is_whole() || section.ranges.len() > RANGE_COUNT_SMALL {
            return false;
        }
        let (mut filled, mut total) = (Vec::new(), 0);
        for range in &section.ranges {
            let count = self.statistics.count_up_to(section.index, range, short_max + 1 - total);
            total += count;
            if total > short_max {
                return false;
            }
            filled.extend((count > 0).then(|| range.clone()));
        }
        let (index, ranges) = (section.index, section.ranges.clone());
        self.counted.push(Counted { index, ranges, filled, count: total });
        true
    }

    /// Counts the entries in all ranges of a section. If there are few ranges, those without
    /// entries are dropped, as mostly the one of Decimals. What is left may then be one range,
    /// which has an order.
    fn count_ranges(&mut self, section: &mut Section) -> u64 {
        const RANGE_COUNT_SMALL: usize = 16;
        let is_same = |known: &&Counted| known.index == section.index && known.ranges == section.ranges;
        let known = self.counted.iter().find(is_same).map(|known| (known.filled.clone(), known.count));
        let (filled, count) = known.unwrap_or_else(|| {
            let (mut filled, mut total) = (section.ranges.clone(), 0);
            filled.retain(|range| {
                let count = self.statistics.entries(section.index, range);
                total += count;
                count > 0
            });
            let (index, ranges) = (section.index, section.ranges.clone());
            self.counted.push(Counted { index, ranges, filled: filled.clone(), count: total });
            (filled, total)
        });
        if self.question.knows_none && section.ranges.len() <= RANGE_COUNT_SMALL {
            section.ranges = filled;
        }
        count
    }

    /// For each `or` of which every branch leaves a section: these sections, and which conditions
    /// their union implies.
    pub(super) fn unions(&mut self) -> Vec<(Vec<Section>, Vec<bool>)> {
        let conditions = self.question.conditions;
        let mut unions = Vec::new();
        for (place, condition) in conditions.iter().enumerate() {
            let Kind::Or(branches) = condition.kind() else { continue };
            // A branch's own conditions are followed by all others.
            let sections_of = |branch: &Node| {
                let mut all = key_range::parts(std::slice::from_ref(branch));
                let own = all.len();
                let others = conditions.iter().enumerate().filter(|(other, _)| *other != place);
                all.extend(others.map(|(_, other)| other.clone()));
                let mut sections = self.sections(&all);
                sections.retain(|section| !section.is_whole());
                (!sections.is_empty()).then_some((own, sections))
            };
            let Some(branches) = branches.iter().map(sections_of).collect::<Option<Vec<_>>>() else {
                continue;
            };
            let (mut taken, mut implied) = (Vec::new(), vec![false; conditions.len()]);
            let mut is_implied = true;
            for (own, sections) in branches {
                let sections = self.counted(sections);
                let least = sections.into_iter().min_by(|one, other| one.estimate.total_cmp(&other.estimate));
                let Some(section) = least else { continue };
                is_implied &= section.implied.iter().take(own).all(|is_implied| *is_implied);
                taken.push(section);
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
