"""Is what expressions compute what Python computes, to the last zero, and is missing where Python raises?"""

from __future__ import annotations

import datetime
import decimal
import functools
import operator
import zoneinfo
from collections.abc import Callable
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pellucid
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pellucid import Expression, F

Operation = Callable[[Any, Any], Any]
OPERATIONS: list[Operation] = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.mod,
]

digits = st.one_of(
    st.integers(-200, 200),
    st.integers(-(10**30), 10**30),
    st.integers(10**27 - 3, 10**28 + 3),
    st.integers(5 * 10**27 - 2, 5 * 10**27 + 2).map(lambda number: number * 10 + 5),
    st.integers(-(10**60), 10**60),
)
exponents = st.one_of(
    st.integers(-6, 3),
    st.integers(-80, 80),
    st.integers(-1_000_100, -999_900),
    st.integers(999_900, 1_000_100),
    st.sampled_from([-500_000, -499_999, 499_999, 500_000, 10**17, -(10**17)]),
)
finite = st.builds(lambda number, exponent: Decimal(f"{number}E{exponent:+}"), digits, exponents)
near = st.builds(lambda number, places: Decimal(f"{number}E-{places}"), digits, st.integers(0, 8))
special = st.sampled_from(
    [
        Decimal(text)
        for text in (
            "NaN", "-NaN", "NaN123", f"-NaN{'9' * 10}0{'1' * 29}", "sNaN", "sNaN7", "Infinity", "-Infinity",
            "0", "-0", "0.00", "-0E+7", "0E-1000020", "0E-1000040", "-0E+2000000", "1E-1000026", "9E+999999",
        )
    ]
)  # fmt: skip
decimals = near | finite | special
ints = st.integers(-20, 20) | st.integers() | st.integers(-(10**60), 10**60)


def python_makes(make: Callable[[], Any]) -> Any:
    """What Python makes under the context that it begins with; nothing where it raises."""
    with decimal.localcontext(decimal.Context(prec=28)):
        try:
            return make()
        except (decimal.DecimalException, TypeError, ValueError, ZeroDivisionError, OverflowError):
            return None


def ours(record: dict[str, Any], expression: Expression) -> Any:
    """What the expression is in a record; nothing where it is missing."""
    with pellucid.open(":memory:") as db:
        db.table("t").append(record)
        return next(iter(db.table("t").select(it=expression)), {}).get("it")


def assert_same(found: Any, expected: Any) -> None:
    assert (type(found), str(found)) == (type(expected), str(expected))


@settings(max_examples=1500, deadline=None)
@given(decimals, decimals | ints | st.booleans(), st.booleans())
@example(Decimal("1.30"), 1, False)
@example(Decimal("-7.5"), 2, False)
@example(Decimal(-4), 2, False)
@example(Decimal(1), Decimal(3), False)
@example(Decimal("1E+999999"), Decimal("-1E-999999"), False)
@example(Decimal("9" * 28), Decimal("0.5"), False)
@example(Decimal("1E+999999"), Decimal("10"), False)
@example(Decimal("1E-600000"), Decimal("5.5E-400030"), False)
def test_decimals_are_computed_as_pythons_are(one: Any, other: Any, is_turned: bool) -> None:
    if is_turned:
        one, other = other, one
    with pellucid.open(":memory:") as db:
        table = db.table("t")
        table.append({"one": one, "other": other})
        computed = {str(at): make(F.one, F.other) for at, make in enumerate(OPERATIONS)}
        [row] = table.select(**computed).to_list()
        [constant] = table.select(**{str(at): make(F.one, other) for at, make in enumerate(OPERATIONS)})
    for at, make in enumerate(OPERATIONS):
        expected = python_makes(lambda make=make: make(one, other))  # type: ignore[misc]
        for found in (row.get(str(at)), constant.get(str(at))):
            assert_same(found, expected)


@settings(max_examples=300, deadline=None)
@given(decimals)
def test_the_sign_of_a_decimal_is_pythons(value: Decimal) -> None:
    assert_same(ours({"n": value}, -F.n), python_makes(lambda: -value))
    assert_same(ours({"n": value}, F.n.abs()), python_makes(lambda: abs(value)))


def test_a_decimal_and_a_float_come_to_nothing() -> None:
    for make in OPERATIONS:
        assert ours({"a": Decimal("1.5"), "b": 0.5}, make(F.a, F.b)) is None
        assert ours({"a": Decimal("1.5"), "b": 0.5}, make(F.b, F.a)) is None


def test_prices_are_filtered_changed_summed_and_indexed() -> None:
    prices = [Decimal(text) for text in ("9.99", "4.50", "12.00")]
    with pellucid.open(":memory:") as db:
        table = db.table("goods")
        table.extend({"price": price, "count": at} for at, price in enumerate(prices))
        doubled = [price * 2 for price in prices]
        assert table.where(F.price * 2 > 15).count() == 2
        assert table.agg(sum=(F.price * 2).sum(), mean=(F.price * 2).mean()) == {
            "sum": sum(doubled),
            "mean": sum(doubled) / 3,
        }
        worth = (F.price * F["count"]).sum()
        assert_same(table.agg(worth=worth)["worth"], Decimal("28.50"))
        table.create_index("by_double", F.price * 2)
        assert [row.price for row in table.index("by_double").get_all(Decimal(9))] == [Decimal("4.50")]
        assert table.where(F.price > 5).update(price=F.price + 1) == 2
        assert [str(price) for price in table.column("price")] == ["10.99", "4.50", "13.00"]


NOON = datetime.datetime(2026, 3, 28, 12, 30, 15, 7)
ZONES = [
    datetime.timezone.utc,
    datetime.timezone(timedelta(hours=5, minutes=30)),
    datetime.timezone(timedelta(hours=-3), "BRT"),
    datetime.timezone(timedelta(hours=5, minutes=30), "INDIA"),
    zoneinfo.ZoneInfo("UTC"),
]
BERLIN, LONDON = (zoneinfo.ZoneInfo(name) for name in ("Europe/Berlin", "Europe/London"))

fixed = st.datetimes(timezones=st.sampled_from(ZONES))
named = st.datetimes(timezones=st.sampled_from([BERLIN, LONDON]))
close = st.builds(
    lambda hours, zone, fold: (datetime.datetime(2026, 3, 28) + timedelta(hours=hours)).replace(
        tzinfo=zone, fold=fold
    ),
    st.integers(-40, 40) | st.integers(211 * 24 - 10, 211 * 24 + 40),
    st.sampled_from([*ZONES, BERLIN, LONDON]),
    st.integers(0, 1),
)


@settings(max_examples=300, deadline=None)
@given(fixed, st.timedeltas() | st.timedeltas(-timedelta(days=2), timedelta(days=2)))
def test_an_aware_datetime_is_moved_by_its_clock(start: datetime.datetime, span: timedelta) -> None:
    record = {"at": start, "span": span}
    for expression, make in [
        (F.at + F.span, lambda: start + span),
        (F.span + F.at, lambda: span + start),
        (F.at - F.span, lambda: start - span),
        (F.at + span, lambda: start + span),
    ]:
        found, expected = ours(record, expression), python_makes(make)
        assert repr(found) == repr(expected)


factors = ints | st.booleans() | st.floats() | st.integers(-40, 40).map(lambda count: count / 8) | decimals
spans = st.timedeltas() | st.timedeltas(-timedelta(days=2), timedelta(days=2)) | st.just(timedelta(0))


@settings(max_examples=1000, deadline=None)
@given(spans, spans | factors)
@example(timedelta(microseconds=5), 2)
@example(timedelta(microseconds=-5), 0.5)
@example(timedelta(days=1), 0)
@example(timedelta(days=1), -0.0)
@example(timedelta(days=1), float("nan"))
@example(timedelta(days=1), timedelta(0))
def test_spans_of_time_are_multiplied_and_divided_as_in_python(one: timedelta, other: Any) -> None:
    record = {"a": one, "b": other}
    for operation in (operator.mul, operator.truediv, operator.mod):
        assert_same(ours(record, operation(F.a, F.b)), python_makes(functools.partial(operation, one, other)))
        assert_same(ours(record, operation(F.b, F.a)), python_makes(functools.partial(operation, other, one)))


@settings(max_examples=300, deadline=None)
@given(fixed | named | close, fixed | named | close)
def test_aware_datetimes_are_apart_as_python_says(one: datetime.datetime, other: datetime.datetime) -> None:
    record = {"one": one, "other": other}
    assert ours(record, F.one - F.other) == one - other
    assert ours(record, F.one - other) == one - other
    assert ours(record, other - F.one) == other - one
    assert ours(record, F.one - NOON) is None


def test_a_day_over_which_clocks_are_set_is_a_day_in_its_own_zone_alone() -> None:
    before, after = (datetime.datetime(2026, 3, day, 12, tzinfo=BERLIN) for day in (28, 29))
    assert ours({"a": before, "b": after}, F.b - F.a) == timedelta(days=1)
    assert ours({"a": before.astimezone(LONDON), "b": after}, F.b - F.a) == timedelta(hours=23)


def test_an_aware_datetime_of_a_named_zone_is_not_moved() -> None:
    at = datetime.datetime(2026, 3, 28, 12, tzinfo=BERLIN)
    assert ours({"at": at}, F.at + timedelta(days=1)) is None
    with pellucid.open(":memory:") as db:
        table = db.table("t")
        table.append({"at": at})
        assert table.where(F.at.exists()).update(at=F.at + timedelta(days=1)) == 0
        assert table.column("at") == [at]


def notes(query: Any) -> list[str]:
    return [line for line in query.explain().splitlines() if line.startswith("note: ")]


def test_explain_remarks_on_what_comes_to_nothing() -> None:
    with pellucid.open(":memory:") as db:
        table = db.table("t")
        table.extend(
            {"n": n, "d": Decimal(n), "text": "a", "at": NOON.replace(tzinfo=BERLIN)} for n in range(3)
        )
        table.append({"other": 1})
        what = 'is missing in all records of "t":'
        why = "there, as for a division by zero"
        day = timedelta(days=1)
        for expression, note in [
            (F.n + "x", f"note: F.n + 'x' {what} int and str cannot be added"),
            (F.d * 0.5, f"note: F.d * 0.5 {what} Decimal and float cannot be multiplied"),
            (F.n.lower(), f"note: F.n.lower() {what} int has no lower()"),
            (-F.text, f"note: -F.text {what} str has no negative"),
            (F.d % 0, f"note: F.d % 0 {what} Python raises for each Decimal % int {why}"),
            (F.at + day, f"note: F.at + datetime.timedelta(days=1) {what} datetime of a ZoneInfo and "
             "timedelta cannot be added"),
        ]:  # fmt: skip
            assert notes(table.where(expression * 2 == 1)) == [note]
            assert notes(table.select(x=expression)) == [note]
        assert notes(table.order_by(F.n / 0)) == [
            f"note: F.n / 0 {what} Python raises for each int / int {why}"
        ]
        for fine in (
            F.n + 1,
            F.d * 2,
            1 / F.n,
            F.text + "x",
            F.text.upper(),
            F.at - NOON.replace(tzinfo=LONDON),
        ):
            assert notes(table.where(fine == fine)) == [], fine
        table.append({"n": "1"})
        assert notes(table.where(F.n + "x" == "1x")) == []
