"""What had reached the disk and is damaged is told each time, and what is whole of it can be saved."""

from __future__ import annotations

import random
import shutil
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pellucid
import pytest
from processes import Child

if TYPE_CHECKING:
    from collections.abc import Callable

TAIL, SYNCED, SEGMENT_HEADS, RECORDS = 128, 320, 4096, 40_960
LARGE = b"\xabPHOTO" * 40_000
COUNT = 40


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rescue.pel"


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-log")


def leave(path: Path, code: str, **options: object) -> None:
    """Leave what a process leaves that dies after this code."""
    with Child(path, **options) as child:
        child(code)
        child.kill()


def leave_synced(path: Path) -> None:
    """Leave a log of commits that had all reached the disk."""
    first = "t = db.table('t'); t['photo'] = b'\\xabPHOTO' * 40_000\n"
    rest = f"for n in range({COUNT}): t[n] = {{'n': n, 'name': f'MARK{{n}}.'}}\n"
    leave(path, first + rest, durability="full")


def opened(path: Path, mode: str) -> tuple[list[str], dict[object, object]]:
    """What an open warns of, and the rows that can be read."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with pellucid.open(path, mode) as db:  # type: ignore[call-overload]
            table = db.table("t")
            rows: dict[object, object] = {}
            for key in table:
                try:
                    row: Any = table[key]
                    rows[key] = bytes(row) if isinstance(row, bytes) else tuple(row.values())
                except (pellucid.DatabaseCorrupt, pellucid.CorruptRecord):
                    rows[key] = None
    assert all(warning.category is pellucid.LostCommitsWarning for warning in caught)
    return [str(warning.message) for warning in caught], rows


def whole() -> dict[object, object]:
    return {"photo": LARGE, **{n: (n, f"MARK{n}.") for n in range(COUNT)}}


def flip(path: Path, at: int, bit: int = 1) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= bit
    with path.open("r+b") as file:
        file.write(data)


def refused(path: Path) -> str:
    """The error of each mode that writes, which leaves both files as they are."""
    before = path.read_bytes(), log_of(path).read_bytes()
    for mode in ("w", "c", "n", "w"):
        with pytest.raises(pellucid.DatabaseCorrupt, match=r"nothing was changed") as told:
            pellucid.open(path, mode)  # type: ignore[call-overload]
    assert (path.read_bytes(), log_of(path).read_bytes()) == before
    return str(told.value)


def saved(path: Path, target: Path) -> dict[object, object]:
    """What a backup of what is whole has, which is a database like any other."""
    with pytest.warns(pellucid.LostCommitsWarning):
        db = pellucid.open(path, "r")
    with db:
        assert any(str(log_of(path)) in finding for finding in db.check())
        db.backup(target)
    told, rows = opened(target, "w")
    assert told == []
    return rows


def test_a_damaged_large_value_costs_that_value_alone(path: Path, tmp_path: Path) -> None:
    leave_synced(path)
    flip(path, path.read_bytes().find(LARGE[:600]) + 100_000)
    assert "the large value of a row, 240006 bytes" in refused(path)
    log = log_of(path).read_bytes()
    rows = {**whole(), "photo": None}
    for _ in range(2):
        told, found = opened(path, "r")
        assert len(told) == 1
        assert "the large value of a row" in told[0]
        assert "backup(" in told[0]
        assert found == rows
    assert log_of(path).read_bytes() == log
    copy = tmp_path / "saved.pel"
    assert saved(path, copy) == rows
    with pellucid.open(copy) as db:
        table = db.table("t")
        assert [key for key, _ in table.unreadable()] == ["photo"]
        table["photo"] = LARGE
        assert db.check() == []
    refused(path)


def place_of(log: Path, text: bytes) -> int:
    return log.read_bytes().find(text)


def start_of(log: Path, text: bytes) -> int:
    """Where the WAL record that has this text begins."""
    data = log.read_bytes()
    at = RECORDS
    while True:
        size = int.from_bytes(data[at : at + 4], "little")
        if text in data[at : at + size]:
            return at
        at += size


PLACES: dict[str, tuple[Callable[[Path], int], set[object]]] = {
    "a value": (lambda log: place_of(log, b"MARK10."), {10}),
    "a size": (lambda log: start_of(log, b"MARK10."), {10}),
    "a count": (lambda log: start_of(log, b"MARK10.") + 4, set()),
    "a sequence number": (lambda log: start_of(log, b"MARK10.") + 8, {10}),
    "a check": (lambda log: start_of(log, b"MARK11.") - 8, set()),
    "the last": (lambda log: place_of(log, b"MARK%d." % (COUNT - 1)), {COUNT - 1}),
    "the head of a segment": (lambda _: SEGMENT_HEADS + 8, set()),
    "the begin of a segment": (lambda _: SEGMENT_HEADS, set()),
}


@pytest.mark.parametrize("what", PLACES)
def test_a_flipped_bit_in_the_log_costs_one_row_at_most(path: Path, tmp_path: Path, what: str) -> None:
    leave_synced(path)
    find, lost = PLACES[what]
    flip(log_of(path), find(log_of(path)))
    assert f"'{log_of(path)}' is damaged" in refused(path)
    for _ in range(2):
        told, found = opened(path, "r")
        assert len(told) == 1
        missing = whole().keys() - found.keys()
        assert missing <= (lost or {10})
        assert found == {key: row for key, row in whole().items() if key not in missing}
        if not lost and what != "a count":
            assert missing == set()
    assert saved(path, tmp_path / "saved.pel") == found
    refused(path)


def test_any_flipped_bit_of_what_was_synced_is_told_twice(path: Path, tmp_path: Path) -> None:
    seed = 20_261_128
    dice = random.Random(seed)
    leave_synced(path)
    log = log_of(path).read_bytes()
    head = log[:RECORDS]
    end = RECORDS + int.from_bytes(head[TAIL : TAIL + 8], "little")
    end -= int.from_bytes(head[SEGMENT_HEADS : SEGMENT_HEADS + 8], "little")
    assert head[TAIL : TAIL + 8] == head[SYNCED : SYNCED + 8]
    copy = tmp_path / "copy.pel"
    # Before that is the catalog, whose names may be damaged.
    begin = start_of(log_of(path), b"MARK1.")
    for number in range(60):
        at, bit = dice.randrange(begin if number % 4 else RECORDS, end), 1 << dice.randrange(8)
        shutil.copy(path, copy)
        log_of(copy).write_bytes(log)
        flip(log_of(copy), at, bit)
        where = f"round {number} of seed {seed}: bit {bit} of byte {at}"
        for _ in range(2):
            told, found = opened(copy, "r")
            assert len(told) == 1, where
            if at >= begin:
                assert len(whole().keys() - found.keys()) <= 1, where
                assert found == {key: row for key, row in whole().items() if key in found}, where
            with pytest.raises(pellucid.DatabaseCorrupt):
                pellucid.open(copy)


def test_a_log_is_kept_beside_a_file_whose_catalog_cannot_be_read(path: Path) -> None:
    leave_synced(path)
    data, log = path.read_bytes(), log_of(path).read_bytes()
    told = []
    # The name of the catalog's first entry is this byte, wherever that lies.
    for at in (place for place, byte in enumerate(data) if byte == ord("h")):
        for mode in ("r", "w"):
            path.write_bytes(data)
            log_of(path).write_bytes(log)
            flip(path, at)
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    pellucid.open(path, mode).close()  # type: ignore[call-overload]
            except pellucid.DatabaseCorrupt as error:
                told.append(str(error))
                assert log_of(path).read_bytes()[RECORDS:] == log[RECORDS:]
    assert any("the header is missing" in one for one in told)


@pytest.mark.parametrize("mark", [b"MARK1.", b"MARK20.", b"MARK39."])
def test_a_log_that_was_cut_has_the_commits_before_that(path: Path, tmp_path: Path, mark: bytes) -> None:
    leave_synced(path)
    cut = start_of(log_of(path), mark)
    with log_of(path).open("r+b") as file:
        file.truncate(cut)
    refused(path)
    first_lost = int(mark[4:-1])
    for _ in range(2):
        told, found = opened(path, "r")
        assert f"'{log_of(path)}' is damaged, though it had reached the disk" in told[0]
        assert found == {key: row for key, row in whole().items() if key == "photo" or key < first_lost}
    assert log_of(path).stat().st_size == cut
    assert saved(path, tmp_path / "saved.pel") == found


@pytest.mark.parametrize("synced", [1 << 24, (1 << 33) + 1, 1 << 60, 2**64 - 1])
def test_a_head_that_says_that_too_much_was_synced_is_damage(path: Path, tmp_path: Path, synced: int) -> None:
    leave_synced(path)
    with log_of(path).open("r+b") as file:
        for at in (TAIL, SYNCED):
            file.seek(at)
            file.write(synced.to_bytes(8, "little"))
    assert f"'{log_of(path)}' is damaged" in refused(path)
    for _ in range(2):
        told, found = opened(path, "r")
        assert f"'{log_of(path)}' is damaged, though it had reached the disk" in told[0]
        assert found == whole()
    assert saved(path, tmp_path / "saved.pel") == whole()


def test_both_segments_are_mended(path: Path, tmp_path: Path) -> None:
    limit = pellucid._native._testing.limit_log  # type: ignore[attr-defined]
    code = (
        "import pellucid; pellucid._native._testing.limit_log(1 << 16)\n"
        f"db = pellucid.open({str(path)!r}, durability='full', auto_compact=False); t = db.table('t')\n"
        "for n in range(1500): t[n] = {'n': n, 'name': f'MARK{n}.'}\n"
        "import os; os.kill(os.getpid(), 9)"
    )
    with Child() as child, pytest.raises(Exception):  # noqa: B017, PT011
        child(code)
    data = log_of(path).read_bytes()
    last = data.find(b"MARK1499.")
    assert last > 0
    flip(log_of(path), last)
    limit(0)
    refused(path)
    told, found = opened(path, "r")
    assert len(told) == 1
    assert found.keys() == set(range(1499))
    assert saved(path, tmp_path / "saved.pel") == found


def test_a_refused_open_cuts_nothing_that_a_dead_process_has_appended(path: Path, tmp_path: Path) -> None:
    leave_synced(path)
    flip(log_of(path), place_of(log_of(path), b"MARK10."))
    # As a checkpoint leaves it whose process dies before it commits.
    with path.open("ab") as file:
        file.write(b"\xab" * 4096 * 3)
    refused(path)
    data = path.read_bytes()
    told, found = opened(path, "r")
    assert len(told) == 1
    assert found == {key: row for key, row in whole().items() if key != 10}
    assert path.read_bytes() == data
    # Nor beside a log of another one.
    other = tmp_path / "other.pel"
    leave_synced(other)
    shutil.copy(log_of(other), log_of(path))
    for mode in ("r", "w", "c"):
        with pytest.raises(pellucid.DatabaseCorrupt, match="another database"):
            pellucid.open(path, mode)  # type: ignore[call-overload]
        assert path.read_bytes() == data


def test_commits_that_never_reached_the_disk_are_told_until_a_writer_hears_it(path: Path) -> None:
    leave(path, "for n in range(30): db[n] = {'n': n}")
    log = log_of(path).read_bytes()
    end = RECORDS + int.from_bytes(log[TAIL : TAIL + 8], "little")
    end -= int.from_bytes(log[SEGMENT_HEADS : SEGMENT_HEADS + 8], "little")
    with log_of(path).open("r+b") as file:
        # As a disk that has the log up to the commit before; nothing was synced.
        file.seek(SYNCED)
        file.write(bytes(8))
        file.seek(end - 8)
        file.write(bytes(8))
    for mode in ("r", "r", "w"):
        with pytest.warns(pellucid.LostCommitsWarning, match="the last 1 commits"):
            db = pellucid.open(path, mode)  # type: ignore[call-overload]
        with db:
            assert len(db) == 29
    for mode in ("r", "w"):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pellucid.open(path, mode) as db:  # type: ignore[call-overload]
                assert len(db) == 29
    assert not log_of(path).exists()


def test_what_a_reader_found_is_damage_still_when_a_bit_flips_after_it(path: Path) -> None:
    leave_synced(path)
    with Child(path, mode="r") as reader:
        assert reader("len(db.table('t'))") == COUNT + 1
        reader.kill()
    flip(log_of(path), place_of(log_of(path), b"MARK10."))
    refused(path)


def test_a_log_that_is_older_than_its_file_is_told_until_a_commit(path: Path, tmp_path: Path) -> None:
    with pellucid.open(path) as db:
        db["v"] = {"i": 0}
    older = tmp_path / "older"
    with Child(path) as child:
        child("db['v'] = {'i': 1}; db.sync(); db['v'] = {'i': 2}")
        shutil.copy(log_of(path), older)
        child("db.sync(); db['v'] = {'i': 3}; db.sync(); db['v'] = {'i': 4}")
        child.kill()
    shutil.copy(older, log_of(path))
    for mode in ("r", "r", "w", "c"):
        with pytest.warns(
            pellucid.LostCommitsWarning, match="what was committed after that is not there"
        ) as told:
            db = pellucid.open(path, mode)  # type: ignore[call-overload]
        assert f"'{path}'" in str(told[0].message)
        assert f"'{log_of(path)}'" in str(told[0].message)
        with db:
            assert db["v"].i == 3
    with pytest.warns(pellucid.LostCommitsWarning), pellucid.open(path) as db:
        db["v"] = {"i": 5}
    with pellucid.open(path) as db:
        assert db["v"].i == 5


@pytest.mark.parametrize("size", [1, 16, 31])
def test_a_file_that_was_cut_off_to_a_few_bytes_is_not_made_anew(path: Path, size: int) -> None:
    with pellucid.open(path) as db:
        db.update({i: {"i": i} for i in range(100)})
    data = path.read_bytes()[:size]
    path.write_bytes(data)
    for mode in ("r", "w", "c"):
        with pytest.raises(pellucid.NotADatabase, match="cut off"):
            pellucid.open(path, mode)  # type: ignore[call-overload]
        assert path.read_bytes() == data
    with pellucid.open(path, "n") as db:
        assert len(db) == 0
    path.write_bytes(b"")
    with pellucid.open(path) as db:
        assert len(db) == 0


def record_of_closed(db: Any) -> object:
    with db.snapshot() as now:
        return now["a"]


def used(iterator: Any) -> object:
    next(iterator)
    return iterator


HELD: dict[str, Callable[[Any], object]] = {
    "a snapshot": lambda db: db.snapshot(),
    "an iterator": lambda db: used(iter(db.items())),
    "a record of a closed snapshot": record_of_closed,
    "a buffer": lambda db: db.buffer("big"),
    "a file": lambda db: db.open("big"),
}


@pytest.mark.parametrize("what", HELD)
def test_close_writes_everything_into_the_file_whatever_is_held(
    path: Path, tmp_path: Path, what: str
) -> None:
    db = pellucid.open(path)
    db["a"] = {"n": 1}
    db["big"] = b"x" * 200_000
    held = HELD[what](db)
    db["later"] = 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        db.close()
    copy = tmp_path / "copy.pel"
    shutil.copy(path, copy)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pellucid.open(copy, "r") as other:
            assert set(other) == {"a", "big", "later"}
    del held
    assert not log_of(path).exists()
