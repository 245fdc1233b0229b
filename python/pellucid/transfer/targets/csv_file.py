"""This module writes CSV: a line with the names of all fields, then a row in each line."""

from __future__ import annotations

import csv
import io
from itertools import chain
from typing import Any, BinaryIO

from pellucid.transfer.outgoing import Export
from pellucid.transfer.targets.plain_text import as_text, encoder

__all__ = ["columns", "write"]

# With what a formula begins, in one spreadsheet or another. A spreadsheet may take away spaces before it.
FORMULA = frozenset("=+-@\t\r\n|%\uff0b\uff0d\uff1d\uff20")
SPACES = " \u00a0\u3000"


def columns(export: Export) -> list[str]:
    """The names of all fields, in the order in which they are met; this reads all rows."""
    if export.fields is not None:
        return ([] if export.key is None else [export.key]) + export.fields
    names: dict[Any, None] = {}
    silent = export._replace(skip=lambda _place, _reason: None, step=lambda _done: None)
    for row in chain.from_iterable(silent.values()):
        names.update(dict.fromkeys(row if isinstance(row, dict) else ("value",)))
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        raise TypeError(f"a row has the field {wrong!r}, and columns have names; choose fields=")
    return list(names)


def write(export: Export, target: BinaryIO) -> int:
    """Write the rows, and return their number."""
    to_json = encoder()
    names = columns(export)
    text = io.TextIOWrapper(target, "utf-8", errors="surrogatepass", newline="", write_through=False)
    try:
        rows = csv.writer(text, lineterminator="\n")
        rows.writerow(map(_no_formula, names) if export.is_for_spreadsheets else names)
        count = 0
        for number, row in enumerate(chain.from_iterable(export.values())):
            try:
                cells = _cells(export, row, names, to_json)
                if export.is_for_spreadsheets:
                    cells = list(map(_no_formula, cells))
                if "" in cells:
                    text.write(_line_with_empty(cells))
                else:
                    rows.writerow(cells)
            except (TypeError, ValueError, RecursionError) as error:
                export.skip(f"row {number}", str(error))
            else:
                count += 1
        text.flush()
    finally:
        # The file belongs to the caller: closing the text would close it.
        _detach(text)
    return count


def _no_formula(cell: Any) -> Any:
    """A cell that no spreadsheet takes for a formula. A number is one already, also with a minus."""
    return f"'{cell}" if isinstance(cell, str) and cell.lstrip(SPACES)[:1] in FORMULA else cell


def _detach(text: io.TextIOWrapper) -> None:
    try:
        text.detach()
    except (OSError, ValueError):
        # The last bytes cannot be written; the error that says so is on its way.
        return


def _cells(export: Export, row: Any, names: list[str], to_json: Any) -> list[Any]:
    if not isinstance(row, dict):
        row = {"value": row}
    if export.fields is None and not row.keys() <= set(names):
        raise RuntimeError(
            "rows with other fields were stored while the table was exported; export a snapshot: "
            "export_to(db.snapshot().table(name), ...)"
        )
    # `csv` writes None as an empty cell.
    return [as_text(row.get(name), to_json) for name in names]


def _line_with_empty(cells: list[Any]) -> str:
    """A line with quotes for each empty text, which tell it from a field that the row does not have."""
    line = io.StringIO()
    rows = csv.writer(line, lineterminator="")
    for place, cell in enumerate(cells):
        line.write("," if place else "")
        if cell == "":
            line.write('""')
        elif cell is not None:
            rows.writerow([cell])
    return line.getvalue() + "\n"
