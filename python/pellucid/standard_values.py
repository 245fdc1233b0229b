"""This module says how values of the standard library and of pandas are stored that the format does not have.

Some are stored under the name of their class, as objects of `pellucid.register` are, and come back as they
were. Others become the equal value of a type that the format has: a `Counter` becomes a dict. What has no
equal value is refused.
"""

from __future__ import annotations

import sys

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    # The name under which a value is stored, and what is stored.
    Named = tuple[str, object]

__all__ = ["decoder", "equal_value", "named_value", "with_stored_zone"]

_OF_ZONES = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_+-/")

_OF_TEXT = {
    "pathlib": ("PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"),
    "ipaddress": (
        "IPv4Address",
        "IPv6Address",
        "IPv4Network",
        "IPv6Network",
        "IPv4Interface",
        "IPv6Interface",
    ),
}


def named_value(value: Any) -> Named | None:
    """Return the name and the content of a value that comes back as it was; None for other values."""
    cls = type(value)
    if cls is range:
        return "builtins.range", (value.start, value.stop, value.step)
    # If the program never imported a module, none of its values comes from there.
    modules = sys.modules
    if cls is _member("collections", "deque"):
        return "collections.deque", (list(value), value.maxlen)
    if cls is _member("fractions", "Fraction"):
        return "fractions.Fraction", (value.numerator, value.denominator)
    if cls is _member("array", "array"):
        code = value.typecode
        return "array.array", (code, value.tounicode() if code in "uw" else value.tolist())
    for module, names in _OF_TEXT.items():
        if module in modules and cls.__name__ in names and cls is _member(module, cls.__name__):
            return f"{module}.{cls.__name__}", str(value)
    return None


def decoder(name: str) -> Callable[[Any], object] | None:
    """Return the function that makes a value of this name again; None if there is none."""
    if name == "builtins.range":
        return lambda content: range(*content)
    if name == "collections.deque":
        from collections import deque

        return lambda content: deque(content[0], content[1])
    if name == "fractions.Fraction":
        from fractions import Fraction

        # A program that registered the class itself may have stored its text.
        return lambda content: Fraction(content) if isinstance(content, str) else Fraction(*content)
    if name == "array.array":
        from array import array

        return lambda content: array(content[0], content[1])
    module, _, cls = name.rpartition(".")
    if cls in _OF_TEXT.get(module, ()):
        return _text_decoder(module, cls)
    return None


def _text_decoder(module: str, name: str) -> Callable[[Any], object]:
    import importlib

    found: Callable[[Any], object] = getattr(importlib.import_module(module), name)
    if module == "pathlib" and not name.startswith("Pure"):
        import os

        if (name == "PosixPath") != (os.name == "posix"):
            # A path of another system, which only the pure class has here.
            found = getattr(importlib.import_module(module), f"Pure{name}")
    return found


def equal_value(value: Any) -> tuple[object] | None:
    """Return the equal value of a type that the format has, in a tuple; None if there is none."""
    cls = type(value)
    if cls in (
        _member("collections", "OrderedDict"),
        _member("collections", "defaultdict"),
        _member("collections", "Counter"),
        _member("types", "MappingProxyType"),
    ):
        return (dict(value),)
    if cls is memoryview:
        # One of other elements than bytes equals no bytes.
        return (value.tobytes(),) if value.format == "B" and value.ndim == 1 else None
    datetime = sys.modules.get("datetime")
    if datetime is not None and cls in (datetime.datetime, datetime.time):
        zoned = with_stored_zone(value)
        return None if zoned is None else (zoned,)
    return _of_pandas(value, cls)


def _member(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _of_pandas(value: Any, cls: type) -> tuple[object] | None:
    pandas: Any = sys.modules.get("pandas")
    # A module that is being imported has none of its names yet.
    if pandas is None or not hasattr(pandas, "Series"):
        return None
    if value is pandas.NaT or value is pandas.NA:
        return (None,)
    if cls is pandas.Timestamp:
        return None if value.nanosecond else (value.to_pydatetime(),)
    if cls is pandas.Timedelta:
        return None if value.nanoseconds else (value.to_pytimedelta(),)
    if cls is pandas.Series:
        index = value.index
        if not isinstance(index, pandas.RangeIndex) or (index.start, index.step) != (0, 1):
            return None
        plain = value.to_numpy()
        # An array of floats would stand for integers of which some are missing.
        is_exact = plain.dtype == value.dtype or not value.hasnans
        return (plain if plain.dtype.kind in "biufc" and is_exact else value.tolist(),)
    return None


def with_stored_zone(value: Any) -> Any:
    """Return an aware datetime or time with the zone that the format has for its own; None if there is none.

    A zone that has a name of the IANA database becomes that `ZoneInfo`, and one whose offset is fixed a
    `datetime.timezone`, if the value keeps its offset from UTC.
    """
    zone = value.tzinfo
    if zone is None:
        return None
    offset = value.utcoffset()
    for name in _names(zone):
        zoned = _in_named(value, name, offset)
        if zoned is not None:
            return zoned
    return _in_fixed(value, zone, offset)


def _names(zone: Any) -> list[str]:
    """The names of the IANA database that a zone of another library may have."""
    import inspect

    found = []
    # Those of pytz, of a subclass of ZoneInfo, and of dateutil, which has the path of the file.
    for attribute in ("zone", "key", "_filename"):
        name = getattr(zone, attribute, None) if inspect.getattr_static(zone, attribute, None) else None
        if isinstance(name, str):
            found.append(name.rpartition("zoneinfo/")[2])
    # The format has names of these characters alone.
    return [name for name in found if name and set(name) <= _OF_ZONES]


def _in_named(value: Any, name: str, offset: Any) -> Any:
    import zoneinfo

    try:
        zone = zoneinfo.ZoneInfo(name)
    except (ValueError, OSError, zoneinfo.ZoneInfoNotFoundError):
        return None
    # A zone of pytz says by itself which of two equal local times is meant, and not by the fold.
    for fold in (value.fold, 1 - value.fold):
        zoned = value.replace(tzinfo=zone, fold=fold)
        if zoned.utcoffset() == offset:
            return zoned
    return None


def _in_fixed(value: Any, zone: Any, offset: Any) -> Any:
    import datetime

    try:
        fixed = zone.utcoffset(None)
    except (TypeError, ValueError, AttributeError, NotImplementedError):
        return None
    if fixed is None or fixed != offset:
        return None
    try:
        name = zone.tzname(None)
    except (TypeError, ValueError, AttributeError, NotImplementedError):
        name = None
    plain = datetime.timezone(fixed)
    if not isinstance(name, str) or name == plain.tzname(None):
        return value.replace(tzinfo=plain)
    return value.replace(tzinfo=datetime.timezone(fixed, name))
