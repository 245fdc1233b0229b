"""How statements reach the server: over a connection of the pool, or of the caller's transaction."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, TypeVar

from pellucid._native import ServerCodec, ServerValidity
from pellucid.errors import Busy, Closed, ReadOnly
from pellucid.postgres import errors, settings, transaction, unclosed
from pellucid.postgres.attempts import Attempts
from pellucid.postgres.background import started
from pellucid.postgres.pool import Pool
from pellucid.postgres.protocols import Connection
from pellucid.postgres.schema import citus
from pellucid.postgres.schema.catalog import Catalog
from pellucid.postgres.schema.shapes import Shapes
from pellucid.postgres.schema.tables import FROZEN, LayoutCache
from pellucid.postgres.session import Lost, Parameters, Rows, Session, Statement
from pellucid.postgres.transaction import Owned, Running, TransactionContext
from pellucid.postgres.url import Place

T = TypeVar("T")


class DatabaseConnection:
    """How the statements of a database reach the server.

    Threads may share it: each has a connection of its own while it waits for the server, and a transaction
    belongs to the thread or task that began it.
    """

    is_snapshot = False
    _opened_at: str | None = None

    def __init__(self, place: Place, mode: str, durability: str, pickle: Any, timeout: float) -> None:
        self.place = place
        self.is_read_only = mode == "r"
        self.timeout = timeout
        self.is_closed = False
        self.codec = ServerCodec(pickle)
        # How long rows are valid that are read outside of a transaction.
        self.committed = ServerValidity()
        # Each thread has a connection of its own.
        self.lock: contextlib.AbstractContextManager[Any] = contextlib.nullcontext()
        self.pool = Pool(place, timeout, settings.of_connection(place, mode, durability, timeout))
        self.catalog = Catalog(place.schema)
        self.cache = LayoutCache()
        self._shapes = Shapes(self.codec, place.schema)
        self._owned = Owned()
        # Settings that each transaction gets in addition.
        self._begin_settings = b""
        try:
            with self.pool.session() as session:
                self.identity = self.catalog.open(session, mode)
                has_citus = self.catalog.has_citus
                self._begin_settings = settings.of_transaction(place, durability, timeout, has_citus)
                session.is_cluster = self.pool.is_cluster = has_citus
                self._shapes.learn(session)
        except BaseException:
            self.pool.close()
            raise
        self._opened_at = unclosed.opened_at()

    def __del__(self) -> None:
        """Warn of a database that was not closed, when its last handle is gone."""
        if self._opened_at is not None and not self.is_closed:
            unclosed.warn(self.place.shown, self._opened_at)

    @property
    def shown(self) -> str:
        """The database, for people."""
        state = ", closed" if self.is_closed else ""
        return f"<pellucid.Database {self.place.shown!r}{state}>"

    def check_open(self) -> None:
        """Raise `Closed` after `close`."""
        if self.is_closed:
            raise Closed("this database is closed; open it again with pellucid.open()")

    def check_writable(self) -> None:
        """Raise where nothing can be written."""
        self.check_open()
        if self.is_read_only:
            raise ReadOnly('the database was opened with mode="r"; open it with "w" or "c" to write')

    def close(self, end_snapshots: Callable[[], None]) -> None:
        """Roll the caller's transaction back, and end the connections."""
        if self.is_closed:
            return
        self.is_closed = True
        self.cache.epoch += 1
        self.committed.close()
        end_snapshots()
        running = self.running()
        if running is not None:
            self.roll_back(running)
        self.pool.close()

    # Transactions

    def running(self) -> Running | None:
        """Return the caller's transaction; None if it has none."""
        return self._owned.mine()

    def validity(self) -> ServerValidity:
        """Return how long rows that are read now are valid."""
        running = self.running()
        return self.committed if running is None else running.validity

    def transaction(self) -> TransactionContext:
        """Return a transaction, as a context manager; inside of another one, it is a savepoint."""
        self.check_open()
        return TransactionContext(self)

    def locking(self) -> TransactionContext:
        """As `transaction`, for work that locks its one row before it reads it."""
        self.check_open()
        return TransactionContext(self, transaction.BEGIN_LOCKING)

    def change_locked(self, lock: Statement, change: Callable[[Rows], Statement | None]) -> bool:
        """Lock a row and change it, outside of a transaction, in two round trips; false if it was not done.

        `change` gets what the locking statement gives, and returns the statement that changes the row, or
        None.
        """
        if self._begin_settings:
            # Each transaction has settings of its own.
            return False
        self.check_open()
        session = self.pool.take()
        was_sent = False
        try:
            statement = change(session.inlined([(transaction.BEGIN_LOCKING, ()), lock])[1])
            if statement is None:
                return False
            was_sent = True
            return bool(session.inlined([statement, (b"COMMIT", ())])[0])
        except Lost as lost:
            raise errors.of_lost(lost.args[0], self.place, was_sent=was_sent) from lost.args[0]
        finally:
            session.roll_back()
            self.pool.give(session)

    def begin(self, begin: bytes) -> Running:
        """Begin a transaction, which is the caller's."""
        session = self.pool.take()
        try:
            session.script(begin + self._begin_settings)
        except Lost as lost:
            self.pool.give(session)
            raise errors.of_lost(lost.args[0], self.place, was_sent=False) from lost.args[0]
        except BaseException:
            self.pool.give(session)
            raise
        running = Running(session)
        self._owned.add(running)
        return running

    def commit(self, running: Running) -> None:
        """Commit a transaction."""
        try:
            transaction.commit(running, self)
        except BaseException:
            self.roll_back(running)
            raise
        running.is_committed = True
        self._leave(running)
        self.cache.apply(running.layouts)

    def roll_back(self, running: Running) -> None:
        """Roll a transaction back."""
        try:
            running.session.roll_back()
        finally:
            self._leave(running)
            if running.has_changed_tables:
                self.cache.names_changed += 1
                self.cache.epoch += 1
            for validity in (validity for level in running.levels for validity in level):
                validity.invalidate()

    def roll_back_dropped(self, running: Running) -> None:
        """Roll back a transaction that no code is left to end, wherever the collector has found that."""
        running.leave()
        if running.session.is_in_use and started(lambda: self.roll_back(running)) is not None:
            return
        self.roll_back(running)

    def _leave(self, running: Running) -> None:
        running.has_ended = True
        running.backlog.clear()
        running.leave()
        self.pool.give(running.session)

    # Statements

    def with_session(self, work: Callable[[Session], T]) -> T:
        """Run work that may be done twice, over the transaction's connection or another one."""
        self.check_open()
        running = self.running()
        if running is not None:
            try:
                return work(running.ready())
            except Lost as lost:
                raise running.lost(lost) from lost.args[0]
        for attempt in range(2):
            with self.pool.session() as session:
                try:
                    return work(session)
                except Lost as lost:
                    if attempt:
                        raise errors.of_lost(lost.args[0], self.place, was_sent=False) from lost.args[0]
        raise AssertionError

    def read(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        """Run a statement that reads."""
        self.check_open()
        running = self.running()
        if running is not None:
            return running.rows(statement, parameters)
        for attempt in range(2):
            session = self.pool.take()
            try:
                return session.rows(statement, parameters)
            except Lost as lost:
                if attempt:
                    raise errors.of_lost(lost.args[0], self.place, was_sent=False) from lost.args[0]
            finally:
                self.pool.give(session)
        raise AssertionError

    def write(self, statements: list[Statement]) -> list[Rows]:
        """Run statements that write, in the caller's transaction or in one of their own."""
        self.check_open()
        running = self.running()
        if running is not None:
            if len(statements) == 1:
                return [running.rows(*statements[0])]
            return running.batch(statements)
        attempts = Attempts(self)
        while True:
            session = self.pool.take()
            try:
                if len(statements) == 1:
                    return [session.rows(*statements[0])]
                return session.batch(statements)
            except Lost as lost:
                raise errors.of_lost(lost.args[0], self.place, was_sent=True) from lost.args[0]
            except Busy as error:
                failed = error
            finally:
                self.pool.give(session)
            # The server has stored nothing of them.
            if not attempts.again(failed):
                raise failed

    def cursor(self) -> tuple[Session, bytes]:
        """Only a snapshot has a connection for all its cursors."""
        raise AssertionError

    # Shapes

    def learn_up_to(self, count: int) -> None:
        """Learn the shapes of other clients, if there are `count` of them."""
        if count <= self.codec.shape_count:
            return
        running = self.running()
        with self.pool.beside(running) as session:
            self._shapes.learn(session)
        is_beside = running is None or session is not running.session
        if self.catalog.has_citus and not is_beside:
            citus.check_shapes(count, self.codec.shape_count)

    def register_shapes(self, shapes: list[bytes]) -> list[int] | None:
        """Return the ids of shapes, once the server has them; None if it cannot be asked now."""
        return self._shapes.register(self.pool, shapes)


class FrozenConnection:
    """How the statements about a state that does not change reach the server; what would write raises."""

    is_snapshot = True
    is_read_only = True

    def __init__(
        self,
        database: Connection,
        committed: ServerValidity,
        lock: contextlib.AbstractContextManager[Any],
    ) -> None:
        self._database = database
        self.place = database.place
        self.codec = database.codec
        self.pool = database.pool
        self.timeout = database.timeout
        self.committed = committed
        self.lock = lock

    def check_open(self) -> None:
        """Raise `Closed` after `close`."""
        self._database.check_open()

    def check_writable(self) -> None:
        """Raise `ReadOnly`."""
        self.check_open()
        raise ReadOnly(FROZEN)

    def running(self) -> None:
        """Return None: it sees no transaction of the caller's."""

    def validity(self) -> ServerValidity:
        """Return how long its rows are valid."""
        return self.committed

    def write(self, _statements: list[Statement]) -> list[Rows]:
        """Raise `ReadOnly`."""
        raise ReadOnly(FROZEN)

    def transaction(self) -> Any:
        """Raise `ReadOnly`."""
        raise ReadOnly(FROZEN)

    def locking(self) -> Any:
        """Raise `ReadOnly`."""
        raise ReadOnly(FROZEN)

    def change_locked(self, _lock: Statement, _change: Callable[[Rows], Statement | None]) -> bool:
        """Raise `ReadOnly`."""
        raise ReadOnly(FROZEN)

    def learn_up_to(self, count: int) -> None:
        """Learn the shapes of other clients, if there are `count` of them."""
        self._database.learn_up_to(count)

    def register_shapes(self, _shapes: list[bytes]) -> list[int] | None:
        """Raise `ReadOnly`."""
        raise ReadOnly(FROZEN)
