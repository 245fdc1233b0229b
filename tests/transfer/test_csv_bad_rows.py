"""Does one row of CSV that cannot be read keep out itself alone, and does the report say where it is?"""

from __future__ import annotations

import random
import time
from pathlib import Path

import pellucid
import pytest
from csv_imports import imported
from hypothesis import given
from hypothesis import strategies as st
from pellucid.transfer.sources import csv_rows

# A bad row, and why it is one.
BAD: dict[str, tuple[bytes, str]] = {
    "a byte": (b"1,\xff\n", "not utf-8: byte 0xff; pass encoding= if it has another one"),
    "a byte in the second line of a cell": (b'1,"a\n\xc3\xa9\xe9\xff"\n', "not utf-8: byte 0xe9 0xff;"),
    "text behind a quote": (b'1,"a"b\n', "',' expected after '\"'"),
    "a quote with a backslash": (b'1,"a \\" b"\n', "',' expected after '\"'"),
    "too many cells": (b"1,2,3\n", "it has 3 cells, and the first line has 2"),
    "too few cells": (b"1\n", "it has 1 cell, and the first line has 2"),
    "blanks": (b"  \n", "it has 1 cell, and the first line has 2"),
    "a quote that closes in the next row": (b'1,"a\n', "',' expected after '\"'"),
}
# Pieces of which files are made that have broken readers: parts of quotes and line ends, cut characters.
PIECES = [
    b'"',
    b'""',
    b",",
    b"\n",
    b"\r",
    b"\r\n",
    b'"\n"',
    b"a",
    b"1",
    b"1.5",
    b"\xc3",
    b"\xff",
    b"\x00",
    b"\\",
]
PIECES += [b"1,2\n", b'x,"y"\n', b";", b"#", b" ", b"nan", b"true", b"'", "\u2028\u00e9".encode()]


@pytest.mark.parametrize("size", [1, 10, csv_rows.BLOCK_SIZE])
@pytest.mark.parametrize("case", BAD)
def test_a_bad_row_is_skipped(
    case: str, size: int, db: pellucid.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_rows, "BLOCK_SIZE", size)
    row, reason = BAD[case]
    report = imported(db, b'a,b\n7,"x\ny"\n' + row + b'8,"z"\n9,w\n')
    assert db.table("t").to_dicts()[0] == {"a": 7, "b": "x\ny"}
    assert db.table("t").column("a")[-1] == 9
    assert report.skipped[0].place == "line 4"
    assert report.skipped[0].reason.startswith(reason)
    assert (report.rows, report.skipped_count) == (3, 1)
    bad_at_end = imported(db, b"a,b\n7,x\n" + row)
    assert bad_at_end.skipped[0].place == "line 3"
    assert bad_at_end.columns["a"] == "int"
    with pytest.raises(pellucid.SourceError, match="the stream, line 4: "):
        imported(db, b'a,b\n7,"x\ny"\n' + row, strict=True)


def test_a_quote_that_is_never_closed_is_one_row(db: pellucid.Database) -> None:
    report = imported(db, b'a,b\n1,x\n2,"y\n' + b"3,z\n" * 1000)
    assert (report.rows, report.skipped) == (1001, [("line 3", "a quote is not closed")])


def test_a_cell_less_and_a_cell_more_do_not_make_up_for_each_other(db: pellucid.Database) -> None:
    report = imported(db, b"a,b\n1\n1,2,3\n4,5\n")
    assert (db.table("t").to_dicts(), report.skipped_count) == ([{"a": 4, "b": 5}], 2)


def test_many_quotes_that_are_never_closed_take_no_square_of_time(
    db: pellucid.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Each row opens a cell, and what follows the quote that closes it is an error of the next one.
    begun = time.process_time()
    report = imported(db, b"a,b\n" + b'1,"x\n2,y\n' * 50_000)
    assert time.process_time() - begun < 20
    assert report.rows + report.skipped_count >= 50_000
    # Beyond what may be read again, all lines up to the fault are skipped at once.
    monkeypatch.setattr(csv_rows, "AGAIN", 0)
    report = imported(db, b'a,b\n1,x\n2,"y\n3,z\n4,w\n')
    assert (report.rows, report.skipped) == (1, [("line 3 to 5", "a quote is not closed")])


@pytest.mark.parametrize(
    ("encoding", "at", "bad"),
    [
        ("utf-16", "@".encode("utf-16-le"), b"\x00\xdc"),
        ("utf-16-be", "@".encode("utf-16-be"), b"\xdc\x00"),
        ("utf-32", "@".encode("utf-32-le"), b"\xff\xff\xff\xff"),
        ("cp1252", b"@", b"\x81"),
        ("ascii", b"@", b"\xff"),
    ],
)
def test_bytes_that_another_encoding_does_not_have(
    encoding: str, at: bytes, bad: bytes, db: pellucid.Database
) -> None:
    data = "name,n\nAnn,1\nB@b,2\nCid,3\n".encode(encoding).replace(at, bad)
    report = imported(db, data, encoding=encoding)
    assert db.table("t").column("n") == [1, 3]
    assert report.skipped[0].place == "line 3"
    assert report.skipped[0].reason.startswith(f"not {encoding}: byte 0x")


def test_numbers_of_thousands_of_digits(tmp_path: Path, db: pellucid.Database) -> None:
    rows = [{"n": 10**5000, "f": 1.5}, {"n": -7, "f": 2.0}]
    db.extend(rows)
    assert pellucid.export_to(db, tmp_path / "a.csv").skipped == []
    report = pellucid.import_from(tmp_path / "a.csv", db, table="t", verify=True)
    assert (report.columns, db.table("t").column("n")) == ({"n": "int", "f": "float"}, [10**5000, -7])
    report = imported(db, b"a,b\n1.5,x\n" + b"1" * 5000 + b",x\n")
    assert (report.columns["a"], report.rows) == ("text", 2)
    report = imported(db, b"a,b\n1.5,x\n" + b"1" * 5000 + b",x\n", types={"a": "float"})
    assert (report.rows, report.skipped[0].place) == (1, "line 3")


@pytest.mark.parametrize("takes_nul", [True, False])
def test_nul_is_a_character(takes_nul: bool, db: pellucid.Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_rows, "TAKES_NUL", takes_nul and csv_rows.TAKES_NUL)
    report = imported(db, b'a\0b,c\n1,"x\0\ny"\n2,"z"x\n3,\0\n')
    assert db.table("t").to_dicts() == [{"a\0b": 1, "c": "x\0\ny"}, {"a\0b": 3, "c": "\0"}]
    assert [place for place, _ in report.skipped] == ["line 4"]


def test_bad_bytes_in_a_name_are_replaced_and_reported(db: pellucid.Database) -> None:
    report = imported(db, b"a\xff,b\n1,2\n")
    assert db.table("t").to_dicts() == [{"a\ufffd": 1, "b": 2}]
    assert report.notes == [
        "column 1 has the byte 0xff in its name, which is not utf-8; here it is 'a\ufffd'"
    ]


@given(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=40).map(b"".join), st.sampled_from([1, 7, 1 << 18])
)
def test_any_bytes_are_rows_or_reported(data: bytes, size: int) -> None:
    found = []
    for block_size in (size, 1 << 18):
        with pytest.MonkeyPatch.context() as patched, pellucid.open(":memory:") as db:
            patched.setattr(csv_rows, "BLOCK_SIZE", block_size)
            try:
                report = imported(db, data)
            except pellucid.SourceError as error:
                found.append((str(error), None, None))
            else:
                rows = [row.to_dict() for row in db.table("t").values()]
                found.append((repr(rows), report.skipped, report.columns))
    assert found[0] == found[1]


def test_the_quick_way_and_the_standard_library_read_the_same(tmp_path: Path, db: pellucid.Database) -> None:
    made = random.Random(1)
    cells = ["1", "2.5", "", "x y", "\u00e9", "\x0b", "\u2028", "\x85", "\x1c", "\x00"]
    rows = "".join(
        ",".join(made.choices(cells, k=3)) + made.choice(["\n", "\n", "\n\n"]) for _ in range(3000)
    )
    path = tmp_path / "a.csv"
    path.write_bytes(("a,b,c\n" + rows).encode())
    assert pellucid.import_from(path, db, table="t", format="csv", verify=True).rows == 3000
