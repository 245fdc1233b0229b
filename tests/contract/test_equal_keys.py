"""Are keys of other classes the plain keys that they equal, as in a dict, and are conditions no keys?"""

from __future__ import annotations

import contextlib
import datetime as dt
import enum
import operator
import uuid
import zoneinfo
from collections.abc import Callable
from decimal import Decimal
from typing import Any, NamedTuple

import numpy as np
import pandas
import pellucid
import pytest
from pellucid import KEY, F

Database = pellucid.Database


class Word(str):
    def __str__(self) -> str:
        return "not its text"


class Whole(int):
    def __int__(self) -> int:
        return 0


class Part(float): ...


class Raw(bytes): ...


class Level(enum.IntEnum):
    FIVE = 5


class Kind(str, enum.Enum):
    A = "a"


class Folded(str):
    """A text that equals all texts that are it but for the case."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, str) and self.casefold() == other.casefold()

    def __hash__(self) -> int:
        return hash(self.casefold())


EQUAL = [
    (np.int64(5), 5),
    (np.uint64(2**64 - 1), 2**64 - 1),
    (np.int8(-1), -1),
    (np.float64(2.5), 2.5),
    (np.float32(0.1), float(np.float32(0.1))),
    (np.float16(0.5), 0.5),
    (np.longdouble(0.5), 0.5),
    (np.bool_(True), True),
    (np.str_("a"), "a"),
    (np.bytes_(b"a"), b"a"),
    (Word("a"), "a"),
    (Word("a\0\udc80"), "a\0\udc80"),
    (Whole(2**70), 2**70),
    (Part(1.5), 1.5),
    (Raw(b"a"), b"a"),
    (Level.FIVE, 5),
    (Kind.A, "a"),
    ((np.int64(1), (Word("x"), Level.FIVE)), (1, ("x", 5))),
]
ids = [f"{type(other).__name__} {plain!r}" for other, plain in EQUAL]
pairs = pytest.mark.parametrize(("other", "plain"), EQUAL, ids=ids)


def same_classes(one: Any, two: Any) -> bool:
    if type(one) is tuple:
        return type(two) is tuple and len(one) == len(two) and all(map(same_classes, one, two))
    return type(one) is type(two) and one == two


def table_with_row(db: Database, other: Any, plain: Any) -> Any:
    """A table with a row that was put under one key, and is found under it and the plain one it equals."""
    table = db.table("t")
    table[other] = {"n": 1}
    [key] = table
    assert same_classes(key, plain)
    assert table[other].n == table[plain].n == table.get(other).n == 1
    assert other in table
    assert [row.n for row in table.range(other)] == [1]
    return table


@pairs
def test_a_key_is_the_plain_key_that_it_equals(db: Database, other: Any, plain: Any) -> None:
    table = table_with_row(db, other, plain)
    assert other in table.keys()  # noqa: SIM118  the view, too
    assert table.where(other == KEY).count() == table.where(KEY.isin([other])).count() == 1
    assert list(table.keys(stop=other)) == []
    table[plain] = {"n": 2}
    assert table.setdefault(other, {"n": 3}).n == 2
    with table.edit(other) as row:
        row.n = 4
    assert table.pop(other) == {"n": 4}
    assert (table.get(other), table.pop(other, "none"), other in table) == (None, "none", False)
    table.update({other: 5})
    assert list(table.items()) == [(plain, 5)]
    del table[other]
    assert len(table) == 0


class Moment(dt.datetime): ...


class Day(dt.date): ...


class Id(uuid.UUID): ...


class Price(Decimal): ...


class Point(NamedTuple):
    x: Any
    y: Any


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
DERIVED = [
    (pandas.Timestamp("2024-05-17 10:30:00.000001"), dt.datetime(2024, 5, 17, 10, 30, 0, 1)),
    (pandas.Timestamp("2024-05-17", tz="UTC"), dt.datetime(2024, 5, 17, tzinfo=dt.timezone.utc)),
    (Moment(2024, 5, 17, 10, tzinfo=BERLIN), dt.datetime(2024, 5, 17, 10, tzinfo=BERLIN)),
    (Moment(2024, 10, 27, 2, 30, fold=1), dt.datetime(2024, 10, 27, 2, 30, fold=1)),
    (Day(2024, 5, 17), dt.date(2024, 5, 17)),
    (np.datetime64("2024-05-17"), dt.date(2024, 5, 17)),
    (np.datetime64("2024-05-17T10"), dt.datetime(2024, 5, 17, 10)),
    (np.datetime64("2024-05-17T10:30", "us"), dt.datetime(2024, 5, 17, 10, 30)),
    (np.datetime64("2024-05-17T10:30", "ns"), dt.datetime(2024, 5, 17, 10, 30)),
    (Id(int=5), uuid.UUID(int=5)),
    (Price("1.50"), Decimal("1.50")),
    (Point(1, Point("x", np.int64(2))), (1, ("x", 2))),
    (("run", pandas.Timestamp("2024-05-17")), ("run", dt.datetime(2024, 5, 17))),
]


@pytest.mark.parametrize(("other", "plain"), DERIVED, ids=[repr(other) for other, _ in DERIVED])
def test_a_key_of_a_derived_class_or_a_time_of_numpy_is_the_key_that_it_equals(
    db: Database, other: Any, plain: Any
) -> None:
    table = table_with_row(db, other, plain)
    assert table.setdefault(other, {"n": 3}).n == 1
    assert table.pop(other) == {"n": 1}
    assert (table.get(other), table.pop(other, "none"), other in table) == (None, "none", False)
    table.update({plain: 5})
    del table[other]
    assert len(table) == 0


@pytest.mark.parametrize(
    ("key", "why"),
    [
        (pandas.Timestamp(1_715_935_800_000_000_001), "parts of a microsecond"),
        (np.datetime64(1_715_935_800_000_000_001, "ns"), "parts of a microsecond"),
        (np.datetime64("20240-05-17"), "years 1 to 9999"),
        (pandas.NaT, "is NaT"),
        (np.datetime64("NaT"), "is NaT"),
        (pandas.Timedelta("1s"), r"use key\.total_seconds\(\)$"),
        (np.timedelta64(1, "s"), r"use key / numpy\.timedelta64\(1, \"s\"\)"),
        (Price("NaN"), "is NaN"),
        (Point(1, []), "at position 1 is of type list"),
    ],
    ids=repr,
)
def test_a_key_of_a_derived_class_that_equals_none_is_in_no_table(db: Database, key: Any, why: str) -> None:
    table = db.table("t")
    for given in (key, ("run", key)):
        for call in ("set", "setdefault"):
            with pytest.raises(pellucid.UnsupportedKey, match=why if given is key else "position 1"):
                CALLS[call](table, given)
        assert (table.get(given), table.pop(given, "none"), given in table) == (None, "none", False)
        for call in ("[]", "del"):
            with pytest.raises(KeyError):
                CALLS[call](table, given)


@pytest.mark.parametrize("prefix", [np.str_("ab"), Word("ab")])
def test_a_prefix_is_the_plain_text_that_it_equals(db: Database, prefix: Any) -> None:
    table = db.table("t")
    table.update({"abc": 1, "b": 2})
    assert list(table.keys(prefix=prefix)) == ["abc"]


@pairs
def test_an_index_takes_the_plain_value_that_a_value_equals(db: Database, other: Any, plain: Any) -> None:
    table = db.table("t")
    table.create_index("by_x", F.x)
    index = table.index("by_x")
    table["row"] = {"x": plain, "n": 1}
    assert index.get(other).n == 1
    assert [row.n for row in index.range(other)] == [1]
    assert index.count(other) == 1
    assert other in index


@pairs
def test_a_field_is_found_under_the_plain_key_that_its_key_equals(
    db: Database, other: Any, plain: Any
) -> None:
    db["new"] = {other: 1, "more": {other: 2}}
    row = db["new"]
    assert all(same_classes(*keys) for keys in zip(row, [plain, "more"], strict=True))
    assert row[plain] == row[other] == row.get(other) == row.get(plain) == 1
    assert row.more[plain] == row.more[other] == 2
    assert other in row
    assert row.to_dict() == {plain: 1, "more": {plain: 2}}
    assert db.where(F[plain] == 1).count() == db.where(F[other] == 1).count() == 1

    row[other] = 3
    assert row.setdefault(other, 4) == 3
    row.update({other: 5})
    assert db["new"].to_dict() == {plain: 5, "more": {plain: 2}}
    assert row.more.pop(other) == 2
    del row[other]
    assert (row.get(plain), row.get(other), row.pop(other, None)) == (None, None, None)
    row[other] = 6
    assert all(same_classes(*keys) for keys in zip(db["new"], ["more", plain], strict=True))


def test_a_dict_with_other_keys_has_the_shape_of_one_with_plain_keys(db: Database) -> None:
    plain = {"north": 1, "south": 2}
    db["plain"] = plain
    db["other"] = {np.str_("north"): 1, Word("south"): 2}
    assert pellucid.dumps({np.str_("north"): 1, Word("south"): 2}) == pellucid.dumps(plain)
    assert db["other"].north == 1
    assert db["other"] == plain


def test_a_key_of_numpy_keeps_the_nul_at_its_end(db: Database) -> None:
    table = db.table("t")
    table.update({np.bytes_(b"a\0"): 1, np.str_("a\0"): 2})
    assert dict(table.items()) == {b"a\0": 1, "a\0": 2}


def test_elements_of_a_frozenset_in_a_key_are_plain(db: Database) -> None:
    db["r"] = {frozenset([np.int64(1)]): "x"}
    assert db["r"][frozenset([1])] == db["r"][frozenset([Whole(1)])] == "x"


def test_a_class_with_its_own_equality_is_no_plain_key(db: Database) -> None:
    table = db.table("t")
    with pytest.raises(pellucid.UnsupportedKey, match="Folded"):
        table[Folded("A")] = 1
    table["A"] = 1
    assert Folded("A") not in table


def test_a_number_between_floats_is_no_key(db: Database) -> None:
    third = np.longdouble(1) / 3
    # Where a longdouble has no more digits than a float, it equals one.
    is_float = third == float(third)
    with contextlib.nullcontext() if is_float else pytest.raises(pellucid.UnsupportedKey, match="longdouble"):
        db.table("t")[third] = 1
    assert len(db.table("t")) == is_float


MISTAKEN = {
    "F.who == 'bo'": (F.who == "bo", r"is a condition, not a key; table\.where\(condition\)"),
    "F.who": (F.who, r"F\.who is an expression.* table\.where\(F\.who == value\)"),
    "pellucid.count()": (pellucid.count(), r"is for agg\(\)"),
    "F.who.lower().startswith": (F.who.lower().startswith, r"is the method"),
}
CALLS: dict[str, Callable[[Any, Any], object]] = {
    "get": lambda rows, key: rows.get(key),
    "in": lambda rows, key: key in rows,
    "[]": operator.getitem,
    "set": lambda rows, key: operator.setitem(rows, key, 1),
    "del": operator.delitem,
    "pop": lambda rows, key: rows.pop(key, "default"),
    "setdefault": lambda rows, key: rows.setdefault(key, 1),
    "update": lambda rows, key: rows.update({key: 1}),
    "in keys()": lambda rows, key: key in rows.keys(),  # noqa: SIM118  the view
}


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("mistaken", MISTAKEN)
@pytest.mark.parametrize("of", ["table", "row"])
def test_a_condition_in_place_of_a_key_says_which_call_was_meant(
    db: Database, of: str, mistaken: str, call: str
) -> None:
    table = db.table("t")
    table["a"] = {"who": "x"}
    key, said = MISTAKEN[mistaken]
    with pytest.raises(TypeError, match=said):
        CALLS[call](table if of == "table" else table["a"], key)
    assert table.to_dicts() == [{"who": "x"}]


def test_a_condition_in_a_range_or_in_a_tuple_is_refused(db: Database) -> None:
    table = db.table("t")
    condition = F.who == "bo"
    for call in (
        lambda: table.range(condition),
        lambda: table.keys(stop=condition),
        lambda: table.keys(prefix=condition),
        lambda: table.edit(condition).__enter__(),
        lambda: table.get(("a", condition)),
    ):
        with pytest.raises(TypeError, match="is a condition, not a key"):
            call()


def test_a_query_in_place_of_a_key_says_which_call_was_meant(db: Database) -> None:
    table = db.table("t")
    table["a"] = {"who": "x"}
    for call in CALLS.values():
        with pytest.raises(TypeError, match=r"a query is not a key; query\.first\(\)"):
            call(table, table.where(F.who == "x"))
