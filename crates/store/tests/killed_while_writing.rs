//! Tests that a killed writer loses nothing that was acknowledged, and leaves nothing half done.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::time::Duration;

use pellucid_record::view::{Root, Slot, root};
use pellucid_store::{Mode, OpenOptions, Range, Snapshot, Store, TableId};
use support::{Chance, Child, Scratch, key};

/// Rows that the child keeps before it deletes the oldest.
const KEPT: u64 = 30;

fn text(snapshot: &Snapshot, table: TableId, name: &str) -> String {
    let cell = snapshot.get(table, &key(name)).unwrap().unwrap();
    match root(&cell.record, &Vec::new()).unwrap() {
        Root::Scalar(Slot::Str(text)) => String::from_utf8(text.to_vec()).unwrap(),
        _ => panic!("not a str"),
    }
}

/// The number of the last transaction, after comparing everything with what that transaction must
/// have left.
fn last_transaction(store: &Store) -> u64 {
    let snapshot = store.snapshot().unwrap();
    let table = snapshot.table("flood").unwrap().unwrap();
    let last: u64 = text(&snapshot, table, "left").parse().unwrap();
    assert_eq!(text(&snapshot, table, "right"), last.to_string(), "both or none");
    let mut names: Vec<String> = vec!["left".into(), "right".into()];
    for number in (last + 1).saturating_sub(KEPT)..=last {
        names.push(format!("row{number:09}"));
        assert_eq!(text(&snapshot, table, names.last().unwrap()), number.to_string().repeat(40));
    }
    let mut scan = snapshot.scan(table, &Range::ALL, false).unwrap();
    for name in &names {
        assert_eq!(scan.next().unwrap().unwrap().key, key(name));
    }
    assert!(scan.next().unwrap().is_none());
    assert_eq!(snapshot.count(table).unwrap(), names.len() as u64);
    last
}

#[test]
fn a_killed_writer_loses_nothing_that_was_acknowledged() {
    const ROUNDS: usize = 25;
    let mut chance = Chance::new("a_killed_writer_loses_nothing_that_was_acknowledged");
    let scratch = Scratch::new();
    let path = scratch.path("killed.pel");
    let mut next = 0;
    for _ in 0..ROUNDS {
        let mut child = Child::new();
        child.must(&[&format!("open {} c 5000", path.display())]);
        child.tell(&format!("flood flood {next}"));
        // From the first commit on: at once, or after some hundred.
        let first: u64 = child.hear().parse().unwrap();
        assert_eq!(first, next);
        std::thread::sleep(Duration::from_micros(chance.below(60_000) as u64));
        child.kill();
        let mut acknowledged = first;
        while let Ok(number) = child.hear().parse() {
            acknowledged = number;
        }
        let store = Store::open(&path, &OpenOptions::with_mode(Mode::Write)).unwrap();
        let last = last_transaction(&store);
        assert!(
            last == acknowledged || last == acknowledged + 1,
            "transaction {acknowledged} was acknowledged, and {last} is there"
        );
        assert_eq!(store.check().unwrap(), []);
        next = last + 1;
    }
    assert_eq!(scratch.names(), ["killed.pel"]);
}

#[test]
fn a_killed_creator_leaves_something_that_can_be_opened() {
    const ROUNDS: usize = 30;
    let mut chance = Chance::new("a_killed_creator_leaves_something_that_can_be_opened");
    let scratch = Scratch::new();
    for round in 0..ROUNDS {
        let path = scratch.path(&format!("{round}.pel"));
        let mut child = Child::new();
        child.tell(&format!("open {} c 5000", path.display()));
        std::thread::sleep(Duration::from_micros(chance.below(6_000) as u64));
        child.kill();
        let store = Store::open(&path, &OpenOptions::with_mode(Mode::Create)).unwrap();
        assert!(store.snapshot().unwrap().tables().unwrap().is_empty());
        assert_eq!(store.check().unwrap(), []);
    }
}
