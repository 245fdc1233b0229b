"""Two clients that create the same thing at once."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from pellucid.errors import DatabaseError
from pellucid.postgres import errors
from pellucid.postgres.session import Rows, Session

DUPLICATE = "23505"
ATTEMPTS = 20
# The races of two clients that create one thing: a duplicate, or a catalog row of PostgreSQL's own.
RACES = {DUPLICATE, "42P06", "42P07", "42710", "40P01", "XX000", "40001"}
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


def with_own_id(session: Session, insert: Callable[[int], Rows]) -> Rows:
    """Return what `insert` returns, which stores a row under the greatest id plus its argument.

    Another client may have stored one with that id in a transaction that this one does not see. The next ids
    are tried then, and a savepoint keeps what the transaction has done before.
    """
    session.execute(b"SAVEPOINT pellucid_id")
    for attempt in range(ATTEMPTS):
        try:
            rows = insert(1 << attempt)
        except DatabaseError as error:
            if errors.sqlstate(error.__cause__) != DUPLICATE or attempt == ATTEMPTS - 1:
                raise
            session.execute(b"ROLLBACK TO SAVEPOINT pellucid_id")
        else:
            session.execute(b"RELEASE SAVEPOINT pellucid_id")
            return rows
    raise AssertionError
