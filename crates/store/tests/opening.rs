//! Tests opening: of paths that are no sound database, and of those that are.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::fs::{File, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use pellucid_store::engine::lmdb::{LmdbEngine, LmdbOptions};
use pellucid_store::{Mode, OpenOptions, Range, Store, StoreError, Warning};
use support::{Child, NOBODY, Scratch, key, put, record};

const WAIT: Duration = Duration::from_secs(10);

fn open(path: &Path, mode: Mode) -> Result<Store, StoreError> {
    Store::open(path, &OpenOptions { mode, timeout: Duration::from_millis(100), ..OpenOptions::default() })
}

fn refused(path: &Path, mode: Mode) -> StoreError {
    match open(path, mode) {
        Ok(_) => panic!("{} was opened with {mode:?}", path.display()),
        Err(error) => error,
    }
}

fn fill(path: &Path, rows: u32) {
    let store = open(path, Mode::Create).unwrap();
    let mut transaction = store.begin(WAIT).unwrap();
    let table = transaction.create_table("t").unwrap();
    for number in 0..rows {
        let value = format!("value {number} ").repeat(10);
        transaction.put(table, &key(&format!("{number:06}")), b"", &record(&value), &[]).unwrap();
    }
    transaction.commit().unwrap();
}

fn rows_of(store: &Store) -> u64 {
    let snapshot = store.snapshot().unwrap();
    let table = snapshot.table("t").unwrap().unwrap();
    let mut scan = snapshot.scan(table, &Range::ALL, false).unwrap();
    let mut count = 0;
    while scan.next().unwrap().is_some() {
        count += 1;
    }
    count
}

#[test]
fn a_new_database_is_one_file_with_a_magic_number_at_exactly_the_path() {
    let scratch = Scratch::new();
    let path = scratch.path("no suffix");
    fill(&path, 3);
    assert_eq!(scratch.names(), ["no suffix"]);
    let bytes = std::fs::read(&path).unwrap();
    assert_eq!(&bytes[4032..4048], b"pellucid db\0\r\n\x1a\n");
    assert_eq!(rows_of(&open(&path, Mode::Read).unwrap()), 3);
}

#[test]
fn r_and_w_need_an_existing_file_and_c_and_n_make_one() {
    let scratch = Scratch::new();
    let path = scratch.path("modes.pel");
    for mode in [Mode::Read, Mode::Write] {
        let error = refused(&path, mode);
        assert!(matches!(error, StoreError::NotFound { .. }));
        assert!(error.to_string().ends_with("does not exist; open it with mode 'c' to create it"), "{error}");
    }
    assert_eq!(scratch.names(), [""; 0], "nothing was made by trying");
    fill(&path, 5);
    assert_eq!(rows_of(&open(&path, Mode::Write).unwrap()), 5);
    assert_eq!(rows_of(&open(&path, Mode::Create).unwrap()), 5, "c keeps what is there");
    let store = open(&path, Mode::New).unwrap();
    assert!(store.snapshot().unwrap().tables().unwrap().is_empty());
    assert_eq!(store.check().unwrap(), []);
    drop(store);
    assert!(matches!(
        refused(&scratch.path("no/such/folder.pel"), Mode::Create),
        StoreError::NoFolder { .. }
    ));
}

#[test]
fn n_empties_in_one_transaction_while_others_look_on() {
    let scratch = Scratch::new();
    let path = scratch.path("n.pel");
    fill(&path, 5);
    let reader = open(&path, Mode::Read).unwrap();
    let snapshot = reader.snapshot().unwrap();
    let inode = std::fs::metadata(&path).unwrap().ino();
    let store = open(&path, Mode::New).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().ino(), inode, "the file is not replaced");
    assert_eq!(snapshot.count(snapshot.table("t").unwrap().unwrap()).unwrap(), 5);
    assert!(reader.snapshot().unwrap().tables().unwrap().is_empty());
    let mut transaction = store.begin(WAIT).unwrap();
    let table = transaction.create_table("t").unwrap();
    assert_ne!(Some(table), snapshot.table("t").unwrap(), "table ids are never used again");
    drop(transaction);
    drop((snapshot, reader, store));
    assert_eq!(scratch.names(), ["n.pel"]);
}

#[test]
fn foreign_files_are_refused_and_left_as_they_are() {
    let scratch = Scratch::new();
    let path = scratch.path("foreign");
    let contents = [b"hello".to_vec(), vec![0; 100_000], b"SQLite format 3\0".repeat(1000)];
    for content in contents {
        std::fs::write(&path, &content).unwrap();
        for mode in [Mode::Read, Mode::Write, Mode::Create, Mode::New] {
            let error = refused(&path, mode);
            assert!(matches!(error, StoreError::NotADatabase { .. }), "{error:?}");
            assert!(error.to_string().ends_with("it was left as it is"), "{error}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), content);
    }
    assert_eq!(scratch.names(), ["foreign"]);
}

#[test]
fn an_lmdb_file_of_another_program_is_refused_and_keeps_its_lock_file() {
    let scratch = Scratch::new();
    let path = scratch.path("data.mdb");
    let engine =
        LmdbEngine::open(&path, LmdbOptions { creates_trees: true, ..LmdbOptions::default() }).unwrap();
    let before = std::fs::read(&path).unwrap();
    for mode in [Mode::Read, Mode::New] {
        let error = refused(&path, mode);
        assert!(error.to_string().contains("an LMDB file of another program"), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
    assert_eq!(scratch.names(), ["data.mdb", "data.mdb-lock"]);
    drop(engine);
}

#[test]
fn folders_pipes_and_empty_files_are_told_apart() {
    let scratch = Scratch::new();
    let error = refused(scratch.folder(), Mode::Create);
    assert!(matches!(error, StoreError::IsDirectory { .. }), "{error}");
    let error = refused(Path::new("/dev/null"), Mode::Create);
    assert!(error.to_string().contains("not a regular file"), "{error}");
    let empty = scratch.path("empty.pel");
    File::create(&empty).unwrap();
    let error = refused(&empty, Mode::Write);
    assert!(error.to_string().contains("it is empty"), "{error}");
    fill(&empty, 2);
    assert_eq!(rows_of(&open(&empty, Mode::Read).unwrap()), 2, "c makes a database of an empty file");
}

#[test]
fn a_name_to_which_nothing_can_be_added_is_refused_with_what_to_do() {
    let scratch = Scratch::new();
    // A file name may have 255 bytes; five are needed for the lock file.
    for (size, is_long) in [(250, false), (251, true), (256, true)] {
        match open(&scratch.path(&"n".repeat(size)), Mode::Create) {
            Ok(_) => assert!(!is_long),
            Err(error) => assert!(error.to_string().contains("choose a shorter name") && is_long, "{error}"),
        }
    }
    assert_eq!(scratch.names(), ["n".repeat(250)], "nothing was made that cannot be used");
}

#[test]
fn a_file_that_was_cut_off_is_refused_before_the_engine_reads_behind_its_end() {
    let scratch = Scratch::new();
    let path = scratch.path("cut.pel");
    fill(&path, 2000);
    let whole = std::fs::read(&path).unwrap();
    for size in [whole.len() - 1, whole.len() / 2, 3 * 4096, 8192, 5000, 4096, 4095, 100, 17] {
        std::fs::write(&path, &whole[..size]).unwrap();
        let error = refused(&path, Mode::Write);
        let is_clear = match &error {
            StoreError::Truncated { needed, .. } => *needed > size as u64,
            // Without the stamp nothing shows that it was ours.
            StoreError::NotADatabase { .. } => size < 4064,
            _ => false,
        };
        assert!(is_clear, "{size} bytes: {error:?}");
    }
}

#[test]
fn a_newer_format_is_refused_with_both_numbers() {
    let scratch = Scratch::new();
    let path = scratch.path("newer.pel");
    fill(&path, 2);
    let file = File::options().write(true).open(&path).unwrap();
    let mut stamp = std::fs::read(&path).unwrap()[4032..4056].to_vec();
    stamp[16..20].copy_from_slice(&[9, 0, 7, 0]);
    let check = xxhash_rust::xxh3::xxh3_64(&stamp);
    file.write_all_at(&stamp, 4032).unwrap();
    file.write_all_at(&check.to_le_bytes(), 4056).unwrap();
    let error = refused(&path, Mode::Read);
    assert!(matches!(error, StoreError::NewerFormat { found: 7, newest: 3, .. }), "{error:?}");
    assert!(
        error
            .to_string()
            .ends_with("has format 7, but this build reads up to 3; upgrade pellucid to read it")
    );
}

#[test]
fn a_damaged_first_page_is_not_taken_for_a_foreign_file() {
    let scratch = Scratch::new();
    let path = scratch.path("damaged.pel");
    fill(&path, 2);
    let whole = std::fs::read(&path).unwrap();
    for offset in [16, 10, 4040, 4050, 4060] {
        let mut damaged = whole.clone();
        damaged[offset] ^= 0x40;
        std::fs::write(&path, &damaged).unwrap();
        let error = refused(&path, Mode::Write);
        let is_clear = matches!(error, StoreError::Corrupt { .. })
            // Without our magic number nothing shows that it was ours.
            || matches!(error, StoreError::NotADatabase { .. }) && offset == 4040;
        assert!(is_clear, "offset {offset}: {error:?}");
        assert!(!error.to_string().contains("run check"), "what cannot be opened cannot be checked: {error}");
    }
}

#[test]
fn without_the_right_to_write_it_is_read() {
    let scratch = Scratch::new();
    let path = scratch.path("foreign-owner.pel");
    fill(&path, 4);
    std::fs::set_permissions(scratch.folder(), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    let is_root = std::fs::metadata("/proc/self").unwrap().uid() == 0;
    let mut child = Child::without_rights(&scratch);
    if !is_root {
        std::fs::set_permissions(scratch.folder(), Permissions::from_mode(0o555)).unwrap();
    }
    let name = path.display();
    let answer = child.ask(&format!("open {name} w 100"));
    assert!(answer.starts_with("error AccessDenied no permission for"), "{answer}");
    assert!(answer.ends_with("to be written; open it with mode 'r' to read it"), "{answer}");
    child.must(&[&format!("open {name} r 100")]);
    assert_eq!(child.ask("warnings"), "");
    assert_eq!(child.ask("get t 000001"), "value 1 ".repeat(10).trim_end());
    let answer = child.ask("begin 100");
    assert!(answer.starts_with("error ReadOnly"), "{answer}");

    child.must(&["close"]);
    std::fs::set_permissions(scratch.folder(), Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn who_may_not_write_keeps_nobody_from_writing() {
    let scratch = Scratch::new();
    let path = scratch.path("foreign-owner.pel");
    fill(&path, 4);
    std::fs::set_permissions(scratch.folder(), Permissions::from_mode(0o755)).unwrap();
    let mut child = Child::without_rights(&scratch);
    let opened = format!("open {} r 1000", path.display());
    let rights = |mode| std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    rights(0o444);
    child.must(&[&opened]);
    assert_eq!(scratch.names(), ["child", "foreign-owner.pel"], "a reader makes no files");
    rights(0o644);
    let mut writer = Child::new();
    writer.must(&[&format!("open {} w 1000", path.display())]);
    // The next one shares its lock file and its log, but not under another name.
    let store = open(&path, Mode::Write).unwrap();
    let link = scratch.path("link.pel");
    std::fs::hard_link(&path, &link).unwrap();
    let answer = Child::new().ask(&format!("open {} w 100", link.display()));
    assert!(answer.contains("is open under another name"), "{answer}");
    std::fs::remove_file(link).unwrap();
    writer.must(&["begin 1000", "put t 000001 first", "commit"]);
    assert_eq!(rows_of(&store), 4);
    store.close();
    // It reads the log of a process that was there before it. Others read what is in the file.
    let mut late = Child::without_rights(&scratch);
    rights(0o444);
    std::fs::set_permissions(scratch.path("foreign-owner.pel-lock"), Permissions::from_mode(0o400)).unwrap();
    late.must(&[&opened]);
    rights(0o644);
    assert_eq!(late.ask("get t 000001"), "first");
    writer.must(&["begin 1000", "put t 000001 second", "commit"]);
    assert_eq!(late.ask("get t 000001"), "second");
    // The last process that may write leaves everything in the file.
    writer.must(&["close"]);
    assert_eq!([&mut child, &mut late].map(|child| child.ask("get t 000001")), ["second", "second"]);
    let store = open(&path, Mode::Write).unwrap();
    let busy = store.compact(Duration::ZERO).unwrap_err();
    assert!(
        matches!(&busy, StoreError::Busy { holders, .. } if holders.iter().any(|holder| holder.pid == child.pid())),
        "{busy:?}"
    );
    drop((child, late));
    drop(store);
    assert_eq!(rows_of(&open(&path, Mode::Write).unwrap()), 4);
    assert_eq!(scratch.names(), ["child", "foreign-owner.pel"]);
}

/// A child that may not write a database, and has it open.
fn reader_of(scratch: &Scratch, path: &Path) -> Child {
    std::fs::set_permissions(scratch.folder(), Permissions::from_mode(0o755)).unwrap();
    let mut child = Child::without_rights(scratch);
    std::fs::set_permissions(path, Permissions::from_mode(0o444)).unwrap();
    child.must(&[&format!("open {} r 1000", path.display())]);
    std::fs::set_permissions(path, Permissions::from_mode(0o644)).unwrap();
    child
}

#[test]
fn a_reader_of_a_copied_log_sees_what_the_owner_commits_whatever_it_keeps() {
    let scratch = Scratch::new();
    let path = scratch.path("copied.pel");
    fill(&path, 4);
    let mut dead = Child::new();
    dead.must(&[&format!("open {} w 1000", path.display()), "begin 1000", "put t last 0", "commit"]);
    dead.kill();
    let mut reader = reader_of(&scratch, &path);
    reader.must(&["snapshot"]);
    let store = open(&path, Mode::Write).unwrap();
    assert_eq!(reader.ask("newest t last"), "0", "the owner has only taken it over");
    for turn in 1..4 {
        put(&store, "t", "last", &turn.to_string());
        put(&store, &format!("t{turn}"), "last", &turn.to_string());
        store.sync().unwrap();
        assert_eq!(reader.ask("newest t last"), turn.to_string());
        assert_eq!(reader.ask(&format!("newest t{turn} last")), turn.to_string(), "a new table");
        assert_eq!(reader.ask("get t last"), "0", "what it has kept");
    }
    reader.must(&["forget"]);
    assert_eq!(reader.ask("get t last"), "3");
    drop(store);
    assert_eq!(reader.ask("check"), "[]");
}

#[test]
fn what_lies_beside_a_database_has_its_rights() {
    let scratch = Scratch::new();
    let path = scratch.path("shared.pel");
    let beside = [scratch.path("shared.pel-lock"), scratch.path("shared.pel-log")];
    fill(&path, 4);
    let rights_of = |path: &Path| {
        let metadata = path.metadata().unwrap();
        (metadata.mode() & 0o777, metadata.uid(), metadata.gid())
    };
    // The log gets the permissions of the database, whatever the umask of a test removes or leaves.
    for mode in [0o600, 0o660, 0o666] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let rights = rights_of(&path);
        assert_eq!(rights.0, mode);
        let store = open(&path, Mode::Write).unwrap();
        assert_eq!(beside.each_ref().map(|path| rights_of(path)), [rights, rights]);
        let backup = scratch.path("backup.pel");
        store.backup(&backup).unwrap();
        assert_eq!(rights_of(&backup).0 & !mode, 0, "nobody may read it who may not read the database");
        std::fs::remove_file(backup).unwrap();
        store.compact(Duration::from_secs(1)).unwrap();
        assert_eq!([&path, &beside[0], &beside[1]].map(|path| rights_of(path)), [rights; 3]);
    }
    // Root makes the files beside another user's database without locking anyone out.
    if std::fs::metadata("/proc/self").unwrap().uid() == 0 {
        std::fs::set_permissions(scratch.folder(), Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
        let rights = rights_of(&path);
        let store = open(&path, Mode::Write).unwrap();
        store.compact(Duration::from_secs(1)).unwrap();
        assert_eq!([&path, &beside[0], &beside[1]].map(|path| rights_of(path)), [rights; 3]);
        let mut child = Child::without_rights(&scratch);
        child.must(&[&format!("open {} w 1000", path.display()), "begin 1000", "put t last 5", "commit"]);
        assert_eq!(rows_of(&store), 5);
    }
}

#[test]
fn of_writers_that_close_at_once_beside_a_reader_one_runs_the_checkpoint() {
    let scratch = Scratch::new();
    let path = scratch.path("closed.pel");
    fill(&path, 4);
    let _reader = reader_of(&scratch, &path);
    let copy = scratch.path("copy.pel");
    for round in 0..20 {
        let mut writers = [Child::new(), Child::new()];
        for writer in &mut writers {
            writer.must(&[&format!("open {} w 5000", path.display()), "begin 5000"]);
            writer.must(&[&format!("put t round{round} {}", writer.pid()), "commit"]);
        }
        for writer in &mut writers {
            writer.tell("close");
        }
        for writer in &mut writers {
            assert_eq!(writer.hear(), "ok");
        }
        std::fs::copy(&path, &copy).unwrap();
        let store = open(&copy, Mode::Read).unwrap();
        assert_eq!(rows_of(&store), 5 + round, "round {round}");
    }
}

#[test]
fn in_a_folder_that_takes_no_files_it_is_read_with_what_a_log_says() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.path("shut")).unwrap();
    let path = scratch.path("shut/here.pel");
    fill(&path, 4);
    let name = path.display();
    let mut child = Child::new();
    child.must(&[&format!("open {name} w 1000"), "begin 1000", "put t last 5", "commit"]);
    child.kill();
    // At rest except for the log, as a dead process leaves it; the file itself may be written.
    let lock = scratch.path("shut/here.pel-lock");
    let log = scratch.path("shut/here.pel-log");
    std::fs::remove_file(&lock).unwrap();
    for file in [&path, &log] {
        std::fs::set_permissions(file, Permissions::from_mode(0o666)).unwrap();
    }
    let before = (std::fs::read(&path).unwrap(), std::fs::read(&log).unwrap());
    std::fs::set_permissions(scratch.folder(), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(scratch.path("shut"), Permissions::from_mode(0o555)).unwrap();
    let (mut one, mut other) = (Child::without_rights(&scratch), Child::without_rights(&scratch));
    for child in [&mut one, &mut other] {
        child.must(&[&format!("open {name} r 100")]);
        assert_eq!(child.ask("warnings"), "");
        assert_eq!(child.ask("get t last"), "5");
        assert!(child.ask("begin 100").starts_with("error ReadOnly"));
    }
    one.must(&["close"]);
    other.must(&["close"]);
    let answer = other.ask(&format!("open {name} w 100"));
    assert!(
        answer.starts_with("error AccessDenied no permission for") && answer.contains("-lock'"),
        "{answer}"
    );
    std::fs::set_permissions(scratch.path("shut"), Permissions::from_mode(0o755)).unwrap();
    assert!((std::fs::read(&path).unwrap(), std::fs::read(&log).unwrap()) == before, "nothing was written");
    // Without its log it gives a warning each time it is opened: the mark stays where it cannot be
    // written.
    std::fs::remove_file(&log).unwrap();
    std::fs::set_permissions(scratch.path("shut"), Permissions::from_mode(0o555)).unwrap();
    for _ in 0..2 {
        one.must(&[&format!("open {name} r 100")]);
        assert!(one.ask("warnings").contains("or its log was taken away: it has everything up to version"));
        assert_eq!(one.ask("get t last"), "none");
        one.must(&["close"]);
    }
    std::fs::set_permissions(scratch.path("shut"), Permissions::from_mode(0o755)).unwrap();
    std::fs::write(&log, &before.1).unwrap();
    let store = open(&path, Mode::Write).unwrap();
    assert_eq!(rows_of(&store), 5);
    assert_eq!(store.warnings().unwrap(), []);
}

#[test]
fn whoever_may_write_beside_one_who_may_only_read_makes_sure_of_the_log() {
    let scratch = Scratch::new();
    let path = scratch.path("stale.pel");
    fill(&path, 4);
    let (name, log) = (path.display(), scratch.path("stale.pel-log"));
    let mut child = Child::new();
    child.must(&[&format!("open {name} w 1000")]);
    let mut put = |number: usize| {
        child.must(&["begin 1000", &format!("put t new{number} {number}"), "commit"]);
        let mut first_page = vec![0; 4096];
        File::open(&log).unwrap().read_exact_at(&mut first_page, 0).unwrap();
        first_page
    };
    let stale = (0..5).map(&mut put).collect::<Vec<_>>();
    (5..20).for_each(|number| drop(put(number)));
    child.kill();
    // As a power cut leaves it: the first page was once on the disk, and all WAL records are there.
    File::options().write(true).open(&log).unwrap().write_all_at(&stale[4], 0).unwrap();
    std::fs::set_permissions(scratch.folder(), Permissions::from_mode(0o755)).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    std::fs::set_permissions(&log, Permissions::from_mode(0o644)).unwrap();
    let mut reader = Child::without_rights(&scratch);
    reader.must(&[&format!("open {name} r 1000")]);
    assert_eq!(reader.ask("get t new19"), "19");
    assert!(reader.ask("begin 100").starts_with("error ReadOnly"));
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let store = open(&path, Mode::Write).unwrap();
    assert_eq!(rows_of(&store), 24);
    let mut second = Child::new();
    second.must(&[&format!("open {name} w 1000"), "begin 1000", "put t last 20", "commit"]);
    assert_eq!(rows_of(&store), 25);
    drop(store);
    second.must(&["close"]);
    reader.must(&["close"]);
    assert_eq!(rows_of(&open(&path, Mode::Write).unwrap()), 25);
}

#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    let scratch = Scratch::new();
    let path = scratch.path("full.pel");
    fill(&path, 10);
    let name = path.display();
    // The shell's file size limit stands in for a full disk: the system refuses to write beyond it.
    let mut child = Child::through_shell("trap '' XFSZ; ulimit -f 1200");
    child.must(&[&format!("open {name} w 1000"), "begin 1000", "put t small 1", "commit", "begin 1000"]);
    let value = "x".repeat(60_000);
    let mut answer = String::new();
    for number in 0..40 {
        answer = child.ask(&format!("put t big{number} {value}"));
        if answer != "ok" {
            break;
        }
    }
    if answer == "ok" {
        answer = child.ask("commit");
    }
    assert!(answer.starts_with("error DiskFull no room on the disk for"), "{answer}");
    assert_eq!(child.ask("get t small"), "1");
    assert_eq!(child.ask("get t big0"), "none");
    child.must(&["begin 1000", "put t small 2", "commit"]);
    assert_eq!(child.ask("get t small"), "2", "there is still room for little");
    assert_eq!(child.ask("check"), "[]");
    child.must(&["close"]);
    assert_eq!(rows_of(&open(&path, Mode::Write).unwrap()), 11);

    let fresh = scratch.path("fresh.pel");
    let mut child = Child::through_shell("trap '' XFSZ; ulimit -f 10");
    let answer = child.ask(&format!("open {} c 1000", fresh.display()));
    assert!(answer.starts_with("error DiskFull"), "{answer}");
    fill(&fresh, 1);
    assert_eq!(
        rows_of(&open(&fresh, Mode::Read).unwrap()),
        1,
        "what could not be created can be tried again"
    );
}

#[test]
fn a_process_that_can_reserve_little_address_space_takes_less() {
    let scratch = Scratch::new();
    let path = scratch.path("little.pel");
    fill(&path, 10);
    let mut child = Child::through_shell("ulimit -v 2000000");
    child.must(&[&format!("open {} w 1000", path.display()), "begin 1000", "put t a 1", "commit"]);
    assert_eq!(child.ask("get t a"), "1");
}

#[test]
fn opening_waits_for_whoever_has_the_file_alone() {
    let scratch = Scratch::new();
    let path = scratch.path("alone.pel");
    fill(&path, 1);
    let holder = File::open(&path).unwrap();
    holder.lock().unwrap();
    let begin = Instant::now();
    let error = refused(&path, Mode::Read);
    assert!(begin.elapsed() >= Duration::from_millis(100));
    assert!(matches!(error, StoreError::Busy { .. }), "{error:?}");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(50));
            holder.unlock().unwrap();
        });
        let options = OpenOptions { mode: Mode::Read, timeout: WAIT, ..OpenOptions::default() };
        assert_eq!(rows_of(&Store::open(&path, &options).unwrap()), 1);
    });
}

#[test]
fn who_shares_the_file_with_one_that_is_only_just_opening_it_tries_again() {
    let scratch = Scratch::new();
    let path = scratch.path("shared.pel");
    fill(&path, 3);
    // Like a process that tried to lock the file exclusively while the last one had it, and then
    // shared it when that one was gone.
    let other = File::open(&path).unwrap();
    other.lock_shared().unwrap();
    let later = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(100));
        other.unlock().unwrap();
        other
    });
    let options = OpenOptions { mode: Mode::Write, timeout: WAIT, ..OpenOptions::default() };
    assert_eq!(rows_of(&Store::open(&path, &options).unwrap()), 3);
    later.join().unwrap();
}

#[test]
fn an_untrusted_file_is_read_through_a_verified_copy() {
    let scratch = Scratch::new();
    let path = scratch.path("stranger.pel");
    fill(&path, 500);
    let options = OpenOptions { is_untrusted: true, ..OpenOptions::with_mode(Mode::Read) };
    let store = Store::open(&path, &options).unwrap();
    assert_eq!(rows_of(&store), 500);
    assert_eq!(store.check().unwrap(), []);
    assert!(matches!(store.begin(WAIT), Err(StoreError::ReadOnly { .. })));
    drop(store);
    assert_eq!(scratch.names(), ["stranger.pel"]);
    let write = OpenOptions { is_untrusted: true, ..OpenOptions::with_mode(Mode::Write) };
    assert!(matches!(Store::open(&path, &write), Err(StoreError::Unsupported { .. })));

    // One bit of one record: the engine trusts it, the copy does not.
    let mut bytes = std::fs::read(&path).unwrap();
    let offset = bytes.windows(9).position(|window| window == b"value 123").unwrap();
    bytes[offset] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert_eq!(rows_of(&open(&path, Mode::Read).unwrap()), 500);
    let error = Store::open(&path, &options).err().unwrap();
    assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}");
}

#[test]
fn forged_pages_do_not_get_past_the_verified_copy() {
    let scratch = Scratch::new();
    let path = scratch.path("forged.pel");
    fill(&path, 300);
    let whole = std::fs::read(&path).unwrap();
    let options = OpenOptions { is_untrusted: true, ..OpenOptions::with_mode(Mode::Read) };
    let mut chance = support::Chance::new("forged_pages_do_not_get_past_the_verified_copy");
    for _ in 0..300 {
        let mut forged = whole.clone();
        for _ in 0..=chance.below(4) {
            let offset = 8192 + chance.below(forged.len() - 8192);
            let page = offset / 4096 * 4096;
            // Mostly where pages have their numbers, flags and offsets.
            let offset = if chance.one_in(2) { page + chance.below(64) } else { offset };
            forged[offset] = chance.next() as u8;
        }
        std::fs::write(&path, &forged).unwrap();
        match Store::open(&path, &options) {
            Ok(store) => assert_eq!(rows_of(&store), 300),
            Err(error) => assert!(matches!(error, StoreError::Corrupt { .. }), "{error:?}"),
        }
    }
}

#[test]
fn a_database_on_a_local_disk_has_no_warnings() {
    let scratch = Scratch::new();
    let store = open(&scratch.path("local.pel"), Mode::Create).unwrap();
    assert_eq!(store.warnings().unwrap(), []);
    let warning = Warning::NetworkFileSystem { path: "x".to_owned(), name: "NFS" };
    assert!(warning.to_string().contains("network file system (NFS)"));
}

#[test]
fn a_writer_of_another_pid_namespace_is_noticed() {
    let scratch = Scratch::new();
    let path = scratch.path("container.pel");
    fill(&path, 1);
    let mut child = Child::new();
    child.must(&[&format!("open {} w 1000", path.display())]);
    // As if the child lived in another container: the namespace in the log is another number.
    let side = File::options().write(true).open(scratch.path("container.pel-log")).unwrap();
    side.write_all_at(&4_000_000_000_u64.to_le_bytes(), 32).unwrap();
    let store = open(&path, Mode::Write).unwrap();
    let warnings = store.warnings().unwrap();
    assert!(matches!(&warnings[..], [Warning::OtherNamespace { .. }]), "{warnings:?}");
}
