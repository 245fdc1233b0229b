"""`edit(key)`: many changes of one value, as one transaction."""

from __future__ import annotations

from operator import setitem
from types import TracebackType
from typing import TYPE_CHECKING, Any

from pellucid._native import Record, RecordList
from pellucid.errors import Busy
from pellucid.handles import put_again
from pellucid.postgres.schema import keys
from pellucid.postgres.table.records import code_of

if TYPE_CHECKING:
    from pellucid.postgres.table.records import Records
    from pellucid.postgres.table.table import Table


class EditContext:
    """One value under edit, as a context manager."""

    def __init__(self, table: Table, records: Records, key: Any) -> None:
        self._table = table
        self._records = records
        self._key = key
        self._transaction: Any = None
        self._made: list[Any] = []

    def __repr__(self) -> str:
        return f"<pellucid.EditContext of {self._key!r} in {self._table!r}>"

    def __enter__(self) -> Any:
        attempts = self._records.attempts()
        while True:
            try:
                value = self._begin()
                break
            except Busy as error:
                # No code of the block has run yet.
                if not attempts.again(error):
                    raise
        # A record saves its own changes, and what is immutable has none.
        if not isinstance(value, Record | RecordList) and (self._records.row_class or not is_hashable(value)):
            self._made = [value]
        return value

    def _begin(self) -> Any:
        """Begin the transaction, and read the value."""
        connection = self._records.connection
        # In a transaction of the caller, the row may be one of many: its change is sent with the others.
        is_alone = connection.running() is None
        self._transaction = self._records.transaction()
        self._transaction.__enter__()
        try:
            connection.check_writable()
            code = code_of(connection, self._key)
            if is_alone and code is not None:
                # Another client waits for the end of the block, and is not refused there, nor is this one.
                self._records.rows.lock(keys.stored(code))
            return self._table[self._key]
        except BaseException as error:
            self._transaction.__exit__(type(error), error, None)
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        made, self._made = self._made, []
        if kind is None and made:
            try:
                (put_again if self._records.row_class else setitem)(self._table, self._key, made[0])
            except BaseException as raised:
                self._transaction.__exit__(type(raised), raised, None)
                raise
        self._transaction.__exit__(kind, error, trace)


def is_hashable(value: object) -> bool:
    """Return whether a value has a hash, so that it does not change."""
    try:
        hash(value)
    except TypeError:
        return False
    return True
