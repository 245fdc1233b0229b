"""`increment`: add to a number in a record, while no other client can change its row.

The server locks the row first, and each client waits there for its turn, so that none is refused. In a table
without indexes, three ways are tried:

1. An int in a field of a row's dict has a place that depends on the names of the fields alone. Once a client
   knows it, one statement adds there, if the row still has these fields: one round trip, and no client waits
   for another one's program.
2. A row without large values is read with the lock, and the lock ends with the change: two round trips.
3. A transaction of the usual kind.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from pellucid._native import Record, RecordList
from pellucid.errors import Busy, DatabaseError
from pellucid.postgres.attempts import Attempts
from pellucid.postgres.errors import CONFLICT, LayoutChanged, sqlstate
from pellucid.postgres.schema import keys
from pellucid.postgres.schema.statements import HEAD_OF_ROW, INT_TAG
from pellucid.postgres.schema.text import big_int

if TYPE_CHECKING:
    from pellucid.postgres.protocols import RowStore
    from pellucid.postgres.schema.statements import Statements
    from pellucid.postgres.session import Rows, Statement
    from pellucid.postgres.table.records import Records

INT_BITS = 64
INT_OUT_OF_RANGE = "22003"
PLACES_MAX = 1000


class Increment:
    """One addition to a number at a path of a row."""

    def __init__(self, records: Records, rows: RowStore, key: Any, path: Any, by: Any) -> None:
        check_number(by, "by")
        self._records = records
        self._rows = rows
        self._key = key
        self._path = path
        self._steps = steps_of(path)
        # The field, if the path is one of a dict that is the row.
        self._field = self._steps[0] if len(self._steps) == 1 and isinstance(self._steps[0], str) else ""
        self._by = by
        self._code, self._spelling = records.encode_key(key)
        self.total: Any = None

    def run(self, default: Any) -> Any:
        """Add, and return the sum."""
        connection = self._records.connection
        if default is not None:
            check_number(default, "default")
        if connection.running() is None and (self._in_place() or self._quickly() or self._begun(default)):
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

    def _in_place(self) -> bool:
        """Add in one statement, in a row that has the known fields; false if nothing was done."""
        records, by = self._records, self._by
        place = records.int_places.get(self._field)
        sql = records.binding.statements()
        if place is None or sql is None or not is_simple(records, sql) or not is_small(by):
            return False
        head, tag, slot = place
        parameters = (keys.stored(self._code), head, big_int(by))
        try:
            found = records.connection.write([(sql.add_int(tag, slot), parameters)])[0]
        except LayoutChanged:
            # The other ways know what to do.
            return False
        except DatabaseError as error:
            if sqlstate(error.__cause__) != INT_OUT_OF_RANGE:
                raise
            return False
        if not found:
            # The row has other fields, or is gone.
            records.int_places.pop(self._field, None)
            return False
        self.total = int.from_bytes(found[0][0], "little", signed=True)
        return True

    def _learn_place(self, data: bytes) -> None:
        """Note where the int is in a row."""
        places = self._records.int_places
        place = self._records.connection.codec.int_place(data, self._field) if self._field else None
        if place is not None and len(places) < PLACES_MAX:
            places[self._field] = data[HEAD_OF_ROW] + INT_TAG, *place

    def _quickly(self) -> bool:
        """Add in two round trips; false if nothing was done."""
        records = self._records
        sql = records.binding.statements()
        if sql is None or not is_simple(records, sql):
            return False
        k = keys.stored(self._code)

        def change(found: Rows) -> Statement | None:
            if not found:
                return None
            data, version, is_big = found[0]
            records.learn([(*keys.stored_with(self._code, self._spelling), data, version)])
            self._learn_place(data)
            if is_big:
                return None
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


def is_simple(records: Records, sql: Statements) -> bool:
    """Return whether all of a row is its record, on one server."""
    return not (sql.layout.has_derived or sql.layout.is_distributed or records.row_class)


def is_small(number: Any) -> bool:
    """Return whether a number is an int that a slot of a record holds."""
    return isinstance(number, int) and number.bit_length() < INT_BITS


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
