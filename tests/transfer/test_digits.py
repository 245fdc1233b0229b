"""Do numbers of JSON keep all of their digits where a type has room for them?"""

from __future__ import annotations

import datetime
import json
import math
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid.transfer.outgoing import plain

LONG = "0.1234567890123456789012345678901234567890"


def imported(text: str, folder: Path, name: str = "a.json", **choices: Any) -> list[Any]:
    (folder / name).write_text(text)
    with pellucid.open(":memory:") as db:
        report = pellucid.import_from(folder / name, db, verify=True, strict=True, **choices)
        assert report.verified
        return list(map(plain, db.values()))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
@pytest.mark.parametrize("is_msgspec", [True, False])
@pytest.mark.parametrize(
    ("number", "kind", "expected"),
    [
        (LONG, "decimal", Decimal(LONG)),
        (LONG, "text", LONG),
        ("1.10", "decimal", Decimal("1.10")),
        ("1.10", "text", "1.10"),
        ("-0", "decimal", Decimal("-0")),
        ("-0", "text", "-0"),
        ("1E5", "text", "1E5"),
        ("1e400", "decimal", Decimal("1e400")),
        ("-1e400", "text", "-1e400"),
        ("1e400", "float", math.inf),
        ("1e400", "json", math.inf),
        ("9007199254740993.0", "int", 9007199254740993),
        ("1e22", "int", 10**22),
        ("-3", "int", -3),
        ("7" * 5000, "int", None),
        ("7" * 5000, "text", "7" * 5000),
        ("1", "bool", True),
        ("1.50", "float", 1.5),
        ("1.50", "json", 1.5),
        ('"1.50"', "decimal", Decimal("1.50")),
        ("NaN", "text", "nan"),
    ],
)
def test_a_number_is_read_as_it_is_written(
    number: str,
    kind: str,
    expected: Any,
    name: str,
    is_msgspec: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if not is_msgspec:
        monkeypatch.setitem(sys.modules, "msgspec", None)
    # Other fields are what they are without types, and the last row has an int that `int` refuses to read.
    text = f'{{"x": {number}, "at": {{"x": {number}}}, "n": [1, -2.50, 1e2], "t": "1.50"}}'
    long = f'{{"x": null, "n": {"9" * 5000}}}'
    both = f"[{text}, {long}]" if name == "a.json" else f"{text}\n{long}\n"
    rows = imported(both, tmp_path, name, types={"x": kind, "at.x": kind})
    if expected is None:
        assert rows[0]["x"] == (10**5000 - 1) // 9 * 7
    else:
        assert repr(rows[0]["x"]) == repr(rows[0]["at"]["x"]) == repr(expected)
    assert repr(rows[0]["n"]) == "[1, -2.5, 100.0]"
    assert rows[0]["t"] == "1.50"
    assert rows[1] == {"x": None, "n": 10**5000 - 1}


@pytest.mark.parametrize(
    ("number", "kind"),
    [
        ("1.5", "int"),
        ("1e400", "int"),
        ("1e-400", "int"),
        ("1e-99999999999999999999", "int"),
        ("1.0", "date"),
    ],
)
def test_a_number_that_is_not_of_its_type_is_skipped(number: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(f'{{"x": {number}, "y": 1}}\n{{"x": null}}\n')
    with pellucid.open(":memory:") as db:
        # With the second type, all numbers are read from their text.
        report = pellucid.import_from(tmp_path / "a.jsonl", db, types={"x": kind, "y": "int"})
        assert [row.to_dict() for row in db.values()] == [{"x": None}]
        assert report.skipped[0].reason.startswith("field 'x': ")
        assert f"'{number}'" not in report.skipped[0].reason or kind == "date"


@pytest.mark.parametrize("name", ["a.json", "a.jsonl"])
def test_one_type_for_all_keeps_the_digits_of_all(name: str, tmp_path: Path) -> None:
    text = f'{{"a": {LONG}, "b": [1.10, {{"c": 2}}], "d": "x"}}'
    assert imported(text, tmp_path, name, types="text") == [{"a": LONG, "b": ["1.10", {"c": "2"}], "d": "x"}]


def test_keys_and_rows_that_are_numbers_are_numbers(tmp_path: Path) -> None:
    text = '{"a": {"n": 1.50, "d": "2026-01-31"}, "b": 2.50, "c": [3, 4e0]}'
    choices: dict[str, Any] = {"path": "", "types": {"x": "decimal", "n": "decimal"}, "dates": True}
    (tmp_path / "a.json").write_text(text)
    with pytest.raises(ValueError, match=r"types= names 'x', and no row of a.json has such a field"):
        pellucid.import_from(tmp_path / "a.json", ":memory:", **choices)
    choices["types"] = {"n": "decimal"}
    rows = imported(text, tmp_path, **choices)
    assert repr(rows[0]["n"]) == "Decimal('1.50')"
    assert rows[0]["d"] == datetime.date(2026, 1, 31)
    assert repr(rows[1:]) == "[2.5, [3, 4.0]]"
    lines = '{"n": 1.0, "x": 1.10}\n{"n": 2, "x": 1}\n'
    (tmp_path / "a.jsonl").write_text(lines)
    with pellucid.open(":memory:") as db:
        pellucid.import_from(tmp_path / "a.jsonl", db, key="n", types={"x": "decimal"})
        assert repr(list(db)) == repr([json.loads(line)["n"] for line in lines.splitlines()])


@pytest.mark.parametrize("kind", ["decimal", "json", "float"])
@pytest.mark.parametrize("cell", ["1e400", "-1e400", "1.10", "nan", "2"])
def test_a_csv_is_verified_with_numbers_of_any_size(kind: str, cell: str, tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(f"n,x\n1,{cell}\n")
    refused = {("float", "1e400"), ("float", "-1e400"), ("json", "nan")}
    with pellucid.open(":memory:") as db:
        report = pellucid.import_from(tmp_path / "a.csv", db, types={"x": kind}, verify=True)
        assert report.verified
        assert report.rows == ((kind, cell) not in refused)
