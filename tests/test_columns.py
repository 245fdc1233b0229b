"""Do rows become columns and columns rows, and does nothing of them change on the way?"""

from __future__ import annotations

import ctypes
import sys
import types
import uuid
import warnings
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pellucid
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pellucid import F

UTC = timezone.utc

pytestmark = pytest.mark.filterwarnings("ignore:column .* is text:pellucid.DatabaseWarning")


def table_of(rows: list[Any]) -> Any:
    table = pellucid.open(":memory:").table("rows")
    table.extend(rows)
    return table


def rows_of(table: Any) -> list[Any]:
    return [row.to_dict() if isinstance(row, pellucid.Record) else row for row in table.values()]


# ---- Out: types ----------------------------------------------------------------------------------

THE_UUID = uuid.UUID("12345678-1234-5678-1234-567812345678")
LARGE = "large " * 10_000

# The values of a column, the type that it gets, and what stands in it.
COLUMNS: dict[str, tuple[list[Any], pa.DataType, list[Any]]] = {
    "ints": ([1, -(2**63), None], pa.int64(), [1, -(2**63), None]),
    "floats": ([1.5, None, -0.0], pa.float64(), [1.5, None, -0.0]),
    "ints and floats": ([1, 2.5, 2**53], pa.float64(), [1.0, 2.5, 2.0**53]),
    "floats and ints": ([2.5, 1], pa.float64(), [2.5, 1.0]),
    "ints that are no floats, and floats": ([2**53 + 1, 2.5], pa.string(), ["9007199254740993", "2.5"]),
    "floats and ints that are none": ([2.5, 2**53 + 1], pa.string(), ["2.5", "9007199254740993"]),
    "bools": ([True, None, False], pa.bool_(), [True, None, False]),
    "bools and ints": ([True, 1], pa.string(), ["true", "1"]),
    "strings": (["a", "", None, "\u00e9", LARGE], pa.string(), ["a", "", None, "\u00e9", LARGE]),
    "lone surrogates": (["a\ud800b", "x"], pa.string(), ["a\ufffdb", "x"]),
    "bytes": ([b"a", bytearray(b"b"), b"x" * 40_000], pa.binary(), [b"a", b"b", b"x" * 40_000]),
    "dates": ([date(1, 1, 1), date(2020, 2, 29)], pa.date32(), [date(1, 1, 1), date(2020, 2, 29)]),
    "datetimes": ([datetime(2020, 1, 2, 3, 4, 5, 6)], pa.timestamp("us"), [datetime(2020, 1, 2, 3, 4, 5, 6)]),
    "aware": (
        [datetime(2020, 7, 1, 12, tzinfo=ZoneInfo("Europe/Berlin")), datetime(2020, 1, 1, tzinfo=UTC)],
        pa.timestamp("us", "UTC"),
        [datetime(2020, 7, 1, 10, tzinfo=UTC), datetime(2020, 1, 1, tzinfo=UTC)],
    ),
    "naive and aware": (
        [datetime(2020, 1, 1), datetime(2020, 1, 1, 2, tzinfo=UTC)],
        pa.string(),
        ['"2020-01-01T00:00:00"', '"2020-01-01T02:00:00+00:00"'],
    ),
    "times": ([time(1, 2, 3, 4), None], pa.time64("us"), [time(1, 2, 3, 4), None]),
    "aware times": ([time(1, tzinfo=UTC)], pa.string(), ['"01:00:00+00:00"']),
    "timedeltas": ([timedelta(-1, 5), timedelta(0)], pa.duration("us"), [timedelta(-1, 5), timedelta(0)]),
    "long timedeltas": ([timedelta(999_999_999)], pa.string(), ['"PT86399999913600S"']),
    "decimals": (
        [Decimal("1.50"), Decimal("-0.001"), 7, None],
        pa.decimal128(38, 3),
        [Decimal("1.5"), Decimal("-0.001"), 7, None],
    ),
    "ints and decimals": ([7, Decimal("0.5")], pa.decimal128(38, 1), [7, Decimal("0.5")]),
    "decimals of too many digits": (
        [Decimal("1E+30"), Decimal("1E-30")],
        pa.string(),
        ["1E+30", "1E-30"],
    ),
    "no numbers": ([Decimal("NaN"), Decimal(1)], pa.string(), ["NaN", "1"]),
    "big ints": ([2**100, -1], pa.decimal128(38, 0), [2**100, -1]),
    "ints and big ints": ([-1, -(2**90)], pa.decimal128(38, 0), [-1, -(2**90)]),
    "ints of too many digits": ([10**40], pa.string(), [str(10**40)]),
    "complex": ([1 + 2j], pa.string(), ['"(1.0+2.0j)"']),
    "nothing": ([None, None], pa.null(), [None, None]),
    "lists": ([[1, None], [], None, (2,)], pa.list_(pa.int64()), [[1, None], [], None, [2]]),
    "sets": ([{1}, frozenset([2])], pa.list_(pa.int64()), [[1], [2]]),
    "lists of floats": ([[1.5, 2.5], [1]], pa.list_(pa.float64()), [[1.5, 2.5], [1.0]]),
    "lists of unlike": ([[1, "a"], [None]], pa.list_(pa.string()), [["1", '"a"'], [None]]),
    "lists of lists": ([[[1], []], []], pa.list_(pa.list_(pa.int64())), [[[1], []], []]),
    "lists and numbers": ([[1], 2], pa.string(), ["[1]", "2"]),
    "dicts": (
        [{"x": 1, "y": "a"}, {"z": {"w": 1.5}}, None],
        pa.struct([("x", pa.int64()), ("y", pa.string()), ("z", pa.struct([("w", pa.float64())]))]),
        [{"x": 1, "y": "a", "z": None}, {"x": None, "y": None, "z": {"w": 1.5}}, None],
    ),
    "dicts whose keys are no names": (
        [{1: 2}, {"a": LARGE}],
        pa.string(),
        ['{"1": 2}', f'{{"a": "{LARGE}"}}'],
    ),
    "mappings": (
        [{f"k{n}": 1 for n in range(1100)}],
        pa.string(),
        ["{" + ", ".join(f'"k{n}": 1' for n in range(1100)) + "}"],
    ),
    "unlike": (
        [1, "1", None, 1.5, True, b"\0", date(2020, 1, 1), THE_UUID, {"a": [timedelta(0, 1, 5)]}],
        pa.string(),
        [
            "1",
            '"1"',
            None,
            "1.5",
            "true",
            '"00"',
            '"2020-01-01"',
            f'"{THE_UUID}"',
            '{"a": ["PT1.000005S"]}',
        ],
    ),
    "arrays": (
        [np.array([1, 2], "i2"), np.array([[1.5], [2.5]])[:, 0], np.array([], "u1")],
        pa.list_(pa.float64()),
        [[1.0, 2.0], [1.5, 2.5], []],
    ),
    "large arrays": ([np.zeros(9000)], pa.list_(pa.float64()), [[0.0] * 9000]),
}


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("place", ["file", "memory", "transaction", "sorted", "selected"])
def test_a_column_has_the_type_that_holds_its_values(name: str, place: str, tmp_path: Path) -> None:
    values, kind, expected = COLUMNS[name]
    db = pellucid.open(tmp_path / "db.pel" if place == "file" else ":memory:")
    table = db.table("t")
    with db.transaction():
        table.extend({"n": n, "c": value} for n, value in enumerate(values))
        if place == "transaction":
            found = pa.table(table)
    if place == "sorted":
        found = pa.table(table.order_by("n"))
    elif place == "selected":
        found = pa.table(table.select("c", "n"))
    elif place != "transaction":
        found = pa.table(table)
    found.validate(full=True)
    assert found.schema.field("c").type == kind
    assert found["c"].to_pylist() == expected
    assert found["n"].to_pylist() == list(range(len(values)))
    db.close()


@pytest.mark.parametrize(
    ("rows", "warned"),
    [
        ([{"a": "x", "n": None}, {"n": 1}, {"a": 7}, {"a": "y"}], ['"a"', 'row 0 has "x", and row 2 has 7']),
        ([{"a": 1}] * 70_000 + [{"a": True}], ['"a"', "row 0 has 1, and row 70000 has true"]),
        (
            [{"a": "x"}, {"a": date(2000, 1, 31)}],
            ['"a"', "its values have different types, or one that no column"],
        ),
        ([{"at": {"zip": 1}}, {"at": {"zip": "x"}}], ['"at.zip"', "its values have different types"]),
        ([{"tags": [1, "x"]}], ['"tags[*]"', "its values have different types"]),
        ([{"a": 1}, {"a": 2.5}, {"a": None}, {"b": "x"}], []),
    ],
)
def test_a_column_that_becomes_text_for_an_odd_value_is_warned_of(rows: list[Any], warned: list[str]) -> None:
    table = table_of(rows)
    for make in (pellucid.Table.to_pandas, pellucid.Table.to_polars, pellucid.Table.to_arrow, pa.table):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            make(table)
        messages = [str(warning.message) for warning in said]
        assert len(messages) == bool(warned)
        assert all(part in messages[0] for part in warned)
        assert all(warning.category is pellucid.DatabaseWarning for warning in said)


def test_uuids_are_arrows_uuids() -> None:
    found = pa.table(table_of([{"u": THE_UUID}, {"u": None}]))
    assert found["u"].to_pylist() == [THE_UUID, None]


def test_columns_come_in_the_order_of_first_sight() -> None:
    table = table_of([{"b": 1}, {"a": 2, "b": 3}, {}, {"c": None}])
    found = pa.table(table)
    assert found.to_pydict() == {"b": [1, 3, None, None], "a": [None, 2, None, None], "c": [None] * 4}


def test_rows_that_are_no_dicts_are_a_column() -> None:
    assert pa.table(table_of([1, 2])).to_pydict() == {"value": [1, 2]}
    found = pa.table(table_of([{"a": 1}, [2]])).to_pydict()
    assert found == {"a": [1, None], "value": [None, [2]]}


def test_batches_agree_on_what_came_late() -> None:
    count = 70_000
    rows: list[dict[str, Any]] = [{"n": n, "late": n, "mixed": n, "list": [n % 3]} for n in range(count)]
    rows[-1] |= {"late": 0.5, "mixed": "x", "new": {"a": 1}, "list": [0.5]}
    stream = table_of(rows).to_arrow()
    found = pa.table(stream)
    assert len(stream) == count
    assert found["n"].num_chunks == 2
    assert found["n"].to_pylist() == list(range(count))
    assert found["late"].type == pa.float64()
    assert found["late"].to_pylist()[-2:] == [count - 2, 0.5]
    assert found["mixed"].to_pylist()[-2:] == [str(count - 2), '"x"']
    assert found["list"].to_pylist()[-2:] == [[(count - 2) % 3], [0.5]]
    assert found["new"].to_pylist()[-2:] == [None, {"a": 1}]


def test_threads_gather_the_same_columns_in_the_same_order(tmp_path: Path) -> None:
    count = 120_000
    rows = [{"n": n, "x": n / 2, "mixed": n, "s": str(n), "l": [n % 3], "d": {"a": n}} for n in range(count)]
    rows[count // 2] = {"new": {"b": 1}, **rows[count // 2], "mixed": "x", "l": [0.5], "d": {"c": "y"}}
    rows[-1] = {"last": True, **rows[-1], "x": 1, "s": None}
    with pellucid.open(tmp_path / "db.pel") as db:
        db.extend(rows)
        found = {}
        for thread_count in [1, 4]:
            pellucid.set_threads(thread_count)
            try:
                columns = [pa.table(db.to_arrow()), pa.table(db.where(F.n % 2 == 0).select("mixed", "d"))]
                arrays = [db.to_numpy(path) for path in ["n", "x", "mixed"]]
            finally:
                pellucid.set_threads(None)
            for table in columns:
                table.validate(full=True)
            found[thread_count] = [table.to_pydict() for table in columns] + [
                (array.dtype, array.tolist()) for array in arrays
            ]
    assert found[4] == found[1]
    assert list(found[4][0]) == ["n", "x", "mixed", "s", "l", "d", "new", "last"]
    assert [str(dtype) for dtype, _ in found[4][2:]] == ["int64", "float64", "object"]
    assert found[4][2][1] == list(range(count))


def test_select_chooses_columns_and_computes_them() -> None:
    table = table_of([{"a": {"b": n}, "s": "x" * n} for n in range(4)])
    found = pa.table(table.where(F.a.b > 0).order_by(F.a.b.desc()).limit(2).select("a.b", more=F.a.b + 0.5))
    assert found.to_pydict() == {"a.b": [3, 2], "more": [3.5, 2.5]}
    missing = pa.table(table.select("typo"))
    assert missing.schema.field("typo").type == pa.null()
    assert len(missing) == 4


def test_no_rows_are_no_rows() -> None:
    table = pellucid.open(":memory:").table("never made")
    assert pa.table(table).shape == (0, 0)
    assert pa.table(table.select("a")).column_names == ["a"]
    assert pa.table(table_of([{"a": 1}]).where(F.a > 1)).num_rows == 0
    nothing = table_of([{"a": 1}]).where(F.a > 1).select("a", b=F.a + 1)
    assert nothing.to_polars().columns == list(nothing.to_pandas().columns) == ["a", "b"]
    assert pa.table(table_of([{}, {}])).shape == (2, 0)


def test_a_stream_can_be_taken_twice_and_says_what_is_in_it() -> None:
    stream = table_of([{"a": 1, "u": THE_UUID}]).to_arrow()
    assert repr(stream) == "<pellucid.ArrowStream of 1 row: a Int64, u FixedSizeBinary(16)>"
    assert pa.table(stream) == pa.table(stream)
    assert pa.schema(stream).names == ["a", "u"]


def test_what_no_column_has_is_refused_by_name() -> None:
    db = pellucid.open(":memory:", pickle="allow")
    db["row"] = {"fine": 1, "odd": [{"one": types.SimpleNamespace(n=3)}]}
    for columns in [db, db.select("odd", "fine"), db.snapshot()]:
        with pytest.raises(
            pellucid.UnsupportedValue, match=r"column \"odd.one\" of record 'row' .* a pickle"
        ):
            columns.to_arrow()
    assert pa.table(db.select("fine")).to_pydict() == {"fine": [1]}
    db["row"] = types.SimpleNamespace(n=3)
    with pytest.raises(pellucid.UnsupportedValue, match=r"column \"value\" of record 'row' .* a pickle"):
        db.to_arrow()
    db["row"] = {f"k{n}": n for n in range(1100)}
    with pytest.raises(
        pellucid.UnsupportedValue, match=r"^record 'row' .* beyond the 1,024 columns .*; select"
    ):
        db.to_arrow()


def test_objects_of_registered_classes_are_what_they_are_stored_as() -> None:
    pellucid.register(Money, lambda money: [money.amount], lambda amount: Money(*amount))
    assert pa.table(table_of([{"m": Money(5)}])).to_pydict() == {"m": [[5]]}


class Money:
    def __init__(self, amount: int) -> None:
        self.amount = amount


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        (pd.RangeIndex(3), {}),
        (pd.RangeIndex(5, 8), {"__index_level_0__": [5, 6, 7]}),
        (pd.RangeIndex(0, 6, 2, name="id"), {"id": [0, 2, 4]}),
        (pd.RangeIndex(3, name="id"), {"id": [0, 1, 2]}),
        (pd.Index([2, 1, 0]), {"__index_level_0__": [2, 1, 0]}),
    ],
)
def test_an_index_that_does_not_only_count_is_a_column(index: Any, expected: dict[str, list[int]]) -> None:
    table = pellucid.open(":memory:").table("t")
    assert table.extend(pd.DataFrame({"a": [1, 2, 3]}, index=index)) == 3
    rows = {name: [row.get(name) for row in table.values()] for name in ["a", *expected]}
    assert rows == {"a": [1, 2, 3], **expected}
    assert all(len(row) == len(rows) for row in table.values())


# ---- Out: libraries ------------------------------------------------------------------------------


def test_polars_takes_queries_and_tables() -> None:
    table = table_of([{"n": 1, "s": "a"}, {"n": 2, "s": None}])
    expected = {"n": [1, 2], "s": ["a", None]}
    assert pl.DataFrame(table).to_dict(as_series=False) == expected
    assert table.to_polars().to_dict(as_series=False) == expected
    assert table.where(F.n > 1).to_polars().to_dict(as_series=False) == {"n": [2], "s": [None]}


def test_pandas_takes_tables() -> None:
    frame = table_of([{"n": 1, "s": "a"}, {"n": 2, "s": "b"}]).to_pandas()
    assert isinstance(frame, pd.DataFrame)
    assert frame["n"].tolist() == [1, 2]
    assert frame["s"].tolist() == ["a", "b"]


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        ([1, 2**62], "int64", [1, 2**62]),
        ([1, None], "float64", [1.0, np.nan]),
        ([1.5, 2], "float64", [1.5, 2.0]),
        ([1.5, None], "float64", [1.5, np.nan]),
        ([True, False], "bool", [True, False]),
        ([True, None], "object", [True, None]),
        ([datetime(2020, 1, 1), None], "datetime64[us]", ["2020-01-01", "NaT"]),
        ([datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))], "datetime64[us]", ["2020-01-01"]),
        ([date(2020, 1, 1), None], "datetime64[D]", ["2020-01-01", "NaT"]),
        ([timedelta(1), None], "timedelta64[us]", [86_400_000_000, "NaT"]),
        (["a", None], "object", ["a", None]),
        ([2**53 + 1, 0.5], "object", [2**53 + 1, 0.5]),
        ([Decimal(1)], "object", [Decimal(1)]),
    ],
)
def test_numpy_gets_a_column_in_its_own_type(values: list[Any], dtype: str, expected: list[Any]) -> None:
    table = table_of([{"c": {"d": value}} for value in values])
    for found in [table.to_numpy("c.d"), table.where().to_numpy(F.c.d)]:
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(found, np.array(expected, dtype))


def test_numpy_gets_lists_as_objects_and_all_batches() -> None:
    found = table_of([{"l": [1, 2]}, {"l": [3, 4]}]).to_numpy("l")
    assert found.dtype == object
    assert found.tolist() == [[1, 2], [3, 4]]
    assert table_of([{"n": n} for n in range(70_000)]).to_numpy("n").tolist() == list(range(70_000))
    assert table_of([]).to_numpy("n").tolist() == []


@pytest.mark.parametrize(
    ("method", "module", "pip"),
    [
        ("to_polars", "polars", "polars"),
        ("to_pandas", "pandas", "pandas pyarrow"),
        ("to_pandas", "pyarrow", "pandas pyarrow"),
        ("to_numpy", "numpy", "numpy"),
    ],
)
def test_a_library_that_is_not_there_is_asked_for(
    method: str, module: str, pip: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = table_of([{"n": 1}])
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ImportError, match=rf"{method}\(\) needs {module}: pip install {pip}"):
        getattr(table, method)(*["n"] if method == "to_numpy" else [])


# ---- There and back ------------------------------------------------------------------------------

# Of each type the ends of its range, and what lies apart from a record. Decimals come back with the scale
# of their column, and are equal.
exact_types = [
    st.integers(-(2**63), 2**63 - 1),
    st.integers(-(2**90), 2**90).map(lambda value: value + 2**100),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.just(LARGE),
    st.binary(max_size=5) | st.just(b"\xff" * 33_000),
    st.dates(),
    st.datetimes(),
    st.datetimes(min_value=datetime(1, 1, 2), timezones=st.just(UTC)),
    st.times(),
    st.timedeltas(timedelta(-(10**8)), timedelta(10**8)),
    st.decimals(allow_nan=False, allow_infinity=False, places=3, min_value=-(10**12), max_value=10**12),
    st.uuids(),
    st.none(),
]
nested_types = st.recursive(
    st.sampled_from(exact_types).map(lambda values: st.none() | values),
    lambda inner: st.one_of(
        inner.map(lambda values: st.lists(values, max_size=3)),
        st.dictionaries(st.sampled_from("xyz"), inner, min_size=1, max_size=2).map(st.fixed_dictionaries),
    ),
    max_leaves=4,
)


@st.composite
def tables(draw: st.DrawFn) -> list[dict[str, Any]]:
    columns = draw(st.dictionaries(st.sampled_from(["a", "b", "", "c.d"]), nested_types, min_size=1))
    return draw(st.lists(st.fixed_dictionaries(columns), max_size=5))


@given(rows=tables())
@settings(max_examples=150, deadline=None)
def test_rows_of_exact_types_come_back_as_they_were(rows: list[dict[str, Any]]) -> None:
    table = table_of(rows)
    copy = pellucid.open(":memory:").table("copy")
    assert copy.extend(table.to_arrow()) == len(rows)
    # An int beyond 64 bits comes back as a Decimal, which is equal to it.
    assert rows_of(copy) == rows
    copy.extend(pa.table(table))
    assert rows_of(copy) == rows * 2


def test_a_query_is_copied_as_it_is() -> None:
    table = table_of([{"s": {1, 2}, "when": datetime(2020, 1, 1, tzinfo=ZoneInfo("Europe/Berlin"))}])
    copy = pellucid.open(":memory:").table("copy")
    copy.extend(table.where())
    assert rows_of(copy) == rows_of(table)
    assert isinstance(copy[0].s, set)


# ---- In: types -----------------------------------------------------------------------------------

BERLIN = ZoneInfo("Europe/Berlin")
ARRAYS: dict[str, tuple[pa.Array, list[Any]]] = {
    "null": (pa.nulls(2), [None, None]),
    "bool": (pa.array([True, None]), [True, None]),
    **{
        f"{sign}{bits}": (pa.array([1, None], f"{sign}{bits}"), [1, None])
        for sign in ("int", "uint")
        for bits in (8, 16, 32, 64)
    },
    "uint64 beyond int64": (pa.array([2**64 - 1], pa.uint64()), [2**64 - 1]),
    "int8 below zero": (pa.array([-128], pa.int8()), [-128]),
    "float16": (pa.array([np.float16(1.5), None]), [1.5, None]),
    "float32": (pa.array([0.1], pa.float32()), [float(np.float32(0.1))]),
    "float64": (pa.array([0.1, float("inf")]), [0.1, float("inf")]),
    "string": (pa.array(["", "\u00e9", None, LARGE]), ["", "\u00e9", None, LARGE]),
    "large_string": (pa.array(["a", None], pa.large_string()), ["a", None]),
    "string_view": (
        pa.array(["a", "longer than twelve bytes", None], pa.string_view()),
        ["a", "longer than twelve bytes", None],
    ),
    "binary": (pa.array([b"\xff", None, b"x" * 40_000]), [b"\xff", None, b"x" * 40_000]),
    "large_binary": (pa.array([b"a"], pa.large_binary()), [b"a"]),
    "binary_view": (pa.array([b"a" * 20], pa.binary_view()), [b"a" * 20]),
    "fixed_size_binary": (pa.array([b"abc", None], pa.binary(3)), [b"abc", None]),
    "uuid": (pa.array([THE_UUID.bytes, None], pa.uuid()), [THE_UUID, None]),
    "date32": (pa.array([date(2020, 2, 29), date(1, 1, 1), None]), [date(2020, 2, 29), date(1, 1, 1), None]),
    "date64": (pa.array([date(1969, 12, 31)], pa.date64()), [date(1969, 12, 31)]),
    **{
        f"timestamp {unit}": (
            pa.array([datetime(2020, 1, 1), None], pa.timestamp(unit)),
            [datetime(2020, 1, 1), None],
        )
        for unit in ("s", "ms", "us", "ns")
    },
    "timestamp UTC": (
        pa.array([datetime(1960, 1, 1)], pa.timestamp("us", "UTC")),
        [datetime(1960, 1, 1, tzinfo=UTC)],
    ),
    "timestamp +02:00": (
        pa.array([datetime(2020, 1, 1)], pa.timestamp("s", "+02:00")),
        [datetime(2020, 1, 1, 2, tzinfo=timezone(timedelta(hours=2)))],
    ),
    "timestamp with a zone": (
        pa.array([datetime(2020, 7, 1, 10), None], pa.timestamp("ms", "Europe/Berlin")),
        [datetime(2020, 7, 1, 12, tzinfo=BERLIN), None],
    ),
    "time32": (pa.array([time(1, 2, 3), None], pa.time32("s")), [time(1, 2, 3), None]),
    "time32 ms": (pa.array([time(1, 2, 3, 4000)], pa.time32("ms")), [time(1, 2, 3, 4000)]),
    "time64": (pa.array([time(1, 2, 3, 4)], pa.time64("us")), [time(1, 2, 3, 4)]),
    "time64 ns": (pa.array([time(1, 2, 3, 4)], pa.time64("ns")), [time(1, 2, 3, 4)]),
    **{
        f"duration {unit}": (pa.array([timedelta(-1, 5)], pa.duration(unit)), [timedelta(-1, 5)])
        for unit in ("s", "ms", "us", "ns")
    },
    "decimal": (pa.array([Decimal("-1.50"), None]), [Decimal("-1.50"), None]),
    "decimal256": (pa.array([Decimal(10) ** 50], pa.decimal256(60, 2)), [Decimal(10) ** 50]),
    "list": (pa.array([[1, None], [], None]), [[1, None], [], None]),
    "large_list": (pa.array([["a"], None], pa.large_list(pa.string())), [["a"], None]),
    "fixed_size_list": (pa.array([[1, 2], None], pa.list_(pa.int8(), 2)), [[1, 2], None]),
    "list_view": (pa.array([[1], [2, 3]], pa.list_view(pa.int8())), [[1], [2, 3]]),
    "struct": (pa.array([{"x": 1, "y": ["a"]}, None]), [{"x": 1, "y": ["a"]}, None]),
    "map": (
        pa.array([[("a", 1), ("b", None)], None], pa.map_(pa.string(), pa.int8())),
        [{"a": 1, "b": None}, None],
    ),
    "dictionary": (pa.array(["a", "b", None, "a"]).dictionary_encode(), ["a", "b", None, "a"]),
    "dictionary with a null": (
        pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.uint8()), pa.array([None, 5])),
        [None, 5],
    ),
    "slices": (pa.array([["x"], ["a", None], None, ["b"], ["y"]])[1:4], [["a", None], None, ["b"]]),
}


@pytest.mark.parametrize("name", ARRAYS)
@pytest.mark.parametrize("as_array", [False, True])
def test_an_arrow_column_becomes_pythons_values(name: str, as_array: bool, tmp_path: Path) -> None:
    array, expected = ARRAYS[name]
    with pellucid.open(tmp_path / "db.pel") as db:
        given = pa.record_batch({"c": array}) if as_array else pa.table({"n": range(len(array)), "c": array})
        assert db.extend(ByArray(given) if as_array else given) == len(array)
        assert [row.to_dict()["c"] for row in db.values()] == expected
        assert [type(row.to_dict()["c"]) for row in db.values()] == [type(value) for value in expected]
        assert db.check() == []


class ByArray:
    """Hands over one array, and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        return self.array.__arrow_c_array__(requested_schema)


def test_zones_with_rules_know_their_folds() -> None:
    start = datetime(2020, 10, 24, 23, tzinfo=UTC)
    instants = [start + timedelta(minutes=7 * n) for n in range(60)]
    for zone in ["Europe/Berlin", "Australia/Lord_Howe", "America/New_York"]:
        table = pellucid.open(":memory:").table("t")
        table.extend(pa.table({"at": pa.array(instants, pa.timestamp("us", zone))}))
        expected = [instant.astimezone(ZoneInfo(zone)) for instant in instants]
        assert [(at, at.fold, at.tzinfo) for at in table.column("at")] == [
            (at, at.fold, at.tzinfo) for at in expected
        ]


def test_frames_and_series_are_taken() -> None:
    table = pellucid.open(":memory:").table("t")
    assert table.extend(pl.DataFrame({"n": [1, 2], "s": ["a", None], "none": [None, None]})) == 2
    frame = pd.DataFrame({"n": [3], "c": pd.Categorical(["x"]), "t": [pd.Timestamp("2020-01-01")]})
    assert table.extend(frame) == 1
    assert table.extend(pl.Series([7, 8])) == 2
    assert rows_of(table) == [
        {"n": 1, "s": "a", "none": None},
        {"n": 2, "s": None, "none": None},
        {"n": 3, "c": "x", "t": datetime(2020, 1, 1)},
        7,
        8,
    ]
    assert list(table) == [0, 1, 2, 3, 4]


def test_many_rows_have_one_shape_and_ascending_keys() -> None:
    db = pellucid.open(":memory:")
    db[41] = "before"
    count = 150_000
    columns = {"n": range(count), "s": [{"x": n % 7} for n in range(count)]}
    assert db.extend(pa.table(columns)) == count
    assert db.last() == (41 + count, {"n": count - 1, "s": {"x": (count - 1) % 7}})
    assert db.sum("n") == count * (count - 1) // 2
    assert db.sum("s.x") == sum(n % 7 for n in range(count))


def test_columns_are_read_in_the_transaction_that_loads_them() -> None:
    db = pellucid.open(":memory:")
    table = db.table("t")

    def loaded_and_taken_back() -> None:
        with db.transaction():
            table.extend(pa.table({"own": [1, 2], "sub": [{"k": 1}, {"k": 2}]}))
            assert rows_of(table) == [{"own": 1, "sub": {"k": 1}}, {"own": 2, "sub": {"k": 2}}]
            table.append({"own": 3, "sub": {"k": 3}})
            assert pa.table(table)["own"].to_pylist() == [1, 2, 3]
            raise RuntimeError

    with pytest.raises(RuntimeError):
        loaded_and_taken_back()
    table.extend(pa.table({"other": [1]}))
    assert rows_of(table) == [{"other": 1}]


# ---- In: what is refused -------------------------------------------------------------------------


NANOS = pa.timestamp("ns")


def duplicates() -> pa.Table:
    return pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["x", "x"])


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (lambda: {"t": pa.array([1], NANOS)}, r'column "t" .* nanoseconds, .* round it'),
        (lambda: {"t": pa.array([None, 2**60], pa.timestamp("us"))}, r'column "t" .* 1 to 9999, in row 1'),
        (lambda: {"t": pa.array([2**62], pa.timestamp("s"))}, r'column "t" .* years 1 to 9999'),
        (lambda: {"t": pa.array([0], pa.timestamp("s", "Nowhere/City"))}, r'column "t" .* "Nowhere/City"'),
        (lambda: {"d": pa.array([-(10**6)], pa.date32())}, r'column "d" .* a date beyond'),
        (lambda: {"i": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}, r'column "i" .* Interval'),
        (lambda: {"s": pa.array([{"a": [1]}], pa.struct({"a": pa.list_(NANOS)}))}, r'column "s.a"'),
        (lambda: {"m": pa.array([[(1, 2)]], pa.map_(pa.int8(), pa.int8()))}, r'column "m" .* only strings'),
        (lambda: {"m": pa.array([[("a", 1), ("a", 2)]], pa.map_(pa.string(), pa.int8()))}, r"one key twice"),
        (lambda: {"u": pa.UnionArray.from_sparse(pa.array([0], pa.int8()), [pa.array([1])])}, r'column "u"'),
        (duplicates, r'the stream .* two fields with the name "x"'),
    ],
)  # fmt: skip
def test_what_has_no_place_in_a_record_is_refused_with_its_column(columns: Any, message: str) -> None:
    db = pellucid.open(":memory:")
    given = columns()
    with pytest.raises(pellucid.UnsupportedValue, match=message):
        db.extend(given if isinstance(given, pa.Table) else pa.table(given))
    assert len(db) == 0


def reader(batches: Iterator[Any]) -> pa.RecordBatchReader:
    return pa.RecordBatchReader.from_batches(pa.schema([("a", pa.int64())]), batches)


def test_a_stream_that_breaks_off_leaves_nothing() -> None:
    db = pellucid.open(":memory:")
    db.append("before")

    def batches() -> Iterator[Any]:
        yield pa.record_batch({"a": list(range(5000))})
        raise OSError("the wire was cut")

    with pytest.raises(pellucid.StreamError, match=r"nothing of it is stored: .*the wire was cut"):
        db.extend(reader(batches()))
    assert list(db.items()) == [(0, "before")]
    with db.transaction():
        db.append("kept")
        with pytest.raises(pellucid.StreamError):
            db.extend(reader(batches()))
        db.append("kept, too")
    assert list(db.values()) == ["before", "kept", "kept, too"]


def test_a_stream_may_write_to_the_table_that_takes_it() -> None:
    db = pellucid.open(":memory:")

    def batches() -> Iterator[Any]:
        for n in range(3):
            db.append(f"by the stream {n}")
            yield pa.record_batch({"a": [n]})

    assert db.extend(reader(batches())) == 3
    assert [row if isinstance(row, str) else row.a for row in db.values()] == [
        "by the stream 0", 0, "by the stream 1", 1, "by the stream 2", 2,
    ]  # fmt: skip


def test_a_table_of_a_class_takes_no_columns() -> None:
    table = pellucid.open(":memory:").table("t", type=Money)
    with pytest.raises(pellucid.WrongClass, match="columns have rows of no class"):
        table.extend(pa.table({"amount": [1]}))


def test_what_does_not_keep_to_the_interface_is_refused() -> None:
    class Liar:
        def __arrow_c_stream__(self, requested_schema: object = None) -> Any:
            return self.__dict__.get("given", 5)

    db = pellucid.open(":memory:")
    with pytest.raises(TypeError, match="gave int in place of a capsule"):
        db.extend(Liar())
    liar = Liar()
    liar.given = pa.array([1]).__arrow_c_array__()[0]
    with pytest.raises(TypeError, match='in place of a capsule "arrow_array_stream"'):
        db.extend(liar)
    liar.given = pa.table({"a": [1]}).__arrow_c_stream__()
    assert db.extend(liar) == 1
    with pytest.raises(pellucid.StreamError, match="taken before"):
        db.extend(liar)
    assert len(db) == 1


# ---- In: damage ----------------------------------------------------------------------------------


class CArray(ctypes.Structure):
    """`struct ArrowArray` of the C data interface."""


CArray._fields_ = [
    ("length", ctypes.c_int64),
    ("null_count", ctypes.c_int64),
    ("offset", ctypes.c_int64),
    ("n_buffers", ctypes.c_int64),
    ("n_children", ctypes.c_int64),
    ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(CArray))),
    ("dictionary", ctypes.POINTER(CArray)),
    ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p),
]


class Damaged:
    """An array of pyarrow whose C struct, or a buffer of it, is changed on its way over."""

    def __init__(self, array: pa.Array, damage: Any) -> None:
        self.array = array
        self.damage = damage

    def __arrow_c_array__(self, requested_schema: object = None) -> Any:
        schema, array = self.array.__arrow_c_array__()
        pointer = ctypes.pythonapi.PyCapsule_GetPointer
        pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self.damage(CArray.from_address(pointer(array, b"arrow_array")))
        return schema, array


def own(values: list[int], kind: Any) -> Any:
    """A buffer that may be written to and stays."""
    buffer = (kind * len(values))(*values)
    KEPT.append(buffer)
    return ctypes.addressof(buffer)


KEPT: list[Any] = []


def buffer_of(index: int, values: list[int], kind: Any = ctypes.c_int32) -> Any:
    def damage(array: CArray) -> None:
        array.buffers[index] = own(values, kind)

    return damage


def field_of(name: str, value: int) -> Any:
    return lambda array: setattr(array, name, value)


STRINGS = pa.array(["ab", "cd"])
DAMAGES: dict[str, tuple[pa.Array, Any]] = {
    "offsets that go back": (STRINGS, buffer_of(1, [0, 4, 2])),
    "an offset below zero": (STRINGS, buffer_of(1, [0, -2, 4])),
    "a last offset below zero": (STRINGS, buffer_of(1, [0, 2, -1])),
    "a first offset below zero": (STRINGS, buffer_of(1, [-1, 2, 4])),
    "text that is no UTF-8": (STRINGS, buffer_of(2, [97, 255, 99, 100], ctypes.c_uint8)),
    "offsets within characters": (pa.array(["\u00e9", "b"]), buffer_of(1, [0, 1, 3])),
    "no buffer of offsets": (STRINGS, lambda array: array.buffers.__setitem__(1, None)),
    "too few buffers": (STRINGS, field_of("n_buffers", 1)),
    "no buffers": (STRINGS, field_of("n_buffers", 0)),
    "a length below zero": (STRINGS, field_of("length", -1)),
    "a key beyond the dictionary": (STRINGS.dictionary_encode(), buffer_of(1, [0, 2])),
    "a key below zero": (STRINGS.dictionary_encode(), buffer_of(1, [0, -1])),
    "no dictionary": (STRINGS.dictionary_encode(), lambda array: setattr(array, "dictionary", None)),
    "too few children": (pa.array([{"a": 1}]), field_of("n_children", 0)),
    "a list beyond its elements": (pa.array([[1], [2]]), buffer_of(1, [0, 1, 9])),
    "a list that goes back": (pa.array([[1], [2]]), buffer_of(1, [0, 2, 1])),
    "a view beyond its buffer": (
        pa.array(["a string of some length"], pa.string_view()),
        buffer_of(1, [23, 0, 0, 9], ctypes.c_int32),
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_arrays_are_refused(name: str) -> None:
    array, damage = DAMAGES[name]
    db = pellucid.open(":memory:")
    with pytest.raises(pellucid.StreamError, match="no Arrow data, nothing of it is stored"):
        db.extend(Damaged(array, damage))
    assert len(db) == 0
    assert db.extend(Damaged(array, lambda _: None)) == len(array)


class Own:
    """An object that only Python has."""


@pytest.mark.parametrize(
    ("frame", "column", "what"),
    [
        (lambda: pl.DataFrame({"a": [1], "o": [Own()]}), "o", r"Python objects \(polars' type Object\)"),
        (lambda: pl.Series("o", [Own()], dtype=pl.Object), "o", "Python objects"),
        (lambda: pl.DataFrame({"i": pl.Series([2**100], dtype=pl.Int128)}), "i", "ints of 128 bits"),
        (lambda: pl.DataFrame({"u": pl.Series([1], dtype=pl.UInt128)}), "u", "ints of 128 bits"),
        (
            lambda: pl.DataFrame({"s": [{"x": [1]}]}, {"s": pl.Struct({"x": pl.List(pl.Int128)})}),
            r"s\.x.*",
            "ints of 128 bits",
        ),
    ],
)
def test_a_column_that_polars_alone_has_is_refused(frame: Any, column: str, what: str) -> None:
    db = pellucid.open(":memory:")
    with pytest.raises(
        pellucid.UnsupportedValue, match=rf'column "{column}" given .*{what}.*extend\(frame\.to_dicts\(\)\)'
    ):
        db.extend(frame())
    assert len(db) == 0


def test_a_frame_of_what_polars_alone_has_is_taken_by_rows() -> None:
    db = pellucid.open(":memory:")
    db.extend(pl.DataFrame({"i": pl.Series([2**100, None], dtype=pl.Int128)}).to_dicts())
    assert [row.to_dict() for row in db.values()] == [{"i": 2**100}, {"i": None}]
    enum = pl.DataFrame({"e": pl.Series(["Object"], dtype=pl.Enum(["Object"]))})
    assert db.extend(enum) == 1
    assert db[2] == {"e": "Object"}


def test_a_name_that_arrow_does_not_have_is_told() -> None:
    db = pellucid.open(":memory:")
    db["a"] = {"x\0y": 1, "n": {"z\0": 1}}
    for take in (
        db.to_arrow,
        db.to_polars,
        lambda: pa.table(db.where()),
        lambda: db.where().select("n").to_arrow(),
    ):
        with pytest.raises(
            pellucid.UnsupportedValue, match=r'is called "(x\\0y|z\\0)", .*select\(other_name='
        ):
            take()
    assert db.select(x=F["x\0y"]).to_polars().rows() == [(1,)]


@pytest.mark.parametrize(
    ("values", "total", "mean"),
    [
        ([np.int8(100)] * 2, 200, 100.0),
        ([np.uint8(200), np.uint8(100)], 300, 150.0),
        ([np.int64(2**62)] * 2, 2**63, 2.0**62),
        ([np.int64(5), -(2**70)], 5 - 2**70, (5 - 2**70) / 2),
        ([np.bool_(True)] * 2, 2, 1.0),
        ([np.float16(60_000)] * 2, 120_000.0, 60_000.0),
        ([np.float32(0.5), Decimal(2)], None, None),
        ([np.timedelta64(1, "D")], 0, None),
        # Times that Python does not have are no numbers either, whatever count they hold.
        ([np.timedelta64(5, "M"), np.timedelta64(7, "ns"), np.timedelta64(3)], 0, None),
        ([np.datetime64("2020-01-01T00:00:00.000000001"), np.datetime64("20000-01-01")], 0, None),
        ([np.timedelta64(5, "M"), 2], 2, 2.0),
    ],
    ids=repr,
)
def test_scalars_of_numpy_are_added_as_the_numbers_that_they_equal(
    values: list[Any], total: Any, mean: Any
) -> None:
    table = table_of([{"x": value, "l": [value]} for value in values])
    if total is None:
        with pytest.raises(TypeError, match="cannot all be added to each other"):
            table.sum("x")
        return
    sums = [table.sum("x"), table.sum(F.x), table.sum(F.l.each()), table.where(F.x.exists()).sum("x")]
    assert sums == [total] * 4
    assert {type(one) for one in sums} == {type(total)}
    assert table.agg(s=F.x.sum())["s"] == total
    assert (table.mean("x"), table.agg(m=F.x.mean())["m"]) == (mean, mean)


def test_an_array_of_many_dimensions_is_not_taken_for_damage() -> None:
    array = np.zeros((1,) * 60)
    assert table_of([{"v": array}]).to_arrow() is not None
    array = np.zeros((1,) * 64)
    table = table_of([{"v": array}])
    for read in (table.to_arrow, lambda: table.to_numpy("v")):
        with pytest.raises(pellucid.UnsupportedValue, match="an array of 64 dimensions"):
            pa.table(read())
    assert table[0]["v"].shape == array.shape


def doubled(depth: int) -> pa.RecordBatch:
    """One column of lists, of which each holds the one below it twice."""
    array = pa.array([1], pa.int32())
    for _ in range(depth):
        count = len(array)
        starts = pa.py_buffer(np.zeros(2, np.int32))
        sizes = pa.py_buffer(np.full(2, count, np.int32))
        array = pa.Array.from_buffers(pa.list_view(array.type), 2, [None, starts, sizes], children=[array])
    array.validate(full=True)
    return pa.RecordBatch.from_arrays([array], ["c"])


def test_lists_that_share_elements_are_refused_before_they_are_written() -> None:
    table = table_of([])
    table.extend(doubled(5))
    expected: Any = 1
    for _ in range(5):
        expected = [expected] * (1 if expected == 1 else 2)
    assert table[0] == {"c": expected}
    for depth in (32, 40, 60):
        with pytest.raises(pellucid.RecordTooLarge):
            table.extend(doubled(depth))
    assert len(table) == 2


@pytest.mark.parametrize(
    ("value", "ways", "content"),
    [
        (pd.DataFrame({"a": [1, 2]}), ["table.extend(value)", 'value.to_dict("list")'], {"a": [1, 2]}),
        (
            pl.DataFrame({"a": [1, 2]}),
            ["table.extend(value)", "value.to_dict(as_series=False)"],
            {"a": [1, 2]},
        ),
        (pa.table({"a": [1, 2]}), ["table.extend(value)", "value.to_pydict()"], {"a": [1, 2]}),
        (pa.record_batch({"a": [1, 2]}), ["table.extend(value)", "value.to_pydict()"], {"a": [1, 2]}),
        (pd.Series([1, 2], index=[5, 6]), ["value.to_list()", "value.to_dict()"], {5: 1, 6: 2}),
        (pl.Series([1, 2]), ["value.to_list()"], [1, 2]),
        (pa.array([1, 2]), ["value.to_pylist()"], [1, 2]),
        (pa.chunked_array([[1], [2]]), ["value.to_pylist()"], [1, 2]),
        (pa.scalar(5), ["value.as_py()"], 5),
    ],
    ids=lambda value: f"{type(value).__module__}.{type(value).__name__}",
)
def test_columns_given_as_a_value_say_how_to_store_them_whole(
    db: pellucid.Database, value: Any, ways: list[str], content: Any
) -> None:
    with pytest.raises(pellucid.UnsupportedValue) as refused:
        db["x"] = {"frame": value}
    message = str(refused.value)
    assert "list(value)" not in message
    for way in ways:
        assert way in message
    # What it says is true.
    table = db.table("t")
    made = [eval(way, {"value": value, "table": table}) for way in ways]  # noqa: S307
    db["x"] = {"frame": made[-1]}
    assert db["x"].to_dict() == {"frame": content}
    if "table.extend(value)" in ways:
        assert table.to_dicts() == [{"a": 1}, {"a": 2}]


def test_a_database_and_a_snapshot_hand_over_the_columns_of_their_default_table(
    db: pellucid.Database,
) -> None:
    db.extend([{"a": 1}, {"a": 2}])
    with db.snapshot() as snapshot:
        for owner in (db, snapshot, db.table("default")):
            assert pa.table(owner).to_pydict() == {"a": [1, 2]}
