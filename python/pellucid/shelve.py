"""This module is `shelve` over a pellucid database: `import pellucid.shelve as shelve`, and the code stays.

`open` keeps what the record format holds as records, so that its fields can be queried and indexed later
(`shelf.table`), and pickles what the format does not hold. `Shelf` and `BsdDbShelf` pickle into any mapping,
as Python's do. The signatures are those of Python 3.15's `shelve` on every Python.
"""

from __future__ import annotations

from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView

from pellucid import pickles
from pellucid._native import ObjectMap
from pellucid.dbm import as_error, open_database
from pellucid.errors import Closed, ReadOnly

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, NoReturn

    from typing_extensions import Self

    import pellucid
    from pellucid.typing import Durability, PicklePolicy

__all__ = ["BsdDbShelf", "DbfilenameShelf", "Shelf", "ShelveError", "open"]


class ShelveError(Exception):
    """A shelf that was given only one of `serializer` and `deserializer`."""


class _ClosedDict(MutableMapping):  # type: ignore[type-arg]
    """What a closed shelf has in place of its mapping: every use of it raises `ValueError`."""

    def closed(self, *_: object) -> NoReturn:
        raise ValueError("invalid operation on closed shelf")

    __iter__ = __len__ = __getitem__ = __setitem__ = __delitem__ = keys = closed

    def __repr__(self) -> str:
        return "<Closed Dictionary>"


class Shelf(MutableMapping):  # type: ignore[type-arg]
    """A shelf over any mapping from bytes to bytes, whose values are pickles.

    With `writeback`, the shelf keeps every value that was read or written, and writes all of them back at
    `sync()` and `close()`. `serializer(value, protocol)` returns bytes, of which `deserializer(data)` makes
    the value again; without them, pickle does both.

    >>> from pellucid import shelve
    >>> stored = {}
    >>> with shelve.Shelf(stored) as shelf:
    ...     shelf["a"] = [1, 2]
    >>> list(stored)
    [b'a']
    """

    def __init__(
        self,
        dict: Any,
        protocol: int | None = None,
        writeback: bool = False,
        keyencoding: str = "utf-8",
        *,
        serializer: Callable[[Any, int], Any] | None = None,
        deserializer: Callable[[Any], Any] | None = None,
    ) -> None:
        if (serializer is None) != (deserializer is None):
            raise ShelveError("serializer and deserializer must be defined together")
        self.dict = dict
        self._protocol = pickles.DEFAULT_PROTOCOL if protocol is None else protocol
        self.writeback = writeback
        self.cache: Any = {}
        self.keyencoding = keyencoding
        self.serializer = serializer or pickles.dumps
        self.deserializer = deserializer or pickles.loads

    def __iter__(self) -> Iterator[Any]:
        for key in self.dict.keys():  # noqa: SIM118  a dbm object need not be iterable
            yield key.decode(self.keyencoding)

    def __len__(self) -> int:
        return len(self.dict)

    def __contains__(self, key: Any) -> bool:
        return key.encode(self.keyencoding) in self.dict

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        return self[key] if key in self else default  # noqa: SIM401  this is get itself

    def __getitem__(self, key: Any) -> Any:
        try:
            return self.cache[key]
        except KeyError:
            pass
        value = self.deserializer(self.dict[key.encode(self.keyencoding)])
        if self.writeback:
            self.cache[key] = value
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        if self.writeback:
            self.cache[key] = value
        self.dict[key.encode(self.keyencoding)] = self.serializer(value, self._protocol)

    def __delitem__(self, key: Any) -> None:
        del self.dict[key.encode(self.keyencoding)]
        self.cache.pop(key, None)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Write back what `writeback` has kept, and close the mapping. Closing twice does nothing."""
        if self.dict is None or isinstance(self.dict, _ClosedDict):
            return
        try:
            self.sync()
            close = getattr(self.dict, "close", None)
            if close is not None:
                close()
        finally:
            self.dict = _ClosedDict()

    def __del__(self) -> None:
        # Where __init__ failed, there is nothing to close.
        if hasattr(self, "deserializer"):
            self.close()

    def sync(self) -> None:
        """Write back what `writeback` has kept, and forget it; then make the mapping durable."""
        if self.writeback and self.cache:
            self.writeback = False
            for key, value in self.cache.items():
                self[key] = value
            self.writeback = True
            self.cache = {}
        if hasattr(self.dict, "sync"):
            self.dict.sync()

    def reorganize(self) -> None:
        """Give the space of deleted values back, where the mapping can do that."""
        self.sync()
        if hasattr(self.dict, "reorganize"):
            self.dict.reorganize()


class BsdDbShelf(Shelf):
    """A shelf over a mapping of the `bsddb` family, which has a position to move."""

    def _pair(self, pair: tuple[bytes, Any]) -> tuple[str, Any]:
        return pair[0].decode(self.keyencoding), self.deserializer(pair[1])

    def set_location(self, key: Any) -> tuple[str, Any]:
        """Move to a key, and return it with its value."""
        return self._pair(self.dict.set_location(key))

    def next(self) -> tuple[str, Any]:
        """Move to the next key, and return it with its value."""
        return self._pair(next(self.dict))

    def previous(self) -> tuple[str, Any]:
        """Move to the key before, and return it with its value."""
        return self._pair(self.dict.previous())

    def first(self) -> tuple[str, Any]:
        """Move to the first key, and return it with its value."""
        return self._pair(self.dict.first())

    def last(self) -> tuple[str, Any]:
        """Move to the last key, and return it with its value."""
        return self._pair(self.dict.last())


class DbfilenameShelf(ObjectMap, Shelf):
    """The shelf that `open` returns: a mapping over the default table of a pellucid database.

    Any key of a table may be a key, not only a str. Without a serializer, what the record format holds is
    stored as a record, and comes back as the plain Python object that it was.
    """

    def __init__(
        self,
        filename: str | bytes | os.PathLike[str] | os.PathLike[bytes],
        flag: str = "c",
        protocol: int | None = None,
        writeback: bool = False,
        *,
        serializer: Callable[[Any, int], Any] | None = None,
        deserializer: Callable[[Any], Any] | None = None,
        pickle: PicklePolicy = "allow",
        fast: bool = False,
        durability: Durability = "process",
        timeout: float = 10.0,
    ) -> None:
        self._is_raw = serializer is not None
        # Both or none of them: checked before the file is made.
        super().__init__(None, protocol, writeback, serializer=serializer, deserializer=deserializer)
        database = open_database(filename, flag, 0o666, durability=durability, pickle=pickle, timeout=timeout)
        self._database = database
        self.dict = database.table("default", type=object, fast=fast)
        self._set_table(self.dict)
        self.writeback = writeback

    @property
    def writeback(self) -> bool:
        """Whether the shelf keeps every value that was read or written, and writes it back."""
        return self._writeback

    @writeback.setter
    def writeback(self, writeback: bool) -> None:
        self._writeback = writeback
        # The base class then reads and writes the table itself.
        self._set_direct(not writeback and not self._is_raw)

    @property
    def database(self) -> pellucid.Database:
        """The database behind the shelf, for transactions, snapshots and other tables."""
        return self._database

    @property
    def table(self) -> pellucid.Table[Any]:
        """The table behind the shelf, for indexes and queries; its rows are records.

        >>> from pellucid import F, shelve
        >>> with shelve.open(":memory:") as shelf:
        ...     shelf["ann"] = {"name": "Ann", "age": 30}
        ...     shelf.table.where(F.age > 21).first().name
        'Ann'
        """
        return self._database.table("default")

    def __iter__(self) -> Iterator[Any]:
        return iter(self.dict)

    def __contains__(self, key: Any) -> bool:
        return key in self.dict

    def get(self, key: Any, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        try:
            return self[key]
        except KeyError:
            # A stored object may raise it, too.
            if key in self.dict:
                raise
            return default

    def _read(self, key: Any) -> Any:
        if not self.writeback:
            value = self.dict[key]
            return self.deserializer(value) if self._is_raw else value
        try:
            return self.cache[key]
        except KeyError:
            pass
        value = self.dict[key]
        self.cache[key] = value = self.deserializer(value) if self._is_raw else value
        return value

    def _store(self, key: Any, value: Any) -> None:
        if self.writeback:
            self.cache[key] = value
        try:
            self.dict[key] = self._serialized(value) if self._is_raw else value
        except (ReadOnly, OSError) as problem:
            raise as_error(problem) from problem

    def _delete(self, key: Any) -> None:
        try:
            del self.dict[key]
        except (ReadOnly, OSError) as problem:
            raise as_error(problem) from problem
        self.cache.pop(key, None)

    def items(self) -> ItemsView[Any, Any]:
        """Return a view of the pairs of key and value."""
        return _Items(self)

    def values(self) -> ValuesView[Any]:
        """Return a view of the values."""
        return _Values(self)

    def clear(self) -> None:
        """Delete all keys, in one transaction."""
        try:
            self.dict.clear()
        except (ReadOnly, OSError) as problem:
            raise as_error(problem) from problem
        self.cache.clear()

    def close(self) -> None:
        """Write back what `writeback` has kept, and close the database. Closing twice does nothing."""
        if self.dict is None or isinstance(self.dict, _ClosedDict):
            return
        try:
            self._write_back()
        finally:
            self._set_direct(False)
            self.dict = _ClosedDict()
            self._database.close()

    def sync(self) -> None:
        """Write back what `writeback` has kept, and forget it; then make all of it survive a power cut."""
        self._write_back()
        try:
            self._database.sync()
        except Closed as problem:
            raise ValueError("invalid operation on closed shelf") from problem
        except OSError as problem:
            raise as_error(problem) from problem

    def reorganize(self) -> None:
        """Rewrite the file without its free space. Raises `dbm.error` while it is open anywhere else."""
        self._write_back()
        try:
            self._database.compact()
        except (ReadOnly, OSError) as problem:
            raise as_error(problem) from problem

    def _write_back(self) -> None:
        """Store what `writeback` has kept, all of it or nothing, and forget it."""
        if not (self.writeback and self.cache):
            return
        with self._database.transaction():
            for key, value in self.cache.items():
                self.dict[key] = self._serialized(value) if self._is_raw else value
        self.cache = {}

    def _serialized(self, value: Any) -> bytes:
        data = self.serializer(value, self._protocol)
        if isinstance(data, str):
            return data.encode()
        try:
            return bytes(memoryview(data))
        except TypeError:
            raise TypeError(
                f"a serializer is to return bytes or str, and this one returned {type(data).__name__}"
            ) from None


def refusal(problem: BaseException) -> BaseException | None:
    """Return the `error` of dbm in whose place an exception stands; None for one that stays as it is."""
    if not isinstance(problem, (ReadOnly, OSError)):
        return None
    refused = as_error(problem)
    refused.__cause__ = problem
    return refused


class _Items(ItemsView):  # type: ignore[type-arg]
    """The pairs of a shelf, read in one go instead of key by key where no cache is in between."""

    _mapping: Any

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        shelf = self._mapping
        if shelf.writeback:
            yield from super().__iter__()
        elif shelf._is_raw:
            for key, value in shelf.dict.items():
                yield key, shelf.deserializer(value)
        else:
            yield from shelf.dict.items()


class _Values(ValuesView):  # type: ignore[type-arg]
    """The values of a shelf, read in the same way."""

    _mapping: Any

    def __iter__(self) -> Iterator[Any]:
        for _, value in _Items(self._mapping):
            yield value


def open(
    filename: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    flag: str = "c",
    protocol: int | None = None,
    writeback: bool = False,
    *,
    serializer: Callable[[Any, int], Any] | None = None,
    deserializer: Callable[[Any], Any] | None = None,
    pickle: PicklePolicy = "allow",
    fast: bool = False,
    durability: Durability = "process",
    timeout: float = 10.0,
) -> DbfilenameShelf:
    """Open the shelf `filename`, a pellucid database, and return it: a mapping to any Python objects.

    `flag`, `protocol`, `writeback`, `serializer` and `deserializer` are those of Python's `shelve.open`.
    `protocol` is for the serializer alone. `pickle`, `durability` and `timeout` (seconds) are those of
    `pellucid.open`, but pickles are allowed: reading one runs code that its author chose. `fast=True` stores
    objects without looking for parts that occur twice, as `pickle.Pickler.fast` does: each occurrence is a
    copy, and an object that contains itself raises. Raises `pellucid.dbm.error`, which is an `OSError`.

    >>> from pellucid import shelve
    >>> with shelve.open(":memory:") as shelf:
    ...     shelf["numbers"] = {1, 2, 3}
    ...     shelf["numbers"]
    {1, 2, 3}
    """
    return DbfilenameShelf(
        filename,
        flag,
        protocol,
        writeback,
        serializer=serializer,
        deserializer=deserializer,
        pickle=pickle,
        fast=fast,
        durability=durability,
        timeout=timeout,
    )
