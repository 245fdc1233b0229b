//! Is a way chosen for what it takes, memory included?
#![allow(clippy::unwrap_used, reason = "helpers of tests may do what tests may")]

use pellucid_query::expression::{Node, parse};
use pellucid_query::plan::{
    AccessPath, Candidate, CostedPath, KEY_COUNT_MAX, Question, Seen, Statistics, access_paths,
};
use pellucid_store::Range;

/// So many entries in each range.
struct Entries(u64);

impl Statistics for Entries {
    fn entries(&mut self, _index: usize, _range: &Range) -> u64 {
        self.0
    }

    fn first_few(&mut self, _index: usize, _range: &Range, _most: u64) -> u64 {
        0
    }

    fn sample(&mut self, _condition: &Node) -> (usize, usize) {
        (0, 0)
    }

    fn look_on(&mut self, _row_count: u64) -> Seen {
        Seen::default()
    }

    fn walk(&mut self, _way: &CostedPath, _row_count: u64) -> Seen {
        Seen::default()
    }
}

/// The best way to the rows of which `a == 1`, among a thousand million, where an index over `a` has so many; `reads` as in a question.
fn best(entries: u64, reads: Option<&[Node]>) -> AccessPath {
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
    access_paths(&question, &[index], &mut Entries(entries)).swap_remove(0).access
}

#[test]
fn keys_are_gathered_where_they_are_few() {
    assert!(matches!(best(1000, None), AccessPath::Keys(_)));
    assert!(matches!(best(KEY_COUNT_MAX as u64, None), AccessPath::Keys(_)));
}

#[test]
fn more_keys_than_there_is_memory_for_are_not_gathered() {
    assert!(!matches!(best(KEY_COUNT_MAX as u64 + 1, None), AccessPath::Keys(_)));
    let key = [parse("KEY").unwrap()];
    assert!(!matches!(best(KEY_COUNT_MAX as u64 + 1, Some(&key)), AccessPath::Keys(_)));
}

#[test]
fn entries_that_are_counted_need_no_memory() {
    assert!(matches!(best(KEY_COUNT_MAX as u64 + 1, Some(&[])), AccessPath::Keys(_)));
}

/// What is known of indexes over `a`, `b` and so on, and of the first rows; and what was asked.
#[derive(Default)]
struct Asked {
    entries: Vec<u64>,
    /// One of how many rows passes, and the last one that does.
    passes: (u64, u64),
    counted: Vec<usize>,
    samples: usize,
    walked: Vec<u64>,
    seen: Seen,
    wanted: u64,
}

impl Statistics for Asked {
    fn entries(&mut self, index: usize, _range: &Range) -> u64 {
        self.counted.push(index);
        self.entries.get(index).copied().unwrap()
    }

    fn first_few(&mut self, index: usize, range: &Range, most: u64) -> u64 {
        // Decimals: none.
        let is_number =
            matches!(&range.start, std::ops::Bound::Included(start) if start.first() < Some(&0x20));
        if is_number { self.entries.get(index).copied().unwrap().min(most) } else { 0 }
    }

    fn sample(&mut self, _condition: &Node) -> (usize, usize) {
        self.samples += 1;
        (64, 128)
    }

    fn look_on(&mut self, row_count: u64) -> Seen {
        let (each, last) = self.passes;
        for _ in 0..row_count {
            if self.seen.is_over {
                break;
            }
            self.seen.looked_at += 1;
            self.seen.found +=
                u64::from(self.seen.looked_at.is_multiple_of(each) && self.seen.looked_at <= last);
            self.seen.is_over = self.seen.found >= self.wanted;
        }
        self.seen
    }

    fn walk(&mut self, _way: &CostedPath, row_count: u64) -> Seen {
        self.walked.push(row_count);
        self.look_on(row_count)
    }
}

const ROWS: u64 = 60_000;

/// The ways to the first few rows of which the conditions are true, and what was asked to choose them.
fn chosen(condition: &str, wanted: u64, asked: Asked) -> (Vec<AccessPath>, Asked) {
    chosen_in_order(&[], condition, wanted, asked)
}

/// The same in an order.
fn chosen_in_order(
    order: &[&str],
    condition: &str,
    wanted: u64,
    mut asked: Asked,
) -> (Vec<AccessPath>, Asked) {
    let order: Vec<_> = order.iter().map(|part| (parse(part).unwrap(), false)).collect();
    let conditions = pellucid_query::key_range::parts(&[parse(condition).unwrap()]);
    let indexes: Vec<Candidate> = ["a", "b", "c"]
        .iter()
        .map(|name| Candidate {
            name: (*name).to_owned(),
            parts: vec![(parse(name).unwrap(), false)],
            condition: None,
            entries: ROWS,
            is_unique: false,
        })
        .collect();
    let question = Question {
        conditions: &conditions,
        order: &order,
        is_cut_by_key: false,
        wanted,
        reads: None,
        knows_none: true,
        row_count: ROWS,
        scan_count: ROWS,
        thread_count: 1,
    };
    asked.wanted = wanted;
    let ways = access_paths(&question, &indexes, &mut asked);
    (ways.into_iter().map(|way| way.access).collect(), asked)
}

const ALL: u64 = u64::MAX;

#[test]
fn nothing_is_asked_where_no_index_is_of_use() {
    for condition in ["d == 1", "a + 1 == 2"] {
        let (ways, asked) = chosen(condition, 10, Asked { passes: (1, ALL), ..Asked::default() });
        assert_eq!(ways, [AccessPath::TableScan], "{condition}");
        assert_eq!((asked.counted, asked.samples, asked.seen), (vec![], 0, Seen::default()), "{condition}");
    }
}

#[test]
fn nothing_is_counted_where_the_first_rows_are_all_that_is_wanted() {
    let entries = || vec![ROWS / 10, ROWS / 3, ROWS / 2];
    for (each, wanted) in [(1, 200), (8, 10), (100, 1)] {
        let asked = Asked { entries: entries(), passes: (each, ALL), ..Asked::default() };
        let (ways, asked) = chosen("a == 1 or b > 3", wanted, asked);
        assert_eq!((&ways[..], asked.counted), (&[AccessPath::TableScan][..], vec![]));
    }
    // What may be far is not looked for row by row; and where all rows are wanted, none is looked at.
    let asked = Asked { entries: vec![50, 0, 0], passes: (10_000, ALL), ..Asked::default() };
    assert!(chosen("a == 1", 1, asked).1.seen.looked_at < 1_000);
    let asked = Asked { entries: entries(), passes: (1, ALL), ..Asked::default() };
    assert_eq!(chosen("a == 1", ALL, asked).1.seen, Seen::default());
}

#[test]
fn a_scan_that_finds_less_than_was_expected_is_given_up() {
    // As many entries as if one of a hundred rows passed; but those that pass are at the begin, or at the end.
    for last in [0, 400] {
        let asked = Asked { entries: vec![600, 0, 0], passes: (100, last), ..Asked::default() };
        let (ways, asked) = chosen("a == 1", 10, asked);
        assert!(matches!(ways[0], AccessPath::Keys(_)), "{ways:?}");
        assert!(asked.seen.looked_at < ROWS / 5, "{}", asked.seen.looked_at);
    }
    // And one that does find it is over by then.
    let asked = Asked { entries: vec![600, 0, 0], passes: (100, ALL), ..Asked::default() };
    let (ways, asked) = chosen("a == 1", 10, asked);
    assert_eq!((&ways[..], asked.seen.found), (&[AccessPath::TableScan][..], 10));
}

#[test]
fn an_index_without_such_entries_is_found_ahead_of_counting_others() {
    for (entries, empty) in [([100, 0, 5_000], 1), ([4_000, 5_000, 0], 2), ([0, 5_000, 4_000], 0)] {
        let asked = Asked { entries: entries.to_vec(), ..Asked::default() };
        let (ways, asked) = chosen("a == 1 and b > 3 and c < 7", ALL, asked);
        assert!(asked.counted.is_empty(), "{:?}", asked.counted);
        let AccessPath::Keys(pellucid_query::plan::KeySet::Section { index, section, .. }) = &ways[0] else {
            panic!("{ways:?}")
        };
        assert_eq!((*index, &section.ranges[..]), (empty, &[][..]));
    }
}

#[test]
fn an_index_with_next_to_no_entries_is_found_ahead_of_counting_others() {
    let asked = Asked { entries: vec![30_000, 8, 20_000], ..Asked::default() };
    let (ways, asked) = chosen("a >= 100 and b >= 5800 and b <= 5807 and c < 200", ALL, asked);
    assert_eq!(asked.counted, []);
    assert!(matches!(ways[0], AccessPath::Keys(_)));
}

#[test]
fn branches_of_an_or_count_what_they_share_once() {
    let asked = Asked { entries: vec![3_000, 4_000, 20_000], ..Asked::default() };
    let (_, asked) = chosen("(a == 1 or b == 2) and c < 200", ALL, asked);
    let mut counted = asked.counted;
    counted.sort_unstable();
    assert_eq!(counted, [0, 1, 2]);
}

#[test]
fn no_sample_is_taken_where_it_takes_as_long_as_the_best_way() {
    let asked = |entries| Asked { entries, passes: (10_000, ALL), ..Asked::default() };
    assert_eq!(chosen("a == 1 and d == 2", 10, asked(vec![100, 0, 0])).1.samples, 0);
    assert!(chosen("a == 1 and d == 2", 10, asked(vec![20_000, 0, 0])).1.samples > 0);
}

#[test]
fn a_walk_along_an_order_goes_no_further_than_the_next_best_way_would_take() {
    // Half of a sample passes, so that ten are expected among twenty; and all that pass lie at the other end.
    let asked = || Asked { entries: vec![ROWS; 3], passes: (1, 0), ..Asked::default() };
    let (ways, asked) = chosen_in_order(&["a"], "d == 1", 10, asked());
    assert_eq!(ways[0], AccessPath::TableScan);
    assert!(matches!(asked.walked[..], [100..=5_000]), "{:?}", asked.walked);
    // Once it was in vain, it is not expected to be over soon.
    assert!(matches!(ways[1], AccessPath::IndexOrder { .. }), "{ways:?}");
}

#[test]
fn a_walk_along_an_order_that_is_over_soon_is_the_way() {
    for (each, wanted) in [(1, 10), (20, 10), (300, 1)] {
        let asked = Asked { entries: vec![ROWS; 3], passes: (each, ALL), ..Asked::default() };
        let (ways, asked) = chosen_in_order(&["a"], "d == 1", wanted, asked);
        assert!(matches!(ways[0], AccessPath::IndexOrder { index: 0, .. }), "{ways:?}");
        assert_eq!((asked.walked.len(), asked.seen.looked_at), (1, each * wanted));
    }
}

#[test]
fn an_order_that_is_over_for_sure_is_not_walked_along_to_see_that() {
    // Nothing is left to test, or its very end is nearer than that of any other way.
    for (entries, condition) in [(ROWS / 2, "a >= 1"), (40, "a == 1 and d == 1")] {
        let asked = Asked { entries: vec![entries, ROWS, ROWS], ..Asked::default() };
        let (ways, asked) = chosen_in_order(&["a"], condition, 10, asked);
        assert!(!matches!(ways[0], AccessPath::TableScan), "{ways:?}");
        assert_eq!(asked.walked, [], "{condition}");
    }
}

#[test]
fn no_order_is_walked_along_in_vain_where_entries_tell_so() {
    let asked = Asked { entries: vec![ROWS, 30, ROWS], passes: (1, 0), ..Asked::default() };
    let (ways, asked) = chosen_in_order(&["a"], "b == 1", 100, asked);
    assert!(matches!(ways[0], AccessPath::Keys(_)), "{ways:?}");
    assert_eq!(asked.walked, []);
}

#[test]
fn a_scan_that_may_be_over_soon_is_looked_at_although_another_way_is_expected_to_be_best() {
    let asked = |last| Asked { entries: vec![600, 0, 0], passes: (1_500, last), ..Asked::default() };
    let (ways, near) = chosen("a == 1 and d == 1", 1, asked(ALL));
    assert_eq!((&ways[..], near.seen.looked_at), (&[AccessPath::TableScan][..], 1_500));
    let (ways, far) = chosen("a == 1 and d == 1", 1, asked(0));
    assert!(matches!(ways[0], AccessPath::Keys(_)), "{ways:?}");
    assert!(far.seen.looked_at < ROWS / 5, "{}", far.seen.looked_at);
}
