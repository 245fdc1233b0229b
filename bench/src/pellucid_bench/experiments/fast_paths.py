"""This experiment measures what programs do beside the plain forms: nested fields, indexed writes, queues.

Each measure has a plain form beside it, ours or that of another library: the same field at the root, a table
without an index, sqlite3, msgspec. `fast_queues.py` has the queues.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pellucid
from pellucid import F, count

from pellucid_bench.about import About, Setting
from pellucid_bench.experiments import fast_queues, indexes
from pellucid_bench.measures import Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, statement, timed

ABOUT = About(
    "fast-paths",
    "What do nested fields, indexed writes, ranges of an index, small dumps and queues cost?",
    "Sums and counts nested fields, appends to and changes rows of tables with indexes, loops over ranges of "
    "an index, encodes one dict and a hundred, and uses a table as a queue.",
    (
        Setting("rows", (300_000, 10_000_000), (2_000,), "rows of the tables with nested fields"),
        Setting("indexed", 1_000_000, 3_000, "rows of the table whose index is read"),
        Setting("commits", 20_000, 50, "rows that are appended or changed, each with a commit"),
        Setting("items", (1_000, 1_000_000), (100,), "items that wait in a queue"),
    ),
)

SHAPES = {"uniform": 1, "64 shapes": 64}
SUM = "sum of an int, {rows:,} rows, {shapes}"
COUNT = "count by a string, {rows:,} rows, {shapes}"
APPEND = "append a row to a table with indexes"
CHANGE = "rec.age = x in a table with indexes"
RANGES = {
    "age": "loop over 1,000 rows of an index range, one field of each",
    "n": "the same for rows that are next to each other",
}
DUMPS = {1: "dumps of one nested dict", 100: "dumps of 100 nested dicts"}
TITLES = [APPEND, CHANGE, *RANGES.values(), *DUMPS.values()]

FLAT, NESTED, DEEP = "pellucid, flat", "pellucid, one level down", "pellucid, three levels down"
PATHS: dict[str, Any] = {FLAT: "{}", NESTED: "address.{}", DEEP: "address.region.place.{}"}
ZIPS, CITIES, AGES = 90_000, 97, 1_000
CHANGED = 10_000
"""Rows whose field is changed, again and again."""

Row = dict[str, Any]


def run(run: Run) -> None:
    """Run every measure."""
    pellucid.set_threads(1)
    try:
        for rows, shapes in itertools.product(run.settings.rows, SHAPES):
            nested(run, rows, shapes)
    finally:
        pellucid.set_threads(None)
    rows = indexes.rows_of(max(run.settings.commits, CHANGED))
    appends(run, rows[: run.settings.commits])
    changes(run, rows[:CHANGED])
    ranges(run)
    dumps(run)
    fast_queues.run(run)


def nested_rows(rows: int, shapes: int) -> Iterator[Row]:
    """Make rows that have an int and a string at the root, one level down, and three levels down.

    Rows of many shapes have up to six more fields in front, at the root and one level down.
    """
    for number in range(rows):
        bits = number % shapes
        more = {f"more{bit}": number for bit in range(6) if bits >> bit & 1}
        plain = {"zip": number % ZIPS, "city": f"City {number % CITIES}"}
        place = {"region": {"name": "North", "place": {"code": 7, **plain}}}
        yield {**more, "id": number, **plain, "address": {**more, "street": "High Street", **plain, **place}}


def nested(run: Run, rows: int, shapes: str) -> None:
    """Measure the sum and the count of a field, by its depth."""
    total, counted = SUM.format(rows=rows, shapes=shapes), COUNT.format(rows=rows, shapes=shapes)
    if not (run.wants(total) or run.wants(counted)):
        return
    run.pace.on_progress(f"load {rows:,} rows, {shapes}")
    path = run.directory / "nested.pel"
    with pellucid.open(path) as database:
        database.table("rows").extend(nested_rows(rows, SHAPES[shapes]))
    factor = 1.3 if SHAPES[shapes] == 1 else 2.0
    others = [] if SHAPES[shapes] > 1 else duckdb(run, rows)
    with pellucid.open(path) as database:
        table = database.table("rows")
        ours = [(name, partial(table.sum, path.format("zip"))) for name, path in PATHS.items()]
        measured = partial(timed, repeat_seconds=run.pace.repeat_seconds)
        run.measure(
            total,
            Unit.TIME,
            [
                *(measured(name, work, rows, is_ours=True) for name, work in ours),
                *(measured(name, work, rows) for name, work in others),
            ],
            expected=sum(number % ZIPS for number in range(rows)),
            targets=[Target(1 / factor, FLAT, NESTED), Target(1 / factor, FLAT, DEEP)],
            notes=["each row; DuckDB on one thread, with a column of structs and one of variants"],
            group=f"sum-{shapes}",
            size=rows,
            size_unit="rows",
        )
        run.measure(
            counted,
            Unit.TIME,
            [
                measured(name, partial(by_city, table, path.format("city")), rows, is_ours=True)
                for name, path in PATHS.items()
            ],
            expected=[
                {"city": f"City {city}", "n": len(range(city, rows, CITIES))}
                for city in sorted(range(CITIES), key=lambda city: f"City {city}")
            ],
            targets=[Target(1 / 1.3, NESTED, DEEP)],
            notes=["each row, in 97 groups"],
            group=f"count-{shapes}",
            size=rows,
            size_unit="rows",
        )
    path.unlink()


def by_city(table: Any, path: str) -> list[Row]:
    """Return how many rows each city has, sorted by the city."""
    found: list[Row] = table.group_by(city=path).agg(n=count())
    return sorted(found, key=lambda group: str(group["city"]))


def duckdb(run: Run, rows: int) -> list[tuple[str, Callable[[], int]]]:
    """Return the sums of DuckDB: over a column, a field of structs, and a field of variants."""
    module = run.rivals.find("duckdb")
    if module is None:
        return []
    connection = module.connect()
    connection.execute("SET threads = 1")
    inner = f"{{'street': 'High Street', 'zip': i % {ZIPS}, 'city': 'City ' || i % {CITIES}}}"
    connection.execute(
        f"CREATE TABLE rows AS SELECT i % {ZIPS} AS zip, {inner} AS address, {inner}::VARIANT AS loose "
        f"FROM range({rows}) AS numbers(i)"
    )

    def ask(expression: str) -> int:
        return int(connection.execute(f"SELECT sum({expression}) FROM rows").fetchone()[0])

    return [
        ("duckdb, flat", partial(ask, "zip")),
        ("duckdb, STRUCT", partial(ask, "address.zip")),
        ("duckdb, VARIANT", partial(ask, "loose.zip::BIGINT")),
    ]


class Unsynced(indexes.Sqlite):
    """sqlite3 that never waits for the disk."""

    synchronous = "OFF"


def appends(run: Run, rows: Sequence[Row]) -> None:
    """Measure appends to tables with indexes."""
    none, one, three = "pellucid, none", "pellucid, one", "pellucid, three"
    indexes.writes(
        run,
        APPEND,
        rows,
        ("none", "one", "three"),
        [Target(1 / 2.5, none, one), Target(1 / 5, none, three), Target(5, "sqlite3, three", three)],
        "append",
        everybody=[indexes.Ours, Unsynced],
    )


def changes(run: Run, rows: Sequence[Row]) -> None:
    """Measure changes of an indexed field of records at hand, each with a commit."""
    if not run.wants(CHANGE):
        return
    tables: list[indexes.Ours] = []
    contenders: list[Contender] = []
    for kind in ("none", "one", "three"):
        filled = indexes.Ours(run.directory, kind)
        filled.extend(rows)
        tables.append(filled)
        chosen = random.Random(6).choices(list(filled.table.values()), k=run.settings.commits)
        work = partial(set_ages, chosen, itertools.count())
        contenders.append(timed(f"pellucid, {kind}", work, len(chosen), is_ours=True))
    none = contenders[0].name
    run.measure(
        CHANGE,
        Unit.RATE,
        contenders,
        targets=[Target(1 / 2, none, "pellucid, one"), Target(1 / 3, none, "pellucid, three")],
        notes=["one of the indexes has the field, and its entry changes each time"],
    )
    for filled in tables:
        filled.remove()


def set_ages(records: Sequence[Any], numbers: Iterator[int]) -> None:
    """Set the field of each record to another number than before."""
    for record, number in zip(records, numbers, strict=False):
        record.age = number % AGES


def ranges(run: Run) -> None:
    """Measure loops over the rows of a range: of ages, which are scattered, and of numbers in order."""
    if not any(map(run.wants, RANGES.values())):
        return
    rows = indexes.rows_of(run.settings.indexed)
    ages = max(1, 1_000 * AGES // len(rows))
    stores: list[Any] = [indexes.Ours(run.directory, "ranges"), Unsynced(run.directory, "ranges")]
    for filled in stores:
        filled.extend(rows)
        filled.size()
    read = partial(timed, repeat_seconds=run.pace.repeat_seconds)
    for (field, title), (start, stop) in zip(
        RANGES.items(), [(0, ages), (len(rows) // 2, len(rows) // 2 + 1_000)], strict=True
    ):
        index = stores[0].table.index(field)
        query = stores[0].table.where(F[field] >= start, F[field] < stop)
        ours, queried, theirs = loops(index, query, stores[1].connection, field, (start, stop))
        run.measure(
            title,
            Unit.TIME,
            [
                read("pellucid", ours, 1, is_ours=True),
                read("pellucid, a query", queried, 1, is_ours=True),
                read("sqlite3", theirs, 1),
            ],
            expected=sum(len(row["city"]) for row in rows if start <= row[field] < stop),
            targets=[Target(2, "sqlite3"), Target(2, "sqlite3", "pellucid, a query")],
            notes=[f"of {len(rows):,} rows; the field is in no index"],
        )
    for filled in stores:
        filled.remove()


def loops(
    index: Any, query: Any, connection: Any, field: str, bounds: tuple[int, int]
) -> tuple[Callable[[], int], Callable[[], int], Callable[[], int]]:
    """Return the loops over an index, a query and a statement of SQL."""
    line = f"SELECT city FROM rows WHERE {field} >= ? AND {field} < ?"
    return (
        lambda: sum([len(row.city) for row in index.range(*bounds)]),
        lambda: sum([len(row.city) for row in query]),
        lambda: sum([len(city) for (city,) in connection.execute(line, bounds)]),
    )


def small(number: int) -> Row:
    """Make a dict with dicts and a list of strings in it."""
    return {
        "id": number,
        "name": f"user {number}",
        "age": number % 90,
        "tags": ["red", "green", "blue"],
        "address": {"zip": number % ZIPS, "city": f"City {number % CITIES}", "place": {"x": 1.5, "y": 2.5}},
    }


def dumps(run: Run) -> None:
    """Measure the encoding of one dict, and of a list of a hundred."""
    for amount, title in DUMPS.items():
        if not run.wants(title):
            continue
        value: Any = small(7) if amount == 1 else [small(number) for number in range(amount)]
        contenders = [one_call("pellucid", pellucid.dumps, value, run, is_ours=True)]
        if run.rivals.find("msgspec"):
            import msgspec.msgpack

            encode = msgspec.msgpack.Encoder().encode
            contenders.append(one_call("msgspec msgpack", encode, value, run))
        target = Target(0.9 if amount == 1 else 1.0, "msgspec msgpack")
        run.measure(title, Unit.TIME, contenders, targets=[target])


def one_call(
    name: str, call: Callable[[Any], bytes], value: object, run: Run, *, is_ours: bool = False
) -> Contender:
    """Make a contender of one call of a function, timed as `timeit` does it."""
    names = {"call": call, "value": value}
    return statement(name, "call(value)", names, run.pace, is_ours=is_ours)
