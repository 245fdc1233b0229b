"""Does a transfer go on after a row that it cannot read or write, and say where that row is?"""

from __future__ import annotations

import io
import shelve
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid.transfer.digits import write_int
from pyarrow import parquet

HALF = "cut \ud83d"


def table_of(*rows: Any) -> pellucid.Table[Any]:
    table = pellucid.open(":memory:").table("t")
    table.extend(rows)
    return table


def exported(*rows: Any, **choices: Any) -> tuple[list[str], str, list[tuple[str, str]]]:
    """The lines of JSON that rows become, their report, and the rows that were skipped."""
    target = io.BytesIO()
    report = pellucid.export_to(table_of(*rows), target, **{"format": "jsonl", **choices})
    return target.getvalue().decode("utf-8").splitlines(), str(report), list(report.skipped)


@pytest.fixture(params=[True, False], ids=["msgspec", "json"])
def _with_and_without_msgspec(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if not request.param:
        monkeypatch.setitem(sys.modules, "msgspec", None)


@pytest.mark.usefixtures("_with_and_without_msgspec")
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ({1: "a", "1": "b"}, "a dict has '1' and another key that is this name in JSON"),
        ({"x": [{None: 1, "null": 2}]}, "a dict has 'null' and another key that is this name in JSON"),
        ({"x": ({True: 1, "true": 2},)}, "a dict has 'true' and another key that is this name in JSON"),
        ({b"x": 1}, "a dict has the key b'x', and names in JSON are texts"),
        ({(1, 2): 1}, "a dict has the key (1, 2), and names in JSON are texts"),
        (
            {"s": "\ud83d\ude00"},
            "a text has both halves of a surrogate pair, which JSON joins to one character",
        ),
        ({"n": 1j}, "a complex number has no JSON"),
    ],
)
def test_json_leaves_out_what_it_would_change(row: Any, reason: str) -> None:
    lines, _, skipped = exported({"n": 1}, row, {"n": 2})
    assert (lines, skipped) == (['{"n":1}', '{"n":2}'], [("row 1", reason)])


@pytest.mark.usefixtures("_with_and_without_msgspec")
@pytest.mark.parametrize(
    ("row", "line"),
    [
        ({1: "a", None: [{1.5: True}]}, '{"1":"a","null":[{"1.5":true}]}'),
        ({"n": [10**5000, -(7**9000)]}, f'{{"n":[1{"0" * 5000},{write_int(-(7**9000))}]}}'),
        ({"s": f"{HALF} Ren\xe9"}, '{"s":"cut \\ud83d Ren\xe9"}'),
        (({"a": {"b": 1}}, [1]), '[{"a":{"b":1}},[1]]'),
    ],
)
def test_json_has_a_form_for_unusual_values(row: Any, line: str) -> None:
    assert exported({"n": 1}, row)[0] == ['{"n":1}', line]


def test_a_report_says_that_keys_became_names() -> None:
    assert "keys of dicts that are no strings" in exported({1: 2})[1]
    assert "keys of dicts" not in exported({"1": 2})[1]


@pytest.mark.parametrize("digits", [1, 400, 513, 4_300, 4_301, 5_000, 70_001])
def test_ints_of_any_size_are_written_and_read(digits: int, tmp_path: Path) -> None:
    limit = sys.get_int_max_str_digits()
    number = int("7" * 300) ** (digits // 299 + 1) % 10**digits
    rows = [{"n": number}, {"n": -number, "deep": [{"m": number}]}]
    for suffix in ("jsonl", "json"):
        path = tmp_path / f"a.{suffix}"
        assert pellucid.export_to(table_of(*rows), path).skipped_count == 0
        back = pellucid.open(":memory:")
        assert pellucid.import_from(path, back, table="t").rows == 2
        assert back.table("t").where().to_dicts() == rows
    pellucid.export_to(table_of({"n": number, "deep": [number]}), tmp_path / "a.sqlite", table="t")
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        ((cell, deep),) = connection.execute("SELECT n, deep FROM t").fetchall()
    connection.close()
    assert (str(cell) if digits < 18 else cell, deep) == (write_int(number), f"[{write_int(number)}]")
    assert sys.get_int_max_str_digits() == limit


def sqlite_of(rows: list[Any], path: Path, **choices: Any) -> tuple[Any, list[Any], list[str]]:
    report = pellucid.export_to(table_of(*rows), path, table="t", **choices)
    connection = sqlite3.connect(path)
    found = connection.execute("SELECT * FROM t")
    names = [column[0] for column in found.description]
    cells = found.fetchall()
    connection.close()
    return report, cells, names


def test_sqlite_leaves_out_rows_that_it_cannot_hold(tmp_path: Path) -> None:
    rows = [{"a": 1}, {"a": HALF}, {1: 2}, {"a": {1: 1, "1": 2}}, {"a": 1j}, {"a": "\x00", "b": b"\xff"}]
    report, cells, names = sqlite_of(rows, tmp_path / "a.sqlite")
    assert (cells, names) == ([(1, None), ("\x00", b"\xff")], ["a", "b"])
    assert [row for row, _ in report.skipped] == ["row 1", "row 2", "row 3", "row 4"]
    assert (
        report.skipped[0].reason
        == "its field 'a' has half of a surrogate pair, '\\ud83d', which SQLite refuses"
    )
    assert report.skipped[1].reason == "it has the field 1, and columns have names"


def test_sqlite_has_another_column_for_a_name_that_it_cannot_have(tmp_path: Path) -> None:
    rows = [{"id": 1, "Id": 2, "ID": 3, "Id_2": 4}, {"x\0y": 5, "": 6, "\ud800": 7, "\xc9": 8, "\xe9": 9}]
    report, cells, names = sqlite_of(rows, tmp_path / "a.sqlite")
    assert names == ["id", "Id_2", "ID_3", "Id_2_2", "x_y", "", "_", "\xc9", "\xe9"]
    assert cells == [(1, 2, 3, 4, *[None] * 5), (*[None] * 4, 5, 6, 7, 8, 9)]
    assert [note.split(": ")[0] for note in report.notes] == [
        "the field 'Id' is in the column 'Id_2'",
        "the field 'ID' is in the column 'ID_3'",
        "the field 'Id_2' is in the column 'Id_2_2'",
        "the field 'x\\x00y' is in the column 'x_y'",
        "the field '\\ud800' is in the column '_'",
    ]


def test_sqlite_has_no_more_columns_than_it_may_have(tmp_path: Path) -> None:
    wide = {f"c{number}": number for number in range(1_999)}
    rows = [{"a": 1}, wide, {"a": 2}, {**wide, "b": 1}]
    report, cells, names = sqlite_of([rows[1], rows[0], rows[3], rows[2]], tmp_path / "a.sqlite")
    assert (len(names), len(cells)) == (2_000, 3)
    assert list(report.skipped) == [
        (
            "row 2",
            "with its field 'b' the table would have more than the 2,000 columns that one of SQLite may have",
        )
    ]


@pytest.mark.parametrize("suffix", ["csv", "tsv"])
def test_csv_leaves_out_rows_without_names(suffix: str) -> None:
    lines, _, skipped = exported({"a": 1}, {1: 2, "b": 3}, {"a": {b"x": 1}}, {"a": 2}, format=suffix)
    delimiter = "," if suffix == "csv" else "\t"
    assert lines == [f"a{delimiter}b", f"1{delimiter}", f"2{delimiter}"]
    assert skipped == [
        ("row 1", "it has the field 1, and columns have names"),
        ("row 2", "a dict has the key b'x', and names in JSON are texts"),
    ]


@pytest.mark.parametrize("name", ["a\0b", "sqlite_x", "\ud800"])
def test_a_name_that_no_table_of_sqlite_has_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no table of SQLite can have the name"):
        pellucid.export_to(table_of({"a": 1}), tmp_path / "a.sqlite", table=name)
    assert list(tmp_path.iterdir()) == []


def test_a_table_of_sqlite_is_there_whatever_the_case_of_its_name(tmp_path: Path) -> None:
    pellucid.export_to(table_of({"a": 1}), tmp_path / "a.sqlite", table="People")
    with pytest.raises(FileExistsError, match="has this table already"):
        pellucid.export_to(table_of({"a": 1}), tmp_path / "a.sqlite", table="people")


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_columns_leave_out_rows_that_cannot_be_columns(suffix: str, tmp_path: Path) -> None:
    wide = {f"c{number}": number for number in range(1_020)}
    more = {f"d{number}": number for number in range(1_020)}
    table = table_of({"a": 1}, {1: 2}, {"a": 2, "x\0": 1}, wide, more, {**wide, **more}, {"a": 3})
    report = pellucid.export_to(table, tmp_path / f"a.{suffix}", key="id")
    assert (report.rows, [row for row, _ in report.skipped]) == (3, ["row 1", "row 2", "row 4", "row 5"])
    assert [reason[:40] for _, reason in report.skipped] == [
        "it has keys that are no names",
        'a field is called "x\\0", and no column o',
        "with its fields the rows have more than ",
        "it has fields beyond the 1,024 columns t",
    ]
    back = pellucid.open(":memory:")
    pellucid.import_from(tmp_path / f"a.{suffix}", back, key="id")
    assert [(key, row["a"]) for key, row in back.items()] == [(0, 1), (3, None), (6, 3)]


def test_parquet_has_json_for_dicts_without_fields(tmp_path: Path) -> None:
    rows = [{"n": 1, "e": {}}, {"l": [{}, {}], "s": {"t": {}, "u": 1}}, {"n": 2, "e": None}]
    report = pellucid.export_to(table_of(*rows), tmp_path / "a.parquet")
    assert report.rows == 3
    assert [note.split(":")[0] for note in report.notes] == [
        "column 'e' is JSON in a text",
        "column 'l' is JSON in a text",
        "column 's' is JSON in a text",
    ]
    assert parquet.read_table(tmp_path / "a.parquet").to_pylist() == [
        {"n": 1, "e": "{}", "l": None, "s": None},
        {"n": None, "e": None, "l": "[{},{}]", "s": '{"t":{},"u":1}'},
        {"n": 2, "e": None, "l": None, "s": None},
    ]
    pellucid.export_to(table_of(*rows), tmp_path / "a.arrow")
    back = pellucid.open(":memory:")
    pellucid.import_from(tmp_path / "a.arrow", back, table="t")
    assert back.table("t")[1].to_dict() == {"n": None, "e": None, "l": [{}, {}], "s": {"t": {}, "u": 1}}


def test_a_report_notes_columns_that_became_text(tmp_path: Path) -> None:
    report = pellucid.export_to(table_of({"name": "x"}, {"name": 7}), tmp_path / "a.parquet")
    assert 'column "name" of table "t" is text' in str(report)
    assert 'row 0 has "x", and row 1 has 7' in str(report)


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
@pytest.mark.parametrize("halves", [[HALF], {"x": [HALF]}])
def test_a_report_notes_halves_of_surrogate_pairs(suffix: str, halves: Any, tmp_path: Path) -> None:
    whole = [{"a": ["kept \ufffd"]}, {"a": ["x"]}] if halves == [HALF] else [{"a": {"x": ["\ufffd"]}}] * 2
    report = pellucid.export_to(table_of(*whole), tmp_path / f"whole.{suffix}")
    assert report.notes == []
    report = pellucid.export_to(
        table_of(*whole, {"a": halves}, *whole, {"a": halves}), tmp_path / f"a.{suffix}"
    )
    assert report.notes == ["row 2 and 1 more: half of a surrogate pair is written as U+FFFD"]
    assert report.rows == 6


def test_a_shelf_leaves_out_what_cannot_be_pickled(tmp_path: Path) -> None:
    table = pellucid.open(":memory:").table("t")
    table.update({"a": 1, "\ud800": 2, "b": ({"x": 1},)})
    report = pellucid.export_to(table, tmp_path / "a.shelf")
    with shelve.open(str(tmp_path / "a.shelf")) as shelf:
        assert dict(shelf) == {"a": 1, "b": ({"x": 1},)}
    assert [place for place, _ in report.skipped] == ["key '\\ud800'"]


@pytest.mark.parametrize("name", ["a.csv", "a.jsonl", "a.parquet"])
def test_no_error_names_the_unfinished_file(name: str, tmp_path: Path) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "mine").write_text("here")
    with pytest.raises(OSError, match=name) as failed:
        pellucid.export_to(table_of({"a": 1}), tmp_path / name, overwrite=True)
    assert ".part-" not in str(failed.value)
    assert [path.name for path in tmp_path.iterdir()] == [name]
