"""Is a row that is written alone in its indexes, beside other writers and whatever it replaces?

Single puts, appends, field changes and deletes take their entries along without a transaction. The random
operations of `contract/test_indexes_model.py` go this way, too; here are several writers, and classes.
"""

from __future__ import annotations

import contextlib
import inspect
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import F, UniqueError
from pellucid._native import _testing
from processes import Child

INDEXES: dict[str, tuple[Any, dict[str, Any]]] = {
    "n": (F.n, {}),
    "one": (F.one, {"unique": True}),
    "both": ((F.text.desc(), F.n), {}),
    "tags": (F.tags.each(), {}),
    "lower": (F.text.lower(), {}),
    "some": (F.n, {"where": F.n < 3}),
}


def some_row(dice: random.Random) -> dict[str, Any]:
    """One of few values, so that they meet."""
    return {
        "n": dice.randrange(6),
        "one": dice.randrange(10_000),
        "text": dice.choice(["", "a", "A", "ab", "x" * 300, "y" * 600]),
        "tags": [dice.randrange(4) for _ in range(dice.randrange(4))],
    }


def write(table: Any, seed: int, count: int) -> int:
    """Write single rows, as a program does that knows of no other; return how many were refused."""
    dice = random.Random(seed)
    refused = 0
    for _ in range(count):
        key, kind = dice.randrange(30), dice.randrange(8)
        try:
            if kind == 0:
                table.append(some_row(dice))
            elif kind == 1:
                table.pop(key, None)
            elif kind in (2, 3):
                table[key] = some_row(dice)
            elif (record := table.get(key)) is None:
                pass
            elif kind == 4:
                record.text = dice.choice(["", "a", "b" * 400, None])
            elif kind == 5:
                record.one = dice.randrange(10_000) if dice.randrange(3) else 1
            else:
                record.n = dice.choice([0, 1, 7, 1.0, True, 2.5])
        except UniqueError:
            refused += 1
        except (KeyError, ReferenceError):
            pass  # another writer has deleted the row meanwhile
    return refused


WRITES = "import random\nfrom typing import Any\nfrom pellucid import UniqueError\n" + "".join(
    map(inspect.getsource, (some_row, write))
)
"""The same for another process."""


@pytest.fixture(params=["file", "compressed", "memory"])
def db(request: pytest.FixtureRequest, path: Path) -> Iterator[pellucid.Database]:
    is_compressed = request.param == "compressed"
    _testing.compress_all(is_compressed)
    # Commits soon leave the log, where rows are plain.
    _testing.limit_log(1 << 14 if is_compressed else 0)
    try:
        with pellucid.open(":memory:" if request.param == "memory" else path) as database:
            yield database
    finally:
        _testing.limit_log(0)
        _testing.compress_all(False)


def indexed(db: pellucid.Database) -> Any:
    table = db.table("t")
    for name, (parts, options) in INDEXES.items():
        table.create_index(name, parts, **options)
    return table


def check(db: pellucid.Database, table: Any) -> None:
    """Whether each index has what the rows come to, by `check` and by queries that use no index."""
    assert db.check() == []
    rows = {key: record.to_dict() for key, record in table.items()}
    assert len(table) == len(rows)
    assert len(table.index("n")) == len(table.index("one")) == len(rows)
    for n in range(8):
        assert sorted(table.where(n == F.n).keys()) == sorted(key for key in rows if rows[key]["n"] == n)
    for tag in range(4):
        wanted = sorted(key for key in rows if tag in rows[key]["tags"])
        assert sorted(table.where(F.tags.contains(tag)).keys()) == wanted
    ones = [record["one"] for record in rows.values()]
    assert len(ones) == len(set(ones)), "each is unique"


def test_threads_that_write_single_rows_leave_the_indexes_right(db: pellucid.Database) -> None:
    table = indexed(db)
    with ThreadPoolExecutor(4) as pool:
        refused = sum(pool.map(lambda seed: write(table, seed, 600), range(4)))
    assert refused > 0
    check(db, table)


def test_processes_that_write_single_rows_leave_the_indexes_right(path: Path) -> None:
    with pellucid.open(path) as db, Child(path) as other:
        table = indexed(db)
        table.append(some_row(random.Random(0)))
        other(WRITES)
        other("table = db.table('t')")
        for seed in range(5):
            other.send(f"write(table, {seed}, 500)")
            write(table, 100 + seed, 500)
            other.answer()
            check(db, table)


def test_a_process_that_is_killed_among_single_rows_leaves_the_indexes_right(path: Path) -> None:
    with pellucid.open(path) as db:
        table = indexed(db)
        for seed in range(8):
            with Child(path) as child:
                child(WRITES)
                child("table = db.table('t')")
                child.send(f"write(table, {seed}, 10**9)")
                write(table, 100 + seed, 200 + 100 * seed)
                child.kill()
            check(db, table)


def test_a_refused_value_leaves_row_and_entries_as_they_were(db: pellucid.Database) -> None:
    table = indexed(db)
    for number in range(3):
        table.append({"n": number, "one": number, "text": "a", "tags": [number]})
    record = table[1]
    before = {key: row.to_dict() for key, row in table.items()}
    taken = {"n": 9, "one": 0, "text": "b", "tags": [3]}
    for write in (
        lambda: table.append(taken),
        lambda: table.__setitem__(1, taken),
        lambda: table.__setitem__("new", taken),
        lambda: setattr(record, "one", 2),
        lambda: setattr(table[2], "one", 1.0),
    ):
        with pytest.raises(UniqueError, match="one"):
            write()
        assert {key: row.to_dict() for key, row in table.items()} == before
        assert table.where(F.n == 9).count() == table.where(F.tags.contains(3)).count() == 0
    assert record.one == 1
    # What a row gives up, another one may have.
    record.one = 7
    table[2].one = 1
    del table[0]
    table["new"] = taken
    assert [key for _, key in table.index("one")] == ["new", 2, 1]
    assert db.check() == []


def test_a_field_that_changes_its_type_goes_to_another_place_in_its_index(db: pellucid.Database) -> None:
    table = db.table("t")
    table["row"] = {"v": 1, "more": 5}
    table.create_index("v", F.v)
    table["first"] = {"v": 0, "more": 5}
    for value, code in [(2, 2), (2.0, 2), (True, 1), (None, None), ("text", "text"), ({"a": 1}, ...), (3, 3)]:
        table["row"].v = value
        table["other"] = {"v": value}
        for key in ("row", "other"):
            found = [entry for entry, of in table.index("v") if of == key]
            assert found == ([] if code is ... else [code])
            assert [type(entry) for entry in found] == ([] if code is ... else [type(value)]), (
                "as it is spelled"
            )
        del table["other"]
        assert db.check() == []


@dataclass
class Person:
    name: str
    age: int


def test_instances_written_alone_are_in_their_indexes(db: pellucid.Database) -> None:
    table = db.table("people", type=Person)
    table["ann"] = Person("Ann", 30)
    table.create_index("age", F.age)
    table.create_index("name", F.name, unique=True)
    for number in range(20):
        table.append(Person(f"p{number}", number % 3))
    with pytest.raises(UniqueError):
        table["bob"] = Person("Ann", 3)
    table["ann"] = Person("Ann", 2)
    del table[0]
    assert table.index("age").count(2) == 7
    assert table.index("name").get("Ann") == Person("Ann", 2)
    assert db.check() == []


def test_who_watches_is_told_of_single_rows_once(db: pellucid.Database) -> None:
    table = indexed(db)
    row = {"n": 1, "one": 1, "text": "a", "tags": [1]}
    table["first"] = {**row, "one": 0}
    watch = db.watch(timeout=0)
    table["a"] = row
    table["a"].n = 2
    with contextlib.suppress(UniqueError):
        table["b"] = row
    table.append({**row, "one": 2})
    del table["a"]
    told = [(change.table, change.kind, change.key) for change in watch]
    assert told == [("t", "put", "a"), ("t", "put", "a"), ("t", "put", 0), ("t", "delete", "a")]
