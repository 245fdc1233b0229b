"""Large values that are assigned in place: stored apart as a put does, and freed when they are replaced."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import pellucid
import pytest
from pellucid import F
from processes import Child
from values import plain, same

APART = 32 * 1024
"""From this size on a value is stored apart."""


def content(number: int, size: int) -> bytes:
    """Bytes of this size that differ from those of every other number, and cannot be compressed."""
    return random.Random(number).randbytes(size)


@pytest.fixture(params=["file", "memory"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[pellucid.Database]:
    with pellucid.open(tmp_path / "test.pel" if request.param == "file" else ":memory:") as db:
        yield db


def blobs(db: pellucid.Database) -> int:
    db.sync()
    count: int = db.stats()["blobs"]
    return count


LARGE: list[Any] = [
    content(1, APART),
    content(2, 300_000),
    bytearray(content(3, 50_000)),
    "t\u00fcr" * 20_000,
    "x" * APART,
    "\ud800" * 20_000,
    numpy.arange(30_000.0),
]


@pytest.mark.parametrize("value", LARGE, ids=lambda value: type(value).__name__)
def test_a_large_value_is_stored_apart_whatever_put_it_there(db: pellucid.Database, value: Any) -> None:
    def changes(make: Callable[[Any], object], count: int = 1) -> None:
        db["r"] = {"n": 0, "old": 1, "list": ["first"], "sub": {"x": 1}}
        make(db["r"])
        assert blobs(db) == count
        before = pellucid.counters()
        db["r"].n += 1
        after = pellucid.counters()
        assert after["slots_overwritten"] == before["slots_overwritten"] + 1
        assert after["values_encoded"] == before["values_encoded"]
        assert db["r"].n == 1
        del db["r"]
        assert blobs(db) == 0

    changes(lambda row: setattr(row, "new", value))
    changes(lambda row: setattr(row, "old", value))
    changes(lambda row: row.update({"old": value, "new": value}), 2)
    changes(lambda row: row.list.append(value))
    changes(lambda row: row.list.insert(0, value))
    changes(lambda row: row.list.extend([value, 1, value]), 2)
    changes(lambda row: row.list.__setitem__(0, value))
    changes(lambda row: row.list.__setitem__(slice(0, 1), [value, value]), 2)
    changes(lambda row: setattr(row.sub, "x", value))
    changes(lambda row: row.sub.setdefault("y", value))
    changes(lambda _: db.where(F.n == 0).update(old=value))
    changes(lambda _: db.where(F.n == 0).update({"old": value, "sub": {"x": value}}), 2)


@pytest.mark.parametrize("value", LARGE, ids=lambda value: type(value).__name__)
def test_a_computed_value_is_stored_apart(db: pellucid.Database, value: Any) -> None:
    db["r"] = {"n": 0, "image": value, "old": 1}
    db.where(F.n == 0).update(copy=F.image, old=F.image)
    assert blobs(db) == 3
    with db.snapshot() as snapshot:
        assert same(plain(snapshot["r"]), {"n": 0, "image": value, "old": value, "copy": value})
        if isinstance(value, numpy.ndarray):
            assert snapshot["r"]["copy"].flags.aligned
            assert db.stats()["page_size"] == 0 or type(snapshot["r"]["copy"].base).__name__ == "StoredBytes"


def test_a_snapshot_shows_an_array_that_was_assigned_where_it_is_in_the_file(tmp_path: Path) -> None:
    with pellucid.open(tmp_path / "test.pel") as db:
        db["r"] = {"n": 1}
        db["r"].samples = numpy.arange(100_000.0)
        for _ in range(2):
            with db.snapshot() as snapshot:
                samples = snapshot["r"].samples
                assert type(samples.base).__name__ == "StoredBytes"
                assert samples.__array_interface__["data"][0] % 64 == 0
                assert numpy.array_equal(samples, numpy.arange(100_000.0))
            db.sync()


def test_what_replaces_a_large_value_frees_its_place(db: pellucid.Database) -> None:
    large = content(1, 200_000)
    db["r"] = {"n": 0, "a": 1, "list": [0, 1]}
    row = db["r"]

    def is_free_after(change: Callable[[], object], left: int = 0) -> None:
        row.a = large
        row.list[0] = large
        assert blobs(db) == 2
        change()
        assert blobs(db) == left
        assert db.check() == []
        db["r"] = {"n": 0, "a": 1, "list": [0, 1]}

    is_free_after(lambda: setattr(row, "a", b"small"), 1)
    is_free_after(lambda: setattr(row, "a", large[: APART - 1]), 1)
    is_free_after(lambda: setattr(row, "a", large[::-1]), 2)
    is_free_after(lambda: setattr(row, "a", 5), 1)
    is_free_after(lambda: delattr(row, "a"), 1)
    is_free_after(lambda: row.pop("a"), 1)
    is_free_after(row.list.clear, 1)
    is_free_after(lambda: row.list.pop(0), 1)
    is_free_after(row.list.reverse, 2)
    is_free_after(lambda: setattr(row, "list", 7), 1)
    is_free_after(lambda: delattr(row, "list"), 1)
    is_free_after(row.clear)
    is_free_after(lambda: db.where(F.n == 0).update(a=0, list=[]))
    is_free_after(lambda: db.where(F.n == 0).delete())


@dataclass
class Picture:
    """An object of a class, with a large value in it."""

    pixels: bytes


def test_what_replaces_an_object_frees_the_large_values_in_it(db: pellucid.Database) -> None:
    pellucid.register(Picture, lambda picture: {"pixels": picture.pixels}, lambda made: Picture(**made))
    for change in (
        lambda: setattr(db["r"], "picture", 5),
        lambda: setattr(db["r"], "picture", "s"),
        lambda: delattr(db["r"], "picture"),
        lambda: db.where(F.n == 0).update(picture=None),
    ):
        db["r"] = {"n": 0, "picture": 1}
        db["r"].picture = Picture(content(1, 100_000))
        assert (blobs(db), db["r"].picture) == (1, Picture(content(1, 100_000)))
        change()
        assert blobs(db) == 0


def test_a_change_that_is_taken_back_leaves_nothing(db: pellucid.Database) -> None:
    db["r"] = {"n": 0, "a": content(1, 200_000)}
    with contextlib.suppress(ZeroDivisionError), db.transaction():
        db["r"].a = content(2, 200_000)
        db["r"].b = content(3, 200_000)
        del db["r"].a
        assert db["r"].b == content(3, 200_000)
        raise ZeroDivisionError
    assert blobs(db) == 1
    with db.transaction():
        db["r"].a = content(2, 200_000)
        with contextlib.suppress(ZeroDivisionError), db.transaction():
            db["r"].a = content(3, 200_000)
            raise ZeroDivisionError
    with db.edit("r") as row:
        row.b = content(4, 200_000)
        with pytest.raises(AttributeError):
            row.n.x = content(5, 200_000)
        del row.b
    assert (plain(db["r"]), blobs(db)) == ({"n": 0, "a": content(2, 200_000)}, 1)
    assert db.check() == []


class Model:
    """Records under random changes in place, and the plain dicts that they have to be equal to."""

    FIELDS = ("a", "b", "c")
    KEYS = range(6)

    def __init__(self, db: pellucid.Database, seed: int) -> None:
        self.db, self.dice = db, random.Random(seed)
        self.rows: dict[int, dict[str, Any]] = {}
        self.count = 0
        for key in self.KEYS:
            self.put(key)

    def value(self) -> Any:
        """A new value: large or small, of a random kind."""
        self.count += 1
        size = self.dice.choice((3, 300, APART - 1, APART, 100_000, 200_000, 400_000))
        data = content(self.count, size)
        kind = self.dice.randrange(5)
        if kind == 0:
            return data.hex()[:size]
        return self.count if kind == 1 and size == 3 else data

    def put(self, key: int) -> None:
        row = {"n": key, "a": self.value(), "list": [self.value()], "sub": {"a": self.value()}}
        self.rows[key] = row
        self.db[key] = row

    def step(self) -> None:
        """Make one change in both."""
        key = self.dice.choice(self.KEYS)
        self.change(key, self.rows[key], self.db[key])

    def change(self, key: int, model: dict[str, Any], row: Any) -> None:
        dice, field = self.dice, self.dice.choice(self.FIELDS)
        steps: list[Callable[[], None]] = [
            lambda: self.put(key),
            lambda: self.both((model, row), lambda of, value: of.__setitem__(field, value)),
            lambda: self.both((model, row), lambda of, value: of.__setitem__(field, value)),
            lambda: self.both((model["sub"], row.sub), lambda of, value: of.__setitem__(field, value)),
            lambda: self.both((model, row), lambda of, value: of.update({field: value, "c": 1})),
            lambda: self.both((model, row), lambda of, _: of.pop(field, None)),
            lambda: self.both((model["sub"], row.sub), lambda of, _: of.pop(field, None)),
            lambda: self.both((model, row), lambda of, _: of.__setitem__("n", of["n"] + 10)),
            lambda: self.both((model["list"], row.list), lambda of, value: of.append(value)),
            lambda: self.both((model["list"], row.list), lambda of, value: of.insert(0, value)),
            lambda: self.both(
                (model["list"], row.list), lambda of, value: of.__setitem__(slice(1, 3), [value])
            ),
            lambda: self.both((model["list"], row.list), lambda of, _: of.__delitem__(slice(2, None))),
            lambda: self.both((model["list"], row.list), lambda of, _: of.reverse()),
            lambda: self.edited(key, field),
            lambda: self.queried(model, field),
        ]
        dice.choice(steps)()

    def both(self, places: tuple[Any, Any], change: Callable[[Any, Any], object]) -> None:
        value = self.value()
        for place in places:
            change(place, value)

    def edited(self, key: int, field: str) -> None:
        """Several changes in one commit, or in a transaction that is taken back."""
        values = [self.value() for _ in range(2)]
        is_kept = self.dice.random() < 0.6
        with contextlib.suppress(ZeroDivisionError), self.db.edit(key) as row:
            row[field] = values[0]
            row.sub.b = values[1]
            row[field] = values[1]
            if not is_kept:
                raise ZeroDivisionError
        if is_kept:
            self.rows[key][field] = self.rows[key]["sub"]["b"] = values[1]

    def queried(self, model: dict[str, Any], field: str) -> None:
        value = self.value()
        self.db.where(F.n == model["n"]).update({field: value, "copy": F.list[0]})
        for row in self.rows.values():
            if row["n"] == model["n"]:
                row[field] = value
                if row["list"]:
                    row["copy"] = row["list"][0]

    def leaves(self) -> Iterator[Any]:
        """All values that the records hold."""
        for row in self.rows.values():
            for value in row.values():
                yield from value if isinstance(value, list) else [value]
                yield from value.values() if isinstance(value, dict) else []

    def assert_equal(self) -> None:
        assert {key: plain(self.db[key]) for key in self.db} == self.rows
        large = sum(isinstance(value, bytes | str) and len(value) >= APART for value in self.leaves())
        assert blobs(self.db) == large

    def size(self) -> int:
        return sum(len(value) for value in self.leaves() if isinstance(value, bytes | str))


@pytest.mark.parametrize("seed", range(3))
def test_random_changes_in_place_agree_with_dicts(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "test.pel"
    db = pellucid.open(path)
    model, most = Model(db, seed), 0
    for turn in range(12):
        for _ in range(25):
            model.step()
            most = max(most, model.size())
        model.assert_equal()
        if turn % 3 == 2:
            assert db.check() == []
            db.close()
            db = model.db = pellucid.open(path)
            model.assert_equal()
    db.close()
    assert path.stat().st_size <= 2 * most + 5_000_000
    with pellucid.open(path) as db:
        db.compact()
        assert path.stat().st_size <= 1.1 * model.size() + 200_000


def test_random_changes_in_place_agree_with_dicts_in_memory() -> None:
    with pellucid.open(":memory:") as db:
        model = Model(db, 7)
        for _ in range(6):
            for _ in range(25):
                model.step()
            model.assert_equal()


def test_a_change_in_place_that_was_acknowledged_survives_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "test.pel"
    expected: dict[str, Any] = {"n": 0, "list": []}
    with pellucid.open(path) as db:
        db["r"] = expected
    for turn in range(6):
        image, part = content(2 * turn, 300_000), content(2 * turn + 1, 40_000)
        with Child() as child:
            child(f"db = pellucid.open({str(path)!r})")
            child("import random; content = lambda number, size: random.Random(number).randbytes(size)")
            child(f"db['r'].image = content({2 * turn}, 300_000)")
            child(f"db['r'].list[:] = [content({2 * turn + 1}, 40_000), {turn}]")
            if turn % 2:
                child("db.sync()")
                child("del db['r'].image")
            child("t = db.transaction(); t.__enter__()")
            child("db['r'].image = content(99, 900_000); db['r'].list.append(content(98, 300_000))")
            child.kill()
        with pellucid.open(path) as db:
            expected = {"n": 0, "list": [part, turn]} | ({} if turn % 2 else {"image": image})
            assert plain(db["r"]) == expected
            assert blobs(db) == 1 + ("image" in expected)
            assert db.check() == []
    assert path.stat().st_size <= 8_000_000
