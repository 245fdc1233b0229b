"""Two clients that create the same thing at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pellucid.postgres import errors
from pellucid.postgres.session import Session

ATTEMPTS = 20
# The races of two clients that create one thing: a duplicate, or a catalog row of PostgreSQL's own.
RACES = {"23505", "42P06", "42P07", "42710", "40P01", "XX000", "40001"}
T = TypeVar("T")


def again(session: Session, work: Callable[[], T]) -> T:
    """Run `work`, and run it again where another client was quicker."""
    for attempt in range(ATTEMPTS):
        try:
            return work()
        except Exception as error:
            if errors.sqlstate(error.__cause__) not in RACES or attempt == ATTEMPTS - 1:
                raise
            if not session.is_idle:
                session.execute(b"ROLLBACK")
    raise AssertionError
