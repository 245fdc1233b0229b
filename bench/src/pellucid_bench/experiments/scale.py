"""This module measures many rows of 200 bytes: how speed and file size hold at one to forty million rows.

Each library works in processes of its own, on files that are removed before the next one begins. Rows are
made as they are needed, outside of the measured times, so no process holds more than one batch of them.
`--rows 1000000 3000000 10000000 40000000 --keys random sequential` needs 44 GB on the disk and hours.
"""

from __future__ import annotations

import json
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from pellucid_bench import child
from pellucid_bench.about import About, Setting
from pellucid_bench.contenders.big_stores import ROW_SIZE, TEXT_SIZE, TOWNS, BigStore, Row
from pellucid_bench.contenders.lmdb import BigLmdb
from pellucid_bench.contenders.pellucid import BigTable, CompressedBigTable
from pellucid_bench.contenders.rocksdict import BigRocksDict
from pellucid_bench.contenders.sqlite3 import BigSqlite
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.run import Run, Unavailable
from pellucid_bench.runner import in_turn, kept

PARTS = ("load", "churn", "compressed", "one-commit", "kill", "soak")
"""What can be measured apart: loads with reads and puts after them, overwrites and deletes, and so on."""
ABOUT = About(
    "scale",
    "Do speed and size hold from one to forty million rows?",
    "Loads, reads, puts, overwrites and deletes rows of 200 bytes under random keys, with and without "
    "indexes, kills a loader, and writes beside long snapshots.",
    (
        Setting("rows", (1_000_000,), (2_000,), "how many rows"),
        Setting("keys", ("random",), ("random",), "orders of keys: random, sequential"),
        Setting("indexes", (0, 2), (0, 2), "numbers of indexes"),
        Setting("parts", PARTS, PARTS, f"what is measured: {', '.join(PARTS)}; churn is after load"),
        Setting("soak", 40.0, 0.1, "seconds of writing beside snapshots of 20 seconds; 0: none"),
    ),
    isolation="always",
)
MODULE = "experiments.scale"
BIG_STORES: dict[str, type[BigStore]] = {
    store.name: store for store in (BigTable, BigLmdb, BigRocksDict, BigSqlite)
}
KEY_ORDERS = ("random", "sequential")
COMMIT = 100_000
"""Rows of one commit."""
SAMPLES = 100_000
"""Single puts and gets."""
RANGE = 1_000
SOAK_ROWS = 200_000
SOAK_RATE = 90_000
SNAPSHOT_SECONDS = 20.0
STRIDE = 2_654_435_761
"""A prime number greater than any number of rows: steps of this size come to each row once."""
SPACE_FACTOR = 5
"""Files may need this many times the size of the rows."""
MEGABYTE = 1 << 20


def mixed(number: int) -> int:
    """Return 64 bits that look random, distinct for each number (the last steps of splitmix64)."""
    number = (number + 1) * 0x9E3779B97F4A7C15 & 0xFFFF_FFFF_FFFF_FFFF
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 & 0xFFFF_FFFF_FFFF_FFFF
    number = (number ^ number >> 27) * 0x94D049BB133111EB & 0xFFFF_FFFF_FFFF_FFFF
    return number ^ number >> 31


class Rows:
    """The rows of one run, each made from its number."""

    def __init__(self, count: int, order: str) -> None:
        self.count = count
        self.is_random = order == "random"
        chance = random.Random(1)
        letters = "abcdefghijklmnopqrstuvwxyz"
        words = ["".join(chance.choices(letters, k=chance.randint(3, 9))) for _ in range(500)]
        # Text that compresses by about a half.
        self.text = " ".join(chance.choices(words, k=150_000))

    def key(self, number: int) -> str:
        """Return the key of the row with this number."""
        return f"row:{mixed(number):016x}" if self.is_random else f"row:{number:016}"

    def row(self, number: int, version: int = 0) -> Row:
        """Make a row. Another version has another age and text."""
        start = (number * 7919 + version * 104_729) % (len(self.text) - TEXT_SIZE)
        town = f"town {mixed(number) % TOWNS:04}"
        text = self.text[start : start + TEXT_SIZE]
        return Row(self.key(number), number, town, self.age(number, version), text)

    @staticmethod
    def age(number: int, version: int = 0) -> int:
        """Return the age in the row with this number."""
        return (number + version) % 90

    def shuffled(self, seed: int) -> Iterator[int]:
        """Give each number once, in an order that looks random."""
        start = mixed(seed)
        return ((start + place * STRIDE) % self.count for place in range(self.count))

    def picked(self, count: int, seed: int) -> list[int]:
        """Return random numbers of rows."""
        chance = random.Random(seed)
        return [chance.randrange(self.count) for _ in range(count)]


def batches(numbers: Iterator[int]) -> Iterator[list[int]]:
    """Give the numbers in the batches that are committed."""
    while batch := list(islice(numbers, COMMIT)):
        yield batch


class Watch:
    """Adds up times, and keeps the greatest anonymous memory that it has seen."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.before = child.anonymous_memory() or 0
        self.peak = self.before

    def time(self, work: Callable[[], object]) -> None:
        """Do some work and add its time."""
        started = time.perf_counter()
        work()
        self.seconds += time.perf_counter() - started
        self.peak = max(self.peak, child.anonymous_memory() or 0)

    @property
    def memory(self) -> int:
        """The bytes of anonymous memory that came on top."""
        return self.peak - self.before


def best_of(rounds: int, work: Callable[[], object]) -> float:
    """Return the least seconds that some work took."""
    seconds = []
    for _ in range(rounds):
        started = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - started)
    return min(seconds)


def expect(found: object, expected: object) -> None:
    """Raise if a library gave another answer than that of its rows."""
    if found != expected:
        raise ValueError(f"the store says {found!r}, not {expected!r}")


def put_all(store: BigStore, rows: Rows, numbers: Iterator[int], version: int) -> Watch:
    """Commit rows in batches. The rows of a batch are made before its time counts."""
    watch = None
    for batch in batches(numbers):
        made = [rows.row(number, version) for number in batch]
        # The memory of a batch of rows is not the library's: there is one when the measure begins,
        # and never a second one beside it.
        watch = watch or Watch()
        watch.time(lambda made=made: store.commit(made))  # type: ignore[misc]
        made.clear()
    return watch or Watch()


Figures = dict[str, float]


def load(store: BigStore, folder: Path, rows: Rows) -> Figures:
    """Load all rows into an empty store."""
    watch = put_all(store, rows, iter(range(rows.count)), 0)
    figures = {"load": rows.count / watch.seconds, "load: memory": watch.memory}
    started = time.perf_counter()
    waited = store.finish_writes()
    finishing = time.perf_counter() - started - waited
    return figures | {"load: settle": finishing, "load: file": file_ratio(store, folder, rows)}


def read(store: BigStore, rows: Rows, has_indexes: bool) -> Figures:
    """Get rows at random, walk over ranges, and add up all rows."""
    numbers = rows.picked(min(SAMPLES, rows.count), 2)
    keys = [rows.key(number) for number in numbers]
    get = store.number_of
    expect([get(key) for key in keys], numbers)
    figures = {"get": best_of(3, lambda: [get(key) for key in keys]) / len(keys)}
    starts = sorted(keys)[: max(1, len(keys) // 2) : max(1, len(keys) // 200)]
    count = min(RANGE, rows.count // 4)
    seconds = best_of(3, lambda: [store.key_range(start, count) for start in starts])
    figures["key range"] = seconds / len(starts) / count
    expect(store.sum_ages(), sum(map(rows.age, range(rows.count))))
    figures["sum"] = rows.count / best_of(3, store.sum_ages)
    if not has_indexes:
        return figures
    by_index = store.by_index
    expect([by_index(number) for number in numbers[:100]], [rows.row(one).text for one in numbers[:100]])
    figures["index get"] = best_of(3, lambda: [by_index(number) for number in numbers]) / len(numbers)
    begins = [number for number in numbers if number <= rows.count - count][:200]
    for begin in begins[:5]:
        expect(store.index_range(begin, begin + count), sum(map(rows.age, range(begin, begin + count))))
    seconds = best_of(3, lambda: [store.index_range(begin, begin + count) for begin in begins])
    figures["index range"] = seconds / len(begins) / count
    return figures


def put_singly(store: BigStore, rows: Rows) -> Figures:
    """Put rows one by one, each with a commit, over those that are there."""
    made = [rows.row(number) for number in rows.picked(min(SAMPLES, rows.count), 3)]
    put, clock = store.putter(), time.perf_counter
    seconds = []
    for row in made:
        started = clock()
        put(row)
        seconds.append(clock() - started)
    seconds.sort()
    return {
        "put: median": statistics.median(seconds),
        "put: p99": seconds[len(seconds) * 99 // 100],
        "put: worst": seconds[-1],
    }


def churn(store: BigStore, folder: Path, rows: Rows) -> Figures:
    """Overwrite all rows twice at random, then delete half of them and put them again."""
    seconds = sum(put_all(store, rows, rows.shuffled(turn), turn).seconds for turn in (1, 2))
    store.finish_writes()
    figures = {"overwrite": 2 * rows.count / seconds, "overwrite: file": file_ratio(store, folder, rows)}
    half = rows.count // 2
    deleted = Watch()
    for batch in batches(islice(rows.shuffled(3), half)):
        keys = [rows.key(number) for number in batch]
        deleted.time(lambda keys=keys: store.delete(keys))  # type: ignore[misc]
    again = put_all(store, rows, islice(rows.shuffled(3), half), 2)
    store.finish_writes()
    expect(store.sum_ages(), sum(rows.age(number, 2) for number in range(rows.count)))
    return figures | {
        "delete half": half / deleted.seconds,
        "put half": half / again.seconds,
        "put half: file": file_ratio(store, folder, rows),
    }


def work(name: str, folder: Path, rows: Rows, indexes: int, *, churns: bool) -> Figures:
    """Load a table with indexes, read it and put rows; if it `churns`, overwrite and delete them, too."""
    store = BIG_STORES[name](folder)
    if indexes:
        store.create_indexes(indexes)
    figures = load(store, folder, rows) | read(store, rows, indexes > 0) | put_singly(store, rows)
    if churns:
        figures |= churn(store, folder, rows)
    store.close()
    return figures


def one_commit(name: str, folder: Path, rows: Rows) -> Figures:
    """Load all rows in one commit. The time that making the rows takes is measured and taken off."""
    store = BIG_STORES[name](folder)
    making = best_of(1, lambda: sum(rows.row(number).age for number in range(rows.count)))
    seconds = best_of(1, lambda: store.commit(map(rows.row, range(rows.count))))
    expect(store.number_of(rows.key(rows.count - 1)), rows.count - 1)
    store.close()
    return {"load in one commit": rows.count / max(seconds - making, 1e-9)}


def compressed(folder: Path, rows: Rows) -> Figures:
    """Load all rows into a compressed table, and get some of them."""
    store = CompressedBigTable(folder)
    figures = load(store, folder, rows) | read(store, rows, has_indexes=False)
    store.close()
    return {f"compressed: {title.removeprefix('load: ')}": figures[title] for title in PLAIN}


def soak(name: str, folder: Path, rows: Rows, seconds: float) -> Figures:
    """Put rows at random, `SOAK_RATE` a second at most, with one snapshot after the other open."""
    store = BIG_STORES[name](folder)
    put_all(store, rows, iter(range(rows.count)), 0)
    put, clock, size, done = store.putter(), time.perf_counter, 0, 0
    numbers = rows.picked(100_000, 4)
    started = clock()
    while (begun := clock()) < started + seconds:
        with store.snapshot():
            end = min(begun + SNAPSHOT_SECONDS, started + seconds)
            while clock() < end:
                for number in numbers[done % 100_000 :][:1_000]:
                    put(rows.row(number, done))
                    done += 1
                size = max(size, size_of(folder))
                time.sleep(max(0.0, started + done / SOAK_RATE - clock()))
    store.finish_writes()
    figures = {"soak: puts": done / (clock() - started), "soak: file": size}
    store.close()
    return figures | {"soak: file at the end": size_of(folder)}


def load_until_killed(name: str, folder: Path, rows: Rows) -> None:
    """Load rows, and say after each commit how many there are."""
    store = BIG_STORES[name](folder)
    done = 0
    for batch in batches(iter(range(rows.count))):
        store.commit([rows.row(number) for number in batch])
        done += len(batch)
        print(done, flush=True)


def reopen(name: str, folder: Path, rows: Rows) -> Figures:
    """Open a store whose writer was killed, and get its first row."""
    logs = sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if _is_log(path))
    started = time.perf_counter()
    store = BIG_STORES[name](folder)
    number = store.number_of(rows.key(0))
    seconds = time.perf_counter() - started
    expect(number, 0)
    store.close()
    return {"kill: open": seconds, "kill: log": logs}


def _is_log(path: Path) -> bool:
    return path.name.endswith(("-log", "-wal", ".log"))


def size_of(folder: Path) -> int:
    """Return the bytes that the files of a folder take on the disk."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_blocks * 512
        except FileNotFoundError:
            continue  # compacted away in between
    return total


def file_ratio(store: BigStore, folder: Path, rows: Rows) -> float:
    """Return the size of the files, as a multiple of the encoded keys and rows in them."""
    return size_of(folder) / store.live_size(rows.count)


def kill_in_the_middle(name: str, folder: Path, count: int, order: str) -> Figures:
    """Kill a process that loads rows, and measure the next one that opens the store."""
    command = [sys.executable, "-m", f"pellucid_bench.{MODULE}", "--child", "load_until_killed"]
    command += [name, str(folder), str(count), order]
    with subprocess.Popen(command, env=child.environment(), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if int(line) >= count // 2:
                # A moment later, it is in the middle of the next commit.
                time.sleep(0.05)
                break
        process.send_signal(signal.SIGKILL)
    figures: Figures = child.run_module(MODULE, "reopen", name, folder, count, order)
    return figures


def figures_of(run: Run, name: str, count: int, order: str) -> Figures:
    """Take all measures of one library at one size."""
    settings = run.settings
    found: Figures = {}

    def part(label: str, take: Callable[[Path], Figures]) -> None:
        folder = Path(tempfile.mkdtemp(prefix="scale-", dir=run.directory))
        run.pace.on_progress(f"{name}, {count:,} rows, {order} keys: {label}")
        try:
            found.update(take(folder))
        finally:
            shutil.rmtree(folder)

    store, parts = BIG_STORES[name], settings.parts
    for indexes in settings.indexes if "load" in parts else ():
        if indexes and not store.has_indexes:
            continue
        churns = "churn" in parts and not indexes

        def all_measures(folder: Path, indexes: int = indexes, churns: bool = churns) -> Figures:
            taken = child.run_module(MODULE, "work", name, folder, count, order, indexes, int(churns))
            return {_title(title, indexes): figure for title, figure in taken.items()}

        part(f"{indexes} indexes", all_measures)
    if name == "pellucid" and "compressed" in parts:
        part("compressed", lambda folder: child.run_module(MODULE, "compressed", name, folder, count, order))
    if store.has_one_commit and "one-commit" in parts:
        part("one commit", lambda folder: child.run_module(MODULE, "one_commit", name, folder, count, order))
    if "kill" in parts:
        part("kill", lambda folder: kill_in_the_middle(name, folder, count, order))
    if settings.soak > 0 and "soak" in parts:
        soaked = min(SOAK_ROWS, count)
        part(
            "soak",
            lambda folder: child.run_module(MODULE, "soak", name, folder, soaked, order, settings.soak),
        )
    return found


def _title(title: str, indexes: int) -> str:
    return f"{title}, {indexes} indexes" if indexes and not title.startswith("index ") else title


UNITS: dict[str, Unit] = {
    "load": Unit.RATE,
    "load: memory": Unit.BYTES,
    "load: settle": Unit.TIME,
    "load: file": Unit.FACTOR,
    "load in one commit": Unit.RATE,
    "get": Unit.TIME,
    "key range": Unit.TIME,
    "sum": Unit.RATE,
    "index get": Unit.TIME,
    "index range": Unit.TIME,
    "put: median": Unit.TIME,
    "put: p99": Unit.TIME,
    "put: worst": Unit.TIME,
    "overwrite": Unit.RATE,
    "overwrite: file": Unit.FACTOR,
    "delete half": Unit.RATE,
    "put half": Unit.RATE,
    "put half: file": Unit.FACTOR,
    "compressed: load": Unit.RATE,
    "compressed: file": Unit.FACTOR,
    "compressed: get": Unit.TIME,
    "kill: open": Unit.TIME,
    "kill: log": Unit.BYTES,
    "soak: puts": Unit.RATE,
    "soak: file": Unit.BYTES,
    "soak: file at the end": Unit.BYTES,
}
"""What is measured, in the order of the report, with its unit."""
RIVALS = {
    "load": [Target(1.0, "rocksdict"), Target(2.0, "lmdb")],
    "get": [Target(1.0, "lmdb"), Target(3.0, "rocksdict")],
    "index range": [Target(1.5, "sqlite3")],
}
BOUNDS = {
    "load in one commit": 500_000,
    "sum": 60e6,
    "put: median": 5e-6,
    "put: p99": 50e-6,
    "put: worst": 50e-3,
    "load: file": 1.4,
    "overwrite: file": 1.6,
    "put half: file": 1.6,
    "soak: file": 300 * MEGABYTE,
    "load: memory": 356 * MEGABYTE,
}
NO_INDEX = "pellucid, without indexes"
NOT_COMPRESSED = "pellucid, not compressed"
PLAIN = {"load": 0.7, "load: file": 1 / 0.5, "get": 1 / 1.5}
"""What is measured of a compressed table too, and how many times as good it is to be as a plain one."""


def run(run: Run) -> None:
    """Measure all libraries in turn, at each size and with each order of keys."""
    found = [name for name, store in BIG_STORES.items() if run.takes(name) and run.rivals.find(store.module)]
    run.absent = {name: why for name, why in run.rivals.missing.items() if name in BIG_STORES}
    for part in run.settings.parts:
        if part not in PARTS:
            raise Unavailable(f"--parts are some of {', '.join(PARTS)}, not {part!r}")
    for count in run.settings.rows:
        for order in run.settings.keys:
            if order not in KEY_ORDERS:
                raise Unavailable(f"--keys is one of {' and '.join(KEY_ORDERS)}, not {order!r}")
            if has_space(run.directory, count):
                one_size(run, found, count, order)
            else:
                needed = Unit.BYTES.show(SPACE_FACTOR * ROW_SIZE * count)
                run.notes.append(f"{count:,} rows are left out: they need {needed}; see --directory")


def one_size(run: Run, found: list[str], count: int, order: str) -> None:
    """Measure all libraries in turn at one size."""
    results: dict[str, dict[str, Result]] = {}
    failed: dict[str, str] = {}
    run.pace.on_progress(f"{count:,} rows, {order} keys")
    try:
        for _, name in in_turn(found, run.pace.rounds_of(1)):
            whole = Result(name)
            with kept(whole):
                for title, figure in figures_of(run, name, count, order).items():
                    row = results.setdefault(title, {}).setdefault(name, Result(name, name == "pellucid"))
                    is_rate = UNITS[title.partition(",")[0]].is_rate
                    row.costs.append(1 / figure if is_rate else figure)
            if whole.error:
                failed[name] = whole.error
    finally:
        run.absent |= failed
        for title in sorted(results, key=lambda title: list(UNITS).index(title.partition(",")[0])):
            measure = made(title, list(results[title].values()), results, count, order)
            if run.wants(measure.title):
                run.add(measure)


def made(
    title: str, rows: list[Result], results: dict[str, dict[str, Result]], count: int, order: str
) -> Measure:
    """Make one measure of one size, with its targets."""
    targets = list(RIVALS.get(title, []))
    if title in BOUNDS:
        targets.append(Target(BOUNDS[title]))
    if title == "kill: open" and (log := results.get("kill: log", {}).get("pellucid")):
        targets.append(Target(max(1.0, log.median / (128 * MEGABYTE))))
    without = results.get("load", {}).get("pellucid")
    if title == "load, 2 indexes" and without is not None:
        rows.append(Result(NO_INDEX, is_reference=True, costs=list(without.costs)))
        targets.append(Target(0.4, NO_INDEX))
    for plain, wanted in PLAIN.items():
        beside = results.get(plain, {}).get("pellucid")
        if title == f"compressed: {plain.removeprefix('load: ')}" and beside is not None:
            rows.append(Result(NOT_COMPRESSED, is_reference=True, costs=list(beside.costs)))
            targets.append(Target(wanted, NOT_COMPRESSED))
    return Measure(
        f"{title}: {count:,} rows, {order} keys",
        UNITS[title.partition(",")[0]],
        rows,
        targets,
        [f"rows of {ROW_SIZE} bytes with their keys, commits of {COMMIT:,} rows"],
        f"{title.replace(':', '').replace(',', '').replace(' ', '-')}-{order}",
        count,
        size_unit="rows",
    )


def has_space(directory: Path, count: int) -> bool:
    """Say whether the files of this many rows have room on the disk."""
    return shutil.disk_usage(directory).free > SPACE_FACTOR * ROW_SIZE * count


def _work_as_child(verb: str, name: str, folder: str, count: str, order: str, *more: str) -> None:
    rows, where = Rows(int(count), order), Path(folder)
    if verb == "load_until_killed":
        load_until_killed(name, where, rows)
        return
    if verb == "work":
        figures = work(name, where, rows, int(more[0]), churns=more[1] == "1")
    elif verb == "soak":
        figures = soak(name, where, rows, float(more[0]))
    elif verb == "compressed":
        figures = compressed(where, rows)
    else:
        figures = {"one_commit": one_commit, "reopen": reopen}[verb](name, where, rows)
    print(json.dumps(figures))


if __name__ == "__main__":
    _work_as_child(*sys.argv[2:])
