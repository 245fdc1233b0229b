"""This module makes text that fits: of one value, and of rows in columns.

Names and values are those of a file, which a stranger may have made. All that is written for people goes
through `escaped`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from pellucid._native import Record, RecordList, _brief
from pellucid.classes import as_plain

__all__ = ["cell", "columns_of", "cut", "escaped", "grid", "nested", "room_of_terminal"]

CUT = "\u2026"
GAP = "  "
# A narrower column shows nothing of use.
COLUMN_MIN = 7
COLUMN_MAX = 40
CONTAINERS: dict[Any, str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}"}
# What is inside more containers is not shown.
DEPTH_MAX = 8


def escaped(text: str, kept: str = "") -> str:
    """A text without characters that would control the terminal, or turn the order of others around.

    The signs in `kept` stay as they are.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() or sign in kept else repr(sign)[1:-1] for sign in text)


def room_of_terminal() -> int:
    """The columns of the terminal."""
    import shutil

    return shutil.get_terminal_size((80, 24)).columns


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(sign) else 2 if unicodedata.east_asian_width(sign) in "WF" else 1
        for sign in text
    )


def cut(text: str, room: int) -> str:
    """A text that takes at most `room` columns of a terminal; the begin of a longer one."""
    if columns_of(text) <= room:
        return text
    taken, size = "", 0
    for sign in text:
        size += columns_of(sign)
        if size >= room:
            break
        taken += sign
    return taken + CUT


def cell(value: Any, room: int = COLUMN_MAX) -> str:
    """A value in at most `room` columns of a terminal: a str as it is, all else as `repr` shows it."""
    text = value[: room + 1] if issubclass(type(value), str) else nested(value, room)
    return cut(escaped(text), room)


def nested(value: Any, room: int, depth: int = 0) -> str:
    """The text of `repr`, or the begin of it; of a large value no more is read than is shown."""
    # By its type: an instance of a user's class may claim to be of another, or fail at it.
    cls = type(value)
    if issubclass(cls, (str, bytes, bytearray)):
        return _of_any(value[: room + 1])
    if depth == DEPTH_MAX:
        return CUT
    if issubclass(cls, (Record, dict)):
        parts = (f"{_of_any(key)}: {nested(part, room, depth + 1)}" for key, part in pairs(value, room))
        return _joined(parts, "{}", room)
    if issubclass(cls, RecordList):
        return _joined((nested(part, room, depth + 1) for _, part in pairs(value, room)), "[]", room)
    brackets = CONTAINERS.get(cls)
    if brackets is not None and value:
        return _joined((nested(part, room, depth + 1) for part in value), brackets, room)
    return _of_any(value)


def pairs(value: Any, count: int) -> Iterable[tuple[Any, Any]]:
    """The first fields of a record or dict, or the first elements of a list, each with its name or index."""
    if isinstance(value, (Record, RecordList)):
        return _brief(value, count)[0]
    return islice(value.items(), count)


def fields_of(value: Any, count: int) -> list[tuple[Any, Any]] | None:
    """The first fields of a row, and one more if there are more; None if it has no fields."""
    if not issubclass(type(value), (Record, dict)):
        try:
            plain = as_plain(value)
        except Exception:
            # The class's own code fails at it; `_of_any` says so.
            return None
        if plain is None or not isinstance(plain[0], dict):
            return None
        value = plain[0]
    return list(pairs(value, count + 1))


def _joined(parts: Iterable[str], brackets: str, room: int) -> str:
    """The parts with commas between them, as many as there is room for."""
    taken: list[str] = []
    size = 0
    for part in parts:
        if size > room:
            taken.append(CUT)
            break
        taken.append(part)
        size += len(part) + 2
    text = ", ".join(taken)
    if brackets == "()" and len(taken) == 1:
        text += ","
    return brackets[0] + text + brackets[1]


def _of_any(value: Any) -> str:
    # Objects of other libraries say in their own words what they are, and may fail at it.
    try:
        # Arrays have lines.
        return repr(value) if issubclass(type(value), str) else " ".join(repr(value).split())
    except Exception as error:
        return f"<{type(value).__name__}, {type(error).__name__}>"


def grid(names: Sequence[str], rows: Sequence[Sequence[str]], room: int) -> tuple[str, int]:
    """Rows in columns, as many columns as there is room for, and how many these are.

    The widest columns give way first.
    """
    natural = [
        max(columns_of(text) for text in (name, *column))
        for name, column in zip(names, _turned(names, rows), strict=True)
    ]
    count = _fitting(natural, room)
    widths = _narrowed(natural[:count], room - len(GAP) * (count - 1))
    is_number = [
        any(column) and all(map(_is_number, filter(None, column))) for column in _turned(names[:count], rows)
    ]

    def line(texts: Sequence[str]) -> str:
        shown = (
            _aligned(cut(text, width), width, is_right)
            for text, width, is_right in zip(texts, widths, is_number, strict=False)
        )
        return GAP.join(shown).rstrip()

    return "\n".join(map(line, [names, *rows])), count


def _turned(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    return ([row[index] for row in rows] for index in range(len(names)))


def _fitting(natural: Sequence[int], room: int) -> int:
    """How many of the columns fit, each at its least width; at least one."""
    size = 0
    for count, width in enumerate(natural):
        size += min(width, COLUMN_MIN) + len(GAP)
        if size - len(GAP) > room and count:
            return count
    return len(natural)


def _narrowed(natural: list[int], room: int) -> list[int]:
    widths = list(natural)
    while sum(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return widths


def _aligned(text: str, width: int, is_right: bool) -> str:
    blank = " " * (width - columns_of(text))
    return blank + text if is_right else text + blank


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).removeprefix("-").isdigit()
