"""What does a commit get when the log cannot be created, mapped, grown or synced?"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import faults
import pellucid
import pytest
from processes import Child, Raised

# As long as a value of the log may be.
ROW = b"x" * 100_000


@pytest.fixture
def child(faulty: str) -> Iterator[Child]:
    """Another process, in which the system fails where it is told to."""
    with Child(preload=faulty) as process:
        process(faults.PRELUDE)
        yield process


def opening(path: Path, mode: str = "c", **options: object) -> str:
    return f"db = pellucid.open({str(path)!r}, {mode!r}, **{options!r})"


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-log")


def rows_of(path: Path) -> dict[object, object]:
    with pellucid.open(path) as db:
        assert db.check() == []
        return dict(db)


# Creating it


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize(
    ("call", "code", "told"),
    [
        ("open", "EACCES", r"PermissionError.*test\.pel-log"),
        ("open", "EROFS", r"ReadOnly.*-log' cannot be written: its file system"),
        ("open", "EIO", r"DatabaseError.*cannot open '.*test\.pel-log'.*os error 5"),
        ("open", "ENOSPC", r"DiskFull.*no room on the disk for '.*test\.pel-log'"),
        ("fallocate", "ENOSPC", r"DiskFull.*no room on the disk for '.*test\.pel-log'"),
        ("fallocate", "EIO", r"DatabaseError.*cannot open '.*test\.pel-log'.*os error 5"),
        ("mmap", "ENOMEM", r"MemoryError.*the log"),
        ("mmap", "EACCES", r"PermissionError.*test\.pel-log"),
    ],
)
def test_a_log_that_cannot_be_made_is_named_and_nothing_is_lost(
    path: Path, child: Child, call: str, code: str, told: str, is_new: bool
) -> None:
    before: dict[object, object] = {} if is_new else {"a": 1}
    if not is_new:
        with pellucid.open(path) as db:
            db["a"] = 1
    child(f"fault({call!r}, '.pel-log', errno.{code})")
    with pytest.raises(Raised, match=told):
        child(opening(path))
    assert not log_of(path).exists() or log_of(path).stat().st_size in (0, 40_960)
    # Where it can be made again all is as before; in the same process, too.
    child(f"fault({call!r}, '.pel-log', COUNT)")
    child(opening(path))
    assert child("dict(db)") == before
    child("db['b'] = 2; db.close()")
    assert rows_of(path) == {**before, "b": 2}
    assert list(path.parent.iterdir()) == [path]


# Growing it


@pytest.mark.parametrize(("code", "told"), [("ENOSPC", "DiskFull"), ("EIO", "DatabaseError")])
def test_a_log_that_cannot_grow_drops_that_transaction_alone(
    path: Path, child: Child, code: str, told: str
) -> None:
    child(opening(path))
    child("db['a'] = 1")
    child(f"fault('fallocate', '.pel-log', errno.{code})")
    for _ in range(3):
        with pytest.raises(Raised, match=rf"{told}.*{path}.*"):
            child("db['large'] = b'x' * 120_000")
        assert child("dict(db)") == {"a": 1}
    # What there is room for goes on.
    child("db['b'] = 2")
    with Child(path) as other:
        assert other("dict(db)") == {"a": 1, "b": 2}
    child("fault('fallocate', '.pel-log', COUNT)")
    child("db['large'] = 3; db.close()")
    assert rows_of(path) == {"a": 1, "b": 2, "large": 3}


def test_a_full_disk_under_the_tree_stops_writers_when_the_log_is_full_and_loses_nothing(
    path: Path, child: Child
) -> None:
    child(opening(path))
    child("db['a'] = 1")
    child("fault('write', '.pel', errno.ENOSPC)")
    child("""
count = 0
try:
    while count < 2000:
        db[count] = b'x' * 100_000
        count += 1
except pellucid.DiskFull as error:
    told = str(error)
""")
    count = child("count")
    assert count in range(500, 672), "both segments"
    assert str(path) in child("told")
    assert child("len(db)") == count + 1
    assert child("db['a'], db[count - 1] == b'x' * 100_000") == (1, True)
    # Somebody who tries the same in the background may be in the way once.
    with pytest.raises(Raised, match="DiskFull"):
        child("while True: db.sync()")
    assert child("db.check()") == []
    # Nor can the last one to close write it all there: the log stays.
    child(CAUGHT)
    child("with caught() as told: db.close()")
    [told] = child("[(type(one.message).__name__, str(one.message)) for one in told]")
    size = -(-log_of(path).stat().st_size // 1_000_000)
    assert told[0] == "DatabaseWarning"
    assert f"they are in '{log_of(path)}', and the two files belong together; free about {size} MB" in told[1]
    assert log_of(path).exists()
    with pellucid.open(path) as db:
        assert db.stats()["log_recovered"] == count + 1
        assert len(db) == count + 1
        assert all(db[number] == ROW for number in range(count))
        assert db.check() == []
    assert list(path.parent.iterdir()) == [path]


def test_rows_are_refused_while_there_is_room_for_deletes_and_taken_again_behind_them(
    path: Path, child: Child
) -> None:
    child(opening(path))
    child("db.extend('x' * 100 for _ in range(100_000)); db.close()")
    child(opening(path))
    # The system says that there is none left; what it really has is for deletes.
    child("fault('room', '', 1)")
    with pytest.raises(
        Raised, match=r"DiskFull.* are free .* kept for deletes\); nothing of this was written: delete rows"
    ):
        child("for number in range(100_000): db[f'new {number}'] = 'y' * 100")
    assert child("len(db)") < 101_000, "no more than a piece of the log"
    with pytest.raises(Raised, match="DiskFull"):
        child("db.extend('y' * 1000 for _ in range(10_000))")
    child("before = list(db)")
    child("for key in before[::2]: del db[key]")
    assert child("list(db) == before[1::2]")
    # A transaction of many, which is written into the file at once.
    child("with db.transaction():\n    for key in before[1::2]: del db[key]")
    assert child("len(db)") == 0
    child("for number in range(5_000): db[number] = 'z' * 100")
    with pytest.raises(Raised, match="DiskFull"):
        child("for number in range(5_000, 200_000): db[number] = 'z' * 100")
    child("for key in list(db)[5_000:]: del db[key]")
    assert child("db.check()") == []
    child("db.close()")
    assert rows_of(path) == dict.fromkeys(range(5_000), "z" * 100)


# Warnings, for a process that sees them once.
CAUGHT = """
import contextlib, warnings
@contextlib.contextmanager
def caught():
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        yield told
"""


def test_a_database_on_a_full_disk_is_read_and_says_how_much_room_it_needs(path: Path, child: Child) -> None:
    with Child(path) as dying:
        dying("for n in range(1000): db[n] = os.urandom(500)")
        dying.kill()
    before = (path.read_bytes(), log_of(path).stat().st_size)
    room = f"free about {-(-before[1] // 1_000_000)} MB, or move both to a larger disk, and try again"
    needed = f"{room}; mode 'r' opens it without room"
    child("fault('room', '', 1); fault('write', '.pel', errno.ENOSPC)")
    for mode in ("c", "w", "n"):
        with pytest.raises(Raised, match=rf"DiskFull.*commits in '{log_of(path)}' into '{path}'.*{needed}"):
            child(opening(path, mode))
    # Nor is there room for a lock file.
    child("fault('fallocate', '.pel-lock', errno.ENOSPC)")
    with pytest.raises(Raised, match=needed):
        child(opening(path))
    child(opening(path, "r"))
    assert child("len(db), db.check()") == (1000, [])
    assert not path.with_name(path.name + "-lock").exists()
    # Others read as well.
    with Child(preload=child.preload) as other:
        other(faults.PRELUDE)
        other("fault('room', '', 1)")
        other(opening(path, "r"))
        assert other("len(db)") == 1000
        other("db.close()")
    child("db.close()")
    child("fault('write', '.pel', COUNT); fault('fallocate', '.pel-lock', COUNT); fault('room', '', COUNT)")
    assert (path.read_bytes(), log_of(path).stat().st_size) == before
    child(opening(path))
    assert child("len(db), db.check()") == (1000, [])
    child("db.close()")
    assert list(path.parent.iterdir()) == [path]


def test_a_file_system_that_cannot_reserve_gets_a_log_in_full(path: Path, child: Child) -> None:
    child("fault('fallocate', '.pel-log', errno.EOPNOTSUPP)")
    child(opening(path))
    child("[db.__setitem__(number, b'x' * 100_000) for number in range(50)]")
    size = log_of(path).stat().st_size
    assert size == 40_960 + (64 << 20)
    child.kill()
    # A copy of what there is in it: shorter, where the system makes no room ahead.
    copy = path.with_name("copy.pel")
    shutil.copy(path, copy)
    log_of(copy).write_bytes(log_of(path).read_bytes()[: 12 << 20])
    with Child(preload=child.preload) as other:
        other(faults.PRELUDE)
        other("fault('fallocate', '.pel-log', errno.EOPNOTSUPP)")
        other(opening(copy))
        assert log_of(copy).stat().st_size == size
        assert other("len(db), db.stats()['log_recovered']") == (50, 50)
        other("[db.__setitem__(('more', number), b'x' * 100_000) for number in range(400)]")
        other("db.close()")
    assert len(rows_of(copy)) == 450


def test_a_file_that_may_not_become_longer_says_which_limit_that_is(path: Path, child: Child) -> None:
    child(opening(path))
    child("db['a'] = 1")
    child("fault('fallocate', '.pel-log', errno.EFBIG)")
    with pytest.raises(
        Raised, match=r"DiskFull.*nothing of this was written: .* raise the limit \(ulimit -f\)"
    ):
        child("db['large'] = b'x' * 120_000")
    child("db['b'] = 2; db.close()")
    assert rows_of(path) == {"a": 1, "b": 2}


# Syncing it


@pytest.mark.parametrize("code", ["EIO", "ENOSPC"])
def test_a_sync_that_fails_fails_its_commit_and_no_more_is_written_until_it_is_opened_again(
    path: Path, child: Child, code: str
) -> None:
    child(opening(path, durability="full"))
    child("db['a'] = 1")
    with Child(path) as other, Child() as late:
        child(f"fault('fdatasync', '.pel-log', errno.{code})")
        told = rf"DatabaseError.*did not take the last commits of '{path}'.*power cut"
        with pytest.raises(Raised, match=told):
            child("db['b'] = 2")
        # The system says it once: that a later sync goes well means nothing.
        child("fault('fdatasync', '.pel-log', COUNT)")
        late(opening(path))
        for process in (child, other, late):
            for write in ("db['c'] = 3", "db.update(c=3)", "db['a'] = 2", "db.clear()"):
                with pytest.raises(Raised, match=r"DatabaseError.*takes no more writes.*open it again"):
                    process(write)
            with pytest.raises(Raised, match="takes no more writes"):
                process("db.sync()")
            # It is there, and may be lost.
            assert process("dict(db)") == {"a": 1, "b": 2}
            if process is not child:
                process("db.close()")
    child("db.close()")
    with pellucid.open(path) as db:
        assert dict(db) == {"a": 1, "b": 2}
        db["c"] = 3
        db.sync()
    assert rows_of(path) == {"a": 1, "b": 2, "c": 3}


def test_a_sync_that_fails_in_the_background_is_told_to_the_next_writer(path: Path, child: Child) -> None:
    child(opening(path))
    child("db['a'] = 1; db.sync()")
    child("fault('fdatasync', '.pel-log', errno.EIO)")
    child("db['b'] = 2")
    child("""
for _ in range(2000):
    time.sleep(0.01)
    if fault_count('fdatasync'): break
""")
    with pytest.raises(Raised, match=r"DatabaseError.*takes no more writes"):
        child("db['c'] = 3; time.sleep(0.1); db['d'] = 4")
    assert child("db['b']") == 2
    # Whoever finds it after a death is the first to write again.
    child.kill()
    with pellucid.open(path) as db:
        db["e"] = 5
        assert (db["b"], db["e"]) == (2, 5)


def test_a_tree_that_cannot_be_synced_when_it_is_opened_is_written_again_by_the_next_opener(
    path: Path, child: Child, faulty: str
) -> None:
    # Its last writer may have died ahead of the end of its sync.
    child(opening(path))
    child("db.update({n: b'x' * 1000 for n in range(100)}); db.sync(); db['last'] = 1")
    child.kill()
    with Child(preload=faulty) as heir:
        heir(faults.PRELUDE)
        heir("fault('fdatasync', '.pel', errno.EIO)")
        with pytest.raises(Raised, match=r"DatabaseError.*os error 5"):
            heir(opening(path))
        # That the next sync goes well means nothing: the system tells of lost pages once.
        heir("fault('fdatasync', '.pel', COUNT); fault('write', '.pel', COUNT)")
        heir(opening(path, "r"))
        assert heir("fault_count('write') > 0, fault_count('fdatasync') > 0") == (True, True)
        assert heir("len(db), db.check()") == (101, [])
        heir("db.close()")
    assert len(rows_of(path)) == 101


def test_sync_that_fails_says_so(path: Path, child: Child) -> None:
    child(opening(path))
    child("db['a'] = 1")
    child("fault('fdatasync', '.pel-log', errno.EIO)")
    with pytest.raises(Raised, match=r"DatabaseError.*did not take"):
        child("db.sync()")
    with pytest.raises(Raised, match=r"DatabaseError.*takes no more writes"):
        child("db['a'] = 2")


# A file that was just made


def test_to_make_a_database_and_to_commit_into_it_waits_for_no_disk(path: Path, child: Child) -> None:
    child("fault('fdatasync', '.pel', WAIT)")
    child(opening(path))
    child("db['a'] = 1")
    with Child(path) as other:
        other("db['b'] = 2")
    assert child("dict(db)") == {"a": 1, "b": 2}
    child("fault('fdatasync', '.pel', COUNT)")
    child("db.close()")
    assert rows_of(path) == {"a": 1, "b": 2}


def test_a_database_that_was_closed_is_on_the_disk_though_nothing_is_in_it(path: Path, child: Child) -> None:
    child(opening(path.with_name("alone.pel")))
    child("fault('fdatasync', '.pel', COUNT); db.close()")
    assert child("fault_count('fdatasync')") == 1
    child(opening(path))
    with Child(path, mode="r") as other:
        child("db.close()")
        # Whoever goes on need not be able to.
        assert child("fault_count('fdatasync')") == 2
        assert other("len(db)") == 0


@pytest.mark.parametrize("durability", ["full", "process"])
def test_nothing_is_said_to_be_on_the_disk_before_the_file_is(
    path: Path, child: Child, durability: str, faulty: str
) -> None:
    child(opening(path, durability=durability))
    child("fault('fdatasync', '.pel', errno.EIO)")
    # In `process` the thread that keeps the log may have been told first.
    told = {"full": "did not take the last commits.*power cut"}
    told["process"] = f"{told['full']}|takes no more writes: one failed at the disk"
    with pytest.raises(Raised, match=rf"DatabaseError.*({told[durability]})"):
        child("db['a'] = 1" + ("; db.sync()" if durability == "process" else ""))
    # The system says it once, as it does of the log.
    child("fault('fdatasync', '.pel', COUNT)")
    with Child(path) as late:
        for process in (child, late):
            with pytest.raises(Raised, match="takes no more writes"):
                process("db['b'] = 2")
            assert process("dict(db)") == {"a": 1}
    # Nor is the tree written, whose first pages need not be there.
    child("db.close()")
    assert (path.stat().st_size, log_of(path).exists()) == (4 * 4096, True)
    with Child(preload=faulty) as heir:
        heir(faults.PRELUDE)
        heir("fault('fdatasync', '.pel', COUNT); fault('write', '.pel', COUNT)")
        heir(opening(path, "r"))
        # What the system took for written is written once more, then synced.
        assert heir("fault_count('write'), fault_count('fdatasync')") == (1, 1)
        assert heir("dict(db)") == {"a": 1}
        heir("db.close()")
    with pellucid.open(path) as db:
        db["b"] = 2
    assert rows_of(path) == {"a": 1, "b": 2}


@pytest.mark.parametrize("code", ["EACCES", "EMFILE"])
def test_a_name_in_a_folder_that_cannot_be_opened_is_on_the_disk_all_the_same(
    path: Path, child: Child, code: str
) -> None:
    child(opening(path, durability="full"))
    # This user may enter the folder and not read it, or has no descriptor left.
    child(f"fault('open', {path.parent.name!r}, errno.{code}); fault('system', '.pel-log', COUNT)")
    child("db['a'] = 1; db.sync()")
    assert child("fault_count('open') > 0, fault_count('system')") == (True, 1)
    child(f"db.backup({str(path.with_name('copy.pel'))!r}); db.compact(); db['b'] = 2; db.close()")
    assert rows_of(path.with_name("copy.pel")) == {"a": 1}
    assert rows_of(path) == {"a": 1, "b": 2}


def test_a_name_that_is_not_on_the_disk_fails_the_first_commit(path: Path, child: Child) -> None:
    child(opening(path, durability="full"))
    child(f"fault('open', {path.parent.name!r}, errno.EACCES); fault('system', '.pel-log', errno.EIO)")
    with pytest.raises(Raised, match=r"DatabaseError.*did not take the last commits.*os error 5"):
        child("db['a'] = 1")


# Copying it


def test_a_file_that_others_make_longer_while_it_is_opened_is_not_cut_off(path: Path, child: Child) -> None:
    with pellucid.open(path) as db:
        db["a"] = 1
        db.sync()
        # Behind its look at how long the file is.
        child("fault('read', '.pel', STOP)")
        child.send(f"late = pellucid.open({str(path)!r}, 'r')")
        faults.until(lambda: faults.is_stopped(child.pid), "the stop")
        db.update(dict.fromkeys(range(10_000), "x" * 1000))
        db.sync()
        os.kill(child.pid, signal.SIGCONT)
        assert child.answer() is None
        assert child("len(late)") == 10_001
        child("late.close()")


def test_what_a_killed_backup_has_left_is_removed_by_the_next_one_to_the_same_place(
    path: Path, child: Child, faulty: str
) -> None:
    target = path.with_name("copy.pel")
    child(opening(path))
    child("db['a'] = 1")
    with Child(preload=faulty) as stopped:
        stopped(faults.PRELUDE)
        stopped(opening(path))
        for process, action in ((stopped, "STOP"), (child, "DIE")):
            process(f"fault('fdatasync', '.part-{process.pid}', {action})")
            process.send(f"db.backup({str(target)!r})")
            if process is stopped:
                faults.until(lambda: faults.is_stopped(stopped.pid), "the stop")
        child.process.wait(60)
        left = {file.name for file in path.parent.iterdir()}
        parts = {f"copy.pel.part-{process.pid}" for process in (child, stopped)}
        assert parts < left
        # What only looks like one is somebody else's.
        path.with_name("copy.pel.part-1x").write_bytes(b"mine")
        with pellucid.open(path) as db:
            db.backup(target)
        left = {file.name for file in path.parent.iterdir() if ".part" in file.name}
        # One of the living is still being made.
        assert left == {name for name in parts if str(stopped.pid) in name} | {"copy.pel.part-1x"}
        os.kill(stopped.pid, signal.SIGCONT)
        with pytest.raises(Raised, match="FileExistsError"):
            stopped.answer()
        stopped("db.close()")
    assert {file.name for file in path.parent.iterdir()} == {"test.pel", "copy.pel", "copy.pel.part-1x"}
    assert rows_of(target) == {"a": 1}


# What is asked of the disk


def test_full_returns_behind_a_sync_that_began_behind_the_commit(path: Path, child: Child) -> None:
    child(opening(path, durability="full"))
    child("fault('fdatasync', '.pel-log', COUNT)")
    child("""
def is_covered():
    return library.fault_covered() >= db.stats()['version']
seen = []
for number in range(20):
    db[number] = number
    seen.append(is_covered())
with db.transaction():
    db['x'] = 1
    seen.append(fault_count('fdatasync'))
    db['y'] = 2
seen.append(is_covered())
db[0] = {'n': 1}
db[0].n += 1
seen.append(is_covered())
db.append('last')
seen.append(is_covered())
""")
    # One for each commit, none before its end.
    assert child("seen") == [True] * 20 + [20, True, True, True]
    assert child("fault_count('fdatasync')") == 24
    # The default asks for nothing that it would have to wait for.
    child(f"db.close(); db = pellucid.open({str(path)!r}); fault('fdatasync', '.pel-log', WAIT)")
    child("[db.__setitem__(n, 0) for n in range(10)]; fault('fdatasync', '.pel-log', COUNT)")


def test_full_shares_a_sync_among_those_who_wait(path: Path, child: Child) -> None:
    child(opening(path, durability="full"))
    child("db['a'] = 1; before = db.stats()['version']")
    child("""
fault('fdatasync', '.pel-log', WAIT)
threads = [threading.Thread(target=db.__setitem__, args=(number, number)) for number in range(8)]
for thread in threads:
    thread.start()
for _ in range(20_000):
    if len(db) == 9: break
    time.sleep(0.001)
# All are visible to others, and not one has returned: the first of them waits for the disk.
waited = len(db), [thread.is_alive() for thread in threads]
fault('fdatasync', '.pel-log', COUNT)
for thread in threads:
    thread.join()
""")
    assert child("waited") == (9, [True] * 8)
    assert child("library.fault_covered() >= db.stats()['version'] == before + 8") is True
    # One for the first, one for all the others.
    assert child("fault_count('fdatasync')") == 2


# The clock


@pytest.mark.parametrize("seconds", [1, 4_000_000_000])
def test_a_wall_clock_that_jumps_or_goes_backwards_changes_nothing(
    path: Path, child: Child, seconds: int
) -> None:
    child(f"library.fault_clock({seconds})")
    assert child("time.time()") <= seconds
    child(opening(path, timeout=0.05))
    with Child(path, timeout=0.05) as other:
        for number in range(4):
            # A segment begun anew at each, and what stood there before must not go on.
            child(f"db[{number}] = {number}; db.sync()")
            other(f"db['other', {number}] = 1; db.sync()")
        other("transaction = db.transaction(); transaction.__enter__()")
        with pytest.raises(Raised, match=r"Busy.*waited timeout=0\.05 s"):
            child("db['x'] = 1")
        other("transaction.__exit__(None, None, None)")
        child("library.fault_clock(1_000_000_000); db['x'] = 1; db.update({('b', n): n for n in range(50)})")
        child("library.fault_clock(2_000_000_000)")
        assert child("len(db)") == other("len(db)") == 59
        other.kill()
        child.kill()
    assert len(rows_of(path)) == 59


def test_a_wall_clock_that_jumps_lets_changes_go_too_early_and_says_so(path: Path, child: Child) -> None:
    child("import datetime; library.fault_clock(1_000_000_000)")
    child(opening(path, keep=datetime.timedelta(days=1)))
    child("""
begin = db.stats()["version"]
def commit(numbers):
    for number in numbers:
        db[number] = number
        db.sync()
def kept(since):
    return [change.key for change in db.watch(since=since, timeout=0) if change.kind == "put"]
""")
    # Backwards it keeps more than it was asked for.
    child("commit(range(5)); library.fault_clock(500_000_000); commit(range(5, 10))")
    assert child("kept(begin)") == list(range(10))
    child("library.fault_clock(2_000_000_000); commit(range(10, 15))")
    with pytest.raises(Raised, match=r"HistoryGone.*keep="):
        child("kept(begin)")
    child("""
try:
    db.watch(since=begin)
except pellucid.HistoryGone as gone:
    oldest = gone.oldest
""")
    seen = child("kept(oldest)")
    assert seen == list(range(15))[-len(seen) :]
    assert len(seen) in range(4, 10)
    assert child("dict(db)") == {number: number for number in range(15)}


DAY = 86_400


def test_a_snapshot_that_is_open_for_a_day_is_named_with_its_process_and_age(
    path: Path, child: Child
) -> None:
    with Child(path) as holder:
        holder("db['a'] = 1; db.sync(); snap = db.snapshot(); kept = snap['a']")
        child(CAUGHT)
        # The file has changed once since: little has to be kept, but for a day.
        child(f"{opening(path)}; db['a'] = 2; db.sync(); db['a'] = 3; db.sync()")
        assert child("db.stats()['oldest_reader_age']") < DAY
        child(f"library.fault_uptime({DAY})")
        stats = child("db.stats()")
        assert stats["oldest_reader_process"] == holder.pid
        assert DAY <= stats["oldest_reader_age"] < DAY + 3600
        told = rf"process {holder.pid} keeps a snapshot of '{path}' open, now for 14\d\d minutes"
        child("db.close()")
        child(f"with caught() as seen: {opening(path)}")
        [message] = child("[str(warning.message) for warning in seen]")
        assert re.match(told, message)
        assert "close it there" in message
        child("with caught() as seen: db.snapshot().close(); db['a'] = 4; db.sync()")
        assert child("len(seen)") == 0, "it is told once an hour"
        # To a process whose clock is behind, as in another time namespace, it is as old as it can tell.
        child("library.fault_uptime(-time.clock_gettime(time.CLOCK_MONOTONIC).__floor__())")
        assert child("db.stats()['oldest_reader_age']") == 0
        child("library.fault_uptime(1 << 40)")
        assert child("db.stats()['oldest_reader_age']") >= 1 << 40
        assert holder("snap['a'], kept") == (1, 1)
        holder("snap.close(); db.close()")
        assert child("db.stats()['oldest_reader_process'], db.check()") == (0, [])
