//! Runs work over paged rows, and compares what comes out with the same work over a table.
#![allow(clippy::unwrap_used, reason = "helpers of tests may do what tests may")]

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use pellucid_query::arrow::{self, Gathered, Kinds, NothingLarge, Wanted};
use pellucid_query::exec::evaluator_of_all;
use pellucid_query::expression::parse;
use pellucid_query::group::{Aggregate, Decimals, Room, grouped};
use pellucid_query::numbers::{GatherNumbers, Numbers};
use pellucid_query::sort::{Sort, SortKey};
use pellucid_query::walk::for_each;
use pellucid_query::work::{Stop, Work};
use pellucid_query::{Column, Fault, Outcome, Page, PagedRows, Pages, Scanned, Selection, Walk};
use pellucid_record::Shapes;
use pellucid_record::key::KeyEncoder;
use pellucid_record::value::{NoShapes, Value, encode_value};
use pellucid_store::{Range, Reader, Row, Snapshot, Store, TableId};

const ROW_COUNT: i64 = 1_000;

/// A row's key and record.
type Stored = (Vec<u8>, Vec<u8>);

struct Rows(Vec<Stored>);

impl Page for Rows {
    fn row(&self, place: usize) -> Option<Row<'_>> {
        self.0.get(place).map(|(key, record)| Row { key, spelling: &[], record })
    }
}

/// The rows in pages of this many; after them the source fails, if it is to.
struct InPages {
    rows: std::vec::IntoIter<Stored>,
    size: usize,
    fails: bool,
}

impl Pages for InPages {
    type Page = Rows;

    fn next(&mut self, _last: Option<Rows>) -> Result<Option<Rows>, Fault> {
        let page: Vec<_> = self.rows.by_ref().take(self.size).collect();
        match (page.is_empty(), self.fails) {
            (true, true) => Err(Fault::Source("the server is gone".into())),
            (true, false) => Ok(None),
            (false, _) => Ok(Some(Rows(page))),
        }
    }
}

/// A table of numbers and texts, and the same rows as a source would bring them.
fn table() -> (Snapshot, TableId, Vec<Stored>) {
    let store = Store::memory().unwrap();
    let mut transaction = store.begin(Duration::from_secs(10)).unwrap();
    let table = transaction.create_table("t").unwrap();
    let mut rows = Vec::new();
    for number in 0..ROW_COUNT {
        let mut encoder = KeyEncoder::new();
        encoder.int(number);
        let fields = vec![
            (Value::Str("n".into()), Value::Int(number * 7919 % ROW_COUNT)),
            (Value::Str("s".into()), Value::Str(format!("s{}", number % 7))),
        ];
        let record = encode_value(&Value::Dict(fields), &mut NoShapes).unwrap();
        transaction.put(table, encoder.as_bytes(), &[], &record, &[]).unwrap();
        rows.push((encoder.as_bytes().to_vec(), record));
    }
    transaction.commit().unwrap();
    (store.snapshot().unwrap(), table, rows)
}

fn paged(rows: &[Stored], size: usize) -> PagedRows<InPages> {
    let rows = Vec::from(rows).into_iter();
    PagedRows::new(InPages { rows, size, fails: false })
}

fn stop() -> Stop<'static> {
    Stop::Caller(&|| false)
}

/// Runs the same work over the table and over paged rows of several sizes of a page, with a
/// condition and a part of the rows that pass it, and compares what `shown` makes of the results.
fn compare<W: Work>(work: impl Fn() -> W, shown: impl Fn(W::Result) -> String) {
    let (snapshot, table, rows) = table();
    let selections: [fn() -> Selection; 3] = [
        || Selection::of(None),
        || Selection::of(evaluator_of_all(vec![parse("n > 300 and s != 's3'").unwrap()]).unwrap()),
        || Selection { offset: 5, limit: 90, ..Selection::of(None) },
    ];
    for selection in selections {
        let mut scan = snapshot.scan(table, &Range::ALL, false).unwrap();
        let mut scanned = Scanned { scan: &mut scan, reader: &snapshot };
        let expected = work()
            .run_over(&mut scanned, Some(&mut selection()), &Reader::overflow_reader(&snapshot), stop())
            .unwrap();
        let expected = shown(expected);
        for size in [1, 2, 64, 999, 5_000] {
            let mut rows = paged(&rows, size);
            let found = work().run_over(&mut rows, Some(&mut selection()), &NoShapes, stop()).unwrap();
            assert_eq!(shown(found), expected, "pages of {size}");
        }
    }
}

#[test]
fn paged_rows_are_visited_in_order_and_once() {
    let (_, _, rows) = table();
    for size in [1, 3, 1_000, 2_000] {
        let mut seen = Vec::new();
        for_each::<()>(
            &mut paged(&rows, size),
            || false,
            |row| {
                seen.push((row.key.to_vec(), row.record.to_vec()));
                ControlFlow::Continue(())
            },
        )
        .unwrap();
        assert_eq!(seen, rows);
    }
}

#[test]
fn a_walk_that_breaks_goes_on_behind_the_row() {
    let (_, _, rows) = table();
    let mut walk = paged(&rows, 4);
    for (key, _) in &rows {
        let step = walk.step(|row| ControlFlow::Break(row.key.to_vec())).unwrap();
        assert_eq!(step, Some(ControlFlow::Break(key.clone())));
    }
    assert_eq!(walk.step(|_| ControlFlow::Break(())).unwrap(), None);
}

#[test]
fn single_steps_and_walks_take_turns() {
    let (_, _, rows) = table();
    let mut walk = paged(&rows, 3);
    for (number, (key, _)) in rows.iter().enumerate() {
        let found = if number % 2 == 0 {
            walk.next(|_, _, row| row.key.to_vec()).unwrap()
        } else {
            walk.step(|row| ControlFlow::Break(row.key.to_vec())).unwrap().and_then(ControlFlow::break_value)
        };
        assert_eq!(found.as_ref(), Some(key));
    }
    assert!(walk.next(|_, _, _| ()).unwrap().is_none());
}

#[test]
fn the_failure_of_a_source_ends_the_work() {
    let (_, _, rows) = table();
    let mut walk = PagedRows::new(InPages { rows: rows.into_iter(), size: 10, fails: true });
    let mut count = 0;
    let done = for_each::<()>(
        &mut walk,
        || false,
        |_| {
            count += 1;
            ControlFlow::Continue(())
        },
    );
    assert!(matches!(done, Err(Fault::Source(why)) if why.to_string() == "the server is gone"));
    assert_eq!(count, ROW_COUNT);
}

#[test]
fn columns_of_paged_rows_are_those_of_the_table() {
    compare(
        || GatherNumbers(Column::new(&parse("n").unwrap()).unwrap()),
        |found| match found {
            Outcome::Done(Some(Numbers::Ints(pieces))) => format!("{:?}", pieces.concat()),
            found => panic!("{found:?}"),
        },
    );
}

#[test]
fn sorts_of_paged_rows_are_those_of_the_table() {
    for wanted in [20, u64::MAX] {
        let by = SortKey::new(&[(parse("s").unwrap(), true), (parse("n").unwrap(), false)]).unwrap();
        compare(
            // The second one has memory for a part of the rows, and writes the others to a file.
            || Sort::new(by.clone(), None, wanted, 4_096),
            |sorted| {
                let keys = sorted.into_keys(3, 200, || false).unwrap();
                let keys: Vec<_> = keys.map(|key| key.unwrap().code).collect();
                format!("{keys:?}")
            },
        );
    }
}

/// Groups by the text, with the sum of the numbers.
struct Sums;

impl Work for Sums {
    type Result = String;

    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> Result<String, Fault> {
        let column = |text: &str| Column::new(&parse(text).unwrap()).unwrap();
        let mut aggregates = [Aggregate::Sum(column("n"), Decimals::Added(None)), Aggregate::Count];
        let room = Arc::new(Room::new(1 << 20));
        let groups = grouped(rows, shapes, &mut [column("s")], &mut aggregates, &room, stop.check())?;
        let shown: Vec<_> = groups.into_groups().map(|group| (group.values, group.totals)).collect();
        Ok(format!("{shown:?}"))
    }
}

#[test]
fn groups_of_paged_rows_are_those_of_the_table() {
    compare(|| Sums, |found| found);
}

/// All fields as Arrow columns.
struct Columns;

impl Work for Columns {
    type Result = String;

    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> Result<String, Fault> {
        let part = arrow::gather(rows, shapes, &mut Wanted::All, &Kinds::new(), &NothingLarge, stop.check())?;
        match part.finish() {
            Gathered::Done(table) => Ok(format!("{:?} {:?}", table.schema, table.batches)),
            Gathered::Again(_) | Gathered::Refused(_) | Gathered::Damaged(_) => panic!("no columns"),
        }
    }
}

#[test]
fn arrow_columns_of_paged_rows_are_those_of_the_table() {
    compare(|| Columns, |found| found);
}

#[test]
fn damage_in_a_paged_row_names_its_key() {
    let (_, _, mut rows) = table();
    rows.get_mut(37).unwrap().1 = vec![0xff, 0, 1];
    let key = rows.get(37).unwrap().0.clone();
    let mut walk = paged(&rows, 10);
    match Sums.run(&mut walk, &NoShapes, stop()) {
        Err(Fault::Record(at, _)) => assert_eq!(at, key),
        other => panic!("{other:?}"),
    }
}
