"""Can a small file of a stranger fill memory, or keep an import from ever ending?

What is hostile runs in a process with limits of memory and of processor time, so that a failure ends that
process alone.
"""

from __future__ import annotations

import datetime
import os
import pickle
import signal
import sqlite3
import subprocess
import sys
from collections import Counter, OrderedDict
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import pellucid
import pyarrow
import pytest
from pellucid.transfer.job import Input, Job
from pellucid.transfer.sources import arrow_file
from pyarrow import ipc, parquet

# An address space that has room for libraries, and not for what these files come to.
IMPORT = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
import pellucid
with pellucid.open(":memory:") as db:
    try:
        print(pellucid.import_from(sys.argv[1], db, format=sys.argv[2] or None))
    except pellucid.Error as error:
        print(f"{type(error).__name__}: {error}")
"""


def imported(path: Path, format: str = "") -> str:  # noqa: A002  as in import_from
    """What an import in another process says: its report, or the error of pellucid."""
    done = subprocess.run(
        [sys.executable, "-c", IMPORT, str(path), format], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def text(value: str) -> bytes:
    data = value.encode("utf-8", "surrogatepass")
    return b"X" + len(data).to_bytes(4, "little") + data


def number(bits: int) -> bytes:
    data = (1 << bits).to_bytes(bits // 8 + 1, "little") + b"\0"
    return b"\x8b" + len(data).to_bytes(4, "little") + data


def doubled(new: bytes, times: int) -> bytes:
    """Lists, or tuples, that each have the one before twice."""
    made = b"]q\x00"
    for place in range(1, times):
        twice = b"h" + bytes([place - 1])
        made += (
            b"]q" + bytes([place]) + b"(" + twice * 2 + b"e"
            if new == b"]"
            else twice * 2 + b"\x86q" + bytes([place])
        )
    return made


HEAD = b"\x80\x02"
PICKLES: dict[str, bytes] = {
    "an encoding in quadratic time": b"c_codecs\nencode\n"
    + text("".join(chr(0x4E00 + place % 20_000) for place in range(100_000)))
    + text("punycode")
    + b"\x86R.",
    "a number of many digits": b"cdecimal\nDecimal\n" + number(8_000_000) + b"\x85R.",
    "a size in place of bytes": b"c__builtin__\nbytearray\n" + number(40) + b"\x85R.",
    "lists that double": doubled(b"]", 60) + b".",
    "tuples that double": doubled(b"(", 60) + b".",
    "a text that occurs often": b"]" + text("x" * 100_000) + b"q\x00(" + b"h\x00" * 100_000 + b"e.",
    "a key that is deep": b"}" + b")" + b"\x85" * 1_000_000 + b"K\x01s.",
    "a set of a key that is deep": b"c__builtin__\nset\n](" + b")" + b"\x85" * 1_000_000 + b"e\x85R.",
    "lists inside each other": b"]" + b"]" * 300_000 + b"a" * 300_000 + b".",
    "a set of tuples that double": b"c__builtin__\nset\n](" + doubled(b"(", 60) + b"e\x85R.",
    "the kind of a UUID from tuples": b"cuuid\nSafeUUID\n" + doubled(b"(", 20) + b"\x85R.",
    "the number of a UUID": b"cuuid\nUUID\n)\x81}" + text("int") + number(8_000_000) + b"sb.",
    "a count of many": b"ccollections\nCounter\n" + text("ab") + b"\x85R.",
    "days that are many": b"cdatetime\ntimedelta\n" + number(8_000_000) + b"\x85R.",
    "a complex number from a text": b"c__builtin__\ncomplex\n" + text("1") + b"\x85R.",
    "a zone with a long name": b"czoneinfo\nZoneInfo\n" + text("a" * 1000) + b"\x85R.",
}


@pytest.mark.parametrize("case", PICKLES)
def test_a_pickle_of_a_stranger_is_refused(case: str, tmp_path: Path) -> None:
    (tmp_path / "a.pickle").write_bytes(HEAD + PICKLES[case])
    assert "a.pickle cannot be read: a stored pickle is damaged" in imported(tmp_path / "a.pickle")


PLAIN: list[Any] = [
    *(complex(1, 2), {1, "a"}, frozenset([1]), Decimal("1.5"), Counter("abca"), OrderedDict(a=1)),
    *(datetime.date(2020, 1, 2), datetime.datetime(2020, 1, 2, fold=1), datetime.time(1, 2)),
    *(datetime.timedelta(1, 2, 3), datetime.datetime(2020, 1, 2, tzinfo=datetime.timezone.utc)),
    *(datetime.timezone(datetime.timedelta(hours=1), "x"), b"", b"a\xff", bytearray(), bytearray(b"a\xff")),
    *([[0] * 10] * 50_000, ["abc" * 10] * 50_000, Decimal("9" * 100_000), 1 << 10_000),
]


@pytest.mark.parametrize("protocol", range(6))
@pytest.mark.parametrize(
    "value", PLAIN, ids=[f"{type(value).__name__}-{place}" for place, value in enumerate(PLAIN)]
)
def test_plain_values_come_back_as_they_were(value: Any, protocol: int) -> None:
    from pellucid.transfer import safe_pickles

    found = safe_pickles.load(pickle.dumps(value, protocol), "deny")
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize("protocol", range(2, 6))
def test_a_uuid_comes_back(protocol: int) -> None:
    from pellucid.transfer import safe_pickles

    value = UUID(int=(1 << 128) - 1)
    assert safe_pickles.load(pickle.dumps(value, protocol), "deny") == value


GENERATED = {
    "cells that are longer than the file": "zeroblob(300000000)",
    "rows that come to far more than the file": "zeroblob(900000)",
}


@pytest.mark.parametrize("case", GENERATED)
def test_computed_columns_of_sqlite_are_bounded(case: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute(
            f"CREATE TABLE t (a INTEGER PRIMARY KEY, b GENERATED ALWAYS AS ({GENERATED[case]}))"
        )
        connection.executemany("INSERT INTO t (a) VALUES (?)", [(number,) for number in range(50)])
    connection.close()
    assert "SourceError: a.sqlite cannot be read: " in imported(tmp_path / "a.sqlite")


def test_ordinary_computed_columns_of_sqlite_are_read(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b AS (a || '!'), c AS (printf('%9d', a)))")
        connection.executemany("INSERT INTO t (a) VALUES (?)", [(number,) for number in range(20_000)])
    connection.close()
    with pellucid.open(":memory:") as db:
        assert pellucid.import_from(tmp_path / "a.sqlite", db).rows == 20_000
        assert db.table("t")[7] == {"a": 7, "b": "7!", "c": "        7"}


ENDLESS = "AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS key, 1 AS raw, "
ENDLESS += "NULL AS expire_time, 1 AS mode, NULL AS filename, x AS value, x AS rowid FROM c"


@pytest.mark.parametrize(("name", "form"), [("Cache", "diskcache"), ("Dict", "dbm"), ("Dict", "shelve")])
def test_a_view_without_end_is_no_table(name: str, form: str, tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "cache.db") as connection:
        connection.execute("CREATE TABLE Settings (key, value)")
        connection.execute(f"CREATE VIEW {name} {ENDLESS}")
    connection.close()
    path = tmp_path if form == "diskcache" else tmp_path / "cache.db"
    assert f"it has no table '{name}'" in imported(path, form)


def test_ctrl_c_ends_a_statement_of_sqlite(tmp_path: Path) -> None:
    from pellucid.transfer.sources import sqlite

    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute("CREATE TABLE t (a)")
    connection.close()

    class Pressed(BaseException):
        """What the handler of a signal raises."""

    def press(*_: object) -> None:
        raise Pressed

    before = signal.signal(signal.SIGALRM, press)
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(Pressed), sqlite.opened("a", str(tmp_path / "a.sqlite")) as reader:
            # One step of Python, and steps of SQLite without end.
            list(reader.rows(f"SELECT count(*) FROM ({ENDLESS.removeprefix('AS ')})"))
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_json_inside_sqlite_that_is_deep_stays_a_text(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "a.sqlite") as connection:
        connection.execute("CREATE TABLE t (a JSON)")
        connection.execute("INSERT INTO t VALUES (?)", ["[" * 100_000])
    connection.close()
    with pellucid.open(":memory:") as db:
        assert pellucid.import_from(tmp_path / "a.sqlite", db).rows == 1


def test_a_file_of_a_cache_is_the_value_of_one_key(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "cache.db") as connection:
        connection.execute("CREATE TABLE Settings (key, value)")
        connection.execute("CREATE TABLE Cache (key, raw, expire_time, tag, mode, filename, value)")
        rows = [("a", "1.val"), ("b", "1.val"), ("c", "pipe")]
        connection.executemany("INSERT INTO Cache VALUES (?, 1, NULL, NULL, 2, ?, NULL)", rows)
    connection.close()
    (tmp_path / "1.val").write_bytes(b"one")
    os.mkfifo(tmp_path / "pipe")
    with pellucid.open(":memory:") as db:
        report = pellucid.import_from(tmp_path, db)
        assert dict(db) == {"a": b"one"}
    assert [skipped.reason for skipped in report.skipped] == [
        "its file '1.val' is that of another key",
        "its file 'pipe' is no ordinary file",
    ]


@pytest.mark.parametrize("part", [2, 3, 100])
def test_a_file_of_lmdb_that_is_cut_off_is_refused(part: int, tmp_path: Path) -> None:
    import lmdb

    with (
        lmdb.open(str(tmp_path / "lm"), map_size=1 << 26) as environment,
        environment.begin(write=True) as put,
    ):
        for number in range(3000):
            put.put(b"%08d" % number, os.urandom(100))
    os.truncate(tmp_path / "lm/data.mdb", os.path.getsize(tmp_path / "lm/data.mdb") // part)
    assert "SourceError: lm cannot be read: " in imported(tmp_path / "lm")


def test_a_large_file_of_lmdb_is_read(tmp_path: Path) -> None:
    import lmdb

    with (
        lmdb.open(str(tmp_path / "lm"), map_size=1 << 28) as environment,
        environment.begin(write=True) as put,
    ):
        for number in range(30):
            put.put(b"%08d" % number, bytes(1 << 20))
    with pellucid.open(":memory:") as db:
        assert pellucid.import_from(tmp_path / "lm", db).rows == 30


INDEXES = {
    "a place that is no number": "'a', ('x', 'y')\n",
    "a place behind the end": "'a', (0, 1000000000000)\n",
    "no place": "'a', 5\n",
    "a key that is no text": "5, (0, 1)\n",
    "brackets without end": "(" * 100_000,
    "places that are the same bytes": "".join(f"'{number}', (0, 100000)\n" for number in range(100_000)),
}


@pytest.mark.parametrize("case", INDEXES)
def test_the_index_of_a_dumb_dbm_is_checked(case: str, tmp_path: Path) -> None:
    (tmp_path / "d.dir").write_text(INDEXES[case])
    (tmp_path / "d.dat").write_bytes(b"x" * 100_000)
    assert imported(tmp_path / "d", "dbm").startswith("SourceError: ")


def write_arrow(path: Path, batch: Any, form: str, compression: str | None) -> None:
    new = ipc.new_file if form == "file" else ipc.new_stream
    with new(path, batch.schema, options=ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)


@pytest.mark.parametrize("compression", [None, "zstd", "lz4"])
@pytest.mark.parametrize("form", ["file", "stream"])
@pytest.mark.parametrize("holds", ["values", "a dictionary"])
def test_a_batch_of_arrow_that_is_too_large_is_refused_before_it_takes_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch, form: str, compression: str | None, holds: str
) -> None:
    monkeypatch.setattr(arrow_file, "BATCH_SIZE_MAX", 1 << 20)
    allocated = pyarrow.total_allocated_bytes()
    for size, is_refused in ((1 << 19, False), (1 << 21, True)):
        column = pyarrow.array(["x" * size])
        column = column if holds == "values" else column.dictionary_encode()
        write_arrow(path, pyarrow.record_batch({"text": column}), form, compression)
        if compression:
            assert path.stat().st_size < size / 4
        with pellucid.open(":memory:") as db:
            if is_refused:
                with pytest.raises(
                    pellucid.SourceError, match=r"batches comes to .* and may come to 1,048,576"
                ):
                    pellucid.import_from(path, db, format="arrow")
                with path.open("rb") as pipe, pytest.raises(pellucid.SourceError, match="smaller batches"):
                    pellucid.import_from(pipe, db, format="arrow")
                assert list(db.tables()) == []
            else:
                pellucid.import_from(path, db, format="arrow")
                [table] = db.tables()
                assert [len(row.text) for row in db.table(table).values()] == [size]
        del column
    assert pyarrow.total_allocated_bytes() < allocated + (1 << 20)


def test_a_row_group_of_parquet_is_read_in_batches_that_fit_into_memory(path: Path) -> None:
    data = [bytes([number]) * (1 << 19) for number in range(200)]
    parquet.write_table(
        pyarrow.table({"n": range(200), "data": data}),
        path,
        compression="none",
        use_dictionary=False,
        write_batch_size=1,
    )
    del data
    assert parquet.read_metadata(path).num_row_groups == 1
    job = Job(Input(path), None, None, None, None, lambda *_: None, lambda _: None)
    before, most, count = pyarrow.total_allocated_bytes(), 0, 0
    for part in arrow_file.parts_of_parquet(job):
        for chunk in part.chunks:
            most = max(most, pyarrow.total_allocated_bytes() - before)
            count += len(chunk.places)
    assert count == 200
    assert most < 48 << 20, "the file has 100 MiB"
