"""A snapshot of a database on a server: a transaction that only reads, on a connection of its own."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from pellucid._native import ServerGate
from pellucid.errors import Closed, ReadOnly, TransactionError
from pellucid.postgres import errors
from pellucid.postgres.background import of_parent
from pellucid.postgres.query.scan import BEGIN
from pellucid.postgres.schema.layout import Layout
from pellucid.postgres.session import Lost, Parameters, Rows, Session
from pellucid.postgres.source import FROZEN, Source
from pellucid.postgres.table.table import Mapping, Table

if TYPE_CHECKING:
    from pellucid.postgres.database import Database
    from pellucid.postgres.transaction import Running

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


class Snapshot(Mapping, Source):
    """The database as it was when the snapshot was made: a mapping over its table "default", and its tables.

    It holds a connection, and the server keeps old rows for it, until it is closed.
    """

    _is_snapshot = True

    def __init__(self, database: Database) -> None:
        self._database = database
        self._place = database._place
        self._mode = "r"
        self._codec = database._codec
        self._catalog = database._catalog
        self._connections = database._connections
        self._own_gate = ServerGate()
        # Until it has its connection.
        self._closed = True
        # Threads may share a snapshot, and a connection runs one statement at a time.
        self._lock = SharedLock()
        self._layouts: dict[int, Layout] = {}
        self._names_changed = 0
        self._epoch = 0
        self._cursor_number = 0
        self._session = self._begun()
        self._closed = False
        self._default = Table(self, "default", stays_with_name=True)
        database._snapshots[id(self)] = self

    def _begun(self) -> Session:
        """Take a connection, and begin the transaction that only reads."""
        for attempt in range(2):
            session = self._connections.take()
            is_begun = False
            try:
                # The first statement takes the snapshot, and BEGIN does not.
                session.batch([(BEGIN, ()), (b"SELECT pg_current_snapshot()", ())])
                is_begun = True
                return session
            except Lost as lost:
                if attempt:
                    raise errors.of_lost(lost.args[0], self._place, was_sent=False) from lost.args[0]
            finally:
                if not is_begun:
                    self._connections.give(session)
        raise AssertionError

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<pellucid.Snapshot of {self._place.shown!r}{state}>"

    def _table(self) -> Table:
        return self._default

    def __enter__(self) -> Snapshot:
        self._check_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give the connection back; records of the snapshot raise `StaleRecord` from now on."""
        if self._session.is_foreign:
            # The parent's: the lock, too, which a thread of it may have.
            self._closed = True
            self._epoch += 1
            self._own_gate.close()
            return
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._epoch += 1
            self._own_gate.close()
            try:
                self._session.roll_back()
            finally:
                self._connections.give(self._session)

    def __del__(self) -> None:
        if not getattr(self, "_closed", True):
            self.close()

    def table(
        self, name: str, /, *, type: type | None = None, run_init: bool = False, fast: bool = False
    ) -> Table:
        """Return the table with this name as it was."""
        self._check_open()
        return Table(self, name, stays_with_name=True, type=type, run_init=run_init, fast=fast)

    def tables(self) -> list[str]:
        """Return the names of all tables, in order."""
        return self._with_session(self._catalog.names)

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("this snapshot is closed; take another one with db.snapshot()")
        self._database._check_open()

    def _check_writable(self) -> None:
        self._check_open()
        raise ReadOnly(FROZEN)

    def _running(self) -> Running | None:
        return None

    def _gate(self) -> ServerGate:
        return self._own_gate

    def _with_session(self, work: Callable[[Session], T]) -> T:
        with self._lock:
            self._check_open()
            try:
                return work(self._session)
            except Lost as lost:
                raise errors.of_lost(lost.args[0], self._place, was_sent=False) from lost.args[0]

    def _read(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        return self._with_session(lambda session: session.rows(statement, parameters))

    def _scanning(self) -> tuple[Session, bytes]:
        self._cursor_number += 1
        return self._session, f"pellucid_{self._cursor_number}".encode()

    def _learn_up_to(self, count: int) -> None:
        self._database._learn_up_to(count)

    def _layout_named(self, name: str) -> Layout | None:
        layout = self._with_session(lambda session: self._catalog.named(session, name))
        # By the first parts of its keys, it has rows that are on one server.
        if layout is not None and layout.is_distributed and not layout.distribute_by:
            raise TransactionError(
                f"table {name!r} is distributed, and its servers have no common snapshot: a read of several "
                "rows may see one part of a transaction and not the other. Read it through the database, one "
                "row at a time, or keep what must agree in one row, or in a table that is not distributed"
            )
        if layout is not None:
            self._layouts[layout.id] = layout
        return layout

    def _known_layout(self, number: int) -> Layout | None:
        return self._layouts.get(number)

    def _layout(self, number: int) -> Layout | None:
        return self._layouts.get(number)
