"""This module measures queries over a million records: filters, sums, groups, orders, updates.

All contenders answer the same questions on one thread (`queries.py`). For the first question there are also
figures with two threads. `columns.py` measures the export of columns.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pellucid

from pellucid_bench.about import About, Setting
from pellucid_bench.contenders.duckdb import Duck
from pellucid_bench.contenders.pellucid import Ours, threads
from pellucid_bench.contenders.queries import ABOVE, FROM, PREFIX, TOP, Groups, Queried, queried
from pellucid_bench.experiments import access_paths, columns, indexes
from pellucid_bench.measures import Target, Unit
from pellucid_bench.run import Run
from pellucid_bench.runner import Contender, WrongAnswerError, freeze, timed, unfreeze
from pellucid_bench.sample_records import VARIED, Record

ABOUT = About(
    "query",
    "What do questions to many rows cost?",
    "Counts, sums, groups, orders and changes rows, exports columns, builds and uses indexes, and compares "
    "the chosen access paths with the best ones.",
    (
        Setting("rows", 1_000_000, 3_000, "rows of the tables"),
        Setting("commits", 20_000, 50, "rows that are appended, each with a commit"),
        Setting("seed", 1, 1, "the seed of the random tables and queries for access paths"),
    ),
)

COUNT = "count where one field is above a number"
COUNT_PREFIX = "count where a nested string begins with a prefix"
GROUPS = "sum and mean in 100 groups"
FIRST = f"the {TOP} greatest by one field"
MATCHES = "loop over the rows that pass, one in ten"
AGES = "one field of all rows, as a list"
GROW = "change one field of every row, in one transaction"
TITLES = [COUNT, COUNT_PREFIX, GROUPS, FIRST, MATCHES, AGES, GROW]

TWO_THREADS = "pellucid, two threads"
CHANGED = "pellucid, in a changed transaction"


def run(run: Run) -> None:
    """Run every measure."""
    indexes.run(run)
    pellucid.set_threads(1)
    try:
        access_paths.run(run)
    finally:
        pellucid.set_threads(None)
    if not any(map(run.wants, [*TITLES, *columns.TITLES])):
        return
    count = run.settings.rows
    run.pace.on_progress(f"make {count:,} dicts ({VARIED.name})")
    records = VARIED.records(count)
    everybody = run.gather(partial(queried, directory=run.directory))
    # A million dicts stay alive through all measures. They would make each full collection slow for all
    # contenders.
    freeze()
    pellucid.set_threads(1)
    try:
        run.pace.on_progress(f"load {count:,} rows")
        everybody = run.able(everybody, lambda one: one.fill(records))
        counts(run, everybody, records)
        sums(run, everybody, records)
        rows(run, everybody, records)
        columns.run(run, everybody, records)
        changes(run, everybody, records)
    finally:
        pellucid.set_threads(None)
        for one in everybody:
            one.remove()
        unfreeze()


def contenders(
    run: Run, everybody: Sequence[Queried], question: Callable[[Queried], Callable[[], object]], count: int
) -> list[Contender]:
    """Make a contender of each library for one question. The cost is that of one of `count` rows."""
    seconds = run.pace.repeat_seconds
    return [
        timed(one.name, question(one), count, repeat_seconds=seconds, is_ours=one.is_ours)
        for one in everybody
    ]


def within(
    surroundings: Callable[[], contextlib.AbstractContextManager[None]], one: Contender, name: str, like: str
) -> Contender:
    """Return the same contender inside a context that is not timed."""

    def inside(work: Callable[[], Any]) -> Callable[[], Any]:
        def do() -> Any:
            with surroundings():
                return work()

        return do

    answer = inside(one.answer) if one.answer else None
    return dataclasses.replace(one, name=name, sample=inside(one.sample), answer=answer, like=like)


def counts(run: Run, everybody: Sequence[Queried], records: Sequence[Record]) -> None:
    """Measure counts with a filter: with one thread, with two, and in a transaction that changed a row."""
    if run.wants(COUNT):
        found = contenders(run, everybody, lambda one: one.count_above, len(records))
        for one, contender in list(zip(everybody, found, strict=True)):
            if isinstance(one, Ours):
                found.insert(1, within(partial(threads, 2), contender, TWO_THREADS, ""))
                found.insert(2, within(one.in_changed_transaction, contender, CHANGED, ""))
            if isinstance(one, Duck):
                found.append(within(partial(one.threads, 2), contender, "duckdb, two threads", TWO_THREADS))
        run.measure(
            COUNT,
            Unit.RATE,
            found,
            expected=sum(record["age"] > ABOVE for record in records),
            targets=[Target(50e6), Target(35e6, ours=CHANGED), Target(1.7, "pellucid", TWO_THREADS)],
            notes=["half of the rows match; *in a changed transaction*: one that changed a row"],
        )
    if run.wants(COUNT_PREFIX):
        run.measure(
            COUNT_PREFIX,
            Unit.RATE,
            contenders(run, everybody, lambda one: one.count_prefix, len(records)),
            expected=sum(record["mydict"]["c"]["nested"].startswith(PREFIX) for record in records),
            targets=[Target(20e6)],
            notes=["one row in eight matches; stores with columns have one for the nested string"],
        )


def sums(run: Run, everybody: Sequence[Queried], records: Sequence[Record]) -> None:
    """Measure sums and means in groups."""
    if run.wants(GROUPS):
        run.measure(
            GROUPS,
            Unit.RATE,
            contenders(run, everybody, lambda one: one.groups, len(records)),
            expected=_groups(records),
            targets=[Target(20e6)],
            notes=["groups of one string; the sum of floats, the mean of ints"],
        )


def _groups(records: Sequence[Record]) -> Groups:
    groups = defaultdict(list)
    for record in records:
        groups[record["end"]].append(record)
    return [
        (end, sum(one["amt"] for one in group), sum(one["age"] for one in group) / len(group))
        for end, group in sorted(groups.items())
    ]


def rows(run: Run, everybody: Sequence[Queried], records: Sequence[Record]) -> None:
    """Measure queries that return rows and values to Python."""
    if run.wants(FIRST):
        run.measure(
            FIRST,
            Unit.RATE,
            contenders(run, everybody, lambda one: one.top, len(records)),
            expected=sorted((record["amt"] for record in records), reverse=True)[:TOP],
            targets=[Target(40e6)],
        )
    if run.wants(MATCHES):
        passing = [record["amt"] for record in records if record["age"] >= FROM]
        run.measure(
            MATCHES,
            Unit.RATE,
            contenders(run, everybody, lambda one: one.add_matches, len(passing)),
            expected=sum(passing),
            targets=[Target(5e6)],
            notes=["the rate counts the rows that match; the time also pays for the others"],
        )
    if run.wants(AGES):
        expected = [record["age"] for record in records]
        run.measure(
            AGES, Unit.RATE, contenders(run, everybody, lambda one: one.ages, len(records)), expected=expected
        )


def changes(run: Run, everybody: Sequence[Queried], records: Sequence[Record]) -> None:
    """Measure an update of one field in each row."""
    if not run.wants(GROW):
        return
    total = sum(record["age"] for record in records)

    def older(one: Queried) -> int:
        one.grow_older()
        return sum(one.ages())

    rounds = run.pace.bulk_rounds
    run.measure(
        GROW,
        Unit.RATE,
        [
            dataclasses.replace(
                timed(one.name, one.grow_older, len(records), is_ours=one.is_ours), answer=partial(older, one)
            )
            for one in everybody
        ],
        rounds=rounds,
        expected=total + len(records),
        targets=[Target(1e6)],
        notes=["`age` becomes `age + 1`, with the commit; polars makes a new column in memory"],
    )
    for one in everybody:
        if sum(one.ages()) != total + len(records) * (rounds + 1):
            raise WrongAnswerError(f"{GROW}: {one.name} did not keep what was set")
