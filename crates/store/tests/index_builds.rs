//! Tests that an index build that does not fit into memory, and is stopped again and again,
//! continues where it was.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use pellucid_store::{IndexError, OpenOptions, Range, Store, StoreError, TableId, Transaction};
use support::words::{Words, parts_of, words_of};
use support::{Chance, Scratch, key, record};

const WAIT: Duration = Duration::from_secs(10);
/// More than are built in one transaction.
const ROWS: u64 = 20_000;

type Rows = BTreeMap<String, String>;

fn options(index_memory: usize) -> OpenOptions {
    let deriver = Some(Arc::new(Words::default()) as _);
    OpenOptions { key_size_max: 64, index_memory, deriver, ..OpenOptions::default() }
}

fn write<R>(store: &Store, work: impl FnOnce(&mut Transaction) -> R) -> R {
    let mut transaction = store.begin(WAIT).unwrap();
    let result = work(&mut transaction);
    transaction.commit().unwrap();
    result
}

/// A number as a word.
fn word(number: u64) -> String {
    format!("{number:06}").bytes().map(|digit| (digit - b'0' + b'a') as char).collect()
}

fn put(transaction: &mut Transaction, table: TableId, rows: &mut Rows, name: String, text: String) {
    transaction.put(table, &key(&name), &[], &record(&text), &[]).unwrap();
    rows.insert(name, text);
}

/// Rows whose words are in no order, some rows without words.
fn fill(store: &Store) -> (TableId, Rows) {
    let mut rows = Rows::new();
    let table = write(store, |transaction| {
        let table = transaction.create_table("t").unwrap();
        for number in 0..ROWS {
            let text = if number % 10 == 9 { String::new() } else { word(number * 7919 % ROWS) };
            put(transaction, table, &mut rows, format!("row{number:05}"), text);
        }
        table
    });
    (table, rows)
}

fn is_right(store: &Store, table: TableId, definition: &str, rows: &Rows) {
    let snapshot = store.snapshot().unwrap();
    let info = snapshot.index(table, "i").unwrap().unwrap();
    assert_eq!(info.building, None);
    let mut scan = snapshot.scan(info.id, &Range::ALL, false).unwrap();
    let mut found = Vec::new();
    while let Some(entry) = scan.next().unwrap() {
        found.push(entry.key.to_vec());
    }
    let entries_of = |(name, text): (&String, &String)| {
        let parts = parts_of(definition, &words_of(&record(text)));
        parts.into_iter().map(|parts| [parts, key(name)].concat()).collect::<Vec<_>>()
    };
    let mut expected: Vec<Vec<u8>> = rows.iter().flat_map(entries_of).collect();
    expected.sort();
    assert_eq!(found, expected);
    assert_eq!(snapshot.count(info.id).unwrap(), found.len() as u64);
    assert_eq!(store.check().unwrap(), []);
}

/// Writes that happen between builds, or during one.
fn disturb(transaction: &mut Transaction, table: TableId, rows: &mut Rows, chance: &mut Chance, round: u64) {
    for step in 0..8 {
        let number = chance.below(ROWS as usize) as u64;
        let name = format!("row{number:05}");
        match chance.below(3) {
            0 => {
                transaction.delete(table, &key(&name)).unwrap();
                rows.remove(&name);
            }
            1 => put(transaction, table, rows, name, word(ROWS + 100 * round + step)),
            _ => put(
                transaction,
                table,
                rows,
                format!("new{round}-{step}"),
                word(2 * ROWS + 100 * round + step),
            ),
        }
    }
}

#[test]
fn a_build_that_is_broken_off_goes_on_where_it_was() {
    let mut chance = Chance::new("a_build_that_is_broken_off_goes_on_where_it_was");
    let scratch = Scratch::new();
    for (memory, definition, is_unique) in [(64 << 10, "0", true), (400 << 10, "0-", false), (0, "0", false)]
    {
        let words = Words::default();
        let options = OpenOptions { deriver: Some(Arc::new(words.clone())), ..options(memory) };
        let stores = [
            Store::memory_with(&options).unwrap(),
            Store::open(scratch.path(&format!("{memory}.pel")), &options).unwrap(),
        ];
        for store in stores {
            let (table, mut rows) = fill(&store);
            let derived = words.derived.load(Ordering::Relaxed);
            let (mut breaks, mut before) = (0, 0);
            loop {
                let (mut calls, mut last) = (0, 0);
                let built = store.create_index(table, "i", (definition, is_unique), WAIT, &mut |done, of| {
                    assert!(last <= done && done <= of, "{last}, then {done} of {of}");
                    // Entries that were put are not put again.
                    assert!(calls > 0 || done >= before, "{before} when it was broken off, now {done}");
                    last = done;
                    calls += 1;
                    calls < 3 + breaks
                });
                let info = store.snapshot().unwrap().index(table, "i").unwrap().unwrap();
                let Some(building) = info.building else {
                    built.unwrap();
                    break;
                };
                assert!(matches!(built, Err(StoreError::Stopped)));
                assert!(building.done >= before);
                before = building.done;
                breaks += 1;
                write(&store, |transaction| disturb(transaction, table, &mut rows, &mut chance, breaks));
            }
            if memory == 64 << 10 {
                assert!(breaks > 2, "it is broken off in several rounds");
                // Starting over each time would derive all rows each time.
                let derived = words.derived.load(Ordering::Relaxed) - derived;
                assert!(derived < ROWS * breaks, "{derived} rows in {breaks} goes");
            }
            is_right(&store, table, definition, &rows);
        }
    }
}

#[test]
fn an_index_that_does_not_fit_memory_is_built_inside_a_transaction() {
    let store = Store::memory_with(&options(64 << 10)).unwrap();
    let (table, mut rows) = fill(&store);
    let mut told = Vec::new();
    let mut go_on = |done, of| {
        assert_eq!(of, ROWS);
        told.push(done);
        true
    };
    write(&store, |transaction| transaction.create_index(table, "i", "0", true, &mut go_on).unwrap());
    is_right(&store, table, "0", &rows);
    write(&store, |transaction| transaction.rebuild_index(table, "i", &mut |_, _| true).unwrap());
    is_right(&store, table, "0", &rows);
    // A row that is earlier in key order, far away, has the value.
    write(&store, |transaction| {
        transaction.drop_index(table, "i", &mut || true).unwrap();
        put(transaction, table, &mut rows, "aaa".to_owned(), word(17));
        for refused in [
            transaction.create_index(table, "i", "0", true, &mut |_, _| true).unwrap_err(),
            transaction.create_index(table, "j", "0-", true, &mut |_, _| true).unwrap_err(),
        ] {
            let StoreError::Index(error) = refused else { panic!("{refused}") };
            let IndexError::NotUnique(refused) = *error else { panic!("{error}") };
            assert_eq!(refused.existing, key("aaa"));
            assert!(rows.contains_key("row00000") && refused.key > refused.existing);
        }
        assert_eq!(transaction.indexes(table).unwrap(), []);
    });
    assert!(told.is_sorted());
}

#[test]
fn a_value_that_two_rounds_have_ends_a_unique_build() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("u.pel"), &options(64 << 10)).unwrap();
    let (table, mut rows) = fill(&store);
    write(&store, |transaction| put(transaction, table, &mut rows, "zzz".to_owned(), word(0)));
    let built = store.create_index(table, "i", ("0", true), WAIT, &mut |_, _| true);
    let Err(StoreError::Index(error)) = built else { panic!("{built:?}") };
    let IndexError::NotUnique(refused) = *error else { panic!("{error}") };
    assert_eq!((refused.existing, refused.key), (key("row00000"), key("zzz")));
    assert_eq!(store.snapshot().unwrap().indexes(table).unwrap(), []);
    assert_eq!(store.check().unwrap(), []);
}
