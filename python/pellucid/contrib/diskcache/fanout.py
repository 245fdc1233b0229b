"""This module has the class `FanoutCache` of diskcache: its calls give up instead of raising `Timeout`."""

from __future__ import annotations

import os
from contextlib import suppress

from pellucid.contrib.diskcache.core import Cache
from pellucid.contrib.diskcache.persistent import Deque, Index
from pellucid.contrib.diskcache.settings import DEFAULT_SETTINGS, Disk, Timeout

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
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

    def set(self, key: Any, value: Any, *arguments: Any, **options: Any) -> bool:
        """Store a value. Returns False if other writers held the lock for too long."""
        with suppress(Timeout):
            return super().set(key, value, *arguments, **options)
        return False

    def add(self, key: Any, value: Any, *arguments: Any, **options: Any) -> bool:
        """Store a value if there is none. Returns False if other writers held the lock for too long."""
        with suppress(Timeout):
            return super().add(key, value, *arguments, **options)
        return False

    def incr(self, key: Any, delta: int = 1, default: int | None = 0, retry: bool = False) -> Any:
        """Add to a number. Returns None if other writers held the lock for too long."""
        with suppress(Timeout):
            return super().incr(key, delta, default, retry)
        return None

    def touch(self, key: Any, expire: float | None = None, retry: bool = False) -> bool:
        """Change when an entry expires. Returns False if other writers held the lock for too long."""
        with suppress(Timeout):
            return super().touch(key, expire, retry)
        return False

    def pop(self, key: Any, default: Any = None, *arguments: Any, **options: Any) -> Any:
        """Remove an entry. Returns `default` if other writers held the lock for too long."""
        with suppress(Timeout):
            return super().pop(key, default, *arguments, **options)
        return default

    def delete(self, key: Any, retry: bool = False) -> bool:
        """Remove an entry. Returns False if other writers held the lock for too long."""
        with suppress(Timeout):
            return super().delete(key, retry)
        return False

    def cache(self, name: str, timeout: float = 60, disk: Any = None, **settings: Any) -> Cache:
        """The cache `name` in a folder inside of this one."""
        key = ("cache", name)
        if key not in self._parts:
            chosen = type(self._disk) if disk is None else disk
            folder = self._folder("cache", name)
            self._parts[key] = Cache(folder, timeout, chosen, pickle=self._pickle, **settings)
        return self._parts[key]  # type: ignore[no-any-return]

    def deque(self, name: str, maxlen: int | None = None) -> Deque:
        """The deque `name` in a folder inside of this one."""
        key = ("deque", name)
        if key not in self._parts:
            cache = Cache(self._folder("deque", name), eviction_policy="none", pickle=self._pickle)
            self._parts[key] = Deque.fromcache(cache, maxlen=maxlen)
        return self._parts[key]  # type: ignore[no-any-return]

    def index(self, name: str) -> Index:
        """The index `name` in a folder inside of this one."""
        key = ("index", name)
        if key not in self._parts:
            cache = Cache(self._folder("index", name), eviction_policy="none", pickle=self._pickle)
            self._parts[key] = Index.fromcache(cache)
        return self._parts[key]  # type: ignore[no-any-return]

    def _folder(self, kind: str, name: str) -> str:
        return os.path.join(self._directory, kind, *name.split("/"))

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
