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
from typing import TYPE_CHECKING, Any

from pellucid.errors import Closed, CorruptRecord, DatabaseError, HistoryGone, TransactionError
from pellucid.postgres.query.scan import ALL, Range
from pellucid.postgres.schema.catalog import Catalog, again, formed
from pellucid.postgres.schema.layout import Layout, quoted
from pellucid.postgres.schema.triggers import (
    FUNCTION,
    RELATIONS,
    ROW_FUNCTION,
    TABLE_FUNCTION,
    TABLE_TRIGGERS,
    add_triggers,
    is_watched,
)
from pellucid.postgres.session import Lost, Rows, Session
from pellucid.postgres.source import Source
from pellucid.postgres.table import keys
from pellucid.postgres.table.table import Table

if TYPE_CHECKING:
    from pellucid.postgres.database import Database
    from pellucid.postgres.transaction import Running

# A notice wakes a watch; this is for commits that wait for the end of another transaction.
POLL_SECONDS = 1.0
SLICE_SECONDS = 0.05
PAGE_COUNT = 500
KEPT = "1 day"
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
FORGET = """
WITH old AS (SELECT max(at) AS at FROM {schema}.changes WHERE time < now() - interval '{kept}'
    AND at < pg_snapshot_xmin(pg_current_snapshot())),
gone AS (DELETE FROM {schema}.changes WHERE at <= (SELECT at FROM old))
UPDATE {schema}.watched SET oldest = ((SELECT at FROM old)::text::bigint + 1)::text::xid8
WHERE (SELECT at FROM old) IS NOT NULL
"""


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


def start(database: Database) -> None:
    """Let all tables note their changes, unless they do."""
    schema, name = database._place.schema, quoted(database._place.schema)

    def create(session: Session) -> None:
        session.execute(b"BEGIN")
        # No table is created, and none changes its layout, until all have their triggers.
        session.execute(formed("LOCK TABLE {schema}.catalog IN SHARE ROW EXCLUSIVE MODE", schema=name))
        if not is_watched(session, schema):
            session.script(formed(RELATIONS, schema=name))
            for function, text in ((b"note_row", ROW_FUNCTION), (b"note_table", TABLE_FUNCTION)):
                literal = b"'" + schema.replace("'", "''").encode() + b"'"
                body = formed(text, schema=name, literal=literal).replace(b"'", b"''")
                body = b"'" + body + b"'"
                session.script(formed(FUNCTION, schema=name, name=function, body=body))
            session.script(formed(TABLE_TRIGGERS, schema=name))
            for table in database._catalog.names(session):
                layout = database._catalog.named(session, table)
                if layout is not None:
                    add_triggers(session, schema, layout)
        session.execute(b"COMMIT")

    with database._connections.lent() as session:
        if session.rows(b"SELECT FROM pg_extension WHERE extname = 'citus'"):
            raise DatabaseError(
                "watch() is not there on Citus: each of its nodes numbers its own transactions, so no order "
                "holds for all; read the rows again instead"
            )
        if is_watched(session, schema):
            return
        if database._running() is not None:
            raise TransactionError(
                "the first watch() of a database creates triggers; call it outside of a transaction"
            )
        try:
            again(session, lambda: create(session))
        finally:
            session.roll_back()


def forget(session: Session, schema: str) -> None:
    """Delete changes that are older than a day."""
    if is_watched(session, schema):
        session.execute(formed(FORGET, schema=quoted(schema), kept=KEPT.encode()))


class Past(Source):
    """What the values of changes ask for: they cannot be changed, and large values are read now."""

    _is_snapshot = True
    _mode = "r"

    def __init__(self, database: Database, number: int) -> None:
        self._database = database
        self._number = number
        self._place = database._place
        self._codec = database._codec
        self._catalog: Catalog = database._catalog
        self._connections = database._connections
        self._closed = False
        self._names_changed = self._epoch = 0
        self._timeout = database._timeout
        # No connection is shared.
        self._lock = contextlib.nullcontext()

    def _check_open(self) -> None:
        self._database._check_open()

    def _running(self) -> Running | None:
        return None

    def _gate(self) -> Any:
        return self._database._open_gate

    def _read(self, statement: bytes, parameters: Any = ()) -> Rows:
        with self._connections.lent() as session:
            return session.rows(statement, parameters)

    def _learn_up_to(self, count: int) -> None:
        self._database._learn_up_to(count)

    def _layout_named(self, _name: str) -> Layout | None:
        with self._connections.lent() as session:
            return self._catalog.numbered(session, self._number)

    def _layout(self, _number: int) -> Layout | None:
        return self._layout_named("")

    def _known_layout(self, _number: int) -> Layout | None:
        return None


class Watch:
    """The changes that any client commits, one after the other; `watch` makes it."""

    def __init__(
        self,
        database: Database,
        table: Table | None = None,
        within: Range = ALL,
        since: int | None = None,
        timeout: float | None = None,
    ) -> None:
        if since is not None and since < 0:
            raise ValueError(f"since={since} is no version: the version of a watch, or of a change")
        if timeout is not None and not timeout >= 0:
            raise ValueError(f"timeout={timeout} is no number of seconds from 0 on")
        start(database)
        self._database = database
        self._within = within
        self._timeout = timeout
        self._sql, self._given = self._conditions(table)
        self._session: Session | None = None
        self._page: Rows = []
        # The horizon at which the batch that is read ends, and how many of its changes were given.
        self._stop: int | None = None
        self._count = 0
        self._is_read = False
        self._has_ended = False
        self._is_woken = True
        self._past: dict[int, Table] = {}
        # What was committed before the watch began is not given, even beyond its first horizon.
        session = self._connected()
        horizon, snapshot, oldest = session.rows(
            formed(
                "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, pg_current_snapshot()::text, "
                "oldest::text::bigint FROM {schema}.watched",
                schema=quoted(database._place.schema),
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
        return f"<pellucid.postgres.Watch of {self._database._place.shown!r} at {self._version}>"

    def _conditions(self, table: Table | None) -> tuple[str, list[Any]]:
        """Return the conditions on changes, and their parameters from `$4` on."""
        if table is None:
            return "", []
        layout = self._database._layout_named(table.name) if table._found is None else None
        number = table._found if layout is None else layout.id
        sql = "AND name = $4" if number is None else "AND tbl = $4"
        given: list[Any] = [table.name.encode() if number is None else number]
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
                        f"the connection to {self._database._place.shown} ended; watch again with "
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
            session = Session(self._database._place, self._database._connections._setup)
            session.connection.add_notify_handler(self._wake)
            session.script(b"LISTEN pellucid")
            self._session = session
        return self._session

    def _wake(self, _notice: object) -> None:
        self._is_woken = True

    def _next(self) -> Change:
        until = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._has_ended:
            self._database._check_open()
            session = self._connected()
            if self._page or self._fill(session):
                return self._given_change()
            if self._stop is None and not self._is_read:
                self._is_woken = False
                if self._begin(session):
                    continue
                if until is not None and time.monotonic() >= until:
                    break
                self._wait(session, until)
        self.close()
        raise StopIteration

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
            text = BATCH.format(schema=quoted(self._database._place.schema).decode(), conditions=self._sql)
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
            self._past[number] = Table(Past(self._database, number), name, stays_with_name=True)
        table = self._past[number]
        if kind == "delete":
            return Change(version, name, kind, key_of(table, key, spelling), None, is_last)
        found = (key, spelling, data, 0)
        table._known([found])
        value = table._value(found, self._database._open_gate)
        return Change(version, name, kind, key_of(table, key, spelling), value, is_last)

    def _wait(self, session: Session, until: float | None) -> None:
        """Wait for a notice of the server, for a second at most."""
        end = time.monotonic() + POLL_SECONDS
        end = end if until is None else min(end, until)
        while not self._is_woken and (left := end - time.monotonic()) > 0:
            if self._database.closed:
                raise Closed("this database is closed; open it again with pellucid.open()")
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


def key_of(table: Table, key: bytes, spelling: bytes | None) -> Any:
    """Return the key of a row."""
    if keys.is_long(key):
        return table._keys([(key, spelling, b"", 0)])[0]
    return table._key_object(key, spelling)
