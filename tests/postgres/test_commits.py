"""What does a caller learn of a write whose connection ended, at whichever message?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cutting
import pellucid
import pytest
from servers import driver, empty_database

MESSAGES_MAX = 200


@pytest.fixture
def cut(tmp_path: Path, server: str) -> Iterator[tuple[cutting.Wire, str, str]]:
    """A wire, the URL of a database that leads through it, and the URL of the same database without it."""
    with empty_database(server) as url, cutting.wire(tmp_path, url) as (wire, through):
        yield wire, through, url


def put(db: Any, value: int) -> None:
    db["a"] = {"n": value}


def put_new_shape(db: Any, value: int) -> None:
    db["a"] = {"n": value, f"field{value}": 1}


def put_large(db: Any, value: int) -> None:
    db["a"] = {"n": value, "text": "x" * 50_000}


def change(db: Any, value: int) -> None:
    db["a"].n = value


def in_a_transaction(db: Any, value: int) -> None:
    with db.transaction():
        db["a"] = {"n": value}
        db["b"] = {"n": value}


def many(db: Any, value: int) -> None:
    db.update({"a": {"n": value}, "b": {"n": value}})


def appended(db: Any, value: int) -> None:
    db.extend([{"n": value}] * 3)


def run(db: Any, value: int) -> None:
    def add() -> None:
        db["a"].n = value

    db.run(add)


def increment(db: Any, value: int) -> None:
    db.increment("a", "n", value - db["a"].n)


@pytest.mark.parametrize("is_forwarded", [False, True])
@pytest.mark.parametrize(
    "write",
    [put, put_new_shape, put_large, change, in_a_transaction, many, appended, run, increment],
)
def test_a_caller_learns_what_became_of_a_write(
    cut: tuple[cutting.Wire, str, str], write: Callable[[Any, int], None], is_forwarded: bool
) -> None:
    wire, through, direct = cut
    outcomes = set()
    with pellucid.open(direct) as seen:
        seen.update({"a": {"n": 0}, "b": {"n": 0}})
        for message in range(1, MESSAGES_MAX):
            with pellucid.open(through, timeout=5) as db:
                before = {key: row.n for key, row in seen.items()}
                db["a"].n
                wire.cut_at(message, is_forwarded=is_forwarded)
                try:
                    write(db, message)
                    outcome = "committed"
                except pellucid.CommitUnknown:
                    outcome = "unknown"
                except pellucid.DatabaseError:
                    outcome = "not committed"
                was_cut = wire.was_cut
                wire.mend()
                outcomes.add(outcome)
                now = {key: row.n for key, row in seen.items()}
                is_written = now["a"] == message or len(now) > len(before)
                if outcome == "committed":
                    assert is_written
                elif outcome == "not committed":
                    assert not is_written
                if write in (in_a_transaction, many):
                    assert now["a"] == now["b"]
                    # One server tells what became of a transaction; several may not agree.
                    assert outcome != "unknown" or db._connection.catalog.has_citus
                assert seen.check() == []
                if not was_cut:
                    break
        else:
            pytest.fail("the write never went through")
    assert "committed" in outcomes
    assert len(outcomes) > 1


def test_nothing_is_lost_when_the_server_ends_all_connections(url: str, server: str) -> None:
    psycopg = driver("psycopg")
    with pellucid.open(url) as db:
        db["a"] = 1
        name = psycopg.conninfo.conninfo_to_dict(url.replace("schema=", "fallback_application_name="))
        with psycopg.connect(server, autocommit=True) as other:
            other.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = %s",
                [name["application_name"]],
            )
        # What reads goes to another connection.
        assert db["a"] == 1
        db["a"] = 2
        assert db["a"] == 2
