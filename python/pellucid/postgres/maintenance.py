"""Check what is stored on a server, and free what is stored for nothing."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pellucid.errors import TransactionError
from pellucid.postgres.errors import LayoutChanged
from pellucid.postgres.schema.catalog import formed
from pellucid.postgres.schema.layout import quoted
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.session import Rows
from pellucid.postgres.table import keys
from pellucid.postgres.table.binding import LAYOUT_ATTEMPTS
from pellucid.postgres.table.index_entries import columns, stored_entries, whole

# Those that only a file has are 0.
FIGURES = (
    *(
        "version",
        "tables",
        "rows",
        "indexes",
        "index_entries",
        "entry_writes",
        "blobs",
        "shapes",
        "file_size",
    ),
    *("page_size", "pages", "free_pages", "map_size", "log_pending", "log_size", "log_limit"),
    *("history_size", "log_recovered"),
    *("readers", "reader_slots", "oldest_reader_lag", "oldest_reader_process", "oldest_reader_age"),
    *("live_size", "free_size", "pinned_size"),
)

if TYPE_CHECKING:
    from pellucid.postgres.database import Database
    from pellucid.postgres.table.table import Table


def check(database: Database) -> list[str]:
    """Return a line for each damaged row, each large value that is missing, and each wrong entry."""
    return [fault for name in database.tables() for fault in check_table(database.table(name))]


def check_table(table: Table) -> list[str]:
    """Return what is damaged in one table."""
    faults = []
    for page in table._pages():
        damaged = dict(table._faults(page))
        faults += [f"table {table.name!r}, key code {key.hex()}: {fault}" for key, fault in damaged.items()]
        whole_rows = [row for row in page if row[0] not in damaged]
        for row in whole_rows:
            code = table._whole_code(row)
            if keys.stored(code) != row[0]:
                fault = "the key is not stored as this key is, so it is not found by it"
                faults.append(f"table {table.name!r}, key {table._keys([row])[0]!r}: {fault}")
            for number in table._large_ids_of(row[2]):
                if table._large(code, number) is None:
                    key = table._keys([row])[0]
                    faults.append(f"table {table.name!r}, key {key!r}: a large value is missing")
        faults += _in_layout(table, functools.partial(_wrong_entries, table, whole_rows))
    return faults + _in_layout(table, functools.partial(_without_rows, table))


def _in_layout(table: Table, find: Callable[[Statements], Iterator[str]]) -> list[str]:
    """Return what is found in the layout that the table has, and again if that changes meanwhile."""
    for _ in range(LAYOUT_ATTEMPTS):
        sql = table._statements()
        if sql is None or not sql.layout.has_derived:
            return []
        try:
            return list(find(sql))
        except LayoutChanged as error:
            table._changed(sql, error)
    raise table._restless()


def _wrong_entries(table: Table, page: Rows, sql: Statements) -> Iterator[str]:
    """Yield a line for each row whose entries in an index, or whose JSON, are not those of its record.

    A row that another client has changed since the page was read is passed over.
    """
    wanted = [row[0] for row in page]
    indexes = [index for index in sql.layout.indexes if index.state == "ready"]
    beside: dict[int, dict[bytes, Rows]] = {}
    for index in indexes:
        if index.has_each:
            found = sorted(table._source._read(*sql.entries_beside(index, wanted)))
            groups = itertools.groupby(found, lambda row: row[0])
            beside[index.id] = {key: [row[1:] for row in rows] for key, rows in groups}
    # After those: a row that has the same version now had it when they were read.
    stored = {row[0]: row[1:] for row in table._source._read(*sql.derived(wanted))}
    same = [row for row in page if row[0] in stored and stored[row[0]][0] == row[3]]

    def line(row: tuple[Any, ...], fault: str) -> str:
        return f"table {table.name!r}, key {table._keys([row])[0]!r}: {fault}"

    for row in same:
        every = table._entries_of(sql, whole(row[0], row[1]), row[2])
        made = columns(sql, every)
        single = [index for index in sql.layout.indexes if not index.has_each]
        for place, index in enumerate(single):
            if index in indexes and tuple(made[2 * place :][:2]) != stored[row[0]][1 + 2 * place :][:2]:
                yield line(row, f"index {index.name!r} has another entry; rebuild_index mends it")
        for index, own in zip(sql.layout.indexes, every, strict=True):
            if index.id in beside:
                expected = sorted(zip(*stored_entries(own), strict=True))
                if expected != beside[index.id].get(row[0], []):
                    yield line(row, f"index {index.name!r} has other entries; rebuild_index mends it")
    if sql.layout.is_queryable and same:
        texts = (
            [table._json_key(*whole(row[0], row[1])) for row in same],
            [table._json(row[2]) for row in same],
        )
        names, values = ([None if text is None else text.decode() for text in some] for some in texts)
        given = [row[0] for row in same], [row[3] for row in same], names, values
        others = {key for (key,) in table._source._read(*sql.other_json(*given))}
        wrong = [row for row in same if row[0] in others]
        yield from (line(row, "its JSON is another value; store the row again") for row in wrong)


def _without_rows(table: Table, sql: Statements) -> Iterator[str]:
    """Yield a line for each index with entries of rows that are not there."""
    for index in sql.layout.indexes:
        if index.has_each and index.state == "ready":
            count = int(table._source._read(*sql.without_rows(index))[0][0])
            if count:
                where = f"table {table.name!r}: index {index.name!r}"
                yield f"{where} has {count} entries without rows; rebuild_index mends it"


def stats(database: Database, *, pickles: bool) -> dict[str, int]:
    """Return the figures that `Database.stats` of a file has; 0 for those of a file."""
    found = dict.fromkeys(FIGURES, 0)
    schema = quoted(database._place.schema)
    for name in database.tables():
        layout = database._layout_named(name)
        if layout is None:
            continue
        sql = database._catalog.statements(layout)
        found["tables"] += 1
        found["rows"] += _count(database, sql.count)
        found["indexes"] += len(layout.indexes)
        for index in layout.indexes:
            found["index_entries"] += _count(database, sql.count_entries(index))
        found["blobs"] += _count(database, b"SELECT count(DISTINCT (k, id)) FROM " + sql.large)
        if pickles:
            table = database.table(name)
            found["pickles"] = found.get("pickles", 0) + sum(map(table._pickle_count, table._pages()))
    found["shapes"] = _count(database, b"SELECT count(*) FROM " + schema + b".shapes")
    found["version"] = _count(database, b"SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    found["file_size"] = _count(
        database,
        b"SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c "
        b"JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'",
        database._place.schema,
    )
    if pickles:
        found.setdefault("pickles", 0)
    return found


def _count(database: Database, statement: bytes, *given: str) -> int:
    return int(database._read(statement, given)[0][0])


def compact(database: Database) -> None:
    """Delete large values that no row has any more, and vacuum the relations of all tables."""
    from pellucid.postgres.query import watch

    if database._running() is not None:
        raise TransactionError(
            "compact() cannot run inside a transaction: the server frees room between transactions"
        )
    for name in database.tables():
        layout = database._layout_named(name)
        if layout is None:
            continue
        sql = database._catalog.statements(layout)
        with database._connections.lent() as session:
            session.execute(sql.sweep_all)
            session.execute(formed("VACUUM {rows}", rows=sql.rows))
            session.execute(formed("VACUUM {large}", large=sql.large))
    with database._connections.lent() as session:
        watch.forget(session, database._place.schema)
