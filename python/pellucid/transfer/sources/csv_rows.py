"""This module cuts the text of a CSV file into rows, block by block. What a cell means, it does not say.

A row that cannot be read is skipped: one with a broken quote, with bytes that the encoding does not have, or
with another number of cells than the first line.
"""

from __future__ import annotations

import codecs
import csv
import io
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple

__all__ = [
    "DELIMITERS",
    "DOS_END",
    "ERRORS",
    "MARK",
    "Block",
    "Dialect",
    "Reader",
    "bytes_of_marks",
    "lines_of",
]

# With this character DOS ended texts.
DOS_END = "\x1a"
# What may be between cells, if the caller names nothing else.
DELIMITERS = ",;\t|"
# Large texts are values like others. A quote that is never closed makes the rest of the file one cell.
CELL_SIZE_MAX = 1 << 28
# Small enough that the cells of a block stay in the cache of the processor.
BLOCK_SIZE = 1 << 16
# How much text may be read again because a quote in it is broken. Without a limit, a file of nothing but
# such rows takes the square of its size.
AGAIN = 1 << 26
# What stands for bytes that the encoding does not have: no encoding has these characters.
MARK = re.compile("[\udc00-\udcff]+")
ERRORS = "pellucid.mark"
# Before Python 3.11, `csv` refuses NUL. No text that was decoded has the other character.
TAKES_NUL = sys.version_info >= (3, 11)
NUL = "\ud800"


def _mark(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeDecodeError):
        raise error
    bad = error.object[error.start : error.end]
    return "".join(chr(0xDC00 + byte) for byte in bad), error.end


codecs.register_error(ERRORS, _mark)


class Dialect(NamedTuple):
    """How a file of CSV is written."""

    encoding: str = "utf-8-sig"
    delimiter: str = ","
    quote: str = '"'
    escape: str | None = None
    comment: str = ""
    # Whether blanks behind a delimiter are no part of a cell, which then may have quotes.
    has_blanks: bool = False
    # The cells that stand for no value.
    nulls: frozenset[str] = frozenset()
    # The lines before the first row, with that of the names.
    lines_before: int = 1

    @property
    def name(self) -> str:
        """The encoding, as a person names it."""
        return self.encoding.removesuffix("-sig")

    def reader(self, lines: Any) -> Any:
        """The reader of the standard library for some lines; it refuses a broken quote."""
        # The limit belongs to the process, so it is only raised.
        csv.field_size_limit(max(csv.field_size_limit(), CELL_SIZE_MAX))
        found = csv.reader(
            lines if TAKES_NUL else (line.replace("\0", NUL) for line in lines),
            delimiter=self.delimiter,
            quotechar=self.quote,
            escapechar=self.escape,
            skipinitialspace=self.has_blanks,
            strict=True,
        )
        return found if TAKES_NUL else _WithNul(found)


class _WithNul:
    """A reader whose lines have another character in the place of NUL."""

    def __init__(self, found: Any) -> None:
        self.found = found

    def __iter__(self) -> Iterator[list[str]]:
        return self

    def __next__(self) -> list[str]:
        return [cell.replace(NUL, "\0") for cell in next(self.found)]

    @property
    def line_num(self) -> int:
        """How many lines were read."""
        return int(self.found.line_num)


class Block(NamedTuple):
    """Rows that follow each other, as columns of cells."""

    columns: Sequence[Sequence[str]]
    # The line with which each row begins, and how many bytes of the file were read.
    places: Sequence[int]
    done: int
    # The text of each row, if there are quotes in it.
    texts: Sequence[str] | None


def lines_of(text: str) -> list[str]:
    """The lines of a text with their ends, which are not translated. `str.splitlines` knows more ends."""
    return list(io.StringIO(text, newline=""))


def bytes_of_marks(text: str) -> str:
    """The bytes in a text that the encoding does not have, in words; nothing if there are none."""
    found = MARK.search(text)
    return "" if found is None else " ".join(f"0x{ord(mark) - 0xDC00:02x}" for mark in found[0][:4])


class Reader:
    """Reads the rows of a file."""

    def __init__(
        self,
        file: BinaryIO,
        dialect: Dialect,
        width: int,
        skip: Callable[[str, str], None],
        *,
        is_quick: bool = True,
    ) -> None:
        self.file = file
        self.dialect = dialect
        self.width = width
        self.skip = skip
        self.is_quick = is_quick
        self.line = 1
        self.done = 0
        self.again = AGAIN

    def blocks(self) -> Iterator[Block]:
        """The rows behind the line of names."""
        decode = codecs.getincrementaldecoder(self.dialect.encoding)(ERRORS).decode
        rest = ""
        is_last = is_begun = False
        while not is_last:
            # What waits for its end is read again with what follows, so that must be as long as it is.
            data = self.file.read(max(BLOCK_SIZE, len(rest)))
            self.done += len(data)
            is_last = not data
            text = rest + decode(data, is_last)
            if is_last:
                text = text.removesuffix(DOS_END)
            if not is_begun:
                lines = lines_of(text)
                if len(lines) <= self.dialect.lines_before and not is_last:
                    rest = text
                    continue
                text = "".join(lines[self.dialect.lines_before :])
                self.line += self.dialect.lines_before
                is_begun = True
            end = len(text) if is_last else _end_of_lines(text)
            body, rest = text[:end], text[end:]
            if body:
                block, left = self.block(body, is_last)
                rest = left + rest
                if block is not None:
                    yield self.without_nulls(block) if self.dialect.nulls else block

    def without_nulls(self, block: Block) -> Block:
        """The block with an empty cell in the place of each one that stands for no value."""
        nulls = self.dialect.nulls
        return block._replace(
            columns=[
                cells if nulls.isdisjoint(cells) else ["" if cell in nulls else cell for cell in cells]
                for cells in block.columns
            ]
        )

    def block(self, body: str, is_last: bool) -> tuple[Block | None, str]:
        """The rows of some lines, and the text of a row that goes on behind them."""
        fast = self.without_quotes(body) if self.is_quick else None
        if fast is not None:
            return fast, ""
        lines = lines_of(body)
        has_quotes = self.dialect.quote in body
        if not self.dialect.comment and not _has_marks(body):
            try:
                rows = list(self.dialect.reader(lines))
            except csv.Error:
                rows = []
            if len(rows) == len(lines) and set(map(len, rows)) == {self.width}:
                places = range(self.line, self.line + len(lines))
                self.line += len(lines)
                texts = lines if has_quotes else None
                return Block(list(zip(*rows, strict=True)), places, self.done, texts), ""
        return self.one_by_one(lines, is_last)

    def without_quotes(self, body: str) -> Block | None:
        """The rows of lines that are as simple as most are; None for others. This is a loop in C."""
        dialect = self.dialect
        if "\r" in body:
            body = body.replace("\r\n", "\n")
        if dialect.has_blanks or any(
            mark and mark in body for mark in ("\r", dialect.quote, dialect.escape, dialect.comment)
        ):
            return None
        if _has_marks(body):
            return None
        if not body.endswith("\n"):
            body += "\n"
        count = body.count("\n")
        # Between rows is a cell with a line break. If one is at another place, the rows differ in length.
        end, size = dialect.delimiter, self.width + 1
        flat = body.replace("\n", f"{end}\n{end}").split(end)
        if len(flat) != count * size + 1 or flat[self.width :: size].count("\n") != count:
            return None
        flat.pop()
        if self.width == 1 and "" in flat:
            return None
        places = range(self.line, self.line + count)
        self.line += count
        columns = [flat[column::size] for column in range(self.width)]
        return Block(columns, places, self.done, None)

    def one_by_one(self, lines: list[str], is_last: bool) -> tuple[Block | None, str]:
        """The rows of lines in which something is wrong, or in which cells have several lines."""
        rows: list[list[str]] = []
        places: list[int] = []
        texts: list[str] = []
        at, left = 0, ""
        while at < len(lines):
            source = _Lines(lines, at, self.dialect.comment)
            try:
                for row in self.dialect.reader(source):
                    text = "".join(lines[source.begin : source.at])
                    if self.is_whole(row, text, self.line + source.begin):
                        rows.append(row)
                        places.append(self.line + source.begin)
                        texts.append(text)
                    source.is_between = True
                at = len(lines)
            except csv.Error as error:
                if not is_last and "unexpected end" in str(error):
                    left = "".join(lines[source.begin :])
                    del lines[source.begin :]
                    break
                at = self.broken(lines, source, error)
        self.line += len(lines)
        if not rows:
            return None, left
        return Block(list(zip(*rows, strict=True)), places, self.done, texts), left

    def is_whole(self, row: list[str], text: str, place: int) -> bool:
        """Whether a row is one; if not, it is noted. A line without anything is none, and no fault."""
        if bad := bytes_of_marks(text):
            reason = f"not {self.dialect.name}: byte {bad}; pass encoding= if it has another one"
            self.skip(f"line {place}", reason)
        elif len(row) == self.width:
            return True
        elif row:
            cells = "1 cell" if len(row) == 1 else f"{len(row)} cells"
            self.skip(f"line {place}", f"it has {cells}, and the first line has {self.width}")
        return False

    def broken(self, lines: list[str], source: _Lines, error: csv.Error) -> int:
        """Note a row with a broken quote, and say with which line reading goes on."""
        begin, end = source.begin, source.at
        self.again -= sum(map(len, lines[begin:end]))
        # The lines behind that of the quote are rows of their own, most likely.
        end = begin + 1 if self.again > 0 else max(end, begin + 1)
        reason = "a quote is not closed" if "unexpected end" in str(error) else str(error)
        place = f"line {self.line + begin}" + (f" to {self.line + end - 1}" if end > begin + 1 else "")
        self.skip(place, reason)
        return end


class _Lines:
    """Gives lines to the reader of the standard library, and says where the row begins."""

    def __init__(self, lines: list[str], at: int, comment: str) -> None:
        self.lines = lines
        self.at = self.begin = at
        self.comment = comment
        self.is_between = True

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        while self.at < len(self.lines):
            line = self.lines[self.at]
            self.at += 1
            if self.is_between and self.comment and line.startswith(self.comment):
                continue
            if self.is_between:
                self.begin, self.is_between = self.at - 1, False
            return line
        raise StopIteration


def _has_marks(text: str) -> bool:
    if text.isascii():
        return False
    try:
        # Much faster than a search.
        text.encode("utf-8")
    except UnicodeEncodeError:
        return True
    return False


def _end_of_lines(text: str) -> int:
    """Where the last whole line of a text ends. A `\\r` at its end may be a half of `\\r\\n`."""
    return text.rfind("\n") + 1 or text.rfind("\r", 0, -1) + 1
