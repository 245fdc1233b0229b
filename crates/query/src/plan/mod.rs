//! Plans a query: estimates the cost of each access path to its rows, and puts the cheapest first.
//!
//! A table scan reaches all rows. An index reaches the rows of one section of it (`part.rs`). The
//! keys of two sections can be intersected, and for `or` united. All of these give rows in the
//! order of keys, as a scan does. An index whose own order is the one that is asked for gives rows
//! in that order. The cost of a path (`cost.rs`) follows from the number of entries in its
//! sections. There are no stored statistics: the planner counts in the tree itself. The choice
//! never changes the result: conditions that a section does not settle are tested on the rows.
#![allow(clippy::cast_precision_loss, reason = "rough costs")]

mod cost;
mod count;
mod look;
mod near;
pub mod part;
pub mod spans;
mod walk;

use pellucid_store::Range;

use crate::covering::over_entries;
use crate::expression::{Expression, Kind, Node};
use cost::Costs;
use count::{Counted, OpenSection};
pub use part::{Candidate, Section, section};

/// The largest number of keys that are gathered, of 64 bytes each if they are short. Beyond it a
/// scan or an index's order is used, which needs no memory.
pub const KEY_COUNT_MAX: usize = 4_000_000;

/// What the planner has to know of a query and its table.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The conditions. All of them must be true.
    pub conditions: &'a [Node],
    /// The sort expressions, first to last, each with whether it is descending.
    pub order: &'a [(Node, bool)],
    /// Whether rows with some keys are left out, which a walk in the order of an index cannot tell.
    pub is_cut_by_key: bool,
    /// The largest number of rows that are wanted, with those that the offset leaves out.
    pub wanted: u64,
    /// The expressions that are read of each row, beside its key; None: its record.
    pub reads: Option<&'a [Node]>,
    /// Whether a range without any known entry is sure to have none.
    pub knows_none: bool,
    /// The number of rows of the table.
    pub row_count: u64,
    /// The number of rows that a scan would read.
    pub scan_count: u64,
    /// The number of threads that a scan would use.
    pub thread_count: usize,
}

/// A set of keys of rows, from indexes.
#[derive(Clone, Debug, PartialEq)]
pub enum KeySet {
    /// The keys in a section of one index.
    Section {
        /// The position of the index among the candidates.
        index: usize,
        /// The section of it.
        section: Section,
        /// The conditions that leave this section.
        used: Vec<Node>,
        /// The expected number of entries in it.
        estimate: f64,
    },
    /// The keys that are in all of these sets.
    Intersection(Vec<KeySet>),
    /// The keys that are in any of these sets.
    Union(Vec<KeySet>),
}

/// An access path: how rows are reached.
#[derive(Clone, Debug, PartialEq)]
pub enum AccessPath {
    /// A scan of all rows of the table, or of the range that conditions on the key leave.
    TableScan,
    /// The rows under these keys, in the order of keys.
    Keys(KeySet),
    /// The rows under the keys that this condition names, in the order of keys.
    KeyLookup(Node),
    /// The rows of a section of this index, in the order of the index.
    IndexOrder {
        /// The position of the index among the candidates.
        index: usize,
        /// The section of it.
        section: Section,
        /// The conditions that leave this section.
        used: Vec<Node>,
        /// Whether the walk goes from the end of the section to its begin. Entries with the same
        /// parts still come in the order of keys.
        is_reverse: bool,
    },
}

/// An access path and its expected cost.
#[derive(Clone, Debug)]
pub struct CostedPath {
    /// The access path.
    pub access: AccessPath,
    /// For each condition, whether the path settles it, so that it needs no test.
    pub settled: Vec<bool>,
    /// Whether the keys, or the entries of the one index, have all that the query reads, so that no
    /// row is looked up.
    pub is_covered: bool,
    /// The expected number of rows that are read.
    pub estimate: f64,
    /// The expected cost, in nanoseconds.
    pub cost: f64,
    /// The cost to the very end, for a path that stops at the last wanted row, if it is not known
    /// where that row lies.
    pub end: Option<End>,
}

/// The very end of a path that may stop before.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// The number of rows up to the end.
    pub rows: f64,
    /// The cost to reach it.
    pub cost: f64,
    /// The cost of each row that is read and tested.
    pub row_cost: f64,
}

impl CostedPath {
    /// The expected number of rows that are read.
    #[expect(clippy::cast_sign_loss, reason = "a number of rows")]
    pub(crate) fn row_count(&self) -> u64 {
        self.estimate as u64
    }

    /// The largest cost that the path may have.
    fn cost_max(&self) -> f64 {
        self.end.map_or(self.cost, |end| end.cost)
    }
}

/// What the planner asks about the rows in the table.
pub trait Statistics {
    /// The rough number of entries of an index in a range.
    fn entries(&mut self, index: usize, range: &Range) -> u64;

    /// The number of entries of an index in a range, counted up to `most`. This takes less time
    /// than counting all.
    fn first_few(&mut self, index: usize, range: &Range, most: u64) -> u64;

    /// Tests a condition on a sample of rows from all over the table. Returns how many pass, and
    /// the size of the sample.
    fn sample(&mut self, condition: &Node) -> (usize, usize);

    /// Probes this many further rows of the scan. Returns what all rows that were probed so far
    /// have shown.
    fn look_on(&mut self, row_count: u64) -> Seen;

    /// Probes this many of the first rows along an index that has the order that is asked for.
    fn walk(&mut self, way: &CostedPath, row_count: u64) -> Seen;
}

/// What a probe of the first rows of a scan, or of a walk along an index, has shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// The number of rows that were read.
    pub looked_at: u64,
    /// The number of them for which all conditions are true.
    pub found: u64,
    /// Whether the path ends with them: there are no further rows, or no further ones are wanted.
    pub is_over: bool,
}

/// All access paths, the cheapest first. The scan alone if no index can be used, or if the probed
/// first rows are all that is wanted.
pub fn access_paths(
    question: &Question<'_>,
    indexes: &[Candidate],
    statistics: &mut dyn Statistics,
) -> Vec<CostedPath> {
    let costs =
        Costs { row_count: question.row_count as f64, thread_count: question.thread_count.max(1) as f64 };
    let shares = vec![None; question.conditions.len()];
    let mut planner = Planner {
        question,
        indexes,
        costs,
        statistics,
        shares,
        joints: Vec::new(),
        counted: Vec::new(),
        seen: Seen::default(),
        least: f64::INFINITY,
        may_sample: false,
        is_unsure: false,
    };
    // Finding sections takes as long as probing some rows, so it is done only for indexes of which
    // the query names a part.
    if !indexes.iter().any(|index| index.is_named(question.conditions, question.order))
        || planner.looks_first()
    {
        return vec![planner.scan()];
    }
    let mut open = planner.open(question.conditions);
    // A whole index is useful only for its order, or for the rows that its own condition leaves
    // out.
    let of_some = |open: &OpenSection| indexes.get(open.index).is_some_and(|index| index.condition.is_some());
    open.retain(|open| !question.order.is_empty() || !open.section.is_whole() || of_some(open));
    let open_unions = planner.open_unions();
    if open.is_empty() && open_unions.is_empty() {
        return vec![planner.scan()];
    }
    let sections = planner.counted(open, question.conditions);
    planner.note_shares(&sections);
    planner.least = sections.iter().map(|found| found.estimate).fold(f64::INFINITY, f64::min);
    // A path to next to no rows is not beaten by one that leads to more.
    let has_few = sections.iter().any(|found| planner.is_few(found.estimate));
    let unions = if has_few { Vec::new() } else { planner.unions(open_unions) };
    let mut ways = planner.weigh(&sections, &unions);
    // A sample is taken if there is a choice, and if the best path may take longer than the sample.
    if planner.is_unsure && ways.len() > 1 && ways.first().is_some_and(|best| best.cost > SAMPLE_PAYS) {
        planner.may_sample = true;
        ways = planner.weigh(&sections, &unions);
    }
    if planner.looks_on(&mut ways) {
        return vec![planner.scan()];
    }
    planner.walks_on(&mut ways);
    ways
}

/// A path that costs more than this is worth a sample.
const SAMPLE_PAYS: f64 = 3.0 * cost::SAMPLE;

struct Planner<'q, 's> {
    question: &'q Question<'q>,
    indexes: &'q [Candidate],
    costs: Costs,
    statistics: &'s mut dyn Statistics,
    /// For each condition, the share of rows for which it is true, if it was asked.
    shares: Vec<Option<f64>>,
    /// The same for several conditions together, from a sample: their places, the share, and the
    /// largest share that is likely.
    joints: Vec<(Vec<usize>, f64, f64)>,
    /// Ranges that were counted before. Branches of an `or` share the other conditions.
    counted: Vec<Counted>,
    /// What the probes of the first rows have shown.
    seen: Seen,
    /// At most this many rows pass all conditions, as far as sections tell.
    least: f64,
    /// Whether a sample may be taken.
    may_sample: bool,
    /// Whether some path might cost less if more were known.
    is_unsure: bool,
}

/// A section of an index, and its number of entries.
#[derive(Clone, Debug)]
struct CountedSection {
    index: usize,
    section: Section,
    used: Vec<Node>,
    estimate: f64,
}

impl CountedSection {
    fn set(&self) -> KeySet {
        let Self { index, section, used, estimate } = self.clone();
        KeySet::Section { index, section, used, estimate }
    }
}

impl Planner<'_, '_> {
    /// All access paths, the cheapest first.
    fn weigh(&mut self, sections: &[CountedSection], unions: &[(KeySet, Vec<bool>)]) -> Vec<CostedPath> {
        let mut ways = vec![self.scan()];
        for found in sections {
            ways.extend(self.by_keys(found.set(), &found.section.settled));
            ways.extend(self.in_order(found));
        }
        ways.extend(self.intersection(sections));
        for (set, settled) in unions {
            ways.extend(self.by_keys(set.clone(), settled));
        }
        ways.sort_by(|one, other| one.cost.total_cmp(&other.cost));
        ways
    }

    /// Notes the share of rows for which conditions are true, as the entries of their sections
    /// tell. Several conditions of one section each get the same share, so that their product is
    /// that of the section.
    fn note_shares(&mut self, sections: &[CountedSection]) {
        for found in sections {
            let used: Vec<usize> =
                (0..).zip(&found.section.used).filter(|(_, used)| **used).map(|(at, _)| at).collect();
            let share = (found.estimate / self.question.row_count.max(1) as f64).min(1.0);
            let is_known = |at: &usize| self.shares.get(*at).is_none_or(Option::is_some);
            if used.len() != 1 && used.iter().any(is_known) {
                continue;
            }
            for at in &used {
                if let Some(place) = self.shares.get_mut(*at) {
                    *place = Some(share.powf(1.0 / used.len() as f64));
                }
            }
        }
    }

    /// The number of rows that pass the conditions that are not settled, of `count` rows. If all
    /// rows are wanted in the order of keys, it is not needed, and `count` is returned. `unknown`
    /// is the share for a condition of which nothing is known.
    fn passing(&mut self, count: f64, settled: &[bool], unknown: f64) -> f64 {
        if self.question.wanted == u64::MAX && self.question.order.is_empty() {
            return count;
        }
        let all = (0..).zip(self.question.conditions);
        let left: Vec<(usize, &Node)> =
            all.filter(|(place, _)| !settled.get::<usize>(*place).copied().unwrap_or(false)).collect();
        let known = match left[..] {
            [] => Some(1.0),
            [(place, _)] => self.shares.get(place).copied().flatten(),
            // To assume that the conditions are independent would be a guess. It is far off for a
            // query for one age together with the ages above another one.
            _ => None,
        };
        let known =
            known.or_else(|| self.seen_share().filter(|_| left.len() == self.question.conditions.len()));
        let share = match known {
            None if self.may_sample => Some(self.joint(&left)),
            known => known,
        };
        self.is_unsure |= share.is_none();
        count * share.unwrap_or(unknown)
    }

    /// The share of the first rows for which all conditions are true, if enough of them pass for it
    /// not to be chance.
    fn seen_share(&self) -> Option<f64> {
        const FOUND_MIN: u64 = 3;
        (self.seen.found >= FOUND_MIN).then(|| self.seen.found as f64 / self.seen.looked_at as f64)
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
        self.joints.push((places, share, look::share_max(count as u64, all as u64)));
        share
    }

    /// What is not known is assumed to have the highest cost: all rows are sorted, or all are read
    /// for nothing.
    fn unknown(&self) -> f64 {
        if self.question.order.is_empty() { 0.0 } else { 1.0 }
    }

    /// The cost to test the conditions that are not settled, one after another up to the first that
    /// is false.
    fn tests(&self, settled: &[bool]) -> f64 {
        let (mut cost, mut left) = (0.0, 1.0);
        for (place, condition) in self.question.conditions.iter().enumerate() {
            if !settled.get(place).copied().unwrap_or(false) {
                cost += left * cost::test(condition);
                let known = self.shares.get(place).copied().flatten();
                left *= known.unwrap_or_else(|| cost::share_unknown(condition));
            }
        }
        cost
    }

    fn scan(&mut self) -> CostedPath {
        let question = self.question;
        let conditions = question.conditions.len();
        let all = question.scan_count as f64;
        if self.seen.is_over {
            let (settled, estimate) = (vec![false; conditions], self.seen.looked_at as f64);
            let cost = self.costs.scan(estimate, self.tests(&settled));
            return CostedPath {
                access: AccessPath::TableScan,
                settled,
                is_covered: false,
                estimate,
                cost,
                end: None,
            };
        }
        let wanted = question.wanted as f64;
        let settled = vec![false; conditions];
        let passing = self.passing(all, &settled, self.unknown());
        let mut cost = self.costs.scan(all, self.tests(&settled));
        let mut end = None;
        if question.order.is_empty() {
            let row_cost = Costs::scan_row(self.tests(&settled));
            end = (wanted < all).then_some(End { rows: all, cost, row_cost });
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
        CostedPath { access: AccessPath::TableScan, settled, is_covered: false, estimate: all, cost, end }
    }

    /// The path that gathers the keys of a set.
    fn by_keys(&mut self, set: KeySet, settled: &[bool]) -> Option<CostedPath> {
        let question = self.question;
        if let KeySet::Section { index, section, .. } = &set {
            // A whole index has all rows and saves nothing, unless it is partial.
            let of_some = self.indexes.get(*index).is_some_and(|candidate| candidate.condition.is_some());
            if section.is_whole() && !of_some {
                return None;
            }
        }
        let is_covered = self.is_covered(&set, settled);
        let is_counted = matches!(set, KeySet::Section { .. }) && self.is_counted(settled);
        let (count, mut cost) = self.gather(&set, is_covered, is_counted);
        let (mut fetched, wanted) = (count, question.wanted as f64);
        let passing = self.passing(count, settled, self.unknown());
        if question.order.is_empty() && wanted < passing {
            fetched = count * wanted / passing.max(1.0);
        }
        if !is_counted && fetched > KEY_COUNT_MAX as f64 {
            return None;
        }
        if is_covered {
            cost += count * self.tests(settled) + Costs::sort_told(question.order.len(), passing, wanted);
        } else {
            cost += self.costs.fetch(fetched, true, self.tests(settled));
            if !question.order.is_empty() {
                cost += Costs::sort(passing, wanted) + self.costs.fetch(passing.min(wanted), false, 0.0);
            }
        }
        let (access, settled) = (AccessPath::Keys(set), settled.to_vec());
        Some(CostedPath { access, settled, is_covered, estimate: count, cost, end: None })
    }

    /// Whether the query reads nothing but keys, or only fields that the entries of the set's one
    /// index have.
    fn is_covered(&self, set: &KeySet, settled: &[bool]) -> bool {
        let Some(reads) = self.question.reads else { return false };
        let tested = self.question.conditions.iter().zip(settled).filter(|(_, is_settled)| !**is_settled);
        let ordered = self.question.order.iter().map(|(node, _)| node);
        let mut others = tested.map(|(condition, _)| condition).chain(ordered);
        match set {
            KeySet::Section { index, .. } => self.indexes.get(*index).is_some_and(|candidate| {
                reads.iter().chain(others).all(|node| over_entries(&candidate.parts, node).is_some())
            }),
            KeySet::Intersection(_) | KeySet::Union(_) => {
                others.next().is_none() && !reads.iter().any(|node| node.reads_record())
            }
        }
    }

    /// Whether entries are only counted: the query reads nothing but keys, and no condition is left
    /// to test.
    fn is_counted(&self, settled: &[bool]) -> bool {
        self.question.reads.is_some_and(<[Node]>::is_empty) && settled.iter().all(|is_settled| *is_settled)
    }

    fn part_count(&self, index: usize) -> usize {
        self.indexes.get(index).map_or(0, |candidate| candidate.parts.len())
    }

    /// The number of keys of a set, and the cost to gather and sort them; or to read or count the
    /// entries of a covering index.
    fn gather(&self, set: &KeySet, is_covered: bool, is_counted: bool) -> (f64, f64) {
        match set {
            KeySet::Section { section, estimate, .. } if is_covered && is_counted => {
                (*estimate, Costs::counted(section.ranges.len(), *estimate))
            }
            KeySet::Section { index, section, estimate, .. } if is_covered => {
                (*estimate, Costs::told(section.ranges.len(), *estimate, self.part_count(*index)))
            }
            KeySet::Section { index, section, estimate, .. } => {
                let read = Costs::entries(section.ranges.len(), *estimate);
                let parts = self.part_count(*index);
                let is_sorted = section.is_in_key_order(parts);
                (*estimate, if is_sorted { read } else { read + Costs::keys_in_order(*estimate) })
            }
            KeySet::Intersection(sets) => {
                let all = self.question.row_count.max(1) as f64;
                let of_one = |(count, cost): (f64, f64), set: &KeySet| {
                    let (more, gathered) = self.gather(set, false, false);
                    (count * more / all, cost + gathered)
                };
                sets.iter().fold((all, 0.0), of_one)
            }
            KeySet::Union(sets) => {
                let (count, cost) = sets
                    .iter()
                    .map(|set| self.gather(set, false, false))
                    .fold((0.0, 0.0), |(count, cost), (more, gathered)| (count + more, cost + gathered));
                (count, cost + Costs::keys_in_order(count))
            }
        }
    }

    /// The path that intersects the keys of two or three sections.
    fn intersection(&mut self, sections: &[CountedSection]) -> Option<CostedPath> {
        const COUNT_MAX: usize = 3;
        let mut sections: Vec<&CountedSection> =
            sections.iter().filter(|found| !found.section.is_whole()).collect();
        sections.sort_by(|one, other| one.estimate.total_cmp(&other.estimate));
        let (mut sets, mut settled) = (Vec::new(), vec![false; self.question.conditions.len()]);
        let mut best: Option<CostedPath> = None;
        for found in sections {
            // A section that settles no further condition only takes time.
            let is_new = |(known, new): (&bool, &bool)| *new && !*known;
            if !sets.is_empty() && !settled.iter().zip(&found.section.settled).any(is_new) {
                continue;
            }
            for (known, new) in settled.iter_mut().zip(&found.section.settled) {
                *known |= new;
            }
            sets.push(found.set());
            if sets.len() > 1 {
                let choice = self.by_keys(KeySet::Intersection(sets.clone()), &settled)?;
                if best.as_ref().is_some_and(|best| best.cost <= choice.cost) {
                    break;
                }
                best = Some(choice);
            }
            if sets.len() == COUNT_MAX {
                break;
            }
        }
        best
    }
}
