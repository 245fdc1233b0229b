"""This module finds out how a CSV file is written: its encoding, its delimiter, the names of its columns."""

from __future__ import annotations

import codecs
import csv
import io
import re
from collections import Counter
from collections.abc import Mapping
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

from pellucid.transfer.job import HEAD_SIZE, Job
from pellucid.transfer.sources.csv_quotes import Quotes
from pellucid.transfer.sources.csv_rows import DELIMITERS, DOS_END, ERRORS, MARK, Dialect, bytes_of_marks
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


# What the caller may say in `dialect=`.
DIALECT = {
    "delimiter": "one character",
    "quote": "one character",
    "escape": "one character",
    "comment": "the text with which lines begin that are no rows",
    "skip": "a number of lines",
    "decimal": "one character",
    "thousands": "one character",
    "null": "a word, or a list of words, for no value",
}


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


def given(options: Mapping[str, Any]) -> dict[str, Any]:
    """What the caller says of a dialect, by the names of `DIALECT`; raises `ValueError` for anything else."""
    for name, value in options.items():
        if name not in DIALECT:
            raise ValueError(f"dialect= has no {name!r}; it has {', '.join(DIALECT)}")
        if name == "skip":
            is_right = type(value) is int and value >= 0
        elif name == "null":
            is_right = isinstance(value, (str, list, tuple)) and all(type(word) is str for word in value)
        else:
            is_right = type(value) is str and (len(value) == 1 or (name == "comment" and value != ""))
        if not is_right:
            raise ValueError(f"dialect= has {name}={value!r:.40}; it is {DIALECT[name]}")
    found = {**options}
    if isinstance(found.get("null"), str):
        found["null"] = [found["null"]]
    if found.get("thousands") == found.get("decimal", "."):
        raise ValueError("dialect= has one character for thousands and decimal; name both of them")
    return found


def header_of(job: Job, file: BinaryIO) -> Header:
    """Read the beginning of a file."""
    encoding = job.encoding or encoding_of(file.read(HEAD_SIZE))
    file.seek(0)
    options = given(job.dialect)
    dialect = Dialect(
        "utf-8-sig" if codecs.lookup(encoding).name == "utf-8" else encoding,
        escape=options.get("escape"),
        comment=options.get("comment", ""),
        nulls=frozenset(options.get("null", ())),
    )
    text = io.TextIOWrapper(file, dialect.encoding, errors=ERRORS, newline="")
    try:
        return _Beginning(job, dialect, text, options).header()
    finally:
        text.detach()


class _Beginning:
    """Reads the beginning of a text."""

    def __init__(self, job: Job, dialect: Dialect, text: io.TextIOWrapper, options: dict[str, Any]) -> None:
        self.job = job
        self.dialect = dialect
        self.text = text
        self.options = options
        # How many lines are before the next one.
        self.before = 0

    def header(self) -> Header:
        """The names of the columns, and how the file is written."""
        for _ in range(self.options.get("skip", 0)):
            self.before += bool(self.text.readline())
        first = self.line()
        delimiter = self.options.get("delimiter")
        if (sep := SEP.match(first)) is not None:
            self.before += 1
            delimiter = delimiter or sep[1]
            first = self.line()
        sample, is_all = self.sample(first)
        self.dialect = _sniffed(sample, self.dialect, is_all, delimiter, self.options.get("quote"))
        numbers = Numbers(self.options.get("decimal", "."), self.options.get("thousands", ""))
        if self.job.columns is not None:
            names = self.from_caller(_rows(sample, self.dialect, is_all or len(sample) == 1)[0])
            dialect = self.dialect._replace(lines_before=self.before)
            return Header(dialect, names, is_bare=True, may_be_nothing=False, numbers=numbers)
        reader = self.dialect.reader(chain(sample, self.text))
        try:
            names = next(reader, [])
        except csv.Error as error:
            raise self.job.damaged(f"line {self.before + 1}: {error}") from error
        quotes = Quotes(self.dialect)
        line = "".join(sample[: reader.line_num])
        is_bare = not any(map(quotes.is_needless, quotes.cell.findall(line)))
        rows, _ = _rows(sample[reader.line_num :], self.dialect, is_all)
        dialect = self.dialect._replace(lines_before=self.before + reader.line_num)
        names, may_be_nothing = self.named(names, rows)
        return Header(dialect, names, is_bare, may_be_nothing, numbers)

    def line(self) -> str:
        """The next line that has anything in it."""
        comment = self.dialect.comment
        while line := self.text.readline():
            if line.strip("\r\n") and not (comment and line.startswith(comment)):
                break
            self.before += 1
        return line

    def from_caller(self, rows: list[list[str]]) -> list[str]:
        """The names of `columns=`."""
        names = list(self.job.columns or ())
        if not names or not all(type(name) is str for name in names) or len(set(names)) < len(names):
            raise ValueError(f"columns= is a list of names that differ, not {names!r:.80}")
        if rows and len(rows[0]) != len(names):
            raise ValueError(
                f"columns= has {len(names)} names, and the first row of {self.job.input.name} has "
                f"{len(rows[0])} cells"
            )
        return names

    def sample(self, first: str) -> tuple[list[str], bool]:
        """Some lines, and whether they are all."""
        lines = [first]
        size = len(first)
        while len(lines) < SAMPLE_LINES and size < SAMPLE_SIZE:
            line = self.text.readline()
            if line in ("", DOS_END):
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
        numbers: dict[str, int] = {}
        there = set(cells)
        for column, cell in enumerate(cells, 1):
            name = MARK.sub("\N{REPLACEMENT CHARACTER}", cell) if cell.strip() else f"column_{column}"
            first, number = name, numbers.get(name, 2)
            while name in names or (name != cell and name in there):
                name, number = f"{first}_{number}", number + 1
            names[name], numbers[first] = None, number
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


def _sniffed(
    sample: list[str], dialect: Dialect, is_all: bool, delimiter: str | None, quote: str | None
) -> Dialect:
    """The dialect with which the most rows have as many cells as the first one."""
    text = "".join(sample)
    best = (0.0, False, 0)
    found = dialect._replace(delimiter=delimiter or ",", quote=quote or '"')
    for end in delimiter or DELIMITERS:
        mark = quote or ("'" if _has_single_quotes(sample, end) else '"')
        # A blank before a quote makes the quote a part of the cell, unless blanks are none.
        for has_blanks in (False, True) if f"{end} {mark}" in text else (False,):
            tried = dialect._replace(delimiter=end, quote=mark, has_blanks=has_blanks)
            rows, share = _rows(sample, tried, is_all or len(sample) == 1)
            if rows and len(rows[0]) > 1 and (score := _score(rows, share)) > best:
                best, found = score, tried
    return found


def _score(rows: list[list[str]], share: float) -> tuple[float, bool, int]:
    """How well rows fit to the first one. A delimiter at their end, or row names, make one cell more."""
    width = len(rows[0])
    widths = Counter(map(len, rows[1:]))
    same, longer = widths[width], widths[width + 1]
    return share * (max(same, longer) + 1) / len(rows), same >= longer, width


def _has_single_quotes(sample: list[str], delimiter: str) -> bool:
    """Whether `'` is around each cell of the first line, or around one with the delimiter in it."""
    text, end = "".join(sample), re.escape(delimiter)
    first = re.compile(rf"'[^'\r\n]*'(?:{end}'[^'\r\n]*')+\r?\n?\Z")
    cell = re.compile(rf"(?:^|{end})'[^'\r\n]*{end}[^'\r\n]*'(?:{end}|\r?$)", re.MULTILINE)
    return '"' not in text and bool(first.match(sample[0]) or cell.search(text))
