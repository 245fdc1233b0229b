"""What becomes of the others when a process stops, or dies, with a lock of the log in its hands?"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import faults
import pellucid
import pytest
from processes import Child

MEGABYTE = b"x" * 1_000_000


@pytest.fixture
def victim(path: Path, faulty: str) -> Iterator[Child]:
    """Another process that has the database open, and to which anything may happen."""
    with pellucid.open(path) as db:
        db["a"] = 1
    with Child(preload=faulty) as child:
        child(faults.PRELUDE)
        child(f"db = pellucid.open({str(path)!r}, timeout=60)")
        yield child


def stop_in(victim: Child, what: str) -> None:
    """Let it go on to where it stops itself."""
    victim.send(what)
    faults.until(lambda: faults.is_stopped(victim.pid), "the stop")


def when_free(write: Callable[[], object]) -> None:
    """Write, however long another process that may go on takes."""

    def is_written() -> bool:
        try:
            write()
        except pellucid.Busy:
            return False
        return True

    faults.until(is_written, "the write")


def fill_log(db: pellucid.Database) -> int:
    """Commit until somebody has to write the tree, which nobody can; how many commits there was room for."""
    for number in range(200):
        try:
            db["large", number] = MEGABYTE
        except pellucid.Busy:
            return number
    raise AssertionError("the log has no end")


def test_a_process_that_is_stopped_with_the_writer_lock_is_named_and_readers_go_on(
    path: Path, victim: Child
) -> None:
    with pellucid.open(path, timeout=0.05) as db:
        victim("transaction = db.transaction(); transaction.__enter__(); db['a'] = 2")
        os.kill(victim.pid, signal.SIGSTOP)
        faults.until(lambda: faults.is_stopped(victim.pid), "the stop")
        for write in (lambda: db.__setitem__("b", 1), lambda: db.transaction().__enter__(), db.clear):
            with pytest.raises(pellucid.Busy, match=rf"being written by PID {victim.pid}\b.*timeout=0\.05 s"):
                write()
        assert dict(db) == {"a": 1}
        with db.snapshot() as snap, Child(path, mode="r") as reader:
            assert snap["a"] == reader("db['a']") == 1
        assert db.check() == []
        db.sync()
        os.kill(victim.pid, signal.SIGCONT)
        victim("transaction.__exit__(None, None, None)")
        db["b"] = 1
        assert dict(db) == {"a": 2, "b": 1}


def test_a_holder_in_another_pid_namespace_is_not_named_by_a_number_of_ours(
    path: Path, victim: Child
) -> None:
    with pellucid.open(path, timeout=0.05) as db:
        victim("transaction = db.transaction(); transaction.__enter__(); db['a'] = 2")
        (member,) = words(path, WRITER)
        with path.with_name(path.name + "-log").open("r+b") as log:
            log.seek(MEMBERS + 8 * member)
            assert int.from_bytes(log.read(4), "little") == victim.pid
            # As a container's first process introduces itself: by our own number, in its own namespace.
            log.seek(MEMBERS + 8 * member)
            log.write(os.getpid().to_bytes(4, "little") + (4_026_000_000).to_bytes(4, "little"))
        with pytest.raises(pellucid.Busy, match="being written by a process in another container") as busy:
            db["b"] = 1
        assert "PID " not in str(busy.value).replace("PID namespace", "")
        assert "this process" not in str(busy.value)


def test_a_process_that_is_stopped_while_it_writes_the_tree_hinders_nobody_without_a_limit(
    path: Path, victim: Child
) -> None:
    with pellucid.open(path, timeout=0.2) as db:
        victim("db['a'] = 2")
        victim("fault('fdatasync', '.pel', STOP)")
        stop_in(victim, "db.sync()")
        # Whoever does not need the tree goes on, and whoever only wants it goes without.
        db["b"] = 1
        assert dict(db) == {"a": 2, "b": 1}
        db.sync()
        assert db.check() == []
        assert db.stats()["log_pending"] > 0
        with db.snapshot() as snap, Child(path, timeout=0.2) as other:
            assert other("dict(db)") == dict(snap) == {"a": 2, "b": 1}
            other("db['c'] = 3; db.sync(); db.close()")
        told = rf"being written itself by PID {victim.pid}\b.*waited timeout=0\.2 s; nothing of this"
        with pytest.raises(pellucid.Busy, match=told):
            db.update({("bulk", number): "x" * 1000 for number in range(5000)})
        count = fill_log(db)
        # What one segment holds, since the other one waits to be written: 32 MiB.
        assert count in range(25, 67)
        with pytest.raises(pellucid.Busy, match=told):
            db["large", count] = MEGABYTE
        assert len(db) == 3 + count
        os.kill(victim.pid, signal.SIGCONT)
        assert victim.answer() is None
        # The other one may still write what is left: on a busy machine for longer than the timeout.
        when_free(lambda: db.__setitem__(("large", count), MEGABYTE))
        when_free(lambda: db.update({("bulk", number): "x" * 1000 for number in range(5000)}))
        assert len(db) == victim("len(db)") == 3 + count + 1 + 5000
        assert db.check() == []


def test_a_stopped_process_does_not_keep_another_from_closing(path: Path, victim: Child) -> None:
    with Child(path, timeout=0.2) as other:
        other("db['b'] = 1")
        victim("db['a'] = 2")
        victim("fault('fdatasync', '.pel', STOP)")
        stop_in(victim, "db.sync()")
        other("db['c'] = 1; db.close()")
        # And the next one may come.
        other(f"db = pellucid.open({str(path)!r}, timeout=0.2)")
        assert other("dict(db)") == {"a": 2, "b": 1, "c": 1}
        other("db.close()")
        os.kill(victim.pid, signal.SIGCONT)
        assert victim.answer() is None
    victim("db.close()")
    assert list(path.parent.iterdir()) == [path]


def test_a_process_that_dies_while_it_writes_the_tree_is_followed_at_once(path: Path, victim: Child) -> None:
    with pellucid.open(path, timeout=5) as db:
        victim("db['a'] = 2")
        victim("fault('fdatasync', '.pel', DIE)")
        victim.send("db.sync()")
        victim.process.wait(60)
        db.sync()
        assert db.stats()["log_pending"] == 0
        db.update({("bulk", number): "x" * 1000 for number in range(5000)})
        assert db["a"] == 2
        assert db.check() == []
    assert list(path.parent.iterdir()) == [path]


def test_a_process_that_dies_in_the_middle_of_an_append_has_not_committed(path: Path, victim: Child) -> None:
    with pellucid.open(path, timeout=5) as db:
        # It has the writer lock then, and makes room for a group that goes beyond what there is.
        victim("fault('fallocate', '.pel-log', DIE)")
        victim.send("db['a'] = b'x' * 120_000")
        victim.process.wait(60)
        assert dict(db) == {"a": 1}
        db["b"] = 1
        assert dict(db) == {"a": 1, "b": 1}
        assert db.check() == []
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize("timeout", [0, 5])
def test_whoever_waits_for_nobody_follows_a_dead_writer_too(path: Path, timeout: float) -> None:
    with Child(path) as victim, pellucid.open(path, timeout=timeout) as db:
        victim("db['a'] = 1; transaction = db.transaction(); transaction.__enter__(); db['a'] = 2")
        victim.kill()
        # It waits for nobody who writes, and takes what the dead one has left into the tree nevertheless.
        db.sync()
        assert db.stats()["log_pending"] == 0
    assert list(path.parent.iterdir()) == [path]
    with Child(path) as victim, pellucid.open(path, timeout=timeout) as db:
        victim("transaction = db.transaction(); transaction.__enter__(); db['a'] = 2")
        victim.kill()
        db["b"] = 2
        with db.transaction():
            db["c"] = 3
        assert dict(db) == {"a": 1, "b": 2, "c": 3}
        assert db.check() == []


def test_a_process_that_dies_with_the_writer_lock_leaves_one_file_when_the_last_one_closes(
    path: Path,
) -> None:
    with pellucid.open(path) as db, Child(path) as victim:
        db["a"] = 1
        victim("transaction = db.transaction(); transaction.__enter__(); db['a'] = 2")
        victim.kill()
    assert list(path.parent.iterdir()) == [path]
    with pellucid.open(path) as db:
        assert dict(db) == {"a": 1}


def test_a_child_keeps_none_of_its_dead_parents_locks_however_many_there_were(tmp_path: Path) -> None:
    with Child() as parent:
        parent(f"""
paths = [{str(tmp_path)!r} + f'/{{number}}.pel' for number in range(140)]
databases = [pellucid.open(path) for path in paths]
transactions = [database.transaction() for database in (databases[0], databases[-1])]
for transaction in transactions:
    transaction.__enter__()
databases[0]['a'] = databases[-1]['a'] = 1
def fork():
    import warnings; warnings.simplefilter('ignore')
    pid = os.fork()
    if pid == 0:
        # It has nothing of the parent's but its life.
        for descriptor in (0, 1):
            os.close(descriptor)
        time.sleep(1000)
    return pid
""")
        child = parent("fork()")
        try:
            parent.kill()
            for number in (0, 139):
                with pellucid.open(tmp_path / f"{number}.pel", timeout=60) as db:
                    db["b"] = 2
                    assert dict(db) == {"b": 2}
                assert not (tmp_path / f"{number}.pel-log").exists()
        finally:
            os.kill(child, signal.SIGKILL)


SEQUENCE, TAIL, ACTIVE, WRITER = 64, 128, 136, 192
SEGMENT_HEADS, MEMBERS, GROUPS, PIECE = 4096, 8192, 40_960, 1 << 16


def words(path: Path, *places: int) -> list[int]:
    data = path.with_name(path.name + "-log").read_bytes()[:8192]
    return [int.from_bytes(data[place : place + 8], "little") for place in places]


def poke(path: Path, place: int, data: bytes) -> None:
    with path.with_name(path.name + "-log").open("r+b") as file:
        file.seek(place)
        file.write(data)


@pytest.mark.parametrize("is_torn", [True, False])
def test_a_group_that_was_written_and_not_published_is_there_whole_or_not_at_all(
    path: Path, victim: Child, is_torn: bool
) -> None:
    with Child(path, mode="r") as reader:
        victim("db['b'] = 2")
        sequence, tail, begin = words(path, SEQUENCE, TAIL, SEGMENT_HEADS)
        victim("db['c'] = 3")
        member = b"\x01"
        victim.kill()
        # As if it had died with the lock, in the middle of this group, or between its bytes and the word
        # that tells others of it.
        end = words(path, TAIL)[0]
        assert end - begin < PIECE
        if is_torn:
            poke(path, GROUPS + end - begin - 16, b"\xff\xff")
        poke(path, SEQUENCE, sequence.to_bytes(8, "little"))
        poke(path, TAIL, tail.to_bytes(8, "little"))
        poke(path, WRITER, member)
        expected = {"a": 1, "b": 2} if is_torn else {"a": 1, "b": 2, "c": 3}
        assert reader("dict(db)") == {"a": 1, "b": 2}
        with pellucid.open(path, timeout=5) as db:
            db["d"] = 4
            assert dict(db) == {**expected, "d": 4}
            assert reader("dict(db)") == {**expected, "d": 4}
            assert db.check() == []


@pytest.mark.parametrize("is_first", [True, False])
def test_what_stood_behind_a_torn_group_stays_gone_when_the_very_same_commit_is_made_again(
    path: Path, victim: Child, is_first: bool
) -> None:
    victim("db['b'] = 2; db.sync()" if is_first else "db['b'] = 2")
    active = words(path, ACTIVE)[0]
    tail, begin = words(path, TAIL, SEGMENT_HEADS + 64 * active)
    victim("db['c'] = 3")
    end = words(path, TAIL)[0]
    victim("db['d'] = 4")
    victim.kill()
    # As a power cut leaves it that took a part of the one and nothing of the other, which continues it.
    place = end - begin - 16
    assert end - begin < PIECE
    assert (tail == begin) is is_first
    poke(path, GROUPS + (active * PIECE) + place, b"\xff\xff")
    expected = {"a": 1, "b": 2}
    # Who only reads puts the log right, and writes none of it into the tree.
    with Child(path, mode="r") as reader:
        assert reader("dict(db)") == expected
        with Child(path, timeout=5) as other:
            other("db['c'] = 3")
            other.kill()
        assert reader("dict(db)") == {**expected, "c": 3}
        reader.kill()
    with pellucid.open(path) as db:
        assert dict(db) == {**expected, "c": 3}
        assert db.check() == []
