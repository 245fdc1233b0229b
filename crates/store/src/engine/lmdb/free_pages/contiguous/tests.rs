//! Tests of transactions that take free pages next to each other.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::*;
use crate::engine::lmdb::cursor::LmdbCursor;
use crate::engine::lmdb::scratch::Scratch;
use crate::engine::lmdb::txn::LmdbRead;
use crate::engine::{Cursor as _, Direction, Engine as _, Start, WriteTxn as _};

fn begin(scratch: &Scratch) -> LmdbWrite {
    LmdbWrite::begin(Arc::clone(&scratch.engine().environment)).unwrap()
}

/// xorshift64*.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % end
    }
}

const COUNT: u64 = 12_000;

fn put(txn: &mut LmdbWrite, rows: &mut BTreeMap<Vec<u8>, Vec<u8>>, chance: &mut Chance, turn: u64) {
    let key = chance.below(COUNT).to_be_bytes();
    let value = vec![(turn & 255) as u8; 150 + chance.below(100) as usize];
    txn.put(Tree::Rows, &key, &[&value]).unwrap();
    rows.insert(key.to_vec(), value);
}

#[test]
fn the_parts_of_a_file_with_the_most_free_pages_are_taken_first() {
    let sparse = (0..10).map(|number| number * PART);
    let dense = 13 * PART..14 * PART - 1;
    let half = (15 * PART..16 * PART).filter(|page| page % 2 == 0);
    let mut pages: Vec<usize> = sparse.chain(dense.clone()).chain(half).collect();
    pages.reverse();
    let dense: Vec<usize> = dense.rev().collect();
    // Only what is dense, unless more is needed.
    assert_eq!(divide(&pages, 1_000, 0).0, dense);
    let (first, others) = divide(&pages, 1_000, PART);
    assert_eq!((first.len(), others.len()), (PART - 1 + PART / 2, 10));
    assert!(first.is_sorted_by(|one, next| one > next) && others.is_sorted_by(|one, next| one > next));
    assert_eq!(divide(&pages, 10, 1_000), (pages, Vec::new()));
    assert_eq!(divide(&[], 10, 10), (Vec::new(), Vec::new()));
}

/// How many hundredths of the parts that these pages are in they make up.
fn density(pages: &[usize]) -> usize {
    let parts = pages.chunk_by(|one, next| one / PART == next / PART).count();
    100 * pages.len() / (parts * PART).max(1)
}

/// Change rows at random in many transactions, and find each page once. Returns in how many of them
/// pages were set aside.
fn no_page_is_lost(scratch: &Scratch) -> u64 {
    let mut chance = Chance(0x9E37_79B9);
    let mut rows = BTreeMap::new();
    let mut set_aside = 0;
    for turn in 0..150 {
        let mut txn = begin(scratch);
        let count = if turn == 0 { 4 * COUNT } else { COUNT / 80 };
        let mut next = rows.clone();
        txn.take_neighbours(count).unwrap();
        set_aside += u64::from(!txn.set_aside.pages.is_empty());
        for _ in 0..count {
            put(&mut txn, &mut next, &mut chance, turn);
        }
        match chance.below(12) {
            0 => {
                // A nested transaction, which is undone.
                txn.savepoint().unwrap();
                for _ in 0..100 {
                    put(&mut txn, &mut next.clone(), &mut chance, turn + 1);
                }
                txn.rollback().unwrap();
            }
            1 => {
                // As an online compaction does it in a checkpoint.
                txn.gather_free().unwrap();
                txn.cut_end().unwrap();
            }
            2 => {
                drop(txn);
                continue;
            }
            _ => {}
        }
        Box::new(txn).commit().unwrap();
        rows = next;
        if turn % 20 == 0 {
            // Every page is in one tree, or free once.
            scratch.prove();
        }
    }
    let read = scratch.engine().begin_read().unwrap();
    let mut cursor = read.cursor(Tree::Rows).unwrap();
    cursor.start(Start::Edge, Direction::Forward).unwrap();
    let mut found = BTreeMap::new();
    while let Some((key, value)) = cursor.step().unwrap() {
        found.insert(key.to_vec(), value.to_vec());
    }
    assert!(found == rows);
    set_aside
}

#[test]
fn left_to_lmdb_no_transaction_sets_pages_aside() {
    assert_eq!(no_page_is_lost(&Scratch::left_to_lmdb("dense-off")), 0);
}

#[test]
fn whatever_is_set_aside_no_page_is_lost_and_large_transactions_take_neighbours() {
    let scratch = Scratch::new("dense-model");
    let set_aside = no_page_is_lost(&scratch);
    assert!(set_aside > 75, "in {set_aside} of 150 transactions");
    let mut txn = begin(&scratch);
    txn.gather_free().unwrap();
    let all = density(txn.loaded().unwrap());
    txn.take_neighbours(COUNT / 80).unwrap();
    let first = density(txn.loaded().unwrap());
    assert!(first >= 60 && first > all + 15, "{first} % of their parts are free, {all} % of all");
    let in_use = txn.pages_in_use().unwrap();
    let longest = txn.longest(in_use, KEYS_MANY).unwrap();
    let pages = txn.pages().unwrap();
    assert!(pages <= longest + longest / 4, "{pages} pages, {in_use} in use, {longest} allowed");
}

/// Write a word of the oldest entry of the list of free pages, as damage may do: its count, or one
/// of its pages.
fn damage_free_list(scratch: &Scratch, word: usize, number: u64) {
    let environment = &scratch.engine().environment;
    let read = LmdbRead::begin(Arc::clone(environment)).unwrap();
    let mut cursor = LmdbCursor::open(read.txn, 0, environment).unwrap();
    cursor.start(Start::Edge, Direction::Forward).unwrap();
    let (_, list) = cursor.step().unwrap().unwrap();
    assert!(list.len() > 4 * size_of::<u64>());
    let place = list.as_ptr() as usize - map_of(environment) + word * size_of::<u64>();
    let file = std::fs::OpenOptions::new().write(true).open(&scratch.path).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &number.to_le_bytes(), place as u64).unwrap();
}

#[test]
fn a_damaged_list_of_free_pages_is_refused_before_a_page_of_it_is_used() {
    let damages = [(0, 1 << 20), (0, u64::MAX), (1, 1 << 40), (2, 1), (2, u64::MAX), (3, 1 << 20)];
    for (number, (word, value)) in damages.into_iter().enumerate() {
        let scratch = Scratch::new(&format!("dense-damaged-{number}"));
        let (mut rows, mut chance) = (BTreeMap::new(), Chance(3));
        for turn in 0..4 {
            let mut txn = begin(&scratch);
            for _ in 0..2_000 {
                put(&mut txn, &mut rows, &mut chance, turn);
            }
            Box::new(txn).commit().unwrap();
        }
        damage_free_list(&scratch, word, value);
        let refused = begin(&scratch).take_neighbours(1_000);
        assert!(matches!(refused, Err(EngineError::Damaged { .. })), "{word} {value}: {refused:?}");
    }
}

#[test]
fn a_transaction_that_found_no_room_is_followed_by_those_that_use_what_is_free() {
    let scratch = Scratch::new("dense-full");
    let (mut rows, mut chance) = (BTreeMap::new(), Chance(7));
    for turn in 0..6 {
        let mut txn = begin(&scratch);
        for _ in 0..if turn == 0 { COUNT } else { COUNT / 80 } {
            put(&mut txn, &mut rows, &mut chance, turn);
        }
        Box::new(txn).commit().unwrap();
    }
    let txn = begin(&scratch);
    let in_use = txn.pages_in_use().unwrap();
    let may_grow_to = |keys| txn.longest(in_use, keys).unwrap() as u64;
    assert!(may_grow_to(KEYS_MANY) > in_use && may_grow_to(KEYS_MANY - 1) == 0);
    assert!(matches!(scratch.engine().environment.check(libc::EDQUOT), Err(EngineError::DiskFull(_))));
    assert_eq!(may_grow_to(KEYS_MANY), 0);
}

#[test]
fn values_with_pages_of_their_own_take_what_is_set_aside() {
    let scratch = Scratch::new("dense-large");
    let mut chance = Chance(11);
    let value = vec![1; 40_000];
    let mut pages = 0;
    for turn in 0..60 {
        let mut txn = begin(&scratch);
        txn.take_neighbours(60).unwrap();
        for _ in 0..60 {
            let key = chance.below(200).to_be_bytes();
            txn.put(Tree::Rows, &key, &[&value[..20_000 + chance.below(20_000) as usize]]).unwrap();
        }
        Box::new(txn).commit().unwrap();
        if turn == 20 {
            pages = scratch.engine().usage().unwrap().pages;
        }
    }
    let now = scratch.engine().usage().unwrap().pages;
    assert!(now <= pages + pages / 4, "{now} pages after {pages}");
    scratch.prove();
}

#[test]
fn a_very_long_list_of_free_pages_is_not_loaded() {
    let scratch = Scratch::new("dense-long");
    let (mut rows, mut chance) = (BTreeMap::new(), Chance(13));
    let value = vec![1; 1 << 20];
    // A few more than that, which the trees of the turns take.
    let count = FREE_MAX * 4096 / value.len() as u64 + 8;
    for is_deleted in [false, true] {
        let mut txn = begin(&scratch);
        for number in 0..count {
            let key = (COUNT + number).to_be_bytes();
            if is_deleted {
                assert!(txn.delete(Tree::Rows, &key).unwrap());
            } else {
                txn.put(Tree::Rows, &key, &[&value]).unwrap();
            }
        }
        Box::new(txn).commit().unwrap();
    }
    for turn in 0..4 {
        let mut txn = begin(&scratch);
        let free = txn.pages().unwrap() as u64 - txn.pages_in_use().unwrap();
        assert!(free > FREE_MAX, "{free} pages are free");
        txn.take_neighbours(KEYS_MANY).unwrap();
        assert!(txn.set_aside.pages.is_empty() && txn.loaded().unwrap().is_empty());
        for _ in 0..KEYS_MANY {
            put(&mut txn, &mut rows, &mut chance, turn);
        }
        Box::new(txn).commit().unwrap();
    }
    scratch.prove();
}
