"""How does each rival say the same query, in the way that is quickest for it?

Everybody holds the rows of the *varied* population and answers the same questions; the answer to each is
plain Python, the same for all. Who has columns has one for each field that is asked for, the nested one too,
and the rest of the record as JSON beside them.
"""

# ruff: noqa: D102 (what the methods promise stands once, at `Queried`)

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
from pellucid.bench.populations import VARIED, Record
from pellucid.bench.rivals import Rivals
from pellucid.bench.stores import InFile, LiveDicts, LmdbJson, Pellucid, SqliteColumns, SqliteJson, json_text

ABOVE = 50
"""About half of the rows are older."""
FROM = 75
"""One row in ten is as old, or older."""
PREFIX = "this"
"""One row in eight has a nested string that begins so."""
TOP = 10

Groups = list[tuple[str, float, float]]


class Queried(Protocol):
    """What the measures ask."""

    name: str
    is_ours: bool

    def fill(self, records: Sequence[Record]) -> None:
        """Start anew and store `records`."""

    def count_above(self) -> int:
        """How many rows have an `age` above `ABOVE`."""

    def count_prefix(self) -> int:
        """How many rows have a string in `mydict.c.nested` that begins with `PREFIX`."""

    def groups(self) -> Groups:
        """The sum of `amt` and the mean of `age` for each `end`, in its order."""

    def top(self) -> list[float]:
        """The `amt` of the `TOP` rows with the greatest one; it is rows that are fetched."""

    def add_matches(self) -> float:
        """The sum of `amt` over the rows with an `age` from `FROM` on, added up in a Python loop."""

    def ages(self) -> list[int]:
        """The `age` of each row."""

    def grow_older(self) -> None:
        """Add 1 to the `age` of each row, in one transaction."""

    def remove(self) -> None:
        """Close, and delete the file."""


class Ours(Pellucid):
    """Us; the file is opened anew after it was filled, so that nothing waits in the log."""

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
        """Inside a transaction that has changed a row, and is dropped: its queries see the change."""
        with contextlib.suppress(_DroppedError), self.database.transaction():
            next(iter(self.table.values())).name = "Fred"
            yield
            raise _DroppedError


class _DroppedError(Exception):
    """Ends a transaction without a commit."""


@contextlib.contextmanager
def threads(count: int) -> Iterator[None]:
    """Inside it our queries run on so many threads."""
    pellucid.set_threads(count)
    try:
        yield
    finally:
        pellucid.set_threads(1)


class InPython:
    """Questions about dicts, one after the other, in Python."""

    def rows(self) -> Iterable[Record]:
        """All rows as dicts."""
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
    """The yardstick: dicts in a list, nothing stored and nothing to decode."""

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
    """Questions in SQL, about columns or what stands for them."""

    age, amt, end, nested = "age", "amt", "last", "nested"
    begins = f"GLOB '{PREFIX}*'"
    """`LIKE` would not look at the case with SQLite."""
    change = "UPDATE people SET age = age + 1"

    @property
    def four(self) -> str:
        """The list of four columns, under the names that they have in a record."""
        return f'{self.age} AS age, {self.amt} AS amt, {self.end} AS "end", {self.nested} AS nested'

    def fetch(self, line: str) -> Iterable[tuple[Any, ...]]:
        """The rows of a statement."""
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
    """DuckDB with the same columns in a file of its own, loaded from CSV; one thread, as everybody."""

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
        """What a statement gives, to be fetched."""
        return self._connection.execute(line)

    def fetch(self, line: str) -> Iterable[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.execute(line).fetchall()
        return found

    @contextlib.contextmanager
    def threads(self, count: int) -> Iterator[None]:
        """Inside it DuckDB runs on so many threads."""
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
    """A DataFrame of polars in memory, with the same columns."""

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
    """Cut records into columns: what is asked for, and the rest as JSON."""
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
    """Everybody whose packages are installed, ours first; each on one thread."""
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
    """Import polars on one thread, and under the name that it has in the measures.

    It asks the environment once how many threads there shall be; if it was imported before, they are there,
    and its name says so.
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
