"""This module decides the type of each column of a CSV file, from all of its cells.

A column of numbers is text if its numbers look like codes, if one of them does not fit, or if they are keys
and could not be written back.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from pellucid._native import cell_kinds
from pellucid.transfer.convert import DATE, DATETIME, when
from pellucid.transfer.digits import read_int

__all__ = ["LOOKS_TYPED", "WORDS", "Column", "Numbers", "read_bools"]

# What `float` and `int` accept, without words, `_` and digits of other scripts. Blanks may be around it.
NUMBER = r"[ \t]*[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[ \t]*"
# The floats that Python writes as words. They are numbers only in a column of floats.
WORDS = frozenset(("nan", "inf", "-inf"))
# What programs write for a value that is not there. They are text, but the report asks whether that is meant.
NULLS = frozenset(
    (
        *("NA", "N/A", "n/a", "na", "#N/A", "#NA", "NaN", "NAN", "null", "NULL", "Null", "None", "none"),
        *("nil", "missing", "unknown", "\\N", "-", "--", "?", "."),
    )
)
NO_NULLS: frozenset[str] = frozenset()
BOOLS = {"true": True, "false": False}
# Text that is taken for another value if it has no quotes.
LOOKS_TYPED = re.compile(rf"(?:{NUMBER}|[tT][rR][uU][eE]|[fF][aA][lL][sS][eE]|nan|-?inf)\Z")

IS_NUMBER = re.compile(rf"{NUMBER}\Z")
IS_INT = re.compile(r"[ \t]*[-+]?[0-9]+[ \t]*\Z")
ZERO_FIRST = re.compile(r"[ \t]*[-+]?0[0-9]")
CODE = re.compile(r"[ \t]*[0-9]+[eE][0-9]+[ \t]*\Z")
# The types among what `cell_kinds` says.
TYPES = {"int", "float", "bool", "text"}
NUMBERS = {"int", "float"}
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
            whole = self.grouped.match(cell)
            if whole is None or self.thousands in cell[whole.end() :]:
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

    def __init__(
        self, name: str, *, is_key: bool, dates: bool, numbers: Numbers, given_nulls: frozenset[str]
    ) -> None:
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
        # The words that stand for no value, as the caller says; and the first cell of each other that may.
        self.given_nulls = given_nulls
        self.nulls: dict[str, str] = {}
        # Where the first empty cell in quotes is.
        self.empty = ""
        # What is said before the number of a line.
        self.place = "line"

    def shown(self, cell: str, line: int) -> str:
        """A cell and its place, in words."""
        return f"{cell!r:.40} of {self.place} {line}"

    def take(self, cells: Sequence[str], places: Sequence[int]) -> None:
        """Look at some cells. They are looked at one by one only if they say something new of the column."""
        if self.kind == "text" and self.why:
            return
        plain = self.numbers.plain(cells)
        nulls = NO_NULLS if self.is_key or self.kind == "text" else NULLS
        found = cell_kinds(plain, nulls) - {"empty"}
        if self.word:
            found.discard("word")
        if "null" in found and nulls.intersection(cells) <= self.nulls.keys():
            found.discard("null")
        if self.kind == "text":
            # The report says whether a column of text has numbers in it.
            is_new = bool(found & NUMBERS)
        elif not found:
            is_new = False
        else:
            kind = self.kind_of(found, plain)
            self.kind = self.kind or kind
            is_int_of_floats = kind == "int" and self.kind == "float" and not self.is_key
            is_new = kind is None or not (kind == self.kind or is_int_of_floats)
        if is_new:
            self.one_by_one(cells, plain, places)

    def kind_of(self, found: set[str], cells: Sequence[str]) -> str | None:
        """The type of cells that are all of one type; None if they have to be looked at one by one."""
        kinds = found & TYPES
        if kinds == NUMBERS and not self.is_key:
            kinds = {"float"}
        if len(kinds) != 1 or found & {"odd", "word", "null"} or ("long" in found and not self.large):
            return None
        if "code" in found and not (self.has_point or self.code):
            return None
        if self.is_key and not _are_written_so(found, cells):
            return None
        if kinds == {"text"} and self.dates:
            kinds = set(map(_date_kind, filter(None, set(cells))))
        self.has_point = self.has_point or "point" in found
        return kinds.pop() if len(kinds) == 1 else None

    def one_by_one(self, cells: Sequence[str], plain: Sequence[str], places: Sequence[int]) -> None:
        """Look at each cell, to say which one makes text of the column."""
        for cell, read, place in zip(cells, plain, places, strict=True):
            if cell in WORDS and not self.is_key:
                self.word = self.word or self.shown(cell, place)
            elif cell in NULLS and self.kind != "text" and not self.is_key:
                self.nulls.setdefault(cell, self.shown(cell, place))
            elif cell and (self.kind != "text" or IS_NUMBER.match(read)):
                # Among texts, words such as `true` and dates are no surprise, but numbers are.
                kind, why = self.kind_of_cell(read, self.shown(cell, place))
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
        if ZERO_FIRST.match(cell):
            return "text", f"{shown} begins with a zero"
        number: Any = _int(cell) if IS_INT.match(cell) else float(cell)
        if type(number) is float:
            digits = cell.lower().partition("e")[0].strip("+-. \t0")
            if abs(number) == INFINITY or (digits and not number):
                return "text", f"{shown} does not fit into a float"
            if CODE.match(cell):
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
            self.why = self.why or why or f"{self.shown(cell, place)} is a number, and others are not"
        else:
            self.why = why or f"{self.shown(cell, place)} is no {_said(self.kind)}"
            self.kind = "text"

    def take_quoted(self, cell: str, place: int) -> None:
        """Note a cell in quotes that say that it is text."""
        if not cell:
            self.empty = self.empty or f"{self.place} {place}"
        elif not self.quoted:
            self.quoted = f"{self.shown(cell, place)} is in quotes"

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
        elif self.nulls:
            first, *_ = self.nulls.values()
            words = [*sorted(self.given_nulls), *self.nulls]
            said = json.dumps(words[0] if len(words) == 1 else words)
            self.why = (
                f"{first} is no {_said(self.kind)}; if it stands for no value, "
                f'dialect={{"null": {said}}} says so'
            )
        if self.why:
            self.kind = "text"
        return self.kind

    def notes(self) -> list[str]:
        """What the report says of a column that has been decided."""
        if self.why:
            return [f"column {self.name!r} is text: {self.why}"]
        if self.empty and self.kind != "text":
            return [f"column {self.name!r} has {self.kind}s, and empty quotes, as in {self.empty}, no value"]
        return []


def _are_written_so(found: set[str], cells: Sequence[str]) -> bool:
    """Whether cells of one type are exactly what Python writes for their values."""
    if "float" in found:
        return all(repr(float(cell)) == cell for cell in cells if cell)
    return "respelled" not in found


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
