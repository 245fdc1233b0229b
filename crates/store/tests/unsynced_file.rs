//! Tests what becomes of a new database file if its creator dies or the power fails before it is on
//! the disk.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pellucid_store::{Mode, OpenOptions, Store, StoreError, Warning};
use support::{Child, Scratch};

const SECTOR: usize = 512;
const PAGE: usize = 4096;
/// The offset of the proof in the first page, and of `unsynced_file` in the log.
const PROOF: usize = 4080;
const UNSYNCED_FILE: std::ops::Range<usize> = 40..48;

fn open(path: &Path, mode: Mode) -> Result<Store, StoreError> {
    Store::open(path, &OpenOptions::with_mode(mode))
}

fn log_of(path: &Path) -> PathBuf {
    path.with_extension("pel-log")
}

/// The file and the log of a process that makes a database, commits a number of times and dies.
fn left_by_the_dead(scratch: &Scratch, commits: u32) -> (Vec<u8>, Vec<u8>) {
    let path = scratch.path("dead.pel");
    let mut child = Child::new();
    child.must(&[&format!("open {} c 5000", path.display())]);
    for number in 0..commits {
        let change = if number == 0 { "create t".to_owned() } else { format!("put t {number} x") };
        child.must(&["begin 5000", &change, "commit"]);
    }
    child.kill();
    let (file, log) = (std::fs::read(&path).unwrap(), std::fs::read(log_of(&path)).unwrap());
    assert_eq!(file.len(), 4 * PAGE);
    for name in scratch.names() {
        std::fs::remove_file(scratch.path(&name)).unwrap();
    }
    (file, log)
}

fn has_unsynced_file(path: &Path) -> bool {
    std::fs::read(log_of(path)).unwrap()[UNSYNCED_FILE]
        == std::fs::metadata(path).unwrap().ino().to_le_bytes()
}

/// Put a file and its log in place, as in the first second of the log (`has_unsynced_file`) or
/// later.
fn place(path: &Path, file: &[u8], log: &[u8], has_unsynced_file: bool) {
    std::fs::write(path, file).unwrap();
    let inode = if has_unsynced_file { std::fs::metadata(path).unwrap().ino() } else { 0 };
    let log = [&log[..UNSYNCED_FILE.start], &inode.to_le_bytes(), &log[UNSYNCED_FILE.end..]].concat();
    std::fs::write(log_of(path), log).unwrap();
}

fn tables(store: &Store) -> usize {
    store.snapshot().unwrap().tables().unwrap().len()
}

/// Check that the database was begun anew, and works.
fn assert_begun(path: &Path, told: &str) {
    let store = open(path, Mode::Create).unwrap_or_else(|error| panic!("{told}: {error}"));
    assert_eq!(tables(&store), 0, "{told}");
    assert_eq!(store.warnings().unwrap(), [], "{told}");
    assert_eq!(store.check().unwrap(), [], "{told}");
}

#[test]
fn any_sectors_of_a_file_that_was_just_made_can_be_begun_anew() {
    let scratch = Scratch::new();
    let (unmarked, _) = left_by_the_dead(&scratch, 0);
    let (marked, _) = left_by_the_dead(&scratch, 1);
    // Before the proof is written, its place holds a zero proof.
    let mut unproven = unmarked.clone();
    unproven[PROOF..PROOF + 8].fill(0);
    unproven[PROOF + 8..PAGE].copy_from_slice(&xxhash_rust::xxh3::xxh3_64(&[0; 8]).to_le_bytes());
    let path = scratch.path("torn.pel");
    for (name, whole) in [("unmarked", &unmarked), ("marked", &marked), ("unproven", &unproven)] {
        let sectors: Vec<usize> = (0..4 * PAGE / SECTOR)
            .filter(|sector| whole[sector * SECTOR..][..SECTOR].iter().any(|byte| *byte != 0))
            .collect();
        assert!(sectors.starts_with(&[0, 7, 8]) && sectors.len() < 10, "{sectors:?}");
        for mask in 0..1_u32 << sectors.len() {
            let is_all = mask + 1 == 1 << sectors.len();
            let mut torn = whole.clone();
            for (index, sector) in sectors.iter().enumerate() {
                if mask & 1 << index == 0 {
                    torn[sector * SECTOR..][..SECTOR].fill(0);
                }
            }
            // Every length is combined with the whole pages; with the other combinations at random.
            let lengths: Vec<usize> =
                if is_all { (0..=4).collect() } else { vec![4, 2 + mask as usize % 2, mask as usize % 5] };
            for pages in lengths {
                let told = format!("{name}: {mask:b} of {sectors:?}, {pages} pages");
                let is_whole = is_all && pages == 4 && name != "unproven";
                std::fs::write(&path, &torn[..pages * PAGE]).unwrap();
                if is_whole {
                    // It has nothing but its identity; the log of its mark is reported as missing.
                    let store = open(&path, Mode::Write).unwrap();
                    let told: Vec<_> = store.warnings().unwrap();
                    assert_eq!(
                        matches!(told[..], [Warning::LogMissing { .. }]),
                        name == "marked",
                        "{told:?}"
                    );
                    drop(store);
                    assert_eq!(std::fs::read(&path).unwrap()[PAGE..], whole[PAGE..], "it is the same one");
                    continue;
                }
                if mask % 16 == 0 && pages > 0 {
                    let error = open(&path, Mode::Write).err().unwrap_or_else(|| panic!("{told}"));
                    assert!(error.to_string().contains("never completely created"), "{told}: {error}");
                }
                assert_begun(&path, &told);
                assert_eq!(scratch.names(), ["torn.pel"], "{told}");
            }
        }
    }
}

#[test]
fn one_commit_of_another_program_is_not_taken_for_ours_that_was_torn() {
    let scratch = Scratch::new();
    let path = scratch.path("foreign.mdb");
    let (mut file, _) = left_by_the_dead(&scratch, 0);
    // LMDB's own beginning, with a map of the same size: nothing of it is ours.
    file[7 * SECTOR..8 * SECTOR].fill(0);
    file[PAGE + 496..PAGE + SECTOR].fill(0);
    std::fs::write(&path, &file).unwrap();
    let error = open(&path, Mode::Create).err().unwrap();
    assert!(error.to_string().contains("an LMDB file of another program"), "{error}");
    assert!(std::fs::read(&path).unwrap() == file);
}

#[test]
fn damage_to_a_file_that_has_a_later_commit_is_never_taken_for_a_beginning() {
    let scratch = Scratch::new();
    let path = scratch.path("damaged.pel");
    let store = open(&path, Mode::Create).unwrap();
    let mut transaction = store.begin(Duration::from_secs(10)).unwrap();
    transaction.create_table("t").unwrap();
    transaction.commit().unwrap();
    drop((transaction, store));
    let whole = std::fs::read(&path).unwrap();
    assert!(whole.len() > 4 * PAGE);
    for sector in 0..whole.len() / SECTOR {
        let mut damaged = whole.clone();
        damaged[sector * SECTOR..][..SECTOR].fill(0);
        std::fs::write(&path, &damaged).unwrap();
        if let Ok(store) = open(&path, Mode::Create) {
            // Either the sector has no meaning, or reading its data fails.
            let tables = store.snapshot().and_then(|snapshot| snapshot.tables());
            assert!(tables.is_err() || tables.unwrap().len() == 1, "sector {sector}");
        }
        let _ = std::fs::remove_file(log_of(&path));
    }
}

#[test]
fn the_log_of_a_file_that_the_power_cut_took_goes_with_it_and_is_told() {
    let scratch = Scratch::new();
    let path = scratch.path("cut.pel");
    for commits in [0, 3] {
        let (file, log) = left_by_the_dead(&scratch, commits);
        let torn = [&file[..3 * PAGE], &[0; PAGE]].concat();
        for left in [&torn[..], &[], &torn[..2 * PAGE]] {
            place(&path, left, &log, true);
            let store = open(&path, Mode::Create).unwrap();
            let commits = u64::from(commits);
            let lost = Warning::LostCommits { path: path.display().to_string(), commits };
            let expected = if commits == 0 { Vec::new() } else { vec![lost] };
            assert_eq!(store.warnings().unwrap(), expected);
            assert_eq!(tables(&store), 0);
            drop(store);
            assert_eq!(scratch.names(), ["cut.pel"]);
            assert_begun(&path, "opened again");
            // The log's page with `unsynced_file` may be lost: then nothing shows that the log
            // belongs to another file.
            std::fs::write(&path, left).unwrap();
            std::fs::write(log_of(&path), [&[0; PAGE], &log[PAGE..]].concat()).unwrap();
            assert_begun(&path, "the log's first page is lost");
        }
        // The file is whole, and so is its log.
        place(&path, &file, &log, true);
        let store = open(&path, Mode::Create).unwrap();
        assert_eq!((store.warnings().unwrap(), tables(&store)), (Vec::new(), usize::from(commits > 0)));
        drop(store);
        std::fs::remove_file(&path).unwrap();
    }
}

#[test]
fn the_log_of_a_file_that_was_on_the_disk_is_kept() {
    let scratch = Scratch::new();
    let path = scratch.path("moved.pel");
    let refused = |what: &str| {
        let error = open(&path, Mode::Create).err().unwrap_or_else(|| panic!("{what}"));
        assert!(matches!(error, StoreError::ForeignLog { .. }), "{what}: {error}");
        assert!(error.to_string().contains("holds the last 2 commits"), "{what}: {error}");
    };
    let (file, log) = left_by_the_dead(&scratch, 2);
    for left in [&file[..2 * PAGE], b""] {
        place(&path, left, &log, false);
        refused("it was on the disk when it was moved");
        assert_eq!(std::fs::read(&path).unwrap(), left, "a refused open changes nothing");
    }
    // Moved in the first second: a power cut removes no name that is older than the log's, nor
    // gives it to another file.
    place(&path, b"", &log, true);
    std::fs::rename(&path, scratch.path("kept.pel")).unwrap();
    refused("it was moved");
    std::fs::write(&path, b"").unwrap();
    refused("it was moved, and another one is there");
    assert_eq!(scratch.names(), ["kept.pel", "moved.pel", "moved.pel-log"]);
}

#[test]
fn a_log_says_whether_the_file_beside_it_need_not_be_on_the_disk() {
    let scratch = Scratch::new();
    let path = scratch.path("said.pel");
    let (file, log) = left_by_the_dead(&scratch, 2);
    let store = open(&path, Mode::Create).unwrap();
    assert!(has_unsynced_file(&path), "it was just made");
    let beside = open(&path, Mode::Write).unwrap();
    store.sync().unwrap();
    assert!(!has_unsynced_file(&path), "it was synced");
    drop((store, beside));
    std::fs::write(&path, &file).unwrap();
    let store = open(&path, Mode::Write).unwrap();
    assert!(has_unsynced_file(&path), "its maker has died ahead of making a log");
    drop(store);
    place(&path, &file, &log, true);
    let store = open(&path, Mode::Read).unwrap();
    assert!(!has_unsynced_file(&path), "a process that takes a log over syncs the file");
    assert_eq!(tables(&store), 1);
    drop(store);
    let store = open(&path, Mode::Write).unwrap();
    assert!(!has_unsynced_file(&path), "it has a second commit");
    drop(store);
    let copy = scratch.path("copy.pel");
    open(&path, Mode::Read).unwrap().backup(&copy).unwrap();
    let store = open(&copy, Mode::Write).unwrap();
    assert!(!has_unsynced_file(&copy), "a copy is on the disk before it has its name");
    drop(store);
}
