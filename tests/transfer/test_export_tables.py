"""Which tables of a database does an export write, and what does it say of the others?"""

from __future__ import annotations

import io
import json
import pathlib
import shelve
import sqlite3
from contextlib import closing
from typing import Any

import pellucid
import pytest

ONE_TABLE = ("jsonl", "json", "csv", "tsv", "parquet", "arrow", "shelf")


def database(**tables: list[Any]) -> pellucid.Database:
    db = pellucid.open(":memory:")
    for name, rows in tables.items():
        db.table(name).extend(rows)
    return db


def in_sqlite(path: pathlib.Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as connection:
        names = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        return {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in names}


@pytest.mark.parametrize("is_snapshot", [False, True])
def test_sqlite_gets_all_tables_of_a_database(is_snapshot: bool, tmp_path: pathlib.Path) -> None:
    db = database(default=[{"n": 1}], pets=[{"name": "Rex"}, {"name": "Tom"}], people=[{"age": 3}])
    rows = db.snapshot() if is_snapshot else db
    report = pellucid.export_to(rows, tmp_path / "a.sqlite", key="id")
    assert in_sqlite(tmp_path / "a.sqlite") == {
        "default": [(0, 1)],
        "people": [(0, 3)],
        "pets": [(0, "Rex"), (1, "Tom")],
    }
    assert report.tables == {"default": 1, "people": 1, "pets": 2}
    assert repr(report) == "<ExportReport: 4 rows of 3 tables in a.sqlite (sqlite)>"
    back = pellucid.open(":memory:")
    assert pellucid.import_from(tmp_path / "a.sqlite", back).tables == report.tables
    assert [back.table(name).to_dicts() for name in db.tables()] == [
        [{"id": key, **row.to_dict()} for key, row in db.table(name).items()] for name in db.tables()
    ]


def test_sqlite_gets_all_tables_or_none(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "a.sqlite"
    pellucid.export_to(database(pets=[{"n": 1}]).table("pets"), path)
    with pytest.raises(FileExistsError, match="it has this table already"):
        pellucid.export_to(database(alone=[{"n": 2}], pets=[{"n": 2}]), path)
    assert in_sqlite(path) == {"pets": [(1,)]}
    pellucid.export_to(database(alone=[{"n": 2}], pets=[{"n": 2}]), path, overwrite=True)
    assert in_sqlite(path) == {"alone": [(2,)], "pets": [(2,)]}


def test_tables_with_one_name_in_sqlite_are_refused(tmp_path: pathlib.Path) -> None:
    db = database(Pets=[{"n": 1}], pets=[{"n": 2}])
    for overwrite in (False, True):
        with pytest.raises(ValueError, match="takes the names 'Pets' and 'pets' for the same; choose one"):
            pellucid.export_to(db, tmp_path / "a.sqlite", overwrite=overwrite)
    assert not (tmp_path / "a.sqlite").exists()


def test_the_report_names_the_table_of_each_row_and_note(tmp_path: pathlib.Path) -> None:
    db = database(a=[{"id": 1, "Id": 2}], b=[{"n": "\ud800"}, {"n": 1}])
    report = pellucid.export_to(db, tmp_path / "a.sqlite")
    assert [place for place, _ in report.skipped] == ["b row 0"]
    assert report.notes[0].startswith("table 'a': the field 'Id' is in the column 'Id_2'")


@pytest.mark.parametrize("suffix", ONE_TABLE)
def test_several_tables_with_rows_need_a_choice(suffix: str, tmp_path: pathlib.Path) -> None:
    db = database(default=[{"n": 1}], pets=[{"n": 2}], empty=[])
    path = tmp_path / f"a.{suffix}"
    for rows in (db, db.snapshot()):
        with pytest.raises(
            ValueError, match=r"several tables .* choose with table= among 'default', 'pets'$"
        ):
            pellucid.export_to(rows, path)
    assert list(tmp_path.iterdir()) == []
    assert pellucid.export_to(db, path, table="pets").tables == {"pets": 1}
    if suffix == "shelf":
        with shelve.open(str(path)) as shelf:
            assert dict(shelf) == {"0": {"n": 2}}
        return
    back = pellucid.open(":memory:")
    pellucid.import_from(path, back)
    assert back.to_dicts() == [{"n": 2}]


@pytest.mark.parametrize("name", ["default", "pets"])
def test_the_only_table_with_rows_is_written(name: str) -> None:
    db = database(**{name: [{"n": 1}]})
    db["x"] = None
    del db["x"]
    report = pellucid.export_to(db, file := io.BytesIO(), format="json", where="n > 0")
    assert json.loads(file.getvalue()) == [{"n": 1}]
    assert report.tables == {name: 1}


@pytest.mark.parametrize("suffix", ["json", "sqlite"])
def test_a_database_without_rows_is_written_as_an_empty_table(suffix: str, tmp_path: pathlib.Path) -> None:
    report = pellucid.export_to(pellucid.open(":memory:"), tmp_path / f"a.{suffix}")
    assert report.tables == {"default": 0}


def test_a_table_that_is_not_there_is_refused(tmp_path: pathlib.Path) -> None:
    db = database(pets=[{"n": 1}])
    for suffix in ("sqlite", "json"):
        with pytest.raises(ValueError, match="has no table 'pet'; it has 'pets'"):
            pellucid.export_to(db, tmp_path / f"a.{suffix}", table="pet")


@pytest.mark.parametrize("choice", [{"where": "n > 1"}, {"select": ["n"]}])
def test_conditions_and_fields_are_for_one_table(choice: dict[str, Any], tmp_path: pathlib.Path) -> None:
    db = database(a=[{"n": 1}], b=[{"n": 2}], empty=[])
    with pytest.raises(ValueError, match="where= and select= are for one; choose with table= among 'a', 'b'"):
        pellucid.export_to(db, tmp_path / "a.sqlite", **choice)
    assert pellucid.export_to(db, tmp_path / "a.sqlite", table="b", **choice).tables == {"b": 1}


def test_all_tables_are_of_one_state_and_counted_together(tmp_path: pathlib.Path) -> None:
    db = database(a=[{"n": 1}] * 250, b=[{"n": 2}] * 250)
    seen: list[tuple[int, float | None]] = []

    def progress(rows: int, share: float | None) -> None:
        seen.append((rows, share))
        if len(seen) == 1:
            db.table("b").append({"late": 1})

    report = pellucid.export_to(db, tmp_path / "a.sqlite", progress=progress)
    assert report.tables == {"a": 250, "b": 250}
    assert seen[-1] == (500, 1.0)
    assert seen == sorted(seen)


def test_a_database_is_no_target() -> None:
    with pytest.raises(ValueError, match=r"'a.pel' is the name of a database; pellucid.copy\(\) copies"):
        pellucid.export_to(database(a=[{"n": 1}]), "a.pel")
