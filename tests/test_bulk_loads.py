"""Do batches that are sorted on disk leave what single puts leave, whatever happens in the middle of one?"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import F
from pellucid._native import _testing
from processes import Child, Raised

# More rows than the log of these tests has room for, and many runs of those that its memory has room for.
COUNT = 3_000
TIGHT = "from pellucid._native import _testing; _testing.limit_log(1 << 16); _testing.limit_sorts(1 << 18)"


@pytest.fixture
def db(path: Path) -> Iterator[pellucid.Database]:
    """A database with little room in its log, and little memory for sorts."""
    _testing.limit_log(1 << 16)
    _testing.limit_sorts(1 << 18)
    try:
        with pellucid.open(path) as database:
            yield database
    finally:
        _testing.limit_log(0)
        _testing.limit_sorts(0)


def row(number: int) -> dict[str, Any]:
    return {"n": number % 97, "name": f"row {number}", "text": "x" * (number % 150)}


def scattered(count: int, seed: int = 1) -> dict[Any, dict[str, Any]]:
    dice = random.Random(seed)
    return {f"{dice.getrandbits(64):016x}": row(number) for number in range(count)}


def check(db: pellucid.Database, path: Path, expected: dict[Any, Any]) -> None:
    table = db.table("t")
    assert len(table) == len(expected)
    assert {key: value.to_dict() for key, value in table.items()} == expected
    assert list(table) == sorted(expected)
    for index in table.indexes():
        for number in (0, 13, 96):
            wanted = sorted(key for key, value in expected.items() if value["n"] == number)
            assert sorted(table.where(F.n == number).keys()) == wanted, index
    assert db.check() == []
    assert {name.name for name in path.parent.iterdir()} <= {
        path.name,
        f"{path.name}-log",
        f"{path.name}-lock",
    }


@pytest.mark.parametrize("seed", range(3))
def test_large_values_among_the_rows_of_a_batch_are_kept_as_they_were_put_last(path: Path, seed: int) -> None:
    dice = random.Random(seed)
    # A log that has room for large values' places and for a thousand rows, and a batch that has more.
    _testing.limit_log(1 << 20)
    try:
        with pellucid.open(path) as db:
            model: dict[str, Any] = {}
            for _ in range(3):
                with db.transaction():
                    for number in range(1_500):
                        key = f"{dice.randrange(900):04}"
                        size = 100_000 if number % 50 == 0 else dice.randrange(200)
                        model[key] = {"n": number, "text": dice.randbytes(size)}
                        if dice.random() < 0.5:
                            db[key] = model[key]
                        else:
                            db.update({key: model[key]})
                assert {key: value.to_dict() for key, value in db.items()} == model
                assert db.check() == []
        with pellucid.open(path) as db:
            assert {key: value.to_dict() for key, value in db.items()} == model
    finally:
        _testing.limit_log(0)


@pytest.mark.parametrize("seed", range(4))
def test_batches_of_any_kind_are_what_a_dict_has(db: pellucid.Database, path: Path, seed: int) -> None:
    dice = random.Random(seed)
    table, model = db.table("t"), {}
    if seed % 2:
        table.create_index("n", F.n)
        table.create_index("name", F.name)
    for turn in range(12):
        count = dice.choice([1, 30, 400, COUNT])
        pairs = [(f"{dice.randrange(2_000):04}", row(dice.randrange(10_000))) for _ in range(count)]
        if turn % 5 == 4:
            pairs.sort(key=lambda pair: pair[0])
        given = dice.choice([dict, list, iter])(pairs)
        if dice.random() < 0.3:
            before = dict(model)
            with pytest.raises(ZeroDivisionError), db.transaction():  # noqa: PT012
                table.update(given)
                raise ZeroDivisionError
            assert len(table) == len(before)
        else:
            table.update(given)
            model.update(pairs)
        if dice.random() < 0.5:
            for key in dice.sample(sorted(model), len(model) // 4):
                del table[key]
                del model[key]
        check(db, path, model)


def test_blocks_within_a_transaction_are_kept_and_rolled_back_one_by_one(
    db: pellucid.Database, path: Path
) -> None:
    table, model = db.table("t"), {}
    table.create_index("n", F.n)
    for is_kept in (True, False):
        with db.transaction():
            for turn in range(30):
                rows = scattered(200, seed=turn + 100 * is_kept)
                try:
                    with db.transaction():
                        table.update(rows)
                        if turn % 3 == 0:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    continue
                if is_kept:
                    model.update(rows)
                if turn % 10 == 5:
                    key = next(iter(rows))
                    assert table[key] == rows[key]
            if not is_kept:
                table.clear()
                model.clear()
        check(db, path, model)


def test_rows_that_the_iterator_reads_and_changes_are_those_that_it_has_given(
    db: pellucid.Database, path: Path
) -> None:
    table, other = db.table("t"), db.table("other")
    model: dict[str, Any] = {}
    rows = scattered(COUNT)

    def given() -> Iterator[tuple[str, Any]]:
        for number, (key, value) in enumerate(rows.items()):
            if number % 700 == 699:
                assert len(table) == number - number // 700
                gone = next(iter(model))
                assert table[gone] == model[gone]
                del table[gone]
                del model[gone]
                other[number] = len(model)
                assert [row.name for row in table.where(F.name == value["name"])] == []
            model[key] = value
            yield key, value

    table.update(given())
    check(db, path, model)
    assert dict(other.items()).keys() == {699, 1399, 2099, 2799}


def test_a_key_keeps_its_first_spelling(db: pellucid.Database) -> None:
    table = db.table("t")
    numbers = list(range(COUNT))
    random.Random(3).shuffle(numbers)
    table[5] = {"old": True}
    table.update((float(number), {"n": number}) for number in numbers)
    table.update((number, {"n": -number}) for number in numbers)
    assert [type(key) for key in list(table)[4:7]] == [float, int, float]
    assert table[7] == {"n": -7}


def test_long_keys_and_large_values_are_among_them(db: pellucid.Database, path: Path) -> None:
    dice = random.Random(5)
    rows: dict[str, Any] = {}
    for number in range(COUNT):
        key = f"{dice.getrandbits(64):016x}" * (60 if number % 50 == 0 else 1)
        rows[key] = {"n": number, "blob": bytes(40_000)} if number % 100 == 7 else {"n": number}
    table = db.table("t")
    for _ in range(2):
        table.update(rows)
        assert {key: value.to_dict() for key, value in table.items()} == rows
    assert db.check() == []


def test_what_raises_in_the_middle_leaves_nothing(db: pellucid.Database, path: Path) -> None:
    table = db.table("t")
    table.create_index("name", F.name, unique=True)
    kept = scattered(100, seed=8)
    table.update(kept)

    def broken() -> Iterator[tuple[str, Any]]:
        yield from scattered(COUNT).items()
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        table.update(broken())
    check(db, path, kept)
    twice = scattered(COUNT)
    twice["0123"] = row(2_000)
    with pytest.raises(pellucid.UniqueError):
        table.update(twice)
    check(db, path, kept)
    with pytest.raises(pellucid.UnsupportedValue):
        table.update([*scattered(COUNT).items(), ("a", object())])
    check(db, path, kept)


def test_the_iterator_may_drop_another_table_and_not_this_one(db: pellucid.Database) -> None:
    db.table("other")["a"] = 1

    def given(name: str) -> Iterator[tuple[str, Any]]:
        for number, pair in enumerate(scattered(COUNT).items()):
            if number == 2_000:
                db.drop_table(name)
            yield pair

    with pytest.raises(pellucid.StaleTable):
        db.table("t").update(given("t"))
    assert db.tables() == ["other"]
    db.table("t").update(given("other"))
    assert (db.tables(), len(db.table("t")), db.check()) == (["t"], COUNT, [])


def test_progress_is_told_while_rows_are_merged(db: pellucid.Database) -> None:
    told: list[tuple[int, int]] = []
    rows = scattered(20_000)
    table = db.table("t")
    with db.transaction(progress=lambda done, total: told.append((done, total))):
        table.update(rows)
        assert told == []
    assert told == sorted(told)
    assert 0 < told[0][0] < told[-1][0] == told[-1][1] <= len(rows)

    def fail(done: int, total: int) -> None:
        raise ZeroDivisionError(f"{done} of {total}")

    def fail_at_the_end(done: int, total: int) -> None:
        if done == total:
            fail(done, total)

    for function in (fail, fail_at_the_end):
        with pytest.raises(ZeroDivisionError), db.transaction(progress=function):
            table.update((key, {"n": 0}) for key in rows)
        assert table.where(F.name).count() == len(rows)
    with pytest.raises(pellucid.TransactionError), db.transaction(progress=lambda *_: len(table)):
        table.update((key, {"n": 0}) for key in rows)
    with pytest.raises(TypeError, match="progress has to be a function"):
        db.transaction(progress=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("moment", ["reading", "merging"])
def test_a_signal_ends_a_batch_in_each_phase(db: pellucid.Database, path: Path, moment: str) -> None:
    rows = scattered(200_000)

    def given() -> Iterator[tuple[str, Any]]:
        for number, pair in enumerate(rows.items()):
            if moment == "reading" and number == 50_000:
                os.kill(os.getpid(), signal.SIGALRM)
            yield pair
        # A timer needs no thread that waits for its turn: it comes while the rows are merged.
        signal.setitimer(signal.ITIMER_REAL, 0.001)

    table = db.table("t")
    table["kept"] = row(1)
    old = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            table.update(given())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    check(db, path, {"kept": row(1)})
    table.update(rows)
    assert len(table) == len(rows) + 1


@pytest.mark.parametrize("room", [100_000, 1_500_000, 3_000_000, 4_000_000, 4_400_000])
def test_a_full_disk_leaves_the_table_as_it_was(path: Path, room: int) -> None:
    with Child() as child:
        child("import random, resource")
        child(TIGHT)
        child(f"db = pellucid.open({str(path)!r}); t = db.table('t'); t.create_index('n', pellucid.F.n)")
        child("t['kept'] = {'n': 1}; db.sync()")
        child("dice = random.Random(1); keys = [dice.getrandbits(64) for _ in range(20_000)]")
        child("rows = [(key, {'n': key % 97, 'text': 'x' * 150}) for key in keys]")
        child(f"resource.setrlimit(resource.RLIMIT_FSIZE, ({room}, resource.RLIM_INFINITY))")
        with pytest.raises(Raised, match="DiskFull"):
            child("t.update(rows)")
        assert child("len(t), t['kept'] == {'n': 1}, db.check()") == (1, True, [])
        child("resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)")
        assert {name.suffix for name in path.parent.iterdir()} <= {".pel", ".pel-log", ".pel-lock"}
        child("t.update(rows)")
        assert child("len(t), db.check()") == (20_001, [])


@pytest.mark.parametrize("seed", range(6))
def test_a_process_that_is_killed_leaves_all_of_a_batch_or_nothing(path: Path, seed: int) -> None:
    with Child() as child:
        child("import random")
        child(TIGHT)
        child(f"db = pellucid.open({str(path)!r}); t = db.table('t'); t.create_index('n', pellucid.F.n)")
        child("t['kept'] = {'n': 1}")
        child("dice = random.Random(1); keys = [dice.getrandbits(64) for _ in range(30_000)]")
        child("rows = [(key, {'n': key % 97, 'text': 'x' * 150}) for key in keys]")
        child.send("t.update(rows)")
        time.sleep(random.Random(seed).random() * 0.6)
        child.kill()
    with pellucid.open(path) as db:
        table = db.table("t")
        assert len(table) in (1, 30_001)
        assert table["kept"] == {"n": 1}
        assert db.check() == []
    assert [name.name for name in path.parent.iterdir()] == [path.name]


def size_of(path: Path, store: Callable[[Any], object]) -> int:
    path.unlink(missing_ok=True)
    with pellucid.open(path) as db:
        store(db.table("t"))
    return path.stat().st_size


def test_rows_in_any_order_fill_pages_as_rows_in_key_order_do(path: Path) -> None:
    rows = {key: {"n": number, "text": "x" * 150} for number, key in enumerate(scattered(40_000))}
    in_order = size_of(path, lambda table: table.update(sorted(rows.items())))
    assert size_of(path, lambda table: table.update(rows)) < 1.03 * in_order
    live = sum(len(key) + len(pellucid.dumps(value)) for key, value in list(rows.items())[:100]) * 400
    assert in_order < 1.15 * live
