"""This module gives equal values one digest, in every process, under which a cache stores results.

A value that Python does not describe completely has no digest: an open file, a lambda, an object that only
has an address. It is refused, rather than given a number that another process would not find again.
"""

from __future__ import annotations

import struct
import sys

from pellucid.classes import as_plain, kind_of
from pellucid.errors import UnsupportedKey
from pellucid.objects import encoded_registered, is_registered
from pellucid.standard_values import named_value

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

__all__ = ["digest"]

SIZE = 16
DEPTH_MAX = 200


def digest(value: object) -> bytes:
    """Return 16 bytes that are the same for equal values of the same types, in every process and release.

    It takes what pellucid stores, and beyond that dicts with any keys, NumPy arrays, frames and series of
    pandas and polars, Enums, instances of dataclasses and similar classes, registered classes, paths,
    ranges, slices, classes, and functions of a module. The order of dicts and sets does not count. Anything
    else raises `UnsupportedKey`, which names the part.

    >>> import pellucid
    >>> pellucid.digest({"a": 1, "b": [2]}) == pellucid.digest({"b": [2], "a": 1})
    True
    >>> pellucid.digest(lambda: 0)
    Traceback (most recent call last):
    pellucid.errors.UnsupportedKey: a value of type function at value has no stable digest, ...
    """
    try:
        return _digest(value, "value", 0)
    except RecursionError:
        raise UnsupportedKey("the value nests too deeply, or contains itself; it has no digest") from None


def _hash(tag: str, *parts: Any) -> bytes:
    from hashlib import blake2b

    state = blake2b(digest_size=SIZE)
    state.update(tag.encode())
    for part in parts:
        # Sizes keep ("ab", "c") apart from ("a", "bc").
        state.update(struct.pack("<Q", memoryview(part).nbytes))
        state.update(part)
    return state.digest()


def _digest(value: Any, place: str, depth: int) -> bytes:
    if depth > DEPTH_MAX:
        raise UnsupportedKey(
            f"{place:.60}... lies more than {DEPTH_MAX} levels deep, or contains itself; it has no digest"
        )
    cls = type(value)
    plain = _PLAIN.get(cls)
    if plain is not None:
        return _hash(cls.__name__, plain(value))
    if cls is list or cls is tuple:
        return _sequence(cls.__name__, value, place, depth)
    if cls is dict:
        return _mapping("dict", value.items(), place, depth)
    if cls is set or cls is frozenset:
        return _hash(
            cls.__name__, *sorted(_digest(each, f"an element of {place}", depth + 1) for each in value)
        )
    found = _of_class(value, cls, place, depth)
    if found is None:
        raise UnsupportedKey(
            f"a value of type {cls.__qualname__} at {place} has no stable digest, because another process "
            "could not make the same; pass what it was made from, register its class with pellucid.register, "
            "or leave it out with ignore="
        )
    return found


def _sequence(tag: str, values: Iterable[object], place: str, depth: int) -> bytes:
    return _hash(tag, *(_digest(each, f"{place}[{at}]", depth + 1) for at, each in enumerate(values)))


def _mapping(tag: str, items: Iterable[tuple[object, object]], place: str, depth: int) -> bytes:
    pairs = [
        _digest(key, f"a key of {place}", depth + 1) + _digest(value, f"{place}[{key!r}]", depth + 1)
        for key, value in items
    ]
    return _hash(tag, *sorted(pairs))


def _text(value: object) -> bytes:
    return str(value).encode("utf-8", "surrogatepass")


# How the types whose values are plain bytes are written. Their tag is the name of the type.
_PLAIN: dict[type, Callable[[Any], Any]] = {
    type(None): lambda _: b"",
    bool: _text,
    int: lambda value: hex(value).encode(),
    float: lambda value: struct.pack("<d", value),
    complex: lambda value: struct.pack("<dd", value.real, value.imag),
    str: _text,
    bytes: bytes,
    bytearray: bytes,
    type(...): lambda _: b"",
    type(NotImplemented): lambda _: b"",
}


def _of_class(value: Any, cls: type, place: str, depth: int) -> bytes | None:
    """The digest of a value of any other class, by the first rule that knows it."""
    if cls is slice:
        return _sequence(cls.__name__, (value.start, value.stop, value.step), place, depth)
    if is_registered(cls):
        return _hash(_name(cls), _digest(encoded_registered(value), place, depth + 1))
    if isinstance(value, type) or cls.__name__ in ("function", "builtin_function_or_method"):
        return _of_global(value)
    if cls.__name__ == "partial" and cls.__module__ == "functools":
        return _sequence("partial", (value.func, value.args, value.keywords), place, depth)
    for rule in (_of_standard, _of_container, _of_pellucid, _of_numpy, _of_frame):
        found = rule(value, cls, place, depth)
        if found is not None:
            return found
    plain = as_plain(value) if kind_of(cls) or hasattr(cls, "__members__") else None
    if plain is not None:
        # A class of `<locals>` is another class at each call of its function.
        return (
            None if "<locals>" in cls.__qualname__ else _hash(_name(cls), _digest(plain[0], place, depth + 1))
        )
    return None


def _name(cls: Any) -> str:
    return f"{cls.__module__}.{cls.__qualname__}"


def _of_global(value: Any) -> bytes | None:
    """A class or function that its module has under its name."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", "<")
    if module is None or "<" in name:
        return None
    found: Any = sys.modules.get(module)
    for step in name.split("."):
        found = getattr(found, step, None)
    return _hash("global", f"{module}.{name}".encode()) if found is value else None


def _of_standard(value: Any, cls: type, place: str, depth: int) -> bytes | None:
    """Dates, decimals, UUIDs, patterns, and what pellucid stores under the name of its class."""
    if cls.__module__ == "datetime":
        # A fold, or a zone, makes another moment of the same digits.
        zone = getattr(value, "tzinfo", None)
        if " at 0x" in repr(zone):
            return None
        return _hash(_name(cls), repr(value).encode(), _text(getattr(value, "fold", "")), _text(zone))
    if _name(cls) in ("decimal.Decimal", "uuid.UUID"):
        return _hash(_name(cls), repr(value).encode())
    if _name(cls) == "re.Pattern":
        # Its repr has the beginning of a long pattern only.
        return _sequence("re.Pattern", (value.pattern, value.flags), place, depth)
    named = named_value(value)
    return None if named is None else _hash(named[0], _digest(named[1], place, depth + 1))


def _of_container(value: Any, cls: type, place: str, depth: int) -> bytes | None:
    """The dicts of other classes, each with what makes it another one than its class and its items."""
    if cls is memoryview:
        return _hash("memoryview", value) if value.format == "B" and value.contiguous else None
    name = _name(cls)
    if name == "collections.OrderedDict":
        return _sequence(name, value.items(), place, depth)
    if name == "collections.defaultdict":
        factory = _digest(value.default_factory, f"the default_factory of {place}", depth + 1)
        return _hash(name, factory, _mapping("dict", value.items(), place, depth))
    if name in ("collections.Counter", "builtins.mappingproxy"):
        return _mapping(name, value.items(), place, depth)
    return None


def _of_pellucid(value: Any, cls: type, place: str, depth: int) -> bytes | None:
    """Records are the dicts and lists that they show."""
    if cls.__module__ != "pellucid":
        return None
    if cls.__name__ == "Record":
        return _digest(value.to_dict(), place, depth)
    return _digest(value.to_list(), place, depth) if cls.__name__ == "RecordList" else None


def _of_numpy(value: Any, cls: type, place: str, depth: int) -> bytes | None:
    numpy = sys.modules.get("numpy")
    if numpy is None or not (isinstance(value, numpy.generic) or cls is numpy.ndarray):
        return None
    dtype = value.dtype
    if dtype.names is not None:
        # Field by field: the bytes between the fields may be anything.
        names = (name.encode("utf-8", "surrogatepass") for name in dtype.names)
        fields = (_digest(value[name], f"{place}[{name!r}]", depth + 1) for name in dtype.names)
        return _hash("fields", _text(value.shape), *names, *fields)
    if dtype.hasobject:
        elements = _sequence("", value.ravel().tolist(), place, depth)
        return _hash("objects", _text(dtype), _text(value.shape), elements)
    array = numpy.ascontiguousarray(value)
    return _hash("array", _text(dtype.str), _text(value.shape), array.reshape(-1).view("u1"))


def _of_frame(value: Any, cls: type, place: str, depth: int) -> bytes | None:
    """Frames, series and indexes of pandas and polars, column by column."""
    library = cls.__module__.partition(".")[0]
    if library not in ("pandas", "polars") or library not in sys.modules:
        return None
    name = cls.__name__
    if name in ("Timestamp", "Timedelta", "Period", "Interval", "NaTType", "NAType"):
        return _hash(name, repr(value).encode())
    if name == "DataFrame":
        if library == "polars":
            return _sequence("polars", value, place, depth)
        columns = [_column(value.iloc[:, at], library, place, depth) for at in range(value.shape[1])]
        return _hash("pandas", _sequence("", (value.index, value.columns), place, depth), *columns)
    if name == "MultiIndex":
        levels = [value.get_level_values(at) for at in range(value.nlevels)]
        return _sequence("MultiIndex", levels, place, depth)
    if not hasattr(value, "dtype") or not hasattr(value, "name"):
        return None
    labels = [_digest(value.index, place, depth + 1)] if library == "pandas" and name == "Series" else []
    return _hash(f"{library} {name}", _column(value, library, place, depth), *labels)


def _column(value: Any, library: str, place: str, depth: int) -> bytes:
    """The type, the name and the values of a column."""
    dtype: Any = value.dtype
    kind = [str(dtype), value.name]
    if library == "pandas" and hasattr(dtype, "categories"):
        kind += [dtype.categories, dtype.ordered]
    return _hash("column", _sequence("", kind, place, depth), _values(value, library, place, depth))


def _values(value: Any, library: str, place: str, depth: int) -> bytes:
    plain = False
    if library == "pandas" and getattr(value.dtype, "kind", "O") in "iufbcmM":
        # Of integers with missing ones, pandas makes an array of floats.
        plain = type(value.dtype).__module__.startswith("numpy") or not value.hasnans
    if library == "polars":
        plain = value.dtype.is_numeric() and value.null_count() == 0 and not value.dtype.is_decimal()
    array = value.to_numpy() if plain else None
    if array is not None and not array.dtype.hasobject:
        return _digest(array, place, depth + 1)
    if library == "pandas":
        # Each missing value of pandas is one of its own; they are equal as columns.
        missing = value.isna()
        return _sequence(
            "", [None if gone else each for each, gone in zip(value, missing, strict=True)], place, depth
        )
    return _sequence("", value.to_list(), place, depth)
