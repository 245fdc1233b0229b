"""`edit(key)`: many changes of one value, as one transaction."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING, Any

from pellucid._native import Record, RecordList

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
        self._transaction = self._records.transaction()
        self._transaction.__enter__()
        try:
            self._records.connection.check_writable()
            value = self._table[self._key]
        except BaseException as error:
            self._transaction.__exit__(type(error), error, None)
            raise
        # A record saves its own changes, and what is immutable has none.
        if not isinstance(value, Record | RecordList) and (self._records.is_typed or not is_hashable(value)):
            self._made = [value]
        return value

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        made, self._made = self._made, []
        if kind is None and made:
            try:
                self._table[self._key] = made[0]
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
