"""This module reads CSV: a line of names, then a row in each line.

It reads the file twice: the first pass decides the type of each column, the second one converts the cells.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from itertools import compress
from typing import Any, BinaryIO

from pellucid._native import CellRows
from pellucid.errors import SourceError
from pellucid.transfer.convert import reader_of, when
from pellucid.transfer.job import Chunk, Group, Job, Part
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
    group = job.group or Group([job], {}, job.note)
    with job.input.again() as file:
        size = max(1, file.seek(0, 2))
        file.seek(0)
        header = header_of(job, file)
        begin = 0.0
        if not group.known:
            begin = FIRST
            for share in _first_pass(job, file, group):
                yield Chunk([], (), "line", FIRST * share)
        columns.update(_types(job, header, group.known))
        file.seek(0)
        rows = _Rows(job, header, columns)
        # To verify, the standard library reads all rows, and not the quick way of ours.
        reader = Reader(file, header.dialect, len(header.names), job.skip, is_quick=not job.is_verification)
        for block in reader.blocks():
            yield rows.chunk(block, begin + (1 - begin) * block.done / size)


def _first_pass(job: Job, file: BinaryIO, group: Group) -> Iterator[float]:
    """Look at all cells of all files, and decide the types of columns; give the part that is done."""
    known: dict[str, Column] = group.known
    for number, one in enumerate(group.jobs):
        # The report gets notes of a file when it is its turn.
        silent = one._replace(skip=lambda _place, _reason: None, note=lambda _what: None)
        is_own = one.input is job.input
        with nullcontext(file) if is_own else one.input.again() as found:
            size = max(1, found.seek(0, 2))
            found.seek(0)
            header = header_of(silent, found)
            found.seek(0)
            place = f"{one.input.name}, line" if len(group.jobs) > 1 else "line"
            for done in _FirstPass(silent, header, known, place).blocks(found):
                yield (number + done / size) / len(group.jobs)
    _check_types(group)
    for column in known.values():
        if not column.is_empty and not _is_named(job, column.name):
            column.decide()
            for note in column.notes():
                group.note(note)


def _types(job: Job, header: Header, known: Mapping[str, Column]) -> dict[str, str]:
    """The type of each column of a file by its name."""
    names = list(header.names)
    if header.may_be_nothing and known[names[-1]].is_empty:
        names.pop()
    named = _named_types(job, header.names)
    return {name: named.get(name) or known[name].kind or "text" for name in names}


def _is_named(job: Job, name: str) -> bool:
    return isinstance(job.types, str) or name in (job.types or ())


def _check_types(group: Group) -> None:
    """Raise `ValueError` if the caller named the type of a column that no file has."""
    job, known = group.jobs[0], group.known
    if isinstance(job.types, str) or not (unknown := set(job.types or ()) - known.keys()):
        return
    have = f"{job.input.name} has no such column; it has"
    if len(group.jobs) > 1:
        have = f"none of {len(group.jobs):,} files has such a column; they have"
    raise ValueError(
        f"types= names {', '.join(map(repr, sorted(unknown)))}, and {have} "
        f"{', '.join(map(repr, list(known)[:NAMES_SHOWN]))}"
    )


def _named_types(job: Job, names: Sequence[str]) -> dict[str, str]:
    """The types of columns that the caller named."""
    if isinstance(job.types, str):
        return dict.fromkeys(names, job.types)
    return {name: kind for name, kind in (job.types or {}).items() if name in names}


class _FirstPass:
    """Looks at all cells of a file for the types of its columns."""

    def __init__(self, job: Job, header: Header, known: dict[str, Column], place: str) -> None:
        self.job = job
        self.header = header
        self.place = place
        for name in header.names:
            if name not in known:
                known[name] = Column(
                    name,
                    is_key=name in job.key,
                    dates=job.dates,
                    numbers=header.numbers,
                    given_nulls=header.dialect.nulls,
                )
        self.columns = [known[name] for name in header.names]
        # The columns whose cells are looked at.
        self.open = {name for name in header.names if not _is_named(job, name)}
        if header.may_be_nothing:
            self.open.add(header.names[-1])
        self.quotes = Quotes(header.dialect)
        # Whether quotes say that a cell is text; None as long as no row was met.
        self.is_selective: bool | None = None if header.is_bare else False

    def blocks(self, file: BinaryIO) -> Iterator[int]:
        """Look at one block after the other; give the bytes that were read."""
        # The second pass meets the same faults, and notes them.
        reader = Reader(file, self.header.dialect, len(self.columns), self.job.skip)
        for column in self.columns:
            column.place = self.place
        for block in reader.blocks():
            cells = block.columns if block.texts is None else self.without_quoted(block)
            if self.is_selective is None:
                self.is_selective = True
            for column, found in zip(self.columns, cells, strict=True):
                if column.name in self.open:
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
