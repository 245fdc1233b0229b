"""Does an argument of a wrong kind or with an unknown word raise an error that says what it takes?"""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import pellucid
import pytest

IMPORTS: list[tuple[str, list[Any]]] = [
    ("encoding", [5, b"utf-8", ["utf-8"]]),
    ("dialect", ["delimiter=,", 5, ["decimal"], [("decimal", ",")]]),
    ("types", [5, int, b"int", ["n"], [("n", "int")], {"n": int}, {5: "int"}, {"n": ["int"]}]),
    ("columns", ["n,x", b"n", 5, [1, 2], {"n": 1}]),
    ("path", [5, b"rows", [1], {"rows": 1}, {"rows"}]),
    ("table", [5, b"t", ["t"]]),
    ("key", [5, b"n", [1], [], {"n": 1}]),
    ("batch", ["5", 1.5, True]),
    ("pickle", [5, b"deny", [int]]),
    ("progress", ["yes", 5, []]),
]
EXPORTS: list[tuple[str, list[Any]]] = [
    ("table", [5, b"t", ["t"]]),
    ("key", [5, b"n", ["n"]]),
    ("where", [5, b"n > 1", ["n > 1"], {}]),
    ("select", [5, b"n", [5], {5: "n"}]),
    ("fields", [5, b"n", "n", [5], {"n": 1}]),
    ("progress", ["yes", 5]),
]
COPIES: list[tuple[str, list[Any]]] = [
    ("tables", [5, b"t", "t", [5]]),
    ("batch", ["5", 1.5, True]),
    ("pickle", [5, b"deny"]),
    ("progress", ["yes", 5]),
]
WORDS = ["foo", "", "hex", "rot13", "undefined", "idna", "utf\0"]


def each(arguments: list[tuple[str, list[Any]]]) -> list[tuple[str, Any]]:
    return [(name, value) for name, values in arguments for value in values]


@pytest.mark.parametrize(("name", "value"), each(IMPORTS))
def test_an_import_says_what_an_argument_takes(name: str, value: Any, tmp_path: Path) -> None:
    suffix = "json" if name == "path" else "csv"
    (tmp_path / f"a.{suffix}").write_text('{"rows": [{"n": 1}]}' if suffix == "json" else "n,x\n1,2\n")
    with pytest.raises(TypeError, match=rf"^{name}= is .*, and not "):
        pellucid.import_from(tmp_path / f"a.{suffix}", tmp_path / "a.pel", **{name: value})
    assert not (tmp_path / "a.pel").exists()


@pytest.mark.parametrize(("name", "value"), each(EXPORTS))
def test_an_export_says_what_an_argument_takes(name: str, value: Any, tmp_path: Path) -> None:
    db = pellucid.open(":memory:")
    db[0] = {"n": 1}
    for rows in (db, db.table("default"), db.where()):
        with pytest.raises(TypeError, match=rf"^{name}= is .*, and not "):
            pellucid.export_to(rows, tmp_path / "a.csv", **{name: value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "value"), each(COPIES))
def test_a_copy_says_what_an_argument_takes(name: str, value: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=rf"^{name}= is .*, and not "):
        pellucid.copy(pellucid.open(":memory:"), tmp_path / "a.pel", **{name: value})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["csv", "json", "jsonl"])
@pytest.mark.parametrize("word", WORDS)
def test_an_unknown_encoding_is_named(word: str, suffix: str, tmp_path: Path) -> None:
    (tmp_path / f"a.{suffix}").write_text("n,x\n1,2\n" if suffix == "csv" else '{"n": 1}')
    for choices in ({}, {"format": suffix}):
        with pytest.raises(ValueError, match=r'^encoding= has no \'.*such as "utf-8"'):
            pellucid.import_from(tmp_path / f"a.{suffix}", ":memory:", encoding=word, **choices)


def test_strings_of_python_2_may_become_bytes(tmp_path: Path) -> None:
    (tmp_path / "a.pickle").write_bytes(b"}U\x01aU\x02\xff\xfes.")
    db = pellucid.open(":memory:")
    pellucid.import_from(tmp_path / "a.pickle", db, encoding="bytes")
    assert dict(db) == {b"a": b"\xff\xfe"}
    (tmp_path / "a.pickle").write_bytes(pickle.dumps({"a": 1}))
    with pytest.raises(ValueError, match="encoding= has no 'bites'"):
        pellucid.import_from(tmp_path / "a.pickle", db, encoding="bites")


def test_an_unknown_policy_is_named() -> None:
    with pytest.raises(ValueError, match="pickle= has no 'yes'; it is"):
        pellucid.import_from(io.BytesIO(b"{}"), pellucid.open(":memory:"), pickle="yes")  # type: ignore[arg-type]


def test_iterators_of_names_are_taken(tmp_path: Path) -> None:
    db = pellucid.open(":memory:")
    db[0] = {"n": 1, "x": 2}
    for choice in ("fields", "select"):
        pellucid.export_to(db, file := io.BytesIO(), format="csv", **{choice: iter(["x"])})
        assert file.getvalue() == b"x\n2\n"
    assert pellucid.copy(db, tmp_path / "a.pel", tables=iter(["default"])).rows == 1


@pytest.mark.parametrize("target", [5, None, ["a.csv"], {}])
def test_an_export_says_what_a_target_is(target: Any) -> None:
    with pytest.raises(TypeError, match=r"^export_to\(\) writes to a path or a binary file, not to an? "):
        pellucid.export_to(pellucid.open(":memory:"), target)


def test_an_export_writes_bytes(tmp_path: Path) -> None:
    with (
        (tmp_path / "a.csv").open("w") as file,
        pytest.raises(TypeError, match=r"writes bytes; open the file in binary mode"),
    ):
        pellucid.export_to(pellucid.open(":memory:"), file, format="csv")  # type: ignore[arg-type]
