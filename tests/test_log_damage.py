"""What does an opener make of a log that is damaged, stale or another's?"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pellucid
import pytest
from processes import Child, Raised
from values import plain

SEQUENCE, TAIL, ACTIVE, FOUND, WRITER, APPLIED, SYNCED = 64, 128, 136, 144, 192, 256, 320
SEGMENT_HEADS = 4096
GROUPS = 40_960
HEAD_WORDS = [0, 8, 16, SEQUENCE, TAIL, ACTIVE, FOUND, WRITER, APPLIED, SYNCED, 4096, 4104, 4160]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "damage.pel"


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-log")


def poke(path: Path, offset: int, data: bytes) -> None:
    with log_of(path).open("r+b") as file:
        file.seek(offset)
        file.write(data)


def word(path: Path, offset: int) -> int:
    with log_of(path).open("rb") as file:
        file.seek(offset)
        return int.from_bytes(file.read(8), "little")


def leave(path: Path, count: int = 30, first: int = 0, last: str = "") -> None:
    """Leave what a process leaves that dies after this many commits."""
    code = f"for n in range({first}, {first + count}): db[n] = {{'n': n, 'pad': 'x' * (n * 37 % 300)}}"
    with Child(path) as child:
        child(code)
        if last:
            child(last)
        child.kill()


def leave_unsynced(path: Path, count: int = 30, first: int = 0) -> None:
    """The same, where nothing had reached the disk for certain."""
    leave(path, count, first)
    poke(path, SYNCED, bytes(8))


def prefix_of(path: Path, mode: str = "w") -> int:
    """How many of the commits there are, which must be the first ones, whole."""
    with pellucid.open(path, mode) as db:  # type: ignore[call-overload]
        rows = list(db.items())
        assert [key for key, _ in rows] == list(range(len(rows)))
        assert all(row.n == key and row.pad == "x" * (key * 37 % 300) for key, row in rows)
        assert db.check() == []
        return len(rows)


def test_a_mark_of_found_groups_that_are_gone_parts_no_two_processes(path: Path) -> None:
    leave(path, last="db.sync()")
    poke(path, FOUND, b"\x01")
    with pellucid.open(path) as db:
        db["here"] = 1
        with Child(path) as other:
            assert other("db['here']") == 1
            other("db['there'] = 2")
            assert db["there"] == 2


def test_what_the_head_says_is_applied_and_synced_is_not_believed(path: Path) -> None:
    leave(path)
    for place in (APPLIED, SYNCED):
        poke(path, place, (1 << 62).to_bytes(8, "little"))
    with pellucid.open(path) as db:
        db["new"] = 1
        assert db.stats()["log_pending"] > 0
        assert word(path, SYNCED) < 1 << 62
        assert len(db) == 31


def test_a_lost_first_page_costs_no_commit(path: Path) -> None:
    leave(path)
    poke(path, 0, bytes(4096))
    assert prefix_of(path, "r") == 30


def test_an_older_file_beside_a_later_log_is_refused_and_both_stay(path: Path, tmp_path: Path) -> None:
    older = tmp_path / "older.pel"
    with Child(path) as child:
        child("db.update({n: 'x' for n in range(30)}); db.sync()")
        shutil.copy(path, older)
        # A bulk commit begins the segment anew that the older file would go on with. The other ends before.
        child("db.update({n: 'y' * 100 for n in range(100_000)}); db['last'] = 1")
        child.kill()
    newer = path.read_bytes()
    shutil.copy(older, path)
    for mode in ("r", "w", "c", "n"):
        with pytest.raises(pellucid.DatabaseCorrupt, match="later state"):
            pellucid.open(path, mode)  # type: ignore[call-overload]
    path.write_bytes(newer)
    with pellucid.open(path) as db:
        assert db["last"] == 1
        assert len(db) == 100_001
        assert db.check() == []
    # The older one by itself is a database; that it was copied while it was open, it says.
    told, rows = taken_warnings(older)
    assert len(told) == 1
    assert rows == dict.fromkeys(range(30), "x")


def taken_warnings(path: Path, mode: str = "r", **options: object) -> tuple[list[str], dict[object, object]]:
    """What is warned of when it is opened, and what there is."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pellucid.open(path, mode, **options) as db:  # type: ignore[call-overload]
            rows = {key: plain(row) for key, row in db.items()}
    assert all(warning.category is pellucid.LostCommitsWarning for warning in caught)
    return [str(warning.message) for warning in caught], rows


def test_a_copy_that_was_taken_without_the_log_says_what_it_lacks(path: Path, tmp_path: Path) -> None:
    early, late = tmp_path / "early.pel", tmp_path / "late.pel"
    with pellucid.open(path) as db:
        db["a"] = 1
        # Before any checkpoint, and behind one.
        shutil.copy(path, early)
        db.sync()
        version = db.stats()["version"]
        db["b"] = 2
        shutil.copy(path, late)
    for copy, rows, said in ((early, {}, ""), (late, {"a": 1}, f" {version},")):
        for _ in range(2):
            # As often as it is opened, until somebody commits into it: then it is a database of its own.
            told, found = taken_warnings(copy)
            assert found == rows
            assert len(told) == 1
            assert f"'{copy}' was copied or renamed while it was open, or its log was taken away" in told[0]
            assert f"up to version{said}" in told[0]
            told, found = taken_warnings(copy, untrusted=True)
            assert (len(told), found) == (1, rows)
        with pytest.warns(pellucid.LostCommitsWarning), pellucid.open(copy) as db:
            db["new"] = 3
        assert taken_warnings(copy) == ([], {**rows, "new": 3})
        assert [name for name in tmp_path.iterdir() if name.stem == copy.stem] == [copy]
    # What was copied is not concerned; nor is a backup.
    assert taken_warnings(path) == ([], {"a": 1, "b": 2})
    with pellucid.open(path) as db:
        db["c"] = 3
        db.backup(tmp_path / "backup.pel")
    assert taken_warnings(tmp_path / "backup.pel") == ([], {"a": 1, "b": 2, "c": 3})


def test_a_file_that_is_renamed_while_it_is_open_has_everything_once_it_is_closed(path: Path) -> None:
    new = path.with_name("new.pel")
    with Child(path) as child, Child(path) as other:
        child("db['a'] = 1; db.sync()")
        path.rename(new)
        child("db['b'] = 2")
        with pytest.raises(pellucid.Busy, match="under another name"):
            pellucid.open(new)
        child("db.close()")
        other("db['c'] = 3; db.close()")
    assert taken_warnings(new) == ([], {"a": 1, "b": 2, "c": 3})
    # What is left under the old name does no harm if it is given to the file again.
    log_of(path).rename(log_of(new))
    assert taken_warnings(new) == ([], {"a": 1, "b": 2, "c": 3})


def test_a_file_that_was_renamed_while_it_was_open_says_where_its_commits_are(path: Path) -> None:
    new = path.with_name("new.pel")
    with Child(path) as child:
        child("db['a'] = 1; db.sync()")
        path.rename(new)
        child("db['b'] = 2")
        child.kill()
    told, rows = taken_warnings(new, "w")
    assert rows == {"a": 1}
    assert len(told) == 1
    assert f"rename that to '{log_of(new)}', and open it again" in told[0]
    log_of(path).rename(log_of(new))
    assert taken_warnings(new, "w") == ([], {"a": 1, "b": 2})


@pytest.mark.parametrize("gone", ["-log", "-lock"])
def test_who_comes_where_a_file_beside_it_was_taken_away_is_told_who_has_the_database(
    path: Path, gone: str
) -> None:
    with Child(path) as child:
        child("db['a'] = 1")
        path.with_name(path.name + gone).unlink()
        for mode in ("r", "w", "c", "n"):
            with pytest.raises(
                pellucid.Busy, match=rf"without lock files, in PID {child.pid}\b.*close it there"
            ):
                pellucid.open(path, mode, timeout=0)  # type: ignore[call-overload]
        # It loses nothing.
        child("db['b'] = 2; db.sync(); db['c'] = 3; db.close()")
    assert taken_warnings(path) == ([], {"a": 1, "b": 2, "c": 3})


def test_whoever_has_its_log_is_not_told_that_it_lacks_one(path: Path) -> None:
    with pellucid.open(path) as db:
        db["a"] = 1
        db.sync()
        # Nothing is left to do at the close but to say so.
    assert taken_warnings(path) == ([], {"a": 1})
    with Child(path) as one, Child(path, mode="r") as other:
        one("db['b'] = 2; db.close()")
        other("db.close()")
    assert taken_warnings(path) == ([], {"a": 1, "b": 2})
    leave(path)
    # A death is none of it, whoever comes next, and how often.
    for mode in ("r", "w"):
        copy, log = path.with_name("copy.pel"), path.with_name("copy.pel-log")
        shutil.copy(path, copy)
        shutil.copy(log_of(path), log)
        told, rows = taken_warnings(copy, mode)
        assert (told, len(rows)) == ([], 32)
        assert taken_warnings(copy) == ([], rows)
    # Nor is one after which the log's first page did not get to the disk.
    poke(path, 0, bytes(4096))
    assert taken_warnings(path, "w")[0] == []
    assert taken_warnings(path, "w")[0] == []
    leave(path, 1, first=40)
    log_of(path).unlink()
    assert len(taken_warnings(path)[0]) == 1


def test_compact_leaves_no_mark(path: Path) -> None:
    with pellucid.open(path) as db:
        db["a"] = 1
        db.compact()
        db["b"] = 1
        db.compact()
    assert taken_warnings(path) == ([], {"a": 1, "b": 1})


def test_an_untrusted_file_with_a_log_beside_it_is_refused(path: Path) -> None:
    leave(path, 3)
    for log in (log_of(path).read_bytes(), b"", b"anything"):
        log_of(path).write_bytes(log)
        with pytest.raises(pellucid.DatabaseError, match=r"-log' may hold commits .* move it away") as told:
            pellucid.open(path, "r", untrusted=True)
        assert not isinstance(told.value, pellucid.DatabaseCorrupt)
        assert log_of(path).read_bytes() == log
    log_of(path).unlink()
    assert len(taken_warnings(path, untrusted=True)[0]) == 1


def test_a_reader_that_comes_behind_a_dead_bulk_commit_sees_it(path: Path) -> None:
    with pellucid.open(path) as db:
        db["before"] = 1
        db.sync()
    with Child(path) as writer, Child(path, mode="r") as reader:
        member = b"\x01"
        before = log_of(path).read_bytes()[:8192]
        writer("db.update({n: 'x' * 100 for n in range(100_000)})")
        writer.kill()
        # As if it had died between the commit of the tree and what the log says of it.
        poke(path, SEGMENT_HEADS, before[SEGMENT_HEADS : SEGMENT_HEADS + 128])
        for place in (SEQUENCE, TAIL, ACTIVE, APPLIED):
            poke(path, place, before[place : place + 8])
        poke(path, WRITER, member)
        with Child(path, mode="r") as late:
            assert late("len(db)") == 100_001
        assert reader("db['before']") == 1
        with pellucid.open(path) as db:
            db["after"] = 2
            assert len(db) == 100_002
            assert reader("len(db)") == 100_002


@pytest.mark.parametrize("writes", [True, False])
def test_a_bulk_commit_of_a_writer_that_died_in_it_is_there_or_not_but_never_later(
    path: Path, writes: bool
) -> None:
    # The engine's lock file says which version readers take; a commit says so there as its last step, behind
    # the sync.
    version = 8
    lock = path.with_name(path.name + "-lock")
    with pellucid.open(path) as db:
        db["before"] = 1
        db.sync()
        with Child(path) as writer:
            log, engine = log_of(path).read_bytes()[:8192], lock.read_bytes()[version : version + 8]
            writer("db.update({n: 'x' * 100 for n in range(100_000)})")
            # Dead with the engine's lock, as in the middle of that commit.
            writer("transaction = db.transaction(); transaction.__enter__()")
            writer("db.update({n: 'y' * 100 for n in range(100_000)})")
            writer.kill()
        member = word(path, WRITER)
        poke(path, SEGMENT_HEADS, log[SEGMENT_HEADS : SEGMENT_HEADS + 128])
        for place in (SEQUENCE, TAIL, ACTIVE, APPLIED):
            poke(path, place, log[place : place + 8])
        poke(path, WRITER, member.to_bytes(8, "little"))
        with lock.open("r+b") as file:
            file.seek(version)
            file.write(engine)
        # Until somebody takes the writer lock it is neither there nor not; a sync does.
        rows: dict[object, object] = {"before": 1, **dict.fromkeys(range(100_000), "x" * 100)}
        if writes:
            db["after"] = rows["after"] = 2
        else:
            db.sync()
        assert dict(db) == rows
        db.sync()
        assert dict(db) == rows
        assert db.check() == []
    with pellucid.open(path) as db:
        assert dict(db) == rows


@pytest.mark.parametrize("mode", ["r", "w", "c", "n"])
def test_what_is_no_log_of_this_database_is_told(path: Path, tmp_path: Path, mode: str) -> None:
    for name in (path, tmp_path / "other.pel"):
        with pellucid.open(name) as db:
            db["a"] = 1
    leave(tmp_path / "other.pel")
    other = (tmp_path / "other.pel-log").read_bytes()
    for wrong, words in (
        (other, "another database"),
        (b"pelluLOG" + bytes(50_000), "version|no log"),
        (os.urandom(50_000), "no log"),
        (os.urandom(100), "no log"),
        (b"notes", "no log"),
        (bytes(8) + b"notes", "no log"),
        (b"pelluLOG", "size"),
    ):
        log_of(path).write_bytes(wrong)
        with pytest.raises(pellucid.DatabaseCorrupt, match=words):
            pellucid.open(path, mode)  # type: ignore[call-overload]
        assert log_of(path).read_bytes() == wrong
    log_of(path).unlink()
    log_of(path).mkdir()
    with pytest.raises(OSError, match=r"is a directory.*move it away"):
        pellucid.open(path, mode)  # type: ignore[call-overload]
    log_of(path).rmdir()
    # What somebody can have left who died while making it.
    for begun in (b"", bytes(3), b"pellu", bytes(100), bytes(8) + b"\x01" + bytes(50_000)):
        log_of(path).write_bytes(begun)
        with pellucid.open(path, mode) as db:  # type: ignore[call-overload]
            assert dict(db) == ({} if mode == "n" else {"a": 1})
        assert not log_of(path).exists()


@pytest.mark.parametrize("is_renamed", [True, False])
def test_an_open_of_a_path_whose_file_went_elsewhere_harms_nobody(path: Path, is_renamed: bool) -> None:
    new = path.with_name("new.pel")
    with pellucid.open(path) as db:
        db.update({n: n for n in range(100)})
        db.sync()
        db["x"] = 1
        if is_renamed:
            path.rename(new)
        else:
            path.unlink()
        beside = sorted(file.name for file in path.parent.iterdir())
        for mode in ("c", "n"):
            with pytest.raises(pellucid.DatabaseCorrupt, match="that this process has open") as told:
                pellucid.open(path, mode)  # type: ignore[call-overload]
            assert str(log_of(path)) in str(told.value)
            with (
                Child() as other,
                pytest.raises(Raised, match=f"DatabaseCorrupt.*that PID {os.getpid()} has"),
            ):
                other(f"pellucid.open({str(path)!r}, {mode!r})")
            assert sorted(file.name for file in path.parent.iterdir()) == beside
        # Nor by a file that is another database's.
        other_path = path.with_name("other.pel")
        with pellucid.open(other_path) as other_db:
            other_db["other"] = 1
        other_path.rename(path)
        with pytest.raises(pellucid.DatabaseCorrupt, match="that this process has open"):
            pellucid.open(path)
        path.unlink()
        for key in ("z0", "z1"):
            db[key] = 3
            if is_renamed:
                db.sync()
            else:
                with pytest.raises(pellucid.DatabaseError, match="was deleted or replaced"):
                    db.sync()
        assert len(db) == 103
        assert db.check() == []
        if not is_renamed:
            with pytest.warns(pellucid.LostCommitsWarning, match="was deleted or replaced"):
                db.close()
    if is_renamed:
        with pellucid.open(new) as db:
            assert len(db) == 103
    # Nobody has it open any more.
    with pellucid.open(path, "n") as db:
        assert dict(db) == {}


def test_the_log_of_a_database_that_is_gone_says_what_it_holds_and_gives_way_to_a_new_one(path: Path) -> None:
    leave(path)
    path.rename(path.with_name("kept.pel"))
    log = log_of(path).read_bytes()
    told = r"last 3\d commits of that one, versions \d to 3\d: bring its file .* together again"
    with pytest.raises(pellucid.DatabaseCorrupt, match=told):
        pellucid.open(path)
    assert not path.exists()
    assert log_of(path).read_bytes() == log
    # A file that was there stays, as it is.
    path.touch()
    with pytest.raises(pellucid.DatabaseCorrupt, match=told):
        pellucid.open(path)
    assert path.read_bytes() == b""
    path.with_name("kept.pel").replace(path)
    assert prefix_of(path) == 30
    leave(path, 5, first=30)
    path.unlink()
    with pellucid.open(path, "n") as db:
        assert dict(db) == {}
        db["new"] = 1
    with pellucid.open(path) as db:
        assert dict(db) == {"new": 1}
    assert [file.name for file in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize("words", [b"notes", b"some more notes", bytes(8) + b"image" * 10_000])
def test_what_lies_beside_a_new_database_and_is_no_log_stays(path: Path, words: bytes) -> None:
    log_of(path).write_bytes(words)
    for _ in range(2):
        with pytest.raises(pellucid.DatabaseCorrupt, match=r"no log.* move it away"):
            pellucid.open(path)
        assert log_of(path).read_bytes() == words
    log_of(path).unlink()
    with pellucid.open(path) as db:
        db["a"] = 1


def test_a_log_of_another_version_is_told_with_both_numbers_and_stays(path: Path) -> None:
    leave(path)
    for found, error, words in (
        (3, pellucid.NewerFormat, "has format 3, but this build reads up to 2; upgrade"),
        (65_535, pellucid.NewerFormat, "has format 65535, but this build reads up to 2; upgrade"),
        # There was none before the first, and none will be so new.
        (0, pellucid.DatabaseCorrupt, "no log, or one whose first page is damaged"),
        (1 << 40, pellucid.DatabaseCorrupt, "no log, or one whose first page is damaged"),
    ):
        poke(path, 8, found.to_bytes(8, "little"))
        before = log_of(path).read_bytes()
        for mode in ("r", "w", "c", "n"):
            with pytest.raises(error, match=words) as told:
                pellucid.open(path, mode)  # type: ignore[call-overload]
            assert str(log_of(path)) in str(told.value)
            assert "restore a backup" not in str(told.value)
        assert log_of(path).read_bytes() == before
    poke(path, 8, (1).to_bytes(8, "little"))
    assert prefix_of(path) == 30


def test_a_torn_group_ends_what_is_taken_over_and_says_how_much_is_gone(path: Path) -> None:
    leave_unsynced(path)
    end = GROUPS + word(path, TAIL) - word(path, SEGMENT_HEADS)
    # The second half of the last group, as it is when the disk has not got to it.
    poke(path, end - 8, bytes(8))
    with pytest.warns(pellucid.LostCommitsWarning, match=r"the last 1 commits of its log are damaged"):
        assert prefix_of(path) == 29


def test_a_log_that_was_cut_off_loses_what_is_behind_and_says_so(path: Path) -> None:
    leave_unsynced(path)
    end = GROUPS + word(path, TAIL) - word(path, SEGMENT_HEADS)
    os.truncate(log_of(path), end - 1000)
    with pytest.warns(pellucid.LostCommitsWarning, match=r"the last \d+ commits of its log"):
        assert 0 < prefix_of(path) < 30
    # All that is left of the other is not even a head.
    leave_unsynced(path, 5, first=30)
    os.truncate(log_of(path), 40_000)
    with pytest.raises(pellucid.DatabaseCorrupt, match=r"not of the size .* move it away"):
        pellucid.open(path)


# Each in a process of its own: what reads damage must not be able to take the tests with it.
LOOK = """
import sys, warnings
import pellucid
warnings.simplefilter("ignore")
for path, mode in zip(sys.argv[1::2], sys.argv[2::2]):
    try:
        with pellucid.open(path, mode) as db:
            rows = list(db.items())
            assert [key for key, _ in rows] == list(range(len(rows))), path
            assert all(row.n == key and row.pad == "x" * (key * 37 % 300) for key, row in rows), path
            if mode == "w":
                db[len(rows)] = {"n": len(rows), "pad": "x" * (len(rows) * 37 % 300)}
            assert db.check() == []
        with pellucid.open(path) as db:
            assert len(db) == len(rows) + (mode == "w")
            print(len(rows))
    except pellucid.DatabaseCorrupt as error:
        print("told", error)
"""


def test_damage_at_random_places_leaves_a_prefix_or_is_told(path: Path, tmp_path: Path) -> None:
    # Another seed shows other damage; this one is for everybody the same.
    seed = 20_261_121
    dice = random.Random(seed)
    leave_unsynced(path)
    data, log = path.read_bytes(), log_of(path).read_bytes()
    end = GROUPS + word(path, TAIL) - word(path, SEGMENT_HEADS)
    arguments = []
    whole = []
    for number in range(150):
        bytes_of = bytearray(log)
        kind = number % 5
        at = dice.randrange(GROUPS, end) if dice.random() < 0.6 else dice.randrange(GROUPS)
        if kind == 0:
            del bytes_of[at:]
        elif kind == 1:
            start = at // 4096 * 4096
            bytes_of[start : start + 4096] = bytes(len(bytes_of[start : start + 4096]))
        elif kind == 2:
            at = dice.choice(HEAD_WORDS)
            bytes_of[at : at + 8] = dice.randbytes(8)
        else:
            bytes_of[at] ^= 1 << dice.randrange(8)
        # A flipped bit behind the head costs nothing of what stands before it.
        whole.append(kind > 2 and at >= GROUPS)
        copy = tmp_path / f"copy{number}"
        copy.write_bytes(data)
        log_of(copy).write_bytes(bytes_of)
        arguments += [str(copy), dice.choice("rw")]
    command = [sys.executable, "-c", LOOK, *arguments]
    looked = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert looked.returncode == 0, f"seed {seed}: {looked.returncode} {looked.stderr}"
    lines = looked.stdout.splitlines()
    assert len(lines) == len(whole), f"seed {seed}"
    told = [number for number, said in enumerate(lines) if said.startswith("told") and whole[number]]
    assert told == [], f"seed {seed}: {lines}"
