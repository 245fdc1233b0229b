"""Does an import bring along what other libraries stored, exactly?"""

from __future__ import annotations

import datetime
import importlib
import io
import json
import pickle
import shelve
import sqlite3
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import files_of_others as others
import pellucid
import pyarrow
import pytest
from pyarrow import ipc, parquet


def same(stored: Any, expected: Any) -> bool:
    """Whether two values are the same to the last bit, NaN and types included."""
    return pellucid.dumps(stored) == pellucid.dumps(expected)


@pytest.mark.parametrize("write", others.MAPPINGS.values(), ids=others.MAPPINGS)
def test_a_mapping_keeps_its_keys_and_values(
    write: Callable[[Path], Path], tmp_path: Path, db: pellucid.Database
) -> None:
    report = pellucid.import_from(write(tmp_path), db, verify=True)
    assert (report.rows, report.skipped_count, report.verified) == (len(others.VALUES), 0, True)
    assert list(db) == sorted(others.VALUES)
    assert all(same(db[key], value) for key, value in others.VALUES.items())


@pytest.mark.parametrize("write", others.ROW_FILES.values(), ids=others.ROW_FILES)
def test_rows_keep_big_ints_and_nan(
    write: Callable[[Path], Path], tmp_path: Path, db: pellucid.Database
) -> None:
    report = pellucid.import_from(write(tmp_path), db, verify=True)
    assert report.tables == {"default": 2}
    for row, expected in zip(db.values(), others.ROWS, strict=True):
        assert {name: row[name] for name in expected}.keys() == row.keys()
        assert all(same(row[name], value) for name, value in expected.items())


@pytest.mark.parametrize("backend", others.backends())
def test_a_dbm_of_every_backend(backend: str, tmp_path: Path, db: pellucid.Database) -> None:
    path = str(tmp_path / "file")
    with importlib.import_module(backend).open(path, "c") as file:
        for number in range(1000):
            file[b"%d" % number] = b"v%d" % number
    report = pellucid.import_from(path, db, verify=True)
    assert (report.format, report.rows) == ("dbm", 1000)
    assert db[b"77"] == b"v77"


def test_a_dbm_of_a_backend_that_is_missing_says_so(
    tmp_path: Path, db: pellucid.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = others.write_dumb_shelf(tmp_path)
    monkeypatch.setattr("dbm.whichdb", lambda _name: "dbm.none_such")
    with pytest.raises(pellucid.SourceError, match=r"dbm\.none_such, which this Python does not have"):
        pellucid.import_from(path, db)


def test_tinydb(tmp_path: Path, db: pellucid.Database) -> None:
    import tinydb

    path = tmp_path / "tiny.json"
    with tinydb.TinyDB(path) as tiny:
        tiny.insert({"a": 1})
        tiny.table("people").insert_multiple([{"name": "Ann"}, {"name": "Bob"}])
    report = pellucid.import_from(path, db, verify=True)
    assert (report.format, report.tables) == ("tinydb", {"default": 1, "people": 2})
    assert dict(db.table("people")) == {1: {"name": "Ann"}, 2: {"name": "Bob"}}


def test_lmdb_with_named_databases(tmp_path: Path, db: pellucid.Database) -> None:
    import lmdb

    with lmdb.open(str(tmp_path / "lm"), max_dbs=2) as environment:
        people = environment.open_db(b"people")
        twice = environment.open_db(b"twice", dupsort=True)
        with environment.begin(write=True) as transaction:
            transaction.put(b"k", b"v")
            transaction.put(b"a", b'{"n": 1}', db=people)
            transaction.put(b"a", b"1", db=twice)
            transaction.put(b"a", b"2", db=twice)
    (tmp_path / "lm/lock.mdb").unlink()
    before = sorted(tmp_path.rglob("*"))
    assert pellucid.import_from(tmp_path / "lm", db, verify=True).rows == 3
    assert sorted(tmp_path.rglob("*")) == before
    assert (dict(db), dict(db.table("twice"))) == ({b"k": b"v"}, {b"a": [b"1", b"2"]})
    pellucid.import_from(tmp_path / "lm/data.mdb", db, format="lmdb", table="people", types="json")
    assert db.table("people")[b"a"].n == 1


def test_tables_of_sqlite(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "shop.sqlite"
    with sqlite3.connect(path) as connection:
        connection.executescript(
            """CREATE TABLE people (id INTEGER PRIMARY KEY, data JSON, note TEXT);
            INSERT INTO people VALUES (5, '{"a": [1]}', '{"a": 1}'), (6, NULL, 'x');
            CREATE TABLE sales (city, year, amount, PRIMARY KEY (city, year));
            INSERT INTO sales VALUES ('Bath', 2026, 1.5);
            CREATE TABLE log (line); INSERT INTO log VALUES ('a'), (x'00ff');
            CREATE VIEW v AS SELECT * FROM log;"""
        )
    connection.close()
    report = pellucid.import_from(path, db, verify=True)
    assert report.tables == {"log": 2, "people": 2, "sales": 1}
    assert db.table("people")[5] == {"id": 5, "data": {"a": [1]}, "note": '{"a": 1}'}
    assert list(db.table("sales")) == [("Bath", 2026)]
    assert [row.line for row in db.table("log").values()] == ["a", b"\x00\xff"]
    with pytest.raises(pellucid.SourceError, match="has no table 'x'; it has 'log', 'people', 'sales'"):
        pellucid.import_from(path, db, table="x")


def test_a_table_of_sqlite_in_use_is_read_in_one_state(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "busy.sqlite"
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("PRAGMA journal_mode=WAL")
    writer.execute("CREATE TABLE t (n)")
    writer.executemany("INSERT INTO t VALUES (?)", [(n,) for n in range(2000)])
    report = pellucid.import_from(path, db, progress=lambda *_: writer.execute("INSERT INTO t VALUES (1)"))
    writer.close()
    assert report.rows == 2000


def test_expired_and_foreign_files_of_a_cache_are_left_out(tmp_path: Path, db: pellucid.Database) -> None:
    import diskcache

    with diskcache.Cache(str(tmp_path / "cache"), cull_limit=0) as cache:
        cache.set("old", 1, expire=-1)
        cache["text"] = "z" * 100_000
        cache["bytes"] = b"z" * 100_000
        cache[(1, "x")] = 2
    (tmp_path / "secret").write_text("secret")
    with sqlite3.connect(tmp_path / "cache/cache.db") as connection:
        connection.execute("UPDATE Cache SET filename = '../secret' WHERE key = 'bytes'")
    connection.close()
    report = pellucid.import_from(tmp_path / "cache", db)
    assert (len(db["text"]), db[1, "x"], report.rows) == (100_000, 2, 2)
    reasons = {skipped.place: skipped.reason for skipped in report.skipped}
    assert reasons["key 'old'"] == "it has expired"
    assert "is not inside the folder" in reasons["key 'bytes'"]


TABLE = pyarrow.table({"n": [1, None], "at": [datetime.datetime(2000, 1, 31), None], "l": [[1], []]})


def write_stream(path: Path) -> None:
    with ipc.new_stream(path, TABLE.schema) as file:
        file.write_table(TABLE)


def write_arrow(path: Path) -> None:
    with ipc.new_file(path, TABLE.schema) as file:
        file.write_table(TABLE)


@pytest.mark.parametrize("write", [lambda path: parquet.write_table(TABLE, path), write_stream, write_arrow])
@pytest.mark.parametrize("verify", [False, True])
def test_columns(write: Callable[[Path], None], verify: bool, tmp_path: Path, db: pellucid.Database) -> None:
    write(tmp_path / "data")
    pellucid.import_from(tmp_path / "data", db, verify=verify)
    assert [row.to_dict() for row in db.values()] == TABLE.to_pylist()


def dicts_of_other_classes() -> dict[str, Any]:
    return {
        "plain": {"b": 1, "a": 2},
        "ordered": OrderedDict(b=1, a=[defaultdict(list, x=[1])]),
        "default": defaultdict(int, n=1),
        "counter": Counter("abba"),
        "many": {"at": (OrderedDict(z=1, a=2), 5)},
    }


def shelf_of_other_dicts(folder: Path) -> Path:
    with shelve.Shelf(importlib.import_module("dbm.dumb").open(folder / "shelf", "c")) as shelf:
        shelf.update(dicts_of_other_classes())
    return folder / "shelf"


def test_dicts_of_other_classes_become_plain_where_pickles_are_refused(
    tmp_path: Path, db: pellucid.Database
) -> None:
    report = pellucid.import_from(shelf_of_other_dicts(tmp_path), db, verify=True)
    assert (report.rows, report.skipped_count, report.made_dicts, report.verified) == (5, 0, 4, True)
    assert "4 rows got a dict in place of an OrderedDict, defaultdict or Counter" in str(report)
    for key, value in dicts_of_other_classes().items():
        stored = db[key].to_dict()
        assert stored == value
        assert (type(stored), list(stored)) == (dict, list(value))
    assert type(db["ordered"].to_dict()["a"][0]) is dict


def test_dicts_of_other_classes_stay_what_they_are_where_pickles_are_allowed(tmp_path: Path) -> None:
    db = pellucid.open(":memory:", pickle="allow")
    report = pellucid.import_from(shelf_of_other_dicts(tmp_path), db, verify=True)
    assert (report.rows, report.made_dicts) == (5, 0)
    assert "in place of" not in str(report)
    ordered = db["ordered"]
    assert ordered == dicts_of_other_classes()["ordered"]
    assert type(ordered) is OrderedDict
    assert type(ordered["a"][0]) is defaultdict
    assert ordered["a"][0].default_factory is list
    assert type(db["counter"]) is Counter


def test_a_row_that_is_refused_for_another_reason_is_skipped(tmp_path: Path, db: pellucid.Database) -> None:
    itself: Any = OrderedDict()
    itself["me"] = itself
    rows = {"itself": itself, "range": OrderedDict(a=list), "sound": OrderedDict(a=1)}
    (tmp_path / "rows.pickle").write_bytes(pickle.dumps(rows))
    report = pellucid.import_from(tmp_path / "rows.pickle", db)
    assert (report.rows, report.made_dicts) == (1, 1)
    assert [place for place, _ in report.skipped] == ["key 'itself'", "key 'range'"]


def test_a_pickle_may_name_the_class_of_a_default_but_not_call_it(
    tmp_path: Path, db: pellucid.Database
) -> None:
    calls_list = b"\x80\x04cbuiltins\nlist\n)R."
    (tmp_path / "rows.pickle").write_bytes(calls_list)
    with pytest.raises(pellucid.PickleDenied, match="calls a type"):
        pellucid.import_from(tmp_path / "rows.pickle", db)


def test_a_class_that_is_not_there_is_named_and_may_have_a_new_name(
    tmp_path: Path, db: pellucid.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = pickle.dumps(Counter("aab"), 4).replace(b"Counter", b"Tallies")
    (tmp_path / "old.pickle").write_bytes(data)
    with pytest.raises(pellucid.SourceError, match=r"rename_classes\(\{'collections\.Tallies'"):
        pellucid.import_from(tmp_path / "old.pickle", db, pickle="allow")
    monkeypatch.setattr("pellucid.renames._NEW", {})
    pellucid.rename_classes({"collections.Tallies": "collections.Counter"})
    report = pellucid.import_from(tmp_path / "old.pickle", db, pickle="allow")
    assert report.rows == 2
    assert dict(db.items()) == {"a": 2, "b": 1}


def test_a_data_frame_in_a_pickle_needs_leave(tmp_path: Path, db: pellucid.Database) -> None:
    import pandas

    frame = pandas.DataFrame({"a": [1, 2]})
    frame.to_pickle(tmp_path / "frame.pkl")
    with pytest.raises(pellucid.PickleDenied, match="its pickle wants 'pandas"):
        pellucid.import_from(tmp_path / "frame.pkl", db)
    pellucid.import_from(tmp_path / "frame.pkl", db, pickle="allow")
    assert db.column("a") == [1, 2]


def test_a_json_object_is_a_mapping_on_request(tmp_path: Path, db: pellucid.Database) -> None:
    big = {f"key {n}": {"n": n, "text": "x" * 100} for n in range(5000)}
    (tmp_path / "big.json").write_text(json.dumps(big))
    assert pellucid.import_from(tmp_path / "big.json", db, path="", verify=True).format == "json"
    assert db["key 4999"] == big["key 4999"]


@pytest.mark.parametrize(("text", "path"), [("[]", None), ("{}", ""), (" [ ] \n", None), ('{"a": []}', "a")])
def test_an_empty_json_file_has_no_rows(
    text: str, path: str | None, tmp_path: Path, db: pellucid.Database
) -> None:
    (tmp_path / "none.json").write_text(text)
    assert pellucid.import_from(tmp_path / "none.json", db, path=path).rows == 0


def test_a_stream_is_read_once() -> None:
    with pellucid.open(":memory:") as db:
        stream = io.BytesIO(b'{"a": 1}\n\n{"a": 2}')
        report = pellucid.import_from(stream, db)
        assert not stream.closed
        assert (report.rows, report.name) == (2, "the stream")
        with pytest.raises(ValueError, match="a stream can be read once"):
            pellucid.import_from(io.BytesIO(b'{"a": 1}'), db, verify=True)
        with pytest.raises(TypeError, match="open the file in binary mode"):
            pellucid.import_from(io.StringIO("{}"), db)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "name", "form"),
    [
        (b'{"a": 1}', "stdin", "json"),
        (b'{"a": 1}', "x.jsonl", "jsonl"),
        (b"[1, 2]\n[3]\n", "x.json", "jsonl"),
        (b"[1, 2]\n", "x.jsonl", "json"),
        (b'{"a": 1}', "x.json", "json"),
        (b'{"a": 1}\n{"a": 2}\n', "x.json", "jsonl"),
        (b'{"a": 1\n{"a": 2}\n', "stdin", "jsonl"),
        (b"[1, 2,\n 3]", "stdin", "json"),
        (b"[1, 2]", "stdin", "json"),
        (b'{\n "a": 1}', "stdin", "json"),
        (b'{"_default": {}}', "stdin", "tinydb"),
        (b'{"a": {}, "b": 1}', "x.json", "json"),
        (b'{"pets": {"1": {"a": 1}}}', "stdin", "tinydb"),
        (b"a;b\n1;2\n", "stdin", "csv"),
        (b"a\n1\n", "x.csv", "csv"),
        (b"\x80\x04K\x01.", "stdin", "pickle"),
    ],
)
def test_the_content_says_what_a_source_is(text: bytes, name: str, form: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(text)
    with pellucid.open(":memory:") as db:
        assert pellucid.import_from(tmp_path / name, db).format == form


def test_dates_are_read_only_on_request(tmp_path: Path, db: pellucid.Database) -> None:
    row = {
        "d": "2000-01-31",
        "t": ["2000-01-31T12:30:00.5Z", "2000-01-31 12:30"],
        "no": "2000-13-31",
        "s": "20000131",
    }
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    pellucid.import_from(tmp_path / "rows.jsonl", db, table="text")
    assert db.table("text")[0] == row
    pellucid.import_from(tmp_path / "rows.jsonl", db, table="dates", dates=True)
    at = datetime.datetime(2000, 1, 31, 12, 30, 0, 500_000, datetime.timezone.utc)
    assert db.table("dates")[0] == row | {
        "d": datetime.date(2000, 1, 31),
        "t": [at, datetime.datetime(2000, 1, 31, 12, 30)],
    }


def test_types_of_cells(tmp_path: Path, db: pellucid.Database) -> None:
    (tmp_path / "t.csv").write_text(
        'zip;n;ok;data;born\n1234;5;true;"{""a"":1}";2000-01-31\n7;x;;;\n', "utf-8"
    )
    types = {"zip": "text", "data": "json", "born": "date", "n": "int"}
    report = pellucid.import_from(tmp_path / "t.csv", db, types=types)
    assert db[0] == {"zip": "1234", "n": 5, "ok": True, "data": {"a": 1}, "born": datetime.date(2000, 1, 31)}
    assert report.skipped[0].place == "line 3"
    assert "field 'n'" in report.skipped[0].reason


def test_keys_of_rows(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "a", "n": 1}\n{"n": 2}\n{"id": [1]}\n{"id": "a", "n": 3}\n5\n')
    report = pellucid.import_from(path, db, key="id", verify=True)
    assert (dict(db), report.replaced) == ({"a": {"id": "a", "n": 3}}, 1)
    assert [skipped.place for skipped in report.skipped] == ["line 2", "line 5", "line 3"]


def test_rows_go_behind_those_that_are_there(tmp_path: Path, db: pellucid.Database) -> None:
    db.append({"n": 0})
    path = tmp_path / "rows.jsonl"
    path.write_text('{"n": 1}\n{"n": 2}\n')
    pellucid.import_from(path, db, verify=True)
    assert db.column("n") == [0, 1, 2]


def test_utf_16_and_marks_at_the_beginning(tmp_path: Path, db: pellucid.Database) -> None:
    (tmp_path / "a.csv").write_text("name,n\nRen\xe9,1\n", "utf-16")
    (tmp_path / "b.jsonl").write_text('{"name": "Ren\xe9"}\n{"name": "b"}\n', "utf-16")
    (tmp_path / "c.jsonl").write_text('{"name": "Ren\xe9"}\n', "utf-8-sig")
    (tmp_path / "d.csv").write_text("name,n\nRen\xe9,1\n", "latin-1")
    for name, encoding in (("a.csv", None), ("b.jsonl", None), ("c.jsonl", None), ("d.csv", "latin-1")):
        pellucid.import_from(tmp_path / name, db, encoding=encoding)
    assert db.column("name") == ["Ren\xe9", "Ren\xe9", "b", "Ren\xe9", "Ren\xe9"]


def test_without_msgspec_the_result_is_the_same(
    tmp_path: Path, db: pellucid.Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = others.write_json_lines(tmp_path)
    pellucid.import_from(path, db, table="fast")
    monkeypatch.setitem(__import__("sys").modules, "msgspec", None)
    pellucid.import_from(path, db, table="slow")
    assert same(list(db.table("fast").values()), list(db.table("slow").values()))


def test_a_large_file_goes_in_batches(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f'{{"n": {n}, "text": "{"x" * 100}"}}\n' for n in range(5000)))
    steps: list[tuple[int, float | None]] = []
    report = pellucid.import_from(
        path, db, batch=1500, verify=True, progress=lambda *step: steps.append(step)
    )
    assert (report.rows, db.sum("n"), steps[-1]) == (5000, sum(range(5000)), (5000, 1.0))
    assert pellucid.import_from(path, db, batch=1500, dry_run=True).rows == 5000
    assert len(db) == 5000


# As Python 2 wrote them: pickles of protocol 0, whose texts are bytes.
OF_PYTHON_2 = {
    b"int": b"I5\n.",
    b"d": b"(dp1\nS'a'\np2\n(lp3\nI1\naI2\nas.",
    b"l": b"(lp1\nI1\naF2.5\naNaI01\na.",
}
DATE_OF_PYTHON_2 = (
    b"cdatetime\ndatetime\np1\n(S'\\x07\\xe4\\x01\\x02\\x00\\x00\\x00\\x00\\x00\\x00'\np2\ntp3\nRp4\n."
)


def test_a_shelf_of_python_2_is_one(tmp_path: Path, db: pellucid.Database) -> None:
    dumb = importlib.import_module("dbm.dumb")
    with dumb.open(str(tmp_path / "two"), "c") as file:
        for key, value in OF_PYTHON_2.items():
            file[key] = value
    assert pellucid.import_from(tmp_path / "two", db).format == "shelve"
    assert dict(db) == {"int": 5, "d": {"a": [1, 2]}, "l": [1, 2.5, None, True]}
    with dumb.open(str(tmp_path / "two"), "c") as file:
        file[b"dt"] = DATE_OF_PYTHON_2
    report = pellucid.import_from(tmp_path / "two", db, table="ascii")
    assert (report.format, report.rows, report.skipped_count) == ("shelve", 3, 1)
    assert 'pass encoding="latin1"' in str(report)
    assert pellucid.import_from(tmp_path / "two", db, table="t", encoding="latin1").skipped_count == 0
    assert db.table("t")["dt"] == datetime.datetime(2020, 1, 2)


@pytest.mark.parametrize("values", [[b"text."], [b"Ann."], [b"N."], [b"5 apples."], [b"I5\n.", b"plain"]])
def test_texts_are_no_pickles(values: list[bytes], tmp_path: Path, db: pellucid.Database) -> None:
    with importlib.import_module("dbm.dumb").open(str(tmp_path / "d"), "c") as file:
        for number, value in enumerate(values):
            file[str(number)] = value
    assert pellucid.import_from(tmp_path / "d", db).format == "dbm"


@pytest.mark.parametrize("suffix", ["", ".dat", ".dir"])
def test_each_file_of_a_dumb_dbm_names_it(suffix: str, tmp_path: Path, db: pellucid.Database) -> None:
    # The first value begins as a pickle file does.
    with shelve.Shelf(importlib.import_module("dbm.dumb").open(str(tmp_path / "old"), "c")) as shelf:
        shelf.update({"int": 5, "d": {"a": [1, 2]}})
    assert pellucid.import_from(f"{tmp_path / 'old'}{suffix}", db).format == "shelve"
    assert dict(db) == {"int": 5, "d": {"a": [1, 2]}}
