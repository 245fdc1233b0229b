"""Changes of fields that a transaction collects, to send many of them in one statement.

A changed field is a compare-and-set of its row. Inside a transaction, its answer is not needed at once: the
record shows the change already, and it becomes final only at the commit. So the changes are sent together:
before the next statement of the transaction that may see them, and at the latest before the commit. If
another client has changed a row since it was read, the change is made again in the row as it is stored now,
as it would be without the delay. If that is impossible, the transaction ends, since the caller has gone on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pellucid._native import ServerEdit, server_key
from pellucid.errors import Busy
from pellucid.postgres import errors
from pellucid.postgres.schema import keys

if TYPE_CHECKING:
    from pellucid.postgres.protocols import RowStore

# Rows, and bytes kept for them, that are sent together.
COUNT_MAX = 1000
SIZE_MAX = 2 << 20


class Deferred:
    """The last state of one row, and the changes that led to it."""

    def __init__(self, version: int) -> None:
        # The version of the row when it was read. The stored change gives it the next version.
        self.version = version
        self.data = b""
        # The overflow values that the row refers to.
        self.kept: list[int] = []
        self.edits: list[ServerEdit] = []


class Backlog:
    """The changes of one transaction that were not sent to the server yet."""

    def __init__(self) -> None:
        # For each table, by its id: its rows, and those that are changed by their keys' codes.
        self._tables: dict[int, tuple[RowStore, dict[bytes, Deferred]]] = {}
        self._count = 0
        self._size = 0

    def __bool__(self) -> bool:
        return self._count > 0

    @property
    def is_full(self) -> bool:
        """Whether it is time to send."""
        return self._count >= COUNT_MAX or self._size >= SIZE_MAX

    def add(
        self, store: RowStore, number: int, code: bytes, version: int, data: bytes, kept: list[int], edit: Any
    ) -> int | None:
        """Keep a change; return the version that the row will have, or None if it has another one by now."""
        _, rows = self._tables.setdefault(number, (store, {}))
        row = rows.get(code)
        if row is None:
            row = rows[code] = Deferred(version)
            self._count += 1
        elif row.version + 1 != version:
            return None
        row.data, row.kept = data, kept
        row.edits.append(edit)
        self._size += len(data) + edit.size
        return row.version + 1

    def clear(self) -> None:
        """Forget all changes."""
        self._tables = {}
        self._count = self._size = 0

    def send(self) -> bool:
        """Store all changes; return whether a row has something else now than its records show."""
        tables = list(self._tables.values())
        # The statements below must not find themselves here.
        self.clear()
        is_other = False
        for store, rows in tables:
            is_other |= send(store, rows)
        return is_other


def send(store: RowStore, rows: dict[bytes, Deferred]) -> bool:
    """Store the changes of one table."""
    left = rows
    if len(rows) > 1:
        left = send_many(store, rows)
    for code, row in left.items():
        stored = store.swap(code, row.data, row.version, row.kept, [], 0)
        if not isinstance(stored, int):
            make_again(store, code, row, stored)
        elif left is rows:
            return False
    return bool(left)


def send_many(store: RowStore, rows: dict[bytes, Deferred]) -> dict[bytes, Deferred]:
    """Store changed rows in one statement; return those that have other versions by now."""
    by_key = {keys.stored(code): code for code in rows}
    stored = store.swap_many([(code, row.data, row.version) for code, row in rows.items()])
    left = dict(rows)
    for k, is_big in stored:
        code = by_key[k]
        row = left.pop(code)
        if is_big:
            store.sweep(k, row.kept, row.version + 1)
    return left


def make_again(store: RowStore, code: bytes, row: Deferred, found: tuple[bytes, int] | None) -> None:
    """Make the changes of a row in what it has now.

    Raises what the changes would, `KeyError` if it is gone, and `Busy` if it changes again and again.
    """
    attempt = 1
    while found is not None:
        data, version = found
        if version == row.version:
            raise Busy(errors.CONFLICT)
        kept: list[int] = []
        for edit in row.edits:
            data, kept = edit.again(data, store.validity())
        stored = store.swap(code, data, version, kept, [], attempt)
        if isinstance(stored, int):
            return
        found, attempt = stored, attempt + 1
    raise KeyError(server_key(code))
