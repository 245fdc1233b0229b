"""This module writes CSV and TSV: a line with the names of all fields, then a row in each line."""

from __future__ import annotations

import csv
import io
import re
from decimal import Decimal
from itertools import chain
from typing import Any, BinaryIO

from pellucid.transfer.outgoing import Export
from pellucid.transfer.sources.csv_types import LOOKS_TYPED
from pellucid.transfer.targets.plain_text import HALF, as_text, encoder

__all__ = ["columns", "write"]

# With what a formula begins, in one spreadsheet or another. A spreadsheet may take away spaces before it.
FORMULA = frozenset("=+-@\t\r\n|%\uff0b\uff0d\uff1d\uff20")
SPACES = " \u00a0\u3000"
# What `csv` puts no quotes around, or not in all versions: what another dialect has between cells or rows, or
# around a cell, an empty text, and one that looks like another value.
HAS_MARK = re.compile(r"'|[^,;\t|\r\n]*[,;\t|\r\n]")
NEEDS_QUOTES = re.compile(rf"\Z|{LOOKS_TYPED.pattern}|{HAS_MARK.pattern}")
# What is not text, though its cell is a `str`.
NO_TEXTS = (bool, int, Decimal)


def columns(export: Export) -> list[str]:
    """The names of all fields, in the order in which they are met; this reads all rows."""
    if export.fields is not None:
        return ([] if export.key is None else [export.key]) + export.fields
    names: dict[Any, None] = {}
    silent = export._replace(skip=lambda _place, _reason: None, step=lambda _done: None)
    for row in chain.from_iterable(silent.values()):
        names.update(dict.fromkeys(row if isinstance(row, dict) else ("value",)))
    return [name for name in names if isinstance(name, str)]


def write(export: Export, target: BinaryIO) -> int:
    """Write the rows, and return their number."""
    to_json = encoder()
    names = columns(export)
    lines = _Lines(target, "\t" if export.format == "tsv" else ",")
    heads = list(map(_no_formula, names)) if export.is_for_spreadsheets else names
    lines.add("the line of names", [_Quoted(name) if HAS_MARK.match(name) else name for name in heads])
    count = number = 0
    for chunk in export.values():
        for row in chunk:
            try:
                cells = _cells(export, row, names, to_json)
                lines.add(f"row {number}", cells)
            except (TypeError, ValueError, RecursionError) as error:
                export.skip(f"row {number}", str(error))
            else:
                count += 1
            number += 1
        lines.write()
    lines.write()
    if lines.broken:
        more = f" and {lines.broken_count - 1:,} more" if lines.broken_count > 1 else ""
        export.note(f"{lines.broken}{more}: half of a surrogate pair is written as U+FFFD")
    return count


class _Quoted(str):
    """A cell that gets quotes, though `csv` would write it without."""

    __slots__ = ()


class _Lines:
    """Writes rows as lines of UTF-8."""

    def __init__(self, target: BinaryIO, delimiter: str) -> None:
        self.target = target
        self.delimiter = delimiter
        self.text = io.StringIO(newline="")
        self.rows = csv.writer(self.text, delimiter=delimiter, lineterminator="\n")
        # Where the line of each row begins.
        self.places: list[tuple[str, int]] = []
        # The first row with characters that UTF-8 does not have, and how many there are.
        self.broken = ""
        self.broken_count = 0

    def add(self, place: str, cells: list[Any]) -> None:
        """Add a row, which `write` writes."""
        begin = self.text.tell()
        if _Quoted in map(type, cells):
            self.text.write(_line_with_quotes(cells, self.delimiter))
        else:
            self.rows.writerow(cells)
        self.places.append((place, begin))

    def write(self) -> None:
        """Write the rows that were added."""
        text = self.text.getvalue()
        try:
            data = text.encode("utf-8")
        except UnicodeEncodeError:
            data = self.replaced(text)
        self.target.write(data)
        self.text.seek(0)
        self.text.truncate()
        self.places.clear()

    def replaced(self, text: str) -> bytes:
        """The bytes of rows of which some have characters that UTF-8 does not have."""
        ends = iter([begin for _, begin in self.places[1:]] + [len(text)])
        for place, begin in self.places:
            end = next(ends)
            if HALF.search(text, begin, end):
                self.broken = self.broken or place
                self.broken_count += 1
        return HALF.sub("\N{REPLACEMENT CHARACTER}", text).encode("utf-8")


def _no_formula(cell: str) -> str:
    """A cell of text that no spreadsheet takes for a formula."""
    # With an apostrophe, it looks like no number any more.
    return _Quoted(f"'{cell}") if cell.lstrip(SPACES)[:1] in FORMULA else cell


def _cells(export: Export, row: Any, names: list[str], to_json: Any) -> list[Any]:
    if not isinstance(row, dict):
        row = {"value": row}
    if export.fields is None and not row.keys() <= set(names):
        if (wrong := next((name for name in row if not isinstance(name, str)), None)) is not None:
            raise TypeError(f"it has the field {wrong!r:.40}, and columns have names")
        raise RuntimeError(
            "rows with other fields were stored while the table was exported; export a snapshot: "
            "export_to(db.snapshot().table(name), ...)"
        )
    # `csv` writes None as an empty cell.
    return [_cell(row.get(name), to_json, export.is_for_spreadsheets) for name in names]


def _cell(value: Any, to_json: Any, is_for_spreadsheets: bool) -> Any:
    """A cell: text that looks like a number gets quotes, so that it is text when it is read again."""
    cell = as_text(value, to_json)
    if type(cell) is not str or type(value) in NO_TEXTS:
        return cell
    if is_for_spreadsheets:
        cell = _no_formula(cell)
    return cell if type(cell) is _Quoted or NEEDS_QUOTES.match(cell) is None else _Quoted(cell)


def _line_with_quotes(cells: list[Any], delimiter: str) -> str:
    line = io.StringIO(newline="")
    rows = csv.writer(line, delimiter=delimiter, lineterminator="")
    for place, cell in enumerate(cells):
        line.write(delimiter if place else "")
        if type(cell) is _Quoted:
            line.write('"' + cell.replace('"', '""') + '"')
        elif cell is not None:
            rows.writerow([cell])
    return line.getvalue() + "\n"
