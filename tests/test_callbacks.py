"""What may Python code do that runs in the middle of native work?

Signal handlers, finalizers, decode functions, iterators, imports and other threads: each may change or
free what the native code is reading. What would kill the process runs in one of its own (`survives`).
"""

from __future__ import annotations

import builtins
import contextlib
import gc
import mmap
import os
import subprocess
import sys
import textwrap
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import F
from processes import PEAK_MEMORY


def survives(script: str, *arguments: str, before: str = "") -> str:
    """What `script` prints, run by an interpreter that must not die of it; freed memory is overwritten."""
    environment = {
        **os.environ,
        "PYTHONFAULTHANDLER": "1",
        "MALLOC_PERTURB_": "65",
        "MALLOC_MMAP_THRESHOLD_": "4096",
    }
    command = [sys.executable, "-c", before + textwrap.dedent(script), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 0, f"{done.returncode}: {done.stderr[-2000:]}"
    return done.stdout.strip()


class Called:
    """An object that is stored as 1, and is read through `action`."""

    action: Callable[[], object] = staticmethod(lambda: None)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Called)

    def __hash__(self) -> int:
        return 1


def _decode(_value: object) -> Called:
    Called.action()
    return Called()


pellucid.register(Called, lambda _called: 1, _decode)


@pytest.fixture
def called() -> Iterator[type[Called]]:
    """The class, whose action is forgotten afterwards."""
    yield Called
    Called.action = staticmethod(lambda: None)


# Signal handlers and finalizers


@pytest.mark.parametrize("store", ["extend", "dumps"])
def test_a_signal_handler_may_free_what_a_long_list_holds(store: str) -> None:
    said = survives(
        """
        import signal, sys
        import pellucid

        def inner(n):
            return {f"k{i}": n + i for i in range(40)}

        def handler(*_):
            for row in rows:
                row.clear()
            del rows[len(rows) // 2:]
        signal.signal(signal.SIGALRM, handler)

        for delay in (0.002, 0.005, 0.01, 0.02, 0.04):
            rows = [{"a": inner(n), "b": inner(n), "c": inner(n)} for n in range(4_000)]
            signal.setitimer(signal.ITIMER_REAL, delay)
            if sys.argv[1] == "extend":
                with pellucid.open(":memory:") as db:
                    db.table("t").extend(rows)
                    assert all(not row or len(row.c) == 40 for row in db.table("t").values())
            else:
                pellucid.loads(pellucid.dumps(rows))
            signal.setitimer(signal.ITIMER_REAL, 0)
        print("alive")
        """,
        store,
    )
    assert said == "alive"


def test_finalizers_may_free_what_extend_is_about_to_read() -> None:
    said = survives("""
        import gc
        import pellucid

        gc.set_threshold(1)

        class Cycle:
            def __init__(self, rows, place):
                self.me, self.rows, self.place = self, rows, place
            def __del__(self):
                for row in self.rows[self.place:]:
                    row.clear()

        def inner(n):
            return {f"k{i}": n + i for i in range(40)}

        class Plain:
            pass
        pellucid.register(Plain, lambda plain: [[] for _ in range(20)], lambda value: value)

        for number in range(12):
            rows = [{"a": inner(n), "b": inner(n), "c": inner(n), "d": Plain() if n % 9 == 0 else None}
                    for n in range(200)]
            for place in range(0, 200, 30):
                Cycle(rows, place)
            with pellucid.open(":memory:") as db:
                assert db.table("t").extend(rows) == 200
                for row in db.table("t").values():
                    row.to_dict()
        print("alive")
    """)
    assert said == "alive"


# Changes of a record that is being decoded


WAYS: list[Callable[[Any], Any]] = [
    lambda record: record.to_dict(),
    lambda record: pellucid.loads(pellucid.dumps(record)),
    lambda record: record.copy().to_dict(),
    lambda record: {key: plain(value) for key, value in record.items()},
    lambda record: dict(zip(record, map(plain, record.values()), strict=True)),
    lambda record: record | {},
    lambda record: {"p": len(record.p) * "y", "r": record.r.to_list()},
    lambda record: {"p": len(record.p) * "y", "r": [plain(element) for element in record.r[:]]},
    lambda record: {"p": len(record.p) * "y", "r": [plain(element) for element in reversed(record.r)][::-1]},
]


def plain(value: Any) -> Any:
    """A record or a list in plain containers; anything else as it is."""
    if isinstance(value, pellucid.Record):
        return value.to_dict()
    return value.to_list() if isinstance(value, pellucid.RecordList) else value


@pytest.mark.parametrize("way", range(len(WAYS)))
@pytest.mark.parametrize("kind", ["detached", "attached"])
def test_a_decode_function_may_change_the_record_that_it_is_in(
    way: int, kind: str, called: type[Called]
) -> None:
    rest = [1, 2, 3, "four", [5, 6], {"k": 7}, called()]
    with pellucid.open(":memory:") as db:
        for size in (0, 1, 7, 9, 200, 70_000):
            value = {"p": "", "r": [called(), *rest]}
            record = pellucid.view(pellucid.dumps(value)).copy()
            if kind == "attached":
                db["x"] = value
                record = db["x"]
            grown = "y" * size

            def grow(record: Any = record, grown: str = grown) -> None:
                record["p"] = grown

            called.action = staticmethod(grow)
            found = WAYS[way](record)
            called.action = staticmethod(lambda: None)
            assert found["r"] == [called(), *rest]
            # One state of it: that of the beginning, but where the two fields were read one by one.
            assert found["p"] in ({"", grown} if way >= 6 else {""})
            assert record.p == grown
            assert record.to_dict() == {"p": grown, "r": [called(), *rest]}


def test_a_tuple_whose_elements_change_the_record_has_handles_of_the_right_place(
    called: type[Called],
) -> None:
    record = pellucid.view(pellucid.dumps({})).copy()
    record["l"] = [[0], (called(), [1], {"k": 2})]
    called.action = staticmethod(lambda: record.l.insert(0, "moved"))
    pair = record.l[1]
    called.action = staticmethod(lambda: None)
    assert record.l[0] == "moved"
    for handle in pair[1:]:
        with pytest.raises((KeyError, IndexError), match=r"moved|changed|elsewhere|no longer|element"):
            len(handle)


def test_a_record_changed_by_the_code_of_a_key_is_read_as_it_is_then(called: type[Called]) -> None:
    record = pellucid.view(pellucid.dumps({"m": {1: 1}, "p": ""})).copy()
    mapping = record.m

    class Key:
        pass

    def encode(_key: Key) -> int:
        record["p"] = "grown" * 1000
        return 1

    pellucid.register(Key, encode, lambda _value: Key())
    assert Key() not in mapping
    assert mapping.get(Key()) is None
    assert mapping[1] == 1


@pytest.mark.parametrize("read", ["to_dict", "to_list", "dumps", "repr", "eq", "items"])
def test_a_record_is_read_whole_while_another_thread_changes_it(read: str) -> None:
    good = [uuid.UUID(int=1), *range(1, 61)]
    with pellucid.open(":memory:") as db:
        db["k"] = {"pad": "x" * 20, "r": good}
        record = db["k"]
        right = repr(record.r)
        ways: dict[str, Callable[[], bool]] = {
            "to_dict": lambda: record.to_dict()["r"] == good,
            "to_list": lambda: record.r.to_list() == good,
            "dumps": lambda: pellucid.loads(pellucid.dumps(record))["r"] == good,
            "repr": lambda: repr(record.r) == right,
            "eq": lambda: record.r == good,
            "items": lambda: dict(record.items())["r"] == good,
        }
        before = sys.getswitchinterval()
        sys.setswitchinterval(1e-5)
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                record["pad"] = "x" * (20 + number % 9)
                number += 1

        writer = threading.Thread(target=write)
        writer.start()
        try:
            end = time.monotonic() + 0.7
            while time.monotonic() < end:
                assert ways[read]()
        finally:
            stop.set()
            writer.join()
            sys.setswitchinterval(before)


def test_what_was_read_in_place_of_changed_bytes_is_freed(called: type[Called]) -> None:
    said = survives(
        """
        import pellucid

        class Called:
            pass
        def decode(_value):
            for number in range(300):
                record["p"] = "y" * (1_000_000 + number)
            return 1
        pellucid.register(Called, lambda called: 1, decode)
        record = pellucid.view(pellucid.dumps({"p": ""})).copy()
        record["c"] = [Called(), 2]
        for _ in range(3):
            assert record.c.to_list() == [1, 2]
        print(peak_memory())
    """,
        before=PEAK_MEMORY,
    )
    # Two copies at a time; all that were made would be 900 MB.
    assert int(said) < 200_000


def test_the_bytes_of_a_pickle_outlive_the_import_that_reads_them() -> None:
    said = survives("""
        import builtins
        import pellucid

        class Odd:
            def __init__(self):
                self.text = "x" * 20_000

        db = pellucid.open(":memory:", pickle="allow")
        db["a"] = {"p": Odd(), "q": ""}
        record = db["a"]
        record.q = "first"
        real = builtins.__import__
        def hook(name, *rest):
            if name == "pellucid.objects":
                builtins.__import__ = real
                record.q = "y" * 25_000
            return real(name, *rest)
        builtins.__import__ = hook
        print(len(record.p.text), set(record.p.text))
    """)
    assert said == "20000 {'x'}"


@pytest.mark.parametrize("name", ["decimal", "uuid", "zoneinfo", "datetime"])
def test_an_import_may_change_the_record_that_needs_it(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import datetime
    import decimal
    import zoneinfo

    values: dict[str, Any] = {
        "decimal": decimal.Decimal("1.50"),
        "uuid": uuid.UUID(int=7),
        "zoneinfo": datetime.datetime(2026, 1, 2, tzinfo=zoneinfo.ZoneInfo("UTC")),
        "datetime": datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
    }
    value = values[name]
    record = pellucid.view(pellucid.dumps({"p": "", "v": [value, value, "text " * 3]})).copy()
    real, sizes = builtins.__import__, iter(range(1, 1_000_000, 997))

    def hook(asked: str, *rest: Any) -> Any:
        if asked == name:
            record["p"] = "y" * next(sizes)
        return real(asked, *rest)

    monkeypatch.setattr(builtins, "__import__", hook)
    for _ in range(5):
        assert record.v.to_list() == [value, value, "text " * 3]


# Code that ends what it runs in


def test_a_generator_that_closes_the_database_is_told_so(path: Path) -> None:
    def rows(db: pellucid.Database) -> Iterator[dict[str, int]]:
        yield {"n": 1}
        db.close()
        yield {"n": 2}

    for target in (path, ":memory:"):
        db = pellucid.open(target)
        with pytest.raises(pellucid.Closed, match=r"was closed|is closed"):
            db.table("t").extend(rows(db))
    with pellucid.open(path) as db:
        assert len(db.table("t")) == 0


ENDS: dict[str, Callable[[pellucid.Database], object]] = {
    "close": lambda db: db.close(),
    "drop": lambda db: db.drop_table("t"),
    "clear": lambda db: db.table("t").clear(),
    "compact": lambda db: db.compact(),
    "collect": lambda _db: gc.collect(),
    "write": lambda db: db.table("t").append({"c": 1}),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("kind", ["file", "memory"])
def test_a_decode_function_may_end_what_it_is_read_from(
    end: str, kind: str, path: Path, called: type[Called]
) -> None:
    value = {"p": "x" * 50, "r": [called(), 1, "two" * 9, called(), {"k": called()}]}
    reads: list[Callable[[Any], Any]] = [
        lambda table: [row.to_dict() for row in table.values()],
        lambda table: [dict(row.items()) for row in table.values()],
        lambda table: [row.r[:] for row in table.values()],
        lambda table: table.column("r"),
        lambda table: table.select("p", "r").to_list(),
        lambda table: [row["r"].to_list() for row in table.where(pellucid.F.p == "x" * 50)],
        lambda table: table[3].r.to_list(),
        lambda table: sorted(table.values(), key=repr),
        lambda table: [plain(row) for _, row in table.items()],
    ]
    for number, read in enumerate(reads):
        target = ":memory:" if kind == "memory" else path.with_name(f"{number}.pel")
        db = pellucid.open(target)
        db.table("t").extend([value] * 8)
        left = [1]

        def act(db: pellucid.Database = db, left: list[int] = left) -> None:
            if left:
                left.pop()
                ENDS[end](db)

        called.action = staticmethod(act)
        # It is read, or says that it is gone; nothing looks damaged.
        with contextlib.suppress(
            pellucid.Busy,
            pellucid.Closed,
            pellucid.StaleRecord,
            pellucid.StaleTable,
            pellucid.TransactionError,
            KeyError,
        ):
            read(db.table("t"))
        called.action = staticmethod(lambda: None)
        db.close()


# Cycles through a buffer


class Holder(bytearray):
    """A buffer that may hold what reads it."""

    held: Any


@pytest.mark.parametrize(
    "hold",
    [
        lambda record: record,
        lambda record: record.a,
        lambda record: record.d,
        lambda record: [record, record.a, record.d.l[0]],
        lambda record: record.items(),
        lambda record: iter(record.a),
        lambda record: record.t,
    ],
)
def test_a_record_in_a_cycle_with_its_buffer_is_collected(hold: Callable[[Any], Any]) -> None:
    data = pellucid.dumps({"a": [1, 2], "d": {"l": [{"x": 1}]}, "t": ([1], 2)})
    buffer = Holder(data)
    buffer.held = hold(pellucid.view(buffer))
    gone = weakref.ref(buffer)
    gc.collect()
    assert gone() is buffer
    assert hold(pellucid.view(data)) is not None
    del buffer
    gc.collect()
    assert gone() is None


def test_text_in_memory_that_another_process_changes_is_a_valid_str_or_refused() -> None:
    """What was checked was read a second time: a str that said to be ASCII held other characters."""
    printed = survives("""
        import mmap, os, pellucid, signal, time

        words = {n: n * size for n, size in zip("vwxyz", (5, 12, 24, 200, 200_000))}
        data = pellucid.dumps(words)
        shared = mmap.mmap(-1, len(data))
        shared[:] = data
        places = [(data.index(word.encode()) + len(word) // 2, ord(n)) for n, word in words.items()]
        parent = os.getpid()
        child = os.fork()
        if child == 0:
            while os.getppid() == parent:
                for _ in range(1000):
                    for place, letter in places:
                        shared[place] = 0xFF
                        shared[place] = letter
            os._exit(0)
        row, bad, end = pellucid.view(memoryview(shared)), 0, time.monotonic() + 3
        while time.monotonic() < end:
            for name, word in words.items():
                try:
                    text = row[name]
                except (pellucid.Error, UnicodeError):
                    continue
                bad += text.isascii() and ord(text[len(word) // 2]) > 127
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        print(bad)
    """)
    assert printed == "0"


def test_what_is_held_from_outside_of_a_cycle_is_not_collected() -> None:
    data = pellucid.dumps({"a": [1, 2], "d": {"l": [{"x": 1}]}})
    buffer = Holder(data)
    record = buffer.held = pellucid.view(buffer)
    inner, numbers = record.d.l[0], record.a
    gone = weakref.ref(buffer)
    del buffer, record
    for _ in range(3):
        gc.collect()
    assert inner.x == 1
    del inner
    gc.collect()
    assert numbers.to_list() == [1, 2]
    assert gone() is not None
    del numbers
    gc.collect()
    assert gone() is None


def test_records_over_a_buffer_that_the_collector_knows_are_records(tmp_path: Path) -> None:
    data = pellucid.dumps({"a": [1, 2], "d": {"x": 1}})
    (tmp_path / "data").write_bytes(data)
    with (
        (tmp_path / "data").open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as mapped,
    ):
        record, usual = pellucid.view(mapped), pellucid.view(data)
        assert gc.is_tracked(record)
        assert not gc.is_tracked(usual)
        assert isinstance(record, pellucid.Record)
        assert isinstance(record.a, pellucid.RecordList)
        assert repr(record) == repr(usual)
        assert record == usual == record.to_dict() == dict(record)
        assert record.a == usual.a == [1, 2]
        assert record | {} == usual | {}
        assert bytes(record) == bytes(usual) == pellucid.dumps(record) == data
        assert pellucid.loads(pellucid.dumps({"inner": record, "list": record.a}))["inner"] == usual
        assert record.path("d.x") == 1
        assert record.copy().d.x == 1
        assert not gc.is_tracked(record.copy())
        with pellucid.open(":memory:") as db:
            db["r"] = record
            assert db["r"] == usual
            with pytest.raises(TypeError, match="one"):
                db.extend(record)
        match record:
            case {"d": {"x": found}}:
                assert found == 1
            case _:
                pytest.fail("no mapping")
        with pytest.raises(TypeError):
            type(record)()
        del record


def test_many_handles_that_the_collector_knows_come_and_go() -> None:
    said = survives("""
        import gc
        import pellucid

        class B(bytearray):
            pass

        gc.set_threshold(1)
        data = pellucid.dumps([{"a": [1, 2], "d": {"x": n}} for n in range(50)])
        for number in range(200):
            buffer = B(data)
            rows = pellucid.view(buffer)
            if number % 2:
                buffer.rows = rows, [row.a for row in rows], iter(rows), rows[3].d.items()
            assert [row.d.x for row in rows] == list(range(50))
            assert [row.a[1] for row in rows] == [2] * 50
        gc.collect()
        print("alive")
    """)
    assert said == "alive"


@pytest.mark.parametrize("place", ["table.values()", "table.where(F.n >= 0)"])
def test_a_callback_of_a_weak_reference_may_step_the_loop_that_releases_its_record(place: str) -> None:
    script = f"""
        import weakref, pellucid
        from pellucid import F

        table = pellucid.open(":memory:").table("t")
        table.extend({{"n": n}} for n in range(400))
        table.create_index("n", "n")
        for _ in range(10):
            references, gone = [], []

            def end(_reference):
                gone.append(1)
                if len(gone) == 7:
                    for _row in rows:
                        pass
                    more = [bytes(100) for _ in range(1000)]

            rows = iter({place})
            for row in rows:
                row["own"] = "bytes" * 10
                references.append(weakref.ref(row, end))
        print(len(gone) >= 7)
    """
    assert survives(script) == "True"


@pytest.mark.parametrize(
    "rows_of",
    [lambda table: table.values(), lambda table: table.where(F.n >= 0), lambda table: table.where(F.m == 1)],
    ids=["scan", "index", "matches"],
)
def test_a_weak_reference_shows_no_other_row(rows_of: Callable[[Any], Any]) -> None:
    table = pellucid.open(":memory:").table("t")
    table.update({key: {"n": number, "m": 1} for number, key in enumerate("abcdef")})
    table.create_index("n", "n")
    seen: dict[str, weakref.ref[Any]] = {}
    for row in rows_of(table):
        seen[pellucid.key_of(row)] = weakref.ref(row)
        for key, reference in seen.items():
            found = reference()
            assert found is None or pellucid.key_of(found) == key
            del found
    assert "".join(seen) == "abcdef"
