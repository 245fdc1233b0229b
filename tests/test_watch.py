"""Does whoever watches learn of all that is committed, by whichever process, once and in order?"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import enum
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import F
from processes import Child

MUCH = 1 << 30


@pytest.fixture(params=["file", "memory"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pellucid.Database]:
    target = tmp_path / "watched.pel" if request.param == "file" else ":memory:"
    with pellucid.open(target) as database:
        yield database


def told(watch: Any) -> list[tuple[Any, ...]]:
    return [(change.table, change.kind, change.key, plain(change.value)) for change in watch]


def plain(value: Any) -> Any:
    return value.to_dict() if isinstance(value, pellucid.Record) else value


def test_each_change_is_told_with_its_table_kind_key_and_value(db: pellucid.Database) -> None:
    watch = db.watch(timeout=0)
    people = db.table("people")
    people["ann"] = {"age": 30, "tags": ["a"]}
    people["ann"].age += 1
    people["ann"].tags.append("b")
    with db.transaction():
        people["bob"] = None
        db[1, "x"] = [1, 2]
        del people["ann"]
    db.rename_table("people", "folk")
    people.clear()
    db.drop_table("folk")
    assert told(watch) == [
        ("people", "create", None, None),
        ("people", "put", "ann", {"age": 30, "tags": ["a"]}),
        ("people", "put", "ann", {"age": 31, "tags": ["a"]}),
        ("people", "put", "ann", {"age": 31, "tags": ["a", "b"]}),
        ("people", "put", "bob", None),
        ("default", "create", None, None),
        ("default", "put", (1, "x"), [1, 2]),
        ("people", "delete", "ann", None),
        ("people", "rename", None, "folk"),
        ("folk", "delete", "bob", None),
        ("folk", "drop", None, None),
    ]


def test_changes_of_one_commit_have_one_version_and_an_end(db: pellucid.Database) -> None:
    db["before"] = 0
    watch = db.watch(timeout=0)
    db.update(a=1, b=2, c=3)
    db["d"] = 4
    first = next(watch)
    assert watch.version == first.version - 1, "the commit is not given whole yet"
    rest = list(watch)
    changes = [first, *rest]
    assert [change.is_last for change in changes] == [False, False, True, True]
    assert [change.version - first.version for change in changes] == [0, 0, 0, 1]
    assert watch.version == changes[-1].version == db.stats()["version"]
    for change in changes:
        later = told(db.watch(since=change.version, timeout=0))
        assert later == told(
            c for c in db.watch(since=first.version - 1, timeout=0) if c.version > change.version
        )


def test_the_version_goes_on_where_nothing_was_for_this_watch(db: pellucid.Database) -> None:
    watch = db.table("quiet").watch(timeout=0)
    db["a"] = 1
    assert list(watch) == []
    assert watch.version == db.stats()["version"]


def test_a_watch_that_has_ended_stays_at_its_end(db: pellucid.Database) -> None:
    watch = db.watch(timeout=0)
    assert list(watch) == []
    db["a"] = 1
    assert list(watch) == []
    assert told(db.watch(since=watch.version, timeout=0))[-1] == ("default", "put", "a", 1)


def test_a_table_is_watched_within_bounds(db: pellucid.Database) -> None:
    table = db.table("t")
    prefix, bounds = table.watch(prefix=("a",), timeout=0), table.watch(start=2, stop=4, timeout=0)
    table.update({("a", 1): 1, ("b", 1): 2, 1: 1, 2: 2, 3: 3, 4: 4})
    db["a"] = "of another table"
    assert [change.key for change in prefix] == [None, ("a", 1)]
    assert [change.key for change in bounds] == [None, 2, 3]


def test_a_watched_table_may_be_renamed_and_its_watch_ends_when_it_is_dropped(db: pellucid.Database) -> None:
    table = db.table("t")
    table[1] = 1
    watch = table.watch()
    db.rename_table("t", "u")
    table[2] = 2
    db.table("t")[3] = "of another table"
    db.drop_table("u")
    assert told(watch) == [("t", "rename", None, "u"), ("u", "put", 2, 2), ("u", "drop", None, None)]
    with pytest.raises(pellucid.StaleTable):
        table.watch()


def test_a_table_is_watched_in_the_transaction_that_makes_it(db: pellucid.Database) -> None:
    made, renamed, lost = db.table("made"), db.table("old"), db.table("lost")
    with db.transaction():
        made["a"] = 1
        watch = made.watch(timeout=0)
        renamed["b"] = 2
        db.rename_table("old", "new")
        later = renamed.watch(timeout=0)
        assert watch.version == db.stats()["version"], "what is committed"
    assert told(watch) == [("made", "create", None, None), ("made", "put", "a", 1)]
    assert told(later) == [
        ("old", "create", None, None),
        ("old", "put", "b", 2),
        ("old", "rename", None, "new"),
    ]

    with contextlib.suppress(KeyError), db.transaction():
        lost["c"] = 3
        watch = lost.watch(timeout=0)
        raise KeyError
    db["other"] = "gets the id that was taken back"
    lost["d"] = 4
    assert told(watch) == [("lost", "create", None, None), ("lost", "put", "d", 4)]


def test_a_table_that_takes_another_ones_place_is_watched_after_the_block(db: pellucid.Database) -> None:
    db.table("t")["a"] = 1
    with db.transaction():
        db.drop_table("t")
        table = db.table("t")
        table["b"] = 2
        with pytest.raises(pellucid.TransactionError, match="watch it after the block"):
            table.watch()
        db.drop_table("t")
        with pytest.raises(pellucid.StaleTable):
            table.watch()


def test_a_watch_meets_a_table_that_is_given_its_name(db: pellucid.Database) -> None:
    watch = db.table("new").watch(timeout=0)
    with db.transaction():
        db.table("old")["a"] = 1
        db.rename_table("old", "new")
    assert [change.kind for change in watch] == ["create", "put", "rename"]


def test_a_snapshot_and_what_came_after_it_have_no_gap(db: pellucid.Database) -> None:
    table = db.table("t")
    done = threading.Event()

    def write() -> None:
        number = 0
        while not done.is_set():
            table[number % 50] = number
            if number % 7 == 0:
                table.pop(number % 11, None)
            number += 1
            time.sleep(0.0002)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(20):
            with db.snapshot() as snap:
                rows, version = dict(snap.table("t")), snap.version
            watch = table.watch(since=version, timeout=0)
            for change in watch:
                if change.kind == "put":
                    rows[change.key] = change.value
                elif change.kind == "delete":
                    del rows[change.key]
            with db.snapshot() as snap:
                # Nothing more came in between, or the next round looks.
                if snap.version == watch.version:
                    assert rows == dict(snap.table("t"))
    finally:
        done.set()
        writer.join()
    assert set(rows) <= set(range(50))


def test_making_all_changes_again_gives_every_version(tmp_path: Path) -> None:
    seed = int(os.environ.get("PELLUCID_SEED") or time.time_ns() % 1_000_000_007)
    print(f"PELLUCID_SEED={seed}")
    chance = random.Random(seed)
    for target in (tmp_path / "replayed.pel", ":memory:"):
        versions: dict[int, dict[Any, Any]] = {}
        with pellucid.open(target, keep=MUCH) as db:
            begin = db.stats()["version"]
            for _ in range(400):
                with db.transaction():
                    for _ in range(chance.choice([1, 1, 3, 10])):
                        key = chance.choice(["a", "b", 1, 2.5, ("t", 3), "k" * 600, b"x"])
                        if chance.random() < 0.2:
                            db.pop(key, None)
                        elif chance.random() < 0.02:
                            db.clear()
                        elif chance.random() < 0.02:
                            db.update(dict.fromkeys(range(600), "x" * 5000))
                        elif isinstance(db.get(key), pellucid.Record):
                            db[key].n += 1
                        else:
                            db[key] = chance.choice([{"n": chance.random()}, "text", None, [1, {"n": 2}]])
                if chance.random() < 0.1:
                    db.sync()
                versions[db.stats()["version"]] = {key: detached(value) for key, value in db.items()}
            for since in (begin, begin + 100):
                rows = dict(versions.get(since, {}))
                for change in db.watch(since=since, timeout=0):
                    follow(rows, change)
                    if change.is_last:
                        assert rows == versions[change.version], f"since {since}, at {change.version}"


def detached(value: Any) -> Any:
    return pellucid.loads(pellucid.dumps(value))


def follow(rows: dict[Any, Any], change: Any) -> None:
    """Do to `rows` what was done to the table."""
    if change.kind == "put":
        rows[change.key] = detached(change.value)
    elif change.kind == "delete":
        rows.pop(change.key, None)
    elif change.kind == "clear":
        rows.clear()


def test_what_was_watched_refuses_changes_and_outlives_its_row(db: pellucid.Database) -> None:
    watch = db.watch(timeout=0)
    db["a"] = {"n": 1, "list": [1]}
    change = list(watch)[-1]
    db["a"].n = 2
    del db["a"]
    assert change.value == {"n": 1, "list": [1]}
    with pytest.raises(pellucid.ReadOnly, match="write through the table"):
        change.value.n = 3
    with pytest.raises(AttributeError):
        change.key = "b"
    match change:
        case pellucid.Change(kind="put", key=key, value={"n": n}):
            assert (key, n) == ("a", 1)
        case _:
            pytest.fail("a change can be matched")


def test_a_change_shows_large_values_as_they_were(db: pellucid.Database) -> None:
    large, other = os.urandom(300_000), os.urandom(40_000)
    watch = db.watch(timeout=0)
    db["a"] = {"large": large, "small": 1}
    first = list(watch)[-1].value
    db["a"].small = 2
    db["b"] = {"large": other}
    watch = db.watch(since=watch.version, timeout=0)
    second = list(watch)
    # What a change shows stays, whatever is written behind it.
    db["a"] = {"large": large[::-1]}
    del db["b"]
    assert (first.large, first.small) == (large, 1)
    assert [change.value.to_dict() for change in second] == [{"large": large, "small": 2}, {"large": other}]
    again = list(db.watch(since=watch.version, timeout=0))
    assert again[0].value.to_dict() == {"large": large[::-1]}
    assert (again[1].kind, again[1].key) == ("delete", "b")


def test_a_change_shows_large_values_that_were_replaced_before_it_was_given(db: pellucid.Database) -> None:
    values = [os.urandom(40_000 + number) for number in range(5)]
    watch = db.watch(timeout=0)
    for number, value in enumerate(values):
        db["a"] = {"large": value, "number": number}
    with db.transaction():
        db["a"] = {"large": b"", "others": [values[0], {"in": values[1]}]}
    db["a"].others[0] = None
    del db["a"]
    changes = [change for change in watch if change.kind == "put"]
    rows = [{"large": value, "number": number} for number, value in enumerate(values)]
    assert [change.value.to_dict() for change in changes[:5]] == rows
    assert changes[5].value.others[1]["in"] == values[1]
    assert changes[5].value.others[0] == values[0]
    assert changes[5].value.to_dict() == {"large": b"", "others": [values[0], {"in": values[1]}]}
    # The value was written by an earlier commit than this change, and no row has it any more.
    assert changes[6].value.large == b""
    with pytest.raises(pellucid.StaleRecord, match="a later commit before the watch came to this change"):
        changes[6].value.to_dict()
    assert "others" in changes[6].value


def test_a_memory_database_tells_its_history_whatever_large_values_were_in_it() -> None:
    with pellucid.open(":memory:") as db:
        since = db.stats()["version"]
        for number in range(200):
            db["a"] = {"large": bytes([number]) * 100_000, "number": number}
        puts = [change for change in db.watch(since=since, timeout=0) if change.kind == "put"]
        assert [change.value.number for change in puts] == list(range(200))
        # The newest large values are kept, up to a megabyte.
        for change in puts[-9:]:
            assert change.value.large == bytes([change.value.number]) * 100_000
        with pytest.raises(pellucid.StaleRecord, match="the table has what the row is now"):
            assert puts[0].value.large
        # A savepoint that is taken back leaves none.
        with db.transaction():
            db["b"] = {"large": b"b" * 50_000}
            with contextlib.suppress(KeyError), db.transaction():
                db["c"] = {"large": b"c" * 50_000}
                raise KeyError
        last = list(db.watch(since=db.stats()["version"] - 1, timeout=0))
        assert [(change.key, change.value.to_dict()) for change in last] == [("b", {"large": b"b" * 50_000})]


def test_a_change_of_which_no_object_can_be_made_is_given_again(db: pellucid.Database) -> None:
    people = db.table("people", type=Fickle)
    watch = people.watch(timeout=0)
    with db.transaction():
        people[1], people[2] = Fickle("ann"), Fickle("bob")
    people[3] = Fickle("cid")
    assert next(watch).kind == "create"
    version = watch.version
    for error in (KeyboardInterrupt, MemoryError, KeyboardInterrupt):
        with failing(error), pytest.raises(error):
            next(watch)
        assert watch.version == version
    assert (next(watch).key, watch.version) == (1, version)
    with failing(MemoryError), pytest.raises(MemoryError):
        next(watch)
    assert watch.version == version
    second = next(watch)
    assert (second.key, second.is_last, watch.version) == (2, True, second.version)
    with failing(KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
        next(watch)
    assert [change.key for change in db.watch(since=watch.version, timeout=0)] == [3]
    assert [change.value.name for change in watch] == ["cid"]


def test_rows_of_a_typed_table_come_as_instances(db: pellucid.Database) -> None:
    people = db.table("people", type=Person)
    watch = people.watch(timeout=0)
    people[1] = Person("ann")
    change = list(watch)[-1]
    assert change.value == Person("ann")


@dataclasses.dataclass
class Person:
    name: str


FAILURES: list[type[BaseException]] = []


class FickleMembers(enum.EnumMeta):
    """Finds no member while there is a failure."""

    def __call__(cls, *arguments: Any, **keywords: Any) -> Any:
        if FAILURES:
            raise FAILURES[0]
        return super().__call__(*arguments, **keywords)


class Mood(enum.Enum, metaclass=FickleMembers):
    GOOD = "good"


@dataclasses.dataclass
class Fickle:
    name: str
    mood: Mood = Mood.GOOD


@contextlib.contextmanager
def failing(error: type[BaseException]) -> Iterator[None]:
    """No instance can be made meanwhile."""
    FAILURES.append(error)
    try:
        yield
    finally:
        FAILURES.clear()


WRITE = """
def write(name, count):
    for number in range(count):
        db.table("t")[name, number] = {"number": number}
"""


def test_other_processes_are_watched(tmp_path: Path) -> None:
    path = tmp_path / "shared.pel"
    count = 300
    with pellucid.open(path) as db, Child(path) as one, Child(path) as other:
        watch = db.table("t").watch(timeout=30)
        writers = {"one": one, "other": other}
        for name, writer in writers.items():
            writer(WRITE)
            writer.send(f"write({name!r}, {count})")
        seen: dict[str, list[int]] = {name: [] for name in writers}
        for change in watch:
            if change.kind == "put":
                name, number = change.key
                assert change.value.number == number
                seen[name].append(number)
                if sum(map(len, seen.values())) == 2 * count:
                    break
        for writer in writers.values():
            writer.answer()
    assert seen == {name: list(range(count)) for name in writers}


def test_who_only_reads_may_watch(tmp_path: Path) -> None:
    path = tmp_path / "read.pel"
    with pellucid.open(path) as db, Child(path, mode="r") as reader:
        reader("watch = db.watch(timeout=30)")
        reader.send("repr([next(watch), next(watch)][1])")
        db["b"] = 2
        assert "key='b', value=2" in reader.answer()
    with pellucid.open(path, "r") as alone:
        assert list(alone.watch(timeout=0)) == []


def test_a_slow_consumer_gets_all_that_is_kept_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    with pellucid.open(tmp_path / "slow.pel", keep=MUCH) as db:
        watch = db.watch(timeout=0)
        db["warm"] = 1
        next(watch)
        # More than both segments of the log hold.
        value = b"x" * 100_000
        for number in range(900):
            db[number] = [value[:90_000], number]
        seen = [change.key for change in watch if change.kind == "put"]
        assert seen == ["warm", *range(900)]
        assert db.stats()["history_size"] > 10_000_000


def test_a_consumer_that_is_too_slow_is_told_so(tmp_path: Path) -> None:
    with pellucid.open(tmp_path / "slow.pel") as db:
        db["warm"] = 1
        watch = db.watch()
        for _ in range(3):
            db["a"] = 1
            db.sync()
        with pytest.raises(pellucid.HistoryGone, match="keep=") as raised:
            next(watch)
        assert raised.value.since == watch.version < raised.value.oldest < db.stats()["version"]
        assert isinstance(raised.value, LookupError)
        assert told(db.watch(since=raised.value.oldest, timeout=0)) == [("default", "put", "a", 1)]
        with pytest.raises(pellucid.HistoryGone):
            db.watch(since=raised.value.since)


def test_who_watches_is_told_of_the_tables_that_were_emptied_alone(tmp_path: Path) -> None:
    # All rows there are go at once; between those of the table and its index lie tables without rows.
    for target in (tmp_path / "clear.pel", ":memory:"):
        with pellucid.open(target) as db:
            cleared, empty, last = db.table("cleared"), db.table("empty"), db.table("last")
            for table in (cleared, empty, last):
                table[0] = 0
                table.clear()
            cleared.create_index("x", F.x)
            cleared.extend({"x": number} for number in range(1000))
            watch = db.watch(timeout=0)
            cleared.clear()
            assert told(watch) == [("cleared", "clear", None, None)]
            cleared.extend({"x": number} for number in range(1000))
            last[1] = 1
            watch = db.watch(timeout=0)
            with db.transaction():
                del last[1]
                cleared.clear()
                cleared[7] = 7
            both = [(name, "clear", None, None) for name in ("cleared", "last")]
            assert told(watch) == [*both, ("cleared", "put", 7, 7)]


def test_a_bulk_commit_is_told_where_it_is_kept_and_else_said_to_be_missing(tmp_path: Path) -> None:
    bulk = dict.fromkeys(range(2000), "x" * 5000)
    with pellucid.open(tmp_path / "bulk.pel") as db:
        db["warm"] = 1
        watch = db.watch(timeout=0)
        db.update(bulk)
        with pytest.raises(pellucid.HistoryGone) as raised:
            list(watch)
        assert raised.value.oldest == db.stats()["version"]
        # To clear a large table is one change, which costs nothing to keep.
        watch = db.watch(timeout=0)
        db.clear()
        assert told(watch) == [("default", "clear", None, None)]
    with pellucid.open(tmp_path / "bulk.pel", keep=MUCH) as db:
        watch = db.watch(timeout=0)
        db.update(bulk)
        assert [change.key for change in watch] == list(bulk)


def test_what_is_kept_is_there_after_closing_and_after_a_crash(tmp_path: Path) -> None:
    path = tmp_path / "kept.pel"
    with pellucid.open(path, keep=datetime.timedelta(days=1)) as db:
        begin = db.stats()["version"]
        for number in range(100):
            db[number] = number
    assert [entry.name for entry in tmp_path.iterdir()] == ["kept.pel"]
    with Child(path) as child:
        child("for number in range(100, 200): db[number] = number")
        child.kill()
    for _ in range(2):
        with pellucid.open(path) as db:
            seen = [change.key for change in db.watch(since=begin, timeout=0) if change.kind == "put"]
            assert seen == list(range(200))
            assert db.check() == []


WRITE_FOR_EVER = """
import random
def write(seed):
    chance = random.Random(seed)
    for number in range(10**9):
        key = chance.choice(["a", 1, 2.5, "k" * 600, chance.randrange(100)])
        what = chance.random()
        if what < 0.1: db.pop(key, None)
        elif what < 0.11: db.update(dict.fromkeys(range(600), "x" * 5000))
        elif what < 0.12: db.clear()
        elif what < 0.14: db.sync()
        else: db[key] = {"n": number}
"""


def test_writers_that_are_killed_leave_no_hole_in_what_is_kept(tmp_path: Path) -> None:
    seed = int(os.environ.get("PELLUCID_SEED") or time.time_ns() % 1_000_000_007)
    print(f"PELLUCID_SEED={seed}")
    chance = random.Random(seed)
    path = tmp_path / "killed.pel"
    rows: dict[Any, Any] = {}
    with pellucid.open(path, keep=MUCH) as db:
        since = db.stats()["version"]
    for _ in range(6):
        with Child(path) as one, Child(path) as other:
            for writer in (one, other):
                writer(WRITE_FOR_EVER)
                writer.send(f"write({chance.random()})")
            time.sleep(chance.random() / 5)
            for writer in (one, other):
                writer.kill()
        with pellucid.open(path) as db:
            watch = db.watch(since=since, timeout=0)
            for change in watch:
                follow(rows, change)
            since = watch.version
            assert since == db.stats()["version"]
            assert rows == {key: detached(value) for key, value in db.items()}
            assert db.check() == []


def waiting(watch: Any, act: Callable[[], object]) -> None:
    """Let somebody act while this thread waits, which is to end in an error."""

    def later() -> None:
        time.sleep(0.2)
        act()

    thread = threading.Thread(target=later)
    thread.start()
    try:
        next(watch)
    finally:
        thread.join()


def test_a_signal_ends_the_wait(db: pellucid.Database) -> None:
    with pytest.raises(KeyboardInterrupt):
        waiting(db.watch(), lambda: os.kill(os.getpid(), signal.SIGINT))
    assert list(db.watch(timeout=0)) == []


def test_closing_the_database_ends_the_wait(db: pellucid.Database) -> None:
    watch = db.watch()
    with pytest.raises(pellucid.Closed):
        waiting(watch, db.close)
    with pytest.raises(pellucid.Closed):
        next(watch)
    assert "closed" in repr(watch)


def test_a_write_of_another_thread_ends_the_wait(db: pellucid.Database) -> None:
    db["a"] = 0
    watch = db.watch(timeout=30)
    threading.Timer(0.1, db.__setitem__, ("a", 1)).start()
    assert next(watch).value == 1


def test_a_watch_is_one_threads_at_a_time(db: pellucid.Database) -> None:
    watch = db.watch(timeout=60)
    gave: list[object] = []

    def wait() -> None:
        try:
            gave.append(next(watch).kind)
        except ValueError as error:
            gave.append(str(error))

    threads = [threading.Thread(target=wait) for _ in range(2)]
    for thread in threads:
        thread.start()
    while not gave:
        time.sleep(0.001)
    assert watch.version == db.stats()["version"], "it can be asked for meanwhile"
    db["a"] = 1
    for thread in threads:
        thread.join()
    assert gave == ["another thread is waiting for this watch; give each its own", "create"]


def test_a_watch_sees_nothing_of_a_transaction_before_its_commit(db: pellucid.Database) -> None:
    db["a"] = 0
    watch = db.watch(timeout=0)
    with db.transaction():
        db["a"] = 1
        assert list(db.watch(timeout=0)) == []
        with pytest.raises(ZeroDivisionError), db.transaction():
            db["b"] = 1 / 0
    assert told(watch) == [("default", "put", "a", 1)]


def test_a_watch_holds_nothing_of_the_database(tmp_path: Path) -> None:
    path = tmp_path / "held.pel"
    db = pellucid.open(path)
    db["a"] = 1
    watch = db.watch(timeout=0)
    list(watch)
    before = db.stats()
    watches = [db.watch(timeout=0) for _ in range(100)]
    assert [list(watch) for watch in watches] == [[]] * 100
    assert db.stats()["readers"] <= before["readers"] + 1
    # As long as anybody had a snapshot it would be refused.
    db.compact()
    db.close()
    assert [entry.name for entry in tmp_path.iterdir()] == ["held.pel"]


def test_wrong_arguments_say_what_is_wrong(db: pellucid.Database) -> None:
    db["a"] = 1
    for since in (-1, 1 << 70):
        with pytest.raises(ValueError, match="since="):
            db.watch(since=since)
    for wrong in ("1", 1.0, True):
        with pytest.raises(TypeError, match="since has to be"):
            db.watch(since=wrong)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="another database"):
        db.watch(since=db.stats()["version"] + 1)
    with pytest.raises(ValueError, match="timeout"):
        db.watch(timeout=-1)
    with pytest.raises(TypeError, match="timeout"):
        db.watch(timeout="soon")  # type: ignore[arg-type]
    with db.snapshot() as snap, pytest.raises(pellucid.ReadOnly, match="snapshot"):
        snap.table("default").watch()
    with pytest.raises(pellucid.UnsupportedKey):
        db.table("t").watch(prefix=float("nan"))
    db.close()
    for watched in (db, db.table):
        with pytest.raises(pellucid.Closed):
            watched.watch() if watched is db else db.table("t").watch()


def test_keep_is_of_bytes_or_a_time_and_is_for_whoever_writes(tmp_path: Path) -> None:
    path = tmp_path / "keep.pel"
    for wrong in ("1", 1.5, True):
        with pytest.raises(TypeError, match="keep has to be"):
            pellucid.open(path, keep=wrong)  # type: ignore[arg-type]
    for wrong in (-1, datetime.timedelta(days=-1)):
        with pytest.raises(ValueError, match="keep="):
            pellucid.open(path, keep=wrong)
    pellucid.open(path).close()
    with pytest.raises(ValueError, match="keep="):
        pellucid.open(path, "r", keep=1)
    with pellucid.open(path, keep=100_000) as db:
        for number in range(2000):
            db[number] = "x" * 100
            if number % 100 == 0:
                db.sync()
        assert 100_000 <= db.stats()["history_size"] < 250_000
    with pellucid.open(path) as db:
        assert db.stats()["history_size"] >= 100_000
        kept = list(db.watch(since=db.stats()["version"] - 400, timeout=0))
        assert [change.key for change in kept] == list(range(1600, 2000))
    with pellucid.open(path, keep=0) as db:
        for _ in range(3):
            db["a"] = 1
            db.sync()
        assert db.stats()["history_size"] == 0


def test_in_memory_the_newest_changes_are_kept() -> None:
    db = pellucid.open(":memory:")
    watch = db.watch(timeout=0)
    for number in range(10_000):
        db[number % 10] = "x" * 1000
    with pytest.raises(pellucid.HistoryGone) as raised:
        list(watch)
    newest = db.stats()["version"]
    assert newest - 2000 < raised.value.oldest < newest - 500
    with pellucid.open(":memory:", keep=MUCH) as db:
        watch = db.watch(timeout=0)
        for number in range(10_000):
            db[number % 10] = "x" * 1000
        assert sum(change.kind == "put" for change in watch) == 10_000


def test_compaction_and_backup_keep_the_version(tmp_path: Path) -> None:
    with pellucid.open(tmp_path / "first.pel", keep=MUCH) as db:
        for number in range(100):
            db[number] = number
        version = db.stats()["version"]
        watch = db.watch(timeout=5)
        db.compact()
        assert db.stats()["version"] == version
        db["a"] = 1
        assert next(watch).key == "a"
        assert len(list(db.watch(since=version - 50, timeout=0))) == 51
        db.backup(tmp_path / "second.pel")
        with pellucid.open(tmp_path / "second.pel", "r") as copy:
            assert copy.stats()["version"] == version + 1
            assert copy.check() == []
