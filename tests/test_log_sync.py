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
        with pytest.raises(Raised, match=r"DatabaseError.*takes no more writes"):
            other.answer()
        for child in (first, other):
            with pytest.raises(Raised, match=r"DatabaseError.*takes no more writes"):
                child("db['more'] = 1")
        assert other("len(db)") in (3, 4)


def test_a_commit_alone_syncs_no_more_than_what_it_wrote(path: Path, faulty: str) -> None:
    with opened(path, faulty, 1) as (child,):
        child("fault('whole', '.pel-log', COUNT)")
        child("[db.__setitem__(number, number) for number in range(50)]")
        assert syncs_of(child) == 50
        # A piece of the log is 64 KiB, and a group in two of them is left to the system.
        assert child("fault_count('whole')") <= 1
