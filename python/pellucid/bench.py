"""Times pellucid alone on this machine.

    python -m pellucid.bench [--rows N] [--directory FOLDER]

Each line is the time of one row, the best of a few rounds. `./dev bench` in a clone compares with other
libraries.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pellucid
from pellucid import F, Table

ROUND_COUNT = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the times of the command line, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m pellucid.bench", description="Time pellucid alone.")
    parser.add_argument("--rows", type=int, default=100_000, metavar="N", help="rows (default: 100,000)")
    parser.add_argument("--directory", type=Path, help="folder for the database (default: the temporary one)")
    options = parser.parse_args(arguments)
    if options.rows < 1:
        parser.error("--rows has to be 1 or more")
    with tempfile.TemporaryDirectory(prefix="pellucid-bench-", dir=options.directory) as directory:
        for name, seconds in times(Path(directory), options.rows):
            print(f"{name:40} {seconds * 1e9:10,.0f} ns")
    return 0


def times(directory: Path, count: int) -> list[tuple[str, float]]:
    """The name of each operation, and its seconds for one row."""
    rows = [
        {"name": f"user {number}", "age": number % 100, "city": {"zip": number}} for number in range(count)
    ]
    with pellucid.open(directory / "bench.pel", mode="n") as database:
        table: Table[Any] = database.table("people")

        def fill() -> None:
            table.clear()
            table.extend(rows)

        def put() -> None:
            for key, row in enumerate(rows):
                table[key] = row

        def change() -> None:
            with database.transaction():
                for row in table.values():
                    row.age += 1

        def index() -> None:
            if table.indexes():
                table.drop_index("by_name")
            table.create_index("by_name", F.name)

        work: list[tuple[str, Callable[[], object]]] = [
            ("table.extend(rows)", fill),
            ("table[key] = row, each a commit", put),
            ("table[key].age", lambda: [table[key].age for key in range(count)]),
            ("for row in table.values(): row.age", lambda: [row.age for row in table.values()]),
            ('table.sum("age")', lambda: table.sum("age")),
            ("table.where(F.age > 50).count()", lambda: table.where(F.age > 50).count()),
            ("row.age += 1, in one transaction", change),
            ('table.create_index("by_name", F.name)', index),
            ("table.find(name=name).first()", lambda: [table.find(name=row["name"]).first() for row in rows]),
        ]
        return [(name, min(seconds_of(one) for _ in range(ROUND_COUNT)) / count) for name, one in work]


def seconds_of(work: Callable[[], object]) -> float:
    """The seconds that a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    sys.exit(main())
