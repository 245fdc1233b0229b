//! Translates random queries, does with their predicates what a server does, and compares the rows
//! that are left with a filter of all rows.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests may do what tests may")]

use pellucid_query::exec::evaluator_of_all;
use pellucid_query::expression::{Node, parse};
use pellucid_query::index::{Definition, Expressions, Keys};
use pellucid_query::key_code::push_value;
use pellucid_query::plan::Candidate;
use pellucid_query::server::{
    CODE_SIZE_MAX, Codes, Predicate, ServerIndex, Translated, stored_spelling, translate, worth_knowing,
};
use pellucid_query::sort::SortKey;
use pellucid_record::Value;
use pellucid_record::key::KeyEncoder;
use pellucid_record::value::{Double, NoShapes, encode_value};
use pellucid_store::{Derived, Deriver, Row};

/// Numbers from a seed: the same ones in each run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, count: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % count
    }

    fn one_of<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    fn some_of<T: Clone>(&mut self, of: &[T], count_max: u64) -> Vec<T> {
        (0..self.below(count_max + 1)).map(|_| self.one_of(of)).collect()
    }
}

const INDEXES: [&str; 10] =
    ["a", "b", "c", "d", "a, b", "b desc", "c, a desc", "a where a > 3", "t[*]", "lower(c)"];

const CONDITIONS: [&str; 30] = [
    "a == 3",
    "a > 6",
    "a >= 2 and a < 4",
    "a in [1, 5, 99]",
    "a == 3 or b == 7",
    "a == 1 or c == 'x1'",
    "a == 1 or c > 'x1' and b < 3",
    "a == 1 or b + 1 == 4",
    "b < 10",
    "b <= 7",
    "b == 7",
    "b == 1.5",
    "not a == 3",
    "a != 3",
    "c == 'x4'",
    "c startswith 'x'",
    "lower(c) == 'x3'",
    "a == 99",
    "a is None",
    "a exists",
    "t[*] == 2",
    "t[*] > 1",
    "key() < 40",
    "key() >= 17",
    "key() == 3",
    "key() in [3, 17, 1000]",
    "key() > 'k'",
    "key() startswith 'k1'",
    "a + b > 20",
    "d > 'LONG'",
];

const ORDERS: [&str; 5] = ["a", "b", "c", "a, b", "key()"];

/// A text that is too long to be stored whole; a few of these differ only at their end.
fn long(chance: &mut Chance) -> String {
    format!("{}{}", "y".repeat(CODE_SIZE_MAX + 10), chance.below(4))
}

fn record(chance: &mut Chance) -> Vec<u8> {
    let mut fields = Vec::new();
    let mut add = |name: &str, value: Value| fields.push((Value::Str(name.into()), value));
    match chance.below(20) {
        0 => {}
        1 => add("a", Value::None),
        2 => add("a", Value::Complex(Double(7.0), Double(0.0))),
        3 => add("a", Value::Float(Double(f64::NAN))),
        4 => add("a", Value::Decimal("3".into())),
        5 => add("a", Value::Dict(Vec::new())),
        6 => add("a", Value::Str("3".into())),
        _ => add("a", Value::Int(chance.below(9).cast_signed())),
    }
    match chance.below(8) {
        0 => add("b", Value::Float(Double(f64::from(chance.below(40) as u32) / 2.0))),
        1 => add("b", Value::Decimal("7.0".into())),
        2 => add("b", Value::Complex(Double(7.0), Double(0.0))),
        _ => add("b", Value::Int(chance.below(20).cast_signed())),
    }
    let letter = chance.one_of(&["x", "X"]);
    add("c", Value::Str(format!("{letter}{}", chance.below(6))));
    let d = if chance.below(3) == 0 { long(chance) } else { format!("y{}", chance.below(9)) };
    add("d", Value::Str(d));
    if chance.below(3) == 0 {
        add("t", Value::List(chance.some_of(&[1, 2, 3].map(Value::Int), 3)));
    }
    encode_value(&Value::Dict(fields), &mut NoShapes).unwrap()
}

fn key(chance: &mut Chance, number: u64) -> (Vec<u8>, Vec<u8>) {
    let value = match chance.below(12) {
        0 => Value::Decimal(format!("{number}.0")),
        1 => Value::Float(Double(f64::from(number as u32) + 0.5)),
        2 | 3 => Value::Str(format!("k{number}")),
        _ => Value::Int(number.cast_signed()),
    };
    let mut encoder = KeyEncoder::new();
    assert!(push_value(&mut encoder, &value));
    encoder.take()
}

/// The entries of a row in one index: codes and spellings.
type Entries = Vec<(Vec<u8>, Option<Vec<u8>>)>;

/// A row on the server: its key, its record, and the entries that it has in each index.
struct Stored {
    key: Vec<u8>,
    spelling: Vec<u8>,
    record: Vec<u8>,
    entries: Vec<Entries>,
}

fn row(stored: &Stored) -> Row<'_> {
    Row { key: &stored.key, spelling: &stored.spelling, record: &stored.record }
}

fn is_in(codes: &[Codes], code: &[u8]) -> bool {
    codes.iter().any(|(start, end)| {
        start.as_ref().is_none_or(|start| **start <= *code) && end.as_ref().is_none_or(|end| *code < **end)
    })
}

/// What is stored for a code: of a long one its begin, and bytes that depend on all of it.
fn stored(code: &[u8]) -> Vec<u8> {
    match code.get(..CODE_SIZE_MAX) {
        Some(begin) if code.len() > CODE_SIZE_MAX => {
            let hash = code.iter().fold(7_u64, |hash, byte| hash.wrapping_mul(31) ^ u64::from(*byte));
            [begin, &hash.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes()].concat()
        }
        _ => code.to_vec(),
    }
}

/// What the server says of a row.
fn holds(predicate: &Predicate, row: &Stored) -> bool {
    match predicate {
        Predicate::Keys(codes) => codes.iter().any(|code| stored(code) == row.key),
        Predicate::KeyRanges(ranges) => is_in(ranges, &row.key),
        Predicate::Points(index, codes) => {
            row.entries[*index].iter().any(|(code, _)| codes.iter().any(|point| stored(point) == *code))
        }
        Predicate::Ranges(index, ranges, ordered) => row.entries[*index].iter().any(|(code, spelling)| {
            is_in(ranges, code) && spelling.as_ref().is_none_or(|spelling| spelling[0] & ordered == 0)
        }),
        Predicate::Any(branches) => {
            branches.iter().any(|branch| branch.iter().all(|predicate| holds(predicate, row)))
        }
    }
}

fn index(definition: &str) -> ServerIndex {
    let Definition { parts, condition } = Definition::parse(definition).unwrap();
    let candidate = Candidate { name: definition.to_owned(), parts, condition, entries: 0, is_unique: false };
    ServerIndex { candidate, is_total: false, is_ordered: true }
}

fn entries(definition: &str, key: &[u8], record: &[u8]) -> Entries {
    let keys = Keys::of(&Definition::parse(definition).unwrap());
    let mut derived = Derived::default();
    let row = Row { key, spelling: &[], record };
    Expressions.prepare(definition).unwrap().derive(&row, &NoShapes, &mut derived).unwrap();
    derived.iter().map(|(parts, spelling)| (stored(parts), stored_spelling(&keys, parts, spelling))).collect()
}

fn node(text: &str) -> Node {
    let text = text.replace("LONG", &format!("{}1", "y".repeat(CODE_SIZE_MAX + 10)));
    parse(&text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn passing<'a>(rows: &[&'a Stored], conditions: &[Node]) -> Vec<&'a Stored> {
    let mut condition = evaluator_of_all(conditions.to_vec()).unwrap();
    let passes = |stored: &&&Stored| {
        condition.as_mut().is_none_or(|condition| condition.is_true(&row(stored), &NoShapes).unwrap())
    };
    rows.iter().filter(passes).copied().collect()
}

/// Sets what is known of indexes to what is so.
fn survey(indexes: &mut [ServerIndex], rows: &[Stored]) {
    for (place, index) in indexes.iter_mut().enumerate() {
        let entries = || rows.iter().flat_map(|row| &row.entries[place]);
        index.is_ordered = entries().all(|(code, _)| code.len() <= CODE_SIZE_MAX);
        let is_total = rows.iter().all(|row| !row.entries[place].is_empty());
        index.is_total =
            is_total && !index.candidate.is_multi_valued() && index.candidate.condition.is_none();
    }
}

#[test]
fn predicates_and_what_they_leave_find_the_rows_of_a_filter() {
    let (mut exact, mut ordered, mut narrowed) = (0, 0, 0);
    for seed in 0..300 {
        let mut chance = Chance(seed);
        let mut definitions = chance.some_of(&INDEXES, 4);
        definitions.sort_unstable();
        definitions.dedup();
        let stored: Vec<_> = (0..chance.one_of(&[5, 60]))
            .map(|number| {
                let ((key, spelling), record) = (key(&mut chance, number), record(&mut chance));
                let entries = definitions.iter().map(|text| entries(text, &key, &record)).collect();
                Stored { key, spelling, record, entries }
            })
            .collect();
        let mut indexes: Vec<_> = definitions.iter().map(|text| index(text)).collect();
        if chance.below(2) == 0 {
            survey(&mut indexes, &stored);
        } else {
            for index in &mut indexes {
                index.is_ordered = false;
            }
        }
        let all: Vec<_> = stored.iter().collect();
        for _ in 0..30 {
            let texts = chance.some_of(&CONDITIONS, 3);
            let conditions: Vec<_> = texts.iter().map(|text| node(text)).collect();
            let (order, is_descending) = (chance.one_of(&ORDERS), chance.below(2) == 0);
            let order: Vec<_> = order.split(", ").map(|part| (node(part), is_descending)).collect();
            let translated = translate(&conditions, &order, &indexes);
            let case = format!("seed {seed}, {texts:?} with {definitions:?}: {translated:?}");
            let Translated { predicates, residual, order: served } = translated;
            let sent: Vec<_> = all
                .iter()
                .filter(|row| predicates.iter().all(|predicate| holds(predicate, row)))
                .copied()
                .collect();
            let expected = passing(&all, &conditions);
            let keys = |rows: &[&Stored]| rows.iter().map(|row| row.key.clone()).collect::<Vec<_>>();
            assert_eq!(keys(&passing(&sent, &residual)), keys(&expected), "{case}");
            exact += usize::from(residual.is_empty() && !conditions.is_empty());
            narrowed += usize::from(sent.len() < all.len());
            if let Some((index, is_reverse)) = served {
                ordered += 1;
                let mut found = passing(&sent, &residual);
                let code = |row: &Stored| row.entries[index].first().map(|(code, _)| code.clone());
                found.sort_by(|one, other| {
                    let order = code(one).cmp(&code(other));
                    let order = if is_reverse { order.reverse() } else { order };
                    order.then_with(|| one.key.cmp(&other.key))
                });
                let mut by = SortKey::new(&order).unwrap();
                let mut sorted = expected;
                sorted.sort_by_cached_key(|stored| {
                    (by.of(&row(stored), &NoShapes).unwrap().to_vec(), stored.key.clone())
                });
                assert_eq!(keys(&found), keys(&sorted), "{case}");
            }
        }
    }
    // Most conditions can be served by some index, so many queries are.
    assert!(exact > 1_000 && ordered > 150 && narrowed > 2_000, "{exact} {ordered} {narrowed}");
}

fn shown(conditions: &[&str], definitions: &[&str]) -> (usize, Vec<String>) {
    let conditions: Vec<_> = conditions.iter().map(|text| node(text)).collect();
    let indexes: Vec<_> = definitions.iter().map(|text| index(text)).collect();
    let translated = translate(&conditions, &[], &indexes);
    (translated.predicates.len(), translated.residual.iter().map(ToString::to_string).collect())
}

#[test]
fn an_index_of_two_parts_serves_two_conditions_at_once() {
    assert_eq!(shown(&["a == 1", "b > 2"], &["a", "b", "a, b"]), (1, vec![]));
}

#[test]
fn what_no_index_serves_is_left() {
    assert_eq!(shown(&["a == 1", "c == 'x'"], &["a"]), (1, vec!["c == 'x'".to_owned()]));
    assert_eq!(shown(&["a == 1 or c == 'x'"], &["a"]), (0, vec!["a == 1 or c == 'x'".to_owned()]));
}

#[test]
fn it_is_worth_knowing_whether_rows_lack_what_they_are_ordered_by() {
    let indexes = [index("a"), index("b"), index("a, b")];
    let order = [(node("a"), false)];
    assert_eq!(worth_knowing(&[], &order, &indexes), [0]);
    assert_eq!(worth_knowing(&[node("a > 1")], &order, &indexes), [0_usize; 0]);
    assert_eq!(worth_knowing(&[node("a == 1")], &[], &[index("a, b")]), [0]);
}
