"""This module has the processes that claim jobs and count together.

    claim HOW PATH SECONDS     claim jobs and finish them, each in a commit of its own
    count HOW PATH SECONDS     add to one counter

HOW is a name of `CLAIMS` or `COUNTS`. These are verbs of `pellucid_bench.child`: each prints "ready", waits
for a line, does its work and prints one JSON object.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable
from typing import Any

import pellucid
from pellucid import F

from pellucid_bench.writer_processes import wait_for_the_others

TIMEOUT = 60.0
"""Seconds that a process waits for others."""
BETWEEN_LOOKS = 20
"""Steps between two reads of the clock."""

Step = Callable[[], int]
"""One step; it returns what it has got."""


def ours(path: str, table: str) -> Any:
    """Open our file."""
    return pellucid.open(path, timeout=TIMEOUT).table(table)


def sqlite(path: str) -> sqlite3.Connection:
    """Open a file of sqlite3, which never waits for the disk."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=TIMEOUT)
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def claims(path: str) -> Step:
    """Claim a job of ours."""
    jobs, new, running = ours(path, "jobs"), F.state == "new", {"state": "running"}
    return lambda: int(jobs.claim(new, running).key)


def claims_and_ends(path: str) -> Step:
    """Claim a job of ours and finish it."""
    jobs, new, running = ours(path, "jobs"), F.state == "new", {"state": "running"}

    def step() -> int:
        job = jobs.claim(new, running)
        job.finish(state="done")
        return int(job.key)

    return step


def claims_of_sqlite(path: str) -> Step:
    """Claim a job of sqlite3."""
    execute = sqlite(path).execute
    claim = (
        "UPDATE jobs SET state = 'running', until = ?, token = random() WHERE id = "
        "(SELECT id FROM jobs WHERE state = 'new' ORDER BY id LIMIT 1) RETURNING id"
    )
    return lambda: int(execute(claim, (time.time() + 60,)).fetchone()[0])


def increments(path: str) -> Step:
    """Add to a counter of ours."""
    counters = ours(path, "counters")
    return lambda: int(counters.increment("x", "n"))


def assignments(path: str) -> Step:
    """Set a field of ours: what `increment` does without reading."""
    record, numbers = ours(path, "counters")["x"], iter(range(1 << 62))

    def step() -> int:
        record.n = number = next(numbers)
        return number

    return step


def increments_of_sqlite(path: str) -> Step:
    """Add to a counter of sqlite3."""
    execute = sqlite(path).execute
    return lambda: int(execute("UPDATE counters SET n = n + 1 WHERE id = 'x' RETURNING n").fetchone()[0])


def increments_on_server(url: str) -> Step:
    """Add to a counter of ours on a server."""
    counters = pellucid.open(url, timeout=TIMEOUT).table("counters")
    return lambda: int(counters.increment("x", "n"))


def increments_of_postgresql(url: str) -> Step:
    """Add to a counter of PostgreSQL."""
    import psycopg

    execute = psycopg.connect(url, autocommit=True).execute

    def step() -> int:
        row = execute("UPDATE queues_counters SET n = n + 1 WHERE id = 'x' RETURNING n").fetchone()
        assert row is not None
        return int(row[0])

    return step


CLAIMS = {
    "claim": claims,
    "claim, finish": claims_and_ends,
    "sqlite3": claims_of_sqlite,
}
COUNTS = {
    "increment": increments,
    "rec.n = i": assignments,
    "sqlite3": increments_of_sqlite,
    "increment on a server": increments_on_server,
    "UPDATE RETURNING": increments_of_postgresql,
}


def main(verb: str, how: str, path: str, seconds: str) -> None:
    """Run a verb for some seconds; print what each step has got, and for how long it ran."""
    step = (CLAIMS if verb == "claim" else COUNTS)[how](path)
    wait_for_the_others()
    got: list[int] = []
    begun, limit = time.perf_counter(), float(seconds)
    while (elapsed := time.perf_counter() - begun) < limit:
        got.extend(step() for _ in range(BETWEEN_LOOKS))
    print(json.dumps({"got": got, "seconds": elapsed}), flush=True)
