//! Unit tests of the memtable.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use super::*;

fn put(
    (memtable, arena_writer): &mut (Memtable, ArenaWriter),
    sequence: u64,
    tree: Tree,
    key: &[u8],
    is_counted: bool,
) {
    let mut bytes = record::begin(64);
    let mut change = record::push_put(&mut bytes, tree, key, &[b"value ", &sequence.to_le_bytes()]);
    if is_counted {
        record::count_first(&mut bytes, &mut change);
    }
    let (place, _) = memtable.look_hashed(tree, key, hash_of(tree, key));
    memtable.add_at(arena_writer, place, sequence, &bytes, &change);
}

#[test]
fn a_checkpoint_gets_every_key_once_and_in_order() {
    // Keys that sorting by the eight bytes after the shared prefix may get wrong: keys that
    // end within those bytes or before them, that go on after them, that hold zeros, and keys
    // of another tree.
    let tails: [&[u8]; 9] =
        [b"", b"\0", b"\0\0", b"a", b"abcdefgh", b"abcdefgh\0", b"abcdefghi", b"abcdefgz", b"\xff"];
    for shared in [&b""[..], b"k", b"shared by all of them "] {
        let mut memtable = Memtable::new();
        let mut expected = BTreeMap::new();
        for (sequence, tail) in (1..).zip(tails.iter().rev().chain(&tails[3..6])) {
            let key = [shared, tail].concat();
            put(&mut memtable, sequence, Tree::Rows, &key, false);
            put(&mut memtable, sequence, Tree::Meta, b"another tree's", false);
            expected.insert(key, [&b"value "[..], &sequence.to_le_bytes()].concat());
        }
        for (tree, lookups) in memtable.0.all() {
            let found = lookups.map(|(key, lookup)| (key.to_vec(), lookup.value().unwrap().to_vec()));
            match tree {
                Tree::Rows => assert!(found.eq(expected.clone()), "after {shared:?}"),
                Tree::Meta => assert_eq!(found.count(), 1),
                Tree::Blobs => assert_eq!(found.count(), 0),
            }
        }
    }
}

#[test]
fn what_was_replaced_is_left_out_whether_it_is_little_or_much() {
    for (keys, puts) in [(100_u64, 100_u64), (100, 101), (100, 150), (100, 1000), (3, 1000)] {
        let mut memtable = Memtable::new();
        let mut expected = BTreeMap::new();
        for sequence in 1..=puts {
            let key = (sequence * 7 % keys).to_be_bytes();
            put(&mut memtable, sequence, Tree::Rows, &key, false);
            expected.insert(key.to_vec(), sequence);
        }
        let memtable = memtable.0;
        let versions = memtable.index().trees[Tree::Rows.index()].newest_as_they_came();
        assert!(versions.is_sorted());
        let key_and_sequence = |version| {
            let (head, key) = key_of(&memtable.versions, version).unwrap();
            (key.to_vec(), head.sequence)
        };
        assert_eq!(versions.len(), expected.len());
        assert!(versions.into_iter().map(key_and_sequence).collect::<BTreeMap<_, _>>() == expected);
    }
}

#[test]
fn a_walk_over_many_keys_is_one_over_few() {
    // Walks in between: some bring keys in order one by one, others all at once. Some keys get
    // new versions before that, some after.
    for steps in [&[100_u64, 20_000][..], &[10_000, 300, 10_000], &[20_000], &[5_000, 5_000, 5_000]] {
        let (mut memtable, mut expected, mut sequence) = (Memtable::new(), BTreeMap::new(), 0);
        for count in steps {
            for _ in 0..*count {
                sequence += 1;
                let number = (sequence % 9_000_u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
                let key = number.to_be_bytes();
                put(&mut memtable, sequence, Tree::Rows, &key, false);
                expected.insert(key, [&b"value "[..], &sequence.to_le_bytes()].concat());
            }
            put(&mut memtable, sequence, Tree::Meta, b"another tree's", false);
            let (mut found, mut lookups, mut behind) = (Vec::new(), Vec::new(), Bound::Unbounded);
            while memtable.0.walk(Tree::Rows, behind, Direction::Forward, sequence, 1000, &mut lookups) {
                behind = Bound::Excluded(lookups[lookups.len() - 1].0);
                found.append(&mut lookups);
            }
            found.append(&mut lookups);
            let values = |(key, lookup): LookupEntry<'_>| (key.to_vec(), lookup.value().unwrap().to_vec());
            assert!(
                found.into_iter().map(values).eq(expected.clone().into_iter().map(|(k, v)| (k.to_vec(), v)))
            );
        }
    }
}

#[test]
fn what_no_writer_of_ours_makes_is_found_all_the_same() {
    let (memtable, mut arena_writer) = Memtable::new();
    for (sequence, key) in (1..).zip([&b"odd"[..], b"", b"12345678", b"123456789"]) {
        let mut bytes = record::begin(0);
        let value = [sequence as u8; 2000];
        record::push_put(&mut bytes, Tree::Blobs, key, &[&value]);
        record::finish(&mut bytes, 1, sequence, 0);
        memtable.add(&mut arena_writer, sequence, &bytes);
        let (_, lookup) = memtable.find_numbered(Tree::Blobs, key, sequence).unwrap();
        assert_eq!(lookup, Lookup::Value(&value[..]));
    }
}

#[test]
fn readers_without_a_lock_see_their_version_while_somebody_adds() {
    const KEYS: u64 = 400;
    const GROUPS: u64 = 40_000;
    let ((memtable, mut arena_writer), published) = (Memtable::new(), AtomicU64::new(0));
    let (memtable, published) = (&memtable, &published);
    let is_deleted = |sequence: u64| sequence.is_multiple_of(7);
    let value = |sequence: u64| sequence.to_le_bytes().repeat(1 + (sequence % 5) as usize);
    // Each WAL record writes the next key in turn, so the last one that wrote a key, up to any
    // WAL record, follows from its number.
    let last = |key: u64, until: u64| until.checked_sub((until + KEYS - key) % KEYS).filter(|at| *at > 0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for sequence in 1..=GROUPS {
                let (mut bytes, key) = (record::begin(0), (sequence % KEYS).to_be_bytes());
                if is_deleted(sequence) {
                    record::push_delete(&mut bytes, Tree::Rows, &key);
                } else {
                    record::push_put(&mut bytes, Tree::Rows, &key, &[&value(sequence)]);
                }
                record::finish(&mut bytes, 1, sequence, 0);
                memtable.add(&mut arena_writer, sequence, &bytes);
                published.store(sequence, Ordering::Release);
            }
        });
        let read = |step: usize| {
            let mut newest = 0;
            while newest < GROUPS {
                newest = published.load(Ordering::Acquire);
                for until in [newest, newest / 2, newest.saturating_sub(KEYS + 3)] {
                    for key in (0..KEYS).step_by(step) {
                        let found = memtable.find_numbered(Tree::Rows, &key.to_be_bytes(), until);
                        let Some(at) = last(key, until) else {
                            assert!(found.is_none(), "{key} up to {until}");
                            continue;
                        };
                        let (number, lookup) = found.unwrap();
                        assert_eq!(number, at, "{key} up to {until}");
                        assert_eq!(lookup.value(), (!is_deleted(at)).then(|| value(at)).as_deref());
                    }
                    let mut lookups = Vec::new();
                    let more = memtable.walk(
                        Tree::Rows,
                        Bound::Unbounded,
                        Direction::Forward,
                        until,
                        500,
                        &mut lookups,
                    );
                    assert!(!more);
                    let keys = (0..KEYS).filter(|key| last(*key, until).is_some());
                    assert!(
                        lookups
                            .iter()
                            .map(|(key, _)| key.to_vec())
                            .eq(keys.map(|key| key.to_be_bytes().to_vec()))
                    );
                }
            }
        };
        scope.spawn(move || read(7));
        read(11);
    });
}

#[test]
fn rows_are_counted_up_to_each_wal_record() {
    let mut memtable = Memtable::new();
    let mut totals = vec![0];
    // Runs of one and of many, with WAL records in between that count nothing or rows of
    // another table.
    for sequence in 1..60_u64 {
        let counts = sequence % 7 != 0 && !(20..25).contains(&sequence);
        let table = if sequence % 5 == 0 { 4 } else { 3 };
        put(&mut memtable, sequence, Tree::Rows, &[table, sequence as u8], counts);
        totals.push(totals[totals.len() - 1] + i64::from(counts && table == 3));
    }
    for (behind, before) in totals.iter().enumerate() {
        for (until, total) in totals.iter().enumerate().skip(behind) {
            assert_eq!(memtable.0.counted(TableId(3), behind as u64, until as u64), total - before);
        }
    }
    assert_eq!(memtable.0.counted(TableId(5), 0, 60), 0);
}
