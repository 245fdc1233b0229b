"""This module reads CSV: a line of names, then a row in each line."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from itertools import chain
from typing import Any

from pellucid.transfer.convert import from_cell
from pellucid.transfer.job import Job, Part, in_chunks
from pellucid.transfer.sources.jsonl import BOMS_UTF16, reason_of

__all__ = ["parts"]

DELIMITERS = ",;\t|"
# Large texts are values like others. A quote that is never closed makes the rest of the file one cell.
CELL_SIZE_MAX = 1 << 28


def parts(job: Job) -> Iterator[Part]:
    """The one table of the file."""
    yield Part(None, "rows", in_chunks(_rows(job), "line"))


def _rows(job: Job) -> Iterator[tuple[int, dict[str, Any]]]:
    # The limit belongs to the process, so it is only raised.
    csv.field_size_limit(max(csv.field_size_limit(), CELL_SIZE_MAX))
    encoding = job.encoding or ("utf-16" if job.input.head[:2] in BOMS_UTF16 else "utf-8-sig")
    with job.input.text(encoding) as text:
        try:
            yield from _rows_of(job, text)
        except UnicodeDecodeError as error:
            raise job.damaged(_line_of(job, encoding) + reason_of(error)) from error


def _line_of(job: Job, encoding: str) -> str:
    """Which line has bytes that the encoding does not have; nothing if the source can be read only once."""
    if job.input.stream is not None or encoding == "utf-16":
        return ""
    with job.input.open() as file:
        for number, line in enumerate(file, 1):
            try:
                line.decode(encoding)
            except UnicodeDecodeError:
                return f"line {number}: "
    return ""


def _rows_of(job: Job, text: io.TextIOWrapper) -> Iterator[tuple[int, dict[str, Any]]]:
    first = text.readline()
    cells = csv.reader(chain([first], text), delimiter=max(DELIMITERS, key=first.count), strict=True)
    names = _next(job, cells) or []
    seen: set[str] = set()
    for column, name in enumerate(names, 1):
        if not name.strip():
            raise job.damaged(
                f"column {column} has no name; the first line must have the names of the columns"
            )
        if name in seen:
            raise job.damaged(f"two columns have the name {name!r}")
        seen.add(name)
    readers = [_reader(job.types, name) for name in names]
    place = cells.line_num + 1
    while (row := _next(job, cells)) is not None:
        if len(row) == len(names):
            # An empty cell is a field that the row does not have.
            filled = (
                (name, read(cell)) for name, read, cell in zip(names, readers, row, strict=True) if cell
            )
            yield place, dict(filled)
        elif row:
            job.skip(f"line {place}", f"it has {len(row)} cells, and the first line has {len(names)}")
        place = cells.line_num + 1


def _next(job: Job, cells: Any) -> list[str] | None:
    try:
        row: list[str] | None = next(cells, None)
    except csv.Error as error:
        raise job.damaged(f"line {cells.line_num}: {error}") from error
    return row


def _reader(types: Any, name: str) -> Any:
    if types == "text" or (isinstance(types, dict) and name in types):
        return str
    return from_cell
