"""This module reads CSV: a line of names, then a row in each line."""

from __future__ import annotations

import csv
import io
import re
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
# A cell as it is in the file, with its quotes. It ends at the delimiter, or at the end of the row.
CELL = r"""("[^"]*(?:""[^"]*)*"|[^{0}\r\n]*)(?:{0}|\r?\n|\r|\Z)"""


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
    delimiter = max(DELIMITERS, key=first.count)
    taken: list[str] = []
    cells = csv.reader(_noted(chain([first], text), taken), delimiter=delimiter, strict=True)
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
    texts = {name for name in names if _may_be_text(job.types, name)}
    quoted = re.compile(CELL.format(re.escape(delimiter)))
    place = cells.line_num + 1
    taken.clear()
    while (row := _next(job, cells)) is not None:
        if len(row) == len(names):
            # An empty cell is a field that the row does not have, and a pair of quotes is an empty text.
            filled = (
                (name, read(cell)) for name, read, cell in zip(names, readers, row, strict=True) if cell
            )
            fields = dict(filled)
            if len(fields) < len(row) and any('""' in line for line in taken):
                empty = quoted.findall("".join(taken))
                # At the end of the row the pattern finds one more cell, which is empty.
                fields = {
                    name: fields.get(name, "")
                    for name, cell in zip(names, empty, strict=False)
                    if name in fields or (cell == '""' and name in texts)
                }
            yield place, fields
        elif row:
            job.skip(f"line {place}", f"it has {len(row)} cells, and the first line has {len(names)}")
        place = cells.line_num + 1
        taken.clear()


def _noted(lines: Iterator[str], taken: list[str]) -> Iterator[str]:
    """The same lines; `taken` gets them. `csv` does not say which cells of a row had quotes."""
    for line in lines:
        taken.append(line)
        yield line


def _next(job: Job, cells: Any) -> list[str] | None:
    try:
        row: list[str] | None = next(cells, None)
    except csv.Error as error:
        raise job.damaged(f"line {cells.line_num}: {error}") from error
    return row


def _may_be_text(types: Any, name: str) -> bool:
    """Whether an empty text may be a value of the field: no date or number of `types` is empty."""
    return not isinstance(types, dict) or types.get(name, "text") in ("text", "bytes")


def _reader(types: Any, name: str) -> Any:
    if isinstance(types, dict) and name in types:
        return str
    return from_cell
