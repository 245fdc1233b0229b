"""This module has the class `DjangoCache` of diskcache: a cache backend for Django."""

from __future__ import annotations

from django.core.cache.backends.base import DEFAULT_TIMEOUT, BaseCache

from pellucid.contrib.diskcache.fanout import FanoutCache
from pellucid.contrib.diskcache.settings import ENOVAL

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any

    from pellucid.contrib.diskcache.core import Cache
    from pellucid.contrib.diskcache.persistent import Deque, Index

__all__ = ["DjangoCache"]


class DjangoCache(BaseCache):  # type: ignore[misc]
    """A backend for Django's `CACHES`, with the methods of `diskcache.DjangoCache`.

    `LOCATION` is a folder, and `OPTIONS` are the arguments of `FanoutCache`. Django stores objects of its
    own, such as responses, so `pickle` is "allow" unless `OPTIONS` says otherwise.
    """

    def __init__(self, directory: str, params: dict[str, Any]) -> None:
        super().__init__(params)
        options = {"pickle": "allow", **params.get("OPTIONS", {})}
        shards, timeout = params.get("SHARDS", 8), params.get("DATABASE_TIMEOUT", 0.010)
        self._cache = FanoutCache(directory, shards, timeout, **options)

    @property
    def directory(self) -> str:
        """The folder of the cache."""
        return self._cache.directory

    def cache(self, name: str) -> Cache:
        """The cache `name` in a folder inside of this one."""
        return self._cache.cache(name)

    def deque(self, name: str, maxlen: int | None = None) -> Deque:
        """The deque `name` in a folder inside of this one."""
        return self._cache.deque(name, maxlen)

    def index(self, name: str) -> Index:
        """The index `name` in a folder inside of this one."""
        return self._cache.index(name)

    def _key(self, key: Any, version: Any) -> Any:
        made = self.make_key(key, version=version)
        self.validate_key(made)
        return made

    def add(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: Any = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = True,
    ) -> bool:
        """Store a value if there is none. Returns whether it was stored."""
        expire = self.get_backend_timeout(timeout)
        return self._cache.add(self._key(key, version), value, expire, read, tag, retry)

    def get(
        self,
        key: Any,
        default: Any = None,
        version: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Return the value of a key, or `default`."""
        return self._cache.get(self._key(key, version), default, read, expire_time, tag, retry)

    def read(self, key: Any, version: Any = None) -> Any:
        """Return a file of the value of a key, or raise `KeyError`."""
        return self._cache.read(self._key(key, version))

    def set(
        self,
        key: Any,
        value: Any,
        timeout: Any = DEFAULT_TIMEOUT,
        version: Any = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = True,
    ) -> bool:
        """Store a value. Returns whether it was stored."""
        expire = self.get_backend_timeout(timeout)
        return self._cache.set(self._key(key, version), value, expire, read, tag, retry)

    def touch(
        self, key: Any, timeout: Any = DEFAULT_TIMEOUT, version: Any = None, retry: bool = True
    ) -> bool:
        """Change when an entry expires. Returns whether there was one."""
        return self._cache.touch(self._key(key, version), self.get_backend_timeout(timeout), retry)

    def pop(
        self,
        key: Any,
        default: Any = None,
        version: Any = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = True,
    ) -> Any:
        """Remove an entry and return its value."""
        return self._cache.pop(self._key(key, version), default, expire_time, tag, retry)

    def delete(self, key: Any, version: Any = None, retry: bool = True) -> bool:
        """Remove an entry. Returns whether there was one."""
        return self._cache.delete(self._key(key, version), retry)

    def incr(
        self,
        key: Any,
        delta: int = 1,
        version: Any = None,
        default: int | None = None,
        retry: bool = True,
    ) -> Any:
        """Add to a number; a missing one is `default`, or a `ValueError`."""
        try:
            return self._cache.incr(self._key(key, version), delta, default, retry)
        except KeyError:
            raise ValueError(f"Key {key!r} not found") from None

    def decr(
        self,
        key: Any,
        delta: int = 1,
        version: Any = None,
        default: int | None = None,
        retry: bool = True,
    ) -> Any:
        """Subtract from a number."""
        return self.incr(key, -delta, version, default, retry)

    def has_key(self, key: Any, version: Any = None) -> bool:
        """Say whether there is an entry."""
        return self._key(key, version) in self._cache

    def expire(self) -> int:
        """Remove what has expired. Returns how many entries there were."""
        return self._cache.expire()

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Return the hits and misses, and go on counting, or stop."""
        return self._cache.stats(enable, reset)

    def create_tag_index(self) -> None:
        """Make the index of tags now."""
        self._cache.create_tag_index()

    def drop_tag_index(self) -> None:
        """Forget that the index of tags was asked for."""
        self._cache.drop_tag_index()

    def evict(self, tag: Any) -> int:
        """Remove the entries with a tag. Returns how many there were."""
        return self._cache.evict(tag)

    def cull(self) -> int:
        """Remove what has expired, and evict entries down to the limit."""
        return self._cache.cull()

    def clear(self) -> int:
        """Remove all entries. Returns how many there were."""
        return self._cache.clear()

    def close(self, **_options: Any) -> None:
        """Close the file. The next call opens it again."""
        self._cache.close()

    def get_backend_timeout(self, timeout: Any = DEFAULT_TIMEOUT) -> Any:
        """How many seconds an entry lives, by a timeout of Django: a negative one is over already."""
        if timeout == DEFAULT_TIMEOUT:
            timeout = self.default_timeout
        elif timeout == 0:
            timeout = -1
        return None if timeout is None else timeout

    def memoize(
        self,
        name: str | None = None,
        timeout: Any = DEFAULT_TIMEOUT,
        version: Any = None,
        typed: bool = False,
        tag: Any = None,
        ignore: Collection[int | str] = (),
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that keeps the results of a function, under keys as Django makes them."""
        if callable(name):
            raise TypeError("name cannot be callable")
        import functools

        keeping = self._cache._memoize(name, typed, None, tag, ignore)

        def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
            make_key = keeping(function).__cache_key__  # type: ignore[attr-defined]

            @functools.wraps(function)
            def wrapper(*arguments: Any, **keywords: Any) -> Any:
                key = make_key(*arguments, **keywords)
                result = self.get(key, ENOVAL, version)
                if result is ENOVAL:
                    result = function(*arguments, **keywords)
                    if timeout is None or timeout == DEFAULT_TIMEOUT or timeout > 0:
                        self.set(key, result, timeout, version, tag=tag)
                return result

            wrapper.__cache_key__ = make_key  # type: ignore[attr-defined]
            return wrapper

        return decorator
