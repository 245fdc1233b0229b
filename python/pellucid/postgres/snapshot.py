"""A snapshot of a database on a server: a transaction that only reads, on a connection of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from pellucid._native import ServerValidity
from pellucid.errors import Closed
from pellucid.postgres import errors
from pellucid.postgres.background import of_parent
from pellucid.postgres.connection import DatabaseConnection, FrozenConnection
from pellucid.postgres.default_table import DefaultTable
from pellucid.postgres.query.scan import BEGIN
from pellucid.postgres.schema import citus
from pellucid.postgres.schema.layout import Layout
from pellucid.postgres.schema.tables import FrozenTables, LayoutCache
from pellucid.postgres.session import Lost, Parameters, Rows, Session
from pellucid.postgres.table.table import Table

if TYPE_CHECKING:
    from pellucid.postgres.database import Database

T = TypeVar("T")


class SharedLock:
    """A lock among the threads of one process.

    A forked child gets none: a thread of its parent may have had the lock.
    """

    def __init__(self) -> None:
        self._process = os.getpid()
        self._lock = threading.RLock()

    def __enter__(self) -> None:
        if self._process != os.getpid():
            raise of_parent()
        self._lock.acquire()

    def __exit__(self, *_error: object) -> None:
        self._lock.release()


class SnapshotConnection(FrozenConnection):
    """How the statements of a snapshot reach the server: all over one connection, in one transaction."""

    def __init__(self, database: DatabaseConnection) -> None:
        # Threads may share a snapshot, and a connection runs one statement at a time.
        super().__init__(database, ServerValidity(), SharedLock())
        self.catalog = database.catalog
        # Until it has its connection.
        self.is_closed = True
        self.cache = LayoutCache()
        self._cursor_number = 0
        self._session = self._begun()
        self.is_closed = False

    def _begun(self) -> Session:
        """Take a connection, and begin the transaction that only reads."""
        for attempt in range(2):
            session = self.pool.take()
            is_begun = False
            try:
                # The first statement takes the snapshot, and BEGIN does not.
                session.batch([(BEGIN, ()), (b"SELECT pg_current_snapshot()", ())])
                is_begun = True
                return session
            except Lost as lost:
                if attempt:
                    raise errors.of_lost(lost.args[0], self.place, was_sent=False) from lost.args[0]
            finally:
                if not is_begun:
                    self.pool.give(session)
        raise AssertionError

    def close(self) -> None:
        """Give the connection back."""
        if self._session.is_foreign:
            # The parent's: the lock, too, which a thread of it may have.
            self._end()
            return
        with self.lock:
            if self.is_closed:
                return
            self._end()
            try:
                self._session.roll_back()
            finally:
                self.pool.give(self._session)

    def __del__(self) -> None:
        # The snapshot was dropped, and so were its tables and their records.
        if not getattr(self, "is_closed", True):
            self.close()

    def _end(self) -> None:
        self.is_closed = True
        self.cache.epoch += 1
        self.committed.close()

    def check_open(self) -> None:
        """Raise `Closed` after `close`."""
        if self.is_closed:
            raise Closed("this snapshot is closed; take another one with db.snapshot()")
        super().check_open()

    def with_session(self, work: Callable[[Session], T]) -> T:
        """Run work over its connection."""
        with self.lock:
            self.check_open()
            try:
                return work(self._session)
            except Lost as lost:
                raise errors.of_lost(lost.args[0], self.place, was_sent=False) from lost.args[0]

    def read(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        """Run a statement that reads."""
        return self.with_session(lambda session: session.rows(statement, parameters))

    def cursor(self) -> tuple[Session, bytes]:
        """Return its connection, and a name for a cursor."""
        self._cursor_number += 1
        return self._session, f"pellucid_{self._cursor_number}".encode()


class SnapshotTables(FrozenTables):
    """The tables as they were when the snapshot was made."""

    def __init__(self, connection: SnapshotConnection) -> None:
        super().__init__(connection.catalog, connection.cache)
        self._connection = connection

    def names(self) -> list[str]:
        """Return the names of all tables, in order."""
        return self._connection.with_session(self.catalog.names)

    def layout_named(self, name: str) -> Layout | None:
        """Return the layout of the table with this name."""
        layout = self._connection.with_session(lambda session: self.catalog.named(session, name))
        if layout is not None:
            citus.check_snapshot(layout)
            self.cache.layouts[layout.id] = layout
        return layout

    def known_layout(self, number: int) -> Layout | None:
        """Return the layout of the table with this id, if the snapshot has read it."""
        return self.cache.layouts.get(number)

    def layout(self, number: int) -> Layout | None:
        """Return the layout of the table with this id, if the snapshot has read it."""
        return self.cache.layouts.get(number)


class Snapshot(DefaultTable):
    """The database as it was when the snapshot was made: a mapping over its table "default", and its tables.

    It holds a connection, and the server keeps old rows for it, until it is closed.
    """

    _kind = "snapshot"

    def __init__(self, database: Database, connection: SnapshotConnection) -> None:
        self._database = database
        self._place = connection.place
        self._connection = connection
        self._tables = SnapshotTables(self._connection)
        self._default = Table(self._connection, self._tables, "default", stays_with_name=True)

    def __repr__(self) -> str:
        state = ", closed" if self._connection.is_closed else ""
        return f"<pellucid.Snapshot of {self._place.shown!r}{state}>"

    def __enter__(self) -> Snapshot:
        self._connection.check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; records of the snapshot raise `StaleRecord` from now on."""
        self._connection.close()

    def table(
        self,
        name: str,
        /,
        *,
        type: type | None = None,
        run_init: bool = False,
        fast: bool = False,
        ignore_extra: bool = False,
        renames: Any = None,
    ) -> Table:
        """Return the table with this name as it was."""
        self._connection.check_open()
        return Table(
            self._connection,
            self._tables,
            name,
            stays_with_name=True,
            type=type,
            run_init=run_init,
            fast=fast,
            ignore_extra=ignore_extra,
            renames=renames,
        )

    def tables(self) -> list[str]:
        """Return the names of all tables, in order."""
        return self._tables.names()
