"""Does a stored list do what a list does?"""

from __future__ import annotations

import pellucid
import pytest

Database = pellucid.Database


def test_a_list_does_what_a_list_does(db: Database) -> None:
    db["l"] = [3, 1, 2]
    numbers = db["l"]
    numbers.append(0)
    numbers.extend(iter([9, 8]))
    numbers += [7]
    numbers.insert(1, "x")
    numbers.remove("x")
    numbers.sort()
    assert db["l"] == numbers == [0, 1, 2, 3, 7, 8, 9]
    numbers.reverse()
    numbers[1:3] = ["a"]
    numbers[::2] = ["p", "q", "r"]
    assert db["l"] == ["p", "a", "q", 2, "r", 0]
    del numbers[1]
    del numbers[-2:]
    assert numbers.pop() == 2
    assert numbers.pop(0) == "p"
    assert db["l"] == ["q"]
    numbers *= 3
    assert (numbers.index("q"), numbers.count("q"), "q" in numbers, "z" in numbers) == (0, 3, True, False)
    assert [*numbers, "z"] == ["q", "q", "q", "z"]
    assert ["z", *numbers] == ["z", "q", "q", "q"]
    assert numbers * 2 == ["q"] * 6
    assert list(reversed(numbers)) == ["q"] * 3
    with pytest.raises(ValueError, match="not in list"):
        numbers.remove("z")
    for wrong in (
        lambda: numbers[5],
        lambda: numbers[-4],
        lambda: numbers.pop(5),
        lambda: numbers.__setitem__(5, 1),
        lambda: numbers.__delitem__(5),
    ):
        with pytest.raises(IndexError):
            wrong()
    with pytest.raises(TypeError):
        numbers["a"]
    numbers.clear()
    assert db["l"] == []
    with pytest.raises(IndexError):
        numbers.pop()


def test_a_list_of_records_gives_records(db: Database) -> None:
    db["l"] = [{"n": 1}, {"n": 2}, [3], (4, [5])]
    rows = db["l"]
    assert [type(row) for row in rows] == [pellucid.Record, pellucid.Record, pellucid.RecordList, tuple]
    for row in rows[:2]:
        row.n *= 10
    rows[3][1].append(6)
    assert db["l"] == [{"n": 10}, {"n": 20}, [3], (4, [5, 6])]


def test_iterating_a_list_sees_what_is_appended_meanwhile(db: Database) -> None:
    db["l"] = [1, 2]
    numbers = db["l"]
    seen = []
    for number in numbers:
        seen.append(number)
        if len(seen) < 5:
            numbers.append(number + 2)
    assert seen == [1, 2, 3, 4, 5, 6]
