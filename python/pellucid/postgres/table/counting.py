"""`increment`: add to a number in a record, while no other client can change its row.

The server locks the row first, and each client waits there for its turn, so that none is refused. A row
without large values, in a table without indexes, is read with the lock, and the lock ends with the change:
two round trips. All else takes a transaction of the usual kind.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pellucid._native import Record, RecordList
from pellucid.errors import Busy
from pellucid.postgres.attempts import Attempts
from pellucid.postgres.errors import CONFLICT, LayoutChanged
from pellucid.postgres.schema import keys

if TYPE_CHECKING:
    from pellucid.postgres.protocols import RowStore
    from pellucid.postgres.session import Rows, Statement
    from pellucid.postgres.table.records import Records


class Increment:
    """One addition to a number at a path of a row."""

    def __init__(self, records: Records, rows: RowStore, key: Any, path: Any, by: Any) -> None:
        check_number(by, "by")
        self._records = records
        self._rows = rows
        self._key = key
        self._path = path
        self._steps = steps_of(path)
        self._by = by
        self._code, self._spelling = records.encode_key(key)
        self.total: Any = None

    def run(self, default: Any) -> Any:
        """Add, and return the sum."""
        connection = self._records.connection
        if default is not None:
            check_number(default, "default")
        if connection.running() is None and (self._quickly() or self._begun(default)):
            return self.total
        attempts = Attempts(connection)
        while True:
            try:
                with connection.locking():
                    self._locked(default)
                return self.total
            except Busy as error:
                # Two clients may wait for each other where each has locked another row before.
                if not attempts.again(error):
                    raise

    def _row(self, data: bytes, version: int) -> Any:
        row = (*keys.stored_with(self._code, self._spelling), data, version)
        return self._records.value(row, self._records.connection.validity())

    def _quickly(self) -> bool:
        """Add in two round trips; false if nothing was done."""
        records = self._records
        sql = records.binding.statements()
        if sql is None or sql.layout.has_derived or sql.layout.is_distributed or records.is_typed:
            return False
        k = keys.stored(self._code)

        def change(found: Rows) -> Statement | None:
            if not found or found[0][2]:
                return None
            data, version, _ = found[0]
            records.learn([(*keys.stored_with(self._code, self._spelling), data, version)])
            record = self._row(data, version)
            if not isinstance(record, Record):
                return None
            record = record.copy()
            self._add(record, None)
            new, large = records.encoded(self._key, record)
            return None if large else (sql.swap, (k, version, new, None))

        try:
            return records.connection.change_locked((sql.get_locked, (k,)), change)
        except (LayoutChanged, KeyError):
            # The other way knows what to do.
            return False

    def _begun(self, default: Any) -> bool:
        """Store the row of a counter that begins, as a write of its own; false if there is a row.

        Only such a write can create the table beside other clients that do.
        """
        if default is None or len(self._steps) > 1 or self._rows.get(self._key) is not None:
            return False
        self.total = default + self._by
        return self._rows.put_if_absent(self._key, {self._steps[0]: self.total})

    def _locked(self, default: Any) -> None:
        """Add in a transaction that locks the row."""
        while not self._rows.lock(keys.stored(self._code)):
            if self._rows.get(self._key) is None:
                self._absent(default)
                return
            # Another client has stored it since.
        found = self._rows.get(self._key)
        if found is None:
            raise Busy(CONFLICT)
        self._add(found[0], default)

    def _absent(self, default: Any) -> None:
        """Store the row, where there is none."""
        if default is None or len(self._steps) > 1:
            raise KeyError(self._key)
        self.total = default + self._by
        if not self._rows.put_if_absent(self._key, {self._steps[0]: self.total}):
            # Another client has stored it since.
            self._locked(default)

    def _add(self, holder: Any, default: Any) -> None:
        """Add to the number in a record, and set the sum there."""
        place = f"the value at {self._path!r} of key {self._key!r} in table {self._records.name!r}"
        if not isinstance(holder, Record | RecordList):
            raise TypeError(f"{place} cannot be counted: what is stored is no dict or list")
        *towards, last = self._steps
        for step in towards:
            holder = holder[step]
        try:
            old = holder[last]
        except KeyError:
            if default is None:
                raise
            old = default
        check_number(old, place)
        self.total = old + self._by
        holder[last] = self.total


def steps_of(path: Any) -> list[Any]:
    """Return the steps of a field path."""
    if not isinstance(path, str | tuple):
        raise TypeError(
            'a field path is a str ("address.city") or a tuple ("address", "city"), not '
            f"{type(path).__name__}"
        )
    steps = path.split(".") if isinstance(path, str) else list(path)
    if not steps:
        raise ValueError("a field path needs at least one field")
    return steps


def check_number(value: Any, place: str) -> None:
    """Raise `TypeError` for what is no int, float or Decimal."""
    decimal = sys.modules.get("decimal")
    if type(value) in (int, float) or (decimal is not None and type(value) is decimal.Decimal):
        return
    raise TypeError(
        f"increment() adds an int, a float or a Decimal to one, and {place} is {value!r}, of type "
        f"{type(value).__name__}"
    )
