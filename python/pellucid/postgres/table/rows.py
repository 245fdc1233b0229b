"""How a table on a server stores rows: one, many, and a changed part of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pellucid._native import ServerEdit, ServerEncoded, ServerGate
from pellucid.errors import Busy, StaleTable
from pellucid.postgres import errors
from pellucid.postgres.pool import pause
from pellucid.postgres.schema.statements import big_int
from pellucid.postgres.table import keys
from pellucid.postgres.table.sequence import Numbering

# Rows, and their bytes, that one statement stores.
BATCH_COUNT_MAX = 5000
BATCH_SIZE_MAX = 4 << 20
SWAP_ATTEMPTS = 100


class Saving(Numbering):
    """What a table does to store rows."""

    def _looked_up(self, key: Any) -> tuple[Any] | None:
        code = self._code(key)
        if code is None:
            self._source._check_open()
            return None
        found = self._fetched(code)
        if found is None:
            return None
        # The spelling that the caller has: the row is not asked for its own.
        row = (*keys.stored_with(*self._key(key)), *found)
        return (self._value(row, self._source._gate()),)

    def _fetched(self, code: bytes) -> tuple[bytes, int] | None:
        """Return the stored bytes and the version of a row; None if there is none."""
        key = code if len(code) <= keys.SHORT_SIZE_MAX else keys.stored(code)
        rows = self._ask(lambda sql: (sql.get, (key,)))
        if not rows:
            return None
        found: tuple[bytes, int] = rows[0]
        # As `_surveyed` does it for many rows.
        count = int.from_bytes(found[0][:4], "little")
        if count > self._source._codec.shape_count:
            self._source._learn_up_to(count)
        return found

    def _settled(
        self, encoded: bytes | ServerEncoded, anew: Callable[[], Any]
    ) -> tuple[bytes, list[tuple[int, bytes]]]:
        """Return the bytes of an encoded value, and its large values with their ids."""
        if isinstance(encoded, bytes):
            return encoded, []
        shape_ids = self._admit(encoded.shapes)
        if shape_ids is None:
            encoded = anew()
            if isinstance(encoded, bytes):
                return encoded, []
            shape_ids = []
        large = encoded.large
        large_ids = self._large_ids(len(large))
        return encoded.value(shape_ids, large_ids), list(zip(large_ids, large, strict=True))

    def _encoded(self, key: Any, value: Any) -> tuple[bytes, list[tuple[int, bytes]]]:
        """Encode the value of a key."""
        return self._settled(self._encode(key, value), lambda: self._encode(key, value, False))

    def _store(
        self, code: bytes, spelling: bytes | None, data: bytes, large: Sequence[tuple[int, bytes]]
    ) -> None:
        k, s = (code, spelling) if len(code) <= keys.SHORT_SIZE_MAX else keys.stored_with(code, spelling)
        if not large:
            stored = self._change(lambda sql: [(sql.put, (k, s, data, None))], creates=True)
        else:
            stored = self._change(
                lambda sql: [*self._put_large(sql, k, large), (sql.put, (k, s, data, True))], creates=True
            )
        assert stored is not None
        version, big = stored[-1][0]
        if big:
            self._sweep(k, [number for number, _ in large], version)

    def _sweep(self, key: bytes, kept: Sequence[int], version: int) -> None:
        """Delete the large values that a row had before this version."""
        given: Any = [big_int(number) for number in kept]
        self._change(lambda sql: [(sql.sweep_large, (key, given, big_int(version)))])

    def _store_many(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Store rows in the transaction that runs; of two with one key, the later."""
        batch: dict[bytes, tuple[bytes | None, bytes]] = {}
        size = 0
        for key, value in pairs:
            code, spelling = self._key(key)
            data, large = self._encoded(key, value)
            k, s = keys.stored_with(code, spelling)
            self._note_own_key(code, spelling)
            if large:
                batch.pop(k, None)
                self._store(code, spelling, data, large)
                continue
            if k in batch:
                # The first spelling of a key stays.
                s = batch[k][0]
            batch[k] = s, data
            size += len(k) + len(data)
            if len(batch) >= BATCH_COUNT_MAX or size >= BATCH_SIZE_MAX:
                self._store_batch(batch)
                batch, size = {}, 0
        self._store_batch(batch)

    def _store_batch(self, batch: dict[bytes, tuple[bytes | None, bytes]]) -> None:
        if not batch:
            return
        # A NULL for an array gives a NULL for each row.
        spellings = [s for s, _ in batch.values()]
        given = (
            self._array_of(list(batch)),
            self._array_of(spellings) if any(spellings) else None,
            self._array_of([data for _, data in batch.values()]),
            None,
        )
        self._change(lambda sql: [(sql.put_many, given)], creates=True)

    def _begin_change(self) -> bool:
        """Check that a record may be changed; return whether the change may be sent later."""
        self._check_writable()
        if self._source._running() is None:
            return False
        try:
            sql = self._statements()
        except StaleTable:
            return False
        # The order of the changes decides whether each of them may have its value in a unique index.
        return sql is not None and not any(index.is_unique for index in sql.layout.indexes)

    def _defer(
        self, code: bytes, data: bytes, version: int, kept: list[int], edit: ServerEdit
    ) -> tuple[int, ServerGate] | None:
        """Keep a changed record for the transaction to send; None if it has to be stored now.

        Returns the version that it will have, and the gate of the rows that the transaction has read.
        """
        running = self._source._running()
        if running is None or self._found is None:
            return None
        running.check()
        # If the rows have to be read anew after what is sent here, then so does this one.
        gate = running.gate
        new = running.backlog.add(self, self._found, code, version, data, kept, edit)
        if new is None:
            return None
        if running.backlog.is_full:
            running.send()
        return new, gate

    def _swap(
        self,
        code: bytes,
        data: bytes,
        version: int,
        kept: list[int],
        large: list[tuple[int, bytes]],
        attempt: int,
    ) -> int | tuple[bytes, int] | None:
        """Store a changed record, if the row has the version that it was read at.

        Returns the new version; or what the row has now, with its version; or None if the row is gone.
        """
        if attempt >= SWAP_ATTEMPTS:
            raise Busy(
                f"other clients have changed the same row of table {self.name!r} {attempt} times meanwhile"
            )
        if attempt:
            pause(attempt)
        k = keys.stored(code)
        big = True if large else None
        given = (k, big_int(version), data, big)
        try:
            stored = self._change(lambda sql: [*self._put_large(sql, k, large), (sql.swap, given)])
        except StaleTable:
            # The row has gone with its table.
            return None
        if stored is None:
            return None
        if stored[-1]:
            new, is_big = stored[-1][0]
            if is_big:
                self._sweep(k, kept, new)
            return int(new)
        self._forget_large(k, [number for number, _ in large])
        found = self._fetched(code)
        if found is not None and self._source._running() is not None and found[1] == version:
            raise Busy(errors.CONFLICT)
        return found
