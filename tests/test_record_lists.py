"""Does a stored list do what a list does?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

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


# ---- A kept element, after its list has changed ---------------------------------------------------

PARTS = [{"name": name, "count": 1} for name in "abc"]

#: What takes `b` from its index in a list.
SHIFTS: dict[str, Callable[[Any], object]] = {
    "del": lambda parts: parts.__delitem__(0),
    "pop": lambda parts: parts.pop(0),
    "remove": lambda parts: parts.remove({"name": "a", "count": 1}),
    "insert": lambda parts: parts.insert(0, {"name": "x"}),
    "slice": lambda parts: parts.__setitem__(slice(0, 2), [{"name": "x"}]),
    "clear": lambda parts: parts.clear(),
    "reverse": lambda parts: parts.__setitem__(slice(0, 2), [parts[1], parts[0]]),
    "sort": lambda parts: parts.sort(key=lambda part: part["name"], reverse=True) or parts.insert(0, 0),
}


@pytest.fixture(params=["the same handle", "another handle", "a transaction"])
def parts_elsewhere(request: pytest.FixtureRequest, db: Database) -> Iterator[tuple[Any, Any]]:
    """A handle on a list of parts, and one through which it is changed."""
    db["r"] = {"parts": PARTS, "tags": ["t"]}
    here = db["r"].parts
    if request.param == "a transaction":
        with db.transaction():
            yield here, db["r"].parts
    else:
        yield here, here if request.param == "the same handle" else db["r"].parts


@pytest.mark.parametrize("shift", SHIFTS.values(), ids=SHIFTS)
def test_a_change_never_goes_to_another_element(
    db: Database, parts_elsewhere: tuple[Any, Any], shift: Callable[[Any], object]
) -> None:
    here, elsewhere = parts_elsewhere
    second = here[1]
    shift(elsewhere)
    stored = db["r"].to_dict()
    for change in (
        lambda: setattr(second, "count", 2),
        lambda: setattr(second, "count", "a longer value"),
        lambda: setattr(second, "new", None),
        lambda: delattr(second, "count"),
        lambda: second.pop("count"),
        lambda: second.update(count=5, name="z"),
    ):
        with pytest.raises(KeyError, match=r"read it again|no longer there"):
            change()
    assert db["r"] == stored
    if len(elsewhere) > 1:
        db["r"].parts[1]["count"] = 7
        assert db["r"].parts[1]["count"] == 7


def test_an_element_stays_while_others_come_behind_it(db: Database) -> None:
    db["r"] = {"parts": PARTS}
    first = db["r"].parts[0]
    again = db["r"].parts
    again.append({"name": "d"})
    del again[2]
    again[1]["count"] = "another value, that needs more room"
    db["r"].title = "changed elsewhere"
    first.count += 1
    first.note = "a new field"
    first.count += 1
    assert db["r"].parts[0] == {"name": "a", "count": 3, "note": "a new field"}


def test_an_index_means_what_its_user_saw(db: Database) -> None:
    db["l"] = [1, 2, 3, 4]
    seen = db["l"]
    del db["l"][0]
    for change in (
        lambda: seen.__delitem__(2),
        seen.pop,
        lambda: seen.remove(3),
        lambda: seen.insert(2, 0),
        lambda: seen.__setitem__(1, 0),
        lambda: seen.__setitem__(slice(1, 3), []),
        seen.sort,
    ):
        with pytest.raises(
            KeyError, match=r"the list of record .*'l.* of table .* has other elements.*read it again"
        ):
            change()
    seen.append(5)
    assert db["l"] == [2, 3, 4, 5]


def test_a_loop_that_removes_what_it_stands_on_hits_no_other(db: Database) -> None:
    db["r"] = {"parts": PARTS}
    for part in db["r"].parts:
        if part.name == "a":
            db["r"].parts.remove(part)
            with pytest.raises(KeyError, match=r"the list at \[\"parts\"\] of record .*r.*"):
                part.count = 9
    assert db["r"].parts == PARTS[1:]


def test_an_element_in_a_dict_with_other_keys(db: Database) -> None:
    db["r"] = {1: [{"n": 1}, {"n": 2}], "s": [{"n": 3}, {"n": 4}]}
    one, other = db["r"][1][1], db["r"]["s"][1]
    one.n = other.n = "longer than it was"
    one.n = other.n = "longer again, which needs another layout"
    del db["r"]["s"][0], db["r"][1][0]
    for element in (one, other):
        with pytest.raises(KeyError, match="read it again"):
            element.n = 5
    assert db["r"][1] == db["r"]["s"] == [{"n": "longer again, which needs another layout"}]


def test_an_element_is_read_anew_after_a_rollback(db: Database) -> None:
    db["r"] = {"parts": PARTS}
    kept = db["r"].parts
    transaction = db.transaction()
    transaction.__enter__()
    del kept[0]
    first = kept[0]
    assert first.name == "b"
    transaction.__exit__(ValueError, ValueError(), None)
    with pytest.raises(KeyError, match="read it again"):
        first.count = 3
    assert db["r"].parts == PARTS
    kept[0].count = 2
    assert db["r"].parts[0] == {"name": "a", "count": 2}


def test_an_element_of_a_detached_list() -> None:
    parts = (
        pellucid.loads(pellucid.dumps({"parts": PARTS})),
        pellucid.view(pellucid.dumps({"parts": PARTS})).copy(),
    )
    assert parts[0] == parts[1]
    second = parts[1].parts[1]
    del parts[1].parts[0]
    with pytest.raises(KeyError, match=r"the list at \[\"parts\"\] of this record"):
        second.count = 2
    assert parts[1].parts == PARTS[1:]


def test_an_iterator_that_came_to_the_end_stays_there(db: Database) -> None:
    db["l"] = [1]
    for numbers in (db["l"], db["l"].copy()):
        at_end, before_end, backwards = iter(numbers), iter(numbers), reversed(numbers)
        assert list(at_end) == [1]
        assert list(backwards) == [1]
        numbers.append(2)
        assert list(at_end) == list(backwards) == []
        assert list(before_end) == [1, 2]
