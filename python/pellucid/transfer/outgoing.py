"""This module exports the rows of a table or a query to a file of another program."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Any, NamedTuple

import pellucid
from pellucid.transfer.progress import Pace
from pellucid.transfer.report import ExportReport

__all__ = ["FORMATS", "Export", "exists_already", "give_name", "own_folder", "plain", "run"]

FORMATS = ("jsonl", "csv", "parquet", "arrow", "sqlite", "shelve")
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".shelf": "shelve",
}
WRITERS = {"parquet": "arrow"}
# Rows are written in chunks that stay in the cache of the processor.
CHUNK_ROWS = 100
# These are folders or files that their own libraries write, so they need a path.
# How much of the target's name its unfinished folder has: the name of a file may have 255 bytes.
NAME_SHOWN = 40
NEED_A_PATH = ("sqlite", "shelve")


class Export(NamedTuple):
    """The rows and options that every target gets."""

    rows: Any
    key: str | None
    fields: list[str] | None
    table: str
    format: str
    is_stream: bool
    is_for_spreadsheets: bool
    skip: Callable[[str, str], None]
    note: Callable[[str], None]
    step: Callable[[int], None]

    def items(self) -> Iterator[tuple[Any, Any]]:
        """Pairs of key and value, as they are stored."""
        pairs = iter(self.rows.items())
        done = 0
        while chunk := list(islice(pairs, CHUNK_ROWS)):
            yield from chunk
            done += len(chunk)
            self.step(done)

    def values(self) -> Iterator[list[Any]]:
        """The values in chunks, as plain dicts, lists and scalars, with the key in its field."""
        if self.key is not None:
            keyed = self._with_keys()
            while chunk := list(islice(keyed, CHUNK_ROWS)):
                yield chunk
            return
        to_dict: Any = pellucid.Record.to_dict
        rows = iter(self.rows) if isinstance(self.rows, pellucid.Query) else iter(self.rows.values())
        done = 0
        while chunk := list(islice(rows, CHUNK_ROWS)):
            try:
                # Most rows are records, and this is a loop without a step of Python.
                chunk = list(map(to_dict, chunk))
            except TypeError:
                chunk = list(map(plain, chunk))
            yield chunk
            done += len(chunk)
            self.step(done)

    def _with_keys(self) -> Iterator[dict[Any, Any]]:
        for key, row in self.items():
            value = plain(row)
            if not isinstance(value, dict):
                value = {"value": value}
            if self.key in value and value[self.key] != key:
                self.skip(f"key {key!r}", f"its field {self.key!r} is {value[self.key]!r:.40} already")
                continue
            yield {self.key: key, **value}


def plain(value: Any) -> Any:
    """A stored value without its handle: a dict of a record, a list of a record list."""
    if isinstance(value, pellucid.Record):
        return value.to_dict()
    return value.to_list() if isinstance(value, pellucid.RecordList) else value


def run(
    rows: Any,
    target: Any,
    format: str | None,  # noqa: A002
    table: str | None,
    key: str | None,
    fields: Iterable[str] | None,
    overwrite: bool,
    spreadsheet: bool,
    progress: Any,
) -> ExportReport:
    """Export rows, as `export_to` says."""
    if isinstance(rows, pellucid.Groups) or not hasattr(rows, "items"):
        raise TypeError(f"export_to() writes a table, a query or a database, not a {type(rows).__name__}")
    is_stream = hasattr(target, "write")
    name = getattr(target, "name", "the stream") if is_stream else os.path.basename(os.fsdecode(target))
    format = _format(str(name), format)  # noqa: A001
    if is_stream and format in NEED_A_PATH:
        raise ValueError(f"{format} needs a path, and cannot be written to a stream")
    if fields is not None and format != "csv":
        raise ValueError("fields= is for CSV; choose the fields with query.select() for other formats")
    if spreadsheet and format != "csv":
        raise ValueError("spreadsheet=True is for CSV: no other format is read as formulas")
    if format == "shelve" and key is not None:
        raise ValueError("a shelf has the keys of the rows; leave out key=")
    path = "" if is_stream else os.fsdecode(target)
    try:
        os.stat(os.path.dirname(path) or ".")
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(2, "no such folder; create it first", path) from None
    report = ExportReport(str(name))
    report.format = format
    begun = time.monotonic()
    pace = Pace(progress)
    total = _total(rows) if pace.report is not None else 0
    export = Export(
        rows,
        key,
        None if fields is None else list(fields),
        table or getattr(rows, "name", None) or "rows",
        format,
        is_stream,
        spreadsheet,
        report.skip,
        report.note,
        lambda done: pace.step(done, min(1.0, done / total) if total else None),
    )
    writer: Any = importlib.import_module(f"pellucid.transfer.targets.{WRITERS.get(format, format)}_file")
    try:
        if is_stream:
            report.rows = writer.write(export, target)
        elif format == "sqlite":
            report.rows = writer.write(export, path, overwrite)
        else:
            with _part(path, overwrite, format == "shelve") as part:
                report.rows = writer.write(export, part)
        pace.end(report.rows)
    finally:
        pace.clear()
    report.seconds = time.monotonic() - begun
    return report


def _format(name: str, format: str | None) -> str:  # noqa: A002
    if format is None:
        format = SUFFIXES.get(os.path.splitext(name)[1].lower())  # noqa: A001
        if format is None:
            raise ValueError(f"the suffix of {name!r} names no format; pass format=: {', '.join(FORMATS)}")
    if format not in FORMATS:
        raise ValueError(f"format= has no {format!r}; those are {', '.join(FORMATS)}")
    return format


def _total(rows: Any) -> int:
    return rows.count() if isinstance(rows, pellucid.Query) else len(rows)


def exists_already(path: str) -> FileExistsError:
    """The error for a target that is there."""
    return FileExistsError(17, "it exists already; pass overwrite=True, or choose another name", path)


def give_name(part: str, path: str, overwrite: bool) -> None:
    """Give a complete file its name; raise `FileExistsError` if another one has it."""
    if overwrite:
        os.replace(part, path)
        return
    try:
        # A link fails if a file came into being meanwhile.
        os.link(part, path)
    except FileExistsError:
        raise exists_already(path) from None
    except OSError:
        # This file system has no links.
        if os.path.lexists(path):
            raise exists_already(path) from None
        os.rename(part, path)
        return
    os.remove(part)


@contextmanager
def _part(path: str, overwrite: bool, is_shelf: bool) -> Iterator[Any]:
    """A file, or for a shelf a path, that gets its name when it is complete."""
    if not overwrite and os.path.lexists(path):
        raise exists_already(path)
    with own_folder(path) as part:
        if is_shelf:
            yield part
            _move_all(os.path.dirname(part), path, overwrite)
            return
        try:
            with open(part, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            give_name(part, path, overwrite)
        except OSError as error:
            if error.filename is None and error.strerror is not None:
                # A write does not say where: the message of a full disk does. Exceptions of pellucid say
                # where in their text.
                error.filename = path
            raise


def _move_all(part: str, path: str, overwrite: bool) -> None:
    """Move the files of a shelf out of the folder in which they were made."""
    folder = os.path.dirname(path)
    made = sorted(os.listdir(part))
    there = [file for file in made if os.path.lexists(os.path.join(folder, file))]
    if there and not overwrite:
        raise exists_already(os.path.join(folder, there[0]))
    for file in made:
        give_name(os.path.join(part, file), os.path.join(folder, file), overwrite)


@contextmanager
def own_folder(path: str) -> Iterator[str]:
    """A path for the unfinished file, in a new folder beside the target that is removed at the end.

    No other program knows the name of the folder or may write in it, so that a link or the file of another
    export cannot be there, also not under a name that a library chooses by itself.
    """
    import shutil
    import tempfile

    folder, name = os.path.split(path)
    try:
        part = tempfile.mkdtemp(prefix=f"{name[:NAME_SHOWN]}.part-", dir=folder or ".")
    except OSError as error:
        # The caller does not know the part.
        error.filename = path
        raise
    try:
        yield os.path.join(part, name)
    finally:
        shutil.rmtree(part, ignore_errors=True)
