"""The SQL for one table, made once for each layout of it.

A relation's name has the generation of its layout: `t7_3` is table 7 in its third layout. A change of the
layout renames it in one transaction, so every statement of a client that knows the older layout fails,
prepared ones too, and the client reads the catalog again. Names of users' tables and fields are data: no
statement has one.

    k      the code of the key (`keys.py`)
    s      its spelling; NULL where it has none, as nearly always
    v      the number of shapes that a reader needs, and the record
    ver    grows with each write: what a change compares
    big    true if the row has, or had, large values in the relation beside it
    i17 s17   an entry of index 17, and its spelling; both NULL where the row has none
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

from pellucid.postgres.driver import psycopg


@dataclasses.dataclass(frozen=True)
class Layout:
    """What the catalog says of a table."""

    id: int
    name: str
    generation: int
    # The ids of the indexes that have columns of the rows' relation, in ascending order.
    indexes: tuple[int, ...] = ()

    @property
    def relation(self) -> str:
        """The name of the relation with the rows."""
        return f"t{self.id}_{self.generation}"


def quoted(*names: str) -> bytes:
    """Return a name, or a name in a schema, as SQL has it."""
    return b".".join(b'"' + name.replace('"', '""').encode() + b'"' for name in names)


class Statements:
    """The statements for a layout. Parameters are `$1` to `$n`, and rows have the columns k, s, v, ver."""

    def __init__(self, schema: str, layout: Layout) -> None:
        self.layout = layout
        self.rows = quoted(schema, layout.relation)
        self.large = quoted(schema, f"large{layout.id}")

    def _made(self, text: str, **parts: bytes) -> bytes:
        known = {"rows": self.rows, "large": self.large, **parts}
        return text.format(**{name: part.decode() for name, part in known.items()}).encode()

    @functools.cached_property
    def _entries(self) -> list[str]:
        return [column for index in self.layout.indexes for column in (f"i{index}", f"s{index}")]

    @functools.cached_property
    def get(self) -> bytes:
        """`$1` is a key; gives v and ver."""
        return self._made("SELECT v, ver FROM {rows} WHERE k = $1")

    @functools.cached_property
    def has(self) -> bytes:
        """`$1` is a key; gives a row if there is one."""
        return self._made("SELECT FROM {rows} WHERE k = $1")

    @functools.cached_property
    def count(self) -> bytes:
        """Gives the number of rows."""
        return self._made("SELECT count(*) FROM {rows}")

    @functools.cached_property
    def any(self) -> bytes:
        """Gives a row if the table has one."""
        return self._made("SELECT FROM {rows} LIMIT 1")

    @functools.cached_property
    def _columns(self) -> str:
        return ", ".join(["k", "s", "v", "big", *self._entries])

    @functools.cached_property
    def _places(self) -> str:
        return ", ".join(f"${number}" for number in range(1, 5 + len(self._entries)))

    @functools.cached_property
    def _assigned(self) -> str:
        columns = ["v", *self._entries]
        return ", ".join([f"{column} = excluded.{column}" for column in columns])

    @functools.cached_property
    def put(self) -> bytes:
        """`$1` k, `$2` s, `$3` v, `$4` big, then the entries; gives ver, and whether to sweep."""
        return self._made(
            "INSERT INTO {rows} AS t ({columns}) VALUES ({places}) ON CONFLICT (k) DO UPDATE SET {assigned}, "
            "big = coalesce(excluded.big, t.big), ver = t.ver + 1 RETURNING ver, big AND ver > 1",
            columns=self._columns.encode(),
            places=self._places.encode(),
            assigned=self._assigned.encode(),
        )

    @functools.cached_property
    def add(self) -> bytes:
        """As `put`, where the key has no row; gives ver, or nothing."""
        return self._made(
            "INSERT INTO {rows} ({columns}) VALUES ({places}) ON CONFLICT (k) DO NOTHING RETURNING ver",
            columns=self._columns.encode(),
            places=self._places.encode(),
        )

    @functools.cached_property
    def put_many(self) -> bytes:
        """As `put`, with an array for each column; keys are unique."""
        kinds = ["bytea", "bytea", "bytea", "bool"] + ["bytea"] * len(self._entries)
        arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, 1))
        return self._made(
            "INSERT INTO {rows} AS t ({columns}) SELECT * FROM unnest({arrays}) ON CONFLICT (k) DO UPDATE "
            "SET {assigned}, big = coalesce(excluded.big, t.big), ver = t.ver + 1",
            columns=self._columns.encode(),
            arrays=arrays.encode(),
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
        entries = "".join(f", {column} = ${number}" for number, column in enumerate(self._entries, 5))
        return self._made(
            "UPDATE {rows} SET v = $3, big = coalesce($4, big), ver = ver + 1{entries} WHERE k = $1 AND "
            "ver = $2 "
            "RETURNING ver, big",
            entries=entries.encode(),
        )

    @functools.cached_property
    def delete(self) -> bytes:
        """`$1` is a key; gives the deleted row with big."""
        return self._made("DELETE FROM {rows} WHERE k = $1 RETURNING k, s, v, ver, big")

    @functools.cached_property
    def delete_version(self) -> bytes:
        """`$1` is a key and `$2` a version; gives the deleted row with big."""
        return self._made("DELETE FROM {rows} WHERE k = $1 AND ver = $2 RETURNING k, s, v, ver, big")

    @functools.cached_property
    def clear(self) -> bytes:
        """Delete all rows."""
        return self._made("DELETE FROM {rows}")

    @functools.cached_property
    def clear_large(self) -> bytes:
        """Delete the large values of rows that are not there."""
        return self._made("DELETE FROM {large} WHERE k NOT IN (SELECT k FROM {rows})")

    @functools.cached_property
    def large_value(self) -> bytes:
        """`$1` is a key and `$2` the id of a large value; gives its pieces."""
        return self._made("SELECT bytes FROM {large} WHERE k = $1 AND id = $2 ORDER BY piece")

    @functools.cached_property
    def put_large(self) -> bytes:
        """`$1` is a key, `$2` the id of a large value, `$3` the number of a piece, and `$4` its bytes."""
        return self._made("INSERT INTO {large} (k, id, piece, bytes) VALUES ($1, $2, $3, $4)")

    @functools.cached_property
    def delete_large(self) -> bytes:
        """`$1` is a key, and `$2` the ids of large values that no row has any more."""
        return self._made("DELETE FROM {large} WHERE k = $1 AND id = ANY($2::bigint[])")

    @functools.cached_property
    def sweep_large(self) -> bytes:
        """`$1` is a key, `$2` the ids that its row has in version `$3`; deletes the others."""
        return self._made(
            "WITH r AS (SELECT k FROM {rows} WHERE k = $1 AND ver = $3 FOR UPDATE) "
            "DELETE FROM {large} WHERE k = $1 AND id <> ALL($2::bigint[]) AND EXISTS (SELECT FROM r)"
        )

    @functools.cached_property
    def sweep_all(self) -> bytes:
        """Delete the large values whose rows are not there, or never had any."""
        return self._made(
            "DELETE FROM {large} AS l WHERE NOT EXISTS (SELECT FROM {rows} AS t WHERE t.k = l.k AND t.big)"
        )

    def end(self, *, last: bool) -> bytes:
        """Give the first row, or the last one."""
        return self._made("SELECT k, s, v, ver FROM {rows} ORDER BY k {way} LIMIT 1", way=_way(last))

    def greatest(self) -> bytes:
        """`$1` and `$2` are keys; give k and s of the last row from one to the other."""
        return self._made("SELECT k, s FROM {rows} WHERE k >= $1 AND k <= $2 ORDER BY k DESC LIMIT 1")

    def scan(self, low: bytes | None, high: bytes | None, *, reverse: bool) -> tuple[bytes, list[bytes]]:
        """Give the rows from one key up to another, in order: the statement and its parameters."""
        where, given = self._range(low, high)
        text = "SELECT k, s, v, ver FROM {rows}{where} ORDER BY k {way}"
        return self._made(text, where=where, way=_way(reverse)), given

    def count_range(self, low: bytes | None, high: bytes | None) -> tuple[bytes, list[bytes]]:
        """Give the number of rows from one key up to another: the statement and its parameters."""
        where, given = self._range(low, high)
        return self._made("SELECT count(*) FROM {rows}{where}", where=where), given

    def _range(self, low: bytes | None, high: bytes | None) -> tuple[bytes, list[bytes]]:
        given = [key for key in (low, high) if key is not None]
        conditions = []
        if low is not None:
            conditions.append("k >= $1")
        if high is not None:
            conditions.append(f"k < ${len(given)}")
        where = " WHERE " + " AND ".join(conditions) if conditions else ""
        return where.encode(), given


def _way(reverse: bool) -> bytes:
    return b"DESC" if reverse else b"ASC"


def big_int(number: int) -> Any:
    """Return a parameter that is a bigint, however small it is."""
    return psycopg().types.numeric.Int8(number)
