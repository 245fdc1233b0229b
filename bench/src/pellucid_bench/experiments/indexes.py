"""This module measures what indexes cost for writes and gain for reads, in pellucid and in sqlite3.

Rows have four fields. `name` is different in each row, `age` has a thousand values, and `city` a hundred.
*Three* are indexes over these, *one* is that over `age`, *ranges* are over `age` and `n`. *Computed* is one
index over `name` in lower case. sqlite3 stores the same rows in columns, in WAL mode and without a sync for
each commit.
"""

# ruff: noqa: D102 (the names of the methods say what they do)

from __future__ import annotations

import itertools
import random
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pellucid
from pellucid import F

from pellucid_bench.measures import Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, timed

EXTEND = "extend a table that has indexes"
APPEND = "append single rows to a table that has indexes"
GET = "a row by a value, {rows:,} rows"
FIND = "the only row of a query for a value, {rows:,} rows"
RANGE = "1,000 rows by a range of values, one field of each"
BUILD = "make an index over a table"
SIZE = "bytes of one index, a row"
SMALL = 10_000
TITLES = [EXTEND, APPEND, RANGE, BUILD, SIZE]

Row = dict[str, Any]
KINDS: dict[str, dict[str, tuple[Any, str]]] = {
    "none": {},
    "one": {"age": (F.age, "age")},
    "three": {"name": (F.name, "name"), "age": (F.age, "age"), "city": (F.city, "city")},
    "ranges": {"age": (F.age, "age"), "n": (F.n, "n")},
    "computed": {"lower": (F.name.lower(), "lower(name)")},
}
# Rows a second, for each kind of indexes.
EXTENDED = {"none": 700_000, "three": 350_000, "computed": 500_000}
APPENDED = {"none": 500_000, "three": 150_000, "computed": 250_000}


def rows_of(count: int) -> list[Row]:
    """Make rows whose names are in random order."""
    return [
        {
            "name": f"Name {number * 7919 % count}",
            "age": number % 1000,
            "city": f"City {number % 97}",
            "n": number,
        }
        for number in range(count)
    ]


class Ours:
    """pellucid, in a new file."""

    name = "pellucid"

    def __init__(self, directory: Path, kind: str) -> None:
        self.path = directory / f"indexed-{next(_NUMBERS)}.pel"
        self.database = pellucid.open(self.path)
        self.table = self.database.table("rows")
        for name, (parts, _) in KINDS[kind].items():
            self.table.create_index(name, parts)

    def extend(self, rows: Sequence[Row]) -> None:
        self.table.extend(rows)

    def append(self, rows: Sequence[Row]) -> None:
        append = self.table.append
        for row in rows:
            append(row)

    def getter(self, names: Sequence[str]) -> Callable[[], int]:
        get: Callable[[str], Any] = self.table.index("name").get
        return lambda: sum([get(name).n for name in names])

    def finder(self, names: Sequence[str]) -> Callable[[], int]:
        find = self.table.find
        return lambda: sum([find(name=name).one().n for name in names])

    def make(self, kind: str) -> None:
        for name, (parts, _) in KINDS[kind].items():
            self.table.create_index(name, parts)

    def size(self) -> int:
        self.database.close()
        size = self.path.stat().st_size
        self.database = pellucid.open(self.path)
        self.table = self.database.table("rows")
        return size

    def remove(self) -> None:
        self.database.close()
        self.path.unlink()


class Sqlite:
    """The same in sqlite3."""

    name = "sqlite3"
    columns = ("name", "age", "city", "n")
    synchronous = "NORMAL"

    def __init__(self, directory: Path, kind: str) -> None:
        self.path = directory / f"indexed-{next(_NUMBERS)}.sqlite"
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        self.connection.execute("CREATE TABLE rows (id INTEGER PRIMARY KEY, name, age, city, n)")
        self.make(kind)

    def make(self, kind: str) -> None:
        for name, (_, column) in KINDS[kind].items():
            self.connection.execute(f"CREATE INDEX by_{name} ON rows ({column})")

    def extend(self, rows: Sequence[Row]) -> None:
        self.connection.execute("BEGIN")
        values = ([row[column] for column in self.columns] for row in rows)
        self.connection.executemany("INSERT INTO rows (name, age, city, n) VALUES (?, ?, ?, ?)", values)
        self.connection.execute("COMMIT")

    def append(self, rows: Sequence[Row]) -> None:
        execute = self.connection.execute
        for row in rows:
            values = [row[column] for column in self.columns]
            execute("INSERT INTO rows (name, age, city, n) VALUES (?, ?, ?, ?)", values)

    def getter(self, names: Sequence[str]) -> Callable[[], int]:
        execute = self.connection.execute
        statement = "SELECT n FROM rows WHERE name = ? LIMIT 1"
        return lambda: sum([execute(statement, (name,)).fetchone()[0] for name in names])

    def finder(self, names: Sequence[str]) -> Callable[[], int]:
        execute = self.connection.execute
        # Ask for two rows, to know that there is only one.
        statement = "SELECT n FROM rows WHERE name = ? LIMIT 2"

        def only(name: str) -> int:
            [[number]] = execute(statement, (name,)).fetchall()
            return int(number)

        return lambda: sum([only(name) for name in names])

    def size(self) -> int:
        self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return self.path.stat().st_size

    def remove(self) -> None:
        self.connection.close()
        for path in self.path.parent.glob(self.path.name + "*"):
            path.unlink()


_NUMBERS = itertools.count()
EVERYBODY: list[type[Ours] | type[Sqlite]] = [Ours, Sqlite]


def run(run: Run) -> None:
    """Run every measure."""
    of_rows = [title.format(rows=run.settings.rows) for title in (GET, FIND)]
    if not any(map(run.wants, [*TITLES, *of_rows])):
        return
    run.pace.on_progress(f"make {run.settings.rows:,} dicts")
    rows = rows_of(run.settings.rows)
    writes(run, EXTEND, rows, EXTENDED, _rates(EXTENDED), "extend")
    writes(run, APPEND, rows[: run.settings.commits], APPENDED, _rates(APPENDED), "append")
    builds(run, rows)
    reads(run, rows[: min(SMALL, len(rows))], is_small=True)
    reads(run, rows, is_small=False)


def _rates(wanted: dict[str, int]) -> list[Target]:
    return [Target(rate, ours=f"{Ours.name}, {kind}") for kind, rate in wanted.items()]


def writes(
    run: Run,
    title: str,
    rows: Sequence[Row],
    kinds: Iterable[str],
    targets: Sequence[Target],
    method: str,
    *,
    everybody: Sequence[type[Ours] | type[Sqlite]] = EVERYBODY,
) -> None:
    """Measure writes of the same rows into a new table, with each kind of indexes."""
    if not run.wants(title):
        return
    contenders = []
    for kind in kinds:
        ours = ""
        for store in everybody:
            name = f"{store.name}, {kind}"
            contenders.append(_into_new(run, store, kind, method, rows, name, ours))
            ours = ours or name
    run.measure(title, Unit.RATE, contenders, rounds=run.pace.bulk_rounds, targets=targets)


def _into_new(
    run: Run, store: Any, kind: str, method: str, rows: Sequence[Row], name: str, like: str
) -> Contender:
    made: list[Any] = []
    return timed(
        name,
        lambda: getattr(made[0], method)(rows),
        len(rows),
        before=lambda: made.append(store(run.directory, kind)),
        after=lambda: made.pop().remove(),
        is_ours=store is Ours,
        like=like,
    )


def builds(run: Run, rows: Sequence[Row]) -> None:
    """Measure the creation of an index over existing rows, and its size in the file."""
    if not (run.wants(BUILD) or run.wants(SIZE)):
        return
    contenders, sizes = [], []
    for store in EVERYBODY:
        filled: Any = store(run.directory, "none")
        filled.extend(rows)
        filled.size()

        def drop(filled: Any = filled) -> None:
            if isinstance(filled, Ours):
                filled.table.drop_index("lower")
            else:
                filled.connection.execute("DROP INDEX by_lower")

        make = timed(
            store.name,
            partial(filled.make, "computed"),
            len(rows),
            after=drop,
            is_ours=store is Ours,
        )
        contenders.append(make)
        sizes.append((store, filled))
    run.measure(BUILD, Unit.RATE, contenders, rounds=run.pace.bulk_rounds, targets=[Target(1e6)])
    if run.wants(SIZE):
        run.measure(SIZE, Unit.BYTES, [_size(run, store, rows) for store, _ in sizes], rounds=1)
    for _, filled in sizes:
        filled.remove()


def _size(run: Run, store: Any, rows: Sequence[Row]) -> Contender:
    def sample() -> float:
        sizes: list[int] = []
        for kind in ("none", "three"):
            filled = store(run.directory, kind)
            filled.extend(rows)
            sizes.append(filled.size())
            filled.remove()
        return (sizes[1] - sizes[0]) / 3 / len(rows)

    return Contender(store.name, sample, is_ours=store is Ours)


def reads(run: Run, rows: Sequence[Row], *, is_small: bool) -> None:
    """Measure reads of rows by values in random order."""
    title, find = GET.format(rows=len(rows)), FIND.format(rows=len(rows))
    if not any(map(run.wants, [title] if is_small else [title, find, RANGE])):
        return
    asked = random.Random(7).sample(rows, min(SMALL, len(rows)))
    names, expected = [row["name"] for row in asked], sum(row["n"] for row in asked)
    stores: list[Any] = []
    for store in EVERYBODY:
        filled: Any = store(run.directory, "three")
        filled.extend(rows)
        filled.size()
        stores.append(filled)

    read = partial(timed, repeat_seconds=run.pace.repeat_seconds)

    def contenders(method: str) -> list[Contender]:
        work = [(filled, getattr(filled, method)(names)) for filled in stores]
        return [read(one.name, call, len(names), is_ours=isinstance(one, Ours)) for one, call in work]

    targets = [Target(1.5e-6 if is_small else 3e-6), Target(2, "sqlite3")]
    run.measure(title, Unit.TIME, contenders("getter"), expected=expected, targets=targets)
    if not is_small:
        run.measure(find, Unit.TIME, contenders("finder"), expected=expected, targets=[Target(8e-6)])
    if not is_small:
        ranges(run, stores, rows)
    for filled in stores:
        filled.remove()


def ranges(run: Run, stores: Sequence[Any], rows: Sequence[Row]) -> None:
    """Measure reads of a range of ages that has about 1,000 rows, in several ways."""
    count = max(1, 1000 * 1000 // len(rows))
    expected = sum(row["age"] for row in rows if row["age"] < count)
    ours, theirs = stores[0].table.index("age"), stores[1].connection
    query = stores[0].table.where(F.age >= 0, F.age < count)
    statement = "SELECT age{} FROM rows WHERE age >= 0 AND age < ?"
    read = partial(timed, repeat_seconds=run.pace.repeat_seconds)
    contenders = [
        read("pellucid, rows", lambda: sum([row.age for row in ours.range(0, count)]), 1, is_ours=True),
        # A list of the values, as fetchall() returns it. Both sides read only an index that has these values.
        read("pellucid, index", lambda: sum(query.column("age")), 1, is_ours=True),
        read("pellucid, keys", lambda: sum([age for age, _ in ours.keys(0, count)]), 1, is_ours=True),
        read(
            "sqlite3, rows",
            lambda: sum([row[0] for row in theirs.execute(statement.format(", name"), (count,))]),
            1,
        ),
        read(
            "sqlite3, index",
            lambda: sum([row[0] for row in theirs.execute(statement.format(""), (count,)).fetchall()]),
            1,
            like="pellucid, index",
        ),
        read(
            "sqlite3, keys",
            lambda: sum([age for age, _ in theirs.execute(statement.format(", id"), (count,))]),
            1,
            like="pellucid, keys",
        ),
    ]
    targets = [Target(1.5, "sqlite3, rows"), Target(4, "sqlite3, index", ours="pellucid, index")]
    run.measure(RANGE, Unit.TIME, contenders, expected=expected, targets=targets)
