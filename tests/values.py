"""Which keys and values do the tests try, and when are two of them the same?

`same` is stricter than `==`: types, the sign of zero, NaN, `fold`, zones and the order of fields count.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import uuid
import zoneinfo
from typing import Any

import numpy
import pellucid
from hypothesis import strategies as st

Decimal = decimal.Decimal

ZONES = [
    dt.timezone.utc,
    dt.timezone(dt.timedelta(hours=-3, minutes=-30)),
    dt.timezone(dt.timedelta(hours=1), "MEZ"),
]
# A machine without a time zone database has no named zones to offer.
NAMED_ZONES = [
    zoneinfo.ZoneInfo(name) for name in ("Europe/Berlin",) if name in zoneinfo.available_timezones()
]

# Strings that have broken codecs before: the escape byte of keys, a lone surrogate, beyond the BMP,
# just as long as a slot and one more, and names that are attributes of a record.
awkward_text = st.sampled_from(
    [
        "",
        "\x00",
        "a\x00",
        "a\x00b",
        "\xff",
        "\ud800",
        "x\udfff",
        "\U0001f600",
        "12345678",
        "123456789",
        "items",
        "__class__",
    ]
)
text = awkward_text | st.text(st.characters(), max_size=12)
# Limits of the slot widths and of the tagged ints of keys.
awkward_ints = st.sampled_from(
    [
        sign * (1 << bits) + off
        for bits in (0, 7, 8, 15, 16, 31, 32, 53, 62, 63, 64, 128)
        for sign in (1, -1)
        for off in (-1, 0, 1)
    ]
)
ints = awkward_ints | st.integers(-1000, 1000) | st.integers()
floats = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 0.5, 2.0**53, 2.0**63, -(2.0**64), 1e300, 5e-324, math.inf, -math.inf]
) | st.floats(allow_nan=False)
decimals = st.sampled_from(
    [Decimal(text) for text in ("1.10", "1.1", "0", "-0", "0E+5", "1E-7", "-12.50", "Infinity", "-Infinity")]
) | (st.decimals(allow_nan=False))
zones = st.sampled_from([*ZONES, *NAMED_ZONES])
# Two days from either end: an instant beyond the calendar is no instant.
aware = st.builds(
    lambda moment, zone, fold: moment.replace(tzinfo=zone, fold=fold),
    st.datetimes(dt.datetime(1, 1, 3), dt.datetime(9999, 12, 29)),
    zones,
    st.integers(0, 1),
)
naive = st.builds(lambda moment, fold: moment.replace(fold=fold), st.datetimes(), st.integers(0, 1))
times = st.builds(
    lambda time, zone, fold: time.replace(tzinfo=zone, fold=fold),
    st.times(),
    st.none() | st.sampled_from(ZONES),
    st.integers(0, 1),
)

key_atoms = st.one_of(
    text,
    ints,
    floats,
    st.booleans(),
    st.none(),
    st.binary(max_size=9),
    decimals,
    st.dates(),
    naive,
    aware,
    st.uuids(),
)
# Beyond the 511 bytes of LMDB, with a common beginning, so that the hash has to tell them apart.
long_keys = st.builds(
    lambda n, tail: "k" * n + tail,
    st.sampled_from([505, 600, 100_000]),
    st.sampled_from(["", "a", "b", "\x00"]),
)
keys = st.recursive(key_atoms, lambda inner: st.lists(inner, max_size=3).map(tuple), max_leaves=5) | long_keys

special_values = [math.nan, Decimal("NaN"), Decimal("sNaN"), Decimal("-NaN12"), 1j, complex(-0.0, math.nan)]
hashable_atoms = st.one_of(
    st.none(),
    st.booleans(),
    ints,
    floats,
    text,
    st.text(min_size=30, max_size=60),
    st.binary(max_size=20),
    decimals,
    st.dates(),
    naive,
    aware,
    times,
    st.timedeltas(),
    st.uuids(),
)
arrays = st.sampled_from(
    [
        numpy.arange(6, dtype="<i4").reshape(2, 3),
        numpy.asfortranarray(numpy.arange(6, dtype=">f8").reshape(2, 3)),
        numpy.array(3.5),
        numpy.zeros((0, 4), dtype="u1"),
        numpy.array([(1, 2.5)], dtype=[("a", "<i2"), ("b", "<f4")]),
        numpy.array(["2020-01-01", "NaT"], dtype="M8[D]"),
        numpy.array(["a", "bcd"]),
        numpy.float32(1.5),
        numpy.datetime64("2020-01-01T00:00", "s"),
    ]
)
atoms = st.one_of(
    hashable_atoms, st.sampled_from(special_values), st.binary(max_size=9).map(bytearray), arrays
)
field_names = st.sampled_from(["a", "b", "c", "name", "items", "x.y", ""]) | text


def containers(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Every kind of container, of what `inner` gives; sets and odd keys of hashable atoms alone."""
    return st.one_of(
        st.lists(inner, max_size=10),
        st.lists(st.integers(-(2**40), 2**40), max_size=20),
        st.lists(st.floats(), max_size=10),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(field_names, inner, max_size=10),
        st.dictionaries(hashable_atoms, inner, max_size=12),
        st.frozensets(hashable_atoms, max_size=5),
        st.sets(hashable_atoms, max_size=5),
    )


values = st.recursive(atoms, containers, max_leaves=12)
records = st.dictionaries(field_names, values, max_size=8)


def plain(value: Any) -> Any:
    """What a user sees through handles, as plain containers."""
    if isinstance(value, pellucid.Record):
        return value.to_dict()
    if isinstance(value, pellucid.RecordList):
        return value.to_list()
    if type(value) is tuple:
        return tuple(plain(element) for element in value)
    return value


def fingerprint(value: Any) -> Any:
    """Something that is equal for two values only when they are the same in all that we promise to keep."""
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if kind is dict:
        return name, [(fingerprint(key), fingerprint(element)) for key, element in value.items()]
    if kind in (list, tuple):
        return name, [fingerprint(element) for element in value]
    if kind in (set, frozenset):
        return name, sorted(map(repr, map(fingerprint, value)))
    if kind is float:
        return name, "nan" if math.isnan(value) else value.hex()
    if kind is complex:
        return name, fingerprint(value.real), fingerprint(value.imag)
    if isinstance(value, (dt.datetime, dt.time)):
        return name, value.replace(tzinfo=None).isoformat(), value.fold, fingerprint(value.tzinfo)
    if kind is dt.timezone:
        return name, repr(value)
    if kind is zoneinfo.ZoneInfo:
        return name, value.key
    if isinstance(value, (numpy.ndarray, numpy.generic)):
        is_fortran = bool(value.flags.f_contiguous and not value.flags.c_contiguous)
        return name, str(value.dtype.descr), value.shape, is_fortran, value.tobytes()
    return name, repr(value)


def same(one: Any, two: Any) -> bool:
    """Whether two plain values are the same, to the last bit that we promise to keep."""
    return bool(fingerprint(one) == fingerprint(two))


def order(key: Any) -> tuple[Any, ...]:
    """What sorts, and is equal, as the stored key does (docs/format.md, "Ordered keys")."""
    if key is None:
        return (0,)
    if isinstance(key, bytes):
        return (1, key)
    if isinstance(key, str):
        return (2, key)
    if isinstance(key, tuple):
        # No element sorts before every other one, so a tuple that ends comes first.
        return (3, tuple(order(element) for element in key))
    if isinstance(key, (bool, int, float)):
        return (4, key)
    if isinstance(key, Decimal):
        return (5, key)
    if isinstance(key, dt.datetime):
        if key.tzinfo is None:
            return (7, key.replace(fold=0))
        offset = key.utcoffset()
        assert offset is not None
        return (8, key.replace(tzinfo=None, fold=0) - offset)
    if isinstance(key, dt.date):
        return (6, key)
    assert isinstance(key, uuid.UUID)
    return (9, key.bytes)
