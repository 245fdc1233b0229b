"""This module makes the records of the benchmarks.

Two populations are used by every measure of records. *uniform* is the record of the experiment that this
project wanted to beat, a million times, each with another age. *mixed* has 64 kinds of record; 10 % of the
fields are missing, and ints are mixed with floats. No cache of one layout can serve it, and it has more
shapes than a table can list. The queries use a third one: *varied* is the uniform record with more fields
that differ.

A population also says how to read its field: `rec.age` if it is always there, `rec.get("age", 0)` if it may
be missing. All contenders of a measure read it in the same way.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Record = dict[str, Any]

FIELD_NAMES = [
    *("name", "amt", "end", "city", "country", "street", "zip", "phone", "email", "score", "level", "rank"),
    *("title", "tags", "notes", "owner", "state", "color", "width", "height", "depth", "weight", "price"),
    "stock",
]
SHAPE_COUNT = 64
MISSING_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Population:
    """Records by number, and how to read their field `age`."""

    name: str
    describe: str
    record: Callable[[int], Record]
    by_attribute: str
    """Reads the field as an attribute, if the contender has attributes: `".age"`."""
    by_item: str
    """Reads the field as a dict does."""
    always_there: bool

    def records(self, count: int) -> list[Record]:
        """Return the first `count` records, each as a dict of its own."""
        return [self.record(number) for number in range(count)]


def fred(number: int) -> Record:
    """Make the record of the experiment. Only the age depends on the number."""
    return {
        "name": "Fred Bloggs",
        "age": 21 + number * 37 % 60,
        "mylist": ["one", "two", "three", "four", 5],
        "mydict": {
            "a": 1,
            "b": 2,
            "c": {"nested": "this is a long string", "num": 9321, "list": [{"a": 1}, {"b": 2, "c": 3}]},
        },
        "amt": 1.23,
        "end": "****",
    }


STARTS = ["this", "that", "those", "which", "what", "here", "there", "where"]


def varied(number: int) -> Record:
    """Make the record of the experiment with more fields that differ, for queries.

    `STARTS` has the beginnings of a string; consecutive records use them in turn. `end` has 100 values, and
    `amt` has a different value in each of a million records. Quarters are exact in binary, so any order of
    adding gives the same sum.
    """
    record = fred(number)
    record["amt"] = number * 7919 % 1_000_003 / 4
    record["end"] = f"**{number % 100:02}"
    record["mydict"]["c"]["nested"] = f"{STARTS[number % len(STARTS)]} is a long string"
    return record


def _shapes() -> list[list[str]]:
    chance = random.Random(64)
    shapes = []
    for _ in range(SHAPE_COUNT):
        names = ["age", *chance.sample(FIELD_NAMES, chance.randint(4, 12))]
        chance.shuffle(names)
        shapes.append(names)
    return shapes


SHAPES = _shapes()


def irregular(number: int) -> Record:
    """Make a record of one of 64 kinds, always the same for one number, with some fields missing."""
    chance = random.Random(number)
    record: Record = {}
    for name in SHAPES[number % SHAPE_COUNT]:
        if chance.random() < MISSING_SHARE:
            continue
        record[name] = _irregular_value(name, number, chance)
    return record


def _irregular_value(name: str, number: int, chance: random.Random) -> object:
    if name == "age":
        # Halves are exact in binary, so any order of adding gives the same sum.
        return number % 80 + 0.5 if chance.random() < 0.5 else number % 80
    if name == "tags":
        return [f"tag{tag}" for tag in range(number % 5)]
    if name == "owner":
        return {"name": f"owner {number % 100}", "id": number}
    if name in ("name", "city", "country", "street", "phone", "email", "title", "notes", "color", "end"):
        return f"{name} {number % 1000}"
    return chance.randrange(1000) if chance.random() < 0.5 else chance.randrange(1000) + 0.25


def small(number: int) -> Record:
    """Make a small flat record, like a message or a row of a web service."""
    return {"id": number, "name": f"user {number}", "score": number * 0.5, "active": number % 2 == 0}


UNIFORM = Population(
    "uniform",
    "one kind of record, every field there",
    fred,
    by_attribute=".age",
    by_item="['age']",
    always_there=True,
)
VARIED = Population(
    "varied",
    "the uniform record, with four more fields that differ",
    varied,
    by_attribute=".age",
    by_item="['age']",
    always_there=True,
)
MIXED = Population(
    "mixed",
    f"{SHAPE_COUNT} kinds of record, {MISSING_SHARE:.0%} of the fields missing, ints mixed with floats",
    irregular,
    by_attribute=".get('age', 0)",
    by_item=".get('age', 0)",
    always_there=False,
)
