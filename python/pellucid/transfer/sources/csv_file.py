"""This module reads CSV: a line of names, then a row in each line.

It reads the file twice: the first pass decides the type of each column, the second one converts the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from typing import Any, BinaryIO

from pellucid._native import CellRows
from pellucid.errors import SourceError
from pellucid.transfer.convert import reader_of, when
from pellucid.transfer.job import Chunk, Job, Part
from pellucid.transfer.sources.csv_check import says_the_same
from pellucid.transfer.sources.csv_dialect import Header, header_of
from pellucid.transfer.sources.csv_quotes import Quotes
from pellucid.transfer.sources.csv_rows import Block, Reader
from pellucid.transfer.sources.csv_types import Column, Numbers, read_bools

__all__ = ["parts"]

# The share of the first pass in the reading.
FIRST = 0.3
NAMES_SHOWN = 20
MISSING = object()
OF_NUMBERS = ("int", "float", "decimal")
NATIVE = ("int", "float", "bool")
Convert = Callable[[Sequence[str]], Sequence[Any]]


def parts(job: Job) -> Iterator[Part]:
    """The one table of the file."""
    columns: dict[str, str] = {}
    yield Part(None, "rows", _chunks(job, columns), columns=columns)


def _chunks(job: Job, columns: dict[str, str]) -> Iterator[Chunk]:
    with job.input.again() as file:
        size = max(1, file.seek(0, 2))
        file.seek(0)
        header = header_of(job, file)
        first = _FirstPass(job, header)
        file.seek(0)
        for done in first.blocks(file):
            yield Chunk([], (), "line", FIRST * done / size)
        columns.update(first.decided())
        file.seek(0)
        rows = _Rows(job, header, columns)
        # To verify, the standard library reads all rows, and not the quick way of ours.
        reader = Reader(file, header.dialect, len(header.names), job.skip, is_quick=not job.is_verification)
        for block in reader.blocks():
            yield rows.chunk(block, FIRST + (1 - FIRST) * block.done / size)


def _named_types(job: Job, names: Sequence[str]) -> dict[str, str]:
    """The types of columns that the caller named."""
    if isinstance(job.types, str):
        return dict.fromkeys(names, job.types)
    named = dict(job.types or ())
    if unknown := named.keys() - set(names):
        raise ValueError(
            f"types= names {', '.join(map(repr, sorted(unknown)))}, and {job.input.name} has no such column; "
            f"it has {', '.join(map(repr, names[:NAMES_SHOWN]))}"
        )
    return named


class _FirstPass:
    """Looks at all cells, and decides the types of the columns."""

    def __init__(self, job: Job, header: Header) -> None:
        self.job = job
        self.header = header
        self.named = _named_types(job, header.names)
        self.columns = [
            Column(name, is_key=name in job.key, dates=job.dates, numbers=header.numbers)
            for name in header.names
        ]
        self.quotes = Quotes(header.dialect)
        # Whether quotes say that a cell is text; None as long as no row was met.
        self.is_selective: bool | None = None if header.is_bare else False

    def blocks(self, file: BinaryIO) -> Iterator[int]:
        """Look at one block after the other; give the bytes that were read."""
        # The second pass meets the same faults, and notes them.
        reader = Reader(file, self.header.dialect, len(self.columns), lambda _place, _reason: None)
        for block in reader.blocks():
            cells = block.columns if block.texts is None else self.without_quoted(block)
            if self.is_selective is None:
                self.is_selective = True
            for column, found in zip(self.columns, cells, strict=True):
                if column.name not in self.named:
                    column.take(found, block.places)
            yield block.done

    def without_quoted(self, block: Block) -> Sequence[Sequence[str]]:
        """The cells without those whose quotes say that they are text; the columns note these."""
        texts = block.texts or ()
        if self.is_selective is None:
            self.is_selective = self.quotes.are_selective(texts)
        cells: list[Any] = list(block.columns)
        for row, at, cell in self.quotes.found(texts) if self.is_selective else ():
            self.columns[at].take_quoted(cell, block.places[row])
            if type(cells[at]) is not list:
                cells[at] = list(cells[at])
            cells[at][row] = ""
        return cells

    def decided(self) -> dict[str, str]:
        """The type of each column by its name; the report gets what else there is to say."""
        columns = list(self.columns)
        if self.header.may_be_nothing and columns[-1].is_empty:
            columns.pop()
        for column in columns:
            if column.name not in self.named:
                column.decide()
                for note in column.notes():
                    self.job.note(note)
        return {column.name: self.named.get(column.name, column.kind or "text") for column in columns}


class _Rows:
    """Makes rows of cells."""

    def __init__(self, job: Job, header: Header, columns: dict[str, str]) -> None:
        self.job = job
        self.columns = columns
        self.numbers = header.numbers
        self.quotes = Quotes(header.dialect)
        named = _named_types(job, header.names)
        self.converts = [
            _as_named(kind, header.numbers, job) if name in named else _convert(kind, header.numbers)
            for name, kind in columns.items()
        ]
        # `CellRows` reads the cells of these kinds, and this class makes values of all others.
        self.kinds = [
            kind if kind == "text" or (kind in NATIVE and name not in named) else "value"
            for name, kind in columns.items()
        ]
        # An empty text may be a value of these columns: no date or number is empty.
        self.may_be_empty = [kind in ("text", "bytes") for kind in columns.values()]

    def chunk(self, block: Block, share: float) -> Chunk:
        """The rows of a block. An empty cell is a field that the row does not have."""
        faults: dict[int, str] = {}
        try:
            # To verify, the cells are read in another way than before.
            kinds = self.kinds if not self.job.is_verification else ["value"] * len(self.kinds)
            rows: Any = self.rows(block, kinds, faults)
        except ValueError:
            # An int of more than 64 bits, for one.
            faults.clear()
            rows = self.rows(block, ["value"] * len(self.kinds), faults)
        places = block.places
        if faults:
            for row in sorted(faults):
                self.job.skip(f"line {places[row]}", faults[row])
            whole = [row not in faults for row in range(len(rows))]
            rows, places = list(compress(rows, whole)), list(compress(places, whole))
        return Chunk(rows, places, "line", share)

    def rows(self, block: Block, kinds: Sequence[str], faults: dict[int, str]) -> CellRows:
        """The rows of a block. `faults` gets those whose cells are not of their type, and why."""
        kinds = list(kinds)
        empty = [
            (row, at)
            for row, at in self.quotes.empty(block.texts or ())
            if at < len(kinds) and self.may_be_empty[at]
        ]
        for _, at in empty:
            kinds[at] = "value"
        columns: list[Any] = []
        for name, kind, convert, cells in zip(
            self.columns, kinds, self.converts, block.columns, strict=False
        ):
            if kind == "value":
                columns.append(self.values(name, convert, cells, faults))
            else:
                columns.append(self.numbers.plain(cells) if kind in OF_NUMBERS else cells)
        for row, at in empty:
            # With an empty cell in it, the column is a list.
            columns[at][row] = self.converts[at]([""])[0]
        if self.job.is_verification:
            self.verify(block, columns, faults)
        return CellRows(list(self.columns), kinds, columns, MISSING)

    def values(
        self, name: str, convert: Convert, cells: Sequence[str], faults: dict[int, str]
    ) -> Sequence[Any]:
        """The values of a column. `faults` gets the rows whose cells are not of the type, and why."""
        try:
            if "" not in cells:
                return convert(cells)
            found = iter(convert(list(filter(None, cells))))
            return [next(found) if cell else MISSING for cell in cells]
        except (ValueError, TypeError, ArithmeticError, LookupError):
            values: list[Any] = [MISSING] * len(cells)
        for row, cell in enumerate(cells):
            try:
                if cell:
                    values[row] = convert([cell])[0]
            except (ValueError, TypeError, ArithmeticError, LookupError) as error:
                kind = self.columns[name]
                # A number is read from another spelling than that of the cell, if the file has its own.
                why = f"{cell!r:.40} is not of type {kind}" if kind in OF_NUMBERS else error
                faults.setdefault(row, f"field {name!r}: {why}")
        return values

    def verify(self, block: Block, values: list[Sequence[Any]], faults: dict[int, str]) -> None:
        """Raise `SourceError` if a value is not what the text of its cell says."""
        for name, found, cells in zip(self.columns, values, block.columns, strict=False):
            if self.columns[name] == "json":
                continue
            plain = self.numbers.plain(cells) if self.columns[name] in OF_NUMBERS else cells
            for row, (value, cell) in enumerate(zip(found, plain, strict=True)):
                if value is not MISSING and row not in faults and not says_the_same(value, cell):
                    raise SourceError(
                        f"{self.job.input.name}, line {block.places[row]}: field {name!r} is {value!r:.40}, "
                        f"and the text is {cells[row]!r:.40}; please report this"
                    )


def _convert(kind: str, numbers: Numbers) -> Convert:
    """The function that reads cells of a type that was decided."""
    if kind == "int":
        return numbers.ints
    if kind == "float":
        return numbers.floats
    if kind == "bool":
        return read_bools
    return _as_text if kind == "text" else lambda cells: list(map(when, cells))


def _as_named(kind: str, numbers: Numbers, job: Job) -> Convert:
    """The function that reads cells of a type that the caller named."""
    if kind == "text":
        return _as_text
    read = reader_of(kind, job.unpickle)
    if kind in OF_NUMBERS:
        return lambda cells: list(map(read, numbers.plain(cells)))
    return lambda cells: list(map(read, cells))


def _as_text(cells: Sequence[str]) -> Sequence[str]:
    return cells
