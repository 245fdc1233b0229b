"""What claims, rows that expire, edits and looks do with handles of tables."""

from __future__ import annotations

import weakref
from time import monotonic
from typing import Any

from pellucid import Record, Table
from pellucid._native import _untyped
from pellucid.classes import EXPIRES, LEASE, kind_of

__all__ = ["Recent", "put_again", "untyped"]

COUNT_MAX = 1000


class Recent:
    """Handles of this process, each noted for `seconds`; it keeps no handle alive.

    >>> import pellucid
    >>> from pellucid.handles import Recent
    >>> jobs, recent = pellucid.open(":memory:").table("jobs"), Recent(seconds=60)
    >>> recent.add(jobs)
    >>> jobs in recent
    True
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        # By id, since a handle has no hash. The id of a handle that is gone may be given to another one.
        self._noted: dict[int, tuple[weakref.ref[Any], float]] = {}

    def add(self, handle: Any) -> None:
        """Note a handle from now on."""
        if len(self._noted) >= COUNT_MAX:
            self._noted.clear()
        self._noted[id(handle)] = (weakref.ref(handle), monotonic())

    def __contains__(self, handle: Any) -> bool:
        """Return whether a handle was noted within the last seconds."""
        found, since = self._noted.get(id(handle), (None, 0.0))
        return found is not None and found() is handle and monotonic() - since < self._seconds


def untyped(table: Any) -> Any:
    """Return the table without the class of its rows: they are records, whatever the class says of them."""
    return _untyped(table) if isinstance(table, Table) else table._untyped()


def put_again(table: Any, key: Any, value: Any) -> None:
    """Store a value that was read and changed; an instance keeps the lease and the time of its row.

    Anything else shows them, if it has them: a dict does.
    """
    if kind_of(type(value)) is None:
        table[key] = value
        return
    rows = untyped(table)
    row = rows.get(key)
    kept = {name: row[name] for name in (LEASE, EXPIRES) if name in row} if isinstance(row, Record) else {}
    # The old row is gone when its fields are stored again.
    kept = {name: part.to_dict() if isinstance(part, Record) else part for name, part in kept.items()}
    table[key] = value
    if kept:
        rows[key].update(kept)
