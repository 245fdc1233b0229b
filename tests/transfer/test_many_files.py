"""Are compressed files, lists of files and patterns imported as one, and is what they come to bounded?"""

from __future__ import annotations

import bz2
import gzip
import io
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pellucid
import pyarrow
import pytest
from pellucid.transfer import compressed
from pyarrow import ipc, parquet

zstd = compressed._zstd()


def zstd_compress(data: bytes) -> bytes:
    return bytes(zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1}))


PACK: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".zst": zstd_compress,
}
LINES = b'{"n": 1}\n{"n": 2}\n'
SOURCES = {
    "a.jsonl": LINES,
    "a.json": b'[{"n": 1}, {"n": 2}]',
    "a.csv": b"n\n1\n2\n",
    "a.log": LINES,
    "a.ndjson": LINES.replace(b"\n", b"\n" * 70_000),
}


def rows_of(source: Any, **choices: Any) -> tuple[list[Any], Any]:
    db = pellucid.open(":memory:")
    report = pellucid.import_from(source, db, table="t", **choices)
    return db.table("t").where().to_dicts(), report


@pytest.mark.parametrize("suffix", PACK)
@pytest.mark.parametrize("name", SOURCES)
def test_a_compressed_file_is_what_it_comes_to(suffix: str, name: str, tmp_path: Path) -> None:
    path = tmp_path / (name + suffix)
    path.write_bytes(PACK[suffix](SOURCES[name]))
    rows, report = rows_of(path, verify=True)
    assert rows == [{"n": 1}, {"n": 2}]
    assert (report.name, report.verified) == (name + suffix, True)
    assert rows_of(io.BytesIO(path.read_bytes()), format=report.format)[0] == rows
    # Two of them after each other are one file.
    path.write_bytes(PACK[suffix](LINES) + PACK[suffix](LINES))
    assert len(rows_of(path, format="jsonl")[0]) == 4


@pytest.mark.parametrize("suffix", PACK)
def test_a_damaged_compressed_file_stores_nothing(suffix: str, tmp_path: Path) -> None:
    data = PACK[suffix](b"".join(b'{"n": %d}\n' % number for number in range(100_000)))
    db = pellucid.open(":memory:")
    flipped = bytearray(data)
    flipped[len(data) // 2] ^= 0xFF
    for damaged in (data[:-20], bytes(flipped)):
        (tmp_path / f"a.jsonl{suffix}").write_bytes(damaged)
        with pytest.raises(pellucid.SourceError, match=f"a.jsonl{suffix} can(not)? be (unpacked|read)"):
            pellucid.import_from(tmp_path / f"a.jsonl{suffix}", db, table="t")
        assert len(db.table("t")) == 0


@pytest.mark.parametrize("suffix", PACK)
def test_a_file_that_comes_to_a_thousand_times_its_size_is_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"a.jsonl{suffix}"
    path.write_bytes(PACK[suffix](b'{"n": "' + b"a" * (1 << 27) + b'"}\n'))
    db = pellucid.open(":memory:")
    with pytest.raises(pellucid.SourceError, match="comes to more than 200 times its size") as failed:
        pellucid.import_from(path, db, table="t")
    # It is noticed early.
    assert int(re.findall(r"([\d,]+) bytes", str(failed.value))[0].replace(",", "")) < 1.1 * (1 << 26)
    assert db.tables() == []


def test_much_may_come_of_a_small_file(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b'{"n": "' + b"a" * (1 << 25) + b'"}\n'))
    assert len(rows_of(path)[0][0]["n"]) == 1 << 25


def test_what_is_read_at_any_place_is_not_read_compressed(tmp_path: Path) -> None:
    columns = pyarrow.table({"n": [1, 2]})
    parquet.write_table(columns, tmp_path / "a.parquet")
    with ipc.new_file(tmp_path / "a.arrow", columns.schema) as file:
        file.write_table(columns)
    with ipc.new_stream(tmp_path / "s.arrow", columns.schema) as file:
        file.write_table(columns)
    pellucid.export_to(pellucid.open(":memory:").table("t"), tmp_path / "a.sqlite")
    for name in ("a.parquet", "a.arrow", "a.sqlite"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress((tmp_path / name).read_bytes()))
        with pytest.raises(pellucid.SourceError, match=r"be read .*compressed"):
            rows_of(tmp_path / f"{name}.gz")
    (tmp_path / "s.arrow.gz").write_bytes(gzip.compress((tmp_path / "s.arrow").read_bytes()))
    assert rows_of(tmp_path / "s.arrow.gz")[0] == [{"n": 1}, {"n": 2}]
    (tmp_path / "empty.gz").write_bytes(gzip.compress(b""))
    with pytest.raises(pellucid.SourceError, match="an empty file"):
        rows_of(tmp_path / "empty.gz")


def test_zstandard_without_its_library_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.jsonl.zst").write_bytes(zstd_compress(LINES))
    for name in ("compression.zstd", "backports.zstd"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=r"pip install backports\.zstd"):
        rows_of(tmp_path / "a.jsonl.zst")


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "1.jsonl").write_bytes(LINES)
    (folder / "2.csv").write_bytes(b"n\n3\n")
    (folder / "3.jsonl.gz").write_bytes(gzip.compress(b'{"n": 4}\nbroken\n{"n": 5}\n'))
    return folder


@pytest.mark.parametrize(
    "choices", [{}, {"batch": 2}, {"verify": True}, {"key": "n", "on_conflict": "error"}]
)
def test_several_files_are_one_import(logs: Path, choices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pellucid.transfer.progress.PAUSE_SECONDS", 0.0)
    shares: list[Any] = []
    files = [logs / "1.jsonl", str(logs / "2.csv"), str(logs / "3*")]
    rows, report = rows_of(files, progress=lambda _rows, share: shares.append(share), **choices)
    assert [row["n"] for row in rows] == [1, 2, 3, 4, 5]
    assert repr(report).startswith("<ImportReport: 5 rows of 3 files (jsonl, csv) in table 't', 1 skipped")
    assert [place for place, _ in report.skipped] == ["3.jsonl.gz, line 2"]
    known = [share for share in shares if share is not None]
    assert known == sorted(known)
    assert known[-1] == 1.0


def test_a_pattern_is_all_files_of_it_in_the_order_of_their_names(logs: Path) -> None:
    rows, report = rows_of(str(logs / "*"))
    assert ([row["n"] for row in rows], report.name) == ([1, 2, 3, 4, 5], "3 files")
    assert [row["n"] for row in rows_of(str(logs.parent / "**/*.jsonl"))[0]] == [1, 2]
    with pytest.raises(FileNotFoundError, match="no file has a name of this pattern"):
        rows_of(str(logs / "*.parquet"))
    (logs / "[1].jsonl").write_bytes(b'{"n": 9}')
    assert rows_of(str(logs / "[1].jsonl"))[0] == [{"n": 9}]


def test_an_error_in_one_file_stores_none_of_them(logs: Path) -> None:
    (logs / "4.json").write_bytes(b'[{"n": 6}, ')
    db = pellucid.open(":memory:")
    with pytest.raises(pellucid.SourceError, match=r"4\.json cannot be read"):
        pellucid.import_from(str(logs / "*"), db, table="t")
    assert db.tables() == []
    with pytest.raises(pellucid.SourceError, match=r"3\.jsonl\.gz, line 2: "):
        pellucid.import_from([logs / "1.jsonl", logs / "3.jsonl.gz"], db, table="t", strict=True)
    assert db.tables() == []
    # Batches stay, as they do in one file.
    with pytest.raises(pellucid.SourceError):
        pellucid.import_from(str(logs / "*"), db, table="t", batch=1)
    assert len(db.table("t")) == 5


@pytest.mark.parametrize(
    ("source", "error"), [([], "the list of files to import is empty"), (5, "import_from.. reads a path")]
)
def test_a_source_that_is_none_is_refused(source: Any, error: str) -> None:
    with pytest.raises((ValueError, TypeError), match=error):
        rows_of(source)


def test_notes_of_several_files_name_the_file(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.json").write_text('{"rows": [{"n": 1}]}')
    notes = rows_of([tmp_path / "a.json", tmp_path / "b.json"])[1].notes
    assert [note[:8] for note in notes] == ["a.json: ", "b.json: "]


def test_files_of_csv_get_their_types_together(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,zip,a\n1,90210,\n2,10001,3\n")
    (tmp_path / "b.csv.gz").write_bytes(gzip.compress(b"zip;n;b\n01234;2.5;true\n"))
    (tmp_path / "c.csv").write_text("zip,n\n55,NA\n")
    (tmp_path / "d.jsonl").write_bytes(LINES)
    files = [tmp_path / name for name in ("a.csv", "b.csv.gz", "d.jsonl")]
    rows, report = rows_of(files, verify=True)
    assert rows == [
        {"n": 1.0, "zip": "90210"},
        {"n": 2.0, "zip": "10001", "a": 3},
        {"zip": "01234", "n": 2.5, "b": True},
        *({"n": 1}, {"n": 2}),
    ]
    assert [type(row["n"]) for row in rows[:3]] == [float] * 3
    assert report.columns == {"n": "float", "zip": "text", "a": "int", "b": "bool"}
    zips = "column 'zip' is text: '01234' of b.csv.gz, line 2 begins with a zero"
    assert report.notes == [zips]
    # A stream is there for both passes, and a key has one spelling in all files.
    streams = [io.BytesIO(files[0].read_bytes()), files[1], tmp_path / "c.csv"]
    rows, report = rows_of(streams, key="zip", types={"a": "text"})
    assert rows == [
        {"zip": "01234", "n": "2.5", "b": True},
        {"n": "2", "zip": "10001", "a": "3"},
        {"zip": "55", "n": "NA"},
        {"n": "1", "zip": "90210"},
    ]
    assert report.notes[0].startswith("column 'n' is text: 'NA' of c.csv, line 2 is no number; if")
    assert report.notes[1] == zips


def test_a_type_may_be_that_of_a_column_in_one_of_several_files(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("n,b\n1,2\n")
    (tmp_path / "b.csv").write_text("n,c\n1,2\n")
    rows, report = rows_of(str(tmp_path / "*.csv"), types={"c": "float"})
    assert (rows[1], report.columns) == ({"n": 1, "c": 2.0}, {"n": "int", "b": "int", "c": "float"})
    with pytest.raises(
        ValueError, match="types= names 'd', and none of 2 files has such a column; they have 'n'"
    ):
        rows_of(str(tmp_path / "*.csv"), types={"d": "float"})
