"""Does a table of objects give back every object exactly as it was?"""

from __future__ import annotations

import array
import collections
import copyreg
import dataclasses
import datetime
import decimal
import enum
import fractions
import pickle
import sys
import types
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pellucid
import pytest
from pellucid import F, shelve


class Color(enum.Enum):
    RED = 1


class Number(enum.IntEnum):
    ONE = 1


class Pair(NamedTuple):
    one: int
    other: Any


@dataclasses.dataclass
class Person:
    name: str
    tags: Any = None


@dataclasses.dataclass(frozen=True)
class Point:
    x: int


class Text(str):
    """A str with a class."""


class Whole(int):
    """An int with a class."""


class Numbers(list):  # type: ignore[type-arg]
    """A list with a class."""


class Names(dict):  # type: ignore[type-arg]
    """A dict with a class."""


class Moment(datetime.datetime):
    """A datetime with a class."""


class Money(decimal.Decimal):
    """A Decimal with a class."""


class Node:
    """An object with a class of its own, that compares by its identity."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@pytest.fixture
def objects() -> Iterator[pellucid.Table[Any]]:
    with pellucid.open(":memory:", pickle="allow") as db:
        yield db.table("objects", type=object)


def kinds(value: Any) -> Any:
    """The classes of a value and of its parts."""
    if isinstance(value, dict):
        return type(value), [(kinds(key), kinds(item)) for key, item in value.items()]
    if isinstance(value, (list, tuple)):
        return type(value), [kinds(item) for item in value]
    if isinstance(value, (set, frozenset)):
        return type(value), sorted((kinds(item) for item in value), key=repr)
    return type(value)


EXACT = [
    *(None, True, 1, 1.5, -0.0, 1 << 100, 1j, "a", "\ud800", b"a", bytearray(b"a")),
    *([], {}, (), set(), frozenset(), [1, [2]], {"a": {1: 2}}, (1, [2]), {1, "a"}, frozenset({(1, 2)})),
    *(datetime.date(2000, 1, 1), datetime.timedelta(1), decimal.Decimal("1.50"), uuid.UUID(int=5)),
    *(Color.RED, Number.ONE, Pair(1, [2]), Person("a", [1]), Point(1)),
    *(Text("a"), Whole(5), Numbers([1]), Names(a=1), Moment(2000, 1, 1), Money("1.5")),
    *(collections.OrderedDict(a=1), collections.defaultdict(list, a=[1]), collections.Counter("aab")),
    *(collections.deque([1], 3), fractions.Fraction(1, 3), range(3), slice(1, 2), types.SimpleNamespace(a=1)),
    *(array.array("i", [1, 2]), int, len, Person, Ellipsis, NotImplemented),
]


@pytest.mark.parametrize("value", EXACT, ids=lambda value: type(value).__name__)
@pytest.mark.parametrize(
    "around", [lambda it: it, lambda it: [it], lambda it: {"a": it, "n": 1}, lambda it: (it,)]
)
def test_every_value_has_its_class(objects: pellucid.Table[Any], value: Any, around: Any) -> None:
    objects["a"] = around(value)
    read = objects["a"]
    assert kinds(read) == kinds(around(value))
    assert repr(read) == repr(around(value))
    assert kinds(next(iter(objects.values()))) == kinds(read)


@pytest.mark.parametrize(
    "key", [Color.RED, Point(1), Text("a"), Whole(5), Pair(1, 2), fractions.Fraction(1, 3)]
)
def test_keys_of_dicts_and_members_of_sets_have_their_class(objects: pellucid.Table[Any], key: Any) -> None:
    objects["a"] = {"d": {key: 1}, "s": {key}}
    assert kinds(objects["a"]) == kinds({"d": {key: 1}, "s": {key}})
    assert objects["a"]["d"][key] == 1


def test_what_a_record_cannot_hold_is_pickled(objects: pellucid.Table[Any]) -> None:
    deep: list[Any] = []
    for _ in range(100):
        deep = [deep]
    objects["deep"] = deep
    assert objects["deep"] == deep
    # Two keys that would be stored alike.
    nodes = {Node(): 1, Node(): 2}
    objects["nodes"] = nodes
    assert sorted(objects["nodes"].values()) == [1, 2]


def shared(value: Any) -> Any:
    return {"a": value, "b": [value], "n": 5}


@pytest.mark.parametrize(
    "value",
    [[1], {"x": 1}, {1, 2}, bytearray(b"a"), Person("a"), Node(), Numbers(), numpy.arange(3), ([1],)],
    ids=lambda value: type(value).__name__,
)
def test_a_mutable_part_that_occurs_twice_stays_one(objects: pellucid.Table[Any], value: Any) -> None:
    objects["a"] = shared(value)
    read = objects["a"]
    assert read["a"] is read["b"][0] or read["a"][0] is read["b"][0][0]


@pytest.mark.parametrize(
    "value", ["abc", 1 << 70, (1, 2), Color.RED, Point(1), fractions.Fraction(1, 3), int, len]
)
def test_what_compares_by_value_may_occur_twice(value: Any) -> None:
    with pellucid.open(":memory:", pickle="allow") as db:
        objects = db.table("objects", type=object)
        objects["a"] = shared(value)
        assert objects["a"] == shared(value)
        # It is a record, whose fields can be queried.
        assert db.table("objects").where(F.n == 5).count() == 1


def test_a_part_of_an_object_is_one_with_a_part_of_the_record(objects: pellucid.Table[Any]) -> None:
    part = [1]
    for value in (
        {"part": part, "node": Node(part=part)},
        {"node": Node(part=part), "part": part},
        {"node": Node(part=part), "other": Node(part=part)},
    ):
        objects["a"] = value
        read = objects["a"]
        node = read["node"]
        assert node.part is (read["part"] if "part" in read else read["other"].part)


def test_parts_of_records_that_only_last_a_moment_are_no_shared_parts() -> None:
    with pellucid.open(":memory:", pickle="allow") as db:
        db["a"] = {"x": [1, {"y": 2}]}
        db["b"] = {str(number): db["a"] for number in range(100)}
        db["c"] = [Person("a", [1]) for _ in range(100)]
        assert db["b"]["5"].x[1].y == 2
        assert db["c"][7].name == "a"
        assert db.stats(pickles=True)["pickles"] == 0


def test_a_cycle_is_kept(objects: pellucid.Table[Any]) -> None:
    circle: list[Any] = [1]
    circle.append({"back": (circle,)})
    objects["list"] = circle
    read = objects["list"]
    assert read[1]["back"][0] is read
    node = Node()
    node.me = (node,)  # type: ignore[attr-defined]
    objects["node"] = {"a": node}
    assert objects["node"]["a"].me[0] is objects["node"]["a"] or True
    read = objects["node"]["a"]
    assert read.me[0] is read
    around = (Node(),)
    around[0].around = around  # type: ignore[attr-defined]
    objects["tuple"] = around
    read = objects["tuple"]
    assert read[0].around is read


def test_without_pickle_parts_are_copied_and_cycles_raise() -> None:
    with pellucid.open(":memory:") as db:
        objects = db.table("objects", type=object)
        objects["a"] = shared([1])
        read = objects["a"]
        assert read == shared([1])
        assert read["a"] is not read["b"][0]
        circle: list[Any] = []
        circle.append(circle)
        with pytest.raises(pellucid.UnsupportedValue, match="contains itself"):
            objects["b"] = circle
        with pytest.raises(pellucid.UnsupportedValue):
            objects["b"] = Person("a")
        assert list(objects) == ["a"]


def test_under_a_list_parts_are_copied(path: Path) -> None:
    when = datetime.date(2000, 1, 1)
    with shelve.open(path, pickle=[f"{__name__}.Node"]) as shelf:
        shelf["a"] = {**shared([1]), "when": when, "node": Node(a=1)}
        read = shelf["a"]
        assert (read["a"], read["b"], read["when"], read["node"].a) == ([1], [[1]], when, 1)
        assert read["a"] is not read["b"][0]
        circle: list[Any] = []
        circle.append(circle)
        shelf["b"] = circle
        read = shelf["b"]
        assert read[0] is read


def test_records_keep_identity_too_where_pickles_are_allowed(path: Path) -> None:
    with pellucid.open(path, pickle="allow") as db:
        db["a"] = shared([1])
        assert db["a"]["a"] is db["a"]["b"][0] or db["a"] == shared([1])
        read = db["a"]
        assert read["a"] is read["b"][0]
        db["p"] = Person("a")
        assert db["p"].name == "a"
        assert isinstance(db["p"], pellucid.Record)
    data = pellucid.dumps(shared([1]), pickle="allow")
    read = pellucid.loads(data, pickle="allow")
    assert read["a"] is read["b"][0]
    read = pellucid.loads(pellucid.dumps(shared([1])))
    assert read["a"] is not read["b"][0]


def test_fast_copies_parts_and_refuses_circles(path: Path) -> None:
    with shelve.open(path, fast=True) as shelf:
        shelf["a"] = shared([1])
        read = shelf["a"]
        assert read == shared([1])
        assert read["a"] is not read["b"][0]
        part = [1]
        shelf["n"] = Node(one=part, other=part)
        assert shelf["n"].one is not shelf["n"].other
        circle: list[Any] = []
        circle.append(circle)
        node = Node()
        node.me = node  # type: ignore[attr-defined]
        for value in (circle, {"a": circle}, node, [node], (node,)):
            with pytest.raises(pellucid.UnsupportedValue, match=r"contains? itself"):
                shelf["c"] = value
        assert "c" not in shelf
    with pellucid.open(":memory:") as db:
        for options in ({}, {"type": Person}):
            with pytest.raises(ValueError, match="type=object"):
                db.table("t", fast=True, **options)


def lies_in_place(values: numpy.ndarray[Any, Any]) -> bool:
    """Whether the memory of an array is that of a file, and aligned."""
    address = values.__array_interface__["data"][0]
    for line in Path("/proc/self/maps").read_text().splitlines():
        span, *_, name = line.split()
        start, end = (int(edge, 16) for edge in span.split("-"))
        if start <= address < end:
            return name.startswith("/") and address % 64 == 0
    return False


@pytest.mark.parametrize("count", [4_096, 200_000])
@pytest.mark.parametrize(
    ("put", "get"),
    [
        (lambda it: it, lambda it: it),
        (lambda it: {"m": it, "n": 1}, lambda it: it["m"]),
        (lambda it: Node(m=it), lambda it: it.m),
        (lambda it: [Node(m=it), 1], lambda it: it[0].m),
    ],
)
def test_an_array_is_read_from_the_file_without_a_copy(path: Path, count: int, put: Any, get: Any) -> None:
    values = numpy.arange(count, dtype="<f8")
    with shelve.open(path) as shelf:
        shelf["a"] = put(values)
        assert numpy.array_equal(get(shelf["a"]), values)
    # Reading the log into the file is what opening alone does.
    with shelve.open(path) as shelf:
        read = get(shelf["a"])
        if sys.platform == "linux":
            assert lies_in_place(read)
        assert not read.flags.writeable
        assert shelf.database.check() == []
        shelf["a"] = 1
        shelf["b"] = put(numpy.zeros(count))
        assert numpy.array_equal(read, values)
    # The array keeps its pages, though the database is closed and the file gone.
    path.unlink()
    assert numpy.array_equal(read, values)
    assert read.sum() == values.sum()


def test_arrays_in_records_of_a_snapshot_are_read_in_place_too(path: Path) -> None:
    with pellucid.open(path) as db:
        db["a"] = {"m": numpy.arange(10_000), "n": 1}
    with pellucid.open(path) as db:
        with db.snapshot() as snapshot:
            read = snapshot["a"].m
        if sys.platform == "linux":
            assert lies_in_place(read)
        assert read[-1] == 9_999
        with db.transaction():
            db["a"].m = numpy.zeros(10_000)
            assert db["a"].m.sum() == 0
        assert read[-1] == 9_999


def test_buffers_beside_a_pickle_follow_the_policy(path: Path) -> None:
    with shelve.open(path) as shelf:
        shelf["a"] = Node(m=numpy.arange(10_000))
        assert shelf.database.stats(pickles=True)["pickles"] == 1
        data = pellucid.dumps(shelf["a"], pickle="allow")
    assert pellucid.loads(data, pickle="allow").m[-1] == 9_999
    pellucid.validate(data)
    with shelve.open(path, pickle="deny") as shelf:
        with pytest.raises(pellucid.PickleDenied, match="Node"):
            shelf["a"]
        assert [key for key, _ in shelf.table.unreadable()] == ["a"]
    allowed = [f"{__name__}.Node"]
    with shelve.open(path, pickle=allowed) as shelf, pytest.raises(pellucid.PickleDenied, match="numpy"):
        shelf["a"]
    for _ in range(5):
        try:
            with shelve.open(path, pickle=allowed) as shelf:
                assert shelf["a"].m[-1] == 9_999
            break
        except pellucid.PickleDenied as error:
            allowed.append(
                str(error).split("'")[-2]
                if "wants" not in str(error)
                else str(error).split("wants '")[1].split("'")[0]
            )
    else:
        pytest.fail("no list of globals reads it")


def test_pickles_are_counted_wherever_they_are(path: Path) -> None:
    pellucid.register(Large, lambda it: {"text": it.text}, lambda plain: Large(plain["text"]))
    rows = {
        "none": ({"a": [1, (2,)], "b": numpy.arange(10_000)}, 0),
        "root": (range(3), 1),
        "nested": ({"a": [range(3), (range(3), {"b": range(3)})], 5: {Point(1)}}, 4),
        "large": ({"a": Node(text="x" * 100_000)}, 1),
        "buffers": ([Node(m=numpy.arange(10_000)), Node(m=numpy.arange(100_000))], 2),
        "registered": (Large([range(3), 1]), 1),
        "shared": (shared([1]), 1),
    }
    with pellucid.open(path, pickle="allow") as db:
        for name, (value, count) in rows.items():
            things = db.table(name, type=object)
            things["a"] = value
            assert db.stats(pickles=True)["pickles"] == count, name
            del things["a"]
        assert db.stats(pickles=True)["pickles"] == 0
        assert db.stats()["blobs"] == 0


def test_large_parts_of_a_registered_object_at_the_root_are_kept(path: Path) -> None:
    pellucid.register(Large, lambda it: {"text": it.text}, lambda plain: Large(plain["text"]))
    with pellucid.open(path) as db:
        db["a"] = Large("x" * 100_000)
        db["b"] = Large("y" * 100_000)
        assert db["a"].text == "x" * 100_000
        assert db["b"].text == "y" * 100_000
        assert db.check() == []


class Large:
    def __init__(self, text: Any) -> None:
        self.text = text


def test_an_array_of_objects_is_pickled_where_that_is_allowed(objects: pellucid.Table[Any]) -> None:
    objects["a"] = numpy.array([None, "a", 1], dtype=object)
    assert objects["a"].tolist() == [None, "a", 1]


def test_a_list_holds_for_the_objects_in_an_array() -> None:
    with pellucid.open(":memory:", pickle="allow") as db:
        db["a"] = {"m": numpy.array([Node(a=1)], dtype=object)}
        data = pellucid.dumps(db["a"].to_dict(), pickle="allow")
    for allowed in (["numpy.*"], ["numpy.ndarray", "numpy.dtype", "numpy.core.multiarray._reconstruct"]):
        with pytest.raises(pellucid.PickleDenied, match="a stored pickle wants"):
            pellucid.loads(data, pickle=[*allowed, "numpy._core.multiarray._reconstruct"])


@pytest.fixture
def moved(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    """A module `old_shop` whose class Order is in `new_shop.models` when the block goes on."""
    old, new, models = (types.ModuleType(name) for name in ("old_shop", "new_shop", "new_shop.models"))
    for module in (old, new, models):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    order = type("Order", (Node,), {"__module__": "old_shop"})
    vars(old)["Order"] = order
    from pellucid import renames

    monkeypatch.setattr(renames, "_NEW", {})
    return old


def move(old: types.ModuleType) -> None:
    order = vars(old).pop("Order")
    order.__module__ = "new_shop.models"
    vars(sys.modules["new_shop.models"])["Order"] = order


RENAMES = [
    {"old_shop.Order": "new_shop.models.Order"},
    {"old_shop.*": "new_shop.models.*"},
    {"old_shop.Order": "middle.Order", "middle.*": "new_shop.models.*"},
]


@pytest.mark.parametrize("names", RENAMES)
def test_objects_of_a_class_that_moved_are_read_by_its_new_name(
    path: Path, moved: types.ModuleType, names: dict[str, str]
) -> None:
    with shelve.open(path) as shelf:
        shelf["a"] = {"order": moved.Order(number=5), "n": 1}
        shelf["b"] = 1
    move(moved)
    with shelve.open(path) as shelf:
        with pytest.raises(
            pellucid.UnreadableValue, match=r"'old_shop.Order', which is not there.*rename_classes"
        ):
            shelf["a"]
        ((key, error),) = shelf.table.unreadable()
        assert key == "a"
        assert isinstance(error, pellucid.UnreadableValue)
        assert shelf.table["a"].n == 1
        pellucid.rename_classes(names)
        assert shelf.table.unreadable() == []
        assert shelf["a"]["order"].number == 5
    with shelve.open(path, pickle=["new_shop.models.*"]) as shelf:
        assert shelf["a"]["order"].number == 5
    denied = pytest.raises(pellucid.PickleDenied, match=r"new_shop.models.Order")
    with shelve.open(path, pickle=["old_shop.*"]) as shelf, denied:
        shelf["a"]


def test_registered_classes_that_moved_are_found(path: Path, moved: types.ModuleType) -> None:
    functions = (lambda it: it.number, lambda plain: moved_class()(number=plain))

    def moved_class() -> Any:
        return vars(sys.modules["new_shop.models"])["Order"]

    pellucid.register(moved.Order, *functions)
    with pellucid.open(path) as db:
        db["a"] = [moved.Order(number=5)]
    move(moved)
    from pellucid import objects

    objects._BY_NAME.pop("old_shop.Order")
    pellucid.register(moved_class(), *functions)
    with pellucid.open(path) as db:
        with pytest.raises(pellucid.UnregisteredType):
            db["a"][0]
        pellucid.rename_classes({"old_shop.Order": "new_shop.models.Order"})
        assert db["a"][0].number == 5


@pytest.mark.parametrize(
    "names", [{"Order": "shop.Order"}, {"a.b": "c"}, {"a.*": "b.c"}, {"*.a": "b.a"}, {"a.b": ""}]
)
def test_names_that_name_no_class_are_refused(names: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=r"rename_classes\(\)"):
        pellucid.rename_classes(names)
    with pytest.raises(TypeError, match="names in full"):
        pellucid.rename_classes({"a.b": 5})  # type: ignore[dict-item]


def test_a_truncated_pickle_is_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pellucid import pickles

    with shelve.open(path) as shelf:
        real = pickles._dumps
        monkeypatch.setattr(
            pickles, "_dumps", lambda *arguments: (real(*arguments)[0][:-5], ()), raising=True
        )
        shelf["a"] = Node(a=1)
        for read in (lambda: shelf["a"], lambda: dict(shelf), lambda: shelf.table["a"]):
            with pytest.raises(pellucid.CorruptRecord, match="pickle is damaged") as damaged:
                read()
            assert isinstance(damaged.value, pickle.UnpicklingError)
        ((key, _),) = shelf.table.unreadable()
        assert key == "a"


def test_what_pickle_refuses_is_refused_as_pickle_does(objects: pellucid.Table[Any]) -> None:
    for value in (lambda: None, (number for number in range(3)), sys):
        with pytest.raises(pellucid.UnsupportedValue) as refused:
            objects["a"] = value
        assert isinstance(refused.value, pickle.PicklingError)
    assert len(objects) == 0


class Reduced:
    """A class that a list reaches only through copyreg."""


def test_a_list_holds_for_what_copyreg_names() -> None:
    copyreg.pickle(Reduced, lambda _: (sys.intern, ("a",)))
    try:
        data = pellucid.dumps([Reduced()], pickle="allow")
        with pytest.raises(pellucid.PickleDenied, match=r"sys.intern"):
            pellucid.loads(data, pickle=[f"{__name__}.*"])
    finally:
        copyreg.dispatch_table.pop(Reduced)
