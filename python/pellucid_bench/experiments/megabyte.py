"""This script measures large values: distinct values of 1 MB that cannot be compressed, in random order.

Each library writes them with a sync after every 250, in a process of its own. Then the files leave the page
cache. A second process reads all values cold, and again warm. The memory is what the process has beside the
pages of files. Run it with `pellucid bench megabyte`. `--full` has 50,000 values, and needs 60 GB on the
disk: each library's files are removed before the next one begins.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SIZE = 1_000_000
COUNT = 2_000
COUNT_FULL = 50_000
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


STORES = {
    "pellucid": pellucid_store,
    "plain files": file_store,
    "shelve": shelve_store,
    "diskcache": diskcache_store,
    "lmdb": lmdb_store,
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
    return {"write": count * size / seconds, "memory writing": peak}


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
        figures[name] = count * size / seconds
    figures["memory reading"] = peak
    if opened.database is not None:
        figures |= viewed(opened.database, min(count, VIEWED_MAX), size)
    return figures


def viewed(db: Any, count: int, size: int) -> dict[str, float]:
    """Sum NumPy arrays of a snapshot's records, views of the file, and arrays of the same size in memory."""
    import numpy

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
        return count * size / best

    with db.snapshot() as snapshot:
        records = snapshot.table("arrays")
        figures = {"numpy view": rate(lambda number: records[number].array)}
    return figures | {"numpy memory": rate(copies.__getitem__)}


def child(name: str, phase: str, folder: Path, count: int, size: int) -> None:
    """Do one phase of one library, and print its figures as JSON."""
    with STORES[name](folder) as opened:
        figures = write(opened, count, size) if phase == "write" else read(opened, count, size)
    print(json.dumps(figures))


def run_child(*arguments: str) -> dict[str, float]:
    """Run one phase in a process of its own."""
    command = [sys.executable, "-m", "pellucid_bench.experiments.megabyte", "--child", *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


def measure(name: str, directory: Path, count: int, size: int) -> dict[str, float]:
    """Measure one library, in a folder that is removed afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="megabyte-", dir=directory))
    try:
        figures = run_child(name, "write", str(folder), str(count), str(size))
        figures["file size"] = size_of(folder) / (count * size)
        drop_cached(folder)
        figures |= run_child(name, "read", str(folder), str(count), str(size))
    finally:
        shutil.rmtree(folder)
    return figures


COLUMNS = ("write", "cold read", "warm read", "numpy view", "numpy memory")
SIZES = ("memory writing", "memory reading")


def show(results: dict[str, dict[str, float]]) -> None:
    """Print the figures of all libraries, and our targets."""
    print(f"{'MB/s':<14}" + "".join(f"{name:>16}" for name in (*COLUMNS, *SIZES)) + f"{'file size':>12}")
    for name, figures in results.items():
        cells = [f"{figures[column] / 1e6:>16,.0f}" if column in figures else " " * 16 for column in COLUMNS]
        cells += [f"{figures[column] / 1e6:>13,.1f} MB" for column in SIZES]
        print(f"{name:<14}" + "".join(cells) + f"{figures['file size']:>11.2f}x")
    ours = results.get("pellucid")
    if ours is None:
        return
    others = {name: figures for name, figures in results.items() if name != "pellucid"}
    if others:
        best = max(figures["write"] for figures in others.values())
        tell("write, of the best", ours["write"] / best, 0.9)
    for target, rival, wanted in (("cold read", "plain files", 1.0), ("warm read", "lmdb", 0.9)):
        if rival in others:
            tell(f"{target}, of {rival}", ours[target] / others[rival][target], wanted)
    if "numpy view" in ours:
        tell("NumPy view, of memory", ours["numpy view"] / ours["numpy memory"], 0.9)
    worst = max(ours[column] for column in SIZES) / 1e6
    print(f"memory: {worst:.1f} MB (target 100): {'met' if worst <= 100 else 'missed'}")


def tell(what: str, ratio: float, wanted: float) -> None:
    """Print one target."""
    print(f"{what}: {ratio:.2f}x (target {wanted}x): {'met' if ratio >= wanted else 'missed'}")


def main() -> None:
    """Measure what the command line asks for."""
    if sys.argv[1:2] == ["--child"]:
        name, phase, folder, count, size = sys.argv[2:]
        child(name, phase, Path(folder), int(count), int(size))
        return
    parser = argparse.ArgumentParser(description="Measure values of 1 MB beside other libraries.")
    parser.add_argument("--count", type=int, default=COUNT, help=f"how many values ({COUNT:,})")
    parser.add_argument("--full", action="store_true", help=f"{COUNT_FULL:,} values")
    parser.add_argument("--size", type=int, default=SIZE, help=f"bytes of a value ({SIZE:,})")
    parser.add_argument(
        "--only", action="append", choices=STORES, help="measure this library; may be repeated"
    )
    parser.add_argument("--directory", type=Path, default=Path.cwd(), help="where the files go")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")
    chosen = parser.parse_args()
    value_count = COUNT_FULL if chosen.full else chosen.count
    results: dict[str, dict[str, float]] = {}
    for name in chosen.only or STORES:
        with contextlib.suppress(ModuleNotFoundError):
            if name in ("diskcache", "lmdb"):
                __import__(name)
            results[name] = measure(name, chosen.directory, value_count, chosen.size)
    print(f"{value_count:,} values of {chosen.size:,} bytes, a sync after every {SYNC_EVERY}")
    show(results)
    if chosen.json:
        chosen.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
