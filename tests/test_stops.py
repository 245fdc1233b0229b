"""What does a signal end, as Ctrl-C does, and do other threads run meanwhile?

Nothing here says how long anything takes: a signal comes a millisecond later, and has to end what is long.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import itertools
import operator
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pellucid
import pyarrow as pa
import pytest
from pellucid import F
from processes import Child

# pyarrow imports pandas, and a module of its own, with its first array: a signal would come in between.
pa.array([1])


@pytest.fixture(params=["file", "memory"])
def table(request: pytest.FixtureRequest, path: Path) -> Iterator[Any]:
    with pellucid.open(path if request.param == "file" else ":memory:") as db:
        yield db.table("t")


class Rang(Exception):
    pass


@pytest.fixture
def ring_soon() -> Iterator[Callable[[], None]]:
    """Lets a signal raise `Rang` a millisecond after it is called."""

    def ring(*_: object) -> None:
        raise Rang

    old = signal.signal(signal.SIGALRM, ring)
    # What is raised in a function that the garbage collector calls is raised nowhere else.
    gc.disable()
    yield lambda: signal.setitimer(signal.ITIMER_REAL, 0.001)
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, old)
    gc.enable()


@pytest.mark.parametrize(
    "rows",
    [
        lambda t: t.order_by(-F.n).keys(),
        lambda t: iter(t.order_by(-F.n)),
        lambda t: iter(t.where(F.n >= 0)),
        lambda t: iter(t.where(F.n >= 0).filter(bool)),
        lambda t: iter(t.values()),
        iter,
        lambda t: iter(t.index("n")),
        lambda t: iter(t.index("n").keys(1, reverse=True)),
    ],
    ids=["sorted keys", "sorted rows", "rows", "filtered", "values", "keys", "index", "keys of an index"],
)
def test_a_list_of_rows_stops_at_a_signal(
    path: Path, rows: Callable[[Any], Iterator[Any]], ring_soon: Callable[[], None]
) -> None:
    db = pellucid.open(path)
    db.table("t").extend({"n": n} for n in range(100_000))
    db.table("t").create_index("n", F.n)
    found = rows(db.table("t"))
    with pytest.raises(Rang):  # noqa: PT012
        ring_soon()
        list(found)
    # It was not walked to its end before the signal was noticed.
    assert next(found, None) is not None


def test_a_long_list_of_values_is_searched_until_a_signal(path: Path, ring_soon: Callable[[], None]) -> None:
    """A row may take long: rows are not counted until signals are looked at."""
    db = pellucid.open(path)
    db.table("t").extend({"n": (n,)} for n in range(3000))
    found = iter(db.table("t").where(F.n.isin([(-1 - n,) for n in range(3000)])))
    with pytest.raises(Rang):  # noqa: PT012
        ring_soon()
        next(found)


def was_stopped(work: Callable[[], object], ring_soon: Callable[[], None]) -> bool:
    """Whether a signal ended a call, and not what runs behind it.

    `extend` and `map` run no Python of their own that would look at signals.
    """
    results: list[object] = []
    with pytest.raises(Rang):  # noqa: PT012
        ring_soon()
        results.extend(map(operator.methodcaller("__call__"), [work]))
    return not results


@pytest.mark.parametrize("make", [range, lambda count: set(range(count))], ids=["range", "set"])
def test_many_values_are_made_ready_until_a_signal(
    table: Any, ring_soon: Callable[[], None], make: Callable[[int], Iterable[int]]
) -> None:
    values = make(1_000_000)
    assert was_stopped(functools.partial(F.n.isin, values), ring_soon)
    table.extend({"n": n} for n in (5, 10**6, "5", 7.0, 7.5, None))
    some = make(40_000)
    assert table.where(F.n.isin(some)).column("n") == [5, 7.0]
    # However they came: those of a set are in one order.
    if make is not range:
        assert str(F.n.isin(some)) == str(F.n.isin(frozenset(range(40_000))))


def test_emptying_a_table_stops_at_a_signal_and_nothing_is_gone(
    db: pellucid.Database, ring_soon: Callable[[], None]
) -> None:
    db.append({})  # Where there is no other table, all rows are gone at once.
    table = db.table("t")
    table.extend({"n": n} for n in range(240_000))
    table.create_index("n", F.n)
    drop = functools.partial(db.drop_table, "t")
    for work in (table.clear, drop):
        assert was_stopped(work, ring_soon)
        with db.transaction():
            key = table.append({"n": -1})
            assert was_stopped(work, ring_soon)
            del table[key]
    assert len(table) == len(table.index("n")) == 240_000
    assert db.check() == []
    table.clear()
    assert (len(table), len(table.index("n")), len(db)) == (0, 0, 1)
    drop()
    assert db.tables() == ["default"]


def test_looking_after_a_database_stops_at_a_signal(path: Path, ring_soon: Callable[[], None]) -> None:
    with pellucid.open(path) as db:
        db.extend({"n": n, "text": f"{n:0200}"} for n in range(200_000))
        db.create_index("text", (F.text, F.n))
        names = sorted(os.listdir(path.parent))
        assert was_stopped(db.check, ring_soon)
        target = path.with_name("copy.pel")
        assert was_stopped(functools.partial(db.backup, target), ring_soon)
        assert was_stopped(db.compact, ring_soon)
        assert sorted(os.listdir(path.parent)) == names
        with db.transaction():
            db.append({"n": -1, "text": ""})
            assert was_stopped(functools.partial(db.drop_index, "text"), ring_soon)
        assert was_stopped(functools.partial(db.drop_index, "text"), ring_soon)
        assert len(db.index("text")) == len(db) == 200_001
        assert db.check() == []
        db.compact()
        db.backup(target)
        db.drop_index("text")
        assert db.indexes() == []


@pytest.mark.parametrize(
    "work",
    [
        lambda t: functools.partial(t.column, F.text.upper()),
        lambda t: t.where(F.n >= 0).select(text=F.text.upper()).to_dicts,
        lambda t: t.where(F.n >= 0).to_list,
        lambda t: t.where(F.n >= 0).to_dicts,
        lambda t: functools.partial(list, t.items()),
        lambda t: functools.partial(list, t),
    ],
    ids=["column", "selected", "list", "dicts", "items", "keys"],
)
@pytest.mark.parametrize("is_inside", [False, True], ids=["outside", "in a transaction"])
def test_other_threads_run_while_rows_become_objects(
    path: Path, work: Callable[[Any], Callable[[], object]], is_inside: bool
) -> None:
    turns: list[None] = []
    is_over = threading.Event()

    def take_turns() -> None:
        while not is_over.is_set():
            turns.append(None)

    thread = threading.Thread(target=take_turns)
    interval = sys.getswitchinterval()
    with pellucid.open(path) as db, contextlib.ExitStack() as stack:
        table = db.table("t")
        table.extend({"n": n, "text": f"number {n}"} for n in range(200_000))
        if is_inside:
            stack.enter_context(db.transaction())
            table.append({"n": -1, "text": ""})
        steps: list[Callable[[], object]] = [turns.__len__, work(table), turns.__len__]
        sys.setswitchinterval(1e-4)
        thread.start()
        try:
            # From the one count to the other no Python code of this thread runs, at which it would give way.
            before, _, after = map(operator.methodcaller("__call__"), steps)
        finally:
            sys.setswitchinterval(interval)
            is_over.set()
            thread.join()
        assert after > before  # type: ignore[operator]


class Mapping:
    """A mapping that runs no Python code for a key or a value."""

    def __init__(self, keys: Iterator[int]) -> None:
        self.keys = lambda: keys

    __getitem__ = operator.index


@pytest.mark.parametrize("of", ["pairs", "mapping", "rows", "elements"])
def test_taking_what_an_iterator_gives_stops_at_a_signal(
    table: Any, of: str, ring_soon: Callable[[], None]
) -> None:
    """No iterator here is a generator, whose Python code would look for signals itself."""
    source = iter(range(1_000_000))
    table["list"] = {"of": []}
    numbers = table["list"].of
    do: Callable[[], object] = {
        "pairs": lambda: table.update(zip(source, itertools.repeat(1))),
        "mapping": lambda: table.update(Mapping(source)),
        "rows": lambda: table.extend(source),
        "elements": lambda: numbers.extend(source),
    }[of]
    with pytest.raises(Rang):  # noqa: PT012
        ring_soon()
        do()
    # It was not taken to its end before the signal was noticed.
    assert next(source, None) is not None
    assert [*table] == ["list"]


def test_the_end_of_a_batch_stops_at_a_signal(path: Path, ring_soon: Callable[[], None]) -> None:
    """Entries of indexes are written when all rows are: for that, too, signals are looked at."""
    with pellucid.open(path) as db:
        db.append({"tags": ["first"]})
        db.create_index("tag", F.tags.each())

        def rows() -> Iterator[dict[str, Any]]:
            for n in range(10_000):
                yield {"tags": [f"{n * 7919 % 10_000} {tag}" for tag in range(20)]}
            ring_soon()

        assert was_stopped(functools.partial(db.extend, rows()), lambda: None)
        assert (len(db), len(db.index("tag"))) == (1, 1)
        with db.transaction():
            db.append({"tags": ["second"]})
            assert was_stopped(functools.partial(db.extend, rows()), lambda: None)
            db.append({"tags": ["third"]})
        assert [value for value, _ in db.index("tag")] == ["first", "second", "third"]
        assert db.check() == []


@pytest.mark.parametrize("way", ["update", "delete", "extend", "columns", "put all"])
def test_a_change_of_rows_that_take_long_stops_at_a_signal(
    path: Path, way: str, ring_soon: Callable[[], None]
) -> None:
    """Fewer rows than used to be changed between two looks at signals: all were, before one was noticed."""
    words = {"words": [f"word {n}" for n in range(3000)]}
    with pellucid.open(path) as db:
        table, other = db.table("t"), db.table("other")
        table.extend([words] * 2000)
        if way == "delete":
            table.create_index("words", F.words.each())
        do: Callable[[], Any] = {
            "update": lambda: table.where().update(words=F.words.each().upper()),
            "delete": table.where().delete,
            "extend": lambda: other.extend([words] * 2000),
            "columns": lambda: other.extend(pa.table({"words": [words["words"]] * 2000})),
            "put all": lambda: other.update(dict.fromkeys(range(2000), words)),
        }[way]
        with pytest.raises(Rang):  # noqa: PT012
            ring_soon()
            do()
        # Nothing of it was done.
        assert (len(table), len(other)) == (2000, 0)
        assert table[0].words[0] == table[1999].words[0] == "word 0"


@pytest.mark.parametrize(
    ("way", "holder"),
    [
        *((way, holder) for way in ("put", "transaction", "extend") for holder in ("thread", "process")),
        # Of another thread's transaction that one is told at once.
        ("compact", "process"),
    ],
)
def test_whoever_waits_for_others_stops_at_a_signal(
    path: Path, way: str, holder: str, ring_soon: Callable[[], None]
) -> None:
    is_held, is_over = threading.Event(), threading.Event()

    def hold() -> None:
        with db.transaction():
            db["a"] = 2
            is_held.set()
            is_over.wait()

    def write() -> None:
        with db.transaction():
            db["b"] = 1

    with pellucid.open(path, timeout=3600) as db:
        db["a"] = 1
        do: dict[str, Callable[[], Any]] = {
            "put": lambda: db.__setitem__("b", 1),
            "transaction": write,
            "extend": lambda: db.table("t").extend([1, 2]),
            "compact": db.compact,
        }
        with contextlib.ExitStack() as others:
            if holder == "thread":
                thread = threading.Thread(target=hold)
                thread.start()
                others.callback(thread.join)
                others.callback(is_over.set)
                is_held.wait()
            else:
                other = others.enter_context(Child(path))
                other("hold = db.transaction(); hold.__enter__()")
            with pytest.raises(Rang):  # noqa: PT012
                ring_soon()
                do[way]()
            assert dict(db) == {"a": 1}
        # It has left nobody waiting.
        do[way]()
        assert db.check() == []


def test_a_handler_writes_while_its_thread_waits_for_another_process(path: Path) -> None:
    with pellucid.open(path, timeout=60) as db, Child(path) as other:
        db["a"] = 1
        other("hold = db.transaction(); hold.__enter__()")

        def ring(*_: object) -> None:
            other("hold.__exit__(None, None, None)")
            db["b"] = 2

        old = signal.signal(signal.SIGALRM, ring)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            db["c"] = 3
        finally:
            signal.signal(signal.SIGALRM, old)
        assert dict(db) == {"a": 1, "b": 2, "c": 3}


@pytest.mark.parametrize("kind", [5, 6])
def test_a_signal_ends_the_decoding_of_a_set_of_numbers_that_have_one_hash(
    kind: int, ring_soon: Callable[[], None]
) -> None:
    # A list of them is made in no time; a set compares each with all before it.
    data = bytearray(pellucid.dumps([(2**61 - 1) * number for number in range(16, 60_016)]))
    data[16] = kind << 4 | 1
    with pytest.raises(Rang):  # noqa: PT012
        ring_soon()
        pellucid.view(data)


def test_a_signal_ends_the_writing_of_one_row_of_lists_that_share_elements(
    ring_soon: Callable[[], None],
) -> None:
    elements = pa.array(range(1000), pa.int32())
    for _ in range(2):
        starts = pa.py_buffer(bytes(4 * 1000))
        sizes = pa.py_buffer(len(elements).to_bytes(4, "little") * 1000)
        elements = pa.Array.from_buffers(
            pa.list_view(elements.type), 1000, [None, starts, sizes], children=[elements]
        )
    rows = pa.RecordBatch.from_arrays([elements.slice(0, 1)], ["c"])
    db = pellucid.open(":memory:")
    with pytest.raises(Rang):  # noqa: PT012
        ring_soon()
        db.extend(rows)
    assert len(db) == 0


def doubled() -> list[Any]:
    """A list that holds the one before twice, and so on: too large to be written in an hour."""
    parts: list[Any] = [{"a": 1}]
    for _ in range(60):
        parts = [parts, parts]
    return parts


@pytest.mark.parametrize(
    "value",
    [doubled(), [{"a": 1}] * 2_000_000, [{"a": [1]}] * 1_000_000, {"a": [[]] * 2_000_000}],
    ids=["doubled", "dicts", "dicts of lists", "lists"],
)
def test_the_encoding_of_a_value_stops_at_a_signal(
    value: Any, table: Any, ring_soon: Callable[[], None]
) -> None:
    for encode in (pellucid.dumps, table.append, lambda value: table.update(a=value)):
        assert was_stopped(functools.partial(encode, value), ring_soon)
    assert len(table) == 0


def test_a_list_may_change_where_its_encoding_stops(ring_soon: Callable[[], None]) -> None:
    rows: list[dict[str, int]] = []

    def cut(*_: object) -> None:
        del rows[500:]
        gc.collect()

    def is_stopped() -> bool:
        rows[:] = [{"a": number} for number in range(1_000_000)]
        ring_soon()
        try:
            pellucid.dumps(rows)
        except RuntimeError as error:
            return "changed size" in str(error)
        return False

    signal.signal(signal.SIGALRM, cut)
    # On a busy machine the signal may come before the encoding begins.
    assert any(is_stopped() for _ in range(20))
    assert len(rows) == 500
