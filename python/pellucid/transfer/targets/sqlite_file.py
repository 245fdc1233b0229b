"""This module writes a table of SQLite, in a new file or in one that is there."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from itertools import chain
from typing import Any

from pellucid.transfer.outgoing import Export, give_name, own_folder
from pellucid.transfer.sources.sqlite import quoted
from pellucid.transfer.targets.plain_text import as_text, encoder

__all__ = ["write"]


def write(export: Export, path: str, overwrite: bool) -> int:
    """Write the rows in one transaction, and return their number; an error leaves no new file."""
    if os.path.exists(path):
        return _write_file(export, path, path, overwrite)
    with own_folder(path) as part:
        count = _write_file(export, part, path, overwrite)
        give_name(part, path, overwrite)
    return count


def _write_file(export: Export, file: str, path: str, overwrite: bool) -> int:
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            count = _write(export, connection, overwrite)
            connection.execute("COMMIT")
            return count
    except sqlite3.DatabaseError as error:
        raise OSError(f"{path}: {error}") from error


def _write(export: Export, connection: sqlite3.Connection, overwrite: bool) -> int:
    table = quoted(export.table)
    is_there = connection.execute("SELECT 1 FROM sqlite_master WHERE name = ?", [export.table]).fetchone()
    if is_there and not overwrite:
        raise FileExistsError(
            17, "it has this table already; pass overwrite=True, or another table=", export.table
        )
    if is_there:
        connection.execute(f"DROP TABLE {table}")
    to_json = encoder()
    names: list[str] = []
    count = 0
    for number, row in enumerate(chain.from_iterable(export.values())):
        if not isinstance(row, dict):
            row = {"value": row}
        try:
            cells = {name: _cell(value, to_json) for name, value in row.items()}
        except (TypeError, ValueError, RecursionError) as error:
            export.skip(f"row {number}", str(error))
            continue
        if not row.keys() <= set(names) or not names:
            names = _with_columns(connection, export, names, list(cells))
        marks = ", ".join("?" * len(cells))
        columns = ", ".join(map(quoted, cells))
        values = f"({columns}) VALUES ({marks})" if cells else "DEFAULT VALUES"
        try:
            connection.execute(f"INSERT INTO {table} {values}", list(cells.values()))
        except sqlite3.IntegrityError:
            export.skip(
                f"row {number}", f"its key is the same in SQLite as that of another row: {row[export.key]!r}"
            )
            continue
        count += 1
    if not names:
        connection.execute(f"CREATE TABLE {table} ({quoted(export.key or 'value')})")
    return count


def _with_columns(
    connection: sqlite3.Connection, export: Export, names: list[str], wanted: list[Any]
) -> list[str]:
    """Make the columns that the table lacks; they have no type, so they change no value."""
    new = [name for name in wanted if name not in names]
    wrong = next((name for name in new if not isinstance(name, str)), None)
    if wrong is not None:
        raise TypeError(f"a row has the field {wrong!r}, and columns have names")
    if not names:
        columns = [quoted(name) + " PRIMARY KEY" * (name == export.key) for name in new or ["value"]]
        connection.execute(f"CREATE TABLE {quoted(export.table)} ({', '.join(columns)})")
    else:
        for name in new:
            connection.execute(f"ALTER TABLE {quoted(export.table)} ADD COLUMN {quoted(name)}")
    return names + (new or ["value"])


def _cell(value: Any, to_json: Any) -> Any:
    kind = type(value)
    if kind is bytes:
        return value
    if kind is bool:
        return int(value)
    if kind is int and not -(2**63) <= value < 2**63:
        return str(value)
    return as_text(value, to_json)
