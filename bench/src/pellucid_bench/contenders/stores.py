"""This module has what the measures of many records ask of a library: the role `stores`.

Every store takes the same list of dicts, numbered from 0. It can do four things: fill itself, sum the field
in a Python loop, sum the field with its own function, and read the field of one record. Each library is set
up as its own documentation advises for bulk work. The name of the store says which settings it has.
"""

# ruff: noqa: D102 (the docstrings of the methods are at `Store`)

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from pellucid_bench import contenders
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population, Record

Number = int | float


class Store(Protocol):
    """The methods that the measures of records use."""

    name: str
    is_ours: bool

    def fill(self, records: Sequence[Record]) -> None:
        """Start again, store `records`, and commit them."""

    def loop_sum(self) -> Callable[[], Number] | None:
        """Return a compiled loop that adds the field up in Python."""

    def own_sum(self) -> Callable[[], Number] | None:
        """Return the store's own sum over the field."""

    def field_line(self) -> tuple[str, dict[str, Any]] | None:
        """Return a line that reads the field of record number `key`, and its names."""

    def set_all(self, values: Iterable[Number]) -> None:
        """Set the field of every record to the next value, one by one, in one transaction."""

    def size(self) -> int | None:
        """Return the size on disk in bytes."""

    def close(self) -> None:
        """Close, and keep the file."""

    def remove(self) -> None:
        """Close, and delete the file."""


class InFile:
    """The common part of stores in a file or directory."""

    name: str
    is_ours = False
    suffix = ".db"

    def __init__(self, population: Population, directory: Path) -> None:
        self.population = population
        self.path = directory / (self.name.replace(" ", "-").replace(",", "") + self.suffix)

    def size(self) -> int | None:
        if self.path.is_dir():
            return sum(part.stat().st_size for part in self.path.iterdir() if "lock" not in part.name)
        return self.path.stat().st_size

    def close(self) -> None:
        raise NotImplementedError

    def remove(self) -> None:
        self.close()
        if self.path.is_dir():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)


def column_rows(records: Sequence[Record], dumps: Callable[[object], str]) -> Iterable[tuple[object, ...]]:
    """Split records into the columns of the two databases with columns."""
    for number, record in enumerate(records):
        rest = {name: value for name, value in record.items() if name not in ("name", "age", "amt", "end")}
        get = record.get
        yield number, get("name"), get("age"), get("amt"), get("end"), dumps(rest)


def stores(rivals: Rivals, population: Population, directory: Path) -> list[Store]:
    """Return all stores whose libraries are installed, ours first."""
    return contenders.of("stores", rivals, population, directory)


def json_text(rivals: Rivals) -> Callable[[object], str]:
    """Return the fastest JSON encoder that is installed, so the databases do not pay for a slow one."""
    if orjson := rivals.find("orjson"):
        dumps = orjson.dumps
        return lambda value: dumps(value).decode()
    import json

    return json.dumps


def number_in(row: tuple[Any, ...] | None) -> Number:
    """Return the number in a row with one."""
    value: Number = row[0] if row else 0
    return value
