"""Transactions on a server, with savepoints, and what became of a commit that got no answer."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pellucid._native import ServerValidity
from pellucid.errors import Closed, CommitUnknown, DatabaseError, TransactionError
from pellucid.postgres import errors
from pellucid.postgres.background import of_parent
from pellucid.postgres.schema import citus
from pellucid.postgres.schema.layout import Layout
from pellucid.postgres.session import Lost, Parameters, Rows, Session
from pellucid.postgres.table.read_ahead import ReadAhead
from pellucid.postgres.table.write_behind import Backlog

if TYPE_CHECKING:
    from pellucid.postgres.connection import DatabaseConnection

BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ"
# For work that locks its one row first, and reads it only then, as it is by then.
BEGIN_LOCKING = b"BEGIN ISOLATION LEVEL READ COMMITTED"
NO_ANSWER_PAUSE_SECONDS = 0.05


class Running:
    """A transaction that has begun: its connection, and what it has changed in the catalog."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # The validity of the rows that each level has read, its own and those of savepoints that were
        # released.
        self.levels: list[list[ServerValidity]] = [[ServerValidity()]]
        # What this transaction knows of tables; None for one that it has dropped.
        self.layouts: dict[int, Layout | None] = {}
        self.has_ended = False
        self.is_committed = False
        # Takes it from its owner.
        self.leave: Callable[[], object] = lambda: None
        # How often a savepoint was rolled back that had changed tables.
        self.epoch = 0
        self.has_changed_tables = False
        self._cursor_number = 0
        # Changed fields that the server gets before the next statement.
        self.backlog = Backlog()
        # Rows that are asked for next, if keys come in their order. The next statement forgets them.
        self.ahead = ReadAhead()
        # What went wrong when they were sent, and in which level.
        self.failed: tuple[int, BaseException] | None = None

    @property
    def validity(self) -> ServerValidity:
        """How long rows that are read now are valid."""
        return self.levels[-1][0]

    def check(self) -> None:
        """Raise where it has ended."""
        if self.has_ended:
            raise TransactionError(
                "this transaction has ended already; call db.transaction() for another one"
            )
        if self.session.is_foreign:
            raise of_parent()
        if self.failed is not None:
            raise TransactionError(errors.ENDED) from self.failed[1]

    def send(self) -> None:
        """Send the changed fields that wait in the backlog."""
        if not self.backlog:
            return
        try:
            is_other = self.backlog.send()
        except BaseException as error:
            # The caller has gone on since, and may not expect the exception here: so nothing is committed.
            self.failed = len(self.levels), error
            raise
        if is_other:
            self.invalidate()

    def invalidate(self) -> None:
        """Mark the rows read at this level as stale."""
        for validity in self.levels[-1]:
            validity.invalidate()
        self.levels[-1] = [ServerValidity()]

    def ready(self) -> Session:
        """Send all deferred changes, and return the connection for the next statement."""
        self.check()
        self.send()
        self.ahead.clear()
        return self.session

    def rows(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        """Run a statement in it."""
        session = self.ready()
        try:
            return session.rows(statement, parameters)
        except Lost as lost:
            raise self.lost(lost) from lost.args[0]

    def execute(self, statement: bytes, parameters: Parameters = ()) -> int:
        """Run a statement in it, for its count of rows."""
        session = self.ready()
        try:
            return session.execute(statement, parameters)
        except Lost as lost:
            raise self.lost(lost) from lost.args[0]

    def batch(self, statements: list[tuple[bytes, Parameters]]) -> list[Rows]:
        """Run statements in it, in one round trip."""
        session = self.ready()
        try:
            return session.batch(statements)
        except Lost as lost:
            raise self.lost(lost) from lost.args[0]

    def copy(self, statement: bytes, rows: bytes) -> None:
        """Run a COPY in it."""
        session = self.ready()
        try:
            session.copy(statement, rows)
        except Lost as lost:
            raise self.lost(lost) from lost.args[0]

    def copy_in_background(self, statement: bytes, rows: bytes) -> None:
        """Begin a COPY in it, which a thread runs."""
        session = self.ready()
        try:
            session.copy_in_background(statement, rows)
        except Lost as lost:
            raise self.lost(lost) from lost.args[0]

    def finish_copy(self) -> None:
        """Wait for the end of a COPY, and raise what it has raised."""
        try:
            self.session.finish_copy()
        except Lost as lost:
            raise self.lost(lost) from lost.args[0]

    def lost(self, lost: Lost) -> Exception:
        """Return what it raises that the connection has ended before the commit."""
        return errors.of_lost(lost.args[0], self.session.place, was_sent=False)

    def cursor_name(self) -> bytes:
        """Return a name for another cursor."""
        self._cursor_number += 1
        return f"pellucid_{self._cursor_number}".encode()


class Owned(threading.local):
    """The transactions of one database that this thread has begun.

    The rule is the one of a file (`Core::is_mine` in core.rs). A transaction that an asyncio task has begun
    belongs to this task. One that was begun outside of any task belongs to the whole thread, with all tasks
    that run in it meanwhile. A context variable would not do: a copy of the context carries it into other
    threads and tasks, and a task that was made before the transaction does not have it.
    """

    def __init__(self) -> None:
        # By their tasks, None for the whole thread. The tasks themselves: the id of one that has ended comes
        # again.
        self.by_task: dict[asyncio.Task[Any] | None, Running] = {}

    def mine(self) -> Running | None:
        """Return the transaction that the caller is in; None if it is in none."""
        by_task = self.by_task
        if not by_task:
            return None
        return by_task.get(current_task()) or by_task.get(None)

    def add(self, running: Running) -> None:
        """Make a transaction the caller's."""
        by_task, task = self.by_task, current_task()
        by_task[task] = running
        # Another thread may end it, which has a dict of its own.
        running.leave = lambda: by_task.pop(task, None)


def current_task() -> asyncio.Task[Any] | None:
    """Return the asyncio task that runs in this thread; None outside of tasks."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        # No loop runs.
        return None


class TransactionContext:
    """A transaction, as a context manager; inside of another one, it is a savepoint."""

    def __init__(self, connection: DatabaseConnection, begin: bytes = BEGIN) -> None:
        self._connection = connection
        self._begin = begin
        self._running: Running | None = None
        self._has_ended = False
        self._savepoint = b""
        self._level = 0

    def __repr__(self) -> str:
        return f"<pellucid.TransactionContext of {self._connection.shown}>"

    def __enter__(self) -> None:
        if self._running is not None:
            raise TransactionError(
                "this transaction has been entered already; call db.transaction() for each block"
            )
        connection = self._connection
        connection.check_open()
        around = connection.running()
        if around is None:
            self._running = connection.begin(self._begin)
            self._level = 1
        else:
            self._savepoint = f"pellucid_{len(around.levels)}".encode()
            around.execute(b"SAVEPOINT " + self._savepoint)
            around.levels.append([ServerValidity()])
            self._layouts, self._had_changed = dict(around.layouts), around.has_changed_tables
            self._running = around
            self._level = len(around.levels)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = self._running
        if running is None or self._has_ended:
            what = "has ended already" if self._has_ended else "was not entered"
            raise TransactionError(f"this transaction {what}; call db.transaction() for another one")
        if running.has_ended:
            self._has_ended = True
            if self._connection.is_closed and kind is not None:
                # The block has raised: nothing of it was to be stored.
                return
            raise self._why_ended()
        if self._connection.running() is not running:
            raise TransactionError(
                "a transaction ends in the thread and task that began it; it goes on there"
            )
        self._has_ended = True
        if len(running.levels) < self._level:
            raise TransactionError(
                "the savepoint was released or rolled back before: the block around it has ended first"
            )
        if self._level == 1:
            self._end(running, is_committed=kind is None)
        elif kind is None:
            try:
                running.execute(b"RELEASE SAVEPOINT " + self._savepoint)
            except BaseException:
                self._roll_back(running)
                raise
            for inner in self._inner_levels(running):
                running.levels[-1].extend(inner)
        else:
            self._roll_back(running)

    def __del__(self) -> None:
        running = self._running
        if running is None or self._has_ended or running.has_ended:
            return
        if running.session.is_foreign:
            # A forked child drops what its parent goes on with.
            running.leave()
            return
        what, done = "a transaction", "it has been rolled back"
        if self._level > 1:
            what, done = "a transaction within another", "what it did belongs to the one around it"
        else:
            self._connection.roll_back_dropped(running)
        warnings.warn(
            f"{what} of {self._connection.place.shown} was dropped and never left: {done}; use it in a with "
            "statement, or call __exit__",
            ResourceWarning,
            stacklevel=2,
        )

    def _why_ended(self) -> Exception:
        if self._connection.is_closed:
            return Closed("the database of this transaction was closed; what it wrote is not stored")
        return TransactionError("this transaction is over: the one around it has ended before it")

    def _end(self, running: Running, *, is_committed: bool) -> None:
        if is_committed and not self._connection.is_closed:
            self._connection.commit(running)
            return
        self._connection.roll_back(running)
        if is_committed:
            # By another thread.
            raise self._why_ended()

    def _inner_levels(self, running: Running) -> list[list[ServerValidity]]:
        """Remove the level of this savepoint, and of those in it that were not left, and return them."""
        inner = running.levels[self._level - 1 :]
        del running.levels[self._level - 1 :]
        return inner

    def _roll_back(self, running: Running) -> None:
        """Roll back to the savepoint."""
        read = [validity for inner in self._inner_levels(running) for validity in inner]
        running.backlog.clear()
        # What ended an inner level before is undone with this one.
        if running.failed is not None and running.failed[0] > len(running.levels):
            running.failed = None
        if running.has_changed_tables:
            running.epoch += 1
            self._connection.cache.names_changed += 1
        running.layouts = self._layouts
        running.has_changed_tables = self._had_changed
        try:
            if not running.session.is_broken:
                running.execute(b"ROLLBACK TO SAVEPOINT " + self._savepoint)
                running.execute(b"RELEASE SAVEPOINT " + self._savepoint)
        finally:
            for validity in read:
                validity.invalidate()


def commit(running: Running, connection: DatabaseConnection) -> None:
    """Commit a transaction.

    Raises `CommitUnknown` if the server has not answered, and cannot be asked what it did.
    """
    session = running.ready()
    try:
        found = session.rows(citus.transaction_number(session.is_cluster))
    except Lost as lost:
        raise running.lost(lost) from lost.args[0]
    number = found[0][0] if found else None
    try:
        session.execute(b"COMMIT")
    except Lost as lost:
        if number is None:
            # It has written nothing.
            return
        find_out(str(number), session.server_run, lost.args[0], connection)


def find_out(number: str, server_run: Any, cause: Exception, connection: DatabaseConnection) -> None:
    """Ask the server whether the transaction with this number was committed; return if it was.

    A server that has crashed since may have given the number again, to a transaction of another client, if
    nothing of this one had reached its log. It is right then only about one that it says was not committed.
    """
    until = time.monotonic() + connection.timeout
    place = connection.place
    while True:
        status = None
        try:
            with connection.pool.session() as session:
                status = session.rows(b"SELECT pg_xact_status($1::text::xid8)", [number])[0][0]
                if status == "committed" and session.server_run != server_run:
                    status = "committed, if it has not given the number again since it crashed"
                    until = 0.0
        except DatabaseError as error:
            # A number that the server has not given yet went with what a crash has lost.
            is_lost = errors.sqlstate(error.__cause__) == "22023"
            status = "aborted" if is_lost else f"cannot be asked: {error}"
        if status == "committed":
            return
        if status == "aborted" and citus.is_final(connection.catalog.has_citus):
            raise DatabaseError(
                f"the connection to {place.shown} ended before the commit ({errors.said(cause)}); "
                "nothing of the transaction was stored"
            ) from cause
        if time.monotonic() > until:
            raise CommitUnknown(
                f"the connection to {place.shown} ended during the commit ({errors.said(cause)}), and "
                "the server "
                f"did not say since what became of transaction {number} ({status}): read the rows to find out"
            ) from cause
        time.sleep(NO_ANSWER_PAUSE_SECONDS)
