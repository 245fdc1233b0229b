"""This module writes values as JSON, and says how types that JSON lacks are written."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from typing import Any

import pellucid
from pellucid import to_builtin
from pellucid.transfer.digits import is_long, write_int

__all__ = ["HALF", "as_text", "encoder", "lines_encoder"]

HALF = re.compile("[\ud800-\udfff]")
# Both halves of a surrogate pair, as two characters.
PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def encoder(nan_as_null: bool = False) -> Callable[[Any], bytes]:
    """A function from a plain value to one line of JSON, without its newline.

    It raises `TypeError` or `ValueError` for a value that has no JSON. msgspec does it if it is installed,
    and the standard library what msgspec would change: NaN, unless that is to become null, and names that
    are no texts.
    """
    fast = _fast_encoder(nan_as_null)
    return lambda value: fast(value) if _has_names(value) else _with_care(value, nan_as_null)


def lines_encoder(nan_as_null: bool = False, between: bytes = b"\n") -> Callable[[list[Any]], bytes]:
    """A function from values to lines of JSON; it raises as that of `encoder` does, for any of the values."""
    one, one_with_care = _fast_encoder(nan_as_null), encoder(nan_as_null)
    try:
        import msgspec
    except ImportError:
        fast = None
    else:
        fast = msgspec.json.Encoder(enc_hook=to_builtin).encode
    seen = -1

    def lines(values: list[Any]) -> bytes:
        nonlocal seen
        before, seen = seen, pellucid.counters()["other_keys_decoded"]
        if seen != before:
            return between.join(map(one_with_care, values))
        if fast is not None:
            # This is a loop without a step of Python. One look for null tells whether a NaN was lost.
            try:
                data = between.join(list(map(fast, values)))
            except (TypeError, ValueError, RecursionError):
                data = b"null"
            if nan_as_null or b"null" not in data:
                return data
        return between.join(map(one, values))

    return lines


def _fast_encoder(nan_as_null: bool) -> Callable[[Any], bytes]:
    """As `encoder`, for values whose dicts have texts for names."""
    try:
        import msgspec
    except ImportError:
        return lambda value: _slow(value, nan_as_null)
    encode = msgspec.json.Encoder(enc_hook=to_builtin).encode

    def fast(value: Any) -> bytes:
        try:
            line = encode(value)
        except (TypeError, ValueError, RecursionError):
            return _slow(value, nan_as_null)
        # msgspec writes NaN as null.
        if not nan_as_null and b"null" in line and _has_special_float(value):
            return _slow(value, nan_as_null)
        return line

    return fast


def _slow(value: Any, nan_as_null: bool) -> bytes:
    try:
        return _as_bytes((_STRICT if nan_as_null else _ENCODER).encode(value))
    except ValueError:
        # An int of more digits than `str` writes, or NaN, which has to become null.
        return _with_care(value, nan_as_null)


def _as_bytes(text: str) -> bytes:
    """The bytes of JSON. Half of a surrogate pair has no UTF-8, and can only be escaped."""
    if not text.isascii() and PAIR.search(text):
        raise ValueError("a text has both halves of a surrogate pair, which JSON joins to one character")
    return text.encode("utf-8", "backslashreplace")


def _with_care(value: Any, nan_as_null: bool) -> bytes:
    """As `encoder`, with a look at each part."""

    def write(value: Any) -> str:
        kind = type(value)
        if kind is dict:
            names: dict[str, Any] = {}
            for key, part in value.items():
                name = key if type(key) is str else _name(key)
                if name in names:
                    raise ValueError(f"a dict has {name!r} and another key that is this name in JSON")
                names[name] = part
            parts = (f"{_ENCODER.encode(name)}:{write(part)}" for name, part in names.items())
            return f"{{{','.join(parts)}}}"
        if kind is list or kind is tuple:
            return f"[{','.join(map(write, value))}]"
        if kind is int:
            return write_int(value)
        if kind is float and nan_as_null and not math.isfinite(value):
            return "null"
        return (
            _ENCODER.encode(value)
            if kind in (float, str, bool) or value is None
            else write(to_builtin(value))
        )

    return _as_bytes(write(value))


def _name(key: Any) -> str:
    """The name in JSON of a key that is no text: that of the standard library."""
    if key is None or type(key) in (bool, int, float):
        return write_int(key) if type(key) is int else _ENCODER.encode(key)
    raise TypeError(f"a dict has the key {key!r:.40}, and names in JSON are texts")


def _has_names(value: Any) -> bool:
    """Whether all keys of dicts are texts."""
    kind = type(value)
    if kind is dict:
        return all(type(key) is str for key in value) and all(map(_has_names, value.values()))
    return kind not in (list, tuple) or all(map(_has_names, value))


def _has_special_float(value: Any) -> bool:
    kind = type(value)
    if kind is float:
        return not math.isfinite(value)
    if kind is dict:
        return any(map(_has_special_float, value.values()))
    return kind in (list, tuple, set, frozenset) and any(map(_has_special_float, value))


_ENCODER = json.JSONEncoder(separators=(",", ":"), default=to_builtin, ensure_ascii=False)
_STRICT = json.JSONEncoder(separators=(",", ":"), default=to_builtin, ensure_ascii=False, allow_nan=False)


def as_text(value: Any, to_json: Callable[[Any], bytes]) -> Any:
    """A cell for CSV and SQLite: numbers and texts as they are, everything else as JSON or as its text."""
    kind = type(value)
    if kind is int:
        return write_int(value) if is_long(value) else value
    if kind is str or kind is float or value is None:
        return value
    if kind is bool:
        return "true" if value else "false"
    text = to_json(value).decode("utf-8")
    return json.loads(text) if text[:1] == '"' else text
