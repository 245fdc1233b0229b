//! Tests writes of which the system takes only a part.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "the limit stands in the place of the C library's functions")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]
#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap, reason = "sizes of small files")]

#[path = "support/os_short_writes.rs"]
mod os_short_writes;
mod support;

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use os_short_writes::{limit, unlimit};
use pellucid_store::{OpenOptions, Store, StoreError};
use support::{Scratch, key, record};

const WAIT: Duration = Duration::from_secs(20);
const SIZE: usize = 3_000_000;
/// The limits apply to the whole process.
static ALONE: Mutex<()> = Mutex::new(());

/// A transaction with one large value, which bypasses the log, and many small rows.
fn fill(store: &Store, seed: u8) -> Result<(), StoreError> {
    let mut transaction = store.begin(WAIT)?;
    let table = match transaction.table("t")? {
        Some(table) => table,
        None => transaction.create_table("t")?,
    };
    let blob = transaction.put_blob(&vec![seed; SIZE])?;
    transaction.put(table, &key("large"), b"", &record("large"), &[blob])?;
    for number in 0..20_000 {
        transaction.put(table, &key(&format!("{number:05}")), b"", &record(&"x".repeat(300)), &[])?;
    }
    transaction.commit()
}

fn assert_holds(store: &Store, seed: u8) {
    let snapshot = store.snapshot().unwrap();
    let table = snapshot.table("t").unwrap().unwrap();
    assert_eq!(snapshot.count(table).unwrap(), 20_001);
    let cell = snapshot.get(table, &key("large")).unwrap().unwrap();
    let blob = cell.blobs().next().unwrap();
    assert!(snapshot.blob(blob).unwrap().iter().all(|byte| *byte == seed));
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_write_of_which_a_part_is_taken_goes_on() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new();
    let (path, copy) = (scratch.path("short.pel"), scratch.path("copy.pel"));
    // Neither a multiple of a page nor of a part that the engine writes at once.
    limit(100_003, i64::MAX);
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    fill(&store, 1).unwrap();
    fill(&store, 2).unwrap();
    store.sync().unwrap();
    store.backup(&copy).unwrap();
    store.compact(WAIT).unwrap();
    unlimit();
    assert_holds(&store, 2);
    drop(store);
    for path in [&path, &copy] {
        assert_holds(&Store::open(path, &OpenOptions::default()).unwrap(), 2);
    }
}

#[test]
fn a_disk_that_takes_a_part_of_a_write_is_full_and_what_was_begun_goes() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let scratch = Scratch::new();
    let (path, copy) = (scratch.path("full.pel"), scratch.path("copy.pel"));
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    fill(&store, 1).unwrap();
    store.sync().unwrap();
    let names = scratch.names();
    store.backup(&copy).unwrap();
    let whole = copy.metadata().unwrap().len() as i64;
    std::fs::remove_file(&copy).unwrap();
    // At the first byte, in the pages of a new file, in its large value, and near its end.
    for room in [0, 1, 4000, 4097, 20_000, whole / 3, whole / 2 + 1, whole - 100_000] {
        let told = |what: &str, done: Result<(), StoreError>| {
            let is_full = matches!(&done, Err(StoreError::DiskFull { .. } | StoreError::NoRoomForLog { .. }));
            assert!(is_full, "{what} with room for {room}: {done:?}");
        };
        limit(i64::MAX, room);
        told("backup", store.backup(&copy));
        limit(i64::MAX, room);
        told("compact", store.compact(WAIT));
        unlimit();
        assert_eq!(scratch.names(), names, "with room for {room}");
        assert_holds(&store, 1);
    }
    for room in [1, 5000, 1_000_000] {
        limit(i64::MAX, room);
        let done = fill(&store, 2);
        unlimit();
        assert!(matches!(&done, Err(StoreError::DiskFull { .. })), "with room for {room}: {done:?}");
        assert_holds(&store, 1);
    }
    fill(&store, 3).unwrap();
    assert_holds(&store, 3);
}
