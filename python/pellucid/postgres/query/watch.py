"""Watch what is committed on a server: each change once, in an order in which it may have happened.

The first watch creates a table `changes` and triggers that write into it, in the transaction of each write.
A watch reads it in batches. A batch has the changes of all transactions from one horizon up to the next: the
oldest transaction that runs (`pg_snapshot_xmin`). All below it have ended, so nothing is lost or repeated,
and a transaction that is open for long holds the watch back.

Within a batch, transactions are in the order of their last change. A change is numbered while its row is
locked, so of two transactions that write one row, the later has the greater number. Transactions that have
no row in common may be given in either order.
"""

from __future__ import annotations

import contextlib
import dataclasses
import time
from collections.abc import Callable, Iterable
from typing import Any

from pellucid._native import server_key, server_keys
from pellucid.errors import Busy, CorruptRecord, DatabaseError, DiskFull, HistoryGone, ReadOnly, StaleTable
from pellucid.expiry import INDEX, delete_some, seconds_left
from pellucid.postgres.connection import FrozenConnection
from pellucid.postgres.protocols import Connection, Tables
from pellucid.postgres.query.scan import ALL, Range
from pellucid.postgres.schema import keys, triggers
from pellucid.postgres.schema.layout import Layout
from pellucid.postgres.schema.tables import FROZEN, FrozenTables, LayoutCache
from pellucid.postgres.schema.text import formed, quoted
from pellucid.postgres.session import Lost, Parameters, Rows, Session
from pellucid.postgres.table.binding import TableBinding
from pellucid.postgres.table.overflow import Overflow
from pellucid.postgres.table.records import Records

# A notice wakes a watch; this is for commits that wait for the end of another transaction.
POLL_SECONDS = 1.0
SLICE_SECONDS = 0.05
# How long after a change a watch looks for expired rows.
LOOK_SECONDS = 0.1
PAGE_COUNT = 500
ATTEMPTS = 3

# `$1` and `$2` are the horizons, and `$3` a snapshot whose commits are left out. A transaction that wrote a
# row twice gives the last change of it.
BATCH = """
SELECT tbl, name, kind, k, s, v FROM (
    SELECT *, max(n) OVER (PARTITION BY at) AS last, row_number() OVER (PARTITION BY at, tbl, k,
        CASE WHEN kind IN ('put', 'delete') THEN 0 ELSE n END ORDER BY n DESC) AS rank
    FROM {schema}.changes WHERE at >= $1::text::xid8 AND at < $2::text::xid8
) AS c WHERE rank = 1 AND ($3::text IS NULL OR NOT pg_visible_in_snapshot(at, $3::text::pg_snapshot))
{conditions} ORDER BY last, n
"""
BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclasses.dataclass(frozen=True)
class Change:
    """What a commit changed: a row, or a table."""

    __match_args__ = ("table", "kind", "key", "value")
    version: int
    table: str
    kind: str
    key: Any
    value: Any
    # Whether it is the last one of its version.
    is_last: bool


class PastConnection(FrozenConnection):
    """What the values of changes ask for: they cannot be changed, and overflow values are read now."""

    def __init__(self, database: Connection) -> None:
        # No connection is shared.
        super().__init__(database, database.committed, contextlib.nullcontext())

    def read(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        """Run a statement that reads."""
        with self.pool.session() as session:
            return session.rows(statement, parameters)

    def cursor(self) -> tuple[Session, bytes]:
        """Raise `ReadOnly`: a change has no rows to scan."""
        raise ReadOnly(FROZEN)


class PastTables(FrozenTables):
    """The one table that a change was in, as it is now."""

    def __init__(self, tables: Tables, connection: PastConnection, number: int) -> None:
        super().__init__(tables.catalog, LayoutCache())
        self._connection = connection
        self._number = number

    def layout_named(self, _name: str) -> Layout | None:
        """Return the layout of the table; None if it was dropped."""
        with self._connection.pool.session() as session:
            return self.catalog.numbered(session, self._number)

    def layout(self, _number: int) -> Layout | None:
        """Return the layout of the table; None if it was dropped."""
        return self.layout_named("")

    def known_layout(self, _number: int) -> Layout | None:
        """Return None: the layout is read for each value."""
        return None


class Watch:
    """The changes that any client commits, one after the other; `watch` makes it."""

    def __init__(
        self,
        connection: Connection,
        tables: Tables,
        binding: TableBinding | None = None,
        within: Range = ALL,
        since: int | None = None,
        timeout: float | None = None,
        tables_of: Callable[[], Iterable[Any]] = tuple,
    ) -> None:
        if since is not None and since < 0:
            raise ValueError(f"since={since} is no version: the version of a watch, or of a change")
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout={timeout} is no number of seconds from 0 on")
        triggers.start(connection, tables.catalog)
        self._connection = connection
        self._tables = tables
        self._within = within
        self._timeout = timeout
        self._sql, self._given = self._conditions(binding)
        self._session: Session | None = None
        self._page: Rows = []
        # The horizon at which the batch that is read ends, and how many of its changes were given.
        self._stop: int | None = None
        self._count = 0
        self._is_read = False
        self._has_ended = False
        self._is_woken = True
        # What returns the watched tables, and when to look for expired rows of them.
        self._tables_of = tables_of
        self._look_at = time.monotonic()
        self._past: dict[int, Records] = {}
        # What was committed before the watch began is not given, even beyond its first horizon.
        session = self._connected()
        horizon, snapshot, oldest = session.rows(
            formed(
                "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_snapshot()::text, "
                "oldest::text::bigint FROM {schema}.watched",
                schema=quoted(connection.place.schema),
            )
        )[0]
        if since is not None and since < oldest:
            self.close()
            gone = HistoryGone(
                f"the changes since version {since} are not kept any more; the oldest is {oldest}: read the "
                "tables again, and watch from now on"
            )
            gone.since, gone.oldest = since, oldest
            raise gone
        self._version = horizon if since is None else since
        self._before = snapshot if since is None else None

    def __repr__(self) -> str:
        return f"<pellucid.postgres.Watch of {self._connection.place.shown!r} at {self._version}>"

    def _conditions(self, binding: TableBinding | None) -> tuple[str, list[Any]]:
        """Return the conditions on changes, and their parameters from `$4` on."""
        if binding is None:
            return "", []
        layout = self._tables.layout_named(binding.name) if binding.table_id is None else None
        number = binding.table_id if layout is None else layout.id
        sql = "AND name = $4" if number is None else "AND tbl = $4"
        given: list[Any] = [binding.name.encode() if number is None else number]
        for bound, sign in ((self._within.low, ">="), (self._within.high, "<")):
            if bound is not None:
                given.append(bound)
                sql += f" AND (k IS NULL OR k {sign} ${3 + len(given)})"
        return sql, given

    @property
    def version(self) -> int:
        """The version up to which all changes were given; `since=` goes on there."""
        return self._version

    def __iter__(self) -> Watch:
        return self

    def __next__(self) -> Change:
        for attempt in range(ATTEMPTS):
            try:
                return self._next()
            except Lost as lost:
                self._let_go()
                if attempt == ATTEMPTS - 1:
                    raise DatabaseError(
                        f"the connection to {self._connection.place.shown} ended; watch again with "
                        f"since={self._version}"
                    ) from lost.args[0]
            except StopIteration:
                raise
            except BaseException:
                # The connection may be in the middle of an answer; the next step reads the change again.
                self._let_go()
                raise
        raise AssertionError

    def close(self) -> None:
        """End the watch and its connection."""
        self._has_ended = True
        self._let_go()

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):
            self._let_go()

    def _let_go(self) -> None:
        session, self._session = self._session, None
        self._page, self._is_read = [], False
        if session is not None:
            session.close()

    def _connected(self) -> Session:
        if self._session is not None and self._session.is_foreign:
            # A forked child goes on where its parent was.
            self._let_go()
        if self._session is None:
            session = Session(self._connection.place, self._connection.pool._setup)
            session.connection.add_notify_handler(self._wake)
            session.script(b"LISTEN pellucid")
            self._session = session
        return self._session

    def _wake(self, _notice: object) -> None:
        self._is_woken = True

    def _next(self) -> Change:
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._has_ended:
            self._connection.check_open()
            session = self._connected()
            if self._page or self._fill(session):
                return self._given_change()
            if self._stop is None and not self._is_read:
                self._is_woken = False
                if self._begin(session) or self._delete_expired():
                    continue
                if until is not None and time.monotonic() >= until:
                    break
                self._wait(session, until)
        self.close()
        raise StopIteration

    def _delete_expired(self) -> bool:
        """Delete expired rows of what is watched, so that the watch gives that; return whether it did."""
        now = time.monotonic()
        if now < self._look_at or self._connection.is_read_only or self._connection.running() is not None:
            return False
        tables = []
        for table in self._tables_of():
            # The watch gives the end of a table that is dropped meanwhile.
            with contextlib.suppress(StaleTable):
                if INDEX in [index.name for index in table.indexes()]:
                    tables.append(table)
        left = seconds_left(tables)
        self._look_at = now + left
        # A later look may be able to. A watch goes on to give changes.
        with contextlib.suppress(Busy, DiskFull, ReadOnly):
            return left == 0 and delete_some(tables) > 0
        return False

    def _begin(self, session: Session) -> bool:
        """Begin a batch; return whether the horizon has moved."""
        text = b"SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        horizon = session.rows(text)[0][0]
        if horizon <= self._version:
            return False
        self._stop, self._count = horizon, 0
        return True

    def _fill(self, session: Session) -> bool:
        """Read more of the batch; return whether there is a change to give."""
        if self._stop is None:
            return False
        if not self._is_read:
            text = BATCH.format(schema=quoted(self._connection.place.schema).decode(), conditions=self._sql)
            given = [str(self._version), str(self._stop), self._before, *self._given]
            session.execute(BEGIN)
            session.execute(b"DECLARE pellucid NO SCROLL CURSOR FOR " + text.encode(), given)
            if self._count:
                # The connection has ended in the middle of this batch, which is the same as before.
                session.execute(b"MOVE FORWARD %d FROM pellucid" % self._count)
            self._is_read = True
        self._page += session.rows(b"FETCH %d FROM pellucid" % PAGE_COUNT)
        if self._page:
            return True
        self._end_batch(session)
        return False

    def _end_batch(self, session: Session) -> None:
        session.execute(b"COMMIT")
        assert self._stop is not None
        self._version, self._stop, self._is_read = self._stop, None, False

    def _given_change(self) -> Change:
        assert self._stop is not None
        session = self._connected()
        if len(self._page) == 1:
            if not self._is_read:
                self._fill(session)
            else:
                self._page += session.rows(b"FETCH %d FROM pellucid" % PAGE_COUNT)
        version, is_last = self._stop, len(self._page) == 1
        number, name, kind, key, spelling, value = self._page[0]
        change = self._made(version, is_last, number, text_of(name), kind, (key, spelling, value))
        self._page.pop(0)
        self._count += 1
        self._look_at = min(self._look_at, time.monotonic() + LOOK_SECONDS)
        if is_last:
            self._end_batch(session)
        if kind == "drop" and self._sql:
            self._has_ended = True
        return change

    def _made(self, version: int, is_last: bool, number: int, name: str, kind: str, row: Any) -> Change:
        key, spelling, data = row
        if kind not in ("put", "delete"):
            value = text_of(data) if data is not None else None
            return Change(version, name, kind, None, value, is_last)
        if number not in self._past:
            self._past[number] = self._records_of(number, name)
        records = self._past[number]
        if kind == "delete":
            return Change(version, name, kind, key_of(key, spelling), None, is_last)
        found = (key, spelling, data, 0)
        records.learn([found])
        value = records.value(found, self._connection.committed)
        return Change(version, name, kind, key_of(key, spelling), value, is_last)

    def _records_of(self, number: int, name: str) -> Records:
        """Return what makes the values of a table's changes."""
        past = PastConnection(self._connection)
        tables = PastTables(self._tables, past, number)
        records = Records(past, tables, name, stays_with_name=True)
        records.overflow = Overflow(records.binding)
        return records

    def _wait(self, session: Session, until: float | None) -> None:
        """Wait for a notice of the server, for a second at most."""
        end = min(time.monotonic() + POLL_SECONDS, self._look_at)
        end = end if until is None else min(end, until)
        while not self._is_woken and (left := end - time.monotonic()) > 0:
            self._connection.check_open()
            # In slices, so that Ctrl-C and close() are heard.
            if session.is_readable(min(left, SLICE_SECONDS)):
                return


def text_of(data: bytes) -> str:
    """Return the name of a table as it is stored."""
    try:
        return bytes(data).decode()
    except UnicodeDecodeError:
        raise CorruptRecord(
            "the table `changes` has a name that is not UTF-8, which pellucid never stores: watch again "
            "without since=, and read the tables"
        ) from None


def key_of(key: bytes, spelling: bytes | None) -> Any:
    """Return the key of a row."""
    if keys.is_long(key):
        return server_keys([(key, spelling, b"", 0)])[0]
    return server_key(key, spelling)
