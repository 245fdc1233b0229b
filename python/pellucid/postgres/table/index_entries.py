"""Keep the entries of indexes in step with the rows of a table on a server.

The verbs of a table make statements as if it had no index. `IndexEntries.change` completes each of them with
the entries of its row: as the columns of an index that has one entry a row at most; for one with `each()`,
as statements after it, about the relation with the entries. Those do nothing unless the row has what was to
be stored. All of them are one transaction, and they are the same for every client, since a client that does
not know an index cannot write (`schema/statements.py`).

The server refuses a second row with the value of a unique index. Inside of a transaction a savepoint is
set before the statement, so that the transaction goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pellucid._native import ServerIndexCodes, server_copy_rows, server_json_key
from pellucid.errors import CorruptRecord, Error, TransactionError
from pellucid.postgres import errors
from pellucid.postgres.protocols import Connection, Entries, OverflowValues
from pellucid.postgres.schema import citus, keys
from pellucid.postgres.schema.layout import IndexInfo
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.session import Array, Parameters, Rows, Statement, array_of
from pellucid.postgres.table.records import Records

NOT_UNIQUE = "23505"
JSON_VERSION = b"\x01"
SAVEPOINT = b"pellucid_unique"


class ServerIndexEntries:
    """The entries of one table's indexes."""

    def __init__(self, connection: Connection, records: Records) -> None:
        self._connection = connection
        self._records = records
        self._binding = records.binding

    def change(
        self, make: Callable[[Statements], list[Statement]], *, creates: bool = False
    ) -> list[Rows] | None:
        """Run statements that write, with those for the entries of their rows.

        None if there is no table yet, and none was to be created.
        """
        last: list[Completed] = []

        def complete(sql: Statements) -> list[Statement]:
            last.clear()
            statements = make(sql)
            if not sql.layout.has_derived:
                return statements
            last.append(Completed(self, sql, statements))
            return self._guarded(last[0])

        try:
            found = self._binding.change(complete, creates=creates)
        except Error as error:
            if not last or errors.sqlstate(error.__cause__) != NOT_UNIQUE:
                raise
            self._roll_back_to_savepoint(last[0].sql)
            raise self._refused(last[0], error) from error.__cause__
        if found is None or not last:
            return found
        return last[0].results(found[1:-1] if self._has_savepoint(last[0].sql) else found)

    def _has_savepoint(self, sql: Statements) -> bool:
        return self._connection.running() is not None and any(index.is_unique for index in sql.layout.indexes)

    def _guarded(self, completed: Completed) -> list[Statement]:
        if not self._has_savepoint(completed.sql):
            return completed.statements
        return [
            (b"SAVEPOINT " + SAVEPOINT, ()),
            *completed.statements,
            (b"RELEASE SAVEPOINT " + SAVEPOINT, ()),
        ]

    def _roll_back_to_savepoint(self, sql: Statements) -> None:
        running = self._connection.running()
        if running is not None and self._has_savepoint(sql):
            running.execute(b"ROLLBACK TO SAVEPOINT " + SAVEPOINT)

    def _refused(self, completed: Completed, error: Error) -> Exception:
        """Return the exception for a row that has the value of another one in a unique index."""
        constraint = getattr(getattr(error.__cause__, "diag", None), "constraint_name", None) or ""
        for index in completed.sql.layout.indexes:
            if completed.sql.index_name(index) == constraint:
                return self._duplicate(index, completed) or error
        return error

    def _duplicate(self, index: IndexInfo, completed: Completed) -> Exception | None:
        sql, table = completed.sql, self._binding.name
        codes = ServerIndexCodes(index.name, index.definition)
        place = sql.layout.indexes.index(index)
        seen: dict[bytes, tuple[bytes, bytes | None]] = {}
        is_batch = len(completed.rows) > 1 or completed.count > 0
        for position, (key, entries) in enumerate(completed.rows):
            at = completed.count + position if is_batch else None
            for code, spelling in entries[place]:
                entry = (code, spelling)
                if code in seen:
                    return codes.not_unique(table, entry, key, seen[code], True, at)
                seen[code] = key
                has_code = f"i{index.id} = $1"
                if index.has_each:
                    has_code = f"k IN (SELECT k FROM {sql.entries(index).decode()} WHERE p = $1)"
                text = f"SELECT k, s FROM {sql.rows.decode()} WHERE {has_code} AND k <> $2"
                found = self._connection.read(text.encode(), (keys.stored(code), keys.stored(key[0])))
                if found:
                    existing = key_of(*found[0])
                    return codes.not_unique(table, entry, key, existing, False, at)
        return None

    def of_row(
        self,
        sql: Statements,
        key: tuple[bytes, bytes | None],
        value: bytes,
        overflow: OverflowValues = (),
    ) -> Entries:
        """Return the entries of a row."""
        return sql.deriving.entries(self._records, key[0], key[1], value, list(overflow))

    def json(self, value: bytes) -> bytes | None:
        """Return a stored value as JSON; None if it has none."""
        return self._records.json(value)

    def spellings(self, sql: Statements, every: list[bytes]) -> dict[bytes, bytes | None]:
        """Return the spellings of the keys of rows, if an index reads them."""
        if not any("key()" in index.definition for index in sql.layout.indexes):
            return {}
        select = b"SELECT k, s FROM " + sql.rows + b" WHERE k = ANY($1::bytea[])"
        return dict(self._connection.read(select, (array_of([*every]),)))

    def copy(
        self,
        sql: Statements,
        rows: list[tuple[Any, ...]],
        overflow: dict[bytes, list[tuple[int, bytes]]],
        count: int,
    ) -> None:
        """Store rows that are not there yet by COPY, with their entries, in the transaction that runs.

        `count` is how many rows of the same call were stored before.
        """
        running = self._connection.running()
        if running is None:
            raise TransactionError("the transaction was ended while values for it were being encoded")
        completed = Completed(self, sql, [])
        completed.count = count
        if sql.layout.has_derived:
            rows = [completed.copied(row, overflow.get(row[0], ())) for row in rows]
        rows = citus.copied(sql.layout, rows)
        guarded = self._has_savepoint(sql)
        try:
            if guarded:
                running.execute(b"SAVEPOINT " + SAVEPOINT)
            running.copy(sql.copy, server_copy_rows(rows))
            if completed.statements:
                running.batch(completed.statements)
            if guarded:
                running.execute(b"RELEASE SAVEPOINT " + SAVEPOINT)
        except errors.LayoutChanged as error:
            self._binding.layout_changed(sql, error)
        except Error as error:
            if not guarded or errors.sqlstate(error.__cause__) != NOT_UNIQUE:
                raise
            self._roll_back_to_savepoint(sql)
            raise self._refused(completed, error) from error.__cause__


class Completed:
    """The statements of a verb, with the entries of the rows that they store."""

    def __init__(
        self, index_entries: ServerIndexEntries, sql: Statements, statements: list[Statement]
    ) -> None:
        self._index_entries = index_entries
        self.sql = sql
        self.statements: list[Statement] = []
        # The keys and the entries of the rows.
        self.rows: list[tuple[tuple[bytes, bytes | None], Entries]] = []
        # How many rows of the same call were stored before.
        self.count = 0
        self._places: list[int] = []
        self._overflow: dict[int, list[bytes]] = {}
        beside: list[Statement] = []
        for text, given in statements:
            self._places.append(len(self.statements))
            more = self._completed(text, given, beside)
            self.statements.append((text, more))
        self.statements += beside

    def results(self, found: list[Rows]) -> list[Rows]:
        """Return the results of the verb's own statements."""
        return [found[place] for place in self._places]

    def copied(self, row: tuple[Any, ...], overflow: Sequence[tuple[int, bytes]]) -> tuple[Any, ...]:
        """Return a row for COPY with its entries."""
        self._overflow = {number: [data] for number, data in overflow}
        stored = self._stored(row, key_of(row[0], row[1]), row[2], self.statements)
        if not self.sql.layout.is_queryable:
            return tuple(stored)
        # The binary form of jsonb: a version, and the text.
        json = [None if text is None else JSON_VERSION + text.encode() for text in stored[-2:]]
        return (*stored[:-2], *json)

    def _completed(self, text: bytes, given: Parameters, beside: list[Statement]) -> Parameters:
        sql = self.sql
        if text is sql.put_overflow:
            self._overflow.setdefault(_int(given[1]), []).append(given[3])
        elif text is sql.add:
            return self._stored(given, key_of(given[0], given[1]), given[2], beside)
        elif text is sql.put:
            # A row that is there keeps the spelling of its key.
            spelling = self._index_entries.spellings(sql, [given[0]]).get(given[0], given[1])
            return self._stored(given, key_of(given[0], spelling), given[2], beside)
        elif text is sql.swap:
            key = given[0], self._index_entries.spellings(sql, [given[0]]).get(given[0])
            return self._stored(given, key, given[2], beside, has_key=False)
        elif text is sql.put_many:
            every = given[0].elements
            stored = self._index_entries.spellings(sql, every)
            spelt = [None] * len(every) if given[1] is None else given[1].elements
            kept = Array(b"", [stored.get(k, s) for k, s in zip(every, spelt, strict=True)])
            return (*given, *self._stored_many(given[0], kept, given[2], beside, has_key=True))
        elif text is sql.swap_many:
            found = self._index_entries.spellings(sql, given[0].elements)
            spellings = Array(b"", [found.get(key) for key in given[0].elements])
            return (*given, *self._stored_many(given[0], spellings, given[2], beside, has_key=False))
        elif text in (sql.delete, sql.delete_version):
            beside += sql.deleted_beside([given[0]])
        elif text is sql.delete_many:
            beside += sql.deleted_beside(given[0])
        elif text is sql.clear:
            beside += sql.cleared_beside()
        return given

    def _stored(
        self,
        given: Parameters,
        key: tuple[bytes, bytes | None],
        value: bytes,
        beside: list[Statement],
        *,
        has_key: bool = True,
    ) -> Parameters:
        if keys.is_long(key[0]):
            key = key_of(*key)
        overflow = [(number, b"".join(pieces)) for number, pieces in self._overflow.items()]
        entries = self._index_entries.of_row(self.sql, key, value, overflow)
        self.rows.append((key, entries))
        beside += self._long(entries)
        for place, index in enumerate(self.sql.layout.indexes):
            if index.has_each:
                beside += self.sql.stored_beside(index, given[0], value, stored_entries(entries[place]))
        return (*given, *columns(self.sql, entries), *self._json(key if has_key else None, value))

    def _json(self, key: tuple[bytes, bytes | None] | None, value: bytes) -> list[str | None]:
        """Return the JSON of a row, in a table that has it; without a key, that of the value alone."""
        if not self.sql.layout.is_queryable:
            return []
        found = [] if key is None else [server_json_key(*key)]
        found.append(self._index_entries.json(value))
        return [None if text is None else text.decode() for text in found]

    def _stored_many(
        self,
        keys_given: Array,
        spelt: Array | None,
        values: Array,
        beside: list[Statement],
        *,
        has_key: bool,
    ) -> Parameters:
        """Return the entries of rows, as an array for each column."""
        rows: list[list[Any]] = []
        all_entries: list[Entries] = []
        every = keys_given.elements
        spellings = [None] * len(every) if spelt is None else spelt.elements
        for k, s, value in zip(every, spellings, values.elements, strict=True):
            assert k is not None
            assert value is not None
            key = key_of(k, s)
            entries = self._index_entries.of_row(self.sql, key, value)
            self.rows.append((key, entries))
            all_entries.append(entries)
            rows.append([*columns(self.sql, entries), *self._json(key if has_key else None, value)])
            beside += self._long(entries)
        beside += many_beside(self.sql, every, all_entries)
        arrays: list[Any] = [list(column) for column in zip(*rows, strict=True)]
        # The texts of JSON come last, and the driver makes their arrays.
        coded = len(arrays) - (0 if not self.sql.layout.is_queryable else 2 if has_key else 1)
        return [*map(array_of, arrays[:coded]), *arrays[coded:]]

    def _long(self, entries: Entries) -> list[Statement]:
        """Return statements that tell all clients of codes that are too long to be in order."""
        return [
            self.sql.note_long(index)
            for index, own in zip(self.sql.layout.indexes, entries, strict=True)
            if not index.has_long and any(len(code) > keys.SHORT_SIZE_MAX for code, _ in own)
        ]


def key_of(k: bytes, s: bytes | None) -> tuple[bytes, bytes | None]:
    """Return the code and the spelling of a key from its columns."""
    if not keys.is_long(k) or s is None:
        return k, s
    size = int.from_bytes(s[:4], "little")
    if len(s) < 4 + size:
        raise CorruptRecord("a long key is damaged: another client has written it")
    return s[4 : 4 + size], s[4 + size :] or None


def stored_entries(entries: list[tuple[bytes, bytes | None]]) -> tuple[list[bytes], list[bytes | None]]:
    """Return the stored codes of entries, and their spellings."""
    return [keys.stored(code) for code, _ in entries], [spelling for _, spelling in entries]


def columns(sql: Statements, entries: Entries) -> list[bytes | None]:
    """Return what the columns of indexes have for a row."""
    found: list[bytes | None] = []
    for index, own in zip(sql.layout.indexes, entries, strict=True):
        if not index.has_each:
            code, spelling = own[0] if own else (None, None)
            found += [None if code is None else keys.stored(code), spelling]
    return found


def many_beside(sql: Statements, rows: Sequence[Any], entries: Sequence[Entries]) -> list[Statement]:
    """Return the statements for the entries of many rows that are not columns; rows are stored keys."""
    statements: list[Statement] = []
    for place, index in enumerate(sql.layout.indexes):
        if index.has_each:
            every = [
                (k, keys.stored(code), spelling)
                for k, own in zip(rows, entries, strict=True)
                for code, spelling in own[place]
            ]
            statements += sql.stored_many_beside(index, list(rows), every)
    return statements


def _int(value: Any) -> int:
    """Return the number of a parameter that says its type."""
    return int(value)
