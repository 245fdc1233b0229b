"""This module reads sqlitedict and dbm.sqlite3: a key and a value in each row of SQLite."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pellucid.transfer.job import Job, Part, in_chunks
from pellucid.transfer.sources.sqlite import Reader, check_read, check_table, opened, quoted, tables

__all__ = ["parts", "parts_of_dbm", "parts_of_shelf"]

# The table of a sqlitedict for which the program chose no name.
UNNAMED = "unnamed"


def parts(job: Job) -> Iterator[Part]:
    """The tables of a sqlitedict. Values that are not pickles are imported unchanged."""

    def read(key: Any, value: Any) -> Any:
        return key, job.unpickle(value) if isinstance(value, bytes) and value[:1] == b"\x80" else value

    with opened(job.input.name, job.input.path, job.encoding) as reader:
        for name in tables(reader):
            yield _part(job, reader, name, "default" if name == UNNAMED else name, read)


def parts_of_dbm(job: Job) -> Iterator[Part]:
    """The one table of a dbm.sqlite3."""
    with opened(job.input.name, job.input.path) as reader:
        check_table(reader, "Dict")
        yield _part(job, reader, "Dict", None, lambda key, value: (_blob(key), _blob(value)))


def parts_of_shelf(job: Job) -> Iterator[Part]:
    """The one table of a shelf in a dbm.sqlite3."""
    with opened(job.input.name, job.input.path) as reader:
        check_table(reader, "Dict")
        yield _part(
            job,
            reader,
            "Dict",
            None,
            lambda key, value: (_blob(key).decode("utf-8"), job.unpickle(_blob(value))),
        )


def _blob(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError(f"it has a {type(value).__name__} in place of bytes")
    return value


def _part(job: Job, reader: Reader, table: str, name: str | None, read: Any) -> Part:
    return Part(name, "pairs", in_chunks(_pairs(job, reader, table, read), "key", reader.count(table)))


def _pairs(job: Job, reader: Reader, table: str, read: Any) -> Iterator[tuple[object, Any]]:
    for key, value in reader.rows(f"SELECT key, value FROM {quoted(table)} ORDER BY rowid"):
        try:
            check_read({"key": key, "value": value})
            pair = read(key, value)
        except (ValueError, ImportError, AttributeError) as error:
            job.skip(f"key {key!r}", str(error))
            continue
        yield pair[0], pair
