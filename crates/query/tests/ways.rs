//! Is a way chosen for what it takes, memory included?
#![allow(clippy::unwrap_used, reason = "helpers of tests may do what tests may")]

use pellucid_query::expression::{Node, parse};
use pellucid_query::plan::{Access, Candidate, KEY_COUNT_MAX, Question, Statistics, ways};
use pellucid_store::Range;

/// So many entries in each range.
struct Entries(u64);

impl Statistics for Entries {
    fn entries(&mut self, _index: usize, _range: &Range) -> u64 {
        self.0
    }

    fn has_any(&mut self, _index: usize, _range: &Range) -> bool {
        false
    }

    fn sample(&mut self, _condition: &Node) -> (usize, usize) {
        (0, 0)
    }
}

/// The best way to the rows of which `a == 1`, among a thousand million, where an index over `a` has so many; `reads` as in a question.
fn best(entries: u64, reads: Option<&[Node]>) -> Access {
    const ROW_COUNT: u64 = 1_000_000_000;
    let conditions = [parse("a == 1").unwrap()];
    let part: Node = parse("a").unwrap();
    let index = Candidate {
        name: "by_a".into(),
        parts: vec![(part, false)],
        condition: None,
        entries: ROW_COUNT,
        is_unique: false,
    };
    let question = Question {
        conditions: &conditions,
        order: &[],
        is_cut_by_key: false,
        wanted: u64::MAX,
        reads,
        knows_none: true,
        row_count: ROW_COUNT,
        scan_count: ROW_COUNT,
        thread_count: 1,
    };
    ways(&question, &[index], &mut Entries(entries)).swap_remove(0).access
}

#[test]
fn keys_are_gathered_where_they_are_few() {
    assert!(matches!(best(1000, None), Access::Keys(_)));
    assert!(matches!(best(KEY_COUNT_MAX as u64, None), Access::Keys(_)));
}

#[test]
fn more_keys_than_there_is_memory_for_are_not_gathered() {
    assert!(!matches!(best(KEY_COUNT_MAX as u64 + 1, None), Access::Keys(_)));
    let key = [parse("KEY").unwrap()];
    assert!(!matches!(best(KEY_COUNT_MAX as u64 + 1, Some(&key)), Access::Keys(_)));
}

#[test]
fn entries_that_are_counted_need_no_memory() {
    assert!(matches!(best(KEY_COUNT_MAX as u64 + 1, Some(&[])), Access::Keys(_)));
}
