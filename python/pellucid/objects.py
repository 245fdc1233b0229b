"""This module encodes and decodes objects that are not plain values.

The native encoder calls it for every type that it does not know exactly: NumPy arrays and scalars, registered
classes, and dataclasses and similar classes (classes.py). If the pickle policy allows it, any other object
goes to pickles.py. That module is imported only when a stored value or a policy needs it.
"""

from __future__ import annotations

import sys

from pellucid import renames, standard_values
from pellucid.classes import as_plain, beside_fields, has
from pellucid.errors import UnregisteredType

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeVar

    T = TypeVar("T")

__all__ = [
    "decode_array",
    "decode_registered",
    "encode",
    "encode_pickled",
    "encoded_instance",
    "encoded_registered",
    "instead_of",
    "is_registered",
    "register",
    "way_out",
]

_BY_CLASS: dict[type, tuple[str, Callable[[Any], object]]] = {}
_BY_NAME: dict[str, Callable[[Any], object]] = {}

FORTRAN_ORDER = 1
SCALAR = 2


def register(cls: type[T], encode: Callable[[T], object], decode: Callable[[Any], T]) -> None:
    """Store instances of exactly `cls` as `encode(instance)`, and read them as `decode(value)`.

    `encode` returns any value that can be stored. `decode` gets it back as plain dicts, lists and scalars.
    pellucid stores the module and the name of the class. To replace a registration, register the class again.
    Subclasses need their own registration. A type that pellucid stores itself, like int or dict, raises
    `ValueError`.

    >>> import fractions, pellucid
    >>> pellucid.register(fractions.Fraction, str, fractions.Fraction)
    >>> pellucid.loads(pellucid.dumps([fractions.Fraction(1, 3)]))
    [Fraction(1, 3)]
    """
    if not isinstance(cls, type):
        raise TypeError(f"register() wants a class, not {cls!r}")
    if _is_stored(cls):
        raise ValueError(
            f"register() is for classes of your own; {cls.__module__}.{cls.__qualname__} is stored as it is, "
            "by the format itself: make a class of your own for what you mean by it, and register that"
        )
    for role, function in (("encode", encode), ("decode", decode)):
        if not callable(function):
            raise TypeError(f"register() wants a function as {role}, not {function!r}")
    name = f"{cls.__module__}.{cls.__qualname__}"
    _BY_CLASS[cls] = (name, encode)
    _BY_NAME[name] = decode


def is_registered(cls: type) -> bool:
    """Say whether instances of exactly `cls` are stored and read by registered functions."""
    return cls in _BY_CLASS


def encoded_registered(value: object) -> object:
    """Return what the encode function of its registered class makes of an instance."""
    return _BY_CLASS[type(value)][1](value)


def _is_stored(cls: type) -> bool:
    """Say whether the format stores the type itself, so that no registration may change it."""
    if cls in (
        type(None),
        bool,
        int,
        float,
        complex,
        str,
        bytes,
        bytearray,
        list,
        tuple,
        dict,
        set,
        frozenset,
    ):
        return True
    # If the program never imported a module, none of its classes comes from there.
    numpy = sys.modules.get("numpy")
    if numpy is not None and issubclass(cls, numpy.generic):
        return cls.__module__ == "numpy"
    others = (
        ("datetime", ("date", "datetime", "time", "timedelta")),
        ("decimal", ("Decimal",)),
        ("uuid", ("UUID",)),
        ("numpy", ("ndarray",)),
    )
    return any(
        cls is getattr(sys.modules[module], name)
        for module, names in others
        if module in sys.modules
        for name in names
    )


def encode(
    value: object,
    policy: str | tuple[str, ...],
    is_exact: bool,
    is_fast: bool,
    wants_parts: bool,
    runs_init: bool,
) -> tuple[object, ...] | None:
    """Return what the native encoder must write for `value`; None if it cannot be stored.

    The first element of the result names the encoding: `("value", other)`, `("registered", name, other)`,
    `("array", dtype, shape, flags, bytes)`, or `("pickle", (bytes, buffers), parts)`. If `wants_parts`, the
    parts are all objects in the pickle that may be met outside of it, too. With `is_exact`, an instance of a
    class with fields goes through pickle. With `is_fast`, pickles have no memo. With `runs_init`, a read
    calls the constructor, which makes again what is no field.
    """
    cls = type(value)
    if cls in _BY_CLASS:
        name, encode_instance = _BY_CLASS[cls]
        plain = encode_instance(value)
        if type(plain) is cls:
            raise TypeError(
                f"the encode function registered for {name} returned another {cls.__qualname__}; "
                "it is to return what can be stored without it, such as a dict of the instance's fields"
            )
        return ("registered", name, plain)
    numpy = sys.modules.get("numpy")
    if numpy is not None and (cls is numpy.ndarray or isinstance(value, numpy.generic)):
        array = _encode_array(numpy, value)
        if array is not None:
            return array
    plain = None if is_exact else as_plain(value)
    if plain is not None:
        # Do not pickle it instead, where pickles are allowed: no query would find its fields.
        return None if beside_fields(value, runs_init) else ("value", plain[0])
    said = _standard(value, policy, is_exact)
    if said is not None or policy == "deny":
        return said
    from pellucid import pickles

    parts: list[object] | None = [] if wants_parts else None
    return ("pickle", pickles.encode(value, policy, instead_of, is_fast=is_fast, parts=parts), parts)


def _standard(value: Any, policy: str | tuple[str, ...], is_exact: bool) -> tuple[object, ...] | None:
    """Return what the encoder must write for a value of another library; None for others."""
    named = standard_values.named_value(value)
    # In a table of any objects, a pickle also keeps what parts have in common.
    if named is not None and (policy == "deny" or not is_exact):
        return ("registered", *named)
    cls = type(value)
    # Where a pickle may hold it, it comes back as what it was.
    if is_exact or policy == "allow" or f"{cls.__module__}.{cls.__qualname__}" in policy:
        return None
    equal = standard_values.equal_value(value)
    return None if equal is None else ("value", equal[0])


def encoded_instance(value: object) -> tuple[object] | None:
    """Return what the function of `register` makes of an instance, in a tuple; None for other objects."""
    found = _BY_CLASS.get(type(value))
    return None if found is None else (found[1](value),)


def encode_pickled(
    value: object, policy: str | tuple[str, ...], is_fast: bool
) -> tuple[bytes, tuple[bytes, ...]]:
    """Return the pickle of a whole value, and the large buffers beside it."""
    from pellucid import pickles

    return pickles.encode(value, policy, instead_of, is_fast=is_fast)


def way_out(value: Any) -> str:
    """Say why `value` cannot be stored and what to do, as the end of the message that refuses it."""
    import os
    from collections.abc import Iterable, Mapping

    from pellucid._native import Expression

    cls = type(value)
    if cls is Expression:
        return (
            ", which has another value in each record; use it only as the whole new value of a field, in "
            "query.update(field=expression)"
        )
    if_pickled = (
        'allow pickles with pickle="allow" or a list of globals in open() or dumps(); note that reading a '
        "pickle runs code of its author"
    )
    beside = beside_fields(value, runs_init=False)
    if beside is not None:
        return (
            f", and only its fields would be stored, without {beside}; make that a field of the class, "
            f"delete it, register the class with pellucid.register({cls.__name__}, encode, decode), or keep "
            'whole objects: table(name, type=object) of a database opened with pickle="allow"; if the '
            "constructor makes it, open the table with type= and run_init=True"
        )
    data_only = instead_of(value)
    if data_only is not None:
        return f", which has no place in a record; {data_only}"
    numpy = sys.modules.get("numpy")
    if numpy is not None and (cls is numpy.ndarray or cls is numpy.void):
        # Do not suggest register(): the class is stored as it is, and its other arrays would change too.
        if value.dtype.hasobject:
            what = "holds Python objects; give it a dtype without them (value.astype)"
        else:
            what = (
                "the format cannot describe (padding, titles, or fields that overlap or are out of order); "
                "give it a packed dtype (numpy.lib.recfunctions.repack_fields)"
            )
        return f" and dtype {value.dtype}, which {what}, store value.tolist(), or {if_pickled}"
    pandas = sys.modules.get("pandas")
    if pandas is not None and value is getattr(pandas, "NA", pandas):
        return ", which stands for no value; store None"
    special = _way_out_of_zone(value) or _way_out_of_columns(value)
    if special is not None:
        return f"{special}, or {if_pickled}"
    instead = "plain values"
    for kind in (dict, list, tuple, set, frozenset, str, bytes, bytearray, int, float):
        if isinstance(value, kind):
            instead = f"{kind.__name__}(value)"
            break
    else:
        if isinstance(value, memoryview):
            instead = "bytes(value)"
        elif has(cls, "tolist"):
            instead = "value.tolist()"
        elif has(cls, "to_pytimedelta"):
            instead = "value.to_pytimedelta()"
        elif has(cls, "as_py"):
            instead = "value.as_py()"
        elif isinstance(value, os.PathLike):
            instead = "str(value)"
        elif isinstance(value, Mapping):
            instead = "dict(value)"
        elif isinstance(value, Iterable):
            instead = "list(value)"
    return (
        f", which has no place in a record; store {instead}, register the class with "
        f"pellucid.register({cls.__name__}, encode, decode), or {if_pickled}"
    )


def instead_of(value: Any) -> str | None:
    """What to store for code and for what runs, which no registration or pickle brings back."""
    import io
    import types
    from collections.abc import AsyncGenerator, Coroutine, Generator, Iterator

    by_name = (
        types.FunctionType,
        types.BuiltinFunctionType,
        types.MethodType,
        types.MethodWrapperType,
        types.WrapperDescriptorType,
        types.MethodDescriptorType,
    )
    if isinstance(value, by_name):
        return "store the function's name, and look the function up by it (a dict of your functions by name)"
    if isinstance(value, type):
        return "store the class's name, and look the class up by it; or did you mean an instance of it?"
    if isinstance(value, types.ModuleType):
        return "store the module's name, value.__name__, and import it with importlib.import_module(name)"
    if isinstance(value, io.IOBase):
        return "store what the file holds, value.read(), or its path"
    if isinstance(value, (AsyncGenerator, Coroutine)):
        return "await it, and store its result"
    if isinstance(value, (Generator, Iterator)):
        return "store list(value)"
    if value is Ellipsis or value is NotImplemented:
        return "store None, or a str that stands for it"
    return None


def _way_out_of_zone(value: Any) -> str | None:
    """Say what to store for a date or time whose zone or subclass the format does not have."""
    import datetime
    import inspect

    if not isinstance(value, (datetime.datetime, datetime.time)):
        return None
    if value != value:
        return ", which is not a time; store None"
    # A pandas value has its own type, and may have such a zone as well.
    cls = type(value)
    plain = "value.to_pydatetime()" if has(cls, "to_pydatetime") else "value"
    zone = value.tzinfo
    zoneinfo = sys.modules.get("zoneinfo")
    is_named = zoneinfo is not None and isinstance(zone, zoneinfo.ZoneInfo) and zone.key is not None
    if zone is None or type(zone) is datetime.timezone or is_named:
        return None if plain == "value" else f", which is not a plain datetime; store {plain}"
    zone_class = f"{type(zone).__module__}.{type(zone).__qualname__}"
    # The zones of pytz have their name in this attribute.
    name = inspect.getattr_static(zone, "zone", None)
    named = f'zoneinfo.ZoneInfo("{name if isinstance(name, str) else "Europe/Berlin"}")'
    change = "astimezone({})" if isinstance(value, datetime.datetime) else "replace(tzinfo={})"
    return (
        f" with a time zone of type {zone_class}, and only those of zoneinfo and datetime.timezone are "
        f"stored; store {plain}.{change.format(named)}, or {plain}.{change.format('datetime.timezone.utc')}"
    )


def _way_out_of_columns(value: Any) -> str | None:
    """Say what to store for a DataFrame, a pyarrow Table or a column of one; list() would lose data."""
    cls = type(value)
    # Before pandas 3, a Series has none of the protocols.
    marks = ("__arrow_c_stream__", "__arrow_c_array__", "__dataframe__", "iloc")
    if not any(has(cls, name) for name in marks):
        return None
    if not has(cls, "columns"):
        methods = ("to_list", "to_pylist", "tolist")
        column = next((method for method in methods if has(cls, method)), None)
        if column is None:
            return None
        labels = ", or value.to_dict() to keep its labels" if has(cls, "iloc") else ""
        return f", which has no place in a record; store value.{column}(){labels}"
    if has(cls, "to_pydict"):
        columns = "value.to_pydict()"
    elif has(cls, "iloc"):
        columns = 'value.to_dict("list")'
    else:
        columns = "value.to_dict(as_series=False)"
    return (
        ", which has no place in a record; make its rows records of a table with table.extend(value), or "
        f"store its columns as lists with {columns}"
    )


def _encode_array(numpy: Any, value: Any) -> tuple[object, ...] | None:
    dtype = value.dtype
    if dtype.hasobject:
        return None
    is_scalar = isinstance(value, numpy.generic)
    if is_scalar:
        # An empty string has no bytes, but tobytes() returns a NUL.
        data, shape, flags = value.tobytes()[: dtype.itemsize], [], SCALAR
    else:
        is_fortran = value.flags.f_contiguous and not value.flags.c_contiguous
        data = value.tobytes(order="F" if is_fortran else "C")
        shape, flags = list(value.shape), FORTRAN_ORDER if is_fortran else 0
    described: object = dtype.str
    if dtype.names is not None:
        # Refuse what `descr` cannot describe: overlapping fields, titles, padding.
        try:
            described = dtype.descr
        except ValueError:
            return None
        if numpy.dtype(described) != dtype:
            return None
    elif dtype.subdtype is not None or numpy.dtype(described) != dtype:
        return None
    return ("array", described, shape, flags, data)


def decode_array(described: Any, shape: list[int], flags: int, data: memoryview) -> object:
    """Return the stored NumPy array or scalar. An array is read-only and shares `data`."""
    try:
        import numpy
    except ImportError as error:
        if described == "|u1":
            # A buffer of a pickle, whose class may not be NumPy's.
            return data
        raise ImportError("this field holds a NumPy array; to read it: pip install numpy") from error
    try:
        dtype = numpy.dtype(described)
        if dtype.hasobject:
            raise ValueError("the dtype holds Python objects")
        if flags & SCALAR:
            if dtype.kind == "S":
                # An element of an array loses the NULs at its end.
                return numpy.bytes_(bytes(data[: dtype.itemsize]))
            if dtype.kind == "U" and len(data) >= dtype.itemsize:
                codec = "utf-32-be" if dtype.str[0] == ">" else "utf-32-le"
                return numpy.str_(bytes(data[: dtype.itemsize]).decode(codec, "surrogatepass"))
            # Do not use frombuffer: it makes no element of 0 bytes, such as an empty string.
            return numpy.ndarray((), dtype=dtype, buffer=data)[()]
        return numpy.ndarray(
            tuple(shape), dtype=dtype, buffer=data, order="F" if flags & FORTRAN_ORDER else "C"
        )
    except (TypeError, ValueError) as error:
        raise ValueError(f"the stored array is damaged: {error}") from error


def decode_registered(name: str, value: object) -> object:
    """Return the instance of a registered class."""
    if not isinstance(name, str):
        raise ValueError("the name of a stored object's class is no str")
    # Two lookups: most classes have their name still.
    decode = _BY_NAME.get(name) or _BY_NAME.get(renames.new_name(name)) or standard_values.decoder(name)
    if decode is None:
        raise UnregisteredType(
            f"a stored object of class {name!r} cannot be read: the class is not registered in this "
            f"process; call pellucid.register({name.rpartition('.')[2]}, encode, decode) first"
        )
    return decode(value)
