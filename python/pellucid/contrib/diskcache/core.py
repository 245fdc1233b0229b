"""This module has the class `Cache` of diskcache: entries with times and tags, queues, a limit."""

from __future__ import annotations

import functools
import io
import os
import tempfile
from contextlib import contextmanager
from itertools import islice
from time import time

from pellucid.cache.entries import ABSENT, opened, with_facts
from pellucid.cache.functions import SCALARS
from pellucid.cache.names import function_name
from pellucid.cache.opening import path_of
from pellucid.contrib.arrays import changeable
from pellucid.contrib.diskcache.entries import Entries
from pellucid.contrib.diskcache.settings import DEFAULT_SETTINGS, ENOVAL, EVICTION_POLICY, Disk, JSONDisk
from pellucid.errors import UnsupportedValue

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator
    from typing import Any

__all__ = ["Cache"]

FILE = "cache.pel"
# Where a queue begins, and the digits of its keys.
MIDDLE, DIGITS = 500_000_000_000_000, 15


class Reader(io.BytesIO):
    """The bytes of a value, as a file with a name."""

    name: str


class Cache:
    """A cache in a folder, with the methods of `diskcache.Cache`.

    `directory` is made if it is not there; without one, a new temporary folder. `settings` are those of
    diskcache. `pickle` says whether values may be stored as pickles, as in `pellucid.open`. `retry` of the
    methods changes nothing: each waits for other writers, up to `timeout` seconds, and then raises `Timeout`.

    >>> from pellucid.contrib import diskcache
    >>> cache = diskcache.Cache("folder")
    >>> cache.set("a", 1, tag="numbers")
    True
    >>> cache.push("job"), cache.pull()
    (500000000000000, (500000000000000, 'job'))
    >>> list(cache)
    ['a']
    """

    def __init__(
        self,
        directory: Any = None,
        timeout: float = 60,
        disk: Any = Disk,
        *,
        pickle: Any = "deny",
        **settings: Any,
    ) -> None:
        if not (isinstance(disk, type) and issubclass(disk, Disk)):
            raise ValueError("disk must be Disk or JSONDisk, as a class")
        if disk not in (Disk, JSONDisk):
            raise ValueError(
                f"disk must be Disk or JSONDisk: {disk.__qualname__} would not be used, because values are "
                "stored natively; register their classes with pellucid.register"
            )
        given = tempfile.mkdtemp(prefix="diskcache-") if directory is None else directory
        self._directory = os.path.expandvars(os.path.expanduser(os.fspath(given)))
        self._timeout = timeout
        self._pickle = pickle
        os.makedirs(self._directory, exist_ok=True)
        if os.path.exists(os.path.join(self._directory, "cache.db")):
            # Raises, with the way to move.
            path_of(self._directory)
        self._opened: Entries | None = None
        self._settings: dict[str, Any] = {}
        stored = self._entries._info.get("diskcache settings") or {}
        others = {name: value for name, value in settings.items() if name.startswith("disk_")}
        self._disk = disk(self._directory, **{name[5:]: value for name, value in others.items()})
        self._settings = {**DEFAULT_SETTINGS, **stored, **settings}
        if self._settings != stored:
            self._save()
        self._apply()

    # ---- settings

    @property
    def _entries(self) -> Entries:
        """The open file. It opens again after `close`, as diskcache does."""
        opened = self._opened
        if opened is None or opened._db.closed:
            os.makedirs(self._directory, exist_ok=True)
            opened = self._opened = Entries(os.path.join(self._directory, FILE), self._pickle, self._timeout)
            if self._settings:
                self._apply()
        return opened

    def _save(self) -> None:
        self._entries._info["diskcache settings"] = self._settings

    def _apply(self) -> None:
        """Make the settings hold in this process, and the policy and the counting in all."""
        entries, settings = self._entries, self._settings
        entries._order.limit = settings["size_limit"]
        entries._order.cull_limit = settings["cull_limit"]
        policy = settings["eviction_policy"]
        if policy not in EVICTION_POLICY or EVICTION_POLICY[policy]:
            raise ValueError(f"eviction_policy must be one of {', '.join(EVICTION_POLICY)}, without SQL")
        if (entries.policy, entries._counting) != (policy, bool(settings["statistics"])):
            entries._change(policy=policy, counting=bool(settings["statistics"]))
        for name, value in settings.items():
            if name.startswith("disk_") and hasattr(self, "_disk"):
                setattr(self._disk, name[5:], value)

    def __getattr__(self, name: str) -> Any:
        settings = self.__dict__.get("_settings", {})
        if name in settings:
            return settings[name]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def reset(self, key: str, value: Any = ENOVAL, update: bool = True) -> Any:
        """Change a setting in the file, or read it from there. Returns its value."""
        if value is ENOVAL:
            stored = self._entries._info.get("diskcache settings") or {}
            self._settings[key] = stored[key]
        else:
            self._settings[key] = value
            if update:
                self._save()
        self._apply()
        return self._settings[key]

    @property
    def directory(self) -> str:
        """The folder of the cache."""
        return self._directory

    @property
    def timeout(self) -> float:
        """How many seconds a call waits for other writers."""
        return self._timeout

    @property
    def disk(self) -> Disk:
        """The numbers of how diskcache would store values."""
        return self._disk

    @contextmanager
    def transact(self, retry: bool = False) -> Iterator[None]:
        """A block whose changes are stored together, or not at all."""
        with self._entries.transact():
            yield

    # ---- entries

    def set(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Store a value; with `read`, the bytes that the file `value` has. Returns True."""
        return self._put(key, value.read() if read else value, expire, tag)

    def _put(self, key: Any, value: Any, expire: float | None, tag: Any) -> bool:
        try:
            return self._entries.set(key, value, expire, tag)
        except UnsupportedValue as problem:
            if self._pickle != "deny":
                raise
            name = type(self).__name__
            raise UnsupportedValue(
                f'{problem}; for pickles as in diskcache, open it with {name}(..., pickle="allow")'
            ) from None

    def __setitem__(self, key: Any, value: Any) -> None:
        """Store a value."""
        self.set(key, value, retry=True)

    def add(
        self,
        key: Any,
        value: Any,
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> bool:
        """Store a value if there is none, or an expired one. Returns whether it was stored."""
        with self._entries.transact():
            if key in self._entries:
                return False
            return self._put(key, value.read() if read else value, expire, tag)

    def incr(self, key: Any, delta: int = 1, default: int | None = 0, retry: bool = False) -> Any:
        """Add to a number, and return the sum; a missing one is `default`, or a `KeyError`."""
        return self._entries.incr(key, delta, default)

    def decr(self, key: Any, delta: int = 1, default: int | None = 0, retry: bool = False) -> Any:
        """Subtract from a number."""
        return self.incr(key, -delta, default, retry)

    def touch(self, key: Any, expire: float | None = None, retry: bool = False) -> bool:
        """Change when an entry expires. Returns whether there was one."""
        return self._entries.touch(key, expire)

    def get(
        self,
        key: Any,
        default: Any = None,
        read: bool = False,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Return the value of a key; with `read`, a file of it, if it is as large as a file of diskcache."""
        found = self._entries.get(key, default, expire_time, tag)
        if type(found) not in SCALARS and found is not default:
            found = changeable(found)
        if not read:
            return found
        value = found[0] if expire_time or tag else found
        if type(value) is bytes and value is not default and len(value) >= self._disk.min_file_size:
            value = self._reader(value)
        return (value, *found[1:]) if expire_time or tag else value

    def _reader(self, value: bytes) -> Reader:
        reader = Reader(value)
        reader.name = os.path.join(self._directory, FILE)
        return reader

    def __getitem__(self, key: Any) -> Any:
        """Return the value of a key, or raise `KeyError`."""
        found = self._entries[key]
        return found if type(found) in SCALARS else changeable(found)

    def read(self, key: Any, retry: bool = False) -> Any:
        """Return a file of the value of a key, or raise `KeyError`."""
        found = self[key]
        return self._reader(found) if type(found) is bytes else found

    def __contains__(self, key: Any) -> bool:
        """Say whether there is an entry that has not expired."""
        return key in self._entries

    def pop(
        self,
        key: Any,
        default: Any = None,
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Remove an entry and return its value."""
        found = self._entries.pop(key, default, expire_time, tag)
        return found if type(found) in SCALARS or found is default else changeable(found)

    def __delitem__(self, key: Any, retry: bool = True) -> None:
        """Remove an entry, or raise `KeyError`."""
        del self._entries[key]

    def delete(self, key: Any, retry: bool = False) -> bool:
        """Remove an entry. Returns whether there was one."""
        return self._entries.delete(key)

    # ---- queues

    def _ends(self, prefix: str | None) -> tuple[Any, Any]:
        """Between which keys those of a queue are."""
        if prefix is None:
            return 0, 10**DIGITS - 1
        return f"{prefix}-{'0' * DIGITS}", f"{prefix}-{'9' * DIGITS}"

    def _keys_of_queue(self, prefix: str | None, side: str) -> Iterator[Any]:
        if side not in ("front", "back"):
            raise ValueError(f"side must be 'front' or 'back', not {side!r}")
        start, stop = self._ends(prefix)
        kind = int if prefix is None else str
        keys = self._entries._table.keys(start=start, stop=stop, reverse=side == "back")
        return (key for key in keys if type(key) is kind)

    def push(
        self,
        value: Any,
        prefix: str | None = None,
        side: str = "back",
        expire: float | None = None,
        read: bool = False,
        tag: Any = None,
        retry: bool = False,
    ) -> Any:
        """Put a value at a side of the queue `prefix`, and return its key."""
        value = value.read() if read else value
        with self._entries.transact():
            last = next(self._keys_of_queue(prefix, side), None)
            if last is None:
                number = MIDDLE
            else:
                number = int(last if prefix is None else last.rpartition("-")[2])
                number += 1 if side == "back" else -1
            key = number if prefix is None else f"{prefix}-{number:0{DIGITS}d}"
            self._put(key, value, expire, tag)
            return key

    def _end(self, prefix: str | None, side: str, removes: bool) -> tuple[Any, Any]:
        """The pair at a side of a queue, and its facts; ABSENT for none. What has expired is removed."""
        with self._entries.transact():
            return self._first(self._keys_of_queue(prefix, side), removes)

    def _first(self, keys: Iterator[Any], removes: bool = False) -> tuple[Any, Any]:
        """The first pair of these keys that has not expired, and its facts; ABSENT for none."""
        entries = self._entries
        for key in list(islice(keys, 1000)):
            value, facts = opened(entries._row(key), time())
            if removes or value is ABSENT:
                entries.delete(key)
            if value is not ABSENT:
                return (entries.original(key), changeable(value)), facts
        return ABSENT, {}

    def pull(
        self,
        prefix: str | None = None,
        default: Any = (None, None),
        side: str = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Remove the pair of key and value at a side of a queue, and return it."""
        pair, facts = self._end(prefix, side, removes=True)
        return with_facts(default if pair is ABSENT else pair, facts, expire_time, tag)

    def peek(
        self,
        prefix: str | None = None,
        default: Any = (None, None),
        side: str = "front",
        expire_time: bool = False,
        tag: bool = False,
        retry: bool = False,
    ) -> Any:
        """Return the pair of key and value at a side of a queue."""
        pair, facts = self._end(prefix, side, removes=False)
        return with_facts(default if pair is ABSENT else pair, facts, expire_time, tag)

    def peekitem(
        self, last: bool = True, expire_time: bool = False, tag: bool = False, retry: bool = False
    ) -> Any:
        """Return the pair of key and value that was inserted last, or first; `KeyError` if there is none."""
        entries = self._entries
        with entries.transact():
            keys = entries._order.rows.index("number").keys(reverse=last)
            pair, facts = self._first(key for _, key in keys)
        if pair is ABSENT:
            raise KeyError("dictionary is empty")
        return with_facts(pair, facts, expire_time, tag)

    # ---- the whole

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: float | None = None,
        tag: Any = None,
        ignore: Collection[int | str] = (),
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that keeps the results of a function; of many callers, one computes."""
        if callable(name):
            raise TypeError("name cannot be callable")
        return self._memoize(name, typed, expire, tag, ignore)

    def _memoize(
        self, name: str | None, *options: Any, **more: Any
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """A decorator that keeps results, also after `close`, and gives copies of their arrays."""

        def decorator(function: Callable[..., Any]) -> Callable[..., Any]:
            # Once: what the function closes over may change until the cache is opened again.
            of = function_name(self._directory, function, name, None)
            bound: Any = (None, None)

            def kept() -> Any:
                """The function over the file that is open now."""
                nonlocal bound
                entries, (known, made) = self._entries, bound
                if known is not entries:
                    made = entries.memoize(of, *options, **more)(function)
                    bound = entries, made
                return made

            @functools.wraps(function)
            def call(*arguments: Any, **keywords: Any) -> Any:
                result = kept()(*arguments, **keywords)
                return result if type(result) in SCALARS else changeable(result)

            def cache_key(*arguments: Any, **keywords: Any) -> Any:
                return kept().__cache_key__(*arguments, **keywords)

            call.__cache_key__ = cache_key  # type: ignore[attr-defined]
            return call

        return decorator

    def check(self, fix: bool = False, retry: bool = False) -> list[str]:
        """Read everything, and return a list of problems."""
        return self._entries.check(fix)

    def create_tag_index(self) -> None:
        """Make the index of tags now. The first entry with a tag makes it otherwise."""
        self._entries.evict(ENOVAL[0])
        self.reset("tag_index", 1)

    def drop_tag_index(self) -> None:
        """Forget that the index of tags was asked for. It stays, and costs nothing without tags."""
        self.reset("tag_index", 0)

    def evict(self, tag: Any, retry: bool = False) -> int:
        """Remove the entries with a tag. Returns how many there were."""
        return self._entries.evict(tag)

    def expire(self, now: float | None = None, retry: bool = False) -> int:
        """Remove what has expired. Returns how many entries there were."""
        return self._entries.expire(now)

    def cull(self, retry: bool = False) -> int:
        """Remove what has expired, and evict entries down to the limit. Returns how many went."""
        if self._settings["eviction_policy"] == "none":
            self._entries.expire()
            return 0
        return self._entries.cull()

    def clear(self, retry: bool = False) -> int:
        """Remove all entries. Returns how many there were."""
        return int(self._entries.clear())

    def iterkeys(self, reverse: bool = False) -> Iterator[Any]:
        """Iterate over the keys in their order."""
        table = self._entries._table
        return map(self._entries.original, reversed(table) if reverse else iter(table))

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys in the order of insertion, with those that have expired."""
        return iter(self._entries)

    def __reversed__(self) -> Iterator[Any]:
        """Iterate over the same keys in the opposite order."""
        return reversed(self._entries)

    def __len__(self) -> int:
        """Return how many entries there are, with those that have expired."""
        return len(self._entries)

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Return the hits and misses, and go on counting, or stop."""
        counts = self._entries.stats(enable, reset)
        if bool(self._settings["statistics"]) != bool(enable):
            self.reset("statistics", int(enable))
        return counts

    def volume(self) -> int:
        """Return how many bytes the entries take, about."""
        return self._entries._order.totals["size"]

    def close(self) -> None:
        """Close the file. The next call opens it again."""
        if self._opened is not None:
            self._opened.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __getstate__(self) -> Any:
        return self._directory, self._timeout, type(self._disk), self._pickle

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state[:3], pickle=state[3])  # type: ignore[misc]
