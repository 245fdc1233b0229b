"""How a table on a server reads and stores rows: one, many, and a changed part of one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pellucid._native import ServerValidity, server_keys, server_whole_code
from pellucid.errors import Busy, Error, StaleTable
from pellucid.postgres import errors
from pellucid.postgres.pool import pause
from pellucid.postgres.protocols import Connection, IndexEntries
from pellucid.postgres.query.scan import ALL, RowIterator
from pellucid.postgres.schema import keys
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.schema.text import big_int
from pellucid.postgres.session import Rows, Statement, array_of
from pellucid.postgres.table import overflow
from pellucid.postgres.table.binding import LAYOUT_ATTEMPTS
from pellucid.postgres.table.index_entries import NOT_UNIQUE
from pellucid.postgres.table.records import Records, code_of
from pellucid.postgres.table.sequence import Sequences

# Rows, and their bytes, that one statement stores.
BATCH_COUNT_MAX = 5000
BATCH_SIZE_MAX = 4 << 20
# Rows that one statement deletes.
DELETED_COUNT = 1000
SWAP_ATTEMPTS = 100
# Fewer rows are stored in one statement without asking first whether they are new.
COPIED_COUNT_MIN = 200
Row = tuple[Any, ...]


class ServerRowStore:
    """The rows of one table: each verb is one statement where that is possible."""

    def __init__(
        self, connection: Connection, records: Records, entries: IndexEntries, sequence: Sequences
    ) -> None:
        self._connection = connection
        self._records = records
        self._binding = records.binding
        self._overflow = records.overflow
        self._entries = entries
        self._sequence = sequence

    # Reading

    def get(self, key: Any) -> tuple[Any] | None:
        """Return the value of a key; None if it has none."""
        code = code_of(self._connection, key)
        found = None if code is None else self._sought(code)
        if found is None:
            return None
        # The spelling that the caller has: the row is not asked for its own.
        row = (*keys.stored_with(*self._records.encode_key(key)), *found)
        return (self._records.value(row, self._connection.validity()),)

    def fetch(self, code: bytes) -> tuple[bytes, int] | None:
        """Return the stored bytes and the version of a row; None if there is none."""
        key = code if len(code) <= keys.SHORT_SIZE_MAX else keys.stored(code)
        rows = self._binding.ask(lambda sql: (sql.get, (key,)))
        if not rows:
            return None
        found: tuple[bytes, int] = rows[0]
        # As `Records.learn` does it for many rows.
        count = int.from_bytes(found[0][:4], "little")
        if count > self._connection.codec.shape_count:
            self._connection.learn_up_to(count)
        return found

    def _sought(self, code: bytes) -> tuple[bytes, int] | None:
        """As `fetch`; in a transaction, the row may have been read together with those before it."""
        running = self._connection.running()
        if running is None or len(code) > keys.SHORT_SIZE_MAX:
            return self.fetch(code)
        sql = self._binding.statements()
        if sql is None or sql.layout.is_distributed:
            return self.fetch(code)
        running.check()
        return running.ahead.get(self, sql.layout.id, code)

    def fetch_from(self, code: bytes, count: int) -> Rows:
        """Return up to `count` rows from a key on, in the order of keys."""
        rows = self._binding.ask(lambda sql: sql.page(code, None, None, count, reverse=False)) or []
        self._records.learn(rows)
        return rows

    def validity(self) -> ServerValidity:
        """Return how long rows that are read now are valid."""
        return self._connection.validity()

    # Storing

    def put(self, key: Any, value: Any) -> None:
        """Store a value."""
        self._connection.check_writable()
        code, spelling = self._records.encode_key(key)
        data, values = self._records.encoded(key, value)
        self._sequence.note_key(code, spelling)
        self._store(code, spelling, data, values)

    def _store(
        self, code: bytes, spelling: bytes | None, data: bytes, values: Sequence[tuple[int, bytes]]
    ) -> None:
        k, s = (code, spelling) if len(code) <= keys.SHORT_SIZE_MAX else keys.stored_with(code, spelling)
        if not values:
            stored = self._entries.change(lambda sql: [(sql.put, (k, s, data, None))], creates=True)
        else:
            stored = self._entries.change(
                lambda sql: [*overflow.stored(sql, k, values), (sql.put, (k, s, data, True))], creates=True
            )
        assert stored is not None
        version, big = stored[-1][0]
        if big:
            self._overflow.sweep(k, [number for number, _ in values], version)

    def put_many(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Store rows in the transaction that runs; of two with one key, the later."""
        batch: dict[bytes, tuple[bytes | None, bytes]] = {}
        size = count = 0
        are_new = True
        for key, value in pairs:
            code, spelling = self._records.encode_key(key)
            data, values = self._records.encoded(key, value)
            k, s = keys.stored_with(code, spelling)
            self._sequence.note_key(code, spelling)
            if values:
                batch.pop(k, None)
                self._store(code, spelling, data, values)
                continue
            if k in batch:
                # The first spelling of a key stays.
                s = batch[k][0]
            batch[k] = s, data
            size += len(k) + len(data)
            if len(batch) >= BATCH_COUNT_MAX or size >= BATCH_SIZE_MAX:
                are_new = self._store_batch(batch, count, are_new=are_new)
                count += len(batch)
                batch, size = {}, 0
        self._store_batch(batch, count, are_new=are_new)

    def _store_batch(
        self, batch: dict[bytes, tuple[bytes | None, bytes]], count: int, *, are_new: bool
    ) -> bool:
        """Store rows: by COPY where none of the keys has one, which takes half the time.

        `count` is how many rows of the same call were stored before, and `are_new` says whether none of them
        replaced one. Returns this for all.
        """
        if not batch:
            return are_new
        are_new = are_new and len(batch) >= COPIED_COUNT_MIN and self._may_copy(list(batch))
        if are_new:
            self._copy(batch, count)
            return True
        # A NULL for an array gives a NULL for each row.
        spellings = [s for s, _ in batch.values()]
        given = (
            array_of(list(batch)),
            array_of(spellings) if any(spellings) else None,
            array_of([data for _, data in batch.values()]),
            None,
        )
        self._entries.change(lambda sql: [(sql.put_many, given)], creates=True)
        return False

    def _may_copy(self, stored: list[bytes]) -> bool:
        """Say whether no row has one of these keys, in a table into which rows can be copied."""
        layout = self._binding.for_writing().layout
        # COPY stops at the first row that is not unique, and does not say in which index.
        if layout.is_distributed or any(index.is_unique for index in layout.indexes):
            return False
        return not self._binding.ask(lambda sql: (sql.has_any, (array_of(stored),)))

    def _copy(self, batch: dict[bytes, tuple[bytes | None, bytes]], count: int) -> None:
        rows: list[Row] = [(k, s, data, None) for k, (s, data) in batch.items()]
        try:
            self._entries.copy(self._binding.for_writing(), rows, {}, count)
        except Error as error:
            if errors.sqlstate(error.__cause__) != NOT_UNIQUE:
                raise
            # Another client has stored one of the keys since this transaction began.
            raise Busy(errors.CONFLICT) from error.__cause__

    def setdefault(self, key: Any, default: Any) -> Any:
        """Return the value of a key; where it has none, store `default` first."""
        self._connection.check_writable()
        records = self._records
        code, spelling = records.encode_key(key)
        found = self.get(key)
        if found is not None:
            return found[0]
        data, values = records.encoded(key, default)
        k, s = keys.stored_with(code, spelling)
        for _ in range(LAYOUT_ATTEMPTS):
            made = self.add(k, s, data, values)
            self._sequence.note_key(code, spelling)
            if made:
                return records.value((k, s, data, made[0][0]), self._connection.validity())
            found = self.get(key)
            if found is not None:
                return found[0]
        raise Busy(f"other clients have stored and deleted key {key!r} {LAYOUT_ATTEMPTS} times meanwhile")

    def add(self, k: bytes, s: bytes | None, data: bytes, values: list[tuple[int, bytes]]) -> Rows:
        """Store a row where the key has none; return its version in a row, or none if it was not stored."""
        given = (k, s, data, True if values else None)
        added = self._entries.change(
            lambda sql: [*overflow.stored(sql, k, values), (sql.add, given)], creates=True
        )
        assert added is not None
        if not added[-1]:
            self._overflow.forget(k, [number for number, _ in values])
        return added[-1]

    def put_if_absent(self, key: Any, value: Any) -> bool:
        """Store a value where the key has none; return whether it had none."""
        self._connection.check_writable()
        code, spelling = self._records.encode_key(key)
        data, values = self._records.encoded(key, value)
        k, s = keys.stored_with(code, spelling)
        made = self.add(k, s, data, values)
        self._sequence.note_key(code, spelling)
        return bool(made)

    # Changing

    def compare_and_set(self, key: Any, expected: Any, value: Any) -> bool:
        """Store a value if that of the key equals `expected`; return whether it did."""
        self._connection.check_writable()
        code = code_of(self._connection, key)
        if code is None:
            return False
        attempts = itertools.count()
        while True:
            found = self.fetch(code)
            if found is None:
                return False
            row = (*keys.stored_with(*self._records.encode_key(key)), *found)
            old = self._records.value(row, self._connection.validity())
            if not old == expected:  # noqa: SIM201 - as in a file, which does not ask for `!=`
                return False
            data, values = self._records.encoded(key, value)
            kept = [number for number, _ in values]
            stored = self.swap(code, data, found[1], kept, values, next(attempts))
            if isinstance(stored, int):
                return True

    def lock(self, k: bytes) -> bool:
        """Wait until no other transaction can change a row, until the one that runs has ended.

        False if there is no such row, so that nothing is locked.
        """
        found = self._binding.change(lambda sql: [(sql.lock, (k,))])
        return bool(found and found[0])

    def swap(
        self,
        code: bytes,
        data: bytes,
        version: int,
        kept: list[int],
        values: list[tuple[int, bytes]],
        attempt: int,
    ) -> int | tuple[bytes, int] | None:
        """Store a changed record, if the row has the version that it was read at.

        Returns the new version; or what the row has now, with its version; or None if the row is gone.
        """
        if attempt >= SWAP_ATTEMPTS:
            raise Busy(
                f"other clients have changed the same row of table {self._binding.name!r} {attempt} times "
                "meanwhile"
            )
        if attempt:
            pause(attempt)
        k = keys.stored(code)
        given = (k, big_int(version), data, True if values else None)
        try:
            stored = self._entries.change(lambda sql: [*overflow.stored(sql, k, values), (sql.swap, given)])
        except StaleTable:
            # The row has gone with its table.
            return None
        if stored is None:
            return None
        if stored[-1]:
            new, is_big = stored[-1][0]
            if is_big:
                self._overflow.sweep(k, kept, new)
            return int(new)
        self._overflow.forget(k, [number for number, _ in values])
        found = self.fetch(code)
        if found is not None and self._connection.running() is not None and found[1] == version:
            raise Busy(errors.CONFLICT)
        return found

    def swap_many(self, rows: list[tuple[bytes, bytes, int]]) -> Rows:
        """As `swap`, for rows of code, data and version; return which were stored.

        Each is a stored key, and whether the row has, or had, overflow values.
        """
        every: Any = [big_int(version) for _, _, version in rows]
        given = (
            array_of([keys.stored(code) for code, _, _ in rows]),
            every,
            array_of([data for _, data, _ in rows]),
        )
        found = self._entries.change(lambda sql: [(sql.swap_many, given)])
        return found[0] if found else []

    def sweep(self, key: bytes, kept: Sequence[int], version: int) -> None:
        """Delete the overflow values that a row had before this version."""
        self._overflow.sweep(key, kept, version)

    # Deleting

    def delete(self, key: Any) -> bool:
        """Delete a row; return whether there was one."""
        self._connection.check_writable()
        code = code_of(self._connection, key)
        if code is None:
            return False
        k = keys.stored(code)
        rows = self._entries.change(lambda sql: [(sql.delete, (k,))])
        if not rows or not rows[0]:
            return False
        self._clean_up(rows[0])
        return True

    def _clean_up(self, deleted: Rows) -> None:
        """Delete the overflow values of a row that was deleted."""
        k, spelling, data, _, big = deleted[0]
        self._sequence.note_key(k, spelling)
        if big:
            self._records.learn([(k, spelling, data, 0)])
            self._overflow.forget(k, self._records.overflow_ids(data))

    def pop(self, key: Any) -> tuple[Any, Any] | None:
        """Delete a row, and return its key and its value; None if there is none."""
        return self._popped(lambda: self._found(key))

    def pop_last(self) -> tuple[Any, Any] | None:
        """Delete the last row, and return its key and its value; None if there is none."""
        return self._popped(self._last)

    def _popped(self, find: Callable[[], tuple[Any, Row] | None]) -> tuple[Any, Any] | None:
        """Delete the row that `find` gives with its key, and return key and value; None if there is none.

        The value is made before the row is deleted, and a row that cannot be read stays.
        """
        self._connection.check_writable()
        for _ in range(LAYOUT_ATTEMPTS):
            found = find()
            if found is None:
                return None
            key, row = found
            value = self._records.last_value(row, self._connection.validity())
            given = keys.stored(server_whole_code(row)), big_int(row[3])
            rows = self._entries.change(deletion_of(given))
            if rows and rows[0]:
                self._clean_up(rows[0])
                return key, value
        raise Busy(
            f"other clients have changed a row of table {self._binding.name!r} {LAYOUT_ATTEMPTS} times "
            "meanwhile"
        )

    def _found(self, key: Any) -> tuple[Any, Row] | None:
        code = code_of(self._connection, key)
        found = None if code is None else self.fetch(code)
        if code is None or found is None:
            return None
        return key, (*keys.stored_with(code, None), *found)

    def _last(self) -> tuple[Any, Row] | None:
        rows = self._binding.ask(lambda sql: (sql.end(last=True), ()))
        if not rows:
            return None
        if self._records.learn(rows):
            # Long keys with the same beginning are in the order of their hashes.
            return self._found(next(RowIterator(self._records, "keys", ALL, True)))
        return server_keys(rows)[0], rows[0]

    def delete_many(self, codes: list[bytes]) -> int:
        """Delete the rows with these stored keys; return how many there were."""
        done = 0
        for start in range(0, len(codes), DELETED_COUNT):
            deleted = self._entries.change(deletions_of(codes[start : start + DELETED_COUNT]))
            done += deleted[0][0][0] if deleted else 0
        return done

    def clear(self) -> None:
        """Delete all rows."""
        self._entries.change(lambda sql: [(sql.clear, ()), (sql.clear_overflow, ())])


def deletion_of(given: tuple[bytes, Any]) -> Callable[[Statements], list[Statement]]:
    """Return what makes the statement that deletes a row of one version."""
    return lambda sql: [(sql.delete_version, given)]


def deletions_of(codes: list[bytes]) -> Callable[[Statements], list[Statement]]:
    """Return what makes the statements that delete rows with their overflow values."""
    return lambda sql: [(sql.delete_many, (codes,)), (sql.forget_many, (codes,))]
