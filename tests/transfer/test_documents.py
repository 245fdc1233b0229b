"""Are documents of JSON read alike, however their lines are broken and their files are called?"""

from __future__ import annotations

import gzip
import io
import json
import time
from pathlib import Path
from typing import Any

import pellucid
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pellucid.transfer.outgoing import plain

DOCUMENT = {"type": "FC", "features": [{"n": 1}, {"n": 2}], "deep": {"er": {"a": {"n": 3}, "b": {"n": 4}}}}


def rows_of(data: bytes, folder: Path, name: str = "a.json", **choices: Any) -> list[Any]:
    (folder / name).write_bytes(data)
    with pellucid.open(":memory:") as db:
        report = pellucid.import_from(folder / name, db, table="t", strict=True, **choices)
        assert report.rows == len(db.table("t"))
        return list(map(plain, db.table("t").values()))


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.geojson", "a"])
@pytest.mark.parametrize("indent", [None, 1])
def test_neither_white_space_nor_a_name_changes_the_rows(
    name: str, indent: int | None, tmp_path: Path
) -> None:
    one = json.dumps(DOCUMENT, indent=indent).encode()
    assert rows_of(one, tmp_path, name) == [DOCUMENT]
    assert rows_of(one + b"\n", tmp_path, name) == [DOCUMENT]
    assert rows_of(one + b"\n" + one, tmp_path, name) == [DOCUMENT] * 2
    assert rows_of(one + one, tmp_path, name) == [DOCUMENT] * 2
    array = json.dumps([DOCUMENT, 5], indent=indent).encode()
    assert rows_of(array, tmp_path, name) == [DOCUMENT, 5]
    assert rows_of(array + b"\n", tmp_path, name) == [DOCUMENT, 5]


@pytest.mark.parametrize("is_array", [True, False])
@pytest.mark.parametrize("size", [1, 200_000])
def test_a_pipe_gives_the_same_rows_as_a_file(size: int, is_array: bool, tmp_path: Path) -> None:
    value: Any = [{"text": "x" * size}, {"n": 1}] if is_array else {"text": "x" * size}
    data = json.dumps(value).encode() + b"\n"
    for source in (data, data + data):
        # The importer sees 64 KB of a pipe. Behind a longer line there may be others that it has not seen.
        form = "jsonl" if source is not data and size > 1 else None
        with pellucid.open(":memory:") as db:
            pellucid.import_from(io.BytesIO(source), db, table="t", format=form)
            piped = list(map(plain, db.table("t").values()))
        assert piped == rows_of(source, tmp_path, "a.jsonl")


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=5) | st.sampled_from(['"', "{", "}\n", "]", "\\", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.lists(
        st.tuples(st.dictionaries(st.text(max_size=3), values, max_size=3), st.sampled_from([None, 0, 2]))
    )
)
def test_values_that_follow_each_other_are_rows(documents: list[tuple[Any, int | None]]) -> None:
    data = "\n".join(json.dumps(value, indent=indent) for value, indent in documents).encode()
    with pellucid.open(":memory:") as db:
        assert pellucid.import_from(io.BytesIO(data + b"\n"), db, format="jsonl", strict=True).rows == len(
            documents
        )
        assert pellucid.dumps(list(db.values())) == pellucid.dumps([value for value, _ in documents])


def test_a_broken_line_between_values_of_several_lines_is_skipped(tmp_path: Path) -> None:
    text = '{"a": 1}\n{"b":\n2\n}\n{"broken": \nnot JSON\n{"c": 3} {"d": 4}\n{"e": 5} x\n[\n6\n]\n{"f"'
    (tmp_path / "a.jsonl").write_text(text)
    with pellucid.open(":memory:") as db:
        report = pellucid.import_from(tmp_path / "a.jsonl", db, verify=True)
        assert list(map(plain, db.values())) == [{"a": 1}, {"b": 2}, {"c": 3}, {"d": 4}, [6]]
    assert [skipped.place for skipped in report.skipped] == ["line 5", "line 6", "line 8", "line 12"]


def test_brackets_that_never_close_take_no_longer_than_their_size_is_a_reason_for(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n' + b"[\n" * 200_000)
    begun = time.process_time()
    with pellucid.open(":memory:") as db:
        assert pellucid.import_from(tmp_path / "a.jsonl", db).skipped_count == 200_000
    assert time.process_time() - begun < 20


def test_rows_under_a_name(tmp_path: Path) -> None:
    data = json.dumps(DOCUMENT).encode()
    assert rows_of(data, tmp_path, path="features") == [{"n": 1}, {"n": 2}]
    assert rows_of(data * 2, tmp_path, path=["features"]) == [{"n": 1}, {"n": 2}] * 2
    with pellucid.open(":memory:") as db:
        (tmp_path / "b.json").write_bytes(data)
        pellucid.import_from(tmp_path / "b.json", db, path="deep.er", verify=True)
        assert dict(db.items()) == {"a": {"n": 3}, "b": {"n": 4}}
    assert rows_of(b'{"a.b": [1, 2]}', tmp_path, path=["a.b"]) == [1, 2]
    assert rows_of(b'{"a": {"1": {"x": 1}}}', tmp_path, path="a") == [{"x": 1}]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("feature", "path= wants 'feature', and the object that ends here has 'type', 'features', 'deep'"),
        ("type", "path= wants an array or an object here, and found '\"'"),
        ("features.n", "path= wants an object with 'n' here, and found '['"),
    ],
)
def test_a_path_that_is_not_there_is_one_error(path: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(pellucid.SourceError) as error:
        rows_of(json.dumps(DOCUMENT).encode(), tmp_path, path=path)
    assert said in str(error.value)


def test_a_path_is_for_json(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"path= is for JSON, and a\.csv is csv"):
        rows_of(b"a,b\n1,2\n", tmp_path, "a.csv", path="a")


def test_a_document_that_seems_to_have_rows_is_one_row_and_the_report_says_how_to_get_them(
    tmp_path: Path,
) -> None:
    for document, said in (
        (DOCUMENT, "path='features' stores those under 'features'"),
        ({"a": {"n": 1}, "b": {"n": 2}}, 'path="" stores its values by their keys'),
    ):
        (tmp_path / "a.json").write_text(json.dumps(document))
        with pellucid.open(":memory:") as db:
            report = pellucid.import_from(tmp_path / "a.json", db)
        assert (report.rows, said in str(report)) == (1, True)


def test_ints_of_thousands_of_digits_are_read(tmp_path: Path) -> None:
    number = 7 * 10**20_000 + 1
    text = "7" + "0" * 19_999 + "1"
    for data in (f'{{"a": {text}}}\n{{"a": -{text}}}\n', f'[{{"a": {text}}},\n{{"a": -{text}}}]'):
        assert rows_of(data.encode(), tmp_path) == [{"a": number}, {"a": -number}]


def test_nul_bytes_in_a_text_are_no_reason_to_refuse_it(tmp_path: Path) -> None:
    # A log of a machine that lost its power.
    (tmp_path / "a.log").write_bytes(b'{"a": 1}\n' + b"\x00" * 4096 + b'\n{"a": 2}\n')
    with pellucid.open(":memory:") as db:
        report = pellucid.import_from(tmp_path / "a.log", db)
        assert (db.column("a"), [skipped.place for skipped in report.skipped]) == ([1, 2], ["line 2"])


TABLES = (
    '{"users": {"1": {"n": 1}, "20": {}}}',
    '{"_default": {}}',
    '{"empty": {}, "a \\"b\\"": {"0": {"n": 1}}}',
    '{"_default": {"3": {"4": {}}}, "users": {}}\n',
)
NO_TABLES = (
    '{"users": {"1": {"n": 1}}, "version": 3}',
    '{"users": {"1": {"n": 1}, "ann": {"n": 2}}}',
    '{"users": {"1": {"n": 1}, "2": 2}}',
    '{"users": {"01": {"n": 1}}}',
    '{"users": {"-1": {"n": 1}}}',
    '{"users": {"\u0661": {"n": 1}}}',
    '{"users": {"1": {"n": 1}}, "pets": [{"n": 2}]}',
    '{"users": {}}',
    '{"_default": []}',
    '{"1": {"n": 1}}',
)


@pytest.mark.parametrize("text", [*TABLES, *NO_TABLES])
@pytest.mark.parametrize("kind", ["file", "stream", "gzip"])
def test_only_an_object_of_numbered_objects_is_taken_for_tinydb(
    text: str, kind: str, tmp_path: Path, db: pellucid.Database
) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(gzip.compress(text.encode()) if kind == "gzip" else text.encode())
    if kind == "stream":
        with path.open("rb") as file:
            report = pellucid.import_from(file, db)
    else:
        report = pellucid.import_from(path, db)
    said = [note for note in report.notes if "taken for tables of TinyDB; format='json' reads it" in note]
    if text in TABLES:
        assert (report.format, len(said)) == ("tinydb", 1)
        names = {"default" if name == "_default" else name: rows for name, rows in json.loads(text).items()}
        assert {name: dict(db.table(name)) for name in names} == {
            name: {int(number): row for number, row in rows.items()} for name, rows in names.items()
        }
        assert pellucid.import_from(path, db, format="json").rows == 1
        assert not pellucid.import_from(path, db, format="tinydb").notes
    else:
        # What comes through a pipe may have more lines.
        assert (report.format, said) == ("jsonl" if kind == "stream" else "json", [])
        assert db.to_dicts() == [json.loads(text)]


@pytest.mark.parametrize("is_last", [False, True])
def test_what_is_no_table_of_tinydb_may_be_anywhere(is_last: bool, db: pellucid.Database) -> None:
    tables: dict[str, Any] = {"big": {str(number): {"text": "x" * 100} for number in range(3_000)}}
    tables |= {"last": {"x": {}}} if is_last else {}
    data = json.dumps(tables).encode()
    report = pellucid.import_from(io.BytesIO(data), db)
    assert (report.format, report.rows) == (("jsonl", 1) if is_last else ("tinydb", 3_000))


def test_a_damaged_file_of_tinydb_is_read_as_json(tmp_path: Path, db: pellucid.Database) -> None:
    path = tmp_path / "a.json"
    path.write_text('{\n "users": {"1": {"n": 1}},\n "pets": {"1"}\n}')
    with pytest.raises(pellucid.SourceError, match="line 3, column 14"):
        pellucid.import_from(path, db)


TWICE = (
    ("a.jsonl", '{"a": 1}\n{"a": 1, "b": {"x": 2, "x": 3}}\n{"a": 1, "a": 2}\n{"a": 1', "line 2", "x", 1),
    ("a.jsonl", '\n{"a": [{"b": 1,\n"b": 2}]} {"a": 1, "a": 2}\n', "line 2", "b", 0),
    ("a.json", '[{"a": 1},\n\n\n{"a": 1, "a": 2}]', "line 4", "a", 0),
    ("a.json", '{"a": {"1": {"n": 1, "n": 2}}}', "line 1", "n", 0),
    ("a.json", '[\n{"a": 1, "a": ' + "[]," * 40_000 + '"b": 0}]', "", "", 0),
    ("a.json", '[\n{"a": 1, "a": [' + "[]," * 40_000 + '0], "b": 0}]', "line 2", "a", 0),
)


@pytest.mark.parametrize(("name", "text", "place", "twice", "more"), TWICE)
def test_a_name_that_is_there_twice_is_noted_by_a_verification(
    name: str, text: str, place: str, twice: str, more: int, tmp_path: Path, db: pellucid.Database
) -> None:
    (tmp_path / name).write_text(text)
    if not place:
        with pytest.raises(pellucid.SourceError):
            pellucid.import_from(tmp_path / name, db, verify=True)
        return
    for types in (None, "text", "json"):
        report = pellucid.import_from(tmp_path / name, db, types=types, verify=True, dry_run=True)
        also = f", and so have {more} rows more" if more else ""
        expected = (
            f"{place}: an object has the name {twice!r} twice{also}; the last value of a name is stored"
        )
        assert report.notes[-1] == expected
        assert not [note for note in pellucid.import_from(tmp_path / name, db).notes if "twice" in note]


def test_a_path_that_is_there_twice_is_noted(db: pellucid.Database) -> None:
    data = b'{"a": {"rows": [1],\n"more": [],\n"rows": [2]}, "b": 0}'
    report = pellucid.import_from(io.BytesIO(data), db, path="a.rows")
    assert (db.to_list(), report.notes) == (
        [1],
        ["line 3: the name 'rows' of path= is there twice; the rows under the first one are stored"],
    )
    for broken in (b'{"a": {"1": {}}, "a": {"1": {}}}', b'{"a": {"1": {}}, "\\u0061": {"2": {}}}'):
        with pytest.raises(pellucid.SourceError, match="it has two tables 'a'"):
            pellucid.import_from(io.BytesIO(broken), db)


@pytest.mark.parametrize("name", ["a.json", "a.json.gz", "a.txt"])
def test_a_large_object_in_one_line_is_one_value(name: str, tmp_path: Path, db: pellucid.Database) -> None:
    towns = {str(number) + "x": {"name": "x" * 50} for number in range(3_000)}
    data = json.dumps(towns).encode()
    for end, form in ((b"", "json"), (b"\n \n", "json"), (b"\n{}", "jsonl")):
        (tmp_path / name).write_bytes(gzip.compress(data + end) if name.endswith(".gz") else data + end)
        report = pellucid.import_from(tmp_path / name, db, dry_run=True)
        assert (report.format, report.rows) == (form, 2 if form == "jsonl" else 1)
        # Only a file that is one object may have its rows in it.
        assert any('path="" stores its values by their keys' in note for note in report.notes) == (
            form == "json"
        )
    assert pellucid.import_from(io.BytesIO(data), db, dry_run=True).format == "jsonl"
