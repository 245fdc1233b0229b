"""This module reads the tables of SQLite, and recognises what other libraries keep in SQLite files."""

from __future__ import annotations

import json
import pathlib
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

from pellucid.errors import SourceError
from pellucid.transfer.job import CHUNK_ROWS, Chunk, Input, Job, Part

__all__ = ["errors_of", "kind_of", "opened", "parts", "quoted"]


@contextmanager
def opened(name: str, path: str, encoding: str | None = None) -> Iterator[sqlite3.Connection]:
    """A connection that only reads, in one transaction: it sees one state, whatever others write."""
    uri = pathlib.Path(path).absolute().as_uri() + "?mode=ro"
    with errors_of(name), closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
        if encoding is not None:
            connection.text_factory = lambda data: data.decode(encoding)
        connection.execute("BEGIN")
        yield connection


@contextmanager
def errors_of(name: str) -> Iterator[None]:
    """Make what SQLite raises a `SourceError`. A generator of rows needs this too: it runs elsewhere."""
    try:
        yield
    except UnicodeDecodeError as error:
        raise SourceError(f"{name} cannot be read: a text is not {error.encoding}") from error
    except sqlite3.Error as error:
        advice = "; pass encoding= of its texts" if "decode to UTF-8" in str(error) else ""
        raise SourceError(f"{name} cannot be read: {error}{advice}") from error


def kind_of(source: Input) -> str:
    """The format of a SQLite file: "sqlite", or that of the library that keeps its own tables in it."""
    if source.stream is not None:
        raise SourceError("SQLite cannot be read from a pipe; store it in a file first")
    with opened(source.name, source.path) as connection:
        names = tables(connection)
        if {"Cache", "Settings"} <= set(names):
            return "diskcache"
        columns = {name: _columns(connection, name) for name in names}
        if names == ["Dict"] and list(columns["Dict"]) == ["key", "value"]:
            return "shelve" if _has_pickles(connection, "Dict") else "dbm"
        if names and all(
            list(columns[name]) == ["key", "value"]
            and columns[name]["key"] == "TEXT"
            and columns[name]["value"] == "BLOB"
            for name in names
        ):
            return "sqlitedict"
    return "sqlite"


def _has_pickles(connection: sqlite3.Connection, table: str) -> bool:
    values = [value for (value,) in connection.execute(f"SELECT value FROM {quoted(table)} LIMIT 8")]
    return bool(values) and all(
        isinstance(value, bytes) and value[:1] == b"\x80" and value[-1:] == b"." for value in values
    )


def quoted(name: str) -> str:
    """A name as SQL takes it."""
    return '"' + name.replace('"', '""') + '"'


def tables(connection: sqlite3.Connection) -> list[str]:
    """The names of the ordinary tables, without those that SQLite and its extensions keep for themselves."""
    try:
        kinds = connection.execute("PRAGMA table_list").fetchall()
    except sqlite3.Error:
        kinds = []
    if kinds:
        names = [row[1] for row in kinds if row[0] == "main" and row[2] == "table"]
    else:
        # SQLite before 3.37 has no list with the kinds of tables.
        names = [row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return sorted(name for name in names if not name.startswith("sqlite_"))


def _columns(connection: sqlite3.Connection, table: str) -> dict[str, str]:
    return {row[1]: str(row[2]).upper() for row in connection.execute(f"PRAGMA table_info({quoted(table)})")}


def parts(job: Job) -> Iterator[Part]:
    """The tables of the file; a primary key becomes the key of the rows."""
    with opened(job.input.name, job.input.path, job.encoding) as connection:
        for table in tables(connection):
            found = connection.execute(f"PRAGMA table_info({quoted(table)})").fetchall()
            key = tuple(row[1] for row in sorted(found, key=lambda row: row[5]) if row[5])
            yield Part(table, "rows", _chunks(job.input.name, connection, table), key)


def _chunks(name: str, connection: sqlite3.Connection, table: str) -> Iterator[Chunk]:
    with errors_of(name):
        yield from _chunks_of(connection, table)


def _chunks_of(connection: sqlite3.Connection, table: str) -> Iterator[Chunk]:
    count = connection.execute(f"SELECT count(*) FROM {quoted(table)}").fetchone()[0]
    cursor = connection.execute(f"SELECT * FROM {quoted(table)}")
    names = [column[0] for column in cursor.description]
    declared = _columns(connection, table)
    with_json = [name for name in names if declared.get(name) in ("JSON", "JSONB")]
    done = 0
    while rows := cursor.fetchmany(CHUNK_ROWS):
        values = [dict(zip(names, row, strict=False)) for row in rows]
        for name in with_json:
            for value in values:
                value[name] = _from_json(value[name])
        places = range(done, done + len(rows))
        done += len(rows)
        yield Chunk(values, places, f"{table} row", done / count if count else None)


def _from_json(value: Any) -> Any:
    if isinstance(value, str):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value
