"""This module exports the rows of a table or a query to a file of another program."""

from __future__ import annotations

import importlib
import io
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from itertools import islice
from typing import Any, NamedTuple

import pellucid
from pellucid.transfer.arguments import check, check_once
from pellucid.transfer.compressed import WRITTEN, packed, split_suffix
from pellucid.transfer.copying import a_kind, shown
from pellucid.transfer.detect import is_database
from pellucid.transfer.progress import Pace
from pellucid.transfer.report import ExportReport, listed

__all__ = ["FORMATS", "Export", "exists_already", "give_name", "own_folder", "plain", "run"]

FORMATS = ("jsonl", "json", "csv", "tsv", "parquet", "arrow", "sqlite", "shelve")
SUFFIXES = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "json",
    ".csv": "csv",
    ".tsv": "tsv",
    ".parquet": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    ".sqlite": "sqlite",
    ".sqlite3": "sqlite",
    ".db": "sqlite",
    ".shelf": "shelve",
}
WRITERS = {"json": "jsonl", "tsv": "csv", "parquet": "arrow"}
OF_JSON = ("jsonl", "json")
OF_CSV = ("csv", "tsv")
OF_TEXT = (*OF_JSON, *OF_CSV)
# Rows are written in chunks that stay in the cache of the processor.
CHUNK_ROWS = 100
# How much of the target's name its unfinished folder has: the name of a file may have 255 bytes.
NAME_SHOWN = 40
# These are folders or files that their own libraries write, so they need a path.
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
    is_flat: bool
    nan_as_null: bool
    # Whether the rows have the key in its field already, because they were selected with it.
    has_keys: bool
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
        chunks = self._values()
        return map(self._flat, chunks) if self.is_flat else chunks

    def _values(self) -> Iterator[list[Any]]:
        if self.key is not None and not self.has_keys:
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

    def _flat(self, rows: list[Any]) -> list[Any]:
        """The rows with the fields of dicts in place of the dicts, under names with dots."""
        return [self._flat_row(row) if type(row) is dict else row for row in rows]

    def _flat_row(self, row: dict[Any, Any]) -> dict[Any, Any]:
        flat: dict[Any, Any] = {}

        def add(path: str, fields: dict[Any, Any]) -> None:
            for name, value in fields.items():
                there = f"{path}.{name}" if path else name
                if type(value) is dict and value and all(type(inner) is str for inner in (name, *value)):
                    add(there, value)
                elif there in flat:
                    raise KeyError(there)
                else:
                    flat[there] = value

        try:
            add("", row)
        except KeyError as twice:
            self.note(f"rows that would have {twice} twice when they are flat are as they were stored")
            return row
        return flat

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
    if type(value) is tuple:
        return tuple(map(plain, value))
    return value.to_list() if isinstance(value, pellucid.RecordList) else value


class Choices(NamedTuple):
    """What the caller of an export asked for; `export_to` explains each."""

    format: str | None
    table: str | None
    key: str | None
    where: Any
    select: Any
    flatten: bool
    fields: Iterable[str] | None
    overwrite: bool
    spreadsheet: bool
    nan_as_null: bool
    progress: Any


def run(rows: Any, target: Any, choices: Choices) -> ExportReport:
    """Export rows, as `export_to` says."""
    if isinstance(rows, pellucid.Groups) or not hasattr(rows, "items"):
        raise TypeError(f"export_to() writes a table, a query or a database, not {a_kind(rows)}")
    check(choices._asdict())
    is_stream = hasattr(target, "write")
    if isinstance(target, io.TextIOBase):
        raise TypeError(
            "export_to() writes bytes; open the file in binary mode, with open(path, 'wb'), or pass "
            "sys.stdout.buffer"
        )
    if not is_stream and not isinstance(target, (str, bytes, os.PathLike)):
        raise TypeError(f"export_to() writes to a path or a binary file, not to {a_kind(target)}")
    name = str(getattr(target, "name", "the stream") if is_stream else os.path.basename(os.fsdecode(target)))
    plain_name, packing = split_suffix(name)
    format = _format(plain_name, choices.format)  # noqa: A001
    _check(choices, format, is_stream, packing)
    path = "" if is_stream else os.fsdecode(target)
    try:
        os.stat(os.path.dirname(path) or ".")
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(2, "no such folder; create it first", path) from None
    if path and choices.overwrite:
        _refuse_database(path)
    report = ExportReport(name)
    report.format = format
    begun = time.monotonic()
    pace = Pace(choices.progress)
    with ExitStack() as stack:
        tables = stack.enter_context(_tables(rows, choices, format))
        stack.callback(pace.clear)
        exports = _exports(tables, choices, is_stream, report, pace)
        writer: Any = importlib.import_module(f"pellucid.transfer.targets.{WRITERS.get(format, format)}_file")
        if format == "sqlite":
            counts = writer.write(exports, path, choices.overwrite)
        else:
            if not is_stream:
                target = stack.enter_context(_part(path, choices.overwrite, format == "shelve"))
                target = target if format == "shelve" else stack.enter_context(packed(target, packing))
            counts = [writer.write(exports[0], target)]
        report.tables = {each.table: count for each, count in zip(exports, counts, strict=True)}
        report.rows = sum(counts)
        pace.end(report.rows)
    report.seconds = time.monotonic() - begun
    return report


@contextmanager
def _tables(rows: Any, choices: Choices, format: str) -> Iterator[dict[str, Any]]:  # noqa: A002
    """The rows to write, under the names of their tables."""
    if not hasattr(rows, "tables"):
        yield {choices.table or getattr(rows, "name", None) or "rows": rows}
        return
    names = rows.tables()
    if choices.table is not None:
        if choices.table not in names:
            raise ValueError(
                f"{shown(rows)} has no table {choices.table!r}; it has {listed(names) or 'none'}"
            )
        names = [choices.table]
    elif format != "sqlite" or choices.where is not None or choices.select is not None:
        # A table without rows is no reason to refuse the only one that has some.
        names = [name for name in names if rows.table(name)] or ["default"]
        if len(names) > 1:
            what = f"{format} holds one" if format != "sqlite" else "where= and select= are for one"
            raise ValueError(
                f"several tables have rows, and {what}; choose with table= among {listed(names)}"
            )
    if len(names) < 2:
        yield {name: rows.table(name) for name in names or ["default"]}
        return
    # All tables are written as they were at one time.
    with rows.snapshot() if hasattr(rows, "snapshot") else nullcontext(rows) as state:
        yield {name: state.table(name) for name in names}


def _exports(
    tables: dict[str, Any], choices: Choices, is_stream: bool, report: ExportReport, pace: Pace
) -> list[Export]:
    """What is to be written of each table."""
    chosen = {name: _chosen(rows, choices, report) for name, rows in tables.items()}
    total = sum(map(_total, chosen.values())) if pace.report is not None else 0
    fields = None if choices.fields is None else list(choices.fields)
    if fields is not None:
        check_once("fields", fields)
        if choices.key in fields:
            raise ValueError(f"key={choices.key!r} is one of fields=; leave it out there")
    # The rows of the tables that are written already, and of the one that is being written.
    done: dict[str, int] = {}

    def export(name: str, rows: Any) -> Export:
        def step(count: int) -> None:
            done[name] = count
            pace.step(sum(done.values()), min(1.0, sum(done.values()) / total) if total else None)

        def skip(place: str, reason: str) -> None:
            report.skip(f"{name} {place}" if len(tables) > 1 else place, reason)

        def note(what: str) -> None:
            report.note(f"table {name!r}: {what}" if len(tables) > 1 else what)

        return Export(
            rows,
            choices.key,
            fields,
            name,
            report.format,
            is_stream,
            choices.spreadsheet,
            choices.flatten,
            choices.nan_as_null,
            choices.select is not None,
            skip,
            note,
            step,
        )

    return [export(name, rows) for name, rows in chosen.items()]


def _refuse_database(path: str) -> None:
    """Raise `ValueError` if an export would replace a database, perhaps the one that it reads."""
    for end in ("", "-log", "-lock"):
        base = path.removesuffix(end)
        if path.endswith(end) and is_database(base):
            what = "a database" if base == path else f"part of the database {base}"
            raise ValueError(f"{path} is {what}, which the export would destroy; choose another name")


def _check(choices: Choices, format: str, is_stream: bool, packing: str) -> None:  # noqa: A002
    """Raise `ValueError` for a choice that the format does not have."""
    if is_stream and format in NEED_A_PATH:
        raise ValueError(f"{format} needs a path, and cannot be written to a stream")
    if packing and not is_stream and (format not in OF_TEXT or packing not in WRITTEN):
        raise ValueError(
            f"no export writes {format} as {packing}; {', '.join(WRITTEN)} are for {', '.join(OF_TEXT)}"
        )
    if choices.fields is not None and format not in OF_CSV:
        raise ValueError("fields= is for CSV; choose the fields with select= for other formats")
    if choices.spreadsheet and format not in OF_CSV:
        raise ValueError("spreadsheet=True is for CSV: no other format is read as formulas")
    if choices.nan_as_null and format not in OF_JSON:
        raise ValueError("nan_as_null=True is for JSON; CSV has nan, and the other formats have NaN or NULL")
    if format == "shelve" and choices.key is not None:
        raise ValueError("a shelf has the keys of the rows; leave out key=")
    if format == "shelve" and (choices.select is not None or choices.flatten):
        raise ValueError("a shelf has the rows as they are; leave out select= and flatten=")


def _chosen(rows: Any, choices: Choices, report: ExportReport) -> Any:
    """The rows and fields that `where` and `select` choose; the report notes names that no row has."""
    key, select = choices.key, choices.select
    if key is not None and isinstance(rows, pellucid.Query) and _is_selected(rows):
        raise ValueError("key= is for whole rows, and these are selected; select KEY, as in select(id=KEY)")
    if choices.where is not None:
        where = choices.where
        rows = rows.where(pellucid.parse(where) if isinstance(where, str) else where)
    if select is not None:
        names = {} if key is None else {key: pellucid.KEY}
        chosen = dict(select) if isinstance(select, Mapping) else _named(select)
        if key in chosen:
            raise ValueError(f"key={key!r} is one of the fields that select= chooses; choose another name")
        rows = rows.select(**names, **chosen)
    if choices.where is not None or select is not None:
        for line in rows.explain().splitlines():
            # What else it notes is about speed.
            if line.startswith("note: no record in "):
                report.note(line.removeprefix("note: "))
    return rows


def _named(paths: Any) -> dict[str, Any]:
    paths = [paths] if isinstance(paths, str) else list(paths)
    check_once("select", paths)
    return {path: path for path in paths}


def _is_selected(query: Any) -> bool:
    return any(line.startswith("select ") for line in query.explain().splitlines())


def _format(name: str, format: str | None) -> str:  # noqa: A002
    if format is None:
        suffix = os.path.splitext(name)[1].lower()
        if suffix == ".pel":
            raise ValueError(
                f"{name!r} is the name of a database; pellucid.copy() copies tables into one, as does the "
                "command pellucid copy"
            )
        format = SUFFIXES.get(suffix)  # noqa: A001
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
    except OSError as error:
        if part in (str(error.filename), os.path.dirname(str(error.filename))):
            error.filename, error.filename2 = path, None
        raise
    finally:
        shutil.rmtree(part, ignore_errors=True)
