"""This module stores a million records in each library, and reads one field of them.

Every store takes the same list of dicts, numbered from 0. It can do four things: fill itself, sum the field
in a Python loop, sum the field with its own function, and read the field of one record. Each library is set
up as its own documentation advises for bulk work. The name of the store says which settings it has.
"""

# ruff: noqa: D102 (the docstrings of the methods are at `Store`)

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import pellucid

from pellucid_bench.rivals import Rivals
from pellucid_bench.runner import loop
from pellucid_bench.sample_records import Population, Record

Number = int | float


class Store(Protocol):
    """The methods that the measures of records use."""

    name: str
    is_ours: bool

    def fill(self, records: Sequence[Record]) -> None:
        """Start again, store `records`, and commit them."""

    def loop_sum(self) -> Callable[[], Number] | None:
        """Return a compiled loop that adds the field up in Python."""

    def own_sum(self) -> Callable[[], Number] | None:
        """Return the store's own sum over the field."""

    def field_line(self) -> tuple[str, dict[str, Any]] | None:
        """Return a line that reads the field of record number `key`, and its names."""

    def set_all(self, values: Iterable[Number]) -> None:
        """Set the field of every record to the next value, one by one, in one transaction."""

    def size(self) -> int | None:
        """Return the size on disk in bytes."""

    def close(self) -> None:
        """Close, and keep the file."""

    def remove(self) -> None:
        """Close, and delete the file."""


class LiveDicts:
    """The yardstick: a list of dicts in memory. Nothing is stored."""

    name = "list of live dicts"
    is_ours = False

    def __init__(self, population: Population) -> None:
        self.population = population
        self.records: Sequence[Record] = ()

    def fill(self, records: Sequence[Record]) -> None:
        self.records = records

    def loop_sum(self) -> Callable[[], Number]:
        return loop("row", "rows", f"row{self.population.by_item}", {"rows": self.records})

    def own_sum(self) -> None:
        return None

    def field_line(self) -> tuple[str, dict[str, Any]]:
        return f"rows[key]{self.population.by_item}", {"rows": self.records}

    def set_all(self, values: Iterable[Number]) -> None:
        for row, value in zip(self.records, values, strict=False):
            row["age"] = value

    def size(self) -> None:
        return None

    def close(self) -> None:
        self.records = ()

    remove = close


class InFile:
    """The common part of stores in a file or directory."""

    name: str
    is_ours = False
    suffix = ".db"

    def __init__(self, population: Population, directory: Path) -> None:
        self.population = population
        self.path = directory / (self.name.replace(" ", "-").replace(",", "") + self.suffix)

    def size(self) -> int | None:
        if self.path.is_dir():
            return sum(part.stat().st_size for part in self.path.iterdir() if "lock" not in part.name)
        return self.path.stat().st_size

    def close(self) -> None:
        raise NotImplementedError

    def remove(self) -> None:
        self.close()
        if self.path.is_dir():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


class Pellucid(InFile):
    """pellucid: one table, with rows under ascending int keys."""

    name = "pellucid"
    is_ours = True
    suffix = ".pel"

    def __init__(self, population: Population, directory: Path) -> None:
        super().__init__(population, directory)
        self._database: pellucid.Database | None = None

    def fill(self, records: Sequence[Record]) -> None:
        self.remove()
        self._database = pellucid.open(self.path, mode="n")
        self.table.extend(records)

    @property
    def database(self) -> pellucid.Database:
        """Return the open database; open it again after a close."""
        if self._database is None:
            self._database = pellucid.open(self.path, mode="w")
        return self._database

    @property
    def table(self) -> pellucid.Table:
        """Return the table that holds the records."""
        return self.database.table("people")

    def loop_sum(self) -> Callable[[], Number]:
        return loop("row", "table.values()", f"row{self.population.by_attribute}", {"table": self.table})

    def own_sum(self) -> Callable[[], Number]:
        table = self.table
        return lambda: table.sum("age")

    def field_line(self) -> tuple[str, dict[str, Any]]:
        # `extend` numbers rows from the next key of the table on. Read the first key instead of guessing it.
        first = next(iter(self.table))
        table_key = "key" if first == 0 else f"key + {first}"
        return f"table[{table_key}]{self.population.by_attribute}", {"table": self.table}

    def set_all(self, values: Iterable[Number]) -> None:
        with self.database.transaction():
            for row, value in zip(self.table.values(), values, strict=False):
                row.age = value

    def set_all_by_key(self, values: Iterable[Number]) -> None:
        """Do the same, with each record looked up by its key."""
        table = self.table
        with self.database.transaction():
            for key, value in zip(table.keys(), values, strict=False):
                table[key].age = value

    def close(self) -> None:
        if self._database is not None:
            self._database.close()
            self._database = None


class LmdbJson(InFile):
    """LMDB with orjson in its values: the usual document store made by hand."""

    name = "lmdb + orjson"
    suffix = ".lmdb"

    def __init__(self, population: Population, directory: Path, lmdb: Any, orjson: Any) -> None:
        super().__init__(population, directory)
        self._lmdb, self._orjson = lmdb, orjson
        self._environment: Any = None

    def fill(self, records: Sequence[Record]) -> None:
        self.remove()
        self._environment = self._lmdb.open(str(self.path), map_size=1 << 40, subdir=False)
        dumps = self._orjson.dumps
        with self._environment.begin(write=True) as txn:
            for number, record in enumerate(records):
                txn.put(number.to_bytes(8, "big"), dumps(record), append=True)

    def loop_sum(self) -> Callable[[], Number]:
        names = {"environment": self._environment, "loads": self._orjson.loads}
        rows = "environment.begin().cursor().iternext(keys=False)"
        return loop("row", rows, f"loads(row){self.population.by_item}", names)

    def own_sum(self) -> None:
        return None

    def field_line(self) -> tuple[str, dict[str, Any]]:
        names = {"begin": self._environment.begin, "loads": self._orjson.loads}
        return f"loads(begin(buffers=True).get(key.to_bytes(8, 'big'))){self.population.by_item}", names

    def set_all(self, values: Iterable[Number]) -> None:
        loads, dumps = self._orjson.loads, self._orjson.dumps
        with self._environment.begin(write=True) as txn:
            cursor = txn.cursor()
            for value in values:
                if not cursor.next():
                    break
                record = loads(cursor.value())
                record["age"] = value
                txn.put(cursor.key(), dumps(record))

    def close(self) -> None:
        if self._environment is not None:
            self._environment.close()
            self._environment = None
            self.path.with_name(self.path.name + "-lock").unlink(missing_ok=True)


class _Sqlite(InFile):
    """The common part of the two ways to store records in SQLite."""

    suffix = ".sqlite"
    create: str
    insert: str
    select_field: str
    update: str

    def __init__(self, population: Population, directory: Path) -> None:
        super().__init__(population, directory)
        self._connection: sqlite3.Connection | None = None

    def rows(self, records: Sequence[Record]) -> Iterable[tuple[object, ...]]:
        """Return the records as rows to insert."""
        raise NotImplementedError

    @property
    def connection(self) -> sqlite3.Connection:
        """Return the open connection."""
        if self._connection is None:
            self._connection = sqlite3.connect(self.path, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = NORMAL")
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
        return lambda: _number(connection.execute(line).fetchone())

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


class SqliteColumns(_Sqlite):
    """SQLite with a column for each plain field. Nested values are JSON in one more column."""

    name = "sqlite3, columns"
    create = (
        "CREATE TABLE people (k INTEGER PRIMARY KEY, name TEXT, age NUMERIC, amt REAL, last TEXT, rest TEXT)"
    )
    insert = "INSERT INTO people VALUES (?, ?, ?, ?, ?, ?)"
    select_field = "age"
    update = "UPDATE people SET age = ? WHERE k = ?"

    def __init__(self, population: Population, directory: Path, dumps: Callable[[object], str]) -> None:
        super().__init__(population, directory)
        self._dumps = dumps

    def rows(self, records: Sequence[Record]) -> Iterable[tuple[object, ...]]:
        return column_rows(records, self._dumps)


class SqliteJson(_Sqlite):
    """SQLite with the record as JSON text, and `json_extract`."""

    name = "sqlite3, JSON"
    create = "CREATE TABLE people (k INTEGER PRIMARY KEY, doc TEXT)"
    insert = "INSERT INTO people VALUES (?, ?)"
    select_field = 'json_extract(doc, "$.age")'
    update = "UPDATE people SET doc = json_set(doc, '$.age', ?) WHERE k = ?"

    def __init__(self, population: Population, directory: Path, dumps: Callable[[object], str]) -> None:
        super().__init__(population, directory)
        self._dumps = dumps

    def rows(self, records: Sequence[Record]) -> Iterable[tuple[object, ...]]:
        dumps = self._dumps
        return ((number, dumps(record)) for number, record in enumerate(records))


class DuckDb(InFile):
    """DuckDB with columns, loaded in batches: from tables of Arrow, or else from lists, which is slower."""

    name = "duckdb, columns"
    suffix = ".duckdb"
    batch_size = 20_000

    def __init__(
        self,
        population: Population,
        directory: Path,
        duckdb: Any,
        pyarrow: Any,
        dumps: Callable[[object], str],
    ) -> None:
        super().__init__(population, directory)
        self._duckdb, self._pyarrow, self._dumps = duckdb, pyarrow, dumps
        self._connection: Any = None

    def fill(self, records: Sequence[Record]) -> None:
        self.remove()
        self._connection = self._duckdb.connect(str(self.path))
        self._connection.execute(
            "CREATE TABLE people (k BIGINT PRIMARY KEY, name VARCHAR, age DOUBLE, amt DOUBLE, "
            "last VARCHAR, rest VARCHAR)"
        )
        self._connection.execute("BEGIN")
        rows = iter(column_rows(records, self._dumps))
        while batch := list(islice(rows, self.batch_size)):
            self._insert([list(column) for column in zip(*batch, strict=True)])
        self._connection.execute("COMMIT")

    def _insert(self, columns: list[list[Any]]) -> None:
        if self._pyarrow is None:
            types = ("BIGINT", "VARCHAR", "DOUBLE", "DOUBLE", "VARCHAR", "VARCHAR")
            line = ", ".join(f"unnest(?::{kind}[])" for kind in types)
            self._connection.execute(f"INSERT INTO people SELECT {line}", columns)
        else:
            arrow = self._pyarrow
            types = (
                arrow.int64(),
                arrow.string(),
                arrow.float64(),
                arrow.float64(),
                arrow.string(),
                arrow.string(),
            )
            arrays = [arrow.array(column, kind) for column, kind in zip(columns, types, strict=True)]
            self._connection.register(
                "batch", arrow.table(arrays, names=[f"c{place}" for place in range(len(arrays))])
            )
            self._connection.execute("INSERT INTO people SELECT * FROM batch")
            self._connection.unregister("batch")

    def loop_sum(self) -> Callable[[], Number]:
        names = {"execute": self._connection.execute}
        return loop("(age,)", "execute('SELECT age FROM people').fetchall()", "age or 0", names)

    def own_sum(self) -> Callable[[], Number]:
        connection = self._connection
        return lambda: _number(connection.execute("SELECT sum(age) FROM people").fetchone())

    def field_line(self) -> tuple[str, dict[str, Any]]:
        line = "SELECT age FROM people WHERE k = ?"
        return "execute(line, (key,)).fetchone()[0] or 0", {"execute": self._connection.execute, "line": line}

    def set_all(self, values: Iterable[Number]) -> None:
        # One statement for each row takes about 0.3 ms. DuckDB is not made for this, and takes no part in it.
        raise NotImplementedError

    def size(self) -> int | None:
        self._connection.execute("CHECKPOINT")
        return super().size()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def column_rows(records: Sequence[Record], dumps: Callable[[object], str]) -> Iterable[tuple[object, ...]]:
    """Split records into the columns of the two databases with columns."""
    for number, record in enumerate(records):
        rest = {name: value for name, value in record.items() if name not in ("name", "age", "amt", "end")}
        get = record.get
        yield number, get("name"), get("age"), get("amt"), get("end"), dumps(rest)


def stores(rivals: Rivals, population: Population, directory: Path) -> list[Store]:
    """Return all stores whose libraries are installed, ours first."""
    found: list[Store] = [Pellucid(population, directory), LiveDicts(population)]
    if modules := rivals.found(lmdb="lmdb", orjson="orjson"):
        found.append(LmdbJson(population, directory, **modules))
    dumps = json_text(rivals)
    rivals.find("sqlite3")
    found += [SqliteColumns(population, directory, dumps), SqliteJson(population, directory, dumps)]
    if duckdb := rivals.find("duckdb"):
        found.append(DuckDb(population, directory, duckdb, rivals.find("pyarrow"), dumps))
    return found


def json_text(rivals: Rivals) -> Callable[[object], str]:
    """Return the fastest JSON encoder that is installed, so the databases do not pay for a slow one."""
    if orjson := rivals.find("orjson"):
        dumps = orjson.dumps
        return lambda value: dumps(value).decode()
    import json

    return json.dumps


def _number(row: tuple[Any, ...] | None) -> Number:
    value: Number = row[0] if row else 0
    return value
