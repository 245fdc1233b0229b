"""This module measures commits that are pending in the log: scans that merge them, opens that replay them.

A checkpoint writes pending commits into the file. It begins when a segment of the log is half full (16 MiB),
or when its oldest commit has waited for 5 seconds. So the rows are small, and the timed part follows the puts
at once. A sample counts only if all commits are still pending at its end.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pellucid_bench import child
from pellucid_bench.contenders.pellucid import OURS
from pellucid_bench.contenders.sqlite3 import SQLITE
from pellucid_bench.contenders.writers import Writer, repeated, row
from pellucid_bench.measures import Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, WrongAnswerError, function

TRIES = 5
"""How often a sample is repeated because of a checkpoint."""
LOOKS = 10
"""How often the size of the log is read while it is filled."""


class CheckpointCameError(Exception):
    """Raised when commits that should be pending are already in the file."""


def run(run: Run, everybody: Sequence[Writer]) -> None:
    """Run every measure of this module."""
    scans(run, everybody)
    recoveries(run, everybody)


def again(title: str, sample: Callable[[], float]) -> float:
    """Take a sample, and repeat it if a checkpoint ran meanwhile."""
    for _ in range(TRIES):
        try:
            return sample()
        except CheckpointCameError:
            continue
    raise RuntimeError(
        f"{title}: {TRIES} times in a row a checkpoint came in between, as it does 5 seconds after the first "
        "put; run it where less else runs"
    )


@contextmanager
def home(run: Run) -> Iterator[Path]:
    """Make a folder, and remove it at the end."""
    path = run.directory / "pending"
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Scanned:
    """A file with a table to scan, with few or many pending commits."""

    def __init__(self, writer: Writer, path: Path, rows: int, pending: int) -> None:
        self.writer, self.rows = writer, rows
        self.name = f"{writer.name}, {pending:,} pending" if pending else writer.name
        # Spread over the table, and each keeps its value. So the sum stays the same.
        step = rows // pending if pending else 1
        self.pairs = [(number * step, row(number * step)) for number in range(pending)]
        self.opened = writer.open(path)
        names = self.opened.names()
        self.opened.fill(row(number) for number in range(rows))
        self.loop = repeated("if True:", writer.loop, names)
        self.sum = function("", writer.sum, names) if writer.sum else None
        self._put = repeated("for k, v in pairs:", writer.put, names, "pairs")
        if writer is SQLITE:
            # Otherwise SQLite would write its log back every 1,000 pages.
            names["execute"]("PRAGMA wal_autocheckpoint = 0")
            self._put = repeated("if True:", writer.transaction, names, "pairs")

    def contender(self, title: str, work: Callable[[], object]) -> Contender:
        """Make a contender of the scan. `work` scans this file."""
        like = f"{OURS.name}, {len(self.pairs):,} pending" if self.pairs else ""
        return Contender(
            self.name,
            lambda: again(title, lambda: self._sample(work)),
            work,
            is_ours=self.writer.is_ours,
            like=like,
        )

    def _sample(self, work: Callable[[], object]) -> float:
        """Return the seconds for one row, measured directly after the puts."""
        self.opened.finish_writes()
        pending = [self._pending()]
        share = -(-len(self.pairs) // LOOKS)
        for start in range(0, len(self.pairs), max(1, share)):
            self._put(self.pairs[start : start + share])
            pending.append(self._pending())
        started = time.perf_counter()
        work()
        seconds = time.perf_counter() - started
        if self.writer.is_ours and not all_pending([*pending, self._pending()]):
            raise CheckpointCameError
        return seconds / self.rows

    def _pending(self) -> int:
        return self.opened.stats().get("log_pending", 0)


def all_pending(sizes: Sequence[int]) -> bool:
    """Say whether a log only grew: empty at first, larger each time, and the same after the scan.

    >>> all_pending([0, 80, 160, 160]), all_pending([0, 80, 40, 40]), all_pending([0, 80, 160, 0])
    (True, False, False)
    >>> all_pending([0, 0])
    True
    """
    *filling, final = sizes
    grew = all(one < other for one, other in itertools.pairwise(filling))
    return filling[0] == 0 and grew and final == filling[-1]


def scans(run: Run, everybody: Sequence[Writer]) -> None:
    """Measure a loop and a sum over all rows, with an empty memtable and with many entries in it."""
    rows, pending = run.settings.rows, min(run.settings.pending, run.settings.rows)
    looped = "loop over many small rows, some of them pending"
    summed = "sum of one field of many small rows, some of them pending"
    if not run.wants(looped) and not run.wants(summed):
        return
    run.pace.on_progress("fill the tables that are scanned")
    expected = sum(row(number)["age"] for number in range(rows))
    notes = [
        f"{rows:,} rows; pending: put again one by one, spread over the rows, and not in the file yet",
        "for SQLite: put in one transaction, and kept in its WAL",
    ]
    ours = f"{OURS.name}, {pending:,} pending"
    with home(run) as folder:
        files = [Scanned(writer, folder / str(index), rows, 0) for index, writer in enumerate(everybody)]
        files += [Scanned(writer, folder / writer.module, rows, pending) for writer in (OURS, SQLITE)]
        try:
            # The targets without pending commits, and half of these with pending commits.
            run.measure(
                looped,
                Unit.RATE,
                [file.contender(looped, file.loop) for file in files],
                expected=expected,
                targets=[Target(16e6), Target(8e6, ours=ours)],
                notes=notes,
            )
            run.measure(
                summed,
                Unit.RATE,
                [file.contender(summed, file.sum) for file in files if file.sum],
                expected=expected,
                targets=[Target(60e6), Target(30e6, ours=ours)],
                notes=notes,
            )
        finally:
            for file in files:
                file.opened.close()


def recoveries(run: Run, everybody: Sequence[Writer]) -> None:
    """Measure how long an open takes after a process put rows one by one and was killed."""
    count = run.settings.pending
    title = f"open after a crash with {count:,} entries pending"
    expected = sum(row(number)["age"] for number in range(count))

    def sample(writer: Writer) -> float:
        with home(run) as folder:
            path = str(folder / "people")
            child.killed("crash", writer.name, path, str(count))
            found = child.run("recover", writer.name, path, str(count))
        if found["total"] != expected:
            raise WrongAnswerError(f"{title}: {writer.name} has {found['total']}, not {expected}")
        if found["recovered"] is not None and found["recovered"] != count:
            raise CheckpointCameError
        return float(found["seconds"])

    def contender(writer: Writer) -> Contender:
        return Contender(writer.name, lambda: again(title, lambda: sample(writer)), is_ours=writer.is_ours)

    run.measure(
        title,
        Unit.TIME,
        [contender(writer) for writer in everybody],
        rounds=run.pace.start_rounds,
        targets=[Target(0.2)],
        notes=[
            "to the first row that is read; a process put these rows one by one and killed itself",
            "SQLite writes its WAL back every 1,000 pages, so it has less to replay; lmdb has nothing",
        ],
    )
