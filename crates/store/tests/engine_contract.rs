//! The engine contract: one suite over the memory engine, LMDB, and logs over both.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::ops::Bound::{Excluded, Included, Unbounded};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use pellucid_store::engine::lmdb::{LmdbEngine, LmdbOptions, PageChoice};
use pellucid_store::engine::memory::MemoryEngine;
use pellucid_store::engine::{
    Batch, Cursor, Direction, Engine, EngineError, Next, OldestReader, Start, Tree, Usage, WatchPosition,
    What,
};
use pellucid_store::wal::LoggedEngine;
use support::{Chance, Scratch};

/// An engine and its scratch folder.
struct Fixture {
    engine: Box<dyn Engine>,
    _scratch: Option<Scratch>,
}

fn memory(key_size_max: usize) -> Fixture {
    Fixture { engine: Box::new(MemoryEngine::with_key_size_max(key_size_max)), _scratch: None }
}

fn lmdb(key_size_max: usize) -> Fixture {
    lmdb_with(LmdbOptions { key_size_max, ..LmdbOptions::default() })
}

/// LMDB, which chooses all pages itself.
fn lmdb_alone(key_size_max: usize) -> Fixture {
    lmdb_with(LmdbOptions { key_size_max, page_choice: PageChoice::Lmdb, ..LmdbOptions::default() })
}

fn lmdb_with(options: LmdbOptions) -> Fixture {
    let scratch = Scratch::new();
    let options = LmdbOptions { creates_trees: true, ..options };
    let engine = LmdbEngine::open(&scratch.path("contract.pel"), options).unwrap();
    Fixture { engine: Box::new(engine), _scratch: Some(scratch) }
}

/// A log over LMDB, with much room.
fn logged(key_size_max: usize) -> Fixture {
    let fixture = lmdb(key_size_max);
    Fixture { engine: Box::new(LoggedEngine::in_memory(fixture.engine, 1 << 20).unwrap()), ..fixture }
}

/// A log over the memory engine, so small that its segments are sealed again and again, and many
/// commits are bulk commits.
fn logged_tightly(key_size_max: usize) -> Fixture {
    let fixture = memory(key_size_max);
    Fixture { engine: Box::new(LoggedEngine::in_memory(fixture.engine, 2048).unwrap()), ..fixture }
}

macro_rules! contract {
    ($($test:ident)*) => {
        mod on_memory { $( #[test] fn $test() { super::$test(super::memory); } )* }
        mod on_lmdb { $( #[test] fn $test() { super::$test(super::lmdb); } )* }
        mod on_lmdb_alone { $( #[test] fn $test() { super::$test(super::lmdb_alone); } )* }
        mod on_a_log { $( #[test] fn $test() { super::$test(super::logged); } )* }
        mod on_a_tight_log { $( #[test] fn $test() { super::$test(super::logged_tightly); } )* }
    };
}

/// Appended entries fill pages completely, with any other calls in between. A key that is not above
/// the last one is never appended.
#[test]
fn lmdb_fills_pages_by_appending() {
    const COUNT: u32 = 20_000;
    let fixture = lmdb(511);
    let mut txn = fixture.engine.begin_write().unwrap();
    let value = |number: u32| vec![number as u8; 100 + number as usize % 97];
    let mut size = 0;
    for number in 0..COUNT {
        let key = (2 * number).to_be_bytes();
        assert!(txn.append(Tree::Rows, &key, &[&value(number)]).unwrap());
        // A head and an offset, and a byte of padding for odd sizes.
        size += (8 + 4 + value(number).len()).next_multiple_of(2) + 2;
        match number % 1000 {
            10 => assert!(!txn.append(Tree::Rows, &key, &[b"again"]).unwrap()),
            20 => assert!(!txn.append(Tree::Rows, &(2 * number - 1).to_be_bytes(), &[b"between"]).unwrap()),
            30 => assert!(txn.find(Tree::Rows, &7_u32.to_be_bytes()).unwrap().is_none()),
            40 => {
                txn.find(Tree::Rows, &key).unwrap().unwrap();
                txn.replace_found(Tree::Rows, &key, &[&value(number)]).unwrap();
            }
            50 => {
                txn.savepoint().unwrap();
                txn.release().unwrap();
            }
            _ => {}
        }
    }
    txn.commit().unwrap();
    let usage = fixture.engine.usage().unwrap();
    assert_eq!(usage.entries[Tree::Rows.index()], u64::from(COUNT));
    let snapshot = fixture.engine.begin_read().unwrap();
    for number in 0..COUNT {
        let stored = snapshot.get(Tree::Rows, &(2 * number).to_be_bytes()).unwrap();
        assert_eq!(stored, Some(&value(number)[..]));
    }
    // Half of an entry is lost in each page, and there are a few branch pages.
    let full = size as u64 / 4080;
    let taken = usage.pages - usage.free_pages;
    assert!(taken < full * 105 / 100, "{taken} pages for what fills {full}");
}

contract! {
    keeps_what_is_committed_and_forgets_what_is_dropped
    gives_keys_in_memcmp_order_both_ways
    starts_a_walk_at_any_key
    a_search_finds_what_a_walk_meets
    a_page_at_a_time_equals_one_at_a_time
    separators_part_a_range_evenly
    a_snapshot_stays_as_it_was_during_writes
    savepoints_nest_and_commit_includes_open_ones
    append_takes_only_keys_above_all_others
    replaces_and_deletes_what_was_found
    refuses_keys_beyond_the_limit
    values_of_all_sizes_come_back
    a_second_writer_waits_for_the_first
    a_snapshot_is_read_by_several_threads_at_once
    a_transaction_belongs_to_its_thread
    random_operations_equal_those_on_a_model
    clearing_a_tree_leaves_the_others
}

mod followed_on_memory {
    #[test]
    fn commits_are_told_one_after_the_other() {
        super::commits_are_told_one_after_the_other(super::memory);
    }
}

mod followed_on_a_log {
    #[test]
    fn commits_are_told_one_after_the_other() {
        super::commits_are_told_one_after_the_other(super::logged);
    }
}

/// The changes of one commit in the tree of rows: its version, and keys with values; `None` for
/// deletes.
type Told = (u64, Vec<(Vec<u8>, Option<Vec<u8>>)>);

/// The changes in the tree of rows of the commits after a place, each with its version.
fn told(engine: &dyn Engine, place: &mut WatchPosition) -> Vec<Told> {
    let mut told = Vec::new();
    loop {
        match engine.commit_feed().unwrap().next_commits(place).unwrap() {
            Next::Nothing => return told,
            Next::Gone => panic!("all of it is kept"),
            Next::Commits(commits) => {
                for commit in &commits {
                    let rows = commit.written().filter(|written| written.tree == Tree::Rows);
                    let rows = rows.map(|written| match written.what {
                        What::Value(value) => (written.key.to_vec(), Some(value.to_vec())),
                        What::Deleted => (written.key.to_vec(), None),
                        What::ClearedUpTo(last) => (written.key.to_vec(), Some(last.to_vec())),
                    });
                    told.push((commit.version, rows.collect()));
                }
                assert_eq!(place.version, commits.last().unwrap().version);
            }
        }
    }
}

/// Keys that share a lot, in a tree as deep as one of many millions, and again after changes.
fn a_search_finds_what_a_walk_meets(fixture: fn(usize) -> Fixture) {
    const COUNT: usize = 2_000;
    let Fixture { engine, _scratch } = fixture(511);
    let mut chance = Chance::new("a_search_finds_what_a_walk_meets");
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for _ in 0..3 {
        let mut txn = engine.begin_write().unwrap();
        for _ in 0..COUNT {
            let shared = [0, 0, 5, 7, 8, 300, 400][chance.below(7)];
            let own: Vec<u8> = (0..=chance.below(12)).map(|_| [0, 1, 7, 0xFF][chance.below(4)]).collect();
            let key = [&vec![7; shared][..], &own].concat();
            if chance.one_in(4) {
                txn.delete(Tree::Rows, &key).unwrap();
                model.remove(&key);
            } else {
                let size = if chance.one_in(50) { 5000 } else { 20 };
                let value = chance.bytes(size);
                txn.put(Tree::Rows, &key, &[&value]).unwrap();
                model.insert(key, value);
            }
        }
        txn.commit().unwrap();
        let txn = engine.begin_read().unwrap();
        let asked: Vec<Vec<u8>> = model
            .keys()
            .flat_map(|key| {
                let longer = [&key[..], &[0]].concat();
                let other = [&key[..key.len() - 1], &[chance.next() as u8]].concat();
                [key.clone(), longer, other, key[..key.len().div_ceil(2)].to_vec()]
            })
            .chain([vec![0], vec![0xFF; 500]])
            .collect();
        for key in asked {
            assert_eq!(txn.get(Tree::Rows, &key).unwrap(), model.get(&key).map(|value| &value[..]));
            let first = |direction| txn.first_from(Tree::Rows, Start::At(&key), direction).unwrap();
            let expected = model.range::<[u8], _>((Included(&key[..]), Unbounded)).next();
            assert_eq!(first(Direction::Forward), expected.map(|(key, value)| (&key[..], &value[..])));
            let expected = model.range::<[u8], _>((Unbounded, Excluded(&key[..]))).next_back();
            assert_eq!(first(Direction::Reverse), expected.map(|(key, value)| (&key[..], &value[..])));
            assert_eq!(txn.get(Tree::Blobs, &key).unwrap(), None);
        }
    }
}

fn commits_are_told_one_after_the_other(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let begin = engine.version();
    let mut place = WatchPosition::after(begin);
    assert!(matches!(engine.commit_feed().unwrap().next_commits(&mut place).unwrap(), Next::Nothing));
    commit(&*engine, &[(b"a", b"1"), (b"b", b"2")]);
    let mut txn = engine.begin_write().unwrap();
    txn.delete(Tree::Rows, b"a").unwrap();
    txn.savepoint().unwrap();
    txn.put(Tree::Rows, b"never", &[b"x"]).unwrap();
    txn.rollback().unwrap();
    txn.savepoint().unwrap();
    txn.put(Tree::Rows, b"c", &[b"3", b"4"]).unwrap();
    txn.release().unwrap();
    txn.commit().unwrap();
    let mut dropped = engine.begin_write().unwrap();
    dropped.put(Tree::Rows, b"dropped", &[b"x"]).unwrap();
    drop(dropped);
    let expected = vec![
        (begin + 1, vec![(b"a".to_vec(), Some(b"1".to_vec())), (b"b".to_vec(), Some(b"2".to_vec()))]),
        (begin + 2, vec![(b"a".to_vec(), None), (b"c".to_vec(), Some(b"34".to_vec()))]),
    ];
    assert_eq!(told(&*engine, &mut place), expected);
    assert_eq!(told(&*engine, &mut WatchPosition::after(begin + 1)), expected[1..]);
    // A commit too large for the log is reported too, in its place.
    let mut txn = engine.begin_write().unwrap();
    txn.clear(Tree::Rows).unwrap();
    txn.put(Tree::Rows, b"d", &[b"5"]).unwrap();
    txn.commit().unwrap();
    commit(&*engine, &[(b"e", b"6")]);
    let told = told(&*engine, &mut place);
    assert_eq!(
        told[0],
        (begin + 3, vec![(b"b".to_vec(), Some(b"c".to_vec())), (b"d".to_vec(), Some(b"5".to_vec())),])
    );
    assert_eq!(told[1], (begin + 4, vec![(b"e".to_vec(), Some(b"6".to_vec()))]));
    assert_eq!(engine.commit_feed().unwrap().known_since().unwrap(), begin);
}

fn commit(engine: &dyn Engine, entries: &[(&[u8], &[u8])]) {
    let mut txn = engine.begin_write().unwrap();
    for (key, value) in entries {
        txn.put(Tree::Rows, key, &[value]).unwrap();
    }
    txn.commit().unwrap();
}

fn get(engine: &dyn Engine, key: &[u8]) -> Option<Vec<u8>> {
    engine.begin_read().unwrap().get(Tree::Rows, key).unwrap().map(<[u8]>::to_vec)
}

fn keys_of(cursor: &mut dyn Cursor<'_>) -> Vec<Vec<u8>> {
    let mut keys = Vec::new();
    while let Some((key, _)) = cursor.step().unwrap() {
        keys.push(key.to_vec());
    }
    assert!(cursor.step().unwrap().is_none(), "the end of a walk is final");
    keys
}

fn keeps_what_is_committed_and_forgets_what_is_dropped(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let before = engine.version();
    commit(&*engine, &[(b"a", b"1")]);
    assert!(engine.version() > before);
    let mut dropped = engine.begin_write().unwrap();
    dropped.put(Tree::Rows, b"a", &[b"2"]).unwrap();
    dropped.put(Tree::Rows, b"b", &[b"2"]).unwrap();
    assert_eq!(dropped.get(Tree::Rows, b"b").unwrap(), Some(&b"2"[..]), "it sees its own changes");
    drop(dropped);
    assert_eq!(get(&*engine, b"a").as_deref(), Some(&b"1"[..]));
    assert_eq!(get(&*engine, b"b"), None);
}

fn gives_keys_in_memcmp_order_both_ways(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let keys: [&[u8]; 6] = [b"\x00", b"\x00\x00", b"a", b"a\x00", b"ab", b"\xff\xff"];
    let shuffled = [3, 0, 5, 1, 4, 2].map(|index| (keys[index], &b""[..]));
    commit(&*engine, &shuffled);
    let read = engine.begin_read().unwrap();
    let mut cursor = read.cursor(Tree::Rows).unwrap();
    cursor.start(Start::Edge, Direction::Forward).unwrap();
    assert_eq!(keys_of(&mut *cursor), keys);
    cursor.start(Start::Edge, Direction::Reverse).unwrap();
    let mut descending = keys;
    descending.reverse();
    assert_eq!(keys_of(&mut *cursor), descending);
}

fn starts_a_walk_at_any_key(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let read_empty = engine.begin_read().unwrap();
    let mut cursor = read_empty.cursor(Tree::Rows).unwrap();
    for direction in [Direction::Forward, Direction::Reverse] {
        cursor.start(Start::At(b"x"), direction).unwrap();
        assert!(cursor.step().unwrap().is_none(), "an empty tree has no entries");
    }
    drop(cursor);

    commit(&*engine, &[(b"b", b""), (b"d", b""), (b"f", b"")]);
    let read = engine.begin_read().unwrap();
    let mut cursor = read.cursor(Tree::Rows).unwrap();
    let mut walk = |start: &[u8], direction| {
        cursor.start(Start::At(start), direction).unwrap();
        keys_of(&mut *cursor).concat()
    };
    assert_eq!(walk(b"a", Direction::Forward), b"bdf");
    assert_eq!(walk(b"d", Direction::Forward), b"df", "the key itself is included");
    assert_eq!(walk(b"e", Direction::Forward), b"f");
    assert_eq!(walk(b"g", Direction::Forward), b"");
    assert_eq!(walk(b"a", Direction::Reverse), b"");
    assert_eq!(walk(b"d", Direction::Reverse), b"b", "the key itself is not included");
    assert_eq!(walk(b"e", Direction::Reverse), b"db");
    assert_eq!(walk(b"g", Direction::Reverse), b"fdb");
}

/// Entries of mixed sizes over many pages, some of them on overflow pages.
fn mixed_entries(count: u32) -> Vec<(Vec<u8>, Vec<u8>)> {
    let value = |number: u32| match number % 50 {
        7 => vec![number as u8; 5000],
        13 => Vec::new(),
        rest => vec![number as u8; rest as usize * 3],
    };
    (0..count).map(|number| (number.to_be_bytes().to_vec(), value(number))).collect()
}

fn a_page_at_a_time_equals_one_at_a_time(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let entries = mixed_entries(3000);
    let mut txn = engine.begin_write().unwrap();
    for (key, value) in &entries {
        txn.put(Tree::Rows, key, &[value]).unwrap();
    }
    txn.commit().unwrap();
    let read = engine.begin_read().unwrap();
    let mut cursor = read.cursor(Tree::Rows).unwrap();
    let middle = 1234_u32.to_be_bytes();
    for (start, direction) in [
        (Start::Edge, Direction::Forward),
        (Start::Edge, Direction::Reverse),
        (Start::At(&middle), Direction::Forward),
        (Start::At(&middle), Direction::Reverse),
    ] {
        let mut single = Vec::new();
        cursor.start(start, direction).unwrap();
        while let Some((key, value)) = cursor.step().unwrap() {
            single.push((key.to_vec(), value.to_vec()));
        }
        assert!(!single.is_empty());
        let mut paged = Vec::new();
        let mut batch = Batch::default();
        cursor.start(start, direction).unwrap();
        for turn in 0.. {
            // Mixed with single steps: each continues after the other.
            if turn % 3 == 2 {
                let Some((key, value)) = cursor.step().unwrap() else { break };
                paged.push((key.to_vec(), value.to_vec()));
            }
            cursor.fill(&mut batch).unwrap();
            if batch.entries.is_empty() {
                break;
            }
            paged.extend(batch.entries.iter().map(|(key, value)| (key.to_vec(), value.to_vec())));
        }
        assert!(paged == single, "{start:?} {direction:?}: {} entries of {}", paged.len(), single.len());
    }
}

fn separators_part_a_range_evenly(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let mut txn = engine.begin_write().unwrap();
    for (key, value) in mixed_entries(20_000) {
        txn.put(Tree::Rows, &key, &[&value]).unwrap();
    }
    txn.commit().unwrap();
    // A logged engine has written some or all of its tree after this.
    if let Some(care) = engine.file_care() {
        assert!(care.checkpoint(Duration::from_secs(10), Duration::from_secs(10)).unwrap());
    }
    let read = engine.begin_read().unwrap();
    let number_of = |key: &[u8]| u32::from_be_bytes(key.try_into().unwrap());
    for (start, end) in [(0, 20_000), (0, 7_000), (6_000, 15_000), (10_000, 10_010), (500, 500)] {
        let bounds = (u32::to_be_bytes(start), u32::to_be_bytes(end));
        for count in [1, 2, 7, 32] {
            let found = read.separators(Tree::Rows, &bounds.0, Some(&bounds.1), count).unwrap();
            assert!(found.len() < count && found.is_sorted(), "{found:?} of {count}");
            assert!(found.iter().all(|key| key[..] > bounds.0[..] && key[..] < bounds.1[..]), "{found:?}");
            // The memory engine has no separators; in a file, the parts are about equal.
            if !found.is_empty() && end - start >= 5_000 {
                let mut edges: Vec<u32> = found.iter().map(|key| number_of(key)).collect();
                edges.insert(0, start);
                edges.push(end);
                let sizes: Vec<u32> = edges.windows(2).map(|pair| pair[1] - pair[0]).collect();
                let even = (end - start) / sizes.len() as u32;
                assert!(sizes.len() >= count.div_ceil(2), "{sizes:?} of {count}");
                assert!(sizes.iter().all(|size| *size < 3 * even), "{sizes:?} of {count}");
            }
        }
    }
}

/// Where the address of the map is unknown (`MapBounds::find`), there are no separators.
#[test]
#[cfg(all(target_os = "linux", target_endian = "little"))]
fn a_file_knows_where_to_cut() {
    let Fixture { engine, _scratch } = lmdb(64);
    let mut txn = engine.begin_write().unwrap();
    for (key, value) in mixed_entries(20_000) {
        txn.put(Tree::Rows, &key, &[&value]).unwrap();
    }
    txn.commit().unwrap();
    let found = engine.begin_read().unwrap().separators(Tree::Rows, &[0], None, 16).unwrap();
    assert_eq!(found.len(), 15);
}

fn a_snapshot_stays_as_it_was_during_writes(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let entries = mixed_entries(500);
    let mut txn = engine.begin_write().unwrap();
    for (key, value) in &entries {
        txn.put(Tree::Rows, key, &[value]).unwrap();
    }
    txn.commit().unwrap();
    let snapshot = engine.begin_read().unwrap();
    let borrowed = snapshot.get(Tree::Rows, &entries[57].0).unwrap().unwrap();
    // Enough commits that pages freed by the first ones would be reused by the later ones.
    for round in 0_u8..20 {
        let mut txn = engine.begin_write().unwrap();
        for (key, _) in &entries {
            if key[3] % 3 == 0 {
                txn.delete(Tree::Rows, key).unwrap();
            } else {
                txn.put(Tree::Rows, key, &[&[round; 300]]).unwrap();
            }
        }
        txn.commit().unwrap();
    }
    assert_eq!(borrowed, &entries[57].1[..], "bytes borrowed before the writes are unchanged");
    for (key, value) in &entries {
        assert_eq!(snapshot.get(Tree::Rows, key).unwrap(), Some(&value[..]));
    }
    assert_eq!(
        get(&*engine, &entries[1].0).as_deref(),
        Some(&[19; 300][..]),
        "a new one sees the last commit"
    );
}

fn savepoints_nest_and_commit_includes_open_ones(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let mut txn = engine.begin_write().unwrap();
    assert!(matches!(txn.rollback(), Err(EngineError::Misuse(_))));
    assert!(matches!(txn.release(), Err(EngineError::Misuse(_))));
    txn.put(Tree::Rows, b"a", &[b"0"]).unwrap();
    txn.savepoint().unwrap();
    txn.put(Tree::Rows, b"a", &[b"1"]).unwrap();
    txn.savepoint().unwrap();
    txn.put(Tree::Rows, b"a", &[b"2"]).unwrap();
    txn.delete(Tree::Rows, b"a").unwrap();
    txn.rollback().unwrap();
    assert_eq!(txn.get(Tree::Rows, b"a").unwrap(), Some(&b"1"[..]));
    txn.savepoint().unwrap();
    txn.put(Tree::Rows, b"b", &[b"3"]).unwrap();
    txn.release().unwrap();
    txn.rollback().unwrap();
    assert_eq!(txn.get(Tree::Rows, b"a").unwrap(), Some(&b"0"[..]));
    assert_eq!(txn.get(Tree::Rows, b"b").unwrap(), None, "released into a part that was taken back");
    txn.savepoint().unwrap();
    txn.put(Tree::Rows, b"c", &[b"4"]).unwrap();
    txn.commit().unwrap();
    assert_eq!(get(&*engine, b"c").as_deref(), Some(&b"4"[..]));
}

fn append_takes_only_keys_above_all_others(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let mut txn = engine.begin_write().unwrap();
    assert!(txn.append(Tree::Rows, b"b", &[b"1", b"", b"2"]).unwrap());
    assert!(!txn.append(Tree::Rows, b"b", &[b"x"]).unwrap(), "an equal key is not above");
    assert!(!txn.append(Tree::Rows, b"a", &[b"x"]).unwrap());
    for number in 0_u32..2000 {
        let key = [&b"c"[..], &number.to_be_bytes()].concat();
        assert!(txn.append(Tree::Rows, &key, &[&[7; 170]]).unwrap());
    }
    txn.commit().unwrap();
    assert_eq!(get(&*engine, b"b").as_deref(), Some(&b"12"[..]), "parts are put together");
    assert_eq!(engine.usage().unwrap().entries[Tree::Rows.index()], 2001);
}

fn replaces_and_deletes_what_was_found(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    commit(&*engine, &[(b"a", b"1234"), (b"b", b"5678")]);
    let mut txn = engine.begin_write().unwrap();
    assert_eq!(txn.find(Tree::Rows, b"a").unwrap(), Some(&b"1234"[..]));
    txn.replace_found(Tree::Rows, b"a", &[b"43", b"21"]).unwrap();
    assert_eq!(txn.find(Tree::Rows, b"a").unwrap(), Some(&b"4321"[..]));
    txn.replace_found(Tree::Rows, b"a", &[&[9; 3000]]).unwrap();
    assert_eq!(txn.get(Tree::Rows, b"a").unwrap(), Some(&[9; 3000][..]));
    assert!(txn.find(Tree::Rows, b"b").unwrap().is_some());
    txn.delete_found(Tree::Rows, b"b").unwrap();
    assert!(txn.find(Tree::Rows, b"b").unwrap().is_none());
    assert!(matches!(txn.replace_found(Tree::Rows, b"b", &[b"x"]), Err(EngineError::Misuse(_))));
    assert!(!txn.delete(Tree::Rows, b"b").unwrap());
    assert!(txn.delete(Tree::Rows, b"a").unwrap());
    txn.commit().unwrap();
    assert_eq!(engine.usage().unwrap().entries[Tree::Rows.index()], 0);
}

fn refuses_keys_beyond_the_limit(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    assert_eq!(engine.key_size_max(), 64);
    let mut txn = engine.begin_write().unwrap();
    txn.put(Tree::Rows, &[1; 64], &[b"fits"]).unwrap();
    let error = txn.put(Tree::Rows, &[1; 65], &[b"does not"]).unwrap_err();
    assert!(matches!(error, EngineError::KeySize { size: 65, size_max: 64 }), "{error}");
    assert!(matches!(txn.put(Tree::Rows, b"", &[b""]), Err(EngineError::KeySize { size: 0, .. })));
    txn.commit().unwrap();
    assert_eq!(get(&*engine, &[1; 64]).as_deref(), Some(&b"fits"[..]), "a refused key does no harm");
}

fn values_of_all_sizes_come_back(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let mut chance = Chance::from_seed(3);
    let sizes = [0, 1, 2, 100, 2000, 2030, 2040, 4079, 4080, 4081, 8176, 100_000, 3_000_000];
    let values: Vec<_> = sizes.iter().map(|size| chance.bytes(*size)).collect();
    let mut txn = engine.begin_write().unwrap();
    for (index, value) in values.iter().enumerate() {
        txn.put(Tree::Blobs, &[index as u8 + 1], &[value]).unwrap();
    }
    txn.commit().unwrap();
    let read = engine.begin_read().unwrap();
    for (index, value) in values.iter().enumerate() {
        assert!(
            read.get(Tree::Blobs, &[index as u8 + 1]).unwrap() == Some(&value[..]),
            "{} bytes",
            value.len()
        );
    }
    let mut cursor = read.cursor(Tree::Blobs).unwrap();
    let mut batch = Batch::default();
    cursor.start(Start::Edge, Direction::Forward).unwrap();
    cursor.fill(&mut batch).unwrap();
    assert!(batch.entries.iter().zip(&values).all(|(entry, value)| entry.1 == &value[..]));
}

fn a_second_writer_waits_for_the_first(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut first = engine.begin_write().unwrap();
        scope.spawn(|| {
            let mut second = engine.begin_write().unwrap();
            sender.send(second.get(Tree::Rows, b"a").unwrap().map(<[u8]>::to_vec)).unwrap();
            second.put(Tree::Rows, b"a", &[b"second"]).unwrap();
            second.commit().unwrap();
        });
        assert!(receiver.recv_timeout(Duration::from_millis(50)).is_err(), "it waits");
        first.put(Tree::Rows, b"a", &[b"first"]).unwrap();
        first.commit().unwrap();
        assert_eq!(
            receiver.recv().unwrap().as_deref(),
            Some(&b"first"[..]),
            "it sees the first one's commit"
        );
    });
    assert_eq!(get(&*engine, b"a").as_deref(), Some(&b"second"[..]));
}

fn a_snapshot_is_read_by_several_threads_at_once(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let entries = mixed_entries(2000);
    let mut txn = engine.begin_write().unwrap();
    for (key, value) in &entries {
        txn.put(Tree::Rows, key, &[value]).unwrap();
    }
    txn.commit().unwrap();
    for _ in 0..20 {
        // A new transaction each time: loading its roots is what threads must not do at once.
        let read = engine.begin_read().unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let (read, entries) = (&read, &entries);
                scope.spawn(move || {
                    for (key, value) in entries.iter().skip(thread).step_by(7) {
                        assert_eq!(read.get(Tree::Rows, key).unwrap(), Some(&value[..]));
                    }
                    let mut cursor = read.cursor(Tree::Rows).unwrap();
                    cursor.start(Start::Edge, Direction::Forward).unwrap();
                    assert_eq!(keys_of(&mut *cursor).len(), entries.len());
                });
            }
        });
    }
}

fn a_transaction_belongs_to_its_thread(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let mut txn = engine.begin_write().unwrap();
    txn.put(Tree::Rows, b"a", &[b"1"]).unwrap();
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        // It ends in another thread than its own; its lock is released when its own thread writes
        // next.
        scope.spawn(move || {
            assert!(!txn.is_owner());
            sender.send(txn.commit()).unwrap();
        });
    });
    assert!(matches!(receiver.recv().unwrap(), Err(EngineError::WrongThread)));
    commit(&*engine, &[(b"b", b"2")]);
    assert_eq!(get(&*engine, b"a"), None, "it was taken back");
    assert_eq!(get(&*engine, b"b").as_deref(), Some(&b"2"[..]));

    std::thread::scope(|scope| {
        // Here the owner ends before it writes again.
        let abandoned = scope.spawn(|| engine.begin_write().unwrap()).join().unwrap();
        drop(abandoned);
    });
    commit(&*engine, &[(b"c", b"3")]);
    assert_eq!(get(&*engine, b"c").as_deref(), Some(&b"3"[..]));
}

fn random_operations_equal_those_on_a_model(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let mut chance = Chance::new("random_operations_equal_those_on_a_model");
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    for _ in 0..60 {
        let mut txn = engine.begin_write().unwrap();
        let mut changed = model.clone();
        let mut saved = Vec::new();
        for _ in 0..chance.below(120) {
            let size = chance.below(8) + 1;
            let key: Vec<u8> = (0..size).map(|_| chance.below(3) as u8).collect();
            match chance.below(12) {
                0..=5 => {
                    let size = if chance.one_in(10) { 3000 } else { chance.below(400) };
                    let value = chance.bytes(size);
                    txn.put(Tree::Rows, &key, &[&value]).unwrap();
                    changed.insert(key, value);
                }
                6 | 7 => assert_eq!(txn.delete(Tree::Rows, &key).unwrap(), changed.remove(&key).is_some()),
                8 => {
                    txn.savepoint().unwrap();
                    saved.push(changed.clone());
                }
                9 if !saved.is_empty() => {
                    txn.rollback().unwrap();
                    changed = saved.pop().unwrap();
                }
                10 if !saved.is_empty() => {
                    txn.release().unwrap();
                    saved.pop();
                }
                _ => assert_eq!(txn.get(Tree::Rows, &key).unwrap(), changed.get(&key).map(Vec::as_slice)),
            }
        }
        if chance.one_in(4) {
            drop(txn);
        } else {
            txn.commit().unwrap();
            model = changed;
        }
        let read = engine.begin_read().unwrap();
        let mut cursor = read.cursor(Tree::Rows).unwrap();
        let start = chance.bytes(2).iter().map(|byte| byte % 3).collect::<Vec<_>>();
        cursor.start(Start::At(&start), Direction::Forward).unwrap();
        let above: Vec<_> =
            model.range::<[u8], _>((Included(&start[..]), Unbounded)).map(|(key, _)| key.clone()).collect();
        assert_eq!(keys_of(&mut *cursor), above);
        cursor.start(Start::At(&start), Direction::Reverse).unwrap();
        let below: Vec<_> = model
            .range::<[u8], _>((Unbounded, Excluded(&start[..])))
            .rev()
            .map(|(key, _)| key.clone())
            .collect();
        assert_eq!(keys_of(&mut *cursor), below);
        for (key, value) in &model {
            assert_eq!(read.get(Tree::Rows, key).unwrap(), Some(&value[..]));
        }
    }
}

fn clearing_a_tree_leaves_the_others(fixture: fn(usize) -> Fixture) {
    let Fixture { engine, _scratch } = fixture(64);
    let mut txn = engine.begin_write().unwrap();
    for (key, value) in mixed_entries(300) {
        txn.put(Tree::Rows, &key, &[&value]).unwrap();
    }
    txn.put(Tree::Meta, b"kept", &[b"1"]).unwrap();
    txn.commit().unwrap();
    let mut txn = engine.begin_write().unwrap();
    txn.savepoint().unwrap();
    txn.clear(Tree::Rows).unwrap();
    txn.rollback().unwrap();
    assert!(txn.get(Tree::Rows, &1_u32.to_be_bytes()).unwrap().is_some(), "clearing is taken back too");
    txn.clear(Tree::Rows).unwrap();
    txn.put(Tree::Rows, b"new", &[b"2"]).unwrap();
    txn.commit().unwrap();
    assert_eq!(engine.usage().unwrap().entries, [1, 1, 0]);
}

#[test]
fn a_file_has_room_for_so_many_readers_and_says_when_it_is_taken() {
    let Fixture { engine, _scratch } = lmdb(0);
    commit(&*engine, &[(b"a", b"1")]);
    let mut readers = Vec::new();
    let error = loop {
        match engine.begin_read() {
            Ok(reader) => readers.push(reader),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, EngineError::ReadersFull { own: 4096, taken: 4096, slots: 4096 }), "{error}");
    assert_eq!(readers.len(), 4096);
    assert_eq!(readers[4095].get(Tree::Rows, b"a").unwrap(), Some(&b"1"[..]));
    assert_eq!(engine.tree_file().unwrap().oldest_reader().unwrap(), OldestReader::default());
    commit(&*engine, &[(b"a", b"2")]);
    readers.truncate(1);
    assert_eq!(get(&*engine, b"a").as_deref(), Some(&b"2"[..]), "places are given back");
    assert_eq!(engine.tree_file().unwrap().oldest_reader().unwrap().lag, 1);
}

#[test]
fn the_oldest_reader_is_named_with_its_age_and_what_it_keeps() {
    /// The steps of the clock that ages are measured with.
    const TICK: Duration = Duration::from_millis(20);
    let Fixture { engine, _scratch } = lmdb(0);
    commit(&*engine, &[(b"a", &[1; 9000])]);
    let first = engine.begin_read().unwrap();
    std::thread::sleep(Duration::from_millis(100));
    for value in 2..6 {
        commit(&*engine, &[(b"a", &[value; 9000])]);
    }
    let begun = Instant::now();
    let later = engine.begin_read().unwrap();
    commit(&*engine, &[(b"a", &[6; 9000])]);
    let named = |usage: &Usage| {
        let OldestReader { lag, process, age } = usage.oldest_reader;
        assert_eq!(
            (process, engine.tree_file().unwrap().oldest_reader().unwrap().lag),
            (std::process::id(), lag)
        );
        (lag, age)
    };
    let usage = engine.usage().unwrap();
    let (lag, age) = named(&usage);
    assert_eq!(lag, 5);
    assert!((90..3_600_000).contains(&age.as_millis()), "{age:?}");
    // Three pages for each value that was replaced, but not what the last commit has freed.
    assert!(usage.pinned_pages >= 4 * 3 && usage.pinned_pages < usage.free_pages, "{usage:?}");
    drop(first);
    let (lag, age) = named(&engine.usage().unwrap());
    assert_eq!(lag, 1);
    assert!(age <= begun.elapsed() + TICK, "{age:?}");
    drop(later);
    let usage = engine.usage().unwrap();
    assert_eq!((usage.oldest_reader, usage.pinned_pages), (OldestReader::default(), 0));
    // Its place is taken by one that is as old as itself.
    drop(engine.begin_read().unwrap());
    let begun = Instant::now();
    let again = engine.begin_read().unwrap();
    commit(&*engine, &[(b"a", &[7; 9000])]);
    let (_, age) = named(&engine.usage().unwrap());
    assert!(age <= begun.elapsed() + TICK, "{age:?}");
    drop(again);
}
