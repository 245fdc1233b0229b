"""Who syncs the log for whom in `durability="full"`, and what if that one dies, stops or fails?"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import faults
import pellucid
import pytest
from processes import Child, Raised


@contextlib.contextmanager
def opened(path: Path, faulty: str, count: int) -> Iterator[list[Child]]:
    """Make processes that wait for the disk, and have waited for it once."""
    with contextlib.ExitStack() as stack:
        children = [stack.enter_context(Child(preload=faulty)) for _ in range(count)]
        for number, child in enumerate(children):
            child(faults.PRELUDE)
            child(f"db = pellucid.open({str(path)!r}, durability='full', timeout=60)")
            child(f"db['own', {number}] = 0; fault('fdatasync', '.pel-log', COUNT)")
        yield children


def syncs_of(child: Child) -> int:
    count: int = child("fault_count('fdatasync')")
    return count


def waits_in_sync(child: Child, code: str) -> None:
    """Begin something that is to stay in a sync until it is told otherwise."""
    child("fault('fdatasync', '.pel-log', WAIT)")
    child(f"""
def work():
    try:
        {code}
        told = 'done'
    except Exception as error:
        told = str(error)
    told_of.append(told)
told_of = []
thread = threading.Thread(target=work)
thread.start()
""")
    faults.until(lambda: syncs_of(child) == 1, "the sync")


def test_one_process_syncs_for_the_others(path: Path, faulty: str) -> None:
    with opened(path, faulty, 4) as (first, *others), pellucid.open(path) as db:
        waits_in_sync(first, "db['first'] = 1")
        for number, child in enumerate(others):
            child.send(f"db['other', {number}] = 1")
        faults.until(lambda: len(db) == 8, "the commits")
        assert first("thread.is_alive()") is True
        first("fault('fdatasync', '.pel-log', COUNT)")
        for child in others:
            child.answer()
        first("thread.join()")
        assert first("told_of") == ["done"]
        # One for the first, and one for all who came too late for it.
        assert [syncs_of(first), sum(syncs_of(child) for child in others)] == [1, 1]
        version = db.stats()["version"]
        assert sum(child(f"library.fault_covered() >= {version}") for child in others) == 1


@pytest.mark.parametrize("action", ["DIE", "STOP"])
def test_whoever_waits_for_one_that_dies_or_stops_in_a_sync_syncs_for_itself(
    path: Path, faulty: str, action: str
) -> None:
    with opened(path, faulty, 3) as (victim, *others):
        victim(f"fault('fdatasync', '.pel-log', {action})")
        victim.send("db['victim'] = 1")
        if action == "STOP":
            faults.until(lambda: faults.is_stopped(victim.pid), "the stop")
        else:
            assert victim.process.wait(60) == -signal.SIGKILL
        for round_number in range(3):
            for number, child in enumerate(others):
                child.send(f"db['other', {number}] = {round_number}")
            for child in others:
                child.answer()
        version = others[0]("db.stats()['version']")
        assert any(child(f"library.fault_covered() >= {version}") for child in others)
        assert sum(syncs_of(child) for child in others) in range(3, 7)
        if action == "STOP":
            os.kill(victim.pid, signal.SIGCONT)
            victim.answer()
            victim("db['victim'] = 2")
            assert others[0]("db['victim']") == 2


def test_a_sync_that_fails_is_told_to_those_in_other_processes_who_wait_for_it(
    path: Path, faulty: str
) -> None:
    with opened(path, faulty, 2) as (first, other):
        waits_in_sync(first, "db['first'] = 1")
        other.send("db['other'] = 1")
        first("fault('fdatasync', '.pel-log', errno.EIO)")
        first("thread.join()")
        (told,) = first("told_of")
        assert "did not take the last commits" in told
        with pytest.raises(Raised, match=r"DatabaseError.*takes no more writes") as refused:
            other.answer()
        # Its commit was made before the sync failed, or was not made.
        assert ("did not take the last commits" in str(refused.value)) is (other("('other' in db)") is True)
        for child in (first, other):
            with pytest.raises(Raised, match=r"DatabaseError.*takes no more writes"):
                child("db['more'] = 1")
        assert other("len(db)") in (3, 4)


@pytest.mark.parametrize("suffix", [".pel", ".pel-log"])
def test_each_thread_whose_commit_is_lost_is_told_so(path: Path, faulty: str, suffix: str) -> None:
    with Child(preload=faulty) as child:
        child(faults.PRELUDE)
        child(f"db = pellucid.open({str(path)!r}, durability='full')")
        # Of one that was just made the file is synced first: by a commit, or by the log's thread.
        child("" if suffix == ".pel" else "db['before'] = 0")
        child(f"fault('fdatasync', {suffix!r}, WAIT)")
        child("""
def commit(number):
    try:
        db[number] = number
    except pellucid.DatabaseError as error:
        told_of.append(str(error))
told_of = []
threads = [threading.Thread(target=commit, args=(number,)) for number in range(4)]
for thread in threads:
    thread.start()
for _ in range(20_000):
    if all(number in db for number in range(4)): break
    time.sleep(0.001)
""")
        child(f"fault('fdatasync', {suffix!r}, errno.EIO)")
        child("for thread in threads: thread.join()")
        told = child("told_of")
        assert len(told) == 4
        assert all("did not take the last commits" in one and "os error 5" in one for one in told), told
        with pytest.raises(Raised, match=r"DatabaseError.*takes no more writes: one failed"):
            child("db['more'] = 1")
        with Child(path) as other, pytest.raises(Raised, match=r"DatabaseError.*takes no more writes: one f"):
            # None of its own is lost.
            other("db.sync()")


def test_sync_says_that_a_commit_is_lost_though_another_thread_was_told_before(
    path: Path, faulty: str
) -> None:
    with Child(preload=faulty) as child:
        child(faults.PRELUDE)
        child(f"db = pellucid.open({str(path)!r}); db['a'] = 1; db.sync()")
        child("fault('fdatasync', '.pel-log', errno.EIO)")
        child("db['b'] = 2")
        # The thread that keeps the log.
        faults.until(lambda: syncs_of(child) > 0, "the sync")
        faults.until(lambda: child("db.stats() is not None") and refuses(child), "the refusal")
        for _ in range(2):
            with pytest.raises(Raised, match=r"did not take the last commits.*os error 5.*power cut"):
                child("db.sync()")


def refuses(child: Child) -> bool:
    try:
        child("db['c'] = 3")
    except Raised as refused:
        return "takes no more writes" in str(refused)
    return False


def test_a_process_that_closes_beside_others_says_that_the_disk_refused(path: Path, faulty: str) -> None:
    with Child(preload=faulty) as child, Child(path) as other:
        child(faults.PRELUDE)
        child(f"db = pellucid.open({str(path)!r})")
        child("db['a'] = 1; db.sync(); fault('fdatasync', '.pel-log', errno.EIO); db['b'] = 2")
        child("""
import warnings
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    db.close()
""")
        ((kind, message),) = child("[(type(one.message).__name__, str(one.message)) for one in told]")
        assert kind == "DatabaseWarning"
        assert "did not take the last commits" in message
        assert "os error 5" in message
        with pytest.raises(Raised, match="takes no more writes"):
            other("db['c'] = 3")
        assert other("dict(db)") == {"a": 1, "b": 2}


def test_a_commit_alone_syncs_no_more_than_what_it_wrote(path: Path, faulty: str) -> None:
    with opened(path, faulty, 1) as (child,):
        child("fault('whole', '.pel-log', COUNT)")
        child("[db.__setitem__(number, number) for number in range(50)]")
        assert syncs_of(child) == 50
        # A piece of the log is 64 KiB, and a group in two of them is left to the system.
        assert child("fault_count('whole')") <= 1
