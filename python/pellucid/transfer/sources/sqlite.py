"""This module reads the tables of SQLite, and recognises what other libraries keep in SQLite files."""

from __future__ import annotations

import os
import pathlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

from pellucid.errors import SourceError
from pellucid.transfer.job import Allowance, Input, Job, Part, in_chunks
from pellucid.transfer.safe_pickles import is_pickle
from pellucid.transfer.sources.json_values import loads

__all__ = ["Reader", "check_read", "check_table", "kind_of", "opened", "parts", "quoted", "tables"]

# How many steps SQLite does before it looks whether Ctrl-C was pressed: some milliseconds.
STEPS = 100_000
# No cell may be longer than the file; this is for small files.
CELL_MIN = 1 << 20
# LIKE and GLOB with long patterns take very long, and computed columns may have them.
PATTERN_MAX = 100
# What SQLite's header calls SQLITE_LIMIT_LENGTH and SQLITE_LIMIT_LIKE_PATTERN_LENGTH.
LIMIT_LENGTH, LIMIT_PATTERN = 0, 8


class Unread:
    """What stands for a text that is in no encoding that we know."""

    def __init__(self, data: bytes, reason: str) -> None:
        self.data = data
        self.reason = reason

    def __repr__(self) -> str:
        return f"{self.data!r:.40}"


def check_read(row: dict[str, Any]) -> None:
    """Raise `ValueError` if there is an `Unread` in a row."""
    for name, cell in row.items():
        if type(cell) is Unread:
            raise ValueError(f"its text {cell!r} in column {name!r} is {cell.reason}")


class Reader:
    """A SQLite file, as far as an import reads it: what it does ends, is bounded, and hears Ctrl-C."""

    def __init__(self, name: str, path: str, connection: sqlite3.Connection, encoding: str | None) -> None:
        self.name = name
        self.connection = connection
        self.encoding = encoding
        # Whether there may be an `Unread` in a row.
        self.has_unread = False
        size = sum(os.path.getsize(file) for file in (path, f"{path}-wal") if os.path.exists(file))
        self.allowance = Allowance(name, size)
        self.caught: list[BaseException] = []
        # A function would notice a signal before its first line, and SQLite would drop the exception.
        watch = self._watch()
        next(watch)
        connection.set_progress_handler(watch.__next__, STEPS)
        if hasattr(connection, "setlimit"):  # from Python 3.11 on
            connection.setlimit(LIMIT_LENGTH, max(size, CELL_MIN))
            connection.setlimit(LIMIT_PATTERN, PATTERN_MAX)
        # Functions with effects do not run for computed columns.
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("BEGIN")

    def _watch(self) -> Iterator[int]:
        while True:
            try:
                while True:
                    yield 0
            except GeneratorExit:
                raise
            except BaseException as error:
                self.caught.append(error)
                yield 1

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Make what SQLite raises a `SourceError`."""
        try:
            yield
        except sqlite3.Error as error:
            if self.caught:
                raise self.caught.pop() from None
            raise SourceError(f"{self.name} cannot be read: {error}") from error

    def rows(self, statement: str) -> Iterator[Any]:
        """The rows of a statement. A text that is not UTF-8 is decoded as `encoding` says, or is `Unread`."""
        done = 0
        with self.errors():
            try:
                for row in self.connection.execute(statement):
                    self.allowance.take(row)
                    done += 1
                    yield row
                return
            except sqlite3.OperationalError as error:
                if "decode to UTF-8" not in str(error):
                    raise
            # Nothing reads on after such a text. From here on, each text costs a call.
            self.connection.text_factory = self._text
            self.has_unread = True
            for row in islice(self.connection.execute(statement), done, None):
                self.allowance.take(row)
                yield row

    def _text(self, data: bytes) -> str | Unread:
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            if self.encoding is None:
                return Unread(data, f"not utf-8, byte 0x{data[error.start]:02x}; encoding= is for such texts")
        try:
            return data.decode(self.encoding)
        except UnicodeDecodeError:
            return Unread(data, f"neither utf-8 nor {self.encoding}")

    def names(self, statement: str) -> list[str]:
        """The names of the columns of a statement."""
        with self.errors():
            return [column[0] for column in self.connection.execute(statement).description]

    def count(self, table: str) -> int | None:
        """About how many rows a table has, at most: a count would read all of it."""
        name = quoted(table)
        ends = f"(SELECT max(rowid) FROM {name}) - (SELECT min(rowid) FROM {name})"
        try:
            ((found,),) = self.connection.execute(f"SELECT {ends} + 1")
        except sqlite3.Error:
            # A table without such numbers.
            return None
        return found if isinstance(found, int) else None


@contextmanager
def opened(name: str, path: str, encoding: str | None = None) -> Iterator[Reader]:
    """A reader, in one transaction: it sees one state, whatever others write."""
    uri = pathlib.Path(path).absolute().as_uri() + "?mode=ro"
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None)
    except sqlite3.Error as error:
        raise SourceError(f"{name} cannot be read: {error}") from error
    with closing(connection):
        try:
            reader = Reader(name, path, connection, encoding)
        except sqlite3.Error as error:
            raise SourceError(f"{name} cannot be read: {error}") from error
        with reader.errors():
            yield reader


def kind_of(source: Input) -> str:
    """The format of a SQLite file: "sqlite", or that of the library that keeps its own tables in it."""
    if not source.is_plain_file:
        raise SourceError("SQLite cannot be read from a pipe, or compressed; store it in a file first")
    with opened(source.name, source.path) as reader:
        names = tables(reader)
        if {"Cache", "Settings"} <= set(names):
            return "diskcache"
        columns = {name: _columns(reader, name) for name in names}
        if names == ["Dict"] and list(columns["Dict"]) == ["key", "value"]:
            return "shelve" if _has_pickles(reader, "Dict") else "dbm"
        if names and all(
            list(columns[name]) == ["key", "value"]
            and columns[name]["key"] == "TEXT"
            and columns[name]["value"] == "BLOB"
            for name in names
        ):
            return "sqlitedict"
    return "sqlite"


def _has_pickles(reader: Reader, table: str) -> bool:
    values = [value for (value,) in reader.rows(f"SELECT value FROM {quoted(table)} LIMIT 8")]
    return bool(values) and all(isinstance(value, bytes) and is_pickle(value) for value in values)


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def tables(reader: Reader) -> list[str]:
    """The names of the ordinary tables, without those that SQLite and its extensions keep for themselves.

    A view is no table: it may have rows without end.
    """
    kinds = list(reader.rows("PRAGMA table_list"))
    if kinds:
        names = [row[1] for row in kinds if row[0] == "main" and row[2] == "table"]
    else:
        # SQLite before 3.37 has no list with the kinds of tables.
        names = [
            name
            for name, statement in reader.rows("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
            if not str(statement).upper().startswith("CREATE VIRTUAL")
        ]
    return sorted(name for name in names if not name.startswith("sqlite_"))


def check_table(reader: Reader, table: str) -> None:
    """Raise `SourceError` if a file has no such table."""
    if table not in tables(reader):
        raise SourceError(f"{reader.name} cannot be read: it has no table {table!r}")


def _columns(reader: Reader, table: str) -> dict[str, str]:
    return {row[1]: str(row[2]).upper() for row in reader.rows(f"PRAGMA table_info({quoted(table)})")}


def parts(job: Job) -> Iterator[Part]:
    """The tables of the file; a primary key becomes the key of the rows."""
    with opened(job.input.name, job.input.path, job.encoding) as reader:
        for table in tables(reader):
            found = list(reader.rows(f"PRAGMA table_info({quoted(table)})"))
            key = tuple(row[1] for row in sorted(found, key=lambda row: row[5]) if row[5])
            chunks = in_chunks(_rows(job, reader, table), f"{table} row", reader.count(table))
            yield Part(table, "rows", chunks, key)


def _rows(job: Job, reader: Reader, table: str) -> Iterator[tuple[int, dict[str, Any]]]:
    statement = f"SELECT * FROM {quoted(table)}"
    names = reader.names(statement)
    declared = _columns(reader, table)
    with_json = [name for name in names if declared.get(name) in ("JSON", "JSONB")]
    for number, cells in enumerate(reader.rows(statement)):
        row = dict(zip(names, cells, strict=False))
        if reader.has_unread:
            try:
                check_read(row)
            except ValueError as error:
                job.skip(f"{table} row {number}", str(error))
                continue
        for name in with_json:
            row[name] = _from_json(row[name])
        yield number, row


def _from_json(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return loads(value)
        except (ValueError, RecursionError):
            return value
    return value
