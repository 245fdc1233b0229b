"""Check what is stored on a server, and free what is stored for nothing."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pellucid._native import server_json_key, server_keys, server_whole_code
from pellucid.errors import CorruptRecord, Error, TransactionError
from pellucid.postgres.errors import LayoutChanged
from pellucid.postgres.query.scan import pages_of
from pellucid.postgres.schema import keys, triggers
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.schema.text import formed, quoted
from pellucid.postgres.session import Rows
from pellucid.postgres.table.binding import LAYOUT_ATTEMPTS
from pellucid.postgres.table.index_entries import ServerIndexEntries, columns, key_of, stored_entries
from pellucid.postgres.table.overflow import Overflow
from pellucid.postgres.table.records import Records

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
    from pellucid.postgres.connection import DatabaseConnection
    from pellucid.postgres.schema.tables import DatabaseTables


def check(connection: DatabaseConnection, tables: DatabaseTables) -> list[str]:
    """Return a line for each damaged row, each overflow value that is missing, and each wrong entry."""
    return [fault for name in tables.names() for fault in check_table(parts_of(connection, tables, name))]


def parts_of(connection: DatabaseConnection, tables: DatabaseTables, name: str) -> Records:
    """Return the records of a table, with what the checks of its rows need."""
    records = Records(connection, tables, name)
    records.overflow = Overflow(records.binding)
    return records


def check_table(records: Records) -> list[str]:
    """Return what is damaged in one table."""
    faults = []
    name = records.binding.name
    for page in pages_of(records):
        damaged = dict(records.faults(page))
        faults += [f"table {name!r}, key code {key.hex()}: {fault}" for key, fault in damaged.items()]
        sound = [row for row in page if row[0] not in damaged]
        for row in sound:
            code = server_whole_code(row)
            if keys.stored(code) != row[0]:
                fault = "the key is not stored as this key is, so it is not found by it"
                faults.append(f"table {name!r}, key {server_keys([row])[0]!r}: {fault}")
            for number in records.overflow_ids(row[2]):
                if records.overflow_value(code, number) is None:
                    key = server_keys([row])[0]
                    faults.append(f"table {name!r}, key {key!r}: a large value is missing")
        faults += _in_layout(records, functools.partial(_wrong_entries, records, sound))
    return faults + _in_layout(records, functools.partial(_without_rows, records))


def unreadable(records: Records, validates: bool = False) -> list[tuple[Any, Exception]]:
    """Return the keys of the rows that cannot be read, each with the exception that says why.

    With `validates`, those are listed, too, whose value a write would refuse.
    """
    found: list[tuple[Any, Exception]] = []
    for page in pages_of(records):
        damaged = dict(records.faults(page))
        for row in page:
            try:
                key = server_keys([row])[0]
            except Error as error:
                found.append((bytes(row[0]), error))
                continue
            try:
                value = records.last_value(row, records.validity())
                if validates:
                    records.check_conforms(key, value)
            except Exception as error:
                found.append((key, error))
            else:
                if row[0] in damaged:
                    name, fault = records.binding.name, damaged[row[0]]
                    text = f"the record of key {key!r} of table {name!r} is damaged: {fault}"
                    found.append((key, CorruptRecord(text)))
    return found


def _in_layout(records: Records, find: Callable[[Statements], Iterator[str]]) -> list[str]:
    """Return what is found in the layout that the table has, and again if that changes meanwhile."""
    for _ in range(LAYOUT_ATTEMPTS):
        sql = records.binding.statements()
        if sql is None or not sql.layout.has_derived:
            return []
        try:
            return list(find(sql))
        except LayoutChanged as error:
            records.binding.layout_changed(sql, error)
    raise records.binding.too_many_changes()


def _wrong_entries(records: Records, page: Rows, sql: Statements) -> Iterator[str]:
    """Yield a line for each row whose entries in an index, or whose JSON, are not those of its record.

    A row that another client has changed since the page was read is passed over.
    """
    entries = ServerIndexEntries(records.connection, records)
    wanted = [row[0] for row in page]
    indexes = [index for index in sql.layout.indexes if index.state == "ready"]
    beside: dict[int, dict[bytes, Rows]] = {}
    for index in indexes:
        if index.has_each:
            found = sorted(records.connection.read(*sql.entries_beside(index, wanted)))
            groups = itertools.groupby(found, lambda row: row[0])
            beside[index.id] = {key: [row[1:] for row in rows] for key, rows in groups}
    # After those: a row that has the same version now had it when they were read.
    stored = {row[0]: row[1:] for row in records.connection.read(*sql.derived(wanted))}
    same = [row for row in page if row[0] in stored and stored[row[0]][0] == row[3]]

    def line(row: tuple[Any, ...], fault: str) -> str:
        return f"table {records.binding.name!r}, key {server_keys([row])[0]!r}: {fault}"

    for row in same:
        every = entries.of_row(sql, key_of(row[0], row[1]), row[2])
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
            [server_json_key(*key_of(row[0], row[1])) for row in same],
            [records.json(row[2]) for row in same],
        )
        names, values = ([None if text is None else text.decode() for text in some] for some in texts)
        given = [row[0] for row in same], [row[3] for row in same], names, values
        others = {key for (key,) in records.connection.read(*sql.other_json(*given))}
        wrong = [row for row in same if row[0] in others]
        yield from (line(row, "its JSON is another value; store the row again") for row in wrong)


def _without_rows(records: Records, sql: Statements) -> Iterator[str]:
    """Yield a line for each index with entries of rows that are not there."""
    for index in sql.layout.indexes:
        if index.has_each and index.state == "ready":
            count = int(records.connection.read(*sql.without_rows(index))[0][0])
            if count:
                where = f"table {records.binding.name!r}: index {index.name!r}"
                yield f"{where} has {count} entries without rows; rebuild_index mends it"


def stats(connection: DatabaseConnection, tables: DatabaseTables, *, pickles: bool) -> dict[str, int]:
    """Return the figures that `Database.stats` of a file has; 0 for those of a file."""
    found = dict.fromkeys(FIGURES, 0)
    schema = quoted(connection.place.schema)
    for name in tables.names():
        layout = tables.layout_named(name)
        if layout is None:
            continue
        sql = tables.statements(layout)
        found["tables"] += 1
        found["rows"] += _count(connection, sql.count)
        found["indexes"] += len(layout.indexes)
        for index in layout.indexes:
            found["index_entries"] += _count(connection, sql.count_entries(index))
        found["blobs"] += _count(connection, b"SELECT count(DISTINCT (k, id)) FROM " + sql.overflow)
        if pickles:
            records = Records(connection, tables, name)
            found["pickles"] = found.get("pickles", 0) + sum(map(records.pickle_count, pages_of(records)))
    found["shapes"] = _count(connection, b"SELECT count(*) FROM " + schema + b".shapes")
    found["version"] = _count(connection, b"SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint")
    found["file_size"] = _count(
        connection,
        b"SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class AS c "
        b"JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'",
        connection.place.schema,
    )
    if pickles:
        found.setdefault("pickles", 0)
    return found


def _count(connection: DatabaseConnection, statement: bytes, *given: str) -> int:
    return int(connection.read(statement, given)[0][0])


def compact(connection: DatabaseConnection, tables: DatabaseTables) -> None:
    """Delete overflow values that no row has any more, and vacuum the relations of all tables."""
    if connection.running() is not None:
        raise TransactionError(
            "compact() cannot run inside a transaction: the server frees room between transactions"
        )
    for name in tables.names():
        layout = tables.layout_named(name)
        if layout is None:
            continue
        sql = tables.statements(layout)
        with connection.pool.session() as session:
            session.execute(sql.sweep_all)
            session.execute(formed("VACUUM {rows}", rows=sql.rows))
            session.execute(formed("VACUUM {overflow}", overflow=sql.overflow))
    with connection.pool.session() as session:
        triggers.forget(session, connection.place.schema)
