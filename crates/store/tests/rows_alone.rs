//! Tests that a transaction which changes only rows does not write the catalog, and that every row
//! is still counted.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use pellucid_store::{OpenOptions, Range, Savepoint, Store, TableId, Transaction};
use support::{Chance, Scratch};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;
type Model = [Rows; 2];

const WAIT: Duration = Duration::from_secs(10);
const LONG: usize = 600;

fn begin(store: &Store, tables: &mut Vec<TableId>) -> Transaction {
    let mut transaction = store.begin(WAIT).unwrap();
    if tables.is_empty() {
        tables.extend(["a", "b"].map(|name| transaction.create_table(name).unwrap()));
        transaction.commit().unwrap();
        transaction = store.begin(WAIT).unwrap();
    }
    transaction
}

/// Few keys, so that one is put, deleted and put again in one transaction.
fn key(chance: &mut Chance) -> Vec<u8> {
    vec![b'k'; 1 + chance.below(60)]
}

fn record(chance: &mut Chance) -> Vec<u8> {
    let size = if chance.one_in(12) { 900 } else { 1 + chance.below(60) };
    [&[0x11][..], &chance.bytes(size)].concat()
}

fn check(store: &Store, tables: &[TableId], model: &Model) {
    let snapshot = store.snapshot().unwrap();
    for (table, rows) in tables.iter().zip(model) {
        assert_eq!(snapshot.count(*table).unwrap(), rows.len() as u64);
        let mut scan = snapshot.scan(*table, &Range::ALL, false).unwrap();
        let mut found = Rows::new();
        while let Some(row) = scan.next().unwrap() {
            found.insert(row.key.to_vec(), row.record.to_vec());
        }
        assert_eq!(found, *rows);
    }
}

/// Put and delete some rows, with savepoints in between, and compare what is read meanwhile.
fn change(transaction: &mut Transaction, tables: &[TableId], model: &mut Model, chance: &mut Chance) {
    let mut saved: Vec<(Savepoint, Model)> = Vec::new();
    for _ in 0..chance.below(60) {
        let which = chance.below(2);
        let (table, key) = (tables[which], key(chance));
        match chance.below(12) {
            0 => saved.push((transaction.savepoint().unwrap(), model.clone())),
            1 => {
                if let Some((savepoint, before)) = saved.pop() {
                    if chance.one_in(2) {
                        transaction.rollback_to(savepoint).unwrap();
                        *model = before;
                    } else {
                        transaction.release(savepoint).unwrap();
                    }
                }
            }
            2..=4 => {
                let was_there = transaction.delete(table, &key).unwrap();
                assert_eq!(was_there, model[which].remove(&key).is_some());
            }
            5 => {
                let found = transaction.get(table, &key).unwrap().map(|cell| cell.record.to_vec());
                assert_eq!(found.as_ref(), model[which].get(&key));
            }
            6 => assert_eq!(transaction.count(table).unwrap(), model[which].len() as u64),
            _ => {
                let record = record(chance);
                let was_there = transaction.put(table, &key, b"", &record, &[]).unwrap();
                assert_eq!(was_there, model[which].insert(key, record).is_some());
            }
        }
    }
}

#[test]
fn rows_are_counted_without_the_catalog() {
    let scratch = Scratch::new();
    let path = scratch.path("rows.pel");
    // So that segments are sealed again and again.
    let options = OpenOptions { log_segment_size: 1 << 16, ..OpenOptions::default() };
    let mut chance = Chance::new("rows_are_counted_without_the_catalog");
    let (mut store, mut tables, mut model) =
        (Store::open(&path, &options).unwrap(), Vec::new(), Model::default());
    let (mut commits, mut alone) = (0, 0);
    for _ in 0..400 {
        let mut transaction = begin(&store, &mut tables);
        let snapshot = store.snapshot().unwrap();
        let (before, catalog) = (snapshot.version(), snapshot.catalog_version());
        drop(snapshot);
        let mut changed = model.clone();
        change(&mut transaction, &tables, &mut changed, &mut chance);
        if chance.one_in(4) {
            drop(transaction);
        } else {
            transaction.commit().unwrap();
            model = changed;
        }
        let now = store.snapshot().unwrap();
        if now.version() > before {
            commits += 1;
            alone += usize::from(now.catalog_version() == catalog);
        }
        drop(now);
        check(&store, &tables, &model);
        if chance.one_in(40) {
            // These keys and records have no meaning, so ignore findings about rows.
            let findings = store.check().unwrap();
            assert!(findings.iter().all(|finding| finding.row.is_some()), "{findings:?}");
            store.close();
            store = Store::open(&path, &options).unwrap();
            check(&store, &tables, &model);
        }
    }
    // Some are too large for the log.
    assert!(alone > commits / 2 && alone < commits, "{alone} of {commits}");
}

#[test]
fn the_catalog_is_written_where_a_row_is_more_than_its_record() {
    let store = Store::open(Scratch::new().path("rows.pel"), &OpenOptions::default()).unwrap();
    let mut tables = Vec::new();
    drop(begin(&store, &mut tables));
    let is_written = |key: &[u8], spelling: &[u8], is_deleted: bool| {
        let before = store.snapshot().unwrap().catalog_version();
        let mut transaction = store.begin(WAIT).unwrap();
        if is_deleted {
            assert!(transaction.delete(tables[0], key).unwrap());
        } else {
            transaction.put(tables[0], key, spelling, b"\x11value", &[]).unwrap();
            transaction.put(tables[1], key, b"", b"\x11value", &[]).unwrap();
        }
        transaction.commit().unwrap();
        store.snapshot().unwrap().catalog_version() > before
    };
    let long = [7; LONG];
    assert!(!is_written(b"key", b"", false));
    assert!(!is_written(b"key", b"", false), "it is replaced");
    assert!(!is_written(b"key", b"", true));
    assert!(is_written(b"key", b"\x01", false), "it is new, and has a spelling");
    assert!(is_written(b"key", b"", true));
    assert!(is_written(&long, b"", false));
    assert!(is_written(&long, b"", true));
    let snapshot = store.snapshot().unwrap();
    let counts = [0, 1].map(|which| snapshot.count(tables[which]).unwrap());
    assert_eq!(counts, [0, 2]);
}
