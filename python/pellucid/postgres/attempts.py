"""Repeat what another client was in the way of, if no code of the user runs in it twice.

The server refuses a transaction, and stores nothing of it, if another one has written the same row since it
began. What pellucid does by itself is begun again then, up to the `timeout` of the database. What the user's
code does in a transaction is repeated by `Database.run` alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import CoroutineType
from typing import TYPE_CHECKING, TypeVar

from pellucid.errors import Busy
from pellucid.postgres import errors
from pellucid.postgres.pool import pause

if TYPE_CHECKING:
    from pellucid.postgres.protocols import Connection

T = TypeVar("T")
# `transaction.rs` of the native module says the same.
NO_COROUTINE = (
    "run() takes a function that returns when its work is done, and an `async def` runs later, outside of "
    "the transaction: make it a plain `def`"
)


class Attempts:
    """The attempts of one piece of work, which may be repeated unless it is part of a transaction."""

    def __init__(self, connection: Connection) -> None:
        self._is_whole = connection.running() is None
        self._until = time.monotonic() + connection.timeout
        self._count = 0

    def again(self, error: BaseException) -> bool:
        """Say whether to begin again after this exception, a little later."""
        if not self._is_whole or not errors.is_conflict(error) or time.monotonic() >= self._until:
            return False
        pause(self._count)
        self._count += 1
        return True


def repeated(connection: Connection, work: Callable[[], T]) -> T:
    """Return what work returns in a transaction, begun again as long as other clients were in the way."""
    attempts = Attempts(connection)
    while True:
        try:
            with connection.transaction():
                result = work()
                if isinstance(result, CoroutineType):
                    result.close()
                    raise TypeError(NO_COROUTINE)
                return result
        except Busy as error:
            if not attempts.again(error):
                raise
