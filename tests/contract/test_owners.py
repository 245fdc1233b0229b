"""Whose is a transaction, among threads, tasks and contexts?"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pellucid
import processes
import pytest
from undone import Undo, undone

Database = pellucid.Database


def elsewhere(work: Callable[[], Any]) -> Any:
    """What `work` returns in another thread."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


@pytest.fixture
def base(db: Database) -> Database:
    """A database with a row, so that its table is there."""
    db["base"] = 0
    return db


def test_what_asyncio_runs_in_a_block_belongs_to_its_transaction(base: Database) -> None:
    async def write(name: str) -> None:
        base[name] = 1

    async def main() -> None:
        await write("in the main task")
        await asyncio.gather(*(asyncio.create_task(write(f"task {number}")) for number in range(3)))
        with base.transaction():
            base["in a savepoint"] = 1
        with undone(base):
            base["taken back"] = 1
        assert len(base) == 7
        assert await asyncio.to_thread(lambda: dict(base)) == {"base": 0}

    with undone(base):
        base["before"] = 1
        asyncio.run(main())
        assert sorted(base) == [
            "base",
            "before",
            "in a savepoint",
            "in the main task",
            "task 0",
            "task 1",
            "task 2",
        ]
    assert base == {"base": 0}
    with base.transaction():
        asyncio.run(write("kept"))
    assert base == {"base": 0, "kept": 1}


def test_a_task_that_was_made_before_the_block_belongs_to_it_while_it_runs_in_it(base: Database) -> None:
    """Its context is older than the transaction."""

    async def write() -> None:
        base["late"] = 1

    with contextlib.closing(asyncio.new_event_loop()) as loop:
        task = loop.create_task(write())
        with undone(base):
            loop.run_until_complete(task)
            assert base["late"] == 1
    assert base == {"base": 0}


def test_a_context_of_its_own_is_no_way_out_of_a_transaction(base: Database) -> None:
    with undone(base):
        contextvars.Context().run(base.__setitem__, "inside", 1)
        assert base["inside"] == 1
    assert base == {"base": 0}


def test_the_transaction_of_a_task_is_no_other_tasks(base: Database) -> None:
    async def look() -> dict[Any, Any]:
        return dict(base)

    async def main() -> None:
        before = asyncio.create_task(look())
        with base.transaction():
            base["mine"] = 1
            # One that has its context from before, one that has it from here, and a thread with a copy.
            assert await before == {"base": 0}
            assert await asyncio.create_task(look()) == {"base": 0}
            assert await asyncio.to_thread(lambda: dict(base)) == {"base": 0}
            # What the task itself awaits is its own.
            assert await look() == {"base": 0, "mine": 1}
            seen: list[dict[Any, Any]] = []
            asyncio.get_running_loop().call_soon(lambda: seen.append(dict(base)))
            await asyncio.sleep(0)
            assert seen == [{"base": 0}]

    asyncio.run(main())
    assert base == {"base": 0, "mine": 1}


def test_the_transaction_of_a_thread_is_no_other_threads(base: Database) -> None:
    async def look() -> dict[Any, Any]:
        return dict(base)

    with base.transaction():
        base["mine"] = 1
        assert elsewhere(lambda: dict(base)) == {"base": 0}
        assert elsewhere(lambda: asyncio.run(look())) == {"base": 0}
        context = contextvars.copy_context()
        assert elsewhere(lambda: context.run(dict, base)) == {"base": 0}
    assert base == {"base": 0, "mine": 1}


def test_the_transaction_of_a_task_that_has_ended_is_nobodys(base: Database) -> None:
    """Not that of a later task either, which may be at the same address."""
    left: list[Any] = []

    async def look() -> bool:
        return "left" in base

    async def look_often() -> list[bool]:
        await asyncio.sleep(0.01)
        return [await asyncio.create_task(look()) for _ in range(50)]

    async def leave() -> asyncio.Task[list[bool]]:
        transaction = base.transaction()
        transaction.__enter__()
        left.append(transaction)
        base["left"] = 1
        # With a copy of this task's context.
        return asyncio.create_task(look_often())

    async def main() -> list[bool]:
        return await (await asyncio.create_task(leave()))

    assert not any(asyncio.run(main()))
    with pytest.warns(
        ResourceWarning, match="a transaction of .* was dropped and never left: it has been rolled"
    ):
        left.clear()
    base["again"] = 1
    assert base == {"base": 0, "again": 1}


def test_a_transaction_that_was_dropped_is_rolled_back(base: Database) -> None:
    transaction = base.transaction()
    transaction.__enter__()
    base["mine"] = 1
    inner = base.transaction()
    inner.__enter__()
    base["inner"] = 1
    with pytest.warns(ResourceWarning, match="within another .* belongs to the one around it"):
        del inner
    assert base == {"base": 0, "mine": 1, "inner": 1}
    with pytest.warns(ResourceWarning, match="it has been rolled back"):
        del transaction
    assert base == {"base": 0}
    elsewhere(lambda: base.__setitem__("theirs", 1))
    assert base == {"base": 0, "theirs": 1}


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_savepoint_that_is_left_after_the_one_around_it_says_so(base: Database, *, is_kept: bool) -> None:
    """As two tasks of one transaction may do it."""
    with base.transaction():
        outer, inner = base.transaction(), base.transaction()
        outer.__enter__()
        base["outer"] = 1
        inner.__enter__()
        base["inner"] = 1
        error = None if is_kept else Undo()
        outer.__exit__(type(error) if error else None, error, None)
        with pytest.raises(pellucid.TransactionError, match="released or rolled back before"):
            inner.__exit__(None, None, None)
        base["after"] = 1
    assert base == ({"base": 0, "outer": 1, "inner": 1, "after": 1} if is_kept else {"base": 0, "after": 1})


def test_a_block_that_is_left_after_its_transaction_says_so(base: Database) -> None:
    outer, inner = base.transaction(), base.transaction()
    outer.__enter__()
    base["outer"] = 1
    inner.__enter__()
    outer.__exit__(None, None, None)
    with pytest.raises(pellucid.TransactionError, match="this transaction is over"):
        inner.__exit__(None, None, None)
    assert base == {"base": 0, "outer": 1}


def test_a_forked_child_is_in_no_transaction_of_its_parent(base: Database) -> None:
    def work() -> None:
        for use in (lambda: base["base"], lambda: base.__setitem__("child", 1), lambda: dict(base)):
            with pytest.raises(
                pellucid.TransactionError, match="parent process; begin a new one after a fork"
            ):
                use()

    with base.transaction():
        base["mine"] = 1
        processes.in_child(work)
        base["mine too"] = 1
    assert base == {"base": 0, "mine": 1, "mine too": 1}


def test_a_transaction_whose_database_another_thread_has_closed_is_not_kept(base: Database) -> None:
    transaction = base.transaction()
    transaction.__enter__()
    base["mine"] = 1
    elsewhere(base.close)
    with pytest.raises(pellucid.Closed):
        transaction.__exit__(None, None, None)
    with pytest.raises(pellucid.Closed):
        base["after"] = 1
