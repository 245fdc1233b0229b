"""What becomes of damaged and of forged database files?"""

from __future__ import annotations

import contextlib
import os
import random
import re
import secrets
import signal
import struct
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pellucid
import pytest
from crash import copies, flips, images
from pellucid import F
from processes import Child

FLIPS, OTHERS, COPIES = 200, 20, 150


def test_no_flip_ends_a_process_or_passes_for_sound(tmp_path: Path) -> None:
    made = images.images(tmp_path)
    tally = flips.Tally()
    for kind in flips.KINDS:
        count = FLIPS if kind == "bit" else OTHERS
        one = partial(flips.run, made=made, kind=kind)
        # What fails says with which seed, and keeps its files.
        tally.add(flips.run_all(range(count), one, tmp_path, 2, float("inf")))
    assert tally.flips == FLIPS + OTHERS * (len(flips.KINDS) - 1)
    assert list(tmp_path.iterdir()) == []
    told = " ".join(tally.outcomes)
    wanted = (
        "read: sound",
        "found by check",
        "refused",
        "write: sound",
        "warned of lost commits",
        "again: sound",
    )
    assert all(word in told for word in wanted)


def test_no_short_or_mixed_copy_passes_for_sound_or_loses_what_is_whole(tmp_path: Path) -> None:
    cases = copies.cases(tmp_path, ["indexes", "large values"])
    chosen = random.Random(1).sample(range(len(cases)), COPIES)
    tally = flips.run_all(chosen, partial(copies.run, cases=cases), tmp_path, 2, float("inf"))
    assert tally.flips == COPIES
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", ["dies", "notices nothing"])
def test_a_flip_that_fails_says_how_to_do_it_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    def use(_files: flips.Files, _expected: flips.Expected) -> list[str]:
        if how == "dies":
            os.kill(os.getpid(), signal.SIGTERM)
        raise flips.UnnoticedError

    monkeypatch.setattr(flips, "use_all", use)
    one = partial(flips.run, made=images.images(tmp_path, ["history"]))
    with pytest.raises(flips.FailedFlipError, match="SIGTERM" if how == "dies" else "Unnoticed") as failed:
        flips.run_all([7], one, tmp_path, 1, float("inf"))
    assert failed.value.seed == 7
    assert (tmp_path / "7" / "used.pel").exists() == (how == "notices nothing")


@pytest.mark.parametrize(
    ("what", "contents", "whole", "told", "content"),
    [
        ("never", [1, 2, 3], 0, ["warned"], 7),
        ("after 0 commits, of which 1 were whole", [1, 2, 3], 1, ["warned"], 1),
        ("nobody is warned", [1, 2, 3], 0, [], 2),
    ],
)
def test_what_is_neither_told_nor_as_it_was_is_noticed(
    what: str, contents: list[int], whole: int, told: list[str], content: int
) -> None:
    with pytest.raises(flips.UnnoticedError, match=what):
        flips.Expected(contents, whole).judge(content, told)


def test_the_same_seed_does_the_same_damage() -> None:
    data, log = (bytes(10) + b"\x08").ljust(4096) + os.urandom(100 * 4096), os.urandom(100_000)
    image = images.Image("any", data, log, [0])
    for kind in flips.KINDS:
        one, other = (flips.damage_of(random.Random(5), image, kind) for _ in range(2))
        assert one == other
        assert one.done_to(log if one.is_log else data) != (log if one.is_log else data)


def update_and_go_on(db: pellucid.Database, rows: dict[int, Any], more: dict[str, Any]) -> None:
    """Update rows within a transaction, of which one is damaged, and then set others."""
    with db.transaction():
        db["before"] = 1
        with pytest.raises(pellucid.DatabaseCorrupt, match="row"):
            db.update(rows)
        # What was done before is there, and nothing of the update.
        assert "before" in db
        assert len(db) == 501
        assert all(db[n] == f"the value of row {n}" for n in rows if n != 250)
        db.update(more)


def test_a_large_update_over_a_damaged_row_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "data.pel"
    marked = "the value of row 250"
    rows = {n: f"the value of row {n}" for n in range(500)}
    with pellucid.open(path) as db:
        db.update(rows)
    data = bytearray(path.read_bytes())
    place = data.index(marked.encode())
    assert data.count(marked.encode()) == 1
    # The head of a cell that no version has written.
    data[place - 2 : place] = b"\xe1\x00"
    path.write_bytes(data)
    with pellucid.open(path) as db:
        new = {n: {"n": n} for n in random.Random(3).sample(range(500), 500)}
        with pytest.raises(pellucid.DatabaseCorrupt, match="row"):
            db.update(new)
        assert db[249] == rows[249]
        for more in ({"after": 1}, {}):
            with pytest.raises(pellucid.DatabaseError, match="only be rolled back"):
                update_and_go_on(db, new, more)
        assert "after" not in db
        del new[250]
        db.update(new)
        assert all(db[n] == row for n, row in new.items())


@pytest.mark.parametrize("how", ["copy.csv", "copy.jsonl", "copy.pel"])
def test_a_copy_of_a_damaged_file_fails_and_names_that_file(tmp_path: Path, how: str) -> None:
    path, target = tmp_path / "data.pel", tmp_path / how
    with pellucid.open(path) as db:
        db.update({n: {"n": n, "text": "y" * 60} for n in range(20_000)})
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(bytes(4096))
    with pellucid.open(path) as db:
        copy = db.backup if how == "copy.pel" else partial(pellucid.export_to, db)
        with pytest.raises(pellucid.DatabaseCorrupt) as failed:
            copy(target)
    assert f"'{path}' is damaged at " in str(failed.value)
    assert [each.name for each in tmp_path.iterdir() if "copy" in each.name] == []


# Replay into a damaged file


def left_behind(path: Path) -> None:
    """A database of several pages, with a log in which a dead process has left changes of each."""

    def work() -> None:
        with pellucid.open(path) as db:
            db.update({n: {"a": n} for n in range(2000)})
        db = pellucid.open(path)
        for n in range(0, 2000, 20):
            db[n].a = -1
        os.kill(os.getpid(), signal.SIGKILL)

    images.forked(work)


def leaf_pages(data: bytes) -> list[int]:
    """All leaves with several rows."""
    heads = (data[at + 10 : at + 14] for at in range(0, len(data), 4096))
    fill = [struct.unpack("<HH", head) for head in heads]
    return [number for number, (kind, lower) in enumerate(fill) if kind == 2 and lower > 60]


WAYS: dict[str, Callable[[pellucid.Database], object]] = {
    "list": list,
    "reversed": lambda db: list(reversed(db)),
    "values": lambda db: list(db.values()),
    "items": lambda db: list(db.items()),
    "range": lambda db: list(db.range(start=10)),
    "sum": lambda db: db.sum("a"),
    "column": lambda db: db.column("s"),
    "count": lambda db: db.where(F.a >= 0).count(),
    "group_by": lambda db: db.group_by("a").agg(n=pellucid.count()).to_list(),
    "to_dicts": lambda db: db.to_dicts(),
    "to_arrow": lambda db: db.to_arrow(),
    "backup": lambda db: db.backup(f"{db.path}.copy"),
    "compact": lambda db: db.compact(),
}


@pytest.mark.parametrize("byte", [b"\x00", b"\x55", b"\xff"])
def test_no_walk_ends_silently_at_a_damaged_page(tmp_path: Path, byte: bytes) -> None:
    path = tmp_path / "a.pel"
    with pellucid.open(path) as db:
        db.update({n: {"a": n, "s": f"text {n:06}"} for n in range(4000)})
    data = bytearray(path.read_bytes())
    page = data.find(b"text 002000") // 4096
    data[page * 4096 : (page + 1) * 4096] = byte * 4096
    path.write_bytes(data)
    with pellucid.open(path) as db:
        for name, way in WAYS.items():
            with pytest.raises(
                pellucid.DatabaseCorrupt, match=f"is damaged at page {page}: it is not the leaf"
            ):
                pytest.fail(f"{name}: {way(db)}")
        # What lies on other pages is there: one by one, and in ranges on either side.
        found = {}
        for n in range(4000):
            with contextlib.suppress(pellucid.DatabaseCorrupt):
                found[n] = db[n].a
        assert all(n == a for n, a in found.items())
        lost = sorted(set(range(4000)) - found.keys())
        assert 0 < len(lost) < 200
        assert 2000 in lost
        assert [row.a for row in db.range(start=lost[-1] + 1)] == list(range(lost[-1] + 1, 4000))
        assert len(db) - len(found) == len(lost)
    assert not (tmp_path / "a.pel.copy").exists()


@pytest.mark.parametrize("kept", [0, 12, 16, 32] * 3)
def test_a_leaf_of_garbage_ends_no_process(tmp_path: Path, kept: int) -> None:
    path = tmp_path / "a.pel"
    with pellucid.open(path) as db:
        db.update({n: {"a": n, "s": f"text {n:06}"} for n in range(4000)})
    data = bytearray(path.read_bytes())
    place = data.find(b"text 002000") // 4096 * 4096
    # Behind its number and its kind, or where its entries begin and end, or the first of their offsets.
    data[place + kept : place + 4096] = secrets.token_bytes(4096 - kept)
    path.write_bytes(data)

    def work() -> None:
        with pellucid.open(path, "r") as db:
            for name, way in WAYS.items():
                if name in ("backup", "compact"):
                    continue
                with pytest.raises((pellucid.DatabaseCorrupt, pellucid.CorruptRecord)):
                    way(db)
            with pytest.raises((pellucid.DatabaseCorrupt, pellucid.CorruptRecord, KeyError)):
                _ = db[2000].a

    assert images.forked(work) == 0


def flip(path: Path, at: int) -> None:
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)
        file.seek(at)
        file.write(bytes([byte[0] ^ 8]))


def test_a_log_is_not_written_into_a_file_with_a_damaged_page(tmp_path: Path) -> None:
    path = tmp_path / "a.pel"
    left_behind(path)
    sound = path.read_bytes()
    page = leaf_pages(sound)[0]
    damaged = bytearray(sound)
    damaged[page * 4096 + 12] ^= 8
    # Pages of a transaction whose process has died before it committed them.
    damaged += b"\xab" * 4096 * 2
    path.write_bytes(damaged)
    with pytest.raises(pellucid.DatabaseCorrupt) as told:
        pellucid.open(path)
    message = str(told.value)
    assert f"is damaged at page {page}: " in message
    assert f"commits in '{images.log_of(path)}' were not written" in message
    assert "open it with mode 'r' to read what is whole, or restore a backup" in message
    db = pellucid.open(path, "r")
    # What other pages hold is there, with the changes of the log.
    assert (db[1980].a, db[1999].a) == (-1, 1999)
    assert [finding for finding in db.check() if f"page {page}" in finding]
    db.close()
    assert images.log_of(path).exists()
    # The log is still there for a file that is whole.
    assert path.read_bytes()[8192:] == bytes(damaged)[8192:]
    path.write_bytes(sound)
    with pellucid.open(path) as db:
        assert [row.a for row in db.values()] == [n if n % 20 else -1 for n in range(2000)]
        assert db.check() == []


def test_a_file_whose_last_page_is_said_to_be_another_is_not_cut_off_there(tmp_path: Path) -> None:
    path = tmp_path / "a.pel"
    left_behind(path)
    data = path.read_bytes()
    # The newer of the two meta pages, and its number of the last page.
    newest = max((0, 4096), key=lambda at: struct.unpack_from("<Q", data, at + 144))
    (last,) = struct.unpack_from("<Q", data, newest + 136)
    for bit in range(last.bit_length()):
        if not last >> bit & 1:
            continue
        damaged = bytearray(data)
        struct.pack_into("<Q", damaged, newest + 136, last ^ 1 << bit)
        copy = tmp_path / f"{bit}.pel"
        copy.write_bytes(damaged)
        images.log_of(copy).write_bytes(images.log_of(path).read_bytes())
        with pytest.raises(pellucid.DatabaseCorrupt):
            pellucid.open(copy)
        assert len(copy.read_bytes()) == len(data)
        # Made good, it is whole.
        made_good = bytearray(copy.read_bytes())
        struct.pack_into("<Q", made_good, newest + 136, last)
        copy.write_bytes(made_good)
        with pellucid.open(copy) as db:
            assert [row.a for row in db.values()] == [n if n % 20 else -1 for n in range(2000)]


def test_a_file_whose_older_meta_page_passes_for_the_newer_is_refused_and_not_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "a.pel"
    left_behind(path)
    for has_log in (True, False):
        if not has_log:
            pellucid.open(path).close()
        data = path.read_bytes()
        versions = {at: struct.unpack_from("<Q", data, at + 144)[0] for at in (0, 4096)}
        older = min(versions, key=versions.__getitem__)
        for version in (versions[older] + 2, versions[older] | 1 << 60):
            damaged = bytearray(data)
            struct.pack_into("<Q", damaged, older + 144, version)
            copy = tmp_path / f"{has_log} {version}.pel"
            copy.write_bytes(damaged)
            if has_log:
                images.log_of(copy).write_bytes(images.log_of(path).read_bytes())
            for mode in ("r", "w"):
                with pytest.raises(pellucid.DatabaseCorrupt, match="another version than the catalog"):
                    pellucid.open(copy, mode)  # type: ignore[call-overload]
            assert copy.read_bytes() == bytes(damaged)
            # Made good, it is whole.
            copy.write_bytes(data)
            with pellucid.open(copy) as db:
                assert [row.a for row in db.values()] == [n if n % 20 else -1 for n in range(2000)]


def test_an_untrusted_file_does_not_go_back_by_one_commit(tmp_path: Path) -> None:
    path = tmp_path / "a.pel"
    for n in range(6):
        with pellucid.open(path) as db:
            db[n] = {"a": n}
    data = path.read_bytes()
    versions = {at: struct.unpack_from("<Q", data, at + 144)[0] for at in (0, 4096)}
    newest = max(versions, key=versions.__getitem__)
    older = 4096 - newest
    # Either meta page with a version that makes the older one win.
    for at, version in ((newest, versions[newest] - 2), (older, versions[older] + 2)):
        damaged = bytearray(data)
        struct.pack_into("<Q", damaged, at + 144, version)
        path.write_bytes(damaged)
        with pytest.raises(pellucid.DatabaseCorrupt, match="version"):
            pellucid.open(path, "r", untrusted=True)
    path.write_bytes(data)
    with pellucid.open(path, "r", untrusted=True) as db:
        assert list(db) == [0, 1, 2, 3, 4, 5]


def test_a_check_writes_no_log_into_a_damaged_file(tmp_path: Path) -> None:
    path = tmp_path / "a.pel"
    left_behind(path)
    with pellucid.open(path) as db:
        # While it is open: nobody has proved its pages since it was opened.
        pages = leaf_pages(path.read_bytes())
        db.update({n: {"a": -n} for n in range(0, 2000, 50)})
        for page in pages:
            flip(path, page * 4096 + 12)
        assert db.check() != []
        for page in pages:
            flip(path, page * 4096 + 12)
        assert db.check() == []
        assert db[50].a == -50


def used_and_free(data: bytes) -> tuple[int, list[int]]:
    """A page in use, and the pages that have the list of free ones, whose tree has one page."""
    heads = [page * 4096 + 40 for page in (0, 1)]
    newest = max(heads, key=lambda head: struct.unpack_from("<Q", data, head + 104)[0])
    assert struct.unpack_from("<H", data, newest + 6) == (1,)
    root, used = (struct.unpack_from("<Q", data, newest + at)[0] for at in (40, 88))
    page = data[root * 4096 : (root + 1) * 4096]
    pages = [root]
    for (offset,) in struct.iter_unpack("<H", page[16 : struct.unpack_from("<H", page, 12)[0]]):
        _, flags, key_size = struct.unpack_from("<IHH", page, offset)
        if flags & 1:
            pages += struct.unpack_from("<Q", page, offset + 8 + key_size)
    return used, pages


def test_no_compaction_believes_a_damaged_list_of_free_pages(tmp_path: Path) -> None:
    path = tmp_path / "a.pel"
    dice = random.Random(6)
    kept = {f"{dice.getrandbits(60):015x}": {"n": n, "text": "x" * 150} for n in range(6_000)}
    with pellucid.open(path, auto_compact=False) as db:
        for begin in range(0, len(kept), 500):
            db.update(list(kept.items())[begin : begin + 500])
            db.sync()
        for key in dice.sample(sorted(kept), 4_000):
            del db[key], kept[key]
    before = path.read_bytes()
    used, pages = used_and_free(before)
    found = 0
    for at, value in [
        # A page in use, one behind the end, and what is no list at all.
        *((page * 4096 + 4096 - 8 * dice.randrange(1, 40), used) for page in pages * 3),
        *((page * 4096 + 64, 1 << 40) for page in pages),
        *((page * 4096 + 16, (1 << 64) - 1) for page in pages),
    ]:
        damaged = before[:at] + struct.pack("<Q", value) + before[at + 8 :]
        path.write_bytes(damaged)
        with Child() as child:
            child(f"db = pellucid.open({str(path)!r}, mode='w', auto_compact=False)")
            child("""
told = ""
try:
    db.compact(online=True)
except pellucid.DatabaseCorrupt as error:
    told = str(error)
""")
            if told := child("told"):
                found += 1
                assert "is damaged at page" in told
                assert child("db.check()") != []
            assert child("{key: row.to_dict() for key, row in db.items()}") == kept
    assert found >= 4


# Forged indexes

Make = Callable[[Any], None]


def forged(
    folder: Path, rows: list[Any], honest: Make, claimed: Make, twins: list[Any] | None = None
) -> Path:
    """A file whose catalog has the entry of a twin's index for its own, so that its check is right."""

    def made(name: str, create: Make, rows: list[Any]) -> bytes:
        with pellucid.open(folder / name) as db:
            table = db.table("t")
            create(table)
            table.extend(rows)
        return (folder / name).read_bytes()

    one, twin = made("one", honest, rows), made("twin", claimed, twins or rows)
    # Behind its name: id, flags, size of the definition, definition, check.
    entry = re.compile(rb"the_index(....[\x00\x01](.)\x00\x00\x00)", re.DOTALL)

    def entries(data: bytes) -> set[bytes]:
        found = entry.finditer(data)
        return {data[match.start() : match.end() + match.group(2)[0] + 8] for match in found}

    count = 0
    for mine in entries(one):
        for other in entries(twin):
            if len(mine) == len(other) and mine != other:
                count += one.count(mine)
                one = one.replace(mine, other)
    assert count
    path = folder / "forged"
    path.write_bytes(one)
    return path


ROWS = [{"a": n % 50, "b": -n % 50, "x": [n, n + 1], "y": [n + 2, n + 1]} for n in range(100)]
INDEX = "the_index"


@pytest.mark.parametrize(
    ("honest", "claimed"),
    [
        pytest.param(
            lambda t: t.create_index(INDEX, F.a), lambda t: t.create_index(INDEX, F.b), id="another field"
        ),
        pytest.param(
            lambda t: t.create_index(INDEX, F.a, where=F.a > 5),
            lambda t: t.create_index(INDEX, F.a, where=F.a > 3),
            id="partial",
        ),
        pytest.param(
            lambda t: t.create_index(INDEX, F.x.each()),
            lambda t: t.create_index(INDEX, F.y.each()),
            id="each element",
        ),
        pytest.param(
            lambda t: t.create_index(INDEX, F.a + 1), lambda t: t.create_index(INDEX, F.a + 2), id="computed"
        ),
        pytest.param(
            lambda t: t.create_index(INDEX, (F.a, F.b)),
            lambda t: t.create_index(INDEX, (F.b, F.a)),
            id="covering",
        ),
    ],
)
def test_an_index_that_is_not_that_of_the_rows_is_refused_in_a_strangers_file(
    tmp_path: Path, honest: Make, claimed: Make
) -> None:
    path = forged(tmp_path, ROWS, honest, claimed)
    with pytest.raises(
        pellucid.DatabaseCorrupt, match=r"index 'the_index'.*entr.*; restore a backup"
    ) as told:
        pellucid.open(path, "r", untrusted=True)
    assert "rebuild_index" not in str(told.value)
    # `check` finds it, and it can be mended, in a file that is trusted.
    with pellucid.open(path) as db:
        assert any("rebuild_index" in finding for finding in db.check())
        db.table("t").rebuild_index(INDEX)
        assert db.check() == []
    with pellucid.open(path, "r", untrusted=True) as db:
        assert len(db.table("t").index(INDEX)) > 0


def test_a_unique_index_with_two_rows_of_one_value_is_refused_in_a_strangers_file(tmp_path: Path) -> None:
    def honest(table: Any) -> None:
        table.create_index(INDEX, F.a)

    def claimed(table: Any) -> None:
        table.create_index(INDEX, F.a, unique=True)

    path = forged(tmp_path, ROWS, honest, claimed, twins=ROWS[:50])
    with pytest.raises(pellucid.DatabaseCorrupt, match="the index is unique; restore a backup"):
        pellucid.open(path, "r", untrusted=True)


def test_a_page_that_only_the_version_before_had_may_be_used_again(path: Path) -> None:
    """As after the death of a process in a commit, which writes over such pages first."""
    rows = {n: {"n": n, "text": "t" * 200} for n in range(2000)}
    with pellucid.open(path) as db:
        for start in range(0, 2000, 500):
            db.update({n: rows[n] for n in range(start, start + 500)})
            db.sync()
    data = bytearray(path.read_bytes())
    older, newest = sorted((0, 4096), key=lambda at: struct.unpack_from("<Q", data, at + 144)[0])
    root, used = (struct.unpack_from("<Q", data, at + 128)[0] for at in (older, newest))
    leaf_flags = 2
    leaf = next(
        number
        for number in range(2, len(data) // 4096)
        if number not in (root, used) and struct.unpack_from("<H", data, number * 4096 + 10)[0] == leaf_flags
    )
    data[root * 4096 : root * 4096 + 4096] = data[leaf * 4096 : leaf * 4096 + 4096]
    struct.pack_into("<Q", data, root * 4096, root)
    path.write_bytes(data)
    with pellucid.open(path) as db:
        assert db.check() == []
        assert {key: row.to_dict() for key, row in db.items()} == rows
