//! Tests that every watcher gets every commit, once, in order, with its changes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::time::Duration;

use pellucid_record::key::KeyValue;
use pellucid_store::{
    Changes, Happened, Keep, Mode, OpenOptions, Range, Store, StoreError, TableId, Transaction, Watch,
    WatchStep, Watched,
};
use support::{Chance, Child, Scratch, key, record};

const WAIT: Duration = Duration::from_secs(10);

/// A database in memory and one in a file, both with an engine limit of 64 bytes and longer keys.
fn stores(scratch: &Scratch, keep: Option<Keep>) -> [Store; 2] {
    let options = OpenOptions { keep, key_size_max: 64, ..OpenOptions::default() };
    [
        Store::memory_with(&options).unwrap(),
        Store::open(scratch.path(&format!("watch-{}.pel", keep.is_some())), &options).unwrap(),
    ]
}

fn open(scratch: &Scratch, keep: Option<Keep>) -> Store {
    Store::open(scratch.path("w.pel"), &OpenOptions { keep, ..OpenOptions::default() }).unwrap()
}

const MUCH: Option<Keep> = Some(Keep { size: 1 << 30, seconds: u64::MAX });

fn write(store: &Store, work: impl FnOnce(&mut Transaction)) -> u64 {
    let mut transaction = store.begin(WAIT).unwrap();
    work(&mut transaction);
    transaction.commit().unwrap();
    store.version().unwrap()
}

fn put(transaction: &mut Transaction, table: TableId, name: &str, value: &str) {
    transaction.put(table, &key(name), &[], &record(value), &[]).unwrap();
}

fn everything(watch: &mut Watch, store: &Store) -> Vec<Changes> {
    let mut changes = Vec::new();
    while let WatchStep::Changes(more) = watch.next(store).unwrap() {
        changes.push(more);
    }
    assert_eq!(watch.version(), store.version().unwrap());
    changes
}

/// Changes as words: "12 people put ann".
fn told(watch: &mut Watch, store: &Store) -> Vec<String> {
    let mut told = Vec::new();
    for Changes { version, changes } in everything(watch, store) {
        for change in changes {
            let named = |key: &[u8]| match KeyValue::decode(key, &[]).unwrap() {
                KeyValue::Str(text) => String::from_utf8(text).unwrap(),
                other => format!("{other:?}"),
            };
            let what = match change.happened {
                Happened::Put { key, record: bytes, .. } => {
                    let text = String::from_utf8_lossy(&bytes[1..]).trim_start_matches('\u{10}').to_owned();
                    format!("put {} {}", named(&key), text.chars().last().unwrap_or('-'))
                }
                Happened::Delete { key, .. } => format!("delete {}", named(&key)),
                Happened::Rename { name } => format!("rename {name}"),
                other => format!("{other:?}").to_lowercase(),
            };
            told.push(format!("{version} {} {what}", change.name));
        }
    }
    told
}

#[test]
fn a_commit_is_told_once_with_what_it_came_to() {
    let scratch = Scratch::new();
    for store in stores(&scratch, None) {
        let begin = store.version().unwrap();
        let mut watch = store.watch(None, Watched::All).unwrap();
        let mut people = None;
        write(&store, |transaction| {
            let table = transaction.create_table("people").unwrap();
            people = Some(table);
            put(transaction, table, "ann", "1");
            put(transaction, table, "bob", "2");
            put(transaction, table, "ann", "3");
        });
        let people = people.unwrap();
        write(&store, |transaction| {
            put(transaction, people, "never", "x");
            assert!(transaction.delete(people, &key("never")).unwrap());
            assert!(transaction.delete(people, &key("bob")).unwrap());
            let savepoint = transaction.savepoint().unwrap();
            put(transaction, people, "taken back", "x");
            transaction.rollback_to(savepoint).unwrap();
        });
        write(&store, |transaction| {
            transaction.rename_table("people", "folk").unwrap();
            let other = transaction.create_table("people").unwrap();
            put(transaction, other, "cid", "4");
            put(transaction, people, "dot", "5");
        });
        write(&store, |transaction| transaction.drop_table("folk").unwrap());
        let at = |number: u64, text: &str| format!("{} {text}", begin + number);
        let expected = [
            at(1, "people create"),
            at(1, "people put bob 2"),
            at(1, "people put ann 3"),
            at(2, "people delete never"),
            at(2, "people delete bob"),
            at(3, "people rename folk"),
            at(3, "people create"),
            at(3, "people put cid 4"),
            at(3, "folk put dot 5"),
            at(4, "folk drop"),
        ];
        assert_eq!(told(&mut watch, &store), expected);
        // From any version on, with the names of that version.
        for since in begin..=store.version().unwrap() {
            let mut later = store.watch(Some(since), Watched::All).unwrap();
            let behind = |line: &&String| line.split(' ').next().unwrap().parse::<u64>().unwrap() > since;
            let expected: Vec<String> = expected.iter().filter(behind).cloned().collect();
            assert_eq!(told(&mut later, &store), expected, "since {since}");
        }
    }
}

#[test]
fn one_table_is_watched_through_its_names_until_it_is_dropped() {
    let scratch = Scratch::new();
    for store in stores(&scratch, None) {
        let range = Range::half_open(key("b"), key("c"));
        let watched = |table| Watched::Table { table, name: "t".to_owned(), range: range.clone() };
        let mut watch = store.watch(None, watched(None)).unwrap();
        let begin = store.version().unwrap();
        let mut table = None;
        write(&store, |transaction| {
            let other = transaction.create_table("other").unwrap();
            table = Some(transaction.create_table("t").unwrap());
            for table in [other, table.unwrap()] {
                for name in ["a", "b", "bb", "c"] {
                    put(transaction, table, name, "1");
                }
            }
        });
        let at = |number: u64, text: &str| format!("{} {text}", begin + number);
        assert_eq!(told(&mut watch, &store), [at(1, "t create"), at(1, "t put b 1"), at(1, "t put bb 1")]);
        write(&store, |transaction| transaction.rename_table("t", "u").unwrap());
        write(&store, |transaction| put(transaction, table.unwrap(), "a", "2"));
        write(&store, |transaction| transaction.clear(table.unwrap()).unwrap());
        assert_eq!(
            told(&mut watch, &store),
            [at(2, "t rename u"), at(4, "u delete b"), at(4, "u delete bb")]
        );
        write(&store, |transaction| {
            transaction.drop_table("u").unwrap();
            transaction.create_table("t").unwrap();
        });
        let WatchStep::Changes(changes) = watch.next(&store).unwrap() else { panic!("it was dropped") };
        assert_eq!(changes.changes[0].happened, Happened::Drop);
        assert!(matches!(watch.next(&store).unwrap(), WatchStep::Over));
        let mut from_before = store.watch(Some(begin), watched(table)).unwrap();
        assert!(matches!(from_before.next(&store).unwrap(), WatchStep::Changes(_)));
        let mut from_now = store.watch(None, watched(table)).unwrap();
        assert!(matches!(from_now.next(&store).unwrap(), WatchStep::Over));
    }
}

#[test]
fn long_keys_are_told_whole_also_when_they_are_deleted() {
    let scratch = Scratch::new();
    for store in stores(&scratch, None) {
        let names: Vec<String> = (0..3).map(|number| format!("{}{number}", "k".repeat(100))).collect();
        let mut table = None;
        write(&store, |transaction| {
            table = Some(transaction.create_table("t").unwrap());
            for name in &names {
                put(transaction, table.unwrap(), name, "1");
            }
        });
        let mut watch = store.watch(None, Watched::All).unwrap();
        write(&store, |transaction| {
            put(transaction, table.unwrap(), &names[1], "2");
            assert!(transaction.delete(table.unwrap(), &key(&names[0])).unwrap());
        });
        write(&store, |transaction| transaction.clear(table.unwrap()).unwrap());
        assert_eq!(store.check().unwrap(), []);
        let mut keys: Vec<Vec<u8>> = Vec::new();
        for change in everything(&mut watch, &store).into_iter().flat_map(|changes| changes.changes) {
            match change.happened {
                Happened::Put { key, .. } | Happened::Delete { key, .. } => keys.push(key),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(keys[..2], [key(&names[1]), key(&names[0])]);
        keys[2..].sort();
        assert_eq!(keys[2..], [key(&names[1]), key(&names[2])]);
    }
}

/// The rows of a table, and those that result from applying all changes again.
type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn replay(rows: &mut BTreeMap<String, Rows>, changes: &Changes) {
    for change in &changes.changes {
        let name = change.name.to_string();
        match &change.happened {
            Happened::Put { key, record, .. } => {
                rows.get_mut(&name).unwrap().insert(key.clone(), record.clone());
            }
            Happened::Delete { key, .. } => {
                rows.get_mut(&name).unwrap().remove(key);
            }
            Happened::Clear => rows.get_mut(&name).unwrap().clear(),
            Happened::Create => assert!(rows.insert(name, Rows::new()).is_none()),
            Happened::Drop => assert!(rows.remove(&name).is_some()),
            Happened::Rename { name: new } => {
                let table = rows.remove(&name).unwrap();
                assert!(rows.insert(new.to_string(), table).is_none());
            }
        }
    }
}

fn rows_of(store: &Store) -> BTreeMap<String, Rows> {
    let snapshot = store.snapshot().unwrap();
    let mut all = BTreeMap::new();
    for (name, table) in snapshot.tables().unwrap() {
        let mut scan = snapshot.scan(table, &Range::ALL, false).unwrap();
        let mut rows = Rows::new();
        while let Some(row) = scan.next().unwrap() {
            rows.insert(row.key.to_vec(), row.record.to_vec());
        }
        all.insert(name, rows);
    }
    all
}

/// Make some change, small or large.
fn change(transaction: &mut Transaction, chance: &mut Chance) {
    let tables = transaction.tables().unwrap();
    let name = format!("t{}", chance.below(4));
    let Some((_, table)) = tables.iter().find(|(known, _)| *known == name).cloned() else {
        transaction.create_table(&name).unwrap();
        return;
    };
    let some_key = |chance: &mut Chance| {
        let size = if chance.one_in(6) { 90 } else { 1 };
        key(&format!("{}{}", "k".repeat(size), chance.below(40)))
    };
    match chance.below(40) {
        0 => transaction.drop_table(&name).unwrap(),
        1 => transaction.clear(table).unwrap(),
        2 => {
            let other = format!("t{}", chance.below(4));
            if transaction.table(&other).unwrap().is_none() {
                transaction.rename_table(&name, &other).unwrap();
            }
        }
        3 => {
            // Too large for the log.
            let value = record(&"v".repeat(50_000));
            for _ in 0..50 {
                transaction.put(table, &some_key(chance), &[], &value, &[]).unwrap();
            }
        }
        4 => {
            // So many that the whole tree is cleared at once, if there is nothing else in it.
            for number in 0..600 {
                transaction.put(table, &key(&format!("m{number}")), &[], &record("m"), &[]).unwrap();
            }
        }
        5..=12 => {
            transaction.delete(table, &some_key(chance)).unwrap();
        }
        _ => {
            let value = format!("{}", chance.next());
            transaction.put(table, &some_key(chance), &[], &record(&value), &[]).unwrap();
        }
    }
}

#[test]
fn making_all_changes_again_gives_every_version() {
    let mut chance = Chance::new("making_all_changes_again_gives_every_version");
    for _ in 0..3 {
        let scratch = Scratch::new();
        for store in stores(&scratch, MUCH) {
            let (begin, mut versions) = (store.version().unwrap(), BTreeMap::new());
            let mut live = store.watch(None, Watched::All).unwrap();
            let mut as_told = BTreeMap::new();
            for round in 0..120 {
                write(&store, |transaction| {
                    for _ in 0..=chance.below(4) {
                        let savepoint = chance.one_in(3).then(|| transaction.savepoint().unwrap());
                        change(transaction, &mut chance);
                        if let Some(savepoint) = savepoint {
                            if chance.one_in(2) {
                                transaction.rollback_to(savepoint).unwrap();
                            } else {
                                transaction.release(savepoint).unwrap();
                            }
                        }
                    }
                });
                versions.insert(store.version().unwrap(), rows_of(&store));
                if chance.one_in(5) {
                    store.sync().unwrap();
                }
                if round % 7 == 0 {
                    for changes in everything(&mut live, &store) {
                        replay(&mut as_told, &changes);
                    }
                    assert!(as_told == rows_of(&store), "round {round}");
                }
            }
            // Some rounds roll everything back, and make no version.
            let last = store.version().unwrap();
            for since in [begin, begin + 40, last - 20] {
                let mut rows = versions.get(&since).cloned().unwrap_or_default();
                let mut watch = store.watch(Some(since), Watched::All).unwrap();
                for changes in everything(&mut watch, &store) {
                    replay(&mut rows, &changes);
                    assert!(rows == versions[&changes.version], "since {since}, at {}", changes.version);
                }
            }
            assert_eq!(store.check().unwrap(), []);
        }
    }
}

#[test]
fn what_is_kept_outlives_checkpoints_closing_and_compaction() {
    let scratch = Scratch::new();
    let store = open(&scratch, MUCH);
    let begin = store.version().unwrap();
    write(&store, |transaction| {
        transaction.create_table("t").unwrap();
    });
    let table = store.snapshot().unwrap().table("t").unwrap().unwrap();
    for number in 0..30 {
        write(&store, |transaction| put(transaction, table, &format!("{number}"), "1"));
        if number % 5 == 0 {
            store.sync().unwrap();
        }
    }
    store.close();
    assert_eq!(scratch.names(), ["w.pel"], "one file");
    // Opening without `keep=` does not change the setting.
    let store = open(&scratch, None);
    let keys = |store: &Store, since: u64| {
        everything(&mut store.watch(Some(since), Watched::All).unwrap(), store).len()
    };
    assert_eq!(keys(&store, begin), 31);
    assert_eq!(keys(&store, begin + 20), 11);
    store.compact(WAIT).unwrap();
    assert_eq!(keys(&store, begin), 31);
    write(&store, |transaction| put(transaction, table, "more", "1"));
    assert_eq!(keys(&store, begin), 32);
    assert!(store.stats().unwrap().history_size > 0);
    store.backup(scratch.path("copy.pel")).unwrap();
    let copy = Store::open(scratch.path("copy.pel"), &OpenOptions::with_mode(Mode::Read)).unwrap();
    let error = copy.watch(Some(begin), Watched::All).err().unwrap();
    assert!(matches!(error, StoreError::HistoryGone { oldest, .. } if oldest == copy.version().unwrap()));
    assert_eq!(store.check().unwrap(), []);
    store.close();
    // An empty database has no history.
    let store = Store::open(scratch.path("w.pel"), &OpenOptions::with_mode(Mode::New)).unwrap();
    assert!(matches!(store.watch(Some(begin), Watched::All), Err(StoreError::HistoryGone { .. })));
    write(&store, |transaction| {
        transaction.create_table("t").unwrap();
    });
    store.close();
    let store = open(&scratch, None);
    assert!(store.stats().unwrap().history_size < 1000, "the wish to keep is gone, too");
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn no_more_is_kept_than_was_wished_and_nothing_is_left_out_in_silence() {
    let scratch = Scratch::new();
    let size = 400_000;
    let store = open(&scratch, Some(Keep { size, seconds: u64::MAX }));
    let begin = store.version().unwrap();
    write(&store, |transaction| {
        transaction.create_table("t").unwrap();
    });
    let table = store.snapshot().unwrap().table("t").unwrap().unwrap();
    let value = record(&"v".repeat(1000));
    let mut watch = store.watch(None, Watched::All).unwrap();
    for round in 0..40 {
        for number in 0..40 {
            write(&store, |transaction| {
                let key = key(&format!("{round} {number}"));
                transaction.put(table, &key, &[], &value, &[]).unwrap();
            });
        }
        store.sync().unwrap();
        assert!(store.stats().unwrap().history_size < size + 200_000);
    }
    let version = store.version().unwrap();
    let StoreError::HistoryGone { since, oldest, .. } = watch.next(&store).unwrap_err() else {
        panic!("it was trimmed")
    };
    assert_eq!(since, begin + 1);
    assert!((version - 800..version - 300).contains(&oldest), "{oldest} of {version}");
    let mut behind = store.watch(Some(oldest), Watched::All).unwrap();
    assert_eq!(everything(&mut behind, &store).len() as u64, version - oldest);
    assert!(matches!(store.watch(Some(oldest - 1), Watched::All), Err(StoreError::HistoryGone { .. })));
    // A bulk commit larger than the limit of `keep=`.
    let mut watch = store.watch(None, Watched::All).unwrap();
    write(&store, |transaction| {
        for number in 0..4000 {
            transaction.put(table, &key(&format!("bulk {number}")), &[], &value, &[]).unwrap();
        }
    });
    write(&store, |transaction| put(transaction, table, "behind it", "1"));
    let error = watch.next(&store).unwrap_err();
    assert!(matches!(error, StoreError::HistoryGone { since, oldest, .. }
        if since == version && oldest == version + 1));
    // Kept for a limited time.
    let store = open(&scratch, Some(Keep { size: u64::MAX, seconds: 3600 }));
    let since = store.version().unwrap();
    write(&store, |transaction| put(transaction, table, "kept for an hour", "1"));
    for _ in 0..3 {
        write(&store, |transaction| put(transaction, table, "x", "1"));
        store.sync().unwrap();
    }
    assert_eq!(everything(&mut store.watch(Some(since), Watched::All).unwrap(), &store).len(), 4);
    // Nothing is kept, from the next checkpoints on.
    let store = open(&scratch, Some(Keep::NOTHING));
    for _ in 0..3 {
        write(&store, |transaction| put(transaction, table, "x", "1"));
        store.sync().unwrap();
    }
    assert_eq!(store.stats().unwrap().history_size, 0);
    assert!(matches!(store.watch(Some(since), Watched::All), Err(StoreError::HistoryGone { .. })));
    let (ahead, path) = (store.version().unwrap() + 1, scratch.path("w.pel").display().to_string());
    let error = store.watch(Some(ahead), Watched::All).err().unwrap().to_string();
    assert!(error.starts_with(&format!("'{path}' has version {}", ahead - 1)), "{error}");
}

#[test]
fn a_commit_wakes_a_watch_that_sleeps() {
    // Without a bell, the watch would sleep for as long as it may.
    const LONG: Duration = Duration::from_secs(30);
    let scratch = Scratch::new();
    for store in &stores(&scratch, None) {
        let mut table = None;
        write(store, |transaction| table = Some(transaction.create_table("t").unwrap()));
        let mut watch = store.watch(None, Watched::All).unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| watch.wait(store, LONG).unwrap());
            // Long enough for it to fall asleep.
            std::thread::sleep(Duration::from_millis(100));
            let begin = std::time::Instant::now();
            while !sleeper.is_finished() {
                write(store, |transaction| put(transaction, table.unwrap(), "a", "1"));
                std::thread::sleep(Duration::from_millis(100));
                assert!(begin.elapsed() < WAIT, "it sleeps on");
            }
            assert!(sleeper.join().unwrap());
        });
    }
}

#[test]
fn other_processes_are_watched_and_what_they_left_when_they_were_killed() {
    let scratch = Scratch::new();
    let store = open(&scratch, MUCH);
    write(&store, |transaction| {
        transaction.create_table("t").unwrap();
    });
    let begin = store.version().unwrap();
    let mut watch = store.watch(None, Watched::All).unwrap();
    let path = scratch.path("w.pel").display().to_string();
    let mut child = Child::new();
    child.must(&[&format!("open {path} w 5000"), "begin 5000", "put t a 1", "commit", "begin 5000"]);
    assert!(watch.wait(&store, WAIT).unwrap());
    assert_eq!(told(&mut watch, &store), [format!("{} t put a 1", begin + 1)]);
    child.must(&["put t never 2"]);
    child.kill();
    let mut reader = Child::new();
    reader.must(&[&format!("open {path} w 5000"), "begin 5000", "put t b 3", "commit"]);
    assert_eq!(told(&mut watch, &store), [format!("{} t put b 3", begin + 2)]);
    store.close();
    assert!(matches!(watch.next(&store), Err(StoreError::Closed { .. })));
    assert!(matches!(watch.wait(&store, WAIT), Err(StoreError::Closed { .. })));
    // The database was not closed: the WAL records are found in the log, and kept.
    reader.kill();
    let store = open(&scratch, None);
    assert!(store.stats().unwrap().log_recovered >= 2);
    for _ in 0..3 {
        let table = store.snapshot().unwrap().table("t").unwrap().unwrap();
        write(&store, |transaction| put(transaction, table, "c", "4"));
        store.sync().unwrap();
    }
    let mut watch = store.watch(Some(begin), Watched::All).unwrap();
    assert_eq!(
        told(&mut watch, &store)[..2],
        [format!("{} t put a 1", begin + 1), format!("{} t put b 3", begin + 2)]
    );
}
