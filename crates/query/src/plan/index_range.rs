//! Finds the range of one index that has an entry for every row for which some conditions are
//! true.
//!
//! Conditions on the first parts leave ranges of codes, as long as each part but the last one is
//! left with single codes. A row has no entry if a part is missing or cannot be a key, or if the
//! index's own condition is not true for it. So an index can be used only in two cases: the
//! conditions of the query make sure that each wanted row has an entry, or every row of the table
//! has one.

use pellucid_store::Range;

use super::code_ranges::{CodeRange, CodeRanges, code_ranges, is_equality, operand};
use crate::expression::{Expression, Kind, Node};
use crate::index::beginning_with;

/// An index, as the planner sees it.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// The expressions that its entries are ordered by, each with whether it is descending.
    pub parts: Vec<(Node, bool)>,
    /// The index's own condition: it has entries only for rows for which this is true.
    pub condition: Option<Node>,
    /// The number of its entries.
    pub entries: u64,
    /// Whether no two entries have the same parts.
    pub is_unique: bool,
}

impl Candidate {
    /// Whether a row may have several entries.
    #[must_use]
    pub fn is_multi_valued(&self) -> bool {
        self.parts.iter().any(|(part, _)| part.branches())
    }

    /// Whether a condition or the order names one of its parts. An index without that cannot be
    /// used.
    #[must_use]
    pub fn is_named(&self, conditions: &[Node], order: &[(Node, bool)]) -> bool {
        let is_named = |part: &Node| {
            order.iter().any(|(node, _)| node == part) || conditions.iter().any(|node| names(node, part))
        };
        self.parts.iter().any(|(part, _)| is_named(part))
    }

    fn conditions(&self) -> Vec<Node> {
        crate::key_range::parts(self.condition.as_slice())
    }
}

/// The part of an index that a query needs.
#[derive(Clone, Debug, PartialEq)]
pub struct IndexRange {
    /// The position of the index among the candidates.
    pub index: usize,
    /// The ranges of its entries, in order.
    pub ranges: Vec<Range>,
    /// How many of the first parts each range leaves with a single code.
    pub point_count: usize,
    /// Whether a condition compares an order, also if it leaves a part with single codes. The
    /// entries may then have complex numbers, which equal numbers but have no order.
    pub has_code_range: bool,
    /// The conditions that have narrowed the index range.
    pub used: Vec<Node>,
    /// For each condition, whether it is true for each row that has an entry in the index range, so
    /// that it needs no test.
    pub implied: Vec<bool>,
    /// The expected number of entries in it; 0 until they are counted.
    pub estimate: f64,
}

impl IndexRange {
    /// Whether the index range is the whole index.
    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.ranges == [Range::ALL]
    }

    /// The expected number of entries.
    #[expect(clippy::cast_sign_loss, reason = "a number of entries")]
    pub(crate) fn entry_count(&self) -> u64 {
        self.estimate as u64
    }

    /// Whether its entries come in the order of the rows' keys: it has one range, with a single
    /// code for each of the index's `part_count` parts.
    #[must_use]
    pub fn is_in_key_order(&self, part_count: usize) -> bool {
        self.ranges.len() == 1 && self.point_count == part_count
    }
}

/// The largest number of ranges that are worth looking up one by one.
const RANGE_COUNT_MAX: usize = 1000;

/// The range of an index that has the entries of all rows for which `conditions` are true. None
/// if the index may lack some of them. `row_count` is that of the table. The caller sets the
/// index range's `index`.
#[must_use]
pub fn index_range(index: &Candidate, conditions: &[Node], row_count: u64) -> Option<IndexRange> {
    let mut used = vec![false; conditions.len()];
    let mut implied = used.clone();
    for wanted in index.conditions() {
        if !conditions.iter().any(|condition| implies(condition, &wanted)) {
            return None;
        }
        for (condition, is_implied) in conditions.iter().zip(&mut implied) {
            *is_implied |= *condition == wanted;
        }
    }
    // If there are as many entries as rows, each row has one.
    let is_total = index.condition.is_none() && !index.is_multi_valued() && index.entries == row_count;
    let mut prefixes = vec![Vec::new()];
    let mut ranges = None;
    let mut point_count = 0;
    for (place, (part, is_descending)) in index.parts.iter().enumerate() {
        let on_this = on_part(part, conditions);
        if !is_total && on_this.is_empty() {
            return None;
        }
        if ranges.is_some() || place > point_count {
            continue;
        }
        let Some(left) = all_of(part, &on_this, (&mut used, &mut implied)) else { continue };
        if left.code_ranges.iter().all(CodeRange::is_point)
            && left.code_ranges.len() * prefixes.len() <= RANGE_COUNT_MAX
        {
            let points = |prefix: &Vec<u8>| -> Vec<Vec<u8>> {
                left.code_ranges
                    .iter()
                    .map(|code_range| code_range.point_after(prefix, *is_descending))
                    .collect()
            };
            prefixes = prefixes.iter().flat_map(points).collect();
            point_count += 1;
        } else {
            let within = |prefix: &Vec<u8>| -> Vec<Range> {
                let range = |code_range: &CodeRange| {
                    let code_range = code_range.after(prefix, *is_descending);
                    Range::half_open(code_range.start, code_range.end)
                };
                left.code_ranges.iter().map(range).collect()
            };
            ranges = Some(prefixes.iter().flat_map(within).collect::<Vec<_>>());
        }
    }
    let used = conditions.iter().zip(used).filter(|(_, is_used)| *is_used);
    let used: Vec<Node> = used.map(|(condition, _)| condition.clone()).collect();
    let has_code_range = ranges.is_some() || used.iter().any(|condition| !is_equality(condition));
    let mut ranges = match ranges {
        Some(ranges) => ranges,
        None if point_count == 0 => vec![Range::ALL],
        None => prefixes.iter().map(|prefix| beginning_with(prefix)).collect(),
    };
    ranges.sort_by(|one, other| start_of(one).cmp(start_of(other)));
    Some(IndexRange { index: 0, ranges, point_count, has_code_range, used, implied, estimate: 0.0 })
}

fn start_of(range: &Range) -> &[u8] {
    match &range.start {
        std::ops::Bound::Included(start) | std::ops::Bound::Excluded(start) => start,
        std::ops::Bound::Unbounded => &[],
    }
}

/// Whether a condition, or a branch of it, compares this part with a value.
fn names(condition: &Node, part: &Node) -> bool {
    match condition.kind() {
        Kind::And(nodes) | Kind::Or(nodes) => nodes.iter().any(|node| names(node, part)),
        _ => operand(condition).is_some_and(|operand| *operand == **part),
    }
}

/// The code ranges that each condition on a part leaves, and the place of the condition.
fn on_part(part: &Expression, conditions: &[Node]) -> Vec<(usize, CodeRanges)> {
    let on_it = conditions
        .iter()
        .enumerate()
        .filter_map(|(place, condition)| Some((place, code_ranges(condition, part)?)));
    on_it.collect()
}

/// Intersects the code ranges that the conditions leave, and marks those conditions as implied
/// whose code ranges are exact. None if there is no such condition.
fn all_of(
    part: &Expression,
    on_this: &[(usize, CodeRanges)],
    (used, implied): (&mut [bool], &mut [bool]),
) -> Option<CodeRanges> {
    let mut left: Option<CodeRanges> = None;
    for (place, code_ranges) in on_this {
        // If the part has many values in a row, one element may make one condition true, and
        // another element the other: their code ranges must not be intersected.
        if part.branches() && left.is_some() {
            break;
        }
        if let (Some(is_used), Some(is_implied)) = (used.get_mut(*place), implied.get_mut(*place)) {
            *is_used = true;
            *is_implied |= code_ranges.is_exact;
        }
        left = Some(match left {
            None => code_ranges.clone(),
            Some(before) => before.and(code_ranges),
        });
    }
    left
}

/// Whether `wanted` is true for every row for which `condition` is true.
fn implies(condition: &Node, wanted: &Node) -> bool {
    if condition == wanted {
        return true;
    }
    let Some(part) = operand(wanted) else { return false };
    let Some(on_this) = code_ranges(condition, part) else { return false };
    if matches!(wanted.kind(), Kind::Exists(_)) {
        return true;
    }
    // A value that equals a number may be complex, and then no comparison of order is true for it.
    let lacks_some = !is_equality(wanted) && is_equality(condition) && on_this.has_numbers();
    !lacks_some
        && code_ranges(wanted, part).is_some_and(|wanted| wanted.is_exact && on_this.is_within(&wanted))
}
