"""Does an export write the rows and fields that were chosen, in the form that was asked for?"""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import F
from pellucid.transfer import compressed
from pyarrow import parquet

ROWS: dict[str, Any] = {
    "ann": {
        "name": "Ann",
        "age": 30,
        "at": {"city": "Bath", "geo": {"lat": 1.5, "lon": 2}},
        "tags": [{"a": 1}],
    },
    "bob": {"name": "Bob", "age": 20, "at": {}},
}
FLAT: list[Any] = [
    {"name": "Ann", "age": 30, "at.city": "Bath", "at.geo.lat": 1.5, "at.geo.lon": 2, "tags": [{"a": 1}]},
    {"name": "Bob", "age": 20, "at": {}},
]


@pytest.fixture
def table() -> pellucid.Table[Any]:
    found = pellucid.open(":memory:").table("people")
    found.update(ROWS)
    return found


def as_json(rows: Any, **choices: Any) -> Any:
    target = io.BytesIO()
    pellucid.export_to(rows, target, format="json", **choices)
    return json.loads(target.getvalue())


@pytest.mark.parametrize(
    "rows", [[], [{"a": 1}], [{"a": 1}, 2, None], [{"n": number} for number in range(250)]]
)
def test_an_array_of_json_is_an_element_in_each_line(rows: list[Any], tmp_path: Path) -> None:
    db = pellucid.open(":memory:")
    db.extend(rows)
    report = pellucid.export_to(db, tmp_path / "a.json")
    text = (tmp_path / "a.json").read_text()
    assert (json.loads(text), report.rows, text.count("\n")) == (rows, len(rows), len(rows) + 2)
    back = pellucid.open(":memory:")
    pellucid.import_from(tmp_path / "a.json", back)
    assert back.where().to_dicts() == rows


def test_an_array_has_no_comma_for_a_row_that_is_left_out() -> None:
    db = pellucid.open(":memory:")
    db.extend([{"n": 1j}, {"n": 1}, {"n": 1j}, *[{"n": number} for number in range(200)], {"n": 1j}])
    assert [row["n"] for row in as_json(db)] == [1, *range(200)]
    only = pellucid.open(":memory:")
    only.extend([{"n": 1j}])
    assert as_json(only) == []


def test_where_and_select_choose(table: pellucid.Table[Any]) -> None:
    assert as_json(table, where="age > 25", select=["name", "at.city"]) == [
        {"name": "Ann", "at.city": "Bath"}
    ]
    assert as_json(table, where=F.age < 25, select={"who": "name", "next": F.age + 1}, key="id") == [
        {"id": "bob", "who": "Bob", "next": 21}
    ]
    assert as_json(table.where(F.age > 25), where="name == 'Bob'") == []
    assert as_json(table, select="age") == [{"age": 30}, {"age": 20}]
    with pytest.raises(pellucid.ParseError):
        as_json(table, where="age >")


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "arrow", "sqlite"])
def test_every_format_has_what_was_selected(suffix: str, tmp_path: Path, table: pellucid.Table[Any]) -> None:
    path = tmp_path / f"a.{suffix}"
    pellucid.export_to(table, path, select={"who": "name", "city": "at.city"}, where="age > 25", key="id")
    back = pellucid.open(":memory:")
    pellucid.import_from(path, back, table="t", key="id")
    found = [(key, row.to_dict()) for key, row in back.table("t").items()]
    assert found == [("ann", {"id": "ann", "who": "Ann", "city": "Bath"})]


@pytest.mark.parametrize("suffix", ["", "-log", "-lock"])
@pytest.mark.parametrize("form", ["csv", "sqlite", "shelve"])
def test_no_export_takes_the_place_of_a_database(path: Path, suffix: str, form: str) -> None:
    with pellucid.open(path) as db:
        db["a"] = {"n": 1}
        db.sync()
        with pytest.raises(ValueError, match="database"):
            pellucid.export_to(db, f"{path}{suffix}", format=form, overwrite=True)
        assert db.check() == []
    assert pellucid.open(path)["a"].n == 1


def test_a_report_notes_fields_that_no_row_has(table: pellucid.Table[Any]) -> None:
    report = pellucid.export_to(
        table, io.BytesIO(), format="jsonl", select=["name", "nmae"], where="agee is none"
    )
    assert report.notes == [
        'no record in "people" has "agee"; did you mean "age"?',
        'no record in "people" has "nmae"; did you mean "name"?',
    ]


def test_keys_are_not_written_beside_rows_that_are_selected_already(table: pellucid.Table[Any]) -> None:
    with pytest.raises(ValueError, match=r"select KEY, as in select\(id=KEY\)"):
        as_json(table.select("name"), key="id")
    with pytest.raises(ValueError, match="is one of the fields that select= chooses"):
        as_json(table, select=["name"], key="name")
    assert as_json(table.select("name")) == [{"name": "Ann"}, {"name": "Bob"}]


def test_flat_rows_have_names_with_dots(tmp_path: Path, table: pellucid.Table[Any]) -> None:
    assert as_json(table, flatten=True) == FLAT
    pellucid.export_to(table, tmp_path / "a.csv", flatten=True, key="id")
    with (tmp_path / "a.csv").open(newline="") as file:
        heads = next(csv.reader(file))
    assert heads == ["id", "name", "age", "at.city", "at.geo.lat", "at.geo.lon", "tags", "at"]
    pellucid.export_to(table, tmp_path / "a.sqlite", flatten=True, where="age > 25")
    connection = sqlite3.connect(tmp_path / "a.sqlite")
    assert connection.execute('SELECT "at.geo.lat" FROM people').fetchall() == [(1.5,)]
    connection.close()
    pellucid.export_to(table, tmp_path / "a.parquet", flatten=True)
    assert parquet.read_table(tmp_path / "a.parquet").to_pylist() == [
        FLAT[0],
        {"name": "Bob", "age": 20, "at.city": None, "at.geo.lat": None, "at.geo.lon": None, "tags": None},
    ]


def test_no_value_is_lost_where_two_names_are_one_when_they_are_flat() -> None:
    db = pellucid.open(":memory:")
    db.extend([{"a": {"b": 1}, "a.b": 2}, {"a": {"b": 3}}, {"a": {1: 2, "b": 3}}])
    report = pellucid.export_to(db, target := io.BytesIO(), format="jsonl", flatten=True)
    assert target.getvalue().splitlines()[:2] == [b'{"a":{"b":1},"a.b":2}', b'{"a.b":3}']
    assert report.notes[0] == "rows that would have 'a.b' twice when they are flat are as they were stored"


@pytest.mark.parametrize("suffix", ["tsv", "csv"])
def test_tabs_and_commas_separate_cells_that_have_both(suffix: str, tmp_path: Path) -> None:
    rows = [
        {"a": "x\ty", "b,c": 1, "d": 'say "no"'},
        {"a": "", "b,c": 2, "d": "1"},
        {"a": "p,q;r|s\nt", "b,c": 3, "d": "2000-01-31"},
    ]
    db = pellucid.open(":memory:")
    db.extend(rows)
    report = pellucid.export_to(db, tmp_path / f"a.{suffix}")
    with (tmp_path / f"a.{suffix}").open(newline="") as file:
        found = list(csv.reader(file, delimiter="\t" if suffix == "tsv" else ","))
    assert (report.format, found) == (
        suffix,
        [["a", "b,c", "d"], *([str(c) for c in r.values()] for r in rows)],
    )
    back = pellucid.open(":memory:")
    pellucid.import_from(tmp_path / f"a.{suffix}", back, table="t")
    assert back.table("t").where().to_dicts() == rows


@pytest.mark.parametrize("suffix", ["jsonl", "json"])
def test_nan_is_null_if_that_is_wanted(suffix: str, tmp_path: Path) -> None:
    db = pellucid.open(":memory:")
    db.extend([{"n": float("nan"), "l": [float("inf"), 1.5]}, {"n": None}])
    pellucid.export_to(db, tmp_path / f"a.{suffix}", nan_as_null=True)
    text = (tmp_path / f"a.{suffix}").read_text()
    assert '{"n":null,"l":[null,1.5]}' in text
    assert "NaN" not in text
    with pytest.raises(ValueError, match="nan_as_null=True is for JSON"):
        pellucid.export_to(db, tmp_path / "a.csv", nan_as_null=True)


@pytest.mark.parametrize(
    "name", ["a.jsonl.gz", "a.json.gz", "a.csv.gz", "a.tsv.gz", "a.jsonl.zst", "a.CSV.ZST"]
)
def test_a_text_is_compressed_as_its_name_says(name: str, tmp_path: Path, table: pellucid.Table[Any]) -> None:
    report = pellucid.export_to(table, tmp_path / name, key="id", select=["name"])
    assert (report.name, report.format) == (name, name.split(".")[1].lower())
    assert compressed.kind_of((tmp_path / name).read_bytes()) == "." + name.split(".")[2].lower()
    back = pellucid.open(":memory:")
    pellucid.import_from(tmp_path / name, back, key="id")
    assert [(key, row["name"]) for key, row in back.items()] == [("ann", "Ann"), ("bob", "Bob")]
    first = (tmp_path / name).read_bytes()
    pellucid.export_to(table, tmp_path / name, key="id", select=["name"], overwrite=True)
    assert (tmp_path / name).read_bytes() == first


def test_a_stream_is_not_compressed_twice(tmp_path: Path, table: pellucid.Table[Any]) -> None:
    with gzip.open(tmp_path / "a.jsonl.gz", "wb") as file:
        pellucid.export_to(table, file, format="jsonl", select=["age"])
    assert gzip.decompress((tmp_path / "a.jsonl.gz").read_bytes()) == b'{"age":30}\n{"age":20}\n'


@pytest.mark.parametrize(
    ("name", "choices", "message"),
    [
        ("a.parquet.gz", {}, "no export writes parquet as .gz"),
        ("a.jsonl.bz2", {}, "no export writes jsonl as .bz2"),
        ("a.sqlite.zst", {}, "no export writes sqlite as .zst"),
        ("a.shelf", {"flatten": True}, "leave out select= and flatten="),
        ("a.shelf", {"select": ["a"]}, "leave out select= and flatten="),
        ("a.csv", {"fields": ["a", "b", "a"]}, "fields= has 'a' twice; leave out one of them"),
        ("a.csv", {"fields": ["a", "b"], "key": "b"}, "key='b' is one of fields="),
        ("a.csv", {"select": ["a", "b", "a"]}, "select= has 'a' twice; leave out one of them"),
    ],
)
def test_a_choice_that_a_format_does_not_have(
    name: str, choices: Any, message: str, tmp_path: Path, table: pellucid.Table[Any]
) -> None:
    with pytest.raises(ValueError, match=message):
        pellucid.export_to(table, tmp_path / name, **choices)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_target_as_it_was(
    tmp_path: Path, table: pellucid.Table[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The compressed bytes of the end come when the file is closed, which must not give the file its name."""
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(b"before")

    def full(*_arguments: Any) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(gzip.GzipFile, "close", full)
    with pytest.raises(OSError, match="No space left") as failed:
        pellucid.export_to(table, path, overwrite=True)
    assert (failed.value.filename, path.read_bytes()) == (str(path), b"before")
    assert os.listdir(tmp_path) == ["a.jsonl.gz"]


def test_a_link_as_target_is_replaced_and_not_followed(tmp_path: Path, table: pellucid.Table[Any]) -> None:
    (tmp_path / "other").write_bytes(b"precious")
    (tmp_path / "a.jsonl").symlink_to(tmp_path / "other")
    with pytest.raises(FileExistsError):
        pellucid.export_to(table, tmp_path / "a.jsonl")
    pellucid.export_to(table, tmp_path / "a.jsonl", overwrite=True)
    assert (tmp_path / "other").read_bytes() == b"precious"
    assert not (tmp_path / "a.jsonl").is_symlink()
