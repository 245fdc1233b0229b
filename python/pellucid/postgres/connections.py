"""The connections of one database: made when they are needed, used again, and never shared by two threads."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import select
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pellucid.errors import Busy
from pellucid.postgres import ahead, failures
from pellucid.postgres.driver import psycopg
from pellucid.postgres.url import Place

if TYPE_CHECKING:
    from pellucid.postgres.transactions import Running

Parameters = Sequence[Any]
Rows = list[tuple[Any, ...]]
Statement = tuple[bytes, Parameters]
# A connection that was idle for this long may have ended without our noticing.
IDLE_SECONDS_TRUSTED = 0.5
# What stands before and after the rows of a COPY in binary form: a signature, no flags, no extension; -1.
COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TAIL = b"\xff\xff"
COPY_PIECE_SIZE = 1 << 20
# How long a transaction waits for a second connection.
BESIDE_SECONDS_MAX = 0.2


class Array:
    """An array of bytea as a parameter, in PostgreSQL's binary form."""

    def __init__(self, data: bytes, elements: list[bytes | None]) -> None:
        self.data = data
        self.elements = elements


@functools.cache
def array_dumper() -> Any:
    """Return what gives an `Array` to the driver."""
    dumper: Any = psycopg().adapt.Dumper

    class ArrayDumper(dumper):  # type: ignore[misc]
        """Hands the bytes over as they are."""

        format = psycopg().pq.Format.BINARY
        oid = 1001

        def dump(self, obj: Array) -> bytes:
            return obj.data

    return ArrayDumper


class Session:
    """One connection, and the cursor that its statements go through.

    It belongs to the process that made it: a forked child has the same socket, and a statement or an end that
    it sent would come in between those of its parent.
    """

    def __init__(self, place: Place, setup: bytes) -> None:
        self.place = place
        self._process = os.getpid()
        driver = psycopg()
        try:
            self.connection: Any = driver.connect(
                **place.parameters,
                autocommit=True,
                cursor_factory=driver.RawCursor,
                prepare_threshold=5 if place.prepares else None,
            )
        except driver.Error as error:
            raise failures.of_connect(error, place) from error
        self.connection.adapters.register_dumper(Array, array_dumper())
        self.cursor: Any = self.connection.cursor(binary=True)
        self._has_rows = driver.pq.ExecStatus.TUPLES_OK
        self._is_idle = driver.pq.TransactionStatus.IDLE
        self._pgconn: Any = self.connection.pgconn
        self.idle_since = 0.0
        # A COPY that a thread runs, before the next statement.
        self._behind: ahead.Ahead[None] | None = None
        # Whether statements may run on other servers, whose failures come as internal errors.
        self.has_citus = False
        try:
            if setup:
                self.script(setup)
            # A server that has crashed begins its statistics anew.
            self.server_run: Any = self.rows(b"SELECT stats_reset::text FROM pg_stat_bgwriter")[0][0]
        except Lost as lost:
            raise failures.of_connect(lost.args[0], place) from lost.args[0]

    def execute(self, statement: bytes, parameters: Parameters = ()) -> int:
        """Run a statement, and return how many rows it concerned."""
        self.settle()
        try:
            self.cursor.execute(statement, parameters)
        except psycopg().Error as error:
            raise self.failure(error) from error
        return int(self.cursor.rowcount)

    def script(self, statements: bytes) -> None:
        """Run statements without parameters, in one round trip."""
        self.settle()
        try:
            self.connection.execute(statements)
        except psycopg().Error as error:
            raise self.failure(error) from error

    def rows(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        """Run a statement, and return its rows."""
        self.settle()
        cursor = self.cursor
        try:
            cursor.execute(statement, parameters)
            # `description` would make an object for each column.
            found: Rows = cursor.fetchall() if cursor.pgresult.status == self._has_rows else []
        except psycopg().Error as error:
            raise self.failure(error) from error
        return found

    def batch(self, statements: Sequence[tuple[bytes, Parameters]]) -> list[Rows]:
        """Run statements in one round trip and, outside of a transaction, in one of their own."""
        self.settle()
        results: list[Rows] = []
        failed: BaseException | None = None
        try:
            cursors = [self.connection.cursor(binary=True) for _ in statements]
            with self.connection.pipeline():
                # The driver logs what the end of the block raises after an exception in it: so none leaves.
                try:
                    for cursor, (statement, parameters) in zip(cursors, statements, strict=True):
                        cursor.execute(statement, parameters)
                except BaseException as error:
                    failed = error
            if failed is not None:
                raise failed
            for cursor in cursors:
                results.append(cursor.fetchall() if cursor.description is not None else [])
        except psycopg().Error as error:
            # The first one says why.
            error = failed if isinstance(failed, psycopg().Error) else error
            raise self.failure(error) from error
        return results

    def copy(self, statement: bytes, rows: bytes) -> None:
        """Run a COPY FROM STDIN with rows in PostgreSQL's binary form."""
        self.settle()
        self._copy(statement, rows)

    def copy_behind(self, statement: bytes, rows: bytes) -> None:
        """Begin a COPY in a thread; the next statement waits for its end, and raises what it has raised."""
        self.settle()
        self._behind = ahead.begun(lambda: self._copy(statement, rows))
        if self._behind is None:
            self._copy(statement, rows)

    def settle(self, *, is_asked: bool = True) -> None:
        """Wait for the end of a COPY that was begun; unless it is asked for, raise nothing of it.

        Raises `TransactionError` in a forked child.
        """
        if self.is_foreign:
            raise ahead.of_parent()
        behind = self._behind
        if behind is None:
            return
        # An interrupt ends the waiting, and not the COPY: the next statement waits again.
        behind.wait()
        self._behind = None
        if is_asked:
            behind.result()

    def _copy(self, statement: bytes, rows: bytes) -> None:
        try:
            with self.connection.cursor().copy(statement) as copy:
                try:
                    copy.write(COPY_HEAD)
                    for start in range(0, len(rows), COPY_PIECE_SIZE):
                        copy.write(rows[start : start + COPY_PIECE_SIZE])
                    copy.write(COPY_TAIL)
                except psycopg().Error:
                    # The end of the block raises it again, and logs nothing then.
                    if not self.is_broken:
                        raise
        except psycopg().Error as error:
            raise self.failure(error) from error

    def failure(self, error: Exception) -> Exception:
        """Return the exception for what the driver raised."""
        if self.is_broken or failures.is_lost(error) or (self.has_citus and failures.is_internal(error)):
            return Lost(error)
        return failures.of_statement(error, self.place, self.user)

    @property
    def user(self) -> str:
        """The role that the connection was made with."""
        return str(self.connection.info.user)

    @property
    def is_foreign(self) -> bool:
        """Whether it belongs to the parent of this process."""
        return self._process != os.getpid()

    @property
    def is_broken(self) -> bool:
        """Whether the connection has ended for this process."""
        return self.is_foreign or bool(self.connection.closed or self.connection.broken)

    @property
    def is_idle(self) -> bool:
        """Whether the connection is alive and in no transaction."""
        # That of a connection that has ended is unknown.
        return bool(self._pgconn.transaction_status == self._is_idle) and not self.is_foreign

    @property
    def is_in_use(self) -> bool:
        """Whether a statement runs, perhaps in the calling thread, which must not wait for it then."""
        return bool(self.connection.lock.locked())

    def has_ended(self) -> bool:
        """Return whether the server has ended the connection while it was idle."""
        # Without a statement the server says nothing, except that it ends.
        return self.is_readable(0)

    def is_readable(self, seconds: float) -> bool:
        """Wait for something to read; return whether there is, or the connection has ended."""
        try:
            descriptor = self.connection.fileno()
        except (OSError, psycopg().Error):
            return True
        return is_readable(descriptor, seconds)

    def roll_back(self) -> None:
        """Roll back what is not committed; where that fails, end the connection, and the server does it."""
        if self.is_broken or self.is_idle:
            return
        try:
            self.settle(is_asked=False)
            self.execute(b"ROLLBACK")
        except Exception:
            self.close()
        except BaseException:
            # The answer is still to come.
            self.close()
            raise

    def close(self) -> None:
        """End the connection, unless it is the parent's."""
        if self.is_foreign:
            # Kept, since its finalizer would warn of it.
            OF_PARENT.append(self)
            return
        with contextlib.suppress(psycopg().Error, OSError):
            self.connection.close()


# The connections of the parent process, in a forked child.
OF_PARENT: list[Session] = []
# Held while a forked child sets them aside: several of its threads may be the first.
NOTICING = threading.Lock()


def is_readable(descriptor: int, seconds: float) -> bool:
    """Wait for something to read; return whether there is, or the other side has ended."""
    if sys.platform == "win32":
        # It has no poll, and its select takes any number of a descriptor.
        return bool(select.select([descriptor], [], [], seconds)[0])
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(seconds * 1000))


class Lost(Exception):
    """A connection that ended during a statement; the driver's exception is its argument."""


class Connections:
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
        self.has_citus = False

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
            session = session or self._waited_for(timeout)
            if session is None:
                return self._made()
            if time.monotonic() - session.idle_since < IDLE_SECONDS_TRUSTED or not session.has_ended():
                return session
            self._drop(session)

    def _waited_for(self, timeout: float | None) -> Session | None:
        """Return a connection that was given back; None if another one may be made."""
        until = time.monotonic() + (self.timeout if timeout is None else timeout)
        with self._changed:
            # From here on, who gives a connection back says so.
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

    def _made(self) -> Session:
        try:
            session = Session(self.place, self._setup)
            session.has_citus = self.has_citus
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
    def lent(self, timeout: float | None = None) -> Iterator[Session]:
        """A connection for the block."""
        session = self.take(timeout)
        try:
            yield session
        except Lost as lost:
            raise failures.of_lost(lost.args[0], self.place, was_sent=False) from lost.args[0]
        finally:
            self.give(session)

    @contextlib.contextmanager
    def beside(self, running: Running | None) -> Iterator[Session]:
        """A connection for the block: another one than the transaction's, unless none is free.

        Transactions that all wait for another connection would wait for each other.
        """
        if running is None:
            with self.lent() as session:
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
            raise failures.of_lost(lost.args[0], self.place, was_sent=False) from lost.args[0]
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
