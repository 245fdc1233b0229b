//! Holds the planner to what it chooses, and to what it asks before: counts, samples and probes.
#![allow(clippy::unwrap_used, reason = "helpers of tests may do what tests may")]

use pellucid_query::expression::{Node, parse};
use pellucid_query::plan::{AccessPath, Candidate, KEY_COUNT_MAX, Probe, Question, Statistics, access_paths};
use pellucid_store::Range;

/// Whether a range has the numbers, and not the Decimals.
fn has_numbers(range: &Range) -> bool {
    matches!(&range.start, std::ops::Bound::Included(start) if start.first() < Some(&0x20))
}

/// So many entries in each range of numbers, and no Decimals.
struct Entries(u64);

impl Statistics for Entries {
    fn entries(&mut self, _index: usize, range: &Range) -> u64 {
        if has_numbers(range) { self.0 } else { 0 }
    }

    fn count_up_to(&mut self, _index: usize, _range: &Range, _most: u64) -> u64 {
        0
    }

    fn sample(&mut self, _condition: &Node) -> (usize, usize) {
        (0, 0)
    }

    fn probe(&mut self, _access: &AccessPath, _row_count: u64) -> Probe {
        Probe::default()
    }
}

/// The best path to the rows of which `a == 1`, among a thousand million, where an index over `a` has so many; `reads` as in a question.
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
    assert!(matches!(best(1000, None), AccessPath::IndexRange(_)));
    assert!(matches!(best(KEY_COUNT_MAX as u64, None), AccessPath::IndexRange(_)));
}

#[test]
fn more_keys_than_there_is_memory_for_are_not_gathered() {
    assert!(!matches!(best(KEY_COUNT_MAX as u64 + 1, None), AccessPath::IndexRange(_)));
    let key = [parse("KEY").unwrap()];
    assert!(!matches!(best(KEY_COUNT_MAX as u64 + 1, Some(&key)), AccessPath::IndexRange(_)));
}

#[test]
fn entries_that_are_counted_need_no_memory() {
    assert!(matches!(best(KEY_COUNT_MAX as u64 + 1, Some(&[])), AccessPath::IndexRange(_)));
}

/// What is known of indexes over `a`, `b` and so on, and of the first rows; and what was asked.
#[derive(Default)]
struct RecordedStatistics {
    entries: Vec<u64>,
    /// One of how many rows passes, and the last one that does.
    passes: (u64, u64),
    counted: Vec<usize>,
    samples: usize,
    /// The probes along an index: how many rows each may read.
    walked: Vec<u64>,
    /// What the last probe has found.
    probe: Probe,
    /// The number of rows that all probes have read.
    read: u64,
    wanted: u64,
}

impl Statistics for RecordedStatistics {
    fn entries(&mut self, index: usize, range: &Range) -> u64 {
        if !has_numbers(range) {
            return 0;
        }
        self.counted.push(index);
        self.entries.get(index).copied().unwrap()
    }

    fn count_up_to(&mut self, index: usize, range: &Range, most: u64) -> u64 {
        if has_numbers(range) { self.entries.get(index).copied().unwrap().min(most) } else { 0 }
    }

    fn sample(&mut self, _condition: &Node) -> (usize, usize) {
        self.samples += 1;
        (64, 128)
    }

    fn probe(&mut self, access: &AccessPath, row_count: u64) -> Probe {
        if access.is_ordered_walk() {
            self.walked.push(row_count);
        }
        let (each, last) = self.passes;
        self.probe = Probe::default();
        while !self.probe.is_over && self.probe.read < row_count {
            self.probe.read += 1;
            let passes = self.probe.read.is_multiple_of(each) && self.probe.read <= last;
            self.probe.passed += u64::from(passes);
            self.probe.is_over = self.probe.passed >= self.wanted;
        }
        self.read += self.probe.read;
        self.probe
    }
}

const ROWS: u64 = 60_000;

/// The access paths to the first few rows of which the conditions are true, and what was asked to choose them.
fn chosen(
    condition: &str,
    wanted: u64,
    recorded: RecordedStatistics,
) -> (Vec<AccessPath>, RecordedStatistics) {
    chosen_in_order(&[], condition, wanted, recorded)
}

/// The same in an order.
fn chosen_in_order(
    order: &[&str],
    condition: &str,
    wanted: u64,
    mut recorded: RecordedStatistics,
) -> (Vec<AccessPath>, RecordedStatistics) {
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
    recorded.wanted = wanted;
    let paths = access_paths(&question, &indexes, &mut recorded);
    (paths.into_iter().map(|path| path.access).collect(), recorded)
}

const ALL: u64 = u64::MAX;

#[test]
fn nothing_is_asked_where_no_index_is_of_use() {
    for condition in ["d == 1", "a + 1 == 2"] {
        let (paths, recorded) =
            chosen(condition, 10, RecordedStatistics { passes: (1, ALL), ..RecordedStatistics::default() });
        assert_eq!(paths, [AccessPath::TableScan], "{condition}");
        assert_eq!((recorded.counted, recorded.samples, recorded.read), (vec![], 0, 0), "{condition}");
    }
}

#[test]
fn nothing_is_counted_where_the_first_rows_are_all_that_is_wanted() {
    let entries = || vec![ROWS / 10, ROWS / 3, ROWS / 2];
    for (each, wanted) in [(1, 200), (8, 10), (100, 1)] {
        let recorded =
            RecordedStatistics { entries: entries(), passes: (each, ALL), ..RecordedStatistics::default() };
        let (paths, recorded) = chosen("a == 1 or b > 3", wanted, recorded);
        assert_eq!((&paths[..], recorded.counted), (&[AccessPath::TableScan][..], vec![]));
    }
    // What may be far is not looked for row by row; and where all rows are wanted, none is probed.
    let recorded = RecordedStatistics {
        entries: vec![50, 0, 0],
        passes: (10_000, ALL),
        ..RecordedStatistics::default()
    };
    assert!(chosen("a == 1", 1, recorded).1.read < 1_000);
    let recorded =
        RecordedStatistics { entries: entries(), passes: (1, ALL), ..RecordedStatistics::default() };
    assert_eq!(chosen("a == 1", ALL, recorded).1.read, 0);
}

#[test]
fn a_scan_that_finds_less_than_was_expected_is_given_up() {
    // As many entries as if one of a hundred rows passed; but those that pass are at the begin, or at the end.
    for last in [0, 400] {
        let recorded = RecordedStatistics {
            entries: vec![600, 0, 0],
            passes: (100, last),
            ..RecordedStatistics::default()
        };
        let (paths, recorded) = chosen("a < 1", 10, recorded);
        assert!(matches!(paths[0], AccessPath::IndexRange(_)), "{paths:?}");
        assert!(recorded.read < ROWS / 5, "{}", recorded.read);
    }
    // And one that does find it is over by then.
    let recorded =
        RecordedStatistics { entries: vec![600, 0, 0], passes: (100, ALL), ..RecordedStatistics::default() };
    let (paths, recorded) = chosen("a < 1", 10, recorded);
    assert_eq!((&paths[0], recorded.probe.passed), (&AccessPath::TableScan, 10));
}

#[test]
fn of_the_entries_of_a_value_no_more_are_read_than_are_wanted() {
    for last in [0, 400, ALL] {
        let recorded = RecordedStatistics {
            entries: vec![4_000, 0, 0],
            passes: (100, last),
            ..RecordedStatistics::default()
        };
        let (paths, recorded) = chosen("a == 1", 10, recorded);
        let AccessPath::IndexRange(index_range) = &paths[0] else { panic!("{paths:?}") };
        assert!(index_range.estimate <= 10.0, "{index_range:?}");
        // The probe of the first rows is all that is read beside them.
        assert!(recorded.read < 1_000, "{}", recorded.read);
    }
}

#[test]
fn an_index_without_such_entries_is_found_ahead_of_counting_others() {
    for (entries, empty) in [([100, 0, 5_000], 1), ([4_000, 5_000, 0], 2), ([0, 5_000, 4_000], 0)] {
        let recorded = RecordedStatistics { entries: entries.to_vec(), ..RecordedStatistics::default() };
        let (paths, recorded) = chosen("a == 1 and b > 3 and c < 7", ALL, recorded);
        assert!(recorded.counted.is_empty(), "{:?}", recorded.counted);
        let AccessPath::IndexRange(index_range) = &paths[0] else { panic!("{paths:?}") };
        assert_eq!((index_range.index, &index_range.ranges[..]), (empty, &[][..]));
    }
}

#[test]
fn an_index_with_next_to_no_entries_is_found_ahead_of_counting_others() {
    let recorded = RecordedStatistics { entries: vec![30_000, 8, 20_000], ..RecordedStatistics::default() };
    let (paths, recorded) = chosen("a >= 100 and b >= 5800 and b <= 5807 and c < 200", ALL, recorded);
    assert_eq!(recorded.counted, []);
    assert!(matches!(paths[0], AccessPath::IndexRange(_)));
}

#[test]
fn branches_of_an_or_count_what_they_share_once() {
    let recorded =
        RecordedStatistics { entries: vec![3_000, 4_000, 20_000], ..RecordedStatistics::default() };
    let (_, recorded) = chosen("(a == 1 or b == 2) and c < 200", ALL, recorded);
    let mut counted = recorded.counted;
    counted.sort_unstable();
    assert_eq!(counted, [0, 1, 2]);
}

#[test]
fn no_sample_is_taken_where_it_takes_as_long_as_the_best_path() {
    let recorded =
        |entries| RecordedStatistics { entries, passes: (10_000, ALL), ..RecordedStatistics::default() };
    assert_eq!(chosen("a == 1 and d == 2", 10, recorded(vec![100, 0, 0])).1.samples, 0);
    assert!(chosen("a == 1 and d == 2", 10, recorded(vec![20_000, 0, 0])).1.samples > 0);
}

#[test]
fn a_walk_along_an_order_goes_no_further_than_the_next_best_path_would_take() {
    // Half of a sample passes, so that ten are expected among twenty; and all that pass lie at the other end.
    let recorded =
        || RecordedStatistics { entries: vec![ROWS; 3], passes: (1, 0), ..RecordedStatistics::default() };
    let (paths, recorded) = chosen_in_order(&["a"], "d == 1", 10, recorded());
    assert_eq!(paths[0], AccessPath::TableScan);
    assert!(matches!(recorded.walked[..], [100..=5_000]), "{:?}", recorded.walked);
    // Once it was in vain, it is not expected to be over soon.
    assert!(matches!(paths[1], AccessPath::OrderedWalk { .. }), "{paths:?}");
}

#[test]
fn a_walk_along_an_order_that_is_over_soon_is_the_path() {
    for (each, wanted) in [(1, 10), (20, 10), (300, 1)] {
        let recorded = RecordedStatistics {
            entries: vec![ROWS; 3],
            passes: (each, ALL),
            ..RecordedStatistics::default()
        };
        let (paths, recorded) = chosen_in_order(&["a"], "d == 1", wanted, recorded);
        assert!(
            matches!(&paths[0], AccessPath::OrderedWalk { index_range, .. } if index_range.index == 0),
            "{paths:?}"
        );
        assert_eq!((recorded.walked.len(), recorded.probe.read), (1, each * wanted));
    }
}

#[test]
fn an_order_that_is_over_for_sure_is_not_walked_along_to_see_that() {
    // Nothing is left to test, or its very end is nearer than that of any other path.
    for (entries, condition) in [(ROWS / 2, "a >= 1"), (40, "a == 1 and d == 1")] {
        let recorded =
            RecordedStatistics { entries: vec![entries, ROWS, ROWS], ..RecordedStatistics::default() };
        let (paths, recorded) = chosen_in_order(&["a"], condition, 10, recorded);
        assert!(!matches!(paths[0], AccessPath::TableScan), "{paths:?}");
        assert_eq!(recorded.walked, [], "{condition}");
    }
}

#[test]
fn no_order_is_walked_along_in_vain_where_entries_tell_so() {
    let recorded =
        RecordedStatistics { entries: vec![ROWS, 30, ROWS], passes: (1, 0), ..RecordedStatistics::default() };
    let (paths, recorded) = chosen_in_order(&["a"], "b == 1", 100, recorded);
    assert!(matches!(paths[0], AccessPath::IndexRange(_)), "{paths:?}");
    assert_eq!(recorded.walked, []);
}

#[test]
fn a_scan_that_may_be_over_soon_is_probed_although_another_path_is_expected_to_be_best() {
    let recorded = |last| RecordedStatistics {
        entries: vec![600, 0, 0],
        passes: (1_500, last),
        ..RecordedStatistics::default()
    };
    let (paths, early) = chosen("a == 1 and d == 1", 1, recorded(ALL));
    assert_eq!((&paths[0], early.probe.read), (&AccessPath::TableScan, 1_500));
    let (paths, late) = chosen("a == 1 and d == 1", 1, recorded(0));
    assert!(matches!(paths[0], AccessPath::IndexRange(_)), "{paths:?}");
    assert!(late.read < ROWS / 5, "{}", late.read);
}
