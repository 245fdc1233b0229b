//! Tests of appends, and of splits where keys are inserted.

use std::cell::Cell;
use std::path::PathBuf;

use crate::engine::lmdb::lock_path_of;
use crate::engine::lmdb::{LmdbEngine, LmdbOptions};
use crate::engine::{Direction, Engine, Start, Tree, TreeFile, WriteTxn};

thread_local! {
    /// Whether LMDB does all appends itself.
    pub(super) static IS_OFF: Cell<bool> = const { Cell::new(false) };
    /// How many changed pages a transaction keeps in memory.
    pub(super) static CHANGED_PAGES_MAX: Cell<u32> = const { Cell::new(32) };
    /// How many entries `append_here` has appended.
    pub(super) static ADDED: Cell<u64> = const { Cell::new(0) };
}

/// Few, so that tests come to it.
pub(super) fn changed_pages_max(_page_size: usize) -> u32 {
    CHANGED_PAGES_MAX.get()
}

fn append(txn: &mut dyn WriteTxn, tree: Tree, number: u64) {
    // Odd and even sizes, an empty value, and one that takes pages of its own.
    let size = match number % 97 {
        0 => 0,
        1 => 1_500,
        2 => 9_000,
        other => other,
    } as usize;
    let key = [&number.to_be_bytes()[..], &vec![7; (number % 13) as usize]].concat();
    let value = vec![number as u8; size];
    let (first, second) = value.split_at(size / 3);
    assert!(txn.append(tree, &key, &[first, second]).unwrap());
}

/// The file after appends as checkpoints and bulk loads make them, with other changes between.
fn written(name: &str) -> Vec<u8> {
    let path: PathBuf = std::env::temp_dir().join(format!("pellucid-append-{name}-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let options = LmdbOptions::default();
    let engine = LmdbEngine::create(&path, options, &mut |_, _| vec![(vec![1], vec![2])]).unwrap();
    let mut next = 0;
    let mut some = |txn: &mut dyn WriteTxn, tree: Tree, count: u64| {
        for _ in 0..count {
            next += 1;
            append(txn, tree, next);
        }
    };
    let mut entries = 1;
    for round in 0..4 {
        entries += 5_000 + 70 + 70 + 500 + 300 + 300 + 200 + u64::from(round == 0);
        let mut txn = engine.begin_write().unwrap();
        some(&mut *txn, Tree::Rows, 5_000);
        txn.put(Tree::Meta, b"between", &[&[round; 40]]).unwrap();
        some(&mut *txn, Tree::Rows, 70);
        some(&mut *txn, Tree::Blobs, 200);
        some(&mut *txn, Tree::Rows, 70);
        txn.savepoint().unwrap();
        some(&mut *txn, Tree::Rows, 500);
        txn.rollback().unwrap();
        txn.savepoint().unwrap();
        some(&mut *txn, Tree::Rows, 500);
        txn.release().unwrap();
        some(&mut *txn, Tree::Rows, 300);
        for number in [9_u64, 1_000, 4_800, 5_100] {
            let key = [&number.to_be_bytes()[..], &vec![7; (number % 13) as usize]].concat();
            entries -= u64::from(txn.delete(Tree::Rows, &key).unwrap());
        }
        some(&mut *txn, Tree::Rows, 300);
        txn.commit().unwrap();
    }
    assert_eq!(engine.usage().unwrap().entries.iter().sum::<u64>(), entries);
    drop(engine);
    let bytes = std::fs::read(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    let _ = std::fs::remove_file(lock_path_of(&path));
    bytes
}

#[test]
fn what_is_appended_here_is_as_lmdb_appends_it() {
    ADDED.set(0);
    // LMDB looks for its memory at each entry that it appends.
    CHANGED_PAGES_MAX.set(u32::MAX);
    let here = written("here");
    assert!(ADDED.get() > 10_000, "nearly all of them are written here: {}", ADDED.get());
    IS_OFF.set(true);
    let by_lmdb = written("lmdb");
    IS_OFF.set(false);
    CHANGED_PAGES_MAX.set(32);
    assert!(here == by_lmdb, "byte for byte");
}

#[test]
fn changed_pages_are_written_ahead_of_the_commit_and_are_nothing_without_it() {
    let path = std::env::temp_dir().join(format!("pellucid-ahead-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let engine = LmdbEngine::create(&path, LmdbOptions::default(), &mut |_, _| Vec::new()).unwrap();
    // How much longer the file is before the end of a transaction that changes some 200 pages.
    let grown_by = |commits: bool, most: u32, has_savepoints: bool| {
        let size = || std::fs::metadata(&path).unwrap().len();
        let before = size();
        CHANGED_PAGES_MAX.set(most);
        let mut txn = engine.begin_write().unwrap();
        for number in 0..800_u64 {
            if has_savepoints {
                txn.savepoint().unwrap();
            }
            txn.put(Tree::Rows, &number.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_be_bytes(), &[&[7; 900]])
                .unwrap();
            if has_savepoints {
                txn.release().unwrap();
            }
        }
        let grown = size().saturating_sub(before);
        assert!(txn.get(Tree::Rows, &0_u64.to_be_bytes()).unwrap().is_some(), "they are read all the same");
        if commits {
            txn.commit().unwrap();
        }
        CHANGED_PAGES_MAX.set(32);
        grown
    };
    let is_empty = || engine.begin_read().unwrap().is_empty(Tree::Rows).unwrap();
    assert_eq!(grown_by(false, u32::MAX, false), 0);
    for has_savepoints in [false, true] {
        assert!(grown_by(false, 32, has_savepoints) > 100 * 4096 && is_empty());
    }
    assert!(grown_by(true, 32, true) > 100 * 4096 && !is_empty());
    engine.prove(&mut std::iter::empty()).unwrap();
    drop(engine);
    std::fs::remove_file(&path).unwrap();
    let _ = std::fs::remove_file(lock_path_of(&path));
}

#[test]
fn ascending_keys_in_front_of_others_fill_their_pages() {
    let path = std::env::temp_dir().join(format!("pellucid-between-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let options = LmdbOptions::default();
    let engine = LmdbEngine::create(&path, options, &mut |_, _| Vec::new()).unwrap();
    let mut expected = std::collections::BTreeMap::new();
    let key = |table: u8, number: u32| [&[table][..], &number.to_be_bytes()].concat();
    let mut txn = engine.begin_write().unwrap();
    // Some values take pages of their own.
    for number in 0..200_u32 {
        for table in [1, 3, 5] {
            let value = vec![table; if number % 40 == 7 { 5_000 } else { 60 + number as usize % 50 }];
            txn.put(Tree::Rows, &key(table, number), &[&value]).unwrap();
            expected.insert(key(table, number), value);
        }
    }
    txn.commit().unwrap();
    for (table, count) in [(2, 20_000), (4, 20_000), (0, 3_000)] {
        let pages = engine.usage().unwrap().pages;
        let mut txn = engine.begin_write().unwrap();
        for number in 0..count {
            let value = vec![7; 100 + number as usize % 21];
            txn.put(Tree::Rows, &key(table, number), &[&value]).unwrap();
            expected.insert(key(table, number), value);
        }
        txn.commit().unwrap();
        let size = u64::from(count) * (110 + 5 + 8 + 2) / 4096;
        let more = engine.usage().unwrap().pages - pages;
        assert!(more < size * 110 / 100 + 20, "{more} pages for {size}");
    }
    let read = engine.begin_read().unwrap();
    let mut cursor = read.cursor(Tree::Rows).unwrap();
    cursor.start(Start::Edge, Direction::Forward).unwrap();
    for (key, value) in &expected {
        assert_eq!(cursor.step().unwrap(), Some((&key[..], &value[..])));
    }
    assert_eq!(cursor.step().unwrap(), None);
    let [_, rows, _] = engine.usage().unwrap().entries;
    assert_eq!(rows, expected.len() as u64);
    std::fs::remove_file(&path).unwrap();
    let _ = std::fs::remove_file(lock_path_of(&path));
}

#[test]
fn only_a_greater_key_that_is_not_too_long_is_appended() {
    let path = std::env::temp_dir().join(format!("pellucid-append-order-{}", std::process::id()));
    let _ = std::fs::remove_file(&path);
    let options = LmdbOptions { key_size_max: 40, ..LmdbOptions::default() };
    let engine = LmdbEngine::create(&path, options, &mut |_, _| Vec::new()).unwrap();
    let mut txn = engine.begin_write().unwrap();
    let key = |number: u64| [&b"all of them begin so "[..], &number.to_be_bytes()].concat();
    let shorter = key(800)[..key(800).len() - 1].to_vec();
    let refused = [key(800), key(3), shorter, b"all".to_vec(), vec![0]];
    for (turn, wrong) in refused.iter().enumerate() {
        let start = 1_000 * turn as u64 + 100;
        ADDED.set(0);
        for number in start..start + 701 {
            assert!(txn.append(Tree::Rows, &key(number), &[b"first"]).unwrap());
        }
        assert!(ADDED.get() > 500, "the last one as well");
        let wrong = if turn == 0 { &key(start + 700) } else { wrong };
        assert!(!txn.append(Tree::Rows, wrong, &[b"second"]).unwrap(), "{wrong:?}");
    }
    for unfit in [vec![], vec![255; 41]] {
        assert!(txn.append(Tree::Rows, &unfit, &[b"third"]).is_err());
    }
    assert!(txn.append(Tree::Rows, &[255; 40], &[b"last"]).unwrap());
    assert_eq!(txn.get(Tree::Rows, &key(800)).unwrap(), Some(&b"first"[..]));
    txn.commit().unwrap();
    let [_, rows, _] = engine.usage().unwrap().entries;
    assert_eq!(rows, 701 * refused.len() as u64 + 1);
    std::fs::remove_file(&path).unwrap();
    let _ = std::fs::remove_file(lock_path_of(&path));
}

#[test]
fn a_parked_reader_begins_with_its_version_until_there_is_a_newer_one() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("file");
    let engine =
        LmdbEngine::create(&path, LmdbOptions::default(), &mut |_, _| vec![(vec![1], vec![2])]).unwrap();
    let put = |value: u8| {
        let mut txn = engine.begin_write().unwrap();
        txn.put(Tree::Rows, b"key", &[&[value]]).unwrap();
        txn.commit().unwrap();
    };
    put(1);
    let reader = engine.begin_read().unwrap();
    let (version, lag) = (reader.version(), engine.oldest_reader().unwrap().lag);
    assert_eq!(lag, 0);
    let mut parked = reader.park().unwrap();
    for _ in 0..3 {
        let reader = parked.begin().unwrap();
        assert_eq!(reader.version(), version);
        assert_eq!(reader.get(Tree::Rows, b"key").unwrap(), Some(&[1][..]));
        parked = reader.park().unwrap();
    }
    put(2);
    put(3);
    assert_eq!(engine.oldest_reader().unwrap().lag, 0, "a parked reader keeps no pages");
    assert!(parked.begin().is_none());
    let reader = engine.begin_read().unwrap();
    assert_eq!(reader.get(Tree::Rows, b"key").unwrap(), Some(&[3][..]));
    // One that has begun again keeps its version, and can be dropped while it is parked.
    let reader = reader.park().unwrap().begin().unwrap();
    put(4);
    assert_eq!(engine.oldest_reader().unwrap().lag, 1);
    assert_eq!(reader.get(Tree::Rows, b"key").unwrap(), Some(&[3][..]));
    drop(reader.park());
    assert_eq!(engine.oldest_reader().unwrap().lag, 0);
}
