"""The SQL for one table, made once for each layout of it.

A relation's name has the generation of its layout: `t7_3` is table 7 in its third layout. A change of the
layout renames it in one transaction, so every statement of a client that knows the older layout fails,
prepared ones too, and the client reads the catalog again. Names of users' tables and fields are data: no
statement has one.

    k      the code of the key (`keys.py`)
    s      its spelling; NULL where it has none, as nearly always
    v      the number of shapes that a reader needs, and the record
    ver    grows with each write: what a change compares
    big    true if the row has, or had, overflow values in the relation beside it
    i17 s17   an entry of index 17, and its spelling; both NULL where the row has none
    d      the first parts of the key, in a table that is distributed by them
    key value   key and value as JSON, in a table with `queryable=True`; NULL where they have none
"""

from __future__ import annotations

import functools

from pellucid._native import ServerIndexes
from pellucid.postgres.schema import citus
from pellucid.postgres.schema.layout import IndexInfo, Layout
from pellucid.postgres.schema.text import big_int, quoted
from pellucid.postgres.session import Statement

# The part of v that says which fields a row has, if it is a dict.
HEAD_OF_ROW = slice(4, 12)
INT_TAG = b"\x04"
# The types of columns, as parameters; all others are bytea.
KINDS = {"big": "bool", "ver": "bigint", "key": "text", "value": "text"}


class Statements:
    """The statements for a layout. Parameters are `$1` to `$n`, and rows have the columns k, s, v, ver."""

    def __init__(self, schema: str, layout: Layout) -> None:
        self.schema = schema
        self.layout = layout
        # The indexes in which another client has stored a code that is too long to be in order.
        self.disordered: set[int] = set()
        # The fields of JSON that are not numbers in all rows.
        self.mixed: set[tuple[str, ...]] = set()
        self._first_entered: dict[tuple[int, int], bytes] = {}
        self._add_int: dict[tuple[int, int], bytes] = {}
        self.rows = quoted(schema, layout.relation)
        self.overflow = quoted(schema, f"large{layout.id}")
        self.parts = {"rows": self.rows, "overflow": self.overflow, **citus.statement_parts(layout)}

    def _made(self, text: str, **parts: bytes) -> bytes:
        known = {**self.parts, **parts}
        return text.format(**{name: part.decode() for name, part in known.items()}).encode()

    @functools.cached_property
    def _entries(self) -> list[str]:
        single = [index for index in self.layout.indexes if not index.has_each]
        return [column for index in single for column in (f"i{index.id}", f"s{index.id}")]

    @functools.cached_property
    def _derived(self) -> list[str]:
        return [*self._entries, "value"] if self.layout.is_queryable else self._entries

    @functools.cached_property
    def _inserted(self) -> list[str]:
        json = ["key", "value"] if self.layout.is_queryable else []
        return ["k", "s", "v", "big", *self._entries, *json, *citus.columns(self.layout)]

    @property
    def view(self) -> bytes:
        """The view of key and value as JSON, which keeps its name when the layout changes."""
        return quoted(self.schema, f"q{self.layout.id}")

    # Indexes

    @functools.cached_property
    def deriving(self) -> ServerIndexes:
        """What derives the entries of rows."""
        return ServerIndexes([index.definition for index in self.layout.indexes])

    def first_entered(self, index: IndexInfo, count: int) -> bytes:
        """The parameters are `count` stored codes of entries; gives the first row that has one of them."""
        text = self._first_entered.get((index.id, count))
        if text is None:
            places = ", ".join(f"${number}" for number in range(1, count + 1))
            code = "e.p" if index.has_each else f"t.i{index.id}"
            beside = " JOIN {entries} AS e ON e.k = t.k" if index.has_each else ""
            asked = (
                f"SELECT t.k, t.s, t.v, t.ver FROM {{rows}} AS t{beside} WHERE {code} IN ({places}) "
                f"ORDER BY {code}, t.k LIMIT 1"
            )
            text = self._first_entered[index.id, count] = self._made(asked, entries=self.entries(index))
        return text

    def index_name(self, index: IndexInfo) -> str:
        """Return the name of PostgreSQL's own index for an index."""
        return f"t{self.layout.id}_i{index.id}"

    def entries(self, index: IndexInfo) -> bytes:
        """Return the relation with the entries of an index with `each()`."""
        return quoted(self.schema, f"e{index.id}")

    def stored_beside(
        self, index: IndexInfo, key: bytes, value: bytes, entries: tuple[list[bytes], list[bytes | None]]
    ) -> list[Statement]:
        """Make the entries of a row those that it has with this value, if it was stored."""
        has_value = " AND EXISTS (SELECT FROM {rows} WHERE k = $1 AND v = $2)"
        names = {"entries": self.entries(index)}
        return [
            (
                self._made(
                    "DELETE FROM {entries} WHERE k = $1 AND p <> ALL($3::bytea[])" + has_value, **names
                ),
                (key, value, entries[0]),
            ),
            (
                self._made(
                    "INSERT INTO {entries} (k, p, s) SELECT $1, n.p, n.s "
                    "FROM unnest($3::bytea[], $4::bytea[]) AS n (p, s) WHERE true"
                    + has_value
                    + " ON CONFLICT (k, p) DO UPDATE SET s = excluded.s",
                    **names,
                ),
                (key, value, *entries),
            ),
        ]

    def stored_many_beside(
        self, index: IndexInfo, rows: list[bytes], entries: list[tuple[bytes, bytes, bytes | None]]
    ) -> list[Statement]:
        """Make the entries of rows these, each with the key of its row."""
        names = {"entries": self.entries(index)}
        insert = (
            "INSERT INTO {entries} (k, p, s) SELECT * FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) "
            "ON CONFLICT (k, p) DO UPDATE SET s = excluded.s"
        )
        arrays = [[entry[part] for entry in entries] for part in range(3)]
        return [
            (self._made("DELETE FROM {entries} WHERE k = ANY($1::bytea[])", **names), (rows,)),
            (self._made(insert, **names), arrays),
        ]

    def deleted_beside(self, rows: list[bytes]) -> list[Statement]:
        """Delete the entries of rows that are not there any more."""
        text = (
            "DELETE FROM {entries} AS e WHERE k = ANY($1::bytea[]) "
            "AND NOT EXISTS (SELECT FROM {rows} WHERE k = e.k)"
        )
        return [
            (self._made(text, entries=self.entries(index)), (rows,))
            for index in self.layout.indexes
            if index.has_each
        ]

    def cleared_beside(self) -> list[Statement]:
        """Delete the entries of all rows that are not there any more."""
        return [self.swept_beside(index) for index in self.layout.indexes if index.has_each]

    def swept_beside(self, index: IndexInfo) -> Statement:
        """Delete the entries of one index whose rows are not there any more."""
        text = "DELETE FROM {entries} AS e WHERE NOT EXISTS (SELECT FROM {rows} WHERE k = e.k)"
        return self._made(text, entries=self.entries(index)), ()

    def after(self, count: int) -> bytes:
        """`$1` is a key; give the rows that come after it, up to a count."""
        return self._made(
            "SELECT k, s, v, ver FROM {rows} WHERE k > $1 ORDER BY k LIMIT {count}", count=b"%d" % count
        )

    def fill(
        self, index: IndexInfo, entered: list[tuple[bytes, int, list[tuple[bytes, bytes | None]]]]
    ) -> list[Statement]:
        """Store the entries of rows that still have the versions that they were read at."""
        if not index.has_each:
            arrays = [
                [k for k, _, _ in entered],
                [big_int(version) for _, version, _ in entered],
                [own[0][0] if own else None for _, _, own in entered],
                [own[0][1] if own else None for _, _, own in entered],
            ]
            text = (
                f"UPDATE {{rows}} AS t SET i{index.id} = n.i, s{index.id} = n.s "
                "FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bytea[]) AS n (k, ver, i, s) "
                "WHERE t.k = n.k AND t.ver = n.ver"
            )
            return [(self._made(text), arrays)]
        every = [(k, version, code, spelling) for k, version, own in entered for code, spelling in own]
        rows = [k for k, _, _ in entered]
        arrays = [
            [entry[0] for entry in every],
            [big_int(entry[1]) for entry in every],
            [entry[2] for entry in every],
            [entry[3] for entry in every],
        ]
        # As a change of the row would: a client that writes it meanwhile waits, or is refused if it reads an
        # earlier state, in which it would not see the entries.
        touch = (
            "UPDATE {rows} AS t SET big = t.big FROM unnest($1::bytea[], $2::bigint[]) AS n (k, ver) "
            "WHERE t.k = n.k AND t.ver = n.ver"
        )
        # A rebuild finds entries, and some may be wrong.
        forget = (
            "DELETE FROM {entries} WHERE k IN (SELECT n.k "
            "FROM unnest($1::bytea[], $2::bigint[]) AS n (k, ver) "
            "JOIN {rows} AS t ON t.k = n.k AND t.ver = n.ver)"
        )
        insert = (
            "INSERT INTO {entries} (k, p, s) SELECT n.k, n.p, n.s "
            "FROM unnest($1::bytea[], $2::bigint[], $3::bytea[], $4::bytea[]) AS n (k, ver, p, s) "
            "JOIN {rows} AS t ON t.k = n.k AND t.ver = n.ver ON CONFLICT (k, p) DO NOTHING"
        )
        read = (rows, [big_int(version) for _, version, _ in entered])
        names = {"entries": self.entries(index)}
        return [
            (self._made(touch), read),
            (self._made(forget, **names), read),
            (self._made(insert, **names), arrays),
        ]

    def note_place(self, index: IndexInfo, reached: bytes) -> Statement:
        """Note up to which key the entries of an index are there."""
        indexes = quoted(self.schema, "indexes")
        return self._made("UPDATE {indexes} SET place = $2 WHERE id = $1", indexes=indexes), (
            index.id,
            reached,
        )

    def create_own(self, index: IndexInfo, *, concurrently: bool) -> bytes:
        """Create PostgreSQL's own index."""
        unique, how = "UNIQUE " if index.is_unique else "", "CONCURRENTLY " if concurrently else ""
        code, of = ("p", self.entries(index)) if index.has_each else (f"i{index.id}", self.rows)
        # Rows without an entry are in it, unless they are many: whether there are any is asked before a
        # sort.
        where = f" WHERE {code} IS NOT NULL" if " where " in index.definition else ""
        columns = f"({code}) INCLUDE (k)" if index.is_unique else f"({code}, k)"
        return self._made(
            f"CREATE {unique}INDEX {how}{{name}} ON {{of}} {columns}{where}",
            name=quoted(self.index_name(index)),
            of=of,
        )

    def analyze(self, index: IndexInfo) -> bytes:
        """Give the server statistics of an index's entries."""
        if index.has_each:
            return self._made("ANALYZE {entries} (p)", entries=self.entries(index))
        return self._made(f"ANALYZE {{rows}} (i{index.id})")

    def drop_own(self, index: IndexInfo, *, concurrently: bool) -> bytes:
        """Drop PostgreSQL's own index, if it is there."""
        how = "CONCURRENTLY " if concurrently else ""
        return self._made(
            f"DROP INDEX {how}IF EXISTS {{name}}", name=quoted(self.schema, self.index_name(index))
        )

    def duplicates(self, index: IndexInfo) -> bytes:
        """Give two rows that have one value."""
        code = f"i{index.id}"
        if index.has_each:
            text = (
                "SELECT k, s, v, ver FROM {rows} WHERE k IN (SELECT k FROM {entries} WHERE p = (SELECT p "
                "FROM {entries} GROUP BY p HAVING count(*) > 1 ORDER BY p LIMIT 1)) ORDER BY k LIMIT 2"
            )
            return self._made(text, entries=self.entries(index))
        text = (
            f"SELECT k, s, v, ver FROM {{rows}} WHERE {code} = (SELECT {code} FROM {{rows}} WHERE "
            f"{code} IS NOT NULL GROUP BY {code} HAVING count(*) > 1 ORDER BY {code} LIMIT 1) "
            "ORDER BY k LIMIT 2"
        )
        return self._made(text)

    def count_entries(self, index: IndexInfo) -> bytes:
        """Give the number of entries of an index."""
        if index.has_each:
            return self._made("SELECT count(*) FROM {entries}", entries=self.entries(index))
        return self._made(f"SELECT count(i{index.id}) FROM {{rows}}")

    def derived(self, rows: list[bytes]) -> Statement:
        """Give k and ver of rows, and their entries that are columns."""
        columns = ", ".join(["k", "ver", *self._entries])
        return self._made(f"SELECT {columns} FROM {{rows}} WHERE k = ANY($1::bytea[])"), (rows,)

    def entries_beside(self, index: IndexInfo, rows: list[bytes]) -> Statement:
        """Give k, p and s of the entries of rows that are not columns."""
        text = "SELECT k, p, s FROM {entries} WHERE k = ANY($1::bytea[])"
        return self._made(text, entries=self.entries(index)), (rows,)

    def without_rows(self, index: IndexInfo) -> Statement:
        """Give the number of entries beside the rows that have no row."""
        text = "SELECT count(*) FROM {entries} AS e WHERE NOT EXISTS (SELECT FROM {rows} WHERE k = e.k)"
        return self._made(text, entries=self.entries(index)), ()

    def other_json(
        self, rows: list[bytes], versions: list[int], names: list[str | None], values: list[str | None]
    ) -> Statement:
        """Give k of rows whose JSON is another one."""
        text = (
            "SELECT t.k FROM {rows} AS t JOIN unnest($1::bytea[], $2::bigint[], $3::text[], $4::text[]) "
            "AS n (k, ver, key, value) ON t.k = n.k AND t.ver = n.ver WHERE "
            "t.key::text IS DISTINCT FROM n.key::jsonb::text OR "
            "t.value::text IS DISTINCT FROM n.value::jsonb::text"
        )
        return self._made(text), (rows, [big_int(version) for version in versions], names, values)

    def note_long(self, index: IndexInfo) -> Statement:
        """Note that an index has a code that is too long to be in order."""
        indexes = quoted(self.schema, "indexes")
        text = "UPDATE {indexes} SET has_long = true WHERE id = $1 AND NOT has_long"
        return self._made(text, indexes=indexes), (index.id,)

    # Rows

    @functools.cached_property
    def get(self) -> bytes:
        """`$1` is a key; gives v and ver."""
        return self._made("SELECT v, ver FROM {rows} WHERE k = $1{at}")

    @functools.cached_property
    def lock(self) -> bytes:
        """`$1` is a key; no other transaction can change its row until this one has ended."""
        return self._made("SELECT FROM {rows} WHERE k = $1{at} FOR NO KEY UPDATE")

    @functools.cached_property
    def get_locked(self) -> bytes:
        """As `lock`; gives v, ver and big."""
        return self._made("SELECT v, ver, big FROM {rows} WHERE k = $1{at} FOR NO KEY UPDATE")

    @functools.cached_property
    def has(self) -> bytes:
        """`$1` is a key; gives a row if there is one."""
        return self._made("SELECT FROM {rows} WHERE k = $1{at}")

    @functools.cached_property
    def has_any(self) -> bytes:
        """`$1` is an array of keys; gives a row if one of them has one."""
        return self._made("SELECT FROM {rows} WHERE k = ANY($1::bytea[]) LIMIT 1")

    @functools.cached_property
    def count(self) -> bytes:
        """Gives the number of rows."""
        return self._made("SELECT count(*) FROM {rows}")

    @functools.cached_property
    def counter(self) -> bytes:
        """Gives the next number of `append` that no client has taken."""
        counters = quoted(self.schema, "counters")
        return self._made(
            f"SELECT next_int FROM {{counters}} WHERE id = {self.layout.id:d}", counters=counters
        )

    @functools.cached_property
    def any(self) -> bytes:
        """Gives a row if the table has one."""
        return self._made("SELECT FROM {rows} LIMIT 1")

    @functools.cached_property
    def _columns(self) -> str:
        return ", ".join(self._inserted)

    @functools.cached_property
    def _places(self) -> str:
        return ", ".join(
            citus.placeholder(column, taken(column, f"${number}"))
            for number, column in enumerate(self._inserted, 1)
        )

    @functools.cached_property
    def _assigned(self) -> str:
        columns = ["v", *self._derived]
        return ", ".join([f"{column} = excluded.{column}" for column in columns])

    @functools.cached_property
    def put(self) -> bytes:
        """`$1` k, `$2` s, `$3` v, `$4` big, then the entries; gives ver, and whether to sweep."""
        return self._made(
            "INSERT INTO {rows} AS t ({columns}) VALUES ({places}) ON CONFLICT ({unique}) DO UPDATE "
            "SET {assigned}, big = coalesce(excluded.big, t.big), ver = t.ver + 1 "
            "RETURNING ver, big AND ver > 1",
            columns=self._columns.encode(),
            places=self._places.encode(),
            assigned=self._assigned.encode(),
        )

    @functools.cached_property
    def add(self) -> bytes:
        """As `put`, where the key has no row; gives ver, or nothing."""
        return self._made(
            "INSERT INTO {rows} ({columns}) VALUES ({places}) ON CONFLICT ({unique}) DO NOTHING "
            "RETURNING ver",
            columns=self._columns.encode(),
            places=self._places.encode(),
        )

    @functools.cached_property
    def put_many(self) -> bytes:
        """As `put`, with an array for each column; keys are unique."""
        names = self._inserted
        arrays = ", ".join(f"${number}::{KINDS.get(name, 'bytea')}[]" for number, name in enumerate(names, 1))
        return self._made(
            "INSERT INTO {rows} AS t ({columns}) SELECT {taken} FROM unnest({arrays}) AS n ({columns}) "
            "WHERE true ON CONFLICT ({unique}) DO UPDATE "
            "SET {assigned}, big = coalesce(excluded.big, t.big), ver = t.ver + 1",
            columns=self._columns.encode(),
            taken=", ".join(taken(name, f"n.{name}") for name in names).encode(),
            arrays=arrays.encode(),
            assigned=self._assigned.encode(),
        )

    def put_values(self, count: int) -> bytes:
        """As `put`, with the parameters of `count` rows."""
        names = self._inserted
        numbers = iter(range(1, count * len(names) + 1))
        lists = [
            ", ".join(taken(name, f"${next(numbers)}::{KINDS.get(name, 'bytea')}") for name in names)
            for _ in range(count)
        ]
        return self._made(
            "INSERT INTO {rows} AS t ({columns}) VALUES {lists} ON CONFLICT ({unique}) DO UPDATE "
            "SET {assigned}, big = coalesce(excluded.big, t.big), ver = t.ver + 1",
            columns=self._columns.encode(),
            lists=", ".join(f"({one})" for one in lists).encode(),
            assigned=self._assigned.encode(),
        )

    @functools.cached_property
    def copy(self) -> bytes:
        """Takes rows in PostgreSQL's binary form: k, s, v, big, and the entries."""
        return self._made(
            "COPY {rows} ({columns}) FROM STDIN (FORMAT binary)", columns=self._columns.encode()
        )

    @functools.cached_property
    def swap(self) -> bytes:
        """`$1` k, `$2` the version that was read, `$3` v, `$4` big, then the entries; gives ver and big."""
        entries = "".join(
            f", {column} = {taken(column, f'${number}')}" for number, column in enumerate(self._derived, 5)
        )
        return self._made(
            "UPDATE {rows} SET v = $3, big = coalesce($4, big), ver = ver + 1{entries} WHERE k = $1 AND "
            "ver = $2{at} RETURNING ver, big",
            entries=entries.encode(),
        )

    def add_int(self, tag: int, slot: int) -> bytes:
        """`$1` k, `$2` the head of v and a tag, `$3` what is added to the int in a slot; gives the slot.

        The offsets in v of the int's tag and slot depend on the head. A slot is little-endian, and what the
        server makes of an int is big-endian.
        """
        text = self._add_int.get((tag, slot))
        if text is None:
            old = " | ".join(f"(get_byte(v, {slot + byte})::bigint << {8 * byte})" for byte in range(8))
            turned = " || ".join(f"substr(n.b, {byte}, 1)" for byte in range(8, 0, -1))
            head = f"substr(v, {HEAD_OF_ROW.start + 1}, {HEAD_OF_ROW.stop - HEAD_OF_ROW.start})"
            # OFFSET keeps the server from computing the sum once for each byte.
            text = self._add_int[tag, slot] = self._made(
                f"UPDATE {{rows}} SET ver = ver + 1, v = (SELECT overlay(v PLACING {turned} FROM {slot + 1}) "
                f"FROM (SELECT int8send(({old}) + $3) AS b OFFSET 0) AS n) "
                f"WHERE k = $1 AND {head} || substr(v, {tag + 1}, 1) = $2 "
                f"RETURNING substr(v, {slot + 1}, 8)"
            )
        return text

    @functools.cached_property
    def swap_many(self) -> bytes:
        """As `swap`, with an array for each of k, version, v, and the entries; gives k and big."""
        names = ["k", "ver", "v", *self._derived, *citus.columns(self.layout)]
        arrays = ", ".join(f"${number}::{KINDS.get(name, 'bytea')}[]" for number, name in enumerate(names, 1))
        entries = "".join(f", {column} = {taken(column, f'n.{column}')}" for column in self._derived)
        return self._made(
            "UPDATE {rows} AS t SET v = n.v, ver = t.ver + 1{entries} FROM unnest({arrays}) AS n ({names}) "
            "WHERE t.k = n.k AND t.ver = n.ver{joined} RETURNING t.k, t.big",
            entries=entries.encode(),
            arrays=arrays.encode(),
            names=", ".join(names).encode(),
        )

    @functools.cached_property
    def delete(self) -> bytes:
        """`$1` is a key; gives the deleted row with big."""
        return self._made("DELETE FROM {rows} WHERE k = $1{at} RETURNING k, s, v, ver, big")

    @functools.cached_property
    def delete_version(self) -> bytes:
        """`$1` is a key and `$2` a version; gives the deleted row with big."""
        return self._made("DELETE FROM {rows} WHERE k = $1 AND ver = $2{at} RETURNING k, s, v, ver, big")

    @functools.cached_property
    def delete_many(self) -> bytes:
        """`$1` are keys; gives the number of rows that were deleted."""
        return self._made(
            "WITH gone AS (DELETE FROM {rows} WHERE k = ANY($1::bytea[]) RETURNING k) "
            "SELECT count(*) FROM gone"
        )

    @functools.cached_property
    def forget_many(self) -> bytes:
        """`$1` are keys without rows; deletes their overflow values."""
        return self._made("DELETE FROM {overflow} WHERE k = ANY($1::bytea[])")

    @functools.cached_property
    def clear(self) -> bytes:
        """Delete all rows."""
        return self._made("DELETE FROM {rows}")

    @functools.cached_property
    def clear_overflow(self) -> bytes:
        """Delete the overflow values of rows that are not there."""
        return self._made(
            "DELETE FROM {overflow} AS l WHERE NOT EXISTS (SELECT FROM {rows} AS t WHERE t.k = l.k{beside})"
        )

    @functools.cached_property
    def overflow_value(self) -> bytes:
        """`$1` is a key and `$2` the id of an overflow value; gives its pieces."""
        return self._made("SELECT bytes FROM {overflow} WHERE k = $1 AND id = $2{at} ORDER BY piece")

    @functools.cached_property
    def put_overflow(self) -> bytes:
        """`$1` is a key, `$2` the id of an overflow value, `$3` the number of a piece, and `$4` its bytes."""
        names = ["k", "id", "piece", "bytes", *citus.columns(self.layout)]
        places = [citus.placeholder(name, f"${number}") for number, name in enumerate(names, 1)]
        return self._made(
            "INSERT INTO {overflow} ({names}) VALUES ({places})",
            names=", ".join(names).encode(),
            places=", ".join(places).encode(),
        )

    @functools.cached_property
    def delete_overflow(self) -> bytes:
        """`$1` is a key, and `$2` the ids of overflow values that no row has any more."""
        return self._made("DELETE FROM {overflow} WHERE k = $1 AND id = ANY($2::bigint[]){at}")

    @functools.cached_property
    def sweep_overflow(self) -> bytes:
        """`$1` is a key, `$2` the ids that its row has in version `$3`; deletes the others."""
        return self._made(
            "WITH r AS (SELECT k FROM {rows} WHERE k = $1 AND ver = $3{at} FOR UPDATE) "
            "DELETE FROM {overflow} WHERE k = $1 AND id <> ALL($2::bigint[]){at} AND EXISTS (SELECT FROM r)"
        )

    @functools.cached_property
    def sweep_all(self) -> bytes:
        """Delete the overflow values whose rows are not there, or never had any."""
        return self._made(
            "DELETE FROM {overflow} AS l WHERE NOT EXISTS "
            "(SELECT FROM {rows} AS t WHERE t.k = l.k AND t.big{beside})"
        )

    def end(self, *, last: bool) -> bytes:
        """Give the first row, or the last one."""
        return self._made("SELECT k, s, v, ver FROM {rows} ORDER BY k {way} LIMIT 1", way=_way(last))

    def greatest(self) -> bytes:
        """`$1` and `$2` are keys; give k and s of the last row from one to the other."""
        return self._made("SELECT k, s FROM {rows} WHERE k >= $1 AND k <= $2 ORDER BY k DESC LIMIT 1")

    def scan(
        self, low: bytes | None, high: bytes | None, place: bytes | None = None, *, reverse: bool
    ) -> tuple[bytes, list[bytes]]:
        """Give the rows from one key up to another, in order: the statement and its parameters.

        `place` is what they are all distributed by, if that is known.
        """
        where, given = self._range(low, high, place)
        text = "SELECT k, s, v, ver FROM {rows}{where} ORDER BY k {way}"
        return self._made(text, where=where, way=_way(reverse)), given

    def page(
        self, low: bytes | None, high: bytes | None, after: bytes | None, count: int, *, reverse: bool
    ) -> tuple[bytes, list[bytes]]:
        """Give up to `count` rows of a scan, those after a key: the statement and its parameters."""
        where, given = self._range(low, high)
        if after is not None:
            given.append(after)
            where += b"%s k %s $%d" % (b" AND" if where else b" WHERE", b"<" if reverse else b">", len(given))
        text = "SELECT k, s, v, ver FROM {rows}{where} ORDER BY k {way} LIMIT {count}"
        return self._made(text, where=where, way=_way(reverse), count=b"%d" % count), given

    def count_range(
        self, low: bytes | None, high: bytes | None, place: bytes | None = None
    ) -> tuple[bytes, list[bytes]]:
        """Give the number of rows from one key up to another: the statement and its parameters."""
        where, given = self._range(low, high, place)
        return self._made("SELECT count(*) FROM {rows}{where}", where=where), given

    def _range(
        self, low: bytes | None, high: bytes | None, place: bytes | None = None
    ) -> tuple[bytes, list[bytes]]:
        given = [key for key in (low, high) if key is not None]
        conditions = []
        if low is not None:
            conditions.append("k >= $1")
        if high is not None:
            conditions.append(f"k < ${len(given)}")
        if place is not None:
            given.append(place)
            conditions.append(f"d = ${len(given)}")
        where = " WHERE " + " AND ".join(conditions) if conditions else ""
        return where.encode(), given


def taken(column: str, place: str) -> str:
    """Return what a column takes from a parameter: bytes as they are, and JSON from its text."""
    return f"{place}::text::jsonb" if column in ("key", "value") else place


def _way(reverse: bool) -> bytes:
    return b"DESC" if reverse else b"ASC"
