"""Is an index right that is built while others write, however often its builder dies?"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

import pellucid
import pytest
from pellucid import Database, F
from pellucid.errors import Busy, IndexNotReady, NoSuchIndex, UniqueError
from processes import Child
from values import order

# More than are built in one transaction, and entries for more than one part.
ROWS = 45_000


def fill(db: Database) -> None:
    db.extend([{"n": (number * 7919) % ROWS, "tags": [number % 5, number % 3]} for number in range(ROWS)])


def is_right(db: Database) -> None:
    assert db.check() == []
    entries = [(row["n"], key) for key, row in db.items() if "n" in row]
    assert list(db.index("n")) == sorted(entries, key=lambda entry: (entry[0], order(entry[1])))
    assert [info.state for info in db.indexes()] == ["ready"] * len(db.indexes())


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with pellucid.open(tmp_path / "a.pel") as db:
        fill(db)
    return tmp_path / "a.pel"


@pytest.mark.parametrize("target", [":memory:", "file"])
def test_others_write_while_it_is_built(target: str, path: Path) -> None:
    db = pellucid.open(":memory:" if target == ":memory:" else path)
    if target == ":memory:":
        fill(db)
    calls = 0

    def write(done: int, rows: int) -> None:
        nonlocal calls
        assert 0 <= done <= rows == ROWS
        if calls % 2 and db.indexes()[0].state == "building":
            with pytest.raises(IndexNotReady, match="index 'n' of table"):
                db.index("n").get(1)
        # Rows of all kinds: new, gone, with another value, with the same, with other fields.
        start = calls * 100
        db["new", calls] = {"n": -calls}
        for number in range(start, start + 20):
            db.pop(number, None)
        for number in range(start + 20, start + 40):
            db[number] = {"n": ROWS - number}
            db[ROWS - number].n += 1
            db[ROWS - number - 50].more = calls
        db.extend([{"n": calls}, {"m": calls}])
        calls += 1

    db.create_index("n", F.n, progress=write)
    assert calls > 3
    is_right(db)
    db["last"] = {"n": -1000}
    is_right(db)
    db.close()


# Of the rows: while they are derived, ahead of the first transaction that puts entries, and behind it.
PLACES = [0.0, 0.3, 0.45, 0.5, 0.6, 0.85]


@pytest.mark.parametrize("place", PLACES)
def test_a_builder_that_is_killed_is_followed(place: float, path: Path) -> None:
    with pellucid.open(path) as db:
        with Child(path) as builder:
            builder(f"def die(done, rows):\n    if done >= {place} * rows: os.kill(os.getpid(), 9)")
            builder.send("db.create_index('n', pellucid.F.n, progress=die)")
            builder.process.wait(60)
        [info] = db.indexes()
        assert info.state == "building"
        with pytest.raises(IndexNotReady):
            db.index("n").first()
        for number in range(0, ROWS, 1000):
            db[number].n += 1
            del db[number + 1]
            db[number + 2] = {"n": 5}
        db.where(F.n > ROWS - 50).update(n=0)
        told: list[tuple[int, int]] = []
        db.create_index("n", F.n, progress=lambda done, rows: told.append((done, rows)))
        assert told == sorted(told)
        assert told[-1][0] == told[-1][1] == len(db)
        is_right(db)


def test_an_interrupt_ends_a_build_and_nothing_is_half_done(path: Path) -> None:
    with pellucid.open(path) as db:

        def interrupt(done: int, _rows: int) -> None:
            if done > ROWS / 4:
                signal.raise_signal(signal.SIGINT)

        with pytest.raises(KeyboardInterrupt):
            db.create_index("n", F.n, progress=interrupt)
        assert [info.state for info in db.indexes()] == ["building"]
        db["new"] = {"n": -1}
        with db.transaction(), pytest.raises(KeyboardInterrupt):
            db.create_index("m", F.n, progress=interrupt)
        assert [info.name for info in db.indexes()] == ["n"]
        db.create_index("n", F.n)
        with pytest.raises(KeyboardInterrupt):
            db.rebuild_index("n", progress=interrupt)
        is_right(db)


def test_two_do_not_build_one_index(path: Path) -> None:
    with pellucid.open(path) as db, Child(path) as builder:
        builder(
            "def wait(done, rows):\n    open(db.path + '.begun', 'w').close()\n"
            "    while not os.path.exists(db.path + '.go'): time.sleep(0.01)"
        )
        builder.send("db.create_index('n', pellucid.F.n, progress=wait)")
        while not Path(f"{path}.begun").exists():
            pass
        while not db.indexes():
            pass
        with pytest.raises(Busy, match=f"being built by PID {builder.pid}"):
            db.create_index("n", F.n)
        Path(f"{path}.go").touch()
        assert builder.answer() is None
        is_right(db)


def test_who_builds_an_index_in_this_very_process_is_not_to_be_ended(path: Path) -> None:
    with pellucid.open(path) as db:

        def again(_done: int, _rows: int) -> None:
            db.create_index("n", F.n)

        with pytest.raises(Busy, match=r"is being built by this process already; wait until that is done$"):
            db.create_index("n", F.n, progress=again)
        db.create_index("n", F.n)
        is_right(db)


def test_a_build_that_is_broken_off_goes_on(path: Path) -> None:
    with pellucid.open(path) as db:
        for place in PLACES:

            def stop(done: int, rows: int, place: float = place) -> None:
                if done >= place * rows:
                    raise ZeroDivisionError

            with pytest.raises(ZeroDivisionError):
                db.create_index("n", F.n, progress=stop)
            assert db.indexes()[0].state == "building"
            db[place] = {"n": -place}
        with pytest.raises(ValueError, match="already"):
            db.create_index("n", F.n.desc())
        db.create_index("n", F.n)
        is_right(db)


def test_a_value_that_two_rows_have_ends_a_unique_build(path: Path) -> None:
    with pellucid.open(path) as db:
        db[ROWS - 1].n = db[5].n
        with pytest.raises(UniqueError) as refused:
            db.create_index("n", F.n, unique=True)
        assert {refused.value.key, refused.value.existing_key} == {5, ROWS - 1}
        assert db.indexes() == []
        db[ROWS - 1].n = -1

        # A row that was not there when the build began, with the value of one that it has not reached.
        def clash(_done: int, _rows: int) -> None:
            if "new" not in db:
                db["new"] = {"n": ROWS - 1}

        with pytest.raises(UniqueError):
            db.create_index("n", F.n, unique=True, progress=clash)
        assert db.indexes() == []
        del db["new"]
        db.create_index("n", F.n, unique=True)
        is_right(db)


def test_what_becomes_of_the_table_meanwhile(path: Path) -> None:
    with pellucid.open(path) as db:
        # Whatever happens happens once, after some entries were put.
        def once(work: Any) -> Any:
            works = [work]

            def progress(done: int, rows: int) -> None:
                if rows / 2 < done < rows and works:
                    works.pop()()

            return progress

        with pytest.raises(NoSuchIndex, match="dropped while it was being built"):
            db.create_index("n", F.n, progress=once(lambda: db.drop_index("n")))
        with pytest.raises(NoSuchIndex):
            db.create_index("n", F.n, progress=once(lambda: db.rebuild_index("n")))
        is_right(db)
        db.drop_index("n")
        db.create_index("n", F.n, progress=once(db.clear))
        assert len(db) == 0
        is_right(db)
        fill(db)
        is_right(db)
        db.drop_index("n")
        with pytest.raises((NoSuchIndex, KeyError)):
            db.create_index("n", F.n, progress=once(lambda: db.drop_table("default")))
        assert db.check() == []


def test_a_batch_is_asked_for_uniqueness_at_its_end() -> None:
    db = pellucid.open(":memory:")
    db.extend([{"n": 0}, {"n": 1}, {"n": 2}])
    db.create_index("n", F.n, unique=True)
    # Each value is another row's until that has changed, too.
    db.where(F.n >= 0).update(n=F.n + 1)
    assert list(db.index("n")) == [(1, 0), (2, 1), (3, 2)]
    db.update({0: {"n": 2}, 1: {"n": 1}})
    assert list(db.index("n")) == [(1, 1), (2, 0), (3, 2)]
    with pytest.raises(UniqueError) as refused:
        db.update({5: {"n": 9}, 6: {"n": 9}})
    assert (refused.value.key, refused.value.existing_key) == (6, 5)

    def values() -> Any:
        yield {"n": 10}
        # Whoever reads an index in the middle of a batch sees all of it.
        assert db.index("n").count(10) == 1
        assert db.find(n=10).one() == {"n": 10}
        yield {"n": 11}

    assert db.extend(values()) == 2
    assert db.check() == []
