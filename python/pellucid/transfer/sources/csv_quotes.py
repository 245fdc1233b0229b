"""This module finds cells in quotes. `csv` gives their text, and does not say which ones had quotes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from pellucid.transfer.sources.csv_rows import DELIMITERS, Dialect
from pellucid.transfer.sources.csv_types import LOOKS_TYPED

__all__ = ["Quotes"]


class Quotes:
    """Finds the quotes in rows of a dialect."""

    def __init__(self, dialect: Dialect) -> None:
        self.quote = dialect.quote
        # What may need quotes, as another program may read it in another dialect.
        self.special = {*DELIMITERS, *"\r\n", dialect.delimiter, dialect.quote, dialect.escape}
        mark, end = re.escape(dialect.quote), re.escape(dialect.delimiter)
        inner, bare = f"[^{mark}]*(?:{mark}{mark}[^{mark}]*)*", rf"[^{end}\r\n]*"
        if dialect.escape is not None:
            escape = re.escape(dialect.escape)
            inner = f"(?:[^{mark}{escape}]|{escape}.|{mark}{mark})*"
            bare = rf"(?:[^{end}\r\n{escape}]|{escape}.)*"
        # A cell as it is in the file. It ends at the delimiter, or at the end of the row.
        blanks = " *" if dialect.has_blanks else ""
        self.cell = re.compile(rf"{blanks}({mark}{inner}{mark}|{bare})(?:{end}|\r?\n|\r|\Z)", re.DOTALL)
        typed = rf"{mark}(?:[-+.0-9eE \t]*|true|false|nan|-?inf){mark}"
        self.may_be_typed = re.compile(typed, re.IGNORECASE)

    def found(self, texts: Sequence[str]) -> Iterator[tuple[int, int, str]]:
        """The row, the column and the text of each quoted cell that is empty or looks like another value."""
        for row, text in enumerate(texts):
            if self.may_be_typed.search(text) is None:
                continue
            for column, cell in enumerate(self.cell.findall(text)):
                inner = cell[1:-1]
                if cell[:1] == self.quote and (not inner or LOOKS_TYPED.match(inner)):
                    yield row, column, inner

    def empty(self, texts: Sequence[str]) -> Iterator[tuple[int, int]]:
        """The row and the column of each cell that is a pair of quotes."""
        pair = self.quote * 2
        for row, text in enumerate(texts):
            if pair in text:
                for column, cell in enumerate(self.cell.findall(text)):
                    if cell == pair:
                        yield row, column

    def are_selective(self, texts: Sequence[str]) -> bool:
        """Whether cells have quotes only if they need them, or to say that they are text.

        In a file that puts quotes around everything, they say nothing.
        """
        is_selective = True
        for text in texts:
            cells = self.cell.findall(text)
            if any(cell and cell[0] != self.quote for cell in cells):
                return True
            is_selective = is_selective and not any(map(self.is_needless, cells))
        return is_selective

    def is_needless(self, cell: str) -> bool:
        """Whether a cell has quotes, and would be the same without."""
        inner = cell[1:-1]
        return (
            cell[:1] == self.quote
            and inner.strip() == inner != ""
            # Some programs take it for a quote, so the cell needs its own.
            and inner[:1] != "'"
            and self.special.isdisjoint(inner)
            and LOOKS_TYPED.match(inner) is None
        )
