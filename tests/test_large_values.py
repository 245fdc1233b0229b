"""Large values: read where they lie, written once, as files, and through every death and failure."""

from __future__ import annotations

import contextlib
import errno
import gc
import random
import time
from collections.abc import Iterator
from pathlib import Path

import faults
import numpy
import pellucid
import pytest
from pellucid.errors import ReadOnly
from processes import Child, Raised

MEGABYTE = 1_000_000


def content(number: int, size: int = MEGABYTE) -> bytes:
    """Bytes of this size that differ from those of every other number, and cannot be compressed."""
    return random.Random(number).randbytes(size)


@pytest.fixture(params=["file", "memory"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pellucid.Database]:
    with pellucid.open(tmp_path / "test.pel" if request.param == "file" else ":memory:") as db:
        yield db


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "test.pel"


def test_a_view_keeps_what_it_shows(path: Path) -> None:
    db = pellucid.open(path)
    db["film"] = content(0)
    db["record"] = {"image": content(1), "n": 1}
    views = []
    for _ in range(2):
        views += [(db.buffer("film"), content(0)), (db.buffer("record", "image"), content(1))]
        db.sync()
    del db["film"]
    db["record"].image = b""
    for turn in range(3):
        for number in range(20):
            db[number] = content(100 + number + turn, 400_000)
        db.sync()
    assert all(view == expected for view, expected in views)
    db.close()
    assert all(view == expected for view, expected in views)
    with pellucid.open(path) as again:
        again["film"] = content(2)
        again.sync()
        assert all(view == expected for view, expected in views)
    parts = [view[:10] for view, _ in views]
    views.clear()
    gc.collect()
    assert parts[0] == content(0)[:10]


def test_arrays_of_a_snapshot_are_views_of_the_file_and_others_have_copies(db: pellucid.Database) -> None:
    arrays = {
        "floats": numpy.arange(100_000.0),
        "many": numpy.arange(24_000, dtype="i4").reshape(20, 30, 40),
        "fortran": numpy.asfortranarray(numpy.arange(60_000.0).reshape(200, 300)),
        "few": numpy.arange(5),
    }
    db["record"] = arrays
    db["root"] = arrays["floats"]
    for _ in range(2):
        with db.snapshot() as snapshot:
            held = {name: snapshot["record"][name] for name in arrays}
        copied = {name: db["record"][name] for name in arrays}
        for name, array in arrays.items():
            for found in (held[name], copied[name]):
                assert (found.dtype, found.shape, found.flags.writeable) == (array.dtype, array.shape, False)
                assert found.flags.aligned
                assert numpy.array_equal(found, array)
        if db.stats()["page_size"]:
            assert held["floats"].__array_interface__["data"][0] % 64 == 0
        before = db.buffer("record", "floats")
        assert numpy.frombuffer(before).flags.aligned
        addresses = {
            array.__array_interface__["data"][0] for array in (held["floats"], numpy.frombuffer(before))
        }
        assert len(addresses) == 1, "both are views of the same bytes"
        assert copied["floats"].__array_interface__["data"][0] not in addresses
        db.sync()
    db["record"] = {}
    db.sync()
    for number in range(10):
        db[number] = content(number)
    db.sync()
    assert numpy.array_equal(held["floats"], arrays["floats"])


def test_what_cannot_be_opened_is_told(path: Path) -> None:
    with pellucid.open(path) as db:
        db["film"] = content(0)
        db["record"] = {"image": b"x", "n": 1}
        for mode in ("r", "w", "ab", "r+b", ""):
            with pytest.raises(ValueError, match='"rb" or "wb"'):
                db.open("film", mode)  # type: ignore[call-overload]
        with pytest.raises(ValueError, match="as a whole"):
            db.open("record", "wb", "image")  # type: ignore[call-overload]
        with pytest.raises(TypeError, match="has no buffer"):
            db.open("record", "rb", "n")
        with pytest.raises(pellucid.UnsupportedKey):
            db.open(object(), "wb")  # type: ignore[arg-type, call-overload]
        with db.snapshot() as snapshot, pytest.raises(ReadOnly):
            snapshot.table("default").open("film", "wb")
        file = db.open("late", "wb")
        file.write(b"late")
    with pytest.raises(pellucid.Closed):
        file.close()
    assert file.closed
    with pellucid.open(path, "r") as db, pytest.raises(ReadOnly):
        db.open("film", "wb")


def test_a_file_stays_near_its_content_whatever_is_overwritten(path: Path) -> None:
    sizes = random.Random(5)
    for kind, most in (("equal", 1.35), ("mixed", 1.6)):
        live: dict[int, bytes] = {}
        own = path.with_suffix(f".{kind}")
        with pellucid.open(own) as db:
            for turn in range(4):
                for number in sizes.sample(range(60), 60):
                    size = MEGABYTE if kind == "equal" else sizes.randrange(130_000, 2_000_000)
                    live[number] = db[number] = content(number + 60 * turn, size)
                db.sync()
            gone = sizes.sample(range(60), 30)
            for number in gone:
                del db[number]
            db.sync()
            for number in gone:
                db[number] = live[number]
            assert all(db[number] == value for number, value in live.items())
            assert db.check() == []
        with pellucid.open(own) as db:
            assert all(db[number] == value for number, value in live.items())
            assert db.check() == []
            total = sum(map(len, live.values()))
            assert own.stat().st_size <= most * total
            db.compact()
            assert own.stat().st_size <= 1.02 * total
            assert all(db[number] == value for number, value in live.items())


def test_values_that_are_rolled_back_leave_their_pages_to_the_next(path: Path) -> None:
    with pellucid.open(path) as db:
        for turn in range(20):
            with contextlib.suppress(KeyError), db.transaction():
                db.update({number: content(turn + number) for number in range(10)})
                raise KeyError
        assert len(db) == 0
        assert path.stat().st_size < 30 * MEGABYTE
        # What is committed in between keeps its pages.
        for turn in range(10):
            db[f"kept {turn}"] = content(100 + turn)
            with contextlib.suppress(KeyError), db.transaction():
                db.update({number: content(turn + number) for number in range(10)})
                raise KeyError
        assert path.stat().st_size < 50 * MEGABYTE
        assert dict(db) == {f"kept {turn}": content(100 + turn) for turn in range(10)}
        assert db.check() == []


def test_values_before_and_after_a_part_that_is_rolled_back_stay(path: Path) -> None:
    with pellucid.open(path) as db:
        for outer in range(2):
            with contextlib.suppress(LookupError), db.transaction():
                db["first"] = content(0)
                for turn in range(20):
                    with contextlib.suppress(KeyError), db.transaction():
                        db.update({number: content(turn + number) for number in range(10)})
                        raise KeyError
                    db["between"] = content(100 + turn, 200_000)
                with db.transaction():
                    db["last"] = content(1)
                if outer == 0:
                    raise LookupError
        assert path.stat().st_size < 60 * MEGABYTE
        expected = {"first": content(0), "between": content(119, 200_000), "last": content(1)}
        assert dict(db) == expected
        db.sync()
        assert db.check() == []
        assert dict(db) == expected


def test_a_process_that_dies_after_rollbacks_leaves_what_was_committed(path: Path) -> None:
    with pellucid.open(path) as db:
        for turn in range(5):
            with Child(path) as child:
                child("import random\ndef content(n): return random.Random(n).randbytes(1_000_000)")
                child("transaction = db.transaction(); transaction.__enter__()")
                child(f"db.update({{n: content(n + {turn}) for n in range(5)}})")
                child("transaction.__exit__(KeyError, KeyError(), None)")
                child(f"db['child', {turn}] = content(50 + {turn})")
                child("transaction = db.transaction(); transaction.__enter__()")
                child(f"db.update({{n: content(n + {turn}) for n in range(5)}})")
                child.kill()
            db["own", turn] = content(80 + turn)
            assert len(db) == 2 * turn + 2
        expected = {("child", turn): content(50 + turn) for turn in range(5)}
        expected |= {("own", turn): content(80 + turn) for turn in range(5)}
        assert dict(db) == expected
        db.sync()
        assert db.check() == []


def test_room_that_was_reserved_is_given_back_when_no_large_value_is_written(path: Path) -> None:
    with pellucid.open(path) as db:
        for number in range(60):
            db[number] = content(number)
        db.sync()

        def free() -> int:
            count: int = db.stats()["free_pages"]
            return count

        before, until = free(), time.monotonic() + 60
        while free() < before + 250 and time.monotonic() < until:
            time.sleep(0.1)
        assert free() >= before + 250
        assert db.check() == []
        db[60] = content(60)
        assert all(db[number] == content(number) for number in range(61))
        assert db.check() == []


def test_other_processes_read_large_values_out_of_the_log(path: Path) -> None:
    with pellucid.open(path) as db, Child() as child:
        child(f"db = pellucid.open({str(path)!r})")
        for number in range(12):
            db[number] = content(number, 300_000)
            assert child(f"hash(db[{number}])") is not None
            assert child(f"db[{number}][:8]") == content(number, 300_000)[:8]
            child(f"db[{number} + 100] = db[{number}][::-1]")
            assert db[number + 100] == content(number, 300_000)[::-1]
        child("view = db.buffer(3)")
        for turn in range(4):
            for number in range(12):
                db[number] = content(number + turn, 300_000)
            db.sync()
        assert child("bytes(view[:8])") == content(3, 300_000)[:8]
        child("db.close()")
        assert db.check() == []


@pytest.mark.parametrize("durability", ["process", "full"])
def test_what_was_acknowledged_survives_a_kill(path: Path, durability: str) -> None:
    for turn in range(4):
        with Child() as child:
            child(f"db = pellucid.open({str(path)!r}, durability={durability!r})")
            child("import random")
            for number in range(6):
                child(f"db[{number}] = random.Random({10 * turn + number}).randbytes(500_000)")
                child(f"db['r'] = {{'n': {turn}, 'image': random.Random({turn}).randbytes(200_000)}}")
            if turn % 2:
                child("db.sync()")
                child("db[3] = random.Random(77).randbytes(900_000)")
            # What is written when it dies has no WAL record.
            child("t = db.transaction(); t.__enter__(); db[4] = bytes(900_000); db[50] = bytes(400_000)")
            child.kill()
        with pellucid.open(path) as db:
            for number in range(6):
                other = turn % 2 and number == 3
                expected = content(77, 900_000) if other else content(10 * turn + number, 500_000)
                assert db[number] == expected
            assert 50 not in db
            assert db["r"].image == content(turn, 200_000)
            assert db.check() == []
    with pellucid.open(path) as db:
        assert db.check() == []


def test_a_full_disk_or_a_failed_write_stops_that_commit_alone(path: Path, faulty: str) -> None:
    with Child(preload=faulty) as child:
        child(faults.PRELUDE)
        child(f"db = pellucid.open({str(path)!r})")
        child("db[1] = bytes(500_000); db[2] = {'n': 1}")
        for code, raised in ((errno.ENOSPC, "DiskFull"), (errno.EIO, "DatabaseError")):
            child(f"fault('write', '.pel', {code})")
            with pytest.raises(Raised, match=raised):
                child("db[3] = bytes(500_000)")
            child("fault('write', '.pel', 0)")
            assert child("3 in db") is False
            child("db[4] = b'x' * 500_000")
            assert child("db[4] == b'x' * 500_000") is True
        child("fault('room', '', 1)")
        child("db[5] = b'y' * 500_000")
        child("fault('room', '', 0)")
        child("db.close()")
    with pellucid.open(path) as db:
        assert list(db) == [1, 2, 4, 5]
        assert db.check() == []


def test_a_full_disk_leaves_nothing_half_done_and_says_what_to_do(path: Path, faulty: str) -> None:
    with Child(preload=faulty) as child:
        child(faults.PRELUDE)
        child(f"db = pellucid.open({str(path)!r}); db['old'] = b'o' * 300_000; db.sync()")
        child("""
def put(size):
    with db.transaction():
        db["small"] = 1
        db["old"] = bytes(size)
        db["new"] = {"n": 1, "image": bytes(size)}
""")
        # The data file has no room for a write, then the log cannot grow either.
        child("fault('write', '.pel', errno.ENOSPC)")
        for _ in range(2):
            for size in (300_000, 9_000_000):
                with pytest.raises(Raised, match=rf"DiskFull.*{path}.*make room, and try again"):
                    child(f"put({size})")
                assert child("list(db), db['old'] == b'o' * 300_000") == (["old"], True)
            child("fault('fallocate', '.pel-log', errno.ENOSPC)")
        # No room to reserve, but enough for the log: so the value goes there.
        child("fault('write', '', COUNT); fault('fallocate', '.pel', errno.ENOSPC)")
        child("put(3_000_000)")
        assert child("db['old'] == db['new'].image == bytes(3_000_000)") is True
        child("fault('fallocate', '', COUNT)")
        child("put(9_000_000); db.close()")
    with pellucid.open(path) as db:
        assert list(db) == ["new", "old", "small"]
        assert db["old"] == db["new"].image == bytes(9_000_000)
        assert db.check() == []


@pytest.mark.parametrize("is_beside", [True, False])
@pytest.mark.parametrize(
    ("call", "size"),
    # Before and behind the write of a value, and in the commits that reserve pages for more.
    [("write", 300_000), ("written", 300_000), ("fallocate", 3_000_000), ("whole", 3_000_000)],
)
def test_a_process_that_dies_in_a_write_leaves_what_was_there(
    path: Path, faulty: str, call: str, size: int, is_beside: bool
) -> None:
    with contextlib.ExitStack() as stack:
        beside = stack.enter_context(pellucid.open(path)) if is_beside else None
        with Child(preload=faulty) as child:
            child(faults.PRELUDE)
            child(f"db = pellucid.open({str(path)!r}); db[1] = b'a' * 300_000; db[2] = b'b' * {size}")
            child(f"fault({call!r}, '.pel', DIE)")
            child.send(f"db[1] = b'c' * {size}")
            assert child.process.wait(60) < 0
        db = stack.enter_context(pellucid.open(path)) if beside is None else beside
        assert list(db) == [1, 2]
        assert (db[1], db[2]) == (b"a" * 300_000, b"b" * size)
        assert db.check() == []
        for number in range(20):
            db[number] = content(number, 300_000 + 100_000 * (number % 3))
        assert all(db[number] == content(number, 300_000 + 100_000 * (number % 3)) for number in range(20))
        assert db.check() == []


def test_watchers_get_large_values_from_the_log_and_from_what_is_kept(path: Path) -> None:
    with pellucid.open(path) as db:
        watch = db.watch(timeout=0)
        for number in range(5):
            db[number] = content(number, 200_000)
        db["r"] = {"image": content(9, 200_000)}
        changes = {change.key: change for change in watch if change.kind == "put"}
        assert [changes[number].value for number in range(5)] == [content(n, 200_000) for n in range(5)]
        assert changes["r"].value.image == content(9, 200_000)
