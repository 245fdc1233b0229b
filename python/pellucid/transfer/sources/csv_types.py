"""This module decides the type of each column of a CSV file, from all of its cells.

A column of numbers is text if its numbers look like codes, if one of them does not fit, or if they are keys
and could not be written back.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import compress
from typing import Any

from pellucid.transfer.convert import DATE, DATETIME, when
from pellucid.transfer.digits import read_int

__all__ = ["LOOKS_TYPED", "WORDS", "Column", "Numbers", "read_bools"]

# What `float` and `int` accept, without words, `_` and digits of other scripts. Blanks may be around it.
NUMBER = r"[ \t]*[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[ \t]*"
CHARACTERS = "0123456789+-.eE \t"
# The floats that Python writes as words. They are numbers only in a column of floats.
WORDS = frozenset(("nan", "inf", "-inf"))
BOOLS = {"true": True, "false": False}
# Text that is taken for another value if it has no quotes.
LOOKS_TYPED = re.compile(rf"(?:{NUMBER}|[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|nan|-?inf)\Z")

IS_NUMBER = re.compile(rf"{NUMBER}\Z")
IS_INT = re.compile(r"[ \t]*[-+]?[0-9]+[ \t]*\Z")
# These look at the cells of a column at once, each between line breaks.
ANY_NUMBER = re.compile(rf"\n{NUMBER}(?=\n)")
ANY_ZERO_FIRST = re.compile(r"\n[ \t]*[-+]?0[0-9]")
ANY_CODE = re.compile(r"\n[ \t]*[0-9]+[eE][0-9]+[ \t]*(?=\n)")
ANY_LONG_INT = re.compile(r"\n[ \t]*[-+]?[0-9]{16,}[ \t]*(?=\n)")
# An int of up to 15 digits is exactly a float, as is each one up to 2**53.
EXACT_DIGITS = 15
EXACT_MAX = 2.0**53
# A number of up to 300 characters does not become zero as a float, unless it has an exponent.
SHORT = 300
INFINITY = float("inf")
# The most digits that `str` writes.
DIGITS_WRITTEN = 4300


class Numbers:
    """How a file writes numbers: what is before a fraction, and what may be between thousands."""

    def __init__(self, decimal: str = ".", thousands: str = "") -> None:
        self.decimal = decimal
        self.thousands = thousands
        self.is_plain = decimal == "." and not thousands
        mark = re.escape(thousands)
        self.grouped = re.compile(rf"[ \t]*[-+]?[0-9]{{1,3}}(?:{mark}[0-9]{{3}})+(?![0-9]|{mark})")

    def plain(self, cells: Sequence[str]) -> Sequence[str]:
        """The cells as Python writes numbers. What is no number as the file writes them has a `?`."""
        return cells if self.is_plain else list(map(self._plain, cells))

    def _plain(self, cell: str) -> str:
        if self.thousands and self.thousands in cell:
            if self.grouped.match(cell) is None:
                return f"?{cell}"
            cell = cell.replace(self.thousands, "")
        if self.decimal == ".":
            return cell
        return f"?{cell}" if "." in cell else cell.replace(self.decimal, ".")

    def ints(self, cells: Sequence[str]) -> list[int]:
        """The ints that cells are, of any length."""
        cells = self.plain(cells)
        try:
            return list(map(int, cells))
        except ValueError:
            # `int` refuses more digits than 4,300.
            return list(map(_int, cells))

    def floats(self, cells: Sequence[str]) -> list[float]:
        """The floats that cells are."""
        return list(map(float, self.plain(cells)))


def _int(cell: str) -> int:
    if IS_INT.match(cell) is None:
        raise ValueError(f"{cell!r:.40} is not of type int")
    return read_int(cell.strip(" \t"))


def read_bools(cells: Sequence[str]) -> list[bool]:
    """The bools that cells are, in letters of any case."""
    return [BOOLS[cell.lower()] for cell in cells]


class Column:
    """What is known of a column after some of its cells.

    `kind` is "bool", "int", "float", "date", "datetime" or "text"; None as long as there is no value. `why`
    names a cell because of which the column is text, though others are not.
    """

    def __init__(self, name: str, *, is_key: bool, dates: bool, numbers: Numbers) -> None:
        self.name = name
        self.is_key = is_key
        self.dates = dates
        # With and without marks between thousands, two texts would be one key.
        self.numbers = Numbers(numbers.decimal) if is_key else numbers
        self.kind: str | None = None
        self.why = ""
        self.has_point = False
        # The first cell of each kind that makes text of a column, depending on its other cells.
        self.code = self.word = self.quoted = self.large = ""
        # Where the first empty cell in quotes is.
        self.empty = 0

    def take(self, cells: Sequence[str], places: Sequence[int]) -> None:
        """Look at some cells. These are loops in C for most columns: they see every cell of the file."""
        filled = list(filter(None, cells))
        if not filled or (self.kind == "text" and self.why):
            return
        if len(filled) < len(cells):
            places = list(compress(places, cells))
        if self.kind == "text":
            # The report says whether a column of text has numbers in it. They begin with characters up to 9.
            has_numbers = min(filled) < ":" and ANY_NUMBER.search(_in_lines(filled))
            kind = None if has_numbers else "text"
        else:
            joined = "".join(filled)
            if ("nan" in joined or "inf" in joined) and not self.is_key:
                filled, places = self.without_words(filled, places)
                if not filled:
                    return
                joined = "".join(filled)
            if not self.numbers.is_plain:
                plain = self.numbers.plain(filled)
                kind = self.kind_of(plain, "".join(plain))
            else:
                kind = self.kind_of(filled, joined)
        if kind is None:
            self.one_by_one(filled, places)
        else:
            self.merge(kind, filled[0], places[0])

    def without_words(self, cells: list[str], places: Sequence[int]) -> tuple[list[str], Sequence[int]]:
        """The cells without `nan` and its like, of which the first one is noted."""
        rest = [cell not in WORDS for cell in cells]
        if not self.word and not all(rest):
            position = rest.index(False)
            self.word = _shown(cells[position], places[position])
        return list(compress(cells, rest)), list(compress(places, rest))

    def kind_of(self, cells: Sequence[str], joined: str) -> str | None:
        """The type of cells that are all of one type; None if one of them has to be looked at."""
        if joined.strip(CHARACTERS):
            return self.kind_of_words(cells)
        is_simple = not self.is_key and joined.isdigit() and min(cells) >= "1"
        if is_simple and max(map(len, cells)) <= EXACT_DIGITS:
            return "int"
        lines = _in_lines(cells)
        # Most searches for a substring are much faster than one for a pattern.
        if ("\n0" in lines or any(mark in joined for mark in "-+ \t")) and ANY_ZERO_FIRST.search(lines):
            return None
        try:
            if "." in joined or "e" in joined or "E" in joined:
                floats = list(map(float, cells))
                return "float" if self.are_floats(cells, floats, joined, lines) else None
            ints = list(map(int, cells))
        except ValueError:
            return None
        if not self.large and not -EXACT_MAX < min(ints) <= max(ints) < EXACT_MAX:
            return None
        return "int" if not self.is_key or list(map(str, ints)) == list(cells) else None

    def are_floats(self, cells: Sequence[str], floats: list[float], joined: str, lines: str) -> bool:
        """Whether floats are what the cells say, beyond doubt."""
        has_exponent = "e" in joined or "E" in joined
        lowest, highest = min(floats), max(floats)
        if lowest == -INFINITY or highest == INFINITY:
            return False
        if self.is_key and list(map(repr, floats)) != list(cells):
            return False
        is_exact = self.large or -EXACT_MAX < lowest <= highest < EXACT_MAX
        if not is_exact and ANY_LONG_INT.search(lines):
            return False
        if 0.0 in floats and (has_exponent or max(map(len, cells)) > SHORT):
            return False
        if has_exponent and not (self.has_point or self.code) and ANY_CODE.search(lines):
            return False
        self.has_point = self.has_point or "." in joined
        return True

    def kind_of_words(self, cells: Sequence[str]) -> str | None:
        """The type of cells that are not all numbers, if they are all of one type."""
        distinct = set(cells)
        lower = set(map(str.lower, distinct))
        if lower <= BOOLS.keys():
            return "bool" if not self.is_key or distinct <= BOOLS.keys() else None
        kinds = set(map(_date_kind, distinct)) if self.dates else {"text"}
        if len(kinds) > 1 or lower & BOOLS.keys():
            return None
        return kinds.pop() if ANY_NUMBER.search(_in_lines(cells)) is None else None

    def one_by_one(self, cells: Sequence[str], places: Sequence[int]) -> None:
        """Look at each cell, to say which one makes text of the column."""
        for cell, plain, place in zip(cells, self.numbers.plain(cells), places, strict=True):
            kind, why = self.kind_of_cell(plain, _shown(cell, place))
            self.merge(kind, cell, place, why)
            if self.kind == "text" and self.why:
                return

    def kind_of_cell(self, cell: str, shown: str) -> tuple[str, str]:
        """The type of one cell; and for text that is a number, why it is text all the same."""
        if IS_NUMBER.match(cell) is None:
            if cell.lower() not in BOOLS:
                return _date_kind(cell) if self.dates else "text", ""
            is_written_so = not self.is_key or cell in BOOLS
            return ("bool", "") if is_written_so else ("text", f"{shown} is a key, and no bool is written so")
        if ANY_ZERO_FIRST.match(f"\n{cell}"):
            return "text", f"{shown} begins with a zero"
        number: Any = _int(cell) if IS_INT.match(cell) else float(cell)
        if type(number) is float:
            digits = cell.lower().partition("e")[0].strip("+-. \t0")
            if abs(number) == INFINITY or (digits and not number):
                return "text", f"{shown} does not fit into a float"
            if ANY_CODE.match(f"\n{cell}\n"):
                self.code = self.code or shown
            self.has_point = self.has_point or "." in cell
        elif not self.large and not _is_exactly_a_float(number):
            self.large = shown
        if self.is_key and (len(cell) > DIGITS_WRITTEN or cell != str(number)):
            return "text", f"{shown} is a key, and no number is written so"
        return type(number).__name__, ""

    def merge(self, kind: str, cell: str, place: int, why: str = "") -> None:
        """Note that the column has a cell of a type."""
        if self.kind is None or kind == self.kind:
            self.kind = kind
            self.why = self.why or why
        elif {kind, self.kind} == {"int", "float"} and not self.is_key:
            self.kind = "float"
        elif self.kind == "text":
            self.why = self.why or why or f"{_shown(cell, place)} is a {_said(kind)}, and others are not"
        else:
            self.why = why or f"{_shown(cell, place)} is no {_said(self.kind)}"
            self.kind = "text"

    def take_quoted(self, cell: str, place: int) -> None:
        """Note a cell in quotes that say that it is text."""
        if not cell:
            self.empty = self.empty or place
        elif not self.quoted:
            self.quoted = f"{_shown(cell, place)} is in quotes"

    @property
    def is_empty(self) -> bool:
        """Whether no cell has anything in it."""
        return self.kind is None and not (self.word or self.quoted or self.empty)

    def decide(self) -> str:
        """The type of the column, after all of its cells."""
        if self.kind in (None, "text"):
            self.kind = "text"
            return "text"
        if self.quoted:
            self.why = self.quoted
        elif self.kind == "float" and self.code and not self.has_point:
            self.why = f"{self.code} looks like a code"
        elif self.kind == "float" and self.large:
            self.why = f"{self.large} has more digits than a float"
        elif self.word and self.kind != "float":
            self.why = f"{self.word} is no {self.kind}"
        if self.why:
            self.kind = "text"
        return self.kind

    def notes(self) -> list[str]:
        """What the report says of a column that has been decided."""
        if self.why:
            return [f"column {self.name!r} is text: {self.why}"]
        if self.empty and self.kind != "text":
            return [
                f"column {self.name!r} has {self.kind}s, and empty quotes, as in line {self.empty}, no value"
            ]
        return []


def _in_lines(cells: Sequence[str]) -> str:
    return "\n".join(["", *cells, ""])


def _shown(cell: str, place: int) -> str:
    return f"{cell!r:.40} of line {place}"


def _said(kind: str) -> str:
    return "number" if kind in ("int", "float") else kind


def _is_exactly_a_float(number: int) -> bool:
    try:
        return float(number) == number
    except OverflowError:
        return False


def _date_kind(cell: str) -> str:
    kind = "date" if DATE.match(cell) else "datetime" if DATETIME.match(cell) else "text"
    if kind != "text":
        try:
            when(cell)
        except ValueError:
            return "text"
    return kind
