"""The connections of one database: made when they are needed, used again, and never shared by two threads."""

from __future__ import annotations

import contextlib
import os
import random
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pellucid.errors import Busy
from pellucid.postgres import errors
from pellucid.postgres.session import OF_PARENT, Lost, Session
from pellucid.postgres.url import Place

if TYPE_CHECKING:
    from pellucid.postgres.transaction import Running

# A connection that was idle for this long may have ended without our noticing.
IDLE_SECONDS_TRUSTED = 0.5
# How long a transaction waits for a second connection.
BESIDE_SECONDS_MAX = 0.2
# Held while a forked child sets them aside: several of its threads may be the first.
NOTICING = threading.Lock()


class Pool:
    """The connections of one database."""

    def __init__(self, place: Place, timeout: float, setup: bytes) -> None:
        self.place = place
        self.timeout = timeout
        self._setup = setup
        self._process = os.getpid()
        self._changed = threading.Condition()
        self._idle: list[Session] = []
        self._count = 0
        self._waiting = 0
        self._is_closed = False
        # Whether statements may run on other servers.
        self.is_cluster = False

    def take(self, timeout: float | None = None) -> Session:
        """Return a connection that no other thread uses, until it is given back.

        Raises `Busy` if all are in use for longer than the timeout, and `DatabaseError` if none can be made.
        """
        self._notice_fork()
        while True:
            session: Session | None = None
            with contextlib.suppress(IndexError):
                # Each of these calls is atomic, so that most need no lock.
                session = self._idle.pop()
            # Not in an `except`, whose error would be shown with one that this raises.
            session = session or self._wait(timeout)
            if session is None:
                return self._connect()
            if time.monotonic() - session.idle_since < IDLE_SECONDS_TRUSTED or not session.has_ended():
                return session
            self._drop(session)

    def _wait(self, timeout: float | None) -> Session | None:
        """Return a connection that was given back; None if another one may be made."""
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        with self._changed:
            # From here on, `give` notifies.
            self._waiting += 1
            try:
                while True:
                    if self._idle:
                        return self._idle.pop()
                    if self._count < self.place.connections_max:
                        self._count += 1
                        return None
                    if not self._changed.wait(until - time.monotonic()):
                        raise Busy(
                            f"all {self.place.connections_max} connections to {self.place.shown} are in "
                            "use, by "
                            "transactions, snapshots and iterators that have not ended; end them, or allow "
                            "more with "
                            "max_connections= in the URL"
                        )
            finally:
                self._waiting -= 1

    def _connect(self) -> Session:
        try:
            session = Session(self.place, self._setup)
            session.is_cluster = self.is_cluster
            return session
        except BaseException:
            with self._changed:
                self._count -= 1
                self._changed.notify()
            raise

    def give(self, session: Session) -> None:
        """Take a connection back, for the next one who needs it."""
        self._notice_fork()
        if session.is_foreign:
            # It is not one of those that are counted.
            session.close()
            return
        if not session.is_idle:
            self._drop(session)
            return
        session.idle_since = time.monotonic()
        self._idle.append(session)
        # Only now: `close` in another thread ends those that it finds, and says so before.
        if self._is_closed:
            self._end_idle()
        elif self._waiting:
            with self._changed:
                self._changed.notify()

    def _drop(self, session: Session) -> None:
        session.close()
        with self._changed:
            self._count -= 1
            self._changed.notify()

    @contextlib.contextmanager
    def session(self, timeout: float | None = None) -> Iterator[Session]:
        """A connection for the block."""
        session = self.take(timeout)
        try:
            yield session
        except Lost as lost:
            raise errors.of_lost(lost.args[0], self.place, was_sent=False) from lost.args[0]
        finally:
            self.give(session)

    @contextlib.contextmanager
    def beside(self, running: Running | None) -> Iterator[Session]:
        """A connection for the block: another one than the transaction's, unless none is free.

        Transactions that all wait for another connection would wait for each other.
        """
        if running is None:
            with self.session() as session:
                yield session
            return
        try:
            session = self.take(BESIDE_SECONDS_MAX)
        except Busy:
            yield running.ready()
            return
        try:
            yield session
        except Lost as lost:
            raise errors.of_lost(lost.args[0], self.place, was_sent=False) from lost.args[0]
        finally:
            self.give(session)

    def _notice_fork(self) -> None:
        if os.getpid() == self._process:
            return
        with NOTICING:
            if os.getpid() != self._process:
                # A thread of the parent may have had the lock.
                self._changed = threading.Condition()
                OF_PARENT.extend(self._idle)
                self._idle = []
                self._count = self._waiting = 0
                self._process = os.getpid()

    def close(self) -> None:
        """End all connections; those in use end when they are given back."""
        self._notice_fork()
        self._is_closed = True
        self._end_idle()

    def _end_idle(self) -> None:
        with self._changed:
            idle, self._idle = self._idle, []
            self._count -= len(idle)
            self._changed.notify_all()
        for session in idle:
            session.close()


def pause(attempt: int) -> None:
    """Wait a little, and longer after each attempt, so that clients in each other's way part."""
    time.sleep(random.random() * min(0.2, 0.001 * 2 ** min(attempt, 10)))
