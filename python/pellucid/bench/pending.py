"""What do commits cost that wait in the log: a scan that merges them, an open that replays them?

A checkpoint ends the waiting: it begins when an area of the log is half full (16 MiB), or when its oldest
commit has waited for 5 seconds. So rows are small, what is timed comes right behind the puts, and a sample
counts only if all that was pending still is when it ends.
"""

from __future__ import annotations

import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pellucid.bench import child
from pellucid.bench.measures import Target, Unit
from pellucid.bench.run import Run
from pellucid.bench.runner import Contender, WrongAnswerError, function
from pellucid.bench.writers import OURS, SQLITE, Writer, repeated, row

TRIES = 5
"""How often a sample is taken anew because of a checkpoint."""
LOOKS = 10
"""How often the log is looked at while it is filled."""


class CheckpointCameError(Exception):
    """What should have been pending is in the file."""


def run(run: Run, everybody: Sequence[Writer]) -> None:
    """Every measure of this module."""
    scans(run, everybody)
    recoveries(run, everybody)


def again(title: str, sample: Callable[[], float]) -> float:
    """Take a sample until no checkpoint comes in between."""
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
    """A folder that is gone afterwards."""
    path = run.directory / "pending"
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path)


class Scanned:
    """A file with a table that is scanned, with nothing pending or with much."""

    def __init__(self, writer: Writer, path: Path, rows: int, pending: int) -> None:
        self.writer, self.rows = writer, rows
        self.name = f"{writer.name}, {pending:,} pending" if pending else writer.name
        # Spread over the table, and each with the value that it has: the sum stays.
        step = rows // pending if pending else 1
        self.pairs = [(number * step, row(number * step)) for number in range(pending)]
        self.opened = writer.open(path)
        names = self.opened.names()
        self.opened.fill(row(number) for number in range(rows))
        self.loop = repeated("if True:", writer.loop, names)
        self.sum = function("", writer.sum, names) if writer.sum else None
        self._put = repeated("for k, v in pairs:", writer.put, names, "pairs")
        if writer is SQLITE:
            # Or its log would be written back every 1,000 pages.
            names["execute"]("PRAGMA wal_autocheckpoint = 0")
            self._put = repeated("if True:", writer.transaction, names, "pairs")

    def contender(self, title: str, work: Callable[[], object]) -> Contender:
        """The scan as a contender; `work` is one of this file's."""
        like = f"{OURS.name}, {len(self.pairs):,} pending" if self.pairs else ""
        return Contender(
            self.name,
            lambda: again(title, lambda: self._sample(work)),
            work,
            is_ours=self.writer.is_ours,
            like=like,
        )

    def _sample(self, work: Callable[[], object]) -> float:
        """Seconds for a row, right behind the puts."""
        self.opened.settle()
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
    """Whether a log only grew: empty at first, more with each look, and in the end as before the scan.

    >>> all_pending([0, 80, 160, 160]), all_pending([0, 80, 40, 40]), all_pending([0, 80, 160, 0])
    (True, False, False)
    >>> all_pending([0, 0])
    True
    """
    *filling, final = sizes
    grew = all(one < other for one, other in itertools.pairwise(filling))
    return filling[0] == 0 and grew and final == filling[-1]


def scans(run: Run, everybody: Sequence[Writer]) -> None:
    """A loop and a sum over all rows, with an empty overlay and with many entries in it."""
    rows, pending = run.scale.rows, min(run.scale.pending, run.scale.rows)
    looped = "loop over many small rows, some of them pending"
    summed = "sum of one field of many small rows, some of them pending"
    if not run.wants(looped) and not run.wants(summed):
        return
    run.pace.on_progress("fill the tables that are scanned")
    expected = sum(row(number)["age"] for number in range(rows))
    notes = [
        f"{rows:,} rows; pending: put one by one once all were stored, spread over them, not in the file yet",
        "for SQLite: put in one transaction, and in its WAL, which is not written back meanwhile",
    ]
    ours = f"{OURS.name}, {pending:,} pending"
    with home(run) as folder:
        files = [Scanned(writer, folder / str(index), rows, 0) for index, writer in enumerate(everybody)]
        files += [Scanned(writer, folder / writer.module, rows, pending) for writer in (OURS, SQLITE)]
        try:
            # The foundation's figures, and half of them.
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
    """Open what a process left that put rows one by one and was then killed."""
    count = run.scale.pending
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
        rounds=run.scale.start_rounds,
        targets=[Target(0.2)],
        notes=[
            "up to the first row that is read; a process put as many rows one by one and killed itself",
            "SQLite writes its WAL back every 1,000 pages, so that less is left; lmdb has nothing to replay",
        ],
    )
