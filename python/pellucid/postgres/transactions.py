"""Transactions on a server, with savepoints, and what became of a commit that got no answer."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
import time
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pellucid._native import ServerGate
from pellucid.errors import Closed, CommitUnknown, DatabaseError, TransactionError
from pellucid.postgres import failures
from pellucid.postgres.ahead import of_parent
from pellucid.postgres.connections import Lost, Parameters, Rows, Session
from pellucid.postgres.deferring import Backlog
from pellucid.postgres.statements import Layout

if TYPE_CHECKING:
    from pellucid.postgres.database import Database

BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ"
NO_ANSWER_PAUSE_SECONDS = 0.05


def owner() -> tuple[int, int]:
    """Return an identity of this thread and of the task that runs in it."""
    task: Any = None
    if "asyncio" in sys.modules:
        try:
            task = asyncio.current_task()
        except RuntimeError:
            task = None
    return threading.get_ident(), id(task)


class Running:
    """A transaction that has begun: its connection, and what it has changed in the catalog."""

    def __init__(self, database: Database, session: Session) -> None:
        self.database = database
        self.session = session
        self.owner = owner()
        # The gates of the rows that each level has read, its own and those of savepoints that were released.
        self.gates: list[list[ServerGate]] = [[ServerGate()]]
        # What this transaction knows of tables; None for one that it has dropped.
        self.layouts: dict[int, Layout | None] = {}
        self.has_ended = False
        self.is_committed = False
        # How often a savepoint was taken back that had changed tables.
        self.epoch = 0
        self.has_changed_tables = False
        self._cursor_number = 0
        # Changed fields that the server gets before the next statement.
        self.backlog = Backlog()
        # What went wrong when they were sent, and in which level.
        self.failed: tuple[int, BaseException] | None = None

    @property
    def gate(self) -> ServerGate:
        """The gate of rows that are read now."""
        return self.gates[-1][0]

    def check(self) -> None:
        """Raise where it has ended."""
        if self.has_ended:
            raise TransactionError(
                "this transaction has ended already; call db.transaction() for another one"
            )
        if self.session.is_foreign:
            raise of_parent()
        if self.failed is not None:
            raise TransactionError(failures.ENDED) from self.failed[1]

    def send(self) -> None:
        """Send the changed fields that were kept back."""
        if not self.backlog:
            return
        try:
            is_other = self.backlog.send()
        except BaseException as error:
            # The caller has gone on since, and may not expect the exception here: so nothing is committed.
            self.failed = len(self.gates), error
            raise
        if is_other:
            self.read_anew()

    def read_anew(self) -> None:
        """Have the rows that this level has read be read again when they are used next."""
        for gate in self.gates[-1]:
            gate.take_back()
        self.gates[-1] = [ServerGate()]

    def ready(self) -> Session:
        """Send all deferred changes, and return the connection for the next statement."""
        self.check()
        self.send()
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

    def copy_behind(self, statement: bytes, rows: bytes) -> None:
        """Begin a COPY in it, which a thread runs."""
        session = self.ready()
        try:
            session.copy_behind(statement, rows)
        except Lost as lost:
            raise self.lost(lost) from lost.args[0]

    def settle(self) -> None:
        """Wait for the end of a COPY, and raise what it has raised."""
        try:
            self.session.settle()
        except Lost as lost:
            raise self.lost(lost) from lost.args[0]

    def lost(self, lost: Lost) -> Exception:
        """Return what it raises that the connection has ended before the commit."""
        return failures.of_lost(lost.args[0], self.session.place, was_sent=False)

    def cursor_name(self) -> bytes:
        """Return a name for another cursor."""
        self._cursor_number += 1
        return f"pellucid_{self._cursor_number}".encode()


# The transactions that this thread or task has begun, or one that it was made by: one for each database.
RUNNING: contextvars.ContextVar[tuple[Running, ...]] = contextvars.ContextVar("running", default=())


class TransactionContext:
    """A transaction, as a context manager; inside of another one, it is a savepoint."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._running: Running | None = None
        self._has_ended = False
        self._savepoint = b""
        self._level = 0

    def __repr__(self) -> str:
        return f"<pellucid.TransactionContext of {self._database!r}>"

    def __enter__(self) -> None:
        if self._running is not None:
            raise TransactionError(
                "this transaction has been entered already; call db.transaction() for each block"
            )
        database = self._database
        database._check_open()
        around = database._running()
        if around is None:
            self._running = database._begin()
            self._level = 1
        else:
            self._savepoint = f"pellucid_{len(around.gates)}".encode()
            around.execute(b"SAVEPOINT " + self._savepoint)
            around.gates.append([ServerGate()])
            self._layouts, self._had_changed = dict(around.layouts), around.has_changed_tables
            self._running = around
            self._level = len(around.gates)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        running = self._running
        if running is None or self._has_ended:
            what = "has ended already" if self._has_ended else "was not entered"
            raise TransactionError(f"this transaction {what}; call db.transaction() for another one")
        if running.owner != owner():
            raise TransactionError(
                "a transaction ends in the thread and task that began it; it goes on there"
            )
        self._has_ended = True
        if running.has_ended:
            raise Closed("the database of this transaction was closed; what it wrote is not stored")
        if self._level == 1:
            self._end(running, is_kept=kind is None)
        elif kind is None:
            try:
                running.execute(b"RELEASE SAVEPOINT " + self._savepoint)
            except BaseException:
                self._take_back(running)
                raise
            inner = running.gates.pop()
            running.gates[-1].extend(inner)
        else:
            self._take_back(running)

    def _end(self, running: Running, *, is_kept: bool) -> None:
        if is_kept:
            self._database._commit(running)
        else:
            self._database._roll_back(running)

    def _take_back(self, running: Running) -> None:
        gates = running.gates.pop()
        running.backlog.clear()
        # What ended an inner level before is undone with this one.
        if running.failed is not None and running.failed[0] > len(running.gates):
            running.failed = None
        if running.has_changed_tables:
            running.epoch += 1
            self._database._names_changed += 1
        running.layouts = self._layouts
        running.has_changed_tables = self._had_changed
        try:
            if not running.session.is_broken:
                running.execute(b"ROLLBACK TO SAVEPOINT " + self._savepoint)
                running.execute(b"RELEASE SAVEPOINT " + self._savepoint)
        finally:
            for gate in gates:
                gate.take_back()


def commit(running: Running, database: Database) -> None:
    """Commit a transaction.

    Raises `CommitUnknown` if the server has not answered, and cannot be asked what it did.
    """
    session = running.ready()
    # Where other servers store the rows, the transaction has no number here before its commit.
    asked = b"SELECT pg_current_xact_id()::text"
    if not session.has_citus:
        asked = b"SELECT pg_current_xact_id_if_assigned()::text"
    try:
        found = session.rows(asked)
    except Lost as lost:
        raise running.lost(lost) from lost.args[0]
    number = found[0][0] if found else None
    try:
        session.execute(b"COMMIT")
    except Lost as lost:
        if number is None:
            # It has written nothing.
            return
        find_out(str(number), session.server_run, lost.args[0], database)


def find_out(number: str, server_run: Any, cause: Exception, database: Database) -> None:
    """Ask the server whether the transaction with this number was committed; return if it was.

    A server that has crashed since may have given the number again, to a transaction of another client, if
    nothing of this one had reached its log. It is right then only about one that it says was not committed.
    """
    until = time.monotonic() + database._timeout
    place = database._place
    while True:
        status = None
        try:
            with database._connections.lent() as session:
                status = session.rows(b"SELECT pg_xact_status($1::text::xid8)", [number])[0][0]
                if status == "committed" and session.server_run != server_run:
                    status = "committed, if it has not given the number again since it crashed"
                    until = 0.0
        except DatabaseError as error:
            # A number that the server has not given yet went with what a crash has lost.
            is_lost = failures.sqlstate(error.__cause__) == "22023"
            status = "aborted" if is_lost else f"cannot be asked: {error}"
        if status == "committed":
            return
        # Where one other server stores all rows, it may have committed before this one heard of it.
        if status == "aborted" and not database._catalog.has_citus:
            raise DatabaseError(
                f"the connection to {place.shown} ended before the commit ({failures.said(cause)}); "
                "nothing of the transaction was stored"
            ) from cause
        if time.monotonic() > until:
            raise CommitUnknown(
                f"the connection to {place.shown} ended during the commit ({failures.said(cause)}), and "
                "the server "
                f"did not say since what became of transaction {number} ({status}): read the rows to find out"
            ) from cause
        time.sleep(NO_ANSWER_PAUSE_SECONDS)
