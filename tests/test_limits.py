"""What becomes of a database where disk or memory end?"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pellucid
import pytest
from processes import Child, Raised

# A limit on the size of files is met as a full disk is: a write ends early, and the next one fails.
LIMITED = """
import resource
def limit(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))
"""


@pytest.mark.parametrize("count", [4_000, 20_000])
def test_a_transaction_that_does_not_fit_gives_its_room_back(path: Path, count: int) -> None:
    with Child() as child, Child() as other:
        child(LIMITED)
        child(f"db = pellucid.open({str(path)!r})")
        child("db.update({n: b'a' * 1000 for n in range(100)}); db.sync()")
        other(f"db = pellucid.open({str(path)!r}); view = db.snapshot()")
        size = path.stat().st_size
        child(f"limit({size} + (2 << 20))")
        for _ in range(2):
            with pytest.raises(Raised, match=r"DiskFull.*ulimit -f"):
                child(f"db.update({{('large', n): b'b' * 1000 for n in range({count})}})")
            assert path.stat().st_size == size
            assert child("len(db), db.check()") == (100, [])
            assert other("len(view), len(db), db.check()") == (100, 100, [])
        # What there is room for goes on, in either process.
        child("db['next'] = 1; del db[0]; db.sync()")
        other("db['other'] = 2")
        assert child("len(db)") == other("len(db)") == 101
        assert other("len(view)") == 100
        other("view.close(); db.close()")
        child("db.compact()")
        assert child("len(db), db.check()") == (101, [])
    assert list(path.parent.iterdir()) == [path]


def test_what_a_process_left_that_died_in_a_transaction_is_given_back(path: Path) -> None:
    with pellucid.open(path) as db:
        db.update(dict.fromkeys(range(100), b"a" * 1000))
    size = path.stat().st_size
    with path.open("ab") as file:
        file.write(b"b" * (1 << 20))
    with pellucid.open(path) as db:
        db[0] = 1
        db.sync()
        assert path.stat().st_size < size + (1 << 17)
        assert db.check() == []


WORK = """
import resource, sys
import pellucid
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]) << 20, resource.RLIM_INFINITY))
try:
    with pellucid.open(sys.argv[1], "n") as db:
        for _ in range(6):
            db.extend([b"z" * 100_000] * 100)
        for n in range(20_000):
            db[n] = {"a": n, "b": "x" * 300}
        db.update({("more", n): "x" * 300 for n in range(20_000)})
        assert sum(1 for _ in db.items()) == 40_000
except (pellucid.Error, MemoryError) as error:
    print(type(error).__name__, error)
else:
    print("done")
"""


@pytest.mark.parametrize("megabytes", [150, 200, 250, 300, 400, 500, 600, 800, 1000, 1500, 2000])
def test_little_address_space_is_enough_or_is_named(path: Path, megabytes: int) -> None:
    command = [sys.executable, "-c", WORK, str(path), str(megabytes)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert run.returncode == 0, run.stderr
    told = run.stdout.strip()
    assert told == "done" or "ulimit -v" in told or told == "MemoryError", told
    if megabytes >= 500:
        assert told == "done"


SEVERAL = """
import resource, sys
import pellucid
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, resource.RLIM_INFINITY))
opened = [pellucid.open(f"{sys.argv[1]}{number}") for number in range(3)]
for db in opened:
    db["a"] = 1
assert len(bytearray(100 << 20)) == 100 << 20
for db in opened:
    db.close()
for number in range(3):
    with pellucid.open(f"{sys.argv[1]}{number}", "r") as db:
        assert db.check() == []
"""


def test_several_databases_and_the_program_share_a_limited_address_space(path: Path) -> None:
    subprocess.run([sys.executable, "-c", SEVERAL, str(path)], check=True, timeout=60)
    for number in range(3):
        with pellucid.open(f"{path}{number}", "r", untrusted=True) as db:
            assert db["a"] == 1
            assert db.check() == []


def test_a_program_that_kept_too_many_snapshots_goes_on_writing(request: pytest.FixtureRequest) -> None:
    # Where a sync costs nothing: each version takes a checkpoint.
    folder = Path(tempfile.mkdtemp(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else None))
    request.addfinalizer(lambda: shutil.rmtree(folder))
    with pellucid.open(folder / "crowded.pel") as db:
        table, kept = db.table("t"), []
        table.update({n: {"i": n} for n in range(5)})
        with contextlib.suppress(pellucid.Busy):
            while len(kept) < 5000:
                kept.append(db.snapshot())
                table[0] = {"i": len(kept)}
                db.sync()
        with pytest.raises(pellucid.Busy, match=r"reader slots are taken.*stats\(\)"):
            db.snapshot()
        # A put, a delete, an append, a transaction and a new table ask for no snapshot; reads have more.
        table[1] = {"i": 10}
        del table[2]
        assert table.append({"i": 20}) == 5
        with db.transaction():
            table[3] = {"i": 30}
            assert table[3].i == 30
        db.table("new").append({"i": 40})
        db.sync()
        assert db.stats()["readers"] >= len(kept)
        assert db.check() == []
        assert table[3].i == 30
        assert len(table) == 5
        kept.clear()
        assert [table[n].i for n in (1, 3, 4, 5)] == [10, 30, 4, 20]
        assert 2 not in table
