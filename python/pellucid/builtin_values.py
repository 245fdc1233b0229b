"""This module says what stands for a value in JSON, as plain dicts, lists, texts and numbers.

`json_bytes` (crates/python/src/values/json.rs) calls it for every value that it does not write by itself, and
users pass it to other encoders as `default=`.
"""

from __future__ import annotations

import sys

from pellucid.classes import as_plain
from pellucid.errors import UnsupportedValue

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["to_builtin"]


def to_builtin(value: Any) -> Any:
    """Return what stands for `value` in JSON: the `default=` of `json.dumps`, orjson and other encoders.

    A `Record` becomes a dict, a `RecordList`, a tuple, a set and an array a list, a query a list of its rows,
    a table a dict, a date, time, `Decimal`, UUID and path its text, bytes base64, a timedelta the text of ISO
    8601, and an instance of a dataclass or a similar class the dict of its fields. Parts of the result may
    need the function again, as encoders do. Raises `UnsupportedValue`, a `TypeError`, for any other value.

    >>> import json, pellucid
    >>> db = pellucid.open(":memory:")
    >>> db["ann"] = {"name": "Ann", "tags": {"a"}}
    >>> json.dumps([db["ann"]], default=pellucid.to_builtin)
    '[{"name": "Ann", "tags": ["a"]}]'
    """
    from pellucid import Query, Record, RecordList

    if isinstance(value, Record):
        return value.to_dict()
    if isinstance(value, (RecordList, Query)):
        return value.to_list()
    if isinstance(value, (str, int, float, bool, list, dict, type(None))):
        return _of_subclass(value)
    plain = as_plain(value)
    if plain is not None:
        return plain[0]
    if isinstance(value, (bytes, bytearray, memoryview)):
        import base64

        return base64.b64encode(value).decode("ascii")
    if isinstance(value, (tuple, set, frozenset)):
        return list(value)
    text = _text(value)
    if text is not None:
        return text
    return _of_container(value)


def _of_subclass(value: Any) -> Any:
    """What a value of an exact type of JSON is, or of a class that is derived from one."""
    plain = as_plain(value)
    if plain is not None:
        return plain[0]
    kinds: tuple[Any, ...] = (bool, int, float, str, list, dict)
    kind = next((kind for kind in kinds if isinstance(value, kind)), None)
    return value if kind is None else kind(value)


def _text(value: Any) -> str | None:
    """The text that stands for a value of the standard library; None for other values."""
    # If the program never imported a module, none of the values comes from there.
    modules = sys.modules
    datetime = modules.get("datetime")
    if datetime is not None:
        if isinstance(value, (datetime.date, datetime.time)):
            # pandas' NaT is a datetime, and equals nothing.
            return str(value.isoformat()) if value == value else None
        if isinstance(value, datetime.timedelta):
            return _duration(value)
    names = (
        ("decimal", ("Decimal",)),
        ("uuid", ("UUID",)),
        ("fractions", ("Fraction",)),
        ("pathlib", ("PurePath",)),
        ("ipaddress", ("_IPAddressBase",)),
    )
    for module, classes in names:
        if module in modules and isinstance(value, tuple(getattr(modules[module], name) for name in classes)):
            return str(value)
    return None


def _of_container(value: Any) -> Any:
    """The list or dict that stands for an array, a mapping or another sequence."""
    from collections import deque
    from collections.abc import Mapping, Sequence

    from pellucid.objects import encoded_instance

    if hasattr(type(value), "tolist"):
        # An array or a scalar of NumPy, an `array.array`, a Series.
        plain = _times(value)
        if type(plain) is not type(value):
            return plain
    if isinstance(value, Mapping):
        return dict(value.items())
    if isinstance(value, (Sequence, deque)):
        return list(value)
    found = encoded_instance(value)
    if found is not None:
        return found[0]
    cls = type(value)
    what = "complex number" if cls is complex else f"{cls.__module__}.{cls.__qualname__}"
    raise UnsupportedValue(f"a {what} has no JSON")


def _times(value: Any) -> Any:
    """The plain value of an array: times with a finer unit than Python's would come as numbers otherwise."""
    dtype: Any = getattr(value, "dtype", None)
    if getattr(dtype, "kind", "") not in ("M", "m") or not hasattr(dtype, "metadata"):
        return value.tolist()
    numpy: Any = sys.modules["numpy"]
    if numpy.datetime_data(dtype)[0] not in ("ns", "ps", "fs", "as"):
        return value.tolist()
    array = numpy.asarray(value)
    micros = array.astype(f"{dtype.kind}8[us]")
    if ((micros == array) | numpy.isnat(array)).all():
        return micros.tolist()
    if dtype.kind == "m":
        raise UnsupportedValue("a timedelta64 with nanoseconds, which astype('m8[us]') cuts off, has no JSON")
    # The text of NaT is "NaT".
    return numpy.where(numpy.isnat(array), None, numpy.datetime_as_string(array).astype(object)).tolist()


def _duration(value: Any) -> str:
    """A timedelta in the form of ISO 8601: `P1DT5.5S`, `-PT1S`."""
    micros = (value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds
    if not micros:
        return "P0D"
    sign, micros = ("-", -micros) if micros < 0 else ("", micros)
    days, micros = divmod(micros, 86_400_000_000)
    seconds, micros = divmod(micros, 1_000_000)
    fraction = f".{micros:06}".rstrip("0") if micros else ""
    time = f"T{seconds}{fraction}S" if seconds or micros else ""
    return f"{sign}P{f'{days}D' if days else ''}{time}"
