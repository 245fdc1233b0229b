"""This module measures several writers of one file, and how soon one process sees a put of another.

It measures the rate of the disk itself in turn with the contenders that wait for the disk: it writes 4 KiB
over an existing file, calls `fdatasync`, and repeats this.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import statistics
import threading
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pellucid_bench import child, writer_processes
from pellucid_bench.contenders.writers import Opened, Writer, row
from pellucid_bench.measures import Measure, Result, Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, WrongAnswerError, function, in_turn, kept

WRITERS = 8
DISK = "(the disk alone)"
DISK_FILE_SIZE = 4 << 20
PAGE = 4_096


def run(run: Run, everybody: Sequence[Writer]) -> None:
    """Run every measure of this module."""
    shared = [writer for writer in everybody if writer.is_shared]
    trades(run, shared)
    visibility(run, shared)
    synced(run, everybody)


def made(run: Run, writer: Writer, rows: int) -> Path:
    """Make a file with this number of rows, in its own folder, and close it."""
    home = run.directory / "together"
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir()
    opened = writer.open(home / "people")
    opened.fill(row(number, 0) for number in range(rows))
    opened.close()
    return home / "people"


def trades(run: Run, everybody: Sequence[Writer]) -> None:
    """Measure two processes, each of which puts and reads what the other one put."""

    def sample(writer: Writer) -> float:
        path = made(run, writer, 2 * writer_processes.KEYS)
        seconds = str(run.settings.together_seconds)
        traders = child.together(
            *(["trade", writer.name, str(path), str(number), seconds] for number in (0, 1))
        )
        _check_trades(writer, path, traders)
        shutil.rmtree(path.parent)
        # Each turn is a put and a read.
        rate: float = sum(2 * trader["done"] / trader["seconds"] for trader in traders)
        return 1 / rate

    run.measure(
        "two processes, each putting and reading what the other put",
        Unit.OPERATIONS,
        [Contender(one.name, partial(sample, one), is_ours=one.is_ours) for one in everybody],
        rounds=run.pace.start_rounds,
        targets=[Target(300_000)],
        notes=["both processes together; each put is a commit, each read sees all commits so far"],
    )


def _check_trades(writer: Writer, path: Path, traders: list[dict[str, Any]]) -> None:
    """Check the last value that each of the two processes put under each key."""
    opened = writer.open(path)
    age = function("k", writer.age, opened.names())
    for number, trader in enumerate(traders):
        other = traders[1 - number]["done"]
        if not 0 <= trader["seen"] < other:
            raise WrongAnswerError(f"{writer.name} saw {trader['seen']}, of {other} puts")
        for n in range(max(0, trader["done"] - writer_processes.KEYS), trader["done"]):
            answer = age(number * writer_processes.KEYS + n % writer_processes.KEYS)
            if answer != n:
                raise WrongAnswerError(f"{writer.name} has {answer!r} where process {number} put {n}")
    opened.close()


def visibility(run: Run, everybody: Sequence[Writer]) -> None:
    """Measure how old a put is when another process sees it: the median, and the slowest of a hundred."""
    notes = [
        "from before the put to the end of the read that sees it; the reader reads all the time",
        f"two processes in turn, {run.settings.exchanges:,} times each",
    ]
    middle = Measure("until another process sees a put, median", Unit.TIME, notes=notes)
    slowest = Measure("until another process sees a put, 99 of 100", Unit.TIME, notes=notes)
    measures = [measure for measure in (middle, slowest) if run.wants(measure.title)]
    if not measures:
        return
    run.pace.on_progress("until another process sees a put")
    for measure in measures:
        measure.targets = [Target(50e-6)]
        measure.results = [Result(writer.name, writer.is_ours) for writer in everybody]
        run.add(measure)
    for _, (index, writer) in in_turn(list(enumerate(everybody)), run.pace.start_rounds):
        if measures[0].results[index].error is not None:
            continue
        with contextlib.ExitStack() as stack:
            for measure in measures:
                stack.enter_context(kept(measure.results[index]))
            delays = _delays(run, writer)
            for measure in measures:
                quantile = statistics.median(delays) if measure is middle else delays[len(delays) * 99 // 100]
                measure.results[index].costs.append(quantile / 1e9)


def _delays(run: Run, writer: Writer) -> list[int]:
    """Return the nanoseconds of one exchange, sorted."""
    path = made(run, writer, 2 * writer_processes.KEYS)
    count = str(run.settings.exchanges)
    both = child.together(*(["exchange", writer.name, str(path), str(number), count] for number in (0, 1)))
    shutil.rmtree(path.parent)
    return sorted(delay for one in both for delay in one["delays"])


def synced(run: Run, everybody: Sequence[Writer]) -> None:
    """Measure transactions that are on the disk when they return, with one writer and with eight."""
    seconds = run.settings.together_seconds
    each = "the disk alone: a write of 4 KiB and fdatasync, by one"
    disk = Contender(DISK, partial(disk_sample, run.directory, seconds), is_reference=True)

    run.measure(
        "transactions of 10 puts in full, one writer",
        Unit.OPERATIONS,
        [*(_synced_by(run, writer, writer.name, 1, threads=True) for writer in everybody), disk],
        rounds=run.pace.start_rounds,
        targets=[Target(1, DISK)],
        notes=[each],
    )
    contenders = [disk]
    for writer in everybody:
        contenders.append(_synced_by(run, writer, f"{writer.name}, threads", WRITERS, threads=True))
        if writer.is_shared:
            contenders.append(_synced_by(run, writer, f"{writer.name}, processes", WRITERS, threads=False))
    run.measure(
        "transactions of 10 puts in full, eight writers",
        Unit.OPERATIONS,
        contenders,
        rounds=run.pace.start_rounds,
        targets=[Target(4, DISK, ours=f"pellucid, {kind}") for kind in ("threads", "processes")],
        notes=[each, "all eight together"],
    )


def _synced_by(run: Run, writer: Writer, name: str, count: int, *, threads: bool) -> Contender:
    def sample() -> float:
        path = made(run, writer, count * writer_processes.KEYS)
        seconds = run.settings.together_seconds
        if threads:
            opened = writer.open(path, full=True)
            try:
                done = in_threads(writer, opened, count, seconds)
            finally:
                opened.close()
        else:
            commands = [["commit", writer.name, str(path), str(n), str(seconds)] for n in range(count)]
            done = child.together(*commands)
        shutil.rmtree(path.parent)
        rate: float = sum(one["done"] / one["seconds"] for one in done)
        return 1 / rate

    like = "pellucid, threads" if threads else "pellucid, processes"
    return Contender(name, sample, is_ours=writer.is_ours, like=like if count > 1 else "")


def in_threads(writer: Writer, opened: Opened, count: int, seconds: float) -> list[dict[str, Any]]:
    """Run this number of threads in this process, each with transactions on its own rows."""
    done: list[dict[str, Any]] = []
    start = threading.Barrier(count)

    def work(number: int) -> None:
        names = opened.names()
        start.wait()
        done.append(writer_processes.commit(writer, names, number, seconds))

    crew = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in crew:
        thread.start()
    for thread in crew:
        thread.join()
    if len(done) < count:
        raise RuntimeError(f"{count - len(done)} of {count} threads of {writer.name} failed")
    return done


def disk_sample(directory: Path, seconds: float) -> float:
    """Return the seconds of one write of a page and its sync, in a file whose pages all exist."""
    path = directory / "disk"
    # Without fdatasync, the system syncs the data together with the time of the change.
    sync = getattr(os, "fdatasync", os.fsync)
    page = bytes(range(256)) * (PAGE // 256)
    with path.open("wb", buffering=0) as file:
        for _ in range(DISK_FILE_SIZE // PAGE):
            file.write(page)
        os.fsync(file.fileno())
        file.seek(0)
        count, started = 0, time.perf_counter()
        while (elapsed := time.perf_counter() - started) < seconds:
            if count % (DISK_FILE_SIZE // PAGE) == 0:
                file.seek(0)
            file.write(page)
            sync(file.fileno())
            count += 1
    path.unlink()
    return elapsed / count
