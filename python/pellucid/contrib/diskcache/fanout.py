"""This module has the class `FanoutCache` of diskcache: its calls give up instead of raising `Timeout`."""

from __future__ import annotations

import os
from contextlib import ExitStack, contextmanager
from functools import partial

from pellucid.contrib.diskcache.core import Cache
from pellucid.contrib.diskcache.persistent import Deque, Index
from pellucid.contrib.diskcache.settings import DEFAULT_SETTINGS, Disk, Timeout

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any

__all__ = ["FanoutCache"]


class FanoutCache(Cache):
    """A cache in a folder, with the methods of `diskcache.FanoutCache`.

    It has one file, because writers of pellucid do not need shards; `shards` divides the limit, as in
    diskcache.

    >>> from pellucid.contrib import diskcache
    >>> cache = diskcache.FanoutCache("folder", shards=4)
    >>> cache.index("names")["a"] = 1
    >>> dict(cache.index("names"))
    {'a': 1}
    """

    def __init__(
        self,
        directory: Any = None,
        shards: int = 8,
        timeout: float = 0.010,
        disk: Any = Disk,
        *,
        pickle: Any = "deny",
        **settings: Any,
    ) -> None:
        self._shard_count = shards
        limit = settings.pop("size_limit", DEFAULT_SETTINGS["size_limit"]) / shards
        super().__init__(directory, timeout, disk, pickle=pickle, size_limit=limit, **settings)
        self._parts: dict[tuple[str, str], Any] = {}

    @property
    def _shards(self) -> tuple[Cache, ...]:
        return (self,)

    def _apply(self) -> None:
        super()._apply()
        self._entries._order.limit = int(self._settings["size_limit"] * self._shard_count)

    def _tried(self, call: Callable[[], Any], retry: bool = True, otherwise: Any = None) -> Any:
        """What a call returns: after its timeouts it is tried again with `retry`, and gives up without."""
        while True:
            try:
                return call()
            except Timeout:
                if not retry:
                    return otherwise

    @contextmanager
    def transact(self, retry: bool = True) -> Iterator[None]:
        """A block whose changes are stored together, or not at all."""
        with ExitStack() as stack:
            self._tried(lambda: stack.enter_context(self._entries.transact()))
            yield

    def set(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Store a value. Without `retry`, returns False if other writers held the lock for too long."""
        value, put = value.read() if read else value, super().set
        return bool(self._tried(lambda: put(key, value, expire, False, tag), retry, False))

    def add(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Store a value if there is none. Without `retry`, returns False if the lock was held too long."""
        value, put = value.read() if read else value, super().add
        return bool(self._tried(lambda: put(key, value, expire, False, tag), retry, False))

    def incr(self, key: Any, delta: int = 1, default: int | None = 0, retry: bool = False) -> Any:
        """Add to a number. Without `retry`, returns None if other writers held the lock for too long."""
        add = super().incr
        return self._tried(lambda: add(key, delta, default), retry)

    def touch(self, key: Any, expire: float | None = None, retry: bool = False) -> bool:
        """Change when an entry expires. Without `retry`, returns False if the lock was held for too long."""
        change = super().touch
        return bool(self._tried(lambda: change(key, expire), retry, False))

    def pop(
        self,
        key: Any,
        default: Any = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Remove an entry. Without `retry`, returns `default` if other writers held the lock for too long."""
        take = super().pop
        return self._tried(lambda: take(key, default, expire_time, tag), retry, default)

    def delete(self, key: Any, retry: bool = False) -> bool:
        """Remove an entry. Without `retry`, returns False if other writers held the lock for too long."""
        remove = super().delete
        return bool(self._tried(lambda: remove(key), retry, False))

    def __delitem__(self, key: Any, retry: bool = True) -> None:
        """Remove an entry, or raise `KeyError`."""
        remove = super().__delitem__
        self._tried(lambda: remove(key))

    def evict(self, tag: Any, retry: bool = False) -> int:
        """Remove the entries with a tag. Returns how many there were."""
        remove = super().evict
        return int(self._tried(lambda: remove(tag)))

    def expire(self, now: float | None = None, retry: bool = False) -> int:
        """Remove what has expired. Returns how many entries there were."""
        remove = super().expire
        return int(self._tried(lambda: remove(now)))

    def cull(self, retry: bool = False) -> int:
        """Remove what has expired, and evict entries down to the limit. Returns how many went."""
        return int(self._tried(super().cull))

    def clear(self, retry: bool = False) -> int:
        """Remove all entries. Returns how many there were."""
        return int(self._tried(super().clear))

    def cache(self, name: str, timeout: float = 60, disk: Any = None, **settings: Any) -> Cache:
        """The cache `name` in a folder inside of this one."""
        chosen = type(self._disk) if disk is None else disk
        return self._part("cache", name, lambda made: made, timeout, chosen, **settings)  # type: ignore[no-any-return]

    def deque(self, name: str, maxlen: int | None = None) -> Deque:
        """The deque `name` in a folder inside of this one."""
        make = partial(Deque.fromcache, maxlen=maxlen)
        return self._part("deque", name, make, eviction_policy="none")  # type: ignore[no-any-return]

    def index(self, name: str) -> Index:
        """The index `name` in a folder inside of this one."""
        return self._part("index", name, Index.fromcache, eviction_policy="none")  # type: ignore[no-any-return]

    def _part(
        self, kind: str, name: str, make: Callable[[Cache], Any], *options: Any, **settings: Any
    ) -> Any:
        part = self._parts.get((kind, name))
        if part is None:
            folder = os.path.join(self._directory, kind, *name.split("/"))
            part = make(Cache(folder, *options, pickle=self._pickle, **settings))
            self._parts[kind, name] = part
        return part

    def close(self) -> None:
        """Close the file, and those of its caches, deques and indexes."""
        super().close()
        for part in self._parts.values():
            getattr(part, "cache", part).close() if not isinstance(part, Cache) else part.close()
        self._parts.clear()

    def __getstate__(self) -> Any:
        return self._directory, self._shard_count, self._timeout, type(self._disk), self._pickle

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state[:4], pickle=state[4])  # type: ignore[misc]
