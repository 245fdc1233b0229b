"""Does an import go on after a row that it cannot read or store, and say where that row is?"""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pellucid
import pyarrow
import pytest
from pellucid.transfer.digits import read_int
from pyarrow import parquet


def bad_sqlite(path: Path, encoded: bytes = b"caf\xe9") -> Path:
    connection = sqlite3.connect(path)
    connection.executescript("create table good (t text); create table bad (n int, t text)")
    connection.execute("insert into good values ('\xe9')")
    for number, text in enumerate((b"ok", encoded, "\xe9".encode(), encoded, b"end")):
        connection.execute("insert into bad values (?, cast(? as text))", (number, text))
    connection.commit()
    connection.close()
    return path


def test_texts_of_sqlite_that_are_no_utf_8_are_skipped(tmp_path: Path) -> None:
    db = pellucid.open(":memory:")
    report = pellucid.import_from(bad_sqlite(tmp_path / "a.db"), db)
    assert db.table("good").column("t") == ["\xe9"]
    assert db.table("bad").column("n") == [0, 2, 4]
    reason = "its text b'caf\\xe9' in column 't' is not utf-8, byte 0xe9; encoding= is for such texts"
    assert list(report.skipped) == [("bad row 1", reason), ("bad row 3", reason)]


def test_an_encoding_changes_only_texts_that_are_no_utf_8(tmp_path: Path) -> None:
    db = pellucid.open(":memory:")
    assert pellucid.import_from(bad_sqlite(tmp_path / "a.db"), db, encoding="latin-1").skipped_count == 0
    assert (db.table("good").column("t"), db.table("bad").column("t")) == (
        ["\xe9"],
        ["ok", "caf\xe9", "\xe9", "caf\xe9", "end"],
    )
    db = pellucid.open(":memory:")
    report = pellucid.import_from(bad_sqlite(tmp_path / "b.db", b"\x81"), db, encoding="cp1252")
    assert "is neither utf-8 nor cp1252" in report.skipped[0].reason


def test_a_text_of_a_sqlitedict_that_is_no_utf_8_is_skipped(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("create table unnamed (key TEXT PRIMARY KEY, value BLOB)")
    for key, value in ((b"a", b"1"), (b"\xff", b"2"), (b"c", b"3")):
        connection.execute("insert into unnamed values (cast(? as text), ?)", (key, value))
    connection.commit()
    connection.close()
    db = pellucid.open(":memory:")
    report = pellucid.import_from(tmp_path / "a.db", db, format="sqlitedict")
    assert (list(db.items()), report.skipped_count) == ([("a", b"1"), ("c", b"3")], 1)


def test_long_ints_in_a_column_of_json_are_read(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "a.db")
    connection.execute("create table t (j JSON)")
    connection.execute("insert into t values (?)", [f"[{'7' * 5000}]"])
    connection.commit()
    connection.close()
    db = pellucid.open(":memory:")
    pellucid.import_from(tmp_path / "a.db", db)
    assert db.table("t")[0]["j"][0] == read_int("7" * 5000)


NANO = pyarrow.table({"a": [1, 2, 3], "t": pyarrow.array([1000, 1001, None], pyarrow.timestamp("ns"))})
MAPS = pyarrow.table(
    {"a": [1, 2], "m": pyarrow.array([[("x", 1)], []], pyarrow.map_(pyarrow.string(), pyarrow.int64()))}
)


@pytest.mark.parametrize("choices", [{}, {"key": "a"}, {"types": {"a": "int"}}, {"verify": True}])
def test_a_row_of_columns_that_cannot_be_stored_is_skipped(choices: Any, tmp_path: Path) -> None:
    parquet.write_table(NANO, tmp_path / "a.parquet")
    db = pellucid.open(":memory:")
    report = pellucid.import_from(tmp_path / "a.parquet", db, table="t", **choices)
    assert db.table("t").column("a") == [1, 3]
    assert [place for place, _ in report.skipped] == ["row 1"]
    assert "has nanoseconds" in report.skipped[0].reason
    with pytest.raises(pellucid.SourceError, match=r"row 1: .* nanoseconds"):
        pellucid.import_from(tmp_path / "a.parquet", db, strict=True, **choices)


def test_a_key_changes_no_value_of_columns(tmp_path: Path) -> None:
    parquet.write_table(MAPS, tmp_path / "a.parquet")
    found = []
    for choices in ({}, {"key": "a"}):
        db = pellucid.open(":memory:")
        pellucid.import_from(tmp_path / "a.parquet", db, **choices)
        found.append([row.to_dict() for row in db.values()])
    assert found[0] == found[1] == [{"a": 1, "m": {"x": 1}}, {"a": 2, "m": {}}]


def test_a_document_of_tinydb_without_a_number_is_skipped(tmp_path: Path) -> None:
    documents = {"1": {"n": 1}, "x": {"n": 2}, "7" * 5000: {"n": 3}, "4": {"n": 4}}
    (tmp_path / "a.json").write_text(json.dumps({"_default": documents}))
    db = pellucid.open(":memory:")
    report = pellucid.import_from(tmp_path / "a.json", db, format="tinydb")
    assert (list(db), report.skipped_count) == ([1, 4], 2)
