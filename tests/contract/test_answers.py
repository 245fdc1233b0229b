"""Does each way to ask for rows give the same answer, and does an update say what it did?"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pellucid
import pytest
from pellucid import KEY, F, count

Database = pellucid.Database


# Groups


@pytest.fixture(params=["scan", "index", "covering"])
def grouped(request: pytest.FixtureRequest, db: Database) -> Any:
    table = db.table("t")
    table.extend([{"c": None, "n": 1}, {"n": 2}, {"c": "a", "n": 3}, {"c": None, "n": 4}, {"n": 5}, 17])
    if request.param != "scan":
        table.create_index("by_c", [F.c] if request.param == "index" else [F.c, F.n])
    return table


def test_none_and_a_missing_value_are_one_group(grouped: Any) -> None:
    assert grouped.group_by("c").agg(n=count(), total=F.n.sum()) == [
        {"c": "a", "n": 1, "total": 3},
        {"c": None, "n": 5, "total": 12},
    ]
    assert grouped.where(F.n > 0).group_by(c=F.c).agg(n=count()) == [{"c": "a", "n": 1}, {"c": None, "n": 4}]


def test_none_and_a_missing_value_are_one_group_beside_others(grouped: Any) -> None:
    groups = grouped.where(F.n > 0).group_by("c", is_even=F.n % 2 == 0).agg(n=count())
    assert [tuple(group.values()) for group in groups] == [
        ("a", False, 1),
        (None, False, 2),
        (None, True, 2),
    ]


def test_none_and_a_missing_value_are_one_group_of_elements(db: Database) -> None:
    db.extend([{"tags": [None, "a"]}, {"tags": [None]}, {"other": 1}, {"tags": [{"x": None}, {}]}])
    assert db.group_by(tag=F.tags.each()).agg(n=count())[-1] == {"tag": None, "n": 2}
    found = db.group_by(x=F.tags.each().x).agg(n=count())
    assert found == [{"x": None, "n": 3}]


# Updates


def test_an_update_counts_the_rows_in_which_it_set_a_field(db: Database) -> None:
    table = db.table("t")
    table.extend([{"n": "5"}, {"n": 6}, {"m": 1}, {"n": 7, "long": "x" * 40_000}])
    assert table.where().update(n=F.n * 2) == 2
    assert table.column("n") == ["5", 12, None, 14]
    assert table.where().update(n=F.n - 1, copy=F.m) == 3
    assert table.column("n") == ["5", 11, None, 13]
    assert table.column("copy") == [None, None, 1, None]
    assert table.where().update(new=F.missing) == 0
    assert table.where(F.m == 1).update(m=1) == 1, "a field that is set to the value that it had"
    assert table.where(F.m == 2).update(m=1) == 0
    assert table.where(F.n > 12).update(head=F.long.lower()) == 1


def test_a_keyword_with_two_underscores_is_no_path(db: Database) -> None:
    table = db.table("t")
    table.append({"p": {"n": 1}, "__n__": 0, "_n": 0, "n__": 0})
    with pytest.raises(
        TypeError, match=r'update\(\{"p\.n": \.\.\.\}\), and a field named p__n is update\(\{"p__n":'
    ):
        table.where().update(p__n=7)
    with pytest.raises(TypeError, match=r'"a\.b\.c"'):
        table.where().update(p=1, a__b__c=7)
    assert table.to_dicts() == [{"p": {"n": 1}, "__n__": 0, "_n": 0, "n__": 0}]
    assert table.where().update({"p.n": 2, "p__n": 3}) == 1
    assert table.where().update(__n__=1, _n=1, n__=1) == 1
    assert table.to_dicts() == [{"p": {"n": 2}, "__n__": 1, "_n": 1, "n__": 1, "p__n": 3}]


def test_a_condition_by_a_keyword_with_two_underscores_is_refused(db: Any) -> None:
    table = db.table("t")
    table.append({"p": {"n": 1}, "__n__": 0, "p__n": 2})
    said = (
        "() takes {}, and p__n would be a field of that very name; a field of a field is where(F.p.n == ...) "
        'or find(**{{"p.n": ...}}), and a field named p__n is where(F.p__n == ...)'
    )
    for rows in (table, table.where()):
        with pytest.raises(TypeError, match=re.escape("find" + said.format("fields by name"))):
            rows.find(p__n=1)
        with pytest.raises(TypeError, match=re.escape("where" + said.format("conditions"))):
            rows.where(p__n=1)
        assert rows.find(**{"p.n": 1}).count() == rows.where(F.p.n == 1).count() == 1
        assert rows.where(F.p__n == 2).count() == rows.find(__n__=0).count() == 1


# Values without an order


VALUES = [
    1 + 0j,
    1,
    1.5,
    Decimal(1),
    True,
    {1},
    frozenset({1}),
    None,
    {"a": 1},
    [1],
    (1,),
    "1",
    float("nan"),
    1j,
]


@pytest.fixture(params=["scan", "index"])
def valued(request: pytest.FixtureRequest, db: Database) -> Any:
    table = db.table("t")
    table.update({place: {"x": value, "low": value, "high": value} for place, value in enumerate(VALUES)})
    table["missing"] = {"y": 1}
    if request.param == "index":
        table.create_index("by_x", F.x)
        # So many that the index is worth its way.
        table.update({1000 + place: {"x": 10**6 + place} for place in range(300)})
    return table


@pytest.mark.parametrize("value", VALUES, ids=repr)
def test_between_a_value_and_itself_is_equality(valued: Any, value: Any) -> None:
    equal = list(valued.where(F.x == value).keys())
    assert list(valued.where(F.x.between(value, value)).keys()) == equal
    assert list(valued.where(~F.x.between(value, value)).keys()) == list(valued.where(F.x != value).keys())
    assert valued.where(F.x.between(value, value)).count() == len(equal)


def test_between_fields_includes_equal_values_without_an_order(valued: Any) -> None:
    itself = [key for key, value in enumerate(VALUES) if value == value]
    assert list(valued.where(F.x.between(F.low, F.high)).keys()) == itself
    assert list(valued.where(F.x.between(None, F.high)).keys()) == [7]


def test_between_leaves_values_without_an_order_between_others_out(valued: Any) -> None:
    assert list(valued.where(F.x.between(0, 1.2)).keys()) == [1, 3, 4]
    assert list(valued.where(F.x.between(2, 1)).keys()) == []
    assert list(valued.where(F.x.between(None, 5)).keys()) == []


def test_between_elements_includes_equal_ones_without_an_order(db: Database) -> None:
    db.extend([{"x": [None, 5], "low": [None, 9], "high": [{1}, None]}, {"x": [3], "low": [4], "high": [2]}])
    assert list(db.where(F.x.each().between(F.low.each(), F.high.each())).keys()) == [0]
    assert list(db.where(F.x.each().between(None, None)).keys()) == [0]


def test_a_key_of_none_is_between_none_and_none(db: Database) -> None:
    table = db.table("t")
    table.update({None: 1, 1: 2, "a": 3})
    assert table.where(KEY.between(None, None)).to_list() == [1]
    assert table.where(KEY.between(1, 1)).to_list() == [2]


# Rows that cannot be read


@dataclasses.dataclass
class Run:
    lr: float
    path: str = ""


@dataclasses.dataclass
class Other:
    lr: float


def test_rows_that_make_no_instance_are_unreadable(db: Database) -> None:
    db.table("runs", type=Run)[1] = Run(0.1, "x")
    plain = db.table("runs")
    plain[2] = {"lr": 0.5}
    runs = db.table("runs", type=Other)
    with pytest.raises(pellucid.WrongClass):
        runs[1]
    [(key, error)] = runs.unreadable()
    assert (key, type(error)) == (1, pellucid.WrongClass)
    assert "'path'" in str(error)
    assert plain.unreadable() == db.table("runs", type=object).unreadable() == []


# Rows that were deleted


SPELLED: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "bool": (True, lambda table: table[True]),
    "float": (1.0, lambda table: table[1.0]),
    "tuple": ((True, 2.0), lambda table: table[True, 2.0]),
    "values": (True, lambda table: next(iter(table.values()))),
    "list": (-0.0, lambda table: table.to_list()[0]),
    "query": (True, lambda table: table.where(F.a == 1).first()),
    "order": (True, lambda table: table.order_by("a").to_list()[0]),
}


@pytest.mark.parametrize("way", SPELLED)
def test_a_change_of_a_deleted_row_names_its_key_as_it_was_stored(db: Database, way: str) -> None:
    key, read = SPELLED[way]
    table = db.table("t")
    table[key] = {"a": 1}
    row = read(table)
    with pytest.raises(pellucid.UnsupportedValue, match=rf"record {re.escape(repr(key))} of table"):
        row.a = object()
    del table[key]
    with pytest.raises(KeyError) as missing:
        row.a = 2
    assert repr(missing.value.args[0]) == repr(key)


def test_rows_of_a_scan_have_each_the_spelling_of_their_own_key(db: Database) -> None:
    table = db.table("t")
    table.update({key: {"a": 1} for key in (0, True, 2, 3.0, 4.5, (5, 6.0))})
    kept = list(table.values())
    for row in kept[:]:
        with pytest.raises(pellucid.UnsupportedValue) as refused:
            row.a = object()
        kept[kept.index(row)] = str(refused.value)
    shown = [re.search("record (.*) of table", text)[1] for text in kept]  # type: ignore[index]
    assert shown == ["(5, 6.0)", "0", "True", "2", "3.0", "4.5"]
    for row, key in zip(table.values(), list(table), strict=True):
        with pytest.raises(pellucid.UnsupportedValue, match=rf"record {re.escape(repr(key))} of table"):
            row.a = object()
