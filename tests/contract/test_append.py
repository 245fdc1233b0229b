"""Is a key that append gave once never given again?"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pellucid
import pytest

Database = pellucid.Database


def pop_last(table: Any) -> None:
    table.popitem()


WAYS: list[Callable[[Any], Any]] = [
    lambda table: table.__delitem__(4),
    lambda table: table.pop(4),
    pop_last,
    lambda table: table.where(pellucid.KEY == 4).delete(),
    lambda table: table.clear(),
    lambda table: [table.__delitem__(key) for key in list(table)],
    lambda table: [table.__delitem__(key) for key in reversed(list(table))],
    lambda table: table.where(pellucid.KEY >= 2).delete(),
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("is_indexed", [False, True])
def test_the_key_of_a_deleted_last_row_is_not_given_again(
    db: Database, way: Callable[[Any], Any], is_indexed: bool
) -> None:
    table = db.table("t")
    if is_indexed:
        table.create_index("by_n", "n")
    assert [table.append({"n": number}) for number in range(5)] == [0, 1, 2, 3, 4]
    way(table)
    assert table.append({"n": 5}) == 5
    table.extend([{"n": 6}, {"n": 7}])
    way_out = table.last()
    assert way_out is not None
    assert way_out[0] == 7
    table.clear()
    with db.transaction():
        assert table.append({"n": 8}) == 8
        del table[8]
        assert table.append({"n": 9}) == 9
        table.clear()
        assert table.extend([{"n": 10}]) == 1
    assert list(table) == [10]
    assert db.check() == []


def test_a_queue_and_a_stack_go_on_counting(db: Database) -> None:
    queue, stack = db.table("queue"), db.table("stack")
    for number in range(50):
        assert queue.append(number) == number
        assert stack.append(number) == number
        if number % 3:
            first = queue.first()
            assert first is not None
            del queue[first[0]]
            stack.popitem()
    for number in range(50, 60):
        queue.clear()
        stack.clear()
        assert queue.append(number) == stack.append(number) == number
    assert db.check() == []


def test_keys_that_were_set_count_too_as_far_as_append_could_give_them(db: Database) -> None:
    table = db.table("t")
    for key, next_key in [(-5, 0), (100, 101), (150.5, 151), (True, 152), ("a", 153), ((999,), 154)]:
        table[key] = "x"
        del table[key]
        assert table.append("y") == next_key


def test_numbers_too_great_for_an_int_are_forgotten_with_their_rows(db: Database) -> None:
    table = db.table("t")
    assert [table.append(number) for number in range(3)] == [0, 1, 2]
    for great in (2**70, 2**63 - 1, 1e300, float("inf")):
        table[great] = "x"
        del table[2]
        with pytest.raises(ValueError, match="append"):
            table.append("y")
        del table[great]
        assert table.append("y") == 3
        table[great] = "x"
        table.clear()
        assert table.append("y") == 4
        db.drop_table("t")
        table = db.table("t")
        table.extend([0, 1, 2])


def test_what_a_transaction_took_back_was_given_to_nobody(db: Database) -> None:
    table = db.table("t")
    table.extend([0, 1, 2])

    def take_back(key: int) -> None:
        with db.transaction():
            del table[key]
            assert table.append("x") == key + 1
            table.clear()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        take_back(2)
    assert table.append("y") == 3
    with db.transaction():
        with pytest.raises(ZeroDivisionError):
            take_back(3)
        del table[3]
        assert table.append("z") == 4
    assert list(table) == [0, 1, 2, 4]


def test_a_table_goes_on_under_another_name_and_begins_anew_when_it_was_dropped(db: Database) -> None:
    other = db.table("other")
    other.extend([0, 1])
    del other[1]
    table = db.table("t")
    table.extend([0, 1, 2])
    table.clear()
    db.rename_table("t", "u")
    assert db.table("u").append("x") == 3
    assert db.table("t").append("x") == 0
    db.drop_table("u")
    assert db.table("u").append("x") == 0
    assert other.append("x") == 2
    assert db.check() == []


def test_it_goes_on_in_the_file_its_copies_and_other_processes(path: Path, tmp_path: Path) -> None:
    with pellucid.open(path) as db:
        db.extend({"n": number} for number in range(5))
        db.create_index("by_n", "n")
        del db[4]
        backup = tmp_path / "backup.pel"
        db.backup(backup)
    with pellucid.open(backup) as copy:
        assert copy.append("x") == 5
    with pellucid.open(path) as db:
        db.compact()
        assert db.append("x") == 5
        del db[5]
        add = (
            f"import pellucid\nwith pellucid.open({str(path)!r}) as db:\n"
            "    key = db.append(1)\n    del db[key]\n    print(key)"
        )
        for expected in (6, 7):
            said = subprocess.run(
                [sys.executable, "-c", add], check=True, capture_output=True, text=True, timeout=60
            )
            assert int(said.stdout) == expected
        assert db.append("x") == 8
        db.clear()
    with pellucid.open(path, "n") as db:
        assert db.append("x") == 0
        assert db.check() == []


def test_deleting_what_was_appended_last_takes_the_same_time_again_and_again(db: Database) -> None:
    table = db.table("t")
    costs = []
    for start in range(0, 10_000, 1_000):
        began = time.process_time()
        for number in range(start, start + 1_000):
            assert table.append(number) == number
            del table[number]
        costs.append(time.process_time() - began)
    # Where each append walked over what was deleted before, the last ones took about ten times as long.
    assert min(costs[-3:]) < 4 * costs[0]
