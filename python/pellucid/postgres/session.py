"""One connection to a server, and the statements that run through it."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import select
import sys
from collections.abc import Sequence
from typing import Any

from pellucid._native import server_array
from pellucid.postgres import background, errors
from pellucid.postgres.driver import psycopg
from pellucid.postgres.url import Place

Parameters = Sequence[Any]
Rows = list[tuple[Any, ...]]
Statement = tuple[bytes, Parameters]
# What stands before and after the rows of a COPY in binary form: a signature, no flags, no extension; -1.
COPY_HEAD = b"PGCOPY\n\xff\r\n\0" + bytes(8)
COPY_TAIL = b"\xff\xff"
COPY_PIECE_SIZE = 1 << 20


class Array:
    """An array of bytea as a parameter, in PostgreSQL's binary form."""

    def __init__(self, data: bytes, elements: list[bytes | None]) -> None:
        self.data = data
        self.elements = elements


def array_of(elements: list[Any]) -> Array:
    """Return a parameter with many bytes."""
    return Array(server_array(elements), elements)


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
            raise errors.of_connect(error, place) from error
        self.connection.adapters.register_dumper(Array, array_dumper())
        self.cursor: Any = self.connection.cursor(binary=True)
        self._has_rows = driver.pq.ExecStatus.TUPLES_OK
        self._is_idle = driver.pq.TransactionStatus.IDLE
        self._pgconn: Any = self.connection.pgconn
        self.idle_since = 0.0
        # A COPY that a thread runs; the next statement waits for it.
        self._copying: background.Task[None] | None = None
        # Whether statements may run on other servers, whose failures come as internal errors.
        self.is_cluster = False
        try:
            if setup:
                self.script(setup)
            # A server that has crashed begins its statistics anew.
            self.server_run: Any = self.rows(b"SELECT stats_reset::text FROM pg_stat_bgwriter")[0][0]
        except Lost as lost:
            raise errors.of_connect(lost.args[0], place) from lost.args[0]

    def execute(self, statement: bytes, parameters: Parameters = ()) -> int:
        """Run a statement, and return how many rows it concerned."""
        self.finish_copy()
        try:
            self.cursor.execute(statement, parameters)
        except psycopg().Error as error:
            raise self.failure(error) from error
        return int(self.cursor.rowcount)

    def script(self, statements: bytes) -> None:
        """Run statements without parameters, in one round trip."""
        self.finish_copy()
        try:
            self.connection.execute(statements)
        except psycopg().Error as error:
            raise self.failure(error) from error

    def rows(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        """Run a statement, and return its rows."""
        self.finish_copy()
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
        self.finish_copy()
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
            # What a failed pipeline has skipped may count as prepared, and would be looked for by its name.
            self.connection._prepared.clear()
            # The first one says why.
            error = failed if isinstance(failed, psycopg().Error) else error
            raise self.failure(error) from error
        return results

    def inlined(self, statements: Sequence[tuple[bytes, Parameters]]) -> list[Rows]:
        """Run statements in one round trip, with their parameters in the text; return the rows of each.

        A batch is one, too, and the driver takes several times as long for it. Parameters are bytes, ints
        and None.
        """
        self.finish_copy()
        text = b";".join(inlined(statement, parameters) for statement, parameters in statements)
        try:
            cursor = self.connection.execute(text)
            results: list[Rows] = []
            has_more = True
            while has_more:
                results.append(cursor.fetchall() if cursor.description is not None else [])
                has_more = cursor.nextset()
        except psycopg().Error as error:
            raise self.failure(error) from error
        return results

    def copy(self, statement: bytes, rows: bytes) -> None:
        """Run a COPY FROM STDIN with rows in PostgreSQL's binary form."""
        self.finish_copy()
        self._copy(statement, rows)

    def copy_in_background(self, statement: bytes, rows: bytes) -> None:
        """Begin a COPY in a thread; the next statement waits for its end, and raises what it has raised."""
        self.finish_copy()
        self._copying = background.started(lambda: self._copy(statement, rows))
        if self._copying is None:
            self._copy(statement, rows)

    def finish_copy(self, *, raises: bool = True) -> None:
        """Wait for the end of a COPY in a thread, and raise what it has raised, unless `raises` is false.

        Raises `TransactionError` in a forked child.
        """
        if self.is_foreign:
            raise background.of_parent()
        copying = self._copying
        if copying is None:
            return
        # An interrupt ends the waiting, and not the COPY: the next statement waits again.
        copying.wait()
        self._copying = None
        if raises:
            copying.result()

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
        if self.is_broken or errors.is_lost(error) or (self.is_cluster and errors.is_internal(error)):
            return Lost(error)
        return errors.of_statement(error, self.place, self.user)

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
            self.finish_copy(raises=False)
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


def inlined(statement: bytes, parameters: Parameters) -> bytes:
    """Return a statement with its parameters as literals, none of which has a sign that could end it."""

    def literal(place: re.Match[bytes]) -> bytes:
        value = parameters[int(place[1]) - 1]
        if value is None:
            return b"NULL"
        if isinstance(value, int):
            return b"%d" % value
        return b"'\\x%s'::bytea" % bytes(value).hex().encode()

    return re.sub(rb"\$(\d+)", literal, statement)


# The connections of the parent process, in a forked child.
OF_PARENT: list[Session] = []


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
