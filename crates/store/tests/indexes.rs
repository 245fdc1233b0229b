//! Tests that index entries are always those of the rows, whatever is done to these.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pellucid_record::key::KeyValue;
use pellucid_store::{
    IndexError, KnownTable, Mode, OpenOptions, Range, Savepoint, Store, StoreError, TableId, Transaction,
    TryResult,
};
use support::words::{Words, parts_of, words_of};
use support::{Chance, Scratch, key, record};

const WAIT: Duration = Duration::from_secs(10);

fn options() -> OpenOptions {
    OpenOptions { key_size_max: 64, deriver: Some(Arc::new(Words::default())), ..OpenOptions::default() }
}

fn stores(scratch: &Scratch) -> [Store; 2] {
    [Store::memory_with(&options()).unwrap(), Store::open(scratch.path("i.pel"), &options()).unwrap()]
}

fn write<R>(store: &Store, work: impl FnOnce(&mut Transaction) -> R) -> R {
    let mut transaction = store.begin(WAIT).unwrap();
    let result = work(&mut transaction);
    transaction.commit().unwrap();
    result
}

fn create(transaction: &mut Transaction, table: TableId, name: &str, definition: &str, is_unique: bool) {
    transaction.create_index(table, name, definition, is_unique, &mut |_, _| true).unwrap();
}

fn put(transaction: &mut Transaction, table: TableId, name: &str, text: &str) -> Result<bool, StoreError> {
    transaction.put(table, &key(name), &[], &record(text), &[])
}

/// The parts and the row's key of each entry, in order.
fn entries(store: &Store, table: TableId, name: &str) -> Vec<Vec<u8>> {
    let snapshot = store.snapshot().unwrap();
    let id = snapshot.index(table, name).unwrap().unwrap().id;
    let mut scan = snapshot.scan(id, &Range::ALL, false).unwrap();
    let mut found = Vec::new();
    while let Some(row) = scan.next().unwrap() {
        assert!(row.record.is_empty());
        found.push(row.key.to_vec());
    }
    assert_eq!(snapshot.count(id).unwrap(), found.len() as u64);
    found
}

fn expected(rows: &BTreeMap<String, String>, definition: &str) -> Vec<Vec<u8>> {
    let mut found: Vec<Vec<u8>> = Vec::new();
    for (name, text) in rows {
        for parts in parts_of(definition, &words_of(&record(text))) {
            found.push([parts, key(name)].concat());
        }
    }
    found.sort();
    found
}

fn refused(error: StoreError) -> (String, String, String) {
    let StoreError::Index(error) = error else { panic!("{error}") };
    let IndexError::NotUnique(refused) = *error else { panic!("{error}") };
    let shown = |key: &[u8]| match KeyValue::decode(key, &[]).unwrap() {
        KeyValue::Str(text) => String::from_utf8(text).unwrap(),
        other => format!("{other:?}"),
    };
    (refused.index, shown(&refused.key), shown(&refused.existing))
}

/// Drop the index with this name and definition, or create it.
fn toggle<'d>(transaction: &mut Transaction, table: TableId, definition: &'d str, made: &mut Vec<&'d str>) {
    if made.contains(&definition) {
        transaction.drop_index(table, definition, &mut || true).unwrap();
        made.retain(|other| *other != definition);
    } else {
        create(transaction, table, definition, definition, false);
        made.push(definition);
    }
}

const LONG: &str = "wwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwwww";
/// Some of them make keys beyond the limit of 64 bytes; these share a run.
const WORDS: [&str; 6] = ["a", "ab", "b", "c", LONG, "wx"];
const DEFINITIONS: [&str; 4] = ["0", "1-", "0-,1", "*"];

#[test]
fn what_rows_come_to_is_what_an_index_has_whatever_is_done() {
    let scratch = Scratch::new();
    let mut chance = Chance::new("what_rows_come_to_is_what_an_index_has_whatever_is_done");
    for store in stores(&scratch) {
        let table = write(&store, |transaction| transaction.create_table("t").unwrap());
        let mut rows: BTreeMap<String, String> = BTreeMap::new();
        let mut made: Vec<&str> = Vec::new();
        for _ in 0..60 {
            let before = (rows.clone(), made.clone());
            let mut transaction = store.begin(WAIT).unwrap();
            let is_batch = chance.one_in(2);
            if is_batch {
                transaction.begin_batch(Box::new(|| true));
            }
            let mut savepoint: Option<(Savepoint, BTreeMap<String, String>, Vec<&str>)> = None;
            for _ in 0..chance.below(12) {
                let name = format!("{}{}", "k".repeat([1, 60][chance.below(2)]), chance.below(5));
                match chance.below(9) {
                    0..=4 => {
                        let text: Vec<&str> =
                            (0..chance.below(4)).map(|_| WORDS[chance.below(WORDS.len())]).collect();
                        put(&mut transaction, table, &name, &text.join(" ")).unwrap();
                        rows.insert(name, text.join(" "));
                    }
                    5 => assert_eq!(
                        transaction.delete(table, &key(&name)).unwrap(),
                        rows.remove(&name).is_some()
                    ),
                    6 => {
                        let definition = DEFINITIONS[chance.below(DEFINITIONS.len())];
                        toggle(&mut transaction, table, definition, &mut made);
                    }
                    7 => match savepoint.take() {
                        None => {
                            savepoint = Some((transaction.savepoint().unwrap(), rows.clone(), made.clone()));
                        }
                        Some((savepoint, old_rows, old_made)) => {
                            transaction.rollback_to(savepoint).unwrap();
                            (rows, made) = (old_rows, old_made);
                        }
                    },
                    _ if chance.one_in(4) => {
                        transaction.clear(table).unwrap();
                        rows.clear();
                    }
                    _ => {}
                }
            }
            if is_batch {
                transaction.end_batch().unwrap();
            }
            if chance.one_in(5) {
                drop(transaction);
                (rows, made) = before;
            } else {
                transaction.commit().unwrap();
            }
            for definition in &made {
                assert_eq!(entries(&store, table, definition), expected(&rows, definition), "{definition}");
            }
            assert_eq!(store.snapshot().unwrap().indexes(table).unwrap().len(), made.len());
            assert_eq!(store.check().unwrap(), []);
        }
    }
}

#[test]
fn a_second_row_with_a_unique_value_is_refused_and_leaves_nothing() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        let table = write(&store, |transaction| {
            let table = transaction.create_table("t").unwrap();
            create(transaction, table, "first", "0", true);
            create(transaction, table, "each", "*", false);
            table
        });
        let long = "w".repeat(100);
        write(&store, |transaction| {
            put(transaction, table, "one", "a b").unwrap();
            put(transaction, table, "long", &long).unwrap();
            for text in ["a c", &long] {
                let error = put(transaction, table, "two", text).unwrap_err();
                let holder = if text == "a c" { "one" } else { "long" };
                assert_eq!(refused(error), ("first".into(), "two".into(), holder.into()));
                assert!(transaction.get(table, &key("two")).unwrap().is_none());
            }
            // Its own value again, another one, and one that another row has given up.
            put(transaction, table, "one", "a d").unwrap();
            put(transaction, table, "one", "b").unwrap();
            put(transaction, table, "two", "a").unwrap();
            transaction.delete(table, &key("two")).unwrap();
            put(transaction, table, "three", "a").unwrap();
        });
        assert_eq!(entries(&store, table, "first").len(), 3);
        assert_eq!(entries(&store, table, "each").len(), 3);
        let mut transaction = store.begin(WAIT).unwrap();
        put(&mut transaction, table, "four", "z b").unwrap();
        let made = transaction.create_index(table, "second", "1", true, &mut |_, _| true);
        assert!(made.is_ok(), "one row alone has a second word");
        put(&mut transaction, table, "five", "y").unwrap();
        transaction.drop_index(table, "second", &mut || true).unwrap();
        put(&mut transaction, table, "five", "y b").unwrap();
        let made = transaction.create_index(table, "second", "1", true, &mut |_, _| true);
        assert_eq!(refused(made.unwrap_err()), ("second".into(), "four".into(), "five".into()));
        drop(transaction);
        assert_eq!(store.check().unwrap(), []);
    }
}

fn known(store: &Store, table: TableId) -> KnownTable {
    store.snapshot().unwrap().known(table).unwrap()
}

/// Put a row without a transaction, or with one where that has to be. Returns whether it went
/// without.
fn put_alone(store: &Store, table: TableId, name: &str, text: &str) -> bool {
    let (key, record) = (key(name), record(text));
    let cached = store.cached_database().unwrap();
    let known = known(store, table);
    let put = if text.len().is_multiple_of(2) {
        // This reads the row first.
        cached.change(known, &key, |_, out| {
            out.extend_from_slice(&record);
            Some(())
        })
    } else {
        cached.put(known, &key, &record).map(|put| put.map(|_| ()))
    };
    let is_done = put.unwrap() == TryResult::Done(());
    if !is_done {
        write(store, |transaction| transaction.put(table, &key, &[], &record, &[]).unwrap());
    }
    is_done
}

#[test]
fn rows_written_alone_bring_their_entries_with_them() {
    let scratch = Scratch::new();
    let mut chance = Chance::new("rows_written_alone_bring_their_entries_with_them");
    for store in stores(&scratch) {
        let table = write(&store, |transaction| transaction.create_table("t").unwrap());
        let mut rows: BTreeMap<String, String> = BTreeMap::new();
        let mut made: Vec<&str> = Vec::new();
        let (mut alone, mut all) = (0, 0);
        for _ in 0..60 {
            let definition = DEFINITIONS[chance.below(DEFINITIONS.len())];
            write(&store, |transaction| toggle(transaction, table, definition, &mut made));
            let before = store.snapshot().unwrap();
            let expected_before = rows.len() as u64;
            for _ in 0..chance.below(30) {
                let name =
                    format!("{}{}", "k".repeat(if chance.one_in(9) { 60 } else { 1 }), chance.below(5));
                if chance.one_in(4) {
                    let cached = store.cached_database().unwrap();
                    let deleted = cached.delete(known(&store, table), &key(&name)).unwrap();
                    if deleted == TryResult::UseTransaction {
                        write(&store, |transaction| transaction.delete(table, &key(&name)).unwrap());
                    } else {
                        assert!(rows.contains_key(&name), "a row that is not there is left to a transaction");
                    }
                    rows.remove(&name);
                } else {
                    let text: Vec<&str> =
                        (0..chance.below(4)).map(|_| WORDS[chance.below(WORDS.len())]).collect();
                    let text = text.join(" ");
                    all += usize::from(!name.starts_with("kk") && !text.contains(LONG));
                    alone += usize::from(put_alone(&store, table, &name, &text));
                    rows.insert(name, text);
                }
                if chance.one_in(20) {
                    store.sync().unwrap();
                }
            }
            for definition in &made {
                assert_eq!(entries(&store, table, definition), expected(&rows, definition), "{definition}");
            }
            assert_eq!(before.count(table).unwrap(), expected_before);
            assert_eq!(store.check().unwrap(), []);
        }
        // Each new set of indexes is prepared by a transaction.
        assert!(alone > all * 3 / 4, "{alone} of {all} went without a transaction");
    }
}

#[test]
fn a_row_written_alone_leaves_nothing_where_its_value_is_taken() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        let table = write(&store, |transaction| {
            let table = transaction.create_table("t").unwrap();
            create(transaction, table, "all", "*", false);
            create(transaction, table, "first", "0", true);
            table
        });
        for (name, text) in [("one", "a x"), ("two", "b"), ("two", "bc")] {
            put_alone(&store, table, name, text);
        }
        let before = store.snapshot().unwrap().version();
        let put = |name: &str, text: &str| {
            store.cached_database().unwrap().put(known(&store, table), &key(name), &record(text)).unwrap()
        };
        assert_eq!(put("three", "a y"), TryResult::UseTransaction, "the transaction says whose it is");
        assert_eq!(put("two", "a"), TryResult::UseTransaction);
        assert_eq!(store.snapshot().unwrap().version(), before, "nothing was committed");
        let mut transaction = store.begin(WAIT).unwrap();
        let error = self::put(&mut transaction, table, "three", "a y").unwrap_err();
        assert_eq!(refused(error), ("first".into(), "three".into(), "one".into()));
        drop(transaction);
        // The refused transaction has given the prepared indexes back. Now the row's own value again,
        // another one, what another row has given up, and what begins so.
        for (name, text) in [("one", "a z"), ("one", "d"), ("three", "a"), ("four", "aa"), ("five", "")] {
            assert!(matches!(put(name, text), TryResult::Done(_)), "{name}: {text}");
        }
        // Now the tree has the entries. The next commit goes on in another segment, by a transaction.
        store.sync().unwrap();
        put_alone(&store, table, "seven", "z");
        assert_eq!(put("six", "aa"), TryResult::UseTransaction);
        let cached = store.cached_database().unwrap();
        assert_eq!(cached.delete(known(&store, table), &key("four")).unwrap(), TryResult::Done(()));
        assert_eq!(put("six", "aa"), TryResult::Done(false));
        assert_eq!(entries(&store, table, "first").len(), 5);
        assert_eq!(store.check().unwrap(), []);
    }
}

#[test]
fn a_write_that_leaves_the_indexed_words_writes_no_entry() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        let table = write(&store, |transaction| {
            let table = transaction.create_table("t").unwrap();
            create(transaction, table, "first", "0", false);
            put(transaction, table, "one", "a b").unwrap();
            table
        });
        let count = || store.stats().unwrap().entry_writes;
        let before = count();
        write(&store, |transaction| put(transaction, table, "one", "a c").unwrap());
        assert_eq!(count(), before);
        write(&store, |transaction| put(transaction, table, "one", "b c").unwrap());
        assert_eq!(count(), before + 2, "one is deleted, and one written");
    }
}

#[test]
fn whoever_knows_no_indexes_writes_nothing_into_an_indexed_table() {
    let scratch = Scratch::new();
    let path = scratch.path("i.pel");
    let store = Store::open(&path, &options()).unwrap();
    let table = write(&store, |transaction| {
        let table = transaction.create_table("t").unwrap();
        create(transaction, table, "first", "0", false);
        put(transaction, table, "one", "a").unwrap();
        table
    });
    drop(store);
    let store = Store::open(&path, &OpenOptions { deriver: None, ..options() }).unwrap();
    let mut transaction = store.begin(WAIT).unwrap();
    let error = put(&mut transaction, table, "two", "b").unwrap_err();
    assert!(error.to_string().contains("write with one that can"), "{error}");
    assert!(transaction.delete(table, &key("one")).is_err());
    drop(transaction);
    let known = store.snapshot().unwrap().known(table).unwrap();
    assert_eq!(
        store.cached_database().unwrap().put(known, &key("two"), &record("b")).unwrap(),
        TryResult::UseTransaction
    );
    drop(store);
    let store = Store::open(&path, &options()).unwrap();
    assert_eq!(entries(&store, table, "first").len(), 1, "declared once, and still kept in step");
    write(&store, |transaction| put(transaction, table, "two", "b").unwrap());
    assert_eq!(entries(&store, table, "first").len(), 2);
}

#[test]
fn an_index_goes_with_its_table_and_with_everything() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        let rows: BTreeMap<String, String> =
            (0..1500).map(|n| (format!("k{n:04}"), format!("a b{}", "c".repeat(n % 7)))).collect();
        let table = write(&store, |transaction| {
            let table = transaction.create_table("t").unwrap();
            create(transaction, table, "each", "*", false);
            for (name, text) in &rows {
                put(transaction, table, name, text).unwrap();
            }
            table
        });
        assert_eq!(entries(&store, table, "each"), expected(&rows, "*"));
        // With nothing else in the database, and beside another table.
        write(&store, |transaction| transaction.clear(table).unwrap());
        assert_eq!(entries(&store, table, "each"), Vec::<Vec<u8>>::new());
        write(&store, |transaction| {
            let other = transaction.create_table("other").unwrap();
            put(transaction, other, "x", "y").unwrap();
            for (name, text) in &rows {
                put(transaction, table, name, text).unwrap();
            }
            transaction.rename_table("t", "renamed").unwrap();
        });
        write(&store, |transaction| transaction.clear(table).unwrap());
        assert_eq!(store.check().unwrap(), []);
        write(&store, |transaction| {
            put(transaction, table, "one", "a").unwrap();
            transaction.drop_table("renamed").unwrap();
        });
        assert_eq!(store.check().unwrap(), []);
        let snapshot = store.snapshot().unwrap();
        assert_eq!(snapshot.indexes(table).unwrap(), []);
        assert_eq!(snapshot.tables().unwrap().len(), 1);
    }
    let store = Store::open(scratch.path("i.pel"), &options()).unwrap();
    write(&store, |transaction| {
        let table = transaction.create_table("t").unwrap();
        create(transaction, table, "each", "*", true);
        put(transaction, table, "one", "a").unwrap();
    });
    drop(store);
    let store = Store::open(scratch.path("i.pel"), &OpenOptions { mode: Mode::New, ..options() }).unwrap();
    assert_eq!(store.check().unwrap(), []);
    assert_eq!(store.snapshot().unwrap().tables().unwrap(), []);
}

#[test]
fn names_and_definitions_that_cannot_be_are_refused() {
    let store = Store::memory_with(&options()).unwrap();
    write(&store, |transaction| {
        let table = transaction.create_table("t").unwrap();
        create(transaction, table, "first", "0", false);
        let mut made = |name: &str, definition: &str, is_unique| {
            transaction.create_index(table, name, definition, is_unique, &mut |_, _| true)
        };
        assert!(made("first", "0", false).is_ok(), "the same again is nothing");
        for (name, definition, is_unique, words) in [
            ("first", "1", false, "over 0, and not over 1; choose another name"),
            ("first", "0", true, "over 0, and not unique over 0; choose another name"),
            ("", "0", false, "its name has 0 bytes"),
            (&"n".repeat(256), "0", false, "its name has 256 bytes"),
            ("second", "", false, "a definition names words"),
        ] {
            let error = made(name, definition, is_unique).unwrap_err().to_string();
            assert!(error.contains(words), "{error}");
        }
        let error = transaction.drop_index(table, "third", &mut || true).unwrap_err().to_string();
        assert_eq!(error, "table 't' has no index 'third'; those it has are 'first'");
        assert_eq!(transaction.indexes(table).unwrap().len(), 1);
    });
    assert_eq!(store.check().unwrap(), []);
}

/// Returns false in call number `at`, and counts the calls.
fn stopping(at: usize) -> (Arc<AtomicUsize>, impl FnMut() -> bool + Send + Sync) {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    (asked, move || counted.fetch_add(1, Ordering::Relaxed) + 1 != at)
}

#[test]
fn what_a_batch_has_gathered_is_written_until_it_is_stopped() {
    const ROWS: usize = 300;
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        let table = write(&store, |transaction| {
            let table = transaction.create_table("t").unwrap();
            create(transaction, table, "unique", "0", true);
            create(transaction, table, "other", "1", false);
            put(transaction, table, "old", "aa here").unwrap();
            table
        });
        let fill = |transaction: &mut Transaction| {
            transaction.delete(table, &key("old")).unwrap();
            for number in 0..ROWS {
                // Of letters alone, which are what words are made of.
                let letter = |digit: usize| char::from(b'a' + (digit % 26) as u8);
                let word = [letter(number / 26), letter(number)].iter().collect::<String>();
                put(transaction, table, &format!("k{number}"), &format!("{word} x")).unwrap();
            }
        };
        // However late it is stopped: everything is rolled back.
        let (asked, go_on) = stopping(0);
        let mut transaction = store.begin(WAIT).unwrap();
        transaction.begin_batch(Box::new(go_on));
        fill(&mut transaction);
        transaction.end_batch().unwrap();
        drop(transaction);
        let count = asked.load(Ordering::Relaxed);
        assert!(count > 3 * ROWS, "{count}");
        for at in [1, 2, count / 2, count - ROWS, count] {
            let mut transaction = store.begin(WAIT).unwrap();
            let savepoint = transaction.savepoint().unwrap();
            transaction.begin_batch(Box::new(stopping(at).1));
            fill(&mut transaction);
            assert!(matches!(transaction.end_batch(), Err(StoreError::Stopped)));
            transaction.rollback_to(savepoint).unwrap();
            put(&mut transaction, table, "new", "v z").unwrap();
            transaction.delete(table, &key("new")).unwrap();
            transaction.commit().unwrap();
            assert_eq!(store.check().unwrap(), []);
            assert_eq!(entries(&store, table, "other").len(), 1);
        }
        // A caller that goes on without a rollback keeps everything.
        let mut transaction = store.begin(WAIT).unwrap();
        transaction.begin_batch(Box::new(stopping(count - ROWS).1));
        fill(&mut transaction);
        assert!(matches!(transaction.end_batch(), Err(StoreError::Stopped)));
        transaction.commit().unwrap();
        assert_eq!(store.check().unwrap(), []);
        assert_eq!(entries(&store, table, "unique").len(), ROWS);
    }
}

#[test]
fn an_index_whose_deletion_is_stopped_is_as_it_was() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        let table = write(&store, |transaction| {
            let table = transaction.create_table("t").unwrap();
            create(transaction, table, "first", "0", false);
            for number in 0..2000 {
                put(transaction, table, &format!("k{number}"), "x").unwrap();
            }
            table
        });
        write(&store, |transaction| {
            put(transaction, table, "more", "x").unwrap();
            let dropped = transaction.drop_index(table, "first", &mut stopping(2).1);
            assert!(matches!(dropped, Err(StoreError::Stopped)));
        });
        assert_eq!(entries(&store, table, "first").len(), 2001);
        assert_eq!(store.check().unwrap(), []);
    }
}

#[test]
fn a_table_that_is_not_emptied_to_its_end_is_as_it_was() {
    let scratch = Scratch::new();
    for store in stores(&scratch) {
        let table = write(&store, |transaction| {
            // Without another table, all rows are cleared at once.
            let other = transaction.create_table("other").unwrap();
            put(transaction, other, "k", "x").unwrap();
            let table = transaction.create_table("t").unwrap();
            create(transaction, table, "first", "0", false);
            for number in 0..2000 {
                put(transaction, table, &format!("k{number}"), "x").unwrap();
            }
            table
        });
        for at in [1, 3, 5] {
            write(&store, |transaction| {
                put(transaction, table, "more", "x").unwrap();
                let cleared = transaction.clear_while(table, &mut stopping(at).1);
                assert!(matches!(cleared, Err(StoreError::Stopped)));
                let dropped = transaction.drop_table_while("t", &mut stopping(at).1);
                assert!(matches!(dropped, Err(StoreError::Stopped)));
            });
            assert_eq!(entries(&store, table, "first").len(), 2001);
            assert_eq!(store.check().unwrap(), []);
        }
        write(&store, |transaction| transaction.clear_while(table, &mut || true).unwrap());
        assert_eq!(entries(&store, table, "first").len(), 0);
        write(&store, |transaction| transaction.drop_table_while("t", &mut || true).unwrap());
        assert_eq!(store.check().unwrap(), []);
    }
}
