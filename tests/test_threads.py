"""May threads and asyncio tasks share one handle, and whose is a transaction?"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import os
import signal
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pellucid
import pytest

Database = pellucid.Database


def elsewhere(work: Callable[[], Any]) -> Any:
    """What `work` returns, or raises, in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.fixture
def hasty(tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """A database that waits for no one for long."""
    with pellucid.open(tmp_path / "hasty.pel", timeout=0.05) as db:
        yield db


def test_threads_share_one_handle(db: Database) -> None:
    def work(number: int) -> int:
        for index in range(50):
            db[number, index] = {"n": number, f"field {number}": index, "l": [index]}
            db[number, index].l.append(number)
            assert db[number, index] == {"n": number, f"field {number}": index, "l": [index, number]}
            assert sum(row.n for row in db.values(prefix=(number,))) == number * (index + 1)
        return number

    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(work, range(6))) == list(range(6))
    assert len(db) == 300
    assert list(db) == [(number, index) for number in range(6) for index in range(50)]


def test_threads_count_together_without_losing_one(db: Database) -> None:
    db["n"] = {"count": 0}

    def work(_: int) -> None:
        for _ in range(50):
            with db.edit("n") as row:
                row.count += 1

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert db["n"].count == 300


def test_one_record_may_be_used_by_many_threads(db: Database) -> None:
    db["r"] = {"l": [], "fixed": {"x": 1}}
    record = db["r"]
    numbers = record.l

    def work(number: int) -> None:
        for index in range(30):
            numbers.append(number * 100 + index)
            assert record.fixed.x == 1
            assert record["fixed"] == {"x": 1}

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert sorted(db["r"].l) == sorted(numbers) == [n * 100 + i for n in range(6) for i in range(30)]


def test_a_record_shows_the_last_of_the_changes_that_threads_make_through_it(db: Database) -> None:
    # Who commits first need not be the first to show it.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for _ in range(60):
            db["r"] = {"l": [], "n": 0}
            record = db["r"]

            def work(number: int, record: Any = record) -> None:
                for index in range(30):
                    record.l.append(number)
                    record.n = index

            with ThreadPoolExecutor(6) as pool:
                list(pool.map(work, range(6)))
            assert record == db["r"]
            assert len(record.l) == 180
    finally:
        sys.setswitchinterval(interval)


def test_one_iterator_gives_each_row_to_one_thread(db: Database) -> None:
    db.update({number: {"n": number} for number in range(2000)})
    rows = iter(db.items())
    lock = threading.Lock()

    def work(_: int) -> list[int]:
        seen = []
        while True:
            with lock:
                item = next(rows, None)
                if item is None:
                    return seen
                number = item[1].n
            seen.append(number)

    with ThreadPoolExecutor(4) as pool:
        seen = [number for part in pool.map(work, range(4)) for number in part]
    assert sorted(seen) == list(range(2000))


def test_readers_go_on_while_a_writer_writes(db: Database) -> None:
    db.update({number: {"a": number, "b": -number} for number in range(200)})
    stop = threading.Event()

    def read() -> int:
        rounds = 0
        while not stop.is_set() or rounds == 0:
            with db.snapshot() as snap:
                rows = list(snap.values())
                assert all(row.a == -row.b for row in rows)
                assert len({row.a // 1000 for row in rows}) == 1
            rounds += 1
        return rounds

    with ThreadPoolExecutor(3) as pool:
        readers = [pool.submit(read) for _ in range(3)]
        for generation in range(1, 15):
            with db.transaction():
                for number, row in db.items():
                    row.update(a=generation * 1000 + number, b=-generation * 1000 - number)
        stop.set()
        assert all(reader.result() > 0 for reader in readers)


# A transaction is its thread's


def test_other_threads_see_nothing_of_a_running_transaction(hasty: Database) -> None:
    hasty["a"] = {"x": 1}
    record = hasty["a"]
    with hasty.transaction():
        hasty["a"].x = 2
        hasty["b"] = {"new": 1}
        assert elsewhere(lambda: dict(hasty.items())) == {"a": {"x": 1}}
        assert elsewhere(lambda: (hasty["a"].x, "b" in hasty, len(hasty), record.x)) == (1, False, 1, 1)
        assert hasty["a"].x == 2
    assert elsewhere(lambda: hasty["a"].x) == 2


def test_other_threads_wait_and_then_are_told_who_holds_it(hasty: Database) -> None:
    hasty["a"] = {"x": 1}
    record = hasty["a"]
    with hasty.transaction():
        for write in (
            lambda: hasty.__setitem__("b", 1),
            lambda: setattr(record, "x", 5),
            lambda: hasty.transaction().__enter__(),
            hasty.clear,
            lambda: hasty.drop_table("default"),
        ):
            with pytest.raises(pellucid.Busy, match=rf"PID {os.getpid()}\b"):
                elsewhere(write)
        hasty["mine"] = 1
    elsewhere(lambda: hasty.__setitem__("b", 1))
    assert dict(hasty) == {"a": {"x": 1}, "b": 1, "mine": 1}


def test_other_threads_write_when_the_transaction_has_ended(db: Database) -> None:
    begun, written = threading.Event(), []

    def work() -> None:
        begun.set()
        db["theirs"] = dict(db.items())
        written.append(True)

    with db.transaction():
        db["mine"] = {"x": 1}
        thread = threading.Thread(target=work)
        thread.start()
        begun.wait()
        assert not written
    thread.join()
    assert written == [True]
    assert "mine" in db


def test_a_transaction_that_another_thread_tries_to_end_stays_with_its_owner(hasty: Database) -> None:
    transaction = hasty.transaction()
    transaction.__enter__()
    hasty["a"] = 1
    with pytest.raises(pellucid.TransactionError, match="thread"):
        elsewhere(lambda: transaction.__exit__(None, None, None))
    hasty["b"] = 2
    transaction.__exit__(None, None, None)
    hasty["c"] = 3
    assert dict(hasty) == {"a": 1, "b": 2, "c": 3}


def test_a_transaction_left_open_by_a_thread_that_ended_can_be_closed_away(path: Path) -> None:
    db = pellucid.open(path, timeout=0.05)
    db["a"] = 1

    kept = []

    def work() -> None:
        kept.append(entered(db.transaction()))
        db["a"] = 2

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert db["a"] == 1
    db.close()
    with pytest.warns(ResourceWarning, match="rolled back"):
        kept.clear()
    with pellucid.open(path, timeout=5) as db:
        assert db["a"] == 1
        db["a"] = 3


def test_a_record_of_one_threads_transaction_is_the_others_too(db: Database) -> None:
    with db.transaction():
        db["a"] = {"x": 1, "fresh": {"y": [1]}}
        record = db["a"]
        assert elsewhere(lambda: (record.x, record.fresh.y[0], record.to_dict()))[:2] == (1, 1)
    assert elsewhere(lambda: record.fresh.y) == [1]


# Tasks


def test_a_transaction_is_its_tasks(hasty: Database) -> None:
    async def other(events: list[str]) -> None:
        try:
            hasty["theirs"] = 1
        except pellucid.Busy as busy:
            events.append(str(busy))
        events.append(repr(dict(hasty)))

    async def main() -> list[str]:
        events: list[str] = []
        with hasty.transaction():
            hasty["mine"] = 1
            await asyncio.create_task(other(events))
            hasty["mine too"] = 2
        await asyncio.create_task(other(events))
        return events

    busy, before, after = asyncio.run(main())
    assert "another task" in busy
    assert before == "{}"
    assert after == repr({"mine": 1, "mine too": 2, "theirs": 1})


def test_a_thread_called_from_a_task_is_not_in_its_transaction(hasty: Database) -> None:
    async def main() -> None:
        with hasty.transaction():
            hasty["mine"] = 1
            # The thread runs in a copy of this task's context.
            assert await asyncio.to_thread(lambda: dict(hasty)) == {}
            with pytest.raises(pellucid.Busy):
                await asyncio.to_thread(hasty.__setitem__, "theirs", 1)
        await asyncio.to_thread(hasty.__setitem__, "theirs", 1)

    asyncio.run(main())
    assert dict(hasty) == {"mine": 1, "theirs": 1}


def test_a_transaction_around_asyncio_holds_inside(hasty: Database) -> None:
    async def main() -> None:
        hasty["a"] = 1
        assert hasty["a"] == 1

    with contextlib.suppress(ZeroDivisionError), hasty.transaction():
        asyncio.run(main())
        _ = 1 / 0
    assert dict(hasty) == {}


def test_rows_put_and_read_one_by_one_keep_nobody_from_compacting_and_closing(path: Path) -> None:
    """What a handle has at hand for the next row is no reader, and nobody who has the file open."""
    db = pellucid.open(path)
    table = db.table("t")
    for turn in range(3):
        for number in range(10):
            table[f"key {number}"] = turn
            assert table[f"key {number}"] == turn
        db.compact()
    table["key 0"] = "last"
    db.close()
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pellucid.open(path) as again:
        assert again.table("t")["key 0"] == "last"


def test_a_database_that_another_thread_compacts_is_busy_and_stops_nobody(path: Path) -> None:
    """Who compacts looks for signals meanwhile, with the lock of the interpreter that others have."""
    with pellucid.open(path) as db:
        table = db.table("t")
        table.extend({"n": number} for number in range(200_000))
        is_over = threading.Event()
        messages: set[str] = set()

        def read_and_write() -> None:
            while not is_over.is_set():
                try:
                    assert table[7].n == 7
                    table[8] = {"n": 8}
                except pellucid.Busy as busy:
                    messages.add(str(busy))

        others = [threading.Thread(target=read_and_write) for _ in range(2)]
        for other in others:
            other.start()
        compacted = 0
        while compacted < 3 or not any("is being compacted" in text for text in list(messages)):
            # One of them may just be reading.
            with contextlib.suppress(pellucid.Busy):
                db.compact()
                compacted += 1
        is_over.set()
        for other in others:
            other.join()
        assert len(table) == 200_000
        assert db.check() == []


def test_a_database_closed_while_another_thread_compacts_it_is_closed(path: Path) -> None:
    db = pellucid.open(path)
    table = db.table("t")
    table.extend({"n": number} for number in range(200_000))

    def closed() -> bool | None:
        # Not `while True`: with a `try` behind it, and no call in that, Python 3.10 never gives up the GIL.
        for _ in itertools.count():
            try:
                _ = table[7]
            except pellucid.Busy:
                db.close()
                return True
            except pellucid.Closed:
                return False
        return None

    with ThreadPoolExecutor(1) as pool:
        closing = pool.submit(closed)
        while not closing.done():
            with contextlib.suppress(pellucid.Busy, pellucid.Closed):
                db.compact()
        assert closing.result()
    with pytest.raises(pellucid.Closed):
        _ = table[7]
    assert [file.name for file in path.parent.iterdir()] == [path.name]
    with pellucid.open(path) as again:
        assert len(again.table("t")) == 200_000


def test_a_database_closed_in_another_thread_is_closed(db: Database) -> None:
    db["a"] = {"x": 1}
    record = db["a"]
    elsewhere(db.close)
    with pytest.raises(pellucid.Closed):
        db["a"]
    with pytest.raises(pellucid.StaleRecord):
        record.x


def test_threads_that_end_leave_nothing_behind(path: Path) -> None:
    with pellucid.open(path) as db:
        db["a"] = {"x": 0}
        for _ in range(100):
            elsewhere(lambda: (db["a"].x, list(db.values()), db.__setitem__("b", 1)))
        with db.transaction():
            db["a"].x = 1
    assert list(path.parent.iterdir()) == [path]


# Transactions that nobody can end any more


def line_of(work: Callable[..., Any]) -> str:
    return f"{Path(__file__).name}:{work.__code__.co_firstlineno + 1} "


def entered(context: Any) -> Any:
    context.__enter__()
    return context


def test_a_transaction_that_is_dropped_inside_its_block_lets_others_write(hasty: Database) -> None:
    context = entered(hasty.transaction())
    hasty["a"] = 1
    with pytest.raises(pellucid.Busy):
        elsewhere(lambda: hasty.update(b=2))
    site = rf"entered at .*{line_of(entered)}\(entered\)"
    where = rf"hasty\.pel\", {site}, was dropped .* rolled back; use it in a with"
    with pytest.warns(ResourceWarning, match=where):
        del context
    assert dict(hasty) == {}
    elsewhere(lambda: hasty.update(b=2))
    with hasty.transaction():
        hasty["c"] = 3
    assert dict(hasty) == {"b": 2, "c": 3}


def test_an_edit_that_is_dropped_inside_its_block_lets_others_write(hasty: Database) -> None:
    hasty["a"] = {"n": 1}
    context = entered(hasty.edit("a"))
    hasty["a"].n = 2
    with pytest.warns(ResourceWarning, match=r"\(entered\)"):
        del context
    elsewhere(lambda: hasty.update(b=2))
    assert hasty["a"].n == 1


def test_a_transaction_may_be_dropped_by_another_thread(hasty: Database) -> None:
    contexts = []

    def work() -> None:
        contexts.append(entered(hasty.transaction()))
        hasty["a"] = 1

    elsewhere(work)
    with pytest.raises(pellucid.Busy):
        hasty["b"] = 2
    # By the thread that waits for it, and by one that has nothing to do with it.
    with pytest.warns(ResourceWarning, match="rolled back"):
        contexts.clear()
    hasty["b"] = 2
    contexts.append(entered(hasty.transaction()))
    hasty["c"] = 3
    with pytest.warns(ResourceWarning, match="rolled back"):
        elsewhere(contexts.clear)
    hasty["d"] = 4
    assert dict(hasty) == {"b": 2, "d": 4}


def test_a_dropped_transaction_is_found_by_the_collector(hasty: Database) -> None:
    cycle: list[Any] = [entered(hasty.transaction())]
    cycle.append(cycle)
    hasty["a"] = 1
    del cycle
    with pytest.warns(ResourceWarning, match="rolled back"):
        gc.collect()
    elsewhere(lambda: hasty.update(b=2))
    assert dict(hasty) == {"b": 2}


def test_an_inner_transaction_that_is_dropped_is_part_of_the_one_around_it(hasty: Database) -> None:
    with hasty.transaction():
        hasty["a"] = 1
        inner = entered(hasty.transaction())
        hasty["b"] = 2
        with pytest.warns(ResourceWarning, match="belongs to the one around it"):
            del inner
        hasty["c"] = 3
    assert dict(hasty) == {"a": 1, "b": 2, "c": 3}


def test_what_is_inside_a_dropped_transaction_is_over_with_it(hasty: Database) -> None:
    outer, inner = entered(hasty.transaction()), entered(hasty.transaction())
    with pytest.warns(ResourceWarning, match="rolled back"):
        del outer
    with hasty.transaction():
        hasty["a"] = 1
        with pytest.raises(pellucid.TransactionError, match="is over"):
            inner.__exit__(None, None, None)
    del inner
    assert dict(hasty) == {"a": 1}


def test_an_exception_that_drops_a_transaction_stays_what_it_is(hasty: Database) -> None:
    def work() -> None:
        context = entered(hasty.transaction())
        hasty["a"] = 1
        assert context
        raise LookupError

    with pytest.warns(ResourceWarning, match="rolled back"), pytest.raises(LookupError):
        work()
    hasty["b"] = 2
    # A warning that is made an error has nobody to raise it to.
    told = []
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("error")
        patch.setattr(sys, "unraisablehook", lambda hook: told.append(hook.exc_type))
        entered(hasty.transaction())
    assert told == [ResourceWarning]
    assert dict(hasty) == {"b": 2}


def test_a_transaction_that_a_signal_handler_drops_ends_behind_what_it_is_in(path: Path) -> None:
    db = pellucid.open(path)
    db.update({n: {"n": n} for n in range(200_000)})
    contexts = [entered(db.transaction())]
    db["a"] = {"n": 1}

    def handler(*_: object) -> None:
        contexts.clear()

    old = signal.signal(signal.SIGALRM, handler)

    def walk() -> None:
        while contexts:
            signal.setitimer(signal.ITIMER_REAL, 0.001)
            with contextlib.suppress(pellucid.TransactionError):
                db.sum("n")

    try:
        with pytest.warns(ResourceWarning, match="rolled back"):
            walk()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert "a" not in db
    elsewhere(lambda: db.update(b=2))
    assert db["b"] == 2
    db.close()
