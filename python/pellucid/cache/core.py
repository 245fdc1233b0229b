"""This module has the class `Cache`: reading, storing and deleting entries of one file."""

from __future__ import annotations

import os
import threading
import warnings
import weakref
from collections.abc import MutableMapping
from contextlib import contextmanager, suppress
from math import inf
from time import perf_counter, time

from pellucid import F
from pellucid.cache.entries import (
    ABSENT,
    ERROR,
    EXPIRE,
    TAG,
    TYPED,
    VALUE,
    is_expired,
    is_wrapped,
    opened,
    with_facts,
    wrapped,
)
from pellucid.cache.for_tasks import ForTasks
from pellucid.cache.limits import (
    FREQUENT,
    NONE,
    POLICIES,
    SIZE_LIMIT_MIN,
    STORED,
    Order,
    entry_size,
    log_memory,
)
from pellucid.cache.opening import open_database, path_of, stored_limit, whole
from pellucid.cache.uses import CHANGING, NotedTable, Uses, slot_count
from pellucid.cache.views import Items, Values
from pellucid.digests import digest
from pellucid.errors import DatabaseWarning, DiskFull, NoSuchIndex, UnsupportedKey
from pellucid.seconds import seconds_of

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, ItemsView, Iterator, ValuesView
    from datetime import timedelta
    from os import PathLike
    from typing import Any

    from pellucid.typing import Durability, PicklePolicy

__all__ = ["Cache"]

# Types that are keys whatever their values are. NaN is found when it is stored.
SIMPLE_KEYS = frozenset({str, int, bytes, float, bool, type(None)})
# The indexes: the name, the fact of the rows that are in it, and what it is over. Loops over the cache leave
# out what is in that of errors.
PARTS = (("expire", EXPIRE, F[EXPIRE]), ("tag", TAG, F[TAG]), ("error", ERROR, F[ERROR]["class"]))
# How many entries that have expired a set with a time removes at most.
EXPIRE_BATCH = 1000
# In seconds: how often such a set looks for entries of other processes that have expired.
PAUSE_MAX = 30.0


class Cache(ForTasks, MutableMapping):  # type: ignore[type-arg]
    """A mapping in a file whose entries may expire, have a tag, and be evicted at a limit.

    Threads and processes share it. It has the names and meanings of diskcache. `path` is a file, or
    `":memory:"`. Nothing is evicted without a `size_limit`, in bytes of file and log; it is stored in the
    file, and 0 removes it. `policy` says what goes first: "least-recently-stored", "least-recently-used",
    "least-frequently-used", or "none".

    A key is any key of a table, or any value that has a `pellucid.digest`: the entry then is under
    `("digest", digest(key))`. A value is what a table holds, and comes back as the object that it was.
    Others need `pickle="allow"`, or a list of globals as for `pellucid.open`. `durability`, `timeout` and
    `memory` are those of `pellucid.open`. A damaged or foreign file raises; with `on_damage="recreate"` it
    is deleted, and a warning says so.

    >>> import pellucid
    >>> cache = pellucid.Cache("results.pel")
    >>> cache.set("ann", {"age": 30}, expire=60, tag="people")
    True
    >>> cache["ann"]
    {'age': 30}
    >>> cache.evict("people")
    1
    >>> cache.get("ann", "gone")
    'gone'
    """

    def __init__(
        self,
        path: str | bytes | PathLike[str],
        *,
        size_limit: int | None = None,
        policy: str | None = None,
        pickle: PicklePolicy = "deny",
        durability: Durability = "process",
        timeout: float = 10.0,
        memory: int | None = None,
        on_damage: str = "raise",
    ) -> None:
        if policy is not None and policy not in POLICIES:
            raise ValueError(f"policy must be one of {POLICIES}, not {policy!r}")
        if size_limit is not None and type(size_limit) is not int:
            raise TypeError(f"size_limit must be a number of bytes, such as 10**9, not {size_limit!r:.40}")
        if size_limit and size_limit < self._size_limit_min:
            raise ValueError(
                f"size_limit must be {self._size_limit_min:,} bytes or more, because the log alone may take "
                "that; or 0 for no limit"
            )
        self._path = path_of(path)
        options: dict[str, Any] = {"pickle": pickle, "durability": durability, "timeout": timeout}
        self._options = {**options, "memory": memory, "on_damage": on_damage}
        limited = {"memory": log_memory(size_limit)} if memory is None and size_limit else {"memory": memory}
        limited = {} if self._path == ":memory:" else limited
        db = open_database(self._path, on_damage, {**options, **limited})
        if memory is None and not size_limit and self._path != ":memory:" and (limit := stored_limit(db)):
            # The file has a limit of its own, for which the log was opened too large.
            db.close()
            db = open_database(self._path, on_damage, {**options, "memory": log_memory(limit)})
        self._recovers = on_damage == "recreate"
        self._start(db, size_limit, policy, is_fast=pickle == "deny")

    _size_limit_min = SIZE_LIMIT_MIN
    _order_class: type[Order] = Order

    def _start(self, db: Any, size_limit: int | None, policy: str | None, is_fast: bool) -> None:
        self._db = db
        # Without pickles, an object that occurs twice in a value comes back as two.
        self._table = db.table("cache", type=object, fast=is_fast)
        self._info = db.table("cache info", type=object, fast=True)
        self._look: Callable[..., Any] = whole(self._table.get) if self._recovers else self._table.get
        limit = size_limit or stored_limit(db)
        self._side_path = None if db.path is None else f"{self._path}-uses"
        self._uses = Uses(self._side_path, slot_count(limit))
        self._order = self._order_class(db, self._table, self._uses)
        self._counts = [0, 0]
        self._lock = threading.Lock()
        _caches[id(self)] = self
        self._has_warned = False
        self._unkept: set[Any] = set()  # keys whose last result could not be stored
        self._culled_at = 0.0
        self._pause = 1.0
        # When the first entry expires, as far as this process knows.
        self._due = 0.0
        self._indexed: Any = set()
        # The paths through an entry that are not the short one: hits are counted or noted, entries are
        # ordered.
        self._counting = self._noting = self._ordering = False
        self._seen = -1
        self._refresh()
        if size_limit is not None or policy is not None:
            self._change(size_limit=size_limit, policy=policy)

    # ---- settings

    def _refresh(self) -> None:
        """Read the settings that another process may have changed."""
        # What is read while another process changes it, is read again next time.
        changes = self._uses.changes
        self._seen = -1 if changes == CHANGING else changes
        self._uses.follow()
        settings = self._info.get("settings") or {}
        self._order.size_limit = settings.get("size_limit", 0)
        self._order.policy = settings.get("policy", STORED)
        # What may be written is to be looked up anew.
        self._order.left = 0
        self._counting = settings.get("counting", False)
        self._ordering = settings.get("ordering", False)
        self._noting = self._order.policy not in (STORED, NONE) and self._ordering
        self._watching = self._counting or self._noting
        notes = self._uses.notes(self._order.policy == FREQUENT)
        self._note = notes.note
        # A hit of `get` is a use, and that of `in` is none.
        read = NotedTable(self._table, notes).get if self._noting else self._table.get
        self._read = whole(read) if self._recovers else read

    def _catch_up(self) -> None:
        """Read the settings again if another process has changed them."""
        if self._uses.changes != self._seen:
            self._refresh()

    def _change(self, **changes: Any) -> None:
        try:
            with self._db.transaction():
                stored = self._info.get("settings") or {"size_limit": 0, "policy": STORED, "ordering": False}
                settings = stored | {name: value for name, value in changes.items() if value is not None}
                settings["ordering"] |= settings["size_limit"] > 0
                # From here to `tell_change`, each process that stores an entry reads the settings again.
                self._uses.begin_change()
                if settings["ordering"] and not stored["ordering"]:
                    self._order.begin()
                if settings["size_limit"] != stored["size_limit"]:
                    self._order.look_soon()
                if settings != stored:
                    self._info["settings"] = settings
                self._uses.resize(slot_count(settings["size_limit"]))
        finally:
            self._uses.tell_change()
        self._refresh()

    @property
    def path(self) -> str | None:
        """The path of the file; None for ":memory:"."""
        return None if self._path == ":memory:" else self._path

    @property
    def database(self) -> Any:
        """The database that has the entries, for queries and backups."""
        return self._db

    @property
    def size_limit(self) -> int:
        """The limit of file and log in bytes; 0 for none."""
        return self._order.size_limit

    @property
    def policy(self) -> str:
        """Which entries are evicted first."""
        return self._order.policy

    # ---- reading

    def get(self, key: Any, default: Any = None, expire_time: bool = False, tag: bool = False) -> Any:
        """Return the value of a key, or `default` if there is none or it has expired.

        With `expire_time` or `tag`, return a tuple of the value, the time when it expires in seconds since
        1970, and its tag; None stands for none.
        """
        value = self._read(key, ABSENT)
        if (
            value is ABSENT
            or self._counting
            or expire_time
            or tag
            or (type(value) is dict and VALUE in value)
        ):
            return self._get(key, value, default, expire_time, tag)
        return value

    def _get(self, key: Any, row: Any, default: Any, wants_time: bool, wants_tag: bool) -> Any:
        """The rest of `get`, for what is not a value alone."""
        if row is ABSENT and type(key) not in SIMPLE_KEYS:
            # The key under which an entry may be whose key is no key of a table.
            key = self.key(key)
            row = self._read(key, ABSENT)
        value, facts = opened(row, time())
        self._count_use(value is not ABSENT)
        return with_facts(default if value is ABSENT else value, facts, wants_time, wants_tag)

    def _count_use(self, is_hit: bool) -> None:
        self._catch_up()
        if self._counting:
            with self._lock:
                self._counts[not is_hit] += 1

    def _seen_use(self, key: Any, is_hit: bool) -> None:
        self._count_use(is_hit)
        if is_hit and self._noting:
            self._note(key)

    def _row(self, key: Any) -> Any:
        """The row of a key, or ABSENT. This counts as no use."""
        return self._look(key, ABSENT)

    def key(self, key: Any, /) -> Any:
        """Return the key under which an entry is stored: `key` itself, or `("digest", digest(key))`.

        Raises `UnsupportedKey` for a value that is no key and has no stable digest.
        """
        if type(key) in SIMPLE_KEYS and key == key:
            return key
        try:
            # Encodes the key, and reads one row at most.
            self._table.keys(start=key, stop=key)
        except UnsupportedKey:
            return self._stand_in(key)
        return key

    def _stand_in(self, key: Any) -> Any:
        """The key under which an entry is stored whose own key is none of a table."""
        return ("digest", digest(key))

    def __getitem__(self, key: Any) -> Any:
        """Return the value of a key; raises `KeyError` if there is none, or it has expired."""
        value = self.get(key, ABSENT)
        if value is ABSENT:
            raise KeyError(key)
        return value

    def __contains__(self, key: object) -> bool:
        """Say whether there is an entry that has not expired. This counts as no use."""
        row = self._row(key)
        if row is ABSENT and type(key) not in SIMPLE_KEYS:
            try:
                row = self._row(self.key(key))
            except UnsupportedKey:
                return False
        return row is not ABSENT and opened(row, time())[0] is not ABSENT

    # ---- storing

    def set(self, key: Any, value: Any, expire: float | timedelta | None = None, tag: Any = None) -> bool:
        """Store a value for `expire` seconds, or until it is replaced. Returns whether it is stored.

        `tag` is a value that `evict` finds. It is not stored on a full disk, or if it is larger than the
        limit: the cache then warns, once, and has no entry under this key.
        """
        if expire is None and tag is None and type(value) is not dict and not self._ordering:
            try:
                self._table[key] = value
            except (UnsupportedKey, DiskFull):
                return self._store(self.key(key), value)
            # If another process has set a limit meanwhile, the entry gets its place in the order.
            return self._uses.changes == self._seen or self._store(self.key(key), value)
        now = time()
        if expire is not None:
            expire = now + seconds_of(expire, "expire")
        row = wrapped(value, expire, tag)
        if row is not value:
            self._begin_facts(row, now)
        return self._store(key if type(key) in SIMPLE_KEYS else self.key(key), row)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Store a value until it is replaced or evicted."""
        self.set(key, value)

    def _begin_facts(self, row: Any, now: float) -> None:
        """Make the index for a time or a tag at the first of them; remove what has expired, if it is time."""
        self._index_facts(row)
        if EXPIRE not in row:
            return
        self._due = min(self._due, row[EXPIRE])
        if abs(now - self._culled_at) > (self._pause if now >= self._due else PAUSE_MAX):
            begun = perf_counter()
            self._culled_at = now
            self.expire(count_max=EXPIRE_BATCH)
            # Times that were replaced make the look longer until the next checkpoint: it is to take 1 % at
            # most.
            self._pause = max(1.0, 100 * (perf_counter() - begun))

    def _index_facts(self, row: Any) -> None:
        for name, field, part in PARTS:
            if field in row and name not in self._indexed:
                self._index(name, part)

    def _index(self, name: str, part: Any) -> None:
        self._table.create_index(name, part)
        self._indexed.add(name)

    def _store(self, key: Any, row: Any) -> bool:
        """Put a row, with its place in the order; False if the disk or the limit has no room."""
        try:
            if not self._ordering:
                self._table[key] = row
                if self._uses.changes == self._seen:
                    return True
            self._catch_up()
            if not self._ordering:
                return True
            size = entry_size(key, row)
            if 0 < self.size_limit < size:
                self._warn(f"a value of about {size:,} bytes is larger than the limit, and is not stored")
                self._forget(key)
                return False
            self._make_room(size)
            with self._db.transaction():
                self._table[key] = row
                self._order.add(key, size)
        except DiskFull as error:
            self._without_room(error)
            self._forget(key)
            return False
        return True

    def _without_room(self, error: DiskFull, result: Any = None) -> Any:
        """Warn that nothing is stored, and return `result`; a transaction cannot go on."""
        if self._table._is_in_transaction:
            raise error
        self._warn(f"the cache goes on without storing: {error}")
        return result

    def _make_room(self, size: int = 0) -> None:
        """Have room within the limit for a value that is about to be stored.

        A transaction of the caller goes on without: no checkpoint could free what it evicts.
        """
        order = self._order
        if order.left < size and order.size_limit and not self._table._is_in_transaction:
            # On a full disk, what is stored next says so.
            with suppress(DiskFull):
                order.make_room(size)

    def _forget(self, key: Any) -> None:
        """Try to remove what a value that was not stored would have replaced."""
        try:
            self.delete(key)
        except DiskFull:
            # The old value stays: a full disk takes no deletion either.
            return

    def _warn(self, message: str) -> None:
        if not self._has_warned:
            self._has_warned = True
            warnings.warn(message, DatabaseWarning, stacklevel=4)

    def add(self, key: Any, value: Any, expire: float | timedelta | None = None, tag: Any = None) -> bool:
        """Store a value if the key has none, or an expired one. Returns whether it was stored."""
        key = self.key(key)
        self._make_room(entry_size(key, value) if self._ordering else 0)
        try:
            with self._db.transaction():
                return key not in self and self.set(key, value, expire, tag)
        except DiskFull as error:
            return bool(self._without_room(error))

    def setdefault(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key; if there is none, store `default` first."""
        self._make_room(entry_size(key, default) if self._ordering else 0)
        try:
            with self._db.transaction():
                return super().setdefault(key, default)
        except DiskFull as error:
            return self._without_room(error, default)

    def incr(self, key: Any, delta: int = 1, default: int | None = 0) -> Any:
        """Add `delta` to a number, and return the sum. A missing or expired one counts as `default`.

        With `default=None`, a missing one raises `KeyError`. Time and tag of the entry stay as they are.
        """
        key = self.key(key)
        self._make_room()
        with self._db.transaction():
            row = self._row(key)
            is_there = row is not ABSENT and opened(row, time())[0] is not ABSENT
            if not is_there:
                if default is None:
                    raise KeyError(key)
                row = default
            number = row[VALUE] if is_wrapped(row) else row
            if isinstance(number, (str, bytes, list, tuple, dict, set, type(None))):
                raise TypeError(
                    f"the value of {key!r:.60} is a {type(number).__name__}, and incr adds to numbers"
                )
            total = number + delta
            new = {**row, VALUE: total} if is_wrapped(row) else total
            if not self._store(key, new):
                raise DiskFull("the disk has no room for the new number; free some space, and count again")
        if self._watching:
            self._seen_use(key, True)
        return total

    def decr(self, key: Any, delta: int = 1, default: int | None = 0) -> Any:
        """Subtract `delta` from a number, as `incr` adds it."""
        return self.incr(key, -delta, default)

    def touch(self, key: Any, expire: float | timedelta | None = None) -> bool:
        """Let an entry expire in `expire` seconds from now, or never. Returns whether there was an entry."""
        key = self.key(key)
        until = None if expire is None else time() + seconds_of(expire, "expire")
        # The entry takes no more room than before.
        self._make_room()
        try:
            with self._db.transaction():
                row = self._row(key)
                facts = row if is_wrapped(row) else {}
                if row is ABSENT or is_expired(facts, time()):
                    return False
                # A result of a function stays one.
                more = {name.partition(":")[2]: facts[name] for name in (TYPED, ERROR) if name in facts}
                return self._keep(key, facts.get(VALUE, row), until, facts.get(TAG), **more)
        except DiskFull as error:
            return bool(self._without_room(error))

    # ---- deleting

    def pop(self, key: Any, default: Any = None, expire_time: bool = False, tag: bool = False) -> Any:
        """Remove an entry and return its value, or `default`; `expire_time` and `tag` are as in `get`."""
        key = self.key(key)
        with self._db.transaction():
            row = self._row(key)
            if row is not ABSENT:
                self._remove(key)
        value, facts = opened(row, time())
        return with_facts(default if value is ABSENT else value, facts, expire_time, tag)

    def popitem(self) -> tuple[Any, Any]:
        """Remove an entry, and return its key and value; raises `KeyError` if there is none."""
        with self._db.transaction():
            for key, value in self.items():
                self._remove(key)
                return key, value
        raise KeyError("the cache is empty")

    def _remove(self, key: Any) -> None:
        self._catch_up()
        if self._ordering:
            self._order.delete(key)
        else:
            del self._table[key]

    def delete(self, key: Any) -> bool:
        """Remove an entry. Returns whether there was one that had not expired."""
        row = self._row(key)
        if row is ABSENT and type(key) not in SIMPLE_KEYS:
            key = self.key(key)
            row = self._row(key)
        if row is ABSENT:
            return False
        self._catch_up()
        try:
            if self._ordering:
                with self._db.transaction():
                    self._order.delete(key)
            else:
                del self._table[key]
        except KeyError:
            # Another caller was faster.
            return False
        return not (is_wrapped(row) and is_expired(row, time()))

    def __delitem__(self, key: Any) -> None:
        """Remove an entry; raises `KeyError` if there is none, or it has expired."""
        if not self.delete(key):
            raise KeyError(key)

    def clear(self) -> Any:
        """Remove all entries. Returns how many there were."""
        with self._db.transaction():
            count = len(self._table)
            self._catch_up()
            self._table.clear()
            if self._ordering:
                self._order.clear()
        return count

    def evict(self, tag: Any) -> int:
        """Remove all entries with this tag. Returns how many there were."""
        self._index("tag", F[TAG])
        return self._delete_all(self._table.where(F[TAG] == tag))

    def expire(self, now: float | None = None, *, count_max: int | None = None) -> int:
        """Remove the entries that have expired, at most `count_max` of them. Returns how many there were."""
        moment = time() if now is None else now
        if isinstance(moment, bool) or not isinstance(moment, (int, float)):
            raise TypeError(f"now has to be a moment in seconds since 1970, not {type(moment).__name__}")
        if self._lacks("expire"):
            return 0
        # A set asks this from time to time, and mostly nothing has expired.
        try:
            first = next(iter(self._table.index("expire").keys()), None)
        except NoSuchIndex:
            # The transaction that made it was rolled back.
            self._index("expire", F[EXPIRE])
            first = next(iter(self._table.index("expire").keys()), None)
        self._due = inf if first is None else first[0]
        if self._due > moment:
            return 0
        query = self._table.where(F[EXPIRE] <= moment)
        return self._delete_all(query if count_max is None else query.limit(count_max))

    def _lacks(self, index: str) -> bool:
        if index in self._indexed:
            return False
        self._indexed.update(info.name for info in self._table.indexes())
        return index not in self._indexed

    def _delete_all(self, query: Any) -> int:
        self._catch_up()
        if not self._ordering:
            return int(query.delete())
        with self._db.transaction():
            keys = list(query.keys())
            for key in keys:
                self._order.delete(key)
        return len(keys)

    def cull(self) -> int:
        """Remove what has expired, and evict entries down to the limit. Returns how many went."""
        return self.expire() + self._order.make_room(0, is_asked=True)

    # ---- results of functions

    def memoize(
        self,
        name: str | None = None,
        typed: bool = False,
        expire: float | timedelta | None = None,
        tag: Any = None,
        ignore: Collection[int | str] = (),
        *,
        version: object = None,
        stale: float | timedelta = 0,
        type: Any = None,  # noqa: A002  the name that `table` has for it
        errors: type[BaseException] | tuple[type[BaseException], ...] = (),
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Return a decorator that keeps the results of a function, also of an `async def`.

        Of many callers in all threads and processes that want the same result, one computes it, and the
        others sleep until it is stored. If the one is killed, another takes over. With `stale`, a result is
        served for that many seconds after it has expired, while one caller computes a new one.

        The key of a result has the module and the qualified name of the function, or `name`, and `version`;
        pass another version when the function has changed. Arguments are keys, or have a `pellucid.digest`;
        others raise `UnsupportedKey` before the function runs. `ignore` has the positions and names of
        arguments that make no difference. With `typed`, 1 and 1.0 are different arguments.

        Instances of dataclasses and similar classes are stored by their fields if `type`, or the return
        annotation, names the class. A result that cannot be stored is returned, with a warning. Exceptions
        are kept if they are of `errors`. The function is `__wrapped__`, and `__cache_key__` makes the key of
        a call.

        >>> import pellucid
        >>> cache = pellucid.Cache(":memory:")
        >>> @cache.memoize(expire=60)
        ... def square(number):
        ...     print("computing")
        ...     return number * number
        >>> square(3), square(3)
        computing
        (9, 9)
        >>> del cache[square.__cache_key__(3)]
        """
        if callable(name):
            raise TypeError("memoize takes options: write @cache.memoize(), with brackets")
        from pellucid.cache.functions import Kept, memoized

        kept = Kept(expire, tag, stale, errors)
        options = {"name": name, "version": version, "typed": typed, "ignore": ignore, "hint": type}
        return lambda function: memoized(self, function, kept, **options)

    def get_or_create(
        self,
        key: Any,
        function: Callable[[], Any],
        expire: float | timedelta | None = None,
        tag: Any = None,
        stale: float | timedelta = 0,
    ) -> Any:
        """Return the value of a key; if there is none, one caller calls `function`, and the result is stored.

        `stale` is as in `memoize`.
        """
        from pellucid.cache.functions import Kept, Results

        return Results(self, Kept(expire, tag, stale), f"the entry {key!r}").fetch(self.key(key), function)

    def _keep(self, key: Any, value: Any, expire: float | None, tag: Any, **facts: Any) -> bool:
        """Store the value of a key of ours that expires at a moment, with more facts; False as for `set`."""
        row = wrapped(value, expire, tag, **facts)
        if row is not value:
            self._begin_facts(row, time())
        return self._store(key, row)

    @contextmanager
    def _importing(self) -> Iterator[tuple[Any, Callable[..., tuple[Any, Any]]]]:
        """The database that `import_from` fills, and what makes a row of a key, a value, a time and a tag."""
        yield self._db, lambda key, value, expire, tag: (self.key(key), wrapped(value, expire, tag))
        self._index("expire", F[EXPIRE])
        self._index("tag", F[TAG])
        if self._ordering:
            self._order.begin()

    # ---- the whole

    def transact(self) -> Any:
        """Return a context manager: all changes of its block are stored, or none. Other writers wait."""
        return self._db.transaction()

    def volume(self) -> int:
        """Return how many bytes the cache takes on the disk: the file, its log, and the file of uses."""
        if self.path is None:
            return int(self._db.stats()["live_size"]) or self._order.totals["size"]
        total = 0
        for suffix in ("", "-log", "-uses"):
            try:
                total += os.stat(self._path + suffix).st_blocks * 512
            except FileNotFoundError:
                continue
        return total

    def stats(self, enable: bool = True, reset: bool = False) -> tuple[int, int]:
        """Return the hits and misses of all processes so far, and go on counting, or stop.

        `reset` begins at 0. Counting begins with the first call. A process adds its counts when it calls
        this, and when it closes.
        """
        with self._db.transaction():
            self._add_counts()
            result = tuple(self._info.get("counts") or (0, 0))
            if reset or not enable:
                self._info["counts"] = (0, 0)
        if enable != self._counting:
            self._change(counting=enable)
        return result

    def _add_counts(self) -> None:
        with self._lock:
            counts, self._counts = self._counts, [0, 0]
        if any(counts):
            stored = self._info.get("counts") or (0, 0)
            self._info["counts"] = (stored[0] + counts[0], stored[1] + counts[1])

    def check(self, fix: bool = False) -> list[str]:
        """Read everything, and return a list of problems in words. `fix=True` counts sizes and order anew."""
        problems = list(self._db.check())
        if self._ordering:
            size, count = self._order.rows.sum("size"), len(self._order.rows)
            if (size, count) != (self._order.totals["size"], len(self._table)):
                problems.append(
                    f"the order has {count} entries of {size} bytes, unlike the table and its totals"
                )
                if fix:
                    self._order.begin()
        return problems

    def close(self) -> None:
        """Close the cache. Closing twice does nothing."""
        if self._db.closed:
            return
        if any(self._counts):
            try:
                with self._db.transaction():
                    self._add_counts()
            except DiskFull as error:
                self._warn(f"the counts of hits are lost: {error}")
        self._db.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def __len__(self) -> int:
        """Return how many entries there are, including those that have expired and are not removed yet."""
        return len(self._table)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the keys in their order, as they are at the start, without those that have expired."""
        hidden = self._hidden()
        return (key for key in self._table if key not in hidden)

    def __reversed__(self) -> Iterator[Any]:
        """Iterate over the same keys in the opposite order."""
        hidden = self._hidden()
        return (key for key in reversed(self._table) if key not in hidden)

    def _hidden(self) -> Collection[Any]:
        """The keys of what has expired, and of kept exceptions."""
        expired = set() if self._lacks("expire") else set(self._table.where(F[EXPIRE] <= time()).keys())
        if not self._lacks("error"):
            expired.update(self._table.where(F[ERROR]["class"].exists()).keys())
        return expired

    def items(self) -> ItemsView[Any, Any]:
        """Return a view of the keys and values. What goes while it is iterated over is left out."""
        return Items(self)

    def values(self) -> ValuesView[Any]:
        """Return a view of the values, as `items` does."""
        return Values(self)

    def __bool__(self) -> bool:
        """A cache is true, even without entries."""
        return True

    def __repr__(self) -> str:
        return f"Cache({self._path!r})"

    def __reduce__(self) -> Any:
        if self.path is None:
            raise TypeError("a cache in memory cannot be pickled; give it a path")
        return _reopened, (type(self), self._path, self._options)


# All caches that are not collected. A mapping has no hash.
_caches: weakref.WeakValueDictionary[int, Cache] = weakref.WeakValueDictionary()


def _in_a_child() -> None:
    """Free the locks that threads of the parent may have held when it forked; they count for the parent."""
    for cache in list(_caches.values()):
        cache._lock = threading.Lock()
        cache._counts = [0, 0]


os.register_at_fork(after_in_child=_in_a_child)


def _reopened(cls: type[Cache], path: str, options: dict[str, Any]) -> Cache:
    """Open the cache of a pickled handle."""
    return cls(path, **options)
