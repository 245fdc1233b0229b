//! Estimates what an access path costs.
//!
//! Costs are in nanoseconds, roughly. They only have to tell which access path is faster; paths of
//! nearly the same cost may be mistaken for each other. The figures are rounded from measurements
//! of 10 to 10,000 rows of a table of 200,000 in a warm file. To see how well they choose, run
//! `./dev bench query --only "time of the way"`.
#![allow(clippy::cast_precision_loss, reason = "rough costs")]

use super::spans::{is_equality, operand};
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
/// To go on to the next entry, take it apart and copy its key; to count it alone (5 to 9 of ints
/// and strings, 11 to 27 of floats).
const ENTRY: f64 = 65.0;
const COUNTED: f64 = 12.0;
/// To make a row of what an entry tells, of one part, and of each more, and to add it up: 52 to 71
/// of an int, 72 to 90 of a string, 65 to 101 of two ints, 88 to 126 of three parts; a float with a
/// fraction took 113 to 145, which nobody knows beforehand (30,000 and 300,000 rows, 3 and 10 of a
/// hundred of them).
const TOLD: f64 = 70.0;
const TOLD_PART: f64 = 20.0;
/// To look at a few rows from all over the table.
pub(super) const SAMPLE: f64 = 60_000.0;
/// To look at the first rows: about as long as it takes to count the entries of two sections.
pub(super) const LOOK: f64 = 8_000.0;
/// To put a key where it belongs among the others, for each power of two of them.
const SORT_STEP: f64 = 3.0;
/// To look at the next row of a scan, on one thread. With a test of a number in it, and one row in
/// 10,000 that passes, that is 12 to 13 among 60,000 rows of 190 bytes and 13 to 15 among a
/// million, whatever becomes of those that pass. What becomes of these is added whichever way has
/// found them, and so makes no difference to which one is best: nothing for a count, 2 for a sum,
/// 10 for a group, 30 for a record, 30 to 100 for a value in a list, 300 for a dict of two.
const SCAN_ROW: f64 = 8.0;
/// To test a condition on a field of the root (4 to 7); on one that is deeper; on one that is
/// computed, or looked for in a text or a list (43 to 75); on elements.
const TEST: f64 = 6.0;
/// To test with two bounds, and each branch of an `or` behind the first one: more than a comparison
/// does.
const TEST_MORE: f64 = 4.0;
const TEST_DEEP: f64 = 10.0;
const TEST_COMPUTED: f64 = 50.0;
const TEST_EACH: f64 = 75.0;
/// To take a row's sort code and compare it with the last of the first few.
const TOP: f64 = 8.0;
/// To take a row's sort code and key, and to keep them.
const KEPT: f64 = 150.0;
/// To look up a row in a table whose pages are all at hand.
const FETCH: f64 = 100.0;
/// More of that for each power of two by which the table has more rows than `FETCH_NEAR` has: along
/// an index, entries and a test included, a row took 190 to 250 among 3,000 of 190 bytes, 250 to
/// 325 among 15,000, and 490 to 930 among 60,000, where others used the caches as well; 450 among a
/// million where nobody did.
const FETCH_FAR: f64 = 42.0;
const FETCH_NEAR: f64 = 1000.0;
/// To keep the key of an entry until those with the same parts are turned round.
const TURNED: f64 = 50.0;
/// Rows of a page: keys that lie closer have their rows on the same, which saves half of what is
/// far.
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

    /// To count the entries of some ranges.
    pub(super) fn counted(range_count: usize, entry_count: f64) -> f64 {
        RANGE * range_count as f64 + COUNTED * entry_count
    }

    /// To take what the entries of some ranges tell, of so many parts.
    pub(super) fn told(range_count: usize, entry_count: f64, part_count: usize) -> f64 {
        let more = TOLD_PART * part_count.saturating_sub(1) as f64;
        RANGE * range_count as f64 + (TOLD + more) * entry_count
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

    /// To look up so many rows along an index, and to test them.
    pub(super) fn walk(&self, count: f64, is_reverse: bool, tests: f64) -> f64 {
        // Row by row, so that no key is copied but where entries are turned round.
        let entry = if is_reverse { COUNTED + TURNED } else { COUNTED };
        RANGE + count * entry + self.fetch(count, false, tests)
    }

    /// To bring rows in another order, of which so many are wanted.
    pub(super) fn sort(count: f64, wanted: f64) -> f64 {
        let kept = count.min(wanted);
        TOP * count + (KEPT + SORT_STEP * kept.max(2.0).log2()) * kept
    }
}

impl Costs {
    /// To bring what entries have told in another order, by so many expressions; of those that are
    /// wanted each is found by its key.
    pub(super) fn sort_told(order_count: usize, count: f64, wanted: f64) -> f64 {
        if order_count == 0 { 0.0 } else { Self::sort(count, wanted) + SORT_STEP * 10.0 * count.min(wanted) }
    }
}

/// Of which share of the rows a condition is true of which nothing is known.
pub(super) fn share_unknown(condition: &Node) -> f64 {
    if is_equality(condition) { 0.1 } else { 0.5 }
}

/// What it costs to test a condition on a row.
pub(super) fn test(condition: &Node) -> f64 {
    match condition.kind() {
        Kind::And(parts) => parts.iter().map(test).sum(),
        Kind::Or(parts) => parts.iter().map(|part| TEST_MORE + test(part)).sum(),
        Kind::Not(part) => test(part),
        _ if operand(condition).is_some_and(Expression::branches) => TEST_EACH,
        Kind::IsIn(..) => TEST_COMPUTED,
        _ => match operand(condition).map(Expression::kind) {
            Some(Kind::Field(Source::Record, path)) => {
                let bounds = if matches!(condition.kind(), Kind::Between(..)) { TEST_MORE } else { 0.0 };
                bounds + if path.len() == 1 { TEST } else { TEST_DEEP }
            }
            _ => TEST_COMPUTED,
        },
    }
}
