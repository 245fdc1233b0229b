"""This module reads values from text on request: dates, JSON, and the types that `types=` names."""

from __future__ import annotations

import json
import operator
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["TYPES", "NoWholeValue", "converter", "from_cell", "number", "with_dicts"]

Convert = Callable[[Any], Any]

# `datetime.fromisoformat` takes many more forms since Python 3.11. Only these are dates beyond doubt.
DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
DATETIME = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?\Z", re.ASCII)
INT = re.compile(r"-?(0|[1-9]\d*)\Z", re.ASCII)
FLOAT = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?\Z", re.ASCII)
CONTAINERS = (dict, list, tuple, Counter, OrderedDict, defaultdict)
SPECIAL_FLOATS = {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}
BOOLS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


class NoWholeValue(TypeError):
    """One type for whole values, and rows of fields: the import ends, and does not skip all rows."""


def converter(types: str | Mapping[str, str] | None, dates: bool, unpickle: Convert) -> Convert | None:
    """The function that converts a whole value as `types` and `dates` say; None if they ask for nothing.

    It raises `ValueError` for a value that is not of its type. `unpickle` loads values of type "pickle".
    """
    known = {**TYPES, "pickle": unpickle}

    def reader(kind: str) -> Convert:
        if kind not in known:
            raise ValueError(f"types= has no type {kind!r}; those are {', '.join(known)}")
        return _optional(known[kind])

    steps: list[Convert] = []
    if isinstance(types, str):
        steps.append(_of_whole(types, reader(types)))
    elif types:
        steps.append(_of_fields({name: reader(kind) for name, kind in types.items()}))
    if dates:
        steps.append(_with_dates)
    if not steps:
        return None
    if len(steps) == 1:
        return steps[0]

    def convert(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return convert


def with_dicts(value: Any) -> Any:
    """The value with a dict in place of each OrderedDict, defaultdict and Counter, at any depth.

    It is the same object if there is none. A value that contains itself raises `RecursionError`.
    """
    # By address, because a pickle may have one part in very many places.
    made: dict[int, Any] = {}

    def convert(part: Any) -> Any:
        kind = type(part)
        if kind not in CONTAINERS:
            return part
        if id(part) not in made:
            if issubclass(kind, dict):
                pairs = {name: convert(inner) for name, inner in part.items()}
                is_same = kind is dict and all(map(operator.is_, pairs.values(), part.values()))
                made[id(part)] = part if is_same else pairs
            else:
                parts = kind(map(convert, part))
                made[id(part)] = part if all(map(operator.is_, parts, part)) else parts
        return made[id(part)]

    return convert(value)


def number(text: str) -> Any:
    """The number that a text is, as Python writes numbers; else the text. `007` stays a text."""
    if INT.match(text):
        return int(text)
    if FLOAT.match(text):
        return float(text)
    return SPECIAL_FLOATS.get(text, text)


def from_cell(text: str) -> Any:
    """The value of a cell of CSV: a number or a bool, else the text."""
    if text == "true":
        return True
    if text == "false":
        return False
    return number(text)


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _of_whole(kind: str, read: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if isinstance(value, CONTAINERS) and kind != "json":
            raise NoWholeValue(
                f'types="{kind}" is for sources of single values, such as dbm and LMDB, and not for rows '
                'with fields; name the type of a field, as in types={"zip": "text"}'
            )
        return read(value)

    return convert


def _of_fields(by_name: dict[str, Convert]) -> Convert:
    def convert(row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        row = {**row}
        for name, read in by_name.items():
            if name in row:
                try:
                    row[name] = read(row[name])
                except (ValueError, TypeError, ArithmeticError, LookupError) as error:
                    raise ValueError(f"field {name!r}: {error}") from error
        return row

    return convert


def _with_dates(value: Any) -> Any:
    """The value with a date or datetime in place of each string that is one, at any depth."""
    kind = type(value)
    if kind is str:
        # Shorter and longer texts need no look at their characters.
        if 10 <= len(value) <= 32 and value[4] == "-" and (DATE.match(value) or DATETIME.match(value)):
            try:
                return _when(value)
            except ValueError:
                return value
        return value
    if kind is dict:
        return {name: _with_dates(part) for name, part in value.items()}
    if kind is list:
        return [_with_dates(part) for part in value]
    return value


def _when(text: Any) -> Any:
    import datetime

    text = _text(text, "date")
    if DATE.match(text):
        return datetime.date.fromisoformat(text)
    if DATETIME.match(text):
        # Before Python 3.11, fromisoformat wants 3 or 6 digits of a second, and no Z.
        main, dot, rest = text.partition(".")
        if dot:
            digits = re.match(r"\d+", rest)
            count = digits.end() if digits else 0
            text = f"{main}.{rest[:count]:0<6}{rest[count:]}"
        return datetime.datetime.fromisoformat(text.removesuffix("Z") + "+00:00" * text.endswith("Z"))
    raise ValueError(
        f"{text[:40]!r} is not an ISO date or datetime, such as 2000-01-31 or 2000-01-31T12:30:00"
    )


def _text(value: Any, kind: str = "text") -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, (str, int, float)) or type(value).__module__ in ("datetime", "decimal", "uuid"):
        return str(value)
    # What Python shows of a list is no text that anybody wants back.
    found: str = _refuse(value, kind)
    return found


def _int(value: Any) -> int:
    if isinstance(value, (int, float)):
        return int(value) if value == value // 1 else _refuse(value, "int")
    return int(_text(value, "int"))


def _float(value: Any) -> float:
    return float(_text(value, "float"))


def _bool(value: Any) -> bool:
    found = BOOLS.get(_text(value, "bool").lower())
    return _refuse(value, "bool") if found is None else found


def _decimal(value: Any) -> Any:
    from decimal import Decimal, InvalidOperation

    try:
        return Decimal(_text(value, "decimal"))
    except InvalidOperation:
        return _refuse(value, "decimal")


def _uuid(value: Any) -> Any:
    from uuid import UUID

    return UUID(bytes=value) if isinstance(value, bytes) and len(value) == 16 else UUID(_text(value, "uuid"))


def _json(value: Any) -> Any:
    return json.loads(value) if isinstance(value, (str, bytes)) else value


def _bytes(value: Any) -> bytes:
    return value if isinstance(value, bytes) else _text(value, "bytes").encode("utf-8")


def _refuse(value: Any, kind: str) -> Any:
    raise ValueError(f"{value!r:.40} is not of type {kind}")


TYPES: dict[str, Convert] = {
    "text": _text,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "decimal": _decimal,
    "date": _when,
    "uuid": _uuid,
    "json": _json,
    "bytes": _bytes,
}
