"""Does a copy have all that its source has, between files and servers?"""

from __future__ import annotations

import dataclasses
import datetime
import decimal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pellucid
import pytest
import servers
from pellucid import F

VALUES: dict[Any, Any] = {
    None: "none",
    True: 1,
    2: {"a": [1, {"b": None}], "nul": "\0"},
    3.0: ("tuple", 1),
    decimal.Decimal("4.50"): decimal.Decimal("1.10"),
    "text": datetime.date(2026, 1, 31),
    b"bytes": {"set": {1, 2, 3}, "nan": float("nan")},
    ("a", 1): b"x" * 100_000,
    "k" * 3000: "a long key",
    "l" * 4000: {"large": "y" * 5_000_000},
}


@dataclasses.dataclass
class Pet:
    name: str
    age: int


@pytest.fixture
def other(server: str) -> Iterator[str]:
    """The URL of another database on that server."""
    with servers.empty_database(server) as empty:
        yield empty


@pytest.fixture(params=["file to server", "server to file", "server to server", "file to file"])
def places(request: pytest.FixtureRequest, url: str, other: str, tmp_path: Path) -> tuple[str, str]:
    """A source and a target."""
    one, two = str(tmp_path / "one.pel"), str(tmp_path / "two.pel")
    kinds = {
        "file to server": (one, url),
        "server to file": (url, one),
        "server to server": (url, other),
        "file to file": (one, two),
    }
    return kinds[request.param]


def spelt(key: Any) -> str:
    return f"{type(key).__name__} {key!r}"


def contents(database: Any) -> dict[str, Any]:
    return {
        name: [
            (spelt(key), pellucid.dumps(value, pickle="allow")) for key, value in database.table(name).items()
        ]
        for name in database.tables()
    }


def indexes_of(table: Any) -> list[tuple[Any, ...]]:
    return [
        (i.name, repr(i.parts), repr(i.where), i.unique, len(table.index(i.name))) for i in table.indexes()
    ]


def test_a_copy_has_every_row_key_index_and_number(places: tuple[str, str]) -> None:
    source, target = places
    with pellucid.open(source, pickle="allow") as db:
        db.table("values").update(VALUES)
        people = db.table("people")
        people.update({n: {"name": f"p{n}", "age": n % 50, "tags": ["a", f"t{n % 3}"]} for n in range(3000)})
        people.create_index("age", F.age)
        people.create_index("name", F.name, unique=True, where=F.age > 3)
        people.create_index("tags", F.tags.each())
        log = db.table("log")
        log.extend(["a", "b", "c"])
        del log[2]
        db.table("pets", type=Pet)["rex"] = Pet("Rex", 3)
        db["complex"] = 1 + 2j
        db["exception"] = ZeroDivisionError("by zero")
        before, indexes = contents(db), indexes_of(people)
    seen: list[tuple[int, float | None]] = []
    report = pellucid.copy(
        source, target, verify=True, pickle="allow", progress=lambda *step: seen.append(step)
    )
    assert report.rows == sum(map(len, before.values()))
    assert report.verified
    assert seen[-1] == (report.rows, 1.0)
    with pellucid.open(target, pickle="allow") as db:
        assert contents(db) == before
        people = db.table("people")
        assert indexes_of(people) == indexes
        assert people.index("tags").count("t1") == 1000
        with pytest.raises(pellucid.UniqueError):
            people[5000] = {"name": "p10", "age": 10}
        assert db.table("log").append("d") >= 3
        assert db.table("pets", type=Pet)["rex"] == Pet("Rex", 3)
        assert db.check() == []


def test_rows_at_the_target_are_refused_unless_told_otherwise(places: tuple[str, str]) -> None:
    source, target = places
    with pellucid.open(source) as db:
        db.table("t").update({n: n for n in range(10)})
        db.table("empty")[1] = 1
        del db.table("empty")[1]
    with pellucid.open(target) as db:
        db.table("t").update({5: "other", 50: "own"})
        db.table("left")["a"] = 1
    with pytest.raises(ValueError, match="table 't' already"):
        pellucid.copy(source, target)
    pellucid.copy(source, target, existing="merge", verify=True)
    with pellucid.open(target) as db:
        assert dict(db.table("t")) == {n: n for n in range(10)} | {50: "own"}
    with pytest.raises(pellucid.DatabaseError, match="11 rows"):
        pellucid.copy(source, target, existing="resume", verify=True)
    pellucid.copy(source, target, existing="replace", verify=True)
    with pellucid.open(target) as db:
        assert dict(db.table("t")) == {n: n for n in range(10)}
        assert db.tables() == ["empty", "left", "t"]


def test_an_error_leaves_the_target_as_it_was(places: tuple[str, str]) -> None:
    source, target = places
    with pellucid.open(source) as db:
        db.table("a")[1] = 1
        db.table("b").update({n: n for n in range(3000)})

    def stop(rows: int, share: float | None) -> None:
        if rows > 100:
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        pellucid.copy(source, target, progress=stop)
    assert "://" in target or not Path(target).exists()
    with pellucid.open(target) as db:
        assert db.tables() == []


KILLED = """
import os, sys
import pellucid
def stop(rows, share):
    if rows > 2500:
        os._exit(9)
pellucid.transfer.progress.PAUSE_SECONDS = 0
pellucid.copy(sys.argv[1], sys.argv[2], batch=400, progress=stop)
"""


def test_a_killed_copy_in_batches_goes_on(places: tuple[str, str]) -> None:
    source, target = places
    with pellucid.open(source) as db:
        db.table("a").update({n: {"n": n} for n in range(1000)})
        db.table("b").update({("k", n): {"n": n} for n in range(3000)})
        db.table("b").create_index("n", F.n, unique=True)
    code = "import pellucid.transfer.progress" + KILLED
    assert subprocess.run([sys.executable, "-c", code, source, target], check=False).returncode == 9
    with pellucid.open(target) as db:
        assert len(db.table("a")) == 1000
        assert 0 < len(db.table("b")) < 3000
    report = pellucid.copy(source, target, batch=400, existing="resume", verify=True)
    assert 0 < report.rows < 3000
    with pellucid.open(target) as db:
        assert len(db.table("b")) == 3000
        assert db.table("b").index("n").count(2999) == 1


def test_a_copy_equals_a_snapshot_and_leaves_out_what_comes_later(url: str, path: Path) -> None:
    with pellucid.open(url) as db, pellucid.open(path) as file:
        db.table("t").update({n: n for n in range(3000)})

        def change(rows: int, share: float | None) -> None:
            db.table("t")[2999] = "changed"

        pellucid.copy(db, file, progress=change)
        assert file.table("t")[2999] == 2999


def test_verify_finds_a_row_that_differs(url: str, path: Path) -> None:
    with pellucid.open(url) as db, pellucid.open(path) as file:
        db.table("t").update({1: 1, 2: {"a": 1}})
        file.table("t").update({1: 1, 2: {"a": 1.0}})
        with pytest.raises(pellucid.DatabaseError, match="under key 2"):
            pellucid.copy(db, file, existing="resume", verify=True)


def test_what_cannot_be_copied_is_said(url: str, path: Path) -> None:
    with pellucid.open(path) as db:
        db["a"] = 1
        with pytest.raises(KeyError, match="has no table 'x'; it has 'default'"):
            pellucid.copy(db, url, tables=["x"])
        with pytest.raises(TypeError, match="list of names"):
            pellucid.copy(db, url, tables="x")
        with pytest.raises(ValueError, match="one database"):
            pellucid.copy(path, db)
        with pytest.raises(TypeError, match="not from a dict"):
            pellucid.copy({}, db)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="existing= has no 'x'"):
            pellucid.copy(db, url, existing="x")
        pellucid.copy(db, url)
    with pytest.raises(ValueError, match="one database"):
        pellucid.copy(url, url, existing="replace")
    with pellucid.open(url) as db:
        assert dict(db) == {"a": 1}


def test_the_command_takes_urls_and_shows_no_password(url: str, path: Path) -> None:
    with pellucid.open(path) as db:
        db.table("t").update({n: n for n in range(10)})
    secret = f"{url}&password=hunter2"
    command = [sys.executable, "-m", "pellucid", "copy", str(path), secret, "--verify"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "copied 10 rows in 1 table to postgresql://" in done.stdout
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 1
    assert "table 't' already" in again.stderr
    info = subprocess.run([*command[:3], "info", secret], capture_output=True, text=True, check=False)
    assert info.returncode == 0
    assert "server   postgresql://" in info.stdout
    for output in (done.stdout, done.stderr, again.stdout, again.stderr, info.stdout, info.stderr):
        assert "hunter2" not in output
