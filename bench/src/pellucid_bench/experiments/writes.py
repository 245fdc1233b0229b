"""This module measures the write path: commits that this process and other processes see at once.

The rows are small and have int keys. This module measures one process with its own commits.
`several_writers.py` has several writers, and `pending_commits.py` reads while commits are pending in the log.
"""

from __future__ import annotations

import contextlib
import dataclasses
import random
import shutil
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from pellucid_bench.about import About, Setting
from pellucid_bench.contenders.pellucid import OURS
from pellucid_bench.contenders.writers import SCANNED, Names, Writer, repeated, row, writers
from pellucid_bench.experiments import pending_commits, several_writers
from pellucid_bench.measures import Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, timed

ABOUT = About(
    "writes",
    "What does a commit cost, and when do other processes see it?",
    "Puts and changes rows as single commits, from one process, from two in turn and from eight writers, and "
    "scans and opens tables with commits that wait in the log.",
    (
        Setting("rows", 1_000_000, 3_000, "rows of the tables that are scanned"),
        Setting("commits", 20_000, 50, "commits of one sample, if each is one operation"),
        Setting("pending", 100_000, 300, "entries that are pending in the log"),
        Setting("exchanges", 5_000, 20, "how often one process waits for a put of the other one"),
        Setting("together_seconds", 1.0, 0.02, "seconds for which several writers are measured"),
    ),
    isolation="never",
)
ROWS = 10_000
"""Rows that are put and changed repeatedly."""


def run(run: Run) -> None:
    """Run every measure."""
    everybody = run.gather(writers)
    pairs(run, everybody)
    changes(run, everybody)
    several_writers.run(run, everybody)
    pending_commits.run(run, everybody)


def pairs(run: Run, everybody: Sequence[Writer]) -> None:
    """Measure a put and a scan of 100 rows that sees it."""
    title = f"a put, then a scan of {SCANNED} rows"
    if not run.wants(title):
        return
    chance = random.Random(5)
    keys = [chance.randrange(ROWS - SCANNED) for _ in range(run.settings.commits)]
    puts = [(key, row(key, number % 80)) for number, key in enumerate(keys)]
    ages = [row(number)["age"] for number in range(ROWS)]
    expected = 0
    for key, value in puts:
        ages[key] = value["age"]
        expected += sum(ages[key : key + SCANNED])
    with files(run, everybody) as opened:
        contenders = []
        for writer, names in opened:
            work = repeated("for k, v in pairs:", f"{writer.put}\n{writer.scan}", names, "pairs")
            contenders.append(timed(writer.name, partial(work, puts), len(puts), is_ours=writer.is_ours))
        note = "both are one operation; the scan begins with this row, and reads a field of each row"
        measure(run, title, contenders, expected, 50_000, note)


def changes(run: Run, everybody: Sequence[Writer]) -> None:
    """Measure updates of one field of one row, each as a commit."""
    title = "rec.age += 1, each a commit"
    if not run.wants(title):
        return
    keys = list(range(ROWS))
    random.Random(6).shuffle(keys)
    keys = [keys[number % ROWS] for number in range(run.settings.commits)]
    expected = sum(row(number)["age"] for number in range(ROWS)) + len(keys)

    def contender(
        name: str, change: Callable[[], object], total: Callable[[], object], ours: bool
    ) -> Contender:
        one = timed(name, change, len(keys), is_ours=ours)
        return dataclasses.replace(one, answer=lambda: (change(), total())[1])

    # Ours is there twice: a record at hand needs no lookup.
    with files(run, [OURS, *everybody]) as opened:
        contenders = []
        for index, (writer, names) in enumerate(opened):
            total = repeated("if True:", writer.loop, names)
            name, head, line, over = writer.name, "for k in keys:", writer.change, keys
            if index == 0:
                head, line, over = "for rec in keys:", "rec.age += 1", records_at(names["table"], keys)
            elif writer.is_ours:
                name = "pellucid, each by its key"
            work = repeated(head, line, names, "keys")
            contenders.append(contender(name, partial(work, over), total, writer.is_ours))
        note = "stores with JSON read, change and put the row; with plyvel this is not atomic"
        measure(run, title, contenders, expected, 1e6, note)


def measure(
    run: Run, title: str, contenders: Sequence[Contender], expected: object, target: float, note: str
) -> None:
    """Measure how often a second each contender does it, and compare this with the target."""
    run.measure(title, Unit.OPERATIONS, contenders, expected=expected, targets=[Target(target)], notes=[note])


def records_at(table: Any, keys: Sequence[int]) -> list[Any]:
    """Read the record of each key once. A key that occurs again has the same record."""
    found = {key: table[key] for key in keys}
    return [found[key] for key in keys]


@contextlib.contextmanager
def files(run: Run, everybody: Sequence[Writer]) -> Iterator[list[tuple[Writer, Names]]]:
    """Make the file of each writer with its rows, and yield names for its lines. Remove it at the end."""
    home = run.directory / "writes"
    home.mkdir()
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, home)
        found = []
        for index, writer in enumerate(everybody):
            opened = writer.open(home / str(index))
            stack.callback(opened.close)
            opened.fill(row(number) for number in range(ROWS))
            found.append((writer, opened.names()))
        yield found
