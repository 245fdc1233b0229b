//! Tests that snapshots read their versions, and that the file stays as it is, while everything is
//! written anew beside them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use pellucid_store::{Mode, OpenOptions, Range, Snapshot, Store, TableId};
use support::{Chance, Child, Scratch, key, record};

const WAIT: Duration = Duration::from_secs(20);
const ROWS: u64 = 3_000;

/// Write all rows anew, with the turn in each, and run a checkpoint.
fn rewrite(store: &Store, turn: u64) {
    let mut transaction = store.begin(WAIT).unwrap();
    let table = match transaction.table("t").unwrap() {
        Some(table) => table,
        None => transaction.create_table("t").unwrap(),
    };
    for number in 0..ROWS {
        let text = format!("{turn:06} {number} ").repeat(20);
        transaction.put(table, &key(&format!("row{number:05}")), b"", &record(&text), &[]).unwrap();
    }
    transaction.commit().unwrap();
    store.sync().unwrap();
}

fn table_of(snapshot: &Snapshot) -> TableId {
    snapshot.table("t").unwrap().unwrap()
}

/// Whether all rows are of this turn.
fn is_whole(snapshot: &Snapshot, turn: u64) -> bool {
    let mut scan = snapshot.scan(table_of(snapshot), &Range::ALL, false).unwrap();
    let mut number = 0;
    while let Some(row) = scan.next().unwrap() {
        if row.record[..] != record(&format!("{turn:06} {number} ").repeat(20)) {
            return false;
        }
        number += 1;
    }
    number == ROWS
}

/// Rewrite all from turn 4 to turn 19, beside snapshots of older turns. Pages between their
/// versions are used again, so that the file stays as it is.
fn rewrite_beside_snapshots(store: &Store, path: &Path) {
    (4..9).for_each(|turn| rewrite(store, turn));
    let before = size_of(path);
    (9..20).for_each(|turn| rewrite(store, turn));
    assert!(size_of(path) <= before + before / 20, "{} bytes after {before}", size_of(path));
}

fn size_of(path: &Path) -> u64 {
    std::fs::metadata(path).unwrap().len()
}

#[test]
fn the_file_stays_as_it_is_beside_snapshots_and_they_read_their_versions() {
    let scratch = Scratch::new();
    let path = scratch.path("beside.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    rewrite(&store, 0);
    rewrite(&store, 1);
    let live = store.stats().unwrap().live_size;
    let mut snapshots = Vec::new();
    let mut turn = 1;
    for count in 1..=3 {
        snapshots.push((store.snapshot().unwrap(), turn));
        for _ in 0..4 {
            turn += 1;
            rewrite(&store, turn);
        }
        let before = size_of(&path);
        for _ in 0..12 {
            turn += 1;
            rewrite(&store, turn);
        }
        let (after, stats) = (size_of(&path), store.stats().unwrap());
        assert!(after <= before + before / 20, "{after} bytes after {before}, {count} snapshots");
        assert!(after < (count + 5) * live, "{after} bytes, {live} for each version");
        // Each keeps its version, and nothing else is counted.
        assert!(stats.pinned_size > count * live * 9 / 10, "{stats:?}");
        assert!(stats.pinned_size < count * live + live / 2, "{stats:?}");
        assert_eq!(stats.live_size + stats.free_size + stats.pinned_size, stats.pages * stats.page_size);
        assert!(snapshots.iter().all(|(snapshot, turn)| is_whole(snapshot, *turn)));
        assert_eq!(store.check().unwrap(), []);
    }
    // The oldest, then the newest: the one between them stays.
    for index in [0, 1] {
        snapshots.remove(index);
        for _ in 0..6 {
            turn += 1;
            rewrite(&store, turn);
        }
        assert!(snapshots.iter().all(|(snapshot, turn)| is_whole(snapshot, *turn)));
        assert_eq!(store.check().unwrap(), []);
    }
    assert!(store.stats().unwrap().pinned_size < 2 * live);
    snapshots.clear();
    rewrite(&store, turn + 1);
    rewrite(&store, turn + 2);
    assert!(store.stats().unwrap().pinned_size < live / 2, "{:?}", store.stats().unwrap());
    assert_eq!(store.check().unwrap(), []);
    drop(store);
    let store = Store::open(&path, &OpenOptions::with_mode(Mode::Write)).unwrap();
    assert!(is_whole(&store.snapshot().unwrap(), turn + 2));
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn snapshots_of_other_processes_count_as_well() {
    let scratch = Scratch::new();
    let path = scratch.path("others.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    rewrite(&store, 1);
    let opened = format!("open {} w 20000", path.display());
    let (mut first, mut second) = (Child::new(), Child::new());
    first.must(&[&opened, "snapshot"]);
    rewrite(&store, 2);
    rewrite(&store, 3);
    second.must(&[&opened, "snapshot"]);
    rewrite_beside_snapshots(&store, &path);
    assert_eq!((first.ask("turn t"), second.ask("turn t")), ("1".to_owned(), "3".to_owned()));
    assert_eq!(store.check().unwrap(), []);
    // Another process writes in between: what is known of the pages does not hold any more.
    for turn in 20..30 {
        if turn % 3 == 0 {
            second.must(&["begin 20000", "put t row00000 odd", "commit", "sync"]);
        }
        rewrite(&store, turn);
        assert_eq!((first.ask("turn t"), second.ask("turn t")), ("1".to_owned(), "3".to_owned()));
    }
    assert_eq!(store.check().unwrap(), []);
    first.kill();
    second.must(&["forget"]);
    rewrite(&store, 30);
    rewrite(&store, 31);
    let stats = store.stats().unwrap();
    assert!(stats.pinned_size < stats.live_size, "{stats:?}");
    assert_eq!(store.check().unwrap(), []);
}

#[test]
fn a_killed_writer_leaves_the_snapshots_of_others_and_a_sound_file() {
    const ROUNDS: u64 = 8;
    let mut chance = Chance::new("a_killed_writer_leaves_the_snapshots_of_others_and_a_sound_file");
    let scratch = Scratch::new();
    let path = scratch.path("killed.pel");
    let store = Store::open(&path, &OpenOptions::default()).unwrap();
    rewrite(&store, 0);
    let mut snapshots = vec![(store.snapshot().unwrap(), 0)];
    for round in 1..=ROUNDS {
        let mut child = Child::new();
        child.must(&[&format!("open {} w 20000", path.display())]);
        child.tell(&format!("rewrite t {ROWS} {}", round * 1000));
        assert_eq!(child.hear(), (round * 1000).to_string());
        std::thread::sleep(Duration::from_micros(chance.below(300_000) as u64));
        child.kill();
        assert!(snapshots.iter().all(|(snapshot, turn)| is_whole(snapshot, *turn)));
        assert_eq!(store.check().unwrap(), []);
        rewrite(&store, round);
        snapshots.push((store.snapshot().unwrap(), round));
        if snapshots.len() > 2 {
            snapshots.remove(chance.below(snapshots.len()));
        }
        assert!(snapshots.iter().all(|(snapshot, turn)| is_whole(snapshot, *turn)));
    }
    drop(snapshots);
    drop(store);
    // A process alone, with snapshots of its own.
    for round in 1..=ROUNDS {
        let mut child = Child::new();
        child.must(&[&format!("open {} w 20000", path.display()), "snapshot"]);
        child.tell(&format!("rewrite t {ROWS} {}", round * 1000));
        for _ in 0..6 {
            assert!(child.hear().parse::<u64>().is_ok());
        }
        std::thread::sleep(Duration::from_micros(chance.below(100_000) as u64));
        child.kill();
        let mut last = 0;
        while let Ok(turn) = child.hear().parse() {
            last = turn;
        }
        let store = Store::open(&path, &OpenOptions::with_mode(Mode::Write)).unwrap();
        assert_eq!(store.check().unwrap(), []);
        let snapshot = store.snapshot().unwrap();
        assert!(last == 0 || is_whole(&snapshot, last) || is_whole(&snapshot, last + 1));
    }
}

#[test]
fn snapshots_of_processes_that_may_not_write_count_as_well() {
    let scratch = Scratch::new();
    std::fs::set_permissions(scratch.folder(), Permissions::from_mode(0o755)).unwrap();
    for is_first in [true, false] {
        let path = scratch.path(&format!("{is_first}.pel"));
        let reader = || {
            let mut child = Child::without_rights(&scratch);
            std::fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
            child.must(&[&format!("open {} r 20000", path.display()), "snapshot"]);
            std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
            child
        };
        let store = Store::open(&path, &OpenOptions::default()).unwrap();
        rewrite(&store, 1);
        let (mut first, store) = if is_first {
            drop(store);
            (reader(), Store::open(&path, &OpenOptions::with_mode(Mode::Write)).unwrap())
        } else {
            (reader(), store)
        };
        rewrite(&store, 2);
        rewrite(&store, 3);
        let mut second = reader();
        rewrite_beside_snapshots(&store, &path);
        assert_eq!((first.ask("turn t"), second.ask("turn t")), ("1".to_owned(), "3".to_owned()));
        let stats = store.stats().unwrap();
        assert_eq!((stats.oldest_reader_lag > 15, stats.oldest_reader_process), (true, 0), "{stats:?}");
        first.kill();
        second.must(&["forget", "snapshot"]);
        assert_eq!(second.ask("turn t"), "19");
        second.must(&["forget"]);
        rewrite(&store, 30);
        assert_eq!(store.stats().unwrap().oldest_reader_lag, 0);
        assert_eq!(store.check().unwrap(), []);
    }
}
