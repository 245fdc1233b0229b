//! Tests several processes, threads and forks that use one database.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::time::{Duration, Instant};

use pellucid_record::Shapes;
use pellucid_store::{Mode, OpenOptions, Snapshot, Store, StoreError, Wanted, Warning};
use support::{Child, Scratch, key, put, record};

const WAIT: Duration = Duration::from_secs(10);

fn get(store: &Store, table: &str, name: &str) -> Option<Vec<u8>> {
    let snapshot = store.snapshot().unwrap();
    let table = snapshot.table(table).unwrap()?;
    snapshot.get(table, &key(name)).unwrap().map(|cell| cell.record.to_vec())
}

#[test]
fn a_commit_in_one_process_is_seen_by_the_next_read_in_another() {
    let scratch = Scratch::new();
    let path = scratch.path("shared.pel");
    let name = path.display();
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    put(&store, "t", "a", "1");
    let mut child = Child::new();
    child.must(&[&format!("open {name} w 1000")]);
    assert_eq!(child.ask("get t a"), "1");
    child.must(&["snapshot"]);
    put(&store, "t", "a", "2");
    assert_eq!(child.ask("get t a"), "1", "its snapshot stays as it was");
    child.must(&["forget"]);
    assert_eq!(child.ask("get t a"), "2");
    child.must(&["begin 1000", "put t a 3", "commit"]);
    assert_eq!(get(&store, "t", "a"), Some(record("3")));
    child.must(&["begin 1000", "put t a 4", "abort"]);
    assert_eq!(get(&store, "t", "a"), Some(record("3")));
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn waiting_for_another_process_to_write_ends_with_its_pid() {
    let scratch = Scratch::new();
    let path = scratch.path("busy.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    put(&store, "t", "a", "1");
    let mut child = Child::new();
    child.must(&[&format!("open {} w 1000", path.display()), "begin 1000"]);
    let begin = Instant::now();
    let error = store.begin(Duration::from_millis(150)).err().unwrap();
    assert!(begin.elapsed() >= Duration::from_millis(150) && begin.elapsed() < Duration::from_secs(5));
    let StoreError::Busy { wanted: Wanted::Write, holders, .. } = &error else { panic!("{error:?}") };
    assert_eq!(holders[0].pid, child.pid());
    let message = error.to_string();
    assert!(message.contains(&format!("is being written by PID {}", child.pid())), "{message}");
    assert!(message.contains("pellucid-store-child") && message.contains("waited timeout=0.1"), "{message}");

    // A death releases the lock.
    child.kill();
    put(&store, "t", "a", "2");
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_second_thread_waits_and_is_told_of_this_process() {
    let store = Store::memory().unwrap();
    let first = store.begin(WAIT).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let error = store.begin(Duration::from_millis(50)).err().unwrap();
            let message = error.to_string();
            assert!(message.contains("another transaction of this process"), "{message}");
        });
    });
    drop(first);
    drop(store.begin(Duration::ZERO).unwrap());
}

#[test]
fn a_transaction_refuses_to_work_in_another_thread() {
    let scratch = Scratch::new();
    for store in
        [Store::memory().unwrap(), Store::open(scratch.path("thread.pel"), &OpenOptions::default()).unwrap()]
    {
        let mut transaction = store.begin(WAIT).unwrap();
        let table = transaction.create_table("t").unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let put = transaction.put(table, b"k", b"", &record("v"), &[]);
                assert!(matches!(put, Err(StoreError::WrongThread)));
                assert!(matches!(transaction.get(table, b"k"), Err(StoreError::WrongThread)));
                assert!(matches!(transaction.commit(), Err(StoreError::WrongThread)));
            });
        });
        transaction.put(table, b"k", b"", &record("v"), &[]).unwrap();
        transaction.commit().unwrap();
        assert!(matches!(transaction.commit(), Err(StoreError::Closed { what: "transaction" })));
        assert_eq!(store.snapshot().unwrap().count(table).unwrap(), 1);
    }
}

#[test]
fn shapes_of_an_aborted_transaction_never_poison_another_process() {
    let scratch = Scratch::new();
    let path = scratch.path("shapes.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    put(&store, "t", "a", "1");
    let mut child = Child::new();
    child.must(&[&format!("open {} w 1000", path.display()), "begin 1000"]);
    assert_eq!(child.ask("admit t x,y"), "0");
    child.must(&["abort"]);
    assert_eq!(child.ask("shape 0"), "none");

    // The same id, now for other names, made here.
    let mut transaction = store.begin(WAIT).unwrap();
    let table = transaction.table("t").unwrap().unwrap();
    assert_eq!(transaction.admit(table, &["name", "age"]).unwrap(), 0);
    assert_eq!(transaction.admit(table, &["name", "age"]).unwrap(), 0, "it knows its own");
    let kept = std::sync::Arc::clone(transaction.shapes());
    assert!(store.dictionary().unwrap().is_empty(), "nobody else does before the commit");
    transaction.commit().unwrap();
    assert_eq!(store.dictionary().unwrap().find(&["name", "age"]), Some(0));
    assert_eq!(child.ask("shape 0"), "name,age");

    // And the other way round: made there, loaded here by the next snapshot and the next writer.
    child.must(&["begin 1000"]);
    assert_eq!(child.ask("admit t name,age"), "0");
    assert_eq!(child.ask("admit t x,y"), "1");
    child.must(&["commit"]);
    let mut transaction = store.begin(WAIT).unwrap();
    assert_eq!(transaction.admit(table, &["x", "y"]).unwrap(), 1);
    assert_eq!(transaction.admit(table, &["z"]).unwrap(), 2);
    drop(transaction);
    assert_eq!(store.snapshot().unwrap().dictionary().len(), 2);
    assert_eq!(
        kept.shape(0).unwrap().names().join(","),
        "name,age",
        "records of an ended transaction keep their shapes"
    );
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn many_threads_write_and_read() {
    const THREADS: usize = 4;
    const TURNS: usize = 60;
    let scratch = Scratch::new();
    let path = scratch.path("threads.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    put(&store, "t", "sum", "0");
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            let store = &store;
            scope.spawn(move || {
                for turn in 0..TURNS {
                    let mut transaction = store.begin(Duration::from_secs(60)).unwrap();
                    let table = transaction.table("t").unwrap().unwrap();
                    let name = format!("{thread}-{turn}");
                    transaction.put(table, &key(&name), b"", &record("x"), &[]).unwrap();
                    transaction.commit().unwrap();
                    let snapshot = store.snapshot().unwrap();
                    let mut scan = snapshot.scan(table, &pellucid_store::Range::ALL, false).unwrap();
                    let mut count = 0;
                    while scan.next().unwrap().is_some() {
                        count += 1;
                    }
                    assert_eq!(count, snapshot.count(table).unwrap());
                }
            });
        }
    });
    let snapshot = store.snapshot().unwrap();
    let table = snapshot.table("t").unwrap().unwrap();
    assert_eq!(snapshot.count(table).unwrap(), (THREADS * TURNS + 1) as u64);
}

#[test]
fn two_handles_in_one_process_share_one_file() {
    let scratch = Scratch::new();
    let path = scratch.path("twice.pel");
    let link = scratch.path("alias.pel");
    let one = Store::open(&path, &OpenOptions::default()).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let two = Store::open(&link, &OpenOptions::with_mode(Mode::Read)).unwrap();
    put(&one, "t", "a", "1");
    assert_eq!(get(&two, "t", "a"), Some(record("1")));
    assert!(matches!(two.begin(WAIT), Err(StoreError::ReadOnly { .. })), "each has its own mode");
    one.close();
    assert!(matches!(one.snapshot(), Err(StoreError::Closed { what: "database" })));
    assert_eq!(get(&two, "t", "a"), Some(record("1")), "the other one stays open");
    let snapshot = two.snapshot().unwrap();
    two.close();
    assert_eq!(snapshot.tables().unwrap().len(), 1, "a snapshot outlives its handle");
    assert!(scratch.names().contains(&"twice.pel-lock".to_owned()));
    drop(snapshot);
    assert_eq!(scratch.names(), ["alias.pel", "twice.pel"], "one file at rest");
}

#[test]
fn the_last_process_leaves_one_file() {
    let scratch = Scratch::new();
    let path = scratch.path("rest.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    put(&store, "t", "a", "1");
    let mut child = Child::new();
    child.must(&[&format!("open {} r 1000", path.display())]);
    store.close();
    assert_eq!(child.ask("get t a"), "1");
    assert!(scratch.names().len() > 1, "the other one still needs its lock file");
    child.must(&["close"]);
    assert_eq!(scratch.names(), ["rest.pel"]);

    // A killed process leaves its files; the next one that closes removes them.
    child.must(&[&format!("open {} c 1000", path.display()), "begin 1000"]);
    child.kill();
    assert!(scratch.names().len() > 1);
    put(&Store::open(&path, &OpenOptions::default()).unwrap(), "t", "a", "2");
    assert_eq!(scratch.names(), ["rest.pel"]);
}

#[test]
fn processes_that_open_and_close_all_the_time_do_not_disturb_each_other() {
    const TURNS: usize = 40;
    let scratch = Scratch::new();
    let path = scratch.path("doors.pel");
    let name = path.display().to_string();
    let mut children: Vec<Child> = (0..3).map(|_| Child::new()).collect();
    std::thread::scope(|scope| {
        for (number, child) in children.iter_mut().enumerate() {
            let name = &name;
            scope.spawn(move || {
                for turn in 0..TURNS {
                    child.must(&[&format!("open {name} c 20000"), "begin 20000"]);
                    let table = format!("t{number}-{turn}");
                    child.must(&[&format!("create {table}"), &format!("put {table} a {turn}"), "commit"]);
                    assert_eq!(child.ask(&format!("get {table} a")), turn.to_string());
                    child.must(&["close"]);
                }
            });
        }
    });
    let store = Store::open(&path, &OpenOptions::with_mode(Mode::Write)).unwrap();
    assert_eq!(store.snapshot().unwrap().tables().unwrap().len(), 3 * TURNS);
    assert_eq!(store.check().unwrap(), []);
    store.close();
    assert_eq!(scratch.names(), ["doors.pel"]);
}

#[test]
fn snapshots_of_an_unchanged_database_share_one_place_among_the_readers() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("readers.pel"), &OpenOptions::default()).unwrap();
    put(&store, "t", "a", "1");
    let snapshots: Vec<_> = (0..10_000).map(|_| store.snapshot().unwrap()).collect();
    let readers = store.stats().unwrap().readers;
    assert!((2..=3).contains(&readers), "these, stats() itself, and what the process keeps: {readers}");
    for value in ["2", "3"] {
        put(&store, "t", "a", value);
        store.sync().unwrap();
    }
    let stats = store.stats().unwrap();
    assert!(stats.oldest_reader_lag >= 2, "{stats:?}");
    drop(snapshots);
    assert_eq!(store.stats().unwrap().oldest_reader_lag, 0);
    assert_eq!(store.warnings().unwrap(), []);
}

/// Snapshots of one version after the other, fewer than `most`, until there is no place for more,
/// and the error that says so.
fn taken_until_full(
    store: &Store,
    take: impl Fn(&Store) -> Result<Snapshot, StoreError>,
    most: usize,
) -> (Vec<Snapshot>, StoreError) {
    let mut taken = Vec::new();
    let error = loop {
        put(store, "t", "a", "2");
        store.sync().unwrap();
        match take(store) {
            Ok(snapshot) => taken.push(snapshot),
            Err(error) => break error,
        }
        assert!(taken.len() < most, "they may have all that there are");
    };
    assert!(matches!(error, StoreError::TooManyReaders { .. }), "{error}");
    (taken, error)
}

#[test]
fn a_process_that_keeps_many_snapshots_leaves_reader_slots_to_writers_and_other_processes() {
    let scratch = Scratch::new();
    let path = scratch.path("crowded.pel");
    let name = path.display();
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    put(&store, "t", "a", "1");
    store.sync().unwrap();
    let mut crowd = Child::new();
    crowd.must(&[&format!("crowd {name} 3800")]);
    let (mut kept, error) = taken_until_full(&store, Store::kept_snapshot, 400);
    assert!(error.to_string().contains(" of 4096 reader slots are taken"), "{error}");
    assert!(kept.len() > 60, "what a process may have whatever the others have: {}", kept.len());
    // Its own reads, until so many of these are kept that only writers have room.
    assert_eq!(get(&store, "t", "a"), Some(record("2")));
    let (reads, _) = taken_until_full(&store, Store::snapshot, 250);
    assert!(reads.len() > 150, "{}", reads.len());
    // Its own writers, and their checkpoints.
    for value in ["3", "4", "5"] {
        put(&store, "t", "a", value);
        store.sync().unwrap();
    }
    let mut transaction = store.begin(WAIT).unwrap();
    let table = transaction.table("t").unwrap().unwrap();
    assert!(transaction.delete(table, &key("a")).unwrap());
    transaction.commit().unwrap();
    // Another process opens it, writes, and gets a snapshot.
    let mut child = Child::new();
    child.must(&[&format!("open {name} w 1000"), "begin 1000", "put t a 6", "commit", "sync", "snapshot"]);
    assert_eq!(child.ask("get t a"), "6");
    assert!(matches!(store.snapshot(), Err(StoreError::TooManyReaders { .. })));
    drop(reads);
    assert_eq!(get(&store, "t", "a"), Some(record("6")));
    assert!(matches!(store.kept_snapshot(), Err(StoreError::TooManyReaders { .. })));
    kept.truncate(60);
    assert_eq!(get(&store, "t", "a"), Some(record("6")));
    drop(kept);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_snapshot_that_is_kept_for_long_is_a_warning() {
    let scratch = Scratch::new();
    let store = Store::open(scratch.path("old.pel"), &OpenOptions::default()).unwrap();
    put(&store, "t", "a", "1");
    let kept = store.snapshot().unwrap();
    for _ in 0..50 {
        put(&store, "t", "a", "2");
        store.sync().unwrap();
    }
    assert_eq!(store.warnings().unwrap(), []);
    for _ in 0..100 {
        put(&store, "t", "a", "3");
        store.sync().unwrap();
    }
    let warnings = store.warnings().unwrap();
    assert!(
        matches!(&warnings[..], [Warning::OldReader { lag: 100.., minutes: 0, process, .. }] if *process == std::process::id()),
        "{warnings:?}"
    );
    drop(kept);
    assert_eq!(store.warnings().unwrap(), []);
}
