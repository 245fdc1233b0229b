"""Is a CSV read as the program meant it that wrote it?"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import pellucid
import pytest
from csv_imports import imported

CSV = Path(__file__).parents[2] / "fixtures/csv"
# What the caller says of a file, and its rows.
FILES: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "airports.csv": (
        {},
        [
            {"lid": "0E0", "name": "Antrim", "elevation": 1219},
            {"lid": "12E", "name": "Cable", "elevation": 1309},
            {"lid": "7FL6", "name": "Spruce Creek", "elevation": 24},
        ],
    ),
    "pandas.csv": (
        {},
        [{"column_1": 0, "rate": 0.097, "ok": True}, {"column_1": 1, "rate": 0.134, "ok": False}],
    ),
    "r.csv": (
        {"dialect": {"null": "NA"}},
        [{"column_1": 1, "zip": "01234", "n": 1e5}, {"column_1": 2, "zip": "90210"}],
    ),
    "r_table.csv": ({}, [{"column_1": "x", "a": 1, "b": 2}, {"column_1": "y", "a": 3, "b": 4}]),
    "excel.csv": (
        {"dialect": {"decimal": ",", "thousands": "."}},
        [{"Name": "Ann", "Betrag": 1234.5}, {"Name": "Jos\u00e9", "Betrag": 7.25}],
    ),
    "excel_without_mark.csv": ({}, [{"Name": "Jos\u00e9", "n": 1}, {"Name": "Bob", "n": 2}]),
    "trailing.csv": ({}, [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
    "mysql.csv": (
        {"columns": ["id", "text", "n"], "dialect": {"escape": "\\", "null": ["N"]}},
        [{"id": 1, "text": 'say "hi"'}, {"id": 2, "text": "two\nlines", "n": 5}],
    ),
    "report.csv": (
        {"dialect": {"skip": 2, "comment": "#", "thousands": ","}},
        [{"day": "2026-01-31", "count": 1234}, {"day": "2026-02-01", "count": 17}],
    ),
    "single_quotes.csv": ({}, [{"a": "x, y", "b": 1}, {"a": "it's", "b": 2}]),
    "own.csv": (
        {},
        [
            {"zip": "01234", "city": "Bath", "n": 1},
            {"zip": "90210", "city": "York, old", "n": 2, "note": ""},
        ],
    ),
}


@pytest.mark.parametrize("name", FILES)
def test_files_of_other_programs(name: str, db: pellucid.Database) -> None:
    choices, rows = FILES[name]
    report = pellucid.import_from(CSV / name, db, table="t", verify=True, **choices)
    assert (report.format, report.skipped) == ("csv", [])
    assert [row.to_dict() for row in db.table("t").values()] == rows


def test_every_file_is_looked_at() -> None:
    assert {file.name for file in CSV.iterdir()} == FILES.keys()


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,b,a\n1,2,3\n", ["a", "b", "a_2"]),
        ("a,a,a_2\n1,2,3\n", ["a", "a_3", "a_2"]),
        ("a,,b\n1,2,3\n", ["a", "column_2", "b"]),
        (",column_1\n1,2\n", ["column_1_2", "column_1"]),
        ("a,b,\n1,2,\n3,4,5\n", ["a", "b", "column_3"]),
        ("a,b\n1,2,\n3,4,\n", ["a", "b"]),
        ("a,b,\n1,2,\n3,4,\n", ["a", "b"]),
        ("a\n1\n", ["a"]),
        ("a;b,c;d\n1;2,5;3\n", ["a", "b,c", "d"]),
        ("a|b\n1,5|2\n", ["a", "b"]),
        ("a\tb\nx, y\tz, w\n", ["a", "b"]),
        ("\ufeffa,b\n1,2\n", ["a", "b"]),
        ("\n\na,b\n1,2\n", ["a", "b"]),
        ('"a\nb",c\n1,2\n', ["a\nb", "c"]),
        ("a\0b,c\n1,2\n", ["a\0b", "c"]),
        ("a,b\r1,2\r3,4\r", ["a", "b"]),
    ],
)
def test_names_and_delimiters_are_found(text: str, names: list[str], db: pellucid.Database) -> None:
    report = imported(db, text)
    assert (list(report.columns), report.skipped) == (names, [])
    assert report.rows == len(db.table("t"))
    assert sorted(set().union(*(row.to_dict() for row in db.table("t").values()))) == sorted(names)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("a,b\n'x, y',1\n", {"a": "x, y", "b": 1}),
        # Also where another reading has as many cells in each row.
        ("'a, c',b\n'x, y',1\n", {"a, c": "x, y", "b": 1}),
        ("'a','b'\n'x',1\n", {"a": "x", "b": 1}),
        ("'a';'b'\n'it''s';1\n", {"a": "it's", "b": 1}),
        # They may be a part of texts.
        ("a,b\n'x',1\n", {"a": "'x'", "b": 1}),
        ("a,b\n'tis,'twas\n", {"a": "'tis", "b": "'twas"}),
        ("'a','b'\n'x',\"y, z\"\n", {"'a'": "'x'", "'b'": "y, z"}),
    ],
)
def test_single_quotes_are_quotes_if_nothing_else_can_be_meant(
    text: str, row: dict[str, Any], db: pellucid.Database
) -> None:
    assert imported(db, text).skipped == []
    assert db.table("t").to_dicts() == [row]


def test_the_end_of_a_text_of_dos_is_no_row(tmp_path: Path, db: pellucid.Database) -> None:
    for end in ("\n\x1a", "\x1a", "\r\n\x1a"):
        (tmp_path / "a").write_bytes(f"a,b,\n1,x,\n2,y,{end}".encode())
        report = pellucid.import_from(tmp_path / "a", db, table="t", verify=True)
        assert (report.format, report.columns, report.skipped) == ("csv", {"a": "int", "b": "text"}, [])
    assert db.table("t").to_dicts() == [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}] * 3


@pytest.mark.parametrize("name", ["a.csv", "a", "-"])
def test_names_in_brackets_are_no_json(name: str, tmp_path: Path, db: pellucid.Database) -> None:
    text = b"[id],[name]\r\n1,Ann\r\n"
    (tmp_path / name).write_bytes(text)
    source = io.BytesIO(text) if name == "-" else tmp_path / name
    assert pellucid.import_from(source, db, table="t").format == "csv"
    assert db.table("t").to_dicts() == [{"[id]": 1, "[name]": "Ann"}]
    # JSON is JSON, whatever the name.
    for json in (b"[1, 2]\n[3, 4]\n", b'[\n{"a": 1}\n]', b"[null, 1]", b'{"a": 1}\n{"a": 2}\n', b'{"a":\n1}'):
        (tmp_path / "b.csv").write_bytes(json)
        assert pellucid.import_from(tmp_path / "b.csv", db, table="u").format in ("json", "jsonl")


def test_control_characters_are_text_in_a_file_that_is_called_csv(
    tmp_path: Path, db: pellucid.Database
) -> None:
    text = b"a\x01b,c\nx\x02,\x0b\n"
    (tmp_path / "a.csv").write_bytes(text)
    assert pellucid.import_from(tmp_path / "a.csv", db, table="t").format == "csv"
    assert db.table("t").to_dicts() == [{"a\x01b": "x\x02", "c": "\x0b"}]
    (tmp_path / "a.dat").write_bytes(text)
    with pytest.raises(pellucid.SourceError, match="begins with the bytes 61 01 62"):
        pellucid.import_from(tmp_path / "a.dat", db, table="t")


def test_a_blank_line_is_no_row_even_in_one_column(db: pellucid.Database) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([["a"], ["x"], [""], ["y"]])
    assert '\r\n""\r\n' in text.getvalue()
    assert imported(db, text.getvalue() + "\r\n\r\nz\r\n\r\n").skipped == []
    # As with `csv.DictReader`.
    assert db.table("t").to_dicts() == [{"a": "x"}, {"a": ""}, {"a": "y"}, {"a": "z"}]
    assert imported(db, 'b\n1\n\n""\n2\n').rows == 3
    assert db.table("t").to_dicts()[4:] == [{"b": 1}, {}, {"b": 2}]


def test_blanks_behind_a_delimiter_may_be_before_a_quote(db: pellucid.Database) -> None:
    report = imported(db, 'a, "b", c\n1, "x, y", z\n2,"", " w"\n')
    assert (report.columns, report.skipped) == ({"a": "int", "b": "text", "c": "text"}, [])
    assert db.table("t").to_dicts() == [{"a": 1, "b": "x, y", "c": "z"}, {"a": 2, "b": "", "c": " w"}]
    # Without a delimiter in quotes, they may be a part of the text.
    assert imported(db, 'a,d\n1, "x"\n').rows == 1
    assert db.table("t").column("d")[-1] == ' "x"'


def test_the_report_says_which_names_were_made(db: pellucid.Database) -> None:
    assert imported(db, ",a,a\n1,2,3\n").notes == [
        "column 1 has no name; here it is 'column_1'",
        "column 3 has the name 'a' of another one; here it is 'a_2'",
    ]


def test_thousands_are_marked_in_groups_of_three(db: pellucid.Database) -> None:
    dialect = {"thousands": ","}
    assert imported(db, 'a,b\n"1,234",x\n"-1,234,567",x\n', dialect=dialect).columns["a"] == "int"
    assert imported(db, 'a,b\n"1,23",x\n1,x\n', dialect=dialect).columns["a"] == "text"
    # Without the marks, these would be one key.
    imported(db, 'a,b\n"1,234",x\n1234,x\n', dialect=dialect, key="a")
    assert {"1,234", "1234"} <= set(db.table("t"))


def test_a_point_is_no_decimal_comma(db: pellucid.Database) -> None:
    report = imported(db, "a;b\n1,5;1.5\n2;2,5\n", dialect={"decimal": ","})
    assert report.columns == {"a": "float", "b": "text"}


def test_comments_and_blank_lines_keep_the_numbers_of_lines(db: pellucid.Database) -> None:
    text = 'x\n#\na,b\n\n# a "comment\n1,"two\n# lines"\n#,\n2\n3,4\n'
    report = imported(db, text, dialect={"skip": 1, "comment": "#"})
    assert db.table("t").column("b") == ["two\n# lines", "4"]
    assert report.skipped == [("line 9", "it has 1 cell, and the first line has 2")]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"dialect": {"separator": ","}}, "dialect= has no 'separator'; it has delimiter, quote"),
        ({"dialect": {"delimiter": ";;"}}, "delimiter=';;'; it is one character"),
        ({"dialect": {"skip": "1"}}, "skip='1'; it is a number of lines"),
        ({"dialect": {"null": 5}}, "null=5; it is a word"),
        ({"dialect": {"decimal": ",", "thousands": ","}}, "one character for thousands and decimal"),
        ({"columns": ["a"]}, "columns= has 1 names, and the first row of the stream has 2 cells"),
        ({"columns": ["a", "a"]}, "columns= is a list of names that differ"),
    ],
)
def test_a_dialect_that_does_not_exist(choices: dict[str, Any], message: str, db: pellucid.Database) -> None:
    with pytest.raises(ValueError, match=message.replace("[", "\\[")):
        imported(db, "1,2\n", **choices)
    with pytest.raises(ValueError, match="columns= and dialect= are for CSV"):
        pellucid.import_from(io.BytesIO(b'{"a": 1}\n'), db, **choices)
    assert db.tables() == []


@pytest.mark.parametrize("kind", ["int", "float", "decimal"])
@pytest.mark.parametrize("cell", ["1,23", "1.23,5", "1.234,5.6", "?1", "x"])
def test_a_message_has_the_cell_as_it_is_written(cell: str, kind: str) -> None:
    data = f"n;x\n{cell};1\n".encode()
    dialect = {"thousands": ",", "delimiter": ";"} if cell == "1,23" else {"thousands": ".", "decimal": ","}
    db = pellucid.open(":memory:")
    report = pellucid.import_from(io.BytesIO(data), db, dialect=dialect, types={"n": kind})
    assert report.skipped[0].reason == f"field 'n': {cell!r} is not of type {kind}"
