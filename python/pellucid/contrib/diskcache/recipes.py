"""This module has the recipes of diskcache: averages, locks, and decorators, over the entries of a cache."""

from __future__ import annotations

import functools
import os
import threading
import time

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

__all__ = ["Averager", "BoundedSemaphore", "Lock", "RLock", "barrier", "memoize_stampede", "throttle"]

# How long a caller sleeps between two looks at a lock, in seconds: from, to.
PAUSE, PAUSE_MAX = 0.001, 0.02


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


class _Recipe:
    """An entry of a cache that processes share."""

    def __init__(self, cache: Any, key: Any, expire: float | None = None, tag: Any = None) -> None:
        self._cache = cache
        self._key = key
        self._expire = expire
        self._tag = tag

    def _set(self, value: Any) -> None:
        self._cache.set(self._key, value, expire=self._expire, tag=self._tag)

    def _wait(self, attempt: Callable[[], bool]) -> None:
        pause = PAUSE
        while not attempt():
            time.sleep(pause)
            pause = min(pause * 1.5, PAUSE_MAX)

    def __enter__(self) -> None:
        self.acquire()  # type: ignore[attr-defined]

    def __exit__(self, *_error: object) -> None:
        self.release()  # type: ignore[attr-defined]


class Averager(_Recipe):
    """An average of values that come one by one."""

    def add(self, value: float) -> None:
        """Add a value."""
        with self._cache.transact():
            total, count = self._cache.get(self._key, default=(0.0, 0))
            self._set((total + value, count + 1))

    def get(self) -> float | None:
        """Return the average; None without values."""
        total, count = self._cache.get(self._key, default=(0.0, 0))
        return None if count == 0 else total / count

    def pop(self) -> float | None:
        """Return the average, and begin anew."""
        total, count = self._cache.pop(self._key, default=(0.0, 0))
        return None if count == 0 else total / count


class Lock(_Recipe):
    """A lock of processes and threads. It stays if its holder dies, unless it has `expire`."""

    def acquire(self) -> None:
        """Wait until no other caller has the lock."""
        self._wait(lambda: self._cache.add(self._key, None, expire=self._expire, tag=self._tag))

    def release(self) -> None:
        """Let the next caller in."""
        self._cache.delete(self._key)

    def locked(self) -> bool:
        """Whether a caller has the lock."""
        return bool(self._key in self._cache)


class RLock(_Recipe):
    """A lock that its thread may take several times."""

    def _me(self) -> str:
        return f"{os.getpid()}-{threading.get_ident()}"

    def acquire(self) -> None:
        """Wait until no other thread has the lock."""

        def attempt() -> bool:
            with self._cache.transact():
                holder, count = self._cache.get(self._key, default=(None, 0))
                is_free = bool(count == 0 or holder == self._me())
                if is_free:
                    self._set((self._me(), count + 1))
                return is_free

        self._wait(attempt)

    def release(self) -> None:
        """Give the lock back once; `AssertionError` if this thread does not have it."""
        with self._cache.transact():
            holder, count = self._cache.get(self._key, default=(None, 0))
            if holder != self._me() or count == 0:
                raise AssertionError("cannot release un-acquired lock")
            self._set((holder, count - 1))


class BoundedSemaphore(_Recipe):
    """A lock that `value` callers may have at once."""

    def __init__(
        self, cache: Any, key: Any, value: int = 1, expire: float | None = None, tag: Any = None
    ) -> None:
        super().__init__(cache, key, expire, tag)
        self._value = value

    def acquire(self) -> None:
        """Wait until fewer callers have it."""

        def attempt() -> bool:
            with self._cache.transact():
                left = self._cache.get(self._key, default=self._value)
                if left > 0:
                    self._set(left - 1)
                return bool(left > 0)

        self._wait(attempt)

    def release(self) -> None:
        """Let another caller in; `AssertionError` if there is none that has it."""
        with self._cache.transact():
            left = self._cache.get(self._key, default=self._value)
            if left >= self._value:
                raise AssertionError("cannot release un-acquired semaphore")
            self._set(left + 1)


def throttle(
    cache: Any,
    count: int,
    seconds: float,
    name: str | None = None,
    expire: float | None = None,
    tag: Any = None,
    time_func: Callable[[], float] = time.time,
    sleep_func: Callable[[float], object] = time.sleep,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that lets a function run `count` times in `seconds`, in all processes together."""

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        rate = count / float(seconds)
        key = _name(function) if name is None else name
        cache.set(key, (time_func(), count), expire=expire, tag=tag)

        def delay() -> float:
            with cache.transact():
                last, tally = cache.get(key, default=(time_func(), count))
                now = time_func()
                tally = min(tally + (now - last) * rate, count)
                if tally < 1:
                    return (1 - tally) / rate  # type: ignore[no-any-return]
                cache.set(key, (now, tally - 1), expire=expire, tag=tag)
                return 0

        @functools.wraps(function)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            while pause := delay():
                sleep_func(pause)
            return function(*arguments, **keywords)

        return wrapper

    return decorator


def barrier(
    cache: Any,
    lock_factory: Callable[..., Any],
    name: str | None = None,
    expire: float | None = None,
    tag: Any = None,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that runs a function under a lock of all processes."""

    def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
        lock = lock_factory(cache, _name(function) if name is None else name, expire=expire, tag=tag)

        @functools.wraps(function)
        def wrapper(*arguments: Any, **keywords: Any) -> Any:
            with lock:
                return function(*arguments, **keywords)

        return wrapper

    return decorator


def memoize_stampede(
    cache: Any,
    expire: float,
    name: str | None = None,
    typed: bool = False,
    tag: Any = None,
    beta: float = 1,
    ignore: Collection[int | str] = (),
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator that keeps results for `expire` seconds; of many callers, one computes.

    diskcache computes results early and at random, more so with a larger `beta`. Here a result is served
    while it is computed anew, for as long again as it was fresh.
    """
    opened = cache if hasattr(cache, "_memoize") else cache._cache
    return opened._memoize(name, typed, expire, tag, ignore, stale=expire)  # type: ignore[no-any-return]
