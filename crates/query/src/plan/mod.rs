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

/// Rows whose keys are gathered at most, of 64 bytes each where they are short: a scan, or an
/// index's order, has no need of memory.
pub const KEY_COUNT_MAX: usize = 4_000_000;

/// What is asked for, as far as choosing is concerned.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// All of which must be true.
    pub conditions: &'a [Node],
    /// First to last, and whether descending.
    pub order: &'a [(Node, bool)],
    /// Whether rows with some keys are left out, which the order of an index cannot tell.
    pub is_cut_by_key: bool,
    /// How many rows are wanted at most, those left out first included.
    pub wanted: u64,
    /// What is read of each row that is found, beside its key; None: its record.
    pub reads: Option<&'a [Node]>,
    /// Whether ranges of which no entry is known have none.
    pub knows_none: bool,
    /// How many rows the table has.
    pub row_count: u64,
    /// How many of them a scan would meet.
    pub scan_count: u64,
    /// On how many threads a scan would run.
    pub thread_count: usize,
}

/// Keys of rows, from indexes.
#[derive(Clone, Debug, PartialEq)]
pub enum KeySet {
    /// Those of a section of this index.
    Section {
        /// Which of the candidates.
        index: usize,
        /// Which part of it.
        section: Section,
        /// The conditions that have left it.
        used: Vec<Node>,
        /// How many entries are expected there.
        estimate: f64,
    },
    /// Those in all of them.
    Intersection(Vec<KeySet>),
    /// Those in any.
    Union(Vec<KeySet>),
}

/// An access path: how rows are reached.
#[derive(Clone, Debug, PartialEq)]
pub enum AccessPath {
    /// All rows of the table, or a part of it that conditions on the key leave.
    TableScan,
    /// Those under these keys, in the order of keys.
    Keys(KeySet),
    /// Those under the keys that this condition names, in their order.
    KeyLookup(Node),
    /// Those of a section of this index, in its order.
    IndexOrder {
        /// Which of the candidates.
        index: usize,
        /// Which part of it.
        section: Section,
        /// The conditions that have left it.
        used: Vec<Node>,
        /// From its end to its begin; entries with the same parts still in the order of keys.
        is_reverse: bool,
    },
}

/// An access path, and what it is expected to cost.
#[derive(Clone, Debug)]
pub struct CostedPath {
    /// Which one.
    pub access: AccessPath,
    /// Which of the conditions need no test.
    pub settled: Vec<bool>,
    /// Whether keys, or the entries of the one index, tell all that is asked for, and no row is
    /// looked up.
    pub is_covered: bool,
    /// How many rows are expected to be looked at.
    pub estimate: f64,
    /// What it is expected to cost, in nanoseconds.
    pub cost: f64,
    /// To its very end, where it ends with the last row that is wanted, and nobody knows where that
    /// lies.
    pub end: Option<End>,
}

/// The very end of a way that may be over before.
#[derive(Clone, Copy, Debug)]
pub struct End {
    /// How many rows there are up to it.
    pub rows: f64,
    /// What it costs to go there.
    pub cost: f64,
    /// What each row costs that is read, and tested, to find out.
    pub row_cost: f64,
}

impl CostedPath {
    /// How many rows are expected to be looked at.
    #[expect(clippy::cast_sign_loss, reason = "a number of rows")]
    pub(crate) fn row_count(&self) -> u64 {
        self.estimate as u64
    }

    /// What it costs at most.
    fn cost_max(&self) -> f64 {
        self.end.map_or(self.cost, |end| end.cost)
    }
}

/// What is known of the rows that are there.
pub trait Statistics {
    /// How many entries an index has in a range, roughly.
    fn entries(&mut self, index: usize, range: &Range) -> u64;

    /// How many entries an index has in a range, no more than `most`, which takes less than to say
    /// how many there are.
    fn first_few(&mut self, index: usize, range: &Range, most: u64) -> u64;

    /// Of how many of a few rows from all over the table a condition is true, and how many these
    /// are.
    fn sample(&mut self, condition: &Node) -> (usize, usize);

    /// Looks at so many more rows as a scan meets them; what all rows say that were looked at so
    /// far.
    fn look_on(&mut self, row_count: u64) -> Seen;

    /// Looks at so many of the first rows along an index whose order is the one that is asked for.
    fn walk(&mut self, way: &CostedPath, row_count: u64) -> Seen;
}

/// What the first rows that a scan, or a walk, meets have said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// How many were looked at.
    pub looked_at: u64,
    /// Of how many of them all conditions are true.
    pub found: u64,
    /// Whether it would end with them: there are no others, or no others are wanted.
    pub is_over: bool,
}

/// All ways there are, the one that is expected to cost least first; the scan alone where no index
/// is of use, or the first rows are all that is wanted.
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
    // To find sections takes as long as to look at some rows.
    if !indexes.iter().any(|index| index.is_named(question.conditions, question.order))
        || planner.looks_first()
    {
        return vec![planner.scan()];
    }
    let mut open = planner.open(question.conditions);
    // A whole index is of use for its order, or for what its own condition leaves out.
    let of_some = |open: &OpenSection| indexes.get(open.index).is_some_and(|index| index.condition.is_some());
    open.retain(|open| !question.order.is_empty() || !open.section.is_whole() || of_some(open));
    let open_unions = planner.open_unions();
    if open.is_empty() && open_unions.is_empty() {
        return vec![planner.scan()];
    }
    let sections = planner.counted(open, question.conditions);
    planner.note_shares(&sections);
    planner.least = sections.iter().map(|found| found.estimate).fold(f64::INFINITY, f64::min);
    // What leads to next to no rows is not beaten by what leads to more.
    let has_few = sections.iter().any(|found| planner.is_few(found.estimate));
    let unions = if has_few { Vec::new() } else { planner.unions(open_unions) };
    let mut ways = planner.weigh(&sections, &unions);
    // Rows are looked at to choose where the best way may take longer than that does, and there is
    // something to choose.
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

/// A way that may take longer than this is worth a sample.
const SAMPLE_PAYS: f64 = 3.0 * cost::SAMPLE;

struct Planner<'q, 's> {
    question: &'q Question<'q>,
    indexes: &'q [Candidate],
    costs: Costs,
    statistics: &'s mut dyn Statistics,
    /// Of which share of the rows each condition is true, as far as that was asked.
    shares: Vec<Option<f64>>,
    /// The same of several together, as a few rows have told; and which share it may be at most.
    joints: Vec<(Vec<usize>, f64, f64)>,
    /// Ranges that were counted before: branches of an `or` share the other conditions.
    counted: Vec<Counted>,
    /// What the first rows have said.
    seen: Seen,
    /// So many rows pass all conditions at most, as far as sections tell.
    least: f64,
    /// Whether a few rows may be looked at for that.
    may_sample: bool,
    /// Whether some way would cost less where more was known.
    is_unsure: bool,
}

/// A section of an index, and how many entries it may have.
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
    /// All ways, the one that is expected to cost least first.
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

    /// A section tells of which share of the rows the conditions are true that have left it; of
    /// several together, each of the same.
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

    /// How many of so many rows pass the conditions that are not settled. Where all are wanted,
    /// nobody asks. Of a condition of which nothing is known, the share `unknown`.
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
            // That each says nothing of the others would be a guess, and is far off where one age
            // is asked for, and those above another.
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

    /// Of which share of the first rows all conditions are true, where that is not by chance.
    fn seen_share(&self) -> Option<f64> {
        const FOUND_MIN: u64 = 3;
        (self.seen.found >= FOUND_MIN).then(|| self.seen.found as f64 / self.seen.looked_at as f64)
    }

    /// Of which share of the rows all of these conditions are true.
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
        // By each of them is known how many of the others are tested.
        for (place, node) in conditions.iter().filter(|_| conditions.len() > 1) {
            if let Some(share @ None) = self.shares.get_mut(*place) {
                let (count, all) = self.statistics.sample(node);
                *share = Some((count as f64).max(0.5) / all.max(1) as f64);
            }
        }
        let share = match count {
            // A few may be more than there mostly are, and none is none as far as is known: to look
            // at all rows in vain is worse than to sort them.
            ..3 => (count as f64 - (count as f64).sqrt() / 2.0) / all.max(1) as f64,
            _ => count as f64 / all as f64,
        };
        self.joints.push((places, share, look::share_max(count as u64, all as u64)));
        share
    }

    /// Of what is not known it is taken that it costs most: all rows are sorted, or looked at in
    /// vain.
    fn unknown(&self) -> f64 {
        if self.question.order.is_empty() { 0.0 } else { 1.0 }
    }

    /// What it costs to test the conditions that are not settled, one after the other up to the
    /// first that is not true.
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
            // It ends with the last row that is wanted.
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

    /// By the keys of a set.
    fn by_keys(&mut self, set: KeySet, settled: &[bool]) -> Option<CostedPath> {
        let question = self.question;
        if let KeySet::Section { index, section, .. } = &set {
            // All rows, without any gain; but keys of a partial index are.
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

    /// Whether nothing is read but keys, or what the entries of the set's one index tell.
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

    /// Whether entries are counted, and none is looked at: nothing but keys is asked for, and
    /// nothing is left to test.
    fn is_counted(&self, settled: &[bool]) -> bool {
        self.question.reads.is_some_and(<[Node]>::is_empty) && settled.iter().all(|is_settled| *is_settled)
    }

    fn part_count(&self, index: usize) -> usize {
        self.indexes.get(index).map_or(0, |candidate| candidate.parts.len())
    }

    /// How many keys a set has, and what it costs to have them in order; or what the entries tell.
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

    /// The keys that are in two or three sections.
    fn intersection(&mut self, sections: &[CountedSection]) -> Option<CostedPath> {
        const COUNT_MAX: usize = 3;
        let mut sections: Vec<&CountedSection> =
            sections.iter().filter(|found| !found.section.is_whole()).collect();
        sections.sort_by(|one, other| one.estimate.total_cmp(&other.estimate));
        let (mut sets, mut settled) = (Vec::new(), vec![false; self.question.conditions.len()]);
        let mut best: Option<CostedPath> = None;
        for found in sections {
            // One that says nothing new takes time alone.
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
