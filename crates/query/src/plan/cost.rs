//! Estimates what an access path costs.
//!
//! Costs are in nanoseconds, roughly. They only have to tell which access path is faster; they
//! cannot tell paths of nearly the same cost apart. The figures are rounded from measurements of 10
//! to 10,000 rows of a table of 200,000 in a warm file. To see how well they choose, run `./dev
//! bench query --only "time of the way"`.
#![allow(clippy::cast_precision_loss, reason = "rough costs")]

use super::code_ranges::{is_equality, operand};
use crate::expression::{Expression, Kind, Node, Source};
use crate::walk::{ENTRY_COUNT_MIN, LOOKUP_COUNT_MIN, SCAN_COUNT_MIN};

/// The costs of the steps of access paths, for one table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Costs {
    /// The number of rows of the table.
    pub(super) row_count: f64,
    /// The number of threads that share many rows.
    pub(super) thread_count: f64,
}

/// Start of an index range: one search in the index's tree.
const RANGE: f64 = 600.0;
/// One entry of an index range: step to it, split it and copy its key. Counting an entry alone
/// costs `COUNTED` (5 to 9 for ints and strings, 11 to 27 for floats).
const ENTRY: f64 = 65.0;
const COUNTED: f64 = 12.0;
/// One row read from an entry of a covering index: make the row of one part (`COVERED_PART` for
/// each further part) and add it up. Measured: 52 to 71 for an int, 72 to 90 for a string, 65 to
/// 101 for two ints, 88 to 126 for three parts (30,000 and 300,000 rows, 3 % and 10 % of them). A
/// float with a fraction took 113 to 145, but the planner cannot know beforehand that it is one.
const COVERED: f64 = 70.0;
const COVERED_PART: f64 = 20.0;
/// Sample: read a few rows from all over the table.
pub(super) const SAMPLE: f64 = 60_000.0;
/// Cost limit of the probe of the first rows: that of counting the entries of two index ranges.
pub(super) const COUNT_TWO: f64 = 8_000.0;
/// Sorting one key into its place, for each doubling of the number of keys.
const SORT_STEP: f64 = 3.0;
/// Next row of a scan, on one thread. With a test of a number, and one row in 10,000 that passes, a
/// row takes 12 to 13 among 60,000 rows of 190 bytes, and 13 to 15 among a million. This leaves out
/// what is done with rows that pass. That cost is the same for every access path, so it makes no
/// difference to the choice: nothing for a count, 2 for a sum, 10 for a group, 30 for a record, 30
/// to 100 for a value in a list, 300 for a dict of two.
const SCAN_ROW: f64 = 8.0;
/// Test of a condition on a field of the root (4 to 7). `TEST_DEEP`: on a nested field.
/// `TEST_COMPUTED`: on a computed value, or a search in a text or a list (43 to 75). `TEST_EACH`:
/// on elements.
const TEST: f64 = 6.0;
/// Test with two bounds, and each branch of an `or` after the first: more than one comparison.
const TEST_MORE: f64 = 4.0;
const TEST_DEEP: f64 = 10.0;
const TEST_COMPUTED: f64 = 50.0;
const TEST_EACH: f64 = 75.0;
/// Top rows: make a row's sort code, and compare it with the last of the top rows.
const TOP: f64 = 8.0;
/// Top rows: copy a row's sort code and key, and keep them.
const KEPT: f64 = 150.0;
/// Lookup of a row in a table whose pages are all in the caches.
const FETCH: f64 = 100.0;
/// Added to a lookup for each doubling of the table beyond `FETCH_CACHED` rows. Along an index,
/// with entries and a test, a row took 190 to 250 among 3,000 rows of 190 bytes, 250 to 325 among
/// 15,000, and 490 to 930 among 60,000 while other programs used the caches; 450 among a million
/// when no other program did.
const FETCH_FAR: f64 = 42.0;
const FETCH_CACHED: f64 = 1000.0;
/// Reverse order: keep the key of an entry until all entries with the same parts are reversed.
const TURNED: f64 = 50.0;
/// Rows of a page. Keys closer than this have their rows on the same page, which saves half of the
/// added cost of a far lookup.
const PAGE: f64 = 21.0;

impl Costs {
    /// The cost to test all rows of a scan, and to read the sort code of those that pass.
    pub(super) fn scan(&self, row_count: f64, tests: f64) -> f64 {
        row_count * (SCAN_ROW + tests) / self.sharing(self.row_count, SCAN_COUNT_MIN)
    }

    /// The number of threads for this many rows or entries, if `least` of them are shared.
    fn sharing(&self, count: f64, least: u64) -> f64 {
        if count >= least as f64 { self.thread_count } else { 1.0 }
    }

    /// The cost of one row of a scan.
    pub(super) fn scan_row(tests: f64) -> f64 {
        SCAN_ROW + tests
    }

    /// The cost to read the entries of some ranges.
    pub(super) fn entries(&self, range_count: usize, entry_count: f64) -> f64 {
        RANGE * range_count as f64 + ENTRY * entry_count / self.sharing(entry_count, ENTRY_COUNT_MIN)
    }

    /// The cost to count the entries of some ranges.
    pub(super) fn counted(&self, range_count: usize, entry_count: f64) -> f64 {
        RANGE * range_count as f64 + COUNTED * entry_count / self.sharing(entry_count, SCAN_COUNT_MIN)
    }

    /// The cost to read rows from the entries of some ranges of a covering index, with this many
    /// parts.
    pub(super) fn covered(&self, range_count: usize, entry_count: f64, part_count: usize) -> f64 {
        let more = COVERED_PART * part_count.saturating_sub(1) as f64;
        RANGE * range_count as f64
            + (COVERED + more) * entry_count / self.sharing(entry_count, ENTRY_COUNT_MIN)
    }

    /// The cost to sort keys.
    pub(super) fn keys_in_order(&self, count: f64) -> f64 {
        SORT_STEP * count * count.max(2.0).log2() / self.sharing(count, ENTRY_COUNT_MIN)
    }

    /// The cost to look rows up by their keys, sorted or not, and to test them.
    pub(super) fn fetch(&self, count: f64, is_in_order: bool, tests: f64) -> f64 {
        let far = (self.row_count / FETCH_CACHED).max(1.0).log2() * FETCH_FAR;
        let shared = if is_in_order { (count * PAGE / self.row_count.max(1.0)).min(1.0) } else { 0.0 };
        count * (FETCH + far * (1.0 - shared / 2.0) + tests) / self.sharing(count, LOOKUP_COUNT_MIN)
    }

    /// The cost to look up this many rows along an index, and to test them.
    pub(super) fn walk(&self, count: f64, is_reverse: bool, tests: f64) -> f64 {
        // Rows are given one by one. A key is copied only where entries are reversed.
        let entry = if is_reverse { COUNTED + TURNED } else { COUNTED };
        RANGE + count * entry + self.fetch(count, false, tests)
    }

    /// The cost to sort rows, of which only the first `wanted` are kept.
    pub(super) fn sort(count: f64, wanted: f64) -> f64 {
        let kept = count.min(wanted);
        TOP * count + (KEPT + SORT_STEP * kept.max(2.0).log2()) * kept
    }

    /// The cost to sort rows that were read from a covering index, by this many expressions. Each
    /// wanted row is then found again by its key.
    pub(super) fn sort_covered(order_count: usize, count: f64, wanted: f64) -> f64 {
        if order_count == 0 { 0.0 } else { Self::sort(count, wanted) + SORT_STEP * 10.0 * count.min(wanted) }
    }
}

/// The assumed share of rows for which a condition is true, if nothing is known about it.
pub(super) fn share_unknown(condition: &Node) -> f64 {
    if is_equality(condition) { 0.1 } else { 0.5 }
}

/// The cost to test a condition on a row.
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
