"""Is a value written as the JSON that Python's encoder writes of what the docs say stands for it?"""

from __future__ import annotations

import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import ipaddress
import json
import math
import pathlib
import subprocess
import sys
import uuid
from typing import Any

import numpy
import orjson
import pellucid
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pellucid import F

ZONE = datetime.timezone(datetime.timedelta(hours=-3, minutes=-30))
# What JSON has as it is. Strings with quotes, controls and characters beyond ASCII take other ways.
texts = st.text(st.characters(exclude_categories=["Cs"])) | st.sampled_from(
    ['"', "\\", "\x00\x1f\x7f", "\u00e9", "\U0001f600" * 9]
)
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | texts
)
documents = st.dictionaries(
    texts,
    st.recursive(scalars, lambda part: st.lists(part) | st.dictionaries(texts, part), max_leaves=12),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)
@given(document=documents)
def test_the_json_of_a_record_reads_as_the_record(db: pellucid.Database, document: dict[str, Any]) -> None:
    db["row"] = document
    written = pellucid.json_bytes(db["row"])
    assert json.loads(written) == document
    assert pellucid.json_dumps(db["row"]) == written.decode()
    # What was never stored has the same JSON.
    assert pellucid.json_bytes(document) == written
    assert (
        pellucid.json_bytes([db["row"], {"in": db["row"]}]) == b"[" + written + b',{"in":' + written + b"}]"
    )


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Pet:
    name: str


VALUES = {
    "date": (datetime.date(1, 2, 3), "0001-02-03"),
    "datetime": (datetime.datetime(2024, 5, 17, 1, 2, 3), "2024-05-17T01:02:03"),
    "micros": (datetime.datetime(2024, 5, 17, 1, 2, 3, 40), "2024-05-17T01:02:03.000040"),
    "aware": (datetime.datetime(2024, 5, 17, 1, tzinfo=ZONE), "2024-05-17T01:00:00-03:30"),
    "time": (datetime.time(23, 59, 59, 999999), "23:59:59.999999"),
    "time with a zone": (datetime.time(1, tzinfo=datetime.timezone.utc), "01:00:00+00:00"),
    "timedelta": (datetime.timedelta(days=1, seconds=5, microseconds=500_000), "P1DT5.5S"),
    "negative": (datetime.timedelta(seconds=-1), "-PT1S"),
    "decimal": (decimal.Decimal("1.10"), "1.10"),
    "uuid": (uuid.UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    "bytes": (b"\x00\xff!", "AP8h"),
    "bytearray": (bytearray(b"ab"), "YWI="),
    "tuple": ((1, "a"), [1, "a"]),
    "set": ({7}, [7]),
    "frozenset": (frozenset({7}), [7]),
    "array": (numpy.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
    "float32": (numpy.array([0.5], "float32"), [0.5]),
    "scalar of NumPy": (numpy.int64(5), 5),
    "times of pandas": (numpy.array(["2020-01-02T03:04:05", "NaT"], "M8[ns]"), ["2020-01-02T03:04:05", None]),
    "nanoseconds": (numpy.array([1], "M8[ns]"), ["1970-01-01T00:00:00.000000001"]),
    "a span of NumPy": (numpy.timedelta64(1500, "ns") * 2, "PT0.000003S"),
    "nan": (math.nan, None),
    "infinity": (-math.inf, None),
    "nested nan": ([math.inf, 1.5], [None, 1.5]),
    "half a pair": ("a\ud800b", "a\ud800b"),
    "an enum": (Colour.RED, "red"),
    "a dataclass": (Pet("Rex"), {"name": "Rex"}),
    "a path": (pathlib.PurePosixPath("a/b"), "a/b"),
    "a fraction": (fractions.Fraction(1, 3), "1/3"),
    "an address": (ipaddress.ip_address("::1"), "::1"),
    "a deque": (collections.deque([1, 2]), [1, 2]),
    "a range": (range(3), [0, 1, 2]),
    "keys that are numbers": (
        {1: "a", 2.5: "b", None: "c", False: "d"},
        {"1": "a", "2.5": "b", "null": "c", "false": "d"},
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_what_json_lacks_is_written_as_documented(db: pellucid.Database, name: str) -> None:
    value, expected = VALUES[name]
    db["row"] = {"value": value}
    for written in (pellucid.json_bytes(db["row"]), pellucid.json_bytes({"value": value})):
        assert json.loads(written) == {"value": expected}


def test_an_int_of_any_size_is_a_number(db: pellucid.Database) -> None:
    db["row"] = {"n": 10**5000, "m": -(2**64)}
    expected = b'{"n":1' + b"0" * 5000 + b',"m":-18446744073709551616}'
    assert pellucid.json_bytes(db["row"]) == pellucid.json_bytes({"n": 10**5000, "m": -(2**64)}) == expected


def test_a_query_and_a_table_are_a_list_and_an_object(db: pellucid.Database) -> None:
    table = db.table("people")
    table.update({"ann": {"age": 30}, "bob": {"age": 20}})
    assert json.loads(pellucid.json_bytes(table.where(F.age > 25))) == [{"age": 30}]
    assert json.loads(pellucid.json_bytes(table.select("age"))) == [{"age": 30}, {"age": 20}]
    assert json.loads(pellucid.json_bytes(table)) == {"ann": {"age": 30}, "bob": {"age": 20}}
    assert pellucid.json_bytes(table.where(F.age > 90)) == b"[]"


def test_a_list_and_a_large_value_are_written_from_where_they_are(db: pellucid.Database) -> None:
    db["row"] = {"long": "x" * 100_000, "bytes": b"\x01" * 40_000, "list": [1, [], {}], "none": {}}
    found = json.loads(pellucid.json_bytes(db["row"]))
    assert (len(found["long"]), len(found["bytes"]), found["list"], found["none"]) == (
        100_000,
        53_336,
        [1, [], {}],
        {},
    )
    assert pellucid.json_bytes(db["row"].list) == b"[1,[],{}]"


def test_a_deleted_field_leaves_no_trace(db: pellucid.Database) -> None:
    db["row"] = {"a": 1, "b": 2}
    del db["row"].a
    assert pellucid.json_bytes(db["row"]) == b'{"b":2}'
    del db["row"].b
    assert pellucid.json_bytes(db["row"]) == b"{}"


REFUSED = [
    (complex(1, 2), "complex"),
    ({b"a": 1}, "names in JSON are texts"),
    ({(1, 2): 1}, "names in JSON are texts"),
    ({1: "a", "1": "b"}, 'two keys that are the name "1"'),
]


@pytest.mark.parametrize(("value", "why"), REFUSED)
def test_what_has_no_json_is_refused_with_its_place(db: pellucid.Database, value: Any, why: str) -> None:
    db["row"] = {"a": [0, value]}
    for written in (db["row"], {"a": [0, value]}):
        with pytest.raises(TypeError, match=why) as raised:
            pellucid.json_bytes(written)
        assert isinstance(raised.value, pellucid.UnsupportedValue)
        assert '["a"][1]' in str(raised.value) or "['a'][1]" in str(raised.value)


def test_a_dict_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    with pytest.raises(pellucid.UnsupportedValue, match="contains itself"):
        pellucid.json_bytes(loop)


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_what_nests_as_deeply_as_it_may_needs_no_large_stack() -> None:
    in_small_thread = (
        "import threading, pellucid\n"
        "value = 1\n"
        "for _ in range(250): value = [value]\n"
        "threading.stack_size(256 << 10)\n"
        "thread = threading.Thread(target=lambda: print(pellucid.json_bytes(value).decode()))\n"
        "thread.start(), thread.join()"
    )
    done = subprocess.run([sys.executable, "-c", in_small_thread], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == nested(250)
    with pytest.raises(pellucid.UnsupportedValue, match="nested more than 250 deep"):
        pellucid.json_bytes(nested(252))


def test_other_encoders_take_what_stands_for_a_value(db: pellucid.Database) -> None:
    db["row"] = {"on": datetime.date(2024, 5, 17), "of": decimal.Decimal("1.10"), "tags": {"a"}}
    for value in (db["row"], [db["row"]], db.table("default").where()):
        expected = json.loads(pellucid.json_bytes(value))
        assert json.loads(json.dumps(value, default=pellucid.to_builtin)) == expected
        assert json.loads(orjson.dumps(value, default=pellucid.to_builtin)) == expected
    with pytest.raises(TypeError, match="object"):
        pellucid.to_builtin(object())


def test_a_value_whose_code_changes_the_list_around_it_does_no_harm() -> None:
    class Shrinking(collections.UserList[int]):
        def __iter__(self) -> Any:
            around.clear()
            return iter([1])

    around: list[Any] = [Shrinking(), 2, 3]
    assert pellucid.json_bytes(around) in (b"[[1]]", b"[[]]")
