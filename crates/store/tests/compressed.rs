//! Tests that the rows of compressed tables are those of any table, but smaller.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::ops::{Bound, ControlFlow};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use pellucid_record::patch::Change;
use pellucid_store::{
    Finding, Mode, OpenOptions, Range, Sizes, Snapshot, Store, StoreError, TableId, Transaction, TryResult,
};
use support::words::Words;
use support::{Chance, Scratch, key, record};

const WAIT: Duration = Duration::from_secs(10);

type Rows = BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>;

/// A small log, so that most commits soon are in the tree, and long keys.
fn options() -> OpenOptions {
    OpenOptions {
        key_size_max: 64,
        log_segment_size: 1 << 16,
        index_memory: 1 << 16,
        deriver: Some(Arc::new(Words::default())),
        ..OpenOptions::default()
    }
}

fn write<R>(store: &Store, work: impl FnOnce(&mut Transaction) -> R) -> R {
    let mut transaction = store.begin(WAIT).unwrap();
    let result = work(&mut transaction);
    transaction.commit().unwrap();
    result
}

fn create(store: &Store) -> TableId {
    write(store, |transaction| transaction.create_table_as("packed", true).unwrap())
}

/// What rows of a table are like.
fn text(number: usize) -> String {
    let city = ["Rome", "Oslo", "Lima", "Quito"][number % 4];
    format!("this person lives in {city} and was born in {}, and the number is {number}", 1900 + number % 100)
}

fn sizes(store: &Store, table: TableId) -> Sizes {
    store.snapshot().unwrap().sizes(table, &mut || true).unwrap()
}

/// Open a database again: closing it writes all commits into the tree.
fn reopened(store: Store, options: &OpenOptions) -> Store {
    let path = store.path().unwrap().to_owned();
    assert!(store.close().is_none());
    drop(store);
    Store::open(path, options).unwrap()
}

/// Put rows `numbers`.
fn fill(store: &Store, table: TableId, numbers: std::ops::Range<usize>, text: impl Fn(usize) -> String) {
    fill_with(store, table, numbers, |number| record(&text(number)));
}

fn fill_with(
    store: &Store,
    table: TableId,
    numbers: std::ops::Range<usize>,
    record: impl Fn(usize) -> Vec<u8>,
) {
    write(store, |transaction| {
        for number in numbers {
            let key = key(&format!("{number:08}"));
            transaction.put_later(table, &key, b"", &record(number), &[]).unwrap();
        }
    });
}

fn check_rows(snapshot: &Snapshot, table: TableId, rows: &Rows) {
    assert_eq!(snapshot.count(table).unwrap(), rows.len() as u64);
    for reverse in [false, true] {
        let mut scan = snapshot.scan(table, &Range::ALL, reverse).unwrap();
        let mut expected: Vec<_> = rows.iter().collect();
        if reverse {
            expected.reverse();
        }
        let mut visited = Vec::new();
        for (key, (spelling, record)) in &expected {
            let row = scan.next().unwrap().unwrap();
            assert_eq!((row.key, row.spelling, row.record), (&key[..], &spelling[..], &record[..]));
        }
        assert!(scan.next().unwrap().is_none());
        let mut scan = snapshot.scan(table, &Range::ALL, reverse).unwrap();
        while let Some(flow) = scan
            .next_rows(|row| {
                visited.push((row.key.to_vec(), row.record.to_vec()));
                ControlFlow::<()>::Continue(())
            })
            .unwrap()
        {
            assert!(flow.is_continue());
        }
        let expected: Vec<_> =
            expected.iter().map(|(key, (_, record))| ((*key).clone(), record.clone())).collect();
        assert_eq!(visited, expected);
    }
    for (key, (spelling, record)) in rows {
        let row = snapshot.get(table, key).unwrap().unwrap();
        assert_eq!((row.spelling, &*row.record), (&spelling[..], &record[..]));
        let from = Range { start: Bound::Included(key.clone()), end: Bound::Unbounded };
        let first = snapshot.with_first(table, &from, false, |row| (row.key.to_vec(), row.record.to_vec()));
        assert_eq!(first.unwrap(), Some((key.clone(), record.clone())));
    }
}

/// The same, inside a transaction.
fn check_inside(transaction: &Transaction, table: TableId, rows: &Rows) {
    let mut scan = transaction.scan(table, &Range::ALL, false).unwrap();
    for (key, (spelling, record)) in rows {
        let found =
            scan.next(transaction, |row| (row.key.to_vec(), row.spelling.to_vec(), row.record.to_vec()));
        assert_eq!(found.unwrap(), Some((key.clone(), spelling.clone(), record.clone())));
        assert_eq!(&*transaction.get(table, key).unwrap().unwrap().record, record);
    }
    assert!(scan.next(transaction, |_| ()).unwrap().is_none());
}

#[test]
fn a_compressed_table_is_smaller_and_has_the_same_rows() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("a.pel"), &OpenOptions::default()).unwrap();
    let table = create(&store);
    let plain = write(&store, |transaction| transaction.create_table("plain").unwrap());
    for one in [table, plain] {
        fill(&store, one, 0..20_000, text);
    }
    let store = reopened(store, &OpenOptions::default());
    let (packed, plain) = (sizes(&store, table), sizes(&store, plain));
    assert_eq!((packed.records, packed.rows, packed.keys), (plain.records, plain.rows, plain.keys));
    assert_eq!((plain.stored, plain.packed_rows, plain.dictionaries), (plain.records, 0, 0));
    assert!(packed.stored * 5 < packed.records * 2, "{packed:?}");
    assert!(packed.rows - packed.packed_rows < 300 && packed.dictionaries <= 4, "{packed:?}");
    let snapshot = store.snapshot().unwrap();
    let rows: Rows = (0..20_000)
        .map(|number| (key(&format!("{number:08}")), (Vec::new(), record(&text(number)))))
        .collect();
    check_rows(&snapshot, table, &rows);
}

#[test]
fn rows_of_small_transactions_are_packed_too() {
    let scratch = Scratch::new();
    let mut store = Store::open(scratch.path("a.pel"), &options()).unwrap();
    let table = create(&store);
    for start in (0..2_000).step_by(20) {
        fill(&store, table, start..start + 20, text);
        store = reopened(store, &options());
    }
    let sizes = sizes(&store, table);
    assert!(sizes.packed_rows > 1_600, "{sizes:?}");
}

/// One random change of a table, and of the map beside it.
fn change_one(
    chance: &mut Chance,
    transaction: &mut Transaction,
    table: TableId,
    rows: &mut Rows,
    number: usize,
) {
    let name = format!("{:03}", chance.below(600));
    // Some keys are longer than the engine's, and begin alike.
    let name = if chance.one_in(8) { format!("{}{name}", "k".repeat(80)) } else { name };
    let key = key(&name);
    let new = record(&if chance.one_in(10) { String::new() } else { text(number) });
    match chance.below(8) {
        0 => {
            assert_eq!(transaction.delete(table, &key).unwrap(), rows.remove(&key).is_some());
        }
        1 => {
            let patched = transaction.patch(table, &key, &[], Change::Set(&new), &[]).unwrap();
            assert_eq!(patched.is_some(), rows.contains_key(&key));
            if let Some(row) = rows.get_mut(&key) {
                row.1 = new;
            }
        }
        2 => {
            let done = transaction.rewrite(table, &key, 0, |record, _| {
                record.reverse();
                record.reverse();
                Ok::<_, ()>(true)
            });
            let found = done.unwrap().map(|(record, _)| record);
            assert_eq!(found.as_ref(), rows.get(&key).map(|(_, record)| record));
        }
        _ => {
            transaction.put_later(table, &key, b"", &new, &[]).unwrap();
            rows.insert(key, (Vec::new(), new));
        }
    }
}

#[test]
fn random_operations_do_what_they_do_in_a_map() {
    let mut chance = Chance::new("random_operations_do_what_they_do_in_a_map");
    let scratch = Scratch::new();
    let mut store = Store::open(scratch.path("a.pel"), &options()).unwrap();
    let table = create(&store);
    write(&store, |transaction| transaction.create_index(table, "first", "0", false, &mut |_, _| true))
        .unwrap();
    let mut rows = Rows::new();
    let mut number = 0;
    for round in 0..60 {
        let mut transaction = store.begin(WAIT).unwrap();
        let before = rows.clone();
        // Some transactions are too large for the log.
        let count = if chance.one_in(3) { 400 } else { chance.below(40) };
        for _ in 0..count {
            number += 1;
            change_one(&mut chance, &mut transaction, table, &mut rows, number);
            if chance.one_in(100) {
                transaction.flush_rows().unwrap();
                check_inside(&transaction, table, &rows);
            }
        }
        if chance.one_in(5) {
            drop(transaction);
            rows = before;
        } else {
            transaction.flush_rows().unwrap();
            check_inside(&transaction, table, &rows);
            transaction.commit().unwrap();
        }
        if chance.one_in(4) {
            assert_eq!(store.check().unwrap(), [], "round {round}");
        }
        if chance.one_in(6) {
            store = reopened(store, &options());
        }
        if chance.one_in(12) {
            write(&store, |transaction| transaction.clear(table)).unwrap();
            rows.clear();
        }
        check_rows(&store.snapshot().unwrap(), table, &rows);
    }
    assert_eq!(store.check().unwrap(), []);
    store.compact(WAIT).unwrap();
    check_rows(&store.snapshot().unwrap(), table, &rows);
    let copy = scratch.path("copy.pel");
    store.backup(&copy).unwrap();
    let copy = Store::open(&copy, &options()).unwrap();
    let table = copy.snapshot().unwrap().table("packed").unwrap().unwrap();
    check_rows(&copy.snapshot().unwrap(), table, &rows);
    assert_eq!(copy.check().unwrap(), []);
}

#[test]
fn rows_are_read_and_changed_without_a_transaction() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("a.pel"), &OpenOptions::default()).unwrap();
    let table = create(&store);
    fill(&store, table, 0..2_000, text);
    let store = reopened(store, &OpenOptions::default());
    let cached = store.cached_database().unwrap();
    let known = store.snapshot().unwrap().known(table).unwrap();
    let key = key("00001500");
    let show = || {
        let mut shown = Vec::new();
        let done = cached.show(known, &key, |record| shown = record.to_vec()).unwrap();
        (done, shown)
    };
    assert_eq!(show().0, TryResult::UseTransaction, "no dictionary is known");
    assert!(store.snapshot().unwrap().get(table, &key).unwrap().is_some());
    assert_eq!(show(), (TryResult::Done(true), record(&text(1500))));
    write(&store, |transaction| transaction.create_table("other")).unwrap();
    let known = store.snapshot().unwrap().known(table).unwrap();
    let changed = cached.change(known, &key, |old, out| {
        assert_eq!(old, Some(&record(&text(1500))[..]));
        out.extend_from_slice(&record("changed"));
        Some(())
    });
    assert_eq!(changed.unwrap(), TryResult::Done(()));
    assert_eq!(&*store.snapshot().unwrap().get(table, &key).unwrap().unwrap().record, record("changed"));
    let key = support::key("00001600");
    assert_eq!(cached.put(known, &key, &record("put")).unwrap(), TryResult::Done(true));
    let key = support::key("00001700");
    assert_eq!(cached.delete(known, &key).unwrap(), TryResult::Done(()));
    drop(cached);
    assert_eq!(store.check().unwrap(), []);
    assert_eq!(store.snapshot().unwrap().count(table).unwrap(), 1_999);
}

#[test]
fn rows_that_have_changed_their_looks_get_a_dictionary_of_their_own() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("a.pel"), &OpenOptions::default()).unwrap();
    let table = create(&store);
    fill(&store, table, 0..10_000, text);
    let before = sizes(&store, table);
    let other = |number: usize| {
        format!(
            "GET /static/images/{} HTTP/1.1 200 {} Mozilla/5.0 (X11; Linux x86_64)",
            number * 7_919 % 1_000,
            number
        )
    };
    fill(&store, table, 10_000..60_000, other);
    let after = sizes(&store, table);
    assert!(after.dictionaries > before.dictionaries, "{after:?}");
    assert!(after.dictionaries < 8, "{after:?}");
    let late = (after.records - before.records, after.stored - before.stored);
    assert!(late.1 * 2 < late.0, "{late:?}");
    let snapshot = store.snapshot().unwrap();
    for number in [0, 9_999] {
        let row = snapshot.get(table, &key(&format!("{number:08}"))).unwrap().unwrap();
        assert_eq!(&*row.record, record(&text(number)), "its dictionary stays");
    }
}

#[test]
fn rows_that_do_not_compress_stay_plain() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("a.pel"), &options()).unwrap();
    let [random, mixed] =
        ["random", "mixed"].map(|name| write(&store, |it| it.create_table_as(name, true).unwrap()));
    // A few bytes of each row are alike, which is not worth a dictionary.
    let noise = |number: usize| {
        let mut encoder = pellucid_record::Encoder::new();
        encoder.bytes_value(&[b"a few", &Chance::from_seed(number as u64).bytes(200)[..]].concat());
        encoder.take()
    };
    fill_with(&store, random, 0..20_000, noise);
    let sizes_of = |table| sizes(&store, table);
    let sizes = sizes_of(random);
    assert_eq!((sizes.packed_rows, sizes.dictionaries, sizes.stored), (0, 0, sizes.records), "{sizes:?}");
    // Also where a dictionary was trained on other rows.
    fill(&store, mixed, 0..2_000, text);
    let before = sizes_of(mixed);
    assert!(before.packed_rows > 1_500, "{before:?}");
    fill_with(&store, mixed, 2_000..20_000, noise);
    let after = sizes_of(mixed);
    assert_eq!(after.packed_rows, before.packed_rows, "{after:?}");
    // Rows that compress are packed again.
    fill(&store, mixed, 20_000..22_000, text);
    let again = sizes_of(mixed);
    assert!(again.packed_rows > after.packed_rows + 1_900, "{again:?}");
    let snapshot = store.snapshot().unwrap();
    for number in [1_999, 2_000, 19_999, 20_000, 21_999] {
        let expected = if (2_000..20_000).contains(&number) { noise(number) } else { record(&text(number)) };
        let row = snapshot.get(mixed, &key(&format!("{number:08}"))).unwrap().unwrap();
        assert_eq!(&*row.record, expected);
    }
}

#[test]
fn a_rollback_takes_a_dictionary_back_with_its_rows() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("a.pel"), &options()).unwrap();
    let table = create(&store);
    let mut transaction = store.begin(WAIT).unwrap();
    let put = |transaction: &mut Transaction, text: &dyn Fn(usize) -> String| {
        for number in 0..3_000 {
            let row = record(&text(number));
            transaction.put_later(table, &key(&format!("{number:08}")), b"", &row, &[]).unwrap();
        }
        transaction.flush_rows().unwrap();
    };
    put(&mut transaction, &|number| format!("{number}"));
    let savepoint = transaction.savepoint().unwrap();
    put(&mut transaction, &text);
    let read = |transaction: &Transaction| {
        transaction.get(table, &key("00002500")).unwrap().unwrap().record.to_vec()
    };
    assert_eq!(read(&transaction), record(&text(2_500)));
    transaction.rollback_to(savepoint).unwrap();
    assert_eq!(read(&transaction), record("2500"));
    put(&mut transaction, &|number| text(number).to_uppercase());
    assert_eq!(read(&transaction), record(&text(2_500).to_uppercase()));
    transaction.commit().unwrap();
    assert_eq!(store.check().unwrap(), []);
    let snapshot = store.snapshot().unwrap();
    for number in 0..3_000 {
        let row = snapshot.get(table, &key(&format!("{number:08}"))).unwrap().unwrap();
        assert_eq!(&*row.record, record(&text(number).to_uppercase()));
    }
}

#[test]
fn a_dropped_table_takes_its_dictionaries_with_it() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("a.pel"), &OpenOptions::default()).unwrap();
    let table = create(&store);
    fill(&store, table, 0..3_000, text);
    let store = reopened(store, &OpenOptions::default());
    assert!(sizes(&store, table).dictionaries > 0);
    write(&store, |transaction| transaction.drop_table("packed")).unwrap();
    assert_eq!(store.check().unwrap(), []);
    assert_eq!(sizes(&store, table), Sizes::default());
    let again = create(&store);
    assert!(store.snapshot().unwrap().is_compressed(again).unwrap());
    assert!(!store.snapshot().unwrap().is_compressed(table).unwrap());
}

/// The file of a closed database with a compressed table, and one without.
fn make(path: &Path) {
    let store = Store::open(path, &OpenOptions::default()).unwrap();
    let table = create(&store);
    fill(&store, table, 0..3_000, text);
    let plain = write(&store, |transaction| transaction.create_table("plain").unwrap());
    fill(&store, plain, 0..300, text);
    assert!(store.close().is_none());
}

/// The findings for a file, and how many rows could not be read. Each packed row that can be read is
/// as it was.
fn look(path: &Path) -> Option<(Vec<Finding>, usize)> {
    let options = OpenOptions { mode: Mode::Read, ..OpenOptions::default() };
    let store = Store::open(path, &options).ok()?;
    let findings = store.check().ok();
    let mut failed = 0;
    let snapshot = store.snapshot().ok()?;
    let table = snapshot.table("packed").ok()??;
    for number in 0..3_000 {
        match snapshot.get(table, &key(&format!("{number:08}"))) {
            Ok(Some(row)) if !row.is_in_place() => assert_eq!(&*row.record, record(&text(number))),
            Ok(_) => {}
            Err(StoreError::Corrupt { .. }) => failed += 1,
            Err(error) => panic!("{error}"),
        }
    }
    if let Ok(mut scan) = snapshot.scan(table, &Range::ALL, false) {
        // A damaged page stops the walk, a damaged row does not.
        for _ in 0..4_000 {
            if matches!(scan.next(), Ok(None)) {
                break;
            }
        }
    }
    findings.map(|findings| (findings, failed))
}

#[test]
fn a_damaged_dictionary_costs_its_rows_alone_and_check_names_them() {
    let scratch = Scratch::new();
    let path = scratch.path("a.pel");
    make(&path);
    let bytes = fs::read(&path).unwrap();
    // A dictionary of zstd begins like this, behind the head of its page. Some are old copies.
    let magic = 0xEC30_A437_u32.to_le_bytes();
    let places: Vec<usize> =
        (16..bytes.len()).step_by(4096).filter(|at| bytes[*at..].starts_with(&magic)).collect();
    let mut named = 0;
    for place in places.iter().map(|at| at + 2_000) {
        let mut damaged = bytes.clone();
        damaged[place] ^= 1;
        fs::write(&path, &damaged).unwrap();
        let (findings, failed) = look(&path).expect("it opens");
        if findings.first().is_some_and(|finding| finding.place.starts_with("dictionary ")) {
            named += 1;
            let number = findings[0].place.split(' ').nth(1).unwrap();
            let what = format!("dictionary {number}, with which it is packed, is missing or damaged");
            assert!(findings.iter().skip(1).all(|finding| finding.what == what), "{findings:?}");
            // No more findings are kept. The rows of other dictionaries are read.
            assert_eq!(findings.len(), (failed + 1).min(1_000), "each row is named");
            assert!(failed > 0 && failed < 2_999, "{failed}");
            let store = Store::open(&path, &OpenOptions::default()).unwrap();
            let table = store.snapshot().unwrap().table("plain").unwrap().unwrap();
            assert_eq!(store.snapshot().unwrap().count(table).unwrap(), 300);
            // Writing goes on.
            let table = store.snapshot().unwrap().table("packed").unwrap().unwrap();
            write(&store, |transaction| transaction.put(table, &key("00002999"), b"", &record("new"), &[]))
                .unwrap();
            store.sync().unwrap();
            assert_eq!(
                &*store.snapshot().unwrap().get(table, &key("00002999")).unwrap().unwrap().record,
                record("new")
            );
            // So does everything, without these rows.
            write(&store, |transaction| transaction.drop_table("packed")).unwrap();
            assert_eq!(store.check().unwrap(), []);
            let dropped = store.snapshot().unwrap().count(table).unwrap_err().to_string();
            assert!(dropped.starts_with("the table has been dropped since it was opened"), "{dropped}");
            drop(store);
        }
    }
    assert!(named > 0, "{} places", places.len());
}

#[test]
fn damaged_packed_rows_are_found_and_crash_nothing() {
    let scratch = Scratch::new();
    let path = scratch.path("a.pel");
    make(&path);
    let bytes = fs::read(&path).unwrap();
    let mut chance = Chance::new("damaged_packed_rows_are_found_and_crash_nothing");
    // The head of a packed row without anything else, and the number of a dictionary.
    let heads: Vec<usize> = (0..bytes.len() - 40)
        .filter(|at| bytes[*at..].starts_with(&[0xE1, 8]) && bytes[at + 2] < 4)
        .collect();
    assert!(heads.len() > 1_000);
    let mut found = 0;
    for _ in 0..60 {
        let mut damaged = bytes.clone();
        let place = heads[chance.below(heads.len())] + 2 + chance.below(30);
        damaged[place] ^= 1 << chance.below(8);
        fs::write(&path, &damaged).unwrap();
        let (findings, failed) = look(&path).expect("it opens");
        // Some pages are old copies, which are free.
        assert!(!findings.is_empty() || failed == 0, "byte {place}");
        found += usize::from(!findings.is_empty());
    }
    assert!(found > 30, "{found}");
    // All at once, with any bytes.
    for _ in 0..10 {
        let mut damaged = bytes.clone();
        for head in &heads {
            let place = head + 2 + chance.below(24);
            damaged[place] = chance.next() as u8;
        }
        fs::write(&path, &damaged).unwrap();
        look(&path);
    }
}

#[test]
fn an_untrusted_file_is_read() {
    let scratch = Scratch::new();
    let path = scratch.path("a.pel");
    make(&path);
    let options = OpenOptions { is_untrusted: true, mode: Mode::Read, ..OpenOptions::default() };
    let store = Store::open(&path, &options).unwrap();
    let snapshot = store.snapshot().unwrap();
    let table = snapshot.table("packed").unwrap().unwrap();
    for number in 0..3_000 {
        assert_eq!(
            &*snapshot.get(table, &key(&format!("{number:08}"))).unwrap().unwrap().record,
            record(&text(number))
        );
    }
}
