//! Tests the files that may lie beside a database, and what becomes of them.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use pellucid_store::{Durability, Mode, OpenOptions, Store, StoreError, Warning};
use support::{Child, Scratch, key, record};
use xxhash_rust::xxh3::xxh3_64;

const WAIT: Duration = Duration::from_secs(10);
/// The offset of the kind in a file's stamp, and the kinds of copies.
const KIND_AT: u64 = 4052;
const UNFINISHED: u32 = 1;
const UNNAMED: u32 = 2;

fn open(path: &Path, mode: Mode) -> Result<Store, StoreError> {
    Store::open(path, &OpenOptions { mode, ..OpenOptions::default() })
}

fn put(store: &Store, name: &str, value: &str) -> Result<(), StoreError> {
    let mut transaction = store.begin(WAIT)?;
    let id = match transaction.table("t")? {
        Some(id) => id,
        None => transaction.create_table("t")?,
    };
    transaction.put(id, &key(name), b"", &record(value), &[])?;
    transaction.commit()
}

fn get(store: &Store, name: &str) -> Option<Vec<u8>> {
    let snapshot = store.snapshot().unwrap();
    let table = snapshot.table("t").unwrap()?;
    snapshot.get(table, &key(name)).unwrap().map(|cell| cell.record.to_vec())
}

/// A database at rest, with one row.
fn made(scratch: &Scratch, name: &str) -> PathBuf {
    let path = scratch.path(name);
    let store = open(&path, Mode::Create).unwrap();
    put(&store, "a", "1").unwrap();
    drop(store);
    path
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

fn set_kind(path: &Path, kind: u32) {
    let file = std::fs::File::options().read(true).write(true).open(path).unwrap();
    file.write_all_at(&kind.to_le_bytes(), KIND_AT).unwrap();
    let mut stamp = [0; 24];
    file.read_exact_at(&mut stamp, 4032).unwrap();
    file.write_all_at(&xxh3_64(&stamp).to_le_bytes(), 4056).unwrap();
}

#[test]
fn reading_the_lock_file_in_the_process_that_has_it_open_hides_no_reader() {
    let scratch = Scratch::new();
    let path = scratch.path("locks.pel");
    let store = open(&path, Mode::Create).unwrap();
    put(&store, "a", "1").unwrap();
    store.sync().unwrap();
    let snapshot = store.snapshot().unwrap();
    let mut child = Child::new();
    child.must(&[&format!("open {} w 1000", path.display())]);
    let readers = child.ask("readers");
    // As a backup of the folder by another library in this process does.
    std::fs::read(beside(&path, "-lock")).unwrap();
    assert_eq!(child.ask("readers"), readers);
    // A process that comes later uses the existing lock file.
    child.kill();
    let mut child = Child::new();
    child.must(&[&format!("open {} w 1000", path.display())]);
    assert_eq!(child.ask("readers"), readers);
    drop(snapshot);
}

#[test]
fn no_link_is_followed_and_no_pipe_waited_for_at_the_names_of_log_and_lock_file() {
    let scratch = Scratch::new();
    let path = made(&scratch, "safe.pel");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o666)).unwrap();
    let victim = scratch.path("victim");
    for suffix in ["-log", "-lock"] {
        let there = beside(&path, suffix);
        for kind in ["link", "link to nothing", "hard link", "pipe", "folder"] {
            for mode in [Mode::Write, Mode::Read] {
                let _ = std::fs::remove_file(&victim);
                if kind != "link to nothing" {
                    std::fs::write(&victim, b"").unwrap();
                    std::fs::set_permissions(&victim, std::fs::Permissions::from_mode(0o600)).unwrap();
                }
                match kind {
                    "hard link" => std::fs::hard_link(&victim, &there).unwrap(),
                    "pipe" => {
                        let made = std::process::Command::new("mkfifo").arg(&there).status().unwrap();
                        assert!(made.success());
                    }
                    "folder" => std::fs::create_dir(&there).unwrap(),
                    _ => std::os::unix::fs::symlink(&victim, &there).unwrap(),
                }
                let opened = open(&path, mode);
                let told = format!("{kind} at {suffix}, {mode:?}");
                // A lock file with a second name is left over from a dead process; its name here is
                // removed.
                if (kind, suffix) == ("hard link", "-lock") {
                    drop(opened.unwrap());
                    assert!(!there.exists(), "{told}");
                } else {
                    let error = opened.err().unwrap_or_else(|| panic!("{told}: opened"));
                    let StoreError::StrangeFile { path, .. } = &error else { panic!("{told}: {error:?}") };
                    assert_eq!(Path::new(path), there, "{told}");
                    assert!(error.to_string().contains("move it away"), "{error}");
                    assert!(there.symlink_metadata().is_ok(), "{told}");
                    if kind == "folder" {
                        std::fs::remove_dir(&there).unwrap();
                    } else {
                        std::fs::remove_file(&there).unwrap();
                    }
                }
                if kind == "link to nothing" {
                    assert!(!victim.exists(), "{told}");
                } else {
                    let found = victim.metadata().unwrap();
                    assert_eq!((found.mode() & 0o777, found.len()), (0o600, 0), "{told}");
                    std::fs::remove_file(&victim).unwrap();
                }
                assert_eq!(scratch.names(), ["safe.pel"], "{told}");
            }
        }
    }
    assert!(get(&open(&path, Mode::Read).unwrap(), "a").is_some());
}

#[test]
fn compact_writes_through_no_link_and_waits_for_no_pipe() {
    let scratch = Scratch::new();
    let path = made(&scratch, "a.pel");
    let victim = scratch.path("victim");
    std::fs::write(&victim, b"mine").unwrap();
    let there = beside(&path, "-compact");
    for kind in ["link", "pipe"] {
        if kind == "link" {
            std::os::unix::fs::symlink(&victim, &there).unwrap();
        } else {
            assert!(std::process::Command::new("mkfifo").arg(&there).status().unwrap().success());
        }
        let store = open(&path, Mode::Write).unwrap();
        assert!(matches!(store.compact(WAIT), Err(StoreError::TargetExists { .. })), "{kind}");
        assert!(get(&store, "a").is_some());
        drop(store);
        std::fs::remove_file(&there).unwrap();
        assert_eq!(std::fs::read(&victim).unwrap(), b"mine");
        assert_eq!(scratch.names(), ["a.pel", "victim"]);
    }
}

#[test]
fn a_log_of_which_the_creator_died_is_made_anew_with_the_rights_of_the_database() {
    let scratch = Scratch::new();
    let path = made(&scratch, "a.pel");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o660)).unwrap();
    let log = beside(&path, "-log");
    std::fs::write(&log, [0; 5000]).unwrap();
    std::fs::set_permissions(&log, std::fs::Permissions::from_mode(0o604)).unwrap();
    let store = open(&path, Mode::Write).unwrap();
    put(&store, "b", "2").unwrap();
    assert_eq!(log.metadata().unwrap().mode() & 0o777, 0o660);
    drop(store);
    assert_eq!(scratch.names(), ["a.pel"]);
}

#[test]
fn an_open_that_fails_leaves_nothing_beside_the_file() {
    let scratch = Scratch::new();
    let path = made(&scratch, "a.pel");
    // The log of another database.
    let other = scratch.path("other.pel");
    let mut child = Child::new();
    child.must(&[
        &format!("open {} c 1000", other.display()),
        "begin 1000",
        "create t",
        "put t a 1",
        "commit",
    ]);
    child.kill();
    let log = beside(&path, "-log");
    std::fs::rename(beside(&other, "-log"), &log).unwrap();
    std::fs::remove_file(&other).unwrap();
    std::fs::remove_file(beside(&other, "-lock")).unwrap();
    let before = std::fs::read(&log).unwrap();
    // Alone, and beside a process that may not write.
    for is_alone in [true, false] {
        let reader = std::fs::File::open(&path).unwrap();
        if !is_alone {
            reader.lock_shared().unwrap();
        }
        for mode in [Mode::Write, Mode::Read, Mode::Create] {
            let refused = open(&path, mode).err().unwrap();
            assert!(matches!(&refused, StoreError::ForeignLog { .. }), "{refused:?}");
            assert_eq!(scratch.names(), ["a.pel", "a.pel-log"], "alone: {is_alone}");
            assert!(std::fs::read(&log).unwrap() == before, "it is another one's");
        }
    }
}

#[test]
fn a_database_called_as_what_compact_makes_is_never_removed() {
    let scratch = Scratch::new();
    let (path, other) = (made(&scratch, "data"), made(&scratch, "data-compact"));
    // As a death between the removal of its log and of its lock file leaves it.
    std::fs::write(beside(&other, "-lock"), b"").unwrap();
    let store = open(&path, Mode::Write).unwrap();
    assert!(matches!(store.compact(WAIT), Err(StoreError::TargetExists { .. })));
    drop(store);
    assert!(get(&open(&other, Mode::Write).unwrap(), "a").is_some());
    assert_eq!(scratch.names(), ["data", "data-compact"]);
}

#[test]
fn a_database_called_as_what_backup_makes_is_never_removed() {
    let scratch = Scratch::new();
    let (path, other) = (made(&scratch, "data"), made(&scratch, "copy.part-12"));
    let unfinished = scratch.path("copy.part-13");
    std::fs::copy(&path, &unfinished).unwrap();
    set_kind(&unfinished, UNFINISHED);
    std::fs::write(scratch.path("copy.part-15"), b"").unwrap();
    open(&path, Mode::Write).unwrap().backup(scratch.path("copy")).unwrap();
    assert_eq!(scratch.names(), ["copy", "copy.part-12", "data"]);
    assert!(get(&open(&other, Mode::Read).unwrap(), "a").is_some());
    // Nor is a backup a leftover, whatever its name is.
    let named = scratch.path("copy.part-14");
    open(&path, Mode::Write).unwrap().backup(&named).unwrap();
    std::fs::remove_file(scratch.path("copy")).unwrap();
    open(&path, Mode::Write).unwrap().backup(scratch.path("copy")).unwrap();
    assert!(get(&open(&named, Mode::Read).unwrap(), "a").is_some());
}

#[test]
fn a_copy_that_a_dead_compact_left_goes_and_is_no_database_before_it_is_whole() {
    let scratch = Scratch::new();
    let path = made(&scratch, "data");
    let left = beside(&path, "-compact");
    for kind in [UNFINISHED, UNNAMED] {
        std::fs::copy(&path, &left).unwrap();
        set_kind(&left, kind);
        drop(open(&path, Mode::Read).unwrap());
        assert_eq!(scratch.names(), ["data"], "kind {kind}");
    }
    std::fs::copy(&path, &left).unwrap();
    set_kind(&left, UNFINISHED);
    for mode in [Mode::Read, Mode::Write, Mode::Create] {
        let error = open(&left, mode).err().unwrap();
        assert!(error.to_string().contains("compact or backup has not finished"), "{error}");
    }
    // A complete copy may be saved under another name, and is a database from then on.
    set_kind(&left, UNNAMED);
    drop(open(&left, Mode::Write).unwrap());
    drop(open(&path, Mode::Write).unwrap());
    assert_eq!(scratch.names(), ["data", "data-compact"]);
    let store = open(&path, Mode::Write).unwrap();
    std::fs::remove_file(&left).unwrap();
    store.compact(WAIT).unwrap();
    drop(store);
    let mut kind = [9; 4];
    std::fs::File::open(&path).unwrap().read_exact_at(&mut kind, KIND_AT).unwrap();
    assert_eq!(kind, [0; 4], "a compacted database is a database");
}

#[test]
fn an_empty_file_that_a_dead_compact_left_goes() {
    let scratch = Scratch::new();
    let path = made(&scratch, "data");
    let left = beside(&path, "-compact");
    let create = |mode| std::fs::File::options().write(true).create_new(true).mode(mode).open(&left).unwrap();
    // A process has begun a copy, and is about to mark it.
    let file = create(0o600);
    file.lock().unwrap();
    drop(open(&path, Mode::Write).unwrap());
    assert_eq!(scratch.names(), ["data", "data-compact"]);
    // Closing is not enough: a child that another test has just forked has the open file as well.
    file.unlock().unwrap();
    drop(file);
    drop(open(&path, Mode::Write).unwrap());
    assert_eq!(scratch.names(), ["data"]);
    // `compact` creates no file that other users may read.
    drop(create(0o644));
    drop(open(&path, Mode::Write).unwrap());
    assert_eq!(scratch.names(), ["data", "data-compact"]);
}

#[test]
fn a_file_that_is_deleted_while_it_is_open_is_told_and_can_be_saved() {
    for is_replaced in [false, true] {
        let scratch = Scratch::new();
        let path = made(&scratch, "a.pel");
        let store = open(&path, Mode::Write).unwrap();
        let full = OpenOptions { durability: Durability::Full, ..OpenOptions::default() };
        let careful = Store::open(&path, &full).unwrap();
        put(&store, "b", "2").unwrap();
        store.sync().unwrap();
        std::fs::remove_file(&path).unwrap();
        if is_replaced {
            std::fs::write(&path, b"another").unwrap();
        }
        put(&store, "c", "3").unwrap();
        for refused in [store.sync(), put(&careful, "d", "4")] {
            let error = refused.unwrap_err();
            assert!(matches!(&error, StoreError::FileDeleted { .. }), "{error:?}");
            assert!(error.to_string().contains("backup(\"another path\")"), "{error}");
        }
        let saved = scratch.path("saved.pel");
        store.backup(&saved).unwrap();
        drop(careful);
        let warning = store.close();
        assert!(matches!(&warning, Some(Warning::FileDeleted { .. })), "{warning:?}");
        let saved = open(&saved, Mode::Read).unwrap();
        assert!(["a", "b", "c", "d"].iter().all(|name| get(&saved, name).is_some()));
        if is_replaced {
            assert_eq!(std::fs::read(&path).unwrap(), b"another");
        }
    }
}

#[test]
fn a_file_that_is_renamed_while_it_is_open_goes_on() {
    let scratch = Scratch::new();
    let (path, moved) = (made(&scratch, "a.pel"), scratch.path("moved.pel"));
    let store = open(&path, Mode::Write).unwrap();
    std::fs::rename(&path, &moved).unwrap();
    put(&store, "b", "2").unwrap();
    store.sync().unwrap();
    assert_eq!(store.close(), None);
    assert!(get(&open(&moved, Mode::Read).unwrap(), "b").is_some());
}

#[test]
fn a_deleted_file_that_this_process_has_only_read_is_no_loss_of_its() {
    let scratch = Scratch::new();
    let path = made(&scratch, "a.pel");
    let store = open(&path, Mode::Write).unwrap();
    assert!(get(&store, "a").is_some());
    std::fs::remove_file(&path).unwrap();
    assert_eq!(store.close(), None);
}
