//! Walks that pass deleted keys find what is there, in few steps.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::time::Duration;

use super::*;
use crate::engine::memory::MemoryEngine;
use crate::engine::{Batch, Contents, Engine, FileCare, ReadTxn, Start, Tree, WriteTxn};
use crate::wal::engine::LoggedEngine;

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn engine() -> LoggedEngine {
    LoggedEngine::in_memory(Box::new(MemoryEngine::new()), 4 << 20).unwrap()
}

/// Rows of a table whose keys begin with a letter.
fn key(table: u8, number: u32) -> Vec<u8> {
    [&[table][..], &number.to_be_bytes()].concat()
}

fn checkpoint(engine: &LoggedEngine) {
    assert!(engine.checkpoint(Duration::ZERO, Duration::ZERO).unwrap());
}

fn first(rows: &Rows, start: Start<'_>, direction: Direction) -> Option<(Vec<u8>, Vec<u8>)> {
    let found = match (start, direction) {
        (Start::Edge, Direction::Forward) => rows.iter().next(),
        (Start::Edge, Direction::Reverse) => rows.iter().next_back(),
        (Start::At(key), Direction::Forward) => rows.range(key.to_vec()..).next(),
        (Start::At(key), Direction::Reverse) => rows.range(..key.to_vec()).next_back(),
    };
    found.map(|(key, value)| (key.clone(), value.clone()))
}

/// Compare walks with those over the rows that the source should have.
fn compare(source: &dyn Contents, rows: &Rows, dice: &mut impl FnMut(u32) -> u32) {
    for direction in [Direction::Forward, Direction::Reverse] {
        for _ in 0..4 {
            let place = key(b'a' + dice(3) as u8, dice(120));
            let start = if dice(5) == 0 { Start::Edge } else { Start::At(&place) };
            let expected = first(rows, start, direction);
            let found = source.first_from(Tree::Rows, start, direction).unwrap();
            assert_eq!(found.map(|(key, value)| (key.to_vec(), value.to_vec())), expected);
            let mut expected: Vec<_> = match (start, direction) {
                (Start::Edge, _) => rows.clone().into_iter().collect(),
                (Start::At(key), Direction::Forward) => rows.clone().split_off(key).into_iter().collect(),
                (Start::At(key), Direction::Reverse) => {
                    rows.range(..key.to_vec()).map(|(key, value)| (key.clone(), value.clone())).collect()
                }
            };
            if direction == Direction::Reverse {
                expected.reverse();
            }
            let mut cursor = source.cursor(Tree::Rows).unwrap();
            cursor.start(start, direction).unwrap();
            let (mut found, mut batch) = (Vec::new(), Batch::default());
            loop {
                let before = found.len();
                if dice(2) == 0 {
                    let entry = cursor.step().unwrap();
                    found.extend(entry.map(|(key, value)| (key.to_vec(), value.to_vec())));
                } else {
                    cursor.fill(&mut batch).unwrap();
                    found.extend(batch.entries.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
                }
                if found.len() == before {
                    break;
                }
            }
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn walks_over_many_deleted_keys_find_what_a_map_has() {
    for seed in 1..=12_u64 {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let mut dice = move |sides: u32| {
            state ^= state >> 12;
            state ^= state << 25;
            state ^= state >> 27;
            (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) as u32 % sides
        };
        let engine = engine();
        let (mut rows, mut kept) = (Rows::new(), Vec::<(Box<dyn ReadTxn>, Rows)>::new());
        for round in 0..120_u32 {
            let mut txn = engine.begin_write().unwrap();
            let mut saved = None;
            for _ in 0..dice(60) {
                let table = b'a' + dice(3) as u8;
                // Runs of deletes from a place on, now and then rows between them.
                let (at, is_put) = (dice(120), dice(5) == 0);
                for number in at..at + if is_put { 1 + dice(3) } else { dice(30) } {
                    let key = key(table, number);
                    if is_put {
                        txn.put(Tree::Rows, &key, &[&round.to_le_bytes()]).unwrap();
                        rows.insert(key, round.to_le_bytes().to_vec());
                    } else {
                        let was_there = txn.find(Tree::Rows, &key).unwrap().is_some();
                        assert_eq!(was_there, rows.remove(&key).is_some());
                        if was_there {
                            txn.delete_found(Tree::Rows, &key).unwrap();
                        }
                    }
                }
                match dice(12) {
                    0 if saved.is_none() => {
                        txn.savepoint().unwrap();
                        saved = Some(rows.clone());
                    }
                    1 if saved.is_some() => {
                        txn.rollback().unwrap();
                        rows = saved.take().unwrap();
                    }
                    2..=4 => compare(&*txn, &rows, &mut dice),
                    _ => {}
                }
            }
            txn.commit().unwrap();
            compare(&*engine.begin_read().unwrap(), &rows, &mut dice);
            if dice(6) == 0 {
                checkpoint(&engine);
            }
            if dice(5) == 0 {
                kept.push((engine.begin_read().unwrap(), rows.clone()));
            }
            if kept.len() > 4 {
                kept.remove(dice(4) as usize);
            }
            for (read, rows) in &kept {
                compare(&**read, rows, &mut dice);
            }
        }
    }
}

#[test]
fn a_walk_takes_few_entries_from_a_memtable_until_more_are_wanted() {
    let engine = engine();
    let mut txn = begin(&engine);
    (0..COUNT).for_each(|number| put(&mut *txn, &key(b'a', number)));
    txn.commit().unwrap();
    let read = engine.begin_read().unwrap();
    let mut cursor = read.cursor(Tree::Rows).unwrap();
    for direction in [Direction::Forward, Direction::Reverse] {
        cursor.start(Start::Edge, direction).unwrap();
        let (mut batch, mut sizes) = (Batch::default(), Vec::new());
        for _ in 0..10 {
            cursor.fill(&mut batch).unwrap();
            sizes.push(batch.entries.len());
        }
        assert!(sizes[0] <= 2, "the first row of a queue is found again and again: {sizes:?}");
        assert!(sizes[9] >= 64, "{sizes:?}");
    }
}

#[test]
fn ranges_serve_later_versions_alone_and_become_one_when_they_are_old() {
    let mut covered = Covered::default();
    let (forward, reverse) = (Direction::Forward, Direction::Reverse);
    covered.add(b"b", b"d", 5);
    covered.add(b"m", b"p", 6);
    assert_eq!(covered.behind(b"b", forward, 5), Some(&b"d"[..]));
    assert_eq!(covered.behind(b"c", forward, 4), None, "an older version");
    for place in [&b"a"[..], b"d", b"e"] {
        assert_eq!(covered.behind(place, forward, 9), None);
    }
    assert_eq!(covered.behind(b"d", reverse, 9), Some(&b"b"[..]));
    assert_eq!(covered.behind(b"b", reverse, 9), None);
    assert_eq!(covered.behind(b"e", reverse, 9), None);
    // It touches both, and all are new.
    covered.add(b"d", b"m", 7);
    assert_eq!(covered.ranges.len(), 3);
    assert_eq!(covered.behind(b"b", forward, 7), Some(&b"p"[..]));
    assert_eq!(covered.behind(b"p", reverse, 7), Some(&b"b"[..]));
    assert_eq!(covered.behind(b"b", forward, 6), Some(&b"d"[..]));
    // One that overlaps is part of the same range.
    covered.add(b"o", b"q", 100);
    assert_eq!(covered.ranges.len(), 2, "b to m is old by now");
    assert_eq!(covered.behind(b"b", forward, 100), Some(&b"q"[..]));
    assert_eq!(covered.behind(b"b", forward, 99), Some(&b"m"[..]));
}

#[test]
fn a_long_run_has_few_ranges() {
    for is_reverse in [false, true] {
        let mut covered = Covered::default();
        for number in 0..10_000_u32 {
            let place = if is_reverse { 20_000 - number } else { number };
            covered.add(&place.to_be_bytes(), &(place + 1).to_be_bytes(), number.into());
            assert!(covered.ranges.len() <= 40, "{}", covered.ranges.len());
        }
        // A version that is a little older steps over few keys.
        let (direction, start) =
            if is_reverse { (Direction::Reverse, 20_001_u32) } else { (Direction::Forward, 0) };
        for lag in [0_u32, 1, 2, 5, 50, 1000] {
            let behind = covered.behind(&start.to_be_bytes(), direction, u64::from(9_999 - lag)).unwrap();
            let behind = u32::from_be_bytes(behind.try_into().unwrap());
            let passed = if is_reverse { 20_001 - behind } else { behind };
            assert!(passed >= 10_000 - 3 * lag - 2, "{passed} of 10000, {lag} behind");
        }
    }
}

/// More than any walk below may take, and far less than there are deleted keys.
const STEPS_MAX: u64 = 3 * RUN_MIN as u64;
const COUNT: u32 = 5_000;

/// How many steps the dearest of some calls takes.
fn dearest(count: u32, mut work: impl FnMut(u32)) -> u64 {
    (0..count).map(|number| steps::of(|| work(number))).max().unwrap()
}

fn begin(engine: &LoggedEngine) -> Box<dyn WriteTxn> {
    engine.begin_write().unwrap()
}

fn put(txn: &mut dyn WriteTxn, key: &[u8]) {
    txn.put(Tree::Rows, key, &[b"row"]).unwrap();
}

fn delete(txn: &mut dyn WriteTxn, key: &[u8]) {
    txn.find(Tree::Rows, key).unwrap().unwrap();
    txn.delete_found(Tree::Rows, key).unwrap();
}

#[test]
fn a_queue_is_read_in_few_steps_whatever_has_been_taken_out_of_it() {
    for (checkpoints, is_reverse) in [(false, false), (true, false), (false, true), (true, true)] {
        let engine = engine();
        // The number in the table of the item that came as number so and so.
        let place = |number: u32| key(b'q', if is_reverse { 2 * COUNT - number } else { number });
        let mut txn = begin(&engine);
        put(&mut *txn, &key(b'a', 1));
        put(&mut *txn, &key(b'z', 1));
        (0..100).for_each(|number| put(&mut *txn, &place(number)));
        txn.commit().unwrap();
        let (direction, end) =
            if is_reverse { (Direction::Reverse, [b'r']) } else { (Direction::Forward, [b'q']) };
        let taken = dearest(COUNT, |number| {
            let mut txn = begin(&engine);
            put(&mut *txn, &place(number + 100));
            txn.commit().unwrap();
            let read = engine.begin_read().unwrap();
            let found = read.first_from(Tree::Rows, Start::At(&end), direction).unwrap();
            assert_eq!(found.unwrap().0, &place(number)[..]);
            let mut cursor = read.cursor(Tree::Rows).unwrap();
            cursor.start(Start::At(&end), direction).unwrap();
            assert_eq!(cursor.step().unwrap().unwrap().0, &place(number)[..]);
            let mut txn = begin(&engine);
            delete(&mut *txn, &place(number));
            txn.commit().unwrap();
            // A checkpoint leaves the tree with rows that are deleted one by one afterwards.
            if checkpoints && number == COUNT / 2 {
                checkpoint(&engine);
            }
        });
        assert!(taken <= STEPS_MAX, "{taken} steps, {checkpoints} {is_reverse}");
    }
}

#[test]
fn rows_of_the_tree_are_taken_from_both_ends_in_few_steps() {
    for is_one_transaction in [false, true] {
        let engine = engine();
        let mut txn = begin(&engine);
        (0..2 * COUNT).for_each(|number| put(&mut *txn, &key(b'q', number)));
        (0..10).for_each(|number| put(&mut *txn, &key(b'r', number)));
        txn.commit().unwrap();
        checkpoint(&engine);
        // Something else in the log, so that nothing is empty.
        let mut running = Some(begin(&engine));
        put(&mut **running.as_mut().unwrap(), &key(b'a', 1));
        let taken = dearest(COUNT - 10, |number| {
            for (start, direction, expected) in [
                ([b'q'], Direction::Forward, key(b'q', number)),
                ([b'r'], Direction::Reverse, key(b'q', 2 * COUNT - 1 - number)),
            ] {
                let mut txn = running.take().unwrap_or_else(|| begin(&engine));
                let found = txn.first_from(Tree::Rows, Start::At(&start), direction).unwrap().unwrap();
                assert_eq!(found.0, &expected[..]);
                delete(&mut *txn, &expected);
                if is_one_transaction {
                    running = Some(txn);
                } else {
                    txn.commit().unwrap();
                }
            }
        });
        assert!(taken <= 2 * STEPS_MAX, "{taken} steps, {is_one_transaction}");
    }
}

#[test]
fn a_run_of_deleted_rows_between_others_is_passed_in_few_steps() {
    let engine = engine();
    let mut txn = begin(&engine);
    (0..COUNT).for_each(|number| put(&mut *txn, &key(b'q', number)));
    txn.commit().unwrap();
    checkpoint(&engine);
    let mut txn = begin(&engine);
    (1..COUNT - 1).for_each(|number| delete(&mut *txn, &key(b'q', number)));
    txn.commit().unwrap();
    let walk = || {
        for direction in [Direction::Forward, Direction::Reverse] {
            let read = engine.begin_read().unwrap();
            let mut cursor = read.cursor(Tree::Rows).unwrap();
            cursor.start(Start::Edge, direction).unwrap();
            let mut found = Vec::new();
            while let Some((key, _)) = cursor.step().unwrap() {
                found.push(key.to_vec());
            }
            found.sort();
            assert_eq!(found, [key(b'q', 0), key(b'q', COUNT - 1)]);
        }
    };
    // The first walks learn what the others know.
    walk();
    let taken = steps::of(walk);
    assert!(taken <= 2 * STEPS_MAX, "{taken} steps");
}

#[test]
fn a_snapshot_beside_a_writer_takes_few_steps() {
    let engine = engine();
    let mut txn = begin(&engine);
    (0..COUNT).for_each(|number| put(&mut *txn, &key(b'q', number)));
    txn.commit().unwrap();
    checkpoint(&engine);
    let taken = dearest(COUNT - 100, |number| {
        let read = engine.begin_read().unwrap();
        // What another thread does before the walk.
        let mut txn = begin(&engine);
        delete(&mut *txn, &key(b'q', number));
        put(&mut *txn, &key(b'q', COUNT + number));
        txn.commit().unwrap();
        let newest = engine.begin_read().unwrap();
        for (read, expected) in [(&newest, number + 1), (&read, number)] {
            let found = read.first_from(Tree::Rows, Start::At(b"q"), Direction::Forward).unwrap().unwrap();
            assert_eq!(found.0, &key(b'q', expected)[..]);
        }
    });
    assert!(taken <= 2 * STEPS_MAX, "{taken} steps");
}
