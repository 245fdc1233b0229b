"""Does a column of CSV get one type, with which no text changes?"""

from __future__ import annotations

import datetime
import io
import json
from pathlib import Path
from typing import Any

import pellucid
import pytest
from csv_imports import imported
from hypothesis import given
from hypothesis import strategies as st
from pellucid.transfer.sources import csv_rows, csv_types

# The cells of a column, their type, and the values or what the report says of the cell that makes text of it.
COLUMNS: dict[str, tuple[list[str], str, Any]] = {
    "ints": (["1", "-2", "0", "+3", " 4 "], "int", [1, -2, 0, 3, 4]),
    "floats": ([".097", "5.", "1e-3", "-0.0", "7"], "float", [0.097, 5.0, 0.001, -0.0, 7.0]),
    "R's exponents": (["1e+05", "2"], "float", [1e5, 2.0]),
    "bools": (["True", "FALSE", "false"], "bool", [True, False, False]),
    "long ints": (["1" * 5000, "2"], "int", [int("1" * 4000) * 10**1000 + int("1" * 1000), 2]),
    "words of floats": (["1.5", "nan", "-inf", "inf"], "float", [1.5, None, float("-inf"), float("inf")]),
    "a zero first": (["90210", "01234"], "text", "'01234' of line 3 begins with a zero"),
    "a zero behind a sign": (["-07", "1"], "text", "'-07' of line 2 begins with a zero"),
    "a word": (["1", "2", "n/a"], "text", "'n/a' of line 4 is no number"),
    "a number in words": (["x", "y", "9"], "text", "'9' of line 4 is a number, and others are not"),
    "a bool among ints": (["1", "true"], "text", "'true' of line 3 is no number"),
    "too large": (["12e-1", "1.5", "12e4567"], "text", "'12e4567' of line 4 does not fit into a float"),
    "too large with a point": (["1.5", "1.2e4567"], "text", "'1.2e4567' of line 3 does not fit into a float"),
    "too small": (["1.5", "1e-400"], "text", "'1e-400' of line 3 does not fit into a float"),
    "too long": (["0.5", "12345678901234567"], "text", "'12345678901234567' of line 3 has more digits"),
    "codes": (["7e10", "12"], "text", "'7e10' of line 2 looks like a code"),
    "exponents beside points": (["7e10", "1.5"], "float", [7e10, 1.5]),
    "words beside ints": (["1", "nan"], "text", "'nan' of line 3 is no int"),
    "words alone": (["nan", "inf"], "text", None),
    "underscores": (["1_000", "2"], "text", "'2' of line 3 is a number, and others are not"),
    "digits of other scripts": (["\u0663", "\u0664"], "text", None),
    "other words of floats": (["1.5", "Infinity"], "text", "'Infinity' of line 3 is no number"),
    "dates": (["2026-01-31", "2026-02-01"], "text", None),
}


@pytest.mark.parametrize("case", COLUMNS)
def test_a_column_has_one_type(case: str, db: pellucid.Database) -> None:
    cells, kind, expected = COLUMNS[case]
    report = imported(db, "a,b\n" + "".join(f"{cell},x\n" for cell in cells))
    values = db.table("t").column("a")
    assert report.columns == {"a": kind, "b": "text"}
    if kind == "text":
        assert values == cells
        assert (expected is None) == (report.notes == [])
        assert expected is None or f"column 'a' is text: {expected}" in str(report)
    else:
        assert [None if value != value else value for value in values] == expected
        assert {type(value).__name__ for value in values} == {kind}


@pytest.mark.parametrize("case", COLUMNS)
def test_the_order_of_cells_does_not_matter(case: str, db: pellucid.Database) -> None:
    cells, kind, _ = COLUMNS[case]
    for ordered in (cells[::-1], [*cells, *[""] * 3, *cells], [cell for cell in cells for _ in range(2)]):
        assert imported(db, "b,a\n" + "".join(f"x,{cell}\n" for cell in ordered)).columns["a"] == kind


@pytest.mark.parametrize(
    ("cells", "keys"),
    [
        (["1.1", "1.10"], ["1.1", "1.10"]),
        (["1", "+1"], ["+1", "1"]),
        (["1", "1.0"], ["1", "1.0"]),
        (["true", "True"], ["True", "true"]),
        (["1.5", "nan"], ["1.5", "nan"]),
        (["5", " 5"], [" 5", "5"]),
        (["10", "9"], [9, 10]),
        (["1.5", "0.25"], [0.25, 1.5]),
    ],
)
def test_two_texts_never_become_one_key(cells: list[str], keys: list[Any], db: pellucid.Database) -> None:
    report = imported(db, "n,id\n" + "".join(f"1,{cell}\n" for cell in cells), key="id")
    assert (list(db.table("t")), report.replaced) == (keys, 0)


def test_a_type_that_changes_in_the_last_row_is_found_in_the_first_pass(db: pellucid.Database) -> None:
    rows = csv_rows.BLOCK_SIZE // 2
    report = imported(db, "a,b\n" + "1,2\n" * rows + "1,x\n")
    assert report.columns == {"a": "int", "b": "text"}
    assert set(db.table("t").column("b")) == {"2", "x"}
    assert report.notes == [f"column 'b' is text: 'x' of line {rows + 2} is no number"]


def test_a_number_in_a_later_block_of_words_is_reported(
    db: pellucid.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "BLOCK_SIZE", 10)
    report = imported(db, "a,b\n" + "x,y\n" * 20 + "9,y\n")
    assert report.notes == ["column 'a' is text: '9' of line 22 is a number, and others are not"]


def test_dates_are_a_type_on_request(db: pellucid.Database) -> None:
    text = "d,t,m\n2026-01-31,2026-01-31T12:30:00Z,2026-01-31\n2026-02-01,2026-02-01 10:00,x\n"
    report = imported(db, text, dates=True)
    assert report.columns == {"d": "date", "t": "datetime", "m": "text"}
    assert db.table("t").column("d") == [datetime.date(2026, 1, 31), datetime.date(2026, 2, 1)]
    assert db.table("t").column("t")[1] == datetime.datetime(2026, 2, 1, 10, 0)
    assert "column 'm' is text: 'x' of line 3 is no date" in str(report)


def test_quotes_count_in_a_file_that_quotes_only_some_cells(db: pellucid.Database) -> None:
    report = imported(db, 'zip,n,s,e\n"12345",1,x,1\n"23456",2,"",""\n')
    assert report.columns == {"zip": "text", "n": "int", "s": "text", "e": "int"}
    assert db.table("t").to_list()[1] == {"zip": "23456", "n": 2, "s": ""}
    assert report.notes == ["column 'e' has ints, and empty quotes, as in line 3, no value"]
    report = imported(db, 'zip,n\n12345,1\n"23456",2\n')
    assert report.notes == ["column 'zip' is text: '23456' of line 3 is in quotes"]


@pytest.mark.parametrize("text", ['"zip","city"\n"12345","Bath"\n', 'zip,city\n"12345","Bath"\n'])
def test_quotes_do_not_count_where_all_cells_have_them(text: str, db: pellucid.Database) -> None:
    assert imported(db, text).columns == {"zip": "int", "city": "text"}


def test_types_of_columns_that_the_caller_names(db: pellucid.Database) -> None:
    text = "zip,n,f,d\n01234,1_0,1.5,2026-01-31\n90210,7,12e4567,2026-01-31\n1,8,2,x\n2,9,3,2026-02-01\n"
    types = {"zip": "int", "n": "int", "f": "float", "d": "date"}
    report = imported(db, text, types=types)
    assert report.columns == types
    assert db.table("t").to_list() == [{"zip": 2, "n": 9, "f": 3.0, "d": datetime.date(2026, 2, 1)}]
    assert [place for place, _ in report.skipped] == ["line 2", "line 3", "line 4"]
    assert report.skipped[0].reason == "field 'n': '1_0' is not of type int"
    assert imported(db, text, types="text").columns == dict.fromkeys(types, "text")
    assert db.table("t").to_list()[1] == dict(zip(types, ["01234", "1_0", "1.5", "2026-01-31"], strict=True))


def test_types_of_fields_and_paths_in_json(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"u": {"n": "5", "x": 1}, "a.b": "7", "l": [1, {"z": null}]}\n{"u": 3, "a": {"b": "8"}}\n'
    )
    pellucid.import_from(path, db, table="t", types={"u.n": "int", "a.b": "int"})
    first, second = db.table("t").to_list()
    assert (first["u"], first["a.b"], second) == ({"n": 5, "x": 1}, 7, {"u": 3, "a": {"b": 8}})
    pellucid.import_from(path, db, table="all", types="text")
    assert db.table("all").to_list()[0] == {
        "u": {"n": "5", "x": "1"},
        "a.b": "7",
        "l": ["1", {"z": None}],
    }


def test_a_stream_is_read_twice(db: pellucid.Database) -> None:
    class Slow(io.RawIOBase):
        """A pipe, which gives a few bytes at a time and ends in the middle of a row."""

        data = b"a,b\n1,x\n2,y\n3,z\n4"

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            piece, self.data = self.data[:3], self.data[3:]
            buffer[: len(piece)] = piece
            return len(piece)

    report = pellucid.import_from(Slow(), db, table="t", format="csv")  # type: ignore[arg-type]
    assert (report.rows, db.table("t").column("a")) == (3, [1, 2, 3])
    assert report.skipped == [("line 5", "it has 1 cell, and the first line has 2")]


def test_a_file_that_changes_between_the_passes_is_an_error(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a\n1\n")

    def change(_rows: int, _share: float | None) -> None:
        path.write_text("a\nx\n")

    with pytest.raises(pellucid.SourceError, match="changed while it was read"):
        pellucid.import_from(path, db, table="t", progress=change)
    assert db.tables() == []


NULLS = {
    "a word": (["1", "NA", "3"], {}, "'NA' of line 3 is no number", '{"null": "NA"}'),
    "before the first number": (["-", "-", "2.5"], {}, "'-' of line 2 is no number", '{"null": "-"}'),
    "two words": (["1", "N/A", "null"], {}, "'N/A' of line 3 is no number", '{"null": ["N/A", "null"]}'),
    "another one": (["x", "-", "3"], {"null": "x"}, "'-' of line 3 is no number", '{"null": ["x", "-"]}'),
    "a backslash": (["true", "\\N"], {}, "'\\\\N' of line 3 is no bool", '{"null": "\\\\N"}'),
}


@pytest.mark.parametrize("case", NULLS)
def test_the_report_offers_to_take_a_word_for_no_value(
    case: str, db: pellucid.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "BLOCK_SIZE", 8)
    cells, dialect, why, offer = NULLS[case]
    text = "a,b\n" + "".join(f"{cell},x\n" for cell in cells)
    notes = imported(db, text, dialect=dialect).notes
    assert notes == [f"column 'a' is text: {why}; if it stands for no value, dialect={offer} says so"]
    report = imported(db, text, dialect=json.loads(offer))
    assert (report.notes, report.skipped) == ([], [])
    assert report.columns["a"] != "text"


def test_nothing_is_offered_for_words_among_texts_or_keys(db: pellucid.Database) -> None:
    report = imported(db, "a,b,c\nNA,-,1\nx,-,NA\n,null,\n", key="c")
    assert report.columns == {"a": "text", "b": "text", "c": "text"}
    assert report.notes == ["column 'c' is text: 'NA' of line 3 is no number"]
    assert imported(db, "a,b\n1,x\nNA,x\ny,x\n").notes == ["column 'a' is text: 'y' of line 4 is no number"]


CELLS = [
    *sorted({cell for cells, _, _ in COLUMNS.values() for cell in cells if len(cell) < 100}),
    *("", "-", "+", ".", "e5", "1e", "1.e5", "-0", "0.0", "00.5", "0e0", " ", "\t7", "TRUE", "na\u00efve"),
    *("9007199254740992", "9007199254740993", "4111111111111111", "1" * 25, "2026-02-30", "2026-01-31T10:00"),
    *("0." + "0" * 400 + "1", "9" * 400 + ".0", "1" * 4301, "-" + "1" * 4300),
]


@given(st.lists(st.sampled_from(CELLS), min_size=1), st.booleans(), st.booleans())
def test_cells_that_are_looked_at_together_are_what_each_of_them_is(
    cells: list[str], is_key: bool, dates: bool
) -> None:
    def column() -> csv_types.Column:
        return csv_types.Column(
            "a", is_key=is_key, dates=dates, numbers=csv_types.Numbers(), given_nulls=frozenset()
        )

    together, alone = column(), column()
    for begin in range(0, len(cells), 3):
        some = cells[begin : begin + 3]
        together.take(some, range(begin, begin + len(some)))
    alone.one_by_one(cells, cells, range(len(cells)))
    assert (together.decide(), together.notes()) == (alone.decide(), alone.notes())


def test_rows_are_stored_as_dicts_of_them_would_be(tmp_path: Path) -> None:
    """A file of which most rows are stored without a dict, and some have what needs one."""
    wide = "\u00e9" * 40_000
    with pellucid.open(tmp_path / "a.pel") as db:
        text = f'a,b,c,d,e\n1,2.5,true,x,\n-2,1e300,FALSE,na\u00efve,5\n3,,true,"",6\n4,0.5,,{wide},7\n'
        assert imported(db, text).columns == dict(
            zip("abcde", ("int", "float", "bool", "text", "int"), strict=True)
        )
        rows: list[dict[str, Any]] = [
            {"a": 1, "b": 2.5, "c": True, "d": "x"},
            {"a": -2, "b": 1e300, "c": False, "d": "na\u00efve", "e": 5},
            {"a": 3, "c": True, "d": "", "e": 6},
            {"a": 4, "b": 0.5, "d": wide, "e": 7},
        ]
        db.table("dicts").extend(rows)
        assert [*map(pellucid.dumps, db.table("t").values())] == [*map(pellucid.dumps, rows)]
        assert list(db.table("t")) == [0, 1, 2, 3]
        # More fields than a record of a shape has, and ints of more than 64 bits.
        many = {f"c{number}": 10**30 + number for number in range(5000)}
        imported(db, ",".join(many) + "\n" + ",".join(map(str, many.values())) + "\n")
        assert db.table("t")[4] == many
        assert db.check() == []


def test_a_row_that_a_unique_index_refuses_is_skipped_alone(tmp_path: Path) -> None:
    with pellucid.open(tmp_path / "a.pel") as db:
        db.table("t").create_index("a", "a", unique=True)
        report = imported(db, "a,b\n1,x\n2,y\n1,z\n3,\n")
        assert [place for place, _ in report.skipped] == ["line 4"]
        assert db.table("t").to_list() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}, {"a": 3}]
        assert db.table("t").where(pellucid.F.a == 2).count() == 1


def test_a_last_column_without_a_name_has_values_though_the_caller_names_types(db: pellucid.Database) -> None:
    report = imported(db, "a,b,\n1,2,3\n4,5,\n", types="text")
    assert report.columns == {"a": "text", "b": "text", "column_3": "text"}
    assert db.table("t").to_dicts() == [{"a": "1", "b": "2", "column_3": "3"}, {"a": "4", "b": "5"}]
    assert imported(db, "a,b,\n1,2,\n", types="text").columns == {"a": "text", "b": "text"}
