"""Do small hostile bytes cost more than their size, and is all damage CorruptRecord, for whoever looks?"""

from __future__ import annotations

import array
import datetime
import decimal
import io
import itertools
import os
import struct
import subprocess
import sys
import textwrap
import time
import uuid
import zoneinfo
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy
import pellucid
import pyarrow
import pytest
from pellucid import F, objects

READERS = (pellucid.view, pellucid.loads, pellucid.validate)
# What took minutes, or forever, takes milliseconds; the rest is for busy machines.
SECONDS_MAX = 5.0


def bounded(work: Callable[[], object]) -> object:
    began = time.perf_counter()
    result = work()
    assert time.perf_counter() - began < SECONDS_MAX
    return result


def envelope(record: bytes) -> bytes:
    """Without tables; the checksum is wrong, which a view does not look at."""
    return b"\xf1\x00" + bytes(14) + record


def list_of(*heap: tuple[int, bytes]) -> bytes:
    """A root list whose slots, tag and payload, refer to bytes one behind the other."""
    assert len(heap) <= 8
    head = b"\x31\x03\x00\x00" + struct.pack("<I", len(heap)) + bytes(tag for tag, _ in heap)
    offset, slots = 8 + 9 * len(heap), b""
    for _, payload in heap:
        slots += struct.pack("<II", offset, len(payload))
        offset += len(payload)
    return head + slots + b"".join(payload for _, payload in heap)


# Containers that share bytes


def tuples_that_share(depth: int, inner: bytes = b"\x04\x00") -> bytes:
    """Both slots of each tuple refer to the next tuple."""
    return envelope(list_of((0x50, b"\x04\x02\x50\x50\x06\x06" * depth + inner)))


@pytest.mark.parametrize("depth", [1, 20, 60])
@pytest.mark.parametrize("inner", [b"\x04\x00", b"\x03\x00", b"\x06\x00", b"\x04\x01\x04\x07"])
def test_tuples_that_share_bytes_are_damage(depth: int, inner: bytes) -> None:
    data = tuples_that_share(depth, inner)
    rows: Any = pellucid.view(data)
    reads: list[Callable[[], object]] = [
        lambda: rows[0],
        lambda: list(rows),
        lambda: rows[:],
        lambda: rows[::-1],
        lambda: next(iter(rows)),
        rows.to_list,
        rows.copy,
        lambda: rows == [1],
        lambda: list(pellucid.view(envelope(data[16 + 17 :]))),
    ]
    for read in reads:
        with pytest.raises((pellucid.CorruptRecord, TypeError)):
            bounded(read)


def shared_strings(kind: int, count: int, text: bytes) -> bytes:
    """A root list, tuple or keyed map whose `count` slots are one string."""
    entries = count // 2 if kind == 2 else count
    head = bytes([kind << 4 | 1, 3, 0, 0]) + struct.pack("<I", entries)
    index = b"" if kind != 2 or entries < 9 else bytes(8 * entries)
    offset = 8 + 9 * count + len(index)
    slot = struct.pack("<II", offset, len(text))
    blocks = b""
    for first in range(0, count, 8):
        rest = min(8, count - first)
        blocks += b"\x40" * rest + slot * rest
    return envelope(head + blocks + index + text)


@pytest.mark.parametrize("kind", [2, 3, 4])
def test_elements_that_share_bytes_are_not_copied_one_by_one(kind: int) -> None:
    # All of them together would take 40 GB.
    data = shared_strings(kind, 40_000, b"x" * 1_000_000)
    if kind == 4:
        with pytest.raises(pellucid.CorruptRecord):
            bounded(lambda: pellucid.view(data))
        return
    rows: Any = pellucid.view(data)
    reads: list[Callable[[], object]]
    if kind == 3:
        assert len(rows[5]) == 1_000_000
        reads = [lambda: list(rows), lambda: rows[:], lambda: rows[1::3], lambda: rows[::-1], rows.to_list]
    else:
        reads = [lambda: list(rows), lambda: list(rows.values()), lambda: list(rows.items()), rows.to_dict]
    for read in reads:
        with pytest.raises(pellucid.CorruptRecord):
            bounded(read)


def test_a_key_without_a_hash_is_damage_however_it_is_read() -> None:
    data = pellucid.dumps({frozenset(["a text of some length"]): 1, 2: 3})
    # The head of the frozenset, as that of a set.
    assert data.count(b"\x06\x01") == 1
    record: Any = pellucid.view(envelope(data[16:].replace(b"\x06\x01", b"\x05\x01")))
    assert len(record) == 2
    reads: list[Callable[[], object]] = [
        lambda: list(record),
        lambda: list(record.keys()),
        lambda: list(record.values()),
        lambda: list(record.items()),
        lambda: {**record},
        record.to_dict,
    ]
    for read in reads:
        with pytest.raises(pellucid.CorruptRecord, match="unhashable"):
            read()


def test_slices_and_iteration_are_those_of_a_list() -> None:
    values = [
        1,
        "text of some length",
        (2, [3], ("x", {"a": 1})),
        {"b": [4]},
        [5.5] * 3,
        None,
        {6},
        (7, "y" * 20),
    ]
    rows: Any = pellucid.view(pellucid.dumps({"in": [values, values]}))["in"][1]
    bounds = [None, *range(-10, 11)]
    for start, stop, step in itertools.product(bounds, bounds, (None, -3, -2, -1, 1, 2, 5)):
        assert rows[start:stop:step] == values[start:stop:step]
    assert list(rows) == values
    iterator = iter(rows)
    assert [next(iterator) for _ in values] == values
    db = pellucid.open(":memory:")
    db["a"] = list(range(4))
    numbers, seen = db["a"], []
    for number in numbers:
        seen.append(number)
        if seen == [0, 1]:
            numbers.insert(0, 9)
        if number == 3 and len(numbers) < 6:
            numbers.append(4)
    assert seen == [0, 1, 1, 2, 3, 4]


def test_queries_go_into_no_bytes_twice(path: Path) -> None:
    value = {"x": [[(1, "long enough")], [(2, "long enough")]], "y": {"a": [1], "b": ("c",)}}
    with pellucid.open(path) as db:
        table = db.table("t")
        table["a"] = value
        assert table.where(F.x.each().each().each() == 2).count() == 1
        assert table.where(F.x.each().each().each() == "long enough").count() == 1
        assert table.where(F.y.contains("b")).count() == 1
        assert table.where(F.x.contains([(2, "long enough")])).count() == 1
        assert table.where(F.x.contains([(3, "long enough")])).count() == 0


# What a view remembers


def test_what_views_remember_is_bounded() -> None:
    script = """
        import resource, struct, sys
        import pellucid

        def memory():
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            return peak if sys.platform == "darwin" else peak * 1024

        def tables(number, count=100):
            # Keys of two characters; each shape has all of them, rotated, so that none is another.
            names = [bytes([33 + j % 90, 33 + (number * 7 + j // 90) % 90]) for j in range(count)]
            keys = b"".join(bytes([len(name)]) + name for name in names)
            shapes, order = b"", bytes(range(count))
            while len(keys) + len(shapes) + count < 16_000:
                turn = (number + len(shapes)) % count
                shapes += bytes([count]) + order[turn:] + order[:turn]
            return count, keys + shapes

        record = pellucid.dumps([1, 2, 3])
        record = record[16 + struct.unpack("<I", record[4:8])[0]:]
        before = memory()
        for number in range(700):
            count, both = tables(number)
            head = b"\\xf1\\x00" + struct.pack("<HIQ", count, len(both), number)
            unique = b"\\x03%03d" % number
            assert pellucid.view(head + unique + both + record)[0] == 1
        print((memory() - before) >> 20)
    """
    script = script.replace("count, len(both)", "count + 1, len(both) + 4")
    environment = {**os.environ, "PYTHONMALLOC": "malloc"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        env=environment,
        check=True,
    )
    assert int(done.stdout) < 100


# Numbers of many digits


def test_decimals_of_very_many_digits_are_compared_and_computed_in_time() -> None:
    table = pellucid.open(":memory:").table("t")
    count = 400_000
    value = decimal.Decimal("7" * count)
    table["a"] = {"x": value, "y": decimal.Decimal("0." + "7" * count), "i": 10**5000}
    for query, found in (
        (F.x > 1, 1),
        (F.x == value, 1),
        (F.x < value, 0),
        (F.x > 10**5000, 1),
        (F.y > 0.5, 1),
        (F.y < F.x, 1),
        (F.y == 0.7777, 0),
        (F.x + F.y > 0, 1),
        (F.x * F.y > 0, 1),
        (F.i < F.x, 1),
    ):
        assert bounded(table.where(query).count) == found
    # Digits beyond those that a result has are rounded, as Python does it.
    total = bounded(lambda: table.select(s=F.x + 1, p=F.x * 2, q=F.x / 3).to_dicts()[0])
    assert total == {"s": value + 1, "p": value * 2, "q": value / 3}


def test_sets_are_compared_in_the_time_of_sorting() -> None:
    table = pellucid.open(":memory:").table("t")
    numbers = set(range(60_000))
    table["a"] = {"s": numbers, "d": dict.fromkeys(map(str, numbers), 1), "f": frozenset(range(1, 60_001))}
    assert bounded(table.where(F.s == numbers).count) == 1
    assert bounded(table.where(F.s == F.f).count) == 0
    assert bounded(table.where(F.d == dict.fromkeys(map(str, reversed(range(60_000))), 1)).count) == 1


# What validate accepts, loads takes


class Odd:
    """Stored as the array that a test says."""


def array_of(described: Any, shape: list[int], flags: int, data: bytes) -> bytes:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(objects, "encode", lambda _value, *_rest: ("array", described, shape, flags, data))
        return pellucid.dumps([Odd()])


def agreed(data: bytes) -> bool:
    """Whether `validate` and `loads` take the bytes."""
    try:
        pellucid.validate(data)
    except pellucid.CorruptRecord:
        with pytest.raises(pellucid.CorruptRecord):
            pellucid.loads(data)
        with pytest.raises(pellucid.CorruptRecord):
            pellucid.view(data)[0]
        return False
    pellucid.loads(data)
    pellucid.view(data)[0]
    return True


FIELD = ("a", "<i4")


@pytest.mark.parametrize(
    ("described", "shape", "flags", "data", "is_sound"),
    [
        ("<i8", [3], 0, bytes(24), True),
        ("<i8", [], 2, bytes(8), True),
        ("<U2", [2], 0, bytes(16), True),
        ("|S0", [2], 0, b"", True),
        ("|V0", [], 2, b"", True),
        ("|S0", [], 2, b"\0", True),
        ("<U0", [], 2, b"\0\0\0\0", True),
        ("|S0", [], 2, b"x", False),
        ("<M8[25us]", [1], 0, bytes(8), True),
        ([FIELD, ("b", [("c", "|S3", (2, 2))])], [1], 0, bytes(16), True),
        ([(("title", "a"), "<i4")], [1], 0, bytes(4), True),
        ([], [3], 0, b"", True),
        ("<i8", [0, 2**30], 0, b"", True),
        ("<q9", [3], 0, bytes(24), False),
        ("<i8", [3], 0, bytes(48), False),
        ("<i8", [3], 0, bytes(3), False),
        ("<i8", [1], 2, bytes(8), False),
        ("<i8", [-1], 0, b"", False),
        ("<i8", [0, 2**62, 2**62], 0, b"", False),
        ("<i8", [1] * 65, 0, bytes(8), False),
        ("O", [1], 0, bytes(8), False),
        ("|O", [1], 0, bytes(8), False),
        ("i8,i8", [1], 0, bytes(16), False),
        ("float64", [1], 0, bytes(8), False),
        ("<U600000000", [0], 0, b"", False),
        ("<M8[B]", [1], 0, bytes(8), False),
        ([FIELD, FIELD], [1], 0, bytes(8), False),
        ([("", "<i4")], [1], 0, bytes(4), False),
        ([("a", "|O")], [1], 0, bytes(8), False),
        ([(1, "<i4")], [1], 0, bytes(4), False),
        ([("a", "<i4", 2)], [1], 0, bytes(8), False),
        ([("a", "<i4", (-1,))], [0], 0, b"", False),
        ([("a", "<i4", (2**31,))], [0], 0, b"", False),
        ([("a", "|V2000000000"), ("b", "|V2000000000")], [0], 0, b"", False),
        ([["a", "<i4"]], [1], 0, bytes(4), False),
        ((FIELD,), [1], 0, bytes(4), False),
        (5, [1], 0, bytes(4), False),
        ({"names": ["a"]}, [1], 0, bytes(4), False),
    ],
)
def test_arrays_are_checked_without_numpy(
    described: Any, shape: list[int], flags: int, data: bytes, is_sound: bool
) -> None:
    assert agreed(array_of(described, shape, flags, data)) == is_sound


def test_arrays_and_scalars_without_bytes_come_back() -> None:
    for value in (
        numpy.bytes_(b""),
        numpy.str_(""),
        numpy.void(b""),
        numpy.zeros(3, "S0"),
        numpy.zeros(2, []),
    ):
        data = pellucid.dumps([value])
        pellucid.validate(data)
        back = pellucid.loads(data)[0]
        assert (type(back), back.dtype, back.shape) == (type(value), value.dtype, value.shape)


@pytest.mark.parametrize("value", [b"\1\0", b"\0", b"a", "a\0", "\0\0", "\ud800a\U0001f600\0"], ids=ascii)
def test_texts_of_numpy_keep_the_nuls_at_their_end(value: Any) -> None:
    scalar = numpy.str_(value) if isinstance(value, str) else numpy.bytes_(value)
    back = pellucid.loads(pellucid.dumps(scalar))
    assert (type(back), back.dtype) == (type(scalar), scalar.dtype)
    assert list(back) == list(value)


@pytest.mark.parametrize(
    ("text", "is_sound"),
    [
        *((text, True) for text in ("1.50", "-0", "NaN", "-NaN12", "sNaN", "Infinity", "1E+5", "0E-7")),
        *((text, True) for text in ("9E+999999999999999999", "1E-1999999999999999997")),
        *((text, False) for text in ("12xNaN", "NaNx", "", "-", "1.", ".5", "1e", "1_0", " 1", "1E5", "--1")),
        *(
            (text, False)
            for text in ("1E+1000000000000000000", "10E+999999999999999999", "0E+1000000000000000000")
        ),
        *((text, False) for text in ("1E-1999999999999999998", "1.0E-1999999999999999997", "\u0661")),
    ],
)
def test_decimals_are_checked_without_decimal(text: str, is_sound: bool) -> None:
    fake = type("Decimal", (), {"__str__": lambda _self: text})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decimal, "Decimal", fake)
        data = pellucid.dumps([fake()])
    assert agreed(data) == is_sound


@pytest.mark.parametrize(
    "key", ["", "/etc/passwd", "../zone", "a//b", "a/./b", "a/..", "a\0b", "C:b", "a\\b", "."]
)
def test_keys_of_zones_are_paths_of_zones(key: str) -> None:
    moment = datetime.datetime(2020, 1, 1, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin"))
    data = bytearray(pellucid.dumps([moment]))
    place = data.index(b"Europe/Berlin")
    data[place : place + 13] = key.encode()[:13].ljust(13, b"/")
    with pytest.raises(pellucid.CorruptRecord):
        pellucid.view(data)[0]


def test_a_zone_of_a_file_with_a_key_of_its_own_is_stored_as_its_offset() -> None:
    # No zone would be found by such a key again.
    one_hour = (
        b"TZif"
        + bytes(16)
        + struct.pack(">6l", 0, 0, 0, 0, 1, 4)
        + struct.pack(">lbB", 3600, 0, 0)
        + b"ONE\0"
    )
    own = zoneinfo.ZoneInfo.from_file(io.BytesIO(one_hour), key="../one")
    stored = pellucid.loads(pellucid.dumps([datetime.datetime(2020, 1, 1, tzinfo=own)]))[0]
    assert stored.tzinfo == datetime.timezone(datetime.timedelta(hours=1))
    found = zoneinfo.ZoneInfo("Europe/Berlin")
    assert pellucid.loads(pellucid.dumps([datetime.datetime(2020, 1, 1, tzinfo=found)]))[0].tzinfo is found


def test_what_has_no_hash_is_no_key() -> None:
    for key, is_sound in (
        (decimal.Decimal("NaN"), True),
        (numpy.float64(1.5), True),
        (uuid.UUID(int=5), True),
    ):
        assert agreed(pellucid.dumps([{key: 1, (key,): 2}])) == is_sound


# Buffers


@pytest.mark.parametrize("read", READERS)
def test_what_cannot_be_read_as_bytes_is_a_type_error(read: Callable[[Any], object]) -> None:
    data = pellucid.dumps([1, 2])
    released = memoryview(data)
    released.release()
    strange: list[Any] = [
        array.array("i", [1, 2]),
        array.array("d", [1.0]),
        memoryview(data)[::2],
        memoryview(bytes(16)).cast("I"),
        numpy.arange(5),
        numpy.zeros((4, 4), "u1")[:, 1],
        released,
        "text",
        5,
        None,
        [1],
    ]
    for buffer in strange:
        with pytest.raises(TypeError):
            read(buffer)
    for buffer in (bytearray(data), memoryview(data), array.array("B", data), numpy.frombuffer(data, "u1")):
        read(buffer)


# Arrow data that takes no bytes


def zero_lists(length: int) -> pyarrow.Array:
    return pyarrow.Array.from_buffers(
        pyarrow.list_(pyarrow.null(), 0), length, [None], children=[pyarrow.nulls(0)]
    )


def nulls(length: int) -> pyarrow.Array:
    # Not pyarrow.nulls, which takes an eighth of a byte for each.
    return pyarrow.Array.from_buffers(pyarrow.null(), length, [None])


def struct_of(length: int, **columns: pyarrow.Array) -> pyarrow.Array:
    fields = [pyarrow.field(name, column.type) for name, column in columns.items()]
    return pyarrow.Array.from_buffers(pyarrow.struct(fields), length, [None], children=list(columns.values()))


HUGE = 2**40
FREE: dict[str, Callable[[int], pyarrow.Array]] = {
    "lists of size 0": zero_lists,
    "lists of size 0 in a struct": lambda length: struct_of(length, a=zero_lists(length)),
    "nulls": nulls,
    "nulls in a struct": lambda length: struct_of(length, a=nulls(length)),
    "structs without fields": struct_of,
    "bytes of size 0": lambda length: pyarrow.Array.from_buffers(
        pyarrow.binary(0), length, [None, pyarrow.py_buffer(b"")]
    ),
    "lists of many nulls": lambda length: pyarrow.Array.from_buffers(
        pyarrow.large_list(pyarrow.null()),
        1,
        [None, pyarrow.py_buffer(struct.pack("<qq", 0, length))],
        children=[nulls(length)],
    ),
    "lists of a fixed size of nulls": lambda length: pyarrow.Array.from_buffers(
        pyarrow.list_(pyarrow.null(), 2**20), length >> 20, [None], children=[nulls(length)]
    ),
    "one run": lambda length: pyarrow.RunEndEncodedArray.from_arrays(
        pyarrow.array([length], pyarrow.int64()), pyarrow.array([1])
    ),
}


class Handed:
    """Hands an array over, as any library does."""

    def __init__(self, array: pyarrow.Array) -> None:
        self.array = array

    def __arrow_c_array__(self, requested: object = None) -> object:
        return self.array.__arrow_c_array__(requested)


@pytest.mark.parametrize("name", FREE)
def test_lengths_that_cost_nothing_are_bounded(name: str) -> None:
    table = pellucid.open(":memory:").table("t")
    with pytest.raises(pellucid.StreamError, match="smaller batches"):
        bounded(lambda: table.extend(Handed(FREE[name](HUGE))))
    assert len(table) == 0


def test_columns_without_data_are_stored() -> None:
    table = pellucid.open(":memory:").table("t")
    table.extend(pyarrow.table({"a": pyarrow.nulls(20_000), "b": pyarrow.array([True] * 20_000)}))
    assert (len(table), table[19_999]) == (20_000, {"a": None, "b": True})
    assert table.extend(Handed(struct_of(3, a=zero_lists(3)))) == 3
    assert table[20_002] == {"a": []}
    # All rows are one value, which is written for each; no more than some of them at a time.
    words = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 3_000, pyarrow.int32()), ["x" * 30_000])
    assert table.extend(pyarrow.table({"w": words})) == 3_000
    assert len(table[23_002].w) == 30_000
