"""Do values come back from bytes as they went in, whatever the buffer, and does damage do no harm?"""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import itertools
import mmap
import os
import pickle
import random
import re
import types
import uuid
import zoneinfo
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import attrs
import dateutil.tz
import numpy
import pellucid
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from values import NAMED_ZONES, arrays, fingerprint, plain, same, values

SAMPLE = {
    "name": "Fred Bloggs",
    "age": 21,
    "mylist": ["one", "two", "three", "four", 5],
    "mydict": {"a": 1, "c": {"nested": "this is a long string", "list": [{"a": 1}, {"b": 2, "c": 3}]}},
    "amt": 1.23,
    "keyed": {1: "one", None: 2, (1, "x"): 3, 2.5: 4, "k": 5, b"b": 6, False: 7, "l": 8, "m": 9, "n": 10},
    "sets": [{1, 2, "x"}, frozenset({None})],
    "packed": [[1, 2, 3], [1.5, 2.5], []],
    "odd": (decimal.Decimal("1.10"), 2**70, dt.datetime(2024, 1, 1, tzinfo=dt.timezone.utc), b"x" * 20),
    "array": numpy.arange(12, dtype="<i2").reshape(3, 4),
}


# Round trips


@given(values)
def test_every_value_comes_back_to_the_last_bit(value: Any) -> None:
    data = pellucid.dumps(value)
    pellucid.validate(data)
    assert same(pellucid.loads(data), value)
    assert same(plain(pellucid.view(data)), value)


@given(values)
def test_equal_builds_give_equal_bytes(value: Any) -> None:
    data = pellucid.dumps(value)
    assert pellucid.dumps(pellucid.loads(data)) == data


def test_a_dict_taken_for_another_leaves_nothing_behind() -> None:
    # Dicts of one first key and one size are taken for each other until the second key is looked at.
    for field in "bcdefg":
        value = {"first": {"only": field}, field: None}
        assert pellucid.dumps(value) == pellucid.dumps(value)
    with pellucid.open(":memory:") as db:
        for field in "bcdefg":
            db[field] = {"first": b"x" * 100_000, field: None}
        assert db.stats()["blobs"] == 6


def test_a_nested_dict_has_the_same_bytes_whatever_came_before_it() -> None:
    # One that is written like the last of its shape may be wider, hold containers, or have other keys.
    inner: list[dict[str, Any]] = [
        {"a nested": 1, "one": 2.5},
        {"a nested": "x" * 200, "one": None},
        {"a nested": True, "one": 1 << 40},
        {"a nested": [1, "2"], "one": {"deep": 1}},
        {"a nested": 1 << 70, "one": "\u00e9"},
        {"a nested": "x" * 20_000, "one": 1},
        {"one": 1, "a nested": 2},
        {"a nested": 1, "two": 2},
        {"a nested": 1},
    ]
    wanted = [pellucid.dumps({"in": value, "and": [value]}) for value in inner]
    for before, (value, data) in itertools.product(inner, list(zip(inner, wanted, strict=True))):
        pellucid.dumps({"in": before, "and": [before]})
        assert pellucid.dumps({"in": value, "and": [value]}) == data
        assert pellucid.loads(data) == {"in": value, "and": [value]}
    with pellucid.open(":memory:") as db:
        db.update({number: {"in": value, "and": inner} for number, value in enumerate(inner * 3)})
        assert [row for _, row in db.items()] == [{"in": value, "and": inner} for value in inner * 3]


@given(arrays)
def test_arrays_keep_dtype_shape_order_and_data(value: Any) -> None:
    restored = pellucid.loads(pellucid.dumps({"a": value}))["a"]
    assert fingerprint(restored) == fingerprint(value)
    if isinstance(restored, numpy.ndarray):
        assert not restored.flags.writeable


@pytest.mark.parametrize("name", ["", "\0", "\0\0x", "x\0", "UTC", None])
def test_the_name_of_a_fixed_zone_comes_back_also_an_empty_one(name: str | None) -> None:
    hour = dt.timedelta(hours=1)
    zone = dt.timezone(hour) if name is None else dt.timezone(hour, name)
    moment = dt.datetime(2024, 1, 1, tzinfo=zone)
    for value in (moment, moment.timetz()):
        restored = pellucid.loads(pellucid.dumps([value]))[0]
        assert (restored, restored.tzname()) == (value, value.tzname())
        assert repr(restored.tzinfo) == repr(zone)
    table = pellucid.open(":memory:").table("t")
    table[moment] = 1
    assert repr(next(iter(table)).tzinfo) == repr(zone)


@pytest.mark.parametrize("zone", NAMED_ZONES, ids=str)
def test_both_sides_of_a_clock_change_come_back(zone: zoneinfo.ZoneInfo) -> None:
    for fold in (0, 1):
        moment = dt.datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=fold)
        restored = pellucid.loads(pellucid.dumps(moment))
        assert (restored, restored.fold, restored.utcoffset()) == (moment, fold, moment.utcoffset())
        assert restored.tzinfo is zone


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 127, 128, 255, 256, 65_535, 65_536, 70_000, 300_000])
def test_sizes_around_every_limit_come_back(size: int) -> None:
    for value in ("x" * size, b"x" * size, "\u00e9" * size, [size] * size, list(range(size)), ["s"] * size):
        for wrapped in (value, [value], {"a": value, "b": 1}):
            assert pellucid.loads(pellucid.dumps(wrapped)) == wrapped


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 15, 16, 17, 64, 511, 512, 513, 5000])
def test_dicts_of_every_size_come_back_and_are_found_in(count: int) -> None:
    for make in (lambda number: f"key {number}", lambda number: number, lambda number: (number, "x")):
        value = {make(number): number for number in range(count)}
        data = pellucid.dumps(value)
        assert list(pellucid.loads(data).items()) == list(value.items())
        record = pellucid.view(data)
        assert [record[key] for key in value] == list(value.values())
        assert make(count) not in record
        assert record.get(make(-1)) is None


def test_keys_of_a_keyed_map_are_found_as_in_a_dict() -> None:
    record = pellucid.view(pellucid.dumps({1: "int", "1": "str", (1, 2): "tuple", None: "none", 0.5: "half"}))
    assert record[1] == record[1.0] == record[True] == "int"
    assert (record["1"], record[(1, 2)], record[(1.0, 2)], record[None], record[0.5]) == (
        "str",
        "tuple",
        "tuple",
        "none",
        "half",
    )
    assert 2 not in record
    assert (1,) not in record


def test_shared_containers_are_copied_by_value() -> None:
    shared = [1]
    value = pellucid.loads(pellucid.dumps([shared, shared, {"a": shared}]))
    value[0].append(2)
    assert value == [[1, 2], [1], {"a": [1]}]


def test_containers_nest_64_deep_and_no_deeper() -> None:
    value: Any = 5
    for _ in range(64):
        value = [value]
    assert pellucid.loads(pellucid.dumps(value)) == value
    with pytest.raises(pellucid.RecordTooLarge, match="64"):
        pellucid.dumps([value])
    with pytest.raises(pellucid.RecordTooLarge, match="64"):
        pellucid.dumps({"a": {"b": (value,)}})


# Buffers


@pytest.fixture(params=["bytes", "bytearray", "memoryview", "mmap", "array", "slice", "numpy"])
def buffer_of(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    """Makes a buffer of one kind from bytes."""
    opened: list[Any] = []

    def make(data: bytes) -> Any:
        if request.param == "mmap":
            path = tmp_path / "data"
            path.write_bytes(data)
            with path.open("rb") as file:
                opened.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
            return opened[-1]
        return {
            "bytes": bytes,
            "bytearray": bytearray,
            "memoryview": memoryview,
            "array": lambda data: array.array("B", data),
            "slice": lambda data: memoryview(b"abc" + data + b"def")[3:-3],
            "numpy": lambda data: numpy.frombuffer(data, dtype="u1"),
        }[request.param](data)

    return make


def test_any_contiguous_buffer_is_read_in_place(buffer_of: Any) -> None:
    buffer = buffer_of(pellucid.dumps(SAMPLE))
    pellucid.validate(buffer)
    assert same(pellucid.loads(buffer), SAMPLE)
    record = pellucid.view(buffer)
    del buffer
    assert (record.name, record.mydict.c.list[1].c, record["keyed"][(1, "x")]) == ("Fred Bloggs", 3, 3)
    assert same(record.to_dict(), SAMPLE)


def test_a_buffer_that_is_not_contiguous_is_refused() -> None:
    data = pellucid.dumps([1, 2, 3])
    spread = memoryview(bytes(byte for pair in zip(data, data, strict=True) for byte in pair))[::2]
    for read in (pellucid.view, pellucid.loads, pellucid.validate):
        with pytest.raises((TypeError, BufferError), match="contiguous"):
            read(spread)
        with pytest.raises(TypeError):
            read("text")
        with pytest.raises(TypeError):
            read(5)


def test_a_view_keeps_its_buffer_and_cannot_be_changed() -> None:
    buffer = bytearray(pellucid.dumps(SAMPLE))
    record = pellucid.view(buffer)
    with pytest.raises(BufferError):
        buffer.append(1)
    for change in (
        lambda: setattr(record, "age", 1),
        lambda: record.mylist.append(1),
        lambda: record.mydict.update(a=2),
        record.clear,
    ):
        with pytest.raises(pellucid.ReadOnly, match="copy"):
            change()
    copied = record.copy()
    copied.age = 22
    record = change = None
    buffer.append(1)
    assert copied.age == 22
    assert pellucid.loads(buffer[:-1])["age"] == 21


def test_a_view_follows_a_buffer_that_others_write_to() -> None:
    buffer = bytearray(pellucid.dumps({"n": 1, "s": "text longer than a slot"}))
    record = pellucid.view(buffer)
    one, two = pellucid.dumps({"n": 1, "s": ""}), pellucid.dumps({"n": 2, "s": ""})
    place = next(place for place in range(16, len(one)) if one[place] != two[place])
    buffer[place] = 2
    assert record.n == 2
    # Whatever is written there: an answer or an error, never a crash.
    dice = random.Random(1)
    for _ in range(500):
        buffer[16:] = dice.randbytes(len(buffer) - 16)
        for use in (
            lambda: record.n,
            lambda: record.s,
            lambda: record["s"],
            record.to_dict,
            lambda: list(record),
        ):
            survive(use)


def test_what_is_no_envelope_is_corrupt() -> None:
    for data in (b"", b"\xf1", b"{}", b"\x00" * 100, pickle.dumps({}), pellucid.dumps({"a": 1})[:15]):
        for read in (pellucid.view, pellucid.loads, pellucid.validate):
            with pytest.raises(pellucid.CorruptRecord):
                read(data)


# Damage


def survive(use: Any) -> Any:
    """Whatever damaged bytes give: an answer, or an error that says so."""
    try:
        return use()
    except (pellucid.CorruptRecord, pellucid.PickleDenied, pellucid.UnregisteredType):
        return None
    except (KeyError, AttributeError, IndexError, TypeError):
        # A name or a kind was damaged: what is asked for is not there.
        return None
    except (MemoryError, zoneinfo.ZoneInfoNotFoundError):
        return None


def use_all(value: Any) -> None:
    """Touch everything that can be reached."""
    if isinstance(value, pellucid.Record):
        survive(lambda: [use_all(element) for element in value.values()])
        survive(lambda: [value[key] for key in value])
        survive(lambda: value.name)
        survive(lambda: value["keyed"][(1, "x")])
        survive(lambda: value == {"name": 1})
        survive(lambda: bytes(value))
        survive(lambda: value.copy().update(age=5))
        survive(value.to_dict)
    elif isinstance(value, (pellucid.RecordList, tuple)):
        survive(lambda: [use_all(element) for element in value])
        survive(lambda: repr(value))


# A damaged dtype may be one that NumPy has given up.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_flipped_byte_is_noticed_by_loads_and_survived_by_view() -> None:
    data = pellucid.dumps(SAMPLE)
    dice = random.Random(7)
    for place in range(len(data)):
        damaged = bytearray(data)
        damaged[place] ^= 1 << dice.randrange(8)
        with pytest.raises(pellucid.CorruptRecord):
            pellucid.validate(damaged)
        # The count of keys is said twice, and not looked at where tables of these bytes are known.
        value = survive(lambda: pellucid.loads(damaged))  # noqa: B023
        assert value is None or (place in (2, 3) and same(value, SAMPLE))
        use_all(survive(lambda: pellucid.view(damaged)))  # noqa: B023


# A damaged dtype may be one that NumPy has given up.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_damage_behind_a_right_checksum_is_survived() -> None:
    data = pellucid.dumps(SAMPLE)
    dice = random.Random(8)
    for place in range(16, len(data)):
        damaged = bytearray(data)
        damaged[place] = dice.choice([0, 1, 0x7F, 0x80, 0xFF, damaged[place] ^ 0x10, dice.randrange(256)])
        use_all(survive(lambda: pellucid.view(damaged)))  # noqa: B023


@settings(max_examples=300)
@given(st.binary(max_size=200))
@example(b"\xf1\x00")
def test_random_bytes_are_survived(tail: bytes) -> None:
    for data in (tail, pellucid.dumps({"a": 1, "b": [2]})[:20] + tail, b"\xf1\0\0\0\0\0\0\0" + tail):
        for read in (pellucid.view, pellucid.loads, pellucid.validate):
            use_all(survive(lambda: read(data)))  # noqa: B023


def test_a_cut_envelope_is_corrupt_wherever_it_was_cut() -> None:
    data = pellucid.dumps(SAMPLE)
    for size in range(len(data)):
        with pytest.raises(pellucid.CorruptRecord):
            pellucid.loads(data[:size])
        use_all(survive(lambda: pellucid.view(data[:size])))  # noqa: B023


def test_a_damaged_field_leaves_the_others_readable() -> None:
    data = bytearray(pellucid.dumps({"good": 1, "text": "x" * 30, "also": [1, 2]}))
    place = data.index(b"x" * 30)
    data[place] = 0xFF
    record = pellucid.view(data)
    with pytest.raises(pellucid.CorruptRecord):
        record.text
    assert (record.good, record.also) == (1, [1, 2])
    with pytest.raises(pellucid.CorruptRecord, match="checksum"):
        pellucid.loads(data)


# Pickle


class Plain:
    """A class that only pickle can store."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plain) and other.number == self.number

    __hash__ = None  # type: ignore[assignment]


class Malicious:
    """Runs code when it is unpickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (os.mkdir, (self.path,))


def test_by_default_nothing_is_pickled() -> None:
    with pytest.raises(pellucid.UnsupportedValue, match=r"\['a'\]\[1\].*Plain.*register.*pickle=\"allow\""):
        pellucid.dumps({"a": [0, Plain(1)]})
    with pellucid.open(":memory:") as db:
        with pytest.raises(pellucid.UnsupportedValue):
            db["k"] = Plain(1)
        db["k"] = {}
        with pytest.raises(pellucid.UnsupportedValue, match="Plain"):
            db["k"].x = Plain(1)
        assert db == {"k": {}}


def test_pickles_are_read_where_they_are_allowed() -> None:
    data = pellucid.dumps({"a": [Plain(1)], "n": 5, "o": collections.OrderedDict(x=1)}, pickle="allow")
    assert pellucid.loads(data, pickle="allow")["a"] == [Plain(1)]
    assert type(pellucid.loads(data, pickle="allow")["o"]) is collections.OrderedDict
    with pytest.raises(pellucid.PickleDenied, match="denied"):
        pellucid.loads(data)
    record = pellucid.view(data)
    with pytest.raises(pellucid.PickleDenied):
        record.a[0]
    assert record.n == 5


def test_no_code_of_a_stored_value_runs_unless_allowed(tmp_path: Path, path: Path) -> None:
    trap = tmp_path / "trap"
    data = pellucid.dumps({"a": Malicious(str(trap)), "n": 5}, pickle="allow")
    with pellucid.open(path, pickle="allow") as db:
        db["a"] = {"a": Malicious(str(trap)), "n": 5}
    with pellucid.open(path) as db:
        record = db["a"]
        for read in (
            lambda: record.a,
            record.to_dict,
            lambda: dict(record),
            lambda: list(record.values()),
            lambda: record == {},
            lambda: pickle.dumps(record),
            lambda: pellucid.loads(data),
            lambda: pellucid.view(data).a,
            lambda: db.table("default").column("a"),
        ):
            with pytest.raises(pellucid.PickleDenied):
                read()
        assert repr(record).startswith("<Record, PickleDenied: ")
        assert (record.n, list(record), db.table("default").sum("n")) == (5, ["a", "n"], 5)
        record.n = 6
        assert db["a"].n == 6
        pellucid.validate(data)
        db.check()
    with pytest.raises(pellucid.PickleDenied, match="mkdir"):
        pellucid.loads(data, pickle=["builtins.*"])
    assert not trap.exists()
    pellucid.loads(data, pickle="allow")
    assert trap.exists()


def test_a_list_of_globals_is_all_that_pickles_may_use() -> None:
    allowed = [f"{Plain.__module__}.*", "collections.OrderedDict"]
    data = pellucid.dumps([Plain(1), collections.OrderedDict(a=1)], pickle=allowed)
    assert pellucid.loads(data, pickle=allowed)[0] == Plain(1)
    with pytest.raises(pellucid.PickleDenied, match="OrderedDict"):
        pellucid.loads(data, pickle=allowed[:1])
    # What could not be read back is not written either.
    with pytest.raises(pellucid.PickleDenied, match="Fraction"):
        pellucid.dumps(types.SimpleNamespace(f=fractions.Fraction(1)), pickle=["types.SimpleNamespace"])


def test_pickle_policies_of_databases(path: Path) -> None:
    with pellucid.open(path, pickle="allow") as db:
        db["a"] = {"p": Plain(3), "n": 1}
        db["b"] = Plain(4)
        copied = db["a"].copy()
        copied.q = Plain(5)
        db["c"] = copied
        assert (db["a"].p, db["b"], db["c"].q) == (Plain(3), Plain(4), Plain(5))
    with pellucid.open(path, "r", pickle=[f"{Plain.__module__}.Plain"]) as db:
        assert db["a"].p == Plain(3)
    with pellucid.open(path) as db:
        with pytest.raises(pellucid.PickleDenied):
            db["b"]
        assert db["a"].n == 1
        del db["b"]
        assert list(db) == ["a", "c"]
    for wrong in ("yes", 5, [5]):
        with pytest.raises((ValueError, TypeError)):
            pellucid.open(path, pickle=wrong)
        with pytest.raises((ValueError, TypeError)):
            pellucid.dumps(1, pickle=wrong)


# Registered and described classes


class Point:
    def __init__(self, x: int, y: int) -> None:
        self.x, self.y = x, y

    def __eq__(self, other: object) -> bool:
        return type(other) is Point and (self.x, self.y) == (other.x, other.y)

    def __hash__(self) -> int:
        return hash((self.x, self.y))


@pytest.fixture
def registered() -> Iterator[None]:
    pellucid.register(Point, lambda point: (point.x, point.y), lambda pair: Point(*pair))
    yield
    from pellucid import objects

    del objects._BY_CLASS[Point], objects._BY_NAME[f"{Point.__module__}.{Point.__qualname__}"]


@pytest.mark.usefixtures("registered")
def test_registered_classes_come_back_as_themselves(db: pellucid.Database) -> None:
    value = {"p": Point(1, 2), "l": [Point(3, 4)], "k": {Point(5, 6): 1}, "s": {Point(7, 8)}}
    assert pellucid.loads(pellucid.dumps(value)) == value
    db["v"] = value
    assert db["v"].p == Point(1, 2)
    assert db["v"].k[Point(5, 6)] == 1
    db["v"].l.append(Point(9, 9))
    assert db["v"].l == [Point(3, 4), Point(9, 9)]
    db["v"].p = Point(0, 0)
    assert db["v"].p == Point(0, 0)
    assert db["v"].copy().s == {Point(7, 8)}


def test_a_registered_class_that_is_stored_as_a_dict_is_no_key(db: pellucid.Database) -> None:
    class Spot(Point): ...

    pellucid.register(Spot, vars, lambda fields: Spot(**fields))
    db["v"] = {"spot": Spot(1, 2)}
    assert vars(db["v"].spot) == {"x": 1, "y": 2}
    with pytest.raises(pellucid.UnsupportedValue, match="key"):
        db["w"] = {"by spot": {Spot(1, 2): 1}}
    with pytest.raises(pellucid.UnsupportedValue, match="key"):
        db["v"].spot = {Spot(1, 2): 1}


def test_an_unregistered_class_is_named(registered: None) -> None:
    from pellucid import objects

    data = pellucid.dumps({"p": Point(1, 2), "n": 5})
    decode = objects._BY_NAME.pop(f"{Point.__module__}.Point")
    try:
        with pytest.raises(pellucid.UnregisteredType, match="Point"):
            pellucid.view(data).p
        assert pellucid.view(data).n == 5
    finally:
        objects._BY_NAME[f"{Point.__module__}.Point"] = decode


def test_an_error_of_a_registered_function_comes_through() -> None:
    class Fails: ...

    def fail(_: object) -> None:
        raise ZeroDivisionError

    pellucid.register(Fails, fail, fail)
    with pytest.raises(ZeroDivisionError), pellucid.open(":memory:") as db:
        db["a"] = {"x": [Fails()]}
    with pytest.raises(TypeError, match="class"):
        pellucid.register("Fails", fail, fail)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "cls",
    [
        *(type(None), bool, int, float, complex, str, bytes, bytearray, list, tuple, dict, set, frozenset),
        *(dt.date, dt.datetime, dt.time, dt.timedelta, decimal.Decimal, uuid.UUID),
        *(numpy.ndarray, numpy.float64, numpy.datetime64),
    ],
)
def test_a_type_that_the_format_stores_is_not_registered(cls: type) -> None:
    with pytest.raises(ValueError, match=rf"classes of your own; \w+\.{cls.__name__} is stored as it is"):
        pellucid.register(cls, str, cls)


@dataclasses.dataclass
class Address:
    city: str
    tags: list[str] = dataclasses.field(default_factory=list)


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclasses.dataclass
class Person:
    name: str
    address: Address
    others: list[Address]
    color: Color = Color.RED
    maybe: Address | None = None


class Pair(NamedTuple):
    left: int
    right: Address


@attrs.define
class Attrs:
    a: int
    b: list[int]


PERSON = Person("Ann", Address("Bath", ["x"]), [Address("York")], Color.BLUE, Address("Wells"))


def test_described_classes_are_stored_as_dicts(db: pellucid.Database) -> None:
    db["p"] = PERSON
    db["pair"] = Pair(1, Address("Bath"))
    db["attrs"] = Attrs(1, [2])
    db["color"] = Color.RED
    assert db["p"].address.city == "Bath"
    assert db["p"].color == "blue"
    assert dict(db) == {
        "attrs": {"a": 1, "b": [2]},
        "color": "red",
        "p": {
            "name": "Ann",
            "address": {"city": "Bath", "tags": ["x"]},
            "others": [{"city": "York", "tags": []}],
            "color": "blue",
            "maybe": {"city": "Wells", "tags": []},
        },
        "pair": {"left": 1, "right": {"city": "Bath", "tags": []}},
    }


def test_a_table_with_a_type_gives_its_instances(db: pellucid.Database) -> None:
    people = db.table("people", type=Person)
    people["ann"] = PERSON
    people["bob"] = dataclasses.replace(PERSON, name="Bob", maybe=None)
    assert people["ann"] == PERSON
    assert [person.name for person in people.values()] == ["Ann", "Bob"]
    assert dict(people.items())["bob"].maybe is None
    assert people.get("ann") == people.pop("ann") == PERSON
    assert db.table("people")["bob"].name == "Bob"
    pairs = db.table("pairs", type=Pair)
    pairs[1] = Pair(1, Address("Bath"))
    assert pairs[1] == Pair(1, Address("Bath"))
    assert type(pairs[1]) is Pair
    colors = db.table("colors", type=Color)
    colors[1] = Color.BLUE
    assert colors[1] is Color.BLUE
    described = db.table("attrs", type=Attrs)
    described[1] = Attrs(1, [2])
    assert described[1] == Attrs(1, [2])


def test_a_long_list_of_dicts_has_the_bytes_that_its_dicts_have_elsewhere() -> None:
    text = "some text "
    values: list[Any] = [None, True, "", "a", "ab", text * 12, 0, 1.5]
    values += [edge for bits in (7, 8, 15, 31, 62) for edge in ((1 << bits) - 1, 1 << bits, -1 << bits)]
    simple = values.copy()
    values += [text * 13, text * 2000, "\xe9", "\ud800", b"bytes", 1 << 63, 1 << 70, (1, 2), {"a": 1}, [], {}]
    chance = random.Random(11)
    sizes = (1, 2, 3, 7, 8, 9, 17, 23, 24, 25, 26)
    kinds = [[f"k{chance.randrange(30)}" for _ in range(size)] for size in sizes]
    for length in (15, 16, 17, 200):
        for strange in (0.0, 0.05, 0.9):
            rows: list[Any] = []
            while len(rows) < length:
                names = kinds[0] if chance.random() < strange else kinds[len(rows) // 9 % len(kinds)]
                rows.append({name: chance.choice(simple if strange < 0.5 else values) for name in names})
                if chance.random() < strange / 3:
                    rows.append(chance.choice(values))
            rows[0] = dict.fromkeys(kinds[3], 1)
            packed = pellucid.dumps(rows)
            pellucid.validate(packed)
            assert repr(pellucid.loads(packed)) == repr(rows)
            # A tuple is never looked at ahead; apart from checksum and kind it has the same bytes.
            one_by_one = bytearray(pellucid.dumps(tuple(rows)))
            kind_at = 16 + int.from_bytes(packed[4:8], "little")
            assert one_by_one[kind_at] >> 4 == 4
            one_by_one[8:16], one_by_one[kind_at] = packed[8:16], 3 << 4 | 1
            assert one_by_one == packed


@pytest.mark.parametrize(
    "value", [{"a": 1, "b": "a longer text", "c": [1, {"x": 2}]}, [1, 2, 3] * 50, {1: "x" * 40}]
)
def test_bytes_that_were_cut_off_say_how_many_there_are(value: Any) -> None:
    data = pellucid.dumps(value)
    for size in range(1, len(data)):
        for read in (pellucid.loads, pellucid.validate):
            with pytest.raises(
                pellucid.CorruptRecord, match=rf"cut off: {size} of (at least )?\d+ bytes"
            ) as cut_off:
                read(data[:size])
            least, whole = re.findall(r"of (at least )?(\d+) bytes", str(cut_off.value))[0]
            assert size < int(whole) <= len(data)
            assert least or int(whole) == len(data)
    with pytest.raises(pellucid.CorruptRecord, match="checksum"):
        pellucid.loads(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(pellucid.CorruptRecord, match="do not begin"):
        pellucid.loads(b"")


class Pytz(dt.tzinfo):
    """As the zones of pytz: one that knows its name by `zone`."""

    zone = "Asia/Tokyo"

    def utcoffset(self, moment: dt.datetime | None) -> dt.timedelta | None:
        # The first offset of the zone, which such a zone has where `localize` was forgotten.
        return None if moment is None else dt.timedelta(hours=9, minutes=19)

    def dst(self, _moment: dt.datetime | None) -> None:
        return None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (
            dt.datetime(2024, 1, 1, 5, tzinfo=dateutil.tz.tzstr("EST5EDT")),
            "is of type datetime.datetime with a time zone of type dateutil.tz.tz.tzstr, and only",
        ),
        (
            dt.datetime(2024, 1, 1, 5, tzinfo=Pytz()),
            'store value.astimezone(zoneinfo.ZoneInfo("Asia/Tokyo")), or',
        ),
    ],
)
def test_a_time_with_a_zone_of_another_library_says_how_to_store_it(value: Any, says: str) -> None:
    with pytest.raises(pellucid.UnsupportedValue) as refused:
        pellucid.dumps({"at": value})
    message = str(refused.value)
    assert says in message
    assert "register(" not in message
    # What it says is true.
    advice = re.findall(r"value\.(?:astimezone|replace)\((?:[^()]|\([^()]*\))*\)", message)
    assert len(advice) == 2
    for text in advice:
        stored = eval(text, {"value": value, "zoneinfo": zoneinfo, "datetime": dt})  # noqa: S307
        restored = pellucid.loads(pellucid.dumps(stored))
        assert restored == stored
        assert isinstance(value, dt.time) or restored == value
    if isinstance(value, dt.datetime):
        with pytest.raises(
            pellucid.UnsupportedKey, match=r"use\s+key\.astimezone\(zoneinfo\.ZoneInfo\("
        ) as as_key:
            pellucid.open(":memory:")[value] = 1
        assert "key.astimezone(datetime.timezone.utc)" in str(as_key.value)


def test_a_value_of_an_unlike_type_is_refused_with_the_ways_out() -> None:
    class Words(list):
        pass

    for value, instead in (
        (collections.ChainMap(), "dict(value)"),
        (Words(), "list(value)"),
        (memoryview(array.array("i", [1])), "bytes(value)"),
        (object(), "plain values"),
    ):
        with pytest.raises(pellucid.UnsupportedValue) as refused:
            pellucid.dumps([value])
        assert f"; store {instead}, register the class with pellucid.register(" in str(refused.value)
        assert 'pickle="allow"' in str(refused.value)
        assert "runs code of its author" in str(refused.value)
