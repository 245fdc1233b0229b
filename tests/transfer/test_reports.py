"""Are reports and messages short, however much there is to say, and quick to make?"""

from __future__ import annotations

import io
import time
from pathlib import Path

import pellucid
import pytest
from pellucid.transfer.report import ExportReport, ImportReport, listed


@pytest.mark.parametrize("head", ["a", ""])
def test_columns_of_one_name_take_no_square_of_time(head: str) -> None:
    count = 20_000
    data = ",".join([head] * count) + "\n" + ",".join(["1"] * count) + "\n"
    begun = time.monotonic()
    report = pellucid.import_from(io.BytesIO(data.encode()), pellucid.open(":memory:"))
    # Each name that is tried again with each number takes half a minute.
    assert time.monotonic() - begun < 10
    assert (report.rows, len(report.columns)) == (1, count)
    assert list(report.columns)[:2] == (["a", "a_2"] if head else ["column_1", "column_2"])
    assert len(report.notes) == 1_000
    lines = str(report).splitlines()
    assert len(lines) == 12
    assert lines[-1] == f"  and {report.notes_count - 10:,} more notes"
    assert report.notes_count >= count - 1


def test_columns_get_numbers_that_no_other_column_has() -> None:
    data = b"a,a_2,a,a,a_4,A\n1,2,3,4,5,6\n"
    pellucid.import_from(io.BytesIO(data), db := pellucid.open(":memory:"))
    assert db.to_list() == [{"a": 1, "a_2": 2, "a_3": 3, "a_5": 4, "a_4": 5, "A": 6}]


def test_columns_of_sqlite_get_numbers_that_no_other_column_has(tmp_path: Path) -> None:
    db = pellucid.open(":memory:")
    db[0] = {"a": 1, "A_2": 2, "A": 3, "a\0": 4, "A\0": 5, "a_": 6}
    report = pellucid.export_to(db, tmp_path / "a.sqlite")
    pellucid.import_from(tmp_path / "a.sqlite", back := pellucid.open(":memory:"))
    assert list(back.table("default")[0].items()) == [
        ("a", 1), ("A_2", 2), ("A_3", 3), ("a_", 4), ("A__2", 5), ("a__3", 6),
    ]  # fmt: skip
    assert len(report.notes) == 4


def test_a_note_is_there_once() -> None:
    report = ExportReport("a.csv")
    for number in (1, 2, 1, 2):
        report.note(f"note {number}")
    assert (report.notes, report.notes_count) == (["note 1", "note 2"], 2)
    assert str(report).splitlines()[1:] == ["  note 1", "  note 2"]


def test_very_many_tables_are_counted() -> None:
    report = ImportReport("a.sqlite")
    report.tables = {f"t{number}": 1 for number in range(1_000)}
    assert "'t18', 't19' and 980 more" in repr(report)
    assert listed([]) == ""
    assert listed("ab") == "'a', 'b'"
