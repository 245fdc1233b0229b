//! Tests what a database makes of its files after a power cut.
//!
//! A writer works while everything that it and the engine write and sync is recorded. Then the
//! files are rebuilt as they may have been on the disk at many moments, with writes missing,
//! reordered and torn, and opened. `PELLUCID_IMAGES` sets the number of images.
#![cfg(target_os = "linux")]
#![allow(unsafe_code, reason = "the recorder stands in the place of the C library's functions")]
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]
#![allow(clippy::cast_sign_loss, clippy::cast_possible_wrap, reason = "sizes and offsets of small files")]

#[path = "support/os_recorder.rs"]
mod os_recorder;
mod support;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use os_recorder::Recorder;
use pellucid_record::view::{Root, Slot, root};
use pellucid_store::{Durability, Mode, OpenOptions, Range, Store, TableId};
use support::{Chance, Scratch, key, record};

const WAIT: Duration = Duration::from_secs(20);
const NAME: &str = "power.pel";
const TABLE: &str = "t";
const OPERATIONS: usize = 260;
const SEGMENT_SIZE: usize = 1 << 16;

type Rows = BTreeMap<Vec<u8>, String>;

/// The record of a writer's work.
struct Run {
    recorder: Recorder,
    /// The rows after each operation; before the first one there is not even a table.
    states: Vec<Rows>,
    /// The moment at which each operation had returned.
    returned: Vec<usize>,
    /// The moments at which a call had returned that made all operations before it durable.
    checkpointed: Vec<(usize, usize)>,
    /// The operations that put a large value, which is in the data file alone.
    large: Vec<usize>,
}

/// From this size on a value is large.
const LARGE_SIZE: usize = 128 << 10;

/// How a writer works.
#[derive(Clone, Copy)]
struct Manner {
    durability: Durability,
    /// Small, so that much goes into the tree; or large, so that nothing does and no sync is
    /// requested.
    segment_size: usize,
    pause: Duration,
}

impl Manner {
    fn options(self) -> OpenOptions {
        OpenOptions {
            durability: self.durability,
            log_segment_size: self.segment_size,
            ..OpenOptions::default()
        }
    }

    fn is_left_alone(self) -> bool {
        self.segment_size > SEGMENT_SIZE
    }
}

/// What operation `number` puts and deletes.
fn changes(number: usize, chance: &mut Chance) -> Vec<(String, Option<String>)> {
    let (count, size) = match chance.below(10) {
        // Too large for the log: it is written into the tree at once.
        0 => (60, 120),
        1 | 2 => (5, 60),
        3 => (1, 3_000),
        // Written to the data file ahead of its commit.
        4 => (1, LARGE_SIZE + 8_000),
        _ => (1, 20),
    };
    let one = |chance: &mut Chance| {
        let value = (!chance.one_in(6)).then(|| format!("{number} ") + &"v".repeat(size));
        (format!("key {}", chance.below(90)), value)
    };
    let mut all: Vec<_> = (0..count).map(|_| one(chance)).collect();
    all.push(("last".to_owned(), Some(number.to_string())));
    all
}

fn apply(store: &Store, number: usize, rows: &mut Rows, chance: &mut Chance) {
    commit(store, changes(number, chance), rows);
}

fn commit(store: &Store, changes: Vec<(String, Option<String>)>, rows: &mut Rows) {
    let mut transaction = store.begin(WAIT).unwrap();
    let table = match transaction.table(TABLE).unwrap() {
        Some(table) => table,
        None => transaction.create_table(TABLE).unwrap(),
    };
    for (name, value) in changes {
        let key = key(&name);
        if let Some(value) = value {
            transaction.put(table, &key, b"", &record(&value), &[]).unwrap();
            rows.insert(key, value);
        } else {
            transaction.delete(table, &key).unwrap();
            rows.remove(&key);
        }
    }
    transaction.commit().unwrap();
}

/// Let a writer work, with pauses between operations.
fn run(scratch: &Scratch, manner: Manner, operations: usize, chance: &mut Chance) -> Run {
    let path = scratch.path(NAME);
    os_recorder::start(scratch.folder());
    let mut store = Store::open(&path, &manner.options()).unwrap();
    let mut rows = Rows::new();
    let (mut states, mut returned, mut checkpointed) = (vec![rows.clone()], Vec::new(), Vec::new());
    let mut large = Vec::new();
    for number in 1..=operations {
        apply(&store, number, &mut rows, chance);
        let is_new = |value: &String| value.starts_with(&format!("{number} "));
        if rows.values().any(|value| value.len() >= LARGE_SIZE && is_new(value)) {
            large.push(number);
        }
        states.push(rows.clone());
        returned.push(os_recorder::look());
        if manner.is_left_alone() {
        } else if chance.one_in(25) {
            store.sync().unwrap();
            checkpointed.push((os_recorder::look(), number));
        } else if chance.one_in(60) {
            drop(store);
            checkpointed.push((os_recorder::look(), number));
            store = Store::open(&path, &manner.options()).unwrap();
        }
        std::thread::sleep(manner.pause);
    }
    let recorder = os_recorder::stop();
    drop(store);
    Run { recorder, states, returned, checkpointed, large }
}

impl Run {
    /// How many operations had returned at a moment.
    fn returned_at(&self, moment: usize) -> usize {
        self.returned.partition_point(|at| *at <= moment)
    }

    /// How many operations must survive a power cut at a moment, in `process`.
    fn lasting_at(&self, moment: usize) -> usize {
        let checkpointed =
            self.checkpointed.iter().rev().find(|(at, _)| *at <= moment).map_or(0, |(_, count)| *count);
        let synced =
            |file| self.recorder.synced_until(file, moment).map_or(0, |until| self.returned_at(until));
        // The chain ends before the first large value that is not on the disk.
        let values = synced(NAME);
        let lacked = self.large.iter().find(|number| **number > values);
        checkpointed.max(synced("-log").min(lacked.map_or(usize::MAX, |number| number - 1)))
    }

    /// Open and compare what a power cut at a moment may leave. Returns how many returned
    /// operations were lost.
    fn cut(&self, moment: usize, manner: Manner, chance: &mut Chance) -> usize {
        let scratch = Scratch::new();
        let told = self.recorder.leave(moment, chance, scratch.folder());
        let path = scratch.path(NAME);
        let returned = self.returned_at(moment);
        let least = if manner.durability == Durability::Full { returned } else { self.lasting_at(moment) };
        let store = Store::open(&path, &manner.options()).unwrap_or_else(|error| panic!("{told}: {error}"));
        let (count, rows) = content(&store);
        assert!(
            (least..=returned + 1).contains(&count),
            "{told}: {count} operations are there; {returned} had returned, {least} had to last"
        );
        assert!(rows == self.states[count], "{told}: not what operation {count} left");
        assert_eq!(store.check().unwrap(), [], "{told}");
        // The log stays until its caller was told what is lost.
        store.warnings().unwrap();
        drop(store);
        assert_eq!(scratch.names(), [NAME], "{told}");
        let again = Store::open(&path, &OpenOptions::with_mode(Mode::Write)).unwrap();
        assert_eq!(content(&again).0, count, "{told}: opened again, it is another one");
        returned.saturating_sub(count)
    }

    /// How long before the power cut the oldest of the lost operations had returned.
    fn age_of_lost(&self, moment: usize, lost: usize) -> Duration {
        let first = self.returned[self.returned_at(moment) - lost];
        self.recorder.time(moment).duration_since(self.recorder.time(first))
    }
}

/// The number of the last operation, and all rows.
fn content(store: &Store) -> (usize, Rows) {
    let snapshot = store.snapshot().unwrap();
    let Some(table): Option<TableId> = snapshot.table(TABLE).unwrap() else { return (0, Rows::new()) };
    let mut rows = Rows::new();
    let mut scan = snapshot.scan(table, &Range::ALL, false).unwrap();
    while let Some(row) = scan.next().unwrap() {
        let Root::Scalar(Slot::Str(text)) = root(row.record, &Vec::new()).unwrap() else {
            panic!("not a str")
        };
        rows.insert(row.key.to_vec(), String::from_utf8(text.to_vec()).unwrap());
    }
    assert_eq!(snapshot.count(table).unwrap(), rows.len() as u64);
    (rows[&key("last")].parse().unwrap(), rows)
}

fn images() -> usize {
    std::env::var("PELLUCID_IMAGES").ok().and_then(|text| text.parse().ok()).unwrap_or(30)
}

fn cut_everywhere(test: &str, manner: Manner, files: &[(&str, &str)]) {
    let mut chance = Chance::new(test);
    let scratch = Scratch::new();
    let run = {
        let _recording = ALONE.lock();
        run(&scratch, manner, OPERATIONS, &mut chance)
    };
    let everywhere = 0..run.recorder.count();
    // In this run no sync was requested, and nothing was closed.
    assert!(
        !manner.is_left_alone() || run.lasting_at(run.recorder.count() - 1) > 0,
        "nothing was synced in three seconds"
    );
    for (file, name) in files {
        let moments: Vec<usize> =
            everywhere.clone().filter(|moment| run.recorder.is_unsynced(name, *moment)).collect();
        assert!(moments.len() > 20, "{file} was hardly ever on its way to the disk");
        let (mut took, mut most, mut oldest) = (0, 0, Duration::ZERO);
        for _ in 0..images() {
            let moment = moments[chance.below(moments.len())];
            let lost = run.cut(moment, manner, &mut chance);
            took += usize::from(lost > 0);
            most = most.max(lost);
            if lost > 0 {
                oldest = oldest.max(run.age_of_lost(moment, lost));
            }
        }
        let durability = manner.durability;
        assert_eq!(took > 0, durability == Durability::Process, "{file}: else the images are too kind");
        println!(
            "{durability:?}: {} images of moments at which {file} was on its way to the disk (of {}); \
             {took} had lost commits that had returned, at most {most}, the oldest {oldest:?} before the cut",
            images(),
            moments.len()
        );
    }
}

const LOG: (&str, &str) = ("the log", "power.pel-log");
const DATA: (&str, &str) = ("the data file", NAME);

#[test]
fn full_loses_nothing_to_a_power_cut() {
    let manner = Manner { durability: Durability::Full, segment_size: SEGMENT_SIZE, pause: Duration::ZERO };
    cut_everywhere("full_loses_nothing_to_a_power_cut", manner, &[LOG, DATA]);
}

#[test]
fn process_loses_no_more_than_what_was_not_synced_yet() {
    let pause = Duration::from_millis(2);
    let manner = Manner { durability: Durability::Process, segment_size: SEGMENT_SIZE, pause };
    cut_everywhere("process_loses_no_more_than_what_was_not_synced_yet", manner, &[LOG, DATA]);
}

#[test]
fn process_syncs_now_and_then_without_being_asked() {
    let pause = Duration::from_millis(12);
    let manner = Manner { durability: Durability::Process, segment_size: 1 << 20, pause };
    cut_everywhere("process_syncs_now_and_then_without_being_asked", manner, &[LOG]);
}

#[test]
fn what_a_power_cut_leaves_of_a_database_that_is_being_made_can_be_made_one() {
    let mut chance = Chance::new("what_a_power_cut_leaves_of_a_database_that_is_being_made");
    let scratch = Scratch::new();
    let recorder = {
        let _recording = ALONE.lock();
        os_recorder::start(scratch.folder());
        let store = Store::open(scratch.path(NAME), &OpenOptions::default()).unwrap();
        let recorder = os_recorder::stop();
        drop(store);
        recorder
    };
    assert!(!recorder.is_ever_synced(NAME), "nobody waits for the disk when a database is made");
    let is_unsynced = |moment: &usize| recorder.is_unsynced(NAME, *moment);
    let moments: Vec<usize> = (0..recorder.count()).filter(is_unsynced).collect();
    assert!(moments.len() >= 4, "ahead of its pages, of the meta page, of the proof, and after them");
    // About one in forty has two torn pages.
    for moment in moments.into_iter().cycle().take(8 * images()) {
        let scratch = Scratch::new();
        let told = recorder.leave(moment, &mut chance, scratch.folder());
        let path = scratch.path(NAME);
        let store = Store::open(&path, &OpenOptions::default());
        let store = store.unwrap_or_else(|error| panic!("{told}: {error}"));
        let mut rows = Rows::new();
        apply(&store, 1, &mut rows, &mut chance);
        assert_eq!(store.check().unwrap(), [], "{told}");
        drop(store);
        let again = Store::open(&path, &OpenOptions::with_mode(Mode::Write)).unwrap();
        assert_eq!(content(&again).1, rows, "{told}");
    }
}

#[test]
fn a_database_that_was_just_made_loses_no_more_to_a_power_cut_than_any_other() {
    let mut chance = Chance::new("a_database_that_was_just_made_loses_no_more_to_a_power_cut");
    // Left alone, its commits stay in the log. Otherwise some go into the tree, which is not on the
    // disk yet.
    for (durability, segment_size) in [
        (Durability::Process, 1 << 20),
        (Durability::Process, SEGMENT_SIZE),
        (Durability::Full, 1 << 20),
        (Durability::Full, SEGMENT_SIZE),
    ] {
        let manner = Manner { durability, segment_size, pause: Duration::ZERO };
        for _ in 0..4 {
            let scratch = Scratch::new();
            let run = {
                let _recording = ALONE.lock();
                run(&scratch, manner, 4, &mut chance)
            };
            for _ in 0..images() {
                run.cut(chance.below(run.recorder.count()), manner, &mut chance);
            }
        }
    }
}

#[test]
fn a_file_is_on_the_disk_as_it_was_made_before_it_grows() {
    let mut chance = Chance::new("a_file_is_on_the_disk_as_it_was_made_before_it_grows");
    let manner =
        Manner { durability: Durability::Process, segment_size: SEGMENT_SIZE, pause: Duration::ZERO };
    // By a commit that is too large for the log, and by the checkpoint of the last process to
    // close.
    for count in [100, 1] {
        let changes = (0..count).map(|number| (format!("key {number}"), Some("v".repeat(100))));
        let changes = changes.chain([("last".to_owned(), Some("1".to_owned()))]).collect();
        let mut rows = Rows::new();
        let scratch = Scratch::new();
        let _recording = ALONE.lock();
        os_recorder::start(scratch.folder());
        let store = Store::open(scratch.path(NAME), &manner.options()).unwrap();
        commit(&store, changes, &mut rows);
        let returned = vec![os_recorder::look()];
        drop(store);
        // It is durable from here on, and so is its name.
        let checkpointed = vec![(os_recorder::look(), 1)];
        let recorder = os_recorder::stop();
        let run =
            Run { recorder, states: vec![Rows::new(), rows], returned, checkpointed, large: Vec::new() };
        let has_grown = |moment: &usize| run.recorder.size(NAME, *moment) > 4 * 4096;
        let moments: Vec<usize> = (0..run.recorder.count()).filter(has_grown).collect();
        for moment in moments.iter().cycle().take(moments.len() * images()) {
            run.cut(*moment, manner, &mut chance);
        }
    }
}

#[test]
fn a_tree_whose_writer_died_in_its_sync_is_on_the_disk_before_its_log_is_begun_anew() {
    const BEFORE: usize = 12;
    const SINCE: usize = 12;
    let small = |number: usize| {
        let row = |name: String| (name, Some(format!("{number} ")));
        vec![row(format!("key {}", number % 7)), ("last".to_owned(), Some(number.to_string()))]
    };
    let mut chance = Chance::new("a_tree_whose_writer_died_in_its_sync");
    let manner = Manner { durability: Durability::Full, segment_size: SEGMENT_SIZE, pause: Duration::ZERO };
    let (mut rows, mut states) = (Rows::new(), vec![Rows::new()]);
    // The data file before and after a checkpoint, and the log after it.
    let (old, new, log) = {
        let scratch = Scratch::new();
        let path = scratch.path(NAME);
        let store = Store::open(&path, &manner.options()).unwrap();
        for number in 1..=BEFORE {
            commit(&store, small(number), &mut rows);
            states.push(rows.clone());
        }
        let old = std::fs::read(&path).unwrap();
        store.sync().unwrap();
        (old, std::fs::read(&path).unwrap(), std::fs::read(scratch.path("power.pel-log")).unwrap())
    };
    assert!(old != new);
    let _recording = ALONE.lock();
    let scratch = Scratch::new();
    let path = scratch.path(NAME);
    os_recorder::start(scratch.folder());
    write_and_look(&path, &old, true);
    write_and_look(&scratch.path("power.pel-log"), &log, true);
    // The checkpoint's writer died in its second sync: its pages are on the disk, but the meta page
    // that refers to them is only in memory.
    let metas = 2 * 4096;
    write_and_look(&path, &[&old[..metas], &new[metas..]].concat(), true);
    let first = write_and_look(&path, &new, false);
    let mut returned = vec![first; BEFORE];
    let store = Store::open(&path, &manner.options()).unwrap();
    for number in BEFORE + 1..=BEFORE + SINCE {
        commit(&store, small(number), &mut rows);
        states.push(rows.clone());
        returned.push(os_recorder::look());
    }
    let recorder = os_recorder::stop();
    drop(store);
    let run = Run { recorder, states, returned, checkpointed: Vec::new(), large: Vec::new() };
    for _ in 0..images() {
        run.cut(first + chance.below(run.recorder.count() - first), manner, &mut chance);
    }
}

#[test]
fn the_name_of_a_database_lasts_as_its_first_commit_does() {
    let mut chance = Chance::new("the_name_of_a_database_lasts_as_its_first_commit_does");
    let manner = Manner { durability: Durability::Full, segment_size: SEGMENT_SIZE, pause: Duration::ZERO };
    let _recording = ALONE.lock();
    // One goes into the log, and one is so large that only the tree has it.
    for size in [10, SEGMENT_SIZE] {
        let scratch = Scratch::new();
        os_recorder::start(scratch.folder());
        let store = Store::open(scratch.path(NAME), &manner.options()).unwrap();
        let mut transaction = store.begin(WAIT).unwrap();
        let table = transaction.create_table(TABLE).unwrap();
        transaction.put(table, &key("large"), b"", &record(&"v".repeat(size)), &[]).unwrap();
        transaction.commit().unwrap();
        let moment = os_recorder::look();
        let recorder = os_recorder::stop();
        for _ in 0..40 {
            let target = Scratch::new();
            let told = recorder.leave(moment, &mut chance, target.folder());
            assert!(target.path(NAME).exists(), "{told}");
        }
    }
}

#[test]
fn an_image_lacks_what_was_not_synced_and_has_what_was() {
    let mut chance = Chance::new("an_image_lacks_what_was_not_synced_and_has_what_was");
    let scratch = Scratch::new();
    let _recording = ALONE.lock();
    os_recorder::start(scratch.folder());
    let path = scratch.path("file");
    write_and_look(&path, b"aaaa", true);
    write_and_look(&path, b"bbbb", false);
    let moment = os_recorder::look();
    let recorder = os_recorder::stop();
    let mut seen = BTreeMap::new();
    for _ in 0..200 {
        let target = Scratch::new();
        recorder.leave(moment, &mut chance, target.folder());
        *seen.entry(std::fs::read(target.path("file")).ok()).or_insert(0) += 1;
    }
    let texts: Vec<_> =
        seen.keys().flatten().map(|bytes| String::from_utf8_lossy(bytes).into_owned()).collect();
    assert_eq!(texts, ["aaaa", "bbbb"], "{seen:?}");
}

fn write_and_look(path: &Path, bytes: &[u8], is_synced: bool) -> usize {
    use std::os::unix::fs::FileExt;
    let file = std::fs::File::options().write(true).create(true).truncate(false).open(path).unwrap();
    file.write_all_at(bytes, 0).unwrap();
    if is_synced {
        file.sync_data().unwrap();
        std::fs::File::open(path.parent().unwrap()).unwrap().sync_all().unwrap();
    }
    os_recorder::look()
}

/// One recording at a time.
static ALONE: std::sync::Mutex<()> = std::sync::Mutex::new(());
