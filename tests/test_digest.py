"""Is a digest the same for equal values in every process, and refused for all others?"""

from __future__ import annotations

import array
import dataclasses
import datetime
import decimal
import enum
import functools
import io
import os
import pathlib
import re
import subprocess
import sys
import types
import uuid
from collections import Counter, OrderedDict, defaultdict, deque
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pellucid
import polars as pl
import pytest


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


@dataclasses.dataclass
class Pet:
    name: str
    legs: int = 4


class Point(NamedTuple):
    x: int
    y: int


def two_levels(names: list[str]) -> pd.DataFrame:
    return pd.DataFrame({"a": [1]}, index=pd.MultiIndex.from_tuples([(1, 2)], names=names))


def in_categories(categories: list[str], *, ordered: bool = False) -> pd.Series:
    return pd.Series(pd.Categorical(["a"], categories, ordered=ordered))


DISTINCT: list[Any] = [
    *(None, False, True, 0, 1, -1, 2**70, 0.0, -0.0, 1.0, float("inf"), float("nan"), 1j),
    *("", "a", "\ud800", b"", b"a", bytearray(b"a"), ..., NotImplemented),
    *([], (), {}, set(), frozenset(), [[]], [()], ((),), [1, 2], (1, 2), {1, 2}, frozenset({1, 2})),
    *(["ab", "c"], ["a", "bc"], {"a": 1}, {"a": 2}, {"b": 1}, {1: "a"}, {(1,): {"x": []}}),
    *(range(3), range(1, 3), slice(3), slice(1, 3)),
    datetime.date(2020, 1, 1),
    datetime.datetime(2020, 1, 1),
    datetime.datetime(2020, 1, 1, fold=1),
    datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc),
    datetime.timedelta(1),
    datetime.time(1),
    *(decimal.Decimal("1"), decimal.Decimal("1.0"), Fraction(1, 3), uuid.UUID(int=1)),
    *(pathlib.PurePosixPath("a"), pathlib.PurePosixPath("b")),
    *(Colour.RED, Colour.BLUE, Pet("Rex"), Pet("Rex", 3), Point(1, 2)),
    *(Pet, Colour, int, len, os.path.join, functools.partial(len, "a"), functools.partial(int, "1", base=2)),
    np.zeros(3),
    np.zeros(3, "f4"),
    np.zeros((3, 1)),
    np.float32(1),
    np.array(["a", None], object),
    pd.DataFrame({"a": [1, 2]}),
    pd.DataFrame({"b": [1, 2]}),
    pd.DataFrame({"a": [1, 2]}, index=[1, 2]),
    pd.DataFrame({"a": ["x", None]}),
    *(re.compile("x" * 300 + end) for end in "ab"),
    *(re.compile("a", re.IGNORECASE), re.compile(b"a")),
    *(deque([1]), deque([1], 2), OrderedDict(a=1, b=2), OrderedDict(b=2, a=1), Counter("ab")),
    *(defaultdict(int, a=1), defaultdict(list, a=1), types.MappingProxyType({"a": 1}), memoryview(b"a")),
    *(array.array("d", [1]), array.array("f", [1])),
    *(np.array([(1,)], [(name, object)]) for name in "ab"),
    *(np.array([(1,)], [(name, "i4")]) for name in "ab"),
    *(pd.Series([1], name=name) for name in (1, "1")),
    *(pd.Series([2**60 + more, None], dtype="Int64") for more in (0, 1)),
    *(pd.DataFrame(index=index) for index in ([1], [1, 2])),
    *(two_levels(names) for names in (["a", "b"], ["c", "d"])),
    *(in_categories(["a"]), in_categories(["a", "b"]), in_categories(["a", "b"], ordered=True), pd.NA),
    pd.Series([1, 2], name="a"),
    pd.Index([1, 2]),
    *(pd.Timestamp("2020-01-01"), pd.Timestamp("2020-01-01", tz="UTC"), pd.Timedelta(1), pd.NaT),
    pl.DataFrame({"a": [1, 2]}),
    pl.DataFrame({"a": [1, None]}),
    pl.DataFrame({"a": [["x"], []]}),
    pl.Series("a", [1, 2]),
]


def test_values_that_differ_have_digests_that_differ() -> None:
    digests = [pellucid.digest(value) for value in DISTINCT]
    assert {len(each) for each in digests} == {16}
    same = [(one, two) for at, one in enumerate(digests) for two in range(at) if digests[two] == one]
    assert not same


def test_equal_values_have_one_digest() -> None:
    shared = [1]
    padded = np.dtype([("a", "i1"), ("b", "i8")], align=True)
    pairs: list[tuple[Any, Any]] = [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({3, 1, 2}, {2, 3, 1}),
        ([shared, shared], [[1], [1]]),
        (np.arange(6).reshape(2, 3).T, np.ascontiguousarray(np.arange(6).reshape(2, 3).T)),
        (two_levels(["a", "b"]), two_levels(["a", "b"])),
        # What is between the fields may be anything.
        tuple(np.frombuffer(bytes([1, *between, *bytes(8)]), padded) for between in (bytes(7), b"between")),
        (pd.DataFrame({"a": ["x", None]}), pd.DataFrame({"a": ["x", None]})),
        (pl.DataFrame({"a": [1, 2]}), pl.concat([pl.DataFrame({"a": [1]}), pl.DataFrame({"a": [2]})])),
    ]
    for one, two in pairs:
        assert pellucid.digest(one) == pellucid.digest(two)
    table = pellucid.open(":memory:").table("t")
    table["a"] = {"x": [1, {"y": 2}]}
    assert pellucid.digest(table["a"]) == pellucid.digest({"x": [1, {"y": 2}]})
    assert pellucid.digest(table["a"].x) == pellucid.digest([1, {"y": 2}])


def test_a_digest_is_the_same_in_another_process_and_in_every_release() -> None:
    program = "import pellucid; print(pellucid.digest({'a': [1, 'b', {2.5, 'x', b'y'}], 'c': None}).hex())"
    outputs = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for seed in ("1", "2")
    }
    assert outputs == {"eb73c542a0f02a7ab0c7b1f4ec21518a"}


class Plain:
    pass


def test_what_another_process_could_not_make_is_refused_with_its_place() -> None:
    @dataclasses.dataclass
    class Local:
        x: int

    unstable: list[Any] = [
        object(),
        Plain(),
        lambda: 0,
        io.StringIO(),
        Local(1),
        (each for each in "a"),
        Local,
        re.match("a", "ab"),
        pathlib.Path("a/b").parents,
    ]
    for value in unstable:
        with pytest.raises(pellucid.UnsupportedKey, match=r"at value\['a'\]\[1\] has no stable digest"):
            pellucid.digest({"a": [0, value]})
    endless: list[Any] = []
    endless.append(endless)
    endless_array = np.empty(1, object)
    endless_array[0] = endless_array
    for value in (endless, endless_array):
        with pytest.raises(pellucid.UnsupportedKey, match="contains itself"):
            pellucid.digest(value)


def test_a_registered_class_has_the_digest_of_what_it_is_stored_as() -> None:
    class Money:
        def __init__(self, cents: int) -> None:
            self.cents = cents

    pellucid.register(Money, lambda money: money.cents, Money)
    assert pellucid.digest(Money(1)) == pellucid.digest(Money(1)) != pellucid.digest(Money(2))
