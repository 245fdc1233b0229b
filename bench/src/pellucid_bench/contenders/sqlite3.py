"""This module uses SQLite through the module of the standard library."""

# ruff: noqa: D102 (the docstrings of the methods are at `Store`, `Queried` and `BigStore`)

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pellucid_bench.contenders.big_stores import INDEXES, BigStore, Row
from pellucid_bench.contenders.dicts import Pair, Player, Session, Survives
from pellucid_bench.contenders.queries import InSql, cut
from pellucid_bench.contenders.stores import InFile, Number, column_rows, json_text, number_in
from pellucid_bench.contenders.writers import TIMEOUT, Names, Opened, Writer
from pellucid_bench.contenders.writers import Row as SmallRow
from pellucid_bench.rivals import Rivals
from pellucid_bench.runner import loop
from pellucid_bench.sample_records import VARIED, Population, Record

CACHE_SIZE = 256 << 20
"""What SQLite may keep in memory, as pellucid may in its memtable. LMDB uses the page cache."""


def connect(path: Path | str, *, full: bool = False, **settings: Any) -> sqlite3.Connection:
    """Open a file with a write-ahead log. With `full`, a commit waits for the disk."""
    connection: sqlite3.Connection = sqlite3.connect(path, isolation_level=None, **settings)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute(f"PRAGMA synchronous = {'FULL' if full else 'NORMAL'}")
    return connection


def players(rivals: Rivals) -> list[Player]:
    """Return the ways to write a table of keys and values."""
    rivals.find("sqlite3")
    return [way.player for way in SQLITE_WAYS]


@dataclass(frozen=True, slots=True)
class _Way:
    """One way to write a key and a value with SQLite. The names say which settings it has."""

    name: str
    in_file: bool = True
    wal: bool = False
    index_first: bool = True
    one_transaction: bool = True
    executemany: bool = False

    INSERT = "INSERT INTO words VALUES (?, ?)"

    def open(self, path: Path) -> Session:
        place = path if self.in_file else ":memory:"
        connection = connect(place) if self.wal else sqlite3.connect(place, isolation_level=None)
        connection.execute(f"CREATE TABLE words (k TEXT {'PRIMARY KEY' if self.index_first else ''}, v TEXT)")
        if self.one_transaction:
            connection.execute("BEGIN")

        def complete() -> None:
            if not self.index_first:
                connection.execute("CREATE UNIQUE INDEX by_k ON words (k)")
            if self.one_transaction:
                connection.execute("COMMIT")

        def fill(pairs: Iterable[Pair]) -> None:
            connection.execute("BEGIN")
            connection.executemany(self.INSERT, pairs)
            connection.execute("COMMIT")
            # Otherwise closing, which is timed, would have to do this.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

        names = {"execute": connection.execute, "executemany": connection.executemany}
        return Session(names, complete, lambda: {"execute": connection.execute}, connection.close, fill)

    @property
    def player(self) -> Player:
        survives: Survives = "nothing"
        if self.in_file and not self.one_transaction:
            survives = "kill -9" if self.wal else "power loss"
        one, many = f"execute({self.INSERT!r}, (k, v))", f"executemany({self.INSERT!r}, block)"
        return Player(
            f"sqlite3, {self.name}",
            self.open,
            many if self.executemany else one,
            "execute('SELECT v FROM words WHERE k = ?', (k,)).fetchone()[0]",
            survives,
            puts_blocks=self.executemany,
            in_memory=not self.in_file,
        )


SQLITE_WAYS = [
    _Way("file, INSERT and commit", one_transaction=False),
    _Way("file, WAL, INSERT and commit", wal=True, one_transaction=False),
    _Way("file, INSERT, one transaction"),
    _Way("file, INSERT, one transaction, index after", index_first=False),
    _Way("file, executemany", executemany=True),
    _Way("file, executemany, index after", executemany=True, index_first=False),
    _Way("file, WAL, executemany", executemany=True, wal=True),
    _Way("memory, INSERT", in_file=False),
    _Way("memory, INSERT, index after", in_file=False, index_first=False),
    _Way("memory, executemany", in_file=False, executemany=True),
    _Way("memory, executemany, index after", in_file=False, executemany=True, index_first=False),
]


class _Table(InSql, InFile):
    """The common part of the ways to store records in SQLite."""

    suffix = ".sqlite"
    create: str
    insert: str
    select_field: str
    update: str

    def __init__(self, population: Population, directory: Path, dumps: Callable[[object], str]) -> None:
        super().__init__(population, directory)
        self._dumps = dumps
        self._connection: sqlite3.Connection | None = None

    def rows(self, records: Sequence[Record]) -> Iterable[tuple[object, ...]]:
        """Return the records as rows to insert."""
        raise NotImplementedError

    @property
    def connection(self) -> sqlite3.Connection:
        """Return the open connection."""
        if self._connection is None:
            self._connection = connect(self.path)
        return self._connection

    def fill(self, records: Sequence[Record]) -> None:
        self.remove()
        self.connection.execute(self.create)
        self.connection.execute("BEGIN")
        self.connection.executemany(self.insert, self.rows(records))
        self.connection.execute("COMMIT")

    def loop_sum(self) -> Callable[[], Number]:
        names = {"execute": self.connection.execute}
        return loop("(age,)", f"execute('SELECT {self.select_field} FROM people')", "age or 0", names)

    def own_sum(self) -> Callable[[], Number]:
        connection, line = self.connection, f"SELECT sum({self.select_field}) FROM people"
        return lambda: number_in(connection.execute(line).fetchone())

    def field_line(self) -> tuple[str, dict[str, Any]]:
        line = f"SELECT {self.select_field} FROM people WHERE k = ?"
        names = {"execute": self.connection.execute, "line": line}
        return "execute(line, (key,)).fetchone()[0] or 0", names

    def set_all(self, values: Iterable[Number]) -> None:
        self.connection.execute("BEGIN")
        self.connection.executemany(self.update, ((value, number) for number, value in enumerate(values)))
        self.connection.execute("COMMIT")

    def size(self) -> int | None:
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return super().size()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def fetch(self, line: str) -> Iterable[tuple[Any, ...]]:
        return self.connection.execute(line)


class SqliteColumns(_Table):
    """SQLite with a column for each plain field. Nested values are JSON in one more column."""

    name = "sqlite3, columns"
    create = (
        "CREATE TABLE people (k INTEGER PRIMARY KEY, name TEXT, age NUMERIC, amt REAL, last TEXT, rest TEXT)"
    )
    insert = "INSERT INTO people VALUES (?, ?, ?, ?, ?, ?)"
    select_field = "age"
    update = "UPDATE people SET age = ? WHERE k = ?"

    def rows(self, records: Sequence[Record]) -> Iterable[tuple[object, ...]]:
        return column_rows(records, self._dumps)


class SqliteJson(_Table):
    """SQLite with the record as JSON text, and `json_extract`."""

    name = "sqlite3, JSON"
    create = "CREATE TABLE people (k INTEGER PRIMARY KEY, doc TEXT)"
    insert = "INSERT INTO people VALUES (?, ?)"
    select_field = 'json_extract(doc, "$.age")'
    update = "UPDATE people SET doc = json_set(doc, '$.age', ?) WHERE k = ?"
    age, amt, end, nested = (
        f"json_extract(doc, '$.{path}')" for path in ("age", "amt", "end", "mydict.c.nested")
    )
    change = "UPDATE people SET doc = json_set(doc, '$.age', json_extract(doc, '$.age') + 1)"

    def rows(self, records: Sequence[Record]) -> Iterable[tuple[object, ...]]:
        dumps = self._dumps
        return ((number, dumps(record)) for number, record in enumerate(records))


def stores(rivals: Rivals, population: Population, directory: Path) -> list[_Table]:
    """Return a table with columns, and one with JSON."""
    dumps = json_text(rivals)
    rivals.find("sqlite3")
    return [SqliteColumns(population, directory, dumps), SqliteJson(population, directory, dumps)]


class SqlColumns(SqliteColumns):
    """SQLite with a column for each field that is asked for."""

    create = (
        "CREATE TABLE people (k INTEGER PRIMARY KEY, name TEXT, age INTEGER, amt REAL, last TEXT, "
        "nested TEXT, rest TEXT)"
    )
    insert = "INSERT INTO people VALUES (?, ?, ?, ?, ?, ?, ?)"

    def rows(self, records: Sequence[Record]) -> Iterable[tuple[object, ...]]:
        return cut(records, self._dumps)


def queried(rivals: Rivals, directory: Path) -> list[_Table]:
    """Return a table with a column for each field that is asked for, and one with JSON."""
    dumps = json_text(rivals)
    rivals.find("sqlite3")
    return [SqlColumns(VARIED, directory, dumps), SqliteJson(VARIED, directory, dumps)]


def _open_shared(path: Path, *, full: bool = False) -> Opened:
    connections: list[sqlite3.Connection] = []

    def names() -> Names:
        connection = connect(path, full=full, timeout=TIMEOUT, check_same_thread=False)
        connections.append(connection)
        return {"execute": connection.execute, "executemany": connection.executemany}

    execute, executemany = names().values()
    execute("CREATE TABLE IF NOT EXISTS people (id INTEGER PRIMARY KEY, name TEXT, age INTEGER)")

    def fill(rows: Iterable[SmallRow]) -> None:
        execute("BEGIN")
        values = ((number, one["name"], one["age"]) for number, one in enumerate(rows))
        executemany("REPLACE INTO people VALUES (?, ?, ?)", values)
        execute("COMMIT")
        finish_writes()

    def finish_writes() -> None:
        execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def close() -> None:
        for connection in connections:
            connection.close()

    return Opened(names, fill, finish_writes, close)


_PUT = "execute('REPLACE INTO people VALUES (?, ?, ?)', (k, v['name'], v['age']))"
SQLITE = Writer(
    "sqlite3, WAL",
    "sqlite3",
    _open_shared,
    put=_PUT,
    age="execute('SELECT age FROM people WHERE id = ?', (k,)).fetchone()[0]",
    scan=(
        "for (age,) in execute('SELECT age FROM people WHERE id >= ? AND id < ?', (k, k + 100)):\n"
        " total += age"
    ),
    change="execute('UPDATE people SET age = age + 1 WHERE id = ?', (k,))",
    transaction=f"execute('BEGIN IMMEDIATE')\nfor k, v in pairs: {_PUT}\nexecute('COMMIT')",
    loop="for (age,) in execute('SELECT age FROM people'): total += age",
    sum="execute('SELECT sum(age) FROM people').fetchone()[0]",
)


def writers(rivals: Rivals) -> list[Writer]:
    """Return SQLite with a log that several processes share."""
    rivals.find("sqlite3")
    return [SQLITE]


class BigSqlite(BigStore):
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
        connection = connect(self.path)
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

    def finish_writes(self) -> float:
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return 0.0

    def close(self) -> None:
        self.connection.close()
