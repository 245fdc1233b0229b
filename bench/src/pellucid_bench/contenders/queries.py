"""This module has the questions of the measures of queries: the role `queried`.

All contenders hold the rows of the *varied* population and answer the same questions, each in the fastest way
of its library. The answers are plain Python objects, the same for all. A library with columns has one column
for each field that is asked for, the nested one too, and the rest of the record as JSON.
"""

# ruff: noqa: D102 (the docstrings of the methods are at `Queried`)

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

from pellucid_bench import contenders
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Record

ABOVE = 50
"""About half of the rows have a greater age."""
FROM = 75
"""One row in ten has this age or a greater one."""
PREFIX = "this"
"""One row in eight has a nested string that begins with this."""
TOP = 10

Groups = list[tuple[str, float, float]]


class Queried(Protocol):
    """The questions of the measures."""

    name: str
    is_ours: bool

    def fill(self, records: Sequence[Record]) -> None:
        """Start again and store `records`."""

    def count_above(self) -> int:
        """Return how many rows have an `age` above `ABOVE`."""

    def count_prefix(self) -> int:
        """Return how many rows have a string in `mydict.c.nested` that begins with `PREFIX`."""

    def groups(self) -> Groups:
        """Return the sum of `amt` and the mean of `age` for each `end`, sorted by `end`."""

    def top(self) -> list[float]:
        """Return the `amt` of the `TOP` rows with the greatest one. This must fetch whole rows."""

    def add_matches(self) -> float:
        """Return the sum of `amt` over the rows with an `age` from `FROM` on, added up in a Python loop."""

    def ages(self) -> list[int]:
        """Return the `age` of each row."""

    def grow_older(self) -> None:
        """Add 1 to the `age` of each row, in one transaction."""

    def remove(self) -> None:
        """Close, and delete the file."""


class InPython:
    """Answers the questions from dicts, one after the other, in Python."""

    def rows(self) -> Iterable[Record]:
        """Return all rows as dicts."""
        raise NotImplementedError

    def count_above(self) -> int:
        count = 0
        for row in self.rows():
            if row["age"] > ABOVE:
                count += 1
        return count

    def count_prefix(self) -> int:
        count = 0
        for row in self.rows():
            if row["mydict"]["c"]["nested"].startswith(PREFIX):
                count += 1
        return count

    def groups(self) -> Groups:
        found: dict[str, list[Any]] = {}
        for row in self.rows():
            group = found.get(row["end"])
            if group is None:
                group = found[row["end"]] = [0.0, 0, 0]
            group[0] += row["amt"]
            group[1] += row["age"]
            group[2] += 1
        return [(end, total, ages / count) for end, (total, ages, count) in sorted(found.items())]

    def top(self) -> list[float]:
        return [row["amt"] for row in heapq.nlargest(TOP, self.rows(), key=itemgetter("amt"))]

    def add_matches(self) -> float:
        total = 0.0
        for row in self.rows():
            if row["age"] >= FROM:
                total += row["amt"]
        return total

    def ages(self) -> list[int]:
        return [row["age"] for row in self.rows()]


class InSql:
    """Answers the questions in SQL, with columns or with expressions for them."""

    age, amt, end, nested = "age", "amt", "last", "nested"
    begins = f"GLOB '{PREFIX}*'"
    """A condition. SQLite's `LIKE` would ignore upper and lower case."""
    change = "UPDATE people SET age = age + 1"

    @property
    def four(self) -> str:
        """Return the list of four columns, with the names of the fields."""
        return f'{self.age} AS age, {self.amt} AS amt, {self.end} AS "end", {self.nested} AS nested'

    def fetch(self, line: str) -> Iterable[tuple[Any, ...]]:
        """Return the rows of a statement."""
        raise NotImplementedError

    def _value(self, line: str) -> Any:
        return next(iter(self.fetch(line)))[0]

    def count_above(self) -> int:
        found: int = self._value(f"SELECT count(*) FROM people WHERE {self.age} > {ABOVE}")
        return found

    def count_prefix(self) -> int:
        found: int = self._value(f"SELECT count(*) FROM people WHERE {self.nested} {self.begins}")
        return found

    def groups(self) -> Groups:
        sums = f"SELECT {self.end}, sum({self.amt}), avg({self.age}) FROM people GROUP BY 1 ORDER BY 1"
        return [(end, total, mean) for end, total, mean in self.fetch(sums)]

    def top(self) -> list[float]:
        line = f"SELECT {self.amt}, * FROM people ORDER BY {self.amt} DESC LIMIT {TOP}"
        return [row[0] for row in self.fetch(line)]

    def add_matches(self) -> float:
        total = 0.0
        for (amt,) in self.fetch(f"SELECT {self.amt} FROM people WHERE {self.age} >= {FROM}"):
            total += amt
        return total

    def ages(self) -> list[int]:
        return [age for (age,) in self.fetch(f"SELECT {self.age} FROM people")]

    def grow_older(self) -> None:
        for _ in self.fetch(self.change):
            pass


def cut(records: Iterable[Record], dumps: Callable[[object], str]) -> Iterator[tuple[object, ...]]:
    """Split records into columns: the fields that are asked for, and the rest as JSON."""
    for number, record in enumerate(records):
        inner = record["mydict"]["c"]
        rest = {
            "mylist": record["mylist"],
            "mydict": {**record["mydict"], "c": {"num": inner["num"], "list": inner["list"]}},
        }
        yield (
            number,
            record["name"],
            record["age"],
            record["amt"],
            record["end"],
            inner["nested"],
            dumps(rest),
        )


def queried(rivals: Rivals, directory: Path) -> list[Queried]:
    """Return all libraries that are installed, ours first, each on one thread."""
    return contenders.of("queried", rivals, directory)
