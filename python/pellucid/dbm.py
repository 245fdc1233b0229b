"""This module is `dbm` over a pellucid database: `import pellucid.dbm as dbm`, and the code stays as it is.

A database of this module is one ordinary pellucid file, whose default table has bytes as keys and as values.
It has the signatures of Python 3.15's `dbm` on every Python.
"""

from __future__ import annotations

import os
from builtins import open as io_open
from collections.abc import ItemsView, Iterator, MutableMapping, ValuesView

import pellucid
from pellucid._native import BytesMap
from pellucid.errors import Closed, DatabaseError, Error, ReadOnly

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import TracebackType
    from typing import Any, NoReturn

    from typing_extensions import Buffer, Self

    from pellucid.typing import Durability, PicklePolicy

__all__ = ["error", "open", "whichdb"]

FLAGS = ("r", "w", "c", "n")
CLOSED = "DBM object has already been closed"
SQLITE_HEAD = b"SQLite format 3\0"
# What the first page of every pellucid file holds, and where.
STAMP, STAMP_OFFSET = b"pellucid db\0\r\n\x1a\n", 4032


class error(DatabaseError):  # noqa: N801  dbm's own name
    """Whatever a database of this module cannot do. It is an `OSError`, as `dbm.error` is."""


class _NotFound(error, FileNotFoundError):
    """A file that is not there: an `error`, and what the built-in `open` raises."""


class _WrongFlag(error, ValueError):
    """A flag that dbm does not have: an `error` for the callers of dbm.gnu, a `ValueError` for the others."""


class _NotPermitted(error, PermissionError):
    """A file that may not be read or written: an `error`, and what the built-in `open` raises."""


def open(
    file: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    flag: str = "r",
    mode: int = 0o666,
    *,
    durability: Durability = "process",
    timeout: float = 10.0,
) -> _Database:
    """Open the database `file` and return it: a mapping from bytes to bytes.

    `flag` is "r" (read), "w" (write), "c" (write, and create the file if it is missing) or "n" (write, and
    empty it first). `mode` has the permissions of a new file. `durability` and `timeout` (seconds) are those
    of `pellucid.open`. Raises `error`, which is a `ValueError` too for another flag.

    >>> import pellucid.dbm
    >>> with pellucid.dbm.open(":memory:", "c") as db:
    ...     db["city"] = "Bath"
    ...     db[b"city"], db.keys()
    (b'Bath', [b'city'])
    """
    database = open_database(file, flag, mode, durability=durability, pickle="deny", timeout=timeout)
    try:
        return _Database(database.table("default"), database, file)
    except BaseException:
        database.close()
        raise


def whichdb(filename: str | bytes | os.PathLike[str] | os.PathLike[bytes]) -> str | None:
    """Return the name of the module that opens a database file: "pellucid.dbm", or one of `dbm`'s.

    The empty string means that the file is of none of them, and None that it cannot be read.

    >>> import pellucid.dbm
    >>> pellucid.dbm.whichdb("no_such_file") is None
    True
    """
    path = os.fsencode(filename)
    try:
        with io_open(path, "rb") as stream:
            head = stream.read(STAMP_OFFSET + len(STAMP))
    except OSError:
        head = b""
    if head[STAMP_OFFSET:] == STAMP:
        return "pellucid.dbm"
    if head.startswith(SQLITE_HEAD):
        # Before 3.13, Python's whichdb does not know it.
        return "dbm.sqlite3"
    import dbm

    return dbm.whichdb(os.fsdecode(path))


def open_database(
    file: str | bytes | os.PathLike[str] | os.PathLike[bytes],
    flag: str,
    mode: int,
    *,
    durability: Durability,
    pickle: PicklePolicy,
    timeout: float,
) -> pellucid.Database:
    """Return the pellucid database of a drop-in; raise `error` where `pellucid.open` raises an `OSError`."""
    if flag not in FLAGS:
        raise _WrongFlag(f"Flag must be one of 'r', 'w', 'c', or 'n', not {flag!r}")
    if mode != 0o666 and flag in ("c", "n") and file != ":memory:":
        _create(file, mode)
    try:
        return pellucid.open(
            file,
            flag,  # type: ignore[arg-type]
            durability=durability,
            pickle=pickle,
            timeout=timeout,
        )
    except OSError as problem:
        raise as_error(problem, file) from problem


def as_error(problem: BaseException, file: object = None) -> error:
    """Return the `error` that says what an exception says; its file has the name that the caller gave."""
    if isinstance(problem, ReadOnly):
        return error("The database is opened for reading only; open it with the flag 'w' or 'c' to write")
    if isinstance(problem, OSError) and problem.errno is not None:
        cls: type[error] = error
        if isinstance(problem, FileNotFoundError):
            cls = _NotFound
        elif isinstance(problem, PermissionError):
            cls = _NotPermitted
        # Errors of pellucid have a message of their own in place of the system's.
        what = problem.strerror or str(problem)
        return cls(problem.errno, what, problem.filename if file is None else file)
    return error(str(problem))


def _create(file: Any, mode: int) -> None:
    """Create an empty file with these permissions. The files beside a database get those that it has."""
    try:
        os.close(os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode))
    except FileExistsError:
        pass
    except OSError as problem:
        raise as_error(problem, file) from problem


def refusal(problem: BaseException) -> error | None:
    """Return the `error` in whose place an exception stands; None for one that stays as it is."""
    if isinstance(problem, Closed):
        return error(CLOSED)
    if not isinstance(problem, (Error, OSError)):
        return None
    refused = as_error(problem)
    refused.__cause__ = problem
    return refused


def _as_bytes(value: str | Buffer) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(memoryview(value))


class _Database(BytesMap, MutableMapping):  # type: ignore[type-arg]
    """An open database. A str as key or value means its UTF-8 bytes; what is read is bytes.

    The base class reads and writes single keys.
    """

    def __init__(self, table: pellucid.Table[Any], database: pellucid.Database, file: object) -> None:
        self._table = table
        self._database = database
        # Keys are in order, and those of one type stand together.
        for row in (table.first(), table.last()):
            if row is not None and type(row[0]) is not bytes:
                raise error(
                    f"{os.fsdecode(file)!r} has a key that is not bytes, {row[0]!r}: "  # type: ignore[arg-type]
                    "it was not made by pellucid.dbm; open it with pellucid.open() or pellucid.shelve.open()"
                )

    def __iter__(self) -> Iterator[bytes]:
        """Iterate over the keys, in their order, as they are now."""
        try:
            yield from self._table
        except Error as problem:
            self._refuse(problem)

    def keys(self) -> list[bytes]:  # type: ignore[override]
        """Return all keys, in their order."""
        return list(self)

    def items(self) -> ItemsView[bytes, bytes]:
        """Return a view of the pairs of key and value."""
        self._check_open()
        return _Items(self)

    def values(self) -> ValuesView[bytes]:
        """Return a view of the values."""
        self._check_open()
        return _Values(self)

    def get(self, key: str | Buffer, default: Any = None) -> Any:
        """Return the value of a key, or `default`."""
        try:
            return self[key]
        except KeyError:
            return default

    def setdefault(self, key: str | Buffer, default: str | Buffer = b"") -> bytes:  # type: ignore[override]
        """Return the value of a key. If it is missing, store and return `default`."""
        try:
            found: bytes = self._table.setdefault(_as_bytes(key), _as_bytes(default))
        except Error as problem:
            self._refuse(problem)
        return found

    def firstkey(self) -> bytes | None:
        """Return the first key; None if there is none."""
        try:
            row = self._table.first()
        except Error as problem:
            self._refuse(problem)
        return None if row is None else row[0]

    def nextkey(self, key: str | Buffer) -> bytes | None:
        """Return the key after `key`, which need not be there itself; None if that was the last one."""
        try:
            # No key lies between a string of bytes and the same with a NUL after it.
            return next(iter(self._table.keys(start=_as_bytes(key) + b"\0")), None)
        except Error as problem:
            self._refuse(problem)

    def clear(self) -> None:
        """Delete all keys, in one transaction."""
        try:
            self._table.clear()
        except Error as problem:
            self._refuse(problem)

    def sync(self) -> None:
        """Make everything written so far survive a power cut."""
        try:
            self._database.sync()
        except (Error, OSError) as problem:
            self._refuse(problem)

    def reorganize(self) -> None:
        """Rewrite the file without its free space. Raises `error` while it is open anywhere else."""
        try:
            self._database.compact()
        except (Error, OSError) as problem:
            self._refuse(problem)

    def close(self) -> None:
        """Close the database. Closing twice does nothing."""
        self._database.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return repr(self._database).replace("pellucid.Database", "pellucid.dbm", 1)

    def _check_open(self) -> None:
        if self._database.closed:
            raise error(CLOSED)

    def _refuse(self, problem: Error | OSError) -> NoReturn:
        raise refusal(problem) or problem


class _Items(ItemsView[bytes, bytes]):
    """The pairs, read in one go instead of key by key."""

    _mapping: Any

    def __iter__(self) -> Iterator[tuple[bytes, bytes]]:
        database = self._mapping
        try:
            yield from database._table.items()
        except Error as problem:
            database._refuse(problem)


class _Values(ValuesView[bytes]):
    """The values, read in one go instead of key by key."""

    _mapping: Any

    def __iter__(self) -> Iterator[bytes]:
        database = self._mapping
        try:
            yield from database._table.values()
        except Error as problem:
            database._refuse(problem)
