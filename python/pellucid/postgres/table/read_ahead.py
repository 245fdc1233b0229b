"""Rows that a transaction reads before they are asked for.

A loop `for key in keys: table[key].field = value` waits for the server at each `table[key]`, and that takes
longer than all else. If keys are asked for in their order, one statement reads the row and those after it.
All reads of a transaction see one state, so that an earlier read gives the same. Rows are forgotten with the
next statement, whatever it does, and a row when it is changed.
"""

from __future__ import annotations

from typing import Any, Protocol

from pellucid.postgres.session import Rows

# Keys in order after which rows are read ahead.
STREAK_MIN = 4
# Rows that are read together: few at first.
COUNT_MIN, COUNT_MAX = 16, 1000
# Their bytes, roughly: as many changed rows are sent together (`write_behind.py`).
SIZE_MAX = 1 << 20
# Keys that are asked for one by one after most rows were read for nothing; twice as many each time.
PAUSE_MIN, PAUSE_MAX = 64, 1 << 16

Found = tuple[bytes, int]


class Source(Protocol):
    """What reads the rows of a table."""

    def fetch(self, code: bytes) -> Found | None:
        """Return the stored bytes and the version of a row; None if there is none."""

    def fetch_from(self, code: bytes, count: int) -> Rows:
        """Return up to `count` rows from a key on, in the order of keys."""


class ReadAhead:
    """The rows that were read and not asked for yet."""

    def __init__(self) -> None:
        self._table_id: int | None = None
        self._rows: dict[bytes, Found] = {}
        # The last key that was asked for, and how many came in order.
        self._last = b""
        self._streak = 0
        self._count, self._pause = COUNT_MIN, PAUSE_MIN
        # How many rows were read ahead the last time, and how many of them were not asked for.
        self._read = self._left = 0

    def get(self, source: Source, table_id: int, code: bytes) -> Found | None:
        """Return the stored bytes and the version of a row; None if there is none."""
        if table_id != self._table_id:
            self._table_id, self._rows, self._streak = table_id, {}, 0
        elif (found := self._rows.pop(code, None)) is not None:
            self._last = code
            return found
        else:
            self._streak = self._streak + 1 if code > self._last else min(self._streak, 0)
        self._last = code
        if self._streak < STREAK_MIN or not self._is_of_use():
            return source.fetch(code)
        rows: list[tuple[Any, ...]] = list(source.fetch_from(code, self._count))
        size = sum(len(row[2]) for row in rows)
        self._count = max(COUNT_MIN, min(4 * self._count, COUNT_MAX, len(rows) * SIZE_MAX // max(1, size)))
        self._rows = {row[0]: (row[2], row[3]) for row in rows}
        asked = self._rows.pop(code, None)
        self._read, self._left = len(self._rows), 0
        return asked

    def _is_of_use(self) -> bool:
        """Say whether the rows that were read ahead the last time were asked for, most of them."""
        self.clear()
        is_of_use = 2 * self._left <= self._read
        if not is_of_use:
            self._streak, self._count = -self._pause, COUNT_MIN
            self._pause = min(2 * self._pause, PAUSE_MAX)
        self._read = self._left = 0
        return is_of_use

    def forget(self, table_id: int, code: bytes) -> None:
        """Forget a row that is changed."""
        if table_id == self._table_id:
            self._rows.pop(code, None)

    def clear(self) -> None:
        """Forget all rows."""
        if self._rows:
            self._left, self._rows = len(self._rows), {}
