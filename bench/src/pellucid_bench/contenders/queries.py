"""This module asks each library the same queries, in the fastest way of that library.

All contenders hold the rows of the *varied* population and answer the same questions. The answers are plain
Python objects, the same for all. A library with columns has one column for each field that is asked for, the
nested one too, and the rest of the record as JSON.
"""

# ruff: noqa: D102 (the docstrings of the methods are at `Queried`)

from __future__ import annotations

import contextlib
import csv
import heapq
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import pellucid
from pellucid import F

from pellucid_bench.contenders.stores import (
    InFile,
    LiveDicts,
    LmdbJson,
    Pellucid,
    SqliteColumns,
    SqliteJson,
    json_text,
)
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import VARIED, Record

ABOVE = 50
"""About half of the rows have a greater age."""
FROM = 75
"""One row in ten has this age or a greater one."""
PREFIX = "this"
"""One row in eight has a nested string that begins with this."""
TOP = 10

Groups = list[tuple[str, float, float]]


class Queried(Protocol):
    """The questions of the measures."""

    name: str
    is_ours: bool

    def fill(self, records: Sequence[Record]) -> None:
        """Start again and store `records`."""

    def count_above(self) -> int:
        """Return how many rows have an `age` above `ABOVE`."""

    def count_prefix(self) -> int:
        """Return how many rows have a string in `mydict.c.nested` that begins with `PREFIX`."""

    def groups(self) -> Groups:
        """Return the sum of `amt` and the mean of `age` for each `end`, sorted by `end`."""

    def top(self) -> list[float]:
        """Return the `amt` of the `TOP` rows with the greatest one. This must fetch whole rows."""

    def add_matches(self) -> float:
        """Return the sum of `amt` over the rows with an `age` from `FROM` on, added up in a Python loop."""

    def ages(self) -> list[int]:
        """Return the `age` of each row."""

    def grow_older(self) -> None:
        """Add 1 to the `age` of each row, in one transaction."""

    def remove(self) -> None:
        """Close, and delete the file."""


class Ours(Pellucid):
    """pellucid. The file is opened again after it was filled, so nothing is pending in the log."""

    def fill(self, records: Sequence[Record]) -> None:
        super().fill(records)
        self.close()

    def count_above(self) -> int:
        return self.table.where(F.age > ABOVE).count()

    def count_prefix(self) -> int:
        return self.table.where(F.mydict.c.nested.startswith(PREFIX)).count()

    def groups(self) -> Groups:
        found = self.table.group_by("end").agg(total=F.amt.sum(), mean=F.age.mean())
        return [(group["end"], group["total"], group["mean"]) for group in found]

    def top(self) -> list[float]:
        return [row.amt for row in self.table.order_by(F.amt.desc()).limit(TOP)]

    def add_matches(self) -> float:
        total = 0.0
        for row in self.table.where(F.age >= FROM):
            total += row.amt
        return total

    def ages(self) -> list[int]:
        return self.table.column("age")

    def grow_older(self) -> None:
        self.table.where().update(age=F.age + 1)

    @contextlib.contextmanager
    def in_changed_transaction(self) -> Iterator[None]:
        """Open a transaction that changes a row and is dropped at the end. Its queries see the change."""
        with contextlib.suppress(_DroppedError), self.database.transaction():
            next(iter(self.table.values())).name = "Fred"
            yield
            raise _DroppedError


class _DroppedError(Exception):
    """Ends a transaction without a commit."""


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Run our queries on this number of threads."""
    pellucid.set_threads(count)
    try:
        yield
    finally:
        pellucid.set_threads(1)


class InPython:
    """Answers the questions from dicts, one after the other, in Python."""

    def rows(self) -> Iterable[Record]:
        """Return all rows as dicts."""
        raise NotImplementedError

    def count_above(self) -> int:
        count = 0
        for row in self.rows():
            if row["age"] > ABOVE:
                count += 1
        return count

    def count_prefix(self) -> int:
        count = 0
        for row in self.rows():
            if row["mydict"]["c"]["nested"].startswith(PREFIX):
                count += 1
        return count

    def groups(self) -> Groups:
        found: dict[str, list[Any]] = {}
        for row in self.rows():
            group = found.get(row["end"])
            if group is None:
                group = found[row["end"]] = [0.0, 0, 0]
            group[0] += row["amt"]
            group[1] += row["age"]
            group[2] += 1
        return [(end, total, ages / count) for end, (total, ages, count) in sorted(found.items())]

    def top(self) -> list[float]:
        return [row["amt"] for row in heapq.nlargest(TOP, self.rows(), key=itemgetter("amt"))]

    def add_matches(self) -> float:
        total = 0.0
        for row in self.rows():
            if row["age"] >= FROM:
                total += row["amt"]
        return total

    def ages(self) -> list[int]:
        return [row["age"] for row in self.rows()]


class Dicts(InPython, LiveDicts):
    """The yardstick: dicts in a list. Nothing is stored, and nothing is decoded."""

    def rows(self) -> Iterable[Record]:
        return self.records

    def grow_older(self) -> None:
        for row in self.records:
            row["age"] += 1


class Lmdb(InPython, LmdbJson):
    """LMDB with orjson in its values."""

    def rows(self) -> Iterable[Record]:
        with self._environment.begin() as txn:
            yield from map(self._orjson.loads, txn.cursor().iternext(keys=False))

    def grow_older(self) -> None:
        loads, dumps = self._orjson.loads, self._orjson.dumps
        with self._environment.begin(write=True) as txn:
            cursor = txn.cursor()
            while cursor.next():
                row = loads(cursor.value())
                row["age"] += 1
                txn.put(cursor.key(), dumps(row))


class InSql:
    """Answers the questions in SQL, with columns or with expressions for them."""

    age, amt, end, nested = "age", "amt", "last", "nested"
    begins = f"GLOB '{PREFIX}*'"
    """A condition. SQLite's `LIKE` would ignore upper and lower case."""
    change = "UPDATE people SET age = age + 1"

    @property
    def four(self) -> str:
        """Return the list of four columns, with the names of the fields."""
        return f'{self.age} AS age, {self.amt} AS amt, {self.end} AS "end", {self.nested} AS nested'

    def fetch(self, line: str) -> Iterable[tuple[Any, ...]]:
        """Return the rows of a statement."""
        raise NotImplementedError

    def _value(self, line: str) -> Any:
        return next(iter(self.fetch(line)))[0]

    def count_above(self) -> int:
        found: int = self._value(f"SELECT count(*) FROM people WHERE {self.age} > {ABOVE}")
        return found

    def count_prefix(self) -> int:
        found: int = self._value(f"SELECT count(*) FROM people WHERE {self.nested} {self.begins}")
        return found

    def groups(self) -> Groups:
        sums = f"SELECT {self.end}, sum({self.amt}), avg({self.age}) FROM people GROUP BY 1 ORDER BY 1"
        return [(end, total, mean) for end, total, mean in self.fetch(sums)]

    def top(self) -> list[float]:
        line = f"SELECT {self.amt}, * FROM people ORDER BY {self.amt} DESC LIMIT {TOP}"
        return [row[0] for row in self.fetch(line)]

    def add_matches(self) -> float:
        total = 0.0
        for (amt,) in self.fetch(f"SELECT {self.amt} FROM people WHERE {self.age} >= {FROM}"):
            total += amt
        return total

    def ages(self) -> list[int]:
        return [age for (age,) in self.fetch(f"SELECT {self.age} FROM people")]

    def grow_older(self) -> None:
        for _ in self.fetch(self.change):
            pass


class SqlColumns(InSql, SqliteColumns):
    """SQLite with a column for each field that is asked for."""

    create = (
        "CREATE TABLE people (k INTEGER PRIMARY KEY, name TEXT, age INTEGER, amt REAL, last TEXT, "
        "nested TEXT, rest TEXT)"
    )
    insert = "INSERT INTO people VALUES (?, ?, ?, ?, ?, ?, ?)"

    def rows(self, records: Sequence[Record]) -> Iterable[tuple[object, ...]]:
        return cut(records, self._dumps)

    def fetch(self, line: str) -> Iterable[tuple[Any, ...]]:
        return self.connection.execute(line)


class SqlJson(InSql, SqliteJson):
    """SQLite with the record as JSON text, and `json_extract`."""

    age, amt, end, nested = (
        f"json_extract(doc, '$.{path}')" for path in ("age", "amt", "end", "mydict.c.nested")
    )
    change = "UPDATE people SET doc = json_set(doc, '$.age', json_extract(doc, '$.age') + 1)"

    def fetch(self, line: str) -> Iterable[tuple[Any, ...]]:
        return self.connection.execute(line)


class Duck(InSql, InFile):
    """DuckDB with the same columns in its own file, loaded from CSV, on one thread like the others."""

    name = "duckdb"
    suffix = ".duckdb"
    begins = f"LIKE '{PREFIX}%'"

    def __init__(self, directory: Path, duckdb: Any, dumps: Callable[[object], str]) -> None:
        super().__init__(VARIED, directory)
        self._duckdb, self._dumps = duckdb, dumps
        self._connection: Any = None

    def fill(self, records: Sequence[Record]) -> None:
        self.remove()
        self._connection = self._duckdb.connect(str(self.path))
        self._connection.execute("SET threads = 1")
        self._connection.execute(
            "CREATE TABLE people (k BIGINT, name VARCHAR, age BIGINT, amt DOUBLE, last VARCHAR, "
            "nested VARCHAR, rest VARCHAR)"
        )
        text = self.path.with_suffix(".csv")
        with text.open("w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows(cut(records, self._dumps))
        self._connection.execute(f"COPY people FROM '{text}' (FORMAT csv, HEADER false)")
        self._connection.execute("CHECKPOINT")
        text.unlink()

    def execute(self, line: str) -> Any:
        """Run a statement and return its result, to be fetched."""
        return self._connection.execute(line)

    def fetch(self, line: str) -> Iterable[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.execute(line).fetchall()
        return found

    @contextlib.contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Run DuckDB on this number of threads."""
        self.execute(f"SET threads = {count}")
        try:
            yield
        finally:
            self.execute("SET threads = 1")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Frame:
    """A polars DataFrame in memory, with the same columns."""

    is_ours = False

    def __init__(self, polars: Any, name: str, dumps: Callable[[object], str]) -> None:
        self._polars, self.name, self._dumps = polars, name, dumps
        self.frame: Any = None

    def fill(self, records: Sequence[Record]) -> None:
        names = ["k", "name", "age", "amt", "end", "nested", "rest"]
        columns = zip(*cut(records, self._dumps), strict=True)
        self.frame = self._polars.DataFrame(dict(zip(names, columns, strict=True)))

    def _column(self, name: str) -> Any:
        return self._polars.col(name)

    def count_above(self) -> int:
        found: int = self.frame.select((self._column("age") > ABOVE).sum()).item()
        return found

    def count_prefix(self) -> int:
        found: int = self.frame.select(self._column("nested").str.starts_with(PREFIX).sum()).item()
        return found

    def groups(self) -> Groups:
        sums = self._column("amt").sum(), self._column("age").mean()
        found: Groups = self.frame.group_by("end").agg(*sums).sort("end").rows()
        return found

    def top(self) -> list[float]:
        found: list[float] = self.frame.top_k(TOP, by="amt").sort("amt", descending=True)["amt"].to_list()
        return found

    def add_matches(self) -> float:
        total = 0.0
        found = self.frame.lazy().filter(self._column("age") >= FROM).select("amt").collect()
        for amt in found["amt"].to_list():
            total += amt
        return total

    def ages(self) -> list[int]:
        found: list[int] = self.frame["age"].to_list()
        return found

    def grow_older(self) -> None:
        self.frame = self.frame.with_columns(self._column("age") + 1)

    def remove(self) -> None:
        self.frame = None


def cut(records: Iterable[Record], dumps: Callable[[object], str]) -> Iterator[tuple[object, ...]]:
    """Split records into columns: the fields that are asked for, and the rest as JSON."""
    for number, record in enumerate(records):
        inner = record["mydict"]["c"]
        rest = {
            "mylist": record["mylist"],
            "mydict": {**record["mydict"], "c": {"num": inner["num"], "list": inner["list"]}},
        }
        yield (
            number,
            record["name"],
            record["age"],
            record["amt"],
            record["end"],
            inner["nested"],
            dumps(rest),
        )


def queried(rivals: Rivals, directory: Path) -> list[Queried]:
    """Return all libraries that are installed, ours first, each on one thread."""
    dumps = json_text(rivals)
    rivals.find("sqlite3")
    found: list[Queried] = [Ours(VARIED, directory), Dicts(VARIED)]
    if modules := rivals.found(lmdb="lmdb", orjson="orjson"):
        found.append(Lmdb(VARIED, directory, **modules))
    found += [SqlColumns(VARIED, directory, dumps), SqlJson(VARIED, directory, dumps)]
    if duckdb := rivals.find("duckdb"):
        found.append(Duck(directory, duckdb, dumps))
    if polars := polars_of(rivals):
        found.append(Frame(*polars, dumps))
    return found


def polars_of(rivals: Rivals) -> tuple[ModuleType, str] | None:
    """Import polars on one thread. Return it, and its name in the measures.

    polars reads the number of threads from the environment once. If it was imported before, it may have more
    threads. Its name then says how many.
    """
    variable = "POLARS_MAX_THREADS"
    before = os.environ.get(variable)
    os.environ[variable] = "1"
    try:
        polars = rivals.find("polars")
        count = polars.thread_pool_size() if polars else 0
    finally:
        if before is None:
            del os.environ[variable]
        else:
            os.environ[variable] = before
    name = "polars, in memory"
    return (polars, name if count == 1 else f"{name}, {count} threads") if polars else None
