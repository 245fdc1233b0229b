"""This module is `shelve` over a pellucid database: `import pellucid.shelve as shelve`, and the code stays.

`open` keeps what the record format holds as records, so that its fields can be queried and indexed later
(`shelf.table`), and pickles what the format does not hold. `Shelf` and `BsdDbShelf` pickle into any mapping,
as Python's do. The signatures are those of Python 3.15's `shelve` on every Python.
"""

from __future__ import annotations

import atexit
import os
import sys
import weakref
from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView
from contextlib import contextmanager

from pellucid import pickles
from pellucid._native import ObjectMap
from pellucid.dbm import as_error, open_database
from pellucid.errors import Busy, Closed, DatabaseError, ReadOnly, StaleTable, TransactionError

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType
    from typing import Any, NoReturn

    from typing_extensions import Self

    import pellucid
    from pellucid.typing import Durability, PicklePolicy

__all__ = ["BsdDbShelf", "DbfilenameShelf", "Shelf", "ShelveError", "open"]

# What is wrong with the database, and not with one value.
OF_THE_DATABASE = (Busy, Closed, DatabaseError, ReadOnly, StaleTable, TransactionError)


class ShelveError(Exception):
    """A shelf that was given only one of `serializer` and `deserializer`."""


class _ClosedDict(MutableMapping):  # type: ignore[type-arg]
    """What a closed shelf has in place of its mapping: every use of it raises `ValueError`."""

    def closed(self, *_: object) -> NoReturn:
        raise ValueError("invalid operation on closed shelf")

    __iter__ = __len__ = __getitem__ = __setitem__ = __delitem__ = keys = closed

    def __repr__(self) -> str:
        return "<Closed Dictionary>"


class _Cache(dict):  # type: ignore[type-arg]
    """The values that a shelf keeps for `writeback`.

    In a forked process, `inherited` are those that its parent had kept. The child reads them, but only those
    that it used become its own: it would write the others over newer values of its parent.
    """

    def __init__(self, inherited: dict[Any, Any] | None = None) -> None:
        self.inherited = inherited or {}

    def __missing__(self, key: Any) -> Any:
        value = self.inherited.pop(key)
        self[key] = value
        return value

    def pop(self, key: Any, *default: Any) -> Any:
        self.inherited.pop(key, None)
        return super().pop(key, *default)

    def clear(self) -> None:
        self.inherited.clear()
        super().clear()


class Shelf(MutableMapping):  # type: ignore[type-arg]
    """A shelf over any mapping from bytes to bytes, whose values are pickles.

    With `writeback`, the shelf keeps every value that was read or written, and writes all of them back at
    `sync()` and `close()`, and when the process ends. If one cannot be written, all others are; the shelf
    stays open, and the error is raised. `serializer(value, protocol)` returns bytes, of which
    `deserializer(data)` makes the value again; without them, pickle does both.

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
        self.cache: Any = _Cache()
        self.keyencoding = keyencoding
        self.serializer = serializer or pickles.dumps
        self.deserializer = deserializer or pickles.loads
        _shelves[id(self)] = self

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
        """Write back what `writeback` has kept, and close the mapping. Closing twice does nothing.

        If a value cannot be written, the shelf stays open, and the next call tries again.
        """
        if self.dict is None or isinstance(self.dict, _ClosedDict):
            return
        self.sync()
        mapping, self.dict = self.dict, _ClosedDict()
        close = getattr(mapping, "close", None)
        if close is not None:
            close()

    def _close_for_good(self) -> None:
        """Close a shelf that no caller can close again; raise the error of a value that is lost."""
        try:
            self.close()
        except Exception:
            self.cache.clear()
            self.close()
            raise

    def __del__(self) -> None:
        # Where __init__ failed, there is nothing to close.
        if hasattr(self, "deserializer"):
            self._close_for_good()

    def sync(self) -> None:
        """Write back what `writeback` has kept, and forget it; then make the mapping durable."""
        self._write_back()
        if hasattr(self.dict, "sync"):
            self.dict.sync()

    def _write_back(self) -> None:
        """Write what `writeback` has kept, and forget it; keep what cannot be written, and raise then."""
        if not (self.writeback and self.cache):
            return
        self.writeback = False
        try:
            written, failed = self._write_each(self.__setitem__)
        finally:
            self.writeback = True
        self._forget(written, failed)

    def _write_each(self, write: Callable[[Any, Any], None]) -> tuple[dict[Any, Any], list[Exception]]:
        """Write each value that is kept. Return those that were written, and the errors of the others."""
        written, failed = {}, []
        # Writing a value may run code of its class, which may use the shelf.
        for key, value in list(self.cache.items()):
            try:
                write(key, value)
            except OF_THE_DATABASE:
                raise
            except Exception as error:
                failed.append(error)
            else:
                written[key] = value
        return written, failed

    def _forget(self, written: dict[Any, Any], failed: list[Exception]) -> None:
        """Forget what was written, and raise the first error if there is any."""
        for key, value in written.items():
            if self.cache.get(key) is value:
                del self.cache[key]
        if failed:
            if hasattr(failed[0], "add_note"):  # from Python 3.11 on
                more = f" (and {len(failed) - 1:,} others)" if len(failed) > 1 else ""
                failed[0].add_note(
                    f"This value{more} could not be written, and {len(written):,} others were. An open shelf "
                    "keeps it: change or delete it there, and call sync() or close() again."
                )
            raise failed[0]

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
            self._write(key, value)
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
        """Write back what `writeback` has kept, and close the database. Closing twice does nothing.

        If a value cannot be written, all others are. The shelf stays open, and the next call tries again.
        """
        if self.dict is None or isinstance(self.dict, _ClosedDict):
            return
        try:
            self._write_back()
        except ReadOnly as problem:
            # No later attempt can do better.
            self._shut()
            raise as_error(problem) from problem
        except OSError as problem:
            raise as_error(problem) from problem
        self._shut()

    def _shut(self) -> None:
        self._database.close()
        self._set_direct(False)
        self.dict = _ClosedDict()

    def sync(self) -> None:
        """Write back what `writeback` has kept, and forget it; then make all of it survive a power cut."""
        with _errors_of_dbm():
            self._write_back()
            self._database.sync()

    def reorganize(self) -> None:
        """Rewrite the file without its free space. Raises `dbm.error` while it is open anywhere else."""
        with _errors_of_dbm():
            self._write_back()
            self._database.compact()

    def _write_back(self) -> None:
        """Do the same in one transaction."""
        if not (self.writeback and self.cache):
            return
        with self._database.transaction():
            written, failed = self._write_each(self._write)
        self._forget(written, failed)

    def _write(self, key: Any, value: Any) -> None:
        self.dict[key] = self._serialized(value) if self._is_raw else value

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


@contextmanager
def _errors_of_dbm() -> Iterator[None]:
    """Make exceptions of a database those that Python's `shelve` raises."""
    try:
        yield
    except Closed as problem:
        raise ValueError("invalid operation on closed shelf") from problem
    except (ReadOnly, OSError) as problem:
        raise as_error(problem) from problem


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


# All shelves that are not collected. A shelf is a mapping, which has no hash.
_shelves: weakref.WeakValueDictionary[int, Shelf] = weakref.WeakValueDictionary()


def _at_exit() -> None:
    """Close the shelves with `writeback`, while their values can still be pickled: modules are there."""
    for shelf in list(_shelves.values()):
        if shelf.writeback:
            try:
                shelf._close_for_good()
            except Exception:
                sys.excepthook(*sys.exc_info())


def _in_a_child() -> None:
    """Leave to the parent of a forked process what the parent had kept."""
    for shelf in list(_shelves.values()):
        shelf.cache = _Cache({**getattr(shelf.cache, "inherited", {}), **shelf.cache})


# The functions that are registered first run last.
atexit.register(_at_exit)
os.register_at_fork(after_in_child=_in_a_child)
