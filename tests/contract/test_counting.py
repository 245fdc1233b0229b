"""Is nothing lost that threads add, set or store at the same time, by each verb that says so?"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import KEY, F
from undone import undone

Database = pellucid.Database


def in_threads(work: Callable[[], object], *, threads: int = 4) -> None:
    """Do work in threads at the same time; an exception in one of them fails the test."""
    failed: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    all_of_them = [threading.Thread(target=run) for _ in range(threads)]
    for thread in all_of_them:
        thread.start()
    for thread in all_of_them:
        thread.join(60)
    assert not failed, failed[0]


def test_increment_returns_the_sum_and_leaves_the_rest(db: Database) -> None:
    table = db.table("t")
    table["a"] = {"n": 1, "name": "x", "inner": {"list": [1.5, 2]}}
    assert table.increment("a", "n") == 2
    assert table.increment("a", "n", 40) == 42
    assert table.increment("a", "n", by=-43) == -1
    assert table.increment("a", ("inner", "list", 0), 0.25) == 1.75
    assert table.increment("a", ("inner", "list", -1)) == 3
    assert table["a"] == {"n": -1, "name": "x", "inner": {"list": [1.75, 3]}}
    assert db.check() == []


@pytest.mark.parametrize(
    ("old", "by"),
    [
        (127, 1),
        (2**31 - 1, 1),
        (2**63 - 1, 1),
        (-(2**63), -1),
        (2**70, 2**70),
        (1, 0.5),
        (0.5, 2**53 + 1),
        (1.0, float("inf")),
        (Decimal("0.1"), Decimal("0.2")),
        (1, Decimal("0.5")),
    ],
)
def test_increment_adds_as_python_does(db: Database, old: Any, by: Any) -> None:
    for row in ({"n": old}, {"n": old, "m": "text", "k": [1]}):
        db["a"] = row
        total = db.increment("a", "n", by)
        assert (total, type(total)) == (old + by, type(old + by))
        assert db["a"] == {**row, "n": old + by}
        assert type(db["a"].n) is type(old + by)


@pytest.mark.parametrize(
    ("old", "by"),
    [
        (0, 1),
        (255, 1),
        (0, -1),
        (-1, 1),
        (-(2**40), 2**41),
        (2**63 - 2, 1),
        (2**63 - 1, 1),
        (-(2**63), -1),
        (5, 2**63),
        (1, 0.5),
        (0.5, 1),
        (Decimal("0.1"), 1),
        (2**70, 1),
    ],
)
def test_a_counter_that_is_known_adds_as_the_first_time(db: Database, old: Any, by: Any) -> None:
    counters = db.table("counters")
    for number in range(3):
        counters["a"] = {"m": "text", "n": number, "large": "x" * 50_000}
        assert counters.increment("a", "n") == number + 1
    # The same fields; others before it; and other fields in between, with the same number of them.
    for row in (
        {"m": "t", "n": old, "large": "y"},
        {"k": 1, "m": "t", "n": old},
        {"m": "t", "k": 7, "n": old},
        {"n": old},
        {f"f{number}": number for number in range(12)} | {"n": old},
    ):
        counters["a"] = row
        for count in (1, 2):
            total = counters.increment("a", "n", by)
            assert (total, type(total)) == (old + by * count, type(old + by))
        assert counters["a"] == {**row, "n": old + by + by}
    assert db.check() == []


def test_a_counter_that_is_known_may_be_gone_or_get_an_index(db: Database) -> None:
    counters = db.table("counters")
    counters["a"] = {"n": 1, "m": 2}
    assert [counters.increment("a", "n") for _ in range(3)] == [2, 3, 4]
    del counters["a"].n
    with pytest.raises(KeyError):
        counters.increment("a", "n")
    assert [counters.increment("a", "n", default=10) for _ in range(2)] == [11, 12]
    del counters["a"]
    with pytest.raises(KeyError):
        counters.increment("a", "n")
    counters["a"] = {"n": 1, "m": 2}
    counters.increment("a", "n")
    counters.create_index("by_n", F.n)
    assert [counters.increment("a", "n") for _ in range(3)] == [3, 4, 5]
    assert counters.where(F.n == 5).count() == 1
    counters.drop_index("by_n")
    assert [counters.increment("a", "n") for _ in range(3)] == [6, 7, 8]
    watch = counters.watch(timeout=0)
    counters.increment("a", "n")
    assert [change.value.n for change in watch] == [9]
    db.drop_table("counters")
    with pytest.raises(KeyError):
        db.table("counters").increment("a", "n")
    assert db.check() == []


def test_increment_of_what_is_missing_needs_a_default(db: Database) -> None:
    for key, path in (("a", "n"), ("b", "n"), ("a", "x.n")):
        db["b"] = {"m": 1}
        with pytest.raises(KeyError):
            db.increment(key, path)
        assert dict(db) == {"b": {"m": 1}}
    assert db.increment("a", "n", default=0) == 1
    assert db.increment("b", "n", 5, default=10) == 15
    assert db.increment("b", "n", 5, default=10) == 20
    assert dict(db) == {"a": {"n": 1}, "b": {"m": 1, "n": 20}}
    with pytest.raises(KeyError):
        db.increment("c", "x.n", default=0)


@pytest.mark.parametrize("value", [True, "1", None, [1], {"n": 1}, b"1"])
def test_only_numbers_are_counted(db: Database, value: Any) -> None:
    db["a"] = {"n": value, "m": 1}
    for call in (
        lambda: db.increment("a", "n"),
        lambda: db.increment("a", "m", value if value is not None else "x"),
        lambda: db.increment("a", "k", default=value if value is not None else "x"),
    ):
        with pytest.raises(TypeError, match="int, a float or a Decimal"):
            call()
    assert db["a"] == {"n": value, "m": 1}


def test_increment_refuses_what_is_no_record_no_key_and_no_path(db: Database) -> None:
    db["a"] = 5
    with pytest.raises(TypeError, match="no dict or list"):
        db.increment("a", "n")
    with pytest.raises(pellucid.UnsupportedKey):
        db.increment(float("nan"), "n")
    for path in (5, None, ["n"]):
        with pytest.raises(TypeError):
            db.increment("a", path)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="at least one field"):
        db.increment("a", ())
    assert db["a"] == 5


def test_increment_is_a_part_of_the_transaction_around_it(db: Database) -> None:
    db["a"] = {"n": 0}
    with db.transaction():
        assert db.increment("a", "n") == 1
        assert db.increment("new", "n", default=0) == 1
        with undone(db):
            db.increment("a", "n", 10)
        assert db["a"].n == 1
        db["a"].n += 1
        assert db.increment("a", "n") == 3
    assert dict(db) == {"a": {"n": 3}, "new": {"n": 1}}


def test_indexes_follow_an_increment_and_a_unique_one_refuses_it(db: Database) -> None:
    table = db.table("t")
    table.create_index("by_n", "n", unique=True)
    table.update({"a": {"n": 1}, "b": {"n": 3}})
    assert table.increment("a", "n") == 2
    assert table.index("by_n").get(2) == {"n": 2}
    assert table.index("by_n").get(1) is None
    with pytest.raises(pellucid.UniqueError):
        table.increment("a", "n")
    assert table["a"] == {"n": 2}
    assert db.check() == []


def test_increment_says_what_a_handle_and_a_snapshot_say_of_other_writes(db: Database) -> None:
    db["a"] = {"n": 1}
    record = db["a"]
    db.increment("a", "n")
    assert db["a"].n == 2
    record.n = 7
    assert db.increment("a", "n") == 8


def edit(db: Database) -> None:
    with db.edit("x") as row:
        row.n += 1


def compare_and_set(db: Database) -> None:
    while True:
        row = db["x"].to_dict()
        if db.compare_and_set("x", row, {"n": row["n"] + 1}):
            return


WAYS: dict[str, Callable[[Database], object]] = {
    "increment": lambda db: db.increment("x", "n"),
    "update": lambda db: db.where(KEY == "x").update(n=F.n + 1),
    "edit": edit,
    "run": lambda db: db.run(lambda: db["x"].update(n=db["x"].n + 1)),
    "compare_and_set": compare_and_set,
}


@pytest.mark.parametrize("way", WAYS)
def test_four_threads_lose_nothing(db: Database, way: str) -> None:
    db["x"] = {"n": 0}

    def count() -> None:
        for _ in range(25):
            WAYS[way](db)

    in_threads(count)
    assert db["x"] == {"n": 100}


def test_a_counter_begins_once(db: Database) -> None:
    sums: list[int] = []
    in_threads(lambda: sums.extend(db.increment("x", "n", default=0) for _ in range(10)))
    assert sorted(sums) == list(range(1, 41))


def test_counters_that_many_begin_together_lose_nothing(db: Database) -> None:
    for number in range(8):
        table, sums = db.table(f"t{number}"), list[int]()
        in_threads(partial(begin_together, table, sums), threads=6)
        assert sorted(sums) == list(range(1, 37))
        assert table["x"] == {"n": 36}


def begin_together(table: Any, sums: list[int]) -> None:
    sums.extend(table.increment("x", "n", default=0) for _ in range(6))


def test_deletes_of_queries_do_not_fail_each_other(db: Database) -> None:
    table = db.table("t")
    table.update({number: {"n": number % 5} for number in range(100)})
    deleted: list[int] = []
    in_threads(lambda: deleted.extend(table.where(F.n == n).delete() for n in range(5)))
    assert sum(deleted) == 100
    assert len(table) == 0


def test_run_returns_raises_and_rolls_back(db: Database) -> None:
    def put() -> str:
        db["a"] = 1
        return "done"

    def fail() -> None:
        db["a"] = 2
        raise ZeroDivisionError

    assert db.run(put) == "done"
    with pytest.raises(ZeroDivisionError):
        db.run(fail)
    assert dict(db) == {"a": 1}
    with db.transaction():
        db["b"] = 1
        with pytest.raises(ZeroDivisionError):
            db.run(fail)
        db.run(lambda: db.increment("c", "n", default=0))
    assert dict(db) == {"a": 1, "b": 1, "c": {"n": 1}}
    with pytest.raises(TypeError):
        db.run(5)  # type: ignore[arg-type]


def test_run_refuses_a_coroutine_that_would_run_later(db: Database) -> None:
    async def put() -> None:
        db["a"] = 1

    with pytest.raises(TypeError, match="make it a plain `def`"):
        db.run(put)
    assert len(db) == 0


def test_compare_and_set_stores_over_an_equal_value_alone(db: Database) -> None:
    assert not db.compare_and_set("a", None, 1)
    db["a"] = {"x": [1, {"y": 2}], "big": "z" * 100_000}
    same = {"x": [1.0, {"y": 2}], "big": "z" * 100_000}
    assert not db.compare_and_set("a", {"x": 1}, 2)
    assert db.compare_and_set("a", same, {"new": "shape", "big": "w" * 50_000})
    assert not db.compare_and_set("a", same, 3)
    assert db.compare_and_set("a", {"new": "shape", "big": "w" * 50_000}, None)
    assert db.compare_and_set("a", None, 1)
    assert db.compare_and_set("a", True, 2)
    assert dict(db) == {"a": 2}
    assert not db.compare_and_set(float("nan"), None, 1)
    with db.transaction():
        assert db.compare_and_set("a", 2, 3)
        assert not db.compare_and_set("a", 2, 4)
    assert db["a"] == 3
    assert db.check() == []


def test_a_comparison_may_change_the_row_itself(db: Database) -> None:
    db["a"] = {"n": 1}

    class Meddler:
        calls = 0

        def __eq__(self, other: object) -> bool:
            Meddler.calls += 1
            if Meddler.calls == 1:
                db["a"].n = 2
                return True
            return False

        __hash__ = None  # type: ignore[assignment]

    assert not db.compare_and_set("a", Meddler(), 3)
    assert (Meddler.calls, db["a"]) == (2, {"n": 2})


def test_only_one_of_many_puts_where_nothing_is(db: Database) -> None:
    stored: list[bool] = []
    row = {"by": "me"}
    in_threads(lambda: stored.extend(db.put_if_absent(number, row) for number in range(10)))
    assert sum(stored) == 10
    assert not db.put_if_absent(3, "x")
    assert db[3].by
    with pytest.raises(pellucid.UnsupportedKey):
        db.put_if_absent(float("nan"), 1)
    with db.transaction():
        assert db.put_if_absent("new", 1)
        assert not db.put_if_absent("new", 2)
    assert db["new"] == 1


def test_get_or_create_gives_all_callers_the_same(db: Database) -> None:
    made: list[Any] = []

    def create() -> Any:
        return made.append(len(made)) or {"made": len(made)}  # type: ignore[func-returns-value]

    given: list[Any] = []
    in_threads(lambda: given.append(db.get_or_create("a", create).to_dict()))
    assert given == [db["a"].to_dict()] * 4
    count = len(made)
    assert db.get_or_create("a", create) == given[0]
    assert len(made) == count

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        db.get_or_create("b", fail)
    with pytest.raises(pellucid.UnsupportedKey):
        db.get_or_create(float("nan"), create)
    assert list(db) == ["a"]
    assert len(made) == count


def test_rows_of_a_class_are_counted_and_kept_of_the_class(db: Database) -> None:
    import dataclasses

    @dataclasses.dataclass
    class Page:
        views: int
        name: str = "x"

    pages = db.table("pages", type=Page)
    pages["home"] = Page(1)
    assert pages.increment("home", "views") == 2
    assert pages.compare_and_set("home", Page(2), Page(5))
    assert pages["home"] == Page(5)
    with pytest.raises(pellucid.WrongClass):
        pages.increment("home", "visits", default=0)
    # A row without the other fields, which have defaults, makes an instance.
    assert pages.increment("new", "views", default=2) == 3
    assert pages.pop("new") == Page(3)
    with pytest.raises(pellucid.WrongClass):
        pages.put_if_absent("other", {"views": 1})  # type: ignore[arg-type]
    assert dict(pages) == {"home": Page(5)}


def test_what_only_reads_refuses_each_of_them(db: Database) -> None:
    db["a"] = {"n": 1}
    with db.snapshot() as snapshot:
        frozen = snapshot.table("default")
        for call in (
            lambda: frozen.increment("a", "n"),  # type: ignore[attr-defined]
            lambda: frozen.compare_and_set("a", {"n": 1}, 2),  # type: ignore[attr-defined]
            lambda: frozen.put_if_absent("b", 1),  # type: ignore[attr-defined]
            lambda: frozen.get_or_create("b", int),  # type: ignore[attr-defined]
            lambda: frozen.claim(F.n == 1, {}),  # type: ignore[attr-defined]
        ):
            with pytest.raises(pellucid.ReadOnly):
                call()
    assert dict(db) == {"a": {"n": 1}}


def test_processes_lose_no_increment(path: Path) -> None:
    with pellucid.open(path) as db:
        db["x"] = {"n": 0, "text": "y"}
        count = (
            f"import pellucid\nwith pellucid.open({str(path)!r}) as db:\n"
            "    sums = [db.increment('x', 'n') for _ in range(2000)]\n"
            "    assert sums == sorted(set(sums))"
        )
        counters = [subprocess.Popen([sys.executable, "-c", count]) for _ in range(3)]
        assert [counter.wait(120) for counter in counters] == [0, 0, 0]
        assert db["x"] == {"n": 6000, "text": "y"}
        assert db.check() == []
