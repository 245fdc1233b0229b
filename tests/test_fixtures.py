"""Does every database that an earlier release wrote open, with all that it held?"""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import pellucid
import pytest
from kept_databases import compressed_tables, indexed_tables, place_rows, placed_tables, plain_tables
from pellucid import F
from processes import Child
from values import plain, same

FIXTURES = Path(__file__).parent.parent / "fixtures"
DATABASES = sorted(
    path.name.removesuffix(".gz") for kind in ("*.pel", "*.pel.gz") for path in FIXTURES.glob(kind)
)


def bring(name: str, folder: Path) -> Path:
    """A copy of a fixture, with its log if it has one."""
    for path in FIXTURES.glob(f"{name}*"):
        if path.suffix == ".gz":
            (folder / path.stem).write_bytes(gzip.decompress(path.read_bytes()))
        else:
            shutil.copy(path, folder)
    return folder / name


@pytest.fixture(params=DATABASES)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return bring(request.param, tmp_path)


def expected_of(path: Path) -> dict[str, dict[Any, Any]]:
    if path.name == "format-2-places.pel":
        return placed_tables()
    if path.name == "format-3.pel":
        return compressed_tables()
    return plain_tables() if path.name.startswith("format-1") else indexed_tables()


def assert_holds(db: pellucid.Database, expected: dict[str, dict[Any, Any]]) -> None:
    assert sorted(db.tables()) == sorted(expected)
    for name, rows in expected.items():
        table: Any = db.table(name)
        assert len(table) == len(rows)
        for key, value in rows.items():
            assert same(plain(table[key]), value), (name, key)
        assert {type(key) for key in table} == {type(key) for key in rows}


def assert_indexes_agree(people: Any) -> None:
    rows = people.to_dicts()
    assert people.index("by_email").get("p17@example.org") == rows[17]
    assert list(people.index("by_age").range(20, 30)) == sorted(
        (row for row in rows if 20 <= row["age"] < 30), key=lambda row: row["age"]
    )
    assert people.index("by_tag").count("t3") == sum("t3" in row["tags"] for row in rows)
    assert people.index("adults").count("Person 20") == sum(
        row["name"] == "Person 20" and row["age"] >= 18 for row in rows
    )
    in_bath = people.where(F.city == "Bath").order_by(F.age.desc()).column("age")
    assert in_bath == sorted((row["age"] for row in rows if row["city"] == "Bath"), reverse=True)


def test_a_database_of_an_earlier_release_holds_what_it_held(kept: Path) -> None:
    expected = expected_of(kept)
    with pellucid.open(kept, "r") as db:
        assert_holds(db, expected)
    with pellucid.open(kept) as db:
        assert_holds(db, expected)
        assert db.check() == []
        if "people" in expected:
            assert_indexes_agree(db.table("people"))


def test_a_database_of_an_earlier_release_can_be_written_to(kept: Path) -> None:
    expected = expected_of(kept)
    with pellucid.open(kept) as db:
        db.table("rows")[1].count += 1
        # The first files do not say that row 399 was there.
        key = db.table("rows").append({"n": 400})
        assert key == (400 if "places" in kept.name or "format-3" in kept.name else 399)
        if "people" in expected:
            people = db.table("people")
            people.append(
                {"name": "New", "age": 25, "email": "new@example.org", "city": "Bath", "tags": ["t3"]}
            )
            with pytest.raises(pellucid.UniqueError):
                people.append({"email": "NEW@example.org"})
        db.compact()
    with pellucid.open(kept, "r", untrusted=True) as db:
        assert (db.table("rows")[1].count, db.table("rows")[key].n) == (3, 400)
        if "people" in expected:
            assert_indexes_agree(db.table("people"))
        assert db.check() == []


def test_an_earlier_database_without_a_log_is_read_as_untrusted(kept: Path) -> None:
    if Path(f"{kept}-log").exists():
        with pytest.raises(pellucid.DatabaseError, match="log"):
            pellucid.open(kept, "r", untrusted=True)
        return
    with pellucid.open(kept, "r", untrusted=True) as db:
        assert_holds(db, expected_of(kept))


def test_the_tables_of_format_3_are_compressed(tmp_path: Path) -> None:
    with pellucid.open(bring("format-3.pel", tmp_path)) as db:
        assert all(db.table(name).stats()["compress"] for name in db.tables())
        for name in ("compressed", "people", "rows"):
            stats = db.table(name).stats()
            assert stats["compressed_rows"] > 0 < stats["dictionaries"], name
        assert db.table("compressed").stats()["dictionaries"] > 1


def test_a_log_of_format_1_is_replayed_and_then_takes_large_values(tmp_path: Path) -> None:
    path = bring("format-2-log.pel", tmp_path)
    log = Path(f"{path}-log")
    assert log.read_bytes()[8:16] == (1).to_bytes(8, "little")
    with Child(path) as child:
        assert log.read_bytes()[8:16] == (2).to_bytes(8, "little")
        child("db.table('new')[1] = b'x' * 300_000")
        child.kill()
    with pellucid.open(path) as db:
        assert db.table("new")[1] == b"x" * 300_000
        db.drop_table("new")
        assert_holds(db, indexed_tables())
        assert db.check() == []


def test_a_log_of_format_2_is_replayed_with_the_values_at_its_places(tmp_path: Path) -> None:
    path = bring("format-2-places.pel", tmp_path)
    log = Path(f"{path}-log").read_bytes()
    assert log[8:16] == (2).to_bytes(8, "little")
    # Where the last WAL record with a place ends (docs/internals/large-values.md).
    assert int.from_bytes(log[56 * 8 : 57 * 8], "little") > 0
    with pellucid.open(path, "r") as db:
        assert_holds(db, placed_tables())
    with pellucid.open(path) as db:
        assert db.stats()["blobs"] == 3
        places = db.table("places")
        places["record"].image = b"another" * 30_000
        assert db.check() == []
    with pellucid.open(path) as db:
        assert db.table("places")["record"].image == b"another" * 30_000
        assert db.table("places")["row"] == place_rows()["row"]
        assert db.check() == []
