"""Does anything a user's code can do crash the interpreter, store something wrong, or leak?

What would kill the process runs in one of its own (`survives`).
"""

from __future__ import annotations

import contextlib
import enum
import os
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pellucid
import pyarrow
import pytest
from processes import PEAK_MEMORY


class Hook:
    """A value whose encoder does whatever a test wants while a record is being made."""

    action: Callable[[], object] | None = None


def _encode(_hook: Hook) -> int:
    action, Hook.action = Hook.action, None
    if action is not None:
        action()
    return 1


pellucid.register(Hook, _encode, lambda value: value)


def survives(script: str, *arguments: str) -> str:
    """What `script` prints, run by an interpreter that must not die of it."""
    environment = {**os.environ, "PYTHONFAULTHANDLER": "1", "PYTHONMALLOC": "debug"}
    command = [sys.executable, "-c", textwrap.dedent(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout.strip()


def memory_growth(script: str) -> int:
    """Bytes of memory that `work()` of a script takes for good at each call."""
    measured = """
        import gc
        def memory():
            gc.collect()
            return peak_memory() * 1024
        for _ in range(2_000):
            work()
        before = memory()
        for _ in range(30_000):
            work()
        print((memory() - before) // 30_000)
    """
    environment = {**os.environ, "PYTHONMALLOC": "malloc"}
    script = PEAK_MEMORY + textwrap.dedent(script) + textwrap.dedent(measured)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env=environment, check=True
    )
    return int(done.stdout)


# Code that runs while a value is encoded


def test_an_envelope_made_while_another_is_made_does_not_disturb_it() -> None:
    value = [{"a": 1}, {"b": 2}, Hook(), {"a": 3}, {"b": 4}, {"c": 5}]
    Hook.action = lambda: pellucid.dumps([{"b": 1}, {"a": 9}])
    data = pellucid.dumps(value)
    pellucid.validate(data)
    assert pellucid.loads(data) == [{"a": 1}, {"b": 2}, 1, {"a": 3}, {"b": 4}, {"c": 5}]


def test_two_threads_that_make_envelopes_in_turn_do_not_disturb_each_other() -> None:
    inside, go_on = threading.Event(), threading.Event()
    results = []

    def wait() -> None:
        inside.set()
        go_on.wait(10)

    def other() -> None:
        Hook.action = wait
        results.append(pellucid.dumps([{"a": 1}, {"b": 2}, Hook(), {"b": 3}, {"a": 4}]))

    thread = threading.Thread(target=other)

    def begin_the_other() -> None:
        thread.start()
        inside.wait(10)

    Hook.action = begin_the_other
    results.append(pellucid.dumps([{"b": 1}, Hook(), {"a": 2}, {"b": 3}, {"a": 4}]))
    go_on.set()
    thread.join()
    assert [pellucid.loads(data) for data in results] == [
        [{"b": 1}, 1, {"a": 2}, {"b": 3}, {"a": 4}],
        [{"a": 1}, {"b": 2}, 1, {"b": 3}, {"a": 4}],
    ]


def test_thousands_of_envelopes_made_while_another_is_made_do_not_disturb_it() -> None:
    # Known before, so that some of the thousands are guessed to be like it, wrongly.
    pellucid.dumps({"a": 0})
    Hook.action = lambda: [pellucid.dumps({f"k{n}": n}) for n in range(5000)]
    assert pellucid.loads(pellucid.dumps([{"a": 1}, Hook(), {"a": 2}])) == [{"a": 1}, 1, {"a": 2}]
    for n in range(2000):
        assert pellucid.loads(pellucid.dumps({f"q{n}": n, "t": 2})) == {f"q{n}": n, "t": 2}


def test_a_shape_wrongly_guessed_within_another_envelope_stays_that_ones() -> None:
    for _ in range(3):
        # From now on a dict of two that begins with "a" is taken for one of these.
        pellucid.dumps([{"a": 1, "b": 2}])
    Hook.action = lambda: pellucid.dumps({"a": 1, "other": 1})
    packed = pellucid.dumps([{"a": 1, "b": 2}, Hook(), {"a": 3, "b": 4}])
    assert pellucid.loads(packed) == [{"a": 1, "b": 2}, 1, {"a": 3, "b": 4}]


@pytest.mark.parametrize("value", [{"a": Hook(), "b": [1], "c": 3}, {1: Hook(), 2: [3]}, [Hook(), [1], [2]]])
def test_a_container_that_changes_while_it_is_encoded_raises(value: Any, db: pellucid.Database) -> None:
    for store in (pellucid.dumps, db.table("t").append, lambda one: db.update(k=one)):
        changed = value.copy()
        Hook.action = changed.clear
        with pytest.raises(RuntimeError, match="size"):
            store(changed)
    assert not list(db)


def test_dicts_of_a_long_list_may_change_while_one_ahead_of_them_is_encoded() -> None:
    said = survives("""
        import random
        import pellucid

        class Hook: pass
        def encode(hook):
            hook.action()
            return 1
        pellucid.register(Hook, encode, lambda value: value)

        def row(n): return {"id": n, "name": "somebody called " + str(n), "score": n / 2}
        def fill(some, n): some.update({f"more {k} of {n}": "x" * k for k in range(9)})

        for number in range(300):
            chance = random.Random(number)
            rows = [row(n) for n in range(40)]
            hook, at = Hook(), chance.randrange(35)
            near = at + chance.randrange(1, 4)
            def act():
                kind = number % 5
                if kind == 0: rows[near] = row(1000 + number)
                elif kind == 1: rows[near]["name"] = "not known when the list was begun" + str(number)
                elif kind == 2: rows[near].clear()
                elif kind == 3: fill(rows[near], number)
                else: rows[at + 1:] = [row(n) for n in range(at + 1, 40)][::-1]
                pellucid.dumps([row(n) for n in range(50)])
            hook.action = act
            rows[at]["name"] = hook
            packed = pellucid.dumps(rows)
            rows[at]["name"] = 1
            assert pellucid.loads(packed) == rows, number
        print("alive")
    """)
    assert said == "alive"


@pytest.mark.parametrize("store", ["dumps", "extend"])
def test_what_a_long_list_holds_may_be_freed_while_it_is_asked_for_ahead(store: str) -> None:
    said = survives(
        """
        import gc, random, sys
        import pellucid

        class Hook: pass
        def encode(hook):
            hook.action()
            return 1
        pellucid.register(Hook, encode, lambda value: value)

        def row(n):
            inner = {"a": n, "b": {"c": [n, "text " + str(n)], "d": [{"e": n}, {"f": str(n)}]}}
            some = set() if n % 7 == 0 else None
            return {"id": n, "inner": inner, "list": ["one", 2.5, [n, {"g": n}]], "set": some}

        for number in range(120):
            chance = random.Random(number)
            rows = [row(n) for n in range(150)]
            hook, at = Hook(), chance.randrange(120)
            near = [at + chance.randrange(1, 29) for _ in range(8)]
            def act():
                kind = number % 4
                for place in near:
                    if kind == 0: rows[place] = row(1000 + number)
                    elif kind == 1: rows[place]["inner"]["b"] = {"other": [number]}
                    elif kind == 2: rows[place]["list"].clear()
                    else: rows[place]["inner"].clear()
                if number % 3 == 0 and sys.argv[1] == "extend": del rows[at + 1:]
                gc.collect()
                pellucid.dumps([row(n) for n in range(100)])
            hook.action = act
            rows[at]["list"][2][1]["g"] = hook
            if sys.argv[1] == "dumps":
                found = pellucid.loads(pellucid.dumps(rows))
            else:
                with pellucid.open(":memory:") as db:
                    db.extend(rows)
                    found = [value.to_dict() for value in db.values()]
            rows[at]["list"][2][1]["g"] = 1
            assert found == rows, number
        print("alive")
        """,
        store,
    )
    assert said == "alive"


def test_a_record_that_got_a_new_field_after_compact_is_changed_by_another_handle(path: Path) -> None:
    said = survives(
        """
        import faulthandler, sys
        import pellucid

        # It waited for itself, with the GIL held.
        faulthandler.dump_traceback_later(60, exit=True)
        with pellucid.open(sys.argv[1]) as db:
            db["a"] = {"p": 1, "q": {"r": 2}}
            one, other = db["a"], db["a"]
            other.p
            db.compact()
            one["z"] = 1
            one.q["zz"] = 1
            other.p = 3
            other.q.r = 4
            print(db["a"].to_dict())
        """,
        str(path),
    )
    assert said == "{'p': 3, 'q': {'r': 4, 'zz': 1}, 'z': 1}"


def test_a_value_encoded_for_a_transaction_that_ends_meanwhile_is_not_stored(db: pellucid.Database) -> None:
    transaction = db.transaction()
    transaction.__enter__()
    db["x"] = {"one": 1, "two": 2}
    Hook.action = lambda: transaction.__exit__(ValueError, ValueError(), None)
    with pytest.raises(pellucid.errors.TransactionError, match="ended"):
        db["y"] = [{"one": 1, "two": 2}, Hook()]
    db["z"] = {"other": 1, "names": 2}
    assert dict(db) == {"z": {"other": 1, "names": 2}}


def test_values_appended_while_extend_goes_on_are_not_overwritten(db: pellucid.Database) -> None:
    table = db.table("t")

    def values() -> Iterator[str]:
        for n in range(3):
            yield f"outer {n}"
            table.append(f"inner {n}")

    assert table.extend(values()) == 3
    assert sorted(table.values()) == [f"{who} {n}" for who in ("inner", "outer") for n in range(3)]


@pytest.mark.parametrize("is_made_anew", [False, True])
@pytest.mark.parametrize("as_columns", [False, True])
def test_a_table_that_is_dropped_by_what_extend_takes_is_stale(
    db: pellucid.Database, is_made_anew: bool, as_columns: bool
) -> None:
    def rows() -> Iterator[Any]:
        yield pyarrow.record_batch({"a": [1]}) if as_columns else {"a": 1}
        db.drop_table("t")
        if is_made_anew:
            db.table("t").append({"other": 1})
        yield pyarrow.record_batch({"a": [2]}) if as_columns else {"a": 2}

    table = db.table("t")
    table.append({"a": 0})
    given: Any = rows()
    if as_columns:
        given = pyarrow.RecordBatchReader.from_batches(pyarrow.schema([("a", pyarrow.int64())]), given)
    with pytest.raises(pellucid.StaleTable, match="table 't' has been dropped since it was opened"):
        table.extend(given)
    assert list(table.values()) == [{"a": 0}]


def test_an_enum_that_is_its_own_value_raises() -> None:
    assert (
        survives("""
            import enum, pellucid
            class Own(enum.Enum):
                A = 1
                @property
                def value(self): return self
            try:
                pellucid.dumps(Own.A)
            except pellucid.errors.RecordTooLarge:
                print("refused")
        """)
        == "refused"
    )


def test_an_enum_of_an_enum_is_stored_as_the_innermost_value() -> None:
    inner = enum.Enum("inner", {"A": 5})
    outer = enum.Enum("outer", {"B": inner.A})
    assert pellucid.loads(pellucid.dumps([outer.B])) == [5]


# Signal handlers


@pytest.mark.parametrize("target", ["file", "memory"])
@pytest.mark.parametrize(
    "action", ["db.close()", "transaction.__exit__(None, None, None)", "table.append({})"]
)
def test_no_signal_handler_takes_the_transaction_from_a_walk(action: str, target: str, path: Path) -> None:
    script = f"""
        import signal, sys, pellucid
        db = pellucid.open(sys.argv[1])
        table = db.table("t")
        table.extend({{"a": n}} for n in range(100_000))
        transaction = db.transaction()
        transaction.__enter__()
        table.append({{"a": 5}})
        done = []
        def handler(*_):
            done.append(1)
            try:
                {action}
            except pellucid.errors.TransactionError:
                pass
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        for _ in range(50):
            try:
                table.sum("a")
            except pellucid.errors.Closed:
                break
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert done
        db.close()
        print("alive")
    """
    assert survives(script, str(path) if target == "file" else ":memory:") == "alive"


# Transactions, iterators and closing


def test_an_iterator_of_a_transaction_ends_with_it(db: pellucid.Database) -> None:
    with db.transaction():
        db.update(a=1, b=2)
        iterator = iter(db)
        assert next(iterator) == "a"
    with pytest.raises(pellucid.errors.TransactionError):
        next(iterator)
    with db.transaction():
        db["c"] = 3
        with pytest.raises(pellucid.errors.TransactionError, match="over"):
            next(iterator)


def test_a_database_closed_by_another_thread_drops_the_transaction(path: Path) -> None:
    db = pellucid.open(path)
    transaction = db.transaction()
    transaction.__enter__()
    db["a"] = 1
    closer = threading.Thread(target=db.close)
    closer.start()
    closer.join()
    with pytest.raises(pellucid.errors.Closed):
        transaction.__exit__(None, None, None)
    with pellucid.open(path) as again:
        assert dict(again) == {}


def test_a_database_closed_in_its_transaction_says_that_it_was_dropped(path: Path) -> None:
    def close_within(error: Exception | None) -> None:
        db = pellucid.open(path)
        with db.transaction():
            db["a"] = 1
            db.close()
            if error is not None:
                raise error

    with pytest.raises(pellucid.Closed, match="what this transaction wrote was dropped"):
        close_within(None)
    with pytest.raises(RuntimeError, match="mine"):
        close_within(RuntimeError("mine"))
    with pellucid.open(path) as again:
        assert dict(again) == {}


def test_records_kept_from_a_scan_stay_what_they_were(db: pellucid.Database) -> None:
    table = db.table("t")
    table.extend({"n": n, "list": [n, {"n": n}]} for n in range(1000))
    kept: list[Any] = []
    for n, record in enumerate(table.values()):
        kept.append([record, record.list, record.list[1], record.get][n % 4])
    read = [lambda one: one.n, lambda one: one[0], lambda one: one.n, lambda one: one("n")]
    assert [read[n % 4](one) for n, one in enumerate(kept)] == list(range(1000))


# Handles of what has become something else


@pytest.mark.parametrize(
    ("change", "new"),
    [
        (lambda rec: rec.clear(), [1, 2]),
        (lambda rec: rec.d.clear(), {"d": [1, 2], "l": {}}),
        (lambda rec: rec.l.clear(), {"d": [1], "l": {"k": 1}}),
    ],
)
def test_a_handle_does_not_change_what_is_of_another_kind_by_now(
    change: Callable[[Any], None], new: object, db: pellucid.Database
) -> None:
    db["a"] = {"d": {"x": 1}, "l": [1]}
    record = db["a"]
    db["a"] = new
    with pytest.raises(KeyError, match="any more"):
        change(record)
    assert db["a"] == new


def test_an_index_is_not_taken_for_a_key_of_a_dict_that_replaced_the_list(db: pellucid.Database) -> None:
    db["a"] = {"l": [1, 2]}
    numbers = db["a"].l
    db["a"] = {"l": {1: 2, "x": 3}}
    with pytest.raises(KeyError):
        numbers[0] = 5
    assert db["a"] == {"l": {1: 2, "x": 3}}


def test_a_handle_whose_place_holds_another_kind_after_a_change_is_gone(db: pellucid.Database) -> None:
    db["a"] = {"l": [1, 2], "n": 1}
    record = db["a"]
    numbers = record.l
    record["l"] = {"k": 1}
    for use in (len, list, lambda one: one[0], lambda one: one.append(1)):
        with pytest.raises(KeyError):
            use(numbers)
    assert "no longer there" in repr(numbers)


def test_a_record_changed_by_the_code_of_its_keys_is_read_as_it_was() -> None:
    record = pellucid.view(pellucid.dumps({"a": 1})).copy()

    class Key:
        def __hash__(self) -> int:
            return 1

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Key)

    def decode(_value: object) -> Key:
        record["grown"] = "x" * 5000
        return Key()

    pellucid.register(Key, lambda _key: 1, decode)
    record["m"] = {Key(): [1, 2, 3], 5: [4]}
    assert [(key, value.to_list()) for key, value in record["m"].items()] == [(Key(), [1, 2, 3]), (5, [4])]


# Bytes of strangers


def test_containers_nested_deeper_than_any_that_is_written_are_refused() -> None:
    printed = survives("""
        import struct, pellucid
        # Lists of one element, each in a byte's slot of the one around it.
        body = b"\\x03\\x01\\x50\\x04" * 300_000 + b"\\x03\\x01\\x02\\x01"
        record = bytes.fromhex("310300000100000050") + struct.pack("<II", 17, len(body)) + body
        here = pellucid.view(pellucid.dumps([1])[:16] + record)
        depth = 1
        try:
            while True:
                here = here[0]
                depth += 1
        except pellucid.errors.CorruptRecord:
            del here
            print(depth)
    """)
    assert int(printed) == 64


def test_every_flipped_byte_and_every_cut_is_noticed_or_harmless() -> None:
    values = [
        {"a": 1, "s": "long enough for the heap", "l": [1, {"x": None}], "n": {"s": {1, 2}}},
        [[1.5], (2, [3])],
    ]
    for data in map(pellucid.dumps, values):
        damaged = [data[:size] for size in range(len(data))]
        for place in range(len(data)):
            for bits in (0x01, 0x80, 0xFF):
                one = bytearray(data)
                one[place] ^= bits
                damaged.append(bytes(one))
        for one in damaged:
            for read in (pellucid.loads, pellucid.validate, lambda data: repr(pellucid.view(data)), _touch):
                with contextlib.suppress(pellucid.errors.CorruptRecord):
                    read(one)


def _touch(data: bytes) -> None:
    todo: list[Any] = [pellucid.view(data)]
    while todo:
        value = todo.pop()
        if isinstance(value, pellucid.Record):
            todo.extend(value.values())
        elif isinstance(value, (pellucid.RecordList, tuple)):
            todo.extend(value)


def test_a_stored_object_whose_class_is_named_by_no_str_is_damage() -> None:
    data = bytearray(pellucid.dumps([Hook()]))
    # In front of the name: its tag, the value's tag, their slots, the name's size.
    tag = data.index(f"{Hook.__module__}.{Hook.__qualname__}".encode()) - 5
    assert (data[tag], data[tag + 1]) == (0x40, 0x04)
    data[tag] = 0x04
    with pytest.raises(pellucid.errors.CorruptRecord):
        pellucid.view(data)[0]


def test_an_index_beyond_every_list_is_out_of_range() -> None:
    numbers = pellucid.view(pellucid.dumps({"l": [1, [2]]})).l
    for index in (2, -3, 2**62, 2**100, -(2**100)):
        with pytest.raises(IndexError):
            numbers[index]
    assert pellucid.view(pellucid.dumps({"l": [1]})).path(("l", 2**100), "none") == "none"


def test_what_an_index_raises_is_not_replaced() -> None:
    class Index:
        def __index__(self) -> int:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pellucid.view(pellucid.dumps([1, [2]]))[Index()]  # type: ignore[index]


# Memory


@pytest.mark.parametrize(
    "expression",
    [
        "hasattr(rec, 'missing')",
        "try_it(lambda: rec['missing'])",
        "try_it(lambda: rec[object()])",
        "try_it(lambda: keyed['\\udc80'])",
        "try_it(lambda: pellucid.view(b'cut'))",
        "try_it(lambda: memoryview(damaged))",
        "try_it(lambda: next(exhausted))",
        "list(enums.values())",
        "aborted()",
    ],
)
def test_nothing_is_kept_of_what_fails(expression: str) -> None:
    growth = memory_growth(f"""
        import enum, pellucid
        def try_it(work):
            try:
                work()
            except Exception:
                pass
        rec = pellucid.view(pellucid.dumps({{"a": 1}}))
        keyed = pellucid.view(pellucid.dumps({{1: 2, "x": 3}}))
        damaged = pellucid.view(pellucid.dumps({{"a": "\\u00fc"}}).replace("\\u00fc".encode(), b"\\xff\\xff"))
        db = pellucid.open(":memory:")
        Color = enum.Enum("Color", {{"RED": 1}})
        enums = db.table("e", type=Color)
        enums["\\udc80"] = Color.RED
        closed = pellucid.open(":memory:")
        closed["a"] = 1
        exhausted = iter(closed)
        closed.close()
        def aborted():
            try:
                with db.transaction():
                    db["k"] = {{"made": 1, "and": 2, "dropped": 3}}
                    raise ValueError
            except ValueError:
                pass
        def work():
            {expression}
    """)
    assert growth <= 8
