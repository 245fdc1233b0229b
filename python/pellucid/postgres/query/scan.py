"""Walk over the rows of a table on a server, in the order of their keys, with little memory.

A scan has a connection of its own and a cursor in a transaction that only reads, so it sees the state at
its beginning, whatever is written meanwhile. A small table comes with the first answer, and the connection
is free again at once. Later pages are fetched ahead by a thread, while the program works on the page
before. Inside a transaction the cursor is the transaction's.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pellucid._native import server_keys, server_whole_code
from pellucid.errors import CorruptRecord, TransactionError
from pellucid.postgres import errors
from pellucid.postgres.background import Task, started
from pellucid.postgres.errors import LayoutChanged
from pellucid.postgres.protocols import Connection
from pellucid.postgres.schema import citus, keys
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.session import Lost, Rows, Session, Statement
from pellucid.postgres.transaction import Running

if TYPE_CHECKING:
    from pellucid.postgres.table.records import Records

FIRST_COUNT = 100
PAGE_COUNT_MAX = 4000
# A page is about as large as this: large enough for few round trips, and small enough for the caches.
PAGE_SIZE = 1 << 20
BEGIN = b"BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"


@dataclasses.dataclass(frozen=True)
class Range:
    """The codes between which keys lie, the second one excluded; None: no bound."""

    start: bytes | None = None
    stop: bytes | None = None

    @property
    def is_long(self) -> bool:
        """Whether a bound is too long for the server, so that rows near it are tested here."""
        return any(code is not None and len(code) > keys.SHORT_SIZE_MAX for code in (self.start, self.stop))

    @property
    def low(self) -> bytes | None:
        """The stored key from which rows are fetched."""
        return self.start[: keys.SHORT_SIZE_MAX] if self.start is not None else None

    @property
    def high(self) -> bytes | None:
        """The stored key before which rows are fetched."""
        if self.stop is None or len(self.stop) <= keys.SHORT_SIZE_MAX:
            return self.stop
        return self.stop[: keys.SHORT_SIZE_MAX] + keys.BEHIND

    def holds(self, code: bytes) -> bool:
        """Return whether a code lies in the range."""
        return (self.start is None or code >= self.start) and (self.stop is None or code < self.stop)


ALL = Range()


class RowIterator:
    """An iterator over the keys, values or items of a table, as they were when it began."""

    def __init__(self, records: Records, shows: str, within: Range, reverse: bool) -> None:
        self._records = records
        self._shows = shows
        connection = records.connection
        self._running = connection.running()
        pages = Pages(records, within, reverse)
        first = pages.first()
        validity = connection.validity()

        def shown(page: Rows) -> list[Any]:
            if shows == "keys":
                return server_keys(page)
            return records.values(page, validity) if shows == "values" else records.items(page, validity)

        # Chained lists: no Python code runs between two rows of a page.
        rows = itertools.chain(shown(first), itertools.chain.from_iterable(map(shown, pages)))
        self._rows: Iterator[Any] = rows
        is_checked = self._running is not None or connection.is_snapshot
        self._next: Callable[[], Any] = self._checked if is_checked else rows.__next__

    def __iter__(self) -> RowIterator:
        return self

    def __next__(self) -> Any:
        return self._next()

    def __repr__(self) -> str:
        return f"<pellucid.RowIterator over {self._shows} of table {self._records.binding.name!r}>"

    def _checked(self) -> Any:
        check_not_ended(self._records.connection, self._running)
        return next(self._rows)


def check_not_ended(connection: Connection, running: Running | None) -> None:
    """Raise where the transaction or the snapshot that rows were read in has ended."""
    connection.check_open()
    if running is not None and connection.running() is not running:
        raise TransactionError(
            "the transaction that this iterator walks over has ended; make a list before it does"
        )


class Pages:
    """The pages of one scan: lists of fetched rows."""

    def __init__(self, records: Records, within: Range, reverse: bool) -> None:
        self._records = records
        self._binding = records.binding
        self._within = within
        self._reverse = reverse
        self._connection = records.connection
        self._session: Session | None = None
        self._cursor = b""
        # Threads may share a snapshot, and its connection.
        self._lock = self._connection.lock
        self._is_at_end = False
        self._count = FIRST_COUNT
        self._ahead: Task[Rows] | None = None
        self._held: Rows = []
        self._is_own = False
        # Where pages are statements of their own: these, and the last key.
        self._paged: Statements | None = None
        self._last: bytes | None = None

    def __del__(self) -> None:
        # A scan that was dropped before its second page never came to the end of `__iter__`.
        if getattr(self, "_session", None) is not None:
            self._end()

    def first(self) -> Rows:
        """Begin the scan, and return its first page."""
        for _ in range(20):
            sql = self._binding.statements()
            if sql is None:
                self._is_at_end = True
                return []
            try:
                place = citus.common_place(sql.layout, self._within.low, self._within.high)
                citus.check_one_state(self._connection.is_snapshot, sql.layout, place)
                is_many = citus.spans_servers(sql.layout, place)
                return self._arranged(self._begin_pages(sql) if is_many else self._begin(sql, place))
            except LayoutChanged as error:
                self._binding.layout_changed(sql, error)
            except Lost as lost:
                raise errors.of_lost(lost.args[0], self._connection.place, was_sent=False) from lost.args[0]
        raise self._binding.too_many_changes()

    def _begin(self, sql: Statements, place: bytes | None) -> Rows:
        low, high = self._within.low, self._within.high
        statement, given = sql.scan(low, high, place, reverse=self._reverse)
        # An attempt before, in an older layout, has ended.
        self._is_at_end = False
        begin: list[Statement] = []
        running = self._connection.running()
        if running is not None:
            self._cursor = running.cursor_name()
            self._session = running.ready()
        elif self._connection.is_snapshot:
            self._session, self._cursor = self._connection.cursor()
        else:
            self._session, self._cursor = self._connection.pool.take(), b"pellucid"
            begin = [(BEGIN, ())]
        self._is_own = bool(begin)
        declare = b"DECLARE " + self._cursor + b" NO SCROLL CURSOR FOR " + statement
        try:
            with self._lock:
                found = self._session.batch([*begin, (declare, given), (self._fetch(), ())])[-1]
        except BaseException:
            self._end()
            raise
        self._size_up(found)
        return found

    def _begin_pages(self, sql: Statements) -> Rows:
        """Begin with pages by key: a cursor over several servers would fetch all rows before the first."""
        self._paged, self._is_at_end = sql, False
        found = self._page_after()
        self._size_up(found)
        return found

    def _page_after(self) -> Rows:
        low, high = self._within.low, self._within.high
        while (sql := self._paged) is not None:
            asked = sql.page(low, high, self._last, self._count, reverse=self._reverse)
            try:
                page = self._connection.read(*asked)
            except LayoutChanged as error:
                self._binding.layout_changed(sql, error)
                self._paged = self._binding.statements()
                continue
            if page:
                self._last = page[-1][0]
            return page
        # The table was dropped, and its handle stays with the name.
        return []

    def _fetch(self) -> bytes:
        return b"FETCH %d FROM " % self._count + self._cursor

    def _size_up(self, page: Rows) -> None:
        if len(page) < self._count:
            self._end()
            return
        size = sum(len(row[2]) for row in page) + 1
        self._count = max(1, min(PAGE_COUNT_MAX, len(page) * PAGE_SIZE // size))

    def __iter__(self) -> Iterator[Rows]:
        try:
            while not self._is_at_end:
                self._connection.check_open()
                page = self._next_page()
                self._size_up(page)
                is_alone = self._is_own or (self._paged is not None and self._connection.running() is None)
                if is_alone and not self._is_at_end:
                    self._ahead = started(self._fetched)
                arranged = self._arranged(page)
                if arranged:
                    yield arranged
        finally:
            self._end()

    def _next_page(self) -> Rows:
        try:
            if self._ahead is None:
                return self._fetched()
            # An interrupt ends the waiting, and not the work.
            self._ahead.wait()
            ahead, self._ahead = self._ahead, None
            return ahead.result()
        except Lost as lost:
            raise errors.of_lost(lost.args[0], self._connection.place, was_sent=False) from lost.args[0]

    def _fetched(self) -> Rows:
        if self._paged is not None:
            return self._page_after()
        assert self._session is not None
        with self._lock:
            return self._session.rows(self._fetch())

    def _end(self) -> None:
        """Give the connection back, and leave the transaction's as it was."""
        self._is_at_end = True
        session, self._session = self._session, None
        if session is None:
            return
        ahead, self._ahead = self._ahead, None
        if not self._is_own:
            return
        try:
            if ahead is not None and not session.is_foreign:
                ahead.wait()
            session.roll_back()
        finally:
            self._connection.pool.give(session)

    def _arranged(self, page: Rows) -> Rows:
        """Return a page with its shapes known and its long keys in order."""
        if not page and not self._held:
            return page
        has_long = self._records.learn(page)
        if not has_long and not self._held and not self._within.is_long:
            return page
        return self._sorted(page)

    def _sorted(self, page: Rows) -> Rows:
        """Sort each run of long keys with the same beginning; keep a run that may go on for the next page."""
        rows = self._held + page
        self._held = []
        done: Rows = []
        for beginning, group in itertools.groupby(rows, lambda row: row[0][: keys.SHORT_SIZE_MAX]):
            run = list(group)
            if any(keys.is_long(row[0]) for row in run):
                run.sort(key=self.whole_key, reverse=self._reverse)
                if not self._is_at_end and rows[-1][0][: keys.SHORT_SIZE_MAX] == beginning:
                    self._held = run
                    break
            done += run
        if self._within.is_long:
            done = [row for row in done if self._within.holds(self.whole_key(row))]
        return done

    def whole_key(self, row: tuple[Any, ...]) -> bytes:
        """Return the code of a row's key; of one that is damaged, what is stored, until it is read."""
        try:
            return server_whole_code(row)
        except CorruptRecord:
            stored: bytes = row[0]
            return stored


def pages_of(records: Records) -> Iterator[Rows]:
    """Yield all rows, as they were when this began, in pages."""
    pages = Pages(records, ALL, False)
    yield pages.first()
    yield from pages
