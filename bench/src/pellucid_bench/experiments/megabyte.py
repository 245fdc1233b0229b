"""This experiment measures large values: distinct values of 1 MB that cannot be compressed, in random order.

Each library writes them with a sync after every 250, in a process of its own. Then the files leave the page
cache. A second process reads all values cold, and again warm. The memory is what the process has beside the
pages of files. `--count 50000` needs 60 GB on the disk: each library's files are removed before the next one
begins.
"""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from pellucid_bench import child
from pellucid_bench.about import About, Setting
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.rivals import library_of
from pellucid_bench.run import Run
from pellucid_bench.runner import in_turn, kept

ABOUT = About(
    "megabyte",
    "What does a shelf of large values cost?",
    "Writes values of 1 MB with a sync after every 250, reads them at random, cold and warm, and measures "
    "the memory and the files.",
    (
        Setting("count", 2_000, 60, "how many values"),
        Setting("size", 1_000_000, 100_000, "bytes of a value"),
    ),
    isolation="always",
)
MODULE = "experiments.megabyte"
MEMORY_MAX = 100e6
SYNC_EVERY = 250
POOL_SIZE = 8_000_000
MEMORY_EVERY = 50
VIEWED_MAX = 500


@dataclasses.dataclass
class Opened:
    """A store of one library: how it puts, gets and syncs."""

    put: Callable[[int, bytes], object]
    get: Callable[[int], bytes]
    sync: Callable[[], object]
    database: Any = None
    """Ours, which shows NumPy arrays where they lie."""


@contextmanager
def pellucid_store(folder: Path) -> Iterator[Opened]:
    """Store values in a pellucid database."""
    import pellucid

    with pellucid.open(folder / "values.pel") as db:
        yield Opened(db.__setitem__, db.__getitem__, db.sync, db)


@contextmanager
def file_store(folder: Path) -> Iterator[Opened]:
    """Store each value in a file of its own."""
    unsynced: list[Path] = []

    def put(number: int, value: bytes) -> None:
        path = folder / str(number)
        path.write_bytes(value)
        unsynced.append(path)

    def sync() -> None:
        for path in [*unsynced, folder]:
            fsync(path)
        unsynced.clear()

    yield Opened(put, lambda number: (folder / str(number)).read_bytes(), sync)


@contextmanager
def shelve_store(folder: Path) -> Iterator[Opened]:
    """Store values in a shelf."""
    import shelve

    with shelve.open(str(folder / "shelf")) as shelf:  # a rival, and its own bytes
        yield Opened(
            lambda number, value: shelf.__setitem__(str(number), value),
            lambda number: shelf[str(number)],
            shelf.sync,
        )


@contextmanager
def diskcache_store(folder: Path) -> Iterator[Opened]:
    """Store values in a diskcache, which cannot sync: what is new in its folder is synced."""
    import diskcache

    synced: set[str] = set()

    def sync() -> None:
        for parent, _, names in os.walk(folder):
            for name in names:
                path = Path(parent, name)
                if path.suffix == ".val" and str(path) not in synced:
                    fsync(path)
                    synced.add(str(path))
        fsync(folder / "cache.db-wal")

    with diskcache.Cache(str(folder), eviction_policy="none", size_limit=1 << 60) as cache:
        yield Opened(cache.__setitem__, cache.__getitem__, sync)


@contextmanager
def lmdb_store(folder: Path) -> Iterator[Opened]:
    """Store values in LMDB, which commits each without a sync."""
    import lmdb

    environment = lmdb.open(str(folder), map_size=1 << 40, sync=False)

    def put(number: int, value: bytes) -> None:
        with environment.begin(write=True) as transaction:
            transaction.put(number.to_bytes(8, "big"), value)

    def get(number: int) -> bytes:
        with environment.begin() as transaction:
            return bytes(transaction.get(number.to_bytes(8, "big")) or b"")

    try:
        yield Opened(put, get, lambda: environment.sync(True))
    finally:
        environment.close()


@contextmanager
def sqlite_store(folder: Path) -> Iterator[Opened]:
    """Store values in SQLite, with a transaction from one sync to the next."""
    connection = sqlite3.connect(folder / "values.sqlite", isolation_level=None)
    for line in (
        "PRAGMA journal_mode = WAL",
        "PRAGMA synchronous = FULL",
        "CREATE TABLE IF NOT EXISTS rows (k INTEGER PRIMARY KEY, v BLOB)",
        "BEGIN",
    ):
        connection.execute(line)

    def sync() -> None:
        connection.execute("COMMIT")
        connection.execute("BEGIN")

    def get(number: int) -> bytes:
        [value] = connection.execute("SELECT v FROM rows WHERE k = ?", (number,)).fetchone()
        return bytes(value)

    put = partial(connection.execute, "INSERT INTO rows VALUES (?, ?)")
    try:
        yield Opened(lambda number, value: put((number, value)), get, sync)
    finally:
        connection.execute("COMMIT")
        connection.close()


@contextmanager
def rocksdict_store(folder: Path) -> Iterator[Opened]:
    """Store values in RocksDB, whose log is synced."""
    import rocksdict

    rows: Any = rocksdict.Rdict(str(folder), rocksdict.Options(raw_mode=True))
    try:
        yield Opened(
            lambda number, value: rows.put(number.to_bytes(8, "big"), value),
            lambda number: bytes(rows[number.to_bytes(8, "big")]),
            lambda: rows.flush_wal(True),
        )
    finally:
        rows.close()


STORES = {
    "pellucid": pellucid_store,
    "plain files": file_store,
    "shelve": shelve_store,
    "diskcache": diskcache_store,
    "lmdb": lmdb_store,
    "sqlite3": sqlite_store,
    "rocksdict": rocksdict_store,
}


def fsync(path: Path) -> None:
    """Sync one file or folder to the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def drop_cached(folder: Path) -> None:
    """Have the system forget the pages of all files in a folder."""
    for parent, _, names in os.walk(folder):
        for name in names:
            descriptor = os.open(Path(parent, name), os.O_RDONLY)
            try:
                os.fsync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def memory_used() -> int:
    """Return the bytes of this process's memory that are not pages of files."""
    with open("/proc/self/status") as status:
        for line in status:
            if line.startswith("RssAnon:"):
                return int(line.split()[1]) * 1024
    return 0


def size_of(folder: Path) -> int:
    """Return the bytes that the files of a folder take on the disk."""
    return sum(
        os.stat(Path(parent, name)).st_blocks * 512 for parent, _, names in os.walk(folder) for name in names
    )


class Values:
    """Distinct values that cannot be compressed, made without the time that random bytes take."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.pool = random.Random(7).randbytes(POOL_SIZE + size)

    def value(self, number: int, version: int = 0) -> bytes:
        """Return the value of a number."""
        start = (number * 7919 + version * 104_729) % POOL_SIZE
        mark = number.to_bytes(6, "big") + version.to_bytes(2, "big")
        return mark + self.pool[start : start + self.size - 8]


def write(opened: Opened, count: int, size: int) -> dict[str, float]:
    """Put all values in random order, and sync after every 250."""
    values = Values(size)
    numbers = list(range(count))
    random.Random(1).shuffle(numbers)
    seconds, before, peak = 0.0, memory_used(), 0
    for place, number in enumerate(numbers, 1):
        value = values.value(number)
        started = time.perf_counter()
        opened.put(number, value)
        if place % SYNC_EVERY == 0 or place == count:
            opened.sync()
        seconds += time.perf_counter() - started
        if place % MEMORY_EVERY == 0:
            peak = max(peak, memory_used() - before)
    return {"write": seconds / count, "memory writing": peak}


def read(opened: Opened, count: int, size: int) -> dict[str, float]:
    """Get all values in random order, cold and then warm."""
    values = Values(size)
    figures: dict[str, float] = {}
    before, peak = memory_used(), 0
    for name, seed in (("cold read", 2), ("warm read", 3)):
        numbers = list(range(count))
        random.Random(seed).shuffle(numbers)
        seconds = 0.0
        for place, number in enumerate(numbers, 1):
            started = time.perf_counter()
            value = opened.get(number)
            seconds += time.perf_counter() - started
            if value[:6] != number.to_bytes(6, "big") or len(value) != size:
                raise ValueError(f"value {number} is not the one that was written")
            if place % SYNC_EVERY == 0 and value != values.value(number):
                raise ValueError(f"value {number} is not the one that was written")
            del value
            if place % MEMORY_EVERY == 0:
                peak = max(peak, memory_used() - before)
        figures[name] = seconds / count
    figures["memory reading"] = peak
    if opened.database is not None:
        figures |= viewed(opened.database, min(count, VIEWED_MAX), size)
    return figures


def viewed(db: Any, count: int, size: int) -> dict[str, float]:
    """Sum NumPy arrays of a snapshot's records, views of the file, and arrays of the same size in memory.

    Without NumPy there are no such figures.
    """
    try:
        import numpy
    except ImportError:
        return {}
    values, table = Values(size), db.table("arrays")
    copies = [numpy.frombuffer(values.value(number), "u8", size // 8).copy() for number in range(count)]
    for number, array in enumerate(copies):
        table[number] = {"array": array}
    db.sync()

    def rate(of: Callable[[int], Any]) -> float:
        best = float("inf")
        for _ in range(3):
            started = time.perf_counter()
            for number in range(count):
                of(number).sum()
            best = min(best, time.perf_counter() - started)
        return best / count

    with db.snapshot() as snapshot:
        records = snapshot.table("arrays")
        figures = {"numpy view": rate(lambda number: records[number].array)}
    return figures | {"numpy memory": rate(copies.__getitem__)}


def work(name: str, phase: str, folder: str, count: str, size: str) -> None:
    """Do one phase of one library, and print its figures as JSON."""
    with STORES[name](Path(folder)) as opened:
        function = write if phase == "write" else read
        print(json.dumps(function(opened, int(count), int(size))))


def figures_of(run: Run, name: str) -> dict[str, float]:
    """Measure one library, in a folder that is removed afterwards."""
    count, size = run.settings.count, run.settings.size
    folder = Path(tempfile.mkdtemp(prefix="megabyte-", dir=run.directory))
    try:
        figures: dict[str, float] = child.run_module(MODULE, name, "write", folder, count, size)
        figures["file size"] = size_of(folder) / (count * size)
        drop_cached(folder)
        figures |= child.run_module(MODULE, name, "read", folder, count, size)
    finally:
        shutil.rmtree(folder)
    return figures


def run(run: Run) -> None:
    """Measure all libraries in turn."""
    libraries = {"shelve", "diskcache", "lmdb", "sqlite3", "rocksdict"}
    found = [
        name
        for name in STORES
        if run.takes(library_of(name)) and (name not in libraries or run.rivals.find(name))
    ]
    run.absent = {name: why for name, why in run.rivals.missing.items() if name in libraries}
    measures = measures_of(run.settings.count, run.settings.size)
    for measure in measures.values():
        measure.results = [Result(name, is_ours=name == "pellucid") for name in found]
        if run.wants(measure.title):
            run.add(measure)
    if not run.measures:
        return
    with_arrays = measures["numpy view"]
    with_arrays.results = [result for result in with_arrays.results if result.is_ours]
    with_arrays.results.append(Result(IN_MEMORY, library="numpy"))
    if not run.rivals.find("numpy"):
        with_arrays.results = [Result(IN_MEMORY, error=run.rivals.missing["numpy"], library="numpy")]
    failed: set[str] = set()
    for _, name in in_turn(found, run.pace.rounds_of(1)):
        if name not in failed:
            run.pace.on_progress(name)
            results = {
                key: one.results[found.index(name)] for key, one in measures.items() if one is not with_arrays
            }
            if name == "pellucid" and len(with_arrays.results) == 2:
                results["numpy view"], results["numpy memory"] = with_arrays.results
            whole = Result(name)
            with kept(whole):
                for key, figure in figures_of(run, name).items():
                    results[key].costs.append(figure)
            if whole.error:
                failed.add(name)
                for result in results.values():
                    result.error = whole.error
    rivals = [result for result in measures["write"].results if not result.is_ours and result.costs]
    if rivals:
        best = min(rivals, key=lambda result: result.median)
        measures["write"].targets.append(Target(0.9, best.name))


IN_MEMORY = "numpy, arrays in memory"


def measures_of(count: int, size: int) -> dict[str, Measure]:
    """Make the measures, by the names of their figures."""
    value = f"a value of {size / 1e6:g} MB" if size >= 1e6 else f"a value of {size / 1e3:g} kB"
    times: dict[str, tuple[str, list[Target], tuple[str, ...]]] = {
        "write": (f"write {value}, with a sync after every {SYNC_EVERY}", [], ()),
        "cold read": (f"read {value} at random, cold", [Target(1.0, "plain files")], ("cold",)),
        "warm read": (f"read {value} at random, hot", [Target(0.9, "lmdb")], ("hot",)),
        "numpy view": (f"sum of {value} as an array of NumPy", [Target(0.9, IN_MEMORY)], ("hot",)),
    }
    made = {
        key: Measure(
            title,
            Unit.TIME,
            targets=targets,
            group=key.replace(" ", "-"),
            size=count,
            size_unit="values",
            labels=labels,
        )
        for key, (title, targets, labels) in times.items()
    }
    made["cold read"].notes.append("after the pages of the files have left the page cache")
    for phase in ("writing", "reading"):
        made[f"memory {phase}"] = Measure(
            f"memory of the process, {phase}",
            Unit.BYTES,
            targets=[Target(MEMORY_MAX)],
            notes=["the whole process, without the pages of files"],
            group=f"memory-{phase}",
            size=count,
            size_unit="values",
        )
    made["file size"] = Measure(
        "size of the files, by the size of the values",
        Unit.FACTOR,
        group="file",
        size=count,
        size_unit="values",
    )
    return made


if __name__ == "__main__":
    work(*sys.argv[2:])
