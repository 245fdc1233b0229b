"""Do keys come back as they were put in, in their order, and can ranges of them be read?"""

from __future__ import annotations

import datetime as dt
import math
import uuid
from decimal import Decimal
from typing import Any

import pellucid
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from values import fingerprint, keys, order, same

Database = pellucid.Database
shared_db = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


# None is a key, but as a bound it leaves that side open.
bounds = keys.filter(lambda key: key is not None)


@shared_db
@given(st.lists(keys, max_size=8))
def test_keys_come_back_in_order_with_their_first_spelling(db: Database, chosen: list[Any]) -> None:
    db.clear()
    model: dict[Any, tuple[Any, int]] = {}
    for number, key in enumerate(chosen):
        db[key] = number
        first, _ = model.get(order(key), (key, 0))
        model[order(key)] = (first, number)
    expected = [model[place] for place in sorted(model)]
    assert [fingerprint(key) for key in db] == [fingerprint(key) for key, _ in expected]
    assert list(db.values()) == [number for _, number in expected]
    assert [fingerprint(key) for key in reversed(db)] == [fingerprint(key) for key, _ in reversed(expected)]
    for key in chosen:
        assert key in db
        assert db[key] == model[order(key)][1]
    assert len(db) == len(model)
    for key in chosen:
        db.pop(key, None)
    assert list(db) == []


@shared_db
@given(st.lists(keys, max_size=8), bounds, bounds)
def test_a_range_holds_the_keys_between_its_ends(
    db: Database, chosen: list[Any], start: Any, stop: Any
) -> None:
    db.clear()
    for key in chosen:
        db[key] = 0
    everything = list(db)
    inside = [fingerprint(key) for key in everything if order(start) <= order(key) < order(stop)]
    assert [fingerprint(key) for key in db.keys(start=start, stop=stop)] == inside
    assert [fingerprint(key) for key in db.keys(start=start, stop=stop, reverse=True)] == inside[::-1]
    assert len(db.keys(start=start, stop=stop)) == len(inside)
    behind = [fingerprint(key) for key in everything if order(start) <= order(key)]
    assert [fingerprint(key) for key in db.keys(start=start)] == behind
    before = [fingerprint(key) for key in everything if order(key) < order(stop)]
    assert [fingerprint(key) for key, _ in db.items(stop=stop)] == before


def test_numbers_are_one_family_in_exact_order(db: Database) -> None:
    numbers = [
        -math.inf,
        -(10**400),
        -(2.0**64),
        -(2**63),
        -1.5,
        -1,
        -0.5,
        0,
        0.5,
        1,
        2,
        2.5,
        2**53,
        2**53 + 1,
        2**64,
        1e300,
        10**400,
        math.inf,
    ]
    for number in reversed(numbers):
        db[number] = 0
    assert list(db) == numbers
    assert [type(key) for key in db] == [type(number) for number in numbers]


def test_equal_numbers_are_one_key_and_the_first_spelling_stays(db: Database) -> None:
    db[1] = "int"
    db[1.0] = "float"
    db[True] = "bool"
    assert [(type(key), value) for key, value in db.items()] == [(int, "bool")]
    assert (db[1], db[1.0], db[True]) == ("bool",) * 3
    assert Decimal(1) not in db
    del db[1.0]
    db[True] = "again"
    assert [(key, type(key)) for key in db] == [(True, bool)]
    db[(2.0, "x")] = 1
    db[(2, "x")] = 2
    assert repr(next(iter(db))) == "(2.0, 'x')"


def test_the_two_zeros_are_one_key(db: Database) -> None:
    db[-0.0] = 1
    db[0] = 2
    ((key, value),) = db.items()
    assert (math.copysign(1, key), value) == (-1, 2)


def test_decimals_are_a_family_of_their_own(db: Database) -> None:
    for text in ("-Infinity", "-10", "-1.5", "0", "1E-9", "1.10", "2", "1E+30", "Infinity"):
        db[Decimal(text)] = text
    assert [str(key) for key in db] == list(db.values())
    db[Decimal("1.1")] = "again"
    assert db[Decimal("1.10")] == "again"
    assert Decimal("NaN") not in db
    with pytest.raises(pellucid.UnsupportedKey):
        db[Decimal("NaN")] = 1


def test_aware_datetimes_are_ordered_by_instant(db: Database) -> None:
    zones = [dt.timezone(dt.timedelta(hours=hours)) for hours in (2, 0, -5)]
    moments = [dt.datetime(2024, 1, 1, 12, tzinfo=zone) for zone in zones]
    for moment in reversed(moments):
        db[moment] = 1
    assert list(db) == moments
    assert [key.tzinfo for key in db] == zones
    assert moments[0].astimezone(dt.timezone.utc) in db
    naive = dt.datetime(2024, 1, 1, 12)
    db[naive] = 2
    db[naive.date()] = 3
    assert list(db) == [naive.date(), naive, *moments]


def test_long_keys_are_keys_like_others(db: Database) -> None:
    long = [
        "x" * 100_000,
        "x" * 100_000 + "a",
        "x" * 99_999,
        "x",
        ("x" * 100_000, 1),
        b"x" * 100_000,
        10**20_000,
        "y" * 600,
    ]
    for number, key in enumerate(long):
        db[key] = number
    assert list(db) == sorted(long, key=order)
    assert [db[key] for key in long] == list(range(len(long)))
    assert "x" * 100_000 + "b" not in db
    assert list(db.keys(prefix="x" * 99_999)) == ["x" * 99_999, "x" * 100_000, "x" * 100_000 + "a"]
    assert list(db.keys(prefix=("x" * 100_000,))) == [("x" * 100_000, 1)]
    del db["x" * 100_000]
    assert "x" * 100_000 not in db
    assert db["x" * 100_000 + "a"] == 1
    assert len(db) == len(long) - 1


def test_a_tuple_prefix_selects_the_compound_keys_that_begin_with_it(db: Database) -> None:
    table = db.table("log")
    keys = [("a",), ("a", None), ("a", 1), ("a", 1, "x"), ("a", (1, 2)), ("ab", 1), ("b",), "a", b"a", None]
    for key in keys:
        table[key] = repr(key)
    assert list(table.keys(prefix=("a",))) == [("a",), ("a", None), ("a", (1, 2)), ("a", 1), ("a", 1, "x")]
    assert list(table.keys(prefix=("a", 1))) == [("a", 1), ("a", 1, "x")]
    assert list(table.range(prefix=("b",))) == [repr(("b",))]
    assert list(table.keys(prefix=())) == sorted((key for key in keys if isinstance(key, tuple)), key=order)
    assert list(table.keys(prefix=("c",))) == []
    with pytest.raises(TypeError, match="prefix"):
        table.keys(prefix=5)


def test_a_string_prefix_selects_the_strings_that_begin_with_it(db: Database) -> None:
    for key in ["", "a", "a\x00", "a\xff", "ab", "b", "\U0010ffff", "\U0010ffffx"]:
        db[key] = 1
    assert list(db.keys(prefix="a")) == ["a", "a\x00", "ab", "a\xff"]
    assert list(db.keys(prefix="")) == list(db)
    assert list(db.keys(prefix="\U0010ffff")) == ["\U0010ffff", "\U0010ffffx"]
    db[b"\xff"] = db[b"\xff\xff"] = db[b"\xfe"] = 1
    assert list(db.keys(prefix=b"\xff")) == [b"\xff", b"\xff\xff"]


def test_a_prefix_can_be_bounded_further(db: Database) -> None:
    for key in range(10):
        db["a", key] = key
        db["b", key] = -key
    assert list(db.values(start=("a", 3), stop=("a", 6), prefix=("a",))) == [3, 4, 5]
    assert list(db.values(start=("a", 7), prefix=("a",), reverse=True)) == [9, 8, 7]
    assert list(db.values(stop=("b", 2), prefix=("a",))) == list(range(10))
    assert list(db.values(start=("b", 2), prefix=("a",))) == []


def test_a_bounded_view_is_live_and_knows_its_bounds(db: Database) -> None:
    view = db.keys(start=3, stop=6)
    assert list(view) == []
    for key in range(10):
        db[key] = {"n": key}
    assert list(view) == [3, 4, 5]
    assert list(reversed(view)) == [5, 4, 3]
    assert 5 in view
    assert 6 not in view
    assert len(view) == 3
    assert [row.n for row in db.values(start=3, stop=6)] == [3, 4, 5]
    with db.transaction():
        db[4.5] = {"n": 0}
        assert list(view) == [3, 4, 4.5, 5]
        assert len(view) == 4


def test_first_and_last_are_the_ends(db: Database) -> None:
    table = db.table("t")
    assert table.first() is None
    assert table.last() is None
    table.update({"b": {"x": 1}, "a": 2, "c": [3]})
    assert table.first() == ("a", 2)
    assert table.last() == ("c", [3])
    table.last()[1].append(4)
    assert table["c"] == [3, 4]


def test_bounds_that_are_no_keys_are_refused(db: Database) -> None:
    for wrong in ({"start": [1]}, {"stop": math.nan}, {"prefix": ([],)}):
        with pytest.raises(pellucid.UnsupportedKey):
            db.keys(**wrong)


def test_every_family_has_its_place(db: Database) -> None:
    families = [
        None,
        b"\x00",
        "a",
        (1,),
        1.5,
        Decimal(1),
        dt.date(2024, 1, 1),
        dt.datetime(2024, 1, 1),
        dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc),
        uuid.UUID(int=1),
    ]
    for key in reversed(families):
        db[key] = 1
    assert all(same(one, two) for one, two in zip(db, families, strict=True))
    with pytest.raises(pellucid.UnsupportedKey, match="time zone"):
        db[dt.datetime(2024, 1, 1, tzinfo=OddZone())] = 1


class OddZone(dt.tzinfo):
    """A zone that has no name, and another offset in each month."""

    def utcoffset(self, moment: dt.datetime | None) -> dt.timedelta | None:
        return None if moment is None else dt.timedelta(hours=moment.month)


def test_a_key_of_any_size_is_found(db: Database) -> None:
    table = db.table("t")
    for size in (*range(1995, 2005), *range(2020, 2027)):
        key = "a" * size
        assert table.setdefault(key, {"n": size}).n == table[key].n == size
        assert table.pop(key) == {"n": size}
