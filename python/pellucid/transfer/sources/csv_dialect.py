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
from pellucid.transfer.sources.csv_rows import DELIMITERS, ERRORS, MARK, Dialect, bytes_of_marks
from pellucid.transfer.sources.csv_types import Numbers

__all__ = ["Header", "encoding_of", "header_of"]

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
    # Names are ASCII most often, of which UTF-16 makes every second byte zero.
    for encoding, zeros, others in (
        ("utf-16-le", head[1:400:2], head[:400:2]),
        ("utf-16-be", head[:400:2], head[1:400:2]),
    ):
        if zeros[:2] == b"\0\0" and zeros.count(0) > len(zeros) // 2 and not others.count(0):
            return encoding
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
        self.dialect = _sniffed(sample, self.dialect, is_all)
        if sep is not None:
            self.dialect = self.dialect._replace(delimiter=sep[1])
        reader = self.dialect.reader(chain(sample, self.text))
        try:
            names: list[str] = next(reader, [])
        except csv.Error as error:
            raise self.job.damaged(f"line {self.before + 1}: {error}") from error
        quotes = Quotes(self.dialect)
        line = "".join(sample[: reader.line_num])
        is_bare = not any(map(quotes.is_needless, quotes.cell.findall(line)))
        rows, _ = _rows(sample[reader.line_num :], self.dialect, is_all)
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


def _rows(lines: list[str], dialect: Dialect, is_all: bool) -> tuple[list[list[str]], float]:
    """The rows in some lines, and which part of the lines can be read. The last one may be cut off."""
    rows: list[list[str]] = []
    reader = dialect.reader(lines)
    try:
        rows.extend(row for row in reader if row)
    except csv.Error:
        # What is wrong with a row is found when it is read.
        is_cut = not is_all and reader.line_num == len(lines)
        return rows, 1.0 if is_cut else (reader.line_num - 1) / len(lines)
    return rows if is_all else rows[:-1], 1.0


def _sniffed(sample: list[str], dialect: Dialect, is_all: bool) -> Dialect:
    """The dialect with which the most rows have as many cells as the first one."""
    text = "".join(sample)
    best = (0.0, 0)
    found = dialect
    for quote in ('"', "'"):
        for delimiter in DELIMITERS:
            if quote == "'" and not _has_single_quotes(text, delimiter):
                continue
            tried = dialect._replace(delimiter=delimiter, quote=quote)
            rows, share = _rows(sample, tried, is_all or len(sample) == 1)
            if not rows or len(rows[0]) < 2:
                continue
            widths = Counter(map(len, rows))
            # A delimiter at the end of each row, or row names, make one cell more.
            width = len(rows[0])
            share *= max(widths[width], widths[width + 1] + 1) / len(rows)
            if (share, width) > best:
                best, found = (share, width), tried
    return found


def _has_single_quotes(text: str, delimiter: str) -> bool:
    """Whether `'` is around cells that have the delimiter in them."""
    end = re.escape(delimiter)
    cell = re.compile(rf"(?:^|{end})'[^'\r\n]*{end}[^'\r\n]*'(?:{end}|\r?$)", re.MULTILINE)
    return '"' not in text and cell.search(text) is not None
