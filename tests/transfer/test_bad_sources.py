"""Does an import that cannot be done say why, leave the database as it was, and the source untouched?"""

from __future__ import annotations

import contextlib
import datetime
import io
import json
import os
import pickle
import shelve
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import files_of_others as others
import pellucid
import pyarrow
import pytest
from pellucid.transfer import incoming
from pellucid.transfer.detect import FORMATS
from pyarrow import feather, parquet


@pytest.fixture
def db() -> pellucid.Database:
    found = pellucid.open(":memory:")
    found["kept"] = 1
    return found


@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_columns_of_one_name_are_an_error_and_not_one_for_each_row(
    suffix: str, tmp_path: Path, db: pellucid.Database
) -> None:
    columns = pyarrow.Table.from_arrays([pyarrow.array([1, 2]), pyarrow.array([3, 4])], names=["a", "a"])
    path = tmp_path / f"a.{suffix}"
    if suffix == "parquet":
        parquet.write_table(columns, path)
    else:
        feather.write_feather(columns, path)
    with pytest.raises(pellucid.SourceError, match="it has two columns with the name 'a'"):
        pellucid.import_from(path, db)
    assert dict(db) == {"kept": 1}


@pytest.mark.parametrize("form", [form for form in FORMATS if form not in ("csv", "tsv", "jsonl")])
def test_a_format_that_a_file_has_not_is_an_error(form: str, tmp_path: Path, db: pellucid.Database) -> None:
    (tmp_path / "a.txt").write_text("n,x\n1,2\n")
    (tmp_path / "folder").mkdir()
    for name in ("a.txt", "folder"):
        with pytest.raises((pellucid.SourceError, OSError)):
            pellucid.import_from(tmp_path / name, db, format=form)
    assert dict(db) == {"kept": 1}


def lines(count: int) -> str:
    return "".join(f'{{"n": {number}, "text": "{"x" * 100}"}}\n' for number in range(count))


DAMAGED: dict[str, tuple[str, bytes, str]] = {
    "bytes": ("junk.bin", b"\x01\x02\x00\xff" * 9, "has no format that an import knows: it begins with"),
    "text": ("words.txt", b"hello world\n", "neither JSON nor CSV"),
    "nothing": ("none.jsonl", b"", "none.jsonl is empty"),
    "compressed": ("a.jsonl.xz", b"\xfd7zXZ\x00\x00", "is compressed by xz; decompress it first"),
    "cut off": ("a.jsonl.gz", b"\x1f\x8b\x08\x00", "a.jsonl.gz cannot be unpacked: compressed file ended"),
    "excel": (
        "a.xlsx",
        b"PK\x03\x04" + b"\x00" * 26 + b"[Content_Types].xml",
        "an Excel workbook; save its sheet",
    ),
    "old excel": ("a.xls", b"\xd0\xcf\x11\xe0\xa1\xb1" + b"\x00" * 9, "an old Excel or Word; save its sheet"),
    "zip": ("a.zip", b"PK\x03\x04" + b"\x00" * 26 + b"a.csv", "a zip archive; unpack it"),
    "sqlite": ("a.sqlite", b"SQLite format 3\x00" + b"\xff" * 500, "a.sqlite cannot be read: "),
    "parquet": ("a.parquet", b"PAR1" + b"\xff" * 50, "a.parquet cannot be read: "),
    "arrow": ("a.arrow", b"ARROW1\x00\x00" + b"\xff" * 50, "a.arrow cannot be read: "),
    "arrow stream": (
        "a.arrows",
        b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"\x07" * 50,
        "a.arrows cannot be read: ",
    ),
    "pickle": ("a.pickle", b"\x80\x04\x95\xff", "a.pickle cannot be read: a stored pickle is damaged"),
    "json cut off": ("a.json", b'[{"a": 1},\n {"a"', "line 2, column"),
    "json that is too deep": (
        "a.json",
        b"[" * 100_000,
        "a.json cannot be read: line 1, column 2: nested too",
    ),
    "json with more": ("a.json", b"[1,\n2]\n5", "line 3, column 1: expected the end; format='jsonl' reads"),
    "json with a comma": ("a.json", b'{"a": 1,}', "line 1, column 9"),
    "names of csv": ("a.csv", b'a,"b"c\n1,2\n', "a.csv cannot be read: line 1: "),
    "lmdb": ("a.mdb", b"\x00" * 16 + b"\xde\xc0\xef\xbe" + b"\xff" * 50, "a.mdb cannot be read: "),
}


@pytest.mark.parametrize("case", DAMAGED)
def test_an_unknown_or_damaged_file_is_an_error(case: str, tmp_path: Path, db: pellucid.Database) -> None:
    name, data, message = DAMAGED[case]
    (tmp_path / name).write_bytes(data)
    with pytest.raises(pellucid.SourceError) as error:
        pellucid.import_from(tmp_path / name, db)
    assert message in str(error.value)
    assert (dict(db), db.tables(), (tmp_path / name).read_bytes()) == ({"kept": 1}, ["default"], data)


def test_a_file_that_is_cut_off_in_its_middle_stores_nothing(tmp_path: Path, db: pellucid.Database) -> None:
    from sqlitedict import SqliteDict

    path = tmp_path / "dict.sqlite"
    with SqliteDict(str(path), autocommit=True) as found:
        found.update({str(number): "x" * 1000 for number in range(1000)})
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    with pytest.raises(pellucid.SourceError, match=r"dict\.sqlite cannot be read"):
        pellucid.import_from(path, db)
    assert dict(db) == {"kept": 1}


@pytest.mark.parametrize("form", ["sqlitedict", "sqlite", "dbm", "diskcache"])
def test_a_damaged_page_between_the_rows_is_an_error(
    form: str, tmp_path: Path, db: pellucid.Database
) -> None:
    path = tmp_path / ("cache.db" if form == "diskcache" else "a.sqlite")
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE Dict (key TEXT PRIMARY KEY, value BLOB)")
        rows = [(str(number), b"\x80" + b"x" * 500) for number in range(1000)]
        connection.executemany("INSERT INTO Dict VALUES (?, ?)", rows)
        if form == "diskcache":
            connection.execute("CREATE TABLE Settings (key)")
            connection.execute(
                "CREATE TABLE Cache AS SELECT key, 1 AS raw, NULL AS expire_time, NULL AS tag, 1 AS mode, "
                "NULL AS filename, value FROM Dict"
            )
    connection.close()
    data = bytearray(path.read_bytes())
    middle = len(data) * 3 // 4 // 4096 * 4096
    data[middle : middle + 4096] = b"\xff" * 4096
    path.write_bytes(data)
    with pytest.raises(pellucid.SourceError, match="cannot be read: database disk image is malformed"):
        pellucid.import_from(path, db, format=form)
    assert dict(db) == {"kept": 1}


@pytest.mark.parametrize("value", [None, 10**9, "text"])
def test_a_value_that_is_no_blob_is_skipped(value: Any, tmp_path: Path, db: pellucid.Database) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute("CREATE TABLE Dict (key BLOB, value BLOB)")
        connection.executemany("INSERT INTO Dict VALUES (?, ?)", [(b"a", value), (b"b", b"2"), (value, b"3")])
    connection.close()
    report = pellucid.import_from(tmp_path / "a.sqlite", db)
    assert (report.format, report.rows, report.skipped_count) == ("dbm", 1, 2)
    assert f"it has a {type(value).__name__} in place of bytes" in str(report)


def test_a_name_that_is_no_file() -> None:
    with pytest.raises(FileNotFoundError, match="there is no such file"):
        pellucid.import_from("none/such", ":memory:")


def test_our_own_file_is_recognised(path: Path, db: pellucid.Database) -> None:
    pellucid.open(path).close()
    with pytest.raises(pellucid.SourceError, match="is a pellucid database"):
        pellucid.import_from(path, db)


def test_one_broken_line_is_named_and_the_others_are_stored(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_bytes(lines(3000).encode() + b'{"n": \n\xff\n' + b"[" * 5000 + b"\n" + lines(2).encode())
    report = pellucid.import_from(path, db, table="rows", verify=True)
    assert (report.rows, report.skipped_count, len(db.table("rows"))) == (3002, 3, 3002)
    assert [skipped.place for skipped in report.skipped] == ["line 3001", "line 3002", "line 3003"]
    assert report.skipped[0].reason == "not JSON: expecting value at column 6"
    assert report.skipped[1].reason.startswith("not utf-8: byte 0xff")
    assert "  skipped line 3001: not JSON" in str(report)
    with pytest.raises(pellucid.SourceError, match=r"rows\.jsonl, line 3001: not JSON"):
        pellucid.import_from(path, db, table="strict", strict=True)
    assert db.tables() == ["default", "rows"]


def test_a_report_keeps_the_reasons_of_the_first_rows_only(tmp_path: Path, db: pellucid.Database) -> None:
    (tmp_path / "a.jsonl").write_text("{\n" * 5000)
    report = pellucid.import_from(tmp_path / "a.jsonl", db)
    assert (report.skipped_count, len(report.skipped)) == (5000, 1000)
    assert str(report).endswith("and 4,990 more")


def test_rows_of_csv_that_are_too_short_or_too_long(tmp_path: Path, db: pellucid.Database) -> None:
    (tmp_path / "a.csv").write_text('a,b\n1,2\n3\n"x\ny",4\n5,6,7\n\n8,9\n')
    report = pellucid.import_from(tmp_path / "a.csv", db, table="t")
    assert [row.to_dict() for row in db.table("t").values()] == [
        {"a": "1", "b": 2},
        {"a": "x\ny", "b": 4},
        {"a": "8", "b": 9},
    ]
    assert [(s.place, s.reason[:13]) for s in report.skipped] == [
        ("line 3", "it has 1 cell"),
        ("line 6", "it has 3 cell"),
    ]


def test_a_csv_may_have_large_cells_and_many_columns(tmp_path: Path, db: pellucid.Database) -> None:
    text = "x" * 1_000_000
    names = [f"c{number}" for number in range(60_000)]
    (tmp_path / "a.csv").write_text(f"{','.join(names)}\n{text}{',1' * 59_999}\n")
    begun = time.process_time()
    assert pellucid.import_from(tmp_path / "a.csv", db, table="t").rows == 1
    assert time.process_time() - begun < 10
    row = db.table("t")[0]
    assert (row["c0"], row["c59999"], len(row)) == (text, 1, 60_000)


def test_a_row_that_a_unique_index_refuses_is_skipped(tmp_path: Path, db: pellucid.Database) -> None:
    people = db.table("people")
    people.append({"n": 1})
    people.create_index("by_n", "n", unique=True)
    (tmp_path / "a.jsonl").write_text(lines(3))
    report = pellucid.import_from(tmp_path / "a.jsonl", db, table="people")
    assert (report.rows, people.column("n")) == (2, [1, 0, 2])
    assert report.skipped[0].place == "line 2"
    assert "by_n" in report.skipped[0].reason


def test_a_pickle_of_a_class_is_skipped_and_named(tmp_path: Path, db: pellucid.Database) -> None:
    with shelve.open(str(tmp_path / "shelf")) as shelf:
        shelf["own"], shelf["plain"] = others.Own(), {"a": 1}
    report = pellucid.import_from(tmp_path / "shelf", db)
    assert dict(db) == {"kept": 1, "plain": {"a": 1}}
    assert report.skipped[0].place == "key 'own'"
    name = "files_of_others.Own"
    assert f"its pickle wants '{name}'; pass pickle=['{name}'] if you trust that" in report.skipped[0].reason
    with pellucid.open(":memory:", pickle=[name, "copyreg._reconstructor", "builtins.object"]) as other:
        assert pellucid.import_from(tmp_path / "shelf", other, pickle=[name]).rows == 2
        assert isinstance(other["own"], others.Own)


def test_a_pickle_runs_no_code(tmp_path: Path, db: pellucid.Database) -> None:
    class Evil:
        def __reduce__(self) -> tuple[Callable[..., object], tuple[str]]:
            return os.mkdir, (str(tmp_path / "made"),)

    (tmp_path / "evil.pickle").write_bytes(pickle.dumps({"a": Evil()}))
    with pytest.raises(pellucid.PickleDenied, match=r"its pickle wants 'posix\.mkdir'"):
        pellucid.import_from(tmp_path / "evil.pickle", db)
    assert not (tmp_path / "made").exists()


@pytest.mark.parametrize("protocol", range(6))
def test_what_plain_values_call_does_nothing_else(protocol: int, db: pellucid.Database) -> None:
    class Call:
        def __init__(self, function: Callable[..., object], *arguments: object) -> None:
            self.reduced = function, arguments

        def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
            return self.reduced

    for hostile in (
        Call(getattr, datetime.date, "mro"),
        Call(getattr, zoneinfo.ZoneInfo, "clear_cache"),
        Call(bytes, 10**12),
        Call(bytearray, 10**12),
        Call(zoneinfo.ZoneInfo, "../../../etc/passwd"),
    ):
        with pytest.raises(ValueError, match=r"can reach anything|damaged"):
            pellucid.import_from(io.BytesIO(pickle.dumps([hostile], protocol)), db, format="pickle")
    assert dict(db) == {"kept": 1}


def test_a_source_that_changes_while_it_is_read(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(lines(5000))

    def change(_rows: int, _share: float | None) -> None:
        with path.open("a") as file:
            file.write('{"n": 1}\n')

    with pytest.raises(pellucid.SourceError, match="changed while it was read"):
        pellucid.import_from(path, db, table="new", progress=change)
    assert db.tables() == ["default"]


def test_verification_finds_a_row_that_differs(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text(lines(3))
    found = path.stat()

    def change(_rows: int, share: float | None) -> None:
        path.write_text(lines(3).replace('"n": 1', '"n": 7'))
        os.utime(path, ns=(found.st_atime_ns, found.st_mtime_ns))

    with pytest.raises(pellucid.SourceError, match="not what was read again: line 2"):
        pellucid.import_from(path, db, table="new", verify=True, progress=change)
    assert db.tables() == ["default"]


def test_an_error_in_the_progress_function_stores_nothing(tmp_path: Path, path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(lines(5000))

    def fail(_rows: int, _share: float | None) -> None:
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        pellucid.import_from(tmp_path / "rows.jsonl", path, progress=fail)
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"format": "xml"}, "format= has no 'xml'"),
        ({"types": {"a": "number"}}, "types= has no type 'number'"),
        ({"batch": 0}, "at least 1"),
        ({"pickle": "yes"}, "yes"),
        ({"verify": True, "dry_run": True, "batch": 5}, "leave out batch="),
    ],
)
def test_a_choice_that_does_not_exist(
    choices: dict[str, object], message: str, tmp_path: Path, path: Path
) -> None:
    (tmp_path / "rows.jsonl").write_text(lines(1))
    with pytest.raises((ValueError, TypeError), match=message):
        pellucid.import_from(tmp_path / "rows.jsonl", path, **choices)  # type: ignore[arg-type]
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


def test_a_dry_run_writes_nothing(tmp_path: Path, path: Path, db: pellucid.Database) -> None:
    (tmp_path / "rows.jsonl").write_text(lines(5))
    assert "dry run" in repr(pellucid.import_from(tmp_path / "rows.jsonl", path, dry_run=True))
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]
    assert pellucid.import_from(tmp_path / "rows.jsonl", db, dry_run=True).rows == 5
    assert dict(db) == {"kept": 1}


FULL = """
import resource, signal, sys, pellucid
source, target = sys.argv[1:]
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    pellucid.import_from(source, target)
except OSError as error:
    print(type(error).__name__)
"""


def test_a_full_disk_stores_nothing(tmp_path: Path, path: Path) -> None:
    with pellucid.open(path) as db:
        db["kept"] = 1
    (tmp_path / "rows.jsonl").write_text(lines(30_000))
    ran = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", FULL, tmp_path / "rows.jsonl", path],
        capture_output=True,
        text=True,
        check=True,
    )
    assert ran.stdout == "DiskFull\n"
    with pellucid.open(path) as db:
        assert (dict(db), db.check()) == ({"kept": 1}, [])


def test_ctrl_c_stores_nothing(tmp_path: Path, path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(lines(20_000))

    def press(rows: int, _share: float | None) -> None:
        if rows > 5000:
            threading.Thread(target=lambda: signal.raise_signal(signal.SIGINT)).start()
            time.sleep(0.5)

    with pytest.raises(KeyboardInterrupt, match="nothing was imported"):
        pellucid.import_from(tmp_path / "rows.jsonl", path, progress=press)
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


def test_an_import_in_a_transaction_of_the_caller_ends_with_it(tmp_path: Path, db: pellucid.Database) -> None:
    (tmp_path / "rows.jsonl").write_text(json.dumps({"a": 1}))
    with contextlib.suppress(RuntimeError), db.transaction():
        pellucid.import_from(tmp_path / "rows.jsonl", db)
        assert len(db) == 2
        raise RuntimeError
    assert dict(db) == {"kept": 1}


@pytest.mark.parametrize("data", ['{"a": {"b": 1}}\n{"c": 2}\n', '{"a": 1}\n'])
def test_a_type_for_a_field_that_no_row_has_is_an_error(
    data: str, tmp_path: Path, db: pellucid.Database
) -> None:
    (tmp_path / "a.jsonl").write_text(data)
    with pytest.raises(ValueError, match=r"types= names 'a\.z', and no row of a\.jsonl has such a field"):
        pellucid.import_from(tmp_path / "a.jsonl", db, types={"a": "json", "a.z": "int"})
    (tmp_path / "a.csv").write_text("zip\n1\n")
    with pytest.raises(ValueError, match=r"types= names 'Zip', and a\.csv has no such column; it has 'zip'"):
        pellucid.import_from(tmp_path / "a.csv", db, types={"Zip": "text"})
    assert dict(db) == {"kept": 1}


def test_a_list_is_no_text(tmp_path: Path, db: pellucid.Database) -> None:
    (tmp_path / "a.jsonl").write_text('{"a": [1]}\n{"a": 1}\n')
    report = pellucid.import_from(tmp_path / "a.jsonl", db, table="t", types={"a": "text"})
    assert db.table("t").to_list() == [{"a": "1"}]
    assert "[1] is not of type text" in str(report)


def test_ctrl_c_does_not_take_commits_of_others_for_its_own(path: Path) -> None:
    with pellucid.open(path) as db, pellucid.open(path) as other:

        class Source(io.BytesIO):
            """A stream whose second piece comes after the commit of another program."""

            def readinto(self, buffer: Any) -> int:
                if not self.tell():
                    return super().readinto(memoryview(buffer)[:1000])
                if self.tell() == 1000:
                    other["other"] = 1
                return super().readinto(buffer)

        def press(rows: int, _share: float | None) -> None:
            if rows > wanted:
                raise KeyboardInterrupt

        data = json.dumps([{"n": number} for number in range(20_000)]).encode()
        for wanted, said in ((0, "nothing was imported"), (1000, "rows were stored already")):
            with pytest.raises(KeyboardInterrupt, match=said):
                pellucid.import_from(Source(data), db, table="t", format="json", batch=600, progress=press)
            assert "other" in db
            assert bool(len(db.table("t"))) == (wanted > 0)
            del other["other"]


def test_ctrl_c_in_the_middle_of_a_commit_says_what_became_of_it(tmp_path: Path, path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(lines(20))

    class Pressed(incoming._Import):
        """An import with a Ctrl-C after its commit, before anything else is done."""

        def transaction(self) -> Any:
            @contextlib.contextmanager
            def pressed() -> Any:
                with super(Pressed, self).transaction():
                    yield
                raise KeyboardInterrupt

            return pressed()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(incoming, "_Import", Pressed)
        with pytest.raises(KeyboardInterrupt, match="rows were stored already"):
            pellucid.import_from(tmp_path / "rows.jsonl", path)
    with pellucid.open(path) as db:
        assert len(db) == 20
