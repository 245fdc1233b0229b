"""The rows of a table between two keys."""

from __future__ import annotations

from typing import Any

from pellucid._native import server_key_code
from pellucid.postgres.protocols import RowStore
from pellucid.postgres.query.scan import ALL, Range, RowIterator
from pellucid.postgres.schema import citus
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.session import Statement
from pellucid.postgres.table.records import Records


def range_of(records: Records, start: Any, stop: Any, prefix: Any) -> Range:
    """Return the range from `start` on, below `stop`, or that of a prefix."""
    if start is None and stop is None and prefix is None:
        return ALL
    return Range(*records.bounds(start, stop, prefix))


class TableRange:
    """The rows of a table between two keys, as they are now: what a view shows."""

    def __init__(self, records: Records, rows: RowStore, within: Range) -> None:
        self._records = records
        self._rows = rows
        self._within = within

    def count(self) -> int:
        """Return how many rows there are."""
        within = self._within
        if within.is_long:
            return sum(1 for _ in self.iterate("keys", False))

        def count(sql: Statements) -> Statement:
            place = citus.common_place(sql.layout, within.low, within.high)
            citus.check_one_state(self._records.connection.is_snapshot, sql.layout, place)
            return sql.count_range(within.low, within.high, place) if within is not ALL else (sql.count, ())

        rows = self._records.binding.ask(count)
        return int(rows[0][0]) if rows else 0

    def iterate(self, shows: str, reverse: bool) -> RowIterator:
        """Return an iterator over the "keys", "values" or "items"."""
        return RowIterator(self._records, shows, self._within, reverse)

    def get(self, key: Any) -> tuple[Any] | None:
        """Return the value of a key; None if it has none, or is not in the range."""
        code = server_key_code(key)
        if code is None or not self._within.holds(code):
            return None
        return self._rows.get(key)
