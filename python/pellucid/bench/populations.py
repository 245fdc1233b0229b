"""Which records are measured?

Two populations go through every measure of records. *uniform*: one record, from the experiment that this
project set out to beat, a million times with another age. *mixed*: 64 kinds of record with 10 % of the fields
missing and ints mixed with floats, which no cache of one layout can serve and which overflows a table's list
of shapes. Queries ask a third one, *varied*: the uniform record with more values to tell apart.

A population also knows how its field is read: `rec.age` where it is always there, `rec.get("age", 0)` where
it may be missing. All contenders of a measure read it in the same way.
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
    """Records by number, and how their field `age` is read."""

    name: str
    describe: str
    record: Callable[[int], Record]
    by_attribute: str
    """Reads the field as an attribute, where the contender has attributes: `".age"`."""
    by_item: str
    """Reads the field as a dict does."""
    always_there: bool

    def records(self, count: int) -> list[Record]:
        """The first `count` records, each a dict of its own."""
        return [self.record(number) for number in range(count)]


def fred(number: int) -> Record:
    """Make the record of the experiment; only the age differs from one number to the next."""
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
    """Make the record of the experiment with more fields that differ, so that there is something to ask.

    Of as many records in a row as there are `STARTS`, one has a string that begins with each; `end` has 100
    values, and `amt` another one in each of a million. Quarters are exact in binary: any order of adding
    gives the same sum.
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
    """Make a record of one of 64 kinds, the same for the same number, with some of its fields missing."""
    chance = random.Random(number)
    record: Record = {}
    for name in SHAPES[number % SHAPE_COUNT]:
        if chance.random() < MISSING_SHARE:
            continue
        record[name] = _irregular_value(name, number, chance)
    return record


def _irregular_value(name: str, number: int, chance: random.Random) -> object:
    if name == "age":
        # Halves are exact in binary, so every order of adding gives the same sum.
        return number % 80 + 0.5 if chance.random() < 0.5 else number % 80
    if name == "tags":
        return [f"tag{tag}" for tag in range(number % 5)]
    if name == "owner":
        return {"name": f"owner {number % 100}", "id": number}
    if name in ("name", "city", "country", "street", "phone", "email", "title", "notes", "color", "end"):
        return f"{name} {number % 1000}"
    return chance.randrange(1000) if chance.random() < 0.5 else chance.randrange(1000) + 0.25


def small(number: int) -> Record:
    """Make a small flat record, as messages and rows of a web service are."""
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
