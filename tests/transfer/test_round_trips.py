"""Do random rows come back from a file as they were, as far as its format can hold them?

The rows have what formats differ in: ints beyond 64 bits, NaN and infinity, halves of surrogate pairs, empty
containers, bytes, dict keys of all types, and fields that only some of the rows have. What a format cannot
hold is skipped, and the report names just these rows.
"""

from __future__ import annotations

import base64
import datetime
import decimal
import io
import itertools
import json
import math
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pellucid
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pellucid.transfer.convert import TYPES as READERS
from pellucid.transfer.digits import write_int
from pellucid.transfer.sources.json_values import loads

SETTINGS = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
INTS = st.integers(-(2**70), 2**70) | st.integers(0, 10**9).map(lambda n: n**600)
FLOATS = st.floats(allow_nan=True)
# Surrogates come by themselves, and both halves after each other.
TEXTS = st.text(st.characters(), max_size=5) | st.sampled_from(
    ["", "\ud83d", "\ud83d\ude00", "007", "\x00", "null"]
)
TIMES = st.times()
SPANS = st.timedeltas()
SCALARS = (
    st.none()
    | st.booleans()
    | INTS
    | FLOATS
    | TEXTS
    | st.binary(max_size=4)
    | st.dates()
    | st.datetimes()
    | TIMES
    | SPANS
    | st.uuids()
    | st.decimals(allow_nan=False, allow_infinity=False, places=2)
    | st.just(1j)
)
KEYS = TEXTS | st.sampled_from([1, 0, True, None, 1.5, b"x", (1,), "1", "true", "None"])
VALUES = st.recursive(
    SCALARS, lambda part: st.lists(part, max_size=3) | st.dictionaries(KEYS, part, max_size=3), max_leaves=6
)
NAMES = st.sampled_from(["a", "b", "c d", "\xe9", "long_name"])
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=6)


class LeftOutError(Exception):
    """The format has nothing like the value."""


def json_of(value: Any) -> Any:
    """What comes back from JSON."""
    kind = type(value)
    if kind is complex:
        raise LeftOutError
    if kind is str:
        if any("\ud800" <= a < "\udc00" <= b <= "\udfff" for a, b in itertools.pairwise(value)):
            raise LeftOutError
        return value
    if kind is bytes:
        return base64.b64encode(value).decode()
    if kind is dict:
        names = [name_of(key) for key in value]
        if len(set(names)) < len(names):
            raise LeftOutError
        return {json_of(name): json_of(part) for name, part in zip(names, value.values(), strict=True)}
    if kind is list:
        return list(map(json_of, value))
    if kind is datetime.timedelta:
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return str(value) if kind in (uuid.UUID, decimal.Decimal) else value


def name_of(key: Any) -> str:
    if type(key) in (bytes, tuple):
        raise LeftOutError
    return key if type(key) is str else json.dumps(key)


def span_of(value: Any) -> Any:
    """The value with timedeltas in place of the texts that stand for them."""
    if type(value) is dict:
        return {name: span_of(part) for name, part in value.items()}
    if type(value) is list:
        return list(map(span_of, value))
    try:
        return READERS["timedelta"](value) if type(value) is str else value
    except ValueError:
        return value


def kept(rows: list[Any], form: Any) -> tuple[list[Any], list[int]]:
    """The rows as they come back, and the numbers of those that do not."""
    found, gone = [], []
    for number, row in enumerate(rows):
        try:
            found.append(form(row))
        except LeftOutError:
            gone.append(number)
    return found, gone


def sent(rows: list[Any], suffix: str, **choices: Any) -> tuple[list[Any], list[int]]:
    """The rows that come back from a file, and the numbers of those that the export left out."""
    with (
        tempfile.TemporaryDirectory() as folder,
        pellucid.open(":memory:") as db,
        pellucid.open(":memory:") as back,
    ):
        db.table("t").extend(rows)
        path = Path(folder) / f"a.{suffix}"
        report = pellucid.export_to(db.table("t"), path, table="t")
        # A file of no lines at all is no JSON Lines.
        if report.rows or not suffix.startswith("jsonl"):
            imported = pellucid.import_from(path, back, table="t", **choices)
            assert imported.skipped_count == 0
        found = back.table("t").where().to_dicts()
        return found, [int(place.removeprefix("row ")) for place, _ in report.skipped]


def same(found: Any, expected: Any) -> bool:
    """Whether two values are equal in value and type; NaN equals NaN, and 5,000 digits need no text."""
    if type(found) is not type(expected):
        return False
    if type(found) is dict:
        return found.keys() == expected.keys() and all(same(found[name], expected[name]) for name in found)
    if type(found) is list:
        return len(found) == len(expected) and all(map(same, found, expected))
    return bool(found == expected) or (type(found) is float and math.isnan(found) and math.isnan(expected))


@pytest.mark.parametrize("suffix", ["jsonl", "json", "jsonl.gz", "json.zst"])
@given(rows=ROWS)
@SETTINGS
def test_json(suffix: str, rows: list[Any]) -> None:
    found, gone = sent(rows, suffix)
    expected, left_out = kept(rows, json_of)
    assert gone == left_out
    assert same(span_of(found), span_of(expected))


@pytest.mark.parametrize("rows", [[{"a": {"0": {}}}], [{"a": {"0": {}}}, {}], [{"_default": {}}, {"b": 1}]])
def test_a_row_that_looks_like_tables_of_tinydb_is_a_row(rows: list[Any]) -> None:
    assert sent(rows, "jsonl") == (rows, [])
    assert sent(rows * 2, "jsonl.gz") == (rows * 2, [])
    with pellucid.open(":memory:") as db:
        pellucid.import_from(
            io.BytesIO(b"".join(json.dumps(row).encode() + b"\n" for row in [*rows, {}])), db
        )
        assert db.where().to_dicts() == [*rows, {}]


def sqlite_of(row: Any) -> Any:
    return {name: sqlite_cell(value) for name, value in row.items()}


def sqlite_cell(value: Any) -> Any:
    kind = type(value)
    if kind is bytes or value is None:
        return value
    if kind is bool:
        return int(value)
    if kind is int:
        return value if -(2**63) <= value < 2**63 else write_int(value)
    if kind is float:
        return None if math.isnan(value) else value
    cell = json_of(value)
    if kind in (dict, list):
        return cell
    if kind is str and any("\ud800" <= sign <= "\udfff" for sign in cell):
        raise LeftOutError
    return cell


@given(rows=ROWS)
@SETTINGS
def test_sqlite(rows: list[Any]) -> None:
    found, gone = sent(rows, "sqlite")
    expected, left_out = kept(rows, sqlite_of)
    assert gone == left_out
    names = list(dict.fromkeys(name for row in found for name in row))
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        for name in names:
            cell, value = row[name], wanted.get(name)
            if type(value) in (dict, list):
                cell = loads(cell)
            assert same(span_of(cell), span_of(value))


COLUMNS: dict[str, st.SearchStrategy[Any]] = {
    "int": st.integers(-(2**63), 2**63 - 1),
    "float": FLOATS,
    "bool": st.booleans(),
    "text": st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "bytes": st.binary(max_size=5),
    "date": st.dates(),
    "when": st.datetimes(),
    "aware": st.datetimes(timezones=st.just(datetime.timezone.utc)),
    "time": TIMES,
    "timedelta": SPANS.filter(lambda span: abs(span.days) < 100_000_000),
    "uuid": st.uuids(),
    "decimal": st.decimals(-(10**9), 10**9, places=2),
    "ints": st.lists(st.integers(-5, 5), max_size=3),
    "dict": st.fixed_dictionaries({"x": st.integers(-5, 5), "y": st.text("ab", max_size=2)}),
    "dicts": st.lists(st.fixed_dictionaries({"x": st.booleans()}), max_size=2),
}
TYPED = st.lists(
    st.fixed_dictionaries({}, optional={name: st.none() | values for name, values in COLUMNS.items()}),
    max_size=6,
)


def with_all(rows: list[Any], names: list[str]) -> list[Any]:
    return [{name: row.get(name) for name in names} for row in rows]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@given(rows=TYPED)
@SETTINGS
def test_columns(suffix: str, rows: list[Any]) -> None:
    found, gone = sent(rows, suffix)
    names = list(dict.fromkeys(name for row in rows for name in row))
    assert gone == []
    if names:
        assert same(found, with_all(rows, names))


TYPES = {name: name for name in ("date", "time", "timedelta", "uuid", "decimal")} | {
    "when": "date",
    "aware": "date",
}


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "tsv", "sqlite"])
@given(rows=TYPED)
@SETTINGS
def test_types_bring_back_what_a_format_writes_as_text(suffix: str, rows: list[Any]) -> None:
    rows = [
        {name: value for name, value in row.items() if name in TYPES and value is not None} | {"n": number}
        for number, row in enumerate(rows)
    ]
    names = {name for row in rows for name in row}
    found, gone = sent(rows, suffix, types={name: kind for name, kind in TYPES.items() if name in names})
    assert gone == []
    assert same([{name: value for name, value in row.items() if value is not None} for row in found], rows)


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("time", "01:02", datetime.time(1, 2)),
        ("time", "01:02:03.5", datetime.time(1, 2, 3, 500_000)),
        ("time", "01:02:03Z", datetime.time(1, 2, 3, tzinfo=datetime.timezone.utc)),
        ("time", "1:2", None),
        ("time", "25:00", None),
        ("timedelta", "P1W", datetime.timedelta(7)),
        ("timedelta", "-P1DT2H", datetime.timedelta(-1, hours=-2)),
        ("timedelta", "PT1H30M0.25S", datetime.timedelta(hours=1, minutes=30, milliseconds=250)),
        ("timedelta", "P999999999D", datetime.timedelta(999_999_999)),
        ("timedelta", "P1000000000D", None),
        ("timedelta", "P1Y", None),
        ("timedelta", "PT", None),
        ("timedelta", "1 day, 0:00:05", None),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_times_and_durations_of_other_programs_are_read(
    suffix: str, kind: str, text: str, value: Any, tmp_path: Path
) -> None:
    path = tmp_path / f"a.{suffix}"
    row = f'{{"n": 1, "v": "{text}"}}\n' if suffix == "jsonl" else f'n,v\n1,"{text}"\n'
    path.write_text(row)
    db = pellucid.open(":memory:")
    report = pellucid.import_from(path, db, table="t", types={"v": kind}, verify=True)
    assert [row["v"] for row in db.table("t").values()] == ([] if value is None else [value])
    assert report.skipped_count == (value is None)


def test_long_ints_in_text_are_read_as_json(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f'n,v\n1,"[{"7" * 5000}]"\n')
    db = pellucid.open(":memory:")
    pellucid.import_from(tmp_path / "a.csv", db, table="t", types={"v": "json"})
    assert write_int(db.table("t")[0]["v"][0]) == "7" * 5000


@pytest.mark.parametrize("suffix", ["json", "jsonl", "csv", "tsv"])
@given(rows=st.lists(st.binary(), min_size=1))
@SETTINGS
def test_bytes_come_back_from_base64(suffix: str, rows: list[bytes]) -> None:
    file = io.BytesIO()
    with pellucid.open(":memory:") as db:
        db.extend({"n": number, "f": row} for number, row in enumerate(rows))
        pellucid.export_to(db, file, format=suffix)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"a.{suffix}"
            path.write_bytes(file.getvalue())
            back = pellucid.open(":memory:")
            pellucid.import_from(path, back, types={"f": "bytes"}, verify=True, strict=True)
        assert back.to_dicts() == db.to_dicts()


@pytest.mark.parametrize(
    "text", ["Zm9v", "Zm9v\nZm8=", "Zm9", "Zm9=", "Zm-_", "f\u00f6\u00f6=", "x", 7, 1.5, ["Zm9v"], True]
)
def test_only_base64_is_read_as_bytes(text: Any, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text(json.dumps([{"f": text, "n": 1}]))
    with pellucid.open(":memory:") as db:
        report = pellucid.import_from(tmp_path / "a.json", db, types={"f": "bytes", "n": "int"}, verify=True)
        if type(text) is str and text.startswith("Zm9v"):
            assert db[0].f == (b"foofo" if "\n" in text else b"foo")
        else:
            assert report.skipped[0].reason.endswith("is not of type bytes, which are base64 in a text")
