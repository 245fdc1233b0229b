//! Tests of pages that are used again beside snapshots.

use std::collections::BTreeMap;

use super::*;
use crate::engine::lmdb::LmdbEngine;
use crate::engine::lmdb::scratch::Scratch;
use crate::engine::{Direction, Engine, ReadTxn, Start, Tree, WriteTxn};

type Rows = BTreeMap<Vec<u8>, Vec<u8>>;

fn rows_of(read: &dyn ReadTxn) -> Rows {
    let mut cursor = read.cursor(Tree::Rows).unwrap();
    cursor.start(Start::Edge, Direction::Forward).unwrap();
    let mut rows = Rows::new();
    while let Some((key, value)) = cursor.step().unwrap() {
        rows.insert(key.to_vec(), value.to_vec());
    }
    rows
}

fn value(turn: u64, number: u64) -> Vec<u8> {
    let size = match number % 50 {
        // On pages of its own.
        0 => 9_000 + (turn % 7) as usize * 400,
        other => 40 + other as usize,
    };
    let mut value = vec![(turn + number) as u8; size];
    value[..8].copy_from_slice(&turn.to_le_bytes());
    value
}

const COUNT: u64 = 4_000;

/// Write all rows anew.
fn rewrite(engine: &LmdbEngine, turn: u64) -> Rows {
    let mut txn = engine.begin_write().unwrap();
    let mut rows = Rows::new();
    for number in 0..COUNT {
        let (key, value) = (number.to_be_bytes(), value(turn, number));
        txn.put(Tree::Rows, &key, &[&value]).unwrap();
        rows.insert(key.to_vec(), value);
    }
    txn.commit().unwrap();
    rows
}

#[test]
fn the_file_stays_as_it_is_beside_snapshots_of_any_age() {
    let scratch = Scratch::new("ages");
    let engine = scratch.engine();
    rewrite(engine, 1);
    let one = scratch.pages();
    let mut snapshots: Vec<(Box<dyn ReadTxn>, Rows)> = Vec::new();
    let mut turn = 1;
    for count in 1..4 {
        turn += 1;
        let rows = rewrite(engine, turn);
        snapshots.push((engine.begin_read().unwrap(), rows));
        for _ in 0..10 {
            turn += 1;
            rewrite(engine, turn);
        }
        let before = scratch.pages();
        for _ in 0..20 {
            turn += 1;
            rewrite(engine, turn);
        }
        assert!(scratch.pages() <= before + before / 20, "{} pages after {before}", scratch.pages());
        assert!(scratch.pages() < (count + 5) * one, "{} pages, {one} for each version", scratch.pages());
        scratch.prove();
        let usage = engine.usage().unwrap();
        let pinned = usage.pinned_pages;
        assert!(pinned > count * one / 2 && pinned < (count + 1) * one, "{pinned} pages, of {one}");
        for (read, rows) in &snapshots {
            assert!(rows_of(&**read) == *rows);
        }
    }
    // A transaction that is aborted has used pages that stay free.
    let before = scratch.pages();
    for _ in 0..5 {
        let mut txn = engine.begin_write().unwrap();
        txn.put(Tree::Rows, b"aborted", &[&[0; 100]]).unwrap();
        drop(txn);
        turn += 1;
        rewrite(engine, turn);
    }
    assert!(scratch.pages() <= before + before / 20);
    // The one in the middle ends: what it alone has seen is used.
    drop(snapshots.remove(1));
    let before = engine.usage().unwrap();
    rewrite(engine, turn + 1);
    rewrite(engine, turn + 2);
    let after = engine.usage().unwrap();
    assert!(after.pinned_pages + one / 2 < before.pages, "{after:?}");
    assert_eq!(after.pages, before.pages);
    for (read, rows) in &snapshots {
        assert!(rows_of(&**read) == *rows);
    }
    snapshots.clear();
    rewrite(engine, turn + 3);
    assert_eq!(engine.usage().unwrap().pinned_pages, 0);
    scratch.prove();
}

/// A generator of numbers, the same ones each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// Put and delete some rows, in a transaction and in a map.
fn change(txn: &mut dyn WriteTxn, rows: &mut Rows, turn: u64, chance: &mut Chance) {
    for _ in 0..chance.below(400) {
        let number = chance.below(1_500);
        let key = number.to_be_bytes();
        if chance.below(4) == 0 {
            assert_eq!(txn.delete(Tree::Rows, &key).unwrap(), rows.remove(&key[..]).is_some());
        } else {
            let value = value(turn, number);
            txn.put(Tree::Rows, &key, &[&value]).unwrap();
            rows.insert(key.to_vec(), value);
        }
    }
}

/// Write beside snapshots, which read their versions. Returns in how many transactions pages were
/// looked for that are freed beside a snapshot, and that were freed last.
fn snapshots_read_their_versions(scratches: [Scratch; 4]) -> (u64, u64) {
    let (mut reused, mut recent) = (0, 0);
    for (seed, scratch) in (1..).zip(scratches) {
        let engine = scratch.engine();
        let mut chance = Chance(seed * 0x9E37_79B9);
        let mut rows = Rows::new();
        let mut snapshots: Vec<(Box<dyn ReadTxn>, Rows)> = Vec::new();
        for turn in 0..150 {
            let mut txn = engine.begin_write().unwrap();
            let mut next = rows.clone();
            change(&mut *txn, &mut next, turn, &mut chance);
            if chance.below(4) == 0 {
                txn.savepoint().unwrap();
                let mut undone = next.clone();
                change(&mut *txn, &mut undone, turn, &mut chance);
                if chance.below(2) == 0 {
                    txn.rollback().unwrap();
                } else {
                    txn.release().unwrap();
                    next = undone;
                }
            }
            match chance.below(8) {
                0 => drop(txn),
                1 => {
                    // As an online compaction does it.
                    let moves = txn.pages().unwrap();
                    moves.gather_free().unwrap();
                    moves.cut_end().unwrap();
                    txn.commit().unwrap();
                    rows = next;
                }
                _ => {
                    txn.commit().unwrap();
                    rows = next;
                }
            }
            if chance.below(6) == 0 {
                snapshots.push((engine.begin_read().unwrap(), rows.clone()));
            }
            if snapshots.len() > 3 || (!snapshots.is_empty() && chance.below(12) == 0) {
                snapshots.remove(chance.below(snapshots.len() as u64) as usize);
            }
            for (read, rows) in &snapshots {
                assert!(rows_of(&**read) == *rows, "seed {seed}, turn {turn}");
            }
            if turn % 10 == 0 {
                scratch.prove();
            }
            let written = engine.environment.free_pages.written();
            reused += u64::from(!written.seen.readers.is_empty());
            recent += u64::from(written.seen.end > written.own);
        }
        assert!(rows_of(&*engine.begin_read().unwrap()) == rows);
        scratch.prove();
    }
    (reused, recent)
}

#[test]
fn left_to_lmdb_snapshots_read_their_versions_and_their_pages_stay() {
    let scratches = [1, 2, 3, 4].map(|seed| Scratch::left_to_lmdb(&format!("off-{seed}")));
    assert_eq!(snapshots_read_their_versions(scratches), (0, 0));
    let scratch = Scratch::left_to_lmdb("off-ages");
    let engine = scratch.engine();
    rewrite(engine, 1);
    let (one, _read) = (scratch.pages(), engine.begin_read().unwrap());
    for turn in 2..12 {
        rewrite(engine, turn);
    }
    assert!(scratch.pages() > 9 * one, "{} pages, {one} for each version", scratch.pages());
}

#[test]
fn snapshots_read_their_versions_whatever_is_written_beside_them() {
    let scratches = [1, 2, 3, 4].map(|seed| Scratch::new(&format!("model-{seed}")));
    let (reused, recent) = snapshots_read_their_versions(scratches);
    assert!(reused > 100, "snapshots were old in {reused} turns only");
    assert!(recent > 50 || !os::memory_barrier(), "what was freed last was used in {recent} turns only");
}

#[test]
fn pages_are_needed_by_a_reader_from_the_version_that_wrote_them_to_the_one_that_freed_them() {
    let mut written = WrittenPages::default();
    written.note(ffi::pellucid_run { first: 510, count: 4 }, 7, 3);
    written.note(ffi::pellucid_run { first: 511, count: 1 }, 9, 3);
    assert_eq!([509, 510, 511, 512, 513, 514].map(|page| written.of(page)), [0, 7, 9, 7, 7, 0]);
    let pinned = |page, freed, readers: &[u64]| written.is_pinned(page, freed, readers);
    assert!(!pinned(510, 9, &[3, 6, 10]) && pinned(510, 9, &[3, 7, 10]) && !pinned(510, 9, &[3, 9]));
    assert!(pinned(511, 12, &[11]) && !pinned(511, 12, &[8, 13]));
    // Of others it is not known when they were written.
    assert!(pinned(2, 9, &[3]) && !pinned(2, 9, &[10]) && !pinned(2, 9, &[]));
    // No page is freed before it is written.
    assert!(pinned(510, 7, &[3]) && pinned(510, 5, &[3]));
    written.forget(511, 2);
    assert_eq!([510, 511, 512, 513].map(|page| written.of(page)), [7, 0, 0, 7]);
}

#[test]
fn little_memory_is_taken_to_remember_pages() {
    let mut written = WrittenPages::default();
    let chunks = CHUNKS_MAX as u64;
    for number in 0..chunks + 10 {
        written.note(ffi::pellucid_run { first: (number * CHUNK) as usize, count: 1 }, 5, 4);
    }
    assert_eq!(written.chunks.len(), CHUNKS_MAX);
    assert_eq!((written.of(0), written.of((chunks + 5) * CHUNK)), (5, 0));
    // A newer reader is the oldest: those that are remembered are no use any more.
    written.note(ffi::pellucid_run { first: ((chunks + 5) * CHUNK) as usize, count: 1 }, 9, 8);
    assert_eq!((written.chunks.len(), written.of(0), written.of((chunks + 5) * CHUNK)), (1, 0, 9));
}
