//! Measures the store itself, without Python: `cargo run --release -p pellucid-store --example
//! speed [rows]`
//!
//! Each figure is the median of several rounds. The records are dicts of 18 ints: 170 bytes.
#![allow(clippy::cast_precision_loss, clippy::cast_possible_wrap, reason = "figures for people")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a measurement that fails may panic")]

use std::time::{Duration, Instant};

use pellucid_record::key::KeyEncoder;
use pellucid_record::patch::Change;
use pellucid_record::path::Step;
use pellucid_record::{Encoder, Kind};
use pellucid_store::engine::lmdb::{LmdbEngine, LmdbOptions};
use pellucid_store::engine::{Batch, Direction, Engine, ReadTxn, Start, Tree};
use pellucid_store::{Mode, OpenOptions, Range, Store, TableId};

const WAIT: Duration = Duration::from_secs(10);
const ROUNDS: usize = 5;

fn key(number: u64) -> Vec<u8> {
    let mut encoder = KeyEncoder::new();
    encoder.int(number as i64);
    encoder.as_bytes().to_vec()
}

fn record(shape: u32, number: u64) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.begin(Kind::Shaped, 18, shape).unwrap();
    for field in 0..18 {
        encoder.int(number as i64 * 100 + field);
    }
    encoder.end().unwrap();
    encoder.take()
}

/// Nanoseconds that this thread has run so far: the load of other programs does not count.
fn run_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0)
}

/// Print the median time of one of `count` operations: by the clock, and by this thread's run time.
fn measure(name: &str, count: u64, mut round: impl FnMut()) {
    let mut times: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|_| {
            let (begin, run_begin) = (Instant::now(), run_time());
            round();
            let run = run_time() - run_begin;
            (begin.elapsed().as_nanos() as f64 / count as f64, run as f64 / count as f64)
        })
        .collect();
    times.sort_by(|one, other| one.0.total_cmp(&other.0));
    let (clock, run) = times[ROUNDS / 2];
    println!("{name:<58} {clock:>9.1} ns, of which run {run:.1}");
}

fn main() {
    let rows: u64 = std::env::args().nth(1).map_or(1_000_000, |text| text.parse().unwrap());
    let folder = std::env::temp_dir().join(format!("pellucid-speed-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let path = folder.join("speed.pel");
    println!("{rows} rows");
    let keys: Vec<Vec<u8>> = (0..rows).map(key).collect();
    loads(&path, &keys);
    scans(&path, rows);
    reads(&path, &keys);
    patches(&path, &keys);
    writes(&path, &keys);
    let size = std::fs::metadata(&path).unwrap().len();
    println!("{:<58} {:>9.1} bytes", "file after all that, a row", size as f64 / rows as f64);
    std::fs::remove_dir_all(&folder).unwrap();
}

fn table_of(store: &Store) -> TableId {
    store.snapshot().unwrap().table("people").unwrap().unwrap()
}

fn loads(path: &std::path::Path, keys: &[Vec<u8>]) {
    let rows = keys.len() as u64;
    let names: Vec<String> = (0..18).map(|field| format!("f{field}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let records: Vec<Vec<u8>> = (0..rows).map(|number| record(0, number)).collect();
    let mut times = Vec::new();
    for _ in 0..3 {
        let store = Store::open(path, &OpenOptions::with_mode(Mode::New)).unwrap();
        let mut transaction = store.begin(WAIT).unwrap();
        let table = transaction.create_table("people").unwrap();
        assert_eq!(transaction.admit(table, &names).unwrap(), 0);
        let begin = Instant::now();
        for (key, record) in keys.iter().zip(&records) {
            transaction.put(table, key, b"", record, &[]).unwrap();
        }
        times.push(begin.elapsed().as_nanos() as f64 / rows as f64);
        let begin = Instant::now();
        transaction.commit().unwrap();
        times.push(begin.elapsed().as_nanos() as f64 / rows as f64);
    }
    println!("{:<58} {:>9.1} ns", "put of a new last row, one transaction", times[0]);
    println!("{:<58} {:>9.1} ns", "  its share of the commit", times[1]);
    println!("{:<58} {:>9.1} ns", "  the same in a file that has room already", times[4]);
    let size = std::fs::metadata(path).unwrap().len();
    println!(
        "{:<58} {:>9.1} bytes",
        "file, a row (three times emptied and filled)",
        size as f64 / rows as f64
    );
    std::fs::remove_file(path).unwrap();
    let store = Store::open(path, &OpenOptions::default()).unwrap();
    let mut transaction = store.begin(WAIT).unwrap();
    let table = transaction.create_table("people").unwrap();
    transaction.admit(table, &names).unwrap();
    for (key, record) in keys.iter().zip(&records) {
        transaction.put(table, key, b"", record, &[]).unwrap();
    }
    transaction.commit().unwrap();
    let size = std::fs::metadata(path).unwrap().len();
    println!("{:<58} {:>9.1} bytes", "file, a row", size as f64 / rows as f64);
}

fn writes(path: &std::path::Path, keys: &[Vec<u8>]) {
    let rows = keys.len() as u64;
    let records: Vec<Vec<u8>> = (0..rows).map(|number| record(0, number)).collect();
    let store = Store::open(path, &OpenOptions::default()).unwrap();
    let table = table_of(&store);
    measure("put over 10,000 rows in random order, one transaction", 10_000, || {
        let mut transaction = store.begin(WAIT).unwrap();
        for turn in 0..10_000_u64 {
            let index = (turn * 7_919_339 % rows) as usize;
            transaction.put(table, &keys[index], b"", &records[index], &[]).unwrap();
        }
        transaction.commit().unwrap();
    });
    measure("one put, its own commit", 200, || {
        for index in 0..200 {
            let mut transaction = store.begin(WAIT).unwrap();
            transaction.put(table, &keys[index], b"", &records[index], &[]).unwrap();
            transaction.commit().unwrap();
        }
    });
}

fn reads(path: &std::path::Path, keys: &[Vec<u8>]) {
    const GETS: u64 = 300_000;
    let rows = keys.len() as u64;
    let store = Store::open(path, &OpenOptions::with_mode(Mode::Read)).unwrap();
    let table = table_of(&store);
    let snapshot = store.snapshot().unwrap();
    for (name, span) in [("all rows", rows), ("100 rows", 100)] {
        let index = |turn: u64| (turn * 7_919_339 % span) as usize;
        measure(&format!("get in a held snapshot, random, {name}"), GETS, || {
            for turn in 0..GETS {
                assert!(snapshot.get(table, &keys[index(turn)]).unwrap().is_some());
            }
        });
        measure(&format!("snapshot() and get while another is held, {name}"), GETS, || {
            for turn in 0..GETS {
                assert!(store.snapshot().unwrap().get(table, &keys[index(turn)]).unwrap().is_some());
            }
        });
    }
    drop(snapshot);
    measure("snapshot() alone", GETS, || {
        for _ in 0..GETS {
            drop(store.snapshot().unwrap());
        }
    });
    measure("snapshot() and get, 100 rows", GETS, || {
        for turn in 0..GETS {
            let index = (turn * 7_919_339 % 100) as usize;
            assert!(store.snapshot().unwrap().get(table, &keys[index]).unwrap().is_some());
        }
    });
    store.close();
    measure("open and close", 100, || {
        for _ in 0..100 {
            drop(Store::open(path, &OpenOptions::with_mode(Mode::Read)).unwrap());
        }
    });
}

fn scans(path: &std::path::Path, rows: u64) {
    let bytes = std::fs::read(path).unwrap();
    measure("8 bytes of every 195 of the file in memory, no store", rows, || {
        let words = bytes.chunks_exact(195).map(|row| i64::from_le_bytes(*row[40..].first_chunk().unwrap()));
        assert_ne!(words.fold(0, i64::wrapping_add), 0);
    });
    drop(bytes);
    {
        let engine = LmdbEngine::open(path, LmdbOptions::default()).unwrap();
        let txn = engine.begin_read().unwrap();
        measure("LMDB's cursor, a row at a time, touching 8 bytes", rows, || {
            plain_sum(&*txn);
        });
        measure("a page at a time, touching 8 bytes", rows, || {
            paged_sum(&*txn);
        });
    }
    let store = Store::open(path, &OpenOptions::with_mode(Mode::Read)).unwrap();
    let table = table_of(&store);
    for reverse in [false, true] {
        measure(&format!("Scan::next, touching 8 bytes, reverse={reverse}"), rows, || {
            let mut scan = store.snapshot().unwrap().scan(table, &Range::ALL, reverse).unwrap();
            let mut sum = 0_i64;
            while let Some(row) = scan.next().unwrap() {
                sum = sum.wrapping_add(i64::from_le_bytes(*row.record[32..].first_chunk().unwrap()));
            }
            assert_ne!(sum, 0);
        });
    }
}

fn plain_sum(txn: &dyn ReadTxn) {
    let mut cursor = txn.cursor(Tree::Rows).unwrap();
    cursor.start(Start::Edge, Direction::Forward).unwrap();
    let mut sum = 0_i64;
    while let Some((_, value)) = cursor.step().unwrap() {
        sum = sum.wrapping_add(i64::from_le_bytes(*value[32..].first_chunk().unwrap()));
    }
    assert_ne!(sum, 0);
}

fn paged_sum(txn: &dyn ReadTxn) {
    let mut cursor = txn.cursor(Tree::Rows).unwrap();
    cursor.start(Start::Edge, Direction::Forward).unwrap();
    let mut batch = Batch::default();
    let mut sum = 0_i64;
    loop {
        cursor.fill(&mut batch).unwrap();
        if batch.entries.is_empty() {
            break;
        }
        for (_, value) in &batch.entries {
            sum = sum.wrapping_add(i64::from_le_bytes(*value[32..].first_chunk().unwrap()));
        }
    }
    assert_ne!(sum, 0);
}

fn patches(path: &std::path::Path, keys: &[Vec<u8>]) {
    let rows = keys.len().min(100_000);
    let store = Store::open(path, &OpenOptions::default()).unwrap();
    let table = table_of(&store);
    let mut transaction = store.begin(WAIT).unwrap();
    for (name, stride) in [("in key order", 1), ("in random order", 7_919_339)] {
        let mut value = 0;
        measure(&format!("patch of an int of a row of {rows}, {name}"), rows as u64, || {
            value += 1;
            let mut encoder = Encoder::new();
            encoder.int(value);
            let new = encoder.take();
            for turn in 0..rows {
                let key = &keys[turn * stride % rows];
                let path = [Step::Field("f3")];
                let patched = transaction.patch(table, key, &path, Change::Set(&new), &[]);
                assert_eq!(patched.unwrap().unwrap().unwrap().encoded, 0);
            }
        });
    }
    transaction.commit().unwrap();
}
