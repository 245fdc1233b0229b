"""Does `update` store what it is given, whether it copies new rows or replaces those that are there?"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pellucid
import pytest
from pellucid import F
from pellucid.errors import Busy, UniqueError
from pellucid.postgres import session, transaction

MANY = 6_000
"""More than one batch."""


@pytest.fixture
def db(url: str) -> Iterator[Any]:
    with pellucid.open(url) as database:
        yield database


@pytest.fixture
def copied(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what is copied."""
    sizes: list[int] = []
    copy = transaction.Running.copy

    def noted(self: Any, statement: bytes, rows: bytes) -> None:
        sizes.append(len(rows))
        copy(self, statement, rows)

    monkeypatch.setattr(transaction.Running, "copy", noted)
    return sizes


def rows(start: int, stop: int, mark: int) -> dict[Any, Any]:
    return {number: {"n": number, "mark": mark, "tags": [number % 7]} for number in range(start, stop)}


def test_new_rows_are_copied_and_others_replaced(db: Any, copied: list[int]) -> None:
    table = db.table("t")
    table.create_index("n", F.n)
    table.create_index("tags", F.tags.each())
    table.update(rows(0, MANY, 1))
    assert len(copied) == 2
    table.update(rows(0, MANY, 2))
    # The first batch of these is new, and the second is not.
    table.update(rows(-MANY, 10, 3))
    assert len(copied) == 3
    table.update(rows(MANY, MANY + 10, 4))
    assert len(copied) == 3, "a few rows are stored at once"
    expected = rows(0, MANY, 2) | rows(-MANY, 10, 3) | rows(MANY, MANY + 10, 4)
    assert dict(table.items()) == expected
    assert [row.n for row in table.index("n").range(-5, 5)] == list(range(-5, 5))
    assert table.index("tags").count(3) == sum(key % 7 == 3 for key in expected)
    assert not db.check()


def test_of_two_rows_under_one_key_the_later_is_stored(db: Any, copied: list[int]) -> None:
    table = db.table("t")
    pairs = [(number % 300, {"n": number}) for number in range(1_000)]
    spelled = [(1.0, {"n": "spelled"}), (True, {"n": "again"})]
    table.update([(1, {"n": "first"}), *pairs[2:], *spelled])
    assert len(copied) == 1
    expected = {1: {"n": "first"}} | dict(pairs[2:]) | dict(spelled)
    assert dict(table.items()) == expected
    assert str(sorted(table)) == str(sorted(expected))


def test_rows_that_another_client_stores_meanwhile_are_a_conflict(url: str, db: Any) -> None:
    table = db.table("t")
    table["first"] = {"n": 0}

    def others() -> None:
        with pellucid.open(url) as other:
            other.table("t")[7] = {"n": "theirs"}

    def store() -> None:
        with db.transaction():
            assert len(table) == 1
            thread = threading.Thread(target=others)
            thread.start()
            thread.join()
            table.update(rows(0, 500, 1))

    with pytest.raises(Busy, match="another client"):
        store()
    assert dict(table.items()) == {"first": {"n": 0}, 7: {"n": "theirs"}}
    done = []

    def again() -> None:
        table.update(rows(0, 500, len(done)))
        done.append(True)

    db.run(again)
    assert len(table) == 501


def test_a_value_that_is_not_unique_is_refused_and_nothing_stored(db: Any, copied: list[int]) -> None:
    table = db.table("t")
    table.create_index("n", F.n, unique=True)
    with pytest.raises(UniqueError):
        table.update({**rows(0, 500, 1), "other": {"n": 3}})
    assert len(table) == 0
    table.update(rows(0, 500, 1))
    assert not copied


def test_statements_behind_a_refused_one_can_be_made_again(db: Any) -> None:
    # The driver prepares a statement that comes often, and a refused batch skips that.
    table = db.table("t")
    table.create_index("slots", F.slot, unique=True)
    table.update({number: {"slot": number} for number in range(12)})
    for before in range(12):
        for number in range(before):
            with db.transaction():
                table[number] = {"slot": number, "before": before}
        for _ in range(3):
            with pytest.raises(pellucid.UniqueError), db.transaction():
                table[1] = {"slot": 0}
    assert [row.get("before") for row in table.values()] == [11] * 11 + [None]


def test_a_counter_that_is_known_takes_one_statement(
    url: str, db: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = db.table("t")
    table["a"] = {"text": "x", "n": 0}
    assert [table.increment("a", "n") for _ in range(2)] == [1, 2]
    statements: list[bytes] = []
    rows_of = session.Session.rows

    def noted(self: Any, statement: bytes, parameters: Any = ()) -> Any:
        statements.append(statement)
        return rows_of(self, statement, parameters)

    monkeypatch.setattr(session.Session, "rows", noted)
    monkeypatch.delattr(session.Session, "inlined")
    assert [table.increment("a", "n", by) for by in (-300, 7)] == [-298, -291]
    assert len(statements) == 2
    with pellucid.open(url) as other:
        assert other.table("t")["a"] == {"text": "x", "n": -291}


def test_large_values_among_many_rows_are_stored(db: Any) -> None:
    table = db.table("t")
    given = rows(0, 1_000, 1)
    given[500]["data"] = b"x" * 100_000
    given["x" * 3_000] = {"n": "under a long key"}
    table.update(given)
    assert dict(table.items()) == given
