"""This program measures the import and the export of JSON Lines, with rows of 200 bytes.

    pellucid bench json-lines [--rows 1000000] [--rounds 3]

It prints rows per second of wall time, best of all rounds, and the processor time of a row: on a machine that
does other work too, the second figure says more. The goals are 300,000 rows/s in and 500,000 rows/s out.
The same file is read and written by the standard library's json as well, into and from a list of dicts:
a program without a database does that.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import pellucid

GOALS = {"import": 300_000, "export": 500_000}


def write_rows(path: Path, count: int) -> float:
    """Write the file, and return the mean size of a line."""
    made = random.Random(1)
    with path.open("w") as file:
        for number in range(count):
            row = {
                "id": number,
                "name": f"user {number}",
                "age": made.randrange(90),
                "score": round(made.random() * 100, 3),
                "city": made.choice(["Bath", "York", "Leeds"]),
                "active": bool(number % 2),
                "tags": ["a", "b", "c"],
                "email": f"user{number}@example.com",
                "note": "x" * 45,
            }
            file.write(json.dumps(row, separators=(",", ":")) + "\n")
    return path.stat().st_size / count


def best(work: Callable[[], object], rounds: int) -> tuple[float, float]:
    """The shortest wall time and processor time of some rounds."""
    walls, processors = [], []
    for _ in range(rounds):
        wall, processor = time.perf_counter(), time.process_time()
        work()
        walls.append(time.perf_counter() - wall)
        processors.append(time.process_time() - processor)
    return min(walls), min(processors)


def say(title: str, rows: int, times: tuple[float, float]) -> None:
    """Print a line of the report."""
    wall, processor = times
    goal = GOALS.get(title.split()[0])
    end = f"   goal {goal:,}" if goal and title.endswith("pellucid") else ""
    print(
        f"{title:34} {rows / wall:12,.0f} rows/s   {processor / rows * 1e6:5.2f} us of processor a row{end}"
    )


def main() -> None:
    """Measure, and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pellucid-bench-") as name:
        folder = Path(name)
        source, target = folder / "rows.jsonl", folder / "out.jsonl"
        size = write_rows(source, options.rows)
        print(f"{options.rows:,} rows of {size:.0f} bytes, Python {sys.version.split()[0]}")

        def import_rows() -> None:
            for path in folder.glob("rows.pel*"):
                path.unlink()
            with pellucid.open(folder / "rows.pel") as db:
                assert pellucid.import_from(source, db).rows == options.rows

        def load_rows() -> None:
            with source.open() as file:
                rows.extend(map(json.loads, file))

        def dump_rows() -> None:
            with target.open("w") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)

        say("import: pellucid", options.rows, best(import_rows, options.rounds))
        with pellucid.open(folder / "rows.pel", "r") as db:
            times = best(lambda: pellucid.export_to(db, target, overwrite=True), options.rounds)
        say("export: pellucid", options.rows, times)
        rows: list[object] = []
        say("json.loads of each line, to a list", options.rows, best(load_rows, 1))
        say("json.dumps of each row of a list", options.rows, best(dump_rows, 1))


if __name__ == "__main__":
    main()
