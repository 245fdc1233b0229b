//! Tests that the estimated size of a range is near the real one.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::time::Duration;

use pellucid_store::{OpenOptions, Range, Store, TableId};
use support::Scratch;

fn key(number: i64) -> Vec<u8> {
    support::key(&format!("{number:08}"))
}

const WAIT: Duration = Duration::from_secs(10);

/// A table under ints with rows of different sizes, between two other tables.
fn filled(store: &Store, rows: i64) -> TableId {
    let mut transaction = store.begin(WAIT).unwrap();
    let before = transaction.create_table("before").unwrap();
    let table = transaction.create_table("table").unwrap();
    let behind = transaction.create_table("behind").unwrap();
    for number in 0..rows {
        let size = if number % 5 == 0 { 200 } else { 20 };
        transaction.put(table, &key(number), b"", &vec![1; size], &[]).unwrap();
        if number % 10 == 0 {
            transaction.put(before, &key(number), b"", &[1; 900], &[]).unwrap();
            transaction.put(behind, &key(number), b"", &[1; 3], &[]).unwrap();
        }
    }
    transaction.commit().unwrap();
    table
}

fn check(store: &Store, table: TableId, rows: i64, error_max: u64) {
    let snapshot = store.snapshot().unwrap();
    let mut bounds = [0, 1, 30, 32, 33, 65, rows / 100, rows / 7, rows / 2, rows - rows / 7, rows - 5, rows];
    bounds.sort_unstable();
    for (place, start) in bounds.iter().enumerate() {
        for end in &bounds[place..] {
            let range = Range::half_open(key(*start), key(*end));
            let found = snapshot.estimate(table, &range).unwrap();
            let actual = (end - start).cast_unsigned();
            if actual <= 32 {
                assert_eq!(found, actual, "few are counted");
                continue;
            }
            let is_near = found <= actual * error_max && actual <= found * error_max;
            assert!(is_near, "{start}..{end}: {found} for {actual}");
        }
    }
    assert_eq!(snapshot.estimate(table, &Range::half_open(key(rows), key(rows + 1000))).unwrap(), 0);
}

#[test]
fn by_the_pages_of_the_tree() {
    // More rows than are counted if the tree gives no estimate.
    const ROWS: i64 = 200_000;
    let scratch = Scratch::new();
    let path = scratch.path("a.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    let table = filled(&store, ROWS);
    drop(store);
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    check(&store, table, ROWS, 2);
}

#[test]
fn between_tables_of_larger_rows() {
    // More rows than are counted if the tree's estimate is not used.
    const ROWS: i64 = 200_000;
    let scratch = Scratch::new();
    for neighbour_size in (1200..1900).step_by(90) {
        let path = scratch.path(&format!("{neighbour_size}.pel"));
        let store = Store::open(&path, &OpenOptions::default()).unwrap();
        let mut transaction = store.begin(WAIT).unwrap();
        let [before, table, behind] =
            ["before", "table", "behind"].map(|name| transaction.create_table(name).unwrap());
        for number in 0..ROWS {
            transaction.put(table, &key(number), b"", &[1; 8], &[]).unwrap();
            if number < 40 {
                transaction.put(before, &key(number), b"", &vec![1; neighbour_size], &[]).unwrap();
                transaction.put(behind, &key(number), b"", &vec![1; neighbour_size], &[]).unwrap();
            }
        }
        transaction.commit().unwrap();
        drop(store);
        let store = Store::open(&path, &OpenOptions::default()).unwrap();
        // The first and the last leaf have rows of the neighbours, and few of the table.
        let found = store.snapshot().unwrap().estimate(table, &Range::ALL).unwrap();
        assert!((ROWS.cast_unsigned() / 2..=ROWS.cast_unsigned() * 2).contains(&found), "{found}");
        check(&store, table, ROWS, 2);
    }
}

#[test]
fn of_rows_that_wait_in_the_log_and_of_those_in_memory_by_counting() {
    const ROWS: i64 = 5_000;
    let scratch = Scratch::new();
    let in_file = Store::open(scratch.path("b.pel"), &OpenOptions::default()).unwrap();
    for store in [in_file, Store::memory().unwrap()] {
        let table = filled(&store, ROWS);
        check(&store, table, ROWS, 2);
    }
}
