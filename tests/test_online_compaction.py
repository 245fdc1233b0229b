"""Does `compact(online=True)` shorten the file beside writers and readers, and leave each value as it was?"""

from __future__ import annotations

import os
import pickle
import random
import threading
import time
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import F
from processes import Child


def fill(path: Path, seed: int = 1) -> dict[str, dict[Any, Any]]:
    """A file of 20 MB, most of it free and the rest scattered; returns what is left in it."""
    dice = random.Random(seed)
    small = {f"{dice.getrandbits(64):016x}": {"n": n, "text": "x" * 150} for n in range(30_000)}
    large: dict[Any, Any] = {n: dice.randbytes(1000 * (1 + n % 60)) for n in range(300)}
    with pellucid.open(path) as db:
        db.table("small").create_index("n", F.n)
        for begin in range(0, 30_000, 3_000):
            db.table("small").update(list(small.items())[begin : begin + 3_000])
            db.sync()
        db.table("large").update(large)
        for keys, table in ((list(small), "small"), (list(large), "large")):
            for key in keys:
                if dice.random() < 0.7:
                    del db.table(table)[key]
                    del (small if table == "small" else large)[key]
    return {"small": small, "large": large}


def contents(db: Any) -> dict[str, dict[Any, Any]]:
    return {
        "small": {key: row.to_dict() for key, row in db.table("small").items()},
        "large": {key: bytes(value) for key, value in db.table("large").items()},
    }


def is_short(db: pellucid.Database, path: Path) -> bool:
    db.sync()
    stats = db.stats()
    assert os.path.getsize(path) == stats["file_size"]
    return stats["free_pages"] < stats["pages"] / 8


@pytest.mark.parametrize("seed", range(3))
def test_the_file_becomes_shorter_and_nothing_else_changes(path: Path, seed: int) -> None:
    kept = fill(path, seed)
    with pellucid.open(path) as db:
        assert not is_short(db, path)
        version, before = db.stats()["version"], path.stat().st_size
        told: list[tuple[int, int]] = []
        db.compact(online=True, progress=lambda done, total: told.append((done, total)))
        assert is_short(db, path)
        assert path.stat().st_size < before / 2
        assert told
        assert all(0 <= done <= total for done, total in told)
        assert db.stats()["version"] == version
        assert contents(db) == kept
        assert sorted(row.n for row in db.table("small").where(F.n >= 0)) == sorted(
            row["n"] for row in kept["small"].values()
        )
        assert db.check() == []
        db.compact(online=True)
        assert contents(db) == kept
    with pellucid.open(path) as db:
        assert contents(db) == kept
        assert db.check() == []
        for number, key in enumerate(list(kept["small"])):
            kept["small"][key] = db.table("small")[key] = {"n": -number, "text": "new"}
        assert contents(db) == kept
        assert db.check() == []


def test_large_values_that_were_deleted_just_before_leave_the_file_at_once(path: Path) -> None:
    dice = random.Random(1)
    kept = {n: {"n": n, "data": dice.randbytes(1_000_000)} for n in range(0, 50, 5)}
    with pellucid.open(path) as db:
        for n in range(50):
            db[n] = kept.get(n) or {"n": n, "data": dice.randbytes(1_000_000)}
        db.sync()
        for n in range(50):
            if n not in kept:
                del db[n]
        # Room for more large values is reserved behind those that are there.
        db.compact(online=True)
        assert path.stat().st_size < 13_000_000
        assert {key: row.to_dict() for key, row in db.items()} == kept
        db["new"] = {"data": b"x" * 1_000_000}
        assert len(db["new"].data) == 1_000_000
        assert db.check() == []


def test_a_snapshot_sees_what_it_saw(path: Path) -> None:
    kept = fill(path)
    with pellucid.open(path) as db:
        with db.snapshot() as before:
            db.table("small").clear()
            db.compact(online=True)
            assert contents(before) == kept
        db.compact(online=True)
        assert is_short(db, path)
        assert contents(db) == {"small": {}, "large": kept["large"]}
        assert db.check() == []


WRITE = """
import itertools, threading
table, going, last = db.table("small"), [True], {}
keys = list(table)[:500]

def write():
    for number in itertools.count():
        last[keys[number % 500]] = number
        table[keys[number % 500]] = {"n": -number, "text": "y" * 100}
        if number > 5_000 and not going:
            break

writer = threading.Thread(target=write)
writer.start()
"""


def test_others_write_and_read_meanwhile(path: Path) -> None:
    kept = fill(path)
    with pellucid.open(path) as db, Child(path) as child:
        child(WRITE)
        db.compact(online=True)
        child("going.clear(); writer.join()")
        for key, number in child("last").items():
            kept["small"][key] = {"n": -number, "text": "y" * 100}
        assert contents(db) == kept
        child("db.close()")
        db.compact(online=True)
        assert is_short(db, path)
        assert contents(db) == kept
        assert db.check() == []


@pytest.mark.parametrize("steps", [1, 2, 3, 5, 8])
def test_a_process_that_is_killed_leaves_every_value(path: Path, steps: int) -> None:
    kept = fill(path)
    with Child(path) as child:
        child("import os, signal; told = []")
        child("kill = lambda: os.kill(os.getpid(), signal.SIGKILL)")
        child(f"tell = lambda done, total: total and (told.append(done), len(told) < {steps} or kill())")
        child("db.table('small')['new'] = {'n': 1}")
        with pytest.raises(AssertionError, match="the other process ended"):
            child("db.compact(online=True, progress=tell); kill()")
    kept["small"]["new"] = {"n": 1}
    with pellucid.open(path) as db:
        assert contents(db) == kept
        assert db.check() == []
        db.compact(online=True)
        assert is_short(db, path)
        assert contents(db) == kept
        assert db.check() == []


def test_what_stops_it_leaves_every_value(path: Path) -> None:
    kept = fill(path)

    def fail(done: int, total: int) -> None:
        if total:
            raise ZeroDivisionError(f"{done} of {total}")

    with pellucid.open(path) as db:
        with pytest.raises(ZeroDivisionError):
            db.compact(online=True, progress=fail)
        assert contents(db) == kept
        with pytest.raises(pellucid.TransactionError, match="after the block"), db.transaction():
            db.compact(online=True)
        assert contents(db) == kept
        assert db.check() == []
    with pellucid.open(path, mode="r") as db, pytest.raises(pellucid.ReadOnly):
        db.compact(online=True)
    with pellucid.open(":memory:") as db:
        db["key"] = {"n": 1}
        db.compact(online=True)
        assert db["key"].n == 1
    with pytest.raises(pellucid.Closed):
        db.compact(online=True)


def test_a_file_without_free_pages_stays_as_it_is(path: Path) -> None:
    with pellucid.open(path) as db:
        db.compact(online=True)
        db.table("t").extend({"n": n} for n in range(10_000))
        db.sync()
        before = db.stats()["pages"]
        db.compact(online=True)
        assert db.stats()["pages"] <= before
        assert db.table("t").count() == 10_000
        assert db.check() == []


def test_a_file_that_is_mostly_free_becomes_shorter_by_itself(tmp_path: Path) -> None:
    paths = [tmp_path / "on.pel", tmp_path / "off.pel"]
    kept = [fill(path, 7) for path in paths]
    before = [path.stat().st_size for path in paths]
    with pellucid.open(paths[0]) as on, pellucid.open(paths[1], auto_compact=False) as off:
        for db in (on, off):
            db["one"] = "commit"
        deadline = time.monotonic() + 90
        while paths[0].stat().st_size > before[0] / 2:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        stats = on.stats()
        assert stats["free_size"] < stats["live_size"] / 3
        assert paths[1].stat().st_size >= before[1]
        for db, rows in zip((on, off), kept, strict=True):
            assert contents(db) == rows
            assert db.check() == []


def scatter(path: Path, seed: int) -> dict[str, dict[str, Any]]:
    """Rows under random keys with an index, put in many commits, some of them with a large value."""
    dice, rows = random.Random(seed), {}
    with pellucid.open(path, auto_compact=False) as db:
        table = db.table("t")
        table.create_index("n", F.n)
        for _ in range(60):
            some = {f"{dice.getrandbits(64):016x}": {"n": dice.randrange(10**9)} for _ in range(500)}
            for row in some.values():
                row["text"] = "x" * (5_000 if dice.random() < 0.001 else dice.randrange(60, 140))
            table.update(some)
            rows.update(some)
            db.sync()
        for key in dice.sample(sorted(rows), len(rows) // 2):
            del table[key]
            del rows[key]
    return rows


@pytest.mark.parametrize("seed", range(3))
def test_leaves_that_are_half_empty_are_filled(path: Path, seed: int) -> None:
    rows = scatter(path, seed)
    with pellucid.open(path) as db:
        table, size = db.table("t"), db.stats()["live_size"]
        with db.snapshot() as before:
            db.compact(online=True)
            assert {key: row.to_dict() for key, row in before.table("t").items()} == rows
        db.compact(online=True)
        assert db.stats()["live_size"] < 0.5 * size
        assert {key: row.to_dict() for key, row in table.items()} == rows
        assert list(table) == sorted(rows)
        numbers = [row.n for row in table.index("n").range(0, 10**9)]
        assert numbers == sorted(row["n"] for row in rows.values())
        assert db.check() == []
        for key in list(rows)[::7]:
            rows[key] = table[key] = {"n": 1, "text": "other"}
        db.sync()
        assert {key: row.to_dict() for key, row in table.items()} == rows
        assert db.check() == []


def test_leaves_are_filled_right_after_deletes(path: Path) -> None:
    keys = list(range(100_000))
    random.Random(2).shuffle(keys)
    with pellucid.open(path, auto_compact=False) as db:
        db.update({key: {"id": key, "name": f"Name {key}"} for key in keys})
        db.compact(online=True)
        loaded = path.stat().st_size
        for key in keys[::2]:
            del db[key]
        # This process has read the version of the tree from before the checkpoint.
        assert len(db) == 50_000
        db.compact(online=True)
        assert path.stat().st_size < 0.7 * loaded
        assert set(db) == set(keys[1::2])


def test_a_check_does_not_keep_leaves_from_being_filled(path: Path) -> None:
    rows = scatter(path, 5)
    with pellucid.open(path) as db:
        size = db.stats()["live_size"]
        # Nothing is in the log any more, so no checkpoint comes after the check.
        db.sync()
        assert db.check() == []
        db.compact(online=True)
        assert db.stats()["live_size"] < 0.5 * size
        assert {key: row.to_dict() for key, row in db.table("t").items()} == rows


def test_a_file_is_checked_though_a_snapshot_has_older_pages(path: Path) -> None:
    kept = fill(path)
    with pellucid.open(path, auto_compact=False) as db, Child(path, auto_compact=False) as child:
        db["one"] = "commit"
        db.sync()
        snap = db.snapshot()
        child("snap = db.snapshot()")
        # Many commits of pages, none of which changes an entry.
        db.compact(online=True)
        assert db.check() == []
        assert child("db.check()") == []
        assert contents(snap) == contents(db) == kept
        child("snap.close()")
        snap.close()


def test_auto_compact_has_to_be_a_bool(path: Path) -> None:
    with pytest.raises(TypeError, match="auto_compact has to be a bool"):
        pellucid.open(path, auto_compact="no")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="auto_compact= is about files"):
        pellucid.open("postgresql://nowhere.invalid/x", auto_compact=False)
    with (
        pellucid.open(path, auto_compact=False) as db,
        pickle.loads(pickle.dumps(db)) as again,
    ):
        assert again.__reduce__()[1] == db.__reduce__()[1]
        assert "'auto_compact': False" in repr(db.__reduce__())


def test_the_pages_of_a_running_transaction_stay_its_own(path: Path) -> None:
    def value(number: int) -> bytes:
        return random.Random(number).randbytes(200_000)

    failures: list[BaseException] = []

    def compact() -> None:
        try:
            db.compact(online=True)
        except BaseException as error:
            failures.append(error)

    with pellucid.open(path, auto_compact=False) as db, Child(path, auto_compact=False) as child:
        table = db.table("large")
        # The file has pages for large values from here on, and the log has nothing.
        table["old"] = value(0)
        db.sync()
        with db.transaction():
            table[1] = value(1)
            # In another process, and in another thread. Both wait for the transaction.
            child.send("db.compact(online=True)")
            thread = threading.Thread(target=compact)
            thread.start()
            time.sleep(0.5)
            table[2] = value(2)
        child.answer()
        thread.join()
        assert not failures
        # Values that are put later would take pages that were given back.
        for number in range(3, 40):
            table[number] = value(number)
            if number % 10 == 0:
                db.sync()
        child("db.table('large')['other'] = bytes(300_000)")
        db.sync()
        assert db.check() == []
        assert all(table[number] == value(number) for number in range(1, 40))
        assert table["old"] == value(0)
    with pellucid.open(path) as db:
        assert db.check() == []
        assert all(db.table("large")[number] == value(number) for number in range(1, 40))


def test_a_table_of_a_closed_snapshot_keeps_no_version(path: Path) -> None:
    with pellucid.open(path) as db:
        table = db.table("t")
        table.extend({"a": number, "b": "x" * 3000} for number in range(500))
        db.sync()
        with db.snapshot() as snapshot:
            kept = snapshot.table("t")
            again = snapshot.table("t")
            assert kept.count() == len(again) == 500
        for _ in range(3):
            table.update({number: {"a": number, "b": "y" * 3000} for number in range(500)})
            db.sync()
        assert db.stats()["pinned_size"] == 0
        with pytest.raises(pellucid.Closed, match="closed"):
            kept.count()
        db.compact()
        assert again.name == "t"


def test_a_compaction_that_waits_in_vain_names_the_writer(path: Path) -> None:
    with pellucid.open(path, timeout=0.1) as db, Child(path) as child:
        db["a"] = 1
        child("txn = db.transaction(); txn.__enter__(); db['b'] = 2")
        with pytest.raises(pellucid.Busy, match=rf"is being written by PID {child.pid} \(.*longer timeout"):
            db.compact(online=True)
        child("txn.__exit__(None, None, None)")
        is_writing, ends = threading.Event(), threading.Event()

        def write() -> None:
            with db.transaction():
                db["c"] = 3
                is_writing.set()
                ends.wait()

        thread = threading.Thread(target=write)
        thread.start()
        is_writing.wait()
        try:
            with pytest.raises(
                pellucid.Busy, match=rf"PID {os.getpid()} \(another transaction of this process"
            ):
                db.compact(online=True)
        finally:
            ends.set()
            thread.join()
        db.compact(online=True)
