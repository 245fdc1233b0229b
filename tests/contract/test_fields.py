"""What do the fields of all rows come to, whatever the rows hold?"""

from __future__ import annotations

import datetime
import decimal
import fractions
from typing import Any

import pellucid
import pytest
from pellucid import F

Database = pellucid.Database

ROWS = [
    {"n": 1, "f": 2.5, "s": "b", "deep": {"n": 10}, "d": datetime.date(2024, 1, 2), "only": 7},
    {"n": 2**70, "f": -1.0, "s": "a", "deep": {"n": 20}, "d": datetime.date(2023, 1, 2), "none": None},
    {"n": True, "f": "text", "s": None, "dotted.name": 3, "list": [5, 6]},
    "no record",
    17,
]


@pytest.fixture(params=["database", "table", "snapshot", "transaction"])
def rows(request: pytest.FixtureRequest, db: Database) -> Any:
    """The same rows four times: of a database, a table, a snapshot, and as a transaction sees them."""
    if request.param == "transaction":
        with db.transaction():
            db.extend(ROWS)
            yield db
        return
    table = db.table("t") if request.param == "table" else db
    table.extend(ROWS)
    yield db.snapshot() if request.param == "snapshot" else table


def test_rows_without_a_number_do_not_count(rows: Any) -> None:
    assert rows.sum("n") == 2**70 + 2
    assert (rows.sum("f"), rows.mean("f"), rows.sum("only"), rows.mean("only")) == (1.5, 0.75, 7, 7.0)
    assert (rows.sum("s"), rows.mean("s"), rows.sum("d")) == (0, None, 0)
    assert rows.sum("deep.n") == rows.sum(("deep", "n")) == 30
    assert rows.sum(("list", 1)) == 6
    assert (rows.sum("dotted.name"), rows.sum(("dotted.name",))) == (0, 3)


def test_extremes_leave_out_none(rows: Any) -> None:
    assert (rows.min("n"), rows.max("n")) == (1, 2**70)
    assert (rows.min("s"), rows.max("s")) == ("a", "b")
    assert (rows.min("d"), rows.max("d")) == (datetime.date(2023, 1, 2), datetime.date(2024, 1, 2))
    assert (rows.min("none"), rows.max("none")) == (None, None)


def test_count_tells_none_from_nothing_and_column_does_not(rows: Any) -> None:
    assert (rows.count(), rows.count("n"), rows.count("none"), rows.count("only")) == (5, 3, 1, 1)
    assert rows.column("s") == ["b", "a", None, None, None]
    assert rows.column("deep") == [{"n": 10}, {"n": 20}, None, None, None]
    assert [type(value) for value in rows.column("deep")[:2]] == [dict, dict]


@pytest.mark.parametrize("where", ["typo", "n.typo", ("list", 9), "", ("deep", "n", "x")])
def test_a_field_that_no_row_has_is_no_error(rows: Any, where: Any) -> None:
    assert (rows.sum(where), rows.count(where)) == (0, 0)
    assert (rows.min(where), rows.max(where), rows.mean(where)) == (None, None, None)
    assert rows.column(where) == [None] * 5


def test_an_empty_table_and_one_that_is_not_there_are_alike(db: Database) -> None:
    empty = db.table("empty")
    empty["a"] = 1
    del empty["a"]
    for table in (empty, db.table("nowhere"), db):
        assert (table.sum("n"), table.count("n"), table.count(), table.column("n")) == (0, 0, 0, [])
        assert (table.min("n"), table.max("n"), table.mean("n")) == (None, None, None)


def test_values_that_are_unlike_say_so(db: Database) -> None:
    db.extend([{"x": 1, "y": decimal.Decimal("1.5")}, {"x": "a", "y": 2.5}, {"y": 1}])
    # In the order in which rows come, but for numbers, which are what they are worth.
    assert (db.min("x"), db.max("x")) == ("a", 1)
    assert db.agg(least=F.x.min(), most=F.x.max()) == {"least": "a", "most": 1}
    assert db.agg(least=F.y.min(), most=F.y.max()) == {"least": 1, "most": 2.5}
    for function in (db.sum, db.mean):
        with pytest.raises(TypeError, match=r"values at 'y' of table .* cannot all be added .* convert them"):
            function("y")
    assert (db.min("y"), db.max("y")) == (1, 2.5)
    del db[1]
    assert db.sum("y") == decimal.Decimal("2.5")


@pytest.mark.parametrize("where", [5, None, [], b"n", 1.5])
def test_what_is_no_path_is_refused_by_all(rows: Any, where: Any) -> None:
    for function in (rows.sum, rows.min, rows.max, rows.mean, rows.column):
        with pytest.raises(TypeError, match="path"):
            function(where)


@pytest.mark.parametrize(
    "values",
    [
        [2**63, -(2**63 - 1), 0.5],
        [-(2**63 - 1), 0.5, 2**63],
        [2**200, 0.5, -(2**200), 2**64, -(2**64) + 1],
        [2**1000, 1e-300, -(2**1000)],
        [-(2**70), 2**53 + 1, 0.5, 0.5],
    ],
)
def test_a_sum_with_large_ints_and_floats_is_rounded_once(db: Database, values: list[Any]) -> None:
    db.extend([{"n": value, "group": "one"} for value in values])
    exact = float(sum(map(fractions.Fraction, values)))
    assert db.sum("n") == db.agg(s=F.n.sum())["s"] == exact
    assert db.group_by("group").agg(s=F.n.sum()) == [{"group": "one", "s": exact}]
    assert db.mean("n") == db.agg(m=F.n.mean())["m"] == exact / len(values)


def test_a_sum_too_large_for_a_float_raises_as_in_python(db: Database) -> None:
    db.extend([{"n": 10**400}, {"n": 0.5}])
    for total in (lambda: db.sum("n"), lambda: db.agg(s=F.n.sum())):
        with pytest.raises(OverflowError, match="int too large to convert to float"):
            total()
