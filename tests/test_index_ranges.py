"""Holds loops over an index's range to a dict: rows are looked up some at a time, from all over the table."""

from __future__ import annotations

import random
import sys
from typing import TYPE_CHECKING, Any

import pellucid
import pytest
from pellucid import F

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

COUNT = 5_000


def rows(seed: int) -> dict[str, dict[str, Any]]:
    """Rows under random keys: neighbours in the index are not in the table, and some keys are hashed."""
    chance = random.Random(seed)
    numbers = chance.sample(range(COUNT), COUNT)
    sizes = [7] * 20 + [600]
    keys = [f"{chance.getrandbits(48):0{chance.choice(sizes)}}" for _ in numbers]
    return {
        key: {"number": number, "text": "x" * chance.randrange(90)}
        for key, number in zip(keys, numbers, strict=True)
    }


@pytest.fixture(scope="module")
def expected() -> dict[str, dict[str, Any]]:
    return rows(1)


@pytest.fixture
def db(tmp_path: Path, expected: dict[str, dict[str, Any]]) -> Iterator[pellucid.Database]:
    path = tmp_path / "rows.pel"
    with pellucid.open(path) as new:
        made = new.table("rows")
        made.create_index("number", F.number)
        made.update(expected)
    with pellucid.open(path) as found:
        yield found


@pytest.fixture
def table(db: pellucid.Database) -> pellucid.Table[Any]:
    return db.table("rows")


def in_order(expected: dict[str, dict[str, Any]], start: int, stop: int) -> list[dict[str, Any]]:
    found = [row for row in expected.values() if start <= row["number"] < stop]
    return sorted(found, key=lambda row: row["number"])


def plain(found: Any) -> list[dict[str, Any]]:
    return [dict(row) for row in found]


RANGES = [(0, COUNT), (17, 18), (17, 19), (100, 1_100), (COUNT - 3, COUNT + 9), (9, 9)]


@pytest.mark.parametrize(("start", "stop"), RANGES)
def test_the_rows_of_a_range_come_in_the_order_of_the_index(
    table: pellucid.Table[Any], expected: dict[str, dict[str, Any]], start: int, stop: int
) -> None:
    wanted = in_order(expected, start, stop)
    index = table.index("number")
    assert plain(index.range(start, stop)) == wanted
    assert plain(index.range(start, stop, reverse=True)) == wanted[::-1]
    within = table.where(F.number >= start, F.number < stop)
    assert plain(within.order_by(F.number)) == wanted
    by_key = sorted(key for key, row in expected.items() if start <= row["number"] < stop)
    assert plain(within) == [expected[key] for key in by_key]
    assert list(within.keys()) == by_key


def test_changes_that_wait_in_the_log_are_seen(
    table: pellucid.Table[Any], expected: dict[str, dict[str, Any]]
) -> None:
    now = dict(expected)
    for key in list(expected)[::7]:
        table[key].text = "changed"
        now[key] = {**now[key], "text": "changed"}
    for key in list(expected)[3::11]:
        del table[key]
        del now[key]
    assert plain(table.index("number").range(0, COUNT)) == in_order(now, 0, COUNT)


def test_a_walk_stays_with_its_snapshot(
    table: pellucid.Table[Any], expected: dict[str, dict[str, Any]]
) -> None:
    walk = iter(table.index("number").range(0, COUNT))
    first = [dict(next(walk)) for _ in range(10)]
    table.clear()
    table.update(rows(2))
    assert first + plain(walk) == in_order(expected, 0, COUNT)


def test_a_walk_in_a_transaction_misses_what_it_deletes_on_the_way(
    db: pellucid.Database, table: pellucid.Table[Any], expected: dict[str, dict[str, Any]]
) -> None:
    keys = {row["number"]: key for key, row in expected.items()}
    seen = []
    with db.transaction():
        table[keys[0]].text = "the transaction has changes"
        for row in table.index("number").range(0, 300):
            seen.append(row.number)
            if row.number % 2 == 0 and row.number < 299:
                del table[keys[row.number + 1]]
    assert seen == list(range(0, 300, 2))


def test_a_loop_makes_no_record_for_each_row(table: pellucid.Table[Any]) -> None:
    # An iterator that uses its records again holds them, beside the loop.
    by_scan = {sys.getrefcount(row) for row in table.values()}
    assert {sys.getrefcount(row) for row in table.index("number").range(100, 1_100)} == by_scan
    assert {sys.getrefcount(row) for row in table.where(F.number >= 100, F.number < 1_100)} == by_scan


def test_a_record_that_is_kept_does_not_change(
    table: pellucid.Table[Any], expected: dict[str, dict[str, Any]]
) -> None:
    wanted = in_order(expected, 0, 300)
    rows = table.index("number").range(0, 300)
    kept = [row for number, row in enumerate(rows) if number % 3 == 0]
    assert plain(kept) == wanted[::3]
    # Two steps later, and only some of it: an iterator over its fields, and a nested value.
    table.update({key: {**row, "in": {"n": [row["number"]]}} for key, row in expected.items()})
    parts = [(iter(row), row["in"].n) for row in table.index("number").range(0, 300)]
    assert [(list(names), list(inner)) for names, inner in parts] == [
        (["number", "text", "in"], [number]) for number in range(300)
    ]


def test_a_record_that_the_loop_changes_keeps_its_change(table: pellucid.Table[Any]) -> None:
    changed = []
    for row in table.index("number").range(0, 200):
        if row.number % 2:
            row.text = f"changed {row.number}"
            changed.append(row.number)
        elif row.number % 10 == 0:
            row["more"] = row.number
    assert changed == list(range(1, 200, 2))
    for row in table.index("number").range(0, 200):
        assert (row.text == f"changed {row.number}") == bool(row.number % 2)
        assert row.get("more") == (row.number if row.number % 10 == 0 else None)


def test_keys_of_a_loop_are_those_of_its_rows(
    table: pellucid.Table[Any], expected: dict[str, dict[str, Any]]
) -> None:
    found = {}
    for row in table.where(F.number < 500):
        row.text = row.text + "!"
        found[row.number] = row.text
    by_number = {row["number"]: key for key, row in expected.items()}
    for number, text in found.items():
        assert table[by_number[number]].text == text == expected[by_number[number]]["text"] + "!"
