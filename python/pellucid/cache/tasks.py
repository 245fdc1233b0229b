"""This module lets tasks of asyncio use a cache: what is quick runs at once, what may wait runs in a thread.

A read waits for nothing, so it runs in the loop. A write may wait for other writers. While another process
computes a result, a task looks from time to time whether it is there.
"""

from __future__ import annotations

import asyncio
import functools
from contextvars import ContextVar

from pellucid.cache.entries import ABSENT
from pellucid.cache.functions import Results, given

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from typing import Any

    from pellucid.cache.flights import Claim

__all__ = ["in_thread", "memoized_task"]

# How long a task sleeps between two looks, in seconds: from, to.
PAUSE, PAUSE_MAX = 0.001, 0.02
# What the task computes, each with the event of its end, for a task that it starts may go on for longer: a
# function that asks for its own result again must not wait for itself.
_computing: ContextVar[tuple[tuple[Any, asyncio.Event], ...]] = ContextVar("computing", default=())


async def in_thread(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run a call in a thread. If the task is cancelled, it goes on to its end: nothing is half done."""
    return await asyncio.shield(asyncio.to_thread(function, *arguments))


def memoized_task(
    results: Results, function: Callable[..., Awaitable[Any]], cache_key: Callable[..., Any]
) -> Callable[..., Any]:
    """The coroutine function whose results are kept."""
    # The keys that tasks compute, by loop: what waits for them in the same loop needs no lock of a file.
    running: dict[tuple[int, Any], asyncio.Event] = {}

    @functools.wraps(function)
    async def call(*arguments: Any, **keywords: Any) -> Any:
        key = cache_key(*arguments, **keywords)
        here = (id(asyncio.get_running_loop()), key)
        value, is_fresh = results.look(key, counts=True)
        is_alone = False
        computing, mine = _computing.get(), (id(running), here)
        if not is_fresh and any(one == mine and not end.is_set() for one, end in computing):
            return await function(*arguments, **keywords)
        while not is_fresh and here in running:
            if value is not ABSENT:
                return value
            if is_alone := not results.keeps(key):
                break
            await running[here].wait()
            value, is_fresh = results.look(key, counts=False)
        if is_fresh:
            return given(value)
        done = asyncio.Event()

        async def compute() -> Any:
            token = _computing.set((*computing, (mine, done)))
            try:
                result = await function(*arguments, **keywords)
            except results._kept.errors as error:
                await in_thread(results._keep_error, key, error)
                raise
            finally:
                _computing.reset(token)
            return await in_thread(results.keep, key, result)

        if is_alone:
            try:
                return await compute()
            finally:
                done.set()
        running[here] = done
        try:
            claimed = await _claimed(results, key, waits=value is ABSENT)
            if claimed is None:
                return await compute() if value is ABSENT else value
            try:
                found, is_fresh = results.look(key, counts=False)
                if is_fresh:
                    return given(found)
                return await compute()
            finally:
                claimed.release()
        finally:
            del running[here]
            done.set()

    return call


async def _claimed(results: Results, key: Any, waits: bool) -> Claim | None:
    pause = PAUSE
    while True:
        claimed = results.claim(key, waits=False, in_thread=False)
        if claimed is not None or not waits or not results.keeps(key):
            return claimed
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, PAUSE_MAX)
