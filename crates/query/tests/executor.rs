//! Executes random queries along every access path, and compares the answers with a filter and a sort of all rows.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests may do what tests may")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use pellucid_query::evaluate::found::Found;
use pellucid_query::exec::table_index::TableIndex;
use pellucid_query::exec::{Answer, Caller, Executor, Request, evaluator_of_all};
use pellucid_query::expression::{Node, parse};
use pellucid_query::index::Expressions;
use pellucid_query::selection::Meter;
use pellucid_query::sort::SortKey;
use pellucid_query::walk::for_each;
use pellucid_query::work::{Stop, Work};
use pellucid_query::{Column, Fault, Walk};
use pellucid_record::Shapes;
use pellucid_record::key::KeyEncoder;
use pellucid_record::value::{Double, NoShapes, Value, encode_value};
use pellucid_store::{OpenOptions, Range, Reader, Row, Store, TableId};

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

// Several parts, both directions, elements, conditions of their own.
const INDEXES: [&str; 8] = ["a", "b", "c", "a, b", "b desc", "c, a desc", "a where a > 3", "t[*]"];

// What one index serves, what two serve together, what none does, and what leads to few rows or none.
const CONDITIONS: [&str; 18] = [
    "a == 3",
    "a > 6",
    "a >= 2 and a < 4",
    "a in [1, 5, 99]",
    "a == 3 or b == 7",
    "a == 1 or c == 'x1'",
    "b < 10",
    "b == 7",
    "b == 1.5",
    "not a == 3",
    "c == 'x4'",
    "c startswith 'x'",
    "a == 99",
    "a is None",
    "t[*] == 2",
    "key() < 40",
    "key() in [3, 17, 1000]",
    "a + b > 20",
];

const ORDERS: [&str; 5] = ["a", "b", "c", "a, b", "key()"];

fn value(chance: &mut Chance) -> Value {
    let mut fields = Vec::new();
    let mut add = |name: &str, value: Value| fields.push((Value::Str(name.into()), value));
    match chance.below(20) {
        0 => {}
        1 => add("a", Value::None),
        2 => add("a", Value::Complex(Double(7.0), Double(0.0))),
        _ => add("a", Value::Int(chance.below(9).cast_signed())),
    }
    match chance.below(8) {
        0 => add("b", Value::Float(Double(f64::from(chance.below(40) as u32) / 2.0))),
        1 => add("b", Value::Decimal("7.0".into())),
        _ => add("b", Value::Int(chance.below(20).cast_signed())),
    }
    add("c", Value::Str(format!("x{}", chance.below(6))));
    if chance.below(3) == 0 {
        let elements = chance.some_of(&[1, 2, 3].map(Value::Int), 3);
        add("t", Value::List(elements));
    }
    Value::Dict(fields)
}

fn key(number: u64) -> Vec<u8> {
    let mut encoder = KeyEncoder::new();
    encoder.int(number.cast_signed());
    encoder.as_bytes().to_vec()
}

fn node(text: &str) -> Node {
    parse(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// What was found: keys, and what expressions come to in their rows.
type Rows = Vec<(Vec<u8>, Vec<Option<Value>>)>;

/// Reads expressions in each row.
struct Collect(Vec<Node>);

impl Work for Collect {
    type Result = Rows;

    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> Result<Rows, Fault> {
        let mut columns: Vec<_> = self.0.iter().map(|node| Column::new(node).unwrap()).collect();
        let mut found = Vec::new();
        for_each::<()>(rows, stop.check(), |row| {
            let mut value = |column: &mut Column| {
                let (slot, record) = column.read(&row, shapes).unwrap()?;
                Found::of_slot(slot, record, shapes).unwrap().to_value(shapes).unwrap()
            };
            found.push((row.key.to_vec(), columns.iter_mut().map(&mut value).collect()));
            ControlFlow::Continue(())
        })?;
        Ok(found)
    }
}

/// A query, as text.
struct Query {
    conditions: Vec<&'static str>,
    order: Vec<(Node, bool)>,
    offset: u64,
    limit: u64,
    reads: Option<Vec<Node>>,
}

fn query(chance: &mut Chance) -> Query {
    let conditions = chance.some_of(&CONDITIONS, 3);
    let is_descending = chance.below(2) == 0;
    let parts = chance.one_of(&["", "", "", "", "", ORDERS[0], ORDERS[1], ORDERS[2], ORDERS[3], ORDERS[4]]);
    let parts = parts.split(", ").filter(|part| !part.is_empty());
    let order = parts.map(|part| (node(part), is_descending)).collect();
    let reads = (chance.below(2) == 0).then(|| chance.some_of(&["a", "b", "c", "key()"].map(node), 2));
    let offset = chance.one_of(&[0, 0, 0, 1, 7]);
    Query { conditions, order, offset, limit: chance.one_of(&[u64::MAX, u64::MAX, 0, 1, 5, 60]), reads }
}

/// What all rows come to, one tested after the other.
fn naive<R: Reader>(reader: &R, table: TableId, query: &Query) -> Rows {
    let all = query.conditions.iter().map(|text| node(text)).collect();
    let (mut condition, mut by) = (evaluator_of_all(all).unwrap(), SortKey::new(&query.order).unwrap());
    let (mut scan, overflow_reader) =
        (reader.scan(table, &Range::ALL, false).unwrap(), reader.overflow_reader());
    let mut found = Vec::new();
    let mut visit = |row: Row<'_>| {
        if condition.as_mut().is_none_or(|condition| condition.is_true(&row, &overflow_reader).unwrap()) {
            found.push((
                by.of(&row, &overflow_reader).unwrap().to_vec(),
                row.key.to_vec(),
                row.record.to_vec(),
            ));
        }
    };
    while reader.next(&mut scan, &mut visit).unwrap().is_some() {}
    found.sort();
    let mut rows = Given(found.into_iter().map(|(_, key, record)| (key, record)).collect());
    let rows = Collect(query.reads.clone().unwrap_or_default())
        .run(&mut rows, &overflow_reader, Stop::Caller(&|| false))
        .unwrap();
    rows.into_iter().skip(query.offset as usize).take(query.limit.min(1 << 20) as usize).collect()
}

struct Given(std::collections::VecDeque<(Vec<u8>, Vec<u8>)>);

impl Walk for Given {
    fn step<B>(
        &mut self,
        mut visit: impl FnMut(Row<'_>) -> ControlFlow<B>,
    ) -> Result<Option<ControlFlow<B>>, Fault> {
        let next = self.0.pop_front();
        Ok(next.map(|(key, record)| visit(Row { key: &key, spelling: &[], record: &record })))
    }
}

/// Compares the answer of the executor, and its count, with the naive ones; returns the access path.
fn check<R: Reader>(reader: &R, table: TableId, query: &Query, case: &str) -> String {
    let expected = naive(reader, table, query);
    let indexes = TableIndex::ready(reader.indexes(table).unwrap());
    let caller = Caller { stop: Stop::Caller(&|| false), thread_count: 2 };
    let mut taken = String::new();
    for is_count in [false, true] {
        let reads = if is_count { Some(&[][..]) } else { query.reads.as_deref() };
        // Without a meter, rows that are all wanted are not tested one by one.
        let meter: Option<Arc<Meter>> = (query.offset == 0).then(Arc::default);
        let request = Request {
            conditions: query.conditions.iter().map(|text| node(text)).collect(),
            order: &query.order,
            after: None,
            offset: query.offset,
            limit: query.limit,
            reads,
            is_count,
            is_parallel: true,
            meter: meter.clone(),
        };
        let executor = Executor::new((reader, table), &indexes, &request, caller).unwrap();
        let paths = executor.paths().unwrap();
        let best = paths.as_ref().and_then(|paths| paths.paths.first());
        taken = best.map_or("none".into(), |best| format!("{:?}", best.access));
        let rows = match executor.run(paths).unwrap() {
            Answer::Count(count) => {
                assert_eq!(count, expected.len() as u64, "{case}, by {taken}");
                continue;
            }
            Answer::Covered(mut rows, nodes) => {
                Collect(nodes).run(&mut rows, &NoShapes, caller.stop).unwrap()
            }
            Answer::Rows(rows, selection) => {
                let collect = Collect(reads.unwrap_or_default().to_vec());
                executor.run_over(rows, selection, collect).unwrap()
            }
        };
        if let Some(meter) = meter.filter(|_| query.limit == u64::MAX) {
            let (entries, read, passed) = meter.counts();
            assert_eq!(passed, expected.len() as u64, "{case}, by {taken}");
            assert!(entries.max(read) >= passed, "{case}, by {taken}");
        }
        if is_count {
            assert_eq!(rows.len(), expected.len(), "{case}, by {taken}");
        } else {
            assert_eq!(rows, expected, "{case}, by {taken}");
        }
    }
    taken
}

#[test]
fn answers_are_those_of_a_filter_and_a_sort_of_all_rows() {
    let mut kinds = std::collections::BTreeSet::new();
    for seed in 0..150 {
        let mut chance = Chance(seed);
        let options = OpenOptions { deriver: Some(Arc::new(Expressions)), ..OpenOptions::default() };
        let store = Store::memory_with(&options).unwrap();
        let mut transaction = store.begin(Duration::from_secs(10)).unwrap();
        let table = transaction.create_table("t").unwrap();
        for definition in chance.some_of(&INDEXES, 4) {
            // One that is there already stays.
            transaction.create_index(table, definition, definition, false, &mut |_, _| true).unwrap();
        }
        let row_count = chance.one_of(&[20, 150, 700]);
        for number in 0..row_count {
            let record = encode_value(&value(&mut chance), &mut NoShapes).unwrap();
            transaction.put(table, &key(number), &[], &record, &[]).unwrap();
        }
        transaction.commit().unwrap();
        let snapshot = store.snapshot().unwrap();
        let mut transaction = store.begin(Duration::from_secs(10)).unwrap();
        for number in (0..row_count).step_by(9) {
            let record = encode_value(&value(&mut chance), &mut NoShapes).unwrap();
            transaction.put(table, &key(2 * number), &[], &record, &[]).unwrap();
        }
        for _ in 0..25 {
            let query = query(&mut chance);
            let case = format!(
                "seed {seed}: {:?} by {:?}, {} to {}, reads {:?}",
                query.conditions, query.order, query.offset, query.limit, query.reads
            );
            let taken = check(&snapshot, table, &query, &case);
            kinds.extend(taken.split([' ', '(']).next().map(str::to_owned));
            check(&transaction, table, &query, &format!("{case}, in a transaction"));
        }
    }
    for kind in ["TableScan", "KeyLookup", "IndexRange", "Intersection", "Union", "OrderedWalk"] {
        assert!(kinds.contains(kind), "no query took {kind}: {kinds:?}");
    }
}

/// A table of tasks of which every third one waits, with an index over state and time.
fn queue(row_count: u64) -> (Store, TableId) {
    let options = OpenOptions { deriver: Some(Arc::new(Expressions)), ..OpenOptions::default() };
    let store = Store::memory_with(&options).unwrap();
    let mut transaction = store.begin(Duration::from_secs(10)).unwrap();
    let table = transaction.create_table("t").unwrap();
    transaction.create_index(table, "waiting", "state, due", false, &mut |_, _| true).unwrap();
    for number in 0..row_count {
        let state = if number % 3 == 2 { "new" } else { "done" };
        let fields = vec![
            (Value::Str("state".into()), Value::Str(state.into())),
            (Value::Str("due".into()), Value::Int((row_count - number).cast_signed())),
        ];
        let record = encode_value(&Value::Dict(fields), &mut NoShapes).unwrap();
        transaction.put(table, &key(number), &[], &record, &[]).unwrap();
    }
    transaction.commit().unwrap();
    (store, table)
}

#[test]
fn the_front_of_a_queue_is_found_without_weighing_paths() {
    let (store, table) = queue(3_000);
    let snapshot = store.snapshot().unwrap();
    let indexes = TableIndex::ready(snapshot.indexes(table).unwrap());
    let caller = Caller { stop: Stop::Caller(&|| false), thread_count: 1 };
    for (conditions, order, limit, is_short) in [
        (&["state == 'new'"][..], "due", 1, true),
        (&["state == 'new'"], "due", 256, true),
        (&[], "state, due", 3, true),
        // A range of values may have entries that are tested, as those of complex numbers. Many
        // rows, another order, or a condition that rows of the range may not pass.
        (&["state == 'new'", "due > 100"], "due", 1, false),
        (&["state == 'new'"], "due", 257, false),
        (&["state == 'new'"], "key()", 1, false),
        (&["state == 'new'", "due + 1 > 7"], "due", 1, false),
    ] {
        for is_descending in [false, true] {
            let order: Vec<_> = order.split(", ").map(|part| (node(part), is_descending)).collect();
            let request = Request {
                conditions: conditions.iter().map(|text| node(text)).collect(),
                order: &order,
                after: None,
                offset: 0,
                limit,
                reads: None,
                is_count: false,
                is_parallel: false,
                meter: None,
            };
            let executor = Executor::new((&snapshot, table), &indexes, &request, caller).unwrap();
            let paths = executor.short_path().unwrap();
            assert_eq!(paths.is_some(), is_short, "{conditions:?} by {order:?}, {limit}");
            let conditions = conditions.to_vec();
            let query = Query { conditions, order: order.clone(), offset: 0, limit, reads: None };
            check(&snapshot, table, &query, "a queue");
        }
    }
}
