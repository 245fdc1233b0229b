"""This module measures whole processes: import, open, and the memory of a scan larger than the memory."""

from __future__ import annotations

import random
import string
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pellucid

from pellucid_bench import child
from pellucid_bench.contenders.stores import InFile, stores
from pellucid_bench.machine import memory_size
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender
from pellucid_bench.sample_records import UNIFORM, Record, fred

TEXT_SIZE = 1_000
ROWS_IN_A_COMMIT = 100_000


def run(run: Run) -> None:
    """Run every measure of this module."""
    imports(run)
    opens(run)
    memory(run)


def imports(run: Run) -> None:
    """Measure the seconds of `import x` in a new interpreter."""
    names = ["pellucid"]
    names += [
        name
        for name in ("sqlite3", "orjson", "msgspec", "lmdb", "duckdb", "diskcache")
        if run.rivals.find(name)
    ]
    contenders = [
        Contender(name, partial(child.time_import, name), is_ours=name == "pellucid") for name in names
    ]
    run.measure("import", Unit.TIME, contenders, rounds=run.pace.start_rounds, targets=[Target(0.020)])


def opens(run: Run) -> None:
    """Measure the time to open a database of many rows that another process closed."""
    title = "open an existing database"
    if not run.wants(title):
        return
    records = UNIFORM.records(min(run.settings.rows, 100_000))
    modules = {
        "pellucid": "pellucid",
        "lmdb + orjson": "lmdb",
        "sqlite3, columns": "sqlite3",
        "duckdb, columns": "duckdb",
    }
    made = run.gather(partial(stores, population=UNIFORM, directory=run.directory))
    keepers = [keeper for keeper in made if isinstance(keeper, InFile)]
    try:
        contenders = []
        for keeper in keepers:
            if keeper.name in modules:
                keeper.fill(records)
                keeper.close()
                sample = partial(child.time_open_apart, modules[keeper.name], keeper.path)
                contenders.append(Contender(keeper.name, sample, is_ours=keeper.is_ours))
        notes = ["by the first process that opens it, after the import, without closing"]
        run.measure(
            title, Unit.TIME, contenders, rounds=run.pace.start_rounds, targets=[Target(0.001)], notes=notes
        )
    finally:
        for keeper in keepers:
            keeper.remove()


def memory(run: Run) -> None:
    """Measure the anonymous memory of a scan, without pages of the file, which the system can take back."""
    title = "anonymous memory of a scan, whole process"
    if not run.wants(title) or not run.takes("pellucid"):
        return
    run.pace.on_progress(title)
    result = Measure(title, Unit.BYTES, targets=[Target(64e6)])
    if child.anonymous_memory() is None:
        run.notes.append(f"{title} was not measured: this system has no /proc/self/status with RssAnon")
        return
    path = run.directory / "large.pel"
    try:
        rows, expected = _fill_large(path, round(run.settings.scan_gigabytes * 1e9))
        size = path.stat().st_size
        of_memory = (
            f", {size / (memory_size() or 1):.2f} times this machine's memory" if memory_size() else ""
        )
        result.notes.append(
            f"{rows:,} rows in a file of {Unit.BYTES.show(size)}{of_memory}; see --scan-gigabytes"
        )
        for name, how in (
            ("pellucid, loop", "loop"),
            ("pellucid, sum", "sum"),
            ("(database open, nothing read)", "nothing"),
        ):
            answer = child.run("scan", str(path), "age", how)
            if how != "nothing" and (answer["rows"], answer["total"]) != (rows, expected):
                raise AssertionError(
                    f"{title}: {name} saw {answer['rows']} rows that add up to {answer['total']}"
                )
            result.results.append(
                Result(
                    name,
                    is_ours=how != "nothing",
                    is_reference=how == "nothing",
                    note=f"{answer['seconds']:.2f} s" if how != "nothing" else "",
                    costs=[float(answer["peak"])],
                )
            )
        run.absent = {}
        run.add(result)
    finally:
        path.unlink(missing_ok=True)


def _fill_large(path: Path, size: int) -> tuple[int, int]:
    """Store rows of about 1.2 kB until the file has `size` bytes. Return their number and sum of ages."""
    chance = random.Random(7)
    text = "".join(chance.choices(string.ascii_letters, k=TEXT_SIZE * 2))
    rows = total = 0

    def batch(start: int, count: int) -> Iterator[Record]:
        nonlocal total
        for number in range(start, start + count):
            record = fred(number)
            offset = number % TEXT_SIZE
            record["text"] = text[offset : offset + TEXT_SIZE]
            total += record["age"]
            yield record

    with pellucid.open(path, mode="n") as database:
        table = database.table("people")
        while rows * (TEXT_SIZE + 200) < size:
            count = min(ROWS_IN_A_COMMIT, size // (TEXT_SIZE + 200) - rows + 1)
            table.extend(batch(rows, count))
            rows += count
    return rows, total
