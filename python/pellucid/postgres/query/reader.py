"""Read the rows of a query, for the native module: one state of a table, with as many statements as it
takes.

A query that the server answers whole, with a limit, is one statement in one round trip. Any other has a
cursor in a transaction that only reads, as a scan has, and its pages are fetched ahead. A sort reads its
rows once for their order, and looks up those that are wanted in the same state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pellucid.errors import DatabaseError
from pellucid.postgres import errors
from pellucid.postgres.background import started
from pellucid.postgres.query.scan import ALL, BEGIN, Pages, check_not_ended
from pellucid.postgres.query.sql import (
    Column,
    Predicate,
    Where,
    aggregates,
    exact,
    order_of,
    part_of,
    quick_aggregates,
)
from pellucid.postgres.schema import citus, keys
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.schema.text import big_int, quoted
from pellucid.postgres.session import Lost, Parameters, Rows, Statement

if TYPE_CHECKING:
    from pellucid.postgres.table.records import Records

# A query with a limit up to this has its rows in one answer.
WHOLE_COUNT_MAX = 1000
SHOWN_SIZE_MAX = 40
# A field of JSON cannot be cast to a number.
NOT_NUMERIC = "22023"


class Disordered(Exception):
    """An index has codes that are too long to be in order; its id is the argument."""


class ServerReader(Pages):
    """One state of a table, and the rows of a query in it."""

    def __init__(self, records: Records, sql: Statements) -> None:
        super().__init__(records, ALL, False)
        citus.check_one_state(self._connection.is_snapshot, sql.layout)
        self.sql = sql
        self.ready_indexes = [index for index in sql.layout.indexes if index.state == "ready"]
        schema = self._connection.place.schema
        self._columns = [
            Column(index.id, quoted(schema, f"e{index.id}").decode() if index.has_each else "")
            for index in self.ready_indexes
        ]
        self._is_own = False
        self._running = self._connection.running()
        # Whether the state is needed after the last page.
        self._is_kept = False
        self._is_by_key = True
        # The page that came with the first answer.
        self.first_page: Rows = []
        self._page_keys: list[bytes] = []

    def __del__(self) -> None:
        # A loop over the rows was left.
        if getattr(self, "_session", None) is not None:
            self.end()

    # Calls of the native module

    def indexes(self) -> list[tuple[str, str, bool, bool]]:
        """Return name and definition of each index, whether it is unique, and whether its codes are short."""
        disordered = self.sql.disordered
        return [
            (index.name, index.definition, index.is_unique, not index.has_long and index.id not in disordered)
            for index in self.ready_indexes
        ]

    def totals(self, places: Sequence[int]) -> list[bool]:
        """Return whether each row has an entry in these indexes."""
        rows = self.sql.rows.decode()
        tests = [
            f"NOT EXISTS (SELECT FROM {rows} WHERE i{self._columns[place].id} IS NULL)" for place in places
        ]
        return list(self._in_state(("SELECT " + ", ".join(tests)).encode())[0])

    def count(self, predicates: Sequence[Predicate], limit: int | None) -> int:
        """Return how many rows have the predicates, up to a limit."""
        where = Where(self._columns)
        rows = f"FROM {self.sql.rows.decode()}{where.clause(predicates)}"
        text = f"SELECT count(*) {rows}"
        if limit is not None:
            text = f"SELECT count(*) FROM (SELECT {rows} LIMIT {limit:d}) AS found"
        found = self._answered(text.encode(), where.given)
        self.end()
        return int(found[0][0])

    def aggregate(self, predicates: Sequence[Predicate], verb: str, names: list[str]) -> tuple[Any] | None:
        """Return the sum, count, min or max of a field of rows with JSON; None where that is not exact."""
        where = Where(self._columns)
        clause = where.clause(predicates)
        field = f"value #> {where.parameter(names)}::text[]"
        rows = f"FROM {self.sql.rows.decode()}{clause}"
        found = None
        if verb != "count" and tuple(names) not in self.sql.mixed:
            found = self._of_numbers(f"SELECT {quick_aggregates(verb, field)} {rows}", where.given, names)
        if found is None:
            text = f"SELECT {aggregates(verb, field)} {rows}"
            found = self._answered(text.encode(), where.given)
        self.end()
        return exact(verb, *found[0])

    def _of_numbers(self, text: str, given: Parameters, names: list[str]) -> Rows | None:
        """Return what a statement gives that fails where a field is no number; None if it did."""
        if self._running is not None or self._connection.is_snapshot or self._session is not None:
            # It would end the transaction.
            return None
        try:
            return self._answered(text.encode(), given)
        except DatabaseError as error:
            if errors.sqlstate(error.__cause__) != NOT_NUMERIC:
                raise
            # The server writes each error into its log.
            self.sql.mixed.add(tuple(names))
            return None

    def rows(
        self,
        predicates: Sequence[Predicate],
        order: tuple[int, bool] | None,
        offset: int,
        limit: int | None,
        has_records: bool,
        is_kept: bool,
    ) -> None:
        """Begin to read rows, in the order of an index or of keys."""
        statement, given = self._statement(predicates, order, offset, limit, has_records)
        self._is_kept = is_kept
        self._is_by_key = order is None
        if limit is not None and limit <= WHOLE_COUNT_MAX and not is_kept:
            page = self._answered(statement, given)
            self._is_at_end = True
            self.end()
        else:
            page = self._opened(statement, given)
        if order is not None and not page:
            self._check_order(self.ready_indexes[order[0]].id)
        self.first_page = self._arranged(page)

    def entries(self, asked: Statement, limit: int | None = None) -> None:
        """Begin to read what a statement gives, in its own order: up to `limit` rows, if it says so."""
        self._is_by_key = False
        if limit is not None and limit <= WHOLE_COUNT_MAX:
            page = self._answered(*asked)
            self._is_at_end = True
        else:
            page = self._opened(*asked)
        self.first_page = self._arranged(page)

    def page(self) -> Rows | None:
        """Return the next rows; None at the end."""
        self.check()
        page, self.first_page = self.first_page, []
        # No generator, which would refer to this object, and keep its connection until it is collected.
        while not page and not self._is_at_end:
            page = self._page_behind()
        self._page_keys = [row[0] for row in page]
        return page or None

    def named(self, codes: Sequence[bytes]) -> Rows:
        """Return the rows under these keys, in the order of the keys."""
        wanted = [keys.stored(code) for code in codes]
        text = b"SELECT k, s, v, ver FROM " + self.sql.rows + b" WHERE k = ANY($1::bytea[])"
        found = {row[0]: row for row in self._answered(text, (wanted,))}
        page = [found[key] for key in wanted if key in found]
        self._records.learn(page)
        self._page_keys = [row[0] for row in page]
        return page

    def large(self, number: int) -> bytes | None:
        """Return an overflow value of the rows that were read last; None if it is gone."""
        text = (
            b"SELECT bytes FROM "
            + self.sql.overflow
            + b" WHERE k = ANY($1::bytea[]) AND id = $2 ORDER BY piece"
        )
        pieces = self._answered(text, (self._page_keys, big_int(number)))
        return b"".join(piece for (piece,) in pieces) if pieces else None

    def check(self) -> None:
        """Raise where the transaction or the snapshot that the rows were read in has ended."""
        check_not_ended(self._connection, self._running)

    def is_checked(self) -> bool:
        """Return whether `check` may raise between two rows."""
        return self._running is not None or self._connection.is_snapshot

    def end(self) -> None:
        """Give the connection back."""
        self._is_kept = False
        super()._end()

    def recover(self, error: BaseException) -> None:
        """Raise the error, unless another client has changed the layout: then the query begins again."""
        self.end()
        if isinstance(error, Disordered):
            self.sql.disordered.add(error.args[0])
            return
        if not isinstance(error, errors.LayoutChanged):
            raise error
        self._binding.layout_changed(self.sql, error)

    def explained(
        self, predicates: Sequence[Predicate], order: tuple[int, bool] | None, offset: int, limit: int | None
    ) -> list[str]:
        """Return the statement for rows, its parameters, and the server's plan of it, in lines."""
        statement, given = self._statement(predicates, order, offset, limit, True)
        lines = [f"ask the server: {statement.decode()}"]
        if given:
            lines.append(", ".join(f"${number} = {_shown(value)}" for number, value in enumerate(given, 1)))
        plan = self._answered(b"EXPLAIN (COSTS true, FORMAT text) " + statement, given)
        self.end()
        lines += [f"server: {_text(line)}" for (line,) in plan]
        return lines

    # The statements

    def _statement(
        self,
        predicates: Sequence[Predicate],
        order: tuple[int, bool] | None,
        offset: int,
        limit: int | None,
        has_records: bool,
    ) -> tuple[bytes, list[Any]]:
        where = Where(self._columns)
        # A value begins with the number of shapes that it needs, also one that is not read.
        columns = "k, s, v, ver" if has_records else "k, s, '\\x00000000'::bytea, 0::bigint"
        # A client that has stored a long code since the layout was read has noted it there.
        others = [] if order is None else [f"NOT {self._has_long(self.ready_indexes[order[0]].id)}"]
        text = f"SELECT {columns} FROM {self.sql.rows.decode()}{where.clause(predicates, *others)}"
        return (text + order_of(self._columns, order) + part_of(offset, limit)).encode(), where.given

    def _has_long(self, number: int) -> str:
        return f"(SELECT has_long FROM {quoted(self.sql.schema, 'indexes').decode()} WHERE id = {number:d})"

    def _check_order(self, number: int) -> None:
        if self._answered(f"SELECT {self._has_long(number)}".encode())[0][0]:
            raise Disordered(number)

    def _answered(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        """Run a statement in the state that is held, or in that of now."""
        if self._session is None or not self._is_own:
            return self._connection.read(statement, parameters)
        if self._ahead is not None:
            self._ahead.wait()
        try:
            return self._session.rows(statement, parameters)
        except Lost as lost:
            raise errors.of_lost(lost.args[0], self._connection.place, was_sent=False) from lost.args[0]

    def _in_state(self, statement: bytes) -> Rows:
        """Run a statement in a state that is held from now on."""
        begin = self._held_state()
        return self._batch([*begin, (statement, ())])

    def _held_state(self) -> list[Statement]:
        """Take a connection, if none is held; return the statements that begin with it."""
        if self._session is not None:
            return []
        running = self._connection.running()
        if running is not None:
            self._cursor, self._session = running.cursor_name(), running.ready()
        elif self._connection.is_snapshot:
            self._session, self._cursor = self._connection.cursor()
        else:
            self._session, self._cursor = self._connection.pool.take(), b"pellucid"
            self._is_own = True
            return [(BEGIN, ())]
        return []

    def _batch(self, statements: list[Statement]) -> Rows:
        assert self._session is not None
        try:
            with self._lock:
                return self._session.batch(statements)[-1]
        except Lost as lost:
            raise errors.of_lost(lost.args[0], self._connection.place, was_sent=False) from lost.args[0]
        except BaseException:
            self.end()
            raise

    def _opened(self, statement: bytes, given: Parameters) -> Rows:
        """Open a cursor, and return its first page."""
        begin = self._held_state()
        declare = b"DECLARE " + self._cursor + b" NO SCROLL CURSOR FOR " + statement
        page = self._batch([*begin, (declare, given), (self._fetch(), ())])
        self._size_up(page)
        return page

    # Pages

    def _page_behind(self) -> Rows:
        try:
            self._connection.check_open()
            page = self._next_page()
            self._size_up(page)
            if self._is_own and not self._is_at_end:
                self._ahead = started(self._fetched)
            return self._arranged(page)
        except BaseException:
            self.end()
            raise

    def _end(self) -> None:
        if self._is_kept:
            self._is_at_end = True
        else:
            super()._end()

    def _arranged(self, page: Rows) -> Rows:
        if self._is_by_key:
            return super()._arranged(page)
        self._records.learn(page)
        return page


def _shown(value: Any) -> str:
    """Return a parameter for people."""
    if isinstance(value, list):
        shown = ", ".join(_shown(part) for part in value[:5])
        return f"[{shown}{', ...' if len(value) > 5 else ''}]"
    digits = value.hex()
    return f"\\x{digits[:SHOWN_SIZE_MAX]}{'...' if len(digits) > SHOWN_SIZE_MAX else ''}"


def _text(value: Any) -> str:
    return value if isinstance(value, str) else bytes(value).decode()
