"""Do tasks of asyncio use a cache without blocking the loop?"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid.cache import core, functions


@pytest.fixture
def cache(path: Path) -> Iterator[pellucid.Cache]:
    with pellucid.Cache(path) as opened:
        yield opened


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(work, 60))


def test_tasks_get_set_and_delete(cache: pellucid.Cache) -> None:
    async def work() -> None:
        assert await cache.aset("key", {"a": 1}, expire=60, tag="t")
        assert await cache.aget("key") == {"a": 1}
        assert await cache.aget("missing", 5) == 5
        assert (await cache.aget("key", tag=True))[1] == "t"
        assert await cache.adelete("key")
        assert not await cache.adelete("key")

    run(work())


def test_one_of_many_tasks_computes(cache: pellucid.Cache) -> None:
    calls = []

    @cache.memoize()
    async def slow(number: int) -> list[int]:
        calls.append(number)
        await asyncio.sleep(0.02)
        return [number]

    async def work() -> None:
        assert await asyncio.gather(*(slow(number % 2) for number in range(40))) == [[0], [1]] * 20
        assert await slow(0) == [0]

    run(work())
    assert sorted(calls) == [0, 1]
    assert cache[slow.__cache_key__(1)] == [1]


@pytest.mark.filterwarnings("ignore:a result of")
def test_tasks_do_not_wait_for_a_result_that_cannot_be_stored(cache: pellucid.Cache) -> None:
    calls = []

    @cache.memoize()
    async def call() -> Any:
        calls.append(1)
        all_others = 5
        while 1 < len(calls) < all_others:
            await asyncio.sleep(0.001)
        return iter(range(3))

    async def work() -> None:
        results = await asyncio.gather(*(call() for _ in range(5)))
        assert list(map(list, results)) == [[0, 1, 2]] * 5

    run(work())


@pytest.mark.filterwarnings("ignore:a result of")
def test_tasks_of_several_loops_do_not_wait_for_a_result_that_cannot_be_stored(cache: pellucid.Cache) -> None:
    calls, many = [], 4

    @cache.memoize()
    async def call() -> Any:
        calls.append(1)
        if len(calls) == 1:
            # Time for the other loops to wait for this one.
            await asyncio.sleep(0.2)
        while 1 < len(calls) < many:
            await asyncio.sleep(0.001)
        return iter(range(3))

    with ThreadPoolExecutor(many) as pool:
        loops = [pool.submit(run, call()) for _ in range(many)]
        assert [list(each.result(100)) for each in loops] == [[0, 1, 2]] * many


def test_each_task_ends_whatever_becomes_of_results_meanwhile(
    cache: pellucid.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = iter([False] + [True] * 100)
    monkeypatch.setattr(functions.Results, "keeps", lambda *_: next(answers))

    @cache.memoize()
    async def call() -> int:
        await asyncio.sleep(0.01)
        return 7

    async def work() -> None:
        assert await asyncio.gather(*(call() for _ in range(3))) == [7] * 3

    run(work())


def test_a_task_that_a_computation_starts_uses_the_cache_later(cache: pellucid.Cache) -> None:
    calls, started = [], []

    @cache.memoize()
    async def call() -> int:
        calls.append(1)
        if not started:
            started.append(asyncio.create_task(later()))
        return 7

    async def later() -> None:
        await asyncio.sleep(0.05)
        cache.clear()
        assert [await call(), await call()] == [7, 7]

    async def work() -> None:
        await call()
        await started[0]

    run(work())
    assert len(calls) == 2


def test_many_tasks_compute_at_once_with_few_open_files(cache: pellucid.Cache) -> None:
    counts = []

    @cache.memoize()
    async def call(number: int) -> int:
        await asyncio.sleep(0)
        counts.append(len(os.listdir("/dev/fd")))
        return number

    async def all_of_them() -> list[int]:
        return await asyncio.gather(*map(call, range(100)))

    before = len(os.listdir("/dev/fd"))
    assert run(all_of_them()) == list(range(100))
    assert max(counts) < before + 50


def test_a_task_may_ask_for_its_own_result_again(cache: pellucid.Cache) -> None:
    turns: list[int] = []

    @cache.memoize()
    async def call(number: int) -> int:
        turns.append(number)
        return await call(number) + 1 if len(turns) < 3 else 0

    assert run(asyncio.wait_for(call(1), 60)) == 2
    assert run(call(1)) == 2
    assert len(turns) == 3


def test_a_cancelled_computation_is_taken_over(cache: pellucid.Cache) -> None:
    calls = []

    @cache.memoize()
    async def slow() -> int:
        calls.append(1)
        await asyncio.sleep(30 if len(calls) == 1 else 0)
        return len(calls)

    async def work() -> None:
        first = asyncio.create_task(slow())
        await asyncio.sleep(0)
        second = asyncio.create_task(slow())
        await asyncio.sleep(0.01)
        first.cancel()
        assert await second == 2
        with pytest.raises(asyncio.CancelledError):
            await first

    run(work())


def test_a_cancelled_set_is_stored_whole_or_not_begun(cache: pellucid.Cache) -> None:
    async def work() -> None:
        with cache.transact():
            # Another thread has the writer lock, so the set waits.
            setting = asyncio.create_task(cache.aset("key", [1] * 100))
            await asyncio.sleep(0.02)
            setting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await setting
        for _ in range(1000):
            if "key" in cache:
                break
            await asyncio.sleep(0.01)
        assert cache["key"] == [1] * 100

    run(work())


def test_the_loop_goes_on_while_a_writer_is_waited_for(cache: pellucid.Cache) -> None:
    holding, release = threading.Event(), threading.Event()

    def hold() -> None:
        with cache.transact():
            cache["other"] = 1
            holding.set()
            assert release.wait(60)

    @cache.memoize()
    async def quick() -> int:
        return 7

    async def work() -> None:
        thread = threading.Thread(target=hold)
        thread.start()
        assert holding.wait(60)
        tasks = [asyncio.create_task(cache.aset("key", 1)), asyncio.create_task(quick())]
        for _ in range(20):
            await asyncio.sleep(0.001)
            assert await cache.aget("other", "before") == "before"
        assert not any(task.done() for task in tasks)
        release.set()
        assert await asyncio.gather(*tasks) == [True, 7]
        thread.join()

    run(work())


def test_a_task_waits_for_a_thread_that_computes_the_same(cache: pellucid.Cache) -> None:
    calls, computing = [], threading.Event()

    def slow(number: int) -> int:
        calls.append("thread")
        computing.set()
        time.sleep(0.1)
        return number

    async def slow_task(number: int) -> int:
        calls.append("task")
        return number

    kept, kept_task = cache.memoize(name="slow")(slow), cache.memoize(name="slow")(slow_task)

    async def work() -> None:
        thread = threading.Thread(target=kept, args=(5,))
        thread.start()
        assert computing.wait(60)
        assert await kept_task(5) == 5
        thread.join()

    run(work())
    assert calls == ["thread"]


def test_a_task_keeps_exceptions(cache: pellucid.Cache) -> None:
    calls = []

    @cache.memoize(errors=ValueError)
    async def fails() -> None:
        calls.append(1)
        raise ValueError("no")

    async def work() -> None:
        for _ in range(2):
            with pytest.raises(ValueError, match="no"):
                await fails()

    run(work())
    assert calls == [1]


def test_a_task_gets_a_stale_result_while_another_one_computes(
    cache: pellucid.Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, calls = [1000.0], []
    for module in (core, functions):
        monkeypatch.setattr(module, "time", lambda: now[0])

    async def work() -> None:
        computing, done = asyncio.Event(), asyncio.Event()

        @cache.memoize(expire=10, stale=60)
        async def ages() -> int:
            calls.append(1)
            if len(calls) > 1:
                computing.set()
                await done.wait()
            return len(calls)

        assert await ages() == 1
        now[0] += 20
        new = asyncio.create_task(ages())
        await computing.wait()
        assert await ages() == 1
        done.set()
        assert await new == 2
        assert await ages() == 2

    run(work())
    assert len(calls) == 2
