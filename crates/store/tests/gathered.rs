//! Tests that rows of large transactions, which are gathered and merged, are stored as single puts
//! would store them.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use pellucid_store::{IndexError, OpenOptions, Range, Savepoint, Store, StoreError, TableId, Transaction};
use support::words::{Words, parts_of, words_of};
use support::{Chance, Scratch, key, record};

const WAIT: Duration = Duration::from_secs(10);

type Rows = BTreeMap<Vec<u8>, (Vec<u8>, String)>;

/// A log of 64 KiB, so that 4 KiB are too much for it, and memory for a hundred rows.
fn options() -> OpenOptions {
    OpenOptions {
        key_size_max: 64,
        log_segment_size: 1 << 16,
        index_memory: 1 << 16,
        deriver: Some(Arc::new(Words::default())),
        ..OpenOptions::default()
    }
}

/// A word for a number.
fn word(number: usize) -> String {
    let letter = |digit: u8| char::from(b'a' + (digit - b'0'));
    number.to_string().bytes().map(letter).collect()
}

fn write<R>(store: &Store, work: impl FnOnce(&mut Transaction) -> R) -> R {
    let mut transaction = store.begin(WAIT).unwrap();
    let result = work(&mut transaction);
    transaction.commit().unwrap();
    result
}

fn check_rows(store: &Store, table: TableId, rows: &Rows, definitions: &[&str]) {
    let snapshot = store.snapshot().unwrap();
    assert_eq!(snapshot.count(table).unwrap(), rows.len() as u64);
    let mut scan = snapshot.scan(table, &Range::ALL, false).unwrap();
    for (key, (spelling, text)) in rows {
        let row = scan.next().unwrap().unwrap();
        assert_eq!((row.key, row.spelling, row.record), (&key[..], &spelling[..], &record(text)[..]));
    }
    assert!(scan.next().unwrap().is_none());
    for definition in definitions {
        let id = snapshot.index(table, definition).unwrap().unwrap().id;
        let mut expected = Vec::new();
        for (key, (_, text)) in rows {
            for parts in parts_of(definition, &words_of(&record(text))) {
                expected.push([&parts[..], key].concat());
            }
        }
        expected.sort();
        assert_eq!(snapshot.count(id).unwrap(), expected.len() as u64, "{definition}");
        let mut scan = snapshot.scan(id, &Range::ALL, false).unwrap();
        let mut found = Vec::new();
        while let Some(row) = scan.next().unwrap() {
            found.push(row.key.to_vec());
        }
        assert_eq!(found, expected, "{definition}");
    }
    drop(scan);
    drop(snapshot);
    // The spellings of the test are none.
    let findings = store.check().unwrap();
    assert!(findings.iter().all(|finding| finding.what.contains("of the spelling")), "{findings:?}");
}

/// A transaction over some tables, with what they should have.
struct Pair {
    transaction: Transaction,
    tables: Vec<(TableId, bool)>,
    rows: Vec<Rows>,
    saved: Vec<(Savepoint, Vec<Rows>)>,
    is_batch: bool,
}

impl Pair {
    fn step(&mut self, chance: &mut Chance, pad: &str) {
        let place = chance.below(self.tables.len());
        let (table, _) = self.tables[place];
        let name = format!("{}{}", "k".repeat([1, 1, 60][chance.below(3)]), chance.below(400));
        let rows = &mut self.rows[place];
        match chance.below(400) {
            0..=5 => {
                self.transaction.flush_rows().unwrap();
                let found = self.transaction.get(table, &key(&name)).unwrap();
                let found = found.map(|cell| (cell.spelling.to_vec(), cell.record.to_vec()));
                let known = rows.get(&key(&name));
                assert_eq!(found, known.map(|(spelling, text)| (spelling.clone(), record(text))));
                assert_eq!(self.transaction.count(table).unwrap(), rows.len() as u64);
            }
            6 | 7 => {
                let was_there = self.transaction.delete(table, &key(&name)).unwrap();
                assert_eq!(was_there, rows.remove(&key(&name)).is_some());
            }
            8..=11 if !self.is_batch && self.saved.len() < 4 => {
                let savepoint = self.transaction.savepoint().unwrap();
                self.saved.push((savepoint, self.rows.clone()));
            }
            12..=14 if !self.saved.is_empty() && !self.is_batch => {
                let place = chance.below(self.saved.len());
                let (savepoint, rows) = self.saved[place].clone();
                self.saved.truncate(place);
                if chance.one_in(2) {
                    self.transaction.rollback_to(savepoint).unwrap();
                    self.rows = rows;
                } else {
                    self.transaction.release(savepoint).unwrap();
                }
            }
            15 | 16 => {
                if self.is_batch {
                    self.transaction.end_batch().unwrap();
                } else {
                    self.transaction.begin_batch(Box::new(|| true));
                }
                self.is_batch = !self.is_batch;
            }
            17 if !self.is_batch => {
                self.transaction.clear(table).unwrap();
                rows.clear();
            }
            18 if !self.is_batch && self.tables[place].1 => {
                self.transaction.rebuild_index(table, "0", &mut |_, _| true).unwrap();
            }
            _ => {
                let words: Vec<_> = (0..chance.below(3)).map(|_| word(chance.below(9))).collect();
                let text = [words.join(" "), pad[..chance.below(pad.len())].to_owned()].join(" ");
                let spelling = vec![7; chance.below(3) / 2];
                let (key, text) = (key(&name), text.trim().to_owned());
                self.transaction.put_later(table, &key, &spelling, &record(&text), &[]).unwrap();
                // The first spelling stays.
                let spelling = rows.get(&key).map_or(spelling, |(known, _)| known.clone());
                rows.insert(key, (spelling, text));
            }
        }
    }
}

#[test]
fn gathered_rows_are_those_that_single_puts_make() {
    let scratch = Scratch::new();
    let mut chance = Chance::new("gathered_rows_are_those_that_single_puts_make");
    let store = Store::open(scratch.path("g.pel"), &options()).unwrap();
    let definitions = ["0", "*"];
    let tables = write(&store, |transaction| {
        let tables = ["plain", "indexed"].map(|name| transaction.create_table(name).unwrap());
        for definition in definitions {
            transaction.create_index(tables[1], definition, definition, false, &mut |_, _| true).unwrap();
        }
        vec![(tables[0], false), (tables[1], true)]
    });
    let mut rows = vec![Rows::new(), Rows::new()];
    let pad = "p".repeat(200);
    for round in 0..40 {
        let transaction = store.begin(WAIT).unwrap();
        let (tables, saved, is_batch) = (&tables, Vec::new(), false);
        let mut pair = Pair { transaction, tables: tables.clone(), rows: rows.clone(), saved, is_batch };
        for _ in 0..chance.below(if round % 4 == 0 { 3000 } else { 300 }) {
            pair.step(&mut chance, &pad);
        }
        if pair.is_batch {
            pair.transaction.end_batch().unwrap();
        }
        if chance.one_in(5) {
            drop(pair);
        } else {
            pair.transaction.commit().unwrap();
            rows = pair.rows;
        }
        for ((table, is_indexed), rows) in tables.iter().zip(&rows) {
            check_rows(&store, *table, rows, if *is_indexed { &definitions } else { &[] });
        }
        assert!(scratch.names().iter().all(|name| name.starts_with("g.pel")), "{:?}", scratch.names());
    }
}

#[test]
fn what_reads_after_a_savepoint_of_its_own_finds_the_rows_that_the_savepoint_has_gathered() {
    const COUNT: usize = 600;
    type Work = fn(&mut Transaction, TableId);
    let works: [(&str, bool, &[&str], Work); 5] = [
        ("clear", false, &["0"], |transaction, table| transaction.clear(table).unwrap()),
        ("drop_table", false, &[], |transaction, _| transaction.drop_table("t").unwrap()),
        ("create_index", true, &["0", "*"], |transaction, table| {
            transaction.create_index(table, "*", "*", false, &mut |_, _| true).unwrap();
        }),
        ("drop_index", true, &[], |transaction, table| {
            transaction.drop_index(table, "0", &mut || true).unwrap();
        }),
        ("rebuild_index", true, &["0"], |transaction, table| {
            transaction.rebuild_index(table, "0", &mut |_, _| true).unwrap();
        }),
    ];
    for (name, keeps, definitions, work) in works {
        let scratch = Scratch::new();
        let store = Store::open(scratch.path("g.pel"), &options()).unwrap();
        let mut rows = Rows::new();
        let (table, other) = write(&store, |transaction| {
            let tables = ["t", "other"].map(|name| transaction.create_table(name).unwrap());
            transaction.create_index(tables[0], "0", "0", false, &mut |_, _| true).unwrap();
            for number in 0..COUNT {
                let (key, text) = (key(&format!("{number:04}")), word(number));
                transaction.put(tables[0], &key, &[], &record(&text), &[]).unwrap();
                rows.insert(key, (Vec::new(), text));
            }
            (tables[0], tables[1])
        });
        let mut transaction = store.begin(WAIT).unwrap();
        for number in (0..4).rev() {
            let (key, text) = (key(&format!("{number:04}")), word(7_000 + number));
            transaction.put_later(other, &key, &[], &record("other"), &[]).unwrap();
            transaction.put_later(table, &key, &[], &record(&text), &[]).unwrap();
            rows.insert(key, (Vec::new(), text));
        }
        // The savepoint of the work gathers what the write batch has.
        transaction.flush_rows().unwrap();
        work(&mut transaction, table);
        transaction.commit().unwrap();
        if name == "drop_table" {
            assert_eq!(store.snapshot().unwrap().table("t").unwrap(), None);
        } else {
            check_rows(&store, table, if keeps { &rows } else { const { &Rows::new() } }, definitions);
        }
        assert_eq!(store.snapshot().unwrap().count(other).unwrap(), 4, "{name}");
        let findings = store.check().unwrap();
        assert!(findings.iter().all(|finding| finding.what.contains("of the spelling")), "{findings:?}");
    }
}

#[test]
fn a_merge_that_was_stopped_goes_on_and_loses_nothing() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("g.pel"), &options()).unwrap();
    let table = write(&store, |transaction| {
        let table = transaction.create_table("t").unwrap();
        transaction.create_index(table, "0", "0", false, &mut |_, _| true).unwrap();
        table
    });
    let mut rows = Rows::new();
    let mut transaction = store.begin(WAIT).unwrap();
    transaction.begin_batch(Box::new(|| true));
    for number in 0..2000_u64 {
        let name = format!("{:x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let text = format!("{} x", word(number as usize % 7));
        transaction.put_later(table, &key(&name), &[], &record(&text), &[]).unwrap();
        rows.insert(key(&name), (Vec::new(), text));
    }
    transaction.end_batch().unwrap();
    assert!(transaction.has_unflushed_rows());
    let mut asked = 0;
    transaction
        .flush_rows_while(&mut |_, total| {
            asked += 1;
            total > 0
        })
        .unwrap();
    drop(transaction);
    assert!(asked > 4000, "each row and each entry");
    for stop in [0, 1, 1000, 1999, 2001, 3000, asked - 1] {
        let mut transaction = store.begin(WAIT).unwrap();
        transaction.begin_batch(Box::new(|| true));
        for (key, (_, text)) in rows.iter().rev() {
            transaction.put_later(table, key, &[], &record(text), &[]).unwrap();
        }
        transaction.end_batch().unwrap();
        let left = AtomicU64::new(stop);
        let stopped = transaction.flush_rows_while(&mut |_, _| {
            left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        });
        assert!(matches!(stopped, Err(StoreError::Stopped)), "{stop}");
        transaction.commit().unwrap();
        check_rows(&store, table, &rows, &["0"]);
        write(&store, |transaction| transaction.clear(table).unwrap());
    }
}

#[test]
fn a_value_that_two_gathered_rows_have_is_refused_at_the_end_of_the_batch() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("g.pel"), &options()).unwrap();
    let table = write(&store, |transaction| {
        let table = transaction.create_table("t").unwrap();
        transaction.create_index(table, "0", "0", true, &mut |_, _| true).unwrap();
        table
    });
    let mut transaction = store.begin(WAIT).unwrap();
    let savepoint = transaction.savepoint().unwrap();
    transaction.begin_batch(Box::new(|| true));
    for number in 0..2000_u64 {
        let name = format!("{:x}", number.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let value = if number == 1500 { 700 } else { number as usize };
        transaction.put_later(table, &key(&name), &[], &record(&word(value)), &[]).unwrap();
    }
    let StoreError::Index(error) = transaction.end_batch().unwrap_err() else {
        panic!("no error of an index")
    };
    let IndexError::NotUnique(refused) = *error else { panic!("{error}") };
    assert_eq!(refused.position, Some(1500));
    transaction.rollback_to(savepoint).unwrap();
    transaction.commit().unwrap();
    check_rows(&store, table, &Rows::new(), &["0"]);
}
