"""Has an index always what its rows come to? Random operations against a naive model of rows and indexes.

The model is a dict from what orders a key to its first spelling and its record. What an index has to
have is derived from all of it after each step, by Python alone; so are uniqueness and what a rollback leaves.
"""

from __future__ import annotations

import copy
import datetime as dt
import math
import shutil
import tempfile
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pellucid
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from pellucid import KEY, F
from values import fingerprint, key_atoms, keys, order, plain

Rows = dict[Any, tuple[Any, dict[str, Any]]]
MISSING = object()

# Few values, so that they meet: numbers that are equal and spelled otherwise, the begin of each other, of
# all families, and such as have no place in an order.
indexed = st.sampled_from(
    [
        1,
        1.0,
        True,
        0,
        -0.0,
        2,
        2.5,
        "",
        "a",
        "a\x00",
        "ab",
        None,
        b"a",
        bytearray(b"a"),
        (1, "a"),
        (1,),
        (),
        Decimal("1.0"),
        Decimal(1),
        dt.date(2020, 1, 1),
        dt.datetime(2020, 1, 1),
        2**70,
        -(2**70),
        math.inf,
        math.nan,
        {"x": 1},
        [1, 2],
        {1},
        1j,
        dt.time(1),
        "x" * 600,
    ]
)
record_values = indexed | key_atoms
few_keys = st.sampled_from(["a", "b", 1, 1.0, True, ("a", 1), None, "k" * 700, "k" * 701]) | keys
records = st.fixed_dictionaries(
    {},
    optional={
        "v": record_values,
        "w": record_values,
        "n": st.fixed_dictionaries({}, optional={"m": record_values}),
        "tags": st.lists(indexed, max_size=4) | indexed,
        "more": st.integers(),
    },
)


def is_found_by(name: str, wanted: tuple[Any, Any], entry: tuple[Any, Any, Any]) -> bool:
    """Whether each part has the same key, or is a number and a Decimal that equal each other."""
    is_compound = isinstance(DEFINITIONS[name][0], tuple) and len(DEFINITIONS[name][0]) > 1
    (place, value), (other_place, other, _) = wanted, entry
    one, other = (value, other) if is_compound else ((value,), (other,))
    numbers = (int, float, Decimal)
    return all(
        mine == theirs or (isinstance(a, numbers) and isinstance(b, numbers) and a == b)
        for mine, theirs, a, b in zip(place[0], other_place[0], one, other, strict=True)
    )


def key_of(value: Any) -> Any:
    """What a part has of a value; MISSING where it cannot be a key."""
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, tuple):
        parts = tuple(key_of(part) if not isinstance(part, bytearray) else MISSING for part in value)
        return MISSING if MISSING in parts else value
    if value is None or isinstance(value, (str, bytes, bool, int, dt.date)):
        return value
    if isinstance(value, float):
        return MISSING if math.isnan(value) else value
    if isinstance(value, Decimal):
        return MISSING if value.is_nan() else value
    return value if type(value).__name__ == "UUID" else MISSING


def field(name: str) -> Callable[[Any, dict[str, Any]], list[Any]]:
    return lambda _, record: [record[name]] if name in record else []


def nested(_: Any, record: dict[str, Any]) -> list[Any]:
    inner = record.get("n")
    return [inner["m"]] if isinstance(inner, dict) and "m" in inner else []


def each_tag(_: Any, record: dict[str, Any]) -> list[Any]:
    tags = record.get("tags")
    return list(tags) if isinstance(tags, (list, tuple, set)) else []


def lower(_: Any, record: dict[str, Any]) -> list[Any]:
    value = record.get("v")
    # What has lone surrogates has no lower case.
    has_case = isinstance(value, str) and not any("\ud800" <= one <= "\udfff" for one in value)
    return [value.lower()] if has_case else []


def is_adult(record: dict[str, Any]) -> bool:
    return isinstance(record.get("w"), (int, float, Decimal)) and record["w"] >= 1


# Of each: what pellucid is told, and how Python reads the values of a part; which parts are descending;
# which rows have entries.
DEFINITIONS: dict[
    str, tuple[Any, list[Any], list[bool], Callable[[dict[str, Any]], bool], dict[str, Any]]
] = {
    "single": (F.v, [field("v")], [False], lambda _: True, {}),
    "turned": (F.v.desc(), [field("v")], [True], lambda _: True, {}),
    "unique": (F.w, [field("w")], [False], lambda _: True, {"unique": True}),
    "both": ((F.v, F.w.desc()), [field("v"), field("w")], [False, True], lambda _: True, {}),
    "pair": ((F.w.desc(), "n.m"), [field("w"), nested], [True, False], lambda _: True, {"unique": True}),
    "tags": (F.tags.each(), [each_tag], [False], lambda _: True, {}),
    "lower": (F.v.lower(), [lower], [False], lambda _: True, {}),
    "adults": (F.v, [field("v")], [False], is_adult, {"where": F.w >= 1}),
    "keyed": ((F.v, KEY), [field("v"), lambda key, _: [key]], [False, False], lambda _: True, {}),
}


class Turned:
    """Sorts the other way round."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: Turned) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Turned) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)


def entries_of(name: str, key: Any, record: dict[str, Any]) -> dict[Any, Any]:
    """From what orders the parts of each entry to its value: of those that are equal the first."""
    _, parts, turned, condition, _ = DEFINITIONS[name]
    if not condition(record):
        return {}
    found: list[tuple[Any, ...]] = [()]
    for part in parts:
        values = [value for value in map(key_of, part(key, record)) if value is not MISSING]
        found = [(*before, value) for before in found for value in values]
    entries: dict[Any, Any] = {}
    for values_ in found:
        place = tuple(
            Turned(order(value)) if is_turned else order(value)
            for value, is_turned in zip(values_, turned, strict=True)
        )
        entries.setdefault(place, values_[0] if len(values_) == 1 else values_)
    return entries


def content(name: str, rows: Rows) -> list[tuple[Any, Any, Any]]:
    """What the index has: what orders the value, the value, the key."""
    found = [
        ((place, key_place), value, key)
        for key_place, (key, record) in rows.items()
        for place, value in entries_of(name, key, record).items()
    ]
    return sorted(found, key=lambda entry: entry[0])


def clash(name: str, rows: Rows) -> bool:
    """Whether two rows have one value."""
    places = [place for (place, _), _, _ in content(name, rows)]
    return len(places) != len(set(places))


class IndexMachine(RuleBasedStateMachine):
    """What a user may do to rows and indexes, in any order."""

    target = ":memory:"

    @initialize()
    def open(self) -> None:
        self.db = pellucid.open(self.target)
        self.table = self.db.table("t")
        self.rows: Rows = {}
        self.least_next = 0
        self.indexes: set[str] = set()
        self.begun: list[tuple[Any, Rows, set[str], int]] = []

    def attempt(self, rows: Rows, work: Callable[[], object]) -> None:
        """Do what leaves these rows, unless a unique index has something against it."""
        if any(DEFINITIONS[name][4].get("unique") and clash(name, rows) for name in self.indexes):
            with pytest.raises(pellucid.UniqueError):
                work()
        else:
            work()
            self.rows = rows

    def with_row(self, rows: Rows, key: Any, record: dict[str, Any]) -> Rows:
        spelled = rows.get(order(key), (key, None))[0]
        return {**rows, order(key): (spelled, record)}

    def next_int(self) -> int:
        """One more than the greatest number of 64 bits that is a key or, where its row is gone, was one."""
        numbers = [key for key, _ in self.rows.values() if isinstance(key, (int, float))]
        return max([self.least_next, *(math.floor(number) + 1 for number in numbers if abs(number) < 2**63)])

    # Rows

    @rule(key=few_keys, record=records)
    def put(self, key: Any, record: dict[str, Any]) -> None:
        self.attempt(self.with_row(self.rows, key, record), lambda: self.table.__setitem__(key, record))

    @rule(pairs=st.lists(st.tuples(few_keys, records), max_size=5))
    def update(self, pairs: list[tuple[Any, dict[str, Any]]]) -> None:
        # A batch is refused where two of its rows clash on the way, too, or with what one of them had.
        after = self.rows
        is_refused = False
        for key, record in pairs:
            after = self.with_row(after, key, record)
            is_refused |= any(
                DEFINITIONS[name][4].get("unique") and clash(name, after) for name in self.indexes
            )
        before = self.rows
        try:
            self.table.update(pairs)
            self.rows = after
        except pellucid.UniqueError:
            assert is_refused
            self.rows = before

    @rule(values=st.lists(records, max_size=5))
    def extend(self, values: list[dict[str, Any]]) -> None:
        start = self.next_int()
        numbers = [key for key, _ in self.rows.values() if isinstance(key, (int, float))]
        if start >= 2**60 or any(number >= 2**60 for number in numbers):
            return
        after = self.rows
        for place, record in enumerate(values):
            after = self.with_row(after, start + place, record)
        self.attempt(after, lambda: self.table.extend(values))

    @rule(record=records)
    def append(self, record: dict[str, Any]) -> None:
        key = self.next_int()
        numbers = [key for key, _ in self.rows.values() if isinstance(key, (int, float))]
        if key < 2**60 and all(number < 2**60 for number in numbers):
            self.attempt(self.with_row(self.rows, key, record), lambda: self.table.append(record))

    @precondition(lambda self: self.rows)
    @rule(data=st.data())
    def delete(self, data: st.DataObject) -> None:
        place = data.draw(st.sampled_from(sorted(self.rows)))
        self.least_next = self.next_int()
        key, _ = self.rows.pop(place)
        del self.table[key]

    @precondition(lambda self: self.rows)
    @rule(data=st.data(), name=st.sampled_from(["v", "w", "tags", "more"]), value=record_values)
    def set_field(self, data: st.DataObject, name: str, value: Any) -> None:
        place = data.draw(st.sampled_from(sorted(self.rows)))
        key, record = self.rows[place]
        after = {**self.rows, place: (key, {**record, name: value})}
        self.attempt(after, lambda: self.table[key].__setitem__(name, value))

    @precondition(lambda self: self.rows)
    @rule(value=st.integers(0, 3))
    def change_by_query(self, value: int) -> None:
        after = {
            place: (key, {**record, "v": value} if "more" in record else record)
            for place, (key, record) in self.rows.items()
        }
        self.attempt(after, lambda: self.table.where(F.more.exists()).update(v=value))

    @rule()
    def clear(self) -> None:
        self.table.clear()
        self.least_next = self.next_int()
        self.rows = {}

    # Indexes

    @rule(name=st.sampled_from(sorted(DEFINITIONS)))
    def create(self, name: str) -> None:
        parts, _, _, _, options = DEFINITIONS[name]
        if options.get("unique") and name not in self.indexes and clash(name, self.rows):
            with pytest.raises(pellucid.UniqueError):
                self.table.create_index(name, parts, **options)
        else:
            self.table.create_index(name, parts, **options)
            self.indexes.add(name)

    @precondition(lambda self: self.indexes)
    @rule(data=st.data(), rebuilds=st.booleans())
    def drop_or_rebuild(self, data: st.DataObject, rebuilds: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.indexes)))
        if rebuilds:
            self.table.rebuild_index(name)
        else:
            self.table.drop_index(name)
            self.indexes.remove(name)

    @precondition(lambda self: self.indexes)
    @rule(data=st.data(), reverse=st.booleans())
    def look_for_values(self, data: st.DataObject, reverse: bool) -> None:
        name = data.draw(st.sampled_from(sorted(self.indexes)))
        index, expected = self.table.index(name), content(name, self.rows)
        records = {place: record for place, (_, record) in self.rows.items()}
        if not expected:
            assert index.first() is None
            assert index.last() is None
            return
        place, value, _ = data.draw(st.sampled_from(expected))
        same = [entry for entry in expected if entry[0][0] == place[0]]
        behind = [entry for entry in expected if not entry[0][0] < place[0]]
        assert fingerprint(plain(index.get(value))) == fingerprint(records[same[0][0][1]])
        # A row that has it as a number and as a Decimal has two entries, and is counted once.
        count = len({entry[0][1] for entry in expected if is_found_by(name, (place, value), entry)})
        assert (index.count(value), value in index) == (count, True)
        for row, edge in ((index.first(), expected[0]), (index.last(), expected[-1])):
            assert fingerprint(plain(row)) == fingerprint(records[edge[0][1]])
        if value is None:
            # As a bound, it leaves that side open.
            return
        found = [fingerprint(plain(row)) for row in index.range(value, reverse=reverse)]
        wanted = [fingerprint(records[entry[0][1]]) for entry in behind]
        assert found == (wanted[::-1] if reverse else wanted)
        ahead = [entry for entry in expected if entry[0][0] < place[0]]
        assert [key for _, key in index.keys(stop=value)] == [key for _, _, key in ahead]

    # Transactions, the file

    @rule()
    def begin(self) -> None:
        context = self.db.transaction()
        context.__enter__()
        self.begun.append((context, copy.deepcopy(self.rows), set(self.indexes), self.least_next))

    @precondition(lambda self: self.begun)
    @rule()
    def commit(self) -> None:
        context, *_ = self.begun.pop()
        context.__exit__(None, None, None)

    @precondition(lambda self: self.begun)
    @rule()
    def roll_back(self) -> None:
        context, self.rows, self.indexes, self.least_next = self.begun.pop()
        context.__exit__(KeyError, KeyError(), None)

    @precondition(lambda self: not self.begun and self.target != ":memory:")
    @rule()
    def reopen(self) -> None:
        self.db.close()
        self.db = pellucid.open(self.target)
        self.table = self.db.table("t")

    @invariant()
    def is_as_the_model(self) -> None:
        if not hasattr(self, "db"):
            return
        assert [index.name for index in self.table.indexes()] == sorted(self.indexes)
        for name in self.indexes:
            expected = [(fingerprint(value), fingerprint(key)) for _, value, key in content(name, self.rows)]
            index = self.table.index(name)
            assert [(fingerprint(value), fingerprint(key)) for value, key in index] == expected, name
            backwards = [(fingerprint(value), fingerprint(key)) for value, key in index.keys(reverse=True)]
            assert backwards == expected[::-1], name
            assert len(index) == len(expected), name
        if not self.begun:
            assert self.db.check() == []

    def teardown(self) -> None:
        if hasattr(self, "db"):
            while self.begun:
                self.begun.pop()[0].__exit__(KeyError, KeyError(), None)
            self.db.close()


class FileMachine(IndexMachine):
    """The same on disk, where it can be closed and opened again."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.mkdtemp()
        self.target = str(Path(self.folder) / "test.pel")

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


TestInMemory = IndexMachine.TestCase
TestInMemory.settings = settings(max_examples=60, stateful_step_count=15)
TestOnDisk = FileMachine.TestCase
TestOnDisk.settings = settings(max_examples=60, stateful_step_count=15)
