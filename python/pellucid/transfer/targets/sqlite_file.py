"""This module writes tables of SQLite, in a new file or in one that is there."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import closing
from itertools import chain
from typing import Any

from pellucid.transfer.digits import write_int
from pellucid.transfer.outgoing import Export, give_name, own_folder
from pellucid.transfer.sources.sqlite import quoted
from pellucid.transfer.targets.plain_text import HALF, as_text, encoder

__all__ = ["write"]

# SQLite's own limit, unless it was built with another one.
COLUMNS_MAX = 2_000
NOT_IN_NAMES = re.compile("[\0\ud800-\udfff]")


def write(exports: list[Export], path: str, overwrite: bool) -> list[int]:
    """Write tables in one transaction, and return the numbers of their rows; an error leaves no new file."""
    _check_names([export.table for export in exports])
    if os.path.exists(path):
        return _write_file(exports, path, path, overwrite)
    with own_folder(path) as part:
        counts = _write_file(exports, part, path, overwrite)
        give_name(part, path, overwrite)
    return counts


def _check_names(names: list[str]) -> None:
    """Raise `ValueError` for names that tables of SQLite cannot have."""
    taken: dict[bytes, str] = {}
    for name in names:
        other = taken.setdefault(name.encode("utf-8", "surrogatepass").lower(), name)
        if NOT_IN_NAMES.search(name) or name.lower().startswith("sqlite_"):
            why = f"no table of SQLite can have the name {name!r}"
        elif other != name:
            why = f"SQLite takes the names {other!r} and {name!r} for the same"
        else:
            continue
        raise ValueError(
            f"{why}; choose one with table=, as in export_to(db.table({name!r}), path, table='other')"
        )


def _write_file(exports: list[Export], file: str, path: str, overwrite: bool) -> list[int]:
    try:
        with closing(sqlite3.connect(file, isolation_level=None)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            counts = [_write(export, connection, overwrite) for export in exports]
            connection.execute("COMMIT")
            return counts
    except sqlite3.DatabaseError as error:
        raise OSError(f"{path}: {error}") from error


def _write(export: Export, connection: sqlite3.Connection, overwrite: bool) -> int:
    table = quoted(export.table)
    found = "SELECT 1 FROM sqlite_master WHERE name = ? COLLATE NOCASE"
    is_there = connection.execute(found, [export.table]).fetchone()
    if is_there and not overwrite:
        raise FileExistsError(
            17, "it has this table already; pass overwrite=True, or another table=", export.table
        )
    if is_there:
        connection.execute(f"DROP TABLE {table}")
    to_json = encoder()
    columns = _Columns(export, connection)
    count = 0
    for number, row in enumerate(chain.from_iterable(export.values())):
        if not isinstance(row, dict):
            row = {"value": row}
        try:
            cells = {name: _cell(name, value, to_json) for name, value in row.items()}
            columns.add(cells)
            names = ", ".join(map(columns.quoted, cells))
            values = f"({names}) VALUES ({', '.join('?' * len(cells))})" if cells else "DEFAULT VALUES"
            connection.execute(f"INSERT INTO {table} {values}", list(cells.values()))
        except sqlite3.IntegrityError:
            reason = f"its key is the same in SQLite as that of another row: {row[export.key]!r}"
            export.skip(f"row {number}", reason)
        except (TypeError, ValueError, RecursionError, OverflowError, sqlite3.DataError) as error:
            export.skip(f"row {number}", str(error))
        else:
            count += 1
    if not columns.names:
        columns.add({export.key or "value": None})
    return count


class _Columns:
    """The columns of the table, which is made with the first of them. They have no type, so that they change
    no value.
    """

    def __init__(self, export: Export, connection: sqlite3.Connection) -> None:
        self.export = export
        self.connection = connection
        self.names: dict[str, str] = {}
        # SQLite takes the letters of ASCII for the same, whether they are small or not.
        self.taken: set[bytes] = set()
        # How many columns have a name with a number behind it, so that not each of them is tried again.
        self.numbers: dict[bytes, int] = {}

    def quoted(self, name: str) -> str:
        """The column of a field, as SQL takes it."""
        return quoted(self.names[name])

    def add(self, row: dict[str, Any]) -> None:
        """Make the columns that a row needs and that are not there; raise `ValueError` for too many."""
        wanted = list(row) if row or self.names else ["value"]
        new = [name for name in wanted if name not in self.names]
        if len(self.names) + len(new) > COLUMNS_MAX:
            raise ValueError(
                f"with its field {new[COLUMNS_MAX - len(self.names)]!r} the table would have more than the "
                f"{COLUMNS_MAX:,} columns that one of SQLite may have"
            )
        table, is_first = quoted(self.export.table), not self.names
        made = [self.name(name) + " PRIMARY KEY" * (name == self.export.key) for name in new]
        if is_first:
            self.connection.execute(f"CREATE TABLE {table} ({', '.join(made)})")
            return
        for column in made:
            self.connection.execute(f"ALTER TABLE {table} ADD COLUMN {column}")

    def name(self, field: str) -> str:
        """Choose the column of a field: that of its name, unless SQLite cannot have it beside the others."""
        column = plainest = NOT_IN_NAMES.sub("_", field)
        number = self.numbers.get(plainest.encode().lower(), 1)
        while column.encode().lower() in self.taken:
            number += 1
            column = f"{plainest}_{number}"
        self.numbers[plainest.encode().lower()] = number
        self.taken.add(column.encode().lower())
        self.names[field] = column
        if column != field:
            self.export.note(
                f"the field {field!r} is in the column {column!r}: SQLite takes no NUL in a name, and "
                "letters that differ only by case for the same"
            )
        return quoted(column)


def _cell(name: Any, value: Any, to_json: Any) -> Any:
    """What SQLite stores for a value; raises `ValueError` or `TypeError` if it can store nothing like it."""
    if type(name) is not str:
        raise TypeError(f"it has the field {name!r:.40}, and columns have names")
    kind = type(value)
    if kind is bytes or kind is bytearray:
        return value
    if kind is bool:
        return int(value)
    if kind is int and not -(2**63) <= value < 2**63:
        return write_int(value)
    cell = as_text(value, to_json)
    if type(cell) is str and not cell.isascii() and (half := HALF.search(cell)):
        raise ValueError(
            f"its field {name!r} has half of a surrogate pair, {half[0]!r}, which SQLite refuses"
        )
    return cell
