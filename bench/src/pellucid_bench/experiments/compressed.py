"""This experiment measures compressed tables: rows that are alike, beside plain tables and JSON in zlib.

Each store is filled, closed and opened again before it is weighed and read: pellucid compresses rows when it
moves them from its log into the file.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pellucid

from pellucid_bench.about import About, Setting
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.rivals import Rivals
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, loop, statement, timed

ABOUT = About(
    "compressed",
    "What do compressed rows save, and what do they cost?",
    "Loads, weighs, gets and scans lines of a log, in plain and in compressed tables, and as JSON in zlib.",
    (Setting("rows", 200_000, 1_000, "rows of a table"),),
)
KEYS = 200
"""Rows that are read by their keys in one sample."""
LEVEL = 6
PATHS = ("/", "/cart", "/login", "/search", "/static/site.css", "/api/v1/items")


def row(number: int) -> dict[str, Any]:
    """Return one line of a log."""
    chance = random.Random(number)
    return {
        "time": f"2026-11-{number % 30 + 1:02}T{number % 24:02}:{number % 60:02}:{chance.randrange(60):02}Z",
        "host": f"web-{number % 12:02}.example",
        "method": chance.choice(["GET", "GET", "GET", "POST"]),
        "path": chance.choice(PATHS),
        "status": chance.choice([200, 200, 200, 304, 404]),
        "size": chance.randrange(20_000),
        "agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    }


class Store:
    """One library with one way to keep rows, in a folder of its own."""

    def __init__(self, name: str, folder: Path, *, is_ours: bool = False) -> None:
        self.name, self.folder, self.is_ours = name, folder, is_ours

    def fill(self, rows: Sequence[dict[str, Any]]) -> None:
        """Put all rows under 0, 1, 2 ... into a new file, and close it."""
        raise NotImplementedError

    def open(self) -> contextlib.AbstractContextManager[dict[str, Any]]:
        """Open the file, with the names that `get` and `scan` use."""
        raise NotImplementedError

    get = ""
    """An expression: the size in the row under `key`."""
    scan = ("", "", "")
    """A loop over all rows: its variable, the rows, and the size in one of them."""

    def clear(self) -> None:
        """Remove the files."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)

    def weigh(self) -> int:
        """Return the size of the files."""
        return sum(path.stat().st_size for path in self.folder.iterdir() if "lock" not in path.name)


class Ours(Store):
    """A table of pellucid, compressed or not."""

    get = "table[key].size"
    scan = ("row", "table.values()", "row.size")

    def __init__(self, name: str, folder: Path, *, compress: bool) -> None:
        super().__init__(name, folder, is_ours=True)
        self.compress = compress

    def fill(self, rows: Sequence[dict[str, Any]]) -> None:
        """Load the rows in one transaction. Closing moves them into the file."""
        with pellucid.open(self.folder / "rows.pel") as db:
            table = db.table("rows", compress=True) if self.compress else db.table("rows")
            table.update(enumerate(rows))

    @contextlib.contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        """Open the table."""
        with pellucid.open(self.folder / "rows.pel") as db:
            yield {"table": db.table("rows")}


class Sqlite(Store):
    """SQLite with JSON in its values, as text or in zlib."""

    get = "loads(execute('SELECT v FROM rows WHERE k = ?', (key,)).fetchone()[0])['size']"
    scan = ("(v,)", "execute('SELECT v FROM rows')", "loads(v)['size']")

    def __init__(self, name: str, folder: Path, *, compress: bool) -> None:
        super().__init__(name, folder)
        self.dumps, self.loads = codec(compress)

    def fill(self, rows: Sequence[dict[str, Any]]) -> None:
        """Load the rows in one transaction."""
        with contextlib.closing(self._connection()) as connection:
            connection.execute("CREATE TABLE rows (k INTEGER PRIMARY KEY, v)")
            connection.execute("BEGIN")
            values = ((number, self.dumps(one)) for number, one in enumerate(rows))
            connection.executemany("INSERT INTO rows VALUES (?, ?)", values)
            connection.execute("COMMIT")

    @contextlib.contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        """Open the file."""
        with contextlib.closing(self._connection()) as connection:
            yield {"execute": connection.execute, "loads": self.loads}

    def _connection(self) -> sqlite3.Connection:
        return sqlite3.connect(self.folder / "rows.sqlite", isolation_level=None)


class Rocks(Store):
    """RocksDB, which compresses blocks of rows, with JSON in its values."""

    get = "loads(db[key])['size']"
    scan = ("v", "db.values()", "loads(v)['size']")

    def __init__(self, rocksdict: ModuleType, folder: Path) -> None:
        super().__init__("rocksdict", folder)
        self.rocksdict = rocksdict
        self.dumps, self.loads = codec(compress=False)

    def fill(self, rows: Sequence[dict[str, Any]]) -> None:
        """Load the rows, and write them into sorted files."""
        db = self.rocksdict.Rdict(str(self.folder / "rows"))
        for number, one in enumerate(rows):
            db[number] = self.dumps(one)
        db.flush()
        db.compact_range(None, None)
        db.close()

    @contextlib.contextmanager
    def open(self) -> Iterator[dict[str, Any]]:
        """Open the folder."""
        db = self.rocksdict.Rdict(str(self.folder / "rows"))
        try:
            yield {"db": db, "loads": self.loads}
        finally:
            db.close()

    def weigh(self) -> int:
        """Return the size of the files with rows."""
        return sum(path.stat().st_size for path in (self.folder / "rows").glob("*.sst"))


def codec(compress: bool) -> tuple[Callable[[Any], bytes], Callable[[bytes], Any]]:
    """Return how a row becomes bytes of JSON, in zlib or not, and how it is read."""
    if compress:
        return (
            lambda value: zlib.compress(json.dumps(value).encode(), LEVEL),
            lambda data: json.loads(zlib.decompress(data)),
        )
    return lambda value: json.dumps(value).encode(), json.loads


def stores(rivals: Rivals, directory: Path) -> list[Store]:
    """Return all stores whose libraries are installed, ours first."""
    found: list[Store] = [
        Ours("pellucid, compressed", directory / "compressed", compress=True),
        Ours("pellucid", directory / "plain", compress=False),
        Sqlite("sqlite3, JSON", directory / "json", compress=False),
        Sqlite("sqlite3, JSON in zlib", directory / "zlib", compress=True),
    ]
    rivals.find("sqlite3")
    if rocksdict := rivals.find("rocksdict"):
        found.append(Rocks(rocksdict, directory / "rocks"))
    return found


def run(run: Run) -> None:
    """Load, weigh and read all stores."""
    run.pace.on_progress("make rows")
    rows = [row(number) for number in range(run.settings.rows)]
    everybody = run.gather(partial(stores, directory=run.directory / "stores"))
    try:
        everybody = loads(run, everybody, rows)
        sizes(run, everybody, len(rows))
        reads(run, everybody, rows)
    finally:
        shutil.rmtree(run.directory / "stores", ignore_errors=True)


def loads(run: Run, everybody: list[Store], rows: list[dict[str, Any]]) -> list[Store]:
    """Measure the load, and return the stores that have all rows."""
    title = "load of lines of a log"
    contenders = [
        timed(one.name, partial(one.fill, rows), len(rows), before=one.clear, is_ours=one.is_ours)
        for one in everybody
    ]
    run.measure(
        title,
        Unit.RATE,
        contenders,
        rounds=run.pace.bulk_rounds,
        notes=["in one transaction, with the close, in which pellucid compresses the rows"],
        size=len(rows),
        size_unit="lines",
    )

    def fill(one: Store) -> None:
        one.clear()
        one.fill(rows)

    return run.able(everybody, fill)


def sizes(run: Run, everybody: list[Store], count: int) -> None:
    """Measure the size of the files."""
    title = "file size for a line of a log"
    if run.wants(title):
        rows = [Result(one.name, one.is_ours, costs=[one.weigh() / count]) for one in everybody]
        run.add(
            Measure(
                title,
                Unit.BYTES,
                rows,
                [Target(2.0, "pellucid")],
                group="size",
                size=count,
                size_unit="lines",
            )
        )


def reads(run: Run, everybody: list[Store], rows: list[dict[str, Any]]) -> None:
    """Measure gets by random keys, and a loop over all rows."""
    keys = random.Random(3).choices(range(len(rows)), k=KEYS)
    with contextlib.ExitStack() as stack:
        opened = [(one, stack.enter_context(one.open())) for one in everybody]
        gets: list[Contender] = [
            statement(one.name, one.get, names, run.pace, over=("key", keys), is_ours=one.is_ours)
            for one, names in opened
        ]
        run.measure(
            "one field of a line by its key",
            Unit.TIME,
            gets,
            expected=[rows[key]["size"] for key in keys],
            size=len(rows),
            size_unit="lines",
            labels=["hot"],
        )
        scans = [
            timed(
                one.name,
                loop(*one.scan, names),
                len(rows),
                repeat_seconds=run.pace.repeat_seconds,
                is_ours=one.is_ours,
            )
            for one, names in opened
        ]
        run.measure(
            "loop over all lines, adding one field",
            Unit.RATE,
            scans,
            expected=sum(one["size"] for one in rows),
            size=len(rows),
            size_unit="lines",
            labels=["hot"],
        )
