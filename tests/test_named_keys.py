"""Are rows under keys that a condition names looked up, and are they those that a scan finds?"""

from __future__ import annotations

import operator
import random
import re
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any
from uuid import UUID

import pellucid
import pytest
from pellucid import KEY, F

KEYS: list[Any] = [
    *range(-40, 200),
    *(n + 0.5 for n in range(60)),
    2.0**70,
    2**80,
    -0.0,
    *(f"k{n}" for n in range(80)),
    "",
    "k" * 700,
    *(b"b%d" % n for n in range(20)),
    None,
    (1, "a"),
    (1, 2.0),
    date(2026, 11, 22),
    datetime(2026, 11, 22, 8, 30),
    datetime(2026, 11, 22, 8, 30, tzinfo=timezone.utc),
    UUID(int=7),
]
# What equals one of them in another spelling, and what is none.
OTHERS: list[Any] = [True, False, 5.0, 7.0 + 0j, 2**70, 999, "none", b"none", 3.25, (1, 2), Decimal(6), (1,)]


@pytest.fixture
def table() -> Any:
    table = pellucid.open(":memory:").table("rows")
    # -0.0 and 0 are one key.
    table.update({key: {"n": n, "age": n % 7} for n, key in enumerate(KEYS)})
    return table


def is_looked_up(query: Any) -> bool:
    return str(query.explain()).startswith("look up")


def test_a_few_keys_are_looked_up(table: Any) -> None:
    for query in (
        table.where(KEY.isin([3, "k5", 500])),
        table.where((KEY == 3) | (KEY == "k5") | (KEY == "k900")),
        table.where((KEY == 3) | KEY.isin(["k5"])),
        table.where(KEY.isin(range(-20, 0)), KEY.isin([-3, -2, 7]), F.n > 0),
        table.where(F.age == 3, KEY.isin([3, 10, 11])).order_by(F.n.desc()),
    ):
        assert is_looked_up(query)
        assert re.search(r"^met \d keys?: \d passed", query.explain(analyze=True), re.MULTILINE)
    for query in (
        table.where(KEY.isin([3, Decimal(4)])),  # Decimals have codes of their own.
        table.where(KEY.isin([(1, "a")])),
        table.where((KEY == 3) | (F.n == 5)),
        table.where(~KEY.isin([3])),
        table.where(KEY != 3),
        table.where(KEY.isin(range(100))),  # To test all rows takes less.
    ):
        assert not is_looked_up(query)


def test_named_keys_find_what_a_scan_finds(table: Any) -> None:
    rng = random.Random(20261122)
    looked_up = 0
    for _ in range(300):
        values = rng.choices(KEYS + OTHERS, k=rng.randrange(1, 12))
        query = table.where(KEY.isin(values))
        looked_up += is_looked_up(query)
        # A condition that no key names, and so a scan.
        expected = list(table.where(KEY.isin(values) | (F.n == -1)).items())
        assert list(query.items()) == expected
        assert list(map(repr, query.keys())) == [repr(key) for key, _ in expected]
        assert query.count() == len(expected)
        assert {key for key, _ in expected} == {key for key in KEYS if key in values}
        either = table.where(operator.eq(KEY, values[0]) | KEY.isin(values[1:]))
        assert list(either.items()) == expected
        assert [row.n for row in query.order_by(F.n.desc())] == sorted(
            (row["n"] for _, row in expected), reverse=True
        )
        cut = rng.randrange(4)
        assert list(query.offset(1).limit(cut).items()) == expected[1:][:cut]
        assert list(query.where(F.age > 3).items()) == [item for item in expected if item[1]["age"] > 3]
        assert list(query.filter(lambda row: row.age > 3).items()) == list(query.where(F.age > 3).items())
        for (key, record), behind in zip(query.items(), range(1, len(expected)), strict=False):
            assert list(query.after(record).items()) == expected[behind:]
            bounded = table.where(KEY.isin(values) | (F.n == -1), operator.ge(KEY, key))
            assert list(query.where(operator.ge(KEY, key)).items()) == list(bounded.items())
        assert query.column("n") == [row["n"] for _, row in expected]
        assert query.sum("n") == sum(row["n"] for _, row in expected)
    assert looked_up > 100


def test_named_keys_in_a_transaction_are_as_it_has_them() -> None:
    db = pellucid.open(":memory:")
    table: Any = db.table("rows")
    table.update({key: {"n": n} for n, key in enumerate(KEYS)})
    query = table.where(KEY.isin([3, 4, 500]))
    with db.snapshot() as before:
        with db.transaction():
            assert list(query.keys()) == [3, 4]
            del table[3]
            table[500.0] = {"n": 7}
            assert is_looked_up(query)
            assert list(map(repr, query.keys())) == ["4", "500.0"]
        assert list(query.column("n")) == [table[4].n, 7]
        old: Any = before.table("rows")
        assert list(old.where(KEY.isin([3, 4, 500])).keys()) == [3, 4]


def test_named_keys_are_changed_and_deleted(table: Any) -> None:
    query = table.where(KEY.isin([3, "k5", 500]))
    assert query.update(age=70) == 2
    assert (table[3].age, table["k5"].age) == (70, 70)
    assert query.delete() == 2
    assert (3 in table, "k5" in table, len(table)) == (False, False, len(set(KEYS)) - 2)
    assert list(query) == []


def test_beside_decimals_numbers_are_tested(table: Any) -> None:
    table[Decimal("5.25")] = {"n": -5, "age": 0}
    assert list(table.where(KEY.isin([5.25, 7])).column("n")) == [KEYS.index(7), -5]
    assert not is_looked_up(table.where(KEY.isin([5.25, 7])))
    assert is_looked_up(table.where(KEY.isin(["k1"])))
