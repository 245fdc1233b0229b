"""This experiment measures the import and the export of JSON Lines, with rows of 200 bytes.

The same file is read and written by the standard library's json as well, into and from a list of dicts: a
program without a database does that. The processor time of a row says more than the wall time on a machine
that does other work too.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pellucid

from pellucid_bench.about import About, Setting
from pellucid_bench.measures import Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, WrongAnswerError

ABOUT = About(
    "json-lines",
    "How fast do JSON Lines come into a table, and out of it?",
    "Imports and exports rows of 200 bytes, beside json with a list of dicts.",
    (Setting("rows", 1_000_000, 2_000, "rows of the file"),),
    isolation="never",
)
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
    return path.stat().st_size / max(1, count)


class Clocked:
    """Work whose wall time and processor time are measured."""

    def __init__(self, name: str, work: Callable[[], object], rows: int, *, is_ours: bool = False) -> None:
        self.name, self.work, self.rows = name, work, rows
        self.processor: list[float] = []
        self.contender = Contender(name, self.sample, is_ours=is_ours)

    def sample(self) -> float:
        """Do the work, and return the wall time of a row."""
        wall, processor = time.perf_counter(), time.process_time()
        self.work()
        self.processor.append((time.process_time() - processor) / self.rows)
        return (time.perf_counter() - wall) / self.rows


def run(run: Run) -> None:
    """Measure the import, then the export."""
    folder, rows = run.directory, run.settings.rows
    source, target = folder / "rows.jsonl", folder / "out.jsonl"
    size = write_rows(source, rows)
    loaded: list[object] = []

    def import_rows() -> None:
        for path in folder.glob("rows.pel*"):
            path.unlink()
        with pellucid.open(folder / "rows.pel") as db:
            if pellucid.import_from(source, db).rows != rows:
                raise WrongAnswerError(f"imported {len(db)} rows, not {rows}")

    def load_rows() -> None:
        with source.open() as file:
            loaded[:] = map(json.loads, file)

    def export_rows() -> None:
        with pellucid.open(folder / "rows.pel", "r") as db:
            pellucid.export_to(db, target, overwrite=True)

    def dump_rows() -> None:
        with target.open("w") as file:
            file.writelines(json.dumps(row) + "\n" for row in loaded)

    measured(run, "import", rows, size, import_rows, Clocked("json.loads of each line", load_rows, rows))
    if not (folder / "rows.pel").exists():
        import_rows()
        load_rows()
    measured(run, "export", rows, size, export_rows, Clocked("json.dumps of each row", dump_rows, rows))


def measured(
    run: Run, title: str, rows: int, size: float, work: Callable[[], object], rival: Clocked
) -> None:
    """Measure one direction."""
    both = [Clocked("pellucid", work, rows, is_ours=True), rival]
    measure = run.measure(
        f"{title} of {rows:,} rows",
        Unit.RATE,
        [one.contender for one in both],
        rounds=run.pace.bulk_rounds,
        targets=[Target(GOALS[title])],
        notes=[f"rows of {size:.0f} bytes; json: from and to a list of dicts"],
        group=title,
        size=rows,
        size_unit="rows",
    )
    for result in measure.results if measure else ():
        for one in both:
            if one.name == result.name and one.processor:
                result.facts["processor of a row"] = Unit.TIME.show(min(one.processor))
