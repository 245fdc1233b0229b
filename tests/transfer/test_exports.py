"""Does an export write what other programs, and an import, read back?"""

from __future__ import annotations

import csv
import datetime
import decimal
import io
import json
import os
import shelve
import sqlite3
import sys
import uuid
from pathlib import Path
from typing import Any

import pellucid
import pyarrow
import pytest
from pellucid import F
from pyarrow import ipc, parquet

ROWS: dict[str, dict[str, Any]] = {
    "ann": {"n": 1, "score": 1.5, "tags": ["a"], "ok": True, "zip": "01234"},
    "bob": {"n": 2**70, "score": float("nan"), "born": datetime.date(2000, 1, 31), "none": None},
}


@pytest.fixture
def table() -> pellucid.Table[Any]:
    found = pellucid.open(":memory:").table("people")
    found.update(ROWS)
    return found


@pytest.mark.parametrize("with_msgspec", [True, False])
def test_json_lines(
    with_msgspec: bool, tmp_path: Path, table: pellucid.Table[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not with_msgspec:
        monkeypatch.setitem(sys.modules, "msgspec", None)
    report = pellucid.export_to(table, tmp_path / "a.jsonl")
    assert repr(report) == "<ExportReport: 2 rows in a.jsonl (jsonl)>"
    first, second = map(json.loads, (tmp_path / "a.jsonl").read_text().splitlines())
    assert first == ROWS["ann"]
    assert repr(second) == "{'n': 1180591620717411303424, 'score': nan, 'born': '2000-01-31', 'none': None}"
    with pellucid.open(":memory:") as back:
        pellucid.export_to(table, tmp_path / "keyed.jsonl", key="name")
        pellucid.import_from(tmp_path / "keyed.jsonl", back, key="name", dates=True)
        assert repr(back["bob"]) == repr({"name": "bob", **ROWS["bob"]})


def test_types_that_json_lacks_are_written_alike_with_and_without_msgspec(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    db = pellucid.open(":memory:")
    row = {
        "price": decimal.Decimal("1.10"),
        "id": uuid.UUID(int=5),
        "at": datetime.datetime(2000, 1, 31, 12, 0, 0, 5),
        "time": datetime.time(1, 2),
        "for": datetime.timedelta(days=-1, seconds=5, microseconds=7),
        "none": datetime.timedelta(0),
        "bytes": b"\x00\xff",
        "set": {1},
        "tuple": (1, "x"),
        "text": "Ren\xe9 \u2028",
    }
    db.extend([row, {"half": "\ud800"}, {"zone": float("-inf")}])
    written = []
    for module in (sys.modules["msgspec"], None):
        monkeypatch.setitem(sys.modules, "msgspec", module)
        target = io.BytesIO()
        pellucid.export_to(db, target, format="jsonl")
        written.append(target.getvalue())
    assert written[0] == written[1]
    assert b'"for":"-P' in written[0] or b'"for":"P' in written[0]


def test_a_row_without_json_is_skipped_with_its_number(tmp_path: Path) -> None:
    db = pellucid.open(":memory:")
    db.extend([{"n": 1}, {"n": 1j}, {"n": 2}])
    report = pellucid.export_to(db, tmp_path / "a.jsonl")
    assert (report.rows, report.skipped_count, report.skipped[0].place) == (2, 1, "row 1")
    assert (tmp_path / "a.jsonl").read_text() == '{"n":1}\n{"n":2}\n'


def test_csv(tmp_path: Path, table: pellucid.Table[Any]) -> None:
    pellucid.export_to(table, tmp_path / "a.csv", key="name")
    with open(tmp_path / "a.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        "name": "ann",
        "n": "1",
        "score": "1.5",
        "tags": '["a"]',
        "ok": "true",
        "zip": "01234",
        "born": "",
        "none": "",
    }
    with pellucid.open(":memory:") as back:
        pellucid.import_from(tmp_path / "a.csv", back, key="name", types={"tags": "json", "born": "date"})
        assert (back["ann"], back["bob"].born) == ({"name": "ann", **ROWS["ann"]}, datetime.date(2000, 1, 31))
        assert (back["bob"].n, back["bob"].score != back["bob"].score) == (2**70, True)
    pellucid.export_to(table, tmp_path / "b.csv", fields=["zip", "n"])
    assert (tmp_path / "b.csv").read_text() == f'zip,n\n"01234",1\n,{2**70}\n'


def test_csv_tells_an_empty_text_from_a_missing_field(tmp_path: Path) -> None:
    rows = [
        {"a": "", "b": "x", "c": 1},
        {"b": "", "c": 2},
        {"a": 'say ""', "b": "", "c": 3},
        {"a": "", "b": ""},
        {"a": 'two\nlines, "",""', "b": "", "c": 4},
        {"a": ',"",', "c": 5},
        {"a": "", "b": "", "c": ""},
        {"a": '"', "b": '""', "c": ""},
    ]
    with pellucid.open(":memory:") as db, pellucid.open(":memory:") as back:
        db.extend(rows)
        pellucid.export_to(db, tmp_path / "a.csv")
        pellucid.import_from(tmp_path / "a.csv", back, table="t")
        # In a column of numbers, an empty text is no value.
        rows[6:] = [{"a": "", "b": ""}, {"a": '"', "b": '""'}]
        assert [row.to_dict() for row in back.table("t").values()] == rows


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_an_empty_cell_in_quotes_is_an_empty_text(tmp_path: Path, delimiter: str, newline: str) -> None:
    lines = ['a,b,c,"d"', '"",,"",', ',"",1,""', '"","","",""', ",,,"]
    text = newline.join(lines).replace(",", delimiter)
    (tmp_path / "a.csv").write_text(text, newline="")
    with pellucid.open(":memory:") as db:
        pellucid.import_from(tmp_path / "a.csv", db, table="t", types={"c": "int", "d": "text"})
        found = [row.to_dict() for row in db.table("t").values()]
    assert found == [{"a": ""}, {"b": "", "c": 1, "d": ""}, {"a": "", "b": "", "d": ""}, {}]


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_columns(suffix: str, tmp_path: Path, table: pellucid.Table[Any]) -> None:
    pellucid.export_to(table.where(F.n == 1), tmp_path / f"a.{suffix}", key="name")
    read = parquet.read_table if suffix == "parquet" else lambda path: ipc.open_file(path).read_all()
    assert read(tmp_path / f"a.{suffix}").to_pylist() == [{"name": "ann", **ROWS["ann"]}]
    stream = io.BytesIO()
    pellucid.export_to(table, stream, format=suffix)
    assert len(pyarrow.BufferReader(stream.getvalue()).read()) > 100


def test_sqlite(tmp_path: Path, table: pellucid.Table[Any]) -> None:
    path = tmp_path / "a.sqlite"
    pellucid.export_to(table, path, key="name")
    pellucid.export_to(table.where(F.n == 1), path, table="few")
    with pytest.raises(FileExistsError, match="has this table already"):
        pellucid.export_to(table, path)
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT name, n, tags, ok FROM people ORDER BY name").fetchall() == [
        ("ann", 1, '["a"]', 1),
        ("bob", str(2**70), None, None),
    ]
    assert connection.execute("SELECT count(*) FROM few").fetchone() == (1,)
    connection.close()
    with pellucid.open(":memory:") as back:
        pellucid.import_from(path, back, types={"tags": "json", "ok": "bool"}, table="people")
        assert back.table("people")["ann"].to_dict() | ROWS["ann"] == back.table("people")["ann"].to_dict()


def test_a_shelf(tmp_path: Path, table: pellucid.Table[Any]) -> None:
    table[5], table["5"], table[b"x"] = 1, 2, 3
    report = pellucid.export_to(table, tmp_path / "a.shelf")
    with shelve.open(str(tmp_path / "a.shelf")) as shelf:
        assert shelf["ann"] == ROWS["ann"]
        assert len(shelf) == 3
    assert report.skipped_count == 2
    with pytest.raises(FileExistsError):
        pellucid.export_to(table, tmp_path / "a.shelf")


@pytest.mark.parametrize("name", ["a.jsonl", "a.csv", "a.sqlite", "a.shelf"])
def test_an_export_that_fails_leaves_no_file(name: str, tmp_path: Path, table: pellucid.Table[Any]) -> None:
    table.update({f"k{number}": {"n": number} for number in range(3000)})

    def fail(_rows: int, _share: float | None) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        pellucid.export_to(table, tmp_path / name, progress=fail)
    assert os.listdir(tmp_path) == []


def test_a_file_that_is_there_is_not_replaced_by_accident(tmp_path: Path, table: pellucid.Table[Any]) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("mine")
    with pytest.raises(FileExistsError, match="pass overwrite=True"):
        pellucid.export_to(table, path)
    assert path.read_text() == "mine"
    pellucid.export_to(table, path, overwrite=True)
    assert len(path.read_text().splitlines()) == 2


@pytest.mark.parametrize(
    ("target", "choices", "message"),
    [
        ("a.xml", {}, "the suffix of 'a.xml' names no format"),
        ("a.csv", {"format": "xml"}, "format= has no 'xml'"),
        ("a.jsonl", {"fields": ["n"]}, "fields= is for CSV"),
        ("a.shelf", {"key": "k"}, "leave out key="),
        (io.BytesIO(), {"format": "sqlite"}, "sqlite needs a path"),
    ],
)
def test_a_choice_that_does_not_exist(
    target: Any, choices: dict[str, Any], message: str, table: pellucid.Table[Any]
) -> None:
    with pytest.raises(ValueError, match=message):
        pellucid.export_to(table, target, **choices)


def test_a_key_does_not_hide_a_field(tmp_path: Path, table: pellucid.Table[Any]) -> None:
    table["cid"] = {"name": "Cid"}
    report = pellucid.export_to(table, tmp_path / "a.jsonl", key="name")
    assert (report.rows, report.skipped[0].place) == (2, "key 'cid'")


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.sqlite", "t.shelf"])
def test_a_missing_folder_is_named(name: str, tmp_path: Path, table: pellucid.Table[Any]) -> None:
    target = tmp_path / "missing" / name
    with pytest.raises(FileNotFoundError, match="no such folder; create it first") as failed:
        pellucid.export_to(table, target)
    assert failed.value.filename == str(target)


@pytest.mark.parametrize("suffix", ["csv", "jsonl", "sqlite", "shelf", "arrow"])
def test_what_is_there_under_the_name_of_an_unfinished_file_is_left_alone(
    suffix: str, tmp_path: Path, table: pellucid.Table[Any]
) -> None:
    # The names that unfinished files had: a link into another file, as anybody may make in a shared folder.
    target = tmp_path / f"out.{suffix}"
    part = tmp_path / f"out.{suffix}.part-{os.getpid()}"
    (tmp_path / "other").write_bytes(b"precious")
    part.symlink_to(tmp_path / "other")
    assert pellucid.export_to(table, target).rows == len(table)
    assert (part.is_symlink(), (tmp_path / "other").read_bytes()) == (True, b"precious")
    part.unlink()
    part.write_bytes(b"of another export")
    pellucid.export_to(table, target, overwrite=True, table="second")
    assert part.read_bytes() == b"of another export"
    rest = {"other", part.name}
    assert {
        file.name for file in tmp_path.iterdir() if not file.name.startswith("out.") or ".part-" in file.name
    } == rest


def test_a_target_that_is_a_link_to_nothing_is_not_followed(
    tmp_path: Path, table: pellucid.Table[Any]
) -> None:
    for suffix in ("csv", "sqlite"):
        (tmp_path / f"out.{suffix}").symlink_to(tmp_path / "nothing")
        with pytest.raises(FileExistsError):
            pellucid.export_to(table, tmp_path / f"out.{suffix}")
        assert not (tmp_path / "nothing").exists()


def test_csv_for_spreadsheets_has_no_formulas(tmp_path: Path) -> None:
    table = pellucid.open(":memory:").table("t")
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "  =1", "plain", "a=b", ""]
    table.extend({"=name": text, "n": decimal.Decimal("-5")} for text in texts)
    pellucid.export_to(table, tmp_path / "plain.csv")
    pellucid.export_to(table, tmp_path / "safe.csv", spreadsheet=True)
    with (tmp_path / "plain.csv").open(newline="") as file:
        plain = list(csv.reader(file))
    with (tmp_path / "safe.csv").open(newline="") as file:
        safe = list(csv.reader(file))
    assert plain == [["=name", "n"], *([text, "-5"] for text in texts)]
    assert safe == [
        ["'=name", "n"],
        *([f"'{text}" if place < 6 else text, "-5"] for place, text in enumerate(texts)),
    ]
    with pytest.raises(ValueError, match="spreadsheet=True is for CSV"):
        pellucid.export_to(table, tmp_path / "a.jsonl", spreadsheet=True)
