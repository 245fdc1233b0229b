//! Compares the store with a map: random operations against a `BTreeMap`, on disk and in memory,
//! with long keys and without.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::ops::Bound;
use std::time::Duration;

use pellucid_store::{
    KnownTable, OpenOptions, Range, Savepoint, Scan, Store, StoreError, TableId, Transaction, TryResult,
};
use support::{Chance, Scratch};

type Model = BTreeMap<String, BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>>;

const WAIT: Duration = Duration::from_secs(10);

/// Keys that share long prefixes, so that a limit of 64 bytes makes runs of them, and some plain
/// keys.
fn key(chance: &mut Chance) -> Vec<u8> {
    let size = match chance.below(4) {
        0 => chance.below(4),
        1 => 40 + chance.below(30),
        2 => 44 + chance.below(8),
        _ => chance.below(200),
    };
    let mut key = vec![b'k'; size];
    for _ in 0..chance.below(3) {
        let index = chance.below(size.max(1));
        if let Some(byte) = key.get_mut(index) {
            *byte = b'j' + chance.below(3) as u8;
        }
    }
    key
}

fn bound(chance: &mut Chance) -> Bound<Vec<u8>> {
    match chance.below(3) {
        0 => Bound::Unbounded,
        1 => Bound::Included(key(chance)),
        _ => Bound::Excluded(key(chance)),
    }
}

fn range(chance: &mut Chance) -> Range {
    Range { start: bound(chance), end: bound(chance) }
}

/// The model's rows in a range, in walking order.
fn expected(
    rows: &BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>,
    range: &Range,
    reverse: bool,
) -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    let has = |key: &Vec<u8>| {
        let is_behind_start = match &range.start {
            Bound::Unbounded => true,
            Bound::Included(start) => key >= start,
            Bound::Excluded(start) => key > start,
        };
        is_behind_start
            && match &range.end {
                Bound::Unbounded => true,
                Bound::Included(end) => key <= end,
                Bound::Excluded(end) => key < end,
            }
    };
    let rows = rows.iter().filter(|(key, _)| has(key));
    let mut rows: Vec<_> =
        rows.map(|(key, (spelling, record))| (key.clone(), spelling.clone(), record.clone())).collect();
    if reverse {
        rows.reverse();
    }
    rows
}

fn all_of(mut scan: Scan) -> Vec<(Vec<u8>, Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    while let Some(row) = scan.next().unwrap() {
        rows.push((row.key.to_vec(), row.spelling.to_vec(), row.record.to_vec()));
    }
    rows
}

fn check_snapshot(store: &Store, model: &Model, chance: &mut Chance) {
    let snapshot = store.snapshot().unwrap();
    let tables = snapshot.tables().unwrap();
    assert!(tables.iter().map(|(name, _)| name).eq(model.keys()), "{tables:?}");
    for (name, table) in tables {
        let rows = &model[&name];
        assert_eq!(snapshot.table(&name).unwrap(), Some(table));
        assert_eq!(snapshot.count(table).unwrap(), rows.len() as u64);
        for (key, (spelling, record)) in rows {
            let cell = snapshot.get(table, key).unwrap().unwrap();
            assert_eq!((cell.spelling, &*cell.record), (&spelling[..], &record[..]));
        }
        for _ in 0..3 {
            let absent = key(chance);
            assert_eq!(snapshot.get(table, &absent).unwrap().is_some(), rows.contains_key(&absent));
        }
        for reverse in [false, true] {
            let found = all_of(snapshot.scan(table, &Range::ALL, reverse).unwrap());
            assert_eq!(found, expected(rows, &Range::ALL, reverse));
            let part = range(chance);
            let found = all_of(snapshot.scan(table, &part, reverse).unwrap());
            assert_eq!(found, expected(rows, &part, reverse), "{part:?} reverse={reverse}");
            let pieces = snapshot.scan(table, &part, reverse).unwrap().parts(1 + chance.below(9)).unwrap();
            let found: Vec<_> = pieces.into_iter().flat_map(all_of).collect();
            assert_eq!(found, expected(rows, &part, reverse), "{part:?} in parts, reverse={reverse}");
        }
    }
}

/// A transaction and its model.
struct Pair<'c> {
    transaction: Transaction,
    model: Model,
    saved: Vec<(Savepoint, Model)>,
    chance: &'c mut Chance,
}

impl Pair<'_> {
    fn some_table(&mut self) -> Option<(String, TableId)> {
        let tables = self.transaction.tables().unwrap();
        assert!(tables.iter().map(|(name, _)| name).eq(self.model.keys()));
        let index = self.chance.below(tables.len());
        tables.into_iter().nth(index)
    }

    fn change_tables(&mut self) {
        let name = format!("t{}", self.chance.below(3));
        let other = format!("t{}", self.chance.below(3));
        match self.chance.below(6) {
            0..=2 => match self.transaction.create_table(&name) {
                Ok(_) => assert!(self.model.insert(name, BTreeMap::new()).is_none()),
                Err(StoreError::TableExists { .. }) => assert!(self.model.contains_key(&name)),
                Err(error) => panic!("{error}"),
            },
            3 => match self.transaction.drop_table(&name) {
                Ok(()) => assert!(self.model.remove(&name).is_some()),
                Err(StoreError::NoSuchTable { .. }) => assert!(!self.model.contains_key(&name)),
                Err(error) => panic!("{error}"),
            },
            4 => match self.transaction.rename_table(&name, &other) {
                Ok(()) => {
                    let rows = self.model.remove(&name).unwrap();
                    assert!(self.model.insert(other, rows).is_none());
                }
                Err(StoreError::NoSuchTable { .. }) => assert!(!self.model.contains_key(&name)),
                Err(StoreError::TableExists { .. }) => assert!(self.model.contains_key(&other)),
                Err(error) => panic!("{error}"),
            },
            _ => {
                if let Some((name, table)) = self.some_table() {
                    self.transaction.clear(table).unwrap();
                    self.model.get_mut(&name).unwrap().clear();
                }
            }
        }
    }

    fn change_rows(&mut self) {
        let Some((name, table)) = self.some_table() else { return };
        let rows = self.model.get_mut(&name).unwrap();
        for _ in 0..self.chance.below(12) {
            let key = key(self.chance);
            if self.chance.one_in(3) {
                assert_eq!(self.transaction.delete(table, &key).unwrap(), rows.remove(&key).is_some());
            } else {
                let spelling = if self.chance.one_in(4) { vec![1, 2] } else { Vec::new() };
                let size = if self.chance.one_in(20) { 6000 } else { 2 + self.chance.below(300) };
                let mut record = self.chance.bytes(size);
                record[0] = 0x11;
                let was_there = self.transaction.put(table, &key, &spelling, &record, &[]).unwrap();
                assert_eq!(was_there, rows.contains_key(&key));
                // The first spelling stays, as in a dict.
                rows.entry(key).or_insert((spelling, Vec::new())).1 = record;
            }
        }
        assert_eq!(self.transaction.count(table).unwrap(), rows.len() as u64);
    }

    fn move_between_savepoints(&mut self) {
        if self.saved.is_empty() || self.chance.one_in(2) {
            let savepoint = self.transaction.savepoint().unwrap();
            self.saved.push((savepoint, self.model.clone()));
            return;
        }
        let index = self.chance.below(self.saved.len());
        let (savepoint, model) = self.saved[index].clone();
        if self.chance.one_in(2) {
            self.transaction.rollback_to(savepoint).unwrap();
            self.model = model;
        } else {
            self.transaction.release(savepoint).unwrap();
        }
        self.saved.truncate(index);
        assert!(matches!(self.transaction.release(savepoint), Err(StoreError::NoSuchSavepoint)));
    }

    /// A walk sees the state at its start, though rows change while it goes on.
    fn scan_while_changing(&mut self) {
        let Some((name, table)) = self.some_table() else { return };
        let reverse = self.chance.one_in(2);
        let part = if self.chance.one_in(2) { Range::ALL } else { range(self.chance) };
        let expected = expected(&self.model[&name], &part, reverse);
        let mut scan = self.transaction.scan(table, &part, reverse).unwrap();
        let mut found = Vec::new();
        let changes_at = self.chance.below(10);
        loop {
            if found.len() == changes_at {
                self.change_rows();
                if self.chance.one_in(3) {
                    self.change_tables();
                }
            }
            let row = scan.next(&self.transaction, |row| {
                (row.key.to_vec(), row.spelling.to_vec(), row.record.to_vec())
            });
            match row.unwrap() {
                Some(row) => found.push(row),
                None => break,
            }
        }
        assert_eq!(found, expected, "{part:?} reverse={reverse}");
    }
}

/// Read and change single rows without a transaction, with catalog versions known from earlier.
/// Returns how often that was possible at once; otherwise a transaction is used.
fn change_single_rows(
    store: &Store,
    model: &mut Model,
    known: &mut Vec<(String, KnownTable)>,
    chance: &mut Chance,
) -> usize {
    let mut done = 0;
    for _ in 0..chance.below(30) {
        if known.is_empty() || chance.one_in(8) {
            let snapshot = store.snapshot().unwrap();
            known.extend(
                snapshot
                    .tables()
                    .unwrap()
                    .into_iter()
                    .map(|(name, table)| (name, snapshot.known(table).unwrap())),
            );
        }
        if known.is_empty() {
            return done;
        }
        let (name, table) = known[chance.below(known.len())].clone();
        let key = key(chance);
        let shown = store.cached_database().unwrap().show(table, &key, |record| {
            assert_eq!(record, model[&name][&key].1, "what is shown is what was put");
        });
        match shown.unwrap() {
            TryResult::Done(is_there) => assert_eq!(is_there, model[&name].contains_key(&key)),
            TryResult::CatalogChanged => known.clear(),
            TryResult::UseTransaction => {}
        }
        let record = [&[0x11][..], &chance.bytes(2 + key.len())].concat();
        let changed = if chance.one_in(3) {
            store.cached_database().unwrap().delete(table, &key).unwrap().map(|()| {
                assert!(model.get_mut(&name).unwrap().remove(&key).is_some(), "what was deleted was there");
            })
        } else {
            store.cached_database().unwrap().put(table, &key, &record).unwrap().map(|was_there| {
                let rows = model.get_mut(&name).unwrap();
                assert_eq!(was_there, rows.contains_key(&key));
                rows.entry(key.clone()).or_default().1.clone_from(&record);
            })
        };
        match changed {
            TryResult::Done(()) => done += 1,
            TryResult::CatalogChanged => known.clear(),
            TryResult::UseTransaction => {
                let mut transaction = store.begin(WAIT).unwrap();
                if let Some(table) = transaction.table(&name).unwrap() {
                    transaction.put(table, &key, b"", &record, &[]).unwrap();
                    model.get_mut(&name).unwrap().entry(key).or_default().1 = record;
                    transaction.commit().unwrap();
                }
            }
        }
        if chance.one_in(20) {
            store.sync().unwrap();
        }
    }
    done
}

fn random_operations(test: &str, mut store: Store, path: Option<&std::path::Path>, options: &OpenOptions) {
    let mut chance = Chance::new(test);
    let mut model = Model::new();
    let (mut known, mut done_alone) = (Vec::new(), 0);
    for _ in 0..120 {
        let before = store.snapshot().unwrap();
        let old_model = model.clone();
        let mut pair = Pair {
            transaction: store.begin(WAIT).unwrap(),
            model: model.clone(),
            saved: Vec::new(),
            chance: &mut chance,
        };
        for _ in 0..pair.chance.below(12) {
            match pair.chance.below(10) {
                0 | 1 => pair.change_tables(),
                2..=6 => pair.change_rows(),
                7 => pair.move_between_savepoints(),
                _ => pair.scan_while_changing(),
            }
        }
        let Pair { mut transaction, model: changed, .. } = pair;
        if chance.one_in(4) {
            drop(transaction);
        } else {
            transaction.commit().unwrap();
            model = changed;
        }
        done_alone += change_single_rows(&store, &mut model, &mut known, &mut chance);
        for (name, table) in before.tables().unwrap() {
            assert_eq!(before.count(table).unwrap(), old_model[&name].len() as u64);
            let rows = all_of(before.scan(table, &Range::ALL, false).unwrap());
            assert_eq!(
                rows,
                expected(&old_model[&name], &Range::ALL, false),
                "an older snapshot is unchanged"
            );
        }
        drop(before);
        if let Some(path) = path.filter(|_| chance.one_in(8)) {
            store.close();
            store = Store::open(path, options).unwrap();
        }
        check_snapshot(&store, &model, &mut chance);
    }
    assert!(done_alone > 0, "single rows are changed at once");
}

#[test]
fn in_memory() {
    let options = OpenOptions::default();
    random_operations("in_memory", Store::memory_with(&options).unwrap(), None, &options);
}

#[test]
fn in_memory_with_long_keys() {
    let options = OpenOptions { key_size_max: 64, ..OpenOptions::default() };
    random_operations("in_memory_with_long_keys", Store::memory_with(&options).unwrap(), None, &options);
}

#[test]
fn on_disk() {
    let (scratch, options) = (Scratch::new(), OpenOptions::default());
    let path = scratch.path("model.pel");
    random_operations("on_disk", Store::open(&path, &options).unwrap(), Some(&path), &options);
    assert_eq!(scratch.names(), ["model.pel"], "one file at rest");
}

#[test]
fn on_disk_with_pages_left_to_lmdb() {
    let options = OpenOptions { leaves_pages_to_lmdb: true, ..OpenOptions::default() };
    let scratch = Scratch::new();
    let path = scratch.path("model.pel");
    random_operations("pages_left_to_lmdb", Store::open(&path, &options).unwrap(), Some(&path), &options);
}

#[test]
fn on_disk_with_long_keys() {
    let (scratch, options) = (Scratch::new(), OpenOptions { key_size_max: 64, ..OpenOptions::default() });
    let path = scratch.path("model.pel");
    random_operations("on_disk_with_long_keys", Store::open(&path, &options).unwrap(), Some(&path), &options);
    assert_eq!(scratch.names(), ["model.pel"], "one file at rest");
}
