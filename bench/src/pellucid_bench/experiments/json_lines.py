"""This experiment measures the import and the export of JSON Lines, with rows of 200 bytes, and of CSV.

The same file is read and written by the standard library's json as well, into and from a list of dicts: a
program without a database does that. The CSV has ten columns, and csv.DictReader and pandas read it too. The
processor time of a row says more than the wall time on a machine that does other work too.
"""

from __future__ import annotations

import csv
import json
import random
import time
from collections.abc import Callable
from pathlib import Path

import pellucid

from pellucid_bench.about import About, Setting
from pellucid_bench.measures import Measure, Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, WrongAnswerError

ABOUT = About(
    "json-lines",
    "How fast do JSON Lines and CSV come into a table, and out of it?",
    "Imports and exports rows of 200 bytes, beside json with a list of dicts; imports CSV.",
    (Setting("rows", 1_000_000, 2_000, "rows of the file"),),
    isolation="never",
)
GOALS = {"import": 300_000, "export": 500_000}
CSV_NAMES = ["id", "name", "city", "age", "score", "price", "active", "code", "day", "note"]


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


def write_csv(path: Path, count: int) -> float:
    """Write a file of ten columns, and return the mean size of a line."""
    made = random.Random(1)
    with path.open("w", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(CSV_NAMES)
        for number in range(count):
            name, city = f"name{number}", made.choice(["Bath", "York", "Leeds"])
            score, price = round(made.random() * 100, 3), round(made.random() * 1000, 2)
            code, day = f"A{made.randrange(10**5):05}", f"2026-01-{made.randrange(1, 29):02}"
            active = made.choice(["true", "false"])
            rows.writerow([number, name, city, made.randrange(90), score, price, active, code, day, "a note"])
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
    """Measure JSON Lines, then CSV."""
    json_lines(run)
    import_csv(run)


def json_lines(run: Run) -> None:
    """Measure JSON Lines in both directions."""
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
    add_processor_times(measure, both)


def import_csv(run: Run) -> None:
    """Measure the import of CSV; csv.DictReader makes a dict of texts of each row, and pandas a DataFrame."""
    rows = run.settings.rows
    source = run.directory / "rows.csv"
    size = write_csv(source, rows)
    pandas = run.rivals.find("pandas")

    def import_rows() -> None:
        for path in run.directory.glob("csv.pel*"):
            path.unlink()
        with pellucid.open(run.directory / "csv.pel") as db:
            if pellucid.import_from(source, db).rows != rows:
                raise WrongAnswerError(f"imported {len(db)} rows, not {rows}")

    def read_rows() -> None:
        with source.open(newline="") as file:
            for _ in csv.DictReader(file):
                pass

    clocked = [Clocked("pellucid", import_rows, rows, is_ours=True)]
    clocked.append(Clocked("csv.DictReader alone", read_rows, rows))
    if pandas is not None:
        clocked.append(Clocked("pandas.read_csv", lambda: pandas.read_csv(source), rows))
    measure = run.measure(
        f"import of {rows:,} rows of CSV",
        Unit.RATE,
        [one.contender for one in clocked],
        rounds=run.pace.bulk_rounds,
        targets=[Target(1.0, "csv.DictReader alone"), Target(0.2, "pandas.read_csv")],
        notes=[f"rows of {size:.0f} bytes in ten columns; the others store nothing"],
        group="import-csv",
        size=rows,
        size_unit="rows",
    )
    add_processor_times(measure, clocked)


def add_processor_times(measure: Measure | None, clocked: list[Clocked]) -> None:
    """Note the processor time of each contender."""
    for result in measure.results if measure else ():
        for one in clocked:
            if one.name == result.name and one.processor:
                result.facts["processor of a row"] = Unit.TIME.show(min(one.processor))
