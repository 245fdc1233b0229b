"""The records of a table: their bytes, and what they ask the server for when they are changed.

The native base encodes values and reads fetched rows in place. A record refers to this object. What needs
the server it asks here: a changed field is a `swap`, a large value an `overflow_value`. So does a query,
which gets a `Reader`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

from pellucid._native import (
    ServerEdit,
    ServerEncoded,
    ServerTable,
    ServerValidity,
    server_key_code,
    server_survey,
)
from pellucid.classes import check_fields
from pellucid.errors import StaleTable
from pellucid.postgres.attempts import Attempts
from pellucid.postgres.protocols import Connection, Reader, RowStore, Tables
from pellucid.postgres.query.reader import ServerReader
from pellucid.postgres.schema import keys
from pellucid.postgres.schema.layout import ANY, CreateOptions
from pellucid.postgres.session import Rows
from pellucid.postgres.table.binding import TableBinding
from pellucid.postgres.table.overflow import Overflow

Encoded = tuple[bytes, list[tuple[int, bytes]]]
"""An encoded value, and its overflow values with their ids."""


class Records(ServerTable):
    """The records of one table, over the parts of the table that reach the server."""

    connection: Connection
    binding: TableBinding
    # Gives the table that has these records, as long as it lives.
    own_handle: Callable[[], Any] = staticmethod(lambda: None)
    overflow: Overflow
    rows: RowStore

    def __new__(
        cls,
        connection: Connection,
        _tables: Tables,
        name: str,
        *,
        stays_with_name: bool = False,  # noqa: ARG004 - `__init__` takes it
        options: CreateOptions = ANY,  # noqa: ARG004 - as above
        **opened: Any,
    ) -> Records:
        """Make the records of the table with this name; `opened` says how its class is read."""
        why = "snapshot" if connection.is_snapshot else "r" if connection.is_read_only else None
        return super().__new__(cls, connection.codec, name, 0, why, **opened)

    def __init__(
        self,
        connection: Connection,
        tables: Tables,
        _name: str,
        *,
        stays_with_name: bool = False,
        options: CreateOptions = ANY,
        **opened: Any,
    ) -> None:
        self.connection = connection
        self.tables = tables
        # By name of a field: the head and the tag of rows with an int there, and the offsets of tag and slot.
        self.int_places: dict[str, tuple[bytes, int, int]] = {}
        self.opened = {"stays_with_name": stays_with_name, "options": options, **opened}
        self.binding = TableBinding(
            connection, tables, self, stays_with_name=stays_with_name, options=options
        )

    # Bytes

    def with_ids(self, encoded: bytes | ServerEncoded, again: Callable[[], Any]) -> Encoded:
        """Return the bytes of an encoded value, once its shapes and its overflow values have ids.

        `again` encodes the value without new shapes, where the server cannot be asked for their ids now.
        """
        if isinstance(encoded, bytes):
            return encoded, []
        shape_ids = self.register_shapes(encoded.shapes)
        if shape_ids is None:
            encoded = again()
            if isinstance(encoded, bytes):
                return encoded, []
            shape_ids = []
        values = encoded.large
        ids = self.new_overflow_ids(len(values))
        return encoded.value(shape_ids, ids), list(zip(ids, values, strict=True))

    def encoded(self, key: Any, value: Any) -> Encoded:
        """Encode the value of a key."""
        return self.with_ids(self.encode(key, value), lambda: self.encode(key, value, False))

    def learn(self, rows: Rows) -> bool:
        """Learn the shapes of fetched rows; return whether one has a long key."""
        count, has_long = server_survey(rows)
        self.connection.learn_up_to(count)
        return has_long

    # Calls of records

    def handle(self) -> Any:
        """Return the table: the handle that has these records, or another one if that is gone."""
        from pellucid.postgres.table.table import Table

        return self.own_handle() or Table(self.connection, self.tables, self.binding.name, **self.opened)

    def validity(self) -> ServerValidity:
        """Return how long rows that are read now are valid."""
        return self.connection.validity()

    def transaction(self) -> AbstractContextManager[None]:
        """Return a transaction of the table's database."""
        return self.connection.transaction()

    def attempts(self) -> Attempts:
        """Return the attempts of an update or a delete, which may be repeated."""
        return Attempts(self.connection)

    def register_shapes(self, shapes: list[bytes]) -> list[int] | None:
        """Return the ids of shapes, once the server has them; None if it cannot be asked now."""
        return self.connection.register_shapes(shapes) if shapes else []

    def overflow_value(self, code: bytes, number: int) -> bytes | None:
        """Return an overflow value of a row; None if it is gone."""
        return self.overflow.value(code, number)

    def new_overflow_ids(self, count: int) -> list[int]:
        """Return ids for overflow values."""
        return self.overflow.new_ids(count)

    def fetch(self, code: bytes) -> tuple[bytes, int] | None:
        """Return the stored bytes and the version of a row; None if there is none."""
        return self.rows.fetch(code)

    def begin_change(self) -> bool:
        """Check that a record may be changed; return whether the change may be sent later."""
        self.connection.check_writable()
        if self.connection.running() is None:
            return False
        try:
            sql = self.binding.statements()
        except StaleTable:
            return False
        # The order of the changes decides whether each of them may have its value in a unique index.
        return sql is not None and not any(index.is_unique for index in sql.layout.indexes)

    def defer(
        self, code: bytes, data: bytes, version: int, kept: list[int], edit: ServerEdit
    ) -> tuple[int, ServerValidity] | None:
        """Leave a changed record to the transaction to send; None if it has to be stored now.

        Returns the version that it will have, and how long the rows that the transaction has read are valid.
        """
        running, table_id = self.connection.running(), self.binding.table_id
        if running is None or table_id is None:
            return None
        running.check()
        # If the rows have to be read again after what is sent here, then so does this one.
        validity = running.validity
        new = running.backlog.add(self.rows, table_id, code, version, data, kept, edit)
        running.ahead.forget(table_id, code)
        if new is None:
            return None
        if running.backlog.is_full:
            running.send()
        return new, validity

    def swap(self, *changed: Any) -> int | tuple[bytes, int] | None:
        """Store a changed record, as `RowStore.swap`."""
        return self.rows.swap(*changed)

    # Calls of queries

    def has_json(self) -> bool:
        """Return whether the rows have key and value as JSON."""
        sql = self.binding.statements()
        return sql is not None and sql.layout.is_queryable

    def reader(self) -> Reader | None:
        """Return an object that reads the rows of a query; None if there is no table yet."""
        sql = self.binding.statements()
        return None if sql is None else ServerReader(self, sql)

    def update_rows(
        self,
        items: Iterable[tuple[Any, Any]],
        paths: Sequence[tuple[Any, ...]],
        given: Sequence[Any],
        is_given: Sequence[bool],
        computed: Sequence[tuple[Any, ...]],
    ) -> int:
        """Set fields of rows, in the transaction that runs; return in how many a field was set.

        `computed` has, for each row, two values for each path without one: whether the row has it, and it.
        """
        self.connection.check_writable()
        done = 0
        # An instance of the table's class knows of no row that it would change.
        plain = None if self.row_class is None else self.handle()._untyped()
        if plain is not None:
            names = [path[0] for path in paths if isinstance(path[0], str)]
            check_fields(self.row_class, names, f"update() of table {self.name!r}")
        for (key, row), values in zip(list(items), computed, strict=True):
            record = row if plain is None else plain[key]
            rest, is_set = iter(values), False
            for path, value, is_constant in zip(paths, given, is_given, strict=True):
                has_value = is_constant or next(rest)
                new = value if is_constant else next(rest)
                if has_value:
                    holder = record
                    for step in path[:-1]:
                        holder = holder[step]
                    holder[path[-1]] = new
                    is_set = True
            if plain is not None and is_set:
                # As for a put: what makes no instance of the class is refused, or one that cannot be stored.
                self.encode(key, self.handle()[key])
            done += is_set
        return done

    def delete_rows(self, found: Iterable[Any]) -> int:
        """Delete the rows under these keys, in the transaction that runs; return how many there were."""
        self.connection.check_writable()
        return self.rows.delete_many([keys.stored(self.encode_key(key)[0]) for key in found])


def code_of(connection: Connection, key: Any) -> bytes | None:
    """Return the code of a key; None for one that no row can have. Raises `Closed` then, if it is closed."""
    code = server_key_code(key)
    if code is None:
        connection.check_open()
    return code
