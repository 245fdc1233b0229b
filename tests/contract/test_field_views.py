"""Are the values and items of a record made one by one, and all from the state at the start?"""

from __future__ import annotations

import gc
import weakref
from contextlib import suppress
from typing import Any

import numpy
import pellucid
import pytest
from values import plain

BIG = "x" * 100_000


@pytest.fixture
def db() -> pellucid.Database:
    return pellucid.open(":memory:")


@pytest.mark.parametrize("view", ["values", "items"])
def test_a_loop_has_one_part_alive_at_a_time(view: str, db: pellucid.Database) -> None:
    db["a"] = {f"part{number}": {"n": number} for number in range(10_000)}
    iterator = iter(getattr(db["a"], view)())
    before = len(gc.get_objects())
    kept = next(iterator)
    assert len(gc.get_objects()) - before < 100
    assert plain(kept if view == "values" else kept[1]) == {"n": 0}
    assert sum(1 for _ in iterator) == 9_999
    assert next(iterator, None) is None


def test_all_elements_come_from_the_state_at_the_start(db: pellucid.Database) -> None:
    before = {"a": 1, "b": "x" * 10_000, "c": (1, 2), 5: {7}, "d": None}
    for change in (
        lambda record: record.clear(),
        lambda record: record.update(a=2, b="small", z=1),
        lambda record: db.__setitem__("r", {"other": 1}),
        lambda record: db.clear(),
    ):
        db["r"] = before
        record = db["r"]
        items, values = iter(record.items()), iter(record.values())
        first = [next(items), next(values)]
        change(record)
        assert [first[0], *items] == list(before.items())
        assert [first[1], *values] == list(before.values())


def test_a_large_value_that_is_gone_is_not_made_up(db: pellucid.Database) -> None:
    db["r"] = {"a": 1, "b": BIG}
    items = iter(db["r"].items())
    snapshot = db.snapshot()
    old = iter(snapshot["r"].items())
    db["r"] = {"a": 2}
    assert next(items) == ("a", 1)
    with pytest.raises(pellucid.StaleRecord, match="a large value"):
        next(items)
    assert list(old) == [("a", 1), ("b", BIG)]


def test_a_loop_may_change_the_record(db: pellucid.Database) -> None:
    db["r"] = {f"f{number}": number for number in range(100)}
    record = db["r"]
    for name, value in record.items():
        record[name] = value + 1
        if value % 2:
            del record[name]
    assert plain(db["r"]) == {f"f{number}": number + 1 for number in range(0, 100, 2)}


def test_a_change_that_is_rolled_back_ends_no_loop(db: pellucid.Database) -> None:
    db["r"] = {"a": 1, "b": 2, "c": 3}
    seen = []
    with suppress(LookupError), db.transaction():
        record = db["r"]
        record.b = 20
        values = iter(record.values())
        seen.append(next(values))
        raise LookupError
    assert [*seen, *values] == [1, 20, 3]
    assert plain(db["r"]) == {"a": 1, "b": 2, "c": 3}


def test_a_closed_database_ends_the_loop() -> None:
    db = pellucid.open(":memory:")
    db["r"] = {"a": 1, "b": 2}
    values = iter(db["r"].values())
    assert next(values) == 1
    db.close()
    with pytest.raises(pellucid.StaleRecord):
        next(values)


class Asks:
    """An object whose reading asks for the next value of the loop that reads it."""

    values: Any = None
    seen: list[Any]


def decode(number: int) -> int:
    if Asks.values is not None:
        Asks.seen.append(next(Asks.values, None))
    return number


def test_the_code_that_makes_a_value_may_ask_for_the_next_one(db: pellucid.Database) -> None:
    pellucid.register(Asks, lambda _: 0, decode)
    db["r"] = {"a": Asks(), "b": 2, "c": Asks(), "d": 4}
    Asks.seen = []
    Asks.values = iter(db["r"].values())
    assert list(Asks.values) == [0, 0]
    assert Asks.seen == [2, 4]
    Asks.values = None


def test_a_cycle_through_an_iterator_is_collected() -> None:
    class Data(bytearray):
        pass

    data = Data(pellucid.dumps({"a": 1, "b": 2}))
    iterator = iter(pellucid.view(data).values())
    assert next(iterator) == 1
    data.me = iterator  # type: ignore[attr-defined]
    found = weakref.ref(data)
    del data, iterator
    gc.collect()
    assert found() is None


def test_arrays_of_an_old_state_keep_their_bytes(path: Any) -> None:
    with pellucid.open(path) as db:
        for number in range(20):
            db[number] = {"a": 1, "array": numpy.arange(3000), "large": numpy.arange(30_000)}
        items = [iter(record.items()) for record in db.values()]
        for iterator, record in zip(items, list(db.values()), strict=True):
            assert next(iterator) == ("a", 1)
            record.array = 0
            record.large = 0
        arrays = [dict(iterator) for iterator in items]
        for number in range(200):
            db[number % 20] = {"filling": "y" * 5000}
        db.sync()
        for found in arrays:
            assert found["array"].tolist() == list(range(3000))
            assert found["large"].tolist() == list(range(30_000))
