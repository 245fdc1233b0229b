"""Does a full disk or a kill in a load, a compaction or a training cost anything that was stored?

The calls that write fail, or end their process, after some of them. What had been acknowledged is there. The
message about a full disk says what to do, and the same succeeds when there is room.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import faults
import pellucid
import pytest
from pellucid import F
from processes import Child, Raised

AFTER = [0, 1, 2, 4, 8, 16, 40]
"""So many calls succeed before the disk is full."""

SETUP = """
import hashlib, random
from pellucid._native import _testing
_testing.limit_log(1 << 16)
_testing.limit_sorts(1 << 18)
dice, kept = random.Random(4), {}

def rows(count, word="word"):
    # Rows with another word are best packed with another dictionary.
    keys = (f"{dice.getrandbits(64):016x}" for _ in range(count))
    text = lambda: hashlib.sha512(word.encode()).hexdigest() + str(dice.randrange(1000))
    return {key: {"n": n % 97, "text": text()} for n, key in enumerate(keys)}

def opened(path, auto_compact=False):
    global db, t, path_of
    path_of = path
    db = pellucid.open(path, auto_compact=auto_compact)
    t = db.table("t")

def update(table, some):
    table.update(some)
    kept.update(some)

def thin():
    gone = dice.sample(sorted(kept), len(kept) * 3 // 4)
    with db.transaction():
        for key in gone:
            del t[key]
    for key in gone:
        del kept[key]

def whole():
    # Nothing that was stored is missing or another, and the file is sound.
    assert {key: row.to_dict() for key, row in t.items()} == kept
    assert list(t) == sorted(kept)
    found = t.where(pellucid.F.n == 13).keys()
    assert sorted(found) == sorted(key for key, row in kept.items() if row["n"] == 13)
    assert db.check() == []
    return sorted(os.listdir(os.path.dirname(path_of)))
"""


@pytest.fixture
def child(path: Path, faulty: str) -> Iterator[Child]:
    """A process with a database, in which the system fails where it is told to."""
    with Child(preload=faulty) as process:
        process(faults.PRELUDE)
        process(SETUP)
        process(f"opened({str(path)!r})")
        yield process


def meets_full_disk(child: Child, suffix: str, after: int, code: str) -> bool:
    """Run code while the disk under some files is full after so many writes; whether that stopped it.

    If it did, the message says what to do. Then there is room again.
    """
    child(f"fault('write', {suffix!r}, errno.ENOSPC, {after})")
    try:
        child(code)
    except Raised as error:
        told = error.args
    else:
        told = ()
    child(f"fault('write', {suffix!r}, COUNT)")
    if told:
        name, message = told
        assert name == "DiskFull"
        assert "nothing of this was written: make room, and try again" in message
    return bool(told)


def check_whole(child: Child, path: Path) -> None:
    """Nothing that was stored is missing, now and in another process after a kill or a close."""
    names = {path.name, f"{path.name}-log", f"{path.name}-lock"}
    assert set(child("whole()")) <= names
    child("db.close()")
    child(f"opened({str(path)!r})")
    assert set(child("whole()")) <= names


@pytest.mark.parametrize("suffix", [" (deleted)", ".pel"])
@pytest.mark.parametrize("compress", [False, True])
def test_a_sorted_load_is_stored_as_a_whole_or_not_at_all(
    path: Path, child: Child, suffix: str, compress: bool
) -> None:
    child(f"t = db.table('t', compress={compress}); t.create_index('n', pellucid.F.n)")
    child("update(t, rows(300)); db.sync()")
    stopped = 0
    for after in AFTER:
        # Other words each time, so that dictionaries are trained meanwhile.
        child(f"more = rows(4_000, 'word {after}')")
        if meets_full_disk(child, suffix, after, "t.update(more)"):
            stopped += 1
            child("whole()")
            child("t.update(more)")
        child("kept.update(more)")
        child("whole()")
    assert stopped >= 4
    assert not compress or child("t.stats()['dictionaries']") > 2
    check_whole(child, path)


@pytest.mark.parametrize("compress", [False, True])
def test_an_online_compaction_leaves_every_row(path: Path, child: Child, compress: bool) -> None:
    child(f"t = db.table('t', compress={compress}); t.create_index('n', pellucid.F.n)")
    stopped = 0
    for after in AFTER:
        # Half-empty leaves all over the file, which are filled first.
        child("[(update(t, rows(1_500)), db.sync()) for _ in range(4)]; thin(); db.sync()")
        if meets_full_disk(child, ".pel", after, "db.compact(online=True)"):
            stopped += 1
        child("whole()")
        child("before = db.stats()['pages']; db.compact(online=True); db.sync()")
        assert child("db.stats()['free_size'] < db.stats()['live_size'] / 3 + 400_000")
        child("whole()")
    assert stopped >= 4
    check_whole(child, path)


def test_an_automatic_compaction_leaves_every_row_and_is_tried_again(path: Path, child: Child) -> None:
    child("db.close(); _testing.rest_soon(True); opened(path_of, auto_compact=True)")
    child("t.create_index('n', pellucid.F.n)")
    for after in AFTER:
        # Beside a snapshot no compaction ends before its fault is set.
        child("held = db.snapshot()")
        child("[(update(t, rows(1_500)), db.sync()) for _ in range(4)]; thin(); db.sync()")
        child(f"fault('write', '.pel', errno.ENOSPC, {after}); before = fault_count('write')")
        child("pages = db.stats()['pages']; held.close()")
        faults.until(lambda after=after: child("fault_count('write') - before") > after + 2, "the compaction")
        child("whole()")
        # The log has room for what is stored meanwhile.
        child("update(t, {'meanwhile': {'n': 13, 'text': 'x'}})")
        child("whole(); fault('write', '.pel', COUNT)")
        faults.until(lambda: child("db.stats()['pages'] < pages * 0.7"), "a shorter file")
        child("whole()")
    check_whole(child, path)


WORK = {
    "load": "t.update(rows(3_000, 'other'))",
    "compaction": "db.compact(online=True)",
    "compaction by itself": (
        "db.close(); _testing.rest_soon(True); opened(path_of, True); db['x'] = 1; time.sleep(0.3)"
    ),
    "drop": "db.drop_table('t'); db.sync(); db.close()",
}
"""What a process is killed in."""

CALLS = [("write", ".pel"), ("fdatasync", ".pel"), ("written", ".pel"), ("write", " (deleted)")]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("work", WORK)
def test_a_process_that_is_killed_at_any_call_leaves_all_or_nothing(
    path: Path, faulty: str, work: str, compress: bool
) -> None:
    with Child() as maker:
        maker(SETUP)
        maker(f"opened({str(path)!r}); t = db.table('t', compress={compress})")
        maker("t.create_index('n', pellucid.F.n)")
        maker("[(update(t, rows(1_000)), db.sync()) for _ in range(4)]; thin()")
        kept = maker("(db.close(), kept)[1]")
    before, killed = path.read_bytes(), 0
    for call, suffix in CALLS:
        for after in (0, 1, 3, 9):
            path.write_bytes(before)
            with Child(preload=faulty) as child:
                child(faults.PRELUDE)
                child(SETUP)
                child(f"opened({str(path)!r}); dice.seed(7)")
                child(f"fault({call!r}, {suffix!r}, DIE, {after})")
                child.send(WORK[work])
                assert child.process.stdout is not None
                killed += child.process.stdout.readline() == ""
                child.kill()
            with pellucid.open(path) as db:
                found = {key: row.to_dict() for key, row in db.table("t").items()}
                others = [row for key, row in found.items() if key not in kept]
                assert len(others) in ((0, 3_000) if work == "load" else (0,))
                assert {key: found.get(key) for key in kept} == kept or (work == "drop" and not found)
                assert not found or len(list(db.table("t").where(F.n >= 0))) == len(found)
                assert db.check() == []
            assert list(path.parent.iterdir()) == [path]
    assert killed >= 6
