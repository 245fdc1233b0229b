"""Does a query find what a plain filter over a list of dicts finds?

The model is written down as the documents say it: what is missing or unlike compares as false, `!=` is
exactly `not ==`. Each query is asked with and without an order, in and outside of a transaction.
"""

from __future__ import annotations

import dataclasses
import math
import operator
import re
import threading
from collections.abc import Callable, Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pellucid
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pellucid import KEY, F, count

MISSING: Any = object()
NUMBERS = (int, float)


class Asked(NamedTuple):
    """An expression, and all values that it should have in a plain row; a condition asks for any."""

    expression: Any
    values: Callable[[Any], list[Any]]


# ---- Rows ----------------------------------------------------------------------------------------

scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([2**63, -(2**70), 10**30]),
    st.sampled_from([0.0, -0.0, 1.0, 1.5, -2.5, 1e300, math.inf, math.nan]),
    st.sampled_from(["", "a", "ab", "B", "\u00e9", "stra\u00dfe"]),
    st.sampled_from([b"", b"a", bytearray(b"ab")]),
    st.sampled_from([Decimal("1"), Decimal("1.50"), Decimal("-0"), Decimal("1E+30")]),
    st.sampled_from([date(2020, 2, 29), date(1, 1, 1), datetime(2020, 2, 29, 1, 2, 3), timedelta(days=1)]),
)
plain = scalars.filter(lambda value: value == value)
containers = st.one_of(
    st.lists(plain, max_size=3),
    st.tuples(plain, plain),
    st.frozensets(st.integers(0, 3), max_size=2),
    st.dictionaries(st.sampled_from("xy"), plain, max_size=2),
)
rows = st.dictionaries(
    st.sampled_from(["a", "b", "tags", "sub"]), scalars | containers, max_size=4
) | st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(-3, 3))


# ---- Expressions and what they mean --------------------------------------------------------------


def step(value: Any, name: str) -> Any:
    return value[name] if isinstance(value, dict) and name in value else MISSING


def each(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, set, frozenset)) else []


fields = st.sampled_from(
    [
        Asked(F.a, lambda row: [step(row, "a")]),
        Asked(F.b, lambda row: [step(row, "b")]),
        Asked(F.sub.x, lambda row: [step(step(row, "sub"), "x")]),
        Asked(F.tags.each(), lambda row: each(step(row, "tags"))),
        Asked(F["sub"], lambda row: [step(row, "sub")]),
        Asked(F["tags"], lambda row: [step(row, "tags")]),
    ]
)


def in_python(work: Callable[..., Any], *values: Any) -> Any:
    """What Python makes of values; MISSING where one is, and where it raises."""
    if any(value is MISSING for value in values):
        return MISSING
    try:
        return work(*values)
    except (TypeError, ValueError, ZeroDivisionError, OverflowError, ArithmeticError):
        return MISSING


def is_number(value: Any) -> bool:
    return isinstance(value, NUMBERS)


def arithmetic(work: Callable[..., Any], is_sum: bool) -> Callable[[Any, Any], Any]:
    def compute(one: Any, other: Any) -> Any:
        measures = all(
            is_number(value) or isinstance(value, (Decimal, date, timedelta)) for value in (one, other)
        )
        texts = is_sum and isinstance(one, str) and isinstance(other, str)
        return in_python(work, one, other) if measures or texts else MISSING

    return compute


OPERATIONS: list[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], Any]]] = [
    (lambda a, b: a + b, arithmetic(lambda a, b: a + b, is_sum=True)),
    (lambda a, b: a - b, arithmetic(lambda a, b: a - b, is_sum=False)),
    (lambda a, b: a * b, arithmetic(lambda a, b: a * b, is_sum=False)),
    (lambda a, b: a / b, arithmetic(lambda a, b: a / b, is_sum=False)),
    (lambda a, b: a % b, arithmetic(lambda a, b: a % b, is_sum=False)),
]
FUNCTIONS: list[tuple[Callable[[Any], Any], Callable[[Any], Any]]] = [
    (lambda a: -a, lambda v: -v if is_number(v) or isinstance(v, (Decimal, timedelta)) else MISSING),
    (lambda a: a.length(), lambda v: in_python(len, v)),
    (lambda a: a.lower(), lambda v: v.lower() if isinstance(v, str) else MISSING),
    (lambda a: a.upper(), lambda v: v.upper() if isinstance(v, str) else MISSING),
    (lambda a: a.abs(), lambda v: in_python(abs, v)),
    (lambda a: a.year(), lambda v: v.year if isinstance(v, date) else MISSING),
    (lambda a: a.month(), lambda v: v.month if isinstance(v, date) else MISSING),
    (lambda a: a.day(), lambda v: v.day if isinstance(v, date) else MISSING),
]


def computed(inner: st.SearchStrategy[Asked]) -> st.SearchStrategy[Asked]:
    def two(one: Asked, other: Asked, work: Any) -> Asked:
        build, mean = work
        return Asked(
            build(one.expression, other.expression),
            lambda row: [mean(a, b) for a in one.values(row) for b in other.values(row)],
        )

    def single(one: Asked, work: Any) -> Asked:
        build, mean = work
        return Asked(
            build(one.expression), lambda row: [MISSING if a is MISSING else mean(a) for a in one.values(row)]
        )

    return st.builds(two, inner, inner, st.sampled_from(OPERATIONS)) | st.builds(
        single, inner, st.sampled_from(FUNCTIONS)
    )


operands = st.recursive(fields, computed, max_leaves=3)


def is_true(value: Any) -> bool:
    return value is not MISSING and value is True


def compares(work: Callable[..., Any]) -> Callable[..., bool]:
    def ask(*values: Any) -> bool:
        if any(isinstance(value, (set, frozenset)) for value in values):
            return False
        return is_true(in_python(work, *values))

    return ask


def equals(one: Any, other: Any) -> bool:
    return one is not MISSING and other is not MISSING and bool(one == other)


COMPARISONS: list[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], bool]]] = [
    (lambda a, b: a == b, equals),
    (lambda a, b: a < b, compares(lambda a, b: a < b)),
    (lambda a, b: a <= b, compares(lambda a, b: a <= b)),
    (lambda a, b: a > b, compares(lambda a, b: a > b)),
    (lambda a, b: a >= b, compares(lambda a, b: a >= b)),
]


def same_kind(one: Any, other: Any) -> bool:
    kinds = [(str,), (bytes, bytearray)]
    return any(isinstance(one, kind) and isinstance(other, kind) for kind in kinds)


def starts(one: Any, other: Any) -> bool:
    return same_kind(one, other) and one.startswith(other)


def ends(one: Any, other: Any) -> bool:
    return same_kind(one, other) and one.endswith(other)


def contains(one: Any, other: Any) -> bool:
    if other is MISSING:
        return False
    if isinstance(one, (list, tuple, set, frozenset, dict)):
        return any(equals(element, other) for element in one)
    return same_kind(one, other) and other in one


def compare(one: Asked, value: Any, is_turned: bool, work: Any) -> Asked:
    build, mean = work
    return Asked(
        build(value, one.expression) if is_turned else build(one.expression, value),
        lambda row: [any(mean(value, a) if is_turned else mean(a, value) for a in one.values(row))],
    )


def unequal(one: Asked, value: Any) -> Asked:
    return Asked(one.expression != value, lambda row: [not any(equals(a, value) for a in one.values(row))])


def between(one: Asked, least: Any, greatest: Any) -> Asked:
    at_least, at_most = compares(lambda a: least <= a), compares(lambda a: a <= greatest)

    def holds(a: Any) -> bool:
        # What has no order may still equal a bound.
        return (at_least(a) or equals(a, least)) and (at_most(a) or equals(a, greatest))

    return Asked(
        one.expression.between(least, greatest), lambda row: [any(holds(a) for a in one.values(row))]
    )


def asked_of(one: Asked, value: Any, work: Any) -> Asked:
    build, mean = work
    if mean is not contains and not isinstance(value, str | bytes | bytearray):
        value = "no text"  # all else is refused
    return Asked(build(one.expression, value), lambda row: [any(mean(a, value) for a in one.values(row))])


PARTS: list[tuple[Callable[[Any, Any], Any], Callable[[Any, Any], bool]]] = [
    (lambda a, value: a.startswith(value), starts),
    (lambda a, value: a.endswith(value), ends),
    (lambda a, value: a.contains(value), contains),
]


def is_in(one: Asked, values: list[Any]) -> Asked:
    return Asked(
        one.expression.isin(values),
        lambda row: [any(equals(a, value) for a in one.values(row) for value in values)],
    )


def exists(one: Asked) -> Asked:
    return Asked(one.expression.exists(), lambda row: [any(a is not MISSING for a in one.values(row))])


def is_none(one: Asked) -> Asked:
    return Asked(one.expression.is_none(), lambda row: [any(a is None for a in one.values(row))])


leaves = st.one_of(
    st.builds(compare, operands, scalars | containers, st.booleans(), st.sampled_from(COMPARISONS)),
    st.builds(unequal, operands, scalars | containers),
    st.builds(between, operands, scalars, scalars),
    st.builds(asked_of, operands, scalars, st.sampled_from(PARTS)),
    st.builds(is_in, operands, st.lists(scalars, max_size=4)),
    st.builds(exists, operands),
    st.builds(is_none, operands),
)


def combined(inner: st.SearchStrategy[Asked]) -> st.SearchStrategy[Asked]:
    def both(one: Asked, other: Asked) -> Asked:
        return Asked(
            one.expression & other.expression, lambda row: [one.values(row)[0] and other.values(row)[0]]
        )

    def either(one: Asked, other: Asked) -> Asked:
        return Asked(
            one.expression | other.expression, lambda row: [one.values(row)[0] or other.values(row)[0]]
        )

    def neither(one: Asked) -> Asked:
        return Asked(~one.expression, lambda row: [not one.values(row)[0]])

    return st.builds(both, inner, inner) | st.builds(either, inner, inner) | st.builds(neither, inner)


conditions = st.recursive(leaves, combined, max_leaves=4)


# ---- The tests -----------------------------------------------------------------------------------


@pytest.fixture(params=["memory", "file"])
def table(request: pytest.FixtureRequest, tmp_path: Any) -> Iterator[Any]:
    target = ":memory:" if request.param == "memory" else tmp_path / "queries.pel"
    with pellucid.open(target) as db:
        yield db.table("t")


@settings(max_examples=600, deadline=None)
@given(
    stored=st.lists(rows, max_size=12),
    condition=conditions,
    part=st.tuples(st.integers(0, 4), st.integers(0, 4)),
)
def test_a_query_finds_what_a_filter_finds(
    stored: list[Any], condition: Asked, part: tuple[int, int]
) -> None:
    db = pellucid.open(":memory:")
    table = db.table("t")
    table.extend(stored)
    expected = [key for key, row in enumerate(stored) if condition.values(row)[0]]
    query = table.where(condition.expression)
    assert list(query.keys()) == expected
    assert query.count() == len(query.to_list()) == len(expected)
    assert query.exists() == bool(expected)
    offset, limit = part
    assert list(query.offset(offset).limit(limit).keys()) == expected[offset:][:limit]
    assert list(query.order_by(-KEY).keys()) == expected[::-1]
    with db.transaction():
        table["behind"] = {"a": 1}
        assert list(filter(lambda key: key != "behind", query.keys())) == expected
        assert list(filter(lambda key: key != "behind", query.order_by(-KEY).keys())) == expected[::-1]
    # As a text, and out of a pickle, it is the same condition.
    assert pellucid.parse(str(condition.expression)).same_as(condition.expression)


def test_ends(table: Any) -> None:
    table.update(
        ann={"n": 3, "c": "Bath"}, bob={"n": 1.5, "c": "York"}, cid={"n": 2, "c": "Bath"}, dan={"c": "Bath"}
    )
    bath = table.find(c="Bath")
    assert bath.count() == 3
    assert (bath.sum("n"), bath.min("n"), bath.max("n"), bath.mean("n")) == (5, 2, 3, 2.5)
    assert bath.sum(F.n * 2) == 10
    assert bath.column("n") == [3, 2, None]
    assert bath.count("n") == 2
    assert list(bath.keys()) == ["ann", "cid", "dan"]
    assert dict(bath.items()) == {
        "ann": {"n": 3, "c": "Bath"},
        "cid": {"n": 2, "c": "Bath"},
        "dan": {"c": "Bath"},
    }
    assert bath.first() == {"n": 3, "c": "Bath"}
    assert table.find(c="Rome").first() is None
    assert table.find(c="York").one().n == 1.5
    for query in (bath, table.find(c="Rome")):
        with pytest.raises(pellucid.NotOneRow, match="row"):
            query.one()
    assert bath.order_by("n").select("n", twice=F.n * 2).to_list() == [
        {"n": 2, "twice": 4},
        {"n": 3, "twice": 6},
        {"n": None, "twice": None},
    ]
    assert bath.order_by(F.n.desc()).to_dicts()[0] == {"n": 3, "c": "Bath"}
    assert table.filter(lambda row: row.get("n", 0) > 1).order_by("n").limit(2).column("n") == [1.5, 2]


def test_the_order_of_unlike_values(table: Any) -> None:
    values = [None, True, 2, 2.5, Decimal(1), "a", b"a", date(2020, 1, 1), timedelta(1), [1], math.nan]
    table.extend({"v": value} for value in values)
    table["none"] = {}
    ordered = [row.get("v", MISSING) for row in table.order_by("v").to_dicts()]
    assert ordered[:4] == [None, b"a", "a", True]
    assert ordered[-1] is MISSING
    backwards = [row.get("v", MISSING) for row in table.order_by(F.v.desc()).to_dicts()]
    assert backwards[-1] is MISSING
    assert backwards[-2] is None


@pytest.mark.parametrize("count", [None, 3], ids=["all", "the first ones"])
def test_numbers_with_and_without_a_fraction_in_either_order(table: Any, count: int | None) -> None:
    numbers = [2, 2.5, 2.25, -2, -2.5, 2.0, 0.0, 0.5, -0.5, 1e300, 2**70, True]
    table.extend({"v": value, "w": value} for value in numbers)
    up = sorted(numbers)
    down = sorted(numbers, reverse=True)
    assert table.order_by("v").limit(count or 99).column("v") == up[:count]
    assert table.order_by(F.v.desc()).limit(count or 99).column("v") == down[:count]
    # As the first part of an order the number is followed by the next one.
    for ways, expected in (((F.v, F.w.desc()), up), ((F.v.desc(), "w"), down), ((F.v.desc(), "none"), down)):
        assert table.order_by(*ways).limit(count or 99).column("v") == expected[:count]
    page = table.order_by(F.v.desc()).limit(5)
    assert page.after(page.to_list()[-1]).column("v") == down[5:10]


def test_groups(table: Any) -> None:
    table.extend(
        {"c": c, "n": n} for c, n in [("x", 1), ("y", 2), ("x", 3), (1, 5), (1.0, 6), ([1], 7), ([1], 8)]
    )
    table["k"] = {"n": 9}
    groups = table.group_by("c").agg(
        n=count(), total=F.n.sum(), least=F.n.min(), most=F.n.max(), mean=F.n.mean()
    )
    assert [tuple(group.values()) for group in groups] == [
        ("x", 2, 4, 1, 3, 2.0),
        ("y", 1, 2, 2, 2, 2.0),
        (1, 2, 11, 5, 6, 5.5),
        ([1], 2, 15, 7, 8, 7.5),
        (None, 1, 9, 9, 9, 9.0),
    ]
    assert table.where(F.n > 100).agg(n=count(), total=F.n.sum(), mean=F.n.mean()) == {
        "n": 0,
        "total": 0,
        "mean": None,
    }
    assert table.agg(big=(F.n * 2**70).sum()) == {"big": 41 * 2**70}


def test_changes(table: Any) -> None:
    table.extend({"n": n, "s": "x"} for n in range(10))
    assert table.where(F.n >= 5).update(n=F.n * 10, s="a longer text than before", new=True) == 5
    assert table[5] == {"n": 50, "s": "a longer text than before", "new": True}
    assert table[4] == {"n": 4, "s": "x"}
    assert table.where(F.n >= 50).limit(2).delete() == 2
    assert list(table.keys()) == [0, 1, 2, 3, 4, 7, 8, 9]
    # Each row is met once, whatever it becomes.
    assert table.where(F.n < 5).update(n=F.n + 1) == 5
    assert table.where(F.s == "x").update({"of another": [1, {"a": 2}]}) == 5
    assert table[0]["of another"] == [1, {"a": 2}]
    with pellucid.open(":memory:") as db:
        db.table("t")["a"] = {"n": 1}
        kept = db.snapshot().table("t").where(F.n == 1)
        with pytest.raises(pellucid.ReadOnly):
            kept.delete()


def test_a_table_and_its_database_give_rows_as_a_query_does(path: Path) -> None:
    with pellucid.open(path) as db:
        db.extend([{"n": 1}, {"n": [2]}, 3])
        with db.snapshot() as before:
            for rows in (db, db.table("default"), before, before.table("default")):
                assert rows.to_list() == rows.offset(0).to_list() == [{"n": 1}, {"n": [2]}, 3]
                assert type(rows.to_list()[0]) is pellucid.Record
                assert [type(row) for row in rows.to_dicts()] == [dict, dict, int]
                assert rows.offset(1).limit(1).to_dicts() == [{"n": [2]}]


def test_pages(table: Any) -> None:
    table.extend({"n": n % 3} for n in range(10))
    query = table.order_by("n").limit(4)
    first = query.to_list()
    # What comes before the page's end moves nothing behind it.
    table["a"] = {"n": -1}
    del table[0]
    second = query.after(first[-1]).to_list()
    third = query.after(second[-1]).to_list()
    assert [row.n for row in first + second + third] == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert query.after(third[-1]).to_list() == []
    assert list(table.limit(2).after(table.limit(3).to_list()[-1]).keys()) == [3, 4]


def test_pages_in_the_order_of_keys_of_any_type(table: Any) -> None:
    keys = [1, 1.5, Decimal("2.5"), 3.0, float("inf"), "a", (1, 2.5), date(2020, 1, 1)]
    table.update({key: {"a": 1} for key in keys})
    for order in [(KEY,), (KEY.desc(),), (F.a, KEY)]:
        query = table.order_by(*order)
        down = list(query.keys())
        assert sorted(map(repr, down)) == sorted(map(repr, keys))
        for place, key in enumerate(down):
            rest = query.after(table[key])
            assert list(rest.keys()) == down[place + 1 :]
            assert repr(key) in rest.explain()


def test_key_ranges(table: Any) -> None:
    table.update({1: 1, 2.5: 1, "a": 1, "ab": 1, "b": 1, b"a": 1, ("a", 1): 1, ("b", 2): 1})
    assert list(table.where(KEY >= "ab").keys()) == ["ab", "b"]
    assert list(table.where(KEY.startswith("a")).keys()) == ["a", "ab"]
    assert list(table.where(KEY < 2, KEY > 0.5).keys()) == [1]
    assert list(table.where(KEY[0] == "b").keys()) == [("b", 2)]
    assert list(table.where(KEY == "b").keys()) == ["b"]
    assert list(table.where(KEY.between(1, 3)).keys()) == [1, 2.5]
    table[Decimal("1.5")] = 1
    assert list(table.where(KEY < 2, KEY > 0.5).keys()) == [1, Decimal("1.5")]
    said = table.where(KEY >= "ab", (KEY < "c") & (F.a > 1)).explain()
    assert "those where key() >= 'ab' and key() < 'c'\nfilter natively: a > 1" in said


def test_what_goes_wrong(table: Any) -> None:
    table["a"] = {"n": 1}
    with pytest.raises(TypeError, match=r"pellucid.parse\(text\)"):
        table.where("n > 1")
    with pytest.raises(TypeError, match=r"filter\(\) takes a function"):
        table.filter(F.n > 1)
    with pytest.raises(ValueError, match=r"limit\(\) takes a count"):
        table.limit(-1)
    with pytest.raises(TypeError, match=r"exists\(\)"):
        bool(table.where(F.n > 1))
    with pytest.raises(ZeroDivisionError):
        table.filter(lambda row: 1 / 0).to_list()
    assert table.where(F.n / 0 == 1).count() == 0
    assert table.where(F.n * 2**64 == 2**64).count() == 1
    with pytest.raises(TypeError, match="after"):
        table.limit(1).after({"n": 1})
    table["b"] = {"number": 1}
    assert 'no record in "t" has "numbr"; did you mean "number"?' in table.where(F.numbr > 1).explain()
    for order in ["-n", "n desc", "n ASC"]:
        with pytest.raises(ValueError, match=r"write F\.n\.desc\(\)"):
            table.order_by(order)
    assert table.order_by(F["-n"]).count() == 2
    with pytest.raises(TypeError, match=r"update\(\) takes a dict.*not Expression"):
        table.where(F.n == 1).update(F.n)
    with pytest.raises(TypeError, match=r"parse\(\) takes the text"):
        pellucid.parse(5)  # type: ignore[arg-type]


def test_a_page_is_the_same_whichever_is_called_first(table: Any) -> None:
    table.extend({"n": n} for n in range(10))
    rows = table.where(F.n >= 0)
    assert rows.limit(3).offset(2).column("n") == rows.offset(2).limit(3).column("n") == [2, 3, 4]
    assert table.limit(3).where(F.n > 4).order_by(F.n.desc()).column("n") == [9, 8, 7]


def test_update_goes_to_paths(table: Any) -> None:
    table["a"] = {"address": {"city": "Bath"}, "tags": ["x", "y"], "n": 1}
    table["b"] = {"n": 2}
    assert table.where(F.n == 1).update({"address.city": "York", ("tags", 1): F.address.city, "n": 5}) == 1
    assert table["a"].to_dict() == {"address": {"city": "York"}, "tags": ["x", "Bath"], "n": 5}
    assert table.where(F.n == 5).update({("a.b",): 1}) == 1
    assert table["a"]["a.b"] == 1
    with pytest.raises(ValueError, match=r"record 'b' of table .* nothing was changed in any row"):
        table.where(F.n > 0).update({"address.city": "Ely", "n": 7})
    assert table.column("n") == [5, 2]
    assert table["a"].address.city == "York"
    # Nothing comes of it, so nothing is changed.
    assert table.where(F.n == 2).update(n=F.no_such + 1, other=F.n / 0) == 0
    assert table["b"].to_dict() == {"n": 2}
    assert list(table.find(**{"address.city": "York"}).keys()) == ["a"]


def test_update_in_a_transaction_that_goes_on(path: Path) -> None:
    with pellucid.open(path) as db:
        table = db.table("t")
        table["a"] = {"n": 1}
        with db.transaction():
            table.where(F.n == 1).update(of_a_new_shape=2)
            assert table["a"].to_dict() == {"n": 1, "of_a_new_shape": 2}
        assert table["a"].to_dict() == {"n": 1, "of_a_new_shape": 2}


@dataclasses.dataclass
class Person:
    name: str
    age: int = 0


def test_update_leaves_instances_of_the_table_s_class(path: Path) -> None:
    with pellucid.open(path) as db:
        people = db.table("people", type=Person)
        people["ann"] = Person("Ann", 30)
        people["bob"] = Person("Bob", 20)
        assert people.where(F.age > 25).update(age=F.age + 1) == 1
        assert people["ann"] == Person("Ann", 31)
        with pytest.raises(pellucid.WrongClass):
            people.where(F.age > 0).update(nmae="x")
        assert list(people.values()) == [Person("Ann", 31), Person("Bob", 20)]


def test_numpy_scalars_are_the_values_that_they_equal(table: Any) -> None:
    rows = [
        {
            "i": np.int64(3),
            "u": np.uint64(2**63),
            "f": np.float32(1.5),
            "s": np.str_("b"),
            "b": np.bool_(True),
        },
        {"i": np.int8(-9), "u": np.uint8(7), "f": np.float16(-0.25), "s": np.str_("a"), "b": np.bytes_(b"x")},
        {"i": 1, "u": 2**63, "f": np.float64("nan"), "s": "c", "b": np.array([True])},
        {"i": np.array(5), "u": np.array([1, 2]), "f": np.float16(6e-8), "s": np.array("z"), "b": False},
    ]
    table.extend(rows)
    assert list(table.where(F.i > 2).keys()) == [0]
    assert list(table.where(F.u == 2**63).keys()) == [0, 2]
    assert list(table.where(F.f < 0).keys()) == [1]
    assert list(table.where((F.f > 0) & (F.f < 1)).keys()) == [3]
    assert list(table.where(F.s.startswith("a") | (F.s == "b")).keys()) == [0, 1]
    assert list(table.where(F.b == b"x").keys()) == [1]
    assert list(table.where(F.b == True).keys()) == [0]  # noqa: E712
    assert table.where(F.i.isin([3, -9])).agg(n=F.i.sum(), least=F.i.min(), greatest=F.i.max()) == {
        "n": -6,
        "least": -9,
        "greatest": 3,
    }
    assert table.sum("i") == table.where(F.i < 100).sum(F.i + 0) == -5
    assert table.where(KEY < 3).mean("i") == table.where(KEY < 3).agg(m=F.i.mean())["m"]
    assert list(table.where(KEY < 3).order_by("i").keys()) == [1, 2, 0]
    assert list(table.where(KEY < 3).order_by(F.s.desc()).keys()) == [2, 0, 1]
    assert [row["i"] for row in table.group_by("i").agg(n=count())][:3] == [-9, 1, 3]
    assert type(table[0].i) is np.int64


def test_numpy_times_are_compared_as_datetimes(table: Any) -> None:
    table[0] = {"t": np.datetime64("2020-02-29T01:02:03"), "d": np.timedelta64(90, "s")}
    table[1] = {"t": np.datetime64("2020-02-29"), "d": np.timedelta64(2, "D")}
    table[2] = {"t": np.datetime64("NaT", "s"), "d": np.timedelta64(5, "Y")}
    table[3] = {"t": np.datetime64("2020-02-29T01:02:03.000000001"), "d": np.timedelta64(-1, "us")}
    assert list(table.where(F.t == datetime(2020, 2, 29, 1, 2, 3)).keys()) == [0]
    assert list(table.where(F.t == date(2020, 2, 29)).keys()) == [1]
    assert list(table.where(F.d > timedelta(minutes=1)).keys()) == [0, 1]
    assert list(table.where(F.d < timedelta(0)).keys()) == [3]


def test_a_query_kept_while_its_table_goes(table: Any) -> None:
    with pellucid.open(":memory:") as db:
        made = db.table("gone")
        made.extend({"n": n} for n in range(3))
        query = made.where(F.n > 0)
        rows = iter(query)
        assert next(rows).n == 1
        db.drop_table("gone")
        assert next(rows).n == 2
        with pytest.raises(pellucid.StaleTable):
            query.count()


def test_update_stores_values_as_a_field_would(path: Path) -> None:
    large = "x" * 300_000
    with pellucid.open(path) as db:
        table = db.table("t")
        table.extend({"n": n, "address": {"city": "Bath"}} for n in range(4))
        table[4] = {"n": 4, "address": {"city": "York", "zip": 5}}
        table[5] = table[4].to_dict()
        table[4].address = {"city": "Ely", "zip": 1}
        assert table.where(KEY == 5).update(address={"city": "Ely", "zip": 1}) == 1
        # As the assignment stored it: by shape, and not with the keys in each row.
        assert pellucid.dumps(table[4].address) == pellucid.dumps(table[5].address)
        assert len(memoryview(table[4])) == len(memoryview(table[5]))
        assert table.where(F.n < 2).update(text=large, tags=["a", {"b": 1}]) == 2
        assert [row.text for row in table.where(F.n < 2)] == [large, large]
        del table[0]
        assert table[1].text == large
        assert db.check() == []


def test_a_search_lets_other_threads_and_iterators_run(path: Path) -> None:
    """Rows that are far apart are looked for with the GIL released, by several threads of one iterator."""
    count_of_rows, step_size = 60_000, 3_000
    with pellucid.open(path) as db:
        table = db.table("t")
        table.extend({"n": n, "wanted": n % step_size == 7} for n in range(count_of_rows))
        expected = list(range(7, count_of_rows, step_size))
        rows = table.where(F.wanted == True).select("n")  # noqa: E712
        assert [row["n"] for row in rows] == expected
        for shared in [iter(table.where(F.wanted.isin([True]))), table.where(F.wanted.isin([True])).items()]:
            found: list[int] = []

            def take(shared: Any = shared, found: list[int] = found) -> None:
                for row in shared:
                    found.append(row[1].n if isinstance(row, tuple) else row.n)

            threads = [threading.Thread(target=take) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(found) == expected


def test_a_search_ends_when_the_database_is_closed(path: Path) -> None:
    db = pellucid.open(path)
    db.table("t").extend({"n": n} for n in range(20_000))
    rows = iter(db.table("t").where(F.n.isin([5, 19_000])))
    assert next(rows).n == 5
    db.close()
    with pytest.raises(pellucid.Closed):
        next(rows)


def test_mistakes_say_what_to_write_instead(table: Any) -> None:
    table.extend([{"a": 1.5}, {"a": Decimal(1)}])
    for method in (table.limit, table.where().offset):
        with pytest.raises(ValueError, match=r"from 0 to 2\*\*63 - 1, not 2361183241434822606848"):
            method(2**71)
    total = F.a.sum()
    for mistake in (
        lambda: table.select(total),
        lambda: table.group_by(total),
        lambda: table.order_by(total),
        lambda: table.where().update(a=total),
    ):
        with pytest.raises(TypeError, match=r"Aggregate sum of a> is for agg\(\)"):
            mistake()
    with pytest.raises(TypeError, match=r'of table "t" cannot all be added to each other: .*one type'):
        table.agg(total=total)


def test_what_python_computes_at_the_edges_of_floats_is_computed(table: Any) -> None:
    # Near the greatest floats, and near 0, where a quotient must not be rounded twice.
    pairs = [
        (3 * 2**1023, 2),
        (3 * 2**1023, 3),
        (2**1100, 3 * 2**80),
        (2**1024 - 2**970 - 1, 1),
        (2**1024 - 2**970, 1),
        (-(3 * 2**60 - 1), 2**1135),
        (1, 2**1074),
        (1, 2**1075),
        (2**2000, 1),
        (-1, 10**400),
        (10**30 + 1, 10**13),
    ]
    table.extend({"a": a, "b": b} for a, b in pairs)

    def divided(a: int, b: int) -> float | None:
        try:
            return a / b
        except OverflowError:
            return None

    assert repr(table.column(F.a / F.b)) == repr([divided(a, b) for a, b in pairs])


def test_a_time_with_an_offset_and_one_without_are_two_groups(table: Any) -> None:
    noon = time(12)
    table.extend({"at": at} for at in (noon, noon.replace(tzinfo=timezone.utc), noon))
    groups = table.group_by("at").agg(n=count())
    assert groups == [{"at": noon, "n": 2}, {"at": noon.replace(tzinfo=timezone.utc), "n": 1}]


def test_explain_tells_what_was_met(table: Any) -> None:
    table.extend({"n": n} for n in range(20))
    said = table.where(F.n >= 5, KEY >= 2).order_by(F.n.desc()).limit(3).explain(analyze=True)
    assert re.search(r"met 18 rows: 15 passed\ngave 3 in the end, in [0-9.]+ ms", said)
    said = table.where(F.n >= 5).explain(analyze=True)
    assert "met 20 rows: 15 passed" in said
    assert "in the end" not in said


def test_groups_of_values_that_stand_in_their_slots(table: Any) -> None:
    """More of them than are remembered by their slots, met again and again, and equal ones of other types."""
    values: list[Any] = [1, 1.0, True, 0, -0.0, False, None, 2**62, -(2**62), 0.5, math.inf]
    values += ["", "1", "\x01", "1\x00", "1234567", "12345678", "123456789", b"", b"1", b"1\x00", b"12345678"]
    values += [date(1, 1, 1), date(2020, 2, 29), datetime(1, 1, 1), datetime(2020, 2, 29)]
    values += [f"{number:x}" for number in range(0, 2**24, 2**13)] + list(range(-50, 2_000))
    values += [number / 4 for number in range(400)]
    table.extend({"v": value, "n": number} for number, value in enumerate(values * 2))
    table[0].n = 10**6
    del table[1]["v"]
    expected: dict[Any, list[int]] = {}
    for number, value in enumerate(values * 2):
        # A date and a datetime, as "1" and b"1", are equal to none of the others. A missing value is as None.
        expected.setdefault(None if number == 1 else value, []).append(10**6 if number == 0 else number)
    found = table.group_by("v").agg(n=count(), total=F.n.sum())
    *groups, last = [(group["v"], group["n"], group["total"]) for group in found]
    without = expected.pop(None)
    assert last == (None, len(without), sum(without))
    assert len(groups) == len(expected)
    assert {value: (n, total) for value, n, total in groups} == {
        value: (len(numbers), sum(numbers)) for value, numbers in expected.items()
    }


def test_a_loop_over_matches_gives_each_as_it_is(path: Path) -> None:
    """Whether matches are near or far from each other, kept or let go of, whatever stands between them."""

    def is_match(number: int) -> bool:
        return number % 10 == 3 and not 2_000 < number < 2_900

    with pellucid.open(path) as db:
        table = db.table("t")
        table.extend([number] if number % 50 == 3 else {"n": number} for number in range(5_000))
        for number in range(53, 5_000, 100):
            table[number] = {"other": "shape", "n": number, "text": "x" * (number % 7 * 900)}
        stored = [row for row in table.values() if isinstance(row, pellucid.Record)]
        expected = [row.n for row in stored if is_match(row.n)]
        query = table.where(F.n % 10 == 3, ~F.n.between(2_001, 2_899))
        quick = table.where(F.n > 4_200)
        assert [row.n for row in query] == expected
        assert [row.n for row in quick] == [row.n for row in stored if row.n > 4_200]
        kept = list(query)
        assert [row.n for row in kept] == expected
        some = [row for index, row in enumerate(query) if index % 3]
        assert [row.n for row in some] == [n for index, n in enumerate(expected) if index % 3]
        assert [row.n for row in query.offset(5).limit(30)] == expected[5:35]
        assert [(key, row.n) for key, row in query.items()] == [(n, n) for n in expected]
        one, other = iter(query), iter(query)
        assert [(next(one).n, next(other).n) for _ in expected] == [(n, n) for n in expected]
        assert (next(one, None), next(other, None), next(one, None)) == (None, None, None)
        with db.transaction():
            table[4_999] = {"n": 3}
            assert [row.n for row in query] == [*expected, 3]


def test_ints_are_compared_up_to_the_ends_of_64_bits(table: Any) -> None:
    ends = [-(2**63), -(2**63) + 1, -1, 0, 1, 2**63 - 2, 2**63 - 1]
    numbers: list[Any] = [*ends, -(2**63) - 1, 2**63, -0.5, 0.0, 2.0**63, math.inf, math.nan]
    table.extend({"n": number, "place": place} for place, number in enumerate(numbers))
    for bound in [*ends, 0.0, 0.5, 2.0**63, math.nan]:
        for compare in (operator.lt, operator.le, operator.eq, operator.ne, operator.ge, operator.gt):
            expected = [place for place, number in enumerate(numbers) if compare(number, bound)]
            assert table.where(compare(F.n, bound)).column("place") == expected, (compare, bound)
            assert table.where(compare(bound, F.n)).column("place") == [
                place for place, number in enumerate(numbers) if compare(bound, number)
            ]
    for least, greatest in [(ends[0], ends[-1]), (1, -1), (ends[-1], ends[-1]), (-1, 1)]:
        expected = [place for place, number in enumerate(numbers) if least <= number <= greatest]
        assert table.where(F.n.between(least, greatest)).column("place") == expected


def test_queries_show_what_they_are(table: Any) -> None:
    table.extend([{"n": 1}, {"n": 2}])
    groups = table.where(F.n > 1).group_by("n", twice=F.n * 2)
    assert repr(groups) == f"<pellucid.Groups of {table.where(F.n > 1)!r} by n, n * 2>"
    rows = iter(table.where(F.n > 1))
    assert repr(rows) == '<pellucid.RowIterator over values of table "t">'
    assert repr(table.where(F.n > 1).keys()) == '<pellucid.RowIterator over keys of table "t">'
    assert repr(table.where(F.n > 1).items()) == '<pellucid.RowIterator over items of table "t">'
    assert [row.n for row in rows] == [2]
    assert repr(rows) == "<pellucid.RowIterator over values, at its end>"


def test_transactions_show_whether_they_run(path: Path) -> None:
    with pellucid.open(path) as db:
        db["a"] = {"n": 1}
        outer = db.transaction()
        assert repr(outer) == "<pellucid.TransactionContext, not running>"
        with outer:
            assert repr(outer) == "<pellucid.TransactionContext, running>"
            with db.transaction() as inner:
                assert repr(inner) == "<pellucid.TransactionContext, running, inside another one>"
        assert repr(outer) == "<pellucid.TransactionContext, not running>"
        head = repr(db.table("default")).split("\n")[0]
        assert repr(db.edit("a")) == f"<pellucid.EditContext of 'a' in {head}>"


def test_a_long_list_is_compared_with_as_a_short_one() -> None:
    numbers = [*range(0, 900, 3), 1.5, Decimal("2.5"), 2**70]
    texts = [f"t{number}" for number in range(0, 900, 3)]
    table = pellucid.open(":memory:").table("t")
    values: list[Any] = [
        *range(30),
        True,
        False,
        3.0,
        4.0,
        1.5,
        2.5,
        Decimal(3),
        Decimal(4),
        2**70,
        2.0**70,
        6 + 0j,
    ]
    values += [None, "t3", "t4", "", b"t3", bytearray(b"t3"), [3], (3,), float("nan")]
    table.extend({"v": value} for value in values)
    for wanted in (numbers, texts, [*numbers, *texts, None, b"t3"], list(range(0, 900, 3)), [True], [b"t3"]):
        # NaN is in no list, and a list holds what equals, as `==` says.
        found = [row for row, value in enumerate(values) if any(value == each for each in wanted)]
        assert list(table.where(F.v.isin(wanted)).keys()) == found


@settings(max_examples=200, deadline=None)
@given(
    st.lists(
        st.fixed_dictionaries(
            {"c": st.sampled_from("xy")},
            optional={
                "tags": st.lists(plain, max_size=4) | st.lists(plain, max_size=4).map(tuple) | plain,
                "parts": st.lists(
                    st.dictionaries(st.sampled_from("kn"), st.integers(0, 3), max_size=2), max_size=3
                ),
            },
        ),
        max_size=8,
    )
)
def test_groups_and_aggregates_run_over_elements(stored: list[dict[str, Any]]) -> None:
    def elements(row: dict[str, Any], name: str) -> list[Any]:
        found = row.get(name)
        return list(found) if isinstance(found, (list, tuple)) else []

    def same(one: Any) -> Any:
        # As keys are: a Decimal is no number, a bytearray no bytes, and a datetime no date.
        if isinstance(one, (bool, int, float)):
            return ("number", one)
        return (type(one), bytes(one) if isinstance(one, bytearray) else one)

    with pellucid.open(":memory:") as db:
        table = db.table("t")
        table.extend(stored)
        expected: dict[Any, int] = {}
        for row in stored:
            for key in {same(element) for element in elements(row, "tags")}:
                expected[key] = expected.get(key, 0) + 1
        found = {same(group["tag"]): group["n"] for group in table.group_by(tag=F.tags.each()).agg(n=count())}
        assert found == expected
        pairs: dict[Any, list[Any]] = {}
        for row in stored:
            keys = {(row["c"], part.get("k")) for part in elements(row, "parts")}
            for pair in keys:
                pairs.setdefault(pair, []).append(len(elements(row, "tags")))
        grouped = table.group_by("c", k=F.parts.each().k).agg(n=count(), tags=F.tags.each().count())
        assert {(group["c"], group["k"]): (group["n"], group["tags"]) for group in grouped} == {
            pair: (len(counts), sum(counts)) for pair, counts in pairs.items()
        }
        numbers = [part["n"] + 1 for row in stored for part in elements(row, "parts") if "n" in part]
        n = F.parts.each().n + 1
        wanted = {
            "sum": sum(numbers),
            "count": len(numbers),
            "min": min(numbers, default=None),
            "max": max(numbers, default=None),
            "mean": sum(numbers) / len(numbers) if numbers else None,
        }
        assert table.agg(sum=n.sum(), count=n.count(), min=n.min(), max=n.max(), mean=n.mean()) == wanted
        assert {name: getattr(table, name)(n) for name in wanted} == wanted
        assert table.agg(n=count()) == {"n": len(stored)}


def test_decimals_in_lists_are_added(table: Any) -> None:
    table.extend([{"n": [1, Decimal("1.5")]}, {"n": [2**70]}, {"n": 5}, {}])
    total = 1 + Decimal("1.5") + 2**70
    assert table.sum(F.n.each()) == table.agg(s=F.n.each().sum())["s"] == total
    assert table.mean(F.n.each()) == table.agg(m=F.n.each().mean())["m"] == total / 3
    assert (table.min(F.n.each()), table.max(F.n.each())) == (1, 2**70)


def test_what_elements_cannot_be_asked_for_is_refused(table: Any) -> None:
    parts = F.parts.each()
    with pytest.raises(ValueError, match=r"grouped by each element of a list, parts\[\*\]\.k"):
        table.group_by(parts.k).agg(total=(parts.n + 1).sum())
    with pytest.raises(ValueError, match=r"order_by\(\) takes what has one value in a row, and parts\[\*\]"):
        table.order_by(parts.desc())


def test_an_extreme_is_the_same_by_whichever_way(table: Any) -> None:
    for values, least, most in [
        ([5, Decimal("1.5"), 2.5], Decimal("1.5"), 5),
        (["b", 1, None, b"x", date(2020, 1, 1)], b"x", date(2020, 1, 1)),
        ([Decimal(3), 3, 3.0], Decimal(3), Decimal(3)),
        ([timedelta(1), time(1), 2**70, -(2**70)], -(2**70), timedelta(1)),
        ([None, {}], {}, {}),
    ]:
        table.clear()
        table.extend({"x": value} for value in values)
        assert (table.min("x"), table.max("x")) == (least, most)
        assert table.agg(least=F.x.min(), most=F.x.max()) == {"least": least, "most": most}
        listed = pellucid.open(":memory:").table("t")
        listed["a"] = {"x": values}
        assert (listed.min(F.x.each()), listed.max(F.x.each())) == (least, most)


def test_only_rows_that_are_still_there_are_counted(table: Any) -> None:
    table.extend({"n": n} for n in range(6))

    def drops(row: Any) -> bool:
        table.pop(5, None)
        return True

    assert table.where(F.n >= 3).filter(drops).update(m=1) == 2
    table[5] = {"n": 5}
    assert table.where(F.n >= 3).filter(drops).delete() == 2
    assert list(table.keys()) == [0, 1, 2]


def test_a_path_in_text_has_no_indexes(table: Any) -> None:
    table.extend([{"tags": ["a", "b"], "price [EUR]": 5, "": 1, "x.": 2}])
    for use in (
        lambda path: table.where().update({path: 1}),
        lambda path: table.create_index("i", path),
        table.column,
        table.sum,
        table.group_by,
        table.select,
        table.order_by,
        lambda path: table.find(**{path: 1}),
        table[0].path,
    ):
        for path, why in [
            ("tags[0]", "there are no indexes in it"),
            ("tags[*]", "there are no indexes in it"),
            ("a.b['c'].d", "there are no indexes in it"),
            ("`two words`", "there are no backticks in it"),
            ("a..b", "a name in it is empty"),
            ("x.", "a name in it is empty"),
            ("tags.each()", "nothing is called in it"),
            ("name.lower()", "nothing is called in it"),
            ("tags.0", "a number in it would be a name"),
            ("at.-1.city", "a number in it would be a name"),
        ]:
            with pytest.raises(ValueError, match=why) as raised:
                use(path)
            assert f"a field of that very name is ({path.replace(chr(39), chr(39))!r},)".replace(
                "'", '"'
            ) in str(raised.value).replace("'", '"')
    assert table[0].to_dict() == {"tags": ["a", "b"], "price [EUR]": 5, "": 1, "x.": 2}
    assert table.indexes() == []
    assert table.column("price [EUR]") == [5]
    assert (table.column(""), table.column(("x.",))) == ([1], [2])
    assert table.where().update({("tags[0]",): 1}) == 1
    assert table.column(("tags[0]",)) == [1]
    table[0] = {"years": {"2026": 5}, "7": 6, "a": {"b2": 7}}
    assert (table.column(("years", "2026")), table.column("7"), table.column("a.b2")) == ([5], [6], [7])


def test_an_update_says_where_its_path_ends(table: Any) -> None:
    table["k"] = {"a": 1, "tags": ["x"], "t": (1,), "d": {"e": {}}}
    for changes, why in [
        (
            {"nope.x": 1},
            r'there is no F\.nope in it, in which to set a field "x"; set it as a whole, or choose',
        ),
        ({"d.f.g": 1}, r'there is no F\.d\.f in it, in which to set a field "g"'),
        ({("tags", 3): 1}, r"F\.tags has 1 element, and F\.tags\[3\] leads to none"),
        ({"tags.x": 1}, r'F\.tags is nothing that has a field "x"'),
        ({"a.x": 1}, r'F\.a is nothing that has a field "x"'),
        ({("t", 0): 1}, r"F\.t is a tuple or a set, which do not change"),
        ({"new": 1, "nope.x": F.a}, r"there is no F\.nope in it"),
    ]:
        with pytest.raises(ValueError, match=rf"record 'k' of table .* cannot be changed: {why}"):
            table.where().update(changes)
    assert table["k"].to_dict() == {"a": 1, "tags": ["x"], "t": (1,), "d": {"e": {}}}


def test_a_bool_is_an_index_and_an_int_key(table: Any) -> None:
    table["a"] = {"l": ["p", "q"], "t": {True: "t"}, "f": {1.0: "f"}, "i": {0: "i"}}
    for path, value in [("l", "q"), ("t", "t"), ("f", "f")]:
        for one in (1, True):
            assert (
                table.column(F[path][one])
                == table.column((path, one))
                == [value]
                == [table["a"].path((path, one))]
            )
    assert (table.column(F.f[1.0]), table.column(F.t[1.0])) == (["f"], ["t"])
    assert table.column(F.i[False]) == table.column(("i", False)) == ["i"]
    assert table.where().update({("l", True): "new"}) == 1
    assert table["a"].l == ["p", "new"]
