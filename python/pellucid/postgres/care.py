"""Check what is stored on a server, and free what is stored for nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.errors import TransactionError
from pellucid.postgres.catalog import formed
from pellucid.postgres.statements import quoted

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
    *("readers", "reader_slots", "oldest_reader_lag"),
)

if TYPE_CHECKING:
    from pellucid.postgres.database import Database
    from pellucid.postgres.table import Table


def check(database: Database) -> list[str]:
    """Return a line for each damaged row and each large value that is missing."""
    return [fault for name in database.tables() for fault in check_table(database.table(name))]


def check_table(table: Table) -> list[str]:
    """Return what is damaged in one table."""
    faults = []
    for page in table._pages():
        damaged = dict(table._faults(page))
        faults += [f"table {table.name!r}, key code {key.hex()}: {fault}" for key, fault in damaged.items()]
        for row in page:
            if row[0] in damaged:
                continue
            code = table._whole_code(row)
            for number in table._large_ids_of(row[2]):
                if table._large(code, number) is None:
                    key = table._keys([row])[0]
                    faults.append(f"table {table.name!r}, key {key!r}: a large value is missing")
    return faults


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
    from pellucid.postgres import watching

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
        watching.forget(session, database._place.schema)
