"""This module measures the conversion of rows to columns, and of columns to rows.

It exports one column to NumPy and four columns to Arrow, and loads those four. A library that cannot export
to Arrow itself fetches rows and makes columns from them, as a program would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from pellucid import F

from pellucid_bench.contenders.duckdb import Duck, DuckDb
from pellucid_bench.contenders.live import LiveDicts
from pellucid_bench.contenders.lmdb import LmdbJson
from pellucid_bench.contenders.pellucid import Ours, Pellucid
from pellucid_bench.contenders.polars import Frame, polars_of
from pellucid_bench.contenders.queries import InPython, InSql, Queried
from pellucid_bench.contenders.sqlite3 import SqliteColumns, SqliteJson
from pellucid_bench.contenders.stores import json_text
from pellucid_bench.measures import Target, Unit
from pellucid_bench.rivals import Rivals
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, timed
from pellucid_bench.sample_records import VARIED, Record

NUMPY = "one field of all rows, as an array of NumPy"
ARROW = "four fields of all rows, as a table of Arrow"
LOAD = "load of a table of Arrow"
TITLES = [NUMPY, ARROW, LOAD]

NAMES = ["age", "amt", "end", "nested"]
COMPARED = 100
"""How many rows of a table are compared one by one. For all rows, only the sums are compared."""


def run(run: Run, everybody: Sequence[Queried], records: Sequence[Record]) -> None:
    """Run every measure for which NumPy or Arrow is installed."""
    count = len(records)
    if run.wants(NUMPY) and (numpy := run.rivals.find("numpy")):
        run.measure(
            NUMPY,
            Unit.RATE,
            [_checked(run, one, ages(one, numpy), count, lambda array: array.tolist()) for one in everybody],
            expected=[record["age"] for record in records],
            targets=[Target(50e6)],
        )
    if not (run.wants(ARROW) or run.wants(LOAD)):
        return
    pyarrow = run.rivals.find("pyarrow")
    if pyarrow is None:
        return
    table = pyarrow.table(dict(zip(NAMES, _lists(records), strict=True)))
    run.measure(
        ARROW,
        Unit.RATE,
        [_checked(run, one, four(one, pyarrow), count, _summary) for one in everybody],
        expected=_summary(table),
        targets=[Target(10e6)],
        notes=["an int, a float, a string, and a nested string"],
    )
    if run.wants(LOAD):
        load(run, table)


def _checked(
    run: Run, one: Queried, work: Callable[[], Any], count: int, answer: Callable[[Any], object]
) -> Contender:
    contender = timed(one.name, work, count, repeat_seconds=run.pace.repeat_seconds, is_ours=one.is_ours)
    return dataclasses.replace(contender, answer=lambda: answer(work()))


def _summary(table: Any) -> object:
    """Return what tables of the same rows have in common, whatever the types of their strings."""
    sums = [sum(table[name].to_pylist()) for name in ("age", "amt")]
    return table.num_rows, sums, table.slice(0, COMPARED).to_pylist()


def _lists(records: Sequence[Record]) -> list[list[Any]]:
    return [
        [record["age"] for record in records],
        [record["amt"] for record in records],
        [record["end"] for record in records],
        [record["mydict"]["c"]["nested"] for record in records],
    ]


def ages(one: Queried, numpy: ModuleType) -> Callable[[], Any]:
    """Return a function that exports one column as an array."""
    if isinstance(one, Ours):
        return lambda: one.table.to_numpy("age")
    if isinstance(one, Duck):
        return lambda: one.execute("SELECT age FROM people").fetchnumpy()["age"]
    if isinstance(one, Frame):
        return lambda: one.frame.get_column("age").to_numpy()
    return lambda: numpy.fromiter(one.ages(), dtype="int64")


def four(one: Queried, pyarrow: ModuleType) -> Callable[[], Any]:
    """Return a function that exports four columns as a pyarrow table, under `NAMES`."""

    def of_lists(columns: Any) -> Any:
        return pyarrow.table(dict(zip(NAMES, columns, strict=True)))

    if isinstance(one, Ours):
        return lambda: pyarrow.table(one.table.select("age", "amt", "end", nested=F.mydict.c.nested))
    if isinstance(one, Frame):
        return lambda: one.frame.select(NAMES).to_arrow()
    if isinstance(one, InPython):
        return lambda: of_lists(_lists(list(one.rows())))
    if isinstance(one, Duck):
        return lambda: one.execute(f"SELECT {one.four} FROM people").to_arrow_table()
    if isinstance(one, InSql):
        return lambda: of_lists(map(list, zip(*one.fetch(f"SELECT {one.four} FROM people"), strict=True)))
    raise TypeError(f"{one.name} has no rows")


class _SqlColumns(SqliteColumns):
    """SQLite with the four columns, which it loads from lists."""

    create = "CREATE TABLE people (k INTEGER PRIMARY KEY, age INTEGER, amt REAL, last TEXT, nested TEXT)"
    insert = "INSERT INTO people VALUES (?, ?, ?, ?, ?)"

    def rows(self, records: Any) -> Iterable[tuple[object, ...]]:
        return zip(range(len(records)), *(column.to_pylist() for column in records.columns), strict=True)


class _Duck(DuckDb):
    """DuckDB, which reads Arrow directly."""

    name = "duckdb"

    def fill(self, records: Any) -> None:
        self.remove()
        self._connection = self._duckdb.connect(str(self.path))
        self._connection.execute("SET threads = 1")
        self._connection.register("incoming", records)
        self._connection.execute("CREATE TABLE people AS SELECT * FROM incoming")


class _Frame:
    """A polars DataFrame over the same memory."""

    is_ours = False

    def __init__(self, polars: Any, name: str) -> None:
        self._polars, self.name = polars, name
        self._frame: Any = None

    def fill(self, records: Any) -> None:
        self._frame = self._polars.from_arrow(records)

    def loop_sum(self) -> Callable[[], int]:
        return lambda: sum(self._frame["age"].to_list())

    def remove(self) -> None:
        self._frame = None


def loaders(rivals: Rivals, directory: Path) -> list[tuple[Any, bool]]:
    """Return empty stores whose libraries are installed, and whether their `fill` takes an Arrow table."""
    dumps = json_text(rivals)
    found: list[tuple[Any, bool]] = [(Pellucid(VARIED, directory), True), (LiveDicts(VARIED), False)]
    if modules := rivals.found(lmdb="lmdb", orjson="orjson"):
        found.append((LmdbJson(VARIED, directory, **modules), False))
    found += [
        (_SqlColumns(VARIED, directory, dumps), True),
        (SqliteJson(VARIED, directory, dumps), False),
    ]
    if duckdb := rivals.find("duckdb"):
        found.append((_Duck(VARIED, directory, duckdb, None, dumps), True))
    if polars := polars_of(rivals):
        found.append((_Frame(*polars), True))
    return found


def load(run: Run, table: Any) -> None:
    """Measure the load of an Arrow table into a new file."""
    directory = run.directory / "loaded"
    directory.mkdir()
    found = []
    everybody = loaders(run.rivals, directory)
    for store, takes_arrow in everybody:
        fill = partial(store.fill, table) if takes_arrow else partial(_fill_rows, store, table)
        contender = timed(store.name, fill, table.num_rows, before=store.remove, is_ours=store.is_ours)
        found.append(dataclasses.replace(contender, answer=partial(_filled, store, fill)))
    try:
        run.measure(
            LOAD,
            Unit.RATE,
            found,
            rounds=run.pace.bulk_rounds,
            expected=sum(table["age"].to_pylist()),
            targets=[Target(1e6)],
            notes=[
                "into a new file, with the commit; libraries without Arrow take dicts (`to_pylist`), "
                "SQLite's columns take lists; polars and the live dicts stay in memory"
            ],
        )
    finally:
        for store, _ in everybody:
            store.remove()
        directory.rmdir()


def _fill_rows(store: Any, table: Any) -> None:
    store.fill(table.to_pylist())


def _filled(store: Any, fill: Callable[[], object]) -> object:
    fill()
    return store.loop_sum()()
