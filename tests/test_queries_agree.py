"""Does a query find the same, however its rows are walked over?

One table of many irregular rows is asked the same questions by one thread and by several, in a file and in
memory, behind a checkpoint and while its last rows wait in the log, in and outside of a transaction that
has changed it.
"""

from __future__ import annotations

import math
import random
import re
from collections.abc import Callable, Iterator
from datetime import date, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pellucid
import pytest
from pellucid import KEY, F, count

ROW_COUNT = 130_000  # More than the 100,000 from which on a table is shared by threads.
PENDING_COUNT = 500
PLACES = ["Bath", "York", "Ely", "Stra\u00dfe", ""]

Questions = dict[str, Callable[[Any], Any]]


def row(number: int, choose: random.Random) -> Any:
    """A row that often lacks fields, or has them of another type."""
    if number % 997 == 0:
        return [number, "no dict"]
    made: dict[str, Any] = {
        "number": number,
        "price": choose.random() * 10 ** choose.randint(-3, 6),
        "place": choose.choice(PLACES),
        "tags": [choose.choice("abc") for _ in range(choose.randint(0, 3))],
        "name": {"first": choose.choice("XYZ"), "last": f"B{choose.randint(0, 999):03}"},
        "born": date(2020, 1, 1) + timedelta(days=choose.randint(0, 3000)),
        "age": choose.randint(0, 90),
    }
    if choose.random() < 0.1:
        made["age"] = choose.choice([None, True, 33.0, math.nan, "33", 2**70, -(2**70)])
    if choose.random() < 0.05:
        del made["name"]
    if choose.random() < 0.05:
        made[choose.choice("xyz")] = choose.choice([1, 1.0, True, b"x", Decimal("1.5")])
    return made


QUESTIONS: Questions = {
    "count": lambda t: t.where(F.age >= 40).count(),
    "count of a field": lambda t: t.count("x"),
    "count by a prefix": lambda t: t.where(F.name.last.startswith("B7")).count(),
    "count by a range of keys": lambda t: t.where(KEY > 1000, KEY <= 90_000, F.place != "Ely").count(),
    "count over lists": lambda t: t.where(F.tags.each() == "b").count(),
    "sum of ints": lambda t: t.sum("number"),
    "sum of floats": lambda t: t.where(F.place == "York").sum("price"),
    "mean": lambda t: t.mean("number"),
    "least": lambda t: t.where(F.place.isin(["Bath", "York"])).min("born"),
    "greatest": lambda t: t.max("name.last"),
    "least of none": lambda t: t.where(F.age == "no such").min("age"),
    "groups": lambda t: t.group_by("place", "age").agg(
        n=count(), total=F.number.sum(), mean=F.price.mean(), first=F.name.last.min(), last=F.born.max()
    ),
    "groups of their own": lambda t: t.where(F.number < 40_000).group_by("number").agg(n=count()),
    "one group": lambda t: t.agg(n=count(), exact=F.age.sum(), x=count("x"), least=F.age.min()),
    "first ten": lambda t: list(t.order_by(F.age.desc(), "place").limit(10).keys()),
    "a later page": lambda t: list(t.order_by("price").offset(300).limit(50).keys()),
    "behind a row": lambda t: list(t.order_by("born").after(t[7]).limit(50).keys()),
    "all in an order": lambda t: list(t.where(F.age < 30).order_by("born", F.price.desc()).keys()),
    "a limit": lambda t: list(t.where(F.age == 50).offset(5).limit(7).keys()),
    "a column": lambda t: t.where(F.number > 100_000).column(F.age + 1),
}


def answers(table: Any) -> dict[str, Any]:
    # By their text: NaN is unlike itself, and 1 is like True.
    return {question: repr(ask(table)) for question, ask in QUESTIONS.items()}


@pytest.fixture(scope="module")
def rows() -> list[Any]:
    choose = random.Random(20)
    return [row(number, choose) for number in range(ROW_COUNT)]


@pytest.fixture(scope="module")
def expected(rows: list[Any]) -> dict[str, Any]:
    """What one thread finds in memory."""
    with pellucid.open(":memory:") as db:
        db.table("t").extend(rows)
        return answers(db.table("t"))


@pytest.fixture(scope="module")
def in_file(rows: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A file whose last rows, and some changed ones, wait in its log."""
    path = tmp_path_factory.mktemp("agree") / "rows.pel"
    with pellucid.open(path) as db:
        stored = list(rows)
        for number in range(0, ROW_COUNT, ROW_COUNT // PENDING_COUNT):
            stored[number] = {"age": 1, "place": "not this one"}
        db.table("t").extend(stored[:-PENDING_COUNT])
        yield path


def put_pending(table: Any, rows: list[Any]) -> None:
    for number in range(0, ROW_COUNT - PENDING_COUNT, ROW_COUNT // PENDING_COUNT):
        table[number] = rows[number]
    for number in range(ROW_COUNT - PENDING_COUNT, ROW_COUNT):
        table[number] = rows[number]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_threads_and_one_thread_find_the_same(
    in_file: Path, rows: list[Any], expected: dict[str, Any], threads: int
) -> None:
    with pellucid.open(in_file) as db:
        put_pending(db.table("t"), rows)
        pellucid.set_threads(threads)
        try:
            assert answers(db.table("t")) == expected
            said = db.table("t").where(F.age > 3).explain()
            more = f", on {threads} where rows are counted, summed or grouped" if threads > 1 else ""
            assert f"\non 1 thread{more}\n" in f"{said}\n"
            said = db.table("t").where(F.age > 3).order_by("age").explain()
            assert f"\non {threads} thread" in said
        finally:
            pellucid.set_threads(None)


def test_sums_of_floats_are_the_same_however_they_are_added_up(tmp_path: Path) -> None:
    # Of unlike sizes, so that another order of additions comes to another sum unless each is exact.
    choose = random.Random(5)
    floats = [choose.uniform(-1, 1) * 10 ** choose.randint(-12, 12) for _ in range(ROW_COUNT)]
    floats[77:80] = [1e300, 5e-324, -1e300]
    groups = [number % 7 for number in range(ROW_COUNT)]
    table_rows = [{"x": x, "n": n, "l": [x]} for x, n in zip(floats, groups, strict=True)]
    total, mean = math.fsum(floats), math.fsum(floats) / ROW_COUNT
    by_group = [math.fsum(x for x, group in zip(floats, groups, strict=True) if group == n) for n in range(7)]

    def sums(table: Any) -> list[Any]:
        return [
            table.sum("x"),
            table.where(F.x > -1e301).sum(F.x),
            table.sum(F.l.each()),
            table.order_by(F.x.desc()).sum("x"),
            table.agg(s=F.x.sum())["s"],
            table.where(F.x >= -math.inf).agg(s=F.x.sum())["s"],
            table.mean("x"),
            table.agg(m=F.x.mean())["m"],
            [found["s"] for found in table.group_by("n").agg(s=F.x.sum())],
        ]

    with pellucid.open(tmp_path / "t.pel") as db:
        table = db.table("t")
        table.extend(table_rows)
        for has_index in (False, True):
            if has_index:
                table.create_index("covering", (F.n, F.x))
                assert "covering" in table.where(F.n == 3).explain()
            table.create_index("x", F.x)
            for threads in (1, 2, 3, 8):
                pellucid.set_threads(threads)
                try:
                    assert sums(table) == [total] * 6 + [mean] * 2 + [by_group], (has_index, threads)
                    assert table.where(F.n == 3).sum("x") == by_group[3]
                finally:
                    pellucid.set_threads(None)
            table.drop_index("x")


def test_ints_of_any_size_and_floats_come_to_the_same_in_any_order() -> None:
    values = [2**53 + 1, 0.5, -(2**70), 2**70, 0.25, np.float32(0.1), np.float64(0.1), 2**53 + 1, True, 1e-30]
    totals = set()
    for seed in range(20):
        random.Random(seed).shuffle(values)
        table = pellucid.open(":memory:").table("t")
        table.extend({"x": value} for value in values)
        table.create_index("x", F.x)
        totals |= {table.sum("x"), table.agg(s=F.x.sum())["s"], table.where(F.x > -(2**80)).sum("x")}
    assert len(totals) == 1


def test_a_changed_transaction_finds_the_same(
    in_file: Path, rows: list[Any], expected: dict[str, Any]
) -> None:
    with pellucid.open(in_file) as db:
        put_pending(db.table("t"), rows)
        with db.transaction():
            db.table("t")[10] = rows[10]
            assert answers(db.table("t")) == expected


def test_small_tables_and_pages_stay_with_one_thread(in_file: Path, rows: list[Any]) -> None:
    pellucid.set_threads(4)
    try:
        with pellucid.open(in_file) as db:
            put_pending(db.table("t"), rows)
            assert "on 1 thread" in db.table("t").where(F.age > 3).limit(5).explain()
            assert "on 4 threads" in db.table("t").order_by("age").limit(5).explain()
            db.table("small").extend([1, 2])
            assert "on 1 thread" in db.table("small").where(F.age > 3).explain()
        with pellucid.open(":memory:") as db:
            db.table("t").extend(rows)
            assert "on 1 thread" in db.table("t").where(F.age > 3).explain()
    finally:
        pellucid.set_threads(None)


def test_rows_that_one_thread_makes_objects_of_are_not_taken_for_what_several_scan(tmp_path: Path) -> None:
    with pellucid.open(tmp_path / "t.pel") as db:
        table = db.table("t")
        table.extend({"n": number} for number in range(100_000))
        table.create_index("by_n", F.n)

        def scan(query: Any) -> float:
            found = re.search(r"the scan ([0-9.]+) ms", query.explain())
            assert found is not None
            return float(found[1])

        query = table.where(F.n < 50_000)
        took = {}
        try:
            for threads in (1, 4):
                pellucid.set_threads(threads)
                took[threads] = (scan(query), scan(query.select("n")), scan(query.order_by(-F.n)))
        finally:
            pellucid.set_threads(None)
        assert took[4][:2] == took[1][:2]
        assert took[4][2] < took[1][2]


@pytest.mark.parametrize(
    ("threads", "error"),
    [(0, ValueError), (-1, ValueError), (-(2**70), ValueError), ("2", TypeError), (1.5, TypeError)],
)
def test_a_thread_count_that_is_none_is_refused(threads: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        pellucid.set_threads(threads)


def test_more_threads_than_can_be_counted_are_the_most() -> None:
    pellucid.set_threads(2**70)
    pellucid.set_threads(None)


def test_a_damaged_row_is_named_by_whoever_meets_it(tmp_path: Path) -> None:
    """Several threads, of which one meets damage: its error is raised, and the others stop."""
    path = tmp_path / "damaged.pel"
    marker = "the text of the row that is damaged"
    with pellucid.open(path) as db:
        db.table("t").extend({"age": n, "text": marker if n == 77_777 else "plain"} for n in range(ROW_COUNT))
    data = bytearray(path.read_bytes())
    place = data.index(marker.encode())
    data[place - 24 : place] = b"\xff" * 24
    path.write_bytes(data)
    pellucid.set_threads(3)
    try:
        with pellucid.open(path) as db, pytest.raises(pellucid.CorruptRecord, match="77777"):
            db.table("t").where(F.age.length() == 3).count()
    finally:
        pellucid.set_threads(None)
