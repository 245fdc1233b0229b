//! Plans a query: estimates the cost of each access path to its rows, and puts the cheapest first.
//!
//! A table scan reaches all rows. An index reaches the rows of one range of it (`index_range.rs`).
//! The keys of two index ranges can be intersected, and for `or` united. All of these give rows in
//! the order of keys, as a scan does. An index whose own order is the one that is asked for gives
//! rows in that order. The cost of a path (`paths.rs`, `cost.rs`) follows from the number of
//! entries in its index ranges (`count.rs`), and from the share of rows that pass the conditions
//! (`shares.rs`). It is not known where these rows lie, so the planner probes a path that may end
//! early (`probe.rs`). The choice never changes the result: conditions that a path does not imply
//! are tested on the rows.
#![allow(clippy::cast_precision_loss, reason = "rough costs")]

pub mod code_ranges;
mod cost;
mod count;
mod index_range;
mod neighbours;
mod paths;
mod probe;
mod shares;

use pellucid_store::Range;

use crate::expression::Node;
use crate::walk::{ENTRY_COUNT_MIN, LOOKUP_COUNT_MIN};
use cost::Costs;
use count::Counted;
pub use index_range::{Candidate, IndexRange, index_range};
pub use paths::is_in_order;

/// The largest number of keys that are gathered, of 64 bytes each if they are short. Beyond it a
/// scan or an ordered walk is used, which needs no memory.
pub const KEY_COUNT_MAX: usize = 4_000_000;

/// What the planner has to know of a query and its table.
#[derive(Clone, Debug)]
pub struct Question<'a> {
    /// The conditions. All of them must be true.
    pub conditions: &'a [Node],
    /// The sort expressions, first to last, each with whether it is descending.
    pub order: &'a [(Node, bool)],
    /// Whether rows with some keys are left out, which an ordered walk cannot tell.
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
    /// The number of threads that share the rows, if they are many.
    pub thread_count: usize,
}

/// An access path: how rows are reached. All but the ordered walk give them in the order of keys.
#[derive(Clone, Debug, PartialEq)]
pub enum AccessPath {
    /// All rows of the table, or of the range that conditions on the key leave.
    TableScan,
    /// The rows under the keys that this condition names.
    KeyLookup(Node),
    /// The rows to which the entries in a range of an index lead.
    IndexRange(IndexRange),
    /// The rows to which entries in all of these index ranges lead.
    Intersection(Vec<IndexRange>),
    /// The rows to which entries in any of these index ranges lead.
    Union(Vec<IndexRange>),
    /// The rows of an index range, in the order of its index.
    OrderedWalk {
        /// The index range.
        index_range: IndexRange,
        /// Whether the walk goes from the end of the index range to its begin. Entries with the
        /// same parts still come in the order of keys.
        is_reverse: bool,
    },
}

impl AccessPath {
    /// The index range that the path reads, if it is one.
    #[must_use]
    pub fn index_range(&self) -> Option<&IndexRange> {
        match self {
            Self::IndexRange(index_range) | Self::OrderedWalk { index_range, .. } => Some(index_range),
            Self::TableScan | Self::KeyLookup(_) | Self::Intersection(_) | Self::Union(_) => None,
        }
    }

    /// Whether the rows come in the order of an index.
    #[must_use]
    pub fn is_ordered_walk(&self) -> bool {
        matches!(self, Self::OrderedWalk { .. })
    }
}

/// An access path and its expected cost.
#[derive(Clone, Debug)]
pub struct CostedPath {
    /// The access path.
    pub access: AccessPath,
    /// For each condition, whether the path implies it, so that it needs no test.
    pub implied: Vec<bool>,
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
    /// A path to rows whose keys are known, which costs nothing more.
    pub(crate) fn known(access: AccessPath, implied: Vec<bool>, key_count: usize) -> Self {
        Self { access, implied, is_covered: false, estimate: key_count as f64, cost: 0.0, end: None }
    }

    /// Whether it is expected to lead to so many rows that several threads share them.
    #[must_use]
    pub fn is_long(&self) -> bool {
        let least = if self.is_covered { ENTRY_COUNT_MIN } else { LOOKUP_COUNT_MIN };
        self.estimate >= least as f64
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
    fn count_up_to(&mut self, index: usize, range: &Range, most: u64) -> u64;

    /// Tests a condition on a sample of rows from all over the table. Returns how many pass, and
    /// the size of the sample.
    fn sample(&mut self, condition: &Node) -> (usize, usize);

    /// Follows a scan or an ordered walk for this many rows at most.
    fn probe(&mut self, access: &AccessPath, row_count: u64) -> Probe;
}

/// What a probe of the first rows of an access path has found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Probe {
    /// The number of rows that were read.
    pub read: u64,
    /// The number of them for which all conditions are true.
    pub passed: u64,
    /// Whether the path ends with them: there are no further rows, or no further ones are wanted.
    pub is_over: bool,
}

/// All access paths, the cheapest first. The scan alone if no index can be used, or if the first
/// rows are all that is wanted.
pub fn access_paths(
    question: &Question<'_>,
    indexes: &[Candidate],
    statistics: &mut dyn Statistics,
) -> Vec<CostedPath> {
    let costs =
        Costs { row_count: question.row_count as f64, thread_count: question.thread_count.max(1) as f64 };
    let mut planner = Planner {
        question,
        indexes,
        costs,
        statistics,
        shares: vec![None; question.conditions.len()],
        joints: Vec::new(),
        counted: Vec::new(),
        first_rows: Probe::default(),
        least: f64::INFINITY,
        may_sample: false,
        is_unsure: false,
    };
    // Finding index ranges takes as long as probing some rows, so it is done only for indexes of
    // which the query names a part.
    if !indexes.iter().any(|index| index.is_named(question.conditions, question.order))
        || planner.probe_first_rows()
    {
        return vec![planner.scan()];
    }
    let mut index_ranges = planner.index_ranges(question.conditions);
    // A whole index is useful only for its order, or for the rows that its own condition leaves
    // out.
    index_ranges.retain(|index_range| {
        !question.order.is_empty() || !index_range.is_whole() || planner.is_partial(index_range.index)
    });
    let index_ranges = planner.counted(index_ranges);
    planner.note_shares(&index_ranges);
    planner.least = index_ranges.iter().map(|index_range| index_range.estimate).fold(f64::INFINITY, f64::min);
    // A path to next to no rows is not beaten by one that leads to more.
    let has_short = index_ranges.iter().any(|index_range| planner.is_short(index_range.estimate));
    let unions = if has_short { Vec::new() } else { planner.unions() };
    let mut paths = planner.weigh(&index_ranges, &unions);
    // A sample is taken if there is a choice, and if the best path may take longer than the sample.
    if planner.is_unsure && paths.len() > 1 && paths.first().is_some_and(|best| best.cost > SAMPLE_PAYS) {
        planner.may_sample = true;
        paths = planner.weigh(&index_ranges, &unions);
    }
    planner.probe_open_path(&mut paths);
    paths
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
    /// For several conditions together, from a sample: their places, the share of rows for which
    /// all are true, and the largest share that is likely.
    joints: Vec<(Vec<usize>, f64, f64)>,
    /// Ranges that were counted before. Branches of an `or` share the other conditions.
    counted: Vec<Counted>,
    /// The probe of the first rows of the table.
    first_rows: Probe,
    /// At most this many rows pass all conditions, as far as index ranges tell.
    least: f64,
    /// Whether a sample may be taken.
    may_sample: bool,
    /// Whether some path might cost less if more were known.
    is_unsure: bool,
}

impl Planner<'_, '_> {
    /// All access paths, the cheapest first.
    fn weigh(
        &mut self,
        index_ranges: &[IndexRange],
        unions: &[(Vec<IndexRange>, Vec<bool>)],
    ) -> Vec<CostedPath> {
        let mut paths = vec![self.scan()];
        for index_range in index_ranges {
            paths.extend(self.by_keys(AccessPath::IndexRange(index_range.clone()), &index_range.implied));
            paths.extend(self.ordered_walk(index_range));
        }
        paths.extend(self.intersection(index_ranges));
        for (index_ranges, implied) in unions {
            paths.extend(self.by_keys(AccessPath::Union(index_ranges.clone()), implied));
        }
        sort_by_cost(&mut paths);
        paths
    }

    /// Whether an index has entries only for some rows, by its own condition.
    fn is_partial(&self, index: usize) -> bool {
        self.indexes.get(index).is_some_and(|candidate| candidate.condition.is_some())
    }
}

fn sort_by_cost(paths: &mut [CostedPath]) {
    paths.sort_by(|one, other| one.cost.total_cmp(&other.cost));
}
