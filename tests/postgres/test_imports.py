"""Does an import into a server store what an import into a file stores?"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import Any

import pandas
import pellucid
import polars
import pyarrow
import pytest
from pellucid import F


def lines(path: Path, rows: list[str]) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture
def people(tmp_path: Path) -> Path:
    """1,200 people, and a line that is no JSON."""
    rows = [f'{{"n": {n}, "name": "name {n % 1000}", "born": "2000-01-31"}}' for n in range(1200)]
    return lines(tmp_path / "people.jsonl", [*rows, "{"])


def contents(database: Any, name: str) -> list[tuple[Any, bytes]]:
    return [(key, pellucid.dumps(value)) for key, value in database.table(name).items()]


@pytest.mark.parametrize("options", [{}, {"key": "name"}, {"batch": 500}, {"key": "n", "batch": 500}])
def test_the_rows_are_those_of_a_file(url: str, people: Path, options: dict[str, Any]) -> None:
    with pellucid.open(url) as db, pellucid.open(":memory:") as memory:
        reports = [
            pellucid.import_from(people, into, table="people", dates=True, verify=True, **options)
            for into in (db, memory)
        ]
        assert contents(db, "people") == contents(memory, "people")
        assert str(reports[0]) == str(reports[1])
        assert reports[0].skipped_count == 1
        assert reports[0].rows == 1200


def test_a_url_is_a_target(url: str, people: Path) -> None:
    report = pellucid.import_from(people, url)
    assert report.tables == {"default": 1200}
    with pellucid.open(url) as db:
        assert db.count() == 1200


def test_refused_rows_keep_out_no_others(url: str, people: Path) -> None:
    with pellucid.open(url) as db:
        table = db.table("people")
        table.create_index("by_name", F.name, unique=True)
        report = pellucid.import_from(people, db, table="people")
        assert report.rows == 1000
        assert report.skipped_count == 201
        assert sum("unique index" in found.reason for found in report.skipped) == 200
        assert table.count() == 1000
        others = db.table("others")
        others.create_index("by_name", F.name, unique=True)
        with pytest.raises(pellucid.SourceError, match=r"line 1201|unique index"):
            pellucid.import_from(people, db, table="others", strict=True, key="n")
        assert others.count() == 0


def test_a_dry_run_stores_nothing(url: str, people: Path) -> None:
    with pellucid.open(url) as db:
        assert pellucid.import_from(people, db, table="people", dry_run=True).rows == 1200
        assert db.table("people").count() == 0


def test_columns_become_rows(url: str, tmp_path: Path) -> None:
    frame = pandas.DataFrame({"n": [1, 2, 3], "text": ["a", "b", None]})
    rows = [{"n": 1, "text": "a"}, {"n": 2, "text": "b"}, {"n": 3, "text": None}]
    frame.to_parquet(tmp_path / "frame.parquet")
    with pellucid.open(url) as db:
        table = db.table("t")
        for columns in (frame, polars.DataFrame(rows), pyarrow.Table.from_pylist(rows)):
            assert table.extend(columns) == 3
        assert table.to_dicts() == rows * 3
        pellucid.import_from(tmp_path / "frame.parquet", db, table="imported")
        assert db.table("imported").to_dicts() == rows
        assert db.table("copy").extend(table.where(F.n > 1).limit(2)) == 2
        assert list(db.table("copy").values()) == rows[1:]
        with pytest.raises(TypeError, match=r"frame\.collect"):
            table.extend(polars.LazyFrame({"n": [1]}))
        with pellucid.open(":memory:") as memory:
            for mapping in (table, db, memory.table("t"), MappingProxyType({"a": {"n": 1}})):
                with pytest.raises(TypeError, match=r"extend\(other\.values\(\)\)"):
                    table.extend(mapping)


def test_a_server_is_compacted_while_it_is_in_use(url: str) -> None:
    with pellucid.open(url) as db:
        db["a"] = 1
        db.compact(online=True)
        with pytest.raises(ValueError, match="VACUUM FULL"):
            db.compact(online=False)


def test_an_export_has_all_tables_of_a_server(url: str, tmp_path: Path) -> None:
    with pellucid.open(url) as db, pellucid.open(":memory:") as back:
        db.table("people")["Ann"] = {"age": 30}
        db.table("pets").extend([{"name": "Rex"}, {"name": "Tom"}])
        with pytest.raises(ValueError, match="choose with table= among 'people', 'pets'"):
            pellucid.export_to(db, tmp_path / "a.csv")
        with db.snapshot() as snapshot:
            for rows in (db, snapshot):
                report = pellucid.export_to(rows, tmp_path / "a.sqlite", key="id", overwrite=True)
                assert report.tables == {"people": 1, "pets": 2}
        pellucid.import_from(tmp_path / "a.sqlite", back)
        assert back.table("people")["Ann"] == {"id": "Ann", "age": 30}
        assert pellucid.export_to(db, tmp_path / "a.csv", table="pets").rows == 2
