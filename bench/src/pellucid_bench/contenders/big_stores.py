"""This module has what `bench scale` asks of a library: the role `big_stores`, many rows of 200 bytes.

A row has a str key, its number, a town, an age, and a text that fills it up. pellucid and SQLite store the
fields. LMDB and RocksDB store the row packed by `struct`, so that they pay nothing for an encoding, and have
no indexes. All commit without waiting for the disk.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

INDEXES = ("number", "town")
"""The fields that have an index: none, the first, or both."""
TOWNS = 5_000
TEXT_SIZE = 168
ROW_SIZE = 220
"""Bytes of a key and its packed row."""
HEAD = struct.Struct("<QQ")
"""The number and the age of a packed row."""


class Row(NamedTuple):
    """One row."""

    key: str
    number: int
    town: str
    age: int
    text: str


class BigStore:
    """A library that has a store open, with these methods."""

    name: str
    module: str
    """The module that must be installed."""
    has_indexes = False
    has_one_commit = True
    """Whether it can load any number of rows in one commit."""

    def __init__(self, folder: Path) -> None:
        """Open the store in a folder, or create it."""

    def create_indexes(self, count: int) -> None:
        """Create the first `count` of `INDEXES`."""
        raise NotImplementedError

    def commit(self, rows: Iterable[Row]) -> None:
        """Put all rows in one commit."""
        raise NotImplementedError

    def putter(self) -> Callable[[Row], object]:
        """Return a function that puts and commits one row."""
        raise NotImplementedError

    def number_of(self, key: str) -> int:
        """Return the number of the row under a key."""
        raise NotImplementedError

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the rows in one commit."""
        raise NotImplementedError

    def key_range(self, start: str, count: int) -> int:
        """Return the sum of the ages of `count` rows from a key on."""
        raise NotImplementedError

    def sum_ages(self) -> int:
        """Return the sum of all ages."""
        raise NotImplementedError

    def by_index(self, number: int) -> str:
        """Return the text of the row with a number, by the index."""
        raise NotImplementedError

    def index_range(self, start: int, stop: int) -> int:
        """Return the sum of the ages of the rows with these numbers, in a Python loop over the index."""
        raise NotImplementedError

    def snapshot(self) -> AbstractContextManager[object]:
        """Keep what is stored now as it is."""
        raise NotImplementedError

    def live_size(self, count: int) -> int:
        """Return the bytes of this number of keys and rows, as the library encodes them."""
        return count * ROW_SIZE

    def finish_writes(self) -> float:
        """Write all commits to their final place, and sync. Return how long it was at rest then."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the store."""
        raise NotImplementedError


def packed(row: Row) -> bytes:
    """Return the row as bytes, for libraries that store nothing else."""
    return HEAD.pack(row.number, row.age) + f"{row.town:16}{row.text}".encode()
