"""This module finds out how a CSV file is written: its encoding, its delimiter, the names of its columns."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from itertools import chain
from typing import BinaryIO, NamedTuple

from pellucid.transfer.job import HEAD_SIZE, Job
from pellucid.transfer.sources.csv_quotes import Quotes
from pellucid.transfer.sources.csv_rows import ERRORS, MARK, Dialect, bytes_of_marks
from pellucid.transfer.sources.csv_types import Numbers

__all__ = ["Header", "encoding_of", "header_of"]

DELIMITERS = ",;\t|"
# How much of the file shows how it is written.
SAMPLE_LINES = 200
SAMPLE_SIZE = 1 << 16
# The first line of Excel's own CSV may name the delimiter.
SEP = re.compile(r'"?sep=(.)"?[ \t,;]*\r?\n?\Z', re.IGNORECASE)
BOMS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    # The mark of UTF-32 begins like that of UTF-16.
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)


class Header(NamedTuple):
    """What the beginning of a file says of the rest."""

    dialect: Dialect
    names: list[str]
    # Whether the names have no quotes that they do not need.
    is_bare: bool
    # Whether the last column has no name: if it has no values either, it is a delimiter at the end of lines.
    may_be_nothing: bool
    numbers: Numbers


def encoding_of(head: bytes) -> str:
    """The encoding of a text by its first bytes: what its mark says, or UTF-16 without one, or UTF-8."""
    for mark, encoding in BOMS:
        if head.startswith(mark):
            return encoding
    even, odd = head[:400:2], head[1:400:2]
    if len(odd) > 1:
        if odd.count(0) > len(odd) // 2 and not even.count(0):
            return "utf-16-le"
        if even.count(0) > len(even) // 2 and not odd.count(0):
            return "utf-16-be"
    return "utf-8-sig"


def header_of(job: Job, file: BinaryIO) -> Header:
    """Read the beginning of a file."""
    encoding = job.encoding or encoding_of(file.read(HEAD_SIZE))
    file.seek(0)
    dialect = Dialect("utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding)
    text = io.TextIOWrapper(file, dialect.encoding, errors=ERRORS, newline="")
    try:
        return _Beginning(job, dialect, text).header()
    finally:
        text.detach()


class _Beginning:
    """Reads the beginning of a text."""

    def __init__(self, job: Job, dialect: Dialect, text: io.TextIOWrapper) -> None:
        self.job = job
        self.dialect = dialect
        self.text = text
        # How many lines are before the next one.
        self.before = 0

    def header(self) -> Header:
        """The names of the columns, and how the file is written."""
        first = self.line()
        if (sep := SEP.match(first)) is not None:
            self.before += 1
            first = self.line()
        sample, is_all = self.sample(first)
        delimiter, quote = _sniffed(sample, is_all)
        self.dialect = self.dialect._replace(delimiter=sep[1] if sep else delimiter, quote=quote)
        reader = self.dialect.reader(chain(sample, self.text))
        try:
            names: list[str] = next(reader, [])
        except csv.Error as error:
            raise self.job.damaged(f"line {self.before + 1}: {error}") from error
        quotes = Quotes(self.dialect)
        line = "".join(sample[: reader.line_num])
        is_bare = not any(map(quotes.is_needless, quotes.cell.findall(line)))
        rows = _rows(sample[reader.line_num :], delimiter, quote, is_all)
        dialect = self.dialect._replace(lines_before=self.before + reader.line_num)
        names, may_be_nothing = self.named(names, rows)
        return Header(dialect, names, is_bare, may_be_nothing, Numbers())

    def line(self) -> str:
        """The next line that has anything in it."""
        while (line := self.text.readline()) and not line.strip("\r\n"):
            self.before += 1
        return line

    def sample(self, first: str) -> tuple[list[str], bool]:
        """Some lines, and whether they are all."""
        lines = [first]
        size = len(first)
        while len(lines) < SAMPLE_LINES and size < SAMPLE_SIZE:
            line = self.text.readline()
            if not line:
                return lines, True
            lines.append(line)
            size += len(line)
        return lines, False

    def named(self, given: list[str], rows: list[list[str]]) -> tuple[list[str], bool]:
        """A name for each column, and whether the last one has none and may be nothing."""
        cells = list(given)
        if rows and all(len(row) == len(cells) + 1 for row in rows):
            # A delimiter at the end of each row, or a first column without even a cell for its name.
            is_at_end = not any(row[-1] for row in rows)
            cells = [*cells, ""] if is_at_end else ["", *cells]
        names: dict[str, None] = {}
        there = set(cells)
        for column, cell in enumerate(cells, 1):
            name = MARK.sub("\N{REPLACEMENT CHARACTER}", cell) if cell.strip() else f"column_{column}"
            first, number = name, 2
            while name in names or (name != cell and name in there):
                name, number = f"{first}_{number}", number + 1
            names[name] = None
            if bad := bytes_of_marks(cell):
                reason = f"has the byte {bad} in its name, which is not {self.dialect.name}"
            elif not cell.strip():
                reason = "has no name"
            else:
                reason = f"has the name {cell!r:.40} of another one"
            if name != cell and (cell.strip() or column < len(cells)):
                self.job.note(f"column {column} {reason}; here it is {name!r}")
        return list(names), len(cells) > 1 and not cells[-1].strip()


def _rows(lines: list[str], delimiter: str, quote: str, is_all: bool) -> list[list[str]]:
    """The rows in some lines, as far as they can be read. The last one may be cut off."""
    rows: list[list[str]] = []
    try:
        rows.extend(row for row in csv.reader(lines, delimiter=delimiter, quotechar=quote) if row)
    except csv.Error:
        # What is wrong with a row is found when it is read.
        return rows
    return rows if is_all else rows[:-1]


def _sniffed(sample: list[str], is_all: bool) -> tuple[str, str]:
    """The delimiter and the quote with which the most rows have as many cells as the first one."""
    text = "".join(sample)
    best = (0.0, 0)
    found = DELIMITERS[0], '"'
    for quote in ('"', "'"):
        for delimiter in DELIMITERS:
            if quote == "'" and not _has_single_quotes(text, delimiter):
                continue
            rows = _rows(sample, delimiter, quote, is_all or len(sample) == 1)
            widths = Counter(map(len, rows))
            if not rows or len(rows[0]) < 2:
                continue
            # A delimiter at the end of each row, or row names, make one cell more.
            width = len(rows[0])
            share = max(widths[width], widths[width + 1] + 1) / len(rows)
            if (share, width) > best:
                best, found = (share, width), (delimiter, quote)
    return found


def _has_single_quotes(text: str, delimiter: str) -> bool:
    """Whether `'` is around cells that have the delimiter in them."""
    end = re.escape(delimiter)
    cell = re.compile(rf"(?:^|{end})'[^'\r\n]*{end}[^'\r\n]*'(?:{end}|\r?$)", re.MULTILINE)
    return '"' not in text and cell.search(text) is not None
