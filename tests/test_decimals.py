"""Do Decimals come to what Python makes of them, however many they are and by whichever way they are found?

A condition with a Decimal is a section of an index.
"""

from __future__ import annotations

import operator
from decimal import Decimal
from typing import Any

import pellucid
from pellucid import F

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


def test_a_condition_with_a_decimal_reads_no_row_that_an_index_settles() -> None:
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
