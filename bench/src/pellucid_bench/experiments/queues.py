"""This experiment measures job queues and counters that several processes share.

All processes begin at the same time and run for some seconds. Afterwards, no job may have been claimed twice,
and no addition may be lost.
"""

from __future__ import annotations

import contextlib
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

CLAIM = "claims of four processes among finished jobs"
COUNT = "additions to one counter by eight processes"
COUNT_ON_SERVER = "additions to one counter on PostgreSQL by eight processes"
PROCESSES = {"claim": 4, "count": 8}
CLAIMED, FINISHED = "pellucid, claim", "pellucid, claim and finish"
COUNTED, ASSIGNED = "pellucid, increment", "pellucid, rec.n = i"
OURS = {CLAIMED, FINISHED, COUNTED, ASSIGNED}
THEIRS = "psycopg, UPDATE RETURNING"


def run(run: Run) -> None:
    """Run every measure."""
    if run.wants(CLAIM):
        claims(run)
    if run.wants(COUNT):
        counts(run)
    if run.wants(COUNT_ON_SERVER):
        counts_on_server(run)


def contender(
    run: Run,
    title: str,
    verb: str,
    how: str,
    where: str | Path,
    prepare: Callable[[], object] = lambda: None,
    check: Callable[[list[int]], None] = lambda _got: None,
) -> Contender:
    """Return a contender whose sample is the cost of one step of all processes together.

    `how` is a name of `queue_processes`, and `check` raises for what the processes must not have got.
    """

    def sample() -> float:
        prepare()
        words = [verb, how, str(where), str(run.settings.seconds)]
        answers = child.together(*[words for _ in range(PROCESSES[verb])])
        check([number for answer in answers for number in answer["got"]])
        rates: list[float] = [len(answer["got"]) / answer["seconds"] for answer in answers]
        return 1 / sum(rates)

    return Contender(title, sample, is_ours=title in OURS, is_reference=title == ASSIGNED)


def claims(run: Run) -> None:
    """Measure claims, with a new file for each sample."""
    path = run.directory / "jobs"
    contenders = [
        contender(run, title, "claim", how, path, partial(make, path, run.settings), check_keys)
        for title, how, make in (
            (CLAIMED, "claim", our_jobs),
            (FINISHED, "claim, finish", our_jobs),
            ("sqlite3", "sqlite3", jobs_of_sqlite),
        )
    ]
    note = "all processes together, each claim a commit; jobs have an index over their state"
    measure(run, CLAIM, contenders, Target(20_000, ours=CLAIMED), note)


def measure(run: Run, name: str, contenders: list[Contender], target: Target, note: str) -> None:
    """Run one measure."""
    rounds = run.pace.start_rounds
    run.measure(name, Unit.OPERATIONS, contenders, rounds=rounds, targets=[target], notes=[note])


def our_jobs(path: Path, settings: Any) -> None:
    """Make a table of jobs."""
    remove(path)
    with pellucid.open(path) as db:
        jobs = db.table("jobs")
        jobs.extend({"state": "done", "n": number} for number in range(settings.finished))
        jobs.extend({"state": "new", "n": number} for number in range(settings.waiting))
        jobs.create_index("by_state", F.state)


def jobs_of_sqlite(path: Path, settings: Any) -> None:
    """Make the same table in sqlite3."""
    remove(path)
    script = "CREATE TABLE jobs (id INTEGER PRIMARY KEY, state, n, until, token); BEGIN;"
    for state, count in (("done", settings.finished), ("new", settings.waiting)):
        script += f"""INSERT INTO jobs (state, n) WITH RECURSIVE numbers (n) AS
            (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < {count})
            SELECT '{state}', n FROM numbers;"""
    run_sqlite(path, script + "COMMIT; CREATE INDEX by_state ON jobs (state)")


def run_sqlite(path: Path, script: str) -> None:
    """Run statements in a new file of sqlite3."""
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.executescript(f"PRAGMA journal_mode = WAL; {script}")


def check_keys(got: list[int]) -> None:
    """Raise `WrongAnswerError` unless each job was claimed once."""
    if len(set(got)) < len(got):
        raise WrongAnswerError(f"{len(got) - len(set(got))} of {len(got)} jobs were claimed twice")


def remove(path: Path) -> None:
    """Delete a file and those beside it."""
    for each in path.parent.glob(path.name + "*"):
        each.unlink()


def counts(run: Run) -> None:
    """Measure additions in a file."""
    path, beside = run.directory / "counters", run.directory / "counters-of-sqlite"
    begin_counting(path)
    run_sqlite(beside, "CREATE TABLE counters (id PRIMARY KEY, n); INSERT INTO counters VALUES ('x', 0)")
    contenders = [
        contender(run, COUNTED, "count", "increment", path, partial(begin_counting, path), check_sums),
        contender(run, ASSIGNED, "count", "rec.n = i", path),
        contender(run, "sqlite3", "count", "sqlite3", beside),
    ]
    note = "all processes together, each addition a commit; no sum was missing or came twice"
    measure(run, COUNT, contenders, Target(0.6, ASSIGNED, COUNTED), note)


def begin_counting(where: str | Path) -> None:
    """Set our counter to 0."""
    with pellucid.open(where) as db:
        db.table("counters")["x"] = {"n": 0}


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
            url, how = "postgresql://?" + urllib.parse.urlencode(known), "increment on a server"
            with psycopg.connect(dsn, autocommit=True) as connection:
                connection.execute("CREATE TABLE queues_counters (id text PRIMARY KEY, n bigint)")
                connection.execute("INSERT INTO queues_counters VALUES ('x', 0)")
            contenders = [
                contender(run, COUNTED, "count", how, url, partial(begin_counting, url), check_sums),
                contender(run, THEIRS, "count", "UPDATE RETURNING", dsn),
            ]
            target, note = Target(0.5, THEIRS, COUNTED), "all processes together; one hot row"
            measure(run, COUNT_ON_SERVER, contenders, target, note)
    except (Unavailable, ImportError):
        return
