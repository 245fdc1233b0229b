"""All that is special where tables are distributed over several servers (Citus).

A distributed table has its rows on the servers by the hashes of their keys, or of the first parts of keys
(`distribute_by=`), which are a column `d` then. Each statement about one row names the server with the row:
by its key, or by `d`. The servers have no common snapshot, so a read of rows on several of them may see one
part of a transaction and not the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from pellucid._native import server_distribution, server_key
from pellucid.errors import Busy, DatabaseError, TransactionError
from pellucid.postgres import errors
from pellucid.postgres.schema import keys
from pellucid.postgres.schema.layout import CreateOptions, Layout
from pellucid.postgres.schema.text import formed, quoted
from pellucid.postgres.session import Array, Session, Statement, array_of
from pellucid.postgres.url import Place

if TYPE_CHECKING:
    from pellucid.postgres.schema.statements import Statements

# The tables of the catalog that every server has where a table is distributed. Writers of one of these wait
# for each other until they commit, so the counters are distributed.
SHARED = ("about", "catalog", "indexes", "shapes")
KEY_PARTS_MAX = 100
# Rows of one list of values.
VALUES_COUNT = 200
# What a table is distributed by has to be a part of what is unique.
PARTS = {"part": b", d bytea NOT NULL", "by": b", d"}
WHOLE = {"part": b"", "by": b""}


# The server and its catalog


def is_installed(session: Session) -> bool:
    """Return whether the server can distribute tables."""
    found = session.rows(b"SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')")
    return bool(found[0][0])


def check_options(place: Place, is_there: bool, distributed: bool | None, distribute_by: int | None) -> None:
    """Raise `TypeError` or `ValueError` for options of a new table that cannot be."""
    if distribute_by is not None:
        if isinstance(distribute_by, bool) or not isinstance(distribute_by, int):
            raise TypeError(f"distribute_by= is a number of parts of a key, not {distribute_by!r}")
        if not distributed or not 1 <= distribute_by <= KEY_PARTS_MAX:
            raise ValueError(
                f"distribute_by={distribute_by} has to be from 1 to {KEY_PARTS_MAX}, with distributed=True"
            )
    if distributed and not is_there:
        raise ValueError(
            f"{place.shown} has no extension citus, so its tables cannot be distributed: leave out "
            "distributed=True, or install Citus and run CREATE EXTENSION citus"
        )


def begin_settings(has_citus: bool) -> list[str]:
    """Return the settings that the BEGIN of each transaction is followed by."""
    # Other settings reach the other servers only if this is set.
    return ["SET LOCAL citus.propagate_set_commands = 'local'"] if has_citus else []


def unshared(session: Session, schema: str) -> dict[str, str]:
    """Return the relations of the catalog that the other servers do not have yet, by their names."""
    asked = b"SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = $1::text::regclass)"
    every = {name: quoted(schema, name).decode() for name in (*SHARED, "counters")}
    return {name: relation for name, relation in every.items() if not session.rows(asked, [relation])[0][0]}


def share(session: Session, schema: str) -> None:
    """Give the catalog to all servers, so that each reads it as its own (reference tables).

    A transaction that began before then sees a catalog without rows. All is one transaction, so that it
    sees no table without its indexes.
    """
    left = unshared(session, schema)
    if not left:
        return
    session.execute(b"BEGIN")
    for name in left:
        make = b"create_reference_table($1::text::regclass)"
        if name not in SHARED:
            make = b"create_distributed_table($1::text::regclass, 'id', colocate_with => 'none')"
        session.rows(b"SELECT " + make, [left[name]])
    session.execute(b"COMMIT")


def check_shared(session: Session, schema: str) -> None:
    """Raise in a transaction if the catalog would have to be given to all servers."""
    if unshared(session, schema):
        raise TransactionError(
            "the first distributed table of a database cannot be made in a transaction: make it "
            "before, with db.table(name, distributed=True)"
        )


def check_catalog_seen(session: Session, schema: str) -> None:
    """Raise in a transaction that began before the catalog was given to all servers."""
    if not session.rows(formed("SELECT FROM {schema}.about", schema=quoted(schema))):
        raise Busy(errors.CATALOG_MOVED)


def transaction_number(has_citus: bool) -> bytes:
    """Return the statement that asks for the number of the transaction that runs."""
    # Where other servers store the rows, the transaction has no number here before its commit.
    if has_citus:
        return b"SELECT pg_current_xact_id()::text"
    return b"SELECT pg_current_xact_id_if_assigned()::text"


def is_final(has_citus: bool) -> bool:
    """Return whether a transaction that the server says was rolled back stored nothing anywhere."""
    # Where one other server stores all rows, it may have committed before this one heard of it.
    return not has_citus


def check_shapes(needed: int, known: int) -> None:
    """Raise `Busy` in a transaction that sees a newer row of another server, and not its shapes."""
    if needed > known:
        raise Busy(errors.CONFLICT)


def refuse_watch(session: Session) -> None:
    """Raise where changes have no order that holds for all servers."""
    if is_installed(session):
        raise DatabaseError(
            "watch() is not there on Citus: each of its nodes numbers its own transactions, so no order "
            "holds for all; read the rows again instead"
        )


# The relations of a table


def column_parts(options: CreateOptions) -> dict[str, bytes]:
    """Return the column by which a new table is distributed, in its definition and in its keys."""
    return PARTS if options.distribute_by else WHOLE


def distribute(session: Session, relation: bytes, beside: bytes | None, column: str = "k") -> None:
    """Distribute a relation by its keys; `beside`: so that its rows are where those of another one are."""
    where = "none" if beside is None else beside.decode()
    text = b"SELECT create_distributed_table($1::text::regclass, $3::text, colocate_with => $2::text)"
    session.rows(text, [relation.decode(), where, column])


def distribute_table(session: Session, sql: Statements) -> None:
    """Distribute the relations of a new table, if it is to be."""
    if sql.layout.is_distributed:
        column = "d" if sql.layout.distribute_by else "k"
        distribute(session, sql.rows, None, column)
        distribute(session, sql.overflow, sql.rows, column)


def distribute_entries(session: Session, layout: Layout, entries: bytes, rows: bytes) -> None:
    """Distribute the relation with the entries of an index as that of the rows is."""
    if layout.is_distributed:
        distribute(session, entries, rows)


def is_distributed(session: Session, schema: str, layout: Layout) -> bool:
    """Return whether its owner has distributed the relation of a table."""
    relation = quoted(schema, layout.relation).decode()
    asked = (
        b"SELECT EXISTS (SELECT FROM pg_dist_partition WHERE logicalrelid = to_regclass($1) "
        b"AND partmethod = 'h')"
    )
    return bool(session.rows(asked, [relation])[0][0])


def check_index(table: str, index: str, layout: Layout, *, has_each: bool, is_unique: bool) -> None:
    """Raise `ValueError` for an index that a distributed table cannot have."""
    if has_each and layout.distribute_by:
        raise ValueError(
            f"index {index!r} cannot have each(): table {table!r} is distributed by the "
            "first parts of its keys (distribute_by=), and entries beside the rows by whole keys"
        )
    if is_unique and layout.is_distributed:
        raise ValueError(
            f"index {index!r} cannot be unique: table {table!r} is distributed by its "
            "keys, and each server knows the values of its own rows alone. Make the value the key of the "
            "table, or keep a table that is not distributed, with the value as its key"
        )


# Statements


def statement_parts(layout: Layout) -> dict[str, bytes]:
    """Return what statements about rows have in addition where `d` is a column.

    `at` names the server with a row, whose number `bound` gives when the other parameters are known;
    `unique` is what is unique; the others join rows with what is beside them.
    """
    by = layout.distribute_by
    return {
        "at": b" AND d = $d" if by else b"",
        "unique": b"k, d" if by else b"k",
        "beside": b" AND t.d = l.d" if by else b"",
        "joined": b" AND t.d = n.d" if by else b"",
    }


def columns(layout: Layout) -> list[str]:
    """Return the columns of rows by which they are distributed, if not by their keys."""
    return ["d"] if layout.distribute_by else []


def placeholder(column: str, place: str) -> str:
    """Return where the value of a column stands in a statement: that of `d` has its number from `bound`."""
    return "$d" if column == "d" else place


def bound(sql: Statements, statements: list[Statement]) -> list[Statement]:
    """Return statements as a distributed table needs them: each names the server of its row."""
    if not sql.layout.is_distributed:
        return statements
    found: list[Statement] = []
    for text, given in statements:
        if sql.layout.distribute_by and (text in (sql.put_many, sql.swap_many) or b"$d" in text):
            key = given[0]
            is_many = isinstance(key, Array)
            places = [place_of(sql.layout, k) for k in (key.elements if is_many else [key])]
            given = (*given, array_of(places) if is_many else places[0])
        if text is sql.put_many:
            found += values_of(
                sql, [array.elements if isinstance(array, Array) else array for array in given]
            )
        else:
            found.append((text.replace(b"$d", b"$%d" % len(given)), given))
    return found


def copied(layout: Layout, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows of a COPY, with what they are distributed by."""
    if not layout.distribute_by:
        return rows
    return [(*row, place_of(layout, row[0])) for row in rows]


def values_of(sql: Statements, arrays: Sequence[list[Any] | None]) -> Iterator[Statement]:
    """Yield statements that store what `put_many` would, with a list of values for each row.

    Citus sends each row of such a list to its server. A SELECT from arrays it would run itself, and copy.
    """
    rows = list(zip(*(column or itertools.repeat(None) for column in arrays), strict=False))
    for start in range(0, len(rows), VALUES_COUNT):
        some = rows[start : start + VALUES_COUNT]
        yield sql.put_values(len(some)), [value for row in some for value in row]


def place_of(layout: Layout, key: bytes) -> bytes:
    """Return what a row is distributed by. Raises `ValueError` for a key that has too few parts."""
    count = layout.distribute_by
    place = server_distribution(key, count)
    if place is None:
        shown = "a key" if keys.is_long(key) else f"key {server_key(key)!r}"
        raise ValueError(
            f"{shown} of table {layout.name!r} is no tuple of {count} part{'s' if count > 1 else ''} or "
            f"more, by which its rows are distributed (distribute_by={count})"
        )
    return place


def common_place(layout: Layout, low: bytes | None, high: bytes | None) -> bytes | None:
    """Return what all keys from `low` on, below `high`, are distributed by; None if they differ."""
    if not layout.distribute_by or low is None or high is None:
        return None
    place = server_distribution(low, layout.distribute_by)
    if place is None:
        return None
    end = place.rstrip(b"\xff")
    return place if end and high <= end[:-1] + bytes([end[-1] + 1]) else None


def spans_servers(layout: Layout, place: bytes | None) -> bool:
    """Return whether rows that all have this place, if it is known, are on several servers."""
    return layout.is_distributed and place is None


def check_one_state(is_snapshot: bool, layout: Layout, place: bytes | None = None) -> None:
    """Raise where rows that are on several servers would have to come from one state."""
    if is_snapshot and spans_servers(layout, place):
        raise TransactionError(
            f"table {layout.name!r} is distributed, and its servers have no common snapshot: a read of "
            "several rows may see one part of a transaction and not the other. A snapshot reads one row, "
            "or the rows of a prefix that has all parts of distribute_by=; keep what must agree there"
        )


def check_snapshot(layout: Layout) -> None:
    """Raise for a table whose rows no snapshot can read in one state."""
    # By the first parts of its keys, it has rows that are on one server.
    if layout.is_distributed and not layout.distribute_by:
        raise TransactionError(
            f"table {layout.name!r} is distributed, and its servers have no common snapshot: a read of "
            "several rows may see one part of a transaction and not the other. Read it through the database, "
            "one row at a time, or keep what must agree in one row, or in a table that is not distributed"
        )
