"""This module reads values from text on request: dates, JSON, and the types that `types=` names."""

from __future__ import annotations

import operator
import re
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable, Mapping
from typing import Any

from pellucid.transfer.digits import Number, keeps_digits, read_int, with_numbers
from pellucid.transfer.sources.json_values import loads

__all__ = ["TYPES", "converter", "reader_of", "when", "with_dicts"]

Convert = Callable[[Any], Any]

# `datetime.fromisoformat` takes many more forms since Python 3.11. Only these are dates beyond doubt.
DATE = re.compile(r"\d{4}-\d\d-\d\d\Z", re.ASCII)
TIME = re.compile(r"\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?\Z", re.ASCII)
DATETIME = re.compile(rf"\d{{4}}-\d\d-\d\d[T ]{TIME.pattern}", re.ASCII)
# A duration without years and months, which have no length of their own.
DURATION = re.compile(
    r"([-+]?)P(?=[\dT])(?:(\d+)W)?(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)(?:\.(\d{1,6}))?S)?)?\Z",
    re.ASCII,
)
INT = re.compile(r"\s*[-+]?[0-9]+\s*\Z", re.ASCII)
INFINITY = float("inf")
CONTAINERS = (dict, list, tuple, Counter, OrderedDict, defaultdict)
BOOLS = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}


def reader_of(kind: str, unpickle: Convert) -> Convert:
    """The function that reads a value of a type of `types`; it raises `ValueError` for one that is not."""
    known = {**TYPES, "pickle": unpickle}
    if kind not in known:
        raise ValueError(f"types= has no type {kind!r}; those are {', '.join(known)}")
    return known[kind]


def converter(
    types: str | Mapping[str, str] | None, dates: bool, unpickle: Convert, unseen: set[str]
) -> Convert | None:
    """The function that converts a whole value as `types` and `dates` say; None if they ask for nothing.

    It raises `ValueError` for a value that is not of its type. `unpickle` loads values of type "pickle". The
    names in `types` are in `unseen` as long as no value had such a field.
    """
    steps: list[Convert] = []
    if isinstance(types, str):
        steps.append(_of_all(_optional(reader_of(types, unpickle))))
    elif types:
        unseen.update(types)
        readers = {name: _optional(reader_of(kind, unpickle)) for name, kind in types.items()}
        steps.append(_of_fields(readers, unseen))
    if dates:
        steps.append(_with_dates)
    if keeps_digits(types):
        # Those are the numbers of fields that got no type.
        steps.append(with_numbers)
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


def _optional(convert: Convert) -> Convert:
    return lambda value: None if value is None else convert(value)


def _of_all(read: Convert) -> Convert:
    """A function that reads a value; or each value in it, if it has fields or elements."""

    def convert(value: Any) -> Any:
        kind = type(value)
        if kind is dict:
            return {name: _named(name, convert, part) for name, part in value.items()}
        return list(map(convert, value)) if kind is list else read(value)

    return convert


def _of_fields(by_name: dict[str, Convert], unseen: set[str]) -> Convert:
    def convert(row: Any) -> Any:
        if not isinstance(row, dict):
            return row
        refused: ValueError | None = None
        for name, read in by_name.items():
            # A name with dots may be that of a field.
            steps = [name] if name in row or "." not in name else name.split(".")
            try:
                changed = _changed(row, steps, name, read)
            except ValueError as error:
                # The row has the field, and a value in it that is not of the type.
                unseen.discard(name)
                refused = refused or error
                continue
            if changed is not None:
                unseen.discard(name)
                row = changed
        if refused is not None:
            raise refused
        return row

    return convert


def _changed(row: dict[Any, Any], steps: list[str], name: str, read: Convert) -> dict[Any, Any] | None:
    """The row with another value at a path; None if it has none there."""
    step, *rest = steps
    if step not in row:
        return None
    part = row[step]
    if not rest:
        return {**row, step: _named(name, read, part)}
    part = _changed(part, rest, name, read) if isinstance(part, dict) else None
    return None if part is None else {**row, step: part}


def _named(name: str, read: Convert, value: Any) -> Any:
    try:
        return read(value)
    except (ValueError, TypeError, ArithmeticError, LookupError) as error:
        raise ValueError(f"field {name!r}: {error}") from error


def _with_dates(value: Any) -> Any:
    """The value with a date or datetime in place of each string that is one, at any depth."""
    kind = type(value)
    if kind is str:
        # Shorter and longer texts need no look at their characters.
        if 10 <= len(value) <= 32 and value[4] == "-" and (DATE.match(value) or DATETIME.match(value)):
            try:
                return when(value)
            except ValueError:
                return value
        return value
    if kind is dict:
        return {name: _with_dates(part) for name, part in value.items()}
    if kind is list:
        return [_with_dates(part) for part in value]
    return value


def when(text: Any) -> Any:
    """The date or datetime that a text is; raises `ValueError` for others."""
    import datetime

    text = _text(text, "date")
    if DATE.match(text):
        return datetime.date.fromisoformat(text)
    if DATETIME.match(text):
        return datetime.datetime.fromisoformat(_as_written(text))
    raise ValueError(
        f"{text[:40]!r} is not an ISO date or datetime, such as 2000-01-31 or 2000-01-31T12:30:00"
    )


def _as_written(text: str) -> str:
    """A datetime or time as `isoformat` writes it.

    Before Python 3.11, `fromisoformat` wants 3 or 6 digits of a second, and no Z.
    """
    main, dot, rest = text.partition(".")
    if dot:
        digits = re.match(r"\d+", rest)
        count = digits.end() if digits else 0
        text = f"{main}.{rest[:count]:0<6}{rest[count:]}"
    return text.removesuffix("Z") + "+00:00" * text.endswith("Z")


def _time(value: Any) -> Any:
    import datetime

    text = _text(value, "time")
    return datetime.time.fromisoformat(_as_written(text)) if TIME.match(text) else _refuse(value, "time")


def _timedelta(value: Any) -> Any:
    import datetime

    if isinstance(value, datetime.timedelta):
        return value
    found = DURATION.match(_text(value, "timedelta"))
    if found is None:
        raise ValueError(f"{value!r:.40} is not an ISO duration, such as P1DT2H or PT1.5S")
    sign, *parts, fraction = found.groups("0")
    weeks, days, hours, minutes, seconds = map(int, parts)
    # No step is beyond the range of a timedelta if the result is in it.
    whole = datetime.timedelta(weeks * 7 + days, (hours * 60 + minutes) * 60 + seconds)
    micros = datetime.timedelta(microseconds=int(f"{fraction:0<6}"))
    return -whole - micros if sign == "-" else whole + micros


def _text(value: Any, kind: str = "text") -> str:
    if isinstance(value, bytes):
        return value.decode("utf-8")
    if isinstance(value, (str, int, float)) or type(value).__module__ in ("datetime", "decimal", "uuid"):
        return str(value)
    # What Python shows of a list is no text that anybody wants back.
    found: str = _refuse(value, kind)
    return found


def _int(value: Any) -> int:
    if type(value) is Number and INT.match(value) is None:
        return _whole(value)
    if isinstance(value, (int, float)):
        return int(value) if value == value // 1 else _refuse(value, "int")
    text = _text(value, "int")
    # `int` reads `1_000` and digits of all scripts, and refuses more digits than 4,300.
    return read_int(text.strip()) if INT.match(text) else _refuse(value, "int")


def _whole(number: Number) -> int:
    """The int that a number with a point or an exponent is."""
    # An exponent can be too large for memory, and a float has a limit for that.
    found = _decimal(number) if abs(number.read()) != INFINITY else _refuse(number, "int")
    return int(found) if found == int(found) else int(_refuse(number, "int"))


def _float(value: Any) -> float:
    text = _text(value, "float")
    try:
        number = float(text)
    except ValueError:
        return float(_refuse(value, "float"))
    is_changed = number in (INFINITY, -INFINITY) and "inf" not in text.lower()
    return _refuse(value, "float") if is_changed or "_" in text or not text.isascii() else number


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

    if isinstance(value, bytes) and len(value) == 16:
        return UUID(bytes=value)
    try:
        return UUID(_text(value, "uuid"))
    except ValueError:
        return _refuse(value, "uuid")


def _json(value: Any) -> Any:
    return loads(value) if isinstance(value, (str, bytes)) else value


def _bytes(value: Any) -> bytes:
    import base64

    if isinstance(value, bytes):
        return value
    try:
        text = "".join(value.split()) if type(value) is str else ""
        found = base64.b64decode(text, validate=True)
    except ValueError:
        found, text = b"", "?"
    # Another text than an export writes was probably not meant as base64.
    if type(value) is not str or base64.b64encode(found).decode() != text:
        raise ValueError(f"{value!r:.40} is not of type bytes, which are base64 in a text")
    return found


def _refuse(value: Any, kind: str) -> Any:
    raise ValueError(f"{value!r:.40} is not of type {kind}")


TYPES: dict[str, Convert] = {
    "text": _text,
    "int": _int,
    "float": _float,
    "bool": _bool,
    "decimal": _decimal,
    "date": when,
    "time": _time,
    "timedelta": _timedelta,
    "uuid": _uuid,
    "json": _json,
    "bytes": _bytes,
}
