"""Do processes that share a file see each other's writes at once, and lose nothing when one dies?"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import random
import re
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pellucid
import pytest
from processes import Child, Raised, fork


def test_a_write_in_one_process_is_seen_by_the_next_read_in_the_other(path: Path) -> None:
    with pellucid.open(path) as db, Child(path) as other:
        for number in range(50):
            db["mine"] = {"n": number, f"field {number}": number}
            assert other("db['mine'].to_dict()") == {"n": number, f"field {number}": number}
            other(f"db['theirs'] = {{'n': {number}, 'other {number}': [1, {{'x': {number}}}]}}")
            assert db["theirs"] == {"n": number, f"other {number}": [1, {"x": number}]}
            assert len(db) == other("len(db)") == 2
        other("db['mine'].n += 1")
        assert db["mine"].n == 50
        other("db.table('more')[1] = 'x'")
        assert db.tables() == ["default", "more"]
        assert db.table("more")[1] == "x"
        other("db.drop_table('more')")
        assert db.tables() == ["default"]
        assert dict(db.table("more")) == {}


def test_fields_changed_in_two_processes_are_both_kept(path: Path) -> None:
    with pellucid.open(path) as db, Child(path) as other:
        db["r"] = {"a": 0, "b": 0, "l": []}
        mine = db["r"]
        other("record = db['r']")
        for number in range(20):
            mine.a += 1
            other("record.b += 1")
            mine.l.append(number)
            other(f"record.l.append(-{number})")
        assert db["r"].a == db["r"].b == 20
        assert len(db["r"].l) == 40


FAIL = """
def fail(value):
    try:
        with db.transaction():
            db["x"] = value
            1 / 0
    except ZeroDivisionError:
        pass
"""


def test_shapes_of_an_aborted_transaction_poison_no_other_process(path: Path) -> None:
    with pellucid.open(path) as db, Child(path) as other:
        other(FAIL)
        for number in range(10):
            # The same ids are given out again, here and there, to other names.
            with contextlib.suppress(ZeroDivisionError), db.transaction():
                db["x"] = {f"mine {number}": 1, "in": {f"deep {number}": 2}}
                _ = 1 / 0
            other(f"db['k{number}'] = {{'kept by them {number}': {number}}}")
            assert db[f"k{number}"] == {f"kept by them {number}": number}
            other(f"fail({{'theirs {number}': 1}})")
            db[f"m{number}"] = {f"kept by me {number}": number}
            assert other(f"db['m{number}'].to_dict()") == {f"kept by me {number}": number}
        expected = {f"k{n}": {f"kept by them {n}": n} for n in range(10)} | {
            f"m{n}": {f"kept by me {n}": n} for n in range(10)
        }
        assert dict(db) == expected
        assert other("{key: row.to_dict() for key, row in db.items()}") == expected
        assert db.check() == []


def test_a_snapshot_stands_while_another_process_writes(path: Path) -> None:
    with pellucid.open(path) as db, Child(path) as other:
        db.update({number: {"n": number, "text": "x" * 500} for number in range(500)})
        with db.snapshot() as snap:
            rows = iter(snap.values())
            first = [next(rows).n for _ in range(100)]
            for _ in range(5):
                other("db.update({number: {'n': -1, 'other': 'y' * 700} for number in range(500)})")
                other("[db.pop(number) for number in range(0, 500, 2)]")
            assert first + [row.n for row in rows] == list(range(500))
            assert [row.text for row in snap.values()] == ["x" * 500] * 500
        assert len(db) == 250
        assert {row.n for row in db.values()} == {-1}


@pytest.mark.parametrize("lies_in", ["log", "tree"])
def test_who_only_reads_goes_by_the_tables_and_indexes_of_now(path: Path, lies_in: str) -> None:
    # Who never writes keeps no version of the file: each read begins anew, and believes of a version that it
    # has met what it read there before.
    with pellucid.open(path) as db, Child(path) as other:

        def do(code: str) -> None:
            other(code)
            if lies_in == "tree":
                other("db.sync()")

        def rows(of: Any, number: int) -> list[int | None]:
            table, name = of.table("rows"), f"name {number}"
            ways = (table.get(number), table.index("name").get(name), table.find(name=name).first())
            return [None if row is None else row.n for row in ways]

        do("t = db.table('rows'); t.create_index('name', pellucid.F.name)")
        do("t.update({n: {'name': f'name {n}', 'n': n} for n in range(300)})")
        table = db.table("rows")
        index = table.index("name")
        assert [rows(db, 7) for _ in range(3)] == [[7, 7, 7]] * 3
        before = db.snapshot()
        do("t[7] = {'name': 'name 7', 'n': -7}")
        assert rows(db, 7) == [-7, -7, -7]
        assert index.get("name 7").n == -7
        do("del t[7]")
        assert rows(db, 7) == [None, None, None]
        assert index.get("name 7") is None
        do("t.update({n: {'name': f'name {n}', 'n': n} for n in range(1_000, 30_000)})")
        assert rows(db, 20_000) == [20_000] * 3
        assert len(table) == len(index) == 29_299
        do("t.drop_index('name')")
        with pytest.raises(pellucid.NoSuchIndex):
            index.get("name 8")
        assert table.find(name="name 8").one().n == 8
        do("t.create_index('name', pellucid.F.n)")
        assert index.get("name 8") is None
        assert index.get(8).n == 8
        assert len(index) == len(table)
        do("t.rebuild_index('name')")
        assert index.get(8).n == 8
        do("db.rename_table('rows', 'others'); db.table('rows')[8] = {'n': 'of another table'}")
        assert table[8].n == index.get(8).n == 8
        assert db.table("rows")[8].n == "of another table"
        assert len(db.table("rows")) == 1
        do("db.drop_table('others')")
        for gone in (lambda: table[8], lambda: index.get(8), lambda: table.find(name="name 8").one()):
            with pytest.raises(pellucid.StaleTable):
                gone()
        assert rows(before, 7) == [7, 7, 7]
        assert len(before.table("rows").index("name")) == 300
        before.close()
        with db.transaction():
            assert db.table("rows")[8].n == "of another table"


# Now and then into the tree, so that its version is another one.
MAKE_AND_DROP = """
def make_and_drop(count):
    table = db.table("rows")
    for number in range(1, count + 1):
        table[7].n = number
        table.create_index("name", pellucid.F.name)
        db.table(f"other {number}")[7] = {"name": "name 7", "n": -number}
        time.sleep(0.002)
        if number % 3 == 0:
            db.sync()
        db.drop_table(f"other {number}")
        table.drop_index("name")
"""


def test_reads_beside_one_who_makes_and_drops_are_of_one_version_each_and_never_go_back(path: Path) -> None:
    count = 60
    with pellucid.open(path) as db, Child(path) as other:
        other("db.table('rows').update({n: {'name': f'name {n}', 'n': 0} for n in range(300)})")
        other(MAKE_AND_DROP)
        other.send(f"make_and_drop({count})")
        table, seen, by_index = db.table("rows"), 0, 0
        deadline = time.monotonic() + 60
        while seen < count and time.monotonic() < deadline:
            for read in (lambda: table[7], lambda: table.find(name="name 7").one()):
                now = read().n
                assert now >= seen
                seen = now
            try:
                now = table.index("name").get("name 7").n
            except pellucid.NoSuchIndex:
                continue
            assert now >= seen
            seen, by_index = now, by_index + 1
        other.answer()
        assert seen == count
        assert by_index > 0
        assert db.tables() == ["rows"]


def test_a_transaction_elsewhere_is_waited_for_and_its_pid_named(path: Path) -> None:
    with pellucid.open(path, timeout=0.05) as db, Child(path) as other:
        db["a"] = 1
        other("transaction = db.transaction(); transaction.__enter__(); db['a'] = 2")
        for write in (
            lambda: db.__setitem__("b", 1),
            lambda: db.transaction().__enter__(),
            lambda: db.pop("a"),
            lambda: db.edit("a").__enter__(),
        ):
            with pytest.raises(pellucid.Busy, match=rf"PID {other.pid}\b") as busy:
                write()
            assert isinstance(busy.value, TimeoutError)
        assert db["a"] == 1
        other("transaction.__exit__(None, None, None)")
        db["b"] = 1
        assert dict(db) == {"a": 2, "b": 1}


def test_a_writer_waits_for_its_turn(path: Path) -> None:
    with pellucid.open(path, timeout=60) as db, Child(path) as other:
        other("transaction = db.transaction(); transaction.__enter__(); db['a'] = [1]")
        other.send("time.sleep(0.3); transaction.__exit__(None, None, None)")
        db["b"] = 2
        assert other.answer() is None
        assert dict(db) == {"a": [1], "b": 2}


def test_many_writers_lose_no_update(path: Path) -> None:
    with pellucid.open(path, timeout=60) as db:
        db["n"] = {"count": 0}
        children = [Child(path, timeout=60) for _ in range(3)]
        loop = "for _ in range(100):\n    with db.edit('n') as row:\n        row.count += 1"
        for child in children:
            child.send(loop)
        for _ in range(100):
            with db.edit("n") as row:
                row.count += 1
        for child in children:
            assert child.answer() is None
        assert db["n"].count == 400
        for child in children:
            child.__exit__()


def test_only_the_last_to_close_leaves_one_file(path: Path) -> None:
    with Child(path) as other:
        with pellucid.open(path) as db:
            db["a"] = 1
            assert len(list(path.parent.iterdir())) > 1
        assert len(list(path.parent.iterdir())) > 1
        assert other("db['a']") == 1
        other("db.close()")
    assert list(path.parent.iterdir()) == [path]


def test_a_reader_beside_a_writer_may_not_write(path: Path) -> None:
    with pellucid.open(path) as db, Child(path, mode="r") as other:
        db["a"] = {"x": 1}
        assert other("db['a'].x") == 1
        for write in (
            "db['a'] = 2",
            "db['a'].x = 2",
            "db.transaction().__enter__()",
            "db.clear()",
            "db.drop_table('default')",
        ):
            with pytest.raises(Raised, match="ReadOnly"):
                other(write)
        assert db == {"a": {"x": 1}}


# Handles that travel


def test_a_handle_travels_as_a_path_and_a_mode(path: Path) -> None:
    with pellucid.open(path, "n", timeout=3, pickle=["a.b"]) as db:
        db["a"] = 1
        copied = pickle.loads(pickle.dumps(db))
        # "n" would have emptied it.
        assert copied["a"] == 1
        copied["b"] = 2
        copied.close()
        assert db["b"] == 2
        data = pickle.dumps(db)
    with pickle.loads(data) as again:
        assert dict(again) == {"a": 1, "b": 2}
    path.unlink()
    # "c" would have made it.
    with pytest.raises(FileNotFoundError):
        pickle.loads(data)
    assert not path.exists()


def test_a_handle_of_a_relative_path_travels_as_the_file_that_it_has_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
        with pellucid.open(folder / "data.pel") as db:
            db["which"] = folder.name
    monkeypatch.chdir(folders[0])
    with pellucid.open("data.pel") as db:
        assert db.path == "data.pel"
        monkeypatch.chdir(folders[1])
        with pickle.loads(pickle.dumps(db)) as copied:
            assert db["which"] == copied["which"] == "one"
        monkeypatch.chdir(tmp_path)
        with pickle.loads(pickle.dumps(db)) as copied:
            assert copied["which"] == "one"


def test_a_reading_handle_stays_one(path: Path) -> None:
    with pellucid.open(path) as db:
        db["a"] = 1
    with pellucid.open(path, "r") as db:
        data = pickle.dumps(db)
    with pickle.loads(data) as again:
        assert again["a"] == 1
        with pytest.raises(pellucid.ReadOnly):
            again["a"] = 2


def test_permission_to_unpickle_does_not_travel(path: Path) -> None:
    with pellucid.open(path, pickle="allow") as db:
        db["a"] = {"f": io.BytesIO(b"x"), "n": 1}
        with pickle.loads(pickle.dumps(db)) as again:
            assert again["a"].n == 1
            with pytest.raises(pellucid.PickleDenied):
                again["a"].f
    with pellucid.open(":memory:") as db, pytest.raises(TypeError, match="memory"):
        pickle.dumps(db)


def test_a_handle_is_found_from_another_folder(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(path.parent)
    with pellucid.open(path.name) as db:
        db["a"] = 1
        data = pickle.dumps(db)
    monkeypatch.chdir("/")
    with pickle.loads(data) as again:
        assert again["a"] == 1


# Fork


def in_child(work: Any) -> None:
    """Run `work` in a forked child; it passes if it returns."""
    pid = fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            import traceback

            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, f"the child ended with {status}"


def test_a_forked_child_reads_and_writes_through_its_own_handle(path: Path) -> None:
    with pellucid.open(path) as db:
        db["a"] = {"x": 1, "l": [1]}

        def work() -> None:
            assert db["a"].x == 1
            assert [row.x for row in db.values()] == [1]
            db["child"] = {"new shape": 5}
            db["a"].x += 1
            with db.transaction():
                db.table("t")[1] = 1
            db.close()

        in_child(work)
        assert db["child"] == {"new shape": 5}
        assert db["a"].x == 2
        assert db.table("t") == {1: 1}
        db["parent"] = 1
        in_child(lambda: db.__setitem__("again", 2))
        assert dict(db) == {"a": {"x": 2, "l": [1]}, "again": 2, "child": {"new shape": 5}, "parent": 1}
    assert list(path.parent.iterdir()) == [path]


def test_a_child_learns_nothing_of_the_transaction_in_which_it_was_forked(path: Path) -> None:
    with pellucid.open(path) as db, db.transaction():
        db["a"] = {"x": 1}

        def work() -> None:
            for read in (
                lambda: db["a"],
                lambda: len(db),
                db.count,
                lambda: db.count("x"),
                db.keys().__len__,
            ):
                with pytest.raises(pellucid.TransactionError):
                    read()

        in_child(work)
        assert len(db) == 1


def test_rows_of_the_parent_stay_readable_in_the_child(path: Path) -> None:
    with pellucid.open(path) as db:
        db.update({number: {"n": number, "l": [number]} for number in range(100)})
        kept = list(db.values())
        rows = iter(db.values())
        next(rows)
        snap = db.snapshot()

        def work() -> None:
            assert [row.n for row in kept] == list(range(100))
            kept[0].n = -1
            assert db[0].n == -1
            for use in (lambda: snap[1].n, lambda: next(rows).n):
                with contextlib.suppress(pellucid.Error):
                    assert use() == 1

        in_child(work)
        assert next(rows).n == 1
        assert snap[0].n == 0
        assert db[0].n == -1
        snap.close()


def test_a_transaction_of_the_parent_is_not_one_of_the_child(path: Path) -> None:
    with pellucid.open(path, timeout=0.05) as db:
        db["a"] = 1
        with db.transaction():
            db["a"] = 2

            def work() -> None:
                with pytest.raises(pellucid.Error):
                    db["a"] = 3
                with pellucid.open(path, timeout=0.05) as own:
                    assert own["a"] == 1
                    with pytest.raises(pellucid.Busy):
                        own["a"] = 4

            in_child(work)
        assert db["a"] == 2


def test_a_memory_database_is_a_copy_of_its_own_in_a_child() -> None:
    with pellucid.open(":memory:") as db:
        db["a"] = {"x": 1}

        def work() -> None:
            try:
                db["a"].x = 2
                assert db["a"].x == 2
            except pellucid.Error:
                pass

        in_child(work)
        assert db["a"].x == 1


# Death


KILLED = """
import sys, pellucid
db = pellucid.open(sys.argv[1], timeout=60)
number = len(db.table("log"))
print("ready", flush=True)
while True:
    with db.transaction():
        db.table("log").append({"n": number, "text": "x" * (number * 37 % 900)})
        db["last"] = {"n": number, f"shape {number % 40}": number}
    print(number, flush=True)
    number += 1
"""


def test_what_was_acknowledged_survives_the_death_of_its_writer(path: Path) -> None:
    seed = random.randrange(1 << 32)
    dice = random.Random(seed)
    for _ in range(6):
        process = subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(dice.random() / 4)
        process.send_signal(signal.SIGKILL)
        said = [int(line) for line in process.stdout.read().splitlines() if line.strip().isdigit()]
        process.stdout.close()
        process.wait()
        with pellucid.open(path) as db:
            log = db.table("log")
            count = len(log)
            # All that was said to be there is; the last commit may have been said in part, or not at all.
            assert count >= (said[-2] + 1 if len(said) > 1 else 0), f"seed {seed}"
            assert [row.n for row in log.values()] == list(range(count)), f"seed {seed}"
            if count:
                assert db["last"].n == count - 1, f"seed {seed}"
            assert db.check() == [], f"seed {seed}"


def test_a_dead_writers_lock_is_free(path: Path) -> None:
    with pellucid.open(path, timeout=30) as db:
        with Child(path) as other:
            other("transaction = db.transaction(); transaction.__enter__(); db['a'] = 1")
            other.kill()
        db["b"] = 2
        assert dict(db) == {"b": 2}
    assert list(path.parent.iterdir()) == [path]


def test_the_figure_of_readers_counts_places_that_are_shared(path: Path) -> None:
    with pellucid.open(path) as db:
        db["a"] = {"n": 1}
        idle = db.stats()["readers"]
        assert idle in (1, 2), "its own, and the one that a process keeps"
        with db.snapshot() as one, db.snapshot() as other:
            assert (one["a"].n, other["a"].n) == (1, 1)
            assert db.stats()["readers"] == idle, "those that see the same version share one"
        with Child(path, mode="r") as child:
            child("snap = db.snapshot(); row = next(iter(snap.values()))")
            assert db.stats()["readers"] == idle + 1


def test_a_dead_writers_lock_is_free_for_whoever_gets_its_number(path: Path) -> None:
    with Child(path) as first, Child(path, mode="r") as reader:
        first("transaction = db.transaction(); transaction.__enter__(); db['a'] = 1")
        first.kill()
        # It opens beside the reader, in the dead one's place.
        with pellucid.open(path, timeout=10) as db:
            db["b"] = 2
            assert dict(db) == {"b": 2}
            assert reader("dict(db)") == {"b": 2}
    assert list(path.parent.iterdir()) == [path]


def test_a_dead_reader_does_not_keep_space(path: Path) -> None:
    with pellucid.open(path) as db:
        db.update(dict.fromkeys(range(200), "x" * 1000))
        with Child(path, mode="r") as other:
            other("snap = db.snapshot(); row = next(iter(snap.values()))")
            other.kill()
        for _ in range(600):
            db.update({number: os.urandom(500).hex() for number in range(20)})
        # Without an end, 600 times 20 kB at least.
        assert path.stat().st_size < 8_000_000
        assert db.stats()["oldest_reader_lag"] == 0


def test_a_child_does_not_keep_its_dead_parents_snapshots(path: Path) -> None:
    with pellucid.open(path) as db:
        db.update(dict.fromkeys(range(200), "x" * 1000))
        db.sync()
        with Child(path, mode="r") as parent:
            parent("snap = db.snapshot(); row = next(iter(snap.values()))")
            parent("""
def fork():
    import warnings; warnings.simplefilter('ignore')
    pid = os.fork()
    if pid == 0:
        # It has nothing of the parent's but its life.
        for descriptor in (0, 1):
            os.close(descriptor)
        time.sleep(1000)
    return pid
""")
            child = parent("fork()")
            try:
                for _ in range(5):
                    db.update(dict.fromkeys(range(200), "y" * 1000))
                    db.sync()
                assert db.stats()["oldest_reader_lag"] >= 4
                parent.kill()
                assert db.stats()["oldest_reader_lag"] <= 1
            finally:
                os.kill(child, signal.SIGKILL)


def test_a_reader_that_never_leaves_costs_room_that_is_counted_warned_of_and_used_again(path: Path) -> None:
    rows = dict.fromkeys(range(20), "x" * 1000)

    def checkpoints(db: pellucid.Database, count: int) -> int:
        """Write everything anew, that often; by how many bytes the file has grown."""
        before = path.stat().st_size
        for _ in range(count):
            db.update({number: os.urandom(500).hex() for number in rows})
            db.sync()
        return path.stat().st_size - before

    with pellucid.open(path) as db, Child(path, mode="r") as reader, Child(path) as other:
        db.update(rows)
        db.sync()
        checkpoints(db, 5)
        reader("snap = db.snapshot(); first = dict(snap)")
        readers = db.stats()["readers"]
        grown = checkpoints(db, 120)
        stats = db.stats()
        # Pages that were written and freed after the reader began are used again.
        assert 0 <= grown < 8 * stats["live_size"]
        assert 100 < stats["oldest_reader_lag"] <= 130
        assert stats["readers"] == readers
        # Neither the log nor the writers have anything to do with it.
        assert stats["log_pending"] == 0
        assert stats["oldest_reader_process"] == reader.pid
        assert 0 <= stats["oldest_reader_age"] < 3600
        assert stats["live_size"] / 2 < stats["pinned_size"] < 2 * stats["live_size"]
        sizes = stats["live_size"] + stats["free_size"] + stats["pinned_size"]
        assert sizes == stats["pages"] * stats["page_size"]
        told = rf"process {reader.pid} keeps a snapshot of .* open, now for \d minutes and 1\d\d checkpoints"
        with pytest.warns(pellucid.DatabaseWarning, match=told):
            pellucid.open(path, "r").close()
        # It is told once to each process that takes snapshots or writes.
        other("import warnings")
        other("caught = warnings.catch_warnings(record=True); seen = caught.__enter__()")
        other("warnings.simplefilter('always'); db.snapshot().close(); db.sync(); db.transaction()")
        [message] = other("[str(warning.message) for warning in seen]")
        assert re.match(told, message)
        assert reader("dict(snap) == first")
        reader("snap.close(); del first")
        stats = db.stats()
        assert stats["oldest_reader_lag"] < 10
        assert stats["pinned_size"] < stats["live_size"] / 2
        # What it kept is used again.
        assert checkpoints(db, 120) <= stats["live_size"] / 2
        assert db.check() == []


def test_a_record_of_an_aborted_transaction_never_shows_a_large_value_of_another_process(path: Path) -> None:
    # The id that the aborted large value had is given to another one: ids are counted in the file.
    with pellucid.open(path) as db, Child(path) as other:
        db["old"] = {"data": b"old!" * 20_000}
        snapshot = db.snapshot()
        transaction = db.transaction()
        transaction.__enter__()
        db["a"] = {"data": b"mine" * 20_000}
        db["old"].data = b"mine" * 20_000
        records, rows = [db["a"], db["old"]], [row for row in db.values()]  # noqa: C416  rows, not a list of them
        transaction.__exit__(ValueError, ValueError(), None)
        other("db.update(b={'data': b'them' * 20_000}, c={'data': b'them' * 20_000})")
        for record in (records[0], rows[0]):
            for use in (lambda one: one.data, lambda one: one.to_dict(), bytes):
                with pytest.raises((KeyError, pellucid.StaleRecord)):
                    use(record)
        for record in (records[1], rows[1], snapshot["old"]):
            with contextlib.suppress(pellucid.StaleRecord):
                assert record.data == b"old!" * 20_000
        assert snapshot["old"].data == db["old"].data == b"old!" * 20_000
        assert db["b"].data == b"them" * 20_000
        snapshot.close()


def test_a_process_whose_snapshots_have_taken_all_reader_slots_that_they_may_still_reads(path: Path) -> None:
    with pellucid.open(path) as db:
        db["a"] = {"n": 1}
        kept = []
        for number in range(70):
            db["number"] = number
            db.sync()
            kept.append(db.snapshot())
        # To keep snapshots of 3,840 versions takes long. The lock file has the number of slots, and in each
        # one a version and a PID.
        count, first, size, none = 16, 128, 64, 2**64 - 1
        with path.with_name(path.name + "-lock").open("r+b") as file:
            for slot in range(100, 3_900):
                file.seek(first + size * slot)
                file.write(struct.pack("<Qi", none, os.getpid()))
            file.seek(count)
            file.write((3_900).to_bytes(4, "little"))
        db["number"] = -1
        full = (
            r"no room for another reader: 38\d\d of 4096 reader slots are taken, 7\d of them by this process"
        )
        with pytest.raises(pellucid.Busy, match=full):
            db.snapshot()
        assert (len(db), sorted(db), dict(db.items())["a"], db["a"].n) == (2, ["a", "number"], {"n": 1}, 1)
        found = db.where(pellucid.F.n == 1)
        assert (found.count(), found.first(), db.tables()) == (1, {"n": 1}, ["default"])
        for snapshot in kept:
            snapshot.close()
        db.snapshot().close()
