"""May a client of a server fork, and what do parent and child then have of each other's?"""

from __future__ import annotations

import contextlib
import fcntl
import gc
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pellucid
import processes
import pytest
import servers
from pellucid.postgres.pool import Pool
from pellucid.postgres.query.scan import Pages
from pellucid.postgres.session import is_readable
from pellucid.postgres.table.sequence import Sequences
from pellucid.postgres.url import parse

COUNT = 5000
PARENTS = "belongs to the parent process; begin a new one after a fork"


@pytest.fixture
def db(url: str) -> Iterator[Any]:
    """A database whose table has many pages."""
    with pellucid.open(url) as db:
        db.update({number: {"n": number, "text": "x" * 1000} for number in range(COUNT)})
        yield db


def total(rows: Any) -> int:
    return sum(row.n for row in rows)


def test_a_child_scans_what_its_parent_has_scanned(db: Any) -> None:
    def scan() -> None:
        assert total(db.values()) == sum(range(COUNT))
        assert total(db.where(pellucid.F.n >= 0)) == sum(range(COUNT))

    scan()
    processes.in_child(scan)
    scan()


def test_a_child_leaves_alone_what_its_parent_goes_on_with(db: Any) -> None:
    db["a"] = {"n": 0}
    snapshot = db.snapshot()
    loops = [
        iter(db.values(stop=COUNT)),
        iter(db.where(pellucid.F.n >= 0)),
        iter(snapshot.values(stop=COUNT)),
    ]
    assert [next(rows).n for rows in loops] == [0, 0, 0]
    record = None

    def use_all() -> None:
        for use in (
            lambda: total(loops[0]),
            lambda: total(loops[1]),
            lambda: total(loops[2]),
            lambda: snapshot["a"],
            lambda: db["a"],
            lambda: db.__setitem__("a", 1),
            lambda: len(db),
            lambda: db.transaction().__enter__(),
            lambda: setattr(record, "n", 2),
        ):
            with pytest.raises(pellucid.TransactionError, match=PARENTS):
                use()
        snapshot.close()
        # The end of each of them would end the parent's.
        loops.clear()
        gc.collect()

    def use_and_go_on() -> None:
        with pytest.raises(pellucid.TransactionError, match=PARENTS):
            transaction.__exit__(None, None, None)
        db["child"] = 1
        assert db["a"] == {"n": 0}
        db.close()

    transaction = db.transaction()
    transaction.__enter__()
    record = db["a"]
    record.n = 1
    processes.in_child(lambda: (use_all(), use_and_go_on()))
    assert db["a"] == {"n": 1}
    transaction.__exit__(None, None, None)
    assert db["a"] == {"n": 1}
    assert db["child"] == 1
    assert [total(rows) for rows in loops] == [sum(range(1, COUNT))] * 3
    assert snapshot["a"] == {"n": 0}
    snapshot.close()


def test_a_child_drops_the_block_of_its_parent(db: Any) -> None:
    def leave() -> None:
        nonlocal transaction
        del transaction
        assert "mine" not in db
        db["child"] = 1

    transaction = db.transaction()
    transaction.__enter__()
    db["mine"] = 1
    processes.in_child(leave)
    assert db["mine"] == 1
    transaction.__exit__(None, None, None)
    assert db["mine"] == db["child"] == 1


def test_a_child_uses_no_lock_that_a_thread_of_its_parent_has(db: Any) -> None:
    has_lock, is_done = threading.Event(), threading.Event()
    snapshot = db.snapshot()
    db.table("t").append(1)

    def hold() -> None:
        block = db.table("t")._sequence.block()
        with snapshot._connection.lock, db._connection.pool._changed, block._lock:
            has_lock.set()
            assert is_done.wait(60)

    def use() -> None:
        with pytest.raises(pellucid.TransactionError, match=PARENTS):
            snapshot[1]
        snapshot.close()
        del db.table("t")[0]
        db.table("t").append(2)
        db.table("t")[10**6] = 1
        assert len(db) == COUNT
        db.close()

    with ThreadPoolExecutor(1) as threads:
        held = threads.submit(hold)
        assert has_lock.wait(60)
        try:
            processes.in_child(use)
        finally:
            is_done.set()
        held.result()
    snapshot.close()


def test_a_child_takes_numbers_of_its_own(db: Any) -> None:
    table = db.table("t")
    for number in range(4):
        table.append(number)
    assert table._sequence.block().stop > table._sequence.block().next
    processes.in_child(lambda: table.extend(["child"] * 5))
    table.extend(["parent"] * 5)
    assert sorted(map(str, table.values())) == ["0", "1", "2", "3"] + ["child"] * 5 + ["parent"] * 5


def test_threads_take_numbers_of_their_own(db: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    table = db.table("t")
    for number in range(4):
        table.append(number)
    assert table._sequence.block().stop > table._sequence.block().next
    take, taken = Sequences.take, []

    def while_another_appends(self: Sequences, wanted: int, needed: int, least: int) -> tuple[int, int]:
        monkeypatch.undo()
        with ThreadPoolExecutor(1) as threads:
            taken.append(threads.submit(lambda: [table.append("other") for _ in range(8)]).result())
        return take(self, wanted, needed, least)

    monkeypatch.setattr(Sequences, "take", while_another_appends)
    table.extend(["mine"] * 10)
    assert len(taken[0]) == 8
    assert sorted(map(str, table.values())) == ["0", "1", "2", "3"] + ["mine"] * 10 + ["other"] * 8


def test_parent_and_child_go_on_with_a_watch(db: Any) -> None:
    watch = db.watch(timeout=30)
    with db.transaction():
        for number in range(3):
            db[f"key {number}"] = number
    assert next(watch).value == 0
    processes.in_child(lambda: (next(watch), check_next(watch)))
    assert [next(watch).value, next(watch).value] == [1, 2]
    watch.close()


def check_next(watch: Any) -> None:
    assert next(watch).value == 2


# Threads, and the end of a database


def named_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("pellucid")]


def test_scans_of_several_threads_leave_no_thread(db: Any) -> None:
    with ThreadPoolExecutor(4) as threads:
        works = [threads.submit(lambda: total(db.values())) for _ in range(8)]
        assert [work.result() for work in works] == [sum(range(COUNT))] * 8
    until = time.monotonic() + 30
    while named_threads() and time.monotonic() < until:
        time.sleep(0.01)
    assert named_threads() == []


@pytest.mark.parametrize("kind", ["values", "where"])
def test_a_scan_says_that_its_database_was_closed(
    db: Any, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    assert total(db.values()) == sum(range(COUNT))
    rows = iter(db.values() if kind == "values" else db.where(pellucid.F.n >= 0))
    next(rows)
    size_up = Pages._size_up

    def closed_meanwhile(self: Pages, page: Any) -> None:
        # As another thread may do it just here.
        db.close()
        size_up(self, page)

    monkeypatch.setattr(Pages, "_size_up", closed_meanwhile)
    with pytest.raises(pellucid.Closed):
        for _ in rows:
            pass
    with pytest.raises(pellucid.Closed):
        iter(db.values())


def test_a_program_scans_at_its_exit(db: Any, url: str) -> None:
    """When the interpreter starts no thread any more."""
    script = f"""
import atexit, pellucid
db = pellucid.open({url!r})
atexit.register(lambda: print(sum(row.n for row in db.values())))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], check=False, capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.returncode) == (f"{sum(range(COUNT))}\n", 0), done.stderr
    assert len(db) == COUNT


def test_a_connection_that_is_given_back_while_all_are_closed_is_closed() -> None:
    connections = Pool(parse("postgresql://nowhere/none", 1), 1, b"")

    class Given:
        is_foreign = False
        is_closed = False
        idle_since = 0.0

        @property
        def is_idle(self) -> bool:
            # As another thread may do it just here.
            connections.close()
            return True

        def close(self) -> None:
            self.is_closed = True

    session: Any = Given()
    connections._count = 1
    connections.give(session)
    assert session.is_closed
    assert (connections._count, connections._idle) == (0, [])


def test_a_snapshot_whose_connection_has_ended_takes_another(url: str, server: str) -> None:
    psycopg = servers.driver("psycopg")
    with psycopg.connect(server, autocommit=True) as other, pellucid.open(url) as db:
        db[1] = {"n": 1}
        (session,) = db._connection.pool._idle
        other.execute("SELECT pg_terminate_backend(%s)", [session.connection.info.backend_pid])
        until = time.monotonic() + 30
        while not session.has_ended() and time.monotonic() < until:
            time.sleep(0.001)
        # It counts as used just now.
        session.idle_since = time.monotonic()
        with db.snapshot() as snapshot:
            assert snapshot[1].n == 1
        gc.collect()
        assert db._connection.pool._count == len(db._connection.pool._idle) == 1


# Descriptors


@contextlib.contextmanager
def many_descriptors(count: int) -> Iterator[None]:
    """Let this process have so many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count:
        servers.pass_over(f"this process may not have {count} open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_descriptor_may_have_any_number() -> None:
    one, other = socket.socketpair()
    with many_descriptors(2000), one, other:
        high = fcntl.fcntl(one, fcntl.F_DUPFD, 1500)
        try:
            assert not is_readable(high, 0)
            other.send(b"x")
            assert is_readable(high, 60)
            one.recv(1)
            assert not is_readable(high, 0.001)
            other.close()
            assert is_readable(high, 60)
        finally:
            os.close(high)


def test_a_connection_is_kept_whatever_number_its_descriptor_has(url: str) -> None:
    with many_descriptors(2000), contextlib.ExitStack() as files:
        while files.enter_context(open(os.devnull)).fileno() < 1100:
            pass
        with pellucid.open(url) as db, contextlib.closing(db.watch(timeout=0.2)) as watch:
            db["a"] = 1
            (session,) = db._connection.pool._idle
            assert session.connection.fileno() > 1024
            session.idle_since = 0.0
            assert db["a"] == 1
            assert db._connection.pool._idle == [session]
            assert [change.kind for change in watch] == ["create", "put"]
