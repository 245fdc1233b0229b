"""This experiment measures what a person waits for who looks into a table or takes rows out of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

import pellucid

from pellucid_bench.about import About, Setting
from pellucid_bench.look_rows import rows_on_their_way
from pellucid_bench.measures import Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, timed

ABOUT = About(
    "look",
    "How long does it take to see what is in a table, and to take rows out of it?",
    "Lists the fields of a table of 64 shapes, asks for names that tables have and do not have, and makes "
    "JSON, dicts and arrays of rows.",
    (Setting("rows", 1_000_000, 20_000, "rows of the table"),),
)
SAMPLED = "fields of a table of 64 shapes and 20 paths: by a sample"
EXACT = "fields of a table of 64 shapes and 20 paths: of all rows"
WRONG = "a wrong name of a table, the first in a process"
RIGHT = "a method of a table, called by its name"
OPTIONAL = 6
"""Fields that a row has or lacks: 2^6 shapes."""
NAMES = 1000
"""Calls in one sample."""
FIRST = """
import time, pellucid
table = pellucid.open(":memory:").table("t")
started = time.perf_counter()
try:
    table.insert
except AttributeError:
    print(time.perf_counter() - started)
"""


def rows(count: int) -> Iterator[dict[str, Any]]:
    """Make rows of 64 shapes and 20 paths, the last of which one row of 100,000 has."""
    for number in range(count):
        row: dict[str, Any] = {
            "id": number,
            "name": f"name {number % 5000}",
            "age": number % 90,
            "score": number * 0.37,
            "city": ("Bath", "York", "Leeds", "Hull")[number % 4],
            "ok": number % 2 == 0,
            "note": f"some text of thirty characters {number}",
            "kind": f"k{number % 7}",
            "at": {"x": number % 100, "y": number * 0.5},
            "nothing": None,
        }
        chosen = number * 2_654_435_761 % 2**OPTIONAL
        row.update((f"opt{bit}", number % 10 ** (bit + 1)) for bit in range(OPTIONAL) if chosen >> bit & 1)
        if number % 100_000 == 5:
            row["rare"] = number
        yield row


def run(run: Run) -> None:
    """Fill a table, and look into it."""
    folder = run.directory / "look"
    folder.mkdir()
    try:
        with pellucid.open(folder / "rows.pel") as db:
            run.pace.on_progress("make rows")
            db.table("rows").extend(rows(run.settings.rows))
        with pellucid.open(folder / "rows.pel", "r") as db:
            fields(run, db.table("rows"))
            names(run, db.table("rows"))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    rows_on_their_way(run)


def fields(run: Run, table: Any) -> None:
    """Measure the list of the fields, by a sample and of all rows."""
    for title, exact, seconds in ((SAMPLED, False, 0.05), (EXACT, True, 3.0)):
        run.measure(
            title,
            Unit.TIME,
            [timed("pellucid", partial(table.fields, exact=exact), 1, is_ours=True)],
            targets=[Target(seconds)],
            size=run.settings.rows,
            size_unit="rows",
        )


def names(run: Run, table: Any) -> None:
    """Measure a name that tables do not have, and one that they have."""

    def first() -> float:
        done = subprocess.run([sys.executable, "-c", FIRST], capture_output=True, text=True, check=True)
        return float(done.stdout)

    def call() -> None:
        for _ in range(NAMES):
            table.get(5)

    run.measure(WRONG, Unit.TIME, [Contender("pellucid", first, is_ours=True)], targets=[Target(0.001)])
    run.measure(RIGHT, Unit.TIME, [timed("pellucid", call, NAMES, is_ours=True)])
