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
from pellucid.classes import EXPIRES
from pellucid.errors import Busy, DiskFull, StaleTable
from pellucid.handles import Recent, untyped
from pellucid.seconds import seconds_of

INDEX = "_expirations"
# A watch looks this often whether there is a row that expires.
WATCH_SECONDS = 1.0
# A put and a look of a watch delete this many rows at most, so that no other writer waits for long.
COUNT_MAX = 100
# Handles whose table had the index a moment ago.
INDEXED = Recent(seconds=1.0)


def put(table: Any, key: Any, value: Any, expire: Any, cls: type | None) -> None:
    """Do `table.put`."""
    if expire is None:
        table[key] = value
        return
    seconds = seconds_of(expire, "expire")
    if not (seconds >= 0 and isfinite(seconds)):
        raise ValueError(f"expire={expire!r:.40} is no time from 0 seconds on")
    has_instances = cls not in (None, object)
    if not has_instances and not isinstance(value, Mapping | Record):
        raise no_dict(table, key, value)
    make_index(table)
    if has_instances:
        table._run(lambda: put_instance(table, key, value, time() + seconds))
    else:
        table[key] = {**value, EXPIRES: time() + seconds}
    # The row is stored, whatever is in the way of this.
    with suppress(Busy, DiskFull):
        delete_some([table])


def put_instance(table: Any, key: Any, value: Any, until: float) -> None:
    """Store an instance of the table's class, and beside its fields when the row expires."""
    table[key] = value
    row = untyped(table)[key]
    if not isinstance(row, Record):
        raise no_dict(table, key, value)
    row[EXPIRES] = until


def no_dict(table: Any, key: Any, value: Any) -> TypeError:
    """Return the exception for a value that has no room for a time."""
    return TypeError(
        f"a row that expires is a dict, or an instance with fields, and keeps its time in the field "
        f"{EXPIRES!r}; the value for key {key!r:.40} of table {table.name!r} is of type "
        f"{type(value).__name__}: put it into a dict"
    )


def make_index(table: Any) -> None:
    """Create the index, unless this process has found it in the table within the last second."""
    if table in INDEXED:
        return
    if INDEX not in [index.name for index in table.indexes()]:
        table.create_index(INDEX, F[EXPIRES])
    # A transaction that creates the index may be rolled back.
    if not table._is_in_transaction:
        INDEXED.add(table)


def expire_rows(table: Any, count_max: int | None = None) -> int:
    """Do `table.expire`; delete at most `count_max` rows."""
    expired = table.where(F[EXPIRES] <= time())
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
    left, now, field = WATCH_SECONDS, time(), F[EXPIRES]
    for table in tables:
        # A table that is dropped meanwhile has none.
        with suppress(StaleTable):
            if table.where(field <= now).limit(1).count():
                return 0.0
            for row in untyped(table).where(field < now + left).order_by(field).limit(1):
                left = min(left, max(0.0, float(row[EXPIRES]) - now))
    return left
