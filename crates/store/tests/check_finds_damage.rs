//! Tests that `check` finds every damage, unless the damaged byte has no meaning.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use pellucid_record::{Encoder, Kind};
use pellucid_store::{Mode, OpenOptions, Range, Store, StoreError};
use support::{Chance, Scratch, key, record};

const WAIT: Duration = Duration::from_secs(10);

/// Everything that a reader can see: tables, rows, blobs.
type Contents = BTreeMap<(String, Vec<u8>), (Vec<u8>, Vec<u8>, Vec<Vec<u8>>)>;

fn contents(store: &Store) -> Contents {
    let snapshot = store.snapshot().unwrap();
    let mut contents = Contents::new();
    for (name, table) in snapshot.tables().unwrap() {
        let mut scan = snapshot.scan(table, &Range::ALL, false).unwrap();
        while let Some(row) = scan.next().unwrap() {
            let cell = snapshot.get(table, row.key).unwrap().unwrap();
            assert_eq!(cell.record, row.record, "a lookup finds what the walk met");
            let blobs = cell.blobs().map(|id| snapshot.blob(id).unwrap().to_vec()).collect();
            contents.insert(
                (name.clone(), row.key.to_vec()),
                (row.spelling.to_vec(), row.record.to_vec(), blobs),
            );
        }
    }
    contents
}

/// A database with every kind of entry and page, and some free pages.
fn build(path: &Path) -> Contents {
    let store = Store::open(path, &OpenOptions::with_mode(Mode::Create)).unwrap();
    let mut chance = Chance::from_seed(11);
    for round in 0..6 {
        let mut transaction = store.begin(WAIT).unwrap();
        for name in ["people", "things"] {
            let table = match transaction.table(name).unwrap() {
                Some(table) => table,
                None => transaction.create_table(name).unwrap(),
            };
            let shape = transaction.admit(table, &["name", "age", name]).unwrap();
            for _ in 0..200 {
                let number = chance.below(600);
                let size = if chance.one_in(20) { 5000 } else { chance.below(200) };
                let mut encoder = Encoder::new();
                encoder.begin(Kind::Shaped, 3, shape).unwrap();
                encoder.str("x".repeat(size).as_bytes());
                encoder.int(round);
                encoder.bool(true);
                encoder.end().unwrap();
                let bytes = encoder.take();
                let row_key = if chance.one_in(10) {
                    key(&"long".repeat(150 + number))
                } else {
                    key(&format!("{number}"))
                };
                if chance.one_in(6) {
                    transaction.delete(table, &row_key).unwrap();
                } else {
                    transaction.put(table, &row_key, b"", &bytes, &[]).unwrap();
                }
            }
            let payload = vec![round.unsigned_abs() as u8; 9000];
            let blob = transaction.put_blob(&payload).unwrap();
            transaction.put(table, &key("with a blob"), b"", &record("see apart"), &[blob]).unwrap();
        }
        transaction.commit().unwrap();
    }
    assert_eq!(store.check().unwrap(), []);
    contents(&store)
}

/// Whether opening or checking the file reports a fault.
fn is_found(path: &Path) -> bool {
    match Store::open(path, &OpenOptions::with_mode(Mode::Write)) {
        Err(_) => true,
        Ok(store) => store.check().map_or(true, |findings| !findings.is_empty()),
    }
}

fn plant(
    rounds: usize,
    mut damage: impl FnMut(&mut Chance, &mut [u8], usize),
    mut place: impl FnMut(&mut Chance, usize) -> usize,
) {
    let mut chance = Chance::new("planted damage");
    let scratch = Scratch::new();
    let path = scratch.path("sound.pel");
    let whole_contents = build(&path);
    let whole = std::fs::read(&path).unwrap();
    let store = Store::open(&path, &OpenOptions::with_mode(Mode::Read)).unwrap();
    let damaged_path = scratch.path("damaged.pel");
    let (mut found, mut unused) = (0, BTreeMap::<&str, usize>::new());
    for _ in 0..rounds {
        let mut damaged = whole.clone();
        let offset = place(&mut chance, whole.len());
        damage(&mut chance, &mut damaged, offset);
        std::fs::write(&damaged_path, &damaged).unwrap();
        if is_found(&damaged_path) {
            found += 1;
            continue;
        }
        let why = store.unused_bytes(&[offset as u64]).unwrap()[0];
        let why = why.unwrap_or_else(|| {
            panic!("damage at {offset} (page {}, byte {}) is not found", offset / 4096, offset % 4096)
        });
        *unused.entry(why).or_default() += 1;
        let store = Store::open(&damaged_path, &OpenOptions::with_mode(Mode::Read)).unwrap();
        assert!(contents(&store) == whole_contents, "damage at {offset}, {why}, changed what is read");
    }
    println!("{found} of {rounds} found; the others hit nothing: {unused:?}");
    assert!(found > 0);
}

#[test]
fn each_of_a_hundred_flipped_bits_is_found_or_hit_nothing() {
    plant(100, |chance, bytes, offset| bytes[offset] ^= 1 << chance.below(8), support::Chance::below);
}

#[test]
fn each_of_a_hundred_changed_bytes_is_found_or_hit_nothing() {
    plant(100, |chance, bytes, offset| bytes[offset] ^= 1 + chance.below(255) as u8, support::Chance::below);
}

#[test]
fn damage_in_the_heads_of_pages_is_found_or_hit_nothing() {
    plant(
        300,
        |chance, bytes, offset| bytes[offset] ^= 1 << chance.below(8),
        // The heads of pages, and the two meta pages.
        |chance, size| match chance.below(3) {
            0 => chance.below(160) + 4096 * chance.below(2),
            _ => chance.below(48) + 4096 * chance.below(size / 4096),
        },
    );
}

/// The places of the flags of the first and the last node of each leaf page.
fn flags_of_nodes(bytes: &[u8]) -> Vec<[usize; 2]> {
    const LEAF: u16 = 2;
    let number = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let mut places = Vec::new();
    for page in (2 * 4096..bytes.len()).step_by(4096) {
        let count = usize::from(number(page + 12)).saturating_sub(16) / 2;
        if number(page + 10) == LEAF && (1..2000).contains(&count) {
            places.push([0, count - 1].map(|index| page + usize::from(number(page + 16 + 2 * index)) + 4));
        }
    }
    places
}

#[test]
fn values_that_say_they_are_trees_or_many_are_found_before_the_engine_believes_them() {
    let scratch = Scratch::new();
    let path = scratch.path("sound.pel");
    let whole_contents = build(&path);
    let whole = std::fs::read(&path).unwrap();
    let store = Store::open(&path, &OpenOptions::with_mode(Mode::Read)).unwrap();
    let damaged_path = scratch.path("damaged.pel");
    let untrusted = OpenOptions { is_untrusted: true, ..OpenOptions::with_mode(Mode::Read) };
    let mut found = 0;
    for (page, [first, last]) in flags_of_nodes(&whole).into_iter().enumerate() {
        // "Has duplicates" where a walk begins; elsewhere "describes a tree", alone or with it.
        for (offset, flags) in [(first, 4), (last, [2, 6][page % 2])] {
            let mut damaged = whole.clone();
            damaged[offset] ^= flags;
            std::fs::write(&damaged_path, &damaged).unwrap();
            if !is_found(&damaged_path) {
                let why = store.unused_bytes(&[offset as u64]).unwrap()[0];
                assert!(why.is_some(), "flags {flags} at {offset} are not found");
                continue;
            }
            found += 1;
            // A copy of the previous version does not contain this damage.
            if let Ok(copy) = Store::open(&damaged_path, &untrusted) {
                assert!(contents(&copy) == whole_contents, "flags {flags} at {offset}");
            }
        }
    }
    assert!(found > 100);
}

#[test]
fn trees_of_a_kind_that_nobody_makes_are_refused_before_the_engine_believes_them() {
    /// The places of the flags of the tree of free pages, and of the main tree, in a meta page.
    const FLAGS: [usize; 2] = [44, 92];
    let scratch = Scratch::new();
    let path = scratch.path("sound.pel");
    build(&path);
    let whole = std::fs::read(&path).unwrap();
    let txn_of = |page: usize| u64::from_le_bytes(*whole[page * 4096 + 144..].first_chunk().unwrap());
    let newest = usize::from(txn_of(1) > txn_of(0));
    let root = u64::from_le_bytes(*whole[newest * 4096 + 128..].first_chunk().unwrap()) as usize;
    let mut places: Vec<usize> = FLAGS.map(|flags| newest * 4096 + flags).to_vec();
    for index in 0..3 {
        // A node of the main tree: eight bytes, the name, and the head of a tree, with its flags at
        // byte four.
        let at = root * 4096 + 16 + 2 * index;
        let node = root * 4096 + usize::from(u16::from_le_bytes([whole[at], whole[at + 1]]));
        places.push(node + 8 + usize::from(whole[node + 6]) + 4);
    }
    let damaged_path = scratch.path("damaged.pel");
    for offset in places {
        let mut damaged = whole.clone();
        damaged[offset] ^= 4;
        std::fs::write(&damaged_path, &damaged).unwrap();
        for mode in [Mode::Read, Mode::Write] {
            let opened = Store::open(&damaged_path, &OpenOptions::with_mode(mode));
            assert!(matches!(opened, Err(StoreError::Corrupt { .. })), "flags at {offset}");
        }
    }
}

#[test]
fn pages_that_were_never_written_are_found() {
    let scratch = Scratch::new();
    let path = scratch.path("hole.pel");
    let whole_contents = build(&path);
    let whole = std::fs::read(&path).unwrap();
    let damaged_path = scratch.path("damaged.pel");
    let mut lost = 0;
    for page in 2..whole.len() / 4096 {
        let mut damaged = whole.clone();
        damaged[page * 4096..][..4096].fill(0);
        std::fs::write(&damaged_path, &damaged).unwrap();
        if is_found(&damaged_path) {
            lost += 1;
        } else {
            let store = Store::open(&damaged_path, &OpenOptions::with_mode(Mode::Read)).unwrap();
            assert!(contents(&store) == whole_contents, "page {page}");
        }
    }
    assert!(lost > 50);
}

#[test]
fn findings_say_where() {
    let scratch = Scratch::new();
    let path = scratch.path("where.pel");
    build(&path);
    let mut bytes = std::fs::read(&path).unwrap();
    let offset = bytes.windows(9).rposition(|window| window == b"xxxxxxxxx").unwrap();
    bytes[offset] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    let store = Store::open(&path, &OpenOptions::with_mode(Mode::Read)).unwrap();
    let findings = store.check().unwrap();
    assert_eq!(findings.len(), 1);
    let text = findings[0].to_string();
    assert!(text.starts_with("row 0x") && text.ends_with(": its check is wrong"), "{text}");
    assert!(
        !contents(&store).is_empty(),
        "what is intact stays readable, and what is not too, as far as it goes"
    );
}

#[test]
fn a_database_in_memory_is_checked_too() {
    let store = Store::memory().unwrap();
    let mut transaction = store.begin(WAIT).unwrap();
    let table = transaction.create_table("t").unwrap();
    transaction.put(table, &key("good"), b"", &record("good"), &[]).unwrap();
    transaction.put(table, &key("bad"), b"", &[0x11, 0, 0], &[]).unwrap();
    transaction.put(table, b"\xff no key", b"", &record("x"), &[]).unwrap();
    transaction.commit().unwrap();
    let findings = store.check().unwrap();
    assert_eq!(findings.len(), 2, "{findings:?}");
}
