"""Does a loop show large values as they were at its start, whichever way leads to the rows?"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import Database, F
from pellucid.errors import StaleRecord
from processes import Child

# Below so many rows no index is asked.
COUNT = 120
Table = pellucid.Table[Any]
Loop = Callable[[Table], Iterator[Any]]


def text_of(n: int) -> str:
    """Every third one is too small to lie apart: rows of both kinds come in turn."""
    return f"{n} " * (2 if n % 3 == 0 else 17_000)


@dataclass
class Page:
    n: int
    mod: int
    text: str


# Ways that need no field, and so find rows of any kind.
PLAIN: dict[str, Loop] = {
    "values": lambda table: iter(table.values()),
    "items": lambda table: (row for _, row in table.items()),
    "range": lambda table: table.range(2, 110),
    "reversed": lambda table: iter(reversed(table.values())),
    "limit": lambda table: iter(table.where().offset(3).limit(100)),
    "filter": lambda table: iter(table.where().filter(lambda row: True)),
}
BY_FIELD: dict[str, Loop] = {
    "where": lambda table: iter(table.where(F.n >= 2)),
    "equal": lambda table: iter(table.where(F.mod == 1)),
    "either": lambda table: iter(table.where((F.mod == 1) | (F.mod == 3))),
    "query items": lambda table: (row for _, row in table.where(F.mod == 1).items()),
    "order": lambda table: iter(table.order_by(F.n)),
    "order of two": lambda table: iter(table.order_by(F.mod, F.n.desc())),
    "order, reversed": lambda table: iter(table.order_by(F.mod.desc())),
    "order, limit": lambda table: iter(table.order_by(F.n.desc()).limit(30)),
}
BY_INDEX: dict[str, Loop] = {
    "index values": lambda table: table.index("mod").values(),
    "index values, reversed": lambda table: table.index("mod").values(reverse=True),
    "index get_all": lambda table: table.index("mod").get_all(1),
    "index range": lambda table: table.index("mod").range(1, 3),
    "index prefix": lambda table: table.index("two").prefix((1,)),
}
QUERIES = [
    *(pytest.param(loop, False, id=name) for name, loop in (PLAIN | BY_FIELD).items()),
    *(pytest.param(loop, True, id=f"{name}, with indexes") for name, loop in BY_FIELD.items()),
]
INDEXES = [pytest.param(loop, True, id=name) for name, loop in BY_INDEX.items()]
EACH_WAY = pytest.mark.parametrize(("loop", "is_indexed"), [*QUERIES, *INDEXES])


def fill(table: Table, *, is_indexed: bool = False) -> None:
    table.update({n: {"n": n, "mod": n % 5, "text": text_of(n)} for n in range(COUNT)})
    if is_indexed:
        table.create_index("mod", F.mod)
        table.create_index("two", (F.mod, F.n))


def clear(table: Table) -> None:
    table.clear()


def delete(table: Table) -> None:
    assert table.where(F.n >= 0).delete() == COUNT


def update(table: Table) -> None:
    assert table.where(F.n >= 0).update(text="new") == COUNT


def replace(table: Table) -> None:
    for key in list(table):
        table[key] = {"n": -1, "text": "new " * 10_000}


CHANGES = [clear, delete, update, replace]


def check_loop(rows: Iterator[Any], change: Callable[[], object]) -> None:
    first = next(rows)
    change()
    numbers = [first.n]
    assert first.text == text_of(first.n)
    before = first
    for row in rows:
        assert row.text == text_of(row.n)
        # The last one is still there, as it is where loops look at two neighbours.
        assert before.text == text_of(before.n)
        numbers.append(row.n)
        before = row
    assert len(numbers) > 20
    assert len(set(numbers)) == len(numbers)


@EACH_WAY
@pytest.mark.parametrize("change", CHANGES)
def test_a_loop_shows_large_values_as_they_were_at_its_start(
    db: Database, loop: Loop, is_indexed: bool, change: Callable[[Table], None]
) -> None:
    table = db.table("t")
    fill(table, is_indexed=is_indexed)
    check_loop(loop(table), lambda: change(db.table("t")))


@EACH_WAY
@pytest.mark.parametrize("change", [delete, update])
def test_so_it_does_in_a_transaction(
    db: Database, loop: Loop, is_indexed: bool, change: Callable[[Table], None]
) -> None:
    table = db.table("t")
    fill(table, is_indexed=is_indexed)
    with db.transaction():
        check_loop(loop(table), lambda: change(table))


# What an index's own walk gives are rows as the transaction has them by then.
@pytest.mark.parametrize(("loop", "is_indexed"), QUERIES)
@pytest.mark.parametrize("change", [delete, update])
def test_so_it_does_in_a_transaction_that_has_changed_something(
    db: Database, loop: Loop, is_indexed: bool, change: Callable[[Table], None]
) -> None:
    table = db.table("t")
    fill(table, is_indexed=is_indexed)
    with db.transaction():
        db["other"] = 1
        check_loop(loop(table), lambda: change(table))


@EACH_WAY
def test_so_it_does_where_the_change_is_of_another_handle_or_process(
    path: Path, loop: Loop, is_indexed: bool
) -> None:
    with pellucid.open(path) as db, pellucid.open(path) as other, Child(path) as child:
        table = db.table("t")
        fill(table, is_indexed=is_indexed)
        check_loop(loop(table), lambda: child("db.table('t').clear()"))
        fill(table)
        check_loop(loop(table), lambda: delete(other.table("t")))


@pytest.mark.parametrize("loop", PLAIN.values(), ids=PLAIN)
@pytest.mark.parametrize("has_changed", [None, False, True])
def test_so_it_does_with_rows_that_are_lists(db: Database, loop: Loop, has_changed: bool | None) -> None:
    table = db.table("t")
    table.extend([n, text_of(n)] for n in range(COUNT))

    def check() -> None:
        rows = loop(table)
        before = next(rows)
        table.clear()
        for row in rows:
            assert row[1] == text_of(row[0])
            assert before[1] == text_of(before[0])
            before = row

    if has_changed is None:
        check()
        return
    with db.transaction():
        if has_changed:
            db["other"] = 1
        check()


@EACH_WAY
def test_so_it_does_where_rows_are_made_instances(db: Database, loop: Loop, is_indexed: bool) -> None:
    table = db.table("t", type=Page)
    table.extend(Page(n, n % 5, text_of(n)) for n in range(COUNT))
    if is_indexed:
        table.create_index("mod", F.mod)
        table.create_index("two", (F.mod, F.n))
    check_loop(loop(table), table.clear)


@EACH_WAY
def test_a_record_that_is_kept_lets_go_of_what_is_deleted(path: Path, loop: Loop, is_indexed: bool) -> None:
    with pellucid.open(path) as db:
        table = db.table("t")
        fill(table, is_indexed=is_indexed)
        kept = list(loop(table))
        broken_off = next(loop(table))
        readers = db.stats()["readers"]
        table.clear()
        # Those that were read have no place among the readers any more, and so no pages.
        assert db.stats()["readers"] <= readers
        assert db.stats()["oldest_reader_lag"] == 0
        for record in [*kept, broken_off]:
            if len(text_of(record.n)) < 1_000:
                assert record.text == text_of(record.n)
            else:
                with pytest.raises(StaleRecord, match="large value"):
                    len(record.text)


COLUMNS: dict[str, Callable[[Table], list[Any]]] = {
    "column": lambda table: table.where(F.n >= 0).column("text"),
    "column of dicts": lambda table: [inner["text"] for inner in table.where(F.n >= 0).column("inner")],
    "column in an order": lambda table: table.order_by(F.n).column("text"),
    "select of one": lambda table: [row["text"] for row in table.where(F.n >= 0).select("text")],
    "select of two": lambda table: [row["text"] for row in table.where(F.n >= 0).select("n", "text")],
}


@pytest.mark.parametrize("read", COLUMNS.values(), ids=COLUMNS)
def test_columns_have_the_large_values_of_their_start(read: Callable[[Table], list[Any]]) -> None:
    rows = [{"n": n, "text": text_of(n), "inner": {"text": text_of(n)}} for n in range(4 * COUNT)]
    texts = [row["text"] for row in rows]
    hits = 0
    with pellucid.open(":memory:") as db:
        table = db.table("pages")
        cleared_in = ""
        where = "ahead"

        def clear_now(*_: object) -> None:
            nonlocal cleared_in
            cleared_in = where
            table.clear()

        before = signal.signal(signal.SIGALRM, clear_now)
        try:
            for turn in range(1_000):
                table.clear()
                table.extend(rows)
                started = time.perf_counter()
                assert read(table) == texts
                took = time.perf_counter() - started
                # At another moment of the call each time.
                where, cleared_in = "in it", ""
                signal.setitimer(signal.ITIMER_REAL, took * (turn % 10 + 1) / 12)
                found = read(table)
                where = "behind"
                signal.setitimer(signal.ITIMER_REAL, 0)
                assert found in (texts, [])
                hits += bool(found) and cleared_in == "in it"
                if hits == 10:
                    return
            pytest.fail(f"only {hits} times something was cleared while it was read")
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
