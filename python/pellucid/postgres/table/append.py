"""`append` and `extend`: rows under numbers that are never given twice.

The server counts for each table. A client takes numbers in blocks that grow, in a transaction of its own,
so a transaction that runs for long holds up no other client. So numbers are left out where a transaction
was rolled back or a client has ended, and the rows of two clients are not in the order of their time.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pellucid
from pellucid.classes import has
from pellucid.errors import TransactionError
from pellucid.postgres.errors import LayoutChanged
from pellucid.postgres.session import Rows
from pellucid.postgres.table import keys
from pellucid.postgres.table.rows import BATCH_COUNT_MAX, BATCH_SIZE_MAX, Saving
from pellucid.postgres.table.sequence import INT_MAX, Block
from pellucid.postgres.transaction import Running

EXTEND_COUNT = 2000


class Appending(Saving):
    """What a table does to number rows."""

    def _block(self) -> Block:
        self._for_writing()
        blocks = self._source._blocks
        block = blocks.get(self._found)
        if block is None or block.is_foreign:
            block = blocks[self._found] = Block()
        return block

    def _numbers(self, count: int) -> list[int]:
        """Take `count` numbers, in ascending order."""
        block = self._block()
        numbers, behind = block.taken(count)
        missing = count - len(numbers)
        if missing:
            # Not while the block is locked: the server may have another transaction wait, that of a thread
            # which comes here next.
            first, taken = self._taken_numbers(max(missing, block.size), missing, behind)
            numbers += range(first, first + missing)
            block.put(first + missing, first + taken)
        return numbers

    def _behind_keys(self) -> int:
        """Return the first number after all keys that are numbers, at most `INT_MAX`."""
        lowest, highest = self._key(-math.inf)[0], self._key(math.inf)[0]
        last = self._ask(lambda sql: (sql.greatest(), (lowest, highest)))
        if not last:
            return 0
        greatest: Any = self._key_object(*last[0])
        return max(0, math.floor(greatest) + 1) if greatest < INT_MAX else INT_MAX

    def _next_int(self) -> int | None:
        """Return the first number that no client has taken for `append`; None if none is left."""
        behind = self._behind_keys()
        found = self._ask(lambda sql: (sql.counter, ()))
        number = max(behind, int(found[0][0]) if found else 0)
        return number if number < INT_MAX else None

    def _raise_next_int(self, number: int) -> None:
        """Let `append` give no number before this one."""
        self._block().begin_at(0)
        self._source._next_ints(self._for_writing().layout, number, 0, 0)

    def _taken_numbers(self, wanted: int, needed: int, least: int) -> tuple[int, int]:
        """Take numbers from `least` on; return the first one, and how many there are."""
        least = max(least, self._behind_keys())
        source = self._source
        if least + wanted <= INT_MAX:
            layout = self._for_writing().layout
            taken = source._next_ints(layout, least, wanted, needed)
            if taken is not None:
                return taken
        raise ValueError(
            f"table {self.name!r} has a number key of 2**63 - 1 or more, after which append() has no next "
            "int; put the "
            "value under a key of your own"
        )

    def _encoded_appended(self, value: Any, number: int | None) -> tuple[bytes, list[tuple[int, bytes]]]:
        """Encode a value that is appended."""
        encoded = self._encode_appended(value, number)
        return self._settled(encoded, lambda: self._encode_appended(value, number, False))

    def _add(self, code: bytes, data: bytes, large: list[tuple[int, bytes]]) -> list[Rows] | None:
        """Store a row where the key has none."""
        given = (code, None, data, True if large else None)
        return self._change(lambda sql: [*self._put_large(sql, code, large), (sql.add, given)], creates=True)

    def _append(self, value: Any) -> int:
        self._check_writable()
        data, large = self._encoded_appended(value, None)
        while True:
            number = self._numbers(1)[0]
            code, _ = self._key(number)
            added = self._add(code, data, large)
            if added and added[-1]:
                return number
            # Another client has put a row there itself.
            self._forget_large(code, [identity for identity, _ in large])
            self._block().skip()

    def _extend(self, values: Iterable[Any]) -> int:
        self._check_writable()
        if are_columns(values):
            with pellucid.open(":memory:") as memory:
                rows = memory.table(self.name)
                rows.extend(values)
                return self._extend(rows.values())
        refuse_one_row(values)
        count = 0
        with self._within():
            running = self._source._running()
            assert running is not None
            iterator = iter(values)
            try:
                while batch := list(itertools.islice(iterator, EXTEND_COUNT)):
                    self._append_batch(batch, count)
                    count += len(batch)
            except BaseException:
                running.session.settle(is_asked=False)
                raise
            running.settle()
        return count

    def _append_batch(self, values: list[Any], count: int) -> None:
        """Store values under the next numbers, by COPY, in the transaction that runs."""
        running = self._source._running()
        numbers = self._numbers(len(values))
        layout = self._for_writing().layout
        if layout.has_derived or layout.distribute_by:
            self._append_entered(values, numbers, count)
            return
        position = 0
        while position < len(values):
            rest = numbers[position:]
            rows, behind = self._copy_values(values, position, rest, count, BATCH_SIZE_MAX)
            if behind > position:
                # The first COPY locks the table, so that its layout stays as it is. The others run while the
                # next values are encoded.
                self._copied(rows, running, is_behind=count + position > 0)
                position = behind
                continue
            # It has a new shape, or a large value.
            code, _ = self._key(numbers[position])
            data, large = self._encoded_appended(values[position], count + position)
            if large:
                self._store_pieces(code, large)
            self._copied(self._copy_rows([(code, None, data, True if large else None)]), running)
            position += 1

    def _append_entered(self, values: list[Any], numbers: Sequence[int], count: int) -> None:
        """Store values under these numbers, with their entries in indexes."""
        rows: list[tuple[Any, ...]] = []
        large_of: dict[bytes, list[tuple[int, bytes]]] = {}
        for position, (number, value) in enumerate(zip(numbers, values, strict=True)):
            code, _ = self._key(number)
            data, large = self._encoded_appended(value, count + position)
            rows.append((code, None, data, True if large else None))
            if large:
                large_of[code] = large
                self._store_pieces(code, large)
        self._copy_entered(self._for_writing(), rows, large_of, count)

    def _load(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Store rows whose keys have none by COPY, in the transaction that runs."""
        self._check_writable()
        # An empty table is a table, too.
        self._for_writing()
        rows: list[tuple[Any, ...]] = []
        large_of: dict[bytes, list[tuple[int, bytes]]] = {}
        size = count = 0

        def flush() -> None:
            self._copy_entered(self._for_writing(), rows, large_of, count)

        for key, value in pairs:
            code, spelling = self._key(key)
            data, large = self._encoded(key, value)
            k, s = keys.stored_with(code, spelling)
            rows.append((k, s, data, True if large else None))
            size += len(k) + len(data)
            if large:
                self._store_pieces(k, large)
                large_of[k] = large
                size += sum(len(part) for _, part in large)
            if size >= BATCH_SIZE_MAX or len(rows) >= BATCH_COUNT_MAX:
                flush()
                count += len(rows)
                rows, large_of, size = [], {}, 0
        if rows:
            flush()

    def _copied(self, rows: bytes, running: Running | None, *, is_behind: bool = False) -> None:
        if running is None or self._source._running() is not running:
            raise TransactionError("the transaction was ended while values for it were being encoded")
        sql = self._for_writing()
        try:
            (running.copy_behind if is_behind else running.copy)(sql.copy, rows)
        except LayoutChanged as error:
            self._changed(sql, error)

    def _store_pieces(self, code: bytes, large: list[tuple[int, bytes]]) -> None:
        self._change(lambda sql: list(self._put_large(sql, code, large)), creates=True)


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
