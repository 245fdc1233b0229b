"""Rows that expire: what `table.put(key, value, expire=...)` stores, and who deletes it.

The time is in the row itself, in the field `_expires`, in seconds since 1970. So it goes with the row into a
copy, holds for every process, and ends with an assignment to the key. An index over the field has entries for
these rows alone. Expired rows are deleted by the next `put` that gives a time, by each watch of the table
that waits, and by `expire()`: no process runs for it alone. A `pellucid.Cache` never shows such entries.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from math import isfinite
from time import time
from typing import Any

from pellucid import F, Record
from pellucid.errors import Busy, DiskFull, StaleTable
from pellucid.recent import Recent
from pellucid.seconds import seconds_of

FIELD = "_expires"
INDEX = "_expirations"
# A watch looks this often whether there is a row that expires.
WATCH_SECONDS = 1.0
# A put and a look of a watch delete this many rows at most, so that no other writer waits for long.
COUNT_MAX = 100
# Handles whose table had the index a moment ago.
INDEXED = Recent(seconds=1.0)


def put(table: Any, key: Any, value: Any, expire: Any, is_typed: bool) -> None:
    """Do `table.put`."""
    if expire is None:
        table[key] = value
        return
    seconds = seconds_of(expire, "expire")
    if not (seconds >= 0 and isfinite(seconds)):
        raise ValueError(f"expire={expire!r:.40} is no time from 0 seconds on")
    if is_typed:
        raise TypeError(
            f"a row that expires has its time in the field {FIELD!r}, and the class of table {table.name!r} "
            f"has none: put it through a handle without type=, db.table({table.name!r}); a handle with "
            "ignore_extra=True reads it"
        )
    if not isinstance(value, Mapping | Record):
        raise TypeError(
            f"a row that expires is a dict, which keeps its time in the field {FIELD!r}, and the value for "
            f"key {key!r:.40} is of type {type(value).__name__}: put it into a dict"
        )
    make_index(table)
    table[key] = {**value, FIELD: time() + seconds}
    # The row is stored, whatever is in the way of this.
    with suppress(Busy, DiskFull):
        delete_some([table])


def make_index(table: Any) -> None:
    """Create the index, unless this process has found it in the table within the last second."""
    if table in INDEXED:
        return
    if INDEX not in [index.name for index in table.indexes()]:
        table.create_index(INDEX, F[FIELD])
    # A transaction that creates the index may be rolled back.
    if not table._is_in_transaction:
        INDEXED.add(table)


def expire_rows(table: Any, count_max: int | None = None) -> int:
    """Do `table.expire`; delete at most `count_max` rows."""
    expired = table.where(F[FIELD] <= time())
    # Mostly there is none, and then no transaction is needed.
    if not expired.limit(1).count():
        return 0
    deleted: int = (expired if count_max is None else expired.limit(count_max)).delete()
    return deleted


def delete_some(tables: Iterable[Any]) -> int:
    """Delete some expired rows of each table, and return how many."""
    count = 0
    for table in tables:
        with suppress(StaleTable):
            count += expire_rows(table, COUNT_MAX)
    return count


def seconds_left(tables: Iterable[Any]) -> float:
    """Return after how many seconds the first row expires; `WATCH_SECONDS` at most."""
    left, now, field = WATCH_SECONDS, time(), F[FIELD]
    for table in tables:
        # A table that is dropped meanwhile has none.
        with suppress(StaleTable):
            if table.where(field <= now).limit(1).count():
                return 0.0
            for row in table.where(field < now + left).order_by(field).limit(1):
                left = min(left, max(0.0, float(row[FIELD]) - now))
    return left
