//! Tests that copies equal their source, and that compact gives back room.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use pellucid_record::Shapes;
use pellucid_record::view::{Root, Slot, root};
use pellucid_store::{Mode, OpenOptions, Range, Store, StoreError, TryResult, Wanted};
use support::{Chance, Child, Scratch, key, record};

const WAIT: Duration = Duration::from_secs(20);

type Rows = Vec<(String, Vec<u8>, Vec<u8>, Vec<u8>, Vec<Vec<u8>>)>;

/// All that a reader can see.
fn rows_of(store: &Store) -> Rows {
    let snapshot = store.snapshot().unwrap();
    let mut rows = Rows::new();
    for (name, table) in snapshot.tables().unwrap() {
        let mut scan = snapshot.scan(table, &Range::ALL, false).unwrap();
        let before = rows.len();
        while let Some(row) = scan.next().unwrap() {
            let cell = snapshot.get(table, row.key).unwrap().unwrap();
            let blobs = cell.blobs().map(|id| snapshot.blob(id).unwrap().to_vec()).collect();
            rows.push((name.clone(), row.key.to_vec(), row.spelling.to_vec(), row.record.to_vec(), blobs));
        }
        assert_eq!(snapshot.count(table).unwrap(), (rows.len() - before) as u64);
    }
    rows
}

fn fill(store: &Store, rows: usize) {
    let mut chance = Chance::from_seed(5);
    let mut transaction = store.begin(WAIT).unwrap();
    for name in ["a", "b"] {
        let table = transaction.create_table(name).unwrap();
        transaction.admit(table, &["x", name]).unwrap();
        for _ in 0..rows {
            let size = if chance.one_in(30) { 6000 } else { chance.below(300) };
            let name = "k".repeat(chance.below(600)) + &chance.next().to_string();
            let text = "v".repeat(size);
            transaction.put(table, &key(&name), b"", &record(&text), &[]).unwrap();
        }
        let blob = transaction.put_blob(&vec![7; 100_000]).unwrap();
        transaction.put(table, &key("blob"), b"", &record("apart"), &[blob]).unwrap();
    }
    transaction.commit().unwrap();
}

/// Put and delete rows one at a time, each in a commit that only counts them.
fn change_single_rows(store: &Store) {
    let snapshot = store.snapshot().unwrap();
    let known = snapshot.known(snapshot.table("a").unwrap().unwrap()).unwrap();
    for number in 0..50 {
        let key = key(&format!("single {number}"));
        assert_eq!(
            store.cached_database().unwrap().put(known, &key, &record("one")).unwrap(),
            TryResult::Done(false)
        );
        if number % 5 == 0 {
            assert_eq!(store.cached_database().unwrap().delete(known, &key).unwrap(), TryResult::Done(()));
        }
    }
}

/// Wait until all commits are in the file: another thread's checkpoint may be running.
fn checkpoint(store: &Store) {
    while store.stats().unwrap().log_pending > 0 {
        store.sync().unwrap();
    }
}

fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn a_backup_equals_the_database_on_disk_and_in_memory() {
    let scratch = Scratch::new();
    let stores =
        [Store::memory().unwrap(), Store::open(scratch.path("a.pel"), &OpenOptions::default()).unwrap()];
    for (number, store) in stores.iter().enumerate() {
        fill(store, 800);
        if store.path().is_some() {
            change_single_rows(store);
        }
        let target = scratch.path(&format!("copy{number}.pel"));
        store.backup(&target).unwrap();
        let copy = Store::open(&target, &OpenOptions::with_mode(Mode::Write)).unwrap();
        assert!(rows_of(&copy) == rows_of(store));
        assert_eq!(copy.check().unwrap(), []);
        assert_eq!(copy.dictionary().unwrap().shape(1).unwrap().names().join(","), "x,b");
        let mut transaction = copy.begin(WAIT).unwrap();
        let ids = (transaction.create_table("c").unwrap(), transaction.put_blob(b"new").unwrap());
        assert_eq!((ids.0.number(), ids.1), (2, 3), "ids go on where they were");
        drop(transaction);
        let error = store.backup(&target).unwrap_err();
        assert!(matches!(error, StoreError::TargetExists { .. }), "{error}");
    }
    drop(stores);
    assert_eq!(scratch.names(), ["a.pel", "copy0.pel", "copy1.pel"]);
}

/// Whether each of two writers has written between the first and the last backup.
fn went_on(seen: &[u64]) -> bool {
    matches!(seen, [first, second, .., last, very_last] if first < last && second < very_last)
}

#[test]
fn a_backup_while_two_others_write_is_one_moment_of_both() {
    let scratch = Scratch::new();
    let path = scratch.path("live.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    fill(&store, 300);
    let mut children = [Child::new(), Child::new()];
    for (number, child) in children.iter_mut().enumerate() {
        child.must(&[&format!("open {} w 5000", path.display())]);
        child.tell(&format!("flood flood{number} 0"));
        assert_eq!(child.hear(), "0");
    }
    let (mut seen, mut heard) = (Vec::new(), [0; 2]);
    let (mut number, limit) = (0, Instant::now() + Duration::from_secs(60));
    // At least eight, and more if the machine delays a writer.
    while number < 8 || (!went_on(&seen) && Instant::now() < limit) {
        let target = scratch.path(&format!("backup{number}.pel"));
        store.backup(&target).unwrap();
        let copy = Store::open(&target, &OpenOptions::with_mode(Mode::Read)).unwrap();
        assert_eq!(copy.check().unwrap(), []);
        let snapshot = copy.snapshot().unwrap();
        for (writer, child) in children.iter_mut().enumerate() {
            let table = snapshot.table(&format!("flood{writer}")).unwrap().unwrap();
            let text = |name: &str| {
                let cell = snapshot.get(table, &key(name)).unwrap().unwrap();
                match root(&cell.record, &Vec::new()).unwrap() {
                    Root::Scalar(Slot::Str(text)) => String::from_utf8(text.to_vec()).unwrap(),
                    _ => panic!("not a str"),
                }
            };
            // Each transaction writes both, and adds the row of its number.
            assert_eq!(text("left"), text("right"));
            let last: u64 = text("left").parse().unwrap();
            assert_eq!(text(&format!("row{last:09}")), last.to_string().repeat(40));
            assert!(snapshot.get(table, &key(&format!("row{:09}", last + 1))).unwrap().is_none());
            seen.push(last);
            // Else the writer stops when the pipe of its answers is full.
            while heard[writer] < last {
                heard[writer] = child.hear().parse().unwrap();
            }
        }
        number += 1;
    }
    assert!(went_on(&seen), "both went on writing: {seen:?}");
    for child in &mut children {
        child.kill();
    }
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn compacting_gives_room_back_and_keeps_everything() {
    let scratch = Scratch::new();
    let path = scratch.path("compact.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    fill(&store, 2000);
    store.sync().unwrap();
    let mut transaction = store.begin(WAIT).unwrap();
    transaction.drop_table("b").unwrap();
    transaction.commit().unwrap();
    drop(transaction);
    let rows = rows_of(&store);
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o640)).unwrap();
    store.sync().unwrap();
    let before = std::fs::metadata(&path).unwrap();
    store.compact(WAIT).unwrap();
    let after = std::fs::metadata(&path).unwrap();
    assert!(after.len() < before.len() * 6 / 10, "{} of {}", after.len(), before.len());
    assert_eq!(after.mode(), before.mode());
    assert!(rows_of(&store) == rows, "the same handle goes on");
    assert_eq!(store.check().unwrap(), []);
    fill_again(&store);
    store.compact(WAIT).unwrap();
    store.close();
    assert_eq!(scratch.names(), ["compact.pel"]);
    assert_eq!(Store::memory().unwrap().compact(WAIT).map_err(|error| error.to_string()), Ok(()));
}

fn fill_again(store: &Store) {
    let mut transaction = store.begin(WAIT).unwrap();
    let table = transaction.table("a").unwrap().unwrap();
    transaction.put(table, &key("after"), b"", &record("x"), &[]).unwrap();
    transaction.commit().unwrap();
}

#[test]
fn compacting_needs_the_file_alone() {
    let scratch = Scratch::new();
    let path = scratch.path("shared.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    fill(&store, 50);
    let rows = rows_of(&store);
    let snapshot = store.snapshot().unwrap();
    let error = store.compact(Duration::ZERO).unwrap_err();
    let message = error.to_string();
    for cause in
        ["in use in this process", "a loop or an iterator", "a snapshot", "close or drop these first"]
    {
        assert!(message.contains(cause), "{message}");
    }
    drop(snapshot);

    let mut child = Child::new();
    child.must(&[&format!("open {} r 1000", path.display())]);
    let error = store.compact(Duration::from_millis(60)).unwrap_err();
    let StoreError::Busy { wanted: Wanted::Alone, holders, .. } = &error else { panic!("{error:?}") };
    assert_eq!(holders[0].pid, child.pid());
    assert!(error.to_string().ends_with("close it there first"), "{error}");
    assert!(rows_of(&store) == rows);
    child.must(&["close"]);
    store.compact(WAIT).unwrap();
    assert!(rows_of(&store) == rows);
    let reader = Store::open(&path, &OpenOptions::with_mode(Mode::Read)).unwrap();
    drop(store);
    assert!(matches!(reader.compact(WAIT), Err(StoreError::ReadOnly { .. })));
}

#[test]
fn others_that_open_while_it_is_compacted_find_the_new_file() {
    let scratch = Scratch::new();
    let path = scratch.path("race.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    fill(&store, 300);
    let rows = rows_of(&store).len();
    store.close();
    let mut child = Child::new();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..25 {
                child.must(&[&format!("open {} w 20000", path.display()), "begin 20000"]);
                child.must(&[&format!("put a turn{turn} x"), "commit", "close"]);
            }
        });
        for _ in 0..25 {
            let store = Store::open(&path, &OpenOptions { timeout: WAIT, ..OpenOptions::default() }).unwrap();
            match store.compact(Duration::from_millis(20)) {
                Ok(()) | Err(StoreError::Busy { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
    });
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    assert_eq!(rows_of(&store).len(), rows + 25, "no write went into a file that was replaced");
    assert_eq!(store.check().unwrap(), []);
    store.close();
    assert_eq!(scratch.names(), ["race.pel"]);
}

#[test]
fn overwriting_the_same_rows_does_not_grow_the_file() {
    let scratch = Scratch::new();
    let path = scratch.path("bounded.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    let mut sizes = Vec::new();
    let mut table = None;
    for round in 0..40 {
        let mut transaction = store.begin(WAIT).unwrap();
        let table = *table.get_or_insert_with(|| transaction.create_table("t").unwrap());
        for number in 0..500 {
            let text = format!("{round} ").repeat(60);
            transaction.put(table, &key(&number.to_string()), b"", &record(&text), &[]).unwrap();
        }
        let blob = transaction.put_blob(&vec![round; 500_000]).unwrap();
        transaction.put(table, &key("blob"), b"", &record("apart"), &[blob]).unwrap();
        transaction.commit().unwrap();
        checkpoint(&store);
        sizes.push(size_of(&path));
    }
    // A page is used again once no thread reads the state that had it, which may be a round later on
    // a busy machine. What is lost in each round would let the file grow again and again.
    let growths = sizes[20..].windows(2).filter(|pair| pair[1] > pair[0]).count();
    assert!(growths <= 2 && sizes[39] <= sizes[19] + 1_000_000, "{sizes:?}");
    let stats = store.stats().unwrap();
    assert_eq!((stats.rows, stats.blobs, stats.tables), (501, 1, 1), "old blobs go with their rows");
    assert_eq!(stats.file_size, sizes[39]);
}

#[test]
fn deleted_rows_make_room_for_new_ones() {
    let scratch = Scratch::new();
    let path = scratch.path("queue.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    let mut transaction = store.begin(WAIT).unwrap();
    let table = transaction.create_table("queue").unwrap();
    transaction.commit().unwrap();
    let mut sizes = Vec::new();
    for round in 0..60_u32 {
        // A queue: rows are added at the end and deleted at the front.
        let mut transaction = store.begin(WAIT).unwrap();
        for number in round * 300..(round + 1) * 300 {
            transaction
                .put(table, &key(&format!("{number:08}")), b"", &record(&"x".repeat(200)), &[])
                .unwrap();
            if let Some(old) = number.checked_sub(900) {
                assert!(transaction.delete(table, &key(&format!("{old:08}"))).unwrap());
            }
        }
        transaction.commit().unwrap();
        checkpoint(&store);
        sizes.push(size_of(&path));
    }
    assert!(sizes[59] <= sizes[19], "{sizes:?}");
    assert_eq!(store.snapshot().unwrap().count(table).unwrap(), 900);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_blob_belongs_to_one_row_and_goes_with_it() {
    let store = Store::memory().unwrap();
    let mut transaction = store.begin(WAIT).unwrap();
    let table = transaction.create_table("t").unwrap();
    let (one, loose) = (transaction.put_blob(b"one").unwrap(), transaction.put_blob(b"loose").unwrap());
    transaction.put(table, &key("a"), b"", &record("a"), &[one]).unwrap();
    let stolen = transaction.put(table, &key("b"), b"", &record("b"), &[one]);
    assert!(matches!(stolen, Err(StoreError::NoSuchBlob { .. })), "another row has it");
    transaction.commit().unwrap();
    let old = store.snapshot().unwrap();
    assert_eq!(old.blob(one).unwrap(), b"one");
    assert!(matches!(old.blob(loose), Err(StoreError::NoSuchBlob { .. })), "no row took it");

    let mut transaction = store.begin(WAIT).unwrap();
    assert!(
        transaction.put(table, &key("a"), b"", &record("a2"), &[one]).unwrap(),
        "it may keep what it has"
    );
    let savepoint = transaction.savepoint().unwrap();
    transaction.delete(table, &key("a")).unwrap();
    assert!(matches!(transaction.blob(one), Err(StoreError::NoSuchBlob { .. })));
    transaction.rollback_to(savepoint).unwrap();
    assert_eq!(transaction.blob(one).unwrap(), b"one");
    let two = transaction.put_blob(b"two").unwrap();
    assert!(two > loose, "ids are never used again");
    transaction.put(table, &key("a"), b"", &record("a3"), &[two]).unwrap();
    transaction.commit().unwrap();
    let new = store.snapshot().unwrap();
    assert!(matches!(new.blob(one), Err(StoreError::NoSuchBlob { .. })));
    assert_eq!(new.blob(two).unwrap(), b"two");
    assert_eq!(old.blob(one).unwrap(), b"one", "the old version still has it");

    let mut aborted = store.begin(WAIT).unwrap();
    let three = aborted.put_blob(b"three").unwrap();
    drop(aborted);
    let mut transaction = store.begin(WAIT).unwrap();
    assert!(transaction.put_blob(b"four").unwrap() > three, "nor those of aborted transactions");
    transaction.clear(table).unwrap();
    transaction.commit().unwrap();
    assert_eq!(store.stats().unwrap().blobs, 0);
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_database_that_has_the_name_of_a_compacted_one_in_the_making_is_left_alone() {
    let scratch = Scratch::new();
    let (path, other_path) = (scratch.path("a.pel"), scratch.path("a.pel-compact"));
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    let other = Store::open(&other_path, &OpenOptions::default()).unwrap();
    fill(&other, 10);
    let rows = rows_of(&other);
    for is_open in [true, false] {
        let error = store.compact(WAIT).unwrap_err();
        assert!(
            matches!(&error, StoreError::TargetExists { path } if path.ends_with("-compact")),
            "{error:?}"
        );
        drop(Store::open(&path, &OpenOptions::default()).unwrap());
        if is_open {
            other.close();
        }
    }
    drop(store);
    drop(Store::open(&path, &OpenOptions::default()).unwrap());
    assert_eq!(rows_of(&Store::open(&other_path, &OpenOptions::default()).unwrap()), rows);
}

#[test]
fn a_backup_and_a_check_that_are_stopped_leave_nothing() {
    let scratch = Scratch::new();
    let stores =
        [Store::memory().unwrap(), Store::open(scratch.path("a.pel"), &OpenOptions::default()).unwrap()];
    for store in &stores {
        fill(store, 800);
        checkpoint(store);
        let asked = |stopped_at: u32, work: &mut dyn FnMut(&mut dyn FnMut() -> bool) -> bool| {
            let mut count = 0;
            let is_done = work(&mut || {
                count += 1;
                count != stopped_at
            });
            assert_eq!(is_done, stopped_at == 0);
            count
        };
        let target = scratch.path("copy.pel");
        let mut back_up = |go_on: &mut dyn FnMut() -> bool| match store.backup_while(&target, false, go_on) {
            Ok(()) => true,
            Err(error) => matches!(error, StoreError::Stopped).then_some(false).unwrap(),
        };
        let mut check = |go_on: &mut dyn FnMut() -> bool| match store.check_while(go_on) {
            Ok(findings) => findings.is_empty(),
            Err(error) => matches!(error, StoreError::Stopped).then_some(false).unwrap(),
        };
        let names = scratch.names();
        for work in [&mut back_up as &mut dyn FnMut(&mut dyn FnMut() -> bool) -> bool, &mut check] {
            let count = asked(0, work);
            assert!(count > 800, "{count}");
            let _ = std::fs::remove_file(&target);
            for stopped_at in [1, count / 2, count] {
                assert_eq!(asked(stopped_at, work), stopped_at, "it is not asked again");
                assert_eq!(scratch.names(), names);
            }
        }
    }
}

#[test]
fn a_checkpoint_or_a_compaction_that_is_stopped_changes_nothing() {
    let scratch = Scratch::new();
    let works = [
        |store: &Store, go_on: &mut dyn FnMut() -> bool| store.check_while(go_on).map(|_| ()),
        |store: &Store, go_on: &mut dyn FnMut() -> bool| store.compact_while(WAIT, go_on),
    ];
    for (number, work) in works.into_iter().enumerate() {
        let path = scratch.path(&format!("{number}.pel"));
        let store = Store::open(path, &OpenOptions::default()).unwrap();
        fill(&store, 800);
        let (rows, pending, before) = (rows_of(&store), store.stats().unwrap().log_pending, scratch.names());
        assert!(pending > 0);
        for stopped_at in [1, 400] {
            // Stop in the checkpoint, which then writes nothing.
            let mut count = 0;
            let stopped = work(&store, &mut || {
                count += 1;
                count != stopped_at
            });
            assert!(matches!(stopped, Err(StoreError::Stopped)));
            assert_eq!(count, stopped_at, "it is not asked again");
            assert_eq!(store.stats().unwrap().log_pending, pending);
            assert_eq!((rows_of(&store), scratch.names()), (rows.clone(), before.clone()));
        }
        checkpoint(&store);
        let mut count = 0;
        let stopped = work(&store, &mut || {
            count += 1;
            count != 400
        });
        assert!(matches!(stopped, Err(StoreError::Stopped)));
        assert_eq!((rows_of(&store), scratch.names()), (rows.clone(), before.clone()));
        work(&store, &mut || true).unwrap();
        assert_eq!(rows_of(&store), rows);
        assert_eq!(store.check().unwrap(), []);
    }
}
