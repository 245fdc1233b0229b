"""This program measures tables on a PostgreSQL server, beside pickles in bytea and beside jsonb.

    pellucid bench postgres                                # with a server of its own
    pellucid bench postgres --dsn "host=db.example"        # with yours: a schema that goes afterwards
    pellucid bench postgres --scan-gigabytes 2             # a larger table for the measure of memory

All contenders are in one process and on one server. Each first gives its answer, and these must be equal.
A row is a dict of ten dicts, 600 bytes as a pickle. On Citus, a distributed table is measured beside one that
is on the coordinator alone; with `--distributed`, all tables are distributed by their keys.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import pickle
import random
import secrets
import time
import urllib.parse
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pellucid_bench import child, server
from pellucid_bench.about import About, Setting
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.run import Run, Unavailable
from pellucid_bench.runner import Contender, WrongAnswerError, loop, timed

ABOUT = About(
    "postgres",
    "What do tables on a PostgreSQL server cost, beside pickles and jsonb?",
    "Loads, reads, changes and finds rows of ten dicts, and measures the memory of a client that scans.",
    (
        Setting("rows", 100_000, 2_000, "rows of a table"),
        Setting("update_rows", 10_000, 500, "rows changed in one transaction"),
        Setting("scan_gigabytes", 0.2, 0.003, "size of the table for the measure of memory"),
        Setting("dsn", None, None, "the server (default: PELLUCID_TEST_DSN, or one that is started)"),
        Setting("distributed", False, False, "on Citus: with distributed tables"),
    ),
    isolation="never",
)
PARTS = 10
OURS, PICKLE, JSONB, SQL = "pellucid", "psycopg, pickle in bytea", "psycopg, jsonb", "the server, jsonb"
DISTRIBUTED, ONE_SERVER = "pellucid, distributed", "pellucid, on the coordinator alone"
RANGE = 1_000
WAYS = 200
MEMORY_MAX = 100_000_000
CITIES = ("Bath", "York", "Leeds", "Hull")


def row(number: int) -> dict[str, Any]:
    """Return the row with this number: ten dicts, each with a number of its own."""
    return {
        f"part{part}": {
            "num": number * PARTS + part,
            "name": f"user {number} {part}",
            "city": CITIES[(number + part) % 4],
            "price": number / 7,
            "ok": part % 2 == 0,
        }
        for part in range(PARTS)
    }


class Place:
    """A schema of the server, with our database and the tables of the rivals, and connections to both."""

    def __init__(self, dsn: str, rows: int, *, is_distributed: bool) -> None:
        import pellucid
        import psycopg

        self.rows = rows
        self.driver = psycopg
        self.is_distributed = is_distributed
        self.schema = f"pellucid_bench_{secrets.token_hex(4)}"
        self.connection: Any = psycopg.connect(dsn, autocommit=True)
        self.connection.execute(f"CREATE SCHEMA {self.schema}")
        self.connection.execute(f"SET search_path = {self.schema}")
        self.cursor: Any = self.connection.cursor(binary=True)
        known: dict[str, Any] = {**psycopg.conninfo.conninfo_to_dict(dsn), "schema": f"{self.schema}_ours"}
        self.url = "postgresql://?" + urllib.parse.urlencode(known, quote_via=urllib.parse.quote)
        try:
            self.db: Any = pellucid.open(self.url)
        except BaseException:
            self.connection.execute(f"DROP SCHEMA {self.schema} CASCADE")
            self.connection.close()
            raise
        self.version = str(self.one("SELECT version()"))

    def close(self) -> None:
        """Drop everything."""
        self.db.close()
        for schema in (self.schema, f"{self.schema}_ours"):
            self.connection.execute("SET client_min_messages = error")
            self.connection.execute(f"DROP SCHEMA {schema} CASCADE")
        self.connection.close()

    def one(self, statement: str, given: Sequence[Any] = ()) -> Any:
        """Return the only value that a statement gives."""
        return self.cursor.execute(statement, given).fetchone()[0]

    def table(self, name: str, **options: Any) -> Any:
        """Return a table of ours, distributed if that was asked for."""
        if self.is_distributed:
            options["distributed"] = True
        return self.db.table(name, **options)

    def create(self, name: str, kind: str) -> None:
        """Create a table of a rival, distributed if ours is."""
        self.connection.execute(f"CREATE TABLE {name} (k bigint PRIMARY KEY, v {kind} NOT NULL)")
        if self.is_distributed:
            self.connection.execute(f"SELECT create_distributed_table('{name}', 'k')")

    def copy(self, name: str, kind: str, values: Iterator[Any]) -> None:
        """Load a table of a rival by COPY in the binary form."""
        with self.cursor.copy(f"COPY {name} FROM STDIN (FORMAT binary)") as copy:
            copy.set_types(["int8", kind])
            for number, value in enumerate(values):
                copy.write_row((number, value))


def load(run: Run, place: Place) -> None:
    """Measure the load of all rows, and leave the tables for the other measures."""
    rows = [row(number) for number in range(place.rows)]
    jsonb = place.driver.types.json.Jsonb

    def ours() -> float:
        if "rows" in place.db.tables():
            place.db.drop_table("rows")
        started = time.perf_counter()
        place.table("rows").extend(rows)
        return (time.perf_counter() - started) / place.rows

    def rival(name: str, kind: str, encoded: Callable[[Any], Any]) -> float:
        place.connection.execute(f"DROP TABLE IF EXISTS {name}")
        started = time.perf_counter()
        place.create(name, kind)
        place.copy(name, kind, map(encoded, rows))
        return (time.perf_counter() - started) / place.rows

    loaders = [
        Contender(OURS, ours, is_ours=True),
        Contender(PICKLE, partial(rival, "pickles", "bytea", lambda value: pickle.dumps(value, 5))),
        Contender(JSONB, partial(rival, "jsons", "jsonb", jsonb)),
    ]
    title = f"bulk load of {place.rows:,} rows"
    if not run.wants(title):
        for one in loaders:
            one.sample()
    run.measure(
        title,
        Unit.RATE,
        loaders,
        rounds=run.pace.bulk_rounds,
        targets=[Target(1.0, PICKLE), Target(1.4, JSONB)],
        notes=["the rivals by COPY in the binary form; each with the index of its keys"],
    )
    for name in ("pickles", "jsons"):
        place.connection.execute(f"ANALYZE {name}")
    counts = {len(place.db.table("rows")), place.one("SELECT count(*) FROM pickles"), place.rows}
    if len(counts) > 1:
        raise WrongAnswerError(f"the tables have {counts} rows")


def reads(run: Run, place: Place) -> None:
    """Measure the loop over all rows, and the sum of a field."""
    table, cursor = place.db.table("rows"), place.cursor
    expected = sum(number * PARTS + 3 for number in range(place.rows))
    select = "cursor.execute('SELECT v FROM {}')"
    names = {"table": table, "cursor": cursor, "loads": pickle.loads}
    own = loop("r", "table.values()", "r.part3.num", names)
    pickles = loop("(v,)", select.format("pickles"), "loads(v)['part3']['num']", names)
    jsons = loop("(v,)", select.format("jsons"), "v['part3']['num']", names)
    run.measure(
        "read all rows, and sum a nested field in Python",
        Unit.RATE,
        [
            timed(OURS, own, place.rows, is_ours=True),
            timed(PICKLE, pickles, place.rows),
            timed(JSONB, jsons, place.rows),
        ],
        expected=expected,
        targets=[Target(3, PICKLE), Target(6, JSONB)],
    )
    total = "SELECT sum((v->'part3'->>'num')::bigint)::bigint FROM jsons"
    run.measure(
        "the sum of a nested field",
        Unit.RATE,
        [
            timed(OURS, lambda: table.sum("part3.num"), place.rows, is_ours=True),
            timed(SQL, lambda: place.one(total), place.rows),
        ],
        expected=expected,
        targets=[Target(0.2, SQL)],
    )


def pushed(run: Run, place: Place) -> None:
    """Measure the sum of a field that the server computes, in a table with JSON beside the records."""
    title = "the sum of a nested field, by the server"
    if not run.wants(title):
        return
    table = place.table("queryable", queryable=True)
    table.extend(row(number) for number in range(place.rows))
    place.connection.execute(f"ANALYZE {place.schema}_ours.{table._binding.statements().layout.relation}")
    total = "SELECT sum((v->'part3'->>'num')::bigint)::bigint FROM jsons"
    run.measure(
        title,
        Unit.RATE,
        [
            timed(OURS, lambda: table.sum("part3.num"), place.rows, is_ours=True),
            timed(SQL, lambda: place.one(total), place.rows),
        ],
        expected=sum(number * PARTS + 3 for number in range(place.rows)),
        targets=[Target(0.9, SQL)],
        notes=["ours has queryable=True, and its rows have the record beside the JSON"],
    )
    place.db.drop_table("queryable")


def gets(run: Run, place: Place) -> None:
    """Measure single gets by random keys."""
    table, cursor = place.db.table("rows"), place.cursor
    wanted = random.Random(1).sample(range(place.rows), min(WAYS, place.rows))
    # append() may begin with another number; both sides read the same rows.
    first = next(iter(table))
    select = "SELECT v FROM pickles WHERE k = %s"
    same = "SELECT v FROM records WHERE k = %s"
    place.create("records", "bytea")
    import pellucid

    place.copy("records", "bytea", (pellucid.dumps(table[first + number]) for number in range(place.rows)))

    place.connection.execute("ANALYZE records")

    def ours() -> int:
        return sum(table[first + number].part3.num for number in wanted)

    def bytes_alone() -> int:
        return sum(len(cursor.execute(same, (number,), prepare=True).fetchone()[0]) > 0 for number in wanted)

    def pickles() -> int:
        found = (cursor.execute(select, (number,), prepare=True).fetchone()[0] for number in wanted)
        return sum(pickle.loads(value)["part3"]["num"] for value in found)

    if ours() != pickles() or bytes_alone() != len(wanted):
        raise WrongAnswerError("the gets differ")
    alone = "a prepared SELECT of the bytes"
    run.measure(
        "one row by its key",
        Unit.RATE,
        [
            timed(OURS, ours, len(wanted), is_ours=True, repeat_seconds=run.pace.repeat_seconds),
            timed(alone, bytes_alone, len(wanted), repeat_seconds=run.pace.repeat_seconds),
            timed(PICKLE, pickles, len(wanted), repeat_seconds=run.pace.repeat_seconds),
        ],
        targets=[Target(0.9, alone)],
        notes=["ours also reads a field; the second row fetches the bytes and no more"],
    )


def indexed(run: Run, place: Place) -> None:
    """Measure an index of a nested field: one row, and ranges."""
    from pellucid import F

    table, cursor = place.db.table("rows"), place.cursor
    table.create_index("num", F.part3.num)
    place.connection.execute("CREATE INDEX ON jsons (((v->'part3'->>'num')::bigint))")
    place.connection.execute("ANALYZE jsons")
    wanted = [
        number * PARTS + 3 for number in random.Random(2).sample(range(place.rows), min(WAYS, place.rows))
    ]
    size = min(RANGE, place.rows // 2)
    starts = [number * PARTS + 3 for number in random.Random(3).sample(range(place.rows - size), 5)]
    code = "(v->'part3'->>'num')::bigint"
    point = f"SELECT v FROM jsons WHERE {code} = %s"
    between = f"SELECT v FROM jsons WHERE {code} >= %s AND {code} < %s ORDER BY {code}"
    index = table.index("num")

    def found_by_index() -> int:
        return sum(index.get(number).part7.num for number in wanted)

    def found_by_query() -> int:
        return sum(table.where(F.part3.num == number).first().part7.num for number in wanted)

    def found_in_json() -> int:
        found = (cursor.execute(point, (number,), prepare=True).fetchone()[0] for number in wanted)
        return sum(value["part7"]["num"] for value in found)

    def range_of_ours() -> int:
        ranges = (index.range(start=start, stop=start + size * PARTS) for start in starts)
        return sum(one.part7.num for found in ranges for one in found)

    def range_of_json() -> int:
        total = 0
        for start in starts:
            given = (start, start + size * PARTS)
            total += sum(v["part7"]["num"] for (v,) in cursor.execute(between, given, prepare=True))
        return total

    repeat = run.pace.repeat_seconds
    run.measure(
        "one row by an index of a nested field",
        Unit.RATE,
        [
            timed(OURS, found_by_index, len(wanted), is_ours=True, repeat_seconds=repeat),
            timed("pellucid, where()", found_by_query, len(wanted), is_ours=True, repeat_seconds=repeat),
            timed(JSONB, found_in_json, len(wanted), repeat_seconds=repeat, like=OURS),
        ],
        expected=sum(number + 4 for number in wanted),
        targets=[Target(1.0, JSONB)],
    )
    run.measure(
        f"a range of {size:,} rows by that index",
        Unit.RATE,
        [
            timed(OURS, range_of_ours, len(starts), is_ours=True, repeat_seconds=repeat),
            timed(JSONB, range_of_json, len(starts), repeat_seconds=repeat),
        ],
        expected=sum(start + number * PARTS + 4 for start in starts for number in range(size)),
        targets=[Target(3.0, JSONB)],
    )
    table.drop_index("num")


def updates(run: Run, place: Place) -> None:
    """Measure one field of many rows, set in one transaction."""
    table, cursor = place.db.table("rows"), place.cursor
    count = min(run.settings.update_rows, place.rows)
    first = next(iter(table))
    numbers = random.Random(4).sample(range(place.rows), count)
    records: list[Any] = []
    round_of = {OURS: 0, PICKLE: 0}

    def fetch() -> None:
        records[:] = [table[first + number] for number in numbers]
        round_of[OURS] += 1

    def ours() -> None:
        mark = round_of[OURS]
        with place.db.transaction():
            for record in records:
                record.part3.num = mark

    def pickles() -> None:
        round_of[PICKLE] += 1
        mark = round_of[PICKLE]
        with place.connection.transaction():
            for number in numbers:
                select = "SELECT v FROM pickles WHERE k = %s"
                value = pickle.loads(cursor.execute(select, (number,), prepare=True).fetchone()[0])
                value["part3"]["num"] = mark
                given = (pickle.dumps(value, 5), number)
                cursor.execute("UPDATE pickles SET v = %b WHERE k = %s", given, prepare=True)

    title = f"set a field of {count:,} rows in one transaction"
    if not run.wants(title):
        return
    fetch()
    run.measure(
        title,
        Unit.RATE,
        [
            timed(OURS, ours, count, before=fetch, is_ours=True),
            timed(PICKLE, pickles, count),
        ],
        rounds=run.pace.bulk_rounds,
        targets=[Target(20_000), Target(3, PICKLE)],
        notes=["the rows of ours were read before; the rival: SELECT, loads, dumps, UPDATE"],
    )
    for record in (table[first + number] for number in numbers):
        if record.part3.num != round_of[OURS]:
            raise WrongAnswerError("a field was not stored")


def loops(run: Run, place: Place) -> None:
    """Measure a plain loop over keys that reads each row and sets a field of it, in one transaction."""
    table = place.db.table("rows")
    keys = list(itertools.islice(table, min(run.settings.update_rows, place.rows)))
    marks = itertools.count(1)

    def ours() -> None:
        mark = next(marks)
        with place.db.transaction():
            for key in keys:
                table[key].part3.num = mark

    def answer() -> int:
        ours()
        return len({table[key].part3.num for key in keys[:: max(1, len(keys) // 100)]})

    loop = dataclasses.replace(timed(OURS, ours, len(keys), is_ours=True), answer=answer)
    run.measure(
        f"for key in keys: t[key].part3.num = x, {len(keys):,} keys in one transaction",
        Unit.RATE,
        [loop],
        rounds=run.pace.bulk_rounds,
        expected=1,
        targets=[Target(20_000)],
        notes=["the keys come in their order; each row is read, and nothing was read before"],
    )


def many_servers(run: Run, place: Place) -> None:
    """Measure a table that Citus distributes over several servers, beside one on the coordinator alone."""
    size = min(RANGE, place.rows // 2)
    load_title = f"Citus: bulk load of {place.rows:,} rows"
    titles = {
        "get": "Citus: one row by its key",
        "range": f"Citus: a range of {size:,} rows by their keys",
        "sum": "Citus: the sum of a nested field",
    }
    if place.is_distributed or not any(map(run.wants, (load_title, *titles.values()))):
        return
    if not place.db._connection.catalog.has_citus:
        why = "the server has no Citus: name one that has with --dsn"
        for title in filter(run.wants, (load_title, *titles.values())):
            run.add(Measure(title, Unit.RATE, [Result(DISTRIBUTED, is_ours=True, left_out=why)]))
        return
    rows = [row(number) for number in range(place.rows)]
    names = {DISTRIBUTED: "distributed", ONE_SERVER: "single"}

    def loaded(name: str) -> float:
        if names[name] in place.db.tables():
            place.db.drop_table(names[name])
        table = place.db.table(names[name], distributed=name == DISTRIBUTED)
        started = time.perf_counter()
        table.extend(rows)
        return (time.perf_counter() - started) / place.rows

    loaders = [Contender(name, partial(loaded, name), is_ours=name == DISTRIBUTED) for name in names]
    if not run.wants(load_title):
        for one in loaders:
            one.sample()
    run.measure(load_title, Unit.RATE, loaders, rounds=run.pace.bulk_rounds)
    wanted = random.Random(5).sample(range(place.rows), min(WAYS, place.rows))
    starts = random.Random(6).sample(range(place.rows - size), 5)

    def get(table: Any, first: int) -> int:
        return sum(table[first + number].part3.num for number in wanted)

    def ranges(table: Any, first: int) -> int:
        found = (table.range(first + start, first + start + size) for start in starts)
        return sum(one.part7.num for some in found for one in some)

    def total(table: Any, _first: int) -> int:
        return int(table.sum("part3.num"))

    works: dict[str, tuple[Callable[[Any, int], int], int]] = {
        "get": (get, len(wanted)),
        "range": (ranges, len(starts)),
        "sum": (total, place.rows),
    }
    for kind, (work, count) in works.items():
        contenders = []
        for name, own in names.items():
            table = place.db.table(own)
            call = partial(work, table, next(iter(table)))
            is_ours = name == DISTRIBUTED
            contenders.append(
                timed(name, call, count, is_ours=is_ours, repeat_seconds=run.pace.repeat_seconds)
            )
        run.measure(titles[kind], Unit.RATE, contenders)
    for own in names.values():
        place.db.drop_table(own)


def memory(run: Run, place: Place) -> None:
    """Measure the memory of the client while it scans a table that is larger than what it may need."""
    title = f"anonymous memory of a client that scans {run.settings.scan_gigabytes:g} GB"
    if not run.wants(title) or child.anonymous_memory() is None:
        return
    run.pace.on_progress(title)
    table = place.db.table("people")
    filler = "x" * 9_000
    count = max(10, round(run.settings.scan_gigabytes * 1e9) // len(filler))
    for start in range(0, count, 10_000):
        table.extend({"num": number, "text": filler} for number in range(start, min(count, start + 10_000)))
    found = child.run("scan", place.url, "num", "loop")
    if found["total"] != count * (count - 1) // 2:
        raise WrongAnswerError(f"the scan read {found}")
    result = Result(OURS, is_ours=True, costs=[found["peak"]])
    run.add(Measure(title, Unit.BYTES, [result], [Target(MEMORY_MAX)]))


def run(run: Run) -> None:
    """Run every measure on a server."""
    settings = run.settings
    if run.rivals.find("psycopg") is None:
        raise Unavailable("this needs psycopg: pip install 'pellucid[postgres]'")
    run.pace.on_progress("start the server")
    with server.running(settings.dsn or os.environ.get("PELLUCID_TEST_DSN")) as dsn:
        place = Place(dsn, settings.rows, is_distributed=settings.distributed)
        run.rivals.versions["PostgreSQL"] = place.version.split(" on ")[0].removeprefix("PostgreSQL ")
        try:
            for part in (load, reads, pushed, gets, indexed, updates, loops, many_servers, memory):
                part(run, place)
        finally:
            place.close()
