//! How long does it take to find rows one way or another?
//!
//! In nanoseconds, roughly: what counts is which way takes less, and ways that differ little may be taken for each other. The figures are
//! rounded from what 10 to 10,000 rows of a table of 200,000 took in a warm file; how well they choose is told by
//! `./dev bench query --only "time of the way"`.
#![allow(clippy::cast_precision_loss, reason = "rough costs")]

use super::spans::operand;
use crate::expression::{Expression, Kind, Node, Source};

/// What a step of some way costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// How many rows the table has.
    pub(super) row_count: f64,
    /// On how many threads a scan runs.
    pub(super) thread_count: f64,
}

/// To begin with a range of an index: a search in its tree.
const RANGE: f64 = 600.0;
/// To go on to the next entry, take it apart and copy its key; to count it alone; to make a row of what it tells.
const ENTRY: f64 = 65.0;
const COUNTED: f64 = 20.0;
const TOLD: f64 = 60.0;
/// To look at a few rows from all over the table.
pub(super) const SAMPLE: f64 = 60_000.0;
/// To look at the first rows: about as long as it takes to count the entries of two sections.
pub(super) const LOOK: f64 = 8_000.0;
/// To put a key where it belongs among the others, for each power of two of them.
const SORT_STEP: f64 = 3.0;
/// To look at the next row of a scan: 7 among 60,000, where the pages are at hand, 23 among a million.
const SCAN_ROW: f64 = 10.0;
/// To test a condition on a field of the root (4 to 7); on one that is deeper; on one that is computed, or looked for in a text or a list (43 to 75);
/// on elements.
const TEST: f64 = 6.0;
const TEST_DEEP: f64 = 10.0;
const TEST_COMPUTED: f64 = 50.0;
const TEST_EACH: f64 = 75.0;
/// To take a row's sort code and compare it with the last of the first few.
const TOP: f64 = 8.0;
/// To take a row's sort code and key, and to keep them.
const KEPT: f64 = 150.0;
/// To look up a row in a table whose pages are all at hand.
const FETCH: f64 = 100.0;
/// More of that for each power of two by which the table has more rows than `FETCH_NEAR` has: along an index, entries included, a row took 240
/// among 15,000 and 60,000, and 450 among a million.
const FETCH_FAR: f64 = 28.0;
const FETCH_NEAR: f64 = 1000.0;
/// Rows of a page: keys that lie closer have their rows on the same, which saves half of what is far.
const PAGE: f64 = 21.0;

impl Costs {
    /// To test all rows of a scan, and to look at the order of those that pass.
    pub(super) fn scan(&self, row_count: f64, tests: f64) -> f64 {
        row_count * (SCAN_ROW + tests) / self.thread_count
    }

    /// To look at one row of a scan.
    pub(super) fn scan_row(tests: f64) -> f64 {
        SCAN_ROW + tests
    }

    /// To read the entries of some ranges.
    pub(super) fn entries(range_count: usize, entry_count: f64) -> f64 {
        RANGE * range_count as f64 + ENTRY * entry_count
    }

    /// To take what the entries of some ranges tell, or (`is_bare`) to count them.
    pub(super) fn told(range_count: usize, entry_count: f64, is_bare: bool) -> f64 {
        RANGE * range_count as f64 + if is_bare { COUNTED } else { TOLD } * entry_count
    }

    /// To bring keys in order.
    pub(super) fn keys_in_order(count: f64) -> f64 {
        SORT_STEP * count * count.max(2.0).log2()
    }

    /// To look rows up by keys, in order or not, and to test them.
    pub(super) fn fetch(&self, count: f64, is_in_order: bool, tests: f64) -> f64 {
        let far = (self.row_count / FETCH_NEAR).max(1.0).log2() * FETCH_FAR;
        let near = if is_in_order { (count * PAGE / self.row_count.max(1.0)).min(1.0) } else { 0.0 };
        count * (FETCH + far * (1.0 - near / 2.0) + tests)
    }

    /// To bring rows in another order, of which so many are wanted.
    pub(super) fn sort(count: f64, wanted: f64) -> f64 {
        let kept = count.min(wanted);
        TOP * count + (KEPT + SORT_STEP * kept.max(2.0).log2()) * kept
    }
}

impl Costs {
    /// To bring what entries have told in another order, by so many expressions; of those that are wanted each is found by its key.
    pub(super) fn sort_told(order_count: usize, count: f64, wanted: f64) -> f64 {
        if order_count == 0 { 0.0 } else { Self::sort(count, wanted) + SORT_STEP * 10.0 * count.min(wanted) }
    }
}

/// What it costs to test a condition on a row.
pub(super) fn test(condition: &Node) -> f64 {
    match condition.kind() {
        Kind::And(parts) | Kind::Or(parts) => parts.iter().map(test).sum(),
        Kind::Not(part) => test(part),
        _ if operand(condition).is_some_and(Expression::branches) => TEST_EACH,
        Kind::IsIn(..) => TEST_COMPUTED,
        _ => match operand(condition).map(Expression::kind) {
            Some(Kind::Field(Source::Record, path)) if path.len() == 1 => TEST,
            Some(Kind::Field(Source::Record, _)) => TEST_DEEP,
            _ => TEST_COMPUTED,
        },
    }
}
