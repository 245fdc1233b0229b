"""This experiment measures job queues and counters that several processes share.

All processes begin at the same time and run for some seconds. Afterwards, no job may have been claimed twice,
and no addition may be lost.
"""

from __future__ import annotations

import sqlite3
import urllib.parse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pellucid
from pellucid import F

from pellucid_bench import child, server
from pellucid_bench.about import About, Setting
from pellucid_bench.measures import Target, Unit
from pellucid_bench.run import Run, Unavailable
from pellucid_bench.runner import Contender, WrongAnswerError

ABOUT = About(
    "queues",
    "How many jobs do processes claim, and how fast do they count together?",
    "Four processes claim jobs among many finished ones, and eight add to one counter.",
    (
        Setting("finished", 1_000_000, 1_000, "finished jobs in the table"),
        Setting("waiting", 400_000, 20_000, "jobs that wait"),
        Setting("seconds", 2.0, 0.1, "how long the processes run"),
    ),
)

CLAIMERS, COUNTERS = 4, 8
CLAIM = "claims of four processes among finished jobs"
COUNT = "additions to one counter by eight processes"
COUNT_ON_SERVER = "additions to one counter on PostgreSQL by eight processes"
OURS = {"claim": "pellucid, claim", "claim, finish": "pellucid, claim and finish"}


def run(run: Run) -> None:
    """Run every measure."""
    if run.wants(CLAIM):
        claims(run)
    if run.wants(COUNT):
        counts(run)
    if run.wants(COUNT_ON_SERVER):
        counts_on_server(run)


def processes(run: Run, verb: str, count: int, how: str, path: Any) -> tuple[float, list[int]]:
    """Run processes of one kind; return the cost of a step of all together, and what the steps got."""
    words = [verb, how, str(path), str(run.settings.seconds)]
    answers = child.together(*[words for _ in range(count)])
    got = [number for answer in answers for number in answer["got"]]
    return 1 / sum(len(answer["got"]) / answer["seconds"] for answer in answers), got


def claims(run: Run) -> None:
    """Measure claims, with a new file for each sample."""
    finished, waiting = run.settings.finished, run.settings.waiting

    def sample(how: str, make: Callable[[Path, int, int], None]) -> float:
        path = run.directory / "jobs"
        make(path, finished, waiting)
        cost, got = processes(run, "claim", CLAIMERS, how, path)
        remove(path)
        if len(set(got)) < len(got):
            raise WrongAnswerError(f"{len(got) - len(set(got))} of {len(got)} jobs were claimed twice")
        return cost

    run.measure(
        CLAIM,
        Unit.OPERATIONS,
        [
            *(Contender(name, partial(sample, how, our_jobs), is_ours=True) for how, name in OURS.items()),
            Contender("sqlite3", partial(sample, "sqlite3", jobs_of_sqlite)),
        ],
        rounds=run.pace.start_rounds,
        targets=[Target(20_000, ours=OURS["claim"])],
        notes=["all processes together, each claim a commit; jobs have an index over their state"],
    )


def our_jobs(path: Path, finished: int, waiting: int) -> None:
    """Make a table of jobs."""
    with pellucid.open(path) as db:
        jobs = db.table("jobs")
        jobs.extend({"state": "done", "n": number} for number in range(finished))
        jobs.extend({"state": "new", "n": number} for number in range(waiting))
        jobs.create_index("by_state", F.state)


def jobs_of_sqlite(path: Path, finished: int, waiting: int) -> None:
    """Make the same table in sqlite3."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, state, n, until, token)")
    connection.execute("CREATE INDEX by_state ON jobs (state)")
    connection.execute("BEGIN")
    for state, count in (("done", finished), ("new", waiting)):
        rows = ((state, number) for number in range(count))
        connection.executemany("INSERT INTO jobs (state, n) VALUES (?, ?)", rows)
    connection.execute("COMMIT")
    connection.close()


def remove(path: Path) -> None:
    """Delete a file and those beside it."""
    for each in path.parent.glob(path.name + "*"):
        each.unlink()


def counts(run: Run) -> None:
    """Measure additions in a file."""
    path = run.directory / "counters"
    beside = run.directory / "counters-of-sqlite"
    with pellucid.open(path) as db:
        db.table("counters")["x"] = {"n": 0}
    connection = sqlite3.connect(beside, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("CREATE TABLE counters (id PRIMARY KEY, n)")
    connection.execute("INSERT INTO counters VALUES ('x', 0)")
    connection.close()

    def sample(how: str, where: Path) -> float:
        if how == "increment":
            with pellucid.open(path) as db:
                db.table("counters")["x"] = {"n": 0}
        cost, got = processes(run, "count", COUNTERS, how, where)
        if how == "increment":
            check_sums(got)
        return cost

    ours, assigned = "pellucid, increment", "pellucid, rec.n = i"
    run.measure(
        COUNT,
        Unit.OPERATIONS,
        [
            Contender(ours, partial(sample, "increment", path), is_ours=True),
            Contender(assigned, partial(sample, "rec.n = i", path), is_ours=True, is_reference=True),
            Contender("sqlite3", partial(sample, "sqlite3", beside)),
        ],
        rounds=run.pace.start_rounds,
        targets=[Target(0.6, assigned, ours)],
        notes=["all processes together, each addition a commit; no sum was missing or came twice"],
    )


def check_sums(got: list[int]) -> None:
    """Raise `WrongAnswerError` unless each sum from 1 on came once."""
    if sorted(got) != list(range(1, len(got) + 1)):
        raise WrongAnswerError(f"{len(got)} additions gave {len(set(got))} sums up to {max(got)}")


def counts_on_server(run: Run) -> None:
    """Measure additions on a server; leave the measure out if there is none."""
    try:
        import psycopg

        with server.running(None) as dsn:
            known = {**psycopg.conninfo.conninfo_to_dict(dsn), "schema": "queues"}
            url = "postgresql://?" + urllib.parse.urlencode(known)
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("CREATE TABLE queues_counters (id text PRIMARY KEY, n bigint)")
                connection.execute("INSERT INTO queues_counters VALUES ('x', 0)")

            def sample(how: str, where: str) -> float:
                if how == "increment on a server":
                    with pellucid.open(url) as db:
                        db.table("counters")["x"] = {"n": 0}
                cost, got = processes(run, "count", COUNTERS, how, where)
                if how == "increment on a server":
                    check_sums(got)
                return cost

            ours, theirs = "pellucid, increment", "psycopg, UPDATE RETURNING"
            run.measure(
                COUNT_ON_SERVER,
                Unit.OPERATIONS,
                [
                    Contender(ours, partial(sample, "increment on a server", url), is_ours=True),
                    Contender(theirs, partial(sample, "UPDATE RETURNING", dsn)),
                ],
                rounds=run.pace.start_rounds,
                targets=[Target(0.5, theirs, ours)],
                notes=["all processes together; one hot row"],
            )
    except (Unavailable, ImportError):
        return
