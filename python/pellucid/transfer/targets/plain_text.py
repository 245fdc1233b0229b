"""This module writes values as JSON, and says how types that JSON lacks are written."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable
from typing import Any

__all__ = ["as_text", "encoder", "lines_encoder"]


def encoder() -> Callable[[Any], bytes]:
    """A function from a plain value to one line of JSON, without its newline.

    It raises `TypeError` or `ValueError` for a value that has no JSON. msgspec does it if it is installed,
    and for what that would change, the standard library does: NaN, which both read, and unusual keys.
    """
    try:
        import msgspec
    except ImportError:
        return _slow
    encode = msgspec.json.Encoder(enc_hook=_default).encode

    def fast(value: Any) -> bytes:
        try:
            line = encode(value)
        except (TypeError, ValueError, RecursionError):
            return _slow(value)
        # msgspec writes NaN as null.
        return _slow(value) if b"null" in line and _has_special_float(value) else line

    return fast


def lines_encoder() -> Callable[[list[Any]], bytes]:
    """A function from values to lines of JSON; it raises as that of `encoder` does, for any of the values."""
    encode = encoder()
    try:
        import msgspec
    except ImportError:
        return lambda values: b"".join(encode(value) + b"\n" for value in values)
    fast = msgspec.json.Encoder(enc_hook=_default).encode

    def lines(values: list[Any]) -> bytes:
        # This is a loop without a step of Python. One look for null tells whether a NaN was lost.
        try:
            data = b"\n".join(list(map(fast, values)))
        except (TypeError, ValueError, RecursionError):
            data = b"null"
        if b"null" in data:
            return b"".join(encode(value) + b"\n" for value in values)
        return data + b"\n"

    return lines


def _slow(value: Any) -> bytes:
    try:
        return _ENCODER.encode(value).encode("utf-8")
    except UnicodeEncodeError:
        # Half of a surrogate pair has no UTF-8, and can only be escaped.
        return json.dumps(value, separators=(",", ":"), default=_default).encode("ascii")


def _has_special_float(value: Any) -> bool:
    kind = type(value)
    if kind is float:
        return not math.isfinite(value)
    if kind is dict:
        return any(map(_has_special_float, value.values()))
    return kind in (list, tuple, set, frozenset) and any(map(_has_special_float, value))


def _default(value: Any) -> Any:
    """What stands for a value of a type that JSON does not have."""
    if isinstance(value, (set, frozenset)):
        return list(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, complex):
        raise TypeError("a complex number has no JSON")
    if hasattr(value, "tolist"):
        return value.tolist()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if type(value).__module__ in ("decimal", "uuid"):
        return str(value)
    if hasattr(value, "total_seconds"):
        return _duration(value)
    raise TypeError(f"a {type(value).__module__}.{type(value).__qualname__} has no JSON")


def _duration(value: Any) -> str:
    """A timedelta in the form of ISO 8601, as msgspec writes it: `P1DT5.5S`, `-PT1S`."""
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    if not micros:
        return "P0D"
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    days, micros = divmod(micros, 86_400_000_000)
    seconds, micros = divmod(micros, 1_000_000)
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    time = f"T{seconds}{fraction}S" if seconds or micros else ""
    return f"{sign}P{f'{days}D' if days else ''}{time}"


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=_default, ensure_ascii=False)


def as_text(value: Any, to_json: Callable[[Any], bytes]) -> Any:
    """A cell for CSV and SQLite: numbers and texts as they are, everything else as JSON or as its text."""
    kind = type(value)
    if kind is str or kind is float or kind is int or value is None:
        return value
    if kind is bool:
        return "true" if value else "false"
    text = to_json(value).decode("utf-8")
    return json.loads(text) if text[:1] == '"' else text
