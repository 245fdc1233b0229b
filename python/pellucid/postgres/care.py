"""Check what is stored on a server, and free what is stored for nothing."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from pellucid.errors import TransactionError
from pellucid.postgres.catalog import formed
from pellucid.postgres.scan import ALL, Pages

if TYPE_CHECKING:
    from pellucid.postgres.database import Database
    from pellucid.postgres.table import Table


def check(database: Database) -> list[str]:
    """Return a line for each damaged row and each large value that is missing."""
    return [fault for name in database.tables() for fault in check_table(database.table(name))]


def check_table(table: Table) -> list[str]:
    """Return what is damaged in one table."""
    faults = []
    pages = Pages(table, ALL, False)
    for page in itertools.chain([pages.first()], pages):
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
