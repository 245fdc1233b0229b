"""Do Decimals come to what Python makes of them, however many they are and by whichever way they are found?

Sums are added up natively as long as no digit can be lost, and by Python beyond that; a condition with a
Decimal is a section of an index.
"""

from __future__ import annotations

import decimal
import operator
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pellucid
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pellucid import F, count

# Sums are exact up to 28 digits: some are shorter, some just fit, and some are rounded, all at once or one
# after the other.
digits = st.one_of(
    st.integers(-200, 200),
    st.integers(-(10**15), 10**15),
    st.integers(10**27 - 3, 10**28 + 3),
    st.integers(-(10**28) - 3, -(10**28) + 3),
    st.integers(-(10**40), 10**40),
)
# Behind the point a zero may have more digits than a sum; before it they may be those of an exponent.
exponents = st.integers(-4, 0) | st.integers(-70, 30)
decimals = st.builds(lambda number, exponent: Decimal(f"{number}E{exponent:+}"), digits, exponents)
special = st.sampled_from([Decimal("NaN"), Decimal("Infinity"), Decimal("-Infinity"), Decimal("-0.00")])
prices = st.integers(-(10**6), 10**6).map(lambda cents: Decimal(cents).scaleb(-2))
numbers = st.lists(prices | decimals, max_size=8) | st.lists(
    prices | decimals | special | st.integers(-(10**20), 10**20) | st.booleans() | st.just(0.5), max_size=8
)

CONTEXTS = [
    decimal.Context(prec=28),
    decimal.Context(prec=6),
    decimal.Context(prec=50, rounding=decimal.ROUND_UP),
    decimal.Context(prec=28, Emin=-5, Emax=5),
    decimal.Context(prec=28, clamp=1),
    decimal.Context(prec=28, rounding=decimal.ROUND_FLOOR),
]


def made(make: Callable[[], Any]) -> str:
    """What comes of it, to the last zero; or that it raises."""
    try:
        return repr(make())
    except (ArithmeticError, TypeError):
        return "raises"


def added(values: list[Any]) -> Any:
    """What a group's values come to: ints first, since these lose no digit."""
    ints = sum(value for value in values if isinstance(value, int) and abs(value) < 2**63)
    floats = [value for value in values if isinstance(value, float)]
    total = ints + sum(floats) if floats else ints
    for value in values:
        if isinstance(value, Decimal) or (isinstance(value, int) and abs(value) >= 2**63):
            total = total + value
    return total


@given(numbers, st.sampled_from(CONTEXTS))
@example([Decimal("1.30"), 1, Decimal("-0.3")], CONTEXTS[0])
@example([Decimal("9" * 28), Decimal(1), Decimal(-1)], CONTEXTS[0])
@example([Decimal(10**28 - 1), Decimal("0.5"), 2**62], CONTEXTS[0])
@example([Decimal("0E-30"), Decimal(5)], CONTEXTS[0])
@example([Decimal("1E+3")], CONTEXTS[1])
@example([Decimal("1.5"), Decimal("-1.5")], CONTEXTS[-1])
@settings(deadline=None)
def test_sums_are_pythons(values: list[Any], context: decimal.Context) -> None:
    with pellucid.open(":memory:") as db, decimal.localcontext(context):
        table = db.table("t")
        table.extend({"n": value, "list": [value]} for value in values)
        for ours, python in [
            (lambda: table.sum("n"), lambda: sum(values)),
            (lambda: table.sum(F.list.each()), lambda: sum(values)),
            (lambda: table.mean("n"), lambda: sum(values) / len(values) if values else None),
            (lambda: table.agg(s=F.n.sum())["s"], lambda: added(values)),
            (lambda: table.agg(m=F.n.mean())["m"], lambda: added(values) / len(values) if values else None),
        ]:
            assert made(ours) == made(python), values


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """More rows than one thread walks over."""
    path = tmp_path_factory.mktemp("decimals") / "many.pel"
    with pellucid.open(path) as db:
        db.table("t").extend(
            {
                "group": number % 7,
                "price": Decimal(number * 37 % 100_000).scaleb(-2),
                "mixed": number if number % 3 else Decimal(number).scaleb(-1),
                "huge": Decimal(10**27 + number),
            }
            for number in range(110_000)
        )
    return path


@pytest.mark.parametrize("field", ["price", "mixed", "huge"])
def test_sums_in_parts_are_pythons(many: Path, field: str) -> None:
    pellucid.set_threads(4)
    try:
        with pellucid.open(many, "r") as db:
            table = db.table("t")
            values = table.column(field)
            assert repr(table.sum(field)) == repr(sum(values))
            assert repr(table.mean(field)) == repr(sum(values) / len(values))
            groups = table.group_by("group").agg(n=count(), total=F[field].sum())
            for group in groups:
                own = values[group["group"] :: 7]
                assert (group["n"], repr(group["total"])) == (len(own), repr(added(own)))
    finally:
        pellucid.set_threads(None)


COMPARED: list[Any] = [
    *(0, 1, -3, 2**53, 2**53 + 1, -(2**53) - 1, 2**70, 10**30, 0.1, -0.1, 0.5, 19.99, 5e-324, 1e300),
    *(float("inf"), float("-inf"), 1.5 + 0j, 0.1 + 0j, True, None, "0.1", -0.0),
    *(Decimal(text) for text in ("0.1", "-0.1", "19.99", "1.50", "1E+30", "-0.0", "1E-400", "-1E-400")),
    *(Decimal(text) for text in ("9007199254740992.5", "-9007199254740993.5", "Infinity", "1E+999999")),
    *(Decimal.from_float(0.1), Decimal(2**70) + Decimal("0.5"), Decimal("1E-999999")),
]
OPERATORS = [operator.eq, operator.lt, operator.le, operator.gt, operator.ge]


def test_conditions_with_decimals_find_the_same_by_an_index() -> None:
    with pellucid.open(":memory:") as db:
        plain, indexed = db.table("plain"), db.table("indexed")
        for table in (plain, indexed):
            table.extend({"n": value} for value in COMPARED * 8)
            table.extend({"n": f"x{number}"} for number in range(8000))
        indexed.create_index("by_n", F.n)
        for constant in (value for value in COMPARED if isinstance(value, Decimal)):
            conditions = [compare(F.n, constant) for compare in OPERATORS]
            conditions += [F.n.isin([constant, 7]), F.n.between(constant, constant + 1)]
            for condition in conditions:
                found = list(plain.where(condition).keys())
                assert list(indexed.where(condition).keys()) == found, condition
                assert indexed.where(condition).count() == len(found), condition


def test_a_condition_with_a_decimal_reads_no_row_that_an_index_implies() -> None:
    with pellucid.open(":memory:") as db:
        table = db.table("t")
        table.extend({"price": Decimal(number).scaleb(-2), "ratio": number / 100} for number in range(5000))
        table.create_index("by_price", F.price)
        table.create_index("by_ratio", F.ratio)
        for condition in (
            F.price >= Decimal("49.90"),
            F.ratio >= Decimal("49.91"),
            F.price.between(Decimal("1.00"), Decimal("1.09")),
            F.price.isin([Decimal(1), Decimal("1.01")]),
        ):
            said = table.where(condition).explain()
            assert "filter natively" not in said, said
            assert said.startswith("read keys from index"), said
        assert table.where(F.price >= Decimal("49.90")).count() == 10
        # A float that is written so may be a little less.
        assert table.where(F.ratio >= Decimal("49.91")).count() == sum(
            row / 100 >= Decimal("49.91") for row in range(5000)
        )
