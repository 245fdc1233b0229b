"""`append`, `extend` and loads: rows under the next numbers, and many rows by COPY."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pellucid
from pellucid._native import server_copy_rows
from pellucid.classes import has
from pellucid.errors import TransactionError
from pellucid.postgres.errors import LayoutChanged
from pellucid.postgres.protocols import Connection, IndexEntries
from pellucid.postgres.schema import keys
from pellucid.postgres.table import overflow
from pellucid.postgres.table.records import Encoded, Records
from pellucid.postgres.table.rows import BATCH_COUNT_MAX, BATCH_SIZE_MAX, ServerRowStore
from pellucid.postgres.table.sequence import Sequences
from pellucid.postgres.transaction import Running

EXTEND_COUNT = 2000


class Loader:
    """Stores new rows of one table: one or many, under the next numbers or under keys."""

    def __init__(
        self,
        connection: Connection,
        records: Records,
        rows: ServerRowStore,
        entries: IndexEntries,
        sequence: Sequences,
    ) -> None:
        self._connection = connection
        self._records = records
        self._binding = records.binding
        self._rows = rows
        self._entries = entries
        self._sequence = sequence

    def _encoded(self, value: Any, number: int | None) -> Encoded:
        """Encode a value that is appended."""
        encode = self._records.encode_appended
        return self._records.with_ids(encode(value, number), lambda: encode(value, number, False))

    def append(self, value: Any) -> int:
        """Store a value under the next number, and return that."""
        self._connection.check_writable()
        data, values = self._encoded(value, None)
        while True:
            number = self._sequence.numbers(1)[0]
            code, _ = self._records.encode_key(number)
            if self._rows.add(code, None, data, values):
                return number
            # Another client has put a row there itself.
            self._sequence.block().skip()

    def extend(self, values: Iterable[Any]) -> int:
        """Store values under the next numbers, all or none, and return how many there were."""
        self._connection.check_writable()
        if are_columns(values):
            with pellucid.open(":memory:") as memory:
                rows = memory.table(self._binding.name)
                rows.extend(values)
                return self.extend(rows.values())
        refuse_one_row(values)
        count = 0
        with self._connection.transaction():
            running = self._connection.running()
            assert running is not None
            iterator = iter(values)
            try:
                while batch := list(itertools.islice(iterator, EXTEND_COUNT)):
                    self._append_batch(batch, count)
                    count += len(batch)
            except BaseException:
                running.session.finish_copy(raises=False)
                raise
            running.finish_copy()
        return count

    def _append_batch(self, values: list[Any], count: int) -> None:
        """Store values under the next numbers, by COPY, in the transaction that runs."""
        running = self._connection.running()
        numbers = self._sequence.numbers(len(values))
        layout = self._binding.for_writing().layout
        if layout.has_derived or layout.distribute_by:
            self._append_with_entries(values, numbers, count)
            return
        position = 0
        while position < len(values):
            rest = numbers[position:]
            rows, stop = self._records.encode_copy(values, position, rest, count, BATCH_SIZE_MAX)
            if stop > position:
                # The first COPY locks the table, so that its layout stays as it is. The others run while the
                # next values are encoded.
                self._copy(rows, running, in_background=count + position > 0)
                position = stop
                continue
            # It has a new shape, or an overflow value.
            code, _ = self._records.encode_key(numbers[position])
            data, large = self._encoded(values[position], count + position)
            if large:
                self._store_overflow(code, large)
            self._copy(server_copy_rows([(code, None, data, True if large else None)]), running)
            position += 1

    def _append_with_entries(self, values: list[Any], numbers: Sequence[int], count: int) -> None:
        """Store values under these numbers, with their entries in indexes."""
        rows: list[tuple[Any, ...]] = []
        large_of: dict[bytes, list[tuple[int, bytes]]] = {}
        for position, (number, value) in enumerate(zip(numbers, values, strict=True)):
            code, _ = self._records.encode_key(number)
            data, large = self._encoded(value, count + position)
            rows.append((code, None, data, True if large else None))
            if large:
                large_of[code] = large
                self._store_overflow(code, large)
        self._entries.copy(self._binding.for_writing(), rows, large_of, count)

    def load(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Store rows whose keys have none by COPY, in the transaction that runs."""
        self._connection.check_writable()
        # An empty table is a table, too.
        self._binding.for_writing()
        rows: list[tuple[Any, ...]] = []
        large_of: dict[bytes, list[tuple[int, bytes]]] = {}
        size = count = 0

        def flush() -> None:
            self._entries.copy(self._binding.for_writing(), rows, large_of, count)

        for key, value in pairs:
            code, spelling = self._records.encode_key(key)
            data, large = self._records.encoded(key, value)
            k, s = keys.stored_with(code, spelling)
            rows.append((k, s, data, True if large else None))
            size += len(k) + len(data)
            if large:
                self._store_overflow(k, large)
                large_of[k] = large
                size += sum(len(part) for _, part in large)
            if size >= BATCH_SIZE_MAX or len(rows) >= BATCH_COUNT_MAX:
                flush()
                count += len(rows)
                rows, large_of, size = [], {}, 0
        if rows:
            flush()

    def _copy(self, rows: bytes, running: Running | None, *, in_background: bool = False) -> None:
        if running is None or self._connection.running() is not running:
            raise TransactionError("the transaction was ended while values for it were being encoded")
        sql = self._binding.for_writing()
        try:
            (running.copy_in_background if in_background else running.copy)(sql.copy, rows)
        except LayoutChanged as error:
            self._binding.layout_changed(sql, error)

    def _store_overflow(self, code: bytes, large: list[tuple[int, bytes]]) -> None:
        self._entries.change(lambda sql: list(overflow.stored(sql, code, large)), creates=True)


def are_columns(values: object) -> bool:
    """Whether these are columns of Arrow, and nothing of pellucid, so that a copy is exact."""
    if isinstance(values, pellucid.Query | pellucid.Table | pellucid.Database | pellucid.Snapshot):
        return False
    kind = type(values)
    return hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "__arrow_c_array__")


def refuse_one_row(values: object) -> None:
    """Raise `TypeError` for a single row or a mapping, whose keys or characters would become rows."""
    if type(values).__name__ == "LazyFrame" and has(type(values), "collect"):
        raise TypeError(
            "extend() takes rows or columns that are there, and a LazyFrame is yet to be computed: "
            "extend(frame.collect())"
        )
    if isinstance(values, Mapping) and not isinstance(values, dict | pellucid.Record):
        raise TypeError(
            f"extend() takes rows, and a loop over a {type(values).__name__} gives its keys: "
            "extend(other.values()) appends its rows, update(other) stores them under their keys"
        )
    if isinstance(values, dict | str | bytes | bytearray | pellucid.Record):
        raise TypeError(
            f"extend() takes several rows, and a {type(values).__name__} is one: append(row) stores it, "
            "extend([row, ...]) several; update() takes a dict of keys and rows"
        )
