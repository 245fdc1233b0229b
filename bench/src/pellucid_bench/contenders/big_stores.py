"""This module stores many rows of 200 bytes in each library, for `bench scale`.

A row has a str key, its number, a town, an age, and a text that fills it up. pellucid and SQLite store the
fields. LMDB and RocksDB store the row packed by `struct`, so that they pay nothing for an encoding, and have
no indexes. All commit without waiting for the disk.
"""

# ruff: noqa: D102 (the docstrings of the methods are at `BigStore`)

from __future__ import annotations

import contextlib
import sqlite3
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

INDEXES = ("number", "town")
"""The fields that have an index: none, the first, or both."""
TOWNS = 5_000
TEXT_SIZE = 168
ROW_SIZE = 220
"""Bytes of a key and its packed row."""
CACHE_SIZE = 256 << 20
"""What SQLite may keep in memory, as pellucid may in its memtable. LMDB uses the page cache."""
IDLE_SECONDS = 15.0
"""pellucid's file has its final size when it has not changed for so long, and for the time to read it."""
READ_RATE = 200e6
"""Bytes a second."""
SMALL_FILE = 16 << 20
"""A file of less than this does not get shorter by itself."""
_HEAD = struct.Struct("<QQ")


class Row(NamedTuple):
    """One row."""

    key: str
    number: int
    town: str
    age: int
    text: str


class BigStore:
    """A library that has a store open, with these methods."""

    name: str
    module: str
    """The module that must be installed."""
    has_indexes = False
    has_one_commit = True
    """Whether it can load any number of rows in one commit."""

    def __init__(self, folder: Path) -> None:
        """Open the store in a folder, or create it."""

    def create_indexes(self, count: int) -> None:
        """Create the first `count` of `INDEXES`."""
        raise NotImplementedError

    def commit(self, rows: Iterable[Row]) -> None:
        """Put all rows in one commit."""
        raise NotImplementedError

    def putter(self) -> Callable[[Row], object]:
        """Return a function that puts and commits one row."""
        raise NotImplementedError

    def number_of(self, key: str) -> int:
        """Return the number of the row under a key."""
        raise NotImplementedError

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the rows in one commit."""
        raise NotImplementedError

    def key_range(self, start: str, count: int) -> int:
        """Return the sum of the ages of `count` rows from a key on."""
        raise NotImplementedError

    def sum_ages(self) -> int:
        """Return the sum of all ages."""
        raise NotImplementedError

    def by_index(self, number: int) -> str:
        """Return the text of the row with a number, by the index."""
        raise NotImplementedError

    def index_range(self, start: int, stop: int) -> int:
        """Return the sum of the ages of the rows with these numbers, in a Python loop over the index."""
        raise NotImplementedError

    def snapshot(self) -> AbstractContextManager[object]:
        """Keep what is stored now as it is."""
        raise NotImplementedError

    def live_size(self, count: int) -> int:
        """Return the bytes of so many keys and rows as the library encodes them."""
        return count * ROW_SIZE

    def settle(self) -> float:
        """Write all commits to their final place, and sync. Return how long it was at rest then."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the store."""
        raise NotImplementedError


class Pellucid(BigStore):
    """pellucid: one table of dicts."""

    name = module = "pellucid"
    has_indexes = True

    def __init__(self, folder: Path) -> None:
        import pellucid

        self.database = pellucid.open(folder / "rows.pel")
        self.table: Any = self.database.table("rows")

    def create_indexes(self, count: int) -> None:
        for field in INDEXES[:count]:
            self.table.create_index(field, field)

    def commit(self, rows: Iterable[Row]) -> None:
        self.table.update((row.key, _fields(row)) for row in rows)

    def putter(self) -> Callable[[Row], object]:
        table = self.table

        def put(row: Row) -> None:
            table[row.key] = _fields(row)

        return put

    def number_of(self, key: str) -> int:
        number: int = self.table[key].number
        return number

    def delete(self, keys: Iterable[str]) -> None:
        with self.database.transaction():
            for key in keys:
                del self.table[key]

    def key_range(self, start: str, count: int) -> int:
        total = 0
        for row in islice(self.table.range(start, None), count):
            total += row.age
        return total

    def sum_ages(self) -> int:
        total: int = self.table.sum("age")
        return total

    def by_index(self, number: int) -> str:
        text: str = self.table.index("number").get(number).text
        return text

    def index_range(self, start: int, stop: int) -> int:
        total = 0
        for row in self.table.index("number").range(start, stop):
            total += row.age
        return total

    def snapshot(self) -> AbstractContextManager[object]:
        return self.database.snapshot()

    def live_size(self, count: int) -> int:
        stats: dict[str, int] = self.table.stats()
        # Of a compressed table, what it would be without.
        return (stats["key_size"] + stats["plain_size"]) // stats["rows"] * count

    def settle(self) -> float:
        self.database.sync()
        # At rest, the file gets shorter by itself.
        sizes, since = None, time.monotonic()
        while True:
            stats = self.database.stats()
            found = (stats["file_size"], stats["free_size"], stats["log_size"])
            if found != sizes:
                sizes, since = found, time.monotonic()
            waited = time.monotonic() - since
            # All of a large tree is read before the first of its pages moves.
            if waited >= IDLE_SECONDS + stats["file_size"] / READ_RATE or stats["file_size"] < SMALL_FILE:
                return waited
            time.sleep(0.1)

    def close(self) -> None:
        self.database.close()


class Compressed(Pellucid):
    """pellucid: the same in a compressed table."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.table = self.database.table("rows", compress=True)


def _fields(row: Row) -> dict[str, Any]:
    return {"number": row.number, "town": row.town, "age": row.age, "text": row.text}


def _packed(row: Row) -> bytes:
    return _HEAD.pack(row.number, row.age) + f"{row.town:16}{row.text}".encode()


class Lmdb(BigStore):
    """LMDB, with packed rows."""

    name = module = "lmdb"

    def __init__(self, folder: Path) -> None:
        import lmdb

        self.environment: Any = lmdb.open(str(folder), map_size=1 << 40, sync=False)

    def commit(self, rows: Iterable[Row]) -> None:
        with self.environment.begin(write=True) as txn:
            for row in rows:
                txn.put(row.key.encode(), _packed(row))

    def putter(self) -> Callable[[Row], object]:
        begin = self.environment.begin

        def put(row: Row) -> None:
            with begin(write=True) as txn:
                txn.put(row.key.encode(), _packed(row))

        return put

    def number_of(self, key: str) -> int:
        with self.environment.begin(buffers=True) as txn:
            number: int = _HEAD.unpack_from(txn.get(key.encode()))[0]
        return number

    def delete(self, keys: Iterable[str]) -> None:
        with self.environment.begin(write=True) as txn:
            for key in keys:
                txn.delete(key.encode())

    def key_range(self, start: str, count: int) -> int:
        total = 0
        with self.environment.begin(buffers=True) as txn, txn.cursor() as cursor:
            cursor.set_range(start.encode())
            for value in islice(cursor.iternext(keys=False), count):
                total += _HEAD.unpack_from(value)[1]
        return total

    def sum_ages(self) -> int:
        total = 0
        with self.environment.begin(buffers=True) as txn, txn.cursor() as cursor:
            for value in cursor.iternext(keys=False):
                total += _HEAD.unpack_from(value)[1]
        return total

    def snapshot(self) -> AbstractContextManager[object]:
        transaction: AbstractContextManager[object] = self.environment.begin()
        return transaction

    def settle(self) -> float:
        self.environment.sync(True)
        return 0.0

    def close(self) -> None:
        self.environment.close()


class RocksDict(BigStore):
    """RocksDB, with packed rows, compressed as is its default."""

    name = module = "rocksdict"
    has_one_commit = False

    def __init__(self, folder: Path) -> None:
        import rocksdict

        self.library = rocksdict
        self.rows: Any = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))

    def commit(self, rows: Iterable[Row]) -> None:
        batch = self.library.WriteBatch(raw_mode=True)
        for row in rows:
            batch.put(row.key.encode(), _packed(row))
        self.rows.write(batch)

    def putter(self) -> Callable[[Row], object]:
        rows = self.rows

        def put(row: Row) -> None:
            rows[row.key.encode()] = _packed(row)

        return put

    def number_of(self, key: str) -> int:
        number: int = _HEAD.unpack_from(self.rows[key.encode()])[0]
        return number

    def delete(self, keys: Iterable[str]) -> None:
        batch = self.library.WriteBatch(raw_mode=True)
        for key in keys:
            batch.delete(key.encode())
        self.rows.write(batch)

    def key_range(self, start: str, count: int) -> int:
        total = 0
        for value in islice(self.rows.values(from_key=start.encode()), count):
            total += _HEAD.unpack_from(value)[1]
        return total

    def sum_ages(self) -> int:
        total = 0
        for value in self.rows.values():
            total += _HEAD.unpack_from(value)[1]
        return total

    def snapshot(self) -> AbstractContextManager[object]:
        return contextlib.nullcontext(self.rows.snapshot())

    def settle(self) -> float:
        self.rows.flush()
        self.rows.flush_wal(sync=True)
        return 0.0

    def close(self) -> None:
        self.rows.close()


class Sqlite(BigStore):
    """SQLite: a table in the order of its keys, a log, and a cache as large as our memtable may be."""

    name = module = "sqlite3"
    has_indexes = True

    def __init__(self, folder: Path) -> None:
        self.path = folder / "rows.sqlite"
        self.connection = self._connect()
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS rows"
            " (key TEXT PRIMARY KEY, number INTEGER, town TEXT, age INTEGER, text TEXT) WITHOUT ROWID"
        )

    def create_indexes(self, count: int) -> None:
        for field in INDEXES[:count]:
            self.connection.execute(f"CREATE INDEX by_{field} ON rows ({field})")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self.path, isolation_level=None)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute(f"PRAGMA cache_size = -{CACHE_SIZE >> 10}")
        return connection

    def commit(self, rows: Iterable[Row]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", rows)
        self.connection.execute("COMMIT")

    def putter(self) -> Callable[[Row], object]:
        execute = self.connection.execute
        return lambda row: execute("REPLACE INTO rows VALUES (?, ?, ?, ?, ?)", row)

    def _value(self, statement: str, *parameters: object) -> Any:
        return self.connection.execute(statement, parameters).fetchone()[0]

    def number_of(self, key: str) -> int:
        number: int = self._value("SELECT number FROM rows WHERE key = ?", key)
        return number

    def delete(self, keys: Iterable[str]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("DELETE FROM rows WHERE key = ?", ((key,) for key in keys))
        self.connection.execute("COMMIT")

    def key_range(self, start: str, count: int) -> int:
        found = self.connection.execute(
            "SELECT age FROM rows WHERE key >= ? ORDER BY key LIMIT ?", (start, count)
        )
        return sum(age for (age,) in found)

    def sum_ages(self) -> int:
        total: int = self._value("SELECT sum(age) FROM rows")
        return total

    def by_index(self, number: int) -> str:
        text: str = self._value("SELECT text FROM rows WHERE number = ?", number)
        return text

    def index_range(self, start: int, stop: int) -> int:
        total = 0
        found = self.connection.execute(
            "SELECT age FROM rows WHERE number >= ? AND number < ? ORDER BY number", (start, stop)
        )
        for (age,) in found:
            total += age
        return total

    @contextlib.contextmanager
    def snapshot(self) -> Iterator[object]:
        other = self._connect()
        other.execute("BEGIN")
        other.execute("SELECT number FROM rows LIMIT 1").fetchone()
        try:
            yield other
        finally:
            other.close()

    def settle(self) -> float:
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return 0.0

    def close(self) -> None:
        self.connection.close()


BIG_STORES: dict[str, type[BigStore]] = {store.name: store for store in (Pellucid, Lmdb, RocksDict, Sqlite)}
